"""The port of what learns the wait of one job geometry, and the values that cross it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from asa.waits import WaitObservation, at_least, at_most, exactly

__all__ = ["Distribution", "Prediction", "WaitLearner", "WaitObservation", "at_least", "at_most", "exactly"]


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
    """What an estimator believes: waits in seconds, ascending, and the probability of each.

    Parameters
    ----------
    waits_s
        Seconds, ascending, shape (m,).
    probabilities
        Of each, shape (m,); they add up to 1.
    """

    waits_s: NDArray[np.float64]
    probabilities: NDArray[np.float64]


@runtime_checkable
class WaitLearner(Protocol):
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
