"""Compares strategies that ran in the same replications of the same worlds: their makespans and costs.

All averages are geometric means of ratios that are paired by replication; all cells have the same weight. The cells of
a world share its replications, and so their chance effects: the 95 % interval is over replications, separately for each
world. Waits may be 0, and have no such mean: the sums over all cells are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from asa.core.intervals import Interval, as_ratio, beyond_chance, mean_interval, pooled_interval

QUICK_BASE, THRIFTY_BASE = "big-job", "per-stage"
"""Makespans are relative to the first; core-hours and waits to the second."""

THRIFTY = 0.02
"""A strategy is thrifty if its core-hours exceed the smallest by at most this share."""

MARGIN = 0.02
"""Differences in time or core-hours below this share are ignored."""

_HARDLY_S = 60.0
"""Mean wait of a run below which another strategy's wait is not divided by it."""

_EQUAL = 1e-9


class RunLike(Protocol):
    """One run of one strategy."""

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        ...

    @property
    def makespan_s(self) -> float:
        """From the submission of the workflow to its end."""
        ...

    @property
    def core_hours(self) -> float:
        """All allocated core-hours."""
        ...

    @property
    def perceived_wait_s(self) -> float:
        """Sum of the waits between stages."""
        ...

    @property
    def total_wait_s(self) -> float:
        """The same, with the wait before the first stage."""
        ...


_R = TypeVar("_R", bound=RunLike)
Cell = tuple[str, Hashable]
"""A world, and the run in it, such as a workflow and its width."""
_RunsByCell = Mapping[Cell, Mapping[str, Mapping[int, _R]]]


@dataclass(frozen=True, slots=True)
class Standing:
    """The results of a strategy, over all cells in which every strategy ran."""

    strategy: str
    makespan: Interval  # ratio to Big Job's: geometric mean of paired ratios, and its 95 % interval
    core_hours: Interval
    # whether it is the quickest, or not significantly slower, paired by replication; all statements that a strategy is
    # slower hold together with 95 % (Holm)
    is_as_quick: bool
    is_thrifty: bool  # see `THRIFTY`
    is_as_quick_of_thrifty: bool  # whether it is the quickest thrifty strategy, or not significantly slower
    # ratios to Per-Stage's: waits between stages, and all waits, as sums over all cells and replications; nan where
    # Per-Stage's are less than a minute a run
    perceived_wait: float
    total_wait: float
    # number of cells in which another strategy needed significantly less time, by more than `MARGIN`, and no more
    # core-hours, or the reverse; all these statements hold together with 95 % (Holm)
    dominated: int
    cells: int


def standings(runs: Iterable[_R], cell_of: Callable[[_R], Cell], replication_of: Callable[[_R], int]) -> list[Standing]:
    """Compute the results of each strategy.

    `cell_of`, `replication_of`: return the cell and the replication of a run. All strategies of a cell must have the
    same replications.
    """
    cells: dict[Cell, dict[str, dict[int, _R]]] = {}
    for run in in_all(list(runs), cell_of):
        cells.setdefault(cell_of(run), {}).setdefault(run.strategy, {})[replication_of(run)] = run
    if not cells:
        return []
    names = list(next(iter(cells.values())))
    costs = {name: _over(cells, "core_hours", name, THRIFTY_BASE) for name in names}
    least = min(cost.mean for cost in costs.values())
    thrifty = [name for name in names if costs[name].mean <= least * (1 + THRIFTY)]
    quick, quick_of_thrifty = _as_quick(cells, names), _as_quick(cells, thrifty)
    return [
        Standing(
            name,
            _over(cells, "makespan_s", name, QUICK_BASE),
            costs[name],
            name in quick,
            name in thrifty,
            name in quick_of_thrifty,
            _share(cells, "perceived_wait_s", name),
            _share(cells, "total_wait_s", name),
            _dominated(cells, name),
            len(cells),
        )
        for name in names
    ]


def in_all(runs: Sequence[_R], cell_of: Callable[[_R], Cell]) -> list[_R]:
    """Leave out the cells in which not every strategy ran, since averages over different cells are not comparable."""
    ran: dict[Cell, set[str]] = {}
    for run in runs:
        ran.setdefault(cell_of(run), set()).add(run.strategy)
    names = set().union(*ran.values())
    return [run for run in runs if ran[cell_of(run)] == names]


def by_world(values: Iterable[tuple[str, int, float]]) -> Interval:
    """Average values over worlds and replications, all with equal weight; the interval is over replications.

    `values`: tuples of a world, a replication of it, and a value; one for each cell of the world.
    """
    worlds: dict[str, dict[int, list[float]]] = {}
    for world, replication, value in values:
        worlds.setdefault(world, {}).setdefault(replication, []).append(value)
    return pooled_interval(
        [[float(np.mean(of)) for of in replications.values()] for replications in worlds.values()],
        [float(sum(map(len, replications.values()))) for replications in worlds.values()],
    )


def paired(mine: Mapping[int, _R], theirs: Mapping[int, _R], what: str) -> dict[int, float]:
    """Return the logarithm of a figure's ratio in each replication.

    `mine`, `theirs`: runs of two strategies in one cell, by replication. `theirs` has every replication of `mine`.
    """
    return {seed: float(np.log(getattr(run, what) / getattr(theirs[seed], what))) for seed, run in mine.items()}


def _over(cells: _RunsByCell[_R], what: str, name: str, base: str) -> Interval:
    return as_ratio(
        by_world(
            (world, replication, log)
            for (world, _), cell in cells.items()
            for replication, log in paired(cell[name], cell[base], what).items()
        )
    )


def _as_quick(cells: _RunsByCell[_R], names: Sequence[str]) -> set[str]:
    """Return the quickest of the given strategies, and all that are not significantly slower."""
    quickest = min(names, key=lambda name: _over(cells, "makespan_s", name, QUICK_BASE).mean)
    others = [name for name in names if name != quickest]
    apart = beyond_chance([_over(cells, "makespan_s", name, quickest) for name in others], ratios=True)
    return {quickest, *(name for name, is_apart in zip(others, apart, strict=True) if not is_apart)}


def _share(cells: _RunsByCell[_R], what: str, name: str) -> float:
    mine, theirs = (
        [float(getattr(run, what)) for cell in cells.values() for run in cell[strategy].values()]
        for strategy in (name, THRIFTY_BASE)
    )
    return sum(mine) / sum(theirs) if np.mean(theirs) >= _HARDLY_S else math.nan


def _dominated(cells: _RunsByCell[_R], name: str) -> int:
    """Count the cells in which another strategy is clearly better in time or core-hours, and not worse in the other."""
    comparisons: list[tuple[Cell, Interval, Interval]] = []
    for key, cell in cells.items():
        for other in cell.keys() - {name}:
            time, hours = (
                mean_interval(list(paired(cell[name], cell[other], what).values()))
                for what in ("makespan_s", "core_hours")
            )
            comparisons += [(key, time, hours), (key, hours, time)]
    above = [_above(interval, math.log1p(MARGIN)) for _, interval, _ in comparisons]
    return len(
        {
            key
            for (key, _, other), more, is_there in zip(comparisons, above, beyond_chance(above), strict=True)
            if is_there and more.mean > 0 and other.mean >= -_EQUAL
        }
    )


def _above(interval: Interval, margin: float) -> Interval:
    return Interval(interval.mean - margin, interval.low - margin, interval.high - margin, interval.freedom)
