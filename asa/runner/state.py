"""What a run knows of itself, and how news from the batch system changes it; nothing here touches the world."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from asa.backend import Capabilities, Dependency, DependencyType, JobSpec, JobState, JobStatus, Step, StepTimes
from asa.errors import InputError
from asa.estimators import OwnJob
from asa.estimators.base import WaitObservation, at_least, at_most, exactly
from asa.payload import HOPELESS_EXITS, meaning, payload_text
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
from asa.runner.entries import (
    Accepted,
    Again,
    Begun,
    Entry,
    GivenUp,
    GivingUp,
    Intended,
    Retried,
    Stopped,
    Surplus,
    Told,
    Unsent,
)
from asa.strategies.base import GrowthView, Keep, Phase, PlannedJob, RunView, StageView
from asa.units import core_hours
from asa.workflow import Slot, Stage, Workflow

__all__ = ["Job", "News", "Observation", "RunState", "observation_of", "queued_since"]

TWIN = "Twin"
"""Reason of a job that ended at once because another of its token runs the payload."""

_HOPELESS = "DependencyNeverSatisfied"
_NO_NEWS = frozenset({"", "None", "NonZeroExitCode"})  # reasons that tell less than the exit code
_PAUSE_S = 5.0  # before a stage that failed is tried again, at first
_LONGEST_PAUSE_S = 60.0
_NOTICE_S = 120.0  # a client looks at least once a minute, and a local stage begins and ends


@dataclass(slots=True)
class Job:
    """A job of the run: as planned, as asked for, and as last seen.

    Parameters
    ----------
    planned
        As the strategy wanted it.
    spec
        What was asked of the batch system.
    status
        As last seen.
    giving_up
        Why we are cancelling it, which the batch system may not have been told yet; empty if we are not.
    given_up
        Whether it was cancelled by us: its stages may have another job by now.
    observed
        Whether its wait was learned.
    known_as
        To the bank, once it queues.
    resized
        How often it was told since its start that it got narrower.
    """

    planned: PlannedJob
    spec: JobSpec
    status: JobStatus
    giving_up: str = ""
    given_up: bool = False
    observed: bool = False
    known_as: OwnJob | None = None
    resized: int = 0

    @property
    def is_void(self) -> bool:
        """What depends on it can never start."""
        ended_badly = self.status.state.is_final and self.status.state is not JobState.COMPLETED
        return bool(self.giving_up) or (ended_badly and self.status.reason != TWIN)


@dataclass(frozen=True, slots=True)
class Observation:
    """A job's wait became known, which is something to learn.

    Parameters
    ----------
    record
        Of it, for who follows the run.
    job
        Whose wait.
    observation
        What is known of it.
    """

    record: Observed
    job: Job
    observation: WaitObservation


News = Record | Observation


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
        Distinguishes this run's tokens from those of every other, which a site may remember: letters and digits.
    run_s
        How long each stage really runs; simulators only, the expected times if not given.
    place
        Folder in which stages keep what they remember when they are run again; empty for none.

    Attributes
    ----------
    stages
        What is true of each stage.
    jobs
        Every job that was accepted, by its id.
    open_intent
        A submission of which it is not known what became of it.
    intents
        The latest submission that was intended of each token.
    doubtful
        Tokens of which a second job may yet turn up.
    refused
        Stages whose job was refused for good, and why.
    generations
        How often a stage that had ended well was asked for again, with all that follow it.
    outcome, reason
        How the run ended; None until then.
    planned
        What the strategy meant to submit when it was last asked; for show, and in no journal.
    """

    name: str
    workflow: Workflow
    capabilities: Capabilities
    unique: str
    run_s: Mapping[str, float] | None = None
    place: str = ""
    stages: dict[str, StageView] = field(init=False)
    jobs: dict[str, Job] = field(default_factory=dict)
    open_intent: Intended | None = None
    intents: dict[str, Intended] = field(default_factory=dict)
    doubtful: dict[str, float] = field(default_factory=dict)  # and since when
    refused: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    outcome: Outcome | None = None
    reason: str = ""
    planned: tuple[PlannedJob, ...] = ()

    def __post_init__(self) -> None:
        self.stages = {name: StageView(stage) for name, stage in self.workflow.stages.items()}

    def view(self, now_s: float) -> RunView:
        """Show what is true now to a strategy."""
        spent = sum(map(self._core_hours, self.jobs.values()))
        growths = tuple(_growth_view(job) for job in self.jobs.values() if job.planned.joins)
        return RunView(self.workflow, dict(self.stages), now_s, self.capabilities, spent, growths)

    def apply(self, entry: Entry) -> Iterator[News]:  # noqa: C901, PLR0912 - one case an entry
        """Take in what happened; give what follows from it, in order. The iterator must be run to its end."""
        match entry:
            case Begun(at_s=at_s):
                yield RunStarted(time_s=at_s, run=self.name)
            case Intended():
                self.open_intent = self.intents[entry.token] = entry
            case Again(token=token):
                self.open_intent = self.intents[token]
            case Accepted(token=token, status=status):
                yield self._accepted(token, status)
            case Unsent(token=token, at_s=at_s, reason=reason, doubtful=doubtful):
                intent, self.open_intent = self.open_intent, None
                if doubtful:
                    self.doubtful[token] = at_s
                if intent is not None:
                    yield Deferred(time_s=at_s, run=self.name, stages=intent.planned.stages, reason=reason)
            case Surplus(token=token, job_id=job_id, at_s=at_s):
                ours = next((job.status.job_id for job in self.jobs.values() if job.spec.token == token), None)
                reason = f"a duplicate of job {ours}" if ours else "it turned up when it was wanted no more"
                yield self._cancelled_record(self.intents[token].planned, job_id, reason, at_s)
            case Told(status=status):
                yield from self._update(status)
            case GivingUp(job_id=job_id, reason=reason):
                self.jobs[job_id].giving_up = reason
            case GivenUp(job_id=job_id, reason=reason, at_s=at_s):
                job = self.jobs[job_id]
                job.giving_up, job.given_up = reason, True
                yield self._cancelled_record(job.planned, job_id, reason, at_s)
                yield from self._steps_done(job)
                self._ask_again(job)
            case Stopped(outcome=outcome, reason=reason, at_s=at_s, refused=refused):
                if refused and (intent := self.open_intent) is not None and intent.token == refused:
                    self.open_intent = None
                    self.refused |= dict.fromkeys(intent.planned.stages, reason)
                if self.outcome is None:
                    yield self._end(outcome, reason, at_s)
            case Retried(at_s=at_s, stages=stages):
                if entry.revised:
                    self.workflow = Workflow(self.workflow.name, entry.revised, walltime_s=entry.walltime_s)
                yield self._retry(at_s, stages)

    # ------------------------------------------------------------------ what the client does

    def spec_of(self, planned: PlannedJob) -> JobSpec:
        """Write the job that a plan asks for. Stages that share a job are laid out inside it."""
        if planned.joins:
            return self._growth_spec(planned)
        stages = [self.stages[name].stage for name in planned.stages]
        per_node = self.capabilities.cores_per_node
        widest = stages[:1] if planned.widths else stages
        cores = max(stage.cores_on(per_node) for stage in widest)
        nodes = max(stage.nodes or 0 for stage in widest)
        slots = self.workflow.layout(planned.stages, self.run_s)
        whole = len(planned.stages) == len(self.workflow.stages)
        walltime = sum(stage.walltime_s for stage in stages)
        if whole and len(stages) > 1:  # those that ran out of theirs have more than the workflow's own counts
            walltime += self.workflow.walltime_s - sum(stage.walltime_s for stage in self.workflow.stages.values())
        inside = set(planned.stages)
        before = [name for stage in stages for name in stage.after if name not in inside]
        waited_for = sorted(self._jobs_before(before)) if planned.keep is Keep.DEPENDENCY else []
        walltime += planned.spare_walltime_s
        if planned.keep is not Keep.NOTHING:
            walltime += self._local_before(before)
        partition = next((stage.partition for stage in stages if stage.partition), "")
        together = _in_one_piece(stages, per_node)
        return JobSpec(
            name=f"{self.name}/{'+'.join(planned.stages) if len(planned.stages) < 4 else self.workflow.name}",
            token=self.token_of(planned),
            cores=planned.widths[0] if planned.widths else _in_tasks(cores, together, nodes),
            walltime_s=self._at_most(walltime, planned.stages, partition),
            command=self._payload(stages[0]) if len(stages) == 1 else "",
            steps=self._steps(planned, slots) if len(stages) > 1 else (),
            partition=partition,
            account=next((stage.account for stage in stages if stage.account), ""),
            cpus_per_task=together,
            options=tuple(dict.fromkeys(option for stage in stages for option in stage.options)),
            local=all(stage.local for stage in stages),
            nodes=_nodes_for(cores, per_node, nodes),
            memory_bytes=max(stage.memory_bytes for stage in stages),
            gpus=max(stage.gpus for stage in stages),
            burst_buffer_bytes=max(stage.burst_buffer_bytes for stage in stages),
            dependencies=tuple(Dependency(job_id) for job_id in waited_for),
            # a dependency that a site drops starts the job, but not the payload
            awaits=self._awaited(before) if planned.keep is not Keep.NOTHING else (),
            posts=tuple(self._token(name) for name in planned.stages),
            run_s=max(slot.end_s for slot in slots),
        )

    def _growth_spec(self, planned: PlannedJob) -> JobSpec:
        """Write the job whose cores are to join another's: what that one's stage has more than the one before it."""
        job, [stage] = self.jobs[planned.joins], planned.stages
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
            name=f"{self.name}/{stage}+{cores}",
            token=self.token_of(planned),
            cores=cores,
            walltime_s=left_s,
            partition=job.spec.partition,
            account=job.spec.account,
            options=job.spec.options,
            dependencies=(Dependency(planned.joins, DependencyType.AFTER),),
        )

    def _awaited(self, before: Iterable[str]) -> tuple[str, ...]:
        """Name what stages are to post; those that ended well in a job that did not have posted nothing."""
        return tuple(self._token(name) for name in before if self.stages[name].phase is not Phase.DONE)

    def _steps(self, planned: PlannedJob, slots: Sequence[Slot]) -> tuple[Step, ...]:
        """Write the steps of stages that share a job, with what is planned, or the most that is still needed."""
        stages = [self.stages[slot.stage].stage for slot in slots]
        if planned.widths:
            widths = dict(zip(planned.stages, planned.widths, strict=True))
            return tuple(self._step(stage, widths[stage.name], slot) for stage, slot in zip(stages, slots, strict=True))
        per_node, by = self.capabilities.cores_per_node, self.capabilities.shrink_by if planned.shrinks else 0
        needs = [stage.cores_on(per_node) for stage in stages]
        if by and max(needs) % by:  # what it gets of which node is not known
            by = 0
        left = list(accumulate(reversed(needs), max))[::-1]
        keeps = [-(-need // by) * by if by else 0 for need in left]
        return tuple(map(self._step, stages, keeps, slots))

    def _step(self, stage: Stage, keeps: int, slot: Slot) -> Step:
        cores = _in_tasks(stage.cores_on(self.capabilities.cores_per_node), stage.cpus_per_task, stage.nodes or 0)
        return Step(
            stage.name,
            self._payload(stage),
            cores=keeps,
            slot_s=(slot.start_s, slot.end_s),
            tasks=cores // stage.cpus_per_task,
            cpus_per_task=stage.cpus_per_task,
            nodes=stage.nodes or 0,
        )

    def _jobs_before(self, before: Iterable[str]) -> set[str]:
        """Give the jobs that must end well before some stages have.

        A local stage has none in the queue: those before it stand for it, and the payload itself waits for it.
        """
        unmet = [name for name in before if self.stages[name].phase is not Phase.DONE]
        return set().union(
            *(
                self._jobs_before(self.stages[name].stage.after)
                if self.stages[name].stage.local
                else {self._job_of(name)}
                for name in unmet
            )
        )

    def _local_before(self, before: Iterable[str]) -> float:
        """Say for how many seconds an allocation may idle since the client has yet to run local stages."""
        views = [self.stages[name] for name in before]
        local = [view.stage for view in views if view.stage.local and view.phase is not Phase.DONE]
        return max((stage.expected_s + _NOTICE_S + self._local_before(stage.after) for stage in local), default=0.0)

    def token_of(self, planned: PlannedJob) -> str:
        """Name the job that a plan asks for. Asked again after a doubt, it is the same: these stages' n-th job."""
        first = planned.stages[0]
        if planned.joins:
            place, count = self.workflow.order.index(first) + 1, len(self._former_growths(planned))
            return f"{self.jobs[planned.joins].spec.token}-g{place}-{count}"
        group = f"x{len(planned.stages)}" if len(planned.stages) > 1 else ""
        return f"{self.unique[:12]}-{self.workflow.order.index(first) + 1}{group}-{self.stages[first].resubmissions}"

    def settled(self, planned: PlannedJob) -> PlannedJob:
        """Ask for stages whose job may yet turn up in no other company: in another job they would run twice.

        What comes before such stages in a planned job is asked for first.
        """
        if planned.joins:
            return planned
        group_of = {name: group for group in self._in_doubt() for name in group.stages}
        if not (shared := [name for name in planned.stages if name in group_of]):
            return planned
        before = planned.stages[: planned.stages.index(shared[0])]
        if before:
            return replace(planned, stages=before, widths=planned.widths[: len(before)] if len(before) > 1 else ())
        return replace(group_of[shared[0]], submit_s=planned.submit_s, keep=planned.keep)

    def _in_doubt(self) -> Iterator[PlannedJob]:
        """Give what was sent, is not known to have arrived, and has not been sent again."""
        sent = {job.spec.token for job in self.jobs.values()}
        for token in self.doubtful.keys() - sent:
            planned = self.intents[token].planned
            if not planned.joins and self.stages.keys() >= set(planned.stages) and self.token_of(planned) == token:
                yield planned

    def earliest_s(self, planned: PlannedJob) -> float:
        """Say before when a planned job must not be submitted; infinity while it hangs on what others do.

        A local one is submitted when the stages before it have ended; one that failed, after a pause; and one that
        depends on such, not before it.
        """
        if planned.joins:
            return -math.inf
        views = [self.stages[name] for name in planned.stages]
        before = {name for view in views for name in view.stage.after} - set(planned.stages)
        if all(view.stage.local for view in views) and any(
            self.stages[name].phase is not Phase.DONE for name in before
        ):
            return math.inf
        return max(*(view.not_before_s for view in views), self._pause_before(before))

    def _pause_before(self, before: Iterable[str]) -> float:
        """Say until when stages without jobs pause that some stages follow."""
        waiting = [view for name in before if (view := self.stages[name]).phase is Phase.WAITING]
        return max(
            (max(view.not_before_s, self._pause_before(view.stage.after)) for view in waiting), default=-math.inf
        )

    def _at_most(self, walltime_s: float, stages: Iterable[str], partition: str) -> float:
        """Cut a walltime to what its partition gives, if what the stages ask for by themselves fits into that."""
        limits = self.capabilities.partitions.get(partition or self.capabilities.partition)
        most_s = limits.max_walltime_s if limits is not None else None
        asked_s = sum(self.workflow.stages[name].walltime_s for name in stages)
        return walltime_s if most_s is None or asked_s > most_s else min(walltime_s, most_s)

    def _payload(self, stage: Stage) -> str:
        place = f"{self.place}/tasks/{self._mark(stage.name)}" if self.place else ""
        return payload_text(stage, stage.cores_on(self.capabilities.cores_per_node), place=place)

    def live_jobs(self) -> list[str]:
        """Jobs that have not ended and that the client has not given up."""
        return [i for i, job in self.jobs.items() if not job.status.state.is_final and not job.giving_up]

    def unfinished_jobs(self) -> list[str]:
        """Jobs that have not ended, given up or not."""
        return [i for i, job in self.jobs.items() if not job.status.state.is_final]

    def _accepted(self, token: str, status: JobStatus) -> Record:
        intent, self.open_intent = self.open_intent, None
        former = next((job for job in self.jobs.values() if job.spec.token == token), None)
        if former is not None and (intent is None or intent.token != token):
            former.giving_up, former.given_up = "another job of its token runs the payload", True
            planned, spec, observed = former.planned, former.spec, former.observed
            former.observed = True  # a token's wait is learned once
        else:
            assert intent is not None
            planned, spec, observed = intent.planned, intent.spec, False
        # however far it has come: that is for the next entry to tell
        pending = JobStatus(status.job_id, JobState.PENDING, status.submit_s)
        self.jobs[status.job_id] = Job(planned, spec, pending, observed=observed)
        predicted = planned.prediction.wait_s if planned.prediction else None
        for name in planned.stages if not planned.joins else ():
            self.stages[name] = replace(
                self.stages[name],
                phase=Phase.QUEUED,
                job_id=status.job_id,
                submit_s=status.submit_s,
                keep=planned.keep,
                predicted_wait_s=predicted,
                cores=next((step.cores for step in spec.steps if step.name == name), 0) if planned.widths else 0,
            )
        again = len(self._former_growths(planned)) if planned.joins else self.stages[planned.stages[0]].resubmissions
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
            reason=planned.reason,
            joins=planned.joins,
        )

    def _former_growths(self, planned: PlannedJob) -> list[Job]:
        """Give the jobs that were to join the same one for the same stage, and have ended, or are about to."""
        return [
            job
            for job in self.jobs.values()
            if job.planned.joins == planned.joins
            and job.planned.stages == planned.stages
            and (job.status.state.is_final or job.giving_up)
        ]

    def _cancelled_record(self, planned: PlannedJob, job_id: str, reason: str, at_s: float) -> Record:
        return Cancelled(time_s=at_s, run=self.name, stages=planned.stages, job_id=job_id, reason=reason)

    def _end(self, outcome: Outcome, reason: str, at_s: float) -> Record:
        self.outcome, self.reason = outcome, reason
        return RunEnded(time_s=at_s, run=self.name, outcome=outcome, reason=reason)

    def _retry(self, at_s: float, stages: Sequence[str]) -> Record:
        """Let every stage that has not ended well wait for another job, and those that are to be run once more."""
        self.outcome, self.reason, self.open_intent = None, "", None
        self.refused.clear()
        once_more = self.workflow.with_followers(stages)
        for name, view in self.stages.items():
            if name in once_more:  # what it posted and noted the last time does not count any more
                self.generations[name] = self.generations.get(name, 0) + 1
            if view.phase is not Phase.DONE or name in once_more:
                again = view.resubmissions + (view.job_id is not None)
                self.stages[name] = StageView(self.workflow.stages[name], resubmissions=again)
        anew = tuple(name for name in self.workflow.order if name in once_more)
        return RunResumed(time_s=at_s, run=self.name, anew=anew)

    # ------------------------------------------------------------------ what the batch system tells

    def _update(self, status: JobStatus) -> Iterator[News]:
        job = self.jobs[status.job_id]
        was, job.status = job.status, status
        if was.state.is_final:
            return
        requeued = status.restarts > was.restarts or (was.start_s is not None and status.start_s is None)
        if requeued:
            yield from self._requeued(job, was)
        name, stages, job_id = self.name, job.planned.stages, status.job_id
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
            )
            yield from self._ended(job)
        elif job.planned.joins:
            return
        elif status.reason == _HOPELESS and self.outcome is None and self._is_hopeless(job):
            reason = f"{_names(job)} can never start: a stage that it depends on failed"
            yield self._end("failed", reason, status.submit_s)

    def _requeued(self, job: Job, was: JobStatus) -> Iterator[News]:
        """Note that the batch system put a job that had started back into the queue: its stages have not begun."""
        yield Requeued(
            time_s=max(job.status.submit_s, was.start_s or 0.0),
            run=self.name,
            stages=job.planned.stages,
            job_id=job.status.job_id,
            reason=job.status.reason,
        )
        job.observed = True  # what it waited at first was told, or is not known; what it waits now began in the middle
        job.resized = 0
        if not job.given_up and not job.planned.joins:
            for name in job.planned.stages:
                self.stages[name] = replace(
                    self.stages[name],
                    phase=Phase.QUEUED,
                    started_s=None,
                    ended_s=None,
                    hold_until_s=None,
                    limit_s=None,
                    submit_s=job.status.submit_s,
                )

    def _is_hopeless(self, job: Job) -> bool:
        """Whether a job that can never start ends the run; else what it waits for does, or is asked for again."""
        return all(one.status.state.is_final for one in self._needed(job)) and not self._is_wanted_no_more(job)

    def _is_wanted_no_more(self, job: Job) -> bool:
        """Whether a job is being cancelled, or depends on one that is, or that gave way to another of its token."""
        return bool(job.giving_up) or any(one.is_void or one.status.reason == TWIN for one in self._needed(job))

    def _needed(self, job: Job) -> list[Job]:
        return [self.jobs[d.job_id] for d in job.spec.dependencies if d.job_id in self.jobs]

    def _in_order(self, stage: str, at_s: float) -> float:
        """Move a time of a stage to where what is known of those before and after it lets it be.

        A batch system may tell of an end some time after others began for which it was waited, or not know of it until
        long after; clocks differ, and seconds are rounded. That a stage begins when those that it follows have ended
        is certain.
        """
        graph = self.workflow.graph
        for began_s, ended_s in self._nearest(stage, graph.pred):
            at_s = max(at_s, began_s if ended_s is None else ended_s)
        return min([at_s, *(began_s for began_s, _ in self._nearest(stage, graph.succ))])

    def _nearest(self, stage: str, neighbours: Mapping[str, Iterable[str]]) -> Iterator[tuple[float, float | None]]:
        """Say when the nearest stages in one direction that have begun did, and ended; beyond, times are in order."""
        to_see, seen = list(neighbours[stage]), set[str]()
        while to_see:
            name = to_see.pop()
            if name in seen:
                continue
            seen.add(name)
            view = self.stages[name]
            if view.started_s is None:
                to_see.extend(neighbours[name])
            else:
                yield view.started_s, view.ended_s

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
        for name in job.planned.stages:
            self.stages[name] = replace(self.stages[name], phase=Phase.RUNNING)
        first = job.planned.stages[0]
        began_s = self._in_order(first, at_s)
        self.stages[first] = replace(self.stages[first], started_s=began_s)
        if len(job.planned.stages) == 1:  # of several, when each began is told in the end
            yield StageStarted(time_s=began_s, run=self.name, stages=(first,), job_id=job.status.job_id)

    def _tell_steps(self, job: Job, told: Sequence[StepTimes]) -> None:
        """Note when stages began and ended that share a job, which is done only when it ends; what was told stands."""
        known = set(told)
        for step in job.status.steps:
            view = self.stages[step.name]
            is_its = view.job_id == job.status.job_id and view.phase is Phase.RUNNING and len(job.planned.stages) > 1
            if is_its and step not in known:
                self._note_times(step.name, step.start_s, step.end_s)

    def _note_times(self, stage: str, start_s: float, end_s: float | None) -> tuple[float, float]:
        """Note when a stage began and ended, in the workflow's order; give what was noted."""
        start_s = self._in_order(stage, start_s)
        known_end_s = None if end_s is None else max(start_s, self._in_order(stage, end_s))
        self.stages[stage] = replace(self.stages[stage], started_s=start_s, ended_s=known_end_s)
        return start_s, start_s if known_end_s is None else known_end_s

    def _resized(self, job: Job) -> Iterator[Record]:
        """Tell of the cores that were given back since it was told last: a job's own, and those that joined it."""
        others = self._growths_of(job.status.job_id) if job.planned.widths else []
        for one in (job, *others):
            changes = self._widths_of(one)[1:]
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

    def _growths_of(self, job_id: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.planned.joins == job_id]

    def _widths_of(self, job: Job) -> list[tuple[float, int]]:
        """Tell since when a job had how many cores of its own. What was asked for last is given back first."""
        if (began_s := job.status.start_s) is None:
            return []
        first, widths = job, [(began_s, job.spec.cores)]
        line = [job]
        if job.planned.joins:
            first = self.jobs[job.planned.joins]
            growths = self._growths_of(job.planned.joins)
            line = [first, *growths[: growths.index(job) + 1]]
        held, telling = [one.spec.cores for one in line], _gives_back_at(first)
        for step in first.status.steps:
            left = step.cores
            for place, one in enumerate(line if left and step.name in telling else ()):
                if one is first or _holds(one.status, step.start_s):
                    held[place] = min(held[place], left)
                    left -= held[place]
            if held[-1] < widths[-1][1]:
                widths.append((step.start_s, held[-1]))
        return widths

    def _core_hours(self, job: Job) -> float:
        """Count what a job held from its beginning to its end; nothing before that, and where the client is."""
        end_s, widths = job.status.end_s, self._widths_of(job)
        if end_s is None or job.spec.local:
            return 0.0
        ends = [*(at_s for at_s, _ in widths[1:]), end_s]
        return sum(core_hours(cores, to_s - at_s) for (at_s, cores), to_s in zip(widths, ends, strict=False))

    def _ended(self, job: Job) -> Iterator[Record]:
        status = job.status
        if job.given_up or status.reason == TWIN or job.planned.joins:
            return
        if job.giving_up and status.state is not JobState.COMPLETED:
            return  # whatever ended it, it was to end
        end = status.end_s if status.end_s is not None else status.submit_s
        if status.state is JobState.COMPLETED and status.payload_start_s is not None:
            yield from self._stages_done(job, status.payload_start_s, end)
        elif status.state is JobState.TIMEOUT and status.payload_start_s is None:
            self._ask_again(job)  # an allocation that idled until its limit: the stage never began
        elif status.state is JobState.TIMEOUT and _stood_still(job):
            yield from self._steps_done(job)
            self._ask_again(job)
        elif self.outcome is not None:
            return
        elif status.start_s is None and any(before.is_void for before in self._needed(job)):
            self._ask_again(job)  # the batch system cancelled what could never start
        elif (failed := self._to_retry(job)) is not None:
            self._ask_again(job)
            self._count_attempt(failed, status.state, end)
            why = _why(status)
            yield Retrying(time_s=end, run=self.name, stages=job.planned.stages, job_id=status.job_id, reason=why)
        else:
            yield self._end("failed", f"{_names(job)} ended as {_why(status)}", end)

    def _to_retry(self, job: Job) -> str | None:
        """Name the stage of a job that failed, if it may be tried again."""
        ended = {step.name for step in job.status.steps if step.end_s is not None}
        failed = next((name for name in job.planned.stages if name not in ended), job.planned.stages[0])
        view = self.stages[failed]
        if job.status.state is JobState.CANCELLED or view.job_id != job.status.job_id:
            return None  # somebody wanted its end
        if job.status.state is JobState.FAILED and job.status.exit_code in HOPELESS_EXITS:
            return None  # it would fail again
        return failed if view.attempts < view.stage.retries else None

    def _count_attempt(self, name: str, ended_as: JobState, end_s: float) -> None:
        """Note that a stage failed, to be tried again after a pause; with more walltime if it ran out of that."""
        view = self.stages[name]
        stage = view.stage
        if ended_as is JobState.TIMEOUT:
            longer = self._at_most(stage.walltime_s * stage.retry_walltime_factor, [name], stage.partition)
            stage = replace(stage, walltime_s=longer, expected_run_s=min(stage.walltime_s, longer))
        pause_s = min(_PAUSE_S * 2**view.attempts, _LONGEST_PAUSE_S)
        self.stages[name] = replace(view, stage=stage, attempts=view.attempts + 1, not_before_s=end_s + pause_s)

    def _steps_done(self, job: Job) -> Iterator[Record]:
        """Note what ended well in a job that was to run further, with more cores, and did not get them."""
        for step in job.status.steps if job.planned.widths else ():
            view = self.stages[step.name]
            if step.end_s is not None and view.job_id == job.status.job_id:
                stages, job_id = (step.name,), job.status.job_id
                start_s, end_s = self._note_times(step.name, step.start_s, step.end_s)
                self.stages[step.name] = replace(self.stages[step.name], phase=Phase.DONE, hold_until_s=None)
                yield StageStarted(time_s=start_s, run=self.name, stages=stages, job_id=job_id)
                yield StageEnded(time_s=end_s, run=self.name, stages=stages, job_id=job_id)

    def _stages_done(self, job: Job, began_s: float, end_s: float) -> Iterator[Record]:
        job_id = job.status.job_id
        slots = self.workflow.layout(job.planned.stages, self.run_s)
        told = {step.name: step for step in job.status.steps}
        for slot in slots:
            alone = len(slots) == 1
            start, end = (began_s, end_s) if alone else (began_s + slot.start_s, min(began_s + slot.end_s, end_s))
            if (step := told.get(slot.stage)) is not None:
                start, end = step.start_s, end_s if step.end_s is None else step.end_s
            if alone and (known := self.stages[slot.stage].started_s) is not None:
                start = known
            start, end = self._note_times(slot.stage, start, end)
            self.stages[slot.stage] = replace(self.stages[slot.stage], phase=Phase.DONE)
            if not alone:
                yield StageStarted(time_s=start, run=self.name, stages=(slot.stage,), job_id=job_id)
            yield StageEnded(time_s=end, run=self.name, stages=(slot.stage,), job_id=job_id)
        if all(stage.phase is Phase.DONE for stage in self.stages.values()):
            last = max(stage.ended_s or 0.0 for stage in self.stages.values())
            yield self._end("completed", "", last)

    # ------------------------------------------------------------------

    def _allocated(self, job: Job, start_s: float) -> None:
        if not job.given_up and not job.planned.joins:
            limit_s = start_s + job.spec.walltime_s
            needed_s = sum(self.stages[name].stage.walltime_s for name in job.planned.stages)
            hold_until = start_s + min(job.planned.spare_walltime_s, max(job.spec.walltime_s - needed_s, 0.0))
            for name in job.planned.stages:
                self.stages[name] = replace(
                    self.stages[name], phase=Phase.ALLOCATED, hold_until_s=hold_until, limit_s=limit_s
                )

    def _ask_again(self, job: Job) -> None:
        for name in job.planned.stages:
            stage = self.stages[name]
            if stage.job_id == job.status.job_id and stage.phase is not Phase.DONE:
                again = stage.resubmissions + 1
                self.stages[name] = StageView(stage.stage, resubmissions=again, attempts=stage.attempts)

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
        return f"{self.unique}/{self._mark(stage)}"

    def _mark(self, stage: str) -> str:
        """Name what a stage leaves behind; of one that is run once more, otherwise than before."""
        generation = self.generations.get(stage, 0)
        return f"{stage}@{generation}" if generation else stage


def _growth_view(job: Job) -> GrowthView:
    status, [stage] = job.status, job.planned.stages
    phase = Phase.QUEUED if status.state is JobState.PENDING else Phase.ALLOCATED
    return GrowthView(
        status.job_id,
        job.planned.joins,
        stage,
        job.spec.cores,
        Phase.DONE if status.state.is_final or job.giving_up else phase,
        status.submit_s,
        job.planned.prediction.wait_s if job.planned.prediction else None,
    )


def _gives_back_at(job: Job) -> set[str]:
    """Name the steps that tell of cores given back: where others join a job, those that keep fewer than before."""
    steps = job.spec.steps
    if not job.planned.widths:
        return {step.name for step in steps}
    widths = pairwise([job.spec.cores, *(step.cores for step in steps)])
    return {step.name for step, (had, keeps) in zip(steps, widths, strict=True) if keeps < had}


def _holds(status: JobStatus, at_s: float) -> bool:
    """Whether a job that began before a time had not ended before it."""
    has_begun = status.start_s is not None and status.start_s < at_s
    return has_begun and (status.end_s is None or status.end_s >= at_s)


def _stood_still(job: Job) -> bool:
    """Whether a job ended as it waited for more cores between two of its stages."""
    steps = job.status.steps
    waits = bool(job.planned.widths) and 0 < len(steps) < len(job.planned.stages)
    return waits and all(step.end_s is not None for step in steps)


def _names(job: Job) -> str:
    stages = job.planned.stages
    return f"stage {stages[0]!r}" if len(stages) == 1 else f"the job of {len(stages)} stages"


def _nodes_for(cores: int, per_node: int, nodes: int) -> int:
    """Say how many nodes to ask for, if any stage asks for some: one that asks for cores may need more."""
    return max(nodes, -(-cores // per_node)) if nodes and per_node else nodes


def _in_one_piece(stages: Sequence[Stage], cores_per_node: int) -> int:
    """Say how many cores a job asks for together, so that each of its stages finds its own: the widest one's first."""
    most = max(stage.cpus_per_task for stage in stages)
    if cores_per_node % most == 0 if cores_per_node else len(stages) == 1:
        return most
    return max(stages, key=lambda stage: (stage.cores_on(cores_per_node), stage.cpus_per_task)).cpus_per_task


def _in_tasks(cores: int, together: int, nodes: int) -> int:
    """Count the cores of as many tasks as fit: on whole nodes none is split, and else the last gets its cores, too."""
    if nodes:
        return nodes * max(cores // nodes // together, 1) * together
    return -(-cores // together) * together


def _why(status: JobStatus) -> str:
    """Say how a job ended that did not end well."""
    means = meaning(status.exit_code) if status.state is JobState.FAILED else ""
    told = "" if means and status.reason in _NO_NEWS else status.reason
    detail = ": ".join(part for part in (told, means) if part)
    return f"{status.state.value} ({detail})" if detail else status.state.value


def observation_of(spec: JobSpec, status: JobStatus, capabilities: Capabilities) -> WaitObservation | None:
    """Say what a job's times tell of the queue's wait; None while, or if, they tell nothing.

    - A job that nothing kept back: its wait is exactly its start less its submission.
    - Kept back by a dependency where age does not accrue: it queued only from the moment it was eligible.
    - Kept back where age accrues: exact if it had to wait on after it was let go; if it started that very second, it
      may have been ready long before, and the time since submission is an upper bound.
    - Cancelled while it was in the queue: a lower bound.
    - Held by somebody meanwhile: an upper bound.
    - Put back into the queue after it had started: nothing.

    Parameters
    ----------
    spec
        What was asked for.
    status
        The job as last seen.
    capabilities
        Of the site: whether age accrues.
    """
    if status.eligible_s is None or status.restarts:
        return None
    kept_back = bool(spec.dependencies) and status.eligible_s > status.submit_s
    since = queued_since(status, capabilities)
    if status.start_s is not None:
        wait = max(status.start_s - since, 0.0)
        if status.held:
            return at_most(wait)
        return (
            at_most(wait)
            if kept_back and capabilities.age_accrues and status.start_s <= status.eligible_s
            else exactly(wait)
        )
    if status.state is JobState.CANCELLED and status.end_s is not None and not status.held:
        return at_least(max(status.end_s - since, 0.0))
    return None


def queued_since(status: JobStatus, capabilities: Capabilities) -> float:
    """Say since when a job queues: its submission, or where age does not accrue, when nothing kept it back any more.

    Parameters
    ----------
    status
        The job as last seen.
    capabilities
        Of the site: whether age accrues.
    """
    if capabilities.age_accrues or status.eligible_s is None:
        return status.submit_s
    return status.eligible_s
