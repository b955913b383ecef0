"""The variables with a user's defaults for `sbatch`: they hold over any link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from asa.keys import TERMS

from .link import SlurmJob
from .options import checked, left_open

_SETTINGS: Final = {
    "account": "SBATCH_ACCOUNT",
    "partition": "SBATCH_PARTITION",
    "qos": "SBATCH_QOS",
    "constraint": "SBATCH_CONSTRAINT",
}
_OPTIONS: Final = {
    **{
        name: f"SBATCH_{name.upper().replace('-', '_')}"
        for name in (
            "acctg-freq", "batch", "cluster-constraint", "container", "container-id", "core-spec", "cpus-per-gpu",
            "delay-boot", "distribution", "exclusive", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node",
            "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "mem-bind", "mem-per-cpu", "mem-per-gpu",
            "network", "no-kill", "open-mode", "overcommit", "power", "profile", "requeue", "reservation", "signal",
            "spread-job", "thread-spec", "threads-per-core", "tres-bind", "tres-per-task", "use-min-nodes",
            "wait-all-nodes", "wckey",
        )
    },
    "bb": "SBATCH_BURST_BUFFER",
    "cpu-freq": "SBATCH_CPU_FREQ_REQ",
    "mem": "SBATCH_MEM_PER_NODE",
    "switches": "SBATCH_REQ_SWITCH",
}  # fmt: skip
_MAY_BE_EMPTY: Final = frozenset({"exclusive", "no-kill"})
_FLAGS: Final = frozenset({"overcommit", "requeue", "spread-job", "use-min-nodes"})
_ON: Final = frozenset({"", "yes", "set"})
_MEMORY: Final = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})


def sbatch_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Read account, partition, quality of service and constraint, if set.

    Examples
    --------
    >>> sbatch_settings({"SBATCH_ACCOUNT": "astro", "HOME": "/home/ada"})
    {'account': 'astro'}
    """
    return {name: variables[variable] for name, variable in _SETTINGS.items() if variables.get(variable)}


def sbatch_options(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Read the other options, as options of sbatch.

    Examples
    --------
    >>> sbatch_options({"SBATCH_RESERVATION": "course", "SBATCH_EXCLUSIVE": "", "SBATCH_OVERCOMMIT": "no"})
    ('--exclusive', '--reservation=course')
    """
    asked = {name: variables[variable] for name, variable in _OPTIONS.items() if variable in variables}
    asked.setdefault("hint", variables.get("SLURM_HINT", ""))
    asked = {name: value for name, value in asked.items() if value or name in _FLAGS | _MAY_BE_EMPTY}
    if "switches" in asked and "SBATCH_WAIT4SWITCH" in variables:
        asked["switches"] += f"@{variables['SBATCH_WAIT4SWITCH']}"
    flags = {name for name in _FLAGS & asked.keys() if asked[name] in _ON or asked[name].strip("0").isdigit()}
    return tuple(
        f"--{name}={value}" if value and name not in _FLAGS else f"--{name}"
        for name, value in asked.items()
        if name not in _FLAGS or name in flags
    )


def filled(job: SlurmJob, options: tuple[str, ...]) -> SlurmJob:
    """Use options as defaults for what a job does not specify, as sbatch does.

    Examples
    --------
    >>> job = SlurmJob("a", "#!/bin/sh", "/home", 4, 60.0, "out", "err", gpus=1, options=("--exclusive",))
    >>> filled(job, ("--exclusive=user", "--gpus=2", "--reservation=course")).options
    ('--exclusive', '--reservation=course')
    """
    free = left_open(job)
    said = {name for name, _ in checked(job.options, job.name, free)}
    if _MEMORY & said or not _MEMORY & free:
        said |= _MEMORY
    said |= {"gpus"} - free
    if job.burst_buffer:
        said.add("bb")
    said |= {key.option for key in TERMS if getattr(job, key.field)}
    left = [(name, option) for option in options if (name := _name(option)) not in said]
    gpus = next((value for name, option in left if name == "gpus" and (value := option[7:]).isdigit()), "")
    kept = tuple(option for name, option in left if not (name == "gpus" and gpus))
    return replace(job, options=(*job.options, *kept), gpus=job.gpus or int(gpus or 0))


def _name(option: str) -> str:
    return option.removeprefix("--").partition("=")[0]
