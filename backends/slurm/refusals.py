"""What Slurm's answers to a submission mean, by whichever link they came.

The question is whether a job can have been accepted. Slurm has a number and words for each answer (``slurm_errno.h``):
slurmrestd tells both, its commands the words only. What says no is listed here, for good or for now; of anything else
nobody knows, and the job must be looked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class Meaning(Enum):
    """What became of a submission."""

    NEVER = auto()
    """Slurm will never accept it."""
    LATER = auto()
    """Slurm does not accept it now."""
    AWAY = auto()
    """It reached nobody who could accept it."""
    DOUBT = auto()
    """It may have been accepted."""


_LATER: Final[Mapping[int, str]] = {
    2007: "Unable to create job record, try again",
    2016: "Requested nodes are busy",
    2019: "I/O error writing script/environment to file",  # the controller's disk is full
    2055: "Requested reservation is in use",
    2059: "Required ports are in use",
    2068: "Required node not available",
    2070: "Required partition not available",
    2100: "Waiting for burst buffer",
    2101: "Partition in DOWN state",
    2103: "the DB index is being set",
    2105: "System submissions disabled",
    2118: "Job can not start due to maintenance reservation",
    2120: "Reboot already in progress",
    2125: "Individual job submission scheduling attempts deferred",
}
_LATER_WORDS: Final = (
    *_LATER.values(),
    "Max powered up nodes reached",
    "Slurm temporarily unable to accept job",
    "Resource temporarily unavailable",
    "Slurm job queue full",
    "Job creation temporarily disabled",
    "MaxJobCount",
)
_AWAY: Final[Mapping[int, str]] = {
    1800: "Unable to contact slurm controller (connect failure)",
    2027: "Slurm backup controller in standby mode",
    2131: "Controller is in standby mode",
}
_IN_DOUBT: Final = frozenset({2090})  # an internal error may come after the job was made
_POLICY: Final = (2050, "Job violates accounting/QOS policy")
LIMIT_NAME = re.compile(r"\b(?:Assoc|QOS|Max)[A-Za-z]+")
_NEVER_WORDS: Final = (
    "Access/permission denied",
    "Access denied to requested reservation",
    "Burst Buffer permission denied",
    "Burst Buffer request invalid",
    "Burst Buffer resource limit exceeded",
    "CPU count specification invalid",
    "Circular job dependency",
    "Current SwitchType does not permit arbitrary task distribution",
    "Duplicate generic resource (gres) specification",
    "Duplicate job id",
    "Environment is missing in job",
    "Immediate execution impossible",
    "Insufficient GRES available in allocation",
    "Invalid --nice value",
    "Invalid account or account/partition combination specified",
    "Invalid feature specification",
    "Invalid generic resource (gres) specification",
    "Invalid GRES specification",
    "Invalid group id",
    "Invalid job array specification",
    "Invalid job id specified",
    "Invalid license specification",
    "Invalid mcs_label specified",
    "Invalid node name specified",
    "Invalid partition name specified",
    "Invalid preferred feature specification",
    "Invalid qos specification",
    "Invalid time specified",
    "Invalid time-min specification",
    "Invalid Trackable RESource (TRES) specification",
    "Invalid user id",
    "Invalid wckey specification",
    "Job --batch option is invalid",
    "Job can not start immediately",
    "Job dependency problem",
    "Job script not specified",
    "Job size specification needs to be provided",
    "Memory required by task is not available",
    "More processors requested than permitted",
    "Multiple KNL NUMA and/or MCDRAM constraints",
    "Multiple partition job request not supported",
    "No partition specified or system default partition",
    "Node count specification invalid",
    "Only batch jobs are accepted or processed",
    "Pathname of a file, directory or other parameter too long",
    "Requested GRES option unsupported",
    "Requested account has breached requested QOS usage threshold",
    "Requested more tasks than available processors",
    "Requested node configuration is not available",
    "Requested nodes not in this partition",
    "Requested operation is presently disabled",
    "Requested operation not supported on this system",
    "Requested partition configuration not available now",
    "Requested reservation is invalid",
    "Requested reservation not usable now",
    "Requested time limit is invalid",
    "Requires more ports than can be reserved",
    "Task count specification invalid",
    "Task distribution specification invalid",
    "Time limit specification required, but not provided",
    "User's group not permitted to use this partition",
    "X11 forwarding not available",
)


def meaning_of(number: int | None, words: str) -> Meaning:
    """Say what an answer to a submission means.

    `words`: what Slurm said, a limit's name among it where it tells one.

    Examples
    --------
    >>> meaning_of(2000, "").name, meaning_of(None, "sbatch: error: Job dependency problem").name
    ('NEVER', 'NEVER')
    >>> meaning_of(1007, "Protocol authentication error").name  # ours, or that of Slurm's answer
    'DOUBT'
    """
    if number in _IN_DOUBT:
        return Meaning.DOUBT
    if number == _POLICY[0] or _POLICY[1] in words:
        return Meaning.LATER if _is_limit_of_submissions(words) else Meaning.NEVER
    if number in _AWAY or any(known in words for known in _AWAY.values()):
        return Meaning.AWAY
    if number in _LATER or any(known in words for known in _LATER_WORDS):
        return Meaning.LATER
    if _is_refusal(number or 0) or any(known in words for known in _NEVER_WORDS):
        return Meaning.NEVER
    return Meaning.DOUBT


def _is_refusal(number: int) -> bool:
    """Say whether the controller, or slurmrestd before it, has a number for its no."""
    return 2000 <= number < 3000 or number == 8000 or 9000 <= number < 9400


def _is_limit_of_submissions(said: str) -> bool:
    """Tell a limit on the number of jobs, which passes, from one that the job alone exceeds.

    Slurm may name the limit. At submission it checks what a job asks for by itself, so whatever else it names stays
    exceeded. Where it names nothing, that is not known: later is the careful answer.
    """
    limits = LIMIT_NAME.findall(said)
    return not limits or any("Submit" in limit for limit in limits)
