"""First come first served, with or without EASY backfilling, in plain Python: for one short log.

Its conventions are the default ones of `fast_kernel`, and all starts are equal. The compiled loop is far faster, but
takes half a second to load; this module may need a tenth of a second in all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ..limits import NEVER, UNSTARTED


def schedule_short(
    columns: list[NDArray[np.int64]], capacity: int, *, backfill: bool, patience: int
) -> NDArray[np.int64] | None:
    """Return the start of each job of a whole log; None after more than `patience` looks at queued and running jobs.

    `columns`: submission, run, request and cores, as for `asa.backends.simulated.replay.replay`.
    """
    log = _LogInPass(columns, capacity, backfill=backfill, patience=patience)
    while (now := min(log.arrival, log.end)) < NEVER:
        log.end_and_submit(now)
        if not log.is_reserved:
            log.start_first(now)
        if log.is_reserved and log.free:
            log.start_behind_head(now)
        log.seen = len(log.queue)
        if log.patience < 0:
            return None
    return np.array(log.start, dtype=np.int64)


class _LogInPass:
    """A partly scheduled log."""

    def __init__(self, columns: list[NDArray[np.int64]], capacity: int, *, backfill: bool, patience: int) -> None:
        self.submit, self.run, self.request, self.cores = (column.tolist() for column in columns)
        self.rows = len(self.submit)
        self.submit.append(NEVER)
        self.start = [UNSTARTED] * self.rows
        # next submission and its time; and time of the next end
        self.row, self.arrival, self.end = 0, self.submit[0], NEVER
        self.free = capacity
        self.backfill, self.patience = backfill, patience
        self.queue: list[int] = []  # in order of submission
        self.seen = 0  # number of queued jobs already tested against the reservation
        # a time and a job are combined to one number, sorted by time, then by job
        self._ends: list[int] = []  # a heap
        self._releases: list[int] = []  # by requested ends, sorted
        # a reservation of the head holds until something ends: its time, and the cores left over then
        self.is_reserved = False
        self._shadow = self._extra = 0

    def end_and_submit(self, now: int) -> None:
        while self.end == now:
            job = heappop(self._ends) % self.rows
            key = (self.start[job] + self.request[job]) * self.rows + job
            del self._releases[bisect_left(self._releases, key)]
            self.free += self.cores[job]
            self.end = self._ends[0] // self.rows if self._ends else NEVER
            self.is_reserved = False
        while self.arrival == now:
            self.queue.append(self.row)
            self.row += 1
            self.arrival = self.submit[self.row]

    def start_first(self, now: int) -> None:
        """Start jobs from the head of the queue while they fit, and make a reservation for the first that does not."""
        count = 0
        for job in self.queue:
            if self.cores[job] > self.free:
                break
            self._begin(job, now)
            count += 1
        del self.queue[:count]
        if not (self.backfill and self.free and len(self.queue) > 1):
            return
        lacking, shadow = self.cores[self.queue[0]] - self.free, NEVER
        for key in self._releases:
            end = key // self.rows
            if end > shadow:
                break
            lacking -= self.cores[key % self.rows]
            if lacking <= 0 and shadow == NEVER:
                shadow = max(end, now + 1)  # overdue jobs are expected to end in a second
        self.patience -= len(self._releases)
        self.is_reserved, self._shadow, self._extra, self.seen = True, shadow, -lacking, 1

    def start_behind_head(self, now: int) -> None:
        """Start jobs that do not delay the head."""
        limit, place = self._shadow - now, self.seen
        cores, request, free, extra = self.cores, self.request, self.free, self._extra
        self.patience -= len(self.queue) - place
        for job in self.queue[place:]:
            width = cores[job]
            if width <= free and (width <= extra or request[job] <= limit):
                self._begin(job, now)
                free -= width
                if request[job] > limit:
                    extra -= width
                del self.queue[place]
            else:
                place += 1
        self._extra = extra

    def _begin(self, job: int, now: int) -> None:
        self.start[job] = now
        self.free -= self.cores[job]
        insort(self._releases, (now + self.request[job]) * self.rows + job)
        heappush(self._ends, (now + self.run[job]) * self.rows + job)
        self.end = self._ends[0] // self.rows
