"""Two clusters of one accounting: what is done on the other one, whose jobs have the same numbers, stays there."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.facility import SlurmCommands
from slurm_testbed import NEWEST, OLDEST, Testbed, make_home, missing, until

from asa.backend import JobSpec, JobState

COMMANDS = ("id", "sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr")
FLOW = """
name = "flow"
[[stage]]
name = "a"
cores = 4
walltime = "2m"
expected = "1m"
command = "echo a $SLURM_CLUSTER_NAME >>did"
[[stage]]
name = "b"
after = ["a"]
cores = 8
walltime = "2m"
expected = "1m"
command = "echo b $SLURM_CLUSTER_NAME >>did"
"""


@pytest.fixture(scope="module", params=[OLDEST, pytest.param(NEWEST, marks=pytest.mark.full)])
def both(request):
    """Yield two clusters, of which the first is the one that commands reach by themselves."""
    if reason := missing(request.param):
        pytest.skip(reason)
    big, small = made = [
        Testbed(
            Path(f"/tmp/asa-{os.getpid()}-{request.param}{name}"),
            release=request.param, accounting=True, nodes=1, cluster=name,
        )
        for name in ("big", "small")
    ]  # fmt: skip
    small.joins = big.root
    try:
        yield [testbed.start() for testbed in made]
    finally:
        for testbed in reversed(made):
            testbed.stop()


@pytest.fixture(autouse=True)
def of_everybody():
    """Jobs are another user's than this test's, and write where it made folders."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def typed(both, tmp_path):
    """Yield a function that types a command of asa where Slurm's commands are those of the first cluster."""
    big, _ = both
    folder = big.folder(tmp_path.name)
    (folder / "flow.toml").write_text(FLOW)
    bin_ = folder / "bin"
    bin_.mkdir()
    for name in COMMANDS:
        (bin_ / name).write_text(f'#!/bin/sh\nexec {" ".join(big.prefix)} {name} "$@"\n')
        (bin_ / name).chmod(0o755)
    environment = {
        "HOME": make_home(folder),
        "PATH": f"{bin_}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "ASA_RUNS": str(folder / "runs"),
        "ASA_TRUSTED": os.environ["ASA_TRUSTED"],
        "COLUMNS": "200",
    }

    def asa(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "asa", *words],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert code in {None, done.returncode}, done.stdout + done.stderr
        return done.stdout + done.stderr

    def killed(*words):
        """Type a command that runs something, and kill it once the first stage has begun."""
        with subprocess.Popen(
            [sys.executable, "-m", "asa", *words],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as client:  # fmt: skip
            try:
                until((folder / "did").exists, what="the first stage")
            finally:
                client.kill()

    asa.folder, asa.killed = folder, killed
    return asa


def link_of(slurm, cluster=""):
    return CommandLink(prefix=slurm.prefix, cluster=cluster)


def submitted(slurm, command, *options):
    """Submit a job by Slurm's own command; return its number."""
    words = ("sbatch", "--parsable", "-n1", "-t5", "--chdir=/tmp", "--output=/dev/null", *options, "--wrap", command)
    return slurm.run(*words).strip().partition(";")[0]


def test_a_job_is_followed_cancelled_and_remembered_on_its_own_cluster(both, tmp_path):
    """The first cluster has a job of the same number, which fails."""
    big, _ = both
    folder = big.folder(tmp_path.name)
    facility = SlurmCommands(prefix=" ".join(big.prefix), cluster="small", poll="1s")
    with closing(facility.connect(folder)) as backend:
        assert backend.capabilities.system == "small"
        first = backend.submit(JobSpec("a", 1, 60.0, "sleep 1", token="t-a"))
        while (theirs := submitted(big, "exit 3")) != first and int(theirs) < int(first):
            pass
        until(lambda: backend.status([first])[first].state.is_final, what="its end")
        assert backend.status([first])[first].state is JobState.COMPLETED
        second = backend.submit(JobSpec("b", 1, 600.0, "sleep 500", token="t-b"))
        while int(submitted(big, "sleep 30")) < int(second):
            pass
        backend.cancel(second)
        until(lambda: backend.status([second])[second].state.is_final, what="its cancellation")
        assert [status.job_id for status in backend.find(["t-b"])["t-b"]] == [second]
    told = until(lambda: link_of(big, "small").past([second]), what="its record")
    assert told[second].states[0] == "CANCELLED"
    asked = big.run("squeue", "-h", "-j", second, "-o", "%T", check=False)
    assert "CANCELLED" not in asked, "the first cluster's job of that number was left alone"
    big.empty()


def test_a_run_goes_to_the_cluster_where_it_ends_first(both, typed):
    big, _ = both
    told = typed("doctor", "--save", "big")
    assert "accounting also has small" in told
    typed("doctor", "--option", "cluster=small", "--save", "small")
    submitted(big, "sleep 20", "-n28", "--clusters=big")
    for cluster in ("big", "small"):
        numbers = [submitted(big, "true", "-n28", f"--clusters={cluster}") for _ in range(8)]
        asked = ("sacct", "-X", "-n", "-P", "-M", cluster, "-o", "State", "-j", ",".join(numbers))
        until(lambda asked=asked: big.run(*asked).split() == ["COMPLETED"] * 8, what="jobs in accounting")
        until(lambda name=cluster: "new in" in typed("learn", "--site", name, "--since", "1d", code=None), what="waits")
    told = typed("run", "flow.toml", "--site", "big,small", "--strategy", "per-stage")
    assert "→ small: expected to end in" in told, told
    assert (typed.folder / "did").read_text() == "a small\nb small\n"
    assert "completed" in typed("status")


BOTH = """
backend = "slurm"
clusters = ["big", "small"]
poll = "1s"
"""
CHAIN = """
name = "chain"
[[stage]]
name = "a"
cores = 4
walltime = "2m"
partition = "normal@big"
command = "echo a $SLURM_CLUSTER_NAME >>did; sleep 2"
[[stage]]
name = "b"
after = ["a"]
cores = 4
walltime = "2m"
partition = "normal@small"
command = "echo b $SLURM_CLUSTER_NAME >>did; sleep 2"
[[stage]]
name = "c"
after = ["b"]
cores = 4
walltime = "2m"
partition = "normal@big"
command = "echo c $SLURM_CLUSTER_NAME >>did"
"""


@pytest.mark.parametrize(
    "strategy", ["asa", *(pytest.param(name, marks=pytest.mark.full) for name in ("asa-naive", "asa-plan"))]
)
def test_stages_of_one_run_go_to_different_clusters(typed, strategy):
    (typed.folder / "both.toml").write_text(BOTH)
    (typed.folder / "chain.toml").write_text(CHAIN)
    typed("run", "chain.toml", "--site", "both.toml", "--strategy", strategy)
    assert (typed.folder / "did").read_text() == "a big\nb small\nc big\n"
    assert "@small" in typed("status")


RACED = """
name = "raced"
[[stage]]
name = "a"
cores = 4
walltime = "2m"
expected = "1m"
command = "echo a $SLURM_CLUSTER_NAME >>did; sleep 2"
"""


def test_of_requests_to_two_clusters_the_first_to_start_runs_the_work_and_the_other_goes(both, typed):
    big, _ = both
    (typed.folder / "both.toml").write_text(BOTH)
    (typed.folder / "raced.toml").write_text(RACED)
    submitted(big, "sleep 240", "-n28", "--clusters=big")
    submitted(big, "sleep 12", "-n28", "--clusters=small")
    told = typed("run", "raced.toml", "--site", "both.toml", "--strategy", "asa-plan:races=yes:race-after=2:patience=0")
    assert (typed.folder / "did").read_text() == "a small\n"
    assert "which raced with it for stage 'a', started first" in told
    assert not big.run("squeue", "-h", "-M", "big", "-t", "PD", "-o", "%j").split()[2:], "no request of its own waits"
    big.empty()


def test_a_run_whose_client_was_killed_goes_on_on_both_clusters(both, typed):
    (typed.folder / "both.toml").write_text(BOTH)
    (typed.folder / "chain.toml").write_text(CHAIN)
    typed.killed("run", "chain.toml", "--site", "both.toml", "--strategy", "asa")
    typed("resume")
    assert (typed.folder / "did").read_text() == "a big\nb small\nc big\n"


FORK = """
name = "fork"
[[stage]]
name = "a"
cores = 4
walltime = "2m"
partition = "normal@big"
command = "echo a $SLURM_CLUSTER_NAME >>did; sleep 10"
[[stage]]
name = "b"
after = ["a"]
cores = 4
walltime = "2m"
partition = "normal@small"
command = "echo b $SLURM_CLUSTER_NAME >>did"
[[stage]]
name = "c"
after = ["a"]
cores = 4
walltime = "2m"
partition = "normal@big"
command = "echo c $SLURM_CLUSTER_NAME >>did"
"""


@pytest.mark.full
def test_looks_at_a_run_go_on_while_one_cluster_is_away(both, typed):
    """Looks alone, each by a process of its own: the stages of the other cluster run meanwhile, and the rest later."""
    _, small = both
    (typed.folder / "both.toml").write_text(BOTH)
    (typed.folder / "fork.toml").write_text(FORK)
    typed.killed("run", "fork.toml", "--site", "both.toml", "--strategy", "per-stage")

    def did(line):
        typed("tick", code=None)
        return line in (typed.folder / "did").read_text()

    small.stop_controller()
    try:
        until(lambda: did("c big"), what="the stage on the cluster that answers")
        assert "b small" not in (typed.folder / "did").read_text()
    finally:
        small.start_controller()
    until(lambda: did("b small"), what="the stage on the other")
    until(lambda: typed("tick", code=None) is not None and "completed" in typed("status", code=None), what="the end")
    assert sorted((typed.folder / "did").read_text().split("\n")) == ["", "a big", "b small", "c big"]
