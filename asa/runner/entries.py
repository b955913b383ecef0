"""Changes of a run: one value for each thing that was decided, done or reported.

A run's state follows from these entries, in their order, and from nothing else. They are written to the journal; an
interrupted run is restored by reading them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

from asa.backend import JobSpec, JobStatus
from asa.core.documents import read_json
from asa.core.late import dataclass
from asa.core.typed import made, written
from asa.exactly_once import Cause
from asa.strategies.base import Choice, PlannedJob, Substitute
from asa.workflow import Stage


@dataclass(frozen=True, slots=True)
class Begun:
    """The workflow was submitted: the run begins."""

    at_s: float
    # whether the run ends with the first failed stage
    fail_fast: bool = True  # the default of runs from before there was a choice
    # whether another program hosts the run: it adds stages, and hands over what each runs, until it closes the run
    is_open: bool = False
    kind: Literal["begun"] = "begun"


@dataclass(frozen=True, slots=True)
class Shaped:
    """A shape was chosen in which a stage is asked for from now on."""

    stage: str
    choice: Choice
    at_s: float
    kind: Literal["shaped"] = "shaped"


@dataclass(frozen=True, slots=True)
class Intended:
    """A job is about to be submitted. Until a later entry tells the result, it may or may not have been."""

    token: str  # the token by which the job can be found
    planned: PlannedJob  # the job as the strategy planned it
    spec: JobSpec  # the job's request to the batch system
    at_s: float
    kind: Literal["intended"] = "intended"
    word_s: float | None = None  # the wait by the batch system's own estimate; None if it was not asked


@dataclass(frozen=True, slots=True)
class Again:
    """The latest intended job of a token is about to be submitted once more."""

    token: str
    at_s: float
    kind: Literal["again"] = "again"


@dataclass(frozen=True, slots=True)
class Sought:
    """A job in doubt was searched for and not found; it may turn up late."""

    token: str
    at_s: float
    kind: Literal["sought"] = "sought"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch system accepted the job of a token."""

    token: str
    status: JobStatus  # including the job's id
    kind: Literal["accepted"] = "accepted"


@dataclass(frozen=True, slots=True)
class Unsent:
    """The job of a token was not submitted, as far as is known."""

    token: str
    at_s: float
    reason: str = ""
    doubtful: bool = False  # whether it may yet turn up
    kind: Literal["unsent"] = "unsent"
    cause: Cause = Cause.UNKNOWN


@dataclass(frozen=True, slots=True)
class NotFound:
    """A job in doubt was looked for until it was unlikely enough to turn up."""

    token: str
    at_s: float
    kind: Literal["not-found"] = "not-found"


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The submission of a token's job got an unknown answer."""

    token: str
    at_s: float
    words: str
    kind: Literal["unexplained"] = "unexplained"


@dataclass(frozen=True, slots=True)
class Refused:
    """The batch system refused the job of a token for good: its stages have failed."""

    token: str
    at_s: float
    reason: str
    kind: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Narrowed:
    """From now on, at most `size` elements of a stage's array are submitted at a time, since more were not accepted."""

    stage: str
    size: int
    reason: str
    at_s: float
    is_compact: bool = False  # whether the element numbers may have been too large as well
    kind: Literal["narrowed"] = "narrowed"


@dataclass(frozen=True, slots=True)
class Surplus:
    """A second job of a token was found and cancelled."""

    token: str  # of both jobs
    job_id: str
    at_s: float
    kind: Literal["surplus"] = "surplus"


@dataclass(frozen=True, slots=True)
class Reported:
    """The batch system reported something new about a job."""

    status: JobStatus
    kind: Literal["told"] = "told"


@dataclass(frozen=True, slots=True)
class Reasoned:
    """The batch system reported another reason for some jobs, and nothing else of them has changed."""

    job_ids: tuple[str, ...]
    reason: str
    kind: Literal["reasoned"] = "reasoned"


@dataclass(frozen=True, slots=True)
class GivingUp:
    """A job is about to be cancelled."""

    job_id: str
    reason: str
    at_s: float
    kind: Literal["giving-up"] = "giving-up"
    substitute: Substitute | None = None  # the job that takes its place; None if a later plan decides


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A cancelled job has ended before its stages did: these need another job."""

    job_id: str
    reason: str
    at_s: float
    kind: Literal["given-up"] = "given-up"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run is to end: the job of the token `refused` was refused for good, or a user requested the end."""

    outcome: Literal["failed", "cancelled"]
    reason: str
    at_s: float
    refused: str = ""  # token of the refused job; empty if none
    kind: Literal["stopped"] = "stopped"


@dataclass(frozen=True, slots=True)
class Retried:
    """An ended run continues: uncompleted stages are asked for again, as are the given stages with their successors."""

    at_s: float
    # stages to run again, even if completed; so are those that follow them
    stages: tuple[str, ...] = ()
    # the workflow's stages and walltime from now on, if they were revised
    revised: tuple[Stage, ...] = ()
    walltime_s: float | None = None
    kind: Literal["retried"] = "retried"


@dataclass(frozen=True, slots=True)
class Extended:
    """The host added stages to an open run."""

    stages: tuple[Stage, ...]  # each after those that it follows, which may be in the run already
    at_s: float
    # for each stage whose job could never start, the reason; no job is submitted for it ahead of time
    impossible: dict[str, str] = field(default_factory=dict)
    kind: Literal["extended"] = "extended"


@dataclass(frozen=True, slots=True)
class Claimed:
    """The host of an open run handed over what a stage runs: the stage may begin."""

    stage: str
    at_s: float
    asked: Stage | None = None  # the stage with its new request; None if unchanged
    may_come_again: bool = False  # whether the host hands it over again if it fails
    impossible: str = ""  # why its job could never start, so that it fails; empty if it could
    kind: Literal["claimed"] = "claimed"


@dataclass(frozen=True, slots=True)
class Dropped:
    """The host of an open run no longer wants some stages.

    `even_claimed`: it may have handed them over, so that their jobs may run.
    """

    stages: tuple[str, ...]
    reason: str
    at_s: float
    even_claimed: bool = False
    kind: Literal["dropped"] = "dropped"


@dataclass(frozen=True, slots=True)
class Closed:
    """The host of an open run adds no more stages: the run ends when its stages have ended."""

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
    | NotFound
    | Unexplained
    | Refused
    | Narrowed
    | Surplus
    | Reported
    | Reasoned
    | GivingUp
    | GivenUp
    | Stopped
    | Retried
    | Extended
    | Claimed
    | Dropped
    | Closed
)

_KINDS: dict[str, type[Entry]] = {
    "begun": Begun,
    "shaped": Shaped,
    "intended": Intended,
    "again": Again,
    "sought": Sought,
    "accepted": Accepted,
    "unsent": Unsent,
    "not-found": NotFound,
    "unexplained": Unexplained,
    "refused": Refused,
    "narrowed": Narrowed,
    "surplus": Surplus,
    "told": Reported,
    "reasoned": Reasoned,
    "giving-up": GivingUp,
    "given-up": GivenUp,
    "stopped": Stopped,
    "retried": Retried,
    "extended": Extended,
    "claimed": Claimed,
    "dropped": Dropped,
    "closed": Closed,
}


@dataclass(frozen=True, slots=True)
class _Several:
    """Entries that belong together, as read."""

    entries: tuple[Any, ...]


_TOGETHER, _SEVERAL = '{"entries":[', b'{"entries"'


def write_entry(entry: Entry) -> str:
    """Write an entry as one line of JSON, without a newline."""
    return written(entry, in_short=True)


def read_entry(line: str | bytes) -> Entry:
    """Read an entry that `write_entry` wrote; keys of later versions are ignored.

    Raises `ValueError`: it is none.
    """
    return _entry(read_json(line))


def write_entries(entries: Sequence[Entry]) -> str:
    """Write entries that belong together as one line of JSON, without a newline."""
    if len(entries) == 1:
        return write_entry(entries[0])
    return f"{_TOGETHER}{','.join(map(write_entry, entries))}]}}"


def read_entries(line: bytes) -> list[Entry]:
    """Read entries that `write_entries` wrote.

    Raises `ValueError`: it is none of these.
    """
    if not line.startswith(_SEVERAL):
        return [read_entry(line)]
    return [_entry(parts) for parts in made(_Several, read_json(line)).entries]


def _entry(parts: Any) -> Entry:
    name = parts.get("kind") if isinstance(parts, dict) else None
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError("it is no entry of a known kind")
    return made(_KINDS[name], parts)
