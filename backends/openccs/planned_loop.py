"""The loop of a simulated machine that plans each job when it comes, whatever its plan is made of."""

from __future__ import annotations

from abc import abstractmethod
from heapq import heappop, heappush

import numpy as np
from asa.backends.simulated.cores.base import Fate, InPython, News
from asa.backends.simulated.table import UNSTARTED, JobTable
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_FORGETS = 64
"""The past is discarded after this number of further jobs."""


class PlannedLoop(InPython):
    """Clock, arrivals and ends of a machine that plans; see `asa.backends.simulated.cores.base.Core`.

    `promised`: for each background job the start promised when it came; `NEVER` if it had none.
    """

    def __init__(self, capacity: int, table: JobTable, *, now: int, free: int, most: int | None) -> None:
        self.capacity, self.table, self.now, self.free = capacity, table, now, free
        self.ended: list[int] = []
        self.news: list[News] = []
        self.start: Integers = np.full(len(table), UNSTARTED, dtype=np.int64)
        self.promised: Integers = np.full(len(table), UNSTARTED, dtype=np.int64)
        self._max_looked_at = most
        self._next = 0
        self._ends: list[tuple[int, int, int]] = []  # heap of (end, order of start, job)
        self._order = 0
        self._is_freed = self._is_due = False

    # ------------------------------------------------------------------ what a plan does

    @abstractmethod
    def _enter_row(self, row: int) -> None:
        """Plan a background job submitted now, and note its promised start."""

    @abstractmethod
    def _pass(self) -> None:
        """Move waiting jobs to earlier times, if resources were freed, and start the jobs that are due."""

    @abstractmethod
    def _next_start(self) -> int:
        """Return the earliest planned start of a waiting job; `NEVER` if there is none."""

    @abstractmethod
    def _forget(self) -> None:
        """Discard what the plan knows of the past."""

    @abstractmethod
    def give_back(self, index: int, expected_end: int) -> None:
        """Free the cores of a job that has ended; `expected_end`: when it would have ended at the latest."""

    # ------------------------------------------------------------------ the loop

    @property
    def exhausted(self) -> bool:
        return self._next >= len(self.table)

    def _next_event(self) -> int:
        moments = [self._next_start()]
        if not self.exhausted:
            moments.append(int(self.table.submit[self._next]))
        if self._ends:
            moments.append(self._ends[0][0])
        return min(moments)

    def begin_second(self, now: int) -> None:
        self.now = now
        while self._ends and self._ends[0][0] <= now:
            index = heappop(self._ends)[2]
            if index < len(self.table):
                self.give_back(index, int(self.start[index] + self.table.request[index]))
            else:
                self.ended.append(index)

    def end_second(self) -> None:
        submit = self.table.submit
        while self._next < len(submit) and submit[self._next] <= self.now:
            if self._next % _FORGETS == 0:
                self._forget()
            self._enter_row(self._next)
            self._next += 1
        self._pass()

    def schedule(self) -> None:
        if self._is_due:
            self._pass()

    def push_end(self, index: int, end: int) -> None:
        self._order += 1
        heappush(self._ends, (end, self._order, index))

    def _note_start(self, index: int, lasts_s: int) -> None:
        """Record that a job begins now; a background job ends after a time."""
        if index < len(self.table):
            self.start[index] = self.now
            self.push_end(index, self.now + lasts_s)
        else:
            self.news.append(News(index, Fate.STARTED))
