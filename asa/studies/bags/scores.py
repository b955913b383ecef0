"""Scores of bags shared by several jobs, relative to one wide job, and to the best number of jobs in hindsight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.text import Text

from asa.core.intervals import Interval, as_ratio, mean_interval, statistic_interval
from asa.studies.bags.study import BagRun
from asa.studies.present import Row, Table, number, plus_minus
from asa.studies.runs import put_together

_SHOWN = (2, 4, 8, 28)  # numbers of jobs that are shown besides the largest


@dataclass(frozen=True, slots=True)
class BagVerdict:
    """Scores of bags of one size on one log; ratios are geometric means over starts."""

    trace: str
    cores: int  # of all jobs together
    hours: float
    over_one: dict[int, float]  # ratio of the makespan to that of one job, by number of jobs
    best: int  # number of jobs that was best over all starts, in hindsight
    taken_over_one: Interval  # for the number that asa takes from a range: the largest that shares the cores evenly
    taken_over_best: Interval
    core_hours: float  # its core-hours, summed over starts, divided by those of one job
    others_wait_s: Interval  # seconds by which the mean wait of other jobs exceeds that with one job


def judged(runs: Sequence[BagRun]) -> list[BagVerdict]:
    """Score each size on each log."""
    return [_verdict(of) for of in put_together(runs, lambda run: (run.trace, run.hours)).values()]


def _verdict(runs: Sequence[BagRun]) -> BagVerdict:
    by_jobs = put_together(sorted(runs, key=lambda run: run.start), lambda run: run.jobs)
    logs = {jobs: np.log([run.makespan_s for run in of]) for jobs, of in by_jobs.items()}
    hours = {jobs: sum(run.core_hours for run in of) for jobs, of in by_jobs.items()}
    longer_s = {jobs: np.array([run.longer_wait_s for run in of]) for jobs, of in by_jobs.items()}
    best, taken = min(logs, key=lambda jobs: float(logs[jobs].mean())), max(logs)

    def over(one: int, other: int) -> Interval:
        return as_ratio(statistic_interval(lambda mean: float(mean[0]), (logs[one] - logs[other])[:, None]))

    return BagVerdict(
        runs[0].trace,
        runs[0].cores,
        runs[0].hours,
        {jobs: float(np.exp((of - logs[1]).mean())) for jobs, of in logs.items()},
        best,
        over(taken, 1),
        over(taken, best),
        hours[taken] / hours[1],
        mean_interval(longer_s[taken] - longer_s[1]),
    )


@dataclass(frozen=True, slots=True)
class BagVerdicts:
    """All results, for a terminal and as JSON-ready data."""

    runs: Sequence[BagRun]
    starts: int

    def as_dict(self) -> dict[str, Any]:
        """Return every score, and every run."""
        return {
            "verdicts": [asdict(verdict) for verdict in judged(self.runs)],
            "runs": [asdict(run) for run in self.runs],
        }

    def __rich__(self) -> Group:
        """Return tables for a terminal."""
        headings = (*map(str, _SHOWN), "Most", "Over best", "Core-h", "Others")
        rows: list[Row] = []
        for trace, of in put_together(judged(self.runs), lambda verdict: verdict.trace).items():
            log = Path(trace).name.removesuffix(".gz").removesuffix(".swf")
            rows.append(Row((log, *[""] * len(headings)), style="bold", begins_section=bool(rows)))
            rows += [Row((f"{verdict.hours:g} h x {verdict.cores}", *_cells(verdict))) for verdict in of]
        text = (
            "Makespan of a bag of tasks as so many jobs over that as one job of all its cores; geometric means of "
            f"{self.starts} starts. Most: of the most jobs, which asa takes of a range, with the 95 % interval over "
            "starts. Hours: what all cores together take. Over best: over the number of jobs that was best over all "
            "starts. Core-h: over one job's. Others: by how much the mean wait of others is longer than with one job."
        )
        return Group(Table(("", *headings), rows, title="Bags over several jobs"), Text(text, style="dim"))


def _cells(verdict: BagVerdict) -> tuple[str, ...]:
    return (
        *(number(verdict.over_one[jobs], 2) if jobs in verdict.over_one else "-" for jobs in _SHOWN),
        _ratio(verdict.taken_over_one),
        _ratio(verdict.taken_over_best),
        number(verdict.core_hours, 2),
        plus_minus(verdict.others_wait_s, None, "+"),
    )


def _ratio(interval: Interval) -> str:
    return f"{interval.mean:.2f} +-{(interval.high - interval.low) / 2:.2f}"
