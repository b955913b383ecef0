"""``asa explain``: says why a stage is in its state, and what can be done."""

from __future__ import annotations

import math
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.kinds.base import duration
from asa.cli.logs import RunOption, last_words, logs_command
from asa.cli.notices import remedy_of
from asa.cli.runs import (
    OrRunArgument,
    RunsOption,
    advice_on,
    command,
    complete_stages,
    facility_of,
    how_its_host_goes_on,
    latest_job,
    open_named,
    print_document,
    remedy_on,
    retry_command,
)
from asa.cli.screen import clock
from asa.cli.shapes import about_shapes
from asa.core.options import Output, OutputOption
from asa.units import format_cores, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asa.cli.standing import RunStanding, StageStanding
    from asa.core.console import Console
    from asa.runner import RunFolder
    from asa.runner.state import RunState
    from asa.workflow import Stage

_LAST_LINES = 10
_FAILED = {"failed", "timed out", "cancelled"}


def explain(
    stage: Annotated[
        str,
        typer.Argument(
            help="The stage. [default: every stage that has not completed]",
            show_default=False,
            autocompletion=complete_stages,
        ),
    ] = "",
    of_run: OrRunArgument = "",
    run: RunOption = "",
    output: OutputOption = Output.TABLE,
    runs: RunsOption = None,
) -> None:
    """Explain why a stage is pending, held, refused or failed, when it will be submitted, and what you can do.

    It explains what the batch system said last; it does not ask again.

    Exit codes: 0 done, 1 the run's folder cannot be read, 2 the input cannot be used.
    """
    from asa.cli.standing import standing_of

    folder, state, stage = open_named(runs, stage, of_run, run)
    standing = standing_of(folder, time.time())
    chosen = [s for s in standing.stages if (s.stage == stage if stage else s.state != "done")]
    about_run = list(_of_run(folder, standing))
    about_stages = [(about, list(_of_stage(folder, state, standing, about))) for about in chosen]
    if output is Output.JSON:
        _print_json(standing, about_run, about_stages)
    else:
        _print_text(about_run, about_stages)


def _print_text(about_run: list[str], about_stages: list[tuple[StageStanding, list[str]]]) -> None:
    from rich.text import Text

    from asa.core.console import Console

    console = Console(highlight=False)
    for line in about_run:
        _print(console, line, 0)
    for stage, lines in about_stages:
        said = f" ({stage.comment})" if stage.comment else ""
        console.print(Text.assemble("\n", (stage.stage, "bold"), f"{said}: {stage.state}"))
        for line in lines:
            _print(console, line, 2)


def _print_json(run: RunStanding, about_run: list[str], about_stages: list[tuple[StageStanding, list[str]]]) -> None:
    stages: list[dict[str, Any]] = [
        {"stage": stage.stage, "state": stage.state, "job_id": stage.job_id, "reason": stage.reason, "told": lines}
        for stage, lines in about_stages
    ]
    head = {"run": run.name, "folder": run.path, "state": run.state, "told": about_run}
    print_document({**head, "stages": stages})


class _Verbatim(str):
    """A line that must not be wrapped: a command to type, or output of a job."""

    __slots__ = ()


def _print(console: Console, line: str, indent: int) -> None:
    from textwrap import fill

    from rich.text import Text

    left = " " * (indent + 2 * isinstance(line, _Verbatim))
    width = 1_000_000 if isinstance(line, _Verbatim) else max(console.width, 40)
    filled = fill(
        line, width, initial_indent=left, subsequent_indent=left, break_long_words=False, break_on_hyphens=False
    )
    console.print(Text(filled or left), soft_wrap=True)


# ---------------------------------------------------------------------- the run


def _of_run(folder: RunFolder, run: RunStanding) -> Iterator[str]:
    if run.refusal:
        yield f"No client may go on with it: {run.refusal}."
        yield run.remedy
    age = f"; the batch system last answered {format_duration(run.age_s)} ago" if run.age_s is not None else ""
    if run.state == "running":
        yield f"{run.name} has a client: {run.driver}{age}."
        if run.trouble:
            yield f"The batch system does not answer: {run.trouble}. Trying again; jobs go on."
            if remedy := remedy_on(facility_of(folder), folder, run.trouble):
                yield remedy
    elif run.state == "detached":
        yield f"{run.kept[0].upper()}{run.kept[1:]}{age}." if run.kept else f"{run.name} has no client{age}."
        if run.has_failures:
            yield f"{run.tally}."
    elif run.state == "completed":
        yield f"{run.name} has completed."
    else:
        yield f"{run.name} {'was cancelled' if run.state == 'cancelled' else 'failed'}: {run.reason.rstrip('.')}."
        yield f"{run.tally}."
    yield from _how_it_goes_on(folder, run)

    for bad in run.bad_nodes:
        until = clock(bad.until_s, run.now_s)
        yield f"No job of it is sent to node {bad.name} until {until}: {bad.text}."


def _how_it_goes_on(folder: RunFolder, run: RunStanding) -> Iterator[str]:
    """Print how to continue a run that has no client, if the reader is allowed to continue it."""
    if run.state == "detached" and not run.kept and not run.refusal:
        if folder.plan.host and not run.owner:
            yield f"Submitted jobs go on, but nothing more is submitted. {how_its_host_goes_on(folder)}"
            return
        yield f"Submitted jobs go on, but nothing more is submitted{_until(run)}"
        if not run.owner:
            yield _Verbatim(command("resume", folder))
    elif run.state in {"failed", "cancelled"} and run.owner:
        yield f"Only {run.owner} can continue from what completed, once the cause is fixed."
    elif run.state in {"failed", "cancelled"} and folder.plan.host:
        yield f"Once the cause is fixed, run {folder.plan.host} again: it goes on from the files that are there."
    elif run.state in {"failed", "cancelled"}:
        yield "Once the cause is fixed, continue from what completed:"
        yield _Verbatim(retry_command(folder))


def _until(run: RunStanding) -> str:
    return f" until {run.owner} goes on with it." if run.owner else ". Continue with:"


# ---------------------------------------------------------------------- a stage


def _of_stage(folder: RunFolder, state: RunState, run: RunStanding, stage: StageStanding) -> Iterator[str]:
    if stage.state == "done":
        yield f"It waited {duration(stage.wait_s)} in the queue, and ran {duration(stage.run_s)}."
    elif stage.state == "refused":
        yield from _refused(folder, stage)
    elif stage.given_up and stage.state in {"cancelled", "being cancelled"}:
        yield _by_asa(stage.job_id, stage.given_up, is_over=stage.state == "cancelled")
    elif stage.state in _FAILED:
        yield from _failed(folder, state, stage)
    elif stage.state == "running":
        yield from stage.units.sentences(stage, run.now_s, partial(_reason, folder))
    elif stage.state in {"waiting", "conditional"}:
        yield from _waiting(folder, state, run, stage)
    elif stage.state == "being submitted":
        yield "Its job is being submitted, or it is not known yet whether it was accepted. It is never submitted twice."
    elif stage.state in {"blocked", "skipped", "dropped"}:
        yield from _out(state, stage)
    elif stage.state == "not run":
        yield f"The run ended before its turn{f'; {stage.reason}, before that' if stage.reason else ''}."
    else:
        yield from _pending(folder, state, run, stage)
    yield from _other_jobs(folder, run, stage)
    yield from about_shapes(state, stage.stage)


def _other_jobs(folder: RunFolder, run: RunStanding, stage: StageStanding) -> Iterator[str]:
    """Describe the stage's other jobs: its racers, a job that is not accepted yet, and the job of its last attempt."""
    yield from stage.units.other_jobs(stage)
    if stage.job_id is not None:
        yield from _not_accepted(folder, run, stage)
    if stage.retried:
        verb = "was" if stage.has_failed else "is"
        yield f"It {verb} tried again; last attempt: {stage.retried}."


def _pending(folder: RunFolder, state: RunState, run: RunStanding, stage: StageStanding) -> Iterator[str]:
    yield f"Job {stage.job_id}: {format_cores(stage.cores, stage.alike)} for {format_duration(stage.walltime_s)}."
    if stage.state == "allocated":
        yield "It has its cores, and waits for the stages that it depends on; until then they are idle."
    yield from _before(state, run, stage.stage)
    if stage.state in {"queued", "queued (dependency)", "held"}:
        yield from _so_far(stage)
        if stage.expected_start_s is not None:
            yield (
                f"The batch system expects it to start in {duration(max(stage.expected_start_s - run.now_s, 0.0))}, "
                "if all jobs before it use their whole walltime."
            )
    ago = f" {format_duration(run.age_s)} ago" if run.age_s is not None else ""
    stale = f"This was its state when the batch system last answered{ago}: it may have started or been cancelled since."
    yield from _reason(folder, stage, stale=stale if run.state == "detached" else "")


def _out(state: RunState, stage: StageStanding) -> Iterator[str]:
    yield f"It does not run, since {stage.reason.rstrip('.')}."
    job = latest_job(state, stage.stage)
    if job is not None and job.giving_up:
        yield _by_asa(job.status.job_id, job.giving_up, is_over=job.status.state.is_final)


def _before(state: RunState, run: RunStanding, name: str) -> Iterator[str]:
    """Describe the chain of stages that the stage waits for, the nearest first."""
    by_name = {stage.stage: stage for stage in run.stages}
    seen, ahead = {name}, list(state.stages[name].stage.after)
    while ahead:
        before = ahead.pop(0)
        if before in seen or by_name[before].state == "done" or state.stages[before].phase.is_settled:
            continue
        seen.add(before)
        yield f"It waits for {before!r}: {_in_short(by_name[before], state)}."
        ahead += state.stages[before].stage.after


def _in_short(stage: StageStanding, state: RunState) -> str:
    if stage.state == "running" and stage.run_s is not None:
        left = state.stages[stage.stage].stage.expected_s - stage.run_s
        return f"running for {duration(stage.run_s)}, expected to end {f'in {duration(left)}' if left > 0 else 'now'}"
    if stage.is_growing:
        return f"{stage.state} for {duration(stage.wait_s)}"
    return stage.state


def _so_far(stage: StageStanding) -> Iterator[str]:
    forecast, waited = stage.forecast, stage.wait_s
    if waited is None:
        yield (
            "The time until it is released does not count: here jobs gain priority by age only once they are eligible."
        )
    elif forecast is None:
        yield f"It has waited {duration(waited)}; nothing was predicted."
    elif forecast.alternative >= 0:
        yield f"It has waited {duration(waited)}; {duration(forecast.wait_s)} were predicted."
    else:
        waits = f"half within {duration(forecast.at(0.5))}, 9 in 10 within {duration(forecast.at(0.9))}"
        if stage.state == "queued":
            started = forecast.probability_within(waited)
            yield f"It has waited {duration(waited)}: {started:.0%} of such jobs should have started ({waits})."
        else:
            yield f"It was submitted {duration(waited)} ago. Such jobs were expected to start: {waits}."


def _by_asa(job_id: str | None, why: str, *, is_over: bool = True) -> str:
    """Print why asa cancelled a job; the batch system's reason would add nothing."""
    return f"Job {job_id} {'was' if is_over else 'is being'} cancelled by asa, since {why}."


def _refused(folder: RunFolder, stage: StageStanding) -> Iterator[str]:
    asked = f"{format_cores(stage.cores, stage.alike)} for {format_duration(stage.walltime_s)}"
    yield f"The batch system refused its job of {asked}: {stage.reason.rstrip('.')}."
    if folder.plan.host:
        yield f"What to do: correct what it asks for, then run {folder.plan.host} again."
        return
    where = f" in {folder.plan.source}" if folder.plan.source else ""
    yield (
        f"What to do: correct what the stage asks for{where}, or an option of the backend by --option; then "
        f"continue with:"
    )
    yield _Verbatim(retry_command(folder))


def _reason(folder: RunFolder, stage: StageStanding, *, stale: str = "") -> Iterator[str]:
    """Yield the batch system's reason; with `stale`, which says how old it is, without advice to wait."""
    if stale:
        yield stale
    if not stage.reason:
        return
    advice = advice_on(facility_of(folder), stage.reason)
    yield f"Reason given: {stage.reason}.{f' {advice.meaning}' if advice else ''}"
    if advice is not None and advice.remedy and not (stale and advice.remedy.startswith("Nothing")):
        yield f"What to do: {remedy_of(advice, stage.job_id)}"


def _not_accepted(folder: RunFolder, run: RunStanding, stage: StageStanding) -> Iterator[str]:
    """Print why the batch system does not accept a job, such as a limit on the user's jobs."""
    if stage.not_accepted is None:
        return
    since_s, reason = stage.not_accepted
    since, lasts = clock(since_s, run.now_s), duration(max(run.now_s - since_s, 0.0))
    what = "one more job for it" if stage.job_id is not None else "it"
    yield f"The batch system has not accepted {what} since {since}, for {lasts}: {reason.rstrip('.')}."
    advice = advice_on(facility_of(folder), reason)
    if advice is not None and advice.remedy:
        yield f"{advice.meaning} {advice.remedy}"
    yield (
        "It is submitted again and again."
        if run.state == "running"
        else "It is submitted again by who resumes the run."
    )


def _delay(state: RunState, run: RunStanding, stage: StageStanding) -> Iterator[str]:
    """Print how much longer other stages must run before this stage begins."""
    asked = state.workflow.stages[stage.stage]
    left_s = state.stages.pauses_s().get(stage.stage, 0.0) - run.now_s
    if stage.state == "waiting" and asked.start_delay_s and left_s > 0:
        others = " and ".join(repr(name) for name in asked.after_start)
        yet = f", {duration(left_s)} from now," if math.isfinite(left_s) else ""
        yield f"It begins once {others} ran for {format_duration(asked.start_delay_s)}{yet} or ended."


def _waiting(folder: RunFolder, state: RunState, run: RunStanding, stage: StageStanding) -> Iterator[str]:
    asked = f"{format_cores(stage.cores, stage.alike)} for {format_duration(stage.walltime_s)}"
    yield f"Its job is not submitted yet; it will ask for {asked}."
    if stage.state == "conditional":
        yield f"It {stage.reason}: so it cannot be submitted ahead of time."
    elif stage.reason:
        yield f"Its last {stage.reason}, and what is left is submitted again."
    elif stage.resubmissions:
        yield f"Submitted {stage.resubmissions} times so far; each job was given back before the stage began."
    yield from _not_accepted(folder, run, stage)
    yield from _before(state, run, stage.stage)
    yield from _delay(state, run, stage)
    if run.state == "detached":
        yield (
            f"It is submitted when it is due: {run.kept}."
            if run.kept
            else ("It is submitted only once a client is at work on the run.")
        )
    elif stage.planned_s is None and stage.plan:
        yield f"It is {stage.plan}."
    elif stage.planned_s is not None and stage.not_accepted is None:
        left_s = stage.planned_s - run.now_s
        moment = f"in {duration(left_s)}" if left_s >= 1 else "now"
        yield f"Strategy {run.plan.strategy} plans to submit it {moment}: {stage.plan}."
    elif run.next_s is not None:
        yield (
            f"Strategy {run.plan.strategy} decides next in {duration(max(run.next_s - run.now_s, 0.0))}, "
            "or when something changes."
        )
    else:
        yield f"Strategy {run.plan.strategy} submits it when something changes."


def _failed(folder: RunFolder, state: RunState, stage: StageStanding) -> Iterator[str]:
    from asa.cli.stand_ins import remedy_for
    from asa.outcome import meaning

    code = f", exit code {stage.exit_code}" if stage.exit_code else ""
    ran = f" after it had run {duration(stage.run_s)}" if stage.run_s is not None else " before it began"
    means = f": {explanation}" if (explanation := meaning(stage.exit_code, stage.outcome)) else ""
    failures = stage.units.failures(state, stage, f"{_ended_as(stage)}{ran}")
    yield from failures or [f"Job {stage.job_id} {_ended_as(stage)}{ran}{code}{means}."]
    is_news = not (means or failures) or stage.reason not in {"", "None", "NonZeroExitCode"}
    if is_news and (stage.state != "cancelled" or stage.reason.lower() not in {"", "none", "cancelled"}):
        yield from _reason(folder, stage)
    file, last = last_words(folder, state, stage.stage, _LAST_LINES, of_units=bool(failures))
    if file is not None:
        yield f"Last lines of {file}:"
        yield from map(_Verbatim, last.splitlines())
        yield "All of it:"
        yield _Verbatim(logs_command(folder, stage.stage, file))
        name, way = remedy_for(folder, last)
        if name:
            yield f"{name} is a command of clusters. To go on with a stand-in for it on this computer:"
            yield _Verbatim(way)
    elif folder.plan.host and stage.run_s is not None:
        yield "Its command printed nothing. All of its output:"
        yield _Verbatim(logs_command(folder, stage.stage, None))
    yield from _withheld(folder, state.workflow.stages[stage.stage])


def _withheld(folder: RunFolder, stage: Stage) -> Iterator[str]:
    """Name the variables that the stage's job did not get, first those that the stage uses."""
    from asa.core.safe import is_safe
    from asa.core.variables import secrets_of
    from asa.spec.withheld import dollars, remedy, sounds_secret, uses_of

    is_own = is_safe(folder.path)  # else read no files: others may have chosen their names
    if names := [use.name for use in uses_of(stage, folder.plan.folder if is_own else None, sounds_secret)]:
        yield (
            f"It uses {dollars(names)}, which it has not asked for: variables that hold secrets go on to stages that "
            f"ask for them only. If it needs {'it' if len(names) == 1 else 'them'}, {remedy(names)}."
        )
    given = {*names, *stage.secrets, *(name for name, _ in stage.environment)}
    others = [name for name in secrets_of(os.environ) if name not in given] if is_own else []
    if others:
        hold = "it holds a secret" if len(others) == 1 else "they hold secrets"
        yield (
            f"Of this shell it {'also lacked' if names else 'lacked'} {', '.join(others)}, as {hold}: a library may "
            f"look for such where no text of the stage does. If it needs one, {remedy(others[:1])}."
        )


def _ended_as(stage: StageStanding) -> str:
    others = "was cancelled, but not by asa,"
    return {"failed": "failed", "timed out": "was killed at its walltime", "cancelled": others}[stage.state]
