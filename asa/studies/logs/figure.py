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
                    one.strategy,
                    [one.makespan.mean],
                    [one.core_hours.mean],
                    kind="point",
                    x_bounds=[(one.core_hours.low, one.core_hours.high)],
                    y_bounds=[(one.makespan.low, one.makespan.high)],
                )
                for one in group
            ],
            f"{'' if age else 'no '}priority while waiting for a dependency",
            "core-hours over Per-Stage's",
            "makespan over Big Job's",
            level=1.0,
            upright=1.0,
        )
        for age, group in standings.items()
    ]
    names = dict.fromkeys(one.strategy for group in standings.values() for one in group)
    looks = {name: Look(marker=_MARKS[index % len(_MARKS)]) for index, name in enumerate(names)}
    draw(Figure(panels, (1.0 + 4.6 * len(panels), 4.4), looks=looks, share_x="all", share_y="all"), path)
