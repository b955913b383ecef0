"""Every error that `asa` raises on purpose.

.. code-block:: text

    AsaError                      anything that asa says no to                     exit code 1
    ├── InputError                what the user gave cannot be used                exit code 2
    │   ├── UnknownNameError      no workflow, system, strategy, backend of that name
    │   ├── MissingExtraError     an optional package is not installed
    │   ├── WorkflowError         a stage or the graph of stages makes no sense
    │   ├── OwnerError            others own what was to be acted on, or can change it
    │   ├── TraceError            a workload log cannot be read
    │   └── StateError            a file of learned state cannot be used
    ├── BackendError              the batch system refused or could not be asked   exit code 1
    │   ├── SubmitRejectedError   a job that will never be accepted as it is
    │   ├── SubmitDeferredError   a job that is refused for now, as by a limit on jobs in the queue
    │   ├── SubmitInDoubtError    a job of which nobody knows whether it was accepted
    │   ├── JobNotFoundError      the batch system does not know this job
    │   └── UnavailableError      it cannot be asked now, and nothing was changed
    │       └── AccessError       it does not let us in: a token that expired, a permission
    ├── RunError                  a workflow ended without its result              exit code 1
    ├── OtherClusterError         a run's jobs are on another cluster                exit code 3
    ├── JournalError              what happens cannot be written down              exit code 1
    └── LeaseError                another client has what this one wants           exit code 1

An error says *what* was wrong, *where*, and *what to do*; the command line prints exactly that and no traceback.
Control and direction characters, which others may have put into it, are escaped as it becomes text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from asa.printable import printable

__all__ = [
    "AccessError",
    "AsaError",
    "BackendError",
    "InputError",
    "JobNotFoundError",
    "JournalError",
    "LeaseError",
    "MissingExtraError",
    "OtherClusterError",
    "OwnerError",
    "RunError",
    "StateError",
    "SubmitDeferredError",
    "SubmitInDoubtError",
    "SubmitRejectedError",
    "TraceError",
    "UnavailableError",
    "UnknownNameError",
    "WorkflowError",
    "near",
    "nearest",
]


class AsaError(Exception):
    """The base class of all errors that `asa` raises on purpose.

    Parameters
    ----------
    message
        What was wrong.
    where
        The file, line, stage or option concerned.
    hint
        What to do about it.

    Examples
    --------
    >>> print(AsaError("no jobs", where="log.swf:12", hint="give another log"))
    log.swf:12: no jobs
    give another log
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return printable(f"{text}\n{self.hint}" if self.hint else text)


class InputError(AsaError):
    """The user's input cannot be used."""

    exit_code = 2


class UnknownNameError(InputError):
    """No workflow, system, strategy, backend or setting goes by that name."""


class MissingExtraError(InputError):
    """A package that this feature needs is not installed."""


class WorkflowError(InputError):
    """A stage, or the graph of stages, makes no sense; the message names the stage."""


class OwnerError(InputError):
    """Another user owns a file that was to be acted on, or can change it; nothing of it was used."""


class TraceError(InputError):
    """A workload log cannot be read or replayed."""


class StateError(InputError):
    """A file of learned state cannot be used."""


class BackendError(AsaError):
    """The batch system refused, or could not be asked.

    Parameters
    ----------
    message, where, hint
        As for any error.
    is_unexplained
        Whether the batch system refused a job in words that asa does not know, so that the refusal may be for good or
        for now. A run tries again, and after a quarter of an hour takes the same words for a refusal.
    """

    is_of_any = False
    """Whether no other request would be accepted either, as when the cluster cannot be reached."""

    def __init__(
        self, message: str, *, where: str | None = None, hint: str | None = None, is_unexplained: bool = False
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.is_unexplained = is_unexplained


class SubmitRejectedError(BackendError):
    """The batch system will never accept this job as it is."""


class SubmitDeferredError(BackendError):
    """The batch system does not accept this job now, but may later, as when too many jobs of the user are queued."""


class SubmitInDoubtError(BackendError):
    """The batch system may have accepted this job, or not: its answer was lost, late or garbled.

    The job must be looked for, by its token, before it is submitted again.
    """


class UnavailableError(BackendError):
    """The batch system cannot be reached now. Nothing was changed, nothing is known to have failed: try again later."""

    @property
    def of_this_job(self) -> SubmitDeferredError:
        """The same for one job, where others may be accepted."""
        error = SubmitDeferredError(self.message, where=self.where, hint=self.hint)
        error.is_of_any = True
        return error


NOT_ACCEPTED = (SubmitRejectedError, SubmitDeferredError, UnavailableError)
"""Errors after which the job was certainly not accepted."""


class AccessError(UnavailableError):
    """The batch system refuses access, as with an expired token. Somebody may repair that while the client waits."""


class JobNotFoundError(BackendError):
    """The batch system does not know this job."""


class OtherClusterError(AsaError):
    """The batch system that was reached is not the run's, or has lost the run's jobs: the run stops."""

    exit_code = 3


class RunError(AsaError):
    """A workflow ended without its result."""


class JournalError(AsaError):
    """An event cannot be recorded, as on a full disk; a run submits nothing until it can."""


class LeaseError(AsaError):
    """Another client has the lease that this client wants."""


def near(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Suggest a similar name, as the first sentence of a hint; empty if none is similar.

    Parameters
    ----------
    name
        The given name.
    known
        The valid names.
    likeness
        From 0 to 1: how similar a known name must be.

    Examples
    --------
    >>> near("widht", ["width", "degree"]) + "Known: width, degree."
    "Did you mean 'width'? Known: width, degree."
    """
    meant = nearest(name, known, likeness=likeness)
    return "" if meant is None else f"Did you mean {meant!r}? "


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Return the most similar valid name; None if none is similar.

    Parameters
    ----------
    name
        The given name.
    known
        The valid names.
    likeness
        From 0 to 1: how similar a known name must be.
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)), None)
