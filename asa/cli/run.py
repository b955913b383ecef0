"""``asa run`` and ``asa resume``: run a workflow, or continue a run."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.asked import (
    AskedRun,
    AutoEstimatorOption,
    BankOption,
    CoresOption,
    Forecasting,
    HistoryOption,
    SeedOption,
    WidthOption,
    read_asked,
)
from asa.cli.completing import complete_estimators, complete_sites, complete_strategies, complete_workflows
from asa.cli.detaching import (
    DetachByOption,
    DetachOption,
    KeeperOption,
    checked_walltime_s,
    chosen_way,
    say_what_is_not_kept,
)
from asa.cli.doctor import BackendOption
from asa.cli.given import FormerSetOption, Given, OptionsOption, ParamsOption
from asa.cli.runs import (
    RunArgument,
    RunsOption,
    check_not_hosted,
    command,
    complete_stages,
    open_run,
    read_state,
    runs_folder,
    stage_of,
)
from asa.cli.several import one_of
from asa.cli.terminal import write_notice
from asa.core import plugins, temporary
from asa.core.options import Output, OutputOption
from asa.errors import InputError, UnavailableError
from asa.units import format_duration

if TYPE_CHECKING:
    from asa.backend import Capabilities, Facility
    from asa.cli.live import Display
    from asa.runner import RunFolder, RunPlan
    from asa.runner.state import RunState
    from asa.workflow import Stage, Workflow

_STRATEGY = "asa-plan"
_OFFLINE = "slurm-cli"
_MAY_BE_OFFLINE = {None, "slurm", _OFFLINE}
_BY_RULE = {  # by whether age accrues
    True: "asks for each stage before its turn, with a dependency",
    False: "asks for each stage before its turn where that pays, without a dependency",
}
_OF_SHAPES = ", in the shape that suits the queue"
_SEVERAL = ", or in several shapes while waits are not known"

OneAtATimeOption = Annotated[
    bool,
    typer.Option(
        "--no-races",
        help="Never have two jobs in the queue for the same work, as asa-plan has when it replaces a queued job, or "
        "knows no waits.",
    ),
]
SitesOption = Annotated[
    str | None,
    typer.Option(
        "--site",
        help="A site file, by its name or its path. Several, with commas between them: the one where the workflow is "
        "forecast to end first.",
        metavar="NAME|FILE",
        autocompletion=complete_sites,
        show_default=False,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing until the run ends.")]


def run(
    workflow: Annotated[
        str,
        typer.Argument(
            help="A workflow file (.toml); with --dry-run also an installed workflow such as montage.",
            autocompletion=complete_workflows,
        ),
    ],
    backend: BackendOption = None,
    site: SitesOption = None,
    parameters: ParamsOption = None,
    options: OptionsOption = None,
    either: FormerSetOption = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="When jobs are submitted, and for what; `asa list` shows all strategies. [default: the site file's, "
            "else asa-plan]",
            show_default=False,
            autocompletion=complete_strategies,
        ),
    ] = None,
    estimator: AutoEstimatorOption = "auto",
    bank: BankOption = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the run. [default: that of the workflow]", show_default=False)
    ] = None,
    history: HistoryOption = 2000,
    seed: SeedOption = 0,
    cores: CoresOption = None,
    width: WidthOption = None,
    one_at_a_time: OneAtATimeOption = False,
    fail_fast: Annotated[
        bool,
        typer.Option(
            "--fail-fast",
            help="When a stage fails, cancel all jobs and end the run. [default: stages that do not depend on it go "
            "on]",
        ),
    ] = False,
    notify: Annotated[
        str | None,
        typer.Option(
            help="Send a message when the run ends, when a stage fails, and when nothing happens for a day: to a "
            "mail address, or to a command's standard input. [default: the site file's, else none]",
            metavar="ADDRESS|COMMAND",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be submitted, when and why. Nothing is submitted.")
    ] = False,
    scripts: Annotated[bool, typer.Option("--scripts", help="With --dry-run: also show the job scripts.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="With --dry-run and slurm-cli: do not contact the batch system.")
    ] = False,
    preflight: Annotated[
        bool,
        typer.Option(
            "--preflight/--no-preflight",
            help="First ask the batch system whether it would accept each job, and submit none if it refuses one.",
        ),
    ] = True,
    detach: DetachOption = False,
    detach_by: DetachByOption = None,
    keeper_walltime: KeeperOption = "4h",
    output: OutputOption = Output.TABLE,
    quiet: QuietOption = False,
    runs: RunsOption = None,
) -> None:
    """Run a workflow on a batch system, submitting each stage ahead of time so that it need not wait.

    First see what would be submitted: `asa run flow.toml --dry-run`. Then `asa run flow.toml`, with --backend or --site
    if there is more than one batch system.

    A script that submits jobs: `asa run -- ./submit.sh ARGUMENTS` first records the jobs, and then runs them.

    Ctrl-C stops only this client: submitted jobs go on (with --strategy pool they start again), and `asa resume`
    continues the run, here or on another computer that sees its folder. Killing the client at any moment does no harm.

    With `--output json`: one line per event or problem, and at the end the status of the run.

    Exit codes: 0 the run completed, or goes on unattended (--detach); 1 it failed or was cancelled; 2 the input cannot
    be used; 130 the client was stopped, as by Ctrl-C or a closed pipe.
    """
    from asa.cli.detaching import detach as leave
    from asa.cli.planning import print_plan
    from asa.cli.pooled import facility_for
    from asa.runner.outlook import check_options, check_strategy, plan_of, read_only_bank
    from asa.runner.preflight import check_accepted
    from asa.strategies.planned import at_price, without_rivals

    if strategy is not None:
        check_strategy(strategy)
    _check_together(dry_run=dry_run, scripts=scripts, offline=offline, backend=backend)
    if offline:
        backend, options = backend or (None if site else _OFFLINE), [*(options or []), "offline=yes"]
    forecast = Forecasting(estimator, bank, history, seed)
    given = Given(parameters, options, either)
    site = one_of(
        site,
        partial(
            read_asked,
            workflow,
            backend,
            given=given,
            cores=cores,
            forecasting=forecast,
            width=width,
            only_look=True,
            quiet=True,
        ),
        quiet=quiet,
    )
    asked = read_asked(workflow, backend, site, given, cores, forecast, only_look=dry_run, quiet=quiet, width=width)
    runs_in = _checked_runs_folder(runs)
    chosen = at_price(strategy or asked.opened.strategy or _STRATEGY, asked.opened.price)
    chosen = without_rivals(chosen) if one_at_a_time else chosen
    how = check_strategy(chosen)
    facility = facility_for(chosen, asked.opened, asked.workflow.fixed(width))
    asked = replace(asked, opened=replace(asked.opened, facility=facility))
    for note in facility.notes if offline and not quiet else ():
        write_notice(f"Note: {note}.")
    with (
        temporary.folder("asa-") as scratch,
        asked.connected(Path(scratch)) as world,
    ):
        if not quiet:
            where = {"--backend": backend, "--site": site, "--cores": cores, "--width": width}
            plan_command = _plan_command(workflow, where, [*given.words(), *forecast.words()])
            _say_first(asked, chosen, plan_command, world.capabilities)
        who = asked.chosen(world, chosen)
        address = asked.opened.notify if notify is None else notify
        plan = replace(asked.planned(world, chosen, who, name=name or ""), fail_fast=fail_fast, notify=address)
        check_options(plan, how, world)
        if preflight and not offline:
            check_accepted(plan, how, world)
        if not quiet:
            _say_what_stays(plan.stages, plan.folder, is_detached=detach or detach_by is not None)
        if dry_run:
            jobs = plan_of(plan, how, world, read_only_bank(plan, asked.bank, world.now()), who.events)
            print_plan(plan, jobs, world, as_json=output is Output.JSON, folder=scratch, scripts=scripts)
            return
        way = chosen_way(detach_by, plan, facility) if detach or detach_by is not None else None
        keeper_s = checked_walltime_s(keeper_walltime)
    folder = _create(runs_in, plan, is_usual=runs is None, quiet=quiet)
    try:
        if way is not None:
            leave(folder, facility, way, keeper_s)
        else:
            _drive(folder, facility, output, "begins", quiet=quiet)
    except UnavailableError as error:
        hint = f"Nothing was submitted: try again later, with: {command('resume', folder)}"
        raise type(error)(error.message, where=error.where, hint=hint) from error


def _plan_command(workflow: str, options: Mapping[str, str | int | None], also: Sequence[str]) -> str:
    """Return the command that shows the plan of a run with these options, and the reasons; `also`: further words."""
    words = [str(word) for option in options.items() if option[1] is not None for word in option]
    return shlex.join(["asa", "plan", workflow, *words, *also])


def _say_first(asked: AskedRun, strategy: str, plan_command: str, capabilities: Capabilities) -> None:
    """Say what the strategy does, and what stages call that is not here."""
    from asa.cli.stand_ins import note_before

    stages = asked.workflow.stages.values()
    chooses = asked.width is None and any(stage.moldable for stage in stages)
    write_notice(_does(strategy, plan_command, capabilities, chooses=chooses))
    if note := note_before(asked.opened, stages):
        write_notice(note)


def _does(strategy: str, plan_command: str, capabilities: Capabilities, *, chooses: bool) -> str:
    """Describe a strategy in some ten words, and say where to read why; `chooses`: stages leave it their shapes."""
    from asa.strategies.planned import may_have_rivals

    if (name := strategy.partition(":")[0]) == _STRATEGY:
        shapes = f"{_OF_SHAPES}{_SEVERAL * may_have_rivals(strategy, capabilities)}" * chooses
        return f"Strategy `{strategy}` {_BY_RULE[capabilities.age_accrues]}{shapes}; why: {plan_command}"
    does = plugins.describe("asa.strategies", name)[0].rstrip(".")
    return f"Strategy `{strategy}`: {does}; others: asa list"


def _checked_runs_folder(runs: Path | None) -> Path:
    """Choose the folder in which to begin a run, and refuse one that others can change."""
    from asa.runner.begin import check_text
    from asa.runner.folder import check_runs

    runs_in = runs_folder(runs, begins=True)
    check_text(str(runs_in.absolute()))
    with suppress(OSError):  # the folder is made later, or the run's beginning reports the error
        check_runs(runs_in)
    return runs_in


def _create(runs: Path, plan: RunPlan, *, is_usual: bool, quiet: bool) -> RunFolder:
    """Make a run's folder; if the usual folder belongs to another user, say which one is used."""
    from asa.runner import RunFolder
    from asa.runner.folder import runs_of_another

    folder = RunFolder.create(runs.absolute(), plan, is_usual=is_usual)
    own = runs.with_name(folder.path.parent.name)
    theirs, whose = runs_of_another(own)
    if whose and is_usual and not quiet:
        write_notice(f"Note: {theirs} belongs to {whose}; yours are kept in {own}.")
    if not quiet and (words := folder.not_shared()):
        write_notice(f"Warning: {words}")
    return folder


def _check_together(*, dry_run: bool, scripts: bool, offline: bool, backend: str | None) -> None:
    """Refuse options whose use requires other options that are missing."""
    for option, is_given in (("--scripts", scripts), ("--offline", offline)):
        if is_given and not dry_run:
            raise InputError("needs --dry-run", where=option, hint="Give both, or neither.")
    if offline and backend not in _MAY_BE_OFFLINE:
        raise InputError(f"goes with {_OFFLINE}", where="--offline", hint=f"Take --backend {_OFFLINE}.")


def resume(
    run: RunArgument = "",
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Of a run that failed or was cancelled: submit again what did not complete."),
    ] = False,
    from_stage: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="Of a run that has ended: run this stage and all stages that depend on it again; may be repeated.",
            metavar="STAGE",
            show_default=False,
            autocompletion=complete_stages,
        ),
    ] = None,
    workflow: Annotated[
        Path | None,
        typer.Option(
            help="With --retry or --from: the corrected workflow file. It must have the same stages; resources and "
            "commands of those that have not completed may change. [default: the run's own file, as it is now]",
            show_default=False,
            metavar="FILE",
        ),
    ] = None,
    parameters: ParamsOption = None,
    options: OptionsOption = None,
    either: FormerSetOption = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="What predicts waits from now on; `asa list` shows all. [default: as before]",
            show_default=False,
            autocompletion=complete_estimators,
        ),
    ] = None,
    bank: BankOption = None,
    one_at_a_time: OneAtATimeOption = False,
    output: OutputOption = Output.TABLE,
    detach: DetachOption = False,
    detach_by: DetachByOption = None,
    keeper_walltime: KeeperOption = "4h",
    quiet: QuietOption = False,
    accept_cluster: Annotated[
        bool,
        typer.Option(
            "--accept-cluster",
            help="Go on with the cluster that is reached now, where asa says that it is not the run's: it was renamed, "
            "or its controller lost its state. Jobs that it does not know are lost.",
        ),
    ] = False,
    runs: RunsOption = None,
) -> None:
    """Continue a run whose client was stopped or killed, or run what failed again. No job is submitted twice.

    --option changes an option of the run's backend, as in --option url=https://new.example.org:6820. The changes that
    --workflow, --estimator, --bank and --no-races make are permanent.

    Exit codes: 0 the run completed; 1 it failed, was cancelled, or another client is at work on it; 2 the input cannot
    be used; 3 this is not the run's cluster, and nothing was touched; 130 the client was stopped.
    """
    from asa.cli.detaching import detach as leave
    from asa.cli.driving import reopen, tell_end
    from asa.cli.revising import (
        changed_file,
        check_estimator,
        revise,
        take_bank,
        take_estimator,
        take_strategy,
    )
    from asa.estimators import readiness
    from asa.runner.begin import check_resumable
    from asa.strategies.planned import without_rivals

    folder = open_run(runs, run, to_act=True)
    if accept_cluster and folder.plan.host and folder.driver() is None:
        _accept_for_host(folder)
        return
    check_not_hosted(folder)
    state, _ = read_state(folder)
    outcome = state.outcome
    again = _stages_again(from_stage or [], state)
    if workflow is not None and not again and (not retry or outcome not in {"failed", "cancelled"}):
        why = "needs --retry or --from" if not retry else "cannot change a run that has not failed"
        hint = "Only stages that run again can change, once the run has failed or was cancelled."
        raise InputError(why, where="--workflow", hint=hint)
    if not again and (outcome == "completed" or (outcome is not None and not retry and not _has_loose_ends(folder))):
        write_notice(f"{folder.path.name} has ended already.")
        raise typer.Exit(tell_end(folder, as_json=output is Output.JSON))
    readiness.prefer(estimator or folder.plan.estimator)
    check_estimator(estimator)
    given = Given(parameters, options, either)
    if workflow is None and parameters:
        hint = "Name the file with --workflow, and what to run again with --retry or --from."
        raise InputError("is for a workflow file", where="--param", hint=hint)
    ours, theirs = given.split(str(workflow or ""), lambda tried: reopen(folder, dict(tried)))
    facility = reopen(folder, theirs)
    if workflow is None:
        workflow = changed_file(folder, state, again, goes_again=bool(again) or (retry and outcome is not None))
    revised = revise(folder, state, workflow, again, ours) if workflow is not None else None
    check_resumable(state, revised or state.workflow, again, retry=retry)
    take_bank(folder, bank)
    take_estimator(folder, estimator)
    if one_at_a_time:
        take_strategy(folder, without_rivals(folder.plan.strategy))
    if accept_cluster and folder.driver() is None:  # else another client drives the run; the next steps report that
        folder.forget_cluster()
    if not quiet:
        stages = (revised or state.workflow).stages.values()
        _say_what_stays(stages, folder.plan.folder, is_detached=detach or detach_by is not None)
    if detach or detach_by is not None:
        way, keeper_s = chosen_way(detach_by, folder.plan, facility), checked_walltime_s(keeper_walltime)
        leave(folder, facility, way, keeper_s, retry=retry, again=again, revised=revised)
        return
    text = f"goes on{_what_runs(state, again, retry=retry)}"
    _drive(folder, facility, output, text, quiet=quiet, retry=retry, again=again, revised=revised)


def _accept_for_host(folder: RunFolder) -> None:
    """Let a run that another program hosts accept the cluster that is reached next, and say how to continue."""
    folder.forget_cluster()
    write_notice(
        f"{folder.path.name} takes the cluster that is reached next for its own. Run {folder.plan.host} again: it "
        "first ends what this run has left there, then goes on from the files that are there."
    )


def _stages_again(named: Sequence[str], state: RunState) -> tuple[str, ...]:
    """Check the names of the stages that are to run again."""
    for name in named:
        stage_of(state, name)
    if named and state.outcome is None:
        hint = "Cancel it first (asa cancel), or wait until it ends."
        raise InputError("needs a run that has ended", where="--from", hint=hint)
    taken_up = state.taken_up(named)
    for name in named:
        if name in taken_up.left_out:
            hint = "Name a stage that it depends on."
            raise InputError(f"would not run: {taken_up[name].reason}", where=f"--from {name}", hint=hint)
    return tuple(named)


def _what_runs(state: RunState, again: Sequence[str], *, retry: bool) -> str:
    """Name the stages that an ended run would run again; empty if it had not ended, or does not continue."""
    if state.outcome is None or not (retry or again):
        return ""
    workflow = state.workflow
    once_more = workflow.with_followers(again)
    left = [name for name in workflow.order if name not in once_more and state.stages[name].phase.value != "done"]
    phrases = [f"{', '.join(workflow.in_order(once_more))} once more"] if once_more else []
    return f" with {' and '.join([*phrases, *([', '.join(left)] if left else [])])}"


def _has_loose_ends(folder: RunFolder) -> bool:
    """Whether a run has ended, but still has jobs to cancel."""
    state = read_state(folder)[0]
    return bool(state.jobs.unfinished()) or bool(state.jobs.open_intents)


def _drive(
    folder: RunFolder,
    facility: Facility,
    output: Output,
    text: str,
    *,
    quiet: bool,
    retry: bool = False,
    again: Sequence[str] = (),
    revised: Workflow | None = None,
) -> None:
    from asa.cli.advise import tell_advice
    from asa.cli.driving import drive_here, if_heard, tell_end

    greeting = f"{folder.path.name} {text}; Ctrl-C stops this client. Watch it:\n  {command('status', folder)}\n"
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
    """Warn if this node kills processes that have used some CPU time."""
    import resource

    limit_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if limit_s != resource.RLIM_INFINITY:
        write_notice(
            f"Processes on this node are killed after {format_duration(float(limit_s))} of CPU time. The client "
            f"uses some seconds of it a day; with --detach none stays."
        )


def _say_what_stays(stages: Collection[Stage], folder: str, *, is_detached: bool) -> None:
    """Name the variables that jobs do not get because they hold secrets, and the stages that use them.

    `is_detached`: also name those that later jobs do not get because they are not stored.
    """
    from asa.runner.begin import notes_before

    for line in notes_before(stages, folder):
        write_notice(line)
    if is_detached:
        say_what_is_not_kept(stages, folder)


def _display(output: Output, *, quiet: bool) -> Display:
    from asa.cli.live import JsonLines, Lines, LiveTable, Silent
    from asa.core.console import Console

    console = Console(highlight=False)
    if quiet:
        return Silent()
    if output is Output.JSON:
        return JsonLines()
    return LiveTable(console) if console.is_terminal else Lines()
