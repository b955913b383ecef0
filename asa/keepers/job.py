"""A job of one core that drives a run, and has the next such job asked for before it ends."""

from __future__ import annotations

from collections.abc import Iterable

from asa.backend import Backend, JobSpec

USUAL_WALLTIME_S = 4 * 3600.0
SHORTEST_S = 20.0
"""Of a walltime that is of any use."""

_SPARE = 4.0  # a part of the walltime: it leaves so long before its end, and the next may begin twice as long before
_MOST_SPARE_S = 60.0


def spare_s(walltime_s: float) -> float:
    """Say how long before the end of its walltime such a job leaves the run."""
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
    """Submit the n-th job of a chain, unless it was submitted before; return its id.

    `backend`: the run's.
    `mark`: letters, digits and ``-`` that identify the chain.
    `number`: n, from 1 on.
    `command`: what it runs.
    `walltime_s`: its walltime.
    `begin_s`: when it may begin, on the batch system's clock; None for at once.
    `names`: of variables with secrets that it gets: those that the jobs which it submits ask for.
    Raises `BackendError`: it cannot be submitted now, or never.
    """
    token = f"{mark}-keeper-{number}"
    for found in backend.find([token]).get(token, ()):
        if not found.state.is_final:
            return found.job_id
    name, secrets = f"keeper-{number}", tuple(names)
    return backend.submit(
        JobSpec(name, 1, walltime_s, command, token=token, begin_s=begin_s, run_s=walltime_s, secrets=secrets)
    )
