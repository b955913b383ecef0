"""Makespans as a figure. Matplotlib is imported only for drawing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asa.errors import InputError
from asa.report.page.drawing import Bar
from asa.studies.compare.study import CompareRun, group
from asa.studies.present import Figure, Look, Panel, draw, stacked


def makespans_by_stage(runs: Sequence[CompareRun]) -> dict[str, dict[str, Bar]]:
    """Return the parts of mean makespans: waits and run times of the stages on the critical path.

    Returns: by size, then by strategy. The critical path is that of each run, so a bar is as high as the mean makespan.
    """
    groups: dict[str, dict[str, Bar]] = {}
    for (cores, strategy), members in group(runs).items():
        done = [run.metrics for run in members if run.metrics]
        parts = []
        for index in range(len(done[0].stages) if done else 0):
            critical = [metrics.stages[index] for metrics in done if metrics.stages[index].critical]
            parts.append(("waiting", sum(stage.perceived_wait_s for stage in critical) / len(done)))
            parts.append((done[0].stages[index].stage, sum(stage.run_s for stage in critical) / len(done)))
        groups.setdefault(f"{cores} cores", {})[strategy] = Bar(tuple(parts))
    return groups


def makespan_bars(runs: Sequence[CompareRun], path: str | Path) -> None:
    """Draw a bar for each core count and strategy, as in Fig. 6: mean waits and run times of stages, stacked."""
    groups = makespans_by_stage(runs)
    strategies = list(dict.fromkeys(strategy for bars in groups.values() for strategy in bars))
    if not any(bar.parts for bars in groups.values() for bar in bars.values()):
        raise InputError("no run completed, so there is nothing to draw", where=str(path), hint="See why they failed.")
    panels = [
        Panel(
            stacked({name: bars.get(name, Bar(())) for name in strategies}),
            cores,
            y="seconds since submission (mean)" if not index else "",
            names=strategies,
        )
        for index, (cores, bars) in enumerate(groups.items())
    ]
    title = f"{runs[0].workflow} on {runs[0].system}: makespan by stage"
    size = (2.2 + 1.9 * len(groups) * max(len(strategies), 2) / 3, 5.2)
    waiting = {"waiting": Look("#c8c8c8", hatch="///")}
    draw(Figure(panels, size, title=title, looks=waiting, slanted=True), path)
