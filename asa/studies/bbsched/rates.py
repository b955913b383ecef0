"""Jobs at the paper's rate, which is what makes burst buffer scarce in its workloads (Section 4.1, Table 2).

The paper's logs have 21,370 jobs a day on Cori and 467 on Theta. How long they ran it does not say, but its S4 bounds
that: on average its jobs hold, under BBSched, 94.74 and 89.54 % of the burst buffer, 75 % of them ask, and requests
above 20 TB have a known mean. So run times are scaled by one factor, by which S4's offered load is exactly that usage:
an average of 190 s on Cori, 46 minutes on Theta. (The paper's own waits and slowdowns agree: 51,028 s and 154 are those
of jobs of a few minutes.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asa.backends.bbsched.system import Integers
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import ROUND_REQUESTS_S, WorkloadModel
from asa.errors import InputError

from .paper import FIGURES, JOBS_A_DAY, WINDOW

Law = Sequence[tuple[float, int, int]]
"""Requests of the original jobs: (share of all jobs, smallest GB, largest GB), log-uniform between."""

_DAY: Final = 86_400
_HOUR_S: Final = 3600
_S4_SHARE, _S4_GB = 0.75, 20_000
# so that nodes are as busy as the paper's where burst buffer is not scarce, about 80 %; 80 % of the jobs have one node
_NARROW: Final = 0.73
_MANY: Final = 64  # times the model's usual rate, more than the paper's; the surplus is left out at random


def mean_above(law: Law, min_gb: int) -> float:
    """Return the mean of the requests above a bound.

    Examples
    --------
    >>> round(mean_above([(0.1, 10, 1000), (0.001, 5000, 5000)], 100))
    481
    """
    shares, means = [], []
    for share, low, high in law:
        begin = max(low, min_gb)
        if begin < high:
            shares.append(share * np.log(high / begin) / np.log(high / low))
            means.append((high - begin) / np.log(high / begin))
        elif high > min_gb:
            shares.append(share)
            means.append(float(high))
    return float(np.average(means, weights=shares))


def work_of_s4(machine: str, law: Law, buffer_gb: int, span_s: int) -> float:
    """Return the job-seconds with which the offered load of S4 is what the paper's jobs use of the burst buffer."""
    usage = FIGURES[f"{machine}-s4", "bbsched", "burst_buffer_usage"][WINDOW]
    return usage * buffer_gb * span_s / (_S4_SHARE * mean_above(law, _S4_GB))


def cori_at_rate(days: int, work_s: float, nodes: int, processors: int, seed: np.random.SeedSequence) -> JobTable:
    """Draw Cori's jobs from the workload model, as many as the paper's, with this total of run times.

    `processors`: number for each node, in which the model counts widths.
    """
    drawn_seed, kept_seed = seed.spawn(2)
    machine = Machine("cori", nodes=_MANY * nodes * processors, cores_per_node=1)
    model = WorkloadModel(machine, load=0.87, narrow=_NARROW, log2_middle=6, log2_widest=18)
    drawn = model.generate(days * _DAY, drawn_seed)
    rng = np.random.Generator(np.random.PCG64(kept_seed))
    kept: NDArray[np.bool_] = rng.random(len(drawn)) < JOBS_A_DAY["cori"] * days / len(drawn)
    submit, run, request, cores = (column[kept] for column in (drawn.submit, drawn.run, drawn.request, drawn.cores))
    return JobTable(submit, *_scaled(run, request, work_s / run.sum()), -(-cores // processors))


def with_narrow_jobs(table: JobTable, span_s: int, work_s: float, seed: np.random.SeedSequence) -> JobTable:
    """Add the narrow jobs that a log lacks to the paper's number of jobs on Theta, with this total of run times.

    They are narrower than any of the log's, log-uniform from one node on. Each is submitted within an hour after a job
    of the log, whose run time and request it has, scaled.

    Raises `InputError`: the log has as many jobs already, or they hold as much.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    count = round(JOBS_A_DAY["theta"] * span_s / _DAY) - len(table)
    like = rng.integers(0, len(table), max(count, 0))
    missing_s = work_s - float(table.run.sum())
    if count < 1 or missing_s <= 0:
        raise InputError(
            f"{len(table) * _DAY / span_s:,.0f} jobs a day of {table.run.mean():,.0f} s on average: no narrow ones are "
            "missing to the paper's rate and load",
            where="--paper-rate",
            hint="Leave the option out.",
        )
    end_s = int(table.submit[0]) + span_s
    submit = np.minimum(table.submit[like] + rng.integers(0, _HOUR_S, count), end_s - 1)
    widest = max(int(table.cores.min()) - 1, 1)
    nodes = np.floor(np.exp(rng.uniform(0, np.log(widest + 1), count))).astype(np.int64)
    run, request = _scaled(table.run[like], table.request[like], missing_s / float(table.run[like].sum()))
    columns = ((table.submit, submit), (table.run, run), (table.request, request), (table.cores, nodes))
    return JobTable(*(np.concatenate(both) for both in columns))


def _scaled(run: Integers, request: Integers, factor: float) -> tuple[Integers, Integers]:
    """Scale run times, and requests up to the next usual walltime."""
    longest = len(ROUND_REQUESTS_S) - 1
    usual = ROUND_REQUESTS_S[np.minimum(np.searchsorted(ROUND_REQUESTS_S, np.ceil(request * factor)), longest)]
    return np.maximum(np.rint(run * factor), 1).astype(np.int64), usual
