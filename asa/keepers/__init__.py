"""Who looks at a run once nobody does: a timer, cron, or a job of one core that follows itself.

A way is a module with ``trouble()``, ``begin(...)`` and ``end(mark)``. What keeps a run is noted in its folder, in
``kept.json``, with the variables of its user's shell that its clients need; the run's own lease sees to it that one of
them at a time has its way, whoever else was told to look.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from asa.core.documents import read_json
from asa.core.files import put, read_file
from asa.errors import InputError
from asa.keepers import cron, timer

__all__ = ["WAYS", "Kept", "client", "end", "keep", "kept", "note", "possible"]

_FILE = "kept.json"
_NEEDED = re.compile(r"PATH|LD_LIBRARY_PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|SLURM_CONF|XDG_\w+|ASA_\w+")
_SECRET = re.compile(r"TOKEN|JWT|SECRET|PASS|KEY", re.IGNORECASE)

WAYS = ("timer", "cron", "job")
"""In the order in which they are taken."""

_WORDS = {
    "timer": "a timer of systemd looks at it once a minute",
    "cron": "cron looks at it once a minute",
    "job": "a job of one core drives it, which the next one follows",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """What keeps a run.

    Parameters
    ----------
    way
        One of `WAYS`.
    mark
        What it is known by there: a line's mark, a unit, a job.
    number
        Of the job that drives it last, from 1 on.
    since_s
        When that began, seconds since 1970.
    environment
        Variables of the user's shell, for its clients; no secrets.
    """

    way: str
    mark: str
    number: int = 0
    since_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Say who looks at it."""
        return _WORDS[self.way]


def possible() -> dict[str, str]:
    """Say of each way that needs no batch system why it cannot be taken here; empty for one that can."""
    return {"timer": timer.trouble(), "cron": cron.trouble()}


def client(verb: str, folder: Path, *options: str) -> list[str]:
    """Write the call of a command about a run, for who has neither this folder nor this ``PATH``.

    Parameters
    ----------
    verb
        The command.
    folder
        The run's.
    options
        Of the command.
    """
    found = os.environ.get("PYTHONPATH")
    where = ["env", f"PYTHONPATH={found}"] if found else []
    # -P: files of the user's folder are no modules
    return [*where, sys.executable, "-P", "-m", "asa", verb, str(folder.absolute()), *options]


def keep(way: str, folder: Path, mark: str) -> Kept:
    """Have a run looked at from now on, by a timer or cron.

    Parameters
    ----------
    way
        Which.
    folder
        The run's.
    mark
        Letters and digits that tell the run from every other.

    Raises
    ------
    InputError
        It cannot be.
    """
    begin: Callable[[list[str], Path, str], str] = {"timer": timer.begin, "cron": cron.begin}[way]
    made = Kept(way, mark, 0, time.time(), variables())
    note(folder, made)
    try:
        begin(client("tick", folder, "--quiet", "--kept"), folder / "client.log", mark)
    except BaseException:
        with suppress(OSError):
            (folder / _FILE).unlink()
        raise
    return made


def end(folder: Path) -> None:
    """Let nothing look at a run any more; what cannot be undone ends by itself, since the run has ended.

    Parameters
    ----------
    folder
        The run's.
    """
    now = kept(folder)
    if now is None:
        return
    with suppress(InputError, OSError):
        {"timer": timer.end, "cron": cron.end}.get(now.way, lambda _: None)(now.mark)
        (folder / _FILE).unlink(missing_ok=True)


def kept(folder: Path) -> Kept | None:
    """Give what keeps a run; None if nothing does.

    Parameters
    ----------
    folder
        The run's.
    """
    try:
        told = read_json(read_file(folder / _FILE))
        return Kept(
            str(told["way"]), str(told["mark"]), int(told["number"]), float(told["since_s"]), dict(told["environment"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note(folder: Path, now: Kept) -> None:
    """Write down what keeps a run.

    Parameters
    ----------
    folder
        The run's.
    now
        What.

    Raises
    ------
    InputError
        It cannot be written.
    """
    try:
        put(folder / _FILE, json.dumps(asdict(now), indent=1).encode(), is_private=True, is_durable=True)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            where=str(folder / _FILE),
            hint="Free disk space, or fix its rights.",
        ) from error


def variables() -> dict[str, str]:
    """Choose the variables that a client needs, as cron and timers have hardly any."""
    return {
        name: value
        for name, value in os.environ.items()
        if _NEEDED.fullmatch(name) and not (name.startswith("ASA_") and _SECRET.search(name))
    }
