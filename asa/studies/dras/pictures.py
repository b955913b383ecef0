"""Learning curves, and Figures 4 and 6 to 9 of the paper, drawn from our own runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from asa.backends.dras.training import Episode
from asa.core.drawing import new_figure, save_figure

from .evaluation import MethodOutcome as Outcome
from .tables import MEASURES, grouped, kiviat, modes, of, sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_curves", "draw_kiviat", "draw_modes", "draw_sizes", "draw_weeks"]

# told apart by colour-blind eyes
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
_LINES: Final = ("-", "--", ":")


def draw_curves(trainings: Mapping[str, Sequence[Episode]], path: Path) -> None:
    """Draw what the agent is worth after each episode, on sets to choose by, and the mean wait on one (Fig. 4)."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    for (name, episodes), (colour, line) in zip(trainings.items(), _styles(), strict=False):
        at = [episode.number for episode in episodes]
        left.plot(at, [episode.worth for episode in episodes], color=colour, linestyle=line, label=name)
        waits = [episode.validation.mean_wait_s / 3600 for episode in episodes]
        right.plot(at, waits, color=colour, linestyle=line)
        best = [episode for episode in episodes if episode.best][-1:]
        left.plot([b.number for b in best], [b.worth for b in best], color=colour, marker="o")
        right.plot([b.number for b in best], [b.validation.mean_wait_s / 3600 for b in best], color=colour, marker="o")
    left.set_ylabel("worth: objective as a multiple of FCFS/EASY's")
    right.set_ylabel("mean wait on the validation set (h)")
    for axes in (left, right):
        axes.set_xlabel("episode (the dot: the best, which is kept)")
        axes.xaxis.get_major_locator().set_params(integer=True)
        _plain(axes)
    left.legend(frameon=False, fontsize="small")
    save_figure(figure, path)


def draw_kiviat(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw methods over all measures, 1 for the best and 0 for the worst (Fig. 6)."""
    figure = new_figure(8, 6)
    axes = figure.add_subplot(projection="polar")
    angles = np.linspace(0, 2 * np.pi, len(MEASURES), endpoint=False)
    for (name, shares), (colour, line) in zip(kiviat(grouped(outcomes)).items(), _styles(), strict=False):
        closed = [*zip(angles, shares, strict=True), (angles[0], shares[0])]
        axes.plot(*zip(*closed, strict=True), color=colour, linestyle=line, linewidth=1.5, label=name)
    axes.set_xticks(angles, [one.words.split(" (")[0] for one in MEASURES])
    axes.tick_params(axis="x", pad=24)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], [])
    axes.set_ylim(0, 1.02)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
    save_figure(figure, path)


def draw_sizes(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw mean and longest waits by width, a panel for each method (Fig. 7)."""
    methods = grouped(outcomes)
    columns = min(4, len(methods))
    rows = -(-len(methods) // columns)
    figure = new_figure(3 * columns, 0.5 + 2.6 * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, (name, some) in zip(panels.flat, methods.items(), strict=False):
        parts = sizes(some)
        places = range(len(parts))
        axes.bar(places, [part.max_wait_s / 86400 for part in parts], color="#cccccc", label="longest")
        axes.bar(places, [part.mean_wait_s / 86400 for part in parts], color=_COLOURS[0], width=0.5, label="mean")
        axes.set_xticks(places, [f"{100 * part.to:.3g}" for part in parts])
        axes.tick_params(labelbottom=True)
        axes.set_title(name, fontsize="medium")
        _plain(axes)
    for axes in list(panels.flat)[len(methods) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("wait (days)")
    figure.supxlabel("width, up to % of the machine", fontsize="medium")
    panels[0][0].legend(frameon=False, fontsize="small")
    save_figure(figure, path)


def draw_modes(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw mean waits of ready, reserved and backfilled jobs (Fig. 8)."""
    told = {name: modes(some) for name, some in grouped(outcomes).items()}
    told = {name: by_mode for name, by_mode in told.items() if by_mode}
    figure = new_figure(8, 4)
    axes = figure.subplots()
    kinds = ("ready", "reserved", "backfilled")
    for place, (kind, colour) in enumerate(zip(kinds, _COLOURS, strict=False)):
        heights = [by_mode[kind].mean_wait_s / 3600 for by_mode in told.values()]
        axes.bar(np.arange(len(told)) + 0.27 * (place - 1), heights, width=0.27, color=colour, label=kind)
    axes.set_xticks(range(len(told)), list(told), rotation=20, ha="right")
    axes.set_ylabel("mean wait (h)")
    _plain(axes)
    axes.legend(frameon=False)
    save_figure(figure, path)


def draw_weeks(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw core-hours submitted, and mean waits, by week (Fig. 9); of several runs of a method their mean."""
    methods = grouped(outcomes)
    figure = new_figure(10, 6)
    above, below = figure.subplots(2, 1, sharex=True)
    weeks = outcomes[0].weeks
    above.bar([week.number for week in weeks], [week.core_hours / 1e6 for week in weeks], color="#888888")
    above.set_ylabel("million core-hours submitted")
    for (name, some), (colour, line) in zip(methods.items(), _styles(), strict=False):
        waits = np.mean([[week.mean_wait_s / 3600 for week in one.weeks] for one in some], axis=0)
        label = f"{name} ({of(some, 'mean_wait_s').mean / 3600:.1f} h)"
        below.plot([week.number for week in weeks], waits, color=colour, linestyle=line, label=label)
    below.set_ylabel("mean wait (h)")
    below.set_xlabel("week of the test")
    for axes in (above, below):
        _plain(axes)
    figure.legend(*below.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize="small")
    save_figure(figure, path)


def _styles() -> cycle[tuple[str, str]]:
    return cycle([(colour, line) for line in _LINES for colour in _COLOURS])


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
