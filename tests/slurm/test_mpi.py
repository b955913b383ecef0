"""MPI programs on several nodes of real daemons: they spawn across nodes, and on a node by which their job has grown.

All nodes are this machine. Open MPI starts a daemon of its own on each, by srun.
"""

import importlib.util
import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from slurm_testbed import Testbed, missing, until

AGENT = Path(__file__).parents[2] / "examples" / "malleable_mpi" / "srun_agent.sh"
# as on a cluster, each node's name is that of its host: Open MPI compares them
AS_A_NODE = "unshare -u -m sh as-a-node.sh"
SCRIPT = """
hostname "$SLURMD_NODENAME"
mount --bind hosts /etc/hosts
exec "$@"
"""
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PMIX_MCA_gds": "hash",  # daemons on one machine would share a file otherwise
}
HEAD = """
import json, os, sys, time
import numpy as np
from asa.dmr.mpi import Ranks

def tell(ranks):
    right = ranks.gather(ranks.arrays["n"]).tolist() == list(range(6))
    words = [ranks.values["step"], ranks.processes, ranks.rank, os.environ["SLURMD_NODENAME"], right]
    with open("told", "a") as file:
        file.write(json.dumps(words) + "\\n")

def begin(rows):
    return {"n": np.arange(rows.start, rows.stop)}
"""
SPAWNS = """
sizes = [2, 6, 2, 4, 1, 4]
with Ranks(6, begin, {"step": 0}) as ranks:
    while True:
        tell(ranks)
        ranks.values["step"] += 1
        if ranks.values["step"] == len(sizes) or not ranks.resize(sizes[ranks.values["step"]]):
            break
"""
GROWS = """
with Ranks(6, begin, {"step": 0}) as ranks:
    while ranks.values["step"] < 3:
        tell(ranks)
        ranks.values["step"] += ranks.processes == 2
        time.sleep(0.5)
        if not ranks.check(1, 2):
            break
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="jobs of root can read this Python, and name their hosts"),
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun here"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
]


@pytest.fixture(scope="module")
def slurm():
    """Yield a cluster of this machine's own Slurm, whose jobs can read this Python; it lets them grow."""
    if reason := missing():
        pytest.skip(reason)
    conf = "SchedulerParameters=batch_sched_delay=0,bf_interval=1,permit_job_expansion"
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-mpi"), accounting=True, conf=conf)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


def run(slurm, program, command, *options):
    """Run a program in a job; return what its processes tell: step, processes, rank, node, whether all is right."""
    folder = slurm.folder(f"mpi-{time.time_ns()}")
    (folder / "program.py").write_text(HEAD + program)
    (folder / "as-a-node.sh").write_text(SCRIPT)
    (folder / "hosts").write_text(Path("/etc/hosts").read_text() + "".join(f"127.0.0.1 n00{n}\n" for n in range(1, 5)))
    variables = "".join(f"export {name}={value}\n" for name, value in {**ENVIRONMENT, "HOME": folder}.items())
    (folder / "job.sh").write_text(f"#!/bin/sh\n{variables}exec {command} {sys.executable} program.py\n")
    where = ("-D", str(folder), "-o", str(folder / "printed"))
    job = slurm.run_as_root("sbatch", "--parsable", "-t5", *where, *options, str(folder / "job.sh")).strip()
    until(lambda: not slurm.run_as_root("squeue", "-h", "-j", job), what="the end of the job")
    printed = (folder / "printed").read_text()
    assert slurm.run_as_root("sacct", "-n", "-X", "-j", job, "-o", "State").split()[-1] == "COMPLETED", printed
    return [json.loads(line) for line in (folder / "told").read_text().splitlines()]


def test_a_program_spawns_across_the_nodes_of_its_job(slurm):
    mpirun = "mpirun --mca btl tcp,self --map-by node --oversubscribe -n 2"  # messages as between machines
    told = run(slurm, SPAWNS, mpirun, "-N2", "--ntasks-per-node=2")
    for step, processes in enumerate((2, 6, 2, 4, 1, 4)):
        here = [line for line in told if line[0] == step]
        assert sorted(line[2] for line in here) == list(range(processes))
        assert {line[3] for line in here} == ({"n001", "n002"} if processes > 1 else {here[0][3]})
        assert all(line[4] for line in here)


def test_a_program_spawns_on_the_node_by_which_its_job_grows(slurm):
    """Its job begins with a node, and `asa dmr beside` asks for another one."""
    mpirun = f"mpirun --mca plm rsh --mca plm_rsh_agent {AGENT} --mca plm_rsh_no_tree_spawn 1 -n 1"
    manager = f"{sys.executable} -m asa dmr beside --processes 1 --cores 28 --no-shrink --backend slurm-cli --"
    told = run(slurm, GROWS, f"{manager} {AS_A_NODE} {mpirun}", "-N1", "-n28", "--exclusive", "--no-requeue")
    assert {tuple(line[1:4]) for line in told} == {(1, 0, "n001"), (2, 0, "n001"), (2, 1, "n002")}
    assert all(line[4] for line in told)
