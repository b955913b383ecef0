"""Passes in which jobs are selected one at a time: on two levels, as DRAS does (Section III-B), or on one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from asa.backends.simulated.policies import QueueView

from asa.errors import InputError

from .rewards import Reward, SelectedJob
from .state import Integers


class Mode(IntEnum):
    """Kind of a job's start."""

    READY = 1
    """Selected, and fitted at once."""
    RESERVED = 2
    """Selected without fitting, and started at the earliest possible time."""
    BACKFILLED = 3
    """Selected in addition to a job with a reservation, which it did not delay."""


class Chooser(Protocol):
    """A selector of jobs."""

    def choose(self, view: QueueView, jobs: Integers) -> int:
        """Return the index of the chosen job among `jobs`, which are in order of age and at least one."""
        ...


class First:
    """Chooses the oldest job. On two levels that is EASY backfilling, with a record of the kind of each start."""

    def choose(self, view: QueueView, jobs: Integers) -> int:
        """Return the index of the chosen job among `jobs`."""
        del view, jobs
        return 0


@runtime_checkable
class Student(Chooser, Protocol):
    """A chooser that learns from rewards."""

    def credit(self, reward: float) -> None:
        """Receive the reward of the last choice."""
        ...

    def end_instance(self) -> None:
        """Learn that a pass with choices has ended."""
        ...


class Selecting(ABC):
    """The common part of the passes.

    `window`: how many of the oldest jobs are offered to it; 0 for all.
    `reward`: the objective, if rewards are to be computed; training needs one.
    """

    def __init__(self, chooser: Chooser, *, window: int = 50, reward: Reward | None = None) -> None:
        if window < 0:
            raise InputError(f"a window of {window} jobs cannot be", where="scheduler", hint="Give 1 or more, or 0.")
        self.chooser = chooser
        self.window = window or None
        self.reward = reward
        self.modes: dict[int, Mode] = {}
        self.total_reward = 0.0
        self.selections = 0
        self._student = chooser if isinstance(chooser, Student) else None
        if self._student is not None and reward is None:
            raise InputError("nothing can be learned without a reward", where="scheduler", hint="Give one.")

    def schedule(self, view: QueueView) -> None:
        """Do a scheduling pass."""
        if len(view.free) > 1:
            raise InputError(
                f"sees one pool, and the machine has {len(view.free)}",
                where="scheduler",
                hint="Take another scheduler for machines of several resources.",
            )
        before = self.selections
        self._pass(view)
        if self._student is not None and self.selections > before:
            self._student.end_instance()

    @abstractmethod
    def _pass(self, view: QueueView) -> None: ...

    def _choose(self, view: QueueView, jobs: Integers) -> int:
        """Let the chooser choose among the oldest of the given jobs."""
        offered = jobs[: self.window]
        return int(offered[self.chooser.choose(view, offered)])

    def _start(self, view: QueueView, job: int, mode: Mode) -> None:
        view.start(job)
        self.modes[job] = mode

    def _selected(self, view: QueueView, job: int) -> None:
        """Compute the reward of a selection that has been carried out."""
        self.selections += 1
        if self.reward is None:
            return
        now, queue, nodes = view.now, view.queue, int(view.capacity[0])
        waits, wait = now - view.submit[queue], now - int(view.submit[job])
        reward = self.reward(
            SelectedJob(
                size=int(view.demand[job, 0]),
                wait_s=wait,
                longest_wait_s=max(int(waits.max(initial=0)), wait),
                requests_s=view.request[queue],
                waits_s=waits,
                used=nodes - int(view.free[0]),
                nodes=nodes,
            )
        )
        self.total_reward += reward
        if self._student is not None:
            self._student.credit(reward)


class OneLevel(Selecting):
    """Starts selected jobs among those that fit, until none fits, without reservations."""

    def _pass(self, view: QueueView) -> None:
        waiting = view.queue
        while len(waiting := waiting[view.demand[waiting, 0] <= view.free[0]]):
            job = self._choose(view, waiting)
            self._start(view, job, Mode.READY)
            self._selected(view, job)
            waiting = waiting[waiting != job]


class TwoLevels(Selecting):
    """Selects a job to start; if it does not fit, makes a reservation for it, and selects jobs to backfill.

    Level 1 offers the oldest jobs. A selected job starts if it fits; if not it gets a reservation, at the earliest time
    at which enough nodes are expected. Level 2 then offers the oldest of the jobs that would not delay it, until there
    are none: by their request they end by then, or they take only nodes that it will not need.

    The reservation holds, also at later passes, until its job starts, at the promised time or sooner; until then level
    1 is skipped. (Unless its job is withdrawn, or nodes fail, which may delay it, or make it impossible and end it.)
    With a chooser that always takes the first job, this is EASY backfilling.

    `promised`: the start first promised, by job with a reservation.
    """

    def __init__(self, chooser: Chooser, *, window: int = 50, reward: Reward | None = None) -> None:
        super().__init__(chooser, window=window, reward=reward)
        self.reserved: int | None = None
        self.promised: dict[int, int] = {}

    def _pass(self, view: QueueView) -> None:
        queue = view.queue
        waiting = queue[view.demand[queue, 0] <= view.capacity[0]]
        if self.reserved is not None:
            waiting = self._serve(view, self.reserved, waiting)
        while self.reserved is None and len(waiting):
            job = self._pick(view, waiting, None)
            if view.demand[job, 0] <= view.free[0]:
                self._start(view, job, Mode.READY)
            else:
                self._reserve(view, job)
            waiting = waiting[waiting != job]
            self._selected(view, job)
        if self.reserved is not None:
            self._backfill(view, self.reserved, waiting)

    def _pick(self, view: QueueView, jobs: Integers, hole: Hole | None) -> int:
        """Let one of the given jobs be chosen: to start next, or to fill the hole before the reserved job."""
        del hole
        return self._choose(view, jobs)

    def _reserve(self, view: QueueView, job: int) -> None:
        """Reserve the earliest start for a job that does not fit."""
        self.reserved = job
        self.promised[job] = earliest(view, job).begin

    def _serve(self, view: QueueView, job: int, waiting: Integers) -> Integers:
        """Start the job with the reservation, if its time has come; return the other waiting jobs."""
        others: Integers = waiting[waiting != job]
        if len(others) == len(waiting):  # the job is no longer in the queue, or cannot run at present
            self.reserved = None
        elif view.demand[job, 0] <= view.free[0]:
            self.reserved = None
            self._start(view, job, Mode.RESERVED)
        return others

    def _backfill(self, view: QueueView, reserved: int, waiting: Integers) -> None:
        while len(waiting := waiting[view.demand[waiting, 0] <= view.free[0]]):
            hole = earliest(view, reserved)
            is_short = view.now + view.request[waiting] <= hole.begin
            waiting = waiting[is_short | (view.demand[waiting, 0] <= hole.spare)]
            if not len(waiting):
                return
            job = self._pick(view, waiting, hole)
            self._start(view, job, Mode.BACKFILLED)
            self._selected(view, job)
            waiting = waiting[waiting != job]


class Hole(NamedTuple):
    """The resources that are idle until the job with the reservation starts."""

    begin: int  # its start by the requests of running jobs
    spare: int  # nodes that the job will not need


def earliest(view: QueueView, job: int) -> Hole:
    """Return the start of a job that does not fit now, by the requests of running jobs, and the nodes left then."""
    running, size = view.running, int(view.demand[job, 0])
    ends = view.expected_end[running]
    free = view.free[0] + np.cumsum(view.demand[running, 0])
    begin = int(ends[np.searchsorted(free, size)])
    last = int(np.searchsorted(ends, begin, side="right")) - 1
    return Hole(begin, int(free[last]) - size)
