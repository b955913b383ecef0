"""What is asked of a run that another process drives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A request to cancel a run under way, or the job of one of its stages.

    Parameters
    ----------
    run
        The run's id.
    stage
        The stage's name; empty for the whole run.
    what
        Of it; so far only to cancel.
    """

    run: str
    stage: str = ""
    what: Literal["cancel"] = "cancel"
