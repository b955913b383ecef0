"""The paper's genetic algorithm, and the distance of its result from the true front (Sections 3.2.2 and 3.2.3).

Choices where the paper leaves them open:

- A generation has as many children as parents. For each two children, two parents are drawn at random, and
  the position from which on their genes are swapped.
- Jobs that do not fit in addition to earlier ones are left out, in cyclic order from a random job on.
- Of solutions of equal value, one counts as a Pareto solution: that with the jobs nearest the head of the queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from asa.core.compiled import seen
from asa.errors import InputError

from . import genetic_kernel as k
from .problem import Front, WindowProblem

_SCRAMBLE: Final = 0x9E3779B9


@dataclass(frozen=True, slots=True)
class Genetic:
    """Approximates the front with a population of solutions that evolves."""

    generations: int = 500  # number of generations (the paper's `G`)
    population: int = 20  # number of solutions in a generation (`P`)
    mutation: float = 0.0005  # probability that a gene of a child flips (`p_m`)
    seed: int = 0  # equal seeds yield equal fronts

    def __post_init__(self) -> None:
        if self.generations < 0 or self.population < 1 or not 0 <= self.mutation <= 1:
            raise InputError(
                f"{self.population} solutions cannot evolve for {self.generations} generations with {self.mutation}"
                " mutations a gene",
                where="genetic",
                hint="Give no fewer than 0 generations, a population from 1 on, and a probability.",
            )

    def solve(self, problem: WindowProblem) -> Front:
        """Approximate the front of a problem."""
        jobs, goals, rows = len(problem.jobs), len(problem.goals), 2 * self.population
        if not jobs:
            return problem.front(np.zeros((1, 0), dtype=np.bool_), "genetic", is_exact=True, work=0)
        genes = np.zeros((rows, jobs), dtype=np.int64)
        lengths = (rows * goals, rows, rows * jobs, rows * goals, rows, rows, problem.uses.shape[1])
        state = (self.seed * _SCRAMBLE + _SCRAMBLE) % ((1 << k.BITS) - 1) + 1
        many = k.evolve(
            *problem.layout, self.population, self.generations, round(self.mutation * (1 << k.BITS)),
            seen(np.array([state])), seen(genes.ravel()), *(seen(np.zeros(n, dtype=np.int64)) for n in lengths),
        )  # fmt: skip
        work = self.generations * self.population
        return problem.front(genes[:many] > 0, "genetic", is_exact=False, work=work)
