"""The data of Figures 6, 7 and 8 for one workload: its state over time, and the times of each job."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from asa.studies.dmr.cluster import JobRecord


@dataclass(frozen=True, slots=True)
class Evolution:
    """A workload over time (Fig. 6). Each number is valid from its time to the next."""

    times_s: tuple[float, ...]  # times of changes, from the first submission
    allocated: tuple[int, ...]
    running: tuple[int, ...]
    completed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobPair:
    """A job in the fixed and the flexible version of its workload (Figs. 7 and 8)."""

    job: int
    application: str
    waits_s: tuple[float, float]  # wait and execution: fixed and flexible
    runs_s: tuple[float, float]

    @property
    def gains_s(self) -> tuple[float, float, float]:
        """Relative reductions of wait, execution and completion in the flexible version."""
        wait_s, run_s = (fixed - flexible for fixed, flexible in (self.waits_s, self.runs_s))
        return wait_s, run_s, wait_s + run_s


def evolution(records: Sequence[JobRecord]) -> Evolution:
    """Compute a workload's state over time."""
    begin_s = min(record.job.submit_s for record in records)
    changes: list[tuple[float, int]] = []
    for record in records:
        sizes = [0, *(nodes for _, nodes in record.sizes), 0]
        times = [*(since_s for since_s, _ in record.sizes), record.end_s]
        changes += [(time_s, after - before) for time_s, before, after in zip(times, sizes, sizes[1:], strict=False)]
    changes.sort()
    levels = dict(zip((time_s for time_s, _ in changes), accumulate(nodes for _, nodes in changes), strict=True))
    times_s = sorted(levels)
    started, ended = (_count(times, times_s) for times in zip(*((r.start_s, r.end_s) for r in records), strict=True))
    return Evolution(
        tuple(time_s - begin_s for time_s in times_s),
        tuple(levels[time_s] for time_s in times_s),
        tuple(begun - over for begun, over in zip(started, ended, strict=True)),
        tuple(ended),
    )


def _count(of: Iterable[float], until_s: Sequence[float]) -> list[int]:
    """Count, for each time, the values that are not above it."""
    ordered = sorted(of)
    return [bisect_right(ordered, time_s) for time_s in until_s]


def compare(fixed: Sequence[JobRecord], flexible: Sequence[JobRecord]) -> list[JobPair]:
    """Pair each job of a workload with itself in the other version, in the order of submission."""
    return [
        JobPair(one.job.id, one.job.application.name, (one.wait_s, other.wait_s), (one.run_s, other.run_s))
        for one, other in zip(fixed, flexible, strict=True)
    ]
