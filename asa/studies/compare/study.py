"""What `asa compare` runs: strategies x core counts x seeds over equal worlds, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Unpack, cast

import numpy as np

from asa.backend import Backend, Site
from asa.core import plugins
from asa.errors import InputError
from asa.estimators import WaitBank
from asa.metrics import RunMetrics, measure
from asa.runner import Run, run_all
from asa.strategies import lacking, load_strategy
from asa.studies.harness import How, counted, run_cells, silent, workers
from asa.studies.runs import one_by_one, put_together
from asa.timeline import Timeline, timeline
from asa.workflow import Workflow

_FIGURES = ("twt_s", "makespan_s", "execution_s", "core_hours", "overhead_core_hours", "hits", "misses", "undecided",
            "resubmissions")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """What to compare."""

    # gives the workflow of a peak core count; must be importable by worker processes
    make_workflow: Callable[[int], Workflow]
    site: Site  # where; the same seed gives every strategy the same world
    cores: tuple[int, ...]
    strategies: tuple[str, ...]
    seeds: tuple[int, ...]  # one run of each strategy and core count for each; in this order an estimator meets them
    estimator: str = "asa"  # name of the one that predicts for strategies that learn
    # everybody's past jobs that it learns before each run, the latest; 0 to learn from one's own jobs only
    history: int = 2000
    # standard deviation of the logarithm of a stage's real over its expected run time; 0 for runs as expected
    spread: float = 0.0

    def check(self) -> None:
        """Refuse what cannot be run, before anything is simulated.

        Raises `InputError`: nothing to compare, a strategy that is unknown or needs what the site lacks, or a
        workflow wider than it.
        """
        if not self.seeds:
            raise InputError("there are no runs to compare", where="--seeds", hint="Ask for at least one.")
        if not self.strategies:
            raise InputError("there is nothing to compare", where="--strategies", hint="Name at least one strategy.")
        capabilities = self.site.capabilities
        for strategy in self.strategies:
            if lack := lacking(load_strategy(strategy), capabilities):
                raise InputError(lack, where=f"strategy {strategy!r}", hint="Take another, or another scheduler.")
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

    workflow: str  # what ran where, how wide, asked for how, in which replication
    system: str
    cores: int
    strategy: str
    seed: int
    age_accrues: bool  # by which rule of age
    metrics: RunMetrics | None  # what it cost; None if it failed
    reason: str = ""
    timeline: Timeline | None = None  # what its jobs did, of the first run of each strategy and core count

    def as_dict(self) -> dict[str, Any]:
        """Return the run as one flat JSON-ready record, but for its timeline; what a failed run has not is null."""
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
    """Return the installed workflow of a name, as a function of its peak cores."""
    return cast("Callable[[int], Workflow]", plugins.load("asa.workflows", name))


def compare(comparison: Comparison, **how: Unpack[How]) -> list[CompareRun]:
    """Run every strategy at every core count on every seed.

    For one strategy and core count the seeds run in order and share an estimator, as in the paper (Section 4.3);
    different strategies and core counts share nothing and run in parallel.
    """
    comparison.check()
    chains = [(strategy, cores) for cores in comparison.cores for strategy in comparison.strategies]
    on_progress, seeds = how.get("on_progress", silent), len(comparison.seeds)
    with workers(max(len(chains), seeds), jobs=how.get("jobs"), elsewhere=how.get("elsewhere")) as executor:
        on_progress("warming up the queue", 0, seeds)
        comparison.site.prepare(comparison.seeds, executor)
        on_progress("warming up the queue", seeds, seeds)
        done = counted(on_progress, "running workflows", len(chains))
        runs = run_cells(_chain, chains, comparison, jobs=1, elsewhere=executor, on_end=lambda *_: done())
    return [run for of in runs for run in of]


def _chain(comparison: Comparison, chain: tuple[str, int]) -> list[CompareRun]:
    """Run one strategy at one core count on all seeds in order, with one estimator."""
    strategy_name, cores = chain
    strategy = load_strategy(strategy_name)
    workflow = comparison.make_workflow(cores)
    capabilities = comparison.site.capabilities
    bank = WaitBank(comparison.estimator, seed=comparison.seeds[0], machine_cores=capabilities.max_cores)

    def run(seed: int, world: Backend) -> CompareRun:
        real = _real_run_times(workflow, comparison.spread, seed)
        [result] = run_all(world, [Run(workflow, strategy, bank=bank, run_s=real)], history=comparison.history)
        is_first = seed == comparison.seeds[0]
        return CompareRun(
            workflow=workflow.name,
            system=capabilities.system,
            cores=cores,
            strategy=strategy_name,
            seed=seed,
            age_accrues=capabilities.age_accrues,
            metrics=measure(workflow, result.records) if result.outcome == "completed" else None,
            reason=result.reason,
            timeline=timeline(result.records, workflow, age_accrues=capabilities.age_accrues) if is_first else None,
        )

    return one_by_one(comparison.site, comparison.seeds, run)


def _real_run_times(workflow: Workflow, spread: float, seed: int) -> dict[str, float]:
    """Draw what each stage really takes: log-normal around the expectation, within the walltime; one draw a seed."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 2])))
    factors = np.exp(spread * rng.standard_normal(len(workflow.stages)))
    return {
        name: min(max(stage.expected_s * factor, 1.0), stage.walltime_s)
        for (name, stage), factor in zip(workflow.stages.items(), factors.tolist(), strict=True)
    }


def group(runs: Iterable[CompareRun]) -> dict[tuple[int, str], list[CompareRun]]:
    """Sort runs into cells by (cores, strategy), in order of first appearance."""
    return put_together(runs, lambda run: (run.cores, run.strategy))
