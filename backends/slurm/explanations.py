"""Explanations of reasons: Slurm's, and those that this backend adds."""

from __future__ import annotations

from asa.backend import Advice

from . import reasons
from .absence import NOT_SHOWN
from .refusals import LIMIT_NAME
from .tracking import DUPLICATE, IGNORED_DEPENDENCY, VANISHED

_ADVICE = {
    DUPLICATE: Advice(
        "Another job with the same payload came first, so this one ran nothing.",
        "Nothing is to be done: a submission whose answer was lost had been accepted after all.",
    ),
    VANISHED: Advice(
        "Slurm does not know the job any more, and nothing tells how it ended.",
        "Look into its output, and submit it again if it did not complete.",
    ),
    NOT_SHOWN: Advice(
        "Slurm does not show the job now. It has begun, nothing says that it ended, its walltime is not over: so it is "
        "taken to run.",
        "Nothing: its script, Slurm's accounting or the end of its walltime decides. If you know that it is gone: asa "
        "cancel, then asa resume --retry.",
    ),
    IGNORED_DEPENDENCY: Advice(
        "Slurm released the job before the job that it depends on had completed, so it was cancelled.",
        "Look into its output for what it did meanwhile, and submit it again.",
    ),
}


def advice(reason: str) -> Advice:
    """Explain why a job is pending, or how it failed.

    Examples
    --------
    >>> advice("Twin").meaning
    'Another job with the same payload came first, so this one ran nothing.'
    """
    if reasons.kind(reason) == "unknown":  # or an answer to a submission, which names a limit
        named = (name for name in LIMIT_NAME.findall(reason) if reasons.kind(name) != "unknown")
        reason = next(named, reason)
    return _ADVICE.get(reason) or reasons.advice(reason)
