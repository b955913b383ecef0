"""A pool on a simulated machine: stages are tasks there, too, and allocations are simulated jobs.

It decides as a real pool does, by `asa.pool.planning.decide`, over the same shapes of jobs; in place of dask it places
each task on the first allocation with enough free cores. A stage with more cores than a node, which is no list of
tasks, counts as tasks of one core each, as stages of the paper's workflows are: they run on whatever allocations there
are. (A real pool refuses it, since it cannot divide a command.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from asa.backend import Backend, Capabilities, Condition, DependencyType, JobSpec, JobState, JobStatus
from asa.errors import BackendError, InputError, JobNotFoundError, SubmitRejectedError
from asa.estimators import OwnJob, WaitBank
from asa.observations import observation_of, queued
from asa.outcome import JobOutcome
from asa.units import core_hours
from asa.waits import QueueEvent
from asa.workflow import Stage, Workflow

from .demand import joined
from .planning import decide, drain_from_s, usual_margin_s
from .stages import POOLED, as_tasks, pool_shape
from .values import AllocationShape, PoolRules, TaskKind, View

_LOOK_S = 30.0  # between two decisions while an allocation lives, besides those at each change
_QUIET_S = 300.0  # the same while all wait


class BusyCores(NamedTuple):
    """When tasks of a stage ran together on an allocation."""

    begin_s: float
    end_s: float
    stage: str
    cores: int


@dataclass(slots=True)
class ModelledAllocation:
    """A job of the pool."""

    view: View  # as the planner sees it
    job_id: str
    spec: JobSpec
    own: OwnJob | None  # the bank's record of it, until its wait is known
    free: int = 0  # cores without a task
    ready_s: float = math.inf  # when its workers are there
    idle_s: float = 0.0  # since when no task has run
    useless_s: float | None = None  # since when the planner has called it useless
    end_s: float | None = None
    busy: list[BusyCores] = field(default_factory=list)

    @property
    def core_hours(self) -> float:
        """Core-hours that it was allocated for."""
        if self.view.start_s is None or self.end_s is None:
            return 0.0
        return core_hours(self.view.shape.cores, self.end_s - self.view.start_s)

    @property
    def used_core_hours(self) -> float:
        """Those of them in which tasks ran."""
        return sum(core_hours(busy.cores, busy.end_s - busy.begin_s) for busy in self.busy)


@dataclass(slots=True)
class _TaskGroup:
    """Tasks of a stage that began together on an allocation."""

    allocation: ModelledAllocation | None  # None for a stage that runs on the client's machine
    tasks: int
    begin_s: float
    end_s: float


@dataclass(slots=True)
class _Tasks:
    """A stage that was handed over."""

    spec: JobSpec
    status: JobStatus
    depth: int  # number of stages on the longest path to it
    cores: int  # cores, real and expected run time of each of its tasks
    task_s: float
    expected_s: float
    left: int  # number of tasks that have not begun
    running: list[_TaskGroup] = field(default_factory=list)
    reported: JobStatus | None = None


class ModelledPool:
    """For the client of a run, a batch system whose jobs are tasks of a pool; see `asa.backend.Backend`.

    Its allocations are jobs of another backend, whose clock it shares.

    `world`: the simulated machine.
    `workflow`: what runs; its stages determine the jobs of the pool.
    `bank`: predicts the waits of these, and learns them.
    `history`: how many past jobs of all users the bank learns from at first; 0 if it learns only from the pool's own.
    """

    def __init__(self, world: Backend, workflow: Workflow, bank: WaitBank, *, history: int) -> None:
        self._world, self._bank, self._history = world, bank, history
        self._limits = world.capabilities
        self._workflow = as_tasks(workflow)
        asked = pool_shape(self._workflow, _with_nodes(self._limits, self._workflow))
        self._shape = AllocationShape(asked["cores"], asked["walltime"], asked["threads"])
        cores = self._shape.cores
        self._rules = PoolRules(
            maximum=asked["maximum"] * cores,
            price=cores,
            margin_s=usual_margin_s(self._shape),
            max_waiting=self._limits.max_queued,
        )
        self._jobs: dict[str, _Tasks] = {}
        self._posted: set[str] = set()  # completion markers
        self._look_s = -math.inf  # when to decide again
        self.allocations: list[ModelledAllocation] = []

    # ------------------------------------------------------------------ the port

    @property
    def capabilities(self) -> Capabilities:
        """What a task may ask for."""
        return Capabilities(
            f"{self._limits.system}{POOLED}",
            int(self._rules.maximum),
            self._limits.cores_per_node,
            age_accrues=True,
            dependency_types=frozenset({DependencyType.AFTEROK}),
            begin_time=False,
            accepts_late=False,
        )

    @property
    def condition(self) -> Condition:
        """That of the machine."""
        return self._world.condition

    def now(self) -> float:
        """Read the machine's clock."""
        return self._world.now()

    def submit(self, spec: JobSpec) -> str:
        """Hand a stage over. It begins when the stages that it depends on have completed and cores are free."""
        stage = self._workflow.stages[spec.posts[0].rpartition("/")[2].partition("@")[0]] if spec.posts else None
        tasks, cores, run_s, expected_s = self._divided(spec, stage)
        if cores > self._shape.cores:
            asked = f"asks for {cores} cores at a time, and a job of the pool has {self._shape.cores}"
            raise SubmitRejectedError(asked, where=f"job {spec.name!r}", hint="Take another strategy.")
        job_id, now_s = str(len(self._jobs) + 1), self.now()
        depth = 1 + max((self._job(need.job_id).depth for need in spec.dependencies), default=0)
        status = JobStatus(job_id, JobState.PENDING, now_s)
        self._jobs[job_id] = _Tasks(spec, status, depth, cores, run_s, expected_s, tasks)
        self._look_s = now_s
        return job_id

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Return the jobs of tokens."""
        return {token: [job.status for job in self._jobs.values() if job.spec.token == token] for token in tokens}

    def cancel(self, job_id: str) -> None:
        """End a stage's tasks, or keep them from beginning."""
        job = self._job(job_id)
        if not job.status.state.is_final:
            for group in job.running:
                _leave(group, job, self.now())
            job.running, job.left = [], 0
            job.status = replace(job.status, state=JobState.CANCELLED, end_s=self.now())

    def hold(self, job_id: str) -> None:
        """Refuse: tasks cannot be held."""
        raise BackendError("cannot be held", where=f"job {job_id}", hint="Cancel it.")

    def release(self, job_id: str) -> None:
        """Do nothing: no task is ever held."""
        self._job(job_id)

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the status of several jobs."""
        return {job_id: self._job(job_id).status for job_id in job_ids}

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Let simulated time pass until a stage changes, at most until `until_s`."""
        while True:
            self._finish()
            self._place()
            if self.now() >= self._look_s:
                self._decide()
            changed = [job for job in self._jobs.values() if job.status != job.reported]
            for job in changed:
                job.reported = job.status
            is_over = until_s is not None and self.now() >= until_s
            if changed or is_over or (until_s is None and not self._may_go_on()):
                return [job.status for job in changed]
            self._hear(self._world.wait(min(self._wakes(until_s))))

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:  # noqa: ARG002 - the port's
        """Return no events: other users have no jobs in the pool."""
        return ()

    def close(self) -> None:
        """End all allocations."""
        for allocation in self._live():
            self._end(allocation)

    # ------------------------------------------------------------------ tasks

    def _divided(self, spec: JobSpec, stage: Stage | None) -> tuple[int, int, float, float]:
        """Return the number of a stage's tasks, and the cores, the run time and the expected run time of each."""
        assert spec.run_s is not None
        run_s = math.ceil(spec.run_s)
        expected_s = run_s if stage is None else stage.expected_s
        if spec.local:
            return 1, 0, run_s, expected_s
        if stage is not None and len(stage.tasks) > 1:
            at_once = max(spec.cores // stage.cpus_per_task, 1)
            rounds = -(-len(stage.tasks) // at_once)
            return len(stage.tasks), stage.cpus_per_task, math.ceil(run_s / rounds), expected_s / rounds
        if spec.cores > self._shape.cores and not spec.nodes:
            return spec.cores, 1, run_s, expected_s
        return 1, spec.cores, run_s, expected_s

    def _job(self, job_id: str) -> _Tasks:
        if job_id not in self._jobs:
            raise JobNotFoundError("the pool knows no such job", where=f"job {job_id}", hint="Ask for one of this run.")
        return self._jobs[job_id]

    def _open(self) -> list[_Tasks]:
        return [job for job in self._jobs.values() if not job.status.state.is_final]

    def _is_ready(self, job: _Tasks) -> bool:
        before = [self._job(need.job_id) for need in job.spec.dependencies]
        return all(map(_has_completed, before)) and self._posted.issuperset(job.spec.awaits)

    def _is_void(self, job: _Tasks) -> bool:
        """Whether a stage can never begin, since one that it depends on has failed."""
        before = [self._job(need.job_id) for need in job.spec.dependencies]
        return any(earlier.status.state.is_final and not _has_completed(earlier) for earlier in before)

    def _may_go_on(self) -> bool:
        return any(job.running or self._is_ready(job) for job in self._open())

    def _place(self) -> None:
        """Begin as many tasks as there are cores for, of the stages handed over first."""
        now_s = self.now()
        for job in self._open():
            if not self._is_ready(job):
                if self._is_void(job):
                    job.status = replace(job.status, reason="DependencyNeverSatisfied")
                continue
            if job.status.eligible_s is None:
                job.status = replace(job.status, eligible_s=now_s)
            if job.left and not job.cores:  # a local stage
                self._begin(job, job.left, None)
            for allocation in self._taking(job.expected_s) if job.left and job.cores else ():
                if tasks := min(job.left, allocation.free // job.cores):
                    self._begin(job, tasks, allocation)

    def _begin(self, job: _Tasks, tasks: int, allocation: ModelledAllocation | None) -> None:
        now_s = self.now()
        job.left -= tasks
        job.running.append(_TaskGroup(allocation, tasks, now_s, now_s + job.task_s))
        if allocation is not None:
            allocation.free -= tasks * job.cores
        if job.status.start_s is None:
            job.status = replace(job.status, state=JobState.RUNNING, start_s=now_s, payload_start_s=now_s)

    def _finish(self) -> None:
        """End the tasks whose time has come; those of allocations that have ended run again."""
        now_s = self.now()
        for job in self._open():
            for group in list(job.running):
                lost_s = group.allocation.end_s if group.allocation is not None else None
                if lost_s is not None and lost_s < group.end_s:
                    job.left += group.tasks
                elif group.end_s > now_s:
                    continue
                job.running.remove(group)
                _leave(group, job, min(group.end_s, math.inf if lost_s is None else lost_s))
            if job.status.start_s is not None and not job.left and not job.running:
                self._look_s = now_s
                failed = job.spec.exit_code != 0
                self._posted.update(() if failed else job.spec.posts)
                job.status = replace(
                    job.status,
                    state=JobState.FAILED if failed else JobState.COMPLETED,
                    end_s=now_s,
                    exit_code=job.spec.exit_code,
                    outcome=JobOutcome.FAILED if failed else JobOutcome.COMPLETED,
                )

    # ------------------------------------------------------------------ allocations

    def _live(self) -> list[ModelledAllocation]:
        return [allocation for allocation in self.allocations if allocation.end_s is None]

    def _taking(self, task_s: float) -> list[ModelledAllocation]:
        """Return the allocations that take new tasks: not those that are about to end, if others are there."""
        now_s = self.now()
        here = [a for a in self._live() if a.ready_s <= now_s < (a.view.until_s or math.inf)]
        fresh = [a for a in here if now_s < drain_from_s(a.view.until_s or math.inf, task_s, a.view.start_s or 0.0)]
        return fresh or here

    def _wakes(self, until_s: float | None) -> Iterator[float]:
        """Yield the times at which something is to be done."""
        now_s = self.now()
        yield self._look_s
        if until_s is not None:
            yield until_s
        for job in self._open():
            yield from (group.end_s for group in job.running)
        for allocation in self._live():
            yield from (at_s for at_s in (allocation.ready_s, allocation.view.until_s) if at_s and at_s > now_s)

    def _hear(self, news: Iterable[JobStatus]) -> None:
        """Record the starts and ends of allocations, and learn their waits."""
        for status in news:
            allocation = next((one for one in self._live() if one.job_id == status.job_id), None)
            if allocation is None:
                continue
            if status.start_s is not None and allocation.view.start_s is None:
                until_s = status.start_s + self._shape.walltime_s - self._rules.margin_s
                allocation.view = replace(allocation.view, start_s=status.start_s, until_s=until_s)
                allocation.ready_s = max(status.start_s + self._rules.startup_s, self.now())
                allocation.idle_s, allocation.free = allocation.ready_s, self._shape.cores
                self._look_s = self.now()
            self._learn(allocation, status)
            if status.state.is_final:
                allocation.end_s = status.end_s
                self._look_s = self.now()

    def _learn(self, allocation: ModelledAllocation, status: JobStatus) -> None:
        if allocation.own is None or (status.start_s is None and not status.state.is_final):
            return
        observation = observation_of(allocation.spec, status, self._limits)
        if observation is None:
            self._bank.withdrawn(allocation.own)
        else:
            self._bank.observe(allocation.own, observation)
        allocation.own = None

    def _end(self, allocation: ModelledAllocation) -> None:
        self._world.cancel(allocation.job_id)
        self._hear(self._world.status([allocation.job_id]).values())

    def _decide(self) -> None:
        """Ask for allocations and give them back, as the planner says."""
        now_s = self.now()
        if self._history:
            self._bank.follow(self._world.queue_events(self._history, ends=self._bank.sees_queue))
        for allocation in self._live():
            if now_s >= (allocation.view.until_s or math.inf):
                self._end(allocation)
        self._finish()
        spec = JobSpec("pool", cores=self._shape.cores, walltime_s=self._shape.walltime_s, run_s=self._shape.walltime_s)
        asked = queued(spec, self._limits, now_s, self._bank.user)
        forecast = self._bank.predict(asked)
        live = self._live()
        views = [self._view(allocation) for allocation in live]
        decision = decide(now_s, self._kinds(), views, {self._shape: forecast}, self._rules)
        for allocation in live:
            is_useless = allocation.view.id in decision.useless
            allocation.useless_s = (allocation.useless_s or now_s) if is_useless else None
            if allocation.view.id in (*decision.withdraw, *decision.give_back):
                self._end(allocation)
        for shape in decision.ask:
            job_id = self._world.submit(spec)
            view = View(job_id, shape, now_s, forecast)
            self.allocations.append(ModelledAllocation(view, job_id, spec, self._bank.submitted(asked, forecast)))
        self._look_s = now_s + (_LOOK_S if any(one.view.start_s is not None for one in live) else _QUIET_S)

    def _view(self, allocation: ModelledAllocation) -> View:
        now_s = self.now()
        is_idle = allocation.ready_s <= now_s and allocation.free == self._shape.cores
        return replace(
            allocation.view,
            idle_s=max(now_s - allocation.idle_s, 0.0) if is_idle else 0.0,
            useless_s=0.0 if allocation.useless_s is None else now_s - allocation.useless_s,
        )

    def _kinds(self) -> list[TaskKind]:
        """Return the unfinished tasks, in groups that run one after the other, with what is left of each."""
        now_s = self.now()
        kinds = []
        for job in self._open():
            if job.left and job.cores:
                kinds.append((job.depth, TaskKind(job.left * job.cores, job.expected_s)))
            for group in job.running if job.cores else ():
                left_s = max(job.expected_s - (now_s - group.begin_s), 0.0)
                kinds.append((job.depth, TaskKind(group.tasks * job.cores, left_s)))
        return joined(kinds)


def refusal_of(workflow: Workflow, limits: Capabilities) -> str:
    """Return why a workflow cannot run on a pool; empty if it can."""
    try:
        asked = pool_shape(as_tasks(workflow), _with_nodes(limits, workflow))
    except InputError as error:
        return f"{error.where}: {error.message}"
    wide = [stage.name for stage in workflow.stages.values() if (stage.nodes or 1) > 1]
    return f"stage {wide[0]!r}: asks for several nodes, and a task of a pool runs on one" if wide and asked else ""


def divided_on_pool(workflow: Workflow, limits: Capabilities) -> list[str]:
    """Return a note on the stages that a pool here divides though they are no lists of tasks, if there are any."""
    node = _with_nodes(limits, workflow).cores_per_node
    wide = [name for name, stage in workflow.stages.items() if (stage.cores or 1) > node and len(stage.tasks) < 2]
    listed = ", ".join(wide[:4]) + (f" and {len(wide) - 4} more" if len(wide) > 4 else "")
    text = f"on the pool {listed}, wider than a node, count as tasks of one core each; a real pool needs lists of tasks"
    return [text] if wide else []


def _with_nodes(limits: Capabilities, workflow: Workflow) -> Capabilities:
    """Return limits of a machine with nodes: a log tells none, so that an allocation is as wide as the widest stage."""
    if limits.cores_per_node > 1:
        return limits
    widest = max(stage.cores or 1 for stage in workflow.stages.values())
    return replace(limits, cores_per_node=min(widest, limits.max_cores))


def _has_completed(job: _Tasks) -> bool:
    return job.status.state is JobState.COMPLETED


def _leave(group: _TaskGroup, job: _Tasks, end_s: float) -> None:
    """Record that tasks have left their allocation."""
    if group.allocation is not None:
        group.allocation.free += group.tasks * job.cores
        group.allocation.idle_s = end_s
        cores = group.tasks * job.cores
        group.allocation.busy.append(BusyCores(group.begin_s, end_s, job.spec.name, cores))
