"""The port of every wait estimator, and the values that cross it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError

__all__ = ["Distribution", "Prediction", "WaitEstimator", "WaitObservation", "at_least", "at_most", "exactly"]


@dataclass(frozen=True, slots=True)
class WaitObservation:
    """What became known of a queue wait.

    A wait is not always seen whole. A job that was kept back by a dependency and started the moment it was let go
    would have been ready earlier: its wait is *at most* the time since its submission. A job that was cancelled in
    the queue would have waited *at least* until then. Fed as exact, such waits teach errors that feed themselves.

    Parameters
    ----------
    wait_s
        Seconds, at least 0.
    kind
        ``exact``, or which side of the wait this bounds.
    """

    wait_s: float
    kind: Literal["exact", "at_most", "at_least"] = "exact"

    def __post_init__(self) -> None:
        if not 0 <= self.wait_s < float("inf"):
            raise InputError(f"a wait of {self.wait_s} s cannot be", hint="Waits are finite and not negative.")


def exactly(wait_s: float) -> WaitObservation:
    """Note a wait that was seen from beginning to end."""
    return WaitObservation(wait_s)


def at_most(wait_s: float) -> WaitObservation:
    """Note an upper bound: the job was ready before it was allowed to start."""
    return WaitObservation(wait_s, "at_most")


def at_least(wait_s: float) -> WaitObservation:
    """Note a lower bound: the job was still waiting when it was last seen in the queue."""
    return WaitObservation(wait_s, "at_least")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A wait to count on, and the alternative that it was drawn from.

    Parameters
    ----------
    wait_s
        Predicted wait in seconds.
    alternative
        Index of the alternative among the estimator's, for those that choose among alternatives; else -1.
    """

    wait_s: float
    alternative: int = -1


class Distribution(NamedTuple):
    """What an estimator believes: waits in seconds, ascending, and the probability of each."""

    waits_s: NDArray[np.float64]
    probabilities: NDArray[np.float64]


@runtime_checkable
class WaitEstimator(Protocol):
    """Learns the wait of one job geometry.

    `predict` may be called before anything was observed, as often as wanted, and several predictions may be under way
    at once: each is handed back to `observe` with what became of it. State is plain data, so that it can be kept
    and shared; an estimator made from another's state continues exactly where that one stood.
    """

    def predict(self) -> Prediction:
        """Predict the wait of a job that is submitted now."""
        ...

    def observe(self, observation: WaitObservation | float, prediction: Prediction | None = None) -> None:
        """Learn a wait; `prediction` is the one that was acted upon, if there was one."""
        ...

    def distribution(self) -> Distribution:
        """Say what is believed now."""
        ...

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue, as JSON-ready data."""
        ...
