"""The picture of the experiment on strategies: time against core-hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from asa.core.drawing import new_figure, save_figure
from asa.core.intervals import Interval
from asa.studies.standings import Standing

__all__ = ["frontier"]

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#332288", "#882255")
_MARKS = "osD^vP*X"


def frontier(standings: Mapping[bool, Sequence[Standing]], path: str | Path) -> None:
    """Draw a panel a rule: makespan over Big Job's against core-hours over Per-Stage's, with intervals."""
    names = list(dict.fromkeys(standing.strategy for told in standings.values() for standing in told))
    figure = new_figure(1.0 + 4.6 * len(standings), 4.4)
    panels = figure.subplots(1, len(standings), squeeze=False, sharex=True, sharey=True)[0]
    for panel, (age, told) in zip(panels, standings.items(), strict=True):
        for standing in told:
            place = names.index(standing.strategy)
            panel.errorbar(
                standing.core_hours.mean,
                standing.makespan.mean,
                xerr=_to_the_sides(standing.core_hours),
                yerr=_to_the_sides(standing.makespan),
                fmt=_MARKS[place % len(_MARKS)],
                color=_COLOURS[place % len(_COLOURS)],
                markersize=8,
                capsize=3,
                label=standing.strategy,
            )
        panel.axhline(1.0, color="#bbbbbb", linewidth=0.8, zorder=0)
        panel.axvline(1.0, color="#bbbbbb", linewidth=0.8, zorder=0)
        panel.set_title(f"age {'accrues' if age else 'does not accrue'}")
        panel.set_xlabel("core-hours over Per-Stage's")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("makespan over Big Job's")
    panels[-1].legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _to_the_sides(found: Interval) -> list[list[float]]:
    """Say how far an interval reaches; one of equal values ends a rounding error beside their mean."""
    return [[max(found.mean - found.low, 0.0)], [max(found.high - found.mean, 0.0)]]
