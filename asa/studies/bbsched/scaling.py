"""The time to solve a window by its size: by trying every selection, exactly and by the genetic algorithm (Fig. 2)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.exhaustive import Exhaustive
from asa.backends.bbsched.genetic import Genetic
from asa.backends.bbsched.methods import Solver
from asa.backends.bbsched.problem import Window, WindowProblem
from asa.backends.bbsched.system import NODES
from asa.studies.bbsched.workloads import Workload

SOLVERS: Final[dict[str, Solver]] = {"exhaustive": Exhaustive(), "exact": Exact(), "genetic": Genetic()}
"""As the paper's figure has them; it has no exact solver but the first."""
SIZES: Final = (5, 10, 15, 20, 25, 30, 35, 40, 50)
LIMIT_S: Final = 30.0
"""The longest that a scheduler may take to respond, in the paper."""

_EASY: Final = 12  # size of windows that are soon solved in any way
_MOST_WINDOWS: Final = 20
_MOST_TRIED: Final = 1 << 27  # selections, over all windows of a size


@dataclass(frozen=True, slots=True)
class SolutionTime:
    """The average time to solve windows of a size."""

    window: int
    solver: str
    windows: int  # number of windows that were solved; 0 if the time is extrapolated
    seconds: float
    exact: float  # share of the solutions that are known to be the true front


def windows_of(workload: Workload, size: int, jobs: int) -> Iterator[WindowProblem]:
    """Cut the first jobs of a workload into windows, each on the empty machine, so that all its jobs matter."""
    for begin in range(0, min(jobs, len(workload.table)) - size + 1, size):
        part = slice(begin, begin + size)
        demands = {NODES: workload.table.cores[part], **{name: of[part] for name, of in workload.demands.items()}}
        yield WindowProblem(Window(workload.system, demands), workload.system.whole)


def time_by_size(
    workload: Workload, sizes: Sequence[int] = SIZES, jobs: int = 1000, exhaustive_to: int = 25
) -> list[SolutionTime]:
    """Measure how long the solvers take by the size of the window.

    `jobs`: number of jobs that windows are cut from; the paper, too, takes the first 1000 of Theta's.
    `exhaustive_to`: larger windows are not searched exhaustively; their time doubles with each job.
    """
    for size in (min(*sizes, _EASY), _EASY):
        for problem in windows_of(workload, size, jobs):
            for solver in SOLVERS.values():
                solver.solve(problem)  # compiles the code first
    found = []
    for name, solver in SOLVERS.items():
        last: SolutionTime | None = None
        for size in sorted(sizes):
            if name == "exhaustive" and size > exhaustive_to:
                if last is not None:
                    found.append(SolutionTime(size, name, 0, last.seconds * math.ldexp(1, size - last.window), 1.0))
                continue
            most = min(_MOST_WINDOWS, max(_MOST_TRIED >> size, 1)) if name == "exhaustive" else _MOST_WINDOWS
            seconds, exact = [], []
            for problem, _ in zip(windows_of(workload, size, jobs), range(most), strict=False):
                begin = time.perf_counter()
                exact.append(solver.solve(problem).is_exact)
                seconds.append(time.perf_counter() - begin)
            if seconds:
                last = SolutionTime(size, name, len(seconds), float(np.mean(seconds)), float(np.mean(exact)))
                found.append(last)
    return found
