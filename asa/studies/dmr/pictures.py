"""Figures 4 to 8 of the paper, drawn from the study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.drawing import new_figure, save_figure

from .series import Evolution
from .series import JobPair as Comparison
from .study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_differences", "draw_evolution", "draw_gains", "draw_jobs"]

_FIXED, _FLEXIBLE = "#0072b2", "#d55e00"  # told apart by colour-blind eyes
_COMPLETION = "#009e73"


def draw_gains(study: Study, path: Path) -> None:
    """Draw how long workloads take (Fig. 4), and how long their jobs wait (Fig. 5), by version and size."""
    figure = new_figure(10, 4)
    sizes = study.jobs("throughput")
    for axes, what, title in zip(
        figure.subplots(1, 2), ("whole", "waiting"), ("the whole workload", "waiting of a job, mean"), strict=True
    ):
        fixed, flexible = (
            [
                sum(getattr(one.measures, what) for one in study.outcomes["throughput", version, jobs]) / study.seeds
                for jobs in sizes
            ]
            for version in ("fixed", "synchronous")
        )
        places = range(len(sizes))
        axes.bar([place - 0.2 for place in places], fixed, width=0.4, color=_FIXED, label="fixed")
        bars = axes.bar([place + 0.2 for place in places], flexible, width=0.4, color=_FLEXIBLE, label="flexible")
        gains = [f"{100 * (1 - after / before):.0f} %" for before, after in zip(fixed, flexible, strict=True)]
        axes.bar_label(bars, gains, fontsize="small", padding=2)
        axes.set_xticks(places, [str(jobs) for jobs in sizes])
        axes.set_xlabel("jobs")
        axes.set_title(title)
        _in_seconds(axes)
    figure.axes[0].legend()
    save_figure(figure, path)


def draw_evolution(fixed: Evolution, flexible: Evolution, nodes: int, path: Path) -> None:
    """Draw allocated nodes, running jobs and completed ones over time (Fig. 6)."""
    figure = new_figure(10, 7)
    panels = figure.subplots(3, 1, sharex=True)
    for colour, label, told in ((_FIXED, "fixed", fixed), (_FLEXIBLE, "flexible", flexible)):
        levels = (told.allocated, told.running, told.completed)
        for axes, level in zip(panels, levels, strict=True):
            axes.step(told.times_s, level, where="post", color=colour, label=label, linewidth=1.2)
        panels[0].fill_between(told.times_s, told.allocated, step="post", color=colour, alpha=0.2, linewidth=0)
    for axes, label in zip(panels, (f"nodes allocated, of {nodes}", "jobs running", "jobs completed"), strict=True):
        axes.set_ylabel(label)
        axes.set_ylim(0)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].axhline(nodes, color="#444444", linewidth=0.8, linestyle="--")
    panels[2].legend(loc="lower right")
    panels[2].set_xlabel("time (s)")
    panels[2].set_xlim(0)
    panels[2].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    save_figure(figure, path)


def draw_jobs(jobs: Sequence[Comparison], path: Path) -> None:
    """Draw how long each job executed and waited in both versions, by application (Fig. 7)."""

    def draw(axes: Axes, of: Sequence[Comparison], row: int) -> None:
        for version, (colour, label) in enumerate(((_FIXED, "fixed"), (_FLEXIBLE, "flexible"))):
            lasted = [(one.runs_s if row == 0 else one.waits_s)[version] for one in of]
            axes.plot(range(len(of)), lasted, color=colour, label=label, marker="o", markersize=3)

    _by_application(jobs, ("execution (s)", "waiting (s)"), draw, path, from_nothing=True)


def draw_differences(jobs: Sequence[Comparison], path: Path) -> None:
    """Draw by how much each job waits, executes and completes sooner in the flexible version (Fig. 8)."""

    def draw(axes: Axes, of: Sequence[Comparison], _: int) -> None:
        axes.axhline(0, color="#444444", linewidth=0.8)
        styles = ((_FIXED, "waiting"), (_FLEXIBLE, "execution"), (_COMPLETION, "completion"))
        for place, (colour, label) in enumerate(styles):
            gains = [one.gains_s[place] for one in of]
            axes.plot(range(len(of)), gains, color=colour, label=label, marker="o", markersize=3)

    _by_application(jobs, ("fixed less flexible (s)",), draw, path)


def _by_application(
    jobs: Sequence[Comparison],
    rows: Sequence[str],
    draw: Callable[[Axes, Sequence[Comparison], int], None],
    path: Path,
    *,
    from_nothing: bool = False,
) -> None:
    names = sorted({one.application for one in jobs})
    figure = new_figure(10, 1 + 2.5 * len(rows))
    panels = figure.subplots(len(rows), len(names), sharex="col", sharey="row", squeeze=False)
    for row, label in enumerate(rows):
        for column, name in enumerate(names):
            axes = panels[row][column]
            draw(axes, [one for one in jobs if one.application == name], row)
            axes.spines[["top", "right"]].set_visible(False)
            if row == 0:
                axes.set_title(name)
            if row == len(rows) - 1:
                axes.set_xlabel("job, as submitted")
        if from_nothing:
            panels[row][0].set_ylim(0)
        _in_seconds(panels[row][0])
        panels[row][0].set_ylabel(label)
    panels[-1][0].legend(fontsize="small")
    save_figure(figure, path)


def _in_seconds(axes: Axes) -> None:
    axes.set_ylabel("s")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
