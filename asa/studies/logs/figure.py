"""The figure of the experiment on strategies: time against core-hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from asa.studies.present import Figure, Look, Panel, PlottedSeries, draw
from asa.studies.standings import Standing

_MARKS = "osD^vP*X"


def frontier(standings: Mapping[bool, Sequence[Standing]], path: str | Path) -> None:
    """Draw a panel for each rule: makespan over Big Job's against core-hours over Per-Stage's, with intervals."""
    panels = [
        Panel(
            [
                PlottedSeries(
                    standing.strategy,
                    [standing.makespan.mean],
                    [standing.core_hours.mean],
                    kind="point",
                    x_bounds=[(standing.core_hours.low, standing.core_hours.high)],
                    y_bounds=[(standing.makespan.low, standing.makespan.high)],
                )
                for standing in group
            ],
            f"{'' if age else 'no '}priority while waiting for a dependency",
            "core-hours over Per-Stage's",
            "makespan over Big Job's",
            level=1.0,
            upright=1.0,
        )
        for age, group in standings.items()
    ]
    names = dict.fromkeys(standing.strategy for group in standings.values() for standing in group)
    looks = {name: Look(marker=_MARKS[index % len(_MARKS)]) for index, name in enumerate(names)}
    draw(Figure(panels, (1.0 + 4.6 * len(panels), 4.4), looks=looks, share_x="all", share_y="all"), path)
