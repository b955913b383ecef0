"""The meaning of slurmrestd's refusals. Numbers are from Slurm's ``slurm_errno.h``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asa.errors import (
    AccessError,
    BackendError,
    JobNotFoundError,
    SubmitInDoubtError,
    UnavailableError,
)

from ..answers import Meaning
from ..refusals import meaning_of, refusal_of
from .reading import listed, text, whole

if TYPE_CHECKING:
    from .exchange import RestAnswer

UNKNOWN_JOB = 2017
ACCESS_DENIED = 2002
ALREADY_DONE = frozenset({2021, 2084})  # already completing, completed or finished
OTHER_NAME = 2172  # the job "cannot be signalled", since its name is not the given one
NOTHING_FOUND = 9003
TOO_WIDE = 7007  # the time span is longer than the database returns at once
_UNAUTHORISED = frozenset({1007, 6000, 6001, 6004, 6007, 6009, 6010, 9008})
_INTERNAL = 2090
_MAX_TEXT_BYTES = 300
_NOT_CARRIED_OUT = frozenset({400, 404, 405, 413, 415, 422})
_NO_REASON = -1  # returned by a site's own check of jobs, besides its message


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error or a warning in an answer: its number and text."""

    number: int | None  # Slurm's number of the error; None if it has none
    text: str

    @property
    def is_refusal(self) -> bool:
        """Whether Slurm read the request and refused it; otherwise the connection may be the problem."""
        number = self.number or 0
        return (2000 <= number < 3000 and number != _INTERNAL) or number == 8000 or 9000 <= number < 9400


def complaints(document: Mapping[str, Any], key: str = "errors") -> list[Complaint]:
    """Return an answer's errors, or its warnings, for any version."""
    return [_complaint(entry) for entry in listed(document.get(key)) if entry]


def in_plain_text(answer: RestAnswer) -> list[Complaint]:
    """Return slurmrestd's messages in plain text, as for an unreadable request; none if another program wrote them."""
    is_from_slurm = 400 <= answer.status < 500  # other errors may be a gateway's
    if not is_from_slurm or answer.document() or not answer.content_type.startswith("text/plain"):
        return []
    text = " ".join(answer.body[:_MAX_TEXT_BYTES].decode(errors="replace").split())
    return [Complaint(None, text)] if text else []


def _complaint(entry: Any) -> Complaint:
    if not isinstance(entry, Mapping):
        return Complaint(None, text(entry))
    number = whole(entry.get("error_number"))
    number = whole(entry.get("error_code")) if number is None else number
    error, description = text(entry.get("error")), text(entry.get("description"))
    words = description if error in description else error if not description else f"{error} ({description})"
    return Complaint(number, words)


def summary(complaints: list[Complaint]) -> str:
    """Return complaints in one line, in Slurm's words."""
    return "; ".join(dict.fromkeys(complaint.text for complaint in complaints if complaint.text)) or "no reason given"


def has_unauthorised(complaints: list[Complaint]) -> bool:
    """Whether authentication failed."""
    return any(complaint.number in _UNAUTHORISED for complaint in complaints)


def refusal(status: int, complaints: list[Complaint], what: str) -> BackendError:
    """Return the error for a failed request other than a submission."""
    numbers = [complaint.number for complaint in complaints]
    message = f"{what}: {summary(complaints)}" if complaints else f"{what}: HTTP status {status}"
    if UNKNOWN_JOB in numbers:
        return JobNotFoundError(message)
    if has_unauthorised(complaints):
        return AccessError(message, hint="Make a new token: scontrol token")
    if any(complaint.is_refusal for complaint in complaints) or 400 <= status < 429:
        return BackendError(message)
    return UnavailableError(message, hint="slurmrestd answers, the controller or the database behind it does not.")


def unreadable(status: int, complaints: list[Complaint], what: str) -> UnavailableError:
    """Return the error for an answer without the requested data."""
    message = f"{what}: {summary(complaints)}" if complaints else f"{what}: HTTP status {status}"
    if has_unauthorised(complaints) or any(complaint.number == ACCESS_DENIED for complaint in complaints):
        return AccessError(message)
    return UnavailableError(message)


def submit_refusal(status: int, complaints: list[Complaint], user_message: str = "") -> BackendError:
    """Return the error for a submission that was not accepted, or is in doubt."""
    what = summary(complaints) if complaints else f"HTTP status {status}"
    text = "; ".join(dict.fromkeys(word for word in (what, user_message) if word))
    meanings = {meaning_of(complaint.number, f"{complaint.text} {user_message}") for complaint in complaints}
    answers = (f"Slurm does not accept the job now: {text}", f"Slurm refuses the job: {text}")
    is_final = bool(user_message) and any(complaint.number == _NO_REASON for complaint in complaints)
    if refusal := refusal_of(meanings | ({Meaning.LATER} if status == 429 else set()), answers, is_final=is_final):
        return refusal
    if Meaning.AWAY in meanings:
        return UnavailableError(f"the job was not submitted: {text}")
    if status in _NOT_CARRIED_OUT:  # refused by slurmrestd with an unknown message, or by a proxy before it
        return UnavailableError(f"the job was not submitted: {text}", is_unexplained=True)
    is_unexplained = bool(complaints) and meanings <= {Meaning.UNKNOWN}
    return SubmitInDoubtError(f"it is not known whether Slurm accepted the job: {text}", is_unexplained=is_unexplained)
