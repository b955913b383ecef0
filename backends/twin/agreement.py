"""Measures how well simulated waits of jobs agree with the recorded ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NOTHING_S = 60.0  # shorter waits count as equal
_TIMES = 2.0
_CLASSES = 4
_FITTED = (0.25, 0.5, 0.75, 0.9, 0.97)
_FEWEST = 20  # minimum number of jobs of a class
_LEAST_SHARE = 0.01  # minimum share of the jobs of a queue that is compared

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Recorded and simulated waits of the given jobs, in seconds.

    `of`: description of the jobs.
    `jobs`: their number.
    `recorded_s`, `simulated_s`: medians, 75th and 90th percentiles of the waits.
    `within_2`: share of jobs whose waits are within a factor of two of each other; waits below a minute count as a
    minute.
    `ks`: Kolmogorov-Smirnov distance of the two distributions, 0 to 1.
    """

    of: str
    jobs: int
    recorded_s: tuple[float, float, float]
    simulated_s: tuple[float, float, float]
    within_2: float
    ks: float

    @property
    def ratio(self) -> float:
        """The ratio of the simulated median to the recorded one; both are at least a minute."""
        return max(self.simulated_s[0], _NOTHING_S) / max(self.recorded_s[0], _NOTHING_S)


def agreement(of: str, recorded_s: Floats, simulated_s: Floats) -> Agreement:
    """Compare the waits of the same jobs; there must be at least one.

    Examples
    --------
    >>> agreement("all", np.array([0.0, 600.0, 600.0]), np.array([30.0, 400.0, 6000.0])).within_2
    0.6666666666666666
    """
    one, other = np.maximum(recorded_s, _NOTHING_S), np.maximum(simulated_s, _NOTHING_S)
    alike = np.maximum(one / other, other / one) <= _TIMES
    return Agreement(
        of, len(one), _points(recorded_s), _points(simulated_s), float(alike.mean()), _distance(one, other)
    )


def _points(waits_s: Floats) -> tuple[float, float, float]:
    middle, upper, high = np.quantile(waits_s, (0.5, 0.75, 0.9)).tolist()
    return middle, upper, high


def _distance(one: Floats, other: Floats) -> float:
    at = np.sort(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(waits), at, side="right") / len(waits) for waits in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def misfit(
    cores: NDArray[np.int64], recorded_s: Floats, simulated_s: Floats, queues: NDArray[np.int64] | None = None
) -> float:
    """Return the mean distance of quantiles of waits in powers of ten, over widths and, if given, queues.

    Single jobs are not compared: a job's start depends on all jobs before it, and runs in a twin depend on the queue as
    a whole.
    """
    groups = [[which for _, which in by_width(cores)]]
    if queues is not None:
        groups.append([which for _, which in by_queue(queues)])
    each = [_apart(classes, recorded_s, simulated_s) for classes in groups if classes]
    return float(np.mean(each or [_apart([np.ones(len(cores), dtype=np.bool_)], recorded_s, simulated_s)]))


def _apart(classes: list[NDArray[np.bool_]], recorded_s: Floats, simulated_s: Floats) -> float:
    apart = [np.abs(np.log10(_floored(recorded_s[which]) / _floored(simulated_s[which]))).mean() for which in classes]
    return float(np.mean(apart))


def _floored(waits_s: Floats) -> Floats:
    return np.maximum(np.quantile(waits_s, _FITTED), _NOTHING_S)


def by_width(cores: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Divide jobs by width into classes of about equal size; classes that are too small are left out.

    Examples
    --------
    >>> [words for words, _ in by_width(np.repeat([1, 8, 64], [50, 30, 30]))]
    ['1 core', '8 cores', '64 cores']
    """
    levels = np.arange(1, _CLASSES) / _CLASSES if len(cores) else ()
    cuts = sorted({int(cut) for cut in np.quantile(cores, levels, method="nearest")} if len(cores) else ())
    low = 1
    for high in [*cuts, int(cores.max(initial=0))]:
        which = (cores >= low) & (cores <= high)
        if which.sum() >= _FEWEST:
            narrow, wide = int(cores[which].min()), int(cores[which].max())
            text = f"{narrow}" if narrow == wide else f"{narrow} to {wide}"
            yield f"{text} core{'' if wide == 1 else 's'}", which
        low = int(high) + 1


def by_queue(queues: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Divide jobs by their queue, the largest queue first; queues with few jobs are left out.

    Examples
    --------
    >>> [queue for queue, _ in by_queue(np.repeat([0, 1, 2], [30, 5, 200]))]
    [2, 0]
    """
    numbers, counts = np.unique(queues, return_counts=True)
    for place in np.argsort(-counts, kind="stable"):
        if counts[place] >= max(_FEWEST, _LEAST_SHARE * len(queues)):
            yield int(numbers[place]), queues == numbers[place]
