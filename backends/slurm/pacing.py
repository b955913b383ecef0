"""Times at which a client looks at its jobs: seldom enough for the site, soon enough for the user."""

from __future__ import annotations

import random

_SHARE = 0.1  # of the time since the last change: after a quiet hour, a change is seen within six minutes
_JITTER = 0.1
_MAX_BACK_OFF_S = 60.0  # once Slurm answers again, this is noticed within a minute


def interval_s(quiet_s: float, failures: int, *, min_s: float, max_s: float) -> float:
    """Return how long to wait between two looks, before jitter.

    `quiet_s`: seconds from the last change that concerns this client to the last look; negative if the change is later.

    Examples
    --------
    >>> [interval_s(quiet, 0, min_s=2.0, max_s=60.0) for quiet in (0.0, 100.0, 3600.0)]
    [2.0, 10.0, 60.0]
    >>> [interval_s(100.0, failures, min_s=2.0, max_s=60.0) for failures in (1, 2, 3, 30)]
    [4.0, 8.0, 16.0, 60.0]
    """
    max_s = max(min_s, max_s)
    if failures:
        return min(min_s * 2.0 ** min(failures, 60), max(min_s, min(max_s, _MAX_BACK_OFF_S)))
    return min(max(_SHARE * quiet_s, min_s), max_s)


class Pacer:
    """Computes when the next look is due. All times are seconds on the client's own clock."""

    def __init__(self, at_s: float, *, min_s: float, max_s: float, seed: int) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._random = random.Random(seed)
        self._changed_s = at_s
        self._looked_s: float | None = None
        self._failures = 0
        self._jitter = 1.0

    def changed(self, at_s: float) -> None:
        """Record a change, also one by the client itself."""
        self._changed_s = at_s

    def looked(self, at_s: float, *, heard: bool) -> None:
        """Record a look, and whether it was answered."""
        self._looked_s = at_s
        self._failures = 0 if heard else self._failures + 1
        self._jitter = 1.0 + _JITTER * self._random.uniform(-1.0, 1.0)

    def pause_s(self, at_s: float) -> float:
        """Return the seconds until the next routine look is due; 0 or less if it is due now.

        It is due now if the clock was set back.
        """
        if self._looked_s is None or at_s < self._looked_s:
            return 0.0
        quiet_s = self._looked_s - self._changed_s
        pause_s = interval_s(quiet_s, self._failures, min_s=self._min_s, max_s=self._max_s)
        return self._looked_s + max(pause_s * self._jitter, self._min_s) - at_s

    def may_look(self, at_s: float) -> bool:
        """Whether a request may cause a look now: not within `min_s` of the last look, nor while backing off."""
        if self._looked_s is None or self.pause_s(at_s) <= 0:
            return True
        return not self._failures and at_s - self._looked_s >= self._min_s
