"""A run under way: its state, its journal, and the waits that it learns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from asa.backend import JobState, JobStatus
from asa.errors import StateError
from asa.estimators import WaitBank
from asa.exactly_once import NUMBER_LOST, Cause, Submitter
from asa.observations import queued, queued_since
from asa.records import Ended, Predicted, Record
from asa.runner.attempts import Attempts
from asa.runner.entries import Accepted, Begun, Entry, Reasoned, Reported, Sought, Surplus, Unexplained, Unsent
from asa.runner.forecasts import LearnedForecast
from asa.runner.jobs import Job
from asa.runner.journal import Journal
from asa.runner.state import Observation, RunState, facts_of
from asa.strategies.base import Forecast, Strategy, whole
from asa.waits import QueuedJob, WaitForecast, WaitObservation
from asa.workflow import Stage, Workflow


@dataclass(frozen=True, slots=True)
class Run:
    """A workflow to run.

    Parameters
    ----------
    workflow
        The workflow to run.
    strategy
        The strategy that plans its jobs.
    name
        Unique among runs that run together; the workflow's name if not given.
    bank
        Source of predictions and store of observations, for strategies that learn.
    run_s
        The real run time of each stage, for simulators; the expected one if not given.
    delay_s
        Seconds from the call of `run_all` until this workflow is submitted.
    id
        Identifies this run among all runs ever: letters and digits. Generated if not given.
    journal
        Each event is written here before the run acts on it. If the journal already has entries, the run continues from
        them.
    retry
        If the journal's run ended without its result: submit the uncompleted stages again.
    again
        If the journal's run has ended, with or without success: stages to run again, and all that follow them.
    revised, walltime_s
        With `retry` or `again`: the workflow's new stages (same names, same order) and its new walltime; unchanged if
        not given.
    place
        Folder in which stages keep records for when they run again; empty for none.
    works_in
        Folder in which the commands of stages run; empty if it is not known.
    fail_fast
        End the run as soon as a stage has failed, and cancel running jobs. By default, stages that do not depend on the
        failed one continue.
    is_open
        Another program hosts the run: it adds stages (`asa.runner.requests`), releases each when it may begin, and
        finally closes the run. Allocations are requested before stages are released.
    max_jobs
        How many jobs the hosting program hands over at a time, which limits the allocations requested ahead. None for
        no limit.
    records
        A list to which the run's records are added as they happen, after those of earlier clients.
    """

    workflow: Workflow
    strategy: Strategy
    name: str = ""
    bank: WaitBank | None = None
    run_s: Mapping[str, float] | None = None
    delay_s: float = 0.0
    id: str = ""
    journal: Journal | None = None
    retry: bool = False
    again: tuple[str, ...] = ()
    revised: tuple[Stage, ...] = ()
    walltime_s: float | None = None
    place: str = ""
    works_in: str = ""
    fail_fast: bool = False
    is_open: bool = False
    max_jobs: int | None = None
    records: list[Record] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", whole(self.strategy))


@dataclass(slots=True)
class Active(Submitter):
    """A run under way: its state, its forecast, its records."""

    run: Run
    state: RunState
    forecast: Forecast
    begins_s: float  # when the workflow is submitted, on the batch system's clock
    emit: Callable[[Record], None]  # called with each record
    records: list[Record] = field(init=False)
    begun: bool = False  # whether the workflow was submitted
    is_behind: bool = False  # whether its jobs' states since the last client are still unknown
    kept: object = None  # what the strategy keeps from plan to plan
    attempts: Attempts = field(init=False)  # the next attempts at submitting jobs
    swept: bool = False  # whether a search after the end found no stray jobs
    # not yet in the bank: job, forecast, observation, and the job's id
    waits: list[tuple[QueuedJob, WaitForecast | None, WaitObservation, str]] = field(default_factory=list)
    trouble: str = ""  # why waits cannot be stored; empty if they can
    given_back: set[str] = field(default_factory=set)  # tokens of ended jobs whose tasks were returned to the bag
    # the latest predicted waits, by stages
    predicted_s: dict[tuple[str, ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.attempts = Attempts(self.state)
        self.records = [] if self.run.records is None else self.run.records

    def commit(self, *entries: Entry) -> None:
        """Write entries to the journal, all at once, then apply them to the state and learn from them."""
        if self.run.journal is not None and entries:
            self.run.journal.append(*entries)
        for entry in entries:
            for news in self.state.apply(entry):
                self.note(news.record if isinstance(news, Observation) else news)
                if isinstance(news, Observation):
                    _learn(self, news)
                elif isinstance(news, Ended):
                    _tell_end(self, news)

    def replay(self, entries: Iterable[Entry]) -> None:
        """Restore an interrupted run from its entries; store waits that the bank's store lacks."""
        for entry in entries:
            self.begun |= isinstance(entry, Begun)
            for news in self.state.apply(entry):
                self.records.append(news.record if isinstance(news, Observation) else news)
                if isinstance(news, Observation):
                    _keep(self, news)
        self.keep_waits()

    def keep_waits(self) -> None:
        """Store all observed waits in the bank; if that fails, the run continues."""
        if self.run.bank is None:
            return
        try:
            estimates_s = {token: i.word_s for token, i in self.state.jobs.intents.items() if i.word_s is not None}
            self.run.bank.keep(self.waits, estimates_s)
        except StateError as error:
            self.trouble = str(error)
        else:
            self.trouble = ""

    def settle_waits(self) -> None:
        """Try again to store waits that could not be stored."""
        if self.trouble:
            self.keep_waits()

    def note(self, record: Record) -> None:
        """Keep a record, and pass it to the observer."""
        if isinstance(record, Predicted):
            self.predicted_s[record.stages] = record.wait_s
        self.records.append(record)
        self.emit(record)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, with nothing left to submit or cancel."""
        state = self.state
        if state.outcome is None or state.jobs.open_intents or self.to_cancel() or not self.swept:
            return False
        return state.outcome == "completed" or not (state.jobs.live() or self.strays())

    def strays(self) -> list[str]:
        """Tokens of jobs that may yet turn up, and are not wanted if the run has ended."""
        return [t for t in self.state.jobs.doubtful if not self.state.jobs.has_sent(t) and self.may_turn_up(t)]

    def to_cancel(self) -> list[str]:
        """Jobs to cancel, until the batch system reports that they ended."""
        return [
            job_id
            for job_id in self.state.jobs.condemned
            if (job := self.state.jobs[job_id]).giving_up
            and not job.given_up
            and job.status.state is not JobState.COMPLETED
        ]

    # ------------------------------------------------------------------ news of jobs

    def status_of(self, job_id: str) -> JobStatus | None:
        """Return a job's last known status; None if the job is not of this run."""
        job = self.state.jobs.get(job_id)
        return None if job is None else job.status

    def is_to_begin(self, job_id: str) -> bool:
        """Whether a job's payload may yet begin, by the last known status."""
        status = self.state.jobs[job_id].status
        return not status.state.is_final and status.payload_start_s is None

    def job_of(self, token: str) -> str | None:
        """Return the id of a token's job; None if there is none, or it was given up."""
        job = self.state.jobs.of_token(token)
        return None if job is None else job.status.job_id

    def is_to_be_sent(self, token: str) -> bool:
        """Whether a token has never had a job, and its job is still to be submitted."""
        state = self.state
        if state.outcome is not None or state.jobs.has_sent(token):
            return False
        intent = state.jobs.intents[token]
        units = state.units.asked(intent.planned, intent.spec)
        if intent.planned.is_addition and not units.is_wanted(state, intent.planned):
            return False
        return state.ending.refused.keys().isdisjoint(intent.planned.stages)

    def takes_in(self, token: str) -> bool:
        """Whether a job of a token belongs to the run however late it turns up."""
        intent = self.state.jobs.intents.get(token)
        if intent is None or self.state.outcome is not None or self.state.jobs.has_sent(token):
            return False
        return self.state.units.asked(intent.planned, intent.spec).may_come_late

    def accepted(self, token: str, status: JobStatus) -> None:
        """Record that the batch system accepted a token's job, which replaces an earlier job of the token."""
        self.accepted_all({token: status})

    def accepted_all(self, jobs: Mapping[str, JobStatus]) -> None:
        """Record the accepted jobs of several tokens at once."""
        new, entries = self.state.jobs.open_intents.keys() & jobs.keys(), list[Entry]()
        for token, status in jobs.items():
            former = self.state.jobs.get(status.job_id)
            if former is not None and former.spec.token != token and not former.status.state.is_final:
                end_s = max(status.submit_s, former.status.start_s or former.status.submit_s)
                entries.append(Reported(replace(former.status, state=JobState.FAILED, reason=NUMBER_LOST, end_s=end_s)))
            entries.append(Accepted(token, status))
        self.commit(*entries)
        forecast = self.forecast
        if not isinstance(forecast, LearnedForecast):
            return
        for status in (status for token, status in jobs.items() if token in new):
            job = self.state.jobs[status.job_id]
            forecast.used(job.planned.stages)
            if not job.spec.dependencies or (not job.planned.has_payload and status.eligible_s is not None):
                _queues(self, job, status.submit_s)

    def unsent(self, token: str, at_s: float, reason: str, *, doubtful: bool, cause: Cause) -> None:
        """Record that a token's job was not submitted, and why; `doubtful`: it may yet turn up."""
        self.commit(Unsent(token, at_s, reason, doubtful, cause=cause))

    def sought(self, token: str, at_s: float) -> None:
        """Record, for the next client, that a job was searched for once and not found."""
        self.commit(Sought(token, at_s))

    def unexplained(self, token: str, at_s: float, text: str) -> None:
        """Record that a submission got an unknown answer."""
        self.commit(Unexplained(token, at_s, text))

    def surplus(self, token: str, job_id: str, at_s: float) -> None:
        """Record that a second job of a token was found and cancelled."""
        self.commit(Surplus(token, job_id, at_s))

    def heard(self, status: JobStatus) -> None:
        """Record a job's status, if it is new."""
        self.heard_all([status])

    def heard_all(self, statuses: Iterable[JobStatus]) -> None:
        """Record the news of several jobs; failures last, since other jobs' states are evidence of their cause.

        Failures `in_doubt` keep their position: they are evidence about other jobs, whose tasks may have failed though
        they exited with 0.
        """

        def is_failure(status: JobStatus) -> bool:
            return status.state.is_final and status.state is not JobState.COMPLETED and not status.in_doubt

        news = [new for status in sorted(statuses, key=is_failure) if (new := self._news_of(status)) is not None]
        reasons: dict[str, list[str]] = {}
        reports = []
        for new in news:
            known = self.state.jobs[new.job_id].status
            if not known.state.is_final and facts_of(known) == facts_of(new):
                reasons.setdefault(new.reason, []).append(new.job_id)
            else:
                reports.append(Reported(new))
        self.commit(*(Reasoned(tuple(job_ids), reason) for reason, job_ids in reasons.items()), *reports)

    def _news_of(self, status: JobStatus) -> JobStatus | None:
        """Return the part of a job's status that is news; None if nothing is."""
        job = self.state.jobs[status.job_id]
        status = self.state.units.of(job).as_seen(self.state, job, status)
        known = job.status
        if known.expected_start_s != status.expected_start_s:  # changes often, and nothing depends on it
            job.status = known = replace(known, expected_start_s=status.expected_start_s)
        return status if status != known else None


def _queued_of(active: Active, job: Job) -> QueuedJob:
    assert active.run.bank is not None
    capabilities = active.state.capabilities
    return queued(job.spec, capabilities, queued_since(job.status, capabilities), active.run.bank.user)


def _queues(active: Active, job: Job, since_s: float) -> None:
    """Report to the bank that a job has begun to wait in the queue; a dependency must have been met before."""
    if active.run.bank is not None and not job.spec.local:
        job.known_as = active.run.bank.submitted(
            queued(job.spec, active.state.capabilities, since_s, active.run.bank.user), job.planned.prediction
        )


def _tell_end(active: Active, ended: Ended) -> None:
    """Report the end of one of the run's jobs to a bank that models the queue."""
    own = active.state.jobs[ended.job_id].known_as
    if active.run.bank is not None and own is not None and ended.start_s is not None and active.run.bank.sees_queue:
        active.run.bank.ended(own, ended.time_s - ended.start_s)


def _learn(active: Active, news: Observation) -> None:
    if active.run.bank is None or not (
        isinstance(active.forecast, LearnedForecast) or active.run.bank.store is not None
    ):
        return
    job = news.job
    _keep(active, news)
    if job.known_as is None:
        _queues(active, job, queued_since(job.status, active.state.capabilities))
    if job.known_as is not None:
        token = job.spec.token if active.run.journal is not None else ""
        try:
            intent = active.state.jobs.intents.get(job.spec.token)
            word_s = intent.word_s if intent is not None else None
            active.run.bank.observe(job.known_as, news.observation, token=token, word_s=word_s)
        except StateError as error:  # `settle_waits` tries again
            active.trouble = str(error)


def _keep(active: Active, news: Observation) -> None:
    job = news.job
    if active.run.bank is not None:
        active.waits.append((_queued_of(active, job), job.planned.prediction, news.observation, job.spec.token))
