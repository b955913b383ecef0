"""An allocation of a pool, from its request until its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from asa.waits import WaitForecast

from .values import AllocationShape, View


class AllocationPhase(StrEnum):
    """The phase of an allocation."""

    ASKED = "asked"
    """The batch system has not confirmed the job yet."""
    PENDING = "pending"
    """The job waits in the queue."""
    STARTING = "starting"
    """The job runs, and its workers have not connected yet."""
    ALIVE = "alive"
    """The workers are connected."""
    DRAINING = "draining"
    """The workers take no new tasks, and will leave."""
    ENDED = "ended"
    """The job has ended."""


@dataclass(slots=True, eq=False)
class Allocation:
    """A job whose workers are part of the pool.

    Parameters
    ----------
    id
        Its name in the pool; its workers' names begin with it and a ``-``.
    token
        Its job's permanent token; see `asa.backend.JobSpec`.
    shape
        What it asks for.
    asked_s
        When it was requested, on the batch system's clock, as all times here.
    forecast
        Of its wait, made at that time.
    is_pinned
        Whether the user asked for exactly this one.
    phase
        Its phase.
    job_id
        Its job's id, once there is one.
    expected_s
        When it is expected to start, while it waits.
    start_s, joined_s, drain_s, end_s
        When its job started, its first worker joined, its workers began to leave, its job ended.
    idle_since_s, useless_since_s, bare_since_s
        Since when it has run no task, has been expected to be useless, and its job has had no worker; None if that is
        not so.
    why
        Why it ended, or its workers leave.
    unwanted
        Why it is no longer wanted: it is given back as soon as its results can be moved.
    workers
        Names of its connected workers.
    """

    id: str
    token: str
    shape: AllocationShape
    asked_s: float
    forecast: WaitForecast
    is_pinned: bool = False
    phase: AllocationPhase = AllocationPhase.ASKED
    job_id: str = ""
    expected_s: float | None = None
    start_s: float | None = None
    joined_s: float | None = None
    drain_s: float | None = None
    end_s: float | None = None
    idle_since_s: float | None = None
    useless_since_s: float | None = None
    bare_since_s: float | None = None
    why: str = ""
    unwanted: str = ""
    workers: set[str] = field(default_factory=set)

    @property
    def is_waiting(self) -> bool:
        """Whether its job has not started."""
        return self.phase in (AllocationPhase.ASKED, AllocationPhase.PENDING)

    @property
    def is_useful(self) -> bool:
        """Whether the allocation is part of the pool, or will be."""
        return self.phase not in (AllocationPhase.DRAINING, AllocationPhase.ENDED)

    @property
    def walltime_ends_s(self) -> float | None:
        """Time of the job's walltime limit; None before the job has started."""
        return None if self.start_s is None else self.start_s + self.shape.walltime_s

    def left_s(self, now_s: float) -> float | None:
        """Return how much of its walltime is left; None before it has started and after its end."""
        if self.walltime_ends_s is None or self.phase is AllocationPhase.ENDED:
            return None
        return max(self.walltime_ends_s - now_s, 0.0)

    def view(self, now_s: float, margin_s: float) -> View:
        """Return its view for planning. Its workers leave `margin_s` before its walltime ends."""
        ends_s = self.walltime_ends_s
        return View(
            self.id,
            self.shape,
            self.asked_s,
            self.forecast,
            expected_start_s=self.expected_s,
            start_s=self.start_s,
            until_s=None if ends_s is None else ends_s - margin_s,
            idle_s=0.0 if self.idle_since_s is None else max(now_s - self.idle_since_s, 0.0),
            useless_s=0.0 if self.useless_since_s is None else max(now_s - self.useless_since_s, 0.0),
            is_pinned=self.is_pinned,
        )

    def record(self) -> dict[str, Any]:
        """Return the data for a picture of the pool's time."""
        kept = ("id", "job_id", "asked_s", "start_s", "joined_s", "drain_s", "end_s", "why")
        return {
            **{name: getattr(self, name) for name in kept},
            "phase": str(self.phase),
            "cores": self.shape.cores,
            "walltime_s": self.shape.walltime_s,
            "tags": sorted(self.shape.tags),
        }


def workers_by_allocation(workers: Iterable[Any]) -> dict[str, list[Any]]:
    """Group the workers that dask's scheduler knows by their allocation.

    Returns them by the allocation's name in the pool; a worker without allocation is under its own name.
    """
    groups: dict[str, list[Any]] = {}
    for worker in workers:
        groups.setdefault(str(worker.name).partition("-")[0], []).append(worker)
    return groups
