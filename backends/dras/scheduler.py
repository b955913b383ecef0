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
    """How a job came to start."""

    READY = 1
    """It was selected, and fitted."""
    RESERVED = 2
    """It was selected, did not fit, and started at the earliest time at which it could."""
    BACKFILLED = 3
    """It was selected beside one that was reserved for, which it did not delay."""


class Chooser(Protocol):
    """What selects jobs."""

    def choose(self, view: QueueView, jobs: Integers) -> int:
        """Choose one of some jobs, at least one, that are in order of age: say its place among them."""
        ...


class First:
    """Chooses the oldest. On two levels that is EASY backfilling, which then tells how each job started."""

    def choose(self, view: QueueView, jobs: Integers) -> int:
        """Choose one of some jobs: say its place among them."""
        del view, jobs
        return 0


@runtime_checkable
class Student(Chooser, Protocol):
    """A chooser that learns from what it is rewarded for."""

    def credit(self, reward: float) -> None:
        """Be rewarded for the last choice."""
        ...

    def end_instance(self) -> None:
        """Learn that a pass in which something was chosen is over."""
        ...


class Selecting(ABC):
    """What the passes have in common.

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
        """Have one of the oldest of some jobs chosen."""
        offered = jobs[: self.window]
        return int(offered[self.chooser.choose(view, offered)])

    def _start(self, view: QueueView, job: int, mode: Mode) -> None:
        view.start(job)
        self.modes[job] = mode

    def _selected(self, view: QueueView, job: int) -> None:
        """Reckon what a selection is worth; it has been done."""
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
    """Starts what is selected among jobs that fit, until none fits, and never reserves for any."""

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
        """Have one of some jobs chosen: to go next, or into the hole before the one that is reserved for."""
        del hole
        return self._choose(view, jobs)

    def _reserve(self, view: QueueView, job: int) -> None:
        """Promise a job that does not fit its earliest start."""
        self.reserved = job
        self.promised[job] = earliest(view, job).begin

    def _serve(self, view: QueueView, job: int, waiting: Integers) -> Integers:
        """Start the job that is reserved for, if its time has come; say who else waits."""
        others: Integers = waiting[waiting != job]
        if len(others) == len(waiting):  # it is no longer in the queue, or cannot run for now
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
    """What is idle until the job that is reserved for starts."""

    begin: int  # when it will, by what running jobs ask for
    spare: int  # nodes that it will not need then


def earliest(view: QueueView, job: int) -> Hole:
    """Say when a job that does not fit now will, by what running jobs ask for, and how many nodes it leaves then."""
    running, size = view.running, int(view.demand[job, 0])
    ends = view.expected_end[running]
    free = view.free[0] + np.cumsum(view.demand[running, 0])
    begin = int(ends[np.searchsorted(free, size)])
    last = int(np.searchsorted(ends, begin, side="right")) - 1
    return Hole(begin, int(free[last]) - size)
