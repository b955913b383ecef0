"""Jobs of the plan, and their serialization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np

from asa.errors import InputError

from .cluster import Placement
from .requests import RequestKind, ResourceRequest

Entry = Mapping[str, Any]
"""A change of the plan as plain data for JSON."""


class RefusedError(InputError):
    """A request cannot be accepted, or a change of it."""


class JobPhase(StrEnum):
    """State of a job."""

    WAITING = "waiting"
    """Accepted without a start: it is in the waiting room."""
    PLANNED = "planned"
    ALLOCATING = "allocating"
    """Its start has come, and its nodes are got ready."""
    RUNNING = "running"
    RELEASING = "releasing"
    """It has ended, and its nodes are not free yet."""
    ENDED = "ended"


HOLDING: Final = frozenset({JobPhase.PLANNED, JobPhase.ALLOCATING, JobPhase.RUNNING, JobPhase.RELEASING})
"""The states of jobs that have resources."""
UNBEGUN: Final = frozenset({JobPhase.WAITING, JobPhase.PLANNED})
"""The states of jobs that can be planned otherwise."""


class CcsOutcome(StrEnum):
    """How a job ended."""

    NONE = ""
    """It has not."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Before it started."""


@dataclass(frozen=True, slots=True)
class CcsJob:
    """A job in the plan."""

    id: str  # name in the plan; an element of an array is called `id[index]`
    request: ResourceRequest
    user: str = ""
    group: str = ""
    submit_s: int = 0
    phase: JobPhase = JobPhase.WAITING
    placement: Placement | None = None  # time and nodes of its resources
    why: str = ""  # reason of its wait or end, if external
    first_walltime_s: int | None = None  # walltime before it was first extended or shortened, once it runs
    outcome: CcsOutcome = CcsOutcome.NONE
    begun_s: int | None = None  # when it began to run
    notified_s: int | None = None  # when it was notified that its time is almost over
    rank: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the rank: jobs are considered by priority, then in order of submission."""
        object.__setattr__(self, "rank", (-self.request.priority << 64) + self.submit_s)

    @property
    def start_s(self) -> int | None:
        """Planned or actual start."""
        return self.placement.start if self.placement is not None else None


def entry_of(job: CcsJob, now: int) -> Entry:
    """Serialize the state of a job."""
    placement = job.placement
    return {
        "kind": "job",
        "at_s": now,
        "id": job.id,
        "request": str(job.request),
        "user": job.user,
        "group": job.group,
        "submit_s": job.submit_s,
        "phase": job.phase.value,
        "why": job.why,
        "first_walltime_s": job.first_walltime_s,
        "outcome": job.outcome.value,
        "begun_s": job.begun_s,
        "notified_s": job.notified_s,
        "placement": placement
        and {
            "start": placement.start,
            "end": placement.end,
            "nodes": placement.nodes.tolist(),
            "amounts": placement.amounts.tolist(),
            "totals": dict(placement.totals),
        },
    }


def job_of(entry: Entry, kinds: Mapping[str, RequestKind]) -> CcsJob:
    """Restore a job from an entry of `entry_of`."""
    fields = entry["placement"]
    placement = fields and Placement(
        fields["start"],
        fields["end"],
        np.array(fields["nodes"], dtype=np.int64),
        np.array(fields["amounts"], dtype=np.int64),
        fields["totals"],
    )
    return CcsJob(
        entry["id"],
        ResourceRequest.parse(entry["request"], kinds),
        entry["user"],
        entry["group"],
        entry["submit_s"],
        JobPhase(entry["phase"]),
        placement,
        entry["why"],
        entry.get("first_walltime_s"),  # which older journals do not have
        CcsOutcome(entry.get("outcome", CcsOutcome.COMPLETED if entry["phase"] == JobPhase.ENDED else "")),
        entry.get("begun_s", fields["start"] if fields and entry["phase"] == JobPhase.RUNNING else None),
        entry.get("notified_s"),
    )
