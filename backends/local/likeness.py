"""Slurm's variables and commands as jobs of this computer find them: scripts written for Slurm run unchanged."""

from __future__ import annotations

import math
import re
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

from asa.backend import JobSpec
from asa.core.python import bare_command

_HERE = Path(__file__).parent
_MIB = 1 << 20
_NAME = re.compile(r"[\w.,-]+", re.ASCII)  # of a partition, as one word of a shell


def as_in_slurm(spec: JobSpec, name: str) -> Sequence[Sequence[str]]:
    """Write for each step of a job, or for its one command, the line of shell text that sets Slurm's variables.

    Examples
    --------
    >>> as_in_slurm(JobSpec("fit", 4, 60.0, cpus_per_task=2, memory_bytes=1 << 30), "fit.a1")
    [['as_in_slurm fit.a1 2 2 4 60 1024']]
    """
    memory = str(-(-spec.memory_bytes // _MIB)) if spec.memory_bytes else ""
    whole = (spec.tasks or max(spec.cores // spec.cpus_per_task, 1), spec.cpus_per_task)
    limit = str(math.ceil(spec.walltime_s))
    sizes = [(step.tasks, step.cpus_per_task) if step.tasks else whole for step in spec.steps] or [whole]
    cores = [tasks * each for tasks, each in sizes] if spec.steps or spec.tasks else [spec.cores]
    return [
        [shlex.join(["as_in_slurm", name, str(tasks), str(each), str(own), limit, *_last(memory, spec.partition)])]
        for (tasks, each), own in zip(sizes, cores, strict=True)
    ]


def _last(memory: str, partition: str) -> list[str]:
    named = partition if _NAME.fullmatch(partition) else ""
    return [memory, named] if named else [memory] if memory else []


def stand_ins_in(folder: Path) -> str:
    """Write the stand-ins for commands of clusters to a folder of the user's own; return it.

    Raises `OSError`.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    start = shlex.join(bare_command(str(folder / "srun.py")))
    texts = {
        "srun.py": (_HERE / "srun.py").read_bytes(),  # a copy: jobs may outlast an update of asa
        "srun": f'#!/bin/sh\nexec {start} "$@"\n'.encode(),
        "module": (_HERE / "module.sh").read_bytes(),
        "scontrol": (_HERE / "scontrol.sh").read_bytes(),
    }
    for name, text in texts.items():
        there = folder / name
        if there.exists() and there.read_bytes() == text:
            continue
        draft = folder / f".{name}.{secrets.token_hex(6)}"
        draft.write_bytes(text)
        draft.chmod(0o700)  # before it gets its name: from then on a job may start it
        draft.replace(there)
    return str(folder)
