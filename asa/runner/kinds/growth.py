# ruff: noqa: ARG002 - overrides ignore most arguments
"""Jobs whose cores join another job: they run nothing of their own, so no stage depends on their ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from asa.backend import Backend, Dependency, DependencyType, Growing, JobSpec, JobState
from asa.errors import InputError, SubmitRejectedError
from asa.keys import terms_of
from asa.records import Record
from asa.runner.course import RunCourse
from asa.runner.jobs import Job
from asa.runner.kinds.base import Units
from asa.strategies.base import GrowthView, Phase, PlannedJob
from asa.workflow import Stage


@dataclass(slots=True)
class GrowthUnits(Units):
    """Jobs without a unit of their own, whose cores join another job."""

    _all: list[Job] = field(default_factory=list)
    _joining: dict[tuple[str, str], list[Job]] = field(default_factory=dict)  # by id and token of the joined job

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Return a token made of the joined job's token, the stage's position, and the number of the attempt."""
        position, count = run.stages.position(planned.stages[0]), self.resubmissions(run, planned)
        return f"{run.jobs[planned.joins].spec.token}-g{position}-{count}"

    def spec(self, run: RunCourse, planned: PlannedJob) -> JobSpec | None:
        """Return a spec that asks for the cores that the stage needs beyond the stage before it."""
        job, [stage] = run.jobs[planned.joins], planned.stages
        cores = next((b.cores - a.cores for a, b in pairwise(job.spec.steps) if b.name == stage), 0)
        if cores < 1:
            raise InputError(
                f"needs no more cores than job {planned.joins} has before it",
                where=f"stage {stage!r}",
                hint="A plan must ask for more cores only where a job's `widths` rise.",
            )
        began_s, walltime_s = job.status.start_s, job.spec.walltime_s
        left_s = walltime_s if began_s is None else max(began_s + walltime_s - planned.submit_s, 1.0)
        return JobSpec(
            name=f"{run.name}/{stage}+{cores}",
            token=self.token(run, planned),
            cores=cores,
            walltime_s=left_s,
            partition=job.spec.partition,
            options=job.spec.options,
            **terms_of(job.spec),
            dependencies=(Dependency(planned.joins, DependencyType.AFTER),),
        )

    def recorded(self, job: Job) -> dict[str, Any]:
        """Name the joined job."""
        return {"joins": job.planned.joins}

    def send(self, backend: Backend, planned: PlannedJob, spec: JobSpec) -> str:
        """Ask for the cores; return the id of the job that waits for them."""
        if not isinstance(backend, Growing):
            raise SubmitRejectedError(
                "no job gets more cores here", where=f"job {spec.name!r}", hint="Take `asa-plan`."
            )
        return backend.grow(planned.joins, spec)

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Record a job that joins another."""
        self._all.append(job)
        self._joining.setdefault(_key(run.jobs[job.planned.joins]), []).append(job)

    def resubmissions(self, run: RunCourse, planned: PlannedJob) -> int:
        """Count the ended or cancelled jobs that were to join the same job for the same stage."""
        former = self._joining.get(_key(run.jobs[planned.joins]), [])
        return sum(
            job.planned.stages == planned.stages and bool(job.status.state.is_final or job.giving_up) for job in former
        )

    def line(self, run: RunCourse, job: Job) -> list[Job]:
        """Return a job, or the job that it joins, followed by all jobs that join that one."""
        first = run.jobs[job.planned.joins] if job.planned.joins else job
        return [first, *self._joining.get(_key(first), ())]

    def views(self) -> Iterator[GrowthView]:
        """Yield these jobs as a strategy sees them."""
        for job in self._all:
            status, [stage] = job.status, job.planned.stages
            phase = Phase.QUEUED if status.state is JobState.PENDING else Phase.ALLOCATED
            yield GrowthView(
                status.job_id,
                job.planned.joins,
                stage,
                job.spec.cores,
                Phase.DONE if status.state.is_final or job.giving_up else phase,
                status.submit_s,
                job.planned.prediction.wait_s if job.planned.prediction else None,
            )

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Return False: a job whose cores join another job never represents a stage."""
        return False

    def began(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Record nothing: no stage begins with it."""
        yield from ()

    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Record nothing: no stage ends with it."""
        yield from ()

    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Let the cores be planned anew."""
        run.ask_again(job)
        yield from ()

    def why_lost(self, run: RunCourse, job: Job) -> str:
        """Return an empty text: the strategy decides whether a job for more cores is useless."""
        return ""

    why_useless = why_lost


def widths_of(run: RunCourse, planned: PlannedJob, stages: Sequence[Stage]) -> list[int]:
    """Return the width of a job from each of its consecutive stages on: as planned, or the least that suffices.

    Returns: cores; 0 to keep all that the job has.
    """
    if planned.widths:
        widths = dict(zip(planned.stages, planned.widths, strict=True))
        return [widths[stage.name] for stage in stages]
    site = run.capabilities
    by, needs = site.shrink_by if planned.shrinks else 0, [stage.cores_on(site.cores_per_node) for stage in stages]
    if not by or max(needs) % by:  # the numbers of cores on each of its nodes are not known then
        return [0] * len(stages)
    left = list(accumulate(reversed(needs), max))[::-1]
    return [-(-need // by) * by for need in left]


def _key(job: Job) -> tuple[str, str]:
    return job.status.job_id, job.spec.token  # the batch system may reuse the id
