"""Intervals as pages show them."""

from __future__ import annotations

import math

from asa.core.intervals import Interval
from asa.units import format_duration


def written(interval: Interval, digits: int | None) -> str:
    """Format the bounds, without a signed zero; return an empty text if there are none.

    `digits`: decimals; None for seconds, which are written as durations.

    Examples
    --------
    >>> written(Interval(1.0, -0.01, 3.0), 1), written(Interval(60.0, 30.0, 7500.0), None)
    ('0.0 to 3.0', '30s to 2h05m')
    """
    if digits is None:
        return f"{format_duration(interval.low)} to {format_duration(interval.high)}" if interval.is_spread else ""
    low, high = (plain(bound, digits) for bound in (interval.low, interval.high))
    return f"{low:,.{digits}f} to {high:,.{digits}f}" if interval.is_spread else ""


def plain(value: float, digits: int) -> float:
    """Round, and turn -0.0 into 0.0.

    Examples
    --------
    >>> plain(-0.04, 1)
    0.0
    """
    return round(value, digits) + 0.0


def ends(interval: Interval) -> tuple[float, float] | None:
    """Return the bounds, if they are known."""
    return None if math.isnan(interval.low) else (interval.low, interval.high)
