"""Compares the shapes in which a stage could be asked for: by when it would end, and for how many core-hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from asa.estimators.joint import JointForecast
from asa.shapes import Shape
from asa.strategies.planning import WORTH_OF_SHAPES
from asa.units import core_hours

SURE = 0.6
"""How probable it has to be that another shape is better than the one that is asked for now."""

_NO_HOURS = 1e-6
_SPREAD = (0, 4, 8)  # indices of p10, p50 and p90


@dataclass(frozen=True, slots=True)
class Offer:
    """A shape, and the cores of a job in it."""

    cores: int
    shape: Shape

    @property
    def core_hours(self) -> float:
        """Core-hours that it is expected to use."""
        return core_hours(self.cores, self.shape.run_s)


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Shapes compared: the best has the lowest cost of time and core-hours; 1 % of core-hours counts as 0.1 % of time.

    `asa-plan` chooses the shape of a stage alone in its job by the same rule.
    """

    offers: tuple[Offer, ...]
    waits: JointForecast  # waits of the offers
    ends: JointForecast  # time until each offer ends
    paid: JointForecast  # these times, multiplied by a factor that grows with the core-hours
    own: int | None  # index of the present request
    best: int

    def wait_s(self, place: int) -> tuple[float, float, float]:
        """Return p10, p50 and p90 of an offer's wait."""
        return _spread(self.waits, place)

    def end_s(self, place: int) -> tuple[float, float, float]:
        """Return p10, p50 and p90 of the time until an offer ends."""
        return _spread(self.ends, place)

    def sooner(self, place: int, other: int) -> float:
        """Return the probability that an offer ends before another."""
        return self.ends.probability_before(place, other)

    def better(self, place: int, other: int) -> float:
        """Return the probability that an offer costs less than another, with its core-hours."""
        return self.paid.probability_before(place, other)

    @property
    def least(self) -> int:
        """Index of the offer with the least cost, even if it is not surely better than the present one."""
        return int(np.argmin(self.paid.costs()))

    @property
    def next_best(self) -> int | None:
        """Index of the best of the other offers."""
        order = np.argsort(self.paid.costs(), kind="stable").tolist()
        return next((place for place in order if place != self.best), None)


def compare(offers: Sequence[Offer], waits: JointForecast, own: int | None, worth: float = WORTH_OF_SHAPES) -> Compared:
    """Choose among shapes; the present one stays unless another is probably better.

    `waits`: waits of the offers, in the same sampled futures.
    `own`: the index of the present request; None if there is none.
    `worth`: how many percent of time one percent of core-hours is worth.
    """
    run_s, spreads = [one.shape.run_s for one in offers], [one.shape.spread for one in offers]
    ends = waits.until_ends(run_s, spreads)
    times = times_of([one.core_hours for one in offers], worth)
    usual_s = None if ends.usual_s is None else ends.usual_s * times
    paid = replace(ends, waits_s=ends.waits_s * times, usual_s=usual_s)
    return Compared(tuple(offers), waits, ends, paid, own, paid.best(own=own, sure=SURE))


def times_of(hours: Sequence[float] | NDArray[np.float64], worth: float) -> NDArray[np.float64]:
    """Return the factors of the times to their ends by which core-hours count."""
    times: NDArray[np.float64] = np.maximum(np.asarray(hours, dtype=np.float64), _NO_HOURS) ** worth
    return times


def _spread(joint: JointForecast, place: int) -> tuple[float, float, float]:
    quantiles_s = joint.for_choice(place).quantiles_s
    low_s, half_s, high_s = (quantiles_s[level] for level in _SPREAD)
    return low_s, half_s, high_s
