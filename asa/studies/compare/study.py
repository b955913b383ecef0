"""The runs of `asa compare`: strategies x core counts x seeds over equal worlds, in parallel.

All alternatives begin a replication with the same knowledge: what the estimator has learned of that centre from past
jobs of all users. Without such a past, a strategy's replications follow each other, as in the ASA paper, and its
estimator learns only from its own jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Unpack, cast

import numpy as np

from asa.backend import Backend, Site
from asa.core import plainly, plugins
from asa.core.parallel import Processes, Progress, pool, silent
from asa.errors import InputError
from asa.estimators import WaitBank, readiness
from asa.keys import RESOURCES
from asa.metrics import RunMetrics, measure
from asa.pool.modelled import divided_on_pool
from asa.pool.modelled import refusal_of as refusal_on_pool
from asa.runner import Run, run_all
from asa.runner.outlook import refusal_of
from asa.strategies import lacking, load_strategy
from asa.strategies.on_pool import OnPool
from asa.studies.harness import How, counted, run_cells, workers
from asa.studies.pooled import of_allocations, run_on_pool, with_allocations
from asa.studies.runs import Known, each_knowing, one_by_one, put_together
from asa.timeline import Timeline, timeline
from asa.workflow import Workflow

_UNSEEN, _BUFFER = ("memory", "gpus"), "burst_buffer"
_EARLY = 3  # how many replications run in plain Python while code is compiled: enough to see that it goes on
_FIGURES = ("twt_s", "makespan_s", "execution_s", "core_hours", "overhead_core_hours", "hits", "misses", "undecided",
            "resubmissions")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """The parameters of a comparison."""

    # returns the workflow of a peak core count; worker processes must be able to import it
    make_workflow: Callable[[int], Workflow]
    site: Site  # with the same seed, every strategy gets the same world
    cores: tuple[int, ...]
    strategies: tuple[str, ...]
    seeds: tuple[int, ...]  # for each, a run of each strategy and core count
    estimator: str = "asa"  # name of the estimator for strategies that learn
    # number of latest past jobs of all users that it learns before each run; 0 to learn only from its own jobs, over
    # the seeds in order
    history: int = 2000
    # standard deviation of the logarithm of a stage's real over its expected run time; 0 for expected run times
    spread: float = 0.0
    only: tuple[tuple[int, str], ...] = ()  # pairs of core counts and strategies to run; by default all

    @property
    def pairs(self) -> tuple[tuple[int, str], ...]:
        """Pairs of core counts and strategies to run."""
        return self.only or tuple((cores, strategy) for cores in self.cores for strategy in self.strategies)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes: what is assumed, facts about the site, and requests of stages that are ignored."""
        stages = self.make_workflow(self.cores[0]).stages.values()
        asked = {
            resource.name: [stage.name for stage in stages if getattr(stage, resource.field)]
            for resource in RESOURCES
            if resource.name in _UNSEEN
            or (resource.name == _BUFFER and self.site.capabilities.burst_buffer_bytes is None)
        }
        text = "the simulated machine does not look at"
        unseen = (f"{text} {key} of {', '.join(of)}" for key, of in asked.items() if of)
        has_pool = any(isinstance(load_strategy(name), OnPool) for name in self.strategies)
        widest = self.make_workflow(max(self.cores))
        divided = divided_on_pool(widest, self.site.capabilities) if has_pool else ()
        return (*([self.assumed] if self.assumed else []), *self.site.notes, *unseen, *divided)

    @property
    def guessed(self) -> list[str]:
        """Names of stages whose run times are not known."""
        stages = self.make_workflow(self.cores[0]).stages.values()
        return [
            stage.name
            for stage in stages
            if stage.expected_run_s is None and stage.moldable is None and not stage.local
        ]

    @property
    def assumed(self) -> str:
        """Note on the assumed run times of stages without an expected run time; empty if there are none."""
        unknown = self.guessed
        if not unknown:
            return ""
        listed = ", ".join(unknown[:4]) + (f" and {len(unknown) - 4} more" if len(unknown) > 4 else "")
        return (
            f"run times are not known of {listed}: each is taken to run for its whole walltime. Give `expected`; "
            "once the workflow has run, those times are taken"
        )

    def refusal_of(self, strategy: str) -> str:
        """Return why a strategy cannot run the workflow; empty if it can."""
        loaded, workflow = load_strategy(strategy), self.make_workflow(self.cores[0])
        refuse = refusal_on_pool if isinstance(loaded, OnPool) else partial(refusal_of, loaded)
        return refuse(workflow, self.site.capabilities)

    def _check_strategies(self) -> None:
        for strategy in self.strategies:
            if lack := lacking(load_strategy(strategy), self.site.capabilities):
                raise InputError(lack, where=f"strategy {strategy!r}", hint="Take another, or another scheduler.")
            if why := self.refusal_of(strategy):
                raise InputError(why, where=f"strategy {strategy!r}", hint="Take others, with --strategies.")

    def check(self) -> None:
        """Refuse impossible comparisons before anything is simulated.

        Raises `InputError`: there is nothing to compare, a strategy is unknown or cannot run the workflow here, or a
        workflow is wider than the site.
        """
        if not self.seeds:
            raise InputError("there are no runs to compare", where="--seeds", hint="Ask for at least one.")
        if not self.strategies:
            raise InputError("there is nothing to compare", where="--strategies", hint="Name at least one strategy.")
        capabilities = self.site.capabilities
        self._check_strategies()
        plugins.load("asa.estimators", self.estimator)
        if not 0 <= self.spread <= 1:
            raise InputError(f"a spread of {self.spread} cannot be", where="--spread", hint="Give 0 to 1.")
        if self.history < 0:
            raise InputError(f"a history of {self.history} jobs cannot be", where="--history", hint="Give 0 or more.")
        for cores in self.cores:
            workflow = self.make_workflow(cores)
            for stage in workflow.stages.values():
                wanted = stage.cores_on(capabilities.cores_per_node)
                if wanted > capabilities.max_cores:
                    raise InputError(
                        f"a job of {wanted} cores is larger than {capabilities.system!r}, "
                        f"which has {capabilities.max_cores}",
                        where=f"workflow {workflow.name!r}, stage {stage.name!r}",
                        hint=f"Ask for at most {capabilities.max_cores}.",
                    )


@dataclass(frozen=True, slots=True)
class CompareRun:
    """One run of a comparison."""

    workflow: str  # workflow, system, cores, strategy and replication of the run
    system: str
    cores: int
    strategy: str
    seed: int
    age_accrues: bool  # the rule of age
    metrics: RunMetrics | None  # None if the run failed
    reason: str = ""
    timeline: Timeline | None = None  # timeline of its jobs; only for the first run of each strategy and core count

    def as_dict(self) -> dict[str, Any]:
        """Return the run as a flat JSON-ready record, without its timeline; values that a failed run lacks are null."""
        m = self.metrics
        return {
            "workflow": self.workflow,
            "system": self.system,
            "cores": self.cores,
            "strategy": self.strategy,
            "seed": self.seed,
            "age_accrues": self.age_accrues,
            "outcome": "completed" if m else "failed",
            "reason": self.reason,
            **{name: m and getattr(m, name) for name in _FIGURES},
            "stages": [asdict(stage) for stage in m.stages] if m else [],
        }


def workflow_maker(name: str) -> Callable[[int], Workflow]:
    """Return the installed workflow with a name, as a function of its peak cores."""
    return cast("Callable[[int], Workflow]", plugins.load("asa.workflows", name))


def compare(comparison: Comparison, **how: Unpack[How]) -> list[CompareRun]:
    """Run every strategy at every core count on every seed.

    Replications run in parallel. Without a past to learn, strategies and core counts run in parallel, since the seeds
    of each share an estimator, as in the paper (Section 4.3).
    """
    comparison.check()
    chains = [(strategy, cores) for cores, strategy in comparison.pairs]
    tasks: Sequence[Any] = comparison.seeds if comparison.history else chains
    run: Callable[[Comparison, Any], list[CompareRun]] = _replication if comparison.history else _chain
    on_progress, seeds = how.get("on_progress", silent), len(comparison.seeds)
    with workers(max(len(chains), seeds), jobs=how.get("jobs"), elsewhere=how.get("elsewhere")) as executor:
        early = _while_compiling(comparison, on_progress) if isinstance(executor, Processes) else {}
        tasks = [task for task in tasks if task not in early]
        if tasks:
            on_progress("warming up the queue", 0, seeds)
            comparison.site.prepare([seed for seed in comparison.seeds if seed not in early], executor)
            on_progress("warming up the queue", seeds, seeds)
        done = counted(on_progress, "running workflows", len(tasks) + len(early), len(early))
        came = run_cells(run, tasks, comparison, jobs=1, elsewhere=executor, on_end=lambda *_: done())
    place = {(cores, strategy): number for number, (strategy, cores) in enumerate(chains)}
    runs = [run for of in (*early.values(), *came) for run in of]
    return sorted(runs, key=lambda run: (place[run.cores, run.strategy], run.seed))


def _while_compiling(comparison: Comparison, on_progress: Progress) -> dict[int, list[CompareRun]]:
    """If code must be compiled first, run replications meanwhile, and return their runs by seed.

    One process compiles code by running the last replication, for other processes to load; another runs some of the
    others in plain Python, where that is fast enough, so that progress is seen early.
    """
    if not comparison.history or not readiness.is_to_keep(comparison.estimator):
        return {}
    early: dict[int, list[CompareRun]] = {}
    *first, last = comparison.seeds
    is_fast = readiness.is_fast_plainly(comparison.estimator)
    what = "running workflows, while faster code for them is compiled, once"
    on_progress(what, 0, len(comparison.seeds))
    with pool(2) as executor:
        assert executor is not None
        if not first and is_fast and readiness.compile_later():
            return {last: executor.submit(_plain_replication, comparison, last).result()}
        compiling = executor.submit(_replication, comparison, last)
        for seed in first[:_EARLY] if is_fast else ():
            plainly_run = executor.submit(_plain_replication, comparison, seed)
            wait((compiling, plainly_run), return_when=FIRST_COMPLETED)
            if not plainly_run.done():
                break
            early[seed] = plainly_run.result()
            on_progress(what, len(early), len(comparison.seeds))
        early[last] = compiling.result()
        on_progress(what, len(early), len(comparison.seeds))
        executor.end()
    return early


def _plain_replication(comparison: Comparison, seed: int) -> list[CompareRun]:
    """Run a replication in plain Python, if this process has run nothing else."""
    plainly.choose(plain=True)
    return _replication(comparison, seed)


def _replication(comparison: Comparison, seed: int) -> list[CompareRun]:
    """Run every strategy at every core count on one seed, each with the same knowledge."""
    bank = _bank(comparison, seed)

    def run_all_of(known: Known) -> list[CompareRun]:
        return [
            _run(comparison, strategy, cores, seed, known.begin(), is_followed=True)
            for cores, strategy in comparison.pairs
        ]

    [runs] = each_knowing(comparison.site, (seed,), bank, comparison.history, run_all_of)
    return runs


def _chain(comparison: Comparison, chain: tuple[str, int]) -> list[CompareRun]:
    """Run one strategy at one core count on all seeds in order, with one estimator."""
    bank = _bank(comparison, comparison.seeds[0])
    return one_by_one(
        comparison.site,
        comparison.seeds,
        lambda seed, world: _run(comparison, *chain, seed, (world, bank), is_followed=False),
    )


def _bank(comparison: Comparison, seed: int) -> WaitBank:
    return WaitBank(comparison.estimator, seed=seed, machine_cores=comparison.site.capabilities.max_cores)


def _run(
    comparison: Comparison, strategy: str, cores: int, seed: int, at: tuple[Backend, WaitBank], *, is_followed: bool
) -> CompareRun:
    """Run a workflow once, in a world with the given knowledge; `is_followed` as in `run_all`."""
    world, bank = at
    workflow, capabilities = comparison.make_workflow(cores), comparison.site.capabilities
    loaded = load_strategy(strategy)
    run = Run(workflow, loaded, bank=bank, run_s=_real_run_times(workflow, comparison.spread, seed))
    is_first = seed == comparison.seeds[0]
    if isinstance(loaded, OnPool):
        result, pool = run_on_pool(world, run, bank, history=comparison.history, is_followed=is_followed)
        metrics = with_allocations(measure(workflow, result.records), pool) if result.outcome == "completed" else None
        drawn = of_allocations(timeline(result.records, workflow), pool) if is_first else None
    else:
        [result] = run_all(world, [run], history=comparison.history, is_followed=is_followed)
        metrics = measure(workflow, result.records) if result.outcome == "completed" else None
        drawn = timeline(result.records, workflow, age_accrues=capabilities.age_accrues) if is_first else None
    return CompareRun(
        workflow=workflow.name,
        system=capabilities.system,
        cores=cores,
        strategy=strategy,
        seed=seed,
        age_accrues=capabilities.age_accrues,
        metrics=metrics,
        reason=result.reason,
        timeline=drawn,
    )


def _real_run_times(workflow: Workflow, spread: float, seed: int) -> dict[str, float]:
    """Draw real run times of stages, one for each seed: log-normal around the expected ones, within walltimes."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 2])))
    factors = np.exp(spread * rng.standard_normal(len(workflow.stages)))
    return {
        name: min(max(stage.expected_s * factor, 1.0), stage.walltime_s if stage.is_one_job else math.inf)
        for (name, stage), factor in zip(workflow.stages.items(), factors.tolist(), strict=True)
    }


def group(runs: Iterable[CompareRun]) -> dict[tuple[int, str], list[CompareRun]]:
    """Group runs into cells by (cores, strategy), in order of first appearance."""
    return put_together(runs, lambda run: (run.cores, run.strategy))
