"""What Slurm's commands, ssh and the shell say when something does not work, as errors.

Everything turns on one question: can a job have been accepted? What Slurm itself says is looked up in `..refusals`,
what ssh and the shell say here; of what is not understood nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from asa.errors import (
    AccessError,
    BackendError,
    JobNotFoundError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
    UnavailableError,
)

from ..refusals import Meaning, meaning_of
from .process import Done

_NOT_THERE = (
    "env: ",  # cannot find or run the program
    "command not found",
    ": not found",
)
_NO_ACCESS = (
    "Permission denied (",  # ssh's, with the methods that it tried
    "Host key verification failed",
    "Munge encode failed",  # before anything is sent
)
_NO_LOGIN = ("ssh: connect to host", "ssh: Could not resolve hostname")
_NO_CONNECTION = (
    *_NO_LOGIN,
    "(connect failure)",
    "Could not establish a configuration source",
    "failed to fetch config",
    "in standby mode",
)
# The request may have been processed: the connection was made.
_LOST = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "(send failure)",
    "(receive failure)",
    "(shutdown failure)",
    "Unexpected message received",
    "Message send failure",
    "Message receive failure",
    "Protocol authentication error",
    "Insane message length",
    "Header lengths are longer than data received",
    "Connection reset",
    "Connection timed out",
    "Broken pipe",
)
_FAILED = "Batch job submission failed:"
_SBATCH_SAYS = re.compile(rf"(?m)^sbatch: |{_FAILED}")
_SITE_SAYS = re.compile(rf"(?m)^sbatch: error: (?!{_FAILED})")
_NO_REASON = "Unspecified error"  # what a site's own check of jobs gives, beside its words
_UNKNOWN_JOB = ("Invalid job id",)
_ENDED = ("Job/step already completing or completed", "Job has already finished")
_NO_ACCOUNTING = ("accounting storage is disabled", "Access/permission denied", "You are not running a supported")
_LAST_SIGNAL = 128 + 64
_MAX_WORDS = 1000
_COMMANDS_HINT = "Slurm's commands must be found where they run: on a login node, with the site's module loaded."
_DOWN_HINT = "Slurm's controller may be down, or out of reach, for now."


def words(done: Done) -> str:
    """Tell what a command said, in one line."""
    said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    return said[:_MAX_WORDS] or f"no word, {how}"


def is_unknown_job(done: Done) -> bool:
    """Tell whether Slurm does not know the job."""
    return _says(done, _UNKNOWN_JOB)


def has_ended(done: Done) -> bool:
    """Tell whether the job has ended already."""
    return _says(done, _ENDED)


def has_no_accounting(done: Done) -> bool:
    """Tell whether there is no accounting here, or none for this user: for good, not for now."""
    return _says(done, _NO_ACCOUNTING) or (_is_not_there(done) and not _says(done, _NO_CONNECTION + _NO_ACCESS))


def not_started(program: str, error: OSError) -> UnavailableError:
    """Say that a command, or the first one of its prefix, could not be started."""
    return UnavailableError(f"cannot be run: {error.strerror or error}", where=program, hint=_COMMANDS_HINT)


def reading_failed(program: str, done: Done) -> UnavailableError:
    """Say why Slurm could not be asked. Nothing is known to be wrong for good: it may be asked again."""
    if _is_not_there(done):
        return UnavailableError(f"cannot be run: {words(done)}", where=program, hint=_COMMANDS_HINT)
    if _says(done, (*_NO_ACCESS, "Protocol authentication error", "Access/permission denied")):
        return AccessError(f"lets nobody in: {words(done)}", where=program)
    return UnavailableError(f"no answer: {words(done)}", where=program, hint=_DOWN_HINT)


def refused(program: str, job_id: str, done: Done) -> BackendError:
    """Say why a job was not changed."""
    if _says(done, _UNKNOWN_JOB):
        return JobNotFoundError(f"Slurm does not know job {job_id}", where=program)
    if _is_not_there(done) or _says(done, (*_NO_ACCESS, *_NO_CONNECTION, *_LOST)) or _is_killed(done):
        return reading_failed(program, done)
    return BackendError(f"job {job_id} was not changed: {words(done)}", where=program)


def submission(name: str, done: Done) -> BackendError:
    """Say why a submission gave no job id, and whether the job may have been accepted all the same."""
    said = words(done)
    if done.returncode == 0 or _is_killed(done):
        return in_doubt(name, said)
    if _is_not_there(done) or _says(done, (*_NO_ACCESS, *_NO_LOGIN)):
        return reading_failed("sbatch", done)
    if _says(done, _LOST) or not _SBATCH_SAYS.search(done.stderr):
        return in_doubt(name, said)
    if _says(done, _NO_CONNECTION):
        return reading_failed("sbatch", done)
    return _sorted(name, done, said)


def _sorted(name: str, done: Done, said: str) -> BackendError:
    """Say what sbatch's own words mean. Before it has sent anything it says what is wrong, and not that it failed."""
    meaning = meaning_of(None, done.stderr)
    if meaning is Meaning.AWAY:
        return reading_failed("sbatch", done)
    if meaning is Meaning.LATER:
        return SubmitDeferredError(f"is not accepted now: {said}", where=name)
    is_refused_here = _NO_REASON in done.stderr and _SITE_SAYS.search(done.stderr)
    if meaning is Meaning.NEVER or _FAILED not in done.stderr or is_refused_here:
        return SubmitRejectedError(f"Slurm refuses it: {said}", where=name)
    return in_doubt(name, said)


def in_doubt(name: str, why: str) -> SubmitInDoubtError:
    """Say that nobody knows whether a job was accepted."""
    return SubmitInDoubtError(f"may have been submitted or not: {why}", where=name)


def _is_not_there(done: Done) -> bool:
    return done.returncode in {126, 127} and _says(done, _NOT_THERE)


def _is_killed(done: Done) -> bool:
    return done.returncode < 0 or 128 < done.returncode <= _LAST_SIGNAL  # as a shell tells it


def _says(done: Done, parts: Sequence[str]) -> bool:
    said = f"{done.stderr}\n{done.stdout}" if done.returncode else done.stderr
    return any(part in said for part in parts)
