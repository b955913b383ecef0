"""``asa ccs``: shows a plan of requests in a file, as a table and a picture, and why a job does not start earlier."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.core.options import Output, OutputOption
from asa.units import MAX_CORES, MAX_JOBS

from .measuring import bench, drift

if TYPE_CHECKING:
    from asa.backends.openccs.jobs import CcsJob
    from asa.backends.openccs.why import Why
    from asa.studies.ccs.made import Happening, MadePlan

_NARROW = 100
_FEW = 5
_OCULUS = "oculus"

app = typer.Typer(
    help="""Plan jobs as OpenCCS does: each gets a planned start when it is submitted.

    Most batch systems queue: what starts next is decided when something ends. A planning system gives each request its
    place in a plan of the future at once. OpenCCS, of the computing centre in Paderborn, is one.

    `asa ccs plan` plans the requests in a file; `asa ccs why` says why one of them does not start earlier.
    """,
    no_args_is_help=True,
)
app.command("bench")(bench)
app.command("drift")(drift)


_FileArgument = Annotated[
    Path | None,
    typer.Argument(
        help="Requests, one a line, as `asa ccs plan --help` says. Or give --trace.", metavar="FILE", show_default=False
    ),
]
_SystemOption = Annotated[
    str,
    typer.Option(help="oculus (616 nodes, 9,920 cores), or a file that tells of nodes.", metavar="NAME|FILE.toml"),
]
_LimitsOption = Annotated[
    Path | None,
    typer.Option(
        help="What users and groups may have at most, and what is kept free for whom (see there).",
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
_JobsOption = Annotated[int, typer.Option(help="With --trace: so many of the log's first jobs.", min=1, max=MAX_JOBS)]
_CoresOption = Annotated[
    int | None,
    typer.Option(
        help="With --trace: the machine's processors, if the log's header does not say.", min=1, max=MAX_CORES
    ),
]


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
    output: OutputOption = Output.TABLE,
) -> None:
    """Plan requests, through all that happens to them, and show when and where each will run.

    A request is placed behind those that came before it, at the first time at which everything that it needs is free
    for as long as it lasts. FILE holds one a line, with who asks and the job's name before a colon, if need be:

    `at=2017-08-01T08:00 alice@physics big: rset=8:ncpus=16,walltime=2h`

    `bob@ small: rset=2:ncpus=4:mem=8g+ncpus=1:gpus=1,walltime=30m,place=scatter`

    `rset=ncpus=1,walltime=10m,deadline=2017-08-01T12:00    # a comment`

    at= is when it came: a date and time in UTC, or a number of seconds. A request without a time comes at the time of
    the request above it; the first comes at 0. USER@GROUP has its @ even where one of both is missing. Jobs without a
    name are called by their number.

    A line may also be an event, behind its time: `end JOB` (early, or before it starts; `end JOB failed` if it did),
    `extend JOB 10m` (a running one, by at most 10 % of its walltime), `alter JOB: walltime=1h,...` (whatever its
    request says, before it starts), `fail NODE`, `hang NODE` (it answers no more, until time-outs of the system say
    that it is down) and `recover NODE`. `reserve NAME: rset=...,start=...` keeps resources for jobs with
    reservation=NAME. Then the table has the start that a job was promised when it came, if that moved, and below it
    what happened.

    rset= holds chunks, each of which must be on one node: `[N:]resource=value[:resource=value...]`, with + between
    sorts of them. Then come, in any order, walltime=, place=free, pack or scatter (with :excl for nodes of its own),
    start= or deadline=, priority=, array=0-9, depend=afterok:JOB:JOB+afterany:JOB (or after, afternotok),
    notify=10m (before its end), and what belongs to no node, such as sw=g03 for a licence.

    A system is a file with a table for each kind of node, limits are one of their own:

    `[[nodes]]` `name = "n"` `count = 4` `resources = {ncpus = 16, mem = "64g"}` `properties = {net = "IB"}`

    `[[limits]]` `user = "alice"` (or `group`; `"*"` is everybody) `resource = "ncpus"` `items = "64"`

    Example: `asa ccs plan requests.txt --system cluster.toml --picture plan.png`

    Exit codes: 0 all are in the plan, 1 a request or an event was refused, 2 the input cannot be used.
    """
    from asa.core.drawing import check_figure_path
    from asa.studies.ccs.made import MadePlan
    from asa.studies.ccs.request_file import last_moment, read_given
    from asa.studies.present import print_json

    if picture is not None:
        check_figure_path(picture, "--picture")
    given = read_given(file, (trace, jobs, trace_cores), system, limits)
    made = MadePlan(given, last_moment(now, given.events))
    if output is Output.JSON:
        print_json(made.as_dict())
    else:
        _print_plan(made)
    if picture is not None:
        _draw(made, picture)
    if made.has_refusals:
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
    output: OutputOption = Output.TABLE,
) -> None:
    """Report why a job does not start earlier: what is missing, who has it, and what would have to be otherwise.

    FILE and the options are those of `asa ccs plan`. Each thing that the job's start depends on is taken away in turn,
    and the job planned anew: what others hold of each resource, limits, how its chunks fit onto nodes, and so on. A
    limit *binds* if the job would start sooner without it. Nothing of this changes the plan.

    --at TIME names a start; the answer is what would be missing then.

    Example: `asa ccs why small requests.txt --at 2017-08-01T10:00`

    Exit codes: 0 done, 2 the input cannot be used, or there is no such job.
    """
    from asa.backends.openccs.why import why as ask
    from asa.studies.ccs.made import MadePlan
    from asa.studies.ccs.request_file import last_moment, moment_of, read_given
    from asa.studies.present import print_json

    given = read_given(file, (trace, jobs, trace_cores), system, limits)
    made = MadePlan(given, last_moment(now, given.events), until=job)
    about: CcsJob | str = made.refused.get(job, job)
    explanation = ask(
        made.plan_of(job), about, now=made.now, at=moment_of(at, "--at", made.now) if at is not None else None
    )
    if output is Output.JSON:
        print_json(_why_as_dict(explanation, made))
    else:
        _print_why(explanation)


# ---------------------------------------------------------------------- printing


def _print_plan(made: MadePlan) -> None:
    from rich.text import Text

    from asa.studies.ccs.made import STYLES
    from asa.studies.present import Row, Table, console

    out = console()
    out.print(Text(made.title(), style="bold"))
    out.print(Text(f"{made.size()}\n", style="dim"))
    jobs = made.jobs
    cells = {name: [cell(made, job) for job in jobs] for name, cell in _COLUMNS.items()}
    if len(made.plan.system.nodes) == 1:
        del cells["Nodes"]
    if out.width < _NARROW:
        del cells["In"], cells["Promised"]
    shown = {name: texts for name, texts in cells.items() if any(texts)}
    left = [index for index, name in enumerate(shown) if name in _WORDS]
    rows = [
        Row([Text(cell) for cell in row], STYLES[made.state(job)])
        for job, row in zip(jobs, zip(*shown.values(), strict=True), strict=True)
    ]
    out.print(Table(list(shown), rows, left=left, wraps=left, is_ruled=False))
    for job in jobs:
        if job.start_s is None:
            out.print(Text(f"{job.id} {made.state(job)}: {job.why}", style=STYLES[made.state(job)]))
    if made.happened:
        out.print(Text("\nWhat happened", style="bold"))
    for happening in made.happened:
        out.print(Text(_sentence(made, happening), style=STYLES["refused"] if happening.why_not else ""))


def _sentence(made: MadePlan, happening: Happening) -> str:
    """Describe an event: when it was, why it was refused, whom it moved."""
    text = f"{_when(made, happening.at_s)}  {happening.event}"
    if happening.why_not:
        text += f": refused: {happening.why_not}"
    moves = [
        f"{moved.job} from {_when(made, moved.from_s) or 'no start'} to {_when(made, moved.to_s) or 'no start'}"
        for moved in happening.moved[:_FEW]
    ]
    if len(happening.moved) > _FEW:
        moves.append(f"{len(happening.moved) - _FEW} more")
    return f"{text}: moves {', '.join(moves)}" if moves else text


def _promised(made: MadePlan, job: CcsJob) -> str:
    return _when(made, made.promised[job.id]) if made.moved_s(job) else ""


def _when(made: MadePlan, time_s: int | None) -> str:
    from asa.backends.openccs.words import clock

    return "" if time_s is None else clock(time_s, made.now)


def _chunks(_: MadePlan, job: CcsJob) -> str:
    from asa.backends.openccs.requests import PlacementRule

    request = job.request
    licences = (f"{name}={value}" for name, value in request.job_wide.items())
    place = (str(request.place),) if request.place != PlacementRule() else ()
    return " ".join(("+".join(map(str, request.chunks)), *place, *licences))


def _nodes(made: MadePlan, job: CcsJob) -> str:
    from asa.backends.openccs.words import names

    return names(made.nodes_of(job))


def _in(made: MadePlan, job: CcsJob) -> str:
    from asa.units import format_duration

    return format_duration(job.start_s - made.now) if job.start_s is not None and job.start_s > made.now else ""


_COLUMNS: dict[str, Callable[[MadePlan, CcsJob], str]] = {
    "Job": lambda _, job: job.id,
    "User": lambda _, job: "@".join(part for part in (job.user, job.group) if part),
    "Chunks": _chunks,
    "Cores": lambda made, job: f"{made.cores(job):,}",
    "Start": lambda made, job: _when(made, job.start_s),
    "Promised": _promised,
    "In": _in,
    "End": lambda made, job: _when(made, job.placement.end if job.placement is not None else None),
    "Nodes": _nodes,
    "State": lambda made, job: made.state(job),
}


_WORDS = ("Job", "User", "Chunks", "Nodes", "State")


def _draw(made: MadePlan, path: Path) -> None:
    from .picture import draw_plan

    if not any(job.placement is not None for job in made.jobs):
        sys.stderr.write("No picture was drawn: nobody has a place.\n")
        return
    draw_plan(made.plan, path, now=made.now, title=made.title())
    sys.stderr.write(f"Picture written to {path}\n")


def _print_why(explanation: Why) -> None:
    from rich.text import Text

    from asa.backends.openccs.words import clock
    from asa.studies.present import Row, Table, console
    from asa.units import format_duration

    out = console()
    first, *others = explanation.sentences()
    out.print(Text(first, style="bold"), *map(Text, others), sep="\n")
    if not explanation.constraints:
        return
    rows = []
    for constraint in sorted(
        explanation.constraints, key=lambda constraint: (constraint.start_s is None, constraint.start_s or 0)
    ):
        start_s, planned_s = constraint.start_s, explanation.job.start_s
        starts = clock(start_s, explanation.now_s) if start_s is not None else "no sooner"
        sooner = format_duration(planned_s - start_s) if planned_s is not None and start_s is not None else ""
        cells = [Text(words) for words in (constraint.words, starts, sooner)]
        rows.append(Row(cells, "" if start_s is not None else "dim"))
    out.print()
    out.print(Table(["Without", "It would start", "Sooner by"], rows, wraps=(0,), is_ruled=False))


def _why_as_dict(explanation: Why, made: MadePlan) -> dict[str, Any]:
    from asa.studies.ccs.made import SCHEMA

    moment = explanation.moment
    return {
        "schema": SCHEMA,
        "now_s": explanation.now_s,
        "job": made.job_as_dict(explanation.job),
        "could_start_from_s": explanation.since_s,
        "free_from_s": explanation.free_s,
        "at": moment
        and {"at_s": moment.at_s, "fits": not moment.lacks, "lacks": [asdict(lack) for lack in moment.lacks]},
        "constraints": [
            asdict(constraint) | {"binds": constraint.start_s is not None} for constraint in explanation.constraints
        ],
        "together": [asdict(constraint) for constraint in explanation.together],
        "words": explanation.sentences(),
    }
