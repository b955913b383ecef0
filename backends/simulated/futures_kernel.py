"""The inner loop of sampled futures: EASY backfilling of running and pending jobs, and when requests would start.

A request that is last in the queue changes nothing before it starts. So all requests are simulated in one pass, in
which they delay no other job, and each starts when it would be backfilled, or would be at the head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from asa.core.compiled import At, kernel

NEVER_S = 1e300


class Queue(NamedTuple):  # the name is in what was compiled and kept, which could not be read under another
    """What runs and waits; ends of running jobs and run times of waiting ones are those of a future, a row each."""

    running_cores: Any
    running_due: Any  # seconds from now: requested ends, ascending
    running_end: Any  # futures x jobs, one after the other
    cores: Any  # of waiting jobs, in the order in which they are taken
    asked: Any  # seconds
    run: Any  # futures x jobs, one after the other


class Requests(NamedTuple):
    """What is to be judged, and when each starts in each future: seconds from now, one future after the other."""

    cores: Any
    asked: Any  # seconds
    at: Any  # seconds from now at which it is submitted
    starts: Any


class Scratch(NamedTuple):
    """Room for all jobs: of running ones, by requested ends; and which wait still."""

    cores: Any
    due: Any
    end: Any
    waits: Any


@kernel
def _begin(w: Any, count: int, cores: int, due: float, end: float) -> None:
    """Put a job among so many running ones."""
    place = count
    while place > 0 and w.due[At(place - 1)] > due:
        before = place - 1
        w.due[At(place)], w.cores[At(place)], w.end[At(place)] = (
            w.due[At(before)],
            w.cores[At(before)],
            w.end[At(before)],
        )
        place = before
    w.due[At(place)], w.cores[At(place)], w.end[At(place)] = due, cores, end


@kernel
def _reserve(w: Any, count: int, cores: int, free: int, now: float) -> tuple[float, int]:
    """Say when the head-of-queue job will have its cores at the latest, and how many are left over then."""
    shadow, released, place = NEVER_S, free, 0
    while place < count and released < cores:
        released += w.cores[At(place)]
        shadow = max(w.due[At(place)], now)
        place += 1
    while place < count and w.due[At(place)] <= shadow:
        released += w.cores[At(place)]
        place += 1
    return shadow, released - cores


@kernel
def future(size: int, sample: int, q: Any, r: Any, w: Any) -> int:
    """Write when each request would start in one future; return how many jobs are pending at the end, in `w.waits`.

    Without requests only jobs that can start now are started.

    Notes
    -----
    O(r + q + requests) for each time at which something ends, until all requests have started.
    """
    requests, jobs, count, free = len(r.cores), len(q.cores), len(q.running_cores), size
    first, ends, out = sample * jobs, sample * count, sample * requests
    later = NEVER_S
    for i in range(count):
        w.cores[At(i)], w.due[At(i)], w.end[At(i)] = (
            q.running_cores[At(i)],
            q.running_due[At(i)],
            q.running_end[At(ends + i)],
        )
        free -= w.cores[At(i)]
        later = min(later, w.end[At(i)])
    narrowest = 0
    for j in range(jobs):
        w.waits[At(j)] = j
    for t in range(requests):
        r.starts[At(out + t)] = -1.0
    left, waiting, now = requests, jobs, 0.0
    while True:
        shadow, extra = NEVER_S, free
        if waiting > 0 and free >= narrowest:
            # in order while they fit, then what does not delay the first that does not
            kept, head, narrowest = 0, False, 1 << 60
            for i in range(waiting):
                job = w.waits[At(i)]
                cores, asked = q.cores[At(job)], q.asked[At(job)]
                early = now + asked <= shadow
                if cores <= free and (not head or early or cores <= extra):
                    if head and not early:
                        extra -= cores
                    end = now + q.run[At(first + job)]
                    _begin(w, count, cores, now + asked, end)
                    count += 1
                    free -= cores
                    later = min(later, end)
                    continue
                w.waits[At(kept)] = job
                kept += 1
                narrowest = min(narrowest, cores)
                if not head:
                    head = True
                    shadow, extra = _reserve(w, count, cores, free, now)
            waiting = kept
        elif waiting > 0 and free > 0:
            shadow, extra = _reserve(w, count, q.cores[At(w.waits[0])], free, now)
        if requests == 0:
            return waiting
        for t in range(requests):
            if r.starts[At(out + t)] < 0.0:
                if r.at[At(t)] > now:
                    later = min(later, r.at[At(t)])
                elif r.cores[At(t)] <= free and (
                    waiting == 0 or now + r.asked[At(t)] <= shadow or r.cores[At(t)] <= extra
                ):
                    r.starts[At(out + t)] = now
                    left -= 1
        if left == 0:
            return waiting
        if later == NEVER_S:  # wider than what anybody leaves
            for t in range(requests):
                if r.starts[At(out + t)] < 0.0:
                    r.starts[At(out + t)] = now
            return waiting
        now, later, kept = max(now, later), NEVER_S, 0
        for i in range(count):
            if w.end[At(i)] <= now:
                free += w.cores[At(i)]
            else:
                if kept != i:
                    w.cores[At(kept)], w.due[At(kept)], w.end[At(kept)] = w.cores[At(i)], w.due[At(i)], w.end[At(i)]
                kept += 1
                later = min(later, w.end[At(i)])
        count = kept


@kernel
def all_futures(size: int, samples: int, q: Any, r: Any, w: Any) -> None:
    """Write when each request would start in each future."""
    for sample in range(samples):
        future(size, sample, q, r, w)
