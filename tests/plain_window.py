"""Every selection of a window's jobs, one after another: slow and plain, written apart from the package's.

A job is a dictionary of what it asks for. Where nodes differ, all ways to spread jobs over them are tried.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple


class Solution(NamedTuple):
    """Positions of jobs in the window, and their values."""

    jobs: tuple
    objectives: tuple


def solutions(found):
    """The solutions of a front that was searched for, in its order."""
    return [
        Solution(tuple(chosen.nonzero()[0].tolist()), tuple(worth.tolist()))
        for chosen, worth in zip(found.chosen, found.objectives, strict=True)
    ]


def least_waste(jobs, kinds, free_nodes, name):
    """The least that jobs can waste of a resource of the nodes, over all ways to give them nodes; None if none will do.

    `kinds` tells what a node of each kind has of every resource.
    """
    names = set().union(*kinds)

    @cache
    def rest(place, left):
        if place == len(jobs):
            return 0
        job, best = jobs[place], None
        for spread in itertools.product(*(range(min(job["nodes"], n) + 1) for n in left)):
            if sum(spread) != job["nodes"]:
                continue
            if any(
                n and kind.get(of, 0) < job.get(of, 0) for n, kind in zip(spread, kinds, strict=True) for of in names
            ):
                continue
            others = rest(place + 1, tuple(a - b for a, b in zip(left, spread, strict=True)))
            if others is not None:
                wasted = sum(n * (kind.get(name, 0) - job.get(name, 0)) for n, kind in zip(spread, kinds, strict=True))
                best = others + wasted if best is None else min(best, others + wasted)
        return best

    return rest(0, tuple(free_nodes))


def worth(jobs, kinds, free_nodes, shared):
    """What jobs are worth together: nodes, what is shared, what each node has, and what of that is wasted, less than 0.

    None if they do not fit. `shared` tells what is free of each shared resource.
    """
    own = list(dict.fromkeys(name for kind in kinds for name in kind))
    nodes = sum(job["nodes"] for job in jobs)
    if nodes > sum(free_nodes) or any(sum(job.get(name, 0) for job in jobs) > most for name, most in shared.items()):
        return None
    wasted = [least_waste(jobs, kinds, free_nodes, name) for name in own]
    if None in wasted:
        return None
    used = [sum(job["nodes"] * job.get(name, 0) for job in jobs) for name in own]
    return (nodes, *(sum(job.get(name, 0) for job in jobs) for name in shared), *used, *(-amount for amount in wasted))


def all_worth(jobs, kinds, free_nodes, shared, forced=()):
    """What every set of jobs that fits is worth, nearest the front first; each contains the forced jobs that fit."""
    must = []
    for job in forced:
        if worth([jobs[i] for i in [*must, job]], kinds, free_nodes, shared) is not None:
            must.append(job)
    found = {}
    for bits in itertools.product((True, False), repeat=len(jobs)):
        if all(bits[job] for job in must):
            chosen = tuple(itertools.compress(range(len(jobs)), bits))
            value = worth([jobs[i] for i in chosen], kinds, free_nodes, shared)
            if value is not None:
                found[chosen] = value
    return found


def front(found, goals=None):
    """The solutions of which none is bettered in some goals, the first of those that are equal: jobs and worth."""
    first = {}
    for chosen, value in found.items():
        first.setdefault(tuple(value if goals is None else [value[goal] for goal in goals]), (chosen, value))
    best = []
    for value in sorted(first, reverse=True):
        if not any(all(a >= b for a, b in zip(other, value, strict=True)) for other in best):
            best.append(value)
    return [first[value] for value in best]
