"""Chooses an untried width that is worth one run: once its run time is known, the stage is expected to end sooner."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from asa.estimators.joint import JointForecast
from asa.runtimes.comparing import DEFAULT_TOLL, Compared, Toll
from asa.shapes import RunAt, Scaling, run_time_at
from asa.units import core_hours

MIN_GAIN = 0.05
"""A trial is worth it if knowing the run time is expected to save at least this share of the time to the end."""

_SAMPLES = 64
_MIDDLES = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
_NORMAL = np.array([NormalDist().inv_cdf(level) for level in _MIDDLES.tolist()])
_ROUNDS = 60

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Untried:
    """A width at which no run of a stage is known.

    `width`: cores; for a stage that asks only for nodes, nodes.
    `near`: the run time at the nearest known width.
    `runs_s`: equally likely values of the median run time at this width, ascending.
    """

    width: int
    near: RunAt
    runs_s: _Floats

    @property
    def run_s(self) -> tuple[float, float, float]:
        """The 0.1, 0.5 and 0.9 quantiles of its run time."""
        low_s, half_s, high_s = np.quantile(self.runs_s, [0.1, 0.5, 0.9]).tolist()
        return low_s, half_s, high_s

    def scales(self, run_s: float) -> float:
        """Return the efficiency of a run time here, relative to perfect scaling from the nearest known width."""
        return self.near.run_s * self.near.width / (run_s * self.width)


def untried(
    points: Sequence[RunAt], scaling: Scaling, listed: Collection[int] = (), unit: int = 1
) -> Iterator[Untried]:
    """Return widths that may be worth a trial: twice the widest known, half the narrowest, between, and listed ones.

    `points`: known run times.
    `unit`: widths must be multiples of this.
    """
    known = tuple(sorted(points, key=lambda point: point.width))
    widths = {point.width for point in known}
    found = {2 * max(widths), *listed} | ({min(widths) // 2} if min(widths) % 2 == 0 else set())
    for narrow, wide in pairwise(known):
        width = 2 * narrow.width
        while width < wide.width:
            found.add(width)
            width *= 2
    for width in sorted(found - widths):
        if width % unit == 0:
            near = min(known, key=lambda point: abs(math.log(point.width / width)))
            yield Untried(width, near, _runs_s(width, known, scaling, near))


def _runs_s(width: int, known: tuple[RunAt, ...], scaling: Scaling, near: RunAt) -> _Floats:
    """Return equally likely run times at a width, by the scaling law; without a law, over the whole possible range."""
    known_s = run_time_at(width, known, scaling)
    if known_s is not None:
        # single runs vary even if the law is known exactly
        unknown = math.sqrt(max(known_s.spread**2 - near.spread**2, 0.0))
        by_law: _Floats = known_s.run_s * np.exp(unknown * _NORMAL)
        return by_law
    low, high = _powers(width, known)
    guessed: _Floats = np.sort(near.run_s * (near.width / width) ** (low + (high - low) * _MIDDLES))
    return guessed


def _powers(width: int, known: tuple[RunAt, ...]) -> tuple[float, float]:
    """Return bounds of the power of the width with which the run time falls: 0 for no scaling, 1 for perfect scaling.

    A program scales no better at larger widths than before, and no worse at smaller ones.
    """
    if len(known) < 2:
        return 0.0, 1.0
    is_wider = width > known[-1].width
    narrow, wide = known[-2:] if is_wider else known[:2]
    power = math.log(narrow.run_s / wide.run_s) / math.log(wide.width / narrow.width)
    power = min(max(power, 0.0), 1.0)
    return (0.0, power) if is_wider else (power, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A trial of a width, and its expected benefit."""

    untried: Untried
    cores: int
    partition: str
    gain_s: float  # mean over possible run times: seconds by which all would end sooner once its own is known
    share: float  # the same as a share of the time to the end
    likely: float  # probability that this width turns out to be the best
    needed_s: float  # the longest run time with which this width is the best

    @property
    def is_worth_it(self) -> bool:
        """Whether the expected gain is large enough."""
        return self.share >= MIN_GAIN

    @property
    def core_hours(self) -> tuple[float, float]:
        """The core-hours of the trial, in 8 of 10 cases."""
        low_s, _, high_s = self.untried.run_s
        return core_hours(self.cores, low_s), core_hours(self.cores, high_s)


@dataclass(frozen=True, slots=True, eq=False)
class UntriedOffer:
    """An untried width as a request, with its wait in the futures in which the offers are judged."""

    untried: Untried
    cores: int
    partition: str
    wait: JointForecast  # the wait of this request alone


def best_trial(compared: Compared, candidates: Sequence[UntriedOffer], toll: Toll = DEFAULT_TOLL) -> Trial | None:
    """Choose the width whose trial is expected to gain the most; None if there is none.

    The gain is by how much its time to end, weighted with its core-hours, is below that of the best offer, averaged
    over its possible run times; run times with which it is no better count as 0.
    """
    return max(
        (_trial(compared, candidate, toll) for candidate in candidates), key=lambda trial: trial.share, default=None
    )


def _trial(compared: Compared, offer: UntriedOffer, toll: Toll) -> Trial:
    to_beat = float(compared.paid.costs()[compared.least])
    gains = np.maximum(-np.expm1(toll.costs(offer.wait, offer.cores, offer.untried.runs_s) - to_beat), 0.0)
    typical_s = math.exp(float(compared.ends.costs()[compared.least]))
    share, likely = float(gains.mean()), float((gains > 0).mean())
    needed_s = _needed_s(offer, to_beat, toll)
    return Trial(offer.untried, offer.cores, offer.partition, typical_s * share, share, likely, needed_s)


def _needed_s(offer: UntriedOffer, to_beat: float, toll: Toll) -> float:
    """Find, by bisection, the longest run time at which the untried width would be the best."""
    low, high = 0.0, math.log(float(offer.untried.runs_s[-1]) * 2.0)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        is_better = float(toll.costs(offer.wait, offer.cores, np.array([math.exp(middle)]))[0]) < to_beat
        low, high = (middle, high) if is_better else (low, middle)
    return math.exp(low)
