"""Schedules a whole log, without a client, under the conventions of various simulators.

Two simulators of EASY backfilling start jobs at different times, because they differ in conventions that papers do not
mention: `Rules` names them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from asa.core.plugins import unknown_name
from asa.errors import InputError
from asa.history import JobHistory

from .cores.plain import schedule_short
from .table import JobTable

# bounds for plain Python, which takes a fraction of a second up to them
_SHORT = 60_000  # jobs
_PATIENCE = 2_000_000  # checks of queued and running jobs


@dataclass(frozen=True, slots=True)
class Rules:
    """Conventions of a simulator of first come first served with EASY backfilling."""

    # `second`: one scheduling pass a second, after all completions and submissions; `event`: one after each event
    passes: Literal["second", "event"] = "second"
    ends_first: bool = True  # within a second completions come before submissions (matters with a pass an event)
    # which releases at the shadow time count as surplus: `all` of that second, or only as many as let the head fit
    # (`least`)
    extra: Literal["all", "least"] = "all"
    # what counts as idle while completions of this second are unprocessed: only processed completions (`handled`), or
    # also jobs whose expected end is now (`expected`; with one pass for each event)
    free: Literal["handled", "expected"] = "handled"
    # the duration with which a candidate is tested: its `request`, or its `run` time, which is unknown in reality
    candidates: Literal["request", "run"] = "request"
    backfill: bool = True  # false for plain first come first served

    @property
    def flags(self) -> tuple[bool, ...]:
        """The same as flags for the kernel."""
        return (
            self.passes == "second",
            self.ends_first,
            self.extra == "all",
            self.passes == "event" and self.free == "expected",
            self.candidates == "run",
            self.backfill,
        )


PRESETS = {
    "default": Rules(),
    "pyss": Rules(passes="event", ends_first=False, free="expected"),
    "cqsim": Rules(passes="event", candidates="run"),
}
"""The rules of ASA, and those of two public simulators."""


def preset_rules(name: str) -> Rules:
    """Look up the rules of a simulator."""
    if name not in PRESETS:
        error: InputError = unknown_name("preset", name, list(PRESETS))
        raise error
    return PRESETS[name]


def replay(
    submit: NDArray[np.int64],
    run: NDArray[np.int64],
    request: NDArray[np.int64],
    cores: NDArray[np.int64],
    capacity: int,
    rules: Rules | None = None,
    *,
    once: bool = False,
) -> NDArray[np.int64]:
    """Return the start of each job of a log.

    `submit`, `run`, `request`, `cores`: columns of equal length, in order of submission; runs of at least 1 s, widths
    of 1 to `capacity`. A run longer than its request continues past its expected end.
    `once`: this process replays nothing else, so compiled code is loaded only if that saves time.

    Notes
    -----
    O(r + q) a pass for r running and q queued jobs.

    Examples
    --------
    >>> columns = [np.array(column) for column in ([0, 1, 2], [9, 9, 5], [9, 9, 5], [3, 4, 1])]
    >>> replay(*columns, capacity=4).tolist()
    [0, 9, 2]
    >>> replay(*columns, capacity=4, rules=Rules(backfill=False)).tolist()
    [0, 9, 18]
    """
    columns = [np.ascontiguousarray(column, dtype=np.int64) for column in (submit, run, request, cores)]
    rules = rules or Rules()
    overruns = bool(np.any(columns[1] > columns[2]))
    lasting = rules.extra == "all" and rules.candidates == "request" and not rules.flags[3] and not overruns
    usual = lasting and replace(rules, backfill=True) == Rules()
    if once and usual and 0 < len(submit) <= _SHORT:
        start = schedule_short(columns, capacity, backfill=rules.backfill, patience=_PATIENCE)
        if start is not None:
            return start
    from .cores.fast import schedule_all  # noqa: PLC0415 - loading what numba compiled takes half a second

    return schedule_all(columns, capacity, None if usual and rules.backfill else (*rules.flags, lasting))


def replayed(jobs: JobTable, capacity: int, rules: Rules | None = None, *, source: str = "") -> JobHistory:
    """Schedule the jobs of a log or a model, and return the history of their waits.

    Examples
    --------
    >>> columns = [np.array(column) for column in ([0, 1, 2], [9, 9, 5], [9, 9, 5], [3, 4, 1])]
    >>> replayed(JobTable(*columns), capacity=4).wait_s.tolist()
    [0.0, 8.0, 0.0]
    """
    start = replay(jobs.submit, jobs.run, jobs.request, jobs.cores, capacity, rules)
    return JobHistory(
        submit_s=jobs.submit.astype(np.float64),
        wait_s=(start - jobs.submit).astype(np.float64),
        cores=jobs.cores,
        walltime_s=jobs.request.astype(np.float64),
        started=np.ones(len(jobs), dtype=np.bool_),
        run_s=jobs.run.astype(np.float64),
        machine_cores=capacity,
        source=source,
    )
