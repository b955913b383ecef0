"""The part of the tutorial and of the README that needs a cluster, typed as a reader does, on real daemons."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_desk import Desk
from slurm_testbed import NEWEST, until

ROOT = Path(__file__).parents[2]


def _on_a_cluster():
    text = (ROOT / "docs" / "tutorial.md").read_text()
    blocks = re.findall(r"<!-- on a cluster -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 2
    return "".join(blocks)


def _of_the_readme():
    [block] = [
        one for one in re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL) if "doctor" in one
    ]
    assert "--detach" in block
    # nothing that outlives the test: who looks after a detached run is for tests/slurm/test_tick.py
    return block.replace("--detach", "")


def _has_a_past(slurm, folder):
    """Let the user have a past job in the accounting."""
    slurm.run("sbatch", "-n1", "-t1", f"--chdir={folder}", "--output=/dev/null", "--wrap", "true")
    until(lambda: "COMPLETED" in slurm.run("sacct", "-n", "-X", "-o", "State"), what="a completed job in accounting")


@pytest.fixture(params=[_on_a_cluster, _of_the_readme])
def here(slurm, request):
    """Yield the folder of the scripts, and the environment of a user for whom the cluster's commands are in PATH."""
    if request.param is _of_the_readme and slurm.release == NEWEST:
        pytest.skip("takes minutes: the tutorial's commands, which are the same and more, run there")
    before = os.umask(0)  # jobs are another user's than this test's, and write where it made folders
    desk = Desk(slurm, f"tutorial{request.param.__name__}", COLUMNS="100")
    folder = desk.folder
    place = folder / "reads"
    shutil.copytree(ROOT / "examples" / "reads", place)
    place.chmod(0o777)
    subprocess.run([sys.executable, "make_reads.py", "--bases", "5000"], cwd=place, check=True)
    _has_a_past(slurm, folder)
    yield request.param(), place, desk.environment | {"ASA_RUNS": str(place / "asa-runs")}
    os.umask(before)


def test_the_page_runs_on_a_cluster(here):
    """Each command ends with 0, and the workflow's result is there."""
    commands, place, env = here
    shell = f"set -eu\numask 0\nasa import scripts submit.sh --out flow.toml\n{commands}"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=place, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    assert "reads kept" in (place / "report.txt").read_text()
    assert (Path(env["HOME"]) / ".config" / "asa" / "sites" / "here.toml").exists()
