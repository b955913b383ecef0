"""The event engine: first come first served with EASY backfilling, on counts of cores, in whole seconds.

Everybody waits for this module, so its shape is made for speed: the background load is columns of integers that all
forks share, one loop moves the clock, and control leaves it only when something happened to one of the client's own
jobs.

Conventions
-----------
1. Within one second: completions first, then the client's timers (begin times, delays), then submissions in the log's
order,
   then one scheduling pass.
2. The queue is ordered by the time since which a job's age counts, then by arrival. For the background that is its
   submission; for the client's jobs see `Engine.age_accrues`.
3. A pass starts jobs from the head while they fit. The first that does not gets a reservation at the earliest second at
   which enough cores are free by the running jobs' requested times (the shadow time). Each later job starts now if it
   fits now and either ends by its request no later than the shadow time, or takes only cores that the head will not
   need then.
4. A job that runs for longer than it asked for is killed at its limit.
"""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from asa.backend import DependencyType, JobState

__all__ = ["NEVER", "ClientJob", "Engine", "JobTable", "Need"]

NEVER = 1 << 62
UNSTARTED = -1


class JobTable:
    """The background load as columns, one row a job, ordered by submission.

    Parameters
    ----------
    submit, run, request
        Whole seconds; run and request at least 1.
    cores
        Allocated cores, at least 1.

    Notes
    -----
    Immutable; forks of an engine share it. A run longer than its request is cut to it (convention 4).
    """

    def __init__(
        self,
        submit: NDArray[np.int64],
        run: NDArray[np.int64],
        request: NDArray[np.int64],
        cores: NDArray[np.int64],
    ) -> None:
        order = np.argsort(submit, kind="stable")
        self.submit, self.request, self.cores = (
            np.ascontiguousarray(column[order], dtype=np.int64) for column in (submit, request, cores)
        )
        self.run = np.minimum(np.ascontiguousarray(run[order], dtype=np.int64), self.request)
        if len(self.submit) and min(self.run.min(), self.request.min(), self.cores.min()) < 1:
            raise ValueError("run, request and cores of a background job are at least 1")
        self.order = order
        self._look()

    def __len__(self) -> int:
        return len(self.submit)

    def __getstate__(self) -> dict[str, NDArray[np.int64]]:
        return {name: getattr(self, name) for name in ("submit", "run", "request", "cores", "order")}

    def __setstate__(self, state: dict[str, NDArray[np.int64]]) -> None:
        self.__dict__.update(state)
        self._look()

    def _look(self) -> None:
        """Open views through which CPython reads one number several times faster than through an array."""
        self.view_submit, self.view_run = self.submit.data, self.run.data
        self.view_request, self.view_cores = self.request.data, self.cores.data


@dataclass(frozen=True, slots=True)
class Need:
    """An unmet dependency of a client's job: on which job, for what of it, with what delay in seconds."""

    on: int
    type: DependencyType
    delay: int = 0


@dataclass(slots=True)
class ClientJob:
    """A job of the client inside the engine; times in whole seconds."""

    index: int
    cores: int
    request: int
    run: int
    exit_code: int
    submit: int
    needs: tuple[Need, ...]
    begin: int
    held: bool
    awaits: frozenset[str]
    posts: frozenset[str]
    state: JobState = JobState.PENDING
    eligible: int = UNSTARTED
    start: int = UNSTARTED
    payload_start: int = UNSTARTED
    end: int = UNSTARTED
    planned_end: int = NEVER
    doomed: bool = field(default=False)

    @property
    def will_time_out(self) -> bool:
        """The payload would need longer than the allocation lasts."""
        return self.payload_start == UNSTARTED or self.payload_start + self.run > self.start + self.request


class Engine:
    """A machine, its queue and its clock.

    Parameters
    ----------
    capacity
        Cores of the machine.
    table
        The background load; rows that ask for more than the capacity are not allowed.
    age_accrues
        The site's rule for a client's job that is kept back by a dependency, a hold or a begin time: whether its age
        counts from submission all the same (true) or only from the moment it became eligible (false).
    backfill
        False for plain first come first served.
    now
        Where the clock begins, if that is before the first submission.

    Attributes
    ----------
    now : int
        The clock, in seconds; every event up to and including it has happened.
    start : ndarray of int64
        Start of each background job, -1 while it waits.

    Notes
    -----
    A pass costs O(r + q) in the running and the queued jobs at worst; a submission to a queue whose head has its
    reservation already costs O(1), because only a completion can move the shadow time.
    """

    def __init__(
        self,
        capacity: int,
        table: JobTable,
        *,
        age_accrues: bool = True,
        backfill: bool = True,
        now: int | None = None,
    ) -> None:
        if len(table) and int(table.cores.max()) > capacity:
            raise ValueError("a background job asks for more than the machine has")
        self.capacity = capacity
        self.table = table
        self.age_accrues = age_accrues
        self.backfill = backfill
        first = int(table.submit[0]) if len(table) else 0
        self.now = first if now is None else min(now, first)
        self.start: NDArray[np.int64] = np.full(len(table), UNSTARTED, dtype=np.int64)
        self.clients: list[ClientJob] = []
        self._next = 0  # row of the next submission
        self._free = capacity
        self._queue: list[int] = []  # job indices in queue order; clients' count from len(table)
        self._queue_cores: list[int] = []  # cores of the same jobs, beside them for the scan
        self._ends: list[tuple[int, int, int]] = []  # heap of (end, start sequence, job)
        self._expected: list[tuple[int, int]] = []  # sorted (requested end, cores) of running jobs
        self._timers: list[tuple[int, int]] = []  # heap of (time, client job)
        self._sequence = 0
        self._posted: set[str] = set()
        self._changed: dict[int, None] = {}  # clients' jobs that something happened to, in order
        self._begun: list[int] = []  # clients' jobs that started in the pass under way
        self._reservation: tuple[int, int] | None = None  # (shadow time, extra cores) of the blocked head
        self._scanned = 0  # queued jobs that were already refused under that reservation
        self._pass_due = False
        self.advance(self.now)

    # ------------------------------------------------------------------ the client's side

    def submit(
        self,
        *,
        cores: int,
        request: int,
        run: int,
        exit_code: int = 0,
        needs: Iterable[Need] = (),
        begin: int = 0,
        held: bool = False,
        awaits: Iterable[str] = (),
        posts: Iterable[str] = (),
    ) -> int:
        """Submit a client's job now and return its number; the next `advance` schedules it."""
        job = ClientJob(
            len(self.table) + len(self.clients),
            cores,
            request,
            run,
            exit_code,
            self.now,
            tuple(needs),
            begin,
            held,
            frozenset(awaits),
            frozenset(posts),
        )
        self.clients.append(job)
        self._consider(job)
        return len(self.clients) - 1

    def cancel(self, number: int) -> None:
        """Take a client's pending job out of the queue, or end a running one now."""
        job = self.clients[number]
        if job.state is JobState.PENDING:
            was_eligible = job.eligible
            self._dequeue(job)
            job.eligible = was_eligible
            job.state, job.end = JobState.CANCELLED, self.now
        elif job.state is JobState.RUNNING:
            job.state, job.end = JobState.CANCELLED, self.now
            self._give_back(job.start + job.request, job.cores)
        else:
            return
        self._changed[number] = None
        self._settle(job)

    def hold(self, number: int) -> None:
        """Keep a client's pending job from starting."""
        job = self.clients[number]
        if job.state is JobState.PENDING:
            job.held = True
            self._dequeue(job)

    def release(self, number: int) -> None:
        """Let a held job go."""
        job = self.clients[number]
        if job.state is JobState.PENDING and job.held:
            job.held = False
            self._consider(job)

    # ------------------------------------------------------------------ the loop

    def advance(self, until: int) -> list[int]:
        """Move the clock until something happens to a client's job, at most to `until`.

        Parameters
        ----------
        until
            In seconds; everything that happens at that second happens too.

        Returns
        -------
        list of int
            Numbers of the client's jobs whose state changed, in order; empty when `until` was reached, or when
            nothing can happen any more.
        """
        submit, cores = self.table.view_submit, self.table.view_cores
        rows = len(self.table)
        ends, timers = self._ends, self._timers
        if self._pass_due:
            self._schedule()
        while not self._changed:
            now = submit[self._next] if self._next < rows else NEVER
            if ends and ends[0][0] < now:
                now = ends[0][0]
            if timers and timers[0][0] < now:
                now = timers[0][0]
            if now > until or now == NEVER:
                self.now = max(self.now, until) if until < NEVER else self.now
                break
            self.now = now
            while ends and ends[0][0] == now:
                self._complete(heappop(ends)[2])
            while timers and timers[0][0] == now:
                self._consider(self.clients[heappop(timers)[1]])
            while self._next < rows and submit[self._next] == now:
                self._queue.append(self._next)
                self._queue_cores.append(cores[self._next])
                self._next += 1
                self._pass_due = True
            if self._pass_due:
                self._schedule()
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def fork(self) -> Engine:
        """Copy the state; both go on independently and share the background's columns. O(rows) to copy the starts."""
        twin = copy.copy(self)
        twin.start = self.start.copy()
        twin.clients = [copy.copy(job) for job in self.clients]
        for name in ("_queue", "_queue_cores", "_ends", "_expected", "_timers", "_posted", "_changed"):
            setattr(twin, name, copy.copy(getattr(self, name)))
        return twin

    # ------------------------------------------------------------------ views

    @property
    def free_cores(self) -> int:
        """Idle cores now."""
        return self._free

    @property
    def queued(self) -> NDArray[np.int64]:
        """Job indices in queue order; indices from ``len(table)`` on are the client's."""
        return np.asarray(self._queue, dtype=np.int64)

    @property
    def exhausted(self) -> bool:
        """The background has no further submission."""
        return self._next >= len(self.table)

    # ------------------------------------------------------------------ one scheduling pass

    def _schedule(self) -> None:
        self._pass_due = False
        self._fill()
        while self._begun:
            begun = self._begun.pop()
            for job in self.clients:
                if any(need.on == begun and need.type is DependencyType.AFTER for need in job.needs):
                    self._consider(job)

    def _fill(self) -> None:
        queue, widths = self._queue, self._queue_cores
        if self._reservation is None:
            started = 0
            for width in widths:
                if width > self._free:
                    break
                self._launch(queue[started], width)
                started += 1
            del queue[:started], widths[:started]
            self._scanned = 1
        if not self.backfill or not self._free or len(queue) <= self._scanned:
            if not self._free:
                self._scanned = len(queue)  # nothing can start before a completion
            return
        if self._reservation is None:
            self._reservation = self._reserve(widths[0])
        self._backfill(*self._reservation)

    def _reserve(self, need: int) -> tuple[int, int]:
        """Shadow time of a head that needs so many cores, and the cores that it will leave over then."""
        available = self._free
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
        request, rows = self.table.view_request, len(self.table)
        now, free = self.now, self._free
        taken: list[int] = []
        for position in range(self._scanned, len(queue)):
            width = widths[position]
            if width > free:
                continue
            index = queue[position]
            asked = request[index] if index < rows else self.clients[index - rows].request
            if now + asked > shadow:
                if width > extra:
                    continue
                extra -= width
            free -= width
            taken.append(position)
            self._launch(index, width)
            if not free:
                break
        for position in reversed(taken):
            del queue[position], widths[position]
        self._reservation = (shadow, extra)
        self._scanned = len(queue)

    def _launch(self, index: int, width: int) -> None:
        now, rows = self.now, len(self.table)
        self._free -= width
        if index < rows:
            self.start[index] = now
            request, end = self.table.view_request[index], now + self.table.view_run[index]
        else:
            job = self.clients[index - rows]
            job.state, job.start, request = JobState.RUNNING, now, job.request
            self._changed[index - rows] = None
            self._begun.append(index - rows)
            if job.awaits <= self._posted:
                job.payload_start = now
            end = job.planned_end = self._end_of(job)
        self._sequence += 1
        heappush(self._ends, (end, self._sequence, index))
        insort(self._expected, (now + request, width))

    # ------------------------------------------------------------------ ends and what they set free

    @staticmethod
    def _end_of(job: ClientJob) -> int:
        limit = job.start + job.request
        return limit if job.payload_start == UNSTARTED else min(job.payload_start + job.run, limit)

    def _complete(self, index: int) -> None:
        rows = len(self.table)
        if index < rows:
            self._give_back(int(self.start[index]) + self.table.view_request[index], self.table.view_cores[index])
            return
        job = self.clients[index - rows]
        if job.state is not JobState.RUNNING or job.planned_end != self.now:
            return  # it was cancelled, or its end moved when its payload began
        job.end = self.now
        if job.will_time_out:
            job.state = JobState.TIMEOUT
        else:
            job.state = JobState.COMPLETED if job.exit_code == 0 else JobState.FAILED
        self._give_back(job.start + job.request, job.cores)
        self._changed[index - rows] = None
        self._settle(job)

    def _give_back(self, expected_end: int, width: int) -> None:
        self._free += width
        del self._expected[bisect_left(self._expected, (expected_end, width))]
        self._reservation = None
        self._pass_due = True

    def _settle(self, ended: ClientJob) -> None:
        """Post an ended job's tokens and look again at the jobs that waited for it."""
        if ended.state is JobState.COMPLETED and ended.posts:
            self._posted |= ended.posts
            for job in self.clients:
                if job.state is JobState.RUNNING and job.payload_start == UNSTARTED and job.awaits <= self._posted:
                    job.payload_start = self.now
                    job.planned_end = self._end_of(job)
                    self._sequence += 1
                    heappush(self._ends, (job.planned_end, self._sequence, job.index))
                    self._changed[job.index - len(self.table)] = None
        for job in self.clients:
            if job.state is JobState.PENDING and any(need.on == ended.index - len(self.table) for need in job.needs):
                self._consider(job)

    # ------------------------------------------------------------------ eligibility

    def _ready_at(self, job: ClientJob) -> int:
        """When nothing but resources will keep a job back, as known now; NEVER while a dependency is unmet."""
        ready = job.begin
        for need in job.needs:
            other = self.clients[need.on]
            if need.type is DependencyType.AFTER:
                # a job that was cancelled before it started counts as started: there is nothing left to wait for
                began = other.start if other.start != UNSTARTED else other.end if other.state.is_final else NEVER
                ready = max(ready, began + need.delay)
            elif not other.state.is_final:
                return NEVER
            elif need.type is DependencyType.AFTEROK and other.state is not JobState.COMPLETED:
                job.doomed = True
                return NEVER
        return min(ready, NEVER)

    def _consider(self, job: ClientJob) -> None:
        """Put a pending job into the queue if nothing else keeps it back any more."""
        if job.state is not JobState.PENDING or job.eligible != UNSTARTED or job.held:
            return
        was_doomed = job.doomed
        ready = self._ready_at(job)
        if job.doomed and not was_doomed:
            self._changed[job.index - len(self.table)] = None
        if ready == NEVER:
            return
        if ready > self.now:
            heappush(self._timers, (ready, job.index - len(self.table)))
            return
        job.eligible = self.now
        key = job.submit if self.age_accrues else job.eligible
        place = bisect_right(self._queue, key, key=self._age_key)
        self._queue.insert(place, job.index)
        self._queue_cores.insert(place, job.cores)
        if place < self._scanned:  # it stands before jobs that were looked at, perhaps at the head
            self._reservation = None
        self._pass_due = True

    def _age_key(self, index: int) -> int:
        rows = len(self.table)
        if index < rows:
            return self.table.view_submit[index]
        job = self.clients[index - rows]
        return job.submit if self.age_accrues else job.eligible

    def _dequeue(self, job: ClientJob) -> None:
        if job.eligible == UNSTARTED:
            return
        place = self._queue.index(job.index)
        del self._queue[place], self._queue_cores[place]
        job.eligible = UNSTARTED
        self._reservation = None
        self._pass_due = True
