"""Prints the plan of a run before the run begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asa.backend import Backend, JobSpec, Previewing
from asa.cli.kinds import alike, n_jobs, turns
from asa.cli.runs import print_document
from asa.runner.outlook import MADE_UP, PlannedSpec
from asa.units import format_duration, per_job

if TYPE_CHECKING:
    from asa.runner import RunPlan
    from asa.workflow import Stage


def print_plan(
    plan: RunPlan, jobs: Sequence[PlannedSpec], backend: Backend, *, as_json: bool, folder: str, scripts: bool = False
) -> None:
    """Print the plan and its reasons; with `scripts`, also each job as the backend would send it."""
    previews = [_preview(backend, job.spec, folder, plan) for job in jobs]
    if as_json:
        entries = [_as_dict(job, preview) for job, preview in zip(jobs, previews, strict=True)]
        head = {"workflow": plan.workflow, "strategy": plan.strategy, "backend": plan.backend}
        print_document({**head, "jobs": entries})
        return
    from asa.core.console import Console

    console = Console(highlight=False)
    console.print(_heading(plan, jobs))
    stages = {stage.name: stage for stage in plan.stages}
    console.print(jobs_table(jobs, stages))
    console.print()
    for job in jobs:
        if words := turns(stages[job.planned.stages[0]], job.spec):
            _print_wrapped(console, f"{_name(job)}: {words}")
    for why, names in _reasons(jobs).items():
        _print_wrapped(console, f"Why: {why}" if len(names) == len(jobs) else f"{', '.join(names)}: {why}")
    is_hidden = not scripts and any(previews)
    more = " --scripts shows what would be sent." if is_hidden else ""
    console.print(f"\nNothing was submitted.{more}", style="dim")
    for job, preview in zip(jobs, previews, strict=True) if scripts else ():
        for title, text in preview.items():
            console.print(f"\n{_name(job)}: {title}", style="bold", markup=False)
            console.print(text.rstrip(), markup=False, soft_wrap=True)


def _preview(backend: Backend, spec: JobSpec, folder: str, plan: RunPlan) -> Mapping[str, str]:
    if not isinstance(backend, Previewing):
        return {}
    return {title: text.replace(folder, f"RUNS/{plan.name}") for title, text in backend.preview(spec).items()}


def _as_dict(job: PlannedSpec, preview: Mapping[str, str]) -> dict[str, Any]:
    prediction = job.planned.prediction
    return {
        "stages": list(job.planned.stages),
        "cores": job.spec.cores,
        "jobs": job.spec.jobs_at_once,
        "nodes": job.spec.nodes,
        "walltime_s": job.spec.walltime_s,
        "partition": job.spec.partition,
        "submit_in_s": job.in_s,
        "on_failure": job.on_failure,
        "alternative": job.planned.is_alternative,
        "keep": job.planned.keep.value,
        "predicted_wait_s": prediction.wait_s if prediction else None,
        "forecast_s": list(prediction.quantiles_s) if prediction else None,
        "reason": reason_of(job),
        "depends_on": [dependency.job_id.removeprefix(MADE_UP) for dependency in job.spec.dependencies],
        "preview": dict(preview),
    }


def _heading(plan: RunPlan, jobs: Sequence[PlannedSpec]) -> Any:
    from rich.text import Text

    n_extra, n_others = sum(job.on_failure for job in jobs), sum(job.planned.is_alternative for job in jobs)
    n_usual = sum(n_jobs(job.spec) for job in jobs if not job.on_failure) - n_others
    count = "1 job" if n_usual == 1 else f"{n_usual} jobs"
    count += f", and {n_others} later if it has not started: the first to start is kept" if n_others else ""
    count += f", and {n_extra} if a stage fails" if n_extra else ""
    where = f"{plan.capabilities.system} ({plan.backend})"
    return Text.assemble((f"{plan.workflow} on {where}", "bold"), f", strategy {plan.strategy}: {count}\n")


def _name(job: PlannedSpec) -> str:
    return "+".join(job.planned.stages)


def jobs_table(jobs: Sequence[PlannedSpec], stages: Mapping[str, Stage]) -> Any:
    """Return a table of jobs, each with what it asks for, when it is submitted, and how long it may wait."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("Job of", overflow="fold")
    for heading in ("Cores", "Walltime", "Submit"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("After", overflow="fold")
    for heading in ("Wait p50", "p90"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in jobs:
        prediction = job.planned.prediction
        if prediction is None:
            waits = ("unknown", "")
        elif prediction.alternative >= 0:
            waits = (format_duration(prediction.wait_s), "")
        else:
            waits = (format_duration(prediction.at(0.5)), format_duration(prediction.at(0.9)))
        table.add_row(
            _name(job),
            per_job(alike(stages[job.planned.stages[0]], job.spec), str(job.spec.cores)),
            format_duration(job.spec.walltime_s),
            _when(job),
            ", ".join(d.job_id.removeprefix(MADE_UP) for d in job.spec.dependencies),
            *waits,
        )
    return table


def reason_of(job: PlannedSpec) -> str:
    """Return why a job is submitted, without made-up ids."""
    return job.planned.reason.replace(f"job {MADE_UP}", "the job of ")


def _reasons(jobs: Sequence[PlannedSpec]) -> dict[str, list[str]]:
    """Return the reasons, each with the jobs that it applies to."""
    reasons: dict[str, list[str]] = {}
    for job in jobs:
        if job.planned.reason:
            reasons.setdefault(reason_of(job), []).append(_name(job))
    return reasons


def _print_wrapped(console: Any, text: str) -> None:
    from textwrap import fill

    width = max(console.width, 40)
    lines = fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    console.print(lines, markup=False, soft_wrap=True)


def _when(job: PlannedSpec) -> str:
    if job.on_failure:
        return "on failure"
    if job.in_s is None:
        return "in its turn"
    return "at once" if job.in_s < 1 else f"in {format_duration(job.in_s)}"
