"""Measures how far real starts are from planned starts, on a log with requests and real run times."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asa.backends.openccs.core import OpenCcsCore
from asa.backends.simulated.swf import Trace, write_swf
from asa.backends.simulated.table import NEVER

_FLOOR_S = 10.0  # shorter waits count as this in ratios
_CLASSES_S = (0, 600, 3600, 4 * 3600, 24 * 3600)


@dataclass(frozen=True, slots=True)
class Class:
    """Jobs that were promised about the same wait at submission."""

    above_s: int | None  # lower bound of the promised wait; the upper one is the next class's. None for all jobs
    jobs: int
    planned_s: float  # medians of the promised wait, and of the real one
    real_s: float
    kept: float  # shares that started as planned, and that waited at least half the promised time
    within_2x: float
    early_s: float  # mean seconds by which they started earlier than planned
    log10_error: float  # mean absolute logarithm of the ratio between the two; waits below 10 s count as 10 s


@dataclass(frozen=True, slots=True)
class Drift:
    """Distances of real starts from planned starts."""

    classes: tuple[Class, ...]  # by promised wait; the first one is all jobs
    later: int  # number of jobs that started later than promised; it is 0 unless the plan is wrong


def run_log(log: Trace, *, most: int | None = None) -> OpenCcsCore:
    """Simulate OpenCCS on a log."""
    core = OpenCcsCore(log.cores, log.table, now=int(log.table.submit[0]) if len(log.table) else 0, most=most)
    core.run(NEVER - 1)
    return core


def drift(log: Trace, *, most: int | None = None, to: Path | None = None) -> Drift:
    """Measure how far real starts are from planned starts.

    `most`: upper bound of the pending jobs that are replanned when a job ends early; by default none.
    `to`: file for the simulated log with its waits, on which `asa evaluate` can compare learned waits.

    Notes
    -----
    O(jobs x queued jobs x slots) at worst; a log of 28,000 jobs takes a second.
    """
    core = run_log(log, most=most)
    submit = log.table.submit
    planned, real = core.promised - submit, core.start - submit
    if to is not None:
        write_swf(
            to,
            log.table,
            cores=log.cores,
            job_ids=log.job_ids,
            users=log.users,
            groups=log.groups,
            queues=log.queues,
            partitions=log.partitions,
            waits_s=real,
            notes=["As OpenCCS would have run it."],
        )
    classes = [_class(None, planned, real)]
    for low, high in itertools.pairwise([*_CLASSES_S, NEVER]):
        chosen = (planned > low) & (planned <= high)
        if chosen.any():
            classes.append(_class(low, planned[chosen], real[chosen]))
    return Drift(tuple(classes), int((real > planned).sum()))


def _class(above_s: int | None, planned: NDArray[np.int64], real: NDArray[np.int64]) -> Class:
    floored: Sequence[NDArray[np.float64]] = [np.log10(np.maximum(wait, _FLOOR_S)) for wait in (planned, real)]
    return Class(
        above_s,
        len(planned),
        float(np.median(planned)),
        float(np.median(real)),
        float((real == planned).mean()),
        float((2 * real >= planned).mean()),
        float((planned - real).mean()),
        float(np.abs(floored[0] - floored[1]).mean()),
    )
