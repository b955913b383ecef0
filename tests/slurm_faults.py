# ruff: noqa: T201 - it prints its table
"""The fault matrix: a client of a four-stage workflow that dies, or whose calls go wrong, at every point of its life.

    python tests/slurm_faults.py             every point under every fault, on a stand-in for Slurm: the table
    python tests/slurm_faults.py --step 7    every seventh point

Whatever happens, each stage's payload runs exactly once, the run completes, no job is left behind, and each wait that
was learned is what Slurm's own times say.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.defaults import JobDefaults
from asa.backends.slurm.rest import RestLink
from slurm_fake import FAULTS, FakeSlurm, FaultyTransport, Killed

from asa.backend import Capabilities
from asa.estimators import WaitBank
from asa.estimators.store import WaitStore
from asa.metrics import measure
from asa.records import Observed, StageEnded
from asa.runner import Journal, Run, run_all
from asa.strategies import load_strategy
from asa.workflow import Stage, Workflow

STAGES = ("a", "b", "c", "d")
VERSIONS = ("22.05", "24.11")


class MortalJournal(Journal):
    """One of which the n-th write, of all that there are, kills, before or after it."""

    def __init__(self, path, life):
        super().__init__(path)
        self.life = life

    def append(self, entry):
        self.life.touch()
        super().append(entry)
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
        command = f"# virtual-run-s: {run_s}\necho {name} >>'{ran}'"
        return Stage(name, cores=28, walltime_s=300, expected_run_s=run_s, after=after, command=command)

    return Workflow("four", [stage("a"), stage("b", ("a",)), stage("c", ("a",), 95), stage("d", ("b", "c"))])


class Trial:
    """A stand-in for Slurm, a transport that misbehaves, and as many clients as it takes."""

    def __init__(self, folder, version, strategy, plan=None, ends_at=None):
        self.folder, self.strategy = folder, strategy
        self.slurm = FakeSlurm(folder / "slurm", version, start_s=1_800_000_000.0)
        self.slurm.occupy(112, 1_800_000_000, 1_800_000_040)
        self.transport = FaultyTransport(self.slurm, plan, self.slurm.clock)
        self.life = Life(ends_at)
        self.clients = 0
        (folder / "run").mkdir()
        self.flow = workflow(folder / "ran")

    def client(self):
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
            sleep=slurm.sleep,
        )
        journal = MortalJournal(self.folder / "run" / "journal.jsonl", self.life)
        with WaitStore(self.folder / "bank", durable=False) as store:
            bank = WaitBank("last", store=store, user="me")
            run = Run(self.flow, load_strategy(self.strategy), bank=bank, id="run0run0run0", journal=journal)
            try:
                [result] = run_all(backend, [run], history=0)
            finally:
                journal.close()
                backend.close()
        return result

    def run(self):
        """Let clients follow each other until one sees the end."""
        try:
            for _ in range(5):
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
        for record in told:
            job = self.slurm.jobs[int(record.job_id)]
            waited = job.start_s - max(job.eligible_s, job.submit_s)
            assert record.wait_s == int(job.start_s) - int(max(job.eligible_s, job.submit_s)), (record, waited)
        with WaitStore(self.folder / "bank") as store:
            assert len(store.read()) == len(told), "each wait is in the bank once"


def trial(version, strategy, plan=None, ends_at=None):
    """Make one trial in a folder of its own and check it; give the trial."""
    with tempfile.TemporaryDirectory() as folder:
        one = Trial(Path(folder), version, strategy, plan, ends_at)
        one.check(one.run())
        return one


def points(version, strategy):
    """Say how many touches of the journal and exchanges a life without faults has."""
    plain = trial(version, strategy)
    return plain.life.touches, len(plain.transport.exchanges)


def matrix(versions=VERSIONS, strategies=("chained", "per-stage"), step=1, on_failure=None):
    """Try every `step`-th point under every fault; give passed and tried by (version, strategy, fault)."""
    table = {}
    for version, strategy in itertools.product(versions, strategies):
        touches, exchanges = points(version, strategy)
        cases = [("journal-kill", None, at) for at in range(0, touches, step)]
        cases += [(kind, {at: kind}, None) for kind in FAULTS for at in range(0, exchanges, step)]
        for kind, plan, ends_at in cases:
            passed, tried, clients = table.get((version, strategy, kind), (0, 0, 0))
            try:
                one = trial(version, strategy, plan, ends_at)
            except Exception as error:
                if on_failure is None:
                    raise
                on_failure(version, strategy, kind, plan or ends_at, error)
                table[version, strategy, kind] = passed, tried + 1, clients
            else:
                table[version, strategy, kind] = passed + 1, tried + 1, clients + one.clients
    return table


def main():
    """Print the matrix."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--strategies", default="chained,per-stage,asa-naive")
    options = parser.parse_args()
    began = time.monotonic()
    strategies = options.strategies.split(",")

    def tell(*what):
        print("FAILED:", *what, file=sys.stderr)

    table = matrix(strategies=strategies, step=options.step, on_failure=tell)
    print(f"{'fault':<15}" + "".join(f"{version + ' ' + s:>20}" for version in VERSIONS for s in strategies))
    for kind in ("journal-kill", *FAULTS):
        cells = [table.get((version, s, kind), (0, 0, 0)) for version in VERSIONS for s in strategies]
        print(f"{kind:<15}" + "".join(f"{f'{passed} of {tried}':>20}" for passed, tried, _ in cells))
    passed, tried = (sum(cell[i] for cell in table.values()) for i in (0, 1))
    print(f"{passed} of {tried} points passed, in {time.monotonic() - began:.0f} s")
    sys.exit(passed != tried)


if __name__ == "__main__":
    main()
