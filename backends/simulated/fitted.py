"""A workload fitted to a log: tables of about a thousand numbers, and the sampling of jobs from them."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError

from .machine import Machine
from .table import JobTable

WEEK_HOURS = 168
LONGEST_CAMPAIGN = 128
"""Campaigns of more jobs count as several."""
FOLLOWER_SIZES = (4, 32, LONGEST_CAMPAIGN)
"""Upper bounds of the lengths of campaigns that share a table of gaps."""
MAX_LOAD = 100.0

_HOUR, _DAY = 3600, 86400
_ALIKE_JITTER = 0.05
_DRAWN_AT_ONCE = 4096
_SHORT_RUN_S = 60

# Sizes of the tables. Larger ones bring single logs nearer by some thousandths, with twice the numbers.
_MAX_POPULAR, _MIN_POPULAR = 6, 0.02
_MIN_POINTS, _MORE_POINTS = 5, 6


def _grid(points: int) -> NDArray[np.float64]:
    """Probabilities of the quantiles of a table with this number of points: denser at both ends."""
    return (1.0 - np.cos(np.pi * np.arange(points) / (points - 1))) / 2.0


def quantile_table(values: NDArray[np.float64], points: int) -> tuple[float, ...]:
    """Return this number of quantiles of values, denser at both ends; none if there are no values.

    `points`: number of quantiles, at probabilities (1 - cos(pi k / (points - 1))) / 2.

    Examples
    --------
    >>> quantile_table(np.arange(101.0), 5)
    (0.0, 14.645, 50.0, 85.355, 100.0)
    """
    if not len(values):
        return ()
    return tuple(float(f"{q:.5g}") for q in np.quantile(values, _grid(points)))


def _with_mean(quantiles: tuple[float, ...], values: NDArray[np.float64]) -> tuple[float, ...]:
    """Lower the largest quantile, which one value alone determines, while the table's mean exceeds the values'."""
    if not quantiles or FittedSpread((), quantiles).mean() <= values.mean():
        return quantiles
    low, high = math.log1p(quantiles[-2]), math.log1p(quantiles[-1])
    for _ in range(20):
        middle = (low + high) / 2
        above = FittedSpread((), (*quantiles[:-1], math.expm1(middle))).mean() > values.mean()
        low, high = (low, middle) if above else (middle, high)
    return (*quantiles[:-1], max(float(f"{math.expm1(low):.5g}"), quantiles[-2]))


@dataclass(frozen=True, slots=True)
class FittedSpread:
    """A distribution of whole numbers: popular numbers, each with its share, and quantiles of all other numbers."""

    popular: tuple[tuple[int, float], ...]  # pairs of a value and its share
    # quantiles of the other values, at probabilities (1 - cos(pi k / (n - 1))) / 2; between them the logarithm of 1 +
    # value is linear. Empty if there are only popular ones.
    rest: tuple[float, ...]

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> FittedSpread:
        """Take the few most popular values, and quantiles of the others, whose number grows with their share."""
        found, counts = np.unique(values, return_counts=True)
        best = np.argsort(-counts, kind="stable")[:_MAX_POPULAR]
        best = np.sort(best[counts[best] >= _MIN_POPULAR * len(values)])
        others = values[~np.isin(values, found[best])]
        if len(best) and len(np.unique(others)) <= 1:  # a single other value is better treated as popular
            best = np.sort(np.append(best, np.flatnonzero(np.isin(found, others))))
            others = others[:0]
        popular = tuple((int(found[i]), float(f"{counts[i] / len(values):.4g}")) for i in best)
        points = _MIN_POINTS + round(_MORE_POINTS * len(others) / max(len(values), 1))
        return cls(popular, cls.of_quantiles(others.astype(np.float64), points).rest)

    @classmethod
    def of_quantiles(cls, values: NDArray[np.float64], points: int) -> FittedSpread:
        """Take this number of quantiles and no popular values; the mean is at most that of the values."""
        return cls((), _with_mean(quantile_table(values, points), values))

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw `count` numbers; those from the quantiles are not rounded yet. An empty distribution returns zeros."""
        u = rng.random(count)
        if not self.popular and not self.rest:
            return np.zeros(count)
        if not self.popular:
            return self._of_rest(u)
        edges = np.cumsum([share for _, share in self.popular])
        if not self.rest:
            u *= edges[-1]
        place = np.searchsorted(edges, u, side="right")
        values = np.array([float(value) for value, _ in self.popular])[np.minimum(place, len(edges) - 1)]
        others = place == len(edges)
        if self.rest and others.any():
            values[others] = self._of_rest(np.clip((u[others] - edges[-1]) / max(1.0 - edges[-1], 1e-9), 0.0, 1.0))
        return values

    def _of_rest(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        table = np.log1p(np.array(self.rest))
        return np.asarray(np.expm1(np.interp(u, _grid(len(table)), table)), dtype=np.float64)

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return values and weights that represent the whole distribution."""
        values = [np.array([float(value) for value, _ in self.popular])]
        weights = [np.array([share for _, share in self.popular])]
        if self.rest:
            fine = np.interp(np.arange(0, len(self.rest) - 1, 0.0625), np.arange(len(self.rest)), _grid(len(self.rest)))
            middle = (fine + np.append(fine[1:], 1.0)) / 2
            values.append(self._of_rest(middle))
            weights.append(max(1.0 - float(weights[0].sum()), 1e-9) * np.diff(fine, append=1.0))
        weight = np.concatenate(weights)
        return np.concatenate(values), weight / weight.sum()

    def mean(self) -> float:
        """Mean of the distribution."""
        if not self.popular and not self.rest:
            return 0.0
        values, weights = self.points()
        return float(values @ weights)


@dataclass(frozen=True, slots=True)
class FittedKind:
    """Jobs within a range of widths and of requests."""

    # upper bounds of width and request. Kinds are sorted by width, then by request: the lower bound of the width is the
    # next smaller `most_cores`, that of the request is the upper bound of the previous kind of the same width.
    most_cores: int
    most_request_s: int
    share: float
    campaigns: tuple[float, ...]  # share of the campaigns with 1 job, 2, 3 to 4, 5 to 8 and so on
    cores: FittedSpread  # widths and requested times of its jobs
    request_s: FittedSpread
    at_limit: float  # share of the jobs that run to their limit
    # quantiles (see `FittedSpread`) of the others' run times: from -1 to 0 the logarithm of the run time, from 1 s to a
    # minute; from 0 to 1 likewise, from a minute to the request
    run_place: tuple[float, ...]

    def run_s(self, request_s: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return run times of jobs with these requests and with these ranks, 0 to 1, among similar jobs."""
        if not self.run_place:
            return request_s
        below = np.clip(u / max(1.0 - self.at_limit, 1e-9), 0.0, 1.0)
        run = run_at_place(np.interp(below, _grid(len(self.run_place)), self.run_place), request_s)
        return np.asarray(np.where(u < 1.0 - self.at_limit, run, request_s), dtype=np.float64)

    def mean_campaign(self) -> float:
        """Mean number of jobs of a campaign."""
        return sum(share * _mean_of_octave(octave) for octave, share in enumerate(self.campaigns)) / sum(self.campaigns)

    def mean_work_s(self) -> float:
        """Mean core-seconds of a job."""
        requests, weights = self.request_s.points()
        requests = np.maximum(np.round(requests), 1.0)
        u = (np.arange(256) + 0.5) / 256
        runs = self.run_s(np.repeat(requests, len(u)), np.tile(u, len(requests))).reshape(len(requests), -1)
        return self.cores.mean() * float(runs.mean(axis=1) @ weights)


def place_of_run(run: NDArray[np.int64], request: NDArray[np.int64]) -> NDArray[np.float64]:
    """Map run times to places as in `FittedKind`: short runs are failures and trials, independent of the request.

    `run`, `request`: run times and walltimes in seconds, 1 or more, one for each job; no run is longer than its
    walltime.
    Returns: one value for each job: -1 for a second, 0 for a minute, 1 for the whole walltime.

    Examples
    --------
    >>> place_of_run(np.array([1, 60, 6000]), np.array([6000, 6000, 6000])).tolist()
    [-1.0, 0.0, 1.0]
    """
    turn = np.minimum(request, _SHORT_RUN_S)
    short = np.log(run) / np.maximum(np.log(turn), 1e-9) - 1.0
    long = np.log(np.maximum(run / turn, 1.0)) / np.maximum(np.log(request / turn), 1e-9)
    return np.asarray(np.where(run < turn, short, long), dtype=np.float64)


def run_at_place(place: NDArray[np.float64], request: NDArray[np.float64]) -> NDArray[np.float64]:
    """Invert `place_of_run`: return run times in whole seconds.

    Examples
    --------
    >>> run_at_place(np.array([-1.0, 0.0, 0.5]), np.array([6000.0, 6000.0, 6000.0])).tolist()
    [1.0, 60.0, 600.0]
    """
    turn = np.minimum(request, _SHORT_RUN_S)
    short = turn ** (1.0 + np.minimum(place, 0.0))
    return np.asarray(np.round(short * (request / turn) ** np.maximum(place, 0.0)), dtype=np.float64)


def _count(data: Any) -> int:
    """Return how many numbers JSON-ready data contain."""
    if isinstance(data, dict):
        return sum(map(_count, data.values()))
    if isinstance(data, list | tuple):
        return sum(map(_count, data))
    return int(isinstance(data, int | float))


def _octave_start(octave: int) -> int:
    return 1 if octave == 0 else 2 ** (octave - 1) + 1


def _mean_of_octave(octave: int) -> float:
    """Mean of the integers in an octave, weighted by 1 / n."""
    numbers = np.arange(_octave_start(octave), 2**octave + 1, dtype=np.float64)
    return float(len(numbers) / np.sum(1.0 / numbers))


@dataclass(frozen=True, slots=True)
class FittedWorkload:
    """A workload fitted to a log by `fit`.

    Jobs come in campaigns: one user's jobs of one width and one request that follow each other within ten minutes. The
    time between campaigns is drawn from a table, and is shorter at busy hours of the week and in busy weeks. A campaign
    has a kind, a range of widths and of requests with its own tables of campaign lengths, widths, requests and run
    times; the jobs of a campaign have similar run times.

    Not modelled: users who return after a while with the same jobs, so the mix of jobs varies less from month to month
    than in a log; sequences of short gaps; holidays, shutdowns, and trends over years; correlations of widths, requests
    and run times within a kind; campaigns of more than 128 jobs (they are several); memory, queues and partitions;
    failures.
    """

    machine: Machine  # the log's machine
    source: str  # description of the log that it was fitted to
    # ratio of submitted work to the machine's capacity. For another load all gaps are shortened or lengthened.
    load: float
    # relative rates of submissions in the 168 hours of the week from Monday at midnight, with mean 1
    hours: tuple[float, ...]
    levels: tuple[float, ...]  # quantiles, at even probabilities, of a week's relative rate of campaigns, with mean 1
    level_memory: float  # correlation of the levels of successive weeks, -1 to 1
    gap_s: FittedSpread  # time from the last job of a campaign to the first of the next, at the mean rate
    # time between jobs of a campaign, for campaigns of up to 4 jobs, up to 32, and more
    follow_s: tuple[FittedSpread, FittedSpread, FittedSpread]
    alike: float  # probability that a job of a campaign runs about as long as the campaign's other jobs of its kind
    kinds: tuple[FittedKind, ...]  # kinds of jobs, by width and by request

    def __post_init__(self) -> None:
        if not 0.0 < self.load <= MAX_LOAD:
            raise InputError(
                f"load = {self.load} is outside 0 to {MAX_LOAD:g}",
                where=f"workload of {self.machine.name!r}",
                hint="Change it; 1 is all that the machine can do.",
            )

    def generate(self, duration_s: int, seed: int | np.random.SeedSequence) -> JobTable:
        """Draw the jobs submitted within a duration that begins on a Monday at midnight.

        Notes
        -----
        The mean load over seeds is the model's. Linear in the number of jobs: about a second for a million.
        """
        rng = np.random.Generator(np.random.PCG64(seed))
        clock = _VariableClock(self._rates(rng, duration_s))
        pace = self._pace()
        parts: list[NDArray[np.int64]] = []
        more = True
        while more:
            which, jobs = self._campaigns(rng)
            campaign = np.repeat(np.arange(len(jobs)), jobs)
            nth = np.arange(len(campaign)) - np.repeat(np.cumsum(jobs) - jobs, jobs)
            follow = np.round(self._follow(rng, jobs[campaign], nth) / pace)
            so_far = np.cumsum(follow)
            ends = np.cumsum(jobs) - 1
            since = so_far - (so_far[ends] - np.add.reduceat(follow, ends - jobs + 1))[campaign]
            gaps = np.maximum(self.gap_s.draw(rng, len(jobs)), 0.0) / pace
            first = clock.pass_by(gaps, since[ends], duration_s)
            more = len(first) == len(jobs)
            cores, request, run = self._jobs(rng, which, jobs, campaign)
            there = campaign < len(first)
            submit = first[campaign[there]] + since[there].astype(np.int64)
            parts.append(np.stack([submit, run[there], request[there], cores[there]]))
        submit, run, request, cores = np.concatenate(parts, axis=1)
        within = submit < duration_s
        return JobTable(submit[within], run[within], request[within], cores[within])

    def summary(self) -> dict[str, Any]:
        """Summarize the model for people.

        Returns: ``load``, ``jobs_per_day``, ``numbers`` (how many it consists of), ``serial``, ``powers_of_two``,
        ``other_popular`` and ``other_widths`` (shares of the jobs), ``widths`` (a row for each class of widths),
        ``requests`` (the five most popular), ``busiest_hour`` and ``quietest_hour`` of the day with their rates
        relative to the mean, ``weekend`` (rate relative to weekdays), ``quietest_week`` and ``busiest_week``, and
        ``alike``.
        """
        total = sum(kind.share for kind in self.kinds)
        widths: dict[int, float] = {}
        requests: dict[int, float] = {}
        for kind in self.kinds:
            for found, spread in ((widths, kind.cores), (requests, kind.request_s)):
                for value, share in spread.popular:
                    found[value] = found.get(value, 0.0) + share * kind.share / total
        powers = sum(share for width, share in widths.items() if width > 1 and width & (width - 1) == 0)
        best = sorted(requests, key=lambda value: -requests[value])[:5]
        week = np.array(self.hours).reshape(7, 24)
        day = week.mean(axis=0) / week.mean()
        weekday = max(float(week[:5].mean()), 1e-9)
        return {
            "load": self.load,
            "jobs_per_day": self.jobs_per_day(),
            "numbers": _count(asdict(self)),
            "serial": widths.get(1, 0.0),
            "powers_of_two": powers,
            "other_popular": sum(widths.values()) - powers - widths.get(1, 0.0),
            "other_widths": max(1.0 - sum(widths.values()), 0.0),
            "widths": self._widths(total),
            "requests": [{"request_s": value, "share": requests[value]} for value in best],
            "busiest_hour": int(day.argmax()),
            "busiest_rate": float(day.max()),
            "quietest_hour": int(day.argmin()),
            "quietest_rate": float(day.min()),
            "weekend": float(week[5:].mean()) / weekday,
            "quietest_week": self.levels[0],
            "busiest_week": self.levels[-1],
            "alike": self.alike,
        }

    def _widths(self, total: float) -> list[dict[str, float]]:
        rows: list[dict[str, float]] = []
        least = 1
        all_work = self._mean_work_s() * total
        for most in sorted({kind.most_cores for kind in self.kinds}):
            kinds = [kind for kind in self.kinds if kind.most_cores == most]
            share = sum(kind.share for kind in kinds) or 1.0
            campaigns = sum(kind.share / kind.mean_campaign() for kind in kinds) or 1.0
            rows.append(
                {
                    "least_cores": least,
                    "most_cores": most,
                    "jobs": share / total,
                    "work": sum(kind.share * kind.mean_work_s() for kind in kinds) / all_work,
                    "jobs_a_campaign": share / campaigns,
                    "mean_cores": sum(kind.share * kind.cores.mean() for kind in kinds) / share,
                    "mean_request_s": sum(kind.share * kind.request_s.mean() for kind in kinds) / share,
                    "mean_run_s": sum(kind.share * kind.mean_work_s() / kind.cores.mean() for kind in kinds) / share,
                    "at_limit": sum(kind.share * kind.at_limit for kind in kinds) / share,
                }
            )
            least = most + 1
        return rows

    def jobs_per_day(self) -> float:
        """Mean number of jobs submitted in a day."""
        return self.load * self.machine.cores * _DAY / self._mean_work_s()

    def _mean_work_s(self) -> float:
        return sum(kind.share * kind.mean_work_s() for kind in self.kinds) / sum(kind.share for kind in self.kinds)

    def _pace(self) -> float:
        """Factor that shortens the fitted time between campaigns, to reach the requested load."""
        chances = self._kind_chances()
        jobs = sum(p * kind.mean_campaign() for p, kind in zip(chances, self.kinds, strict=True))
        spent = sum(p * self._mean_spent_s(kind) for p, kind in zip(chances, self.kinds, strict=True))
        # gaps are shorter at busy hours, while the duration of a campaign does not depend on the hour
        levels = np.interp(np.linspace(0.0, 1.0, 65), np.linspace(0.0, 1.0, len(self.levels)), self.levels)
        rates = np.outer(self.hours, levels)
        campaigns_per_s = float((rates / (self.gap_s.mean() + rates * spent)).mean())
        return float(self.load * self.machine.cores / (campaigns_per_s * jobs * self._mean_work_s()))

    def _mean_spent_s(self, kind: FittedKind) -> float:
        """Mean time from the first to the last job of a campaign."""
        total = 0.0
        means = [follow.mean() for follow in self.follow_s]
        for octave, share in enumerate(kind.campaigns):
            table = int(np.searchsorted(FOLLOWER_SIZES, 2**octave))
            total += share * (_mean_of_octave(octave) - 1.0) * means[table]
        return total / sum(kind.campaigns)

    def _kind_chances(self) -> NDArray[np.float64]:
        """Probability of each kind for a campaign: shares are of jobs, and campaigns differ in length."""
        chances = np.array([kind.share / kind.mean_campaign() for kind in self.kinds])
        return np.asarray(chances / chances.sum(), dtype=np.float64)

    def _rates(self, rng: np.random.Generator, duration_s: int) -> NDArray[np.float64]:
        """Rate in each hour of the duration."""
        hours = np.resize(np.array(self.hours), -(-duration_s // _HOUR))
        weeks = -(-len(hours) // WEEK_HOURS)
        normal = rng.standard_normal(weeks)
        for week in range(1, weeks):
            fresh = math.sqrt(1.0 - self.level_memory**2)
            normal[week] = self.level_memory * normal[week - 1] + fresh * normal[week]
        chance = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in normal.tolist()])
        level = np.interp(chance, np.linspace(0.0, 1.0, len(self.levels)), self.levels)
        rates = hours * np.repeat(level, WEEK_HOURS)[: len(hours)]
        # the load determines the work of a period; levels only determine its times
        return np.asarray(np.maximum(rates * hours.sum() / max(float(rates.sum()), 1e-9), 1e-6), dtype=np.float64)

    def _campaigns(self, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Draw the kinds and lengths of the next campaigns."""
        which = rng.choice(len(self.kinds), size=_DRAWN_AT_ONCE, p=self._kind_chances())
        jobs = np.ones(_DRAWN_AT_ONCE, dtype=np.int64)
        for i, kind in enumerate(self.kinds):
            mine = np.flatnonzero(which == i)
            shares = np.array(kind.campaigns)
            octave = rng.choice(len(shares), size=len(mine), p=shares / shares.sum())
            for o in range(1, len(shares)):
                numbers = np.arange(_octave_start(o), 2**o + 1)
                chosen = mine[octave == o]
                jobs[chosen] = rng.choice(numbers, size=len(chosen), p=(1.0 / numbers) / np.sum(1.0 / numbers))
        return which, jobs

    def _follow(self, rng: np.random.Generator, jobs: NDArray[np.int64], nth: NDArray[np.int64]) -> NDArray[np.float64]:
        """Whole seconds since the previous job of its campaign, as fitted; 0 for the first."""
        seconds = np.zeros(len(jobs))
        table = np.where(nth > 0, np.searchsorted(FOLLOWER_SIZES, jobs), -1)
        for i, follow in enumerate(self.follow_s):
            mine = np.flatnonzero(table == i)
            if len(mine):
                seconds[mine] = np.round(follow.draw(rng, len(mine)))
        return np.maximum(seconds, 0.0)

    def _jobs(
        self,
        rng: np.random.Generator,
        which: NDArray[np.intp],
        jobs: NDArray[np.int64],
        campaign: NDArray[np.intp],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Cores, request and run time of each job."""
        cores, request = np.empty(len(which)), np.empty(len(which))
        for i, kind in enumerate(self.kinds):
            mine = np.flatnonzero(which == i)
            cores[mine] = kind.cores.draw(rng, len(mine))
            request[mine] = kind.request_s.draw(rng, len(mine))
        request = np.maximum(np.round(request), 1.0)
        # rank among similar jobs: near the campaign's, or independent. Reflection at the borders keeps it uniform.
        place = rng.random(len(jobs))[campaign] + rng.uniform(-_ALIKE_JITTER, _ALIKE_JITTER, size=len(campaign))
        place = 1.0 - np.abs(1.0 - np.abs(place))
        place = np.where(rng.random(len(campaign)) < self.alike, place, rng.random(len(campaign)))
        of_job = which[campaign]
        run = np.empty(len(campaign))
        for i, kind in enumerate(self.kinds):
            mine = np.flatnonzero(of_job == i)
            run[mine] = kind.run_s(request[campaign[mine]], place[mine])
        width = np.clip(np.round(cores), 1, self.machine.cores).astype(np.int64)
        asked = request.astype(np.int64)
        return width[campaign], asked[campaign], np.clip(run.astype(np.int64), 1, asked[campaign])


class _VariableClock:
    """A clock whose rate changes from hour to hour."""

    def __init__(self, rates: NDArray[np.float64]) -> None:
        self.rates = rates.tolist()
        self.reached = np.concatenate([[0.0], np.cumsum(rates * _HOUR)]).tolist()  # at the beginning of each hour
        self.now = 0

    def pass_by(self, gaps: NDArray[np.float64], spent: NDArray[np.float64], until: int) -> NDArray[np.int64]:
        """Alternately let a gap pass at the mean rate, record the second, and let `spent` real seconds pass."""
        rates, reached, now = self.rates, self.reached, self.now
        noted: list[int] = []
        for gap, seconds in zip(gaps.tolist(), spent.tolist(), strict=True):
            hour = now // _HOUR
            if hour >= len(rates):
                break
            target = reached[hour] + (now - hour * _HOUR) * rates[hour] + gap
            if target >= reached[-1]:
                break
            hour = bisect_right(reached, target, hour) - 1
            now = int(hour * _HOUR + (target - reached[hour]) / rates[hour])
            if now >= until:
                break
            noted.append(now)
            now += int(seconds)
        self.now = now
        return np.array(noted, dtype=np.int64)
