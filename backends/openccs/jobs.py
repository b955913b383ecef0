"""Jobs of the plan, and how they are written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from .cluster import Placement
from .requests import RequestKind, ResourceRequest

Entry = Mapping[str, Any]
"""A change of the plan as plain data, which JSON can hold."""


class JobPhase(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    """It was accepted, and has no start: it is in the waiting room."""
    PLANNED = "planned"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class CcsJob:
    """A job in the plan."""

    id: str  # its name in the plan; an element of an array is called `id[index]`
    request: ResourceRequest
    user: str = ""
    group: str = ""
    submit_s: int = 0
    phase: JobPhase = JobPhase.WAITING
    placement: Placement | None = None  # when and where it has its resources
    why: str = ""  # why it waits or ended, if that is not its own doing
    rank: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out the rank: jobs are looked at by priority, then as they came."""
        object.__setattr__(self, "rank", (-self.request.priority << 64) + self.submit_s)

    @property
    def start_s(self) -> int | None:
        """Its planned or actual start."""
        return self.placement.start if self.placement is not None else None


def entry_of(job: CcsJob, now: int) -> Entry:
    """Write a job down as it is."""
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
    """Read a job again that `entry_of` wrote."""
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
    )
