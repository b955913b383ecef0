"""Keepers look at a run that has no client: a timer, cron, or a chain of one-core jobs.

A way is a module with ``trouble()``, ``begin(...)`` and ``end(mark)``. A run's folder records its keeper in
``kept.json``, with the variables of the user's shell that its clients need. The run's lease lets only one client at a
time drive it, however many look.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from asa.core import python, safe, variables
from asa.core.documents import read_json
from asa.core.files import in_words, put
from asa.core.reading import run_command
from asa.errors import InputError
from asa.keepers import cron, timer

__all__ = ["KeptRun", "Way", "client", "end", "end_here", "is_kept_in_private", "keep", "kept", "note", "possible"]

_FILE = "kept.json"
_TO_BEGIN = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "ASA_TRUSTED")  # with, before the rest is read of the run
_TRIAL_S = 60.0


class Way(StrEnum):
    """Who looks at a run, in the order in which they are taken."""

    TIMER = "timer"
    CRON = "cron"
    JOB = "job"


_WORDS = {
    Way.TIMER: "a timer of systemd looks at it once a minute",
    Way.CRON: "cron looks at it once a minute",
    Way.JOB: "a job of one core drives it, which the next one follows",
}


@dataclass(frozen=True, slots=True)
class KeptRun:
    """What keeps a run.

    `way`: which way.
    `mark`: its identifier there: a line's mark, a unit, a job.
    `number`: of the latest job that drives it, from 1 on.
    `since_s`: when that began, seconds since 1970.
    `chain`: distinguishes these jobs from those of an earlier detaching; empty if there are none.
    `umask`: of the user's shell.
    `environment`: variables of the user's shell, for its clients and the jobs that they submit: those that
    `asa.core.variables` lists.
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
        """Describe its keeper."""
        return _WORDS[self.way]

    @classmethod
    def made(cls, way: Way, mark: str, *, number: int = 0, chain: str = "") -> KeptRun:
        """Make one that begins now, from the user's present shell.

        `way`, `mark`, `number`, `chain`: the fields of that name.
        """
        umask = os.umask(0o077)
        os.umask(umask)
        return cls(way, mark, number, time.time(), chain, umask, variables.kept(os.environ))

    def take_over(self) -> None:
        """Have this process's variables and umask be those of the user's shell; what is secret stays as it is."""
        secrets = {name: os.environ[name] for name in variables.secrets_of(os.environ)}
        os.environ.clear()
        os.environ.update({**self.environment, **secrets})
        os.umask(self.umask)


def possible() -> dict[Way, str]:
    """Say of each way that needs no batch system why it cannot be taken here; empty for one that can."""
    troubles = {Way.TIMER: timer.trouble(), Way.CRON: cron.trouble()}
    if not all(troubles.values()) and (said := _trouble_of_client()):
        return {
            way: trouble or f"asa does not start where it would be called: {said}" for way, trouble in troubles.items()
        }
    return troubles


def client(verb: str, folder: Path, *options: str) -> list[str]:
    """Write a command about a run that works from any folder and without this ``PATH``.

    `verb`: the command.
    `folder`: the run's.
    `options`: of the command.
    """
    return [*_python(), verb, str(folder.absolute()), *options]


def _python() -> list[str]:
    needed = [f"{name}={os.environ[name]}" for name in _TO_BEGIN if os.environ.get(name)]
    return [*(["env", *needed] if needed else []), *python.command("-m", "asa")]


def _trouble_of_client() -> str:
    """Say why the command line does not start where there are hardly any variables, as under cron; empty if it does."""
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "SHELL": "/bin/sh"}
    try:
        done = run_command([*_python(), "--version"], env=bare, cwd="/", timeout_s=_TRIAL_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def keep(way: Way, folder: Path, mark: str) -> KeptRun:
    """Let a timer or cron look at a run from now on.

    `way`: which.
    `folder`: the run's.
    `mark`: letters and digits that identify the run.
    Raises `InputError`: that is not possible.
    """
    begin: Callable[[list[str], str], None] = {
        Way.TIMER: timer.begin,
        Way.CRON: cron.begin,
    }[way]
    made = KeptRun.made(way, mark)
    note(folder, made)
    try:
        begin(client("tick", folder, "--quiet", f"--kept={mark}"), mark)
    except BaseException:
        with suppress(OSError):
            (folder / _FILE).unlink()
        raise
    return made


def end(folder: Path) -> None:
    """Remove a run's keeper; what cannot be removed ends by itself, since the run has ended.

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
    """Remove a run from cron and the timers of this computer, whatever its folder says.

    `mark`: the run's.
    """
    with suppress(InputError, OSError, subprocess.SubprocessError):
        cron.end(mark)
    with suppress(InputError, OSError, subprocess.SubprocessError):
        timer.end(mark)


def kept(folder: Path) -> KeptRun | None:
    """Return a run's keeper; None if there is none.

    `folder`: the run's.
    Raises `OwnerError`: others own its record, or can change it.
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
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_kept_in_private(folder: Path) -> bool:
    """Whether another user's run has a keeper, which only that user can read.

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
