"""The plan: every accepted request with its start, through all later events (Sections 2 and 5.4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from operator import attrgetter
from typing import Concatenate, ParamSpec, TypeVar

from asa.errors import InputError, StateError

from .cluster import Ask, Placement, PlannedCluster, TooMuchError
from .jobs import CcsJob, Entry, JobPhase, entry_of, job_of
from .limits import Consumers, FreePool, Limit
from .requests import ResourceRequest
from .rusv import BEGIN, FOREVER
from .system import CcsSystem


class RefusedError(InputError):
    """A request cannot be accepted."""


_MAX_ELEMENTS = 100_000
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _one_step(method: Callable[Concatenate[RequestPlan, _P], _R]) -> Callable[Concatenate[RequestPlan, _P], _R]:
    """Write all changes of a method as one entry."""

    @wraps(method)
    def wrapped(self: RequestPlan, /, *args: _P.args, **named: _P.kwargs) -> _R:
        self._refuse_if_broken()
        self._depth += 1
        try:
            return method(self, *args, **named)
        finally:
            self._depth -= 1
            if not self._depth:
                self._tell()

    return wrapped


class RequestPlan:
    """All accepted requests and their starts.

    A request is planned when it comes, without changing earlier ones, and moves only to earlier times (backfilling),
    unless its resources fail. The caller provides the time, which must not go back.

    `limits`, `pools`: upper bounds of users and groups, and amounts kept free.
    `on_entry`: called with each change, as plain data; `RequestPlan.reload` restores the plan from these.
    `since`, `until`: of a reservation: nothing runs before or after.
    `reservations`: a plan for each reservation, by name: for the scheduler a reservation is a system of its own.

    Examples
    --------
    >>> from asa.backends.openccs.system import Node
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

    def __init__(
        self,
        system: CcsSystem,
        limits: Sequence[Limit] = (),
        pools: Sequence[FreePool] = (),
        *,
        on_entry: Callable[[Entry], None] | None = None,
        since: int = BEGIN,
        until: int = FOREVER,
    ) -> None:
        self.system = system
        self.since, self.until = since, until
        self.reservations: dict[str, RequestPlan] = {}
        self.cluster = PlannedCluster(system)
        self.consumers = Consumers(self.cluster.used, limits, pools)
        self.jobs: dict[str, CcsJob] = {}
        self._asks: dict[str, Ask] = {}
        self._on_entry = on_entry
        self._entries: list[Entry] = []
        self._depth = 0
        self._is_broken = False
        self._names: set[str] = set()  # names of requests
        self._number = 0

    # ------------------------------------------------------------------ submission

    @_one_step
    def submit(
        self, request: ResourceRequest, *, now: int, user: str = "", group: str = "", name: str | None = None
    ) -> list[CcsJob]:
        """Plan a request, or each element of an array; one without a possible start goes to the waiting room.

        Returns: one, or those of the array in the order of their indices.
        Raises `RefusedError`: its requirements can never be met, or not at its required time.
        """
        if request.array is not None and len(request.array) > _MAX_ELEMENTS:
            why = f"has {len(request.array)} elements, and an array may have {_MAX_ELEMENTS}"
            raise RefusedError(why, where=f"job {name!r}" if name else "an array", hint="Submit several.")
        name = self._next_name() if name is None else name
        names = [name] if request.array is None else [f"{name}[{index}]" for index in request.array]
        if taken := next((name for name in names if name in self.jobs), None):
            raise RefusedError("is in the plan already", where=f"job {taken!r}", hint="Name it otherwise.")
        ask = self._prepared(request, name, user, group)
        self._names.add(name)
        since = now
        planned: list[CcsJob] = []
        for each in names:
            job = CcsJob(each, request, user, group, now)
            placement = self._find(job, ask, since)
            if placement is None and (request.start_s is not None or request.deadline_s is not None):
                for before in planned:
                    self._forget(before)
                when = "at its start" if request.start_s is not None else "before its deadline"
                hint = "Ask for less, or another time."
                raise RefusedError(f"there is no room for it {when}", where=f"job {each!r}", hint=hint)
            planned.append(self._put(job, ask, placement, now))
            if placement is not None:
                since = placement.start  # elements are equal: a start without space for one has none for the next
        return planned

    def _next_name(self) -> str:
        self._number += 1
        while str(self._number) in self._names:
            self._number += 1
        return str(self._number)

    def _prepared(self, request: ResourceRequest, name: str, user: str, group: str) -> Ask:
        try:
            ask = self.cluster.prepare(request)
        except TooMuchError as error:
            raise RefusedError(error.message, where=f"job {name!r}", hint=error.hint) from error
        if ask.lasts_s > self.until - self.since:
            why = f"lasts {ask.lasts_s} s, and what it is to run in {self.until - self.since} s"
            raise RefusedError(why, where=f"job {name!r}", hint="Ask for less.")
        if why := self.consumers.never(ask, user, group, len(request.array or ())):
            raise RefusedError(why, where=f"job {name!r}", hint="Ask for less, or have the limit changed.")
        return ask

    def _find(self, job: CcsJob, ask: Ask, since: int, end: int = FOREVER) -> Placement | None:
        """Find a placement of a job by its kind: at its start, before its deadline, or as soon as possible."""
        request = job.request
        if request.start_s is not None:
            if request.start_s < since:
                return None
            since, end = request.start_s, request.start_s + ask.lasts_s
        elif request.deadline_s is not None:
            end = min(end, request.deadline_s)
        since, end = max(since, self.since), min(end, self.until)
        if since + ask.lasts_s > end:
            return None
        views = self.consumers.views(ask, job.user, job.group, since, end - 1 if end < FOREVER else 0)
        placement = self.cluster.find(ask, since, end, views)
        if placement is None or not ask.is_exclusive:
            return placement
        whole = replace(ask, totals=placement.totals)  # exclusive nodes are more than requested, for an area as well
        views = self.consumers.views(whole, job.user, job.group, placement.start, placement.stop)
        return placement if self.cluster.may_have(placement, views) else None

    def _put(self, job: CcsJob, ask: Ask, placement: Placement | None, now: int, why: str = "") -> CcsJob:
        """Set or remove the placement of a job."""
        phase = JobPhase.WAITING if placement is None else JobPhase.PLANNED
        if placement is None and not why:
            why = "there is no time at which it can have what it asks for"
        job = replace(job, phase=phase, placement=placement, why=why)
        self._asks[job.id] = ask
        if placement is not None:
            self._book(job, placement)
        self._set(job, now)
        return job

    def _set(self, job: CcsJob, now: int) -> None:
        self.jobs[job.id] = job
        if self._on_entry is not None:
            self._entries.append(entry_of(job, now))

    def _note(self, **entry: object) -> None:
        if self._on_entry is not None:
            self._entries.append(entry)

    def _refuse_if_broken(self) -> None:
        if self._is_broken:
            hint = "Open the plan anew."
            raise StateError("could not tell of what came last, and may not go on", where="plan", hint=hint)

    def _tell(self) -> None:
        """Report a whole step at once: after a part of it, two jobs might share one placement."""
        entries, self._entries = self._entries, []
        if self._on_entry is not None and entries:
            self._is_broken = True  # unless the report returns
            self._on_entry(entries[0] if len(entries) == 1 else {"kind": "step", "entries": entries})
            self._is_broken = False

    def _forget(self, job: CcsJob) -> None:
        """Remove a job as if it had never been submitted."""
        self._free(job)
        del self.jobs[job.id], self._asks[job.id]
        self._note(kind="forgotten", id=job.id)

    def _book(self, job: CcsJob, placement: Placement) -> None:
        self.cluster.book(placement)
        self.consumers.book(job.user, job.group, placement)

    def _revoke(self, job: CcsJob, placement: Placement) -> None:
        self.cluster.revoke(placement)
        self.consumers.revoke(job.user, job.group, placement)

    def _free(self, job: CcsJob, since: int | None = None) -> None:
        """Free the resources of a job from a time on."""
        placement = job.placement
        if placement is not None and (since is None or since < placement.end):
            self._revoke(job, placement if since is None else replace(placement, start=max(since, placement.start)))

    # ------------------------------------------------------------------ reservations

    @_one_step
    def reserve(self, request: ResourceRequest, *, now: int, name: str, user: str = "", group: str = "") -> RequestPlan:
        """Reserve resources from a start on; jobs submitted to the returned plan run in them.

        Raises `RefusedError`: it has no start, or the resources are not free then.
        """
        if request.start_s is None or request.array is not None:
            hint = "Write start= into it, and no array."
            raise RefusedError("a reservation has one start", where=f"reservation {name!r}", hint=hint)
        self.submit(request, now=now, user=user, group=group, name=name)
        self._note(kind="reservation", id=name)
        return self._open(name)

    def _open(self, name: str) -> RequestPlan:
        """Make the plan of a reservation."""
        placement = self.jobs[name].placement
        assert placement is not None, "it has a start"
        inside = RequestPlan(
            self.cluster.part(placement, name),
            on_entry=self._inside(name),
            since=placement.start,
            until=placement.end,
        )
        self.reservations[name] = inside
        return inside

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

    @_one_step
    def move_to(self, system: CcsSystem, *, now: int) -> None:
        """Plan all unended jobs anew on another system; those that do not fit there end."""
        self.furnish(system)
        for job in self.in_order(job for job in self.jobs.values() if job.phase is not JobPhase.ENDED):
            moved = replace(job, placement=None)
            try:
                ask = self._prepared(job.request, job.id, job.user, job.group)
            except RefusedError as error:
                self._set(replace(moved, phase=JobPhase.ENDED, why=error.message), now)
                del self._asks[job.id]
            else:
                self._put(moved, ask, self._find(moved, ask, now), now)

    def furnish(self, system: CcsSystem) -> None:
        """Start with another system, without bookings."""
        self.system, self.cluster = system, PlannedCluster(system)
        self.consumers = Consumers(self.cluster.used)

    def _inside(self, name: str) -> Callable[[Entry], None]:
        def note(entry: Entry) -> None:
            self._note(kind="inside", id=name, entry=entry)
            if not self._depth:
                self._tell()

        return note

    # ------------------------------------------------------------------ starts and ends

    def due(self, now: int) -> list[CcsJob]:
        """Return the jobs whose planned start has come, in order."""
        planned = (job for job in self.jobs.values() if job.phase is JobPhase.PLANNED)
        ready = [job for job in planned if job.placement is not None and job.placement.start <= now]
        return sorted(ready, key=lambda job: (job.start_s, job.rank))

    @_one_step
    def begin(self, name: str, *, now: int) -> CcsJob:
        """Start a planned job whose start has come."""
        job = self._job(name, JobPhase.PLANNED)
        if job.start_s is not None and job.start_s > now:
            why = f"is to start at {job.start_s}, and it is {now}"
            raise InputError(why, where=f"job {name!r}", hint="`due` names those that may start.")
        job = replace(job, phase=JobPhase.RUNNING)
        self._set(job, now)
        return job

    @_one_step
    def end(self, name: str, *, now: int, why: str = "") -> None:
        """Remove a job from the plan: it has ended, perhaps early, or was cancelled."""
        job = self._job(name, JobPhase.WAITING, JobPhase.PLANNED, JobPhase.RUNNING)
        self._free(job, now)
        self.consumers.forget_before(now)
        if job.placement is not None:
            end = max(min(job.placement.end, now), job.placement.start)
            job = replace(job, placement=replace(job.placement, end=end))
        self._set(replace(job, phase=JobPhase.ENDED, why=why), now)
        del self._asks[name]
        if (inside := self.reservations.pop(name, None)) is not None:
            for other in [other for other in inside.jobs.values() if other.phase is not JobPhase.ENDED]:
                inside.end(other.id, now=now, why=f"reservation {name} has ended")

    @_one_step
    def backfill(self, *, now: int, most: int | None = None, passes: int = 1) -> list[CcsJob]:
        """Look for earlier starts of planned jobs, and for starts of waiting ones, in order of priority and submission.

        This is First-Fit. No job starts later because of it: a job without an earlier start keeps its own.

        `passes`: how often to go through all jobs, because a job that moves frees space for others: once, as in the
        paper; 0 for until none moves any more.
        """
        self.consumers.forget_before(now)
        moved: dict[str, CcsJob] = {}
        for number in itertools.count(1):
            found = (job for job in self.jobs.values() if job.phase in (JobPhase.PLANNED, JobPhase.WAITING))
            jobs = self.in_order(job for job in found if job.start_s is None or job.start_s > now)
            better = [job for job in (self._moved(job, now) for job in jobs[:most]) if job is not None]
            moved |= {job.id: job for job in better}
            if not better or number == passes:
                break
        return list(moved.values())

    def in_order(self, jobs: Iterable[CcsJob]) -> list[CcsJob]:
        """Sort jobs by priority, then in order of submission."""
        return sorted(jobs, key=attrgetter("rank"))

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

    # ------------------------------------------------------------------ deviations from the plan

    @_one_step
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
            if job.phase in (JobPhase.PLANNED, JobPhase.RUNNING)
            and job.id not in self.reservations
            and job.placement is not None
            and place in job.placement.nodes
            and job.placement.end > now
        ]
        for job in met:
            self._free(job, now)
        return [self._again(job, now, f"node {node} went away") for job in self.in_order(met)]

    def _again(self, job: CcsJob, now: int, why: str) -> CcsJob:
        """Plan a job without resources anew."""
        ask = self._asks[job.id]
        return self._put(job, ask, self._find(job, ask, now), now, why)

    @_one_step
    def recover(self, node: str, *, now: int) -> list[CcsJob]:
        """Set a node up; waiting jobs are planned, and others may start earlier. Returns the moved jobs."""
        self.cluster.set_up(node, up=True)
        for inside in self.reservations.values():
            if node in inside.cluster.names:
                inside.recover(node, now=now)
        self._note(kind="node", name=node, up=True, at_s=now)
        return self.backfill(now=now)

    @_one_step
    def forget_before(self, now: int) -> None:
        """Discard the past: ended jobs, and usage before a time."""
        self._forget_ended()
        self.cluster.forget_before(now)
        self.consumers.forget_before(now)
        self._note(kind="past", at_s=now)

    def _job(self, name: str, *phases: JobPhase) -> CcsJob:
        job = self.jobs.get(name)
        if job is None:
            raise InputError(f"there is no job {name!r} in the plan", where="plan", hint="Name one of it.")
        if job.phase not in phases:
            is_to = " or ".join(phases)
            raise InputError(f"is {job.phase}, not {is_to}", where=f"job {name!r}", hint="See its phase first.")
        return job

    # ------------------------------------------------------------------ recovery after a crash

    @classmethod
    def reload(
        cls,
        system: CcsSystem,
        entries: Iterable[Entry],
        limits: Sequence[Limit] = (),
        pools: Sequence[FreePool] = (),
        *,
        on_entry: Callable[[Entry], None] | None = None,
    ) -> RequestPlan:
        """Restore the plan from its entries: the same jobs at the same times on the same nodes."""
        plan = cls(system, limits, pools)
        past = None
        for entry in entries:
            plan.take_in(entry)
            past = entry["at_s"] if entry["kind"] == "past" else past
        plan.settle()
        if past is not None:
            plan.cluster.forget_before(past)
        plan._on_entry = on_entry
        return plan

    def settle(self) -> None:
        """Book the resources of all jobs in the entries."""
        for job in self.jobs.values():
            if job.placement is not None and job.placement.end > job.placement.start:
                self._book(job, job.placement)
            if job.phase is not JobPhase.ENDED:
                lasts_s = job.placement.end - job.placement.start if job.placement is not None else None
                self._asks[job.id] = self.cluster.prepare(job.request, lasts_s)
        for inside in self.reservations.values():
            inside.settle()

    def take_in(self, entry: Entry) -> None:
        """Read an entry; resources are booked only after all entries were read."""
        kinds: Mapping[str, Callable[[Entry], None]] = {
            "step": self._take_step,
            "job": self._take_job,
            "forgotten": self._take_forgotten,
            "node": lambda node: self.cluster.set_up(node["name"], up=node["up"]),
            "reservation": self._take_reservation,
            "moved": self._take_moved,
            "inside": self._take_inside,
            "past": lambda _: self._forget_ended(),
        }
        if entry["kind"] not in kinds:
            raise ValueError(f"{entry['kind']!r} is nothing that becomes of a plan")
        kinds[entry["kind"]](entry)

    def _take_step(self, entry: Entry) -> None:
        for part in entry["entries"]:
            self.take_in(part)

    def _take_job(self, entry: Entry) -> None:
        job = job_of(entry, self.system.kinds)
        self.jobs[job.id] = job
        if job.phase is JobPhase.ENDED:
            self.reservations.pop(job.id, None)
        number = job.id.partition("[")[0]
        self._names.add(number)
        self._number = max(self._number, int(number) if number.isdecimal() else 0)

    def _take_forgotten(self, entry: Entry) -> None:
        del self.jobs[entry["id"]]

    def _take_reservation(self, entry: Entry) -> None:
        self._open(entry["id"])

    def _take_moved(self, entry: Entry) -> None:
        placement = self.jobs[entry["id"]].placement
        assert placement is not None, "it has a start"
        self.reservations[entry["id"]].furnish(self.cluster.part(placement, entry["id"]))

    def _take_inside(self, entry: Entry) -> None:
        if (inside := self.reservations.get(entry["id"])) is not None:
            inside.take_in(entry["entry"])

    def _forget_ended(self) -> None:
        self.jobs = {name: job for name, job in self.jobs.items() if job.phase is not JobPhase.ENDED}
