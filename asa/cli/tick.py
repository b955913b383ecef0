"""``asa tick``: looks at a run once, does what is due, and returns."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa import keepers
from asa.cli.detaching import connecting, end_keeper, has_ended, keep
from asa.cli.runs import RunArgument, RunsOption, check_not_hosted, command, open_run, read_state
from asa.cli.terminal import write_notice
from asa.core import plainly
from asa.core.files import append_to
from asa.errors import InputError, LeaseError, OwnerError
from asa.units import MAX_JOBS

if TYPE_CHECKING:
    from asa.runner import RunFolder
    from asa.runner.state import RunState

_ENDED_BADLY = 1


def tick(
    run: RunArgument = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    runs: RunsOption = None,
    # the keeper that makes this call, with its mark for the run; empty if it is not a keeper
    kept: Annotated[str, typer.Option(hidden=True)] = "",
    keeper: Annotated[int, typer.Option(hidden=True, max=MAX_JOBS)] = 0,
    lasts: Annotated[float, typer.Option(hidden=True)] = 0.0,
) -> None:
    """Take one look at a run: read the state of its jobs, submit what is due, and return within seconds.

    Call it as often as you like, from cron, a timer, a job or by hand: only one client works on a run at a time, others
    return at once. With one call a minute a run needs no `asa run` that stays; see docs/how-to/unattended.md.

    Exit codes: 0 the run goes on, or has completed; 1 it failed or was cancelled, or the batch system does not answer;
    2 the input cannot be used; 3 this is not the run's cluster, and nothing was touched.
    """
    folder = _opened(runs, run, kept, is_keeper=keeper > 0)
    if keeper:
        keep(folder, keeper, lasts)
        return
    if kept:
        _write_into(folder.path / "client.log")
        if (now := keepers.kept(folder.path)) is not None:
            now.take_over()
    check_not_hosted(folder)
    state, _ = read_state(folder)
    if has_ended(state):
        _end(folder, state, "has ended already", kept=kept, quiet=quiet)
    else:
        _look(folder, state, kept=kept, quiet=quiet)


def _look(folder: RunFolder, state: RunState, *, kept: str, quiet: bool) -> None:
    """Look at a run that goes on, and report how it goes."""
    from asa.cli.driving import reopen
    from asa.cli.live import Lines, Silent
    from asa.estimators import readiness
    from asa.runner.local_stages import with_local_stages
    from asa.runner.look import look
    from asa.strategies.on_pool import POOL

    if folder.plan.strategy == POOL:
        hint = f"A pool ends with its client. Keep a client running: {command('resume', folder)}"
        raise InputError(
            f"cannot be continued by single looks: its strategy is {POOL}", where=folder.path.name, hint=hint
        )
    if quiet:
        plainly.on_compiling = None
    readiness.prefer(folder.plan.estimator)
    facility = reopen(folder, {})
    near = with_local_stages(folder.plan.backend, state.workflow.stages.values(), facility)
    display = Silent() if quiet else Lines()
    try:
        with ExitStack() as held:
            looked = look(folder, connecting(near, held), on_record=display.happened)
    except LeaseError as busy:
        _tell(f"{folder.path.name}: {busy.message}", quiet=quiet)
        return
    state, _ = read_state(folder)
    if looked.is_over:
        _end(folder, state, "has ended", kept=kept, quiet=quiet)
        return
    phases = [view.phase.value for view in state.stages.values()]
    counted = ", ".join(f"{phases.count(phase)} {phase}" for phase in dict.fromkeys(phases))
    wake_s = looked.wake_s
    then = f"; next action at {time.strftime('%H:%M:%S', time.localtime(wake_s))}" if wake_s else ""
    _tell(f"{folder.path.name}: {counted}{then}", quiet=quiet)


def _opened(runs: Path | None, run: str, kept: str, *, is_keeper: bool) -> RunFolder:
    """Open the run; if it is missing or cannot be read, remove its keeper.

    If an unattended client must not continue, it writes the reason to the run's log, and prints it once.
    """
    try:
        return open_run(runs, run, to_act=True)
    except OwnerError as refusal:  # the keeper stays: the user may repair the permissions
        if (kept or is_keeper) and not _note(open_run(runs, run), refusal) and kept:
            raise typer.Exit(2) from refusal
        raise
    except InputError:
        if kept:
            keepers.end_here(kept)
        raise


def _note(folder: RunFolder, refusal: OwnerError) -> bool:
    """Write to the log of the user's own run why no client continues it; return whether to print that."""
    text = f"may not go on with the run: {refusal.where} {refusal.message}. {refusal.hint}"
    return bool(folder.owner) or folder.log_once(text)


def _write_into(log: Path) -> None:
    """Redirect all further output to a file, since cron would send it as mail every minute."""
    with suppress(OSError), append_to(log, is_private=True) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


def _end(folder: RunFolder, state: RunState, how: str, *, kept: str, quiet: bool) -> None:
    """Remove the run's keeper, and report how the run ended."""
    from asa.runner.notify import Notifier

    Notifier(folder).ended(read_state(folder)[1])  # the client that saw the end may have sent it already
    end_keeper(folder)
    if kept:  # the client that saw the end may have been on another computer
        keepers.end_here(kept)
    _tell(f"{folder.path.name} {how}: {state.outcome}{f', {state.reason}' if state.reason else ''}", quiet=quiet)
    if state.outcome != "completed":
        raise typer.Exit(_ENDED_BADLY)


def _tell(text: str, *, quiet: bool) -> None:
    if not quiet:
        write_notice(text)
