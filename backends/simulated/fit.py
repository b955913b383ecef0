"""A workload model fitted to a log: about a thousand numbers from which any number of like jobs can be drawn."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError, TraceError

from .machine import Machine
from .swf import Trace
from .table import JobTable

__all__ = [
    "MARGINALS",
    "FittedWorkload",
    "Kind",
    "Spread",
    "distances",
    "fit",
    "halves",
    "load_model",
    "marginals",
    "offered_load",
    "save_model",
]

_HOUR, _DAY, _WEEK = 3600, 86400, 7 * 86400
_HOURS = 168
_MONDAY = 4 * _DAY  # 1970-01-05
_VERSION = 1

_CAMPAIGN_GAP_S = 600  # jobs that follow sooner, alike and by the same user, are one campaign
_LONGEST_CAMPAIGN = 128  # longer ones count as several
_FOLLOWER_SIZES = (4, 32, _LONGEST_CAMPAIGN)  # campaigns of up to so many jobs share a table of gaps
_FEWEST_JOBS, _FEWEST_CAMPAIGNS = 100, 20  # a log of fewer has no shape
_FEWEST_OF_A_KIND = 50
_PROFILE_PRIOR_JOBS = 20.0  # an hour of the week leans so much on its hour of the day and its day of the week
_ALIKE_JITTER = 0.05
_DRAWN_AT_ONCE = 4096
_LEAST_LEVEL = 0.02  # of a week in which nothing was submitted
_WEEKS_FOR_LEVELS = 8
_SHORT_RUN_S = 60
_MOST_LOAD = 100.0

# How fine the tables are. More of everything brings single logs nearer by some thousandths, at twice the numbers.
_WIDTHS, _WORK_IN_WIDTHS = 3, 0.5  # classes of width, and how much work counts beside jobs where they are cut
_REQUESTS, _WORK_IN_REQUESTS = 6, 0.2  # kinds in each, likewise
_PLACES, _GAPS, _LEVELS = 15, 33, 9
_MOST_POPULAR, _LEAST_POPULAR = 6, 0.02
_LEAST_POINTS, _MORE_POINTS = 5, 6

MARGINALS = ("inter-arrival time", "hour of the day", "cores", "run time", "requested time", "run / request", "work")
"""What a model is compared with its log by: seconds, hours, cores, seconds, seconds, a share, core-seconds."""


def _grid(points: int) -> NDArray[np.float64]:
    """Probabilities of the quantiles of a table of so many: denser at both ends."""
    return (1.0 - np.cos(np.pi * np.arange(points) / (points - 1))) / 2.0


def _quantiles(values: NDArray[np.float64], points: int) -> tuple[float, ...]:
    if not len(values):
        return ()
    return tuple(float(f"{q:.5g}") for q in np.quantile(values, _grid(points)))


def _rest(values: NDArray[np.float64], share: float) -> tuple[float, ...]:
    return _with_mean(_quantiles(values, _LEAST_POINTS + round(_MORE_POINTS * share)), values)


def _with_mean(quantiles: tuple[float, ...], values: NDArray[np.float64]) -> tuple[float, ...]:
    """Lower the largest quantile, which one value alone sets, as long as the table's mean exceeds the values'."""
    if not quantiles or Spread((), quantiles).mean() <= values.mean():
        return quantiles
    low, high = math.log1p(quantiles[-2]), math.log1p(quantiles[-1])
    for _ in range(20):
        middle = (low + high) / 2
        above = Spread((), (*quantiles[:-1], math.expm1(middle))).mean() > values.mean()
        low, high = (low, middle) if above else (middle, high)
    return (*quantiles[:-1], max(float(f"{math.expm1(low):.5g}"), quantiles[-2]))


@dataclass(frozen=True, slots=True)
class Spread:
    """How whole numbers are spread: some popular ones, each with its share, and quantiles of the rest.

    Parameters
    ----------
    popular
        Pairs of a value and its share.
    rest
        Quantiles of the other values, at probabilities (1 - cos(pi k / (n - 1))) / 2; between them the logarithm of
        1 + value is straight. Empty if the popular ones are all.
    """

    popular: tuple[tuple[int, float], ...]
    rest: tuple[float, ...]

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> Spread:
        """Take the few most popular values, and quantiles of the rest: the more, the more there is."""
        found, counts = np.unique(values, return_counts=True)
        best = np.argsort(-counts, kind="stable")[:_MOST_POPULAR]
        best = np.sort(best[counts[best] >= _LEAST_POPULAR * len(values)])
        others = values[~np.isin(values, found[best])]
        if len(best) and len(np.unique(others)) <= 1:  # a rest of one value is as well popular
            best = np.sort(np.append(best, np.flatnonzero(np.isin(found, others))))
            others = others[:0]
        popular = tuple((int(found[i]), float(f"{counts[i] / len(values):.4g}")) for i in best)
        return cls(popular, _rest(others.astype(np.float64), len(others) / max(len(values), 1)))

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw so many; those of the rest are no whole numbers yet. An empty spread gives zeros."""
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
        """Give values with weights that stand for the whole spread."""
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
        """Mean of the spread."""
        if not self.popular and not self.rest:
            return 0.0
        values, weights = self.points()
        return float(values @ weights)


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs within a range of widths and of requests.

    Parameters
    ----------
    most_cores, most_request_s
        The widest and the longest that belong here. Kinds are ordered by width, then by request: the narrowest here is
        wider than the kinds before with another `most_cores`, the shortest longer than the kind before with this one.
    share
        Of all jobs.
    campaigns
        Share of the campaigns with 1 job, 2, 3 to 4, 5 to 8 and so on.
    cores, request_s
        Their widths and requested times.
    at_limit
        Share of the jobs that run to their limit.
    run_place
        Quantiles (see `Spread`) of how long the others run: from -1 to 0 the logarithm of the run time, from 1 s to a
        minute; from 0 to 1 likewise, from there to the request.
    """

    most_cores: int
    most_request_s: int
    share: float
    campaigns: tuple[float, ...]
    cores: Spread
    request_s: Spread
    at_limit: float
    run_place: tuple[float, ...]

    def run_s(self, request_s: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Run times of jobs with these requests that stand there, 0 to 1, among their like."""
        if not self.run_place:
            return request_s
        below = np.clip(u / max(1.0 - self.at_limit, 1e-9), 0.0, 1.0)
        run = _run_there(np.interp(below, _grid(len(self.run_place)), self.run_place), request_s)
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


def _place_of(run: NDArray[np.int64], request: NDArray[np.int64]) -> NDArray[np.float64]:
    """Where runs stand, see `Kind`. Short runs are failures and trials, which know nothing of the request."""
    turn = np.minimum(request, _SHORT_RUN_S)
    short = np.log(run) / np.maximum(np.log(turn), 1e-9) - 1.0
    long = np.log(np.maximum(run / turn, 1.0)) / np.maximum(np.log(request / turn), 1e-9)
    return np.asarray(np.where(run < turn, short, long), dtype=np.float64)


def _run_there(place: NDArray[np.float64], request: NDArray[np.float64]) -> NDArray[np.float64]:
    turn = np.minimum(request, _SHORT_RUN_S)
    short = turn ** (1.0 + np.minimum(place, 0.0))
    return np.asarray(np.round(short * (request / turn) ** np.maximum(place, 0.0)), dtype=np.float64)


def _count(data: Any) -> int:
    """How many numbers there are in JSON-ready data."""
    if isinstance(data, dict):
        return sum(map(_count, data.values()))
    if isinstance(data, list | tuple):
        return sum(map(_count, data))
    return int(isinstance(data, int | float))


def _octave_start(octave: int) -> int:
    return 1 if octave == 0 else 2 ** (octave - 1) + 1


def _mean_of_octave(octave: int) -> float:
    """Mean of the integers of an octave under weights that fall as 1 / n."""
    numbers = np.arange(_octave_start(octave), 2**octave + 1, dtype=np.float64)
    return float(len(numbers) / np.sum(1.0 / numbers))


@dataclass(frozen=True, slots=True)
class FittedWorkload:
    """A workload fitted to a log by `fit`.

    Jobs come in campaigns: one user's jobs of one width and one request that follow each other within ten minutes.
    The time between campaigns is drawn from a table, and passes faster at busy hours of the week and in busy weeks.
    A campaign is of a kind, which is a range of widths and of requests with its own tables of campaign lengths, widths,
    requests and run times; the jobs of a campaign run more or less alike.

    Not captured: users, and that they come back after a while with the jobs that they had before, so that the mix of
    jobs varies less from month to month than it does in a log; short gaps that come in a row; holidays, shutdowns, and
    trends over years; how widths, requests and run times hang together within a kind; campaigns of more than 128 jobs
    (they are several); memory, queues and partitions; failures.

    Parameters
    ----------
    machine
        What the log's machine was.
    source
        What it was fitted to, in words.
    load
        Work that arrives, as a share of what the machine could do. With another load all gaps are shorter or longer.
    hours
        Rate of submissions in the 168 hours of the week from Monday at midnight, of mean 1.
    levels
        Quantiles, at even probabilities, of a week's rate of campaigns, of mean 1.
    level_memory
        Correlation of a week's level with the next week's, -1 to 1.
    gap_s
        Time from the last job of a campaign to the first of the next, at the mean rate.
    follow_s
        Time between jobs of a campaign, for campaigns of up to 4 jobs, up to 32, and more.
    alike
        Chance that a job of a campaign runs about as long as the others of its kind there.
    kinds
        The jobs, by width and by request.
    """

    machine: Machine
    source: str
    load: float
    hours: tuple[float, ...]
    levels: tuple[float, ...]
    level_memory: float
    gap_s: Spread
    follow_s: tuple[Spread, Spread, Spread]
    alike: float
    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        if not 0.0 < self.load <= _MOST_LOAD:
            raise InputError(
                f"load = {self.load} is outside 0 to {_MOST_LOAD:g}",
                where=f"workload of {self.machine.name!r}",
                hint="Change it; 1 is all that the machine can do.",
            )

    def generate(self, duration_s: int, seed: int | np.random.SeedSequence) -> JobTable:
        """Draw the jobs submitted within a duration that begins on a Monday at midnight.

        Parameters
        ----------
        duration_s
            Seconds.
        seed
            The same seed gives the same jobs.

        Returns
        -------
        JobTable
            In order of submission.

        Notes
        -----
        The load is met in the mean over seeds. Linear in the number of jobs: about a second for a million.
        """
        rng = np.random.Generator(np.random.PCG64(seed))
        clock = _Clock(self._rates(rng, duration_s))
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
        """Sum the model up for people.

        Returns
        -------
        dict
            ``load``, ``jobs_per_day``, ``numbers`` (how many it is made of), ``serial``, ``powers_of_two``,
            ``other_popular`` and ``other_widths`` (shares of the jobs), ``widths`` (a row a class of widths),
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
        """How much faster than fitted time must run for the load."""
        chances = self._kind_chances()
        jobs = sum(p * kind.mean_campaign() for p, kind in zip(chances, self.kinds, strict=True))
        spent = sum(p * self._mean_spent_s(kind) for p, kind in zip(chances, self.kinds, strict=True))
        # a gap takes the less the busier the hour, a campaign takes as long at any hour
        levels = np.interp(np.linspace(0.0, 1.0, 65), np.linspace(0.0, 1.0, len(self.levels)), self.levels)
        rates = np.outer(self.hours, levels)
        campaigns_per_s = float((rates / (self.gap_s.mean() + rates * spent)).mean())
        return float(self.load * self.machine.cores / (campaigns_per_s * jobs * self._mean_work_s()))

    def _mean_spent_s(self, kind: Kind) -> float:
        """Mean time from the first to the last job of a campaign."""
        total = 0.0
        means = [follow.mean() for follow in self.follow_s]
        for octave, share in enumerate(kind.campaigns):
            table = int(np.searchsorted(_FOLLOWER_SIZES, 2**octave))
            total += share * (_mean_of_octave(octave) - 1.0) * means[table]
        return total / sum(kind.campaigns)

    def _kind_chances(self) -> NDArray[np.float64]:
        """Chance of a campaign to be of each kind: shares are of jobs, and campaigns differ in length."""
        chances = np.array([kind.share / kind.mean_campaign() for kind in self.kinds])
        return np.asarray(chances / chances.sum(), dtype=np.float64)

    def _rates(self, rng: np.random.Generator, duration_s: int) -> NDArray[np.float64]:
        """Rate of each hour of the duration."""
        hours = np.resize(np.array(self.hours), -(-duration_s // _HOUR))
        weeks = -(-len(hours) // _HOURS)
        normal = rng.standard_normal(weeks)
        for week in range(1, weeks):
            fresh = math.sqrt(1.0 - self.level_memory**2)
            normal[week] = self.level_memory * normal[week - 1] + fresh * normal[week]
        chance = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in normal.tolist()])
        level = np.interp(chance, np.linspace(0.0, 1.0, len(self.levels)), self.levels)
        rates = hours * np.repeat(level, _HOURS)[: len(hours)]
        # what a period brings is the load's business; levels only say when
        return np.asarray(np.maximum(rates * hours.sum() / max(float(rates.sum()), 1e-9), 1e-6), dtype=np.float64)

    def _campaigns(self, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Kind and number of jobs of the next campaigns."""
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
        """Whole seconds since the job before in its campaign, as fitted; 0 for the first."""
        seconds = np.zeros(len(jobs))
        table = np.where(nth > 0, np.searchsorted(_FOLLOWER_SIZES, jobs), -1)
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
        """Cores, request and run of each job."""
        cores, request = np.empty(len(which)), np.empty(len(which))
        for i, kind in enumerate(self.kinds):
            mine = np.flatnonzero(which == i)
            cores[mine] = kind.cores.draw(rng, len(mine))
            request[mine] = kind.request_s.draw(rng, len(mine))
        request = np.maximum(np.round(request), 1.0)
        # a place among its like: about the campaign's, or its own. Reflection at the borders keeps it uniform.
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


class _Clock:
    """Time that passes at a rate which changes from hour to hour."""

    def __init__(self, rates: NDArray[np.float64]) -> None:
        self.rates = rates.tolist()
        self.reached = np.concatenate([[0.0], np.cumsum(rates * _HOUR)]).tolist()  # at the begin of each hour
        self.now = 0

    def pass_by(self, gaps: NDArray[np.float64], spent: NDArray[np.float64], until: int) -> NDArray[np.int64]:
        """Let a gap at the mean rate pass, note the second, let so many real seconds pass, and so on."""
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


def fit(trace: Trace) -> FittedWorkload:
    """Fit a workload model to a log.

    Parameters
    ----------
    trace
        The log; best read with ``exceed="kill"``, so that requests are what users typed.

    Returns
    -------
    FittedWorkload
        The same log gives the same model: nothing is drawn.

    Raises
    ------
    TraceError
        The log has too few jobs, or all were submitted at about the same time.

    Notes
    -----
    Sorting is what costs most: about half a second for a million jobs.
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
        gap_s=Spread((), _with_mean(_quantiles(passed, _GAPS), passed)),
        follow_s=_follow_spreads(np.diff(table.submit, prepend=0), begins, jobs),
        alike=_alike(place, begins),
        kinds=kinds,
    )


def offered_load(table: JobTable, cores: int, span_s: int | None = None) -> float:
    """Work over what the machine could do in a span, by default from the first to the last submission."""
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
    return np.asarray(nth % _LONGEST_CAMPAIGN == 0, dtype=np.bool_)


class _Calendar:
    """The hours of a log: how long each hour of the week was seen, how busy it was, and how busy each week."""

    def __init__(self, submit: NDArray[np.int64], campaigns: NDArray[np.int64], shift_s: int) -> None:
        self.shift_s = shift_s
        begin, end = int(submit[0]) + shift_s, int(submit[-1]) + shift_s
        self.first_hour = begin // _HOUR
        hours = np.arange(self.first_hour, end // _HOUR + 1)
        seen = np.full(len(hours), float(_HOUR))
        seen[0] -= begin - self.first_hour * _HOUR
        seen[-1] -= (int(hours[-1]) + 1) * _HOUR - end
        self.hours = self._profile(hours % _HOURS, np.bincount((submit + shift_s) // _HOUR - self.first_hour), seen)
        week = hours // _HOURS - hours[0] // _HOURS
        expected = np.bincount(week, weights=seen * self.hours[hours % _HOURS])
        found = np.bincount(((campaigns + shift_s) // _HOUR) // _HOURS - hours[0] // _HOURS, minlength=len(expected))
        level = found * expected.sum() / (found.sum() * np.maximum(expected, 1e-9))
        whole = np.bincount(week, weights=seen) > _WEEK / 2
        self.levels = level[whole]
        if len(self.levels) < _WEEKS_FOR_LEVELS:
            self.levels, level = np.ones(1), np.ones(len(level))
        rates = self.hours[hours % _HOURS] * np.maximum(level, _LEAST_LEVEL)[week]
        passed = np.concatenate([[0.0], np.cumsum(rates * _HOUR)])
        self._edges = np.append(hours, hours[-1] + 1) * float(_HOUR)
        self._reached = passed * (end - begin) / float(rates @ seen)

    @staticmethod
    def _profile(hour: NDArray[np.int64], jobs: NDArray[np.int64], seen: NDArray[np.float64]) -> NDArray[np.float64]:
        count = np.bincount(hour, weights=jobs, minlength=_HOURS).reshape(7, 24)
        exposure = np.bincount(hour, weights=seen, minlength=_HOURS).reshape(7, 24)
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
        """How much time passed at the mean rate until these seconds of the log."""
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
) -> tuple[Spread, Spread, Spread]:
    table = np.repeat(np.searchsorted(_FOLLOWER_SIZES, jobs), jobs)
    few, some, many = (Spread.of(gap_s[~begins & (table == i)]) for i in range(len(_FOLLOWER_SIZES)))
    return few, some, many


def _alike(place: NDArray[np.float64], begins: NDArray[np.bool_]) -> float:
    """Chance that explains the correlation of neighbours in a campaign: both must run as the campaign does."""
    later = np.flatnonzero(~begins)
    if len(later) < _FEWEST_OF_A_KIND:
        return 0.0
    return round(math.sqrt(max(_correlation(place[later], place[later - 1]), 0.0)), 3)


def _cuts(values: NDArray[np.int64], work: NDArray[np.int64], classes: int, work_counts: float) -> list[int]:
    """Upper ends of classes that weigh about the same, by their jobs and by their work, and are never of few jobs."""
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
) -> tuple[tuple[Kind, ...], NDArray[np.float64]]:
    """Cut the jobs into kinds; and give each job's place, 0 to 1, among the run times of its like."""
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
) -> Kind:
    run, request = table.run[these], table.request[these]
    octaves = np.bincount(np.ceil(np.log2(campaigns[campaigns > 0])).astype(np.int64))
    early = run < request
    return Kind(
        most_cores=most_cores,
        most_request_s=most_request_s,
        share=float(f"{len(these) / len(table):.5g}"),
        campaigns=tuple(float(f"{share:.4g}") for share in octaves / octaves.sum()),
        cores=Spread.of(table.cores[these]),
        request_s=Spread.of(request),
        at_limit=float(f"{1.0 - early.mean():.4g}"),
        run_place=_quantiles(_place_of(run[early], request[early]), _PLACES),
    )


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places, 0 to 1, in the order of size; equal values share the middle of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    return np.asarray(((upper - counts / 2) / len(values))[inverse], dtype=np.float64)


def marginals(table: JobTable, *, clock_s: int = 0) -> dict[str, NDArray[np.float64]]:
    """Give what a model is compared by, a value a job, by the names of `MARGINALS`.

    Parameters
    ----------
    table
        The jobs.
    clock_s
        What the clock on the wall showed at second 0, as in `Trace`.
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
    """Kolmogorov-Smirnov distance of each marginal: the largest difference between two shares below a value.

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
    """Distances between a log's odd and even weeks, or None if either has no job.

    So much the log differs from itself: a model that is as near is as good as another stretch of the same log.
    """
    values = marginals(trace.table, clock_s=trace.clock_s)
    odd = (trace.table.submit + trace.clock_s - _MONDAY) // _WEEK % 2 == 1
    if odd.all() or not odd.any():
        return None
    return distances({k: v[odd] for k, v in values.items()}, {k: v[~odd] for k, v in values.items()})


def save_model(model: FittedWorkload, path: str | Path) -> None:
    """Write a model as JSON.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    text = json.dumps({"format": "asa workload", "version": _VERSION, **asdict(model)}, indent=1)
    # lists of numbers stand on one line
    text = re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text)
    try:
        Path(path).write_text(text + "\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path), hint="Name another file.") from error


def load_model(path: str | Path) -> FittedWorkload:
    """Read a model that `save_model` wrote, and perhaps somebody changed.

    Raises
    ------
    InputError
        The file cannot be read, or a field of it, which the error names, makes no sense.
    """
    where = str(path)
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where, hint="Check the path.") from error
    except ValueError as error:
        raise InputError(f"is no JSON: {error}", where=where, hint="Fit the model again.") from error
    return _model(_Part(data, where))


class _Part:
    """A part of a file, which knows where it stands."""

    def __init__(self, data: Any, file: str, at: str = "") -> None:
        self.data = data
        self.file = file
        self.at = at

    def error(self, message: str) -> InputError:
        return InputError(message, where=f"{self.file}: {self.at}" if self.at else self.file, hint="Mend it.")

    def object(self, *names: str) -> dict[str, _Part]:
        if not isinstance(self.data, dict):
            raise self.error("is no object")
        prefix = f"{self.at}." if self.at else ""
        parts = {name: _Part(value, self.file, prefix + name) for name, value in self.data.items()}
        for name in names:
            if name not in parts:
                raise _Part(None, self.file, prefix + name).error("is missing")
        for name, part in parts.items():
            if name not in names:
                raise part.error("is not a field that we know")
        return parts

    def list(self, least: int = 0, most: int = 10_000) -> Sequence[_Part]:
        if not isinstance(self.data, list) or not least <= len(self.data) <= most:
            raise self.error(f"is no list of {least} to {most} entries" if least < most else f"is no list of {least}")
        return [_Part(value, self.file, f"{self.at}[{i}]") for i, value in enumerate(self.data)]

    def number(self, low: float, high: float) -> float:
        if isinstance(self.data, bool) or not isinstance(self.data, int | float) or not low <= self.data <= high:
            raise self.error(f"is {self.data!r} and no number from {low:g} to {high:g}")
        return float(self.data)

    def whole(self, low: int, high: int = 2**53) -> int:
        if isinstance(self.data, bool) or not isinstance(self.data, int) or not low <= self.data <= high:
            raise self.error(f"is {self.data!r} and no whole number from {low} to {high}")
        return self.data

    def text(self) -> str:
        if not isinstance(self.data, str):
            raise self.error("is no text")
        return self.data

    def flag(self) -> bool:
        if not isinstance(self.data, bool):
            raise self.error("is neither true nor false")
        return self.data

    def shares(self, most: int) -> tuple[float, ...]:
        shares = tuple(part.number(0.0, 1.0) for part in self.list(1, most))
        if not sum(shares) > 0.0:
            raise self.error("has no share above 0")
        return shares

    def ascending(self, low: float, high: float, *, least: int) -> tuple[float, ...]:
        numbers = tuple(part.number(low, high) for part in self.list())
        if numbers and len(numbers) < least:
            raise self.error(f"has {len(numbers)} quantiles where there must be none or at least {least}")
        if list(numbers) != sorted(numbers):
            raise self.error("is not ascending")
        return numbers


def _model(file: _Part) -> FittedWorkload:
    if not isinstance(file.data, dict) or file.data.get("format") != "asa workload":
        raise file.error("is no workload model")
    if file.data.get("version") != _VERSION:
        raise _Part(None, file.file, "version").error(f"is {file.data.get('version')!r}; this program reads {_VERSION}")
    names = ("machine", "source", "load", "hours", "levels", "level_memory", "gap_s", "follow_s", "alike", "kinds")
    parts = file.object("format", "version", *names)
    machine = parts["machine"].object("name", "nodes", "cores_per_node", "whole_nodes")
    hours = tuple(part.number(0.0, 1e6) for part in parts["hours"].list(_HOURS, _HOURS))
    levels = parts["levels"].ascending(0.0, 1e6, least=2)
    for name, rates in (("hours", hours), ("levels", levels)):
        if not sum(rates) > 0.0:
            raise parts[name].error("has no rate above 0")
    gap_s = _spread(parts["gap_s"], 0)
    if not gap_s.mean() > 0.0:
        raise parts["gap_s"].error("has no gap above 0")
    few, some, many = (_spread(part, 0) for part in parts["follow_s"].list(3, 3))
    kinds = tuple(_read_kind(part) for part in parts["kinds"].list(1))
    if not sum(kind.share for kind in kinds) > 0.0:
        raise parts["kinds"].error("has no share above 0")
    return FittedWorkload(
        machine=Machine(
            machine["name"].text(),
            machine["nodes"].whole(1),
            machine["cores_per_node"].whole(1),
            machine["whole_nodes"].flag(),
        ),
        source=parts["source"].text(),
        load=parts["load"].number(1e-9, _MOST_LOAD),
        hours=hours,
        levels=levels,
        level_memory=parts["level_memory"].number(-1.0, 1.0),
        gap_s=gap_s,
        follow_s=(few, some, many),
        alike=parts["alike"].number(0.0, 1.0),
        kinds=kinds,
    )


def _spread(part: _Part, least: int) -> Spread:
    parts = part.object("popular", "rest")
    popular = []
    for entry in parts["popular"].list():
        value, share = entry.list(2, 2)
        popular.append((value.whole(least), share.number(0.0, 1.0)))
    if sum(share for _, share in popular) > 1.001:
        raise parts["popular"].error("has shares of more than 1 in all")
    return Spread(tuple(popular), parts["rest"].ascending(least, 2.0**53, least=2))


def _read_kind(part: _Part) -> Kind:
    names = ("most_cores", "most_request_s", "share", "campaigns", "cores", "request_s", "at_limit", "run_place")
    parts = part.object(*names)
    cores, request_s = _spread(parts["cores"], 1), _spread(parts["request_s"], 1)
    for name, spread in (("cores", cores), ("request_s", request_s)):
        if not spread.mean() > 0.0:
            raise parts[name].error("has no value")
    return Kind(
        most_cores=parts["most_cores"].whole(1),
        most_request_s=parts["most_request_s"].whole(1),
        share=parts["share"].number(0.0, 1.0),
        campaigns=parts["campaigns"].shares(_LONGEST_CAMPAIGN.bit_length()),
        cores=cores,
        request_s=request_s,
        at_limit=parts["at_limit"].number(0.0, 1.0),
        run_place=parts["run_place"].ascending(-1.0, 1.0, least=2),
    )
