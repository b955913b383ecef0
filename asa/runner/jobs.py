"""A job of a run, and what may be read off it by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asa.backend import JobSpec, JobState, JobStatus
from asa.exactly_once import TWIN
from asa.strategies.base import PlannedJob

if TYPE_CHECKING:
    from asa.estimators import OwnJob

PAYLOAD_COMPLETED = "EndedWell"
"""Reason of a completed job whose payload completed, though the batch system has it down as ended otherwise."""


def round_of(planned: PlannedJob, spec: JobSpec) -> str:
    """Name the jobs that share a stage with one since it was asked for last: by the token of the first of them."""
    if not spec.bag:
        return ""
    if spec.leg:  # whose number comes last, and how often that was asked for
        head, _, tail = spec.token.rpartition("-")
        return f"{head}-{tail.partition('l')[0]}"
    return spec.token.removesuffix(f"m{planned.mate}")


@dataclass(slots=True)
class Job:
    """A job of the run: as planned, as asked for, and as last seen."""

    planned: PlannedJob  # as the strategy wanted it
    spec: JobSpec  # what was asked of the batch system
    status: JobStatus
    # why we are cancelling it, which the batch system may not have been asked yet; empty if we are not
    giving_up: str = ""
    giving_up_s: float = math.inf  # since when
    given_up: bool = False  # whether it was cancelled by us: its stages may have another job by now
    observed: bool = False  # whether its wait was learned
    known_as: OwnJob | None = None  # to the bank, once it queues
    resized: int = 0  # how often it was reported since its start that it got narrower

    @property
    def round(self) -> str:
        """Names the jobs that share a stage since it was asked for last; empty for a job by itself."""
        return round_of(self.planned, self.spec)

    @property
    def is_void(self) -> bool:
        """What depends on it can never start."""
        status = self.status
        has_completed = status.state is JobState.COMPLETED and status.reason != PAYLOAD_COMPLETED
        has_failed = status.state.is_final and not has_completed
        return bool(self.giving_up) or (has_failed and status.reason != TWIN)
