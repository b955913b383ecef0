"""Scores of choices of widths: their cost relative to the best, and the accuracy of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.text import Text

from asa.core.intervals import Interval, as_ratio, statistic_interval
from asa.studies.choices.study import ChosenWidth
from asa.studies.present import Row, Table, number

ALL = "all logs"


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """Scores of an estimator's choices, on one log or on several; ratios are geometric means."""

    trace: str
    estimator: str
    choices: int
    over_best: Interval  # time to the end relative to the best width of each time, in hindsight
    over_fixed: Interval  # relative to the single width that is best for all times of the log, in hindsight
    fixed_over_best: float
    closed: Interval  # share of the gap between these two references that is closed
    brier: float  # mean squared error of the probability that one width ends before another


def judged(found: Sequence[ChosenWidth]) -> list[ChoiceScore]:
    """Score choices: a row for each log and estimator; and over all logs, if there are several."""
    traces, names = (list(dict.fromkeys(getattr(choice, of) for choice in found)) for of in ("trace", "estimator"))
    rows = [
        _judged(trace, name, [[choice for choice in found if (choice.trace, choice.estimator) == (trace, name)]])
        for trace in traces
        for name in names
    ]
    if len(traces) > 1:
        rows += [
            _judged(ALL, name, [[o for o in found if (o.trace, o.estimator) == (trace, name)] for trace in traces])
            for name in names
        ]
    return rows


def by_program(found: Sequence[ChosenWidth]) -> list[tuple[str, ChoiceScore]]:
    """Score the choices for each program separately, on each log."""
    return [(choice.program, _judged(choice.trace, choice.estimator, [[choice]])) for choice in found]


def _judged(trace: str, name: str, logs: Sequence[Sequence[ChosenWidth]]) -> ChoiceScore:
    """Score choices on logs with equal weight; the interval is over the times at which programs were put in."""
    # by time: logarithms for the choice, the best fixed width, and the best width
    gaps = np.mean([np.mean([_logs(choice) for choice in log], axis=0) for log in logs], axis=0)
    sure = np.concatenate([choice.probabilities.ravel() for log in logs for choice in log])
    came_true = np.concatenate([choice.came_true.ravel() for log in logs for choice in log])
    return ChoiceScore(
        trace,
        name,
        sum(choice.places.size for log in logs for choice in log),
        as_ratio(statistic_interval(lambda mean: float(mean[0] - mean[2]), gaps)),
        as_ratio(statistic_interval(lambda mean: float(mean[0] - mean[1]), gaps)),
        float(np.exp(np.mean(gaps[:, 1] - gaps[:, 2]))),
        statistic_interval(lambda mean: float((mean[1] - mean[0]) / max(mean[1] - mean[2], 1e-12)), gaps),
        float(np.mean((sure - came_true) ** 2)),
    )


def _logs(choice: ChosenWidth) -> NDArray[np.float64]:
    """Return by time the logarithm of the time to the end: of the choice, the best fixed width, and the best width."""
    logs = np.log(choice.took_s)
    fixed = logs[:, int(np.argmin(logs.mean(axis=0)))]
    return np.stack([logs[np.arange(len(logs)), choice.places], fixed, logs.min(axis=1)], axis=1)


def calibration(found: Sequence[ChosenWidth]) -> list[dict[str, Any]]:
    """Return how often predictions with some probability came true: by estimator, in tenths of probability."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(choice.estimator for choice in found):
        probabilities = np.concatenate([choice.probabilities.ravel() for choice in found if choice.estimator == name])
        came_true = np.concatenate([choice.came_true.ravel() for choice in found if choice.estimator == name])
        tenth = np.minimum((10 * probabilities).astype(int), 9)
        rows += [
            {
                "estimator": name,
                "tenth": number,
                "pairs": int((tenth == number).sum()),
                "said": float(probabilities[tenth == number].mean()),
                "came_true": float(came_true[tenth == number].mean()),
            }
            for number in np.unique(tenth).tolist()
        ]
    return rows


@dataclass(frozen=True, slots=True)
class Choices:
    """All results on choices, for a terminal and as JSON-ready data."""

    found: Sequence[ChosenWidth]
    times: int

    def as_dict(self) -> dict[str, Any]:
        """Return every score: by log and estimator, by program, and the calibration of probabilities."""
        return {
            "choices": [asdict(score) for score in judged(self.found)],
            "by_program": [{"program": program, **asdict(score)} for program, score in by_program(self.found)],
            "calibration": calibration(self.found),
        }

    def __rich__(self) -> Group:
        """Return tables for a terminal."""
        programs = len({choice.program for choice in self.found})
        text = (
            f"At {self.times} times of each log, whose jobs are scheduled by EASY backfilling, each of {programs} "
            "programs is put into the queue in each width. Over best: over the width that ends first, at each time. "
            "Over fixed: over the one width that is best for all times of the log. Both are known in hindsight only; "
            "closed is the share of the gap between them. Brier: mean squared error of the probability that one width "
            "ends before another."
        )
        return Group(_table(judged(self.found)), _calibration(calibration(self.found)), Text(text, style="dim"))


def _table(choices: Sequence[ChoiceScore]) -> Table:
    """Return the table of scores."""
    rows: list[Row] = []
    for index, score in enumerate(choices):
        if index == 0 or score.trace != choices[index - 1].trace:
            log = score.trace if score.trace == ALL else Path(score.trace).name.removesuffix(".gz").removesuffix(".swf")
            rows.append(Row((log, "", "", "", ""), style="bold", begins_section=index > 0))
            over = number(100 * (score.fixed_over_best - 1), 1, "+")
            rows.append(Row(("  best fixed width", over, "0", "0", "")))
        closed = (
            f"{100 * score.closed.mean:.0f}{'' if np.isnan(score.closed.half) else f' +-{100 * score.closed.half:.0f}'}"
        )
        over = number(100 * (score.over_best.mean - 1), 1, "+")
        rows.append(Row((f"  {score.estimator}", over, _percent(score.over_fixed), closed, number(score.brier, 3))))
    headings = ("Chosen by", "Over best %", "Over fixed %", "Closed %", "Brier")
    title = "The width that was chosen: time to its end"
    return Table(headings, rows, title=title)


def _calibration(sure: Sequence[dict[str, Any]]) -> Table:
    """Return the table of calibration."""
    names = list(dict.fromkeys(row["estimator"] for row in sure))
    came_true = {(row["tenth"], row["estimator"]): f"{100 * row['came_true']:.0f}" for row in sure}
    return Table(
        ("Said %", *names),
        [
            (f"{10 * tenth}-{10 * tenth + 10}", *(came_true.get((tenth, name), "-") for name in names))
            for tenth in sorted({row["tenth"] for row in sure})
        ],
        title="Of pairs said to end in this order, % that did",
    )


def _percent(ratio: Interval) -> str:
    half = 100 * (ratio.high - ratio.low) / 2
    return f"{100 * (ratio.mean - 1):+.1f}{'' if np.isnan(half) else f' +-{half:.1f}'}"
