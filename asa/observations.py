"""Derives observations of queue waits from jobs' times."""

from __future__ import annotations

from typing import Protocol

from asa.backend import Capabilities, JobSpec, JobState, JobStatus
from asa.waits import QueuedJob, WaitObservation, at_least, at_most, exactly


class _Asking(Protocol):
    """A request to the queue: a job, or a possible one."""

    @property
    def cores(self) -> int: ...

    @property
    def walltime_s(self) -> float: ...

    @property
    def partition(self) -> str: ...


def queued(asking: _Asking, capabilities: Capabilities, since_s: float, user: str) -> QueuedJob:
    """Describe a job for an estimator."""
    here, partition = capabilities.place(asking.partition)
    return QueuedJob(since_s, asking.cores, asking.walltime_s, user, here.system, partition)


def observation_of(spec: JobSpec, status: JobStatus, capabilities: Capabilities) -> WaitObservation | None:
    """Return the observation of the queue wait in a job's times; None if there is none, or not yet.

    - A job that nothing kept back: exactly its start less its submission.
    - Kept back by a dependency where age does not accrue: the same, from when it became eligible.
    - Kept back where age accrues: exact if it waited on after it became eligible. If it started that very second, its
      turn may have come long before: the time since its submission is an upper bound.
    - Cancelled in the queue: a lower bound.
    - On hold for a while: an upper bound.
    - Requeued after it had started: no observation.
    """
    if status.eligible_s is None or status.restarts:
        return None
    kept_back = bool(spec.dependencies) and status.eligible_s > status.submit_s
    since = queued_since(status, capabilities)
    if status.start_s is not None:
        wait = max(status.start_s - since, 0.0)
        if status.held:
            return at_most(wait)
        return (
            at_most(wait)
            if kept_back and capabilities.of_job(status.job_id).age_accrues and status.start_s <= status.eligible_s
            else exactly(wait)
        )
    if status.state is JobState.CANCELLED and status.end_s is not None and not status.held:
        return at_least(max(status.end_s - since, 0.0))
    return None


def queued_since(status: JobStatus, capabilities: Capabilities) -> float:
    """Return since when a job queues: its submission; or, where age does not accrue, when it became eligible."""
    if status.eligible_s is None or capabilities.of_job(status.job_id).age_accrues:
        return status.submit_s
    return status.eligible_s
