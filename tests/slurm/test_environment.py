"""A script has the same environment under plain `sbatch` and as a stage, submitted by commands or by REST."""

import itertools
import os
import subprocess
import sys

import pytest
from slurm_testbed import NEWEST, until

SCRIPT = """#!/bin/bash
env -0 >environment
declare -F >functions
module load gcc >module 2>&1
pwd >folder
{ ulimit -S -a; ulimit -H -a; umask; } >limits
{ grep -E '^Sig(Blk|Ign|Cgt|Pnd)' /proc/self/status; trap; readlink /proc/$$/fd/0; } >signals
mv environment seen
"""

# The shell of a user, with functions, limits and a umask of their own; `submit` is told what submits there.
SHELL = """
module() { echo "module was asked to $*"; }
quote() { printf '%s\\n' "it's \\"$1\\"" '$2'; }
export -f module quote
export ODD=$'a\\nb' EMPTY= SLURM_CPU_BIND=none HOME=/home/somebody SPACED='x  y' http_proxy=http://proxy:3128
export folder=/data token=mine number=7 shell=fish name=Ada
ulimit -S -n 777 -s 4096 -c 0
umask 027
"""

# A user's client, as `asa run` connects and submits.
CLIENT = """
import sys
from pathlib import Path
from asa.backend import JobSpec
from asa.backends.slurm.facility import SlurmCommands, SlurmRest
from asa.payload import payload_text
from asa.workflow import Stage

means, where = sys.argv[1:]
settings = dict(system="testbed", age_accrues=True, environment="FROM_SITE=1")
by = SlurmRest(url=where, **settings) if means == "rest" else SlurmCommands(prefix=where, **settings)
options = ("--ntasks-per-node=2", "--distribution=cyclic")
stage = Stage("probe", cores=8, cpus_per_task=2, script=Path("script").read_text(), options=options)
spec = JobSpec(
    "probe", 8, 300.0, command=payload_text(stage, 8), token="t-1", cpus_per_task=2, memory_bytes=800 << 20,
    options=options, secrets=("token",),  # which alone does not go on by itself here
)
backend = by.connect(Path("run").absolute())
print(backend.submit(spec))
backend.close()
"""

OPTIONS = "-J probe -n 4 -c 2 --ntasks-per-node=2 --distribution=cyclic --mem-per-cpu=100M -t 5"
OF_THE_JOB = {
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_SLUID",
    "SLURM_TASK_PID",
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
}
OF_THE_SHELL = {"_", "SHLVL", "OLDPWD"}
OURS = {"ASA_STAGE", "ASA_CORES"}
NUMBERS = itertools.count()
WISHES = {
    "SBATCH_PARTITION": "debug", "SBATCH_CONSTRAINT": "", "SBATCH_REQUEUE": "0", "SBATCH_WCKEY": "",
    "SBATCH_NETWORK": "",
    "SBATCH_DISTRIBUTION": "block", "SBATCH_EXCLUSIVE": "user", "SBATCH_MEM_PER_CPU": "50M",
}  # fmt: skip
"""Some that the options of `OPTIONS` come before, some that fill in, and some that are off."""
SHOWN = ("Partition=", "OverSubscribe=", "Exclusive=", "MinMemory", "ReqB:S:C:T", "NtasksPerN", "Requeue=", "Nice=")


@pytest.fixture
def probe(slurm):
    """Run the script in some way; return what it saw, by file, without its folder's name."""

    def probed(means, wishes=None):
        # one that still leaves its nodes would have the next on others, with other names
        until(lambda: not slurm.run("squeue", "--noheader"), what="the end of all jobs", within_s=60)
        folder = slurm.folder(f"environment{next(NUMBERS)}")
        (folder / "script").write_text(SCRIPT)
        for part in ("run", *(f"run/{name}" for name in ("scripts", "logs", "marks", "posts", "jobs"))):
            (folder / part).mkdir()
            (folder / part).chmod(0o777)  # the client may be root, the jobs are not
        command = {
            "sbatch": [*slurm.prefix, "env", "-C", str(folder), "FROM_SITE=1", "sbatch", *OPTIONS.split(), "script"],
            "commands": [sys.executable, "-c", CLIENT, "commands", " ".join(slurm.prefix)],
            "rest": [sys.executable, "-c", CLIENT, "rest", f"unix://{slurm.socket}"],
        }[means]
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        variables |= wishes or {}
        done = subprocess.run(
            ["bash", "-c", f'{SHELL}\nexec "$@"', "bash", *command],
            cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        until((folder / "seen").exists, what=f"the script's end; {done.stdout}", within_s=30)
        told = {name: (folder / name).read_text() for name in ("functions", "module", "folder", "limits", "signals")}
        told["environment"] = dict(pair.split("=", 1) for pair in (folder / "seen").read_text().split("\0") if pair)
        shown = slurm.run("scontrol", "show", "job", done.stdout.split()[-1]).split()
        told["shown"] = " ".join(word for word in shown if word.startswith(SHOWN))
        return {name: _without(what, str(folder)) for name, what in told.items()}

    return probed


def _without(told, folder):
    if isinstance(told, str):
        return told.replace(folder, "HERE")
    return {name: value.replace(folder, "HERE") for name, value in told.items()}


@pytest.mark.parametrize("wishes", [{}, WISHES], ids=["plain", "wishes"])
@pytest.mark.parametrize("means", ["commands", "rest"])
def test_a_script_finds_what_it_finds_under_sbatch(probe, slurm, means, wishes):
    """Except for the number of its job, what its shell counts, and the token behind the job's name."""
    if (
        slurm.release == NEWEST
    ):  # whose sbatch takes no 0 for the first any more, and has an empty variable of the second
        wishes = {name: value for name, value in wishes.items() if name not in ("SBATCH_REQUEUE", "SBATCH_NETWORK")}
    plain, stage = probe("sbatch", wishes), probe(means, wishes)
    assert plain["module"] == "module was asked to load gcc\n"
    expected, seen = (
        {name: value for name, value in one.pop("environment").items() if name not in OF_THE_JOB | OF_THE_SHELL | OURS}
        for one in (plain, stage)
    )
    assert seen.pop("SLURM_JOB_NAME") == f"{expected.pop('SLURM_JOB_NAME')}.t-1"
    assert seen == expected
    assert expected["SLURM_SUBMIT_DIR"] == "HERE"
    assert expected["folder"] == "/data"
    assert stage == plain
