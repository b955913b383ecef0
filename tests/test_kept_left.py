"""Runs that earlier releases began are gone on with: their clients were killed, and jobs of theirs are in the queue.

The release made them on the same Slurm in memory, which really runs the jobs' scripts (`tools/kept_release.py`).
"""

import json
import tarfile
from collections import Counter
from pathlib import Path

import kept_runs as kept
import pytest
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.rest import RestLink
from slurm_fake import Ask, Clause, FakeSlurm, Job

from asa.records import StageEnded
from asa.runner import RunFolder, drive
from asa.runner.entries import Accepted, Intended
from asa.runner.look import look

RELEASES = ["0.2.0"]
RAN = {
    "chain": Counter("abcd"),
    "diamond": Counter("abcd"),
    "tasks": Counter(["a", "z", *(f"t{number}" for number in range(8))]),
    "legs": Counter(l=3),
    "when": Counter(a=1, tidy=1, always=1),
    "retries": Counter(a=2, b=1),
}


@pytest.fixture(autouse=True)
def disk(monkeypatch):
    """Nothing here has to outlive a crash of the machine."""
    monkeypatch.setattr("os.fsync", lambda _: None)


class Left:
    """A run, and Slurm as it is when a client comes to it."""

    def __init__(self, folder, spool, *, forgets):
        self.folder, self.run = folder, RunFolder(folder / "flow")
        known = json.loads((folder / "slurm.json").read_text())
        self.slurm = FakeSlurm(spool, "22.05", start_s=known["now_s"])
        for about in known["jobs"]:
            ask = Ask(**about.pop("ask"))
            clauses = [Clause(**clause) for clause in about.pop("clauses")]
            job = Job(**about, ask=ask, clauses=clauses)
            self.slurm._next_id = job.job_id + 1
            if not (forgets and job.is_final):
                self.slurm.jobs[job.job_id] = job
        self.before = {job["job_id"] for job in known["jobs"]}
        self.slurm._look_soon()

    def connect(self, run):
        clock = self.slurm.clock
        link = RestLink("http://slurm:6820", transport=self.slurm, clock=clock)
        defaults = JobDefaults(folder=self.folder)
        site = self.run.plan.capabilities
        return SlurmBackend(link, run.path, site, defaults=defaults, clock=clock, sleep=self.slurm.sleep)

    def looks(self):
        """Look at the run now and then until it has ended; return how it did."""
        for _ in range(200):
            look(self.run, self.connect)
            state = self.run.state()[0]
            if state.outcome is not None and not state.jobs.unfinished():
                return state.outcome
            self.slurm.sleep(60.0)
        raise AssertionError("it comes to no end")


@pytest.fixture(scope="module", params=RELEASES)
def written(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("kept")
    kept.unpack(kept.KEPT / f"{request.param}.tar.xz", root)
    return root


def cases():
    """Name all runs that are left."""
    with tarfile.open(kept.KEPT / f"{RELEASES[0]}.tar.xz") as archive:
        return sorted(Path(name).parent.name for name in archive.getnames() if name.endswith("/slurm.json"))


CASES = cases()


def test_each_kind_is_left():
    assert {name.partition("-")[0] for name in CASES} == RAN.keys()


@pytest.mark.parametrize("forgets", [False, pytest.param(True, marks=pytest.mark.full)], ids=["known", "forgotten"])
@pytest.mark.parametrize("how", ["resume", "tick"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost_and_nothing_runs_twice(written, name, how, forgets, tmp_path):
    """Also where Slurm has forgotten the jobs that ended before today's version came: their marks tell."""
    kept.copy(written / "left" / name, tmp_path / name)
    left = Left(tmp_path / name, tmp_path / "spool", forgets=forgets)
    kind = name.partition("-")[0]
    try:
        outcome = left.looks() if how == "tick" else drive(left.run, left.connect).outcome
    finally:
        left.slurm.stop()
    assert outcome == ("failed" if kind == "when" else "completed"), left.run.state()[0].reason
    assert Counter((left.folder / "did").read_text().split()) == RAN[kind]
    _, records = left.run.state()
    ended = [record.stages[0] for record in records if isinstance(record, StageEnded)]
    assert len(ended) == len(set(ended))
    jobs = [*left.slurm.history, *left.slurm.jobs.values()]
    assert all(job.is_final for job in jobs)
    names = Counter(job.ask.name for job in jobs)
    assert set(names.values()) == {1}, "no token is submitted twice"
    entries = kept.entries_of(left.run.path)
    accepted = {int(one.status.job_id) for one in entries if isinstance(one, Accepted)}
    assert accepted == left.before | {job.job_id for job in jobs}, "each job of Slurm's is the run's"
    assert len({one.token for one in entries if isinstance(one, Intended)}) == len(accepted)
