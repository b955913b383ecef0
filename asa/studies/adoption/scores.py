"""What shares of users who use asa do to themselves and to others, with intervals over draws."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.text import Text

from asa.core.files import in_words, put
from asa.core.intervals import Interval, as_ratio, beyond_chance, mean_interval, statistic_interval
from asa.studies.adoption.study import AdoptionRun
from asa.studies.present import Figure, Look, Panel, PlottedSeries, Row, Table, draw, number
from asa.studies.runs import put_together

FEW = 0.25
"""Up to this share of users, others are not to wait significantly longer."""


@dataclass(frozen=True, slots=True)
class AdoptionVerdict:
    """Scores of a share of users, on one log in one model. Ratios are to share 0, paired by draw."""

    trace: str
    model: str
    age_accrues: bool
    share: float
    draws: int
    adopters: float  # mean number of users who use asa
    jobs_share: float
    work_share: float
    makespan: Interval  # of their chains: geometric mean of ratios
    wait: Interval  # ratio of others' mean waits over all draws
    slowdown: Interval
    wait_before_s: float  # others' mean wait at share 0
    utilisation: float
    more_utilisation: Interval  # difference
    idle: float
    submissions_h: float
    cancellations_h: float
    queue_variance: Interval  # geometric mean of ratios
    covered: float  # share of forecasts whose p90 held
    # whether others wait significantly longer; at shares up to `FEW`, corrected for all of those by Holm's rule
    is_longer: bool = False


def judged(runs: Sequence[AdoptionRun]) -> list[AdoptionVerdict]:
    """Score each share, on each log in each model."""
    groups = put_together(runs, lambda run: (run.trace, run.model, run.age_accrues))
    verdicts = [
        _verdict(here, of)
        for of in groups.values()
        for here in put_together(sorted(of, key=lambda run: run.share), lambda run: run.share).values()
    ]
    few = [verdict for verdict in verdicts if 0 < verdict.share <= FEW]
    many = [verdict for verdict in verdicts if verdict.share > FEW]
    longer = {
        id(verdict)
        for family in (few, many)
        for verdict, is_real in zip(family, beyond_chance([v.wait for v in family], ratios=True), strict=True)
        if is_real and verdict.wait.mean > 1
    }
    return [_marked(verdict) if id(verdict) in longer else verdict for verdict in verdicts]


def _marked(verdict: AdoptionVerdict) -> AdoptionVerdict:
    values = {name: getattr(verdict, name) for name in verdict.__slots__}
    return AdoptionVerdict(**values | {"is_longer": True})


def _verdict(runs: Sequence[AdoptionRun], of: Sequence[AdoptionRun]) -> AdoptionVerdict:
    nobody = {run.draw: run for run in of if run.share == 0}
    before = [nobody[run.draw] for run in runs]

    def mean(field: str) -> float:
        return float(np.mean([getattr(run, field) for run in runs]))

    def logs(field: str, least: float) -> NDArray[np.float64]:
        return np.log([max(getattr(run, field), least) for run in runs])

    variances = np.log([max(run.queue_variance, 1e-6) for run in before])
    return AdoptionVerdict(
        runs[0].trace,
        runs[0].model,
        runs[0].age_accrues,
        runs[0].share,
        len(runs),
        mean("adopters"),
        mean("jobs_share"),
        mean("work_share"),
        as_ratio(mean_interval(logs("makespan", 1e-9).tolist())),
        _over([(run.wait_s, run.wait_before_s) for run in runs]),
        _over([(run.slowdown, run.slowdown_before) for run in runs]),
        mean("wait_before_s"),
        mean("utilisation"),
        mean_interval([run.utilisation - then.utilisation for run, then in zip(runs, before, strict=True)]),
        mean("idle"),
        mean("submissions_h"),
        mean("cancellations_h"),
        as_ratio(mean_interval((logs("queue_variance", 1e-6) - variances).tolist())),
        mean("covered"),
    )


def _over(pairs: Sequence[tuple[float, float]]) -> Interval:
    """Return the ratio of two means over draws."""

    def statistic(means: NDArray[np.float64]) -> float:
        now, then = np.maximum(means, 1e-9)
        return float(np.log(now / then))

    return as_ratio(statistic_interval(statistic, np.array(pairs)))


@dataclass(frozen=True, slots=True)
class AdoptionVerdicts:
    """All results, for a terminal, as JSON-ready data, as a table in a file, and as a figure."""

    runs: Sequence[AdoptionRun]
    ways: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return every score, and every run."""
        return {
            "verdicts": [asdict(verdict) for verdict in judged(self.runs)],
            "runs": [asdict(run) for run in self.runs],
        }

    def write_csv(self, path: Path) -> None:
        """Write every score as a row; of intervals the mean, and the bounds as columns ``..._low`` and ``..._high``."""
        rows = [_flat(asdict(verdict)) for verdict in judged(self.runs)]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with in_words("cannot be written", f"--csv {path}", "Name another file."):
            put(path, text.getvalue().encode())

    def draw(self, path: str | Path) -> None:
        """Draw how much longer others wait, and the makespans of those who use asa, by their share."""
        panels = []
        for (trace, model), of in put_together(judged(self.runs), lambda v: (v.trace, v.model)).items():
            some = [verdict for verdict in of if verdict.share > 0]
            of_others, of_users = ([100 * (v.wait.mean - 1) for v in some], [100 * (v.makespan.mean - 1) for v in some])
            bounds = [_percents(v.wait) for v in some]
            shares = [100 * v.share for v in some]
            panels.append(
                Panel(
                    [
                        PlottedSeries("others' mean wait", of_others, shares, kind="point", y_bounds=bounds),
                        PlottedSeries("makespan of those who use asa", of_users, shares),
                    ],
                    f"{trace}, {model}",
                    "% of users who use asa",
                    "% more than if nobody did",
                    level=0.0,
                )
            )
        columns = 2 if len(panels) > 1 else 1
        size = (1.0 + 4.0 * columns, 0.6 + 2.8 * -(-len(panels) // columns))
        looks = {"makespan of those who use asa": Look(marker="s")}
        draw(Figure(panels, size, columns, looks=looks), path)

    def __rich__(self) -> Group:
        """Return tables for a terminal."""
        verdicts = judged(self.runs)
        alike = put_together(verdicts, lambda verdict: (verdict.age_accrues, verdict.trace, verdict.model))
        text = (
            f"{verdicts[0].draws} draws of weeks and users. Users: share of those with many or wide jobs who use asa "
            f"({', '.join(self.ways)}). Work: share of all core-hours that is theirs. Makespan: of their chains of "
            "jobs that asa changes. Others' wait and slowdown: means over those who do not use asa, over those of the "
            "same jobs at share 0, with 95 % intervals over draws; * significantly longer (Holm's rule, for all shares "
            f"up to {FEW:.0%} together, and for all above). Busy: of all cores. Idle: share of the used core-hours in "
            "which jobs waited for others to end. Asked, cancelled: by all users an hour. Queue: variance of its "
            "length over that at share 0. p90: forecasts of others' waits that held."
        )
        return Group(*map(_table, alike.values()), Text(text, style="dim"))


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            row |= {name: value["mean"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
        else:
            row[name] = value
    return row


def _percents(interval: Interval) -> tuple[float, float]:
    if np.isnan(interval.low):
        return 100 * (interval.mean - 1), 100 * (interval.mean - 1)
    return 100 * (interval.low - 1), 100 * (interval.high - 1)


def _table(verdicts: Sequence[AdoptionVerdict]) -> Table:
    """Return a table of the shares on one log, by one model and age rule."""
    headings = (
        "Users\n%", "Work\n%", "Makespan", "Others'\nwait", "Slowdown", "Busy\n%", "Idle\n%", "Asked", "Can-\ncelled",
        "Queue", "p90\n%",
    )  # fmt: skip
    one = verdicts[0]
    rule = "" if one.age_accrues else "no "
    title = (
        f"Shares of users who use asa, where jobs gain {rule}priority while they wait for a dependency\n"
        f"{one.trace}, {one.model}: without asa others wait {number(one.wait_before_s, None)}"
    )
    rows = [Row(_cells(verdict)) for verdict in verdicts]
    return Table(headings, rows, title=title, left=(), widths=[max(map(len, heading.split())) for heading in headings])


def _cells(verdict: AdoptionVerdict) -> tuple[str, ...]:
    some = verdict.share > 0
    return (
        f"{100 * verdict.share:g}",
        number(100 * verdict.work_share, 0),
        _ratio(verdict.makespan) if some else "",
        f"{_ratio(verdict.wait)}{'*' if verdict.is_longer else ''}" if some else "",
        _ratio(verdict.slowdown) if some else "",
        number(100 * verdict.utilisation, 1),
        number(100 * verdict.idle, 2),
        number(verdict.submissions_h, 1),
        number(verdict.cancellations_h, 2),
        number(verdict.queue_variance.mean, 2) if some else "",
        number(100 * verdict.covered, 0),
    )


def _ratio(interval: Interval) -> str:
    half = interval.half
    return f"{interval.mean:.2f}{'' if np.isnan(half) else f' +-{half:.2f}'}"
