"""A job of one core that drives a run, and submits the next such job before it ends."""

from __future__ import annotations

from collections.abc import Iterable

from asa.backend import Backend, JobSpec

USUAL_WALLTIME_S = 4 * 3600.0
SHORTEST_S = 20.0
"""Shortest useful walltime of a keeper's job."""

# the job stops after the walltime less walltime / _SPARE; the next job may begin twice that long before the end
_SPARE = 4.0
_MOST_SPARE_S = 60.0


def spare_s(walltime_s: float) -> float:
    """Return how long before the end of its walltime a job stops driving the run."""
    return min(walltime_s / _SPARE, _MOST_SPARE_S)


def submit(
    backend: Backend,
    mark: str,
    number: int,
    command: str,
    *,
    walltime_s: float,
    begin_s: float | None,
    names: Iterable[str] = (),
) -> str:
    """Submit the n-th job of a chain unless it was submitted before; return its id.

    `backend`: the run's.
    `mark`: letters, digits and ``-`` that identify the chain.
    `number`: n, from 1.
    `command`: what it runs.
    `walltime_s`: its walltime.
    `begin_s`: when it may begin, on the batch system's clock; None for at once.
    `names`: of variables with secrets for this job: those that the jobs of the run need.
    Raises `BackendError`: it cannot be submitted now, or ever.
    """
    token = f"{mark}-keeper-{number}"
    for status in backend.find([token]).get(token, ()):
        if not status.state.is_final:
            return status.job_id
    name, secrets = f"keeper-{number}", tuple(names)
    return backend.submit(
        JobSpec(name, 1, walltime_s, command, token=token, begin_s=begin_s, run_s=walltime_s, secrets=secrets)
    )
