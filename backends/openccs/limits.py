"""Limits of users and groups, and pools of resources that are kept free (Section 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from asa.errors import InputError

from .cluster import Ask
from .pieces import LARGEST
from .validity import Validity

ANY: Final = "*"
JOBS: Final = "jobs"
ARRAY_JOBS: Final = "arrayjobs"
COUNTED: Final = (JOBS, ARRAY_JOBS)
_ITEMS = re.compile(r"(?:([0-9]{1,40})(?:([kmgtp])b?)?)?(?:/([0-9]{1,3})%)?", re.IGNORECASE)


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


UNLIMITED: Final = Items()
ALWAYS: Final = Validity()


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound of a consumer's use of a resource. Each of its parts binds only within its validity."""

    # consumer of the limit. The name `*` means each consumer of the kind separately, in addition to own limits.
    kind: Literal["user", "group"]
    name: str
    # the resource. `*` is each resource without a limit for this consumer, valid or not; limits for all consumers
    # count. `jobs` are those in the plan, `arrayjobs` the jobs of one array.
    resource: str
    items: Items = UNLIMITED  # number of items at a time
    duration_s: int | None = None  # longer requests get nothing
    # upper bound of items times seconds of all planned and running jobs within the validity, in all its windows. A
    # request counts fully; beyond the bound it must wait until others leave.
    area: int | None = None
    validity: Validity = ALWAYS

    def __post_init__(self) -> None:
        where = f"limit of {self.kind} {self.name!r} on {self.resource}"
        if self.kind not in {"user", "group"}:
            raise InputError(f"{self.kind!r} is no consumer", where=where, hint="Limits are of a user or a group.")
        parts = (self.items.percent, self.duration_s, self.area)
        if self.resource in COUNTED and any(part is not None for part in parts):
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
    validity: Validity = ALWAYS
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
