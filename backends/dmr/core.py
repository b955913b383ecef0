"""A machine on which some running jobs can be resized, by the policy of the DMR paper.

The queue is EASY's: by age, or by age and size as in the study, with backfilling of jobs that do not delay the head. In
addition:

- Running jobs check once in their period, and are answered by `asa.backends.dmr.policy.decide`. Those due within a
  second are answered in order, after its scheduling pass, until none of them has anything to do.
- An expansion is a resizer job: it is before all others, and takes its cores if they are idle. Asynchronously it may
  have to wait, and is cancelled at its time-out; its job idles meanwhile.
- A shrink gives its cores back when all have acknowledged, and the queued job that gains by it becomes the head.
- A moldable job starts at its largest size that may start.

Walltimes limit work, not time: a job that keeps half of its cores gets the time that it needs for the same work; a job
that grows needs less; and time for the resize itself. So no job is killed because it was resized, and its expected end,
which EASY uses for reservations, moves accordingly. This can delay the head-of-queue job in the two ways of section
4.3: a shrink lets another job go ahead, and an expansion takes idle cores that no queued job could use, until the job's
expected end, which becomes later at most by the duration of the expansion.

A check without a resize costs `Costs.none_s`, and slows a job down by this share of its period. Events are at whole
seconds; computed times, and durations of resizes, are not whole: cores are given back, and jobs end, at the next
second.
"""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from heapq import heappop, heappush
from math import ceil, inf

import numpy as np
from asa.backends.simulated.cores.base import Fate, InPython, News
from asa.backends.simulated.table import NEVER, UNSTARTED, JobTable
from numpy.typing import NDArray

from asa.dmr.protocol import Action

from .applications import ApplicationKind, MalleableJob
from .mechanics import Costs, Resizer
from .policy import PolicyAnswer, decide, sizes_from, unpromised

Integers = NDArray[np.int64]

_WEEK_S = 7 * 86400
_ROUNDING = 1e-6  # tolerance in seconds, for times that were divided and multiplied


class _What(IntEnum):
    """Kinds of events, in the order in which they are handled within a second."""

    ACKNOWLEDGED = 0
    """The leaving processes have finished."""
    STOPPED = 1
    """The data to be read again have been written."""
    TIMED_OUT = 2
    """A resizer job has waited until its time-out."""
    CHECK = 3


@dataclass(slots=True)
class _Run:
    """A running job whose run time may differ from the log's."""

    job: MalleableJob
    run: int  # seconds, in the log
    request: int
    asked: int  # requested cores
    cores: int  # cores on which the job computes
    slower: float = 1.0  # factor of its run time relative to the log
    since: float = 0.0  # time from which the job computes
    left: float = 1.0  # remaining share of its work
    limit: float = 1.0  # remaining share of its request
    end: int = NEVER
    expected: int = NEVER  # expected end by its request
    checked: int = UNSTARTED  # time since which checks are ignored for a period
    allocated_since: int = UNSTARTED
    due: int = 0  # number of its pending event, if any
    answer: PolicyAnswer | None = None  # answer to the previous check
    gives: float = inf  # upper bound of the cores that it would give to let another job start, as far as known
    takes: float = 0  # lower bound of the cores that it would take

    def compute(self, now: int) -> None:
        """Account for the work up to now."""
        if now > self.since:
            self.left = max(self.left - (now - self.since) / (self.run * self.slower), 0.0)
            self.limit -= (now - self.since) / (self.request * self.slower)
            self.since = float(now)

    @property
    def iterations(self) -> int:
        """Number of done iterations, once the work is accounted for."""
        return int(self.job.application.iterations * (1.0 - self.left) + _ROUNDING)


class DmrCore(InPython):
    """Queue, running jobs and clock; see `asa.backends.simulated.cores.base.Core`.

    `capacity`: cores of the machine. For policy and mechanics each is a node.
    `table`: the background load: run times and walltimes on the requested cores.
    `jobs`: describes the job of a row, the same each time; None for a rigid one. Its application only gives the speed
    by size; its iterations only the beginnings of phases.
    `asynchronous`: the answer to a check is carried out at the next one.
    `requeues`: a job that is resized writes its data, stops, and waits in the queue, with its age, for its new number
    of cores; then it reads its data. `costs` say how long this takes, by their `Checkpoints`.
    `size`: weight, in the queue's order, of a job's share of the machine, where a week of age has 1000.

    Notes
    -----
    A job that had nothing to do is checked again when cores or queue have changed, as the answer depends on nothing
    else. Such a change costs O(r + q) for r running and q queued jobs.
    """

    def __init__(
        self,
        capacity: int,
        table: JobTable,
        *,
        now: int,
        jobs: Callable[[int], MalleableJob | None],
        costs: Costs | None = None,
        asynchronous: bool = False,
        requeues: bool = False,
        size: float = 0.0,
    ) -> None:
        rows = len(table)
        self.capacity, self.table, self.now, self.free = capacity, table, now, capacity
        self.ended: list[int] = []
        self.news: list[News] = []
        self.start: Integers = np.full(rows, UNSTARTED, dtype=np.int64)
        self.end: Integers = np.full(rows, UNSTARTED, dtype=np.int64)
        self._jobs, self._costs = jobs, costs or Costs()
        self._asynchronous, self._requeues = asynchronous, requeues
        self._older_s = size / 1000.0 * _WEEK_S / capacity  # seconds of age that equal the weight of one core
        columns = (table.submit, table.run, table.request, table.cores)
        self._submits, self._lasts, self._requests, self._widths = (column.tolist() for column in columns)
        self._next = 0
        self._clients: list[tuple[int, int]] = []  # cores and request
        self._queue: list[tuple[float, int, int, int, int]] = []  # rank, order, job, least size, request at that size
        self._options: dict[int, list[tuple[int, int]]] = {}  # of queued jobs with several sizes, from large to small
        self._unpromised: tuple[int, list[int], list[int]] | None = None  # see `_open`; None until needed
        self._allocated: dict[int, int] = {}
        self._releases: list[tuple[int, int]] = []  # expected ends of running jobs, sorted
        self._ends: list[tuple[int, int, int]] = []  # heap of end, order, job; some are outdated
        self._runs: dict[int, _Run] = {}
        self._stopped: dict[int, _Run] = {}
        self._resizers: list[Resizer] = []  # waiting resizer jobs
        self._events: list[tuple[int, _What, int, int]] = []  # heap of time, event, row, number; some are outdated
        self._leaving: dict[int, tuple[int, int]] = {}  # by running job, the time and the cores of its pending shrink
        self._answered: dict[int, int] = {}  # by job, the cores to give back at the next check
        self._dormant: dict[int, None] = {}  # jobs that were answered to do nothing
        self._spans: list[tuple[int, int, int, int]] = []  # periods of constant width of jobs in `_runs`
        self._order = 0
        self._due = self._changed = False

    def fork(self) -> DmrCore:
        fork = copy.copy(self)
        for name in _LISTS:
            setattr(fork, name, getattr(self, name).copy())
        fork._runs = {row: copy.copy(run) for row, run in self._runs.items()}
        fork._stopped = {row: copy.copy(run) for row, run in self._stopped.items()}
        return fork

    # ------------------------------------------------------------------ views

    @property
    def queued(self) -> Integers:
        return np.array([job for _, _, job, _, _ in self._queue], dtype=np.int64)

    @property
    def exhausted(self) -> bool:
        return self._next >= len(self.table)

    @property
    def spans(self) -> tuple[Integers, Integers, Integers, Integers]:
        """Rows, and begin, end and cores of their past periods of constant width, in the order of rows."""
        resized = np.array(self._spans, dtype=np.int64).reshape(-1, 4)
        is_plain = self.end != UNSTARTED
        is_plain[resized[:, 0]] = False
        rows = np.flatnonzero(is_plain)
        plain = np.column_stack((rows, self.start[rows], self.end[rows], self.table.cores[rows]))
        spans = np.concatenate((plain, resized))
        row, since, until, cores = spans[np.argsort(spans[:, 0], kind="stable")].T
        return row, since, until, cores

    # ------------------------------------------------------------------ the loop

    def _next_event(self) -> int:
        moment: int = self._submits[self._next] if self._next < len(self._submits) else NEVER
        if self._ends:
            moment = min(moment, self._ends[0][0])
        return min(moment, self._events[0][0]) if self._events else moment

    def begin_second(self, now: int) -> None:
        self.now = now
        while self._ends and self._ends[0][0] <= now:
            end, _, job = heappop(self._ends)
            if job >= len(self._submits):
                self.ended.append(job)
            elif (run := self._runs.get(job)) is not None:
                if run.end == end:
                    self.end[job] = now
                    self._take_away(job, run)
            elif job in self._allocated:
                self.end[job] = now
                self.give_back(job, self.start.item(job) + self._requests[job])

    def end_second(self) -> None:
        while self._next < len(self._submits) and self._submits[self._next] <= self.now:
            self._enter(self._next, self._submits[self._next])
            self._next += 1
        while self._events and self._events[0] < (self.now, _What.CHECK):
            self._happen()
        self.schedule()

    def schedule(self) -> None:
        while True:
            if self._due:
                self._pass()
            if self._changed:
                self._wake()
            if not self._events or self._events[0][0] > self.now:
                return
            self._happen()

    # ------------------------------------------------------------------ the queue

    def _enter(self, job: int, since: int) -> None:
        """Insert a job into the queue."""
        sizes = self._sizes(job)
        if len(sizes) > 1:
            self._options[job] = sizes
        self._order += 1
        insort(self._queue, (since - self._older_s * sizes[0][0], self._order, job, *sizes[-1]))
        self._stir()

    def _sizes(self, job: int) -> list[tuple[int, int]]:
        """Return the possible sizes of a job at its start, from large to small, and its request with each."""
        if job >= len(self._submits):
            return [self._clients[job - len(self._submits)]]
        if (run := self._stopped.get(job)) is not None:
            return [(run.cores, _whole(run.request * run.slower * run.limit + self._read_s(run)))]
        cores, request = self._widths[job], self._requests[job]
        described = self._jobs(job)
        if described is None or described.kind is not ApplicationKind.MOLDABLE:
            return [(cores, request)]
        run_s = described.application.run_s
        return [(size, _whole(request * (run_s(size) / run_s(cores)))) for size in described.starts_on()]

    def _stir(self) -> None:
        """Let everything be checked again."""
        self._due = True
        self._promise()

    def _promise(self) -> None:
        """Let jobs check again if their answers depend on promises to other jobs."""
        self._unpromised = None
        self._changed = True

    def _promote(self, place: int) -> None:
        """Move a job to the head, behind jobs that were moved to the head before."""
        rank, _, job, need, lasts = self._queue[place]
        if rank > -inf:
            del self._queue[place]
            self._order += 1
            insort(self._queue, (-inf, self._order, job, need, lasts))
            self._stir()

    def _pass(self) -> None:
        """Go through the queue, resizer jobs first."""
        shadow, extra = self._move_resizers()
        started = False
        for entry in self._queue.copy() if self.free else ():
            if not self.free:
                break
            _, _, job, need, lasts = entry
            if need > self.free:
                if shadow == NEVER:
                    shadow, extra = self._reserve(need)
                continue
            for size, asks_s in self._options.get(job) or ((need, lasts),):
                in_time = self.now + asks_s <= shadow
                if size <= self.free and (in_time or size <= extra):
                    extra -= 0 if in_time else size
                    del self._queue[bisect_left(self._queue, entry)]
                    self._options.pop(job, None)
                    self._begin(job, size, asks_s)
                    started = True
                    break
        if started:
            self._stir()
        self._due = False

    def _move_resizers(self) -> tuple[int, int]:
        """Do all possible expansions; return the reservation of the first impossible one, NEVER if there is none."""
        shadow, extra = NEVER, 0
        for resizer in self._resizers.copy():
            if resizer.nodes <= self.free:
                self._resizers.remove(resizer)
                self._join(resizer.job, resizer.nodes)
            elif shadow == NEVER:
                shadow, extra = self._reserve(resizer.nodes)
        return shadow, extra

    def _reserve(self, need: int) -> tuple[int, int]:
        """Return the time at which enough cores are free by the expected ends, and the cores left over then."""
        free, shadow = self.free, self.now + 1
        for expected, cores in self._expected():
            if free >= need and expected > shadow:
                break
            free += cores
            shadow = max(expected, shadow)
        return shadow, free - need

    def _expected(self) -> Iterable[tuple[int, int]]:
        """Yield times and numbers of cores that are expected to become free, in order."""
        allocated, leaving = self._allocated, self._leaving
        if not leaving:
            return ((expected, allocated[job]) for expected, job in self._releases)
        stay = [(expected, allocated[job] - leaving.get(job, (0, 0))[1]) for expected, job in self._releases]
        return sorted([*stay, *leaving.values()])

    def _begin(self, job: int, size: int, lasts: int) -> None:
        """Start a job that was removed from the queue."""
        self.free -= size
        self._allocated[job] = size
        if job >= len(self._submits):
            insort(self._releases, (self.now + lasts, job))
            self.news.append(News(job, Fate.STARTED))
            return
        if (run := self._stopped.pop(job, None)) is not None:
            run.since = self.now + self._read_s(run)
        else:
            self.start[job] = self.now
            described = self._jobs(job)
            if described is None:
                insort(self._releases, (self.now + lasts, job))
                self.push_end(job, self.now + self._lasts[job])
                return
            run = _Run(described, self._lasts[job], self._requests[job], self._widths[job], size)
            run.since = float(self.now)
            run.slower = self._slower(run, size)
        self._runs[job] = run
        run.allocated_since = run.checked = self.now
        insort(self._releases, (run.expected, job))
        self._foresee(job, run)
        if run.job.kind is not ApplicationKind.MOLDABLE:
            self._watch(job, run)

    def _take_away(self, row: int, run: _Run) -> None:
        """Remove a resizable job that ended or stopped."""
        self._note_span(row, run)
        del self._runs[row]
        self._dormant.pop(row, None)
        self._leaving.pop(row, None)
        self._answered.pop(row, None)
        self._cancel_resizer(row)
        self.give_back(row, run.expected)

    # ------------------------------------------------------------------ resizable jobs

    def _slower(self, run: _Run, cores: int) -> float:
        """Return the factor of its run time on this number of cores, relative to the log."""
        application = run.job.application
        slower = application.run_s(cores) / application.run_s(run.asked)
        if run.job.kind is not ApplicationKind.MOLDABLE:
            slower *= 1.0 + self._costs.none_s / application.period_s
        return slower

    def _foresee(self, row: int, run: _Run) -> None:
        """Compute the end of a running job, and its expected end."""
        del self._releases[bisect_left(self._releases, (run.expected, row))]
        run.end = _whole(run.since + run.run * run.slower * run.left)
        run.expected = max(_whole(run.since + run.request * run.slower * run.limit), run.end)
        insort(self._releases, (run.expected, row))
        self.push_end(row, run.end)

    def _go_on(self, row: int, run: _Run, cores: int, pause_s: float) -> None:
        """Continue a job with this number of cores, after a pause."""
        run.compute(self.now)
        run.since += pause_s
        run.cores, run.slower = cores, self._slower(run, cores)
        self._foresee(row, run)
        self._due = True  # reservations may change

    def _note_span(self, row: int, run: _Run) -> None:
        if self.now > run.allocated_since:
            self._spans.append((row, run.allocated_since, self.now, self._allocated[row]))
            run.allocated_since = self.now

    def _resize(self, row: int, run: _Run, cores: int) -> None:
        """Change the cores of a job."""
        self._note_span(row, run)
        self.free += self._allocated[row] - cores
        self._allocated[row] = cores
        self._stir()

    def _at(self, time: int, what: _What, row: int, run: _Run) -> None:
        """Schedule an event for a job, which replaces its pending one."""
        self._order += 1
        run.due = self._order
        heappush(self._events, (time, what, row, self._order))

    def _watch(self, row: int, run: _Run, since: float = 0.0) -> None:
        """Schedule the next check, not before a time, while the job computes."""
        period = int(run.job.application.period_s)
        periods = max(-(-(_whole(max(since, run.since)) - run.checked) // period), 1)
        self._at(run.checked + periods * period, _What.CHECK, row, run)

    def _happen(self) -> None:
        """Process the first due event."""
        _, what, row, number = heappop(self._events)
        run = self._runs.get(row)
        if run is None or run.due != number:
            return
        run.due = 0
        self._leaving.pop(row, None)
        match what:
            case _What.CHECK:
                self._check(row, run)
            case _What.STOPPED:
                self._written(row, run)
            case _What.ACKNOWLEDGED:
                self._resize(row, run, run.cores)
                self._watch(row, run)
            case _What.TIMED_OUT:
                self._cancel_resizer(row)
                self._watch(row, run)

    def _check(self, row: int, run: _Run) -> None:
        self._dormant.pop(row, None)
        answer, run.answer = run.answer, None
        self._answered.pop(row, None)
        if answer is None:
            answer = self._ask(row, run)
            if answer.action is Action.NONE:
                self._rest(row, run)
                return
            if answer.promotes is not None:
                self._promote(answer.promotes)
            if self._asynchronous:
                run.answer, run.checked = answer, self.now
                if answer.action is Action.SHRINK:
                    self._answered[row] = self._allocated[row] - answer.nodes
                    self._promise()
                self._watch(row, run)
                return
        run.checked = self.now
        if self._requeues:
            self._stop(row, run, answer.nodes)
        elif answer.action is Action.SHRINK:
            self._shrink(row, run, answer.nodes)
        else:
            self._expand(row, run, answer.nodes - run.cores)

    def _ask(self, row: int, run: _Run) -> PolicyAnswer:
        if run.job.phases:
            run.compute(self.now)
        wish = run.job.wish(run.iterations)
        assert wish is not None, "it checks"
        free, places, needs = self._open()
        answer = decide(self._allocated[row], wish, free=free, queued=needs)
        if answer.promotes is None:
            return answer
        return PolicyAnswer(answer.action, answer.nodes, places[answer.promotes])

    def _open(self) -> tuple[int, list[int], list[int]]:
        """Return the free cores, and the indices and minimum sizes of waiting jobs, without promises."""
        if self._unpromised is None:
            queued = [need for _, _, _, need, _ in self._queue]
            promoted = bisect_left(self._queue, (-inf, inf))  # after all jobs of that rank
            coming = sum(cores for _, cores in self._leaving.values()) + sum(self._answered.values())
            coming -= sum(resizer.nodes for resizer in self._resizers)
            free, places = unpromised(self.free, coming, queued, promoted)
            self._unpromised = free, places, [queued[place] for place in places]
        return self._unpromised

    def _rest(self, row: int, run: _Run) -> None:
        """Suspend the checks of a job with nothing to do, until something changes or its wish does."""
        self._dormant[row] = None
        wish = run.job.wish(run.iterations)
        run.gives, run.takes = inf, 0
        if wish is not None and wish.preferred is None and wish.minimum <= run.cores <= wish.maximum:
            others = sizes_from(wish, run.cores)
            run.gives = run.cores - min(others, default=run.cores)
            run.takes = min((size for size in others if size > run.cores), default=inf) - run.cores
        iterations = run.job.application.iterations
        for since, _ in run.job.phases:
            if since > run.iterations:
                share = run.left - (1.0 - since / iterations)
                self._watch(row, run, max(run.since + share * run.run * run.slower, self.now + 1))
                break

    def _wake(self) -> None:
        """Let jobs check again for which there is an action now."""
        self._changed = False
        if not self._dormant:
            return
        free, _, sizes = self._open()
        needs = sorted(set(sizes))
        place = bisect_right(needs, free)
        fits, lacks = place > 0, needs[place] - free if place < len(needs) else inf
        for row in tuple(self._dormant):
            run = self._runs[row]
            if run.gives < lacks and (fits or run.takes > free):
                continue  # section 4.3, by bounds alone
            if self._ask(row, run).action is not Action.NONE:
                del self._dormant[row]
                self._watch(row, run, self.now)

    def _resize_s(self, run: _Run, cores: int) -> float:
        return self._costs.resize_s(run.cores, cores, run.job.application.data_gb)

    def _shrink(self, row: int, run: _Run, cores: int) -> None:
        lasts_s = self._resize_s(run, cores)
        self._go_on(row, run, cores, lasts_s)
        if _whole(lasts_s):
            self._leaving[row] = self.now + _whole(lasts_s), self._allocated[row] - cores
            self._promise()
            self._at(self.now + _whole(lasts_s), _What.ACKNOWLEDGED, row, run)
        else:
            self._resize(row, run, cores)
            self._watch(row, run)

    def _expand(self, row: int, run: _Run, more: int) -> None:
        if more <= self.free:
            self._join(row, more)
            return
        timeout_s = self._costs.timeout_s
        self._resizers.append(Resizer(row, more, self.now + timeout_s))
        self._go_on(row, run, run.cores, timeout_s)
        self._at(self.now + _whole(timeout_s), _What.TIMED_OUT, row, run)
        self._stir()

    def _cancel_resizer(self, row: int) -> None:
        self._resizers = [resizer for resizer in self._resizers if resizer.job != row]
        self._stir()

    def _join(self, row: int, more: int) -> None:
        """Transfer the cores of a resizer job that can run."""
        run = self._runs[row]
        run.since = min(run.since, float(self.now))  # the job need not wait for the time-out
        cores = run.cores + more
        lasts_s = self._resize_s(run, cores)
        self._resize(row, run, cores)
        self._go_on(row, run, cores, lasts_s)
        self._watch(row, run)

    def _stop(self, row: int, run: _Run, cores: int) -> None:
        """Let a job write its data, to continue with this number of cores when the queue provides them."""
        write_s = self._resize_s(run, cores) - self._read_s(run)
        self._go_on(row, run, cores, write_s)
        self._leaving[row] = self.now + _whole(write_s), self._allocated[row]
        self._promise()
        self._at(self.now + _whole(write_s), _What.STOPPED, row, run)

    def _written(self, row: int, run: _Run) -> None:
        self._take_away(row, run)
        self._stopped[row] = run
        self._enter(row, self._submits[row])

    def _read_s(self, run: _Run) -> float:
        checkpoints = self._costs.checkpoints
        assert checkpoints is not None, "only then is anything queued again"
        return checkpoints.restart_s + run.job.application.data_gb / checkpoints.disk_gb_s

    # ------------------------------------------------------------------ the client's jobs, and ends of all jobs

    def add(self, cores: int, request: int, *, qos: int = 0, partition: int = 0) -> int:
        del qos, partition
        self._clients.append((cores, request))
        return len(self._submits) + len(self._clients) - 1

    def push_end(self, index: int, end: int) -> None:
        self._order += 1
        heappush(self._ends, (end, self._order, index))

    def give_back(self, index: int, expected_end: int) -> None:
        self.free += self._allocated.pop(index)
        del self._releases[bisect_left(self._releases, (expected_end, index))]
        self._stir()

    def resize(self, index: int, cores: int, expected_end: int) -> bool:
        del expected_end  # unchanged
        more = cores - self._allocated[index]
        if more > self.free:
            return False
        self.free -= more
        self._allocated[index] = cores
        self._stir()
        return True

    def insert(self, index: int, age_since: int) -> None:
        self._enter(index, age_since)

    def remove(self, index: int) -> None:
        self._queue = [entry for entry in self._queue if entry[2] != index]
        self._stir()


_LISTS = (
    "ended", "news", "start", "end", "_clients", "_queue", "_options", "_allocated", "_releases", "_ends", "_resizers",
    "_events", "_leaving", "_answered", "_dormant", "_spans",
)  # fmt: skip


def _whole(seconds: float) -> int:
    return ceil(seconds - _ROUNDING)
