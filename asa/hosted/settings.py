"""Settings of the user of a host: the batch system, and folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from asa.errors import InputError
from asa.estimators.store import default_folder
from asa.runner.folder import own_runs
from asa.sites import OpenedSite, open_facility

USUAL_RUNS = Path(".snakemake/asa")
"""Default folder of the runs that Snakemake hosts."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def open_batch_system(
    backend: str | None, site: str | None, settings: Sequence[str], option: str = "--asa-option"
) -> OpenedSite:
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
    return default_folder() if not named else Path(named).expanduser()


def run_name(file: Path) -> str:
    """Name a run after the project that contains the workflow's file.

    Examples
    --------
    >>> run_name(Path("/home/ann/rna-seq/workflow/Snakefile"))
    'rna-seq'
    """
    folder = file.absolute().parent
    folder = folder.parent if folder.name == "workflow" else folder
    return _UNSAFE.sub("_", folder.name)[:40].strip("._-") or "snakemake"


def runs_folder(given: Path) -> Path:
    """Return the folder of runs: the given one. If the usual one is another user's, a folder next to it.

    `given`: the user's choice.
    """
    return own_runs(given) if given == USUAL_RUNS else given
