"""Jobs that race for the same work: several requests for one attempt, of which the first to start is kept.

Each runs a stage and, perhaps, some after it, in shapes of its own. There is a race for each attempt at a stage, and
a job takes part in those for all its stages. One job, the *lead* of a stage, represents it, so that all else sees a run
in which each stage has one job. A job that starts becomes the lead of all its stages that no other has started; jobs
of no more use are withdrawn. One that has stages in addition to those that another runs stays pending: it goes on with
these if it starts later. Which of two runs that start at the same moment is decided by their scripts (see
`asa.backend.JobSpec.race`): whoever has begun is the lead, and the other ends by itself.

That each stage runs once follows from four rules:

- Of the jobs of one race one runs the stage, whatever a client knows: their scripts see to it. So a stage is asked for
  in a new race only when none of the last one can run it any more: the job that began it has failed, or all have ended
  and none may turn up that was submitted in doubt.
- A job that has ended without having begun leaves its stages to another of their race. While none is there, but one may
  turn up, it goes on representing them, and that one is looked for. What ended as outrun says that it has begun.
- A job of a race that turns up, however late, becomes a job of the run as if it had been accepted at once. If it has
  begun a stage that no other has, it is the lead.
- Only a job that has not begun is withdrawn. It is first kept from beginning, by a mark that it would find; where it
  has begun by then, as its own mark shows, it is not cancelled.

While several may begin, it is not known which of them it will be: nothing is submitted that depends on the end of one,
for the race has an unknown last job. Conversely, a job that another depends on gets no rival. `may_race` says what
does not race: arrays, legs, what several jobs run, what is local, what a host hands over, and jobs that resize, wait
inside their allocation, or, but for the first of a race, depend on others.

A replacement is a race of two. The job that takes a pending one's place (`PlannedJob.replaces`) is submitted first;
once it is accepted, the pending one is withdrawn, unless that has started: then the new one is of no use. If the new
one is refused, the pending one stays.
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
    lost: set[str] = field(default_factory=set)  # tokens of jobs in doubt that do not turn up any more

    def token(self, run: RunCourse, planned: PlannedJob) -> str:
        """Name a racer: as any job of its stages, and by its number."""
        return racer_token(run, planned)

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
        may_start = self._has_lead(run, planned.stages[0]) and all(self._is_free(run, name) for name in planned.stages)
        if planned.replaces:
            may_start &= any(one.status.job_id == planned.replaces and _is_pending(one) for one in jobs)
        return bool(jobs) and is_new and may_start and not self._is_needed(run, planned.stages)

    @staticmethod
    def _is_needed(run: RunCourse, stages: Iterable[str]) -> bool:
        """Whether a job depends on one that represents some stages, or may turn up that does."""
        leads = {run.stages[name].job_id for name in stages}
        in_doubt = [run.jobs.intents[token].spec for token in run.jobs.doubtful if not run.jobs.has_sent(token)]
        specs = [*(run.jobs[job_id].spec for job_id in run.jobs.live()), *in_doubt]
        return any(needed.job_id in leads for spec in specs for needed in spec.dependencies)

    def goes_on_without(self, run: RunCourse, intent: Intended) -> bool:
        """Whether the others go on where one was refused: unless that was the first."""
        if intent.planned.racer < 2:
            return False
        self.refused.setdefault(intent.spec.race, []).append(intent)
        return True

    def accepted(self, run: RunCourse, job: Job) -> None:
        """Note a job of a race, which may come late."""
        for race in races_of(job.spec):
            self.jobs.setdefault(race, []).append(job)
        run.may_have_lost = True
        left = self._left(run, job)
        if job.planned.replaces and all(left.values()) and any(self._has_lead(run, name) for name in left):
            for name in left:  # it may have stages in addition to those of the job whose place it takes
                if run.stages[name].phase is Phase.WAITING:
                    self._hand_over(run, job, name)

    def is_to_lead(self, run: RunCourse, job: Job, former: Job | None) -> bool:
        """Whether a job represents its stages: it does if they have no other, or that whose place it takes."""
        if former is not None:
            return any(run.stages[name].job_id == former.status.job_id for name in job.planned.stages)
        left = self._left(run, job)
        return all(left.values()) and not any(self._has_lead(run, name) for name in left)

    # ------------------------------------------------------------------ which of them leads

    def is_open(self, run: RunCourse, name: str) -> bool:
        """Whether a stage's job is in a race and has not begun, and another may yet take its place."""
        lead = run.jobs.get(run.stages[name].job_id or "")
        if lead is None or not lead.spec.race or lead.status.payload_start_s is not None:
            return False
        return any(self._is_contested(run, one, lead) for one in run.left_of(lead))

    def _is_contested(self, run: RunCourse, name: str, lead: Job) -> bool:
        """Whether a job that is there, or may turn up, may take a stage from the one that represents it."""
        others = self.jobs.get(self.race_of(run, name), ())
        return any(one is not lead and not one.status.state.is_final for one in others) or any(
            token != lead.spec.token for token in self._in_doubt(run, name)
        )

    @staticmethod
    def _has_lead(run: RunCourse, name: str) -> bool:
        """Whether a job that may still do something represents a stage."""
        lead = run.jobs.get(run.stages[name].job_id or "")
        return lead is not None and not lead.status.state.is_final

    def _is_free(self, run: RunCourse, name: str) -> bool:
        """Whether a job may take a stage: none has it, or one that races and has not started, or can no more."""
        view = run.stages[name]
        lead = run.jobs.get(view.job_id or "")
        if lead is None:
            return view.phase is Phase.WAITING
        may_start = lead.status.start_s is None or not self._has_lead(run, name)
        return view.phase is Phase.QUEUED and bool(lead.spec.race) and may_start

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
            may_lead = is_present or (has_begun and lead is None)
            if lead is not job and may_lead and (self._is_free(run, name) or (has_begun and not has_begun_it)):
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
            elif ours := [one for one in self.jobs.get(race, ()) if one is not job and _gave_way(run, one)]:
                self._hand_over(run, ours[0], name)

    # ------------------------------------------------------------------ when one of them has ended

    def ended(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Decide what becomes of the stages of a job; of one that has not begun, the others decide."""
        if not self._leaves(run, job):
            yield from Units.ended(self, run, job, end_s)

    def given_up(self, run: RunCourse, job: Job, at_s: float) -> Iterator[Record]:
        """Leave to the others what a job was to run that was cancelled before it began; ask for the rest again."""
        if not self._leaves(run, job):
            yield from Units.given_up(self, run, job, at_s)

    def _leaves(self, run: RunCourse, job: Job) -> bool:
        """Leave the stages of a job that has not begun to others; say whether one of these is yet to turn up."""
        if job.status.payload_start_s is not None or job.status.state is JobState.COMPLETED or run.outcome is not None:
            return False
        self._pass_on(run, job)
        left = run.left_of(job)
        if not any(self._in_doubt(run, name) for name in left):
            return False
        for name in left:
            run.stages.put(name, replace(run.stages[name], phase=Phase.QUEUED, hold_until_s=None, limit_s=None))
        return True

    # ------------------------------------------------------------------ those of which it is not known whether they are

    def _in_doubt(self, run: RunCourse, name: str) -> list[str]:
        """Give the tokens of the race for a stage whose job may yet turn up."""
        race, doubtful = self.race_of(run, name), run.jobs.doubtful.keys() - self.lost
        unsent = {token: run.jobs.intents[token] for token in sorted(doubtful) if not run.jobs.has_sent(token)}
        if (intent := run.jobs.open_intent) is not None:
            unsent[intent.token] = intent
        return [token for token, intent in unsent.items() if race in races_of(intent.spec)]

    def _waiting(self, run: RunCourse) -> Iterator[tuple[Job, list[str]]]:
        """Give the jobs that have ended and go on representing stages, each with the tokens of what may run these."""
        leads = dict.fromkeys(view.job_id or "" for view in run.stages.values() if view.phase is Phase.QUEUED)
        for job in [run.jobs[job_id] for job_id in leads if job_id in run.jobs]:
            if job.spec.race and job.status.state.is_final and not _gave_way(run, job):
                left = run.left_of(job)
                yield job, [*dict.fromkeys(token for name in left for token in self._in_doubt(run, name))]

    @property
    def may_come_late(self) -> bool:
        """A job that comes late may have begun a stage."""
        return True

    def sought(self, run: RunCourse) -> list[str]:
        """Give the tokens of jobs that must have begun, or are to be known before something is asked for anew."""
        return [*dict.fromkeys(token for _, tokens in self._waiting(run) for token in tokens)]

    def go_on(self, run: RunCourse, at_s: float, lost: str) -> Iterator[Record]:
        """Ask anew for what has waited for jobs in doubt, where none is left that may turn up."""
        if lost:
            self.lost.add(lost)
        for job, tokens in [*self._waiting(run)]:
            if not tokens:
                decide = Units.given_up if job.given_up else Units.ended
                yield from decide(self, run, job, at_s)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Say that others have started all that it could run, one takes its place, or what else made it useless."""
        left = self._left(run, job)
        if not left or not all(left.values()):
            return "what it was to run has ended, or was asked for anew"
        others = self.jobs.get(self.race_of(run, next(iter(left))), ())
        newer = [one for one in others if one.planned.replaces == job.status.job_id and not one.giving_up]
        if _is_pending(job) and (there := [one for one in newer if not one.status.state.is_final]):
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
    """Whether a job is in the queue, and to stay there."""
    return job.status.start_s is None and not (job.status.state.is_final or job.giving_up)


def _gave_way(run: RunCourse, job: Job) -> bool:
    """Whether a job ended for another of its token, which runs what it was for and is yet to be found."""
    return job.status.reason == DUPLICATE and run.jobs.of_token(job.spec.token) is job


def _may_begin(run: RunCourse, job: Job, name: str) -> bool:
    """Whether a job that has started has a stage as its next one."""
    return next((one for one in job.planned.stages if not run.stages[one].phase.is_settled), "") == name


def may_race(run: RunCourse, planned: PlannedJob) -> bool:
    """Whether a job can be in a race; the one place where it is said what does not."""
    stages = [run.stages[name].stage for name in planned.stages]
    return (
        run.capabilities.races
        and not run.host.may_add
        and planned.keep in ({Keep.NOTHING, Keep.DEPENDENCY} if planned.racer == 1 else {Keep.NOTHING})
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
    """Leave out of a plan the racers that may not race; a first one that may not is a job as any other.

    A further one whose submission is in doubt is asked for again only as it was.
    """
    for planned in submissions:
        token = racer_token(run, planned) if planned.racer > 1 else ""
        if token in run.jobs.doubtful and not run.jobs.has_sent(token):
            yield replace(run.jobs.intents[token].planned, submit_s=planned.submit_s)
        elif not planned.racer or may_race(run, planned):
            yield planned
        elif planned.racer == 1:
            yield replace(planned, racer=0)
