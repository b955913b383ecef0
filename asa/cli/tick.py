"""``asa tick``: look at a run once, do what is due, and leave."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa import keepers
from asa.cli.detaching import connecting, end_keeper, has_ended, keep
from asa.cli.runs import RunArgument, RunsOption, check_not_hosted, command, open_run, read_state
from asa.errors import InputError, LeaseError

if TYPE_CHECKING:
    from asa.backend import Facility
    from asa.runner import RunFolder
    from asa.runner.state import RunState

_ENDED_BADLY = 1


def tick(
    run: RunArgument = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    runs: RunsOption = None,
    kept: Annotated[str, typer.Option(hidden=True)] = "",  # by whom it is called, and what the run is marked with
    keeper: Annotated[int, typer.Option(hidden=True)] = 0,
    lasts: Annotated[float, typer.Option(hidden=True)] = 0.0,
) -> None:
    """Look at a run once: hear of its jobs, submit what is due, and leave, within seconds.

    It may be called as often as you like, by cron, a timer, a job or by hand: one client at a time has its way, others
    leave at once. A run that is looked at once a minute needs no `asa run` that goes on; see docs/unattended.md.

    Exit codes: 0 the run goes on, or has completed, 1 it has failed or was cancelled, or the batch system cannot be
    asked, 2 the input cannot be used.
    """
    from asa.cli.driving import reopen
    from asa.cli.live import Lines, Silent
    from asa.cli.pooled import POOL
    from asa.runner.beside import with_local_stages
    from asa.runner.look import look

    try:
        folder = open_run(runs, run)
    except InputError:
        if kept:  # nobody is to look for a run that is not there any more
            keepers.end_here(kept)
        raise
    if keeper:
        keep(folder, keeper, lasts)
        return
    if kept:
        _write_into(folder.path / "client.log")
        if (now := keepers.kept(folder.path)) is not None:
            now.take_over()
    check_not_hosted(folder)
    state, _ = read_state(folder)
    if folder.plan.strategy == POOL:
        hint = f"A pool ends with its client. Let one stay: {command('resume', folder)}"
        raise InputError(f"cannot be looked at once in a while: it runs by {POOL}", where=folder.path.name, hint=hint)
    facility = reopen(folder, {})
    if has_ended(state):
        _end(folder, facility, state, "has ended already", kept=kept, quiet=quiet)
        return
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
        _end(folder, facility, state, "has ended", kept=kept, quiet=quiet)
        return
    phases = [view.phase.value for view in state.stages.values()]
    counted = ", ".join(f"{phases.count(phase)} {phase}" for phase in dict.fromkeys(phases))
    wake_s = looked.wake_s
    then = f"; something is planned for {time.strftime('%H:%M:%S', time.localtime(wake_s))}" if wake_s else ""
    _tell(f"{folder.path.name}: {counted}{then}", quiet=quiet)


def _write_into(log: Path) -> None:
    """Have all that is said from now on stand in a file: cron would mail it each minute."""
    with suppress(OSError):
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)


def _end(folder: RunFolder, facility: Facility, state: RunState, how: str, *, kept: str, quiet: bool) -> None:
    """Let nothing look at it any more, and say how it ended."""
    from asa.runner.notify import Notifier

    Notifier(folder).ended(read_state(folder)[1])  # unless whoever saw it end has told
    end_keeper(folder, facility)
    if kept:  # whoever saw it end may have been on another computer
        keepers.end_here(kept)
    _tell(f"{folder.path.name} {how}: {state.outcome}{f', {state.reason}' if state.reason else ''}", quiet=quiet)
    if state.outcome != "completed":
        raise typer.Exit(_ENDED_BADLY)


def _tell(words: str, *, quiet: bool) -> None:
    if not quiet:
        sys.stderr.write(f"{words}\n")
