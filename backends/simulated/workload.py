"""A workload model: synthetic jobs like those of a real centre.

Widths and run times follow Lublin and Feitelson (*The workload on parallel supercomputers: modeling the characteristics
of rigid jobs*, J. Parallel Distrib. Comput. 63, 2003): a two-stage uniform law for the logarithm of the width with many
powers of two and many serial jobs, and a hyper-gamma law for the logarithm of the run time, in which wide jobs run
longer. The rest is specific to ASA: users who submit several similar jobs at once, a daily and weekly cycle, and
walltimes that are round numbers above the run time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError

from .machine import Machine
from .table import JobTable

__all__ = ["ROUND_REQUESTS_S", "WorkloadModel"]

_DAY = 86400
_WEEK = 7 * _DAY

# Lublin and Feitelson's hyper-gamma law of ln(run time / s): (shape, scale) of the short and the long branch, and the
# probability of the short branch as a linear function of the number of nodes.
_SHORT = (4.2, 0.94)
_LONG = (312.0, 0.03)
_SHORT_CHANCE_AT_0, _SHORT_CHANCE_SLOPE = 0.78, -0.0054
_MIN_SHORT_CHANCE = 0.05
_POWER_OF_TWO = 0.576  # share of powers of two among the widths of parallel jobs

ROUND_REQUESTS_S = np.array(
    [300, 600, 900, 1200, 1800, 2700]
    + [3600 * h for h in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 24, 36, 48, 72, 96, 120)],
    dtype=np.int64,
)
"""Usual walltimes, up to the longest that the model's sites allow (five days)."""


@dataclass(frozen=True, slots=True)
class WorkloadModel:
    """A centre's workload.

    Parameters
    ----------
    machine
        Machine that it runs on.
    load
        Ratio of submitted work to the machine's capacity, at most 1.2. Above 1 the queue, and waits, grow all the time.
    serial
        Share of jobs of one core.
    narrow
        Share of the parallel jobs in the lower stage of the two-stage law.
    log2_middle, log2_widest
        Bound between the lower and the upper stage, and end of the upper one, in log2 of cores.
    accuracy
        Lower bound of the share of its request that a job runs for; the share is uniform from there to 1, before the
        request is rounded up to a usual walltime.
    burst
        Mean number of similar jobs that a user submits at once.
    daily_swing
        Amplitude of the daily cycle of submissions, 0 to 1; the peak is at 14 h.
    weekend
        Submissions on a weekend day relative to a weekday.
    """

    machine: Machine
    load: float
    serial: float = 0.244
    narrow: float = 0.86
    log2_middle: float = 4.5
    log2_widest: float = 10.0
    accuracy: float = 0.1
    burst: float = 1.5
    daily_swing: float = 0.3
    weekend: float = 0.8

    def __post_init__(self) -> None:
        limits = {
            "load": (0.01, 1.2),
            "serial": (0.0, 1.0),
            "narrow": (0.0, 1.0),
            "log2_middle": (0.8, self.log2_widest),
            "log2_widest": (1.0, math.log2(self.machine.cores)),
            "accuracy": (0.01, 1.0),
            "burst": (1.0, 1000.0),
            "daily_swing": (0.0, 1.0),
            "weekend": (0.0, 10.0),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(
                    f"{name} = {value} is outside {low:g} to {high:g}",
                    where=f"workload of {self.machine.name!r}",
                    hint="Change it.",
                )

    def parameters(self) -> dict[str, float]:
        """Return the parameters of a calibration, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "machine"}

    def generate(self, duration_s: int, seed: int | np.random.SeedSequence) -> JobTable:
        """Draw the jobs submitted within a duration that begins on a Monday at midnight.

        Parameters
        ----------
        duration_s
            Seconds.
        seed
            Equal seeds yield equal jobs.

        Returns
        -------
        JobTable
            In order of submission.
        """
        rng = np.random.Generator(np.random.PCG64(seed))
        campaigns_per_s = self._campaign_rate()
        count = int(rng.poisson(campaigns_per_s * duration_s))
        first = self._arrivals(rng, count, duration_s)
        copies = rng.geometric(1.0 / self.burst, size=count)
        campaign = np.repeat(np.arange(count), copies)
        cores = self._widths(rng, count)
        run = self._run_times(rng, cores)
        request = self._requests(rng, run)
        # similar jobs have similar run times, never beyond their common request, and follow each other within moments
        runs = np.clip(run[campaign] * rng.uniform(0.8, 1.0, size=len(campaign)), 1, None).astype(np.int64)
        nth = np.arange(len(campaign)) - np.repeat(np.cumsum(copies) - copies, copies)
        submit = (first[campaign] + 2 * nth).astype(np.int64)
        within = submit < duration_s
        return JobTable(submit[within], runs[within], request[campaign][within], cores[campaign][within])

    @lru_cache(maxsize=16)  # noqa: B019 - models are values, and few exist
    def _campaign_rate(self) -> float:
        """Campaigns per second for the load, from the mean work of many drawn campaigns."""
        rng = np.random.Generator(np.random.PCG64(0))
        cores = self._widths(rng, 200_000)
        # 0.9: mean of the run times of similar jobs relative to their maximum
        work = float(np.mean(cores * 0.9 * self._run_times(rng, cores)))
        return self.load * self.machine.cores / (work * self.burst)

    def _widths(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        lower = rng.random(count) < self.narrow
        low = np.where(lower, 0.8, self.log2_middle)
        high = np.where(lower, self.log2_middle, self.log2_widest)
        exponent = rng.uniform(low, high)
        exponent = np.where(rng.random(count) < _POWER_OF_TWO, np.round(exponent), exponent)
        cores = np.maximum(np.round(2.0**exponent), 1).astype(np.int64)
        cores[rng.random(count) < self.serial] = 1
        return np.minimum(cores, self.machine.cores)

    def _run_times(self, rng: np.random.Generator, cores: NDArray[np.int64]) -> NDArray[np.float64]:
        nodes = cores / self.machine.cores_per_node
        short = np.clip(_SHORT_CHANCE_AT_0 + _SHORT_CHANCE_SLOPE * nodes, _MIN_SHORT_CHANCE, 1.0)
        logarithm = np.where(
            rng.random(len(cores)) < short,
            rng.gamma(*_SHORT, size=len(cores)),
            rng.gamma(*_LONG, size=len(cores)),
        )
        return np.clip(np.exp(logarithm), 1.0, float(ROUND_REQUESTS_S[-1]))

    def _requests(self, rng: np.random.Generator, run: NDArray[np.float64]) -> NDArray[np.int64]:
        wanted = run / rng.uniform(self.accuracy, 1.0, size=len(run))
        place = np.searchsorted(ROUND_REQUESTS_S, np.ceil(wanted))
        return ROUND_REQUESTS_S[np.minimum(place, len(ROUND_REQUESTS_S) - 1)]

    def _arrivals(self, rng: np.random.Generator, count: int, duration_s: int) -> NDArray[np.float64]:
        """Ordered times of a Poisson process with a weekly cycle of its rate."""
        hours = np.arange(168)
        weight = 1.0 + self.daily_swing * np.cos(2 * np.pi * ((hours % 24) + 0.5 - 14) / 24)
        weight[hours >= 5 * 24] *= self.weekend
        week = (
            np.concatenate([[0.0], np.cumsum(weight)]) / weight.sum()
        )  # share of a week's submissions before each hour
        edges = np.arange(169) * 3600.0
        whole, rest = divmod(duration_s, _WEEK)
        total = whole + np.interp(rest, edges, week)
        drawn = np.sort(rng.random(count)) * total
        times: NDArray[np.float64] = np.floor(drawn) * _WEEK + np.interp(drawn % 1.0, week, edges)
        return times
