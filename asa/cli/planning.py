"""What a run would do, before anything is done: which jobs, when, why, and whether they can ever run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asa.backend import Backend, JobSpec, JobState, JobStatus, Previewing
from asa.cli.runs import SCHEMA
from asa.errors import InputError
from asa.runner.entries import Accepted, Intended
from asa.runner.state import RunState
from asa.strategies.base import ForecastKind, Keep, PlannedJob, Strategy, load_strategy
from asa.units import format_duration
from asa.waits import LEVELS, WaitForecast

if TYPE_CHECKING:
    from pathlib import Path

    from asa.estimators import WaitBank
    from asa.runner import RunPlan
    from asa.strategies.base import Forecast

__all__ = ["PlannedSpec", "check_possible", "check_strategy", "plan_of", "print_plan", "read_only_bank"]

_MADE_UP = "JOB-OF-"
_LONG = {"script", "variables"}  # what of a preview is shown on request


@dataclass(frozen=True, slots=True)
class PlannedSpec:
    """A job that a run would submit, as things stand before it begins.

    Parameters
    ----------
    planned, spec
        As planned, and as it would be sent. It may depend on jobs that are not there yet.
    in_s
        In how many seconds it would be submitted; None if only when the stages before it have ended.
    """

    planned: PlannedJob
    spec: JobSpec
    in_s: float | None


class _NoWaits:
    """A forecast for a look at the jobs alone."""

    def predict(self, stage: str, needed_s: float) -> WaitForecast:  # noqa: ARG002 - the port's shape
        """Predict no wait."""
        return WaitForecast((0.0,) * len(LEVELS), 0.0)


def check_strategy(name: str) -> Strategy:
    """Make a strategy that can drive a real run.

    Raises
    ------
    InputError
        There is none of that name, or it needs to know the future.
    """
    strategy = load_strategy(name)
    if strategy.forecast is ForecastKind.KNOWN:
        raise InputError(
            "needs to know the future, which only a simulator does", where=f"strategy {name!r}", hint="Take `asa`."
        )
    return strategy


def check_possible(plan: RunPlan, strategy: Strategy) -> None:
    """Refuse a run of which a job could never start.

    Raises
    ------
    InputError
        It tells of every such stage.
    """
    told: dict[str, str] = {}
    for job in _jobs(plan, strategy, _NoWaits(), 0.0):
        if (why := plan.capabilities.impossible(job.spec)) is not None:
            told["+".join(job.planned.stages)] = why
    if told:
        lines = "".join(f"\n  {stages}: {why}" for stages, why in told.items())
        count = "a job" if len(told) == 1 else f"{len(told)} jobs"
        raise InputError(
            f"{count} could never start on {plan.capabilities.system}:{lines}",
            where=f"workflow {plan.workflow!r}",
            hint="Nothing was submitted. Ask for less, or for another partition.",
        )


def read_only_bank(plan: RunPlan, folder: Path | None) -> WaitBank:
    """Open what is known of waits, so that nothing is changed."""
    from asa.estimators import WaitBank, WaitStore

    store = WaitStore(folder, create=False) if folder is not None and folder.is_dir() else None
    return WaitBank(plan.estimator, seed=plan.seed, machine_cores=plan.capabilities.max_cores, store=store)


def plan_of(plan: RunPlan, strategy: Strategy, backend: Backend, bank: WaitBank) -> list[PlannedSpec]:
    """Plan a run as it would be at its beginning; reads the queue, if the bank learns from it, and changes nothing."""
    from asa.runner.active import queued
    from asa.runner.forecasts import LearnedForecast, NoForecast

    state = _state(plan)
    forecast: Forecast = NoForecast()
    if strategy.forecast is ForecastKind.LEARNED:
        if plan.history:
            bank.follow(backend.queue_events(plan.history, ends=bank.sees_queue))

        def job_of(name: str) -> Any:
            spec = state.spec_of(PlannedJob((name,), 0.0, Keep.NOTHING, ""))
            return queued(spec, plan.capabilities, backend.now(), bank.user)

        forecast = LearnedForecast(bank, job_of)
    return list(_jobs(plan, strategy, forecast, backend.now()))


def _state(plan: RunPlan) -> RunState:
    return RunState(plan.name, plan.make_workflow(), plan.capabilities, plan.id)


def _jobs(plan: RunPlan, strategy: Strategy, forecast: Forecast, now_s: float) -> Iterator[PlannedSpec]:
    """Give the jobs of a plan, then those that follow once the stages before them have ended."""
    state = _state(plan)
    planned = strategy.plan(state.view(now_s), forecast).submissions
    for job in planned:
        spec = state.spec_of(job)
        yield PlannedSpec(job, spec, max(job.submit_s - now_s, 0.0))
        job_id = f"{_MADE_UP}{job.stages[0]}"
        for entry in (
            Intended(spec.token, job, spec, now_s),
            Accepted(spec.token, JobStatus(job_id, JobState.PENDING, job.submit_s)),
        ):
            list(state.apply(entry))
    listed = {name for job in planned for name in job.stages}
    for name in (name for name in state.workflow.order if name not in listed):
        later = PlannedJob(
            (name,), now_s, Keep.NOTHING, f"when it is its turn: after {', '.join(state.stages[name].stage.after)}"
        )
        yield PlannedSpec(later, state.spec_of(later), None)


# ---------------------------------------------------------------------- printing


def print_plan(
    plan: RunPlan, jobs: Sequence[PlannedSpec], backend: Backend, *, as_json: bool, place: str, scripts: bool = False
) -> None:
    """Print each job as it would be sent, if the backend can tell, and then the plan, so that it is what is seen last.

    Parameters
    ----------
    plan, jobs
        What would run.
    backend
        Opened in a folder that is there for this look alone.
    as_json
        Rather than tables.
    place
        That folder, which stands for the run's.
    scripts
        Print the jobs' scripts and the names of their variables, too.
    """
    previews = [_preview(backend, job.spec, place, plan) for job in jobs]
    if as_json:
        told = [_as_dict(job, preview) for job, preview in zip(jobs, previews, strict=True)]
        document = {"schema": SCHEMA, "workflow": plan.workflow, "strategy": plan.strategy, "backend": plan.backend}
        sys.stdout.write(json.dumps({**document, "jobs": told}, indent=1) + "\n")
        return
    from rich.console import Console

    console = Console(highlight=False)
    for job, preview in zip(jobs, previews, strict=True):
        for title, text in preview.items():
            if title in _LONG and not scripts:
                continue
            console.print(f"{'+'.join(job.planned.stages)}: {title}", style="bold", markup=False)
            console.print(f"{text.rstrip()}\n", markup=False, soft_wrap=True)
    console.print(_heading(plan, jobs))
    console.print(_table(jobs, is_wide=console.width >= 110))
    is_hidden = not scripts and any(_LONG & preview.keys() for preview in previews)
    more = " --scripts shows the jobs' scripts, too." if is_hidden else ""
    console.print(f"\nNothing was submitted.{more}", style="dim")


def _preview(backend: Backend, spec: JobSpec, place: str, plan: RunPlan) -> Mapping[str, str]:
    if not isinstance(backend, Previewing):
        return {}
    return {title: text.replace(place, f"RUNS/{plan.name}") for title, text in backend.preview(spec).items()}


def _as_dict(job: PlannedSpec, preview: Mapping[str, str]) -> dict[str, Any]:
    prediction = job.planned.prediction
    return {
        "stages": list(job.planned.stages),
        "cores": job.spec.cores,
        "nodes": job.spec.nodes,
        "walltime_s": job.spec.walltime_s,
        "partition": job.spec.partition,
        "submit_in_s": job.in_s,
        "keep": job.planned.keep.value,
        "predicted_wait_s": prediction.wait_s if prediction else None,
        "forecast_s": list(prediction.quantiles_s) if prediction else None,
        "reason": job.planned.reason,
        "depends_on": [dependency.job_id.removeprefix(_MADE_UP) for dependency in job.spec.dependencies],
        "preview": dict(preview),
    }


def _heading(plan: RunPlan, jobs: Sequence[PlannedSpec]) -> Any:
    from rich.text import Text

    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    where = f"{plan.capabilities.system} ({plan.backend})"
    return Text.assemble((f"{plan.workflow} on {where}", "bold"), f", strategy {plan.strategy}: {count}\n")


def _table(jobs: Sequence[PlannedSpec], *, is_wide: bool) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("Job of", overflow="fold")
    for heading in ("Cores", "Walltime", "Wait p50", "p90", "Submit"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("After" if not is_wide else "Why then", overflow="fold")
    for job in jobs:
        prediction = job.planned.prediction
        if prediction is None:
            waits = ("", "")
        elif prediction.alternative >= 0:
            waits = (format_duration(prediction.wait_s), "")
        else:
            waits = (format_duration(prediction.at(0.5)), format_duration(prediction.at(0.9)))
        after = ", ".join(d.job_id.removeprefix(_MADE_UP) for d in job.spec.dependencies)
        table.add_row(
            "+".join(job.planned.stages),
            str(job.spec.cores),
            format_duration(job.spec.walltime_s),
            *waits,
            _when(job),
            job.planned.reason if is_wide else after,
        )
    return table


def _when(job: PlannedSpec) -> str:
    if job.in_s is None:
        return "in its turn"
    return "at once" if job.in_s < 1 else f"in {format_duration(job.in_s)}"
