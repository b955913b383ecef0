"""Many clients of one user, each with runs of its own, on one cluster and one bank, for `tools/long_life.py`."""

import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from .draw import Fault, Step, Trial, draw
from .faults import suffer
from .operator import Client, Operator, toml
from .place import Cluster

KINDS = (
    *("kill", "term", "int", "away", "controller_restart", "controller_away", "hold", "requeue", "requeue_hold"),
    *("suspend", "slurmd_restart", "drain", "node_down", "cancelled_running", "payload_killed", "slow_commands"),
)
"""The faults that come again and again."""


def trial_of(version: str, strategy: str, seed: int) -> Trial:
    """Return the trial of a cluster that many clients share; its own steps and faults are not used."""
    trial = draw(seed, version, "cli", strategy, ticks=False)
    site = replace(trial.site, accounting=False, clock_off_s=0, min_job_age_s=600, load=0, small_tmp=False)
    return replace(trial, site=site, faults=(), steps=trial.steps[:1], fail_fast=False)


@dataclass
class Driven:
    """A client's present run."""

    runs: Path
    number: int
    stages: int
    client: Client | None = None
    retry: bool = False
    completed: int = 0  # runs

    @property
    def run(self) -> Path | None:
        return max(self.runs.glob("t-*/"), key=lambda path: (path / "run.json").stat().st_mtime, default=None)


class Many(Operator):
    """Keeps many clients alive, and lets faults come; each run is followed by another."""

    def __init__(self, trial: Trial, place: Cluster, clients: int, stages: int, seconds: float) -> None:
        super().__init__(trial, place)
        self.chance = random.Random(trial.seed)
        self.seconds = seconds
        self.driven = [Driven(place.work / f"runs{number}", number, stages) for number in range(clients)]
        self.counts: Counter[str] = Counter()
        self.ended_cpu_s = 0.0

    @property
    def client(self) -> Client | None:
        """One of those that live, by chance."""
        return self.chance.choice(self.living) if self.living else None

    @property
    def living(self) -> list[Client]:
        return [one.client for one in self.driven if one.client is not None and one.client.code is None]

    def _env(self) -> dict[str, str]:
        return super()._env() | {"ASA_RUNS": str(self._of.runs)}

    def drive(self, within_s: float) -> Iterator[float]:
        """Go on until the time is over; yield the time once a minute, and more often where that is short."""
        threading.Thread(target=self._spoil, daemon=True).start()
        began_s = time.monotonic()
        next_s = 0.0
        while (at_s := time.monotonic() - began_s) < within_s:
            for one in self.driven:
                self._go_on_with(one)
            if at_s >= next_s:
                next_s += min(60.0, within_s / 10)
                yield at_s
            time.sleep(0.5)
        self.over.set()
        for client in self.living:
            client.process.send_signal(signal.SIGINT)
        for one in self.driven:
            if one.client is not None:
                with suppress(subprocess.TimeoutExpired):
                    one.client.process.wait(60.0)
                one.client.process.kill()

    def _spoil(self) -> None:
        """Inject one fault after the other."""
        while not self.over.is_set():
            kind = self.chance.choice(KINDS)
            suffer(Fault(kind, "begin", "", 0.0, self.chance.uniform(1.0, 10.0), self.chance.random()), self)
            self.counts[kind] += self.events[-1][1] != "void"
            self.over.wait(self.chance.uniform(2.0, 15.0))

    def _go_on_with(self, one: Driven) -> None:
        if one.client is not None and one.client.code is None:
            return
        self._of = one
        if one.client is not None:
            one.completed += one.client.code == 0
            self.troubles += [f"a traceback: {one.client.out}"] * ("Traceback" in one.client.text)
            self.counts["clients that ended before their run"] += one.client.code != 0
        if one.client is None or one.client.code == 0 or one.run is None:
            one.runs.mkdir(exist_ok=True, mode=0o777)
            name = f"flow{one.number}.toml"
            (self.place.work / name).write_text(toml(self._steps(one), self.place.work / "step.sh"))
            words = ("run", name, *self.place.settings(), "--strategy", self.trial.strategy)
            self._start(*words, "--bank", str(self.place.bank))
        else:
            has_failed = one.client.code == 1 and self.status_of(one.run) in ("failed", "cancelled")
            self._start("resume", str(one.run), *["--retry"] * has_failed)
        one.client = self.clients[-1]

    def status_of(self, run: Path) -> object:
        """Return the state of a run, as `asa status` says it."""
        done = self.command("status", str(run), "--output", "json")
        return done.stdout.partition('"state": "')[2].partition('"')[0]

    def _steps(self, one: Driven) -> tuple[Step, ...]:
        """Make a workflow: chains of three stages side by side, named after the client and the run."""
        names = [f"c{one.number}r{one.completed}s{number}" for number in range(one.stages)]
        after = [(names[number - 1],) if number % 3 else () for number in range(one.stages)]
        return tuple(
            Step(name, before, 1, round(self.chance.uniform(1.0, self.seconds), 1), retries=2)
            for name, before in zip(names, after, strict=True)
        )
