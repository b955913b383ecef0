"""The jobs of a run: what may be read off one by itself, and which of them there are."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from asa.backend import JobSpec, JobState, JobStatus
from asa.exactly_once import DUPLICATE
from asa.runner.entries import Intended
from asa.strategies.base import Choice, PlannedJob, Substitute

if TYPE_CHECKING:
    from asa.estimators import OwnJob

_ROUND = re.compile(r".*-\d+")  # then comes which of its jobs it is

PAYLOAD_COMPLETED = "EndedWell"
"""Reason of a completed job whose payload completed, though the batch system has it down as ended otherwise."""


def round_of(spec: JobSpec) -> str:
    """Return the name of a job's round: the common beginning of its jobs' tokens; empty if a stage has only this job.

    Examples
    --------
    >>> round_of(JobSpec("sweep", 4, 60.0, token="8f3c-2-0m3", bag="sweep")), round_of(JobSpec("cut", 4, 60.0))
    ('8f3c-2-0', '')
    """
    common = _ROUND.match(spec.token)
    return common[0] if spec.shares and common is not None else ""


@dataclass(slots=True)
class Job:
    """A job of the run: as planned, as asked for, and as last seen."""

    planned: PlannedJob  # as the strategy wanted it
    spec: JobSpec  # what was asked of the batch system
    status: JobStatus
    # why we are cancelling it, which the batch system may not have been asked yet; empty if we are not
    giving_up: str = ""
    giving_up_s: float = math.inf  # since when
    given_up: bool = False  # whether it was cancelled by us: its stages may have another job by now
    substitute: Substitute | None = None  # the job that takes its place once it is given up; None if none is chosen
    observed: bool = False  # whether its wait was learned
    known_as: OwnJob | None = None  # to the bank, once it queues
    resized: int = 0  # how often it was reported since its start that it got narrower

    @property
    def round(self) -> str:
        """The name of its round: of all that run its stage since its last submission; empty for a job by itself."""
        return round_of(self.spec)

    def step_of(self, stage: str) -> int:
        """Give the number of a stage's step in a job that several stages share; 0 in a job of one stage."""
        return next((number for number, step in enumerate(self.spec.steps, start=1) if step.name == stage), 0)

    @property
    def is_void(self) -> bool:
        """What depends on it can never start."""
        status = self.status
        has_completed = status.state is JobState.COMPLETED and status.reason != PAYLOAD_COMPLETED
        has_failed = status.state.is_final and not has_completed
        return bool(self.giving_up) or (has_failed and status.reason != DUPLICATE)


@dataclass(slots=True)
class JobsOfRun(Mapping[str, Job]):
    """Every job of a run that was accepted, by its id; and what of them may yet be."""

    intents: dict[str, Intended] = field(default_factory=dict)  # the latest submission that was intended of each token
    open_intent: Intended | None = None  # a submission in doubt
    sought_s: float | None = None  # when its job was first looked for, and not found
    # tokens that may have a duplicate
    doubtful: dict[str, float] = field(default_factory=dict)  # and since when
    condemned: dict[str, None] = field(default_factory=dict)  # jobs that were to be cancelled
    duplicates: list[Job] = field(default_factory=list)  # that ended at once for another of their token
    # for jobs that were given up, not submitted yet: each followed by what is asked for if that is refused
    substitutes: list[tuple[Substitute, ...]] = field(default_factory=list)
    _by_id: dict[str, Job] = field(default_factory=dict)
    _by_token: dict[str, Job] = field(default_factory=dict)  # the latest
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
        """Jobs that have not ended and that the client has not given up."""
        return [i for i, job in self._unfinished.items() if not job.giving_up]

    def unfinished(self) -> list[str]:
        """Jobs that have not ended, given up or not."""
        return list(self._unfinished)

    def has_sent(self, token: str) -> bool:
        """Whether the batch system has ever had a job of a token."""
        job = self._by_token.get(token)
        return job is not None and self._is_current(job)

    def of_token(self, token: str) -> Job | None:
        """Give the job of a token; None if it has none, or that was given up."""
        job = self._by_token.get(token)
        return job if job is not None and not job.given_up and self._is_current(job) else None

    def of_stage(self, stage: str) -> list[Job]:
        """Give the jobs that were to run a stage, in the order in which they were accepted."""
        return [job for job in self._by_stage.get(stage, ()) if self._is_current(job)]

    def needed(self, job: Job) -> list[Job]:
        """Give the jobs that one depends on."""
        return [self._by_id[one.job_id] for one in job.spec.dependencies if one.job_id in self._by_id]

    def _is_current(self, job: Job) -> bool:
        """Whether a job's number was not given out again."""
        return self._by_id[job.status.job_id] is job

    # ------------------------------------------------------------------ what happens to them

    def intended(self, intent: Intended) -> None:
        """Note that a job is about to be submitted."""
        self.open_intent = self.intents[intent.token] = intent
        self.sought_s = None

    def settled(self) -> Intended | None:
        """Note that it is known what became of the submission that was open; give that."""
        intent, self.open_intent = self.open_intent, None
        return intent

    def accepted(self, token: str, status: JobStatus) -> tuple[Job, Job | None]:
        """Note that the batch system has a job of a token; give the job, and the one that the token had before."""
        intent, former = self.open_intent, self._by_token.get(token)
        if former is not None and (intent is None or intent.token != token):  # what is open stays so
            former.giving_up, former.given_up = "another job of its token runs the payload", True
            planned, spec, observed = former.planned, former.spec, former.observed
            former.observed = True  # a token's wait is learned once
        else:
            assert intent is not None
            planned, spec, observed, self.open_intent = intent.planned, intent.spec, False, None
        # however far it has come: the next entry shows that
        pending = JobStatus(status.job_id, JobState.PENDING, status.submit_s)
        job = self._by_id[status.job_id] = self._by_token[token] = self._unfinished[status.job_id] = Job(
            planned, spec, pending, observed=observed
        )
        self.decided(planned.stages)
        for name in planned.stages:
            self._by_stage.setdefault(name, []).append(job)
        return job, former

    def given_up(self, job: Job, choices: Mapping[str, Choice], at_s: float) -> None:
        """Note that a job that was cancelled is gone: its substitute is to be submitted; `choices`: its own shapes."""
        if job.substitute is not None:
            words = "the job that was to take its place was refused"
            own = {name: choices[name] for name in job.planned.stages if name in choices}
            former = Substitute(replace(job.planned, submit_s=at_s, reason=words), own)
            self.substitutes.append((job.substitute, former))

    def decided(self, stages: Collection[str]) -> None:
        """Note that stages need no substitute any more for a job that was to run them."""
        if self.substitutes:
            self.substitutes = [one for one in self.substitutes if set(one[0].planned.stages).isdisjoint(stages)]

    def falls_back(self, stages: Collection[str]) -> bool:
        """Note that a substitute was refused; say whether something else is asked for in its place."""
        for index, (first, *others) in enumerate(self.substitutes):
            if set(first.planned.stages) == set(stages) and others:
                self.substitutes[index] = tuple(others)
                return True
        return False

    def ended(self, job: Job) -> None:
        """Note that a job has ended."""
        del self._unfinished[job.status.job_id]
        if job.status.reason == DUPLICATE:
            self.duplicates.append(job)

    def revived(self, job: Job, status: JobStatus) -> None:
        """Note that a job that had ended was requeued by hand: it no longer belongs to the run."""
        job.status, job.giving_up, job.given_up = status, "", False
        self._unfinished[status.job_id] = job

    def condemn(self, job_id: str, reason: str, at_s: float, substitute: Substitute | None = None) -> None:
        """Note that a job is about to be cancelled, and which takes its place."""
        job = self._by_id[job_id]
        job.giving_up, job.giving_up_s, job.substitute = reason, at_s, substitute
        self.condemned[job_id] = None
