"""Learning curves, and Figures 4 and 6 to 9 of the paper, from our runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from asa.studies.dras.training import Episode
from asa.studies.present import Figure, Look, Panel, PlottedSeries, draw, side_by_side

from .evaluation import MethodOutcome
from .tables import MEASURES, grouped, kiviat, modes, of, sizes


def draw_curves(trainings: Mapping[str, Sequence[Episode]], path: Path) -> None:
    """Draw the agent's worth after each episode on the sets for choosing, and the mean wait on one (Fig. 4)."""
    worths, waits = [], []
    for name, episodes in trainings.items():
        at = [episode.number for episode in episodes]
        best = [index for index, episode in enumerate(episodes) if episode.best][-1:]
        worths.append(PlottedSeries(name, [episode.worth for episode in episodes], at, marked=best))
        hours = [episode.validation.mean_wait_s / 3600 for episode in episodes]
        waits.append(PlottedSeries(name, hours, at, marked=best))
    x = "episode (the dot: the best, which is kept)"
    panels = [
        Panel(worths, x=x, y="worth: objective as a multiple of FCFS/EASY's"),
        Panel(waits, x=x, y="mean wait on the validation set (h)"),
    ]
    draw(Figure(panels, (10, 4), looks={name: Look(marker="o") for name in trainings}), path)


def draw_kiviat(outcomes: Sequence[MethodOutcome], path: Path) -> None:
    """Draw methods on all measures, from 0 for the worst to 1 for the best (Fig. 6)."""
    lines = [PlottedSeries(name, shares.tolist()) for name, shares in kiviat(grouped(outcomes)).items()]
    spokes = [measure.words.split(" (")[0] for measure in MEASURES]
    draw(Figure([Panel(lines, spokes=spokes)], (9, 5)), path)


def draw_sizes(outcomes: Sequence[MethodOutcome], path: Path) -> None:
    """Draw mean and longest waits by width, a panel for each method (Fig. 7)."""
    panels = []
    for name, some in grouped(outcomes).items():
        parts = sizes(some)
        longest = PlottedSeries("longest", [part.max_wait_s / 86400 for part in parts], kind="bar")
        mean = PlottedSeries("mean", [part.mean_wait_s / 86400 for part in parts], kind="bar", width=0.5)
        names = [f"{100 * part.to:.3g}" for part in parts]
        panels.append(Panel([longest, mean], name, y="wait (days)", names=names))
    columns = min(4, len(panels))
    size = (3 * columns, 0.5 + 2.6 * -(-len(panels) // columns))
    x, looks = "width, up to % of the machine", {"longest": Look("#cccccc"), "mean": Look("#0072b2")}
    draw(Figure(panels, size, columns, x=x, share_y="all", looks=looks), path)


def draw_modes(outcomes: Sequence[MethodOutcome], path: Path) -> None:
    """Draw mean waits of ready, reserved and backfilled jobs (Fig. 8)."""
    by_method = {name: by_mode for name, some in grouped(outcomes).items() if (by_mode := modes(some))}
    waits = {
        kind: [by_mode[kind].mean_wait_s / 3600 for by_mode in by_method.values()]
        for kind in ("ready", "reserved", "backfilled")
    }
    panel = Panel(side_by_side(waits), y="mean wait (h)", names=list(by_method))
    draw(Figure([panel], (8, 4), slanted=True), path)


def draw_weeks(outcomes: Sequence[MethodOutcome], path: Path) -> None:
    """Draw submitted core-hours and mean waits by week (Fig. 9), as means over the runs of a method."""
    weeks = outcomes[0].weeks
    at = [week.number for week in weeks]
    lines = [
        PlottedSeries(
            f"{name} ({of(some, 'mean_wait_s').mean / 3600:.1f} h)",
            np.mean([[week.mean_wait_s / 3600 for week in outcome.weeks] for outcome in some], axis=0).tolist(),
            at,
        )
        for name, some in grouped(outcomes).items()
    ]
    submitted = [PlottedSeries("_all", [week.core_hours / 1e6 for week in weeks], at, kind="bar")]
    x = "week of the test"
    looks = {"_all": Look("#888888")}
    panels = [Panel(submitted, x=x, y="million core-hours submitted"), Panel(lines, x=x, y="mean wait (h)")]
    draw(Figure(panels, (10, 6), 1, share_x="all", looks=looks), path)
