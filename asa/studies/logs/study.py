"""What `asa experiment strategies` runs: on real logs every strategy meets the same queues."""

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
_SHARE = 2  # of the machine: wider jobs than a half are not what it is for


@dataclass(frozen=True, slots=True)
class LogCell:
    """What is run in one go: one strategy on one log, with one estimator that learns from run to run."""

    trace: str
    workflow: str
    cores: int
    age_accrues: bool
    shrink: bool
    strategy: str
    estimator: str
    starts: int
    history: int  # past jobs of everybody that the estimator learns at each
    log: str  # digests of the log, and of all code: what other code did, or on another log, is another cell
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
    # how long stages waited after those that they follow had ended, added up; without the wait before the first
    perceived_wait_s: float
    total_wait_s: float


@dataclass(frozen=True, slots=True)
class Contest:
    """What to find out."""

    traces: tuple[Path, ...]
    workflows: tuple[str, ...] = ("montage", "statistics")
    # names; Big Job and Per-Stage run anyway, as the others are measured by them
    strategies: tuple[str, ...] = ("chained", "asa", "asa-naive", "asa-plan", "elastic")
    cores: tuple[int, ...] = ()  # peak sizes; for each log three that fit its machine, if not given
    age: tuple[bool, ...] = (True, False)  # rules to try: whether age accrues
    shrink: bool = True  # whether a running job can give cores back
    estimator: str = "queue"
    starts: int = 40
    history: int = 2000  # past jobs of everybody that the estimator learns at each

    def cells(self) -> list[LogCell]:
        """All that is to be run; a log's cells together, as it is read once for them."""
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
    """Give the three largest of the paper's sizes of which two fit the machine side by side; smaller ones if none do.

    Returns: cores, ascending; a single size, half the machine, if none of the paper's fits.

    Examples
    --------
    >>> peak_sizes(338), peak_sizes(1728)
    ((56, 112, 160), (160, 320, 640))
    """
    fitting = [size for size in _SIZES if size * _SHARE <= machine_cores]
    return tuple(sorted(fitting[:3])) or (max(machine_cores // _SHARE, 1),)


def compare_ways(contest: Contest, kept: Path | None = None, **how: Unpack[How]) -> list[LogRun]:
    """Run every cell, unless its runs are kept already; see `asa.studies.harness.fill`."""
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


# ---------------------------------------------------------------------- what came out


def standings(trials: Iterable[LogRun]) -> dict[bool, list[Standing]]:
    """Work out how each strategy did under each rule: where the age of dependent jobs accrues, and where not."""
    return {
        age: side_by_side(of, lambda run: (run.trace, (run.workflow, run.cores)), lambda run: run.start)
        for age, of in put_together(trials, lambda run: run.age_accrues).items()
    }
