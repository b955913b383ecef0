"""What a plan is made of: its jobs, their bookings, and its entries, from which it is restored (Sections 2 and 5.3)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from operator import attrgetter
from typing import Concatenate, ParamSpec, Self, TypeVar

from asa.errors import InputError, StateError

from .cluster import Ask, Placement, PlannedCluster, TooMuchError
from .consumers import Consumers
from .jobs import UNBEGUN, CcsJob, CcsOutcome, Entry, JobPhase, RefusedError, entry_of, job_of
from .limits import FreePool, Limit
from .order import DependencyOrder, Readiness
from .requests import ResourceRequest
from .rules import ConsumerRule
from .rusv import BEGIN, FOREVER
from .system import CcsSystem

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Plan = TypeVar("_Plan", bound="PlanState")


def one_step(method: Callable[Concatenate[_Plan, _P], _R]) -> Callable[Concatenate[_Plan, _P], _R]:
    """Write all changes of a method as one entry."""

    @wraps(method)
    def wrapped(self: _Plan, /, *args: _P.args, **named: _P.kwargs) -> _R:
        self.open_step()
        try:
            return method(self, *args, **named)
        finally:
            self.close_step()

    return wrapped


class PlanState:
    """The jobs of a plan, the resources that they hold, and the entries of what became of them.

    See `plan.RequestPlan`, which says what may happen to a plan.
    """

    def __init__(
        self,
        system: CcsSystem,
        limits: Sequence[Limit] = (),
        pools: Sequence[FreePool] = (),
        rules: Sequence[ConsumerRule] = (),
        *,
        on_entry: Callable[[Entry], None] | None = None,
        since: int = BEGIN,
        until: int = FOREVER,
    ) -> None:
        self.system = system
        self.since, self.until = since, until
        self.outer: Self | None = None  # the plan that this reservation is in
        self.reservations: dict[str, Self] = {}
        self.cluster = PlannedCluster(system)
        self.consumers = Consumers(self.cluster.used, limits, pools, rules)
        self.jobs: dict[str, CcsJob] = {}
        self._asks: dict[str, Ask] = {}
        self._on_entry = on_entry
        self._entries: list[Entry] = []
        self._depth = 0
        self._is_broken = False
        self._order = DependencyOrder()
        self._touched: dict[str, int] = {}  # jobs that changed in this step, with its time
        self._later: dict[str, list[str]] = {}  # elements of arrays that are not planned yet, by array
        self._names: set[str] = set()  # names of requests
        self._number = 0

    def _next_name(self) -> str:
        self._number += 1
        while str(self._number) in self._names:
            self._number += 1
        return str(self._number)

    def completed(self, request: ResourceRequest, user: str, group: str) -> ResourceRequest:
        """Return a request with default and forced values of its user and group, and with its priority."""
        request = self.consumers.completed(request, user, group)
        if "priority" in request.given or request.priority:
            return request
        return replace(request, priority=self.system.priority_of(request))

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
        if request.depend:
            ready_s = self.readiness(job).since_s
            if ready_s is None or (request.start_s is not None and request.start_s < ready_s):
                return None
            since = max(since, ready_s)
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
            readiness = self.readiness(job)
            is_unknown = readiness.since_s is None
            why = readiness.why if is_unknown else "there is no time at which it can have what it asks for"
        job = replace(job, phase=phase, placement=placement, why=why, begun_s=None, notified_s=None)
        self._asks[job.id] = ask
        if placement is not None:
            self._book(job, placement)
        self._set(job, now)
        return job

    def _set(self, job: CcsJob, now: int) -> None:
        self.jobs[job.id] = job
        self._touched[job.id] = now
        if self._on_entry is not None:
            self._entries.append(entry_of(job, now))

    def _note(self, **entry: object) -> None:
        if self._on_entry is not None:
            self._entries.append(entry)

    def open_step(self) -> None:
        """Begin a step, unless it is within another."""
        self._refuse_if_broken()
        self._depth += 1

    def close_step(self) -> None:
        """End a step, in which dependents follow the jobs that they depend on, and report it."""
        if self._depth == 1:
            self._follow()
        self._depth -= 1
        if not self._depth:
            self._tell()

    def readiness(self, job: CcsJob) -> Readiness:
        """Return from when on a job may start, by the jobs that it depends on."""
        return self._order.readiness(job, self.jobs)

    def _follow(self) -> None:
        """Plan the dependents of changed jobs anew, where these have to start later, or can start at all."""
        while self._touched:
            touched, self._touched = self._touched, {}
            now = max(touched.values())
            for dependent in dict.fromkeys(later for name in touched for later in self._order.dependents(name)):
                job = self.jobs.get(dependent)
                if job is not None and job.phase in UNBEGUN:
                    self._follow_one(job, now)

    def _follow_one(self, job: CcsJob, now: int) -> None:
        ready, ask = self.readiness(job), self._asks[job.id]
        if ready.is_never:
            self._free(job)
            self._cancel(job, ready.why, now)
        elif job.placement is None:
            if placement := self._find(job, ask, now):
                self._put(job, ask, placement, now)
            elif ready.since_s is None and job.why != ready.why:
                self._set(replace(job, why=ready.why), now)
        elif ready.since_s is None or ready.since_s > job.placement.start:
            self._free(job)
            self._put(job, ask, self._find(job, ask, now), now, ready.why)

    def _cancel(self, job: CcsJob, why: str, now: int) -> None:
        """End a job that has not started, and whose resources are free."""
        ended = replace(job, phase=JobPhase.ENDED, placement=None, why=why, outcome=CcsOutcome.CANCELLED)
        self._set(ended, now)
        del self._asks[job.id]

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

    def _again(self, job: CcsJob, now: int, why: str) -> CcsJob:
        """Plan a job without resources anew."""
        ask = self._asks[job.id]
        return self._put(job, ask, self._find(job, ask, now), now, why)

    def _job(self, name: str, *phases: JobPhase) -> CcsJob:
        job = self.jobs.get(name)
        if job is None:
            raise InputError(f"there is no job {name!r} in the plan", where="plan", hint="Name one of it.")
        if job.phase not in phases:
            is_to = " or ".join(phases)
            raise InputError(f"is {job.phase}, not {is_to}", where=f"job {name!r}", hint="See its phase first.")
        return job

    def in_order(self, jobs: Iterable[CcsJob]) -> list[CcsJob]:
        """Sort jobs by priority, then in order of submission."""
        return sorted(jobs, key=attrgetter("rank"))

    def _open(self, name: str) -> Self:
        """Make the plan of a reservation."""
        placement = self.jobs[name].placement
        assert placement is not None, "it has a start"
        inside = type(self)(
            self.cluster.part(placement, name),
            on_entry=self._inside(name),
            since=placement.start,
            until=placement.end,
        )
        inside.outer = self
        self.reservations[name] = inside
        return inside

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

    def fork(self) -> Self:
        """Return an equal plan that goes on by itself, and reports nothing. O(jobs + slots + steps of the nodes)."""
        fork = copy.copy(self)
        fork.cluster = self.cluster.fork()
        fork.consumers = self.consumers.fork(fork.cluster.used)
        fork.jobs, fork._asks, fork._names = dict(self.jobs), dict(self._asks), set(self._names)
        fork._order = self._order.fork()
        fork._later = {name: list(left) for name, left in self._later.items()}
        fork._touched, fork._entries, fork._on_entry = {}, [], None
        fork.reservations = {name: inside.fork() for name, inside in self.reservations.items()}
        for inside in fork.reservations.values():
            inside.outer = fork
        return fork

    @classmethod
    def reload(
        cls,
        system: CcsSystem,
        entries: Iterable[Entry],
        limits: Sequence[Limit] = (),
        pools: Sequence[FreePool] = (),
        rules: Sequence[ConsumerRule] = (),
        *,
        on_entry: Callable[[Entry], None] | None = None,
    ) -> Self:
        """Restore the plan from its entries: the same jobs at the same times on the same nodes."""
        plan = cls(system, limits, pools, rules)
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
                self.cluster.check(job.placement)
                self._book(job, job.placement)
            if job.phase is not JobPhase.ENDED:
                self._asks[job.id] = self.cluster.prepare(job.request)
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
        self._order.add(job)
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
