"""Pieces of texts with their places, so that errors can point at them, and the numbers and times in them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from asa.errors import InputError

LARGEST: Final = (1 << 60) - 1
"""Upper bound of any amount, and of the sum of a job's amounts."""
LATEST_S: Final = 253_402_300_799
"""The last second of the year 9999: upper bound of times and walltimes."""

BLANK: Final = " \t\r\n"
WHOLE: Final = re.compile(r"-?[0-9]+")
_SHOWN: Final = 60
_DIGITS: Final = 40
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?")


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


def _one_column_each(text: str) -> str:
    return "".join(" " if c in BLANK else c if " " < c <= "~" else "?" for c in text)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a text with its place, so that errors can point at it.

    Examples
    --------
    >>> [(piece.text, piece.start) for piece in Piece.of(" a , bc", PointedError).split(",")]
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
        bare = inner.strip(BLANK)
        begin = self.start + start + (len(inner) - len(inner.lstrip(BLANK)) if bare else 0)
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
        if not WHOLE.fullmatch(self.text):
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
    >>> [moment(Piece.of(text, PointedError)) for text in ("2017-08-01", "2017-08-01T02:00+02:00", "1501545600")]
    [1501545600, 1501545600, 1501545600]
    """
    if WHOLE.fullmatch(piece.text):
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
