"""The state of a run, and how news from the batch system changes it; nothing here has side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from operator import attrgetter

from asa.backend import JobState, JobStatus
from asa.core.late import dataclass
from asa.exactly_once import DUPLICATE
from asa.observations import observation_of
from asa.records import (
    Cancelled,
    Deferred,
    Ended,
    Observed,
    Record,
    Requeued,
    Resized,
    RunResumed,
    RunStarted,
    Started,
    Submitted,
)
from asa.runner.accounts import Accounts
from asa.runner.course import RunCourse
from asa.runner.deferrals import Deferrals
from asa.runner.entries import (
    Accepted,
    Again,
    Begun,
    Claimed,
    Closed,
    Dropped,
    Entry,
    Extended,
    GivenUp,
    GivingUp,
    Intended,
    Narrowed,
    NotFound,
    Reasoned,
    Refused,
    Reported,
    Retried,
    Shaped,
    Sought,
    Stopped,
    Surplus,
    Unsent,
)
from asa.runner.jobs import Job
from asa.runner.kinds import UnitsOfRun
from asa.runner.kinds.base import HOPELESS
from asa.runner.stages import Stages
from asa.strategies.base import Phase, PlannedJob, RunView, StageView
from asa.waits import WaitObservation
from asa.workflow import Stage, Workflow

facts_of = attrgetter(*(one.name for one in fields(JobStatus) if one.name != "reason"))
"""All of a job's status but its reason."""
_HARMLESS = (
    Begun,
    Shaped,
    Intended,
    Again,
    Sought,
    Accepted,
    Unsent,
    Narrowed,
    Reported,
    Reasoned,
    Extended,
    Claimed,
    Closed,
)  # of themselves; see `RunState.lost_jobs`


@dataclass(frozen=True, slots=True)
class Observation:
    """A job's wait became known, and can be learned."""

    record: Observed  # for observers of the run
    job: Job
    observation: WaitObservation  # the wait


News = Record | Observation


@dataclass(slots=True)
class RunState(RunCourse):
    """The state of one workflow's run; only entries of its journal change it."""

    units: UnitsOfRun = field(default_factory=UnitsOfRun)
    accounts: Accounts = field(init=False)  # core-hours allocated and idled
    deferrals: Deferrals = field(default_factory=Deferrals)  # jobs that were not accepted yet
    # the latest plan's submissions; only for display, in no journal
    planned: tuple[PlannedJob, ...] = ()

    def __post_init__(self) -> None:
        self.workflow = self.units.as_run(self.workflow, self.capabilities)
        RunCourse.__post_init__(self)
        self.accounts = Accounts(self.line_of, self.units)

    def has_released(self, stages: Mapping[str, StageView], stage: Stage, before: str) -> bool:
        """Whether a stage may run some of its units, because the units that they need have completed."""
        return self.units.of_stage(stage).has_released(self, stages, stage, before)

    def has_unknown_end(self, name: str) -> bool:
        """Whether a stage's last job is still unknown; what follows the stage is submitted only after that job."""
        view = self.stages[name]
        if view.phase.is_settled:
            return False
        return self.units.of_stage(view.stage).has_unknown_end(self, view.stage) or self.units.racing.is_open(
            self, name
        )

    def end_if_settled(self, at_s: float) -> Iterator[Record]:
        """End the run once nothing is left to do."""
        for units in self.units.kinds:
            yield from units.settle(self, at_s)
        yield from RunCourse.end_if_settled(self, at_s)

    def line_of(self, job: Job) -> list[Job]:
        """Return a job, or the job that it joins, followed by all jobs that join that one."""
        return self.units.line(self, job)

    def view(self, now_s: float) -> RunView:
        """Return the view of the run for a strategy."""
        return RunView(
            self.workflow,
            self.stages.copy(),
            now_s,
            self.capabilities,
            spent=self.accounts.spent,
            **self.units.shown(self),
            ready=self.stages.ready,
            turn=self.stages.turn,
            first=self.stages.first,
            idle_core_hours=self.accounts.idle_core_hours(now_s),
        )

    def apply(self, entry: Entry) -> Iterator[News]:  # noqa: C901, PLR0912, PLR0915 - one case an entry
        """Apply an entry; yield the resulting records, in order. The iterator must be exhausted."""
        self.may_have_lost |= not isinstance(entry, _HARMLESS)
        self.deferrals.heard(entry, self)
        match entry:
            case Begun(at_s=at_s, fail_fast=fail_fast, is_open=is_open):
                self.ending.fail_fast, self.host.may_add = fail_fast, is_open
                self.host.keep_back(self.workflow.order if is_open else (), self.stages)
                yield RunStarted(time_s=at_s, run=self.name)
            case Shaped(stage=name, choice=choice):
                self.choices[name] = choice
                self.stages.change(name, stage=self.stages[name].stage.shaped(choice.shape))
            case Intended():
                self.jobs.intended(entry)
                self.host.awaited(entry, self.stages)
            case Again(token=token):
                self.jobs.intended(self.jobs.intents[token])
            case Narrowed(stage=name):
                self.units.of_stage(self.stages[name].stage).narrowed(entry)
                self.asked_again += 1
            case Sought(token=token, at_s=at_s):
                self.jobs.sought_s[token] = at_s
            case Accepted(token=token, status=status):
                yield self._accepted(token, status)
            case Unsent(token=token, at_s=at_s, reason=reason, doubtful=doubtful):
                if doubtful:
                    self.jobs.doubtful[token] = at_s
                if (intent := self.jobs.settled(token)) is not None:
                    yield Deferred(time_s=at_s, run=self.name, stages=intent.planned.stages, reason=reason)
                yield from self._go_on(at_s)
            case NotFound(token=token, at_s=at_s):
                yield from self._go_on(at_s, lost=token)
            case Surplus(token=token, job_id=job_id, at_s=at_s):
                ours = next((job.status.job_id for job in self.jobs.values() if job.spec.token == token), None)
                reason = f"a duplicate of job {ours}" if ours else "it turned up when it was not needed any more"
                yield self._cancelled_record(self.jobs.intents[token].planned, job_id, reason, at_s)
            case Reported(status=status):
                yield from self._update(status)
            case Reasoned(job_ids=job_ids, reason=reason):
                for job_id in job_ids:
                    yield from self._update(replace(self.jobs[job_id].status, reason=reason))
            case GivingUp(job_id=job_id, reason=reason, at_s=at_s, substitute=substitute):
                self.jobs.condemn(job_id, reason, at_s, substitute)
            case GivenUp(job_id=job_id, reason=reason, at_s=at_s):
                job = self.jobs[job_id]
                job.giving_up, job.given_up = reason, True
                self.jobs.given_up(job, self.choices, at_s)
                yield self._cancelled_record(job.planned, job_id, reason, at_s)
                yield from self.units.of(job).given_up(self, job, at_s)
                yield from self.end_if_settled(at_s)
            case Refused(token=token, at_s=at_s, reason=reason):
                self.jobs.settled(token)
                yield from self._refused(self.jobs.intents[token], reason, at_s)
                yield from self._go_on(at_s)
            case Stopped(outcome=outcome, reason=reason, at_s=at_s, refused=refused):
                if refused and (intent := self.jobs.settled(refused)) is not None:
                    self.ending.refused |= dict.fromkeys(intent.planned.stages, reason)
                if self.outcome is None:
                    yield self.end(outcome, reason, at_s)
            case Retried(at_s=at_s, stages=stages):
                if entry.revised:
                    revised = Workflow(self.workflow.name, entry.revised, walltime_s=entry.walltime_s)
                    self.workflow = self.units.as_run(revised, self.capabilities)
                yield self._retry(at_s, stages)
                yield from self.end_if_settled(at_s)
            case Extended() | Claimed() | Dropped() | Closed():
                yield from self._hosted(entry)

    def _hosted(self, entry: Extended | Claimed | Dropped | Closed) -> Iterator[News]:
        """Apply a request of an open run's host."""
        match entry:
            case Extended(stages=stages, impossible=impossible):
                self.workflow = self.workflow.with_more(stages)
                self.stages.extend(self.workflow)
                self.host.keep_back([stage.name for stage in stages], self.stages)
                self.host.attempts_failed |= impossible
            case Claimed() if entry.impossible:
                yield from self._claimed_in_vain(entry)
            case Claimed():
                self.host.claimed(entry, self.stages)
            case Dropped(at_s=at_s):
                self.host.dropped(entry, self.stages)
                yield from self.end_if_settled(at_s)
            case Closed(at_s=at_s):
                self.host.may_add = False
                yield from self.end_if_settled(at_s)

    def _claimed_in_vain(self, entry: Claimed) -> Iterator[News]:
        """Apply the handover of a stage whose job could never start."""
        name = entry.stage
        self.host.unreleased[name] = None
        if entry.may_come_again:
            yield from self.hand_back(name, entry.impossible, entry.at_s)
            return
        del self.host.unclaimed[name]
        self.ending.refused[name] = entry.impossible
        self.stages.release(name)
        yield from self.fail([name], entry.impossible, entry.at_s)

    # ------------------------------------------------------------------ submitted jobs

    def _refused(self, intent: Intended, reason: str, at_s: float) -> Iterator[Record]:
        """Apply that the batch system refused a job for good."""
        stages = intent.planned.stages
        if self.jobs.falls_back(stages):
            yield Deferred(time_s=at_s, run=self.name, stages=stages, reason=reason)
            return
        self.jobs.decided(stages)
        if self.units.asked(intent.planned, intent.spec).goes_on_without(self, intent):
            yield Deferred(time_s=at_s, run=self.name, stages=stages, reason=reason)
            return
        back = [name for name in stages if self.host.may_hand_over(name)]
        failed = [name for name in stages if name not in back]
        for name in back:
            yield from self.hand_back(name, reason, at_s)
        self.ending.refused |= dict.fromkeys(failed, reason)
        if failed:
            yield from self.fail(failed, reason, at_s)

    def _go_on(self, at_s: float, lost: str = "") -> Iterator[Record]:
        """Ask again for stages that waited for a job in doubt; `lost`: the token of a job that will not come."""
        for units in self.units.kinds:
            yield from units.go_on(self, at_s, lost)

    def _accepted(self, token: str, status: JobStatus) -> Record:
        job, former = self.jobs.accepted(token, status)
        planned, spec = job.planned, job.spec
        self.may_have_lost |= former is not None or any(self.stages[name].phase.is_settled for name in planned.stages)
        self.accounts.accepted(job)
        units = self.units.of(job)
        units.accepted(self, job)
        is_to_lead = units.is_to_lead(self, job, former)
        predicted = planned.prediction.wait_s if planned.prediction else None
        widths = {step.name: step.cores for step in spec.steps} if planned.widths else {}
        for name in planned.stages if is_to_lead else ():
            if self.stages[name].phase.is_settled:
                continue
            self.stages.change(
                name,
                phase=Phase.QUEUED,
                job_id=status.job_id,
                submit_s=status.submit_s,
                keep=planned.keep,
                predicted_wait_s=predicted,
                cores=widths.get(name, 0),
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
            resubmission=units.resubmissions(self, planned),
            reason=units.reason(self, job),
            **units.recorded(job),
        )

    def _cancelled_record(self, planned: PlannedJob, job_id: str, reason: str, at_s: float) -> Record:
        return Cancelled(time_s=at_s, run=self.name, stages=planned.stages, job_id=job_id, reason=reason)

    # ------------------------------------------------------------------ continuation of an ended run

    def _retry(self, at_s: float, stages: Sequence[str]) -> Record:
        """Let every uncompleted stage, and those that are to run again, wait for another job."""
        self.ending.outcome, self.ending.reason = None, ""
        self.jobs.open_intents.clear()
        self.jobs.substitutes.clear()
        self.ending.refused.clear()
        self.ending.failures.clear()
        self.nodes.anew()
        once_more = self.workflow.with_followers(stages)
        for name in once_more:  # their earlier completion markers and records no longer count
            self.generations[name] = self.generations.get(name, 0) + 1
        self.stages = self.taken_up(stages)
        for units in self.units.kinds:
            units.anew(self)
        self.host.keep_back(self.host.unclaimed, self.stages)
        for name in [name for name in self.choices if self.stages[name].phase is not Phase.DONE]:
            del self.choices[name]
        anew = tuple(name for name in self.workflow.order if name in once_more)
        return RunResumed(time_s=at_s, run=self.name, anew=anew)

    def taken_up(self, stages: Sequence[str]) -> Stages:
        """Return the stages as they would be if the run were retried and some stages run again."""
        once_more, taken_up = self.workflow.with_followers(stages), Stages(self.workflow, self.has_released)
        for name, view in self.stages.items():
            if view.phase is not Phase.DONE or name in once_more:
                again = view.resubmissions + (view.job_id is not None)
                stage = self.workflow.stages[name]
                fresh = StageView(stage, resubmissions=again)
                if name not in once_more:
                    left = self.units.of_stage(stage).left_to_run(self, stage)
                    fresh = StageView(left, resubmissions=again).with_past(view)
                view = fresh  # noqa: PLW2901
            taken_up.put(name, view)
        taken_up.settle_anew()
        return taken_up

    # ------------------------------------------------------------------ reports of the batch system

    def _update(self, status: JobStatus) -> Iterator[News]:
        job = self.jobs[status.job_id]
        if job.status.state.is_final:
            self._revive(job, status)
            return
        was, job.status = job.status, status
        self.nodes.follow(job)
        self._note_end(job)
        requeued = status.restarts > was.restarts or (was.start_s is not None and status.start_s is None)
        if requeued:
            yield from self._requeued(job, was)
        name, stages, job_id = self.name, job.planned.stages, status.job_id
        units = self.units.of(job)
        units.heard(self, job, is_anew=requeued)
        if (job.observed or status.start_s is None) and facts_of(status) == facts_of(was):
            return  # only its reason has changed, as that does most often
        if status.start_s is not None and (was.start_s is None or requeued):
            yield Started(time_s=status.start_s, run=name, stages=stages, job_id=job_id)
            self.allocated(job, status.start_s)
        observation = None if job.spec.local else observation_of(job.spec, status, self.capabilities)
        if observation and not job.observed:
            job.observed = True
            yield Observation(self._observed(job, observation), job, observation)
        if (began_s := status.payload_start_s) is not None and (was.payload_start_s is None or requeued):
            yield from units.began(self, job, began_s) if not job.given_up else ()
        yield from units.went_on(self, job, was.steps)
        yield from self._resized(job)
        if status.state.is_final:
            yield Ended(
                time_s=status.end_s if status.end_s is not None else status.submit_s,
                run=name,
                stages=stages,
                job_id=job_id,
                state=status.state,
                cores=job.spec.cores,
                start_s=status.start_s,
                payload_start_s=status.payload_start_s if job.planned.has_payload else None,
                reason=status.reason,
                ran_s=units.ran_s(job),
            )
            yield from self._ended(job)

    def _ended(self, job: Job) -> Iterator[Record]:
        status = job.status
        self.nodes.heard(job)
        was_to_end = job.giving_up and status.state is not JobState.COMPLETED
        if not (job.given_up or status.reason == DUPLICATE or was_to_end):
            end_s = status.end_s if status.end_s is not None else status.submit_s
            yield from self.units.of(job).ended(self, job, end_s)

    def _revive(self, job: Job, status: JobStatus) -> None:
        """Record that an ended job was requeued by hand: it no longer belongs to the run."""
        if not status.state.is_final and job.planned.has_payload:
            self.jobs.revived(job, status)
            self.nodes.follow(job)
            self.may_have_lost = True

    def _note_end(self, job: Job) -> None:
        """Update the sets of jobs that have ended, or that others can no longer depend on."""
        self.may_have_lost |= job.is_void or job.status.reason == HOPELESS
        if job.status.state.is_final:
            self.jobs.ended(job)
            self.accounts.ended(job)

    def lost_jobs(self) -> list[tuple[str, str]]:
        """Return unended jobs that are useless, and why; searched only after something went wrong."""
        live = [self.jobs[job_id] for job_id in self.jobs.live()] if self.may_have_lost else []
        lost = [(job.status.job_id, why) for job in live if (why := self.why_lost(job))]
        self.may_have_lost = bool(lost)
        return lost

    def why_lost(self, job: Job) -> str:
        """Say why a job is useless; empty if it is not."""
        return self.units.of(job).why_lost(self, job)

    def _requeued(self, job: Job, was: JobStatus) -> Iterator[News]:
        """Record that the batch system requeued a job that had started: its unfinished stages have not begun."""
        yield Requeued(
            time_s=max(job.status.submit_s, was.start_s or 0.0),
            run=self.name,
            stages=job.planned.stages,
            job_id=job.status.job_id,
            reason=job.status.reason,
        )
        # its first wait is already observed or unknown, and the new one did not begin with a submission
        job.observed = True
        job.resized = 0
        if not job.given_up and job.planned.has_payload:
            self.accounts.requeued(job, was)
            for name in self.left_of(job):
                view = self.stages[name]
                has_ended = view.ended_s is not None
                self.stages.change(
                    name,
                    phase=Phase.QUEUED,
                    started_s=view.started_s if has_ended else None,
                    hold_until_s=None,
                    limit_s=None,
                    submit_s=view.submit_s if has_ended else job.status.submit_s,
                )

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

    def _resized(self, job: Job) -> Iterator[Record]:
        """Record cores given back since the last report, by the job itself and by jobs that joined it."""
        line = self.line_of(job)
        widths_by_job = self.accounts.widths_in(line) if line[0].status.steps else {}
        for part in line if line[0] is job else [job]:
            changes = widths_by_job.get(part.status.job_id, [])[1:]
            for at_s, cores in changes[part.resized :]:
                if cores:  # otherwise the job has ended
                    yield Resized(
                        time_s=at_s,
                        run=self.name,
                        stages=part.planned.stages,
                        job_id=part.status.job_id,
                        cores=cores,
                    )
            part.resized = len(changes)
