"""The price of time in a comparison: the means that no other beats in both time and core-hours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from asa.core.intervals import Interval
from asa.errors import InputError
from asa.report.tradeoff import cheapest, hour_costs, unbeaten
from asa.strategies import load_strategy
from asa.studies.compare.study import CompareRun
from asa.units import format_price

CHOOSES, IN_OWN_SHAPES = "asa-plan", "asa-plan:shapes=own"
"""The strategy that chooses among shapes, and the same one with each stage's own shape."""

AT_PRICE = f"{CHOOSES}:price="
"""Prefix of the strategy that chooses at a price; the price follows."""

_ENOUGH = 10  # number of runs needed for a 90 % quantile


def price_s_of(strategy: str) -> float | None:
    """Return how many seconds a core-hour is worth to asa-plan according to its name; None without a price.

    Examples
    --------
    >>> price_s_of("asa-plan:price=1000 core-h/h:grow=yes"), price_s_of("asa-plan"), price_s_of("asa-plan:price=low")
    (3.6, None, None)
    """
    if not strategy.startswith(f"{CHOOSES}:"):
        return None
    try:
        return load_strategy(strategy).price_s
    except InputError:  # a kept run of a version that accepts more
        return None


@dataclass(frozen=True, slots=True)
class Cell:
    """One strategy at one core count: its runs, and the interval of each column."""

    cores: int
    strategy: str
    runs: tuple[CompareRun, ...]  # one for each seed, including failed ones
    # over the completed runs: of `twt_s`, `makespan_s`, `core_hours`, `overhead_core_hours`, and `hit_ratio` in percent
    intervals: dict[str, Interval]

    @property
    def point(self) -> tuple[float, float]:
        """Its mean time in seconds, and its mean core-hours."""
        return self.intervals["makespan_s"].mean, self.intervals["core_hours"].mean

    @property
    def is_choice(self) -> bool:
        """Whether the cell is the choice of asa-plan, at a given price or at the usual one."""
        return self.strategy == CHOOSES or price_s_of(self.strategy) is not None


@dataclass(frozen=True, slots=True)
class CellOnFrontier:
    """A cell on the frontier."""

    cell: Cell
    p90_s: float  # nan if there are too few runs
    hour_sooner: float | None  # core-hours for each hour by which it is sooner than the row before; None for the first


def frontier_rows(cells: Sequence[Cell]) -> list[CellOnFrontier]:
    """Return the cells that no other beats in both mean time and mean core-hours, by core-hours."""
    best = [cells[index] for index in unbeaten([cell.point for cell in cells])]
    costs = hour_costs([cell.point for cell in best])
    return [CellOnFrontier(cell, _p90_s(cell), cost) for cell, cost in zip(best, costs, strict=True)]


def _p90_s(cell: Cell) -> float:
    times_s = [run.metrics.makespan_s for run in cell.runs if run.metrics is not None]
    return float(np.quantile(times_s, 0.9)) if len(times_s) >= _ENOUGH else math.nan


def named(cell: Cell, cells: Sequence[Cell]) -> str:
    """Return the name of a cell, with its cores if these differ between cells."""
    return f"{cell.strategy}, {cell.cores} cores" if len({cell.cores for cell in cells}) > 1 else cell.strategy


def about_prices(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence for each given price: the cheapest cell at it, and the excess cost of the plan chosen at it."""
    known = [cell for cell in cells if not any(map(math.isnan, cell.point))]
    for strategy in dict.fromkeys(cell.strategy for cell in known):
        if (price_s := price_s_of(strategy)) is None:
            continue
        points = [cell.point for cell in known]
        best = known[cheapest(points, price_s)]
        own = min((cell for cell in known if cell.strategy == strategy), key=lambda cell: _cost_s(cell, price_s))
        begin = f"At a price of {format_price(price_s)}" if price_s else "Where core-hours do not count"
        if own is best:
            yield f"{begin}, {named(own, cells)} costs least of all here."
        else:
            more = 100 * (_cost_s(own, price_s) / _cost_s(best, price_s) - 1)
            yield f"{begin}, {named(best, cells)} costs least; {named(own, cells)} costs {more:.1f} % more."


def _cost_s(cell: Cell, price_s: float) -> float:
    time_s, hours = cell.point
    return time_s + price_s * hours
