"""The machine and its queue in plain Python, for where `asa.backends.simulated.compiled` cannot be had."""

from __future__ import annotations

import copy
from bisect import bisect_left, insort
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from .table import NEVER, UNSTARTED, JobTable

__all__ = ["PlainCore"]


class PlainCore:
    """Queue, running jobs and clock; of a client's job it knows its width and request, and that it is one.

    Jobs are numbered: the background's by their rows, clients' jobs from ``len(table)`` on. See `Core` of the engine
    for what each method does.
    """

    def __init__(self, capacity: int, table: JobTable, *, backfill: bool, now: int) -> None:
        self.table = table
        self.backfill = backfill
        self.now = now
        self.start: NDArray[np.int64] = np.full(len(table), UNSTARTED, dtype=np.int64)
        self.free = capacity
        self.pass_due = False
        self.ended: list[int] = []
        self.started: list[int] = []
        self._clients: list[tuple[int, int]] = []  # (cores, request)
        self._next = 0  # row of the next submission
        self._queue: list[int] = []  # in queue order
        self._queue_cores: list[int] = []  # beside them for the scan
        self._ends: list[tuple[int, int, int]] = []  # heap of (end, start sequence, job)
        self._expected: list[tuple[int, int]] = []  # sorted (requested end, cores) of running jobs
        self._sequence = 0
        self._reservation: tuple[int, int] | None = None  # (shadow time, extra cores) of the blocked head
        self._scanned = 0  # queued jobs that were already refused under that reservation

    def fork(self) -> PlainCore:
        twin = copy.copy(self)
        for name in ("start", "ended", "started", "_clients", "_queue", "_queue_cores", "_ends", "_expected"):
            setattr(twin, name, copy.copy(getattr(self, name)))
        return twin

    def add(self, cores: int, request: int) -> int:
        self._clients.append((cores, request))
        return len(self.table) + len(self._clients) - 1

    @property
    def queued(self) -> NDArray[np.int64]:
        return np.asarray(self._queue, dtype=np.int64)

    @property
    def exhausted(self) -> bool:
        return self._next >= len(self.table)

    def run(self, until: int) -> None:
        submit, rows, ends = self.table.view_submit, len(self.table), self._ends
        while True:
            now = submit[self._next] if self._next < rows else NEVER
            if ends and ends[0][0] < now:
                now = ends[0][0]
            if now > until or now == NEVER:
                return
            self.begin_second(now)
            if self.ended:
                return
            self.end_second()
            if self.started:
                return

    def begin_second(self, now: int) -> None:
        self.now = now
        rows, table = len(self.table), self.table
        while self._ends and self._ends[0][0] == now:
            index = heappop(self._ends)[2]
            if index < rows:
                self.give_back(index, int(self.start[index]) + table.view_request[index])
            else:
                self.ended.append(index)

    def end_second(self) -> None:
        submit, cores, rows = self.table.view_submit, self.table.view_cores, len(self.table)
        while self._next < rows and submit[self._next] == self.now:
            self._queue.append(self._next)
            self._queue_cores.append(cores[self._next])
            self._next += 1
            self.pass_due = True
        self.schedule()

    def schedule(self) -> None:
        if not self.pass_due:
            return
        self.pass_due = False
        queue, widths = self._queue, self._queue_cores
        if self._reservation is None:
            started = 0
            for width in widths:
                if width > self.free:
                    break
                self._launch(queue[started], width)
                started += 1
            del queue[:started], widths[:started]
            self._scanned = 1
        if not self.backfill or not self.free or len(queue) <= self._scanned:
            if not self.free:
                self._scanned = len(queue)  # nothing can start before a completion
            return
        if self._reservation is None:
            self._reservation = self._reserve(widths[0])
        self._backfill(*self._reservation)

    def push_end(self, index: int, end: int) -> None:
        self._sequence += 1
        heappush(self._ends, (end, self._sequence, index))

    def give_back(self, index: int, expected_end: int) -> None:
        width = self._cores(index)
        self.free += width
        del self._expected[bisect_left(self._expected, (expected_end, width))]
        self._reservation = None
        self.pass_due = True

    def insert(self, index: int, place: int) -> None:
        self._queue.insert(place, index)
        self._queue_cores.insert(place, self._cores(index))
        if place < self._scanned:  # it stands before jobs that were looked at, perhaps at the head
            self._reservation = None
        self.pass_due = True

    def remove(self, index: int) -> None:
        place = self._queue.index(index)
        del self._queue[place], self._queue_cores[place]
        self._reservation = None
        self.pass_due = True

    def _cores(self, index: int) -> int:
        rows = len(self.table)
        return self.table.view_cores[index] if index < rows else self._clients[index - rows][0]

    def _request(self, index: int) -> int:
        rows = len(self.table)
        return self.table.view_request[index] if index < rows else self._clients[index - rows][1]

    def _reserve(self, need: int) -> tuple[int, int]:
        """Shadow time of a head that needs so many cores, and the cores that it will leave over then."""
        available = self.free
        expected = self._expected
        for position, (end, width) in enumerate(expected):
            available += width
            if available >= need:
                for later, more in expected[position + 1 :]:
                    if later > end:
                        break
                    available += more
                return end, available - need
        raise AssertionError("a job that is wider than the machine was let in")

    def _backfill(self, shadow: int, extra: int) -> None:
        queue, widths = self._queue, self._queue_cores
        now, free = self.now, self.free
        taken: list[int] = []
        for position in range(self._scanned, len(queue)):
            width = widths[position]
            if width > free:
                continue
            if now + self._request(queue[position]) > shadow:
                if width > extra:
                    continue
                extra -= width
            free -= width
            taken.append(position)
            self._launch(queue[position], width)
            if not free:
                break
        for position in reversed(taken):
            del queue[position], widths[position]
        self._reservation = (shadow, extra)
        self._scanned = len(queue)

    def _launch(self, index: int, width: int) -> None:
        self.free -= width
        insort(self._expected, (self.now + self._request(index), width))
        if index < len(self.table):
            self.start[index] = self.now
            self.push_end(index, self.now + self.table.view_run[index])
        else:
            self.started.append(index)
