"""Figures 2 and 4 to 14 of the paper, from our results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from asa.studies.present import Figure, Look, Measure, Panel, PlottedSeries, draw, number, side_by_side

from .asked import BIN_TB, AskedBuffer
from .comparison import ComparedOutcome
from .distance import Distance
from .scaling import LIMIT_S, SolutionTime
from .tables import (
    MEASURES,
    SSD_MEASURES,
    By,
    Grid,
    breakdown,
    has_ssd,
    kiviat,
    label,
    machines,
    of_machine,
    shown,
    values,
)

# related methods share a colour, and differ in lines and hatches
STYLES: Final = {
    "baseline": Look("#000000", (0, (4, 2))),
    "weighted": Look("#0072b2"),
    "weighted-cpu": Look("#0072b2", (0, (1, 1)), "////"),
    "weighted-bb": Look("#56b4e9", (0, (5, 1)), "...."),
    "constrained-cpu": Look("#009e73", (0, (1, 1)), "////"),
    "constrained-bb": Look("#009e73", hatch="...."),
    "constrained-ssd": Look("#cc79a7", (0, (3, 1, 1, 1)), "xxxx"),
    "bin-packing": Look("#e69f00"),
    "bbsched": Look("#d55e00", width=2.4, is_filled=True),
}
_SOLVER_MARKERS: Final = {"exhaustive": "o", "exact": "s", "genetic": "^"}


def draw_all(outcomes: Sequence[ComparedOutcome], folder: Path) -> list[str]:
    """Draw Figures 6 to 14 for each machine into a folder; return their names."""
    grid = shown(outcomes)
    figures = {}
    for machine in machines(grid):
        mine = of_machine(grid, machine)
        for place, measures in ((13, MEASURES), (14, SSD_MEASURES)):
            some = {name: methods for name, methods in mine.items() if has_ssd(methods) == (measures is SSD_MEASURES)}
            if some:
                figures[f"figure-{place}-{machine}.png"] = _kiviats(some, measures)
        for place, measure in zip((6, 7, 8, 12), MEASURES, strict=True):
            figures[f"figure-{place}-{machine}.png"] = _bars(mine, measure)
        if f"{machine}-s4" in mine:
            figures[f"figures-9-11-{machine}.png"] = _breakdowns(f"{machine}-s4", mine[f"{machine}-s4"])
    for name, figure in figures.items():
        draw(figure, folder / name)
    return list(figures)


def _kiviats(grid: Grid, measures: Sequence[Measure]) -> Figure:
    """Draw methods by all measures, a panel for each workload (Figs 13 and 14).

    As in the paper, each axis runs from the worst method in the centre to the best. Its ends are labelled, since they
    may be close to each other.
    """
    panels = [
        Panel(
            [PlottedSeries(method, shares.tolist()) for method, shares in kiviat(methods, measures).items()],
            name,
            spokes=[_axis(methods, measure) for measure in measures],
        )
        for name, methods in grid.items()
    ]
    columns = math.ceil(math.sqrt(len(grid)))
    size = (5.6 * columns + 2, 4 * -(-len(grid) // columns))
    return Figure(panels, size, columns, x="centre: the worst of the methods, rim: the best", looks=STYLES)


def _bars(grid: Grid, measure: Measure) -> Figure:
    """Show a measure, a panel for each workload and a bar for each method (Figs 6, 7, 8 and 12)."""
    scale, unit = (1 / 3600, "h") if measure.digits is None else (measure.scale, measure.unit)
    panels = []
    for name, methods in grid.items():
        bars = {method: [float(values(some, measure.name).mean()) * scale] for method, some in methods.items()}
        panels.append(Panel(side_by_side(bars), name, y=f"{measure.words}{unit and f' ({unit})'}", names=[""]))
    columns = min(4, len(grid))
    return Figure(panels, (max(3 * columns, 12), 2.6 * -(-len(grid) // columns) + 0.6), columns, looks=STYLES)


def _breakdowns(name: str, methods: Mapping[str, Sequence[ComparedOutcome]]) -> Figure:
    """Show average waits by nodes, burst buffer and run time, a bar for each method (Figs 9 to 11)."""
    panels = []
    by: By
    for by, title in zip(get_args(By), ("nodes", "burst buffer (TB)", "run time"), strict=True):
        parts = {method: breakdown(some, by) for method, some in methods.items()}
        waits = {method: [part.average_wait_s / 3600 for part in of] for method, of in parts.items()}
        names = [f"{label(by, part)}\n{part.jobs:,} jobs" for part in next(iter(parts.values()))]
        panels.append(Panel(side_by_side(waits), f"{name}: average wait by {title}", y="h", names=names))
    return Figure(panels, (12, 9), 1, looks=STYLES)


def draw_curve(curve: Sequence[Distance], path: Path) -> None:
    """Draw distance from the exact front and time over generations, a line for each population (Fig. 4)."""
    lines: dict[str, list[Distance]] = {}
    for point in curve:
        lines.setdefault(f"P = {point.population}", []).append(point)
    panels = [
        Panel(
            [PlottedSeries(name, [scale * getattr(score, of) for score in on], [score.generations for score in on])
             for name, on in lines.items()],
            title,
            "generations",
            y_limits=(0, None),
        )
        for of, scale, title in (
            ("distance", 100, "distance from the exact front (% of the machine)"),
            ("seconds", 1000, "time of a solution (ms)"),
        )
    ]  # fmt: skip
    looks = {name: Look(marker=marker) for name, marker in zip(lines, "os^D", strict=False)}
    draw(Figure(panels, (10, 4), looks=looks), path)


def draw_times(times: Sequence[SolutionTime], path: Path) -> None:
    """Draw the time of a solution by the size of the window, a line for each solver (Fig. 2)."""
    series: list[PlottedSeries] = []
    looks: dict[str, Look] = {}
    for (name, marker), colour in zip(_SOLVER_MARKERS.items(), ("#0072b2", "#d55e00", "#009e73"), strict=True):
        points = [point for point in times if point.solver == name]
        measured = sum(point.windows > 0 for point in points)  # the smaller windows
        for line, part in ((name, points[:measured]), (f"{name}, extrapolated", points[max(measured - 1, 0) :])):
            series.append(PlottedSeries(line, [at.seconds for at in part], [at.window for at in part]))
        looks |= {name: Look(colour, "-", marker=marker), f"{name}, extrapolated": Look(colour, ":")}
    lines = [line for line in series if len(line.ys) > 1 or line.name in _SOLVER_MARKERS]
    title = f"a scheduler has to respond within {LIMIT_S:g} s (dashed)"
    panel = Panel(lines, title, "jobs in the window", "s for a solution", is_log=True, level=LIMIT_S)
    draw(Figure([panel], (7, 4.5), looks=looks), path)


def draw_asked(requests: Sequence[AskedBuffer], folder: Path) -> list[str]:
    """Draw histograms of requests for each machine into a folder (Fig. 5); return their names."""
    names = []
    for machine in dict.fromkeys(of.workload.split("-")[0] for of in requests):
        mine = [of for of in requests if of.workload.startswith(machine)]
        longest = max(len(of.counts) for of in mine)
        edges = [BIN_TB * place for place in range(longest + 1)]
        panels = [
            Panel(
                [PlottedSeries("_", of.counts, [edge + BIN_TB / 2 for edge in edges[: len(of.counts)]], kind="bar",
                               width=0.9 * BIN_TB)],
                f"{of.workload} ({of.total_tb / 1000:,.1f} PB)",
                "request (TB)",
                "jobs",
                x_limits=(0, edges[-1]),
                y_limits=(0.8, None),
                is_log=True,
            )
            for of in mine
        ]  # fmt: skip
        names.append(f"figure-5-{machine}.png")
        columns = min(3, len(panels))
        draw(
            Figure(panels, (3.4 * columns, 2.9 * -(-len(panels) // columns)), columns, share_y="all"),
            folder / names[-1],
        )
    return names


def _axis(methods: Mapping[str, Sequence[ComparedOutcome]], measure: Measure) -> str:
    """Return the label of an axis: its name, and the values of the worst and the best method."""
    means = [values(some, measure.name).mean() * measure.scale for some in methods.values()]
    ends = sorted(means, reverse=measure.is_loss)
    digits = 0 if measure.digits is not None and ends[0] >= 100 else measure.digits
    low, high = (number(end, digits) for end in (ends[0], ends[-1]))
    return f"{measure.words}\n{low} to {high} {measure.unit}".rstrip()
