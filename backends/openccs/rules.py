"""What holds for users and groups besides limits: their validity, and values of their requests (Sections 3 and 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from asa.errors import InputError, near

from .limits import ALWAYS, ANY
from .requests import RequestParts
from .validity import Validity

_PARTS: Final = ("rset", "place", "walltime", "priority", "notify")


@dataclass(frozen=True)
class ConsumerRule:
    """What holds for a user or a group; the name `*` is each of the kind."""

    kind: Literal["user", "group"]
    name: str
    validity: Validity = ALWAYS  # when it may submit, and its jobs may run
    # values of requests that say nothing of them; resources of `rset` are added to each chunk
    default: RequestParts = field(default_factory=RequestParts)
    force: RequestParts = field(default_factory=RequestParts)  # values that replace those of requests

    def __post_init__(self) -> None:
        for parts in (self.default, self.force):
            where = f"values of {self.kind} {self.name!r}"
            if wrong := next((name for name in parts.terms if name not in _PARTS), None):
                hint = f"{near(wrong, _PARTS)}Write {', '.join(_PARTS)}, and job-wide resources."
                raise InputError(f"{wrong} is each request's own", where=where, hint=hint)
            chunks = parts.terms.get("rset", ())
            if len(chunks) > 1 or any(chunk.count > 1 for chunk in chunks):
                raise InputError("holds several chunks", where=where, hint="Write what each chunk gets: rset=mem=2g.")

    def who(self, user: str, group: str) -> str:
        """Name the user or the group that it holds for."""
        return f"{self.kind} {user if self.kind == 'user' else group!r}"


def rules_of(rules: Sequence[ConsumerRule], user: str, group: str) -> list[ConsumerRule]:
    """Return the rules for a user and a group: the user's, the group's, and those for all users and groups."""
    order = (("user", user), ("group", group), ("user", ANY), ("group", ANY))
    return [rule for kind, name in order for rule in rules if (rule.kind, rule.name) == (kind, name) and name]
