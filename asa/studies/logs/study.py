"""The runs of `asa experiment strategies`: on real logs every strategy meets the same queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Unpack

from asa.backend import Backend
from asa.core import plugins
from asa.errors import InputError
from asa.estimators import WaitBank
from asa.runner import Run, run_all
from asa.strategies import lacking, load_strategy
from asa.studies.compare.study import workflow_maker
from asa.studies.harness import How, Kind, code_digest, digest, fill
from asa.studies.runs import completed, figures, one_by_one, put_together, refuse_wider, simulated
from asa.studies.standings import QUICK_BASE, THRIFTY_BASE, Standing
from asa.studies.standings import standings as side_by_side

_SIZES = (640, 320, 160, 112, 56, 28)
_SHARE = 2  # of the machine: jobs wider than a half are not compared


@dataclass(frozen=True, slots=True)
class LogCell:
    """A unit of work: one strategy on one log, with one estimator that learns from run to run."""

    trace: str
    workflow: str
    cores: int
    age_accrues: bool
    shrink: bool
    strategy: str
    estimator: str
    starts: int
    history: int  # number of past jobs of all users that the estimator learns before each run
    log: str  # digest of the log; `code`: of all code. Another digest makes another cell
    code: str


@dataclass(frozen=True, slots=True)
class LogRun:
    """One run."""

    trace: str
    workflow: str
    cores: int
    age_accrues: bool
    shrink: bool
    strategy: str
    start: int
    makespan_s: float
    core_hours: float
    overhead_core_hours: float
    # sum of the waits of stages after their predecessors had ended, without the wait of the first stage
    perceived_wait_s: float
    total_wait_s: float


@dataclass(frozen=True, slots=True)
class Contest:
    """The parameters of the study."""

    traces: tuple[Path, ...]
    workflows: tuple[str, ...] = ("montage", "statistics")
    # names; Big Job and Per-Stage always run, as they are the references
    strategies: tuple[str, ...] = ("chained", "asa", "asa-naive", "asa-plan", "elastic")
    cores: tuple[int, ...] = ()  # peak sizes; by default three for each log that fit its machine
    age: tuple[bool, ...] = (True, False)  # rules to try: whether age accrues while a dependency holds a job
    shrink: bool = True  # whether a running job can give cores back
    estimator: str = "queue"
    starts: int = 40
    history: int = 2000  # number of past jobs of all users that the estimator learns before each run

    def cells(self) -> list[LogCell]:
        """Return all units of work. Those of a log are together, so that it is read once."""
        if self.starts < 1 or not self.traces or not self.workflows:
            raise InputError("there is nothing to run", hint="Give a log, a workflow, and at least one start.")
        for name in self.workflows:
            workflow_maker(name)
        plugins.load("asa.estimators", self.estimator)
        names = dict.fromkeys((QUICK_BASE, THRIFTY_BASE, *self.strategies))
        for name in names:
            load_strategy(name)
        cells = []
        for trace in self.traces:
            machine = simulated(trace=str(trace), age_accrues=True, shrink=True).capabilities.max_cores
            sizes = self.cores or peak_sizes(machine)
            refuse_wider(sizes, machine, str(trace))
            log = digest([trace])
            for age, workflow, cores, strategy in product(self.age, self.workflows, sizes, names):
                named = [("workflows", workflow), ("strategies", strategy), ("estimators", self.estimator)]
                code = code_digest((f"asa.{kind}", name) for kind, name in named)
                settings = (age, self.shrink, strategy, self.estimator, self.starts, self.history, log, code)
                cells.append(LogCell(str(trace), workflow, cores, *settings))
        return cells


def peak_sizes(machine_cores: int) -> tuple[int, ...]:
    """Return the three largest of the paper's sizes that fit twice into the machine; if none fits, smaller sizes.

    Returns: cores, ascending; if none of the paper's sizes fits, a single one, half the machine.

    Examples
    --------
    >>> peak_sizes(338), peak_sizes(1728)
    ((56, 112, 160), (160, 320, 640))
    """
    fitting = [size for size in _SIZES if size * _SHARE <= machine_cores]
    return tuple(sorted(fitting[:3])) or (max(machine_cores // _SHARE, 1),)


def compare_ways(contest: Contest, kept: Path | None = None, **how: Unpack[How]) -> list[LogRun]:
    """Run every cell whose runs are not kept already; see `asa.studies.harness.fill`."""
    outcomes = fill(contest.cells(), Kind(run_cell, LogCell, LogRun), kept, **how)
    return [trial for trials in outcomes.values() for trial in trials]


def run_cell(cell: LogCell) -> list[LogRun]:
    """Run all replications of one strategy in the order of the log's time, with one estimator."""
    site = simulated(trace=cell.trace, age_accrues=cell.age_accrues, shrink=cell.shrink)
    if lack := lacking(load_strategy(cell.strategy), site.capabilities):
        raise InputError(lack, where=f"strategy {cell.strategy!r}", hint="Take another.")
    workflow = workflow_maker(cell.workflow)(cell.cores)
    bank = WaitBank(cell.estimator, machine_cores=site.capabilities.max_cores)

    def run(start: int, world: Backend) -> LogRun:
        [result] = run_all(world, [Run(workflow, load_strategy(cell.strategy), bank=bank)], history=cell.history)
        took = figures(workflow, completed(workflow, result, f"{cell.trace}, {cell.strategy}, start {start}"))
        rules = (cell.age_accrues, cell.shrink, cell.strategy)
        return LogRun(site.capabilities.system, cell.workflow, cell.cores, *rules, start, *took)

    site.prepare(range(cell.starts))
    return one_by_one(site, range(cell.starts), run)


# ---------------------------------------------------------------------- results


def standings(trials: Iterable[LogRun]) -> dict[bool, list[Standing]]:
    """Return the results of each strategy under each rule: with and without the age of held jobs accruing."""
    return {
        age: side_by_side(of, lambda run: (run.trace, (run.workflow, run.cores)), lambda run: run.start)
        for age, of in put_together(trials, lambda run: run.age_accrues).items()
    }
