"""The interface to a batch system: what every backend must offer, and the values that it takes and returns.

A backend owns the clock. All times are seconds on its clock (at a real site: since 1970, by the scheduler's clock), so
a wait is always the difference of two readings of one clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from asa.core.late import dataclass
from asa.elements import NONE, Array, Elements
from asa.errors import BackendError, InputError
from asa.keys import JobKeys
from asa.outcome import JobOutcome
from asa.requests import min_nodes
from asa.units import format_duration
from asa.waits import QueueEvent

CLUSTER_FILE = "cluster.json"
"""File in a run's folder in which a backend records the run's cluster; without it, the run continues on any cluster."""

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from asa.history import JobHistory  # needs numpy

__all__ = [
    "Adjustable",
    "Advice",
    "Advisor",
    "AmongOthers",
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
    "PastRun",
    "Planning",
    "Preflight",
    "Previewing",
    "Recalls",
    "Recurring",
    "RemembersRuns",
    "Setting",
    "Shrinking",
    "Site",
    "SubmitsTogether",
    "Troubleshooting",
    "Verdict",
]

Setting = str | int | float | bool
"""A value that a site file can keep."""

Verdict = Literal["good", "note", "bad"]
"""Whether a finding is good, is worth knowing, or keeps asa from working."""


class DependencyType(StrEnum):
    """The event after which a job that depends on another may start."""

    AFTEROK = "afterok"
    """The other job completed."""
    AFTERANY = "afterany"
    """The other job ended, in any way."""
    AFTER = "after"
    """The other job started, and `Dependency.delay_s` seconds have passed since then."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """The condition that a job waits for another job.

    Parameters
    ----------
    job_id
        The job waited for; the backend must know it.
    type
        The event of that job that is waited for.
    delay_s
        Seconds after that job's start; only for `DependencyType.AFTER`.
    or_end
        With `delay_s`: the job may also start as soon as the other has ended, in whatever way. A backend whose batch
        system has no such dependency may let it wait for the whole delay.
    """

    job_id: str
    type: DependencyType = DependencyType.AFTEROK
    delay_s: float = 0.0
    or_end: bool = False


REFUSAL = "~no"
"""Suffix of a token, for the marker that says that the token will never come: jobs that wait for it give up."""


@dataclass(frozen=True, slots=True)
class Step:
    """One of several commands of a job.

    They run in waves: a wave begins once all steps of the wave before it have completed.

    Steps of one wave run at the same time; a step that fails does not end the others.
    """

    name: str
    command: str  # what to run; ignored by simulators
    # cores that the job keeps from this step on; it gives the others back, if the site takes cores back. 0: it keeps
    # all. If these are more than the job had, the step begins when the additional cores have joined (`Growing`); at a
    # site where jobs cannot grow, it does not wait for them.
    cores: int = 0
    # its real begin and end, in seconds from the payload's beginning; only for simulators, like `JobSpec.run_s`
    slot_s: tuple[float, float] | None = None
    # the step's size in a job of its own: tasks, cores of each, nodes. During the step, the variables in which the
    # batch system gives a job its size have these values. 0 tasks: as many as the job has; 0 nodes: as few as possible.
    tasks: int = 0
    cpus_per_task: int = 1
    nodes: int = 0
    # token of the completion marker that is written when the step has completed; empty for none. If the marker exists
    # already, the step does not run again.
    post: str = ""
    # tokens of completion markers that others write: the step begins once all exist. See `JobSpec.awaits`, `REFUSAL`.
    awaits: tuple[str, ...] = ()
    # whether the step is in the same wave as the step before
    beside: bool = False
    # see `JobSpec.out_of_memory`
    out_of_memory: Literal["fail", "ignore"] = "fail"
    # the race of this step; see `JobSpec.race`
    race: str = ""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Beginning and completion of a step, and the cores that its job still had then; 0 cores: all that were allocated.

    A step that failed while others of its wave continued also has its exit code and outcome.

    A job of a single payload reports one step, without a name, if the payload completed before the job was requeued.
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
        The name shown in the queue.
    token
        Identifies this job among all jobs ever: letters, digits and ``-``. It is part of the job, so that
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
        Further resources and terms; 0 or empty for none.
    burst_buffer_bytes
        Fast storage that all nodes of the job share while it runs; ignored where there is none.
    exclusive
        Whether no other job may use its nodes; then `cores` are all of theirs.
    cpus_per_task
        Cores of one task, all on one node; `cores` is a multiple.
    tasks
        How many tasks of `cpus_per_task` its payload sees, if fewer than fit on its cores; 0: as many as fit.
    options
        Further options of the batch system, as in ``--constraint=haswell``; ignored where it has none.
    avoid
        Names of nodes to avoid, since they failed before; ignored where nodes have no names.
    local
        Whether to run it where the client is, without a batch system. Only backends that can do so get such jobs.
    dependencies
        Dependencies, all of which must be met before the job may start.
    begin_s
        The job may not start before this time.
    held
        Whether it is submitted on hold; `Backend.release` releases it.
    awaits
        Tokens of completion markers that other jobs write. The allocation may begin earlier, but idles until all of
        these markers exist; then the payload begins.
    max_await_s
        Upper bound of that wait in seconds, and of the waits of its steps together; after it, the job ends by itself.
        None: its walltime. Simulators, whose client is always there, ignore it.
    posts
        Tokens of completion markers that this job writes when it completes. If all of them exist already, it runs
        nothing.
    supersedes
        Tokens of earlier, ended jobs with the same payload. If the batch system starts one of them again, it runs
        nothing.
    bag
        Name of the bag from which the payloads of this job and of others take tasks; empty for a job by itself. If no
        task is left while other jobs still run some, it ends as `asa.outcome.JobOutcome.PART_DONE`: the job has
        completed, but writes no completion marker.
    sharing
        How many jobs take from the bag. `run_s` holds if all of them run at the same time.
    leg
        Number of the leg, from 1 on; the legs of one computation have the same `bag`. `run_s` is the run time of all
        legs together. 0 for a computation in one job.
    saves_s
        How long a leg really takes to save its state after the signal that it gets when the next leg has started; only
        for simulators. None for a leg that gets no signal: the next leg then waits for its end.
    run_s
        How long the payload really runs. Simulators need it; strategies never see it, and real sites ignore it.
    exit_code
        The payload's real exit code; also only for simulators.
    secrets
        Names of the client's variables that its payload gets in addition to those that every job gets; see
        `asa.core.variables.asked`.
    request
        Its size in options of the batch system, as in ``--ntasks-per-node=4``, which are passed on unchanged; `cores`,
        `memory_bytes` and `gpus` then only say what these amount to. None if the job asks for cores, memory and GPUs.
    array
        The elements of a job array, submitted at once; None for one job. Each element is a job with this request, and
        runs the payload with its number in ``SLURM_ARRAY_TASK_ID``. The completion markers in `posts` are written once
        all of `Array.all` have completed, in this job or in others with the same `posts`.
    out_of_memory
        ``fail``: the job has failed if one of its processes was killed for lack of memory, even if its payload exits
        with 0. ``ignore``: only the exit code counts; a job of steps ignores such kills if all of them do.
    race
        Name of the race: jobs with the same one are to run the same stages, or the first of them, with other requests;
        letters, digits and ``-``. The first job whose payload may begin runs them; the others end at once as
        `asa.outcome.JobOutcome.OUTRUN`. Empty for no race. Only for sites with `Capabilities.races`. In a job with
        steps, each step has a race of its own (`Step.race`), and this is the first step's. When the payload of such a
        job may begin, the job skips the steps that others have completed, and takes part in the races for the rest.
    comment
        What people see of it in the queue beside its name; nothing depends on it.
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
    comment: str = ""

    @property
    def request_alone(self) -> JobSpec | None:
        """What it asks the batch system for, without what it runs; None if it cannot be submitted with others.

        Examples
        --------
        >>> fit, draw = (JobSpec(name, 4, 60.0, f"./{name}", token=name) for name in ("fit", "draw"))
        >>> fit.request_alone == draw.request_alone
        True
        """
        is_plain = not (self.local or self.steps or self.shares or self.race or self.supersedes or self.array)
        if not is_plain or not self.token:
            return None
        return replace(self, name="", token="", command="", awaits=(), posts=(), run_s=None, exit_code=0, comment="")

    @property
    def shares(self) -> bool:
        """Whether further jobs do the same work: at the same time, or after this job."""
        return bool(self.bag)

    @property
    def begins_late(self) -> bool:
        """Whether the payload may begin later than the allocation, or never; see `JobStatus.payload_start_s`."""
        return bool(self.awaits or self.race)

    @property
    def shares_tasks(self) -> bool:
        """Whether the job takes its tasks from a bag, from which other jobs may take tasks, too."""
        return self.shares and self.array is None and not self.leg

    @property
    def jobs_at_once(self) -> int:
        """Number of jobs that do this work at the same time."""
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
        """Whether the job has ended, so that its state will not change any more."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class ElementEnd:
    """Elements of a job array that ended in the same way without completing.

    Parameters
    ----------
    elements
        The elements.
    state
        As for a job.
    exit_code, reason, outcome
        As for a job.
    nodes, bad_nodes
        As for a job.
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
    """The state of a job array's elements; those not mentioned are pending.

    Parameters
    ----------
    running, completed
        Elements that run, and elements that completed.
    ended
        Elements that ended without completing, grouped by how they ended.
    ran_s
        Sum of the seconds for which ended elements were allocated cores.
    nodes
        Names of nodes on which elements completed, sixteen at most.
    held
        Elements that wait until somebody releases them.
    held_reason
        Why they are on hold, in the batch system's words; if reasons differ, the first element's.
    longest_s
        The longest time that an element ran which completed, or reached its walltime; None if it is not known.
    """

    running: Elements = NONE
    completed: Elements = NONE
    ended: tuple[ElementEnd, ...] = ()
    ran_s: float = 0.0
    nodes: tuple[str, ...] = ()
    held: Elements = NONE
    held_reason: str = ""
    longest_s: float | None = None

    @property
    def failed(self) -> Elements:
        """Elements that ended without completing."""
        failed = NONE
        for part in self.ended:
            failed |= part.elements
        return failed


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The batch system's report on a job; times are on its own clock.

    Parameters
    ----------
    job_id
        The id that `Backend.submit` returned.
    state
        Its state.
    submit_s
        When it was submitted.
    eligible_s
        Since when only resources and priority keep the job from starting: dependencies met, not held, begin time
        reached. None before that.
    start_s
        When its allocation began.
    payload_start_s
        When the payload began; later than `start_s` for a job that waited for completion markers.
    end_s
        When it ended or was cancelled.
    exit_code
        Exit code of the payload, once it ended.
    reason
        Why it is pending or how it failed, in the batch system's words. `DependencyNeverSatisfied` marks a job that
        cannot start any more.
    expected_start_s
        When the batch system expects a pending job to start, if it says so.
    restarts
        How often the batch system requeued it after it had started. All times belong to the latest start, so its queue
        wait is no longer known.
    held
        Whether it was seen on hold, so that the time until its start is no queue wait.
    steps
        Its steps that have begun, if reported.
    bad_nodes
        Names of the nodes whose failure ended the job, if reported.
    elements
        State of the elements of a job array; None for one job. The array starts with its first element, ends with its
        last, and has completed if all did. Its exit code, outcome and reason are those of an element that did not
        complete.
    outcome
        How its payload ended, if the backend can tell that from exit codes of programs; else see `asa.outcome`.
    nodes
        Names of the nodes that it runs or ran on, if reported: first the one of its script; sixteen at most.
    in_doubt
        Whether one of its processes was killed for lack of memory, but it is not known in which task: tasks that exited
        with 0 may have failed.
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

    def later(self, by_s: float) -> JobStatus:
        """Return the same on a clock that is ahead by some seconds.

        Examples
        --------
        >>> status = JobStatus("1", JobState.RUNNING, 100.0, start_s=160.0).later(30.0)
        >>> status.submit_s, status.start_s, status.end_s
        (130.0, 190.0, None)
        """
        if not by_s:
            return self

        def at(time_s: float | None) -> float | None:
            return None if time_s is None else time_s + by_s

        return replace(
            self,
            submit_s=self.submit_s + by_s,
            eligible_s=at(self.eligible_s),
            start_s=at(self.start_s),
            payload_start_s=at(self.payload_start_s),
            end_s=at(self.end_s),
            expected_start_s=at(self.expected_start_s),
            steps=tuple(replace(step, start_s=step.start_s + by_s, end_s=at(step.end_s)) for step in self.steps),
        )

    @property
    def longest_part_s(self) -> float | None:
        """The longest time that an element of an array ran which completed, or reached its walltime, if known."""
        return self.elements.longest_s if self.elements is not None else None

    @property
    def has_overrun_part(self) -> bool:
        """Whether an element of an array reached its walltime."""
        return self.elements is not None and any(end.state is JobState.TIMEOUT for end in self.elements.ended)

    @property
    def good_nodes(self) -> tuple[str, ...]:
        """Names of nodes on which it, or some of its elements, completed."""
        own = self.nodes if self.state is JobState.COMPLETED else ()
        return (*own, *(self.elements.nodes if self.elements is not None else ()))


End = JobStatus | ElementEnd
"""The end of a job, or of elements of a job array."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """Limits of jobs in one partition, as far as known.

    Parameters
    ----------
    max_walltime_s, max_nodes, max_cores
        Upper bounds for one job; None for no limit, or if not known.
    cores_per_node
        Cores of its widest node; 0 if not known.
    memory_per_node_bytes
        Memory of its node with the most; 0 if not known.
    gpus_per_node
        GPUs of its node with the most; None if not known.
    is_up
        Whether jobs may be sent there now.
    accounts, barred_accounts
        The only accounts whose jobs it takes (empty: all), and those whose jobs it refuses.
    whole_nodes
        Whether jobs never share one of its nodes.
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

ON = "@"
"""Stands between the name of a partition, or a job's id, and that of its cluster, at a site with several."""


def cluster_of(name: str) -> str:
    """Return the cluster of a partition or a job, given its name or id; empty at a site with one queue.

    Examples
    --------
    >>> cluster_of("batch@big"), cluster_of("12_3@small"), cluster_of("batch")
    ('big', 'small', '')
    """
    return name.rpartition(ON)[2] if ON in name else ""


def partition_of(clusters: str, partition: str = "") -> str:
    """Return the partition that a job asks for whose clusters are named apart, as ``sbatch --clusters`` takes them.

    Parameters
    ----------
    clusters
        Names with commas between them; none, or ``all``, for any.
    partition
        Its name there; the default one if it is empty. One that names one of these clusters is that one.

    Examples
    --------
    >>> partition_of("small", "batch"), partition_of("big, small"), partition_of("", "batch")
    ('batch@small', '@big,@small', 'batch')
    >>> partition_of("small", "batch@small")
    'batch@small'
    """
    names = [name for name in map(str.strip, clusters.split(",")) if name]
    if not names or "all" in names:
        return partition
    each = [
        part if cluster_of(part) in names else f"{part}{ON}{name}" for name in names for part in partition.split(",")
    ]
    return ",".join(dict.fromkeys(each))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities and rules of a site, as data for strategies.

    Parameters
    ----------
    system
        The site's name, which is part of every `JobGeometry`.
    max_cores
        Cores of the largest possible job.
    cores_per_node
        Cores of a node, for stages that ask for nodes.
    age_accrues
        Whether a job gains priority by waiting while a dependency keeps it from starting. In Slurm: no by default, yes
        with ``PriorityFlags=ACCRUE_ALWAYS``.
    dependency_types
        Types of dependency that it has.
    begin_time
        Whether a job can have an earliest begin time.
    partition
        The default partition; empty if not known.
    partitions
        Limits of each known partition.
    accounts
        Accounts that may be charged for a job which names none; empty if not known.
    shrink_by
        A running job can give back multiples of this many cores (of a node's, where only whole nodes are taken back); 0
        if it cannot give cores back.
    shrinks_from_outside
        Whether the client can shrink a job (`Shrinking.shrink`), and not only the job's own script.
    grow_by
        A running job can get multiples of this many additional cores, by a second job whose cores join it (`Growing`);
        0 if it cannot.
    max_queued
        Upper bound of a user's jobs in the queue; None for no limit, or if not known.
    charges
        What a user pays for: all that is ``allocated``, or only what is ``used``, in which case idle cores cost
        nothing.
    plans
        Whether every job gets a planned start at its submission, and one can be asked for in advance (`Planning`).
    burst_buffer_bytes
        Size of its burst buffer; None if requests for one are ignored.
    accepts_late
        Whether a submission whose answer was lost may be accepted later. If not, a job that `Backend.find` does not
        show was not accepted.
    arrays
        Whether it has job arrays (`JobSpec.array`).
    max_array_size
        Upper bound of an array's elements; None for no limit, or if not known.
    whole_nodes
        Whether jobs never share a node, in any partition: a job of one core gets, and pays for, a whole node.
    races
        Whether several jobs may race for the same work (`JobSpec.race`).
    max_together
        How many jobs with equal requests it takes in one submission (`SubmitsTogether`); 1: each by itself.
    clusters
        If the site has several clusters: the abilities of each, by its name. Its partitions are then named as in
        ``batch@big``, and ids of jobs end in ``@big``. Empty for a site with one queue.
    moves_s
        Of a site with several clusters: how long a stage takes, at its beginning, to fetch what stages on another
        cluster have left.
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
    max_together: int = 1
    clusters: Mapping[str, Capabilities] = field(default_factory=dict)
    moves_s: float = 0.0

    def place(self, partition: str) -> tuple[Capabilities, str]:
        """Return the abilities of the cluster that a partition belongs to, and the name that it has there.

        Examples
        --------
        >>> big = Capabilities("big", 112, 28, True, partition="batch")
        >>> both = Capabilities("both", 112, 28, True, partition="batch@big", clusters={"big": big})
        >>> both.place("")[1], big.place("")[1]
        ('batch', 'batch')
        """
        asked = partition or self.partition
        here = self.clusters.get(self.cluster_for(asked))
        if here is None:
            return self, asked
        names = (name.rpartition(ON)[0] if ON in name else name for name in asked.split(","))
        return here, ",".join(names) or here.partition

    def cluster_for(self, partition: str) -> str:
        """Return which of several clusters takes the jobs of a partition; empty if that is not one.

        It is the one that the partition names, or the first that has a partition of that name.

        Examples
        --------
        >>> big = Capabilities("big", 112, 28, True, partitions={"batch": PartitionLimits(), "long": PartitionLimits()})
        >>> both = replace(big, partition="batch@small", clusters={"small": replace(big, partitions={}), "big": big})
        >>> both.cluster_for("long"), both.cluster_for("long@small"), both.cluster_for("")
        ('big', 'small', 'small')
        """
        names = (partition or self.partition).split(",")
        named = {cluster_of(name) for name in names}
        if named != {""}:
            return named.pop() if len(named) == 1 else ""
        return next((cluster for cluster, here in self.clusters.items() if here.partitions.keys() >= {*names}), "")

    def name_of(self, partition: str) -> str:
        """Return the name that this site has for a partition that may name its cluster, as in ``batch@big``.

        Of several clusters, that of a cluster's default partition if it names the cluster alone. If this site is that
        one cluster, the name without it.

        Examples
        --------
        >>> big = Capabilities("big", 112, 28, True, partition="batch")
        >>> big.name_of("long@big"), big.name_of("@big,@small"), big.name_of("long@small")
        ('long', '', 'long@small')
        >>> Capabilities("both", 112, 28, True, clusters={"big": big}).name_of("@big")
        'batch@big'
        """
        if ON not in partition:
            return partition
        names = partition.split(",")
        if self.clusters:
            alone = {f"{ON}{cluster}": here.partition_on(cluster) for cluster, here in self.clusters.items()}
            return ",".join(alone.get(name, name) for name in names)
        here = [name.partition(ON)[0] for name in names if cluster_of(name) in {"", self.system}]
        return ",".join(here) if here else partition

    def partition_on(self, cluster: str, partition: str = "") -> str:
        """Return the name, among several clusters, of a partition of this one, given its name among them.

        Examples
        --------
        >>> Capabilities("big", 112, 28, True, partition="batch").partition_on("big")
        'batch@big'
        """
        return ",".join(f"{name}{ON}{cluster}" for name in (partition or self.partition).split(","))

    def of_job(self, job_id: str) -> Capabilities:
        """Return the abilities of the cluster that has a job."""
        return self.clusters.get(cluster_of(job_id), self) if self.clusters else self

    def there(self, spec: JobSpec) -> JobSpec:
        """Return a job as the cluster of its partition is asked for it; it has as many nodes there, of that size."""
        here, partition = self.place(spec.partition)
        if here is self:
            return spec
        per_node, cores = here.cores_per_node, spec.cores
        if spec.nodes and per_node and cores == spec.nodes * self.cores_per_node:
            cores = spec.nodes * per_node
        return replace(spec, cores=cores, partition=partition)

    def limits(self, partition: str) -> PartitionLimits:
        """Return the known limits of a partition; of the default one if the name is empty.

        Of a partition that several clusters have, and whose cluster is not named, those with the longest walltime.
        """
        asked = partition or self.partition
        if asked in self.partitions or not self.clusters or ON in asked:
            return self.partitions.get(asked, _NO_LIMITS)
        alike = [limits for name, limits in self.partitions.items() if name.rpartition(ON)[0] == asked]
        return max(
            alike, key=lambda one: math.inf if one.max_walltime_s is None else one.max_walltime_s, default=_NO_LIMITS
        )

    def gives_whole_nodes(self, limits: PartitionLimits) -> bool:
        """Whether jobs never share a node of a partition."""
        return self.whole_nodes or limits.whole_nodes

    def resizes_within(self, cores: int) -> bool:
        """Whether a running job can give back, or get, less than this many cores."""
        return any(0 < by < cores for by in (self.shrink_by, self.grow_by))

    def paid_cores(self, cores: int, partition: str = "") -> int:
        """Return the cores that a job is charged for: all cores of its nodes, if nodes are allocated whole.

        Examples
        --------
        >>> Capabilities("x", 112, 28, True, whole_nodes=True).paid_cores(3)
        28
        """
        limits = self.limits(partition)
        per_node = limits.cores_per_node or self.cores_per_node
        return -(-cores // per_node) * per_node if per_node and self.gives_whole_nodes(limits) else cores

    def impossible(self, spec: JobSpec) -> str | None:
        """Return why a job could never run here, by the known limits, in words; None if they allow it.

        Examples
        --------
        >>> site = Capabilities("x", 112, 28, True, partition="long", partitions={"long": PartitionLimits(3600.0)})
        >>> site.impossible(JobSpec("big", cores=56, walltime_s=7200.0))
        "asks for 2h00m in partition 'long', which gives at most 1h00m"
        """
        if spec.local:
            return None
        if (here := self.place(spec.partition)[0]) is not self:
            return here.impossible(self.there(spec))
        names = (spec.partition or self.partition).split(",")  # of several partitions, the batch system chooses one
        down = (limit for name in names if (limit := self.partitions.get(name)) is not None and not limit.is_up)
        cores = max(spec.cores, spec.nodes * self.cores_per_node)
        # partitions that are down will come up again
        max_cores = max((self.max_cores, *(limit.max_cores or 0 for limit in down)))
        if cores > max_cores:
            return f"asks for {cores} cores, and the largest possible job has {max_cores}"
        buffer, max_buffer = spec.burst_buffer_bytes, self.burst_buffer_bytes
        if max_buffer is not None and buffer > max_buffer:
            return f"asks for {_gibibytes(buffer)} of burst buffer, and there are {_gibibytes(max_buffer)}"
        unknown = next((name for name in names if name not in self.partitions), "") if self.partitions else ""
        if unknown and spec.partition:
            return self._unknown(unknown)
        limits = {name: self.partitions.get(name, _NO_LIMITS) for name in names}
        beyond = [self._barred(spec, *entry) or self._beyond(spec, *entry, cores) for entry in limits.items()]
        return beyond[0] if all(beyond) else None

    def _unknown(self, partition: str) -> str:
        cluster = cluster_of(partition)
        if cluster and not self.clusters:
            how = "the setting `cluster` names another, and `clusters` in a site file several"
            return f"asks for cluster {cluster!r}, and this one is {self.system!r}: {how}"
        if cluster and cluster not in self.clusters:
            return f"asks for cluster {cluster!r}, which does not exist here; known: {', '.join(self.clusters)}"
        return f"asks for partition {partition!r}, which does not exist; known: {', '.join(self.partitions)}"

    def _barred(self, spec: JobSpec, name: str, limits: PartitionLimits) -> str | None:
        """Return why a partition takes no jobs of the accounts that a job may be charged to; None if it takes them."""
        accounts = [spec.account] if spec.account else self.accounts
        if not accounts or any(map(limits.takes, accounts)):
            return None
        others = f", but those of {', '.join(limits.accounts)}" if limits.accounts else ""
        return f"asks for partition {name!r}, which takes no jobs of account {' or '.join(accounts)}{others}"

    def _beyond(self, spec: JobSpec, name: str, limits: PartitionLimits, cores: int) -> str | None:
        """Name the limit of its partition that a job exceeds."""
        where = f"in partition {name!r}, which gives at most"
        if limits.max_walltime_s is not None and spec.walltime_s > limits.max_walltime_s:
            return f"asks for {format_duration(spec.walltime_s)} {where} {format_duration(limits.max_walltime_s)}"
        per_node = limits.cores_per_node or self.cores_per_node
        for asked, what, most in (
            (cores, "cores", limits.max_cores),
            (spec.cpus_per_task, "cores of a node for each task", per_node or None),
        ):
            if most is not None and asked > most:
                return f"asks for {asked} {what} {where} {most}"
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
    """Return how many GPUs a job's nodes could have; if it does not say how many nodes, it may get many."""
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
        Why it cannot be reached, in words; empty while it can.
    calls
        How many calls were made to it so far.
    away
        Of several clusters, those that cannot be reached: why, by name. `trouble` is about all of these.
    """

    heard_s: float
    trouble: str = ""
    calls: int = 0
    away: Mapping[str, str] = field(default_factory=dict)

    def trouble_of(self, job_id: str) -> str:
        """Return why the cluster of a job cannot be reached, in words; empty while it can."""
        return self.away.get(cluster_of(job_id), "") if self.away else self.trouble


@dataclass(frozen=True, slots=True)
class Advice:
    """The meaning of a reason that the batch system gives, and what to do about it.

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
    """A batch system as one user sees it; `asa.testing.check_backend` checks this contract."""

    @property
    def capabilities(self) -> Capabilities:
        """The site's abilities and rules."""
        ...

    @property
    def condition(self) -> Condition:
        """Whether the batch system answers at the moment."""
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
            The job will never be accepted as it is.
        SubmitDeferredError
            The job is not accepted now.
        SubmitInDoubtError
            The job may have been accepted: call `find` before submitting it again.
        UnavailableError
            The site cannot be reached; the job was certainly not accepted.
        """
        ...

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Ask the site for the jobs of the given tokens.

        For each token, the job that runs or ran the payload comes first.

        Found jobs then belong to this client, as if it had submitted them. A job that is not found may still arrive.
        """
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a pending or running job; a job that has ended stays as it is.

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
        """Release a held job."""
        ...

    def status(self, job_ids: Iterable[str]) -> dict[str, JobStatus]:
        """Ask for the states of several jobs at once.

        Raises
        ------
        JobNotFoundError
            The site does not know one of them.
        """
        ...

    def wait(self, until_s: float | None) -> Sequence[JobStatus]:
        """Sleep until jobs of this client change or the clock reads `until_s`; return the changed jobs.

        With `until_s` None, sleep until something changes. Return an empty sequence when the time has come, or nothing
        can change any more. While the site cannot be reached, `wait` keeps trying, and `condition` says so.
        """
        ...

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Report what all users' jobs did since the last call, as far as the site shows it, in order of time.

        The first call reports the past: the latest `most` jobs, and all that still wait. This client's own jobs are
        left out. With `ends`, the ends of jobs are reported as well, and the past includes all jobs that still run.
        """
        ...


def check_backend(backend: object) -> None:
    """Refuse an object that lacks something of a backend, before anything is submitted."""
    wanted = [name for name in vars(Backend) if not name.startswith("_")]
    lacking = [name for name in wanted if not hasattr(type(backend), name) and not hasattr(backend, name)]
    if lacking:
        raise InputError(
            f"is not a backend: it has no {', '.join(lacking)}",
            where=f"{type(backend).__module__}.{type(backend).__qualname__}",
            hint="Correct the package it is from; `asa.testing.check_backend` tells all that a backend does.",
        )


@runtime_checkable
class SubmitsTogether(Protocol):
    """A backend that can submit several jobs with equal requests in one call."""

    def goes_alone(self, options: Sequence[str], texts: Iterable[str]) -> bool:
        """Tell whether a job would be something else, to what it runs or to its user, if it went with others.

        Parameters
        ----------
        options
            Its options, as the user wrote them.
        texts
            What it runs: commands, and scripts that these run, as far as they are known. They are read one by one, only
            while the answer depends on them.

        Returns
        -------
        bool
            True for a job that is to be submitted by itself.
        """
        ...

    def submit_together(self, specs: Sequence[JobSpec]) -> Sequence[str]:
        """Submit jobs with one call: all or none.

        Each is then a job like any other: it has its own id, begins and ends by itself, can be found by its token,
        depended on and cancelled.

        Parameters
        ----------
        specs
            At least two jobs whose `JobSpec.request_alone` are equal; at most `Capabilities.max_together`.

        Returns
        -------
        sequence of str
            Their ids, in the same order.

        Raises
        ------
        SubmitRejectedError
            The site takes no jobs together at all: each is then submitted by itself, and so are all later ones.
        SubmitDeferredError
            These jobs are not accepted together, or not now: each is then submitted by itself, and later ones go
            together again after a pause.
        SubmitInDoubtError, UnavailableError
            As for `Backend.submit`.
        """
        ...


@runtime_checkable
class CancelsMany(Protocol):
    """A backend that can cancel several jobs with few calls."""

    def cancel_all(self, job_ids: Collection[str]) -> Mapping[str, BackendError]:
        """Cancel pending or running jobs; ignore those that have ended.

        Parameters
        ----------
        job_ids
            Ids that `Backend.submit` returned.

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
    """Cancel several jobs, by `cancel_all` if the backend has it; return the jobs not cancelled, with reasons."""
    if not job_ids:
        return {}
    if isinstance(backend, CancelsMany):
        try:
            return dict(backend.cancel_all(job_ids))
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
    """A backend that can change jobs after their submission."""

    def change_walltime(self, job_id: str, walltime_s: float) -> None:
        """Change a job's time limit. Most sites let users only shorten it once the job runs.

        Raises
        ------
        BackendError
            The site refuses, and says why.
        """
        ...


@runtime_checkable
class Withdrawing(Protocol):
    """A backend where a payload may begin between a look at its job and the job's cancellation."""

    def withdraw(self, job_id: str) -> bool:
        """Keep a job's payload from beginning, before the job is cancelled; False if it has begun.

        A job with a token that reaches its payload after that ends as `asa.outcome.JobOutcome.GAVE_BACK`. Withdrawing
        twice does nothing, nor does withdrawing a job without a token.

        Raises `JobNotFoundError`: the site does not know the job.
        Raises `UnavailableError`: it cannot be recorded now, so the payload may begin.
        """
        ...


@runtime_checkable
class Recalls(Protocol):
    """A backend that knows of a job what its client has seen, and is told by a later client what earlier ones saw."""

    def recall(self, last_known: Callable[[str], JobStatus | None]) -> None:
        """Go on from the states that earlier clients of the run have recorded, as if this one had seen them.

        Called once, before any other call. A batch system may have forgotten what it said then: how an element of an
        array ended, or that a job has started.

        Parameters
        ----------
        last_known
            Returns a job's last recorded state by its id; None if the run has no such job.
        """
        ...


@runtime_checkable
class TakesUp(Protocol):
    """A backend that changes only jobs of its own run, and can be given one more of its user's jobs by id."""

    def take_up(self, job_id: str) -> float | None:
        """Treat a job that was submitted elsewhere as this client's, such as the job in which the client runs.

        Returns when its walltime will be over; None if that is not known.
        Raises `JobNotFoundError`: the user has no such job.
        Raises `UnavailableError`: the site cannot be asked.
        """
        ...


@runtime_checkable
class Shrinking(Protocol):
    """A backend that can take nodes back from running jobs."""

    def shrink(self, job_id: str, nodes: int) -> None:
        """Give back all but `nodes` nodes of a running job.

        Raises
        ------
        BackendError
            The site cannot do it, or refuses.
        """
        ...


@runtime_checkable
class Growing(Protocol):
    """A backend whose jobs can get more cores after their start, by a second job whose cores join the first."""

    def grow(self, job_id: str, spec: JobSpec) -> str:
        """Ask for more cores for a job; return the id of the second job, which waits for them in the queue.

        The second job is eligible while the first runs, and asks for the first's remaining walltime. It is pending
        until it has the cores, and running from then on. It ends with the first, or when the first has given all of
        them back. Cancelling it withdraws the request, or gives the cores back. Before a step that keeps more cores
        than the job had (`Step.cores`), the payload waits for them.

        Parameters
        ----------
        job_id
            The first job, pending or running.
        spec
            The second job: how many additional cores, a multiple of `Capabilities.grow_by`; its token, by which
            `Backend.find` finds it; the first's remaining walltime, partition, options and terms. It runs nothing.

        Raises
        ------
        JobNotFoundError
            The site does not know the first job.
        SubmitRejectedError
            The site will never give that many.
        SubmitDeferredError
            The first job has not begun, or has ended, at a site where only running jobs can get more cores.
        BackendError
            The site cannot do it, or the first job has ended.
        """
        ...


@runtime_checkable
class TakesOver(Growing, Protocol):
    """A backend through which a running job takes over the cores that a second job has got for it."""

    def take_over(self, job_id: str) -> tuple[str, ...]:
        """Add the nodes of a second job (`Growing.grow`), which is running, to the first; return their names.

        Only a program inside the first job may call it: if that job has ended, a batch system may lose the nodes.

        Raises
        ------
        BackendError
            The site refuses; the second job still has its nodes.
        """
        ...


@runtime_checkable
class Advisor(Protocol):
    """A backend that can explain its site's reasons."""

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed, from `JobStatus.reason`."""
        ...


@runtime_checkable
class Troubleshooting(Protocol):
    """A facility that knows remedies for an unreachable batch system."""

    def remedy(self, trouble: str) -> str:
        """Return what a user can do about a trouble, from `Condition.trouble`; empty if the user can only wait."""
        ...


@runtime_checkable
class Previewing(Protocol):
    """A backend that can show what it would send to the batch system."""

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
    """A real batch system and the way to reach it, made by an `asa.backends` entry point from a user's settings."""

    @property
    def notes(self) -> Sequence[str]:
        """Return notes on the backend for its user, one sentence each."""
        ...

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> Backend:
        """Connect to it for one run.

        Parameters
        ----------
        folder
            Where scripts, output and marks of the run's jobs are kept, on a file system that compute nodes see. A
            client that opens the same folder again, as after a crash, sees the marks of the first.
        sleep
            The function by which `Backend.wait` sleeps. If it returns true, early, something else needs attention, and
            `wait` returns.

        Raises
        ------
        InputError
            The settings are invalid.
        UnavailableError
            The batch system cannot be reached.
        """
        ...


@runtime_checkable
class AmongOthers(Protocol):
    """A facility whose jobs may be some of a run's, while others are on other clusters."""

    def connect_among_others(
        self, folder: Path, own: Path, *, sleep: Callable[[float], bool | None] = time.sleep
    ) -> Backend:
        """Connect one run like `Facility.connect`.

        Parameters
        ----------
        folder
            As there: markers of jobs, and what they print. Other clusters' jobs use it, too, perhaps under the same
            numbers.
        own
            Where it keeps what is its own: scripts, and records of jobs by their ids.
        sleep
            As there.
        """
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a site.

    Parameters
    ----------
    topic
        The subject, in one to three words.
    told
        What the site reported.
    verdict
        Whether that is good, worth knowing, or keeps asa from working.
    consequence
        What asa does differently because of it, or what the user can do; empty if nothing.
    """

    topic: str
    told: str
    verdict: Verdict
    consequence: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings about a site.

    Parameters
    ----------
    findings
        The findings, in reading order.
    settings
        Values that a site file should keep, by the names of the facility's settings.
    observed
        Values that it should record for people, such as the version.
    """

    findings: Sequence[Finding]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    observed: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        """Whether no finding keeps asa from working."""
        return all(finding.verdict != "bad" for finding in self.findings)


@runtime_checkable
class Examinable(Protocol):
    """A facility that can be examined, and that keeps records of past jobs."""

    def examine(self, *, probe: bool) -> Examination:
        """Find out what the site can do and how best to ask it. An unreachable site is a finding, not an error.

        Parameters
        ----------
        probe
            Whether a test job may be submitted; it never runs, and is cancelled at once.
        """
        ...

    def history(self, since_s: float) -> JobHistory:
        """Read past jobs of all users, or only the user's own if the site shows no others.

        Parameters
        ----------
        since_s
            Read jobs since this time, on the site's clock.

        Raises
        ------
        BackendError
            The site keeps no accounting, or does not show it.
        TraceError
            The wait is known for none of these jobs.
        """
        ...


@dataclass(frozen=True, slots=True)
class PastRun:
    """A past job of the user that ran, whoever submitted it.

    Parameters
    ----------
    name
        Its name in the batch system.
    run_s
        Seconds that it ran.
    end_s
        When it ended, on the batch system's clock.
    completed
        Whether it completed; else it reached its walltime.
    """

    name: str
    run_s: float
    end_s: float
    completed: bool


@runtime_checkable
class RemembersRuns(Protocol):
    """A facility that finds the user's past jobs by their names."""

    def past_runs(self, names: Collection[str], since_s: float) -> Sequence[PastRun]:
        """Read the user's past jobs of the given names that completed or reached their walltimes.

        Parameters
        ----------
        names
            Names of jobs.
        since_s
            Read jobs since this time, on the site's clock.

        Raises
        ------
        BackendError
            The site's records cannot be read.
        """
        ...


@runtime_checkable
class Recurring(Protocol):
    """A facility whose batch system runs jobs again and again, by a table of the user that is like cron's."""

    def recurring_jobs(self) -> str:
        """Read the user's table.

        Raises
        ------
        BackendError
            There is no such table here, or it cannot be read now.
        """
        ...

    def recurring_job(self, spec: JobSpec, when: str, output: Path) -> str:
        """Write the lines of the table for a job, with this facility's account, partition and the like.

        Parameters
        ----------
        spec
            The job; its command is one line.
        when
            When it runs, in cron's five fields.
        output
            The file for what it prints, in the folder in which it runs; each time anew.

        Raises
        ------
        BackendError
            The table cannot hold the job.
        """
        ...

    def set_recurring_jobs(self, table: str) -> None:
        """Replace the user's table. Jobs that run now go on.

        Parameters
        ----------
        table
            The new table; empty for none.

        Raises
        ------
        BackendError
            The batch system refuses it, or does not answer.
        """
        ...


@runtime_checkable
class Foresight(Protocol):
    """A backend that knows the future: a simulator. Only the oracle strategy asks for it."""

    def foresee_start(self, spec: JobSpec, submit_s: float) -> float:
        """Return when a job would start if it were submitted, without dependencies, at a time not before now."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A backend whose scheduler gives every job a planned start at once, and can be asked for one in advance.

    `Capabilities.plans` says whether it does.
    """

    def planned_start(self, spec: JobSpec, submit_s: float) -> float:
        """Return the planned start of a job if it were submitted, without dependencies, at a time not before now.

        The job may start earlier, if others end before their walltime; it starts later only if something breaks.
        """
        ...


@runtime_checkable
class EstimatesStarts(Protocol):
    """A backend whose batch system can estimate, without a promise, when an unsubmitted job would start."""

    def estimated_start(self, spec: JobSpec) -> float | None:
        """Return the start, on its clock, that the batch system expects for a job submitted now without dependencies.

        None if the batch system does not say, or was asked too often lately. Each call asks the batch system.
        """
        ...


@runtime_checkable
class Preflight(Protocol):
    """A backend whose batch system can say whether an unsubmitted job could ever run."""

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
            Why it never could, in the batch system's words. None if nothing prevents it, and also if the batch system
            cannot be reached, does not answer in time, or names a reason that may pass.
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
    """For experiments: makes backends that are reproducible simulated worlds.

    Every call with the same seed returns an equal world, so that strategies can be compared pair by pair.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The abilities and rules that all its worlds have."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Return notes on the simulated worlds for the user, one sentence each."""
        ...

    def prepare(self, seeds: Sequence[int], executor: Executor | None = None) -> None:
        """Do the work that `open` needs for these seeds now, once, in parallel if given an executor."""
        ...

    def in_order(self, seeds: Sequence[int]) -> list[int]:
        """Sort seeds by the time of their worlds, if these are parts of one history; else keep their order."""
        ...

    def open(self, seed: int) -> Backend:
        """Open the world of a seed, at the time when the user's first job may be submitted."""
        ...
