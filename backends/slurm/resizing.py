"""Resizing of running jobs: the setting, the ability for plans, and the finding of `asa doctor`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

from pydantic import BaseModel

from asa.backend import Finding

_FROM_OUTSIDE = "nodes"  # what a link must be able to change


class Resizability(TypedDict):
    """Fields of `asa.backend.Capabilities`."""

    shrink_by: int
    shrinks_from_outside: bool


class ResizingSettings(BaseModel):
    """The setting: whether a running job may give nodes back, by `scontrol` on its first node."""

    shrink: bool = True

    def resizability(self, cores_per_node: int, changeable: Collection[str]) -> Resizability:
        """Return how running jobs can be resized. `changeable`: see `SlurmLink.changeable`."""
        return {
            "shrink_by": cores_per_node if self.shrink else 0,
            "shrinks_from_outside": self.shrink and can_resize(changeable),
        }

    def resizing_found(self) -> Finding:
        """Return the finding for a link that cannot resize."""
        return Finding(
            "Shrinking jobs",
            "not from here by these means; a job's own script does, between its stages",
            "good" if self.shrink else "note",
            "" if self.shrink else "shrink = false says that jobs keep their nodes here.",
        )


def can_resize(changeable: Collection[str]) -> bool:
    """Whether a link can shrink a running job."""
    return _FROM_OUTSIDE in changeable
