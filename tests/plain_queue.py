"""A queue that is slow and plain: second by second, written apart from the engine, to check it against.

Nothing is remembered between seconds that could be looked up again, and every question is answered by going through
all jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from asa.backend import DependencyType


@dataclass
class PlainJob:
    """A job of anybody's."""

    submit: int
    run: int
    request: int
    cores: int
    exit_code: int = 0
    needs: tuple = ()
    begin: int = 0
    held: bool = False
    awaits: frozenset = frozenset()
    posts: frozenset = frozenset()
    state: str = "pending"
    eligible: int | None = None
    order: int = -1  # of becoming eligible
    start: int = -1
    payload: int = -1
    end: int = -1
    launched: int = -1  # of being started

    @property
    def over(self):
        return self.state not in ("pending", "running")

    @property
    def due(self):
        """Return its end if nothing more happens."""
        limit = self.start + self.request
        return limit if self.payload < 0 else min(self.payload + self.run, limit)


@dataclass
class PlainQueue:
    """A machine and its queue. `second` lives through one second; a client acts at the end of it."""

    capacity: int
    background: list
    age_accrues: bool = True
    backfill: bool = True
    now: int = 0
    clients: list = field(default_factory=list)
    posted: set = field(default_factory=set)
    counted: int = 0

    def __post_init__(self):
        self.others = [
            PlainJob(submit, min(run, request), request, cores) for submit, run, request, cores in self.background
        ]

    @property
    def jobs(self):
        return [job for job in self.others if job.submit <= self.now] + self.clients

    def count(self):
        self.counted += 1
        return self.counted

    def running(self):
        return [job for job in self.jobs if job.state == "running"]

    def free(self):
        return self.capacity - sum(job.cores for job in self.running())

    def waiting(self):
        """Eligible jobs in queue order: by the time since which their age counts, then by when they became eligible."""
        queued = [job for job in self.jobs if job.state == "pending" and job.eligible is not None]
        return sorted(queued, key=lambda job: (job.submit if self.age_accrues else job.eligible, job.order))

    def second(self, act=None):
        self.complete()
        self.look()
        while self.fill() | self.look():
            pass
        if act:
            act(self)
        while self.fill() | self.look():
            pass
        self.now += 1

    def complete(self):
        while ending := [job for job in self.running() if job.due <= self.now]:
            job = min(ending, key=lambda job: job.launched)
            job.end = self.now
            if job.payload < 0 or job.payload + job.run > job.start + job.request:
                job.state = "timeout"
            else:
                job.state = "completed" if job.exit_code == 0 else "failed"
            self.settle(job)

    def settle(self, job):
        if job.state == "completed":
            self.posted |= job.posts
            for other in self.running():
                if other.payload < 0 and other.awaits <= self.posted:
                    other.payload = self.now

    def look(self):
        """Make eligible what nothing keeps back: clients' jobs first, then what the others submit this second."""
        found = False
        for job in self.clients + [job for job in self.others if job.submit == self.now]:
            if job.state == "pending" and job.eligible is None and not job.held and self.is_free(job):
                job.eligible, job.order, found = self.now, self.count(), True
        return found

    def is_free(self, job):
        if job.begin > self.now:
            return False
        for on, kind, delay, or_end in job.needs:
            other = self.clients[on]
            if or_end and other.over:
                continue
            if kind is DependencyType.AFTER:
                began = other.start if other.start >= 0 else other.end if other.over else None
                if began is None or began + delay > self.now:
                    return False
            elif not other.over or (kind is DependencyType.AFTEROK and other.state != "completed"):
                return False
        return True

    def fill(self):
        """One scheduling pass."""
        started = False
        while (queue := self.waiting()) and queue[0].cores <= self.free():
            self.launch(queue[0])
            started = True
        if not queue or not self.backfill:
            return started
        need = queue[0].cores
        promised = sorted((job.start + job.request, job.cores) for job in self.running())
        shadow = next(
            end for end, _ in promised if self.free() + sum(cores for other, cores in promised if other <= end) >= need
        )
        extra = self.free() + sum(cores for end, cores in promised if end <= shadow) - need
        for job in queue[1:]:
            if job.cores > self.free():
                continue
            if self.now + job.request > shadow:
                if job.cores > extra:
                    continue
                extra -= job.cores
            self.launch(job)
            started = True
        return started

    def launch(self, job):
        job.state, job.start, job.launched = "running", self.now, self.count()
        if job.awaits <= self.posted:
            job.payload = self.now

    def submit(self, **given):
        self.clients.append(PlainJob(submit=self.now, **given))
        self.look()

    def cancel(self, number):
        job = self.clients[number]
        if not job.over:
            job.state, job.end = "cancelled", self.now
            self.settle(job)

    def hold(self, number):
        job = self.clients[number]
        if job.state == "pending":
            job.held, job.eligible = True, None

    def release(self, number):
        job = self.clients[number]
        if job.state == "pending" and job.held:
            job.held = False
            self.look()


def simulate(capacity, jobs, *, backfill=True):
    """Start times of jobs that nobody touches: (submit, run, request, cores) in queue order."""
    queue = PlainQueue(capacity, jobs, backfill=backfill)
    while any(not job.over for job in queue.others):
        queue.second()
    return [job.start for job in queue.others]
