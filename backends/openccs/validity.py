"""Times at which something is valid: always, until an end, between two times, or repeatedly by a cron string."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from types import MappingProxyType
from typing import Final, Self

from asa.errors import InputError

from .pieces import LATEST_S, Piece, PointedError, iso, moment

_HOUR_S: Final = 3600
_DAY_S: Final = 86400
_WEEK_S: Final = 7 * _DAY_S
_EPOCH: Final = date(1970, 1, 1).toordinal()
_CYCLE_DAYS: Final = 146_097  # 400 years, after which the calendar and its weekdays repeat
_LONGEST_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DOTTED = re.compile(r"([0-9]{2})\.([0-9]{2})\.((?:[0-9]{2})?)([0-9]{2})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WEEKDAYS: Final = {name: day for day, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS: Final = {name: month for month, name in enumerate(_MONTH_NAMES, 1)}
_HINT: Final = "Write always, 2017-08-01/2017-08-31T12:00 of which either side may be empty, or a cron string."

Windows = tuple[tuple[int, int], ...]


class ValidityError(PointedError):
    """A validity cannot be understood."""


@dataclass(frozen=True)
class Cron:
    """The minutes that a cron string matches, in UTC.

    A day matches if its month, its day of the month and its day of the week do. As in cron, one of the two days is
    enough if neither field begins with an asterisk.

    Examples
    --------
    >>> cron = Cron.parse("* 7-10 * * mon,fri")
    >>> cron.period == 7 * 86400
    True
    >>> [(start // 3600, end // 3600) for start, end in cron.template()]  # hours from a Thursday on
    [(31, 35), (103, 107)]
    """

    minutes: frozenset[int]  # matching minutes; and days of the month
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # matching days of the week, from 0 for Sunday
    either: bool  # whether one of the two kinds of days suffices
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read five fields: minute, hour, day of the month, month and day of the week.

        A field is a list of numbers, names and ranges, which may have a step, or an asterisk, the whole range. Days of
        the week are 0 or 7 for Sunday to 6.

        Examples
        --------
        >>> Cron.parse("*/20 0-8/4 1 jan *").hours == {0, 4, 8}
        True
        >>> Cron.parse("0 25 * * *")
        Traceback (most recent call last):
        ...
        asa.backends.openccs.validity.ValidityError: 0 25 * * *
          ^ '25' is no hour: these are 0 to 23
        """
        whole = Piece.of(text, ValidityError)
        fields = [whole.cut(*match.span()) for match in re.finditer(r"[^ \t\r\n]+", text)]
        if len(fields) != 5:
            piece = fields[5] if len(fields) > 5 else whole.cut(len(text))
            hint = "Write minute, hour, day of the month, month and day of the week: * 7-10 * * mon,fri."
            raise piece.refuse(f"a cron string has five fields, this one {len(fields)}", hint)
        minutes = frozenset(_field(fields[0], "minute", 0, 59))
        hours = frozenset(_field(fields[1], "hour", 0, 23))
        days = frozenset(_field(fields[2], "day of the month", 1, 31))
        months = frozenset(_field(fields[3], "month", 1, 12, _MONTHS))
        weekdays = frozenset(day % 7 for day in _field(fields[4], "day of the week", 0, 7, _WEEKDAYS))
        either = not any(fields[place].text.startswith("*") for place in (2, 4))
        if not either and min(days) > max(_LONGEST_MONTHS[month - 1] for month in months):
            raise fields[2].refuse("no such day is in any of these months", "It would never be valid.")
        return cls(minutes, hours, days, months, weekdays, either, " ".join(piece.text for piece in fields))

    @cached_property
    def period(self) -> int | None:
        """Seconds of an hour, a day or a week, the shortest that repeats exactly from 1970 on; None if none does."""
        all_days, all_weekdays = len(self.days) == 31, len(self.weekdays) == 7
        if len(self.months) < 12 or not (all_days or (self.either and all_weekdays)):
            return None
        if not (self.either or all_weekdays):
            return _WEEK_S
        return _HOUR_S if len(self.hours) == 24 else _DAY_S

    def template(self) -> Windows:
        """Return the windows of one period, in seconds from its beginning.

        Period 0 begins with the year 1970, on a Thursday. Windows are half-open, in order, and do not touch; one that
        continues in the next period ends with this one.
        """
        return self._template

    @cached_property
    def _template(self) -> Windows:
        if self.period == _HOUR_S:
            return tuple(_joined((60 * minute, 60 * minute + 60) for minute in sorted(self.minutes)))
        if self.period == _DAY_S:
            return self._day
        if self.period == _WEEK_S:
            days = (_DAY_S * day for day in range(7) if self._matches(day))
            return tuple(_joined((day + start, day + end) for day in days for start, end in self._day))
        return ()

    @cached_property
    def _day(self) -> Windows:
        minutes = (60 * hour + minute for hour in sorted(self.hours) for minute in sorted(self.minutes))
        return tuple(_joined((60 * minute, 60 * minute + 60) for minute in minutes))

    def _matches(self, day: int) -> bool:
        """Whether a day matches, given as days since the first of 1970."""
        then = date.fromordinal(1 + (_EPOCH - 1 + day) % _CYCLE_DAYS)
        of_month, of_week = then.day in self.days, then.isoweekday() % 7 in self.weekdays
        return then.month in self.months and (of_month or of_week if self.either else of_month and of_week)

    def matching(self, since_s: int, until_s: int) -> Iterator[tuple[int, int]]:
        """Yield the matches from the hour, day or week of `since_s` to that of `until_s`."""
        period = self.period
        step = period or _DAY_S
        windows = self.template() if period else self._day
        for start_s in range(since_s // step * step, until_s, step):
            if period or self._matches(start_s // _DAY_S):
                for start, end in windows:
                    yield start_s + start, start_s + end

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Validity:
    """The times at which a resource, a limit or a user is valid.

    Examples
    --------
    >>> list(Validity.parse("01.08.17-31.08.17").windows(0, 10**10)) == [(1501545600, 1504224000)]
    True
    >>> print(Validity.parse("/2017-08-31"))
    /2017-09-01T00:00:00Z
    >>> nights = Validity.parse("* 20-23,0-5 * * *")
    >>> [(start // 3600, end // 3600) for start, end in nights.windows(0, 2 * 86400)]
    [(0, 6), (20, 30), (44, 48)]
    """

    start_s: int | None = None  # begin in seconds since 1970; None if it has none
    end_s: int | None = None  # the first second at which it is no longer valid; None if it has no end
    cron: Cron | None = None  # the repeated times, if it has neither a begin nor an end

    def __post_init__(self) -> None:
        if self.cron is not None and not (self.start_s is None and self.end_s is None):
            raise InputError("has both times and a cron string", where="validity", hint="Give either.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a validity.

        `text`: ``always``, ``start/end``, or a cron string as `Cron.parse` reads it. Either time may be missing. They
        are read as by `asa.backends.openccs.pieces.moment`, but a date alone means the whole day, also as an end.
        ``01.08.17-31.08.17`` are two such dates.
        """
        whole = Piece.of(text, ValidityError).cut(0)
        if whole.text == "always":
            return cls()
        dotted = _DOTTED.search(whole.text) is not None
        if not dotted and not _DATE.search(whole.text) and ("*" in whole.text or len(whole.text.split()) > 1):
            return cls(cron=Cron.parse(text))
        dashed = dotted and "/" not in whole.text
        first, last = whole.halves("-" if dashed else "/")
        if last is None:
            raise whole.refuse(f"{whole.quoted} is no validity" if whole.text else "a validity is missing here", _HINT)
        if not (first.text or last.text):
            raise whole.refuse("has neither a start nor an end", _HINT)
        for side in (first, last) if dashed else ():
            if side.text and not _DOTTED.fullmatch(side.text):
                raise side.refuse(f"{side.quoted} is no date", _HINT)
        start_s = _side(first) if first.text else None
        end_s = _side(last, days=1) if last.text else None
        if start_s is not None and end_s is not None and start_s >= end_s:
            raise last.refuse(f"is no later than {first.text}, where it begins")
        return cls(start_s, end_s)

    def windows(self, since_s: int, until_s: int) -> Iterator[tuple[int, int]]:
        """Yield the windows within a time span.

        Each is given by its first second and the first second after it. They are in order and do not touch.
        """
        since_s = since_s if self.start_s is None else max(since_s, self.start_s)
        until_s = until_s if self.end_s is None else min(until_s, self.end_s)
        if since_s >= until_s:
            return
        if self.cron is None or self.cron.template() == ((0, self.cron.period),):
            yield since_s, until_s
            return
        for start, end in _joined(self.cron.matching(since_s, until_s)):
            if start < until_s and end > since_s:
                yield max(start, since_s), min(end, until_s)

    def __str__(self) -> str:
        if self.cron is not None:
            return str(self.cron)
        if self.start_s is None and self.end_s is None:
            return "always"
        return "/".join("" if side is None else iso(side) for side in (self.start_s, self.end_s))


def _side(piece: Piece, *, days: int = 0) -> int:
    """Parse a time; if it is a date alone, add `days`."""
    dotted = _DOTTED.fullmatch(piece.text)
    if dotted is None:
        seconds = moment(piece)
        alone = _DATE.fullmatch(piece.text) is not None
    else:
        day, month, century, year = dotted.groups()
        try:
            seconds = (date.fromisoformat(f"{century or 20}{year}-{month}-{day}").toordinal() - _EPOCH) * _DAY_S
        except ValueError as error:
            raise piece.refuse(f"{piece.quoted} is no date: {error}", _HINT) from error
        if seconds < 0:
            raise piece.refuse("is before 1970")
        alone = True
    seconds += days * _DAY_S if alone else 0
    if seconds > LATEST_S:
        raise piece.refuse("is too late to be counted")
    return seconds


def _field(
    piece: Piece, what: str, low: int, high: int, names: Mapping[str, int] = MappingProxyType({})
) -> Iterator[int]:
    for part in piece.split(","):
        span, step = part.halves("/")
        width = 1 if step is None else step.whole_number()
        if step is not None and width > high:
            raise step.refuse(f"is more than all of {low} to {high}")
        first, last = low, high
        if span.text != "*":
            begin, end = span.halves("-")
            first = last = _number(begin, what, low, high, names)
            if end is not None:
                last = _number(end, what, low, high, names)
                last = 7 if names is _WEEKDAYS and last == 0 < first else last
                if last < first:
                    raise end.refuse(f"is before {begin.text}", f"Write {first}-{high},{low}-{last}.")
            elif step is not None:
                raise step.refuse("a step needs a range before it", f"Write {first}-{high}/{width}.")
        yield from range(first, last + 1, width)


def _number(piece: Piece, what: str, low: int, high: int, names: Mapping[str, int]) -> int:
    text = piece.text.lower()
    if text in names:
        return names[text]
    if not piece.text:
        raise piece.refuse("something is missing here")
    if not re.fullmatch("[0-9]{1,2}", text) or not low <= int(text) <= high:
        or_names = f", or {', '.join(names)}" if names else ""
        raise piece.refuse(f"{piece.quoted} is no {what}: these are {low} to {high}{or_names}")
    return int(text)


def _joined(windows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge adjacent windows."""
    held: tuple[int, int] | None = None
    for start, end in windows:
        if held is not None and held[1] == start:
            held = held[0], end
            continue
        if held is not None:
            yield held
        held = start, end
    if held is not None:
        yield held
