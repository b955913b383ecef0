"""The jobs of a window that may start now, and the value of a selection (Sections 3.2.1 and 5).

A selection is described by the sums of what its jobs use, its *usage*. A row of `Window.uses` is one job's:

- for each kind of nodes, the number of nodes that must be of that kind or a better one; the first kind is any node,
- each shared resource,
- each resource of the nodes, over all its nodes,
- and what is wasted of it, as a loss, if each of its nodes is of the lowest sufficient kind.

Jobs waste more than that if there are not enough nodes of the lowest sufficient kind, so that some get better ones. How
much more depends only on the number of such nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asa.core.compiled import seen
from asa.errors import InputError, UnknownNameError, near

from .system import LARGEST, NODES, Free, Integers, System


class Window:
    """Jobs at the head of the queue, in order, with their requests.

    `demands`: for each resource, each job's request: nodes, amounts of shared resources, and amounts *per node* of
    nodes' resources. Nothing is requested of resources that are not named.
    `forced`: whether each job waited so long that it must be selected, if it fits.

    Examples
    --------
    >>> window = Window(System(100, {"burst buffer": 100}), {"nodes": [80, 10], "burst buffer": [20, 85]})
    >>> window.uses
    array([[80, 20],
           [10, 85]])
    """

    __slots__ = ("forced", "kind", "system", "uses")

    def __init__(self, system: System, demands: Mapping[str, ArrayLike], forced: ArrayLike | None = None) -> None:
        for name in demands:
            if name not in system.resources:
                raise UnknownNameError(
                    f"jobs ask for {name!r}, which the machine does not have",
                    where="window",
                    hint=f"{near(name, system.resources)}Known: {', '.join(system.resources)}.",
                )
        asked = _columns(system, demands)
        self.system = system
        self.forced = np.zeros(len(asked), dtype=np.bool_) if forced is None else np.array(forced, dtype=np.bool_)
        if self.forced.shape != (len(asked),):
            raise InputError(
                f"{self.forced.size} jobs are forced or not, of {len(asked)}",
                where="window",
                hint="Say it of each job.",
            )
        alone = 1 + len(system.shared)
        nodes, each = asked[:, 0], asked[:, alone:]
        holds: NDArray[np.bool_] = np.all(each[:, None, :] <= system.each[None, :, :], axis=2)
        self.kind: Integers = np.where(holds.any(axis=1), holds.argmax(axis=1), len(system.kinds))
        needs = np.where(np.arange(len(system.kinds)) <= self.kind[:, None], nodes[:, None], 0)
        self._refuse_impossible(asked, needs)
        volumes = nodes[:, None] * each
        wasted = volumes - nodes[:, None] * system.each[self.kind]
        self.uses: Integers = np.concatenate([needs, asked[:, 1:alone], volumes, wasted], axis=1)

    def _refuse_impossible(self, asked: Integers, needs: Integers) -> None:
        """Refuse requests that exceed the empty machine."""
        system = self.system
        alone = 1 + len(system.shared)
        for job in np.flatnonzero(self.kind == len(system.kinds))[:1]:
            amounts = zip(system.per_node, asked[job, alone:], strict=True)
            wants = ", ".join(f"{amount} of {name}" for name, amount in amounts)
            raise InputError(
                f"job {job} of the window asks for {wants} on each node, and no node has that much",
                where="window",
                hint="Leave the job out: it can never start.",
            )
        most = self.limits(system.whole)
        better = [f"{NODES} with as much of all else" for _ in system.kinds[1:]]
        names = [NODES, *better, *system.shared]
        wanted = np.concatenate([needs, asked[:, 1:alone]], axis=1)
        for job, place in np.argwhere(wanted > most)[:1]:
            raise InputError(
                f"job {job} of the window asks for {wanted[job, place]} of {names[place]}, and there are {most[place]}",
                where="window",
                hint="Leave the job out: it can never start.",
            )

    def __len__(self) -> int:
        return len(self.uses)

    @classmethod
    def of_needs(cls, system: System, needs: Integers, forced: NDArray[np.bool_]) -> Window:
        """Make a window from rows of `needs`, unchecked, because a scheduler does this many times per second."""
        window = object.__new__(cls)
        kinds, volumes = len(system.kinds), len(system.kinds) + len(system.shared)
        window.system, window.forced = system, forced
        if system.per_node:
            window.kind = np.count_nonzero(needs[:, :kinds], axis=1) - 1
            wasted = needs[:, volumes:] - needs[:, :1] * system.each[window.kind]
            window.uses = np.concatenate([needs, wasted], axis=1)
        else:
            window.kind, window.uses = np.zeros(len(needs), dtype=np.int64), np.ascontiguousarray(needs)
        return window

    @property
    def needs(self) -> Integers:
        """Usage without waste: what jobs take from the pools of a machine, see `System.pools`."""
        return self.uses[:, : self.uses.shape[1] - len(self.system.per_node)]

    def limits(self, free: Free) -> Integers:
        """Return the upper bound of each constrained part of a usage: nodes from each kind on, and shared resources."""
        return np.array([*np.cumsum(free.nodes[::-1])[::-1], *free.shared], dtype=np.int64)

    def placed(self, free: Free, jobs: Sequence[int]) -> Integers:
        """Return the number of nodes of each kind that the jobs get, a row for each job.

        A job gets nodes of the lowest sufficient kind, while there are any, and then better ones; jobs that need the
        best nodes come first, so that others do not take these. That minimizes waste.
        """
        left = list(free.nodes)
        given = np.zeros((len(jobs), len(left)), dtype=np.int64)
        for kind in reversed(range(len(left))):
            for row, job in enumerate(jobs):
                if self.kind[job] == kind:
                    wanted = int(self.uses[job, 0])
                    for better in range(kind, len(left)):
                        given[row, better] = min(wanted, left[better])
                        left[better] -= int(given[row, better])
                        wanted -= int(given[row, better])
                    if wanted:
                        raise InputError(
                            f"job {job} of the window does not fit beside the others",
                            where="window",
                            hint="Give jobs that were selected together, and what was free then.",
                        )
        return given


@dataclass(frozen=True, eq=False)
class Front:
    """A Pareto set: no solution is better than another in one goal and no worse in all others.

    Of solutions of equal value it has only the one whose jobs are nearest the head of the queue. Those with most nodes
    come first.
    """

    chosen: NDArray[np.bool_]  # selected jobs of the window, a row for each solution
    # values of each solution, in the order of `System.objectives`; waste is a loss, and negative
    objectives: Integers
    is_exact: bool  # whether the front is complete and optimal
    solver: str
    work: int = 0  # amount of search, in the solver's own unit

    def __len__(self) -> int:
        return len(self.chosen)


@dataclass(frozen=True, slots=True)
class Selection:
    """The choice of a method."""

    jobs: tuple[int, ...]  # indices in the window, in order
    objectives: tuple[int, ...]
    is_exact: bool = True  # whether it is the method's optimum, not merely the best found
    solver: str = ""  # solver that found it; empty if nothing was searched


class WindowProblem:
    """A window, the free resources, and the objectives.

    `goals`: names of objectives; all if not given. Other resources are only constraints.
    `forced`: jobs that must be selected: those that waited too long, in order, while they fit.
    `limits`: upper bounds of each constrained part of a usage.
    """

    def __init__(self, window: Window, free: Free, goals: Iterable[str] | None = None) -> None:
        system = window.system
        if (len(free.nodes), len(free.shared)) != (len(system.kinds), len(system.shared)):
            raise InputError(
                f"{free} does not say how much is free of each kind of nodes and of each shared resource",
                where="free",
                hint="Make it with System.free.",
            )
        self.window, self.free = window, free
        self.limits = window.limits(free)
        constrained = window.uses[:, : len(self.limits)]
        left = self.limits.copy()
        self.forced: list[int] = []
        for job in np.flatnonzero(window.forced).tolist():
            if (constrained[job] <= left).all():
                left -= constrained[job]
                self.forced.append(job)
        fits: NDArray[np.bool_] = np.all(constrained <= left, axis=1)
        fits[self.forced] = False
        self.jobs: Integers = np.flatnonzero(fits)
        self.uses: Integers = window.uses[self.jobs]
        self.start: Integers = window.uses[self.forced].sum(axis=0)
        self.goals = [system.objective(name) for name in goals or system.objectives]
        self.kinds = len(system.kinds)
        self.goal_parts: Integers = np.array([goal and self.kinds - 1 + goal for goal in self.goals], dtype=np.int64)
        self.losses = window.uses.shape[1] - len(system.per_node)

    @property
    def has_room_for_all(self) -> bool:
        """Whether all jobs fit together without any disadvantage. Then no other selection is as good."""
        limited = len(self.limits)
        used = self.start[:limited] + self.uses[:, :limited].sum(axis=0)
        return bool((used <= self.limits).all() and (self.goal_parts < self.losses).all())

    @property
    def layout(self) -> tuple[Any, ...]:
        """First arguments of the kernels: jobs, layout of usages, objectives, and free resources."""
        steps = np.diff(self.window.system.each, axis=0).T
        return (
            seen(self.uses.ravel()), self.uses.shape[1], len(self.limits), self.kinds, self.losses, len(self.jobs),
            seen(self.start), seen(self.limits), seen(self.goal_parts), len(self.goals),
            seen(np.array(self.free.nodes, dtype=np.int64)), seen(np.ascontiguousarray(steps).ravel()),
        )  # fmt: skip

    def front(self, picked: NDArray[np.bool_], solver: str, *, is_exact: bool, work: int) -> Front:
        """Make a front of solutions; `picked` has a row of selected `jobs` for each."""
        chosen = np.zeros((len(picked), len(self.window)), dtype=np.bool_)
        chosen[:, self.forced] = True
        chosen[:, self.jobs] = picked
        worth = values(self.window.system, self.free, chosen.astype(np.int64) @ self.window.uses)
        order = np.lexsort(-worth[:, self.goals[::-1]].T)
        return Front(chosen[order], worth[order], is_exact, solver, work)


def values(system: System, free: Free, usage: Integers) -> Integers:
    """Compute all objectives from usages, a row for each."""
    kinds = len(system.kinds)
    found = np.concatenate([usage[:, :1], usage[:, kinds:]], axis=1)
    if system.per_node:
        over = np.zeros(len(usage), dtype=np.int64)
        for kind in range(kinds - 1):
            over = np.maximum(over + usage[:, kind] - usage[:, kind + 1] - free.nodes[kind], 0)
            found[:, -len(system.per_node) :] -= over[:, None] * (system.each[kind + 1] - system.each[kind])
    return found


def _columns(system: System, demands: Mapping[str, ArrayLike]) -> Integers:
    """Check demands, and arrange them as columns in the order of the machine's resources."""
    columns: list[NDArray[Any]] = []
    length = max((np.size(column) for column in demands.values()), default=0)
    if not length:
        raise _empty()
    for name in system.resources:
        column: NDArray[Any] = np.asarray(demands.get(name, np.zeros(length, dtype=np.int64)))
        if column.shape != (length,):
            raise InputError(
                f"{column.size} jobs say how much {name} they ask for, of {length}",
                where="window",
                hint="Give one number for each job.",
            )
        if column.dtype.kind not in "iu":
            raise InputError(
                f"jobs ask for {name} in numbers that are not whole",
                where="window",
                hint="Round them up, or count in a smaller unit.",
            )
        least = 1 if name == NODES else 0
        for job in np.flatnonzero((column < least) | (column >= LARGEST))[:1]:
            raise InputError(
                f"job {job} of the window asks for {column[job]} of {name}",
                where="window",
                hint=f"Give whole numbers from {least} on, in a unit in which they are not huge.",
            )
        columns.append(column.astype(np.int64, copy=False))
    return np.stack(columns, axis=1)


def _empty() -> InputError:
    return InputError("the window holds no job", where="window", hint="Give it one job at least.")
