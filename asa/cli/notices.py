"""News that is no event of a run: trouble with the batch system, jobs on hold, changed reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Literal

from asa.core.late import dataclass
from asa.core.patterns import pattern
from asa.units import format_duration

if TYPE_CHECKING:
    from asa.backend import Advice, Condition, JobStatus
    from asa.runner.jobs import Job
    from asa.runner.state import RunState

_FEW = 3
_ON_HOLD = pattern(r"held|(?<!thres)hold")
_NUMBER = "JOBID"
_PENDING = "pending"  # a value of asa.backend, which needs numpy and is loaded late
_USUAL = {"", "none", "resources", "priority", "dependency", "begintime"}


@dataclass(frozen=True, slots=True)
class Notice:
    """One piece of news for the user."""

    # `trouble`, `troubleover`: the batch system does not answer; it answers again
    # `held`, `released`: a job was put on hold; it was released
    # `reason`: the reason why a job is pending has changed
    # `leftout`: stages will not run because of how their predecessors ended
    kind: Literal["trouble", "troubleover", "held", "released", "reason", "leftout"]
    time_s: float  # time of the observation, on the batch system's clock
    words: str
    stages: tuple[str, ...] = ()  # the stages of the job, or those that will not run
    job_id: str | None = None
    reason: str = ""  # in the batch system's words

    def as_dict(self) -> dict[str, Any]:
        """Return the notice as JSON-ready data."""
        return asdict(self)


@dataclass(slots=True)
class _ShownJob:
    """The state in which a job was last shown."""

    held: str = ""  # what is on hold, in words
    reasons: set[str] = field(default_factory=set)


def is_on_hold(status: JobStatus) -> bool:
    """Whether a pending job is on hold, by its reason.

    Examples
    --------
    >>> from asa.backend import JobState, JobStatus
    >>> is_on_hold(JobStatus("7", JobState.PENDING, 0.0, reason="JobHeldUser"))
    True
    """
    return status.state.value == _PENDING and bool(_ON_HOLD.search(status.reason.lower()))


def _held(status: JobStatus) -> tuple[str, str]:
    """Name what is on hold, the job or some of its elements, and the reason; empty if nothing is."""
    from asa.cli.kinds import held_units

    if is_on_hold(status):
        return f"job {status.job_id}", status.reason
    return held_units(status)


def _is(held: str) -> str:
    return "are" if "elements" in held else "is"


def remedy_of(advice: Advice, job_id: str | None) -> str:
    """Return what to do about a job; commands contain its number."""
    return advice.remedy.replace(_NUMBER, job_id) if job_id else advice.remedy


def _listed(names: Sequence[str]) -> str:
    first = [*names[:_FEW], f"{len(names) - _FEW} more"] if len(names) > _FEW + 1 else list(names)
    return " and ".join([", ".join(first[:-1]), first[-1]] if first[:-1] else first)


class Notices:
    """Compares a run's state with the previous one, and reports each change once.

    `remedy`: returns what to do about a trouble; empty if one can only wait.
    """

    def __init__(self, advise: Callable[[str], Advice | None], remedy: Callable[[str], str]) -> None:
        self._advise, self._remedy = advise, remedy
        self._trouble: str | None = None
        self._advised = ""
        self._since_s = 0.0
        self._seen: dict[str, _ShownJob] = {}
        self._left_out: frozenset[str] = frozenset()

    def news(self, condition: Condition, state: RunState | None, now_s: float) -> Iterator[Notice]:
        """Yield what has changed since the last call."""
        yield from self._of_trouble(condition.trouble, now_s)
        for job in state.jobs.values() if state is not None else ():
            yield from self._of_job(job, now_s)
        if state is not None:
            yield from self._of_left_out(state, now_s)

    def _of_trouble(self, trouble: str, now_s: float) -> Iterator[Notice]:
        if not trouble:
            if self._trouble is not None:
                lasted = format_duration(max(now_s - self._since_s, 0.0))
                text = f"the batch system answers again, after {lasted}"
                yield Notice("troubleover", now_s, text, reason=self._trouble)
            self._trouble, self._advised = None, ""
            return
        advised = self._remedy(trouble)
        if self._trouble is None:
            self._since_s = now_s
        if self._trouble is None or (advised and advised != self._advised):
            self._trouble, self._advised = trouble, advised
            text = f"problem with the batch system: {trouble}. Trying again; jobs go on."
            yield Notice("trouble", now_s, f"{text} {advised}".rstrip(), reason=trouble)

    def _of_left_out(self, state: RunState, now_s: float) -> Iterator[Notice]:
        """Yield news of stages that will not run, grouped by cause."""
        left_out, known = state.stages.left_out, self._left_out
        self._left_out = left_out
        news: dict[str, list[str]] = {}
        for name in (stage for stage in state.workflow.order if stage in left_out - known) if left_out != known else ():
            news.setdefault(state.stages[name].reason, []).append(name)
        for reason, names in news.items():
            does = "does not run" if len(names) == 1 else "do not run"
            yield Notice("leftout", now_s, f"{_listed(names)} {does}: {reason}", tuple(names), reason=reason)

    def _of_job(self, job: Job, now_s: float) -> Iterator[Notice]:
        status, stages = job.status, job.planned.stages
        if job.giving_up or status.state.is_final:
            return
        seen = self._seen.setdefault(status.job_id, _ShownJob())
        whose = f"job {status.job_id}"
        held, reason = _held(status)
        if held != seen.held:
            was, seen.held = seen.held, held
            if held:
                text = f"{held} {_is(held)} on hold{self._meaning(reason, status.job_id)}"
                yield Notice("held", now_s, text, stages, status.job_id, reason)
            else:
                yield Notice("released", now_s, f"{was} {_is(was)} not on hold any more", stages, status.job_id)
        elif not held and status.state.value == _PENDING and self._is_news(seen, status.reason):
            text = f"{whose} waits{self._meaning(status.reason, status.job_id)}"
            yield Notice("reason", now_s, text, stages, status.job_id, status.reason)

    def _is_news(self, seen: _ShownJob, reason: str) -> bool:
        """Whether a reason is unusual and new for this job; a reason that comes and goes is shown only once."""
        key = re.split(r"[,:(;]", reason, maxsplit=1)[0].strip().lower()
        if key in _USUAL or key in seen.reasons:
            return False
        seen.reasons.add(key)
        return True

    def _meaning(self, reason: str, job_id: str) -> str:
        advice = self._advise(reason)
        if advice is None:
            return f": {reason}"
        remedy = f" {remedy_of(advice, job_id)}" if advice.remedy else ""
        return f": {advice.meaning}{remedy} ({reason})"
