"""Jobs that race for the same work: several requests for one attempt, of which the first to start is kept.

Each runs a stage and, perhaps, some after it, in shapes of its own. There is a race for each attempt at a stage, and
a job takes part in those for all its stages. One job, the *lead* of a stage, represents it, so that all else sees a run
in which each stage has one job. A job that starts becomes the lead of all its stages that no other has started; jobs
of no more use are withdrawn. One that has stages in addition to those that another runs stays pending: it goes on with
these if it starts later. Which of two runs that start at the same moment is decided by their scripts (see
`asa.backend.JobSpec.race`): whoever has begun is the lead, and the other ends by itself.

Since it is not known before which of them it will be, nothing is submitted that depends on the end of one of them while
it has not begun: a race has an unknown last job. `may_race` says what does not race: arrays, legs, what several jobs
run, what is local, what a host hands over, and jobs that resize, wait inside their allocation, or depend on others.
"""
# ruff: noqa: ARG002 - methods of `Units`

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from asa.backend import JobSpec
from asa.records import Record
from asa.runner.course import RunCourse
from asa.runner.entries import Intended
from asa.runner.jobs import Job
from asa.runner.kinds.base import Units
from asa.runner.kinds.rounds import handed_to
from asa.runner.retries import idled_out
from asa.strategies.base import Choice, Keep, Phase, PlannedJob, RacerView, StageView
from asa.workflow import Stage


@dataclass(slots=True)
class RacingUnits(Units):
    """The races of a run: which jobs were asked for in each."""

    jobs: dict[str, list[Job]] = field(default_factory=dict)  # by race, in order of submission
    refused: dict[str, list[Intended]] = field(default_factory=dict)  # likewise

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Name a racer: as any job of its stages, and by its number."""
        number = f"r{planned.racer}" if planned.racer > 1 else ""
        return f"{run.token_of(planned.stages)}{number}"

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Name the race for the first stage; those for others are their steps'."""
        return {"race": self.race_of(run, planned.stages[0])}

    @staticmethod
    def race_of(run: RunCourse, name: str) -> str:
        """Name the race for the present attempt at a stage."""
        return f"{run.token_of((name,))}-race"

    def is_wanted(self, run: RunCourse, planned: PlannedJob) -> bool:
        """Whether a further racer may still be submitted: nobody has its stages, and its number was not given yet."""
        if planned.racer < 2:
            return True
        jobs = self.jobs.get(self.race_of(run, planned.stages[0]), ())
        is_new = all(one.planned.racer != planned.racer for one in jobs)
        return bool(jobs) and is_new and all(self._is_free(run, name) for name in planned.stages)

    def goes_on_without(self, run: RunCourse, intent: Intended) -> bool:
        """Whether the others go on where one was refused: unless that was the first."""
        if intent.planned.racer < 2:
            return False
        self.refused.setdefault(intent.spec.race, []).append(intent)
        return True

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Note a job of a race."""
        for race in races_of(job.spec):
            self.jobs.setdefault(race, []).append(job)

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Whether a job represents its stages: the first does, and one that takes the place of such a job."""
        if former is not None:
            return any(run.stages[name].job_id == former.status.job_id for name in job.planned.stages)
        return job.planned.racer < 2

    # ------------------------------------------------------------------ which of them leads

    def is_open(self, run: RunCourse, name: str) -> bool:
        """Whether a stage's job is in a race and has not begun, so that another may take its place."""
        job = run.jobs.get(run.stages[name].job_id or "")
        return job is not None and bool(job.spec.race) and job.status.payload_start_s is None

    @staticmethod
    def _is_free(run: RunCourse, name: str) -> bool:
        """Whether a job may take a stage: none has it, or one that races and has not started."""
        view = run.stages[name]
        lead = run.jobs.get(view.job_id or "")
        if lead is None:
            return view.phase is Phase.WAITING
        return view.phase is Phase.QUEUED and bool(lead.spec.race) and lead.status.start_s is None

    def _left(self, run: RunCourse, job: Job) -> dict[str, bool]:
        """Give the stages of a job that are not settled, and whether each is at the attempt that it races for."""
        races = dict(zip(job.planned.stages, races_of(job.spec), strict=True))
        return {
            name: race == self.race_of(run, name)
            for name, race in races.items()
            if not run.stages[name].phase.is_settled
        }

    def views(self, run: RunCourse) -> Iterator[RacerView]:
        """Show the jobs of races that are not decided."""
        shown = dict[str, Job]()
        for race, jobs in self.jobs.items():
            lead = next((one for one in jobs for name in run.left_of(one) if self.race_of(run, name) == race), None)
            if lead is not None and lead.status.payload_start_s is None:
                shown |= {job.status.job_id: job for job in jobs}
        for job in shown.values():
            is_pending = job.status.start_s is None and not (job.status.state.is_final or job.giving_up)
            number, submit_s, planned = max(job.planned.racer, 1), job.status.submit_s, job.planned
            cores = job.spec.cores
            yield RacerView(
                planned.stages, number, job.status.job_id, submit_s, cores, planned.shapes, is_pending=is_pending
            )
        for race, refused in self.refused.items():
            for intent in refused if race in self.jobs else ():
                planned, cores = intent.planned, intent.spec.cores
                yield RacerView(planned.stages, planned.racer, "", intent.at_s, cores, planned.shapes, is_pending=False)

    def heard(self, run: RunCourse, job: Job, *, is_anew: bool) -> None:
        """Let the first that starts represent its stages, and the one that begins in any case."""
        status = job.status
        has_begun = status.payload_start_s is not None
        if not has_begun and (status.start_s is None or status.state.is_final or job.giving_up):
            return
        run.may_have_lost = True  # others are of no use any more
        left = self._left(run, job)
        if not has_begun and left and not self._is_next(run, job, next(iter(left))):
            self._pass_on(run, job)  # it will find that another has begun
            return
        for name, is_present in left.items():
            lead = run.jobs.get(run.stages[name].job_id or "")
            has_begun_it = lead is not None and lead.status.payload_start_s is not None
            if lead is not job and is_present and (self._is_free(run, name) or (has_begun and not has_begun_it)):
                self._hand_over(run, job, name)

    def _is_next(self, run: RunCourse, job: Job, name: str) -> bool:
        """Whether a job that started may begin a stage, as far as is known."""
        return self._is_free(run, name) or run.stages[name].job_id == job.status.job_id

    @staticmethod
    def _hand_over(run: RunCourse, job: Job, name: str) -> None:
        """Let a job represent a stage, in the shape in which it asks for it."""
        view = run.stages[name]
        if job.planned.shapes:
            shape = job.planned.shapes[job.planned.stages.index(name)]
            run.choices[name] = Choice(shape)
            view = replace(view, stage=view.stage.shaped(shape))
        run.stages.put(name, handed_to(job, view))
        run.may_have_lost = True

    def _pass_on(self, run: RunCourse, job: Job) -> None:
        """Let others lead the stages that a job leads, which it will not run: for each, one that is in its race."""
        for name in run.left_of(job):
            race = self.race_of(run, name)
            live = [one for one in self.jobs.get(race, ()) if not (one.status.state.is_final or one.giving_up)]
            may = [one for one in live if one is not job and (one.status.start_s is None or _may_begin(run, one, name))]
            if may:
                self._hand_over(run, min(may, key=lambda one: one.status.start_s is None), name)

    # ------------------------------------------------------------------ when one of them has ended

    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Decide what becomes of the stages of a job; of one that another has outrun, the others decide."""
        if idled_out(job):
            self._pass_on(run, job)
        yield from Units.ended(self, run, job, end_s)

    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Leave to the others what a job was to run that was cancelled before it began; ask for the rest again."""
        if job.status.payload_start_s is None:
            self._pass_on(run, job)
        yield from Units.given_up(self, run, job, at_s)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Say that others have started all that it could run, or that this was asked for anew."""
        left = self._left(run, job)
        if not left or not all(left.values()):
            return "what it was to run has ended, or was asked for anew"
        if any(self._is_free(run, name) or run.stages[name].job_id == job.status.job_id for name in left):
            return ""
        lead = next(name for name in left)
        return f"job {run.stages[lead].job_id}, which raced with it for stage {lead!r}, started first"


def races_of(spec: JobSpec) -> tuple[str, ...]:
    """Name the races that a job takes part in, stage by stage."""
    return tuple(step.race for step in spec.steps) or (spec.race,)


def _may_begin(run: RunCourse, job: Job, name: str) -> bool:
    """Whether a job that has started has a stage as its next one."""
    return next((one for one in job.planned.stages if not run.stages[one].phase.is_settled), "") == name


def may_race(run: RunCourse, planned: PlannedJob) -> bool:
    """Whether a job can be in a race; the one place where it is said what does not."""
    stages = [run.stages[name].stage for name in planned.stages]
    return (
        run.capabilities.races
        and not run.host.may_add
        and planned.keep is Keep.NOTHING
        and not (planned.is_elastic or planned.mate or planned.leg or planned.spare_walltime_s)
        and all(map(is_whole, stages))
    )


def is_whole(stage: Stage) -> bool:
    """Whether one job runs a stage, and all of it: no array, bag or leg, and not where the client is."""
    return stage.is_one_job and not stage.local


def as_asked(run: RunCourse, planned: PlannedJob) -> Iterator[tuple[str, StageView]]:
    """Give the stages of a job that are not settled, in the shapes in which it asks for them."""
    for place, name in enumerate(planned.stages):
        view = run.stages[name]
        if not view.phase.is_settled:
            shaped = view.stage.shaped(planned.shapes[place]) if planned.shapes else view.stage
            yield name, replace(view, stage=shaped)


def raced(run: RunCourse, submissions: Iterable[PlannedJob]) -> Iterator[PlannedJob]:
    """Leave out of a plan the racers that may not race; a first one that may not is a job as any other."""
    for planned in submissions:
        if not planned.racer or may_race(run, planned):
            yield planned
        elif planned.racer == 1:
            yield replace(planned, racer=0)
