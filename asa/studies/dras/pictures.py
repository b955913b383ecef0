"""Learning curves, and Figures 2 to 9 of the paper, of our logs and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from asa.studies.dras.training import Episode
from asa.studies.present import Figure, Look, Panel, PlottedSeries, draw, side_by_side

from .evaluation import MethodOutcome
from .patterns import DAYS, PARTS, LogPatterns
from .tables import MEASURES, grouped, kiviat, modes, of, sizes


def draw_job_sizes(logs: Sequence[LogPatterns], path: Path) -> None:
    """Draw the shares of jobs and core-hours by size, a panel for each log (Fig. 2)."""
    panels = []
    for log in logs:
        sizes = log.all.sizes
        shares = {
            "jobs": [100 * size.jobs for size in sizes],
            "core-hours": [100 * size.core_hours for size in sizes],
        }
        title = f"{log.log}: {log.all.jobs:,} jobs"
        panels.append(Panel(side_by_side(shares), title, "nodes of a job", "% of all", [size.name for size in sizes]))
    draw(Figure(panels, (5.5 * len(panels), 4), slanted=True), path)


def draw_patterns(logs: Sequence[LogPatterns], path: Path) -> None:
    """Draw arrivals, sizes and the accuracy of requests, a row for each log (Fig. 3).

    Bars are the jobs that agents learn from; lines are those that are drawn for the third phase.
    """
    panels = []
    for log in logs:
        of_log, drawn = log.learned, log.drawn

        def panel(x: str, y: str, names: Sequence[str], bars: Sequence[float], line: Sequence[float]) -> Panel:
            series = [PlottedSeries("jobs of the log", bars, kind="bar"), PlottedSeries("drawn jobs", line)]
            return Panel(series, log.log, x, y, names, y_limits=(0, None))  # noqa: B023 - called at once

        def percent(shares: Sequence[float]) -> list[float]:
            return [100 * share for share in shares]

        sizes = [percent([size.jobs for size in one.sizes]) for one in (of_log, drawn)]
        accuracy = [percent(one.accuracy) for one in (of_log, drawn)]
        parts = [f"{100 * part // PARTS}" for part in range(1, PARTS + 1)]
        panels += [
            panel("day of the week", "jobs a day", DAYS, of_log.weekdays, drawn.weekdays),
            panel("hour of the day", "jobs an hour", (), of_log.hours, drawn.hours),
            panel("nodes of a job", "% of the jobs", [size.name for size in of_log.sizes], *sizes),
            panel("run time, up to % of the request", "% of the jobs", parts, *accuracy),
        ]
    looks = {"jobs of the log": Look("#bbbbbb"), "drawn jobs": Look("#0072b2", marker="o", is_above=True)}
    draw(Figure(panels, (15, 0.7 + 3.2 * len(logs)), 4, looks=looks, slanted=True), path)


def draw_rewards(
    agents: Mapping[str, Sequence[Sequence[float]]], others: Mapping[str, Sequence[float]], path: Path
) -> None:
    """Draw the total reward after each episode of each training, and that of rivals, as level lines (Fig. 5)."""
    last = max((len(totals) for runs in agents.values() for totals in runs), default=2)
    lines = [PlottedSeries(name, totals, range(1, len(totals) + 1)) for name, runs in agents.items() for totals in runs]
    lines += [PlottedSeries(name, [float(np.mean(totals))] * 2, [1, last]) for name, totals in others.items()]
    looks = {name: Look(dashes="--") for name in others}
    draw(Figure([Panel(lines, x="episode", y="total reward on the validation set")], (10, 5), looks=looks), path)


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
