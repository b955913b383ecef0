"""Explains a plan: the other jobs that a stage could have, and the cost of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

from asa.core.late import dataclass
from asa.strategies.base import Keep
from asa.strategies.planning import Aim, Block, Outlook, Question, SearchedJob, Sketch, mode_of, sketch_of
from asa.units import format_cores, format_duration

_KEPT = {
    "nothing": "submitted now",
    "ready": "submitted when ready",
    "dependency": "submitted early with a dependency",
    "await": "submitted ahead of time, idle if it starts too early",
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan that differs in the job of one stage."""

    way: str
    kept: str  # what keeps the job back
    sketch: Sketch
    job: SearchedJob
    start_s: float  # expected start of the stage, in seconds from now
    gap_s: float  # seconds from when the job's stages could run until it starts; 0 if the stage is not its first
    cost_s: float  # of the whole plan, as `Question.cost_s`
    span_s: float  # the makespan that counts in this cost, as `Question.span_s`

    @property
    def idle_core_hours(self) -> float:
        """Core-hours that its job is expected to idle before its stages may begin."""
        return self.job.idle_s * self.job.block.cores / 3600

    def as_dict(self) -> dict[str, Any]:
        """Return the alternative as JSON-ready data."""
        return {
            "way": self.way,
            "stages": list(self.job.block.stages),
            "kept_back": self.kept,
            "start_in_s": self.start_s,
            "gap_s": self.gap_s,
            "idle_core_hours": self.idle_core_hours,
            "makespan_s": self.sketch.makespan_s,
            "makespan_counted_s": self.span_s,
            "core_hours": self.sketch.core_hours,
            "cost_s": self.cost_s,
        }


@dataclass(frozen=True, slots=True)
class WeighedStage:
    """The jobs that were weighed for a stage: the chosen job, and the others in the order of their costs."""

    stage: str
    price_s: float  # seconds of makespan that a core-hour is worth
    chosen: Alternative
    others: tuple[Alternative, ...]
    impossible: tuple[str, ...]  # sentences that say which groupings are impossible
    is_bound: bool  # whether a budget or a deadline decided
    typically: bool = False  # whether makespans count by their geometric mean

    def sentences(self) -> Iterator[str]:
        """Explain in sentences why the chosen job was taken."""
        chosen, block = self.chosen, self.chosen.job.block
        others = [name for name in block.stages if name != self.stage]
        with_whom = f"shares a job with {', '.join(others)}" if others else "has a job of its own"
        gap = f"{format_duration(chosen.gap_s)} after" if chosen.gap_s >= 1 else "as soon as"
        yield (
            f"Chosen: {self.stage} {with_whom}, on {format_cores(block.cores)}{block.elasticity.clause}, "
            f"{_KEPT[chosen.kept]}. Expected to begin in {format_duration(chosen.start_s)}, {gap} the stages it "
            "depends on have ended."
        )
        seen = set()
        for other in self.others:
            if other.way == chosen.way:
                yield f"The same job, {_KEPT[other.kept]}: {self._versus(other)}"
            elif other.way not in seen:
                seen.add(other.way)
                yield f"{_upper(other.way)}, {_KEPT[other.kept]}: {self._versus(other)}"
        yield from self.impossible

    def _versus(self, other: Alternative) -> str:
        later_s = other.span_s - self.chosen.span_s
        hours = other.sketch.core_hours - self.chosen.sketch.core_hours
        ends = "the workflow ends as soon"
        if abs(later_s) >= 0.5:
            ends = f"the workflow ends {format_duration(abs(later_s))} {'later' if later_s > 0 else 'sooner'}"
        takes = "for the same core-hours"
        if abs(hours) >= 0.005:
            worth = format_duration(abs(hours) * self.price_s)
            takes = f"for {abs(hours):,.2f} core-hours {'more' if hours > 0 else 'less'}, which are worth {worth}"
        worse_s = other.cost_s - self.chosen.cost_s
        verdict = f"{format_duration(worse_s)} worse in total"
        if abs(worse_s) < 0.5:
            verdict = "no better and no worse"
        elif worse_s < 0:
            why = "not allowed by the options" if self.is_bound else "not tried: the search is limited"
            verdict = f"{format_duration(-worse_s)} better, but {why}"
        return f"{ends}, {takes}: {verdict}."

    def as_dict(self) -> dict[str, Any]:
        """Return what was weighed as JSON-ready data."""
        return {
            "stage": self.stage,
            "price_s_per_core_hour": self.price_s,
            "chosen": self.chosen.as_dict(),
            "others": [other.as_dict() for other in self.others],
            "told": list(self.sentences()),
        }


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def weigh(outlook: Outlook, stage: str, aim: Aim) -> WeighedStage:
    """Compare a stage's job with the others that it could have; the rest of the plan stays."""
    price_s = _a_price_s(outlook, aim)
    question = replace(outlook.question, price_s=price_s)
    modes = dict(outlook.sketch.shape)
    own = next(stages for stages in modes if stage in stages)
    alternatives: list[Alternative] = []
    impossible = []
    for way, groups in _groupings(question, list(modes), stage):
        if bad := next((group for group in groups if question.parts.block(group) is None), None):
            impossible.append(
                f"{_upper(way)}: {short_name(bad)} cannot share a job: their queues, options or total walltime do "
                f"not allow it."
            )
            continue
        alternatives += _in_all_modes(question, way, groups, modes, stage)
    kept = _kept(question, own, modes[own])
    chosen = next(
        alternative for alternative in alternatives if alternative.job.block.stages == own and alternative.kept == kept
    )
    others = sorted(
        (alternative for alternative in alternatives if alternative is not chosen),
        key=lambda alternative: alternative.cost_s,
    )
    is_bound = aim.at_most is not None or aim.deadline_s is not None
    return WeighedStage(stage, price_s, chosen, tuple(others), tuple(impossible), is_bound, question.typically)


def _kept(question: Question, group: tuple[str, ...], keep: Keep) -> str:
    """Name what keeps a job back: `nothing`, if it follows no other job."""
    stages = question.parts.workflow.stages
    is_first = all(before in group for name in group for before in stages[name].after)
    return "nothing" if is_first else mode_of(keep)


def _groupings(
    question: Question, groups: list[tuple[str, ...]], stage: str
) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield the plan, plans that split the stage's job at the stage, and plans that join it to a neighbour."""
    rank = next(n for n, group in enumerate(groups) if stage in group)
    own = groups[rank]
    at = own.index(stage)
    yield ("with " + ", ".join(n for n in own if n != stage) if len(own) > 1 else "alone"), groups
    cuts = {
        "alone": (at, at + 1),
        f"in a new job that begins with {stage}": (at,),
        f"in a job that ends with {stage}": (at + 1,),
    }
    seen = {own}
    for way, ends in cuts.items():
        marks = [0, *ends, len(own)]
        pieces = [own[begin:end] for begin, end in pairwise(marks) if end > begin]
        mine = next(piece for piece in pieces if stage in piece)
        if mine not in seen:
            seen.add(mine)
            yield way, [*groups[:rank], *pieces, *groups[rank + 1 :]]
    stages = question.parts.workflow.stages
    for other in (rank - 1, rank + 1):
        if not 0 <= other < len(groups):
            continue
        first, second = groups[min(rank, other)], groups[max(rank, other)]
        if any(before in first for name in second for before in stages[name].after):
            joined = tuple(name for name in question.parts.names if name in first + second)
            yield (
                f"with {short_name(groups[other])} too",
                [*groups[: min(rank, other)], joined, *groups[max(rank, other) + 1 :]],
            )


def _in_all_modes(
    question: Question,
    way: str,
    groups: Sequence[tuple[str, ...]],
    modes: Mapping[tuple[str, ...], Keep],
    stage: str,
) -> Iterator[Alternative]:
    """Try each way to keep the stage's job back, with the best way for the other new jobs."""

    def possible(group: tuple[str, ...]) -> list[Keep]:
        if group in modes and stage not in group:
            return [modes[group]]
        is_first = _kept(question, group, Keep.NOTHING) == "nothing"
        return [Keep.NOTHING] if is_first else [keep for keep in Keep if keep in question.modes]

    best: dict[str, Sketch] = {}
    mine = next(n for n, group in enumerate(groups) if stage in group)
    for chosen in product(*map(possible, groups)):
        sketch = sketch_of(question, list(zip(groups, chosen, strict=True)))
        kept = _kept(question, groups[mine], chosen[mine])
        if kept not in best or question.cost_s(sketch) < question.cost_s(best[kept]):
            best[kept] = sketch
    for kept, sketch in best.items():
        job = sketch.jobs[mine]
        begins_s = _begins_s(question, job.block, stage)
        gap_s = float((job.start_s - job.ready_s).mean()) if begins_s <= 0 else 0.0
        start_s = float(job.start_s.mean()) + begins_s
        counts = question.cost_s(sketch), question.span_s(sketch)
        yield Alternative(way, kept, sketch, job, start_s, max(gap_s, 0.0), *counts)


def _begins_s(question: Question, block: Block, stage: str) -> float:
    """Return how long after its job's start a stage begins, by the run times of the stages before it."""
    if block.shapes:
        return sum(shape.run_s for shape in block.shapes[: block.stages.index(stage)])
    return question.parts.begins_s(block.stages)[stage]


def _a_price_s(outlook: Outlook, aim: Aim) -> float:
    """Return a price of a core-hour at which the chosen plan costs least."""
    if aim.at_most is None and aim.deadline_s is None:
        return outlook.question.price_s
    plans = outlook.frontier()
    rank = next((n for n, plan in enumerate(plans) if plan.shape == outlook.sketch.shape), None)
    if rank is None or len(plans) == 1:
        return outlook.question.price_s
    # the price at which two neighbouring plans cost the same
    slopes = [(a.makespan_s - b.makespan_s) / max(b.core_hours - a.core_hours, 1e-9) for a, b in pairwise(plans)]
    around = slopes[max(rank - 1, 0) : rank + 1]
    if len(around) == 2:
        return math.sqrt(around[0] * around[1])
    return around[0] * (2.0 if rank == 0 else 0.5)


def short_name(stages: Sequence[str]) -> str:
    """Name a job by its stages.

    Examples
    --------
    >>> short_name(["split", "search"]), short_name("abc")
    ('split+search', 'a+...+c')
    """
    return "+".join(stages) if len(stages) < 3 else f"{stages[0]}+...+{stages[-1]}"
