"""``asa ccs``: a plan of what a file asks for, as a table and as a picture, and why a job is not earlier in it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.errors import InputError, near

from .measuring import bench, drift

if TYPE_CHECKING:
    from rich.table import Table

    from .jobs import Job
    from .limits import FreePool, Limit
    from .requests import Kind, Request
    from .system import System
    from .why import Why

__all__ = ["app"]

_SCHEMA = 1
_IN_1973_S = 100_000_000
_NARROW = 100
_OCULUS = "oculus"
_STYLES = {
    "ended": "dim",
    "running": "bold green",
    "planned": "",
    "waiting": "yellow",
    "refused": "bold red",
}
_AT = re.compile(r"\s*at=(\S*)")
_COMMENT = re.compile(r"(^|\s)#.*")
_WORD = re.compile(r"\S+")
_FROM_NOW = re.compile(r"(\d+(\.\d+)?\s*[a-z]+\s*)+")

app = typer.Typer(
    help="""Plan jobs as OpenCCS does: each is told when it will start as soon as it is asked for.

    Most batch systems queue: what starts next is decided when something ends. A planning system gives each request its
    place in a plan of the future at once. OpenCCS, of the computing centre in Paderborn, is one.

    `asa ccs plan` plans the requests in a file; `asa ccs why` says why one of them does not start earlier.
    """,
    no_args_is_help=True,
)
app.command("bench")(bench)
app.command("drift")(drift)


class Output(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


_FileArgument = Annotated[
    Path | None,
    typer.Argument(help="Requests, one a line; see above. Or give --trace.", metavar="FILE", show_default=False),
]
_SystemOption = Annotated[
    str,
    typer.Option(help="oculus (616 nodes, 9,920 cores), or a file that tells of nodes.", metavar="NAME|FILE.toml"),
]
_LimitsOption = Annotated[
    Path | None,
    typer.Option(
        help="What users and groups may have at most, and what is kept free for whom; see above.",
        metavar="FILE.toml",
    ),
]
_NowOption = Annotated[
    str | None,
    typer.Option(
        help="The time at which the plan is looked at: who comes later is not in it. [default: when the last comes]",
        show_default=False,
        metavar="TIME",
    ),
]
_TraceOption = Annotated[
    Path | None,
    typer.Option(help="Instead of FILE a workload log (SWF), as of one node of all its cores.", metavar="LOG.swf"),
]
_JobsOption = Annotated[int, typer.Option(help="With --trace: so many of the log's first jobs.", min=1)]
_CoresOption = Annotated[
    int | None, typer.Option(help="With --trace: the machine's processors, if the log's header does not say.", min=1)
]
_OutputOption = Annotated[Output, typer.Option(help="How to print; JSON has its version under `schema`.")]


@app.command()
def plan(
    file: _FileArgument = None,
    *,
    system: _SystemOption = _OCULUS,
    limits: _LimitsOption = None,
    now: _NowOption = None,
    trace: _TraceOption = None,
    jobs: _JobsOption = 100,
    trace_cores: _CoresOption = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw who has which cores when (.png, .svg).", metavar="FILE"),
    ] = None,
    output: _OutputOption = Output.TABLE,
) -> None:
    """Plan requests, and show when and where each will run.

    A request is placed behind those that came before it, at the first time at which everything that it needs is free
    for as long as it lasts. FILE holds one a line, with who asks and the job's name before a colon, if need be:

    `at=2017-08-01T08:00 alice@physics big: rset=8:ncpus=16,walltime=2h`

    `bob@ small: rset=2:ncpus=4:mem=8g+ncpus=1:gpus=1,walltime=30m,place=scatter`

    `rset=ncpus=1,walltime=10m,deadline=2017-08-01T12:00    # a comment`

    at= is when it came: a date and time in UTC, or a number of seconds. Who leaves it out comes with the one above, the
    first at 0. USER@GROUP has its @ even where one of both is missing. Jobs without a name are called by their number.

    rset= holds chunks, each of which must be on one node: `[N:]resource=value[:resource=value...]`, with + between
    sorts of them. Then come, in any order, walltime=, place=free, pack or scatter (with :excl for nodes of its own),
    start= or deadline=, priority=, array=0-9, and what belongs to no node, such as sw=g03 for a licence.

    A system is a file with a table for each kind of node, limits are one of their own:

    `[[nodes]]` `name = "n"` `count = 4` `resources = {ncpus = 16, mem = "64g"}` `properties = {net = "IB"}`

    `[[limits]]` `user = "alice"` (or `group`; `"*"` is everybody) `resource = "ncpus"` `items = "64"`

    Example: `asa ccs plan requests.txt --system cluster.toml --picture plan.png`

    Exit codes: 0 all are in the plan, 1 some were refused, 2 the input cannot be used.
    """
    from asa.drawing import check_figure_path

    if picture is not None:
        check_figure_path(picture, "--picture")
    given = _read(file, (trace, jobs, trace_cores), system, limits)
    made = _Made(given, _now(now, given.asked))
    if output is Output.JSON:
        _print_json(made.as_dict())
    else:
        _print_plan(made)
    if picture is not None:
        _draw(made, picture)
    if made.refused:
        raise typer.Exit(1)


@app.command()
def why(
    job: Annotated[str, typer.Argument(help="A job's name, or its number; of an array, name[index].", metavar="JOB")],
    file: _FileArgument = None,
    *,
    at: Annotated[
        str | None,
        typer.Option(
            help="A time at which it looks as if there were room: 2017-08-01T12:00, seconds, or from now as in 2h. "
            "[default: the earliest at which it could have started]",
            show_default=False,
            metavar="TIME",
        ),
    ] = None,
    system: _SystemOption = _OCULUS,
    limits: _LimitsOption = None,
    now: _NowOption = None,
    trace: _TraceOption = None,
    jobs: _JobsOption = 100,
    trace_cores: _CoresOption = None,
    output: _OutputOption = Output.TABLE,
) -> None:
    """Say why a job does not start earlier: what is missing, who has it, and what would have to be otherwise.

    FILE and the options are those of `asa ccs plan`. Each thing that the job's start depends on is taken away in turn,
    and the job planned anew: what others hold of each resource, limits, how its chunks fit onto nodes, and so on. What
    would let it start sooner binds. Nothing of this changes the plan.

    Of the time that --at names it is said what would be missing if the job started then.

    Example: `asa ccs why small requests.txt --at 2017-08-01T10:00`

    Exit codes: 0 done, 2 the input cannot be used, or there is no such job.
    """
    from .why import why as ask

    given = _read(file, (trace, jobs, trace_cores), system, limits)
    made = _Made(given, _now(now, given.asked), until=job)
    about: Job | str = made.refused.get(job, job)
    told = ask(made.plan, about, now=made.now, at=_time(at, "--at", made.now) if at is not None else None)
    if output is Output.JSON:
        _print_json(_why_as_dict(told, made))
    else:
        _print_why(told)


# ---------------------------------------------------------------------- what is given


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, who asks, and when."""

    at_s: int
    user: str
    group: str
    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class _Given:
    """What is to be planned, on what, and within which limits."""

    system: System
    asked: Sequence[_Asked]
    limits: tuple[Limit, ...] = ()
    pools: tuple[FreePool, ...] = ()


def _read(file: Path | None, log: tuple[Path | None, int, int | None], system: str, limits: Path | None) -> _Given:
    from .limits import load_limits

    trace, jobs, cores = log
    bounds = load_limits(limits) if limits is not None else ((), ())
    if file is not None and trace is None:
        what = _system(system)
        return _Given(what, _lines(file, what.kinds), *bounds)
    if trace is None or file is not None:
        hint = "As in: asa ccs plan requests.txt"
        raise InputError("name a file of requests, or a log with --trace", where="FILE", hint=hint)
    if system != _OCULUS:
        hint = "Leave one of both out: a log is planned on one node."
        raise InputError("does not go with --trace", where="--system", hint=hint)
    return _Given(*_log(trace, jobs, cores), *bounds)


def _system(name: str) -> System:
    from .system import load_system, oculus

    if name == _OCULUS:
        return oculus()
    if not name.endswith(".toml") and not Path(name).exists():
        hint = f"{near(name, [_OCULUS])}Write oculus, or name a .toml file."
        raise InputError(f"there is no system {name!r}", where="--system", hint=hint)
    return load_system(name)


def _lines(file: Path, kinds: Mapping[str, Kind]) -> list[_Asked]:
    """Read a file of requests."""
    from .requests import PointedError

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "Check the path; it is to be a file of text."
        raise InputError(f"cannot be read: {error}", where=str(file), hint=hint) from error
    asked: list[_Asked] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        bare = _COMMENT.sub("", line)
        if not bare.strip():
            continue
        try:
            one = _line(bare, kinds, asked, lines)
        except PointedError as error:
            message = error.message.partition("\n")[2].lstrip().removeprefix("^ ")
            where = f"{file}:{number}"
            raise PointedError(message, where=where, hint=error.hint, text=bare, position=error.position) from error
        lines[one.name] = number
        asked.append(one)
    if not asked:
        raise InputError("asks for nothing", where=str(file), hint="Write a request a line, as rset=ncpus=4.")
    return asked


def _line(line: str, kinds: Mapping[str, Kind], before: Sequence[_Asked], lines: Mapping[str, int]) -> _Asked:
    """Read who asks for what, and when."""
    from .requests import Piece, PointedError, Request, moment

    whole = Piece.of(line, PointedError)
    at_s, start = before[-1].at_s if before else 0, 0
    if at := _AT.match(line):
        at_s, start = moment(whole.cut(at.start(1), at.end(1))), at.end()
    who = name = whole.cut(start, start)
    colon, sign = (line.find(character, start) for character in ":=")
    if colon >= 0 and (sign < 0 or colon < sign):
        for word in (whole.cut(*found.span()) for found in _WORD.finditer(line, start, colon)):
            if not word.text.isprintable():
                raise word.refuse("holds a character that cannot be shown")
            if "@" in word.text and word.text.count("@") == 1 and not who.text and not name.text:
                who = word
            elif "@" not in word.text and not name.text:
                name = word
            else:
                raise word.refuse(
                    f"{word.quoted} does not belong here", "Write USER@GROUP, the job's name and a colon."
                )
        start = colon + 1
    called = name.text or str(len(before) + 1)
    if called in lines:
        hint = "Name each request otherwise. One without a name is called by its number."
        raise name.refuse(f"line {lines[called]} has a job {called!r} already", hint)
    if not line[start:].strip():
        raise whole.cut(len(line)).refuse("a request is missing here", "Write one, as in rset=2:ncpus=4:mem=8g.")
    user, _, group = who.text.partition("@")
    return _Asked(at_s, user, group, called, Request.parse(" " * start + line[start:], kinds))


def _log(path: Path, jobs: int, cores: int | None) -> tuple[System, list[_Asked]]:
    """Read the first jobs of a log."""
    from asa.backends.simulated.swf import read_swf

    from .requests import Chunk, Request
    from .system import Node, System

    log = read_swf(path, cores=cores)
    table = log.table
    first = slice(min(jobs, len(table)))
    ids = log.job_ids[first].tolist()
    names = ids if len(set(ids)) == len(ids) else range(1, len(ids) + 1)
    # a log's clock begins with it, or is that of 1970 already
    begins_s = max(log.clock_s, 0) if table.submit[0] < _IN_1973_S else 0
    columns = (table.submit, table.request, table.cores, log.users, log.groups)
    asked = [
        _Asked(
            submit_s + begins_s,
            f"u{user}" if user >= 0 else "",
            f"g{group}" if group >= 0 else "",
            str(name),
            Request((Chunk(1, {"ncpus": cores}),), walltime_s=lasts_s),
        )
        for name, submit_s, lasts_s, cores, user, group in zip(
            names, *(c[first].tolist() for c in columns), strict=True
        )
    ]
    name = path.name.removesuffix(".gz").removesuffix(".swf")
    return System(name, (Node(name, {"ncpus": log.cores}),)), asked


def _now(given: str | None, asked: Sequence[_Asked]) -> int:
    return max(one.at_s for one in asked) if given is None else _time(given, "--now", None)


def _time(text: str, option: str, now: int | None) -> int:
    """Read a time; where now is known, also one from now on."""
    from asa.units import parse_duration

    from .requests import Piece, PointedError, moment

    if now is not None and _FROM_NOW.fullmatch(text):
        try:
            return now + round(parse_duration(text))
        except InputError as error:
            raise InputError(error.message, where=option, hint=error.hint) from error
    try:
        return moment(Piece.of(text, PointedError))
    except PointedError as error:
        error.where = option
        raise


# ---------------------------------------------------------------------- the plan


class _Made:
    """A plan of what was asked for, as it is at a time.

    Jobs end when their time is over. If a job is named until which to plan, and it is refused, the plan is as it was
    then.
    """

    def __init__(self, given: _Given, now: int, *, until: str = "") -> None:
        from .jobs import Job
        from .limits import Consumers
        from .plan import Plan, RefusedError

        self.plan = Plan(given.system)
        self.plan.consumers = Consumers(self.plan.cluster.used, given.limits, given.pools)
        self.refused: dict[str, Job] = {}
        self.now = now
        has_limits = bool(given.limits or given.pools)
        for one in sorted(given.asked, key=lambda one: one.at_s):
            if one.at_s > now:
                break
            if has_limits:
                self._let_pass(one.at_s)
            who = {"user": one.user, "group": one.group, "name": one.name}
            try:
                self.plan.submit(one.request, now=one.at_s, **who)
            except RefusedError as error:
                self.refused[one.name] = Job(one.name, one.request, one.user, one.group, one.at_s, why=error.message)
                if one.name == until:
                    self.now = one.at_s
                    break
        if has_limits:
            self._let_pass(self.now)
        self._step(self.now)

    def _let_pass(self, now: int) -> None:
        """Let jobs end in turn: who has reached a limit may have room then."""
        from .jobs import Phase

        there = (Phase.PLANNED, Phase.RUNNING)
        while True:
            jobs = self.plan.jobs.values()
            ends = [job.placement.end for job in jobs if job.placement is not None and job.phase in there]
            at_s = min(ends, default=now + 1)
            if at_s > now:
                return
            self._step(at_s)
            self.plan.backfill(now=at_s)

    def _step(self, now: int) -> None:
        """Let jobs begin and end whose time it is."""
        from .jobs import Phase

        for job in self.plan.due(now):
            self.plan.begin(job.id, now=job.start_s or 0)
        for job in list(self.plan.jobs.values()):
            if job.phase is Phase.RUNNING and job.placement is not None and job.placement.end <= now:
                self.plan.end(job.id, now=job.placement.end)

    @property
    def jobs(self) -> list[Job]:
        """All jobs in order of their starts; those without come last."""
        planned = sorted(self.plan.jobs.values(), key=lambda job: (job.start_s is None, job.start_s or 0))
        return [*planned, *self.refused.values()]

    def state(self, job: Job) -> str:
        """Say how a job stands."""
        return "refused" if job.id in self.refused else job.phase.value

    def cores(self, job: Job) -> int:
        """Tell how many cores a job has, or asks for."""
        totals = job.placement.totals if job.placement is not None else job.request.job_set()
        return totals.get("ncpus", 0)

    def job_as_dict(self, job: Job) -> dict[str, Any]:
        """Tell of a job."""
        placement = job.placement
        return {
            "job": job.id,
            "user": job.user,
            "group": job.group,
            "request": str(job.request),
            "submit_s": job.submit_s,
            "state": self.state(job),
            "why": job.why,
            "cores": self.cores(job),
            "start_s": placement.start if placement is not None else None,
            "end_s": placement.end if placement is not None else None,
            "nodes": self.plan.cluster.names_of(placement) if placement is not None else [],
        }

    def as_dict(self) -> dict[str, Any]:
        """Tell of the whole plan."""
        system = self.plan.system
        return {
            "schema": _SCHEMA,
            "system": system.name,
            "nodes": len(system.nodes),
            "resources": {name: vector.most for name, vector in self.plan.cluster.used.items()},
            "now_s": self.now,
            "jobs": [self.job_as_dict(job) for job in self.jobs],
        }

    def title(self) -> str:
        """Say in a line what this is."""
        from .picture import clock
        from .requests import iso

        counts = Counter(map(self.state, self.jobs))
        jobs = ", ".join(f"{counts[state]:,} {state}" for state in _STYLES if counts[state]) or "nobody has come yet"
        now = clock(self.now, self.now)
        day = f"{iso(self.now)[:10]} " if self.now >= _IN_1973_S else ""
        return f"{self.plan.system.name} at {day}{now}{' UTC' if day else ''}: {jobs}"

    def size(self) -> str:
        """Say how large the system is, and how long there is work for it."""
        from asa.units import format_duration

        from .picture import clock
        from .why import amount

        system, used = self.plan.system, self.plan.cluster.used
        nodes = f"{len(system.nodes):,} node{'' if len(system.nodes) == 1 else 's'}"
        words = ", ".join([nodes, *(amount(name, vector.most, system.kinds) for name, vector in used.items())])
        last = max((job.placement.end for job in self.jobs if job.placement is not None), default=0)
        if last > self.now:
            words += f"; all is done at {clock(last, self.now)}, in {format_duration(last - self.now)}"
        return words


# ---------------------------------------------------------------------- printing


def _print_json(document: dict[str, Any]) -> None:
    import json

    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def _table(headings: Sequence[str], left: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        is_left = heading in left
        table.add_column(heading, justify="left" if is_left else "right", overflow="fold", no_wrap=not is_left)
    return table


def _print_plan(made: _Made) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(made.title(), style="bold"))
    console.print(Text(f"{made.size()}\n", style="dim"))
    jobs = made.jobs
    cells = {name: [cell(made, job) for job in jobs] for name, cell in _COLUMNS.items()}
    if len(made.plan.system.nodes) == 1:
        del cells["Nodes"]
    if console.width < _NARROW:
        del cells["In"]
    shown = {name: texts for name, texts in cells.items() if any(texts)}
    table = _table(list(shown), left=("Job", "User", "Chunks", "Nodes", "State"))
    for job, row in zip(jobs, zip(*shown.values(), strict=True), strict=True):
        table.add_row(*(Text(cell) for cell in row), style=_STYLES[made.state(job)])
    console.print(table)
    for job in jobs:
        if job.start_s is None:
            console.print(Text(f"{job.id} {made.state(job)}: {job.why}", style=_STYLES[made.state(job)]))


def _when(made: _Made, time_s: int | None) -> str:
    from .picture import clock

    return "" if time_s is None else clock(time_s, made.now)


def _chunks(_: _Made, job: Job) -> str:
    from .requests import Place

    request = job.request
    licences = (f"{name}={value}" for name, value in request.job_wide.items())
    place = (str(request.place),) if request.place != Place() else ()
    return " ".join(("+".join(map(str, request.chunks)), *place, *licences))


def _nodes(made: _Made, job: Job) -> str:
    from .picture import names

    return names(made.plan.cluster.names_of(job.placement)) if job.placement is not None else ""


def _in(made: _Made, job: Job) -> str:
    from asa.units import format_duration

    return format_duration(job.start_s - made.now) if job.start_s is not None and job.start_s > made.now else ""


_COLUMNS: dict[str, Callable[[_Made, Job], str]] = {
    "Job": lambda _, job: job.id,
    "User": lambda _, job: "@".join(part for part in (job.user, job.group) if part),
    "Chunks": _chunks,
    "Cores": lambda made, job: f"{made.cores(job):,}",
    "Start": lambda made, job: _when(made, job.start_s),
    "In": _in,
    "End": lambda made, job: _when(made, job.placement.end if job.placement is not None else None),
    "Nodes": _nodes,
    "State": lambda made, job: made.state(job),
}


def _draw(made: _Made, path: Path) -> None:
    from .picture import draw_plan

    if not any(job.placement is not None for job in made.jobs):
        sys.stderr.write("No picture was drawn: nobody has a place.\n")
        return
    draw_plan(made.plan, path, now=made.now, title=made.title())
    sys.stderr.write(f"Picture written to {path}\n")


def _print_why(told: Why) -> None:
    from rich.console import Console
    from rich.text import Text

    from asa.units import format_duration

    from .picture import clock

    console = Console(highlight=False)
    first, *others = told.told()
    console.print(Text(first, style="bold"))
    for sentence in others:
        console.print(Text(sentence))
    if not told.constraints:
        return
    console.print()
    table = _table(("Without", "It would start", "Sooner by"), left=("Without",))
    for one in sorted(told.constraints, key=lambda one: (one.start_s is None, one.start_s or 0)):
        start_s, planned_s = one.start_s, told.job.start_s
        starts = clock(start_s, told.now_s) if start_s is not None else "no sooner"
        sooner = format_duration(planned_s - start_s) if planned_s is not None and start_s is not None else ""
        style = "" if start_s is not None else "dim"
        table.add_row(*map(Text, (one.words, starts, sooner)), style=style)
    console.print(table)


def _why_as_dict(told: Why, made: _Made) -> dict[str, Any]:
    moment = told.moment
    return {
        "schema": _SCHEMA,
        "now_s": told.now_s,
        "job": made.job_as_dict(told.job),
        "could_start_from_s": told.since_s,
        "free_from_s": told.free_s,
        "at": moment
        and {"at_s": moment.at_s, "fits": not moment.lacks, "lacks": [asdict(one) for one in moment.lacks]},
        "constraints": [asdict(one) | {"binds": one.start_s is not None} for one in told.constraints],
        "together": [asdict(one) for one in told.together],
        "words": told.told(),
    }
