"""What a run knows of itself, and how news from the batch system changes it; nothing here touches the world."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from asa.backend import Capabilities, Dependency, DependencyType, JobSpec, JobState, JobStatus, Step, StepTimes
from asa.demands import Demands, shared_by
from asa.errors import InputError
from asa.exactly_once import NUMBER_LOST, TWIN
from asa.observations import observation_of
from asa.payload import HELD_EXIT, HOPELESS_EXITS, SHORT_EXIT, meaning, payload_text
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
    Refused,
    Reported,
    Retried,
    Stopped,
    Surplus,
    Unsent,
)
from asa.runner.stages import Stages
from asa.strategies.base import GrowthView, Keep, Phase, PlannedJob, RunView, StageView
from asa.units import core_hours
from asa.waits import WaitObservation
from asa.workflow import Slot, Stage, Workflow

if TYPE_CHECKING:
    from asa.estimators import OwnJob

PAYLOAD_COMPLETED = "EndedWell"
"""Reason of a completed job whose payload completed, though the batch system has it down as ended otherwise."""

_HOPELESS = "DependencyNeverSatisfied"
_HARMLESS = (Begun, Intended, Again, Accepted, Unsent, Reported)  # of themselves; see `RunState.lost_jobs`
_NO_NEWS = frozenset({"", "None", "NonZeroExitCode"})  # reasons that tell less than the exit code
_PAUSE_S = 5.0  # before a stage that failed is tried again, at first
_LONGEST_PAUSE_S = 60.0
_MAX_SHORT = 5  # times that a job may come back with too few cores
_MAX_IDLE = 0.25  # of a workflow's core-hours, that may idle in a run while the client runs what is local
_NOTICE_S = 120.0  # a client looks at least once a minute, and a local stage begins and ends


@dataclass(slots=True)
class Job:
    """A job of the run: as planned, as asked for, and as last seen."""

    planned: PlannedJob  # as the strategy wanted it
    spec: JobSpec  # what was asked of the batch system
    status: JobStatus
    # why we are cancelling it, which the batch system may not have been asked yet; empty if we are not
    giving_up: str = ""
    given_up: bool = False  # whether it was cancelled by us: its stages may have another job by now
    observed: bool = False  # whether its wait was learned
    known_as: OwnJob | None = None  # to the bank, once it queues
    resized: int = 0  # how often it was reported since its start that it got narrower

    @property
    def is_void(self) -> bool:
        """What depends on it can never start."""
        status = self.status
        has_completed = status.state is JobState.COMPLETED and status.reason != PAYLOAD_COMPLETED
        has_failed = status.state.is_final and not has_completed
        return bool(self.giving_up) or (has_failed and status.reason != TWIN)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job of some stages asks the queue for."""

    cores: int  # its size; 0 nodes for any number
    nodes: int
    cpus_per_task: int
    walltime_s: float  # how long it may run
    partition: str  # where; empty for the site's usual one


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
    jobs: dict[str, Job] = field(default_factory=dict)  # every job that was accepted, by its id
    open_intent: Intended | None = None  # a submission of which it is not known what became of it
    intents: dict[str, Intended] = field(default_factory=dict)  # the latest submission that was intended of each token
    # tokens of which a second job may yet turn up
    doubtful: dict[str, float] = field(default_factory=dict)  # and since when
    refused: dict[str, str] = field(default_factory=dict)  # stages whose job was refused for good, and why
    # how often a stage that had completed was asked for again, with all that follow it
    generations: dict[str, int] = field(default_factory=dict)
    outcome: Outcome | None = None  # how the run ended; None until then
    reason: str = ""
    # what the strategy meant to submit when it was last asked; for show, and in no journal
    planned: tuple[PlannedJob, ...] = ()
    condemned: dict[str, None] = field(default_factory=dict, init=False)  # jobs that were to be cancelled
    twins: list[Job] = field(default_factory=list, init=False)  # that ended at once for another of their token
    # whether the run ends as soon as a stage has failed, rather than when no other can run any more
    fail_fast: bool = True  # as runs were that began before there was a choice
    _reasons: list[str] = field(default_factory=list, init=False)  # of the failures so far
    _pauses_s: dict[str, float] | None = field(default=None, init=False)
    _may_have_lost: bool = field(default=True, init=False)
    _unfinished: dict[str, Job] = field(default_factory=dict, init=False)
    _by_token: dict[str, Job] = field(default_factory=dict, init=False)  # the latest
    _growing: list[Job] = field(default_factory=list, init=False)
    _growths: dict[str, list[Job]] = field(default_factory=dict, init=False)  # by what they join
    _elastic: list[Job] = field(default_factory=list, init=False)
    _early: list[Job] = field(default_factory=list, init=False)  # that may begin before their payloads
    _behind_local: list[Job] = field(default_factory=list, init=False)  # others that may, for what the client runs
    _spent_core_hours: float = field(default=0.0, init=False)
    asked_again: int = field(default=0, init=False)  # how often jobs were; a plan that was made before is out of date
    _requeued_core_hours: float = field(default=0.0, init=False)  # by jobs before they were put back into the queue

    def __post_init__(self) -> None:
        self.stages = Stages(self.workflow)

    def view(self, now_s: float) -> RunView:
        """Show what is true now to a strategy."""
        return RunView(
            self.workflow,
            self.stages.copy(),
            now_s,
            self.capabilities,
            spent=self._spent,
            growths=tuple(map(_growth_view, self._growing)),
            ready=self.stages.ready,
            turn=self.stages.turn,
            first=self.stages.first,
            idle_core_hours=self._idle_core_hours(now_s),
        )

    def _spent(self) -> float:
        """Count the core-hours of the jobs that have ended."""
        return self._spent_core_hours + self._requeued_core_hours + sum(map(self._core_hours, self._elastic))

    def apply(self, entry: Entry) -> Iterator[News]:  # noqa: C901, PLR0912 - one case an entry
        """Take in what happened; give what follows from it, in order. The iterator must be run to its end."""
        self._pauses_s = None
        self._may_have_lost |= not isinstance(entry, _HARMLESS)
        match entry:
            case Begun(at_s=at_s, fail_fast=fail_fast):
                self.fail_fast = fail_fast
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
            case Reported(status=status):
                yield from self._update(status)
            case GivingUp(job_id=job_id, reason=reason):
                self.jobs[job_id].giving_up = reason
                self.condemned[job_id] = None
            case GivenUp(job_id=job_id, reason=reason, at_s=at_s):
                job = self.jobs[job_id]
                job.giving_up, job.given_up = reason, True
                yield self._cancelled_record(job.planned, job_id, reason, at_s)
                yield from self._steps_done(job)
                self._ask_again(job)
                yield from self._end_if_settled(at_s)
            case Refused(token=token, at_s=at_s, reason=reason):
                self.open_intent = None
                self.refused |= dict.fromkeys(self.intents[token].planned.stages, reason)
                yield from self._fail(self.intents[token].planned.stages, reason, at_s)
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
                yield from self._end_if_settled(at_s)

    # ------------------------------------------------------------------ what the client does

    def spec_of(self, planned: PlannedJob) -> JobSpec:
        """Write the job that a plan asks for. Stages that share a job are laid out inside it."""
        if planned.joins:
            return self._growth_spec(planned)
        stages = [self.stages[name].stage for name in planned.stages]
        demand = self.demand_of(planned.stages, planned.widths)
        slots = self.workflow.layout(planned.stages, self.run_s)
        inside = set(planned.stages)
        before = [name for stage in stages for name in stage.after if name not in inside]
        waited_for = sorted(self._jobs_before(before)) if planned.keep is Keep.DEPENDENCY else ()
        walltime = demand.walltime_s + planned.spare_walltime_s
        if planned.keep is not Keep.NOTHING:
            walltime += self._local_before(before)
        return JobSpec(
            name=f"{self.name}/{'+'.join(planned.stages) if len(planned.stages) < 4 else self.workflow.name}",
            token=self.token_of(planned),
            cores=demand.cores,
            walltime_s=self._at_most(walltime, planned.stages, demand.partition),
            command=self._payload(stages[0]) if len(stages) == 1 else "",
            steps=self._steps(planned, slots) if len(stages) > 1 else (),
            partition=demand.partition,
            account=next((stage.account for stage in stages if stage.account), ""),
            cpus_per_task=demand.cpus_per_task,
            tasks=self._tasks(stages[0], demand) if len(stages) == 1 else 0,
            options=tuple(dict.fromkeys(option for stage in stages for option in stage.options)),
            local=all(stage.local for stage in stages),
            nodes=demand.nodes,
            **shared_by(stages),
            dependencies=tuple(Dependency(job_id) for job_id in waited_for),
            # a dependency that a site drops starts the job, but not the payload
            awaits=self._awaited(before) if planned.keep is not Keep.NOTHING else (),
            posts=tuple(self._token(name) for name in planned.stages),
            supersedes=self._superseded(planned),
            max_await_s=self._max_await_s(planned, before, demand.walltime_s),
            run_s=max(slot.end_s for slot in slots),
        )

    def demand_of(self, names: Sequence[str], widths: Sequence[int] = ()) -> Demand:
        """Say what the job of some stages asks the queue for, were it submitted once it may run at once."""
        stages = [self.stages[name].stage for name in names]
        per_node = self.capabilities.cores_per_node
        widest = stages[:1] if widths else stages
        nodes = max(stage.nodes or 0 for stage in widest)
        cores = max(stage.cores_on(per_node) for stage in widest)
        cores = Demands(**shared_by(stages)).allocated(cores, nodes, per_node)
        walltime = sum(stage.walltime_s for stage in stages)
        if len(stages) == len(self.workflow.stages) > 1:  # with what those have more that ran out of theirs
            walltime += self.workflow.walltime_s - sum(stage.walltime_s for stage in self.workflow.stages.values())
        partition = next((stage.partition for stage in stages if stage.partition), "")
        together = _in_one_piece(stages, per_node)
        return Demand(
            widths[0] if widths else _in_tasks(cores, together, nodes),
            _nodes_for(cores, per_node, nodes),
            together,
            self._at_most(walltime, names, partition),
            partition,
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
        """Name what stages are to post; those that completed in a job that did not have posted nothing."""
        return tuple(dict.fromkeys(self._token(name) for name in before if not self.stages[name].phase.is_settled))

    def _max_await_s(self, planned: PlannedJob, before: Iterable[str], own_s: float) -> float | None:
        """Say for how long a job may wait by itself for what it follows: for as long as it asks for beyond its own."""
        idle_s = self._local_before(before)
        if planned.keep is Keep.NOTHING or not (planned.keep is Keep.AWAIT or idle_s):
            return None
        asked_s = self._at_most(own_s + planned.spare_walltime_s + idle_s, planned.stages, "")
        return max(asked_s - own_s, 1.0)

    def _superseded(self, planned: PlannedJob) -> tuple[str, ...]:
        """Name the jobs that were to run some stages before, also those that may yet turn up."""
        former = {token: self.intents[token].planned for token in self.doubtful}
        if any(self.stages[name].resubmissions for name in planned.stages):
            former |= {job.spec.token: job.planned for job in self.jobs.values()}
        stages, token = set(planned.stages), self.token_of(planned)
        return tuple(t for t, one in former.items() if t != token and not one.joins and stages.intersection(one.stages))

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
        per_node = self.capabilities.cores_per_node
        cores = _in_tasks(stage.payload_cores_on(per_node), stage.cpus_per_task, stage.nodes or 0)
        return Step(
            stage.name,
            self._payload(stage),
            cores=keeps,
            slot_s=(slot.start_s, slot.end_s),
            tasks=cores // stage.cpus_per_task,
            cpus_per_task=stage.cpus_per_task,
            nodes=stage.nodes or 0,
            post=self._token(stage.name),
        )

    def _tasks(self, stage: Stage, demand: Demand) -> int:
        """Count the tasks of a stage that has a job of its own; 0 if they take all of its cores."""
        tasks = -(-stage.payload_cores_on(self.capabilities.cores_per_node) // stage.cpus_per_task)
        return tasks if tasks * stage.cpus_per_task < demand.cores else 0

    def _jobs_before(self, before: Iterable[str]) -> set[str]:
        """Give the jobs that must complete before some stages have.

        A local stage has none in the queue: those before it stand for it, and the payload itself waits for it.
        """
        jobs, to_see, seen = set[str](), list(before), set[str]()
        while to_see:
            name = to_see.pop()
            view = self.stages[name]
            if name in seen or view.phase.is_settled:
                continue
            seen.add(name)
            if view.stage.local:
                to_see.extend(view.stage.after)
            else:
                jobs.add(self._job_of(name))
        return jobs

    def _local_before(self, before: Iterable[str]) -> float:
        """Say for how many seconds an allocation may idle since the client has yet to run local stages."""
        known: dict[str, float] = {}

        def idle_s(names: Iterable[str]) -> float:
            return max((known.get(name, 0.0) for name in names), default=0.0)

        for name in self._local_to_run(before):
            stage = self.stages[name].stage
            known[name] = stage.expected_s + _NOTICE_S + idle_s(stage.after)
        return idle_s(before)

    def _idle_behind_local(self, planned: PlannedJob) -> float:
        """Count the core-hours that a job may idle while the client runs what is local; endless if one did before."""
        if not (idle_s := self._local_before(self._before(planned.stages))):
            return 0.0
        if any(self.stages[name].resubmissions for name in planned.stages):
            return math.inf
        return core_hours(self.demand_of(planned.stages, planned.widths).cores, idle_s - _NOTICE_S)

    def _local_to_run(self, before: Iterable[str]) -> list[str]:
        """Name local stages that have not ended, of those given and those right before such, in order."""
        found, to_see = set[str](), list(before)
        while to_see:
            name = to_see.pop()
            view = self.stages[name]
            if name not in found and view.stage.local and not view.phase.is_settled:
                found.add(name)
                to_see.extend(view.stage.after)
        return self.workflow.in_order(found)

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
        if planned.joins or not self.doubtful:
            return planned
        group_of = {name: group for group in self._in_doubt() for name in group.stages}
        if not (shared := [name for name in planned.stages if name in group_of]):
            return planned
        before = planned.stages[: planned.stages.index(shared[0])]
        if before:
            return replace(planned, stages=before, widths=planned.widths[: len(before)] if len(before) > 1 else ())
        return replace(group_of[shared[0]], submit_s=planned.submit_s, keep=planned.keep)

    def _in_doubt(self) -> Iterator[PlannedJob]:
        """Give what was sent, is not known to have arrived, has not been sent again, and may be: all of it waits."""
        sent = {job.spec.token for job in self.jobs.values()}
        for token in self.doubtful.keys() - sent:
            planned = self.intents[token].planned
            if planned.joins or not self.stages.keys() >= set(planned.stages) or self.token_of(planned) != token:
                continue
            if not any(self.stages[name].phase.is_settled for name in planned.stages):
                yield planned

    def times_of(self, plan: Iterable[PlannedJob]) -> list[float]:
        """Say when each job of a plan is to be submitted; infinity for those, too, that depend on one put off."""
        times, put_off, left = list[float](), set[str](), None
        for job in plan:
            time_s = max(job.submit_s, self.earliest_s(job))
            if not job.joins:
                idle = self._idle_behind_local(job) if job.keep is not Keep.NOTHING else 0.0
                fits = True
                if idle:
                    left = self._idle_left_behind_local() if left is None else left
                    fits = idle <= left
                if not fits or not put_off.isdisjoint(self._before(job.stages)):
                    put_off.update(job.stages)
                    time_s = math.inf
                elif left is not None:
                    left -= idle
            times.append(time_s)
        return times

    def _idle_left_behind_local(self) -> float:
        """Count the core-hours that jobs may yet idle in this run while the client runs what is local."""
        idle = sum(map(_idled_behind_local, self._behind_local))
        return _MAX_IDLE * self.workflow.stage_core_hours(self.capabilities.cores_per_node) - idle

    def _before(self, stages: Sequence[str]) -> list[str]:
        """Name the stages that some follow, but for themselves."""
        inside = set(stages)
        return [name for one in stages for name in self.stages[one].stage.after if name not in inside]

    def earliest_s(self, planned: PlannedJob) -> float:
        """Say before when a planned job must not be submitted; infinity while it hangs on what others do.

        A local one is submitted when the stages before it have ended; one that failed, after a pause; and one that
        depends on such, not before it.
        """
        if planned.joins:
            return -math.inf
        if all(self.stages[name].stage.local for name in planned.stages) and any(
            not self.stages[before].phase.is_settled
            for name in planned.stages
            for before in self.stages[name].stage.after
            if before not in planned.stages
        ):
            return math.inf
        if self._pauses_s is None:
            self._pauses_s = self.stages.pauses_s()
        return max(self._pauses_s.get(name, -math.inf) for name in planned.stages)

    def _at_most(self, walltime_s: float, stages: Iterable[str], partition: str) -> float:
        """Cut a walltime to what its partition gives, if what the stages ask for by themselves fits into that."""
        limits = self.capabilities.partitions.get(partition or self.capabilities.partition)
        max_s = limits.max_walltime_s if limits is not None else None
        asked_s = sum(self.workflow.stages[name].walltime_s for name in stages)
        return walltime_s if max_s is None or asked_s > max_s else min(walltime_s, max_s)

    def _payload(self, stage: Stage) -> str:
        place = f"{self.place}/tasks/{self._mark(stage.name)}" if self.place else ""
        return payload_text(stage, stage.payload_cores_on(self.capabilities.cores_per_node), place=place)

    def live_jobs(self) -> list[str]:
        """Jobs that have not ended and that the client has not given up."""
        return [i for i, job in self._unfinished.items() if not job.giving_up]

    def unfinished_jobs(self) -> list[str]:
        """Jobs that have not ended, given up or not."""
        return list(self._unfinished)

    def has_sent(self, token: str) -> bool:
        """Whether the batch system has ever had a job of a token."""
        job = self._by_token.get(token)
        return job is not None and self.jobs[job.status.job_id] is job  # else its number was given out again

    def _accepted(self, token: str, status: JobStatus) -> Record:
        intent = self.open_intent
        former = self._by_token.get(token)
        if former is not None and (intent is None or intent.token != token):  # what is open stays so
            former.giving_up, former.given_up = "another job of its token runs the payload", True
            planned, spec, observed = former.planned, former.spec, former.observed
            former.observed = True  # a token's wait is learned once
        else:
            assert intent is not None
            planned, spec, observed, self.open_intent = intent.planned, intent.spec, False, None
        # however far it has come: that is for the next entry to tell
        pending = JobStatus(status.job_id, JobState.PENDING, status.submit_s)
        self._may_have_lost |= former is not None or any(self.stages[name].phase.is_settled for name in planned.stages)
        job = self.jobs[status.job_id] = self._by_token[token] = self._unfinished[status.job_id] = Job(
            planned, spec, pending, observed=observed
        )
        if former is None:
            self._growths.pop(status.job_id, None)  # of one that had the number before
        if planned.keep is Keep.AWAIT:
            self._early.append(job)
        elif spec.max_await_s is not None and not planned.joins:
            self._behind_local.append(job)
        if planned.joins:
            self._growing.append(job)
            self._growths.setdefault(planned.joins, []).append(job)
        if _is_elastic(planned):
            self._elastic.append(job)
        predicted = planned.prediction.wait_s if planned.prediction else None
        widths = {step.name: step.cores for step in spec.steps} if planned.widths else {}
        for name in planned.stages if not planned.joins else ():
            if self.stages[name].phase.is_settled:
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
            for job in self._growths_of(planned.joins)
            if job.planned.stages == planned.stages and (job.status.state.is_final or job.giving_up)
        ]

    def _cancelled_record(self, planned: PlannedJob, job_id: str, reason: str, at_s: float) -> Record:
        return Cancelled(time_s=at_s, run=self.name, stages=planned.stages, job_id=job_id, reason=reason)

    def _end(self, outcome: Outcome, reason: str, at_s: float) -> Record:
        self.outcome, self.reason = outcome, reason
        return RunEnded(time_s=at_s, run=self.name, outcome=outcome, reason=reason)

    def _retry(self, at_s: float, stages: Sequence[str]) -> Record:
        """Let every stage that has not completed wait for another job, and those that are to be run once more."""
        self.outcome, self.reason, self.open_intent = None, "", None
        self.refused.clear()
        self._reasons.clear()
        once_more = self.workflow.with_followers(stages)
        for name in once_more:  # what it posted and noted the last time does not count any more
            self.generations[name] = self.generations.get(name, 0) + 1
        self.stages = self.taken_up(stages)
        anew = tuple(name for name in self.workflow.order if name in once_more)
        return RunResumed(time_s=at_s, run=self.name, anew=anew)

    def taken_up(self, stages: Sequence[str]) -> Stages:
        """Say what would be true of the stages were the run tried again, and some stages run once more."""
        once_more, taken_up = self.workflow.with_followers(stages), Stages(self.workflow)
        for name, view in self.stages.items():
            if view.phase is not Phase.DONE or name in once_more:
                again = view.resubmissions + (view.job_id is not None)
                view = StageView(self.workflow.stages[name], resubmissions=again)  # noqa: PLW2901
            taken_up.put(name, view)
        taken_up.settle_anew()
        return taken_up

    # ------------------------------------------------------------------ what the batch system tells

    def _update(self, status: JobStatus) -> Iterator[News]:
        job = self.jobs[status.job_id]
        if job.status.state.is_final:
            self._revive(job, status)
            return
        was, job.status = job.status, status
        self._note_end(job)
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

    def _revive(self, job: Job, status: JobStatus) -> None:
        """Note that a job which had ended was started once more, by hand: it is nobody's any more."""
        if not status.state.is_final and not job.planned.joins:
            job.status, job.giving_up, job.given_up = status, "", False
            self._unfinished[status.job_id] = job
            self._may_have_lost = True

    def _note_end(self, job: Job) -> None:
        """Keep count of jobs that have ended, or that others can no longer depend on."""
        self._may_have_lost |= job.is_void or job.status.reason == _HOPELESS
        if job.status.state.is_final:
            del self._unfinished[job.status.job_id]
            if not _is_elastic(job.planned):
                self._spent_core_hours += self._core_hours(job)
            if job.status.reason == TWIN:
                self.twins.append(job)

    def lost_jobs(self) -> list[tuple[str, str]]:
        """Name live jobs that are of no use any more, and say why; looked for only after something went wrong."""
        lost = [(one, why) for one in self.live_jobs() if (why := self._lost(one))] if self._may_have_lost else []
        self._may_have_lost = bool(lost)
        return lost

    def _lost(self, job_id: str) -> str:
        """Say why a job that has not begun its payload is of no use any more; empty if it is."""
        job = self.jobs[job_id]
        if job.planned.joins or job.giving_up or job.status.payload_start_s is not None:
            return ""
        own = [view for name in job.planned.stages if (view := self.stages[name]).job_id == job_id]
        if not own and job.status.reason != TWIN:
            return "its stages have another job"
        if blocked := next((view.reason for view in own if view.phase is Phase.BLOCKED), ""):
            return blocked
        if (void := next((one for one in self._needed(job) if one.is_void), None)) is not None:
            return f"job {void.status.job_id}, which it depends on, is no more"
        if job.status.reason == _HOPELESS and all(self._has_ended(one) for one in self._needed(job)):
            return "the batch system says that it can never start"
        return ""

    def _has_ended(self, job: Job) -> bool:
        return job.status.state.is_final and job.status.reason != TWIN

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
            self._requeued_core_hours += _before_requeue(job, was)
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

    def _needed(self, job: Job) -> list[Job]:
        return [self.jobs[d.job_id] for d in job.spec.dependencies if d.job_id in self.jobs]

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
        widths_by_job = self._widths_with(self.jobs[job.planned.joins] if job.planned.joins else job)
        others = self._growths_of(job.status.job_id) if job.planned.widths else []
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

    def _growths_of(self, job_id: str) -> list[Job]:
        return self._growths.get(job_id, [])

    def _widths_of(self, job: Job) -> list[tuple[float, int]]:
        """Tell since when a job had how many cores of its own."""
        first = self.jobs[job.planned.joins] if job.planned.joins else job
        return self._widths_with(first).get(job.status.job_id, [])

    def _widths_with(self, first: Job) -> dict[str, list[tuple[float, int]]]:
        """Tell since when a job, and each of those that joined it, had how many cores of its own.

        What was asked for last is given back first. O(steps + growths) where few are there at a time.
        """
        line = [first, *self._growths_of(first.status.job_id)]
        widths = [[] if (at_s := one.status.start_s) is None else [(at_s, one.spec.cores)] for one in line]
        coming = sorted((began[0][0], at) for at, began in enumerate(widths) if at and began)
        there, come, telling = list[int](), 0, _gives_back_at(first)
        for step in first.status.steps if widths[0] else ():
            if not step.cores or step.name not in telling or step.start_s < widths[0][0][0]:
                continue  # the last: it ended before the job was put back into the queue
            while come < len(coming) and coming[come][0] < step.start_s:
                insort(there, coming[come][1])
                come += 1
            there = [at for at in there if _holds(line[at].status, step.start_s)]
            left = step.cores
            for at in (0, *there):
                held = min(widths[at][-1][1], left)
                left -= held
                if held < widths[at][-1][1]:
                    widths[at].append((step.start_s, held))
        return {one.status.job_id: changes for one, changes in zip(line, widths, strict=True)}

    def _core_hours(self, job: Job) -> float:
        """Count what a job held from its beginning to its end; nothing before that, and where the client is."""
        end_s, widths = job.status.end_s, self._widths_of(job)
        if end_s is None or job.spec.local:
            return 0.0
        ends = [*(at_s for at_s, _ in widths[1:]), end_s]
        return sum(core_hours(cores, to_s - at_s) for (at_s, cores), to_s in zip(widths, ends, strict=False))

    def _idle_core_hours(self, now_s: float) -> float:
        """Count what allocations that came early idled before their payloads, and what those that are left may yet."""
        idle = 0.0
        for job in self._early:
            status, until_s = job.status, job.status.payload_start_s
            if until_s is None and status.state.is_final:
                until_s = status.end_s if status.start_s is not None else None
                idle_s = 0.0 if until_s is None or status.start_s is None else until_s - status.start_s
            elif until_s is None:
                since_s = now_s if status.start_s is None else status.start_s
                idle_s = max(job.planned.spare_walltime_s, now_s - since_s)
            else:
                idle_s = until_s - (until_s if status.start_s is None else status.start_s)
            idle += core_hours(job.spec.cores, max(idle_s, 0.0))
        return idle

    def _ended(self, job: Job) -> Iterator[Record]:
        status = job.status
        if job.given_up or status.reason == TWIN or job.planned.joins:
            return
        if job.giving_up and status.state is not JobState.COMPLETED:
            return  # whatever ended it, it was to end
        end = status.end_s if status.end_s is not None else status.submit_s
        if status.state is JobState.COMPLETED and status.payload_start_s is not None:
            yield from self._stages_done(job, status.payload_start_s, end)
            return
        yield from self._steps_done(job)
        left = self._left_of(job)
        yield from self._last_step_began(job, left[:1])
        if not left:
            yield from self._end_if_settled(end)
        elif _idled_out(job):
            self._ask_again(job)
        elif self.outcome is not None:
            return
        elif status.start_s is None and (status.reason == NUMBER_LOST or any(one.is_void for one in self._needed(job))):
            self._ask_again(job)  # the batch system lost it, or cancelled what could never start
        elif self._is_short(job, left[0]):
            self._ask_again(job)
            why = "its job came back with fewer cores than it needs"
            yield Retrying(time_s=end, run=self.name, stages=tuple(left), job_id=status.job_id, reason=why)
        elif (failed := self._to_retry(job, left[0])) is not None:
            self._ask_again(job)
            self._count_attempt(failed, status.state, end)
            why = _why(status)
            yield Retrying(time_s=end, run=self.name, stages=tuple(left), job_id=status.job_id, reason=why)
        else:
            # who cancels a job wants none of what is left in it
            failed_now = left if status.state is JobState.CANCELLED else left[:1]
            one = f"stage {failed_now[0]!r}" if len(failed_now) == 1 else f"the job of {len(failed_now)} stages"
            self._ask_again(job, but=failed_now)
            yield from self._fail(failed_now, f"{one} ended as {_why(status)}", end)

    def _is_short(self, job: Job, stage: str) -> bool:
        """Whether a job ended since it had fewer cores than a stage needs, which another need not."""
        is_short = job.status.state is JobState.FAILED and job.status.exit_code == SHORT_EXIT
        return is_short and self.stages[stage].resubmissions < _MAX_SHORT

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
        if self.outcome is not None or not self.stages.are_settled:
            return
        if not self._reasons:
            last_s = max((view.ended_s or 0.0 for view in self.stages.values()), default=at_s)
            yield self._end("completed", "", last_s)
            return
        first, *others = self._reasons
        yield self._end("failed", f"{first}; so did {len(others)} more" if others else first, at_s)

    def _to_retry(self, job: Job, failed: str) -> str | None:
        """Name the stage of a job that failed, if it may be tried again."""
        view = self.stages[failed]
        if job.status.state is JobState.CANCELLED:
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
        self.stages.put(name, replace(view, stage=stage, attempts=view.attempts + 1, not_before_s=end_s + pause_s))

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
        slots = self.workflow.layout(job.planned.stages, self.run_s)
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
            needed_s = sum(self.stages[name].stage.walltime_s for name in job.planned.stages)
            hold_until = start_s + min(job.planned.spare_walltime_s, max(job.spec.walltime_s - needed_s, 0.0))
            for name in self._left_of(job):
                view = self.stages[name]
                self.stages.put(name, replace(view, phase=Phase.ALLOCATED, hold_until_s=hold_until, limit_s=limit_s))

    def _ask_again(self, job: Job, but: Sequence[str] = ()) -> None:
        """Let what is left of a job be asked for again."""
        self.asked_again += 1
        for name in [name for name in self._left_of(job) if name not in but]:
            view = self.stages[name]
            self.stages.put(name, StageView(view.stage, resubmissions=view.resubmissions + 1, attempts=view.attempts))

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


def _is_elastic(planned: PlannedJob) -> bool:
    """Whether a job's cores may change while it runs."""
    return bool(planned.joins or planned.widths or planned.shrinks)


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


def _before_requeue(job: Job, was: JobStatus) -> float:
    """Count what a job held until it was put back into the queue, at most: perhaps it gave cores back before."""
    if was.start_s is None or job.spec.local:
        return 0.0
    return core_hours(job.spec.cores, max(job.status.submit_s - was.start_s, 0.0))


def _idled_behind_local(job: Job) -> float:
    """Count the core-hours that a job idled before its payload, or may at most if that has not begun."""
    status, until_s = job.status, job.status.payload_start_s
    if until_s is None and (status.state.is_final or job.given_up):
        until_s = status.end_s
        if until_s is None or status.start_s is None:
            return 0.0
    if until_s is None:
        return core_hours(job.spec.cores, max((job.spec.max_await_s or 0.0) - _NOTICE_S, 0.0))
    return core_hours(job.spec.cores, max(until_s - (until_s if status.start_s is None else status.start_s), 0.0))


def _idled_out(job: Job) -> bool:
    """Whether an allocation ended that idled for as long as it could: nothing of what is left in it began."""
    status = job.status
    if status.state is JobState.TIMEOUT:
        return status.payload_start_s is None or _stood_still(job)
    return status.state is JobState.FAILED and status.exit_code == HELD_EXIT and status.payload_start_s is None


def _stood_still(job: Job) -> bool:
    """Whether a job ended as it waited for more cores between two of its stages."""
    steps = job.status.steps
    waits = bool(job.planned.widths) and 0 < len(steps) < len(job.planned.stages)
    return waits and all(step.end_s is not None for step in steps)


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
    """Say how a job ended that did not complete."""
    means = meaning(status.exit_code) if status.state is JobState.FAILED else ""
    words = "" if means and status.reason in _NO_NEWS else status.reason
    detail = ": ".join(part for part in (words, means) if part)
    return f"{status.state.value} ({detail})" if detail else status.state.value
