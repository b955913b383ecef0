"""Summaries of methods: means over seeds, the best method of each measure, and the distances of the others."""

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
"""The measures that the paper compares."""
SSD_MEASURES: Final = (
    _NODES,
    _BUFFER,
    Measure("ssd_usage", "SSD usage", 100, "%"),
    Measure("wasted_ssd", "wasted SSD", 100, "%", is_loss=True),
    _WAIT,
    _SLOWDOWN,
)
"""The measures that it compares if jobs ask for SSD, too."""


class Rank(StrEnum):
    """The position of a method among others.

    A method is tied if it is within 1 % of the best. It is close if it is not, but the difference is not significant:
    the 95 % interval of its distance from the best, paired by seed, contains 0.
    """

    BEST = "best"
    TIED = "tied"
    CLOSE = "close"
    WORSE = "worse"


def arrange(
    outcomes: Iterable[ComparedOutcome], window: int, solver: str
) -> dict[str, dict[str, list[ComparedOutcome]]]:
    """Arrange outcomes of one window size and one solver into a `Grid`."""
    grid: dict[str, dict[str, list[ComparedOutcome]]] = {}
    for outcome in outcomes:
        if (outcome.case.window, outcome.case.solver) == (window, solver):
            grid.setdefault(outcome.case.workload, {}).setdefault(outcome.case.method, []).append(outcome)
    for by_method in grid.values():
        for some in by_method.values():
            some.sort(key=lambda outcome: outcome.case.seed)
    return grid


def values(outcomes: Sequence[ComparedOutcome], measure: str) -> NDArray[np.float64]:
    """Return a measure of each outcome."""
    return np.array([getattr(outcome, measure) for outcome in outcomes], dtype=np.float64)


def change(outcomes: Sequence[ComparedOutcome], baseline: Sequence[ComparedOutcome], measure: str) -> Interval:
    """Return the change of a measure from the baseline in percent, paired by seed; nan if the baseline's is 0."""
    ours, theirs = values(outcomes, measure), values(baseline, measure)
    if not theirs.all():
        return Interval(math.nan, math.nan, math.nan)
    return mean_interval((100 * (ours / theirs - 1)).tolist())


def standings(methods: Mapping[str, Sequence[ComparedOutcome]], measure: Measure) -> dict[str, Rank]:
    """Return the rank of each method on a workload."""
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
    """Average the waits of jobs by size, request or run time, over the jobs of all seeds."""
    parts: dict[int, list[WaitsOfPart]] = {}
    for outcome in outcomes:
        for part in getattr(outcome, by):
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
    """Return the change of the given jobs' wait from the baseline in percent; None if it is not defined."""
    ours, theirs = (
        [part.average_wait_s for part in breakdown(some, by) if part.least == least] for some in (outcomes, baseline)
    )
    return 100 * (ours[0] / theirs[0] - 1) if any(theirs) else None


def label(by: By, part: WaitsOfPart) -> str:
    """Return a label for a part of the jobs: a range of nodes, of TB of burst buffer, or of run times."""
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
    """Normalise measures as in the paper's Kiviat graphs; see `asa.studies.present.shares_of_best`."""
    means = [[float(values(some, measure.name).mean()) for measure in measures] for some in methods.values()]
    return dict(zip(methods, shares_of_best(means, [measure.is_loss for measure in measures]), strict=True))


def area(shares: NDArray[np.float64]) -> float:
    """Return the area of a polygon in a Kiviat graph, as a share of the largest possible."""
    return float((shares * np.roll(shares, -1)).mean())


# ---------------------------------------------------------------------- parts of a grid


def shown(outcomes: Sequence[ComparedOutcome]) -> Grid:
    """Return outcomes of one window size and one solver: of the paper's window if it was run, else of the first."""
    windows = windows_of(outcomes)
    return arrange(outcomes, WINDOW if WINDOW in windows else windows[0], solvers_of(outcomes)[0])


def windows_of(outcomes: Sequence[ComparedOutcome]) -> list[int]:
    """Return the window sizes, in order of appearance."""
    return list(dict.fromkeys(outcome.case.window for outcome in outcomes))


def solvers_of(outcomes: Sequence[ComparedOutcome]) -> list[str]:
    """Return the solvers, in order of appearance."""
    return list(dict.fromkeys(outcome.case.solver for outcome in outcomes))


def machines(grid: Grid) -> list[str]:
    """Return the machines of the workloads."""
    return list(dict.fromkeys(name.split("-")[0] for name in grid))


def of_machine(grid: Grid, machine: str) -> Grid:
    """Return the workloads of one machine."""
    return {name: methods for name, methods in grid.items() if name.startswith(machine)}


def methods_of(grid: Grid) -> list[str]:
    """Return the methods, which all the workloads share."""
    return list(next(iter(grid.values())))


def flat(grid: Grid) -> list[ComparedOutcome]:
    """Return all outcomes as a list."""
    return [outcome for methods in grid.values() for some in methods.values() for outcome in some]


def has_ssd(methods: Mapping[str, Sequence[ComparedOutcome]]) -> bool:
    """Whether jobs of a workload ask for SSD."""
    return next(iter(methods.values()))[0].ssd_usage is not None
