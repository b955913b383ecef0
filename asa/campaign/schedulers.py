"""Every way of asking under every scheduler: what it takes, what it costs, and what it does to everybody else.

Each strategy meets, under one scheduler, the same worlds at the same moments, one a seed; over the seeds it shares an
estimator. The others are the jobs that waited when the client came, or came in a window after it; they are followed for
twice the window, in the world with the client and in the same world without it. The difference is the client's doing
alone, as everything else is equal, though part of it is chance: a queue that is disturbed goes another way, for better
or worse, and only the mean over seeds tells which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from asa import plugins
from asa.backend import Site
from asa.campaign.graph import graph
from asa.campaign.others import Lot, beside, lot_of
from asa.campaign.records import as_plain
from asa.cells import Kind, code_digest, digest, fill
from asa.contest import Trial as Met
from asa.contest import peak_sizes, standings
from asa.errors import InputError, RunError
from asa.estimators import WaitBank
from asa.experiment import Interval, mean_interval, workflow_maker
from asa.metrics import measure
from asa.runner import Run, run_all
from asa.strategies import lacking, load_strategy
from asa.workflow import Workflow

__all__ = [
    "SCHEDULERS",
    "STRATEGIES",
    "WORKFLOWS",
    "Campaign",
    "Cell",
    "LeftOut",
    "Place",
    "SchedulerResults",
    "Standing",
    "Trial",
    "conclude",
    "run_campaign",
]

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
WORKFLOWS = ("montage", "blast", "statistics", "graph")

_BASES = ("big-job", "per-stage")
_AGE = "age_accrues"
_FIGURES = ("makespan_s", "core_hours", "perceived_wait_s", "total_wait_s", "longer_wait_s", "more_slowdown")


@dataclass(frozen=True, slots=True)
class Campaign:
    """What to run.

    Parameters
    ----------
    systems, traces
        Centres with a workload model, and logs: the worlds.
    schedulers
        Names, each with what is set of it behind a colon; ``age_accrues`` is the site's rule.
    strategies
        Names; Big Job and Per-Stage run anyway, as the others are measured by them.
    workflows
        Names; ``graph`` is of this campaign.
    cores
        Peak sizes; the largest of the paper's of which two fit each machine, if not given.
    seeds, seed
        Moments, and the first of them.
    estimator, history
        Who predicts, and past jobs of everybody that it learns at each.
    window_s
        Others that come up to so much later are followed.
    """

    systems: tuple[str, ...] = ("uppmax",)
    traces: tuple[Path, ...] = ()
    schedulers: tuple[str, ...] = SCHEDULERS
    strategies: tuple[str, ...] = STRATEGIES
    workflows: tuple[str, ...] = WORKFLOWS
    cores: tuple[int, ...] = ()
    seeds: int = 5
    seed: int = 0
    estimator: str = "asa"
    history: int = 2000
    window_s: float = 43200.0

    def plan(self) -> tuple[list[Cell], list[LeftOut]]:
        """Give all that is to be run, and what is left out as a site cannot do it.

        Raises
        ------
        InputError
            Something is unknown, or does not fit.
        """
        worlds = (*self.systems, *map(str, self.traces))
        if self.seeds < 1 or not worlds or not self.workflows or not self.schedulers:
            hint = "Give a centre or a log, a workflow, a scheduler, and at least one seed."
            raise InputError("there is nothing to run", hint=hint)
        if self.window_s < 0 or self.history < 0:
            raise InputError("neither a window nor a history is negative", hint="Give 0 or more.")
        plugins.load("asa.estimators", self.estimator)
        for name in self.workflows:
            _make(name)
        strategies = {name: load_strategy(name) for name in dict.fromkeys((*_BASES, *self.strategies))}
        cells: list[Cell] = []
        left_out: list[LeftOut] = []
        code = code_digest()
        logs = {str(trace): digest([trace]) for trace in self.traces}
        for world, scheduler in product(worlds, self.schedulers):
            capabilities = _site(world, scheduler).capabilities
            sizes = self.cores or peak_sizes(capabilities.max_cores)[-1:]
            if too_wide := [size for size in sizes if size > capabilities.max_cores]:
                raise InputError(
                    f"{too_wide[0]} cores are more than its machine's {capabilities.max_cores}",
                    where=world,
                    hint="Give --cores that fit.",
                )
            lacks = {name: lack for name, made in strategies.items() if (lack := lacking(made, capabilities))}
            left_out += [LeftOut(capabilities.system, scheduler, name, lack) for name, lack in lacks.items()]
            settings = (self.seed, self.seeds, self.estimator, self.history, self.window_s, logs.get(world, ""), code)
            cells += [
                Cell(world, scheduler, workflow, cores, name, *settings)
                for workflow, cores, name in product(self.workflows, sizes, strategies)
                if name not in lacks
            ]
        return cells, left_out


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A strategy that was not run under a scheduler, and why."""

    world: str
    scheduler: str
    strategy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cell:
    """What is run in one go: one strategy under one scheduler, with one estimator that learns from run to run.

    Parameters
    ----------
    world
        A centre's name, or a log's file.
    scheduler, workflow, cores, strategy
        Which.
    seed, seeds, estimator, history, window_s
        The campaign's.
    log, code
        Digests of the log, and of this package: what other code did, or on another log, is another cell.
    """

    world: str
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    seeds: int
    estimator: str
    history: int
    window_s: float
    log: str
    code: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One run, and what it did to the others.

    Parameters
    ----------
    world, scheduler, workflow, cores, strategy, seed
        Which.
    makespan_s, core_hours, overhead_core_hours
        See `asa.metrics.RunMetrics`.
    perceived_wait_s, total_wait_s
        How long stages waited after those that they follow had ended, added up; without and with the first.
    others
        Jobs of others that were followed.
    others_wait_s, others_slowdown
        Their mean wait and bounded slowdown in the same world without the client.
    longer_wait_s, more_slowdown
        By how much these are larger with it.
    waited_more_h
        Hours by which they waited longer, added up.
    """

    world: str
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    seed: int
    makespan_s: float
    core_hours: float
    overhead_core_hours: float
    perceived_wait_s: float
    total_wait_s: float
    others: int
    others_wait_s: float
    others_slowdown: float
    longer_wait_s: float
    more_slowdown: float
    waited_more_h: float


def run_campaign(
    campaign: Campaign,
    kept: Path | None = None,
    *,
    jobs: int | None = None,
    elsewhere: Executor | None = None,
    on_progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> tuple[list[Trial], list[LeftOut]]:
    """Run every cell, unless its outcome is kept already, see `asa.cells.fill`; tell also what was left out.

    Raises
    ------
    InputError
        See `Campaign.plan`.
    RunError
        A run did not complete.
    StateError
        The file cannot be read or written.
    """
    cells, left_out = campaign.plan()
    kind = Kind(run_cell, lambda told: Cell(**told), lambda told: Trial(**told))
    outcomes = fill(cells, kind, kept, jobs=jobs, elsewhere=elsewhere, on_progress=on_progress)
    return [trial for trials in outcomes.values() for trial in trials], left_out


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


def _make(workflow: str) -> Callable[[int], Workflow]:
    return graph if workflow == "graph" else workflow_maker(workflow)


@lru_cache(maxsize=64)
def _undisturbed(world: str, scheduler: str, seed: int, window_s: float) -> Lot:
    """Tell how others fare without the client."""
    alone = _site(world, scheduler).open(seed)
    return lot_of(alone, alone.now(), window_s)


def run_cell(cell: Cell) -> list[Trial]:
    """Run one strategy at all moments, in the order of a log's time, with one estimator.

    Raises
    ------
    RunError
        A run did not complete.
    """
    site = _site(cell.world, cell.scheduler)
    workflow, strategy = _make(cell.workflow)(cell.cores), load_strategy(cell.strategy)
    seeds = range(cell.seed, cell.seed + cell.seeds)
    site.prepare(seeds)
    bank = WaitBank(cell.estimator, seed=cell.seed, machine_cores=site.capabilities.max_cores)
    trials: dict[int, Trial] = {}
    for seed in site.in_order(seeds):
        world = site.open(seed)
        began_s = world.now()
        [result] = run_all(world, [Run(workflow, strategy, bank=bank)], history=cell.history)
        if result.outcome != "completed":
            where = f"{cell.workflow} on {cell.cores} cores of {cell.world}, {cell.scheduler}, {cell.strategy}, {seed=}"
            raise RunError(f"did not complete: {result.reason}", where=where, hint="Look at it with: asa compare.")
        told = measure(workflow, result.records)
        others = beside(
            _undisturbed(cell.world, cell.scheduler, seed, cell.window_s), lot_of(world, began_s, cell.window_s)
        )
        trials[seed] = Trial(
            site.capabilities.system,
            cell.scheduler,
            cell.workflow,
            cell.cores,
            cell.strategy,
            seed,
            told.makespan_s,
            told.core_hours,
            told.overhead_core_hours,
            sum(stage.perceived_wait_s for stage in told.stages if workflow.stages[stage.stage].after),
            told.twt_s,
            others.jobs,
            others.mean_wait_s,
            others.mean_slowdown,
            others.longer_wait_s,
            others.more_slowdown,
            others.waited_more_h,
        )
    return [trials[seed] for seed in seeds]


# ---------------------------------------------------------------------- what came out


@dataclass(frozen=True, slots=True)
class Standing:
    """How a strategy did under a scheduler, over all its cells.

    Parameters
    ----------
    scheduler, strategy
        Which.
    makespan, core_hours, perceived_wait, total_wait, dominated, cells
        See `asa.contest.Standing`: makespans over Big Job's, core-hours and waits over Per-Stage's.
    longer_wait_s, more_slowdown
        By how much the others' mean wait and bounded slowdown grew: a mean over cells, with the 95 % interval over
        worlds and seeds.
    others_wait_s, others_slowdown
        What they were without the client.
    waited_more_per_core_hour
        Hours by which others waited longer for a core-hour that the client got: sums over all runs.
    """

    scheduler: str
    strategy: str
    makespan: Interval
    core_hours: Interval
    perceived_wait: float
    total_wait: float
    dominated: int
    cells: int
    longer_wait_s: Interval
    more_slowdown: Interval
    others_wait_s: float
    others_slowdown: float
    waited_more_per_core_hour: float


@dataclass(frozen=True, slots=True)
class Place:
    """One cell's means over its seeds: see `Trial`."""

    world: str
    scheduler: str
    workflow: str
    cores: int
    strategy: str
    makespan_s: Interval
    core_hours: Interval
    perceived_wait_s: Interval
    total_wait_s: Interval
    longer_wait_s: Interval
    more_slowdown: Interval


@dataclass(frozen=True, slots=True)
class SchedulerResults:
    """All that came out.

    Parameters
    ----------
    campaign
        What was run.
    standings
        By scheduler and strategy.
    places
        Each cell.
    left_out
        What was not run.
    """

    campaign: Campaign
    standings: tuple[Standing, ...]
    places: tuple[Place, ...]
    left_out: tuple[LeftOut, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what is not known is null."""
        told = asdict(self)
        told["campaign"]["traces"] = [trace.name for trace in self.campaign.traces]
        return cast("dict[str, Any]", as_plain(told))


def conclude(campaign: Campaign, trials: Iterable[Trial], left_out: Iterable[LeftOut] = ()) -> SchedulerResults:
    """Work out how each strategy did under each scheduler."""
    by_scheduler: dict[str, list[Trial]] = {}
    for trial in trials:
        by_scheduler.setdefault(trial.scheduler, []).append(trial)
    return SchedulerResults(
        campaign,
        tuple(standing for name, of in by_scheduler.items() for standing in _standings(name, of)),
        tuple(place for of in by_scheduler.values() for place in _places(of)),
        tuple(left_out),
    )


def _standings(scheduler: str, trials: Sequence[Trial]) -> Iterator[Standing]:
    for met in standings([_as_met(trial) for trial in trials]):
        mine = [trial for trial in trials if trial.strategy == met.strategy]
        yield Standing(
            scheduler,
            met.strategy,
            Interval(*met.makespan),
            Interval(*met.core_hours),
            met.perceived_wait,
            met.total_wait,
            met.dominated,
            met.cells,
            _over_worlds(mine, "longer_wait_s"),
            _over_worlds(mine, "more_slowdown"),
            float(np.mean([trial.others_wait_s for trial in mine])),
            float(np.mean([trial.others_slowdown for trial in mine])),
            sum(trial.waited_more_h for trial in mine) / sum(trial.core_hours for trial in mine),
        )


def _as_met(trial: Trial) -> Met:
    """Tell a run as the experiment on strategies does, which knows how to sum them up."""
    return Met(
        trial.world,
        trial.workflow,
        trial.cores,
        age_accrues=True,
        shrink=True,
        strategy=trial.strategy,
        start=trial.seed,
        makespan_s=trial.makespan_s,
        core_hours=trial.core_hours,
        overhead_core_hours=trial.overhead_core_hours,
        perceived_wait_s=trial.perceived_wait_s,
        total_wait_s=trial.total_wait_s,
    )


def _over_worlds(trials: Sequence[Trial], what: str) -> Interval:
    """Average over the cells of each world and seed, then over these: cells share the moments' luck."""
    of: dict[tuple[str, int], list[float]] = {}
    for trial in trials:
        of.setdefault((trial.world, trial.seed), []).append(getattr(trial, what))
    return mean_interval([float(np.mean(values)) for values in of.values()])


def _places(trials: Sequence[Trial]) -> Iterator[Place]:
    cells: dict[tuple[str, str, str, int, str], list[Trial]] = {}
    for trial in trials:
        key = trial.world, trial.scheduler, trial.workflow, trial.cores, trial.strategy
        cells.setdefault(key, []).append(trial)
    for key, of in cells.items():
        yield Place(*key, *(mean_interval([getattr(trial, name) for trial in of]) for name in _FIGURES))
