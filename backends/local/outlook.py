"""Predicts the starts of pending jobs, if every running job takes its whole walltime."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .spool import OR_END

MAX_JOBS = 200
"""Number of jobs whose starts are predicted; those behind them are predicted later."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A pending job."""

    number: int  # its position in the order of submission
    cores: int
    slots: int
    walltime_s: float
    ready_s: float  # it cannot start before this time
    # number, kind and delay of unmet dependencies
    after: Sequence[tuple[int, str, float]] = ()


def foresee(
    now_s: float, running: Mapping[int, tuple[float, float, int]], pending: Iterable[Awaited]
) -> dict[int, float]:
    """Predict the starts of pending jobs, in order of submission; jobs with unknown start are left out.

    Examples
    --------
    >>> foresee(0.0, {1: (0.0, 60.0, 3)}, [Awaited(2, 4, 4, 10.0, 0.0), Awaited(3, 1, 4, 5.0, 0.0)])
    {2: 60.0, 3: 70.0}
    """
    starts = {number: start_s for number, (start_s, _, _) in running.items()}
    ends = {number: max(end_s, now_s) for number, (_, end_s, _) in running.items()}
    heap = [(ends[number], cores) for number, (_, _, cores) in running.items()]
    heapq.heapify(heap)
    taken = sum(cores for _, _, cores in running.values())
    waiting, foreseen = list(pending)[:MAX_JOBS], {}
    clock_s = now_s
    while waiting:
        while heap and heap[0][0] <= clock_s:
            taken -= heapq.heappop(heap)[1]
        later_s, left, is_blocked = math.inf, [], False
        for job in waiting:
            ready_s = _ready_s(job, starts, ends)
            if is_blocked or ready_s > clock_s or taken + job.cores > job.slots:
                is_blocked |= ready_s <= clock_s
                later_s = min(later_s, ready_s if ready_s > clock_s else math.inf)
                left.append(job)
                continue
            foreseen[job.number] = starts[job.number] = clock_s
            ends[job.number] = clock_s + job.walltime_s
            heapq.heappush(heap, (ends[job.number], job.cores))
            taken += job.cores
        waiting = left
        clock_s = min(later_s, heap[0][0] if heap else math.inf)
        if clock_s == math.inf:
            break
    return foreseen


def _ready_s(job: Awaited, starts: Mapping[int, float], ends: Mapping[int, float]) -> float:
    """Return the time from which a job may start; infinity while that is not known."""
    times = [job.ready_s]
    for number, kind, delay_s in job.after:
        started_s, ended_s = starts.get(number, math.inf) + delay_s, ends.get(number, math.inf)
        times.append(started_s if kind == "after" else min(started_s, ended_s) if kind == OR_END else ended_s)
    return max(times)
