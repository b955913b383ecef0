"""The scheduler: a window of jobs at the head of the queue, a method that selects from it, and then EASY backfilling.

At each pass (Sections 3.1 and 3.2):

1. The queue is in the order of the base scheduler, any that sorts its queue (`order_of`). Jobs that depend on others
   are in it only when these have ended.
2. The method selects among the first jobs, the window.
3. The first job that is left has a reservation, the time at which it can start by the requested ends of what runs.
   Other jobs start, in order, that do not delay that job (EASY backfilling).

A job that was skipped by `starvation_bound` selections from its window is starving. (The paper counts iterations in the
window; one in which no job can start skips none.) Such a job must be selected, if it fits. The paper does not say what
happens if that job does not fit; without a reservation nothing is guaranteed. So the first such job gets the
reservation, and the method selects twice: first among jobs that will have ended by then, then, within what it will not
need, among the others. If others overtake it in the machine's own order it is moved to the head.
"""

from __future__ import annotations

import numpy as np
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.policies import QueueView, order_of
from asa.backends.simulated.table import LATEST_S, JobTable
from numpy.typing import NDArray

from asa.core.compiled import seen
from asa.errors import InputError

from . import pass_kernel as k
from .methods import Method
from .problem import Window
from .system import NODES, Integers, System

_ROOM = 1024


def make_load(
    system: System, table: JobTable, demands: dict[str, Integers], users: NDArray[np.integer] | None = None
) -> Load:
    """Make the load of a machine for the engine (`asa.backends.simulated.cores.general.GeneralCore`).

    `demands`: each job's further requests, in the order of the table; see `Window`.
    `users`: owner of each job, where it is known, for orders that share fairly.
    """
    cluster = Cluster(system.pools)
    if not len(table):
        return Load(table, cluster)
    needs = Window(system, {NODES: table.cores, **demands}).needs
    amounts = {name: needs[:, index] for index, name in enumerate(system.pools) if index}
    return Load(table, cluster, amounts=amounts, users=users)


class WindowScheduler:
    """Selects from a window, and backfills; an `asa.backends.simulated.policies.OrderedScheduler`.

    `order`: the base scheduler, as in `asa.backends.simulated.policies.order_of`.
    `starvation_bound`: a job that this number of selections from its window have skipped must be selected.
    `decisions`, `inexact`: how often the method was called, and how often its answer was the best found rather than the
    best.

    Notes
    -----
    A pass costs O(queue log queue), O(running jobs), and what the method takes.
    """

    def __init__(
        self,
        system: System,
        method: Method,
        *,
        order: str = "fcfs",
        window: int = 20,
        starvation_bound: int = 50,
    ) -> None:
        for name, value in (("window", window), ("starvation_bound", starvation_bound)):
            if value < 1:
                raise InputError(f"a {name} of {value} cannot be", where="bbsched", hint="Give 1 or more.")
        self.system, self.method, self.base_order = system, method, order_of(order)
        self.window, self.starvation_bound = window, starvation_bound
        self.decisions = self.inexact = 0
        self._passed_over: NDArray[np.int32] = np.zeros(_ROOM, dtype=np.int32)  # by job

    def schedule(self, view: QueueView) -> None:
        """Do a scheduling pass."""
        queue = view.queue
        few, many = self._fitting(view, queue)
        if not few:
            return
        if many:
            for job in queue.tolist():
                view.start(job)
            return
        if len(view.demand) > len(self._passed_over):
            self._passed_over = np.concatenate([self._passed_over, np.zeros(len(view.demand), dtype=np.int32)])
        starves = self._passed_over[queue] >= self.starvation_bound
        if starves[self.window :].any():  # other jobs have overtaken a starving job, as under WFP
            order = np.argsort(~starves, kind="stable")
            queue, starves = queue[order], starves[order]
        front = queue[: self.window]
        now = _Pass(self, view, front, starves[: self.window])
        head = now.start_the_starving()
        if head < 0:
            now.select(now.left)
        else:
            until, spare = now.reserve(head)
            is_short = view.now + view.request[front] <= until
            now.select(now.left & is_short)
            now.select(now.left & ~is_short, spare)
        if not now.left.all():
            self._passed_over[front[now.left]] += 1
        now.backfill(np.concatenate([front[now.left], queue[self.window :]]), head)

    def _fitting(self, view: QueueView, queue: Integers) -> tuple[bool, bool]:
        """Return whether any job fits, and whether all start with any method: enough for most passes."""
        system, free, demand = self.system, view.free, view.demand
        limited = len(system.kinds) + len(system.shared)
        some = k.fitting(seen(queue), len(queue), seen(demand.ravel()), demand.shape[1], limited, seen(free.copy()))
        return some > 0, some == len(queue) and not system.per_node  # several kinds of nodes require a choice


class _Pass:
    """A scheduling pass."""

    def __init__(
        self, scheduler: WindowScheduler, view: QueueView, front: Integers, is_starving: NDArray[np.bool_]
    ) -> None:
        system = scheduler.system
        self._scheduler, self._view, self._front, self._is_starving = scheduler, view, front, is_starving
        self._kinds = len(system.kinds)
        self._limited = self._kinds + len(system.shared)
        self.left = np.ones(len(front), dtype=np.bool_)
        self.free: Integers = view.free.copy()

    def start_the_starving(self) -> int:
        """Start the starving jobs, in order; return the first that does not fit with those before it, or -1."""
        if not self._is_starving.any():
            return -1
        view, front, limited = self._view, self._front, self._limited
        head, must = -1, []
        room, whole = self.free[:limited].copy(), view.capacity[:limited]
        for place in np.flatnonzero(self._is_starving).tolist():
            needs = view.demand[front[place], :limited]
            if (needs <= room).all():
                room -= needs
                must.append(place)
            elif (needs <= whole).all():  # otherwise part of the machine is unavailable
                head = int(front[place])
                break
        self._start(must)
        return head

    def select(self, eligible: NDArray[np.bool_], spare: Integers | None = None) -> None:
        """Start jobs that the method selects among eligible jobs, within the free resources or the spare ones."""
        places = np.flatnonzero(eligible)
        needs = self._view.demand[self._front[places]]
        may = self.free if spare is None else np.minimum(self.free, spare)
        if not np.all(needs[:, : self._limited] <= may[: self._limited], axis=1).any():
            return
        scheduler = self._scheduler
        window = Window.of_needs(scheduler.system, needs, self._is_starving[places])
        selection = scheduler.method.select(window, scheduler.system.left(np.maximum(self.free, 0), spare))
        scheduler.decisions += 1
        scheduler.inexact += not selection.is_exact
        self._start(places[list(selection.jobs)].tolist(), spare)

    def _start(self, places: list[int], spare: Integers | None = None) -> None:
        """Start jobs of the window, on the lowest kinds of free nodes or of spare nodes."""
        if not places:
            return
        amounts: Integers = self._view.demand[self._front[places]]
        if self._kinds > 1:
            system = self._scheduler.system
            window = Window.of_needs(system, amounts, np.zeros(len(places), dtype=np.bool_))
            nodes = window.placed(system.left(np.maximum(self.free, 0), spare), range(len(places)))
            amounts[:, : self._kinds] = nodes[:, ::-1].cumsum(axis=1)[:, ::-1]
        for place, taken in zip(places, amounts, strict=True):
            self._begin(int(self._front[place]), taken)
        self.left[places] = False

    def _begin(self, job: int, taken: Integers) -> None:
        self._view.start(job, taken if self._kinds > 1 else None)
        self.free -= taken

    def reserve(self, head: int) -> tuple[int, Integers]:
        """Return the start of a job, and the resources that will be spare at that time."""
        view = self._view
        then, needs, running = self.free.copy(), np.ascontiguousarray(view.demand[head]), view.running
        begin = k.shadow(
            seen(needs), self._limited, seen(running), len(running), seen(view.expected_end), seen(view.demand.ravel()),
            view.demand.shape[1], view.now, seen(then),
        )  # fmt: skip
        return (int(begin), then - needs) if begin >= 0 else (LATEST_S, then)

    def backfill(self, rest: Integers, head: int) -> None:
        """Start jobs that do not delay the job with the reservation: by default, the first job that does not fit."""
        view, demand, limited = self._view, self._view.demand, self._limited
        if head < 0:
            whole = list(self._scheduler.system.pools.values())
            # jobs that request unavailable resources delay no others
            if (view.capacity[:limited] < whole[:limited]).any():
                rest = rest[np.all(demand[rest, :limited] <= view.capacity[:limited], axis=1)]
            for index in range(len(rest)):
                job = int(rest[index])
                if (demand[job, :limited] > self.free[:limited]).any():
                    head, rest = job, rest[index:]
                    break
                taken: Integers = demand[job].copy()
                k.place(seen(demand.ravel()), job * len(taken), self._kinds, seen(self.free), seen(taken), 0)
                self._begin(job, taken)
            else:
                return
        rest = rest[1:] if rest[0] == head else np.ascontiguousarray(rest[rest != head])
        if not len(rest):
            return
        until, spare = self.reserve(head)
        started = np.zeros(len(rest), dtype=np.int64)
        amounts = np.zeros((len(rest), demand.shape[1]), dtype=np.int64)
        count = k.backfill(
            seen(rest), len(rest), seen(demand.ravel()), seen(view.request), demand.shape[1], self._kinds, limited,
            view.now, until, seen(self.free.copy()), seen(spare), seen(started), seen(amounts.ravel()),
        )  # fmt: skip
        for job, taken in zip(started[:count].tolist(), amounts, strict=False):
            self._begin(job, taken)
