"""Whether it is worth it to ask ahead of time, by what a workflow's runs in a twin of the site came to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import Interval, as_ratio, beyond_chance, mean_interval
from asa.errors import RunError
from asa.studies.compare.study import CompareRun
from asa.studies.compare.table import Cell, cells_of, claimed
from asa.units import format_duration
from asa.workflow import Workflow

SIMPLE = ("per-stage", "chained", "big-job")
"""Ways of asking that need no asa."""

OURS = ("asa", "asa-plan")
"""Ways that it has."""

_PRICE = 0.8  # of one percent of the makespan, that one percent of the core-hours is worth, as in plans
_MATTERS = 0.01  # of time and core-hours together, less than which is no difference
_HARDLY = 0.03  # share of the makespan


@dataclass(frozen=True, slots=True)
class Beside:
    """One way of asking beside another, as shares of that one's figures: below 0 is sooner, and cheaper.

    They are geometric means over moments, each with its own queue: a few long waits do not outweigh all others.
    """

    rival: str
    time: Interval
    core_hours: Interval
    weighed: Interval  # mean logarithm of the time's ratio, and 0.8 of that of the core-hours'
    is_clear: bool  # that the weighed one is not 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it is worth it, and by what."""

    answer: Literal["yes", "no", "unclear"]
    way: str  # the way to ask
    best_simple: str  # of those that need no asa
    moments: int
    sentences: tuple[str, str, str]
    beside: tuple[Beside, ...]  # asa's best way beside each simple one
    waits: float  # share of the makespan, by `per-stage`, in which a stage waits that could have begun
    age_accrues: bool

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON-ready data."""
        return asdict(self)


def judged(workflow: Workflow, runs: Sequence[CompareRun]) -> Verdict:
    """Judge by runs of one workflow in one width.

    Raises `RunError`: no simple way, or none of asa's, completed at any moment.
    """
    cells = [cell for cell in cells_of(runs) if not math.isnan(cell.intervals["makespan_s"].mean)]
    ours, simple = ([cell for cell in cells if _base(cell) in names] for names in (OURS, SIMPLE))
    if not ours or not simple:
        first = next((run.reason for run in runs if run.reason), "")
        raise RunError(f"nothing can be compared: {first}", where=workflow.name, hint="Mend the workflow's stages.")
    best = min(simple, key=lambda cell: _weight(cell, simple[0]))
    hero = min(ours, key=lambda cell: _weight(cell, simple[0]))
    beside = _beside(hero, simple)
    last = next(one for one in beside if one.rival == best.strategy)
    answer = _answer(last)
    way = hero if answer == "yes" else best
    waits, accrues = _share_of_waits(workflow, cells), runs[0].age_accrues
    return Verdict(
        answer,
        way.strategy,
        best.strategy,
        len({run.seed for run in runs}),
        (
            _first(answer, hero, best, last),
            _second(way, [cell for cell in (*simple, hero) if cell is not way]),
            _why(answer, way, best, waits, accrues=accrues),
        ),
        beside,
        waits,
        accrues,
    )


def _base(cell: Cell) -> str:
    return cell.strategy.partition(":")[0]


def _pairs(hero: Cell, rival: Cell) -> NDArray[np.float64]:
    """Give the logarithms of time and core-hours over a rival's, a row a moment that both ran in."""
    ours, theirs = ({run.seed: run.metrics for run in cell.runs if run.metrics} for cell in (hero, rival))
    both = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    ratios = [(one.makespan_s / other.makespan_s, one.core_hours / other.core_hours) for one, other in both]
    logs: NDArray[np.float64] = np.log(np.array(ratios).reshape(-1, 2))
    return logs


def _weight(cell: Cell, beside: Cell) -> float:
    """Weigh time and core-hours beside another's, in the mean of their logarithms."""
    pairs = _pairs(cell, beside)
    return float(pairs.mean(axis=0) @ (1.0, _PRICE)) if len(pairs) else math.inf


def _logs(hero: Cell, rival: Cell) -> tuple[Interval, Interval, Interval]:
    """Give time, core-hours and both together, as means of logarithms."""
    time, hours = _pairs(hero, rival).T
    return tuple(mean_interval(of.tolist()) for of in (time, hours, time + _PRICE * hours))  # type: ignore[return-value]


def _share(of_logs: Interval) -> Interval:
    """Make the share of which one is above another of the mean logarithm."""
    ratio = as_ratio(of_logs)
    return Interval(ratio.mean - 1, ratio.low - 1, ratio.high - 1, ratio.freedom)


def _beside(hero: Cell, rivals: Sequence[Cell]) -> tuple[Beside, ...]:
    """Put one way beside others, moment by moment; all that is clear is right at once with 95 %."""
    found = [_logs(hero, rival) for rival in rivals]
    clear = beyond_chance([weighed for *_, weighed in found])
    return tuple(
        Beside(rival.strategy, _share(time), _share(hours), weighed, is_clear)
        for rival, (time, hours, weighed), is_clear in zip(rivals, found, clear, strict=True)
    )


def _second(way: Cell, others: Sequence[Cell]) -> str:
    """Say what a way takes, and how much that is beside others."""
    found = [_logs(way, other) for other in others]
    times, hours = [time for time, *_ in found], [cost for _, cost, _ in found]
    told = claimed(
        [other.strategy for other in others],
        [_share(one) for one in times],
        [_share(one) for one in hours],
        beyond_chance([*times, *hours]),
    )
    took, cost = format_duration(way.intervals["makespan_s"].mean), way.intervals["core_hours"].mean
    return f"By {way.strategy} it takes {took} and {cost:,.0f} core-hours in the mean, and mostly finishes {told}"


def _answer(last: Beside) -> Literal["yes", "no", "unclear"]:
    """Answer by the rival that is best: unclear is what may be a gain that matters, and may be none."""
    if last.is_clear:
        return "yes" if last.weighed.mean < -_MATTERS else "no"
    return "unclear" if math.isnan(last.weighed.low) or last.weighed.low < -3 * _MATTERS else "no"


def _first(answer: str, hero: Cell, best: Cell, last: Beside) -> str:
    if answer == "yes":
        return f"It is worth it here: ask by {hero.strategy}."
    if answer == "unclear":
        moments = len(hero.runs)
        return (
            f"Whether it is worth it here cannot be told from {moments} moments: {hero.strategy} may be better than "
            f"{best.strategy}, or not."
        )
    does = "is better" if last.is_clear and last.weighed.mean > _MATTERS else "does as well"
    return f"It is not worth it here: {best.strategy} {does}."


def _share_of_waits(workflow: Workflow, cells: Sequence[Cell]) -> float:
    """Say which share of the makespan stages wait that follow others, by Per-Stage; nan where that did not run."""
    runs = next((cell.runs for cell in cells if cell.strategy == "per-stage"), ())
    shares = [
        sum(max(stage.perceived_wait_s, 0.0) for stage in run.metrics.stages if workflow.stages[stage.stage].after)
        / run.metrics.makespan_s
        for run in runs
        if run.metrics
    ]
    return float(np.mean(shares)) if shares else math.nan


def _why(answer: str, way: Cell, best: Cell, waits: float, *, accrues: bool) -> str:
    """Say what decides it."""
    if len(best.runs) and math.isnan(waits):
        return "How much of the time stages wait is not known: no run by per-stage completed."
    share = f"{100 * waits:.0f} %"
    if waits < _HARDLY:
        return f"Stages hardly wait for each other's end here: by per-stage {share} of the time."
    rule = f"Jobs gain {'' if accrues else 'no '}priority while a dependency keeps them back"
    tail = "."
    if accrues:
        tail = ", so that stages submitted at once, behind each other, wait while others run."
    elif answer == "yes" and way.strategy.startswith("asa-plan"):
        tail = "; the plan puts stages into one job where a wait would cost more than idle cores."
    lead = f"By per-stage stages wait for {share} of the time after they could begin."
    if best.strategy == "big-job" and answer != "yes":
        return f"{lead} One job for all waits once, and its idle cores cost less than that."
    return f"{lead} {rule}{tail}"
