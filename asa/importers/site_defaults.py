"""Defaults of the batch system for jobs, asked of Slurm if its commands are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

from asa.core.reading import TooLargeError, run_command
from asa.errors import InputError
from asa.requests.values import walltime_s

_PATIENCE_S = 10.0
_FIELD = re.compile(r"\b(PartitionName|Default|DefaultTime|MaxTime)=(\S+)")


def default_walltime_s(partition: str) -> float | None:
    """Return the time limit of jobs that ask for none, in a partition; in the default partition if it is empty.

    None if no Slurm answers, if such jobs have no limit, or if several partitions are named.
    """
    if (scontrol := shutil.which("scontrol")) is None:
        return None
    for entry in _partitions(scontrol):
        if entry["PartitionName"] == partition or (not partition and entry.get("Default") == "YES"):
            default = entry.get("DefaultTime", "NONE")
            try:
                return walltime_s(entry.get("MaxTime", "UNLIMITED") if default == "NONE" else default) or None
            except InputError:
                return None
    return None


@cache
def _partitions(scontrol: str) -> tuple[dict[str, str], ...]:
    """Return the settings of all partitions; none if Slurm does not answer, as away from the cluster."""
    try:
        done = run_command([scontrol, "show", "partition", "--oneliner"], timeout_s=_PATIENCE_S)
    except (OSError, subprocess.SubprocessError, TooLargeError):
        return ()
    entries = (dict(_FIELD.findall(line)) for line in done.stdout.splitlines())
    return tuple(entry for entry in entries if "PartitionName" in entry)
