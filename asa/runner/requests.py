"""Requests to a run that another process or thread drives."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from asa.core.late import dataclass
from asa.workflow import Stage


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A request to cancel a run, or the job of one of its stages.

    Parameters
    ----------
    run
        The run's name.
    stage
        The stage's name; empty for the whole run.
    what
        The action; so far only to cancel.
    reason
        Who asks, and why, in words; empty if not known.
    """

    run: str
    stage: str = ""
    what: Literal["cancel"] = "cancel"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExtendRequest:
    """Add stages to an open run, each after those that it follows; `impossible`: why some cannot start."""

    run: str
    stages: tuple[Stage, ...]
    impossible: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Let a stage of an open run begin, whose command is now known; see `asa.runner.entries.Claimed`."""

    run: str
    stage: str
    asked: Stage | None = None
    may_come_again: bool = False
    impossible: str = ""


@dataclass(frozen=True, slots=True)
class DropRequest:
    """Give back the jobs of stages that the host of an open run no longer wants.

    `even_claimed`: also of stages that it has handed over.
    """

    run: str
    stages: tuple[str, ...]
    reason: str
    even_claimed: bool = False


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """Let an open run end once its stages have ended."""

    run: str


ClientRequest = CancelRequest | ExtendRequest | ClaimRequest | DropRequest | CloseRequest
