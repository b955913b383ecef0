"""The port to a batch system: what every backend must offer, and the values that cross it.

A backend owns the clock. All times are seconds on that clock (for a real site: the epoch, as the scheduler tells it),
so a wait is always the difference of two readings of one clock.
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

from asa.demands import Demands
from asa.elements import NONE, Array, Elements
from asa.errors import BackendError, InputError
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
        For what of it.
    delay_s
        Seconds after its start, for `DependencyType.AFTER` only.
    """

    job_id: str
    type: DependencyType = DependencyType.AFTEROK
    delay_s: float = 0.0


REFUSAL = "~no"
"""With a token before it, what is posted to tell those that wait for the token that it will not come: they give up."""


@dataclass(frozen=True, slots=True)
class Step:
    """One of several commands that a job runs, in waves: a wave begins if all of the one before it completed.

    Those of one wave run at the same time, and one that fails leaves the others be.
    """

    name: str
    command: str  # what to run; ignored by simulators
    # cores that the job keeps from here on, where it then gives others back; 0 for all that it has. A site that cannot
    # take them back leaves the job as wide as it is. If they are more than it had, the step begins when they have
    # joined (`Growing`); a site where jobs cannot grow does not wait for them.
    cores: int = 0
    # from when to when it really runs, in seconds from the payload's beginning. Known to simulators, like
    # `JobSpec.run_s`.
    slot_s: tuple[float, float] | None = None
    # what the step would ask for in a job of its own, which is all that it is to see of the job where the batch system
    # tells a job its size: how many tasks, of how many cores each, spread over how many nodes. 0 tasks for as many as
    # the job has, 0 nodes for as few as may be.
    tasks: int = 0
    cpus_per_task: int = 1
    nodes: int = 0
    # token that is posted when the step has completed; empty for none. A step whose token is posted already is not run
    # again.
    post: str = ""
    # tokens that others post: the step begins when all are there. See `JobSpec.awaits`, and `REFUSAL`.
    awaits: tuple[str, ...] = ()
    # whether it is of the same wave as the step before it
    beside: bool = False
    # see `JobSpec.out_of_memory`
    out_of_memory: Literal["fail", "ignore"] = "fail"


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When a step began, when it completed, and the cores that its job had kept by then; 0 for all that it got.

    Of one that failed while others of its wave went on, its exit code, and how it ended.

    A job of a single payload tells one, without a name, where that completed before the job was put back into the
    queue.
    """

    name: str
    start_s: float
    end_s: float | None = None
    cores: int = 0
    exit_code: int | None = None
    outcome: JobOutcome | None = None


@dataclass(frozen=True, slots=True)
class JobSpec(Demands):
    """A job to submit.

    Parameters
    ----------
    name
        Shown in the queue.
    token
        Tells this job from every other, for life: letters, digits and ``-``. It travels with the job, so that
        `Backend.find` can tell whether a submission whose answer was lost was accepted. Of several jobs of one token,
        at most one runs its payload. Empty for a job that need not be found.
    cores
        Cores to allocate.
    walltime_s
        The job is killed when it has run so long.
    command
        What to run; ignored by simulators.
    steps
        What to run in place of `command`, where it is several commands; their names differ.
    nodes, memory_bytes, gpus, partition, account
        Further demands; 0 and empty mean no demand.
    burst_buffer_bytes
        Fast storage that all nodes of the job share while it runs; ignored where there is none.
    exclusive
        No other job may be on its nodes; `cores` are all of theirs.
    cpus_per_task
        Cores that belong together on one node, for one task each; `cores` is a multiple.
    tasks
        How many tasks of `cpus_per_task` its payload is to find, where that takes fewer than all of its cores; 0 for
        all of them.
    options
        Further options in the batch system's own words, as in ``--constraint=haswell``; ignored where it has none.
    avoid
        Names of nodes that it is not to run on, since they failed before; ignored where nodes have no names.
    local
        To be run where the client is, by no batch system's queue. A backend never sees such a job unless it can.
    dependencies
        All of them must be met before the job may start.
    begin_s
        The job may not start before this time.
    held
        Submitted on hold; `Backend.release` releases it.
    awaits
        Tokens that other jobs post when they complete. The allocation may begin earlier, but the payload inside it
        begins only when all of them are posted; until then the allocation idles.
    max_await_s
        For so many seconds at most, together with what its steps wait for: then the job ends by itself, should nobody
        have cancelled it. Simulators, which have their client always beside them, do not heed it. None for as long as
        its walltime.
    posts
        Tokens that this job posts when it completes. A job of which all are posted already runs nothing.
    supersedes
        Tokens of earlier jobs, which have ended, of what this one runs. Should the batch system start one of them once
        more, it runs nothing.
    bag
        Names what the payload takes its tasks from, together with other jobs of the same; empty for a job by itself. It
        ends as `asa.outcome.JobOutcome.PART_DONE` if none is left to take and others still run some: then the job has
        completed, and posts nothing.
    sharing
        How many jobs share the bag. `run_s` holds if they all run at once.
    leg
        Which leg it is, from 1 on, of what goes on from one job to the next, in turn: those of one `bag`. `run_s` is
        what all of them take together. 0 for what one job does.
    saves_s
        How long a leg really takes to save its state once it is signalled to, as it is when the next one has started.
        Known to simulators only; None for one that gets no signal, and for whose end the next one waits.
    run_s
        How long the payload really runs. Known to simulators, which need it; never shown to a strategy, and ignored
        by real sites.
    exit_code
        How the payload really ends; likewise.
    secrets
        Names of variables of the client's that its payload is given beside those that every job is; see
        `asa.core.variables.asked`.
    request
        How large it is, in the batch system's own words, as in ``--ntasks-per-node=4``, which it gets as they are:
        `cores`, `memory_bytes` and `gpus` only say what they come to. None where these are asked for.
    array
        It is a job array: one submission, of which each element is a job of what is asked for here, and runs the
        payload with its number in ``SLURM_ARRAY_TASK_ID``. What the job posts is posted once all of `Array.all` have
        completed, in this job or in others that post the same. None for one job.
    out_of_memory
        Whether it has failed (``fail``) if a process of it was killed since its memory was used up, though its payload
        exits with 0; of a job of steps, ``ignore`` if all of them ignore it.
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
    account: str = ""
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

    @property
    def has_waves(self) -> bool:
        """Whether some of its steps run at the same time."""
        return any(step.beside for step in self.steps)


class JobState(StrEnum):
    """Where a job stands. Pending is not running, and neither is an end."""

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
    """How some elements of a job array ended that did not complete.

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
    """How the elements of a job array stand; those that are not named are pending.

    Parameters
    ----------
    running, completed
        Which.
    ended
        Those that ended otherwise, put together by how.
    ran_s
        Seconds that all elements have held their cores together, those that run not counted.
    nodes
        Names of nodes on which elements completed, sixteen at most.
    held
        Those that wait until somebody releases them.
    held_reason
        Why, in the batch system's words; of several that of the first.
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
        Where it stands.
    submit_s
        When it was submitted.
    eligible_s
        When nothing but resources and priority stood between the job and its start: dependencies met, not held, begin
        time reached. None while that is not so.
    start_s
        When its allocation began.
    payload_start_s
        When the payload began inside it; later than `start_s` for a job that awaited tokens.
    end_s
        When it ended or was cancelled.
    exit_code
        Of the payload, once it ended.
    reason
        Why it is pending or how it failed, in the batch system's words. `DependencyNeverSatisfied` marks a job that
        cannot start any more.
    expected_start_s
        When the batch system itself expects a pending job to start, where it says so.
    restarts
        How often the batch system put it back into the queue after it had started. The times are those of the latest
        start, so its queue wait is not known any more.
    held
        It was seen on hold by somebody, so that the time until its start is no queue wait.
    steps
        Those of the job's steps that have begun, where that is reported.
    bad_nodes
        Names of nodes whose fault ended the job, where that is reported.
    elements
        Of a job array: it starts with its first element, and ends with its last, completed if all have. Its exit code,
        outcome and reason are those of one that did not. None of one job.
    outcome
        How its payload ended, where the backend can tell that from the exit codes of programs; `asa.outcome` says what
        else is gone by.
    nodes
        Names of the nodes that it runs on, or ran, where that is reported: the one first on which its script does, and
        sixteen at most.
    in_doubt
        A process of it was killed since memory was used up, and nobody saw of which of its tasks: those that exited
        with 0 in it may have failed.
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


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """What a job in one partition may ask for, as far as it is known.

    Parameters
    ----------
    max_walltime_s, max_nodes, max_cores
        Most that one job may have; None where there is no limit or none is known.
    cores_per_node
        Of its nodes, the widest; 0 if not known.
    memory_per_node_bytes
        Likewise.
    gpus_per_node
        Of its nodes, the most; None if not known.
    is_up
        Whether jobs may be sent there now.
    accounts, barred_accounts
        Those whose jobs alone it takes, and those whose jobs it does not; empty for all, and for none.
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
    """What a site can do and by which rules; data, so that a strategy can be chosen by it.

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
        Whether a job can be told not to begin before a time.
    partition
        Where jobs go that name none; empty if not known.
    partitions
        Limits of each partition that is known.
    accounts
        Those that a job which names none may count for; empty if not known.
    shrink_by
        A running job can give cores back in multiples of so many, those of a node where only whole nodes are taken
        back; 0 if it cannot.
    shrinks_from_outside
        Whether others can have it do so (`Adjustable.shrink`), and not its own script alone.
    grow_by
        A running job can get more cores, in multiples of so many, by a second job whose cores join its own (`Growing`);
        0 if it cannot.
    max_queued
        Jobs that a user may have in the queue at a time; None where there is no limit or none is known.
    charges
        What a user pays for: all that is ``allocated``, or only what is ``used``, so that idle cores cost nothing.
    plans
        Whether every job is given a start when it comes, so that one can be asked for beforehand (`Planning`).
    burst_buffer_bytes
        Its burst buffer; None where what jobs ask of one is not looked at.
    accepts_late
        A submission whose answer never came may be accepted later on. If not, a job that `Backend.find` does not show
        will not turn up.
    arrays
        Whether it has job arrays (`JobSpec.array`).
    max_array_size
        Elements that one may have; None where there is no limit or none is known.
    whole_nodes
        Whether no two jobs share a node, in any partition: who asks for a core has, and pays for, all of a node.
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

    def limits(self, partition: str) -> PartitionLimits:
        """Give what is known of a partition's limits, of the usual one's if it has no name."""
        return self.partitions.get(partition or self.partition, _NO_LIMITS)

    def gives_whole_nodes(self, limits: PartitionLimits) -> bool:
        """Whether no two jobs share a node of a partition."""
        return self.whole_nodes or limits.whole_nodes

    def paid_cores(self, cores: int, partition: str = "") -> int:
        """Count the cores that a job holds which asks for so many: all of its nodes, where these are given whole.

        Examples
        --------
        >>> Capabilities("x", 112, 28, True, whole_nodes=True).paid_cores(3)
        28
        """
        limits = self.limits(partition)
        per_node = limits.cores_per_node or self.cores_per_node
        return -(-cores // per_node) * per_node if per_node and self.gives_whole_nodes(limits) else cores

    def impossible(self, spec: JobSpec) -> str | None:
        """Say why a job could never run here, in words, as far as the limits tell; None if nothing speaks against it.

        Examples
        --------
        >>> site = Capabilities("x", 112, 28, True, partition="long", partitions={"long": PartitionLimits(3600.0)})
        >>> site.impossible(JobSpec("big", cores=56, walltime_s=7200.0))
        "asks for 2h00m in partition 'long', which gives at most 1h00m"
        """
        if spec.local:
            return None
        cores = max(spec.cores, spec.nodes * self.cores_per_node)
        if cores > self.max_cores:
            return f"asks for {cores} cores, and the largest possible job has {self.max_cores}"
        buffer, max_buffer = spec.burst_buffer_bytes, self.burst_buffer_bytes
        if max_buffer is not None and buffer > max_buffer:
            return f"asks for {_gibibytes(buffer)} of burst buffer, and there are {_gibibytes(max_buffer)}"
        names = (spec.partition or self.partition).split(",")  # of several the batch system takes one
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
    """How well a client and its batch system understand each other at the moment.

    Parameters
    ----------
    heard_s
        When the batch system last reported the client's jobs, on its own clock: how old is what is known.
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
        In a sentence, for somebody who does not know the batch system.
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
        """Submit a job and return its id. It counts at once, before the site lists it.

        A dependency on a job that the site no longer knows is never passed on, for some sites drop it and start the
        job.

        Raises
        ------
        SubmitRejectedError
            It will never be accepted as it is.
        SubmitDeferredError
            It is not accepted now.
        SubmitInDoubtError
            It may have been accepted: `find` it before it is sent again.
        UnavailableError
            The site cannot be asked; the job was certainly not accepted.
        """
        ...

    def find(self, tokens: Iterable[str]) -> dict[str, list[JobStatus]]:
        """Look for jobs by their tokens, afresh; each token's jobs, the one that runs or ran its payload first.

        Jobs that are found are this client's from then on, as if it had submitted them. A job that is not found may
        still be on its way.
        """
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a pending or running job; of one that has ended, do nothing.

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
        """Sleep until jobs of this client changed or the clock reads `until_s`; return the changed ones.

        With `until_s` None, sleep until something changes. Returns an empty sequence when the time has come or when
        nothing can ever change. It goes on asking while the site cannot be asked, and `condition` says so meanwhile.
        """
        ...

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Tell what everybody's jobs did since the last call, as far as the site shows it, in the order of time.

        The first call tells the past: the latest `most` jobs and whatever still waits. This client's own jobs are left
        out. With `ends`, ends of runs are reported as well, and the past contains whatever still runs.
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
        """Cancel pending or running jobs; those that have ended are left as they are.

        Parameters
        ----------
        job_ids
            As `Backend.submit` returned them.

        Returns
        -------
        dict of BackendError
            The jobs that were not cancelled, each with why. One that the site does not know has a `JobNotFoundError`.

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

    def shrink(self, job_id: str, nodes: int) -> None:
        """Give back all but so many nodes of a running job.

        Raises
        ------
        BackendError
            The site cannot, or refuses.
        """
        ...


@runtime_checkable
class Withdrawing(Protocol):
    """A backend at which time passes between a look at a job and its cancellation, in which its payload may begin."""

    def withdraw(self, job_id: str) -> bool:
        """See to it that a job's payload does not begin, before the job is cancelled; False where it has begun.

        A job that has a token and comes to its payload afterwards ends as `asa.outcome.JobOutcome.GAVE_BACK`. To
        withdraw it once more does nothing, and so does withdrawing a job without a token, which nobody would look for.

        Raises
        ------
        JobNotFoundError
            The site does not know the job.
        UnavailableError
            It cannot be noted now: whether the payload begins is open.
        """
        ...


@runtime_checkable
class TakesUp(Protocol):
    """A backend that changes the jobs of its own run alone, and one of its user's that it is given by name."""

    def take_up(self, job_id: str) -> None:
        """Count a running or pending job as one's own that was not submitted from here, as the one in which this runs.

        Raises
        ------
        JobNotFoundError
            The user has no such job.
        UnavailableError
            The site cannot be asked.
        """
        ...


@runtime_checkable
class Growing(Protocol):
    """A backend whose jobs can get more cores after they started: by a second job, whose cores join the first's."""

    def grow(self, job_id: str, cores: int, *, token: str = "") -> str:
        """Ask for more cores for a job, and return the id of the second job, which waits for them in the queue.

        The second job is eligible while the first runs, and asks for the time that the first has left. Its state tells
        how it goes: it is pending as long as there are none, running once they have joined, and it ends with the first,
        or when the first gives the last of them back. To cancel it withdraws the wish, or gives the cores back. From a
        step on that keeps more cores than the job had before (`Step.cores`), the payload waits for these.

        Parameters
        ----------
        job_id
            The first job, pending or running.
        cores
            How many more, a multiple of `Capabilities.grow_by`.
        token
            Tells the second job from every other, as `JobSpec.token` does; `Backend.find` knows it.

        Raises
        ------
        JobNotFoundError
            The site does not know the first job.
        SubmitRejectedError
            There will never be so many.
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
        """Show what `Backend.submit` would send for a job, and send nothing.

        Parameters
        ----------
        spec
            The job. It may depend on jobs that are not there yet, whose ids are made up.

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
            Where the scripts, the output and the marks of the run's jobs are kept; on a file system that compute nodes
            see. A client that opens the same folder again, after a crash say, sees the marks of the first.
        sleep
            What `Backend.wait` sleeps with; it returns true, early, where something else wants attention, and then so
            does `wait`.

        Raises
        ------
        InputError
            The settings make no sense.
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
        What it is about, in a word or three.
    told
        What the site reported.
    verdict
        Whether that is good, worth knowing, or keeps asa from working.
    consequence
        What asa does differently because of it, or what its user can do; empty if nothing.
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
        In the order in which they are best read.
    settings
        What a site file should keep, by the names of the facility's own settings.
    observed
        What it should note beside them, for people: the version, for example.
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
        """Find out what it can do and how it is best asked. That it cannot be reached is a finding, no error.

        Parameters
        ----------
        probe
            Whether a job may be submitted that never runs, and is cancelled at once.
        """
        ...

    def history(self, since_s: float) -> JobHistory:
        """Read what became of past jobs: everybody's, or one's own where it shows no others.

        Parameters
        ----------
        since_s
            Jobs since this time, on the site's clock.

        Raises
        ------
        BackendError
            It keeps no accounts, or does not show them.
        TraceError
            There is no job among them whose wait is known.
        """
        ...


@runtime_checkable
class Foresight(Protocol):
    """A backend that can tell the future: a simulator. Only the oracle strategy asks."""

    def foresee_start(self, spec: JobSpec, submit_s: float) -> float:
        """When a job would start if it were submitted, without dependencies, at a time not before now."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A backend whose scheduler gives every job a start at once, and can be asked for it beforehand.

    `Capabilities.plans` tells whether it is one.
    """

    def planned_start(self, spec: JobSpec, submit_s: float) -> float:
        """When a job would be planned to start if it were submitted, without dependencies, at a time not before now.

        What is planned may come earlier, when others end before they have to; not later, unless something breaks.
        """
        ...


@runtime_checkable
class EstimatesStarts(Protocol):
    """A backend whose batch system says when it expects a job to start that is not submitted, and promises nothing."""

    def estimated_start(self, spec: JobSpec) -> float | None:
        """When the batch system expects a job to start if it were submitted now, without dependencies, on its clock.

        None where it does not say, or was asked as often lately as is kind. It is a question to the batch system.
        """
        ...


@runtime_checkable
class Preflight(Protocol):
    """A backend whose batch system says whether a job could ever run that is not submitted."""

    def test(self, spec: JobSpec, timeout_s: float) -> str | None:
        """Ask whether a job could ever run, and submit nothing. It is a question to the batch system.

        Parameters
        ----------
        spec
            The job, exactly as it would be submitted; what it depends on, and when it may begin, is left out.
        timeout_s
            Seconds that the batch system has for its answer.

        Returns
        -------
        str, optional
            Why it never could, in the batch system's words. None where nothing speaks against it, and where the batch
            system cannot be asked, does not answer in time, or says what may pass.
        """
        ...


def site_word_s(backend: Backend, spec: JobSpec) -> float | None:
    """How long a job would wait by the batch system's own word or plan, in seconds; None where there is none."""
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
    """Where backends come from: for experiments, a maker of repeatable worlds.

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
