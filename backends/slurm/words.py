"""Options of sbatch for a job, used by both links: each value for Slurm is written here, once.

`sbatch` gets them unchanged; for slurmrestd `asa.backends.slurm.options` writes each in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from asa.keys import TERMS

from .link import SlurmJob

_MIB = 1 << 20
_AS_NAMED = ("partition", "qos", "constraint", "dependency", "comment", "array")  # fields in Slurm's words already


def minutes(walltime_s: float) -> int:
    """Return the minutes of a walltime, rounded up, at least one.

    Examples
    --------
    >>> minutes(3600.0), minutes(61.0), minutes(0.5)
    (60, 2, 1)
    """
    return max(1, math.ceil(walltime_s / 60.0))


def words_of(job: SlurmJob) -> list[tuple[str, str | None]]:
    """Return a job's request to Slurm, without a stage's own options, as names and values.

    Examples
    --------
    >>> job = SlurmJob("a", "#!/bin/sh", "/home", 4, 60.0, "o", "e", memory_bytes=1 << 30, nice=5)
    >>> words_of(job)[2:]
    [('ntasks', '4'), ('time', '1'), ('output', 'o'), ('error', 'e'), ('mem-per-cpu', '256M'), ('nice', '5')]
    """
    return [(name, None if value is True else str(value)) for name, value in _said(job) if value]


def _said(job: SlurmJob) -> Iterable[tuple[str, object]]:
    return (
        ("job-name", job.name),
        ("chdir", job.folder),
        ("ntasks", job.tasks),
        ("cpus-per-task", job.cpus_per_task if job.cpus_per_task > 1 else 0),
        ("time", minutes(job.walltime_s)),
        ("output", job.output_of(job.stdout)),
        ("error", job.output_of(job.stderr)),
        ("nodes", job.nodes),
        ("mem" if job.memory_nodes else "mem-per-cpu", f"{_mib(job)}M" if job.memory_bytes else ""),
        ("gpus", job.gpus),
        ("bb", job.burst_buffer),
        *((key.option, getattr(job, key.field)) for key in TERMS),
        *((name, getattr(job, name)) for name in _AS_NAMED),
        ("begin", "" if job.begin_s is None else f"uts{job.begin_s}"),
        ("hold", job.held),
    )


def _mib(job: SlurmJob) -> int:
    """Return the memory of each node, or of each core if the number of nodes is not given."""
    return math.ceil(job.memory_bytes / (job.memory_nodes or job.cores) / _MIB)
