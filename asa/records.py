"""The events of a run, one record for each.

Metrics are computed from records alone, and a run can be reconstructed from them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from asa.backend import JobState
from asa.core.late import dataclass
from asa.strategies.base import Keep

__all__ = [
    "Cancelled",
    "Deferred",
    "Ended",
    "Observed",
    "Outcome",
    "Predicted",
    "Record",
    "Requeued",
    "Resized",
    "Retrying",
    "RunEnded",
    "RunResumed",
    "RunStarted",
    "StageEnded",
    "StageStarted",
    "Started",
    "Submitted",
]

Outcome = Literal["completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event in a run, at a time on the backend's clock.

    Parameters
    ----------
    time_s
        Time of the event, in seconds.
    run
        Name of the run.
    """

    time_s: float
    run: str

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data; `kind` is its type in lower case."""
        return {"kind": type(self).__name__.lower(), **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Record):
    """The workflow was submitted; its makespan counts from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed(Record):
    """An ended run is resumed; some stages start from scratch.

    Parameters
    ----------
    anew
        The stages that start from scratch.
    """

    anew: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying(Record):
    """A job failed, and its stages are submitted again.

    Parameters
    ----------
    stages
        The stages that are submitted again.
    job_id
        The failed job.
    reason
        How it failed.
    """

    stages: tuple[str, ...]
    job_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Record):
    """The workflow ended.

    Parameters
    ----------
    outcome
        How the run ended.
    reason
        Why it did not complete; empty if it did.
    """

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfStages(Record):
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(_OfStages):
    """The wait of a job that is not submitted yet was predicted.

    Parameters
    ----------
    wait_s
        The predicted wait.
    needed_s
        When its resources are needed, on the backend's clock.
    """

    wait_s: float
    needed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred(_OfStages):
    """A job was not accepted, and will be submitted again.

    Parameters
    ----------
    reason
        Why, in the batch system's words.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfJob(_OfStages):
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted(_OfJob):
    """A job was submitted.

    Parameters
    ----------
    cores, walltime_s
        What the job asks for.
    keep
        What keeps it from running too early.
    predicted_wait_s
        The predicted wait; None if there is none.
    resubmission
        How often the same stages were submitted before.
    reason
        Why the job was submitted at this time.
    joins
        Id of the job that its cores will join; its stage is then the first that needs them. Empty if it joins none.
    shares
        Whether several jobs take the tasks of its stage; only the first of them shows when the stage begins.
    array
        Element numbers of a job array, as sbatch takes them; empty for no array.
    """

    cores: int
    walltime_s: float
    keep: Keep
    predicted_wait_s: float | None
    resubmission: int
    reason: str
    joins: str = ""
    shares: bool = False
    array: str = ""

    @property
    def runs_in(self) -> str:
        """The job in which its stages run: itself, or the job that its cores join."""
        return self.joins or self.job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(_OfJob):
    """A job's allocation began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized(_OfJob):
    """A running job gave cores back, or got more.

    Parameters
    ----------
    cores
        Cores that the job has from now on.
    """

    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued(_OfJob):
    """The batch system requeued a job after it had started, as after a node's failure.

    Parameters
    ----------
    reason
        Why, in the batch system's words.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(_OfJob):
    """The client cancelled a job.

    Parameters
    ----------
    reason
        Why it was cancelled.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(_OfJob):
    """A job ended, or was cancelled while it was pending.

    Parameters
    ----------
    state
        The job's final state.
    cores
        Cores that the job asked for.
    start_s
        When its allocation began; None if it never did.
    payload_start_s
        When its first stage began; None if none ever did.
    reason
        How it failed.
    ran_s
        For a job array, the sum of the seconds for which its elements were allocated cores; None for one job.
    """

    state: JobState
    cores: int
    start_s: float | None
    payload_start_s: float | None
    reason: str = ""
    ran_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed(_OfJob):
    """A job's queue wait was observed, exactly or censored.

    Parameters
    ----------
    wait_s
        The wait or its bound, in seconds.
    bound
        Whether the observation is exact, or how it is censored.
    predicted_wait_s
        The predicted wait; None if there is none.
    """

    wait_s: float
    bound: Literal["exact", "at_most", "at_least"]
    predicted_wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted(_OfJob):
    """A stage itself began, not only its job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEnded(_OfJob):
    """A stage itself completed, perhaps before its job ended."""
