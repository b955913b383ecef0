"""Stages that several jobs run, each taking tasks from one bag: which of them stands for the stage, and which are left.

One job stands for the stage in its view: the first that is submitted, then the first to begin; where it ends before the
stage does, another that is there takes its place. A strategy knows of it alone: the others are asked for as it was, as
soon as it is accepted, and one more for each whose walltime is over. All of one round, from one time that the stage is
asked for to the next, share a bag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from asa.backend import JobState, JobStatus
from asa.exactly_once import TWIN
from asa.outcome import JobOutcome, outcome_of
from asa.runner.jobs import Job
from asa.strategies.base import Keep, Phase, PlannedJob, StageView

NOTHING_LEFT = "NothingLeft"
"""Reason of a completed job that found nothing more to do while others still ran tasks of its stage."""

MAX_ROUNDS = 20
"""How often a stage is asked for again since all its jobs have ended, with tasks left that nobody began or finished.

So often the jobs of a round may follow each other, too.
"""


@dataclass(slots=True)
class Sharing:
    """The jobs of one run that share bags."""

    _jobs: dict[str, list[Job]] = field(default_factory=dict)  # by round, in order of submission
    _drained: set[str] = field(default_factory=set)  # rounds in which nothing is left to take
    _began_s: dict[str, float] = field(default_factory=dict)  # by round, when the first of its jobs did
    _moved: set[str] = field(default_factory=set)  # jobs that a bad node has ended, each followed by another
    _full: set[str] = field(default_factory=set)  # rounds that get no more jobs: one was refused

    def accepted(self, job: Job) -> None:
        """Note a job."""
        if job.spec.bag:
            self._jobs.setdefault(job.round, []).append(job)

    def refused(self, number: str) -> None:
        """Note that a further job of a round was refused for good: those that there are run it."""
        self._full.add(number)

    def moved(self, job: Job) -> None:
        """Note that a job ended by its node's fault, so that another is asked for in its place."""
        self._moved.add(job.status.job_id)

    def began_s(self, job: Job, at_s: float) -> float:
        """Say when the first job of a round began, given that one did."""
        return self._began_s.setdefault(job.round, at_s)

    def heard(self, job: Job) -> bool:
        """Take in how a job ended; say whether it tells that nothing is left for others to take."""
        if not tells_of_nothing_left(job.status) or job.round in self._drained:
            return False
        self._drained.add(job.round)
        return True

    def is_useless(self, job: Job) -> bool:
        """Whether nothing is left that a job which has not begun could take; one that had begun may have something."""
        return job.round in self._drained and not job.status.restarts

    def others(self, job: Job) -> list[Job]:
        """Give the other jobs of its round that may yet do something, those first that are furthest."""
        live = [
            one
            for one in self._jobs.get(job.round, ())
            if one is not job and not one.status.state.is_final and not one.given_up
        ]
        return sorted(live, key=_place)

    def count(self, lead: Job) -> tuple[int, int]:
        """Count the jobs of a round that run, and those that are pending."""
        live = [lead.status, *(one.status for one in self.others(lead))]
        running = sum(one.state is JobState.RUNNING for one in live)
        return running, sum(one.state is JobState.PENDING for one in live)

    def gone(self, lead: Job) -> Iterator[Job]:
        """Give the jobs of a round that have ended otherwise than by themselves."""
        for job in self._jobs.get(lead.round, ()):
            if job.status.state.is_final and job.status.state is not JobState.COMPLETED:
                yield job

    def legs_over(self, number: str) -> list[int]:
        """Name the legs of a round of which no job is left that could run it."""
        jobs = [job for job in self._jobs.get(number, ()) if job.spec.leg]
        live = {job.spec.leg for job in jobs if not (job.status.state.is_final or job.given_up)}
        return sorted({job.spec.leg for job in jobs} - live)

    def spent(self, number: str, leg: int) -> int:
        """Count the jobs of one leg of a round that have ended: each had its token for life."""
        jobs = (job for job in self._jobs.get(number, ()) if job.spec.leg == leg and job.status.reason != TWIN)
        return sum(job.status.state.is_final or job.given_up for job in jobs)

    def is_doubted(self, job: Job) -> bool:
        """Whether tasks may have failed that exited with 0 in a job of its round."""
        return not job.spec.leg and any(one.status.in_doubt for one in self._jobs.get(job.round, ()))

    def decisive(self, job: Job) -> Job:
        """Of the jobs of a round that have ended, give the one whose end is the stage's: which saw all tasks end.

        Or, before that, one in which tasks may have failed that exited with 0.
        """
        jobs = self._jobs.get(job.round, [])
        if self.is_doubted(job):
            return next(one for one in jobs if one.status.in_doubt)
        return next((one for one in jobs if outcome_of(one.status) is JobOutcome.TASKS_FAILED), job)

    def missing(
        self, lead: Job, rounds: int, *, is_ready: bool, now_s: float, did: Callable[[Job], bool]
    ) -> Iterator[PlannedJob]:
        """Plan the jobs of a round that have yet to be asked for: one more for each whose walltime was over.

        `rounds`: how many there were before.
        `did`: whether a job that ended did anything.
        """
        number, planned = lead.round, lead.planned
        if not number or lead.giving_up or number in self._drained | self._full:
            return
        there = {one.planned.mate for one in self._jobs[number]}
        over = sum(one.status.job_id in self._moved or (ran_out(one.status) and did(one)) for one in self._jobs[number])
        for mate in range(1, lead.spec.sharing + min(over, (MAX_ROUNDS - rounds) * lead.spec.sharing)):
            if mate not in there:
                yield replace(
                    planned,
                    submit_s=now_s,
                    keep=Keep.NOTHING if is_ready else planned.keep,
                    reason=f"one of {lead.spec.sharing} jobs at a time that share its tasks",
                    mate=mate,
                )


def tells_of_nothing_left(status: JobStatus) -> bool:
    """Whether a job's end tells that every task of its bag has been taken."""
    return status.state is JobState.COMPLETED or outcome_of(status) in (JobOutcome.PART_DONE, JobOutcome.TASKS_FAILED)


def may_go_on(job: Job, view: StageView) -> bool:
    """Whether a stage whose jobs have all ended is asked for again for the tasks that are left."""
    status = job.status
    if status.in_doubt:
        return False  # it has failed
    is_left = status.reason == NOTHING_LEFT or outcome_of(status) is JobOutcome.PART_DONE or bool(job.giving_up)
    return (is_left or ran_out(status)) and view.resubmissions < MAX_ROUNDS


def ran_out(status: JobStatus) -> bool:
    """Whether a job's walltime was over while its payload ran."""
    return status.state is JobState.TIMEOUT and status.payload_start_s is not None


def handed_to(job: Job, view: StageView) -> StageView:
    """Let a job stand for a stage."""
    status, planned = job.status, job.planned
    as_running = status.payload_start_s is not None
    handed = replace(view, job_id=status.job_id, keep=planned.keep, hold_until_s=None, limit_s=None)
    if job.spec.leg:
        handed = replace(handed, leg=job.spec.leg, next_job_id=None, leg_start_s=status.payload_start_s)
    if status.start_s is not None:
        handed = replace(handed, limit_s=status.start_s + job.spec.walltime_s)
    if as_running and view.phase is Phase.RUNNING:
        return handed
    return replace(
        handed,
        phase=Phase.RUNNING if as_running else Phase.QUEUED,
        submit_s=status.submit_s,
        started_s=view.started_s if as_running else None,
        predicted_wait_s=planned.prediction.wait_s if planned.prediction else None,
    )


def _place(job: Job) -> tuple[bool, bool, bool]:
    return bool(job.giving_up), job.status.payload_start_s is None, job.status.start_s is None
