"""Jobs that race for the same work: several requests for one attempt, of which the first to start is kept.

Each racer runs a stage and, perhaps, stages that follow it, in shapes of its own. There is a race for each attempt at a
stage, and a job takes part in the races for all its stages. One job, the *lead* of a stage, represents the stage, so
that all other code sees a run in which each stage has one job. A job that starts becomes the lead of those of its
stages that no other job has started. Jobs that have become useless are withdrawn. A job that has further stages, which
the started job does not run, stays pending: if it starts later, it runs these. If two jobs start at the same moment,
their scripts decide (see `asa.backend.JobSpec.race`): the job whose payload has begun is the lead, and the other ends
by itself.

Four rules ensure that each stage runs once:

- The scripts ensure that only one job of a race runs the stage, whatever a client knows. So a stage gets a new race
  only when no job of the last race can run it any more: the job that began it has failed, or all jobs of that race have
  ended, and no job whose submission is in doubt can still turn up.
- A job that has ended without beginning its payload leaves its stages to another job of the race. If there is none, but
  one may still turn up, the ended job continues to represent the stages, and the other is looked for. A job that ended
  as outrun shows that another has begun.
- A job of a race that turns up, however late, becomes a job of the run as if it had been accepted at once. If it has
  begun a stage that no other job has begun, it becomes the lead of that stage.
- Only a job that has not begun is withdrawn. First a mark is written that keeps it from beginning. If the job's own
  mark shows that it had begun before, it is not cancelled.

While several jobs may begin, it is unknown which of them will run the stage: no job is submitted that depends on the
end of one of them, as the stage's last job is not known yet. Conversely, a job that another job depends on gets no
rival. `may_race` says which jobs do not race: arrays, legs, jobs that share a stage, local jobs, jobs of hosted runs,
and jobs that resize or wait inside their allocation; and jobs that depend on others, except for the first of a race.

A replacement is a race of two. The new job, which takes a pending job's place (`PlannedJob.replaces`), is submitted
first. Once it is accepted, the pending job is withdrawn; but if that has started, the new job is useless. If the new
job is refused, the pending job stays.
"""
# ruff: noqa: ARG002 - methods of `Units`

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from asa.backend import JobSpec, JobState
from asa.exactly_once import DUPLICATE
from asa.records import Record
from asa.runner.course import RunCourse
from asa.runner.entries import Intended
from asa.runner.jobs import Job
from asa.runner.kinds.base import Units
from asa.runner.kinds.rounds import handed_to
from asa.strategies.base import Choice, Keep, Phase, PlannedJob, RacerView, StageView
from asa.workflow import Stage


@dataclass(slots=True)
class RacingUnits(Units):
    """The races of a run: which jobs were asked for in each."""

    jobs: dict[str, list[Job]] = field(default_factory=dict)  # by race, in order of submission
    refused: dict[str, list[Intended]] = field(default_factory=dict)  # likewise
    lost: set[str] = field(default_factory=set)  # tokens of jobs in doubt that cannot turn up any more

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Return the token that any job of these stages would get, with the racer's number."""
        return racer_token(run, planned)

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Return the race for the first stage; the races for the other stages are in the job's steps."""
        return {"race": self.race_of(run, planned.stages[0])}

    @staticmethod
    def race_of(run: RunCourse, name: str) -> str:
        """Name the race for the present attempt at a stage."""
        return f"{run.token_of((name,))}-race"

    def is_wanted(self, run: RunCourse, planned: PlannedJob) -> bool:
        """Whether a further racer may still be submitted: its stages have no started job, and its number is unused."""
        if planned.racer < 2:
            return True
        jobs = self.jobs.get(self.race_of(run, planned.stages[0]), ())
        is_new = all(job.planned.racer != planned.racer for job in jobs)
        may_start = self._has_lead(run, planned.stages[0]) and all(self._is_free(run, name) for name in planned.stages)
        if planned.replaces:
            may_start &= any(job.status.job_id == planned.replaces and _is_pending(job) for job in jobs)
        return bool(jobs) and is_new and may_start and not self._is_needed(run, planned.stages)

    @staticmethod
    def _is_needed(run: RunCourse, stages: Iterable[str]) -> bool:
        """Whether a job depends on one that represents one of the stages; jobs that may yet turn up count as well."""
        leads = {run.stages[name].job_id for name in stages}
        in_doubt = [run.jobs.intents[token].spec for token in run.jobs.doubtful if not run.jobs.has_sent(token)]
        specs = [*(run.jobs[job_id].spec for job_id in run.jobs.live()), *in_doubt]
        return any(needed.job_id in leads for spec in specs for needed in spec.dependencies)

    def goes_on_without(self, run: RunCourse, intent: Intended) -> bool:
        """Whether the other jobs of a race go on after one was refused; not if the first was refused."""
        if intent.planned.racer < 2:
            return False
        self.refused.setdefault(intent.spec.race, []).append(intent)
        return True

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Add a job to its races; it may have turned up late."""
        for race in races_of(job.spec):
            self.jobs.setdefault(race, []).append(job)
        run.may_have_lost = True
        left = self._left(run, job)
        if job.planned.replaces and all(left.values()) and any(self._has_lead(run, name) for name in left):
            for name in left:  # it may have stages in addition to those of the job whose place it takes
                if run.stages[name].phase is Phase.WAITING:
                    self._hand_over(run, job, name)

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Whether a job represents its stages: if no other job does, or if it replaces the one that does."""
        if former is not None:
            return any(run.stages[name].job_id == former.status.job_id for name in job.planned.stages)
        left = self._left(run, job)
        return all(left.values()) and not any(self._has_lead(run, name) for name in left)

    # ------------------------------------------------------------------ which job leads

    def is_open(self, run: RunCourse, name: str) -> bool:
        """Whether a stage's job is in a race and has not begun, and another may yet take its place."""
        lead = run.jobs.get(run.stages[name].job_id or "")
        if lead is None or not lead.spec.race or lead.status.payload_start_s is not None:
            return False
        return any(self._is_contested(run, name, lead) for name in run.left_of(lead))

    def _is_contested(self, run: RunCourse, name: str, lead: Job) -> bool:
        """Whether another job, accepted or in doubt, may take a stage from the job that represents it."""
        others = self.jobs.get(self.race_of(run, name), ())
        return any(other is not lead and not other.status.state.is_final for other in others) or any(
            token != lead.spec.token for token in self._in_doubt(run, name)
        )

    @staticmethod
    def _has_lead(run: RunCourse, name: str) -> bool:
        """Whether the job that represents a stage has not ended."""
        lead = run.jobs.get(run.stages[name].job_id or "")
        return lead is not None and not lead.status.state.is_final

    def _is_free(self, run: RunCourse, name: str) -> bool:
        """Whether another job may take a stage: it has no job, or its job races and has not started, or has ended."""
        view = run.stages[name]
        lead = run.jobs.get(view.job_id or "")
        if lead is None:
            return view.phase is Phase.WAITING
        may_start = lead.status.start_s is None or not self._has_lead(run, name)
        return view.phase is Phase.QUEUED and bool(lead.spec.race) and may_start

    def _left(self, run: RunCourse, job: Job) -> dict[str, bool]:
        """Return a job's unsettled stages, and for each whether the job is in the race for its present attempt."""
        races = dict(zip(job.planned.stages, races_of(job.spec), strict=True))
        return {
            name: race == self.race_of(run, name)
            for name, race in races.items()
            if not run.stages[name].phase.is_settled
        }

    def views(self, run: RunCourse) -> Iterator[RacerView]:
        """Return views of the jobs of all undecided races."""
        shown = dict[str, Job]()
        for race, jobs in self.jobs.items():
            lead = next(
                (other for other in jobs for name in run.left_of(other) if self.race_of(run, name) == race), None
            )
            if lead is not None and lead.status.payload_start_s is None:
                shown |= {job.status.job_id: job for job in jobs}
        for job in shown.values():
            is_pending = _is_pending(job)
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
        """Make a job the lead of its stages if it is the first to start, or if its payload has begun."""
        status = job.status
        has_begun = status.payload_start_s is not None
        if not has_begun and (status.start_s is None or status.state.is_final or job.giving_up):
            return
        run.may_have_lost = True  # other jobs may have become useless
        left = self._left(run, job)
        if not has_begun and left and not self._is_next(run, job, next(iter(left))):
            self._pass_on(run, job)  # its script will find that another job has begun
            return
        for name, is_present in left.items():
            lead = run.jobs.get(run.stages[name].job_id or "")
            has_begun_it = lead is not None and lead.status.payload_start_s is not None
            may_lead = is_present or (has_begun and lead is None)
            if lead is not job and may_lead and (self._is_free(run, name) or (has_begun and not has_begun_it)):
                self._hand_over(run, job, name)

    def _is_next(self, run: RunCourse, job: Job, name: str) -> bool:
        """Whether a job that started may begin a stage, as far as known."""
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
        """Make another job of the race the lead of each stage that this job leads but will not run."""
        for name in run.left_of(job):
            race = self.race_of(run, name)
            live = [other for other in self.jobs.get(race, ()) if not (other.status.state.is_final or other.giving_up)]
            may = [
                other
                for other in live
                if other is not job and (other.status.start_s is None or _may_begin(run, other, name))
            ]
            if may:
                self._hand_over(run, min(may, key=lambda other: other.status.start_s is None), name)
            elif ours := [other for other in self.jobs.get(race, ()) if other is not job and _gave_way(run, other)]:
                self._hand_over(run, ours[0], name)

    # ------------------------------------------------------------------ ends of jobs

    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Decide what happens to the stages of an ended job; if it never began, other jobs of the race decide."""
        if not self._leaves(run, job):
            yield from Units.ended(self, run, job, end_s)

    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Leave the stages of a job that was cancelled before it began to other jobs; ask again for the rest."""
        if not self._leaves(run, job):
            yield from Units.given_up(self, run, job, at_s)

    def _leaves(self, run: RunCourse, job: Job) -> bool:
        """Leave the stages of a job that never began to other jobs; return whether one of these may yet turn up."""
        if job.status.payload_start_s is not None or job.status.state is JobState.COMPLETED or run.outcome is not None:
            return False
        self._pass_on(run, job)
        left = run.left_of(job)
        if not any(self._in_doubt(run, name) for name in left):
            return False
        for name in left:
            run.stages.put(name, replace(run.stages[name], phase=Phase.QUEUED, hold_until_s=None, limit_s=None))
        return True

    # ------------------------------------------------------------------ jobs in doubt

    def _in_doubt(self, run: RunCourse, name: str) -> list[str]:
        """Return the tokens of the jobs in doubt that are in the race for a stage."""
        race, doubtful = self.race_of(run, name), run.jobs.doubtful.keys() - self.lost
        unsent = {token: run.jobs.intents[token] for token in sorted(doubtful) if not run.jobs.has_sent(token)}
        unsent |= run.jobs.open_intents
        return [token for token, intent in unsent.items() if race in races_of(intent.spec)]

    def _waiting(self, run: RunCourse) -> Iterator[tuple[Job, list[str]]]:
        """Yield the ended jobs that still represent stages, each with the tokens of jobs in doubt for these."""
        if not self.jobs:
            return
        leads = dict.fromkeys(view.job_id or "" for view in run.stages.values() if view.phase is Phase.QUEUED)
        for job in [run.jobs[job_id] for job_id in leads if job_id in run.jobs]:
            if job.spec.race and job.status.state.is_final and not _gave_way(run, job):
                left = run.left_of(job)
                yield job, [*dict.fromkeys(token for name in left for token in self._in_doubt(run, name))]

    @property
    def may_come_late(self) -> bool:
        """Whether a job that turns up late belongs to the run: yes, since it may have begun a stage."""
        return True

    def sought(self, run: RunCourse) -> list[str]:
        """Return the tokens of the jobs that must be found before stages are asked for again."""
        return [*dict.fromkeys(token for _, tokens in self._waiting(run) for token in tokens)]

    def go_on(self, run: RunCourse, at_s: float, lost: str) -> Iterator[Record]:
        """Ask again for stages that waited for jobs in doubt, if none of these can turn up any more."""
        if lost:
            self.lost.add(lost)
        for job, tokens in [*self._waiting(run)]:
            if not tokens:
                decide = Units.given_up if job.given_up else Units.ended
                yield from decide(self, run, job, at_s)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Return why a job is useless, as when another has started its stages; empty if it is not."""
        left = self._left(run, job)
        if not left or not all(left.values()):
            return "what it was to run has ended, or was asked for anew"
        others = self.jobs.get(self.race_of(run, next(iter(left))), ())
        newer = [other for other in others if other.planned.replaces == job.status.job_id and not other.giving_up]
        if _is_pending(job) and (there := [other for other in newer if not other.status.state.is_final]):
            return f"job {there[0].status.job_id} takes its place"
        if any(self._is_free(run, name) or run.stages[name].job_id == job.status.job_id for name in left):
            return ""
        lead = next(name for name in left)
        return f"job {run.stages[lead].job_id}, which raced with it for stage {lead!r}, started first"


def racer_token(run: RunCourse, planned: PlannedJob) -> str:
    """Return the token of a racer."""
    number = f"r{planned.racer}" if planned.racer > 1 else ""
    return f"{run.token_of(planned.stages)}{number}"


def races_of(spec: JobSpec) -> tuple[str, ...]:
    """Name the races that a job takes part in, stage by stage."""
    return tuple(step.race for step in spec.steps) or (spec.race,)


def _is_pending(job: Job) -> bool:
    """Whether a job is in the queue and is not being cancelled."""
    return job.status.start_s is None and not (job.status.state.is_final or job.giving_up)


def _gave_way(run: RunCourse, job: Job) -> bool:
    """Whether a job ended because another job with its token runs its stages, and that job is not found yet."""
    return job.status.reason == DUPLICATE and run.jobs.of_token(job.spec.token) is job


def _may_begin(run: RunCourse, job: Job, name: str) -> bool:
    """Whether a stage is the next one that a started job would begin."""
    return next((stage for stage in job.planned.stages if not run.stages[stage].phase.is_settled), "") == name


def may_race(run: RunCourse, planned: PlannedJob) -> bool:
    """Whether a job can be in a race; all exceptions are defined here."""
    stages = [run.stages[name].stage for name in planned.stages]
    return (
        run.capabilities.races
        and not run.host.may_add
        and planned.keep in ({Keep.NOTHING, Keep.DEPENDENCY} if planned.racer == 1 else {Keep.NOTHING})
        and not (planned.is_elastic or planned.mate or planned.leg or planned.spare_walltime_s)
        and all(map(is_whole, stages))
    )


def is_whole(stage: Stage) -> bool:
    """Whether one job runs the whole stage, on the batch system: no array, bag or leg, and no local stage."""
    return stage.is_one_job and not stage.local


def as_asked(run: RunCourse, planned: PlannedJob) -> Iterator[tuple[str, StageView]]:
    """Yield the unsettled stages of a job, in the shapes that the job asks for."""
    for place, name in enumerate(planned.stages):
        view = run.stages[name]
        if not view.phase.is_settled:
            shaped = view.stage.shaped(planned.shapes[place]) if planned.shapes else view.stage
            yield name, replace(view, stage=shaped)


def raced(run: RunCourse, submissions: Iterable[PlannedJob]) -> Iterator[PlannedJob]:
    """Leave out of a plan the racers that may not race; but keep a first one, as a job without a race.

    A further racer whose submission is in doubt is submitted again exactly as it was planned then.
    """
    for planned in submissions:
        token = racer_token(run, planned) if planned.racer > 1 else ""
        if token in run.jobs.doubtful and not run.jobs.has_sent(token):
            yield replace(run.jobs.intents[token].planned, submit_s=planned.submit_s)
        elif not planned.racer or may_race(run, planned):
            yield planned
        elif planned.racer == 1:
            yield replace(planned, racer=0)
