"""A cluster that is slow and plain: second by second, written apart from the engine, to check it against.

Nothing is remembered between seconds that could be computed again, and every question is answered by going through
all jobs. What has to be remembered: who runs since when, what became of each, who used how much when, conservative
reservations, and whether something happened since the last pass of periodic backfilling.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from asa.backends.simulated.cluster import NEVER
from asa.backends.simulated.policies import F1, Conservative, Easy, Fcfs, Multifactor, Periodic, Sjf, Wfp


@dataclass(eq=False)
class PlainJob:
    """A job, and its outcome."""

    number: int
    submit: int
    run: int
    request: int
    demand: dict
    user: int
    qos: int
    partition: int
    state: str = "pending"
    start: int = -1
    end: int = -1
    reserved: int | None = None  # when it is to start; conservative backfilling only

    @property
    def limit(self):
        """Return its end, as far as the scheduler knows."""
        return self.start + self.request

    @property
    def due(self):
        return self.start + min(self.run, self.request)


def fits(demand, room):
    """What a job does not ask for may be short, or overdrawn."""
    return all(amount <= room[pool] for pool, amount in demand.items() if amount > 0)


@dataclass
class PlainCluster:
    """A machine and its queue. `second` lives through one second."""

    pools: dict
    jobs: list
    order: object
    backfill: object
    preempt: str
    requeue: bool
    outages: list
    priority_of: Callable | None
    now: int = 0
    away: list = field(default_factory=list)  # outages of this second, so far
    history: list = field(default_factory=list)  # (user, cores, begin, end) of what no longer runs
    early: bool = False  # something ended before its requested end: reservations move
    anew: bool = False  # resources went or came, or somebody was ended: reservations are made anew
    owed: bool = False  # something happened since the last pass of periodic backfilling

    # ---- what can be seen at any time

    @property
    def first(self):
        """The pool that counts cores."""
        return next(iter(self.pools))

    @property
    def running(self):
        return [job for job in self.jobs if job.state == "running"]

    def capacity(self):
        lost = Counter()
        for outage in self.away:
            lost.update(outage.amounts)
        return {pool: size - lost[pool] for pool, size in self.pools.items()}

    def idle(self):
        room = self.capacity()
        for job in self.running:
            for pool, amount in job.demand.items():
                room[pool] -= amount
        return room

    def usage(self, user, now):
        """Core-seconds until then, each decayed since: the integral of cores * 2^(-(now - x) / half-life)."""
        runs = [(job.user, job.demand.get(self.first, 0), job.start, self.now) for job in self.running]
        half = self.order.half_life_s
        return sum(
            cores * half / math.log(2) * (2 ** (-(now - min(end, now)) / half) - 2 ** (-(now - begin) / half))
            for whose, cores, begin, end in self.history + runs
            if whose == user and begin < now
        )

    def multifactor(self, job):
        order, users = self.order, {job.user for job in self.jobs}
        size = job.demand.get(self.first, 0) / self.pools[self.first]
        now = self.now - self.now % order.period_s if order.period_s else self.now
        used = {user: self.usage(user, now) for user in users}
        total, sharers = sum(used.values()), max(len(users), order.users)
        share = used[job.user] / total if total > 0 else 0.0
        fair = 2 ** (-share * sharers)
        if order.fair_tree:
            less = sum(used[job.user] > other for other in used.values())
            fair = 1 - (less + sharers - len(users)) / sharers if used[job.user] > 0 else 1.0
        best = max(job.qos for job in self.jobs)
        factors = order.partition_factors
        score = (
            order.age * min(max(now - job.submit, 0) / order.max_age_s, 1)
            + order.size * (1 - size if order.favor_small else size)
            + order.fair_share * fair
            + order.partition * (factors[job.partition] if job.partition < len(factors) else 0)
            + order.qos * (job.qos / best if best else 0)
        )
        return math.floor(score + 1e-6)  # whatever the last bits of a score that is whole in truth

    def rank(self, job):
        """Score of a job now, the lowest first."""
        order, cores = self.order, job.demand.get(self.first, 0)
        if self.priority_of is not None:
            return -self.priority_of(job.number, self.now)
        match order:
            case Fcfs():
                return 0
            case Sjf():
                return job.request
            case Wfp():
                width = cores if order.pool is None else job.demand.get(list(self.pools)[order.pool], 0)
                return -(((self.now - job.submit) / job.request) ** 3 * width)
            case F1():
                since = math.log10(job.submit - min(other.submit for other in self.jobs) + 1)
                return {
                    1: math.log10(job.request) * cores + 870 * since,
                    2: math.sqrt(job.request) * cores + 25600 * since,
                    3: job.request * cores + 6860000 * since,
                    4: job.request * math.sqrt(cores) + 530000 * since,
                }[order.number]
            case Multifactor():
                return -self.multifactor(job)
        raise NotImplementedError(order)

    def queue(self):
        """Who waits, in order, without those that ask for more than the machine has now: they are passed over."""
        waiting = [job for job in self.jobs if job.state == "pending" and job.submit <= self.now]
        waiting = [job for job in waiting if fits(job.demand, self.capacity())]
        return sorted(waiting, key=lambda job: (self.rank(job), job.submit, job.number))

    # ---- the future, as the scheduler knows it

    def free(self, planned):
        """What is free in each second from now on, if running jobs use up their requests and plans come true."""
        seconds = sum(job.request for job in self.jobs) + 2
        if isinstance(self.backfill, Periodic):
            seconds += len(self.jobs) * self.backfill.resolution_s
        capacity = self.capacity()
        room = [dict(capacity) for _ in range(seconds)]
        for begin, end, demand in [(self.now, job.limit, job.demand) for job in self.running] + [
            (at, at + job.request, job.demand) for at, job in planned
        ]:
            for second in room[begin - self.now : end - self.now]:
                for pool, amount in demand.items():
                    second[pool] -= amount
        return room

    def earliest(self, job, planned, resolution=1):
        """First second, now or a multiple of the resolution, from which all that a job requests is free."""
        room = self.free(planned)
        return next(
            self.now + wait
            for wait in range(len(room) - job.request + 1)
            if wait == 0 or (self.now + wait) % resolution == 0
            if all(fits(job.demand, second) for second in room[wait : wait + job.request])
        )

    # ---- what happens

    def second(self):
        """Live through one second."""
        happened = self.complete() | self.change() | any(job.submit == self.now for job in self.jobs)
        self.owed |= happened
        reserved = isinstance(self.backfill, Conservative) and any(job.reserved == self.now for job in self.jobs)
        if happened or reserved:
            go = self.conservative if isinstance(self.backfill, Conservative) else self.in_order
            while go():
                pass
        if isinstance(self.backfill, Periodic) and self.owed and self.now % self.backfill.interval_s == 0:
            self.periodic()
            self.owed = False
        self.now += 1

    def over(self):
        """Nothing will happen any more."""
        return not (
            self.running
            or any(job.submit >= self.now or job.reserved is not None for job in self.jobs)
            or any(self.now <= at < NEVER for outage in self.outages for at in (outage.begin_s, outage.end_s))
            or (isinstance(self.backfill, Periodic) and self.owed)
        )

    def start(self, job):
        job.state, job.start, job.reserved = "running", self.now, None

    def stop(self, job, state):
        self.history.append((job.user, job.demand.get(self.first, 0), job.start, self.now))
        job.state, job.end = state, self.now
        if state == "pending":
            job.start = job.end = -1

    def complete(self):
        ending = [job for job in self.running if job.due == self.now]
        for job in ending:
            self.stop(job, "timeout" if job.run > job.request else "completed")
            self.early |= job.run < job.request
        return bool(ending)

    def change(self):
        """Take back what returns in this second, then let go what goes away, one outage after the other."""
        self.away = [outage for outage in self.outages if outage.begin_s < self.now < outage.end_s]
        for outage in self.outages:
            if outage.begin_s == self.now:
                before = self.idle()
                self.away.append(outage)
                while not outage.drain and (victim := self.last_on(outage, before)):
                    self.stop(victim, "pending" if self.requeue else "lost")
        changed = any(self.now in {outage.begin_s, outage.end_s} for outage in self.outages)
        self.anew |= changed
        return changed

    def last_on(self, outage, before):
        """Who started last of those that hold what this outage lacks, apart from what drains overdrew before."""
        room = self.idle()
        short = {pool for pool, amount in outage.amounts.items() if amount > 0 and room[pool] < min(before[pool], 0)}
        holders = [job for job in self.running if any(job.demand.get(pool, 0) > 0 for pool in short)]
        return max(holders, key=lambda job: (job.start, job.number), default=None)

    # ---- passes: True if a pass has to begin anew

    def in_order(self):
        """Without backfilling, and EASY."""
        easy, blocked, planned = isinstance(self.backfill, Easy), set(), []
        for job in self.queue():
            if job.partition in blocked:
                if easy and self.earliest(job, planned) == self.now:
                    self.start(job)
            elif fits(job.demand, self.idle()) and (not planned or self.earliest(job, planned) == self.now):
                self.start(job)
            elif not fits(job.demand, self.idle()) and self.make_way(job):
                return True
            else:
                blocked.add(job.partition)
                if easy:
                    planned.append((self.earliest(job, planned), job))
        return False

    def others_reserved(self, job):
        return [(other.reserved, other) for other in self.jobs if other.reserved is not None and other is not job]

    def move(self):
        """Give reservations up where resources went or came, or move them where something ended early."""
        if self.anew:
            for job in self.jobs:
                job.reserved = None
        elif self.early:
            for job in self.queue():
                if job.reserved is not None:
                    job.reserved = min(job.reserved, self.earliest(job, self.others_reserved(job)))
        self.anew = self.early = False

    def conservative(self):
        self.move()
        blocked = set()
        for job in self.queue():
            if job.partition not in blocked and not fits(job.demand, self.idle()):
                if self.make_way(job):
                    return True
                blocked.add(job.partition)
            if job.reserved is None:
                job.reserved = self.earliest(job, self.others_reserved(job))
            if job.reserved == self.now:
                self.start(job)
        return False

    def periodic(self):
        planned = []
        for job in self.queue()[: self.backfill.depth]:
            at = self.earliest(job, planned, self.backfill.resolution_s)
            if at == self.now:
                self.start(job)
            elif at <= self.now + self.backfill.window_s:
                planned.append((at, job))

    def make_way(self, job):
        """End running jobs of lower quality of service and start this one in their place, if that is enough."""
        if self.preempt == "off":
            return False
        room, victims = self.idle(), []
        for other in sorted(self.running, key=lambda other: (other.qos, -other.start, -other.number)):
            missing = [pool for pool, amount in job.demand.items() if amount > max(room[pool], 0)]
            if other.qos < job.qos and any(other.demand.get(pool, 0) > 0 for pool in missing):
                victims.append(other)
                for pool, amount in other.demand.items():
                    room[pool] += amount
        if not fits(job.demand, room):
            return False
        for other in victims:
            self.stop(other, "pending" if self.preempt == "requeue" else "preempted")
        self.anew = True
        self.start(job)
        return True


def simulate(pools, jobs, *, order, backfill, preempt="off", requeue=True, outages=(), partitions=1, priority_of=None):
    """(start, end, state) of each job; of its last run if it was requeued.

    `pools` maps names to sizes, cores first; `jobs` are dicts of submit, run, request, demand (by pool), and perhaps
    user, qos and partition, by submission. `priority_of(number, now)`, if given, stands in for the order: the highest
    first. Jobs that can never start stay at (-1, -1, "pending").
    """
    plain = [PlainJob(number, **({"user": 0, "qos": 0, "partition": 0} | job)) for number, job in enumerate(jobs)]
    assert all(0 <= job.partition < partitions and fits(job.demand, pools) for job in plain)
    cluster = PlainCluster(pools, plain, order, backfill, preempt, requeue, list(outages), priority_of)
    cluster.now = min([job.submit for job in plain] + [outage.begin_s for outage in outages], default=0)
    while not cluster.over():
        cluster.second()
    return [(job.start, job.end, job.state) for job in plain]
