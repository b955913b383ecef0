"""Figures 4, 8 to 11, 13 and 14 of the paper, drawn from what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, get_args

import numpy as np

from asa.core.drawing import new_figure, save_figure

from .comparison import Outcome
from .distance import Distance
from .tables import (
    MEASURES,
    SSD_MEASURES,
    By,
    Grid,
    Measure,
    breakdown,
    has_ssd,
    kiviat,
    label,
    machines,
    of_machine,
    shown,
    values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes

__all__ = ["STYLES", "draw_all", "draw_breakdowns", "draw_curve", "draw_kiviats", "draw_waits"]

# Colours are told apart by colour-blind eyes; families of methods share one, and differ in their lines and hatches.
STYLES: Final = {
    "baseline": ("#000000", (0, (4, 2)), ""),
    "weighted": ("#0072b2", "solid", ""),
    "weighted-cpu": ("#0072b2", (0, (1, 1)), "////"),
    "weighted-bb": ("#56b4e9", (0, (5, 1)), "...."),
    "constrained-cpu": ("#009e73", (0, (1, 1)), "////"),
    "constrained-bb": ("#009e73", "solid", "...."),
    "constrained-ssd": ("#cc79a7", (0, (3, 1, 1, 1)), "xxxx"),
    "bin-packing": ("#e69f00", "solid", ""),
    "bbsched": ("#d55e00", "solid", ""),
}


def draw_all(outcomes: Sequence[Outcome], folder: Path) -> list[str]:
    """Draw Figures 8 to 11, 13 and 14 of each machine into a folder; give their names."""
    grid = shown(outcomes)
    names = []
    for machine in machines(grid):
        mine = of_machine(grid, machine)
        for figure, measures in ((13, MEASURES), (14, SSD_MEASURES)):
            some = {name: methods for name, methods in mine.items() if has_ssd(methods) == (measures is SSD_MEASURES)}
            if some:
                names.append(f"figure-{figure}-{machine}.png")
                draw_kiviats(some, measures, folder / names[-1])
        names.append(f"figure-8-{machine}.png")
        draw_waits(mine, folder / names[-1])
        if f"{machine}-s4" in mine:
            names.append(f"figures-9-11-{machine}.png")
            draw_breakdowns(f"{machine}-s4", mine[f"{machine}-s4"], folder / names[-1])
    return names


def draw_kiviats(grid: Grid, measures: Sequence[Measure], path: Path) -> None:
    """Draw how methods do in all measures, a panel for each workload (Figs 13 and 14).

    Each axis is from the worst method in the centre to the best, as the paper has it; its ends are written beside it,
    as they may be near each other.
    """
    columns = math.ceil(math.sqrt(len(grid) + 1))  # one cell is for the legend
    rows = -(-(len(grid) + 1) // columns)
    figure = new_figure(5.6 * columns, 4 * rows)
    panels = [
        cast("PolarAxes", figure.add_subplot(rows, columns, place + 1, projection="polar"))
        for place in range(len(grid))
    ]
    turns = np.linspace(0, 2 * np.pi, len(measures), endpoint=False)
    for axes, (name, methods) in zip(panels, grid.items(), strict=True):
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        for method, shares in kiviat(methods, measures).items():
            colour, line, _ = STYLES[method]
            is_ours = method == "bbsched"
            around = [*shares, shares[0]]
            axes.plot(
                [*turns, turns[0]],
                around,
                color=colour,
                linestyle=line,
                linewidth=2.4 if is_ours else 1.3,
                zorder=2 if is_ours else 3,
                label=method,
            )
            if is_ours:
                axes.fill([*turns, turns[0]], around, color=colour, alpha=0.22, zorder=1, linewidth=0)
        axes.set_xticks(turns, [])
        for turn, measure in zip(turns, measures, strict=True):
            side, height = round(math.sin(turn), 6), round(math.cos(turn), 6)
            axes.text(
                turn,
                1.1,
                _axis(methods, measure),
                fontsize=8,
                ha="center" if not side else "left" if side > 0 else "right",
                va="center" if side else "bottom" if height > 0 else "top",
            )
        axes.set_ylim(0, 1.05)
        axes.set_yticks([0.5, 1], [])
        axes.grid(color="#cccccc", linewidth=0.6)
        axes.spines["polar"].set_visible(False)
        axes.set_title(name, fontweight="bold", pad=30)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        title="centre: the worst of the methods\nrim: the best",
        loc="center",
        bbox_to_anchor=_free_cell(len(grid), rows, columns),
        handlelength=3.5,
        frameon=False,
    )
    save_figure(figure, path)


def draw_waits(grid: Grid, path: Path) -> None:
    """Draw average waits, a panel for each workload and a bar for each method (Fig. 8)."""
    columns = min(4, len(grid))
    rows = -(-len(grid) // columns)
    figure = new_figure(max(3 * columns, 6), 2.6 * rows + 0.6)
    for place, (name, methods) in enumerate(grid.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        for column, (method, outcomes) in enumerate(methods.items()):
            _bars(axes, method, [(column, float(values(outcomes, "average_wait_s").mean()))], width=0.84)
        axes.set_xticks([])
        axes.set_title(name)
        _in_hours(axes)
    _legend(figure)
    save_figure(figure, path)


def draw_breakdowns(name: str, methods: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """Draw average waits by nodes, burst buffer and run time, a bar for each method (Figs 9 to 11)."""
    figure = new_figure(12, 9)
    titles = ("nodes", "burst buffer (TB)", "run time")
    width = 0.84 / len(methods)
    by: By
    for axes, by, title in zip(figure.subplots(3, 1), get_args(By), titles, strict=True):
        for place, (method, outcomes) in enumerate(methods.items()):
            parts = breakdown(outcomes, by)
            beside = (place - (len(methods) - 1) / 2) * width
            _bars(axes, method, [(at + beside, part.average_wait_s) for at, part in enumerate(parts)], width)
        axes.set_xticks(range(len(parts)), [f"{label(by, part)}\n{part.jobs:,} jobs" for part in parts])
        axes.set_title(f"{name}: average wait by {title}")
        _in_hours(axes)
    _legend(figure)
    save_figure(figure, path)


def draw_curve(curve: Sequence[Distance], path: Path) -> None:
    """Draw distance from the exact front and time over generations, a line for each population (Fig. 4)."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    styles = zip(dict.fromkeys(point.population for point in curve), ("o", "s", "^", "D"), strict=False)
    for (population, marker), colour in zip(styles, ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=False):
        points = [point for point in curve if point.population == population]
        at = [point.generations for point in points]
        shared = {"color": colour, "marker": marker, "label": f"P = {population}"}
        left.plot(at, [100 * point.distance for point in points], **shared)
        right.plot(at, [1e3 * point.seconds for point in points], **shared)
    left.set_title("distance from the exact front (% of the machine)")
    right.set_title("time of a solution (ms)")
    for axes in (left, right):
        axes.set_xlabel("generations")
        axes.set_ylim(0)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    save_figure(figure, path)


def _axis(methods: Mapping[str, Sequence[Outcome]], measure: Measure) -> str:
    """Name an axis, and what is at its ends: first the worst, then the best."""
    means = [values(some, measure.name).mean() * measure.scale for some in methods.values()]
    ends = sorted(means, reverse=measure.is_loss)
    digits = measure.digits if ends[0] < 100 else 0
    low, high = (f"{end:,.{digits}f}" for end in (ends[0], ends[-1]))
    return f"{measure.words}\n{low} to {high} {measure.unit}".rstrip()


def _free_cell(place: int, rows: int, columns: int) -> tuple[float, float]:
    """Find the middle of a cell of a figure."""
    return (place % columns + 0.5) / columns, 1 - (place // columns + 0.5) / rows


def _bars(axes: Axes, method: str, waits_s: Sequence[tuple[float, float]], width: float) -> None:
    """Draw a method's bars, each at a place."""
    colour, _, hatch = STYLES[method]
    axes.bar(
        [place for place, _ in waits_s],
        [wait_s / 3600 for _, wait_s in waits_s],
        width=width,
        color=colour,
        edgecolor="white",
        hatch=hatch,
        linewidth=0.4,
        label=method,
    )


def _legend(figure: Figure) -> None:
    """Name the methods, each once, below."""
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False)


def _in_hours(axes: Axes) -> None:
    axes.set_ylabel("h")
    axes.set_ylim(0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.spines[["top", "right"]].set_visible(False)
