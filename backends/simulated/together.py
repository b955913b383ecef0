"""Work shared by several of a client's jobs: tasks at the same time, legs in turn, or steps for which they race."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asa.backend import JobSpec, JobState
from asa.outcome import JobOutcome

from .table import UNSTARTED

if TYPE_CHECKING:
    from .client import ClientJob
    from .engine import Engine

NOTHING_LEFT = "NothingLeft"
"""Reason of a leg that ended, whether work remains or not."""

OUTRUN = "Outrun"
"""Reason of a job that ended at once, because another job of its race had begun."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a job that is shared with others; by default all of it."""

    bag: str  # name of the bag
    sharing: int = 1  # number of jobs that do it at the same time
    leg: int = 0  # number of the job among those that do it in turn; 0 for those that do it at the same time
    # for a job that races with others: for each of its steps the race, the token posted at its end, and its second
    races: tuple[tuple[str, str, int], ...] = ()

    @classmethod
    def of(cls, spec: JobSpec) -> Work | None:
        """Return the shared work of a job; None if it works alone."""
        if spec.race:
            steps = [(step.race, step.post, math.ceil((step.slot_s or (0.0, 0.0))[0])) for step in spec.steps]
            return cls(spec.race, races=tuple(steps) or ((spec.race, "", 0),))
        return cls(spec.bag, spec.sharing, spec.leg) if spec.bag else None


class Together:
    """Remaining shared work of the jobs of an engine."""

    def __init__(self) -> None:
        # for each bag, by name: the remaining seconds of each of its jobs, the time of that value, and its running jobs
        self._bags: dict[str, tuple[int, int, frozenset[int]]] = {}
        # by name, for bags done in turn: remaining seconds; the job whose turn it is; and the one that waits for it
        self._left: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._winners: dict[str, int] = {}  # of races, by name

    def fork(self) -> Together:
        """Copy the state; both copies continue independently."""
        fork = Together()
        for name, known in vars(self).items():
            setattr(fork, name, dict(known))
        return fork

    def add(self, work: Work, run: int, now: int) -> None:
        """Add work that takes `run` seconds, unless it is already known."""
        if work.leg:
            self._left.setdefault(work.bag, run)
        elif not work.races:
            self._bags.setdefault(work.bag, (run * work.sharing, now, frozenset()))

    def is_left(self, work: Work) -> bool:
        """Return whether some work of an ended leg remains."""
        return bool(work.leg) and self._left[work.bag] > 0

    def may_begin(self, work: Work, job: ClientJob, engine: Engine) -> bool:
        """Let a leg continue with the remaining work, if it is its turn; otherwise signal the previous leg.

        In a race, the first job begins, and all others end.
        """
        if work.races:
            return self._is_first(work, job, engine)
        if not work.leg:
            return True
        number, left = engine.number_of(job), self._left[work.bag]
        limit = job.start + job.request
        if (before := self._turns.get(work.bag)) is not None:
            self._next[work.bag] = number
            _signal(engine.clients[before], engine)
            job.planned_end = limit
        elif left <= 0:
            job.planned_end, job.reason = engine.now + 1, NOTHING_LEFT
        else:
            self._turns[work.bag] = number
            job.run = left
            if job.saves != UNSTARTED and engine.now + left > limit:
                job.run, job.signalled = limit - engine.now, max(limit - job.saves, engine.now)
            return True
        engine.core.push_end(job.index, job.planned_end)
        return False

    def _is_first(self, work: Work, job: ClientJob, engine: Engine) -> bool:
        """Return whether a job is first in the races for all its remaining work, from the first remaining step on."""
        number, begins = engine.number_of(job), None
        for race, post, second in work.races:
            if begins is None and post in engine.posted:
                continue
            if self._winners.setdefault(race, number) != number:
                begins = None
                break
            begins = second if begins is None else begins
        if begins is None:
            job.planned_end, job.exit_code, job.reason = engine.now + 1, JobOutcome.OUTRUN.exit_code, OUTRUN
            engine.core.push_end(job.index, job.planned_end)
            return False
        job.run, job.skipped = max(job.run - begins, 1), begins
        return True

    def stopped(self, work: Work, job: ClientJob, engine: Engine) -> int | None:
        """Record that a job no longer does its work; return the number of the leg whose turn is next, if any."""
        number = engine.number_of(job)
        self.shared(work, job, engine, begins=False)
        if self._next.get(work.bag) == number:
            del self._next[work.bag]
        if not work.leg or self._turns.get(work.bag) != number:
            return None
        until = engine.now if job.signalled == UNSTARTED else min(job.signalled, engine.now)
        del self._turns[work.bag]
        self._left[work.bag] -= max(until - job.payload_start, 0)
        waiting = self._next.pop(work.bag, None)
        return waiting if waiting is not None and engine.clients[waiting].state is JobState.RUNNING else None

    def shared(self, work: Work, job: ClientJob, engine: Engine, *, begins: bool) -> None:
        """Record that a job begins or stops taking tasks, so that the other jobs end sooner or later."""
        number = engine.number_of(job)
        left, since, there = self._bags.get(work.bag, (0, 0, frozenset()))
        if work.leg or work.races or begins == (number in there):
            return
        left = max(left - len(there) * (engine.now - since), 0)
        there = there | {number} if begins else there - {number}
        self._bags[work.bag] = left, engine.now, there
        for other in there if left or begins else ():
            client = engine.clients[other]
            client.run = max(engine.now - client.payload_start - -left // len(there), 1)
            engine.plan_end(client)


def _signal(job: ClientJob, engine: Engine) -> None:
    """Let a leg save its state and end now."""
    at = engine.now
    if job.saves == UNSTARTED or (job.signalled != UNSTARTED and job.signalled <= at):
        return
    rest = max(job.payload_end - at, 0)
    if rest > job.saves:
        job.signalled, job.run = at, max(at + job.saves - job.payload_start, 1)
        engine.plan_end(job)
