"""What will be idle over time, by requested ends and reservations.

The profile is a list of points in order of time, each with what is idle from it to the next, and from the last one for
ever. The first is now.

EASY and periodic backfilling make it anew for a pass. Conservative backfilling keeps it, so that a pass costs what has
changed: a point is there as long as a job begins or ends at it, and a reservation is looked at again only if something
was given back that may let it begin earlier. Where it is now was the earliest time when it was last placed, so whatever
it takes since then includes something given back before its begin. `_give_back` marks the jobs for which that may be
enough:

- ``SLIDE``: what is given back ends where they begin, so they may begin earlier by a while. Nearly all moves are such.
- ``HOLE``: they may fit between reservations. For a job of some width, a hole is a time around what was given back in
  which that many are idle. Widths and durations are compared by their magnitudes, powers of two. Jobs of one pool (the
  first they ask for) and of the same two magnitudes are a kind, of which there is a list, and an upper bound of the
  latest hole that one of them may fit, which begins at its reservation's begin less its request. What is given back
  makes no hole for jobs that are no wider than what was idle there before.
"""

from __future__ import annotations

import math
from typing import Any

from asa.core.compiled import At, kernel

from ..table import NEVER
from .general_state import (
    BACKFILL,
    BOOKING,
    CONSERVATIVE,
    FREED,
    HEAD,
    MAGNITUDES,
    NOW,
    POINTS,
    POOLS,
    RUNNING,
    SPARE,
    WAKE,
)

NOBODY = -1
"""No point, or no job."""
# a point: its time, the points after and before it, the number of jobs that begin or end at it, the first of the jobs
# whose reservations begin at it, and what is idle of each pool
TIME, AFTER, BEFORE, USES, THERE, IDLE = range(6)
# a booking: the points at which it begins and ends; its neighbours among those that begin at the same point, and among
# those of its kind; its kind; and why it may begin earlier: if in a hole, the first of the times at which something was
# given back for it, the point there, and the end of the last of these times
OPENS, CLOSES, NEXT_THERE, _, NEXT_ALIKE, _, KIND, EARLIER, SINCE, FROM, UNTIL = range(11)
# a row, for kinds of the same width: the sum of the least durations of those of which a job may wait, and these kinds
ROW = 1 + 2 * MAGNITUDES
# a kind of booking: the first of those whose job waits, and an upper bound of the latest hole that one may fit; under
# periodic backfilling a job, and the point at which it was planned, NOBODY if at none
ALIKE, LATEST = range(2)
SLIDE, HOLE = 1, 2


@kernel
def fits(demand: Any, amounts: Any, job: int, at: int, pools: int) -> bool:
    """Whether a job fits into the amounts of all pools that begin at a position."""
    for k in range(pools):
        if demand[At(job * pools + k)] > max(amounts[At(at + k)], 0):  # a drained pool may be overdrawn
            return False
    return True


@kernel
def reset(s: Any, p: Any, running: Any, expected: Any, free: Any) -> None:
    """Make the profile anew from the running jobs alone."""
    points, demand, pools, now, last = p.points, p.demand, s[POOLS], s[NOW], 0
    for k in range(pools):
        points[IDLE + k] = free[k]
    _set(points, 0, now, NOBODY)
    for i in range(s[RUNNING]):
        job = running[At(i)]
        end = max(expected[At(job)], now + 1)
        if end != points[At(last + TIME)]:
            point = last + IDLE + pools
            _set(points, point, end, last)
            for k in range(pools):
                points[At(point + IDLE + k)] = points[At(last + IDLE + k)]
            last = point
        for k in range(pools):
            points[At(last + IDLE + k)] += demand[At(job * pools + k)]
        if s[BACKFILL] == CONSERVATIVE:
            points[At(last + USES)] += 1
            p.bookings[At(job * BOOKING + CLOSES)] = last
    points[At(last + AFTER)] = NOBODY
    s[HEAD], s[POINTS], s[SPARE] = 0, last + IDLE + pools, NOBODY
    for row in range(0, len(p.kinds), ROW):
        p.kinds[At(row)] = 0
        for kind in range(row + 1, row + ROW, 2):
            p.kinds[At(kind + ALIKE)], p.kinds[At(kind + LATEST)] = NOBODY, -NEVER


@kernel
def _set(points: Any, point: int, time: int, previous: int) -> None:
    """Begin a point that follows another."""
    points[At(point + TIME)], points[At(point + BEFORE)] = time, previous
    points[At(point + USES)], points[At(point + THERE)] = 0, NOBODY
    if previous != NOBODY:
        points[At(previous + AFTER)] = point


@kernel
def advance(s: Any, points: Any) -> None:
    """Let the profile begin now."""
    now, head = s[NOW], s[HEAD]
    following = points[At(head + AFTER)]
    while following != NOBODY and points[At(following + TIME)] <= now:
        if points[At(head + USES)] == 0:
            _discard(s, points, head)
        head = following
        points[At(head + BEFORE)] = NOBODY
        following = points[At(head + AFTER)]
    points[At(head + TIME)] = now
    s[HEAD] = head


@kernel
def _cut(s: Any, points: Any, point: int, time: int) -> int:
    """Return the point at a time, near the given point; make it if there is none."""
    while points[At(point + TIME)] > time:
        point = points[At(point + BEFORE)]
    following = points[At(point + AFTER)]
    while following != NOBODY and points[At(following + TIME)] <= time:
        point = following
        following = points[At(point + AFTER)]
    if points[At(point + TIME)] == time:
        return int(point)
    new = s[SPARE]
    if new == NOBODY:
        new = s[POINTS]
        s[POINTS] += IDLE + s[POOLS]
    else:
        s[SPARE] = points[At(new + AFTER)]
    _set(points, new, time, point)
    for k in range(IDLE, IDLE + s[POOLS]):
        points[At(new + k)] = points[At(point + k)]
    points[At(new + AFTER)] = following
    if following != NOBODY:
        points[At(following + BEFORE)] = new
    return int(new)


@kernel
def _release(s: Any, points: Any, point: int) -> None:
    """Let a job no longer begin or end at a point, which goes with its last job unless it is the first."""
    points[At(point + USES)] -= 1
    if points[At(point + USES)] > 0 or point == s[HEAD]:
        return
    previous, following = points[At(point + BEFORE)], points[At(point + AFTER)]
    if previous != NOBODY:  # else it is past
        points[At(previous + AFTER)] = following
        if following != NOBODY:
            points[At(following + BEFORE)] = previous
    _discard(s, points, point)


@kernel
def _discard(s: Any, points: Any, point: int) -> None:
    """Let a point be used for another time."""
    points[At(point + AFTER)], points[At(point + TIME)] = s[SPARE], NEVER
    s[SPARE] = point


@kernel
def _add(p: Any, job: int, first: int, last: int, sign: int, pools: int) -> None:
    """Add a job's demand to what is idle between two points, or subtract it."""
    while first != last:
        for k in range(pools):
            p.points[At(first + IDLE + k)] += sign * p.demand[At(job * pools + k)]
        first = p.points[At(first + AFTER)]


@kernel
def earliest(p: Any, job: int, point: int, since: int, until: int, pools: int) -> int:
    """Return from which point a job fits for its whole request, the earliest from `since` on; NOBODY if from none.

    The job may begin then, or at `since` if that is later. `point` is not after `since`. It is to begin before `until`.
    """
    points, lasts, begin = p.points, p.request[At(job)], since
    following = points[At(point + AFTER)]
    while following != NOBODY and points[At(following + TIME)] <= since:
        point = following
        following = points[At(point + AFTER)]
    first = point
    while point != NOBODY and points[At(point + TIME)] < begin + lasts:
        following = points[At(point + AFTER)]
        if not fits(p.demand, points, job, point + IDLE, pools):
            first = following
            if first != NOBODY:
                begin = points[At(first + TIME)]
                if begin >= until:
                    return NOBODY
        point = following
    return int(first)


@kernel
def book(s: Any, p: Any, job: int, point: int, begin: int) -> int:
    """Subtract a job's demand from what is idle for its request, from a time on that is not before a point.

    Returns the point at that time.
    """
    first = _cut(s, p.points, point, begin)
    _add(p, job, first, _cut(s, p.points, first, begin + p.request[At(job)]), -1, s[POOLS])
    return int(first)


@kernel
def kind_of(p: Any, job: int, pools: int) -> int:
    """Return the kind of a job, of which its row then has the duration."""
    pool = 0
    while pool < pools - 1 and p.demand[At(job * pools + pool)] == 0:
        pool += 1
    row, lasts = _row(pool, _magnitude(p.demand[At(job * pools + pool)])), _magnitude(p.request[At(job)])
    p.kinds[At(row)] |= 1 << lasts
    return int(row + 1 + 2 * lasts)


@kernel
def asks_no_more(p: Any, job: int, other: int, pools: int) -> bool:
    """Whether a job fits wherever another does."""
    if p.request[At(job)] > p.request[At(other)]:
        return False
    for k in range(pools):
        if p.demand[At(job * pools + k)] > p.demand[At(other * pools + k)]:
            return False
    return True


# ---------------------------------------------------------------------- a profile that is kept


@kernel
def reserve(s: Any, p: Any, job: int) -> None:
    """Give a job the earliest reservation, if there is one."""
    pools, booking = s[POOLS], job * BOOKING
    p.plan[At(job)] = NEVER
    first = earliest(p, job, s[HEAD], s[NOW], NEVER, pools)
    if first == NOBODY:
        return
    last = _cut(s, p.points, first, p.points[At(first + TIME)] + p.request[At(job)])
    _add(p, job, first, last, -1, pools)
    _enter(s, p, job, first, last)
    kind = kind_of(p, job, pools)
    p.bookings[At(booking + KIND)], p.bookings[At(booking + EARLIER)] = kind, 0
    shorter, other = NOBODY, p.kinds[At(kind + ALIKE)]
    while other != NOBODY and p.request[At(other)] < p.request[At(job)]:
        shorter = other
        other = p.bookings[At(other * BOOKING + NEXT_ALIKE)]
    _link(p.kinds, kind + ALIKE, shorter, p.bookings, job, NEXT_ALIKE)
    p.kinds[At(kind + LATEST)] = max(p.kinds[At(kind + LATEST)], p.plan[At(job)] - p.request[At(job)])


@kernel
def replan(s: Any, p: Any, job: int) -> None:
    """Move a reservation that may begin earlier to the earliest time."""
    booking, pools, points = job * BOOKING, s[POOLS], p.points
    why = p.bookings[At(booking + EARLIER)]
    p.bookings[At(booking + EARLIER)] = 0
    old_first, old_last = p.bookings[At(booking + OPENS)], p.bookings[At(booking + CLOSES)]
    first = old_first
    previous = points[At(first + BEFORE)]
    while previous != NOBODY and fits(p.demand, points, job, previous + IDLE, pools):
        first = previous
        previous = points[At(first + BEFORE)]
    hole = _earliest_hole(s, p, job) if why & HOLE else NOBODY
    if hole != NOBODY:
        first = hole
    if first == old_first:
        return
    _unlink(points, old_first + THERE, p.bookings, job, NEXT_THERE)
    end = points[At(first + TIME)] + p.request[At(job)]
    if end > points[At(old_first + TIME)]:
        last = back_from = _cut(s, points, old_last, end)
        _add(p, job, first, old_first, -1, pools)
    else:
        last, back_from = _cut(s, points, first, end), old_first
        _add(p, job, first, last, -1, pools)
    _enter(s, p, job, first, last)
    give_back(p, job, back_from, old_last, pools)
    _release(s, points, old_first)
    _release(s, points, old_last)


@kernel
def _earliest_hole(s: Any, p: Any, job: int) -> int:
    """Return from which point a job fits for its whole request, in the earliest of the holes that it is marked for."""
    booking, points, pools = job * BOOKING, p.points, s[POOLS]
    since, until = p.bookings[At(booking + SINCE)], p.bookings[At(booking + UNTIL)]
    known, point = p.bookings[At(booking + FROM)], s[HEAD]
    if since > s[NOW]:
        gone = not s[NOW] <= points[At(known + TIME)] <= since
        point = p.bookings[At(booking + OPENS)] if gone else known
        while points[At(point + TIME)] > since:
            point = points[At(point + BEFORE)]
    while points[At(point + BEFORE)] != NOBODY and fits(p.demand, points, job, point + IDLE, pools):
        point = points[At(point + BEFORE)]
    until = min(until, p.plan[At(job)] - p.request[At(job)] + 1)
    return int(earliest(p, job, point, points[At(point + TIME)], until, pools))


@kernel
def leave(s: Any, p: Any, job: int, starts: bool) -> None:
    """Let a job no longer wait for its reservation, which it keeps if it starts now, and else gives back."""
    booking = job * BOOKING
    first, last = p.bookings[At(booking + OPENS)], p.bookings[At(booking + CLOSES)]
    _unlink(p.points, first + THERE, p.bookings, job, NEXT_THERE)
    _unlink(p.kinds, p.bookings[At(booking + KIND)] + ALIKE, p.bookings, job, NEXT_ALIKE)
    if not starts:
        give_back(p, job, first, last, s[POOLS])
        _release(s, p.points, last)
        s[FREED], s[WAKE] = 1, s[NOW]
    _release(s, p.points, first)


@kernel
def finish(s: Any, p: Any, job: int, expected_end: int) -> None:
    """Give back the rest of a job that ends now."""
    advance(s, p.points)
    last = p.bookings[At(job * BOOKING + CLOSES)]
    if s[NOW] < expected_end:
        give_back(p, job, s[HEAD], last, s[POOLS])
        s[FREED] = 1
    _release(s, p.points, last)


@kernel
def give_back_rest(s: Any, p: Any, job: int) -> None:
    """Give back what a running job has until its requested end, before its demand becomes less."""
    advance(s, p.points)
    give_back(p, job, s[HEAD], p.bookings[At(job * BOOKING + CLOSES)], s[POOLS])


@kernel
def take_rest(s: Any, p: Any, job: int) -> None:
    """Subtract a running job's demand until its requested end."""
    _add(p, job, s[HEAD], p.bookings[At(job * BOOKING + CLOSES)], -1, s[POOLS])


@kernel
def count_due(s: Any, p: Any) -> int:
    """Return the number of jobs whose reservations begin now."""
    due, job = 0, p.points[At(s[HEAD] + THERE)]
    while job != NOBODY:
        due += 1
        job = p.bookings[At(job * BOOKING + NEXT_THERE)]
    return due


@kernel
def next_begin(s: Any, points: Any) -> int:
    """Return the begin of the next reservation; NEVER if there is none."""
    point = s[HEAD]
    while point != NOBODY:
        if points[At(point + THERE)] != NOBODY:
            return int(points[At(point + TIME)])
        point = points[At(point + AFTER)]
    return NEVER


@kernel
def _enter(s: Any, p: Any, job: int, first: int, last: int) -> None:
    """Set between which points a job has its reservation."""
    p.bookings[At(job * BOOKING + OPENS)], p.bookings[At(job * BOOKING + CLOSES)] = first, last
    p.points[At(first + USES)] += 1
    p.points[At(last + USES)] += 1
    _link(p.points, first + THERE, NOBODY, p.bookings, job, NEXT_THERE)
    p.plan[At(job)] = p.points[At(first + TIME)]
    s[WAKE] = min(s[WAKE], p.plan[At(job)])


@kernel
def _link(firsts: Any, key: int, previous: int, bookings: Any, job: int, field: int) -> None:
    """Put a job into a list of jobs, each with the next one in a field, and the previous one behind that."""
    at = job * BOOKING + field
    following = firsts[At(key)] if previous == NOBODY else bookings[At(previous * BOOKING + field)]
    bookings[At(at)], bookings[At(at + 1)] = following, previous
    if following != NOBODY:
        bookings[At(following * BOOKING + field + 1)] = job
    if previous == NOBODY:
        firsts[At(key)] = job
    else:
        bookings[At(previous * BOOKING + field)] = job


@kernel
def _unlink(firsts: Any, key: int, bookings: Any, job: int, field: int) -> None:
    """Remove a job from a list."""
    following, previous = bookings[At(job * BOOKING + field)], bookings[At(job * BOOKING + field + 1)]
    if previous == NOBODY:
        firsts[At(key)] = following
    else:
        bookings[At(previous * BOOKING + field)] = following
    if following != NOBODY:
        bookings[At(following * BOOKING + field + 1)] = previous


@kernel
def _magnitude(number: int) -> int:
    return min(math.frexp(float(number))[1] - 1, MAGNITUDES - 1)


@kernel
def _row(pool: int, width: int) -> int:
    """Return the row of a magnitude of width."""
    return (pool * MAGNITUDES + width) * ROW


@kernel
def give_back(p: Any, job: int, first: int, last: int, pools: int) -> None:
    """Add a job's demand to what is idle between two points, and mark the jobs that may begin earlier by that."""
    point, points = first, p.points
    while point != last:
        for k in range(pools):
            points[At(point + IDLE + k)] += p.demand[At(job * pools + k)]
        point = points[At(point + AFTER)]
        waiting = points[At(point + THERE)]
        while waiting != NOBODY:
            p.bookings[At(waiting * BOOKING + EARLIER)] |= SLIDE
            waiting = p.bookings[At(waiting * BOOKING + NEXT_THERE)]
    later = False  # whether something of later pools is given back, too, which jobs of any width may have waited for
    for pool in range(pools - 1, -1, -1):
        given = p.demand[At(job * pools + pool)]
        point = first
        while point != last:
            _look_for_holes(p, point, pool, 0 if later else points[At(point + IDLE + pool)] - given)
            point = points[At(point + AFTER)]
        later = later or given > 0


@kernel
def _look_for_holes(p: Any, point: int, pool: int, before: int) -> None:
    """Mark the jobs that may fit into a hole that has this point in it, but are wider than what was idle before.

    The hole of narrower jobs has that of wider.
    """
    points, field, kinds = p.points, IDLE + pool, p.kinds
    left, right = point, points[At(point + AFTER)]
    idle, narrowest = points[At(point + field)], max(before, 0) + 1
    if idle < narrowest:
        return
    for level in range(_magnitude(idle), _magnitude(narrowest) - 1, -1):
        row, width = _row(pool, level), max(1 << level, narrowest)
        waiting = kinds[At(row)]
        if waiting == 0:
            continue
        previous = points[At(left + BEFORE)]
        while previous != NOBODY and points[At(previous + field)] >= width:
            left = previous
            previous = points[At(left + BEFORE)]
        while right != NOBODY and points[At(right + field)] >= width:
            right = points[At(right + AFTER)]
        since = points[At(left + TIME)]
        lasts = points[At(right + TIME)] - since if right != NOBODY else NEVER
        shortest = waiting & -waiting
        while 0 < shortest <= lasts:
            kind = row + 1 + 2 * _magnitude(shortest)
            if kinds[At(kind + ALIKE)] == NOBODY:
                kinds[At(row)] ^= shortest
            elif kinds[At(kind + LATEST)] >= since:
                _mark(p, kind, pool, idle, lasts, point, left)
            waiting ^= shortest
            shortest = waiting & -waiting


@kernel
def _mark(p: Any, kind: int, pool: int, idle: int, lasts: int, point: int, left: int) -> None:
    """Mark the jobs of a kind that may fit into a hole, and tighten the bound of the latest hole."""
    pools = len(p.kinds) // (MAGNITUDES * ROW)
    bound, hole, inside = -NEVER, p.points[At(left + TIME)], p.points[At(point + TIME)]
    after = p.points[At(point + AFTER)]
    until = p.points[At(after + TIME)] if after != NOBODY else NEVER
    job = p.kinds[At(kind + ALIKE)]
    while job != NOBODY and p.request[At(job)] <= lasts:
        plan, request, booking = p.plan[At(job)], p.request[At(job)], job * BOOKING
        bound = max(bound, plan - request)
        if plan - request >= hole and plan > inside and p.demand[At(job * pools + pool)] <= idle:
            if not p.bookings[At(booking + EARLIER)] & HOLE:
                p.bookings[At(booking + UNTIL)] = 0
            if not p.bookings[At(booking + EARLIER)] & HOLE or inside < p.bookings[At(booking + SINCE)]:
                p.bookings[At(booking + SINCE)], p.bookings[At(booking + FROM)] = inside, point
            p.bookings[At(booking + UNTIL)] = max(p.bookings[At(booking + UNTIL)], until)
            p.bookings[At(booking + EARLIER)] |= HOLE
        job = p.bookings[At(booking + NEXT_ALIKE)]
    if job == NOBODY:
        p.kinds[At(kind + LATEST)] = bound
