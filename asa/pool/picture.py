"""The picture of a pool's time: its allocations from request to end, and the use of its cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.core.drawing import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WAITS, _STARTS, _LIVES, _LEAVES, _BUSY = "#d9d9d9", "#f0e442", "#56b4e9", "#cc79a7", "#0072b2"
_MAX_NAMED = 40
_UNITS = ((7200.0, 3600.0, "hours"), (300.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


def draw_timeline(timeline: Mapping[str, Any], path: str | Path) -> None:
    """Draw a line for each allocation, above the available and busy cores.

    `timeline`: from `AsaCluster.timeline`; a pool stores it as ``timeline.json`` in its folder.
    """
    allocations: Sequence[Mapping[str, Any]] = timeline["allocations"]
    samples: Sequence[Mapping[str, float]] = timeline["cores"]
    times = [sample["time_s"] for sample in samples]
    times += [
        allocation[name] for allocation in allocations for name in ("asked_s", "end_s") if allocation[name] is not None
    ]
    begin_s, end_s = min(times, default=0.0), max(times, default=1.0)
    scale, unit = next((scale, unit) for min_s, scale, unit in _UNITS if end_s - begin_s >= min_s)
    figure = new_figure(8.0, 2.6 + min(0.24 * len(allocations), 8.0))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(max(len(allocations), 4), 8))
    _draw_allocations(above, allocations, begin_s, end_s, scale)
    moments = [(sample["time_s"] - begin_s) / scale for sample in samples]
    if samples:
        moments.append((end_s - begin_s) / scale)
    for name, colour, label in (("alive", _LIVES, "alive"), ("busy", _BUSY, "busy")):
        cores = [sample[name] for sample in samples]
        below.fill_between(moments, [*cores, *cores[-1:]], step="post", color=colour, linewidth=0, label=label)
    waiting = [sample["waiting"] for sample in samples]
    below.step(moments, [*waiting, *waiting[-1:]], where="post", color="#777777", linewidth=1, label="asked for")
    below.set_ylabel("cores")
    below.set_xlabel(unit)
    below.set_ylim(bottom=0)
    below.yaxis.get_major_locator().set_params(integer=True)
    for panel in (above, below):
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlim(0, max((end_s - begin_s) / scale, 1e-9))
        if allocations or panel is below:
            panel.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save_figure(figure, path)


def _draw_allocations(
    panel: Axes, allocations: Sequence[Mapping[str, Any]], begin_s: float, end_s: float, scale: float
) -> None:
    """Draw a bar for each allocation: pending, starting, working, leaving."""
    named: set[str] = set()
    for index, allocation in enumerate(allocations):
        last_s = end_s if allocation["end_s"] is None else allocation["end_s"]
        marks = [allocation["asked_s"]]
        for name in ("start_s", "joined_s", "drain_s"):
            marks.append(min(max(last_s if allocation[name] is None else allocation[name], marks[-1]), last_s))
        marks.append(max(last_s, marks[-1]))
        if allocation["drain_s"] is None:
            marks[3] = marks[4]
        parts = (("waits", _WAITS), ("starts", _STARTS), ("lives", _LIVES), ("leaves", _LEAVES))
        for (label, colour), from_s, until_s in zip(parts, marks[:-1], marks[1:], strict=True):
            if until_s > from_s:
                label_ = "_" if label in named else label
                named.add(label)
                left = (from_s - begin_s) / scale
                panel.barh(index, (until_s - from_s) / scale, left=left, color=colour, height=0.7, label=label_)
    panel.invert_yaxis()
    panel.set_ylabel("allocations")
    every = range(len(allocations)) if len(allocations) <= _MAX_NAMED else ()
    panel.set_yticks(list(every), [f"{allocations[n]['id']} ({allocations[n]['cores']})" for n in every], fontsize=7)
