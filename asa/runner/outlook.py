"""Shows, before a run begins, the jobs that it would submit, when and why, and whether each could run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from asa.backend import Backend, Capabilities, JobSpec, JobState, JobStatus, Previewing
from asa.compatible import conflict
from asa.core.late import dataclass
from asa.errors import InputError, SubmitRejectedError
from asa.estimators import WaitBank, WaitStore
from asa.keys import OF_JOBS
from asa.observations import queued
from asa.runner.clusters import fetching_s, queue_of
from asa.runner.entries import Accepted, Intended, Shaped
from asa.runner.folder import RunPlan
from asa.runner.forecasts import LearnedForecast, NoForecast, bank_at
from asa.runner.kinds import UnitsOfRun
from asa.runner.packing import packed
from asa.runner.specs import conflict_in, spec_of
from asa.runner.state import RunState
from asa.runner.timing import earliest_s
from asa.shapes import Shape
from asa.strategies.base import (
    Choice,
    Forecast,
    ForecastKind,
    Keep,
    Phase,
    PlannedJob,
    RunView,
    Strategy,
    load_strategy,
)
from asa.strategies.planning import impossible
from asa.waits import LEVELS, QueuedJob, QueueEvent, WaitForecast
from asa.workflow import Stage, Workflow

MADE_UP = "JOB-OF-"
"""Prefix of the ids of jobs that do not exist yet; the name of the first stage follows."""


_REMEDIES = {
    "local": "Nothing was submitted. Ask for less; or give --option cores=N: its slots need not be real.",
}


@dataclass(frozen=True, slots=True)
class PlannedSpec:
    """A job that a run would submit, judged before the run begins."""

    planned: PlannedJob  # the job as planned and as sent; it may depend on jobs that do not exist yet
    spec: JobSpec
    in_s: float | None  # seconds until its submission; None if only when the stages before it have ended
    on_failure: bool = False  # whether the job is submitted only if a stage fails


class _NoWaits:
    """A forecast without waits, to see only the jobs."""

    is_informed = True

    def predict(self, stages: tuple[str, ...], needed_s: float) -> WaitForecast:  # noqa: ARG002 - the port's shape
        """Predict no wait."""
        return WaitForecast((0.0,) * len(LEVELS), 0.0)


def check_strategy(name: str) -> Strategy:
    """Make a strategy that can drive a real run.

    Raises `InputError`: there is none of that name, or it needs to know the future.
    """
    strategy = load_strategy(name)
    if strategy.forecast is ForecastKind.KNOWN:
        raise InputError(
            "needs to know the future, which only a simulator does", where=f"strategy {name!r}", hint="Take `asa-plan`."
        )
    return strategy


_LESS = "Nothing was submitted. Ask for less, or for another partition."
_AGREE = "Nothing was submitted. Take a strategy with several jobs, such as asa-plan, or let its stages ask alike."


def check_possible(plan: RunPlan, strategy: Strategy) -> None:
    """Refuse a run if one of its jobs could never start."""
    reasons: dict[str, str] = {}
    remedy = _AGREE
    workflow = _state(plan).workflow  # where the batch system has no arrays, its elements take turns
    for job in jobs_at_first(plan, strategy):
        stages = [workflow.stages[name] for name in job.planned.stages]
        beyond = plan.capabilities.impossible(job.spec)
        if apart := beyond or conflict(stages):
            reasons["+".join(job.planned.stages)] = apart
            remedy = _LESS if beyond else remedy
    for stage in workflow.stages.values():
        if stage.name not in reasons and (why := _beyond(stage, plan.capabilities)):
            reasons[stage.name], remedy = why, _LESS
    if reasons:
        lines = "".join(f"\n  {stages}: {why}" for stages, why in reasons.items())
        count = "a job" if len(reasons) == 1 else f"{len(reasons)} jobs"
        raise InputError(
            f"{count} could never start on {plan.place}:{lines}",
            where=f"workflow {plan.workflow!r}",
            hint=_REMEDIES.get(plan.backend, remedy) if remedy == _LESS else remedy,
        )


def refusal_of(strategy: Strategy, workflow: Workflow, site: Capabilities) -> str:
    """Return why a strategy cannot run a workflow, as far as its plan without waits shows; empty if it can.

    That is what keeps stages that it puts into one job from sharing it.
    """
    if not conflict(list(workflow.stages.values())):
        return ""  # most workflows, of which large ones need no plan then
    site = UnitsOfRun.site_for(strategy, workflow, site)
    state = RunState(workflow.name, workflow, site, "")
    jobs = (job.planned for job in _jobs(state, strategy, _NoWaits(), 0.0))
    return next(filter(None, (conflict_in(state, planned) for planned in jobs)), "")


def check_options(plan: RunPlan, strategy: Strategy, backend: Backend) -> None:
    """Before anything is submitted, refuse a run with a stage whose options the backend refuses.

    `backend`: the batch system, which is not asked; without previews, nothing is checked.
    """
    if not isinstance(backend, Previewing) or not any(stage.options for stage in plan.stages):
        return
    seen = set[JobSpec]()
    for job in jobs_at_first(plan, strategy):
        kind = JobSpec("x", walltime_s=1.0, **{name: getattr(job.spec, name) for name in CHECKED_WITH_OPTIONS})
        if job.spec.options and kind not in seen:
            seen.add(kind)
            try:
                backend.preview(job.spec)
            except SubmitRejectedError as error:
                where = f"stage {job.planned.stages[0]!r}"
                raise InputError(f"options: {error.message}", where=where, hint=error.hint) from error


def _beyond(stage: Stage, site: Capabilities) -> str | None:
    """Name the widths or partitions in which a stage could never start; None if it could start in all."""
    if stage.moldable is None:
        return None
    # a width without a known run time has no known walltime, but a size
    walltimes_s = {shape.width: shape.walltime_s for shape in stage.shapes}
    widths, partitions = stage.moldable.widths or (stage.width,), stage.moldable.partitions or (stage.partition,)
    why = {
        (width, partition): impossible(stage, Shape(width, 1.0, walltimes_s.get(width, 1.0), 0.0, partition), site)
        for width in widths
        for partition in partitions
    }
    unit = "cores" if stage.cores is not None else "nodes"
    of_widths = [[(width, why[width, partition]) for partition in partitions] for width in widths]
    of_partitions = [[(width, why[width, partition]) for width in widths] for partition in partitions]
    never = next((shapes for shapes in (*of_widths, *of_partitions) if all(words for _, words in shapes)), None)
    if never is None:
        return None
    width, words = never[0]
    return words if f"{width} {unit}" in str(words) else f"on {width} {unit} it {words}"


# attributes that options may contradict; payload, times and dependencies are left out
CHECKED_WITH_OPTIONS = (
    *("options", "cores", "nodes", "cpus_per_task", "tasks", "partition", "local"),
    *(key.field for key in OF_JOBS),
)


def read_only_bank(plan: RunPlan, folder: Path | None, now_s: float) -> WaitBank:
    """Open the bank read-only.

    `plan`: has the estimator, the seed, and the site's cores.
    `folder`: of the bank; None or a missing folder if nothing is known.
    """
    store = WaitStore(folder, create=False) if folder is not None and folder.is_dir() else None
    return bank_at(plan.capabilities, plan.estimator, store, seed=plan.seed, now_s=now_s)


def plan_of(
    plan: RunPlan,
    strategy: Strategy,
    backend: Backend,
    bank: WaitBank,
    events: Sequence[QueueEvent] | None = None,
) -> list[PlannedSpec]:
    """Plan a run as at its beginning; reads the queue if the bank learns from it, and changes nothing.

    `events`: of the queue, if it was already read and the bank has not learned from them; else None.
    """
    forecast: Forecast = NoForecast()
    if strategy.forecast is ForecastKind.LEARNED:
        forecast = forecast_of(plan, backend, bank, events)
    elif strategy.forecast is ForecastKind.PUBLISHED:
        forecast = forecast_of(plan, backend, bank.published, ())
    return jobs_by(plan, strategy, forecast, backend.now())


def jobs_by(plan: RunPlan, strategy: Strategy, forecast: Forecast, now_s: float) -> list[PlannedSpec]:
    """Return the jobs that a run would submit by this forecast; asks no batch system."""
    return list(_jobs(_state(plan), strategy, forecast, now_s))


def forecast_of(
    plan: RunPlan, backend: Backend, bank: WaitBank, events: Sequence[QueueEvent] | None = None
) -> Forecast:
    """Return a bank's forecast; the bank learns the present queue, if the run reads it. `events`: as for `plan_of`."""
    state = _state(plan)
    if events is not None:
        bank.follow(events)
    elif plan.history:
        bank.follow(backend.queue_events(plan.history, ends=bank.sees_queue))

    def job_of(stages: tuple[str, ...]) -> QueuedJob:
        spec = spec_of(state, PlannedJob(stages, 0.0, Keep.NOTHING, ""))
        return queued(spec, plan.capabilities, backend.now(), bank.user)

    return LearnedForecast(
        bank,
        job_of,
        at_once=lambda stages: all(state.workflow.stages[name].local for name in stages),
        queue_of=partial(queue_of, plan.capabilities),
        fetching_s=partial(fetching_s, state) if state.capabilities.moves_s else None,
    )


def view_of(plan: RunPlan, now_s: float) -> RunView:
    """Return the view of a run at its beginning, for a strategy to plan."""
    return _state(plan).view(now_s)


def _state(plan: RunPlan) -> RunState:
    return RunState(plan.name, plan.make_workflow(), plan.capabilities, plan.id)


def jobs_at_first(plan: RunPlan, strategy: Strategy) -> Iterator[PlannedSpec]:
    """Return the jobs that a run would submit if no waits were known; asks no batch system."""
    yield from jobs_by(plan, strategy, _NoWaits(), 0.0)


def _jobs(state: RunState, strategy: Strategy, forecast: Forecast, now_s: float) -> Iterator[PlannedSpec]:
    """Yield the jobs of a plan, then those that follow once the stages before them have ended; the state is used up."""
    conditional = [name for name, view in state.stages.items() if view.phase is Phase.CONDITIONAL]
    is_first = True
    while True:
        made = strategy.plan(state.view(now_s), forecast)
        asked = packed(state, made.submissions, now_s)
        if not (planned := [job for job in asked if _is_news(state, job)]):
            break
        _shape(state, planned, made.choices, now_s)
        for job in planned:
            if is_first:
                yield _submitted(state, job, now_s)
            else:
                yield _later(state, job, now_s)
        if is_first:
            yield from _follow_up(state, strategy, forecast, now_s)
        for name in (name for job in planned for name in job.stages):
            view = state.stages[name]
            ended_s = now_s + view.stage.expected_s
            state.stages.put(name, replace(view, phase=Phase.DONE, started_s=now_s, ended_s=ended_s))
        is_first = False
    for name in state.workflow.order:
        if state.stages[name].phase is Phase.WAITING:
            yield _later(state, PlannedJob((name,), now_s, Keep.NOTHING, ""), now_s)
    yield from _after_failures(state, conditional, now_s)


def _shape(state: RunState, planned: Iterable[PlannedJob], choices: Mapping[str, Choice], now_s: float) -> None:
    for name in (name for job in planned for name in job.stages if name in choices):
        list(state.apply(Shaped(name, choices[name], now_s)))


def _submitted(state: RunState, job: PlannedJob, now_s: float) -> PlannedSpec:
    """Return a job that would be submitted at once, and record it as accepted."""
    spec = spec_of(state, job)
    in_s = None if earliest_s(state, job) == math.inf else max(job.submit_s - now_s, 0.0)
    job_id = f"{MADE_UP}{job.stages[0]}"
    for entry in (
        Intended(spec.token, job, spec, now_s),
        Accepted(spec.token, JobStatus(job_id, JobState.PENDING, job.submit_s)),
    ):
        list(state.apply(entry))
    return PlannedSpec(job, spec, in_s)


def _after_failures(state: RunState, stages: Iterable[str], now_s: float) -> Iterator[PlannedSpec]:
    """Return the jobs of stages that run only after a failure."""
    for name in stages:
        if state.stages[name].phase in {Phase.SKIPPED, Phase.CONDITIONAL}:
            job = PlannedJob((name,), now_s, Keep.NOTHING, _condition(state, name))
            yield PlannedSpec(job, spec_of(state, job), None, on_failure=True)


def _condition(state: RunState, name: str) -> str:
    """Return the event on which a stage runs, in words: a failure, or the end of other stages."""
    stage = state.stages[name].stage
    if stage.when == "failed":
        return f"only if {' or '.join(stage.after)} fails"
    waits_for = [earlier for earlier in stage.strictly_after if state.stages[earlier].phase is not Phase.DONE]
    return f"only if {' and '.join(waits_for)} did run" if waits_for else f"once {', '.join(stage.after_any)} ended"


def _follow_up(state: RunState, strategy: Strategy, forecast: Forecast, now_s: float) -> Iterator[PlannedSpec]:
    """Return the requests that follow the submitted jobs: more cores for them, and jobs that race with them later."""
    plan = strategy.plan(state.view(now_s), forecast)
    for job in plan.submissions:
        if not job.has_payload or job.is_alternative:
            yield PlannedSpec(job, spec_of(state, job), max(job.submit_s - now_s, 0.0))


def _is_news(state: RunState, job: PlannedJob) -> bool:
    return all(state.stages[name].phase is Phase.WAITING for name in job.stages)


def _later(state: RunState, planned: PlannedJob, now_s: float) -> PlannedSpec:
    """Return a job that is submitted only when the stages before it have ended."""
    stages = planned.stages
    after = dict.fromkeys(p for name in stages for p in state.stages[name].stage.after if p not in stages)
    job = replace(
        planned,
        submit_s=now_s,
        keep=Keep.NOTHING,
        reason=f"when it is due: after {', '.join(after)}",
        prediction=None,
        needed_s=None,
        spare_walltime_s=0.0,
    )
    return PlannedSpec(job, spec_of(state, job), None)
