"""Simulates a cluster whose running jobs ask whether to resize, and records each job of a workload.

Times are seconds, as real numbers. Of events at the same time, the one that was scheduled first happens first. The
queue is scheduled whenever a job was submitted, nodes were freed, or a resizer job came or went: by priority, starting
jobs that fit. The first that does not fit gets a reservation: the earliest time at which it fits according to the
walltimes of running jobs, if that is not too far ahead. A later job overtakes it if it ends before, or takes only nodes
that are left over then (EASY backfilling).

Resizer jobs come first, since a job stands still for each; then jobs that a shrink has promoted; then the others, by
Slurm's multifactor priority.

A job checks at the end of an iteration, unless it is the last or the check is inhibited. An asynchronous check carries
out the answer of the check before. If that was to do nothing, a new answer is computed for the next check (section
5.1).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from asa.backends.dmr.applications import MalleableJob
from asa.backends.dmr.mechanics import Costs, Ledger, Resizer
from asa.backends.dmr.policy import PolicyAnswer, decide, next_check, unpromised
from asa.dmr.protocol import Action
from asa.errors import InputError


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The rules by which Slurm schedules the queue."""

    # weights in the multifactor priority: of the weeks since submission, and of the job's share of the nodes
    age: float = 1000.0
    size: float = 1000.0
    # time that backfilling looks ahead: a job whose reservation would be later has none, and all jobs that fit overtake
    # it. A day is Slurm's default (`bf_window`). Jobs without a walltime are assumed to last a year, so that jobs that
    # wait for them have no reservation
    window_s: float = 86400.0
    depth: int = 100  # number of jobs that are considered; 100 is Slurm's default (`bf_max_job_test`)

    def rank(self, job: MalleableJob, nodes: int) -> float:
        """Return a job's rank; lower is earlier. It is constant, since the age of all jobs grows equally."""
        return self.age * job.submit_s / (7 * 86400) - self.size * job.nodes / nodes


@dataclass(frozen=True, slots=True)
class Resize:
    """The result of a check."""

    action: Action
    nodes: int  # nodes that the job was to have then
    at_s: float
    lasted_s: float  # for how long the job stood still
    done: bool = True  # whether it was carried out; an expansion may time out


@dataclass(slots=True)
class JobRecord:
    """The record of a job."""

    job: MalleableJob
    start_s: float = 0.0
    end_s: float = 0.0
    # the times of changes, each with the number of nodes from then on
    sizes: list[tuple[float, int]] = field(default_factory=list)
    # seconds of computing, by number of nodes
    computed_s: dict[int, float] = field(default_factory=dict)
    paused_s: float = 0.0  # seconds that it stood still for checks
    resizes: list[Resize] = field(default_factory=list)  # results of its checks, except those that did nothing
    checks: int = 0  # number of checks that did nothing

    @property
    def wait_s(self) -> float:
        """Seconds from submission to start."""
        return self.start_s - self.job.submit_s

    @property
    def run_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s

    @property
    def node_s(self) -> float:
        """Allocated node-seconds."""
        ends = [*(since for since, _ in self.sizes[1:]), self.end_s]
        return sum(nodes * (until - since) for (since, nodes), until in zip(self.sizes, ends, strict=True))


@dataclass(slots=True)
class _SimulatedProgram:
    record: JobRecord
    checked_s: float  # time of the last check; the inhibitor counts from it
    done: int = 0  # finished iterations
    answer: PolicyAnswer | None = None  # of the previous check
    returns: int = 0  # number of nodes that it has yet to give back

    @property
    def nodes(self) -> int:
        return self.record.sizes[-1][1]


class MalleableCluster:
    """A cluster that runs a workload."""

    def __init__(
        self,
        nodes: int,
        jobs: Sequence[MalleableJob],
        *,
        costs: Costs | None = None,
        scheduling: Scheduling | None = None,
        asynchronous: bool = False,
    ) -> None:
        self.now_s = 0.0
        self.ledger = Ledger(nodes)
        self.records = {job.id: JobRecord(job) for job in jobs}
        self._costs = costs or Costs()
        self._scheduling = scheduling or Scheduling()
        self._asynchronous = asynchronous
        self._queue: list[tuple[float, int]] = []  # jobs with their ranks
        self._promoted: list[int] = []
        self._resizers: dict[int, Resizer] = {}  # by the job that each is for
        self._order: list[MalleableJob] = []
        self._needs: list[int] = []
        self._running: dict[int, _SimulatedProgram] = {}
        self._ends: list[tuple[float, int]] = []  # of running jobs, by their walltimes
        self._events: list[tuple[float, int, str, int, int]] = []
        self._scheduled = 0
        for job in sorted(jobs, key=lambda job: (job.submit_s, job.id)):
            if (least := job.starts_on()[-1]) > nodes:
                raise InputError(
                    f"needs {least} nodes to start, and there are {nodes}",
                    where=f"job {job.id}",
                    hint="Give it fewer, or the cluster more.",
                )
            self._at(job.submit_s, "submit", job.id)

    def run(self) -> list[JobRecord]:
        """Run until all jobs have ended; return their records in the order of the given jobs."""
        doing = {
            "submit": self._submit,
            "point": self._point,
            "shrunk": self._shrunk,
            "expanded": self._expanded,
            "timed out": self._timed_out,
        }
        while self._events:
            self.now_s, _, what, job, detail = heappop(self._events)
            doing[what](job, detail)
        return list(self.records.values())

    def _at(self, time_s: float, what: str, job: int, detail: int = 0) -> None:
        self._scheduled += 1
        heappush(self._events, (time_s, self._scheduled, what, job, detail))

    def _submit(self, number: int, _: int) -> None:
        job = self.records[number].job
        insort(self._queue, (self._scheduling.rank(job, self.ledger.nodes), number))
        self._sort()
        self._schedule()

    # --- the queue ---

    def _sort(self) -> None:
        """Sort the pending jobs."""
        others = (number for _, number in self._queue if number not in self._promoted)
        self._order = [self.records[number].job for number in (*self._promoted, *others)]
        self._needs = [job.starts_on()[-1] for job in self._order]

    def _schedule(self) -> None:
        """Start the jobs that fit."""
        reserved: tuple[float, int] | None = None  # its time, and the nodes that are left over then
        for resizer in list(self._resizers.values()):
            if resizer.nodes <= self.ledger.free:
                self._expand(resizer)
            else:
                reserved = reserved or self._reservation(resizer.nodes)
        for job in self._order[: self._scheduling.depth]:
            if not self.ledger.free:
                break
            sizes = job.starts_on()
            size = next((size for size in sizes if size <= self.ledger.free), None)
            if size is None:
                reserved = reserved or self._reservation(sizes[-1])
            elif reserved is None or self.now_s + job.limit_s <= reserved[0]:
                self._start(job, size)
            elif size <= reserved[1]:
                reserved = reserved[0], reserved[1] - size
                self._start(job, size)

    def _reservation(self, nodes: int) -> tuple[float, int] | None:
        """Return when enough nodes are free according to walltimes, and how many are left over; None if too late."""
        free = self.ledger.free
        for end_s, number in self._ends:
            if end_s > self.now_s + self._scheduling.window_s:
                break
            free += self.ledger.allocated[number]
            if free >= nodes:
                return end_s, free - nodes
        return None

    def _start(self, job: MalleableJob, nodes: int) -> None:
        self._queue.remove((self._scheduling.rank(job, self.ledger.nodes), job.id))
        if job.id in self._promoted:
            self._promoted.remove(job.id)
        self._sort()
        self.ledger.allocate(job.id, nodes)
        record = self.records[job.id]
        record.start_s = self.now_s
        record.sizes.append((self.now_s, nodes))
        self._running[job.id] = run = _SimulatedProgram(record, self.now_s)
        insort(self._ends, (self.now_s + job.limit_s, job.id))
        self._compute(run)

    # --- a running job ---

    def _compute(self, run: _SimulatedProgram, pause_s: float = 0.0) -> None:
        """Continue after a pause, until the next check or the end."""
        run.record.paused_s += pause_s
        job = run.record.job
        application = job.application
        left = application.iterations - run.done
        iteration_s = application.iteration_s(run.nodes)
        if job.wish(run.done) is not None:
            left = min(left, next_check(iteration_s, self.now_s + pause_s - run.checked_s, application.period_s))
        self._at(self.now_s + pause_s + left * iteration_s, "point", job.id, left)

    def _point(self, job: int, iterations: int) -> None:
        """Process the end of some iterations."""
        run = self._running[job]
        run.done += iterations
        application = run.record.job.application
        computed_s = run.record.computed_s.get(run.nodes, 0.0) + iterations * application.iteration_s(run.nodes)
        run.record.computed_s[run.nodes] = computed_s
        if run.done == application.iterations:
            run.record.end_s = self.now_s
            del self._running[job]
            self._ends.remove((run.record.start_s + run.record.job.limit_s, job))
            self.ledger.end(job)
            self._schedule()
        else:
            self._check(run)

    def _check(self, run: _SimulatedProgram) -> None:
        run.checked_s = self.now_s
        if self._asynchronous:
            answer, run.answer = run.answer, None
            if answer is None or answer.action is Action.NONE:
                run.answer = self._ask(run)
        else:
            answer = self._ask(run)
        if answer is None or answer.action is Action.NONE:
            run.record.checks += 1
            self._compute(run, self._costs.none_s)
        elif answer.action is Action.SHRINK:
            job = run.record.job
            lasts_s = self._costs.resize_s(run.nodes, answer.nodes, job.application.data_gb)
            run.record.resizes.append(Resize(answer.action, answer.nodes, self.now_s, lasts_s))
            self._at(self.now_s + lasts_s, "shrunk", job.id, answer.nodes)
        else:
            self._submit_resizer(run, answer.nodes)

    def _ask(self, run: _SimulatedProgram) -> PolicyAnswer:
        """Ask the policy, and promote the job that it names."""
        wish = run.record.job.wish(run.done)
        assert wish is not None, "it checks"
        resized = sum(resizer.nodes for resizer in self._resizers.values())
        coming = sum(job.returns for job in self._running.values()) - resized
        free, places = unpromised(self.ledger.free, coming, self._needs, len(self._promoted))
        answer = decide(run.nodes, wish, free=free, queued=[self._needs[place] for place in places])
        run.returns = run.nodes - answer.nodes if answer.action is Action.SHRINK else 0
        if answer.promotes is None:
            return answer
        if (number := self._order[places[answer.promotes]].id) not in self._promoted:
            self._promoted.append(number)
            self._sort()
        return PolicyAnswer(answer.action, answer.nodes, places[answer.promotes])

    def _shrunk(self, job: int, nodes: int) -> None:
        """Free the nodes of a shrink, after all their processes have acknowledged it."""
        run = self._running[job]
        run.record.paused_s += run.record.resizes[-1].lasted_s
        run.returns = 0
        self.ledger.lower(job, nodes)
        run.record.sizes.append((self.now_s, nodes))
        self._compute(run)
        self._schedule()

    def _submit_resizer(self, run: _SimulatedProgram, nodes: int) -> None:
        job = run.record.job.id
        resizer = Resizer(job, nodes - run.nodes, self.now_s + self._costs.timeout_s)
        self._resizers[job] = resizer
        self._schedule()
        if job in self._resizers:
            self._at(resizer.until_s, "timed out", job)

    def _expand(self, resizer: Resizer) -> None:
        """Move the nodes of a resizer job, which can start, to its job."""
        del self._resizers[resizer.job]
        run = self._running[resizer.job]
        before, after = run.nodes, run.nodes + resizer.nodes
        self.ledger.expand(resizer, number=-1 - resizer.job)
        run.record.sizes.append((self.now_s, after))
        resize_s = self._costs.resize_s(before, after, run.record.job.application.data_gb)
        waited_s = self.now_s - run.checked_s
        run.record.resizes.append(Resize(Action.EXPAND, after, run.checked_s, waited_s + resize_s))
        self._at(self.now_s + resize_s, "expanded", resizer.job)

    def _expanded(self, job: int, _: int) -> None:
        run = self._running[job]
        run.record.paused_s += run.record.resizes[-1].lasted_s
        self._compute(run)

    def _timed_out(self, job: int, _: int) -> None:
        """Cancel a resizer job that is still pending: only time was lost."""
        resizer = self._resizers.get(job)
        if resizer is None or resizer.until_s != self.now_s:
            return
        del self._resizers[job]
        run = self._running[job]
        lasted_s = self.now_s - run.checked_s
        run.record.paused_s += lasted_s
        run.record.resizes.append(Resize(Action.EXPAND, run.nodes + resizer.nodes, run.checked_s, lasted_s, done=False))
        self._compute(run)
        self._schedule()
