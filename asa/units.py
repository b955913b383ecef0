"""Durations in all of Slurm's formats, memory sizes, core-hours, and the price of time in core-hours.

Inside `asa` a duration is a number of seconds, and its name ends in ``_s``; memory is a number of bytes. Only this
module reads them from text.
"""

from __future__ import annotations

import math
import re

from asa.errors import InputError

__all__ = [
    "MAX_CORES",
    "MAX_DAYS",
    "MAX_DURATION_S",
    "MAX_JOBS",
    "MAX_POLL_S",
    "MAX_PROCESSES",
    "MAX_RUNS",
    "MAX_SEED",
    "core_hours",
    "format_core_hours",
    "format_duration",
    "format_price",
    "format_walltime",
    "parse_duration",
    "parse_memory",
    "parse_price",
    "parse_storage",
    "round_walltime",
]

MAX_CORES = 2**31 - 2
MAX_JOBS = 10**9
MAX_RUNS = 100_000
MAX_PROCESSES = 4096
MAX_DAYS = 36_500
MAX_SEED = 2**53
"""Upper bounds; all of them are exact in JSON, in arrays and in compiled code."""
MAX_POLL_S = 86_400
MAX_DURATION_S = 86_400.0 * MAX_DAYS
_LEAST_HOURS = 0.001

_UNIT_SECONDS = {
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_WITH_UNITS = re.compile(r"(?:\d+(?:\.\d+)?\s*[a-z]+\s*)+")
_TERM = re.compile(r"(?<!\d)(\d++(?:\.\d++)?)\s*+([a-z]+)")
_SLURM = re.compile(r"(?:(?P<days>\d+)-(?P<dh>\d+)(?::(?P<dm>\d+))?(?::(?P<ds>\d+))?|(?P<clock>\d+(?::\d+){0,2}))")
_TOO_MANY_DIGITS = re.compile(r"(?<![.\d])\d{16}")  # before the decimal point
_HUMAN_MINUTES = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1080, 1440)
_DAY_S = 86400.0
_CORE_HOURS = re.compile(r"(\d+(?:\.\d+)?)\s*core[- ]?h(?:ours?)?")
_PER = ("/", "per", "a", "an")
_AS_PRICE = (
    'Say what an hour sooner is worth to you, as in "1 h = 200 core-hours", or how many seconds sooner a core-hour is '
    "worth, as in 18. 0: time alone counts."
)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_MEMORY_EXPONENT = {"k": 1, "": 2, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_duration(text: str) -> float:
    """Read a duration, written for people or for Slurm, as seconds.

    Slurm's formats are ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``,
    ``days-hours:minutes`` and ``days-hours:minutes:seconds``. Numbers with units, as in ``1h30m``, are read as well. A
    bare number means minutes, as in Slurm.

    Parameters
    ----------
    text
        The duration.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    InputError
        The text is no duration.

    Examples
    --------
    >>> [parse_duration(t) for t in ("90", "1:30", "2:00:00", "1-12", "1h30m", "45s")]
    [5400.0, 90.0, 7200.0, 129600.0, 5400.0, 45.0]
    """
    given = text.strip().lower()
    seconds = math.inf if _TOO_MANY_DIGITS.search(given) else _seconds(given, text)
    if seconds > MAX_DURATION_S:
        raise InputError("is longer than can be counted", hint=f"Write a duration of {MAX_DAYS:,} days at most.")
    return seconds


def _seconds(given: str, text: str) -> float:
    if _WITH_UNITS.fullmatch(given):
        total = 0.0
        for number, unit in _TERM.findall(given):
            if unit not in _UNIT_SECONDS:
                break
            total += float(number) * _UNIT_SECONDS[unit]
        else:
            return total
    match = _SLURM.fullmatch(given)
    if match is None:
        raise InputError(
            f"{text!r} is no duration",
            hint="Write it as Slurm does (90 = 90 minutes, 30:00, 2:00:00, 1-12:00) or with units (1h30m, 45s).",
        )
    if match["days"] is not None:
        parts = [int(match[name] or 0) for name in ("days", "dh", "dm", "ds")]
        return float(parts[0] * 86400 + parts[1] * 3600 + parts[2] * 60 + parts[3])
    clock = [int(part) for part in match["clock"].split(":")]
    if len(clock) == 1:
        return clock[0] * 60.0
    hours, minutes, seconds = [0] * (3 - len(clock)) + clock
    return float(hours * 3600 + minutes * 60 + seconds)


def format_duration(seconds: float) -> str:
    """Write a duration for people, in its two largest units.

    Parameters
    ----------
    seconds
        Any number; a negative one gets a minus sign.

    Examples
    --------
    >>> [format_duration(s) for s in (0, 42, 90, 3700, 200000)]
    ['0s', '42s', '1m30s', '1h01m', '2d07h']
    """
    sign, total = ("-", -round(seconds)) if round(seconds) < 0 else ("", abs(round(seconds)))
    minutes, secs = divmod(total, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{sign}{days}d{hours:02d}h"
    if hours:
        return f"{sign}{hours}h{minutes:02d}m"
    if minutes:
        return f"{sign}{minutes}m{secs:02d}s"
    return f"{sign}{secs}s"


def format_walltime(seconds: float) -> str:
    """Write a walltime for Slurm, ``days-hours:minutes:seconds``, rounded up to the second.

    Parameters
    ----------
    seconds
        At least 0.

    Examples
    --------
    >>> format_walltime(93784)
    '1-02:03:04'
    """
    total = -int(-seconds // 1)
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{days}-{hours:02d}:{minutes:02d}:{secs:02d}"


def round_walltime(seconds: float) -> float:
    """Round up to a walltime that people usually ask for.

    Parameters
    ----------
    seconds
        At least 0.

    Returns
    -------
    float
        Seconds: a round clock time up to a day, whole days beyond.

    Examples
    --------
    >>> [round_walltime(s) / 60 for s in (0, 300, 1008, 3601)], round_walltime(100_000) / 3600
    ([5.0, 5.0, 20.0, 90.0], 48.0)
    """
    for minutes in _HUMAN_MINUTES:
        if seconds <= 60.0 * minutes:
            return 60.0 * minutes
    return math.ceil(seconds / _DAY_S) * _DAY_S


def parse_memory(text: str) -> int:
    """Read a memory size as bytes; as in Slurm, a bare number is MiB and units are powers of 1024.

    Parameters
    ----------
    text
        A number, optionally with a unit: K, M, G, T.

    Raises
    ------
    InputError
        The text is no size.

    Examples
    --------
    >>> parse_memory("4G"), parse_memory("512")
    (4294967296, 536870912)
    """
    return _bytes(text, "memory")


def parse_storage(text: str) -> int:
    """Read a storage size as bytes; like memory, but the unit is required: a bare 5 hardly means MiB.

    Parameters
    ----------
    text
        A number and one of the units K, M, G, T.

    Raises
    ------
    InputError
        The text is no size, or has no unit.

    Examples
    --------
    >>> parse_storage("500G")
    536870912000
    """
    if (match := _MEMORY.fullmatch(text.strip())) and not match[2]:
        raise InputError(f"{text!r} has no unit", hint="Write 512M, 4G or 1.5T.")
    return _bytes(text, "storage")


def _bytes(text: str, what: str) -> int:
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no {what} size", hint="Write 512M, 4G or 1.5T.")
    size = float(match[1]) * float(1024 ** _MEMORY_EXPONENT[match[2].lower()])
    if not math.isfinite(size):
        raise InputError(f"is more {what} than can be counted", hint="Write 512M, 4G or 1.5T.")
    return round(size)


def per_job(count: int, size: str) -> str:
    """Write the number and the size of equal jobs, as all tables and sentences do.

    Examples
    --------
    >>> per_job(1, "28"), per_job(100, "2")
    ('28', '100x2')
    """
    return size if count == 1 else f"{count}x{size}"


def format_cores(cores: int, alike: int = 1) -> str:
    """Write a number of cores; `alike`: how many equal jobs, or elements, have so many each.

    Examples
    --------
    >>> format_cores(1), format_cores(112), format_cores(1, 8)
    ('1 core', '112 cores', '8x1 cores')
    """
    return f"{per_job(alike, str(cores))} core{'' if cores == alike == 1 else 's'}"


def core_hours(cores: int, seconds: float) -> float:
    """Compute the core-hours of cores that are allocated for some time (equation 1 of the ASA paper).

    Parameters
    ----------
    cores
        Number of cores.
    seconds
        Seconds for which they are allocated.

    Examples
    --------
    >>> core_hours(112, 1800)
    56.0
    """
    return cores * seconds / 3600.0


def parse_price(text: str) -> float:
    """Read a price of time, as the seconds that one core-hour is worth.

    Parameters
    ----------
    text
        A time and core-hours of the same worth, as in ``1 h = 200 core-hours``, in either order; ``200 core-hours per
        hour``; or the seconds that one core-hour is worth, 0 if core-hours do not count.

    Raises
    ------
    InputError
        The text is none of these.

    Examples
    --------
    >>> [parse_price(t) for t in ("1 h = 200 core-hours", "200 core-hours an hour", "1 core-hour = 18 s", "18")]
    [18.0, 18.0, 18.0, 18.0]
    """
    given = " ".join(text.lower().split())
    try:
        price_s = float(given)
    except ValueError:
        price_s = _price_in_words(given)
    if not 0 <= price_s < math.inf:
        raise InputError(f"{text!r} is no price of time", hint=_AS_PRICE)
    return price_s


def _price_in_words(given: str) -> float:
    """Return the seconds that a core-hour is worth; nan if the text is no such price, or one side is zero."""
    sides = [side.strip() for side in given.split("=")]
    words = given.replace("/", " / ").split()
    if len(sides) == 1 and len(words) > 2 and words[-2] in _PER:
        sides = [" ".join(words[:-2]), f"1 {words[-1]}"]
    if len(sides) != 2:
        return math.nan
    if _CORE_HOURS.fullmatch(sides[0]):
        sides.reverse()
    time, hours = sides[0], _CORE_HOURS.fullmatch(sides[1])
    if hours is None or not _WITH_UNITS.fullmatch(time):
        return math.nan
    try:
        seconds = parse_duration(time)
    except InputError:
        return math.nan
    return seconds / float(hours[1]) if seconds > 0 and float(hours[1]) > 0 else math.nan


def format_price(price_s: float) -> str:
    """Write for people how many core-hours one hour is worth.

    Parameters
    ----------
    price_s
        Seconds that a core-hour is worth.

    Examples
    --------
    >>> format_price(18.0), format_price(2400.0), format_price(0.0)
    ('1 h = 200 core-hours', '1 h = 1.5 core-hours', 'core-hours do not count')
    """
    if price_s <= 0:
        return "core-hours do not count"
    hours = 3600.0 / price_s
    amount = f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"
    return f"1 h = {amount} core-hour{'' if amount == '1' else 's'}"


def format_core_hours(hours: float) -> str:
    """Write core-hours with one decimal; amounts below one with two digits.

    Parameters
    ----------
    hours
        Core-hours, from 0 on.

    Examples
    --------
    >>> format_core_hours(12345.67), format_core_hours(0.0567), format_core_hours(1e-9)
    ('12,345.7', '0.057', '<0.001')
    """
    if hours == 0 or hours >= 1:
        return f"{hours:,.1f}"
    return f"{hours:.2g}" if hours >= _LEAST_HOURS else f"<{_LEAST_HOURS}"
