"""What Slurm's answers to a submission mean, by whichever link they came.

The question is whether a job can have been accepted, and, if not, whether Slurm has refused it for good. What is known
of that is data, in `answers`. Of what is in no row nobody knows, and the job must be looked for.
"""

from __future__ import annotations

import re

from .answers import Meaning, row_of

__all__ = ["LIMIT_NAME", "Meaning", "meaning_of"]

LIMIT_NAME = re.compile(r"\b(?:Assoc|QOS|Max)[A-Za-z]+")


def meaning_of(number: int | None, words: str) -> Meaning:
    """Say what an answer to a submission means.

    `words`: what Slurm said, a limit's name among it where it tells one.

    Examples
    --------
    >>> meaning_of(2000, "").name, meaning_of(None, "sbatch: error: Job dependency problem").name
    ('NEVER', 'NEVER')
    >>> meaning_of(1007, "Protocol authentication error").name  # ours, or that of Slurm's answer
    'DOUBT'
    >>> meaning_of(2999, "Invalid colour of the job").name
    'UNKNOWN'
    """
    row = row_of(number, words)
    if row is None:
        return Meaning.UNKNOWN
    if row.meaning is Meaning.LIMIT:
        return Meaning.LATER if _is_limit_of_submissions(words) else Meaning.NEVER
    return row.meaning


def _is_limit_of_submissions(said: str) -> bool:
    """Tell a limit on the number of jobs, which passes, from one that the job alone exceeds.

    Slurm may name the limit. At submission it checks what a job asks for by itself, so whatever else it names stays
    exceeded. Where it names nothing, that is not known: later is the careful answer.
    """
    limits = LIMIT_NAME.findall(said)
    return not limits or any("Submit" in limit for limit in limits)
