"""Impossible jobs are reported before any is submitted, by tests of submission on a real Slurm and by its limits."""

import json
import os
import time
from pathlib import Path

import pytest
from forked import asa
from slurm_testbed import NEWEST, OLDEST, Testbed, make_home, missing, until

CONF = """\
AccountingStorageEnforce=associations,limits,qos
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=100
GresTypes=gpu
NodeName=DEFAULT Gres=gpu:a100:2"""
DEVICES = "Name=gpu Type=a100 File=/dev/null\nName=gpu Type=a100 File=/dev/zero\n"
STAGE = """
[[stage]]
name = "{0}"
command = "true"
cores = 1
walltime = "{2}"
after = [{1}]
{3}
"""
WORDS = """
[[stage]]
name = "r"
command = "true"
walltime = "5m"
request = ["--nodes=2", "--ntasks-per-node=3", "--cpus-per-task=2"]
"""
PER_NODE = 'options = ["--gres=gpu:8"]'


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def limited(request):
    """Yield a cluster of nodes with two GPUs, and two accounts, one of which limits jobs to an hour."""
    if reason := missing(request.param):
        pytest.skip(reason)
    testbed = Testbed(
        Path(f"/tmp/asa-{os.getpid()}-limited{request.param}"), release=request.param, accounting=True, conf=CONF
    )
    (testbed.root / "etc").mkdir(parents=True)
    (testbed.root / "etc" / "gres.conf").write_text(DEVICES)
    try:
        testbed.start()
        limits = ("MaxWall=60", "MaxTRES=cpu=8")
        testbed.run_as_root("sacctmgr", "-i", "modify", "user", testbed.user, "set", *limits)
        until(lambda: "MaxWallPJ=60" in testbed.run_as_root("scontrol", "show", "assoc_mgr"), what="the limit")
        yield testbed
    finally:
        testbed.stop()


class Place:
    """A folder with a workflow of four good stages, and those that are added."""

    def __init__(self, slurm, *stages):
        self.folder = slurm.folder(f"preflight{time.time_ns()}")
        good = [("a", "", "5m", ""), ("b", '"a"', "5m", ""), ("c", '"a"', "5m", ""), ("d", '"b", "c"', "5m", "")]
        text = 'name = "flow"\n' + "".join(STAGE.format(*one) for one in (*good, *stages))
        (self.folder / "flow.toml").write_text(text)
        self.ways = {
            "commands": ("--backend", "slurm-cli", "--option", f"prefix={' '.join(slurm.prefix)}"),
            "rest": ("--backend", "slurm-rest", "--option", f"url=unix://{slurm.socket}",
                     "--option", f"user={slurm.user}"),
        }  # fmt: skip
        home = make_home(self.folder)
        environment = {**os.environ, "HOME": home, "ASA_RUNS": str(self.folder / "runs"), "COLUMNS": "200"}
        self.told = {"cwd": self.folder, "env": environment}

    def run(self, link, *words, code=2):
        options = ("--strategy", "per-stage", "--bank", "none", "--quiet")
        done = asa("run", "flow.toml", *self.ways[link], *options, *words, code=code, **self.told)
        return done.stderr


@pytest.mark.slurm
@pytest.mark.parametrize("words", [("--dry-run",), (), ("--detach", "--detach-by", "cron")], ids=["dry", "run", "left"])
def test_what_can_never_run_is_told_of_all_stages_before_the_first_job(limited, words):
    limited.empty()
    place = Place(limited, ("g", '"d"', "5m", PER_NODE), ("w", '"d"', "2h", ""))
    said = place.run("commands", *words)
    assert "2 jobs could never run" in said
    assert "g: Requested node configuration is not available" in said
    assert "w: asks for 2h00m, and account test has at most 1h00m a job (MaxWall)" in said
    assert "--no-preflight" in said
    assert not limited.run_as_root("squeue", "-h", "-a").strip()
    assert not list(place.folder.glob("runs/*"))


@pytest.mark.slurm
def test_by_rest_limits_tell_of_it(limited):
    limited.empty()
    place = Place(limited, ("w", '"d"', "2h", ""))
    assert "w: asks for 2h00m, and account test has at most 1h00m a job (MaxWall)" in place.run("rest")
    assert not limited.run_as_root("squeue", "-h", "-a").strip()


@pytest.mark.slurm
@pytest.mark.parametrize("link", ["commands", "rest"])
def test_limits_hold_for_what_is_asked_for_in_words(limited, link):
    place = Place(limited)
    file = place.folder / "flow.toml"
    file.write_text(file.read_text() + WORDS)
    assert "r: asks for 12 cores, and account test has at most 8 a job (MaxTRES)" in place.run(link, "--dry-run")


@pytest.mark.slurm
@pytest.mark.parametrize("link", ["commands", "rest"])
def test_memory_beyond_a_node_is_told_too(limited, link):
    place = Place(limited, ("m", '"d"', "5m", 'memory = "900G"'))
    assert "of memory a node in partition 'normal'" in place.run(link, "--dry-run")


@pytest.fixture
def open_folders():
    """Let a client's folders be writable for its jobs, which are another user's."""
    mask = os.umask(0)
    yield
    os.umask(mask)


@pytest.mark.slurm
@pytest.mark.usefixtures("open_folders")
def test_a_run_that_slurm_would_take_begins(limited):
    place = Place(limited, ("g", '"d"', "5m", 'options = ["--gres=gpu:2"]'))
    place.run("commands", code=0)
    status = json.loads(asa("status", "--output", "json", **place.told).stdout)
    assert status["state"] == "completed"


@pytest.mark.slurm
def test_what_passes_is_no_finding(limited):
    """Drained nodes come back: a job that needs all nodes, or one of the drained kind, waits in the queue."""
    place = Place(limited, ("n", '"d"', "5m", 'options = ["--nodelist=n001"]'), ("x", '"d"', "5m", PER_NODE))
    limited.run_as_root("scontrol", "update", "nodename=n001", "state=drain", "reason=test")
    try:
        said = place.run("commands", "--dry-run")
        assert "x: Requested node" in said, "no node has eight, however many are up"
        assert "n: " not in said
        limited.run_as_root("scontrol", "update", "nodename=n00[1-4]", "state=drain", "reason=test")
        assert "could never run" not in place.run("commands", "--dry-run", code=0)
    finally:
        limited.mend()


@pytest.mark.slurm
def test_without_it_a_run_begins(limited):
    limited.empty()
    place = Place(limited, ("w", "", "2h", ""))
    place.run("commands", "--no-preflight", "--dry-run", code=0)
