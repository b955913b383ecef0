"""The input of `asa ccs`: a file of requests and events, or a log; a system; limits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from asa.backends.openccs.limits_file import ConsumerBounds, load_limits
from asa.backends.openccs.pieces import Piece, PointedError, moment
from asa.backends.openccs.requests import Chunk, ResourceRequest
from asa.backends.openccs.system import CcsSystem, Node, find_system
from asa.backends.openccs.words import IN_1973_S
from asa.backends.simulated.swf import read_swf
from asa.errors import InputError
from asa.units import parse_duration

from .event_lines import AskedRequest, PlanEvent, read_events

_OCULUS = "oculus"
_FROM_NOW = re.compile(r"(\d+(\.\d+)?\s*[a-z]+\s*)+")


@dataclass(frozen=True, slots=True)
class GivenPlan:
    """The requests and events to plan, the system, and its limits."""

    system: CcsSystem
    events: Sequence[AskedRequest | PlanEvent]
    bounds: ConsumerBounds


def read_given(
    file: Path | None, log: tuple[Path | None, int, int | None], system: str, limits: Path | None
) -> GivenPlan:
    """Read a file of requests; or a log, of which some jobs are taken.

    `log`: its path (None to read a file of requests), the number of jobs to take, and the machine's cores.
    """
    trace, jobs, cores = log
    if file is not None and trace is None:
        what = find_system(system, "--system")
        bounds = load_limits(limits, what.kinds) if limits is not None else ConsumerBounds()
        return GivenPlan(what, read_events(file, what), bounds)
    if trace is None or file is not None:
        hint = "As in: asa ccs plan requests.txt"
        raise InputError("name a file of requests, or a log with --trace", where="FILE", hint=hint)
    if system != _OCULUS:
        hint = "Leave one of both out: a log is planned on one node."
        raise InputError("does not go with --trace", where="--system", hint=hint)
    bounds = load_limits(limits) if limits is not None else ConsumerBounds()
    return GivenPlan(*_log(trace, jobs, cores), bounds)


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


def last_moment(given: str | None, events: Sequence[AskedRequest | PlanEvent]) -> int:
    """Return the time at which the plan is shown: the given one, or that of the last event."""
    return max(event.at_s for event in events) if given is None else moment_of(given, "--now", None)


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
