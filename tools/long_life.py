# ruff: noqa: T201 - it prints its table
"""Measures what a client takes that lives for weeks, and how commands grow with the number of stages.

    python tools/long_life.py days                     30 simulated days of 2,000 stages: some minutes
    python tools/long_life.py days --strategy asa-plan --days 10
    python tools/long_life.py scale                    1,250 to 10,000 stages: submission, status, resume, report
    python tools/long_life.py slurm --minutes 120 --clients 20 --stages 2000    on real daemons with faults, as root

`days`: the clock and the batch system are simulated, the client is the real one, with its journal, marks and bank. Once
a day it prints what the process has (memory, open files, threads), what is on the disk (journal, folder, bank), the CPU
time of the day, and that of a new client that reads the journal of that day and takes its first look. Each day the
batch system is away for an hour, answers with nothing now and then, and puts jobs back into the queue.

`slurm`: clients of one user, each with a run of its own, on one bank, while `tests/trial` injects faults without a
pause; a client that has died is followed by `asa resume`. It prints, every minute, what the clients have that live. If
a stage ran again after it had completed, and no fault explains that, its files are kept in a folder `long-life-SEED`.

Below each table are the slopes, by least squares over the second half of the time, and what is promised. The exit code
is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# the tests have replacements for the daemons
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from asa.backends.slurm.backend import SlurmBackend
from growth import exponent
from slurm_fake_link import FINAL, FakeLink, VirtualClock

from asa.backend import Capabilities
from asa.errors import UnavailableError
from asa.estimators.store import WaitStore
from asa.runner import RunFolder, RunPlan, drive
from asa.runner.look import look
from asa.workflow import Stage

ASA = str(Path(sys.executable).with_name("asa"))
SITE = Capabilities("sim", 11_200, 28, age_accrues=False, max_array_size=1001)
HOUR, DAY = 3600.0, 86_400.0
KIB, MIB = 1024, 1 << 20

HELD: Mapping[str, float] = {
    "memory, KiB a stage": 100.0,
    "open files, more": 1.0,
    "threads, more": 1.0,
    "journal, KiB a stage": 12.0,
    "folder, KiB a stage": 60.0,
    "bank, KiB a stage": 4.0,
    "CPU, s an hour": 5.0,
    "CPU, s a stage": 1.0,
    "restart, s": 2.0,
}
"""What is promised of a client that lives for weeks, and, by stages, of those whose stages take seconds.

Files and threads: the fewest of the last quarter of the time, above those of the second quarter.
"""

SCALE: Mapping[str, tuple[float, float]] = {
    "submit": (120.0, 1.2),
    "status": (20.0, 1.2),
    "resume": (10.0, 1.2),
    "report": (30.0, 1.2),
}
"""CPU seconds for 10,000 stages, and the largest exponent."""


# ---------------------------------------------------------------------- what a process and a folder have


@dataclass(frozen=True)
class Sample:
    """What is measured at one time."""

    at_s: float
    memory: float  # bytes
    files: float
    threads: float
    journal: float  # bytes
    folder: float  # bytes
    entries: float  # files in the folder
    bank: float  # bytes
    cpu_s: float  # since the beginning
    stages: float  # completed
    restart_s: float = math.nan


def of_process(pid: int) -> tuple[float, float, float, float]:
    """Return a process's memory, open files, threads and CPU seconds."""
    words = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )  # fmt: skip
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    files = float(len(list(Path(f"/proc/{pid}/fd").iterdir())))
    cpu_s = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
    return float(words["VmRSS"].split()[0]) * KIB, files, float(words["Threads"]), cpu_s


def sizes(folder: Path) -> tuple[float, float]:
    """Return the bytes and the number of files below a folder."""
    size = count = 0.0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # the client may just have replaced it
                size, count = size + Path(at, name).lstat().st_size, count + 1
    return size, count


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the second half of points, by least squares; nan for fewer than three."""
    later = points[len(points) // 2 :]
    if len(later) < 3:
        return math.nan
    mean_x, mean_y = (sum(column) / len(later) for column in zip(*later, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in later)
    return sum((x - mean_x) * (y - mean_y) for x, y in later) / spread if spread else math.nan


# ---------------------------------------------------------------------- a batch system with a clock of its own


class Clock(VirtualClock):
    """Seconds that pass while the client sleeps; `every` is called each time."""

    every: Callable[[], None] | None = None

    def sleep(self, seconds: float) -> bool:
        nudged = super().sleep(seconds)
        if self.every is not None:
            self.every()
        return bool(nudged)


class SimulatedSlurm(FakeLink):
    """A Slurm in memory that forgets ended jobs, and passes over time in which nothing happens."""

    step_s = 60

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.empty = self.refuses = False

    @property
    def controller(self) -> dict[str, Any]:
        """All jobs: those that it has forgotten are not kept."""
        self._advance()
        return self.all

    def _advance(self) -> None:
        while self._now_s + self.step_s <= int(self.now_s):
            self._now_s += self.step_s
            for job in [job for job in self.all.values() if job.state not in FINAL]:
                self._tick(job)
        before_s = self._now_s - self.min_job_age_s
        for job_id in [i for i, job in self.all.items() if job.end_s is not None and job.end_s < before_s]:
            del self.all[job_id]
        self.submitted.clear()
        self.looks_s.clear()

    def record(self, job: Any) -> Any:
        """Report a job; the same report as before while nothing of it has changed."""
        state = job.state, job.held, job.start_s, job.end_s, job.eligible_s, job.restarts, self._unmet(job)
        if getattr(job, "said", (None,))[0] != state:
            job.said = state, super().record(job)
        return job.said[1]

    def _unmet(self, job: Any) -> bool:
        job.dependencies = [one for one in job.dependencies if one[1] in self.all or one[1] in self.arrays_of]
        return super()._unmet(job)

    def jobs(self, job_ids: Any) -> Any:
        found = super().jobs(job_ids)
        return {} if self.empty else found

    def submit(self, job: Any) -> str:
        if self.refuses:
            raise UnavailableError("it only looks")
        return super().submit(job)

    def cancel(self, jobs: Any) -> Any:
        if self.refuses:
            raise UnavailableError("it only looks")
        return super().cancel(jobs)


def chains(stages: int, wide: int, run_s: float) -> tuple[Stage, ...]:
    """Make chains side by side."""
    return tuple(
        Stage(
            f"s{number}", cores=1 + number % 4, walltime_s=2 * run_s, expected_run_s=run_s,
            command=f"sleep {run_s * (0.8 + 0.4 * (number * 7919 % 100) / 100):.0f}",
            after=(f"s{number - wide}",) if number >= wide else (),
        )
        for number in range(stages)
    )  # fmt: skip


class World:
    """A run on the simulated Slurm."""

    def __init__(self, root: Path, stages: tuple[Stage, ...], strategy: str) -> None:
        self.bank = root / "bank"
        called = ("abcd12345678", "long", "long")
        plan = RunPlan(
            *called,
            stages,
            strategy,
            "slurm-cli",
            SITE,
            folder=str(root),
            created_s=1.7e9,
            history=0,
            bank=str(self.bank),
        )
        WaitStore(self.bank)
        self.folder, self.clock = RunFolder.create(root / "runs", plan), Clock()
        self.link = SimulatedSlurm(self.clock, self.folder.path, latency_s=600.0, min_job_age_s=300.0)

    def connect(self, run: RunFolder) -> SlurmBackend:
        """Open the simulated Slurm, for the client or for another that comes."""
        return SlurmBackend(self.link, run.path, SITE, clock=self.clock, sleep=self.clock.sleep)

    @property
    def journal(self) -> Path:
        return self.folder.path / "journal.jsonl"

    def restart_s(self, root: Path) -> float:
        """Return the CPU seconds in which a new client has read the journal and has looked at the jobs once."""
        copy = root / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(mode=0o700)
        for name in ("journal.jsonl", "run.json", "jobs", "marks", "posts", "scripts"):
            one = self.folder.path / name
            if one.is_dir():
                shutil.copytree(one, copy / name, symlinks=True)
            elif one.exists():
                shutil.copy(one, copy / name)
        gc.collect()
        self.link.refuses, began_s = True, time.process_time()
        try:
            look(RunFolder(copy), self.connect)
            return time.process_time() - began_s
        finally:
            self.link.refuses = False
            shutil.rmtree(copy, ignore_errors=True)


# ---------------------------------------------------------------------- weeks


@dataclass
class Diary:
    """What is noted of a run once a day, and what goes wrong in between."""

    world: World
    root: Path
    days: float
    samples: list[Sample] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random("days"))
    others_s: float = 0.0  # CPU of what measures
    day: int = 0
    state: Any = None

    def follow(self, state: Any) -> None:
        """Keep the run's state to look at."""
        self.state = state

    def look(self) -> None:
        """Take note, if a day has passed; called each time that the client sleeps."""
        now_s, link = self.world.clock(), self.world.link
        hour = (now_s - 1.7e9) / HOUR
        link.down = 12.0 <= hour % 24 < 13.0
        link.empty = not link.down and self.chance.random() < 0.01
        if self.chance.random() < 0.001 and (running := [j for j in link.all.values() if j.state == "RUNNING"]):
            link.requeue(self.chance.choice(running).job_id)
        if hour < 24 * self.day or link.down or link.empty:
            return
        self.day = int(hour // 24) + 1
        began_s = time.process_time()
        self._note(self.state, hour)
        self.others_s += time.process_time() - began_s

    def _note(self, state: Any, hour: float) -> None:
        gc.collect()
        memory, files, threads, cpu_s = of_process(os.getpid())
        size, entries = sizes(self.world.folder.path)
        done = sum(view.phase.is_settled for view in state.stages.values())
        restart_s = self.world.restart_s(self.root)
        sample = Sample(
            hour * HOUR, memory, files, threads, self.world.journal.stat().st_size, size, entries,
            sizes(self.world.bank)[0], cpu_s - self.others_s, done, restart_s,
        )  # fmt: skip
        self.samples.append(sample)
        print(_row(hour / 24, sample), flush=True)


HEAD = "     day  stages  MiB memory  files  threads  journal KiB  folder KiB (files)  bank KiB     CPU s  restart s"


def _row(at: float, one: Sample) -> str:
    has = f"{one.stages:7.0f} {one.memory / MIB:11.1f} {one.files:6.0f} {one.threads:8.0f} {one.journal / KIB:12.0f}"
    folder = f"{one.folder / KIB:11.0f} ({one.entries:5.0f}) {one.bank / KIB:9.0f}"
    return f"{at:8.2f} {has} {folder} {one.cpu_s:9.1f} {one.restart_s:10.2f}"


def days(options: argparse.Namespace, root: Path) -> int:
    """Let a client live for simulated days; return the exit code."""
    wide = max(1, options.clients)
    run_s = options.days * DAY / (options.stages / wide) - 700.0
    world = World(root, chains(options.stages, wide, max(run_s, 60.0)), options.strategy)
    diary = Diary(world, root, options.days)
    print(f"{options.stages} stages in {wide} chains, {run_s / HOUR:.1f} h each, {options.strategy}\n{HEAD}")
    world.clock.every = diary.look
    result = drive(world.folder, world.connect, on_pass=lambda states, *_: diary.follow(states[0]))
    assert result.outcome == "completed", result.reason
    return verdict(diary.samples, options.days * 24)


def verdict(samples: Sequence[Sample], hours: float, *, is_real: bool = False) -> int:
    """Print the slopes beside what is promised; return 1 if something is exceeded."""
    last, quarter = samples[-1], max(len(samples) // 4, 1)

    def more(name: str) -> float:
        of = [float(getattr(one, name)) for one in samples]
        return min(of[-quarter:]) - min(of[quarter : 2 * quarter] or of)

    def by_stage(name: str) -> float:
        return slope([(one.stages, getattr(one, name)) for one in samples])

    found = {
        "memory, KiB a stage": by_stage("memory") / KIB,
        "open files, more": more("files"),
        "threads, more": more("threads"),
        "journal, KiB a stage": by_stage("journal") / KIB,
        "folder, KiB a stage": by_stage("folder") / KIB,
        "bank, KiB a stage": by_stage("bank") / KIB,
    }
    if is_real:  # many clients, whose stages take seconds
        found["CPU, s a stage"] = by_stage("cpu_s")
    else:
        found["CPU, s an hour"] = slope([(one.at_s / HOUR, one.cpu_s) for one in samples])
        found["restart, s"] = max(one.restart_s for one in samples)
    print(f"\nover the second half of {hours:g} hours; {last.cpu_s:.0f} s of CPU in all")
    return _compare(found, HELD)


def _compare(found: Mapping[str, float], held: Mapping[str, float]) -> int:
    for name, value in found.items():
        print(f"{name:24} {value:10.3f}   at most {held[name]:g}{'' if not value > held[name] else '   EXCEEDED'}")
    return int(any(value > held[name] for name, value in found.items()))


# ---------------------------------------------------------------------- many stages


class _AllSubmittedError(Exception):
    pass


def _cpu_s(*words: str, home: Path) -> float:
    """Return the CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "HOME": str(home), "ASA_RUNS": str(home / "runs"), "ASA_BANK": str(home / "bank")}
    subprocess.run([ASA, *words], cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scaled(stages: int, strategy: str, root: Path) -> dict[str, float]:
    """Return the CPU seconds of each command for a run of so many stages."""
    world = World(root, chains(stages, max(stages // 20, 1), 600.0), strategy)

    def all_submitted(states: Sequence[Any], *_: Any) -> None:
        if not any(view.phase == "waiting" for view in states[0].stages.values()):
            raise _AllSubmittedError

    began_s = time.process_time()
    try:
        drive(world.folder, world.connect, on_pass=all_submitted)
    except _AllSubmittedError:
        took = {"submit": time.process_time() - began_s}
    run = str(world.folder.path)
    took["status"] = _cpu_s("status", run, home=root)
    took["resume"] = world.restart_s(root)
    took["report"] = _cpu_s("report", run, "--out", str(root / "report.html"), home=root)
    took["journal MiB"] = world.journal.stat().st_size / MIB
    return took


def scale(options: argparse.Namespace, root: Path) -> int:
    """Time commands for ever more stages; return the exit code."""
    counts = [options.to // 8, options.to // 4, options.to // 2, options.to]
    rows = []
    for count in counts:
        own = root / str(count)
        own.mkdir(mode=0o700)
        rows.append(scaled(count, options.strategy, own))
        print(f"{count:6} stages: {', '.join(f'{name} {value:.2f}' for name, value in rows[-1].items())}", flush=True)
        shutil.rmtree(own)
    code = 0
    for name, (most_s, most) in SCALE.items():
        seconds = [row[name] for row in rows]
        grows, takes_s = exponent(counts[1:], seconds[1:]), seconds[-1] * 10_000 / options.to
        is_held = takes_s <= most_s and grows <= most
        code |= not is_held
        print(
            f"{name:8} {takes_s:7.2f} s for 10,000, at most {most_s:g}; exponent {grows:.2f}, at most {most:g}"
            f"{'' if is_held else '   EXCEEDED'}"
        )
    return code


# ---------------------------------------------------------------------- real daemons


def slurm(options: argparse.Namespace, root: Path) -> int:
    """Let clients live on real daemons, with faults; return the exit code."""
    from slurm_testbed import missing
    from trial.many import Many, trial_of
    from trial.place import Cluster
    from trial.verdict import judge_once

    if os.geteuid() != 0:
        raise SystemExit("long_life.py: clusters of its own need root")
    if lacks := missing(options.version):
        raise SystemExit(f"long_life.py: {lacks}")
    os.umask(0)
    trial = trial_of(options.version, options.strategy, seed=int(time.time()))
    root.chmod(0o755)
    place = Cluster(trial, root / "c", ASA)
    try:
        place.start()
        many = Many(trial, place, options.clients, max(options.stages // options.clients, 3), 8.0)
        print(f"{options.clients} clients, Slurm {options.version}, {trial.strategy}\n{HEAD.replace('  day', ' hour')}")
        samples = []
        for at_s in many.drive(60.0 * options.minutes):
            samples.append(_of_all(at_s, many, place))
            print(_row(at_s / HOUR, samples[-1]), flush=True)
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(many.counts.items()))
        print(f"\n{faults}\n{sum(one.completed for one in many.driven)} runs completed")
        once = judge_once(many, place.marks)
        for text in once.invalid:
            print(f"by a fault, whatever asa does: {text}")
        for text in (broken := [*many.troubles, *once.broken]):
            print(f"BROKEN: {text}")
        if broken:
            kept = Path(f"long-life-{trial.seed}")
            shutil.copytree(place.work, kept, symlinks=True)
            events = "".join(f"{at_s:.2f} {what} {more}\n" for at_s, what, more in many.events)
            kept.joinpath("events").write_text(events + place.marks)
            print(f"kept in {kept}")
    finally:
        place.stop()
    return verdict(samples, options.minutes / 60, is_real=True) | bool(broken)


def _of_all(at_s: float, many: Any, place: Any) -> Sample:
    """Measure the clients that live: memory, files and threads of the largest, the rest in all."""
    found = []
    for client in many.living:
        with suppress(OSError, KeyError, IndexError):
            found.append(of_process(client.process.pid))
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = ended.ru_utime + ended.ru_stime + sum(one[3] for one in found)
    folders = [sizes(one.runs) for one in many.driven if one.runs.exists()]
    journals = sum(path.stat().st_size for path in place.work.glob("runs*/*/journal.jsonl"))
    stages = sum(1 for line in place.marks.splitlines() if line.startswith("end ") and line.endswith(" 0"))
    return Sample(
        at_s, *(max((one[part] for one in found), default=0.0) for part in range(3)), journals,
        sum(size for size, _ in folders), sum(count for _, count in folders), sizes(place.bank)[0], cpu_s, stages,
    )  # fmt: skip


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("days", "scale", "slurm"))
    parser.add_argument("--strategy", default="", help="[default: asa; for scale: chained]")
    parser.add_argument("--stages", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=20, help="of slurm; of days: chains side by side")
    parser.add_argument("--minutes", type=float, default=120.0, help="of slurm")
    parser.add_argument("--version", default="22.05", help="of slurm: the release")
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--to", type=int, default=10_000, help="of scale: the largest number of stages")
    options = parser.parse_args()
    options.strategy = options.strategy or {"scale": "chained"}.get(options.what, "asa")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its cluster is stopped
    measure: dict[str, Callable[[argparse.Namespace, Path], int]] = {"days": days, "scale": scale, "slurm": slurm}
    with tempfile.TemporaryDirectory(prefix="asa-long-") as folder:
        return measure[options.what](options, Path(folder))


if __name__ == "__main__":
    raise SystemExit(main())
