"""The exact Pareto front, and its replacement by an approximation in hard cases.

The paper searches for the front with a genetic algorithm, since there are ``2 ** w`` sets of jobs in a window of `w`.
But most of them need no test:

- The window is divided in two. The usages of all sets of the last jobs are listed once, without duplicates, as a tree
  of boxes. The first jobs are decided one after another. At the end of a branch the tree gives the sets that fit in
  addition and are not dominated.
- A branch is pruned as soon as a known solution is as good as all that it could reach. Good bounds of that are known:
  the possible sums of each resource, and the maximum of one for a limited other.
- A branch is also pruned if an earlier branch used the same, or no more of scarce resources and no less of others.
- Of jobs that use the same of scarce resources, the better ones are taken first, and of equal ones the first.
- As each job, in order, is first taken and then left, the first of equal solutions is nearest the head of the queue.
- In a large window some jobs often use all resources. So this is tried first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from asa.core.compiled import seen
from asa.errors import InputError

from . import exact_kernel as k
from .genetic import Genetic
from .problem import Front, WindowProblem
from .system import Integers

MAX_JOBS: Final = 62
"""Upper bound, because a set of jobs is a number with one bit for each."""
MAX_SOLUTIONS: Final = 1 << 13
_FEW_JOBS: Final = 24
"""Up to this number of jobs there is a single search, whose tree is small anyway."""
_FIRST_LABELS: Final = 1 << 10
_FIRST_WORK: Final = 4_000_000
"""Work of a first search for more jobs, which suffices for most windows."""
_AIMED_LABELS: Final = 1 << 16
_LABELS: Final = 1 << 15
"""With more labels, building the tree takes longer, and searching it is faster."""
_PLANTED, _GROWN = 250, 70
"""Work of adding a label to the tree, and of listing one without adding it."""
_ROOM: Final = 1 << 11
"""Number of listed sums; beyond it, any sum is assumed to be possible."""
_SEEN: Final = 1 << 16
"""Number of remembered branches."""
_NOT_FOUND: Final = -1
_HUGE: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Exact:
    """Finds the whole front, the paper's ``S*``, of any window that is not too hard.

    A window is too hard if the search takes more than `max_work`, if the front has more than `MAX_SOLUTIONS`, or if
    more than `MAX_JOBS` jobs would fit, each alone. Then the front combines the solutions found so far with those of a
    genetic algorithm. It is marked as not exact, and as found by "exact+genetic", or by "genetic" alone in the last
    case.
    """

    # upper bound of the search's work, in steps of about a nanosecond. Unlike a time limit it has the same effect on
    # any machine.
    max_work: int = 100_000_000
    otherwise: Genetic = field(default_factory=Genetic)

    def __post_init__(self) -> None:
        if self.max_work < 0:
            raise InputError(f"{self.max_work} steps cannot be taken", where="max_work", hint="Give 0 or more.")

    def solve(self, problem: WindowProblem) -> Front:
        """Find the front of a problem."""
        if not len(problem.jobs):
            return problem.front(np.zeros((1, 0), dtype=np.bool_), "exact", is_exact=True, work=0)
        if problem.has_room_for_all:
            picked = np.ones((1, len(problem.jobs)), dtype=np.bool_)
            return problem.front(picked, "exact", is_exact=True, work=0)
        if len(problem.jobs) > MAX_JOBS:
            return self.otherwise.solve(problem)
        search = _Search(problem)
        if len(problem.jobs) <= _FEW_JOBS:
            search.plant(_LABELS)
            fronts = [search.run(self.max_work)]
        else:
            search.plant(_FIRST_LABELS)
            fronts = [search.run(min(_FIRST_WORK, self.max_work))]
            if not fronts[0].is_exact and search.work < self.max_work:
                if search.aim(_AIMED_LABELS):
                    corner = search.run((search.work + self.max_work) // 2)
                    if len(corner):
                        return corner
                search.plant(_LABELS)
                fronts.append(search.run(self.max_work, fronts[0]))
        if fronts[-1].is_exact:
            return fronts[-1]
        return _united(problem, [*fronts, self.otherwise.solve(problem)], search.work)


def _united(problem: WindowProblem, fronts: Sequence[Front], work: int) -> Front:
    """Combine several fronts that are not exact."""
    picked = np.concatenate([front.chosen for front in fronts])[:, problem.jobs]
    worth = np.concatenate([front.objectives for front in fronts])[:, problem.goals]
    kept = np.ones(len(worth), dtype=np.bool_)
    for row in range(len(worth)):
        if kept[row]:
            kept &= ~np.all(worth <= worth[row], axis=1)
            kept[row] = True
    return problem.front(picked[kept], "exact+genetic", is_exact=False, work=work)


class _Search:
    """Data of the kernels for a search; `plant` or `aim` precedes each `run`."""

    def __init__(self, problem: WindowProblem) -> None:
        self._problem, self.work = problem, 0
        flat, width, limited, kinds, losses, jobs, *_ = problem.layout
        self._needs = tuple(seen(bits) for bits in _preferred(problem))
        room = min(_ROOM, 1 << jobs)
        self._sums = np.empty((limited, jobs + 1, room), dtype=np.int64)
        self._counts = np.empty((limited, jobs + 1), dtype=np.int64)
        for part, spare in enumerate((problem.limits - problem.start[:limited]).tolist()):
            k.attain(flat, width, jobs, part, spare, room, seen(self._sums[part].ravel()), seen(self._counts[part]))
        pairs = [
            (what, per)
            for what in problem.goal_parts.tolist()
            for per in (0, *range(kinds, limited))
            if what < losses and what != per
        ]
        paired = np.empty((len(pairs), 2 * (jobs + 1) ** 2), dtype=np.int64)
        for (what, per), table in zip(pairs, paired, strict=True):
            order = _densest(problem.uses[:, what], problem.uses[:, per])
            k.add_up(flat, width, jobs, seen(order), what, per, seen(table))
        rest = np.zeros((jobs + 1, width), dtype=np.int64)
        rest[:jobs] = problem.uses[::-1].cumsum(axis=0)[::-1]
        self._bounds = (
            seen(rest.ravel()), seen(self._sums.ravel()), room, seen(self._counts.ravel()),
            seen(np.array(pairs, dtype=np.int64).ravel()), len(pairs), seen(paired.ravel()),
        )  # fmt: skip
        self._is_goal = np.zeros(width, dtype=np.bool_)
        self._is_goal[problem.goal_parts] = True
        self._known = np.empty((0, len(problem.goals)), dtype=np.int64)

    def _grow(self, max_labels: int) -> tuple[list[Integers], Integers, Integers]:
        """List the usages of sets of the last jobs, with a hash table of them; reserve space for as many again."""
        flat, width, limited, _, _, jobs, start, limits, *_ = self._problem.layout
        most = min(2 * max_labels, 2 << (jobs + 1) // 2)
        labels = [np.empty(most * n, dtype=np.int64) for n in (width, 1, width, 1)]
        table, found = np.empty(4 * most, dtype=np.int64), np.empty(4, dtype=np.int64)
        k.grow(
            flat, width, limited, start, limits, jobs, *self._needs, max_labels,
            *(seen(array) for array in labels), seen(table), seen(found),
        )  # fmt: skip
        return labels[2:] + labels[:2] if found[2] else labels, table, found

    def plant(self, max_labels: int) -> None:
        """Prepare a search for the whole front, with a tree that gets no further jobs beyond `max_labels` labels."""
        width = self._problem.uses.shape[1]
        labels, _, (count, self._first, *_) = self._grow(max_labels)
        nodes = 2
        while k.BUCKET * nodes < 2 * count:
            nodes *= 2
        boxes, stack = np.empty(4 * nodes * width, dtype=np.int64), np.empty(3 * 64, dtype=np.int64)
        k.plant(
            seen(labels[0]), seen(labels[1]), width, int(count), seen(np.empty(count, dtype=np.int64)), seen(boxes),
            seen(stack), seen(labels[2]), seen(labels[3]),
        )  # fmt: skip
        self.work += _PLANTED * int(count)
        nothing = seen(np.empty(1, dtype=np.int64))
        self._tree = (seen(labels[2]), seen(labels[3]), int(count), seen(boxes), seen(stack), nothing, 0, nothing)

    def aim(self, max_labels: int) -> bool:
        """Prepare a search for sets that use the maximum of each resource; False if not all resources are scarce."""
        problem = self._problem
        if not self._is_goal.all() or len(problem.limits) < len(self._is_goal):
            return False
        counts = self._counts[:, 0]
        most = self._sums[range(len(counts)), 0, np.maximum(counts, 1) - 1] + problem.start
        corner = np.where(counts < 0, problem.limits, most)
        labels, table, (count, self._first, _, size) = self._grow(max_labels)
        self.work += _GROWN * int(count)
        nothing = seen(np.empty(1, dtype=np.int64))
        self._tree = (
            seen(labels[0]), seen(labels[1]), int(count), nothing, nothing, seen(table), int(size), seen(corner)
        )  # fmt: skip
        # each row dominates all points that are below the corner in one part
        self._known = np.full((len(corner), len(corner)), _HUGE)
        np.fill_diagonal(self._known, corner - 1)
        return True

    def run(self, max_work: int, before: Front | None = None) -> Front:
        """Search, with at most `max_work`.

        `before`: earlier solutions. Worse ones are not searched, but equal ones are.
        """
        problem = self._problem
        known = self._known if before is None else before.objectives[:, problem.goals]
        flat, width, limited, kinds, losses, jobs, _, limits, goal_parts, goals, free, steps = problem.layout
        first, slots = int(self._first), min(_SEEN, 4 << int(self._first))
        usage = np.zeros((first + 1, width), dtype=np.int64)
        usage[0] = problem.start
        points, sets = np.empty(MAX_SOLUTIONS * goals, dtype=np.int64), np.full(MAX_SOLUTIONS, _NOT_FOUND)
        points[: known.size] = known.ravel()
        outcome = np.empty(2, dtype=np.int64)
        lengths = (first + 1, first + 1, width, width, goals, goals, slots * width)
        many = k.search(
            flat, width, limited, kinds, losses, jobs, limits, *self._needs, goal_parts, goals,
            seen(self._is_goal.astype(np.int64)), free, steps, *self._bounds, first, *self._tree, seen(usage.ravel()),
            *(seen(np.empty(n, dtype=np.int64)) for n in lengths), seen(np.full(slots, -1)), slots,
            seen(points), seen(sets), len(known), MAX_SOLUTIONS, max_work - self.work, seen(outcome),
        )  # fmt: skip
        self.work += int(outcome[0])
        found = sets[:many][sets[:many] != _NOT_FOUND]
        picked = (found[:, None] >> np.arange(jobs)[::-1] & 1).astype(np.bool_)
        return problem.front(picked, "exact", is_exact=not outcome[1], work=self.work)


def _densest(what: Integers, per: Integers) -> Integers:
    """Sort jobs by their ratio of one resource to another, the highest first."""
    ratio = np.full(len(what), np.inf)
    np.divide(what, per, out=ratio, where=per > 0)
    return np.argsort(-ratio, kind="stable")


def _preferred(problem: WindowProblem) -> tuple[Integers, Integers]:
    """Return two sets for each job: the jobs that its selection requires, and the jobs whose selection requires it.

    No solution has a job that could be replaced by one with the same use of scarce resources and a higher value, or an
    equal value and a place nearer the head.
    """
    uses, jobs = problem.uses, len(problem.jobs)
    parts = np.arange(uses.shape[1])
    is_goal = np.isin(parts, problem.goal_parts)
    is_limited = parts < len(problem.limits)
    if problem.kinds > 1 and (problem.goal_parts >= problem.losses).any():
        is_equal = is_limited & (is_goal | (parts < problem.kinds))
    else:
        is_equal = is_limited & is_goal
    more = uses[None, :, :] - uses[:, None, :]  # [i, j]: excess of the usage of j over that of i
    is_better = (
        (more[:, :, is_equal] == 0).all(axis=2)
        & (more[:, :, is_limited & ~is_equal] <= 0).all(axis=2)
        & (more[:, :, is_goal & ~is_limited] >= 0).all(axis=2)
    )
    is_worth_more = (more[:, :, is_goal & ~is_limited] > 0).any(axis=2)
    is_better &= is_worth_more | np.tri(jobs, k=-1, dtype=np.bool_)  # equal in value, but earlier
    bits = np.left_shift(1, np.arange(jobs)[::-1])
    return is_better @ bits, is_better.T @ bits
