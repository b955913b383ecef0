"""The protocol of programs and resource managers: one line of JSON each way, over a Unix socket.

A program connects, sends a `DmrRequest`, reads a `Reply`, and closes. Each request says how many processes the program
has, so that a manager whose reply was lost knows the outcome: if the program has fewer than its allocation, it gave the
others back.

``check``
    What is to be done? (Section 5.1.) The answer holds at once: nodes of an expansion are the program's.
``ask``
    Likewise, but the answer does not hold yet: the program asks again for an expansion.
``expand``
    Wait for nodes for the given number of processes (section 5.2.1).
``done``
    The program now has the given number of processes (section 5.2.2).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

from asa.errors import InputError

ADDRESS = "ASA_DMR"
"""Variable of a job: the path of its manager's Unix socket."""

JOB = "ASA_DMR_JOB"
"""Variable of a job: the manager's name for it."""

PROCESSES = "ASA_DMR_PROCESSES"
"""Variable of a job: the number of processes that it begins with."""

PERIOD = "ASA_DMR_PERIOD"
"""Variable of a job: seconds for which checks are ignored after an answer."""

TIMEOUT = "ASA_DMR_TIMEOUT"
"""Variable of a job: seconds to wait for an expansion."""

MAX_BYTES = 1 << 20
"""Upper bound of a line."""

_VERSION = 1
_What = Literal["check", "ask", "expand", "done"]


class Action(StrEnum):
    """The action that a program is to take."""

    NONE = "no action"
    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True)
class Wish:
    """To how many processes a program may be resized (section 5.1).

    Parameters
    ----------
    minimum, maximum
        Lower and upper bound. A minimum above the present number asks for an expansion, a maximum below it for a shrink
        (section 4.1).
    factor
        The number is multiplied or divided by a power of it.
    preferred
        The preferred number, if any.

    Raises
    ------
    InputError
        The numbers are impossible.
    """

    minimum: int
    maximum: int
    factor: int = 2
    preferred: int | None = None

    def __post_init__(self) -> None:
        for name in ("minimum", "maximum", "factor", "preferred"):
            value = getattr(self, name)
            if value is not None or name != "preferred":
                object.__setattr__(self, name, whole(value, name))
        if self.minimum < 1:
            raise InputError(f"{self.minimum} processes cannot run", where="minimum", hint="Give 1 or more.")
        if self.maximum < self.minimum:
            raise InputError(
                f"is {self.maximum}, and the minimum {self.minimum}",
                where="maximum",
                hint="Give no less than the minimum.",
            )
        if self.factor < 2:
            raise InputError(
                f"no number of processes changes by a factor of {self.factor}", where="factor", hint="Give 2 or more."
            )
        if self.preferred is not None and not self.minimum <= self.preferred <= self.maximum:
            raise InputError(
                f"is {self.preferred}, and not between {self.minimum} and {self.maximum}",
                where="preferred",
                hint="Prefer a number of processes that the program may have, or none.",
            )


@dataclass(frozen=True, slots=True)
class DmrRequest:
    """A program's request to its manager."""

    what: _What  # `check`, `ask`, `expand` or `done`; see above
    job: str
    processes: int
    wish: Wish | None = None
    to: int = 0  # number of processes that the program wants, for an expansion
    wait_s: float = 0.0  # seconds to wait for an expansion

    def message(self) -> dict[str, Any]:
        """Return the text to send."""
        return {"v": _VERSION, **asdict(self)}

    @classmethod
    def heard(cls, message: Mapping[str, Any]) -> DmrRequest:
        """Parse a received text."""
        try:
            wish = message["wish"]
            request = cls(
                message["what"],
                str(message["job"]),
                whole(message["processes"], "processes"),
                None if wish is None else Wish(**wish),
                whole(message["to"], "to"),
                float(message["wait_s"]),
            )
        except (KeyError, TypeError, OverflowError, InputError) as error:
            raise ValueError(f"cannot be understood: {error}") from error
        is_known = message.get("v") == _VERSION and request.what in get_args(_What)
        if not is_known or (request.wish is None) != (request.what in ("expand", "done")):
            raise ValueError("is of another version of asa")
        if request.processes < 1 or not 0 <= request.wait_s < math.inf:
            raise ValueError("asks for what cannot be")
        return request


@dataclass(frozen=True, slots=True)
class Reply:
    """A manager's answer."""

    action: Action  # the action that the program is to take
    processes: int  # number of processes that it has then
    why: str = ""
    nodes: tuple[str, ...] = ()  # names of the nodes that came with an expansion, if the batch system names them

    def message(self) -> dict[str, Any]:
        """Return the text to send."""
        return {"v": _VERSION, **asdict(self)}

    @classmethod
    def heard(cls, message: Mapping[str, Any]) -> Reply:
        """Parse a received text."""
        try:
            if message["v"] == _VERSION:
                nodes = tuple(map(str, message.get("nodes", ())))  # older managers name none
                return cls(
                    Action(message["action"]), whole(message["processes"], "processes"), str(message["why"]), nodes
                )
        except (KeyError, TypeError, InputError) as error:
            raise ValueError(f"cannot be understood: {error}") from error
        raise ValueError("is of another version of asa")


def whole(value: Any, where: str) -> int:
    """Read a whole number, whether Python's or numpy's."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise InputError(f"{value!r} is no whole number", where=where, hint="Give one, such as 4.")
