"""The language in which a job asks for resources: chunks, job-wide resources, a placement and times.

A request is a list of parts, separated by commas:

.. code-block:: text

    rset=[N:]chunk[+[N:]chunk...]     chunks: what must be on one node, each N times
    place=free|pack|scatter[:excl|:shared], place=excl
    walltime=2h                       as `asa.units.parse_duration` reads it: a bare number is minutes
    start=2017-08-01T12:00            when it must begin
    deadline=2017-08-31T18:00         when it must have ended
    array=0-9999, array=10            a job array, by its first and last index or by its length
    priority=5
    depend=afterok:a:b+afterany:c     what other jobs must have done (see `dependencies.DependencyKind`)
    notify=10m                        how long before the end of its walltime the job is notified
    reservation=NAME                  the reservation in whose resources it runs
    name=value                        anything else is a job-wide resource, as a licence or disk space

A chunk is ``name=value[:name=value...]``. A time is ISO 8601 or a number of seconds since 1970; without a zone it is
UTC, and a date alone is its first second. Any other text is an error that points at it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from asa.errors import InputError, near
from asa.units import format_walltime, parse_duration

from .dependencies import RequestDependency, read_dependencies
from .pieces import LARGEST, LATEST_S, WHOLE, Piece, PointedError, iso, moment

_SEPARATORS: Final = ",:+="
_SIZE_UNITS: Final = {"": 1, "b": 1, **{u + b: 1024**n for n, u in enumerate("kmgtp", 1) for b in ("", "b")}}


class RequestError(PointedError):
    """A request for resources cannot be understood."""


class RequestKind(StrEnum):
    """Kind of a resource: the type of its values, and whether it is consumed."""

    COUNT = "count"
    """A whole number; a job consumes the requested amount."""
    SIZE = "size"
    """A consumed number of bytes; with a unit k, m, g, t or p, of powers of 1024, optionally followed by b."""
    PROPERTY = "property"
    """Text that must equal a node's property; nothing is consumed. Job-wide it is one licence of that name."""
    FLAG = "flag"
    """A property that is true or false."""
    SETTING = "setting"
    """A whole number that is passed to the job; nodes need not have it, and nothing is consumed."""


STANDARD_KINDS: Final[Mapping[str, RequestKind]] = MappingProxyType(
    {
        "ncpus": RequestKind.COUNT,
        "gpus": RequestKind.COUNT,
        "mem": RequestKind.SIZE,
        "vmem": RequestKind.SIZE,
        "ompthreads": RequestKind.SETTING,
        "arch": RequestKind.PROPERTY,
        "acc": RequestKind.PROPERTY,
        "net": RequestKind.PROPERTY,
        "rack": RequestKind.PROPERTY,
        "sw": RequestKind.PROPERTY,
    }
)
"""The resources of the paper's examples. A job's threads consume nothing besides its cores, so they are a setting."""


class Size(int):
    """A number of bytes, written with the largest unit that divides it.

    Examples
    --------
    >>> size = Size(12 * 1024**3)
    >>> print(size, size + 1)
    12g 12884901889
    """

    __slots__ = ()

    def __str__(self) -> str:
        unit = next((u for u in "ptgmk" if self and self % _SIZE_UNITS[u] == 0), "")
        return f"{int(self) // _SIZE_UNITS[unit]}{unit}"


class Arrangement(StrEnum):
    """Distribution of a job's chunks over nodes."""

    FREE = "free"
    """Without a rule."""
    PACK = "pack"
    """All chunks on one node."""
    SCATTER = "scatter"
    """Each chunk on a node of its own."""


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """The way in which chunks are placed.

    Examples
    --------
    >>> print(PlacementRule(Arrangement.SCATTER, exclusive=True))
    scatter:excl
    """

    arrangement: Arrangement = Arrangement.FREE
    exclusive: bool = False  # whether no other job may use their nodes at the same time

    def __str__(self) -> str:
        return f"{self.arrangement}:excl" if self.exclusive else str(self.arrangement)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Resources that must be on one node, and the number of such sets.

    Examples
    --------
    >>> print(Chunk(8, {"ncpus": 2}, {"rack": "8"}))
    8:ncpus=2:rack=8
    """

    count: int
    needs: Mapping[str, int] = field(default_factory=dict)  # amounts taken by each, by resource; sizes in bytes
    # required properties of the node; flags are `"true"` or `"false"`
    properties: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)  # numbers passed to the job

    def over(self, other: Chunk) -> Chunk:
        """Return this chunk with what another has, and it has not."""
        return Chunk(
            self.count,
            {**self.needs, **other.needs, **self.needs},
            {**self.properties, **other.properties, **self.properties},
            {**self.settings, **other.settings, **self.settings},
        )

    def __str__(self) -> str:
        items = (*self.needs.items(), *self.properties.items(), *self.settings.items())
        written = ":".join(f"{name}={value!s}" for name, value in items)
        return written if self.count == 1 else f"{self.count}:{written}"


@dataclass(frozen=True, slots=True)
class RequestParts:
    """Some parts of a request, as they are given in its language; a whole request has at least ``rset``.

    Examples
    --------
    >>> RequestParts.parse("walltime=2h,sw=g03").fields(), RequestParts.parse("sw=g03").job_wide
    ({'walltime_s': 7200}, {'sw': 'g03'})
    """

    terms: dict[str, Any] = field(default_factory=dict)  # the value of each part by its name
    job_wide: dict[str, int | str] = field(default_factory=dict)  # job-wide resources

    @classmethod
    def parse(cls, text: str, kinds: Mapping[str, RequestKind] = STANDARD_KINDS) -> Self:
        """Read the parts of a request."""
        terms: dict[str, Any] = {}
        job_wide: dict[str, int | str] = {}
        totals: Counter[str] = Counter()
        for part in Piece.of(text, RequestError).split(","):
            name, value = _named(part)
            if name.text in terms or name.text in job_wide:
                raise name.refuse(f"{name.text} is given twice")
            if name.text == "rset":
                terms["rset"] = tuple(_chunk(chunk, kinds, totals) for chunk in value.split("+"))
            elif name.text in _SAID:
                terms[name.text] = _SAID[name.text].read(value)
            else:
                kind = _kind(name, kinds, ["rset", *_SAID, *kinds])
                if kind in {RequestKind.FLAG, RequestKind.SETTING}:
                    raise name.refuse(f"{name.text} is a {kind}, which only a chunk has", "Write it in rset=.")
                job_wide[name.text] = _value(value, kind)
                _count(totals, name.text, job_wide[name.text], 1, value)
            if {"start", "deadline"} <= terms.keys():
                raise name.refuse("a job has a start or a deadline, not both")
        return cls(terms, job_wide)

    def fields(self) -> dict[str, Any]:
        """Return the fields of `ResourceRequest` that are given, without chunks and job-wide resources."""
        return {_SAID[name].field: value for name, value in self.terms.items() if name in _SAID}


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """The resources requested by a job (the paper's ``reqRS``). Its text form is the language of `parse`.

    Examples
    --------
    >>> request = ResourceRequest.parse("rset=5:ncpus=16:mem=12g:net=IB+ncpus=1:mem=4g, sw=g03, place=scatter:excl")
    >>> [(chunk.count, chunk.needs["ncpus"], dict(chunk.properties)) for chunk in request.chunks]
    [(5, 16, {'net': 'IB'}), (1, 1, {})]
    >>> request.job_set() == {"ncpus": 81, "mem": 64 * 1024**3}
    True
    >>> request.licences
    {'g03': 1}
    >>> print(request)
    rset=5:ncpus=16:mem=12g:net=IB+ncpus=1:mem=4g,sw=g03,place=scatter:excl
    """

    chunks: tuple[Chunk, ...]  # requirements on nodes
    # requirements for the job as a whole, not on a node: amounts, and names of licences; by resource
    job_wide: Mapping[str, int | str] = field(default_factory=dict)
    # placement of its chunks
    place: PlacementRule = PlacementRule()  # frozen
    walltime_s: int | None = None  # upper bound of its run time
    start_s: int | None = None  # required begin, or required end, in seconds since 1970; at most one of them
    deadline_s: int | None = None
    array: range | None = None  # indices of a job array
    priority: int = 0
    depend: tuple[RequestDependency, ...] = ()  # what others must have done before it may start
    notify_s: int | None = None  # how long before the end of its time it is notified
    reservation: str | None = None  # name of the reservation that it runs in
    # names of the parts that were written
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @classmethod
    def parse(cls, text: str, kinds: Mapping[str, RequestKind] = STANDARD_KINDS) -> Self:
        """Read a request.

        Examples
        --------
        >>> ResourceRequest.parse("rset=2:licence=3", {"licence": RequestKind.COUNT}).job_set()
        {'licence': 6}
        >>> ResourceRequest.parse("rset=ncpus=4, walltime=lots")
        Traceback (most recent call last):
        ...
        asa.backends.openccs.requests.RequestError: rset=ncpus=4, walltime=lots
                               ^ 'lots' is no duration
        Write it as Slurm does (90 = 90 minutes, 30:00, 2:00:00, 1-12:00) or with units (1h30m, 45s).
        """
        parts = RequestParts.parse(text, kinds)
        if "rset" not in parts.terms:
            end = Piece(text, len(text), len(text), RequestError)
            raise end.refuse("it asks for no node: rset= is missing", "Write one, as in rset=2:ncpus=4:mem=8g.")
        return cls(parts.terms["rset"], parts.job_wide, **parts.fields(), given=frozenset(parts.terms))

    def altered(self, parts: RequestParts) -> Self:
        """Return the request with other values of some of its parts.

        A start replaces a deadline, and a deadline a start; job-wide resources are added, or replaced by name.

        Examples
        --------
        >>> request = ResourceRequest.parse("rset=ncpus=4,walltime=1h,deadline=86400,sw=g03")
        >>> print(request.altered(RequestParts.parse("rset=2:ncpus=8,start=3600")))
        rset=2:ncpus=8,sw=g03,walltime=0-01:00:00,start=1970-01-01T01:00:00Z
        """
        fields = parts.fields()
        if {"start", "deadline"} & parts.terms.keys():
            fields = {"start_s": None, "deadline_s": None} | fields
        chunks = parts.terms.get("rset", self.chunks)
        given = self.given | parts.terms.keys()
        return replace(self, chunks=chunks, job_wide={**self.job_wide, **parts.job_wide}, **fields, given=given)

    def with_defaults(self, parts: RequestParts) -> Self:
        """Return the request with values for what it does not say; resources of a chunk are added to each chunk.

        Examples
        --------
        >>> parts = RequestParts.parse("rset=mem=2g,walltime=1h,place=scatter")
        >>> print(ResourceRequest.parse("rset=2:ncpus=4,walltime=5").with_defaults(parts))
        rset=2:ncpus=4:mem=2g,place=scatter,walltime=0-00:05:00
        """
        fields = {name: value for name, value in parts.fields().items() if not self._says(name)}
        chunks = tuple(chunk.over(other) for chunk in self.chunks for other in parts.terms.get("rset", (Chunk(1),)))
        return replace(self, chunks=chunks, job_wide={**parts.job_wide, **self.job_wide}, **fields)

    def forced(self, parts: RequestParts) -> Self:
        """Return the request with these values in place of its own; resources of a chunk are those of each chunk."""
        others = parts.terms.get("rset", (Chunk(1),))
        chunks = tuple(replace(other.over(chunk), count=chunk.count) for chunk in self.chunks for other in others)
        return replace(self, chunks=chunks, job_wide={**self.job_wide, **parts.job_wide}, **parts.fields())

    def _says(self, name: str) -> bool:
        """Return whether a field of it was written, or is another than without a word."""
        is_written = any(_SAID[part].field == name for part in self.given if part in _SAID)
        return is_written or getattr(self, name) not in {None, 0, PlacementRule()}

    def job_set(self) -> dict[str, int]:
        """Sum up a request (the paper's ``jRS``): amounts of all chunks, and job-wide ones, by resource.

        Examples
        --------
        >>> ResourceRequest.parse("rset=8:ncpus=2:mem=10g").job_set() == {"ncpus": 16, "mem": 80 * 1024**3}
        True
        """
        total: Counter[str] = Counter()
        for chunk in self.chunks:
            for name, amount in chunk.needs.items():
                total[name] += chunk.count * amount
        for name, value in self.job_wide.items():
            if isinstance(value, int):
                total[name] += value
        return dict(total)

    @property
    def licences(self) -> dict[str, int]:
        """Number of required licences by name: one for each job-wide property."""
        return dict(Counter(value for value in self.job_wide.values() if isinstance(value, str)))

    def __str__(self) -> str:
        parts = [f"rset={'+'.join(map(str, self.chunks))}"]
        parts += [f"{name}={value!s}" for name, value in self.job_wide.items()]
        if self.place != PlacementRule():
            parts.append(f"place={self.place}")
        if self.walltime_s is not None:
            parts.append(f"walltime={format_walltime(self.walltime_s)}")
        if self.start_s is not None:
            parts.append(f"start={iso(self.start_s)}")
        if self.deadline_s is not None:
            parts.append(f"deadline={iso(self.deadline_s)}")
        if self.array is not None:
            parts.append(f"array={self.array.start}-{self.array.stop - 1}")
        if self.depend:
            parts.append(f"depend={'+'.join(map(str, self.depend))}")
        if self.notify_s is not None:
            parts.append(f"notify={format_walltime(self.notify_s)}")
        if self.reservation is not None:
            parts.append(f"reservation={self.reservation}")
        if self.priority:
            parts.append(f"priority={self.priority}")
        return ",".join(parts)


def _named(piece: Piece) -> tuple[Piece, Piece]:
    name, value = piece.halves("=")
    hint = "Write name=value, and before a chunk perhaps how often it is needed: 8:ncpus=2."
    if not piece.text:
        raise piece.refuse("something is missing here", hint)
    if value is None:
        raise piece.refuse(f"{piece.quoted} has no value", hint)
    if not name.text:
        raise piece.refuse("a name is missing here", hint)
    return name, value


def _kind(name: Piece, kinds: Mapping[str, RequestKind], known: list[str]) -> RequestKind:
    if name.text not in kinds:
        raise name.refuse(f"there is no resource {name.quoted}", f"{near(name.text, known)}Known: {', '.join(known)}.")
    return kinds[name.text]


def _count(totals: Counter[str], name: str, value: int | str, times: int, piece: Piece) -> None:
    if isinstance(value, int):
        totals[name] += times * value
        if totals[name] > LARGEST:
            raise piece.refuse(f"makes more {name} than can be counted")


def _chunk(piece: Piece, kinds: Mapping[str, RequestKind], totals: Counter[str]) -> Chunk:
    first, rest = piece.halves(":")
    counted = rest is not None and "=" not in first.text
    count = first.whole_number() if counted else 1
    needs: dict[str, int] = {}
    properties: dict[str, str] = {}
    settings: dict[str, int] = {}
    for item in (rest if rest is not None and counted else piece).split(":"):
        name, value = _named(item)
        if name.text in needs or name.text in properties or name.text in settings:
            raise name.refuse(f"{name.text} is given twice in one chunk")
        kind = _kind(name, kinds, list(kinds))
        read = _value(value, kind)
        if isinstance(read, str):
            properties[name.text] = read
        elif kind is RequestKind.SETTING:
            settings[name.text] = read
        else:
            needs[name.text] = read
            _count(totals, name.text, read, count, value)
    return Chunk(count, needs, properties, settings)


def _value(piece: Piece, kind: RequestKind) -> int | str:
    if kind in {RequestKind.COUNT, RequestKind.SETTING}:
        return piece.whole_number()
    if kind is RequestKind.SIZE:
        return _size(piece)
    if kind is RequestKind.FLAG and piece.text not in {"true", "false"}:
        raise piece.refuse(f"{piece.quoted} is neither true nor false")
    if not piece.text:
        raise piece.refuse("a value is missing here")
    for at, character in enumerate(piece.text):
        if not "!" <= character <= "~" or character in _SEPARATORS:
            raise Piece(piece.whole, piece.start + at, piece.stop, piece.error).refuse(
                f"{character!r} cannot be in a value", "Letters, digits and most signs can; no space, none of , : + =."
            )
    return piece.text


def _size(piece: Piece) -> Size:
    number = WHOLE.match(piece.text)
    if number is None:
        raise piece.refuse(f"{piece.quoted} is no size" if piece.text else "a size is missing here", _SIZE_HINT)
    unit = piece.cut(number.end())
    factor = _SIZE_UNITS.get(unit.text.lower()) if unit.text.isascii() else None
    if factor is None or unit.start != piece.start + number.end():
        raise unit.refuse(f"{unit.quoted} is no unit", _SIZE_HINT)
    size = piece.cut(0, number.end()).whole_number() * factor
    if size > LARGEST:
        raise piece.refuse("is more than can be counted")
    return Size(size)


_SIZE_HINT: Final = "Write a whole number of bytes, or with a unit k, m, g, t or p: 512m, 10g."


def _place(piece: Piece) -> PlacementRule:
    arrangements = [str(arrangement) for arrangement in Arrangement]
    items = piece.split(":")
    chosen = [Arrangement(item.text) for item in items[:1] if item.text in arrangements]
    sharing = items[len(chosen) :]
    known = ["excl", "shared"] if chosen else [*arrangements, "excl", "shared"]
    for number, item in enumerate(sharing):
        if number or item.text not in {"excl", "shared"}:
            hint = f"{near(item.text, known)}Write free, pack or scatter, perhaps with :excl or :shared behind it."
            raise item.refuse(f"{item.quoted} is no placement" if item.text else "something is missing here", hint)
    return PlacementRule(
        chosen[0] if chosen else Arrangement.FREE, exclusive=any(item.text == "excl" for item in sharing)
    )


def _walltime(piece: Piece) -> int:
    try:
        seconds = parse_duration(piece.text)
    except InputError as error:
        raise piece.refuse(error.message.replace(repr(piece.text), piece.quoted), error.hint) from error
    whole = math.ceil(round(seconds, 3))  # 1.1 h is 3960 s, without a rounding error that adds a second
    if not 1 <= whole <= LATEST_S:
        raise piece.refuse("is no time at all" if whole < 1 else "is longer than can be counted")
    return whole


def _array(piece: Piece) -> range:
    first, last = piece.halves("-")
    if last is None:
        return range(first.whole_number())
    low, high = first.whole_number(least=0), last.whole_number(least=0)
    if high < low:
        raise last.refuse(f"is less than {low}, where it begins")
    return range(low, high + 1)


def _job_name(piece: Piece) -> str:
    if not piece.text:
        raise piece.refuse("a name is missing here")
    return piece.text


def _priority(piece: Piece) -> int:
    return piece.whole_number(least=-LARGEST)


class _RequestPart(NamedTuple):
    """A part of a request besides resources: how it is read, and its field of `ResourceRequest`."""

    read: Callable[[Piece], Any]
    field: str


_SAID: Final[Mapping[str, _RequestPart]] = {
    "place": _RequestPart(_place, "place"),
    "walltime": _RequestPart(_walltime, "walltime_s"),
    "start": _RequestPart(moment, "start_s"),
    "deadline": _RequestPart(moment, "deadline_s"),
    "array": _RequestPart(_array, "array"),
    "priority": _RequestPart(_priority, "priority"),
    "depend": _RequestPart(read_dependencies, "depend"),
    "notify": _RequestPart(_walltime, "notify_s"),
    "reservation": _RequestPart(_job_name, "reservation"),
}
PARTS: Final = tuple(_SAID)
"""Names of the parts of a request besides ``rset``; no resource may be called so."""
