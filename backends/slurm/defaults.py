"""What every job of a client gets, unless it says otherwise."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from asa.backends.shell.script import is_utf8

__all__ = ["JobDefaults"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_INHERITED = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_")  # of the job that the client may run in; and its token
_OF_THE_SHELL = frozenset({"_", "PWD", "OLDPWD", "SHLVL"})


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What every job of a client gets, unless it says otherwise.

    Parameters
    ----------
    account, qos, partition, constraint
        Empty for the site's default.
    environment
        Variables of the payload, beside the inherited ones and before them.
    inherit
        Whether the payload gets the client's own variables, as with ``sbatch``. Slurm's own, tokens among them, stay
        behind, and so does what is no plain variable, such as an exported function, or text that is not UTF-8.
    folder
        Where payloads run, absolute; where the client was started, if not given.
    secrets
        Names of variables that are not inherited, for a token is in them.
    """

    account: str = ""
    qos: str = ""
    partition: str = ""
    constraint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: bool = True
    folder: Path = field(default_factory=Path.cwd)
    secrets: Collection[str] = ()

    def variables(self) -> dict[str, str]:
        """All variables of the payload."""
        own = {name: value for name, value in os.environ.items() if _is_inherited(name, value)} if self.inherit else {}
        return {name: value for name, value in own.items() if name not in self.secrets} | dict(self.environment)


def _is_inherited(name: str, value: str) -> bool:
    plain = _NAME.fullmatch(name) is not None and "\n" not in value and is_utf8(value)
    return plain and name not in _OF_THE_SHELL and not name.startswith(_NOT_INHERITED)
