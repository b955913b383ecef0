"""The life of a job in the plan: it is allocated, runs, is notified before its time is over, ends and is released."""

from __future__ import annotations

from dataclasses import replace

from asa.errors import InputError

from .jobs import CcsJob, CcsOutcome, JobPhase
from .plan_state import PlanState, one_step


class PlanLife(PlanState):
    """A plan whose jobs begin and end."""

    def due(self, now: int) -> list[CcsJob]:
        """Return the jobs whose planned start has come, in order."""
        planned = (job for job in self.jobs.values() if job.phase is JobPhase.PLANNED)
        ready = [
            job for job in planned if job.placement is not None and job.placement.start <= now and self._may_begin(job)
        ]
        return sorted(ready, key=lambda job: (job.start_s, job.rank))

    @one_step
    def allocate(self, name: str, *, now: int) -> CcsJob:
        """Get the nodes of a job ready whose start has come; it begins once they are."""
        job = replace(self._due_job(name, now, JobPhase.PLANNED), phase=JobPhase.ALLOCATING)
        self._set(job, now)
        return job

    @one_step
    def begin(self, name: str, *, now: int) -> CcsJob:
        """Start a planned job whose start has come."""
        job = self._due_job(name, now, JobPhase.PLANNED, JobPhase.ALLOCATING)
        job = replace(job, phase=JobPhase.RUNNING, begun_s=now)
        self._set(job, now)
        return job

    def _due_job(self, name: str, now: int, *phases: JobPhase) -> CcsJob:
        job = self._job(name, *phases)
        if job.start_s is not None and job.start_s > now:
            why = f"is to start at {job.start_s}, and it is {now}"
            raise InputError(why, where=f"job {name!r}", hint="`due` names those that may start.")
        if not self._may_begin(job):
            why = self.readiness(job).why
            raise InputError(f"cannot start: {why}", where=f"job {name!r}", hint="End those that it waits for.")
        return job

    def _may_begin(self, job: CcsJob) -> bool:
        return not job.request.depend or self.readiness(job).is_met

    def over_s(self, job: CcsJob) -> int | None:
        """Return when a job has to end, if it runs: its walltime is over, or its nodes must be released."""
        if job.begun_s is None or job.placement is None:
            return None
        latest_s = job.placement.end - self.system.timeouts.release_s
        return min(job.begun_s + self._asks[job.id].walltime_s, latest_s)

    def notice_s(self, job: CcsJob) -> int | None:
        """Return when a job is to be notified that its time is almost over; None if it does not run, or has been."""
        over_s, before_s = self.over_s(job), job.request.notify_s
        is_open = job.phase is JobPhase.RUNNING and job.notified_s is None
        return over_s - before_s if is_open and over_s is not None and before_s is not None else None

    @one_step
    def notify(self, name: str, *, now: int) -> CcsJob:
        """Record that a running job was notified that its time is almost over."""
        job = replace(self._job(name, JobPhase.RUNNING), notified_s=now)
        self._set(job, now)
        return job

    @one_step
    def release(self, name: str, *, now: int, failed: bool = False) -> CcsJob:
        """Note that a running job has ended, and that its nodes are being freed, for which there is a time-out."""
        job = self._job(name, JobPhase.RUNNING)
        placement = job.placement
        assert placement is not None, "it runs"
        end = max(min(placement.end, now + self.system.timeouts.release_s), placement.start + 1)
        self._shorten(job, end)
        outcome = CcsOutcome.FAILED if failed else CcsOutcome.COMPLETED
        job = replace(job, phase=JobPhase.RELEASING, placement=replace(placement, end=end), outcome=outcome)
        self._set(job, now)
        return job

    @one_step
    def end(self, name: str, *, now: int, why: str = "", failed: bool = False) -> None:
        """Remove a job from the plan: it has ended, perhaps early or because it failed, or is cancelled.

        Jobs that depend on it are planned anew where they have to start later, and cancelled if they can never start.
        """
        job = self._job(name, *(phase for phase in JobPhase if phase is not JobPhase.ENDED))
        has_run = job.phase in {JobPhase.RUNNING, JobPhase.RELEASING}
        self._free(job, now if has_run else None)
        self.consumers.forget_before(now)
        if has_run and job.placement is not None:
            end = max(min(job.placement.end, now), job.placement.start)
            outcome = job.outcome or (CcsOutcome.FAILED if failed else CcsOutcome.COMPLETED)
            placement = replace(job.placement, end=end)
            self._set(replace(job, phase=JobPhase.ENDED, placement=placement, why=why, outcome=outcome), now)
            del self._asks[name]
        else:
            self._cancel(job, why, now)
        if (inside := self.reservations.pop(name, None)) is not None:
            for other in [other for other in inside.jobs.values() if other.phase is not JobPhase.ENDED]:
                inside.end(other.id, now=now, why=f"reservation {name} has ended")

    def _shorten(self, job: CcsJob, end: int) -> None:
        """Free the resources of a job from a time on, while it keeps them until then."""
        if job.placement is not None and end < job.placement.end:
            self.cluster.revoke(replace(job.placement, start=end))
            self.consumers.shorten(job.user, job.group, job.placement, end)
