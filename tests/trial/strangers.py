"""Jobs that are not the run's: beside it on its cluster, and on another one. Nobody but their users may touch them."""

import random
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from slurm_testbed import Testbed, uid_of

MARKED = "stranger"  # the comment of their jobs
HELD = 12
_RPC = re.compile(r"^\[(\S+)\] .*_slurm_rpc_(kill_job|update_job)\b.*?JobId=(\d+)\S* .*?uid[ =](\d+)")
_SUBMITTED = re.compile(r"^\[(\S+)\] _slurm_rpc_submit_batch_job: JobId=(\d+)")


def requests(slurm: Testbed, uid: int) -> Iterator[tuple[float, str, str]]:
    """Yield when a user asked the controller to cancel or change which job, as the controller notes it."""
    for line in (slurm.root / "log" / "slurmctld.log").read_text(errors="replace").splitlines():
        if (match := _RPC.match(line)) and int(match[4]) == uid:
            yield datetime.fromisoformat(match[1]).timestamp(), match[2], match[3]


class Strangers(threading.Thread):
    """The run's own user and another one, who submit jobs now and then, with numbers next to the run's."""

    def __init__(self, slurm: Testbed, names: list[str], seed: int) -> None:
        super().__init__(daemon=True)
        self.slurm, self.names = slurm, names
        self.random = random.Random(f"strangers {seed}")
        self.jobs: list[tuple[str, float, float]] = []  # number, and from when to when it was one of theirs
        self._over, self._lock = threading.Event(), threading.Lock()
        self._seen = ""

    def run(self) -> None:
        while not self._over.wait(1.0):
            with suppress(RuntimeError, subprocess.TimeoutExpired):  # the controller may be away
                told = self.slurm.run_as_root("squeue", "-h", "-a", "-o", "%i %k", check=False).splitlines()
                held = sum(line.endswith(f" {MARKED}") for line in told)
                ours = " ".join(sorted(line for line in told if not line.endswith(f" {MARKED}")))
                if ours != self._seen and held < HELD:
                    self._seen = ours
                    self.submit(1 + self.random.randrange(2))

    def submit(self, count: int) -> None:
        """Submit some jobs: most are held, some run for a while."""
        with self._lock:
            for _ in range(count):
                name = self.random.choice(
                    [*self.names, "t", "wrap", "asa", f"{self.names[0]}.{self.random.randrange(9999)}"]
                )
                how = self.random.choice([["--hold"], ["--hold"], ["--begin=now+1hour"], []])
                run = self.slurm.run if self.random.random() < 0.8 else self.slurm.run_as_root
                words = ["-J", name, f"--comment={MARKED}", "-t", "5", "-o", "/dev/null", "--chdir=/tmp", *how]
                told = run("sbatch", "--parsable", *words, "--wrap", f"sleep {self.random.randint(5, 40)}")
                self.jobs.append((told.strip().partition(";")[0], time.time(), float("inf")))

    def are_gone(self) -> None:
        """Note that the controller has forgotten all jobs, and gives their numbers anew."""
        with self._lock:
            self.jobs = [(job, since_s, min(until_s, time.time())) for job, since_s, until_s in self.jobs]

    def touched(self) -> list[str]:
        """Return what the run's user has done to them."""
        asked = list(requests(self.slurm, uid_of(self.slurm.user)))
        return [
            f"a stranger's job was touched: {what} {job} at {when_s:.2f}"
            for job, since_s, until_s in self.jobs
            for when_s, what, number in asked
            if number == job and since_s <= when_s <= until_s
        ]

    def end(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join()


class Elsewhere:
    """Another cluster of the same site, where the same user has jobs."""

    def __init__(self, root: Path, version: str, seed: int) -> None:
        self.random = random.Random(f"elsewhere {seed}")
        conf = "ClusterName=elsewhere\n" if self.random.random() < 0.7 else ""
        self.slurm = Testbed(root, release=version, nodes=1, cores_per_node=64, conf=conf)
        self._jobs = 0

    def start(self) -> None:
        self.slurm.start()
        for number in range(25):
            name = self.random.choice(["a0", "b0", "c0", f"x{number}", "wrap"])
            words = ("-J", name, f"--comment={MARKED}", "-t", "60", "-o", "/dev/null", "--chdir=/tmp")
            self.slurm.run("sbatch", "-Q", *words, *["--hold"] * (number % 2), "--wrap", "sleep 900")
        self._jobs = 25

    def touched(self) -> list[str]:
        """Return what was done to the jobs that were there."""
        asked = requests(self.slurm, uid_of(self.slurm.user))
        return [f"another cluster's job was touched: {what} {job}" for _, what, job in asked if int(job) <= self._jobs]

    def astray(self) -> list[str]:
        """Return the jobs that came later: a client may submit one before it sees that its own jobs are not there."""
        log = (self.slurm.root / "log" / "slurmctld.log").read_text(errors="replace")
        return [
            match[2] for line in log.splitlines() if (match := _SUBMITTED.match(line)) and int(match[2]) > self._jobs
        ]

    def stop(self) -> None:
        self.slurm.stop()
