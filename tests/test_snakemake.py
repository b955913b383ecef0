"""Snakemake's workflows through asa, on this machine: as its own executors run them, and nothing twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked import asa
from local_queue import Queue
from slurm_testbed import until
from snakemake_runs import Project, missing

from asa.backend import JobState

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

WHOLE = """
localrules: all, listing
rule all:
    input: "final.txt", "kept.txt", "grouped.txt", "tried.txt"
rule seed:
    output: temp("seed.txt")
    benchmark: "bench/seed.tsv"
    shell: "printf 'one\\ntwo\\nthree\\n' > {output}"
checkpoint split:
    input: "seed.txt"
    output: directory("parts")
    resources: runtime=5
    shell: "mkdir -p {output}; n=0; while read w; do n=$((n+1)); echo $w > {output}/$n.txt; done < {input}"
rule part:
    input: "parts/{n}.txt"
    output: temp("done/{n}.txt")
    threads: 2
    resources: mem_mb=200
    shell: "sed s/^/{threads}-/ {input} > {output}"
def parts(wildcards):
    where = checkpoints.split.get().output[0]
    return expand("done/{n}.txt", n=sorted(glob_wildcards(where + "/{n}.txt").n))
rule listing:
    input: parts
    output: "listing.txt"
    shell: "ls {input} | sort > {output}"
rule final:
    input: "listing.txt", parts
    output: protected("final.txt")
    resources: runtime=5
    shell: "cat {input} > {output}"
rule kept:
    input: "listing.txt"
    output: "kept.txt"
    shell: "wc -l < {input} > {output}"
rule tried:
    output: "tried.txt"
    retries: 2
    resources: runtime=lambda wc, attempt: 2 * attempt, mem_mb=lambda wc, attempt: 100 * attempt
    shell: "echo x >> tries.log; test $(wc -l < tries.log) -ge 2; echo {resources.mem_mb} > {output}"
rule g1:
    output: temp("g1-{n}.txt")
    group: "g"
    resources: runtime=3
    shell: "echo {wildcards.n} > {output}"
rule g2:
    input: expand("g1-{n}.txt", n=range(3))
    output: "grouped.txt"
    group: "g"
    resources: runtime=3
    shell: "cat {input} > {output}"
"""

CHAIN = """
rule all:
    input: "3.txt"
rule first:
    output: "1.txt"
    shell: "echo first >> ran.txt; {then}; echo 1 > {{output}}"
rule second:
    input: "1.txt"
    output: "2.txt"
    shell: "echo second >> ran.txt; cat {{input}} > {{output}}"
rule third:
    input: "2.txt"
    output: "3.txt"
    shell: "echo third >> ran.txt; cat {{input}} > {{output}}"
"""
SLOW = "touch began; while [ ! -e go ]; do sleep 0.1; done"


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path, 4)
    yield queue
    queue.close()


@pytest.fixture
def project(tmp_path, queue):
    made = []

    def make(snakefile, *options, name="work"):
        on = ("--asa-backend", "local", "--asa-set", "cores=4", f"spool={tmp_path / 'spool'}")
        made.append(Project(tmp_path / name, snakefile, options=("--jobs", "8", *on, *options)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_results_are_those_of_the_local_executor(project):
    """Temporary and protected files, a checkpoint, local rules, threads, attempts and groups: byte for byte."""
    ours, theirs = project(WHOLE), project(WHOLE, name="theirs")
    said = ours.run()
    theirs.run(executor="local")
    assert ours.results().keys() == theirs.results().keys()
    assert {k: v for k, v in ours.results().items() if not k.startswith("bench/")} == {
        k: v for k, v in theirs.results().items() if not k.startswith("bench/")
    }
    assert not (ours.folder / "final.txt").stat().st_mode & 0o222
    assert "asa: " in said
    assert "strategy asa-plan" in said.lower()
    state = ours.state
    assert state.outcome == "completed"
    assert not state.unfinished_jobs()
    # what followed the checkpoint was asked for ahead, and otherwise once the graph had changed
    assert "dropped" in ours.phases().values()


def test_allocations_are_asked_for_ahead_and_jobs_share_them(project):
    """But with the strategy that does as other executors do."""
    ours = project(CHAIN.format(then="sleep 1"))
    ours.run()
    state = ours.state
    ahead = [entry for entry in state.intents.values() if entry.planned.keep.value != "nothing"]
    shared = [entry for entry in state.intents.values() if len(entry.planned.stages) > 1]
    assert ahead or shared
    as_others = project(CHAIN.format(then="sleep 1"), "--asa-strategy", "per-stage", name="others")
    as_others.run()
    assert [(i.planned.keep.value, len(i.planned.stages)) for i in as_others.state.intents.values()] == [
        ("nothing", 1)
    ] * 3
    assert all(not i.spec.awaits for i in as_others.state.intents.values())


@pytest.mark.parametrize("strategy", ["asa-plan", "per-stage"])
def test_a_job_that_fails_fails_the_workflow_and_says_why(project, strategy):
    """Others go on with --keep-going, and nothing is left in the queue."""
    text = CHAIN.format(then="true") + (
        'rule bad:\n    input: "1.txt"\n    output: "bad.txt"\n    shell: "echo 100%s of this is bad >&2; exit 3"\n'
        'rule after_bad:\n    input: "bad.txt"\n    output: "after.txt"\n    shell: "touch {output}"\n'
    )
    ours = project(text, "--keep-going", "--asa-strategy", strategy)
    said = ours.run("3.txt", "after.txt", code=1)
    assert (ours.folder / "3.txt").exists()
    assert "100%s of this is bad" in said
    assert "asa: job" in said
    assert not ours.state.unfinished_jobs()
    again = ours.run("3.txt")
    assert "Nothing to be done" in again


def test_retries_are_snakemakes(project):
    """A job that is killed is tried again with what it asks for then."""
    killed = "echo x >> tries; if [ $(wc -l < tries) = 1 ]; then kill -9 $(ps -o ppid= -p $PPID); sleep 60; fi"
    text = f"""
rule all:
    input: "b.txt"
rule a:
    output: "a.txt"
    resources: runtime=lambda wc, attempt: 3 * attempt, mem_mb=lambda wc, attempt: 50 * attempt
    shell: "{killed}; echo ok > {{output}}"
rule b:
    input: "a.txt"
    output: "b.txt"
    shell: "cat {{input}} > {{output}}"
"""
    ours = project(text, "--retries", "2")
    said = ours.run(code=None)
    assert "Trying to restart job" in said
    assert (ours.folder / "b.txt").read_text() == "ok\n"
    memory = [i.spec.memory_bytes >> 20 for i in ours.state.intents.values() if "a.1" in i.planned.stages]
    assert 50 in memory
    assert 100 in memory


def test_killed_and_run_again_no_job_runs_twice(project):
    """What the former run left is ended first, and what was done is done."""
    ours = project(CHAIN.format(then=SLOW))
    first = ours.begin()
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{first.said}")
    first.kill()
    assert ours.state.unfinished_jobs()
    second = ours.begin("--unlock")
    second.ends()
    (ours.folder / "began").unlink()
    third = ours.begin("--rerun-incomplete")
    third.says("that an earlier run has left")
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{third.said}")
    former = ours.runs[0].state()[0]
    assert not former.unfinished_jobs()
    assert former.outcome == "cancelled"
    assert all(job.status.state is not JobState.COMPLETED for job in former.jobs.values())
    (ours.folder / "go").touch()
    third.ends()
    assert (ours.folder / "ran.txt").read_text().split() == ["first", "first", "second", "third"]


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_cancels_all_jobs(project, times):
    """Asked for ahead or not; a second one hurries it."""
    ours = project(CHAIN.format(then=SLOW))
    begun = ours.begin()
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{begun.said}")
    for _ in range(times):
        os.kill(begun.process.pid, signal.SIGINT)
        time.sleep(0.5)
    begun.ends(code=None)
    if times == 2:  # what it had no time for is for the next
        ours.run("--unlock")
        (ours.folder / "go").touch()
        ours.run("--rerun-incomplete")
    assert not any(run.state()[0].unfinished_jobs() for run in ours.runs)
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
    assert "cancelled: somebody asked for it" in said


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


def test_what_can_never_start_is_told_before_anything_is_submitted(project):
    """And by whom, and what to do."""
    text = CHAIN.format(then="true").replace('output: "3.txt"', 'output: "3.txt"\n    threads: 99')
    ours = project(text)
    said = ours.run(code=1)
    assert "third" in said
    assert "99 cores" in said
    assert not (ours.folder / "ran.txt").exists()


def test_run_times_are_learned_where_none_is_said(project):
    """From earlier runs, and from Snakemake's own benchmarks."""
    text = CHAIN.format(then="sleep 1").replace('output: "2.txt"', 'output: "2.txt"\n    benchmark: "bench.tsv"')
    ours = project(text)
    said = ours.run()
    assert "none learned yet: first, second, third" in said
    again = ours.run("--forceall")
    assert "learned from earlier runs: first, second, third" in again
    ours.env["ASA_BANK"] = str(ours.folder / "other-bank")
    once_more = ours.run("--forceall")
    assert "learned from earlier runs: second" in once_more
    assert "none learned yet: first, third" in once_more


def test_snakemakes_own_suite_for_executors_passes(project, tmp_path):
    """All of it that needs no storage elsewhere."""
    ours = project(None)
    suite = Path(__file__).parent / "snakemake" / "interface_suite.py"
    env = ours.env | {"ASA_TEST_SPOOL": str(tmp_path / "spool"), "PYTHONWARNINGS": "ignore"}
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(ours.folder),
        str(suite),
    ]
    done = subprocess.run(
        [sys.executable, *words], cwd=ours.folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
