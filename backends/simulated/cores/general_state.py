"""The data of the kernels of `general_kernel` and `profile_kernel`: a vector of scalars, and columns."""

from __future__ import annotations

from typing import Any, NamedTuple

# indices of the scalars in their vector
(
    NOW,
    NEXT,
    QUEUED,
    RUNNING,
    ENDS,
    POINTS,
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
    SORTED,
    SCANNED,
    KNOWN,
    SPARE,
    HEAD,
    LAUNCHED,
    POOLS,
    FILLED,
    AHEAD,
    SHADOW,
    BY_USER,
    SCORED,
) = range(44)
SCALARS = 44

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


MAGNITUDES = 32
BOOKING = 11
"""Fields of a booking."""


class Profile(NamedTuple):
    """The data of the kernels of `profile_kernel`, few arrays, since a call costs for each."""

    points: Any
    bookings: Any  # by job, under conservative backfilling
    kinds: Any  # under conservative and periodic backfilling
    plan: Any  # as in `Arrays`
    demand: Any
    request: Any


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
    plan: Any  # by queued job: the begin of its reservation under conservative backfilling
    ended_by: Any  # by job: cause of its end: 0 none, 1 an outage, 2 preemption
    requeues: Any
    score: Any  # by job
    queue: Any  # jobs
    widths: Any  # by place in the queue, up to FILLED, under EASY: what the job asks of the first pool
    lasts: Any  # likewise: its request
    like: Any  # likewise, if BY_USER: whether the job before it is of the same user
    running: Any  # jobs, by requested end
    ends: Any  # heap of (end, job)
    free: Any  # by pool
    capacity: Any  # by pool, without unavailable resources
    outage_time: Any
    outage_kind: Any
    outage_amount: Any  # by outage and pool
    usage: Any  # by user: decayed core-seconds
    rate: Any  # by user: cores in use
    rank: Any  # users, by usage
    share: Any  # by user: the factor of fair share
    shared_at: Any  # by user: when it was computed, if it changes all the time
    weights: Any
    partition_factor: Any
    blocked: Any  # by partition, within a pass
    room: Any  # by pool: idle amounts that would result from a preemption
    over: Any  # the client's jobs that ended
    news: Any  # other changes of the client's jobs: job x 8 + cause x 2 + again
    profile: Any
