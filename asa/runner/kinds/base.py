"""The interface of kinds of units; and single stages, each of which is one unit.

Stages in one job run one after the other, or side by side in waves: each is an attempt of its own, with its own end.
"""
# ruff: noqa: ARG002 - a kind says only what is otherwise with it

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
    """Units of one kind. By default each is a stage by itself, which its job has alone or with other such stages."""

    # ------------------------------------------------------------------ what is asked for

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Name the job that a plan asks for. Asked for again after a doubt, it is the same."""
        return run.token_of(planned.stages)

    def spec(self, run: RunCourse, planned: PlannedJob) -> JobSpec | None:
        """Write a job that runs nothing of its stages; None for one that runs them."""
        return None

    def send(self, backend: Backend, planned: PlannedJob, spec: JobSpec) -> str:
        """Submit a job; return its number."""
        return backend.submit(spec)

    def resubmissions(self, run: RunCourse, planned: PlannedJob) -> int:
        """Count how often a job's first stage was asked for before."""
        return run.stages[planned.stages[0]].resubmissions

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Return what a job asks for in addition to its stages: fields of `JobSpec`.

        A job that is only a part of its stage has `posts` among them; any other posts the markers of all its stages.
        """
        return {}

    def turn(self, run: RunCourse, planned: PlannedJob, walltime_s: float) -> Turn | None:
        """Return what a job's script gets of the jobs before and after it; None if it is alone."""
        return None

    def waits_for(self, run: RunCourse, planned: PlannedJob, before: list[str]) -> list[str]:
        """Name the jobs for which a job waits; `before`: those of the stages that it follows."""
        return before

    def awaited_end(self, job: Job) -> DependencyType:
        """Return for which end of a job others wait; their payloads also wait for their predecessors."""
        return DependencyType.AFTERANY if job.spec.has_waves else DependencyType.AFTEROK

    def missing(self, run: RunCourse, lead: Job, now_s: float) -> Iterator[PlannedJob]:
        """Plan the next job to submit in addition to one that represents its stage."""
        yield from ()

    def followers(
        self, run: RunCourse, view: RunView, forecast: Forecast, strategy: Strategy
    ) -> Iterator[tuple[PlannedJob, float]]:
        """Plan the jobs that go on where running ones stop, each with when to look again."""
        yield from ()

    def fewer(
        self, planned: PlannedJob, spec: JobSpec, error: BackendError, at_s: float
    ) -> tuple[Narrowed, str] | None:
        """Say that less is asked for at a time from now on, as a job was not accepted, and why; None if it is not."""
        return None

    def narrowed(self, entry: Narrowed) -> None:
        """Note that less is asked for at a time."""

    def wants_fewer(self, planned: PlannedJob, spec: JobSpec) -> bool:
        """Whether less is asked for at once, now that a job was not accepted."""
        return False

    def is_wanted(self, run: RunCourse, planned: PlannedJob) -> bool:
        """Whether a job that is planned in addition to others is still to be submitted."""
        return True

    def reason(self, run: RunCourse, job: Job) -> str:
        """Say why a job was asked for."""
        return job.planned.reason

    def has_released(self, run: RunCourse, stages: Mapping[str, StageView], stage: Stage, before: str) -> bool:
        """Whether a stage may run some of its units, since those of others that they need have completed."""
        return False

    def has_unknown_end(self, run: RunCourse, stage: Stage) -> bool:
        """Whether it is not known yet which of a stage's jobs is the last: what follows it is submitted after that."""
        return stage.has_unknown_last_job

    def settle(self, run: RunCourse, at_s: float) -> Iterator[Record]:
        """Decide what becomes of stages that waited for more units of others, of which none will complete now."""
        yield from ()

    def left_to_run(self, run: RunCourse, stage: Stage) -> Stage:
        """Say what is asked for of a stage that has not completed, when the run that has ended goes on."""
        return stage

    def anew(self, run: RunCourse) -> None:
        """Forget what failed, as all of it is to be tried again."""

    # ------------------------------------------------------------------ jobs that there are

    def recorded(self, job: Job) -> dict[str, Any]:
        """Return what observers of the run get to know of a job of this kind: fields of `Submitted`."""
        return {}

    def ran_s(self, job: Job) -> float | None:
        """Return for how long parts of a job held their cores, each for itself; None if it held them as a whole."""
        return None

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Note that the batch system has a job."""

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Whether a job that was accepted represents its stages; `former`: the job that its token had before."""
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
        """Note what began and ended inside a job; stages are done only when it ends, except those side by side."""
        known = set(reported)
        for step in job.status.steps if len(job.planned.stages) > 1 else ():
            view = run.stages[step.name]  # earlier reports remain valid
            is_its = view.job_id == job.status.job_id and view.phase is Phase.RUNNING
            if is_its and step not in known and view.ended_s is None:
                run.stages.note_times(step.name, step.start_s, step.end_s)
        if job.spec.has_waves:  # what follows a short one is not to wait for the others
            yield from self._steps_done(run, job)

    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Decide what becomes of the stages of a job."""
        status = job.status
        if status.state is JobState.COMPLETED and status.payload_start_s is not None:
            yield from run.stages_done(job, status.payload_start_s, end_s)
            return
        yield from self._steps_done(run, job)
        left = run.left_of(job)
        for name in ended_in(job, left) if len(job.planned.stages) > 1 else ():  # the others' began before
            if (began_s := run.stages[name].started_s) is not None:
                yield StageStarted(time_s=began_s, run=run.name, stages=(name,), job_id=status.job_id)
        if not left:
            yield from run.end_if_settled(end_s)
        else:
            yield from cut_short(run, job, left, end_s)

    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Ask for what is left of a job that was cancelled."""
        yield from self._steps_done(run, job)
        run.ask_again(job)

    def _steps_done(self, run: RunCourse, job: Job) -> Iterator[Record]:
        """Note what completed in a job of several stages that did not run to its end."""
        steps = {step.name: step for step in job.status.steps if step.end_s is not None}
        for name in run.left_of(job) if len(job.planned.stages) > 1 else ():
            step, view = steps.get(name), run.stages[name]
            if step is not None and step.end_s is not None:
                yield from run.stage_done(job, name, step.start_s, step.end_s)
            elif view.started_s is not None and view.ended_s is not None:  # as it was reported before
                yield from run.stage_done(job, name, view.started_s, view.ended_s)

    # ------------------------------------------------------------------ what jobs leave in the folder of the run

    def as_seen(self, run: RunCourse, job: Job, status: JobStatus) -> JobStatus:
        """Add to what the batch system says of a job what the job itself has left."""
        return status

    def give_back(self, run: RunCourse, given_back: set[str]) -> bool:
        """Settle what ended jobs left open, as tasks that they took and did not end; return whether that succeeded.

        `given_back`: names of what was settled before; what is settled now is added.
        """
        return True

    # ------------------------------------------------------------------ jobs of no use

    def why_lost(self, run: RunCourse, job: Job) -> str:
        """Say why a job that has not begun its payload is of no use any more; empty if it is."""
        if job.giving_up or job.status.payload_start_s is not None:
            return ""
        return self.why_useless(run, job) or why_stranded(run, job)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Say that the stages of a job have another, if so."""
        has_own = any(run.stages[name].job_id == job.status.job_id for name in job.planned.stages)
        return "" if has_own or job.status.reason == DUPLICATE else "its stages have another job"


def set_running(run: RunCourse, job: Job) -> None:
    """Note that what is left of a job runs."""
    for name in run.left_of(job):
        run.stages.put(name, replace(run.stages[name], phase=Phase.RUNNING))


def cut_short(run: RunCourse, job: Job, left: Sequence[str], end_s: float) -> Iterator[Record]:
    """Decide what becomes of stages whose job ended before they did: of those that ended with it, and of all others."""
    if idled_out(job):
        run.ask_again(job)
    elif run.outcome is not None:
        return
    elif job.status.start_s is None and (
        job.status.reason == NUMBER_LOST or any(is_void_for(run, job, one) for one in run.jobs.needed(job))
    ):
        run.ask_again(job)  # the batch system lost it, or cancelled what could never start
    elif len(culprits := ended_in(job, left)) > 1 or culprits != left[:1]:
        yield from _cut_short_in_wave(run, job, left, culprits, end_s)
    else:
        yield from _cut_short_in_turn(run, job, left, end_s)


def ended_in(job: Job, left: Sequence[str]) -> list[str]:
    """Name the stages that a job's end ended: the first that is left, or those of its wave that ran or failed."""
    if len(job.planned.stages) == 1 or not job.spec.has_waves:
        return list(left[:1])
    steps = {step.name: step for step in job.status.steps if step.name in left}
    failed = [name for name in left if name in steps and steps[name].exit_code is not None]
    return failed or [name for name in left if name in steps] or list(left[:1])


def _cut_short_in_turn(run: RunCourse, job: Job, left: Sequence[str], end_s: float) -> Iterator[Record]:
    """Decide what becomes of stages one after the other in a job, when the first ended with it."""
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
        # cancelling a job cancels all that is left in it
        failed = left if status.state is JobState.CANCELLED and not run.host.may_add else left[:1]
        one = f"stage {failed[0]!r}" if len(failed) == 1 else f"the job of {len(failed)} stages"
        run.ask_again(job, but=failed)
        yield from run.fail(failed, f"{one} ended as {why(status)}", end_s)


def _cut_short_in_wave(
    run: RunCourse, job: Job, left: Sequence[str], culprits: Sequence[str], end_s: float
) -> Iterator[Record]:
    """Decide what becomes of stages that ran side by side in a job: of each that failed, and of all others."""
    status = job.status
    steps = {step.name: step for step in status.steps}
    ends = {name: _as_of_step(status, steps.get(name)) for name in culprits}
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
    """Give how a job ended, and how the elements did that had their turn in it and did not complete."""
    reported = job.status.elements
    return [job.status, *(reported.ended if reported is not None else ())]


def _as_of_step(status: JobStatus, step: StepTimes | None) -> JobStatus:
    """Give the end of a job as that of one of its steps, where that is known."""
    if step is None or (code := step.exit_code) is None:
        return status
    return replace(status, state=JobState.FAILED, exit_code=code, outcome=step.outcome, reason=f"exit code {code}")


def why_stranded(run: RunCourse, job: Job) -> str:
    """Say why a job can never run its stages; empty if it may."""
    own = (view for name in job.planned.stages if (view := run.stages[name]).job_id == job.status.job_id)
    if why := next((view.reason for view in own if view.phase in _OUT_FOR_GOOD), ""):
        return why
    needed = run.jobs.needed(job)
    if (void := next((one for one in needed if is_void_for(run, job, one)), None)) is not None:
        return f"job {void.status.job_id}, which it depends on, is gone"
    are_over = all(one.status.state.is_final and one.status.reason != DUPLICATE for one in needed)
    return "the batch system says that it can never start" if job.status.reason == HOPELESS and are_over else ""


def is_void_for(run: RunCourse, job: Job, needed: Job) -> bool:
    """Whether one job can do no more for another: of several that share a stage, if none that is left can."""
    if not needed.round:
        return needed.is_void and not _has_done_its_part(run, needed, job)
    if run.stages[needed.planned.stages[0]].phase.is_settled or needed.round == job.round:
        return False
    same_round = (one for one in run.jobs.needed(job) if one.round == needed.round)
    return all(one.status.state.is_final or one.giving_up for one in same_round)


def _has_done_its_part(run: RunCourse, needed: Job, job: Job) -> bool:
    """Whether of a job that failed those stages completed, of several side by side, that another's follow."""
    if not needed.spec.has_waves:
        return False
    followed = {before for name in job.planned.stages for before in run.stages[name].stage.after}
    return all(run.stages[name].phase is Phase.DONE for name in followed.intersection(needed.planned.stages))
