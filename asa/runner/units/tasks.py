"""Tasks of a stage that several jobs take from one bag, and elements of an array that take turns likewise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from asa.backend import JobState, JobStatus
from asa.outcome import JobOutcome, outcome_of
from asa.records import Record
from asa.runner.course import RunCourse
from asa.runner.entries import Intended
from asa.runner.jobs import Job, round_of
from asa.runner.units.rounds import MAX_ROUNDS, NOTHING_LEFT, RoundUnits, has_completed, ran_out
from asa.runner.units.whole import cut_short
from asa.strategies.base import Keep, PlannedJob, StageView


@dataclass(slots=True)
class TaskUnits(RoundUnits):
    """Tasks that several jobs share: another job follows each whose walltime is over."""

    drained: set[str] = field(default_factory=set)  # rounds in which nothing is left to take
    moved: set[str] = field(default_factory=set)  # jobs that a bad node has ended, each followed by another
    full: set[str] = field(default_factory=set)  # rounds that get no more jobs: one was refused

    def goes_on_without(self, run: RunCourse, intent: Intended) -> bool:  # noqa: ARG002
        """Whether it was a further job of a round that was refused for good: those that there are run it."""
        if intent.planned.mate:
            self.full.add(round_of(intent.planned, intent.spec))
        return bool(intent.planned.mate)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Say that no tasks are left that a job could take, if so; one that had begun may have some."""
        is_drained = job.round in self.drained and not job.status.restarts
        return "no tasks are left" if is_drained else RoundUnits.why_useless(self, run, job)

    def left(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Leave it to others to go on; once none is left, ask for more while tasks are, or have the stage end."""
        if _tells_of_nothing_left(job.status) and job.round not in self.drained:
            self.drained.add(job.round)
            run.may_have_lost = True
        if has_completed(job) and not self._is_doubted(job):
            yield from self.completed(run, job, end_s)
            return
        name = job.planned.stages[0]
        if run.nodes.moves(run.stages[name].stage, job.status, job):
            self.moved.add(job.status.job_id)
        if self.hand_over(run, job):
            return
        last = self._decisive(job)
        run.stages.put(name, replace(run.stages[name], job_id=last.status.job_id))
        if _may_go_on(last, run.stages[name]):
            run.ask_again(last)
            yield run.retrying([name], "no job is left, but some tasks are", end_s, job.status.job_id)
        else:
            yield from cut_short(run, last, [name], end_s)

    def gone(self, lead: Job) -> Iterator[Job]:
        """Give the jobs of a round that have ended otherwise than by themselves."""
        for job in self.jobs.get(lead.round, ()):
            if job.status.state.is_final and job.status.state is not JobState.COMPLETED:
                yield job

    def missing(
        self, lead: Job, rounds: int, *, is_ready: bool, now_s: float, did: Callable[[Job], bool]
    ) -> Iterator[PlannedJob]:
        """Plan the jobs of a round that have yet to be asked for: one more for each whose walltime was over.

        `rounds`: how many there were before.
        `did`: whether a job that ended did anything.
        """
        number, planned = lead.round, lead.planned
        if not number or lead.giving_up or number in self.drained | self.full:
            return
        there = {one.planned.mate for one in self.jobs[number]}
        over = sum(one.status.job_id in self.moved or (ran_out(one.status) and did(one)) for one in self.jobs[number])
        for mate in range(1, lead.spec.sharing + min(over, (MAX_ROUNDS - rounds) * lead.spec.sharing)):
            if mate not in there:
                yield replace(
                    planned,
                    submit_s=now_s,
                    keep=Keep.NOTHING if is_ready else planned.keep,
                    reason=f"one of {lead.spec.sharing} jobs at a time that share its tasks",
                    mate=mate,
                )

    def _is_doubted(self, job: Job) -> bool:
        """Whether tasks may have failed that exited with 0 in a job of its round."""
        return any(one.status.in_doubt for one in self.jobs.get(job.round, ()))

    def _decisive(self, job: Job) -> Job:
        """Of the jobs of a round that have ended, give the one whose end is the stage's: which saw all tasks end.

        Or, before that, one in which tasks may have failed that exited with 0.
        """
        jobs = self.jobs.get(job.round, [])
        if self._is_doubted(job):
            return next(one for one in jobs if one.status.in_doubt)
        return next((one for one in jobs if outcome_of(one.status) is JobOutcome.TASKS_FAILED), job)


def _tells_of_nothing_left(status: JobStatus) -> bool:
    """Whether a job's end tells that every task of its bag has been taken."""
    return status.state is JobState.COMPLETED or outcome_of(status) in (JobOutcome.PART_DONE, JobOutcome.TASKS_FAILED)


def _may_go_on(job: Job, view: StageView) -> bool:
    """Whether a stage whose jobs have all ended is asked for again for the tasks that are left."""
    status = job.status
    if status.in_doubt:
        return False  # it has failed
    is_left = status.reason == NOTHING_LEFT or outcome_of(status) is JobOutcome.PART_DONE or bool(job.giving_up)
    return (is_left or ran_out(status)) and view.resubmissions < MAX_ROUNDS
