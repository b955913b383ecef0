"""Every strategy under every scheduler: what it takes, what it costs, and what it does to everybody else.

Each strategy meets, under one scheduler, the same worlds in each replication, one a seed; over the seeds it shares an
estimator. The others are the jobs that waited when the client came, or came in a window after it; they are followed for
twice the window, in the world with the client and in the same world without it. The difference is the client's doing
alone, as everything else is equal, though part of it is chance: a queue that is disturbed goes another way, for better
or worse, and only the mean over seeds tells which.
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
"""Without fair share, under which a newcomer comes before everybody: no rule for age would matter."""

STRATEGIES = ("big-job", "per-stage", "chained", "asa", "asa-naive", "asa-plan", "elastic")
_GRAPH = "graph"
WORKFLOWS = ("montage", "blast", "statistics", _GRAPH)

_AGE = "age_accrues"
_FIGURES = ("makespan_s", "core_hours", "perceived_wait_s", "total_wait_s", "longer_wait_s", "more_slowdown")


@dataclass(frozen=True, slots=True)
class SchedulerCampaign:
    """What to run."""

    systems: tuple[str, ...] = ("uppmax",)  # centres with a workload model, and logs: the worlds
    traces: tuple[Path, ...] = ()
    # names, each with what is set of it behind a colon; `age_accrues` is the site's rule
    schedulers: tuple[str, ...] = SCHEDULERS
    # names; Big Job and Per-Stage run anyway, as the others are measured by them
    strategies: tuple[str, ...] = STRATEGIES
    workflows: tuple[str, ...] = WORKFLOWS  # names; `graph` is of this campaign
    cores: tuple[int, ...] = ()  # peak sizes; the largest of the paper's of which two fit each machine, if not given
    seeds: int = 5  # replications, and the first of them
    seed: int = 0
    estimator: str = "asa"  # who predicts, and past jobs of everybody that it learns at each
    history: int = 2000
    window_s: float = 43200.0  # others that come up to so much later are followed

    def plan(self) -> tuple[list[SchedulerCell], list[LeftOut]]:
        """Give all that is to be run, and what is left out as a site cannot do it."""
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
    """A strategy that was not run under a scheduler, and why."""

    world: str  # which was not run where
    scheduler: str
    strategy: str
    reason: str  # what keeps the strategy from running there, as it goes on after "it"


@dataclass(frozen=True, slots=True)
class SchedulerCell:
    """What is run in one go: one strategy under one scheduler, with one estimator that learns from run to run."""

    world: str  # a centre's name, or a log's file
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    seeds: int
    estimator: str
    history: int
    window_s: float
    log: str  # digests of the log, and of all code: what other code did, or on another log, is another cell
    code: str


@dataclass(frozen=True, slots=True)
class SchedulerRun:
    """One run, and what it did to the others."""

    world: str
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    makespan_s: float
    core_hours: float
    overhead_core_hours: float
    # how long stages waited after those that they follow had ended, added up; without and with the first
    perceived_wait_s: float
    total_wait_s: float
    others: int  # jobs of others that were followed
    others_wait_s: float  # their mean wait and bounded slowdown in the same world without the client
    others_slowdown: float
    longer_wait_s: float  # by how much these are larger with it
    more_slowdown: float
    waited_more_h: float  # hours by which they waited longer, added up
    timeline: Timeline


def run_campaign(
    campaign: SchedulerCampaign, kept: Path | None = None, **how: Unpack[How]
) -> tuple[list[SchedulerRun], list[LeftOut]]:
    """Run every cell, unless its outcome is kept already, see `asa.studies.harness.fill`; tell also what was left out.

    Returns: of each cell one a seed, in the order of the plan.
    """
    cells, left_out = campaign.plan()
    outcomes = fill(cells, Kind(run_cell, SchedulerCell, _run_of), kept, **how)
    return [trial for trials in outcomes.values() for trial in trials], left_out


def _run_of(timeline: Mapping[str, Any], **fields: Any) -> SchedulerRun:
    """Make an outcome of what was kept of it."""
    return SchedulerRun(**fields, timeline=Timeline.from_dict(timeline))


@lru_cache(maxsize=1)  # cells come site by site, and a site keeps its worlds
def _site(world: str, scheduler: str) -> Site:
    name, settings = _named(scheduler)
    rules = {_AGE: settings.pop(_AGE)} if _AGE in settings else {}
    where = {"system": world} if _is_system(world) else {"trace": world}
    make = plugins.load("asa.backends", "simulated")
    return cast("Site", make(**where, scheduler=name, scheduler_settings=settings, **rules))


def _is_system(world: str) -> bool:
    return not Path(world).exists() and "/" not in world


def _named(scheduler: str) -> tuple[str, dict[str, str]]:
    """Take a scheduler's name and what is set of it apart."""
    name, *words = scheduler.split(":")
    settings = dict(word.partition("=")[::2] for word in words)
    if not name or not all("=" in word for word in words):
        raise InputError(f"{scheduler!r} is no scheduler", where="--schedulers", hint="As in dmr:malleable=0.5.")
    return name, settings


def _code(scheduler: str, workflow: str, strategy: str, estimator: str) -> str:
    """Give a digest of what an outcome hangs on: code, and files that settings name."""
    name, settings = _named(scheduler)
    named = [("schedulers", name), ("workflows", workflow), ("strategies", strategy), ("estimators", estimator)]
    return code_digest(((f"asa.{kind}", one) for kind, one in named), settings.values())


def _make(workflow: str) -> Callable[[int], Workflow]:
    installed = plugins.names("asa.workflows")
    if workflow not in (_GRAPH, *installed):
        raise plugins.unknown_name("workflow", workflow, [*installed, _GRAPH])
    return graph if workflow == _GRAPH else workflow_maker(workflow)


@lru_cache(maxsize=64)
def _undisturbed(world: str, scheduler: str, seed: int, window_s: float) -> Lot:
    """Tell how others fare without the client."""
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


# ---------------------------------------------------------------------- what came out


Side = Literal["longer", "shorter", ""]
"""How the others' wait differs significantly, if it does; all of a campaign's are right at once with 95 % (Holm)."""


@dataclass(frozen=True, slots=True)
class SchedulerStanding(Standing):
    """How a strategy did under a scheduler, over all cells in which every strategy ran."""

    scheduler: str
    # by how much the others' mean wait and bounded slowdown grew: a mean over cells, with the 95 % interval over
    # replications, each world by itself
    longer_wait_s: Interval
    more_slowdown: Interval
    # likewise by how much their mean wait grew more than under Per-Stage, which asks for nothing ahead
    beyond_per_stage_s: Interval
    others_wait_s: float  # what they were without the client
    others_slowdown: float
    # hours by which others waited longer for a core-hour that the client got: sums over all runs
    waited_more_per_core_hour: float
    longer: Side = ""  # whether that wait is significantly longer or shorter
    longer_than_per_stage: Side = ""


@dataclass(frozen=True, slots=True)
class CellMeans:
    """One cell's means over its seeds, see `SchedulerRun`; and what jobs did in a replication of all its strategies."""

    world: str
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    seed: int  # the replication, and what jobs did in it
    timeline: Timeline
    over_big_job: Interval  # its makespans over Big Job's: the geometric mean of paired ratios
    makespan_s: Interval  # what its runs took and cost
    core_hours: Interval
    perceived_wait_s: Interval  # waits in seconds, without and with that before the first stage
    total_wait_s: Interval
    longer_wait_s: Interval  # by how much the others' mean wait, in seconds, and bounded slowdown grew
    more_slowdown: Interval


@dataclass(frozen=True, slots=True)
class SchedulerResults:
    """All that came out."""

    campaign: SchedulerCampaign
    standings: tuple[SchedulerStanding, ...]
    places: tuple[CellMeans, ...]
    left_out: tuple[LeftOut, ...]
    shared: tuple[str, ...]  # schedulers under which every strategy ran
    overall: tuple[SchedulerStanding, ...]  # by strategy, over all cells of these; theirs is an empty name

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what is not known is null."""
        document = asdict(self)
        document["campaign"]["traces"] = [trace.name for trace in self.campaign.traces]
        return cast("dict[str, Any]", as_plain(document))


def conclude(
    campaign: SchedulerCampaign, trials: Iterable[SchedulerRun], left_out: Iterable[LeftOut] = ()
) -> SchedulerResults:
    """Work out how each strategy did under each scheduler."""
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
    """Say of all together how others' waits differ significantly."""
    longer = _sides([one.longer_wait_s for one in standings])
    than = iter(_sides([one.beyond_per_stage_s for one in standings if one.strategy != THRIFTY_BASE]))
    for one, side in zip(standings, longer, strict=True):
        yield replace(one, longer=side, longer_than_per_stage="" if one.strategy == THRIFTY_BASE else next(than))


def _sides(found: Sequence[Interval]) -> list[Side]:
    sides: list[Side] = []
    for one, is_there in zip(found, beyond_chance(found), strict=True):
        sides.append(("longer" if one.mean > 0 else "shorter") if is_there else "")
    return sides


def _standings(scheduler: str, trials: Sequence[SchedulerRun]) -> Iterator[SchedulerStanding]:
    shared = in_all(trials, _cell)
    due = {(*_cell(trial), trial.seed): trial.longer_wait_s for trial in shared if trial.strategy == THRIFTY_BASE}
    for one in standings(shared, _cell, lambda trial: trial.seed):
        mine = [trial for trial in shared if trial.strategy == one.strategy]
        yield SchedulerStanding(
            **{field.name: getattr(one, field.name) for field in fields(Standing)},
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
