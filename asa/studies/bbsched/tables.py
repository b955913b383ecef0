"""What outcomes say of methods: means over seeds, who is best where, and how far the others are from that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import Interval, mean_interval
from asa.studies.present import Measure, shares_of_best

from .comparison import ComparedOutcome, WaitsOfPart
from .paper import WINDOW

BASELINE: Final = "baseline"
_TIE: Final = 0.01

By = Literal["by_nodes", "by_burst_buffer", "by_run"]
Grid = Mapping[str, Mapping[str, Sequence[ComparedOutcome]]]
"""Outcomes by workload and method: one for each seed, in order."""


_NODES = Measure("node_usage", "node usage", 100, "%")
_BUFFER = Measure("burst_buffer_usage", "burst-buffer usage", 100, "%")
_WAIT = Measure("average_wait_s", "average wait", digits=None, is_loss=True)
_SLOWDOWN = Measure("average_slowdown", "average slowdown", is_loss=True)

MEASURES: Final = (_NODES, _BUFFER, _WAIT, _SLOWDOWN)
"""What the paper compares."""
SSD_MEASURES: Final = (
    _NODES,
    _BUFFER,
    Measure("ssd_usage", "SSD usage", 100, "%"),
    Measure("wasted_ssd", "wasted SSD", 100, "%", is_loss=True),
    _WAIT,
    _SLOWDOWN,
)
"""What it compares where jobs ask for SSD, too."""


class Rank(StrEnum):
    """How a method stands among others.

    Tied is who is within 1 % of the best. Close is who is not, but for whom the seeds do not tell: the 95 % interval
    of its distance from the best, seed by seed, has 0 in it.
    """

    BEST = "best"
    TIED = "tied"
    CLOSE = "close"
    WORSE = "worse"


def arrange(
    outcomes: Iterable[ComparedOutcome], window: int, solver: str
) -> dict[str, dict[str, list[ComparedOutcome]]]:
    """Put outcomes of one size of the window and one solver side by side: a `Grid`."""
    grid: dict[str, dict[str, list[ComparedOutcome]]] = {}
    for one in outcomes:
        if (one.case.window, one.case.solver) == (window, solver):
            grid.setdefault(one.case.workload, {}).setdefault(one.case.method, []).append(one)
    for by_method in grid.values():
        for some in by_method.values():
            some.sort(key=lambda one: one.case.seed)
    return grid


def values(outcomes: Sequence[ComparedOutcome], measure: str) -> NDArray[np.float64]:
    """Give a figure of each of some outcomes."""
    return np.array([getattr(one, measure) for one in outcomes], dtype=np.float64)


def change(outcomes: Sequence[ComparedOutcome], baseline: Sequence[ComparedOutcome], measure: str) -> Interval:
    """Say by how many percent a figure is more than with the baseline, seed by seed; nan where that has none."""
    ours, theirs = values(outcomes, measure), values(baseline, measure)
    if not theirs.all():
        return Interval(math.nan, math.nan, math.nan)
    return mean_interval((100 * (ours / theirs - 1)).tolist())


def standings(methods: Mapping[str, Sequence[ComparedOutcome]], measure: Measure) -> dict[str, Rank]:
    """Say how each method stands on a workload."""
    found = {method: values(outcomes, measure.name) for method, outcomes in methods.items()}
    means = {method: float(some.mean()) for method, some in found.items()}
    leader = (min if measure.is_loss else max)(means, key=means.__getitem__)
    ranks = {}
    for method, mean in means.items():
        behind = mean_interval((found[method] - found[leader]).tolist())
        if mean == means[leader]:
            ranks[method] = Rank.BEST
        elif abs(mean - means[leader]) <= _TIE * abs(means[leader]):
            ranks[method] = Rank.TIED
        elif abs(behind.mean) <= behind.half:
            ranks[method] = Rank.CLOSE
        else:
            ranks[method] = Rank.WORSE
    return ranks


def breakdown(outcomes: Sequence[ComparedOutcome], by: By) -> list[WaitsOfPart]:
    """Average waits of jobs of some size, request or run time over the jobs of all seeds."""
    parts: dict[int, list[WaitsOfPart]] = {}
    for one in outcomes:
        for part in getattr(one, by):
            parts.setdefault(part.least, []).append(part)
    merged = []
    for least, some in sorted(parts.items()):
        jobs = sum(part.jobs for part in some)
        waited_s = sum(part.jobs * part.average_wait_s for part in some)
        merged.append(WaitsOfPart(least, some[0].most, jobs, waited_s / jobs))
    return merged


def part_change(
    outcomes: Sequence[ComparedOutcome], baseline: Sequence[ComparedOutcome], by: By, least: int
) -> float | None:
    """Say by how many percent some jobs wait longer than with the baseline; None if there are none, or none waits."""
    ours, theirs = (
        [part.average_wait_s for part in breakdown(some, by) if part.least == least] for some in (outcomes, baseline)
    )
    return 100 * (ours[0] / theirs[0] - 1) if any(theirs) else None


def label(by: By, part: WaitsOfPart) -> str:
    """Name some of the jobs: of some nodes, some TB of burst buffer, or some run time."""
    if by == "by_nodes":
        return f"{part.least}-{'' if part.most is None else part.most}"
    if by == "by_burst_buffer":
        if part.most == 0:
            return "none"
        return f"{part.least // 1000}-{'' if part.most is None else round(part.most / 1000)}"
    return f"{_time(part.least)}-{_time(part.most and part.most + 1)}"


def _time(edge_s: int | None) -> str:
    if not edge_s:
        return "" if edge_s is None else "0"
    return f"{edge_s // 3600}h" if edge_s >= 3600 else f"{edge_s // 60}m"


def kiviat(
    methods: Mapping[str, Sequence[ComparedOutcome]], measures: Sequence[Measure]
) -> dict[str, NDArray[np.float64]]:
    """Normalise figures as the paper's Kiviat graphs do, see `asa.studies.present.shares_of_best`."""
    means = [[float(values(some, one.name).mean()) for one in measures] for some in methods.values()]
    return dict(zip(methods, shares_of_best(means, [one.is_loss for one in measures]), strict=True))


def area(shares: NDArray[np.float64]) -> float:
    """Give the area of a polygon in a Kiviat graph, as a share of the whole."""
    return float((shares * np.roll(shares, -1)).mean())


# ---------------------------------------------------------------------- parts of a grid


def shown(outcomes: Sequence[ComparedOutcome]) -> Grid:
    """Give outcomes of one size of the window and one solver: of the paper's window if there is one, or the first."""
    windows = windows_of(outcomes)
    return arrange(outcomes, WINDOW if WINDOW in windows else windows[0], solvers_of(outcomes)[0])


def windows_of(outcomes: Sequence[ComparedOutcome]) -> list[int]:
    """List the sizes of windows, in order of appearance."""
    return list(dict.fromkeys(one.case.window for one in outcomes))


def solvers_of(outcomes: Sequence[ComparedOutcome]) -> list[str]:
    """List the solvers, in order of appearance."""
    return list(dict.fromkeys(one.case.solver for one in outcomes))


def machines(grid: Grid) -> list[str]:
    """List the machines whose workloads these are."""
    return list(dict.fromkeys(name.split("-")[0] for name in grid))


def of_machine(grid: Grid, machine: str) -> Grid:
    """Give the workloads of one machine."""
    return {name: methods for name, methods in grid.items() if name.startswith(machine)}


def methods_of(grid: Grid) -> list[str]:
    """Name the methods of workloads that have the same."""
    return list(next(iter(grid.values())))


def flat(grid: Grid) -> list[ComparedOutcome]:
    """Give all outcomes."""
    return [one for methods in grid.values() for some in methods.values() for one in some]


def has_ssd(methods: Mapping[str, Sequence[ComparedOutcome]]) -> bool:
    """Say whether jobs of a workload ask for SSD."""
    return next(iter(methods.values()))[0].ssd_usage is not None
