"""The jobs of a run: each by itself, and all of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from asa.backend import JobSpec, JobState, JobStatus
from asa.core.patterns import pattern
from asa.exactly_once import DUPLICATE
from asa.runner.entries import Intended
from asa.strategies.base import Choice, PlannedJob, Substitute

if TYPE_CHECKING:
    from asa.estimators import OwnJob

_ROUND = pattern(r".*-\d+")  # the rest of the token numbers the job in its round

PAYLOAD_COMPLETED = "EndedWell"
"""Reason of a job whose payload completed, although the batch system reports another end."""


def round_of(spec: JobSpec) -> str:
    """Return the name of a job's round, with which the tokens of its jobs begin; empty if the stage has only this job.

    Examples
    --------
    >>> round_of(JobSpec("sweep", 4, 60.0, token="8f3c-2-0m3", bag="sweep")), round_of(JobSpec("cut", 4, 60.0))
    ('8f3c-2-0', '')
    """
    common = _ROUND.match(spec.token)
    return common[0] if spec.shares and common is not None else ""


@dataclass(slots=True)
class Job:
    """A job of the run: as planned, as requested, and its last known status."""

    planned: PlannedJob  # as the strategy planned it
    spec: JobSpec  # as requested from the batch system
    status: JobStatus
    # why the client cancels it, also before the request was sent; empty if it does not
    giving_up: str = ""
    giving_up_s: float = math.inf  # time at which the client decided that
    given_up: bool = False  # whether it was cancelled and is gone: its stages may have another job
    # the job to submit in place of this one once this one is given up; None if none is chosen
    substitute: Substitute | None = None
    observed: bool = False  # whether its wait was observed
    known_as: OwnJob | None = None  # the bank's key of the job, once it is in the queue
    resized: int = 0  # how many losses of cores since its start were reported

    @property
    def round(self) -> str:
        """The name of the round, all jobs that run the stage since its last submission; empty for a single job."""
        return round_of(self.spec)

    def step_of(self, stage: str) -> int:
        """Return the number of a stage's step in a job of several stages; 0 in a job of one stage."""
        return next((number for number, step in enumerate(self.spec.steps, start=1) if step.name == stage), 0)

    @property
    def is_void(self) -> bool:
        """Whether jobs that depend on it can never start."""
        status = self.status
        has_completed = status.state is JobState.COMPLETED and status.reason != PAYLOAD_COMPLETED
        has_failed = status.state.is_final and not has_completed
        return bool(self.giving_up) or (has_failed and status.reason != DUPLICATE)


@dataclass(slots=True)
class JobsOfRun(Mapping[str, Job]):
    """All accepted jobs of a run by id, and the submissions whose result is unknown."""

    intents: dict[str, Intended] = field(default_factory=dict)  # the latest submission of each token
    # the jobs of the submission whose result is still unknown, by token
    open_intents: dict[str, Intended] = field(default_factory=dict)
    sought_s: dict[str, float] = field(default_factory=dict)  # when they were first searched for and not found
    # tokens that may have a second job
    doubtful: dict[str, float] = field(default_factory=dict)  # since when
    condemned: dict[str, None] = field(default_factory=dict)  # jobs that were to be cancelled
    # jobs that ended at once, as another job of their token had begun
    duplicates: list[Job] = field(default_factory=list)
    # replacements of given-up jobs that are not yet submitted; each is followed by others to submit if it is refused
    substitutes: list[tuple[Substitute, ...]] = field(default_factory=list)
    _by_id: dict[str, Job] = field(default_factory=dict)
    _by_token: dict[str, Job] = field(default_factory=dict)  # the latest job
    _by_stage: dict[str, list[Job]] = field(default_factory=dict)
    _unfinished: dict[str, Job] = field(default_factory=dict)

    def __getitem__(self, job_id: str) -> Job:
        return self._by_id[job_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._by_id

    def live(self) -> list[str]:
        """Jobs that have not ended, and that the client is not cancelling."""
        return [i for i, job in self._unfinished.items() if not job.giving_up]

    def unfinished(self) -> list[str]:
        """Jobs that have not ended, also those being cancelled."""
        return list(self._unfinished)

    def has_sent(self, token: str) -> bool:
        """Whether the batch system has ever had a job of this token."""
        job = self._by_token.get(token)
        return job is not None and self._is_current(job)

    def of_token(self, token: str) -> Job | None:
        """Return the job of a token; None if there is none, or it was given up."""
        job = self._by_token.get(token)
        return job if job is not None and not job.given_up and self._is_current(job) else None

    def of_stage(self, stage: str) -> list[Job]:
        """Return the jobs that were to run a stage, in the order of their acceptance."""
        return [job for job in self._by_stage.get(stage, ()) if self._is_current(job)]

    def needed(self, job: Job) -> list[Job]:
        """Return the jobs that a job depends on."""
        return [
            self._by_id[dependency.job_id] for dependency in job.spec.dependencies if dependency.job_id in self._by_id
        ]

    def _is_current(self, job: Job) -> bool:
        """Whether the batch system has not reused a job's number."""
        return self._by_id[job.status.job_id] is job

    # ------------------------------------------------------------------ changes

    def intended(self, intent: Intended) -> None:
        """Record that a job is about to be submitted."""
        self.open_intents[intent.token] = self.intents[intent.token] = intent
        self.sought_s.pop(intent.token, None)

    def settled(self, token: str) -> Intended | None:
        """Record that the result of a job's submission is known; return its intent, if the result was not known yet."""
        return self.open_intents.pop(token, None)

    def accepted(self, token: str, status: JobStatus) -> tuple[Job, Job | None]:
        """Record that a token's job was accepted; return it, and the former job of the token."""
        former, is_open = self._by_token.get(token), self.settled(token) is not None
        if former is not None and not is_open:
            former.giving_up, former.given_up = "another job of its token runs the payload", True
            planned, spec, observed = former.planned, former.spec, former.observed
            former.observed = True  # only one wait is learned per token
        else:
            planned, spec, observed = self.intents[token].planned, self.intents[token].spec, False
        # record the job as pending; the next entry has its state
        pending = JobStatus(status.job_id, JobState.PENDING, status.submit_s)
        job = self._by_id[status.job_id] = self._by_token[token] = self._unfinished[status.job_id] = Job(
            planned, spec, pending, observed=observed
        )
        self.decided(planned.stages)
        for name in planned.stages:
            self._by_stage.setdefault(name, []).append(job)
        return job, former

    def given_up(self, job: Job, choices: Mapping[str, Choice], at_s: float) -> None:
        """Record that a cancelled job is gone, so that its substitute is due; `choices`: the chosen shapes."""
        if job.substitute is not None:
            words = "the job that was to take its place was refused"
            own = {name: choices[name] for name in job.planned.stages if name in choices}
            former = Substitute(replace(job.planned, submit_s=at_s, reason=words), own)
            self.substitutes.append((job.substitute, former))

    def decided(self, stages: Collection[str]) -> None:
        """Record that stages no longer need the substitute of a given-up job."""
        if self.substitutes:
            self.substitutes = [
                substitute for substitute in self.substitutes if set(substitute[0].planned.stages).isdisjoint(stages)
            ]

    def falls_back(self, stages: Collection[str]) -> bool:
        """Record that a substitute was refused; return whether its fallback takes its place."""
        for index, (first, *others) in enumerate(self.substitutes):
            if set(first.planned.stages) == set(stages) and others:
                self.substitutes[index] = tuple(others)
                return True
        return False

    def ended(self, job: Job) -> None:
        """Record that a job has ended."""
        del self._unfinished[job.status.job_id]
        if job.status.reason == DUPLICATE:
            self.duplicates.append(job)

    def revived(self, job: Job, status: JobStatus) -> None:
        """Record that somebody requeued an ended job, whose work is no longer needed."""
        job.status, job.giving_up, job.given_up = status, "", False
        self._unfinished[status.job_id] = job

    def condemn(self, job_id: str, reason: str, at_s: float, substitute: Substitute | None = None) -> None:
        """Record that a job is about to be cancelled, and its substitute."""
        job = self._by_id[job_id]
        job.giving_up, job.giving_up_s, job.substitute = reason, at_s, substitute
        self.condemned[job_id] = None
