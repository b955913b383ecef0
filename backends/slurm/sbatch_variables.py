"""The variables with a user's defaults for `sbatch`, used with both links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from asa.keys import TERMS
from asa.requests.options import marked, name_of
from asa.requests.variables import VARIABLES, of_variables

from .link import SlurmJob
from .options import checked, left_open

_SETTINGS: Final = ("account", "partition", "qos", "constraint")
_LEFT_OUT: Final = marked("job").union(_SETTINGS)
_MEMORY: Final = marked("memory")


def sbatch_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return account, partition, quality of service and constraint, if set.

    Examples
    --------
    >>> sbatch_settings({"SBATCH_ACCOUNT": "astro", "HOME": "/home/ada"})
    {'account': 'astro'}
    """
    return {name: variables[VARIABLES[name]] for name in _SETTINGS if variables.get(VARIABLES[name])}


def sbatch_options(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the other options in these variables.

    Examples
    --------
    >>> sbatch_options({"SBATCH_RESERVATION": "course", "SBATCH_EXCLUSIVE": "", "SBATCH_OVERCOMMIT": "no"})
    ('--exclusive', '--reservation=course')
    """
    asked = {name: str(value) for name, value in of_variables(variables, "").items() if name not in _LEFT_OUT}
    if variables.get("SLURM_HINT"):
        asked.setdefault("hint", f"--hint={variables['SLURM_HINT']}")
    return tuple(asked.values())


def filled(job: SlurmJob, options: tuple[str, ...]) -> SlurmJob:
    """Apply options as defaults for what a job does not specify, as sbatch does.

    Examples
    --------
    >>> job = SlurmJob("a", "#!/bin/sh", "/home", 4, 60.0, "out", "err", gpus=1, options=("--exclusive",))
    >>> filled(job, ("--exclusive=user", "--gpus=2", "--reservation=course")).options
    ('--exclusive', '--reservation=course')
    """
    free = left_open(job)
    names = {name for name, _ in checked(job.options, job.name, free)}
    if _MEMORY & names or not _MEMORY & free:
        names |= _MEMORY
    names |= {"gpus"} - free
    if job.burst_buffer:
        names.add("bb")
    if "hint" in names:
        names.add("threads-per-core")
    names |= {key.option for key in TERMS if getattr(job, key.field)}
    left = [(name, option) for option in options if (name := name_of(option)) not in names]
    gpus = next((value for name, option in left if name == "gpus" and (value := option[7:]).isdigit()), "")
    kept = tuple(option for name, option in left if not (name == "gpus" and gpus))
    return replace(job, options=(*job.options, *kept), gpus=job.gpus or int(gpus or 0))
