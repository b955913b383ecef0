"""Cron: a line in the user's crontab looks at a run once a minute. It is removed when the run has ended."""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from asa.core import safe
from asa.core.files import in_words, put, read_text
from asa.core.locks import FileLock
from asa.core.patterns import pattern
from asa.core.reading import run_command
from asa.errors import InputError, OwnerError

EACH_MINUTE = "* * * * *"
_CONTROL = pattern(r"[\x00-\x1f\x7f]")
_TIMEOUT_S = 20.0
_LOCK_S = 30.0
_HINT = "Take another way: --detach-by timer, or job."
# Slurm's crontab has an entry's options in lines before it; if the user cancels its job, Slurm marks all these lines
_OF_NEXT_ENTRY = ("#SCRON", "#DISABLED: #SCRON")
_DAEMONS = {"cron", "crond", "anacron", "cronie"}


def trouble() -> str:
    """Return why cron cannot be used here; empty if it can."""
    if shutil.which("crontab") is None:
        return "there is no `crontab` command here"
    try:
        _table()
        if not _runs():
            return "no cron daemon runs here"
        _provide_folder()
    except OwnerError as error:
        return f"{error.where} {error.message}; name a folder of yours alone with XDG_STATE_HOME"
    except InputError as error:
        return error.message
    return ""


def begin(command: list[str], mark: str) -> None:
    """Add a line that calls a script, since the length of a line is limited."""
    line = f"{EACH_MINUTE} {written(command, mark)}"
    _change(mark, line.replace("%", r"\%"))  # cron takes a bare % as the end of the line


def written(command: list[str], mark: str) -> str:
    """Write a run's command into a script, and return the line that calls it.

    Raises `InputError`, `OwnerError`: the script cannot be written, or others could change it.
    """
    script = _script(mark)
    _check_text(script)
    _provide_folder()
    with in_words("cannot be written", script, _HINT):
        put(script, f"exec {shlex.join(command)}\n".encode(errors="surrogateescape"), is_private=True)
    return f"/bin/sh {shlex.quote(str(script))}"


def _provide_folder() -> None:
    """Make the folder of the script that cron calls, and check that no other user can change or replace it.

    Raises `InputError`, `OwnerError`: the folder cannot be made, or is not safe.
    """
    folder = scripts_folder()
    _check_text(folder)
    with in_words("cannot be made", folder, _HINT):
        safe.provide_folder(folder)
        safe.check(folder)  # cron runs the files in this folder
        safe.check_way(folder)


def _check_text(path: Path) -> None:
    if _CONTROL.search(str(path)):  # an XDG_STATE_HOME with a line break would begin another entry
        raise InputError("has characters that no line of a crontab can have", where=str(path), hint=_HINT)


def end(mark: str) -> None:
    """Remove a line, if the crontab has it."""
    # if it has no line here, the cron of another computer may still call the script
    if shutil.which("crontab") is not None and _change(mark, ""):
        remove_script(mark)


def remove_script(mark: str) -> None:
    """Remove a run's script."""
    _script(mark).unlink(missing_ok=True)


def _script(mark: str) -> Path:
    return scripts_folder() / f"look-{mark}.sh"


def scripts_folder() -> Path:
    """Return the folder of the scripts that cron calls: ``asa`` in ``XDG_STATE_HOME``, else in ``~/.local/state``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "asa"


def _comment(mark: str) -> str:
    return f"# asa run {mark}"


def locked() -> FileLock:
    """Return the lock that a client holds while it rewrites a table."""
    folder = scripts_folder()
    safe.provide_folder(folder)
    return FileLock(folder / "crontab.lock", _LOCK_S)


def _change(mark: str, line: str) -> bool:
    """Rewrite the crontab without the lines of this mark, and with a new one if given. Other lines stay as they are.

    Returns whether the crontab has changed.
    """
    with locked():
        before = _table()
        after = edited(before, mark, line)
        if after == before:
            return False
        _call(["crontab", "-"] if after else ["crontab", "-r"], after)
        return True


def edited(table: str, mark: str, entry: str = "") -> str:
    r"""Return a table without the entry of a mark, and with a new one if given. Other lines stay as they are.

    Examples
    --------
    >>> table = edited("0 * * * * date\n", "ab12", "#SCRON --time=9\n* * * * * look")
    >>> table
    '0 * * * * date\n#SCRON --time=9\n* * * * * look # asa run ab12\n'
    >>> edited(table, "ab12")
    '0 * * * * date\n'
    """
    lines: list[str] = []
    for line in table.removesuffix("\n").split("\n") if table else []:
        if not line.rstrip().endswith(_comment(mark)):
            lines.append(line)
            continue
        while lines and lines[-1].startswith(_OF_NEXT_ENTRY):
            del lines[-1]
    lines += [f"{entry} {_comment(mark)}"] if entry else []
    return "".join(f"{line}\n" for line in lines)


def _table() -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = run_command(["crontab", "-l"], timeout_s=_TIMEOUT_S, errors="surrogateescape", env=environment)
    if done.returncode == 0:
        return done.stdout
    if "no crontab for" in done.stderr:
        return ""
    raise _refused(done.stderr)


def _call(command: list[str], given: str) -> None:
    done = run_command(command, stdin=given, timeout_s=_TIMEOUT_S, errors="surrogateescape")
    if done.returncode != 0:
        raise _refused(done.stderr)


def _refused(answer: str) -> InputError:
    words = (answer.strip().splitlines() or ["nothing"])[-1]
    return InputError(f"crontab says {words!r}", where="cron", hint=_HINT)


def _runs() -> bool:
    for status in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if read_text(status, errors="replace").strip() in _DAEMONS:
                return True
    return False
