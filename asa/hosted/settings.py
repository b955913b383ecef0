"""Settings of the user of a host: the batch system, and folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from asa.core.files import without_tilde
from asa.errors import InputError
from asa.estimators.store import default_folder
from asa.runner.folder import own_runs
from asa.sites import OpenedSite, open_facility

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def open_batch_system(backend: str | None, site: str | None, settings: Sequence[str], option: str) -> OpenedSite:
    """Open a batch system by the names of a backend and a site, with settings as ``key=value``; see `open_facility`.

    `option`: the option with which the user gave the settings.
    """
    given = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign or not key.strip():
            raise InputError(
                f"{setting!r} is no setting",
                where=option,
                hint=f"Write it as key=value, as in {option} partition=batch.",
            )
        given[key.strip()] = value.strip()
    return open_facility(backend, site, given)


def bank_folder(named: str | None) -> Path | None:
    """Return the folder of the bank; None for ``none``."""
    if named == "none":
        return None
    return default_folder() if not named else without_tilde(named, "the bank")


def run_name(name: str, otherwise: str) -> str:
    """Return a name for a run after that of a project or a file; `otherwise`: if nothing of it can be written.

    Examples
    --------
    >>> run_name("RNA seq!", "flow")
    'RNA_seq'
    """
    return _UNSAFE.sub("_", name)[:40].strip("._-") or otherwise


def runs_folder(given: Path, usual: Path) -> Path:
    """Return the folder of runs: the given one. If it is the usual one and another user's, a folder next to it.

    `given`: the user's choice. `usual`: the host's default.
    """
    return own_runs(given) if given == usual else given
