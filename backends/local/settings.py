"""A user's settings for the queue of this machine."""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asa.core.files import without_tilde
from asa.errors import InputError, UnknownNameError


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The settings."""

    cores: int  # for all jobs together; by default those that this process may use
    spool: Path  # folder of the user's queues, one for each host; by default `default_spool`
    system: str  # name of the machine, under which waits are learned; by default its own
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of every job, besides the client's
    # whether small stages are combined into jobs with all its cores, as on systems that give whole nodes
    whole_nodes: bool = False
    slurm: str = "variables"  # which parts of Slurm jobs find: a key of `SLURM`


SLURM = {
    "no": "nothing of Slurm",
    "variables": "Slurm's variables",
    "commands": "Slurm's variables, and stand-ins for `srun` and `module`",
}
"""Parts of Slurm that a job may find, for scripts written for Slurm."""


def cores_here() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def default_spool() -> Path:
    """Return the folder of the user's queues: ``asa/local`` in ``XDG_STATE_HOME``, else in ``~/.local/state``."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "asa" / "local"
    try:
        return Path.home() / ".local" / "state" / "asa" / "local"
    except RuntimeError as error:
        raise InputError(
            "there is no home folder to keep it in", where="spool", hint="Name a folder with --option spool=DIR."
        ) from error


def checked(given: Mapping[str, Any]) -> LocalSettings:
    """Parse settings; refuse unknown ones and invalid values."""
    known = ["cores", "spool", "system", "environment", "whole_nodes", "slurm"]
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise UnknownNameError(f"there is no setting {key!r}", where=key, hint=f"{hint}Known: {', '.join(known)}.")
    return LocalSettings(
        cores=_cores(given.get("cores", 0)),
        spool=_folder(given.get("spool", "")),
        system=str(given.get("system", "")) or platform.node().partition(".")[0] or "here",
        environment=_variables(given.get("environment", {})),
        whole_nodes=_yes(given.get("whole_nodes", False)),
        slurm=_of_slurm(given.get("slurm", "variables")),
    )


def _yes(value: object) -> bool:
    word = str(value).lower()
    if word not in {"yes", "no", "true", "false"}:
        raise InputError(f"{value!r} is not yes or no", where="whole_nodes", hint="As in --option whole_nodes=yes.")
    return word in {"yes", "true"}


def _of_slurm(value: object) -> str:
    word = "no" if value is False else str(value)  # TOML and Python may turn the text `no` into False
    if word not in SLURM:
        hint = f"{'; '.join(f'{variable}: jobs find {what}' for variable, what in SLURM.items())}."
        raise InputError(f"{value!r} is none of {', '.join(SLURM)}", where="slurm", hint=hint)
    return word


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
    path = without_tilde(str(value), "spool")
    if not path.is_absolute():
        raise InputError(
            f"{value!r} is no whole path",
            where="spool",
            hint="Write the whole path, or begin it with ~: --option spool=/...",
        )
    return path


def _variables(value: object) -> dict[str, str]:
    """Parse a table, or ``A=1,B=2``."""
    if isinstance(value, Mapping):
        return {str(name): str(content) for name, content in value.items()}
    pairs = [pair.partition("=") for pair in str(value).split(",") if pair.strip()]
    if any(not sign or not name.strip() for name, sign, _ in pairs):
        raise InputError(f"{value!r} is no list of variables", where="environment", hint="As in NAME=value,NAME=value.")
    return {name.strip(): content for name, _, content in pairs}
