"""``asa runs --delete``: deletes the folders of runs that ended long ago."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from asa.cli.runs import print_document, read_state
from asa.cli.terminal import counted, write_notice
from asa.core.late import dataclass
from asa.core.options import Output
from asa.errors import AsaError, InputError
from asa.units import format_duration, parse_duration

if TYPE_CHECKING:
    from asa.runner import RunFolder

_COMMAND = "asa runs --delete"
_GONE = ".deleted-"  # begins the name of a folder that is being deleted: it is no run any more
_MAY_TURN_UP_S = 86400.0  # a job whose submission was in doubt is in the queue by then, or never
_AGE = re.compile(r"\s*(\d+(\.\d+)?\s*[a-z]+\s*)+")


@dataclass(frozen=True, slots=True)
class _Old:
    """A run that is old enough; `kept`: why it is not deleted, empty if it is."""

    name: str
    age_s: float
    folder: RunFolder | None
    kept: str = ""


def delete_runs(runs: Path, older: str, *, yes: bool, output: Output) -> None:
    """Delete the user's runs that have ended, and whose folders have not changed for a given time.

    Raises `InputError`: the age is none, or the user was not asked because there is no terminal.
    """
    if not _AGE.fullmatch(older.lower()):
        raise InputError(f"{older!r} is not an age" if older else "how old the runs must be is not given",
                         where=_COMMAND, hint="Write it as --older 30d, 12h or 1d12h.")  # fmt: skip
    with suppress(OSError):
        _sweep(runs)
    old = _older_than(runs, parse_duration(older))
    ended = [run for run in old if not run.kept]
    if output is Output.TABLE:
        sys.stdout.write("".join(f"{run.name}  {_described(run)}\n" for run in old))
    if not ended:
        gone: list[_Old] = []
    elif yes or _is_confirmed(len(ended)):
        ended = [_delete(run) for run in ended]
        gone = [run for run in ended if not run.kept]
    else:
        gone = []
    if output is Output.JSON:
        now_kept = {run.name: run.kept for run in (*old, *ended) if run.kept}
        left = [{"run": name, "reason": why} for name, why in now_kept.items()]
        print_document({"deleted": [run.name for run in gone], "kept": left})
        return
    for run in ended:
        if run.kept:
            write_notice(f"{run.name} is kept: {run.kept}")
    write_notice(f"{counted(len(gone), 'run')} of {runs} deleted." if gone else "Nothing was deleted.")


def _described(run: _Old) -> str:
    return f"kept: {run.kept}" if run.kept else f"ended {format_duration(run.age_s)} ago"


def _is_confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise InputError(
            f"would delete {counted(count, 'run')}", where=_COMMAND, hint="Give --yes: there is no terminal to ask on."
        )
    return typer.confirm(f"Delete {counted(count, 'run')}, with all outputs of jobs in their folders?", err=True)


def _older_than(runs: Path, age_s: float) -> Sequence[_Old]:
    from asa.runner import run_paths

    found, now_s = list[_Old](), time.time()
    for path in run_paths(runs):
        folder, kept, at_s = None, "", now_s
        try:
            folder, at_s = _own(path)
            kept = _needed(folder)
        except AsaError as error:
            kept = error.message
        except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
            kept = f"cannot be read: {error}"
        if folder is None:
            with suppress(OSError):
                at_s = path.stat().st_mtime
        if now_s - at_s > age_s:
            found.append(_Old(path.name, now_s - at_s, folder, kept))
    return found


def _own(path: Path) -> tuple[RunFolder, float]:
    """Open a run of the user's own; return it with the time of its last change."""
    from asa.runner import open_listed

    folder = open_listed(path)
    try:
        return folder, folder.moved_s()
    except OSError:  # nothing was recorded
        return folder, folder.plan.created_s


def _needed(folder: RunFolder) -> str:
    """Return why a run must be kept; empty if it has ended, and so have its jobs."""
    from asa import keepers

    folder.check_own()
    if (driver := folder.driver()) is not None:
        return f"it is driven by {driver}"
    if keepers.kept(folder.path) is not None:
        return "it is looked after without a client"
    state, _ = read_state(folder)
    if state.outcome is None:
        return "it has not ended"
    if jobs := len(state.jobs.unfinished()):
        return f"{counted(jobs, 'job')} of it may still be in the queue"
    unclear = (at_s for token, at_s in state.jobs.doubtful.items() if not state.jobs.has_sent(token))
    if state.jobs.open_intents or any(time.time() - at_s < _MAY_TURN_UP_S for at_s in unclear):
        return "it is not known whether a job of it was accepted"
    return ""


def _delete(run: _Old) -> _Old:
    """Delete a run, unless it is needed by now. It is renamed first, so that no client finds a part of it."""
    assert run.folder is not None
    try:
        with run.folder.driven():
            state, _ = read_state(run.folder)
            if state.outcome is None or state.jobs.unfinished():
                return _kept(run, "it has begun again")
            gone = run.folder.path.with_name(f"{_GONE}{run.name}")
            run.folder.path.rename(gone)
        for name in ("journal.jsonl", "run.json"):  # by which it would still be listed if this were interrupted
            (gone / name).unlink(missing_ok=True)
        shutil.rmtree(gone)
    except AsaError as error:
        return _kept(run, error.message)
    except OSError as error:
        return _kept(run, f"not all of it can be deleted: {error.strerror or error}")
    return run


def _kept(run: _Old, why: str) -> _Old:
    return _Old(run.name, run.age_s, run.folder, why)


def _sweep(runs: Path) -> None:
    """Delete what an interrupted command has left."""
    from asa.core import safe

    for path in runs.glob(f"{_GONE}*"):
        if path.is_dir() and safe.is_safe(path):
            shutil.rmtree(path)
