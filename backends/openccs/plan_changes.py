"""Changes of accepted requests: altered, extended, and displaced by one that could not be allocated (Section 5.4)."""

from __future__ import annotations

from dataclasses import replace

from asa.errors import near
from asa.units import format_duration

from .cluster import Placement
from .jobs import CcsJob, JobPhase, RefusedError
from .plan_life import PlanLife
from .plan_state import one_step
from .requests import RequestParts


class PlanChanges(PlanLife):
    """A plan whose requests may change after they were planned."""

    @one_step
    def alter(self, name: str, parts: RequestParts, *, now: int) -> CcsJob:
        """Let a job ask for something else, and plan it anew; the walltime alone may change once it runs.

        Raises `RefusedError`: it could never run then, or not at its time; the job keeps what it had.
        """
        job = self._job(name, JobPhase.WAITING, JobPhase.PLANNED, JobPhase.RUNNING)
        self._refuse_reservation(name)
        if fixed := sorted({"array", "reservation"} & parts.terms.keys()):
            hint = "End it, and submit another."
            raise RefusedError(f"keeps its {fixed[0]}", where=f"job {name!r}", hint=hint)
        if job.phase is JobPhase.RUNNING:
            return self._altered_running(job, parts, now)
        request = self.completed(job.request.altered(parts), job.user, job.group)
        ask = self._prepared(request, name, job.user, job.group)
        changed = replace(job, request=request, first_walltime_s=None)
        self._check_dependencies(changed)
        self._order.add(changed)
        self._free(job)
        placement = self._find(changed, ask, now)
        if placement is None and (request.start_s is not None or request.deadline_s is not None):
            if job.placement is not None:
                self._book(job, job.placement)
            raise RefusedError("there is no room for it then", where=f"job {name!r}", hint="Ask for another time.")
        return self._put(changed, ask, placement, now)

    def _altered_running(self, job: CcsJob, parts: RequestParts, now: int) -> CcsJob:
        if parts.job_wide or parts.terms.keys() != {"walltime"}:
            hint = "Give a walltime alone, or alter it before it starts."
            raise RefusedError("runs, and only its walltime may change", where=f"job {job.id!r}", hint=hint)
        more_s = parts.terms["walltime"] - self._asks[job.id].walltime_s
        if more_s > 0:
            return self.extend(job.id, more_s, now=now)
        return self._shortened(job, -more_s, now) if more_s else job

    @one_step
    def extend(self, name: str, by_s: int, *, now: int) -> CcsJob:
        """Let a running job last longer, if what it has is free then.

        All extensions of a job together are at most the system's `extension`, a part of its first walltime.
        """
        job = self._job(name, JobPhase.RUNNING)
        placement = job.placement
        assert placement is not None, "it runs"
        if by_s < 1:
            raise RefusedError(f"cannot last {by_s} s more", where=f"job {name!r}", hint="Give a second or more.")
        self._refuse_reservation(name)
        lasts_s = self._asks[name].walltime_s
        first_s = job.first_walltime_s or lasts_s
        percent = self.system.extension_percent
        left_s = first_s * percent // 100 - (lasts_s - first_s)
        if by_s > left_s:
            left, by = format_duration(max(left_s, 0)), format_duration(by_s)
            why = f"may last {left} more ({percent} % of its first walltime in all), not {by}"
            raise RefusedError(why, where=f"job {name!r}", hint="Ask for less.")
        more = replace(placement, start=placement.end, end=placement.end + by_s)
        return self._lasting(job, more, lasts_s + by_s, first_s, now)

    def _lasting(self, job: CcsJob, more: Placement, lasts_s: int, first_s: int, now: int) -> CcsJob:
        """Let a running job have its resources for more time, if they are free."""
        longer = replace(job.request, walltime_s=lasts_s)
        ask = self._prepared(longer, job.id, job.user, job.group)
        # jobs that cannot start before this one has ended move in any case
        later = [other for other in self._order.followers(job.id, self.jobs) if _is_planned_before(other, more.end)]
        for other in later:
            self._free(other)
        views = self.consumers.views(ask, job.user, job.group, more.start, more.end - 1)
        if more.end > self.until or not self.cluster.has_room(ask, more, views):
            for other in later:
                if other.placement is not None:
                    self._book(other, other.placement)
            hint = "Let those that are planned there make room, or ask for less."
            why = f"what it has is not free for {format_duration(more.end - more.start)} more"
            raise RefusedError(why, where=f"job {job.id!r}", hint=hint)
        for other in self.in_order(later):
            self._put(other, self._asks[other.id], None, now, f"it waits for {job.id}")
        assert job.placement is not None, "it runs"
        self._asks[job.id] = ask
        self._book(job, more)
        placement = replace(job.placement, end=more.end)
        job = replace(job, request=longer, placement=placement, first_walltime_s=first_s, notified_s=None)
        self._set(job, now)
        return job

    def _shortened(self, job: CcsJob, by_s: int, now: int) -> CcsJob:
        """Let a running job end earlier, and free its resources from then on."""
        placement = job.placement
        assert placement is not None, "it runs"
        ask, over_s = self._asks[job.id], self.over_s(job)
        if over_s is not None and over_s - by_s <= now:
            raise RefusedError("would have ended already", where=f"job {job.id!r}", hint="End it.")
        end = placement.end - by_s
        self._shorten(job, end)
        request = replace(job.request, walltime_s=ask.walltime_s - by_s)
        self._asks[job.id] = self._prepared(request, job.id, job.user, job.group)
        first_s = job.first_walltime_s or ask.walltime_s
        job = replace(job, request=request, placement=replace(placement, end=end), first_walltime_s=first_s)
        self._set(job, now)
        return job

    def _check_dependencies(self, job: CcsJob) -> None:
        """Refuse a job that depends on unknown jobs, on itself, or on what can never be."""
        where = f"job {job.id!r}"
        for name in (name for dependency in job.request.depend for name in dependency.names):
            if not self._order.named(name, self.jobs):
                hint = f"{near(name, self.jobs)}Name jobs that were submitted before."
                raise RefusedError(f"depends on {name!r}, which is not in the plan", where=where, hint=hint)
        if job.request.depend and self._order.reaches(job, job.id, self.jobs):
            raise RefusedError("would wait for itself", where=where, hint="Leave out one of the dependencies.")
        if (readiness := self.readiness(job)).is_never:
            raise RefusedError(readiness.why, where=where, hint="Leave this dependency out.")

    def _refuse_reservation(self, name: str) -> None:
        if name in self.reservations:
            hint = "End it, and reserve anew."
            raise RefusedError("is a reservation, which is not changed", where=f"job {name!r}", hint=hint)


def _is_planned_before(job: CcsJob, time_s: int) -> bool:
    return job.phase is JobPhase.PLANNED and job.placement is not None and job.placement.start < time_s
