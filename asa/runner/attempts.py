"""Decides when a deferred job is submitted again, and which other jobs wait meanwhile.

A job that the batch system does not accept delays only the jobs that depend on it. Jobs that go to the same partition,
account, quality of service and reservation have the same target. A target that has deferred the jobs of two stages,
and accepted none in between, is closed. The jobs of a closed target are tried one at a time, with growing pauses, until
one is accepted: first those not yet tried, then the one tried longest ago. So a job that can never be accepted does not
block the others. A batch system that cannot be reached delays all jobs.

Pauses are not stored: a new client may at once try a job that was refused to the previous client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from asa.exactly_once import Attempt, Cause
from asa.runner.deferrals import Target, target_of
from asa.runner.state import RunState
from asa.runner.timing import before
from asa.strategies.base import Choice, PlannedJob


@dataclass(slots=True)
class Attempts:
    """A client's attempts at submitting each job of a run."""

    state: RunState
    away: Attempt = field(default_factory=Attempt)  # attempts at reaching the batch system
    _jobs: dict[str, Attempt] = field(default_factory=dict)  # by `PlannedJob.targets`
    _targets: dict[Target, Attempt] = field(default_factory=dict)  # of closed targets

    def at(self, planned: PlannedJob) -> Attempt:
        """Return the attempts at a job. A job with a new combination of stages inherits their longest pause."""
        names = planned.targets
        known = {id(one): one for name in names if (one := self._jobs.get(name)) is not None}
        attempt = next(iter(known.values()), None)
        if attempt is None or len(known) > 1 or attempt is not self._jobs.get(names[-1]):
            again_s = max((attempt.again_s for attempt in known.values()), default=0.0)
            failures = max((attempt.failures for attempt in known.values()), default=0)
            attempt = _AtJob(again_s, failures, attempts=self, planned=planned)
        self._jobs |= dict.fromkeys(names, attempt)
        return attempt

    def failed(self, planned: PlannedJob, now_s: float) -> None:
        """Count a deferral, which the journal has already."""
        target = target_of(self.state, planned)
        if self.state.deferrals.is_closed(target):
            self._targets.setdefault(target, Attempt()).failed(now_s, Cause.ANSWER)
        else:
            self._targets.pop(target, None)

    def succeeded(self, planned: PlannedJob) -> None:
        """Forget the attempts at a job that was accepted."""
        self.away.succeeded()
        if self._targets:
            self._targets.pop(target_of(self.state, planned), None)
        for name in planned.targets:
            self._jobs.pop(name, None)

    # ------------------------------------------------------------------ jobs that may be submitted

    def again_s(self, planned: PlannedJob, now_s: float, choices: Mapping[str, Choice] | None = None) -> float:
        """Return the time before which a job must not be submitted."""
        waits_s = [self.away.due_s(now_s)]
        if self._jobs:
            waits_s += [self._jobs[name].due_s(now_s) for name in planned.targets if name in self._jobs]
        if self._targets:
            target = target_of(self.state, planned, choices)
            if target in self._targets and self.state.deferrals.is_closed(target):
                waits_s.append(self._targets[target].due_s(now_s))
        return max(waits_s)

    def times(
        self, jobs: Sequence[PlannedJob], times: Sequence[float], now_s: float, choices: Mapping[str, Choice]
    ) -> list[float]:
        """Return when a plan's jobs may be submitted; infinity for jobs that follow a deferred job."""
        blocked, found = set[str](), list[float]()
        for job, time_s in zip(jobs, times, strict=True):
            again_s = self.again_s(job, now_s, choices)
            if self._is_behind(job, blocked):
                again_s = math.inf
            if again_s > now_s and job.has_payload:
                blocked.update(job.stages)
            found.append(max(time_s, again_s))
        return found

    def in_turn(self, due: Sequence[PlannedJob], now_s: float, choices: Mapping[str, Choice]) -> Iterator[PlannedJob]:
        """Yield the due jobs that may be submitted, given the answers to the jobs before them."""
        blocked = set[str]()
        for job in self._untried_first(due):
            if not self._is_behind(job, blocked) and self.again_s(job, now_s, choices) <= now_s:
                yield job
                if self.again_s(job, now_s) <= now_s:
                    continue
            if job.has_payload:
                blocked.update(job.stages)

    def fresh(self, jobs: Iterable[PlannedJob], now_s: float) -> PlannedJob | None:
        """Return the first job that may be submitted and was never deferred."""
        may = (job for job in jobs if max(job.submit_s, self.again_s(job, now_s)) <= now_s)
        return next((job for job in may if self.state.deferrals.tried_s(job) == -math.inf), None)

    def _is_behind(self, job: PlannedJob, blocked: set[str]) -> bool:
        """Whether a job must wait for a deferred job."""
        return bool(blocked) and job.has_payload and not blocked.isdisjoint(before(self.state, job.stages))

    def _untried_first(self, jobs: Sequence[PlannedJob]) -> list[PlannedJob]:
        """Sort jobs by their last attempt, the untried first, but none before a job that it follows."""
        tried_s, by_stage = list[float](), dict[str, float]()
        for job in jobs:
            at_s = self.state.deferrals.tried_s(job)
            if job.has_payload:
                at_s = max([at_s, *(by_stage.get(name, -math.inf) for name in before(self.state, job.stages))])
                by_stage |= dict.fromkeys(job.stages, at_s)
            tried_s.append(at_s)
        return [job for _, job in sorted(zip(tried_s, jobs, strict=True), key=lambda pair: pair[0])]


@dataclass(slots=True, kw_only=True)
class _AtJob(Attempt):
    """A client's attempts at a job; their results also count for the batch system and the target."""

    attempts: Attempts
    planned: PlannedJob

    def failed(self, now_s: float, cause: Cause, *, at_once: bool = False) -> None:
        """Count a failed attempt."""
        if cause is Cause.AWAY:
            self.attempts.away.failed(now_s, cause)
            return
        Attempt.failed(self, now_s, cause, at_once=at_once)
        if cause is Cause.ANSWER:
            self.attempts.failed(self.planned, now_s)

    def succeeded(self) -> None:
        """Count a successful attempt."""
        self.attempts.succeeded(self.planned)
