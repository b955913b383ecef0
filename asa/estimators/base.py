"""The port of estimators that learn the wait of one job geometry, and its values."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from asa.core.late import dataclass
from asa.waits import WaitObservation, at_least, at_most, exactly

__all__ = ["Distribution", "Prediction", "WaitLearner", "WaitObservation", "at_least", "at_most", "exactly"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A point prediction, and the alternative from which it was drawn.

    Parameters
    ----------
    wait_s
        Predicted wait in seconds.
    alternative
        Index of the alternative, for estimators that choose among alternatives; else -1.
    """

    wait_s: float
    alternative: int = -1


class Distribution(NamedTuple):
    """An estimator's distribution: waits in seconds, ascending, and the probability of each.

    Parameters
    ----------
    waits_s
        Seconds, ascending, shape (m,).
    probabilities
        The probability of each, shape (m,); they add up to 1.
    """

    waits_s: NDArray[np.float64]
    probabilities: NDArray[np.float64]


@runtime_checkable
class WaitLearner(Protocol):
    """Learns the waits of one job geometry.

    `predict` may be called at any time, also before the first observation. Several predictions may be open at the same
    time: each is passed to `observe` with its observation. The state is plain data, which can be stored and shared. An
    estimator made from the state of another continues exactly from there.
    """

    def predict(self) -> Prediction:
        """Predict the wait of a job that is submitted now."""
        ...

    def observe(self, observation: WaitObservation | float, prediction: Prediction | None = None) -> None:
        """Learn a wait. `prediction`: the prediction that was used for the job, if any."""
        ...

    def distribution(self) -> Distribution:
        """Return the present distribution of the wait."""
        ...

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue, as JSON-ready data."""
        ...
