"""Recommends walltimes from run times: enough for 99 runs in 100, and not much more."""

from __future__ import annotations

import math
from typing import Literal

from asa.core.late import dataclass
from asa.runtimes.forecast import RunForecast
from asa.units import round_walltime

_SAFETY = 1.2  # times p99
_MIN_SAFETY = 1.1  # times the longest run
_FEWEST = 5  # fewest runs for advice, unless a run hit its limit
_CLOSE = 0.8  # share of the walltime that p90 may reach
_PAYS = 2 / 3  # share of the present walltime: from there on, shorter walltimes fit into other gaps
_HIT = 0.95  # share of the walltime: a killed run of at least this length was killed by it


@dataclass(frozen=True, slots=True)
class WalltimeAdvice:
    """The recommended walltime of a stage.

    Parameters
    ----------
    stage
        Name of the stage.
    asked_s
        The walltime that it asks for.
    verdict
        ``less`` or ``more`` would be better, the present one ``fits``, or the best is ``unknown``.
    suggested_s
        The recommended walltime; the present one if it fits or nothing is known.
    forecast
        How long the stage runs; None if no run is known.
    """

    stage: str
    asked_s: float
    verdict: Literal["less", "more", "fits", "unknown"]
    suggested_s: float
    forecast: RunForecast | None

    @property
    def hit_limit(self) -> bool:
        """Whether the present walltime killed a run."""
        return self.forecast is not None and self.forecast.longest_cut_s >= _HIT * self.asked_s


def advise(stage: str, asked_s: float, forecast: RunForecast | None, *, max_s: float = math.inf) -> WalltimeAdvice:
    """Recommend a walltime for a stage.

    Enough is 1.2 times p99, and at least 1.1 times the longest run, rounded up to a usual walltime. Less is advised if
    that is at most two thirds of the present walltime; more, if p90 exceeds four fifths of it, or a run reached it.

    Parameters
    ----------
    stage
        Name of the stage.
    asked_s
        The walltime that it asks for.
    forecast
        How long the stage runs; None if no run is known.
    max_s
        The longest walltime at the site.

    Returns
    -------
    WalltimeAdvice
        The recommendation, with the forecast behind it.

    Examples
    --------
    >>> runs = RunForecast((780.0, 800.0, 820.0, 840.0), 14, 0, 830.0, 0.0, "from 14 runs")
    >>> advise("search", 7200.0, runs).suggested_s, advise("search", 900.0, runs).verdict
    (1200.0, 'more')
    """
    if forecast is None:
        return WalltimeAdvice(stage, asked_s, "unknown", asked_s, None)
    enough_s = round_walltime(max(_SAFETY * forecast.p99_s, _MIN_SAFETY * forecast.longest_s))
    hit = forecast.longest_cut_s >= _HIT * asked_s
    known = forecast.count >= _FEWEST and not forecast.is_guess
    longer_s = min(max(enough_s, round_walltime(asked_s + 1.0)), max_s)
    if longer_s > asked_s and (hit or (known and forecast.p90_s > _CLOSE * asked_s)):
        return WalltimeAdvice(stage, asked_s, "more", longer_s, forecast)
    if not known:
        return WalltimeAdvice(stage, asked_s, "unknown", asked_s, forecast)
    if enough_s <= _PAYS * asked_s:
        return WalltimeAdvice(stage, asked_s, "less", enough_s, forecast)
    return WalltimeAdvice(stage, asked_s, "fits", asked_s, forecast)
