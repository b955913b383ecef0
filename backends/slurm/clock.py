"""Slurm's clock, read off the client's."""

from __future__ import annotations

import math

_MAX_S = 86400.0


class ClockOffset:
    """How far Slurm's clock is ahead of the client's, as far as submissions show.

    A submission between two readings of the client's clock, which Slurm dates in whole seconds, bounds the offset from
    both sides. As long as the clocks may be equal, they are assumed to be. An offset of more than a day is ignored.

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
        """Seconds to add to the client's clock: of all that fit what was seen, the smallest correction."""
        return min(max(0.0, self._min_s), self._max_s)

    def learn(self, before_s: float, after_s: float, dated_s: float) -> None:
        """Take in a submission."""
        min_s, max_s = dated_s - after_s, dated_s + 1.0 - before_s
        if min_s > _MAX_S or max_s < -_MAX_S:
            return
        # where the bounds exclude each other a clock was set, and the latest count
        if max(min_s, self._min_s) <= min(max_s, self._max_s):
            min_s, max_s = max(min_s, self._min_s), min(max_s, self._max_s)
        self._min_s, self._max_s = min_s, max_s
