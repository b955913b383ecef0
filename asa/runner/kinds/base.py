"""The interface of all kinds of units; its defaults are those of single stages, each of which is one unit.

Stages in one job run one after the other, or side by side in waves; each ends by itself.
"""
# ruff: noqa: ARG002 - a subclass overrides only what differs

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from asa.backend import Backend, DependencyType, End, JobSpec, JobState, JobStatus, StepTimes
from asa.errors import BackendError
from asa.exactly_once import DUPLICATE, NUMBER_LOST
from asa.legs import Turn
from asa.records import Record, StageStarted
from asa.runner.course import RunCourse
from asa.runner.entries import Intended, Narrowed
from asa.runner.jobs import Job
from asa.runner.nodes import moved
from asa.runner.retries import idled_out, is_short, may_retry, why
from asa.strategies.base import Forecast, Phase, PlannedJob, RunView, StageView, Strategy
from asa.workflow import Stage

HOPELESS = "DependencyNeverSatisfied"
"""Reason of a job that the batch system can never start."""

_OUT_FOR_GOOD = frozenset({Phase.BLOCKED, Phase.NOT_WANTED})


@dataclass(slots=True)
class Units:
    """Units of one kind. By default a unit is a whole stage, alone in its job or together with other stages."""

    # ------------------------------------------------------------------ requests

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Return the token of a planned job; a job that is asked for again while in doubt keeps its token."""
        return run.token_of(planned.stages)

    def spec(self, run: RunCourse, planned: PlannedJob) -> JobSpec | None:
        """Return the spec of a job that runs none of its stages; None for a job that runs them."""
        return None

    def send(self, backend: Backend, planned: PlannedJob, spec: JobSpec) -> str:
        """Submit a job; return its id."""
        return backend.submit(spec)

    def resubmissions(self, run: RunCourse, planned: PlannedJob) -> int:
        """Count how often a job's first stage was asked for before."""
        return run.stages[planned.stages[0]].resubmissions

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Return the fields of `JobSpec` that a job needs in addition to those of its stages.

        A job that is only a part of its stage sets `posts`; other jobs post the completion markers of all their stages.
        """
        return {}

    def turn(self, run: RunCourse, planned: PlannedJob, walltime_s: float) -> Turn | None:
        """Return the facts that a leg's script needs about the legs before and after it; None for other jobs."""
        return None

    def waits_for(self, run: RunCourse, planned: PlannedJob, before: list[str]) -> list[str]:
        """Return the ids of the jobs that a job waits for; `before`: the jobs of the stages that it follows."""
        return before

    def awaited_end(self, job: Job) -> DependencyType:
        """Return the type of dependency on a job; payloads also wait for completion markers themselves."""
        return DependencyType.AFTERANY if job.spec.has_waves else DependencyType.AFTEROK

    def missing(self, run: RunCourse, lead: Job, now_s: float) -> Iterator[PlannedJob]:
        """Plan the next job that a stage lacks, besides the job that represents it."""
        yield from ()

    def followers(
        self, run: RunCourse, view: RunView, forecast: Forecast, strategy: Strategy
    ) -> Iterator[tuple[PlannedJob, float]]:
        """Plan the jobs that continue the work of running jobs, each with the time to look again."""
        yield from ()

    def fewer(
        self, planned: PlannedJob, spec: JobSpec, error: BackendError, at_s: float
    ) -> tuple[Narrowed, str] | None:
        """After a job was not accepted, return a smaller size to ask for, and why; None if the size stays."""
        return None

    def narrowed(self, entry: Narrowed) -> None:
        """Record the smaller size."""

    def wants_fewer(self, planned: PlannedJob, spec: JobSpec) -> bool:
        """Whether to ask for a smaller job at once, instead of waiting."""
        return False

    def is_wanted(self, run: RunCourse, planned: PlannedJob) -> bool:
        """Whether an additional planned job is still to be submitted."""
        return True

    def reason(self, run: RunCourse, job: Job) -> str:
        """Return why a job was submitted."""
        return job.planned.reason

    def has_released(self, run: RunCourse, stages: Mapping[str, StageView], stage: Stage, before: str) -> bool:
        """Whether a stage may run some of its units, because the units that they need have completed."""
        return False

    def has_unknown_end(self, run: RunCourse, stage: Stage) -> bool:
        """Whether a stage's last job is still unknown; what follows the stage is submitted only after that job."""
        return stage.has_unknown_last_job

    def settle(self, run: RunCourse, at_s: float) -> Iterator[Record]:
        """Decide what happens to stages that waited for units which will never complete."""
        yield from ()

    def left_to_run(self, run: RunCourse, stage: Stage) -> Stage:
        """Return what to ask for of an uncompleted stage, when an ended run continues."""
        return stage

    def anew(self, run: RunCourse) -> None:
        """Forget failures: all units are to be tried again."""

    # ------------------------------------------------------------------ accepted jobs

    def recorded(self, job: Job) -> dict[str, Any]:
        """Return additional fields of a job's `Submitted` record."""
        return {}

    def ran_s(self, job: Job) -> float | None:
        """Return the total time for which parts of a job were allocated; None if it was allocated as a whole."""
        return None

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Record that a job was accepted."""

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Whether an accepted job represents its stages; `former`: the earlier job with the same token."""
        return True

    def goes_on_without(self, run: RunCourse, intent: Intended) -> bool:
        """Record that one of a stage's jobs was refused for good; return whether the stage runs without that job."""
        return False

    @property
    def may_come_late(self) -> bool:
        """Whether a job belongs to the run even if it turns up after others replaced it."""
        return False

    def sought(self, run: RunCourse) -> list[str]:
        """Return the tokens of jobs in doubt that must be found before stages are asked for again."""
        return []

    def go_on(self, run: RunCourse, at_s: float, lost: str) -> Iterator[Record]:
        """Ask again for stages that waited for jobs in doubt; `lost`: token of a job that will not come, or ""."""
        yield from ()

    def others(self, job: Job) -> list[Job]:
        """Return the other jobs that run the same units and have not ended, the most advanced first."""
        return []

    # ------------------------------------------------------------------ news of a job

    def heard(self, run: RunCourse, job: Job, *, is_anew: bool) -> None:
        """Take in a report on a job; `is_anew`: the job was requeued."""

    def began(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Record that a job's payload began."""
        set_running(run, job)
        yield from run.began(job, at_s)

    def went_on(self, run: RunCourse, job: Job, reported: Sequence[StepTimes]) -> Iterator[Record]:
        """Record which steps of a job began and ended; only a job with waves completes stages before it ends."""
        known = set(reported)
        for step in job.status.steps if len(job.planned.stages) > 1 else ():
            view = run.stages[step.name]  # times of earlier reports stay
            is_its = view.job_id == job.status.job_id and view.phase is Phase.RUNNING
            if is_its and step not in known and view.ended_s is None:
                run.stages.note_times(step.name, step.start_s, step.end_s)
        if job.spec.has_waves:  # the followers of a short stage need not wait for the rest of its wave
            yield from self._steps_done(run, job)

    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Decide what happens to the stages of a job that has ended."""
        status = job.status
        if status.state is JobState.COMPLETED and status.payload_start_s is not None:
            yield from run.stages_done(job, status.payload_start_s, end_s)
            return
        yield from self._steps_done(run, job)
        left = run.left_of(job)
        # the begin of other stages was reported already
        for name in ended_in(job, left) if len(job.planned.stages) > 1 else ():
            if (began_s := run.stages[name].started_s) is not None:
                yield StageStarted(time_s=began_s, run=run.name, stages=(name,), job_id=status.job_id)
        if not left:
            yield from run.end_if_settled(end_s)
        else:
            yield from cut_short(run, job, left, end_s)

    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Ask again for the remaining stages of a cancelled job."""
        yield from self._steps_done(run, job)
        run.ask_again(job)

    def _steps_done(self, run: RunCourse, job: Job) -> Iterator[Record]:
        """Record the stages that completed in a job that did not complete."""
        steps = {step.name: step for step in job.status.steps if step.end_s is not None}
        for name in run.left_of(job) if len(job.planned.stages) > 1 else ():
            step, view = steps.get(name), run.stages[name]
            if step is not None and step.end_s is not None:
                yield from run.stage_done(job, name, step.start_s, step.end_s)
            elif view.started_s is not None and view.ended_s is not None:  # completed by an earlier report
                yield from run.stage_done(job, name, view.started_s, view.ended_s)

    # ------------------------------------------------------------------ files that jobs leave in the run's folder

    def as_seen(self, run: RunCourse, job: Job, status: JobStatus) -> JobStatus:
        """Add what the job's own files say to the batch system's report."""
        return status

    def give_back(self, run: RunCourse, given_back: set[str]) -> bool:
        """Settle work that ended jobs left open, such as tasks that they took; return whether that succeeded.

        `given_back`: names of settled work, to which this call adds.
        """
        return True

    # ------------------------------------------------------------------ useless jobs

    def why_lost(self, run: RunCourse, job: Job) -> str:
        """Return why a job is useless that has not begun, or that its host took back; empty if it is not."""
        if job.giving_up:
            return ""
        if job.status.payload_start_s is not None:
            return next((run.stages[name].reason for name in job.planned.stages if name in run.host.withdrawn), "")
        return self.why_useless(run, job) or why_stranded(run, job)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Return a reason if other jobs have the stages of this job; else empty."""
        has_own = any(run.stages[name].job_id == job.status.job_id for name in job.planned.stages)
        return "" if has_own or job.status.reason == DUPLICATE else "its stages have another job"


def set_running(run: RunCourse, job: Job) -> None:
    """Record that the unsettled stages of a job run."""
    for name in run.left_of(job):
        run.stages.change(name, phase=Phase.RUNNING)


def cut_short(run: RunCourse, job: Job, left: Sequence[str], end_s: float) -> Iterator[Record]:
    """Decide what happens to the uncompleted stages of a job: the stages that ended the job, and the others."""
    if idled_out(job):
        run.ask_again(job)
    elif run.outcome is not None:
        return
    elif job.status.start_s is None and (
        job.status.reason == NUMBER_LOST or any(is_void_for(run, job, needed) for needed in run.jobs.needed(job))
    ):
        run.ask_again(job)  # the batch system lost the job, or cancelled it because it could never start
    elif len(culprits := ended_in(job, left)) > 1 or culprits != left[:1]:
        yield from _cut_short_in_wave(run, job, left, culprits, end_s)
    else:
        yield from _cut_short_in_turn(run, job, left, end_s)


def ended_in(job: Job, left: Sequence[str]) -> list[str]:
    """Return the stages that ended a job: the first remaining one; in a wave the failed stages, else those that ran."""
    if len(job.planned.stages) == 1 or not job.spec.has_waves:
        return list(left[:1])
    steps = {step.name: step for step in job.status.steps if step.name in left}
    failed = [name for name in left if name in steps and steps[name].exit_code is not None]
    return failed or [name for name in left if name in steps] or list(left[:1])


def _cut_short_in_turn(run: RunCourse, job: Job, left: Sequence[str], end_s: float) -> Iterator[Record]:
    """Decide what happens to consecutive stages of a job whose first one ended the job."""
    status, first = job.status, left[0]
    if node := run.nodes.moves(run.stages[first].stage, status, job):
        run.ask_again(job)
        yield run.retrying(left, moved(why(status), node), end_s, status.job_id)
    elif is_short(job, run.stages[first]):
        run.ask_again(job)
        yield run.retrying(left, "its job came back with fewer cores than it needs", end_s, status.job_id)
    elif may_retry(job, run.stages[first]):
        run.ask_again(job)
        yield run.retrying(left, why(status) + run.try_again(first, _ends(job), end_s), end_s, status.job_id)
    elif run.host.takes_back(first):
        run.ask_again(job)
        yield from run.hand_back(first, why(status), end_s, status.job_id)
    else:
        # to cancel a job is to cancel all its stages
        failed = left if status.state is JobState.CANCELLED and not run.host.may_add else left[:1]
        what_ended = f"stage {failed[0]!r}" if len(failed) == 1 else f"the job of {len(failed)} stages"
        run.ask_again(job, but=failed)
        yield from run.fail(failed, f"{what_ended} ended as {why(status)}", end_s)


def _cut_short_in_wave(
    run: RunCourse, job: Job, left: Sequence[str], culprits: Sequence[str], end_s: float
) -> Iterator[Record]:
    """Decide what happens to stages side by side in a job: to each failed stage, and to the others."""
    status = job.status
    steps = {step.name: step for step in status.steps}
    ends = {name: as_of_step(status, steps.get(name)) for name in culprits}
    judged = culprits if status.state is not JobState.CANCELLED else ()
    fault = {name: node for name in judged if (node := run.nodes.moves(run.stages[name].stage, ends[name], job))}
    own = [name for name in culprits if name not in fault]
    again = [name for name in own if run.host.takes_back(name)]
    tried = [n for n in own if n not in again and may_retry(replace(job, status=ends[n]), run.stages[n])]
    failed = [name for name in own if name not in again and name not in tried]
    if status.state is JobState.CANCELLED and not run.host.may_add:
        failed = [name for name in left if name not in again]
    run.ask_again(job, but=failed)
    for name, node in fault.items():
        yield run.retrying([name], moved(why(ends[name]), node), end_s, status.job_id)
    for name in tried:
        yield run.retrying([name], why(ends[name]) + run.try_again(name, [ends[name]], end_s), end_s, status.job_id)
    for name in again:
        yield from run.hand_back(name, why(ends[name]), end_s, status.job_id)
    by_reason: dict[str, list[str]] = {}
    for name in failed:
        reason = f"stage {name!r} ended as {why(ends.get(name, status))}"
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield from run.fail(names, reason, end_s)


def _ends(job: Job) -> list[End]:
    """Return how a job ended, and how the elements that took turns in it ended without completing."""
    reported = job.status.elements
    return [job.status, *(reported.ended if reported is not None else ())]


def as_of_step(status: JobStatus, step: StepTimes | None) -> JobStatus:
    """Return a job's end as the end of one of its steps, if that is known."""
    if step is None or (code := step.exit_code) is None:
        return status
    return replace(status, state=JobState.FAILED, exit_code=code, outcome=step.outcome, reason=f"exit code {code}")


def why_stranded(run: RunCourse, job: Job) -> str:
    """Return why a job can never run its stages; empty if it can."""
    own = (view for name in job.planned.stages if (view := run.stages[name]).job_id == job.status.job_id)
    if why := next((view.reason for view in own if view.phase in _OUT_FOR_GOOD), ""):
        return why
    needed = run.jobs.needed(job)
    if (void := next((other for other in needed if is_void_for(run, job, other)), None)) is not None:
        return f"job {void.status.job_id}, which it depends on, is gone"
    are_over = all(other.status.state.is_final and other.status.reason != DUPLICATE for other in needed)
    return "the batch system says that it can never start" if job.status.reason == HOPELESS and are_over else ""


def is_void_for(run: RunCourse, job: Job, needed: Job) -> bool:
    """Whether a needed job, and every other job that shares its stage, can no longer meet a job's dependency."""
    if not needed.round:
        return needed.is_void and not _has_done_its_part(run, needed, job)
    if run.stages[needed.planned.stages[0]].phase.is_settled or needed.round == job.round:
        return False
    same_round = (other for other in run.jobs.needed(job) if other.round == needed.round)
    return all(other.status.state.is_final or other.giving_up for other in same_round)


def _has_done_its_part(run: RunCourse, needed: Job, job: Job) -> bool:
    """Whether a failed job, which ran stages side by side, completed all stages that another job follows."""
    if not needed.spec.has_waves:
        return False
    followed = {before for name in job.planned.stages for before in run.stages[name].stage.after}
    return all(run.stages[name].phase is Phase.DONE for name in followed.intersection(needed.planned.stages))
