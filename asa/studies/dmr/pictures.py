"""Figures 4 to 8 of the paper, from the study, and Figure 3, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asa.studies.present import Figure, Look, Panel, PlottedSeries, draw, side_by_side

from .measuring import MeasuredResize
from .series import Evolution, JobPair
from .study import Study

_LOOKS = {
    "fixed": Look("#0072b2"),
    "flexible": Look("#d55e00"),
    "_fixed": Look("#0072b2", opacity=0.2),
    "_flexible": Look("#d55e00", opacity=0.2),
}
_BARS = {"expanding": Look("#0072b2"), "shrinking": Look("#d55e00")}
_DOTTED = {
    "fixed": Look("#0072b2", marker="o"),
    "flexible": Look("#d55e00", marker="o"),
    "waiting": Look("#0072b2", marker="o"),
    "execution": Look("#d55e00", marker="o"),
    "completion": Look("#009e73", marker="o"),
}


def draw_resizes(resizes: Sequence[MeasuredResize], path: Path) -> None:
    """Draw the times of deciding and of moving data (Fig. 3): expansions, and below them shrinks."""
    grown = [one for one in resizes if one.after > one.before]
    shrunk = [one for one in resizes if one.after < one.before]
    names = [f"{one.before} to {one.after}" for one in (*grown, *shrunk)]
    panels = []
    for what, title in (("decide_s", "(a) deciding"), ("move_s", "(b) moving the data")):
        bars = []
        for name, some, first in (("expanding", grown, 0), ("shrinking", shrunk, len(grown))):
            times_s = [getattr(one, what) for one in some]
            labels = [f"{time_s:.2g}" for time_s in times_s]
            positions = range(first, first + len(some))
            bars.append(PlottedSeries(name, times_s, positions, kind="bar across", labels=labels))
        panels.append(Panel(bars, title, "time (s)", "numbers of processes", names, x_limits=(0, None)))
    draw(Figure(panels, (10, 1.5 + 0.3 * len(names)), looks=_BARS), path)


def draw_gains(study: Study, path: Path) -> None:
    """Draw the makespans of workloads (Fig. 4), and the waits of their jobs (Fig. 5), by version and size."""
    sizes = study.jobs("throughput")
    panels = []
    for what, title in (("whole", "the whole workload"), ("waiting", "waiting of a job, mean")):
        fixed, flexible = (
            [
                sum(getattr(outcome.measures, what) for outcome in study.outcomes["throughput", version, jobs])
                / study.seeds
                for jobs in sizes
            ]
            for version in ("fixed", "synchronous")
        )
        gains = [f"{100 * (1 - after / before):.0f} %" for before, after in zip(fixed, flexible, strict=True)]
        bars = side_by_side({"fixed": fixed, "flexible": flexible}, {"flexible": gains})
        panels.append(Panel(bars, title, "jobs", "s", [str(jobs) for jobs in sizes]))
    draw(Figure(panels, (10, 4), looks=_LOOKS), path)


def draw_evolution(fixed: Evolution, flexible: Evolution, nodes: int, path: Path) -> None:
    """Draw allocated nodes, running jobs and completed jobs over time (Fig. 6)."""
    versions = {"fixed": fixed, "flexible": flexible}
    panels = []
    for what, words in (
        ("allocated", f"nodes allocated, of {nodes}"),
        ("running", "jobs running"),
        ("completed", "jobs completed"),
    ):
        lines = [
            PlottedSeries(name, getattr(version, what), version.times_s, kind="step")
            for name, version in versions.items()
        ]
        if what == "allocated":
            lines += [
                PlottedSeries(f"_{name}", version.allocated, version.times_s, kind="area of steps")
                for name, version in versions.items()
            ]
        level = nodes if what == "allocated" else None
        panels.append(Panel(lines, x="time (s)", y=words, x_limits=(0, None), y_limits=(0, None), level=level))
    draw(Figure(panels, (10, 7), 1, share_x="all", looks=_LOOKS), path)


def draw_jobs(jobs: Sequence[JobPair], path: Path) -> None:
    """Draw for each job execution and wait in both versions, by application (Fig. 7)."""
    rows = {"execution (s)": "runs_s", "waiting (s)": "waits_s"}
    _by_application(jobs, rows, ("fixed", "flexible"), path, least=0)


def draw_differences(jobs: Sequence[JobPair], path: Path) -> None:
    """Draw for each job how much shorter its wait, execution and completion are in the flexible version (Fig. 8)."""
    _by_application(jobs, {"fixed less flexible (s)": "gains_s"}, ("waiting", "execution", "completion"), path, level=0)


def _by_application(
    jobs: Sequence[JobPair],
    rows: dict[str, str],
    names: Sequence[str],
    path: Path,
    *,
    least: float | None = None,
    level: float | None = None,
) -> None:
    """Draw a row for each measure of jobs, and a panel for each application."""
    applications = sorted({job.application for job in jobs})
    panels: list[Panel] = []
    for words, what in rows.items():
        for application in applications:
            values = [getattr(job, what) for job in jobs if job.application == application]
            lines = [PlottedSeries(name, ys) for name, ys in zip(names, zip(*values, strict=True), strict=True)]
            title = application if len(panels) < len(applications) else ""
            panels.append(Panel(lines, title, "job, as submitted", words, y_limits=(least, None), level=level))
    size = (10, 1 + 2.5 * len(rows))
    draw(Figure(panels, size, len(applications), share_x="col", share_y="row", looks=_DOTTED), path)
