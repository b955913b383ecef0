"""Drivers that are batch jobs themselves: the options of their own jobs, and the variables that these set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asa.core.documents import read_text
from asa.errors import InputError
from asa.requests.directives import Directive, by_name, read_directives
from asa.requests.sizes import read_needs, text_of


def own_options(path: Path) -> tuple[Directive, ...]:
    """Read the options in a driver that is a batch script itself."""
    try:
        return options_of_text(read_text(path, errors="replace"), path)
    except OSError:
        return ()


def options_of_text(text: str, path: Path) -> tuple[Directive, ...]:
    """Read the options in a driver's text; none if it is no batch script."""
    try:
        return tuple(read_directives(text, str(path))) if text.startswith("#!") else ()
    except InputError:
        return ()


def variables_of(number: int, options: Sequence[Directive], folder: Path, script: Path) -> dict[str, str]:
    """Return the variables of a driver that is a batch job, as far as its options determine them."""
    given = by_name(options)
    needs = read_needs(given, lambda *_: None)
    nodes = max(needs.nodes, 1)
    values = {
        "JOB_ID": number, "JOBID": number, "SUBMIT_DIR": folder, "JOB_NAME": text_of(given, "job-name") or script.name,
        "NTASKS": needs.tasks, "NPROCS": needs.tasks, "JOB_NUM_NODES": nodes, "NNODES": nodes,
        "CPUS_ON_NODE": -(-needs.cores // nodes), "JOB_NODELIST": "localhost",
        "CPUS_PER_TASK": text_of(given, "cpus-per-task"), "NTASKS_PER_NODE": text_of(given, "ntasks-per-node"),
        "JOB_PARTITION": text_of(given, "partition"), "JOB_ACCOUNT": text_of(given, "account"),
    }  # fmt: skip
    return {f"SLURM_{name}": str(value) for name, value in values.items() if value}
