"""What a run knows of itself, and how news from the batch system changes it; nothing here touches the world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from asa.backend import Capabilities, Dependency, JobSpec, JobState, JobStatus
from asa.errors import InputError
from asa.estimators import OwnJob
from asa.estimators.base import WaitObservation, at_least, at_most, exactly
from asa.records import (
    Cancelled,
    Ended,
    Observed,
    Outcome,
    Record,
    RunEnded,
    RunStarted,
    StageEnded,
    StageStarted,
    Started,
    Submitted,
)
from asa.strategies.base import Keep, Phase, PlannedJob, RunView, StageView
from asa.workflow import Slot, Workflow

__all__ = ["Job", "RunState", "observation_of", "queued_since"]


@dataclass(slots=True)
class Job:
    """A job of the run: as planned, as asked for, and as last seen."""

    planned: PlannedJob
    spec: JobSpec
    status: JobStatus
    given_up: bool = False  # cancelled by us: its stages may have another job by now
    observed: bool = False
    known_as: OwnJob | None = None  # to the bank, once it queues


@dataclass(slots=True)
class RunState:
    """One workflow's run.

    Parameters
    ----------
    name
        Unique among the runs of a client.
    workflow
        What runs.
    capabilities
        The site's rules.
    unique
        Distinguishes this run's tokens from those of every other, which a site may remember.
    run_s
        How long each stage really runs; simulators only, the expected times if not given.
    """

    name: str
    workflow: Workflow
    capabilities: Capabilities
    unique: str
    run_s: Mapping[str, float] | None = None
    stages: dict[str, StageView] = field(init=False)
    jobs: dict[str, Job] = field(default_factory=dict)
    outcome: Outcome | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        self.stages = {name: StageView(stage) for name, stage in self.workflow.stages.items()}

    def view(self, now_s: float) -> RunView:
        """Show what is true now to a strategy."""
        return RunView(self.workflow, dict(self.stages), now_s, self.capabilities)

    def begin(self, now_s: float) -> Record:
        """Note the start of the run."""
        return RunStarted(time_s=now_s, run=self.name)

    # ------------------------------------------------------------------ what the client does

    def spec_of(self, planned: PlannedJob) -> JobSpec:
        """Write the job that a plan asks for. Stages that share a job are laid out inside it."""
        stages = [self.workflow.stages[name] for name in planned.stages]
        per_node = self.capabilities.cores_per_node
        cores = max(stage.cores_on(per_node) for stage in stages)
        slots = self.workflow.layout(planned.stages, cores, per_node, self.run_s)
        whole = len(planned.stages) == len(self.workflow.stages)
        walltime = self.workflow.walltime_s if whole and len(stages) > 1 else sum(stage.walltime_s for stage in stages)
        inside = set(planned.stages)
        before = [name for stage in stages for name in stage.after if name not in inside]
        unmet = [name for name in before if self.stages[name].phase is not Phase.DONE]
        waited_for = sorted({self._job_of(name) for name in unmet}) if planned.keep is Keep.DEPENDENCY else []
        return JobSpec(
            name=f"{self.name}/{'+'.join(planned.stages) if len(planned.stages) < 4 else self.workflow.name}",
            cores=cores,
            walltime_s=walltime + planned.spare_walltime_s,
            command="\n".join(stage.command for stage in stages if stage.command),
            nodes=max(stage.nodes or 0 for stage in stages),
            memory_bytes=self._peak(slots, {stage.name: stage.memory_bytes for stage in stages}),
            gpus=self._peak(slots, {stage.name: stage.gpus for stage in stages}),
            dependencies=tuple(Dependency(job_id) for job_id in waited_for),
            awaits=tuple(self._token(name) for name in before) if planned.keep is Keep.AWAIT else (),
            posts=tuple(self._token(name) for name in planned.stages),
            run_s=max(slot.end_s for slot in slots),
        )

    def submitted(self, planned: PlannedJob, spec: JobSpec, status: JobStatus) -> Record:
        """Note that a job was submitted."""
        self.jobs[status.job_id] = Job(planned, spec, status)
        predicted = planned.prediction.wait_s if planned.prediction else None
        for name in planned.stages:
            self.stages[name] = replace(
                self.stages[name],
                phase=Phase.QUEUED,
                job_id=status.job_id,
                submit_s=status.submit_s,
                keep=planned.keep,
                predicted_wait_s=predicted,
            )
        return Submitted(
            time_s=status.submit_s,
            run=self.name,
            stages=planned.stages,
            job_id=status.job_id,
            cores=spec.cores,
            walltime_s=spec.walltime_s,
            keep=planned.keep,
            predicted_wait_s=predicted,
            resubmission=self.stages[planned.stages[0]].resubmissions,
            reason=planned.reason,
        )

    def cancelled(self, job_id: str, reason: str, now_s: float) -> Record:
        """Note that the client cancelled a job; its stages wait again."""
        job = self.jobs[job_id]
        job.given_up = True
        self._ask_again(job)
        return Cancelled(time_s=now_s, run=self.name, stages=job.planned.stages, job_id=job_id, reason=reason)

    def live_jobs(self) -> list[str]:
        """Jobs that have not ended and that the client has not given up."""
        return [i for i, job in self.jobs.items() if not job.status.state.is_final and not job.given_up]

    def fail(self, reason: str, now_s: float) -> Record:
        """Note that the run cannot complete."""
        self.outcome, self.reason = "failed", reason
        return RunEnded(time_s=now_s, run=self.name, outcome="failed", reason=reason)

    # ------------------------------------------------------------------ what the batch system tells

    def update(self, status: JobStatus) -> Iterator[Record | tuple[Observed, Job, WaitObservation]]:
        """Take in what is new of a job; give a record of each thing that happened, in order.

        A wait that became known comes with the job and the observation to learn.
        """
        job = self.jobs[status.job_id]
        was, job.status = job.status, status
        if was.state.is_final:
            return
        name, stages, job_id = self.name, job.planned.stages, status.job_id
        if status.start_s is not None and was.start_s is None:
            yield Started(time_s=status.start_s, run=name, stages=stages, job_id=job_id)
            self._allocated(job, status.start_s)
        if (observation := observation_of(job.spec, status, self.capabilities)) and not job.observed:
            job.observed = True
            yield self._observed(job, observation), job, observation
        if status.payload_start_s is not None and was.payload_start_s is None:
            yield from self._payload_began(job, status.payload_start_s)
        if status.state.is_final:
            yield Ended(
                time_s=status.end_s if status.end_s is not None else status.submit_s,
                run=name,
                stages=stages,
                job_id=job_id,
                state=status.state,
                cores=job.spec.cores,
                start_s=status.start_s,
                payload_start_s=status.payload_start_s,
                reason=status.reason,
            )
            yield from self._ended(job)
        elif status.reason == "DependencyNeverSatisfied" and self.outcome is None:
            yield self.fail(f"{_names(job)} can never start: a stage that it depends on failed", status.submit_s)

    def _observed(self, job: Job, observation: WaitObservation) -> Observed:
        status = job.status
        time = status.start_s if status.start_s is not None else status.end_s
        return Observed(
            time_s=time if time is not None else status.submit_s,
            run=self.name,
            stages=job.planned.stages,
            job_id=status.job_id,
            wait_s=observation.wait_s,
            bound=observation.kind,
            predicted_wait_s=job.planned.prediction.wait_s if job.planned.prediction else None,
        )

    def _payload_began(self, job: Job, at_s: float) -> Iterator[Record]:
        if job.given_up:
            return
        for name in job.planned.stages:
            self.stages[name] = replace(self.stages[name], phase=Phase.RUNNING)
        first = job.planned.stages[0]
        if len(job.planned.stages) == 1:
            self.stages[first] = replace(self.stages[first], started_s=at_s)
            yield StageStarted(time_s=at_s, run=self.name, stages=(first,), job_id=job.status.job_id)

    def _ended(self, job: Job) -> Iterator[Record]:
        status = job.status
        if job.given_up:
            return
        end = status.end_s if status.end_s is not None else status.submit_s
        if status.state is JobState.COMPLETED and status.payload_start_s is not None:
            yield from self._stages_done(job, status.payload_start_s, end)
        elif status.state is JobState.TIMEOUT and status.payload_start_s is None:
            self._ask_again(job)  # an allocation that idled until its limit: the stage never began
        else:
            detail = f" ({status.reason})" if status.reason else ""
            yield self.fail(f"{_names(job)} ended as {status.state.value}{detail}", end)

    def _stages_done(self, job: Job, began_s: float, end_s: float) -> Iterator[Record]:
        job_id = job.status.job_id
        slots = self.workflow.layout(job.planned.stages, job.spec.cores, self.capabilities.cores_per_node, self.run_s)
        for slot in slots:
            alone = len(slots) == 1
            start, end = (began_s, end_s) if alone else (began_s + slot.start_s, min(began_s + slot.end_s, end_s))
            if not alone:
                yield StageStarted(time_s=start, run=self.name, stages=(slot.stage,), job_id=job_id)
            yield StageEnded(time_s=end, run=self.name, stages=(slot.stage,), job_id=job_id)
            self.stages[slot.stage] = replace(self.stages[slot.stage], phase=Phase.DONE, started_s=start, ended_s=end)
        if all(stage.phase is Phase.DONE for stage in self.stages.values()):
            self.outcome = "completed"
            last = max(stage.ended_s or 0.0 for stage in self.stages.values())
            yield RunEnded(time_s=last, run=self.name, outcome="completed")

    # ------------------------------------------------------------------

    def _allocated(self, job: Job, start_s: float) -> None:
        if not job.given_up:
            hold_until = start_s + job.planned.spare_walltime_s
            for name in job.planned.stages:
                self.stages[name] = replace(self.stages[name], phase=Phase.ALLOCATED, hold_until_s=hold_until)

    def _ask_again(self, job: Job) -> None:
        for name in job.planned.stages:
            stage = self.stages[name]
            if stage.job_id == job.status.job_id:
                self.stages[name] = StageView(stage.stage, resubmissions=stage.resubmissions + 1)

    @staticmethod
    def _peak(slots: Sequence[Slot], demand: Mapping[str, int]) -> int:
        """Most that stages side by side in one allocation want together."""
        return max(
            sum(demand[other.stage] for other in slots if other.start_s <= slot.start_s < other.end_s) for slot in slots
        )

    def _job_of(self, stage: str) -> str:
        job_id = self.stages[stage].job_id
        if job_id is None:
            raise InputError(
                "has no job yet that another could depend on",
                where=f"stage {stage!r}",
                hint="A plan must list a stage after those that it follows.",
            )
        return job_id

    def _token(self, stage: str) -> str:
        return f"{self.unique}/{stage}"


def _names(job: Job) -> str:
    stages = job.planned.stages
    return f"stage {stages[0]!r}" if len(stages) == 1 else f"the job of {len(stages)} stages"


def observation_of(spec: JobSpec, status: JobStatus, capabilities: Capabilities) -> WaitObservation | None:
    """Say what a job's times tell of the queue's wait; None while, or if, they tell nothing.

    - A job that nothing kept back: its wait is exactly its start less its submission.
    - Kept back by a dependency where age does not accrue: it queued only from the moment it was eligible.
    - Kept back where age accrues: exact if it had to wait on after it was let go; if it started that very second, it
    may have
      been ready long before, and the time since submission is an upper bound.
    - Cancelled while it was in the queue: a lower bound.
    """
    if status.eligible_s is None:
        return None
    kept_back = bool(spec.dependencies) and status.eligible_s > status.submit_s
    since = queued_since(status, capabilities)
    if status.start_s is not None:
        wait = status.start_s - since
        return (
            at_most(wait)
            if kept_back and capabilities.age_accrues and status.start_s <= status.eligible_s
            else exactly(wait)
        )
    if status.state is JobState.CANCELLED and status.end_s is not None:
        return at_least(max(status.end_s - since, 0.0))
    return None


def queued_since(status: JobStatus, capabilities: Capabilities) -> float:
    """Say since when a job queues: its submission, or where age does not accrue, when nothing kept it back any more."""
    if capabilities.age_accrues or status.eligible_s is None:
        return status.submit_s
    return status.eligible_s
