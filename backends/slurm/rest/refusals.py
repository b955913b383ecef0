"""What slurmrestd's refusals mean. The numbers are those of Slurm's ``slurm_errno.h``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from asa.errors import (
    AccessError,
    BackendError,
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)

from .reading import listed, text, whole

__all__ = ["ACCESS_DENIED", "ALREADY_DONE", "NOTHING_FOUND", "UNKNOWN_JOB", "Complaint", "complaints", "refusal"]
__all__ += ["TOO_WIDE", "has_unauthorised", "submit_refusal", "told", "unreadable"]

UNKNOWN_JOB = 2017
ACCESS_DENIED = 2002
ALREADY_DONE = frozenset({2021, 2084})  # already completing or completed; finished
NOTHING_FOUND = 9003
TOO_WIDE = 7007  # a span of time longer than the database gives at once
_UNAUTHORISED = frozenset({1007, 6000, 6001, 6004, 6007, 6009, 6010, 9008})
_DEFERRED = frozenset({
    2007,  # the controller has too many jobs
    2016,  # nodes busy
    2019,  # the controller cannot write the script: its disk is full
    2027,  # the controller is in standby
    2040,  # licences taken
    2050,  # a limit of the user's, the account's or the QOS's jobs
    2055,  # reservation busy
    2059,  # ports busy
    2068,  # nodes not available
    2070,  # partition not available
    2100,  # burst buffer
    2101,  # partition down
    2105,  # submissions disabled
    2118,  # maintenance
    2120,  # reboot in progress
    2125,  # scheduling deferred
    2131,  # standby: use the backup
    2178,  # too many nodes powered up
})  # fmt: skip
_INTERNAL = 2090


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error or a warning in an answer: Slurm's number, None if it has none, and words."""

    number: int | None
    words: str

    @property
    def is_refusal(self) -> bool:
        """Slurm read the request and said no; anything else may be trouble on the way."""
        number = self.number or 0
        return (2000 <= number < 3000 and number != _INTERNAL) or number == 8000 or 9000 <= number < 9400


def complaints(document: Mapping[str, Any], key: str = "errors") -> list[Complaint]:
    """Read an answer's errors, or its warnings, whatever the version."""
    return [_complaint(entry) for entry in listed(document.get(key)) if entry]


def _complaint(entry: Any) -> Complaint:
    if not isinstance(entry, Mapping):
        return Complaint(None, text(entry))
    number = whole(entry.get("error_number"))
    number = whole(entry.get("error_code")) if number is None else number
    error, description = text(entry.get("error")), text(entry.get("description"))
    words = description if error in description else error if not description else f"{error} ({description})"
    return Complaint(number, words)


def told(found: list[Complaint]) -> str:
    """Say complaints in a line, in Slurm's words."""
    return "; ".join(dict.fromkeys(complaint.words for complaint in found if complaint.words)) or "no reason given"


def has_unauthorised(found: list[Complaint]) -> bool:
    """Whether Slurm did not believe who asks."""
    return any(complaint.number in _UNAUTHORISED for complaint in found)


def refusal(status: int, found: list[Complaint], what: str) -> BackendError:
    """Make the error for an answer that is no success, to anything but a submission."""
    numbers = [complaint.number for complaint in found]
    message = f"{what}: {told(found)}" if found else f"{what}: HTTP status {status}"
    if UNKNOWN_JOB in numbers:
        return JobNotFoundError(message)
    if has_unauthorised(found):
        return AccessError(message, hint="Make a new token: scontrol token")
    if any(complaint.is_refusal for complaint in found) or 400 <= status < 429:
        return BackendError(message)
    return UnavailableError(message, hint="slurmrestd answers, the controller or the database behind it does not.")


def unreadable(status: int, found: list[Complaint], what: str) -> UnavailableError:
    """Make the error for an answer that does not tell what was asked."""
    message = f"{what}: {told(found)}" if found else f"{what}: HTTP status {status}"
    if has_unauthorised(found) or any(complaint.number == ACCESS_DENIED for complaint in found):
        return AccessError(message)
    return UnavailableError(message)


def submit_refusal(status: int, found: list[Complaint], user_message: str = "") -> BackendError:
    """Make the error for a submission that was not accepted, or of which that is not sure."""
    words = "; ".join(_unique((told(found) if found else f"HTTP status {status}", user_message)))
    if has_unauthorised(found):
        return AccessError(f"the job was not submitted: {words}", hint="Make a new token: scontrol token")
    if status == 429 or any(complaint.number in _DEFERRED for complaint in found):
        return SubmitDeferredError(f"Slurm does not accept the job now: {words}")
    if any(complaint.is_refusal for complaint in found) or status in {400, 404, 405, 413, 415, 422}:
        return SubmitRejectedError(f"Slurm refuses the job: {words}")
    return SubmitInDoubtError(f"it is not known whether Slurm accepted the job: {words}")


def _unique(words: tuple[str, ...]) -> Iterator[str]:
    return iter(dict.fromkeys(word for word in words if word))
