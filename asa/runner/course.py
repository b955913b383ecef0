"""The course of a run: the state of its stages, its jobs and its host, and the changes to a stage.

A stage is attempted until it is done. After an attempt without success the stage is *asked for again* if its job never
ran it, *tried again* if it failed and may be retried, *handed back* to the host of an open run, or *fails* for good.
The unit that its job runs decides which; see `asa.runner.kinds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from asa.backend import Capabilities, End, JobState
from asa.records import Outcome, Record, Retrying, RunEnded, StageEnded, StageStarted
from asa.runner.host import Host
from asa.runner.jobs import Job, JobsOfRun
from asa.runner.nodes import Nodes
from asa.runner.retries import has_run_out_of_memory, learned, tried_again, with_more_memory
from asa.runner.stages import Stages
from asa.strategies.base import Choice, Phase, PlannedJob, StageView
from asa.waves import Waves, slots_of, walltime_of, waves_of
from asa.workflow import Slot, Stage, Workflow


@dataclass(slots=True)
class RunEnding:
    """The end of a run, and the parts of it that failed for good."""

    outcome: Outcome | None = None  # None until the run has ended
    reason: str = ""
    # whether the run ends with the first failed stage, or only when no other stage can run
    fail_fast: bool = True  # the default for runs of versions without this choice
    failures: list[str] = field(default_factory=list)  # why stages failed, in order
    refused: dict[str, str] = field(default_factory=dict)  # by stage whose job was refused for good: why


@dataclass(slots=True)
class RunCourse:
    """The state of one workflow's run."""

    name: str  # unique among the runs of one client
    workflow: Workflow
    capabilities: Capabilities
    # in this run's tokens, so that a site never sees them twice: letters and digits
    unique: str
    # real run time of each stage, in simulations; the expected one if not given
    run_s: Mapping[str, float] | None = None
    folder: str = ""  # folder in which stages keep records for when they run again; empty for none
    stages: Stages = field(init=False)
    jobs: JobsOfRun = field(default_factory=JobsOfRun)
    host: Host = field(default_factory=Host)
    nodes: Nodes = field(init=False)  # nodes on which jobs fail
    ending: RunEnding = field(default_factory=RunEnding)
    choices: dict[str, Choice] = field(default_factory=dict)  # the chosen shape, by stage
    # how often a completed stage was asked for again, together with all that follow it
    generations: dict[str, int] = field(default_factory=dict)
    # how often jobs were asked for again; a plan made before the latest time is outdated
    asked_again: int = field(default=0, init=False)
    may_have_lost: bool = field(default=True, init=False)  # whether some jobs may have become useless

    def __post_init__(self) -> None:
        self.stages = Stages(self.workflow, self.has_released)
        self.nodes = Nodes(self.capabilities)

    def has_released(self, stages: Mapping[str, StageView], stage: Stage, before: str) -> bool:  # noqa: ARG002
        """Whether a stage may run some of its units, because the units that they need have completed."""
        return False

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the run; None until it has ended."""
        return self.ending.outcome

    @property
    def reason(self) -> str:
        """Reason for the end of the run; empty if the run completed, or has not ended."""
        return self.ending.reason

    def mark(self, stage: str) -> str:
        """Return the name for a stage's files; it is new each time that the completed stage runs again."""
        generation = self.generations.get(stage, 0)
        return f"{stage}@{generation}" if generation else stage

    def post(self, stage: str) -> str:
        """Return the name of a stage's completion marker."""
        return f"{self.unique}/{self.mark(stage)}"

    def tasks_of(self, stage: str) -> str:
        """Return the folder in which a stage records its tasks; empty for none."""
        return f"{self.folder}/tasks/{self.mark(stage)}" if self.folder else ""

    def token_of(self, stages: Sequence[str]) -> str:
        """Return the token of the n-th job of the given stages, or of the round if several jobs run a stage."""
        group = f"x{len(stages)}" if len(stages) > 1 else ""
        position, number = self.stages.position(stages[0]), self.stages[stages[0]].resubmissions
        return f"{self.unique[:12]}-{position}{group}-{number}"

    # ------------------------------------------------------------------ stages in their jobs

    def at_most(self, walltime_s: float, stages: Iterable[str], partition: str) -> float:
        """Limit a walltime to its partition's maximum, unless the stages' own walltimes exceed that already."""
        limits = self.capabilities.partitions.get(partition or self.capabilities.partition)
        max_s = limits.max_walltime_s if limits is not None else None
        own = [self.workflow.stages[name] for name in self.workflow.in_order(stages)]
        if any(stage.name in self.choices for stage in own):
            lasts_s = (self.choices[s.name].shape.walltime_s if s.name in self.choices else s.walltime_s for s in own)
            asked_s = sum(lasts_s)
        else:
            asked_s = walltime_of(waves_of(own, self.capabilities))
        return walltime_s if max_s is None or asked_s > max_s else min(walltime_s, max_s)

    def waves(self, names: Sequence[str], widths: Sequence[int] = ()) -> Waves:
        """Return which stages of a job run at the same time. In chosen shapes, or if the job grows, all run in turn."""
        stages = [self.stages[name].stage for name in self.workflow.in_order(names)]
        if widths or not self.choices.keys().isdisjoint(names):
            return tuple((stage,) for stage in stages)
        return waves_of(stages, self.capabilities)

    def layout(self, planned: PlannedJob) -> tuple[Slot, ...]:
        """Arrange the stages of a job: in waves, and in their chosen shapes."""
        lasts_s = {name: self._lasts_s(name) for name in planned.stages}
        return slots_of(self.waves(planned.stages, planned.widths), lasts_s)

    def _lasts_s(self, name: str) -> float:
        """Return how long a stage is expected to run, or in a simulation how long it really runs."""
        expected_s = self.workflow.stages[name].expected_s
        really_s = expected_s if self.run_s is None else self.run_s[name]
        if name not in self.choices:
            return really_s
        width = self.choices[name].shape.width
        run_s = next(shape.run_s for shape in self.workflow.stages[name].shapes if shape.width == width)
        return really_s * run_s / expected_s

    # ------------------------------------------------------------------ while a job runs

    def left_of(self, job: Job) -> list[str]:
        """Name the unsettled stages of a job that no other job has taken over."""
        views = (self.stages[name] for name in job.planned.stages)
        return [v.stage.name for v in views if v.job_id == job.status.job_id and not v.phase.is_settled]

    def allocated(self, job: Job, start_s: float) -> None:
        """Record that a job was allocated its cores, and until when it may idle."""
        if not job.given_up:
            limit_s = start_s + job.spec.walltime_s
            needed_s = walltime_of(self.waves(job.planned.stages, job.planned.widths))
            hold_until = start_s + min(job.planned.spare_walltime_s, max(job.spec.walltime_s - needed_s, 0.0))
            for name in self.left_of(job):
                self.stages.change(name, phase=Phase.ALLOCATED, hold_until_s=hold_until, limit_s=limit_s)

    def began(self, job: Job, at_s: float) -> Iterator[Record]:
        """Record that a job began its first stage."""
        first = job.planned.stages[0]
        if self.stages[first].ended_s is not None:
            return  # the stage completed before the job was requeued
        is_alone = len(job.planned.stages) == 1
        if is_alone and job.status.steps:  # a single stage begins with its first step
            at_s = job.status.steps[0].start_s
        began_s = self.stages.in_order(first, at_s)
        self.stages.change(first, started_s=began_s)
        if is_alone:  # of several stages, each begin is reported when the stage completes
            yield StageStarted(time_s=began_s, run=self.name, stages=(first,), job_id=job.status.job_id)

    def stage_done(self, job: Job, name: str, start_s: float, end_s: float) -> Iterator[Record]:
        """Record that one of a job's stages completed."""
        stages, job_id, view = (name,), job.status.job_id, self.stages[name]
        if view.started_s is not None and view.ended_s is not None:  # times from before a requeue stay
            start_s, end_s = view.started_s, view.ended_s
        start_s, end_s = self.stages.note_times(name, start_s, end_s)
        self.stages.change(name, phase=Phase.DONE, hold_until_s=None)
        yield StageStarted(time_s=start_s, run=self.name, stages=stages, job_id=job_id)
        yield StageEnded(time_s=end_s, run=self.name, stages=stages, job_id=job_id)

    def stages_done(self, job: Job, began_s: float, end_s: float) -> Iterator[Record]:
        """Record that all stages of a job completed."""
        slots = self.layout(job.planned)
        steps = {step.name: step for step in job.status.steps}
        for slot in slots:
            if self.stages[slot.stage].phase is Phase.DONE:
                continue
            if len(slots) > 1:
                start, end = began_s + slot.start_s, min(began_s + slot.end_s, end_s)
                if (step := steps.get(slot.stage)) is not None:
                    start, end = step.start_s, end_s if step.end_s is None else step.end_s
                yield from self.stage_done(job, slot.stage, start, end)
                continue
            known = self.stages[slot.stage].started_s
            ended_s = job.status.steps[0].end_s if job.status.steps else None
            _, end = self.stages.note_times(
                slot.stage, began_s if known is None else known, end_s if ended_s is None else ended_s
            )
            self.stages.change(slot.stage, phase=Phase.DONE)
            yield StageEnded(time_s=end, run=self.name, stages=(slot.stage,), job_id=job.status.job_id)
        yield from self.end_if_settled(end_s)

    # ------------------------------------------------------------------ ends of attempts

    def ask_again(self, job: Job, but: Sequence[str] = ()) -> None:
        """Ask again for a job's remaining stages."""
        self.asked_again += 1
        for name in [name for name in self.left_of(job) if name not in but]:
            view = self.stages[name]
            again = StageView(view.stage, resubmissions=view.resubmissions + 1, attempts=view.attempts)
            self.stages.put(name, again.with_past(view))

    def retrying(self, names: Sequence[str], reason: str, at_s: float, job_id: str = "") -> Record:
        """Return the record which says that uncompleted stages are asked for again, and why."""
        return Retrying(time_s=at_s, run=self.name, stages=tuple(names), job_id=job_id, reason=reason)

    def try_again(self, name: str, ended: Sequence[End], end_s: float) -> str:
        """Let a failed stage be tried again after a pause, with more memory or walltime if that ran out; say which."""
        view = self.stages[name]
        stage = view.stage
        if any(map(has_run_out_of_memory, ended)) and stage.memory_bytes:
            stage = with_more_memory(stage, self.capabilities)
        if any(status.state is JobState.TIMEOUT for status in ended):
            longer = self.at_most(stage.walltime_s * stage.retry_walltime_factor, [name], stage.partition)
            stage = replace(stage, walltime_s=longer, expected_run_s=min(stage.walltime_s, longer))
        self.stages.put(name, tried_again(replace(view, stage=stage), end_s))
        return learned(view.stage, stage)

    def hand_back(self, name: str, reason: str, at_s: float, job_id: str = "") -> Iterator[Record]:
        """Hand a failed stage back to its host, which will hand it over again with a new request.

        If the stage's job failed before the host had handed the stage over, the next job is submitted only after that.
        """
        self.host.handed_back(name, reason, self.stages)
        yield self.retrying([name], reason, at_s, job_id)

    def fail(self, stages: Iterable[str], reason: str, at_s: float) -> Iterator[Record]:
        """Record that stages failed for good; others continue, unless the run is to end with the first failure."""
        self.ending.failures.append(reason)
        for name in stages:
            self.stages.change(name, phase=Phase.FAILED, hold_until_s=None, reason=reason)
        if self.ending.fail_fast and self.outcome is None:
            yield self.end("failed", reason, at_s)
        else:
            yield from self.end_if_settled(at_s)

    def end(self, outcome: Outcome, reason: str, at_s: float) -> Record:
        """End the run."""
        self.ending.outcome, self.ending.reason = outcome, reason
        return RunEnded(time_s=at_s, run=self.name, outcome=outcome, reason=reason)

    def end_if_settled(self, at_s: float) -> Iterator[Record]:
        """End the run once nothing is left to do."""
        if self.outcome is not None or self.host.may_add or not self.stages.are_settled:
            return
        if not self.ending.failures:
            last_s = max((view.ended_s or 0.0 for view in self.stages.values()), default=at_s)
            yield self.end("completed", "", last_s)
            return
        first, *others = self.ending.failures
        yield self.end("failed", f"{first}; so did {len(others)} more" if others else first, at_s)
