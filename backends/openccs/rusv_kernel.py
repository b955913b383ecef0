"""The loops over a resource usage vector: a step function in two arrays, of times and of the items from each time on.

The first step begins at `BEGIN`, before all times, and the last one never ends; adjacent steps differ. So an empty
vector is one step. Each function gets the number of steps, and returns the new one; arrays have space for two more.
"""

from __future__ import annotations

from typing import Any

from asa.core.compiled import kernel

BEGIN = -(1 << 60)
FOREVER = 1 << 60
_ENDLESS = 1 << 60  # more than the items of any resource
ADD, SUBTRACT, LEAST, MAX_USED = 0, 1, 2, 3


@kernel
def last_at(times: Any, count: int, time: int, base: int = 0) -> int:
    """Return the last of `count` steps from `base` on that begins no later than a time. O(log n)."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) >> 1
        if times[base + middle] <= time:
            low = middle
        else:
            high = middle
    return low


@kernel
def _split(times: Any, items: Any, count: int, place: int, time: int) -> int:
    """Split the step at `place`, so that a step begins at `time`."""
    if times[place] == time:
        return count
    for i in range(count, place + 1, -1):
        times[i] = times[i - 1]
        items[i] = items[i - 1]
    times[place + 1] = time
    items[place + 1] = items[place]
    return count + 1


@kernel
def _close(times: Any, items: Any, count: int, first: int, last: int) -> int:
    """Merge the steps between two positions with equal ones before them."""
    kept = first
    for i in range(first, last + 1):
        if kept > 0 and items[i] == items[kept - 1]:
            continue
        times[kept] = times[i]
        items[kept] = items[i]
        kept += 1
    gone = last + 1 - kept
    if gone:
        for i in range(last + 1, count):
            times[i - gone] = times[i]
            items[i - gone] = items[i]
    return count - gone


@kernel
def change(times: Any, items: Any, count: int, start: int, end: int, by: int, least: int, most: int) -> int:
    """Add items within ``[start, end)``, and keep the sums within bounds. O(n), for moving later steps."""
    place = last_at(times, count, start)
    more = _split(times, items, count, place, start)
    first = place + (times[place] != start)
    after = first
    if end < FOREVER:
        after = last_at(times, more, end)
        grown = _split(times, items, more, after, end)
        after += times[after] != end
        more = grown
    else:
        after = more
    for i in range(first, after):
        items[i] = min(max(items[i] + by, least), most)
    left: int = _close(times, items, more, first, min(after, more - 1))
    return left


@kernel
def combine(
    times: Any, items: Any, count: int, times2: Any, items2: Any, count2: int,
    how: int, empty: int, whole: int, least: int, most: int, to_times: Any, to_items: Any,
) -> int:  # fmt: skip
    """Combine two vectors. O(n + m).

    `empty` is the second one's value where it stores nothing, which is neither added nor subtracted. For `MAX_USED` the
    first has used items of `whole`, the second free ones.
    """
    i, j, n = 0, 0, 0
    time = BEGIN
    while True:
        a, b = items[i], items2[j]
        if how == ADD:
            value = a if b == empty else a + b
        elif how == SUBTRACT:
            value = a if b == empty else a - b
        elif how == LEAST:
            value = min(a, b)
        else:
            value = max(a, whole - b)
        value = min(max(value, least), most)
        if n == 0 or to_items[n - 1] != value:
            to_times[n] = time
            to_items[n] = value
            n += 1
        next1 = times[i + 1] if i + 1 < count else FOREVER
        next2 = times2[j + 1] if j + 1 < count2 else FOREVER
        time = min(next1, next2)
        if time == FOREVER:
            return n
        i += next1 == time
        j += next2 == time


@kernel
def within(times: Any, items: Any, count: int, start: int, end: int, sign: int) -> int:
    """Return the maximum of ``sign * items`` within ``[start, end)``. O(log n + k)."""
    i = last_at(times, count, start)
    found: int = sign * items[i]
    i += 1
    while i < count and times[i] < end:
        found = max(found, sign * items[i])
        i += 1
    return found


@kernel
def earliest(times: Any, items: Any, count: int, sign: int, limit: int, lasts: int, since: int, until: int) -> int:
    """Find when ``sign * items`` first stays at most a limit for a duration in ``[since, until)``; else `FOREVER`."""
    i = last_at(times, count, since)
    begin: int = since
    while True:
        if sign * items[i] > limit:
            if i + 1 == count:
                return FOREVER
            begin = times[i + 1]
            if begin + lasts > until:
                return FOREVER
        elif i + 1 == count or times[i + 1] - begin >= lasts:
            return begin if begin + lasts <= until else FOREVER
        i += 1


@kernel
def backfill(
    times: Any, items: Any, count: int, whole: int, jobs: Any, many: int, starts: Any, lasts: Any, widths: Any, now: int
) -> int:
    """Look for an earlier start of each booked job, in order; none starts later. O(jobs x slots).

    The arrays have space for two more steps for each job.
    """
    for i in range(many):
        job = jobs[i]
        old, long, wide = starts[job], lasts[job], widths[job]
        if old > now:
            count = change(times, items, count, old, old + long, -wide, 0, _ENDLESS)
            new = earliest(times, items, count, 1, whole - wide, long, now, old + long - 1)
            if new == FOREVER:
                new = old
            count = change(times, items, count, new, new + long, wide, 0, _ENDLESS)
            starts[job] = new
    return count


@kernel
def fitting(
    times: Any, items: Any, count: int, sign: int, limit: int, whole: int, lasts: int, since: int, until: int,
    to_times: Any, to_items: Any,
) -> int:  # fmt: skip
    """Write the free items wherever ``sign * items`` is at most a limit for the duration in ``[since, until)``.

    It is 0 elsewhere. Free are ``whole - items`` in a vector of used items, else the items themselves. O(n).
    """
    to_times[0] = BEGIN
    to_items[0] = 0
    n = 1
    start = since
    while start < until:
        start = earliest(times, items, count, sign, limit, lasts, start, until)
        if start == FOREVER:
            break
        i = last_at(times, count, start)
        while start < until and sign * items[i] <= limit:
            value = whole - items[i] if sign > 0 else items[i]
            if to_items[n - 1] != value:
                to_times[n] = start
                to_items[n] = value
                n += 1
            i += 1
            start = times[i] if i < count else until
        start = min(start, until)
        if start < FOREVER and to_items[n - 1] != 0:
            to_times[n] = start
            to_items[n] = 0
            n += 1
    return n


@kernel
def repeat(
    times: Any, items: Any, count: int, nothing: int, period: int, value: int, since: int, until: int, empty: int,
    to_times: Any, to_items: Any,
) -> int:  # fmt: skip
    """Write a vector with these items wherever the template of one period, from 0 on, stores any.

    O(slots written).
    """
    to_times[0] = BEGIN
    to_items[0] = empty
    n = 1
    shift = since - since % period
    while shift < until:
        for i in range(count):
            start = max(times[i], 0) + shift
            end = (times[i + 1] if i + 1 < count else period) + shift
            start = max(start, since)
            end = min(end, until)
            stored = value if items[i] != nothing else empty
            if start < end and to_items[n - 1] != stored:
                if to_times[n - 1] == start:
                    n -= 1
                    if to_items[n - 1] == stored:
                        continue
                to_times[n] = start
                to_items[n] = stored
                n += 1
        shift += period
    if to_items[n - 1] != empty:
        to_times[n] = until
        to_items[n] = empty
        n += 1
    return n
