"""The inner loop of first come first served with EASY backfilling on one pool of cores.

All simulations depend on this loop's speed, so its data are laid out for it:

- the queue is two parallel rows of 32-bit numbers, widths and durations, so that one machine instruction compares many
  jobs: most jobs of a long queue cannot start, and are skipped in a fraction of a nanosecond each. A job that has left
  the queue leaves a width that never fits; rows are compacted when most entries are such.
- a running job's requested end and its number are in one integer, so that the list of releases is sorted by plain
  comparison; its width is in a parallel list.
- actual ends are a binary heap of the same kind of integers.
- a reservation, once computed, holds until something ends: jobs submitted meanwhile are tested against it, and jobs
  that it refused are not tested again.
- scalars are local variables while the loop runs.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from asa.core.compiled import COMPILED, At, kernel

from ..table import NEVER
from .heap import BITS, MASK, pop, push

GONE = 2**31 - 1
"""Width of a job that is no longer in the queue."""
BLOCK = 32
"""Number of queued jobs that are tested together; as many places after any row are readable."""
FAR = 2**31 - 2

# indices of the scalars in their vector
(NOW, NEXT, FREE, HEAD, TAIL, LIVE, RUNNING, ENDS, SEQUENCE, SHADOW, EXTRA, VALID, SCANNED, DUE, ENDED, STARTED) = (
    range(16)
)
SCALARS = 16

# phases of `run_events`
RUN, REST, BEGIN = range(3)


if COMPILED:

    @kernel
    def _place(keys: Any, count: int, key: int) -> int:
        """Return the position of a key among the first `count` keys, which are sorted."""
        base, left = 0, count
        while left > 1:
            half = left >> 1
            if keys[At(base + half - 1)] < key:
                base += half
            left -= half
        if left == 1 and keys[At(base)] < key:
            base += 1
        return base

    @kernel
    def _delete(values: Any, place: int, count: int) -> None:
        """Close the gap at a position among the first `count` values."""
        for i in range(place, count - 1):
            values[At(i)] = values[At(i + 1)]

    @kernel
    def _insert(values: Any, place: int, count: int, value: int) -> None:
        """Insert a value at a position among the first `count` values."""
        for i in range(count, place, -1):
            values[At(i)] = values[At(i - 1)]
        values[At(place)] = value

else:

    def _place(keys: Any, count: int, key: int) -> int:
        return bisect_left(keys, key, 0, count)

    def _delete(values: Any, place: int, count: int) -> None:
        values[place : count - 1] = values[place + 1 : count]

    def _insert(values: Any, place: int, count: int, value: int) -> None:
        values[place + 1 : count + 1] = values[place:count]
        values[place] = value


@kernel
def give_back(releases: Any, widths: Any, running: int, key: int) -> int:
    """Remove a running job from the list of releases; return its width."""
    place = _place(releases, running, key)
    width = int(widths[At(place)])
    _delete(releases, place, running)
    _delete(widths, place, running)
    return width


@kernel
def _promise(releases: Any, widths: Any, running: int, key: int, width: int) -> None:
    """Add a starting job to the list of releases."""
    place = _place(releases, running, key)
    _insert(releases, place, running, key)
    _insert(widths, place, running, width)


@kernel
def _overdue_last(releases: Any, widths: Any, running: int, now: int) -> int:
    """Sort the jobs that are expected to end at the next second, or are overdue, by number; return how many."""
    late = 0
    while late < running and releases[At(late)] >> BITS <= now + 1:
        key, width, j = releases[At(late)], widths[At(late)], late
        while j > 0 and releases[At(j - 1)] & MASK > key & MASK:
            releases[At(j)], widths[At(j)] = releases[At(j - 1)], widths[At(j - 1)]
            j -= 1
        releases[At(j)], widths[At(j)] = key, width
        late += 1
    return late


@kernel
def _back_in_order(releases: Any, widths: Any, late: int) -> None:
    """Undo `_overdue_last`."""
    for i in range(1, late):
        key, width, j = releases[At(i)], widths[At(i)], i
        while j > 0 and releases[At(j - 1)] > key:
            releases[At(j)], widths[At(j)] = releases[At(j - 1)], widths[At(j - 1)]
            j -= 1
        releases[At(j)], widths[At(j)] = key, width


@kernel
def close_up(jobs: Any, widths: Any, lasts: Any, head: int, tail: int) -> int:
    """Move the remaining queue to the beginning of its rows; return its length."""
    write = 0
    for read in range(head, tail):
        if widths[At(read)] != GONE:
            jobs[At(write)], widths[At(write)], lasts[At(write)] = jobs[At(read)], widths[At(read)], lasts[At(read)]
            write += 1
    for i in range(write, tail):
        widths[At(i)] = GONE
    return write


@kernel
def _reserve(
    releases: Any,
    widths: Any,
    running: int,
    need: int,
    idle: int,
    now: int,
    by_second: bool,
    extra_all: bool,
    expected_free: bool,
) -> tuple[int, int]:
    """Return the start of the head of the queue by the requested ends, and the cores left over then."""
    late = 0
    if by_second and not extra_all:
        late = _overdue_last(releases, widths, running, now)
    i = 0
    if expected_free:  # jobs that should have ended are already counted in `idle`
        while i < running and releases[At(i)] >> BITS <= now:
            i += 1
    while True:
        idle += widths[At(i)]
        if idle >= need:
            break
        i += 1
    shadow = releases[At(i)] >> BITS
    if by_second:
        shadow = max(shadow, now + 1)  # overdue jobs are expected to end in a second
    i += 1
    if extra_all:
        while i < running and releases[At(i)] >> BITS <= shadow:
            idle += widths[At(i)]
            i += 1
    elif late > 0:
        _back_in_order(releases, widths, late)
    return shadow, idle - need


if COMPILED:

    @kernel
    def next_to_start(widths: Any, lasts: Any, at: int, tail: int, free: int, limit: int, extra: int) -> int:
        """Return the first place from `at` on whose job may start now, or one at or after `tail`.

        It may if it is no wider than `free`, and either ends within `limit` or is no wider than `extra`.

        A negative difference has its sign bit set, so a whole block is tested by subtractions and bit operations only,
        which the compiler vectorizes.
        """
        f, m, e = np.int32(free), np.int32(limit), np.int32(extra)
        while at < tail:
            signs = np.int32(0)
            for k in range(BLOCK):
                width = widths[At(at + k)]
                signs |= np.int32((width - f - 1) & ((lasts[At(at + k)] - m - 1) | (width - e - 1)))
            if signs < 0:
                for k in range(at, at + BLOCK):
                    width = widths[At(k)]
                    if width <= free and (lasts[At(k)] <= limit or width <= extra):
                        return k
            at += BLOCK
        return at

else:

    def next_to_start(widths: Any, lasts: Any, at: int, tail: int, free: int, limit: int, extra: int) -> int:
        """Do the same, one by one."""
        for k in range(at, tail):
            width = widths[k]
            if width <= free and (lasts[k] <= limit or width <= extra):
                return k
        return tail


@kernel
def run_events(
    s: Any,
    submit: Any,
    run: Any,
    request: Any,
    cores: Any,
    start: Any,
    jobs: Any,
    widths: Any,
    lasts: Any,
    releases: Any,
    release_widths: Any,
    ends: Any,
    by_sequence: Any,
    over: Any,
    begun: Any,
    until: int,
    phase: int,
    rules: Any,
) -> None:
    """Process events until `until`, or until something happened to a client's job.

    `jobs`, `widths`, `lasts`: the queue from ``HEAD`` to ``TAIL``: a job's number, its width and the duration with
    which it is tested. `ends`: heap of ``(end, number)``, or of ``(end, order of start)`` with one pass for each event.
    `over`, `begun`: the client's jobs that ended and started, ``ENDED`` and ``STARTED`` of them. The loop stops in the
    middle of a second in which a client's job ended, and at the end of a second in which one started. `phase`: ``RUN``:
    go on; ``REST``: finish a second after the client's part of it, then go on; ``BEGIN``: set the clock to `until`, end
    what ends then, and stop. `rules`: conventions, as in `Rules`: whether by the second, ends first, all extra,
    expected free, tested by run time, backfilling at all; and whether a reservation holds until something ends. It does
    not if a job that starts under it may change it: if candidates are tested by their run time, if only the least extra
    counts, or if overdue jobs are expected to end a second later again and again. None for the default, which is
    compiled separately and is faster.

    Notes
    -----
    A completion costs O(r) moves of memory for r running jobs and O(q / 32) tests of blocks of queued ones; a
    submission to a blocked queue O(1).
    """
    if rules is None:
        by_second, ends_first, extra_all, expected_free, test_by_run, backfill = True, True, True, False, False, True
        lasting = True
    else:
        by_second, ends_first, extra_all, expected_free, test_by_run, backfill, lasting = rules
    rows = len(submit)
    now, row, free, head, tail, live = s[NOW], s[NEXT], s[FREE], s[HEAD], s[TAIL], s[LIVE]
    running, pending, sequence = s[RUNNING], s[ENDS], s[SEQUENCE]
    shadow, extra, valid, scanned, started = s[SHADOW], s[EXTRA], s[VALID] != 0, s[SCANNED], 0
    arrival = submit[At(row)] if row < rows else NEVER
    end = ends[0] >> BITS if pending > 0 else NEVER
    while True:
        took = False
        if phase in (RUN, BEGIN):
            if phase == RUN:
                moment = min(end, arrival)
                if moment > until or moment == NEVER:
                    break
                now = moment
            else:
                now = until
            ended = 0
            while end == now and (by_second or not (took or (not ends_first and arrival == now))):
                number = ends[0] & MASK
                job = number if by_second else by_sequence[At(number)]
                pending -= 1
                pop(ends, pending, 0)
                end = ends[0] >> BITS if pending > 0 else NEVER
                took = True
                if job < rows:
                    key = ((start[At(job)] + request[At(job)]) << BITS) | job
                    free += give_back(releases, release_widths, running, key)
                    running -= 1
                    valid = False
                elif ended == 0 or over[At(ended - 1)] != job:  # so that an end is reported once
                    over[At(ended)] = job
                    ended += 1
            if ended > 0 or phase == BEGIN:
                s[ENDED] = ended
                break
        while arrival == now and (by_second or not took):
            if live == 0:
                head = tail = 0
                valid = False
            jobs[At(tail)] = row
            widths[At(tail)] = cores[At(row)]
            lasts[At(tail)] = run[At(row)] if test_by_run else request[At(row)]
            tail += 1
            live += 1
            row += 1
            arrival = submit[At(row)] if row < rows else NEVER
            took = True
        phase = RUN
        if live == 0:
            continue
        idle = free
        if not lasting:
            valid = False
        if expected_free:
            i = 0
            while i < running and releases[At(i)] >> BITS <= now:
                idle += release_widths[At(i)]
                i += 1
        # The pass. `at` is the place of the next job to start: first the head's; then, if the head does not fit, that
        # of any job that its reservation allows.
        at, at_head = scanned, False
        if not valid:
            at, at_head = head, True
        while True:
            if at_head:
                while at < tail and widths[At(at)] == GONE:
                    at += 1
                head = at
                if at >= tail:
                    break
                if widths[At(at)] > idle:
                    at_head = False
                    at += 1
                    if idle == 0 or live == 1 or not backfill:
                        break
                    shadow, extra = _reserve(
                        releases,
                        release_widths,
                        running,
                        int(widths[At(head)]),
                        idle,
                        now,
                        by_second,
                        extra_all,
                        expected_free,
                    )
                    valid = True
                    continue
            else:
                if not valid or idle == 0:
                    break
                limit = max(min(shadow - now, FAR), -1)
                at = next_to_start(widths, lasts, at, tail, idle, limit, min(extra, idle))
                if at >= tail:
                    break
            width, job = int(widths[At(at)]), int(jobs[At(at)])
            if not at_head and now + lasts[At(at)] > shadow:
                extra -= width
            widths[At(at)] = GONE
            at += 1
            live -= 1
            idle -= width
            free -= width
            asked = request[At(job)] if test_by_run else lasts[At(at - 1)]
            _promise(releases, release_widths, running, ((now + asked) << BITS) | job, width)
            running += 1
            if job < rows:
                start[At(job)] = now
                number = job
                if not by_second:
                    number = sequence
                    by_sequence[At(sequence)] = job
                    sequence += 1
                push(ends, pending, ((now + run[At(job)]) << BITS) | number)
                pending += 1
            else:
                begun[At(started)] = job
                started += 1
        end = ends[0] >> BITS if pending > 0 else NEVER
        if valid:
            scanned = tail
            if tail - head > 2 * live + BLOCK:
                tail = scanned = close_up(jobs, widths, lasts, head, tail)
                head = 0
        if started > 0:
            break
    s[NOW], s[NEXT], s[FREE], s[HEAD], s[TAIL], s[LIVE] = now, row, free, head, tail, live
    s[RUNNING], s[ENDS], s[SEQUENCE] = running, pending, sequence
    s[SHADOW], s[EXTRA], s[VALID], s[SCANNED], s[STARTED] = shadow, extra, valid, scanned, started
