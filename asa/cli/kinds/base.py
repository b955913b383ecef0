"""How commands show the units of a stage; the base class is that of a stage which one job runs whole."""
# ruff: noqa: ARG002 - a subclass overrides only what differs

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from asa.core.late import dataclass
from asa.units import format_duration

if TYPE_CHECKING:
    from asa.cli.standing import StageStanding
    from asa.runner.state import RunState

Reason: TypeAlias = "Callable[[StageStanding], Iterator[str]]"
"""Returns the meaning of the reason for a stage's state."""


@dataclass(frozen=True, slots=True)
class UnitStanding:
    """The progress of a stage's units; each kind has a subclass."""

    order: ClassVar[int] = 0  # position of its line among those of other kinds

    def documents(self) -> dict[str, Any]:
        """Return the state of the units as JSON-ready data, under the kind's key."""
        return {}

    def line(self, stage: StageStanding, now_s: float) -> str:
        """Describe how far the units have come; empty if the stage's row already says it."""
        return ""

    def sentences(self, stage: StageStanding, now_s: float, reason: Reason) -> Iterator[str]:
        """Explain the state of a running stage; `reason` explains why a job is pending."""
        left = stage.walltime_s - (stage.run_s or 0.0)
        yield f"It has run {duration(stage.run_s)}; its walltime ends in {duration(max(left, 0.0))}."

    def other_jobs(self, stage: StageStanding) -> Iterator[str]:
        """Describe jobs that were submitted for the stage in addition to its own."""
        yield from ()

    def failures(self, state: RunState, stage: StageStanding, how: str) -> list[str]:
        """Name the units that did not complete; empty if the stage failed as a whole. `how`: how it ended."""
        return []


def duration(value: float | None) -> str:
    """Write a duration; None as `no time`."""
    return "no time" if value is None else format_duration(value)
