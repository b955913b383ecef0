"""Scores of chosen shapes, relative to the form and width that are best over all starts, and to the best of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.text import Text

from asa.core.intervals import Interval, as_ratio, mean_interval, statistic_interval
from asa.studies.present import Row, Table, number, plus_minus
from asa.studies.runs import put_together
from asa.studies.shapes.study import CHOSEN, PLANNED, REFERENCE, ShapeRun, widest

ALL = "all"
BAD = 1.25


@dataclass(frozen=True, slots=True)
class ShapeVerdict:
    """Scores of chosen shapes for one workflow on one log, or for several; ratios are geometric means over starts."""

    trace: str
    workflow: str
    strategy: str
    age_accrues: bool
    # form and single width that are best over all starts, in hindsight; none if several workflows or logs are joined
    best_form: str
    best_width: int
    over_fixed: Interval  # ratio of makespans to that form's
    over_each: Interval  # ratio to the makespan of the width at which a plan was best at each start
    each_over_fixed: float
    over_big_job: Interval  # ratio to the Big Job's makespan; of core-hours the ratio of sums over starts
    hours_over_big_job: float
    hours_over_fixed: float
    bad_share: float  # of the starts: those whose makespan is over `BAD` times that of the best width of the start
    # by how many seconds the mean wait of other jobs is longer than with the Big Job; mean over starts
    others_wait_s: Interval


@dataclass(frozen=True, slots=True)
class _Cell:
    """A workflow on a log: logarithms of makespans by start, and mean core-hours."""

    trace: str
    workflow: str
    strategy: str
    best: tuple[str, int]  # form and width
    chosen: NDArray[np.float64]
    fixed: NDArray[np.float64]
    each: NDArray[np.float64]
    big_job: NDArray[np.float64]
    hours: tuple[float, float, float]  # of the chosen shapes, of the best form, of the Big Job
    others_s: NDArray[np.float64]  # by how much longer other jobs wait than with the Big Job


def judged(runs: Sequence[ShapeRun]) -> list[ShapeVerdict]:
    """Score chosen shapes: a row for each log and workflow, for each log, and for all; for each rule of age."""
    verdicts: list[ShapeVerdict] = []
    for age, of in put_together(runs, lambda run: run.age_accrues).items():
        by_workflow = put_together(of, lambda run: (run.trace, run.workflow)).values()
        cells = [cell for here in by_workflow for cell in _cells(here)]
        by_log = put_together(cells, lambda cell: cell.trace)
        for trace, here in by_log.items():
            verdicts += [_verdict([cell], trace, cell.workflow, age_accrues=age) for cell in here]
            verdicts += _together(here, trace, age_accrues=age)
        verdicts += _together(cells, ALL, age_accrues=age) if len(by_log) > 1 else []
    return verdicts


def _together(cells: Sequence[_Cell], trace: str, *, age_accrues: bool) -> list[ShapeVerdict]:
    """Score several workflows or logs together, by strategy."""
    by_strategy = put_together(cells, lambda cell: cell.strategy).values()
    return [_verdict(of, trace, ALL, age_accrues=age_accrues) for of in by_strategy if len(of) > 1]


def _cells(runs: Sequence[ShapeRun]) -> list[_Cell]:
    """Put the runs of a workflow on a log together, for each strategy that chooses shapes."""
    in_order = sorted(runs, key=lambda run: run.start)
    arms: Mapping[tuple[str, int], Sequence[ShapeRun]] = put_together(in_order, lambda run: (run.strategy, run.width))
    logs = {arm: np.log([r.makespan_s for r in of]) for arm, of in arms.items()}
    others_s = {arm: np.array([r.longer_wait_s for r in of]) for arm, of in arms.items()}
    hours = {arm: float(np.mean([r.core_hours for r in of])) for arm, of in arms.items()}
    choosing = [arm for arm in arms if arm[1] == CHOSEN]
    fixed = [arm for arm in arms if arm not in choosing]
    big_job = (REFERENCE, widest([width for form, width in fixed if form == REFERENCE]))
    best = min(fixed, key=lambda arm: float(logs[arm].mean()))
    return [
        _Cell(
            runs[0].trace,
            runs[0].workflow,
            chosen[0],
            best,
            logs[chosen],
            logs[best],
            np.min([logs[arm] for arm in fixed if arm[0] == PLANNED], axis=0),
            logs[big_job],
            (hours[chosen], hours[best], hours[big_job]),
            others_s[chosen] - others_s[big_job],
        )
        for chosen in choosing
    ]


def _verdict(cells: Sequence[_Cell], trace: str, workflow: str, *, age_accrues: bool) -> ShapeVerdict:
    """Score cells with equal weight. Intervals are over starts, at which all cells of a log meet the same queue."""
    gaps = np.mean([np.stack([c.chosen, c.fixed, c.each, c.big_job], axis=1) for c in cells], axis=0)
    hours = np.log([cell.hours for cell in cells]).mean(axis=0)

    def over(place: int) -> Interval:
        return as_ratio(statistic_interval(lambda mean: float(mean[0] - mean[place]), gaps))

    return ShapeVerdict(
        trace,
        workflow,
        cells[0].strategy,
        age_accrues,
        *(cells[0].best if len(cells) == 1 else ("", 0)),
        over(1),
        over(2),
        float(np.exp(np.mean(gaps[:, 2] - gaps[:, 1]))),
        over(3),
        float(np.exp(hours[0] - hours[2])),
        float(np.exp(hours[0] - hours[1])),
        float(np.mean([cell.chosen - cell.each > np.log(BAD) for cell in cells])),
        mean_interval(np.mean([cell.others_s for cell in cells], axis=0)),
    )


@dataclass(frozen=True, slots=True)
class ShapeVerdicts:
    """All results, for a terminal and as JSON-ready data."""

    runs: Sequence[ShapeRun]
    starts: int
    estimator: str

    def as_dict(self) -> dict[str, Any]:
        """Return every score, and every run."""
        return {
            "verdicts": [asdict(verdict) for verdict in judged(self.runs)],
            "runs": [asdict(run) for run in self.runs],
        }

    def __rich__(self) -> Group:
        """Return tables for a terminal, one for each rule of age."""
        text = (
            f"{self.starts} starts on each log, waits predicted by {self.estimator}. Over fixed: makespan over that of "
            "the form (Big Job, Per-Stage, chained, planned) and single width that were best over all starts. Over "
            "each: over the width at which a plan was best at each start; nobody could have known either. Bad: "
            f"share of starts over {BAD} times the latter. Over Big Job: makespan, and core-hours. Geometric means "
            "with 95 % intervals over starts. Others: by how much the mean wait of others is longer than with the Big "
            "Job."
        )
        tables = put_together(judged(self.runs), lambda verdict: (verdict.age_accrues, verdict.strategy))
        return Group(*(_table(*which, of) for which, of in tables.items()), Text(text, style="dim"))


def _table(age: bool, strategy: str, verdicts: Sequence[ShapeVerdict]) -> Table:  # noqa: FBT001 - sorts the tables
    rows: list[Row] = []
    for index, verdict in enumerate(verdicts):
        if index == 0 or verdict.trace != verdicts[index - 1].trace:
            log = Path(verdict.trace).name.removesuffix(".gz").removesuffix(".swf")
            rows.append(Row((log, *[""] * 8), style="bold", begins_section=index > 0))
        rows.append(
            Row(
                (
                    f"  {verdict.workflow}",
                    f"{verdict.best_form} {verdict.best_width}" if verdict.best_form else "",
                    _ratio(verdict.over_fixed),
                    number(verdict.hours_over_fixed, 2),
                    _ratio(verdict.over_each),
                    f"{100 * verdict.bad_share:.0f} %",
                    _ratio(verdict.over_big_job),
                    number(verdict.hours_over_big_job, 2),
                    plus_minus(verdict.others_wait_s, None, "+"),
                ),
                style="bold" if verdict.workflow == ALL else "",
            )
        )
    headings = ("", "Best form", "Over fixed", "Core-h", "Over each", "Bad", "Over Big Job", "Core-h", "Others")
    rule = "" if age else "no "
    title = f"Shapes that {strategy} chooses, where jobs gain {rule}priority while they wait for a dependency"
    return Table(headings, rows, title=title)


def _ratio(interval: Interval) -> str:
    half = (interval.high - interval.low) / 2
    return f"{interval.mean:.2f}{'' if np.isnan(half) else f' +-{half:.2f}'}"
