"""Why a job is not planned earlier, the question of Section 2: which constraint binds, what lacks, and who holds it.

Each constraint in turn is taken away on a copy of the plan, and the job's place is looked for again; those without
which it would start sooner bind. Of a moment at which it "would fit in" it is said what lacks first, from which second
on, and which jobs hold it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError, near
from asa.units import format_duration

from .cluster import Ask, Cluster, TooMuchError
from .jobs import Job, Phase
from .node_kernel import SCATTER
from .picture import clock, names
from .plan import Plan
from .requests import Arrangement, Chunk, Kind, Request, Size
from .rusv import FOREVER, RUSV
from .system import System

__all__ = ["Cause", "Constraint", "Holder", "Lack", "Moment", "Why", "amount", "why"]

_FEW = 3


class Cause(StrEnum):
    """What kind of thing can keep a job from starting."""

    START = "start"
    DEADLINE = "deadline"
    PAST = "past"
    CONSUMER = "consumer"
    JOBS = "jobs"
    CHUNKS = "chunks"
    PLACE = "place"
    PROPERTY = "property"
    RESERVE = "reserve"
    ADMISSION = "admission"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Constraint:
    """Something that a job's start depends on.

    Parameters
    ----------
    cause, of
        What it is, and of what: a resource, a property.
    words
        The same for people.
    start_s
        When the job would start without it, if that is sooner.
    """

    cause: Cause
    of: str
    words: str
    start_s: int | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that has what another one lacks.

    Parameters
    ----------
    job, user
        Its name, and whose it is.
    items
        How much of it.
    until_s
        How long.
    """

    job: str
    user: str
    items: int
    until_s: int


@dataclass(frozen=True, slots=True)
class Lack:
    """What a job would not have, were it to start at a moment.

    Parameters
    ----------
    cause, of
        What it runs into, and of what.
    at_s
        The first second at which it lacks.
    words
        The same for people.
    needed, free
        How much it needs then, and how much there would be; of chunks, how many and how many have room.
    holders
        Who has it, the largest first; of chunks with the number of nodes on which they are in the way.
    """

    cause: Cause
    of: str
    at_s: int
    words: str
    needed: int = 0
    free: int = 0
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """What would be if a job started then.

    Parameters
    ----------
    at_s
        When.
    lacks
        What it would lack, the first first; nothing if it would fit in.
    """

    at_s: int
    lacks: tuple[Lack, ...]


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job is not planned earlier.

    Parameters
    ----------
    job
        The job.
    is_refused
        It is not in the plan.
    nodes
        Where it is, in short.
    now_s, since_s
        The time, and the earliest at which it could have started.
    free_s
        When it could start as things are, if that is sooner than it is planned: room has come up since.
    constraints
        What its start depends on.
    together
        If none of them alone binds, those that do together.
    moment
        What it would lack at the time asked about; None if it could never run.
    """

    job: Job
    is_refused: bool
    nodes: str
    now_s: int
    since_s: int
    free_s: int | None
    constraints: tuple[Constraint, ...]
    together: tuple[Constraint, ...]
    moment: Moment | None

    @property
    def binding(self) -> tuple[Constraint, ...]:
        """The constraints without one of which it would start sooner."""
        return tuple(one for one in self.constraints if one.start_s is not None)

    @property
    def is_at_once(self) -> bool:
        """Whether it starts as early as it can."""
        return self.job.start_s is not None and self.job.start_s <= self.since_s

    def told(self) -> list[str]:
        """Say it in words."""
        return [self._stands(), *self._lacks(), *self._binds()]

    def _stands(self) -> str:
        job, placement = self.job, self.job.placement
        whose = "@".join(part for part in (job.user, job.group) if part)
        who = f"{job.id}, of {whose}," if whose else job.id
        if placement is None:
            reason = f": {job.why}" if job.why else ""
            return f"{who} {'was refused' if self.is_refused else 'waits without a start'}{reason}."
        stands = {Phase.RUNNING: "runs", Phase.ENDED: "ran"}.get(job.phase, "is planned to run")
        later = f", in {format_duration(placement.start - self.now_s)}" if placement.start > self.now_s else ""
        when = f"from {clock(placement.start, self.now_s)} to {clock(placement.end, self.now_s)}"
        return f"{who} {stands} {when} on {self.nodes}{later}."

    def _lacks(self) -> Iterator[str]:
        if self.moment is None:
            return
        at = f"At {clock(self.moment.at_s, self.now_s)}"
        for lack in self.moment.lacks:
            yield f"{at}: {lack.words}."
        if not self.moment.lacks and not self.is_at_once and not self.is_refused:
            yield f"{at} it {'starts' if self.moment.at_s == self.job.start_s else 'would fit in'}."

    def _binds(self) -> Iterator[str]:
        if self.is_at_once:
            yield "It starts as early as it can: nothing keeps it."
        elif self.free_s is not None and self.is_refused:
            yield f"One such job would have room at {clock(self.free_s, self.now_s)}, but not all of its array."
        elif self.free_s is not None:
            yield f"Nothing keeps it from {clock(self.free_s, self.now_s)} any more: backfilling will move it."
        elif self.together:
            at = clock(self.together[0].start_s or 0, self.now_s)
            what = "; ".join(one.words for one in self.together)
            yield f"No single thing keeps it from starting sooner. It would start at {at} but for all of: {what}."


def why(plan: Plan, job: str | Job, *, now: int, at: int | None = None) -> Why:
    """Say why a job is not planned earlier; the plan stays as it is.

    Parameters
    ----------
    plan
        The plan.
    job
        A job's name; or a job that was refused.
    now
        The time.
    at
        A time at which it looks as if there were room; the earliest at which it could have started, if not given.

    Raises
    ------
    InputError
        There is no such job in the plan.

    Notes
    -----
    What the others have is booked once more, on a cluster of its own; then a place is looked for without each thing
    that the job's start depends on.

    Examples
    --------
    >>> from asa.backends.openccs.system import Node
    >>> plan = Plan(System("one", (Node("a", {"ncpus": 4}),)))
    >>> for text in ("rset=ncpus=3,walltime=1h", "rset=ncpus=2,walltime=1h"):
    ...     [job] = plan.submit(Request.parse(text), now=0)
    >>> for sentence in why(plan, job.id, now=0).told():
    ...     print(sentence)
    2 is planned to run from 1:00:00 to 2:00:00 on a, in 1h00m.
    At 0:00:00: it needs 2 cores for 1h00m; then only 1 is free: job 1 (3 cores until 1:00:00) holds what is used.
    """
    if isinstance(job, str):
        found = plan.jobs.get(job)
        if found is None:
            hint = f"{near(job, plan.jobs)}An element of an array is called name[index]. See `asa ccs plan`."
            raise InputError(f"there is no job {job!r} in the plan", where="JOB", hint=hint)
        job = found
    world = _World(plan, job, now)
    if at is None:
        at = max(job.request.start_s or 0, world.since_s) if job.placement is None else world.since_s
    is_at_once = job.start_s is not None and job.start_s <= world.since_s
    free_s = None if is_at_once else world.start_without(())
    constraints: tuple[Constraint, ...] = ()
    together: tuple[Constraint, ...] = ()
    if not is_at_once and free_s is None:
        constraints = tuple(world.constraints())
        constraints = tuple(replace(one, start_s=world.start_without([one])) for one in constraints)
        if all(one.start_s is None for one in constraints):
            together = world.least_together(constraints)
    moment = None
    if world.ask is not None:
        lacks = sorted(_Meeting(world, world.ask, at).lacks(), key=lambda lack: lack.at_s)
        moment = Moment(at, tuple(lacks))
    return Why(
        job,
        job.id not in plan.jobs,
        names(plan.cluster.names_of(job.placement)) if job.placement is not None else "",
        now,
        world.since_s,
        free_s,
        constraints,
        together,
        moment,
    )


class _World:
    """What a job would meet if it came now: what all others hold, on a cluster of its own."""

    def __init__(self, plan: Plan, job: Job, now: int) -> None:
        self.job, self.system, self.now = job, plan.system, now
        self.jobs = [other for other in plan.jobs.values() if other.id != job.id]
        self.cluster, self.empty = Cluster(plan.system), Cluster(plan.system)
        self.down = [name for name in plan.cluster.names if not plan.cluster.is_up(name)]
        for name in self.down:
            self.cluster.set_up(name, up=False)
        for other in self.jobs:
            if other.placement is not None and other.placement.end > other.placement.start:
                self.cluster.book(other.placement)
        # the placement in the same copy, as consumers know a job by the array of its nodes
        known = {id(plan.cluster.used): self.cluster.used}
        self.consumers, placement = deepcopy((plan.consumers, job.placement), known)
        if placement is not None and placement.end > placement.start:
            self.consumers.revoke(job.user, job.group, placement)
        has_begun = placement is not None and placement.start <= now
        self.since_s = max(job.submit_s if has_begun else max(now, job.submit_s), plan.since)
        self.until_s = plan.until
        self.ask = self._prepared(job.request, plan.system)

    def _prepared(self, request: Request, system: System) -> Ask | None:
        cluster = self.empty if system is self.system else Cluster(system)
        try:
            return cluster.prepare(request)
        except TooMuchError:
            return None

    def clock(self, time_s: int) -> str:
        """Write a time."""
        return clock(time_s, self.now)

    # ------------------------------------------------------------------ what its start depends on

    def constraints(self) -> Iterator[Constraint]:
        """Give what the job's start depends on."""
        request = self.job.request
        if request.start_s is not None:
            yield Constraint(Cause.START, "", f"it asks to start at {self.clock(request.start_s)}")
        if request.deadline_s is not None:
            yield Constraint(Cause.DEADLINE, "", f"it must have ended by {self.clock(request.deadline_s)}")
        if self.ask is not None:
            yield from self._of_others(self.ask)
        yield from self._of_its_own(request)
        yield from self._of_the_site(request)

    def _of_others(self, ask: Ask) -> Iterator[Constraint]:
        job = self.job
        if self.consumers.views(ask, job.user, job.group, self.since_s, 0):
            whose = " and ".join(name for name in (job.user, job.group) if name)
            words = f"{f'limits of {whose}, and ' if whose else ''}what is kept free for others"
            yield Constraint(Cause.CONSUMER, "", words)
        if ask.is_exclusive:
            yield Constraint(Cause.JOBS, "", "nodes that other jobs use")
        for name in _needed(ask) if not ask.is_exclusive else ():
            yield Constraint(Cause.JOBS, name, f"{'cores' if name == 'ncpus' else name} that other jobs hold")
        yield Constraint(Cause.CHUNKS, "", "each of its chunks must find a node with room for it")

    def _of_its_own(self, request: Request) -> Iterator[Constraint]:
        arrangement = request.place.arrangement
        if request.place.exclusive:
            yield Constraint(Cause.PLACE, "excl", "place=excl: no other job may be on its nodes")
        if arrangement is not Arrangement.FREE:
            how = (
                "all its chunks on one node" if arrangement is Arrangement.PACK else "no two of its chunks on one node"
            )
            yield Constraint(Cause.PLACE, str(arrangement), f"place={arrangement}: {how}")
        nodes = self.system.nodes
        for name, value in dict.fromkeys(item for chunk in request.chunks for item in chunk.properties.items()):
            has = sum(node.properties.get(name) == value for node in nodes)
            yield Constraint(
                Cause.PROPERTY, f"{name}={value}", f"{name}={value}, which {has} of {len(nodes)} nodes have"
            )

    def _of_the_site(self, request: Request) -> Iterator[Constraint]:
        system = self.system
        totals = request.job_set()
        for reserve in system.reserves:
            if not totals.get(reserve.resource):
                kept = ", ".join(amount(name, items, system.kinds) for name, items in reserve.keeps.items())
                words = (
                    f"{kept or 'being alone'} on each node with {reserve.resource}, kept for jobs that ask for these"
                )
                yield Constraint(Cause.RESERVE, reserve.resource, words)
        lasts_s = request.walltime_s or system.walltime_s
        shut = [
            node.name
            for node in system.nodes
            if node.admits and not all(any(a.admits(c.needs, lasts_s) for a in node.admits) for c in request.chunks)
        ]
        if shut:
            yield Constraint(Cause.ADMISSION, names(shut), f"{names(shut)} let no such jobs in")
        if self.down:
            yield Constraint(
                Cause.DOWN, names(self.down), f"{names(self.down)} {'is' if len(self.down) == 1 else 'are'} down"
            )

    def least_together(self, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
        """Find few constraints without which the job would start sooner, and not without fewer of them."""
        whole = Constraint(Cause.JOBS, "", "all that other jobs hold")
        kept = [*(one for one in constraints if one.cause is not Cause.JOBS), whole]
        for one in list(kept):
            fewer = [other for other in kept if other is not one]
            if self.start_without(fewer) is not None:
                kept = fewer
        start_s = self.start_without(kept)
        return tuple(replace(one, start_s=start_s) for one in kept) if start_s is not None else ()

    # ------------------------------------------------------------------ without some of it

    def start_without(self, gone: Collection[Constraint]) -> int | None:
        """Tell when the job would start if some constraints were not there; None if no sooner than it does."""
        job, causes = self.job, {one.cause for one in gone}
        request = self._request_without(gone)
        ask = self._ask_without(gone, request)
        if ask is None or (window := self._window(request, ask.lasts_s)) is None:
            return None
        since, end = window
        freed = {one.of for one in gone if one.cause is Cause.JOBS}
        with self.changed(freed, is_up=Cause.DOWN in causes) as cluster:
            views: Mapping[str, RUSV] = {}
            if Cause.CONSUMER not in causes:
                if self.consumers.never(ask, job.user, job.group):
                    return None
                views = self.consumers.views(ask, job.user, job.group, since, end - 1 if end < FOREVER else 0)
            if Cause.CHUNKS in causes:
                return cluster.free_slots(ask, views, since, end).earliest_within(1, ask.lasts_s, since, end)
            placement = cluster.find(ask, since, end, views)
        return placement.start if placement is not None else None

    def _window(self, request: Request, lasts_s: int) -> tuple[int, int] | None:
        """Give the first second in which it may run, and the first in which it may not, if it is to start sooner."""
        since, end = self.since_s, self.until_s
        if request.start_s is not None:
            if request.start_s < since:
                return None
            since, end = request.start_s, min(end, request.start_s + lasts_s)
        elif request.deadline_s is not None:
            end = min(end, request.deadline_s)
        if self.job.start_s is not None:
            end = min(end, self.job.start_s + lasts_s - 1)
        return (since, end) if since + lasts_s <= end else None

    def _request_without(self, gone: Collection[Constraint]) -> Request:
        request = self.job.request
        for one in gone:
            place = request.place
            if one.cause is Cause.START:
                request = replace(request, start_s=None)
            elif one.cause is Cause.DEADLINE:
                request = replace(request, deadline_s=None)
            elif one.cause is Cause.PLACE and one.of == "excl":
                request = replace(request, place=replace(place, exclusive=False))
            elif one.cause is Cause.PLACE:
                request = replace(request, place=replace(place, arrangement=Arrangement.FREE))
            elif one.cause is Cause.PROPERTY:
                request = replace(request, chunks=tuple(_without(one.of, chunk) for chunk in request.chunks))
        return request

    def _ask_without(self, gone: Collection[Constraint], request: Request) -> Ask | None:
        system = self.system
        for one in gone:
            if one.cause is Cause.RESERVE:
                system = replace(system, reserves=tuple(r for r in system.reserves if r.resource != one.of))
            elif one.cause is Cause.ADMISSION:
                system = replace(system, nodes=tuple(replace(node, admits=()) for node in system.nodes))
        ask = self._prepared(request, system)
        resources = self.cluster.resources
        columns = [resources.index(one.of) for one in gone if one.cause is Cause.JOBS and one.of in resources]
        if ask is None or not columns:
            return ask
        chunks = ask.chunks.reshape(len(ask.wanted), -1).copy()
        chunks[:, columns] = 0  # what nobody holds has room on every node that suits
        return replace(ask, chunks=chunks.ravel())

    @contextmanager
    def changed(self, freed: Collection[str], *, is_up: bool = False) -> Iterator[Cluster]:
        """Let nobody hold some resources, or any at all if one has no name, and let nodes be up."""
        is_empty = "" in freed
        for cluster in (self.cluster, self.empty):
            for name in self.down:
                cluster.set_up(name, up=is_up)
        used = dict(self.cluster.used)
        for name, vector in used.items():
            if is_empty or name in freed:  # consumers look here, too
                self.cluster.used[name] = RUSV(vector.most, defect=vector.most - vector.available)
        try:
            yield self.empty if is_empty else self.cluster
        finally:
            self.cluster.used.update(used)
            for name in self.down:
                self.cluster.set_up(name, up=False)


class _Meeting:
    """What a job would run into if it started at a time."""

    def __init__(self, world: _World, ask: Ask, at_s: int) -> None:
        self.world, self.ask, self.job = world, ask, world.job
        self.start, self.end = at_s, at_s + ask.lasts_s
        self.kinds = world.system.kinds
        asked = ask, self.job.user, self.job.group, at_s, self.end - 1
        self.views = world.consumers.views(*asked)
        with world.changed(_needed(ask)):
            self.bounds = world.consumers.views(*asked)

    def lacks(self) -> Iterator[Lack]:
        """Find all that it would lack."""
        yield from self._of_time()
        short = [lack for name in _needed(self.ask) if (lack := self._short(name)) is not None]
        beyond = self._beyond_limits({lack.of for lack in short})
        found = [*short, *([beyond] if beyond is not None else [])]
        if self.world.cluster.find(self.ask, self.start, self.end, self.views) is None:
            room = self._without_room()
            if room is not None and all(room.at_s < lack.at_s for lack in short):
                found.append(room)
            elif not found and self.ask.is_exclusive and self.views:
                words = "the nodes that it would get have, as a whole, more than limits and pools leave it"
                found.append(Lack(Cause.CONSUMER, "", self.start, words))
            elif not found:
                words = "each sort of its chunks finds room, but not all of them at once"
                found.append(Lack(Cause.CHUNKS, "", self.start, words))
        yield from found

    def _from(self, time_s: int) -> str:
        return "then" if time_s == self.start else f"from {self.world.clock(time_s)} on"

    def _of_time(self) -> Iterator[Lack]:
        request, clock_of = self.job.request, self.world.clock
        if self.start < self.world.since_s:
            what = "it had not come yet" if self.start < self.job.submit_s else "that is past"
            yield Lack(Cause.PAST, "", self.start, what)
        if self.end > self.world.until_s:
            words = f"it would end at {clock_of(self.end)}, its reservation does at {clock_of(self.world.until_s)}"
            yield Lack(Cause.DEADLINE, "", max(self.world.until_s, self.start), words)
        if request.start_s is not None and request.start_s != self.start:
            yield Lack(Cause.START, "", self.start, f"it asks to start at {clock_of(request.start_s)}")
        if request.deadline_s is not None and self.end > request.deadline_s:
            words = f"it would end at {clock_of(self.end)}, and must have by {clock_of(request.deadline_s)}"
            yield Lack(Cause.DEADLINE, "", max(request.deadline_s, self.start), words)

    def _short(self, name: str) -> Lack | None:
        """Say how much of a resource is not free in all, whatever the nodes."""
        vector, needed = self.world.cluster.used[name], self.ask.totals[name]
        second = self._first_short(vector, needed)
        if second is None:
            return None
        free = max(vector.free_at(second), 0)
        holders = self._holders(second, lambda job: _total(job, name))
        left = f"only {amount(name, free, self.kinds).partition(' ')[0]}" if free else "none"
        is_one = free < 2 or self.kinds[name] is Kind.SIZE
        words = f"it needs {amount(name, needed, self.kinds)} for {format_duration(self.ask.lasts_s)}; "
        words += f"{self._from(second)} {left} {'is' if is_one else 'are'} free"
        if broken := vector.most - vector.available:
            words += f", {amount(name, broken, self.kinds)} being on nodes that are down"
        if holders:
            verb = "holds what is used" if len(holders) == 1 else "hold what is used"
            words += f": {self._named(holders, lambda items: amount(name, items, self.kinds))} {verb}"
        return Lack(Cause.JOBS, name, second, words, needed, free, holders)

    def _beyond_limits(self, short: Collection[str]) -> Lack | None:
        """Say which limit or pool leaves too little of what is free."""
        met: list[tuple[int, str]] = []
        for name, needed in self.ask.totals.items():
            # what others hold is said elsewhere: with it only where all of it together is too much
            view = self.bounds.get(name) if name in short else self.views.get(name)
            if view is not None and (found := self._first_short(view, needed)) is not None:
                met.append((found, name))
        if not met:
            return None
        second, name = min(met)
        job = self.job
        told = self.world.consumers.explain(self.ask, job.user, job.group, self.start, self.end - 1)
        words = f"{'' if second == self.start else f'{self._from(second)} '}it meets {told[0] if told else 'a limit'}"
        own = self._holders(second, lambda other: _total(other, name) if _is_kin(job, other) else 0)
        if own:
            words += f"; its user or group has then {self._named(own, lambda items: amount(name, items, self.kinds))}"
        free = max((self.bounds if name in short else self.views)[name].free_at(second), 0)
        return Lack(Cause.CONSUMER, name, second, words, self.ask.totals[name], free, own)

    def _first_short(self, vector: RUSV, needed: int) -> int | None:
        times = (time for time in vector.steps[0].tolist() if self.start < time < self.end)
        return next((time for time in (self.start, *times) if vector.free_at(time) < needed), None)

    # ------------------------------------------------------------------ on nodes

    def _without_room(self) -> Lack | None:
        """Say which sort of chunks is the first to find too little room on nodes."""
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
        return Lack(Cause.CHUNKS, what, second, words, wanted, free, holders)

    def _room(self, place: int, needs: Mapping[str, int], most: int) -> list[tuple[int, int]]:
        """Give how many chunks have room on a node from a time on; it never grows."""
        resources = self.world.cluster.resources
        held = self.world.cluster.used_on(self.world.system.nodes[place].name)
        usable = dict(zip(resources, self.ask.usable.reshape(-1, len(resources))[place].tolist(), strict=True))
        times = {time for vector in held.values() for time in vector.steps[0].tolist() if self.start < time < self.end}
        most = 1 if self.ask.how == SCATTER else most
        found: list[tuple[int, int]] = []
        for time in (self.start, *sorted(times)):
            used = {name: vector.at(time) for name, vector in held.items()}
            fits = (max(usable[name] - used[name], 0) // need for name, need in needs.items())
            most = 0 if self.ask.is_exclusive and any(used.values()) else min([most, *fits])
            if not found or most < found[-1][1]:
                found.append((time, most))
        return found

    def _first_below(self, wanted: int, rooms: Iterable[Sequence[tuple[int, int]]]) -> int | None:
        """Give the first second at which fewer chunks than wanted have room on all nodes together."""
        changes: Counter[int] = Counter({self.start: 0})
        for room in rooms:
            before = 0
            for time, fits in room:
                changes[time] += fits - before
                before = fits
        times = sorted(changes)
        totals = accumulate(changes[time] for time in times)
        return next((time for time, total in zip(times, totals, strict=True) if total < wanted), None)

    # ------------------------------------------------------------------ who

    def _holders(self, second: int, items: Callable[[Job], int]) -> tuple[Holder, ...]:
        """Give who has how much at a time."""
        there = [(job, job.placement.end) for job in self.world.jobs if _is_there(job, second) and job.placement]
        found = [Holder(job.id, job.user, many, end) for job, end in there if (many := items(job))]
        return tuple(sorted(found, key=lambda holder: -holder.items))

    def _named(self, holders: Sequence[Holder], words: Callable[[int], str]) -> str:
        told = [f"{one.job} ({words(one.items)} until {self.world.clock(one.until_s)})" for one in holders[:_FEW]]
        if len(holders) > _FEW:
            told.append(f"{len(holders) - _FEW} more")
        listed = f"{', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else told[0]
        return f"job{'s' if len(told) > 1 else ''} {listed}"


def amount(resource: str, items: int, kinds: Mapping[str, Kind]) -> str:
    """Write an amount of a resource.

    Examples
    --------
    >>> from asa.backends.openccs.requests import STANDARD_KINDS
    >>> amount("ncpus", 1, STANDARD_KINDS), amount("mem", 3 << 30, STANDARD_KINDS), amount("gpus", 2, STANDARD_KINDS)
    ('1 core', '3g of mem', '2 gpus')
    """
    if kinds.get(resource) is Kind.SIZE:
        return f"{Size(items)} of {resource}"
    name = "cores" if resource == "ncpus" else resource
    return f"{items:,} {name.removesuffix('s') if items == 1 else name}"


def _on_nodes(many: int) -> str:
    return f"on {many} node{'' if many == 1 else 's'}"


def _needed(ask: Ask) -> list[str]:
    return [name for name, items in ask.totals.items() if items]


def _without(named: str, chunk: Chunk) -> Chunk:
    return replace(
        chunk, properties={key: value for key, value in chunk.properties.items() if f"{key}={value}" != named}
    )


def _is_kin(job: Job, other: Job) -> bool:
    return (job.user != "" and job.user == other.user) or (job.group != "" and job.group == other.group)


def _is_there(job: Job, second: int) -> bool:
    return job.placement is not None and job.placement.start <= second < job.placement.end


def _total(job: Job, resource: str) -> int:
    return job.placement.totals.get(resource, 0) if job.placement is not None else 0


def _nodes(job: Job) -> list[int]:
    found: list[int] = job.placement.nodes.tolist() if job.placement is not None else []
    return found
