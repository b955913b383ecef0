"""``asa run`` and ``asa resume``: run a workflow, or go on with one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.asked import (
    AutoEstimatorOption,
    BankOption,
    CoresOption,
    Forecasting,
    HistoryOption,
    SeedOption,
    SettingsOption,
    WidthOption,
    read_asked,
    split_settings,
)
from asa.cli.detaching import DetachByOption, DetachOption, KeeperOption, checked_walltime_s, chosen_way
from asa.cli.doctor import BackendOption, SetOption, SiteOption, given_settings
from asa.cli.runs import (
    Output,
    OutputOption,
    RunArgument,
    RunsOption,
    check_not_hosted,
    command,
    open_run,
    read_state,
    runs_folder,
    stage_of,
)
from asa.errors import InputError, UnavailableError
from asa.units import format_duration

if TYPE_CHECKING:
    from asa.backend import Facility
    from asa.cli.live import Display
    from asa.runner import RunFolder
    from asa.runner.state import RunState
    from asa.workflow import Workflow

_STRATEGY = "asa-plan"
_OFFLINE = "slurm-cli"
_WHY = "on recorded queues it took 3 to 4 % longer than Big Job, and 3 to 4 % more core-hours than Per-Stage"
_OF_SHAPES = "the shapes that it chose took 15 to 17 % less time than the best single width"
_BY_RULE = {  # whether age accrues
    True: "jobs gain priority behind a dependency here, so that it asks for them early with one",
    False: "jobs gain no priority behind a dependency here, so that it asks early without one where that is worth it",
}

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing until the run ends.")]


def run(
    workflow: Annotated[
        str, typer.Argument(help="A workflow file (.toml); with --dry-run also an installed workflow such as montage.")
    ],
    backend: BackendOption = None,
    site: SiteOption = None,
    settings: SettingsOption = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="How resources are asked for; `asa list` shows all. [default: the site file's, else asa-plan]",
            show_default=False,
        ),
    ] = None,
    estimator: AutoEstimatorOption = "auto",
    bank: BankOption = None,
    name: Annotated[str | None, typer.Option(help="Of the run. [default: the workflow's]", show_default=False)] = None,
    history: HistoryOption = 2000,
    seed: SeedOption = 0,
    cores: CoresOption = None,
    width: WidthOption = None,
    fail_fast: Annotated[
        bool,
        typer.Option(
            "--fail-fast",
            help="End the run as soon as a stage has failed, and cancel what runs. [default: what does not depend "
            "on it goes on]",
        ),
    ] = False,
    notify: Annotated[
        str | None,
        typer.Option(
            help="Who is told of its end, of a failure, and when nothing moves for a day: an address, or a command, "
            "which gets the message as its input. [default: the site file's, else nobody]",
            metavar="ADDRESS|COMMAND",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be submitted, when and why; submit nothing.")
    ] = False,
    scripts: Annotated[bool, typer.Option("--scripts", help="With --dry-run: show the jobs' scripts, too.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="With --dry-run: ask no batch system; for slurm-cli, which it takes.")
    ] = False,
    detach: DetachOption = False,
    detach_by: DetachByOption = None,
    keeper_walltime: KeeperOption = "4h",
    output: OutputOption = Output.TABLE,
    quiet: QuietOption = False,
    runs: RunsOption = None,
) -> None:
    """Run a workflow on a batch system: each stage is asked for ahead of time, so that it need not wait.

    See first what would happen: `asa run flow.toml --dry-run`. Then `asa run flow.toml`, with --backend or --site
    where more than one batch system is known.

    Ctrl-C leaves the run: its jobs go on (with --strategy pool they begin anew), and `asa resume` goes on with it, here
    or on another computer that sees its folder. It may be killed at any moment without harm.

    With `--output json`: a line an event or a trouble, and at the end the run's status.

    Exit codes: 0 the run completed, or was left by --detach, 1 it failed or was cancelled, 2 the input cannot be used,
    130 it was left, also where nobody reads what it prints any more.
    """
    from asa.cli.detaching import detach as leave
    from asa.cli.planning import print_plan
    from asa.cli.pooled import facility_for
    from asa.runner import RunFolder
    from asa.runner.begin import check_text
    from asa.runner.outlook import check_options, check_strategy, plan_of, read_only_bank

    if strategy is not None:
        check_strategy(strategy)
    _check_together(dry_run=dry_run, scripts=scripts, offline=offline, backend=backend)
    if offline:
        backend, settings = backend or (None if site else _OFFLINE), [*(settings or []), "offline=yes"]
    forecast = Forecasting(estimator, bank, history, seed)
    asked = read_asked(workflow, backend, site, settings, cores, forecast, only_look=dry_run, quiet=quiet, width=width)
    check_text(str(runs_folder(runs).absolute()))
    chosen = strategy or asked.opened.strategy or _STRATEGY
    how = check_strategy(chosen)
    facility = facility_for(chosen, asked.opened, asked.workflow.fixed(width))
    asked = replace(asked, opened=replace(asked.opened, facility=facility))
    for note in facility.notes if offline and not quiet else ():
        sys.stderr.write(f"Note: {note}.\n")
    with tempfile.TemporaryDirectory(prefix="asa-") as place, asked.connected(Path(place)) as world:
        if strategy is None and not asked.opened.strategy and not quiet:
            chooses = width is None and any(stage.moldable for stage in asked.workflow.stages.values())
            why = [_WHY, *([_OF_SHAPES] if chooses else []), _BY_RULE[world.capabilities.age_accrues]]
            sys.stderr.write(f"Strategy `{chosen}`: {'; '.join(why)}.\n")
        who = asked.chosen(world, chosen)
        told = asked.opened.notify if notify is None else notify
        plan = replace(asked.planned(world, chosen, who, name=name or ""), fail_fast=fail_fast, notify=told)
        check_options(plan, how, world)
        if dry_run:
            jobs = plan_of(plan, how, world, read_only_bank(plan, asked.bank, world.now()), who.events)
            print_plan(plan, jobs, world, as_json=output is Output.JSON, place=place, scripts=scripts)
            return
        way = chosen_way(detach_by, plan) if detach or detach_by is not None else None
        keeper_s = checked_walltime_s(keeper_walltime)
    folder = RunFolder.create(runs_folder(runs).absolute(), plan)
    try:
        if way is not None:
            leave(folder, facility, way, keeper_s)
        else:
            _drive(folder, facility, output, "begins", quiet=quiet)
    except UnavailableError as error:
        hint = f"Nothing was submitted: try again later, with: {command('resume', folder)}"
        raise type(error)(error.message, where=error.where, hint=hint) from error


def _check_together(*, dry_run: bool, scripts: bool, offline: bool, backend: str | None) -> None:
    """Refuse options without what they go with."""
    for option, is_given in (("--scripts", scripts), ("--offline", offline)):
        if is_given and not dry_run:
            raise InputError("goes with --dry-run", where=option, hint="Give both, or leave it out.")
    if offline and backend not in {None, _OFFLINE}:
        raise InputError(f"goes with {_OFFLINE}", where="--offline", hint=f"Take --backend {_OFFLINE}.")


def resume(
    run: RunArgument = "",
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Of a run that failed or was cancelled: ask again for what did not complete."),
    ] = False,
    from_stage: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="Of a run that has ended, however: run this stage and all that follow it once more; may be repeated.",
            metavar="STAGE",
            show_default=False,
        ),
    ] = None,
    workflow: Annotated[
        Path | None,
        typer.Option(
            help="With --retry or --from: the workflow's file, mended. Its stages are the same; what those ask for and "
            "run that have not completed may change.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    settings: SetOption = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="Who predicts waits from now on; `asa list` shows all. [default: who did]", show_default=False
        ),
    ] = None,
    bank: BankOption = None,
    output: OutputOption = Output.TABLE,
    detach: DetachOption = False,
    detach_by: DetachByOption = None,
    keeper_walltime: KeeperOption = "4h",
    quiet: QuietOption = False,
    runs: RunsOption = None,
) -> None:
    """Go on with a run that was left, killed or cut off; no job is submitted twice.

    --set changes what the run was begun with, as in --set url=https://new.example.org:6820. What --workflow,
    --estimator and --bank change is kept.

    Exit codes: 0 the run completed, 1 it failed, was cancelled, or another client drives it, 2 the input cannot be
    used, 130 it was left.
    """
    from asa.cli.detaching import detach as leave
    from asa.cli.driving import reopen, tell_end
    from asa.cli.revising import check_estimator, revise, take_bank, take_estimator

    folder = open_run(runs, run)
    check_not_hosted(folder)
    state, _ = read_state(folder)
    outcome = state.outcome
    again = _stages_again(from_stage or [], state)
    if workflow is not None and not again and (not retry or outcome not in {"failed", "cancelled"}):
        why = "is taken with --retry or --from only" if not retry else "cannot change a run that has not failed"
        hint = "Only what is asked for again may change, once the run has failed or was cancelled."
        raise InputError(why, where="--workflow", hint=hint)
    if not again and (outcome == "completed" or (outcome is not None and not retry and not _has_loose_ends(folder))):
        sys.stderr.write(f"{folder.path.name} has ended already.\n")
        raise typer.Exit(tell_end(folder, as_json=output is Output.JSON))
    check_estimator(estimator)
    parameters, given = split_settings(str(workflow), given_settings(settings)) if workflow is not None else ({}, None)
    facility = reopen(folder, given if given is not None else given_settings(settings))
    revised = revise(folder, state, workflow, again, parameters) if workflow is not None else None
    if revised is None:
        _warn_of_old_scripts(folder, state)
    take_bank(folder, bank)
    take_estimator(folder, estimator)
    if detach or detach_by is not None:
        way, keeper_s = chosen_way(detach_by, folder.plan), checked_walltime_s(keeper_walltime)
        leave(folder, facility, way, keeper_s, retry=retry, again=again, revised=revised)
        return
    words = f"goes on{_what_runs(state, again, retry=retry)}"
    _drive(folder, facility, output, words, quiet=quiet, retry=retry, again=again, revised=revised)


def _warn_of_old_scripts(folder: RunFolder, state: RunState) -> None:
    """Say so if the workflow's file, or a script of it, is not as it was when the run began."""
    from asa.spec import load_workflow

    try:
        flow = load_workflow(folder.plan.source, dict(folder.plan.parameters)) if folder.plan.source else None
    except InputError:
        return
    if flow is None or set(flow.stages) != set(state.workflow.stages):
        return
    texts = [
        name
        for name, stage in state.workflow.stages.items()
        if (stage.command, stage.script, stage.tasks)
        != (flow.stages[name].command, flow.stages[name].script, flow.stages[name].tasks)
    ]
    if texts:
        whose = "stage" if len(texts) == 1 else "stages"
        sys.stderr.write(
            f"Note: what {whose} {', '.join(texts)} should run was changed since. The run goes on with what it was "
            f"begun with; --workflow {folder.plan.source} takes the change up.\n"
        )


def _stages_again(named: Sequence[str], state: RunState) -> tuple[str, ...]:
    """Check the stages that are to be run once more."""
    for name in named:
        stage_of(state, name)
    if named and state.outcome is None:
        hint = "Cancel it first: asa cancel; or let it end."
        raise InputError("cannot be taken of a run that has not ended", where="--from", hint=hint)
    taken_up = state.taken_up(named)
    for name in named:
        if name in taken_up.left_out:
            hint = "Begin with a stage that it follows."
            raise InputError(f"would not run: {taken_up[name].reason}", where=f"--from {name}", hint=hint)
    return tuple(named)


def _what_runs(state: RunState, again: Sequence[str], *, retry: bool) -> str:
    """Say which stages a run that had ended goes on with; empty if it had not, or is not to."""
    if state.outcome is None or not (retry or again):
        return ""
    workflow = state.workflow
    once_more = workflow.with_followers(again)
    left = [name for name in workflow.order if name not in once_more and state.stages[name].phase.value != "done"]
    phrases = [f"{', '.join(workflow.in_order(once_more))} once more"] if once_more else []
    return f" with {' and '.join([*phrases, *([', '.join(left)] if left else [])])}"


def _has_loose_ends(folder: RunFolder) -> bool:
    """Whether a run ended of which jobs were left to cancel."""
    state = read_state(folder)[0]
    return bool(state.unfinished_jobs()) or state.open_intent is not None


def _drive(
    folder: RunFolder,
    facility: Facility,
    output: Output,
    words: str,
    *,
    quiet: bool,
    retry: bool = False,
    again: Sequence[str] = (),
    revised: Workflow | None = None,
) -> None:
    from asa.cli.advise import tell_advice
    from asa.cli.driving import drive_here, if_heard, tell_end

    greeting = f"{folder.path.name} {words}; Ctrl-C leaves it. See it with:\n  {command('status', folder)}\n"
    if quiet or output is Output.JSON:
        greeting = ""
    if not quiet:
        _say_what_it_may_use()
    display = _display(output, quiet=quiet)
    drive_here(folder, facility, display, retry=retry, again=again, revised=revised, greeting=greeting)
    code = tell_end(folder, as_json=output is Output.JSON)
    if output is not Output.JSON:
        with if_heard():
            tell_advice(folder)
    if code:
        raise typer.Exit(code)


def _say_what_it_may_use() -> None:
    """Say so where this node ends processes that have used some time of its processors."""
    import resource

    limit_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if limit_s != resource.RLIM_INFINITY:
        sys.stderr.write(
            f"This node ends processes after {format_duration(float(limit_s))} of CPU time. A client takes seconds "
            "of it a day; with --detach none stays.\n"
        )


def _display(output: Output, *, quiet: bool) -> Display:
    from rich.console import Console

    from asa.cli.live import JsonLines, Lines, LiveTable, Silent

    console = Console(highlight=False)
    if quiet:
        return Silent()
    if output is Output.JSON:
        return JsonLines()
    return LiveTable(console) if console.is_terminal else Lines()
