"""Counts the core-hours that a run's jobs were allocated, and those that they idled, from the times of their cores."""

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
"""Time until the client notices an event, with a local stage's start and end: a client looks at least once a minute."""


@dataclass(slots=True)
class Accounts:
    """The core-hours that the jobs of one run were allocated, and those that they idled."""

    # returns a job, or the job that it joins, followed by all jobs that join that one
    line_of: Callable[[Job], list[Job]]
    units: UnitsOfRun  # finds the kind of a job's units
    _elastic: list[Job] = field(default_factory=list)
    _early: list[Job] = field(default_factory=list)  # jobs that may start before their payloads can
    # jobs that may, too, because the client runs local stages first
    _behind_local: list[Job] = field(default_factory=list)
    _spent_core_hours: float = 0.0
    _requeued_core_hours: float = 0.0  # core-hours of jobs before they were requeued

    def accepted(self, job: Job) -> None:
        """Add an accepted job."""
        planned = job.planned
        if planned.keep is Keep.AWAIT:
            self._early.append(job)
        elif job.spec.max_await_s is not None and planned.has_payload:
            self._behind_local.append(job)
        if planned.is_elastic:
            self._elastic.append(job)

    def ended(self, job: Job) -> None:
        """Add the core-hours of a job that has ended."""
        if not job.planned.is_elastic:
            self._spent_core_hours += self._core_hours(job)

    def requeued(self, job: Job, was: JobStatus) -> None:
        """Add the core-hours of a job before it was requeued; `was`: its status then."""
        self._requeued_core_hours += _before_requeue(job, was)

    def spent(self) -> float:
        """Return the core-hours of the jobs that have ended."""
        return self._spent_core_hours + self._requeued_core_hours + sum(map(self._core_hours, self._elastic))

    def idle_core_hours(self, now_s: float) -> float:
        """Return the core-hours that allocations idled before their payloads, or may yet idle."""
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
        """Return the core-hours that jobs idled for the client's local stages, or may yet idle (upper bound)."""
        return sum(map(_idled_behind_local, self._behind_local))

    def _widths_of(self, job: Job) -> list[tuple[float, int]]:
        """Return a job's numbers of own cores, each with the time from which it holds."""
        return self.widths_in(self.line_of(job)).get(job.status.job_id, [])

    def widths_in(self, line: Sequence[Job]) -> dict[str, list[tuple[float, int]]]:
        """Return, for a job and the jobs that joined it, each new number of cores with the time of the change.

        The cores requested last are given back first. O(steps + jobs) if few jobs are joined at the same time.
        """
        widths = [[] if (at_s := job.status.start_s) is None else [(at_s, job.spec.cores)] for job in line]
        coming = sorted((began[0][0], at) for at, began in enumerate(widths) if at and began)
        there, come, telling = list[int](), 0, _gives_back_at(line[0])
        for step in line[0].status.steps if widths[0] else ():
            if not step.cores or step.name not in telling or step.start_s < widths[0][0][0]:
                continue  # a step that ended before the job was requeued
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
        return {job.status.job_id: changes for job, changes in zip(line, widths, strict=True)}

    def _core_hours(self, job: Job) -> float:
        """Return the core-hours of a job that has ended; 0 for a local job."""
        if (ran_s := self.units.of(job).ran_s(job)) is not None:
            return core_hours(job.spec.cores, ran_s)
        end_s, widths = job.status.end_s, self._widths_of(job)
        if end_s is None or job.spec.local:
            return 0.0
        ends = [*(at_s for at_s, _ in widths[1:]), end_s]
        return sum(core_hours(cores, to_s - at_s) for (at_s, cores), to_s in zip(widths, ends, strict=False))


def _gives_back_at(job: Job) -> set[str]:
    """Name the steps at which cores are given back; in a job that others join, those that keep fewer than before."""
    steps = job.spec.steps
    if not job.planned.widths:
        return {step.name for step in steps}
    widths = pairwise([job.spec.cores, *(step.cores for step in steps)])
    return {step.name for step, (had, keeps) in zip(steps, widths, strict=True) if keeps < had}


def _is_allocated_at(status: JobStatus, at_s: float) -> bool:
    """Whether a job had begun, and had not ended, at a given time."""
    has_begun = status.start_s is not None and status.start_s < at_s
    return has_begun and (status.end_s is None or status.end_s >= at_s)


def _before_requeue(job: Job, was: JobStatus) -> float:
    """Return the upper bound of a job's core-hours before it was requeued: it may have given cores back."""
    if was.start_s is None or job.spec.local:
        return 0.0
    return core_hours(job.spec.cores, max(job.status.submit_s - was.start_s, 0.0))


def _idled_behind_local(job: Job) -> float:
    """Return the core-hours that a job idled before its payload, or may yet idle (upper bound)."""
    status, until_s = job.status, job.status.payload_start_s
    if until_s is None and (status.state.is_final or job.given_up):
        until_s = status.end_s
        if until_s is None or status.start_s is None:
            return 0.0
    if until_s is None:
        return core_hours(job.spec.cores, max((job.spec.max_await_s or 0.0) - NOTICE_S, 0.0))
    return core_hours(job.spec.cores, max(until_s - (until_s if status.start_s is None else status.start_s), 0.0))
