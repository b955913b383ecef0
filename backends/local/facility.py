"""The machine that one sits at as a facility: what it has, where its queue lies, and what it has kept of past jobs."""

from __future__ import annotations

import difflib
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.backends.shell.environment import inherited

from asa.backend import Advice, Capabilities, Examination
from asa.errors import InputError
from asa.history import JobHistory

from .explanations import advice

if TYPE_CHECKING:
    from .backend import LocalBackend

_NOTES = ("jobs are processes of this machine, and nothing keeps them from using more than they asked for",)
_NO_JOBS = frozenset({"SLURM_JWT"})  # but ours
_OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SALLOC_", "PMI_", "PMI2_", "PMIX_")  # in which the client may itself run
_OF_THE_SITE = frozenset({"SLURM_CONF"})
_LONGEST_VARIABLE_BYTES = 120_000  # Linux takes no longer than 128 KiB


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """What a user can set."""

    cores: int  # that all jobs may have together; those that this process may use, if not given
    spool: Path  # folder of the user's queues, one for each host; what `default_spool` says, if not given
    system: str  # name of the machine, under which waits are learned; its own, if not given
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of every job, in addition to the client's
    # whether small stages are put together into jobs of all its cores, as where jobs get whole nodes
    whole_nodes: bool = False


class LocalMachine:
    """A queue on this computer: stages are processes, which wait for its cores.

    Parameters
    ----------
    **settings
        As in `LocalSettings`; may be text.

    Raises
    ------
    InputError
        One of them is invalid; `where` is its name.

    Examples
    --------
    >>> LocalMachine(cores="4").settings.cores
    4
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = _checked(settings)

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know about it."""
        return list(_NOTES)

    @property
    def capabilities(self) -> Capabilities:
        """What the machine can do."""
        own = self.settings
        return Capabilities(
            own.system, own.cores, own.cores, age_accrues=True, accepts_late=False, whole_nodes=own.whole_nodes
        )

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> LocalBackend:
        """Open its queue for one run; commands run in the present current folder.

        See `asa.backend.Facility.connect`.
        """
        from .backend import LocalBackend  # noqa: PLC0415 - not for who only looks at a list
        from .spool import host  # noqa: PLC0415 - as above

        return LocalBackend(
            self.settings.spool,
            host(),
            folder,
            self.capabilities,
            # scripts that were written for Slurm go to the folder that they were submitted from
            environment={**_inherited(), "SLURM_SUBMIT_DIR": str(_here()), **self.settings.environment},
            work=_here(),
            sleep=sleep,
        )

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed."""
        return advice(reason)

    def examine(self, *, probe: bool) -> Examination:
        """Find out what the machine has, and whether its queue can work; with `probe`, by a job that never runs."""
        from .examination import examine  # noqa: PLC0415 - as above

        return examine(self, probe=probe)

    def history(self, since_s: float) -> JobHistory:
        """Read this user's jobs of the last week.

        Raises
        ------
        BackendError
            The queue cannot be read.
        TraceError
            There is no job among them whose wait is known.
        """
        from .examination import history  # noqa: PLC0415 - as above

        return history(self, since_s)


def cores_here() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))


def default_spool() -> Path:
    """Folder of the user's queues: ``asa/local`` in ``XDG_STATE_HOME``, else in ``~/.local/state``."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "asa" / "local"
    try:
        return Path.home() / ".local" / "state" / "asa" / "local"
    except RuntimeError as error:
        raise InputError(
            "there is no home folder to keep it in", where="spool", hint="Name a folder with --option spool=DIR."
        ) from error


def _checked(given: Mapping[str, Any]) -> LocalSettings:
    known = ["cores", "spool", "system", "environment", "whole_nodes"]
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise InputError(f"there is no setting {key!r}", where=key, hint=f"{hint}Known: {', '.join(known)}.")
    return LocalSettings(
        cores=_cores(given.get("cores", 0)),
        spool=_folder(given.get("spool", "")),
        system=str(given.get("system", "")) or platform.node().partition(".")[0] or "here",
        environment=_variables(given.get("environment", {})),
        whole_nodes=_yes(given.get("whole_nodes", False)),
    )


def _yes(value: object) -> bool:
    word = str(value).lower()
    if word not in {"yes", "no", "true", "false"}:
        raise InputError(f"{value!r} is not yes or no", where="whole_nodes", hint="As in --option whole_nodes=yes.")
    return word in {"yes", "true"}


def _cores(value: object) -> int:
    try:
        cores = int(str(value))
    except ValueError:
        cores = -1
    if cores < 0 or isinstance(value, bool):
        raise InputError(f"{value!r} is no number of cores", where="cores", hint="As in --option cores=4; 0 for all.")
    return cores or cores_here()


def _folder(value: object) -> Path:
    if not value:
        return default_spool()
    path = Path(str(value)).expanduser()
    if not path.is_absolute():
        raise InputError(
            f"{value!r} is no whole path",
            where="spool",
            hint="Write the whole path, or begin it with ~: --option spool=/...",
        )
    return path


def _variables(value: object) -> dict[str, str]:
    """Read a table, or ``A=1,B=2``."""
    if isinstance(value, Mapping):
        return {str(name): str(content) for name, content in value.items()}
    pairs = [pair.partition("=") for pair in str(value).split(",") if pair.strip()]
    if any(not sign or not name.strip() for name, sign, _ in pairs):
        raise InputError(f"{value!r} is no list of variables", where="environment", hint="As in NAME=value,NAME=value.")
    return {name.strip(): content for name, _, content in pairs}


def _inherited() -> dict[str, str]:
    """Variables that jobs get from the client; what is not UTF-8, a secret of ours or of its own job stays behind."""
    return {name: value for name, value in inherited().items() if _is_inherited(name, value)}


def _is_inherited(name: str, value: str) -> bool:
    if name in _NO_JOBS or (name.startswith(_OF_A_JOB) and name not in _OF_THE_SITE):
        return False
    try:
        return len(name.encode()) + len(value.encode()) < _LONGEST_VARIABLE_BYTES
    except UnicodeEncodeError:
        return False


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise InputError("the current folder is no more", hint="Change into one that is there.") from error
