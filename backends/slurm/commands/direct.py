"""Runs sbatch on this computer directly, since five helper processes for each submission would cost more than sbatch.

With a prefix, such as ssh, a shell at the other end passes sbatch its two inputs (`writing.sbatch`). Here sbatch gets
the script as its input, and the environment from a descriptor.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress

from . import process
from .process import Done

_EXPORT = "--export-file="


def submit_here(command: Sequence[str], script: str, environment: str, timeout_s: float) -> Done:
    """Run the command from `writing.sbatch_command`; the environment is ``NAME=value``, each ended by a null byte.

    Raises `TimeoutError`: it took longer, and was killed. Raises `OSError`: it could not be started.
    """
    argv, variables = unwrapped(command, os.environ)
    descriptor = _open_nameless()
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(environment.encode(errors="surrogateescape"))
        os.lseek(descriptor, 0, os.SEEK_SET)
        argv = [f"{_EXPORT}{descriptor}" if word.startswith(_EXPORT) else word for word in argv]
        return process.run(argv, script, timeout_s, variables=variables, descriptor=descriptor)
    finally:
        os.close(descriptor)


def _open_nameless() -> int:
    """Open a file without a name: in memory, if Python's build supports it, which builds for old systems do not."""
    if (create := getattr(os, "memfd_create", None)) is not None:
        with suppress(OSError):  # old kernels and sandboxes do not support it
            return int(create("environment"))
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def unwrapped(command: Sequence[str], variables: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Apply ``env`` at a command's beginning to variables; return the rest of the command, and the variables.

    Examples
    --------
    >>> unwrapped(["env", "-u", "A", "LC_ALL=C", "squeue", "-h"], {"A": "1", "B": "2"})
    (['squeue', '-h'], {'B': '2', 'LC_ALL': 'C'})
    """
    words, changed = list(command), dict(variables)
    if words[:1] != ["env"]:
        return words, changed
    del words[0]
    while words and (words[0] == "-u" or "=" in words[0]):
        if words[0] == "-u":
            changed.pop(words[1], None)
            del words[:2]
        else:
            name, _, value = words.pop(0).partition("=")
            changed[name] = value
    return words, changed
