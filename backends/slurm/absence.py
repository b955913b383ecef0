"""What it means if the controller does not show a job: decided by evidence, as an answer may be empty or cut off.

A job has ended if its mark or accounting says so. It counts as running while accounting says so, or while it has begun
and left no end mark, until its walltime is over (without a walltime, until it was not shown for a day). For a job that
has not begun, or should be over, absence itself is evidence, but only if it lasts over several looks and the controller
says explicitly that it does not know the job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from .link import SlurmRecord
from .states import ended_as

NOT_SHOWN: Final = "NotShown"
"""Reason of a job that is taken to run though the controller does not show it."""

CLOCKS_S: Final = 300.0
"""Nodes' clocks differ from the controller's by less, and what is older than a job by more is of an earlier one."""

OVER_S: Final = 300.0
"""A job may run so much longer than its walltime."""

_LOOKS = 3
_GRACE_S = 60.0
_DOUBT_S = 600.0  # so long an answer that is only empty is not believed
_KILLED_S = 300.0  # so long after its cancellation accounting may say that a job runs
_UNLIMITED_S = 86_400.0  # so long what has no walltime, or none that is known, is taken to run though it is not shown
_MAX_DENIALS = 8  # a look asks for so many jobs one by one
_MAYBE_BACK = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})  # in the queue, which accounting shows later


class Absence(NamedTuple):
    """In how many looks, one after the other, a job was not shown, and since when; no more are counted than matter."""

    looks: int = 0
    since_s: float = 0.0

    def again(self, clock_s: float) -> Absence:
        """Count another look."""
        is_first = not self.looks or clock_s < self.since_s  # which clocks that are set back, or differ, may say
        return Absence(min(self.looks + 1, _LOOKS), clock_s if is_first else self.since_s)

    def is_over(self, clock_s: float) -> bool:
        """Say whether the job was looked for often and long enough."""
        return self.looks >= _LOOKS and clock_s - self.since_s >= _GRACE_S


PRESENT: Final = Absence()
"""Of a job that was shown at the last look."""


class Verdict(Enum):
    """What became of a job that the controller does not show, and that has no end mark."""

    ENDED = auto()
    """It ended as accounting says."""
    CANCELLED = auto()
    """It ended by this client's cancellation."""
    RUNNING = auto()
    """It runs."""
    REPLACED = auto()
    """It is no more, and another job of its name is there."""
    GONE = auto()
    """It is gone, and it is not known how it ended."""
    UNKNOWN = auto()
    """The next look decides."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of such a job. Times are Slurm's, of absence and cancellation the client's."""

    job_id: str
    name: str  # which no other job has but one of its token; empty if it has none
    absence: Absence  # with this look
    now_s: float
    clock_s: float  # the client's
    walltime_s: float  # the longest that is known of it; infinite if none is
    submit_s: float = 0.0
    began_s: float | None = None  # by its mark, which says nothing of an end
    suspended_s: float | None = None  # it was suspended when it was last shown, then
    cancelled_s: float | None = None  # Slurm took its cancellation, then
    past: SlurmRecord | None = None  # what accounting has of it
    is_certain: bool = True  # accounting could be asked, or there is none


class Inquiry:
    """What a look asks before a job counts as gone: the controller for it alone, and all sources for its name.

    `denies`: asks for a job by its number; returns whether the controller says explicitly that it does not know it.
    Asked of a few jobs only; their result holds for all.
    `search`: finds existing jobs by their names.
    `confirm`: raises an error unless the run's cluster answers; called before anything is believed.
    """

    def __init__(
        self,
        denies: Callable[[str], bool],
        search: Callable[[], Mapping[str, str]],
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self._denies, self._search, self._confirm = denies, search, confirm
        self._is_confirmed = False
        self._denied: dict[str, bool] = {}
        self._found: Mapping[str, str] | None = None

    def confirm(self) -> None:
        """See once that it is the run's cluster that answers."""
        if not self._is_confirmed:
            self._confirm()
        self._is_confirmed = True

    def denies(self, job_id: str) -> bool:
        """Say whether the controller does not know a job."""
        self.confirm()
        if job_id not in self._denied:
            if len(self._denied) >= _MAX_DENIALS:
                return all(self._denied.values())
            self._denied[job_id] = self._denies(job_id)
        return self._denied[job_id]

    def namesake(self, name: str) -> str:
        """Return the existing job with a name; empty if there is none."""
        self.confirm()
        if self._found is None and name:
            self._found = self._search()
        return (self._found or {}).get(name, "")


NOTHING_ASKED: Final = Inquiry(lambda _: False, dict)
"""Where nothing is to be taken for gone."""


def verdict(known: Evidence, inquiry: Inquiry) -> Verdict:
    """Decide what became of a job that the controller does not show.

    Raises `UnavailableError`: that needs a question which cannot be asked now. Raises `OtherClusterError`: the run is
    elsewhere.
    """
    past = known.past if known.past is not None and _is_of_this_job(known.past, known.submit_s) else None
    if past is not None and ended_as(past) is not None:
        may_be_back = past.states[0] in _MAYBE_BACK and not known.absence.is_over(known.clock_s)
        return Verdict.UNKNOWN if may_be_back else Verdict.ENDED
    runs_s = past.start_s if past is not None and "PENDING" not in past.states else None
    if known.cancelled_s is not None:
        return _cancelled(known, is_running=runs_s is not None)
    latest_s = max((s for s in (runs_s, known.began_s, known.suspended_s) if s is not None), default=None)
    limit_s = max(known.walltime_s, (past.limit_s if past is not None else None) or 0.0)
    if latest_s is not None and _may_run(known, latest_s, limit_s):
        return Verdict.RUNNING
    if not known.is_certain or not known.absence.is_over(known.clock_s):
        return Verdict.UNKNOWN
    is_old = known.clock_s - known.absence.since_s >= _DOUBT_S
    if not is_old and not inquiry.denies(known.job_id):
        return Verdict.UNKNOWN
    namesake = inquiry.namesake(known.name)
    return Verdict.UNKNOWN if namesake == known.job_id else Verdict.REPLACED if namesake else Verdict.GONE


def _may_run(known: Evidence, latest_s: float, limit_s: float) -> bool:
    """Say whether what ran at some time may do so still."""
    if math.isfinite(limit_s):
        return known.now_s < latest_s + limit_s + OVER_S
    return not known.absence.looks or known.clock_s - known.absence.since_s < _UNLIMITED_S


def _is_of_this_job(past: SlurmRecord, submit_s: float) -> bool:
    """Say whether accounting's record is not of an earlier job of this number."""
    return not past.submit_s or past.submit_s >= submit_s - CLOCKS_S


def _cancelled(known: Evidence, *, is_running: bool) -> Verdict:
    """Decide of a job whose cancellation Slurm took: what had begun has a moment to end, and to say so."""
    if known.began_s is None and not is_running:
        return Verdict.CANCELLED
    since_s = known.clock_s - (known.cancelled_s or 0.0)
    is_over = known.absence.is_over(known.clock_s) and (not is_running or not 0 <= since_s < _KILLED_S)
    return Verdict.CANCELLED if is_over else Verdict.UNKNOWN
