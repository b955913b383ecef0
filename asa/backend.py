"""The port to a batch system: what every backend must offer, and the values that cross it.

A backend owns the clock. All times are seconds on it (at a real site: since 1970, by the scheduler's clock), so a wait
is always the difference of two readings of one clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from asa.elements import NONE, Array, Elements
from asa.errors import BackendError, InputError
from asa.keys import JobKeys
from asa.outcome import JobOutcome
from asa.requests import min_nodes
from asa.units import format_duration
from asa.waits import QueueEvent

CLUSTER_FILE = "cluster.json"
"""File of a run's folder in which a backend notes on which cluster the run is; without it the run goes on anywhere."""

if TYPE_CHECKING:
    from asa.history import JobHistory  # needs numpy

__all__ = [
    "Adjustable",
    "Advice",
    "Advisor",
    "Backend",
    "CancelsMany",
    "Capabilities",
    "Condition",
    "Dependency",
    "DependencyType",
    "ElementEnd",
    "ElementsStatus",
    "EstimatesStarts",
    "Examinable",
    "Examination",
    "Facility",
    "Finding",
    "Foresight",
    "Growing",
    "JobSpec",
    "JobState",
    "JobStatus",
    "PartitionLimits",
    "Planning",
    "Preflight",
    "Previewing",
    "Setting",
    "Shrinking",
    "Site",
    "Troubleshooting",
    "Verdict",
]

Setting = str | int | float | bool
"""A value that a site file can keep."""

Verdict = Literal["good", "note", "bad"]
"""Whether what was found helps, is worth knowing, or keeps asa from working."""


class DependencyType(StrEnum):
    """When a job that depends on another may start."""

    AFTEROK = "afterok"
    """The other ended successfully."""
    AFTERANY = "afterany"
    """The other ended, however."""
    AFTER = "after"
    """The other started, and `Dependency.delay_s` seconds have passed since."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job waits for another.

    Parameters
    ----------
    job_id
        The job waited for; the backend must know it.
    type
        Which of its events is waited for.
    delay_s
        Seconds after its start, for `DependencyType.AFTER` only.
    or_end
        With `delay_s`: the job may also start as soon as the other has ended, in whatever way. A backend whose batch
        system has no such dependency may let it wait for the whole delay.
    """

    job_id: str
    type: DependencyType = DependencyType.AFTEROK
    delay_s: float = 0.0
    or_end: bool = False


REFUSAL = "~no"
"""Suffix of a token in the marker which says that the token will never come: jobs that wait for it give up."""


@dataclass(frozen=True, slots=True)
class Step:
    """One of several commands of a job. They run in waves: a wave begins if all of the previous one completed.

    Steps of one wave run at the same time; one that fails does not end the others.
    """

    name: str
    command: str  # what to run; ignored by simulators
    # cores that the job keeps from this step on; it gives the others back, if the site can take them. 0 for all that it
    # has. If they are more than it had, the step begins when they have joined (`Growing`), but does not wait for them
    # at a site where jobs cannot grow.
    cores: int = 0
    # when it really begins and ends, in seconds from the payload's beginning. Known to simulators only, like
    # `JobSpec.run_s`.
    slot_s: tuple[float, float] | None = None
    # the step's size in a job of its own: tasks, cores of each, nodes. It replaces the job's size in the variables by
    # which the batch system reports that to a job. 0 tasks for as many as the job has, 0 nodes for as few as possible.
    tasks: int = 0
    cpus_per_task: int = 1
    nodes: int = 0
    # token whose completion marker is written when the step has completed; empty for none. A step whose marker is there
    # already is not run again.
    post: str = ""
    # tokens whose completion markers others write: the step begins when all are there. See `JobSpec.awaits`, `REFUSAL`.
    awaits: tuple[str, ...] = ()
    # whether it is of the same wave as the step before it
    beside: bool = False
    # see `JobSpec.out_of_memory`
    out_of_memory: Literal["fail", "ignore"] = "fail"
    # the race for it, see `JobSpec.race`
    race: str = ""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When a step began and completed, and how many cores its job had kept by then; 0 for all that it got.

    A step that failed while others of its wave went on also has its exit code and how it ended.

    A job of a single payload reports one, without a name, if the payload completed before the job was requeued.
    """

    name: str
    start_s: float
    end_s: float | None = None
    cores: int = 0
    exit_code: int | None = None
    outcome: JobOutcome | None = None


@dataclass(frozen=True, slots=True, repr=False)
class JobSpec(JobKeys):
    """A job to submit.

    Parameters
    ----------
    name
        Shown in the queue.
    token
        Identifies this job among all others, for ever: letters, digits and ``-``. It is part of the job, so that
        `Backend.find` can show whether a submission whose answer was lost was accepted. Of several jobs with one token,
        at most one runs its payload. Empty for a job that need not be found.
    cores
        Cores to allocate.
    walltime_s
        The job is killed after this time.
    command
        What to run; ignored by simulators.
    steps
        Several commands to run in place of `command`; their names differ.
    nodes, memory_bytes, gpus, partition, account, reservation, nice
        Further demands; 0 and empty mean no demand.
    burst_buffer_bytes
        Fast storage that all nodes of the job share while it runs; ignored where there is none.
    exclusive
        No other job may be on its nodes; `cores` are all of theirs.
    cpus_per_task
        Cores of one task, together on one node; `cores` is a multiple.
    tasks
        How many tasks of `cpus_per_task` its payload sees, if fewer than fit on its cores; 0 for as many as fit.
    options
        Further options of the batch system, as in ``--constraint=haswell``; ignored where it has none.
    avoid
        Names of nodes to exclude, since they failed before; ignored where nodes have no names.
    local
        To be run where the client is, without a batch system. Only backends that can do so get such jobs.
    dependencies
        All of them must be met before the job may start.
    begin_s
        The job may not start before this time.
    held
        It is submitted on hold; `Backend.release` releases it.
    awaits
        Tokens whose completion markers other jobs write. The allocation may begin earlier, but idles until all the
        markers are there; then the payload begins.
    max_await_s
        Upper bound for that wait, in seconds, and for that of its steps together: then the job ends by itself.
        Simulators, whose client is always there, ignore it. None for its walltime.
    posts
        Tokens whose completion markers this job writes when it completes. If all are there already, it runs nothing.
    supersedes
        Tokens of earlier jobs, now ended, with the same payload. If the batch system starts one of them again, it runs
        nothing.
    bag
        Name of the bag from which this payload and those of other jobs take their tasks; empty for a job by itself. If
        no task is left and others still run some, it ends as `asa.outcome.JobOutcome.PART_DONE`: the job has completed,
        and writes no completion marker.
    sharing
        How many jobs take from the bag. `run_s` holds if they all run at the same time.
    leg
        Number of the leg, from 1 on; the legs of one computation have the same `bag`. `run_s` is what all of them take
        together. 0 for a computation in one job.
    saves_s
        How long a leg really takes to save its state after the signal that it gets when the next leg has started. Known
        to simulators only; None for one that gets no signal: the next leg then waits for its end.
    run_s
        How long the payload really runs. Simulators need it; strategies never see it, and real sites ignore it.
    exit_code
        How the payload really ends; likewise.
    secrets
        Names of the client's variables that its payload gets in addition to those that every job gets; see
        `asa.core.variables.asked`.
    request
        Its size in options of the batch system, as in ``--ntasks-per-node=4``, which are passed on unchanged: `cores`,
        `memory_bytes` and `gpus` only say what they amount to. None where these are asked for.
    array
        It is a job array: one submission. Each element is a job with this request, and runs the payload with its number
        in ``SLURM_ARRAY_TASK_ID``. The completion markers in `posts` are written once all of `Array.all` have
        completed, in this job or in others with the same `posts`. None for one job.
    out_of_memory
        ``fail``: it has failed if one of its processes was killed for lack of memory, even if its payload exits with 0.
        ``ignore``: it has not; a job of steps has this if all of them do.
    race
        Name that it has in common with others which are to run the same, or the beginning of it, in another request:
        letters, digits and ``-``. The first of them whose payload may begin runs it; any other ends at once as
        `asa.outcome.JobOutcome.OUTRUN`. Empty for a job that is alone. For sites with `Capabilities.races` only. Of a
        job with steps, each has the name of a race of its own (`Step.race`), and this is the first one's: when its
        payload may begin, the job passes over the steps that have completed by then, and takes part in the races for
        all others.
    """

    name: str
    cores: int
    walltime_s: float
    command: str = ""
    nodes: int = 0
    partition: str = ""
    dependencies: tuple[Dependency, ...] = ()
    begin_s: float | None = None
    held: bool = False
    awaits: tuple[str, ...] = ()
    posts: tuple[str, ...] = ()
    run_s: float | None = None
    exit_code: int = 0
    token: str = ""
    steps: tuple[Step, ...] = ()
    cpus_per_task: int = 1
    options: tuple[str, ...] = ()
    local: bool = False
    tasks: int = 0
    supersedes: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    max_await_s: float | None = None
    bag: str = ""
    sharing: int = 1
    leg: int = 0
    saves_s: float | None = None
    array: Array | None = None
    request: tuple[str, ...] | None = None
    out_of_memory: Literal["fail", "ignore"] = "fail"
    secrets: tuple[str, ...] = ()
    race: str = ""

    @property
    def shares(self) -> bool:
        """Whether other jobs do the same work, together with it or in turn."""
        return bool(self.bag)

    @property
    def begins_late(self) -> bool:
        """Whether its payload may begin later than its allocation, or never, as its own mark says."""
        return bool(self.awaits or self.race)

    @property
    def shares_tasks(self) -> bool:
        """Whether it takes tasks, of which other jobs take some, too."""
        return self.shares and self.array is None and not self.leg

    @property
    def jobs_at_once(self) -> int:
        """How many jobs do its work at the same time."""
        return max(self.sharing, 1)

    @property
    def has_waves(self) -> bool:
        """Whether some of its steps run at the same time."""
        return any(step.beside for step in self.steps)


class JobState(StrEnum):
    """The state of a job. Pending and running are not final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """The job has ended and will not change again."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class ElementEnd:
    """How elements of a job array that did not complete have ended.

    Parameters
    ----------
    elements
        Which.
    state
        As of a job.
    exit_code, reason, outcome
        Likewise.
    nodes, bad_nodes
        Likewise.
    """

    elements: Elements
    state: JobState
    exit_code: int | None = None
    reason: str = ""
    outcome: JobOutcome | None = None
    nodes: tuple[str, ...] = ()
    bad_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ElementsStatus:
    """The state of a job array's elements; those that are not named are pending.

    Parameters
    ----------
    running, completed
        Which.
    ended
        Those that ended otherwise, grouped by how.
    ran_s
        Sum of the seconds for which elements that have ended held their cores.
    nodes
        Names of nodes on which elements completed, sixteen at most.
    held
        Those that wait until somebody releases them.
    held_reason
        Why, in the batch system's words; of several, the first's.
    """

    running: Elements = NONE
    completed: Elements = NONE
    ended: tuple[ElementEnd, ...] = ()
    ran_s: float = 0.0
    nodes: tuple[str, ...] = ()
    held: Elements = NONE
    held_reason: str = ""

    @property
    def failed(self) -> Elements:
        """Those that ended without completing."""
        found = NONE
        for one in self.ended:
            found |= one.elements
        return found


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What the batch system says of a job, with its own clock's times.

    Parameters
    ----------
    job_id
        As `Backend.submit` returned it.
    state
        Its state.
    submit_s
        When it was submitted.
    eligible_s
        Since when only resources and priority keep the job from starting: dependencies met, not held, begin time
        reached. None before.
    start_s
        When its allocation began.
    payload_start_s
        When the payload began inside it; later than `start_s` for a job that waited for completion markers.
    end_s
        When it ended or was cancelled.
    exit_code
        Of the payload, once it ended.
    reason
        Why it is pending or how it failed, in the batch system's words. `DependencyNeverSatisfied` marks a job that
        cannot start any more.
    expected_start_s
        When the batch system expects a pending job to start, if it says so.
    restarts
        How often the batch system requeued it after it had started. The times are those of the latest start, so its
        queue wait is no longer known.
    held
        It was seen on hold, so the time until its start is no queue wait.
    steps
        The job's steps that have begun, if reported.
    bad_nodes
        Names of the nodes whose failure ended the job, if reported.
    elements
        Of a job array, which starts with its first element, ends with its last, and completed if all did; its exit
        code, outcome and reason are those of one that did not. None of one job.
    outcome
        How its payload ended, if the backend can distinguish that from exit codes of programs; else see `asa.outcome`.
    nodes
        Names of the nodes that it runs or ran on, if reported: first the one of its script; sixteen at most.
    in_doubt
        One of its processes was killed for lack of memory, and it is not known in which task: tasks that exited with 0
        may have failed.
    """

    job_id: str
    state: JobState
    submit_s: float
    eligible_s: float | None = None
    start_s: float | None = None
    payload_start_s: float | None = None
    end_s: float | None = None
    exit_code: int | None = None
    reason: str = ""
    expected_start_s: float | None = None
    restarts: int = 0
    held: bool = False
    steps: tuple[StepTimes, ...] = ()
    bad_nodes: tuple[str, ...] = ()
    elements: ElementsStatus | None = None
    outcome: JobOutcome | None = None
    nodes: tuple[str, ...] = ()
    in_doubt: bool = False

    @property
    def good_nodes(self) -> tuple[str, ...]:
        """Names of nodes on which it, or elements of it, completed."""
        own = self.nodes if self.state is JobState.COMPLETED else ()
        return (*own, *(self.elements.nodes if self.elements is not None else ()))


End = JobStatus | ElementEnd
"""How a job ended, or elements of one did."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """What a job in one partition may ask for, as far as it is known.

    Parameters
    ----------
    max_walltime_s, max_nodes, max_cores
        Upper bounds for one job; None if there is no limit or none is known.
    cores_per_node
        Of its widest node; 0 if not known.
    memory_per_node_bytes
        Likewise.
    gpus_per_node
        The most that one of its nodes has; None if not known.
    is_up
        Whether jobs may be sent there now.
    accounts, barred_accounts
        The only accounts whose jobs it takes, empty for all; and those whose jobs it refuses, empty for none.
    whole_nodes
        Whether no two jobs share a node of it.
    """

    max_walltime_s: float | None = None
    max_nodes: int | None = None
    max_cores: int | None = None
    cores_per_node: int = 0
    memory_per_node_bytes: int = 0
    gpus_per_node: int | None = None
    is_up: bool = True
    accounts: tuple[str, ...] = ()
    barred_accounts: tuple[str, ...] = ()
    whole_nodes: bool = False

    def takes(self, account: str) -> bool:
        """Whether jobs of an account may run here."""
        return account not in self.barred_accounts and (not self.accounts or account in self.accounts)


_NO_LIMITS = PartitionLimits()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a site can do, and by which rules, as data by which a strategy can be chosen.

    Parameters
    ----------
    system
        The site's name, part of every `JobGeometry`.
    max_cores
        Cores that the largest possible job may ask for.
    cores_per_node
        For stages that ask for nodes.
    age_accrues
        Whether a job gains priority by waiting while a dependency keeps it from starting. In Slurm: no by default, yes
        with ``PriorityFlags=ACCRUE_ALWAYS``.
    dependency_types
        Kinds of dependency that it knows.
    begin_time
        Whether a job can have an earliest begin time.
    partition
        The default partition; empty if not known.
    partitions
        Limits of each partition that is known.
    accounts
        Those that may be charged for a job which names none; empty if not known.
    shrink_by
        A running job can give back multiples of so many cores (of a node's, where only whole nodes are taken back); 0
        if it cannot.
    shrinks_from_outside
        Whether others can shrink it (`Shrinking.shrink`), and not only its own script.
    grow_by
        A running job can get multiples of so many cores more, by a second job whose cores join its own (`Growing`); 0
        if it cannot.
    max_queued
        Jobs that a user may have in the queue at a time; None if there is no limit or none is known.
    charges
        What a user pays for: all that is ``allocated``, or only what is ``used``, where idle cores cost nothing.
    plans
        Whether every job gets a planned start when it is submitted, and one can be asked for in advance (`Planning`).
    burst_buffer_bytes
        Size of its burst buffer; None where what jobs ask of one is ignored.
    accepts_late
        A submission whose answer was lost may be accepted later. If not, a job that `Backend.find` does not show was
        not accepted.
    arrays
        Whether it has job arrays (`JobSpec.array`).
    max_array_size
        Elements that one may have; None if there is no limit or none is known.
    whole_nodes
        Whether no two jobs share a node, in any partition: a job of one core gets, and pays for, a whole node.
    races
        Whether several jobs may race for the same work (`JobSpec.race`).
    """

    system: str
    max_cores: int
    cores_per_node: int
    age_accrues: bool
    dependency_types: frozenset[DependencyType] = frozenset(DependencyType)
    begin_time: bool = True
    partition: str = ""
    partitions: Mapping[str, PartitionLimits] = field(default_factory=dict)
    accounts: tuple[str, ...] = ()
    shrink_by: int = 0
    shrinks_from_outside: bool = True
    grow_by: int = 0
    max_queued: int | None = None
    charges: Literal["allocated", "used"] = "allocated"
    plans: bool = False
    burst_buffer_bytes: int | None = None
    accepts_late: bool = True
    arrays: bool = False
    max_array_size: int | None = None
    whole_nodes: bool = False
    races: bool = False

    def limits(self, partition: str) -> PartitionLimits:
        """Give what is known of a partition's limits, of the usual one's if it has no name."""
        return self.partitions.get(partition or self.partition, _NO_LIMITS)

    def gives_whole_nodes(self, limits: PartitionLimits) -> bool:
        """Whether no two jobs share a node of a partition."""
        return self.whole_nodes or limits.whole_nodes

    def resizes_within(self, cores: int) -> bool:
        """Whether a running job can give back, or get, fewer cores than so many."""
        return any(0 < by < cores for by in (self.shrink_by, self.grow_by))

    def paid_cores(self, cores: int, partition: str = "") -> int:
        """Count the cores that a job of so many cores holds: all of its nodes', where these are given whole.

        Examples
        --------
        >>> Capabilities("x", 112, 28, True, whole_nodes=True).paid_cores(3)
        28
        """
        limits = self.limits(partition)
        per_node = limits.cores_per_node or self.cores_per_node
        return -(-cores // per_node) * per_node if per_node and self.gives_whole_nodes(limits) else cores

    def impossible(self, spec: JobSpec) -> str | None:
        """Say why a job could never run here, in words, by the known limits; None if they allow it.

        Examples
        --------
        >>> site = Capabilities("x", 112, 28, True, partition="long", partitions={"long": PartitionLimits(3600.0)})
        >>> site.impossible(JobSpec("big", cores=56, walltime_s=7200.0))
        "asks for 2h00m in partition 'long', which gives at most 1h00m"
        """
        if spec.local:
            return None
        names = (spec.partition or self.partition).split(",")  # of several the batch system takes one
        down = (one for name in names if (one := self.partitions.get(name)) is not None and not one.is_up)
        cores = max(spec.cores, spec.nodes * self.cores_per_node)
        max_cores = max((self.max_cores, *(one.max_cores or 0 for one in down)))  # what is down comes up again
        if cores > max_cores:
            return f"asks for {cores} cores, and the largest possible job has {max_cores}"
        buffer, max_buffer = spec.burst_buffer_bytes, self.burst_buffer_bytes
        if max_buffer is not None and buffer > max_buffer:
            return f"asks for {_gibibytes(buffer)} of burst buffer, and there are {_gibibytes(max_buffer)}"
        unknown = next((name for name in names if name not in self.partitions), "") if self.partitions else ""
        if unknown and spec.partition:
            return f"asks for partition {unknown!r}, which does not exist; known: {', '.join(self.partitions)}"
        limits = {name: self.partitions.get(name, _NO_LIMITS) for name in names}
        beyond = [self._barred(spec, *one) or self._beyond(spec, *one, cores) for one in limits.items()]
        return beyond[0] if all(beyond) else None

    def _barred(self, spec: JobSpec, name: str, limits: PartitionLimits) -> str | None:
        """Say so if a partition takes no jobs of an account that a job may count for."""
        accounts = [spec.account] if spec.account else self.accounts
        if not accounts or any(map(limits.takes, accounts)):
            return None
        others = f", but those of {', '.join(limits.accounts)}" if limits.accounts else ""
        return f"asks for partition {name!r}, which takes no jobs of account {' or '.join(accounts)}{others}"

    def _beyond(self, spec: JobSpec, name: str, limits: PartitionLimits, cores: int) -> str | None:
        """Say which limit of its partition a job is beyond."""
        where = f"in partition {name!r}, which gives at most"
        if limits.max_walltime_s is not None and spec.walltime_s > limits.max_walltime_s:
            return f"asks for {format_duration(spec.walltime_s)} {where} {format_duration(limits.max_walltime_s)}"
        if limits.max_cores is not None and cores > limits.max_cores:
            return f"asks for {cores} cores {where} {limits.max_cores}"
        per_node = limits.cores_per_node or self.cores_per_node
        nodes = max(spec.nodes, min_nodes(spec.request), -(-spec.cores // per_node) if per_node else 0)
        if limits.max_nodes is not None and nodes > limits.max_nodes:
            return f"asks for {nodes} nodes {where} {limits.max_nodes}"
        memory, most = spec.memory_bytes / max(nodes, 1), limits.memory_per_node_bytes
        if most and memory > most:
            return f"asks for {_gibibytes(memory)} of memory a node {where} {_gibibytes(most)}"
        gpus = _max_gpus(spec, limits)
        if gpus is not None and spec.gpus > gpus:
            return f"asks for {spec.gpus} {'GPU' if spec.gpus == 1 else 'GPUs'} {where} {gpus}"
        return None


def _max_gpus(spec: JobSpec, limits: PartitionLimits) -> int | None:
    """Say how many GPUs a job's nodes could have; a job that does not say how many nodes may get many."""
    if not limits.gpus_per_node:
        return limits.gpus_per_node
    nodes = spec.nodes or limits.max_nodes
    return nodes * limits.gpus_per_node if nodes else None


def _gibibytes(size: float) -> str:
    return f"{size / (1 << 30):.4g} GiB"


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether the batch system answers its client at the moment.

    Parameters
    ----------
    heard_s
        When the batch system last reported the client's jobs, on its own clock.
    trouble
        Why it cannot be asked, in words; empty while it can.
    calls
        How many calls were made to it so far.
    """

    heard_s: float
    trouble: str = ""
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Advice:
    """What a batch system's reason means.

    Parameters
    ----------
    meaning
        One sentence, for somebody who does not know the batch system.
    remedy
        What to do, if anything.
    """

    meaning: str
    remedy: str = ""


@runtime_checkable
class Backend(Protocol):
    """A batch system as one user sees it; `asa.testing.check_backend` checks that one keeps this contract."""

    @property
    def capabilities(self) -> Capabilities:
        """What the site can do."""
        ...

    @property
    def condition(self) -> Condition:
        """How well it can be asked at the moment."""
        ...

    def now(self) -> float:
        """Read the site's clock."""
        ...

    def submit(self, spec: JobSpec) -> str:
        """Submit a job and return its id. The job is known at once, before the site lists it.

        A dependency on a job that the site no longer knows is never passed on, since some sites drop it and start the
        job.

        Raises
        ------
        SubmitRejectedError
            It will never be accepted as it is.
        SubmitDeferredError
            It is not accepted now.
        SubmitInDoubtError
            It may have been accepted: call `find` before it is sent again.
        UnavailableError
            The site cannot be asked; the job was certainly not accepted.
        """
        ...

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Ask the site for the jobs of some tokens; of each, the one that runs or ran its payload comes first.

        Jobs that are found are then this client's, as if it had submitted them. One that is not found may still arrive.
        """
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a pending or running job; do nothing with one that has ended.

        Raises
        ------
        JobNotFoundError
            The site does not know the job.
        """
        ...

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting until `release`."""
        ...

    def release(self, job_id: str) -> None:
        """Let a held job go."""
        ...

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Ask for several jobs at once.

        Raises
        ------
        JobNotFoundError
            The site does not know one of them.
        """
        ...

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Sleep until jobs of this client change or the clock reads `until_s`; return the changed jobs.

        With `until_s` None, sleep until something changes. Returns an empty sequence when the time has come or nothing
        can change any more. While the site cannot be asked it keeps trying, and `condition` says so.
        """
        ...

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Report what all users' jobs did since the last call, as far as the site shows it, in order of time.

        The first call reports the past: the latest `most` jobs and all that still wait. This client's own jobs are left
        out. With `ends`, jobs' ends are reported as well, and the past includes all that still run.
        """
        ...


def check_backend(backend: object) -> None:
    """Refuse what is to be a backend, and lacks something of one, before anything is submitted."""
    wanted = [name for name in vars(Backend) if not name.startswith("_")]
    lacking = [name for name in wanted if not hasattr(type(backend), name) and not hasattr(backend, name)]
    if lacking:
        raise InputError(
            f"is not a backend: it has no {', '.join(lacking)}",
            where=f"{type(backend).__module__}.{type(backend).__qualname__}",
            hint="Correct the package it is from; `asa.testing.check_backend` tells all that a backend does.",
        )


@runtime_checkable
class CancelsMany(Protocol):
    """A backend that cancels several jobs by few calls."""

    def cancel_all(self, job_ids: Collection[str]) -> Mapping[str, BackendError]:
        """Cancel pending or running jobs; ignore those that have ended.

        Parameters
        ----------
        job_ids
            As `Backend.submit` returned them.

        Returns
        -------
        dict of BackendError
            The jobs that were not cancelled, each with the reason: `JobNotFoundError` for one that the site does not
            know.

        Raises
        ------
        UnavailableError
            The site cannot be asked; none was cancelled.
        """
        ...


def cancel_all(backend: Backend, job_ids: Collection[str]) -> dict[str, BackendError]:
    """Cancel several jobs, one by one where a backend does not cancel several; give those that were not, with why."""
    if isinstance(backend, CancelsMany):
        try:
            return dict(backend.cancel_all(job_ids)) if job_ids else {}
        except BackendError as error:
            return dict.fromkeys(job_ids, error)
    left: dict[str, BackendError] = {}
    for job_id in job_ids:
        try:
            backend.cancel(job_id)
        except BackendError as error:
            left[job_id] = error
    return left


@runtime_checkable
class Adjustable(Protocol):
    """A backend whose jobs can be changed after they were submitted."""

    def change_walltime(self, job_id: str, walltime_s: float) -> None:
        """Give a job another time limit. Most sites let their users shorten that of a running job only.

        Raises
        ------
        BackendError
            The site refuses, and says why.
        """
        ...


@runtime_checkable
class Withdrawing(Protocol):
    """A backend at which time passes between a look at a job and its cancellation, in which its payload may begin."""

    def withdraw(self, job_id: str) -> bool:
        """Keep a job's payload from beginning, before the job is cancelled; False if it has begun.

        A job with a token that reaches its payload afterwards ends as `asa.outcome.JobOutcome.GAVE_BACK`. Withdrawing
        twice does nothing, nor does withdrawing a job without a token.

        Raises `JobNotFoundError`: the site does not know the job.
        Raises `UnavailableError`: it cannot be recorded now: the payload may begin.
        """
        ...


@runtime_checkable
class TakesUp(Protocol):
    """A backend that changes the jobs of its own run alone, and one of its user's that it is given by name."""

    def take_up(self, job_id: str) -> None:
        """Treat a job that was submitted elsewhere as this client's, such as the one in which it runs.

        Raises `JobNotFoundError`: the user has no such job.
        Raises `UnavailableError`: the site cannot be asked.
        """
        ...


@runtime_checkable
class Shrinking(Protocol):
    """A backend that takes nodes back from jobs that run."""

    def shrink(self, job_id: str, nodes: int) -> None:
        """Give back all but so many nodes of a running job.

        Raises
        ------
        BackendError
            The site cannot, or refuses.
        """
        ...


@runtime_checkable
class Growing(Protocol):
    """A backend whose jobs can get more cores after they started: by a second job, whose cores join the first's."""

    def grow(self, job_id: str, cores: int, *, token: str = "") -> str:
        """Ask for more cores for a job; return the id of the second job, which waits for them in the queue.

        The second job is eligible while the first runs, and asks for the first's remaining walltime. It is pending
        until it has the cores, and running once they have joined. It ends with the first, or when the first has given
        all of them back. Cancelling it withdraws the request, or gives the cores back. Before a step that keeps more
        cores than the job had (`Step.cores`), the payload waits for them.

        Parameters
        ----------
        job_id
            The first job, pending or running.
        cores
            How many more, a multiple of `Capabilities.grow_by`.
        token
            Identifies the second job, as `JobSpec.token` does; `Backend.find` finds it by this.

        Raises
        ------
        JobNotFoundError
            The site does not know the first job.
        SubmitRejectedError
            The site will never give so many.
        BackendError
            The site cannot, or the first job has ended.
        """
        ...


@runtime_checkable
class Advisor(Protocol):
    """A backend that can explain its site's words."""

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed, from `JobStatus.reason`."""
        ...


@runtime_checkable
class Troubleshooting(Protocol):
    """A facility that knows what can be done where it cannot be asked."""

    def remedy(self, trouble: str) -> str:
        """Say what a user can do about a trouble, from `Condition.trouble`; empty if nothing but to wait."""
        ...


@runtime_checkable
class Previewing(Protocol):
    """A backend that can show what it would send."""

    def preview(self, spec: JobSpec) -> Mapping[str, str]:
        """Show what `Backend.submit` would send for a job, without sending it.

        Parameters
        ----------
        spec
            The job. It may depend on jobs that do not exist yet, with made-up ids.

        Returns
        -------
        dict of str
            Texts by their titles: a script, a request, a command line. No secrets.
        """
        ...


@runtime_checkable
class Facility(Protocol):
    """A real batch system, and how it is reached: what an `asa.backends` entry point makes from a user's settings."""

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know about it, a sentence each."""
        ...

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> Backend:
        """Open it for one run.

        Parameters
        ----------
        folder
            Where the scripts, output and marks of the run's jobs are kept, on a file system that compute nodes see. A
            client that opens the same folder again, as after a crash, sees the marks of the first.
        sleep
            The function by which `Backend.wait` sleeps. If something else needs attention it returns true early, and
            `wait` returns.

        Raises
        ------
        InputError
            The settings are invalid.
        UnavailableError
            It cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found out about a site.

    Parameters
    ----------
    topic
        What it is about, in one to three words.
    told
        What the site reported.
    verdict
        Whether that is good, worth knowing, or prevents asa from working.
    consequence
        What asa does differently because of it, or what the user can do; empty if nothing.
    """

    topic: str
    told: str
    verdict: Verdict
    consequence: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """All that was found out about a site.

    Parameters
    ----------
    findings
        In reading order.
    settings
        What a site file should keep, by names of the facility's settings.
    observed
        What it should also record for people, such as the version.
    """

    findings: Sequence[Finding]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    observed: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        """Whether nothing that was found keeps asa from working."""
        return all(finding.verdict != "bad" for finding in self.findings)


@runtime_checkable
class Examinable(Protocol):
    """A facility that can be examined, and that has kept what became of past jobs."""

    def examine(self, *, probe: bool) -> Examination:
        """Find out what it can do and how best to ask it. An unreachable site is a finding, not an error.

        Parameters
        ----------
        probe
            Whether a test job may be submitted; it never runs, and is cancelled at once.
        """
        ...

    def history(self, since_s: float) -> JobHistory:
        """Read past jobs: all users', or the user's own where it shows no others.

        Parameters
        ----------
        since_s
            Jobs since this time, on the site's clock.

        Raises
        ------
        BackendError
            It keeps no accounting, or does not show it.
        TraceError
            There is no job among them whose wait is known.
        """
        ...


@runtime_checkable
class Foresight(Protocol):
    """A backend that knows the future: a simulator. Only the oracle strategy asks."""

    def foresee_start(self, spec: JobSpec, submit_s: float) -> float:
        """When a job would start if it were submitted, without dependencies, at a time not before now."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A backend whose scheduler gives every job a planned start at once, and can be asked for one in advance.

    `Capabilities.plans` says whether it is one.
    """

    def planned_start(self, spec: JobSpec, submit_s: float) -> float:
        """Planned start of a job if it were submitted, without dependencies, at a time not before now.

        The job may start earlier, when others end before their walltime; later only if something breaks.
        """
        ...


@runtime_checkable
class EstimatesStarts(Protocol):
    """A backend whose batch system says when it expects a job to start that is not submitted, and promises nothing."""

    def estimated_start(self, spec: JobSpec) -> float | None:
        """Start, on its clock, that the batch system expects for a job submitted now without dependencies.

        None if it does not say, or was asked too often lately. This asks the batch system.
        """
        ...


@runtime_checkable
class Preflight(Protocol):
    """A backend whose batch system says whether a job could ever run that is not submitted."""

    def test(self, spec: JobSpec, timeout_s: float) -> str | None:
        """Ask the batch system whether a job could ever run, and submit nothing.

        Parameters
        ----------
        spec
            The job as it would be submitted; its dependencies and begin time are left out.
        timeout_s
            Seconds that the batch system has for its answer.

        Returns
        -------
        str, optional
            Why it never could, in the batch system's words. None if nothing prevents it, and if the batch system cannot
            be asked, does not answer in time, or names a reason that may pass.
        """
        ...


def site_word_s(backend: Backend, spec: JobSpec) -> float | None:
    """Return a job's wait by the batch system's own estimate or plan, in seconds; None if there is none."""
    if spec.local:
        return None
    now = backend.now()
    if backend.capabilities.plans and isinstance(backend, Planning):
        start_s: float | None = backend.planned_start(replace(spec, dependencies=()), now)
    else:
        start_s = backend.estimated_start(spec) if isinstance(backend, EstimatesStarts) else None
    return None if start_s is None or not math.isfinite(start_s) else max(0.0, start_s - now)


@runtime_checkable
class Site(Protocol):
    """For experiments: makes backends that are repeatable worlds.

    Every call with the same seed returns an equal world, so that strategies can be compared pair by pair.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What each of its worlds can do."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know about its worlds, a sentence each."""
        ...

    def prepare(self, seeds: Sequence[int], executor: Executor | None = None) -> None:
        """Do now, once, what `open` would have to do for each of these seeds; in parallel on an executor."""
        ...

    def in_order(self, seeds: Sequence[int]) -> list[int]:
        """Sort seeds by the time of their worlds, where these are moments of one history; else keep them as given."""
        ...

    def open(self, seed: int) -> Backend:
        """Open the world of a seed, at the moment when the user's first job may be submitted."""
        ...
