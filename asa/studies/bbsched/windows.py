"""Records the windows that a scheduler meets, and times decisions about them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.genetic import Genetic
from asa.backends.bbsched.methods import BBSched, Solver
from asa.backends.bbsched.problem import Selection, Window, WindowProblem
from asa.backends.bbsched.scheduler import WindowScheduler, make_load
from asa.backends.bbsched.system import Free
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.table import NEVER, JobTable
from asa.studies.bbsched.workloads import Workload

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Decider:
    """A solver, the window size for which it is timed, and its time limit."""

    name: str
    solver: Solver  # computes fronts for BBSched
    window: int  # number of jobs in a window
    median_s: float | None = None  # upper bounds of a decision: for half of them, and for 99 of 100
    p99_s: float | None = None
    paper_s: float | None = None  # upper bound in the paper


DECIDERS: Final = (
    Decider("exact", Exact(), 20, median_s=0.005, p99_s=0.05),
    Decider("genetic, G=500", Genetic(), 20, median_s=0.05, paper_s=0.2),
    Decider("exact", Exact(), 50, median_s=0.2),
    Decider("genetic, G=500", Genetic(), 50),
    Decider("genetic, G=2000", Genetic(2000), 50, paper_s=2.0),
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of decisions."""

    solver: str
    window: int
    which: Literal["all", "fullest"]  # all windows that a scheduler met, or the quarter in which most jobs fit
    windows: int
    # over windows; each was decided several times and the fastest counts, since other processes disturb
    median_s: float
    p99_s: float
    worst_s: float
    exact: float  # share of decisions that are known to be optimal


class _Recorder:
    """BBSched, with a record of its windows."""

    def __init__(self) -> None:
        self._method = BBSched()
        self.met: list[WindowProblem] = []

    def select(self, window: Window, free: Free) -> Selection:
        """Select jobs of a window."""
        self.met.append(WindowProblem(window, free))
        return self._method.select(window, free)


def harvest(workload: Workload, window: int = 20, jobs: int = 1000) -> list[WindowProblem]:
    """Schedule the first jobs of a workload with BBSched, and return the windows that it had to decide, in order.

    `jobs`: number of jobs; the paper, too, takes 1000 of Theta's (Figs 2 and 4).
    """
    whole, recorder = workload.table, _Recorder()
    table = JobTable(*(column[:jobs] for column in (whole.submit, whole.run, whole.request, whole.cores)))
    demands = {name: asked[:jobs] for name, asked in workload.demands.items()}
    scheduler = WindowScheduler(workload.system, recorder, order=workload.order, window=window)
    core = GeneralCore(make_load(workload.system, table, demands), scheduler, now=int(table.submit[0]))
    core.run(NEVER - 1)
    return recorder.met


def fullest(problems: Sequence[WindowProblem]) -> list[WindowProblem]:
    """Return the quarter of the windows in which most jobs fit; most windows that a scheduler meets are easy."""
    ordered = sorted(problems, key=lambda problem: -len(problem.jobs))
    return ordered[: max(len(ordered) // 4, 1)]


def time_decisions(
    decider: Decider, problems: Iterable[WindowProblem], which: Literal["all", "fullest"] = "all"
) -> Timing:
    """Decide about windows, and measure the time.

    `problems`: the windows. Each is decided several times, and the fastest counts.
    """
    method = BBSched(decider.solver)
    measured: list[tuple[float, bool]] = []
    for problem in problems:
        if not measured:
            method.select(problem.window, problem.free)  # compiles the code first
        taken = []
        for _ in range(_TRIES):
            begin = time.perf_counter()
            selection = method.select(problem.window, problem.free)
            taken.append(time.perf_counter() - begin)
        measured.append((min(taken), selection.is_exact))
    seconds, exact = np.array(measured).T
    median_s, p99_s, worst_s = np.quantile(seconds, [0.5, 0.99, 1.0]).tolist()
    return Timing(
        decider.name, decider.window, which, len(measured), median_s, p99_s, worst_s, exact=float(exact.mean())
    )
