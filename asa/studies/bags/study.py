"""The runs of `asa experiment bags`: on real logs the tasks of one stage in one wide job, and in several jobs.

All variants meet the same queues, and hold the same number of cores together. The number of jobs that is best over all
starts is known only in hindsight; from a range, asa takes the largest number. Tasks are so many and so small that their
work is treated as a fluid: the end of a job's walltime loses at most one task per core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from asa.backend import Site
from asa.errors import InputError
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.studies.harness import How, Kind, code_digest, digest, fill
from asa.studies.others import Lot, effect_on_others, lot_of
from asa.studies.runs import completed, one_by_one, simulated
from asa.workflow import Stage, Workflow

SIZES = (112, 56)
"""Cores of all jobs together; the first one that the machine has is used."""

COUNTS = (1, 2, 4, 8, 16, 28, 56, 112)
"""Numbers of jobs that share the tasks, if they can share the cores evenly."""

_STRATEGY = "per-stage"
_WINDOW_S = 43_200.0  # window after the client's arrival: other jobs submitted in it are followed
_SAFETY = 1.25  # factor of the walltime on the time that all cores together need
_TASKS_A_CORE = 20
_LONGEST_H = 1000.0


@dataclass(frozen=True, slots=True)
class BagCell:
    """A unit of work: bags of one size on one log."""

    trace: str
    hours: float  # time that all cores together need
    starts: int
    log: str  # digest of the log; `code`: of all code
    code: str


@dataclass(frozen=True, slots=True)
class BagRun:
    """One run."""

    trace: str
    cores: int  # of all jobs together
    hours: float
    jobs: int
    start: int
    makespan_s: float
    core_hours: float
    longer_wait_s: float  # by how much the other jobs' mean wait is longer than in the same world without the bag


@dataclass(frozen=True, slots=True)
class BagQuestion:
    """The parameters of the study."""

    traces: tuple[Path, ...]
    hours: tuple[float, ...] = (1.0, 12.0)
    starts: int = 40

    def cells(self) -> list[BagCell]:
        """Return all units of work."""
        if self.starts < 2 or not self.traces or not self.hours:
            raise InputError("there is nothing to compare", hint="Give a log, hours above 0, and at least two starts.")
        if not all(0 < time_h <= _LONGEST_H for time_h in self.hours):
            given = ", ".join(f"{time_h:g}" for time_h in self.hours)
            raise InputError(f"bags of {given} hours cannot be", hint=f"Give hours above 0, at most {_LONGEST_H:g}.")
        code = code_digest([("asa.strategies", _STRATEGY)])
        cells = []
        for trace in self.traces:
            _cores(simulated(trace=str(trace)), str(trace))
            cells += [BagCell(str(trace), hours, self.starts, digest([trace]), code) for hours in self.hours]
        return cells


def bag(hours: float, cores: int, jobs: int) -> Workflow:
    """Return a workflow that consists of one bag."""
    run_s, tasks = 3600 * hours, ("true",) * (_TASKS_A_CORE * cores)
    stage = Stage("bag", cores=cores, walltime_s=_SAFETY * run_s, expected_run_s=run_s, tasks=tasks, jobs=(jobs, jobs))
    return Workflow("bag", [stage])


def _cores(site: Site, trace: str) -> int:
    machine = site.capabilities.max_cores
    fitting = next((cores for cores in SIZES if cores <= machine), None)
    if fitting is None:
        hint = f"Give the log of one that has {min(SIZES)} or more."
        raise InputError(f"its machine has {machine} cores", where=trace, hint=hint)
    return fitting


def compare_ways(question: BagQuestion, kept: Path | None = None, **how: Unpack[How]) -> list[BagRun]:
    """Run every cell whose runs are not kept already; see `asa.studies.harness.fill`."""
    outcomes = fill(question.cells(), Kind(run_cell, BagCell, BagRun), kept, **how)
    return [run for runs in outcomes.values() for run in runs]


def run_cell(cell: BagCell) -> list[BagRun]:
    """Run all replications."""
    site = simulated(trace=cell.trace)
    counts = [jobs for jobs in COUNTS if _cores(site, cell.trace) % jobs == 0]
    site.prepare(range(cell.starts))

    def runs(seed: int, alone: object) -> Sequence[BagRun]:
        del alone  # each gets its own world
        world = site.open(seed)
        without = lot_of(world, world.now(), _WINDOW_S)
        return [_run(cell, site, seed, jobs, without) for jobs in counts]

    return [run for of in one_by_one(site, range(cell.starts), runs) for run in of]


def _run(cell: BagCell, site: Site, seed: int, jobs: int, without: Lot) -> BagRun:
    cores = _cores(site, cell.trace)
    world, flow = site.open(seed), bag(cell.hours, cores, jobs)
    began_s = world.now()
    [result] = run_all(world, [Run(flow, load_strategy(_STRATEGY))])
    took = completed(flow, result, f"{cell.trace}, {jobs} jobs, start {seed}")
    others = effect_on_others(without, lot_of(world, began_s, _WINDOW_S, without))
    name = site.capabilities.system
    return BagRun(name, cores, cell.hours, jobs, seed, took.makespan_s, took.core_hours, others.longer_wait_s)
