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
"""How probable it must be that another shape is better than the present one."""

_NO_HOURS = 1e-6
_SPREAD = (0, 4, 8)  # indices of p10, p50 and p90


@dataclass(frozen=True, slots=True)
class Offer:
    """A shape, and the cores of a job in it."""

    cores: int
    shape: Shape

    @property
    def core_hours(self) -> float:
        """Expected core-hours."""
        return core_hours(self.cores, self.shape.run_s)


@dataclass(frozen=True, slots=True)
class Toll:
    """The time that core-hours add to an end, in a comparison.

    Without a price, they do so by a factor: a percent of core-hours counts as `power` percent of time. `asa-plan`
    chooses the shape of a stage in a job of its own by the same rules.
    """

    power: float = WORTH_OF_SHAPES
    price_s: float | None = None  # seconds for each core-hour

    def on(self, ends: JointForecast, hours: Sequence[float]) -> JointForecast:
        """Lengthen the times to the ends of requests that take `hours` core-hours each."""
        factors, added_s = self._terms(np.asarray(hours, dtype=np.float64))
        usual_s = None if ends.usual_s is None else ends.usual_s * factors + added_s
        return replace(ends, waits_s=ends.waits_s * factors + added_s, usual_s=usual_s)

    def costs(self, wait: JointForecast, cores: int, runs_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the cost of one request at each of the given run times, as a logarithm."""
        factors, added_s = self._terms(core_hours(cores, 1.0) * runs_s)
        ends = wait.only([0] * len(runs_s)).costs((runs_s + added_s).tolist())
        costs: NDArray[np.float64] = ends + np.log(factors)
        return costs

    def _terms(self, hours: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.price_s is not None:
            return np.ones_like(hours), self.price_s * hours
        return np.maximum(hours, _NO_HOURS) ** self.power, np.zeros_like(hours)


DEFAULT_TOLL = Toll()


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Shapes compared: the best has the least time to its end with the toll on core-hours."""

    offers: tuple[Offer, ...]
    waits: JointForecast  # waits of the offers
    ends: JointForecast  # time until each offer ends
    paid: JointForecast  # these times with the toll on core-hours
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


def compare(offers: Sequence[Offer], waits: JointForecast, own: int | None, toll: Toll = DEFAULT_TOLL) -> Compared:
    """Choose among shapes; the present one stays unless another is probably better.

    `waits`: waits of the offers, in the same sampled futures.
    `own`: the index of the present request; None if there is none.
    """
    run_s, spreads = [offer.shape.run_s for offer in offers], [offer.shape.spread for offer in offers]
    ends = waits.until_ends(run_s, spreads)
    paid = toll.on(ends, [offer.core_hours for offer in offers])
    return Compared(tuple(offers), waits, ends, paid, own, paid.best(own=own, sure=SURE))


def _spread(joint: JointForecast, place: int) -> tuple[float, float, float]:
    quantiles_s = joint.for_choice(place).quantiles_s
    low_s, half_s, high_s = (quantiles_s[level] for level in _SPREAD)
    return low_s, half_s, high_s
