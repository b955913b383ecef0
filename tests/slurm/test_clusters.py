"""Two clusters of one accounting: what is done on the other one, whose jobs have the same numbers, stays there."""

import os
from contextlib import closing
from pathlib import Path

import pytest
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.facility import SlurmCommands
from slurm_desk import Desk
from slurm_testbed import NEWEST, OLDEST, Testbed, missing, until

from asa.backend import JobSpec, JobState

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
def desk(both, tmp_path):
    """Yield a desk where Slurm's commands are those of the first cluster."""
    desk = Desk(both[0], tmp_path.name)
    desk.write("flow.toml", FLOW)
    return desk


def killed(desk, *words):
    """Type a command that runs something, and kill it once the first stage has begun."""
    with desk.begin(*words) as client:
        try:
            until((desk.folder / "did").exists, what="the first stage")
        finally:
            client.kill()


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


def test_a_run_goes_to_the_cluster_where_it_ends_first(both, desk):
    big, _ = both
    told = desk.asa("doctor", "--save", "big")
    assert "accounting also has small" in told
    desk.asa("doctor", "--option", "cluster=small", "--save", "small")
    submitted(big, "sleep 20", "-n28", "--clusters=big")
    for cluster in ("big", "small"):
        numbers = [submitted(big, "true", "-n28", f"--clusters={cluster}") for _ in range(8)]
        asked = ("sacct", "-X", "-n", "-P", "-M", cluster, "-o", "State", "-j", ",".join(numbers))
        until(lambda asked=asked: big.run(*asked).split() == ["COMPLETED"] * 8, what="jobs in accounting")
        learn = ("learn", "--site", cluster, "--since", "1d")
        until(lambda words=learn: "new in" in desk.asa(*words, code=None), what="waits")
    told = desk.asa("run", "flow.toml", "--site", "big,small", "--strategy", "per-stage")
    assert "→ small: expected to end in" in told, told
    assert (desk.folder / "did").read_text() == "a small\nb small\n"
    assert "completed" in desk.asa("status")


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
def test_stages_of_one_run_go_to_different_clusters(desk, strategy):
    (desk.folder / "both.toml").write_text(BOTH)
    (desk.folder / "chain.toml").write_text(CHAIN)
    desk.asa("run", "chain.toml", "--site", "both.toml", "--strategy", strategy)
    assert (desk.folder / "did").read_text() == "a big\nb small\nc big\n"
    assert "@small" in desk.asa("status")


RACED = """
name = "raced"
[[stage]]
name = "a"
cores = 4
walltime = "2m"
expected = "1m"
command = "echo a $SLURM_CLUSTER_NAME >>did; sleep 2"
"""


def test_of_requests_to_two_clusters_the_first_to_start_runs_the_work_and_the_other_goes(both, desk):
    big, _ = both
    (desk.folder / "both.toml").write_text(BOTH)
    (desk.folder / "raced.toml").write_text(RACED)
    submitted(big, "sleep 240", "-n28", "--clusters=big")
    submitted(big, "sleep 12", "-n28", "--clusters=small")
    told = desk.asa(
        "run", "raced.toml", "--site", "both.toml", "--strategy", "asa-plan:races=yes:race-after=2:patience=0"
    )
    assert (desk.folder / "did").read_text() == "a small\n"
    assert "which raced with it for stage 'a', started first" in told
    assert not big.run("squeue", "-h", "-M", "big", "-t", "PD", "-o", "%j").split()[2:], "no request of its own waits"
    big.empty()


def test_a_run_whose_client_was_killed_goes_on_on_both_clusters(both, desk):
    (desk.folder / "both.toml").write_text(BOTH)
    (desk.folder / "chain.toml").write_text(CHAIN)
    killed(desk, "run", "chain.toml", "--site", "both.toml", "--strategy", "asa")
    desk.asa("resume")
    assert (desk.folder / "did").read_text() == "a big\nb small\nc big\n"


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
def test_looks_at_a_run_go_on_while_one_cluster_is_away(both, desk):
    """Looks alone, each by a process of its own: the stages of the other cluster run meanwhile, and the rest later."""
    _, small = both
    (desk.folder / "both.toml").write_text(BOTH)
    (desk.folder / "fork.toml").write_text(FORK)
    killed(desk, "run", "fork.toml", "--site", "both.toml", "--strategy", "per-stage")

    def did(line):
        desk.asa("tick", code=None)
        return line in (desk.folder / "did").read_text()

    small.stop_controller()
    try:
        until(lambda: did("c big"), what="the stage on the cluster that answers")
        assert "b small" not in (desk.folder / "did").read_text()
    finally:
        small.start_controller()
    until(lambda: did("b small"), what="the stage on the other")
    until(
        lambda: desk.asa("tick", code=None) is not None and "completed" in desk.asa("status", code=None), what="the end"
    )
    assert sorted((desk.folder / "did").read_text().split("\n")) == ["", "a big", "b small", "c big"]
