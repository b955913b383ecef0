"""Tasks that several jobs take from one bag, and elements of an array that take turns in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from asa.backend import ElementsStatus, JobState, JobStatus
from asa.bags import Bag
from asa.outcome import JobOutcome, outcome_of
from asa.records import Record
from asa.runner.arrays import in_turn
from asa.runner.course import RunCourse
from asa.runner.entries import Intended
from asa.runner.jobs import Job, round_of
from asa.runner.kinds.base import cut_short
from asa.runner.kinds.rounds import MAX_ROUNDS, NOTHING_LEFT, RoundUnits, has_completed, number_of, ran_out
from asa.strategies.base import PlannedJob, StageView


@dataclass(slots=True)
class TaskUnits(RoundUnits):
    """Tasks in bags; a job whose walltime has ended is followed by another."""

    drained: set[str] = field(default_factory=set)  # rounds whose bag is empty
    moved: set[str] = field(default_factory=set)  # jobs that ended because of a bad node, each followed by another job
    full: set[str] = field(default_factory=set)  # rounds that get no more jobs, because a further job was refused

    def asks(self, run: RunCourse, planned: PlannedJob) -> dict[str, Any]:
        """Return the bag that a job takes tasks from, and how many jobs take from it at a time."""
        return RoundUnits.asks(self, run, planned) | {"sharing": run.stages[planned.stages[0]].stage.job_count}

    def goes_on_without(self, run: RunCourse, intent: Intended) -> bool:  # noqa: ARG002
        """After an additional job was refused for good, let the accepted jobs run the stage."""
        if intent.planned.mate:
            self.full.add(round_of(intent.spec))
        return bool(intent.planned.mate)

    def why_useless(self, run: RunCourse, job: Job) -> str:
        """Return a reason if a job that has not begun would find no tasks.

        A requeued job may have taken tasks before.
        """
        is_drained = job.round in self.drained and not job.status.restarts
        return "no tasks are left" if is_drained else RoundUnits.why_useless(self, run, job)

    def left(self, run: RunCourse, job: Job, end_s: float) -> Iterator[Record]:
        """Leave the rest to other jobs; without any, ask for more jobs while tasks are left, else end the stage."""
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

    def missing(self, run: RunCourse, lead: Job, now_s: float) -> Iterator[PlannedJob]:
        """Plan the next job of a round; each job whose walltime has ended is followed by one more."""
        number, count = lead.round, lead.spec.sharing
        if lead.giving_up or number in self.drained | self.full:
            return
        jobs, rounds = self.jobs[number], run.stages[lead.planned.stages[0]].resubmissions
        there = {job.planned.mate for job in jobs}
        over = sum(job.status.job_id in self.moved or (ran_out(job.status) and _did(run, job)) for job in jobs)
        for further in range(1, count + min(over, (MAX_ROUNDS - rounds) * count)):
            if further not in there:
                yield self.another(run, lead, further, f"one of {count} jobs at a time that share its tasks", now_s)
                return

    def give_back(self, run: RunCourse, given_back: set[str]) -> bool:
        """Return the tasks of failed jobs to the bag."""
        is_done = True
        for lead in self.leads(run) if run.outcome is None and run.folder else ():
            bag = Bag(Path(run.tasks_of(lead.planned.stages[0])))
            ended = (job for job in self.jobs[lead.round] if job.status.state.is_final)
            for token in {job.spec.token for job in ended if job.status.state is not JobState.COMPLETED} - given_back:
                if bag.give_back(number_of(lead), token):
                    given_back.add(token)
                else:
                    is_done = False
        return is_done

    def elements_of(self, run: RunCourse, job: Job) -> ElementsStatus | None:
        """Describe how elements of an array that take turns in jobs ended; None for other jobs."""
        name = job.planned.stages[0]
        if not (run.stages[name].stage.takes_turns and run.folder):
            return None
        return in_turn(Bag(Path(run.tasks_of(name))).ends())

    def longest_in_turn_s(self, run: RunCourse) -> dict[str, float]:
        """Return how long the longest completed element ran of each array whose elements take turns in jobs."""
        return {
            stage.name: longest_s
            for stage in run.workflow.stages.values()
            if stage.takes_turns
            and (folder := run.tasks_of(stage.name))
            and (longest_s := Bag(Path(folder)).longest_s()) is not None
        }

    def _is_doubted(self, job: Job) -> bool:
        """Whether tasks that exited with 0 in some job of the round may have failed."""
        return any(job.status.in_doubt for job in self.jobs.get(job.round, ()))

    def _decisive(self, job: Job) -> Job:
        """Return the ended job of a round that decides how the stage ended: the job that saw all tasks end.

        A job whose tasks may have failed though they exited with 0 takes precedence.
        """
        jobs = self.jobs.get(job.round, [])
        if self._is_doubted(job):
            return next(job for job in jobs if job.status.in_doubt)
        return next((other for other in jobs if outcome_of(other.status) is JobOutcome.TASKS_FAILED), job)


def _did(run: RunCourse, job: Job) -> bool:
    """Whether a job may have run any task."""
    return not run.folder or Bag(Path(run.tasks_of(job.planned.stages[0]))).did(number_of(job), job.spec.token)


def _tells_of_nothing_left(status: JobStatus) -> bool:
    """Whether a job's end shows that every task of its bag has been taken."""
    return status.state is JobState.COMPLETED or outcome_of(status) in (JobOutcome.PART_DONE, JobOutcome.TASKS_FAILED)


def _may_go_on(job: Job, view: StageView) -> bool:
    """Whether a stage whose jobs have all ended is submitted again for the remaining tasks."""
    status = job.status
    if status.in_doubt:
        return False  # the stage has failed
    is_left = status.reason == NOTHING_LEFT or outcome_of(status) is JobOutcome.PART_DONE or bool(job.giving_up)
    return (is_left or ran_out(status)) and view.resubmissions < MAX_ROUNDS
