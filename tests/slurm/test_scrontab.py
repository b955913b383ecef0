"""Runs that the crontab of real Slurm looks after; its jobs run this Python, in the tree of a newer Slurm."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_desk import Desk
from slurm_testbed import NEWEST, Testbed, missing, until

from asa import keepers

ROOT = Path(__file__).parents[2]
OWN = "# mine\n#SCRON -t 1\n@yearly true\n"
FLOW = """
name = "flow"
[[stage]]
name = "a"
cores = 1
walltime = "2m"
command = "echo a >>did"
[[stage]]
name = "b"
after = ["a"]
cores = 1
walltime = "2m"
command = "echo b >>did"
"""


@pytest.fixture(params=["24.11", NEWEST])
def place(request):
    """Yield a function that types a command where the scrontab is enabled, as root, whose home jobs see."""
    if reason := missing(request.param):
        pytest.skip(reason)
    if sys.base_prefix.startswith("/usr"):
        pytest.skip("this Python is in folders that the tree has its own of")
    binds = tuple(dict.fromkeys((sys.base_prefix, sys.prefix, str(ROOT))))
    root = Path(f"/tmp/asa-{os.getpid()}-cron{request.param}")
    testbed = Testbed(root, release=request.param, nodes=2, binds=binds, conf="ScronParameters=enable")
    try:
        testbed.start()
        yield Typed(testbed)
    finally:
        testbed.stop()


class Typed(Desk):
    """A desk of root, and the table."""

    def __init__(self, testbed):
        self.testbed, self.as_root = testbed, testbed.env["TB_AS_ROOT"].split()
        super().__init__(testbed, "cron", prefix=self.as_root, also=("scrontab",), ASA_KEEP="ASA_TRUSTED")
        self.write("flow.toml", FLOW)
        self.put(OWN)

    def put(self, table):
        subprocess.run([*self.as_root, "scrontab", "-"], input=table, text=True, check=True)

    @property
    def table(self):
        return self.testbed.run_as_root("scrontab", "-l")


def test_jobs_of_the_crontab_take_a_run_to_its_end(place):
    told = place.asa("run", "flow.toml", "--backend", "slurm-cli", "--strategy", "per-stage", "--detach")
    assert "a small job of Slurm's crontab looks at it once a minute" in told
    assert place.table.startswith(OWN)
    assert place.run.name not in OWN
    did = place.folder / "did"
    until(lambda: did.exists() and did.read_text() == "a\nb\n", within_s=400, what="two stages")
    until(lambda: place.table == OWN, within_s=200, what="the end of the looks")
    assert keepers.kept(place.run) is None
    assert json.loads((place.run / "metrics.json").read_text())


def test_a_run_that_is_cancelled_leaves_no_entry(place):
    slow = FLOW.replace("echo a", "sleep 100; echo a")
    (place.folder / "flow.toml").write_text(slow)
    began = ("run", "flow.toml", "--backend", "slurm-cli", "--strategy", "per-stage", "--detach-by", "scrontab")
    place.asa(*began)
    assert len(place.table.splitlines()) == len(OWN.splitlines()) + 2
    place.asa("cancel", "--yes")
    assert place.table == OWN
