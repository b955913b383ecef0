"""The fixed waits among which Algorithm 1 chooses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError
from asa.estimators.base import WaitObservation

PAPER_ALTERNATIVES_S: tuple[float, ...] = (
    *(float(s) for s in range(10, 100, 5)),
    *(float(s) for s in range(100, 1000, 50)),
    *(float(s) for s in range(1000, 10_000, 1000)),
    *(float(s) for s in range(10_000, 70_000, 10_000)),
    80_000.0,
    100_000.0,
)
"""53 waits from 10 s to 100,000 s (28 h), denser in the 10's and 100's.

Section 4.3 gives the number, the range and the decades, but not the list; ours has steps of 5 s, 50 s, 1000 s and
10,000 s within the decades, fewer at the top.
"""


def validated(alternatives_s: tuple[float, ...]) -> NDArray[np.float64]:
    """Check a list of alternatives and return it as a read-only array."""
    waits = np.asarray(alternatives_s, dtype=np.float64)
    if (
        waits.ndim != 1
        or waits.size < 2
        or not np.all(np.isfinite(waits))
        or waits[0] < 0
        or np.any(np.diff(waits) <= 0)
    ):
        raise InputError(
            "the alternatives are no ascending list of waits",
            hint="Give at least two waits in seconds, smallest first.",
        )
    waits.flags.writeable = False
    return waits


def nearest(alternatives_s: NDArray[np.float64], wait_s: float) -> int:
    """Return the index of the alternative closest to a wait, in seconds as in the paper; the shorter if two tie.

    O(log m).

    Parameters
    ----------
    alternatives_s
        Seconds, ascending, shape (m,).
    wait_s
        Seconds.

    Examples
    --------
    >>> nearest(np.array([10.0, 20.0, 40.0]), 29.0)
    1
    """
    right = int(np.searchsorted(alternatives_s, wait_s))
    if right == 0:
        return 0
    if right == len(alternatives_s):
        return right - 1
    return right - 1 if wait_s - alternatives_s[right - 1] <= alternatives_s[right] - wait_s else right


def closest_losses(alternatives_s: NDArray[np.float64], observation: WaitObservation) -> NDArray[np.float64]:
    """Return the loss of each alternative for an observed wait: 0 for the closest, 1 for all others (equation 3).

    For a censored observation only certain losses count. With an upper bound, alternatives above the one closest to it
    are wrong; those up to it may be right, so they lose nothing. With a lower bound it is the other way round.
    """
    losses = np.ones(len(alternatives_s))
    best = nearest(alternatives_s, observation.wait_s)
    if observation.kind == "exact":
        losses[best] = 0.0
    elif observation.kind == "at_most":
        losses[: best + 1] = 0.0
    else:
        losses[best:] = 0.0
    return losses
