"""``asa cancel``: ends a run and its jobs."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.given import OptionsOption, given_settings
from asa.cli.progress import working
from asa.cli.runs import RunArgument, RunsOption, command, open_run, print_document, read_state, stage_of, want
from asa.cli.terminal import write_notice
from asa.core.options import Output, OutputOption
from asa.errors import BackendError, LeaseError, OtherClusterError

if TYPE_CHECKING:
    from asa.runner import RunFolder
    from asa.runner.state import RunState

_PATIENCE_S = 120.0
_LOOK_S = 0.5


def cancel(
    run: RunArgument = "",
    stage: Annotated[
        str, typer.Option(help="Cancel the job of this stage. The run ends, too, since it cannot complete without it.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    settings: OptionsOption = None,
    output: OutputOption = Output.TABLE,
    runs: RunsOption = None,
) -> None:
    """Cancel a run: its pending and running jobs, and all that it would still submit.

    A client that is driving the run does it, within seconds; if there is none, this command does. `asa resume --retry`
    continues from what completed. If the batch system cannot be reached, the next client that reaches it cancels the
    jobs. --option is as for `asa resume`.

    Exit codes: 0 cancelled, or nothing to cancel; 1 failed, or not done yet; 2 the input cannot be used; 3 this is not
    the run's cluster, and nothing was touched; 130 interrupted.
    """
    from asa import keepers
    from asa.cli.detaching import end_keeper
    from asa.cli.driving import reopen

    folder = open_run(runs, run, to_act=True)
    state, _ = read_state(folder)
    if (nothing := _nothing_to_cancel(state, stage)) is not None:
        _tell(folder, stage, f"Nothing to cancel in {folder.path.name}: {nothing}", output)
        return
    if not yes and sys.stdin.isatty():
        _ask(folder, state)
    changed = given_settings(settings)
    wish = want(folder, stage)  # first, so that the request remains even if this command fails
    try:
        with working(f"cancelling {folder.path.name}"):
            is_done = (
                _by_its_client(folder, stage, changed) if folder.driver() else _by_ourselves(folder, stage, changed)
            )
    except OtherClusterError:
        wish.unlink(missing_ok=True)  # else the next client would end the run
        raise
    except (BackendError, OSError) as error:
        text = (
            f"{folder.path.name} is not cancelled yet: {error}\n"
            f"The next client that reaches the batch system does it: {command('cancel', folder)}"
        )
        _tell(folder, stage, text, output)
        raise typer.Exit(1) from error
    if not is_done:
        text = (
            f"{folder.path.name} is not cancelled yet: its client does it as soon as it reaches the batch system.\n"
            f"See: {command('status', folder)}"
        )
        _tell(folder, stage, text, output)
        raise typer.Exit(1)
    if keepers.kept(folder.path) is not None:
        end_keeper(folder, reopen(folder, changed))
    _tell(folder, stage, f"{folder.path.name} is cancelled; {_left(folder)}", output)


def _tell(folder: RunFolder, stage: str, text: str, output: Output) -> None:
    """Report the cancellation."""
    if output is Output.TABLE:
        write_notice(text)
        return
    state, _ = read_state(folder)
    fields = {"run": folder.path.name, "folder": str(folder.path), "stage": stage or None, "told": text}
    left = {"state": state.outcome, "jobs_left": state.jobs.live()}
    print_document({**fields, **left}, indent=None)


def _nothing_to_cancel(state: RunState, stage: str) -> str | None:
    if stage:
        view = state.stages[stage_of(state, stage)]
        if view.phase.value == "done":
            return f"stage {stage!r} has ended"
        if state.outcome is None and view.job_id is None:
            return f"stage {stage!r} has no job yet"
    if state.outcome is not None and not state.jobs.unfinished() and not state.jobs.open_intents:
        return f"it has {state.outcome}" if state.outcome == "completed" else f"it {_was(state.outcome)} before"
    return None


def _was(outcome: str) -> str:
    return "was cancelled" if outcome == "cancelled" else outcome


def _ask(folder: RunFolder, state: RunState) -> None:
    jobs = len(state.jobs.unfinished())
    which = "its job" if jobs == 1 else f"its {jobs} jobs"
    if not typer.confirm(f"Cancel {folder.path.name}{f' and {which}' if jobs else ''}?"):
        raise typer.Exit(1)


def _by_its_client(folder: RunFolder, stage: str, changed: dict[str, str]) -> bool:
    """Wait until the client that drives the run has cancelled it; if that client goes away, cancel it here."""
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        if _is_cancelled(folder):
            return True
        if folder.driver() is None:
            return _is_cancelled(folder) or _by_ourselves(folder, stage, changed)
        time.sleep(_LOOK_S)
    return False


def _by_ourselves(folder: RunFolder, stage: str, changed: dict[str, str]) -> bool:
    """Record that the run is to end, then drive it to its end without submitting anything."""
    from asa.cli.driving import drive_here, opened, reopen
    from asa.cli.live import Silent
    from asa.runner.entries import Stopped

    facility = reopen(folder, changed)
    with opened(lambda: facility.connect(folder.path)) as backend:
        now_s, accepts_late = backend.now(), backend.capabilities.accepts_late
    if accepts_late and (intents := read_state(folder)[0].jobs.open_intents):
        stages = ", ".join(name for intent in intents.values() for name in intent.planned.stages)
        write_notice(
            f"A job for {stages} was being submitted when the client ended. This command looks for it for up to six "
            f"minutes, to cancel it, too."
        )
    try:
        with folder.driven() as journal:
            if read_state(folder)[0].outcome is None:
                why = f"you cancelled stage {stage!r}" if stage else "you asked for it"
                journal.append(Stopped("cancelled", why, now_s))
            folder.take_requests()  # a request that stays would end the run again once it is resumed
        drive_here(folder, facility, Silent())
    except LeaseError:  # another client took over the run
        return _by_its_client(folder, stage, changed)
    return _is_cancelled(folder)


def _is_cancelled(folder: RunFolder) -> bool:
    state, _ = read_state(folder)
    return state.outcome is not None and not state.jobs.live()


def _left(folder: RunFolder) -> str:
    state, _ = read_state(folder)
    done = sum(view.phase.value == "done" for view in state.stages.values())
    words = f"{done} of {len(state.stages)} stages had ended."
    if host := folder.plan.host:
        return f"{words} {host}, run again, continues from there."
    return f"{words} Continue from there with: {command('resume --retry', folder)}"
