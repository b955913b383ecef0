"""Estimates Slurm's clock from the client's."""

from __future__ import annotations

import math

_MAX_S = 86400.0


class ClockOffset:
    """The difference between Slurm's clock and the client's, as far as submissions show it.

    A submission lies between two readings of the client's clock, and Slurm dates it in whole seconds; this bounds the
    offset from both sides. As long as the clocks may be equal, they are assumed to be. An offset of more than a day is
    ignored.

    Examples
    --------
    >>> offset = ClockOffset()
    >>> offset.learn(100.2, 100.4, 100.0)
    >>> offset.offset_s
    0.0
    >>> offset = ClockOffset()
    >>> offset.learn(100.2, 100.4, 130.0)
    >>> round(offset.offset_s, 6)
    29.6
    """

    def __init__(self) -> None:
        self._min_s = -math.inf
        self._max_s = math.inf

    @property
    def offset_s(self) -> float:
        """Seconds to add to the client's clock: the smallest correction within the bounds."""
        return min(max(0.0, self._min_s), self._max_s)

    def learn(self, before_s: float, after_s: float, dated_s: float) -> None:
        """Learn the bounds from a submission."""
        min_s, max_s = dated_s - after_s, dated_s + 1.0 - before_s
        if min_s > _MAX_S or max_s < -_MAX_S:
            return
        # if the bounds exclude each other, a clock was set, and the latest bounds count
        if max(min_s, self._min_s) <= min(max_s, self._max_s):
            min_s, max_s = max(min_s, self._min_s), min(max_s, self._max_s)
        self._min_s, self._max_s = min_s, max_s
