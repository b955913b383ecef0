"""Quality measures of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import PassScheduler, Policy
from asa.backends.simulated.table import NEVER, JobTable
from numpy.typing import NDArray

from asa.errors import InputError

_SHORTEST_S: Final = 10  # bounded slowdown: shorter runs count as this


@dataclass(frozen=True, slots=True)
class ScheduleScore:
    """Quality measures of the schedule of a set of jobs."""

    reward: float  # mean over selections; 0 if none was computed
    mean_wait_s: float
    max_wait_s: int
    slowdown: float  # mean; runs below 10 s count as 10 s
    utilisation: float  # share of the machine in use, from the first submission to the last end


def run(table: JobTable, nodes: int, scheduler: PassScheduler | Policy) -> NDArray[np.int64]:
    """Schedule a set of jobs on an empty machine, and return the starts."""
    core = GeneralCore(Load(table, Cluster({"cores": nodes})), scheduler, now=int(table.submit[0]) if len(table) else 0)
    core.run(NEVER - 1)
    started = core.start >= 0
    if not len(table) or not started.all():
        raise InputError(
            f"{int((~started).sum())} of {len(table)} jobs never started",
            where="training",
            hint="Give jobs, and a scheduler that starts them all.",
        )
    return np.array(core.start)


def slowdowns(table: JobTable, waits: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the bounded slowdown of each job: response time over run time, where runs below 10 s count as 10 s."""
    bounded: NDArray[np.float64] = np.maximum(1.0, (waits + table.run) / np.maximum(table.run, _SHORTEST_S))
    return bounded


def score(table: JobTable, nodes: int, scheduler: PassScheduler | Policy) -> ScheduleScore:
    """Schedule a set of jobs on an empty machine, and return quality measures; see `run`."""
    start = run(table, nodes, scheduler)
    waits = start - table.submit
    span = int((start + table.run).max() - table.submit.min())
    total, selections = getattr(scheduler, "total_reward", 0.0), getattr(scheduler, "selections", 0)
    return ScheduleScore(
        reward=total / max(selections, 1),
        mean_wait_s=float(waits.mean()),
        max_wait_s=int(waits.max()),
        slowdown=float(slowdowns(table, waits).mean()),
        utilisation=float((table.run * table.cores).sum() / (nodes * span)),
    )
