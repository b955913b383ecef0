"""``asa run`` and ``asa resume``: run a workflow, or go on with one."""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.doctor import BackendOption, SetOption, SiteOption, given_settings
from asa.cli.runs import Output, OutputOption, RunArgument, RunsOption, command, open_run, read_state, runs_folder
from asa.errors import InputError

if TYPE_CHECKING:
    from asa.backend import Capabilities, Facility
    from asa.cli.live import Display
    from asa.runner import RunFolder, RunPlan
    from asa.sites import OpenedSite
    from asa.workflow import Workflow

__all__ = ["resume", "run"]

_NO_BANK = "none"

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing until the run ends.")]


def run(
    workflow: Annotated[
        str, typer.Argument(help="A workflow file (.toml); with --dry-run also an installed workflow such as montage.")
    ],
    backend: BackendOption = None,
    site: SiteOption = None,
    settings: SetOption = None,
    strategy: Annotated[str, typer.Option(help="How resources are asked for; `asa list` shows all.")] = "asa",
    estimator: Annotated[str, typer.Option(help="Who predicts waits; `asa list` shows all.")] = "asa",
    bank: Annotated[
        str | None,
        typer.Option(
            help="Folder of the bank, in which waits are kept, or `none`. [default: $ASA_BANK, else "
            "~/.local/share/asa/bank]",
            show_default=False,
            metavar="DIR|none",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the run. [default: the workflow's]", show_default=False)] = None,
    history: Annotated[
        int, typer.Option(help="Past jobs of everybody to learn at the beginning, where the site shows them.", min=0)
    ] = 2000,
    seed: Annotated[int, typer.Option(help="Of whatever is drawn.", min=0)] = 0,
    cores: Annotated[
        int | None, typer.Option(help="Peak core count, for an installed workflow.", min=1, show_default=False)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be submitted, when and why; submit nothing.")
    ] = False,
    output: OutputOption = Output.TABLE,
    quiet: QuietOption = False,
    runs: RunsOption = None,
) -> None:
    """Run a workflow on a batch system: each stage is asked for ahead of time, so that it need not wait.

    See first what would happen: `asa run flow.toml --dry-run`. Then `asa run flow.toml`, with --backend or --site
    where more than one batch system is known.

    Ctrl-C leaves the run: its jobs go on, and `asa resume` goes on with it, here or on another computer that sees its
    folder. It may be killed at any moment without harm.

    With `--output json`: a line an event, and at the end the run's status.

    Exit codes: 0 the run completed, 1 it failed or was cancelled, 2 the input cannot be used, 130 it was left.
    """
    from asa.cli.planning import check_possible, check_strategy, plan_of, print_plan, read_only_bank
    from asa.runner import RunFolder
    from asa.sites import open_facility

    flow = _workflow(workflow, cores, dry_run=dry_run)
    how = check_strategy(strategy)
    _check_estimator(estimator)
    opened = open_facility(backend, site, given_settings(settings))
    if opened.why and not quiet:
        sys.stderr.write(f"On {opened.file.stem if opened.file else opened.backend}, for: {opened.why}\n")
    kept_in = _bank_folder(bank)
    with tempfile.TemporaryDirectory(prefix="asa-") as place:
        from asa.cli.driving import opened as connected

        with connected(lambda: opened.facility.connect(Path(place))) as world:
            plan = _plan(flow, opened, world.capabilities, strategy, estimator, kept_in, name, history, seed)
            check_possible(plan, how)
            if dry_run:
                jobs = plan_of(plan, how, world, read_only_bank(plan, kept_in))
                print_plan(plan, jobs, world, as_json=output is Output.JSON, place=place)
                return
    folder = RunFolder.create(runs_folder(runs).absolute(), plan)
    _drive(folder, opened.facility, output, "begins", quiet=quiet)


def resume(
    run: RunArgument = "",
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Of a run that failed or was cancelled: ask again for what did not end well."),
    ] = False,
    settings: SetOption = None,
    output: OutputOption = Output.TABLE,
    quiet: QuietOption = False,
    runs: RunsOption = None,
) -> None:
    """Go on with a run that was left, killed or cut off; no job is submitted twice.

    --set changes what the run was begun with, as in --set url=https://new.example.org:6820.

    Exit codes: 0 the run completed, 1 it failed, was cancelled, or another client drives it, 2 the input cannot be
    used, 130 it was left.
    """
    from asa.cli.driving import reopen, tell_end

    folder = open_run(runs, run)
    outcome = read_state(folder)[0].outcome
    if outcome == "completed" or (outcome is not None and not retry and not _has_loose_ends(folder)):
        sys.stderr.write(f"{folder.path.name} has ended already.\n")
        raise typer.Exit(tell_end(folder, as_json=output is Output.JSON))
    facility = reopen(folder, given_settings(settings))
    _drive(folder, facility, output, "goes on", quiet=quiet, retry=retry)


def _has_loose_ends(folder: RunFolder) -> bool:
    """Whether a run ended of which jobs were left to cancel."""
    state = read_state(folder)[0]
    return bool(state.unfinished_jobs()) or state.open_intent is not None


def _drive(
    folder: RunFolder, facility: Facility, output: Output, words: str, *, quiet: bool, retry: bool = False
) -> None:
    from asa.cli.driving import drive_here, tell_end

    greeting = f"{folder.path.name} {words}; Ctrl-C leaves it. See it with:\n  {command('status', folder)}\n"
    if quiet or output is Output.JSON:
        greeting = ""
    drive_here(folder, facility, _display(output, quiet=quiet), retry=retry, greeting=greeting)
    if code := tell_end(folder, as_json=output is Output.JSON):
        raise typer.Exit(code)


def _display(output: Output, *, quiet: bool) -> Display:
    from rich.console import Console

    from asa.cli.live import JsonLines, Lines, LiveTable, Silent

    console = Console(highlight=False)
    if quiet:
        return Silent()
    if output is Output.JSON:
        return JsonLines()
    return LiveTable(console) if console.is_terminal else Lines()


# ---------------------------------------------------------------------- what is to run


def _workflow(given: str, cores: int | None, *, dry_run: bool) -> Workflow:
    from asa import plugins
    from asa.spec import load_workflow

    is_file = given.endswith(".toml") or "/" in given
    if is_file:
        if cores is not None:
            hint = "Leave --cores out."
            raise InputError("a workflow file says itself how many cores each stage takes", where="--cores", hint=hint)
        flow = load_workflow(given)
    elif given in plugins.names("asa.workflows"):
        if cores is None:
            raise InputError("is missing", where="--cores", hint=f"Say how wide {given} is to be, as in --cores 112.")
        flow = plugins.load("asa.workflows", given)(cores)
    else:
        error = plugins.unknown_name("workflow", given, plugins.names("asa.workflows"))
        raise InputError(error.message, where=error.where, hint=f"{error.hint} Or name a .toml file.")
    # the workflows of the paper are models, whose stages have names where their commands would be
    nothing = [("", "" if is_file else stage.name) for stage in flow.stages.values()]
    idle = [s.name for s, words in zip(flow.stages.values(), nothing, strict=True) if s.command.strip() in words]
    if idle and not dry_run:
        raise InputError(
            f"there is no command to run in {'stage' if len(idle) == 1 else 'stages'} {', '.join(idle)}",
            where=given,
            hint="Write `command` in a workflow file; or look with --dry-run.",
        )
    checked: Workflow = flow
    return checked


def _check_estimator(name: str) -> None:
    from asa import plugins

    plugins.load("asa.estimators", name)


def _bank_folder(given: str | None) -> Path | None:
    from asa.estimators.store import default_folder

    if given == _NO_BANK:
        return None
    return (Path(given) if given else default_folder()).absolute()


def _plan(
    flow: Workflow,
    opened: OpenedSite,
    capabilities: Capabilities,
    strategy: str,
    estimator: str,
    bank: Path | None,
    name: str | None,
    history: int,
    seed: int,
) -> RunPlan:
    from asa import __version__
    from asa.runner import RunPlan

    return RunPlan(
        id=secrets.token_hex(8),
        name=name or flow.name,
        workflow=flow.name,
        stages=tuple(flow.stages.values()),
        walltime_s=flow.walltime_s,
        strategy=strategy,
        estimator=estimator,
        backend=opened.backend,
        settings=dict(opened.settings),
        capabilities=capabilities,
        folder=str(Path.cwd()),
        seed=seed,
        history=history,
        bank=str(bank) if bank is not None else "",
        created_s=time.time(),
        version=__version__,
    )
