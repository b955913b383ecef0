"""Units of one stage that several jobs run: which job represents the stage, and which jobs are missing.

One job represents the stage in its view: the first one submitted, then the first to begin; if it ends before the stage
does, another takes its place. A strategy knows only this job: the others are submitted with the same request as soon as
it is accepted. All jobs of one *round* run the same units; a new round begins when the stage is submitted again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from asa.backend import DependencyType, ElementsStatus, JobState, JobStatus
from asa.bags import Bag
from asa.outcome import JobOutcome
from asa.records import Record
from asa.runner.course import RunCourse
from asa.runner.jobs import Job
from asa.runner.kinds.base import Units, cut_short, set_running
from asa.strategies.base import Keep, Phase, PlannedJob, StageView

_ASKED_FOR = frozenset({Phase.QUEUED, Phase.ALLOCATED, Phase.RUNNING})

NOTHING_LEFT = "NothingLeft"
"""Reason of a completed job that found nothing left to do while other jobs still ran units of its stage."""

MAX_ROUNDS = 20
"""Upper bound of the times that a stage is submitted again because all its jobs ended and units are left.

Also the upper bound of the jobs of a round that follow each other.
"""


@dataclass(slots=True)
class RoundUnits(Units):
    """The jobs that together run a stage, by round."""

    jobs: dict[str, list[Job]] = field(default_factory=dict)  # by round, in the order of submission
    begun_s: dict[str, float] = field(default_factory=dict)  # by round: when its first job began

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Return the round's name, with a number for each job after the first."""
        return f"{run.token_of(planned.stages)}{f'm{planned.mate}' if planned.mate else ''}"

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Return the fields that the jobs of a round have in common."""
        return {"bag": run.post(planned.stages[0])}

    def recorded(self, job: Job) -> dict[str, Any]:  # noqa: ARG002
        """Record that the job is one of several."""
        return {"shares": True}

    def awaited_end(self, job: Job) -> DependencyType:  # noqa: ARG002
        """Return AFTERANY: one job's end need not be the stage's."""
        return DependencyType.AFTERANY

    def leads(self, run: RunCourse) -> Iterator[Job]:
        """Yield the representing job of each stage that several jobs run now."""
        for name in run.workflow.shared:
            view = run.stages[name]
            lead = run.jobs.get(view.job_id or "")
            if lead is not None and lead.round in self.jobs and view.phase in _ASKED_FOR:
                yield lead

    def accepted(self, run: RunCourse, job: Job) -> None:  # noqa: ARG002
        """Add a job to its round."""
        self.jobs.setdefault(job.round, []).append(job)

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Whether a job represents its stage: not if another of its round does already."""
        leads = run.stages[job.planned.stages[0]].job_id
        return leads is None or (former is not None and former.status.job_id == leads)

    def others(self, job: Job) -> list[Job]:
        """Return the other unended jobs of a job's round, the most advanced first."""
        live = [other for other in self.live(job.round) if other is not job]
        return sorted(live, key=_progress)

    def live(self, number: str) -> list[Job]:
        """Return the unended jobs of a round."""
        return [job for job in self.jobs.get(number, ()) if not (job.status.state.is_final or job.given_up)]

    def count(self, lead: Job) -> tuple[int, int]:
        """Count the running and the pending jobs of a round."""
        live = [lead.status, *(other.status for other in self.others(lead))]
        running = sum(status.state is JobState.RUNNING for status in live)
        return running, sum(status.state is JobState.PENDING for status in live)

    def another(self, run: RunCourse, lead: Job, further: int, reason: str, now_s: float) -> PlannedJob:
        """Plan another job of a round, with the same request as the job that represents the stage."""
        keep = Keep.NOTHING if lead.planned.stages[0] in run.stages.ready else lead.planned.keep
        return replace(lead.planned, submit_s=now_s, keep=keep, reason=reason, mate=further)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Return a reason if no work is left; else empty."""
        return "" if is_of_its_round(run, job) else "no tasks are left"

    # ------------------------------------------------------------------ which job represents the stage

    def heard(self, run: RunCourse, job: Job, *, is_anew: bool) -> None:
        """Let the most advanced job represent the stage."""
        if is_anew:
            self.hand_over(run, job)
        if job.status.state.is_final or not is_of_its_round(run, job):
            return
        view = run.stages[job.planned.stages[0]]
        has_begun, start_s = job.status.payload_start_s is not None, job.status.start_s
        is_further = view.phase is Phase.QUEUED or (view.phase is Phase.ALLOCATED and has_begun)
        if start_s is not None and is_further and view.job_id != job.status.job_id:
            run.stages.put(view.stage.name, replace(handed_to(job, view), phase=Phase.QUEUED))
            run.allocated(job, start_s)

    def hand_over(self, run: RunCourse, job: Job) -> bool:
        """Let another job of the round represent the stage; return whether there is one."""
        if not is_of_its_round(run, job):
            return False
        others, view = self.others(job), run.stages[job.planned.stages[0]]
        leads = view.job_id == job.status.job_id
        if others and leads and (job.status.state.is_final or others[0].status.payload_start_s is not None):
            run.stages.put(view.stage.name, handed_to(others[0], view))
            if (start_s := others[0].status.start_s) is not None and others[0].status.payload_start_s is None:
                run.allocated(others[0], start_s)
        return bool(others)

    def began(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Record that a job of a round began; if it is the first, the stage begins."""
        set_running(run, job)
        view = run.stages[job.planned.stages[0]]
        began_s = self.begun_s.setdefault(job.round, at_s)
        if began_s >= at_s and view.started_s is None:
            yield from run.began(job, at_s)
        elif view.job_id == job.status.job_id and view.started_s is None:  # another job was the first to begin
            run.stages.put(view.stage.name, replace(view, started_s=began_s))

    # ------------------------------------------------------------------ files that jobs leave in the run's folder

    def as_seen(self, run: RunCourse, job: Job, status: JobStatus) -> JobStatus:
        """Mark a completed job that left work to other jobs; add the ends of their elements to other ended jobs."""
        if status.in_doubt:
            status = _doubted(run, job, status)
        if status.state is JobState.COMPLETED and self.left_some(run, job):
            return replace(status, reason=NOTHING_LEFT)
        if status.state.is_final and status.elements is None:
            return replace(status, elements=job.status.elements or self.elements_of(run, job))
        return status

    def left_some(self, run: RunCourse, job: Job) -> bool:
        """Whether a completed job left units to other jobs. Its script marks the end of all units."""
        if job.status.state.is_final:
            return job.status.reason == NOTHING_LEFT  # as already reported
        posts = Path(run.folder) / "posts"
        if not run.folder or not posts.is_dir():
            return False
        there = os.listdir(posts)  # noqa: PTH208 - which makes NFS look at the server again
        return not all(quote(post, safe="") in there for post in job.spec.posts)

    def elements_of(self, run: RunCourse, job: Job) -> ElementsStatus | None:  # noqa: ARG002
        """Describe how elements of an array that take turns in jobs ended; None for other jobs."""
        return None

    # ------------------------------------------------------------------ ends of jobs

    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Decide what happens to a stage when one of the jobs of its round has ended."""
        if is_of_its_round(run, job):
            yield from self.left(run, job, end_s)
        else:
            yield from run.end_if_settled(end_s)

    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Decide the same for a cancelled job."""
        yield from self.ended(run, job, at_s)

    def left(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Decide what happens to an uncompleted stage when one of its jobs has ended."""
        yield from cut_short(run, job, [*job.planned.stages], end_s)

    def completed(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Record that a stage completed in one of its jobs."""
        name, began_s = job.planned.stages[0], job.status.payload_start_s
        run.stages.put(name, replace(run.stages[name], job_id=job.status.job_id))
        run.may_have_lost = True
        yield from run.stages_done(job, end_s if began_s is None else began_s, end_s)


def _doubted(run: RunCourse, job: Job, status: JobStatus) -> JobStatus:
    """Judge a job that ran out of memory: if its files show which tasks were killed, each task has its own end."""
    if job.status.state.is_final:
        return replace(status, outcome=job.status.outcome, in_doubt=job.status.in_doubt)  # as already reported
    tasks = run.tasks_of(job.planned.stages[0])
    if tasks and Bag(Path(tasks)).saw_kills(number_of(job), job.spec.token):
        return replace(status, in_doubt=False)
    return replace(status, outcome=JobOutcome.OUT_OF_MEMORY)


def number_of(job: Job) -> int:
    """Return how often the stage of a job was asked for before the job's round."""
    return int(job.round.rpartition("-")[2])


def has_completed(job: Job) -> bool:
    """Whether a job ended as the last of its round, with nothing left to do."""
    status = job.status
    is_done = status.state is JobState.COMPLETED and status.reason != NOTHING_LEFT
    return is_done and status.payload_start_s is not None


def is_of_its_round(run: RunCourse, job: Job) -> bool:
    """Whether a job's round is still its stage's current one, and the stage has not ended."""
    view = run.stages[job.planned.stages[0]]
    current = run.jobs.get(view.job_id or "")
    return not view.phase.is_settled and current is not None and current.round == job.round


def ran_out(status: JobStatus) -> bool:
    """Whether a job's walltime ended while its payload ran."""
    return status.state is JobState.TIMEOUT and status.payload_start_s is not None


def handed_to(job: Job, view: StageView) -> StageView:
    """Return the view of a stage that a job represents from now on."""
    status, planned = job.status, job.planned
    as_running = status.payload_start_s is not None
    handed = replace(view, job_id=status.job_id, keep=planned.keep, hold_until_s=None, limit_s=None)
    if job.spec.leg:
        handed = replace(handed, leg=job.spec.leg, next_job_id=None, leg_start_s=status.payload_start_s)
    if status.start_s is not None:
        handed = replace(handed, limit_s=status.start_s + job.spec.walltime_s)
    if as_running and view.phase is Phase.RUNNING:
        return handed
    return replace(
        handed,
        phase=Phase.RUNNING if as_running else Phase.QUEUED,
        submit_s=status.submit_s,
        started_s=view.started_s if as_running else None,
        predicted_wait_s=planned.prediction.wait_s if planned.prediction else None,
    )


def _progress(job: Job) -> tuple[bool, bool, bool]:
    return bool(job.giving_up), job.status.payload_start_s is None, job.status.start_s is None
