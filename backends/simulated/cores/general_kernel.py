"""The inner loop of all other disciplines: any order, any backfilling, any number of pools.

`asa.backends.simulated.policies` describes the semantics. The data:

- a job is a row of columns; its demand is a row of a matrix, flattened, like all data with a column for each pool;
- the queue is a list of jobs that stays sorted from pass to pass, so that sorting it again is cheap;
- the profile is what will be idle over time, by requested ends and reservations: a sorted list of times, and what is
  idle from each to the next.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from asa.core.compiled import At, kernel

from ..table import NEVER, UNSTARTED
from .heap import BITS, MASK, forget, pop, push

# indices of the scalars in their vector
(
    NOW,
    NEXT,
    QUEUED,
    RUNNING,
    ENDS,
    PROFILE,
    TRIMMED,
    OUTAGE,
    ARRIVED,
    STIRRED,
    FREED,
    REBUILD,
    WAKE,
    TICK,
    ENDED,
    NEWS,
    ROWS,
    ORDER,
    BACKFILL,
    PREEMPT,
    REQUEUE,
    INTERVAL,
    DEPTH,
    WINDOW,
    RESOLUTION,
    SIZE_POOL,
    FIRST,
    USERS,
    USED_AT,
    TREE,
    SHARERS,
    PERIOD,
    RECKONED,
) = range(33)
SCALARS = 33

# phases of `run_events`, and its results
RUN, REST, BEGIN = range(3)
DONE, WANTED = range(2)

# orders
FCFS, SJF, WFP, F1, F2, F3, F4, MULTIFACTOR, CUSTOM = range(9)
# backfilling
NONE, EASY, CONSERVATIVE, PERIODIC, OUTSIDE = range(5)
# preemption
OFF, BACK, CANCEL = range(3)

# outages
RETURNED, DRAINED, FAILED = range(3)

# indices of the weights in their vector
(AGE, MAX_AGE, SIZE, FAVOR_SMALL, FAIR_SHARE, HALF_LIFE, PARTITION, QOS, HIGHEST_QOS) = range(9)
WEIGHTS = 9


class Arrays(NamedTuple):
    """The data of the kernels, an array in each field."""

    submit: Any  # by job: start of its age
    run: Any
    request: Any
    user: Any
    qos: Any
    partition: Any
    cores: Any
    demand: Any  # by job and pool
    arrival: Any  # by job: number of jobs queued before it
    start: Any
    end: Any  # by background job: its past end
    due: Any  # by background job: its end in the heap
    expected: Any  # by running job: its requested end
    plan: Any  # by queued job: its reservation under conservative backfilling
    ended_by: Any  # by job: cause of its end: 0 none, 1 an outage, 2 preemption
    requeues: Any
    score: Any  # by job
    queue: Any  # jobs
    running: Any  # jobs, by requested end
    ends: Any  # heap of (end, job)
    free: Any  # by pool
    capacity: Any  # by pool, without unavailable resources
    times: Any  # of the profile
    idle: Any  # by time of the profile and pool
    outage_time: Any
    outage_kind: Any
    outage_amount: Any  # by outage and pool
    usage: Any  # by user: decayed core-seconds
    rate: Any  # by user: cores in use
    rank: Any  # users, by usage
    share: Any  # by user: the factor of fair share
    weights: Any
    partition_factor: Any
    blocked: Any  # by partition, within a pass
    room: Any  # by pool: idle amounts that would result from a preemption
    over: Any  # the client's jobs that ended
    news: Any  # other changes of the client's jobs: job x 8 + cause x 2 + again


@kernel
def _fits(demand: Any, free: Any, job: int) -> bool:
    pools = len(free)
    for k in range(pools):
        if demand[At(job * pools + k)] > max(free[k], 0):  # a pool that is drained may be overdrawn
            return False
    return True


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
def _sort(s: Any, a: Any) -> None:
    """Sort the queue by insertion, as it is nearly sorted from the previous pass."""
    queue = a.queue
    for i in range(1, s[QUEUED]):
        job = queue[At(i)]
        j = i
        while j > 0 and _before(s, a, job, queue[At(j - 1)]):
            queue[At(j)] = queue[At(j - 1)]
            j -= 1
        queue[At(j)] = job


@kernel
def in_order_of_age(s: Any, a: Any) -> None:
    """Sort the queue as in first come first served."""
    order = s[ORDER]
    s[ORDER] = FCFS
    _sort(s, a)
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
    for j in range(i, s[QUEUED] - 1):
        a.queue[At(j)] = a.queue[At(j + 1)]
    s[QUEUED] -= 1
    if s[BACKFILL] == CONSERVATIVE and s[REBUILD] == 0 and UNSTARTED < a.plan[At(job)] < NEVER:
        book(s, a, job, a.plan[At(job)], a.plan[At(job)] + a.request[At(job)], -1)
        s[FREED] = 1
    s[STIRRED] = 1


@kernel
def drop_started(s: Any, a: Any) -> None:
    """Remove started jobs from the queue."""
    write = 0
    for read in range(s[QUEUED]):
        job = a.queue[At(read)]
        if a.start[At(job)] == UNSTARTED:
            a.queue[At(write)] = job
            write += 1
    s[QUEUED] = write


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
    if s[BACKFILL] == CONSERVATIVE and s[REBUILD] == 0 and s[NOW] < a.expected[At(job)]:
        book(s, a, job, s[NOW], a.expected[At(job)], -1)
        s[FREED] = 1
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


# ---------------------------------------------------------------------- the profile


@kernel
def _reset(s: Any, a: Any) -> None:
    """Rebuild the profile from the running jobs alone."""
    pools, count, now = len(a.free), 1, s[NOW]
    a.times[0] = now
    for k in range(pools):
        a.idle[k] = a.free[k]
    for i in range(s[RUNNING]):
        job = a.running[At(i)]
        end = max(a.expected[At(job)], now + 1)
        if end != a.times[At(count - 1)]:
            a.times[At(count)] = end
            for k in range(pools):
                a.idle[At(count * pools + k)] = a.idle[At((count - 1) * pools + k)]
            count += 1
        for k in range(pools):
            a.idle[At((count - 1) * pools + k)] += a.demand[At(job * pools + k)]
    s[PROFILE] = s[TRIMMED] = count


@kernel
def _place_of(s: Any, a: Any, time: int) -> int:
    """Return the index of the last time in the profile that is not after `time`; if there is none, of the first."""
    low, high = 0, s[PROFILE]
    while high - low > 1:
        middle = (low + high) >> 1
        if a.times[At(middle)] <= time:
            low = middle
        else:
            high = middle
    return low


@kernel
def _cut(s: Any, a: Any, time: int) -> int:
    """Make `time`, which is not before the profile's first, one of its times; return its index."""
    low = _place_of(s, a, time)
    if a.times[At(low)] == time:
        return int(low)
    low += 1
    pools = len(a.free)
    for i in range(s[PROFILE], low, -1):
        a.times[At(i)] = a.times[At(i - 1)]
    for i in range((s[PROFILE] + 1) * pools - 1, low * pools - 1, -1):
        a.idle[At(i)] = a.idle[At(i - pools)]
    a.times[At(low)] = time
    s[PROFILE] += 1
    return int(low)


@kernel
def book(s: Any, a: Any, job: int, begin: int, end: int, sign: int) -> None:
    """Subtract a job's demand from the profile between two times, or add it back."""
    pools = len(a.free)
    first = _cut(s, a, begin)
    last = _cut(s, a, end)
    for i in range(first, last):
        for k in range(pools):
            a.idle[At(i * pools + k)] -= sign * a.demand[At(job * pools + k)]


@kernel
def _trim(s: Any, a: Any) -> None:
    """Occasionally remove the profile's past, and times without a change."""
    if s[PROFILE] <= s[TRIMMED] + s[TRIMMED] // 8 + 16:
        return
    pools, now, write = len(a.free), s[NOW], 0
    for read in range(_place_of(s, a, now), s[PROFILE]):
        changes = write == 0
        for k in range(pools):
            value = a.idle[At(read * pools + k)]
            if write > 0 and value != a.idle[At((write - 1) * pools + k)]:
                changes = True
        if changes:
            a.times[At(write)] = max(a.times[At(read)], now)
            for k in range(pools):
                a.idle[At(write * pools + k)] = a.idle[At(read * pools + k)]
            write += 1
    s[PROFILE] = s[TRIMMED] = write


@kernel
def _earliest(s: Any, a: Any, job: int, since: int) -> int:
    """Return the earliest time from `since` on at which a job fits for its whole request; NEVER if there is none."""
    pools, count, lasts = len(a.free), s[PROFILE], a.request[At(job)]
    first = i = _place_of(s, a, since)
    begin = since
    while i < count:
        if i > first and a.times[At(i)] >= begin + lasts:
            return begin
        fits = True
        for k in range(pools):
            if a.demand[At(job * pools + k)] > max(a.idle[At(i * pools + k)], 0):
                fits = False
        i += 1
        if not fits:
            if i >= count:
                return NEVER
            begin = max(a.times[At(i)], since)
    return begin


# ---------------------------------------------------------------------- scores


@kernel
def age_usage(s: Any, a: Any, now: int) -> None:
    """Let all users' usage decay up to now, and add recent usage; update shares at the end of a period."""
    if s[PERIOD] > 0:
        moment = now - now % s[PERIOD]
        if moment > s[RECKONED]:
            _decay(s, a, moment)
            _share(s, a)
            s[RECKONED] = moment
    _decay(s, a, now)


@kernel
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
def _share(s: Any, a: Any) -> None:
    """Compute the fair-share factor of each user."""
    if s[TREE] > 0:
        _share_by_rank(s, a)
        return
    total = 0.0
    for user in range(len(a.usage)):
        total += a.usage[user]
    sharers = max(s[USERS], s[SHARERS])
    for user in range(len(a.usage)):
        a.share[user] = 2.0 ** (-a.usage[user] / total * sharers) if total > 0 else 1.0


@kernel
def _multifactor(a: Any, job: int, moment: int, cores: float) -> float:
    w = a.weights
    age = min(max(moment - a.submit[At(job)], 0) / w[MAX_AGE], 1.0)
    size = a.cores[At(job)] / cores
    if w[FAVOR_SMALL] > 0:
        size = 1.0 - size
    score = w[AGE] * age + w[SIZE] * size + w[FAIR_SHARE] * a.share[At(a.user[At(job)])]
    score += w[PARTITION] * a.partition_factor[At(a.partition[At(job)])]
    if w[HIGHEST_QOS] > 0:
        score += w[QOS] * a.qos[At(job)] / w[HIGHEST_QOS]
    return float(math.floor(score + 1e-6))  # whole points, independent of rounding errors of the parts


@kernel
def _score(s: Any, a: Any, cores: float) -> None:
    order, pools = s[ORDER], len(a.free)
    moment = s[NOW]
    if order == MULTIFACTOR and s[PERIOD] > 0:
        moment = s[RECKONED]
    elif order == MULTIFACTOR:
        _share(s, a)
    for i in range(s[QUEUED]):
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
        elif order == MULTIFACTOR:
            score = _multifactor(a, job, moment, cores)
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
    open_partitions = len(a.blocked)
    for p in range(open_partitions):
        a.blocked[p] = 0
    for i in range(s[QUEUED]):
        if open_partitions == 0:
            break
        job = a.queue[At(i)]
        if a.blocked[At(a.partition[At(job)])] or not _fits(a.demand, a.capacity, job):
            continue
        if _fits(a.demand, a.free, job):
            launch(s, a, job)
        elif _preempt(s, a, job):
            launch(s, a, job)
            return True
        else:
            a.blocked[At(a.partition[At(job)])] = 1
            open_partitions -= 1
    return False


@kernel
def easy(s: Any, a: Any) -> bool:
    """Start fitting jobs; the first of each partition that does not fit gets a reservation, which is respected."""
    now, known = s[NOW], False
    for p in range(len(a.blocked)):
        a.blocked[p] = 0
    for i in range(s[QUEUED]):
        job = a.queue[At(i)]
        waits = a.blocked[At(a.partition[At(job)])] != 0
        fits = _fits(a.demand, a.free, job)
        if not fits and (waits or not _fits(a.demand, a.capacity, job)):
            continue
        if fits and (not known or _earliest(s, a, job, now) == now):
            if known:
                book(s, a, job, now, now + a.request[At(job)], 1)
            launch(s, a, job)
        elif not waits:
            if not fits and _preempt(s, a, job):
                launch(s, a, job)
                return True
            a.blocked[At(a.partition[At(job)])] = 1
            if not known:
                _reset(s, a)
                known = True
            begin = _earliest(s, a, job, now)
            if begin < NEVER:
                book(s, a, job, begin, begin + a.request[At(job)], 1)
    return False


@kernel
def _conservative(s: Any, a: Any) -> bool:
    now = s[NOW]
    if s[REBUILD]:
        _reset(s, a)
        for i in range(s[QUEUED]):
            a.plan[At(a.queue[At(i)])] = UNSTARTED
    else:
        _trim(s, a)
        if s[FREED]:
            for i in range(s[QUEUED]):
                job = a.queue[At(i)]
                if UNSTARTED < a.plan[At(job)] < NEVER and a.plan[At(job)] > now:
                    book(s, a, job, a.plan[At(job)], a.plan[At(job)] + a.request[At(job)], -1)
                    a.plan[At(job)] = _earliest(s, a, job, now)
                    book(s, a, job, a.plan[At(job)], a.plan[At(job)] + a.request[At(job)], 1)
    s[REBUILD] = s[FREED] = 0
    for i in range(s[QUEUED]):
        job = a.queue[At(i)]
        if a.plan[At(job)] == UNSTARTED:
            a.plan[At(job)] = _earliest(s, a, job, now) if _fits(a.demand, a.capacity, job) else NEVER
            if a.plan[At(job)] < NEVER:
                book(s, a, job, a.plan[At(job)], a.plan[At(job)] + a.request[At(job)], 1)
    for p in range(len(a.blocked)):
        a.blocked[p] = 0
    s[WAKE] = NEVER
    for i in range(s[QUEUED]):
        job = a.queue[At(i)]
        if a.plan[At(job)] <= now:
            launch(s, a, job)
            continue
        s[WAKE] = min(s[WAKE], a.plan[At(job)])
        if a.blocked[At(a.partition[At(job)])] or not _fits(a.demand, a.capacity, job):
            continue
        if not _fits(a.demand, a.free, job):
            a.blocked[At(a.partition[At(job)])] = 1
            if _preempt(s, a, job):
                launch(s, a, job)
                return True
    return False


@kernel
def _periodic(s: Any, a: Any) -> None:
    """Plan as many jobs as the depth allows, and start those whose time is now."""
    now, grid = s[NOW], s[RESOLUTION]
    _reset(s, a)
    left = s[DEPTH]
    for i in range(s[QUEUED]):
        job = a.queue[At(i)]
        if not _fits(a.demand, a.capacity, job):
            continue
        if left == 0:
            break
        left -= 1
        begin = _earliest(s, a, job, now)
        while now < begin < NEVER and begin % grid != 0:
            begin = _earliest(s, a, job, begin + grid - begin % grid)
        if begin - now > s[WINDOW]:
            continue
        book(s, a, job, begin, begin + a.request[At(job)], 1)
        if begin == now:
            launch(s, a, job)


@kernel
def schedule(s: Any, a: Any, mode: int) -> bool:
    """Do one pass; return whether it must be repeated with other scores, which the caller computes."""
    again = s[STIRRED] != 0 or mode != PERIODIC
    while again:
        in_order(s, a)
        if mode == EASY:
            again = easy(s, a)
        elif mode == CONSERVATIVE:
            again = _conservative(s, a)
        else:
            again = _in_order(s, a)
        drop_started(s, a)
        if again and (s[ORDER] == CUSTOM or s[NEWS] > len(a.news) // 2):
            return True  # or the client must process these first; the pass continues from here
    if mode == PERIODIC:
        interval = s[INTERVAL]
        if s[TICK] == NEVER:
            s[TICK] = -(-s[NOW] // interval) * interval
        if s[TICK] <= s[NOW]:
            s[TICK] = NEVER
            in_order(s, a)
            _periodic(s, a)
            drop_started(s, a)
        if s[QUEUED] == 0:
            s[TICK] = NEVER
    s[STIRRED] = 0
    return False


@kernel
def in_order(s: Any, a: Any) -> None:
    """Sort the queue in its order; the scores of a custom one are the caller's."""
    if s[ORDER] not in (FCFS, CUSTOM):
        _score(s, a, float(a.weights[WEIGHTS]))
    _sort(s, a)


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
    For q queued and r running jobs: a pass costs O(q), EASY O(r) more if jobs wait, conservative O(q (q + r)) after an
    early end, so the cost of a queue that grows without end is cubic; each times the number of pools. Multifactor adds
    O(users) for each event.
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
            s[WAKE] = NEVER
            schedule(s, a, s[BACKFILL])
        phase = RUN
        if s[NEWS] > 0:
            return DONE
