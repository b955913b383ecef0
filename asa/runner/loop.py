"""The one loop that drives any strategy over any backend, several workflows at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from asa.backend import Backend, Capabilities, Foresight, JobSpec, JobState, JobStatus
from asa.errors import (
    BackendError,
    InputError,
    JobNotFoundError,
    RunError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)
from asa.estimators import WaitBank
from asa.records import Ended, Outcome, Predicted, Record
from asa.runner.entries import (
    Accepted,
    Begun,
    Entry,
    GivenUp,
    GivingUp,
    Intended,
    Stopped,
    Surplus,
    Told,
    Unsent,
)
from asa.runner.forecasts import KnownForecast, LearnedForecast, NoForecast
from asa.runner.journal import Journal
from asa.runner.state import TWIN, Job, Observation, RunState, queued_since
from asa.strategies.base import Forecast, ForecastKind, Keep, Plan, PlannedJob, Strategy
from asa.waits import QueuedJob
from asa.workflow import Workflow

__all__ = ["Run", "RunResult", "Wish", "run_all"]

_AGAIN_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Pauses before a job that could not be sent is sent again."""

_LATE_S = (10.0, 60.0, 300.0)
"""When, after a job of which it was in doubt whether it had been accepted was sent again, to look for a second one."""

_SETTLE_S = 120.0


@dataclass(frozen=True, slots=True)
class Run:
    """A workflow to run.

    Parameters
    ----------
    workflow
        What.
    strategy
        How its resources are asked for.
    name
        Unique among those that run together; the workflow's name if not given.
    bank
        Where predictions come from and what is observed goes to, for strategies that learn.
    run_s
        How long each stage really runs, for simulators; as expected if not given.
    delay_s
        Seconds from the call of `run_all` to handing this workflow over.
    id
        Tells this run from all others, for life: letters and digits. Made up if not given.
    journal
        Where everything that happens is written down before anything is done because of it. One with entries is of a
        run that was interrupted, which goes on from there.
    """

    workflow: Workflow
    strategy: Strategy
    name: str = ""
    bank: WaitBank | None = None
    run_s: Mapping[str, float] | None = None
    delay_s: float = 0.0
    id: str = ""
    journal: Journal | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants of a run under way: to cancel it, or the job of one of its stages."""

    run: str
    stage: str = ""
    what: Literal["cancel"] = "cancel"


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended, and everything that happened in it."""

    run: Run
    outcome: Outcome
    reason: str
    records: tuple[Record, ...]


@dataclass(slots=True)
class _Active:
    """A run under way: its state, its forecast, its records."""

    run: Run
    state: RunState
    forecast: Forecast
    begins_s: float
    emit: Callable[[Record], None]
    records: list[Record] = field(default_factory=list)
    begun: bool = False
    looks: int = 0  # for the job of the open intent
    failures: int = 0  # to send, one after the other
    again_s: float = 0.0  # no sending or looking before
    late_looks: dict[str, int] = field(default_factory=dict)  # for second jobs of doubtful tokens

    def commit(self, entry: Entry) -> None:
        """Write down what happened, and let it change the state; learn what there is to learn."""
        if self.run.journal is not None:
            self.run.journal.append(entry)
        for news in self.state.apply(entry):
            self.note(news.record if isinstance(news, Observation) else news)
            if isinstance(news, Observation):
                _learn(self, news)
            elif isinstance(news, Ended):
                _tell_end(self, news)

    def replay(self, entries: Iterable[Entry]) -> None:
        """Come back to where an interrupted run was; what was learned then is put into the bank's store if need be."""
        waits = []
        for entry in entries:
            self.begun |= isinstance(entry, Begun)
            for news in self.state.apply(entry):
                self.records.append(news.record if isinstance(news, Observation) else news)
                if isinstance(news, Observation) and len(news.job.planned.stages) == 1 and self.run.bank is not None:
                    queued = _queued_of(self, news.job)
                    waits.append((queued, news.job.planned.prediction, news.observation, news.job.spec.token))
        if self.run.bank is not None:
            self.run.bank.keep(waits)

    def note(self, record: Record) -> None:
        self.records.append(record)
        self.emit(record)

    @property
    def is_over(self) -> bool:
        """It has ended, and nothing is left to be told to the batch system."""
        state = self.state
        if state.outcome is None or state.open_intent is not None or self.to_cancel():
            return False
        return state.outcome == "completed" or not (state.live_jobs() or self.strays())

    def strays(self) -> list[str]:
        """Tokens without a job, of which one may yet turn up; if the run has ended, nobody wants it any more."""
        have = {job.spec.token for job in self.state.jobs.values()}
        return [t for t in self.state.doubtful if t not in have and self.late_looks.get(t, 0) < len(_LATE_S)]

    def to_cancel(self) -> list[str]:
        """Jobs whose cancellation was decided, and of which it is not known that it was told."""
        return [
            job_id
            for job_id, job in self.state.jobs.items()
            if job.giving_up and not job.given_up and job.status.state in _CANCELLABLE
        ]


_CANCELLABLE = {JobState.PENDING, JobState.RUNNING, JobState.CANCELLED}


def run_all(
    backend: Backend,
    runs: Sequence[Run],
    *,
    history: int = 2000,
    on_record: Callable[[Record], None] = lambda _: None,
    wishes: Callable[[], Iterable[Wish]] = tuple,
    on_pass: Callable[[], None] = lambda: None,
) -> list[RunResult]:
    """Run workflows side by side until each has ended.

    Parameters
    ----------
    backend
        The batch system.
    runs
        The workflows; each with its own strategy. They may share a bank.
    history
        Jobs of everybody's past that banks learn at the beginning, the latest that the site shows. 0: they learn from
        this client's own jobs only, then and later.
    on_record
        Called with each record as it happens; not with those of a journal.
    wishes
        Asked after each wait for what somebody wants.
    on_pass
        Called once in each turn of the loop, before it waits.

    Returns
    -------
    list of RunResult
        In the order of `runs`. A workflow whose stage failed, or one of whose jobs the site refused, has the outcome
        ``failed`` and the reason; that is no exception, and the others run on. A batch system that cannot be asked is
        no failure, however long that lasts.

    Raises
    ------
    InputError
        Two runs of one name, or a strategy that lacks its forecast.
    RunError
        Nothing can happen any more though a workflow has not ended.
    JournalError, LeaseError
        What happens cannot be written down, or another client has taken over. Nothing was done that is not written.

    Examples
    --------
    >>> from asa.backends.simulated import SimulatedSite
    >>> from asa.strategies import load_strategy
    >>> from asa.workflows import blast
    >>> world = SimulatedSite("hpc2n").open(seed=3)
    >>> [result] = run_all(world, [Run(blast(28), load_strategy("per-stage"))])
    >>> result.outcome
    'completed'
    """
    started_s = backend.now()
    active = [_activate(backend, run, started_s + run.delay_s, on_record) for run in runs]
    names = [one.state.name for one in active]
    if len(set(names)) != len(names):
        raise InputError("two runs have the same name", where=f"runs {', '.join(names)}", hint="Name each one.")
    banks = list(dict.fromkeys(one.forecast.bank for one in active if isinstance(one.forecast, LearnedForecast)))
    for bank in banks:
        bank.lose_sight()  # it may have followed another queue
    while unfinished := [one for one in active if not one.is_over]:
        _look(backend, banks, history)
        wake = [time for one in unfinished if (time := _act(backend, one)) is not None]
        if all(one.is_over for one in active):
            break
        on_pass()
        changed = backend.wait(min(wake, default=None))
        wanted = list(wishes())
        if not changed and not wake and not wanted:
            raise RunError(
                "nothing can happen any more, yet not all stages have ended",
                where=f"run {unfinished[0].state.name!r}",
                hint="A job is held, or waits for one that will not end.",
            )
        for status in changed:
            for one in active:
                if status.job_id in one.state.jobs:
                    _take_in(one, status)
        for wish in wanted:
            _fulfil(backend, active, wish)
    _settle(backend, active)
    return [RunResult(one.run, one.state.outcome or "failed", one.state.reason, tuple(one.records)) for one in active]


def _settle(backend: Backend, active: Sequence[_Active]) -> None:
    """Hear how the last jobs ended that were cancelled; batch systems take a moment for that."""
    until = backend.now() + _SETTLE_S
    while left := [(one, job_id) for one in active for job_id in one.state.unfinished_jobs()]:
        _ask(backend, left)
        if not any(one.state.unfinished_jobs() for one in active) or backend.now() >= until:
            return
        for status in backend.wait(until):
            for one in active:
                if status.job_id in one.state.jobs:
                    _take_in(one, status)


def _look(backend: Backend, banks: Sequence[WaitBank], history: int) -> None:
    """Let banks learn what everybody's jobs did since the last look."""
    if banks and history:
        events = backend.queue_events(history, ends=any(bank.sees_queue for bank in banks))
        for bank in banks:
            bank.follow(events)


def _activate(backend: Backend, run: Run, begins_s: float, emit: Callable[[Record], None]) -> _Active:
    capabilities = backend.capabilities
    state = RunState(run.name or run.workflow.name, run.workflow, capabilities, run.id or uuid.uuid4().hex, run.run_s)
    forecast: Forecast = NoForecast()

    def spec_of(name: str) -> JobSpec:
        return state.spec_of(PlannedJob((name,), 0.0, Keep.NOTHING, ""))

    if run.strategy.forecast is ForecastKind.LEARNED:
        if (bank := run.bank) is None:
            raise InputError(
                "this strategy needs a bank", where=f"run {state.name!r}", hint="Give Run(bank=WaitBank())."
            )
        forecast = LearnedForecast(
            bank,
            lambda name: _queued(spec_of(name), capabilities, backend.now(), bank.user),
        )
    elif run.strategy.forecast is ForecastKind.KNOWN:
        if not isinstance(backend, Foresight):
            raise InputError(
                "this strategy needs to know the future, which only a simulator does",
                where=f"run {state.name!r}",
                hint="Take `asa`.",
            )
        forecast = KnownForecast(
            backend,
            spec_of,
            backend.now,
        )
    one = _Active(run, state, forecast, begins_s, emit)
    if run.journal is not None and run.journal.entries:
        one.replay(run.journal.entries)
        _ask(backend, [(one, job_id) for job_id in state.unfinished_jobs()])
    return one


def _act(backend: Backend, one: _Active) -> float | None:
    """Do what the plan says is due; return when to look again if nothing happens before."""
    now = backend.now()
    if now < one.begins_s and not one.begun:
        return one.begins_s
    if not one.begun:
        one.begun = True
        one.commit(Begun(now))
    wakes = [_tidy(backend, one), _look_for_late_twins(backend, one)]
    if one.state.open_intent is None and one.state.outcome is None:
        wakes.append(_follow_plan(backend, one))
    if one.state.outcome is not None and one.state.outcome != "completed":
        _clean_up(backend, one)
    wakes.append(_clear_up(backend, one))
    return min((time for time in wakes if time is not None), default=None)


def _follow_plan(backend: Backend, one: _Active) -> float | None:
    now = backend.now()
    while one.state.outcome is None and one.state.open_intent is None:
        plan = one.run.strategy.plan(one.state.view(now), one.forecast)
        given_back = [c for c in plan.cancellations if _cancel(backend, one, c.job_id, c.reason)]
        if len(given_back) < len(plan.cancellations):
            if one.to_cancel():
                return now + _AGAIN_S[0]  # it cannot be told now
            continue  # some job ended before it could be cancelled: the plan is out of date
        due = next((planned for planned in plan.submissions if planned.submit_s <= now), None)
        if due is None or now < one.again_s:
            _note_predictions(one, plan, now)
            times = [max(planned.submit_s, one.again_s) for planned in plan.submissions]
            return min(times if plan.wake_s is None else [*times, plan.wake_s], default=None)
        _submit(backend, one, due)  # it changes what is true: the rest is planned on that
    return None


def _cancel(backend: Backend, one: _Active, job_id: str, reason: str) -> bool:
    """Cancel a job unless it has ended meanwhile; tell whether it was cancelled."""
    _ask(backend, [(one, job_id)])
    job = one.state.jobs[job_id]
    if job.status.state.is_final:
        return False
    if not job.giving_up:
        one.commit(GivingUp(job_id, reason, backend.now()))
    return _tell_cancel(backend, one, job_id)


def _tell_cancel(backend: Backend, one: _Active, job_id: str) -> bool:
    job = one.state.jobs[job_id]
    try:
        backend.cancel(job_id)
    except JobNotFoundError:
        pass  # it has ended, however
    except BackendError:
        return False
    one.commit(GivenUp(job_id, job.giving_up, backend.now()))
    return True


def _tidy(backend: Backend, one: _Active) -> float | None:
    """Tell cancellations that could not be told before; return when to try again."""
    for job_id in one.to_cancel():
        if not _tell_cancel(backend, one, job_id):
            return backend.now() + _AGAIN_S[0]
    return None


def _submit(backend: Backend, one: _Active, planned: PlannedJob) -> None:
    spec = one.state.spec_of(planned)
    one.commit(Intended(spec.token, planned, spec, backend.now()))
    one.looks = 0
    try:
        job_id = backend.submit(spec)
    except SubmitRejectedError as error:
        one.commit(Stopped("failed", str(error), backend.now()))
    except SubmitInDoubtError:
        one.again_s = backend.now()  # `_clear_up` sees to it
    except (SubmitDeferredError, UnavailableError) as error:
        _send_later(backend, one, str(error), doubtful=False)
    else:
        try:
            status = backend.status([job_id])[job_id]
        except (UnavailableError, JobNotFoundError):  # it was accepted, whatever can be asked
            status = JobStatus(job_id, JobState.PENDING, backend.now())
        _begin_job(one, status)


def _begin_job(one: _Active, status: JobStatus) -> None:
    """Note that the batch system has the job of the open intent."""
    assert one.state.open_intent is not None
    one.commit(Accepted(one.state.open_intent.token, status))
    one.failures = 0
    job = one.state.jobs[status.job_id]
    if isinstance(one.forecast, LearnedForecast):
        one.forecast.used(job.planned.stages[0])
        if not job.spec.dependencies:
            _queues(one, job, status.submit_s)
    _take_in(one, status)


def _send_later(backend: Backend, one: _Active, why: str, *, doubtful: bool) -> None:
    assert one.state.open_intent is not None
    now = backend.now()
    one.commit(Unsent(one.state.open_intent.token, now, why, doubtful))
    one.again_s = now if doubtful else now + _AGAIN_S[min(one.failures, len(_AGAIN_S) - 1)]
    one.failures += 1


def _clear_up(backend: Backend, one: _Active) -> float | None:
    """Find out whether the job of an open intent was accepted, by two looks with a pause; return when to go on."""
    if (intent := one.state.open_intent) is None:
        return None
    now = backend.now()
    if now < one.again_s:
        return one.again_s
    try:
        found = backend.find([intent.token])[intent.token]
    except BackendError:
        one.again_s = now + _AGAIN_S[min(one.looks, 1)]
        return one.again_s
    if found:
        _begin_job(one, found[0])
        _cancel_surplus(backend, one, intent.token, found[1:])
        return now
    one.looks += 1
    if one.looks < 2:
        one.again_s = now + _LATE_S[0]
    else:
        _send_later(backend, one, "it was not to be found after its submission had gone wrong", doubtful=True)
    return one.again_s


def _look_for_late_twins(backend: Backend, one: _Active) -> float | None:
    """Look for second jobs of tokens that were sent again, and cancel them; return when to look next."""
    now, nexts = backend.now(), []
    have = {job.spec.token for job in one.state.jobs.values()}
    for token, since in one.state.doubtful.items():
        done = one.late_looks.get(token, 0)
        if token not in have and one.state.outcome is None:
            continue  # it is about to be sent again
        if done < len(_LATE_S) and now >= since + _LATE_S[done] and _keep_one(backend, one, token):
            one.late_looks[token] = done = sum(now >= since + late for late in _LATE_S)
        if done < len(_LATE_S):
            nexts.append(max(since + _LATE_S[done], now + 1))
    displaced = [job for job in one.state.jobs.values() if job.status.reason == TWIN and not job.given_up]
    nexts += [_follow_twin(backend, one, job) for job in displaced if one.state.outcome is None]
    return min(nexts, default=None)


def _follow_twin(backend: Backend, one: _Active, job: Job) -> float:
    """Take the job that runs the payload for ours, in place of one that gave way to it; return when to go on."""
    now = backend.now()
    if now < one.again_s:
        return one.again_s
    if _keep_one(backend, one, job.spec.token) and not job.given_up:
        one.looks += 1
        if one.looks > len(_LATE_S):
            lost = (
                f"stage {job.planned.stages[0]!r}: the job that runs it, in place of job {job.status.job_id}, is lost"
            )
            one.commit(Stopped("failed", lost, now))
    one.again_s = now + _LATE_S[0] if not job.given_up else now
    return one.again_s


def _keep_one(backend: Backend, one: _Active, token: str) -> bool:
    """Keep of a token's jobs the one that runs the payload, and cancel the others; tell whether that could be done."""
    try:
        found = backend.find([token])[token]
    except BackendError:
        return False
    ours = [job_id for job_id, job in one.state.jobs.items() if job.spec.token == token and not job.given_up]
    if not ours:
        return _cancel_strays(backend, found)
    if found and found[0].job_id != ours[0]:
        _change_over(backend, one, token, ours[0], found[0])
    return _cancel_surplus(backend, one, token, found[1:])


def _cancel_strays(backend: Backend, found: Iterable[JobStatus]) -> bool:
    """Cancel jobs of a run that has ended."""
    try:
        for status in found:
            backend.cancel(status.job_id)
    except BackendError:
        return False
    return True


def _change_over(backend: Backend, one: _Active, token: str, former: str, status: JobStatus) -> None:
    """Take another job of a token for ours; what depends on the former is asked for again."""
    one.commit(Accepted(token, status))
    _take_in(one, status)
    for job_id in one.state.live_jobs():
        if any(dependency.job_id == former for dependency in one.state.jobs[job_id].spec.dependencies):
            _cancel(backend, one, job_id, f"job {former}, which it depends on, gave way to job {status.job_id}")


def _cancel_surplus(backend: Backend, one: _Active, token: str, surplus: Iterable[JobStatus]) -> bool:
    for status in surplus:
        if not status.state.is_final:
            try:
                backend.cancel(status.job_id)
            except BackendError:
                return False  # another look will tell
            one.commit(Surplus(token, status.job_id, backend.now()))
    return True


def _queued(spec: JobSpec, capabilities: Capabilities, since_s: float, user: str) -> QueuedJob:
    partition = spec.partition or capabilities.partition
    return QueuedJob(since_s, spec.cores, spec.walltime_s, user, capabilities.system, partition)


def _queued_of(one: _Active, job: Job) -> QueuedJob:
    assert one.run.bank is not None
    capabilities = one.state.capabilities
    return _queued(job.spec, capabilities, queued_since(job.status, capabilities), one.run.bank.user)


def _queues(one: _Active, job: Job, since_s: float) -> None:
    """Tell the bank that a job queues from now on. One that a dependency keeps back does so only once it is let go."""
    if one.run.bank is not None and len(job.planned.stages) == 1:
        job.known_as = one.run.bank.submitted(
            _queued(job.spec, one.state.capabilities, since_s, one.run.bank.user), job.planned.prediction
        )


def _tell_end(one: _Active, ended: Ended) -> None:
    """Tell a bank that follows the machine that a job of ours no longer runs."""
    own = one.state.jobs[ended.job_id].known_as
    if one.run.bank is not None and own is not None and ended.start_s is not None and one.run.bank.sees_queue:
        one.run.bank.ended(own, ended.time_s - ended.start_s)


def _learn(one: _Active, news: Observation) -> None:
    if one.run.bank is None or not (isinstance(one.forecast, LearnedForecast) or one.run.bank.store is not None):
        return
    job = news.job
    if job.known_as is None:
        _queues(one, job, queued_since(job.status, one.state.capabilities))
    if job.known_as is not None:
        token = job.spec.token if one.run.journal is not None else ""
        one.run.bank.observe(job.known_as, news.observation, token=token)


def _fulfil(backend: Backend, active: Sequence[_Active], wish: Wish) -> None:
    """Do what somebody wants."""
    for one in active:
        if one.state.name != wish.run or one.state.outcome is not None:
            continue
        if not wish.stage:
            one.commit(Stopped("cancelled", "somebody asked for it", backend.now()))
            _clean_up(backend, one)
        elif (view := one.state.stages.get(wish.stage)) is not None and view.job_id is not None:
            one.commit(Stopped("cancelled", f"somebody cancelled stage {wish.stage!r}", backend.now()))
            _clean_up(backend, one)


def _clean_up(backend: Backend, one: _Active) -> None:
    for job_id in one.state.live_jobs():
        _cancel(backend, one, job_id, f"the workflow {'failed' if one.state.outcome == 'failed' else 'was cancelled'}")


def _note_predictions(one: _Active, plan: Plan, now: float) -> None:
    told = {r.stages: r for r in one.records if isinstance(r, Predicted)}
    for planned in plan.submissions:
        if planned.prediction is None:
            continue
        needed = planned.needed_s if planned.needed_s is not None else planned.submit_s
        last = told.get(planned.stages)
        if last is None or last.wait_s != planned.prediction.wait_s:
            one.note(
                Predicted(
                    time_s=now,
                    run=one.state.name,
                    stages=planned.stages,
                    wait_s=planned.prediction.wait_s,
                    needed_s=needed,
                )
            )


def _ask(backend: Backend, jobs: Iterable[tuple[_Active, str]]) -> None:
    """Hear how some jobs stand, as far as the batch system can be asked."""
    owners = {job_id: one for one, job_id in jobs}
    try:
        told = backend.status(owners)
    except UnavailableError:
        return
    except JobNotFoundError:
        for job_id, one in owners.items():
            _ask_one(backend, one, job_id)
        return
    for job_id, status in told.items():
        _take_in(owners[job_id], status)


def _ask_one(backend: Backend, one: _Active, job_id: str) -> None:
    try:
        status = backend.status([job_id])[job_id]
    except UnavailableError:
        return
    except JobNotFoundError:
        last = one.state.jobs[job_id].status
        now = max(backend.now(), last.submit_s)
        status = replace(last, state=JobState.FAILED, reason="the batch system does not know the job", end_s=now)
    _take_in(one, status)


def _take_in(one: _Active, status: JobStatus) -> None:
    job = one.state.jobs[status.job_id]
    if status != replace(job.status, expected_start_s=status.expected_start_s):
        one.commit(Told(status))
    else:
        job.status = status  # what is expected moves all the time, and nothing hangs on it
