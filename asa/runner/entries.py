"""What changes a run: everything that was decided, done or heard, one value each.

A run's state is what these make of it in order, and of nothing else. Written down, they are its journal; read again,
they bring a run that was interrupted back to where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter

from asa.backend import JobSpec, JobStatus
from asa.strategies.base import PlannedJob
from asa.workflow import Stage

__all__ = [
    "Accepted",
    "Again",
    "Begun",
    "Entry",
    "GivenUp",
    "GivingUp",
    "Intended",
    "Refused",
    "Retried",
    "Stopped",
    "Surplus",
    "Told",
    "Unsent",
    "read_entry",
    "write_entry",
]


@dataclass(frozen=True, slots=True)
class Begun:
    """The workflow was handed over.

    Parameters
    ----------
    at_s
        When.
    fail_fast
        Whether the run ends as soon as a stage has failed.
    """

    at_s: float
    fail_fast: bool = True  # as it was before there was a choice
    kind: Literal["begun"] = "begun"


@dataclass(frozen=True, slots=True)
class Intended:
    """A job is about to be submitted. Until what became of that is known, it may or may not have been.

    Parameters
    ----------
    token
        By which the job can be found.
    planned
        The job as the strategy wants it.
    spec
        What is asked of the batch system.
    at_s
        When.
    """

    token: str
    planned: PlannedJob
    spec: JobSpec
    at_s: float
    kind: Literal["intended"] = "intended"


@dataclass(frozen=True, slots=True)
class Again:
    """The job of a token is about to be submitted once more, as it was intended last.

    Parameters
    ----------
    token
        Of the job.
    at_s
        When.
    """

    token: str
    at_s: float
    kind: Literal["again"] = "again"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch system has the job of a token.

    Parameters
    ----------
    token
        Of the job.
    status
        How it stands, with its id.
    """

    token: str
    status: JobStatus
    kind: Literal["accepted"] = "accepted"


@dataclass(frozen=True, slots=True)
class Unsent:
    """The job of a token was not submitted after all, as far as can be known: `doubtful` if it may yet turn up.

    Parameters
    ----------
    token
        Of the job.
    at_s
        When.
    reason
        Why; empty if nobody said.
    doubtful
        Whether it may turn up.
    """

    token: str
    at_s: float
    reason: str = ""
    doubtful: bool = False
    kind: Literal["unsent"] = "unsent"


@dataclass(frozen=True, slots=True)
class Refused:
    """The batch system will never take the job of a token: its stages have failed.

    Parameters
    ----------
    token
        Of the job.
    at_s
        When.
    reason
        Why.
    """

    token: str
    at_s: float
    reason: str
    kind: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Surplus:
    """Another job of a token was found and cancelled.

    Parameters
    ----------
    token
        Of the job that it is another of.
    job_id
        Its own.
    at_s
        When.
    """

    token: str
    job_id: str
    at_s: float
    kind: Literal["surplus"] = "surplus"


@dataclass(frozen=True, slots=True)
class Told:
    """The batch system told something new of a job.

    Parameters
    ----------
    status
        How the job stands.
    """

    status: JobStatus
    kind: Literal["told"] = "told"


@dataclass(frozen=True, slots=True)
class GivingUp:
    """A job is about to be cancelled.

    Parameters
    ----------
    job_id
        Of the job.
    reason
        Why.
    at_s
        When.
    """

    job_id: str
    reason: str
    at_s: float
    kind: Literal["giving-up"] = "giving-up"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A job that was cancelled has ended, before its stages did: they wait for another.

    Parameters
    ----------
    job_id
        Of the job.
    reason
        Why.
    at_s
        When.
    """

    job_id: str
    reason: str
    at_s: float
    kind: Literal["given-up"] = "given-up"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run is to end: the job of the token `refused` was refused for good, or somebody asked for it.

    Parameters
    ----------
    outcome
        How it ends.
    reason
        Why.
    at_s
        When.
    refused
        Token of the job that was refused; empty if it is none.
    """

    outcome: Literal["failed", "cancelled"]
    reason: str
    at_s: float
    refused: str = ""
    kind: Literal["stopped"] = "stopped"


@dataclass(frozen=True, slots=True)
class Retried:
    """A run that had ended goes on: what did not end well is asked for again, and some stages with all after them.

    Parameters
    ----------
    at_s
        When.
    stages
        Those that are run once more though they may have ended well; those that follow them are, too.
    revised, walltime_s
        What the workflow's stages are from now on, if they were mended, and the walltime of the whole.
    """

    at_s: float
    stages: tuple[str, ...] = ()
    revised: tuple[Stage, ...] = ()
    walltime_s: float | None = None
    kind: Literal["retried"] = "retried"


Entry = Begun | Intended | Again | Accepted | Unsent | Refused | Surplus | Told | GivingUp | GivenUp | Stopped | Retried

_entry: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Discriminator("kind")])


def write_entry(entry: Entry) -> str:
    """Write an entry as one line of JSON, without the line's end.

    Parameters
    ----------
    entry
        What happened.
    """
    return _entry.dump_json(entry).decode()


def read_entry(line: str | bytes) -> Entry:
    """Read what `write_entry` wrote; keys that a later version has added are passed over.

    Parameters
    ----------
    line
        Of a journal.

    Raises
    ------
    ValueError
        The line is no entry.
    """
    return _entry.validate_json(line)
