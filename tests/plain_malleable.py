"""A machine with malleable jobs that is slow and plain: second by second, written apart from the core, to check it.

Nothing is remembered that could be worked out again, and whoever may check is asked, whether anything has changed or
not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from asa.backends.dmr.applications import ApplicationKind
from asa.backends.dmr.policy import Action, decide


def whole(seconds):
    return ceil(seconds - 1e-6)


@dataclass
class PlainJob:
    """A job of the background."""

    row: int
    submit: int
    run: int
    request: int
    cores: int
    described: object = None
    state: str = "pending"
    held: int = 0
    size: int = 0  # that it computes on
    left: float = 1.0  # share of its work, at `since`
    limit: float = 1.0  # share of its request
    since: float = 0.0
    slower: float = 1.0
    checked: int = 0
    busy_until: int | None = None
    wants: int = 0  # cores of its resizer job that waits
    answer: object = None
    start: int = -1
    end: int = -1
    sizes: list = field(default_factory=list)

    @property
    def due(self):
        return whole(self.since + self.run * self.slower * self.left)

    @property
    def expected(self):
        return max(whole(self.since + self.request * self.slower * self.limit), self.due)

    @property
    def checks(self):
        return self.described is not None and self.described.kind is not ApplicationKind.MOLDABLE


class PlainMachine:
    """A machine that goes through the whole queue, and asks every job, at every second."""

    def __init__(self, capacity, table, described, costs, *, asynchronous=False, older_s=0.0):
        columns = zip(table.submit, table.run, table.request, table.cores, strict=True)
        self.jobs = [PlainJob(row, *map(int, job), described(row)) for row, job in enumerate(columns)]
        self.capacity, self.costs, self.asynchronous = capacity, costs, asynchronous
        self.older_s = older_s  # that a core makes a job
        self.promoted, self.resizers, self.now = [], [], 0

    def free(self):
        return self.capacity - sum(job.held for job in self.jobs if job.state == "running")

    def running(self):
        return [job for job in self.jobs if job.state == "running"]

    def queue(self):
        waits = [job for job in self.jobs if job.state == "pending" and job.submit <= self.now]
        waits.sort(key=lambda job: job.submit - self.older_s * job.cores)
        return self.promoted + [job for job in waits if job not in self.promoted]

    def slower(self, job, size):
        run_s = job.described.application.run_s
        slower = run_s(size) / run_s(job.cores)
        return slower * (1 + self.costs.none_s / job.described.application.period_s if job.checks else 1)

    def options(self, job):
        """Sizes to start with, and what is asked for with each."""
        if job.described is None or job.described.kind is not ApplicationKind.MOLDABLE:
            return [(job.cores, job.request)]
        return [(size, whole(job.request * self.slower(job, size))) for size in job.described.starts_on()]

    def run(self):
        while any(job.state != "ended" for job in self.jobs):
            self.second()
            self.now += 1

    def second(self):
        for job in self.running():
            if job.due <= self.now:
                job.state, job.end, job.busy_until = "ended", self.now, None
                self.resizers = [one for one in self.resizers if one is not job]
                self.note(job)
        for job in self.running():
            if job.busy_until == self.now:
                job.busy_until = None
                self.resizers = [one for one in self.resizers if one is not job]
                if job.wants:
                    job.wants = 0
                else:
                    self.hold(job, job.size)
        self.fill()
        while self.ask():
            self.fill()

    def note(self, job):
        """Close the span that a job has held its cores for."""
        since = job.sizes.pop()[0]
        if self.now > since:
            job.sizes.append((since, self.now, job.held))

    def hold(self, job, cores):
        self.note(job)
        job.held = cores
        job.sizes.append((self.now,))

    # ------------------------------------------------------------------ the queue

    def reserve(self, need):
        back = []  # when how many cores are expected to come back
        for job in self.running():
            leaving = 0 if job.busy_until is None or job.wants else job.held - job.size
            back += [(job.busy_until, leaving)] * (leaving > 0) + [
                (max(job.expected, self.now + 1), job.held - leaving)
            ]
        for moment in sorted({moment for moment, _ in back}):
            free = self.free() + sum(cores for other, cores in back if other <= moment)
            if free >= need:
                return moment, free - need
        raise AssertionError("it never fits")

    def fill(self):
        head = None
        for job in list(self.resizers):
            if job.wants <= self.free():
                self.resizers.remove(job)
                self.join(job, job.wants)
            elif head is None:
                head = self.reserve(job.wants)
        for job in self.queue():
            options = self.options(job)
            if options[-1][0] > self.free():
                head = head or self.reserve(options[-1][0])
                continue
            for size, lasts in options:
                if size > self.free():
                    continue
                if head is not None and self.now + lasts > head[0]:
                    if size > head[1]:
                        continue
                    head = head[0], head[1] - size
                self.begin(job, size)
                break

    def begin(self, job, size):
        if job in self.promoted:
            self.promoted.remove(job)
        job.state, job.start, job.held, job.size = "running", self.now, size, size
        job.since, job.checked = float(self.now), self.now
        job.slower = 1.0 if job.described is None else self.slower(job, size)
        job.sizes.append((self.now,))

    # ------------------------------------------------------------------ checks

    def ask(self):
        """Ask those who may check, until somebody is to do something."""
        for job in self.running():
            may = job.checks and job.busy_until is None and self.now >= whole(job.since) and self.now > job.checked
            if may and (self.now - job.checked) % job.described.application.period_s == 0 and self.check(job):
                return True
        return False

    def check(self, job):
        answer, job.answer = job.answer, None
        if answer is None:
            self.account(job)
            done = int(job.described.application.iterations * (1 - job.left) + 1e-6)
            free, queue = self.open()
            needs = [self.options(other)[-1][0] for other in queue]
            answer = decide(job.held, job.described.wish(done), free=free, queued=needs)
            if answer.action is Action.NONE:
                return False
            if answer.promotes is not None and queue[answer.promotes] not in self.promoted:
                self.promoted.append(queue[answer.promotes])
            if self.asynchronous:
                job.answer, job.checked = answer, self.now
                return True
        job.checked = self.now
        if answer.action is Action.SHRINK:
            lasts = self.costs.resize_s(job.size, answer.nodes, job.described.application.data_gb)
            self.go_on(job, answer.nodes, lasts)
            if whole(lasts):
                job.busy_until = self.now + whole(lasts)
            else:
                self.hold(job, answer.nodes)
        elif answer.nodes - job.held <= self.free():
            self.join(job, answer.nodes - job.held)
        else:
            self.go_on(job, job.size, self.costs.timeout_s)
            job.wants, job.busy_until = answer.nodes - job.held, self.now + whole(self.costs.timeout_s)
            self.resizers.append(job)
        return True

    def open(self):
        """What nothing was promised of: free cores, and queued jobs that no cores are on their way to."""
        left = self.free() - sum(one.wants for one in self.resizers)
        for other in self.running():
            if other.busy_until is not None and not other.wants:
                left += other.held - other.size
            elif other.answer is not None and other.answer.action is Action.SHRINK:
                left += other.held - other.answer.nodes
        waits = []
        for other in self.queue():
            need = self.options(other)[-1][0]
            if other in self.promoted and need <= left:
                left -= need
            else:
                waits.append(other)
        return max(min(self.free(), left), 0), waits

    def account(self, job):
        passed = max(self.now - job.since, 0.0)
        job.left = max(job.left - passed / (job.run * job.slower), 0.0)
        job.limit -= passed / (job.request * job.slower)
        job.since = max(job.since, float(self.now))

    def go_on(self, job, size, pause):
        self.account(job)
        job.since += pause
        job.size, job.slower = size, self.slower(job, size)

    def join(self, job, more):
        job.wants, job.busy_until = 0, None
        job.since = min(job.since, float(self.now))
        lasts = self.costs.resize_s(job.size, job.size + more, job.described.application.data_gb)
        self.hold(job, job.held + more)
        self.go_on(job, job.size + more, lasts)
