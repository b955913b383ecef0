"""Drives a run that has a folder, from its beginning or from where it was left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from asa.backend import Backend
from asa.errors import AsaError, StateError
from asa.estimators import WaitBank
from asa.estimators.store import WaitStore
from asa.metrics import measure
from asa.records import Record
from asa.runner.active import Run
from asa.runner.folder import RunFolder
from asa.runner.forecasts import bank_at
from asa.runner.loop import RunResult, run_all
from asa.runner.notify import Notifier
from asa.runner.requests import ClientRequest
from asa.runner.state import RunState
from asa.runtimes import RunTimes, run_times_of
from asa.strategies import load_strategy
from asa.strategies.base import ForecastKind
from asa.workflow import Workflow

_LIGHTEST = "last"


def drive(
    folder: RunFolder,
    connect: Callable[[RunFolder], Backend],
    *,
    retry: bool = False,
    again: Sequence[str] = (),
    revised: Workflow | None = None,
    on_record: Callable[[Record], None] = lambda _: None,
    on_pass: Callable[[Sequence[RunState], Backend, float | None], None] = lambda _states, _backend, _wake_s: None,
    requests: Callable[[], Iterable[ClientRequest]] = tuple,
) -> RunResult:
    """Drive a run until it ends; an interrupted run continues where it was.

    Parameters
    ----------
    folder
        The run's folder.
    connect
        Opens the batch system for the run, with `RunFolder.sleep` as its sleep.
    retry
        If the run ended without its result: submit the uncompleted stages again.
    again
        If the run has ended, in whatever way: stages to run again, with all that follow them.
    revised
        With `retry` or `again`: the new workflow, with the same stages in the same order.
    on_record
        Called with each new record as it happens.
    on_pass
        Called in each pass of the loop, before it waits, with the run's state (in a sequence of one), the batch system,
        and the time until which the loop will wait, if known.
    requests
        Returns requests of the program that hosts an open run; other requests are in the run's folder.

    Returns
    -------
    RunResult
        With the records of the whole run. The metrics of a completed run are stored in the folder as well.

    Raises
    ------
    LeaseError
        Another client drives the run, or has taken over.
    JournalError
        The folder cannot be read or written.
    InputError
        Its strategy or estimator is not installed, or the settings are invalid.
    UnavailableError
        The batch system could not be reached at the beginning.
    """
    plan = folder.plan
    strategy = load_strategy(plan.strategy)
    with folder.driven() as journal:
        folder.check(journal)
        backend = connect(folder)
        # strategies without a forecast store waits, too: take the estimator that is made fastest
        estimator = plan.estimator if strategy.forecast is ForecastKind.LEARNED else _LIGHTEST
        bank = _bank(folder, estimator, backend.now())
        records: list[Record] = []
        latest: list[RunState] = []
        run = Run(
            plan.make_workflow(),
            strategy,
            name=plan.name,
            bank=bank,
            id=plan.id,
            journal=journal,
            retry=retry,
            again=tuple(again),
            revised=tuple(revised.stages.values()) if revised is not None else (),
            walltime_s=revised.walltime_s if revised is not None and revised.says_walltime else None,
            place=str(folder.path),
            works_in=plan.folder,
            fail_fast=plan.fail_fast,
            is_open=bool(plan.host),
            max_jobs=plan.max_jobs,
            records=records,
        )

        notifier = Notifier(folder)

        def each_pass(states: Sequence[RunState], wake_s: float | None) -> None:
            latest[:] = states
            folder.pulse(backend.condition, states[0], wake_s)
            notifier.look(states[0])
            on_pass(states, backend, wake_s)

        try:
            [result] = run_all(
                backend,
                [run],
                history=plan.history,
                on_record=on_record,
                requests=lambda: [*folder.take_requests(), *requests()],
                on_pass=each_pass,
            )
        finally:  # also if the run is left: it may never be resumed
            _keep_run_times(folder, latest, records)
            if bank.store is not None:
                bank.store.close()
        notifier.ended(result.records)
        bank.close()
    if result.outcome == "completed":
        cost = {"calls": backend.condition.calls, "client_cpu_s": time.process_time()}
        with suppress(ValueError):  # the clocks contradict each other: no metrics
            workflow = (latest or folder.state())[0].workflow  # revised stages, if any
            folder.write_metrics({**asdict(measure(workflow, result.records)), **cost})
    return result


def kind_of(stage: str) -> str:
    """Return the kind of a hosted run's stage, which is named ``KIND.DETAIL.NUMBER``; see `asa.hosted.graph`.

    Examples
    --------
    >>> kind_of("align.B.12")
    'align'
    """
    return stage.partition(".")[0]


def _keep_run_times(folder: RunFolder, latest: Sequence[RunState], records: Iterable[Record]) -> None:
    """Store the stages' run times in the bank; if that fails, the run continues."""
    plan = folder.plan
    with suppress(AsaError):
        if plan.bank:
            state, records = (latest[0], records) if latest else folder.state()
            jobs = {job_id: job.status for job_id, job in state.jobs.items()}
            in_turn_s = state.units.tasks.longest_in_turn_s(state)
            times = run_times_of(plan.id, state.workflow, plan.capabilities, records, jobs, in_turn_s=in_turn_s)
            if plan.host:
                times = [replace(time, stage=kind_of(time.stage)) for time in times]
            RunTimes(plan.bank).observe(times)


def _bank(folder: RunFolder, estimator: str, now_s: float) -> WaitBank:
    """Open the bank; if its store cannot be read, the run continues without the store."""
    plan = folder.plan

    def bank(store: WaitStore | None) -> WaitBank:
        return bank_at(plan.capabilities, estimator, store, seed=plan.seed, now_s=now_s)

    try:
        return bank(WaitStore(plan.bank) if plan.bank else None)
    except StateError:
        return bank(None)
