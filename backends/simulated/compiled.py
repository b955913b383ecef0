"""The machine and its queue as machine code: the same as `asa.backends.simulated.plain`, many times faster.

State is arrays of 64-bit integers, so that copying a machine is copying arrays. A running job's requested end and its
number share one integer, and so do an actual end and the order of starts: both kinds of list are sorted by plain
comparison.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .table import NEVER, UNSTARTED, JobTable

__all__ = ["MOST_JOBS", "CompiledCore"]

_BITS = 24
_MASK = (1 << _BITS) - 1
MOST_JOBS = 1 << _BITS
"""Jobs that one core can number."""

# places in the vector of scalars
_NOW, _NEXT, _FREE, _HEAD, _TAIL, _RUNNING, _ENDS, _SEQUENCE = range(8)
_SHADOW, _EXTRA, _VALID, _SCANNED, _DUE, _ENDED, _STARTED, _ROWS, _BACKFILL = range(8, 17)
_SCALARS = 17


@njit(cache=True, inline="always")
def _push(keys: Any, jobs: Any, count: int, key: int, job: int) -> None:
    i = count
    while i > 0:
        parent = (i - 1) >> 1
        if keys[parent] <= key:
            break
        keys[i], jobs[i] = keys[parent], jobs[parent]
        i = parent
    keys[i], jobs[i] = key, job


@njit(cache=True, inline="always")
def _pop(keys: Any, jobs: Any, count: int) -> int:
    top = jobs[0]
    last = count - 1
    key, job = keys[last], jobs[last]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[i], jobs[i] = keys[child], jobs[child]
        i = child
    keys[i], jobs[i] = key, job
    return int(top)


@njit(cache=True, inline="always")
def _place(values: Any, count: int, value: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, inline="always")
def _end_at(s: Any, keys: Any, jobs: Any, end: int, job: int) -> None:
    _push(keys, jobs, s[_ENDS], (end << _BITS) | s[_SEQUENCE], job)
    s[_ENDS] += 1
    s[_SEQUENCE] += 1


@njit(cache=True, inline="always")
def _give_back(s: Any, cores: Any, expected: Any, job: int, expected_end: int) -> None:
    s[_FREE] += cores[job]
    count = s[_RUNNING]
    for i in range(_place(expected, count, (expected_end << _BITS) | job), count - 1):
        expected[i] = expected[i + 1]
    s[_RUNNING] = count - 1
    s[_VALID] = 0
    s[_DUE] = 1


@njit(cache=True, inline="always")
def _launch(
    s: Any, run: Any, request: Any, cores: Any, start: Any, expected: Any, keys: Any, jobs: Any, begun: Any, job: int
) -> None:
    now = s[_NOW]
    s[_FREE] -= cores[job]
    value, count = ((now + request[job]) << _BITS) | job, s[_RUNNING]
    place = _place(expected, count, value)
    for i in range(count, place, -1):
        expected[i] = expected[i - 1]
    expected[place] = value
    s[_RUNNING] = count + 1
    if job < s[_ROWS]:
        start[job] = now
        _end_at(s, keys, jobs, now + run[job], job)
    else:
        begun[s[_STARTED]] = job
        s[_STARTED] += 1


@njit(cache=True, inline="always")
def _schedule(
    s: Any, run: Any, request: Any, cores: Any, start: Any, queue: Any, expected: Any, keys: Any, jobs: Any, begun: Any
) -> None:
    if not s[_DUE]:
        return
    s[_DUE] = 0
    if not s[_VALID]:
        head = s[_HEAD]
        while head < s[_TAIL] and cores[queue[head]] <= s[_FREE]:
            _launch(s, run, request, cores, start, expected, keys, jobs, begun, queue[head])
            head += 1
        s[_HEAD] = head
        s[_SCANNED] = head + 1
    if not s[_BACKFILL] or s[_FREE] == 0 or s[_TAIL] <= s[_SCANNED]:
        if s[_FREE] == 0:
            s[_SCANNED] = s[_TAIL]
        return
    if not s[_VALID]:
        need, available, i = cores[queue[s[_HEAD]]], s[_FREE], 0
        while i < s[_RUNNING]:
            available += cores[expected[i] & _MASK]
            if available >= need:
                break
            i += 1
        shadow = expected[i] >> _BITS
        i += 1
        while i < s[_RUNNING] and (expected[i] >> _BITS) == shadow:
            available += cores[expected[i] & _MASK]
            i += 1
        s[_SHADOW], s[_EXTRA], s[_VALID] = shadow, available - need, 1
    now, shadow, extra, tail = s[_NOW], s[_SHADOW], s[_EXTRA], s[_TAIL]
    write = read = s[_SCANNED]
    while read < tail:
        job = queue[read]
        width = cores[job]
        fits = width <= s[_FREE]
        if fits and now + request[job] > shadow:
            fits = width <= extra
            if fits:
                extra -= width
        if fits:
            _launch(s, run, request, cores, start, expected, keys, jobs, begun, job)
            read += 1
            if s[_FREE] == 0:
                break
            continue
        queue[write] = job
        write += 1
        read += 1
    while read < tail:
        queue[write] = queue[read]
        write += 1
        read += 1
    s[_TAIL] = s[_SCANNED] = write
    s[_EXTRA] = extra


@njit(cache=True, inline="always")
def _begin_second(
    s: Any, request: Any, cores: Any, start: Any, expected: Any, keys: Any, jobs: Any, over: Any, now: int
) -> None:
    s[_NOW] = now
    while s[_ENDS] > 0 and (keys[0] >> _BITS) == now:
        job = _pop(keys, jobs, s[_ENDS])
        s[_ENDS] -= 1
        if job < s[_ROWS]:
            _give_back(s, cores, expected, job, start[job] + request[job])
        else:
            over[s[_ENDED]] = job
            s[_ENDED] += 1


@njit(cache=True, inline="always")
def _arrive(s: Any, submit: Any, queue: Any) -> None:
    row = s[_NEXT]
    while row < s[_ROWS] and submit[row] == s[_NOW]:
        queue[s[_TAIL]] = row
        s[_TAIL] += 1
        row += 1
        s[_DUE] = 1
    s[_NEXT] = row


@njit(cache=True)
def _run(
    s: Any,
    submit: Any,
    run: Any,
    request: Any,
    cores: Any,
    start: Any,
    queue: Any,
    expected: Any,
    keys: Any,
    jobs: Any,
    over: Any,
    begun: Any,
    until: int,
) -> None:
    while True:
        now = submit[s[_NEXT]] if s[_NEXT] < s[_ROWS] else NEVER
        if s[_ENDS] > 0 and (keys[0] >> _BITS) < now:
            now = keys[0] >> _BITS
        if now > until or now == NEVER:
            return
        _begin_second(s, request, cores, start, expected, keys, jobs, over, now)
        if s[_ENDED] > 0:
            return
        _arrive(s, submit, queue)
        _schedule(s, run, request, cores, start, queue, expected, keys, jobs, begun)
        if s[_STARTED] > 0:
            return


class CompiledCore:
    """See `PlainCore`; every job of every kind has a row in the columns here, the client's behind the background's."""

    _SPARE = 64

    def __init__(self, capacity: int, table: JobTable, *, backfill: bool, now: int) -> None:
        rows = len(table)
        self.table = table
        self.ended: list[int] = []
        self.started: list[int] = []
        self._s = np.zeros(_SCALARS, dtype=np.int64)
        self._s[[_NOW, _FREE, _ROWS, _BACKFILL]] = now, capacity, rows, backfill
        self._request, self._cores = table.request, table.cores
        self._added = 0
        self._room = 0  # clients' jobs that fit without growing
        self.start: NDArray[np.int64] = np.full(rows, UNSTARTED, dtype=np.int64)
        width = min(rows, capacity)
        self._queue = np.empty(rows, dtype=np.int64)
        self._expected, self._keys, self._jobs = (np.empty(width, dtype=np.int64) for _ in range(3))
        self._over, self._begun = (np.empty(0, dtype=np.int64) for _ in range(2))
        self._grow()

    def fork(self) -> CompiledCore:
        twin = copy.copy(self)
        twin.ended, twin.started = list(self.ended), list(self.started)
        twin.start, twin._s = self.start.copy(), self._s.copy()
        head, tail, running, ends = (int(self._s[i]) for i in (_HEAD, _TAIL, _RUNNING, _ENDS))
        for name, low, high in (
            ("_queue", head, tail),
            ("_expected", 0, running),
            ("_keys", 0, ends),
            ("_jobs", 0, ends),
            ("_over", 0, 0),
            ("_begun", 0, 0),
        ):
            ours = getattr(self, name)
            theirs = np.empty_like(ours)
            theirs[low:high] = ours[low:high]
            setattr(twin, name, theirs)
        twin._request, twin._cores = self._request.copy(), self._cores.copy()
        return twin

    def add(self, cores: int, request: int) -> int:
        if self._added == self._room:
            self._grow()
        index = len(self.table) + self._added
        self._cores[index], self._request[index] = cores, request
        self._added += 1
        return index

    @property
    def now(self) -> int:
        return int(self._s[_NOW])

    @now.setter
    def now(self, value: int) -> None:
        self._s[_NOW] = value

    @property
    def free(self) -> int:
        return int(self._s[_FREE])

    @property
    def pass_due(self) -> bool:
        return bool(self._s[_DUE])

    @property
    def queued(self) -> NDArray[np.int64]:
        return self._queue[self._s[_HEAD] : self._s[_TAIL]].copy()

    @property
    def exhausted(self) -> bool:
        return bool(self._s[_NEXT] >= len(self.table))

    def run(self, until: int) -> None:
        table = self.table
        columns = (table.submit, table.run, self._request, self._cores, self.start)
        lists = (self._queue, self._expected, self._keys, self._jobs, self._over, self._begun)
        _run(self._s, *columns, *lists, until)
        self._tell()

    def begin_second(self, now: int) -> None:
        lists = (self._expected, self._keys, self._jobs, self._over)
        _begin_second(self._s, self._request, self._cores, self.start, *lists, now)
        self._tell()

    def end_second(self) -> None:
        _arrive(self._s, self.table.submit, self._queue)
        self.schedule()

    def schedule(self) -> None:
        columns = (self.table.run, self._request, self._cores, self.start)
        _schedule(self._s, *columns, self._queue, self._expected, self._keys, self._jobs, self._begun)
        self._tell()

    def push_end(self, index: int, end: int) -> None:
        if self._s[_ENDS] == len(self._keys):
            self._keys, self._jobs = (np.concatenate([a, np.empty_like(a)]) for a in (self._keys, self._jobs))
        _end_at(self._s, self._keys, self._jobs, end, index)

    def give_back(self, index: int, expected_end: int) -> None:
        _give_back(self._s, self._cores, self._expected, index, expected_end)

    def insert(self, index: int, place: int) -> None:
        s, queue = self._s, self._queue
        at, tail = int(s[_HEAD]) + place, int(s[_TAIL])
        queue[at + 1 : tail + 1] = queue[at:tail].copy()
        queue[at] = index
        s[_TAIL] += 1
        if at < s[_SCANNED]:
            s[_VALID] = 0
        s[_DUE] = 1

    def remove(self, index: int) -> None:
        s, queue = self._s, self._queue
        head, tail = int(s[_HEAD]), int(s[_TAIL])
        at = head + int(np.flatnonzero(queue[head:tail] == index)[0])
        queue[at : tail - 1] = queue[at + 1 : tail].copy()
        s[_TAIL] -= 1
        s[_VALID] = 0
        s[_DUE] = 1

    def _tell(self) -> None:
        s = self._s
        if s[_ENDED]:
            self.ended += self._over[: s[_ENDED]].tolist()
            s[_ENDED] = 0
        if s[_STARTED]:
            self.started += self._begun[: s[_STARTED]].tolist()
            s[_STARTED] = 0

    def _grow(self) -> None:
        """Make room for more clients' jobs; a client's job may have several ends in the heap, as its end may move."""
        more = max(self._SPARE, self._room)
        self._room += more
        for name, each in (
            ("_request", 1),
            ("_cores", 1),
            ("_queue", 1),
            ("_expected", 1),
            ("_keys", 2),
            ("_jobs", 2),
            ("_over", 2),
            ("_begun", 1),
        ):
            array = getattr(self, name)
            grown = np.empty(len(array) + each * more, dtype=np.int64)
            grown[: len(array)] = array
            setattr(self, name, grown)
