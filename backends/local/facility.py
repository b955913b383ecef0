"""The user's own machine as a facility: its resources, its queue, and its record of past jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.backends.shell.environment import inherited

from asa.backend import Advice, Capabilities, Examination
from asa.errors import InputError
from asa.history import JobHistory

from .explanations import advice
from .settings import checked

if TYPE_CHECKING:
    from .backend import LocalBackend

_NOTES = ("jobs are processes of this machine, and nothing keeps them from using more than they asked for",)
_NO_JOBS = frozenset({"SLURM_JWT"})  # not passed on to jobs of this queue
# prefixes of variables that describe a job in which the client may run
_OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SALLOC_", "PMI_", "PMI2_", "PMIX_")
_OF_THE_SITE = frozenset({"SLURM_CONF"})
_LONGEST_VARIABLE_BYTES = 120_000  # Linux accepts at most 128 KiB


class LocalMachine:
    """A queue on this computer: stages are processes that wait for its cores.

    Parameters
    ----------
    **settings
        As in `.settings.LocalSettings`; may be text.

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
        self.settings = checked(settings)

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user."""
        return list(_NOTES)

    @property
    def capabilities(self) -> Capabilities:
        """Abilities of the machine."""
        own = self.settings
        return Capabilities(
            own.system,
            own.cores,
            own.cores,
            age_accrues=True,
            accepts_late=False,
            whole_nodes=own.whole_nodes,
            races=True,
        )

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> LocalBackend:
        """Open the queue for one run; commands run in the current folder.

        See `asa.backend.Facility.connect`.
        """
        from .backend import LocalBackend  # noqa: PLC0415 - a list of backends needs it not
        from .spool import host  # noqa: PLC0415 - as above

        return LocalBackend(
            self.settings.spool,
            host(),
            folder,
            self.capabilities,
            # scripts that were written for Slurm change to the folder of submission
            environment={**_inherited(), "SLURM_SUBMIT_DIR": str(_here()), **self.settings.environment},
            work=_here(),
            sleep=sleep,
            slurm=self.settings.slurm,
        )

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed."""
        return advice(reason)

    def examine(self, *, probe: bool) -> Examination:
        """Examine the machine and its queue; with `probe`, also with a job that never runs."""
        from .examination import examine  # noqa: PLC0415 - as above

        return examine(self.settings, self.connect, probe=probe)

    def history(self, since_s: float) -> JobHistory:
        """Read this user's jobs of the last week.

        Raises
        ------
        BackendError
            The queue cannot be read.
        TraceError
            None of the jobs has a known wait.
        """
        from .examination import history  # noqa: PLC0415 - as above

        return history(self.settings, since_s)


def _inherited() -> dict[str, str]:
    """Return the variables that jobs get from the client: UTF-8, without secrets, and not of the client's own job."""
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
