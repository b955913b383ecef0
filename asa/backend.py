"""The port to a batch system: what every backend must offer, and the values that cross it.

A backend owns the clock. All times are seconds on that clock (for a real site: the epoch, as the scheduler tells it),
so a wait is always the difference of two readings of one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from asa.waits import QueueEvent

__all__ = [
    "Backend",
    "Capabilities",
    "Dependency",
    "DependencyType",
    "Foresight",
    "JobSpec",
    "JobState",
    "JobStatus",
    "Site",
]


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


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job to submit.

    Parameters
    ----------
    name
        Shown in the queue.
    cores
        Cores to allocate.
    walltime_s
        The job is killed when it has run so long.
    command
        What to run; ignored by simulators.
    nodes, memory_bytes, gpus, partition
        Further demands; 0 and empty mean no demand.
    dependencies
        All of them must be met before the job may start.
    begin_s
        The job may not start before this time.
    held
        Submitted on hold; `Backend.release` lets it go.
    awaits
        Tokens that other jobs post when they end well. The allocation may begin earlier, but the payload inside it
        begins only when all of them are posted; until then the allocation idles.
    posts
        Tokens that this job posts when it ends well.
    run_s
        How long the payload really runs. Known to simulators, which need it; never shown to a strategy, and ignored
        by real sites.
    exit_code
        How the payload really ends; likewise.
    """

    name: str
    cores: int
    walltime_s: float
    command: str = ""
    nodes: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    partition: str = ""
    dependencies: tuple[Dependency, ...] = ()
    begin_s: float | None = None
    held: bool = False
    awaits: tuple[str, ...] = ()
    posts: tuple[str, ...] = ()
    run_s: float | None = None
    exit_code: int = 0


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
    """

    system: str
    max_cores: int
    cores_per_node: int
    age_accrues: bool
    dependency_types: frozenset[DependencyType] = frozenset(DependencyType)
    begin_time: bool = True


@runtime_checkable
class Backend(Protocol):
    """A batch system as one user sees it; `asa.testing.check_backend` checks that one keeps this contract."""

    @property
    def capabilities(self) -> Capabilities:
        """What the site can do."""
        ...

    def now(self) -> float:
        """Read the site's clock."""
        ...

    def submit(self, spec: JobSpec) -> str:
        """Submit a job and return its id.

        Raises
        ------
        SubmitRejectedError
            It will never be accepted as it is.
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
        nothing can ever change.
        """
        ...

    def queue_events(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Tell what everybody's jobs did since the last call, as far as the site shows it, in the order of time.

        The first call tells the past: the latest `most` jobs and whatever still waits. This client's own jobs are left
        out. With `ends`, ends of runs are told as well, and the past contains whatever still runs.
        """
        ...


@runtime_checkable
class Foresight(Protocol):
    """A backend that can tell the future: a simulator. Only the oracle strategy asks."""

    def foresee_start(self, spec: JobSpec, submit_s: float) -> float:
        """When a job would start if it were submitted, without dependencies, at a time not before now."""
        ...


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
