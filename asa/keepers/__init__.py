"""Keepers look at a run that has no client: a timer, cron, Slurm's crontab, or a chain of one-core jobs.

Each kind of keeper is a module with ``trouble()``, ``begin(...)`` and ``end(mark)``. A run's folder records its keeper
in ``kept.json``, with the variables of the user's shell that its clients need. However many clients look at a run, its
lease lets only one at a time drive it.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core import python, safe, variables
from asa.core.documents import read_json
from asa.core.files import in_words, put
from asa.core.late import dataclass
from asa.core.reading import run_command
from asa.errors import AsaError, InputError
from asa.keepers import cron, timer

if TYPE_CHECKING:
    from asa.backend import Facility

__all__ = ["KeptRun", "Way", "client", "end", "end_here", "is_kept_in_private", "keep", "kept", "note", "possible"]

_FILE = "kept.json"
# needed to start asa, before it has read the other variables from the run
_TO_BEGIN = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "ASA_TRUSTED")
_TRIAL_S = 60.0


class Way(StrEnum):
    """Kinds of keepers, in the order in which they are tried."""

    TIMER = "timer"
    CRON = "cron"
    SCRONTAB = "scrontab"
    JOB = "job"


_WORDS = {
    Way.TIMER: "a timer of systemd looks at it once a minute",
    Way.CRON: "cron looks at it once a minute",
    Way.SCRONTAB: "a small job of Slurm's crontab looks at it once a minute",
    Way.JOB: "a job of one core drives it, which the next one follows",
}


@dataclass(frozen=True, slots=True)
class KeptRun:
    """The keeper of a run.

    `way`: its kind.
    `mark`: what identifies the line of the crontab, the unit of systemd, or the chain of jobs.
    `number`: of the latest job of the chain, from 1.
    `since_s`: when the keeper began, in seconds since 1970.
    `chain`: distinguishes these jobs from those of an earlier `asa run --detach`; empty without jobs.
    `umask`: of the user's shell.
    `environment`: variables of the user's shell that clients and their jobs get: those that `asa.core.variables` lists.
    """

    way: Way
    mark: str
    number: int = 0
    since_s: float = 0.0
    chain: str = ""
    umask: int = 0o022
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Text that describes the keeper to users."""
        return _WORDS[self.way]

    @classmethod
    def made(cls, way: Way, mark: str, *, number: int = 0, chain: str = "") -> KeptRun:
        """Return a keeper that begins now, with the umask and the variables of this process.

        `way`, `mark`, `number`, `chain`: the fields of that name.
        """
        umask = os.umask(0o077)
        os.umask(umask)
        return cls(way, mark, number, time.time(), chain, umask, variables.kept(os.environ))

    def take_over(self) -> None:
        """Apply the variables and umask of the user's shell to this process. Its variables with secrets stay."""
        secrets = {name: os.environ[name] for name in variables.secrets_of(os.environ)}
        os.environ.clear()
        os.environ.update({**self.environment, **secrets})
        os.umask(self.umask)


def possible(facility: Facility) -> dict[Way, str]:
    """Return for each way but that of jobs why it cannot be used here; empty if it can.

    `facility`: the run's.
    """
    from asa.keepers import scrontab  # noqa: PLC0415 - `asa status` needs it not

    troubles = {Way.TIMER: timer.trouble(), Way.CRON: cron.trouble(), Way.SCRONTAB: scrontab.trouble(facility)}
    if not all(troubles.values()) and (said := _trouble_of_client()):
        return {
            way: trouble or f"asa does not start where it would be called: {said}" for way, trouble in troubles.items()
        }
    return troubles


def client(verb: str, folder: Path, *options: str) -> list[str]:
    """Return a command line about a run that works from any folder and whatever ``PATH`` is.

    `verb`: the command of asa.
    `folder`: the run's.
    `options`: of the command.
    """
    return [*_python(), verb, str(folder.absolute()), *options]


def _python() -> list[str]:
    needed = [f"{name}={os.environ[name]}" for name in _TO_BEGIN if os.environ.get(name)]
    return [*(["env", *needed] if needed else []), *python.command("-m", "asa")]


def _trouble_of_client() -> str:
    """Return why asa does not start with as few variables as cron sets; empty if it does."""
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "SHELL": "/bin/sh"}
    try:
        done = run_command([*_python(), "--version"], env=bare, cwd="/", timeout_s=_TRIAL_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def keep(way: Way, folder: Path, mark: str, facility: Facility, walltime_s: float) -> KeptRun:
    """Let a timer, cron or Slurm's crontab look at a run from now on.

    `way`: which of them.
    `folder`: the run's.
    `mark`: letters and digits that identify the run.
    `facility`: the run's.
    `walltime_s`: of each look, if a job takes it.
    Raises `InputError`, `BackendError`: the keeper cannot begin.
    """
    from asa.keepers import scrontab  # noqa: PLC0415 - as above

    made = KeptRun.made(way, mark)
    note(folder, made)
    try:
        look = client("tick", folder, "--quiet", f"--kept={mark}")
        match way:
            case Way.TIMER:
                timer.begin(look, mark)
            case Way.CRON:
                cron.begin(look, mark)
            case _:
                scrontab.begin(facility, look, mark, folder, walltime_s)
    except BaseException:
        with suppress(OSError):
            (folder / _FILE).unlink()
        raise
    return made


def end(folder: Path) -> None:
    """Remove a run's keeper. A keeper that cannot be removed ends by itself, since the run has ended.

    `folder`: the run's.
    """
    now = kept(folder)
    if now is None:
        return
    if now.way is not Way.JOB:
        end_here(now.mark)
    with suppress(OSError):
        (folder / _FILE).unlink(missing_ok=True)


def end_here(mark: str) -> None:
    """Remove a run from cron and the timers of this computer, whatever the run's folder says.

    `mark`: the run's.
    """
    with suppress(InputError, OSError, subprocess.SubprocessError):
        cron.end(mark)
    with suppress(InputError, OSError, subprocess.SubprocessError):
        timer.end(mark)
    from asa.keepers import scrontab  # noqa: PLC0415 - as above

    with suppress(AsaError, OSError):
        scrontab.end_here(mark)


def kept(folder: Path) -> KeptRun | None:
    """Return a run's keeper; None if there is none.

    `folder`: the run's.
    Raises `OwnerError`: another user owns its record, or can change it.
    """
    try:
        fields = read_json(safe.read(folder / _FILE))
        return KeptRun(
            Way(fields["way"]),
            str(fields["mark"]),
            int(fields["number"]),
            float(fields["since_s"]),
            str(fields["chain"]),
            int(fields["umask"]),
            dict(fields["environment"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def is_kept_in_private(folder: Path) -> bool:
    """Whether another user's run has a keeper; only that user can read which.

    `folder`: the run's.
    """
    file = folder / _FILE
    try:
        return file.exists() and not os.access(file, os.R_OK)
    except OSError:
        return False


def note(folder: Path, now: KeptRun) -> None:
    """Record a run's keeper.

    `folder`: the run's.
    `now`: the keeper.
    Raises `InputError`: it cannot be written.
    """
    with in_words("cannot be written", str(folder / _FILE), "Free disk space, or fix its rights."):
        put(folder / _FILE, json.dumps(asdict(now), indent=1).encode(), is_private=True, is_durable=True)
