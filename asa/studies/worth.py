"""Decides whether asking ahead of time is worth it, from runs of a workflow in a twin of the site."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import Interval, as_ratio, beyond_chance, mean_interval
from asa.errors import RunError
from asa.shapes import Scaling
from asa.studies.compare.frontier import Cell
from asa.studies.compare.study import CompareRun
from asa.studies.compare.table import cells_of, claimed
from asa.studies.widths import AssumedWidths
from asa.units import format_duration
from asa.workflow import Stage, Workflow

SIMPLE = ("per-stage", "chained", "big-job")
"""Strategies that need no asa."""

OURS = ("asa", "asa-plan")
"""asa's own strategies."""

_PRICE = 0.8  # weight of a percent of core-hours relative to a percent of makespan, as in plans
_MATTERS = 0.01  # smallest difference of the weighted sum of time and core-hours that counts
_HARDLY = 0.03  # share of the makespan below which waits hardly matter
_MOST_FAILED = 0.1  # share of a strategy's runs that may fail
_NAMED = 3  # upper bound of the stages that are named
_CHOOSES = "asa-plan"  # the strategy that chooses among several widths
_AT_ONE_WIDTH = ("chained", "big-job")  # strategies that are also tried in other single widths
_BLOCKS, _A_BLOCK, _FEW_BLOCKS = 20, 5, 10  # numbers of blocks of replications for the intervals
_WHY_NEXT = "What decides it is how long each next leg waits, which the times above hold."


@dataclass(frozen=True, slots=True)
class ComparedWay:
    """A strategy compared with another strategy, as relative differences: below 0 it is sooner, or costs less.

    They are geometric means over replications, each with its own queue, so that a few long waits do not dominate.
    """

    way: str
    rival: str
    time: Interval
    core_hours: Interval
    weighed: Interval  # mean logarithm of the ratio of times, plus 0.8 times that of the core-hours
    is_clear: bool  # whether `weighed` differs significantly from 0


@dataclass(frozen=True, slots=True)
class WidthsVerdict:
    """The effect of allowing several widths for stages that have a single width."""

    would_decide: bool  # whether the plan is then clearly better than the best strategy without, and than asa's best
    law: Mapping[str, Any]  # in the form of `scaling` in a workflow file
    stages: tuple[str, ...]
    widths: tuple[int, ...]  # those of the widest of these stages, its own first
    # the plan with these two (or one), and with the best strategy at another single width
    compared: tuple[ComparedWay, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class WorthVerdict:
    """The answer, with its reasons."""

    answer: Literal["yes", "no", "unclear"]
    way: str  # the strategy of asa that the answer is about
    best_simple: str  # best strategy among those that need no asa
    moments: int  # number of replications in which all compared strategies completed
    sentences: tuple[str, str, str]
    beside: tuple[ComparedWay, ...]  # each of asa's strategies compared with each simple one
    failed: Mapping[str, int]  # strategies that are left out, with the number of replications in which they failed
    waits: float  # share of the makespan that stages wait although they could have begun, under `per-stage`
    age_accrues: bool
    # for stages of one width; None if several widths were not tried, or no law fits
    widths: WidthsVerdict | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready data."""
        return asdict(self)


def at_width(strategy: str, width: int) -> str:
    """Return the name of a strategy run with a single width for all stages: as in a command line.

    Examples
    --------
    >>> at_width("chained", 14)
    'chained --width 14'
    """
    return f"{strategy} --width {width}"


def best_of(runs: Sequence[CompareRun], others: Sequence[CompareRun]) -> list[CompareRun]:
    """Return the runs of the best of several strategies, in hindsight: by time and core-hours relative to another.

    A strategy that fails in more than a tenth of the replications is not chosen.
    """
    first = cells_of(others)[0]
    cells = [cell for cell in cells_of(runs) if _failures(cell) <= _MOST_FAILED * len(cell.runs)]
    return list(min(cells, key=lambda cell: _weight(cell, first)).runs) if cells else []


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The alternatives at each start: a workflow as it is, in other single widths, and with several by assumed laws.

    As a function it returns the workflow of an index. `asa.studies.compare` takes these indices as numbers of cores.
    """

    workflows: tuple[Workflow, ...]
    pairs: tuple[tuple[int, str], ...]  # indices and strategies
    names: tuple[str, ...]  # of each pair: the name of the strategy, with its width
    # of each pair: 0 for the workflow as it is, 1 for another single width, from 2 on for an assumed law
    groups: tuple[int, ...]
    assumed: tuple[AssumedWidths, ...]

    def __call__(self, place: int) -> Workflow:
        """Return the workflow of an index."""
        return self.workflows[place]

    @classmethod
    def of(
        cls,
        flow: Workflow,
        ways: Sequence[str],
        assumed: Sequence[AssumedWidths],
        is_possible: Callable[[Stage], bool] = lambda _: True,
    ) -> Alternatives:
        """Return the alternatives; `is_possible`: whether the site can run a stage."""
        workflows, pairs, names, groups = [flow], [(0, way) for way in ways], list(ways), [0] * len(ways)
        simple = [way for way in _AT_ONE_WIDTH if way in ways]

        def add(workflow: Workflow, strategies: Sequence[str], named: Sequence[str], group: int) -> None:
            pairs.extend((len(workflows), way) for way in strategies)
            names.extend(named)
            groups.extend([group] * len(strategies))
            workflows.append(workflow)

        def add_single_widths(of: Workflow, group: int) -> None:
            offered = {width for stage in of.stages.values() if stage.moldable for width in stage.moldable.widths}
            for width in sorted(offered):
                fixed = of.fixed(width)
                is_own = all(stage.width == of.stages[name].width for name, stage in fixed.stages.items())
                if simple and not is_own and all(map(is_possible, fixed.stages.values())):
                    add(fixed, simple, [at_width(way, width) for way in simple], group)

        add_single_widths(flow, 1)
        for group, assumption in enumerate(assumed, start=2):
            add(assumption.workflow, (_CHOOSES,), (_CHOOSES,), group)
            add_single_widths(assumption.workflow, group)
        return cls(tuple(workflows), tuple(pairs), tuple(names), tuple(groups), tuple(assumed))

    def sorted_out(
        self, came: Sequence[CompareRun], cores: int
    ) -> tuple[list[CompareRun], list[tuple[AssumedWidths, list[CompareRun]]]]:
        """Return the runs to compare, including the best of those in another width; and the runs by each law."""
        place = {pair: number for number, pair in enumerate(self.pairs)}
        of: dict[int, list[CompareRun]] = {}
        for run in came:
            number = place[run.cores, run.strategy]
            of.setdefault(self.groups[number], []).append(replace(run, cores=cores, strategy=self.names[number]))
        own = of[0]
        runs = [*own, *(best_of(of[1], own) if 1 in of else [])]
        return runs, [(assumption, of[group]) for group, assumption in enumerate(self.assumed, start=2)]


def judged(
    workflow: Workflow,
    runs: Sequence[CompareRun],
    *,
    is_rough: bool = False,
    assumed: Sequence[tuple[AssumedWidths, Sequence[CompareRun]]] = (),
) -> WorthVerdict:
    """Judge runs of one workflow in one width; their seeds are replications in the order of time.

    It is worth it if one of asa's strategies is clearly better than every simple one. It is not if none of asa's
    strategies may be better by an amount that matters. A strategy that fails in more than a tenth of the replications
    is left out; the others are compared in those replications in which all of them completed.

    `is_rough`: whether the twin differs much from the site; the first sentence then says so.
    `assumed`: widths that stages of one width might have, the most cautious law first. Each comes with the runs of the
    plan that chooses among these widths, then with those of strategies at a single width.
    Raises `RunError`: no simple strategy, or none of asa's, completed in most replications.
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
    widths = _of_widths(way, hero, assumed)
    first = _first(answer, hero, best, next(o for o in compared if (o.way, o.rival) == (name, best.strategy)))
    if widths is not None and widths.would_decide:
        first = f"{first.removesuffix('.')}, as long as each stage has one width."
    rough = " Waits in the twin are far from those of the site: take this as a rough estimate." if is_rough else ""
    second = _second(way, [cell for cell in (*simple, hero) if cell is not way])
    goes_on = any(stage.has_unknown_last_job for stage in workflow.stages.values())
    out = "".join(
        f" {strategy} is left out: it failed from {count} starting times." for strategy, count in failed.items()
    )
    why = _why(answer, way, best, waits, accrues=accrues) if not goes_on else _WHY_NEXT
    return WorthVerdict(
        answer, way.strategy, best.strategy, len(way.runs), (first + rough, second + out, why), compared, failed, waits,
        accrues, widths,
    )  # fmt: skip


def _common(cells: Sequence[Cell]) -> tuple[list[Cell], dict[str, int]]:
    """Keep strategies that mostly complete, in the replications in which all do; return how often the others failed."""
    failures = {cell.strategy: _failures(cell) for cell in cells}
    kept = [cell for cell in cells if failures[cell.strategy] <= _MOST_FAILED * len(cell.runs)]
    failed = {cell.strategy: failures[cell.strategy] for cell in cells if cell not in kept}
    if not kept:
        return [], failed
    seeds = set.intersection(*({run.seed for run in cell.runs if run.metrics} for cell in kept))
    runs = [run for cell in kept for run in sorted(cell.runs, key=lambda run: run.seed) if run.seed in seeds]
    return cells_of(runs), failed


def _failures(cell: Cell) -> int:
    return sum(run.metrics is None for run in cell.runs)


def _base(cell: Cell) -> str:
    return cell.strategy.partition(":")[0].partition(" ")[0]


def _of_widths(
    way: Cell, hero: Cell, assumed: Sequence[tuple[AssumedWidths, Sequence[CompareRun]]]
) -> WidthsVerdict | None:
    """Return the effect of several widths by the first law under which they help; else by the least cautious law."""
    verdicts = []
    own = [way] if way is hero else [way, hero]
    for widths, runs in assumed:
        plan, *others = cells_of(runs)
        single = cells_of(best_of([run for cell in others for run in cell.runs], way.runs))
        rivals = [*own, *single]
        if _failures(plan) > _MOST_FAILED * len(plan.runs) or not all(len(_pairs(plan, rival)) for rival in rivals):
            continue
        compared = _compared([plan], rivals)
        decides = all(way.is_clear and way.weighed.mean < -_MATTERS for way in compared[: len(own)])
        may = _may_be_better(compared[: len(own)])
        sentence = _told_of_widths(widths, plan, way, compared[0], compared[len(own) :], decides=decides, may=may)
        law = written(widths.law)
        verdicts.append(WidthsVerdict(decides, law, widths.stages, widths.widths, compared, sentence))
    return next((verdict for verdict in verdicts if verdict.would_decide), verdicts[-1] if verdicts else None)


def written(law: Scaling) -> dict[str, Any]:
    """Return a law as in a workflow file, under the key `scaling`."""
    if law.law == "downey":
        return {"downey": {"parallelism": law.parallelism, "variance": law.variance}}
    return {law.law: law.parallel}


def _told_of_widths(
    widths: AssumedWidths,
    plan: Cell,
    way: Cell,
    first: ComparedWay,
    single: Sequence[ComparedWay],
    *,
    decides: bool,
    may: bool,
) -> str:
    """Return the sentence on a law: how much a choice of widths gains, for how many core-hours, and how to write it.

    `decides`: whether it is clearly better; `may`: whether it may be.
    """
    (own, *more), stages, scaling = widths.widths, widths.stages, _toml(written(widths.law))
    who = f"stage {stages[0]}"
    if len(stages) > 1:
        who = f"each of the stages {', '.join(stages[:-1])} and {stages[-1]}"
        who = who if len(stages) <= _NAMED else f"each of {len(stages)} stages ({', '.join(stages[:_NAMED])}, ...)"
    careful = widths.law.parallel == 1.0 and own == max(widths.widths)
    law = f"{scaling}{', which is perfect scaling, the worst case for narrower jobs' if careful else ''}"
    could = f"on {min(widths.widths)} to {max(widths.widths)} {widths.unit} by the scaling law {law}"
    share, hours = _times(first.time), [cell.intervals["core_hours"].mean for cell in (plan, way)]
    costs = f"{hours[0]:,.1f} core-hours in place of {hours[1]:,.1f}"
    if not decides:
        known = "Several widths would not decide"
        if may:
            known = f"Whether several widths would decide cannot be told from {len(_pairs(plan, way))} starting times"
        return (
            f"{known}: if {who} could run {could}, {plan.strategy} would take {share} of the time of {way.strategy}, "
            f"and {costs}."
        )
    answer = (
        f"Several widths would decide: if {who} could run {could}, {plan.strategy} would be "
        f"{1 / (1 + first.time.mean):.1f} times as fast as {way.strategy}. It would take {share} of its time, and "
        f"{costs}."
    )
    for other in single:
        if other.is_clear and other.weighed.mean < -_MATTERS:
            times = 1 / (1 + other.time.mean)
            answer += f" With the best single other width, {other.rival}, it would take {times:.2f} times as long."
        else:
            answer += f" A single other width would do as well by this law: {other.rival}."
    measured, where = more[len(more) // 2], "the stage" if len(stages) == 1 else "such a stage"
    return (
        f"{answer} To let it choose, write into {where}: {widths.unit} = {[own, *more]} and scaling = {scaling}; or, "
        f"once it has run on {measured} {widths.unit}, too, "
        f'how long, as in expected = {{ {own} = "1h", {measured} = "3h" }}.'
    )


def _times(share: Interval) -> str:
    """Format a relative difference as a factor, with its interval."""
    low, high = 1 + share.low, 1 + share.high
    bounds = f" ({low:.2f} to {high:.2f})" if f"{low:.2f}" != f"{high:.2f}" and not math.isnan(low) else ""
    return f"{1 + share.mean:.2f}{bounds}"


def _toml(law: Mapping[str, Any]) -> str:
    """Format a law as a table of TOML."""
    parts = (f"{key} = {_toml(value) if isinstance(value, Mapping) else f'{value:g}'}" for key, value in law.items())
    return f"{{ {', '.join(parts)} }}"


def _pairs(hero: Cell, rival: Cell) -> NDArray[np.float64]:
    """Return the logarithms of the ratios of time and core-hours, a row for each replication that both completed."""
    ours, theirs = ({run.seed: run.metrics for run in cell.runs if run.metrics} for cell in (hero, rival))
    both = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    ratios = [(one.makespan_s / other.makespan_s, one.core_hours / other.core_hours) for one, other in both]
    logs: NDArray[np.float64] = np.log(np.array(ratios).reshape(-1, 2))
    return logs


def _weight(cell: Cell, other: Cell) -> float:
    """Return the mean logarithm of time and core-hours relative to another strategy, weighted."""
    pairs = _pairs(cell, other)
    return float(pairs.mean(axis=0) @ (1.0, _PRICE)) if len(pairs) else math.inf


def _logs(hero: Cell, rival: Cell) -> tuple[Interval, Interval, Interval]:
    """Return the mean logarithms of the ratios of time, of core-hours, and of both together.

    Replications that are close in time meet the same queue, so intervals are over blocks of them.
    """
    pairs = _pairs(hero, rival)
    blocks = np.array_split(pairs, max(min(len(pairs) // _A_BLOCK, _BLOCKS), min(len(pairs), _FEW_BLOCKS)))
    time, hours = np.array([block.mean(axis=0) for block in blocks]).T
    return mean_interval(time.tolist()), mean_interval(hours.tolist()), mean_interval((time + _PRICE * hours).tolist())


def _share(of_logs: Interval) -> Interval:
    """Return the relative difference of a mean logarithm."""
    ratio = as_ratio(of_logs)
    return Interval(ratio.mean - 1, ratio.low - 1, ratio.high - 1, ratio.freedom)


def _compared(ours: Sequence[Cell], rivals: Sequence[Cell]) -> tuple[ComparedWay, ...]:
    """Compare each strategy with each rival; all clear differences hold together with 95 %."""
    pairs = [(way, rival) for way in ours for rival in rivals]
    logs = [_logs(way, rival) for way, rival in pairs]
    clear = beyond_chance([weighed for *_, weighed in logs])
    return tuple(
        ComparedWay(way.strategy, rival.strategy, _share(time), _share(hours), weighed, is_clear)
        for (way, rival), (time, hours, weighed), is_clear in zip(pairs, logs, clear, strict=True)
    )


def _second(way: Cell, others: Sequence[Cell]) -> str:
    """Return the sentence on a strategy's time and core-hours, also compared with others."""
    logs = [_logs(way, other) for other in others]
    times, hours = [time for time, *_ in logs], [cost for _, cost, _ in logs]
    claim = claimed(
        [other.strategy for other in others],
        [_share(change) for change in times],
        [_share(change) for change in hours],
        beyond_chance([*times, *hours]),
    )
    took, cost = format_duration(way.intervals["makespan_s"].mean), way.intervals["core_hours"].mean
    return f"With {way.strategy} it takes {took} and {cost:,.0f} core-hours on average, and finishes {claim}"


def _answer(compared: Sequence[ComparedWay]) -> tuple[Literal["yes", "no", "unclear"], str]:
    """Return the answer, and the asa strategy that it recommends or rejects."""
    of = {
        way: [comparison for comparison in compared if comparison.way == way]
        for way in dict.fromkeys(comparison.way for comparison in compared)
    }
    # by its worst comparison: with the rival that is hardest to beat
    worst = {way: max(comparison.weighed.mean for comparison in ones) for way, ones in of.items()}
    better = [way for way, ones in of.items() if all(o.is_clear and o.weighed.mean < -_MATTERS for o in ones)]
    if better:
        return "yes", min(better, key=worst.__getitem__)
    if may := [way for way, ones in of.items() if _may_be_better(ones)]:
        return "unclear", min(may, key=worst.__getitem__)
    return "no", min(worst, key=worst.__getitem__)


def _may_be_better(compared: Sequence[ComparedWay]) -> bool:
    """Whether a strategy may be better than all rivals by an amount that matters."""
    return all(not one.weighed.low > -3 * _MATTERS for one in compared)  # nan, from one replication, excludes nothing


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
    """Return the share of the makespan that dependent stages wait under Per-Stage; nan if that did not run."""
    runs = next((cell.runs for cell in cells if cell.strategy == "per-stage"), ())
    shares = [
        sum(max(stage.perceived_wait_s, 0.0) for stage in run.metrics.stages if workflow.stages[stage.stage].after)
        / run.metrics.makespan_s
        for run in runs
        if run.metrics
    ]
    return float(np.mean(shares)) if shares else math.nan


def _why(answer: str, way: Cell, best: Cell, waits: float, *, accrues: bool) -> str:
    """Return the sentence on the reason."""
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
