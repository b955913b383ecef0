"""The event engine: a machine under load, in whole seconds, for one client.

A core (`asa.backends.simulated.cores`) implements machine, queue and clock; this module implements the client's side:
dependencies, holds, begin times, tokens, and the state of its jobs. Control leaves the core's loop only for events that
affect the client.

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
   first's when it starts. It ends with the first job, however that ends. Cores are given back in reverse order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.backend import DependencyType, JobState

from .client import ClientJob, Need
from .cores.base import Core, Fate, PlanningCore, PooledCore
from .table import LONGEST_S, NEVER, UNSTARTED, JobTable
from .together import NOTHING_LEFT, Together, Work
from .widths import Additions, Widths

_REASONS = {Fate.FAILED: "NodeFail", Fate.PREEMPTED: "Preempted"}


def _fast_core() -> Any:
    from .cores.fast import FastCore  # noqa: PLC0415 - numba takes a third of a second to import

    return FastCore


class Engine:
    """A machine, its queue and its clock.

    `table`: the background load; rows that request more than the capacity are not allowed.
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
        self._use(core or _fast_core()(capacity, table, backfill=backfill, now=begin))
        self.clients: list[ClientJob] = []
        self._timers: list[tuple[int, int]] = []  # heap of (time, client's job)
        self._followers: dict[int, tuple[tuple[int, Need], ...]] = {}  # for each job, the jobs that depend on it
        self._idle: dict[int, None] = {}  # running jobs whose payloads wait for tokens
        self._posted: set[str] = set()
        self._together = Together()
        self._additions = Additions()
        self._launched = 0
        self._changed: dict[int, None] = {}  # changed jobs of the client, in order
        self.advance(begin)

    def _use(self, core: Core) -> None:
        self._core = core
        # asked once: asked for each job, it would take a twentieth of a run
        self._planning = core if isinstance(core, PlanningCore) else None

    # ------------------------------------------------------------------ operations of the client

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
        is_local: bool = False,
        widths: Iterable[tuple[int, int, bool]] = (),
        amounts: Mapping[str, int] | None = None,
        work: Work | None = None,
        saves: int = UNSTARTED,
    ) -> int:
        """Submit a client's job now and return its number; the next `advance` schedules it.

        A local job (`is_local`) uses none of the machine's cores, and starts as soon as nothing holds it. Each of
        `widths` is a second of its payload, the number of cores from then on, and whether the job waits until it has so
        many (true), or gives the surplus back (false). In addition to its cores it takes `amounts` of the pools.

        Several jobs may share one `work`. If they do it at the same time, it takes `run` when all of them run; they end
        together, and what a job has done stays done if the job is killed. If they do it in turn, it takes `run` in
        all: a job ends once the next has started and it has saved its own state, which takes `saves`; if it gets no
        signal, the next job waits for its end.
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
            is_local=is_local,
            widths=tuple(sorted(widths)),
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

    @property
    def posted(self) -> AbstractSet[str]:
        """Tokens of the existing completion markers."""
        return self._posted

    def cancel(self, number: int) -> None:
        """Remove a client's pending job from the queue, or end a running one now."""
        job = self.clients[number]
        if job.state is JobState.PENDING:
            was_eligible = job.eligible
            self.dequeue(job)
            job.eligible = was_eligible
            job.state, job.end = JobState.CANCELLED, self.now
        elif job.state is JobState.RUNNING:
            job.state, job.end = JobState.CANCELLED, self.now
            self._stop(job)
            self._give_back(job)
            self.widths.came_or_went(job)
        else:
            return
        self._changed[number] = None
        self._settle(job)

    def hold(self, number: int) -> None:
        """Keep a client's pending job from starting."""
        job = self.clients[number]
        if job.state is JobState.PENDING:
            job.held = True
            self.dequeue(job)

    def release(self, number: int) -> None:
        """Release a held job."""
        job = self.clients[number]
        if job.state is JobState.PENDING and job.held:
            job.held = False
            self._consider(job)

    # ------------------------------------------------------------------ the loop

    def advance(self, until: int) -> list[int]:
        """Move the clock until something happens to a client's job, at most to `until`.

        Returns: numbers of the client's jobs whose state changed, in order; empty if `until` was reached, or nothing
        can happen any more.
        """
        core, timers = self._core, self._timers
        core.schedule()  # the client's operations since the last call may have changed something
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
        """Copy the state; both copies continue independently. O(rows), to copy known times such as starts."""
        fork = copy.copy(self)
        fork._use(self._core.fork())
        fork.clients = [copy.copy(job) for job in self.clients]
        fork._together = self._together.fork()
        fork._additions = self._additions.fork()
        for name in ("_timers", "_followers", "_idle", "_posted", "_changed"):
            setattr(fork, name, copy.copy(getattr(self, name)))
        return fork

    # ------------------------------------------------------------------ views

    @property
    def widths(self) -> Widths:
        """Widths of the client's jobs.

        What refers back to an engine is not kept in it: forks are many and large, and only a reference count frees
        them at once.
        """
        return Widths(self, self._additions)

    @property
    def now(self) -> int:
        """Current time in seconds; every event up to and including this second has happened."""
        return self._core.now

    @property
    def start(self) -> NDArray[np.int64]:
        """Start of each background job, -1 while it waits."""
        return self._core.start

    def number_of(self, job: ClientJob) -> int:
        """Return the number of a job, as returned by `submit`."""
        return job.index - len(self.table)

    @property
    def core(self) -> Core:
        """The machine and its queue."""
        return self._core

    def ends(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the past or future ends of started background jobs; NEVER where unknown or still subject to change."""
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
        """Job numbers in queue order; numbers from ``len(table)`` on are the client's."""
        return self._core.queued

    @property
    def pools(self) -> Mapping[str, int]:
        """Resources of a machine that has more than cores, by name."""
        # `isinstance` would take a twentieth of a run
        pools: Mapping[str, int] = getattr(self._core, "pools", {})
        return pools

    def planned_start(self, cores: int, request: int, since: int) -> int | None:
        """Return the planned start of a job submitted now with a begin time; None if the core does not plan."""
        return self._planning.planned_start(cores, request, since) if self._planning is not None else None

    def planned(self, number: int) -> float | None:
        """Return a pending job's planned start; None if the core does not plan, or the job is kept back."""
        job = self.clients[number]
        waits = job.state is JobState.PENDING and job.eligible != UNSTARTED and not job.is_local
        return float(self._planning.planned(job.index)) if waits and self._planning is not None else None

    @property
    def exhausted(self) -> bool:
        """Whether the background has no further submissions."""
        return self._core.exhausted

    # ------------------------------------------------------------------ seconds with events for the client

    def _go_on_with_the_second(self) -> None:
        """Finish a second after completions: the client's completions, its timers, then submissions and the pass."""
        core = self._core
        ended, core.ended[:] = {index - len(self.table) for index in core.ended}, []
        for number in sorted(ended, key=lambda number: self.clients[number].launched):
            self._complete(self.clients[number])
        while self._timers and self._timers[0][0] == core.now:
            job = self.clients[heappop(self._timers)[1]]
            self._consider(job)
            self.widths.reach(job)
        core.end_second()
        self._take_news()

    def _take_news(self) -> None:
        """Process changes of the client's jobs other than ends of payloads."""
        rows = len(self.table)
        news, self._core.news[:] = list(self._core.news), []
        # additions last, so that no job loses cores that were already lost
        news.sort(key=lambda item: not self.widths.is_addition(item.job - rows))
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
                    self.widths.leave_behind(job)
                else:
                    job.state, job.end = JobState.FAILED, self.now
                    self._settle(job)
                self.widths.came_or_went(job)
        for job_index, fate, _ in news:
            for number, need in self._followers.get(job_index - rows, ()) if fate is Fate.STARTED else ():
                if need.type is DependencyType.AFTER:
                    self._consider(self.clients[number])

    def _begin(self, job: ClientJob) -> None:
        job.state, job.start, job.reason = JobState.RUNNING, self.now, ""
        job.launched, self._launched = self._launched, self._launched + 1
        if self.widths.is_addition(number := job.index - len(self.table)):
            job.payload_start = self.now
            self.widths.came_or_went(job)
        elif job.awaits <= self._posted:
            self._begin_payload(job)
        else:
            self._idle[number] = None
            self.plan_end(job)

    def _begin_payload(self, job: ClientJob) -> None:
        work = job.work
        if work is not None and not self._together.may_begin(work, job, self):
            return
        job.payload_start = self.now
        if work is not None:
            self._together.shared(work, job, self, begins=True)
        self.plan_end(job)
        self.widths.look_at_next(job)

    def _stop(self, job: ClientJob) -> None:
        """Process that a job stops working: jobs that share its work end later, or the next one begins."""
        if job.work is not None and (waiting := self._together.stopped(job.work, job, self)) is not None:
            self._begin_payload(self.clients[waiting])
            self._changed[waiting] = None

    def plan_end(self, job: ClientJob) -> None:
        """Set a job to end with its payload, or at its walltime."""
        job.planned_end = min(job.payload_end, job.start + job.request)
        self._core.push_end(job.index, job.planned_end)

    # ------------------------------------------------------------------ operations for other modules

    def changed(self, job: ClientJob) -> None:
        """Record that a job changed."""
        self._changed[job.index - len(self.table)] = None

    def look_again(self, job: ClientJob, moment: int) -> None:
        """Check a job and its width again at a time from now on."""
        heappush(self._timers, (max(moment, self.now), job.index - len(self.table)))

    def finish(self, job: ClientJob) -> None:
        """End a job that is no longer needed."""
        if job.state is JobState.RUNNING:
            job.state, job.end = JobState.COMPLETED, self.now
            self._give_back(job)
            self.changed(job)
            self._settle(job)
        elif job.state is JobState.PENDING:
            self.cancel(job.index - len(self.table))

    def _complete(self, job: ClientJob) -> None:
        if job.state is not JobState.RUNNING or job.planned_end != self.now:
            return  # the job was cancelled, or its end moved when its payload began
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
        if not job.is_local:
            self._core.give_back(job.index, job.start + job.request)

    def _settle(self, ended: ClientJob) -> None:
        """Post an ended job's tokens, and check the jobs that waited for it again."""
        ended_number = ended.index - len(self.table)
        for job in self.widths.additions(ended_number):
            self.finish(job)
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
        """Begin the payloads of idling jobs whose completion markers all exist by now."""
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
        """Return when only a lack of resources will hold a job, as known now; NEVER while a dependency is unmet."""
        ready = job.begin
        for need in job.needs:
            needed = self.clients[need.on]
            if need.type is DependencyType.AFTER:
                # a job that was cancelled before its start counts as started, since no event can follow
                began = needed.start if needed.start != UNSTARTED else needed.end if needed.state.is_final else NEVER
                ended = needed.end if need.or_end and needed.state.is_final else NEVER
                ready = max(ready, min(began + need.delay, ended))
            elif need.type is DependencyType.AFTEROK and needed.state.is_final:
                job.doomed |= needed.state is not JobState.COMPLETED
        return NEVER if job.doomed or job.unended else min(ready, NEVER)

    def _consider(self, job: ClientJob) -> None:
        """Insert a pending job into the queue unless something else holds it."""
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
        if job.is_local:
            self._begin(job)
            self._changed[job.index - len(self.table)] = None
            return
        self._core.insert(job.index, job.submit if self.age_accrues else job.eligible)

    def dequeue(self, job: ClientJob) -> None:
        """Remove a pending job from the queue."""
        if job.eligible == UNSTARTED:
            return
        self._core.remove(job.index)
        job.eligible = UNSTARTED
