"""Runs that are looked at once in a while, by clients that remember nothing but what is in the run's folder."""

import os
from pathlib import Path

from asa.backends.slurm.backend import SlurmBackend
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import Capabilities
from asa.errors import SubmitInDoubtError
from asa.runner import RunFolder, RunPlan, read_journal
from asa.runner.entries import Reasoned
from asa.runner.look import look
from asa.workflow import Stage

SITE = Capabilities("x", 112, 28, age_accrues=False)
CHAIN = [Stage(name, cores=1, walltime_s=600, expected_run_s=30, after=tuple(after), command="sleep 30")
         for name, after in (("a", ""), ("b", "a"), ("c", "b"))]  # fmt: skip


class Lossy(FakeLink):
    """A Slurm in memory that silently loses some submissions."""

    lost = ()

    def submit(self, job):
        self.tried = getattr(self, "tried", 0) + 1
        if self.tried in self.lost:
            raise SubmitInDoubtError("the request was lost")
        return super().submit(job)


def looked(tmp_path, lost, every_s=60.0, strategy="per-stage", bank=""):
    plan = RunPlan("abcd1234", "x", "x", tuple(CHAIN), strategy, "slurm-cli", SITE, created_s=1.7e9, bank=bank)
    folder, clock = RunFolder.create(tmp_path, plan), VirtualClock()
    link = type("One", (Lossy,), {"lost": lost})(clock, folder.path)
    looks = 0
    while folder.state()[0].outcome is None:
        looks += 1
        assert looks < 40, folder.state()[0].jobs.open_intents
        look(folder, lambda run: SlurmBackend(link, run.path, SITE, clock=clock, sleep=clock.sleep))
        clock.sleep(every_s)
    return looks, link, folder


def test_each_look_does_what_is_due(tmp_path):
    looks, link, folder = looked(tmp_path, ())
    assert folder.state()[0].outcome == "completed"
    assert len(link.submitted) == 3
    assert looks <= 5


def test_a_submission_that_was_lost_is_found_to_be_by_two_looks_of_two_clients(tmp_path):
    """Neither client remembers anything: the journal records that the first one looked in vain."""
    looks, link, folder = looked(tmp_path, (1, 3))
    assert folder.state()[0].outcome == "completed"
    assert len(link.submitted) == 3
    assert looks <= 10


def test_looks_that_follow_each_other_too_soon_wait_for_what_may_come_late(tmp_path):
    looks, _, folder = looked(tmp_path, (1,), every_s=4.0)
    entries = (folder.path / "journal.jsonl").read_text().splitlines()
    kinds = [line.rpartition('"kind":"')[2].partition('"')[0] for line in entries]
    assert kinds.count("sought") == 1, "once, however many look before the time is over"
    assert folder.state()[0].outcome == "completed"
    assert looks > 10


def test_a_look_leaves_no_file_open(tmp_path):
    """Also where one process looks again and again, and each look has learned something."""

    def of_the_bank():
        return [path for one in Path("/proc/self/fd").iterdir() if "bank" in (path := os.path.realpath(one))]

    looks, *_ = looked(tmp_path, (), bank=str(tmp_path / "bank"))
    assert looks > 1
    assert list((tmp_path / "bank").glob("*.jsonl"))
    assert not of_the_bank()


class Blank(FakeLink):
    """A Slurm in memory that shows no job while `is_blank`."""

    is_blank = False

    def jobs(self, job_ids):
        return {} if self.is_blank else super().jobs(job_ids)


def test_another_reason_for_many_jobs_is_one_entry_of_the_journal(tmp_path):
    stages = [Stage(f"s{n}", cores=1, walltime_s=6000, expected_run_s=3000, command="sleep 3000") for n in range(9)]
    plan = RunPlan("abcd1234", "x", "x", tuple(stages), "per-stage", "slurm-cli", SITE, created_s=1.7e9)
    folder, clock = RunFolder.create(tmp_path, plan), VirtualClock()
    link = Blank(clock, folder.path)
    reasons = []
    for link.is_blank in (False, False, True, False):
        look(folder, lambda run: SlurmBackend(link, run.path, SITE, clock=clock, sleep=clock.sleep))
        clock.sleep(300.0)
        told = [RunFolder(folder.path).state()[0], folder.state()[0]]  # one that reads all, and one that reads on
        statuses = [{job_id: job.status for job_id, job in state.jobs.items()} for state in told]
        assert statuses[0] == statuses[1]
        reasons.append({status.reason for status in statuses[0].values()})
    assert reasons[1:] == [{""}, {"NotShown"}, {""}]
    written = [one for one in read_journal(folder.path / "journal.jsonl")[0] if isinstance(one, Reasoned)]
    assert [(one.reason, len(one.job_ids)) for one in written] == [("NotShown", 9), ("", 9)]
