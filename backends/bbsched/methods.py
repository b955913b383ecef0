"""The methods compared in the paper: each selects jobs of a window to start now (Sections 3.2.4, 4.3 and 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError, UnknownNameError, near

from .exact import Exact
from .genetic import Genetic
from .problem import Front, Selection, Window, WindowProblem, values
from .system import NODES, Free, Integers, System

_T = TypeVar("_T")


class Method(Protocol):
    """A way to select jobs."""

    def select(self, window: Window, free: Free) -> Selection:
        """Select jobs of a window that fit together into the free resources, including the forced ones."""
        ...


class Solver(Protocol):
    """A way to find a front, or an approximation."""

    def solve(self, problem: WindowProblem) -> Front:
        """Find the front of a problem."""
        ...


@dataclass(frozen=True, slots=True)
class Baseline:
    """The naive method: takes jobs in order until one does not fit, as in Slurm. The rest is left to backfilling."""

    def select(self, window: Window, free: Free) -> Selection:
        """Select jobs of a window."""
        problem = WindowProblem(window, free)
        chosen, left = list(problem.forced), problem.limits - problem.start[: len(problem.limits)]
        for job, uses in enumerate(window.uses[:, : len(left)]):
            if job in problem.forced:
                continue
            if (uses > left).any():
                break
            left = left - uses
            chosen.append(job)
        return _selection(problem, chosen)


@dataclass(frozen=True, slots=True)
class BinPacking:
    """While any job fits, takes the job whose request is best aligned with the free resources.

    That is the one with the largest dot product of its request and the free resources, both as shares of the machine
    (Grandl et al., SIGCOMM 2014); the first of several.
    """

    def select(self, window: Window, free: Free) -> Selection:
        """Select jobs of a window."""
        problem, system = WindowProblem(window, free), window.system
        resources = len(system.resources)
        totals = np.array(system.totals[:resources])
        asked = np.concatenate([window.uses[:, :1], window.uses[:, problem.kinds : problem.losses]], axis=1) / totals
        volumes = (np.array(free.nodes) @ system.each).tolist()
        chosen, used = list(problem.forced), problem.start
        while True:
            total = used[: len(problem.limits)] + window.uses[:, : len(problem.limits)]
            fits: NDArray[np.bool_] = np.all(total <= problem.limits, axis=1)
            fits[chosen] = False
            if not fits.any():
                return _selection(problem, chosen)
            worth = values(system, free, used[None, :])[0]
            taken = worth[:resources].copy()
            taken[resources - len(volumes) :] -= worth[resources:]  # a job's nodes include all their resources
            score = asked @ ((np.array([sum(free.nodes), *free.shared, *volumes]) - taken) / totals)
            job = int(np.where(fits, score, -np.inf).argmax())
            chosen.append(job)
            used = used + window.uses[job]


@dataclass(frozen=True, slots=True)
class Constrained:
    """Uses one resource as well as possible, with all others as constraints only."""

    objective: str = NODES  # the resource to use well
    # finds the optimum; of several equal ones, that with the jobs nearest the front
    solver: Solver = field(default_factory=Exact)

    def select(self, window: Window, free: Free) -> Selection:
        """Select jobs of a window."""
        return _chosen(self.solver.solve(WindowProblem(window, free, [self.objective])), 0)


@dataclass(frozen=True, slots=True)
class Weighted:
    """Maximises a weighted sum of objectives, as shares of the machine."""

    weights: Mapping[str, int] | None = None  # whole numbers for some objectives; all weigh the same if not given
    # finds the front, which contains the optimum; of several, that with the jobs nearest the front
    solver: Solver = field(default_factory=Exact)

    def __post_init__(self) -> None:
        for name, weight in (self.weights or {}).items():
            if weight < 0:
                raise InputError(
                    f"{name} cannot weigh {weight}", where="weighted", hint="Give whole numbers from 0 on, as percents."
                )
        if self.weights is not None and not any(self.weights.values()):
            raise InputError("nothing weighs anything", where="weighted", hint="Give one weight at least.")

    def select(self, window: Window, free: Free) -> Selection:
        """Select jobs of a window."""
        system = window.system
        weights = dict.fromkeys(system.objectives, 1) if self.weights is None else self.weights
        goals = [name for name, weight in weights.items() if weight]
        front = self.solver.solve(WindowProblem(window, free, goals))
        scale = _scale(system.totals)
        terms = [(system.objective(name), weights[name]) for name in goals]
        sums = [sum(weight * scale[o] * worth[o] for o, weight in terms) for worth in front.objectives.tolist()]
        return _chosen(front, _first(front, [row for row, total in enumerate(sums) if total == max(sums)]))


@dataclass(frozen=True, slots=True)
class BBSched:
    """The paper's scheme: finds the front, and trades nodes for other resources if that pays.

    It starts from the solution that uses most nodes; of several, that with the jobs nearest the head. It takes another
    one of the front instead if that gains more, over all other objectives, than `factor` times what it loses in nodes,
    as a share of the machine; of several such solutions, the one that gains most.

    The gain of a resource is a share of the machine. That of less waste is the reduction as a share of what the first
    solution wastes, "percentage of reduction" in the paper (Section 5). Where that solution wastes nothing of a
    resource, no percentage is defined, and none that wastes some replaces it.
    """

    solver: Solver = field(default_factory=Exact)  # finds the front: `Exact`, or the paper's `Genetic`
    # by default the number of objectives, as in the paper: 2 with two of them, 4 with four
    factor: int | None = None

    def select(self, window: Window, free: Free) -> Selection:
        """Select jobs of a window."""
        front = self.solver.solve(WindowProblem(window, free))
        return _chosen(front, self.prefer(window.system, front))

    def prefer(self, system: System, front: Front) -> int:
        """Return the index of the preferred solution in a front of all objectives (Section 3.2.4)."""
        factor = len(system.objectives) if self.factor is None else self.factor
        rows: list[list[int]] = front.objectives.tolist()
        most = max(row[0] for row in rows)
        base = _first(front, [place for place, row in enumerate(rows) if row[0] == most])
        used = len(system.resources)
        wasted = [-loss for loss in rows[base][used:]]
        scale = _scale([*system.totals[:used], *(waste or 1 for waste in wasted)])
        better: dict[int, tuple[int, int]] = {}  # gain and nodes, by index
        for place, row in enumerate(rows):
            gain = sum((value - old) * by for value, old, by in zip(row[1:], rows[base][1:], scale[1:], strict=True))
            wastes_first = any(loss and not waste for loss, waste in zip(row[used:], wasted, strict=True))
            if gain > factor * (most - row[0]) * scale[0] and not wastes_first:
                better[place] = gain, row[0]
        best = max(better.values(), default=None)
        return base if best is None else _first(front, [place for place, gain in better.items() if gain == best])


# ---------------------------------------------------------------------- by name


def _shared(system: System) -> str:
    return _one_of(tuple(system.shared), "shared by all nodes, as a burst buffer is")


def _per_node(system: System) -> str:
    return _one_of(system.per_node, "of each node's own, as a local SSD is")


def _one_of(names: tuple[str, ...], what: str) -> str:
    if not names:
        raise InputError(
            f"the machine has no resource {what}", where="method", hint="Choose a method that needs none of it."
        )
    return names[0]


METHODS: Final[Mapping[str, Callable[[System, Solver], Method]]] = {
    "baseline": lambda _system, _solver: Baseline(),
    "weighted": lambda _system, solver: Weighted(None, solver),
    "weighted-cpu": lambda system, solver: Weighted({NODES: 80, _shared(system): 20}, solver),
    "weighted-bb": lambda system, solver: Weighted({NODES: 20, _shared(system): 80}, solver),
    "constrained-cpu": lambda _system, solver: Constrained(NODES, solver),
    "constrained-bb": lambda system, solver: Constrained(_shared(system), solver),
    "constrained-ssd": lambda system, solver: Constrained(_per_node(system), solver),
    "bin-packing": lambda _system, _solver: BinPacking(),
    "bbsched": lambda _system, solver: BBSched(solver),
}
"""The paper's methods, for a machine and a solver. The first shared resource stands for its burst buffer."""


SOLVERS: Final[Mapping[str, Callable[[], Solver]]] = {"exact": Exact, "genetic": Genetic}
"""Solvers by name."""


def load_solver(name: str) -> Solver:
    """Find a solver by its name among `SOLVERS`."""
    return _named(name, SOLVERS, "solver")()


def load_method(name: str, system: System, solver: Solver | None = None) -> Method:
    """Find a method by its name among `METHODS`."""
    return _named(name, METHODS, "method")(system, Exact() if solver is None else solver)


def _named(name: str, known: Mapping[str, _T], what: str) -> _T:
    if name not in known:
        raise UnknownNameError(
            f"no {what} is called {name!r}", where=what, hint=f"{near(name, known)}Known: {', '.join(known)}."
        )
    return known[name]


# ---------------------------------------------------------------------- helpers


def _scale(totals: Sequence[int]) -> list[int]:
    """Return whole-number factors for comparing objectives exactly as shares of these totals."""
    whole = math.lcm(*totals)
    return [whole // total for total in totals]


def _first(front: Front, places: Sequence[int]) -> int:
    """Choose the solution with the jobs nearest the front."""
    return max(places, key=lambda place: tuple(front.chosen[place].tolist()))


def _chosen(front: Front, place: int) -> Selection:
    jobs: list[int] = np.flatnonzero(front.chosen[place]).tolist()
    return Selection(tuple(jobs), tuple(front.objectives[place].tolist()), front.is_exact, front.solver)


def _selection(problem: WindowProblem, chosen: Sequence[int]) -> Selection:
    usage: Integers = problem.window.uses[list(chosen)].sum(axis=0)
    worth = values(problem.window.system, problem.free, usage[None, :])[0]
    return Selection(tuple(sorted(chosen)), tuple(worth.tolist()))
