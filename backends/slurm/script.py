"""The batch script of a job of Slurm: as everywhere, but for where it finds its number."""

from __future__ import annotations

from asa.backends.shell import script
from asa.backends.shell.script import (
    LONGEST_COMMAND_BYTES,
    TWIN_EXIT,
    UNABLE_EXIT,
    Payload,
    file_name,
    is_utf8,
    job_name,
    token_of_file,
    traits,
)

__all__ = [
    "LONGEST_COMMAND_BYTES",
    "TWIN_EXIT",
    "UNABLE_EXIT",
    "Payload",
    "batch_script",
    "file_name",
    "is_utf8",
    "job_name",
    "token_of_file",
    "traits",
]


def batch_script(payload: Payload) -> str:
    """Write the batch script of a payload; see `asa.backends.shell.script.batch_script`."""
    return script.batch_script(payload, "SLURM_JOB_ID")
