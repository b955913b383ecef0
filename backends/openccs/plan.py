"""The plan: every accepted request with its start, through all later events (Sections 2 and 5.4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Self

from asa.errors import near

from .cluster import Ask
from .jobs import CcsJob, JobPhase, RefusedError
from .plan_faults import PlanFaults
from .plan_state import one_step
from .requests import ResourceRequest

_MAX_ELEMENTS = 100_000
ARRAY_PART: Final = 500
"""So many elements of an array are planned at once, as in the paper; those of a fixed start or a deadline all are."""


class RequestPlan(PlanFaults):
    """All accepted requests and their starts.

    A request is planned when it comes, without changing earlier ones, and moves only to earlier times (backfilling),
    unless its resources fail. The caller provides the time, which must not go back.

    `limits`, `pools`: upper bounds of users and groups, and amounts kept free.
    `rules`: validities of users and groups, and values of their requests.
    `on_entry`: called with each change, as plain data; `RequestPlan.reload` restores the plan from these.
    `since`, `until`: of a reservation: nothing runs before or after.
    `reservations`: a plan for each reservation, by name: for the scheduler a reservation is a system of its own.

    Examples
    --------
    >>> from asa.backends.openccs.system import CcsSystem, Node
    >>> plan = RequestPlan(CcsSystem("two", (Node("a", {"ncpus": 4}), Node("b", {"ncpus": 4}))))
    >>> def ask(text):
    ...     [job] = plan.submit(ResourceRequest.parse(text), now=0)
    ...     return job.id, job.start_s
    >>> ask("rset=2:ncpus=4,walltime=1h"), ask("rset=ncpus=2,walltime=1h"), ask("rset=ncpus=4,walltime=1h")
    (('1', 0), ('2', 3600), ('3', 3600))
    >>> plan.end("1", now=600)
    >>> [job.start_s for job in plan.backfill(now=600)]
    [600, 600]
    """

    @one_step
    def submit(
        self, request: ResourceRequest, *, now: int, user: str = "", group: str = "", name: str | None = None
    ) -> list[CcsJob]:
        """Plan a request, or each element of an array; one without a possible start goes to the waiting room.

        Of a large array a part is planned, and `plan_later` plans the others: until then they wait.

        Returns: one, or those of the array in the order of their indices.
        Raises `RefusedError`: its requirements can never be met, or not at its required time.
        """
        if why := self.consumers.invalid(user, group, now):
            raise RefusedError(why, where=f"job {name!r}" if name else "a job", hint="Submit when it is.")
        request = self.completed(request, user, group)
        if request.reservation is not None:
            inside = self.reservations.get(request.reservation)
            if inside is None:
                hint = f"{near(request.reservation, self.reservations)}Reserve first."
                where = f"job {name!r}" if name else "a job"
                raise RefusedError(f"there is no reservation {request.reservation!r}", where=where, hint=hint)
            return inside.submit(replace(request, reservation=None), now=now, user=user, group=group, name=name)
        if request.array is not None and len(request.array) > _MAX_ELEMENTS:
            why = f"has {len(request.array)} elements, and an array may have {_MAX_ELEMENTS}"
            raise RefusedError(why, where=f"job {name!r}" if name else "an array", hint="Submit several.")
        name = self._next_name() if name is None else name
        names = [name] if request.array is None else [f"{name}[{index}]" for index in request.array]
        if taken := next((name for name in names if name in self.jobs), None):
            raise RefusedError("is in the plan already", where=f"job {taken!r}", hint="Name it otherwise.")
        ask = self._prepared(request, name, user, group)
        self._check_dependencies(CcsJob(name, request))
        self._names.add(name)
        is_timed = request.start_s is not None or request.deadline_s is not None
        first = len(names) if is_timed else ARRAY_PART
        planned = self._placed([CcsJob(each, request, user, group, now) for each in names[:first]], ask, now)
        if is_timed and (missed := next((job for job in planned if job.placement is None), None)):
            for job in planned:
                self._forget(job)
            when = "at its start" if request.start_s is not None else "before its deadline"
            hint = "Ask for less, or another time."
            raise RefusedError(f"there is no room for it {when}", where=f"job {missed.id!r}", hint=hint)
        if later := names[first:]:
            self._later[name] = later
            why = "its part of the array is planned next"
            planned += [self._put(CcsJob(each, request, user, group, now), ask, None, now, why) for each in later]
        for job in planned:
            self._order.add(job)
        return planned

    def first_start(self, request: ResourceRequest, since: int, *, user: str = "", group: str = "") -> int | None:
        """Return the start that a request would get if it came at a time, without planning it; None if it gets none.

        Raises `RefusedError`: it would be refused.
        """
        if why := self.consumers.invalid(user, group, since):
            raise RefusedError(why, where="a job", hint="Submit when it is.")
        request = self.completed(request, user, group)
        ask = self._prepared(request, "", user, group)
        placement = self._find(CcsJob("", request, user, group, since), ask, since)
        return placement.start if placement is not None else None

    def _placed(self, jobs: Iterable[CcsJob], ask: Ask, now: int) -> list[CcsJob]:
        """Plan equal jobs, one after the other."""
        since: int | None = now
        planned: list[CcsJob] = []
        for job in jobs:
            placement = None if since is None else self._find(job, ask, since)
            planned.append(self._put(job, ask, placement, now))
            since = None if placement is None else placement.start  # where there is none for one, nor is for the next
        return planned

    @one_step
    def plan_later(self, *, now: int) -> list[CcsJob]:
        """Plan the next part of an array, of the one whose turn it is; requests that came meanwhile are before it.

        Returns: the jobs of that part; none if all arrays are planned.
        """
        if not self._later:
            return []
        name, left = next(iter(self._later.items()))
        del self._later[name]
        if rest := left[ARRAY_PART:]:
            self._later[name] = rest
        found = [self.jobs[each] for each in left[:ARRAY_PART] if each in self.jobs]
        waiting = [job for job in found if job.phase is JobPhase.WAITING]
        return self._placed(waiting, self._asks[waiting[0].id], now) if waiting else self.plan_later(now=now)

    @one_step
    def reserve(self, request: ResourceRequest, *, now: int, name: str, user: str = "", group: str = "") -> Self:
        """Reserve resources from a start on; jobs submitted to the returned plan run in them.

        Raises `RefusedError`: it has no start, or the resources are not free then.
        """
        if request.start_s is None or request.array is not None:
            hint = "Write start= into it, and no array."
            raise RefusedError("a reservation has one start", where=f"reservation {name!r}", hint=hint)
        self.submit(request, now=now, user=user, group=group, name=name)
        self._note(kind="reservation", id=name)
        return self._open(name)

    @one_step
    def backfill(self, *, now: int, most: int | None = None, passes: int = 1) -> list[CcsJob]:
        """Look for earlier starts of planned jobs, and for starts of waiting ones, in order of priority and submission.

        This is First-Fit. No job starts later because of it: a job without an earlier start keeps its own.

        `passes`: how often to go through all jobs, because a job that moves frees space for others: once, as in the
        paper; 0 for until none moves any more.
        """
        self.consumers.forget_before(now)
        later = {name for left in self._later.values() for name in left}
        moved: dict[str, CcsJob] = {}
        for number in itertools.count(1):
            found = (job for job in self.jobs.values() if job.phase in (JobPhase.PLANNED, JobPhase.WAITING))
            found = (job for job in found if job.id not in later and (job.start_s is None or job.start_s > now))
            jobs = self.in_order(found)
            better = [job for job in (self._moved(job, now) for job in jobs[:most]) if job is not None]
            moved |= {job.id: job for job in better}
            if not better or number == passes:
                break
        return list(moved.values())

    def _moved(self, job: CcsJob, now: int) -> CcsJob | None:
        """Find an earlier start of a job, if there is one."""
        if job.request.start_s is not None and job.placement is not None:
            return None
        ask, before = self._asks[job.id], job.placement
        if before is None:
            placement = self._find(job, ask, now)
            return None if placement is None else self._put(job, ask, placement, now)
        self._revoke(job, before)
        placement = self._find(job, ask, now, before.end - 1)
        if placement is None:
            self._book(job, before)
            return None
        return self._put(job, ask, placement, now)

    @one_step
    def recover(self, node: str, *, now: int) -> list[CcsJob]:
        """Set a node up; waiting jobs are planned, and others may start earlier. Returns the moved jobs."""
        self.cluster.set_up(node, up=True)
        for inside in self.reservations.values():
            if node in inside.cluster.names:
                inside.recover(node, now=now)
        self._note(kind="node", name=node, up=True, at_s=now)
        return self.backfill(now=now)

    @one_step
    def forget_before(self, now: int) -> None:
        """Discard the past: ended jobs, and usage before a time."""
        self._forget_ended()
        self.cluster.forget_before(now)
        self.consumers.forget_before(now)
        self._note(kind="past", at_s=now)
