"""The event engine: a machine under load, in whole seconds, for one client.

Machine, queue and clock are a core's (`asa.backends.simulated.cores`); here is the client's side: dependencies, holds,
begin times, tokens, and the state of its jobs. Control leaves the core's loop only when something happened to one of
these.

Conventions
-----------
1. Within one second: completions first, then the client's timers (begin times, delays), then submissions in the log's
   order, then one scheduling pass.
2. The queue is ordered by the time since which a job's age counts, then by arrival. For background jobs that is the
   submission; for the client's jobs see `Engine.age_accrues`.
3. A pass starts jobs from the head while they fit. The first that does not fit gets a reservation at the earliest
   second at which enough cores are free by the running jobs' walltimes (the shadow time). Each later job starts now if
   it fits now and either its walltime ends no later than the shadow time, or it takes only cores that the head will not
   need then.
4. A job that exceeds its walltime is killed.
5. A client's job gets more cores by a second job, which waits in the queue like any other, and whose cores join the
   first's when it starts. It ends with the first, however that ends. Cores are given back in reverse order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.backend import DependencyType, JobState

from .cores.base import Core, Fate, PlanningCore, PooledCore
from .table import LONGEST_S, NEVER, UNSTARTED, JobTable
from .together import NOTHING_LEFT, Together, Work

_REASONS = {Fate.FAILED: "NodeFail", Fate.PREEMPTED: "Preempted"}


@dataclass(frozen=True, slots=True)
class Need:
    """An unmet dependency of a client's job: on which job, for what of it, with what delay in seconds."""

    on: int
    type: DependencyType  # what is awaited of it
    delay: int = 0
    or_end: bool = False  # whether its end is enough, before the delay is over


@dataclass(slots=True)
class ClientJob:
    """A job of the client inside the engine; times in whole seconds."""

    index: int
    cores: int  # what it asks for, and how long its payload takes
    request: int
    run: int
    exit_code: int
    submit: int
    needs: tuple[Need, ...]  # what keeps it back: dependencies, a begin time, a hold
    begin: int
    held: bool
    awaits: frozenset[str]  # tokens that its payload waits for, and those of its completion markers
    posts: frozenset[str]
    state: JobState = JobState.PENDING  # as the client may see it
    eligible: int = UNSTARTED
    start: int = UNSTARTED
    payload_start: int = UNSTARTED
    end: int = UNSTARTED
    planned_end: int = NEVER  # when it ends if nothing more happens; NEVER if that is not known
    launched: int = UNSTARTED  # how many were started before it; UNSTARTED until it was
    reason: str = ""  # why it waits, or how it ended
    doomed: bool = field(default=False)  # whether its dependency can never be met
    beside: bool = False  # whether it is local: it takes none of the machine's cores
    joins: int | None = None  # the number of the job that its cores join; None if it runs something itself
    unended: int = 0  # jobs that have not ended and whose end it waits for
    # each: a second of the payload, the cores from then on, and whether it waits for these or gives others back
    widths: tuple[tuple[int, int, bool], ...] = ()
    place: int = 0  # the number of `widths` that are past
    # each: the second of the payload at which it waited for more cores, and for how many seconds
    stood: tuple[tuple[int, int], ...] = ()
    stands: int = UNSTARTED  # since when it waits for more cores; UNSTARTED while it does not
    work: Work | None = None  # that it does together with other jobs; None if it works alone
    saves: int = UNSTARTED  # seconds that it takes to save its state; UNSTARTED if it is not signalled
    signalled: int = UNSTARTED  # when it is or was

    @property
    def payload_end(self) -> int:
        """When the payload ends if nothing more happens; NEVER if it waits for something."""
        return NEVER if self.stands != UNSTARTED else self.moment(self.run)

    @property
    def will_time_out(self) -> bool:
        """The payload would need longer than the allocation lasts."""
        return self.payload_end > self.start + self.request

    def done(self, now: int) -> int:
        """Count the seconds of the payload that are done, once it has begun."""
        until = now if self.stands == UNSTARTED else self.stands
        return until - self.payload_start - sum(lasted for _, lasted in self.stood)

    def moment(self, second: int, *, before: bool = False) -> int:
        """When so many seconds of the payload were done, or will be: after it stood still there, or before it did."""
        if self.payload_start == UNSTARTED:
            return NEVER
        if self.stands != UNSTARTED and (second > (there := self.done(0)) or (second == there and not before)):
            return NEVER
        stood = sum(lasted for at, lasted in self.stood if at < second or (at == second and not before))
        return self.payload_start + second + stood


def _fast_core() -> Any:
    from .cores.fast import FastCore  # noqa: PLC0415 - numba takes a third of a second to import

    return FastCore


class Engine:
    """A machine, its queue and its clock.

    `table`: the background load; rows that ask for more than the capacity are not allowed.
    `age_accrues`: the site's rule for a client's job that is kept back by a dependency, a hold or a begin time: whether
    its age counts from submission (true) or only since it became eligible (false).
    `core`: a machine with other rules, and the same jobs; `backfill` is then ignored.

    Notes
    -----
    A pass costs at worst O(r + q) for r running and q queued jobs; a submission to a queue whose head already has its
    reservation costs O(1), because only a completion can move the shadow time.
    """

    def __init__(
        self,
        capacity: int,
        table: JobTable,
        *,
        age_accrues: bool = True,
        backfill: bool = True,
        now: int | None = None,
        core: Core | None = None,
    ) -> None:
        if len(table) and int(table.cores.max()) > capacity:
            raise ValueError("a background job asks for more than the machine has")
        if core is not None and (core.table is not table or core.capacity != capacity):
            raise ValueError("a core of another machine, or of other jobs")
        self.capacity = capacity
        self.table = table
        self.age_accrues = age_accrues
        first = int(table.submit[0]) if len(table) else 0
        begin = first if now is None else min(now, first)
        self._core: Core = core or _fast_core()(capacity, table, backfill=backfill, now=begin)
        self.clients: list[ClientJob] = []
        self._timers: list[tuple[int, int]] = []  # heap of (time, client job)
        self._followers: dict[int, tuple[tuple[int, Need], ...]] = {}  # by job, the jobs that need it
        self._joiners: dict[int, tuple[int, ...]] = {}
        self._idle: dict[int, None] = {}  # jobs that run, and whose payload waits for tokens
        self._posted: set[str] = set()
        self._together = Together()
        self._launched = 0
        self._changed: dict[int, None] = {}  # clients' jobs that something happened to, in order
        self.advance(begin)

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
        qos: int = 0,
        partition: int = 0,
        beside: bool = False,
        shrinks: Iterable[tuple[int, int]] = (),
        grows: Iterable[tuple[int, int]] = (),
        amounts: Mapping[str, int] | None = None,
        work: Work | None = None,
        saves: int = UNSTARTED,
    ) -> int:
        """Submit a client's job now and return its number; the next `advance` schedules it.

        One `beside` the machine (a local job) takes none of its cores, and starts as soon as nothing keeps it back.
        With `shrinks`, it has at most so many cores from given seconds of its payload on; with `grows`, its payload
        waits there until it has so many (see `grow`). In addition to its cores it takes `amounts` of the pools. The
        `work` of several jobs takes `run` if as many as share it run all the time; they end together, and work done by
        one that is killed stays done. If they do it in turn, it takes `run` as well: one ends when the next has started
        and it has saved its state, which takes `saves`; the one after one that is not signalled waits for its end.
        """
        if min(cores, request, run) < 1 or cores > self.capacity:
            raise ValueError(f"a job of {cores} cores that asks for {request} s and runs {run} s cannot be")
        request, run = min(request, LONGEST_S), min(run, LONGEST_S)
        job = ClientJob(
            self._core.add(cores, request, qos=qos, partition=partition),
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
            beside=beside,
            widths=tuple(sorted([(*shrink, False) for shrink in shrinks] + [(*grow, True) for grow in grows])),
            work=work,
            saves=saves,
        )
        if work is not None:
            self._together.add(work, run, self.now)
        if amounts:
            if not isinstance(self._core, PooledCore):
                raise ValueError("a machine of cores alone")
            self._core.ask(job.index, amounts)
        self.clients.append(job)
        number = len(self.clients) - 1
        for need in job.needs:
            self._followers[need.on] = (*self._followers.get(need.on, ()), (number, need))
            job.unended += need.type is not DependencyType.AFTER and not self.clients[need.on].state.is_final
        self._consider(job)
        return number

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
            self._stop(job)
            self._give_back(job)
            self._measure_joined(job)
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

    def resize(self, number: int, cores: int, *, left: int | None = None) -> bool:
        """Change the width of a client's running job now.

        `cores`: its new width, at least 1, including cores that joined, which are given back first.
        `left`: seconds, at least 1, that the rest of its payload takes at the new width; unchanged if not given. The
        walltime stays.
        Returns: false, without any change, if it does not run, or would grow beyond the idle cores.
        """
        job = self.clients[number]
        if cores < 1 or (left is not None and left < 1):
            raise ValueError(f"a job of {cores} cores with {left} s left cannot be")
        more = cores - self.width(number)
        if job.state is not JobState.RUNNING or (more > 0 and not self._resize(job, more)):
            return False
        for other in (*reversed(self._joined(number)), job):
            if -other.cores < more < 0:
                self._resize(other, more)
                break
            if more < 0:
                more += other.cores
                self._end(other)
        if left is not None:
            job.run = left + (job.done(self.now) if job.payload_start != UNSTARTED else 0)
            self.plan_end(job)
        return True

    def grow(self, number: int, cores: int) -> int:
        """Ask for more cores for a client's job, and return the number of the job that waits for them.

        That job is eligible while the first one runs, asks for the first one's remaining walltime, and may be
        cancelled, which gives its cores back.

        `number`: the job; it has not ended, and does not itself join another.
        """
        job = self.clients[number]
        if job.state.is_final or job.beside or job.joins is not None or cores + self.width(number) > self.capacity:
            raise ValueError(f"job {number} cannot get {cores} more cores")
        left = job.request if job.start == UNSTARTED else max(job.start + job.request - self.now, 1)
        other = self.submit(cores=cores, request=left, run=left, needs=[Need(number, DependencyType.AFTER)])
        self.clients[other].joins = number
        self._joiners[number] = (*self._joiners.get(number, ()), other)
        return other

    def width(self, number: int) -> int:
        """Count the cores of a client's job, with what has joined it."""
        return self.clients[number].cores + sum(other.cores for other in self._joined(number))

    # ------------------------------------------------------------------ the loop

    def advance(self, until: int) -> list[int]:
        """Move the clock until something happens to a client's job, at most to `until`.

        Returns: numbers of the client's jobs whose state changed, in order; empty if `until` was reached, or nothing
        can happen any more.
        """
        core, timers = self._core, self._timers
        core.schedule()  # what the client did since may have changed something
        self._take_news()
        while not self._changed:
            core.run(min(until, timers[0][0] - 1) if timers else until)
            if core.ended:
                self._go_on_with_the_second()
            elif core.news:
                self._take_news()
            elif timers and timers[0][0] <= until:
                core.begin_second(timers[0][0])
                self._go_on_with_the_second()
            else:
                core.now = max(core.now, until) if until < NEVER else core.now
                break
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def fork(self) -> Engine:
        """Copy the state; both go on independently. O(rows), to copy what is known of each, such as its start."""
        fork = copy.copy(self)
        fork._core = self._core.fork()
        fork.clients = [copy.copy(job) for job in self.clients]
        fork._together = self._together.fork()
        for name in ("_timers", "_followers", "_joiners", "_idle", "_posted", "_changed"):
            setattr(fork, name, copy.copy(getattr(self, name)))
        return fork

    # ------------------------------------------------------------------ views

    @property
    def now(self) -> int:
        """The clock, in seconds; every event up to and including it has happened."""
        return self._core.now

    @property
    def start(self) -> NDArray[np.int64]:
        """Start of each background job, -1 while it waits."""
        return self._core.start

    def number_of(self, job: ClientJob) -> int:
        """Return the number that `submit` gave for a job."""
        return job.index - len(self.table)

    @property
    def core(self) -> Core:
        """The machine and its queue."""
        return self._core

    def ends(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """When background jobs that started ended, or will; NEVER where that may still change, or is not known yet."""
        known = getattr(self._core, "end", None)
        if known is None:
            ends: NDArray[np.int64] = self.start[rows] + np.minimum(self.table.run[rows], self.table.request[rows])
            return ends
        return np.where(known[rows] == UNSTARTED, NEVER, known[rows])

    @property
    def free_cores(self) -> int:
        """Idle cores now."""
        return self._core.free

    @property
    def queued(self) -> NDArray[np.int64]:
        """Job indices in queue order; indices from ``len(table)`` on are the client's."""
        return self._core.queued

    @property
    def pools(self) -> Mapping[str, int]:
        """What the machine has, by name, where that is more than cores."""
        return self._core.pools if isinstance(self._core, PooledCore) else {}

    def planned_start(self, cores: int, request: int, since: int) -> int | None:
        """Return the planned start of a job submitted now with a begin time; None if the core does not plan."""
        return self._core.planned_start(cores, request, since) if isinstance(self._core, PlanningCore) else None

    def planned(self, number: int) -> float | None:
        """Return the planned start of a client's pending job; None if the core does not plan, or it is kept back."""
        job = self.clients[number]
        waits = job.state is JobState.PENDING and job.eligible != UNSTARTED and not job.beside
        return float(self._core.planned(job.index)) if waits and isinstance(self._core, PlanningCore) else None

    @property
    def exhausted(self) -> bool:
        """The background has no further submission."""
        return self._core.exhausted

    # ------------------------------------------------------------------ a second in which something concerns the client

    def _go_on_with_the_second(self) -> None:
        """After completions: the client's own, its timers, then submissions and the pass."""
        core = self._core
        ended, core.ended[:] = {index - len(self.table) for index in core.ended}, []
        for number in sorted(ended, key=lambda number: self.clients[number].launched):
            self._complete(self.clients[number])
        while self._timers and self._timers[0][0] == core.now:
            job = self.clients[heappop(self._timers)[1]]
            self._consider(job)
            self._reach(job)
        core.end_second()
        self._take_news()

    def _take_news(self) -> None:
        """Take up what became of the client's jobs, other than that their payloads ended."""
        rows = len(self.table)
        news, self._core.news[:] = list(self._core.news), []
        news.sort(key=lambda one: self.clients[one.job - rows].joins is None)  # no job loses what is lost already
        for job_index, fate, again in news:
            job = self.clients[job_index - rows]
            self._changed[job_index - rows] = None
            if fate is Fate.STARTED:
                self._begin(job)
            else:
                self._stop(job)
                job.planned_end, job.reason = NEVER, _REASONS[fate]
                if again:
                    job.state, job.start, job.payload_start = JobState.PENDING, UNSTARTED, UNSTARTED
                    job.place, job.stood, job.stands = 0, (), UNSTARTED
                    self._leave_behind(job)
                else:
                    job.state, job.end = JobState.FAILED, self.now
                    self._settle(job)
                self._measure_joined(job)
        for job_index, fate, _ in news:
            for number, need in self._followers.get(job_index - rows, ()) if fate is Fate.STARTED else ():
                if need.type is DependencyType.AFTER:
                    self._consider(self.clients[number])

    def _begin(self, job: ClientJob) -> None:
        job.state, job.start, job.reason = JobState.RUNNING, self.now, ""
        job.launched, self._launched = self._launched, self._launched + 1
        if job.joins is not None:
            job.payload_start = self.now
            self._measure_joined(job)
        elif job.awaits <= self._posted:
            self._begin_payload(job)
        else:
            self._idle[job.index - len(self.table)] = None
            self.plan_end(job)

    def _begin_payload(self, job: ClientJob) -> None:
        work = job.work
        if work is not None and not self._together.may_begin(work, job, self):
            return
        job.payload_start = self.now
        if work is not None:
            self._together.shared(work, job, self, begins=True)
        self.plan_end(job)
        self._await_width(job)

    def _stop(self, job: ClientJob) -> None:
        """Take in that a job no longer works: others end later, or the next one begins."""
        if job.work is not None and (waiting := self._together.stopped(job.work, job, self)) is not None:
            self._begin_payload(self.clients[waiting])
            self._changed[waiting] = None

    def plan_end(self, job: ClientJob) -> None:
        """Have a job end when its payload does, or its walltime."""
        job.planned_end = min(job.payload_end, job.start + job.request)
        self._core.push_end(job.index, job.planned_end)

    # ------------------------------------------------------------------ how wide a client's job is

    def _await_width(self, job: ClientJob) -> None:
        """Look at a running job again when it is to have another width."""
        if job.place < len(job.widths):
            moment = job.moment(job.widths[job.place][0], before=True)
            heappush(self._timers, (max(moment, self.now), job.index - len(self.table)))

    def _reach(self, job: ClientJob) -> None:
        """Let a running job have the width that it is to have by now."""
        number = job.index - len(self.table)
        if job.state is not JobState.RUNNING or job.payload_start == UNSTARTED or job.stands != UNSTARTED:
            return
        reached = False
        while job.stands == UNSTARTED and job.place < len(job.widths):
            second, width, at_least = job.widths[job.place]
            if job.done(self.now) < second:
                break
            job.place, reached = job.place + 1, True
            if not at_least and width < self.width(number):
                self.resize(number, width)
            self._measure(job)
        if reached:
            self._changed[number] = None
            if job.stands == UNSTARTED:
                self._await_width(job)

    def _measure(self, job: ClientJob) -> None:
        """Stop a payload while it lacks cores, and let it go on when it has them."""
        number = job.index - len(self.table)
        _, width, at_least = job.widths[job.place - 1] if job.place else (0, 0, False)
        lacks = at_least and self.width(number) < width
        if job.state is not JobState.RUNNING or lacks == (job.stands != UNSTARTED):
            return
        if lacks:
            job.stands = self.now
        else:
            there, since, job.stands = job.done(self.now), job.stands, UNSTARTED
            job.stood += ((there, self.now - since),)
            self._await_width(job)
        self._changed[number] = None
        self.plan_end(job)

    def _measure_joined(self, other: ClientJob) -> None:
        """Look at the job whose cores another's are, or were."""
        if other.joins is not None:
            self._measure(self.clients[other.joins])

    def _joined(self, number: int) -> list[ClientJob]:
        return [job for job in self._joining(number) if job.state is JobState.RUNNING]

    def _joining(self, number: int) -> list[ClientJob]:
        return [self.clients[other] for other in self._joiners.get(number, ())]

    def _resize(self, job: ClientJob, more: int) -> bool:
        if not self._core.resize(job.index, job.cores + more, job.start + job.request):
            return False
        job.cores += more
        return True

    def _end(self, other: ClientJob) -> None:
        """End a job that joins another, as it is of no more use."""
        if other.state is JobState.RUNNING:
            other.state, other.end = JobState.COMPLETED, self.now
            self._give_back(other)
            self._changed[other.index - len(self.table)] = None
            self._settle(other)
        elif other.state is JobState.PENDING:
            self.cancel(other.index - len(self.table))

    def _leave_behind(self, job: ClientJob) -> None:
        """End what joined a job that goes back into the queue; what was to join it waits for its next start."""
        number = job.index - len(self.table)
        for other in self._joined(number):
            self._end(other)
        for other in self._joining(number):
            if other.state is JobState.PENDING:
                self._dequeue(other)

    def _complete(self, job: ClientJob) -> None:
        if job.state is not JobState.RUNNING or job.planned_end != self.now:
            return  # it was cancelled, or its end moved when its payload began
        job.end = self.now
        if job.will_time_out and not job.reason:
            job.state = JobState.TIMEOUT
        else:
            job.state = JobState.COMPLETED if job.exit_code == 0 else JobState.FAILED
        self._stop(job)
        if job.work is not None and job.state is JobState.COMPLETED and self._together.is_left(job.work):
            job.reason = NOTHING_LEFT
        self._give_back(job)
        self._changed[job.index - len(self.table)] = None
        self._settle(job)

    def _give_back(self, job: ClientJob) -> None:
        if not job.beside:
            self._core.give_back(job.index, job.start + job.request)

    def _settle(self, ended: ClientJob) -> None:
        """Post an ended job's tokens and look again at the jobs that waited for it."""
        ended_number = ended.index - len(self.table)
        for job in self._joining(ended_number):
            self._end(job)
        if ended.state is JobState.COMPLETED and ended.posts and not ended.reason:
            self._posted |= ended.posts
            self._begin_what_was_awaited()
        for number, need in self._followers.get(ended_number, ()):
            job = self.clients[number]
            if need.type is DependencyType.AFTER:
                self._consider(job)
                continue
            job.unended -= 1
            if not job.unended or ended.state is not JobState.COMPLETED:
                self._consider(job)

    def _begin_what_was_awaited(self) -> None:
        """Begin the payloads of idling jobs whose completion markers are all there by now."""
        for number in sorted(self._idle):
            job = self.clients[number]
            if job.state is not JobState.RUNNING or job.payload_start != UNSTARTED:
                del self._idle[number]
            elif job.awaits <= self._posted:
                del self._idle[number]
                self._begin_payload(job)
                self._changed[number] = None

    # ------------------------------------------------------------------ eligibility

    def _ready_at(self, job: ClientJob) -> int:
        """When nothing but resources will keep a job back, as known now; NEVER while a dependency is unmet."""
        ready = job.begin
        for need in job.needs:
            other = self.clients[need.on]
            if need.type is DependencyType.AFTER:
                # a job that was cancelled before it started counts as started: there is nothing left to wait for
                began = other.start if other.start != UNSTARTED else other.end if other.state.is_final else NEVER
                ended = other.end if need.or_end and other.state.is_final else NEVER
                ready = max(ready, min(began + need.delay, ended))
            elif need.type is DependencyType.AFTEROK and other.state.is_final:
                job.doomed |= other.state is not JobState.COMPLETED
        return NEVER if job.doomed or job.unended else min(ready, NEVER)

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
        if job.beside:
            self._begin(job)
            self._changed[job.index - len(self.table)] = None
            return
        self._core.insert(job.index, job.submit if self.age_accrues else job.eligible)

    def _dequeue(self, job: ClientJob) -> None:
        if job.eligible == UNSTARTED:
            return
        self._core.remove(job.index)
        job.eligible = UNSTARTED
