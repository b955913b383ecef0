"""Values of options as sbatch reads them: it accepts less than a workflow file does, and some other spellings.

Found with the programs and controllers of Slurm 22.05 and 26.05.
"""

from __future__ import annotations

import re

from asa.core.patterns import pattern
from asa.errors import InputError
from asa.units import parse_duration, parse_memory

_MEMORY = pattern(r"\d+(?:[kKmMgGtT][bB]?)?")
_TIME = re.compile(r"\d+(?:-\d*)?(?::\d+){0,2}")
_ENDLESS = frozenset({"-1", "infinite", "unlimited"})


def memory_bytes(text: str) -> int:
    """Read an amount of memory, which has no fraction.

    Raises `InputError`: sbatch refuses it.

    Examples
    --------
    >>> memory_bytes("4GB")
    4294967296
    """
    if not _MEMORY.fullmatch(text):
        raise InputError(f"{text!r} is no memory size that sbatch takes", hint="Write 1536M for 1.5G.")
    return parse_memory(text)


def walltime_s(text: str) -> float:
    """Read a time limit in seconds; 0 for no limit, as with 00:00:00.

    Raises `InputError`: sbatch refuses it.

    Examples
    --------
    >>> [walltime_s(text) for text in ("90", "1-", "00:00:00", "UNLIMITED")]
    [5400.0, 86400.0, 0.0, 0.0]
    """
    if text.lower() in _ENDLESS:
        return 0.0
    if not _TIME.fullmatch(text):
        hint = "Write minutes, or hours:minutes:seconds, or days-hours; units are for workflow files."
        raise InputError(f"{text!r} is no time limit that sbatch takes", hint=hint)
    if not text.strip("0:-"):
        return 0.0
    return parse_duration(f"{text}0" if text.endswith("-") else text)


def node_count(text: str) -> int:
    """Read the lower bound of a job's nodes.

    Raises `InputError`: sbatch refuses the text, or it is no number of nodes.

    Examples
    --------
    >>> [node_count(text) for text in ("2", "2-4", "+2", "1k")]
    [2, 2, 2, 1024]
    """
    # 26.05 also accepts lists and steps
    match = re.fullmatch(r"\+?(\d+)([kK]?)(?:-(\d*)([kK]?))?(?:[,:][\dkK,:-]*)?", text)
    if match is None or not int(match[1]):
        raise InputError(f"{text!r} is no number of nodes", hint="Write a number.")
    least = int(match[1]) * (1024 if match[2] else 1)
    if match[3] is not None and least > int(match[3] or 0) * (1024 if match[4] else 1):
        raise InputError(f"{text!r} has fewer nodes at most than at least", hint="Write the least first, as in 2-4.")
    return least
