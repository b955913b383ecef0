"""The inner loop of all other disciplines: any order, any backfilling, any number of pools.

`asa.backends.simulated.policies` describes the semantics. The data:

- a job is a row of columns; its demand is a row of a matrix, flattened, like all data with a column for each pool;
- the queue is a list of jobs that stays sorted from pass to pass, so that sorting it again is cheap;
- what will be idle over time is in `profile_kernel`.

A pass considers what has changed. As long as nothing ends, or otherwise gives anything back, a job that could not start
cannot start later either: only the jobs behind it are considered (``SCANNED``).
"""

from __future__ import annotations

import math
from typing import Any

from asa.core.compiled import At, kernel, part

from ..table import NEVER, UNSTARTED
from .fast_kernel import FAR, next_to_start
from .general_state import (
    AGE,
    AHEAD,
    ARRIVED,
    BACK,
    BACKFILL,
    BEGIN,
    BOOKING,
    BY_USER,
    CONSERVATIVE,
    CUSTOM,
    DEPTH,
    DONE,
    EASY,
    ENDED,
    ENDS,
    F1,
    F2,
    F3,
    FAILED,
    FAIR_SHARE,
    FAVOR_SMALL,
    FCFS,
    FILLED,
    FIRST,
    FREED,
    HALF_LIFE,
    HEAD,
    HIGHEST_QOS,
    INTERVAL,
    KNOWN,
    LAUNCHED,
    MAX_AGE,
    MULTIFACTOR,
    NEWS,
    NEXT,
    NOW,
    OFF,
    ORDER,
    OUTAGE,
    OUTSIDE,
    PARTITION,
    PERIOD,
    PERIODIC,
    PREEMPT,
    QOS,
    QUEUED,
    REBUILD,
    RECKONED,
    REQUEUE,
    RESOLUTION,
    RETURNED,
    ROWS,
    RUN,
    RUNNING,
    SCANNED,
    SCORED,
    SHADOW,
    SHARERS,
    SIZE,
    SIZE_POOL,
    SJF,
    SORTED,
    STIRRED,
    TICK,
    TREE,
    USED_AT,
    USERS,
    WAKE,
    WANTED,
    WEIGHTS,
    WFP,
    WINDOW,
)
from .heap import BITS, MASK, forget, pop, push
from .profile_kernel import (
    ALIKE,
    EARLIER,
    IDLE,
    LATEST,
    NOBODY,
    TIME,
    advance,
    asks_no_more,
    book,
    count_due,
    earliest,
    finish,
    fits,
    kind_of,
    leave,
    next_begin,
    replan,
    reserve,
    reset,
)

# ---------------------------------------------------------------------- queue and running jobs


@kernel
def _before(s: Any, a: Any, one: int, other: int) -> bool:
    """Whether a job is before another in the queue."""
    if s[ORDER] != FCFS and a.score[At(one)] != a.score[At(other)]:
        return bool(a.score[At(one)] > a.score[At(other)])
    if a.submit[At(one)] != a.submit[At(other)]:
        return bool(a.submit[At(one)] < a.submit[At(other)])
    return bool(a.arrival[At(one)] < a.arrival[At(other)])


@kernel
def _sort(s: Any, a: Any, first: int) -> int:
    """Sort the queue by insertion from a place on, up to which it is in order; return how far it is as before."""
    queue, unchanged = a.queue, s[SORTED]
    for i in range(max(first, 1), s[QUEUED]):
        job = queue[At(i)]
        j = i
        while j > 0 and _before(s, a, job, queue[At(j - 1)]):
            queue[At(j)] = queue[At(j - 1)]
            j -= 1
        queue[At(j)] = job
        if j < i:
            unchanged = min(unchanged, j)
    s[SORTED] = s[QUEUED]
    s[FILLED] = min(s[FILLED], unchanged)
    return int(unchanged)


@kernel
def in_order_of_age(s: Any, a: Any) -> None:
    """Sort the queue as in first come first served."""
    order = s[ORDER]
    s[ORDER] = FCFS
    s[SORTED] = s[SCANNED] = 0
    _sort(s, a, 0)
    s[SORTED] = 0
    s[ORDER] = order


@kernel
def enqueue(s: Any, a: Any, job: int) -> None:
    """Append a job to the queue; the next pass sorts it."""
    a.start[At(job)] = UNSTARTED
    a.plan[At(job)] = UNSTARTED
    a.queue[At(s[QUEUED])] = job
    s[QUEUED] += 1
    s[STIRRED] = 1


@kernel
def dequeue(s: Any, a: Any, job: int) -> None:
    """Remove a job from the queue, at any position."""
    i = 0
    while a.queue[At(i)] != job:
        i += 1
    _close_gap(s, a, i)
    if s[BACKFILL] == CONSERVATIVE and s[REBUILD] == 0 and UNSTARTED < a.plan[At(job)] < NEVER:
        leave(s, a.profile, job, False)
    s[SCANNED] = 0
    s[STIRRED] = 1


@part
def _close_gap(s: Any, a: Any, place: int) -> None:
    """Remove the job at a place of the queue."""
    for i in range(place, s[QUEUED] - 1):
        a.queue[At(i)] = a.queue[At(i + 1)]
    for i in range(place, s[FILLED] - 1):
        a.widths[At(i)] = a.widths[At(i + 1)]
    for i in range(place, s[FILLED] - 1):
        a.lasts[At(i)] = a.lasts[At(i + 1)]
    if place < s[FILLED]:
        for i in range(place, s[FILLED] - 1):
            a.like[At(i)] = a.like[At(i + 1)]
        if 0 < place < s[FILLED] - 1:
            a.like[At(place)] = a.user[At(a.queue[At(place - 1)])] == a.user[At(a.queue[At(place)])]
    s[QUEUED] -= 1
    s[SORTED] -= place < s[SORTED]
    s[FILLED] -= place < s[FILLED]


@kernel
def drop_started(s: Any, a: Any) -> None:
    """Remove started jobs from the queue."""
    i = s[AHEAD]
    while s[LAUNCHED] > 0:
        while a.start[At(a.queue[At(i)])] == UNSTARTED:
            i += 1
        _close_gap(s, a, i)
        s[LAUNCHED] -= 1
    s[AHEAD] = 0


@kernel
def _running_place(s: Any, a: Any, job: int) -> int:
    low, high = 0, s[RUNNING]
    while low < high:
        middle = (low + high) >> 1
        other = a.running[At(middle)]
        sooner = a.expected[At(other)] < a.expected[At(job)]
        if sooner or (a.expected[At(other)] == a.expected[At(job)] and other < job):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def take(a: Any, job: int, sign: int) -> None:
    """Subtract a job's demand from the idle amounts, or add it back."""
    pools = len(a.free)
    for k in range(pools):
        a.free[k] -= sign * a.demand[At(job * pools + k)]
    a.rate[At(a.user[At(job)])] += sign * a.cores[At(job)]


@kernel
def _tell(s: Any, a: Any, job: int, cause: int, again: bool) -> None:
    """Record the start of a client's job (cause 0), or the cause of its end, and whether it is queued again."""
    a.news[At(s[NEWS])] = job * 8 + cause * 2 + (1 if again else 0)
    s[NEWS] += 1


@kernel
def launch(s: Any, a: Any, job: int) -> None:
    """Start a job that fits; the caller compacts the queue afterwards."""
    now = s[NOW]
    take(a, job, 1)
    if s[BACKFILL] == CONSERVATIVE and s[REBUILD] == 0:
        leave(s, a.profile, job, True)
    s[LAUNCHED] += 1
    a.start[At(job)] = now
    a.expected[At(job)] = now + a.request[At(job)]
    place = _running_place(s, a, job)
    for i in range(s[RUNNING], place, -1):
        a.running[At(i)] = a.running[At(i - 1)]
    a.running[At(place)] = job
    s[RUNNING] += 1
    if job < s[ROWS]:
        a.due[At(job)] = now + a.run[At(job)]
        push(a.ends, s[ENDS], (a.due[At(job)] << BITS) | job)
        s[ENDS] += 1
    else:
        _tell(s, a, job, 0, False)


@kernel
def vacate(s: Any, a: Any, job: int) -> None:
    """Remove a running job, for any reason."""
    place = _running_place(s, a, job)
    for i in range(place, s[RUNNING] - 1):
        a.running[At(i)] = a.running[At(i + 1)]
    s[RUNNING] -= 1
    take(a, job, -1)
    if s[BACKFILL] == CONSERVATIVE and s[REBUILD] == 0:
        finish(s, a.profile, job, a.expected[At(job)])
    s[SCANNED] = 0
    s[STIRRED] = 1


@kernel
def _lose(s: Any, a: Any, job: int, cause: int, again: bool) -> None:
    """End a running job by force, and requeue it if `again`."""
    s[REBUILD] = 1
    vacate(s, a, job)
    if job < s[ROWS]:
        s[ENDS] -= 1
        forget(a.ends, s[ENDS], (a.due[At(job)] << BITS) | job)
    if again:
        a.requeues[At(job)] += 1
        enqueue(s, a, job)
    else:
        a.ended_by[At(job)] = cause
        a.end[At(job)] = s[NOW]
    if job >= s[ROWS]:
        _tell(s, a, job, cause, again)


# ---------------------------------------------------------------------- scores


@part
def age_usage(s: Any, a: Any, now: int) -> None:
    """Let all users' usage decay up to now, and add recent usage; update shares at the end of a period."""
    if s[PERIOD] > 0:
        moment = now - now % s[PERIOD]
        if moment > s[RECKONED]:
            _decay(s, a, moment)
            _share_all(s, a)
            s[RECKONED] = moment
    _decay(s, a, now)


@part
def _decay(s: Any, a: Any, now: int) -> None:
    passed = now - s[USED_AT]
    if passed <= 0:
        return
    half_life = a.weights[HALF_LIFE]
    kept = 2.0 ** (-passed / half_life)
    earned = (1.0 - kept) * half_life / math.log(2.0)
    for user in range(len(a.usage)):
        a.usage[user] = a.usage[user] * kept + a.rate[user] * earned
    s[USED_AT] = now


@kernel
def _share_by_rank(s: Any, a: Any) -> None:
    """Rank users by usage, by insertion, as the order is nearly that of the previous pass."""
    users = s[USERS]
    sharers = max(users, s[SHARERS])
    for i in range(1, users):
        user = a.rank[At(i)]
        place = i
        while place > 0 and a.usage[At(a.rank[At(place - 1)])] > a.usage[At(user)]:
            a.rank[At(place)] = a.rank[At(place - 1)]
            place -= 1
        a.rank[At(place)] = user
    less = 0
    for i in range(users):
        user = a.rank[At(i)]
        if i == 0 or a.usage[At(user)] > a.usage[At(a.rank[At(i - 1)])]:
            less = i
        used_less = less + sharers - users if a.usage[At(user)] > 0.0 else 0
        a.share[At(user)] = 1.0 - used_less / sharers


@kernel
def _share_all(s: Any, a: Any) -> None:
    """Compute the fair-share factor of each user."""
    if s[TREE] > 0:
        _share_by_rank(s, a)
        return
    total = _total_usage(a)
    for user in range(len(a.usage)):
        used = a.usage[At(user)]
        a.share[At(user)] = 2.0 ** (-used / total * max(s[USERS], s[SHARERS])) if used > 0 else 1.0
        a.shared_at[At(user)] = s[NOW]


@part
def _share(s: Any, a: Any, job: int, total: float) -> None:
    """Compute the fair-share factor of a job's user, unless it is known already, or set at the end of a period."""
    user = a.user[At(job)]
    if s[PERIOD] == 0 and s[TREE] == 0 and a.shared_at[At(user)] != s[NOW]:
        used = a.usage[At(user)]
        a.share[At(user)] = 2.0 ** (-used / total * max(s[USERS], s[SHARERS])) if used > 0 else 1.0
        a.shared_at[At(user)] = s[NOW]


@kernel
def _total_usage(a: Any) -> float:
    total = 0.0
    for user in range(len(a.usage)):
        total += a.usage[user]
    return total


@part
def _multifactor(s: Any, a: Any, moment: int, cores: float) -> int:
    """Score the queue, or only jobs that came since if no other scores have changed; return how far it is in order.

    A factor without weight is not computed, which leaves the sum as it is.
    """
    w, queue, score, submit, user, share = a.weights, a.queue, a.score, a.submit, a.user, a.share
    age_weight, max_age, fair_share = w[AGE], w[MAX_AGE], w[FAIR_SHARE]
    size_weight, favor_small, partition, qos, highest = (
        w[SIZE],
        w[FAVOR_SMALL] > 0,
        w[PARTITION],
        w[QOS],
        w[HIGHEST_QOS],
    )
    begin = s[SORTED] if s[PERIOD] > 0 and s[SCORED] == moment else 0
    s[SCORED], ordered, previous = moment, s[QUEUED], queue[At(max(begin - 1, 0))]
    for i in range(begin, s[QUEUED]):
        job = queue[At(i)]
        points = age_weight * min(max(moment - submit[At(job)], 0) / max_age, 1.0)
        if size_weight != 0:
            size = a.cores[At(job)] / cores
            points += size_weight * (1.0 - size if favor_small else size)
        points += fair_share * share[At(user[At(job)])]
        if partition != 0:
            points += partition * a.partition_factor[At(a.partition[At(job)])]
        if qos != 0 and highest > 0:
            points += qos * a.qos[At(job)] / highest
        score[At(job)] = math.floor(points + 1e-6)  # whole points, independent of rounding errors of the parts
        if ordered > i and score[At(job)] >= score[At(previous)] and _before(s, a, job, previous):
            ordered = i
        previous = job
    return int(ordered)


@part
def _score_by_user(s: Any, a: Any, job: int, moment: int, total: float) -> None:
    """Score a job under multifactor without weights but those of age and fair share."""
    w = a.weights
    _share(s, a, job, total)
    points = w[AGE] * min(max(moment - a.submit[At(job)], 0) / w[MAX_AGE], 1.0)
    a.score[At(job)] = math.floor(points + w[FAIR_SHARE] * a.share[At(a.user[At(job)])] + 1e-6)


@part
def _sort_by_user(s: Any, a: Any, moment: int, total: float) -> int:
    """Sort a queue of few users, by multifactor; return how far it is as before.

    Of each user, the older jobs are first, whatever the time. So only a job that follows one of another user, or one
    that has moved, is compared with the job before it.
    """
    unchanged, i = s[SORTED], 1
    _fill(s, a, s[SORTED])
    while i < s[QUEUED]:
        job, low, high, middle = a.queue[At(i)], 0, i, i - 1
        _score_by_user(s, a, job, moment, total)
        while low < high:
            other = a.queue[At(middle)]
            _score_by_user(s, a, other, moment, total)
            if _before(s, a, job, other):
                high = middle
            else:
                low = middle + 1
            middle = (low + high) >> 1
        for j in range(i, low, -1):
            a.queue[At(j)] = a.queue[At(j - 1)]
        a.queue[At(low)] = job
        i += 1
        if low < i - 1:
            unchanged = min(unchanged, low)
        elif i < s[SORTED]:
            i = min(next_to_start(a.like, a.like, i, s[SORTED], 0, 0, 0), s[SORTED])  # the next who follows another's
    s[SORTED] = s[QUEUED]
    s[FILLED] = min(s[FILLED], unchanged)
    return int(unchanged)


@part
def _score(s: Any, a: Any) -> None:
    order, pools = s[ORDER], len(a.free)
    first = 0 if order == WFP else s[SORTED]  # other scores stay as they are
    for i in range(first, s[QUEUED]):
        job = a.queue[At(i)]
        request = a.request[At(job)]
        width = a.cores[At(job)]
        if s[SIZE_POOL] >= 0:
            width = a.demand[At(job * pools + s[SIZE_POOL])]
        score = 0.0
        if order == SJF:
            score = -1.0 * request
        elif order == WFP:
            score = ((s[NOW] - a.submit[At(job)]) / request) ** 3 * width
        else:
            since = math.log10(max(a.submit[At(job)] - s[FIRST] + 1.0, 1.0))
            if order == F1:
                score = -(math.log10(float(request)) * width + 870.0 * since)
            elif order == F2:
                score = -(math.sqrt(float(request)) * width + 25600.0 * since)
            elif order == F3:
                score = -(1.0 * request * width + 6860000.0 * since)
            else:
                score = -(request * math.sqrt(float(width)) + 530000.0 * since)
        a.score[At(job)] = score


# ---------------------------------------------------------------------- passes


@kernel
def _preempt(s: Any, a: Any, job: int) -> bool:
    """End running jobs of lower quality so that a job fits, if that is possible; requeue or cancel them."""
    pools, wanted, sufficient = len(a.free), False, False
    if s[PREEMPT] == OFF or a.qos[At(job)] == 0:
        return False
    for k in range(pools):
        a.room[k] = a.free[k]
    victims = 0
    while not sufficient:
        wanted = False
        for k in range(pools):
            wanted = wanted or a.demand[At(job * pools + k)] > max(a.room[k], 0)
        if not wanted:
            sufficient = True
            break
        best = -1
        for i in range(s[RUNNING]):
            other = a.running[At(i)]
            if a.qos[At(other)] >= a.qos[At(job)] or a.ended_by[At(other)] < 0:
                continue
            helps = False
            for k in range(pools):
                short = a.demand[At(job * pools + k)] > max(a.room[k], 0)
                helps = helps or (short and a.demand[At(other * pools + k)] > 0)
            if helps and (
                best < 0
                or a.qos[At(other)] < a.qos[At(best)]
                or (a.qos[At(other)] == a.qos[At(best)] and _started_later(a, other, best))
            ):
                best = other
        if best < 0:
            break
        a.ended_by[At(best)] = -1  # chosen
        victims += 1
        for k in range(pools):
            a.room[k] += a.demand[At(best * pools + k)]
    if sufficient:
        drop_started(s, a)  # jobs started in this pass may be among those ended, and are queued again
    i = 0
    while i < s[RUNNING] and victims > 0:
        other = a.running[At(i)]
        if a.ended_by[At(other)] < 0:
            a.ended_by[At(other)] = 0
            if sufficient:
                _lose(s, a, other, 2, s[PREEMPT] == BACK)
                continue
        i += 1
    return sufficient


@kernel
def _started_later(a: Any, one: int, other: int) -> bool:
    if a.start[At(one)] != a.start[At(other)]:
        return bool(a.start[At(one)] > a.start[At(other)])
    return one > other


@kernel
def _in_order(s: Any, a: Any) -> bool:
    """Start fitting jobs in order, until one of a partition does not fit; return whether jobs were preempted."""
    pools, open_partitions, started, i = len(a.free), 0, 0, s[SCANNED]
    for p in range(len(a.blocked)):
        if i == 0:
            a.blocked[p] = 0
        open_partitions += 1 - a.blocked[p]
    while i < s[QUEUED] and open_partitions > 0:
        job = a.queue[At(i)]
        i += 1
        if a.blocked[At(a.partition[At(job)])] or not fits(a.demand, a.capacity, job, 0, pools):
            continue
        if fits(a.demand, a.free, job, 0, pools):
            launch(s, a, job)
            started += 1
        elif _preempt(s, a, job):
            launch(s, a, job)
            return True
        else:
            a.blocked[At(a.partition[At(job)])] = 1
            open_partitions -= 1
    s[SCANNED] = i - started
    return False


@kernel
def _may_start(s: Any, a: Any) -> bool:
    """Whether a job may start at all."""
    if s[PREEMPT] != OFF:
        return True
    for k in range(len(a.free)):
        if a.free[k] > 0:
            return True
    return False


@part
def _fill(s: Any, a: Any, places: int) -> None:
    """Lay out next to each other what the first jobs of the queue ask for, so that many are compared at once."""
    for i in range(s[FILLED], places):
        job = a.queue[At(i)]
        if s[BY_USER]:
            a.like[At(i)] = i > 0 and a.user[At(a.queue[At(i - 1)])] == a.user[At(job)]
        a.widths[At(i)] = min(a.demand[At(job * len(a.free))], FAR)
        a.lasts[At(i)] = min(a.request[At(job)], FAR)
    s[FILLED] = max(s[FILLED], places)


@part
def _next_candidate(s: Any, a: Any, place: int) -> int:
    """Return the first place from a given one on whose job may fit now, by the first pool and a reservation alone."""
    points, free, limit = a.profile.points, min(max(a.free[0], 0), FAR), FAR
    extra = free
    if s[SHADOW] != NOBODY and points[At(s[SHADOW] + TIME)] > s[NOW]:
        limit = min(points[At(s[SHADOW] + TIME)] - s[NOW], FAR)
        extra = min(max(points[At(s[SHADOW] + IDLE)], 0), free)
    return int(min(next_to_start(a.widths, a.lasts, place, s[QUEUED], free, limit, extra), s[QUEUED]))


@part
def easy(s: Any, a: Any) -> bool:
    """Start fitting jobs; the first of each partition that does not fit gets a reservation, which is respected."""
    now, pools, started, i = s[NOW], len(a.free), 0, s[SCANNED]
    _fill(s, a, s[QUEUED])
    if i == 0:
        s[KNOWN], s[SHADOW] = 0, NOBODY
        for p in range(len(a.blocked)):
            a.blocked[p] = 0
    elif s[KNOWN]:
        advance(s, a.profile.points)
    open_partitions = len(a.blocked)
    for p in range(len(a.blocked)):
        open_partitions -= a.blocked[p]
    idle = _may_start(s, a)
    while i < s[QUEUED] and idle:
        if open_partitions == 0:
            i = _next_candidate(s, a, i)
            if i == s[QUEUED]:
                break
        job = a.queue[At(i)]
        i += 1
        fit = fits(a.demand, a.free, job, 0, pools)
        if not fit and open_partitions == 0:
            continue
        waits = a.blocked[At(a.partition[At(job)])] != 0
        if not fit and (waits or not fits(a.demand, a.capacity, job, 0, pools)):
            continue
        if fit and (not s[KNOWN] or earliest(a.profile, job, s[HEAD], now, NEVER, pools) == s[HEAD]):
            if s[KNOWN]:
                book(s, a.profile, job, s[HEAD], now)
            if started == 0:
                s[AHEAD] = i - 1
            launch(s, a, job)
            started += 1
            idle = _may_start(s, a)
        elif not waits:
            if not fit and _preempt(s, a, job):
                launch(s, a, job)
                return True
            a.blocked[At(a.partition[At(job)])] = 1
            open_partitions -= 1
            if not s[KNOWN]:
                reset(s, a.profile, a.running, a.expected, a.free)
                s[KNOWN] = 1
            point = earliest(a.profile, job, s[HEAD], now, NEVER, pools)
            if point != NOBODY:
                book(s, a.profile, job, point, a.profile.points[At(point + TIME)])
                if s[SHADOW] == NOBODY:
                    s[SHADOW] = point
    s[SCANNED] = i - started
    return False


@kernel
def _conservative(s: Any, a: Any, unchanged: int) -> bool:
    """Look at reservations again that may move, reserve for those that came, and start whoever begins now."""
    if s[REBUILD]:
        reset(s, a.profile, a.running, a.expected, a.free)
        unchanged, s[WAKE] = 0, NEVER
        for i in range(s[QUEUED]):
            a.plan[At(a.queue[At(i)])] = UNSTARTED
    else:
        advance(s, a.profile.points)
        for i in range(s[QUEUED] if s[FREED] else 0):
            job = a.queue[At(i)]
            if a.profile.bookings[At(job * BOOKING + EARLIER)] and s[NOW] < a.plan[At(job)] < NEVER:
                replan(s, a.profile, job)
    s[REBUILD] = s[FREED] = 0
    for i in range(unchanged, s[QUEUED]):
        job = a.queue[At(i)]
        if a.plan[At(job)] == UNSTARTED:
            a.plan[At(job)] = NEVER
            if fits(a.demand, a.capacity, job, 0, len(a.free)):
                reserve(s, a.profile, job)
    if s[WAKE] <= s[NOW] or s[PREEMPT] != OFF:
        return bool(_begin_planned(s, a))
    return False


@kernel
def _begin_planned(s: Any, a: Any) -> bool:
    """Start the jobs whose reservations begin now; return whether jobs were preempted."""
    pools, due, i = len(a.free), count_due(s, a.profile), 0
    for p in range(len(a.blocked)):
        a.blocked[p] = 0
    while i < s[QUEUED] and (due > 0 or s[PREEMPT] != OFF):
        job = a.queue[At(i)]
        i += 1
        if a.plan[At(job)] <= s[NOW]:
            launch(s, a, job)
            due -= 1
            continue
        if s[PREEMPT] == OFF or a.blocked[At(a.partition[At(job)])] or not fits(a.demand, a.capacity, job, 0, pools):
            continue
        if not fits(a.demand, a.free, job, 0, pools):
            a.blocked[At(a.partition[At(job)])] = 1
            if _preempt(s, a, job):
                launch(s, a, job)
                return True
    s[WAKE] = next_begin(s, a.profile.points)
    return False


@kernel
def _periodic(s: Any, a: Any) -> None:
    """Plan as many jobs as the depth allows, and start those whose time is now."""
    now, grid, pools = s[NOW], s[RESOLUTION], len(a.free)
    points, kinds, until = a.profile.points, a.profile.kinds, now + s[WINDOW] + 1
    reset(s, a.profile, a.running, a.expected, a.free)
    left = s[DEPTH]
    for i in range(s[QUEUED]):
        job = a.queue[At(i)]
        if not fits(a.demand, a.capacity, job, 0, pools):
            continue
        if left == 0:
            break
        left -= 1
        point, kind = s[HEAD], kind_of(a.profile, job, pools)
        less = kinds[At(kind + ALIKE)]
        bounded = less != NOBODY and asks_no_more(a.profile, less, job, pools)
        if bounded:  # a job that asks for no more could not begin before this point, or not at all
            point = kinds[At(kind + LATEST)]
        moment = now
        if point != NOBODY:
            moment = max(points[At(point + TIME)], now)
            point = earliest(a.profile, job, point, moment, until, pools)
        while (
            point != NOBODY
            and max(points[At(point + TIME)], moment) > now
            and max(points[At(point + TIME)], moment) % grid != 0
        ):
            moment = max(points[At(point + TIME)], moment)
            moment += grid - moment % grid
            point = earliest(a.profile, job, point, moment, until, pools)
        if point != NOBODY and max(points[At(point + TIME)], moment) >= until:
            point = NOBODY
        if point != NOBODY:
            moment = max(points[At(point + TIME)], moment)
            point = book(s, a.profile, job, point, moment)
            if moment == now:
                launch(s, a, job)
        if not bounded or asks_no_more(a.profile, job, less, pools):
            kinds[At(kind + ALIKE)], kinds[At(kind + LATEST)] = job, point


@part
def schedule(s: Any, a: Any, mode: int) -> bool:
    """Do one pass; return whether it must be repeated with other scores, which the caller computes."""
    due, again = s[STIRRED] != 0 or mode != PERIODIC, True
    if mode == PERIODIC and s[TICK] == NEVER:
        s[TICK] = -(-s[NOW] // s[INTERVAL]) * s[INTERVAL]
    while again:
        unchanged = in_order(s, a)
        overdue = s[RUNNING] > 0 and a.expected[At(a.running[0])] <= s[NOW]
        if unchanged < s[SCANNED] or overdue or s[PREEMPT] != OFF:
            s[SCANNED] = 0
        if mode == EASY:
            again = easy(s, a)
        elif mode == CONSERVATIVE:
            again = _conservative(s, a, unchanged)
        else:
            again = due and _in_order(s, a)
        drop_started(s, a)
        if again and (s[ORDER] == CUSTOM or s[NEWS] > len(a.news) // 2):
            return True  # or the client must process these first; the pass continues from here
    if mode == PERIODIC:
        if s[TICK] <= s[NOW]:
            s[TICK] = NEVER
            _periodic(s, a)
            if s[LAUNCHED] > 0:
                s[SCANNED] = 0
            drop_started(s, a)
        if s[QUEUED] == 0:
            s[TICK] = NEVER
    s[STIRRED] = 0
    return False


@part
def in_order(s: Any, a: Any) -> int:
    """Sort the queue in its order, with the caller's scores for a custom one; return how far it is as before."""
    order, first = s[ORDER], s[SORTED]
    if order == MULTIFACTOR:
        moment, total = s[RECKONED] if s[PERIOD] > 0 else s[NOW], 0.0
        if s[PERIOD] == 0 and s[TREE] > 0:
            _share_all(s, a)
        elif s[PERIOD] == 0:
            total = _total_usage(a)
        if s[BY_USER]:
            return int(_sort_by_user(s, a, moment, total))
        for i in range(s[QUEUED] if s[PERIOD] == 0 and s[TREE] == 0 else 0):
            _share(s, a, a.queue[At(i)], total)
        first = _multifactor(s, a, moment, float(a.weights[WEIGHTS]))
    elif order not in (FCFS, CUSTOM):
        _score(s, a)
    return int(_sort(s, a, 0 if order in (WFP, CUSTOM) else first))


# ---------------------------------------------------------------------- the loop


@kernel
def _change(s: Any, a: Any) -> None:
    """Apply the outages that begin or end in this second."""
    pools = len(a.free)
    while s[OUTAGE] < len(a.outage_time) and a.outage_time[At(s[OUTAGE])] <= s[NOW]:
        o = s[OUTAGE]
        s[OUTAGE] += 1
        sign = 1 if a.outage_kind[At(o)] == RETURNED else -1
        for k in range(pools):
            amount = sign * a.outage_amount[At(o * pools + k)]
            a.room[k] = min(a.free[k], 0)  # an earlier overdraft, which this outage need not recover
            a.free[k] += amount
            a.capacity[k] += amount
        s[REBUILD] = s[STIRRED] = 1
        s[SCANNED] = 0
        while a.outage_kind[At(o)] == FAILED:
            last = -1
            for i in range(s[RUNNING]):
                job = a.running[At(i)]
                for k in range(pools):
                    short = a.free[k] < a.room[k] and a.outage_amount[At(o * pools + k)] > 0
                    holds = a.demand[At(job * pools + k)] > 0
                    if short and holds and (last < 0 or _started_later(a, job, last)):
                        last = job
            if last < 0:
                break
            _lose(s, a, last, 1, s[REQUEUE] != 0)


@kernel
def run_events(s: Any, a: Any, until: int, phase: int) -> int:
    """Process events until `until`, or until something happened to a client's job.

    `phase`: ``RUN``: go on; ``REST``: finish a second after the client's part of it, then go on; ``BEGIN``: set the
    clock to `until`, end what ends then, and stop.
    Returns: ``WANTED`` if the caller must do this second's pass (or its scores), else ``DONE``.

    Notes
    -----
    For q queued and r running jobs: a pass after submissions costs O(submitted jobs), or O(q) in orders whose scores
    change. After an end, EASY costs O(q + r), conservative O(q) and, for each reservation that moves, what it passes;
    making one costs O(q + r). Periodic costs O(depth (depth + r)) at each interval. Each times the number of pools.
    Multifactor adds O(users) for each event.
    """
    rows, outages = s[ROWS], len(a.outage_time)
    while True:
        arrival = a.submit[At(s[NEXT])] if s[NEXT] < rows else NEVER
        if phase in (RUN, BEGIN):
            now = a.ends[0] >> BITS if s[ENDS] > 0 else NEVER
            now = min(now, arrival, s[WAKE])
            if s[QUEUED] > 0:
                now = min(now, s[TICK])
            if s[OUTAGE] < outages:
                now = min(now, a.outage_time[At(s[OUTAGE])])
            if phase == BEGIN:
                now = until
            elif now > until or now == NEVER:
                return DONE
            s[NOW] = now
            if s[ORDER] == MULTIFACTOR:
                age_usage(s, a, now)
            s[ENDED] = 0
            while s[ENDS] > 0 and a.ends[0] >> BITS == now:
                job = a.ends[0] & MASK
                s[ENDS] -= 1
                pop(a.ends, s[ENDS], 0)
                if job < rows:
                    a.end[At(job)] = now
                    vacate(s, a, job)
                elif s[ENDED] == 0 or a.over[At(s[ENDED] - 1)] != job:  # so that an end is reported once
                    a.over[At(s[ENDED])] = job
                    s[ENDED] += 1
            if s[ENDED] > 0 or phase == BEGIN:
                return DONE
        if s[OUTAGE] < outages:
            _change(s, a)
        while arrival == s[NOW]:
            a.arrival[At(s[NEXT])] = s[ARRIVED]
            s[ARRIVED] += 1
            enqueue(s, a, s[NEXT])
            s[NEXT] += 1
            arrival = a.submit[At(s[NEXT])] if s[NEXT] < rows else NEVER
        if s[STIRRED] or s[WAKE] <= s[NOW] or s[TICK] <= s[NOW]:
            if s[BACKFILL] == OUTSIDE or s[ORDER] == CUSTOM:
                return WANTED
            schedule(s, a, s[BACKFILL])
        phase = RUN
        if s[NEWS] > 0:
            return DONE
