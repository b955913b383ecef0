"""The loop that drives any strategy over any backend, for one or several workflows at once."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

from asa.backend import Backend, Foresight, JobSpec, JobStatus, Planning, Recalls
from asa.errors import InputError, RunError, UnavailableError
from asa.estimators import WaitBank
from asa.exactly_once import AGAIN_S, LATE_S
from asa.observations import queued
from asa.progress import RunProgress
from asa.records import Outcome, Predicted, Record
from asa.runner.active import Active, Run
from asa.runner.clusters import fetching_s, queue_of
from asa.runner.entries import Begun, Claimed, Closed, Dropped, Entry, Extended, Retried, Stopped
from asa.runner.forecasts import KnownForecast, LearnedForecast, NoForecast, PlannedForecast, in_queues
from asa.runner.journal import consistent
from asa.runner.kinds import UnitsOfRun
from asa.runner.kinds.racers import raced
from asa.runner.packing import packed
from asa.runner.requests import (
    CancelRequest,
    ClaimRequest,
    ClientRequest,
    CloseRequest,
    DropRequest,
    ExtendRequest,
)
from asa.runner.specs import KeptAsks, spec_of
from asa.runner.state import RunState
from asa.runner.submission import (
    can_submit,
    cancel,
    catch_up,
    clean_up,
    clear_up,
    give_back,
    give_up_orphans,
    look_for_duplicates,
    missing_jobs,
    release_claimed,
    shape,
    submit,
    sweep,
    tell_cancellations,
)
from asa.runner.timing import claimed_apart, settled, times_of, with_substitutes
from asa.runner.together import alike, submit_together
from asa.strategies.base import Forecast, ForecastKind, Keep, Phase, Plan, PlannedJob, RunView
from asa.values import RemoteTraceback, load
from asa.workflow import Stage

_SETTLE_S = 120.0
_WIND_UP_S = 100.0
_HOST_S = 60.0  # an open run looks again at least this often


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of a run, and its records.

    Parameters
    ----------
    run
        The run.
    outcome
        How the run ended.
    reason
        Why it did not complete; empty if it did.
    records
        All events, in order.
    trouble
        Why waits could not be stored; empty if they could.
    """

    run: Run
    outcome: Outcome
    reason: str
    records: tuple[Record, ...]
    trouble: str = ""

    def __repr__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"RunResult({self._name!r}, {self.outcome}{reason})"

    def _repr_html_(self) -> str:
        """Draw the run for a notebook."""
        return RunProgress(self._name, self.run.workflow.order, self.records)._repr_html_()

    @property
    def _name(self) -> str:
        """The name of its folder, by which commands find the run; without one, its own."""
        return Path(self.run.place).name or self.run.name or self.run.workflow.name

    def result(self, stage: str | Stage) -> Any:
        """Return what the function of a stage returned, or raise what it raised.

        Parameters
        ----------
        stage
            A stage that calls a function, or its name.

        Raises
        ------
        InputError
            There is no such stage.
        RunError
            The stage has no value: it did not complete, runs a command, or returned what pickle cannot hold.
        Exception
            What the function raised, with the traceback of its job as the cause.
        """
        name = stage.name if isinstance(stage, Stage) else stage
        if name not in self.run.workflow.stages:
            hint = f"Its stages: {', '.join(islice(self.run.workflow.stages, 20))}."
            raise InputError("there is no such stage", where=f"stage {name!r}", hint=hint)
        return load(Path(self.run.place, "tasks"), name)

    def raised(self) -> BaseException | None:
        """Return the exception that a stage's function raised, of the first such stage; None if no function raised."""
        for name in self.run.workflow.order if self.run.place else ():
            try:
                load(Path(self.run.place, "tasks"), name)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raised
                if isinstance(error.__cause__, RemoteTraceback):
                    return error.with_traceback(None)
        return None


def run_all(
    backend: Backend,
    runs: Sequence[Run],
    *,
    history: int = 2000,
    is_followed: bool = False,
    on_record: Callable[[Record], None] = lambda _: None,
    requests: Callable[[], Iterable[ClientRequest]] = tuple,
    on_pass: Callable[[Sequence[RunState], float | None], None] = lambda _states, _wake_s: None,
) -> list[RunResult]:
    """Run workflows at the same time until each has ended.

    Parameters
    ----------
    backend
        The batch system.
    runs
        The workflows, each with its own strategy. They may share a bank.
    history
        How many past jobs of all users banks learn from at the beginning: the latest that the site shows. 0: banks
        learn only from this client's own jobs.
    is_followed
        Whether the banks have already learned all events that `Backend.queue_events` has reported so far. Nobody may
        use these banks afterwards, since they stop learning when nothing is left to plan.
    on_record
        Called with each new record; not with those read from a journal.
    requests
        Called for new requests, at the beginning and after each wait.
    on_pass
        Called in each pass of the loop, before it waits, with the read-only state of each run, and the time until which
        the loop will wait, if known.

    Returns
    -------
    list of RunResult
        In the order of `runs`. A workflow with a failed stage, or with a job that the site refused, has the outcome
        ``failed`` and a reason; nothing is raised, and the others continue. A batch system that cannot be reached is no
        failure, however long that lasts.

    Raises
    ------
    InputError
        Two runs have the same name, or a strategy lacks its forecast.
    RunError
        Nothing can happen any more, but a workflow has not ended.
    JournalError, LeaseError
        The journal cannot be written, or another client has taken over. Everything that was done is in the journal.

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
    _begin_open(active)
    names = [active_run.state.name for active_run in active]
    if len(set(names)) != len(names):
        raise InputError("two runs have the same name", where=f"runs {', '.join(names)}", hint="Name each one.")
    banks = list(
        dict.fromkeys(
            active_run.forecast.bank for active_run in active if isinstance(active_run.forecast, LearnedForecast)
        )
    )
    for bank in () if is_followed else banks:
        bank.lose_sight()  # it may have followed another queue
    for request in requests():  # requests made while there was no client
        _carry_out(active, request)
    was_idle = False
    while unfinished := [active_run for active_run in active if not active_run.is_over]:
        if not is_followed or any(map(_may_plan, unfinished)):
            _look(backend, banks, history)
        wake = [time for active_run in unfinished if (time := _act(active_run)) is not None]
        if all(active_run.is_over for active_run in active):
            break
        until = min(wake, default=None)
        on_pass([active_run.state for active_run in active], until)
        changed = backend.wait(until)
        wanted = list(requests())
        is_idle = not changed and not wake and not wanted
        if is_idle and was_idle:  # a single wake-up without news may happen
            raise RunError(
                "nothing can happen any more, although not all stages have ended",
                where=f"run {unfinished[0].state.name!r}",
                hint="A job is held, or depends on one that will not end.",
            )
        was_idle = is_idle
        _deliver(active, changed)
        for request in wanted:
            _carry_out(active, request)
    _settle(backend, active)
    for active_run in active:
        active_run.settle_waits()
    return [
        RunResult(
            active_run.run,
            active_run.state.outcome or "failed",
            active_run.state.reason,
            tuple(active_run.records),
            active_run.trouble,
        )
        for active_run in active
    ]


def _deliver(active: Sequence[Active], changed: Sequence[JobStatus]) -> None:
    for active_run in active:
        active_run.heard_all(status for status in changed if status.job_id in active_run.state.jobs)


def _settle(backend: Backend, active: Sequence[Active]) -> None:
    """Wait for the reports that the last cancelled jobs have ended, which batch systems give after a moment."""
    until = backend.now() + _SETTLE_S
    while left := [active_run for active_run in active if active_run.state.jobs.unfinished()]:
        for active_run in left:
            active_run.ask(active_run.state.jobs.unfinished())
        if not any(active_run.state.jobs.unfinished() for active_run in active) or backend.now() >= until:
            return
        _deliver(active, backend.wait(until))


def _look(backend: Backend, banks: Sequence[WaitBank], history: int) -> None:
    """Let banks learn what all users' jobs did since the last look."""
    if banks and history:
        events = backend.queue_events(history, ends=any(bank.sees_queue for bank in banks))
        for bank in banks:
            bank.follow(events)


def _may_plan(active: Active) -> bool:
    """Whether a run has stages to submit, or jobs that may be given back, replaced or grown.

    A running stage counts if a further job of the stage is to follow its present job.
    """
    phases = {Phase.WAITING, Phase.ALLOCATED}
    if active.run.strategy.replaces:
        phases.add(Phase.QUEUED)
    return any(
        view.phase in phases
        or (view.phase is Phase.RUNNING and view.stage.has_unknown_last_job and view.next_job_id is None)
        for view in active.state.stages.values()
    )


def _activate(backend: Backend, run: Run, begins_s: float, emit: Callable[[Record], None]) -> Active:
    run = _with_own_bank(run)
    capabilities = UnitsOfRun.site_for(run.strategy, run.workflow, backend.capabilities)
    state = RunState(
        run.name or run.workflow.name,
        run.workflow,
        capabilities,
        run.id or uuid.uuid4().hex,
        run.run_s,
        run.place,
    )
    state.host.max_jobs = run.max_jobs
    forecast: Forecast = NoForecast()

    def spec_for(stages: tuple[str, ...]) -> JobSpec:
        return spec_of(state, PlannedJob(stages, 0.0, Keep.NOTHING, ""))

    if run.strategy.forecast in {ForecastKind.LEARNED, ForecastKind.PUBLISHED}:
        if (bank := run.bank) is None:
            raise InputError(
                "this strategy needs a bank", where=f"run {state.name!r}", hint="Give Run(bank=WaitBank())."
            )
        asks = KeptAsks(state)
        forecast = LearnedForecast(
            bank,
            lambda stages: queued(asks.of(stages), capabilities, backend.now(), bank.user),
            at_once=lambda stages: all(state.workflow.stages[name].local for name in stages),
            queue_of=partial(queue_of, capabilities),
            fetching_s=partial(fetching_s, state) if state.capabilities.moves_s else None,
            known_as=lambda job_id: state.jobs[job_id].known_as if job_id in state.jobs else None,
        )
    elif run.strategy.forecast is ForecastKind.PLANNED:
        if not capabilities.plans:
            raise InputError(
                "this strategy needs a batch system that plans ahead, which this one does not",
                where=f"run {state.name!r}",
                hint="Take `asa-plan`.",
            )
        forecast = PlannedForecast(cast("Planning", backend), spec_for, backend.now)
    elif run.strategy.forecast is ForecastKind.KNOWN:
        if not isinstance(backend, Foresight):
            raise InputError(
                "this strategy needs to know the future, which only a simulator does",
                where=f"run {state.name!r}",
                hint="Take `asa-plan`.",
            )
        forecast = KnownForecast(backend, spec_for, backend.now)
    active = Active(backend, run, state, forecast, begins_s, emit)
    if run.journal is not None and run.journal.entries:
        with consistent(run.journal.path):
            _come_back(active, run.journal.entries)
    if (run.again and state.outcome is not None) or (run.retry and state.outcome not in {None, "completed"}):
        _wind_up(active)
        active.commit(Retried(backend.now(), run.again, run.revised, run.walltime_s))
    return active


def _with_own_bank(run: Run) -> Run:
    """Give a run that predicts as the ASA paper the bank for that."""
    is_published = run.strategy.forecast is ForecastKind.PUBLISHED
    return replace(run, bank=run.bank.published) if is_published and run.bank is not None else run


def _come_back(active: Active, entries: Iterable[Entry]) -> None:
    """Restore a run from an earlier client's entries."""
    active.replay(entries)
    active.is_behind = True
    if isinstance(active.backend, Recalls):
        active.backend.recall(active.status_of)
    jobs = active.state.jobs
    for token, sought_s in jobs.sought_s.items():
        if (intent := jobs.open_intents.get(token)) is not None:  # the earlier client has already searched for its job
            attempt = active.attempts.at(intent.planned)
            attempt.again_s, attempt.looks = sought_s + LATE_S[0], 1
    catch_up(active)


def _wind_up(active: Active) -> None:
    """Cancel the jobs of an ended run that still run, so that the run can be tried again."""
    until = active.backend.now() + _WIND_UP_S
    while True:
        clean_up(active)
        wakes = [clear_up(active), tell_cancellations(active)]
        if not active.state.jobs.unfinished() and not active.state.jobs.open_intents and not active.to_cancel():
            return
        if active.backend.now() >= until:
            raise UnavailableError(
                "jobs of its last attempt have not ended, or their state is not known",
                where=f"run {active.state.name!r}",
                hint="Try again later: asa resume --retry.",
            )
        _deliver([active], active.backend.wait(min([until, *(time for time in wakes if time is not None)])))


def _begin(active: Active) -> None:
    """Begin a run, unless it has begun."""
    if not active.begun:
        active.begun = True
        active.commit(Begun(active.backend.now(), active.run.fail_fast, active.run.is_open))


def _begin_open(active: Iterable[Active]) -> None:
    """Begin the open runs, whose hosts have requests from the beginning on."""
    for active_run in active:
        if active_run.run.is_open:
            _begin(active_run)


def _act(active: Active) -> float | None:
    """Do what is due by the plan; return when to look again if nothing happens before."""
    now = active.backend.now()
    if now < active.begins_s and not active.begun:
        return active.begins_s
    _begin(active)
    if not catch_up(active):
        return now + AGAIN_S[0]
    wakes = [give_back(active), release_claimed(active), look_for_duplicates(active), give_up_orphans(active)]
    if not active.state.jobs.open_intents and active.state.outcome is None:
        wakes.append(_follow_plan(active))
    if active.state.outcome is not None and active.state.outcome != "completed":
        clean_up(active)
    asked_again = active.state.asked_again
    wakes += [clear_up(active), tell_cancellations(active), sweep(active)]
    # a stage that was handed over must not wait for the next event
    if active.state.host.may_add and active.state.outcome is None:
        wakes.append(now if asked_again != active.state.asked_again else now + _HOST_S)
    return min((time for time in wakes if time is not None), default=None)


def _follow_plan(active: Active) -> float | None:
    """Submit due jobs of plans until none is due; O(stages + edges) per plan, however many jobs it submits."""
    now = active.backend.now()
    while active.state.outcome is None and not active.state.jobs.open_intents and not active.to_cancel():
        more = active.attempts.fresh(missing_jobs(active, now), now)
        if more is not None and can_submit(active, now):
            submit(active, more)
            continue
        view = replace(active.state.view(now), kept=active.kept)
        plan = _with_followers(active, view, active.run.strategy.plan(view, active.forecast))
        active.kept = plan.kept
        plan = with_substitutes(active.state, in_queues(plan))
        asked = [*claimed_apart(active.state, raced(active.state, plan.submissions))]
        submissions = settled(active.state, claimed_apart(active.state, packed(active.state, asked, now)))
        active.state.planned = tuple(submissions)
        if plan.cancellations:
            wanted = {c.job_id: c.reason for c in plan.cancellations}
            kept = wanted.keys() - cancel(active, wanted, {c.job_id: c.substitute for c in plan.cancellations})
            condition = active.backend.condition
            if any(condition.trouble_of(job_id) or active.is_to_begin(job_id) for job_id in kept):
                return now + AGAIN_S[0]  # nothing could be decided, or a payload is just beginning
            continue  # jobs that were given back are planned again
        missing = list(missing_jobs(active, now))  # all jobs of a stage are submitted before jobs that depend on it
        jobs, planned_s = (
            [*missing, *submissions],
            [*(job.submit_s for job in missing), *times_of(active.state, submissions, plan.choices)],
        )
        times = active.attempts.times(jobs, planned_s, now, plan.choices)
        due = [job for job, time in zip(jobs, times, strict=True) if time <= now]
        if not due:
            _note_predictions(active, plan, now)
            wakes = [time for time in times if time < math.inf]
            # for deferred jobs, the time of the next attempt
            if plan.wake_s is not None and (plan.wake_s > now or not wakes):
                wakes.append(plan.wake_s)
            return min(wakes, default=None)
        if not _submit_each(active, due, plan, now):
            return now + AGAIN_S[0]  # an event must happen first
        if any(job.replaces for job in due):
            give_up_orphans(active)  # what they replace, in the same step
            if not active.to_cancel() and active.state.lost_jobs():
                return now + AGAIN_S[0]  # nothing could be decided
    return None


def _submit_each(active: Active, due: Sequence[PlannedJob], plan: Plan, now_s: float) -> bool:
    """Submit the due jobs of a plan while the plan holds; return whether any was submitted."""
    asked_again, has_sent = active.state.asked_again, False
    groups, together = alike(active, due, plan.choices), set[tuple[str, ...]]()
    for job in active.attempts.in_turn(due, now_s, plan.choices):
        if job.stages in together:
            continue
        if asked_again != active.state.asked_again or not _may_submit(active, job, now_s):
            break
        if has_sent and active.attempts.fresh(missing_jobs(active, now_s), now_s) is not None:
            break  # all jobs of a stage are submitted before jobs that depend on it
        has_sent = True
        if group := groups.get(job.stages):
            together.update(sent := submit_together(active, group, plan.choices))
            if any(active.state.stages[name].phase is Phase.WAITING for stages in sent for name in stages):
                break  # they were not accepted: what follows them must wait
        if job.stages not in together:
            shape(active, job, plan.choices)
            submit(active, job)
    return has_sent


def _with_followers(active: Active, view: RunView, plan: Plan) -> Plan:
    """Add the jobs that continue running ones to a plan; but if the plan cancels jobs, that comes first."""
    if plan.cancellations:
        return plan
    kinds, strategy = active.state.units.kinds, active.run.strategy
    found = [new for units in kinds for new in units.followers(active.state, view, active.forecast, strategy)]
    if not found:
        return plan
    wakes = [time for time in (plan.wake_s, *(look_s for _, look_s in found)) if time is not None]
    return replace(plan, submissions=(*plan.submissions, *(job for job, _ in found)), wake_s=min(wakes, default=None))


def _may_submit(active: Active, planned: PlannedJob, now_s: float) -> bool:
    """Whether a planned job may still be submitted after the plan's first jobs were."""
    state = active.state
    if not can_submit(active, now_s):
        return False
    if planned.is_addition:
        return state.units.planned(planned, state.stages).is_wanted(state, planned)
    return all(state.stages[name].phase is Phase.WAITING for name in planned.stages)


def _carry_out(active: Sequence[Active], request: ClientRequest) -> None:
    """Carry out a request."""
    for active_run in active:
        if active_run.state.name != request.run or active_run.state.outcome is not None:
            continue
        if not isinstance(request, CancelRequest):
            if active_run.state.host.may_add:
                _carry_out_for_host(active_run, request)
        elif not request.stage:
            active_run.commit(Stopped("cancelled", request.reason or "you asked for it", active_run.backend.now()))
            clean_up(active_run)
        elif (view := active_run.state.stages.get(request.stage)) is not None and view.phase is not Phase.DONE:
            active_run.commit(Stopped("cancelled", f"you cancelled stage {request.stage!r}", active_run.backend.now()))
            clean_up(active_run)


def _carry_out_for_host(active: Active, request: ExtendRequest | ClaimRequest | DropRequest | CloseRequest) -> None:
    """Carry out a request of an open run's host; requests that came too late are ignored."""
    state, now = active.state, active.backend.now()
    match request:
        case ExtendRequest(stages=stages, impossible=impossible):
            active.commit(Extended(stages, now, impossible))
        case ClaimRequest(stage=name, asked=asked, may_come_again=may_come_again, impossible=impossible_why):
            if name in state.host.unclaimed and not state.stages[name].phase.is_settled:
                active.commit(Claimed(name, now, asked, may_come_again, impossible_why))
        case DropRequest(stages=names, reason=reason, even_claimed=even_claimed):
            left = state.host.unclaimed
            if dropped := tuple(
                n for n in names if n in left or (even_claimed and not state.stages[n].phase.is_settled)
            ):
                active.commit(Dropped(dropped, reason, now, even_claimed))
        case CloseRequest():
            active.commit(Closed(now))


def _note_predictions(active: Active, plan: Plan, now: float) -> None:
    for planned in plan.submissions:
        if planned.prediction is None:
            continue
        needed = planned.needed_s if planned.needed_s is not None else planned.submit_s
        if active.predicted_s.get(planned.stages) != planned.prediction.wait_s:
            active.note(
                Predicted(
                    time_s=now,
                    run=active.state.name,
                    stages=planned.stages,
                    wait_s=planned.prediction.wait_s,
                    needed_s=needed,
                )
            )
