"""How commands show what the jobs of a stage run; and a single stage, whose job runs all of it."""
# ruff: noqa: ARG002 - a kind says only what is otherwise with it

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from asa.units import format_duration

if TYPE_CHECKING:
    from asa.cli.standing import StageStanding
    from asa.runner.state import RunState

Reason: TypeAlias = "Callable[[StageStanding], Iterator[str]]"
"""Says what the reason of a stage's state means."""


@dataclass(frozen=True, slots=True)
class UnitStanding:
    """How far the units of a stage have come; each kind is a class."""

    order: ClassVar[int] = 0  # of its line among those of other kinds

    def documents(self) -> dict[str, Any]:
        """Return what is known of the units as JSON-ready data, by its key."""
        return {}

    def line(self, stage: StageStanding, now_s: float) -> str:
        """Say how far they have come; empty if nothing is to be said in addition to the stage's row."""
        return ""

    def sentences(self, stage: StageStanding, now_s: float, reason: Reason) -> Iterator[str]:
        """Explain the state of a running stage; `reason` says why one is pending."""
        left = stage.walltime_s - (stage.run_s or 0.0)
        yield f"It has run {duration(stage.run_s)}; its walltime ends in {duration(max(left, 0.0))}."

    def failures(self, state: RunState, stage: StageStanding, how: str) -> list[str]:
        """Say which units of a stage that ended so did not complete; nothing if it failed as a whole."""
        return []


def duration(value: float | None) -> str:
    """Write how long something took, if it did."""
    return "no time" if value is None else format_duration(value)
