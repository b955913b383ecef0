# ruff: noqa: T201, C901, PLR0912, PLR0915 - it prints its tables; the model is a world in a function
"""Compares a pool that asks ahead of time with dask-jobqueue's `SLURMCluster.adapt`, which follows demand.

    python tools/against_jobqueue.py model [--rounds N]            both rules on a simulated machine
    python tools/against_jobqueue.py log LOG ... [--rounds N]      both rules on simulated machines under real logs
    python tools/against_jobqueue.py slurm [--rounds N]            both packages on real Slurm daemons

The work is a graph of wide waves with a single task between two of them, as `client.map`, a reduction and the next
`client.map` make it; or one long wave that outlasts several walltimes. The machine is full of others' jobs, and a
constant number of them waits. The comparison on real daemons needs `dask-jobqueue` and Slurm; tasks sleep, so the cores
need not exist, while waits, workers and messages are real.

The model replaces dask by the rules that decide: for the pool, `asa.pool.planning.decide`; for dask-jobqueue, dask's
rule for the number of workers (`Scheduler.adaptive_target`, `AdaptiveCore.recommendations`, with their defaults), once
a second. Tasks begin in order on free cores; in both, a worker that leaves ends its tasks first. Under a log, both look
every 15 seconds, since runs take hours: jobs have a twelfth of the machine each, at most three of them, for four hours.
The work keeps them busy for twelve hours, in one wave of tasks of ten minutes, or in three waves half an hour apart.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

# the tests start the daemons, and have replacements for them
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from slurm_testbed import SCRIPT, Testbed, missing

from asa.backend import JobSpec, JobState
from asa.estimators import WaitBank
from asa.pool.planning import decide, drain_from_s
from asa.pool.values import AllocationShape, Decision, PoolRules, TaskKind, View
from asa.sites import open_facility
from asa.waits import QueuedJob, QueueEvent

CORES = 28  # of a job, which is a node of the testbed
MAX_JOBS = 3


@dataclass(frozen=True)
class Graph:
    """Waves of equal tasks, with a single task between two waves."""

    waves: int
    tasks: int
    task_s: float
    between_s: float
    walltime_s: float = 1800.0
    cores: int = CORES
    step_s: float = 0.5

    @property
    def margin_s(self) -> float:
        """Seconds before the end of its walltime at which a job is left."""
        return min(self.walltime_s / 10, 60.0)

    @property
    def steps(self) -> list[tuple[int, float]]:
        """Return the number and the length of the tasks of each step."""
        wide, narrow = (self.tasks, self.task_s), (1, self.between_s)
        return [step for _ in range(self.waves) for step in (wide, narrow)]

    @property
    def work_s(self) -> float:
        return sum(tasks * task_s for tasks, task_s in self.steps)


@dataclass
class Told:
    """The results of a run."""

    who: str
    makespan_s: float
    first_s: float
    all_s: float
    allocated_h: float
    used_h: float
    jobs: int
    cancelled: int


GRAPHS = {
    "waves": Graph(waves=2, tasks=336, task_s=10.0, between_s=45.0),
    "long": Graph(waves=1, tasks=2016, task_s=10.0, between_s=1.0, walltime_s=120.0),
    "longer": Graph(waves=1, tasks=4032, task_s=10.0, between_s=1.0, walltime_s=120.0),
}


def show(title: str, told: list[Told], by: str = "jobqueue") -> None:
    """Print a line for each of the two, with medians over the rounds, and the results of each round."""
    print(f"\n{title}")
    heads = ("", "makespan", "first", f"all {MAX_JOBS}", "allocated", "used", "jobs", "cancelled pending")
    print("{:10} {:>9} {:>7} {:>7} {:>10} {:>7} {:>5} {:>18}".format(*heads))
    middle: dict[str, Told] = {}
    for who in dict.fromkeys(one.who for one in told):
        mine = [one for one in told if one.who == who]
        names = ("makespan_s", "first_s", "all_s", "allocated_h", "used_h", "jobs", "cancelled")
        middle[who] = m = Told(who, *(statistics.median(getattr(one, name) for one in mine) for name in names))
        print(
            f"{who:10} {m.makespan_s:7.0f} s {m.first_s:5.0f} s {m.all_s:5.0f} s {m.allocated_h:8.2f} h"
            f" {m.used_h:5.2f} h {m.jobs:5g} {m.cancelled:18g}   {', '.join(f'{o.makespan_s:.0f}' for o in mine[:8])}"
        )
    for who in middle:
        if who != by and by in middle:
            pairs = list(zip((t for t in told if t.who == who), (t for t in told if t.who == by), strict=True))
            time_ = statistics.geometric_mean(mine.makespan_s / theirs.makespan_s for mine, theirs in pairs)
            hours = statistics.geometric_mean(mine.allocated_h / theirs.allocated_h for mine, theirs in pairs)
            print(
                f"{who} over {by}, geometric means of {len(pairs)} rounds: makespan {time_:.2f}, core-hours {hours:.2f}"
            )


# ---------------------------------------------------------------------- the model


class Machine:
    """Others' jobs and ours on a number of cores: in order of submission, with backfilling that delays no job."""

    def __init__(self, seed: int, cores: int = 112, waiting: int = 6) -> None:
        self.random, self.cores, self.waiting = random.Random(seed), cores, waiting
        self.now = 0.0
        self.queue: list[tuple[str, int, float, float]] = []  # name, cores, walltime, run time
        self.running: dict[str, tuple[int, float, float]] = {}  # cores, end, latest end by the walltime
        self.count = 0
        self.events: list[QueueEvent] = []

    def submit(self, name: str, cores: int, walltime_s: float, run_s: float) -> None:
        self.queue.append((name, cores, walltime_s, run_s))
        self.events.append(QueueEvent("submitted", name, self.now, QueuedJob(self.now, cores, walltime_s)))

    def end(self, name: str) -> None:
        if any(job[0] == name for job in self.queue):
            self.events.append(QueueEvent("left", name, self.now))
        self.queue = [job for job in self.queue if job[0] != name]
        if self.running.pop(name, None) is not None:
            self.events.append(QueueEvent("ended", name, self.now))

    def advance(self, by_s: float) -> list[str]:
        """Advance the clock; return which of our jobs started."""
        self.now += by_s
        for name in [name for name, (_, ends_s, _) in self.running.items() if ends_s <= self.now]:
            del self.running[name]
            self.events.append(QueueEvent("ended", name, self.now))
        while sum(job[0].startswith("other") for job in self.queue) < self.waiting:
            self.count += 1
            self.submit(f"other{self.count}", *other_job(self.random))
        started, free = [], self.cores - sum(cores for cores, _, _ in self.running.values())
        shadow_s, spare = math.inf, 0
        for job in list(self.queue):
            name, cores, walltime_s, run_s = job
            fits = cores <= free and (shadow_s == math.inf or self.now + walltime_s <= shadow_s or cores <= spare)
            if fits:
                free -= cores
                spare -= cores if shadow_s < math.inf and self.now + walltime_s > shadow_s else 0
                self.queue.remove(job)
                self.running[name] = (cores, self.now + run_s, self.now + walltime_s)
                started.append(name)
                self.events.append(QueueEvent("started", name, self.now))
            elif shadow_s == math.inf:  # the first job that must wait gets the earliest certain start
                there = free
                for held, _, until_s in sorted(self.running.values(), key=lambda one: one[2]):
                    there += held
                    if there >= cores:
                        shadow_s, spare = until_s, there - cores
                        break
        return [name for name in started if not name.startswith("other")]


class Logged:
    """Our jobs on a machine that replays a log, from a time that the seed draws."""

    def __init__(self, site: Any, seed: int) -> None:
        self.queue = site.open(seed)
        self.cores = self.queue.capabilities.max_cores
        self.names: dict[str, str] = {}
        self.events: list[QueueEvent] = list(self.queue.queue_events(2000, ends=True))

    @property
    def now(self) -> float:
        return self.queue.now()

    def submit(self, name: str, cores: int, walltime_s: float, run_s: float) -> None:
        self.names[self.queue.submit(JobSpec(name, cores, walltime_s, run_s=run_s))] = name
        self.events.append(QueueEvent("submitted", name, self.now, QueuedJob(self.now, cores, walltime_s)))

    def end(self, name: str) -> None:
        job = next(job for job, own in self.names.items() if own == name)
        [status] = self.queue.status([job]).values()
        self.events.append(QueueEvent("left" if status.start_s is None else "ended", name, self.now))
        self.queue.cancel(job)

    def advance(self, by_s: float) -> list[str]:
        """Advance the clock; return which of our jobs started."""
        until_s, started = self.now + by_s, []
        while self.now < until_s:
            for status in self.queue.wait(until_s):
                if status.state is JobState.RUNNING:
                    started.append(self.names[status.job_id])
                    self.events.append(QueueEvent("started", started[-1], self.now))
        self.events += self.queue.queue_events(2000, ends=True)
        return started


def other_job(rng: random.Random) -> tuple[int, float, float]:
    """Draw another user's job: cores, walltime, run time."""
    run_s = rng.uniform(20.0, 70.0)
    return rng.choice((7, 14, 28, 28)), run_s * rng.uniform(1.2, 3.0), run_s


@dataclass
class Worker:
    """A job of ours."""

    name: str
    asked_s: float
    view: View
    start_s: float | None = None
    ready_s: float = math.inf
    leaving: bool = False
    ended_s: float | None = None
    free_s: list[float] = field(default_factory=list)

    def busy(self, now_s: float) -> int:
        return sum(until_s > now_s for until_s in self.free_s)


STARTUP_S = 4.0


def filled(seed: int) -> Machine:
    """Return a machine that is full."""
    machine = Machine(seed)
    for _ in range(600):
        machine.advance(1.0)
    return machine


def model(machine: Machine | Logged, graph: Graph, who: str, price: float, estimator: str) -> Told:
    """Run the graph by one of the two rules."""
    bank = WaitBank(estimator, machine_cores=machine.cores)
    bank.follow(machine.events)
    machine.events.clear()
    shape = AllocationShape(graph.cores, graph.walltime_s, threads=graph.cores)
    wait_count = max(round(3.0 / max(graph.step_s, 1.0)), 1)
    steps = [list(step) for step in graph.steps]  # number and length of the tasks that have not begun
    begun: list[tuple[float, float]] = []  # begin and end of this step's tasks
    known: dict[float, float] = {}
    workers: dict[str, Worker] = {}
    counts: Counter[str] = Counter()
    began_s, first_s, all_s, cancelled, used = machine.now, math.inf, math.inf, 0, 0.0

    def guess_s(task_s: float, unknown_s: float = 0.0) -> float:
        """Estimate a task's length as dask does: measured, or twice its run time so far, or half a second."""
        ran = [machine.now - since_s for since_s, _ in begun] or [0.0]
        told_s = 2 * max(ran) if max(ran) > 0 and steps[0][1] == task_s else 0.5
        return known.get(task_s) or max(told_s, unknown_s)

    def ask(count: int, forecast: Any) -> None:
        for _ in range(count):
            name = f"ours{len(workers)}"
            workers[name] = Worker(name, machine.now, View(name, shape, machine.now, forecast))
            machine.submit(name, graph.cores, graph.walltime_s, graph.walltime_s)

    def part(worker: Worker) -> None:
        nonlocal cancelled
        if worker.start_s is None:
            cancelled += 1
            worker.ended_s = machine.now
            machine.end(worker.name)
        worker.leaving = True

    def there() -> list[Worker]:
        return [one for one in workers.values() if one.ended_s is None and not one.leaving]

    def jobqueue() -> None:
        plan = there()
        running = [one for one in plan if one.ready_s <= machine.now]
        waiting, task_s = steps[0]
        processing = sum(until_s > machine.now for _, until_s in begun)
        cpu = math.ceil((processing + waiting) * guess_s(task_s) / 5.0)
        cpu = min(waiting + processing, cpu)
        target = math.ceil(cpu / graph.cores) if running else max(cpu, 1)
        target = min(target, MAX_JOBS)
        if target >= len(plan):
            counts.clear()
            ask(target - len(plan), bank.predict(QueuedJob(machine.now, graph.cores, graph.walltime_s)))
            return
        closing = [one for one in plan if one not in running][: len(plan) - target]
        if target < len(plan) - len(closing):
            closing += sorted(running, key=lambda one: one.busy(machine.now))[: len(plan) - len(closing) - target]
        for one in closing:
            counts[one.name] += 1
        for name in list(counts):
            if name not in {one.name for one in closing}:
                del counts[name]
        for one in closing:
            if counts[one.name] >= wait_count:
                del counts[one.name]
                part(one)

    def pool() -> None:
        now = machine.now
        forecast = bank.predict(QueuedJob(now, graph.cores, graph.walltime_s))
        guess = partial(guess_s, unknown_s=forecast.at(0.5))
        waves = []
        for at, (waiting, task_s) in enumerate(steps):
            now_begun = [until_s - since_s for since_s, until_s in begun if until_s > now] if not at else []
            left = (
                sum(max(guess(task_s) - (now - since_s), 0.0) for since_s, until_s in begun if until_s > now)
                if not at
                else 0
            )
            if tasks := waiting + len(now_begun):
                waves.append(TaskKind(tasks, (waiting * guess(task_s) + left) / tasks))
        views = []
        for one in there():
            idle = one.ready_s <= now and not one.busy(now)
            since_s = max([one.ready_s, *one.free_s]) if idle else now
            until_s = None if one.start_s is None else one.start_s + graph.walltime_s - graph.margin_s
            useless = one.view.useless_s
            one.view = replace(
                one.view, start_s=one.start_s, until_s=until_s, idle_s=now - since_s if idle else 0.0, useless_s=useless
            )
            views.append(one.view)
        rules = PoolRules(maximum=graph.cores * MAX_JOBS, price=price, startup_s=STARTUP_S, margin_s=graph.margin_s)
        told: Decision = decide(now, waves, views, {shape: forecast}, rules)
        ask(len(told.ask), forecast)
        for one in there():
            one.view = replace(
                one.view, useless_s=one.view.useless_s + looks * graph.step_s if one.name in told.useless else 0.0
            )
        parted = {*told.withdraw, *told.give_back}
        for name in list(counts):
            if name not in parted:
                del counts[name]
        for name in parted:
            counts[name] += 1
            if counts[name] >= wait_count:
                part(workers[name])

    ticks, looks = 0, max(round(1.0 / graph.step_s), 1)
    while steps:
        for name in machine.advance(graph.step_s):
            workers[name].start_s, workers[name].ready_s = machine.now, machine.now + STARTUP_S
            workers[name].free_s = [machine.now + STARTUP_S] * graph.cores
        bank.follow(machine.events)
        machine.events.clear()
        now = machine.now
        ready = [one for one in workers.values() if one.ready_s <= now and one.ended_s is None]
        if ready:
            first_s = min(first_s, now)
        if len(ready) >= MAX_JOBS:
            all_s = min(all_s, now)
        while steps and not steps[0][0] and all(until_s <= now for _, until_s in begun):
            known[steps[0][1]] = steps[0][1]
            steps.pop(0)
            begun.clear()
        if any(until_s <= now for _, until_s in begun) and steps:
            known[steps[0][1]] = steps[0][1]
        for one in ready:
            assert one.start_s is not None
            until_s = one.start_s + graph.walltime_s - graph.margin_s
            if who == "jobqueue" and now >= until_s:  # the workers' lifetime is over: their tasks run again
                lost = [free_s for free_s in one.free_s if free_s > now]
                for free_s in lost:
                    begun.remove(next(task for task in begun if task[1] == free_s))
                steps[0][0] += len(lost)
                one.leaving, one.free_s = True, [now] * graph.cores
            elif who == "pool" and steps and now >= drain_from_s(until_s, guess_s(steps[0][1]), one.start_s):
                one.leaving = True
            for number, free_s in enumerate(one.free_s):
                if steps and steps[0][0] and not one.leaving and free_s <= now:
                    steps[0][0] -= 1
                    one.free_s[number] = now + steps[0][1]
                    begun.append((now, now + steps[0][1]))
                    used += steps[0][1]
            if one.leaving and not one.busy(now):
                one.ended_s = now
                machine.end(one.name)
        ticks += 1
        if steps and ticks % looks == 0:
            jobqueue() if who == "jobqueue" else pool()
    allocated = sum((one.ended_s or machine.now) - one.start_s for one in workers.values() if one.start_s is not None)
    makespan_s = machine.now - began_s
    return Told(
        who,
        makespan_s,
        first_s - began_s,
        all_s - began_s,
        allocated * graph.cores / 3600,
        used / 3600,
        len(workers),
        cancelled,
    )


# ---------------------------------------------------------------------- the real thing


class Others:
    """Keeps the machine full with a constant number of waiting jobs, of sizes and times that a seed draws."""

    def __init__(self, testbed: Testbed, seed: int, waiting: int = 6) -> None:
        self.testbed, self.random, self.waiting = testbed, random.Random(seed), waiting
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.keep, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join()

    def keep(self) -> None:
        while not self.is_over.wait(2.0):
            with suppress(RuntimeError, subprocess.SubprocessError):
                asked = ("squeue", "-h", "-t", "PENDING", "-n", "other", "-o", "%i")
                for _ in range(self.waiting - len(self.testbed.run_as_root(*asked).split())):
                    cores, walltime_s, run_s = other_job(self.random)
                    minutes = max(math.ceil(walltime_s / 60), 1)
                    options = ["-J", "other", "-n1", f"-c{cores}", f"-t{minutes}", "-o", "/dev/null"]
                    self.testbed.run_as_root("sbatch", "--parsable", *options, "--wrap", f"sleep {run_s:.0f}")


def nap(seconds: float, *_: Any) -> float:
    """Sleep in place of work."""
    time.sleep(seconds)
    return seconds


def work(seconds: float, number: int, *_: Any) -> float:
    """Run one task of a wave."""
    return nap(seconds)


def join(seconds: float, parts: Any) -> float:
    """Run the task after a wave, whose result the next wave needs."""
    return nap(seconds)


def finish(client: Any, graph: Graph) -> None:
    """Run the graph. Results of a single wave are fetched as they come, so that a worker's end loses none."""
    from distributed import as_completed

    if graph.waves > 1:
        submit(client, graph).result()
        return
    tasks = [client.submit(work, graph.task_s, number, pure=False) for number in range(graph.tasks)]
    for task in as_completed(tasks):
        task.result()
        task.release()
        tasks.remove(task)


def submit(client: Any, graph: Graph) -> Any:
    """Submit the whole graph, and return its last task."""
    before: Any = None
    for wave in range(graph.waves):
        numbers = range(wave * graph.tasks, (wave + 1) * graph.tasks)
        parts = [client.submit(work, graph.task_s, number, before, pure=False) for number in numbers]
        before = client.submit(join, graph.between_s, parts, pure=False)
    return before


def on_slurm(testbed: Testbed, graph: Graph, price: float, estimator: str, place: Path, seed: int, who: str) -> Told:
    """Run the graph by one of the two packages."""
    from distributed import Client

    testbed.empty()
    commands = ["env", f"TB_ROOT={testbed.root}", "bash", str(SCRIPT), "run-root"]
    make = our_cluster if who == "pool" else their_cluster
    with Others(testbed, seed):
        time.sleep(60.0)  # until the queue is in a steady state
        began_s = time.time()
        with make(commands, graph, price, estimator, place) as cluster, Client(cluster) as client:
            marks = {"first": math.inf, "all": math.inf}
            begins, is_over = time.monotonic(), threading.Event()

            def watch() -> None:
                while not is_over.wait(0.2):
                    for mark, count in (("first", 1), ("all", MAX_JOBS)):
                        if len(cluster.scheduler.workers) >= count:
                            marks[mark] = min(marks[mark], time.monotonic() - begins)

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            try:
                finish(client, graph)
            finally:
                is_over.set()
                watcher.join()
            makespan_s, ended_s = time.monotonic() - begins, time.time()
            if who == "pool":
                (place / f"timeline-{seed}.json").write_text(json.dumps(cluster.timeline()))
    time.sleep(2.0)
    jobs = []
    for line in testbed.run_as_root("env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job").splitlines():
        told = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if told["JobName"] != "other" and float(told["SubmitTime"]) >= began_s - 2.0:
            jobs.append(told)
    allocated, cancelled = 0.0, 0
    for told in jobs:
        start = told["StartTime"]
        if start.isdigit() and int(told["NumCPUs"]) and told["RunTime"] != "00:00:00":
            allocated += int(told["NumCPUs"]) * (min(float(told["EndTime"]), ended_s) - float(start))
        elif told["JobState"] == "CANCELLED" and float(told["EndTime"]) < ended_s - 1.0:
            cancelled += 1
    return Told(
        who, makespan_s, marks["first"], marks["all"], allocated / 3600, graph.work_s / 3600, len(jobs), cancelled
    )


@contextmanager
def our_cluster(commands: list[str], graph: Graph, price: float, estimator: str, place: Path) -> Iterator[Any]:
    """Open the pool, as a user would set it up."""
    from asa.pool import AsaCluster

    with AsaCluster(
        backend="slurm-cli",
        settings={"prefix": commands, "poll": "1s", "max_poll": "2s"},
        cores=CORES,
        threads=CORES,
        memory="8 GB",
        walltime=graph.walltime_s,
        folder=place / f"pool-{time.time():.0f}",
        bank=place / "bank",
        price=price,
        estimator=estimator,
    ) as cluster:
        cluster.adapt(minimum=0, maximum=MAX_JOBS)
        yield cluster


@contextmanager
def their_cluster(commands: list[str], graph: Graph, _price: float, _estimator: str, place: Path) -> Iterator[Any]:
    """Open dask-jobqueue's cluster, as its documentation sets it up."""
    import shlex

    from dask_jobqueue import SLURMCluster
    from dask_jobqueue.slurm import SLURMJob

    SLURMJob.submit_command = shlex.join([*commands, "sbatch"])
    SLURMJob.cancel_command = shlex.join([*commands, "scancel"])
    with SLURMCluster(
        cores=CORES,
        processes=1,
        memory="8 GB",
        walltime=f"00:{graph.walltime_s / 60:.0f}:00",
        log_directory=str(place / "logs"),
        local_directory=str(place),
        worker_extra_args=[  # as in its documentation: 55 of 60 minutes, plus or minus 4
            "--lifetime",
            f"{graph.walltime_s * 55 / 60:.0f}s",
            "--lifetime-stagger",
            f"{graph.walltime_s * 4 / 60:.0f}s",
        ],
    ) as cluster:
        cluster.adapt(minimum_jobs=0, maximum_jobs=MAX_JOBS)
        yield cluster


def rounds(run: Callable[[int, str], Told], count: int, first: int) -> Iterator[Told]:
    """Run both packages in turn; the order changes every round."""
    for number in range(count):
        order = ("jobqueue", "pool") if (first + number) % 2 else ("pool", "jobqueue")
        for who in order:
            told = run(first + number, who)
            print(json.dumps(told.__dict__), flush=True)
            yield told


def under_log(log: Path, seeds: range, asked: argparse.Namespace) -> Iterator[tuple[str, list[Told]]]:
    """Run both rules in several replications on a log, for two kinds of work."""
    site = open_facility("simulated", None, {"trace": str(log), "poll_s": "0"}).facility
    cores = max(site.capabilities.max_cores // 12, 1)
    rest = {"walltime_s": 4 * 3600.0, "cores": cores, "step_s": 15.0}
    tasks = 12 * 6 * MAX_JOBS * cores  # tasks of ten minutes in twelve hours
    graphs = {"long": Graph(1, tasks, 600.0, 15.0, **rest), "waves": Graph(3, tasks // 3, 600.0, 1800.0, **rest)}
    price = float(cores) if asked.price is None else asked.price
    for name, graph in graphs.items():
        pairs = ((seed, who) for seed in seeds for who in ("jobqueue", "pool"))
        told = [model(Logged(site, seed), graph, who, price, asked.estimator) for seed, who in pairs]
        yield f"{name}: {graph}", told


def main() -> None:
    """Run the requested comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("model", "log", "slurm"))
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--price", type=float, help="in cores; as many as a job has, if not given")
    parser.add_argument("--estimator", default="asa")
    parser.add_argument("--graph", choices=list(GRAPHS))
    asked = parser.parse_args()
    if asked.what == "model":
        asked.price = CORES if asked.price is None else asked.price
        for graph in (GRAPHS[asked.graph],) if asked.graph else GRAPHS.values():
            seeds = range(asked.seed, asked.seed + asked.rounds)
            pairs = ((seed, who) for seed in seeds for who in ("jobqueue", "pool"))
            told = [model(filled(seed), graph, who, asked.price, asked.estimator) for seed, who in pairs]
            show(f"In the model: {graph}", told)
        return
    if asked.what == "log":
        for log in asked.logs:
            for name, told in under_log(log, range(asked.seed, asked.seed + asked.rounds), asked):
                show(f"{log.name}, {name}", told)
        return
    if reason := missing():
        raise SystemExit(reason)
    asked.price = CORES if asked.price is None else asked.price
    with tempfile.TemporaryDirectory(prefix="asa-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # Slurm's own user must enter it
        testbed = Testbed(Path(folder) / "slurm", nodes=4, cores_per_node=CORES, conf="MinJobAge=7200")
        place = Path(folder) / "runs"
        place.mkdir()
        try:
            testbed.start()
            for graph in (GRAPHS[asked.graph],) if asked.graph else GRAPHS.values():
                run = partial(on_slurm, testbed, graph, asked.price, asked.estimator, place)
                show(f"On Slurm {testbed.version}: {graph}", list(rounds(run, asked.rounds, asked.seed)))
        finally:
            testbed.stop()


if __name__ == "__main__":
    main()
