"""Blends a batch system's own estimate of a start with a forecast, by the recent errors of both.

Slurm's ``sbatch --test-only`` and the plan of a planning system assume that jobs use their whole walltimes and that no
later jobs arrive. But such estimates know priorities, and the queue that a site may hide. As an input of the
estimators, such an estimate helped while few waits were learned, and did harm later. So the two are blended outside of
the estimators, by the errors of earlier estimates. If the queue is visible and simulated, the site's estimate adds
nothing, and is not used.

Constants were chosen on two logs (HPC2N, CTC) and a stretch of one on real daemons (CTC), and confirmed on others; see
"The site's own word" in docs/research/forecasts.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asa.core.late import dataclass
from asa.estimators.joint import FLOOR_S, JointForecast, monotone
from asa.waits import WaitForecast

_MAX_LIVED = 200
_KEEP = 0.95  # factor on the weight of an outcome with each later one
_NEAR = 0.8  # in decades: at this distance between two estimates, the outcome of one has weight 1/e for the other
_OF_BIAS, _OF_ERROR = 2.0, 4.0  # weights of the prior values, in outcomes
_SITE_ERROR = 1.0  # prior error of the site's estimate without its bias, in decades
_LEARNED_ERROR, _FIRST_ERROR = 0.7, 1.1  # prior errors of a forecast, in decades
_FEW_WAITS = 30
_OF_ASSUMED = 4.0  # weight of the assumed error, in outcomes
_SHARPNESS = 4.0  # trust falls by exp(-sharpness x error in decades)
_LATELY = 50


class Lived(NamedTuple):
    """A wait that a batch system estimated, the forecast made with it, and the observed wait; in seconds."""

    word_s: float
    forecast_s: float
    wait_s: float


def off_lately(lived: Sequence[Lived]) -> tuple[int, float, float]:
    """Return the number of recent estimates with an observed wait, their error in decades, and that of the forecasts.

    The error of the forecasts is nan if no forecast is known.
    """
    estimates, forecasts, waits = _decades(np.array(lived[-_LATELY:], dtype=np.float64).reshape(-1, 3).T)
    if not len(estimates):
        return 0, math.nan, math.nan
    return len(estimates), float(np.abs(waits - estimates).mean()), float(np.abs(waits - forecasts).mean())


@dataclass(frozen=True, slots=True)
class Blend:
    """A forecast blended with a batch system's own estimate."""

    forecast: WaitForecast
    share: float  # weight of that estimate, from 0 to 1
    shift: float  # decades by which the forecast was moved


def assumed_error(learned: int, lately: Sequence[tuple[float, float]]) -> float:
    """Return the assumed error of a forecast, in decades, before any was compared with an observed wait.

    `learned`: number of waits that it is based on.
    `lately`: such forecasts and the observed waits, in seconds, the oldest first.
    """
    assumed = _LEARNED_ERROR if learned >= _FEW_WAITS else _FIRST_ERROR
    stated, waits = _decades(np.array(lately[-_LATELY:], dtype=np.float64).reshape(-1, 2).T)
    return (float(np.abs(stated - waits).sum()) + _OF_ASSUMED * assumed) / (len(waits) + _OF_ASSUMED)


def blend(forecast: WaitForecast, word_s: float, lived: Sequence[Lived], assumed: float = _LEARNED_ERROR) -> Blend:
    """Shift a forecast towards a batch system's own estimate, by the recent errors of both.

    `lived`: earlier estimates and the observed waits, the oldest first.
    `assumed`: assumed error of the forecast in decades; see `assumed_error`.
    """
    latest = np.array(lived[-_MAX_LIVED:], dtype=np.float64).reshape(-1, 3)
    estimates, forecasts, waits = _decades(latest.T)
    estimate, stated = _decades(np.array([word_s, forecast.quantiles_s[4]])).tolist()
    counts = _KEEP ** np.arange(len(estimates) - 1, -1, -1) * np.exp(-np.abs(estimates - estimate) / _NEAR)
    total = float(counts.sum())
    bias = float(counts @ (waits - estimates)) / (total + _OF_BIAS)
    of_estimate = (float(counts @ np.abs(waits - estimates - bias)) + _OF_ERROR * _SITE_ERROR) / (total + _OF_ERROR)
    of_forecast = (float(counts @ np.abs(waits - forecasts)) + _OF_ERROR * assumed) / (total + _OF_ERROR)
    share = 1.0 / (1.0 + math.exp(_SHARPNESS * (of_estimate - of_forecast)))
    shift = share * (max(estimate + bias, math.log10(FLOOR_S)) - stated)
    return Blend(_moved(forecast, shift), share, shift)


def blended_together(joint: JointForecast, shifts: Sequence[float]) -> JointForecast:
    """Shift each request of a joint forecast by a number of decades."""
    moved = _decades(joint.waits_s) + np.array(shifts)
    return replace(joint, waits_s=np.maximum(10.0 ** monotone(joint.jobs, moved) - FLOOR_S, 0.0))


def decades_between(forecast: WaitForecast, moved: WaitForecast) -> float:
    """Return by how many decades a forecast was shifted."""
    middles: tuple[float, float] = tuple(_decades(np.array([forecast.quantiles_s[4], moved.quantiles_s[4]])).tolist())
    return middles[1] - middles[0]


def _moved(forecast: WaitForecast, shift: float) -> WaitForecast:
    times = 10.0**shift
    *quantiles_s, wait_s = (
        max((value_s + FLOOR_S) * times - FLOOR_S, 0.0) for value_s in (*forecast.quantiles_s, forecast.wait_s)
    )
    return WaitForecast(tuple(quantiles_s), wait_s, forecast.alternative)


def _decades(waits_s: NDArray[np.float64]) -> NDArray[np.float64]:
    decades: NDArray[np.float64] = np.log10(waits_s + FLOOR_S)
    return decades
