"""Runs every strategy under every scheduler: its time, its cost, and its effect on other users.

Under one scheduler, all strategies meet the same worlds, one for each seed. Over the seeds a strategy keeps one
estimator. The other users' jobs are those that were pending when the client came, or came in a window after it. They
are followed for twice the window, in the world with the client and in the same world without it. Since all else is
equal, the client alone causes the difference. Part of it is chance: a disturbed queue develops differently, for better
or worse, and only the mean over seeds shows which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, Unpack, cast

import numpy as np

from asa.backend import Backend, Site
from asa.core import plugins
from asa.core.intervals import Interval, as_ratio, beyond_chance, mean_interval
from asa.errors import InputError
from asa.estimators import WaitBank
from asa.runner import Run, run_all
from asa.strategies import lacking, load_strategy
from asa.studies.compare.study import workflow_maker
from asa.studies.harness import How, Kind, code_digest, digest, fill
from asa.studies.logs.study import peak_sizes
from asa.studies.others import Lot, effect_on_others, lot_of
from asa.studies.plain import as_plain
from asa.studies.runs import figures, measured, one_by_one, put_together, refuse_wider, typical
from asa.studies.schedulers.graph import graph
from asa.studies.standings import QUICK_BASE, THRIFTY_BASE, Standing, by_world, in_all, paired, standings
from asa.timeline import Timeline
from asa.workflow import Workflow

SCHEDULERS = (
    "easy",
    "conservative",
    "multifactor:fair_share=0",
    "multifactor:fair_share=0:age_accrues=no",
    "wfp",
    "bbsched",
    "openccs",
    "dras",
    "dmr",
)
"""The compared schedulers. None has fair share: a newcomer would come first, and a rule for age would not matter."""

STRATEGIES = ("big-job", "per-stage", "chained", "asa", "asa-naive", "asa-plan", "elastic")
_GRAPH = "graph"
WORKFLOWS = ("montage", "blast", "statistics", _GRAPH)

_AGE = "age_accrues"
_FIGURES = ("makespan_s", "core_hours", "perceived_wait_s", "total_wait_s", "longer_wait_s", "more_slowdown")


@dataclass(frozen=True, slots=True)
class SchedulerCampaign:
    """The parameters of a campaign."""

    systems: tuple[str, ...] = ("uppmax",)  # centres with a workload model
    traces: tuple[Path, ...] = ()
    # names, each with its settings after a colon; `age_accrues` is a rule of the site
    schedulers: tuple[str, ...] = SCHEDULERS
    # names; Big Job and Per-Stage always run, as they are the references
    strategies: tuple[str, ...] = STRATEGIES
    workflows: tuple[str, ...] = WORKFLOWS  # names; `graph` is defined for this campaign
    cores: tuple[int, ...] = ()  # peak sizes; by default the largest of the paper's that fits twice into each machine
    seeds: int = 5  # number of replications, and the first seed
    seed: int = 0
    estimator: str = "asa"  # its name, and the number of past jobs of all users that it learns before each run
    history: int = 2000
    window_s: float = 43200.0  # other jobs submitted up to this time later are followed

    def plan(self) -> tuple[list[SchedulerCell], list[LeftOut]]:
        """Return all units of work, and the strategies left out because a site cannot run them."""
        worlds = (*self.systems, *map(str, self.traces))
        if self.seeds < 1 or not worlds or not self.workflows or not self.schedulers:
            hint = "Give a centre or a log, a workflow, a scheduler, and at least one seed."
            raise InputError("there is nothing to run", hint=hint)
        if self.window_s < 0 or self.history < 0:
            raise InputError("neither a window nor a history is negative", hint="Give 0 or more.")
        plugins.load("asa.estimators", self.estimator)
        for name in self.workflows:
            _make(name)
        strategies = {name: load_strategy(name) for name in dict.fromkeys((QUICK_BASE, THRIFTY_BASE, *self.strategies))}
        cells: list[SchedulerCell] = []
        left_out: list[LeftOut] = []
        logs = {str(trace): digest([trace]) for trace in self.traces}
        for world, scheduler in product(worlds, self.schedulers):
            capabilities = _site(world, scheduler).capabilities
            sizes = self.cores or peak_sizes(capabilities.max_cores)[-1:]
            refuse_wider(sizes, capabilities.max_cores, world)
            lacks = {name: lack for name, made in strategies.items() if (lack := lacking(made, capabilities))}
            left_out += [LeftOut(capabilities.system, scheduler, name, lack) for name, lack in lacks.items()]
            settings = (self.seed, self.seeds, self.estimator, self.history, self.window_s, logs.get(world, ""))
            cells += [
                SchedulerCell(
                    world, scheduler, workflow, cores, name, *settings, _code(scheduler, workflow, name, self.estimator)
                )
                for workflow, cores, name in product(self.workflows, sizes, strategies)
                if name not in lacks
            ]
        return cells, left_out


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A strategy that was not run under a scheduler, with the reason."""

    world: str  # where it was not run
    scheduler: str
    strategy: str
    reason: str  # a clause that continues "it"


@dataclass(frozen=True, slots=True)
class SchedulerCell:
    """A unit of work: one strategy under one scheduler, with one estimator that learns from run to run."""

    world: str  # name of a centre, or file of a log
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    seeds: int
    estimator: str
    history: int
    window_s: float
    log: str  # digest of the log; `code`: of all code. Another digest makes another cell
    code: str


@dataclass(frozen=True, slots=True)
class SchedulerRun:
    """A run, and its effect on other users' jobs."""

    world: str
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    makespan_s: float
    core_hours: float
    overhead_core_hours: float
    # sum of the waits of stages after their predecessors had ended, without and with the wait of the first stage
    perceived_wait_s: float
    total_wait_s: float
    others: int  # number of other users' jobs that were followed
    others_wait_s: float  # mean wait and bounded slowdown of these in the same world without the client
    others_slowdown: float
    longer_wait_s: float  # increase of these means by the client
    more_slowdown: float
    waited_more_h: float  # sum over these jobs, in hours
    timeline: Timeline


def run_campaign(
    campaign: SchedulerCampaign, kept: Path | None = None, **how: Unpack[How]
) -> tuple[list[SchedulerRun], list[LeftOut]]:
    """Run every cell whose outcome is not kept already; see `asa.studies.harness.fill`. Return what was left out, too.

    Returns: an outcome for each cell and seed, in the order of the plan.
    """
    cells, left_out = campaign.plan()
    outcomes = fill(cells, Kind(run_cell, SchedulerCell, _run_of), kept, **how)
    return [trial for trials in outcomes.values() for trial in trials], left_out


def _run_of(timeline: Mapping[str, Any], **fields: Any) -> SchedulerRun:
    """Make an outcome from its kept fields."""
    return SchedulerRun(**fields, timeline=Timeline.from_dict(timeline))


@lru_cache(maxsize=1)  # cells of a site follow each other, and it caches its worlds
def _site(world: str, scheduler: str) -> Site:
    name, settings = _named(scheduler)
    rules = {_AGE: settings.pop(_AGE)} if _AGE in settings else {}
    where = {"system": world} if _is_system(world) else {"trace": world}
    make = plugins.load("asa.backends", "simulated")
    return cast("Site", make(**where, scheduler=name, scheduler_settings=settings, **rules))


def _is_system(world: str) -> bool:
    return not Path(world).exists() and "/" not in world


def _named(scheduler: str) -> tuple[str, dict[str, str]]:
    """Split a scheduler's name and its settings."""
    name, *words = scheduler.split(":")
    settings = dict(word.partition("=")[::2] for word in words)
    if not name or not all("=" in word for word in words):
        raise InputError(f"{scheduler!r} is no scheduler", where="--schedulers", hint="As in dmr:malleable=0.5.")
    return name, settings


def _code(scheduler: str, workflow: str, strategy: str, estimator: str) -> str:
    """Return a digest of all that an outcome depends on: code, and files that settings name."""
    name, settings = _named(scheduler)
    named = [("schedulers", name), ("workflows", workflow), ("strategies", strategy), ("estimators", estimator)]
    return code_digest(((f"asa.{kind}", plug_in) for kind, plug_in in named), settings.values())


def _make(workflow: str) -> Callable[[int], Workflow]:
    installed = plugins.names("asa.workflows")
    if workflow not in (_GRAPH, *installed):
        raise plugins.unknown_name("workflow", workflow, [*installed, _GRAPH])
    return graph if workflow == _GRAPH else workflow_maker(workflow)


@lru_cache(maxsize=64)
def _undisturbed(world: str, scheduler: str, seed: int, window_s: float) -> Lot:
    """Return the waits of other users' jobs without the client."""
    alone = _site(world, scheduler).open(seed)
    return lot_of(alone, alone.now(), window_s)


def run_cell(cell: SchedulerCell) -> list[SchedulerRun]:
    """Run all replications of one strategy, in the order of a log's time, with one estimator."""
    site = _site(cell.world, cell.scheduler)
    workflow, strategy = _make(cell.workflow)(cell.cores), load_strategy(cell.strategy)
    bank = WaitBank(cell.estimator, seed=cell.seed, machine_cores=site.capabilities.max_cores)

    def run(seed: int, world: Backend) -> SchedulerRun:
        began_s = world.now()
        [result] = run_all(world, [Run(workflow, strategy, bank=bank)], history=cell.history)
        where = f"{cell.workflow} on {cell.cores} cores of {cell.world}, {cell.scheduler}, {cell.strategy}, {seed=}"
        metrics, jobs = measured(workflow, result, where, age_accrues=site.capabilities.age_accrues)
        without = _undisturbed(cell.world, cell.scheduler, seed, cell.window_s)
        others = effect_on_others(without, lot_of(world, began_s, cell.window_s, without))
        what = (site.capabilities.system, cell.scheduler, cell.workflow, cell.cores, cell.strategy, seed)
        met = (others.jobs, others.mean_wait_s, others.mean_slowdown, others.longer_wait_s, others.more_slowdown)
        return SchedulerRun(*what, *figures(workflow, metrics), *met, others.waited_more_h, jobs)

    seeds = range(cell.seed, cell.seed + cell.seeds)
    site.prepare(seeds)
    return one_by_one(site, seeds, run)


# ---------------------------------------------------------------------- results


Side = Literal["longer", "shorter", ""]
"""In which direction other users' waits differ significantly, if they do; all such claims hold together with 95 %."""


@dataclass(frozen=True, slots=True)
class SchedulerStanding(Standing):
    """The results of a strategy under a scheduler, over all cells in which every strategy ran."""

    scheduler: str
    # increase of the other jobs' mean wait and bounded slowdown: a mean over cells, with the 95 % interval over
    # replications, separately for each world
    longer_wait_s: Interval
    more_slowdown: Interval
    # increase of their mean wait relative to Per-Stage, which asks for nothing ahead of time
    beyond_per_stage_s: Interval
    others_wait_s: float  # mean wait and slowdown without the client
    others_slowdown: float
    # sum of the other jobs' additional hours of waiting, divided by the client's core-hours, over all runs
    waited_more_per_core_hour: float
    longer: Side = ""  # whether that wait is significantly longer or shorter
    longer_than_per_stage: Side = ""


@dataclass(frozen=True, slots=True)
class CellMeans:
    """A cell's means over its seeds, see `SchedulerRun`; and what jobs did in a replication that strategies share."""

    world: str
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    seed: int  # the replication that the timeline shows
    timeline: Timeline
    over_big_job: Interval  # ratio of makespans to Big Job's: the geometric mean of paired ratios
    makespan_s: Interval  # makespan and core-hours of its runs
    core_hours: Interval
    perceived_wait_s: Interval  # waits in seconds, without and with that before the first stage
    total_wait_s: Interval
    longer_wait_s: Interval  # increase of the other jobs' mean wait, in seconds, and bounded slowdown
    more_slowdown: Interval


@dataclass(frozen=True, slots=True)
class SchedulerResults:
    """All results."""

    campaign: SchedulerCampaign
    standings: tuple[SchedulerStanding, ...]
    places: tuple[CellMeans, ...]
    left_out: tuple[LeftOut, ...]
    shared: tuple[str, ...]  # schedulers under which every strategy ran
    overall: tuple[SchedulerStanding, ...]  # by strategy, over all cells of these schedulers; their name is empty

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; unknown values are null."""
        document = asdict(self)
        document["campaign"]["traces"] = [trace.name for trace in self.campaign.traces]
        return cast("dict[str, Any]", as_plain(document))


def conclude(
    campaign: SchedulerCampaign, trials: Iterable[SchedulerRun], left_out: Iterable[LeftOut] = ()
) -> SchedulerResults:
    """Compute the results of each strategy under each scheduler."""
    every = list(trials)
    by_scheduler = put_together(every, lambda run: run.scheduler)
    shared = in_all(every, _cell)
    return SchedulerResults(
        campaign,
        tuple(_with_sides([standing for name, of in by_scheduler.items() for standing in _standings(name, of)])),
        tuple(place for of in by_scheduler.values() for place in _places(of)),
        tuple(left_out),
        tuple(dict.fromkeys(trial.scheduler for trial in shared)),
        tuple(_with_sides(list(_standings("", shared)))),
    )


def _with_sides(standings: Sequence[SchedulerStanding]) -> Iterator[SchedulerStanding]:
    """Yield standings with the significant differences of other users' waits, tested together."""
    longer = _sides([standing.longer_wait_s for standing in standings])
    than = iter(_sides([standing.beyond_per_stage_s for standing in standings if standing.strategy != THRIFTY_BASE]))
    for standing, side in zip(standings, longer, strict=True):
        yield replace(
            standing, longer=side, longer_than_per_stage="" if standing.strategy == THRIFTY_BASE else next(than)
        )


def _sides(intervals: Sequence[Interval]) -> list[Side]:
    sides: list[Side] = []
    for interval, is_there in zip(intervals, beyond_chance(intervals), strict=True):
        sides.append(("longer" if interval.mean > 0 else "shorter") if is_there else "")
    return sides


def _standings(scheduler: str, trials: Sequence[SchedulerRun]) -> Iterator[SchedulerStanding]:
    shared = in_all(trials, _cell)
    due = {(*_cell(trial), trial.seed): trial.longer_wait_s for trial in shared if trial.strategy == THRIFTY_BASE}
    for standing in standings(shared, _cell, lambda trial: trial.seed):
        mine = [trial for trial in shared if trial.strategy == standing.strategy]
        yield SchedulerStanding(
            **{field.name: getattr(standing, field.name) for field in fields(Standing)},
            scheduler=scheduler,
            longer_wait_s=by_world((t.world, t.seed, t.longer_wait_s) for t in mine),
            more_slowdown=by_world((t.world, t.seed, t.more_slowdown) for t in mine),
            beyond_per_stage_s=by_world((t.world, t.seed, t.longer_wait_s - due[*_cell(t), t.seed]) for t in mine),
            others_wait_s=float(np.mean([t.others_wait_s for t in mine])),
            others_slowdown=float(np.mean([t.others_slowdown for t in mine])),
            waited_more_per_core_hour=sum(t.waited_more_h for t in mine) / sum(t.core_hours for t in mine),
        )


def _cell(trial: SchedulerRun) -> tuple[str, tuple[str, str, int]]:
    return trial.world, (trial.scheduler, trial.workflow, trial.cores)


def _places(trials: Sequence[SchedulerRun]) -> Iterator[CellMeans]:
    cells: dict[tuple[str, str, int], dict[str, dict[int, SchedulerRun]]] = {}
    for trial in trials:
        cell = cells.setdefault((trial.world, trial.workflow, trial.cores), {})
        cell.setdefault(trial.strategy, {})[trial.seed] = trial
    for (world, workflow, cores), cell in cells.items():
        seed = typical({seed: sum(of[seed].makespan_s for of in cell.values()) for seed in cell[QUICK_BASE]})
        for strategy, of in cell.items():
            over = as_ratio(mean_interval(list(paired(of, cell[QUICK_BASE], "makespan_s").values())))
            means = (mean_interval([getattr(trial, name) for trial in of.values()]) for name in _FIGURES)
            shown = of[seed]
            yield CellMeans(world, shown.scheduler, workflow, cores, strategy, seed, shown.timeline, over, *means)
