"""The common wait of jobs that take from one bag: further jobs start later, but the last need not be awaited."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .search import Samples


def counts_of(jobs: int) -> list[int]:
    """Return the numbers of parallel jobs whose waits are needed: powers of two, and all jobs.

    Examples
    --------
    >>> counts_of(12)
    [1, 2, 4, 8, 12]
    """
    counts = [1]
    while 2 * counts[-1] < jobs:
        counts.append(2 * counts[-1])
    return counts if jobs == 1 else [*counts, jobs]


def shared_wait_s(counts: Sequence[int], waits_s: Samples, run_s: float) -> Samples:
    """Return the wait of a bag's equivalent job: one that begins with all cores, and ends when the bag is empty.

    The last of n parallel jobs is assumed to start when one job with all their cores would. Jobs work as soon as they
    have started, and the bag ends when its work is done: the result is the earliest end over all numbers of jobs.

    `counts`: numbers of jobs, ascending, from one to all.
    `waits_s`: samples of the wait of one job with as many jobs' cores, shape (counts, samples).
    `run_s`: seconds that all jobs together need for the work.
    Returns: samples, shape (samples,).

    Examples
    --------
    >>> shared_wait_s([1, 2], np.array([[0.0, 0.0], [40.0, 1e6]]), 100.0).tolist()
    [20.0, 100.0]
    """
    jobs = np.arange(1, counts[-1] + 1)
    known = np.maximum.accumulate(waits_s, axis=0)
    at = np.log2(jobs)
    known_at = np.log2(np.asarray(counts))
    begin_s = np.stack([np.interp(at, known_at, column) for column in known.T], axis=1)
    ends_s = (run_s * counts[-1] + np.cumsum(begin_s, axis=0)) / jobs[:, None]
    shared: Samples = ends_s.min(axis=0) - run_s
    return shared
