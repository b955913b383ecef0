"""What a run knows of itself, and how news from the batch system changes it; nothing here touches the world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from asa.backend import Capabilities, ElementEnd, JobState, JobStatus, StepTimes
from asa.exactly_once import NUMBER_LOST, TWIN
from asa.observations import observation_of
from asa.outcome import JobOutcome, outcome_of
from asa.records import (
    Cancelled,
    Deferred,
    Ended,
    Observed,
    Outcome,
    Record,
    Requeued,
    Resized,
    Retrying,
    RunEnded,
    RunResumed,
    RunStarted,
    StageEnded,
    StageStarted,
    Started,
    Submitted,
)
from asa.runner.accounts import Accounts, growth_view
from asa.runner.arrays import Arrays, ends_of, how_they_ended
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
    Refused,
    Reported,
    Retried,
    Shaped,
    Sought,
    Stopped,
    Surplus,
    Unsent,
)
from asa.runner.host import Host
from asa.runner.jobs import Job, JobsOfRun, round_of
from asa.runner.lost import HOPELESS, is_void_for, why_lost
from asa.runner.nodes import Nodes, moved
from asa.runner.put_off import PutOff
from asa.runner.retries import (
    has_run_out_of_memory,
    idled_out,
    is_short,
    learned,
    may_retry,
    tried_again,
    why,
    with_more_memory,
)
from asa.runner.sharing import MAX_ROUNDS, NOTHING_LEFT, Sharing, handed_to, may_go_on, ran_out
from asa.runner.stages import Stages
from asa.strategies.base import Choice, Phase, PlannedJob, RunView, StageView
from asa.waits import WaitObservation
from asa.waves import Waves, slots_of, walltime_of, waves_of
from asa.workflow import Slot, Stage, Workflow

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
    Extended,
    Claimed,
    Closed,
)  # of themselves; see `RunState.lost_jobs`


@dataclass(frozen=True, slots=True)
class Observation:
    """A job's wait became known, which is something to learn."""

    record: Observed  # of it, for who follows the run
    job: Job
    observation: WaitObservation  # what is known of it


News = Record | Observation


@dataclass(slots=True)
class RunState:
    """One workflow's run."""

    name: str  # unique among the runs of a client
    workflow: Workflow
    capabilities: Capabilities
    # distinguishes this run's tokens from those of every other, which a site may remember: letters and digits
    unique: str
    # how long each stage really runs; simulators only, the expected times if not given
    run_s: Mapping[str, float] | None = None
    place: str = ""  # folder in which stages keep what they remember when they are run again; empty for none
    stages: Stages = field(init=False)  # what is true of each stage
    jobs: JobsOfRun = field(default_factory=JobsOfRun)
    host: Host = field(default_factory=Host)
    choices: dict[str, Choice] = field(default_factory=dict)  # by stage, the shape that was chosen for it
    refused: dict[str, str] = field(default_factory=dict)  # stages whose job was refused for good, and why
    # how often a stage that had completed was asked for again, with all that follow it
    generations: dict[str, int] = field(default_factory=dict)
    outcome: Outcome | None = None  # how the run ended; None until then
    reason: str = ""
    # what the strategy meant to submit when it was last asked; for show, and in no journal
    planned: tuple[PlannedJob, ...] = ()
    # whether the run ends as soon as a stage has failed, rather than when no other can run any more
    fail_fast: bool = True  # as runs were that began before there was a choice
    _reasons: list[str] = field(default_factory=list, init=False)  # of the failures so far
    _may_have_lost: bool = field(default=True, init=False)
    sharing: Sharing = field(default_factory=Sharing, init=False)  # jobs that run a stage together
    arrays: Arrays = field(default_factory=Arrays, init=False)  # elements of stages that are arrays
    accounts: Accounts = field(init=False)  # of what the jobs held and idled
    put_off: PutOff = field(default_factory=PutOff, init=False)  # jobs that were not accepted yet
    nodes: Nodes = field(init=False)  # on which jobs fail
    asked_again: int = field(default=0, init=False)  # how often jobs were; a plan that was made before is out of date

    def __post_init__(self) -> None:
        self.workflow = self._as_run_here(self.workflow)
        self.stages = Stages(self.workflow)
        self.accounts = Accounts(self.jobs)
        self.nodes = Nodes(self.capabilities)

    def _as_run_here(self, workflow: Workflow) -> Workflow:
        """Have elements of arrays take turns where the batch system has no arrays."""
        site = self.capabilities
        return workflow if site.arrays else workflow.in_turn(site.max_cores, site.cores_per_node)

    def mark(self, stage: str) -> str:
        """Name what a stage leaves behind; of one that is run once more, otherwise than before."""
        generation = self.generations.get(stage, 0)
        return f"{stage}@{generation}" if generation else stage

    def post(self, stage: str) -> str:
        """Name what a stage posts when it has completed."""
        return f"{self.unique}/{self.mark(stage)}"

    def view(self, now_s: float) -> RunView:
        """Show what is true now to a strategy."""
        return RunView(
            self.workflow,
            self.stages.copy(),
            now_s,
            self.capabilities,
            spent=self.accounts.spent,
            growths=tuple(map(growth_view, self.accounts.growing)),
            ready=self.stages.ready,
            turn=self.stages.turn,
            first=self.stages.first,
            idle_core_hours=self.accounts.idle_core_hours(now_s),
        )

    def apply(self, entry: Entry) -> Iterator[News]:  # noqa: C901, PLR0912, PLR0915 - one case an entry
        """Take in what happened; give what follows from it, in order. The iterator must be run to its end."""
        self._may_have_lost |= not isinstance(entry, _HARMLESS)
        self.put_off.heard(entry, self)
        match entry:
            case Begun(at_s=at_s, fail_fast=fail_fast, is_open=is_open):
                self.fail_fast, self.host.is_open = fail_fast, is_open
                self.host.gate(self.workflow.order if is_open else (), self.stages)
                yield RunStarted(time_s=at_s, run=self.name)
            case Shaped(stage=name, choice=choice):
                self.choices[name] = choice
                view = self.stages[name]
                self.stages.put(name, replace(view, stage=view.stage.shaped(choice.shape)))
            case Intended():
                self.jobs.intended(entry)
                self.host.awaited(entry, self.stages)
            case Again(token=token):
                self.jobs.intended(self.jobs.intents[token])
            case Narrowed(stage=name, size=size, is_compact=is_compact):
                self.arrays.narrowed(name, size, is_compact=is_compact)
                self.asked_again += 1
            case Sought(at_s=at_s):
                self.jobs.sought_s = at_s
            case Accepted(token=token, status=status):
                yield self._accepted(token, status)
            case Unsent(token=token, at_s=at_s, reason=reason, doubtful=doubtful):
                if doubtful:
                    self.jobs.doubtful[token] = at_s
                if (intent := self.jobs.settled()) is not None:
                    yield Deferred(time_s=at_s, run=self.name, stages=intent.planned.stages, reason=reason)
            case Surplus(token=token, job_id=job_id, at_s=at_s):
                ours = next((job.status.job_id for job in self.jobs.values() if job.spec.token == token), None)
                reason = f"a duplicate of job {ours}" if ours else "it turned up when it was not needed any more"
                yield self._cancelled_record(self.jobs.intents[token].planned, job_id, reason, at_s)
            case Reported(status=status):
                yield from self._update(status)
            case GivingUp(job_id=job_id, reason=reason, at_s=at_s):
                self.jobs.condemn(job_id, reason, at_s)
            case GivenUp(job_id=job_id, reason=reason, at_s=at_s):
                job = self.jobs[job_id]
                job.giving_up, job.given_up = reason, True
                yield self._cancelled_record(job.planned, job_id, reason, at_s)
                yield from self._steps_done(job)
                if job.spec.bag:
                    yield from self._left_bag(job, at_s)
                else:
                    self._ask_again(job)
                yield from self._end_if_settled(at_s)
            case Refused(token=token, at_s=at_s, reason=reason) if self.jobs.intents[token].planned.leg:
                self.jobs.settled()
                name = self.jobs.intents[token].planned.stages[0]
                self.stages.put(name, replace(self.stages[name], is_unyielding=True))
                yield Deferred(time_s=at_s, run=self.name, stages=(name,), reason=reason)
            case Refused(token=token, at_s=at_s, reason=reason) if (
                self.jobs.intents[token].planned.mate and self.jobs.intents[token].spec.array is None
            ):
                self.jobs.settled()
                self.sharing.refused(round_of(self.jobs.intents[token].planned, self.jobs.intents[token].spec))
                yield Deferred(
                    time_s=at_s, run=self.name, stages=self.jobs.intents[token].planned.stages, reason=reason
                )
            case Refused(token=token, at_s=at_s, reason=reason):
                self.jobs.settled()
                back = [name for name in self.jobs.intents[token].planned.stages if self.host.may_hand_over(name)]
                failed = [name for name in self.jobs.intents[token].planned.stages if name not in back]
                for name in back:
                    yield from self._hand_back(name, reason, at_s)
                self.refused |= dict.fromkeys(failed, reason)
                if failed:
                    yield from self._fail(failed, reason, at_s)
            case Stopped(outcome=outcome, reason=reason, at_s=at_s, refused=refused):
                if refused and (intent := self.jobs.open_intent) is not None and intent.token == refused:
                    self.jobs.settled()
                    self.refused |= dict.fromkeys(intent.planned.stages, reason)
                if self.outcome is None:
                    yield self._end(outcome, reason, at_s)
            case Retried(at_s=at_s, stages=stages):
                if entry.revised:
                    revised = Workflow(self.workflow.name, entry.revised, walltime_s=entry.walltime_s)
                    self.workflow = self._as_run_here(revised)
                yield self._retry(at_s, stages)
                yield from self._end_if_settled(at_s)
            case Extended() | Claimed() | Dropped() | Closed():
                yield from self._hosted(entry)

    def _hosted(self, entry: Extended | Claimed | Dropped | Closed) -> Iterator[News]:
        """Take in what the host of an open run wants."""
        match entry:
            case Extended(stages=stages, impossible=impossible):
                self.workflow = self.workflow.with_more(stages)
                self.stages.extend(self.workflow)
                self.host.gate([stage.name for stage in stages], self.stages)
                self.host.attempts_failed |= impossible
            case Claimed() if entry.impossible:
                yield from self._claimed_in_vain(entry)
            case Claimed():
                self.host.claimed(entry, self.stages)
            case Dropped(at_s=at_s):
                self.host.dropped(entry, self.stages)
                yield from self._end_if_settled(at_s)
            case Closed(at_s=at_s):
                self.host.is_open = False
                yield from self._end_if_settled(at_s)

    def _claimed_in_vain(self, entry: Claimed) -> Iterator[News]:
        """Take in that a stage was handed over of which a job could never start."""
        name = entry.stage
        self.host.unopened[name] = None
        if entry.may_come_again:
            yield from self._hand_back(name, entry.impossible, entry.at_s)
            return
        del self.host.unclaimed[name]
        self.refused[name] = entry.impossible
        self.stages.ungate(name)
        yield from self._fail([name], entry.impossible, entry.at_s)

    def at_most(self, walltime_s: float, stages: Iterable[str], partition: str) -> float:
        """Cut a walltime to what its partition gives, if what the stages ask for by themselves fits into that."""
        limits = self.capabilities.partitions.get(partition or self.capabilities.partition)
        max_s = limits.max_walltime_s if limits is not None else None
        own = [self.workflow.stages[name] for name in self.workflow.in_order(stages)]
        if any(one.name in self.choices for one in own):
            lasts_s = (self.choices[s.name].shape.walltime_s if s.name in self.choices else s.walltime_s for s in own)
            asked_s = sum(lasts_s)
        else:
            asked_s = walltime_of(waves_of(own, self.capabilities))
        return walltime_s if max_s is None or asked_s > max_s else min(walltime_s, max_s)

    def waves(self, names: Sequence[str], widths: Sequence[int] = ()) -> Waves:
        """Say which stages of a job run at the same time; one after the other in chosen shapes, or if it grows."""
        stages = [self.stages[name].stage for name in self.workflow.in_order(names)]
        if widths or not self.choices.keys().isdisjoint(names):
            return tuple((stage,) for stage in stages)
        return waves_of(stages, self.capabilities)

    def layout(self, planned: PlannedJob) -> tuple[Slot, ...]:
        """Place the stages of a job inside it: in waves, and in the shapes that were chosen for them."""
        lasts_s = {name: self._lasts_s(name) for name in planned.stages}
        return slots_of(self.waves(planned.stages, planned.widths), lasts_s)

    def _lasts_s(self, name: str) -> float:
        """Say how long a stage runs: what is expected, or in a simulation how long it really does."""
        expected_s = self.workflow.stages[name].expected_s
        really_s = expected_s if self.run_s is None else self.run_s[name]
        if name not in self.choices:
            return really_s
        width = self.choices[name].shape.width
        run_s = next(shape.run_s for shape in self.workflow.stages[name].shapes if shape.width == width)
        return really_s * run_s / expected_s

    def _accepted(self, token: str, status: JobStatus) -> Record:
        job, former = self.jobs.accepted(token, status)
        planned, spec = job.planned, job.spec
        self._may_have_lost |= former is not None or any(self.stages[name].phase.is_settled for name in planned.stages)
        self.accounts.accepted(job, is_first=former is None)
        self.sharing.accepted(job)
        self.arrays.accepted(job, planned.stages[0])
        predicted = planned.prediction.wait_s if planned.prediction else None
        widths = {step.name: step.cores for step in spec.steps} if planned.widths else {}
        for name in planned.stages if not planned.joins else ():
            if job.spec.leg and planned.leg and self.stages[name].job_id is not None:
                self.stages.put(name, replace(self.stages[name], next_job_id=status.job_id))
            if self.stages[name].phase.is_settled or not self._is_to_lead(job, former):
                continue
            queued = replace(
                self.stages[name],
                phase=Phase.QUEUED,
                job_id=status.job_id,
                submit_s=status.submit_s,
                keep=planned.keep,
                predicted_wait_s=predicted,
                cores=widths.get(name, 0),
            )
            self.stages.put(name, queued)
        first = self.stages[planned.stages[0]]
        again = len(self.accounts.former_growths(planned)) if planned.joins else first.resubmissions
        is_in_turn = bool(spec.leg) and not planned.leg and spec.leg + first.earlier_legs > 1
        return Submitted(
            time_s=status.submit_s,
            run=self.name,
            stages=planned.stages,
            job_id=status.job_id,
            cores=spec.cores,
            walltime_s=spec.walltime_s,
            keep=planned.keep,
            predicted_wait_s=predicted,
            resubmission=again,
            reason=f"leg {spec.leg + first.earlier_legs}, in its turn" if is_in_turn else planned.reason,
            joins=planned.joins,
            shares=bool(spec.bag),
            array=str(spec.array) if spec.array is not None else "",
        )

    def _is_to_lead(self, job: Job, former: Job | None) -> bool:
        """Whether a job that was accepted stands for its stages: not where another that shares them does already."""
        leads = self.stages[job.planned.stages[0]].job_id
        return not job.spec.bag or leads is None or (former is not None and former.status.job_id == leads)

    def _cancelled_record(self, planned: PlannedJob, job_id: str, reason: str, at_s: float) -> Record:
        return Cancelled(time_s=at_s, run=self.name, stages=planned.stages, job_id=job_id, reason=reason)

    def _end(self, outcome: Outcome, reason: str, at_s: float) -> Record:
        self.outcome, self.reason = outcome, reason
        return RunEnded(time_s=at_s, run=self.name, outcome=outcome, reason=reason)

    def _retry(self, at_s: float, stages: Sequence[str]) -> Record:
        """Let every stage that has not completed wait for another job, and those that are to be run once more."""
        self.outcome, self.reason = None, ""
        self.jobs.settled()
        self.refused.clear()
        self._reasons.clear()
        self.nodes.anew()
        once_more = self.workflow.with_followers(stages)
        for name in once_more:  # what it posted and noted the last time does not count any more
            self.generations[name] = self.generations.get(name, 0) + 1
        self.stages = self.taken_up(stages)
        for name in self.workflow.arrays:
            self.arrays.anew(self.post(name))
        self.host.gate(self.host.unclaimed, self.stages)
        for name in [name for name in self.choices if self.stages[name].phase is not Phase.DONE]:
            del self.choices[name]
        anew = tuple(name for name in self.workflow.order if name in once_more)
        return RunResumed(time_s=at_s, run=self.name, anew=anew)

    def taken_up(self, stages: Sequence[str]) -> Stages:
        """Say what would be true of the stages were the run tried again, and some stages run once more."""
        once_more, taken_up = self.workflow.with_followers(stages), Stages(self.workflow)
        for name, view in self.stages.items():
            if view.phase is not Phase.DONE or name in once_more:
                again = view.resubmissions + (view.job_id is not None)
                fresh = StageView(self._left_to_run(name, anew=name in once_more), resubmissions=again)
                view = fresh if name in once_more else _with_past(fresh, view)  # noqa: PLW2901
            taken_up.put(name, view)
        taken_up.settle_anew()
        return taken_up

    def _left_to_run(self, name: str, *, anew: bool) -> Stage:
        """Ask of an array for those elements alone that have not completed."""
        stage = self.workflow.stages[name]
        if stage.array is None or stage.takes_turns or anew:
            return stage
        left = self.arrays.open(self.post(name), stage.array)
        return replace(stage, array=stage.array.only(left)) if left else stage

    # ------------------------------------------------------------------ what the batch system tells

    def _update(self, status: JobStatus) -> Iterator[News]:
        job = self.jobs[status.job_id]
        if job.status.state.is_final:
            self._revive(job, status)
            return
        was, job.status = job.status, status
        self.arrays.heard(job)
        self.nodes.follow(job)
        self._note_end(job)
        requeued = status.restarts > was.restarts or (was.start_s is not None and status.start_s is None)
        if requeued:
            yield from self._requeued(job, was)
            self._hand_over(job)
        name, stages, job_id = self.name, job.planned.stages, status.job_id
        self._lead_if_first(job)
        if status.start_s is not None and (was.start_s is None or requeued):
            yield Started(time_s=status.start_s, run=name, stages=stages, job_id=job_id)
            self._allocated(job, status.start_s)
        observation = None if job.spec.local else observation_of(job.spec, status, self.capabilities)
        if observation and not job.observed:
            job.observed = True
            yield Observation(self._observed(job, observation), job, observation)
        if status.payload_start_s is not None and (was.payload_start_s is None or requeued):
            yield from self._payload_began(job, status.payload_start_s)
        self._tell_steps(job, was.steps)
        if job.spec.has_waves:  # what follows a short one is not to wait for the others
            yield from self._steps_done(job)
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
                payload_start_s=status.payload_start_s if not job.planned.joins else None,
                reason=status.reason,
                ran_s=status.elements.ran_s if status.elements and job.spec.array else None,
            )
            yield from self._ended(job)

    def _revive(self, job: Job, status: JobStatus) -> None:
        """Note that a job which had ended was started once more, by hand: it is nobody's any more."""
        if not status.state.is_final and not job.planned.joins:
            self.jobs.revived(job, status)
            self.nodes.follow(job)
            self._may_have_lost = True

    def _note_end(self, job: Job) -> None:
        """Keep count of jobs that have ended, or that others can no longer depend on."""
        self._may_have_lost |= job.is_void or job.status.reason == HOPELESS
        if job.status.state.is_final:
            self.jobs.ended(job)
            self.accounts.ended(job)

    def lost_jobs(self) -> list[tuple[str, str]]:
        """Name live jobs that are of no use any more, and say why; looked for only after something went wrong."""
        live = self.jobs.live() if self._may_have_lost else []
        lost = [(one, why) for one in live if (why := why_lost(self, self.jobs[one]))]
        self._may_have_lost = bool(lost)
        return lost

    def _left_of(self, job: Job) -> list[str]:
        """Name the stages of a job that are its own still, and not settled."""
        views = (self.stages[name] for name in job.planned.stages)
        return [v.stage.name for v in views if v.job_id == job.status.job_id and not v.phase.is_settled]

    def _requeued(self, job: Job, was: JobStatus) -> Iterator[News]:
        """Note that the batch system put a job that had started back into the queue: its stages have not begun."""
        yield Requeued(
            time_s=max(job.status.submit_s, was.start_s or 0.0),
            run=self.name,
            stages=job.planned.stages,
            job_id=job.status.job_id,
            reason=job.status.reason,
        )
        job.observed = True  # its first wait was reported, or is not known; what it waits now began in the middle
        job.resized = 0
        if not job.given_up and not job.planned.joins:
            self.accounts.requeued(job, was)
            for name in self._left_of(job):
                view = self.stages[name]
                has_ended = view.ended_s is not None
                queued = replace(
                    view,
                    phase=Phase.QUEUED,
                    started_s=view.started_s if has_ended else None,
                    hold_until_s=None,
                    limit_s=None,
                    submit_s=view.submit_s if has_ended else job.status.submit_s,
                )
                self.stages.put(name, queued)

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
        if job.given_up or job.planned.joins:
            return
        for name in self._left_of(job):
            self.stages.put(name, replace(self.stages[name], phase=Phase.RUNNING))
        first = job.planned.stages[0]
        if job.spec.leg and self.stages[first].job_id == job.status.job_id:
            self.stages.put(first, replace(self.stages[first], leg_start_s=at_s))
        has_begun = self.stages[first].started_s is not None
        if job.spec.bag and ((began_s := self.sharing.began_s(job, at_s)) < at_s or has_begun):
            if self.stages[first].job_id == job.status.job_id and self.stages[first].started_s is None:
                self.stages.put(first, replace(self.stages[first], started_s=began_s))
            return  # another job began the stage
        if self.stages[first].ended_s is not None:
            return  # it completed before the job was put back into the queue
        if len(job.planned.stages) == 1 and job.status.steps:  # so did this one
            at_s = job.status.steps[0].start_s
        began_s = self.stages.in_order(first, at_s)
        self.stages.put(first, replace(self.stages[first], started_s=began_s))
        if len(job.planned.stages) == 1:  # of several, when each began is reported in the end
            yield StageStarted(time_s=began_s, run=self.name, stages=(first,), job_id=job.status.job_id)

    def _tell_steps(self, job: Job, reported: Sequence[StepTimes]) -> None:
        """Note when stages began and ended that share a job, which is done only when it ends; earlier reports stand."""
        known = set(reported)
        for step in job.status.steps if len(job.planned.stages) > 1 else ():
            view = self.stages[step.name]
            is_its = view.job_id == job.status.job_id and view.phase is Phase.RUNNING
            if is_its and step not in known and view.ended_s is None:
                self._note_times(step.name, step.start_s, step.end_s)

    def _note_times(self, stage: str, start_s: float, end_s: float | None) -> tuple[float, float]:
        """Note when a stage began and ended, in the workflow's order; give what was noted."""
        start_s = self.stages.in_order(stage, start_s)
        known_end_s = None if end_s is None else max(start_s, self.stages.in_order(stage, end_s))
        view = self.stages[stage]
        asked_s = view.submit_s if view.submit_s is None else min(view.submit_s, start_s)  # before a requeue, perhaps
        self.stages.put(stage, replace(view, started_s=start_s, ended_s=known_end_s, submit_s=asked_s))
        return start_s, start_s if known_end_s is None else known_end_s

    def _resized(self, job: Job) -> Iterator[Record]:
        """Tell of the cores that were given back since the last report: a job's own, and those that joined it."""
        widths_by_job = self.accounts.widths_with(self.jobs[job.planned.joins] if job.planned.joins else job)
        others = self.accounts.growths_of(job.status.job_id) if job.planned.widths else []
        for one in (job, *others):
            changes = widths_by_job.get(one.status.job_id, [])[1:]
            for at_s, cores in changes[one.resized :]:
                if cores:  # else it has ended
                    yield Resized(
                        time_s=at_s,
                        run=self.name,
                        stages=one.planned.stages,
                        job_id=one.status.job_id,
                        cores=cores,
                    )
            one.resized = len(changes)

    def _ended(self, job: Job) -> Iterator[Record]:
        status = job.status
        self.nodes.heard(job)
        if job.given_up or status.reason == TWIN or job.planned.joins:
            return
        if job.giving_up and status.state is not JobState.COMPLETED:
            return  # whatever ended it, it was to end
        end = status.end_s if status.end_s is not None else status.submit_s
        if job.spec.bag:
            yield from self._left_bag(job, end)
            return
        if status.state is JobState.COMPLETED and status.payload_start_s is not None:
            yield from self._stages_done(job, status.payload_start_s, end)
            return
        yield from self._steps_done(job)
        left = self._left_of(job)
        yield from self._last_step_began(job, self._ended_in(job, left))
        if not left:
            yield from self._end_if_settled(end)
        else:
            yield from self._cut_short(job, left, end)

    def _cut_short(self, job: Job, left: Sequence[str], end: float) -> Iterator[Record]:
        """Decide what becomes of stages whose job ended before they did."""
        status = job.status
        if idled_out(job):
            self._ask_again(job)
        elif self.outcome is not None:
            return
        elif status.start_s is None and (
            status.reason == NUMBER_LOST or any(is_void_for(self, job, one) for one in self.jobs.needed(job))
        ):
            self._ask_again(job)  # the batch system lost it, or cancelled what could never start
        elif len(culprits := self._ended_in(job, left)) > 1 or culprits != left[:1]:
            yield from self._cut_short_in_wave(job, left, culprits, end)
        elif node := self._at_fault(job, left[0], status):
            self._ask_again(job)
            yield Retrying(
                time_s=end, run=self.name, stages=tuple(left), job_id=status.job_id, reason=moved(why(status), node)
            )
        elif is_short(job, self.stages[left[0]]):
            self._ask_again(job)
            short = "its job came back with fewer cores than it needs"
            yield Retrying(time_s=end, run=self.name, stages=tuple(left), job_id=status.job_id, reason=short)
        elif may_retry(job, self.stages[left[0]]):
            self._ask_again(job)
            before = self.stages[left[0]].stage
            self._count_attempt(left[0], ends_of(job), end)
            reason = why(status) + learned(before, self.stages[left[0]].stage)
            yield Retrying(time_s=end, run=self.name, stages=tuple(left), job_id=status.job_id, reason=reason)
        else:
            # who cancels a job wants none of what is left in it
            failed_now = left if status.state is JobState.CANCELLED and not self.host.is_open else left[:1]
            if left[0] in self.host.repeatable:
                self._ask_again(job)
                yield from self._hand_back(left[0], why(status), end, status.job_id)
                return
            one = f"stage {failed_now[0]!r}" if len(failed_now) == 1 else f"the job of {len(failed_now)} stages"
            self._ask_again(job, but=failed_now)
            yield from self._fail(failed_now, f"{one} ended as {why(status)}", end)

    def _at_fault(self, job: Job, name: str, end: JobStatus | ElementEnd) -> str:
        """Name the node at fault for how a stage of a job ended, off which it is asked for again; empty for none."""
        return self.nodes.moves(self.stages[name].stage, end, job)

    def _ended_in(self, job: Job, left: Sequence[str]) -> list[str]:
        """Name the stages that a job's end ended: the first that is left, or those of its wave that ran or failed."""
        if len(job.planned.stages) == 1 or not job.spec.has_waves:
            return list(left[:1])
        steps = {step.name: step for step in job.status.steps if step.name in left}
        failed = [name for name in left if name in steps and steps[name].exit_code is not None]
        return failed or [name for name in left if name in steps] or list(left[:1])

    def _cut_short_in_wave(
        self, job: Job, left: Sequence[str], culprits: Sequence[str], end: float
    ) -> Iterator[Record]:
        """Decide what becomes of stages that ran side by side in a job: of each that failed, and of all others."""
        status = job.status
        steps = {step.name: step for step in status.steps}
        ends = {name: _as_of_step(status, steps.get(name)) for name in culprits}
        judged = culprits if status.state is not JobState.CANCELLED else ()
        fault = {name: node for name in judged if (node := self._at_fault(job, name, ends[name]))}
        own = [name for name in culprits if name not in fault]
        again = [name for name in own if name in self.host.repeatable]
        tried = [n for n in own if n not in again and may_retry(replace(job, status=ends[n]), self.stages[n])]
        failed = [name for name in own if name not in again and name not in tried]
        if status.state is JobState.CANCELLED and not self.host.is_open:
            failed = [name for name in left if name not in again]
        self._ask_again(job, but=failed)
        for name, node in fault.items():
            reason = moved(why(ends[name]), node)
            yield Retrying(time_s=end, run=self.name, stages=(name,), job_id=status.job_id, reason=reason)
        for name in tried:
            before = self.stages[name].stage
            self._count_attempt(name, [ends[name]], end)
            reason = why(ends[name]) + learned(before, self.stages[name].stage)
            yield Retrying(time_s=end, run=self.name, stages=(name,), job_id=status.job_id, reason=reason)
        for name in again:
            yield from self._hand_back(name, why(ends[name]), end, status.job_id)
        by_reason: dict[str, list[str]] = {}
        for name in failed:
            reason = f"stage {name!r} ended as {why(ends.get(name, status))}"
            by_reason.setdefault(reason, []).append(name)
        for reason, names in by_reason.items():
            yield from self._fail(names, reason, end)

    # ------------------------------------------------------------------ jobs that share a stage

    def is_of_its_round(self, job: Job) -> bool:
        """Whether a job's stage has not ended, nor was asked for anew since."""
        view = self.stages[job.planned.stages[0]]
        current = self.jobs.get(view.job_id or "")
        return not view.phase.is_settled and current is not None and current.round == job.round

    def _lead(self, job: Job) -> None:
        """Let a job stand for the stage that it shares."""
        name = job.planned.stages[0]
        self.stages.put(name, handed_to(job, self.stages[name]))

    def _lead_if_first(self, job: Job) -> None:
        """Let a job stand for its stage that is further than the one that does."""
        if not job.spec.bag or job.status.state.is_final or not self.is_of_its_round(job):
            return
        view = self.stages[job.planned.stages[0]]
        has_begun, has_started = job.status.payload_start_s is not None, job.status.start_s is not None
        is_further = view.phase is Phase.QUEUED or (view.phase is Phase.ALLOCATED and has_begun)
        if has_started and is_further and view.job_id != job.status.job_id:
            self.stages.put(view.stage.name, replace(handed_to(job, view), phase=Phase.QUEUED))
            self._allocated(job, job.status.start_s or 0.0)

    def _hand_over(self, job: Job) -> bool:
        """Let another that shares its stage stand for it in place of a job; say whether there is one."""
        if not job.spec.bag or not self.is_of_its_round(job):
            return False
        others = self.sharing.others(job)
        leads = self.stages[job.planned.stages[0]].job_id == job.status.job_id
        if others and leads and (job.status.state.is_final or others[0].status.payload_start_s is not None):
            self._lead(others[0])
            if (start_s := others[0].status.start_s) is not None and others[0].status.payload_start_s is None:
                self._allocated(others[0], start_s)
        return bool(others)

    def _left_bag(self, job: Job, end: float) -> Iterator[Record]:
        """Decide what becomes of a stage when one of the jobs that share it has ended."""
        if not self.is_of_its_round(job):
            yield from self._end_if_settled(end)
            return
        status = job.status
        if job.spec.array is not None:
            yield from self._left_array(job)
            return
        self._may_have_lost |= not job.spec.leg and self.sharing.heard(job)
        is_done = status.state is JobState.COMPLETED and status.reason != NOTHING_LEFT
        if is_done and status.payload_start_s is not None and not self.sharing.is_doubted(job):
            name = job.planned.stages[0]
            self.stages.put(name, replace(self.stages[name], job_id=status.job_id))
            self._may_have_lost = True
            yield from self._stages_done(job, status.payload_start_s, end)
            return
        if job.spec.leg:
            yield from self._left_leg(job, end)
            return
        if self._at_fault(job, job.planned.stages[0], status):
            self.sharing.moved(job)
        if self._hand_over(job):
            return
        last = self.sharing.decisive(job)
        name = job.planned.stages[0]
        self.stages.put(name, replace(self.stages[name], job_id=last.status.job_id))
        if may_go_on(last, self.stages[name]):
            self._ask_again(last)
            reason = "no job is left, but some tasks are"
            yield Retrying(time_s=end, run=self.name, stages=(name,), job_id=status.job_id, reason=reason)
        else:
            yield from self._cut_short(last, [name], end)

    # ------------------------------------------------------------------ arrays

    def _left_array(self, job: Job) -> Iterator[Record]:
        """Decide what becomes of a stage when a part of its array has ended."""
        name = job.planned.stages[0]
        view, bag = self.stages[name], job.spec.bag
        self._may_have_lost = True
        if (array := view.stage.array) is None or self._hand_over(job):
            return
        if self.arrays.left(job.round, array) and not job.giving_up and self.outcome is None:
            return  # the next part is to be asked for
        parts = [one.status for one in self.arrays.parts(job.round)]
        end = max((one.end_s for one in parts if one.end_s is not None), default=job.status.submit_s)
        view = replace(view, job_id=job.status.job_id)
        self.stages.put(name, view)
        if not self.arrays.open(bag, array):
            yield from self._stages_done(job, end if view.started_s is None else view.started_s, end)
            return
        if self.outcome is not None:
            return
        may_retry = view.attempts < view.stage.retries
        faults = {one: node for one in self.arrays.failed(bag) if (node := self._at_fault(job, name, one))}
        again, failed = self.arrays.again(bag, array, may_retry=may_retry, excused=faults)
        if again and (failed or view.resubmissions < MAX_ROUNDS):
            self._ask_again(job)
            if failed:
                self._count_attempt(name, failed, end)
            after = self.stages[name]
            self.stages.put(name, replace(after, stage=replace(after.stage, array=array.only(again))))
            count = sum(len(one.elements) for one in failed)
            why = f"{'element' if count == 1 else 'elements'} {how_they_ended(failed)}" if failed else ""
            why = why or (moved(f"elements {how_they_ended(faults)}", *faults.values()) if faults else "")
            why = why or f"{len(again)} {'element was' if len(again) == 1 else 'elements were'} not run"
            reason = why + learned(view.stage, after.stage)
            yield Retrying(time_s=end, run=self.name, stages=(name,), job_id=job.status.job_id, reason=reason)
        else:
            yield from self._fail([name], f"stage {name!r}: {self.arrays.why(bag, array)}", end)

    # ------------------------------------------------------------------ legs of a stage

    def _left_leg(self, job: Job, end: float) -> Iterator[Record]:
        """Decide what becomes of a stage when one of its legs has ended, and the stage has not."""
        name, status = job.planned.stages[0], job.status
        view = self.stages[name]
        if view.job_id != status.job_id:  # it was asked for ahead, and its turn did not come
            if view.next_job_id == status.job_id:
                self.stages.put(name, replace(view, next_job_id=None, is_unyielding=True))
            return
        if job.given_up:
            self._ask_again(job)
            return
        if outcome_of(status) is JobOutcome.UNYIELDING and self.sharing.spent(job.round, view.leg) <= MAX_ROUNDS:
            self._ask_for_leg(replace(view, is_unyielding=True), view.leg)  # the one before has ended since
            return
        if not (status.state is JobState.COMPLETED or ran_out(status)):
            yield from self._cut_short(job, [name], end)
            return
        began_s, self._may_have_lost = status.payload_start_s or end, True
        view = replace(view, ran_s=view.ran_s + max(end - began_s, 0.0), attempts=0)
        self.stages.put(name, view)
        legs = view.stage.continues
        if legs is not None and view.earlier_legs + view.leg >= legs.max_legs:
            yield from self._fail([name], f"stage {name!r} has not completed after its {legs.max_legs} legs", end)
        elif not self._hand_over(job):
            self._ask_for_leg(view, view.leg + 1)

    def _ask_for_leg(self, view: StageView, leg: int) -> None:
        """Let a leg be asked for whose turn it is."""
        self.asked_again += 1
        waiting = _with_past(StageView(view.stage, resubmissions=view.resubmissions, attempts=view.attempts), view)
        self.stages.put(view.stage.name, replace(waiting, leg=leg, earlier_legs=view.earlier_legs))

    def _hand_back(self, name: str, reason: str, at_s: float, job_id: str = "") -> Iterator[Record]:
        """Note that a stage failed which its host hands over once more, with what it asks for then.

        So did a job ahead of one that was not handed over yet: it is asked for no more before that.
        """
        self.host.handed_back(name, reason, self.stages)
        yield Retrying(time_s=at_s, run=self.name, stages=(name,), job_id=job_id, reason=reason)

    def _fail(self, stages: Iterable[str], reason: str, at_s: float) -> Iterator[Record]:
        """Note that stages failed for good; what does not depend on them goes on, unless the run is to end at once."""
        self._reasons.append(reason)
        for name in stages:
            self.stages.put(name, replace(self.stages[name], phase=Phase.FAILED, hold_until_s=None, reason=reason))
        if self.fail_fast and self.outcome is None:
            yield self._end("failed", reason, at_s)
        else:
            yield from self._end_if_settled(at_s)

    def _end_if_settled(self, at_s: float) -> Iterator[Record]:
        """End the run once nothing is left to do."""
        if self.outcome is not None or self.host.is_open or not self.stages.are_settled:
            return
        if not self._reasons:
            last_s = max((view.ended_s or 0.0 for view in self.stages.values()), default=at_s)
            yield self._end("completed", "", last_s)
            return
        first, *others = self._reasons
        yield self._end("failed", f"{first}; so did {len(others)} more" if others else first, at_s)

    def _count_attempt(self, name: str, ended: Sequence[JobStatus | ElementEnd], end_s: float) -> None:
        """Note that a stage failed, to be tried again after a pause; with more of what it ran out of."""
        view = self.stages[name]
        stage = view.stage
        if any(map(has_run_out_of_memory, ended)) and stage.memory_bytes:
            stage = with_more_memory(stage, self.capabilities)
        if any(one.state is JobState.TIMEOUT for one in ended):
            longer = self.at_most(stage.walltime_s * stage.retry_walltime_factor, [name], stage.partition)
            stage = replace(stage, walltime_s=longer, expected_run_s=min(stage.walltime_s, longer))
        self.stages.put(name, tried_again(replace(view, stage=stage), end_s))

    def _steps_done(self, job: Job) -> Iterator[Record]:
        """Note what completed in a job of several stages that did not run to its end."""
        steps = {step.name: step for step in job.status.steps if step.end_s is not None}
        for name in self._left_of(job) if len(job.planned.stages) > 1 else ():
            step, view = steps.get(name), self.stages[name]
            if step is not None and step.end_s is not None:
                yield from self._stage_done(job, name, step.start_s, step.end_s)
            elif view.started_s is not None and view.ended_s is not None:  # as was heard of it before
                yield from self._stage_done(job, name, view.started_s, view.ended_s)

    def _last_step_began(self, job: Job, stages: Iterable[str]) -> Iterator[Record]:
        """Tell when the stage began that did not complete, of several of a job; the others' are reported already."""
        for name in stages if len(job.planned.stages) > 1 else ():
            if (began_s := self.stages[name].started_s) is not None:
                yield StageStarted(time_s=began_s, run=self.name, stages=(name,), job_id=job.status.job_id)

    def _stage_done(self, job: Job, name: str, start_s: float, end_s: float) -> Iterator[Record]:
        """Note that a stage completed, as one of several of its job."""
        stages, job_id, view = (name,), job.status.job_id, self.stages[name]
        if (
            view.started_s is not None and view.ended_s is not None
        ):  # before its job was put back into the queue, perhaps
            start_s, end_s = view.started_s, view.ended_s
        start_s, end_s = self._note_times(name, start_s, end_s)
        self.stages.put(name, replace(self.stages[name], phase=Phase.DONE, hold_until_s=None))
        yield StageStarted(time_s=start_s, run=self.name, stages=stages, job_id=job_id)
        yield StageEnded(time_s=end_s, run=self.name, stages=stages, job_id=job_id)

    def _stages_done(self, job: Job, began_s: float, end_s: float) -> Iterator[Record]:
        job_id = job.status.job_id
        slots = self.layout(job.planned)
        steps = {step.name: step for step in job.status.steps}
        for slot in slots:
            if self.stages[slot.stage].phase is Phase.DONE:
                continue
            if len(slots) > 1:
                start, end = began_s + slot.start_s, min(began_s + slot.end_s, end_s)
                if (step := steps.get(slot.stage)) is not None:
                    start, end = step.start_s, end_s if step.end_s is None else step.end_s
                yield from self._stage_done(job, slot.stage, start, end)
                continue
            known = self.stages[slot.stage].started_s
            ended_s = job.status.steps[0].end_s if job.status.steps else None
            _, end = self._note_times(
                slot.stage, began_s if known is None else known, end_s if ended_s is None else ended_s
            )
            self.stages.put(slot.stage, replace(self.stages[slot.stage], phase=Phase.DONE))
            yield StageEnded(time_s=end, run=self.name, stages=(slot.stage,), job_id=job_id)
        yield from self._end_if_settled(end_s)

    # ------------------------------------------------------------------

    def _allocated(self, job: Job, start_s: float) -> None:
        if not job.given_up and not job.planned.joins:
            limit_s = start_s + job.spec.walltime_s
            needed_s = walltime_of(self.waves(job.planned.stages, job.planned.widths))
            hold_until = start_s + min(job.planned.spare_walltime_s, max(job.spec.walltime_s - needed_s, 0.0))
            for name in self._left_of(job):
                view = self.stages[name]
                self.stages.put(name, replace(view, phase=Phase.ALLOCATED, hold_until_s=hold_until, limit_s=limit_s))

    def _ask_again(self, job: Job, but: Sequence[str] = ()) -> None:
        """Let what is left of a job be asked for again."""
        self.asked_again += 1
        for name in [name for name in self._left_of(job) if name not in but]:
            view = self.stages[name]
            again = StageView(view.stage, resubmissions=view.resubmissions + 1, attempts=view.attempts)
            self.stages.put(name, _with_past(again, view))


def _as_of_step(status: JobStatus, step: StepTimes | None) -> JobStatus:
    """Give the end of a job as that of one of its steps, where that is known."""
    if step is None or (code := step.exit_code) is None:
        return status
    return replace(status, state=JobState.FAILED, exit_code=code, outcome=step.outcome, reason=f"exit code {code}")


def _with_past(view: StageView, before: StageView) -> StageView:
    """Let a stage that is asked for again know of the legs that it had."""
    if view.stage.continues is None:
        return view
    earlier = before.earlier_legs + before.leg - 1
    return replace(view, ran_s=before.ran_s, earlier_legs=earlier, is_unyielding=before.is_unyielding)
