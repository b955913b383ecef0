"""Limits, pools, and rules for users and groups from a TOML file.

Required are only the consumer of a limit and of a rule, the resource of a limit, and the name, the resource and the
items of a pool:

.. code-block:: toml

    [[limits]]
    user = "alice"                   # or group = "physics"; "*" is everybody, each for himself
    resource = "ncpus"               # "*" is each resource without a limit of its own
    items = "640"                    # as `Items.parse` reads them
    duration = "4d3h"
    area = "500h"                    # items times hours
    validity = "01.08.17-31.08.17"   # as `Validity.parse` reads it

    [[pools]]
    name = "small"
    resource = "ncpus"
    items = "10/20%"
    access = [{ groups = ["physics"] }, { at_most = { ncpus = 3 }, duration = "59m" }]

    [[consumers]]
    user = "alice"                   # as of a limit
    validity = "/2017-12-31"         # she can submit, and her jobs run, until then
    default = "walltime=2h,rset=mem=2g"   # what her requests have if they say nothing of it; memory for each chunk
    force = "place=scatter"          # what they have in any case
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from asa.errors import InputError, near
from asa.units import parse_duration

from .limits import Access, FreePool, Items, Limit
from .requests import STANDARD_KINDS, RequestKind, RequestParts
from .rules import ConsumerRule
from .system import read_toml
from .validity import Validity

_LIMIT: Final = ("user", "group", "resource", "items", "duration", "area", "validity")
_POOL: Final = ("name", "resource", "items", "validity", "access")
_RULE: Final = ("user", "group", "validity", "default", "force")
_ACCESS: Final = ("users", "groups", "at_most", "duration")
_AREA = re.compile(r"[0-9]{1,15}(\.[0-9]+)?[smhd]")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ConsumerBounds:
    """What a file says of users and groups."""

    limits: tuple[Limit, ...] = ()
    pools: tuple[FreePool, ...] = ()
    rules: tuple[ConsumerRule, ...] = ()


def load_limits(path: str | Path, kinds: Mapping[str, RequestKind] = STANDARD_KINDS) -> ConsumerBounds:
    """Read limits, pools and rules from a TOML file in the format of this module's description.

    `kinds`: the resources of the system.

    Raises `InputError`: it cannot be read, or something in it is invalid; the error names the place.
    """
    file = _LimitsTable(read_toml(path), str(path), ("limits", "pools", "consumers"))
    return ConsumerBounds(
        tuple(map(_limit, file.tables("limits", _LIMIT))),
        tuple(map(_pool, file.tables("pools", _POOL))),
        tuple(_rule(table, kinds) for table in file.tables("consumers", _RULE)),
    )


class _LimitsTable:
    """A table of the file, with its position for error messages."""

    def __init__(self, values: object, where: str, known: Sequence[str]) -> None:
        if not isinstance(values, dict):
            raise InputError("is no table", where=where, hint=f"Give it {', '.join(known)}.")
        self.values: Mapping[str, Any] = values
        self.where = where
        for key in values:
            if key not in known:
                hint = f"{near(key, known)}Known: {', '.join(known)}."
                raise InputError(f"does not know {key!r}", where=where, hint=hint)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def tables(self, key: str, known: Sequence[str]) -> list[_LimitsTable]:
        """Return the tables of an array."""
        entries = self.read(key, _list) or []
        return [_LimitsTable(entry, f"{self.where}: {key} {number}", known) for number, entry in enumerate(entries, 1)]

    def read(self, key: str, convert: Callable[[Any], _T]) -> _T | None:
        """Convert a value, if present; errors name its position."""
        return self.need(key, convert) if key in self else None

    def need(self, key: str, convert: Callable[[Any], _T]) -> _T:
        """Convert a required value."""
        if key not in self:
            raise InputError(f"has no {key}", where=self.where, hint=f"Give it {key} = ...")
        try:
            return convert(self.values[key])
        except InputError as error:
            error.where = f"{self.where}: {key}"
            raise

    def build(self, make: Callable[..., _T], **values: Any) -> _T:
        """Construct the object described by the table."""
        try:
            return make(**values)
        except InputError as error:
            error.where = self.where
            raise


def _kind_of(table: _LimitsTable) -> Literal["user", "group"]:
    if ("user" in table) == ("group" in table):
        raise InputError("is not of one consumer", where=table.where, hint="Give it user or group; * is everybody.")
    return "user" if "user" in table else "group"


def _rule(table: _LimitsTable, kinds: Mapping[str, RequestKind]) -> ConsumerRule:
    kind = _kind_of(table)

    def parts(value: object) -> RequestParts:
        return RequestParts.parse(_text(value), kinds)

    return table.build(
        ConsumerRule,
        kind=kind,
        name=table.need(kind, _name),
        validity=table.read("validity", _validity) or Validity(),
        default=table.read("default", parts) or RequestParts(),
        force=table.read("force", parts) or RequestParts(),
    )


def _limit(table: _LimitsTable) -> Limit:
    kind = _kind_of(table)
    return table.build(
        Limit,
        kind=kind,
        name=table.need(kind, _name),
        resource=table.need("resource", _name),
        items=table.read("items", _read_items) or Items(),
        duration_s=table.read("duration", _duration),
        area=table.read("area", _area),
        validity=table.read("validity", _validity) or Validity(),
    )


def _pool(table: _LimitsTable) -> FreePool:
    return FreePool(
        table.need("name", _name),
        table.need("resource", _name),
        table.need("items", _read_items),
        table.read("validity", _validity) or Validity(),
        tuple(map(_access, table.tables("access", _ACCESS))),
    )


def _access(table: _LimitsTable) -> Access:
    return table.build(
        Access,
        users=table.read("users", _names) or (),
        groups=table.read("groups", _names) or (),
        at_most=table.read("at_most", _numbers) or {},
        at_most_s=table.read("duration", _duration) or 0,
    )


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"is no list: {value!r}", hint="Put it between brackets; a table, between two of them.")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"is no text: {value!r}", hint="Put it between quotation marks.")
    return value


def _name(value: object) -> str:
    if not (text := _text(value)):
        raise InputError("is empty", hint="Write a name.")
    return text


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(_name, _list(value)))


def _read_items(value: object) -> Items:
    return Items.parse(str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value))


def _numbers(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise InputError(f"is no table: {value!r}", hint="Write it as { ncpus = 3 }.")
    numbers = {}
    for name, items in value.items():
        read = _read_items(items)
        if read.number is None or read.percent is not None:
            raise InputError(f"is no number of {name}: {items!r}", hint="Write it as { ncpus = 3 }.")
        numbers[name] = read.number
    return numbers


def _duration(value: object) -> int | None:
    if value == "none":
        return None
    seconds = int(parse_duration(_text(value)))
    if seconds < 1:
        raise InputError("is no time at all", hint="Write a longer one, or none.")
    return seconds


def _area(value: object) -> int | None:
    if value == "none":
        return None
    if not _AREA.fullmatch(_text(value)):
        raise InputError(f"{value!r} is no area", hint="Write items times s, m, h or d, such as 1024h, or none.")
    return int(parse_duration(_text(value)))


def _validity(value: object) -> Validity:
    return Validity.parse(_text(value))
