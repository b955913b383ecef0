"""Names of options, and how each takes its value, by the programs of Slurm themselves."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from slurm_testbed import NEWEST, OLDEST

from asa.requests.directives import _FLAGS, _OPTIONAL, KNOWN, take_options

TREE = Path(os.environ["ASA_SLURM_TREES"]) / f"slurm-{NEWEST}"
CONF = (
    "ClusterName=x\nSlurmctldHost=localhost\nAuthType=auth/none\nNodeName=localhost\nPartitionName=p Nodes=localhost\n"
)
ELSEWHERE = {  # names that one of both lacks, or takes otherwise
    OLDEST: {
        "consolidate-segments", "container-id", "container-type", "external", "extra", "mem-update", "oom-kill-step",
        "resources", "resv-ports", "segment", "share", "spread-segments", "stepmgr", "tres-bind", "tres-per-task",
        "workdir", "x11", "requeue",
    },
    NEWEST: {"get-user-env", "power", "resv-ports", "share", "workdir", "x11"},
}  # fmt: skip


@pytest.fixture(params=[OLDEST, NEWEST])
def asks(request, tmp_path):
    """Ask sbatch of a release what it makes of words; it ends before it would ask a controller."""
    is_newest = request.param == NEWEST
    if not (TREE / "usr/bin/sbatch").exists() if is_newest else shutil.which("sbatch") is None:
        pytest.skip(f"there is no sbatch of {request.param}")
    if is_newest and os.geteuid():
        pytest.skip("only root may run what is in a tree")
    conf = TREE / "tmp" / f"asa-{os.getpid()}.conf" if is_newest else tmp_path / "slurm.conf"
    conf.write_text(CONF)
    command = ["chroot", str(TREE), "sbatch"] if is_newest else ["sbatch"]
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SLURM_CONF": f"/tmp/{conf.name}" if is_newest else str(conf)}

    def ask(*words):
        done = subprocess.run(
            [*command, *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.stderr

    yield request.param, ask
    conf.unlink()


def test_each_name_is_known_and_takes_its_value_so(asks):
    """A name that sbatch does not know ends it, and it says where a value is missing, or one too many."""
    release, ask = asks
    for name in sorted(KNOWN - ELSEWHERE[release]):
        told = ask(f"--{name}=x", "--no-such-option")
        assert f"unrecognized option '--{name}" not in told, name
        assert ("doesn't allow an argument" in told) == (name in _FLAGS), name
        told = ask(f"--{name}")
        assert ("requires an argument" in told) == (name not in _FLAGS | _OPTIONAL), name


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("part", "partition"), ("tasks-per", "ntasks-per-node"), ("cpus-per-t", "cpus-per-task"), ("job", "job-name"),
        ("depend", "dependency"), ("mem-per-c", "mem-per-cpu"), ("nodel", "nodelist"),
    ],
)  # fmt: skip
def test_a_name_may_be_shortened(asks, short, whole):
    assert f"{whole.removeprefix('n')}' requires" in asks[1](f"--{short}").replace("--n", "--")
    [found], rest = take_options([f"--{short}=4"], "a.sh")
    assert (found.name, rest) == (whole, [])
