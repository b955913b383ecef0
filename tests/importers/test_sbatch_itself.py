"""Names of options, and how each takes its value, by the programs of Slurm themselves."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from slurm_testbed import NEWEST, OLDEST

from asa.errors import InputError
from asa.importers.scripts import import_scripts
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


VALUES = {
    "mem": ("1G", "1.5G", "100", "0", "1T", "1P", "4GB", "4g", "1e3", "-1", "G", "100K", "1000MiB", "1M "),
    "mem-per-cpu": ("1G", "1.5G", "0", "2000", "2GB", "x"),
    "mem-per-gpu": ("1G", "1.5G"),
    "time": (
        "10", "10:00", "1:00:00", "1-0", "1-00:00:00", "1-12:30", "1-", "0", "00:00:00", "-1", "infinite", "UNLIMITED",
        "12hours", "1h", "60m", "1.5", "1:2:3:4", "x",
    ),
    "nodes": ("2", "2-4", "+2", "2k", "4-2", "2-", "x"),
    "ntasks": ("4", "0", "-1", "x", "4.5"),
    "cpus-per-task": ("4", "0", "-1", "x"),
    "gpus": ("1", "0", "a100:2", "a100"),
    "gpus-per-task": ("0", "1", "a100:2"),
    "gpus-per-node": ("0", "1", "a100:2"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in VALUES.items() for value in values])
def test_a_value_is_taken_if_sbatch_takes_it(asks, tmp_path, name, value):
    """By sbatch alone: what the controller refuses, nobody knows before."""
    said = asks[1](f"--{name}={value}")
    is_taken = said.strip().endswith("Batch script is empty!") and said.count("error") == 1
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH '--{name}={value}'\necho hi\n")
    try:
        import_scripts([script])
    except InputError:
        assert not is_taken, said
    else:
        assert is_taken, said


@pytest.mark.parametrize(
    ("value", "elements", "at_once"),
    [
        ("[0-9]", "0-9", 0), ("1-10%0", "1-10", 0), ("[1,2]%3", "1-2", 3), ("1-10%", "1-10", 0), ("0-9%-1", "0-9", 0),
        ("[1-3", "1-3", 0), ("1-3%5%2", "1-3", 5), ("'1, 2'", "1-2", 0),
    ],
)  # fmt: skip
def test_an_array_is_what_a_controller_makes_of_it(tmp_path, value, elements, at_once):
    """As controllers of 22.05 and 26.05 showed it."""
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH --array={value}\necho hi\n")
    [stage] = import_scripts([script]).workflow.stages.values()
    assert (str(stage.array.elements), stage.array.at_once) == (elements, at_once)


@pytest.mark.parametrize("value", ["1-", "5-1", "a", "1:3", "1-4:0"])
def test_an_array_that_a_controller_refuses_is_refused(tmp_path, value):
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH --array={value}\necho hi\n")
    with pytest.raises(InputError):
        import_scripts([script])
