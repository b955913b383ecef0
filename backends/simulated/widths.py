"""Widths of a client's jobs: cores that they give back, cores that join them, and cores that payloads wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asa.backend import DependencyType, JobState

from .client import ClientJob, Need
from .table import UNSTARTED

if TYPE_CHECKING:
    from .engine import Engine


class Additions:
    """Jobs whose cores join those of other jobs."""

    def __init__(self) -> None:
        self.joins: dict[int, int] = {}  # by addition, the job that it joins
        self.of: dict[int, tuple[int, ...]] = {}  # by job

    def add(self, number: int, addition: int) -> None:
        """Let a job's cores join another's when it starts."""
        self.joins[addition] = number
        self.of[number] = (*self.of.get(number, ()), addition)

    def fork(self) -> Additions:
        """Copy the state; both copies continue independently."""
        fork = Additions()
        fork.joins, fork.of = dict(self.joins), dict(self.of)
        return fork


class Widths:
    """The widths of an engine's jobs; the engine makes one for each use, and keeps the additions.

    A job gets more cores by a second one, an addition, which waits in the queue like any other; its cores join the
    first's when it starts.
    """

    __slots__ = ("_additions", "_engine")

    def __init__(self, engine: Engine, additions: Additions) -> None:
        self._engine = engine
        self._additions = additions

    def of(self, number: int) -> int:
        """Return the cores of a client's job, including joined ones."""
        return self._engine.clients[number].cores + sum(addition.cores for addition in self._joined(number))

    def is_addition(self, number: int) -> bool:
        """Whether a job is an addition: it runs nothing itself, and its cores join another job's."""
        return number in self._additions.joins

    def additions(self, number: int) -> list[ClientJob]:
        """Return the additions of a job, past and future ones."""
        return [self._engine.clients[addition] for addition in self._additions.of.get(number, ())]

    def _joined(self, number: int) -> list[ClientJob]:
        return [job for job in self.additions(number) if job.state is JobState.RUNNING]

    def resize(self, number: int, cores: int, *, left: int | None = None) -> bool:
        """Change the width of a client's running job now.

        `cores`: its new width, at least 1, including cores that joined, which are given back first.
        `left`: seconds, at least 1, that the rest of its payload takes at the new width; unchanged if not given. The
        walltime stays.
        Returns: false, without any change, if the job is not running, or would grow beyond the idle cores.
        """
        engine, job = self._engine, self._engine.clients[number]
        if cores < 1 or (left is not None and left < 1):
            raise ValueError(f"a job of {cores} cores with {left} s left cannot be")
        more = cores - self.of(number)
        if job.state is not JobState.RUNNING or (more > 0 and not self._resize(job, more)):
            return False
        for addition in (*reversed(self._joined(number)), job):
            if -addition.cores < more < 0:
                self._resize(addition, more)
                break
            if more < 0:
                more += addition.cores
                engine.finish(addition)
        if left is not None:
            job.run = left + (job.done(engine.now) if job.payload_start != UNSTARTED else 0)
            engine.plan_end(job)
        return True

    def _resize(self, job: ClientJob, more: int) -> bool:
        if not self._engine.core.resize(job.index, job.cores + more, job.start + job.request):
            return False
        job.cores += more
        return True

    def grow(self, number: int, cores: int) -> int:
        """Request more cores for a client's job, and return the number of the job that waits for them.

        That job is eligible while the first one runs, requests the first one's remaining walltime, and may be
        cancelled, which gives its cores back.

        `number`: the job; it has not ended, and does not itself join another.
        """
        engine, job = self._engine, self._engine.clients[number]
        is_too_wide = cores + self.of(number) > engine.capacity
        if job.state.is_final or job.is_local or self.is_addition(number) or is_too_wide:
            raise ValueError(f"job {number} cannot get {cores} more cores")
        left = job.request if job.start == UNSTARTED else max(job.start + job.request - engine.now, 1)
        addition = engine.submit(cores=cores, request=left, run=left, needs=[Need(number, DependencyType.AFTER)])
        self._additions.add(number, addition)
        return addition

    # ------------------------------------------------------------------ changes of width during a payload

    def look_at_next(self, job: ClientJob) -> None:
        """Schedule a check of a running job at its next change of width."""
        if job.place < len(job.widths):
            self._engine.look_again(job, job.moment(job.widths[job.place][0], before=True))

    def reach(self, job: ClientJob) -> None:
        """Apply the changes of width of a running job that are due."""
        engine, number = self._engine, self._engine.number_of(job)
        if job.state is not JobState.RUNNING or job.payload_start == UNSTARTED or job.stands != UNSTARTED:
            return
        reached = False
        while job.stands == UNSTARTED and job.place < len(job.widths):
            second, width, at_least = job.widths[job.place]
            if job.done(engine.now) < second:
                break
            job.place, reached = job.place + 1, True
            if not at_least and width < self.of(number):
                self.resize(number, width)
            self._measure(job)
        if reached:
            engine.changed(job)
            if job.stands == UNSTARTED:
                self.look_at_next(job)

    def came_or_went(self, addition: ClientJob) -> None:
        """After the start or end of an addition, update the job to which it belongs; ignore other jobs."""
        if (joined := self._additions.joins.get(self._engine.number_of(addition))) is not None:
            self._measure(self._engine.clients[joined])

    def _measure(self, job: ClientJob) -> None:
        """Stop a payload while it lacks cores, and continue it when it has them."""
        engine = self._engine
        _, width, at_least = job.widths[job.place - 1] if job.place else (0, 0, False)
        lacks = at_least and self.of(engine.number_of(job)) < width
        if job.state is not JobState.RUNNING or lacks == (job.stands != UNSTARTED):
            return
        if lacks:
            job.stands = engine.now
        else:
            there, since, job.stands = job.done(engine.now), job.stands, UNSTARTED
            job.stood += ((there, engine.now - since),)
            self.look_at_next(job)
        engine.changed(job)
        engine.plan_end(job)

    def leave_behind(self, job: ClientJob) -> None:
        """End the joined additions of a requeued job; its pending additions wait for its next start."""
        number = self._engine.number_of(job)
        for addition in self._joined(number):
            self._engine.finish(addition)
        for addition in self.additions(number):
            if addition.state is JobState.PENDING:
                self._engine.dequeue(addition)
