"""The inner loops of sampled futures: EASY backfilling of running and pending jobs, and when requests would start.

A request that is last in the queue changes nothing before it starts. So requests of which one will be submitted are
simulated in one pass, in which they delay no other job, and each starts when it would be backfilled, or would be at the
head. The jobs of a plan are all submitted: each takes its cores before the next job is considered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from asa.core.compiled import At, kernel

NEVER_S = 1e300
READY, AGING, EARLY, LOCAL = range(4)
"""Queueing behaviour of a job of a plan; see `asa.waits.JobAhead`."""
KEPT_BACK, QUEUED, STARTED = range(3)
"""States of a job of a plan."""


class Queue(NamedTuple):  # the name is in what was compiled and kept, which could not be read under another
    """Running and pending jobs.

    A row for each future has the ends of running jobs, and the run times of pending ones.
    """

    running_cores: Any
    running_due: Any  # seconds from now: requested ends, ascending
    running_end: Any  # futures x jobs, one after the other
    cores: Any  # of waiting jobs, in queue order
    asked: Any  # seconds
    run: Any  # futures x jobs, one after the other


class Requests(NamedTuple):
    """Requests to evaluate, and the start of each in each future: seconds from now, one future after another."""

    cores: Any
    asked: Any  # seconds
    at: Any  # submission, in seconds from now
    starts: Any


class PlanInQueue(NamedTuple):
    """Jobs of a plan, which are the last ones of the `Queue`; data of each future are in successive rows."""

    mode: Any
    at: Any  # earliest submission, in seconds from now
    after: Any  # jobs x jobs: 1 where the first depends on the second, which precedes it
    ready: Any  # futures x jobs: earliest begin of its payload, in seconds from now
    fades: Any  # for each future: the time after which nothing is known of the queue; later jobs wait as usual
    usual: Any  # futures x jobs: usual waits, in seconds
    starts: Any  # futures x jobs: start, in seconds from now
    state: Any  # scratch, for each job: its state, the end of its payload, and since when its age counts
    end: Any
    since: Any


class Scratch(NamedTuple):
    """Space for all jobs: running jobs by requested end, and jobs that still wait."""

    cores: Any
    due: Any
    end: Any
    waits: Any


@kernel
def _begin(w: Any, count: int, cores: int, due: float, end: float) -> None:
    """Insert a job into the first `count` running jobs."""
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
    """Return the latest start of the job at the head of the queue, and the cores left over then."""
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
    """Write the start of each request in one future; return the number of jobs pending at the end, in `w.waits`.

    Without requests, it starts only the pending jobs that can start now.

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
            # in order while they fit, then those that do not delay the first one that does not fit
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
        if later == NEVER_S:  # wider than the cores ever left over
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
    """Write the start of each request in each future."""
    for sample in range(samples):
        future(size, sample, q, r, w)


@kernel
def _due(j: int, row: int, p: Any) -> float:
    """Return the end of all dependencies of a job of a plan; NEVER_S if that is not known yet."""
    jobs, due = len(p.mode), p.ready[At(row + j)]
    for i in range(j):
        if p.after[At(j * jobs + i)]:
            due = max(due, p.end[At(i)])
    return float(max(due, 0.0))


@kernel
def _start(j: int, row: int, p: Any, ran: float, now: float) -> None:
    """Record the start of a job of a plan, and its end, if that is known."""
    p.starts[At(row + j)], p.state[At(j)] = now, STARTED
    due = _due(j, row, p)
    p.end[At(j)] = NEVER_S if due >= NEVER_S else max(now, due) + ran


@kernel
def plan_future(size: int, sample: int, q: Any, p: Any, w: Any) -> None:
    """Write the start of each job of a plan in one future.

    Notes
    -----
    O(r + q + n) for each time at which something ends, until all n jobs of the plan have started.
    """
    own, total, count, free = len(p.mode), len(q.cores), len(q.running_cores), size
    jobs = total - own
    first, ends, row, fades = sample * total, sample * count, sample * own, p.fades[At(sample)]
    later = NEVER_S
    for i in range(count):
        w.cores[At(i)], w.due[At(i)], w.end[At(i)] = (
            q.running_cores[At(i)],
            q.running_due[At(i)],
            q.running_end[At(ends + i)],
        )
        free -= w.cores[At(i)]
        later = min(later, w.end[At(i)])
    for j in range(jobs):
        w.waits[At(j)] = j
    for j in range(own):
        p.state[At(j)], p.end[At(j)], p.starts[At(row + j)] = KEPT_BACK, NEVER_S, -1.0
    narrowest, left, waiting, now = 0, own, jobs, 0.0
    while True:
        for j in range(own):  # each job precedes those that depend on it
            ran, mode = q.run[At(first + jobs + j)], p.mode[At(j)]
            if p.state[At(j)] == STARTED:
                if p.end[At(j)] >= NEVER_S:
                    due = _due(j, row, p)
                    p.end[At(j)] = NEVER_S if due >= NEVER_S else max(p.starts[At(row + j)], due) + ran
                continue
            if p.state[At(j)] == QUEUED:
                continue
            comes = p.at[At(j)]
            if mode != EARLY:
                comes = max(comes, _due(j, row, p))
            if comes >= NEVER_S:
                continue
            if mode == LOCAL or comes >= fades:
                usual = 0.0 if mode == LOCAL else p.usual[At(row + j)]
                _start(j, row, p, ran, comes + usual)
                left -= 1
            elif comes > now:
                later = min(later, comes)
            else:
                p.state[At(j)], p.since[At(j)] = QUEUED, (p.at[At(j)] if mode == AGING else comes)
                place = waiting
                while (
                    place > 0 and w.waits[At(place - 1)] >= jobs
                    and p.since[At(w.waits[At(place - 1)] - jobs)] > p.since[At(j)]
                ):  # fmt: skip
                    w.waits[At(place)] = w.waits[At(place - 1)]
                    place -= 1
                w.waits[At(place)] = jobs + j
                waiting += 1
                narrowest = min(narrowest, q.cores[At(jobs + j)])
        begun = 0
        if waiting > 0 and free >= narrowest:
            kept, head, narrowest, shadow, extra = 0, False, 1 << 60, NEVER_S, free
            for i in range(waiting):
                job = w.waits[At(i)]
                cores, asked = q.cores[At(job)], q.asked[At(job)]
                early = now + asked <= shadow
                if cores <= free and (not head or early or cores <= extra):
                    if head and not early:
                        extra -= cores
                    end = now + q.run[At(first + job)]
                    if job >= jobs:
                        _start(job - jobs, row, p, q.run[At(first + job)], now)
                        begun, left = begun + 1, left - 1
                        # a job that starts early keeps its cores until then
                        end = min(p.end[At(job - jobs)], now + asked)
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
        if left == 0:
            return
        if begun > 0:
            continue  # the ends of its dependencies are known by now
        if later == NEVER_S:  # wider than the cores ever left over
            kept = 0
            for i in range(waiting):
                job = w.waits[At(i)]
                if job >= jobs:
                    _start(job - jobs, row, p, q.run[At(first + job)], now)
                    left -= 1
                else:
                    w.waits[At(kept)] = job
                    kept += 1
            if kept == waiting:
                return
            waiting = kept
            continue
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
def all_plan_futures(size: int, samples: int, q: Any, p: Any, w: Any) -> None:
    """Write the start of each job of a plan in each future."""
    for sample in range(samples):
        plan_future(size, sample, q, p, w)
