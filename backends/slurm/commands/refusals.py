"""Turns failures of Slurm's commands, ssh and the shell into errors.

Two questions matter: may a job have been accepted and, if not, was it refused for good? The texts are looked up in
`..answers`. sbatch says that a submission failed only after it has sent the request. Its other errors come before that,
and are about the request itself, or about something that it could not read, load or reach.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from asa.errors import (
    AccessError,
    BackendError,
    JobNotFoundError,
    SubmitInDoubtError,
    UnavailableError,
)

from ..answers import Meaning, rows_in
from ..refusals import meaning_of, refusal_of
from .process import Done

_NOT_THERE = (
    "env: ",  # `env` cannot find or run the program
    "command not found",
    ": not found",
)
_NO_ACCESS = (
    "Permission denied (",  # of ssh, followed by the methods that it tried
    "Host key verification failed",
    "Too many authentication failures",
    "Munge encode failed",  # before anything is sent
    "Protocol authentication error",
    "Access/permission denied",
)
_FAILED = "Batch job submission failed:"
_SBATCH_SAYS = re.compile(rf"(?m)^sbatch: |{_FAILED}")
_TESTED = "allocation failure: "  # instead of `_FAILED`, if only a test was requested
# sbatch sent nothing, although it says that the submission failed
_NOT_SENT = ("Munge encode failed", "auth_g_create: ")
_SITE_SAYS = re.compile(rf"(?m)^sbatch: error: (?!{_FAILED})")
_NO_REASON = "Unspecified error"  # returned by a site's own check of jobs, besides its message
_UNKNOWN_JOB = ("Invalid job id",)
_ENDED = ("Job/step already completing or completed", "Job has already finished")
_NO_ACCOUNTING = ("accounting storage is disabled", "Access/permission denied", "You are not running a supported")
_LAST_SIGNAL = 128 + 64
_TAKES_NOT = ": does not take the option "
_MAX_WORDS = 1000
_COMMANDS_HINT = "Slurm's commands must be found where they run: on a login node, with the site's module loaded."
# as getopt of the GNU, musl and BSD C libraries says it
_NO_OPTION = re.compile(r"(?m)^\S+: (?:unrecognized|unknown|invalid|illegal) option(?:: | -- | )'?(?P<option>[^'\s]+)")
_OPTION_HINT = (
    "asa needs that option, which Slurm has had since 20.02. A program of the site may stand before Slurm's: look with "
    "type -a {program} and {program} --version, put Slurm's own first in PATH, or ask the site's staff."
)
_NO_CONFIGURATION = ("Could not establish a configuration source",)
_BARE_HINT = "Slurm's commands are installed, but know no cluster: load the site's module, or set SLURM_CONF."
_DOWN_HINT = "Slurm's controller may be down, or out of reach, for now."
_AWAY_HINT = "Slurm, its configuration, or the way to it is not there for now; it is tried again."


def words(done: Done) -> str:
    """Return a command's message in one line."""
    text = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    return text[:_MAX_WORDS] or f"no word, {how}"


def is_unknown_job(done: Done) -> bool:
    """Whether Slurm does not know the job."""
    return _says(done, _UNKNOWN_JOB)


def is_missing(done: Done) -> bool:
    """Whether there is no such program where it was to run."""
    return _is_not_there(done)


def has_ended(done: Done) -> bool:
    """Whether the job has already ended."""
    return _says(done, _ENDED)


def has_no_accounting(done: Done) -> bool:
    """Whether there is permanently no accounting here, or none for this user."""
    return _says(done, _NO_ACCOUNTING) or (_is_not_there(done) and not _is_away(done))


def refused_option(done: Done) -> str:
    """Return the option, as it is typed, that a command does not take and has therefore done nothing; empty if none.

    Examples
    --------
    >>> [refused_option(Done(1, "", f"squeue: {text}")) for text in
    ...     ("unrecognized option '--local'", "invalid option -- 'O'", "error: Invalid user: ada")]
    ['--local', '-O', '']
    """
    found = _NO_OPTION.search(done.stderr) if done.returncode else None
    if found is None:
        return ""
    option = found["option"].partition("=")[0]
    return option if option.startswith("-") else f"-{option}" if len(option) == 1 else f"--{option}"


def remedy_of(trouble: str) -> str:
    """Return what a user can do about a trouble that is more than waiting; empty if nothing.

    Examples
    --------
    >>> remedy_of("squeue: does not take the option -O: squeue: invalid option -- 'O'").partition(".")[0]
    'asa needs that option, which Slurm has had since 20'
    >>> remedy_of("squeue: no answer")
    ''
    """
    program, is_refused, _ = trouble.partition(_TAKES_NOT)
    return _OPTION_HINT.format(program=program.rpartition(" ")[2]) if is_refused else ""


def not_started(program: str, error: OSError) -> UnavailableError:
    """Return the error for a command, or the first command of its prefix, that could not be started."""
    return UnavailableError(f"cannot be run: {error.strerror or error}", where=program, hint=_COMMANDS_HINT)


def reading_failed(program: str, done: Done) -> UnavailableError:
    """Return the error for a failed query, which may be repeated: no permanent cause is known."""
    if _is_not_there(done):
        return UnavailableError(f"cannot be run: {words(done)}", where=program, hint=_COMMANDS_HINT)
    if _says(done, _NO_ACCESS):
        return AccessError(f"lets nobody in: {words(done)}", where=program)
    if option := refused_option(done):
        hint = _OPTION_HINT.format(program=program)
        return UnavailableError(f"does not take the option {option}: {words(done)}", where=program, hint=hint)
    no_answer = UnavailableError(f"no answer: {words(done)}", where=program, hint=_DOWN_HINT)
    return no_configuration(program, done) or no_answer


def no_configuration(program: str, done: Done) -> UnavailableError | None:
    """Return the error for a command that knows no cluster; None for another failure."""
    if not _says(done, _NO_CONFIGURATION):
        return None
    return UnavailableError("finds no configuration of Slurm on this computer", where=program, hint=_BARE_HINT)


def refused(program: str, job_id: str, done: Done) -> BackendError:
    """Return the error for a job that was not changed."""
    if _says(done, _UNKNOWN_JOB):
        return JobNotFoundError(f"Slurm does not know job {job_id}", where=program)
    if _is_not_there(done) or _is_killed(done) or _is_away(done) or _was_lost(done):
        return reading_failed(program, done)
    return BackendError(f"job {job_id} was not changed: {words(done)}", where=program)


def submission(name: str, done: Done) -> BackendError:
    """Return the error for a submission without a job id, which says whether the job may have been accepted."""
    text = words(done)
    if done.returncode == 0 or _is_killed(done):
        return in_doubt(name, text)
    if _is_not_there(done) or _was_not_sent(done):
        return _away(done)
    if _was_lost(done) or not _SBATCH_SAYS.search(done.stderr):
        return in_doubt(name, text)
    if _FAILED in done.stderr:
        return _answered(name, done, text)
    return _stopped(name, done, text)


def _was_not_sent(done: Done) -> bool:
    """Whether sbatch did not run, or could not send anything."""
    if _SBATCH_SAYS.search(done.stderr):
        return _says(done, _NOT_SENT)
    return _is_away(done)


def _answered(name: str, done: Done, text: str) -> BackendError:
    """Return the error for an answer of the controller, as sbatch printed it."""
    meaning = meaning_of(None, done.stderr)
    if meaning is Meaning.AWAY:
        return _away(done)
    is_final = _NO_REASON in done.stderr and bool(_SITE_SAYS.search(done.stderr))
    refusal = refusal_of({meaning}, _words_of_refusal(text), where=name, is_final=is_final)
    return refusal or in_doubt(name, text, is_unexplained=meaning is Meaning.UNKNOWN)


def _stopped(name: str, done: Done, text: str) -> BackendError:
    """Return the error if sbatch sent nothing: a wrong request, an unavailable service, or an unknown cause."""
    meanings = _meanings(done)
    if Meaning.AWAY in meanings:
        return _away(done)
    return refusal_of(meanings, _words_of_refusal(text), where=name) or UnavailableError(
        f"sent nothing, and says why in words that are not known here: {text}", where="sbatch", is_unexplained=True
    )


def _words_of_refusal(text: str) -> tuple[str, str]:
    return f"is not accepted now: {text}", f"Slurm refuses it: {text}"


def _away(done: Done) -> UnavailableError:
    """Return the error for a job that was certainly not submitted, and may be submitted once the fault has passed."""
    if _is_not_there(done) or _says(done, _NO_ACCESS):
        return reading_failed("sbatch", done)
    return UnavailableError(f"could not submit: {words(done)}", where="sbatch", hint=_AWAY_HINT)


def _was_lost(done: Done) -> bool:
    """Whether a connection was made and lost, so that the request may have arrived."""
    return any(row.meaning is Meaning.DOUBT and row.is_of_the_way for row in rows_in(_said(done)))


def _meanings(done: Done) -> set[Meaning]:
    return {row.meaning for row in rows_in(_said(done))}


def _said(done: Done) -> str:
    return f"{done.stderr}\n{done.stdout}" if done.returncode else done.stderr


def _is_away(done: Done) -> bool:
    return Meaning.AWAY in _meanings(done)


def objection(done: Done) -> str | None:
    """Return the permanent objection of ``sbatch --test-only`` to a job; None without any, or if not certain."""
    if done.returncode == 0 or _is_killed(done) or not (_TESTED in done.stderr or _SBATCH_SAYS.search(done.stderr)):
        return None
    meanings = {Meaning.NEVER} & _meanings(done) if not _is_away(done) else set()
    if _TESTED in done.stderr:
        meanings = {meaning_of(None, done.stderr)}
    return words(done).replace(_TESTED, "").strip() if meanings == {Meaning.NEVER} else None


def in_doubt(name: str, why: str, *, is_unexplained: bool = False) -> SubmitInDoubtError:
    """Return the error for a job in doubt."""
    return SubmitInDoubtError(f"may have been submitted or not: {why}", where=name, is_unexplained=is_unexplained)


def _is_not_there(done: Done) -> bool:
    return done.returncode in {126, 127} and _says(done, _NOT_THERE)


def _is_killed(done: Done) -> bool:
    return done.returncode < 0 or 128 < done.returncode <= _LAST_SIGNAL  # in the form of a shell


def _says(done: Done, parts: Sequence[str]) -> bool:
    text = _said(done)
    return any(part in text for part in parts)
