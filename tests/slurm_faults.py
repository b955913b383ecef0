# ruff: noqa: T201 - it prints its table
"""The fault matrix: a client of a four-stage workflow that dies, or whose calls go wrong, at every point of its life.

    python tests/slurm_faults.py                every point under every fault, on a stand-in for Slurm: the table
    python tests/slurm_faults.py --step 7       every seventh point
    python tests/slurm_faults.py --seeds 100    and a hundred lives in which a share of all exchanges goes wrong

Whatever happens, each stage's payload runs exactly once, the run completes, no job is left behind, and each wait that
was learned is what Slurm's own times say.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.defaults import JobDefaults
from asa.backends.slurm.rest import RestLink
from slurm_fake import FAULTS, FakeSlurm, FaultyTransport, Killed, random_faults

from asa.backend import Capabilities
from asa.estimators import WaitBank
from asa.estimators.store import WaitStore
from asa.metrics import measure
from asa.records import Observed, StageEnded
from asa.runner import Journal, Run, run_all
from asa.strategies import load_strategy
from asa.workflow import Stage, Workflow

STAGES = ("a", "b", "c", "d")
VERSIONS = ("22.05", "26.05")
STRATEGIES = ("chained", "per-stage", "asa-naive")
JOURNAL = "journal-kill"
BEGIN_S, MAX_S = 1_800_000_000.0, 6 * 3600
RATES = {"5 % of all": (0.05, FAULTS[:-2]), "20 % of all": (0.2, FAULTS[:-2]), "10 %, deaths too": (0.1, FAULTS)}
MAX_CLIENTS = 30
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a rename waits for no disk


class MortalJournal(Journal):
    """One of which the n-th write, of all that there are, kills, before or after it."""

    def __init__(self, path, life):
        super().__init__(path)
        self.life = life

    def append(self, *entries):
        self.life.touch()
        super().append(*entries)
        self.life.touch()


@dataclass
class Life:
    """Counts the touches of a journal, over all clients; the one numbered `ends_at` kills."""

    ends_at: int | None = None
    touches: int = 0

    def touch(self):
        self.touches += 1
        if self.touches - 1 == self.ends_at:
            raise Killed(f"at touch {self.ends_at} of the journal")


def workflow(ran):
    """Four stages of which two run side by side; each leaves a line."""

    def stage(name, after=(), run_s=70):
        command = f"# virtual-run-s: 0\necho {name} >>'{ran}'\nsleep {run_s}"
        return Stage(name, cores=28, walltime_s=300, expected_run_s=run_s, after=after, command=command)

    return Workflow("four", [stage("a"), stage("b", ("a",)), stage("c", ("a",), 95), stage("d", ("b", "c"))])


class Trial:
    """A stand-in for Slurm, a transport that misbehaves, and as many clients as it takes."""

    def __init__(self, folder, version, strategy, plan=None, ends_at=None):
        self.folder, self.strategy = folder, strategy
        self.slurm = FakeSlurm(folder / "slurm", version, start_s=BEGIN_S)
        self.slurm.occupy(112, BEGIN_S, BEGIN_S + 40)
        self.transport = FaultyTransport(self.slurm, plan, self.slurm.clock)
        self.life = Life(ends_at)
        self.clients = 0
        (folder / "run").mkdir()
        self.flow = workflow(folder / "ran")

    def client(self, *, retry=False, fail_fast=False):
        """Live a client's life: until the run has ended, or until it is killed."""
        self.clients += 1
        slurm = self.slurm
        link = RestLink("http://slurm:6820", transport=self.transport, clock=slurm.clock)
        backend = SlurmBackend(
            link,
            self.folder / "run",
            Capabilities("fake", 112, 28, age_accrues=False),
            defaults=JobDefaults(folder=self.folder),
            clock=slurm.clock,
            sleep=self.sleep,
        )
        journal = MortalJournal(self.folder / "run" / "journal.jsonl", self.life)
        with WaitStore(self.folder / "bank", durable=False) as store:
            bank = WaitBank("last", store=store, user="me")
            run = Run(
                self.flow,
                load_strategy(self.strategy),
                bank=bank,
                id="run0run0run0",
                journal=journal,
                retry=retry,
                fail_fast=fail_fast,
            )
            try:
                [result] = run_all(backend, [run], history=0)
            finally:
                journal.close()
                backend.close()
        return result

    def sleep(self, seconds):
        """Let time pass for a client, but not for ever."""
        assert self.slurm.clock() < BEGIN_S + MAX_S, "the run comes to no end"
        self.slurm.sleep(seconds)

    def run(self):
        """Let clients follow each other until one sees the end."""
        try:
            for _ in range(MAX_CLIENTS):
                try:
                    return self.client()
                except Killed:
                    self.slurm.sleep(7.0)  # somebody notices
            raise AssertionError("no client lived to see the end")
        finally:
            self.slurm.sleep(400.0)  # what is late arrives
            self.slurm.stop()

    def check(self, result):
        """Raise AssertionError if anything is not as it should be."""
        assert result.outcome == "completed", result.reason
        ran = Counter((self.folder / "ran").read_text().split())
        assert ran == dict.fromkeys(STAGES, 1), f"payloads ran {dict(ran)}"
        assert sorted(r.stages[0] for r in result.records if isinstance(r, StageEnded)) == list(STAGES)
        measure(self.flow, result.records)
        left = [job for job in self.slurm.jobs.values() if not job.is_final and job.ask.name != "foreign"]
        assert not left, f"jobs are left: {left}"
        told = [r for r in result.records if isinstance(r, Observed)]
        assert len({r.job_id for r in told}) == len(told)
        jobs = {job.job_id: job for job in (*self.slurm.history, *self.slurm.jobs.values())}
        for record in told:
            job = jobs[int(record.job_id)]
            assert record.wait_s == job.start_s - max(job.eligible_s, job.submit_s), record
        with WaitStore(self.folder / "bank") as store:
            assert len(store.read()) == len(told), "each wait is in the bank once"


@dataclass(frozen=True)
class Point:
    """Where a life meets its fault: a touch of the journal, an exchange; of random faults, the seed."""

    version: str
    strategy: str
    kind: str
    at: int | None = None

    def __str__(self):
        return f"{self.version} {self.strategy} {self.kind} {self.at}"

    def plan(self):
        """Return what goes wrong with which exchange."""
        if self.kind in RATES:
            rate, kinds = RATES[self.kind]
            return random_faults(rate, self.at, kinds)
        return {self.at: self.kind} if self.kind in FAULTS else None

    def trial(self):
        """Make a trial in a folder of its own and check it; give the trial."""
        ends_at = self.at if self.kind == JOURNAL else None
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            one = Trial(Path(folder), self.version, self.strategy, self.plan(), ends_at)
            one.check(one.run())
            return one


@cache
def life(version, strategy):
    """Return the touches of the journal and the exchanges of a life without faults."""
    plain = Point(version, strategy, "none").trial()
    return plain.life.touches, tuple(plain.transport.exchanges)


def points(version, strategy):
    """Return every point of a life: each touch of the journal, and each exchange under each fault."""
    touches, exchanges = life(version, strategy)
    at_journal = [Point(version, strategy, JOURNAL, at) for at in range(touches)]
    return at_journal + [Point(version, strategy, kind, one.index) for kind in FAULTS for one in exchanges]


def attempt(point):
    """Try a point; give the number of clients that it took, and what went wrong."""
    try:
        return point, point.trial().clients, ""
    except Exception:  # noqa: BLE001 - whatever it was, it is in the table
        return point, 0, traceback.format_exc()


def attempt_all(chosen, on_failure, processes=None):
    """Try points on all cores, side by side; give passed, tried and clients by (version, strategy, kind)."""
    table = {}
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        for point, clients, trouble in pool.map(attempt, chosen, chunksize=4):
            if trouble:
                on_failure(point, trouble)
            cell = table.setdefault((point.version, point.strategy, point.kind), [0, 0, 0])
            for i, more in enumerate((not trouble, 1, clients)):
                cell[i] += more
    return table


def main():
    """Print the matrix."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--seeds", type=int, default=0, help="of random faults, beside the points")
    parser.add_argument("--processes", type=int, default=0, help="as many as there are cores, if not given")
    options = parser.parse_args()
    began = time.monotonic()
    columns = list(itertools.product(options.versions.split(","), options.strategies.split(",")))
    chosen = [point for column in columns for point in points(*column)[:: options.step]]
    chosen += [Point(*column, kind, seed) for column in columns for kind in RATES for seed in range(options.seeds)]

    def tell(point, trouble):
        print(f"FAILED: {point}\n{trouble}", file=sys.stderr, flush=True)

    table = attempt_all(chosen, tell, options.processes)
    print(f"{'fault':<18}" + "".join(f"{f'{version} {strategy}':>20}" for version, strategy in columns))
    for kind in (JOURNAL, *FAULTS, *RATES):
        cells = [table.get((*column, kind), (0, 0, 0)) for column in columns]
        print(f"{kind:<18}" + "".join(f"{f'{passed} of {tried}':>20}" for passed, tried, _ in cells))
    passed, tried, clients = (sum(cell[i] for cell in table.values()) for i in range(3))
    took_s = time.monotonic() - began
    print(f"{passed} of {tried} points passed, with {clients} clients, in {took_s:.0f} s")
    sys.exit(passed != tried)


if __name__ == "__main__":
    main()
