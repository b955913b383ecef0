"""The search for the plan with the least cost, by dynamic programming over series and parallel pieces.

Uncertain values are samples, arrays of equally likely values: the time at which the stages so far have ended, and each
wait. Jobs at the same depth of parallel branches wait in the queue at the same time, so their waits are correlated;
waits of consecutive jobs are independent. How the jobs of a plan compete with each other in the queue is judged only
for the best few plans (`together`). A plan's cost is its expected makespan plus the price times its expected
core-hours.

The plan of a series is built from its beginning: for each position the few best ways to reach it are kept, and extended
by every job that may begin there. Parallel branches are planned one by one and joined: the last end counts.

If later jobs do not queue before their predecessors have ended, their cost depends only on that end, and the search is
exact. Else its quality depends on how many ways are kept; tests compare it with all plans of small workflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from asa.core.late import dataclass
from asa.errors import InputError
from asa.strategies.base import Keep
from asa.waits import aged_share

from .parts import Block, Parts, Series

SAMPLES = 48
"""Number of equally likely samples of an uncertain value."""

_KEPT = 6

# quantile of the waits that serializing stages saves at least; chosen on three logs (CTC, HPC2N, KTH)
_SHORT_WAIT = 0.1
_SHORT_S = 10.0  # ends that are closer than this count as equal
_OF_RUNS = 1 << 20  # seed offset, far from those of waits
_OF_LATENESS = 1 << 21
_OF_AGE = 1 << 22
_SHARES = np.array([aged_share((i + 0.5) / SAMPLES) for i in range(SAMPLES)])
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / SAMPLES) for i in range(SAMPLES)])

Samples = NDArray[np.float64]


def mode_of(keep: Keep) -> str:
    """Name a way to keep a job back, for people; a job that nothing keeps back is submitted when it is `ready`."""
    return "ready" if keep is Keep.NOTHING else keep.value


@dataclass(frozen=True, slots=True)
class Question:
    """The input of the search: what to plan, with which waits and price."""

    parts: Parts
    waits_s: Callable[[Sequence[Block]], Samples]  # returns sorted samples of the wait of a block's job
    # by stage: samples of when its submitted predecessors will have ended, in seconds from now
    bounds_s: Mapping[str, Samples]
    price_s: float  # seconds that a core-hour is worth
    age_accrues: bool  # whether a job gains priority while a dependency keeps it back
    modes: frozenset[Keep] = frozenset(Keep)  # allowed ways to keep a job back
    # lower bound of the time between the end of a job and the start of the next, without its wait
    handover_s: float = 0.0
    # whether the geometric mean of the makespan counts: when shapes are compared, the arithmetic mean depends on the
    # tails of the forecasts, which are least known
    typically: bool = False
    # whether parallel stages are serialized only where that surely pays
    is_wary: bool = False
    jobs_of: Callable[[Block], int] = lambda _block: 1  # returns how many jobs run a block

    @property
    def is_joint(self) -> bool:
        """Whether whole plans are judged with their jobs together in the queue.

        That gains nothing where a job has no priority while a dependency keeps it back and each stage has one shape.
        """
        return self.typically or self.age_accrues

    @property
    def is_wary_of_mergers(self) -> bool:
        """Whether stages share a job only if that will almost surely end before a job per stage.

        Where age accrues, a job per stage mostly starts as soon as it is due, and a long job that misses its gap in the
        queue can lose many hours.
        """
        return self.age_accrues and not self.typically

    def span_s(self, sketch: Sketch) -> float:
        """Return the makespan by which plans are compared: the geometric mean of the samples, or their mean."""
        return float(typical(sketch.end_s)) if self.typically else sketch.makespan_s

    def cost_s(self, sketch: Sketch) -> float:
        """Return the cost of a plan in seconds."""
        return self.span_s(sketch) + self.price_s * sketch.core_hours

    def bound_s(self, stages: Iterable[str]) -> Samples | None:
        """Return samples of when all submitted predecessors of the given stages have ended; None if there are none."""
        if not self.bounds_s:
            return None
        bounds = [self.bounds_s[name] for name in stages if name in self.bounds_s]
        return np.maximum.reduce(bounds) if bounds else None


@dataclass(frozen=True, slots=True)
class SearchedJob:
    """A job of a plan; times in seconds from now."""

    block: Block
    keep: Keep
    submit_s: float  # planned, or for `Keep.NOTHING` expected
    ready_s: Samples  # samples of when its stages may begin, of when they begin, and of how long they run
    start_s: Samples
    run_s: Samples
    idle_s: float = 0.0  # expected time for which its cores idle

    @property
    def end_s(self) -> Samples:
        """Samples of its end."""
        return self.start_s + self.run_s


@dataclass(frozen=True, slots=True)
class Sketch:
    """A whole plan: its jobs, its end and its core-hours."""

    jobs: tuple[SearchedJob, ...]
    end_s: Samples  # samples of when all jobs have ended, in seconds from now
    core_hours: float

    @property
    def makespan_s(self) -> float:
        """Expected seconds from now to the end."""
        return float(self.end_s.mean())

    def cost_s(self, price_s: float) -> float:
        """Return its cost in seconds."""
        return self.makespan_s + price_s * self.core_hours

    def probability_after(self, other: Sketch) -> float:
        """Return the probability that this plan ends after another, sample by sample; equal ends count as half."""
        later = self.end_s - other.end_s
        return float((later > _SHORT_S).mean() + (np.abs(later) <= _SHORT_S).mean() / 2)

    @property
    def shape(self) -> tuple[tuple[tuple[str, ...], Keep], ...]:
        """The stages of each job, and what keeps the job back."""
        return tuple((job.block.stages, job.keep) for job in self.jobs)


def search(question: Question) -> Sketch:
    """Find the plan with the least cost; see `searched`."""
    return searched(question)[0]


def searched(question: Question) -> list[Sketch]:
    """Find the few plans with the least cost, with each job's wait judged separately; the best first.

    Notes
    -----
    O(n^2) blocks for n pieces in a row, each tried after a handful of ways to reach it; 50 stages take some tens of
    milliseconds.
    """
    ways = _series(question, question.parts.series, [Sketch((), np.zeros(SAMPLES), 0.0)], first=True)
    return sorted(ways, key=question.cost_s)


def priced_frontier(
    question: Question,
    prices_s: Sequence[float],
    together: Callable[[Sequence[Sketch]], Sequence[Sketch]] = list,
) -> list[tuple[float, Sketch]]:
    """Find the best plans at several prices, each with a price at which it is the best; fewest core-hours first.

    No plan is worse than another in both time and core-hours. `together`: judges whole plans.
    """
    each = [search(replace(question, price_s=price_s)) for price_s in prices_s]
    found = list(zip(prices_s, together(each), strict=True))
    different = {
        (sketch.shape, *((job.block.elasticity.widths, job.block.shapes) for job in sketch.jobs)): (price_s, sketch)
        for price_s, sketch in found
    }.values()
    kept: list[tuple[float, Sketch]] = []
    for price_s, sketch in sorted(different, key=lambda pair: (pair[1].core_hours, question.span_s(pair[1]))):
        if not kept or question.span_s(sketch) < question.span_s(kept[-1][1]) - 0.5:
            kept.append((price_s, sketch))
    return kept


def sketch_of(question: Question, shape: Sequence[tuple[tuple[str, ...], Keep | None]]) -> Sketch:
    """Evaluate a given plan: the stages of each job, in order, and what keeps the job back.

    Each job gets the shapes and widths with the least expected cost; and, where None is given, what keeps it back.
    """
    ends: dict[str, Samples] = {}
    jobs: list[SearchedJob] = []
    hours = 0.0
    for stages, keep in shape:
        if not (forms := question.parts.blocks(stages)):
            raise InputError(
                "cannot share a job", where=f"stages {', '.join(stages)}", hint="Give each a job of its own."
            )
        after = {p for name in stages for p in question.parts.workflow.stages[name].after} & ends.keys()
        ready = np.maximum.reduce([np.zeros(SAMPLES), *(ends[name] for name in after)])
        only = question if keep is None else replace(question, modes=frozenset({keep}))
        if keep is not Keep.AWAIT and (risen := question.parts.risen(stages)) is not None:
            forms = [*forms, risen]
        extension = _Extension(only, [Sketch((), ready, 0.0)], forms, first=not after)
        made = min((extension.make(at, 0) for at in range(len(forms))), key=question.cost_s)
        jobs += made.jobs
        hours += made.core_hours
        ends |= dict.fromkeys(stages, made.end_s)
    return Sketch(tuple(jobs), np.maximum.reduce([np.zeros(SAMPLES), *ends.values()]), hours)


def _series(question: Question, series: Series, begin: list[Sketch], *, first: bool) -> list[Sketch]:
    """Extend ways by a series; `first`: no job of the workflow comes before."""
    pieces = series.pieces
    found: list[list[_Ways]] = [[] for _ in range(len(pieces) + 1)]  # ways to each position
    ways = begin
    for here, piece in enumerate(pieces):
        ways = _best(question, ways) if here == 0 else _made(found[here])
        if leading := [
            counted for counted in question.parts.leading(pieces[here:]) if may_stretch(question, counted[1])
        ]:
            extension = _Extension(question, ways, [block for _, block in leading], first=first and here == 0)
            for count, indices in groupby(range(len(leading)), key=lambda index: leading[index][0]):
                found[here + count].append(extension.best(list(indices)))
        if risen := question.parts.rising(pieces[here:]):
            # a job that idled at its beginning would lack that time when it grows
            limited = replace(question, modes=question.modes - {Keep.AWAIT})
            extension = _Extension(limited, ways, [block for _, block in risen], first=first and here == 0)
            for index, (count, _) in enumerate(risen):
                found[here + count].append(extension.best([index]))
        if not isinstance(piece, str):
            parallel = _side_by_side(question, piece, ways, first=first and here == 0)
            found[here + 1] += [(np.array([[question.cost_s(way)]]), way, [0]) for way in parallel]
    return _made(found[-1]) if pieces else ways


def may_stretch(question: Question, block: Block) -> bool:
    """Whether a block may serialize stages that could run at the same time.

    Serializing saves a wait for each further level that the block covers, but these waits may turn out short, whatever
    is expected now: a long queue has often shrunk when the next level comes. The longer run time is certain, and so is
    the longer walltime, with which the job misses gaps that each stage alone would fit into.

    Where jobs gain priority while dependencies keep them back, the next level has done so since the beginning, and is
    at the head of the queue when its turn comes. On recorded logs, most of these jobs then start at once, however long
    the queue is: there is no wait to save.
    """
    if not question.is_wary or len(block.stages) == 1 or block.shapes:
        return True
    stretch_s, levels = question.parts.stretch(block)
    if stretch_s <= 0 or (alone := question.parts.block(block.stages[:1])) is None:
        return True
    if question.age_accrues and Keep.DEPENDENCY in question.modes:
        return stretch_s <= _SHORT_S * (levels - 1)
    short_s = float(question.waits_s([alone])[0, int(_SHORT_WAIT * SAMPLES)])
    return stretch_s <= short_s * (levels - 1)


def _side_by_side(question: Question, branches: tuple[Series, ...], ways: list[Sketch], *, first: bool) -> list[Sketch]:
    """Extend ways by parallel branches, each planned separately from the same beginning."""
    joined = []
    for way in ways:
        base = Sketch((), way.end_s, 0.0)
        together = [way]
        for branch in branches:
            options = _best(question, _series(question, branch, [base], first=first))
            together = _best(
                question,
                [
                    Sketch(
                        joined.jobs + option.jobs,
                        np.maximum(joined.end_s, option.end_s),
                        joined.core_hours + option.core_hours,
                    )
                    for joined in together
                    for option in options
                ],
            )
        joined += together
    return joined


def _best(question: Question, ways: list[Sketch]) -> list[Sketch]:
    """Keep the few ways with the least cost."""
    return sorted(ways, key=question.cost_s)[:_KEPT]


def _made(ways: list[_Ways]) -> list[Sketch]:
    """Build the few cheapest ways; of equally cheap ways, the first."""
    costs = [costs_s.ravel() for costs_s, _, _ in ways]
    begins = np.cumsum([0, *map(len, costs)])
    best = []
    for which in np.argsort(np.concatenate(costs), kind="stable")[:_KEPT].tolist() if costs else ():
        number = int(begins.searchsorted(which, "right")) - 1
        costs_s, of, indices = ways[number]
        index, rank = divmod(which - int(begins[number]), costs_s.shape[1])
        best.append(of.make(indices[index], rank) if isinstance(of, _Extension) else of)
    return best


class _Extension:
    """All ways extended by each of the given blocks, in all allowed ways of keeping the job back; computed at once.

    Arrays have an axis for ways, one for blocks and, for uncertain values, one for samples.
    """

    def __init__(self, question: Question, ways: list[Sketch], blocks: Sequence[Block], *, first: bool) -> None:
        self.ways, self.blocks = ways, blocks
        price, parts = question.price_s, question.parts
        hours = np.array([block.core_hours for block in blocks])
        cores = np.array([block.cores for block in blocks]) / 3600  # core-hours per second
        bounds = [question.bound_s(block.stages) for block in blocks]
        first = first and bounds[0] is None
        salt = parts.depths[blocks[0].stages[0]]
        waits = question.waits_s(blocks)[:, _shuffle(salt, SAMPLES)]
        self._run_s = runs_s(blocks, salt)
        self._salt = salt
        ends = np.stack([way.end_s for way in ways])[:, None, :]
        least = np.stack([np.zeros(SAMPLES) if bound is None else bound for bound in bounds])
        ready = np.maximum(ends, least)
        if question.handover_s and not first:
            ready += question.handover_s
        self._ready = ready
        none = np.zeros((len(ways), len(blocks)))
        self.options: list[tuple[Keep, Samples, Samples, Samples]] = []  # keep, submission, start, idle time
        if first:
            self.options.append((Keep.NOTHING, none, ready + waits, none))
        else:
            self._ask(question, ready, waits, cores)
        lasts = self._run_s.mean(axis=1)
        if question.typically:
            over = np.stack([typical(start + self._run_s) for _, _, start, _ in self.options])
        else:
            over = np.stack([start.mean(axis=2) + lasts for _, _, start, _ in self.options])
        spent = np.array([way.core_hours for way in ways])[:, None] + hours
        core_hours = np.stack([spent + idle * cores for *_, idle in self.options])
        total = (over + price * core_hours).reshape(-1, len(blocks))
        order = np.argsort(total, axis=0, kind="stable")[:_KEPT]
        self._order = order.T  # for each block: the best combinations of way and `keep`
        self._costs = np.take_along_axis(total, order, 0).T

    def _ask(self, question: Question, ready: Samples, waits: Samples, cores: Samples) -> None:
        """Add each allowed way of keeping the job back."""
        none = np.zeros((len(self.ways), len(self.blocks)))
        if Keep.DEPENDENCY in question.modes:
            start = ready + waits
            if question.age_accrues:
                start = aged(ready, waits, waits, self._salt)
            self.options.append((Keep.DEPENDENCY, none, start, none))
        if Keep.NOTHING in question.modes:
            self.options.append((Keep.NOTHING, ready.mean(axis=2), ready + waits, none))
        if Keep.AWAIT in question.modes:
            # a second later costs P(late), a second earlier costs idle cores at P(early): the best time balances both
            slack = np.sort(ready - waits, axis=2)
            level = np.broadcast_to(question.price_s * cores / (1.0 + question.price_s * cores), none.shape)
            at = np.minimum((level * slack.shape[2]).astype(np.intp), slack.shape[2] - 1)
            submit = np.maximum(np.take_along_axis(slack, at[:, :, None], 2)[:, :, 0], 0.0)
            arrive = submit[:, :, None] + waits
            idle = np.maximum(ready - arrive, 0.0).mean(axis=2)
            self.options.append((Keep.AWAIT, submit, np.maximum(ready, arrive), idle))

    def best(self, indices: list[int]) -> _Ways:
        """Return the best ways that end with each of the given blocks."""
        return self._costs[indices], self, indices

    def make(self, index: int, rank: int) -> Sketch:
        """Make one of these ways, the best at rank 0."""
        option, way = divmod(int(self._order[index, rank]), len(self.ways))
        keep, submit, start, idle = self.options[option]
        before, block = self.ways[way], self.blocks[index]
        times = self._ready[way, index], start[way, index], self._run_s[index]
        job = SearchedJob(block, keep, float(submit[way, index]), *times, float(idle[way, index]))
        hours = before.core_hours + block.core_hours + job.idle_s * block.cores / 3600
        return Sketch((*before.jobs, job), job.end_s, hours)


def aged(ready_s: Samples, usual_s: Samples, left_s: Samples, salt: int) -> Samples:
    """Return samples of the start of a job that gained priority while it was kept back.

    `left_s`: the rest of its wait if it had not been kept back.
    `salt`: its depth: jobs at the same depth wait in the same samples.
    """
    return np.maximum(ready_s + _SHARES[_shuffle(salt + _OF_AGE, SAMPLES)] * usual_s, left_s)


_Ways = tuple[Samples, Sketch | _Extension, list[int]]
"""Ways to a position: their costs, ascending, with a row for each block; the ways themselves; and the blocks.

An extended way is computed only if it is kept.
"""


def runs_s(blocks: Sequence[Block], salt: int) -> Samples:
    """Return samples of blocks' run times with their idle times; run times are log-normal around the expected ones."""
    usual = np.array([block.run_s for block in blocks])[:, None]
    spreads = np.array([block.spread for block in blocks])[:, None]
    made: Samples = np.broadcast_to(usual, (len(blocks), SAMPLES))
    if spreads.any():
        made = usual * np.exp(spreads * _NORMAL[_shuffle(salt + _OF_RUNS, SAMPLES)])
    late_s = [block.elasticity.late_s for block in blocks]
    if any(lateness_s is not None for lateness_s in late_s):
        late = np.stack([np.zeros(SAMPLES) if lateness_s is None else lateness_s for lateness_s in late_s])
        return made + late[:, _shuffle(salt + _OF_LATENESS, SAMPLES)]
    return made


def typical(ends_s: Samples) -> Samples:
    """Return the geometric mean over samples."""
    typical: Samples = np.exp(np.log(np.maximum(ends_s, _SHORT_S)).mean(axis=-1))
    return typical


@cache
def _shuffle(salt: int, count: int) -> NDArray[np.intp]:
    """Return a fixed permutation of samples, so that a wait is independent of earlier ones."""
    return np.random.Generator(np.random.PCG64(salt)).permutation(count)
