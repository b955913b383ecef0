"""What is asked of a run that another process drives, or another thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from asa.workflow import Stage


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A request to cancel a run, or the job of one of its stages.

    Parameters
    ----------
    run
        The run's id.
    stage
        The stage's name; empty for the whole run.
    what
        What to do; so far only to cancel.
    reason
        Who asks, and why, in words; empty if not known.
    """

    run: str
    stage: str = ""
    what: Literal["cancel"] = "cancel"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExtendRequest:
    """Add stages to an open run, each after those that it follows; `impossible`: those that cannot start, and why."""

    run: str
    stages: tuple[Stage, ...]
    impossible: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Let a stage of an open run begin, whose command was written; see `asa.runner.entries.Claimed`."""

    run: str
    stage: str
    asked: Stage | None = None
    may_come_again: bool = False
    impossible: str = ""


@dataclass(frozen=True, slots=True)
class DropRequest:
    """Give back what was asked for of stages of an open run that are wanted no more."""

    run: str
    stages: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """Let an open run end once its stages have."""

    run: str


ClientRequest = CancelRequest | ExtendRequest | ClaimRequest | DropRequest | CloseRequest
