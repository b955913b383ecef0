# ruff: noqa: ARG002, B027 - a kind says only what is otherwise with it
"""What a kind of unit has to say of the jobs that run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from asa.backend import DependencyType, JobSpec, JobStatus, StepTimes
from asa.legs import Turn
from asa.records import Record
from asa.runner.course import RunCourse
from asa.runner.entries import Intended
from asa.runner.jobs import Job
from asa.runner.units.lost import why_stranded
from asa.strategies.base import Phase, PlannedJob
from asa.workflow import Stage


@dataclass(slots=True)
class Units(ABC):
    """Units of one kind; by default of jobs that have their stages to themselves."""

    # ------------------------------------------------------------------ what is asked for

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Name the job that a plan asks for. Asked for again after a doubt, it is the same."""
        return run.token_of(planned.stages)

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Say what a job asks for beside what its stages do: fields of `JobSpec`."""
        return {}

    def turn(self, run: RunCourse, planned: PlannedJob, walltime_s: float) -> Turn | None:
        """Say what a job's script is told of those before and after it; None if it is by itself."""
        return None

    def waits_for(self, run: RunCourse, planned: PlannedJob, before: list[str]) -> list[str]:
        """Name the jobs for which a job waits; `before`: those of the stages that it follows."""
        return before

    def awaited_end(self, job: Job) -> DependencyType:
        """Say for which end of a job others wait; their payloads wait for more, for the stages that they follow."""
        return DependencyType.AFTEROK

    def missing(self, run: RunCourse, lead: Job, now_s: float) -> Iterator[PlannedJob]:
        """Plan the next job that has yet to be asked for beside one that stands for its stage."""
        yield from ()

    def wants_fewer(self, planned: PlannedJob, spec: JobSpec) -> bool:
        """Whether less is asked for at once, now that a job was not accepted."""
        return False

    def reason(self, run: RunCourse, job: Job) -> str:
        """Say why a job was asked for."""
        return job.planned.reason

    def left_to_run(self, run: RunCourse, stage: Stage) -> Stage:
        """Say what is asked for of a stage that has not completed, when the run that has ended goes on."""
        return stage

    def anew(self, run: RunCourse) -> None:
        """Forget what failed, as all of it is to be tried again."""

    # ------------------------------------------------------------------ jobs that there are

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Note that the batch system has a job."""

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Whether a job that was accepted stands for its stages; `former`: the job that its token had before."""
        return True

    def goes_on_without(self, run: RunCourse, intent: Intended) -> bool:
        """Whether a stage is run all the same though one of its jobs was refused for good; note that."""
        return False

    def others(self, job: Job) -> list[Job]:
        """Give the other jobs that run the same and may yet do something, those first that are furthest."""
        return []

    # ------------------------------------------------------------------ news of a job

    def heard(self, run: RunCourse, job: Job, *, is_anew: bool) -> None:
        """Take in a report; `is_anew`: that the job was put back into the queue."""

    def began(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Note that a job's payload began."""
        set_running(run, job)
        yield from run.began(job, at_s)

    def went_on(self, run: RunCourse, job: Job, reported: Sequence[StepTimes]) -> Iterator[Record]:
        """Note what began and ended inside a job, beside what was reported before."""
        yield from ()

    @abstractmethod
    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Decide what becomes of the stages of a job that has ended, and which nobody wanted to end."""

    @abstractmethod
    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Decide what becomes of the stages of a job that was cancelled by the client."""

    # ------------------------------------------------------------------ what jobs leave in the folder of the run

    def as_seen(self, run: RunCourse, job: Job, status: JobStatus) -> JobStatus:
        """Add to what the batch system says of a job what the job itself has left."""
        return status

    def give_back(self, run: RunCourse, given_back: set[str]) -> bool:
        """Have others take what jobs that are no more had taken; say whether all of it could be written.

        `given_back`: what need not be given back once more.
        """
        return True

    # ------------------------------------------------------------------ jobs of no use

    def why_lost(self, run: RunCourse, job: Job) -> str:
        """Say why a job that has not begun its payload is of no use any more; empty if it is."""
        if job.giving_up or job.status.payload_start_s is not None:
            return ""
        return self.why_useless(run, job) or why_stranded(run, job)

    @abstractmethod
    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Say why others have done what a job is there for; empty if it is still to be done."""


def set_running(run: RunCourse, job: Job) -> None:
    """Note that what is left of a job runs."""
    for name in run.left_of(job):
        run.stages.put(name, replace(run.stages[name], phase=Phase.RUNNING))
