"""The user's table of recurring jobs, which Slurm has since 20.11 where ``ScronParameters=enable`` is set."""

from __future__ import annotations

import shlex

from asa.errors import BackendError, SubmitRejectedError

from ..link import SlurmJob
from ..words import words_of
from . import refusals
from .link import CommandLink
from .process import Done

_OPTIONS = "#SCRON "
_NONE = "no crontab for"
_EXPANDED = "$"  # also in quotes
_HINT = "Use another way: --detach-by timer, cron or job."


def read(link: CommandLink) -> str:
    """Read the table.

    Raises `BackendError`: Slurm keeps no such tables here, or does not answer.
    """
    done = link.scrontab("-l")
    if done.returncode and _NONE not in done.stderr:
        raise _refused(done)
    return "" if done.returncode else done.stdout


def write(link: CommandLink, table: str) -> None:
    """Replace the table.

    Raises `BackendError`: Slurm refuses it, or does not answer.
    """
    done = link.scrontab(*(["-"] if table else ["-r"]), table=table)
    if done.returncode and (table or _NONE not in done.stderr):
        raise _refused(done)


def entry(job: SlurmJob, when: str, command: str) -> str:
    r"""Write the lines for a job. Options of its own come last, and take precedence.

    `when`: when it runs, in cron's five fields. `command`: one line.
    Raises `SubmitRejectedError`: Slurm would change the command, or cannot keep it.

    Examples
    --------
    >>> job = SlurmJob("look", "", "/home", 1, 600.0, "o", "e", partition="short", options=("--qos=cron",))
    >>> print(entry(job, "* * * * *", "/bin/sh look.sh"))
    #SCRON --job-name=look --chdir=/home --ntasks=1 --time=10 --output=o --error=e --partition=short --qos=cron
    * * * * * /bin/sh look.sh
    """
    own = (f"--{name}" if value is None else f"--{name}={value}" for name, value in words_of(job))
    options = shlex.join([*own, *job.options])
    if _EXPANDED in command or not _is_line(command) or not _is_line(options):
        hint = f"Let its path have no dollar sign and no line break. {_HINT}"
        raise SubmitRejectedError("cannot be called from Slurm's crontab", where=command, hint=hint)
    return f"{_OPTIONS}{options}\n{when} {command}"


def _is_line(text: str) -> bool:
    return not any(ord(letter) < ord(" ") for letter in text)


def _refused(done: Done) -> BackendError:
    if refusals.is_missing(done):
        return BackendError("there is no `scrontab` command here", where="scrontab", hint=_HINT)
    return BackendError(f"scrontab says {_words(done)!r}", where="scrontab", hint=_HINT)


def _words(done: Done) -> str:
    return refusals.words(done).removeprefix("scrontab: ").removeprefix("fatal: ").removeprefix("error: ")
