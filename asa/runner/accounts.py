"""What the jobs of a run held and idled: core-hours, and since when each had how many cores."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from asa.backend import JobStatus
from asa.runner.jobs import Job
from asa.strategies.base import Keep
from asa.units import core_hours

if TYPE_CHECKING:
    from asa.runner.kinds import UnitsOfRun

NOTICE_S = 120.0
"""A client looks at least once a minute, and a local stage begins and ends."""


@dataclass(slots=True)
class Accounts:
    """What the jobs of one run held and idled."""

    line_of: Callable[[Job], list[Job]]  # gives a job, or the one that it joins, and all that join that one
    units: UnitsOfRun  # what jobs run
    _elastic: list[Job] = field(default_factory=list)
    _early: list[Job] = field(default_factory=list)  # that may begin before their payloads
    _behind_local: list[Job] = field(default_factory=list)  # others that may, for what the client runs
    _spent_core_hours: float = 0.0
    _requeued_core_hours: float = 0.0  # by jobs before they were put back into the queue

    def accepted(self, job: Job) -> None:
        """Note a job."""
        planned = job.planned
        if planned.keep is Keep.AWAIT:
            self._early.append(job)
        elif job.spec.max_await_s is not None and planned.has_payload:
            self._behind_local.append(job)
        if planned.is_elastic:
            self._elastic.append(job)

    def ended(self, job: Job) -> None:
        """Note that a job has ended."""
        if not job.planned.is_elastic:
            self._spent_core_hours += self._core_hours(job)

    def requeued(self, job: Job, was: JobStatus) -> None:
        """Note that a job was put back into the queue, and what it was before."""
        self._requeued_core_hours += _before_requeue(job, was)

    def spent(self) -> float:
        """Count the core-hours of the jobs that have ended."""
        return self._spent_core_hours + self._requeued_core_hours + sum(map(self._core_hours, self._elastic))

    def idle_core_hours(self, now_s: float) -> float:
        """Count what allocations that came early idled before their payloads, and what those that are left may yet."""
        idle = 0.0
        for job in self._early:
            status, until_s = job.status, job.status.payload_start_s
            if until_s is None and status.state.is_final:
                until_s = status.end_s if status.start_s is not None else None
                idle_s = 0.0 if until_s is None or status.start_s is None else until_s - status.start_s
            elif until_s is None:
                since_s = now_s if status.start_s is None else status.start_s
                idle_s = max(job.planned.spare_walltime_s, now_s - since_s)
            else:
                idle_s = until_s - (until_s if status.start_s is None else status.start_s)
            idle += core_hours(job.spec.cores, max(idle_s, 0.0))
        return idle

    def idled_behind_local(self) -> float:
        """Count the core-hours that jobs idled, or may yet at most, while the client runs what is local."""
        return sum(map(_idled_behind_local, self._behind_local))

    def _widths_of(self, job: Job) -> list[tuple[float, int]]:
        """Return since when a job had how many cores of its own."""
        return self.widths_in(self.line_of(job)).get(job.status.job_id, [])

    def widths_in(self, line: Sequence[Job]) -> dict[str, list[tuple[float, int]]]:
        """Return the times at which the cores of a job, or of a job that joined it, changed, each with the new number.

        The cores requested last are given back first. O(steps + jobs) if few jobs are joined at the same time.
        """
        widths = [[] if (at_s := one.status.start_s) is None else [(at_s, one.spec.cores)] for one in line]
        coming = sorted((began[0][0], at) for at, began in enumerate(widths) if at and began)
        there, come, telling = list[int](), 0, _gives_back_at(line[0])
        for step in line[0].status.steps if widths[0] else ():
            if not step.cores or step.name not in telling or step.start_s < widths[0][0][0]:
                continue  # the last: it ended before the job was put back into the queue
            while come < len(coming) and coming[come][0] < step.start_s:
                insort(there, coming[come][1])
                come += 1
            there = [at for at in there if _is_allocated_at(line[at].status, step.start_s)]
            left = step.cores
            for at in (0, *there):
                taken = min(widths[at][-1][1], left)
                left -= taken
                if taken < widths[at][-1][1]:
                    widths[at].append((step.start_s, taken))
        return {one.status.job_id: changes for one, changes in zip(line, widths, strict=True)}

    def _core_hours(self, job: Job) -> float:
        """Count what a job held from its beginning to its end; nothing before that, and where the client is."""
        if (ran_s := self.units.of(job).ran_s(job)) is not None:
            return core_hours(job.spec.cores, ran_s)
        end_s, widths = job.status.end_s, self._widths_of(job)
        if end_s is None or job.spec.local:
            return 0.0
        ends = [*(at_s for at_s, _ in widths[1:]), end_s]
        return sum(core_hours(cores, to_s - at_s) for (at_s, cores), to_s in zip(widths, ends, strict=False))


def _gives_back_at(job: Job) -> set[str]:
    """Name the steps that show cores given back: if others join a job, those that keep fewer than before."""
    steps = job.spec.steps
    if not job.planned.widths:
        return {step.name for step in steps}
    widths = pairwise([job.spec.cores, *(step.cores for step in steps)])
    return {step.name for step, (had, keeps) in zip(steps, widths, strict=True) if keeps < had}


def _is_allocated_at(status: JobStatus, at_s: float) -> bool:
    """Whether a job that began before a time had not ended before it."""
    has_begun = status.start_s is not None and status.start_s < at_s
    return has_begun and (status.end_s is None or status.end_s >= at_s)


def _before_requeue(job: Job, was: JobStatus) -> float:
    """Count what a job held until it was put back into the queue, at most: perhaps it gave cores back before."""
    if was.start_s is None or job.spec.local:
        return 0.0
    return core_hours(job.spec.cores, max(job.status.submit_s - was.start_s, 0.0))


def _idled_behind_local(job: Job) -> float:
    """Count the core-hours that a job idled before its payload, or may at most if that has not begun."""
    status, until_s = job.status, job.status.payload_start_s
    if until_s is None and (status.state.is_final or job.given_up):
        until_s = status.end_s
        if until_s is None or status.start_s is None:
            return 0.0
    if until_s is None:
        return core_hours(job.spec.cores, max((job.spec.max_await_s or 0.0) - NOTICE_S, 0.0))
    return core_hours(job.spec.cores, max(until_s - (until_s if status.start_s is None else status.start_s), 0.0))
