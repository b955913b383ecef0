"""The paper's study (sections 7.3 to 7.5): workloads of several sizes and seeds, fixed and flexible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from asa.backends.dmr.applications import ApplicationKind
from asa.backends.dmr.mechanics import Costs
from asa.dmr.protocol import Action
from asa.studies.dmr.cluster import JobRecord, MalleableCluster
from asa.studies.harness import run_cells
from asa.studies.runs import put_together

from .workloads import PRELIMINARY_JOBS, THROUGHPUT_JOBS, Measures, measure, preliminary, throughput

Which = Literal["preliminary", "throughput"]
Version = Literal["fixed", "synchronous", "asynchronous"]
VERSIONS: dict[Which, tuple[Version, ...]] = {
    "preliminary": ("fixed", "synchronous", "asynchronous"),
    "throughput": ("fixed", "synchronous"),
}
_MAKERS = {"preliminary": preliminary, "throughput": throughput}


@dataclass(frozen=True, slots=True)
class Actions:
    """The figures of Table 2 for a workload."""

    expands: float  # mean number per job, including expansions that timed out
    expand_s: float  # mean seconds of one; nan if there was none
    shrinks: float
    shrink_s: float
    timed_out: float  # share of the expansions that timed out; nan if there was none


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """The outcome of a workload."""

    measures: Measures
    actions: Actions  # numbers and durations of its resizes


@dataclass(frozen=True, slots=True)
class Study:
    """The outcomes of all workloads."""

    seeds: int
    # by workload, version and number of jobs; one for each seed
    outcomes: dict[tuple[Which, Version, int], list[WorkloadOutcome]]

    def jobs(self, which: Which) -> list[int]:
        """Return the sizes of the workloads, ascending."""
        return sorted({jobs for of, _, jobs in self.outcomes if of == which})


def run_workload(which: Which, version: Version, jobs: int, seed: int, costs: Costs | None = None) -> list[JobRecord]:
    """Run a workload."""
    workload = _MAKERS[which](jobs, seed, ApplicationKind.RIGID if version == "fixed" else ApplicationKind.MALLEABLE)
    return MalleableCluster(workload.nodes, workload.jobs, costs=costs, asynchronous=version == "asynchronous").run()


def study(
    seeds: int,
    *,
    throughput_jobs: Sequence[int] = THROUGHPUT_JOBS,
    preliminary_jobs: Sequence[int] = PRELIMINARY_JOBS,
    costs: Costs | None = None,
    processes: int | None = None,
) -> Study:
    """Run all workloads, in parallel."""
    sizes: dict[Which, Sequence[int]] = {"throughput": throughput_jobs, "preliminary": preliminary_jobs}
    tasks = [
        (which, version, jobs, seed, costs)
        for which, versions in VERSIONS.items()
        for jobs in sorted(set(sizes[which]), reverse=True)
        for version in versions
        for seed in range(seeds)
    ]
    done = put_together(zip(tasks, run_cells(_outcome, tasks, jobs=processes), strict=True), lambda pair: pair[0][:3])
    return Study(seeds, {of: [outcome for _, outcome in pairs] for of, pairs in done.items()})


def _outcome(task: tuple[Which, Version, int, int, Costs | None]) -> WorkloadOutcome:
    which, version, jobs, seed, costs = task
    records = run_workload(which, version, jobs, seed, costs)
    resizes = [resize for record in records for resize in record.resizes]
    grown = [resize for resize in resizes if resize.action is Action.EXPAND]
    shrunk = [resize for resize in resizes if resize.action is Action.SHRINK]
    actions = Actions(
        len(grown) / jobs,
        _mean([resize.lasted_s for resize in grown]),
        len(shrunk) / jobs,
        _mean([resize.lasted_s for resize in shrunk]),
        _mean([float(not resize.done) for resize in grown]),
    )
    return WorkloadOutcome(measure(records, _MAKERS[which](0, seed, ApplicationKind.RIGID).nodes), actions)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
