"""Faults: nodes that go down, and those that take too long to allocate or to release (Section 5.4)."""

from __future__ import annotations

from dataclasses import replace

from .jobs import HOLDING, UNBEGUN, CcsJob, JobPhase, RefusedError
from .plan_changes import PlanChanges
from .plan_state import one_step
from .system import CcsSystem


class PlanFaults(PlanChanges):
    """A plan that goes on when nodes fail."""

    @one_step
    def fail(self, node: str, *, now: int) -> list[CcsJob]:
        """Note a failed node: jobs planned on it are planned anew, and jobs that ran there are planned to run again.

        A reservation that has not begun is planned anew as well, with all its jobs, if other nodes are free at its
        time. Else it keeps its time and its other nodes, and its jobs are planned anew on these.
        """
        self.cluster.set_up(node, up=False)
        for name, inside in self.reservations.items():
            if node in inside.cluster.names and not self._reserved_elsewhere(name, now):
                inside.fail(node, now=now)
        self._note(kind="node", name=node, up=False, at_s=now)
        place = self.cluster.names.index(node)
        met = [
            job
            for job in self.jobs.values()
            if job.phase in HOLDING - {JobPhase.RELEASING}
            and job.id not in self.reservations
            and job.placement is not None
            and place in job.placement.nodes
            and job.placement.end > now
        ]
        for job in met:
            self._free(job, now)
        return [self._again(job, now, f"node {node} went away") for job in self.in_order(met)]

    def _reserved_elsewhere(self, name: str, now: int) -> bool:
        """Move a reservation that has not begun to other nodes at its time; return whether that was possible."""
        job, ask, before = self.jobs[name], self._asks[name], self.jobs[name].placement
        if before is None or job.phase is not JobPhase.PLANNED:
            return False
        self._free(job)
        placement = self._find(job, ask, now)
        if placement is None:
            self._book(job, before)
            return False
        self._put(job, ask, placement, now)
        self._note(kind="moved", id=name)
        self.reservations[name].move_to(self.cluster.part(placement, name), now=now)
        return True

    @one_step
    def move_to(self, system: CcsSystem, *, now: int) -> None:
        """Plan all unended jobs anew on another system; those that do not fit there end."""
        self.furnish(system)
        for job in self.in_order(job for job in self.jobs.values() if job.phase is not JobPhase.ENDED):
            moved = replace(job, placement=None)
            try:
                ask = self._prepared(job.request, job.id, job.user, job.group)
            except RefusedError as error:
                self._cancel(moved, error.message, now)
            else:
                self._put(moved, ask, self._find(moved, ask, now), now)

    @one_step
    def late(self, name: str, node: str, *, now: int) -> list[CcsJob]:
        """Note that a job could not be allocated in time, because of a node: the node is down.

        The job is planned anew, and for now if that is possible: jobs of lower rank that have not begun are displaced,
        as few as are needed, from the last. Those with a fixed start or a deadline are not.

        Returns: all jobs that are planned anew.
        """
        self._job(name, JobPhase.PLANNED, JobPhase.ALLOCATING)
        if self.outer is not None:  # the nodes of a reservation are the system's
            self.outer.fail(node, now=now)
            met = {name: self.jobs[name]}
        else:
            met = {job.id: job for job in self.fail(node, now=now)}
        job = self.jobs[name]
        if job.phase in UNBEGUN and job.start_s != now and (displaced := self._displaced_by(job, now)):
            for other in (job, *displaced):
                self._free(other)
            met[name] = self._again(job, now, job.why)
            why = f"it made room for {name}"
            met |= {other.id: self._again(other, now, why) for other in self.in_order(displaced)}
        return list(met.values())

    def _displaced_by(self, job: CcsJob, now: int) -> list[CcsJob]:
        """Return the jobs without which another could start now; none if it cannot."""
        ask = self._asks[job.id]
        until = now + ask.lasts_s
        below = [
            other
            for other in self.jobs.values()
            if other.phase is JobPhase.PLANNED
            and other.id != job.id
            and other.rank > job.rank
            and other.request.start_s is None
            and other.request.deadline_s is None
            and other.placement is not None
            and other.placement.start < until
        ]
        self._free(job)
        gone: list[CcsJob] = []
        found = None
        for other in reversed(self.in_order(below)):
            self._free(other)
            gone.append(other)
            found = self._find(job, ask, now, until)
            if found is not None:
                break
        for other in (*gone, job):
            if other.placement is not None:
                self._book(other, other.placement)
        return gone if found is not None else []

    @one_step
    def late_release(self, name: str, node: str, *, now: int) -> list[CcsJob]:
        """Note that a job's nodes were not free in time, because of one: the job is over, and the node is down.

        Returns: all jobs that are planned anew.
        """
        self._job(name, JobPhase.RELEASING)
        self.end(name, now=now)
        return (self.outer or self).fail(node, now=now)
