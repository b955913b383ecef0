"""A system's resources over time, and the placement of requests: planning, mapping and booking (Section 5).

Usage of the whole system is a `RUSV` for each resource (sRS). Usage of each node is in arrays (nRS), for the loops of
`node_kernel`.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from asa.core.compiled import seen
from asa.errors import InputError

from . import node_kernel as k
from .requests import Arrangement, Chunk, ResourceRequest
from .rusv import RUSV, Stores
from .rusv_kernel import BEGIN, FOREVER
from .system import CcsSystem

_MAX_KNOWN = 10_000

Integers = NDArray[np.int64]


class TooMuchError(InputError):
    """A request exceeds the system."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request prepared for planning."""

    totals: Mapping[str, int]  # total requirements by resource (jRS), including licences
    # requirements of each sort of chunk for each resource, the sort of the largest weight first; and the number of
    # chunks
    chunks: Integers
    wanted: Integers
    usable: Integers  # by node and resource, the items that this request may use
    suits: NDArray[np.int8]  # nodes with the properties required by each sort of chunk
    order: Integers  # nodes suitable for some sort, the cheapest first
    how: int
    is_exclusive: bool  # whether it requires exclusive nodes
    lasts_s: int  # with the time that its allocation and its release may take
    walltime_s: int


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Time and nodes of a request's resources."""

    start: int  # begin in seconds; the end is the first second after it
    end: int
    nodes: Integers  # amounts of each resource on the nodes
    amounts: Integers
    totals: Mapping[str, int]

    @property
    def stop(self) -> int:
        """The last second of the placement."""
        return self.end - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def _facts(self) -> tuple[object, ...]:
        return self.start, self.end, self.nodes.tolist(), self.amounts.tolist(), dict(self.totals)


class PlannedCluster:
    """The plan's resources: their usage over time, of the whole system and of each node.

    Notes
    -----
    Finding a place costs O(slots of the system + steps of the nodes), booking it O(slots) and O(steps) for each of its
    nodes; neither depends on the number of jobs.

    Examples
    --------
    >>> from asa.backends.openccs.system import oculus
    >>> cluster = PlannedCluster(oculus())
    >>> ask = cluster.prepare(ResourceRequest.parse("rset=8:ncpus=16,walltime=2h"))
    >>> placement = cluster.find(ask, since=1000)
    >>> placement.start, placement.end, cluster.names_of(placement)[:2]
    (1000, 8200, ['norm001', 'norm002'])
    >>> cluster.book(placement)
    >>> cluster.used["ncpus"]
    RUSV(9920, [1000..8199: 128])
    """

    def __init__(self, system: CcsSystem) -> None:
        self.system = system
        self.resources = system.resources
        self._items = np.ascontiguousarray(system.items())
        self._up: NDArray[np.bool_] = np.ones(len(system.nodes), dtype=np.bool_)
        self._by_weight = np.argsort(system.weights(), kind="stable")
        totals = dict(zip(self.resources, self._items.sum(axis=0).tolist(), strict=True))
        self.used = {name: RUSV(items) for name, items in (totals | dict(system.licences)).items()}
        self._places = {node.name: index for index, node in enumerate(system.nodes)}
        self._asks: dict[Hashable, Ask] = {}
        self._make_nodes(32)
        nodes, width = self._items.shape
        nothing = np.zeros(nodes * width, dtype=np.int64)
        self._empty = np.full(nodes, BEGIN, dtype=np.int64), nothing, np.ones(nodes, dtype=np.int64), 1

    def fork(self) -> PlannedCluster:
        """Return a copy with bookings of its own."""
        fork = copy.copy(self)
        fork.used = {name: vector.copy() for name, vector in self.used.items()}
        fork._up, fork._asks = self._up.copy(), dict(self._asks)
        fork._times, fork._amounts, fork._counts = self._times.copy(), self._amounts.copy(), self._counts.copy()
        return fork

    def _make_nodes(self, room: int) -> None:
        nodes, width = self._items.shape
        self._room = room
        self._times = np.full(nodes * room, BEGIN, dtype=np.int64)
        self._amounts = np.zeros(nodes * room * width, dtype=np.int64)
        self._counts = np.ones(nodes, dtype=np.int64)

    # ------------------------------------------------------------------ requests

    def prepare(self, request: ResourceRequest, walltime_s: int | None = None) -> Ask:
        """Prepare a request for planning.

        Raises `TooMuchError`: even the empty system lacks some of what is requested.
        """
        walltime_s = walltime_s or request.walltime_s or self.system.walltime_s
        key = tuple(map(str, request.chunks)), request.place, tuple(request.job_wide.items()), walltime_s
        if (known := self._asks.get(key)) is None:
            if len(self._asks) > _MAX_KNOWN:
                self._asks.clear()
            known = self._asks[key] = self._prepared(request, walltime_s)
        return known

    def _prepared(self, request: ResourceRequest, walltime_s: int) -> Ask:
        if both := next((n for n in (*request.licences, *request.job_wide) if n in self.resources), None):
            raise TooMuchError(f"asks for {both} on no node", hint="It is what nodes have: ask for it in rset=.")
        request = replace(request, chunks=tuple(map(self._with_defaults, request.chunks)))
        totals = Counter(request.job_set())
        totals.update(request.licences)
        for name, wanted in totals.items():
            if wanted > (most := self.used[name].most if name in self.used else 0):
                hint = "Ask for less." if most else f"There are {', '.join(self.used)}."
                raise TooMuchError(f"asks for {wanted} of {name}, of which there are {most}", hint=hint)
        sorts = [_one(request.chunks)] if request.place.arrangement is Arrangement.PACK else list(request.chunks)
        chunks = np.array([[sort.needs.get(name, 0) for name in self.resources] for sort in sorts], dtype=np.int64)
        shares = (chunks / np.maximum(self._items.sum(axis=0), 1)).max(axis=1)
        usable = self._usable(totals)
        suits: NDArray[np.bool_] = np.array([self._suits(sort, walltime_s) for sort in sorts], dtype=np.bool_)
        if request.place.exclusive:
            suits &= ~self._is_kept(totals)
        if lost := next((sort for sort, nodes in zip(sorts, suits, strict=True) if not nodes.any()), None):
            raise TooMuchError(f"asks for {lost}, which no node is or lets in", hint="See the nodes' properties.")
        suits &= (usable[None, :, :] >= chunks[:, None, :]).all(axis=2)
        if lost := next((sort for sort, nodes in zip(sorts, suits, strict=True) if not nodes.any()), None):
            hint = (
                "Ask for smaller chunks." if request.place.arrangement is not Arrangement.PACK else "Place it freely."
            )
            raise TooMuchError(f"asks for {lost} on one node, and none has that", hint=hint)
        is_scattered = request.place.arrangement is Arrangement.SCATTER
        heaviest, choosiest = np.argsort(-shares, kind="stable"), np.lexsort((-shares, suits.sum(axis=1)))
        # a greedy choice may give the only nodes for one sort of chunks to a sort of larger weight
        for order in (heaviest, choosiest):
            ask = Ask(
                dict(totals),
                chunks[order].ravel(),
                np.array([sorts[i].count for i in order], dtype=np.int64),
                usable.ravel(),
                suits[order].astype(np.int8).ravel(),
                self._by_weight[np.any(suits, axis=0, keepdims=True)[0][self._by_weight]],
                k.SCATTER if is_scattered else k.FREE,
                request.place.exclusive,
                walltime_s + self.system.timeouts.sum_s,
                walltime_s,
            )
            if self._search(ask, RUSV(1, stores=Stores.FREE), 0, FOREVER, self._empty, is_up=False) is not None:
                return ask
        hint = "Ask for smaller chunks, fewer of them, or place them otherwise."
        raise TooMuchError("cannot be placed on its nodes, even when these are empty", hint=hint)

    def _with_defaults(self, chunk: Chunk) -> Chunk:
        """Let a chunk without requirements take a core, or the first resource of nodes if they have no cores."""
        if any(chunk.needs.values()):
            return chunk
        least = "ncpus" if "ncpus" in self.resources else self.resources[0]
        return replace(chunk, needs={least: 1})

    def _is_kept(self, totals: Mapping[str, int]) -> NDArray[np.bool_]:
        """Return the nodes with an expensive resource that a request does not need."""
        kept = np.zeros(len(self._items), dtype=np.bool_)
        for reserve in self.system.reserves:
            if totals.get(reserve.resource, 0) == 0:
                kept |= self._items[:, self.resources.index(reserve.resource)] > 0
        return kept

    def _usable(self, totals: Mapping[str, int]) -> Integers:
        """Return the items of each node that a request may use, without the items reserved for other requests."""
        usable = self._items.copy()
        for reserve in self.system.reserves:
            if totals.get(reserve.resource, 0) == 0:
                expensive = self._items[:, self.resources.index(reserve.resource)] > 0
                for name, items in reserve.keeps.items():
                    column = usable[:, self.resources.index(name)]
                    column[expensive] = np.maximum(column[expensive] - items, 0)
        return usable

    def _suits(self, chunk: Chunk, walltime_s: int) -> list[bool]:
        return [
            all(node.properties.get(name) == value for name, value in chunk.properties.items())
            and (not node.admits or any(reason.admits(chunk.needs, walltime_s) for reason in node.admits))
            for node in self.system.nodes
        ]

    # ------------------------------------------------------------------ placement

    def free_slots(self, ask: Ask, views: Mapping[str, RUSV], since: int, end: int) -> RUSV:
        """Find slots in which the total needs of a request are free, in the part of the system that it may use.

        Each single resource is free for the request's whole duration. A slot is a time in which all of them are free;
        it may be shorter.

        `views`: usage of resources as the request's consumer sees it (uRS); of other resources the actual usage counts.
        """
        slots = (
            views.get(name, self.used[name]).free_slots(items, ask.lasts_s, since, end)
            for name, items in ask.totals.items()
            if items
        )
        return reduce(and_, slots)

    def find(
        self, ask: Ask, since: int, end: int = FOREVER, views: Mapping[str, RUSV] = MappingProxyType({})
    ) -> Placement | None:
        """Find the first time and the nodes for a request; None if there are none.

        `since`, `end`: its earliest start, and its latest end.
        `views`: see `free_slots`. If the request needs exclusive nodes, and its consumer may not have all of their
        resources then, the search goes on to a time at which it may.
        """
        slots = self.free_slots(ask, views, since, end)
        while (placement := self._search(ask, slots, since, end, self._state)) is not None:
            if not ask.is_exclusive or self.may_have(placement, views):
                return placement
            sums = [(vector, placement.totals[name]) for name, vector in views.items() if name in placement.totals]
            starts = [vector.earliest(items, ask.lasts_s, since, end) for vector, items in sums]
            if None in starts:
                return None
            since = max(placement.start + 1, *(start for start in starts if start is not None))
        return None

    def may_have(self, placement: Placement, views: Mapping[str, RUSV]) -> bool:
        """Whether a consumer may have all resources of a placement."""
        return all(
            views[name].min_free_within(placement.start, placement.end) >= items
            for name, items in placement.totals.items()
            if name in views
        )

    def has_room(self, ask: Ask, placement: Placement, views: Mapping[str, RUSV]) -> bool:
        """Whether the resources of a placement are free at its time, for a consumer with these views."""
        if not np.isin(placement.nodes, ask.order).all():
            return False
        span, width = (placement.start, placement.end), len(self.resources)
        sums = {name: items for name, items in placement.totals.items() if items}
        if any(views.get(name, self.used[name]).min_free_within(*span) < items for name, items in sums.items()):
            return False
        usable = self._items if ask.is_exclusive else ask.usable.reshape(self._items.shape)
        for place, amounts in zip(placement.nodes.tolist(), placement.amounts.reshape(-1, width).tolist(), strict=True):
            held = self.used_on(self.system.nodes[place].name)
            for name, items, most in zip(self.resources, amounts, usable[place].tolist(), strict=True):
                used = held[name].most - held[name].min_free_within(*span) if name in held else 0
                if items and used + items > most:
                    return False
        return True

    @property
    def _state(self) -> tuple[Integers, Integers, Integers, int]:
        return self._times, self._amounts, self._counts, self._room

    def _search(
        self,
        ask: Ask,
        slots: RUSV,
        since: int,
        until: int,
        state: tuple[Integers, Integers, Integers, int],
        *,
        is_up: bool = True,
    ) -> Placement | None:
        nodes, width = self._items.shape
        order = ask.order[self._up[ask.order]] if is_up else ask.order
        kinds, candidates = len(ask.wanted), len(order)
        fits, placed = np.empty((2, kinds * candidates), dtype=np.int64)
        changes, totals = np.empty(candidates, dtype=np.int64), np.empty(kinds, dtype=np.int64)
        soonest = np.empty(candidates // k.BLOCK + 1, dtype=np.int64)
        peaks = np.empty(nodes * width, dtype=np.int64)
        times, amounts, counts, room = state
        slot_times, slot_items = slots.steps
        start = k.find_destination(
            seen(times), seen(amounts), seen(counts), room, width, nodes,
            seen(slot_times), seen(slot_items), len(slot_times),
            seen(ask.chunks), seen(ask.wanted), kinds, seen(ask.usable), seen(ask.suits), seen(order), candidates,
            ask.how, ask.is_exclusive, ask.lasts_s, since, until,
            seen(fits), seen(changes), seen(soonest), seen(totals), seen(peaks), seen(placed),
        )  # fmt: skip
        if start == FOREVER:
            return None
        many = placed.reshape(kinds, candidates)
        taken = np.flatnonzero(many.any(axis=0))
        chosen = order[taken]
        held = many[:, taken].T @ ask.chunks.reshape(kinds, width) if not ask.is_exclusive else self._items[chosen]
        sums = dict(zip(self.resources, held.sum(axis=0).tolist(), strict=True))
        licences = {name: items for name, items in ask.totals.items() if name not in sums}
        return Placement(int(start), int(start) + ask.lasts_s, chosen, held.ravel(), sums | licences)

    # ------------------------------------------------------------------ booking

    def check(self, placement: Placement) -> None:
        """Raise `ValueError` for a placement that is none here, as of a damaged file: compiled code does not check."""
        count, width = self._items.shape
        places, moments = placement.nodes, (placement.start, placement.end, *placement.totals.values())
        is_here = places.ndim == 1 and bool(((places >= 0) & (places < count)).all())
        if not (is_here and placement.amounts.shape == (len(places) * width,)):
            raise ValueError("a placement is on nodes that there are not")
        if not all(type(moment) is int and BEGIN <= moment <= FOREVER for moment in moments):
            raise ValueError("a placement has times or numbers that cannot be")

    def book(self, placement: Placement) -> None:
        """Commit a placement (Section 5.3)."""
        self._change(placement, 1)

    def revoke(self, placement: Placement) -> None:
        """Undo the booking of a placement."""
        self._change(placement, -1)

    def _change(self, placement: Placement, sign: int) -> None:
        for name, items in self._of_nodes_up(placement).items():
            if items:
                self.used[name].add_within(placement.start, placement.end, sign * items)
        done, width, many = 0, self._items.shape[1], len(placement.nodes)
        while True:
            nodes, amounts = placement.nodes[done:], placement.amounts[done * width :]
            done += k.book(
                seen(self._times), seen(self._amounts), seen(self._counts), self._room, width,
                seen(nodes), seen(amounts), many - done, sign, placement.start, placement.end,
            )  # fmt: skip
            if done == many:
                return
            self._make_room()

    def _of_nodes_up(self, placement: Placement) -> Mapping[str, int]:
        """Return the system resources of a placement, without those on failed nodes."""
        is_up = self._up[placement.nodes]
        if is_up.all():
            return placement.totals
        gone = placement.amounts.reshape(len(is_up), -1)[~is_up].sum(axis=0).tolist()
        return Counter(placement.totals) - Counter(dict(zip(self.resources, gone, strict=True)))

    def _make_room(self) -> None:
        nodes, width = self._items.shape
        old, room = self._state, self._room
        self._make_nodes(2 * room)
        self._times.reshape(nodes, -1)[:, :room] = old[0].reshape(nodes, room)
        self._amounts.reshape(nodes, -1, width)[:, :room] = old[1].reshape(nodes, room, width)
        self._counts = old[2]

    def forget_before(self, now: int) -> None:
        """Discard usage before a time, so that it takes no more time and memory. O(steps)."""
        nodes, width = self._items.shape
        times, amounts, counts, room = self._state
        k.forget_before(seen(times), seen(amounts), seen(counts), room, width, nodes, now)
        for vector in self.used.values():
            vector.forget_before(now)

    def part(self, placement: Placement, name: str) -> CcsSystem:
        """Return the resources of a placement as a separate system."""
        width = self._items.shape[1]
        nodes = [
            replace(self.system.nodes[place], resources=dict(zip(self.resources, amounts, strict=True)), admits=())
            for place, amounts in zip(
                placement.nodes.tolist(), placement.amounts.reshape(-1, width).tolist(), strict=True
            )
        ]
        licences = {name: items for name, items in placement.totals.items() if name not in self.resources}
        return replace(self.system, name=name, nodes=tuple(nodes), licences=licences, reserves=())

    # ------------------------------------------------------------------ nodes

    @property
    def names(self) -> list[str]:
        """Names of all nodes, in order."""
        return list(self._places)

    def names_of(self, placement: Placement) -> list[str]:
        """Return the names of a placement's nodes."""
        return [self.system.nodes[place].name for place in placement.nodes.tolist()]

    def is_up(self, name: str) -> bool:
        """Whether a node is up."""
        return bool(self._up[self._place(name)])

    def set_up(self, name: str, *, up: bool) -> None:
        """Set a node up or down; bookings on it are kept, and count in the system while it is up."""
        place = self._place(name)
        if up == bool(self._up[place]):
            return
        self._up[place] = up
        for resource, items in self.system.nodes[place].resources.items():
            vector, booked = self.used[resource], self.used_on(name).get(resource, RUSV(0))
            vector.set_defect(vector.most - vector.available + (-items if up else items))
            self.used[resource] = vector + booked if up else vector - booked

    def _place(self, name: str) -> int:
        if name not in self._places:
            raise InputError(f"there is no node {name!r}", where=f"system {self.system.name!r}", hint="Name one of it.")
        return self._places[name]

    def used_on(self, name: str) -> dict[str, RUSV]:
        """Return the usage of each resource of a node (its nRS)."""
        place, width = self._place(name), self._items.shape[1]
        base, count = place * self._room, int(self._counts[place])
        times = self._times[base : base + count]
        held = self._amounts[base * width : (base + count) * width].reshape(count, width)
        return {
            resource: RUSV(items, steps=_steps(times, held[:, column]))
            for column, resource in enumerate(self.resources)
            if (items := int(self._items[place, column]))
        }


def _steps(times: Integers, items: Integers) -> tuple[Integers, Integers]:
    """Return the steps of one resource of a node, without steps of other resources."""
    differ = np.concatenate(([True], items[1:] != items[:-1]))
    return times[differ], items[differ]


def _one(chunks: Iterable[Chunk]) -> Chunk:
    """Combine chunks that must be on one node."""
    needs: Counter[str] = Counter()
    properties: dict[str, str] = {}
    for chunk in chunks:
        needs.update({name: chunk.count * amount for name, amount in chunk.needs.items()})
        for name, value in chunk.properties.items():
            if properties.setdefault(name, value) != value:
                why = f"no node has {name}={properties[name]} and {name}={value}, and all chunks are to be on one"
                raise TooMuchError(why, hint="Place them freely.")
    return Chunk(1, needs, properties)
