"""Time against core-hours: the choices that no other choice beats in both, and the price of ending an hour sooner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

Point = tuple[float, float]
"""Seconds until the end, and core-hours."""


def unbeaten(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other point beats in both time and core-hours, by core-hours.

    Of equal points the first is kept. Points with a value that is not a number are left out.

    Examples
    --------
    >>> unbeaten([(100.0, 30.0), (200.0, 10.0), (250.0, 10.0), (300.0, 5.0)])
    [3, 1, 0]
    """
    known = [index for index, point in enumerate(points) if not any(map(math.isnan, point))]
    # sums of the same numbers in another order differ in their last digits
    rounded = {index: (round(points[index][1], 9), round(points[index][0], 6)) for index in known}
    kept: list[int] = []
    for index in sorted(known, key=lambda index: (*rounded[index], index)):
        if not kept or rounded[index][1] < rounded[kept[-1]][1]:
            kept.append(index)
    return kept


def hour_costs(points: Sequence[Point]) -> list[float | None]:
    """Return for each point of a frontier the core-hours per hour by which it ends sooner than the point before it.

    `points`: by core-hours. Returns None for the first point.

    Examples
    --------
    >>> hour_costs([(7200.0, 5.0), (3600.0, 12.0)])
    [None, 7.0]
    """
    between = [
        3600.0 * (later[1] - sooner[1]) / (sooner[0] - later[0]) if sooner[0] > later[0] else float("inf")
        for sooner, later in pairwise(points)
    ]
    return [None, *between] if points else []


def cheapest(points: Sequence[Point], price_s: float) -> int:
    """Return the index of the cheapest point if a core-hour is worth a given number of seconds.

    Examples
    --------
    >>> cheapest([(7200.0, 5.0), (3600.0, 12.0)], 3600 / 5), cheapest([(7200.0, 5.0), (3600.0, 12.0)], 3600 / 10)
    (0, 1)
    """
    return min(range(len(points)), key=lambda index: points[index][0] + price_s * points[index][1])
