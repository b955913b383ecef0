"""Writes dataclasses as JSON, and makes them again by the types of their fields.

It is for values that asa itself writes and reads, in any version, such as those in run folders: what does not fit is
refused in a phrase, which need not help anybody to write such a file. Files that users write are read by pydantic: its
import and its schemas took a third of the time of `asa status`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def written(value: Any, *, in_short: bool = False) -> str:
    """Write a value as JSON on one line: dataclasses as objects with their fields.

    `in_short`: leave out the fields that have their default, but for those of a `Literal` type. They are read with the
    default of that time, so defaults of what is kept in files must not change.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Job:
    ...     cores: int
    ...     after: tuple[str, ...] = ()
    >>> written(Job(28)), made(Job, {"cores": 28, "after": ["a"], "later": 1})
    ('{"cores":28,"after":[]}', Job(cores=28, after=('a',)))
    >>> written(Job(28), in_short=True)
    '{"cores":28}'
    """
    parts = _parts_in_short if in_short else _parts
    return json.dumps(value, default=parts, ensure_ascii=False, separators=(",", ":"))


def written_by_field(value: Any) -> str:
    """Write a dataclass as JSON with a line for each field, which people can search."""
    lines = (f" {json.dumps(name)}: {written(part)}" for name, part in _parts(value).items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def made(kind: type[T], parts: Any) -> T:
    """Make a value of a type from what a JSON reader returned; keys of later versions are ignored.

    Raises `ValueError`: it does not fit the type.
    """
    maker: Callable[[Any], T] = _maker(cast("Any", kind))
    return maker(parts)


def _parts(value: Any) -> Any:
    """Return what JSON has in place of a value that it does not know."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in _names(value.__class__)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be written")


def _parts_in_short(value: Any) -> Any:
    if not is_dataclass(value):
        return _parts(value)
    parts = {}
    for name, default in _defaults(value.__class__):
        part = getattr(value, name)
        if part is not default and (part.__class__ is not default.__class__ or part != default):
            parts[name] = part
    return parts


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return a type's fields with their defaults; `MISSING`, which no value is, for one that is always written."""
    hints = get_type_hints(kind)

    def default_of(field: Field[Any]) -> Any:
        if get_origin(hints[field.name]) is Literal:
            return MISSING
        return field.default if field.default_factory is MISSING else field.default_factory()

    return tuple((field.name, default_of(field)) for field in fields(kind))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _maker(kind: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of a type; built when a value of that type is first read."""
    if kind is Any:
        return lambda given: given
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin = get_origin(kind)
    if origin is not None:
        return _BY_ORIGIN[origin](get_args(kind))
    if issubclass(kind, Enum):
        members = {member.value: member for member in kind}
        return lambda given: members[given] if given.__class__ is str and given in members else kind(given)
    return _record(kind) if issubclass(kind, tuple) else _object(kind)


def _refuse(given: Any, wanted: str) -> ValueError:
    return ValueError(f"{given!r:.40} is not {wanted}")


def _float(given: Any) -> float:
    if type(given) is float:
        return given
    if type(given) is int:
        try:
            return float(given)
        except OverflowError:
            pass
    raise _refuse(given, "a number")


def _int(given: Any) -> int:
    if type(given) is int:
        return given
    if type(given) is float and given.is_integer():
        return int(given)
    raise _refuse(given, "a whole number")


def _exactly(kind: type, wanted: str) -> Callable[[Any], Any]:
    def make(given: Any) -> Any:
        if type(given) is kind:
            return given
        raise _refuse(given, wanted)

    return make


_PLAIN: Mapping[Any, Callable[[Any], Any]] = {
    float: _float,
    int: _int,
    str: _exactly(str, "a text"),
    bool: _exactly(bool, "true or false"),
    NoneType: _exactly(NoneType, "null"),
}


def _one_of(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Make a value of the first type that it fits, and of exactly its own type if that is among them."""
    exact = frozenset(kind for kind in kinds if kind in _PLAIN)
    makers = [_maker(kind) for kind in kinds if kind is not NoneType]

    def make(given: Any) -> Any:
        if type(given) in exact:
            return given
        for maker in makers[:-1]:
            try:
                return maker(given)
            except ValueError:
                continue
        return makers[-1](given)

    return make


def _literally(values: tuple[Any, ...]) -> Callable[[Any], Any]:
    def make(given: Any) -> Any:
        if given in values:
            return given
        raise _refuse(given, f"one of {', '.join(map(repr, values))}")

    return make


def _list(given: Any) -> list[Any]:
    if type(given) is list:
        return given
    raise _refuse(given, "a list")


def _tuple_of(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    if kinds[-1] is Ellipsis:
        return _several(tuple, _maker(kinds[0]))
    makers = [_maker(kind) for kind in kinds]

    def make(given: Any) -> Any:
        if len(_list(given)) != len(makers):
            raise _refuse(given, f"a list of {len(makers)}")
        return tuple(maker(part) for maker, part in zip(makers, given, strict=True))

    return make


def _several(whole: Callable[[Any], Any], maker: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda given: whole([maker(part) for part in _list(given)])


def _mapping_to(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    maker = _maker(kinds[1])

    def make(given: Any) -> Any:
        return {key: maker(part) for key, part in _object_in(given).items()}

    return make


def _object_in(given: Any) -> dict[str, Any]:
    if type(given) is dict:
        return given
    raise _refuse(given, "an object")


def _record(kind: Any) -> Callable[[Any], Any]:
    """Make a named tuple, which JSON has as a list."""
    makers = [_maker(hint) for hint in get_type_hints(kind).values()]
    n_required = len(makers) - len(kind._field_defaults)

    def make(given: Any) -> Any:
        if not n_required <= len(_list(given)) <= len(makers):
            raise _refuse(given, f"a list of {len(makers)}")
        return kind(*(maker(part) for maker, part in zip(makers, given, strict=False)))

    return make


class _Fields(NamedTuple):
    makers: dict[str, Callable[[Any], Any]]
    required: set[str]


@cache
def _fields_of(kind: type) -> _Fields:
    hints = get_type_hints(kind)
    required = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    return _Fields({one.name: _maker(hints[one.name]) for one in fields(kind)}, required)


def _object(kind: type) -> Callable[[Any], Any]:
    def make(given: Any) -> Any:
        makers, required = _fields_of(kind)  # found once there is such an object: of many types there is none
        if missing := required - _object_in(given).keys():
            raise ValueError(f"{kind.__name__} lacks {', '.join(sorted(missing))}")
        return kind(**{name: makers[name](part) for name, part in given.items() if name in makers})

    return make


_BY_ORIGIN: Mapping[Any, Callable[[tuple[Any, ...]], Callable[[Any], Any]]] = {
    Union: _one_of,
    UnionType: _one_of,
    Literal: _literally,
    tuple: _tuple_of,
    frozenset: lambda kinds: _several(frozenset, _maker(kinds[0])),
    dict: _mapping_to,
    Mapping: _mapping_to,
}
