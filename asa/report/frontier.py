"""Plans by expected makespan and core-hours: as a figure, and as letters in a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asa.core.drawing import new_figure, save_figure
from asa.core.late import dataclass
from asa.strategies.base import Keep
from asa.strategies.planning import Outlook, Parts, Question, Sketch, sketch_of
from asa.units import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHOSEN = "*"
"""The letter of the chosen plan in a terminal."""

_FAR_APART = 10.0  # ratio of the largest value to the smallest from which an axis is logarithmic
_ROOM = 11  # columns to the right of the axis, for letters that would overlap
_LABEL = 9
_APART_PT = 7.0  # distance between intervals that would cover each other
_COLOURS = {"B": "#d55e00", "P": "#0072b2", "C": "#009e73"}  # distinguishable by colour-blind readers
_MARKERS = {"B": "s", "P": "o", "C": "^"}
_BEST_COLOUR = "#555555"
_CHOSEN_COLOUR = "#cc79a7"
_TICKS_S = (
    1,
    2,
    5,
    10,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
    7200,
    4 * 3600,
    8 * 3600,
    86400,
    2 * 86400,
    7 * 86400,
    30 * 86400,
)


@dataclass(frozen=True, slots=True)
class PlanAmongOthers:
    """A plan among others."""

    name: str  # its name and its letter
    mark: str
    sketch: Sketch  # its jobs, and their expected makespan and core-hours
    is_chosen: bool = False  # whether it is the plan that would be carried out
    # whether it is on the frontier: no other plan is expected to end sooner with fewer core-hours
    is_best: bool = False


def candidates_of(outlook: Outlook) -> list[PlanAmongOthers]:
    """Return the plans of the well-known strategies, then those on the frontier by core-hours."""
    chosen = outlook.sketch
    best = [chosen if _jobs_of(sketch) == _jobs_of(chosen) else sketch for sketch in outlook.frontier()]
    if not any(sketch is chosen for sketch in best):
        best = sorted([*best, chosen], key=lambda sketch: sketch.core_hours)
    question, stages = outlook.question, outlook.question.parts.names
    known: list[tuple[str, str, Sketch]] = []
    unchanging = rigid(question)
    if unchanging.parts.block(stages) is not None:
        known.append(("Big Job", "B", sketch_of(unchanging, [(stages, Keep.NOTHING)])))
    fixed = _fixed(question) if question.typically else question
    known.append(("Per-Stage", "P", sketch_of(fixed, [((name,), Keep.NOTHING) for name in stages])))
    if Keep.DEPENDENCY in question.modes:
        known.append(("Chained", "C", sketch_of(fixed, [((name,), Keep.DEPENDENCY) for name in stages])))
    found = []
    judged = outlook.judged([sketch for _, _, sketch in known])
    for (name, mark, _), sketch in zip(known, judged, strict=True):
        same = next((other for other in best if _jobs_of(other) == _jobs_of(sketch)), None)
        found.append(PlanAmongOthers(name, mark, same or sketch, is_chosen=same is chosen, is_best=same is not None))
    listed = [_jobs_of(candidate.sketch) for candidate in found]
    others = [sketch for sketch in best if _jobs_of(sketch) not in listed]
    marks = "123456789adefghijklmn"
    for number, (mark, sketch) in enumerate(zip(marks, others, strict=False), start=1):
        found.append(PlanAmongOthers(f"Plan {number}", mark, sketch, is_chosen=sketch is chosen, is_best=True))
    return found


def rigid(question: Question) -> Question:
    """Return the question with one shape for each stage, as for a site where jobs cannot shrink or grow."""
    parts = question.parts
    return replace(question, parts=Parts(parts.workflow, parts.names, cores_per_node=parts.cores_per_node))


def _fixed(question: Question) -> Question:
    """Return the question with one shape for each stage."""
    parts = question.parts
    resizing = parts.resizing.only_back()
    own = Parts(parts.workflow, parts.names, cores_per_node=parts.cores_per_node, resizing=resizing)
    return replace(question, parts=own)


def _jobs_of(sketch: Sketch) -> list[tuple[object, ...]]:
    return [(job.block.stages, job.block.elasticity, job.block.shapes, job.keep) for job in sketch.jobs]


def interval_s(sketch: Sketch) -> tuple[float, float]:
    """Return the makespans that are exceeded in 9 of 10 cases and in 1 of 10 cases."""
    low_s, high_s = np.quantile(sketch.end_s, [0.1, 0.9]).tolist()
    return low_s, high_s


def frontier_letters(candidates: Sequence[PlanAmongOthers], width: int = 72, height: int = 11) -> list[str]:
    """Draw a letter for each plan: core-hours to the right, expected makespan upwards.

    Plans that would overlap are drawn side by side, the chosen one first.
    """
    columns = width - _LABEL - 2 - _ROOM
    hours = [candidate.sketch.core_hours for candidate in candidates]
    spans_s = [candidate.sketch.makespan_s for candidate in candidates]
    across, up = _placing(hours, columns), _placing(spans_s, height)
    grid = [[" "] * (columns + _ROOM) for _ in range(height)]
    for candidate in sorted(candidates, key=lambda candidate: not candidate.is_chosen):
        row = grid[height - 1 - up(candidate.sketch.makespan_s)]
        place = next(at for at in range(across(candidate.sketch.core_hours), len(row)) if row[at] == " ")
        row[place] = CHOSEN if candidate.is_chosen else candidate.mark
    heads = [""] * height
    heads[-1], heads[0] = format_duration(min(spans_s)), format_duration(max(spans_s))
    lines = [f"{head:>{_LABEL}} │{''.join(row)}".rstrip() for head, row in zip(heads, grid, strict=True)]
    least, most = f"{min(hours):,.1f}", f"{max(hours):,.1f}"
    between = " " * max(columns - len(least) - len(most), 1)
    axis = f"{least}{between}{most}" if most != least else least
    return [*lines, f"{'':>{_LABEL}} └{'─' * columns}", f"{'':>{_LABEL}}  {axis} core-hours"]


def _placing(values: Sequence[float], cells: int) -> Callable[[float], int]:
    """Return a function from a value to its cell, counted from 0."""
    low, high = min(values), max(values)
    scale = math.log if _is_wide(values) else float
    span = scale(high) - scale(low)
    return lambda value: round((scale(value) - scale(low)) / span * (cells - 1)) if span else 0


def _is_wide(values: Sequence[float]) -> bool:
    return 0 < _FAR_APART * min(values) < max(values)


def frontier_figure(candidates: Sequence[PlanAmongOthers], path: str | Path, title: str) -> None:
    """Draw expected makespan against core-hours, each with the interval that contains 8 of 10 cases."""
    figure = new_figure(8.0, 5.0)
    panel = figure.subplots()
    hours = [candidate.sketch.core_hours for candidate in candidates]
    times_s = [
        time for candidate in candidates for time in (candidate.sketch.makespan_s, *interval_s(candidate.sketch))
    ]
    if _is_wide(hours):
        panel.set_xscale("log")
    if _is_wide(times_s):
        panel.set_yscale("log")
    panel.set_xlim(*_limits(hours))
    panel.set_ylim(*_limits(times_s))
    best = [candidate.sketch for candidate in candidates if candidate.is_best]
    best.sort(key=lambda sketch: sketch.core_hours)
    panel.plot(
        [sketch.core_hours for sketch in best],
        [sketch.makespan_s for sketch in best],
        color=_BEST_COLOUR,
        linewidth=0.8,
        zorder=1,
        label="none is sooner with fewer core-hours" if len(best) > 1 else None,
    )
    for candidate in candidates:
        same = [other for other in candidates if _would_hide(candidate, other, hours)]
        place = same.index(candidate) - (len(same) - 1) / 2
        _draw(panel, candidate, _APART_PT * place)
    _label_times(panel)
    panel.set_xlabel("expected core-hours")
    panel.set_ylabel("expected makespan; bars: 8 in 10 cases")
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_title(title, fontsize="medium")
    figure.legend(loc="outside right center", frameon=False, fontsize="small")
    save_figure(figure, path)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if _is_wide(values):
        return low / 1.3, high * 1.3
    margin = 0.08 * (high - low) or 0.1 * max(high, 1.0)
    return low - margin, high + margin


def _would_hide(plan: PlanAmongOthers, other: PlanAmongOthers, hours: Sequence[float]) -> bool:
    near = 0.02 * (max(hours) - min(hours))
    return abs(plan.sketch.core_hours - other.sketch.core_hours) <= near


def _draw(panel: Axes, candidate: PlanAmongOthers, aside_pt: float) -> None:
    from matplotlib.transforms import ScaledTranslation  # noqa: PLC0415 - heavy, and optional

    sketch = candidate.sketch
    figure = panel.get_figure(root=True)
    assert figure is not None
    place = panel.transData + ScaledTranslation(aside_pt / 72, 0, figure.dpi_scale_trans)
    colour = _CHOSEN_COLOUR if candidate.is_chosen else _COLOURS.get(candidate.mark, _BEST_COLOUR)
    at = [sketch.core_hours] * 2
    panel.plot(at, interval_s(sketch), color=colour, linewidth=2, alpha=0.5, transform=place, zorder=2)
    panel.plot(
        at[:1],
        [sketch.makespan_s],
        linestyle="none",
        marker="*" if candidate.is_chosen else _MARKERS.get(candidate.mark, "o"),
        markersize=17 if candidate.is_chosen else 10,
        color=colour,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label=f"{candidate.name}, chosen" if candidate.is_chosen else candidate.name,
        transform=place,
        zorder=5 if candidate.is_chosen else 3,
    )
    if candidate.mark not in _MARKERS and not candidate.is_chosen:
        panel.text(
            at[0],
            sketch.makespan_s,
            candidate.mark,
            transform=place,
            color="white",
            fontsize="x-small",
            horizontalalignment="center",
            verticalalignment="center_baseline",
            zorder=4,
        )


def _label_times(panel: Axes) -> None:
    """Put ticks at round times, and write them as durations."""
    low, high = panel.get_ylim()
    if panel.get_yscale() == "log":
        ticks: list[float] = [float(tick) for tick in _TICKS_S if low <= tick <= high]
    else:
        step = next((tick for tick in _TICKS_S if (high - low) / tick <= 8), _TICKS_S[-1])
        ticks = [float(step * n) for n in range(math.ceil(max(low, 0.0) / step), int(high / step) + 1)]
    if len(ticks) > 1:
        panel.set_yticks(ticks, [format_duration(tick) for tick in ticks])
        panel.set_yticks([], minor=True)
    else:
        panel.yaxis.set_major_formatter(lambda value, _: format_duration(value))
