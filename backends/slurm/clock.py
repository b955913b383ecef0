"""Slurm's clock, read off the client's."""

from __future__ import annotations

import math

_MOST_S = 86400.0


class ClockOffset:
    """How far Slurm's clock is ahead of the client's, as far as submissions show it.

    A submission between two readings of the client's clock, which Slurm dates in whole seconds, bounds the offset from
    both sides. As long as the two clocks may be equal they are taken to be. What is more than a day apart is not
    believed.

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
        self._least_s = -math.inf
        self._most_s = math.inf

    @property
    def offset_s(self) -> float:
        """Seconds to add to the client's clock: of all that fit what was seen, the smallest correction."""
        return min(max(0.0, self._least_s), self._most_s)

    def learn(self, before_s: float, after_s: float, dated_s: float) -> None:
        """Take in a submission."""
        least_s, most_s = dated_s - after_s, dated_s + 1.0 - before_s
        if least_s > _MOST_S or most_s < -_MOST_S:
            return
        # where the bounds exclude each other a clock was set, and the latest count
        if max(least_s, self._least_s) <= min(most_s, self._most_s):
            least_s, most_s = max(least_s, self._least_s), min(most_s, self._most_s)
        self._least_s, self._most_s = least_s, most_s
