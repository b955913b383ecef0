"""OpenCCS as the scheduler of a simulated machine: every job gets a planned start."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from asa.backends.simulated.table import NEVER, UNSTARTED, JobTable
from numpy.typing import NDArray

from asa.errors import InputError

from .limits_file import ConsumerBounds, load_limits
from .nodes_core import NodesCore, NodesMachine, equal_nodes
from .planned_loop import Integers, PlannedLoop
from .rusv import FOREVER, RUSV
from .system import find_system


class OpenCcsCore(PlannedLoop):
    """Queue and running jobs of a machine that plans cores alone; see `PlannedLoop`.

    Every job is planned when it comes, at the earliest time at which it fits among all planned jobs. When a job ends
    early, or is withdrawn, pending ones are considered in order, and moved to earlier times. None moves to a later one.

    The starts are those of `plan.RequestPlan` on one node of all cores. That plan, with nodes and limits
    (`nodes_core.NodesCore`), takes tens of times as long. Both keep usage in `RUSV`.

    `most`: how many pending jobs are considered when a job ends early; all if not given.

    Notes
    -----
    A submission costs O(slots), an early end O(queued jobs x slots).
    """

    def __init__(self, capacity: int, table: JobTable, *, now: int, most: int | None = None) -> None:
        super().__init__(capacity, table, now=now, free=capacity, most=most)
        rows = len(table)
        self._widths, self._lasts = table.cores.copy(), table.request.copy()
        self._starts = np.full(rows, UNSTARTED, dtype=np.int64)  # planned starts
        self._since = table.submit.copy()  # order of waiting jobs
        self._queue: Integers = np.empty(0, dtype=np.int64)
        self._used = RUSV(capacity)  # cores of running and planned jobs

    def fork(self) -> OpenCcsCore:
        fork = copy.copy(self)
        for name in ("start", "promised", "_widths", "_lasts", "_starts", "_since", "_queue", "_used"):
            setattr(fork, name, getattr(self, name).copy())
        fork.ended, fork.news, fork._ends = list(self.ended), list(self.news), list(self._ends)
        return fork

    @property
    def queued(self) -> Integers:
        return self._queue.copy()

    # ------------------------------------------------------------------ the plan

    def planned_start(self, cores: int, lasts_s: int, since: int) -> int:
        """Return the planned start of a job submitted now that may not start before `since`. O(slots)."""
        found = self._used.earliest(cores, lasts_s, max(since, self.now))
        return FOREVER if found is None else found

    def planned(self, index: int) -> int:
        """Return the planned start of a waiting job."""
        return int(self._starts[index])

    def _book(self, start: int, end: int, cores: int) -> None:
        if end > start:
            self._used.add_within(start, end, cores)

    def _enter(self, index: int, since: int) -> None:
        """Plan a job submitted now, and insert it into the queue."""
        cores, lasts = int(self._widths[index]), int(self._lasts[index])
        start = self.planned_start(cores, lasts, self.now)
        self._starts[index], self._since[index] = start, since
        self._book(start, start + lasts, cores)
        at = int(np.searchsorted(self._since[self._queue], since, side="right"))
        self._queue = np.insert(self._queue, at, index)

    def _pass(self) -> None:
        """Move waiting jobs to earlier times, if resources were freed, and start the jobs that are due."""
        queue = self._queue
        if self._is_freed and len(queue):
            many = len(queue) if self._max_looked_at is None else min(self._max_looked_at, len(queue))
            self._used.backfill(queue[:many], self._starts, self._lasts, self._widths, self.now)
        self._is_freed = self._is_due = False
        if not len(queue):
            return
        is_ready = self._starts[queue] <= self.now
        if is_ready.any():
            self._queue = queue[~is_ready]
            for index in queue[is_ready].tolist():
                self._begin(index)

    def _begin(self, index: int) -> None:
        self.free -= int(self._widths[index])
        self._note_start(index, int(self.table.run[index]) if index < len(self.table) else 0)

    def _enter_row(self, row: int) -> None:
        self._enter(row, int(self.table.submit[row]))
        self.promised[row] = self._starts[row]

    def _next_start(self) -> int:
        return int(self._starts[self._queue].min()) if len(self._queue) else NEVER

    def _forget(self) -> None:
        self._used.forget_before(self.now)

    # ------------------------------------------------------------------ the client's jobs, and ends of all jobs

    def add(self, cores: int, request: int, *, qos: int = 0, partition: int = 0) -> int:
        del qos, partition
        new = np.array([UNSTARTED], dtype=np.int64)
        self._widths, self._lasts = np.append(self._widths, cores), np.append(self._lasts, request)
        self._starts, self._since = np.append(self._starts, new), np.append(self._since, new)
        return len(self._widths) - 1

    def give_back(self, index: int, expected_end: int) -> None:
        cores = int(self._widths[index])
        self.free += cores
        if expected_end > self.now:
            self._book(self.now, expected_end, -cores)
            self._is_freed = self._is_due = True

    def resize(self, index: int, cores: int, expected_end: int) -> bool:
        more = cores - int(self._widths[index])
        if more > 0:
            lasts = max(expected_end - self.now, 1)
            if more > self.free or self.planned_start(more, lasts, self.now) > self.now:
                return False
        self._book(self.now, expected_end, more)
        self._widths[index] = cores
        self.free -= more
        self._is_freed = self._is_due = self._is_due or more < 0
        return True

    def insert(self, index: int, age_since: int) -> None:
        self._enter(index, age_since)
        self._is_due = True

    def remove(self, index: int) -> None:
        start = int(self._starts[index])
        self._book(start, start + int(self._lasts[index]), -int(self._widths[index]))
        self._queue = self._queue[self._queue != index]
        self._is_freed = self._is_due = True


@dataclass(frozen=True, slots=True)
class OpenCcs:
    """Makes the machine of a simulated site with OpenCCS as its scheduler."""

    most: int = 0  # number of waiting jobs considered at an early end; 0 for all
    # nodes of the machine: the cores of equal ones, a file of a system, or a name as in `asa ccs plan`; cores alone if
    # empty
    nodes: str = ""
    limits: str = ""  # file of limits, pools, and rules of users and groups, which need nodes
    user: str = ""  # user and group of the client's jobs
    group: str = ""

    def __post_init__(self) -> None:
        if not self.nodes and (self.limits or self.user or self.group):
            hint = "Give nodes=16 for nodes of 16 cores, or nodes=FILE.toml."
            raise InputError("limits hold on a machine of nodes", where="limits", hint=hint)

        if self.nodes.isdecimal() and not int(self.nodes):
            raise InputError("a node has 1 core or more", where="nodes", hint="Give nodes=16 for nodes of 16 cores.")

    def machine(self, capacity: int, name: str = "machine", users: Integers | None = None) -> NodesMachine | None:
        """Make the nodes; None for a machine of cores alone.

        Raises `InputError`: they have fewer cores than the background's machine.
        """
        if not self.nodes:
            return None
        system = equal_nodes(name, capacity, int(self.nodes)) if self.nodes.isdecimal() else find_system(self.nodes)
        bounds = load_limits(self.limits, system.kinds) if self.limits else ConsumerBounds()
        machine = NodesMachine(system, bounds, self.user, self.group, users)
        if machine.cores < capacity:
            why = f"have {machine.cores} cores, and the background's machine has {capacity}"
            raise InputError(why, where="nodes", hint="Give more nodes, or another log.")
        return machine

    def core(
        self, capacity: int, table: JobTable, *, now: int, users: NDArray[np.integer] | None = None
    ) -> OpenCcsCore | NodesCore:
        """Make a core."""
        del users  # all background jobs are of users without limits
        if (machine := self.machine(capacity)) is None:
            return OpenCcsCore(capacity, table, now=now, most=self.most or None)
        return NodesCore(machine, capacity, table, now=now, most=self.most or None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Note how jobs become chunks, since logs have none."""
        if not self.nodes:
            return ()
        return ("its jobs are chunks of whole nodes, and one of the rest, since logs tell of cores alone",)


def openccs(*, most: int = 0, nodes: str = "", limits: str = "", user: str = "", group: str = "") -> OpenCcs:
    """Plan every job when it comes, and move it to an earlier start when others end early (OpenCCS).

    Parameters
    ----------
    most
        How many pending jobs are considered when a job ends early; 0 for all.
    nodes
        Cores of each of equal nodes, a file of a system as `asa ccs plan --system` takes it, or ``oculus``; without it
        the machine is cores alone, on which planning takes a small part of the time.
    limits
        File of limits, pools, and rules of users and groups, as `asa ccs plan --limits` takes it.
    user, group
        User and group of the client's jobs, to whom these apply.
    """
    return OpenCcs(most, nodes, limits, user, group)
