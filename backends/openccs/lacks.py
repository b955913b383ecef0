"""The resources that a job would lack if it started at a given time: the first conflict, its second, and its causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from asa.units import format_duration

from .cluster import Ask, PlannedCluster, TooMuchError
from .jobs import CcsJob
from .node_kernel import SCATTER
from .plan import RequestPlan
from .requests import RequestKind, ResourceRequest, Size
from .rusv import RUSV
from .system import CcsSystem
from .words import clock

_FEW = 3


class LackCause(StrEnum):
    """Kind of an obstacle to a job's start."""

    START = "start"
    DEADLINE = "deadline"
    PAST = "past"
    DEPENDENCY = "dependency"
    CONSUMER = "consumer"
    JOBS = "jobs"
    CHUNKS = "chunks"
    PLACE = "place"
    PROPERTY = "property"
    RESERVE = "reserve"
    ADMISSION = "admission"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ResourceHolder:
    """A job that holds resources which another job lacks."""

    job: str  # name and owner of the job
    user: str
    items: int
    until_s: int


@dataclass(frozen=True, slots=True)
class Lack:
    """A lack of a job that would start at a given time."""

    cause: LackCause  # kind and subject of the lack
    of: str
    at_s: int  # the first second of the lack
    words: str
    needed: int = 0  # required and available amounts at that time; for chunks, required ones and those that fit
    free: int = 0
    # jobs that hold the resource, the largest first; for chunks with the number of nodes that they block
    holders: tuple[ResourceHolder, ...] = ()


class World:
    """The situation that a job would meet if submitted now: all other jobs' resources, on a copy of the cluster."""

    def __init__(self, plan: RequestPlan, job: CcsJob, now: int) -> None:
        self.job, self.system, self.now = job, plan.system, now
        self.jobs = [other for other in plan.jobs.values() if other.id != job.id]
        self.cluster, self.empty = PlannedCluster(plan.system), PlannedCluster(plan.system)
        self.down = [name for name in plan.cluster.names if not plan.cluster.is_up(name)]
        for name in self.down:
            self.cluster.set_up(name, up=False)
        for other in self.jobs:
            if other.placement is not None and other.placement.end > other.placement.start:
                self.cluster.book(other.placement)
        # the placement in the same copy, because consumers identify a job by its array of nodes
        known = {id(plan.cluster.used): self.cluster.used}
        self.consumers, placement = deepcopy((plan.consumers, job.placement), known)
        if placement is not None and placement.end > placement.start:
            self.consumers.revoke(job.user, job.group, placement)
        has_begun = placement is not None and placement.start <= now
        self.since_s = max(job.submit_s if has_begun else max(now, job.submit_s), plan.since)
        self.until_s = plan.until
        self.readiness = plan.readiness(job)
        self.ask = self.prepared(job.request, plan.system)

    def prepared(self, request: ResourceRequest, system: CcsSystem) -> Ask | None:
        """Prepare a request for planning; None if the system could never satisfy it."""
        cluster = self.empty if system is self.system else PlannedCluster(system)
        try:
            return cluster.prepare(request)
        except TooMuchError:
            return None

    def clock(self, time_s: int) -> str:
        """Format a time."""
        return clock(time_s, self.now)

    @contextmanager
    def changed(self, freed: Collection[str], *, is_up: bool = False) -> Iterator[PlannedCluster]:
        """Yield the cluster without holders of the given resources (of all, for an empty name), and with nodes up."""
        is_empty = "" in freed
        for cluster in (self.cluster, self.empty):
            for name in self.down:
                cluster.set_up(name, up=is_up)
        used = dict(self.cluster.used)
        for name, vector in used.items():
            if is_empty or name in freed:  # consumers read this usage as well
                self.cluster.used[name] = RUSV(vector.most, defect=vector.most - vector.available)
        try:
            yield self.empty if is_empty else self.cluster
        finally:
            self.cluster.used.update(used)
            for name in self.down:
                self.cluster.set_up(name, up=False)


class Meeting:
    """Conflicts of a job that would start at a given time."""

    def __init__(self, world: World, ask: Ask, at_s: int) -> None:
        self.world, self.ask, self.job = world, ask, world.job
        self.start, self.end = at_s, at_s + ask.lasts_s
        self.kinds = world.system.kinds
        asked = ask, self.job.user, self.job.group, at_s, self.end - 1
        self.views = world.consumers.views(*asked)
        with world.changed(resources_of(ask)):
            self.bounds = world.consumers.views(*asked)

    def lacks(self) -> Iterator[Lack]:
        """Yield all resources that the job would lack."""
        yield from self._of_time()
        short = [lack for name in resources_of(self.ask) if (lack := self._short(name)) is not None]
        beyond = self._beyond_limits({lack.of for lack in short})
        found = [*short, *([beyond] if beyond is not None else [])]
        if self.world.cluster.find(self.ask, self.start, self.end, self.views) is None:
            room = self._without_room()
            if room is not None and all(room.at_s < lack.at_s for lack in short):
                found.append(room)
            elif not found and self.ask.is_exclusive and self.views:
                text = "the nodes that it would get have, as a whole, more than limits and pools leave it"
                found.append(Lack(LackCause.CONSUMER, "", self.start, text))
            elif not found:
                text = "each sort of its chunks finds room, but not all of them at once"
                found.append(Lack(LackCause.CHUNKS, "", self.start, text))
        yield from found

    def _from(self, time_s: int) -> str:
        return "then" if time_s == self.start else f"from {self.world.clock(time_s)} on"

    def _of_time(self) -> Iterator[Lack]:
        request, clock_of = self.job.request, self.world.clock
        if self.start < self.world.since_s:
            what = "it had not come yet" if self.start < self.job.submit_s else "that is past"
            yield Lack(LackCause.PAST, "", self.start, what)
        ready = self.world.readiness
        if not ready.is_met and (ready.since_s is None or self.start < ready.since_s):
            until = "" if ready.since_s is None else f" until {clock_of(ready.since_s)}"
            yield Lack(LackCause.DEPENDENCY, "", self.start, f"{ready.why}{until}")
        if self.end > self.world.until_s:
            text = f"it would end at {clock_of(self.end)}, its reservation does at {clock_of(self.world.until_s)}"
            yield Lack(LackCause.DEADLINE, "", max(self.world.until_s, self.start), text)
        if request.start_s is not None and request.start_s != self.start:
            yield Lack(LackCause.START, "", self.start, f"it asks to start at {clock_of(request.start_s)}")
        if request.deadline_s is not None and self.end > request.deadline_s:
            text = f"it would end at {clock_of(self.end)}, and must have by {clock_of(request.deadline_s)}"
            yield Lack(LackCause.DEADLINE, "", max(request.deadline_s, self.start), text)

    def _short(self, name: str) -> Lack | None:
        """Return the lack of a resource in total, on whichever nodes."""
        vector, needed = self.world.cluster.used[name], self.ask.totals[name]
        second = self._first_short(vector, needed)
        if second is None:
            return None
        free = max(vector.free_at(second), 0)
        holders = self._holders(second, lambda job: _total(job, name))
        left = f"only {amount(name, free, self.kinds).partition(' ')[0]}" if free else "none"
        is_one = free < 2 or self.kinds[name] is RequestKind.SIZE
        text = f"it needs {amount(name, needed, self.kinds)} for {format_duration(self.ask.lasts_s)}; "
        text += f"{self._from(second)} {left} {'is' if is_one else 'are'} free"
        if broken := vector.most - vector.available:
            text += f", {amount(name, broken, self.kinds)} being on nodes that are down"
        if holders:
            verb = "holds what is used" if len(holders) == 1 else "hold what is used"
            text += f": {self._named(holders, lambda items: amount(name, items, self.kinds))} {verb}"
        return Lack(LackCause.JOBS, name, second, text, needed, free, holders)

    def _beyond_limits(self, short: Collection[str]) -> Lack | None:
        """Return the limit or pool that leaves too few of the free items."""
        met: list[tuple[int, str]] = []
        for name, needed in self.ask.totals.items():
            # other jobs are reported separately: they are included only where all of them together exceed the bound
            view = self.bounds.get(name) if name in short else self.views.get(name)
            if view is not None and (found := self._first_short(view, needed)) is not None:
                met.append((found, name))
        if not met:
            return None
        second, name = min(met)
        job = self.job
        phrases = self.world.consumers.explain(self.ask, job.user, job.group, self.start, self.end - 1)
        text = (
            f"{'' if second == self.start else f'{self._from(second)} '}it meets {phrases[0] if phrases else 'a limit'}"
        )
        own = self._holders(second, lambda other: _total(other, name) if _is_kin(job, other) else 0)
        if own:
            text += f"; its user or group has then {self._named(own, lambda items: amount(name, items, self.kinds))}"
        free = max((self.bounds if name in short else self.views)[name].free_at(second), 0)
        return Lack(LackCause.CONSUMER, name, second, text, self.ask.totals[name], free, own)

    def _first_short(self, vector: RUSV, needed: int) -> int | None:
        times = (time for time in vector.steps[0].tolist() if self.start < time < self.end)
        return next((time for time in (self.start, *times) if vector.free_at(time) < needed), None)

    # ------------------------------------------------------------------ on nodes

    def _without_room(self) -> Lack | None:
        """Return the sort of chunks that first finds too little space on nodes."""
        sorts = zip(self.ask.wanted.tolist(), *(a.reshape(len(self.ask.wanted), -1) for a in self._sorts), strict=True)
        found = (self._sort_without_room(wanted, chunk.tolist(), suits) for wanted, chunk, suits in sorts)
        return min((lack for lack in found if lack is not None), key=lambda lack: lack.at_s, default=None)

    @property
    def _sorts(self) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        return self.ask.chunks, self.ask.suits

    def _sort_without_room(self, wanted: int, chunk: list[int], suits: NDArray[np.int8]) -> Lack | None:
        nodes, down = self.world.system.nodes, set(self.world.down)
        needs = {name: items for name, items in zip(self.world.cluster.resources, chunk, strict=True) if items}
        places = [place for place in self.ask.order.tolist() if suits[place] and nodes[place].name not in down]
        rooms = {place: self._room(place, needs, wanted) for place in places}
        second = self._first_below(wanted, rooms.values())
        if second is None:
            return None
        fits = {place: next(many for time, many in reversed(room) if time <= second) for place, room in rooms.items()}
        full = {place for place, many in fits.items() if not many}
        holders = self._holders(second, lambda job: len(full.intersection(_nodes(job))))
        free, what = sum(fits.values()), ", ".join(amount(name, items, self.kinds) for name, items in needs.items())
        each = f"{what}{' each' if wanted > 1 else ''}"
        if free:
            with_room = f"on {len(places) - len(full)} of {len(places)} nodes that would do"
            words = f"only {free} of its {wanted} chunks ({each}) {'have' if free > 1 else 'has'} room, {with_room}"
        else:
            chunks = f"none of its {wanted} chunks" if wanted > 1 else "its only chunk"
            where = "any of the" if wanted > 1 else "none of the"
            words = f"{chunks} ({each}) has room on {where} {len(places)} nodes that would do"
        words += " if nobody else is there" if self.ask.is_exclusive else ""
        if "ncpus" in needs:
            spare = self.world.cluster.used["ncpus"].free_at(second)
            words += f", though {amount('ncpus', spare, self.kinds)} {'is' if spare == 1 else 'are'} free in all"
        words = words if second == self.start else f"{self._from(second)} {words}"
        if holders:
            words += f": {self._named(holders, _on_nodes)} {'is' if len(holders) == 1 else 'are'} in the way"
        return Lack(LackCause.CHUNKS, what, second, words, wanted, free, holders)

    def _room(self, place: int, needs: Mapping[str, int], most: int) -> list[tuple[int, int]]:
        """Return how many chunks fit on a node from each time on; the number never grows."""
        resources = self.world.cluster.resources
        held = self.world.cluster.used_on(self.world.system.nodes[place].name)
        usable = dict(zip(resources, self.ask.usable.reshape(-1, len(resources))[place].tolist(), strict=True))
        times = {time for vector in held.values() for time in vector.steps[0].tolist() if self.start < time < self.end}
        most = 1 if self.ask.how == SCATTER else most
        ends: list[tuple[int, int]] = []
        for time in (self.start, *sorted(times)):
            used = {name: vector.at(time) for name, vector in held.items()}
            fits = (max(usable[name] - used[name], 0) // need for name, need in needs.items())
            most = 0 if self.ask.is_exclusive and any(used.values()) else min([most, *fits])
            if not ends or most < ends[-1][1]:
                ends.append((time, most))
        return ends

    def _first_below(self, wanted: int, rooms: Iterable[Sequence[tuple[int, int]]]) -> int | None:
        """Return the first second at which fewer than `wanted` chunks fit on all nodes together."""
        changes: Counter[int] = Counter({self.start: 0})
        for room in rooms:
            before = 0
            for time, fits in room:
                changes[time] += fits - before
                before = fits
        times = sorted(changes)
        totals = accumulate(changes[time] for time in times)
        return next((time for time, total in zip(times, totals, strict=True) if total < wanted), None)

    # ------------------------------------------------------------------ holders

    def _holders(self, second: int, items: Callable[[CcsJob], int]) -> tuple[ResourceHolder, ...]:
        """Return the holders at a time with their amounts."""
        there = [(job, job.placement.end) for job in self.world.jobs if _is_there(job, second) and job.placement]
        holders = [ResourceHolder(job.id, job.user, many, end) for job, end in there if (many := items(job))]
        return tuple(sorted(holders, key=lambda holder: -holder.items))

    def _named(self, holders: Sequence[ResourceHolder], words: Callable[[int], str]) -> str:
        phrases = [
            f"{holder.job} ({words(holder.items)} until {self.world.clock(holder.until_s)})"
            for holder in holders[:_FEW]
        ]
        if len(holders) > _FEW:
            phrases.append(f"{len(holders) - _FEW} more")
        listed = f"{', '.join(phrases[:-1])} and {phrases[-1]}" if len(phrases) > 1 else phrases[0]
        return f"job{'s' if len(phrases) > 1 else ''} {listed}"


def amount(resource: str, items: int, kinds: Mapping[str, RequestKind]) -> str:
    """Format an amount of a resource.

    Examples
    --------
    >>> from asa.backends.openccs.requests import STANDARD_KINDS
    >>> amount("ncpus", 1, STANDARD_KINDS), amount("mem", 3 << 30, STANDARD_KINDS), amount("gpus", 2, STANDARD_KINDS)
    ('1 core', '3g of mem', '2 gpus')
    """
    if kinds.get(resource) is RequestKind.SIZE:
        return f"{Size(items)} of {resource}"
    name = "cores" if resource == "ncpus" else resource
    return f"{items:,} {name.removesuffix('s') if items == 1 else name}"


def _on_nodes(many: int) -> str:
    return f"on {many} node{'' if many == 1 else 's'}"


def resources_of(ask: Ask) -> list[str]:
    """Return the resources that a request needs."""
    return [name for name, items in ask.totals.items() if items]


def _is_kin(job: CcsJob, other: CcsJob) -> bool:
    return (job.user != "" and job.user == other.user) or (job.group != "" and job.group == other.group)


def _is_there(job: CcsJob, second: int) -> bool:
    return job.placement is not None and job.placement.start <= second < job.placement.end


def _total(job: CcsJob, resource: str) -> int:
    return job.placement.totals.get(resource, 0) if job.placement is not None else 0


def _nodes(job: CcsJob) -> list[int]:
    found: list[int] = job.placement.nodes.tolist() if job.placement is not None else []
    return found
