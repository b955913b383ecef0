"""Formatting of times and of names of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from .pieces import iso

IN_1973_S = 100_000_000
"""Times below this count from the beginning of a plan, not from 1970."""
_DAY_S = 86_400


def clock(time_s: int, now_s: int) -> str:
    """Format a time: UTC, without the date if that is today's; or the time elapsed since 0.

    Examples
    --------
    >>> clock(5400, 0), clock(200_000, 0)
    ('1:30:00', '2d 07:33:20')
    >>> clock(1501588800, 1501545600), clock(1501632000, 1501545600)
    ('12:00', '2017-08-02 00:00')
    """
    if now_s < IN_1973_S or not iso(time_s).endswith("Z"):
        days, rest = divmod(time_s, _DAY_S)
        minutes, seconds = divmod(rest, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{days}d {hours:02}:{minutes:02}:{seconds:02}" if days else f"{hours}:{minutes:02}:{seconds:02}"
    day, _, time = iso(time_s).removesuffix("Z").partition("T")
    time = time.removesuffix(":00") if time.count(":") == 2 else time
    return time if iso(now_s).startswith(day) else f"{day} {time}"


def names(of: Sequence[str]) -> str:
    """Abbreviate names of nodes.

    Examples
    --------
    >>> names(["n01", "n02", "n03", "n07", "gpu1", "login"])
    'n[01-03,07],gpu1,login'
    """
    groups: dict[tuple[str, int], list[int]] = {}
    for name in of:
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        groups.setdefault((stem, len(digits)), []).append(int(digits or 0))
    return ",".join(_group(stem, width, sorted(set(numbers))) for (stem, width), numbers in groups.items())


def _group(stem: str, width: int, numbers: list[int]) -> str:
    if not width or len(numbers) == 1:
        return f"{stem}{numbers[0]:0{width}}" if width else stem
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = (f"{run[0]:0{width}}" + (f"-{run[-1]:0{width}}" if len(run) > 1 else "") for run in runs)
    return f"{stem}[{','.join(ranges)}]"
