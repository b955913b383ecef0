"""The one loop that drives any strategy over any backend, several workflows at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from asa.backend import Backend, Foresight
from asa.errors import InputError, RunError
from asa.estimators import WaitBank
from asa.records import Outcome, Predicted, Record
from asa.runner.forecasts import KnownForecast, LearnedForecast, NoForecast, geometry_of
from asa.runner.state import RunState
from asa.strategies.base import Forecast, ForecastKind, Keep, Plan, PlannedJob, Strategy
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
    backend: Backend, runs: Sequence[Run], *, on_record: Callable[[Record], None] = lambda _: None
) -> list[RunResult]:
    """Run workflows side by side until each has ended.

    Parameters
    ----------
    backend
        The batch system.
    runs
        The workflows; each with its own strategy. They may share a bank.
    on_record
        Called with each record as it happens.

    Returns
    -------
    list of RunResult
        In the order of `runs`. A workflow whose stage failed has the outcome ``failed``; that is no exception.

    Raises
    ------
    InputError
        Two runs of one name, or a strategy that lacks its forecast.
    SubmitRejectedError
        The site will never run one of the jobs.
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
    while unfinished := [one for one in active if one.state.outcome is None]:
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


def _activate(backend: Backend, run: Run, begins_s: float, emit: Callable[[Record], None]) -> _Active:
    capabilities = backend.capabilities
    state = RunState(run.name or run.workflow.name, run.workflow, capabilities, run.run_s)
    forecast: Forecast = NoForecast()
    if run.strategy.forecast is ForecastKind.LEARNED:
        if run.bank is None:
            raise InputError(
                "this strategy needs a bank", where=f"run {state.name!r}", hint="Give Run(bank=WaitBank())."
            )
        forecast = LearnedForecast(
            run.bank,
            lambda name: geometry_of(run.workflow.stages[name], capabilities.cores_per_node, capabilities.system),
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
            lambda name: state.spec_of(PlannedJob((name,), 0.0, Keep.NOTHING, "")),
            backend.now,
            lambda: len(state.jobs),
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
    while True:
        plan = one.run.strategy.plan(one.state.view(now), one.forecast)
        for cancellation in plan.cancellations:
            backend.cancel(cancellation.job_id)
            one.note(one.state.cancelled(cancellation.job_id, cancellation.reason, now))
        due = next((planned for planned in plan.submissions if planned.submit_s <= now), None)
        if due is None:
            break
        _submit(backend, one, due)  # it changes what is true: the rest is planned on that
    _note_predictions(one, plan, now)
    return min((planned.submit_s for planned in plan.submissions), default=None)


def _submit(backend: Backend, one: _Active, planned: PlannedJob) -> None:
    spec = one.state.spec_of(planned)
    job_id = backend.submit(spec)
    if isinstance(one.forecast, LearnedForecast):
        one.forecast.used(planned.stages[0])
    one.note(one.state.submitted(planned, spec, backend.status([job_id])[job_id]))


def _note_predictions(one: _Active, plan: Plan, now: float) -> None:
    told = {r.stages: r for r in one.records if isinstance(r, Predicted)}
    for planned in plan.submissions:
        if planned.prediction is None:
            continue
        needed = planned.submit_s + planned.prediction.wait_s
        last = told.get(planned.stages)
        if last is None or (last.wait_s, last.needed_s) != (planned.prediction.wait_s, needed):
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
                if (
                    one.run.bank is not None
                    and isinstance(one.forecast, LearnedForecast)
                    and len(job.planned.stages) == 1
                ):
                    stage = one.state.workflow.stages[job.planned.stages[0]]
                    capabilities = one.state.capabilities
                    geometry = geometry_of(stage, capabilities.cores_per_node, capabilities.system)
                    one.run.bank.observe(geometry, observation, job.planned.prediction)
            else:
                one.note(news)
        if was_running and one.state.outcome == "failed":
            for job_id in one.state.live_jobs():
                backend.cancel(job_id)
                one.note(one.state.cancelled(job_id, "the workflow failed", backend.now()))
