"""Solves a window by trying every selection of its jobs, as the paper does for comparison (Section 3.2.2, Fig. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from asa.core.compiled import seen
from asa.errors import InputError

from . import exhaustive_kernel as k
from .problem import Front, WindowProblem

_MAX_JOBS: Final = 40  # which takes an hour


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Finds the front of nodes and one shared resource by trying every selection: O(2^jobs)."""

    def solve(self, problem: WindowProblem) -> Front:
        """Find the front of a problem.

        Raises `InputError`: the machine has other resources than nodes and a shared one, or the jobs are too many.
        """
        jobs = len(problem.jobs)
        if len(problem.window.system.objectives) != 2 or len(problem.goals) != 2 or jobs > _MAX_JOBS:
            raise InputError(
                f"every selection of {jobs} jobs, by {len(problem.goals)} objectives, is not tried",
                where="exhaustive",
                hint=f"Give at most {_MAX_JOBS} jobs on a machine with nodes and one shared resource.",
            )
        best = np.full(int(problem.limits[0]) + 1, -1, dtype=np.int64)
        sets = np.zeros(len(best), dtype=np.int64)
        k.try_all(seen(problem.uses.ravel()), jobs, seen(problem.limits), seen(problem.start), seen(best), seen(sets))
        from_most = best[::-1]  # from most nodes on, what has more of the other resource than all before
        is_better = from_most > np.concatenate([[-1], np.maximum.accumulate(from_most)[:-1]])
        rows = (sets[::-1][is_better, None] >> np.arange(jobs)[::-1] & 1).astype(np.bool_)
        return problem.front(rows, "exhaustive", is_exact=True, work=1 << jobs)
