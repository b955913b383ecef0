"""Forecasts how long a stage runs, from how long it ran before.

Usually few runs are known: a pipeline has run five times, not five hundred. The method is made for that.

- *Inside the observed range*, quantiles are order statistics by the rule i / (n + 1). On average that is right for any
  number of runs and any distribution, as long as the next run is like those before: it falls into each of the n + 1
  gaps with equal probability. As inputs and codes change, weights halve every 50 runs; for the p50 every 4, so that it
  follows a shift: on the logs of three centres this reduces its error by a sixth to a third.
- *Beyond the observed range*, as for p90 until nine runs are known, and for p99 always, the tail is that of a
  log-normal distribution of unknown spread: Student's t in the logarithm. The spread is shrunk towards the usual one of
  stages, ever less up to 20 runs. The tail never lies inside the observed range.
- *Runs that reached their walltime* are lower bounds. Their weight goes to runs that were longer (Kaplan and Meier's
  estimate, in Efron's form); if there are none, to one and a half times their length.
- *Other amounts of input* are scaled by a power of the size: the slope in the logarithms (Theil and Sen's, which is
  robust against outliers), shrunk towards 1 where data are few. It is estimated from runs on all widths and systems,
  each compared with others of the same.
- *Other widths and systems* give a guess, used only if nothing better is known. One width does not show how a stage
  scales: the middle between no and perfect scaling is taken, with a range wide enough for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import student_quantile
from asa.core.late import dataclass
from asa.errors import InputError

if TYPE_CHECKING:
    from asa.runtimes.log import RunTime

LEVELS = (0.1, 0.5, 0.9, 0.99)
"""Probabilities whose quantiles a forecast states."""

USUAL_SPREAD = 0.25
"""Usual spread of a stage's run times: the standard deviation of the logarithm."""

_LATEST = 200
_HALF_LIFE, _HALF_LIFE_OF_P50 = 50.0, 4.0  # runs
_USUAL_WEIGHT = 3.0  # weight of the usual spread, in runs
_ENOUGH = 20.0  # number of runs at which that weight has fallen to 0
_BEYOND = 1.5  # a run that was cut off counts this many times as long, if no other outlasted it
_SPREAD_OF_POWER = 0.5  # standard deviation of the power of the size around 1, before any run is known
_MAX_POWER = 2.0
_OTHER_SYSTEM = 0.5  # standard deviation of the logarithm between systems
_SAME = 1e-9

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunForecast:
    """The forecast of a stage's run time.

    Parameters
    ----------
    quantiles_s
        Quantiles in seconds at the probabilities of `LEVELS`; ascending.
    count
        Number of runs that it is based on.
    cut_off
        How many of these runs reached their walltime.
    longest_s
        The longest of these runs, scaled to this size and width.
    longest_cut_s
        The longest of those that reached their walltime; 0 if none did.
    how
        Where the figures are from, in words: ``from 14 runs``.
    is_guess
        Whether only runs on another width or system are known.
    """

    quantiles_s: tuple[float, float, float, float]
    count: int
    cut_off: int
    longest_s: float
    longest_cut_s: float
    how: str
    is_guess: bool = False

    @property
    def p50_s(self) -> float:
        """Seconds that half the runs do not exceed."""
        return self.quantiles_s[1]

    @property
    def p90_s(self) -> float:
        """Seconds that 9 runs in 10 do not exceed."""
        return self.quantiles_s[2]

    @property
    def p99_s(self) -> float:
        """Seconds that 99 runs in 100 do not exceed."""
        return self.quantiles_s[3]


def forecast_run(
    times: Sequence[RunTime], cores: int, *, input_size: float | None = None, system: str = ""
) -> RunForecast | None:
    """Forecast how long a stage runs.

    Parameters
    ----------
    times
        Run times of this stage, on any width and system, the latest last.
    cores
        Cores that the stage gets.
    input_size
        Amount of input, in the workflow's unit; None if not given.
    system
        The system on which it will run.

    Returns
    -------
    RunForecast or None
        None if no run is known.

    Raises
    ------
    InputError
        There are no cores, or the size is invalid.
    """
    if cores < 1 or (input_size is not None and not 0 < input_size < math.inf):
        raise InputError(f"a stage on {cores} cores with an input of {input_size} has no run time", where="run times")
    if not times:
        return None
    seen = _brought(times, cores, input_size, system)
    runs, is_cut = seen.runs_s, seen.is_cut
    width, place = seen.cores, seen.system
    words = []
    if width != cores or place != system:
        words.append(f"on {_place(width, place, cores, system)}, a guess for {_place(cores, system, width, place)}")
    if seen.power is not None:
        words.append(f"scaled by input size to the power {seen.power:.2g}")
    count, cut_off = len(runs), int(is_cut.sum())
    if cut_off:
        words.append(f"{cut_off} of them cut off at the walltime")
    return RunForecast(
        _quantiles(runs, is_cut, seen.spread),
        count,
        cut_off,
        float(runs.max()),
        float(runs[is_cut].max(initial=0.0)),
        f"from {count} {'run' if count == 1 else 'runs'}{''.join(f', {word}' for word in words)}",
        is_guess=width != cores or place != system,
    )


class Scatter(NamedTuple):
    """The variation of run times at one width, and the further uncertainty of the next run."""

    squares: float  # sum of squared deviations of the logarithms from their median
    worth: float  # effective number of runs
    worth_of_p50: float
    further: float  # standard deviation of the logarithm that another size, width or system adds


def scatter_of(times: Sequence[RunTime], cores: int, *, input_size: float | None = None, system: str = "") -> Scatter:
    """Return the variation of the runs that `forecast_run` uses; at least one run is required."""
    seen = _brought(times, cores, input_size, system)
    _, squares, worth = _middle(*_redistributed(seen.runs_s, _ages(len(seen.runs_s)), seen.is_cut))
    lately = _ages(len(seen.runs_s), _HALF_LIFE_OF_P50)
    return Scatter(squares, worth, float(lately.sum() ** 2 / np.sum(lately**2)), seen.spread)


# ---------------------------------------------------------------------- the selection of runs


@dataclass(frozen=True, slots=True)
class _Brought:
    """Runs scaled to a width and a size."""

    cores: int  # of these runs
    system: str
    runs_s: _Floats
    is_cut: NDArray[np.bool_]
    spread: float  # standard deviation of the logarithm that the scaling adds
    power: float | None  # of the size; None if all sizes are equal


def _brought(times: Sequence[RunTime], cores: int, input_size: float | None, system: str) -> _Brought:
    groups = _groups(times)
    nearest = min(groups, key=lambda at: (_distance(at[0], at[1], cores, system), -groups[at][-1].at_s))
    chosen = groups[nearest]
    spread, power = _distance(nearest[0], nearest[1], cores, system), None
    factor = np.full(len(chosen), math.sqrt(nearest[0] / cores))
    if input_size is not None and any(run.input_size is not None for run in chosen):
        chosen = [run for run in chosen if run.input_size is not None]
        by_size, spread_by_size, power = _by_size(chosen, input_size, groups.values())
        factor = factor[: len(chosen)] * by_size
        spread = math.hypot(spread, spread_by_size)
    runs_s = np.array([run.run_s for run in chosen]) * factor
    return _Brought(*nearest, runs_s, np.array([run.kind == "at_least" for run in chosen]), spread, power)


def _groups(times: Sequence[RunTime]) -> dict[tuple[int, str], list[RunTime]]:
    """Return the latest runs of each width and system."""
    groups: dict[tuple[int, str], list[RunTime]] = {}
    for run in times:
        groups.setdefault((run.cores, run.system), []).append(run)
    return {at: runs[-_LATEST:] for at, runs in groups.items()}


def _place(cores: int, system: str, other_cores: int, other_system: str) -> str:
    """Name a width and system, as far as they differ from others."""
    differs = [f"{cores} cores"] if cores != other_cores else []
    differs += [system or "an unnamed system"] if system != other_system else []
    return " of ".join(differs)


def _distance(width: int, place: str, cores: int, system: str) -> float:
    """Return the spread that another width and system add; for the width, half of what perfect scaling gains."""
    return math.hypot(0.5 * math.log(width / cores), _OTHER_SYSTEM if place != system else 0.0)


def _by_size(
    runs: Sequence[RunTime], size: float, groups: Iterable[Sequence[RunTime]]
) -> tuple[_Floats, float, float | None]:
    """Return the factors for run times of other sizes, the spread that this adds, and the power if it matters.

    `groups`: runs under equal conditions, from which the power is learned.
    """
    offset = math.log(size) - np.log([run.input_size or 1.0 for run in runs])
    if np.all(np.abs(offset) < _SAME):
        return np.ones(len(runs)), 0.0, None
    sized = [[run for run in group if run.input_size is not None and run.kind == "exact"] for group in groups]
    power, spread = _power([_logarithms(group) for group in sized if group])
    return np.exp(power * offset), spread * abs(float(np.average(offset, weights=_ages(len(runs))))), power


def _logarithms(runs: Sequence[RunTime]) -> tuple[_Floats, _Floats]:
    sizes = np.array([run.input_size or 1.0 for run in runs])
    return np.log(sizes), np.log(np.maximum([run.run_s for run in runs], 1.0))


def _power(groups: Sequence[tuple[_Floats, _Floats]]) -> tuple[float, float]:
    """Estimate the common slope of groups of points, shrunk towards 1, and its standard deviation."""
    steps = [np.stack(_steps(group)) for group in groups]
    dx, dy = np.concatenate(steps, axis=1) if steps else np.empty((2, 0))
    before = 1.0 / _SPREAD_OF_POWER**2
    if not len(dx):
        return 1.0, _SPREAD_OF_POWER
    slope = _median(dy / dx, np.abs(dx))
    rest = np.concatenate([y - slope * x - np.median(y - slope * x) for x, y in groups])
    # a robust estimate, with the usual spread while there are few points
    scatter = (1.4826 * float(np.median(np.abs(rest)))) ** 2
    variance = (_USUAL_WEIGHT * USUAL_SPREAD**2 + len(rest) * scatter) / (_USUAL_WEIGHT + len(rest))
    precision = sum(float(np.sum((x - x.mean()) ** 2)) for x, _ in groups) / variance
    mean = (precision * slope + before * 1.0) / (precision + before)
    return min(max(mean, 0.0), _MAX_POWER), 1.0 / math.sqrt(precision + before)


def _steps(group: tuple[_Floats, _Floats]) -> tuple[_Floats, _Floats]:
    """Return the differences between all pairs of points of a group, along both axes."""
    x, y = group
    one, other = np.triu_indices(len(x), k=1)
    apart = np.abs(x[one] - x[other]) > _SAME
    return (x[other] - x[one])[apart], (y[other] - y[one])[apart]


def _median(values: _Floats, weights: _Floats) -> float:
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2)])


# ---------------------------------------------------------------------- quantiles


def _ages(count: int, half_life: float = _HALF_LIFE) -> _Floats:
    """Return the weights of runs; the latest, which is last, has 1."""
    return 0.5 ** (np.arange(count - 1, -1, -1) / half_life)


def _ranks(weights: _Floats) -> _Floats:
    """Return the probability that the next run, of weight 1, does not exceed each run seen."""
    ranks: _Floats = np.cumsum(weights) / (weights.sum() + 1.0)
    return ranks


def _quantiles(runs: _Floats, is_cut: NDArray[np.bool_], wide: float) -> tuple[float, float, float, float]:
    values, weights = _redistributed(runs, _ages(len(runs)), is_cut)
    ranks = _ranks(weights)
    middle, scatter, runs_worth = _middle(values, weights)
    usual = _USUAL_WEIGHT * max(0.0, 1.0 - len(runs) / _ENOUGH)
    freedom = max(usual + runs_worth - 1.0, 1.0)
    spread = math.sqrt((usual * USUAL_SPREAD**2 + scatter) / freedom * (1.0 + 1.0 / runs_worth))

    def at(level: float) -> float:
        seen_s = float(np.interp(level, ranks, values))
        if ranks[0] <= level <= ranks[-1]:
            return seen_s
        beyond_s = math.expm1(middle + student_quantile(level, freedom) * spread)
        return max(seen_s, beyond_s) if level > 0.5 else min(seen_s, max(beyond_s, 0.0))

    lately, shares = _redistributed(runs, _ages(len(runs), _HALF_LIFE_OF_P50), is_cut)
    half_s = float(np.interp(0.5, _ranks(shares), lately))
    low_s, high_s, max_s = (_widened(at(level), half_s, level, wide) for level in (LEVELS[0], *LEVELS[2:]))
    return min(low_s, half_s), half_s, max(high_s, half_s), max(max_s, high_s, half_s)


def _middle(values: _Floats, weights: _Floats) -> tuple[float, float, float]:
    """Return the weighted median of logarithms, the sum of squared deviations, and the effective number of runs."""
    logs, weight = np.log1p(values), float(weights.sum())
    worth = weight**2 / float(np.sum(weights**2))
    middle = float(np.interp(0.5, _ranks(weights), logs))
    return middle, worth * float(np.sum(weights * (logs - middle) ** 2)) / weight, worth


def _redistributed(runs: _Floats, weights: _Floats, is_cut: NDArray[np.bool_]) -> tuple[_Floats, _Floats]:
    """Return sorted run times with their weights; the weight of a run that was cut off is given to longer runs."""
    order = np.lexsort((is_cut, runs))  # among equal times, a run that was cut off counts as longer
    rests = np.cumsum(weights[order][::-1])[::-1]
    values, shares = [], []
    times = 1.0
    for index, run in enumerate(order):
        rest = rests[index + 1] if index + 1 < len(order) else 0.0
        if is_cut[run] and rest > 0:
            times *= (rest + weights[run]) / rest
            continue
        values.append(max(runs[run], 1.0) * _BEYOND if is_cut[run] else runs[run])
        shares.append(weights[run] * times)
    return np.array(values), np.array(shares)


def _widened(value_s: float, half_s: float, level: float, wide: float) -> float:
    """Move a quantile away from the median by an additional standard deviation of the logarithm."""
    if wide == 0:
        return value_s
    z = NormalDist().inv_cdf(level)
    away = math.hypot(math.log1p(value_s) - math.log1p(half_s), wide * z)
    return max(math.expm1(math.log1p(half_s) + math.copysign(away, z)), 0.0)
