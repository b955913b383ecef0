"""The resource usage vector (RUSV), the paper's data structure: items of a resource that are used, or free, over time.

Times are whole seconds since 1970, or any other origin. A slot's interval is closed, as in the paper: a slot from 0 to
9 and one from 10 to 19 are adjacent, at a distance of 1 s. A stop of 0 means "for ever".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from asa.core.compiled import seen
from asa.errors import InputError

from . import rusv_kernel as k

BEGIN, FOREVER = k.BEGIN, k.FOREVER
_NO_LIMIT = 1 << 60

Items = NDArray[np.int64]
Steps = tuple[Items, Items]


class Stores(StrEnum):
    """The items counted by the slots of a vector."""

    USED = "used"
    FREE = "free"


class UsageSlot(NamedTuple):
    """A closed interval in seconds, and the items that are used or free in it; a stop of 0 is for ever."""

    start: int  # seconds, both included; a stop of 0 is for ever
    stop: int
    items: int


class RUSV:
    """The number of items of a resource that are used, or free, in each time span (Section 4).

    Nothing is stored while all items are free: none is used or, in a vector of free items, at least `available` are
    free. Adjacent slots with the same number are merged.

    `slots`: the initial slots; later ones are added to earlier ones.

    Notes
    -----
    An operation on one of n slots costs O(log n) to find it and O(n) to move later ones; one on two vectors O(n + m).
    None depends on the number of jobs.

    Examples
    --------
    >>> cores = RUSV(16)
    >>> cores.increment(UsageSlot(0, 99, 4))
    >>> cores.increment(UsageSlot(50, 0, 2))
    >>> cores
    RUSV(16, [0..49: 4, 50..99: 6, 100..: 2])
    >>> cores.free_slots(12, 10, 0, 1000)
    RUSV(16, free, [..-1: 0, 0..49: 12, 50..99: 0, 100..999: 14, 1000..: 0])
    """

    __slots__ = ("_count", "_items", "_times", "available", "most", "stores")

    def __init__(
        self,
        most: int,
        *,
        defect: int = 0,
        stores: Stores = Stores.USED,
        slots: Iterable[UsageSlot] = (),
        steps: Steps | None = None,
    ) -> None:
        if not 0 <= defect <= most:
            raise InputError(f"{defect} of {most} items cannot be broken", where="RUSV", hint="Give 0 to all of them.")
        self.most, self.available, self.stores = most, most - defect, stores
        self._times, self._items = _nothing(self.empty) if steps is None else steps
        self._count = 1 if steps is None else len(steps[0])
        for slot in slots:
            self.increment(slot)

    @property
    def empty(self) -> int:
        """Value of times that are not stored: the items when all are free."""
        return 0 if self.stores is Stores.USED else self.available

    # ------------------------------------------------------------------ stored values

    def __iter__(self) -> Iterator[UsageSlot]:
        """Yield the slots in order of time; one without a beginning starts at the smallest number."""
        times, items = self.steps
        stops = [*(time - 1 for time in times[1:].tolist()), 0]
        for start, stop, held in zip(times.tolist(), stops, items.tolist(), strict=True):
            if held != self.empty:
                yield UsageSlot(start, stop, held)

    def __len__(self) -> int:
        return int((self._items[: self._count] != self.empty).sum())

    @property
    def steps(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Times, and the items from each time until the next."""
        return self._times[: self._count], self._items[: self._count]

    def at(self, time: int) -> int:
        """Return the used, or free, items at a time. O(log n)."""
        return int(self._items[k.last_at(seen(self._times), self._count, time)])

    def free_at(self, time: int) -> int:
        """Return the free items at a time. O(log n)."""
        return self.available - self.at(time) if self.stores is Stores.USED else self.at(time)

    def min_free_within(self, start: int, end: int) -> int:
        """Return the items that are free throughout the time from start to before end. O(log n + slots between)."""
        sign = 1 if self.stores is Stores.USED else -1
        least = int(k.within(seen(self._times), seen(self._items), self._count, start, end, sign))
        return self.available - least if sign > 0 else -least

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RUSV):
            return NotImplemented
        is_alike = (self.most, self.available, self.stores) == (other.most, other.available, other.stores)
        return is_alike and all(np.array_equal(a, b) for a, b in zip(self.steps, other.steps, strict=True))

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        words = [
            f"{'' if slot.start == k.BEGIN else slot.start}..{'' if slot.stop == 0 else slot.stop}: {slot.items}"
            for slot in self
        ]
        of = "" if self.stores is Stores.USED else ", free"
        broken = f"{self.available} of " if self.available != self.most else ""
        return f"RUSV({broken}{self.most}{of}, [{', '.join(words)}])"

    # ------------------------------------------------------------------ single slots

    def increment(self, slot: UsageSlot) -> None:
        """Add a slot's items, 0 or more, within its interval (the paper's circled plus)."""
        end = _end(slot.stop)
        if end <= slot.start:
            raise InputError(f"{slot} stops before it starts", where="RUSV", hint="A stop of 0 is for ever.")
        if slot.items < 0:
            raise InputError(f"{slot} has less than no items", where="RUSV", hint="Take them away with `add_within`.")
        self.add_within(slot.start, end, slot.items)

    def add_within(self, start: int, end: int, items: int) -> None:
        """Add items, or remove them if negative, from start to before end; `FOREVER` for no end."""
        if end <= start:
            raise InputError(f"nothing is from {start} to before {end}", where="RUSV", hint="Give a later end.")
        self._make_room(self._count + 2)
        held = seen(self._times), seen(self._items)
        self._count = k.change(*held, self._count, start, end, items, *_bounds(self.stores, self.available))

    def _make_room(self, steps: int) -> None:
        if steps > len(self._times):
            more = np.empty((2, 2 * steps), dtype=np.int64)
            more[:, : self._count] = self._times[: self._count], self._items[: self._count]
            self._times, self._items = more

    def set_defect(self, defect: int) -> None:
        """Set the number of defective items from now on, at all times. O(n).

        A vector of free items forgets items beyond the remaining number: a repair does not bring them back.
        """
        if not 0 <= defect <= self.most:
            raise InputError(f"{defect} of {self.most} items cannot be broken", where="RUSV", hint="Give 0 to all.")
        before = self.empty
        self.available = self.most - defect
        if self.stores is Stores.FREE:
            times, items = self.steps
            kept = np.where(items == before, self.available, np.minimum(items, self.available))
            changes = np.concatenate(([True], kept[1:] != kept[:-1]))
            self._count = int(changes.sum())
            self._times[: self._count], self._items[: self._count] = times[changes], kept[changes]

    def forget_before(self, time: int) -> None:
        """Extend the value at a time to all times before. O(n)."""
        past = k.last_at(seen(self._times), self._count, time)
        if past:
            self._times, self._items = self._times[past:], self._items[past:]
            self._times[0] = k.BEGIN
            self._count -= past

    def copy(self) -> Self:
        """Make an equal vector."""
        times, items = self.steps
        return self._of((times.copy(), items.copy()), self.stores, self.available)

    def _of(self, steps: Steps, stores: Stores, available: int) -> Self:
        most = max(self.most, available)
        return type(self)(most, defect=most - available, stores=stores, steps=steps)

    # ------------------------------------------------------------------ pairs of vectors

    def __add__(self, other: RUSV) -> Self:
        """Increment by each slot of another."""
        return self._combined(other, k.ADD, self.stores, self.available)

    def __sub__(self, other: RUSV) -> Self:
        """Decrement by each slot of another."""
        return self._combined(other, k.SUBTRACT, self.stores, self.available)

    def __and__(self, other: RUSV) -> Self:
        """Return the items free in both at the same time: the intersection of two vectors of free items."""
        if self.stores is not Stores.FREE or other.stores is not Stores.FREE:
            raise InputError("an intersection is of free items", where="RUSV", hint="Take `free_slots` of each first.")
        return self._combined(other, k.LEAST, Stores.FREE, min(self.available, other.available))

    def min_free(self, limit: RUSV) -> Self:
        """Apply a limit to a vector of used items: items are free if they are free in both (``mf``).

        At each time, the larger counts as used: what is used here, or the items that the limit excludes. The limit, of
        free items, holds at all times: at times without an entry, all its items are free.

        Raises `InputError`: this is no vector of used items, or the limit none of free ones.
        """
        if self.stores is not Stores.USED or limit.stores is not Stores.FREE:
            raise InputError("a limit of free items is brought into used ones", where="RUSV", hint="Swap them.")
        return self._combined(limit, k.MAX_USED, Stores.USED, self.available)

    def _combined(self, other: RUSV, how: int, stores: Stores, available: int) -> Self:
        times, items = other.steps
        made, kept = _room(self._count + len(times))
        bounds = _bounds(stores, available)
        count = k.combine(
            seen(self._times), seen(self._items), self._count, seen(times), seen(items), len(times),
            how, other.empty, self.available, *bounds, seen(made), seen(kept),
        )  # fmt: skip
        return self._of((made[:count], kept[:count]), stores, available)

    # ------------------------------------------------------------------ free space

    def free_slots(self, items: int, lasts_s: int, since: int, end: int) -> Self:
        """Find the slots with at least `items` free items for at least `lasts_s`, from `since` on (getFreeSlots).

        Returns a vector of free items, which is 0 outside of these slots.

        `end`: they end by then; `FOREVER` for no bound.
        """
        sign, limit = self._in_terms_of_use(items)
        times, kept = _room(2 * self._count + 2)
        count = k.fitting(
            seen(self._times), seen(self._items), self._count, sign, limit, self.available,
            max(lasts_s, 1), since, end, seen(times), seen(kept),
        )  # fmt: skip
        return self._of((times[:count], kept[:count]), Stores.FREE, self.available)

    def earliest(self, items: int, lasts_s: int, since: int, end: int = FOREVER) -> int | None:
        """Return the first time when items are free for a duration, from since to before end; None if never. O(n)."""
        sign, limit = self._in_terms_of_use(items)
        arguments = (sign, limit, max(lasts_s, 1), since, end)
        slot = int(k.earliest(seen(self._times), seen(self._items), self._count, *arguments))
        return None if slot == k.FOREVER else slot

    def backfill(self, jobs: Items, starts: Items, lasts: Items, widths: Items, now: int) -> None:
        """Rebook jobs, in order, each at the earliest start before its own, if there is one. O(jobs x slots).

        `starts`: the booked start of each job, updated;
        `lasts`, `widths`: how long, and how many items.
        """
        self._make_room(self._count + 2 * len(jobs) + 2)
        self._count = k.backfill(
            seen(self._times), seen(self._items), self._count, self.available, seen(jobs), len(jobs),
            seen(starts), seen(lasts), seen(widths), now,
        )  # fmt: skip

    def _in_terms_of_use(self, items: int) -> tuple[int, int]:
        return (1, self.available - items) if self.stores is Stores.USED else (-1, -items)


def cron_to_rusv(template: RUSV, items: int, since: int, until: int, period_s: int) -> RUSV:
    """Expand a periodic validity: `items`, in each period, at the times where its template stores any (Section 5.4).

    Raises `InputError`: the end is before the start, or a period is shorter than a second.

    Examples
    --------
    >>> mornings = RUSV(1, slots=[UsageSlot(7 * 3600, 11 * 3600 - 1, 1)])
    >>> cron_to_rusv(mornings, 25, 0, 2 * 86400 - 1, 86400)
    RUSV(25, [25200..39599: 25, 111600..125999: 25])
    """
    if until < since or period_s < 1:
        raise InputError(f"nothing repeats each {period_s} s from {since} to {until}", where="RUSV")
    times, held = template.steps
    made, kept = _room((2 + (until - since) // period_s) * (len(times) + 1))
    empty = 0 if template.stores is Stores.USED else items
    count = k.repeat(
        seen(times), seen(held), len(times), template.empty, period_s, items, since, until + 1, empty,
        seen(made), seen(kept),
    )  # fmt: skip
    steps = (made[:count], kept[:count])
    return RUSV(items, stores=template.stores, steps=steps)


def _end(stop: int) -> int:
    """Return the first second after a closed interval."""
    return stop + 1 if stop else k.FOREVER


def _bounds(stores: Stores, available: int) -> tuple[int, int]:
    """Return the lowest and the highest value of a slot."""
    return (0, _NO_LIMIT) if stores is Stores.USED else (-_NO_LIMIT, available)


def _room(steps: int) -> Steps:
    return np.empty(steps + 2, dtype=np.int64), np.empty(steps + 2, dtype=np.int64)


def _nothing(empty: int) -> Steps:
    times, items = _room(14)
    times[0], items[0] = k.BEGIN, empty
    return times, items
