"""The input of `asa ccs`, a file of requests or a log, and the plan made from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.backends.openccs.jobs import CcsJob, JobPhase
from asa.backends.openccs.lacks import amount
from asa.backends.openccs.limits import FreePool, Limit
from asa.backends.openccs.limits_file import load_limits
from asa.backends.openccs.plan import RefusedError, RequestPlan
from asa.backends.openccs.requests import Chunk, Piece, PointedError, RequestKind, ResourceRequest, iso, moment
from asa.backends.openccs.system import CcsSystem, Node, load_system, oculus
from asa.backends.openccs.words import IN_1973_S, clock
from asa.backends.simulated.swf import read_swf
from asa.core.documents import read_text
from asa.errors import InputError, near
from asa.units import format_duration, parse_duration

SCHEMA = 1
_OCULUS = "oculus"
_AT = re.compile(r"\s*at=(\S*)")
_COMMENT = re.compile(r"(^|\s)#.*")
_WORD = re.compile(r"\S+")
_FROM_NOW = re.compile(r"(\d+(\.\d+)?\s*[a-z]+\s*)+")

STYLES = {
    "ended": "dim",
    "running": "bold green",
    "planned": "",
    "waiting": "yellow",
    "refused": "bold red",
}
"""Styles of jobs by their phase."""


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """A request, its owner, and its time."""

    at_s: int  # seconds since 1970, or from 0
    user: str
    group: str
    name: str
    request: ResourceRequest


@dataclass(frozen=True, slots=True)
class GivenRequest:
    """The requests to plan, the system, and its limits."""

    system: CcsSystem
    asked: Sequence[AskedRequest]
    limits: tuple[Limit, ...] = ()
    pools: tuple[FreePool, ...] = ()


def read_given(
    file: Path | None, log: tuple[Path | None, int, int | None], system: str, limits: Path | None
) -> GivenRequest:
    """Read a file of requests; or a log, of which some jobs are taken.

    `log`: its path (None to read a file of requests), the number of jobs to take, and the machine's cores.
    """
    trace, jobs, cores = log
    bounds = load_limits(limits) if limits is not None else ((), ())
    if file is not None and trace is None:
        what = _system(system)
        return GivenRequest(what, _lines(file, what.kinds), *bounds)
    if trace is None or file is not None:
        hint = "As in: asa ccs plan requests.txt"
        raise InputError("name a file of requests, or a log with --trace", where="FILE", hint=hint)
    if system != _OCULUS:
        hint = "Leave one of both out: a log is planned on one node."
        raise InputError("does not go with --trace", where="--system", hint=hint)
    return GivenRequest(*_log(trace, jobs, cores), *bounds)


def _system(name: str) -> CcsSystem:
    if name == _OCULUS:
        return oculus()
    if not name.endswith(".toml") and not Path(name).exists():
        hint = f"{near(name, [_OCULUS])}Write oculus, or name a .toml file."
        raise InputError(f"there is no system {name!r}", where="--system", hint=hint)
    return load_system(name)


def _lines(file: Path, kinds: Mapping[str, RequestKind]) -> list[AskedRequest]:
    """Read a file of requests."""
    try:
        text = read_text(file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file), hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError("cannot be read: it is not UTF-8 text", where=str(file), hint="Save it as UTF-8.") from error
    asked: list[AskedRequest] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        bare = _COMMENT.sub("", line).rstrip()
        if not bare:
            continue
        try:
            request = _line(bare, kinds, asked, lines)
        except PointedError as error:
            message = error.message.partition("\n")[2].lstrip().removeprefix("^ ")
            where = f"{file}:{number}"
            raise PointedError(message, where=where, hint=error.hint, text=bare, position=error.position) from error
        lines[request.name] = number
        asked.append(request)
    if not asked:
        raise InputError("asks for nothing", where=str(file), hint="Write a request a line, as rset=ncpus=4.")
    return asked


def _line(
    line: str, kinds: Mapping[str, RequestKind], before: Sequence[AskedRequest], lines: Mapping[str, int]
) -> AskedRequest:
    """Read a line: owner, time and request."""
    whole = Piece.of(line, PointedError)
    at_s, start = before[-1].at_s if before else 0, 0
    if at := _AT.match(line):
        at_s, start = moment(whole.cut(at.start(1), at.end(1))), at.end()
    who = name = whole.cut(start, start)
    colon, sign = (line.find(character, start) for character in ":=")
    if colon >= 0 and (sign < 0 or colon < sign):
        for word in (whole.cut(*match.span()) for match in _WORD.finditer(line, start, colon)):
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
    return AskedRequest(at_s, user, group, called, ResourceRequest.parse(" " * start + line[start:], kinds))


def _log(path: Path, jobs: int, cores: int | None) -> tuple[CcsSystem, list[AskedRequest]]:
    """Read the first jobs of a log."""
    log = read_swf(path, cores=cores)
    table = log.table
    first = slice(min(jobs, len(table)))
    ids = log.job_ids[first].tolist()
    names = ids if len(set(ids)) == len(ids) else range(1, len(ids) + 1)
    # whether the log's clock begins with the log, or counts from 1970
    begins_s = max(log.clock_s, 0) if table.submit[0] < IN_1973_S else 0
    columns = (table.submit, table.request, table.cores, log.users, log.groups)
    asked = [
        AskedRequest(
            submit_s + begins_s,
            f"u{user}" if user >= 0 else "",
            f"g{group}" if group >= 0 else "",
            str(name),
            ResourceRequest((Chunk(1, {"ncpus": cores}),), walltime_s=lasts_s),
        )
        for name, submit_s, lasts_s, cores, user, group in zip(
            names, *(c[first].tolist() for c in columns), strict=True
        )
    ]
    name = path.name.removesuffix(".gz").removesuffix(".swf")
    return CcsSystem(name, (Node(name, {"ncpus": log.cores}),)), asked


def last_moment(given: str | None, asked: Sequence[AskedRequest]) -> int:
    """Return the time at which the plan is shown: the given one, or that of the last request."""
    return max(request.at_s for request in asked) if given is None else moment_of(given, "--now", None)


def moment_of(text: str, option: str, now: int | None) -> int:
    """Read a time; if `now` is known, also a duration from then.

    `text`: a time as `moment` reads it; where now is known, also a duration from then.
    """
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


class MadeRequest:
    """A plan of the requests, as it is at a given time.

    Jobs end when their time is over. `until`: name of the last job to plan; if it is refused, the plan is as it was at
    its submission.
    """

    def __init__(self, given: GivenRequest, now: int, *, until: str = "") -> None:
        self.plan = RequestPlan(given.system, given.limits, given.pools)
        self.refused: dict[str, CcsJob] = {}
        self.now = now
        has_limits = bool(given.limits or given.pools)
        for request in sorted(given.asked, key=lambda request: request.at_s):
            if request.at_s > now:
                break
            if has_limits:
                self._let_pass(request.at_s)
            who = {"user": request.user, "group": request.group, "name": request.name}
            try:
                self.plan.submit(request.request, now=request.at_s, **who)
            except RefusedError as error:
                self.refused[request.name] = CcsJob(
                    request.name, request.request, request.user, request.group, request.at_s, why=error.message
                )
                if request.name == until:
                    self.now = request.at_s
                    break
        if has_limits:
            self._let_pass(self.now)
        self._step(self.now)

    def _let_pass(self, now: int) -> None:
        """End jobs in order, so that jobs that were at a limit may start."""
        there = (JobPhase.PLANNED, JobPhase.RUNNING)
        while True:
            jobs = self.plan.jobs.values()
            ends = [job.placement.end for job in jobs if job.placement is not None and job.phase in there]
            at_s = min(ends, default=now + 1)
            if at_s > now:
                return
            self._step(at_s)
            self.plan.backfill(now=at_s)

    def _step(self, now: int) -> None:
        """Begin and end the jobs that are due."""
        for job in self.plan.due(now):
            self.plan.begin(job.id, now=job.start_s or 0)
        for job in list(self.plan.jobs.values()):
            if job.phase is JobPhase.RUNNING and job.placement is not None and job.placement.end <= now:
                self.plan.end(job.id, now=job.placement.end)

    @property
    def jobs(self) -> list[CcsJob]:
        """All jobs in order of their starts; those without a start come last."""
        planned = sorted(self.plan.jobs.values(), key=lambda job: (job.start_s is None, job.start_s or 0))
        return [*planned, *self.refused.values()]

    def state(self, job: CcsJob) -> str:
        """Return the state of a job."""
        return "refused" if job.id in self.refused else job.phase.value

    def cores(self, job: CcsJob) -> int:
        """Return the cores that a job has, or asks for."""
        totals = job.placement.totals if job.placement is not None else job.request.job_set()
        return totals.get("ncpus", 0)

    def job_as_dict(self, job: CcsJob) -> dict[str, Any]:
        """Return a job as JSON-ready data."""
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
        """Return the plan as JSON-ready data."""
        system = self.plan.system
        return {
            "schema": SCHEMA,
            "system": system.name,
            "nodes": len(system.nodes),
            "resources": {name: vector.most for name, vector in self.plan.cluster.used.items()},
            "now_s": self.now,
            "jobs": [self.job_as_dict(job) for job in self.jobs],
        }

    def title(self) -> str:
        """Title in one line."""
        counts = Counter(map(self.state, self.jobs))
        jobs = ", ".join(f"{counts[state]:,} {state}" for state in STYLES if counts[state]) or "nobody has come yet"
        now = clock(self.now, self.now)
        day = f"{iso(self.now)[:10]} " if self.now >= IN_1973_S else ""
        return f"{self.plan.system.name} at {day}{now}{' UTC' if day else ''}: {jobs}"

    def size(self) -> str:
        """Sentence on the size of the system, and the length of the plan."""
        system, used = self.plan.system, self.plan.cluster.used
        nodes = f"{len(system.nodes):,} node{'' if len(system.nodes) == 1 else 's'}"
        text = ", ".join([nodes, *(amount(name, vector.most, system.kinds) for name, vector in used.items())])
        last = max((job.placement.end for job in self.jobs if job.placement is not None), default=0)
        if last > self.now:
            text += f"; all is done at {clock(last, self.now)}, in {format_duration(last - self.now)}"
        return text
