"""The value of a selection: the paper's two objectives, and the protocol for custom ones (Section III-A).

The agent selects one job at a time, and is rewarded for each: the paper's means over the jobs selected are of one job.
Every job is selected once, so that the rewards of all schedules of a load have equally many terms.

Users' interests are expressed differently, as the cost of waiting while it lasts (`Cost`). A reward for a selection
comes after a job has waited; a cost comes meanwhile, to the decisions that keep it waiting. A reward can be expressed
as a cost (`Forgone`).
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError, UnknownNameError, near

from .state import Integers

OBJECTIVES: Final = ("waiting", "capability", "capacity")
"""See `read_objective`."""


@dataclass(frozen=True, slots=True)
class SelectedJob:
    """A job selected to start or to be reserved for, and the situation after it."""

    size: int  # its nodes, and its wait
    wait_s: int
    longest_wait_s: int  # the longest wait in the queue, including its own
    # request and wait of each waiting job; one with a reservation is waiting
    requests_s: Integers
    waits_s: Integers
    used: int  # nodes in use, and all nodes
    nodes: int


class Reward(Protocol):
    """An objective, as the reward for selecting a job."""

    def __call__(self, selection: SelectedJob) -> float:
        """Return the value of a selection."""
        ...

    def worth(
        self, sizes: Integers, requests_s: Integers, waits_s: Integers, *, longest_wait_s: int, waiting: int, nodes: int
    ) -> NDArray[np.float64]:
        """Return the value of starting each job now, for rivals that choose several jobs at once.

        `sizes`, `requests_s`, `waits_s`: for each job: nodes, request, and wait so far.
        """
        ...


@dataclass(frozen=True, slots=True)
class Capability:
    """Equation 1: no job starves, large jobs go first, and the machine is used.

    ``wait t / t_max + size n / N + used N_used / N``, where t and n are of the job selected, t_max is the longest wait
    in the queue, and N counts nodes. If no job has waited yet, the first term is 0.
    """

    wait: float = 1 / 3
    size: float = 1 / 3
    used: float = 1 / 3

    def __call__(self, selection: SelectedJob) -> float:
        """Return the value of a selection."""
        return (
            self.wait * selection.wait_s / max(selection.longest_wait_s, 1)
            + (self.size * selection.size + self.used * selection.used) / selection.nodes
        )

    def worth(
        self, sizes: Integers, requests_s: Integers, waits_s: Integers, *, longest_wait_s: int, waiting: int, nodes: int
    ) -> NDArray[np.float64]:
        """Return the value of each job: its nodes count both as size and as use."""
        del requests_s, waiting
        worth: NDArray[np.float64] = (
            self.wait * waits_s / max(longest_wait_s, 1) + (self.size + self.used) * sizes / nodes
        )
        return worth


@dataclass(frozen=True, slots=True)
class Capacity:
    """Equation 2: jobs start soon, short ones above all.

    ``sum over the c jobs that wait of -1 / t``, divided by c.
    """

    # what t is. The paper uses t for a job's requested time, in Section II-A, and for its wait, below Equation 1; it
    # does not say which is meant in Equation 2. A sum of -1 / wait is maximized by starting the last job that came; one
    # of -1 / request counts what each pending job adds to the mean slowdown, as in DeepRM, the source of the equation.
    # So the default is `request`; `wait` is the other reading.
    of: Literal["request", "wait"] = "request"
    min_s: int = 60  # lower bound of the time, as divisor
    unit_s: int = 3600  # unit of t; it only scales the reward

    def __post_init__(self) -> None:
        if self.of not in ("request", "wait") or min(self.min_s, self.unit_s) < 1:
            raise InputError(f"{self} cannot be", where="reward", hint="Give request or wait, and times from 1 s on.")

    def __call__(self, selection: SelectedJob) -> float:
        """Return the value of a selection."""
        times = selection.requests_s if self.of == "request" else selection.waits_s
        return -float(np.mean(self._inverse(times))) if len(times) else 0.0

    def worth(
        self, sizes: Integers, requests_s: Integers, waits_s: Integers, *, longest_wait_s: int, waiting: int, nodes: int
    ) -> NDArray[np.float64]:
        """Return the value of starting each job: it then waits no longer."""
        del sizes, longest_wait_s, nodes
        return self._inverse(requests_s if self.of == "request" else waits_s) / waiting

    def _inverse(self, times_s: Integers) -> NDArray[np.float64]:
        inverse: NDArray[np.float64] = self.unit_s / np.maximum(times_s, self.min_s)
        return inverse


class Cost(Protocol):
    """An objective in the form of a cost of waiting."""

    def __call__(
        self, sizes: Integers, requests_s: Integers, waits_s: Integers, *, nodes: int
    ) -> NDArray[np.float64] | Integers:
        """Return the cost of one more second of waiting for each waiting job.

        `sizes`, `requests_s`, `waits_s`: for each job: nodes, request, and wait so far.
        """
        ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """Jobs start soon, short ones above all: hours of waiting, and waiting relative to requests, as in the slowdown."""

    hours: float = 1.0
    requests: float = 1.0
    min_s: int = 600  # lower bound of the request, as divisor

    def __post_init__(self) -> None:
        if min(self.hours, self.requests) < 0 or self.min_s < 1:
            raise InputError(f"{self} cannot be", where="cost", hint="Give weights from 0 on, and 1 s or more.")

    def __call__(
        self, sizes: Integers, requests_s: Integers, waits_s: Integers, *, nodes: int
    ) -> NDArray[np.float64] | Integers:
        """Return the cost of one more second of waiting for each waiting job."""
        del sizes, waits_s, nodes
        rates: NDArray[np.float64] = self.hours / 3600 + self.requests / np.maximum(requests_s, self.min_s)
        return rates


@dataclass(frozen=True, slots=True)
class Forgone:
    """A reward as a cost: an hour of waiting costs what the job would add if it started (`Reward.worth`).

    So the cost by Equation 2 is, at any time, the mean of 1 / t over pending jobs, and by Equation 1 its terms for the
    wait and the nodes of each.
    """

    reward: Reward

    def __call__(
        self, sizes: Integers, requests_s: Integers, waits_s: Integers, *, nodes: int
    ) -> NDArray[np.float64] | Integers:
        """Return the cost of one more second of waiting for each waiting job."""
        longest_s = int(waits_s.max(initial=0))
        worth = self.reward.worth(sizes, requests_s, waits_s, longest_wait_s=longest_s, waiting=len(sizes), nodes=nodes)
        return worth / 3600


def read_objective(text: str, *, where: str = "objective") -> Capability | Capacity | Waiting:
    """Make an objective from its name, with weights after a colon.

    These are ``capability:WAIT,SIZE,USED`` (Equation 1), ``capacity:request`` or ``capacity:wait`` (Equation 2, and
    what it counts), and ``waiting:HOURS,REQUESTS``.

    Examples
    --------
    >>> read_objective("capability:1,0,0.5")
    Capability(wait=1.0, size=0.0, used=0.5)
    """
    name, colon, given = text.partition(":")
    if name not in OBJECTIVES:
        hint = f"{near(name, OBJECTIVES)}Known: {', '.join(OBJECTIVES)}."
        raise UnknownNameError(f"{name!r} is unknown", where=where, hint=hint)
    if name == "capacity":
        if given not in ("request", "wait") and colon:
            hint = "Give capacity:request, capacity:wait, or capacity, which is the first."
            raise InputError(f"{given!r} is nothing that Equation 2 can count", where=where, hint=hint)
        return Capacity("wait" if given == "wait" else "request")
    names = "WAIT,SIZE,USED" if name == "capability" else "HOURS,REQUESTS"
    if not colon:
        return Capability() if name == "capability" else Waiting()
    weights = [_weight(word) for word in given.split(",")]
    if len(weights) != names.count(",") + 1 or not 0.0 < sum(weights) < math.inf or min(weights) < 0.0:
        raise InputError(
            f"{given!r} are no weights of {name}",
            where=where,
            hint=f"Give {names.count(',') + 1} numbers from 0 on, not all of them 0, as {name}:{names}.",
        )
    return Capability(*weights) if name == "capability" else Waiting(weights[0], weights[1])


def read_reward(text: str, *, where: str = "objective") -> Capability | Capacity:
    """Make a reward objective from its name; see `read_objective`."""
    made = read_objective(text, where=where)
    if isinstance(made, Waiting):
        raise InputError(
            "waiting is a cost, by which only ppo learns", where=where, hint="Give capability or capacity here."
        )
    return made


def described_reward(text: str) -> Capability | Capacity:
    """Make a reward from its description in an agent's file, which is its `repr`.

    Raises `InputError`: it describes neither of the paper's two rewards.

    Examples
    --------
    >>> described_reward(repr(Capacity("wait"))) == Capacity("wait")
    True
    """
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            given = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
            known: dict[str, type[Capability | Capacity]] = {"Capability": Capability, "Capacity": Capacity}
            return known[call.func.id](**given)
    except (SyntaxError, ValueError, TypeError, KeyError):
        pass
    raise InputError(
        f"{text!r} is no reward that is known here", where="reward", hint="Only Equations 1 and 2 are: train anew."
    )


def _weight(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan
