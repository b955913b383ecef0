"""Snakemake that is killed, interrupted, cancelled, or begun where another was: no job runs twice, none is left."""

import os
import signal
import time

import pytest
from forked import asa
from slurm_testbed import until
from snakemake_runs import CHAIN, SLOW, missing

from asa.backend import JobState

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def test_killed_and_run_again_no_job_runs_twice(project):
    """What the former run left is ended first, and what was done is done."""
    ours = project(CHAIN.format(then=SLOW))
    first = ours.begin()
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{first.said}")
    first.kill()
    assert ours.state.jobs.unfinished()
    told = " ".join(asa("explain", "--run", ours.runs[-1].path).stdout.split())
    assert "Run Snakemake again: it first ends what this run has left" in told
    assert "asa resume" not in told
    second = ours.begin("--unlock")
    second.ends()
    (ours.folder / "began").unlink()
    third = ours.begin("--rerun-incomplete")
    third.says("that an earlier run has left")
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{third.said}")
    former = ours.runs[0].state()[0]
    assert not former.jobs.unfinished()
    assert former.outcome == "cancelled"
    assert all(job.status.state is not JobState.COMPLETED for job in former.jobs.values())
    (ours.folder / "go").touch()
    third.ends()
    assert (ours.folder / "ran.txt").read_text().split() == ["first", "first", "second", "third"]


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.full)])
def test_an_interrupt_cancels_all_jobs(project, times):
    """Asked for ahead or not; a second one hurries it."""
    ours = project(CHAIN.format(then=SLOW))
    begun = ours.begin()
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{begun.said}")
    for _ in range(times):
        os.kill(begun.process.pid, signal.SIGINT)
        time.sleep(0.5)
    said = begun.ends(code=None)
    assert "Traceback" not in said
    if times == 2:  # what it had no time for is for the next
        ours.run("--unlock")
        (ours.folder / "go").touch()
        ours.run("--rerun-incomplete")
    assert not any(run.state()[0].jobs.unfinished() for run in ours.runs)
    assert ours.runs[0].state()[0].outcome == "cancelled"


def test_nobody_else_goes_on_with_its_run(project):
    """But whoever cancels it may, and Snakemake says so."""
    ours = project(CHAIN.format(then=SLOW))
    begun = ours.begin("--keep-going")
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{begun.said}")
    path = str(ours.runs[-1].path)
    for command in ("resume", "tick"):
        assert "hosted by Snakemake" in asa(command, path, code=2).stderr
    asa("status", path)
    asa("cancel", path, "--yes")
    said = begun.ends(code=1)
    assert "cancelled: you asked for it" in said


def test_a_lost_journal_is_refused(project):
    """Which jobs still run is not known then."""
    ours = project(CHAIN.format(then=SLOW))
    begun = ours.begin()
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{begun.said}")
    begun.kill()
    journal = ours.runs[-1].path / "journal.jsonl"
    kept = journal.read_bytes()
    journal.unlink()
    ours.run("--unlock")
    said = ours.run("--rerun-incomplete", code=1)
    assert "journal.jsonl" in said
    assert "move" in said
    journal.write_bytes(kept)
    (ours.folder / "go").touch()
    ours.run("--rerun-incomplete")
    assert (ours.folder / "3.txt").exists()
