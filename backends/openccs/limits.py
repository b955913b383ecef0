"""Limits of users and groups, and pools of resources that are kept free (Section 3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from heapq import heappop, heappush
from operator import add, and_
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError, near
from asa.units import format_walltime

from .cluster import Ask, Placement
from .pieces import LARGEST
from .requests import STANDARD_KINDS, RequestKind, Size
from .rusv import FOREVER, RUSV, Stores, UsageSlot, cron_to_rusv
from .rusv_kernel import BEGIN
from .validity import Validity

HORIZON_S: Final = 366 * 86400
"""Cron strings are expanded for at least this time after the end of a request that starts at once.

After that time their limits hold always, so that no limit is ever exceeded.
"""

_DAY_S: Final = 86400
_STRIDE_S: Final = 28 * _DAY_S
_ANY: Final = "*"
_JOBS: Final = "jobs"
_ARRAY_JOBS: Final = "arrayjobs"
_COUNTED: Final = (_JOBS, _ARRAY_JOBS)
_ITEMS = re.compile(r"(?:([0-9]{1,40})(?:([kmgtp])b?)?)?(?:/([0-9]{1,3})%)?", re.IGNORECASE)

_Held = tuple[tuple[Validity, int], ...]
_Key = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Items:
    """A number of items: absolute, a share of those available at the time, or the larger of both.

    Examples
    --------
    >>> [Items.parse(text).of(100) for text in ("30/45%", "30", "/45%", "unlimited")]
    [45, 30, 45, None]
    """

    number: int | None = None
    percent: int | None = None  # this part of the available ones, rounded down. If neither is given, there is no limit.

    def __post_init__(self) -> None:
        if not 0 <= (self.number or 0) <= LARGEST or not 0 <= (self.percent or 0) <= 100:
            raise InputError(f"{self} are no items", hint="Give a number from 0 on, or 0 to 100 percent.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``number``, ``number/percent%``, ``/percent%`` or ``unlimited``.

        A number may have a unit of memory, a power of 1024: ``64g``.
        """
        if text == "unlimited":
            return cls()
        match = _ITEMS.fullmatch(text)
        if not text or match is None:
            hint = "Write 30, 64g, 30/45%, /45% or unlimited."
            raise InputError(f"{text!r} says not how many items", hint=hint)
        number, unit, percent = match.groups()
        factor = 1024 ** ("kmgtp".index(unit.lower()) + 1) if unit else 1
        return cls(int(number) * factor if number else None, int(percent) if percent else None)

    def of(self, available: int) -> int | None:
        """Return the number of these out of `available` items; None if there is no limit."""
        if self.number is None and self.percent is None:
            return None
        return max(self.number or 0, available * (self.percent or 0) // 100)

    def __str__(self) -> str:
        share = "" if self.percent is None else f"/{self.percent}%"
        return f"{'' if self.number is None else self.number}{share}" or "unlimited"


_UNLIMITED: Final = Items()
_ALWAYS: Final = Validity()


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound of a consumer's use of a resource. Each of its parts binds only within its validity."""

    # consumer of the limit. The name `*` means each consumer of the kind separately, in addition to own limits.
    kind: Literal["user", "group"]
    name: str
    # the resource. `*` is each resource without a limit for this consumer, valid or not; limits for all consumers
    # count. `jobs` are those in the plan, `arrayjobs` the jobs of one array.
    resource: str
    items: Items = _UNLIMITED  # number of items at a time
    duration_s: int | None = None  # longer requests get nothing
    # upper bound of items times seconds of all planned and running jobs within the validity, in all its windows. A
    # request counts fully; beyond the bound it must wait until others leave.
    area: int | None = None
    validity: Validity = _ALWAYS

    def __post_init__(self) -> None:
        where = f"limit of {self.kind} {self.name!r} on {self.resource}"
        if self.kind not in {"user", "group"}:
            raise InputError(f"{self.kind!r} is no consumer", where=where, hint="Limits are of a user or a group.")
        parts = (self.items.percent, self.duration_s, self.area)
        if self.resource in _COUNTED and any(part is not None for part in parts):
            raise InputError("jobs are counted", where=where, hint="Give a number of items, and nothing else.")
        if min(self.duration_s or 0, self.area or 0) < 0:
            raise InputError("is less than nothing", where=where, hint="Give a duration or an area from 0 on.")

    def seconds(self, start: int, end: int) -> int:
        """Return the number of seconds from start to before end in which it binds."""
        return sum(until - since for since, until in self.validity.windows(start, end))


@dataclass(frozen=True, slots=True)
class Access:
    """Conditions of access to the items that a pool keeps; a request must meet all given conditions."""

    users: tuple[str, ...] = ()  # required users, or required groups
    groups: tuple[str, ...] = ()
    at_most: Mapping[str, int] = field(default_factory=dict)  # upper bounds of the total items, by resource
    at_most_s: int = 0  # upper bound of the duration; 0 for any

    def __post_init__(self) -> None:
        if not (self.users or self.groups or self.at_most or self.at_most_s):
            raise InputError("lets everybody in", where="access", hint="Give users, groups, items or a duration.")

    def admits(self, ask: Ask, user: str, group: str) -> bool:
        """Return whether a request meets the conditions."""
        return (
            (not self.users or user in self.users)
            and (not self.groups or group in self.groups)
            and all(ask.totals.get(name, 0) <= items for name, items in self.at_most.items())
            and (not self.at_most_s or ask.walltime_s <= self.at_most_s)
        )


@dataclass(frozen=True, slots=True)
class FreePool:
    """An amount of a resource that is kept free.

    It is kept free in addition to all usage; if less is free, all free items are kept.
    """

    name: str
    resource: str  # resource and items; all of them if unlimited
    items: Items
    validity: Validity = _ALWAYS
    # requests that meet any of these may use them; empty if none may, as for maintenance
    access: tuple[Access, ...] = ()

    def binds(self, ask: Ask, user: str, group: str) -> bool:
        """Return whether a request must leave the pool free."""
        return ask.totals.get(self.resource, 0) > 0 and not any(
            access.admits(ask, user, group) for access in self.access
        )

    def keeps(self, available: int) -> int:
        """Return the number of items kept free out of `available`."""
        items = self.items.of(available)
        return available if items is None else items


# ---------------------------------------------------------------------- as vectors


def _span(since: int, lasts_s: int) -> tuple[int, int]:
    """Return the time span for expanding cron strings.

    It is the same for many requests, so that they are expanded once.
    """
    start = since - since % _DAY_S
    return start, start + _DAY_S + HORIZON_S + (lasts_s // _STRIDE_S + 1) * _STRIDE_S


@lru_cache(maxsize=256)
def _within(validity: Validity, items: int, since: int, until: int) -> RUSV:
    """Return a vector with this number of items in a validity, and, for cron strings, also from `until` on."""
    if items <= 0:
        return RUSV(0)
    cron = validity.cron
    if cron is not None and cron.period is not None:
        template = RUSV(1, slots=[UsageSlot(start, end - 1, 1) for start, end in cron.template()])
        vector = cron_to_rusv(template, items, since, until - 1, cron.period)
    else:
        vector = RUSV(items)
        for start, end in validity.windows(BEGIN, FOREVER) if cron is None else validity.windows(since, until):
            vector.add_within(start, end, items)
    if cron is not None:
        vector.add_within(until, FOREVER, items)
    return vector


@lru_cache(maxsize=256)
def _limited(available: int, held: _Held, since: int, until: int) -> RUSV:
    """Return a vector of the items that limits allow out of `available`: the lowest at each time."""
    whole = RUSV(available, stores=Stores.FREE)
    return reduce(and_, (whole - _within(validity, available - items, since, until) for validity, items in held))


@lru_cache(maxsize=256)
def _kept(held: _Held, since: int, until: int) -> RUSV:
    """Return a vector of the items that pools keep free, counted as used."""
    return reduce(add, (_within(validity, items, since, until) for validity, items in held))


# ---------------------------------------------------------------------- a single consumer


@dataclass(slots=True, eq=False)
class _Bound:
    """A limit on one resource of one consumer, and the area already used by the consumer's jobs."""

    limit: Limit
    resource: str
    area: int = 0

    def left(self, available: int, lasts_s: int, area: int) -> int | None:
        """Return the items allowed for a request; 0 if the request is too long or large, None without a limit."""
        limit = self.limit
        is_long = limit.duration_s is not None and lasts_s > limit.duration_s
        is_large = limit.area is not None and self.area + area > limit.area
        return 0 if is_long or is_large else limit.items.of(available)


class _Account:
    """Limits and usage of a consumer (usdRS)."""

    def __init__(self, who: str, bounds: Mapping[str, tuple[_Bound, ...]], sizes: Mapping[str, int]) -> None:
        self.who = who
        self.bounds = bounds
        every = [bound for of_one in bounds.values() for bound in of_one]
        counted = {bound.resource for bound in every if bound.limit.items != _UNLIMITED}
        self.used = {name: RUSV(sizes[name]) for name in sizes if name in counted}
        self._areas = [bound for bound in every if bound.limit.area is not None]
        self._has_jobs = bool(self._areas) or _JOBS in bounds
        # starts and nodes of the jobs with the same end
        self._jobs: dict[_Key, list[tuple[int, NDArray[np.int64]]]] = {}
        self._ends: list[_Key] = []
        self.jobs = 0

    def book(self, placement: Placement) -> None:
        self._use(placement, 1)
        if self._has_jobs:
            start, needs = placement.start, self._needs(placement)
            self._count(start, placement.end, needs, 1)
            begun = self._taken(start, needs, placement)
            if begun is not None:  # an extended job
                self.jobs -= 1
                start = begun
            self._keep(start, placement.end, needs, placement)

    def _keep(self, start: int, end: int, needs: tuple[int, ...], placement: Placement) -> None:
        key = end, needs
        if key not in self._jobs:
            self._jobs[key] = []
            heappush(self._ends, key)
        self._jobs[key].append((start, placement.nodes))

    def revoke(self, placement: Placement) -> None:
        self._use(placement, -1)
        if self._has_jobs:
            needs = self._needs(placement)
            begun = self._taken(placement.end, needs, placement)
            if begun is not None:
                self._count(begun, placement.end, needs, -1)

    def shorten(self, placement: Placement, end: int) -> None:
        """Let a booked job end earlier."""
        self._use(replace(placement, start=end), -1)
        if self._has_jobs:
            needs = self._needs(placement)
            begun = self._taken(placement.end, needs, placement)
            if begun is not None:
                self._count(begun, placement.end, needs, -1)
                self._count(begun, end, needs, 1)
                self._keep(begun, end, needs, placement)

    def _taken(self, end: int, needs: tuple[int, ...], placement: Placement) -> int | None:
        """Remove the job of a placement with this end, and return its begin."""
        jobs = self._jobs.get((end, needs), [])
        place = next((at for at, (_, nodes) in enumerate(jobs) if nodes is placement.nodes), None)
        return None if place is None else jobs.pop(place)[0]

    def _use(self, placement: Placement, sign: int) -> None:
        for name, vector in self.used.items():
            if items := placement.totals.get(name, 0):
                vector.add_within(placement.start, placement.end, sign * items)

    def _needs(self, placement: Placement) -> tuple[int, ...]:
        return tuple(placement.totals.get(bound.resource, 0) for bound in self._areas)

    def _count(self, start: int, end: int, needs: Iterable[int], sign: int) -> None:
        self.jobs += sign
        for bound, items in zip(self._areas, needs, strict=True):
            bound.area += sign * items * bound.limit.seconds(start, end)

    def forget_before(self, now: int) -> None:
        for vector in self.used.values():
            vector.forget_before(now)
        while self._ends and self._ends[0][0] <= now:
            key = heappop(self._ends)
            for start, _ in self._jobs.pop(key):
                self._count(start, *key, -1)


# ---------------------------------------------------------------------- all consumers


class Consumers:
    """Limits of users and groups, their usage, and pools that are kept free.

    `used`: the system's usage, by resource (sRS); always up to date.

    Notes
    -----
    At each time of its validity, a limit of items is reduced by the consumer's usage at that time. Cron strings are
    expanded once a day, up to `HORIZON_S` and a little more; after that they always bind. A consumer's view costs
    O(slots of the system + slots of the consumer + windows of the validities) for each resource.

    A job that leaves early is reported by `revoke`, a job that used its whole time by `forget_before`: until then it
    counts among the jobs in the plan, and in areas.

    Examples
    --------
    >>> from asa.backends.openccs.cluster import PlannedCluster
    >>> from asa.backends.openccs.requests import ResourceRequest
    >>> from asa.backends.openccs.system import oculus
    >>> cluster = PlannedCluster(oculus())
    >>> consumers = Consumers(cluster.used, [Limit("user", "*", "ncpus", Items.parse("640"))])
    >>> def plan(text, user):
    ...     ask = cluster.prepare(ResourceRequest.parse(text))
    ...     placement = cluster.find(ask, 0, views=consumers.views(ask, user, "", 0, 0))
    ...     cluster.book(placement)
    ...     consumers.book(user, "", placement)
    ...     return placement.start
    >>> [plan("rset=40:ncpus=10,walltime=1h", user) for user in ("alice", "alice", "bob")]
    [0, 3600, 0]
    """

    def __init__(self, used: Mapping[str, RUSV], limits: Sequence[Limit] = (), pools: Sequence[FreePool] = ()) -> None:
        self._used = used
        self._limits = tuple(limits)
        self._pools = tuple(pools)
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._found: dict[tuple[str, str], tuple[_Account, ...]] = {}
        known = [*used, *_COUNTED, _ANY]
        named = [(f"limit of {limit.kind} {limit.name!r}", limit.resource, known) for limit in self._limits]
        for pool in self._pools:
            of_pool = pool.resource, *(name for access in pool.access for name in access.at_most)
            named += [(f"pool {pool.name!r}", name, list(used)) for name in of_pool]
        for where, name, names in named:
            if name not in names:
                hint = f"{near(name, names)}Known: {', '.join(names)}."
                raise InputError(f"there is no resource {name!r}", where=where, hint=hint)

    def _of(self, user: str, group: str) -> tuple[_Account, ...]:
        """Return the accounts of a user and of a group that have limits."""
        found = self._found.get((user, group))
        if found is None:
            accounts = (self._account("user", user), self._account("group", group))
            found = self._found[user, group] = tuple(account for account in accounts if account.bounds)
        return found

    def _account(self, kind: str, name: str) -> _Account:
        if (kind, name) not in self._accounts:
            own = [limit for limit in self._limits if limit.kind == kind and limit.name in {name, _ANY}]
            bounds = {}
            for resource in (*self._used, *_COUNTED):
                found = [limit for limit in own if limit.resource == resource]
                if not found and resource not in _COUNTED:
                    found = [limit for limit in own if limit.resource == _ANY]
                if found:
                    bounds[resource] = tuple(_Bound(limit, resource) for limit in found)
            sizes = {resource: vector.most for resource, vector in self._used.items()}
            self._accounts[kind, name] = _Account(f"{kind} {name!r}", bounds, sizes)
        return self._accounts[kind, name]

    # ------------------------------------------------------------------ views of requests

    def never(self, ask: Ask, user: str, group: str, elements: int = 0) -> str:
        """Return why a request can never be accepted, by limits that are always valid."""
        wanted = dict(ask.totals) | {_JOBS: 1, _ARRAY_JOBS: elements}
        for account in self._of(user, group):
            for name, items in wanted.items():
                for bound in account.bounds.get(name, ()):
                    size = self._used[name].most if name in self._used else 0
                    if _is_always(bound.limit.validity) and (why := _why_never(bound, items, ask, size)):
                        return f"{why} the limit of {account.who} on {name}"
        for pool in self._pools:
            if pool.binds(ask, user, group) and _is_always(pool.validity):
                most, items = self._used[pool.resource].most, ask.totals[pool.resource]
                if items > most - pool.keeps(most):
                    of = _items(pool.resource, pool.keeps(most)), _items(pool.resource, most)
                    more = f"asks for {_items(pool.resource, items)} of {pool.resource}"
                    return f"{more}, and the pool {pool.name!r} keeps {of[0]} of {of[1]} free for others"
        return ""

    def views(self, ask: Ask, user: str, group: str, since: int, stop: int) -> Mapping[str, RUSV]:
        """Return the usage of each resource as a consumer sees it (uRS, Section 5.1).

        Returns: only resources that the consumer asks for and that a limit or a pool binds.
        """
        views: dict[str, RUSV] = {}
        if not (self._limits or self._pools):
            return views
        span = _span(since, ask.lasts_s)
        more_s = min(ask.lasts_s, stop - since + 1) if stop else ask.lasts_s  # less for a request to be extended
        pools = [pool for pool in self._pools if pool.binds(ask, user, group)]
        accounts = self._of(user, group)
        is_new = more_s == ask.lasts_s
        for index, (name, items) in enumerate(ask.totals.items()):
            view = self._used[name]
            available = view.available
            if kept := tuple((pool.validity, pool.keeps(available)) for pool in pools if pool.resource == name):
                view += _kept(kept, *span)
            for account in accounts:
                held = [
                    (bound.limit.validity, left)
                    for bound in account.bounds.get(name, ())
                    if (left := bound.left(available, ask.walltime_s, items * more_s)) is not None
                ]
                if is_new and not index:  # without free items of one resource the request does not fit
                    jobs = account.bounds.get(_JOBS, ())
                    held += [(bound.limit.validity, 0) for bound in jobs if _is_full(bound, account)]
                if held:
                    limit = _limited(available, tuple(held), *span)
                    own = account.used.get(name)
                    view = view.min_free(limit if own is None else limit - own)
            if view is not self._used[name]:
                views[name] = view
        return views

    def explain(self, ask: Ask, user: str, group: str, start: int, stop: int) -> list[str]:
        """Return the limits and pools that bind a request at a time, first those that prevent it.

        `start`, `stop`: the time span; with a stop of 0, that of a request that starts then.
        """
        end = stop + 1 if stop else start + ask.lasts_s
        found: list[tuple[bool, str]] = []
        for account in self._of(user, group):
            for name, items in (*ask.totals.items(), (_JOBS, 1)):
                for bound in account.bounds.get(name, ()):
                    if windows := list(bound.limit.validity.windows(start, end)):
                        found += self._explain_limit(account, bound, items, ask, windows)
        for pool in self._pools:
            windows = list(pool.validity.windows(start, end)) if pool.binds(ask, user, group) else []
            if windows:
                vector = self._used[pool.resource]
                keeps = pool.keeps(vector.available)
                least = min(vector.min_free_within(since, until) for since, until in windows)
                words = (
                    f"the pool {pool.name!r} keeps {_items(pool.resource, keeps)} of {pool.resource} free for others"
                )
                left = _items(pool.resource, max(least, 0))
                found.append((least - keeps < ask.totals[pool.resource], f"{words}, and {left} are free then"))
        return [words for _, words in sorted(found, key=lambda condition: not condition[0])]

    def _explain_limit(
        self, account: _Account, bound: _Bound, items: int, ask: Ask, windows: Sequence[tuple[int, int]]
    ) -> Iterable[tuple[bool, str]]:
        """Describe what each part of a limit allows a request, and whether that is too little."""
        limit, name = bound.limit, bound.resource
        about = f"the limit of {account.who} on {name}"
        if name == _JOBS:
            if limit.items.number is not None:
                text = f"{about}: {limit.items}, of which {account.jobs} are in the plan"
                yield account.jobs >= limit.items.number, text
            return
        most = limit.items.of(self._used[name].available)
        if most is not None:
            own = account.used[name]
            used = own.available - min(own.min_free_within(since, until) for since, until in windows)
            yield used + items > most, f"{about}: {_items(name, most)}, of which {_items(name, used)} are used then"
        if limit.duration_s is not None:
            longest, lasts = format_walltime(limit.duration_s), format_walltime(ask.walltime_s)
            yield ask.walltime_s > limit.duration_s, f"{about}: no longer than {longest}, and the request lasts {lasts}"
        if limit.area is not None:
            text = f"{about}: an area of {_hours(limit.area)}, of which jobs in the plan hold {_hours(bound.area)}"
            own_area = items * ask.lasts_s
            yield bound.area + own_area > limit.area, f"{text}, and the request asks for {_hours(own_area)}"

    # ------------------------------------------------------------------ usage

    def book(self, user: str, group: str, placement: Placement) -> None:
        """Record the resources of a job of a user and a group, or of its extension."""
        if self._limits:
            for account in self._of(user, group):
                account.book(placement)

    def revoke(self, user: str, group: str, placement: Placement) -> None:
        """Record that a job no longer uses resources, entirely or from a time on.

        `placement`: begins later than the booked one if the job has run until then, and only its rest is given back.
        Jobs are identified by their array of nodes, which `dataclasses.replace` keeps.
        """
        if self._limits:
            for account in self._of(user, group):
                account.revoke(placement)

    def shorten(self, user: str, group: str, placement: Placement, end: int) -> None:
        """Record that a job will end earlier than its placement does."""
        if self._limits:
            for account in self._of(user, group):
                account.shorten(placement, end)

    def forget_before(self, now: int) -> None:
        """Discard the past: jobs that ended by `now` no longer count. O(discarded entries + slots)."""
        for account in self._accounts.values():
            account.forget_before(now)


def _is_always(validity: Validity) -> bool:
    cron = validity.cron
    return validity == _ALWAYS if cron is None else cron.template() == ((0, cron.period),)


def _why_never(bound: _Bound, items: int, ask: Ask, size: int) -> str:
    """Return the part of a request that exceeds a limit even if its consumer uses nothing else."""
    limit, name = bound.limit, bound.resource
    most = limit.items.of(size)
    if most is not None and items > most:
        what = f"has {items} jobs" if name in _COUNTED else f"asks for {_items(name, items)} of {name}"
        return f"{what}, more than {_items(name, most)},"
    if limit.duration_s is not None and ask.walltime_s > limit.duration_s:
        return f"lasts {format_walltime(ask.walltime_s)}, longer than {format_walltime(limit.duration_s)},"
    if limit.area is not None and items * ask.lasts_s > limit.area:
        return f"asks for an area of {_hours(items * ask.lasts_s)}, more than {_hours(limit.area)},"
    return ""


def _is_full(bound: _Bound, account: _Account) -> bool:
    return bound.limit.items.number is not None and account.jobs >= bound.limit.items.number


def _items(resource: str, items: int) -> str:
    return str(Size(items) if STANDARD_KINDS.get(resource) is RequestKind.SIZE else items)


def _hours(area: int) -> str:
    return f"{area / 3600:.12g}h"
