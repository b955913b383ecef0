"""Observed differences between waits of different requests, and the long-run waits of requests.

Forecasts that are made one by one are not coherent: the smallest of several noisy ones is mostly too low, and the
forecast of a rare kind of request depends on when users happened to submit it. Two quantities are more stable. The
first is how much longer a wider or longer job waited than another that was submitted within some hours, which compares
jobs in the same queue. The second is the wait of each kind of job over months, where a busy hour with hundreds of
submissions counts no more than another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from asa.estimators.joint import FLOOR_S, JointForecast, monotone
from asa.waits import QueuedJob, WaitForecast

_T = TypeVar("_T")

KEPT = 8192
"""Number of latest waits that are remembered."""

COLUMNS = 6
# columns: waits in decades; the forecast as the mean of some quantiles
_SUBMIT, _CORES, _WALLTIME, _WAIT, _STATED, _PLACE = range(COLUMNS)
_ENOUGH = 200  # number of waits needed for a fit
_AFTER = 64  # fit again after this number of further waits, or an eighth more
_LAGS = (1, 3, 10, 30)  # numbers of submissions between the two compared waits
_FAR_LAGS = (1, 3, 10, 30, 100, 300, 1000, 3000)
_GAPS_S = np.geomspace(900.0, 8 * 86_400.0, 20)  # bounds of the time between two compared waits
_SAME_QUEUE_S = 4 * 3600.0
_DAY_S = 86_400.0
_RIDGE, _LONG_RIDGE = 0.01, 0.001
_LIKE = 0.5  # width of the weights by which jobs of similar cores are counted, in powers of two
_UNSURE = 1.0  # decades that a wait may be longer than fitted, divided by the root of the number of days with such jobs
_WIDEST = 10  # rank of the job whose width is the widest that counts as known
_STATED_AT = (1, 4, 7)  # quantiles that represent a forecast: p20, p50, p80; as in `contextual_kernel.learn`
_MIDDLES = np.arange(0.05, 1.0, 0.1)
_SEED = 20_261_124


class _Fit(NamedTuple):
    """The fit of the waits of one partition."""

    largest: float  # the most cores of all jobs
    # ranges of cores and walltime without extremes (1 % of walltimes, at the ends); requests beyond are treated as at
    # the end
    within: tuple[NDArray[np.float64], NDArray[np.float64]]
    step: NDArray[np.float64]  # decades by which a wait rises for each of the features
    trust: float  # weight of a difference between forecasts besides the difference between the requests
    usual: NDArray[np.float64]  # in decades: the long-run wait, and its rise for each of the features
    spread: NDArray[np.float64]  # spread around the fit, in decades, at `_MIDDLES`
    alike: float  # correlation of the errors of two forecasts made at the same time
    seen: NDArray[np.int64]  # cores in quarters of a doubling, and the days with such jobs


class _Usual(NamedTuple):
    """The long-run waits of one partition."""

    largest: float
    within: tuple[NDArray[np.float64], NDArray[np.float64]]
    usual: NDArray[np.float64]
    spread: NDArray[np.float64]
    hours: NDArray[np.float64]  # in decades, for each column of `_hours`
    fade_s: float  # time in which the correlation of two waits falls to 1/e, apart from the long-run differences


class Differences:
    """Remembers the latest waits with their forecasts, and makes forecasts of alternatives coherent.

    The caller writes a wait into its row: see `asa.estimators.contextual_kernel.learn`. Fitting takes some
    milliseconds, once for many waits.
    """

    def __init__(self) -> None:
        self.rows: NDArray[np.float32] = np.zeros((KEPT, COLUMNS), dtype=np.float32)
        # times are relative to this, since single precision resolves seconds over months, but not over decades
        self.origin_s = math.nan
        self.count = 0
        self._fitted: dict[int, tuple[int, _Fit | None]] = {}
        self._usual: dict[int, tuple[int, _Usual | None]] = {}

    def next_row(self, submit_s: float) -> tuple[int, float]:
        """Reserve a row for a wait that was observed from beginning to end.

        Returns: the index of the row of `rows`, and the job's submission in seconds since `origin_s`.
        """
        if math.isnan(self.origin_s):
            self.origin_s = submit_s
        row = self.count % KEPT
        self.count += 1
        return row, submit_s - self.origin_s

    @property
    def known(self) -> NDArray[np.float32]:
        """View of the remembered rows."""
        return self.rows[: min(self.count, KEPT)]

    def restore(self, rows: NDArray[np.float32], origin_s: float, count: int) -> None:
        """Restore a state. Raises `ValueError`: it is not consistent."""
        if rows.dtype != np.float32 or rows.shape != (min(count, KEPT), COLUMNS) or not np.isfinite(rows).all():
            raise ValueError("differences that do not fit")
        if (rows[:, [_CORES, _WALLTIME]] <= 0).any() or (count and not math.isfinite(origin_s)):
            raise ValueError("a job that cannot be")
        self.rows[: len(rows)] = rows
        self.origin_s, self.count = (origin_s if count else math.nan), count

    def judge(
        self, jobs: Sequence[QueuedJob], forecasts: Sequence[WaitForecast], places: Sequence[int], samples: int
    ) -> JointForecast:
        """Make joint samples of forecasts that were made one by one."""
        noise, doubt = np.empty((samples, len(jobs))), np.zeros(len(jobs))
        usual = np.full((len(_MIDDLES), len(jobs)), math.nan)
        at = np.array(places)
        for place in dict.fromkeys(places):
            fit, mine = self._fit(place), np.flatnonzero(at == place).tolist()
            noise[:, mine] = _noise([jobs[i] for i in mine], samples, fit.alike if fit is not None else 1.0)
            if fit is None:
                continue
            cores, walltime_s = np.clip([[jobs[i].cores, jobs[i].walltime_s] for i in mine], *fit.within).T
            asked = _features(cores, walltime_s, fit.largest)
            unsure = np.array([_unsure(fit, width) for width in cores.tolist()])
            stated = np.array([_stated(forecasts[i].quantiles_s) for i in mine])
            coherent = asked @ fit.step + fit.trust * stated
            doubt[mine] = coherent - stated - (coherent - stated).mean() + unsure
            usual[:, mine] = fit.usual[0] + asked @ fit.usual[1:] + fit.spread[:, None] - (doubt[mine] - unsure)
        levels = ((np.arange(samples) + 0.5) / samples).tolist()
        stated_at = np.array([[_log(forecast.at(level)) for level in levels] for forecast in forecasts]).T
        ascending = monotone(jobs, stated_at)
        # rank the futures of each request by its noise, so that no request waits less than one that asks for less
        place_of = noise.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
        likely = monotone(jobs, np.take_along_axis(ascending, place_of, axis=0)) + 1e-9 * noise
        made = np.empty_like(ascending)
        np.put_along_axis(made, likely.argsort(axis=0, kind="stable"), ascending, axis=0)
        waits_s = 10.0**made
        return JointForecast(
            tuple(jobs),
            np.where(waits_s <= FLOOR_S * (1.0 + 1e-9), 0.0, waits_s),
            None if np.isnan(usual).any() else 10.0 ** np.maximum(monotone(jobs, usual), 0.0),
            10.0**doubt,
        )

    def later(
        self, jobs: Sequence[QueuedJob], places: Sequence[int], samples: int
    ) -> tuple[float, NDArray[np.float64]] | None:
        """Predict when the present queue has no more influence, and return the usual waits after that.

        `jobs`: each with its future time of submission; waits depend on its hour.
        Returns: the mean in seconds of an exponential distribution; and usual waits in seconds, ascending, shape
        (samples, jobs). None if too few waits are known.
        """
        levels = (np.arange(samples) + 0.5) / samples
        usual, fades_s, at = np.empty((samples, len(jobs))), 0.0, np.array(places)
        asked = np.array([(job.cores, job.walltime_s, job.submit_s - self.origin_s) for job in jobs])
        for place in dict.fromkeys(places):
            if (fit := self._once(self._usual, place, _usual_of)) is None:
                return None
            mine = at == place
            cores, walltime_s = np.clip(asked[mine, :2], *fit.within).T
            rise = fit.usual[0] + _features(cores, walltime_s, fit.largest) @ fit.usual[1:]
            rise += _hours(asked[mine, 2]) @ fit.hours
            usual[:, mine] = rise + np.interp(levels, _MIDDLES, fit.spread)[:, None]
            fades_s = max(fades_s, fit.fade_s)
        waits_s = 10.0 ** np.maximum(usual, 0.0)
        return fades_s, np.where(waits_s <= FLOOR_S * (1.0 + 1e-9), 0.0, waits_s)

    # ------------------------------------------------------------------ fits

    def _fit(self, place: int) -> _Fit | None:
        """Fit the waits of a partition; those of all partitions if it has few."""
        return self._once(self._fitted, place, _fitted)

    def _once(self, made: dict[int, tuple[int, _T | None]], place: int, fit: Callable[[Any], _T]) -> _T | None:
        known = made.get(place)
        if known is not None and self.count < known[0]:
            return known[1]
        rows = self.known.astype(np.float64)
        here = rows[rows[:, _PLACE] == place]
        rows = here if len(here) >= _ENOUGH else rows
        fitted = fit(rows[np.argsort(rows[:, _SUBMIT], kind="stable")]) if len(rows) >= _ENOUGH else None
        made[place] = self.count + max(_AFTER, min(self.count, KEPT) // 8), fitted
        return fitted


def _log(wait_s: float) -> float:
    return math.log10(max(wait_s, FLOOR_S))


def _stated(quantiles_s: Sequence[float]) -> float:
    """Return the mean of the quantiles that represent a forecast, in decades."""
    return sum(_log(quantiles_s[place]) for place in _STATED_AT) / len(_STATED_AT)


def _features(cores: NDArray[np.float64], walltime_s: NDArray[np.float64], largest: float) -> NDArray[np.float64]:
    """Return the features of requests: log2 of cores, log2 of walltime, and cores relative to the widest job."""
    return np.stack([np.log2(cores), np.log2(walltime_s), 4.0 * cores / largest], axis=-1)


def _unsure(fit: _Fit, cores: float) -> float:
    """Return by how many decades jobs of a width may wait longer: more decades the fewer days had such jobs."""
    quarters, days = fit.seen
    best = np.zeros(int(days.max()) + 1)  # for each day, the similarity of its most similar job
    np.maximum.at(best, days, np.exp(-(((math.log2(cores) - quarters / 4.0) / _LIKE) ** 2)))
    return _UNSURE / math.sqrt(max(float(best.sum()), 0.5))


def _fitted(rows: NDArray[np.float64]) -> _Fit:
    """Fit rows that are sorted by submission."""
    submit, wait, stated = rows[:, _SUBMIT], rows[:, _WAIT], rows[:, _STATED]
    largest = float(rows[:, _CORES].max())
    asked = _features(rows[:, _CORES], rows[:, _WALLTIME], largest)
    step, trust, alike = _paired(submit, asked, wait, stated)
    usual, spread, _, _ = _long_run(submit, asked, wait)
    quarters, days = np.round(4.0 * asked[:, 0]).astype(np.int64), ((submit - submit[0]) // _DAY_S).astype(np.int64)
    seen = np.unique(np.stack([quarters, days]), axis=1)
    return _Fit(largest, _within(rows), step, trust, usual, spread, alike, seen)


def _usual_of(rows: NDArray[np.float64]) -> _Usual:
    """Fit the long-run waits of rows that are sorted by submission."""
    submit, largest = rows[:, _SUBMIT], float(rows[:, _CORES].max())
    asked = _features(rows[:, _CORES], rows[:, _WALLTIME], largest)
    usual, spread, off, weight = _long_run(submit, asked, rows[:, _WAIT])
    at = _hours(submit)
    hours = _ridge(at, off, weight, _LONG_RIDGE)
    return _Usual(largest, _within(rows), usual, spread, hours, _fading_s(submit, off - at @ hours))


def _within(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and largest cores and walltime that count as known."""
    low, high = np.quantile(rows[:, [_CORES, _WALLTIME]], [0.01, 0.99], axis=0)
    high[0] = np.sort(rows[:, _CORES])[-_WIDEST]  # wide jobs are rare and wait longest
    return low, high


def _paired(
    submit: NDArray[np.float64], asked: NDArray[np.float64], wait: NDArray[np.float64], stated: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float, float]:
    """Regress differences between waits of the same hours on those between the requests and between their forecasts."""
    crowd = np.searchsorted(submit, submit + _SAME_QUEUE_S) - np.searchsorted(submit, submit - _SAME_QUEUE_S) + 1
    firsts, seconds = [], []
    for lag in _LAGS:
        first = np.arange(max(len(submit) - lag, 0))
        near = (submit[first + lag] - submit[first] < _SAME_QUEUE_S) & (asked[first + lag] != asked[first]).any(axis=1)
        firsts.append(first[near])
        seconds.append(first[near] + lag)
    one, other = np.concatenate(firsts), np.concatenate(seconds)
    columns = asked.shape[1]
    if len(one) < _ENOUGH:
        return np.zeros(columns), 1.0, 0.0
    weight = 1.0 / crowd[one]
    differ = np.column_stack([asked[other] - asked[one], stated[other] - stated[one]])
    weights = _ridge(differ, wait[other] - wait[one], weight, _RIDGE)
    off = wait - stated
    apart = np.average((off[other] - off[one]) ** 2, weights=weight)
    whole = np.average(off[one] ** 2 + off[other] ** 2, weights=weight)
    alike = 1.0 - apart / whole if whole > 0 else 0.0
    return weights[:columns], float(np.clip(weights[columns], 0.0, 1.0)), float(np.clip(alike, 0.0, 0.99))


def _long_run(
    submit: NDArray[np.float64], asked: NDArray[np.float64], wait: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Regress waits on the features. Jobs of a width that were submitted within a day share one vote.

    Returns: the coefficients and the spread at `_MIDDLES`, in decades; the residual of each wait, and its vote.
    """
    weight: NDArray[np.float64] = np.empty(len(submit))
    widths = np.round(asked[:, 0])
    for width in np.unique(widths):
        mine = np.flatnonzero(widths == width)
        at = submit[mine]
        weight[mine] = 1.0 / (np.searchsorted(at, at + _DAY_S) - np.searchsorted(at, at - _DAY_S) + 1)
    columns = np.column_stack([np.ones(len(asked)), asked])
    weights = _ridge(columns, wait, weight, _LONG_RIDGE)
    off: NDArray[np.float64] = wait - columns @ weights
    order = np.argsort(off, kind="stable")
    share = np.cumsum(weight[order]) / weight.sum()
    return weights, off[order][np.minimum(np.searchsorted(share, _MIDDLES), len(off) - 1)], off, weight


def _hours(submit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return features of the hour of the day and the day of the week."""
    turns = 2.0 * math.pi * submit[:, None] / np.array([_DAY_S, 7 * _DAY_S])
    return np.concatenate([np.cos(turns), np.sin(turns)], axis=1)


def _fading_s(submit: NDArray[np.float64], off: NDArray[np.float64]) -> float:
    """Return the time in seconds in which the correlation of waits falls to 1/e."""
    gaps, products = [], []
    for lag in _FAR_LAGS:
        if lag < len(submit):
            gaps.append(submit[lag:] - submit[:-lag])
            products.append(off[lag:] * off[:-lag])
    bins = np.searchsorted(_GAPS_S, np.concatenate(gaps)) if gaps else np.zeros(0, dtype=np.intp)
    count = np.bincount(bins, minlength=len(_GAPS_S) + 1)[1:-1]
    if not count.any():
        return float(_GAPS_S[0])
    total = np.bincount(bins, np.concatenate(products), minlength=len(_GAPS_S) + 1)[1:-1]
    alike = total / np.maximum(count, 1)
    weight = np.sqrt(count)  # waits of the same hour are not independent
    middles = np.sqrt(_GAPS_S[1:] * _GAPS_S[:-1])
    falls = np.exp(-middles / _GAPS_S[:, None])  # for each candidate time
    size = np.maximum((falls * weight) @ alike, 0.0) / ((falls**2) @ weight)
    wrong = (weight * (alike - size[:, None] * falls) ** 2).sum(axis=1)
    return float(_GAPS_S[int(np.argmin(wrong))])


def _ridge(
    columns: NDArray[np.float64], values: NDArray[np.float64], weight: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    weighted = columns * weight[:, None]
    square: NDArray[np.float64] = weighted.T @ columns
    square[np.diag_indices_from(square)] *= 1.0 + ridge
    square[np.diag_indices_from(square)] += 1e-9
    return np.asarray(np.linalg.solve(square, weighted.T @ values), dtype=np.float64)


_NORMAL = NormalDist()


def _noise(jobs: Sequence[QueuedJob], samples: int, alike: float) -> NDArray[np.float64]:
    """Draw how much longer or shorter than usual each request waits in each future, independent of the others."""
    common = np.array([_NORMAL.inv_cdf((i + 0.5) / samples) for i in range(samples)])
    own = [
        np.random.Generator(np.random.PCG64([_SEED, crc32(repr(job).encode())])).standard_normal(samples)
        for job in jobs
    ]
    mixed: NDArray[np.float64] = math.sqrt(alike) * common[:, None] + math.sqrt(1.0 - alike) * np.array(own).T
    return mixed
