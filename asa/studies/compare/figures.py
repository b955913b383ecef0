"""Figures; matplotlib is loaded when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.drawing import new_figure, save_figure
from asa.errors import InputError
from asa.metrics import RunMetrics
from asa.studies.compare.study import CompareRun, group

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["makespan_bars"]

_WAIT_COLOUR = "#c8c8c8"
_STAGE_COLOURS = (  # told apart by colour-blind eyes
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#332288",
    "#882255",
)


def makespan_bars(runs: Sequence[CompareRun], path: str | Path) -> None:
    """Draw Fig. 6's picture: for each core count one bar a strategy, each stage's mean wait and run time stacked.

    Of a graph with branches each run's critical path is drawn, so that a bar is as high as the mean makespan.
    """
    cells = {key: [run.metrics for run in members if run.metrics] for key, members in group(runs).items()}
    done = next((members for members in cells.values() if members), None)
    if done is None:
        raise InputError("no run completed, so there is nothing to draw", where=str(path), hint="See why they failed.")
    counts = list(dict.fromkeys(cores for cores, _ in cells))
    strategies = list(dict.fromkeys(strategy for _, strategy in cells))
    figure = new_figure(2.2 + 1.9 * len(counts) * max(len(strategies), 2) / 3, 5.2)
    panels = figure.subplots(1, len(counts), squeeze=False, sharey=False)[0]
    stages = [stage.stage for stage in done[0].stages]
    for panel, cores in zip(panels, counts, strict=True):
        for position, strategy in enumerate(strategies):
            _bar(panel, position, cells.get((cores, strategy), []), stages)
        panel.set_title(f"{cores} cores")
        panel.set_xticks(range(len(strategies)), strategies, rotation=35, ha="right")
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.03)
    panels[0].set_ylabel("seconds since submission (mean)")
    figure.suptitle(f"{runs[0].workflow} on {runs[0].system}: makespan by stage")
    handles, labels = panels[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(unique.values())[::-1],
        list(unique)[::-1],
        loc="outside right center",
        frameon=False,
        fontsize="small",
    )
    save_figure(figure, path)


def _bar(panel: Axes, position: int, runs: Sequence[RunMetrics], stages: Sequence[str]) -> None:
    if not runs:
        return
    height = 0.0
    for index, name in enumerate(stages):
        critical = [run.stages[index] for run in runs if run.stages[index].critical]
        wait = sum(stage.perceived_wait_s for stage in critical) / len(runs)
        lasts = sum(stage.run_s for stage in critical) / len(runs)
        panel.bar(
            position,
            wait,
            0.75,
            bottom=height,
            color=_WAIT_COLOUR,
            hatch="///",
            edgecolor="white",
            linewidth=0,
            label="waiting",
        )
        colour = _STAGE_COLOURS[index % len(_STAGE_COLOURS)]
        panel.bar(
            position,
            lasts,
            0.75,
            bottom=height + wait,
            color=colour,
            edgecolor="white",
            linewidth=0.4,
            label=name,
        )
        height += wait + lasts
    panel.annotate(f"{height:,.0f}", (position, height), ha="center", va="bottom", fontsize="small")
