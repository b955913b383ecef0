"""How strategies did in the same replications of the same worlds: what they took, and what they cost.

There is one kind of average here: the geometric mean of ratios that are paired by replication, over all cells alike.
Cells of a world share its replications, and so their luck: the 95 % interval is over replications, each world by
itself. Waits may be 0, of which there is no such mean: of them the sums over all are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from asa.core.intervals import Interval, as_ratio, beyond_chance, mean_interval, pooled_interval

QUICK_BASE, THRIFTY_BASE = "big-job", "per-stage"
"""Over whose makespan makespans are, and over whose core-hours and waits the other figures."""

THRIFTY = 0.02
"""By how much core-hours may be above the least for a strategy to count among the thrifty."""

MARGIN = 0.02
"""How much less of time or core-hours somebody must take for it to be worth a word; less is a trifle."""

_HARDLY_S = 60.0
"""Mean wait of a run below which there is nothing that another's could sensibly be divided by."""

_EQUAL = 1e-9


class RunLike(Protocol):
    """One run of one strategy."""

    @property
    def strategy(self) -> str:
        """Whose."""
        ...

    @property
    def makespan_s(self) -> float:
        """From handing the workflow over to its end."""
        ...

    @property
    def core_hours(self) -> float:
        """All that was held."""
        ...

    @property
    def perceived_wait_s(self) -> float:
        """Waits between stages."""
        ...

    @property
    def total_wait_s(self) -> float:
        """With that before the first."""
        ...


_R = TypeVar("_R", bound=RunLike)
Cell = tuple[str, Hashable]
"""A world, and what was run there, such as a workflow and its width."""
_RunsByCell = Mapping[Cell, Mapping[str, Mapping[int, _R]]]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a strategy did, over all cells in which every strategy ran."""

    strategy: str
    makespan: Interval  # its makespan over Big Job's: the geometric mean of paired ratios, and its 95 % interval
    core_hours: Interval
    # whether it is the quickest, or not significantly slower, paired by replication; of all that are slower this is
    # right at once with 95 % (Holm)
    is_as_quick: bool
    is_thrifty: bool  # whether its core-hours are hardly above the least
    is_as_quick_of_thrifty: bool  # whether it is the quickest among the thrifty, or not significantly slower
    # its waits over Per-Stage's, between stages and in all: sums over all cells and replications; nan where
    # Per-Stage's are less than a minute a run
    perceived_wait: float
    total_wait: float
    # cells in which another strategy took less time, by significantly more than `MARGIN`, and no more core-hours, or
    # the reverse: all of them are right at once with 95 % (Holm)
    dominated: int
    cells: int


def standings(runs: Iterable[_R], cell_of: Callable[[_R], Cell], replication_of: Callable[[_R], int]) -> list[Standing]:
    """Work out how each strategy did.

    `cell_of`, `replication_of`: where a run belongs: all strategies that ran in a cell have the same replications.
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
    """Leave out the cells in which not every strategy ran: averages over others compare what is not alike."""
    ran: dict[Cell, set[str]] = {}
    for run in runs:
        ran.setdefault(cell_of(run), set()).add(run.strategy)
    names = set().union(*ran.values())
    return [run for run in runs if ran[cell_of(run)] == names]


def by_world(values: Iterable[tuple[str, int, float]]) -> Interval:
    """Average values of worlds and replications, all alike; with the interval over replications, each world by itself.

    `values`: a world, a replication of it, and a value there; one for each cell of the world.
    """
    worlds: dict[str, dict[int, list[float]]] = {}
    for world, replication, value in values:
        worlds.setdefault(world, {}).setdefault(replication, []).append(value)
    return pooled_interval(
        [[float(np.mean(of)) for of in replications.values()] for replications in worlds.values()],
        [float(sum(map(len, replications.values()))) for replications in worlds.values()],
    )


def paired(mine: Mapping[int, _R], theirs: Mapping[int, _R], what: str) -> dict[int, float]:
    """Give the logarithm of a figure's ratio in each replication.

    `mine`, `theirs`: runs of two strategies in one cell, by replication; theirs has every replication of mine.
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
    """Give the quickest of some strategies, and all that are not significantly slower."""
    quickest = min(names, key=lambda name: _over(cells, "makespan_s", name, QUICK_BASE).mean)
    others = [name for name in names if name != quickest]
    apart = beyond_chance([_over(cells, "makespan_s", name, quickest) for name in others], ratios=True)
    return {quickest, *(name for name, is_apart in zip(others, apart, strict=True) if not is_apart)}


def _share(cells: _RunsByCell[_R], what: str, name: str) -> float:
    mine, theirs = (
        [float(getattr(run, what)) for cell in cells.values() for run in cell[one].values()]
        for one in (name, THRIFTY_BASE)
    )
    return sum(mine) / sum(theirs) if np.mean(theirs) >= _HARDLY_S else math.nan


def _dominated(cells: _RunsByCell[_R], name: str) -> int:
    """Count the cells in which another is clearly better in one of the two, and not worse in the other."""
    comparisons: list[tuple[Cell, Interval, Interval]] = []
    for key, cell in cells.items():
        for other in cell.keys() - {name}:
            time, hours = (
                mean_interval(list(paired(cell[name], cell[other], what).values()))
                for what in ("makespan_s", "core_hours")
            )
            comparisons += [(key, time, hours), (key, hours, time)]
    above = [_above(one, math.log1p(MARGIN)) for _, one, _ in comparisons]
    return len(
        {
            key
            for (key, _, other), more, is_there in zip(comparisons, above, beyond_chance(above), strict=True)
            if is_there and more.mean > 0 and other.mean >= -_EQUAL
        }
    )


def _above(found: Interval, margin: float) -> Interval:
    return Interval(found.mean - margin, found.low - margin, found.high - margin, found.freedom)
