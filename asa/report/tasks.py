"""The section of a run's page that shows which job ran which tasks of a bag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asa.bags import Bag, Deeds
from asa.report.page import Column, PageFigure, PageTable, Section
from asa.report.page.drawing import Shade, shades
from asa.units import format_duration

_BINS = 120
_Floats = NDArray[np.float64]
_HOW = (
    "One row per job, in the order in which they began to run tasks. The darker, the more tasks the job ran at that "
    "time."
)


def tasks_sections(places: Mapping[str, Path], jobs: Mapping[str, tuple[str, int]]) -> list[Section]:
    """Return a section for each bag with tasks that ran, by the bags' folders."""
    made = (tasks_section(name, Bag(place).deeds(), jobs) for name, place in places.items())
    return [section for section in made if section is not None]


def tasks_section(stage: str, deeds: Sequence[Deeds], jobs: Mapping[str, tuple[str, int]]) -> Section | None:
    """Show which job ran which tasks of a bag; None if none ran.

    `jobs`: by idempotency key, the batch system's job ID and the number of cores.
    """
    known = [(deed, *jobs[deed.token]) for deed in deeds if deed.token in jobs]
    if not known:
        return None
    begin_s = min(float(deeds.began_s.min()) for deeds, *_ in known)
    end_s = max(float(deeds.ended_s.max()) for deeds, *_ in known)
    span_s = max(end_s - begin_s, 1.0)
    edges = np.linspace(begin_s, begin_s + span_s, _BINS + 1)
    drawn = [
        Shade(
            f"job {job}",
            float(deeds.began_s.min() - begin_s),
            float(deeds.ended_s.max() - begin_s),
            tuple(busy(deeds, edges).tolist()),
            f"{_tasks(len(deeds.exit_codes))} on {cores} {'core' if cores == 1 else 'cores'}",
        )
        for deeds, job, cores in known
    ]
    title = f"Tasks of {stage}, by job"
    text = f"{len(known)} jobs ran {_tasks(sum(len(deeds.exit_codes) for deeds, *_ in known))} of {stage}"
    return Section(
        f"tasks-{stage}",
        title,
        [PageFigure(shades(drawn, span_s, title, text), _HOW), _table(known, begin_s)],
    )


def busy(deeds: Deeds, edges: _Floats) -> _Floats:
    """Return the mean number of tasks of a job that ran between each edge and the next; O(tasks + edges)."""
    began, ended = np.sort(deeds.began_s), np.sort(deeds.ended_s)

    def until(times: _Floats, at: _Floats) -> _Floats:
        """Return, for each moment in `at`, the sum of its distances in seconds from all earlier times."""
        count = times.searchsorted(at, "right")
        sums = np.concatenate([[0.0], np.cumsum(times - edges[0])])
        passed_s: _Floats = count * (at - edges[0]) - sums[count]
        return passed_s

    ran_s = until(began, edges) - until(ended, edges)
    mean: _Floats = np.diff(ran_s) / np.diff(edges)
    return mean


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count:,} tasks"


def _table(known: Sequence[tuple[Deeds, str, int]], begin_s: float) -> PageTable:
    columns = [
        Column("Job"), Column("Cores", 0), Column.of_time("First task", "Began, after the first of all"),
        Column.of_time("Last task", "Ended, after the first of all"), Column("Tasks", 0), Column("Failed", 0),
        Column.of_time("Mean task", "How long a task ran on average"),
    ]  # fmt: skip
    rows = [
        (
            job,
            cores,
            float(deeds.began_s.min() - begin_s),
            float(deeds.ended_s.max() - begin_s),
            len(deeds.exit_codes),
            int((deeds.exit_codes != 0).sum()),
            float((deeds.ended_s - deeds.began_s).mean()),
        )
        for deeds, job, cores in known
    ]
    last_s = max(float(deeds.ended_s.max()) for deeds, *_ in known) - begin_s
    n_tasks, n_failed = (sum(int(row[place]) for row in rows) for place in (4, 5))
    failed = f"; {n_failed:,} failed" if n_failed else ""
    text = f"{_tasks(n_tasks)}{failed}. From the start of the first to the end of the last: {format_duration(last_s)}."
    return PageTable(columns, rows, text)
