"""QBETS: bounds on queue waits from order statistics, with a history that is cut when the queue changes.

Nurmi, Brevik and Wolski: "QBETS: Queue Bounds Estimation from Time Series" (JSSPP 2007), and Brevik, Nurmi and Wolski:
"Predicting bounds on queuing delay for batch-scheduled parallel machines" (PPoPP 2006).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from asa.estimators.peers import FIRST_GUESS_S, GeometryMemory, SiteEstimator, contradicts
from asa.geometry import JobGeometry
from asa.waits import LEVELS, QueuedJob, WaitForecast, WaitObservation

CONFIDENCE = 0.95
"""Probability that a predicted bound is not below the quantile that it bounds."""

MIN_HISTORY = math.ceil(math.log(1 - CONFIDENCE) / math.log(LEVELS[-1]))
"""Number of waits needed before even the longest of them bounds the highest level with that confidence: 29."""

_LONGEST = 1000  # number of waits kept for a geometry: adding one takes time proportional to it
_MIDDLE = LEVELS.index(0.5)

_RARE_RUNS = (3, 4, 4, 4, 5, 5, 6, 7, 9, 13)  # by autocorrelation: 0, 0.1, ... 0.9


def rare_run(autocorrelation: float) -> int:
    """Return how many waits in a row above their p90 are so rare that the queue must have changed.

    A rare sequence has a probability below a thousandth. For independent waits that is three in a row, as 0.1 cubed is
    a thousandth. For autocorrelated waits it is more; the numbers are those of a Gaussian first-order autoregressive
    series, a model of the waits' logarithms.

    `autocorrelation`: of the logarithms of consecutive waits, -1 to 1; rounded to tenths, and capped at 0.9.

    Examples
    --------
    >>> rare_run(0.0), rare_run(0.7)
    (3, 7)
    """
    return _RARE_RUNS[min(max(round(10 * autocorrelation), 0), len(_RARE_RUNS) - 1)]


@cache
def _all_places() -> list[tuple[int, ...]]:
    """Return the indices for every length of history, each computed from those of the length before."""
    columns = []
    for level in LEVELS:
        place, at, below = 0, 1.0, 1.0  # without waits: P(B = place) and P(B <= place) of B ~ Bin(n, level)
        column = [0]
        for n in range(1, _LONGEST + 1):
            below -= level * at
            at *= (1 - level) * n / (n - place)
            if below < CONFIDENCE and place < n - 1:
                at *= (n - place) / (place + 1) * level / (1 - level)
                place += 1
                below += at
            column.append(place)
        columns.append(column)
    return list(zip(*columns, strict=True))


def bound_places(waits: int) -> tuple[int, ...]:
    """Return the index of the wait that bounds each level's quantile, among waits in ascending order.

    Of n independent waits, the number below the quantile of level q is binomial. So the wait after k shorter ones is at
    least that quantile with the probability that a binomial variable of n and q is at most k. The bound is the shortest
    wait for which this probability reaches `CONFIDENCE`. If there is none, the longest wait is used.

    Returns for each of `LEVELS` an index, counted from 0.

    Examples
    --------
    >>> bound_places(100)[4], bound_places(100)[8], bound_places(29)[8], bound_places(28)[8]
    (58, 95, 28, 27)
    """
    return _all_places()[waits]


class _History(GeometryMemory):
    """The waits since the last change of the queue, in order of becoming known and in order of length."""

    __slots__ = ("ascending", "recent", "run")

    def __init__(self, geometry: JobGeometry | None) -> None:
        super().__init__(geometry)
        self.recent: deque[float] = deque()
        self.ascending: list[float] = []
        self.run = 0  # how many waits in a row have exceeded the bound of the highest level

    def learn(self, wait_s: float) -> None:
        self.known += 1
        ascending = self.ascending
        if len(ascending) >= MIN_HISTORY:
            above = wait_s > ascending[bound_places(len(ascending))[-1]]
            self.run = self.run + 1 if above else 0
        if len(ascending) == _LONGEST:
            del ascending[bisect_left(ascending, self.recent.popleft())]
        self.recent.append(wait_s)
        insort(ascending, wait_s)
        if self.run >= _RARE_RUNS[0] and self.run >= rare_run(_autocorrelation(self.recent)):
            self._forget()

    def _forget(self) -> None:
        self.run = 0
        self.recent = deque(list(self.recent)[-MIN_HISTORY:])
        self.ascending = sorted(self.recent)

    def state(self) -> list[Any]:
        return [self.known, self.point_s, self.run, list(self.recent)]

    def restore(self, state: Sequence[Any]) -> None:
        super().restore(state)
        self.run = int(state[2])
        self.recent = deque(map(float, state[3]))
        self.ascending = sorted(self.recent)
        if len(self.recent) > min(self.known, _LONGEST) or (self.known and not self.recent):
            raise ValueError("a history that is too long or too short")


def _autocorrelation(waits_s: Sequence[float] | deque[float]) -> float:
    """Return the autocorrelation of the waits' logarithms at lag 1."""
    logs = [math.log10(1.0 + wait_s) for wait_s in waits_s]
    mean = sum(logs) / len(logs)
    logs = [log - mean for log in logs]
    square = sum([log * log for log in logs])
    if square <= 0:
        return 0.0
    return sum([one * other for one, other in pairwise(logs)]) / square


class Qbets(SiteEstimator[_History]):
    """Predict by upper bounds: with 95 % confidence the true quantiles are not above them (QBETS).

    As published: the bounds are order statistics (see `bound_places`), without assumptions on the distribution. Each
    new wait is compared with the bound of the highest level. If more in a row exceed it than is likely with this
    series' autocorrelation (see `rare_run`), the queue has changed: all waits are forgotten but the latest
    `MIN_HISTORY`, the fewest that can bound the highest level.

    Different from the original: jobs are grouped by geometry, not clustered by size with a mixture model; the highest
    level is 0.9, not 0.95; a wait is compared with the present bound rather than the one predicted for it, so that a
    burst of late observations counts as one change; and at most 1000 waits are kept. A geometry with fewer than
    `MIN_HISTORY` waits has the bounds of the whole site.

    Bounds are too high rather than too low: their coverage exceeds their levels, most of all with a short history. The
    predicted wait is the bound of the median.

    Examples
    --------
    >>> from asa.waits import exactly
    >>> estimator = Qbets()
    >>> job = QueuedJob(0.0, cores=28, walltime_s=3600.0)
    >>> for number in range(100):
    ...     estimator.observe(estimator.submitted(job), exactly(37 * number % 100))
    >>> forecast = estimator.predict(job)
    >>> forecast.wait_s, forecast.at(0.9)
    (58.0, 95.0)
    """

    _memory_type = _History

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Return upper bounds of the wait of a job that is submitted now."""
        memory = self._by_request.get((job.cores, job.walltime_s, job.system, job.partition)) or self._remember(job)
        ascending = memory.ascending
        if len(ascending) < MIN_HISTORY:
            ascending = self._site.ascending
            if not ascending:
                return WaitForecast((FIRST_GUESS_S,) * len(LEVELS), FIRST_GUESS_S)
        bounds = tuple([ascending[place] for place in bound_places(len(ascending))])
        return WaitForecast(bounds, bounds[_MIDDLE])

    def _learn(
        self,
        memory: _History,
        point_s: float,
        stated_s: tuple[float, ...],
        facts: tuple[float, ...],
        observation: WaitObservation,
    ) -> None:
        del stated_s, facts
        if contradicts(observation, point_s):
            wait_s = float(observation.wait_s)
            memory.learn(wait_s)
            self._site.learn(wait_s)
