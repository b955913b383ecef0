"""Measures the speed of the planner, on a cluster and with jobs like the paper's, as in its figures (Section 6)."""

from __future__ import annotations

import gc
import json
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from asa.backends.openccs.jobs import Entry, JobPhase
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import ResourceRequest
from asa.backends.openccs.system import oculus
from asa.core.documents import read_json

_MIX = (
    # cores, share of jobs, hours: walltimes, which are Example 3's run times divided by their accuracy
    (16, 0.400, 24),
    (32, 0.068, 63),
    (1024, 0.002, 29),
    (768, 0.003, 25),
    (64, 0.027, 28),
    (128, 0.098, 4),
    (256, 0.005, 33),
    (1536, 0.0005, 25),
    (512, 0.001, 26),
    (1, 0.3955, 5),
)
"""Jobs by cores, as in Example 3; of the one-core jobs, most of which come as arrays, only a part."""
_LONGER = 2
"""Factor on the walltimes, so that 10,000 jobs fill the eight to ten weeks of the paper's plan."""
_SPLITS = (1, 2, 4, 8, 16)
_PER_NODE = 16


@dataclass(frozen=True, slots=True)
class PlannerFigure:
    """A measured value, and the paper's, which used 8 pinned threads of C."""

    what: str
    value: float  # with one process, on one core
    unit: str
    papers: float | None  # the paper's; None if it has none
    more_is_better: bool = True

    @property
    def times_papers(self) -> float | None:
        """Factor by which it is better than the paper's."""
        if self.papers is None or not self.value:
            return None
        return self.value / self.papers if self.more_is_better else self.papers / self.value


class Effort(NamedTuple):
    """The time to place a request into a plan with a number of jobs, whose cores' vector has a number of slots."""

    jobs: int
    slots: int
    plan_us: float  # microseconds to place a request


@dataclass(frozen=True, slots=True)
class Speed:
    """All measured values."""

    figures: tuple[PlannerFigure, ...]
    slots: int  # slots of the cores' vector and length of the plan, with 10,000 jobs in it
    weeks: float
    # plans with more and more jobs, which become longer: jobs, slots, and microseconds to place a request
    longer: tuple[Effort, ...]
    # the part of planning a request that threads could share, at most: the pass over the vectors of all nodes
    threads_share: float
    flat: tuple[Effort, ...]  # the same for plans with equal work in more and more, smaller jobs

    def as_json(self) -> str:
        """Return the values as JSON."""
        return json.dumps(
            {
                "figures": [asdict(figure) | {"times_papers": figure.times_papers} for figure in self.figures],
                "slots": self.slots,
                "weeks": self.weeks,
                "threads_share": self.threads_share,
                "longer": [timing._asdict() for timing in self.longer],
                "flat": [timing._asdict() for timing in self.flat],
            },
            indent=1,
        )


def requests(seed: int, split: int = 1) -> Iterator[ResourceRequest]:
    """Yield requests like those of the paper's Example 3, without end; walltimes are round numbers, as users give them.

    `split`: each request is divided into this number of requests of the same length, with the same number of cores in
    total.
    """
    rng = random.Random(seed)
    cores, shares, hours = zip(*_MIX, strict=True)
    while True:
        [kind] = rng.choices(range(len(_MIX)), shares)
        long = _LONGER * hours[kind] * rng.choice((0.25, 0.5, 1.0, 1.0, 1.5, 2.0))
        walltime_s = 3600 * max(round(long) if long < 12 else 12 * round(long / 12), 1)
        memory, has_gpu = rng.choice((1, 2, 4)), cores[kind] == _PER_NODE and rng.random() < 0.02
        pieces = min(split, cores[kind])
        for piece in range(pieces):
            wide = (cores[kind] * (piece + 1)) // pieces - (cores[kind] * piece) // pieces
            each = min(wide, _PER_NODE)
            gpu = ":gpus=1" if has_gpu and not piece else ""
            yield ResourceRequest.parse(
                f"rset={-(-wide // _PER_NODE)}:ncpus={each}:mem={memory * each}g{gpu},walltime={walltime_s}s"
            )


def filled(jobs: int, *, seed: int = 1, entries: list[Entry] | None = None) -> RequestPlan:
    """Return a plan with a number of jobs; the jobs that can start at once run."""
    plan = RequestPlan(oculus(), on_entry=entries.append if entries is not None else None)
    for request, _ in zip(requests(seed), range(jobs), strict=False):
        plan.submit(request, now=0)
    for job in plan.due(0):
        plan.begin(job.id, now=0)
    return plan


def _plan_array(plan: RequestPlan, array: ResourceRequest) -> None:
    plan.submit(array, now=60)
    while plan.plan_later(now=60):
        pass


def measure(on_progress: Callable[[str], None] = lambda _: None, *, jobs: int = 10_000) -> Speed:
    """Measure everything; takes about a minute. `jobs`: number in the plan; the paper has 10,000."""
    filled(50)  # compiles the code first
    figures: list[PlannerFigure] = []
    on_progress("filling the plan")
    plan, longer = _growing(jobs)
    cores = plan.cluster.used["ncpus"]
    last = max(job.placement.end for job in plan.jobs.values() if job.placement is not None)
    slots, weeks = len(cores), last / (7 * 86_400)
    share = _threads_share(plan)
    on_progress("backfilling")
    figures.append(PlannerFigure("backfills", _backfills(plan), "1/s", 500))
    on_progress("submitting")
    figures.append(PlannerFigure("submissions", _submissions(plan), "1/s", 100))
    on_progress("planning an array")
    array = ResourceRequest.parse(f"rset=ncpus=1,walltime=2h,array=0-{jobs - 1}")
    seconds = _timed(lambda: _plan_array(plan, array))
    figures.append(PlannerFigure(f"an array of {jobs:,} jobs", seconds, "s", 30 * jobs / 10_000, more_is_better=False))
    on_progress("recovering")
    figures.append(PlannerFigure(f"{jobs // 2:,} jobs recovered", _recovery(jobs // 2), "s", 20 * jobs / 10_000, False))  # noqa: FBT003
    on_progress("sorting")
    many = [job for job in plan.jobs.values() if job.phase is JobPhase.PLANNED]
    many = (many * (60_000 // len(many) + 1))[:60_000]
    random.Random(1).shuffle(many)
    sort = _timed(lambda: plan.in_order(many))
    figures.append(PlannerFigure("60,000 jobs sorted by priority", 1000 * sort, "ms", 20, more_is_better=False))
    on_progress("measuring memory")
    for request, _ in zip(requests(5), range(max(3 * jobs // 2 - len(plan.jobs), 0)), strict=False):
        plan.submit(request, now=60)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.append(PlannerFigure(f"memory with {len(plan.jobs):,} jobs", megabytes, "MB", 6_000, more_is_better=False))
    on_progress("splitting jobs")
    return Speed(tuple(figures), slots, weeks, longer, share, tuple(_split(jobs // 4)))


def _timed(act: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _growing(jobs: int) -> tuple[RequestPlan, tuple[Effort, ...]]:
    """Fill a plan, and measure meanwhile how long it takes to place some requests."""
    plan, source = RequestPlan(oculus()), requests(1)
    efforts = []
    for step in sorted({jobs // 20, jobs // 10, jobs // 5, 2 * jobs // 5, 3 * jobs // 5, 4 * jobs // 5, jobs}):
        while len(plan.jobs) < step:
            plan.submit(next(source), now=0)
        efforts.append(_effort(plan))
    for job in plan.due(0):
        plan.begin(job.id, now=0)
    return plan, tuple(efforts)


def _split(jobs: int) -> Iterator[Effort]:
    """Measure plans with equal work, divided into increasing numbers of jobs."""
    for split in _SPLITS:
        plan, source = RequestPlan(oculus()), requests(1, split)
        work, whole = 0, _work(jobs)
        while work < whole:
            request = next(source)
            plan.submit(request, now=0)
            work += request.job_set()["ncpus"] * (request.walltime_s or 0)
        yield _effort(plan)


def _work(jobs: int) -> int:
    """Return the sum of core-seconds."""
    drawn = (request for request, _ in zip(requests(1), range(jobs), strict=False))
    return sum(request.job_set()["ncpus"] * (request.walltime_s or 0) for request in drawn)


def _effort(plan: RequestPlan) -> Effort:
    probes = [plan.cluster.prepare(request) for request, _ in zip(requests(99), range(100), strict=False)]
    seconds = min(_timed(lambda: [plan.cluster.find(ask, 0) for ask in probes]) for _ in range(3))
    return Effort(len(plan.jobs), len(plan.cluster.used["ncpus"]), 1e6 * seconds / len(probes))


def _threads_share(plan: RequestPlan) -> float:
    """Return the share of a search that ends after the first time window, in a search without an end.

    Up to there each node's vector is looked at, which threads could share; after that the few that change. The sums of
    the whole system are in both: the share is an upper bound.
    """
    probes = [plan.cluster.prepare(request) for request, _ in zip(requests(99), range(100), strict=False)]
    whole = min(_timed(lambda: [plan.cluster.find(ask, 0) for ask in probes]) for _ in range(3))
    first = min(_timed(lambda: [plan.cluster.find(ask, 0, ask.lasts_s) for ask in probes]) for _ in range(3))
    return first / whole


def _backfills(plan: RequestPlan) -> float:
    """End three of the running jobs early, one after the other, and replan each time; return the time."""
    running = [job for job in plan.jobs.values() if job.phase is JobPhase.RUNNING]
    looked, seconds = 0, 0.0
    for number, job in enumerate(running[::10][:3]):
        now = 60 + number
        plan.end(job.id, now=now)
        looked += sum(j.phase is JobPhase.PLANNED and (j.start_s or 0) > now for j in plan.jobs.values())
        seconds += _timed(partial(plan.backfill, now=now, passes=1))
        _begin(plan, now)
    return looked / seconds


def _submissions(plan: RequestPlan, many: int = 1000) -> float:
    """Submit best-effort jobs with chunks of two cores, as in the paper, and jobs of the usual mix, in turn."""
    small = ResourceRequest.parse("rset=4:ncpus=2,walltime=120s")
    source = requests(7)
    mixed = [next(source) if number % 2 else small for number in range(many)]

    def submit(them: Sequence[ResourceRequest]) -> None:
        for request in them:
            plan.submit(request, now=60)

    return many / _timed(lambda: submit(mixed))


def _recovery(jobs: int) -> float:
    entries: list[Entry] = []
    plan = filled(jobs, entries=entries)
    written = [json.dumps(entry) for entry in entries]
    again: list[RequestPlan] = []
    seconds = _timed(lambda: again.append(RequestPlan.reload(plan.system, map(read_json, written))))
    if {name: job.start_s for name, job in again[0].jobs.items()} != {n: j.start_s for n, j in plan.jobs.items()}:
        raise AssertionError("the plan is not the plan that it was")
    return seconds


def _begin(plan: RequestPlan, now: int) -> None:
    for job in plan.due(now):
        plan.begin(job.id, now=now)
