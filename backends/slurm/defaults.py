"""Defaults for every job of a client."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from asa.backends.shell.environment import carried, inherited

from asa.core.files import read_text
from asa.core.variables import asked

_OF_SLURM = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_")
_IN_A_JOB = "SLURM_JOB_ID"
_TOKEN = "SLURM_JWT"  # noqa: S105 - the name of the variable
_LIMITS = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")
_USUAL_UMASK = 0o022
_ENDLESS = (1 << 64) - 1  # infinite, as sbatch writes it


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """Defaults for every job of a client."""

    account: str = ""  # empty for the site's default
    qos: str = ""
    partition: str = ""
    constraint: str = ""
    # variables of the payload besides the inherited ones; they take precedence
    environment: Mapping[str, str] = field(default_factory=dict)
    # whether the payload inherits what `sbatch` would pass on from the client: variables, including exported functions,
    # limits and umask. Tokens, and Slurm's variables of a job in which the client runs, are not passed on
    inherit: bool = True
    # absolute work folder of payloads; by default the client's current folder
    folder: Path = field(default_factory=Path.cwd)
    secrets: Collection[str] = ()  # names of variables with a token, which are not inherited
    options: tuple[str, ...] = ()  # options of sbatch for jobs that leave them open

    def variables(self) -> dict[str, str]:
        """Return the variables of the payload by their own names, without those that Slurm sets."""
        own = inherited() if self.inherit else {}
        left = {_TOKEN, *self.secrets}
        shed = _OF_SLURM if _IN_A_JOB in os.environ else ()
        return {name: v for name, v in own.items() if name not in left and not name.startswith(shed)} | dict(
            self.environment
        )

    def submission(self, secrets: Iterable[str] = ()) -> dict[str, str]:
        """Return the variables for a submission: the payload's, and those that describe the client to Slurm.

        `secrets`: names of further variables, with secrets, that the job asks for.
        """
        client = {"SLURM_SUBMIT_DIR": str(self.folder), "SLURM_SUBMIT_HOST": socket.gethostname()}
        return (_process_variables() if self.inherit else {}) | client | carried(self.variables() | asked(secrets))


def _process_variables() -> dict[str, str]:
    """Return, as sbatch does, what a job inherits if the site allows: soft limits, umask, priority."""
    limits = {f"SLURM_RLIMIT_{name}": resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in _LIMITS}
    variables = {name: str(_ENDLESS if limit == resource.RLIM_INFINITY else limit) for name, limit in limits.items()}
    return variables | {"SLURM_UMASK": f"{_umask():04o}", "SLURM_PRIO_PROCESS": str(os.getpriority(os.PRIO_PROCESS, 0))}


def _umask() -> int:
    """Return this process's umask; `os.umask` would have to change it for a moment, which other threads would see."""
    lines = read_text(Path("/proc/self/status"), "ascii", "replace").splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), _USUAL_UMASK)
