"""The runs of `asa experiment shapes`: on real logs the same workflow at each single width, and with chosen shapes.

All meet the same queues. Two references are known only in hindsight: the form (Big Job, Per-Stage, chained, planned)
and single width that were best over all starts, and the width at which a plan was best at each start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack, cast

from asa.core import plugins
from asa.errors import InputError
from asa.estimators import WaitBank
from asa.runner import Run, run_all
from asa.shapes import Moldable, RunAt
from asa.strategies import load_strategy
from asa.studies.harness import How, Kind, code_digest, digest, fill
from asa.studies.others import Lot, effect_on_others, lot_of
from asa.studies.programs import BENCHMARKS
from asa.studies.runs import Known, completed, each_knowing, simulated
from asa.workflow import Stage, Workflow

CHOSEN = 0
"""In place of a width: the strategy chooses shapes."""

BIG_JOB = 112
"""Cores of the Big Job, whose core-hours are the reference."""

WIDTHS = (7, 14, 28, 56, 112, 224)
BENCHMARK_CHAIN = "benchmarks"
WORKFLOWS = ("montage", "blast", "statistics", BENCHMARK_CHAIN)
PLANNED, REFERENCE = "asa-plan", "big-job"
_FORMS = (REFERENCE, "per-stage", "chained", PLANNED)
_WINDOW_S = 43_200.0  # window after the client's arrival: other jobs submitted in it are followed
_LASTS_S = 3600.0  # run time of a benchmark at its smallest width
_CHAINED = ("lu.D", "ft.D, Grid'5000", "cg.D, Grid'5000", "bt.D")


@dataclass(frozen=True, slots=True)
class ShapeCell:
    """A unit of work: some workflows on one log, each in every form and width and in chosen shapes."""

    trace: str
    workflows: str  # names, separated by commas
    choosing: str  # strategies that choose shapes, separated by commas
    age_accrues: bool
    estimator: str
    starts: int
    history: int  # number of past jobs of all users that the estimator learns before each run
    log: str  # digest of the log; `code`: of all code
    code: str


@dataclass(frozen=True, slots=True)
class ShapeRun:
    """One run."""

    trace: str
    workflow: str
    age_accrues: bool
    strategy: str
    width: int
    start: int
    makespan_s: float
    core_hours: float
    others: int = 0  # number of other users' jobs that were pending when the run began, or came in the half day after
    longer_wait_s: float = 0.0  # by how much their mean wait is longer than in the same world without the run


@dataclass(frozen=True, slots=True)
class ShapeQuestion:
    """The parameters of the study."""

    traces: tuple[Path, ...]
    workflows: tuple[str, ...] = WORKFLOWS
    choosing: tuple[str, ...] = (PLANNED,)  # strategies that choose shapes
    age: tuple[bool, ...] = (True, False)  # rules to try: whether age accrues while a dependency holds a job
    estimator: str = "asa-queue"
    starts: int = 40
    history: int = 2000

    def cells(self) -> list[ShapeCell]:
        """Return all units of work. Those of a log are together, so that it is read once."""
        if self.starts < 2 or not (self.traces and self.workflows and self.choosing):
            raise InputError(
                "there is nothing to compare", hint="Give a log, a workflow, a strategy, and at least two starts."
            )
        for name in self.choosing:
            load_strategy(name)
        plugins.load("asa.estimators", self.estimator)
        kinds = {*_FORMS, *(name.partition(":")[0] for name in self.choosing)}
        named = [*(("strategies", kind) for kind in sorted(kinds)), ("estimators", self.estimator)]
        code = code_digest((f"asa.{kind}", name) for kind, name in named)
        cells: list[ShapeCell] = []
        for trace in self.traces:
            machine = simulated(trace=str(trace), age_accrues=True).capabilities.max_cores
            widths = _widths(machine)
            if len(widths) < 2:
                raise InputError("its machine is too small", where=str(trace), hint="Give the log of a larger one.")
            for workflow in self.workflows:
                moldable_workflow(workflow, machine)
            rest = (self.estimator, self.starts, self.history, digest([trace]), code)
            workflows, choosing = ",".join(self.workflows), ",".join(self.choosing)
            cells += [ShapeCell(str(trace), workflows, choosing, age, *rest) for age in self.age]
        return cells


def _arms(machine_cores: int, choosing: Iterable[str]) -> list[tuple[str, int]]:
    """Return the compared strategies, each with a width."""
    fixed = [(form, width) for form in _FORMS for width in _widths(machine_cores)]
    return [*fixed, *((strategy, CHOSEN) for strategy in choosing)]


def _widths(machine_cores: int) -> list[int]:
    return [width for width in WIDTHS if width <= machine_cores]


def widest(widths: Sequence[int]) -> int:
    """Return the largest width up to the reference's, a Big Job; if there is none, the smallest width."""
    return max((width for width in widths if width <= BIG_JOB), default=min(widths))


def moldable_workflow(name: str, machine_cores: int) -> Workflow:
    """Return a workflow whose parallel stages may have several widths: one of the paper's, or benchmarks."""
    if name == BENCHMARK_CHAIN:
        return Workflow(name, _benchmarks(machine_cores))
    widths = _widths(machine_cores)
    return cast("Workflow", plugins.load("asa.workflows", name)(widest(widths), widths))


def fixed_at(workflow: Workflow, width: int) -> Workflow:
    """Return a moldable workflow at one width. Big Job asks for as much as if it had been made for that width."""
    fixed = workflow.fixed(width)
    if workflow.name == BENCHMARK_CHAIN:
        return fixed
    made = cast("Workflow", plugins.load("asa.workflows", workflow.name)(width))
    return Workflow(fixed.name, fixed.stages.values(), walltime_s=made.walltime_s)


def _benchmarks(max_cores: int) -> Iterable[Stage]:
    """Yield benchmarks that follow each other, each repeated for an hour on its smallest number of cores."""
    before: tuple[str, ...] = ()
    for name in _CHAINED:
        fitting = {cores: run_s for cores, run_s in BENCHMARKS[name].items() if cores <= max_cores}
        if len(fitting) < 2:
            continue
        times = _LASTS_S / max(fitting.values())
        points = tuple(RunAt(cores, times * run_s) for cores, run_s in sorted(fitting.items(), reverse=True))
        own = points[0]
        stage = Stage(
            name.partition(",")[0],
            cores=own.width,
            walltime_s=1.5 * own.run_s,
            expected_run_s=own.run_s,
            after=before,
            command="true",
            moldable=Moldable(tuple(point.width for point in points), points),
        )
        before = (stage.name,)
        yield stage


def compare_ways(question: ShapeQuestion, kept: Path | None = None, **how: Unpack[How]) -> list[ShapeRun]:
    """Run every cell whose runs are not kept already; see `asa.studies.harness.fill`."""
    outcomes = fill(question.cells(), Kind(run_cell, ShapeCell, ShapeRun), kept, **how)
    return [run for runs in outcomes.values() for run in runs]


def run_cell(cell: ShapeCell) -> list[ShapeRun]:
    """Run all replications in the order of the log's time. All arms begin a replication with the same knowledge."""
    site = simulated(trace=cell.trace, age_accrues=cell.age_accrues)
    machine = site.capabilities.max_cores
    workflows = {name: moldable_workflow(name, machine) for name in cell.workflows.split(",")}
    bank = WaitBank(cell.estimator, machine_cores=machine)
    site.prepare(range(cell.starts))

    def run(known: Known) -> list[ShapeRun]:
        alone = site.open(known.seed)
        without = lot_of(alone, alone.now(), _WINDOW_S)
        return [
            _run(cell, (known, without), name, workflow, arm)
            for name, workflow in workflows.items()
            for arm in _arms(machine, cell.choosing.split(","))
        ]

    came = each_knowing(site, range(cell.starts), bank, cell.history, run)
    return [run for runs in came for run in runs]


def _run(
    cell: ShapeCell, known_and_without: tuple[Known, Lot], name: str, workflow: Workflow, arm: tuple[str, int]
) -> ShapeRun:
    (known, without), (strategy, width) = known_and_without, arm
    world, bank = known.begin()
    began_s = world.now()
    asked = workflow if width == CHOSEN else fixed_at(workflow, width)
    [result] = run_all(world, [Run(asked, load_strategy(strategy), bank=bank)], history=cell.history, is_followed=True)
    took = completed(asked, result, f"{cell.trace}, {name}, start {known.seed}")
    others = effect_on_others(without, lot_of(world, began_s, _WINDOW_S, without))
    of = (known.site.capabilities.system, name, cell.age_accrues, strategy, width, known.seed)
    return ShapeRun(*of, took.makespan_s, took.core_hours, others.jobs, others.longer_wait_s)
