"""The inner part of the queue-simulation estimator: simulates a copy of the visible queue on the engine's core.

The engine's own kernel does the scheduling. This module builds the engine's state from the visible queue, in scratch
arrays that are made once, and runs it for each set of jobs, each order of the queue and each rule for run times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from asa.core.compiled import At, Int, kernel

from .cores import fast_kernel as engine
from .cores.heap import BITS, MASK, push

TICKET, SUBMIT, SINCE, CORES, ASKED, USER, ALIKE, PARTITION = range(8)
"""Columns of a table of jobs; a table is one vector, column after column. Waiting jobs have `FITS_SINCE` at `SINCE`."""
FIELDS = 8
FITS_SINCE = SINCE

SETS, ORDERS = 3, 3
SIMULATIONS = 2 * ORDERS
"""For each set of jobs: each order with requested, then with expected run times."""
WHOLE, OWN, UNHELD, USERS = range(4)
"""Sets of jobs: all; the partition's; these without held ones; the user's own, which limit the previous two."""
FCFS, SHORTEST, WFP = range(3)

FACTS = 32
HELD_AFTER_S = 30.0
"""A job that would have started at least this long ago, if only cores mattered, is held by something else."""
HORIZON_S = 315_360_000
"""Ten years; upper bound of all requests, run times and waits."""
MAX_CORES = 1 << 30

_MIN_OVERDUE_S, _MAX_OVERDUE_S = 10.0, 600.0
_MIN_OUTLIVED_S = 60.0


class Visible(NamedTuple):
    """The input, output and scratch arrays of the kernel."""

    target: Any  # tables of jobs: the target; waiting jobs in order of submission; running jobs
    waiting: Any
    running: Any
    user_share: (
        Any  # by user, and by user, cores and request, the part of their requests that they use; negative where unknown
    )
    alike_share: Any
    opinions: Any
    facts: Any
    s: Any
    run: Any
    guess: Any
    asked: Any
    cores: Any
    start: Any
    jobs: Any
    widths: Any
    lasts: Any
    sorted_releases: Any
    releases: Any
    release_widths: Any
    ends: Any
    nobody: Any
    begun: Any  # scratch: one place more than there are jobs, and a further block for the engine
    key: Any
    order: Any
    other: Any
    place: Any


@kernel
def remaining_s(asked_s: float, elapsed_s: float, share: float) -> int:
    """Return the expected remaining run time of a job.

    `share`: the expected share of its request that it uses; 1 for the request itself.
    Returns: seconds, at least 1. A job that outlived its expectation runs for twice its present time in all, up to its
    request; one that exceeds its request runs on for as long as it has exceeded it, within 10 s to 10 minutes.
    """
    left = asked_s - elapsed_s
    if left <= 0.0:
        return int(min(max(-left, _MIN_OVERDUE_S), _MAX_OVERDUE_S) + 0.5)
    if share < 1.0:
        expected = share * asked_s - elapsed_s
        left = min(left, expected if expected > 0.0 else max(elapsed_s, _MIN_OUTLIVED_S))
    return int(min(max(left, 1.0), 1.0 * HORIZON_S) + 0.5)


@kernel
def sort_by(key: Any, order: Any, other: Any, count: int) -> None:
    """Sort the first `count` entries by their keys, stably; `other` is scratch space of the same length."""
    i = 1
    while i < count and key[At(order[At(i)])] >= key[At(order[At(i - 1)])]:
        i += 1
    size = 1 if i < count else count
    while size < count:
        low = 0
        while low < count:
            middle, high = min(low + size, count), min(low + 2 * size, count)
            left, right = low, middle
            for to in range(low, high):
                if left < middle and (right >= high or key[At(order[At(left)])] <= key[At(order[At(right)])]):
                    other[At(to)] = order[At(left)]
                    left += 1
                else:
                    other[At(to)] = order[At(right)]
                    right += 1
            low = high
        for i in range(count):
            order[At(i)] = other[At(i)]
        size *= 2


@kernel
def _expected_share(a: Any, table: Any, room: int, row: int, site_share: float) -> float:
    """Return the share of its request that a job is expected to use, by similar jobs, else its user, else the site."""
    alike, user = int(table[At(ALIKE * room + row)]), int(table[At(USER * room + row)])
    if a.alike_share[At(alike)] >= 0.0:
        return float(a.alike_share[At(alike)])
    if a.user_share[At(user)] >= 0.0:
        return float(a.user_share[At(user)])
    return float(site_share)


@kernel
def _waited_s(a: Any, room: int, row: int, now: float) -> float:
    return float(min(max(now - a.waiting[At(SUBMIT * room + row)], 0.0), 1.0 * HORIZON_S))


@kernel
def _wait_on_engine(a: Any, first: int, rows: int, free: int, cores: int, asked: int, until: int) -> int:
    """Return the target's wait; the `first` jobs run, and those up to `rows` and the target are pending, in `order`.

    `until`: seconds from now; if it has not started by then, `HORIZON_S` is returned.
    """
    for i in range(engine.SCALARS):
        a.s[At(i)] = 0
    for i in range(first):
        a.releases[At(i)] = a.sorted_releases[At(i)]
        a.release_widths[At(i)] = a.cores[At(a.sorted_releases[At(i)] & MASK)]
        a.start[At(i)] = 0
        push(a.ends, i, (int(a.run[At(i)]) << BITS) | i)
    for i in range(first, rows):
        a.start[At(i)] = -1
    count = rows - first + 1
    for i in range(count):
        job = int(a.order[At(i)])
        if job == rows:  # the engine treats the target as a client's job, whose start it reports
            a.jobs[At(i)], a.widths[At(i)], a.lasts[At(i)] = MASK, cores, asked
        else:
            a.jobs[At(i)], a.widths[At(i)], a.lasts[At(i)] = job, a.cores[At(job)], a.asked[At(job)]
    for i in range(count, count + engine.BLOCK):
        a.widths[At(i)] = engine.GONE
    a.s[engine.NEXT], a.s[engine.FREE], a.s[engine.TAIL] = len(a.start), max(free, -MAX_CORES), count
    a.s[engine.LIVE], a.s[engine.RUNNING], a.s[engine.ENDS] = count, first, first
    engine.run_events(
        a.s,
        a.start,
        a.run,
        a.asked,
        a.cores,
        a.start,
        a.jobs,
        a.widths,
        a.lasts,
        a.releases,
        a.release_widths,
        a.ends,
        a.nobody,
        a.nobody,
        a.begun,
        until,
        Int(engine.REST),
        None,
    )
    return int(a.s[engine.NOW]) if a.s[engine.STARTED] > 0 else HORIZON_S


@kernel
def _gather_running(a: Any, runs: int, which: int, apart: bool, size: int, now: float, site_share: float) -> int:
    """Assign numbers to the running jobs of a set, and sort them by requested end; return their count."""
    room, rows = len(a.running) // FIELDS, 0
    for i in range(runs):
        if apart and a.running[At(PARTITION * room + i)] != a.target[PARTITION]:
            continue
        if which == USERS and a.running[At(USER * room + i)] != a.target[USER]:
            continue
        elapsed = max(now - a.running[At(SINCE * room + i)], 0.0)
        asked = a.running[At(ASKED * room + i)]
        a.asked[At(rows)] = remaining_s(asked, elapsed, 1.0)
        a.guess[At(rows)] = remaining_s(asked, elapsed, _expected_share(a, a.running, room, i, site_share))
        a.cores[At(rows)] = min(int(a.running[At(CORES * room + i)]), size)
        a.key[At(rows)] = a.asked[At(rows)]
        a.order[At(rows)] = rows
        rows += 1
    sort_by(a.key, a.order, a.other, rows)
    for i in range(rows):
        job = int(a.order[At(i)])
        a.sorted_releases[At(i)] = (int(a.asked[At(job)]) << BITS) | job
    return rows


@kernel
def _gather_waiting(a: Any, waits: int, which: int, apart: bool, size: int, site_share: float, first: int) -> int:
    """Assign numbers to the waiting jobs of a set, after the running ones; return the count of both together."""
    room, rows = len(a.waiting) // FIELDS, first
    for i in range(waits):
        if apart and a.waiting[At(PARTITION * room + i)] != a.target[PARTITION]:
            continue
        if which == USERS and a.waiting[At(USER * room + i)] != a.target[USER]:
            continue
        asked = a.waiting[At(ASKED * room + i)]
        a.asked[At(rows)] = remaining_s(asked, 0.0, 1.0)
        a.guess[At(rows)] = remaining_s(asked, 0.0, _expected_share(a, a.waiting, room, i, site_share))
        a.cores[At(rows)] = min(int(a.waiting[At(CORES * room + i)]), size)
        a.place[At(rows)] = i
        rows += 1
    return rows


@kernel
def _leave_out_held(a: Any, first: int, rows: int, free: int, size: int, now: float) -> int:
    """Leave out jobs that would start now and could have started before, until none is left; return the number kept.

    Notes
    -----
    The facts record whether the target's user has such jobs, and how many there are.
    """
    room, again = len(a.waiting) // FIELDS, True
    while again:
        again = False
        for i in range(first, rows + 1):
            a.order[At(i - first)] = i
        for i in range(rows):
            a.run[At(i)] = a.asked[At(i)]
        _wait_on_engine(a, first, rows, free, size, Int(1), Int(0))
        kept = first
        for i in range(first, rows):
            waiting = int(a.place[At(i)])
            if a.start[At(i)] == 0 and now - a.waiting[At(FITS_SINCE * room + waiting)] > HELD_AFTER_S:
                a.facts[30] += 1.0
                if a.target[USER] > 0.0 and a.waiting[At(USER * room + waiting)] == a.target[USER]:
                    a.facts[31] = 1.0
                again = True
                continue
            a.asked[At(kept)], a.guess[At(kept)] = a.asked[At(i)], a.guess[At(i)]
            a.cores[At(kept)], a.place[At(kept)] = a.cores[At(i)], waiting
            kept += 1
        rows = kept
    return rows


@kernel
def _simulate(a: Any, which: int, first: int, rows: int, free: int, size: int, now: float) -> None:
    """Write the opinions on a set; the user's own jobs only limit those of `OWN` and `UNHELD` later."""
    room = len(a.waiting) // FIELDS
    cores, asked = min(int(a.target[CORES]), size), remaining_s(a.target[ASKED], 0.0, 1.0)
    for order in range(ORDERS):
        for i in range(first, rows + 1):
            a.order[At(i - first)] = i
        if order == SHORTEST:
            for i in range(first, rows):
                a.key[At(i)] = a.asked[At(i)]
            a.key[At(rows)] = asked
            sort_by(a.key, a.order, a.other, rows - first + 1)
        elif order == WFP:
            for i in range(first, rows):
                urgency = _waited_s(a, room, int(a.place[At(i)]), now) / a.asked[At(i)]
                a.key[At(i)] = -(urgency * urgency * urgency) * a.cores[At(i)]
            a.key[At(rows)] = 0.0
            sort_by(a.key, a.order, a.other, rows - first + 1)
        for rule in range(2):
            for i in range(rows):
                a.run[At(i)] = a.asked[At(i)] if rule == 0 else a.guess[At(i)]
            wait = _wait_on_engine(a, first, rows, free, cores, asked, Int(HORIZON_S))
            opinion = order * 2 + rule
            if which != USERS:
                a.opinions[At(which * SIMULATIONS + opinion)] = wait
            else:
                for other in range(OWN, UNHELD + 1):
                    at = other * SIMULATIONS + opinion
                    a.opinions[At(at)] = max(1.0 * wait, a.opinions[At(at)])


@kernel
def _note_facts(a: Any, now: float, waits: int, runs: int, size: int, own_size: int, expected_run: int) -> None:
    """Write facts of the queue for a regressor, in the order of `lookahead.FACTS`."""
    w_room, r_room = len(a.waiting) // FIELDS, len(a.running) // FIELDS
    facts = a.facts
    for i in range(FACTS):
        facts[At(i)] = 0.0
    wide, long, user, partition = a.target[CORES], a.target[ASKED], a.target[USER], a.target[PARTITION]
    busy, own_busy = 0.0, 0.0
    for i in range(runs):
        width = 1.0 * a.cores[At(i)]
        busy += width
        facts[6] += width * a.asked[At(i)]
        facts[7] += width * a.guess[At(i)]
        if user > 0.0 and a.running[At(USER * r_room + i)] == user:
            facts[19] += 1.0
            facts[20] += width
        if a.running[At(PARTITION * r_room + i)] == partition:
            own_busy += width
            facts[27] += 1.0
    free = max(size - busy, 0.0)
    facts[0], facts[1], facts[2] = wide, long, 1.0 * expected_run
    facts[3], facts[4], facts[5], facts[8] = free, busy / size, 1.0 * runs, 1.0 * waits
    facts[25], facts[26] = 1.0 * size, max(own_size - own_busy, 0.0)
    for i in range(waits):
        width = 1.0 * a.cores[At(runs + i)]
        work = width * a.guess[At(runs + i)]
        waited = _waited_s(a, w_room, i, now)
        shorter = a.waiting[At(ASKED * w_room + i)] <= long
        facts[9] += width
        facts[10] += width * a.asked[At(runs + i)]
        facts[11] += work
        facts[17] = max(facts[17], waited)
        if shorter:
            facts[12] += 1.0
            facts[13] += work
        if width <= wide:
            facts[14] += 1.0
            if shorter:
                facts[15] += 1.0
                facts[16] = max(facts[16], waited)
        if user > 0.0 and a.waiting[At(USER * w_room + i)] == user:
            facts[18] += 1.0
        if a.target[ALIKE] > 0.0 and a.waiting[At(ALIKE * w_room + i)] == a.target[ALIKE]:
            facts[21] += 1.0
            facts[22] = max(facts[22], waited)
        if width <= free:
            facts[23] += 1.0
            facts[24] = max(facts[24], waited)
        if a.waiting[At(PARTITION * w_room + i)] == partition:
            facts[28] += 1.0
            facts[29] += work


@kernel
def foresee(
    a: Any, now: float, waits: int, runs: int, size: int, own_size: int, split: bool, site_share: float
) -> None:
    """Write the facts of the queue, and the predicted wait for each combination of jobs, order and rule for run times.

    Notes
    -----
    Twelve simulations, or 24 with partitions and limited users; each takes the engine's time for the jobs that start
    before the target.
    """
    first = rows = free = 0
    for which in range(SETS + 1):
        if which == USERS and a.facts[31] == 0.0:
            break
        apart = split and which != WHOLE
        cores = own_size if apart else size
        if which == USERS:
            room, cores = len(a.running) // FIELDS, 0
            for i in range(runs):
                elsewhere = apart and a.running[At(PARTITION * room + i)] != a.target[PARTITION]
                if a.running[At(USER * room + i)] == a.target[USER] and not elsewhere:
                    cores += int(a.running[At(CORES * room + i)])
            cores = max(min(cores, size), min(int(a.target[CORES]), size))
        same = which == OWN and not split
        if not same:
            first = _gather_running(a, runs, which, apart, cores, now, site_share)
            rows = _gather_waiting(a, waits, which, apart, cores, site_share, first)
            free = cores
            for i in range(first):
                free -= a.cores[At(i)]
            if which == WHOLE:
                share = _expected_share(a, a.target, Int(1), Int(0), site_share)
                _note_facts(a, now, waits, runs, size, own_size, remaining_s(a.target[ASKED], 0.0, share))
            if which == UNHELD:
                if rows > first:
                    rows = _leave_out_held(a, first, rows, free, cores, now)
                same = a.facts[30] == 0.0
        if same:
            for i in range(which * SIMULATIONS, (which + 1) * SIMULATIONS):
                a.opinions[At(i)] = a.opinions[At(i - SIMULATIONS)]
        else:
            _simulate(a, which, first, rows, free, cores, now)
