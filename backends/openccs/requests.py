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
    name=value                        anything else is a job-wide resource, as a licence or disk space

A chunk is ``name=value[:name=value...]``. A time is ISO 8601 or a number of seconds since 1970; without a zone it is
UTC, and a date alone is its first second. Any other text is an error that points at it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from asa.errors import InputError, near
from asa.units import format_walltime, parse_duration

LARGEST: Final = (1 << 60) - 1
"""Upper bound of any amount, and of the sum of a job's amounts."""
LATEST_S: Final = 253_402_300_799
"""The last second of the year 9999: upper bound of times and walltimes."""

_BLANK: Final = " \t\r\n"
_SEPARATORS: Final = ",:+="
_SHOWN: Final = 60
_WHOLE = re.compile(r"-?[0-9]+")
_DIGITS: Final = 40
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?")
_SIZE_UNITS: Final = {"": 1, "b": 1, **{u + b: 1024**n for n, u in enumerate("kmgtp", 1) for b in ("", "b")}}


class PointedError(InputError):
    """A text cannot be read; the message shows it, with a caret below the wrong character.

    `text`: the whole text. Without it the message is used unchanged.
    `position`: index of the wrong character in the text; the text's length if something is missing at its end.

    Examples
    --------
    >>> print(PointedError("'two' is no whole number", text="rset=8:ncpus=two:mem=10g", position=13))
    rset=8:ncpus=two:mem=10g
                 ^ 'two' is no whole number
    """

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        text: str | None = None,
        position: int = 0,
    ) -> None:
        if text is not None:
            before, after = text[:position], text[position:]
            before = before if len(before) <= _SHOWN else "..." + before[3 - _SHOWN :]
            after = after if len(after) <= _SHOWN else after[: _SHOWN - 3] + "..."
            message = f"{_one_column_each(before + after)}\n{' ' * len(before)}^ {message}"
        super().__init__(message, where=where, hint=hint)
        self.text = text
        self.position = position

    def __str__(self) -> str:
        shown = f"{self.where}:\n{self.message}" if self.where else self.message  # the caret stays below its character
        return f"{shown}\n{self.hint}" if self.hint else shown


class RequestError(PointedError):
    """A request for resources cannot be understood."""


def _one_column_each(text: str) -> str:
    return "".join(" " if c in _BLANK else c if " " < c <= "~" else "?" for c in text)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a text with its place, so that errors can point at it.

    Examples
    --------
    >>> [(piece.text, piece.start) for piece in Piece.of(" a , bc", RequestError).split(",")]
    [('a', 1), ('bc', 5)]
    """

    whole: str
    start: int
    stop: int
    error: type[PointedError]

    @classmethod
    def of(cls, text: str, error: type[PointedError]) -> Self:
        """Make a piece of a whole text."""
        return cls(text, 0, len(text), error)

    @property
    def text(self) -> str:
        """The text of the piece."""
        return self.whole[self.start : self.stop]

    @property
    def quoted(self) -> str:
        """The text in quotes for a message, shortened if long."""
        return repr(self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 3] + "...")

    def cut(self, start: int, stop: int | None = None) -> Piece:
        """Return a part of this piece, without surrounding space."""
        inner = self.whole[self.start + start : self.stop if stop is None else self.start + stop]
        bare = inner.strip(_BLANK)
        begin = self.start + start + (len(inner) - len(inner.lstrip(_BLANK)) if bare else 0)
        return Piece(self.whole, begin, begin + len(bare), self.error)

    def split(self, separator: str) -> list[Piece]:
        """Split it at each occurrence of a character."""
        ends = [*(match.start() for match in re.finditer(re.escape(separator), self.text)), self.stop - self.start]
        return [self.cut(start, stop) for start, stop in zip([0, *(end + 1 for end in ends)], ends, strict=False)]

    def halves(self, separator: str) -> tuple[Piece, Piece | None]:
        """Return the parts before and after the first occurrence of a character; None if there is none."""
        at = self.text.find(separator)
        return (self.cut(0), None) if at < 0 else (self.cut(0, at), self.cut(at + 1))

    def refuse(self, message: str, hint: str | None = None) -> PointedError:
        """Return an error that points at its beginning."""
        return self.error(message, hint=hint, text=self.whole, position=self.start)

    def whole_number(self, *, least: int = 1) -> int:
        """Parse it as a whole number from `least` to `LARGEST`."""
        if not self.text:
            raise self.refuse("a number is missing here")
        if not _WHOLE.fullmatch(self.text):
            raise self.refuse(f"{self.quoted} is no whole number")
        value = int(self.text) if len(self.text) <= _DIGITS else None
        if value is None or abs(value) > LARGEST:
            raise self.refuse("is more than can be counted")
        if value < least:
            raise self.refuse(f"must be {least} or more")
        return value


def moment(piece: Piece) -> int:
    """Read a time: ISO 8601, in UTC if it has no zone, or seconds since 1970.

    Returns: whole seconds since 1970, in UTC; for a date alone, its first second.

    Examples
    --------
    >>> [moment(Piece.of(text, RequestError)) for text in ("2017-08-01", "2017-08-01T02:00+02:00", "1501545600")]
    [1501545600, 1501545600, 1501545600]
    """
    if _WHOLE.fullmatch(piece.text):
        seconds = piece.whole_number(least=0)
    else:
        hint = "Write it as 2017-08-01, 2017-08-01T12:00 or 2017-08-01T12:00:00+02:00, or in seconds since 1970."
        if not _ISO.fullmatch(piece.text):
            raise piece.refuse(f"{piece.quoted} is no time" if piece.text else "a time is missing here", hint)
        try:
            read = datetime.fromisoformat(piece.text)
        except ValueError as error:
            raise piece.refuse(f"{piece.quoted} is no time: {error}", hint) from error
        seconds = math.floor((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    if not 0 <= seconds <= LATEST_S:
        raise piece.refuse("is before 1970" if seconds < 0 else "is after the year 9999")
    return seconds


def iso(seconds: int) -> str:
    """Write a time as `moment` reads it; a time out of that range as a number.

    Examples
    --------
    >>> iso(1501545600)
    '2017-08-01T00:00:00Z'
    """
    if not 0 <= seconds <= LATEST_S:
        return str(seconds)
    return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}Z"


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

    def __str__(self) -> str:
        items = (*self.needs.items(), *self.properties.items(), *self.settings.items())
        written = ":".join(f"{name}={value!s}" for name, value in items)
        return written if self.count == 1 else f"{self.count}:{written}"


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
        whole = Piece.of(text, RequestError)
        terms: dict[str, Any] = {}
        job_wide: dict[str, int | str] = {}
        totals: Counter[str] = Counter()
        for part in whole.split(","):
            name, value = _named(part)
            if name.text in terms or name.text in job_wide:
                raise name.refuse(f"{name.text} is given twice")
            if name.text == "rset":
                terms["rset"] = tuple(_chunk(chunk, kinds, totals) for chunk in value.split("+"))
            elif name.text in _SAID:
                terms[name.text] = _SAID[name.text](value)
            else:
                kind = _kind(name, kinds, ["rset", *_SAID, *kinds])
                if kind in {RequestKind.FLAG, RequestKind.SETTING}:
                    raise name.refuse(f"{name.text} is a {kind}, which only a chunk has", "Write it in rset=.")
                job_wide[name.text] = _value(value, kind)
                _count(totals, name.text, job_wide[name.text], 1, value)
            if {"start", "deadline"} <= terms.keys():
                raise name.refuse("a job has a start or a deadline, not both")
        if "rset" not in terms:
            end = Piece(text, len(text), len(text), RequestError)
            raise end.refuse("it asks for no node: rset= is missing", "Write one, as in rset=2:ncpus=4:mem=8g.")
        return cls(
            terms["rset"],
            job_wide,
            terms.get("place", PlacementRule()),
            terms.get("walltime"),
            terms.get("start"),
            terms.get("deadline"),
            terms.get("array"),
            terms.get("priority", 0),
        )

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
    number = _WHOLE.match(piece.text)
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


def _priority(piece: Piece) -> int:
    return piece.whole_number(least=-LARGEST)


_SAID: Final[Mapping[str, Callable[[Piece], Any]]] = {
    "place": _place,
    "walltime": _walltime,
    "start": moment,
    "deadline": moment,
    "array": _array,
    "priority": _priority,
}
