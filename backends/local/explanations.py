"""Explanations of reasons."""

from __future__ import annotations

from typing import Final

from asa.backend import Advice

LOST: Final = "Lost"
"""Reason of a job that vanished without an exit code."""

PAYLOAD_COMPLETED: Final = "EndedWell"
"""Reason of a job whose payload had completed when the job was ended."""
DUPLICATE: Final = "Twin"
"""Reason of a job that ran nothing, since another job of its token has the payload."""

_ADVICE = {
    "Resources": Advice(
        "All cores that it may have are taken by other jobs, and it is the next to start.",
        "Wait, or give the queue more cores with --option cores=N if they are there.",
    ),
    "Priority": Advice("Other jobs were submitted earlier, and go first: here nobody overtakes."),
    "Dependency": Advice("It waits for a job that has not come so far."),
    "DependencyNeverSatisfied": Advice(
        "A job that it depends on did not complete, so it can never start.", "Cancel it."
    ),
    "BeginTime": Advice("It is not to begin before a time that has not come."),
    "JobHeldUser": Advice("It is held back.", "It starts once it is released."),
    "TimeLimit": Advice("It ran for all of its walltime, and was signalled to end.", "Ask for more walltime."),
    "NonZeroExitCode": Advice("Its command ended with an exit code other than 0."),
    DUPLICATE: Advice(
        "Another job with the same payload came first, so this one ran nothing.",
        "Nothing is to be done: a submission that was in doubt had been accepted after all.",
    ),
    LOST: Advice(
        "Its processes were killed from outside, as by a lack of memory, or the computer was started anew.",
        "Look into its output and the system's log (dmesg), and run it again.",
    ),
    "OutputUnwritable": Advice(
        "It did not begin, as its output cannot be written into the run's folder.",
        "Free disk space or fix the permissions there, and run it again.",
    ),
    "BrokenFile": Advice("Its file in the queue's folder cannot be understood: it was damaged.", "Submit it again."),
}
_CANNOT_START = "CannotStart: "


def advice(reason: str) -> Advice:
    """Explain why a job is pending, or how it failed.

    Examples
    --------
    >>> advice("Priority").meaning
    'Other jobs were submitted earlier, and go first: here nobody overtakes.'
    """
    if reason.startswith(_CANNOT_START):
        return Advice(
            f"Its first process could not be started: {reason.removeprefix(_CANNOT_START)}.",
            "If the list of arguments is too long, its environment is: start asa with fewer variables.",
        )
    return _ADVICE.get(reason, Advice(f"This machine's queue says: {reason}."))
