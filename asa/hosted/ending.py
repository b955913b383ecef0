"""How a stage that a host has handed over ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from asa.backend import JobState, JobStatus
from asa.outcome import JobOutcome, outcome_of


class EndKind(StrEnum):
    """The kinds of ends that hosts tell apart."""

    COMPLETED = "completed"
    FAILED = "failed"  # its command did
    OUT_OF_MEMORY = "out of memory"
    OUT_OF_TIME = "out of time"
    CANCELLED = "cancelled"  # by the host, or by somebody else
    LOST = "lost"  # its node failed
    NOT_RUN = "not run"  # it was refused, or could never start


_OF_STATES = {JobState.TIMEOUT: EndKind.OUT_OF_TIME, JobState.CANCELLED: EndKind.CANCELLED}


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a stage that was handed over.

    `stage`: its name.
    `completed`: whether it completed.
    `reason`: why it failed.
    `job_id`: of the job that ran it; empty if there was none.
    `log`: the file with that job's errors, if there is one.
    `may_come_again`: whether it failed and may be handed over again.
    `end`: how that job ended, or its own step in it; None if there was none, or that is not known.
    `walltime_s`: what that job asked for.
    """

    stage: str
    completed: bool
    reason: str = ""
    job_id: str = ""
    log: Path | None = None
    may_come_again: bool = False
    end: JobStatus | None = None
    walltime_s: float = 0.0

    @property
    def ran_s(self) -> float | None:
        """How long its job ran; None if not known."""
        if self.end is None or self.end.end_s is None or self.end.start_s is None:
            return None
        return max(self.end.end_s - (self.end.payload_start_s or self.end.start_s), 0.001)

    @property
    def how(self) -> EndKind:
        """The kind of its end."""
        if self.completed:
            return EndKind.COMPLETED
        if self.end is None:
            return EndKind.NOT_RUN
        if self.end.bad_nodes:
            return EndKind.LOST
        if outcome_of(self.end) is JobOutcome.OUT_OF_MEMORY:
            return EndKind.OUT_OF_MEMORY
        return _OF_STATES.get(self.end.state, EndKind.FAILED)
