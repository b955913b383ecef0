"""The variables that a job's payload gets from the submitting process, encoded so that any shell passes them on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from asa.core.files import read_file
from asa.core.variables import is_secret

from .script import ENTRY, is_utf8

_OF_THE_SHELL = frozenset({"_", "PWD", "OLDPWD", "SHLVL"})
_COERCED, _COERCED_TO = "LC_CTYPE", frozenset({"C.UTF-8", "C.utf8", "UTF-8"})


def inherited() -> dict[str, str]:
    """Return the variables of this process that are passed on to jobs.

    Left out are variables that shells set themselves, those whose name is not UTF-8, and those with secrets; see
    `asa.core.variables`.
    """
    left = _OF_THE_SHELL | _put_in_by_python()
    own = {name: value for name, value in os.environ.items() if name not in left and is_utf8(name)}
    return {name: value for name, value in own.items() if not is_secret(name, value)}


def _put_in_by_python() -> set[str]:
    """Return the variable that Python sets in the C locale, unless its user has set it."""
    if os.environ.get(_COERCED) not in _COERCED_TO:
        return set()
    try:
        begun_with = read_file(Path("/proc/self/environ"))
    except OSError:
        return set()
    given = any(entry.startswith(f"{_COERCED}=".encode()) for entry in begun_with.split(b"\0"))
    return set() if given else {_COERCED}


def carried(variables: Mapping[str, str]) -> dict[str, str]:
    """Rename variables so that they pass through the script around a payload; the script restores the names.

    Functions exported by bash have names such as ``BASH_FUNC_module%%``, which dash, Debian's ``sh``, drops. Names in
    lower case are reserved for the script.

    Examples
    --------
    >>> carried({"A": "1", "folder": "/data", "BASH_FUNC_ml%%": "() { module; }"})
    {'A': '1', 'ASA_ENTRY_1': 'folder=/data', 'ASA_ENTRY_2': 'BASH_FUNC_ml%%=() { module; }'}
    """
    plain = {name: value for name, value in variables.items() if _is_kept(name)}
    others = [f"{name}={value}" for name, value in variables.items() if name not in plain]
    return plain | {f"{ENTRY}{number}": entry for number, entry in enumerate(others, start=1)}


def _is_kept(name: str) -> bool:
    if name[:1] in ("", "-") or "=" in name or "\0" in name:  # `env` would misinterpret such a name
        return True
    return name.isascii() and name.isidentifier() and not name.islower()
