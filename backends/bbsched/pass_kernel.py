"""The loops of EASY backfilling over several resources and kinds of nodes."""

from __future__ import annotations

from typing import Any

from asa.core.compiled import At, kernel


@kernel
def fitting(jobs: Any, many: int, demand: Any, pools: int, limited: int, free: Any) -> int:
    """Count the jobs that fit together, in order, into the free resources, which they reduce.

    A job that does not fit is skipped. So the count is 0 only if no job fits alone, and includes all jobs only if they
    fit together. O(jobs).
    """
    count = 0
    for i in range(many):
        row = jobs[At(i)] * pools
        fits = True
        for part in range(limited):
            if demand[At(row + part)] > free[At(part)]:
                fits = False
        if fits:
            count += 1
            for part in range(limited):
                free[At(part)] -= demand[At(row + part)]
    return count


@kernel
def shadow(
    needs: Any, limited: int, running: Any, many: int, ends: Any, demand: Any, pools: int, now: int, left: Any,
) -> int:  # fmt: skip
    """Find when a job fits, as running jobs end in order, and turn the free resources (`left`) into those at that time.

    Returns -1 if the job never fits. O(running jobs).
    """
    begin, i = now, 0
    while True:
        fits = True
        for part in range(limited):
            if needs[At(part)] > left[At(part)]:
                fits = False
        if fits:
            return begin
        if i == many:
            return -1
        begin = max(ends[At(running[At(i)])], now)
        while i < many and ends[At(running[At(i)])] <= begin:
            row = running[At(i)] * pools
            for part in range(pools):
                left[At(part)] += demand[At(row + part)]
            i += 1


@kernel
def place(needs: Any, row: int, kinds: int, free: Any, taken: Any, out: int) -> None:
    """Compute a job's nodes of each kind or better, if it gets the lowest sufficient kind first, then better ones."""
    kind = kinds - 1
    while kind > 0 and needs[At(row + kind)] == 0:
        kind -= 1
    wanted = needs[At(row)]
    for better in range(kinds):
        taken[At(out + better)] = wanted if better <= kind else 0
    for better in range(kind, kinds - 1):
        wanted -= min(wanted, free[At(better)] - free[At(better + 1)])
        taken[At(out + better + 1)] = wanted


@kernel
def backfill(
    jobs: Any, many: int, demand: Any, request: Any, pools: int, kinds: int, limited: int, now: int, until: int,
    free: Any, then: Any, started: Any, taken: Any,
) -> int:  # fmt: skip
    """Start jobs, in order, that fit now, and either end by a time or take only resources that are spare then.

    `free`, `then`: resources that are free now, and those left spare by the job that starts then; started jobs reduce
    both.
    `started`, `taken`: receive the started jobs, and their amounts from each pool.
    """
    count = 0
    for i in range(many):
        row, out = jobs[At(i)] * pools, count * pools
        fits = True
        for part in range(limited):
            if demand[At(row + part)] > free[At(part)]:
                fits = False
        if not fits:
            continue
        for part in range(kinds, pools):
            taken[At(out + part)] = demand[At(row + part)]
        place(demand, row, kinds, free, taken, out)
        is_short = now + request[At(jobs[At(i)])] <= until
        if not is_short:
            for part in range(limited):
                if taken[At(out + part)] > then[At(part)]:
                    fits = False
        if not fits:
            continue
        for part in range(pools):
            free[At(part)] -= taken[At(out + part)]
            if not is_short:
                then[At(part)] -= taken[At(out + part)]
        started[At(count)] = jobs[At(i)]
        count += 1
    return count
