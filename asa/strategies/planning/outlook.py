"""Plans the rest of a run from its present state, and says what to expect of that plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from asa.backend import Capabilities, DependencyType
from asa.core.late import dataclass
from asa.errors import InputError, near
from asa.strategies.base import (
    Choice,
    Comparing,
    Forecast,
    JobRequest,
    Joint,
    Keep,
    Phase,
    RunView,
    StageView,
    Weighed,
    predicted,
)
from asa.units import core_hours, parse_price
from asa.waits import LEVELS, WaitForecast
from asa.workflow import Stage, Workflow

from .elasticity import Resizing, looked_after
from .molding import forms_of
from .parts import Block, Parts, max_walltimes
from .search import (
    SAMPLES,
    Question,
    Samples,
    Sketch,
    aged,
    may_stretch,
    priced_frontier,
    runs_s,
    searched,
    sketch_of,
    typical,
)
from .sharing import counts_of, shared_wait_s
from .together import can_judge, judged_together, merged

WHOLE_STAGES = 60
"""Upper bound of the stages without a job that are planned together."""

NEXT_STAGES = 24
"""If there are more, this number of stages is planned."""

LIKELY = 0.9
"""Where age accrues and stages have one shape: probability with which a plan must end before one job per stage does.

Chosen on 32 starts of KTH, CTC and HPC2N, confirmed on 60 others of each: less likely plans lose more than they gain.
"""

_UNDER_WAY = frozenset({Phase.QUEUED, Phase.ALLOCATED, Phase.RUNNING})
_SAVES = 0.01  # share of core-hours that count as saved
_JUDGED = 2  # plans of the search that are judged again, together
_FEW_STAGES = 12  # in larger workflows, jobs with similar walltimes share a forecast
_ALIKE = 1.25  # factor between walltimes that count as similar
_ALIKE_SHAPES = math.sqrt(2.0)  # the same where shapes are compared: half a power of two, as in geometries
_PRICES = np.geomspace(1 / 64, 64, 13)  # as factors of the fair price
# the same where shapes are chosen: the widest pay only if core-hours hardly count
_PRICES_OF_SHAPES = np.geomspace(1 / 1024, 64, 17)
_SURE = 0.9  # probability of meeting a deadline
_WORTH = 0.8  # how many percent of makespan one percent of core-hours is worth by default
# the same where shapes are chosen: narrow shapes cost so much less that a higher price would never choose a faster one
WORTH_OF_SHAPES = 0.1
"""Percent of time that a percent of core-hours is worth where shapes are chosen."""
_HOLES = 0.15  # exponent with which waits grow with the walltime beyond the prediction: short jobs fit into more gaps
_NO_HOURS = 1e-6
_OWN, _CHOSEN = "own", "chosen"  # values of the setting `shapes`
_HANDOVER_S = 1.0  # so that of otherwise equal plans, the one with fewer jobs is chosen
_MIDDLES = (np.arange(SAMPLES) + 0.5) / SAMPLES
_LEVELS = np.array(LEVELS)


@dataclass(frozen=True, slots=True)
class Aim:
    """The user's aim: a price, a budget or a deadline."""

    # seconds that a core-hour is worth: the plan with the least `Question.cost_s` (time plus price times core-hours) is
    # chosen. By default, one percent of Per-Stage's core-hours is worth 0.8 percent of its makespan; where shapes are
    # chosen, 0.1 percent, measured with the best shape of each stage by the same rule
    price_s: float | None = None
    # upper bound of core-hours, as a multiple of Per-Stage's; the fastest plan within it is chosen, whatever the price
    at_most: float | None = None
    # time by which all must have ended; the plan with fewest core-hours that meets it in 9 of 10 cases is chosen
    deadline_s: float | None = None
    # whether jobs may grow, where the site can do that and age does not accrue. On recorded logs this saves core-hours,
    # but now and then costs a long, unpredicted wait in the middle of a job
    grow: bool = False
    # whether to choose among the shapes of stages that have several; else each stage takes its first
    chooses_shapes: bool = True


def read_aim(settings: Mapping[str, str]) -> Aim:
    """Read the settings ``price`` (as `parse_price` reads it), ``at-most``, ``deadline``, ``grow``, and ``shapes=own``.

    A deadline is in ISO 8601 or in seconds since 1970.

    Examples
    --------
    >>> read_aim({"price": "30", "at-most": "1.1"})
    Aim(price_s=30.0, at_most=1.1, deadline_s=None, grow=False, chooses_shapes=True)
    """
    known = ("price", "at-most", "deadline", "grow", "shapes", "races", "max-racers", "race-after", "patience")
    if unknown := next((name for name in settings if name not in known), None):
        hint = f"{near(unknown, known)}Known: {', '.join(known)}."
        raise InputError(f"there is no setting {unknown!r}", where="asa-plan", hint=hint)
    return Aim(
        _price_s(settings.get("price")),
        _number("at-most", settings.get("at-most")),
        _moment(settings.get("deadline")),
        _truth(settings.get("grow", "no")),
        _chooses_shapes(settings.get("shapes", _CHOSEN)),
    )


def _chooses_shapes(text: str) -> bool:
    if text not in {_OWN, _CHOSEN}:
        hint = f"{_OWN}: each stage's first; or {_CHOSEN}."
        raise InputError(f"{text!r} is not a choice of shapes", where="asa-plan: shapes", hint=hint)
    return text == _CHOSEN


def _truth(text: str) -> bool:
    if text not in {"yes", "no"}:
        raise InputError(f"{text!r} is not yes or no", where="asa-plan: grow", hint="As in grow=yes.")
    return text == "yes"


def _number(name: str, text: str | None) -> float | None:
    try:
        value = None if text is None else float(text)
    except ValueError:
        value = math.nan
    if value is not None and not 0 <= value < math.inf:
        raise InputError(f"{text!r} is no number from 0 on", where=f"asa-plan: {name}", hint="As in 1.1, or 30.")
    return value


def _price_s(text: str | None) -> float | None:
    try:
        return None if text is None else parse_price(text)
    except InputError as error:
        raise InputError(error.message, where="asa-plan: price", hint=error.hint) from None


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        hint = "As in 2026-11-30T08:00, or in seconds since 1970."
        raise InputError(f"{text!r} is no time", where="asa-plan: deadline", hint=hint) from None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A submitted job: its stages, and when it is expected to be ready, to begin and to end."""

    block: Block
    phase: Phase
    # samples in seconds from now: when its predecessors have ended, its payload begins, and it ends
    ready_s: Samples
    start_s: Samples
    end_s: Samples


@dataclass(frozen=True, slots=True)
class Outlook:
    """The expected course of a run from now on."""

    now_s: float
    under_way: tuple[UnderWay, ...]  # in the workflow's order
    question: Question  # the input of the search for the rest
    sketch: Sketch  # the plan for the rest
    predict: Callable[[Block], WaitForecast]  # predicts the wait of a block's job
    # core-hours and expected makespan of the planned stages with one job per stage, for comparison
    per_stage_hours: float
    per_stage_s: float
    forecast: Forecast  # the source of waits
    planned: int = 0  # planned stages without a job; `left_out`: those beyond, too many to plan now
    left_out: int = 0
    prices_s: tuple[
        float, ...
    ] = ()  # prices of a core-hour to try, from one at which core-hours hardly count to one at which time hardly counts

    @property
    def end_s(self) -> Samples:
        """Samples of when all stages have ended, in seconds from now."""
        return _latest([self.sketch.end_s, *(job.end_s for job in self.under_way)])

    def ends_s(self, plans: Sequence[Sketch]) -> Samples:
        """Sample when each of several plans for the rest ends, in seconds from now; shape (plans, samples).

        All plans are judged in the same futures, so that their ends can be compared sample by sample.
        """
        return np.stack([plan.end_s for plan in judged_together(self.question, self.forecast, plans)])

    def judged(self, plans: Sequence[Sketch]) -> Sequence[Sketch]:
        """Judge other plans for the remaining stages by the same rules as this plan."""
        return judged_together(self.question, self.forecast, plans) if self.question.is_joint else plans

    def choices(self) -> dict[str, Choice]:
        """Return the chosen shape of each stage that has several, with the shapes that it was chosen from."""
        made: dict[str, Choice] = {}
        for job in self.sketch.jobs:
            if not job.block.shapes:
                continue
            blocks = self.question.parts.blocks(job.block.stages)
            if len(blocks) == 1 and not any(map(self._is_moldable, job.block.stages)):
                continue
            waits_s = self.question.waits_s(blocks)
            salt = self.question.parts.depths[job.block.stages[0]]
            took_s = runs_s(blocks, salt)
            for index, name in enumerate(job.block.stages):
                if self._is_moldable(name):
                    weighed = starmap(partial(_weighed, index), zip(blocks, waits_s, took_s, strict=True))
                    made[name] = Choice(job.block.shapes[index], tuple(weighed))
        return made

    def _is_moldable(self, name: str) -> bool:
        return self.question.parts.workflow.stages[name].moldable is not None

    def frontier(self) -> list[Sketch]:
        """Return the best plans at many prices, sorted by core-hours."""
        together = _together(self.question, self.forecast)
        return [sketch for _, sketch in priced_frontier(self.question, self.prices_s, together)]


def _modes(site: Capabilities) -> frozenset[Keep]:
    """Return the ways in which a site can keep jobs back.

    If age accrues, a dependent job waits about as briefly as a job submitted early, and never idles. Growth gains
    nothing there either: the request for more cores would begin to queue only when it is eligible.
    """
    if DependencyType.AFTEROK not in site.dependency_types:
        return frozenset({Keep.NOTHING, Keep.AWAIT})
    return frozenset({Keep.NOTHING, Keep.DEPENDENCY}) if site.age_accrues else frozenset(Keep)


def _together(question: Question, forecast: Forecast) -> Callable[[Sequence[Sketch]], Sequence[Sketch]]:
    """Return the function that judges whole plans."""
    return partial(judged_together, question, forecast) if question.is_joint else list


def _best_together(question: Question, forecast: Forecast) -> Sketch:
    """Choose among the best plans, judged with their jobs together in the queue.

    Where each stage has one shape and age accrues, one job per stage is the plan unless another will almost surely end
    before it: a long job that misses its gap in the queue can lose many hours.
    """
    sketches = searched(question)
    if not isinstance(forecast, Joint) or not sketches[0].jobs or not question.is_joint:
        return sketches[0]
    different = {(sketch.shape, *(job.block.shapes for job in sketch.jobs)): sketch for sketch in reversed(sketches)}
    plans = [sketch for sketch in sketches if any(sketch is other for other in different.values())][:_JUDGED]
    if len(sketches[0].jobs) <= _FEW_STAGES:
        for shape in merged(sketches[0]):
            if any(may_stretch(question, block) for block in question.parts.blocks(shape[0][0])):
                plans.append(sketch_of(question, shape))
    if not question.is_wary_of_mergers:
        return min(judged_together(question, forecast, plans), key=question.cost_s)
    plans = [_a_job_a_stage(question, sketches[0]), *plans]
    if not can_judge(question, plans):
        return sketches[0]
    plain, *others = judged_together(question, forecast, plans)
    return _surely_best(question, plain, others)


def _surely_best(question: Question, plain: Sketch, others: Sequence[Sketch]) -> Sketch:
    """Return the plan with the least cost, or a given one if that costs no core-hours and does not surely end later.

    Core-hours are certain: small stages that share a whole node save them.
    """
    best = min(others, key=question.cost_s)
    if question.cost_s(best) >= question.cost_s(plain):
        return plain
    saves = best.core_hours < plain.core_hours * (1 - _SAVES)
    is_unsure = question.is_wary_of_mergers and plain.probability_after(best) < LIKELY
    return plain if is_unsure and not saves else best


def _a_job_a_stage(question: Question, sketch: Sketch) -> Sketch:
    """Return the plan of the same stages that has a job for each, with a dependency if the site has any."""
    workflow, stages = question.parts.workflow, {name for job in sketch.jobs for name in job.block.stages}
    held = {name for name in stages if not stages.isdisjoint(workflow.stages[name].after) or name in question.bounds_s}
    if Keep.DEPENDENCY not in question.modes:
        held.clear()
    shape = [((name,), Keep.DEPENDENCY if name in held else Keep.NOTHING) for name in workflow.order if name in stages]
    return sketch_of(question, shape)


def fair_price_s(makespan_s: float, hours: float) -> float:
    """Return the price, in seconds per core-hour, at which one percent of time is worth one percent of core-hours."""
    return makespan_s / hours if hours else 0.0


def look_ahead(view: RunView, forecast: Forecast, aim: Aim | None = None) -> Outlook:
    """Plan the rest of a run.

    Notes
    -----
    Some tens of milliseconds for a chain of 50 stages, mostly to predict the waits of possible jobs. If more than
    `WHOLE_STAGES` stages have no job yet, only the next `NEXT_STAGES` are planned, so that a plan takes no longer for
    10,000 stages than for 100.
    """
    aim = aim or Aim()
    whole_view, view = view, _part_of(view)
    waiting = sum(stage.phase is Phase.WAITING for stage in view.stages.values())
    left_out = sum(stage.phase is Phase.WAITING for stage in whole_view.stages.values()) - waiting
    if left_out:
        aim = _aim_of_part(aim, whole_view, view)
    site = view.capabilities

    table = Waits(view, forecast)
    left = [name for name in view.workflow.order if view.stages[name].phase is Phase.WAITING]
    is_moldable = aim.chooses_shapes and any(
        view.stages[name].stage.moldable is not None for name in view.workflow.order
    )
    whole, under_way, question = posed(view, table, left, grows=aim.grow, is_moldable=is_moldable)
    parts = question.parts
    if is_moldable:
        table.compare(parts.shaped())
    alone = [block for name in view.workflow.order if (block := whole.block((name,))) is not None]
    hours = sum(block.core_hours for block in alone)
    makespan_s = _per_stage_s(view, alone, table(alone))
    fair_s, worth, grid = fair_price_s(makespan_s, hours), _WORTH, _PRICES
    if is_moldable:  # the cost of the present shapes says little about the others
        fitting = _fitting_shapes(parts, left, table)
        typical_s = _per_stage_s(view, fitting, table(fitting)) if fitting else 0.0
        fair_s, worth = fair_price_s(typical_s, sum(block.core_hours for block in fitting)), WORTH_OF_SHAPES
        grid = _PRICES_OF_SHAPES
    price_s = worth * fair_s if aim.price_s is None else aim.price_s
    prices_s = tuple((fair_s * grid).tolist())
    if site.charges == "used":
        price_s = 0.0
    question = replace(question, price_s=price_s)
    sketch = _best_together(question, forecast)
    if aim.at_most is not None or aim.deadline_s is not None:
        plans = priced_frontier(question, prices_s, _together(question, forecast))
        left_hours = None if aim.at_most is None else aim.at_most * hours - _spent_core_hours(view, under_way)
        price_s, sketch = _chosen(plans, aim, view.now_s, left_hours)
        question = replace(question, price_s=price_s)
    elif aim.price_s is not None:  # a search keeps only some candidates: the frontier may have a better plan
        plans = priced_frontier(question, prices_s, _together(question, forecast))
        sketch = _surely_best(question, sketch, [plan for _, plan in plans])
    of = hours, makespan_s, forecast
    return Outlook(view.now_s, under_way, question, sketch, table.forecast, *of, waiting, left_out, prices_s)


def posed(
    view: RunView, table: Waits, left: Iterable[str], *, grows: bool = False, is_moldable: bool = False
) -> tuple[Parts, tuple[UnderWay, ...], Question]:
    """Return all stages as parts, the submitted jobs, and what a search for jobs of other stages has to know.

    `left`: the stages to plan.
    `grows`, `is_moldable`: whether jobs may grow, and whether shapes are to be chosen.
    Returns: the question with a price of 0.
    """
    site, modes, left = view.capabilities, _modes(view.capabilities), list(left)
    # jobs grow only where early cores may idle
    resizing = Resizing.at(view, table.more_s, may_rise=grows and Keep.AWAIT in modes)
    whole = Parts(
        _as_known(view) if is_moldable else view.workflow,
        cores_per_node=site.cores_per_node,
        resizing=resizing,
        site=site,
    )
    under_way = tuple(_under_way(view, whole, table))
    parts = Parts(
        _as_known(view),
        left,
        cores_per_node=site.cores_per_node,
        resizing=resizing,
        max_walltime_s=max_walltimes(site),
        forms={name: forms_of(view.stages[name].stage, site) for name in left} if is_moldable else None,
        site=site,
    )
    handover_s = _HANDOVER_S if resizing.rises else 0.0
    question = Question(
        parts, table, _bounds(view, under_way), 0.0, site.age_accrues, modes, handover_s, is_moldable, is_wary=True,
        jobs_of=table.jobs_of,
    )  # fmt: skip
    return whole, under_way, question


def _spent_core_hours(view: RunView, under_way: Iterable[UnderWay]) -> float:
    return view.spent_core_hours + sum(job.block.core_hours for job in under_way)


def _part_of(view: RunView) -> RunView:
    """Return the view with only the stages to plan: those with a job, and the next stages without a job."""
    names = list(view.left())
    waiting = [name for name in names if view.stages[name].phase is Phase.WAITING]
    if len(waiting) <= WHOLE_STAGES:
        return view
    ready = view.to_run_now()  # these must be submitted in any case
    under_way = {name for name in names if view.stages[name].phase in _UNDER_WAY}
    # as many as have jobs, if they are ready: few plans are needed for many, each of which looks at all jobs
    most = max(NEXT_STAGES, min(len(ready), len(under_way)))
    return only(view, under_way.union(list(dict.fromkeys([*ready, *waiting]))[:most]))


def only(view: RunView, chosen: set[str]) -> RunView:
    """Return the view of a workflow that has only some of the unsettled stages."""
    views = {name: _among(chosen, view.stages[name]) for name in view.left() if name in chosen}
    workflow = Workflow(view.workflow.name, (stage.stage for stage in views.values()))
    return replace(view, workflow=workflow, stages=views, turn=None, first=0)


def _among(chosen: set[str], stage: StageView) -> StageView:
    """Return the view of a stage that follows only some stages."""
    after = tuple(p for p in stage.stage.after if p in chosen)
    return stage if after == stage.stage.after else replace(stage, stage=stage.stage.following(after))


def _aim_of_part(aim: Aim, whole: RunView, part: RunView) -> Aim:
    """Return the aim for a part of a workflow, with its share of the budget, and of the time until the deadline."""
    per_node = whole.capabilities.cores_per_node
    left = [whole.stages[name].stage for name in whole.left()]
    run_s = sum(stage.expected_s for stage in left)
    at_most, deadline_s = aim.at_most, aim.deadline_s
    if at_most is not None:  # a part gets the budget less the expected core-hours of the other remaining stages
        hours = whole.workflow.stage_core_hours(per_node)
        rest = sum(core_hours(stage.cores_on(per_node), stage.expected_s) for stage in left)
        mine = part.workflow.stage_core_hours(per_node)
        at_most = (at_most * hours - at_most * max(rest - mine, 0.0)) / mine if mine else at_most
    if deadline_s is not None and run_s > 0:
        share = part.workflow.execution_s / run_s
        deadline_s = whole.now_s + (deadline_s - whole.now_s) * min(share, 1.0)
    return replace(aim, at_most=at_most, deadline_s=deadline_s)


def _chosen(
    plans: Sequence[tuple[float, Sketch]], aim: Aim, now_s: float, left_hours: float | None
) -> tuple[float, Sketch]:
    """Choose a plan within a budget or a deadline; plans are sorted from the fewest core-hours to the fastest."""
    if left_hours is not None:
        plans = [plan for plan in plans if plan[1].core_hours <= left_hours * (1 + 1e-9)] or plans[:1]
    if aim.deadline_s is not None:
        in_time = (plan for plan in plans if np.quantile(plan[1].end_s, _SURE) <= aim.deadline_s - now_s)
        return next(in_time, plans[-1])
    return plans[-1]


def _as_known(view: RunView) -> Workflow:
    """Return the workflow with changes made to its stages in the run, such as more walltime after a time-out."""
    stages = [view.stages[name].stage for name in view.workflow.stages]
    if all(stage is view.workflow.stages[stage.name] for stage in stages):
        return view.workflow
    return Workflow(view.workflow.name, stages)


def jobs_of(block: Block, first: Stage) -> int:
    """Count the jobs that run a block: several if its only stage has a bag for several jobs."""
    if len(block.stages) > 1 or first.jobs[1] == 1:
        return 1
    return (first.shaped(block.shapes[0]) if block.shapes else first).job_count


class Waits:
    """Samples of the waits of blocks, with one forecast for each kind of job."""

    def __init__(self, view: RunView, forecast: Forecast) -> None:
        self._view, self.of = view, forecast
        self._is_fine = len(view.workflow.stages) <= _FEW_STAGES
        self._known: dict[tuple[int, float, str], Samples] = {}
        self.examples: list[tuple[Block, float]] = []  # a block of each kind that was asked for, with its expected wait
        self._compared: list[WaitForecast] = []  # forecasts of jobs in several shapes, then their samples
        self._sampled: Samples = np.empty((0, SAMPLES))
        self._columns: dict[_Likeness, int] = {}  # index in both, by kind

    def __call__(self, blocks: Sequence[Block]) -> Samples:
        """Return samples of the wait of each block's job, comparable with each other."""
        if any(self.jobs_of(block) > 1 for block in blocks):
            return np.stack([self._of_bag(block) if self.jobs_of(block) > 1 else self([block])[0] for block in blocks])
        if not any(block.shapes for block in blocks):
            return self._all_s(blocks)
        if self._view.stages[blocks[0].stages[0]].stage.local:
            return np.zeros((len(blocks), SAMPLES))
        return self._alike(blocks[0].stages[:1], list(map(_likeness, blocks)))

    def jobs_of(self, block: Block) -> int:
        """Count the jobs that run a block."""
        return jobs_of(block, self._view.stages[block.stages[0]].stage)

    def _of_bag(self, block: Block) -> Samples:
        """Return samples of the common wait of the jobs of a bag, which compete with each other."""
        counts = counts_of(self.jobs_of(block))
        _, like, partition = _likeness(block)
        partition = partition or self._view.stages[block.stages[0]].stage.partition
        part = -(-block.cores // counts[-1])
        waits_s = self._alike(block.stages, [(part * count, like, partition) for count in counts])
        return np.sort(shared_wait_s(counts, waits_s, block.run_s))

    def compare(self, blocks: Iterable[Block]) -> None:
        """Forecast the waits of all these blocks at once, which is faster and makes them comparable."""
        waiting = [b for b in blocks if self.jobs_of(b) == 1 and not self._view.stages[b.stages[0]].stage.local]
        if waiting:
            self._compare(waiting[0].stages[:1], list(map(_likeness, waiting)))

    def _alike(self, stages: tuple[str, ...], keys: Sequence[_Likeness]) -> Samples:
        self._compare(stages, keys)
        sampled: Samples = self._sampled[[self._columns[key] for key in keys]]
        return sampled

    def _compare(self, stages: tuple[str, ...], keys: Iterable[_Likeness]) -> None:
        """Forecast the waits of jobs in several shapes at once, so that they are comparable."""
        asked = [key for key in dict.fromkeys(keys) if key not in self._columns]
        if not asked:
            return
        requests = [JobRequest(cores, _ALIKE_SHAPES**like, partition) for cores, like, partition in asked]
        if isinstance(self.of, Comparing):
            found = self.of.predict_each(stages, requests)
        else:
            now_s = self._view.now_s
            found = [predicted(self.of, stages, now_s, request.cores, request.walltime_s) for request in requests]
        for key, forecast in zip(asked, found, strict=True):
            self._columns[key] = len(self._compared)
            self._compared.append(forecast)
        self._sampled = np.concatenate([self._sampled, *(samples(forecast)[None] for forecast in found)])

    def more_s(self, stage: str, cores: int, walltime_s: float) -> Samples:
        """Return samples of the wait for additional cores of a stage."""
        key = self._kind(stage, cores, walltime_s)
        if key not in self._known:
            self._known[key] = samples(self._sized((stage,), cores, walltime_s))
        return self._known[key] * self._longer(stage, walltime_s)

    def forecast(self, block: Block) -> WaitForecast:
        """Predict the wait of a block's job."""
        if block.shapes:
            cores, like, partition = _likeness(block)
            key = -(-cores // self.jobs_of(block)), like, partition  # the request of one job
            self._compare(block.stages[:1], [key])
            return self._compared[self._columns[key]]
        if block.elasticity.widths:
            return self._sized(block.stages, block.cores, block.walltime_s)
        return self.of.predict(block.stages, self._view.now_s)

    def _all_s(self, blocks: Sequence[Block]) -> Samples:
        firsts = [block.stages[0] for block in blocks]
        waits_s: Samples = np.stack([self._usual_s(*of) for of in zip(firsts, blocks, strict=True)])
        waits_s *= [[self._longer(first, block.walltime_s)] for first, block in zip(firsts, blocks, strict=True)]
        return waits_s

    def _usual_s(self, first: str, block: Block) -> Samples:
        """Return samples of the wait of jobs with about the same walltime."""
        key = self._kind(first, block.cores, block.walltime_s)
        if key not in self._known:
            self._known[key] = samples(self.forecast(block))
            self.examples.append((block, float(self._known[key].mean())))
        return self._known[key]

    def _kind(self, first: str, cores: int, walltime_s: float) -> tuple[int, float, str]:
        like = walltime_s if self._is_fine else round(math.log(walltime_s, _ALIKE))
        return cores, like, self._view.workflow.stages[first].partition

    def _longer(self, first: str, walltime_s: float) -> float:
        """Return how many times the usual wait a job waits whose walltime is another than its first stage's."""
        return float((walltime_s / self._view.stages[first].stage.walltime_s) ** _HOLES)

    def _sized(self, stages: tuple[str, ...], cores: int, walltime_s: float) -> WaitForecast:
        return predicted(self.of, stages, self._view.now_s, cores, walltime_s)


def _weighed(index: int, block: Block, waits_s: Samples, took_s: Samples) -> Weighed:
    return Weighed(
        block.shapes[index],
        block.cores,
        block.run_s,
        block.core_hours,
        _spread(waits_s),
        _spread(waits_s + took_s),
    )


def _spread(times_s: Samples) -> tuple[float, float, float]:
    low, half, high = np.quantile(times_s, [0.1, 0.5, 0.9]).tolist()
    return low, half, high


_Likeness = tuple[int, int, str]


def _likeness(block: Block) -> _Likeness:
    """Return the key of jobs whose waits count as equal when shapes are compared."""
    partition = block.shapes[0].partition if block.shapes else ""
    return block.cores, round(2.0 * math.log2(block.walltime_s)), partition


def _placed(levels: Samples) -> tuple[int, NDArray[np.intp], NDArray[np.intp], Samples]:
    """Return the number of levels up to p10 and, for each level, its neighbouring quantiles and where it lies."""
    after = np.clip(_LEVELS.searchsorted(levels, "right"), 1, len(LEVELS) - 1)
    share = (levels - _LEVELS[after - 1]) / (_LEVELS[after] - _LEVELS[after - 1])
    return int(levels.searchsorted(_LEVELS[0], "right")), after - 1, after, share


_GRID = _placed(_MIDDLES)


def samples(forecast: WaitForecast, since_s: float = 0.0) -> Samples:
    """Return equally likely values of a wait, sorted; of the remaining wait, if it has lasted `since_s` already.

    The tail of a forecast often has no mean, while real waits have one. So a value beyond p90 is limited to p90 times
    sqrt(0.1 / (1 - p)), where p is the value's probability.
    """
    if since_s <= 0:
        levels, (low, below, after, share) = _MIDDLES, _GRID
    else:
        known = forecast.probability_within(since_s)
        levels = known + (1.0 - known) * _MIDDLES
        low, below, after, share = _placed(levels)
    ends = np.array(forecast.quantiles_s)
    waits = ends[below]
    waits += share * (ends[after] - waits)
    waits[:low] = ends[0] * levels[:low] / LEVELS[0]
    for index in range(int(levels.searchsorted(LEVELS[-1])), SAMPLES):
        level = float(levels[index])
        rare = forecast.quantiles_s[-1] * math.sqrt((1.0 - LEVELS[-1]) / (1.0 - level))
        waits[index] = min(forecast.at(level), rare)
    return np.maximum(waits - since_s, 0.0)


def _under_way(view: RunView, parts: Parts, waits: Waits) -> Iterator[UnderWay]:
    """Yield the submitted jobs, with when they are expected to begin and to end."""
    found: dict[str, UnderWay] = {}
    done: set[str] = set()
    jobs: dict[str | None, tuple[str, ...]] = {}
    for name in view.workflow.order:
        if view.stages[name].phase in _UNDER_WAY:
            job_id = view.stages[name].job_id
            jobs[job_id] = (*jobs.get(job_id, ()), name)
    ends_s = looked_after(view, waits.of).ends_s
    for name in view.workflow.order:
        first = view.stages[name]
        if first.phase not in _UNDER_WAY or name in done:
            continue
        together = jobs[first.job_id]
        done.update(together)
        block = (parts.risen(together) if first.cores else None) or parts.block(together)
        assert block is not None, "one job has them"
        before = {p for n in together for p in view.stages[n].stage.after} - set(together)
        ready = _latest([np.zeros(SAMPLES), *(found[p].end_s for p in before if p in found)])
        start = _start(view, first, block, waits, ready=ready, depth=parts.depths[name])
        [run] = runs_s([block], len(found))
        end = np.maximum(start + run, 0.0)
        if first.cores and first.phase is Phase.RUNNING:  # for a growing job, its progress and its requests are known
            end = np.full(SAMPLES, max(ends_s[together[-1]] - view.now_s, 0.0))
        job = UnderWay(block, first.phase, ready, start, end)
        found |= dict.fromkeys(together, job)
        yield job


def _start(view: RunView, first: StageView, block: Block, waits: Waits, *, ready: Samples, depth: int) -> Samples:
    """Return samples of when a job's payload begins, in seconds from now."""
    if first.phase is Phase.RUNNING:
        since_s = view.now_s if first.started_s is None else first.started_s
        return np.full(SAMPLES, since_s - view.now_s)
    if first.phase is Phase.ALLOCATED:
        return ready
    waited_s = max(view.now_s - (view.now_s if first.submit_s is None else first.submit_s), 0.0)
    usual = waits.forecast(block)
    if first.keep is Keep.DEPENDENCY and not view.is_ready(first.stage.name):
        if not view.capabilities.age_accrues:
            return ready + samples(usual)
        return aged(ready, samples(usual), samples(usual, waited_s), depth)
    if first.keep is Keep.DEPENDENCY and not view.capabilities.age_accrues:
        waited_s = 0.0  # its queueing began at an unknown time, when its predecessors ended
    return np.maximum(ready, samples(usual, waited_s))


def _bounds(view: RunView, under_way: Iterable[UnderWay]) -> dict[str, Samples]:
    ends = {name: job.end_s for job in under_way for name in job.block.stages}
    return {
        name: _latest([ends[before] for before in stage.stage.after if before in ends])
        for name, stage in view.stages.items()
        if stage.phase is Phase.WAITING and any(before in ends for before in stage.stage.after)
    }


def _latest(times: Sequence[Samples]) -> Samples:
    latest: Samples = np.maximum.reduce(list(times))
    return latest


def _fitting_shapes(parts: Parts, names: Iterable[str], waits: Waits) -> list[Block]:
    """Choose the shape of each stage by itself, by the product of its time and a power of its core-hours."""
    fitting = []
    for name in names:
        if blocks := parts.blocks((name,)):
            ends_s = typical(waits(blocks) + np.array([[block.run_s] for block in blocks]))
            hours = np.array([max(block.core_hours, _NO_HOURS) for block in blocks])
            fitting.append(blocks[int(np.argmin(np.log(ends_s) + WORTH_OF_SHAPES * np.log(hours)))])
    return fitting


def _per_stage_s(view: RunView, alone: Sequence[Block], waits: Samples) -> float:
    """Return the expected makespan with one job per stage: the length of the slowest path through the graph."""
    ends: dict[str, float] = {}
    for block, wait_s in zip(alone, waits.mean(axis=1).tolist(), strict=True):
        [name] = block.stages
        before = [ends[p] for p in view.workflow.stages[name].after if p in ends]
        ends[name] = max(before, default=0.0) + wait_s + block.run_s
    return max(ends.values())
