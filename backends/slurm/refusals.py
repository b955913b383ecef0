"""The meaning of Slurm's answers to a submission, over both links.

The question is whether a job may have been accepted and, if not, whether Slurm has refused it for good. The table of
known answers is in `answers`. After an answer without a row the job must be looked for.
"""

from __future__ import annotations

import re
from collections.abc import Container

from asa.errors import BackendError, SubmitDeferredError, SubmitRejectedError

from .answers import Meaning, row_of

__all__ = ["LIMIT_NAME", "Meaning", "meaning_of", "refusal_of"]

LIMIT_NAME = re.compile(r"\b(?:Assoc|QOS|Max)[A-Za-z]+")


def meaning_of(number: int | None, text: str) -> Meaning:
    """Return what an answer to a submission means.

    `text`: Slurm's, including a limit's name if it gives one.

    Examples
    --------
    >>> meaning_of(2000, "").name, meaning_of(None, "sbatch: error: Job dependency problem").name
    ('NEVER', 'NEVER')
    >>> meaning_of(1007, "Protocol authentication error").name  # ours, or that of Slurm's answer
    'DOUBT'
    >>> meaning_of(2999, "Invalid colour of the job").name
    'UNKNOWN'
    """
    row = row_of(number, text)
    if row is None:
        return Meaning.UNKNOWN
    if row.meaning is Meaning.LIMIT:
        return Meaning.LATER if _is_limit_of_submissions(text) else Meaning.NEVER
    return row.meaning


def refusal_of(
    meanings: Container[Meaning], words: tuple[str, str], *, where: str | None = None, is_final: bool = False
) -> BackendError | None:
    """Return the error for a job that Slurm has not accepted; None if Slurm may have accepted it.

    `words`: the messages for a job that Slurm may accept later, and for one that it never will. `is_final`: whether it
    never will.
    """
    later, never = words
    if Meaning.LATER in meanings:
        return SubmitDeferredError(later, where=where)
    return SubmitRejectedError(never, where=where) if is_final or Meaning.NEVER in meanings else None


def _is_limit_of_submissions(text: str) -> bool:
    """Whether a limit is on the number of jobs, which passes, and not on the request of the job.

    Slurm may name the limit. At submission it checks each job's own request, so any other limit that it names remains
    exceeded. If it names none, trying later is the safe answer.
    """
    limits = LIMIT_NAME.findall(text)
    return not limits or any("Submit" in limit for limit in limits)
