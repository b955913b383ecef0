"""Changes of a run: one value for each thing that was decided, done or reported.

A run's state follows from these entries, in order, and from nothing else. They are written to its journal; read again,
they restore the state of an interrupted run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter

from asa.backend import JobSpec, JobStatus
from asa.exactly_once import Cause
from asa.strategies.base import Choice, PlannedJob, Substitute
from asa.workflow import Stage


@dataclass(frozen=True, slots=True)
class Begun:
    """The workflow was handed over."""

    at_s: float
    # whether the run ends as soon as a stage has failed
    fail_fast: bool = True  # as it was before there was a choice
    # whether another program hosts it: that extends it, and hands over what each stage runs, until it closes it
    is_open: bool = False
    kind: Literal["begun"] = "begun"


@dataclass(frozen=True, slots=True)
class Shaped:
    """It was chosen in which of its shapes a stage is asked for, from now on."""

    stage: str
    choice: Choice
    at_s: float
    kind: Literal["shaped"] = "shaped"


@dataclass(frozen=True, slots=True)
class Intended:
    """A job is about to be submitted. Until what became of that is known, it may or may not have been."""

    token: str  # by which the job can be found
    planned: PlannedJob  # the job as the strategy wants it
    spec: JobSpec  # what is asked of the batch system
    at_s: float
    kind: Literal["intended"] = "intended"
    word_s: float | None = None  # how long it would wait by the batch system's own word; None where it was not asked


@dataclass(frozen=True, slots=True)
class Again:
    """The job of a token is about to be submitted once more, as it was intended last."""

    token: str
    at_s: float
    kind: Literal["again"] = "again"


@dataclass(frozen=True, slots=True)
class Sought:
    """A job in doubt was looked for and not found: it may come late."""

    token: str
    at_s: float
    kind: Literal["sought"] = "sought"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch system has the job of a token."""

    token: str
    status: JobStatus  # its status, with its id
    kind: Literal["accepted"] = "accepted"


@dataclass(frozen=True, slots=True)
class Unsent:
    """The job of a token was not submitted after all, as far as can be known: `doubtful` if it may yet turn up."""

    token: str
    at_s: float
    reason: str = ""  # why; empty if not given
    doubtful: bool = False  # whether it may turn up
    kind: Literal["unsent"] = "unsent"
    cause: Cause = Cause.UNKNOWN


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The submission of a token had an unknown answer."""

    token: str
    at_s: float
    words: str
    kind: Literal["unexplained"] = "unexplained"


@dataclass(frozen=True, slots=True)
class Refused:
    """The batch system will never take the job of a token: its stages have failed."""

    token: str
    at_s: float
    reason: str
    kind: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Narrowed:
    """So many elements of a stage's array are asked for at a time from now on, as more were not accepted."""

    stage: str
    size: int
    reason: str
    at_s: float
    is_compact: bool = False  # whether the numbers were too large, too, perhaps
    kind: Literal["narrowed"] = "narrowed"


@dataclass(frozen=True, slots=True)
class Surplus:
    """Another job of a token was found and cancelled."""

    token: str  # of the job that it is another of
    job_id: str
    at_s: float
    kind: Literal["surplus"] = "surplus"


@dataclass(frozen=True, slots=True)
class Reported:
    """The batch system reported something new of a job."""

    status: JobStatus
    kind: Literal["told"] = "told"


@dataclass(frozen=True, slots=True)
class GivingUp:
    """A job is about to be cancelled."""

    job_id: str
    reason: str
    at_s: float
    kind: Literal["giving-up"] = "giving-up"
    substitute: Substitute | None = None  # the job that takes its place; None if a later plan says that


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A job that was cancelled has ended, before its stages did: they wait for another."""

    job_id: str
    reason: str
    at_s: float
    kind: Literal["given-up"] = "given-up"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run is to end: the job of the token `refused` was refused for good, or you asked for it."""

    outcome: Literal["failed", "cancelled"]
    reason: str
    at_s: float
    refused: str = ""  # token of the job that was refused; empty if it is none
    kind: Literal["stopped"] = "stopped"


@dataclass(frozen=True, slots=True)
class Retried:
    """A run that had ended goes on: what did not complete is asked for again, and some stages with all after them."""

    at_s: float
    # those that are run once more though they may have completed; those that follow them are, too
    stages: tuple[str, ...] = ()
    # what the workflow's stages are from now on, if they were mended, and the walltime of the whole
    revised: tuple[Stage, ...] = ()
    walltime_s: float | None = None
    kind: Literal["retried"] = "retried"


@dataclass(frozen=True, slots=True)
class Extended:
    """Its host added stages to an open run."""

    stages: tuple[Stage, ...]  # each after those that it follows, which may be there already
    at_s: float
    # those whose job could never start, and why: nothing is submitted ahead of them
    impossible: dict[str, str] = field(default_factory=dict)
    kind: Literal["extended"] = "extended"


@dataclass(frozen=True, slots=True)
class Claimed:
    """The host of an open run handed over what a stage runs: it is ready, and may begin."""

    stage: str
    at_s: float
    asked: Stage | None = None  # what it asks for from now on; as before if None
    may_come_again: bool = False  # whether the host hands it over once more should it fail
    impossible: str = ""  # why a job of what it asks for could never start: it fails; empty if it may
    kind: Literal["claimed"] = "claimed"


@dataclass(frozen=True, slots=True)
class Dropped:
    """The host of an open run no longer wants some stages, none of which it has handed over."""

    stages: tuple[str, ...]
    reason: str
    at_s: float
    kind: Literal["dropped"] = "dropped"


@dataclass(frozen=True, slots=True)
class Closed:
    """The host of an open run adds nothing more: the run ends when its stages have."""

    at_s: float
    kind: Literal["closed"] = "closed"


Entry = (
    Begun
    | Shaped
    | Intended
    | Again
    | Sought
    | Accepted
    | Unsent
    | Unexplained
    | Refused
    | Narrowed
    | Surplus
    | Reported
    | GivingUp
    | GivenUp
    | Stopped
    | Retried
    | Extended
    | Claimed
    | Dropped
    | Closed
)

_entry: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Discriminator("kind")])
_TOGETHER, _SEVERAL = '{"entries":[', b'{"entries"'
_together: TypeAdapter[dict[str, list[Entry]]] = TypeAdapter(dict[str, list[Annotated[Entry, Discriminator("kind")]]])


def write_entry(entry: Entry) -> str:
    """Write an entry as one line of JSON, without the line's end."""
    return _entry.dump_json(entry).decode()


def read_entry(line: str | bytes) -> Entry:
    """Read what `write_entry` wrote; keys that a later version has added are passed over."""
    return _entry.validate_json(line)


def write_entries(entries: Sequence[Entry]) -> str:
    """Write entries that come together as one line of JSON, without the line's end."""
    if len(entries) == 1:
        return write_entry(entries[0])
    return f"{_TOGETHER}{','.join(map(write_entry, entries))}]}}"


def read_entries(line: bytes) -> list[Entry]:
    """Read what `write_entries` wrote."""
    return _together.validate_json(line)["entries"] if line.startswith(_SEVERAL) else [read_entry(line)]
