"""The batch script of a job of Slurm: as everywhere, but for where it finds its number."""

from __future__ import annotations

from asa.backends.shell import script
from asa.backends.shell.script import Payload

__all__ = ["LONGEST_SCRIPT_BYTES", "batch_script"]

LONGEST_SCRIPT_BYTES = 4 << 20
"""Slurm takes no longer script, unless its administrators set `max_script_size`."""


def batch_script(payload: Payload) -> str:
    """Write the batch script of a payload; see `asa.backends.shell.script.batch_script`."""
    return script.batch_script(payload, "SLURM_JOB_ID")
