"""The one loop that drives any strategy over any backend, several workflows at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from asa.backend import Backend, Capabilities, Foresight, JobSpec
from asa.errors import InputError, RunError, SubmitRejectedError
from asa.estimators import WaitBank
from asa.records import Ended, Outcome, Predicted, Record
from asa.runner.forecasts import KnownForecast, LearnedForecast, NoForecast
from asa.runner.state import Job, RunState, queued_since
from asa.strategies.base import Forecast, ForecastKind, Keep, Plan, PlannedJob, Strategy
from asa.waits import QueuedJob, WaitObservation
from asa.workflow import Workflow

__all__ = ["Run", "RunResult", "run_all"]


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
    """

    workflow: Workflow
    strategy: Strategy
    name: str = ""
    bank: WaitBank | None = None
    run_s: Mapping[str, float] | None = None
    delay_s: float = 0.0


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

    def note(self, record: Record) -> None:
        self.records.append(record)
        self.emit(record)


def run_all(
    backend: Backend,
    runs: Sequence[Run],
    *,
    history: int = 2000,
    on_record: Callable[[Record], None] = lambda _: None,
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
        Called with each record as it happens.

    Returns
    -------
    list of RunResult
        In the order of `runs`. A workflow whose stage failed, or one of whose jobs the site refused, has the outcome
        ``failed`` and the reason; that is no exception, and the others run on.

    Raises
    ------
    InputError
        Two runs of one name, or a strategy that lacks its forecast.
    RunError
        Nothing can happen any more though a workflow has not ended.

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
    while unfinished := [one for one in active if one.state.outcome is None]:
        _look(backend, banks, history)
        wake = [time for one in unfinished if (time := _act(backend, one)) is not None]
        if all(one.state.outcome is not None for one in active):
            break
        changed = backend.wait(min(wake, default=None))
        if not changed and not wake:
            raise RunError(
                "nothing can happen any more, yet not all stages have ended",
                where=f"run {unfinished[0].state.name!r}",
                hint="A job is held, or waits for one that will not end.",
            )
        for status in changed:
            for one in active:
                if status.job_id in one.state.jobs:
                    _take_in(backend, one, [status.job_id])
    for one in active:  # what was cancelled last may not have been reported yet
        _take_in(backend, one, [i for i, job in one.state.jobs.items() if not job.status.state.is_final])
    return [RunResult(one.run, one.state.outcome or "failed", one.state.reason, tuple(one.records)) for one in active]


def _look(backend: Backend, banks: Sequence[WaitBank], history: int) -> None:
    """Let banks learn what everybody's jobs did since the last look."""
    if banks and history:
        events = backend.queue_events(history, ends=any(bank.sees_queue for bank in banks))
        for bank in banks:
            bank.follow(events)


def _activate(backend: Backend, run: Run, begins_s: float, emit: Callable[[Record], None]) -> _Active:
    capabilities = backend.capabilities
    state = RunState(run.name or run.workflow.name, run.workflow, capabilities, uuid.uuid4().hex, run.run_s)
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
    return _Active(run, state, forecast, begins_s, emit)


def _act(backend: Backend, one: _Active) -> float | None:
    """Do what the plan says is due; return when to look again if nothing happens before."""
    now = backend.now()
    if now < one.begins_s:
        return one.begins_s
    if not one.begun:
        one.begun = True
        one.note(one.state.begin(now))
    while one.state.outcome is None:
        plan = one.run.strategy.plan(one.state.view(now), one.forecast)
        given_back = [c for c in plan.cancellations if _cancel(backend, one, c.job_id, c.reason)]
        if len(given_back) < len(plan.cancellations):
            continue  # some job ended before it could be cancelled: the plan is out of date
        due = next((planned for planned in plan.submissions if planned.submit_s <= now), None)
        if due is None:
            _note_predictions(one, plan, now)
            times = [planned.submit_s for planned in plan.submissions]
            return min(times if plan.wake_s is None else [*times, plan.wake_s], default=None)
        _submit(backend, one, due)  # it changes what is true: the rest is planned on that
    return None


def _cancel(backend: Backend, one: _Active, job_id: str, reason: str) -> bool:
    """Cancel a job unless it has ended meanwhile; tell whether it was cancelled."""
    _take_in(backend, one, [job_id])
    if one.state.jobs[job_id].status.state.is_final:
        return False
    backend.cancel(job_id)
    one.note(one.state.cancelled(job_id, reason, backend.now()))
    return True


def _submit(backend: Backend, one: _Active, planned: PlannedJob) -> None:
    spec = one.state.spec_of(planned)
    try:
        job_id = backend.submit(spec)
    except SubmitRejectedError as error:
        one.note(one.state.fail(str(error), backend.now()))
        _clean_up(backend, one)
        return
    status = backend.status([job_id])[job_id]
    one.note(one.state.submitted(planned, spec, status))
    if isinstance(one.forecast, LearnedForecast):
        one.forecast.used(planned.stages[0])
        if not spec.dependencies:
            _queues(one, one.state.jobs[job_id], status.submit_s)


def _queued(spec: JobSpec, capabilities: Capabilities, since_s: float, user: str) -> QueuedJob:
    return QueuedJob(since_s, spec.cores, spec.walltime_s, user, capabilities.system)


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


def _learn(one: _Active, job: Job, observation: WaitObservation) -> None:
    if not isinstance(one.forecast, LearnedForecast) or one.run.bank is None:
        return
    if job.known_as is None:
        _queues(one, job, queued_since(job.status, one.state.capabilities))
    if job.known_as is not None:
        one.run.bank.observe(job.known_as, observation)


def _clean_up(backend: Backend, one: _Active) -> None:
    for job_id in one.state.live_jobs():
        _cancel(backend, one, job_id, "the workflow failed")


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


def _take_in(backend: Backend, one: _Active, job_ids: Sequence[str]) -> None:
    for status in backend.status(job_ids).values():
        was_running = one.state.outcome is None
        for news in one.state.update(status):
            if isinstance(news, tuple):
                record, job, observation = news
                one.note(record)
                _learn(one, job, observation)
            else:
                one.note(news)
                if isinstance(news, Ended):
                    _tell_end(one, news)
        if was_running and one.state.outcome == "failed":
            _clean_up(backend, one)
