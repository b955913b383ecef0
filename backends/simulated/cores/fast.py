"""The machine and its queue on one pool of cores: first come first served, with EASY backfilling or without."""

from __future__ import annotations

import copy
from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.core.compiled import seen
from asa.errors import InputError

from ..table import NEVER, UNSTARTED, JobTable
from . import fast_kernel as k
from .base import Fate, News
from .heap import BITS, MASK, push

_MAX_JOBS = MASK // 2  # upper bound of background jobs that can be numbered besides a client's
FCFS = (True, True, True, False, False, False, True)
"""The kernel's rules for first come first served without backfilling."""


class FastCore:
    """Queue, running jobs and clock; see `Core` for what each method does.

    Jobs are numbered: the background's by their rows, clients' from ``len(table)`` on.

    Notes
    -----
    Forks share the background's columns; they copy the start of each row, the queue and the running jobs.
    """

    _SPARE = 64

    def __init__(self, capacity: int, table: JobTable, *, backfill: bool, now: int) -> None:
        rows = _numbered(len(table))
        self.table = table
        self.capacity = capacity
        self.backfill = backfill
        self.ended: list[int] = []
        self.news: list[News] = []
        self._clients: list[tuple[int, int, int]] = []  # (cores, request, age since)
        self._s = np.zeros(k.SCALARS, dtype=np.int64)
        self._s[[k.NOW, k.FREE]] = now, capacity
        self.start: NDArray[np.int64] = np.full(rows, UNSTARTED, dtype=np.int64)
        self._jobs, self._lasts = (np.empty(rows + k.BLOCK, dtype=np.int32) for _ in range(2))
        self._widths = np.full(rows + k.BLOCK, k.GONE, dtype=np.int32)
        self._max_running = min(rows, capacity)  # upper bound of background jobs running at the same time
        self._releases, self._ends = (np.empty(self._max_running, dtype=np.int64) for _ in range(2))
        self._release_widths = np.empty(self._max_running, dtype=np.int32)
        self._over, self._begun = (np.empty(0, dtype=np.int64) for _ in range(2))
        self._room = 0  # number of clients' jobs that fit without growing
        self._grow()

    # ------------------------------------------------------------------ copies and growth

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_seen"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._show()

    def fork(self) -> FastCore:
        fork = copy.copy(self)
        fork.ended, fork.news, fork._clients = list(self.ended), list(self.news), list(self._clients)
        fork.start, fork._s = self.start.copy(), self._s.copy()
        head, tail, running, ends = (int(self._s[place]) for place in (k.HEAD, k.TAIL, k.RUNNING, k.ENDS))
        fork._widths = np.full_like(self._widths, k.GONE)
        for name in ("_jobs", "_lasts", "_releases", "_release_widths", "_ends", "_over", "_begun"):
            setattr(fork, name, np.empty_like(getattr(self, name)))
        for name in ("_widths", "_jobs", "_lasts"):
            getattr(fork, name)[head:tail] = getattr(self, name)[head:tail]
        for name in ("_releases", "_release_widths"):
            getattr(fork, name)[:running] = getattr(self, name)[:running]
        fork._ends[:ends] = self._ends[:ends]
        fork._show()
        return fork

    def _grow(self) -> None:
        """Make room for more jobs of clients. A job may have several ends in the heap, because its end may change."""
        more = max(self._SPARE, self._room)
        self._room += more
        rows = ("_jobs", "_lasts", "_widths", "_releases", "_release_widths", "_ends", "_over", "_begun")
        for name in rows:
            ours = getattr(self, name)
            grown = np.full(len(ours) + more, k.GONE, dtype=ours.dtype)
            grown[: len(ours)] = ours
            setattr(self, name, grown)
        self._show()

    def _show(self) -> None:
        """Make the views for the kernels."""
        t = self.table
        columns = (t.submit, t.run, t.request, t.cores, self.start)
        queue = (self._jobs, self._widths, self._lasts)
        ends = (self._ends, np.empty(0, dtype=np.int64), self._over, self._begun)
        self._seen = tuple(
            seen(array) for array in (self._s, *columns, *queue, self._releases, self._release_widths, *ends)
        )

    # ------------------------------------------------------------------ views

    @property
    def now(self) -> int:
        return int(self._s[k.NOW])

    @now.setter
    def now(self, value: int) -> None:
        self._s[k.NOW] = value

    @property
    def free(self) -> int:
        return int(self._s[k.FREE])

    @property
    def queued(self) -> NDArray[np.int64]:
        head, tail = int(self._s[k.HEAD]), int(self._s[k.TAIL])
        there = self._widths[head:tail] != k.GONE
        queue: NDArray[np.int64] = self._jobs[head:tail][there].astype(np.int64)
        return queue

    @property
    def exhausted(self) -> bool:
        return int(self._s[k.NEXT]) >= len(self.table)

    # ------------------------------------------------------------------ the loop

    def run(self, until: int) -> None:
        self._go(until, k.RUN)

    def begin_second(self, now: int) -> None:
        self._go(now, k.BEGIN)

    def end_second(self) -> None:
        self._go(self.now, k.REST)

    def schedule(self) -> None:
        if self._s[k.DUE]:
            self._go(self.now, k.REST)

    def _go(self, until: int, phase: int) -> None:
        k.run_events(*self._seen, until, phase, None if self.backfill else FCFS)
        s = self._s
        if phase != k.BEGIN:
            s[k.DUE] = 0
        if s[k.ENDED]:
            self.ended += self._over[: s[k.ENDED]].tolist()
            s[k.ENDED] = 0
        if s[k.STARTED]:
            self.news += [News(job, Fate.STARTED) for job in self._begun[: s[k.STARTED]].tolist()]
            s[k.STARTED] = 0

    # ------------------------------------------------------------------ the client's jobs

    def add(self, cores: int, request: int, *, qos: int = 0, partition: int = 0) -> int:
        del qos, partition
        if len(self._clients) == self._room:
            self._grow()
        self._clients.append((cores, request, UNSTARTED))
        return len(self.table) + len(self._clients) - 1

    def push_end(self, index: int, end: int) -> None:
        if len(self._ends) - self._s[k.ENDS] <= self._max_running:  # room for the ends of the background is guaranteed
            self._ends = np.concatenate([self._ends, np.empty_like(self._ends)])
            self._show()
        push(seen(self._ends), int(self._s[k.ENDS]), (end << BITS) | index)
        self._s[k.ENDS] += 1

    def give_back(self, index: int, expected_end: int) -> None:
        s, key = self._s, (expected_end << BITS) | index
        s[k.FREE] += k.give_back(seen(self._releases), seen(self._release_widths), int(s[k.RUNNING]), key)
        s[k.RUNNING] -= 1
        self._stir()

    def resize(self, index: int, cores: int, expected_end: int) -> bool:
        s = self._s
        at = int(np.searchsorted(self._releases[: s[k.RUNNING]], (expected_end << BITS) | index))
        more = cores - int(self._release_widths[at])
        if more > s[k.FREE]:
            return False
        self._release_widths[at] = cores
        s[k.FREE] -= more
        _, request, since = self._clients[index - len(self.table)]
        self._clients[index - len(self.table)] = cores, request, since
        self._stir()
        return True

    def insert(self, index: int, age_since: int) -> None:
        s, number = self._s, index - len(self.table)
        cores, request, _ = self._clients[number]
        self._clients[number] = cores, request, age_since
        queue = (self._jobs, self._widths, self._lasts)
        tail = k.close_up(*(seen(array) for array in queue), int(s[k.HEAD]), int(s[k.TAIL]))
        at = bisect_right(self._jobs[:tail], age_since, key=self._age_since)
        for array, value in zip(queue, (index, cores, request), strict=True):
            array[at + 1 : tail + 1] = array[at:tail].copy()
            array[at] = value
        if s[k.DUE] or tail == 0 or at < tail:
            self._stir()  # other jobs were not considered yet, or the job precedes jobs that were
        s[k.HEAD], s[k.TAIL], s[k.SCANNED], s[k.DUE] = 0, tail + 1, tail, 1
        s[k.LIVE] += 1

    def remove(self, index: int) -> None:
        s = self._s
        head, tail = int(s[k.HEAD]), int(s[k.TAIL])
        at = np.flatnonzero((self._jobs[head:tail] == index) & (self._widths[head:tail] != k.GONE))
        self._widths[head + int(at[0])] = k.GONE
        s[k.LIVE] -= 1
        self._stir()

    def _stir(self) -> None:
        """Discard the reservation and test all jobs again."""
        self._s[k.VALID] = 0
        self._s[k.DUE] = 1

    def _age_since(self, index: Any) -> int:
        rows = len(self.table)
        return int(self.table.submit[index]) if index < rows else self._clients[index - rows][2]


def _numbered(rows: int) -> int:
    if rows > _MAX_JOBS:
        raise InputError(f"{rows} jobs are too many", hint=f"Cut the log to {_MAX_JOBS}.")
    return rows


def schedule_all(
    columns: list[NDArray[np.int64]], capacity: int, rules: tuple[bool, ...] | None = None
) -> NDArray[np.int64]:
    """Return the start of each job of a whole log, without a client, under any conventions of the kernel."""
    rows = _numbered(len(columns[0]))
    # with cores free by expected ends, more jobs than usual may run for a moment
    most = min(rows, capacity) if rules is None or not rules[3] else rows
    start = np.full(rows, UNSTARTED, dtype=np.int64)
    s = np.zeros(k.SCALARS, dtype=np.int64)
    s[k.FREE] = capacity
    queue = (
        np.empty(rows + k.BLOCK, dtype=np.int32),
        np.full(rows + k.BLOCK, k.GONE, dtype=np.int32),
        np.empty(rows + k.BLOCK, dtype=np.int32),
    )
    releases = (np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int32))
    nobody = np.empty(0, dtype=np.int64)
    ends = (
        np.empty(most, dtype=np.int64),
        nobody if rules is None or rules[0] else np.empty(rows, dtype=np.int64),
        nobody,
        nobody,
    )
    arrays: list[NDArray[Any]] = [s, *columns, start, *queue, *releases, *ends]
    k.run_events(*(seen(array) for array in arrays), NEVER - 1, k.RUN, rules)
    return start
