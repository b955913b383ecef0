"""Whether it is worth it to ask ahead of time, by what a workflow's runs in a twin of the site came to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import Interval, as_ratio, beyond_chance, mean_interval
from asa.errors import RunError
from asa.studies.compare.frontier import Cell
from asa.studies.compare.study import CompareRun
from asa.studies.compare.table import cells_of, claimed
from asa.units import format_duration
from asa.workflow import Workflow

SIMPLE = ("per-stage", "chained", "big-job")
"""Ways of asking that need no asa."""

OURS = ("asa", "asa-plan")
"""Ways that it has."""

_PRICE = 0.8  # of one percent of the makespan, that one percent of the core-hours is worth, as in plans
_MATTERS = 0.01  # of time and core-hours together, less than which is no difference
_HARDLY = 0.03  # share of the makespan
_MOST_FAILED = 0.1  # of a way's runs
_BLOCKS, _A_BLOCK, _FEW_BLOCKS = 20, 5, 10  # of moments in time
_WHY_NEXT = "What decides it is how long each next leg waits, which the times above hold."


@dataclass(frozen=True, slots=True)
class ComparedWay:
    """One way of asking compared with another, as shares of that one's figures: below 0 is sooner, or costs less.

    They are geometric means over moments, each with its own queue: a few long waits do not outweigh all others.
    """

    way: str
    rival: str
    time: Interval
    core_hours: Interval
    weighed: Interval  # mean logarithm of the time's ratio, and 0.8 of that of the core-hours'
    is_clear: bool  # that the weighed one is not 0


@dataclass(frozen=True, slots=True)
class WorthVerdict:
    """Whether it is worth it, and by what."""

    answer: Literal["yes", "no", "unclear"]
    way: str  # the way to ask
    best_simple: str  # of those that need no asa
    moments: int  # in which all that are compared completed
    sentences: tuple[str, str, str]
    beside: tuple[ComparedWay, ...]  # each of asa's ways beside each simple one
    failed: Mapping[str, int]  # ways that are left out, and in how many moments they failed
    waits: float  # share of the makespan, by `per-stage`, in which a stage waits that could have begun
    age_accrues: bool

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON-ready data."""
        return asdict(self)


def judged(workflow: Workflow, runs: Sequence[CompareRun], *, is_rough: bool = False) -> WorthVerdict:
    """Judge by runs of one workflow in one width, whose seeds are moments in the order of time.

    It is worth it if one of asa's ways is clearly better than every simple one, and not if none of them may be, by what
    matters. What fails in more than a tenth of the moments is left out; all others are compared in those moments in
    which all of them completed.

    `is_rough`: the twin is far from the site, which the first sentence says.
    Raises `RunError`: no simple way, or none of asa's, completed in most moments.
    """
    cells, failed = _common(cells_of(runs))
    ours, simple = ([cell for cell in cells if _base(cell) in names] for names in (OURS, SIMPLE))
    if not ours or not simple:
        first = next((run.reason for run in runs if run.reason), "nothing was run")
        raise RunError(f"nothing can be compared: {first}", where=workflow.name, hint="Correct the workflow's stages.")
    best = min(simple, key=lambda cell: _weight(cell, simple[0]))
    compared = _compared(ours, simple)
    answer, name = _answer(compared)
    hero = next(cell for cell in ours if cell.strategy == name)
    way = hero if answer == "yes" else best
    waits, accrues = _share_of_waits(workflow, cells), runs[0].age_accrues
    first = _first(answer, hero, best, next(o for o in compared if (o.way, o.rival) == (name, best.strategy)))
    rough = " Waits in the twin are far from those of the site: take this as a rough estimate." if is_rough else ""
    second = _second(way, [cell for cell in (*simple, hero) if cell is not way])
    goes_on = any(stage.has_unknown_last_job for stage in workflow.stages.values())
    out = "".join(f" {one} is left out: it failed from {count} starting times." for one, count in failed.items())
    why = _why(answer, way, best, waits, accrues=accrues) if not goes_on else _WHY_NEXT
    return WorthVerdict(
        answer, way.strategy, best.strategy, len(way.runs), (first + rough, second + out, why), compared, failed, waits,
        accrues,
    )  # fmt: skip


def _common(cells: Sequence[Cell]) -> tuple[list[Cell], dict[str, int]]:
    """Keep ways that complete in most moments, in those in which all of them do; tell how often others failed."""
    failures = {cell.strategy: sum(run.metrics is None for run in cell.runs) for cell in cells}
    kept = [cell for cell in cells if failures[cell.strategy] <= _MOST_FAILED * len(cell.runs)]
    failed = {cell.strategy: failures[cell.strategy] for cell in cells if cell not in kept}
    if not kept:
        return [], failed
    seeds = set.intersection(*({run.seed for run in cell.runs if run.metrics} for cell in kept))
    runs = [run for cell in kept for run in sorted(cell.runs, key=lambda run: run.seed) if run.seed in seeds]
    return cells_of(runs), failed


def _base(cell: Cell) -> str:
    return cell.strategy.partition(":")[0]


def _pairs(hero: Cell, rival: Cell) -> NDArray[np.float64]:
    """Give the logarithms of time and core-hours over a rival's, a row a moment that both ran in."""
    ours, theirs = ({run.seed: run.metrics for run in cell.runs if run.metrics} for cell in (hero, rival))
    both = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    ratios = [(one.makespan_s / other.makespan_s, one.core_hours / other.core_hours) for one, other in both]
    logs: NDArray[np.float64] = np.log(np.array(ratios).reshape(-1, 2))
    return logs


def _weight(cell: Cell, other: Cell) -> float:
    """Weigh time and core-hours against another way's, in the mean of their logarithms."""
    pairs = _pairs(cell, other)
    return float(pairs.mean(axis=0) @ (1.0, _PRICE)) if len(pairs) else math.inf


def _logs(hero: Cell, rival: Cell) -> tuple[Interval, Interval, Interval]:
    """Give time, core-hours and both together, as means of logarithms.

    Moments that are near in time meet the same queue: intervals are over blocks of such.
    """
    pairs = _pairs(hero, rival)
    blocks = np.array_split(pairs, max(min(len(pairs) // _A_BLOCK, _BLOCKS), min(len(pairs), _FEW_BLOCKS)))
    time, hours = np.array([block.mean(axis=0) for block in blocks]).T
    return mean_interval(time.tolist()), mean_interval(hours.tolist()), mean_interval((time + _PRICE * hours).tolist())


def _share(of_logs: Interval) -> Interval:
    """Make the share of which one is above another of the mean logarithm."""
    ratio = as_ratio(of_logs)
    return Interval(ratio.mean - 1, ratio.low - 1, ratio.high - 1, ratio.freedom)


def _compared(ours: Sequence[Cell], rivals: Sequence[Cell]) -> tuple[ComparedWay, ...]:
    """Compare each way with each rival; all clear differences together are right with 95 %."""
    pairs = [(one, rival) for one in ours for rival in rivals]
    found = [_logs(one, rival) for one, rival in pairs]
    clear = beyond_chance([weighed for *_, weighed in found])
    return tuple(
        ComparedWay(one.strategy, rival.strategy, _share(time), _share(hours), weighed, is_clear)
        for (one, rival), (time, hours, weighed), is_clear in zip(pairs, found, clear, strict=True)
    )


def _second(way: Cell, others: Sequence[Cell]) -> str:
    """Say what a way takes, also compared with others."""
    found = [_logs(way, other) for other in others]
    times, hours = [time for time, *_ in found], [cost for _, cost, _ in found]
    claim = claimed(
        [other.strategy for other in others],
        [_share(one) for one in times],
        [_share(one) for one in hours],
        beyond_chance([*times, *hours]),
    )
    took, cost = format_duration(way.intervals["makespan_s"].mean), way.intervals["core_hours"].mean
    return f"With {way.strategy} it takes {took} and {cost:,.0f} core-hours on average, and finishes {claim}"


def _answer(compared: Sequence[ComparedWay]) -> tuple[Literal["yes", "no", "unclear"], str]:
    """Answer, and name the way of asa's that it is about."""
    of = {way: [one for one in compared if one.way == way] for way in dict.fromkeys(one.way for one in compared)}
    # by its worst: against the rival that is hardest to beat
    worst = {way: max(one.weighed.mean for one in ones) for way, ones in of.items()}
    better = [way for way, ones in of.items() if all(o.is_clear and o.weighed.mean < -_MATTERS for o in ones)]
    if better:
        return "yes", min(better, key=worst.__getitem__)
    may = [
        way
        for way, ones in of.items()
        if all(not o.weighed.low > -3 * _MATTERS for o in ones)  # nan, of one moment, may be anything
    ]
    if may:
        return "unclear", min(may, key=worst.__getitem__)
    return "no", min(worst, key=worst.__getitem__)


def _first(answer: str, hero: Cell, best: Cell, last: ComparedWay) -> str:
    if answer == "yes":
        return f"It is worth it here: use {hero.strategy}."
    if answer == "unclear":
        moments = len(hero.runs)
        return (
            f"Whether it is worth it here cannot be decided from {moments} starting times: {hero.strategy} may or may "
            f"not be better than {best.strategy}."
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
    if math.isnan(waits):
        return "How long stages wait is not known: no run with per-stage completed."
    share = f"{100 * waits:.0f} %"
    if waits < _HARDLY:
        return f"Stages hardly wait between each other here: {share} of the time with per-stage."
    rule = f"Jobs gain {'' if accrues else 'no '}priority while they wait for a dependency"
    tail = "."
    if accrues:
        tail = ", so stages that are submitted at once, chained by dependencies, wait while others run."
    elif answer == "yes" and way.strategy.startswith("asa-plan"):
        tail = "; the plan puts stages into one job where another wait would cost more than idle cores."
    lead = f"With per-stage, {share} of the makespan is waiting between stages."
    if best.strategy == "big-job" and answer != "yes":
        return f"{lead} One job for all stages waits only once, and its idle cores cost less than those waits."
    return f"{lead} {rule}{tail}"
