"""The distance of solutions from the exact front, by number of generations and size of the population (Fig. 4)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.genetic import Genetic
from asa.backends.bbsched.problem import WindowProblem
from asa.errors import InputError


def generational_distance(found: ArrayLike, true: ArrayLike, whole: ArrayLike = 1) -> float:
    """Return the mean distance of solutions from their nearest solutions on the exact front (Section 3.2.3).

    `whole`: divisor of each objective, such as `System.totals` for shares of the machine.

    Examples
    --------
    >>> generational_distance([[90, 20], [80, 90]], [[100, 20], [80, 90]])
    5.0
    """
    rows, best = (np.atleast_2d(np.asarray(points)) / np.asarray(whole) for points in (found, true))
    squares = ((rows[:, None, :] - best[None, :, :]) ** 2).sum(axis=2)
    return float(np.sqrt(squares.min(axis=1)).mean())


class Distance(NamedTuple):
    """The mean distance of the genetic algorithm's solutions from the exact ones, and the time that it takes.

    Distances are of shares of the machine.
    """

    generations: int
    population: int
    distance: float  # generational distance, in shares of the machine
    seconds: float


def gd_curve(
    problems: Iterable[WindowProblem],
    generations: Sequence[int] = (0, 100, 200, 500, 1000, 2000),
    populations: Sequence[int] = (10, 20, 30),
    seed: int = 0,
) -> list[Distance]:
    """Measure distance and time over generations, for some sizes of the population.

    `problems`: both are averaged over these. Those too hard for an exact solution are left out.
    """
    exact = Exact()
    fronts = [(problem, front) for problem in problems if (front := exact.solve(problem)).is_exact]
    if not fronts:
        raise InputError(
            "of no window the true front is known", where="distance", hint="Give some windows of at most 20 jobs."
        )
    curve = []
    for population in populations:
        for count in generations:
            solver, distances, begin = Genetic(count, population), [], time.perf_counter()
            found = [replace(solver, seed=seed + i).solve(problem) for i, (problem, _) in enumerate(fronts)]
            seconds = (time.perf_counter() - begin) / len(fronts)
            for (problem, true), front in zip(fronts, found, strict=True):
                goals = problem.goals
                whole = np.array(problem.window.system.totals)[goals]
                distances.append(generational_distance(front.objectives[:, goals], true.objectives[:, goals], whole))
            curve.append(Distance(count, population, float(np.mean(distances)), seconds))
    return curve
