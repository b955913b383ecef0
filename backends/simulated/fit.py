"""Fit a workload model to a log, and compare a sample of it with the log."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.errors import TraceError

from .fitted import (
    FOLLOWER_SIZES,
    LONGEST_CAMPAIGN,
    WEEK_HOURS,
    FittedKind,
    FittedSpread,
    FittedWorkload,
    place_of_run,
    quantile_table,
)
from .machine import Machine
from .swf import Trace
from .table import JobTable

_HOUR, _DAY, _WEEK = 3600, 86400, 7 * 86400
_MONDAY = 4 * _DAY  # 1970-01-05

_CAMPAIGN_GAP_S = 600  # jobs of the same user and shape that follow within this time are one campaign
_FEWEST_JOBS, _FEWEST_CAMPAIGNS = 100, 20  # lower bounds of a log that can be fitted
_FEWEST_OF_A_KIND = 50
_PROFILE_PRIOR_JOBS = 20.0  # weight of an hour of the day and a day of the week in the estimate of an hour of the week
_MIN_LEVEL = 0.02  # lower bound of a week's level, for weeks without submissions
_WEEKS_FOR_LEVELS = 8

# Sizes of the tables. Larger ones bring single logs nearer by some thousandths, with twice the numbers.
_WIDTHS, _WORK_IN_WIDTHS = 3, 0.5  # classes of width, and the weight of work relative to jobs in choosing their bounds
_REQUESTS, _WORK_IN_REQUESTS = 6, 0.2  # kinds within each class, and likewise the weight of work
_PLACES, _GAPS, _LEVELS = 15, 33, 9

MARGINALS = ("inter-arrival time", "hour of the day", "cores", "run time", "requested time", "run / request", "work")
"""Distributions to compare a model with its log: seconds, hours, cores, seconds, seconds, a share, core-seconds."""


def fit(trace: Trace) -> FittedWorkload:
    """Fit a workload model to a log.

    `trace`: the log; best read with ``exceed="kill"``, so that requests are what users asked for.
    Raises `TraceError`: the log has too few jobs, or all were submitted at about the same time.

    Notes
    -----
    Most of the time is for sorting: about half a second for a million jobs.
    """
    table = trace.table
    span_s = int(table.submit[-1] - table.submit[0])
    begins = _campaign_begins(trace)
    first = np.flatnonzero(begins)
    if len(table) < _FEWEST_JOBS or len(first) < _FEWEST_CAMPAIGNS or span_s < _HOUR:
        raise TraceError(
            f"{len(table)} jobs, submitted {len(first)} times within {span_s} s, are too few to fit a workload to",
            where=str(trace.path),
            hint=f"Give a log of at least {_FEWEST_JOBS} jobs that were submitted over more than an hour.",
        )
    jobs = np.diff(first, append=len(table))
    calendar = _Calendar(table.submit, table.submit[first], trace.clock_s - _MONDAY)
    passed = calendar.reached(table.submit[first[1:]] + 0.5) - calendar.reached(table.submit[first[1:] - 1])
    kinds, place = _kinds(table, begins, jobs)
    name = trace.path.name
    return FittedWorkload(
        machine=Machine(name.removesuffix(".gz").removesuffix(".swf") or name, trace.cores, 1),
        source=f"{name}: {len(table)} jobs in {span_s / _DAY:.1f} days",
        load=float(f"{offered_load(table, trace.cores):.6g}"),
        hours=tuple(float(f"{rate:.4g}") for rate in calendar.hours),
        levels=calendar.level_quantiles(),
        level_memory=calendar.level_memory(),
        gap_s=FittedSpread.of_quantiles(passed, _GAPS),
        follow_s=_follow_spreads(np.diff(table.submit, prepend=0), begins, jobs),
        alike=_alike(place, begins),
        kinds=kinds,
    )


def offered_load(table: JobTable, cores: int, span_s: int | None = None) -> float:
    """Work divided by the capacity of the machine in a time span, by default from the first to the last submission."""
    if not len(table):
        return 0.0
    span_s = span_s or max(int(table.submit[-1] - table.submit[0]), 1)
    return float((table.run * table.cores).sum() / (cores * span_s))


def _campaign_begins(trace: Trace) -> NDArray[np.bool_]:
    table = trace.table
    alike = np.diff(table.submit) <= _CAMPAIGN_GAP_S
    for column in (trace.users, table.cores, table.request):
        alike &= column[1:] == column[:-1]
    begins = np.concatenate([[True], ~alike])
    first = np.flatnonzero(begins)
    nth = np.arange(len(table)) - np.repeat(first, np.diff(first, append=len(table)))
    return np.asarray(nth % LONGEST_CAMPAIGN == 0, dtype=np.bool_)


class _Calendar:
    """The hours of a log: observed time and activity of each hour of the week, and activity of each week."""

    def __init__(self, submit: NDArray[np.int64], campaigns: NDArray[np.int64], shift_s: int) -> None:
        self.shift_s = shift_s
        begin, end = int(submit[0]) + shift_s, int(submit[-1]) + shift_s
        self.first_hour = begin // _HOUR
        hours = np.arange(self.first_hour, end // _HOUR + 1)
        seen = np.full(len(hours), float(_HOUR))
        seen[0] -= begin - self.first_hour * _HOUR
        seen[-1] -= (int(hours[-1]) + 1) * _HOUR - end
        self.hours = self._profile(hours % WEEK_HOURS, np.bincount((submit + shift_s) // _HOUR - self.first_hour), seen)
        week = hours // WEEK_HOURS - hours[0] // WEEK_HOURS
        expected = np.bincount(week, weights=seen * self.hours[hours % WEEK_HOURS])
        found = np.bincount(
            ((campaigns + shift_s) // _HOUR) // WEEK_HOURS - hours[0] // WEEK_HOURS, minlength=len(expected)
        )
        level = found * expected.sum() / (found.sum() * np.maximum(expected, 1e-9))
        whole = np.bincount(week, weights=seen) > _WEEK / 2
        self.levels = level[whole]
        if len(self.levels) < _WEEKS_FOR_LEVELS:
            self.levels, level = np.ones(1), np.ones(len(level))
        rates = self.hours[hours % WEEK_HOURS] * np.maximum(level, _MIN_LEVEL)[week]
        passed = np.concatenate([[0.0], np.cumsum(rates * _HOUR)])
        self._edges = np.append(hours, hours[-1] + 1) * float(_HOUR)
        self._reached = passed * (end - begin) / float(rates @ seen)

    @staticmethod
    def _profile(hour: NDArray[np.int64], jobs: NDArray[np.int64], seen: NDArray[np.float64]) -> NDArray[np.float64]:
        count = np.bincount(hour, weights=jobs, minlength=WEEK_HOURS).reshape(7, 24)
        exposure = np.bincount(hour, weights=seen, minlength=WEEK_HOURS).reshape(7, 24)
        mean = count.sum() / exposure.sum()
        daily = (count.sum(axis=0) + 1.0) / (exposure.sum(axis=0) * mean + 1.0)
        usual = daily * np.ones((7, 1))
        weekly = (count.sum(axis=1) + _PROFILE_PRIOR_JOBS) / (
            (exposure * usual).sum(axis=1) * mean + _PROFILE_PRIOR_JOBS
        )
        usual *= weekly[:, None]
        rate = usual * (count + _PROFILE_PRIOR_JOBS) / (exposure * mean * usual + _PROFILE_PRIOR_JOBS)
        return np.asarray((rate / rate.mean()).ravel(), dtype=np.float64)

    def reached(self, moments: NDArray[Any]) -> NDArray[np.float64]:
        """Return the time that passed at the mean rate until these seconds of the log."""
        return np.asarray(np.interp(moments + self.shift_s, self._edges, self._reached), dtype=np.float64)

    def level_quantiles(self) -> tuple[float, ...]:
        quantiles = np.quantile(self.levels, np.linspace(0.0, 1.0, _LEVELS if len(self.levels) > 1 else 2))
        mean = np.interp(np.linspace(0, 1, 257), np.linspace(0, 1, len(quantiles)), quantiles).mean()
        return tuple(float(f"{q / mean:.4g}") for q in quantiles)

    def level_memory(self) -> float:
        if len(self.levels) < _WEEKS_FOR_LEVELS:
            return 0.0
        ranks = np.argsort(np.argsort(self.levels)).astype(np.float64)
        return round(_correlation(ranks[:-1], ranks[1:]), 3)


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    x, y = x - x.mean(), y - y.mean()
    norm = math.sqrt(float((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 0 else 0.0


def _follow_spreads(
    gap_s: NDArray[np.int64], begins: NDArray[np.bool_], jobs: NDArray[np.int64]
) -> tuple[FittedSpread, FittedSpread, FittedSpread]:
    table = np.repeat(np.searchsorted(FOLLOWER_SIZES, jobs), jobs)
    few, some, many = (FittedSpread.of(gap_s[~begins & (table == i)]) for i in range(len(FOLLOWER_SIZES)))
    return few, some, many


def _alike(place: NDArray[np.float64], begins: NDArray[np.bool_]) -> float:
    """Probability that explains the correlation of neighbours in a campaign: both must have the campaign's run time."""
    later = np.flatnonzero(~begins)
    if len(later) < _FEWEST_OF_A_KIND:
        return 0.0
    return round(math.sqrt(max(_correlation(place[later], place[later - 1]), 0.0)), 3)


def _cuts(values: NDArray[np.int64], work: NDArray[np.int64], classes: int, work_counts: float) -> list[int]:
    """Upper ends of classes of about equal weight in jobs and work, each with more than a few jobs."""
    found, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    jobs = np.cumsum(counts)
    works = np.cumsum(np.bincount(inverse, weights=work))
    weight = (1.0 - work_counts) * jobs / jobs[-1] + work_counts * works / works[-1]
    cuts: list[int] = []
    jobs_so_far, weight_so_far = 0, 0.0
    for k in range(1, classes):
        wanted = weight_so_far + (1.0 - weight_so_far) / (classes - k + 1)
        at = int(np.argmin(np.abs(weight - wanted)))
        if min(jobs[at] - jobs_so_far, jobs[-1] - jobs[at]) >= _FEWEST_OF_A_KIND:
            cuts.append(int(found[at]))
            jobs_so_far, weight_so_far = int(jobs[at]), float(weight[at])
    return [*cuts, int(found[-1])]


def _kinds(
    table: JobTable, begins: NDArray[np.bool_], jobs: NDArray[np.int64]
) -> tuple[tuple[FittedKind, ...], NDArray[np.float64]]:
    """Divide the jobs into kinds; also return each job's rank, 0 to 1, among the run times of similar jobs."""
    work = table.run * table.cores
    edges = _cuts(table.cores, work, _WIDTHS, _WORK_IN_WIDTHS)
    which = np.searchsorted(edges, table.cores)
    of_first = np.zeros(len(table), dtype=np.int64)
    of_first[begins] = jobs
    place = np.empty(len(table))
    kinds = []
    for i, edge in enumerate(edges):
        mine = np.flatnonzero(which == i)
        limits = _cuts(table.request[mine], work[mine], _REQUESTS, _WORK_IN_REQUESTS)
        of_kind = np.searchsorted(limits, table.request[mine])
        for k, limit in enumerate(limits):
            these = mine[of_kind == k]
            kinds.append(_kind(table, these, of_first[these], most_cores=edge, most_request_s=limit))
            place[these] = _ranks(table.run[these] / table.request[these])
    return tuple(kinds), place


def _kind(
    table: JobTable, these: NDArray[np.intp], campaigns: NDArray[np.int64], *, most_cores: int, most_request_s: int
) -> FittedKind:
    run, request = table.run[these], table.request[these]
    octaves = np.bincount(np.ceil(np.log2(campaigns[campaigns > 0])).astype(np.int64))
    early = run < request
    return FittedKind(
        most_cores=most_cores,
        most_request_s=most_request_s,
        share=float(f"{len(these) / len(table):.5g}"),
        campaigns=tuple(float(f"{share:.4g}") for share in octaves / octaves.sum()),
        cores=FittedSpread.of(table.cores[these]),
        request_s=FittedSpread.of(request),
        at_limit=float(f"{1.0 - early.mean():.4g}"),
        run_place=quantile_table(place_of_run(run[early], request[early]), _PLACES),
    )


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks, 0 to 1, in order of size; equal values share the middle of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    return np.asarray(((upper - counts / 2) / len(values))[inverse], dtype=np.float64)


def marginals(table: JobTable, *, clock_s: int = 0) -> dict[str, NDArray[np.float64]]:
    """Return the values by which a model is compared, one for each job, by the names of `MARGINALS`.

    `clock_s`: the local time at second 0, as in `Trace`.
    """
    values = (
        np.diff(table.submit, prepend=table.submit[:1]),
        (table.submit + clock_s) % _DAY / _HOUR,
        table.cores,
        table.run,
        table.request,
        table.run / table.request,
        table.run * table.cores,
    )
    return {name: column.astype(np.float64) for name, column in zip(MARGINALS, values, strict=True)}


def distances(one: dict[str, NDArray[np.float64]], other: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    """Return the Kolmogorov-Smirnov distance of each marginal: the largest difference of the two cumulative shares.

    Examples
    --------
    >>> distances({"cores": np.array([1.0, 1.0, 2.0, 4.0])}, {"cores": np.array([1.0, 2.0, 2.0, 2.0])})
    {'cores': 0.25}
    """
    return {name: _distance(one[name], other[name]) for name in one}


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    a, b = np.sort(one), np.sort(other)
    at = np.concatenate([a, b])
    below = np.searchsorted(a, at, side="right") / len(a) - np.searchsorted(b, at, side="right") / len(b)
    return float(np.abs(below).max())


def halves(trace: Trace) -> dict[str, float] | None:
    """Return the distances between a log's odd and even weeks; None if either has no job.

    This is how much the log differs from itself: a model at this distance is as good as another part of the same log.
    """
    values = marginals(trace.table, clock_s=trace.clock_s)
    odd = (trace.table.submit + trace.clock_s - _MONDAY) // _WEEK % 2 == 1
    if odd.all() or not odd.any():
        return None
    return distances({k: v[odd] for k, v in values.items()}, {k: v[~odd] for k, v in values.items()})
