"""What users and groups see of the system: their limits, their usage, and pools that are kept free (Section 5.1)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

from asa.errors import InputError, near
from asa.units import format_walltime

from .accounts import Account, Bound
from .bounds import expansion_span, kept_free, limited_to, valid_within
from .cluster import Ask, Placement
from .limits import ALWAYS, ANY, ARRAY_JOBS, COUNTED, JOBS, FreePool, Limit
from .requests import STANDARD_KINDS, RequestKind, ResourceRequest, Size
from .rules import ConsumerRule, rules_of
from .rusv import RUSV
from .validity import Validity


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
    >>> from asa.backends.openccs.limits import Items
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

    def __init__(
        self,
        used: Mapping[str, RUSV],
        limits: Sequence[Limit] = (),
        pools: Sequence[FreePool] = (),
        rules: Sequence[ConsumerRule] = (),
    ) -> None:
        self._used = used
        self._limits = tuple(limits)
        self._pools = tuple(pools)
        self._rules = tuple(rules)
        self._accounts: dict[tuple[str, str], Account] = {}
        self._found: dict[tuple[str, str], tuple[Account, ...]] = {}
        known = [*used, *COUNTED, ANY]
        named = [(f"limit of {limit.kind} {limit.name!r}", limit.resource, known) for limit in self._limits]
        for pool in self._pools:
            of_pool = pool.resource, *(name for access in pool.access for name in access.at_most)
            named += [(f"pool {pool.name!r}", name, list(used)) for name in of_pool]
        for where, name, names in named:
            if name not in names:
                hint = f"{near(name, names)}Known: {', '.join(names)}."
                raise InputError(f"there is no resource {name!r}", where=where, hint=hint)

    def fork(self, used: Mapping[str, RUSV]) -> Consumers:
        """Return a copy with accounts of its own. `used`: the usage of the copied system."""
        fork = copy.copy(self)
        fork._used = used
        fork._accounts = {name: account.fork() for name, account in self._accounts.items()}
        fork._found = {}
        return fork

    def _of(self, user: str, group: str) -> tuple[Account, ...]:
        """Return the accounts of a user and of a group that have limits."""
        found = self._found.get((user, group))
        if found is None:
            accounts = (self._account("user", user), self._account("group", group))
            found = self._found[user, group] = tuple(account for account in accounts if account.bounds)
        return found

    def _account(self, kind: str, name: str) -> Account:
        if (kind, name) not in self._accounts:
            own = [limit for limit in self._limits if limit.kind == kind and limit.name in {name, ANY}]
            bounds = {}
            for resource in (*self._used, *COUNTED):
                found = [limit for limit in own if limit.resource == resource]
                if not found and resource not in COUNTED:
                    found = [limit for limit in own if limit.resource == ANY]
                if found:
                    bounds[resource] = tuple(Bound(limit, resource) for limit in found)
            sizes = {resource: vector.most for resource, vector in self._used.items()}
            self._accounts[kind, name] = Account(f"{kind} {name!r}", bounds, sizes)
        return self._accounts[kind, name]

    # ------------------------------------------------------------------ users and groups

    def completed(self, request: ResourceRequest, user: str, group: str) -> ResourceRequest:
        """Return a request with the values that its user and group have by default, or are forced to have.

        What is said of a user counts more than what is said of the group, and that more than what is said of all.
        """
        own = rules_of(self._rules, user, group) if self._rules else []
        for rule in own:
            request = request.with_defaults(rule.default)
        for rule in reversed(own):
            request = request.forced(rule.force)
        return request

    def invalid(self, user: str, group: str, now: int) -> str:
        """Return why a user or a group may not submit now; empty if it may."""
        for who, validity in self._validities(user, group):
            if not any(validity.windows(now, now + 1)):
                return f"{who} is not valid now, but {validity}"
        return ""

    def _validities(self, user: str, group: str) -> list[tuple[str, Validity]]:
        """Return the validities of a user and its group, without those that are always."""
        own = rules_of(self._rules, user, group) if self._rules else []
        return [(rule.who(user, group), rule.validity) for rule in own if rule.validity != ALWAYS]

    # ------------------------------------------------------------------ views of requests

    def never(self, ask: Ask, user: str, group: str, elements: int = 0) -> str:
        """Return why a request can never be accepted, by limits that are always valid."""
        wanted = dict(ask.totals) | {JOBS: 1, ARRAY_JOBS: elements}
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
        if not (self._limits or self._pools or self._rules):
            return views
        validities = tuple(validity for _, validity in self._validities(user, group))
        span = expansion_span(since, ask.lasts_s)
        more_s = min(ask.lasts_s, stop - since + 1) if stop else ask.lasts_s  # less for a request to be extended
        pools = [pool for pool in self._pools if pool.binds(ask, user, group)]
        accounts = self._of(user, group)
        is_new = more_s == ask.lasts_s
        for index, (name, items) in enumerate(ask.totals.items()):
            view = self._used[name]
            available = view.available
            if kept := tuple((pool.validity, pool.keeps(available)) for pool in pools if pool.resource == name):
                view += kept_free(kept, *span)
            for account in accounts:
                held = [
                    (bound.limit.validity, left)
                    for bound in account.bounds.get(name, ())
                    if (left := bound.left(available, ask.walltime_s, items * more_s)) is not None
                ]
                if is_new and not index:  # without free items of one resource the request does not fit
                    jobs = account.bounds.get(JOBS, ())
                    held += [(bound.limit.validity, 0) for bound in jobs if _is_full(bound, account)]
                if held:
                    limit = limited_to(available, tuple(held), *span)
                    own = account.used.get(name)
                    view = view.min_free(limit if own is None else limit - own)
            if validities and not index:  # without free items of one resource the request does not fit
                view = view.min_free(valid_within(available, validities, *span))
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
            for name, items in (*ask.totals.items(), (JOBS, 1)):
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
        for who, validity in self._validities(user, group):
            is_valid = list(validity.windows(start, end)) == [(start, end)]
            found.append((not is_valid, f"the validity of {who}: {validity}"))
        return [words for _, words in sorted(found, key=lambda condition: not condition[0])]

    def _explain_limit(
        self, account: Account, bound: Bound, items: int, ask: Ask, windows: Sequence[tuple[int, int]]
    ) -> Iterable[tuple[bool, str]]:
        """Describe what each part of a limit allows a request, and whether that is too little."""
        limit, name = bound.limit, bound.resource
        about = f"the limit of {account.who} on {name}"
        if name == JOBS:
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
    return validity == ALWAYS if cron is None else cron.template() == ((0, cron.period),)


def _why_never(bound: Bound, items: int, ask: Ask, size: int) -> str:
    """Return the part of a request that exceeds a limit even if its consumer uses nothing else."""
    limit, name = bound.limit, bound.resource
    most = limit.items.of(size)
    if most is not None and items > most:
        what = f"has {items} jobs" if name in COUNTED else f"asks for {_items(name, items)} of {name}"
        return f"{what}, more than {_items(name, most)},"
    if limit.duration_s is not None and ask.walltime_s > limit.duration_s:
        return f"lasts {format_walltime(ask.walltime_s)}, longer than {format_walltime(limit.duration_s)},"
    if limit.area is not None and items * ask.lasts_s > limit.area:
        return f"asks for an area of {_hours(items * ask.lasts_s)}, more than {_hours(limit.area)},"
    return ""


def _is_full(bound: Bound, account: Account) -> bool:
    return bound.limit.items.number is not None and account.jobs >= bound.limit.items.number


def _items(resource: str, items: int) -> str:
    return str(Size(items) if STANDARD_KINDS.get(resource) is RequestKind.SIZE else items)


def _hours(area: int) -> str:
    return f"{area / 3600:.12g}h"
