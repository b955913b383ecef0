"""A simulated world in which many users submit jobs, some of them in asa's ways.

A world of thousands of whole clients would take hours, so users are light agents on the engine. They have no journal,
no scripts and no plans of whole graphs. They take from asa what matters to others: its estimator, which learns from the
queue that they all change; its rule of races, but without patience (`asa.strategies.racing`); and when `asa` and `asa-
naive` ask for a stage ahead of time (`asa.strategies.asa`), stage by stage. They look at the queue at intervals, as a
client does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

import numpy as np
from numpy.typing import NDArray

from asa.backend import Capabilities, DependencyType, JobState
from asa.backends.simulated.client import ClientJob, Need
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.feed import QueueFeed
from asa.backends.simulated.table import UNSTARTED
from asa.backends.simulated.together import Work
from asa.estimators import OwnJob, WaitBank
from asa.shapes import Moldable, RunAt
from asa.strategies.asa import AheadOfTime, Naive
from asa.strategies.base import MIN_IDLE_S
from asa.studies.adoption.habits import Asking, Habits
from asa.studies.adoption.window import WIDE_SHARE, Centre, LogWindow
from asa.waits import QueuedJob, WaitForecast, at_least, at_most, exactly
from asa.workflow import Stage

_LOOKS_S = 10  # time between two looks at the queue
_LEARNS_S = 60  # lower bound of the time between two looks at others' jobs
_HALF_TAKES = 1.8  # run time of a moldable program on half the cores, relative to that on all
_MISJUDGED = 0.2  # standard deviation of the logarithm of a run time about its user's estimate
_FORECASTS = 400  # jobs of others whose waits are predicted
_ALL_EVENTS = 2**31


@dataclass(frozen=True, slots=True)
class Draw:
    """What differs between two draws, and is the same at every share of users."""

    window: LogWindow
    order: tuple[int, ...]  # in which users begin to use asa
    misjudged: NDArray[np.float64]  # by job: estimate of its run time over its run time
    is_moldable: NDArray[np.bool_]  # by job: whether it may run on fewer cores, or else consists of tasks
    predicted: NDArray[np.intp]  # rows of others' jobs whose waits are predicted, to see how good forecasts are

    @classmethod
    def of(cls, window: LogWindow, rng: np.random.Generator) -> Draw:
        """Draw them."""
        table = window.jobs.table
        programs = np.stack([window.jobs.users, table.cores], axis=1)
        _, program = np.unique(programs, axis=0, return_inverse=True)
        measured = window.others[_within(table.submit[window.others], window)]
        few = min(_FORECASTS, len(measured))
        return cls(
            window,
            tuple(rng.permutation(window.able).tolist()),
            np.exp(_MISJUDGED * rng.standard_normal(len(table))),
            (rng.random(len(table)) < 0.5)[program.ravel()],
            np.sort(rng.choice(measured, few, replace=False)),
        )

    def adopters(self, share: float) -> frozenset[int]:
        """Return the users who use asa; those of a smaller share are among those of a larger one."""
        many = round(share * len(self.order))
        return frozenset(self.order[: max(many, 1) if share > 0 else 0])


def _within(moments: NDArray[np.int64], window: LogWindow) -> NDArray[np.bool_]:
    return (moments >= window.begin_s) & (moments < window.end_s)


@dataclass(slots=True)
class _Job:
    """A job of the log, as its user gets it done."""

    row: int
    before: _Job | None
    after: _Job | None = None
    way: Asking = Asking.PLAIN
    numbers: list[int] = field(default_factory=list)  # the engine's jobs that were submitted for it
    submit_s: int = UNSTARTED
    start_s: int = UNSTARTED
    end_s: int = UNSTARTED
    expected_start_s: float = 0.0
    returned: int = 0  # how many allocations began too early, and were given back
    version: int = 0  # of the plan to submit it ahead
    is_looked_at: bool = False


@dataclass(frozen=True, slots=True)
class Happened:
    """What happened in a world; times by job of the log, -1 for what did not happen."""

    submit_s: NDArray[np.int64]
    start_s: NDArray[np.int64]  # of its run
    end_s: NDArray[np.int64]
    queued: NDArray[np.int64]  # of everything submitted: from when on it was in the queue, until when, and its cores
    busy: NDArray[np.int64]  # of everything that ran: from when, until when, its cores, and when its payload began
    submissions_s: NDArray[np.int64]  # times
    cancellations_s: NDArray[np.int64]
    covered: NDArray[np.bool_]  # of the predicted waits: whether they were at most their p90
    in_asas_ways: NDArray[np.bool_]  # by job of the log: whether it was asked for in one of asa's ways


class SharedWorld:
    """A machine with its users, some of whom use asa."""

    def __init__(self, centre: Centre, draw: Draw, share: float, habits: Habits) -> None:
        window = draw.window
        self._window, self._draw, self._habits = window, draw, habits
        self._name, self._table = centre.name, window.jobs.table
        background = window.background
        self._engine: Engine = centre.engine(background)
        self._engine.age_accrues = habits.age_accrues
        self._site = Capabilities(centre.name, centre.log.cores, 1, habits.age_accrues, races=True)
        self._longest_s = int(self._table.request.max())
        self._wide = WIDE_SHARE * centre.log.cores
        self._ahead, self._naive = AheadOfTime(), Naive()
        self._bank = WaitBank(habits.estimator, machine_cores=centre.log.cores)
        self._feed = QueueFeed(self._engine, centre.name, background.users)
        self._learned_s = UNSTARTED
        self._owns: dict[int, OwnJob] = {}  # the bank's views of pending jobs, by number
        self._forecasts: dict[int, float] = {}  # p90 by row
        self._of: dict[int, _Job] = {}  # by number of the engine's job
        self._given_s: list[int] = []
        self._cancelled_s: list[int] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._ticket = count()
        self._adopters = draw.adopters(share)
        self._jobs: dict[int, _Job] = {}
        for chain in window.chains:
            before: _Job | None = None
            for row in chain:
                job = _Job(row, before)
                job.way = self._way(job)
                if before is not None:
                    before.after = job
                self._jobs[row] = before = job
            self._at(int(self._table.submit[chain[0]]), self._submission(self._jobs[chain[0]]))
        for row in draw.predicted.tolist():
            self._at(int(self._table.submit[row]) - 1, self._prediction(row))

    def _way(self, job: _Job) -> Asking:
        """Return how a job is asked for."""
        ways = self._habits.ways
        if self._window.jobs.users[job.row] not in self._adopters:
            return Asking.PLAIN
        if job.before is not None and Asking.AHEAD in ways:
            return Asking.AHEAD
        cores = int(self._table.cores[job.row])
        if cores < max(self._wide, 2):
            return Asking.PLAIN
        way = Asking.RACES if self._draw.is_moldable[job.row] else Asking.PARTS
        return way if way in ways else Asking.PLAIN

    # ------------------------------------------------------------------ the loop

    def run(self) -> Happened:
        """Run it to the end of the window."""
        engine, heap, until = self._engine, self._heap, self._window.until_s
        while True:
            moment = min(heap[0][0], until) if heap else until
            if changed := engine.advance(max(moment, engine.now)):
                for number in changed:
                    self._notice(number)
            elif engine.now >= until:
                return self._happened()
            else:
                while heap and heap[0][0] <= engine.now:
                    heappop(heap)[2]()

    def _at(self, moment_s: float, act: Callable[[], None]) -> None:
        heappush(self._heap, (math.ceil(moment_s), next(self._ticket), act))

    def _submission(self, job: _Job) -> Callable[[], None]:
        return lambda: self._ready(job)

    def _notice(self, number: int) -> None:
        """Let the user of a changed job look at it soon."""
        job, client = self._of[number], self._engine.clients[number]
        if client.start != UNSTARTED and number in self._owns:
            waited = client.start - client.submit
            was_kept_back = client.eligible > client.submit and client.start == client.eligible
            self._learn()
            self._bank.observe(self._owns.pop(number), at_most(waited) if was_kept_back else exactly(waited))
        if not job.is_looked_at:
            job.is_looked_at = True
            self._at(-(-self._engine.now // _LOOKS_S) * _LOOKS_S, lambda: self._look(job))

    # ------------------------------------------------------------------ what users do

    def _look(self, job: _Job) -> None:
        """React to what happened to a job."""
        job.is_looked_at = False
        if job.end_s != UNSTARTED:
            return
        clients = [self._engine.clients[number] for number in job.numbers]
        began = [c for c in clients if c.payload_start != UNSTARTED]
        if began:
            job.start_s = min(c.payload_start for c in began)
        done = next((c for c in clients if c.state is JobState.COMPLETED), None)
        if (began and job.way is Asking.RACES) or done is not None:
            for number, client in zip(job.numbers, clients, strict=True):
                if client.state is JobState.PENDING:
                    self._cancel(number)
        if done is not None:
            job.end_s = done.end
            if job.after is not None:
                self._ready(job.after)
        else:
            self._look_ahead(job, clients, has_begun=bool(began))

    def _look_ahead(self, job: _Job, clients: list[ClientJob], *, has_begun: bool) -> None:
        """Ask for what is missing of a job, or for the next one; or be ready to give back what came too early."""
        if job.way is Asking.PARTS and all(c.state.is_final for c in clients):
            self._ask_for_rest(job, clients)
        elif clients[-1].state is JobState.RUNNING and not has_begun:
            self._at(clients[-1].start + self._hold_s(job), lambda: self._give_back(job, job.numbers[-1]))
        elif has_begun and job.after is not None:
            self._plan_ahead(job.after)

    def _ready(self, job: _Job) -> None:
        """Ask for a job that can run now, unless that was done ahead."""
        table, row = self._table, job.row
        if any(self._engine.clients[number].state is not JobState.CANCELLED for number in job.numbers):
            return
        job.version += 1
        cores, request, run = int(table.cores[row]), int(table.request[row]), int(table.run[row])
        if job.way is Asking.PARTS:
            jobs = min(self._habits.parts, cores)
            for part in range(jobs):
                width = (cores + part) // jobs
                self._ask(job, width, request, run, work=Work(f"{row}", sharing=jobs))
        elif job.way is Asking.RACES:
            self._race(job, 0)
        else:
            self._ask(job, cores, request, run)

    def _race(self, job: _Job, asked: int) -> None:
        """Ask for a job in its first shape, or in the others if it has not started for a while."""
        races = self._habits.races
        shapes = list(self._shapes(job))
        if not asked:
            new = shapes[:1]
        elif any(self._engine.clients[number].start != UNSTARTED for number in job.numbers):
            return
        else:
            new = shapes[1 : 1 + races.max_racers]
        for cores, request, run in new:
            self._ask(job, cores, request, run, work=Work(f"{job.row}", races=((f"{job.row}", "", 0),)))
        if not asked and len(shapes) > 1:
            self._at(self._engine.now + races.pause_s, lambda: self._race(job, 1))

    def _shapes(self, job: _Job) -> Iterator[tuple[int, int, int]]:
        """Yield cores, walltime and run time of the shapes that race, in asa's order."""
        table, row = self._table, job.row
        cores, request, run = int(table.cores[row]), int(table.request[row]), int(table.run[row])
        half = cores // 2
        if _HALF_TAKES * request > self._longest_s:
            yield cores, request, run
            return
        expected_s = self._expected_s(job)
        shapes = (RunAt(cores, expected_s), RunAt(half, _HALF_TAKES * expected_s))
        stage = Stage(
            "job",
            cores=cores,
            walltime_s=float(request),
            expected_run_s=expected_s,
            command="true",
            moldable=Moldable((cores, half), shapes, walltime_at=((cores, request), (half, _HALF_TAKES * request))),
        )
        for asked in self._habits.races.requests([stage], self._site):
            times = 1.0 if asked.cores == cores else _HALF_TAKES
            yield asked.cores, math.ceil(asked.shapes[0].walltime_s), math.ceil(times * run)

    def _ask_for_rest(self, job: _Job, ended: list[ClientJob]) -> None:
        """Ask for as many jobs as the remaining tasks need, if the walltimes of all jobs have ended."""
        table, row = self._table, job.row
        cores, request = int(table.cores[row]), int(table.request[row])
        jobs = min(self._habits.parts, cores)
        left_s = jobs * int(table.run[row]) - sum(c.end - c.payload_start for c in ended if c.payload_start >= 0)
        for part in range(min(max(-(-left_s // request), 1), jobs)):
            self._ask(job, (cores + part) // jobs, request, request, work=Work(f"{row}", sharing=jobs))

    # ------------------------------------------------------------------ asking ahead

    def _plan_ahead(self, job: _Job) -> None:
        """Submit a job that follows another, or wait for the right moment; see `asa.strategies.asa`."""
        job.version += 1
        before, now = job.before, self._engine.now
        if job.way is not Asking.AHEAD or before is None or before.end_s != UNSTARTED or job.numbers[job.returned :]:
            return
        number = self._hangs_on(before)
        if number is None:
            return
        accrues = self._habits.age_accrues
        hold_s = 0.0 if accrues else self._hold_s(job)
        if not accrues and (job.returned >= self._naive.max_resubmissions or hold_s < MIN_IDLE_S):
            return
        start_s = before.start_s if before.start_s != UNSTARTED else max(before.expected_start_s, now)
        needed_s = max(start_s + self._expected_s(before), now)
        forecast = self._predict(job)
        level = self._ahead.lead_level if accrues else self._naive.lead_level
        lead_s = 0.5**job.returned * (forecast.wait_s if forecast.alternative >= 0 else forecast.at(level))
        if needed_s - lead_s > now:
            version = job.version
            self._at(needed_s - lead_s, lambda: self._plan_ahead(job) if job.version == version else None)
            return
        table, row = self._table, job.row
        request = int(table.request[row]) + math.ceil(hold_s)
        shape = int(table.cores[row]), request, int(table.run[row])
        if accrues:
            self._ask(job, *shape, needs=(Need(number, DependencyType.AFTEROK),))
        else:
            self._ask(job, *shape, awaits=(f"{before.row}",))
        job.expected_start_s = max(needed_s, now + forecast.wait_s)

    def _hangs_on(self, job: _Job) -> int | None:
        """Return the engine's job whose end a follower waits for; None while that is not decided, or there are many.

        Nothing depends on a job that races until it has won.
        """
        clients = self._engine.clients
        running = [number for number in job.numbers if clients[number].payload_start != UNSTARTED]
        running = [number for number in running if not clients[number].state.is_final]
        if job.way is Asking.PARTS or len(running) > 1:
            return None
        if running or job.way is Asking.RACES or not self._habits.age_accrues:
            return running[0] if running else None
        pending = [number for number in job.numbers if clients[number].state is JobState.PENDING]
        return pending[0] if pending else None

    def _hold_s(self, job: _Job) -> float:
        """Return how long an allocation that began early may idle, within the budget of its chain."""
        first = job
        while first.before is not None:
            first = first.before
        work_s = idle_s = 0.0
        step: _Job | None = first
        while step is not None:
            cores = int(self._table.cores[step.row])
            work_s += cores * self._expected_s(step)
            idle_s += cores * sum(_idle_s(self._engine.clients[number]) for number in step.numbers)
            step = step.after
        allowed_s = (self._naive.max_idle * work_s - idle_s) / int(self._table.cores[job.row])
        return max(min(self._naive.max_hold_s, allowed_s), 0.0)

    def _give_back(self, job: _Job, number: int) -> None:
        """Give back an allocation that began too early."""
        client = self._engine.clients[number]
        if client.state is JobState.RUNNING and client.payload_start == UNSTARTED:
            self._cancel(number)
            job.returned += 1
            self._plan_ahead(job)

    # ------------------------------------------------------------------ requests and forecasts

    def _ask(
        self,
        job: _Job,
        cores: int,
        request: int,
        run: int,
        *,
        needs: tuple[Need, ...] = (),
        awaits: tuple[str, ...] = (),
        work: Work | None = None,
    ) -> None:
        engine, row = self._engine, job.row
        user = int(self._window.jobs.users[row])
        if isinstance(engine.core, GeneralCore):
            engine.core.client_user = user
        number = engine.submit(
            cores=cores,
            request=request,
            run=run,
            needs=needs,
            awaits=awaits,
            posts=(f"{row}",) if job.after is not None else (),
            partition=int(self._window.jobs.partitions[row]),
            work=work,
        )
        self._given_s.append(engine.now)
        self._of[number] = job
        job.numbers.append(number)
        job.submit_s = engine.now if job.submit_s == UNSTARTED else job.submit_s
        asked = self._asked(cores, request, user)
        self._learn()
        forecast = self._bank.predict(asked)
        self._owns[number] = self._bank.submitted(asked, forecast)
        job.expected_start_s = engine.now + forecast.wait_s
        if (after := job.after) is not None:
            self._at(engine.now, lambda: self._plan_ahead(after))

    def _cancel(self, number: int) -> None:
        client = self._engine.clients[number]
        self._engine.cancel(number)
        self._cancelled_s.append(self._engine.now)
        if (own := self._owns.pop(number, None)) is not None:
            self._bank.observe(own, at_least(self._engine.now - client.submit))

    def _asked(self, cores: int, request: int, user: int) -> QueuedJob:
        return QueuedJob(float(self._engine.now), cores, float(request), f"u{user}", self._name)

    def _predict(self, job: _Job) -> WaitForecast:
        table, row = self._table, job.row
        self._learn()
        user = int(self._window.jobs.users[row])
        return self._bank.predict(self._asked(int(table.cores[row]), int(table.request[row]), user))

    def _learn(self) -> None:
        """Learn what became known of others' jobs."""
        if self._engine.now >= self._learned_s + _LEARNS_S:
            self._learned_s = self._engine.now
            self._bank.follow(self._feed.news(_ALL_EVENTS))

    def _prediction(self, row: int) -> Callable[[], None]:
        def predict() -> None:
            self._learn()
            table, user = self._table, int(self._window.jobs.users[row])
            asked = self._asked(int(table.cores[row]), int(table.request[row]), user)
            self._forecasts[row] = self._bank.predict(asked).at(0.9)

        return predict

    def _expected_s(self, job: _Job) -> float:
        run_s = float(self._draw.misjudged[job.row]) * int(self._table.run[job.row])
        return min(run_s, float(self._table.request[job.row]))

    # ------------------------------------------------------------------ the end

    def _happened(self) -> Happened:
        table, others, engine, until = self._table, self._window.others, self._engine, self._window.until_s
        submit, start, end = (np.full(len(table), UNSTARTED, dtype=np.int64) for _ in range(3))
        submit[others], start[others] = table.submit[others], engine.start[self._window.able :]
        ran = others[start[others] != UNSTARTED]
        end[ran] = start[ran] + np.minimum(table.run[ran], table.request[ran])
        in_asas_ways = np.zeros(len(table), dtype=np.bool_)
        for row, job in self._jobs.items():
            submit[row], start[row], end[row] = job.submit_s, job.start_s, job.end_s
            in_asas_ways[row] = job.way is not Asking.PLAIN
        left = np.where(start[others] == UNSTARTED, until, start[others])
        queued = [np.stack([submit[others], left, table.cores[others]], axis=1)]
        busy = [np.stack([start[ran], end[ran], table.cores[ran], start[ran]], axis=1)]
        for client in engine.clients:
            left_s = client.start if client.start != UNSTARTED else client.end if client.end != UNSTARTED else until
            if client.eligible != UNSTARTED:
                queued.append(np.array([[client.eligible, left_s, client.cores]]))
            if client.start != UNSTARTED:
                ends_s = client.end if client.end != UNSTARTED else until
                began_s = client.payload_start if client.payload_start != UNSTARTED else ends_s
                busy.append(np.array([[client.start, ends_s, client.cores, began_s]]))
        waited = np.where(start == UNSTARTED, until, start) - submit
        rows = [row for row in self._draw.predicted.tolist() if row in self._forecasts]
        return Happened(
            submit,
            start,
            end,
            np.concatenate(queued),
            np.concatenate(busy),
            np.array([*self._given_s, *table.submit[others].tolist()], dtype=np.int64),
            np.array(self._cancelled_s, dtype=np.int64),
            np.array([waited[row] <= self._forecasts[row] for row in rows], dtype=np.bool_),
            in_asas_ways,
        )


def _idle_s(client: ClientJob) -> int:
    """Return how long a job was idle before its payload began."""
    if client.start == UNSTARTED:
        return 0
    began_s = client.payload_start if client.payload_start != UNSTARTED else max(client.end, client.start)
    return began_s - client.start
