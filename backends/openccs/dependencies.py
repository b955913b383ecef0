"""Dependencies of requests on others, as they are written: ``depend=afterok:a:b+afterany:c``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from asa.errors import near

from .pieces import Piece


class DependencyKind(StrEnum):
    """What another job must have done before a job may start."""

    AFTER = "after"
    """It has started."""
    AFTER_ANY = "afterany"
    """It has ended, in whatever way."""
    AFTER_OK = "afterok"
    """It has completed."""
    AFTER_NOT_OK = "afternotok"
    """It has failed, or was cancelled."""


@dataclass(frozen=True, slots=True)
class RequestDependency:
    """A dependency of a job on others.

    Examples
    --------
    >>> print(RequestDependency(DependencyKind.AFTER_OK, ("fit", "sweep[3]")))
    afterok:fit:sweep[3]
    """

    kind: DependencyKind
    names: tuple[str, ...]  # of jobs, of elements of arrays, or of arrays, which are all of their elements

    def __str__(self) -> str:
        return ":".join((self.kind, *self.names))


def read_dependencies(piece: Piece) -> tuple[RequestDependency, ...]:
    """Read dependencies, separated by plus signs; ``none`` is none."""
    return () if piece.text == "none" else tuple(_dependency(part) for part in piece.split("+"))


def _dependency(piece: Piece) -> RequestDependency:
    kinds = [str(kind) for kind in DependencyKind]
    kind, *names = piece.split(":")
    if kind.text not in kinds:
        hint = f"{near(kind.text, kinds)}Write {', '.join(kinds[:-1])} or {kinds[-1]}, and names behind colons."
        raise kind.refuse(f"{kind.quoted} is no dependency" if kind.text else "a dependency is missing here", hint)
    if missing := next((name for name in names if not name.text), None if names else piece.cut(len(piece.text))):
        raise missing.refuse("the name of a job is missing here", "As in depend=afterok:fit:check.")
    return RequestDependency(DependencyKind(kind.text), tuple(name.text for name in names))
