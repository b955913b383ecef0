"""Interprets the absence of a job from the controller's answer, since an answer may be empty or cut off.

A job has ended if its marker or accounting says so. It counts as running while accounting says so, or while it has a
begin marker and no end marker, until its walltime is over (without a walltime, until it was not shown for a day). For a
job that has not begun, or should be over, absence itself is evidence, but only if it lasts over several looks and the
controller says explicitly that it does not know the job.
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
"""Reason of a job that counts as running although the controller does not show it."""

CLOCKS_S: Final = 300.0
"""Upper bound of the difference between clocks of nodes and the controller; older markers are of an earlier job."""

OVER_S: Final = 300.0
"""Upper bound of the time by which a job exceeds its walltime."""

_LOOKS = 3
_GRACE_S = 60.0
_DOUBT_S = 600.0  # seconds for which a merely empty answer is not believed
_KILLED_S = 300.0  # seconds for which accounting may report a cancelled job as running
_UNLIMITED_S = 86_400.0  # seconds for which a job without known walltime counts as running although it is not shown
_MAX_DENIALS = 8  # upper bound of the jobs that a look asks for one by one
# accounting shows only later that the job was requeued
_MAYBE_BACK = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})


class Absence(NamedTuple):
    """In how many consecutive looks a job was not shown, and since when; counted only as far as it matters."""

    looks: int = 0
    since_s: float = 0.0

    def again(self, clock_s: float) -> Absence:
        """Return the absence with one more look."""
        is_first = not self.looks or clock_s < self.since_s  # clocks may differ or be set back
        return Absence(min(self.looks + 1, _LOOKS), clock_s if is_first else self.since_s)

    def is_over(self, clock_s: float) -> bool:
        """Whether the job was missing in enough looks and for long enough."""
        return self.looks >= _LOOKS and clock_s - self.since_s >= _GRACE_S


PRESENT: Final = Absence()
"""For a job that was shown at the last look."""


class Verdict(Enum):
    """The fate of a job that the controller does not show and that has no end marker."""

    ENDED = auto()
    """It has ended as accounting says."""
    CANCELLED = auto()
    """This client's cancellation ended it."""
    RUNNING = auto()
    """It runs."""
    REPLACED = auto()
    """It is gone, and another job with its name exists."""
    GONE = auto()
    """It is gone, and its end is not known."""
    UNKNOWN = auto()
    """The next look decides."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The known facts about a job that the controller does not show. Job times are Slurm's, others the client's.

    Times are Slurm's; those of absence and cancellation are the client's.
    """

    job_id: str
    name: str  # unique to jobs of its token; empty without a token
    absence: Absence  # including this look
    now_s: float
    clock_s: float  # the client's time
    walltime_s: float  # the longest known one; infinite if none is known
    submit_s: float = 0.0
    began_s: float | None = None  # by its begin marker, if it has no end marker
    suspended_s: float | None = None  # when it was last shown as suspended
    cancelled_s: float | None = None  # when Slurm accepted its cancellation
    past: SlurmRecord | None = None  # accounting's record
    is_certain: bool = True  # whether accounting could be asked, or does not exist


class Inquiry:
    """Requests before a job counts as gone: to the controller about it alone, and to all sources about its name.

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
        """Ensure once that the run's cluster answers."""
        if not self._is_confirmed:
            self._confirm()
        self._is_confirmed = True

    def denies(self, job_id: str) -> bool:
        """Whether the controller says that it does not know a job."""
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
"""For use where no job is to count as gone."""


def verdict(known: Evidence, inquiry: Inquiry) -> Verdict:
    """Decide the fate of a job that the controller does not show.

    Raises `UnavailableError`: a necessary request cannot be answered now. Raises `OtherClusterError`: the run is
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
    """Whether a job that ran at some time may still run."""
    if math.isfinite(limit_s):
        return known.now_s < latest_s + limit_s + OVER_S
    return not known.absence.looks or known.clock_s - known.absence.since_s < _UNLIMITED_S


def _is_of_this_job(past: SlurmRecord, submit_s: float) -> bool:
    """Whether accounting's record is of this job, not of an earlier job with its number."""
    return not past.submit_s or past.submit_s >= submit_s - CLOCKS_S


def _cancelled(known: Evidence, *, is_running: bool) -> Verdict:
    """Decide the fate of a job whose cancellation Slurm accepted; one that had begun has time to end and record it."""
    if known.began_s is None and not is_running:
        return Verdict.CANCELLED
    since_s = known.clock_s - (known.cancelled_s or 0.0)
    is_over = known.absence.is_over(known.clock_s) and (not is_running or not 0 <= since_s < _KILLED_S)
    return Verdict.CANCELLED if is_over else Verdict.UNKNOWN
