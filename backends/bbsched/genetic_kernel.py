"""The loop of the genetic algorithm over generations (Section 3.2.2).

Chromosomes are rows of genes, 1 or 0 for each job; the population lies before its children. Usages are laid out as in
`exact_kernel`.
"""

from __future__ import annotations

from typing import Any

from asa.core.compiled import kernel

from .exact_kernel import wasted

BITS = 32
_ALL = (1 << BITS) - 1


@kernel
def _draw(state: Any) -> int:
    """Draw a number of `BITS` bits (Marsaglia's xorshift)."""
    x = state[0]
    x ^= (x << 13) & _ALL
    x ^= x >> 17
    x ^= (x << 5) & _ALL
    state[0] = x
    drawn: int = x
    return drawn


@kernel
def _below(state: Any, n: int) -> int:
    drawn: int = (_draw(state) * n) >> BITS
    return drawn


@kernel
def _settle(
    uses: Any, width: int, limited: int, kinds: int, losses: int, jobs: int, start: Any, limits: Any,
    goal_parts: Any, goals: int, free: Any, steps: Any, genes: Any, row: int, since: int, usage: Any, values: Any,
) -> None:  # fmt: skip
    """Remove jobs that do not fit with earlier jobs, in cyclic order from a given job on, and evaluate the rest."""
    for k in range(width):
        usage[k] = start[k]
    for i in range(jobs):
        job = since + i
        if job >= jobs:
            job -= jobs
        if genes[row * jobs + job]:
            is_in = True
            for k in range(limited):
                if usage[k] + uses[job * width + k] > limits[k]:
                    is_in = False
                    break
            if is_in:
                for k in range(width):
                    usage[k] += uses[job * width + k]
            else:
                genes[row * jobs + job] = 0
    for g in range(goals):
        part = goal_parts[g]
        values[row * goals + g] = usage[part]
        if part >= losses and kinds > 1:
            values[row * goals + g] -= wasted(usage, usage, kinds, free, steps, (part - losses) * (kinds - 1))


@kernel
def _is_beaten(genes: Any, jobs: int, values: Any, goals: int, row: int, other: int) -> bool:
    """Whether another solution is nowhere worse, and better somewhere, or equal and nearer the front or earlier."""
    is_better = False
    for g in range(goals):
        if values[other * goals + g] < values[row * goals + g]:
            return False
        if values[other * goals + g] > values[row * goals + g]:
            is_better = True
    if is_better:
        return True
    for i in range(jobs):
        if genes[other * jobs + i] != genes[row * jobs + i]:
            return bool(genes[other * jobs + i])
    return other < row


@kernel
def evolve(
    uses: Any, width: int, limited: int, kinds: int, losses: int, jobs: int, start: Any, limits: Any,
    goal_parts: Any, goals: int, free: Any, steps: Any,
    population: int, generations: int, mutation: int, state: Any,
    genes: Any, values: Any, ages: Any, old_genes: Any, old_values: Any, old_ages: Any, order: Any, usage: Any,
) -> int:  # fmt: skip
    """Let a population evolve; return the number of Pareto solutions among its chromosomes, which come first."""
    for row in range(population):
        for i in range(jobs):
            genes[row * jobs + i] = _draw(state) & 1
        ages[row] = 0
        _settle(
            uses, width, limited, kinds, losses, jobs, start, limits, goal_parts, goals, free, steps,
            genes, row, _below(state, jobs), usage, values,
        )  # fmt: skip
    many: int = select(genes, jobs, values, goals, ages, population, population, old_genes, old_values, old_ages, order)
    for _ in range(generations):
        row = population
        while row < 2 * population:
            one, other = _below(state, population), _below(state, population)
            cut = _below(state, jobs + 1)
            for child in range(row, min(row + 2, 2 * population)):
                for i in range(jobs):
                    parent = one if i < cut else other
                    gene = genes[parent * jobs + i]
                    if _draw(state) < mutation:
                        gene = 1 - gene
                    genes[child * jobs + i] = gene
                ages[child] = -1
                _settle(
                    uses, width, limited, kinds, losses, jobs, start, limits, goal_parts, goals, free, steps,
                    genes, child, _below(state, jobs), usage, values,
                )  # fmt: skip
                one, other = other, one
            row += 2
        for i in range(2 * population):
            ages[i] += 1
        many = select(
            genes, jobs, values, goals, ages, 2 * population, population, old_genes, old_values, old_ages, order
        )
    return many


@kernel
def select(
    genes: Any, jobs: int, values: Any, goals: int, ages: Any, count: int, population: int,
    old_genes: Any, old_values: Any, old_ages: Any, order: Any,
) -> int:  # fmt: skip
    """Keep Pareto solutions (Set 1), then others (Set 2), newer solutions first in each; return the size of Set 1."""
    for i in range(count * jobs):
        old_genes[i] = genes[i]
    for i in range(count * goals):
        old_values[i] = values[i]
    for i in range(count):
        old_ages[i] = ages[i]
    many = 0
    for i in range(count):
        is_best = True
        for other in range(count):
            if other != i and _is_beaten(old_genes, jobs, old_values, goals, i, other):
                is_best = False
                break
        # in order of set, age and position
        place = i
        rank = old_ages[i] if is_best else old_ages[i] + (1 << 40)
        while place > 0 and ages[order[place - 1]] > rank:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
        ages[i] = rank
        many += is_best
    for row in range(min(count, population)):
        i = order[row]
        for j in range(jobs):
            genes[row * jobs + j] = old_genes[i * jobs + j]
        for g in range(goals):
            values[row * goals + g] = old_values[i * goals + g]
    for row in range(min(count, population)):
        ages[row] = old_ages[order[row]]
    return min(many, population)
