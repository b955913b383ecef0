# ruff: noqa: T201 - it prints its table
"""Measures the CPU time of many short tasks: by asa as a list in one job and as a bag of two jobs, and by peers.

    python tools/tasks_cost.py               10,000 tasks of 0.01 s, each `sleep 0.01`, two at a time
    python tools/tasks_cost.py --peers P/bin/python

A row is the CPU time, user and system, of the whole command with all that it starts, servers that detach themselves
included, and what that comes to for a task. The tasks alone are in it: what a loop of a shell takes for them is the
first row. Of each way the least of some runs counts (`--times`), and the ways take turns, since a busy machine makes
all of them slower. Peers take part that `--peers` can import: `python -m venv P && P/bin/pip install hyperqueue
distributed`. HyperQueue's server and worker then are threads of the Python that submits the tasks (`LocalCluster`).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import budgets

WORKERS = 2
TASK = ("sleep", "0.01")
PR_SET_CHILD_SUBREAPER = 36  # of `prctl`: orphans become this process's children, whose CPU time it is told

PEERS: Mapping[str, tuple[str, str]] = {
    "HyperQueue": (
        "hyperqueue",
        """
import sys, tempfile
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
with tempfile.TemporaryDirectory() as folder, LocalCluster(folder, WorkerConfig(cores=int(sys.argv[2]))) as cluster:
    client, job = cluster.client(), Job(folder)
    for _ in range(int(sys.argv[1])):
        job.program(sys.argv[3:], stdout=None, stderr=None)
    client.wait_for_jobs([client.submit(job)])
""",
    ),
    "dask": (
        "distributed",
        """
import subprocess, sys
from distributed import Client, LocalCluster
def run(number, command):
    return subprocess.run(command).returncode
if __name__ == "__main__":
    workers = int(sys.argv[2])
    with LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            codes = client.gather(client.map(run, range(int(sys.argv[1])), command=sys.argv[3:], pure=False))
    sys.exit(any(codes))
""",
    ),
}
JOBS: Mapping[str, str] = {"asa, a list in one job": "", "asa, a bag of two jobs": f"jobs = {WORKERS}\n"}
LOOP = 'n=$1; shift; while [ "$n" -gt 0 ]; do "$@"; n=$((n - 1)); done'
XARGS = 'n=$1 w=$2; shift 2; seq "$n" | xargs -P "$w" -I N "$@"'


def whole_cpu_s(command: list[str], place: Path, variables: Mapping[str, str]) -> float:
    """CPU seconds of a command with all processes that it starts, as those which outlive it; waits for their ends.

    Raises `SystemExit`: the command failed.
    """
    program = f"import tasks_cost; tasks_cost.reap({command!r})"
    environment = {**os.environ, **variables, "PYTHONPATH": str(Path(__file__).parent)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return float(done.stdout)


def reap(command: list[str]) -> None:
    """Run a command, wait for all that it leaves, and print the CPU seconds of all."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SystemExit("this system cannot count what detaches itself: it has no PR_SET_CHILD_SUBREAPER")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    code = subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL).returncode
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(taken.ru_utime + taken.ru_stime)
    sys.exit(code)


def commands(count: int, place: Path, peers: str) -> dict[str, list[str]]:
    """Return the command of each way to run the tasks; writes their list, and workflows that read it, into a folder.

    `count`: number of tasks.
    `place`: the folder.
    `peers`: a Python, of which the peers are taken that it has.
    """
    made = {"a loop of sh": ["sh", "-c", LOOP, "sh", str(count), *TASK]}
    if shutil.which("xargs"):
        made["xargs"] = ["sh", "-c", XARGS, "sh", str(count), str(WORKERS), *TASK]
    for name, (module, program) in PEERS.items():
        if not subprocess.run([peers, "-c", f"import {module}"], capture_output=True, check=False).returncode:
            (place / f"{module}_tasks.py").write_text(program)  # a file: dask's workers import it
            made[name] = [peers, f"{module}_tasks.py", str(count), str(WORKERS), *TASK]
    (place / "list").write_text(f"{' '.join(TASK)}\n" * count)
    asa = str(Path(sys.executable).with_name("asa"))
    for name, jobs in JOBS.items():
        flow = f"{len(made)}.toml"
        stage = f'name = "short"\ntasks_file = "list"\ncores = {WORKERS}\nwalltime = "1h"\n{jobs}'
        (place / flow).write_text(f'name = "tasks"\n[[stage]]\n{stage}')
        made[name] = [asa, "run", flow, "--backend", "local", "--strategy", "per-stage"]
    return made


def measured(count: int, times: int, peers: str) -> dict[str, float]:
    """Return the CPU seconds of each way to run tasks, the least of some runs of all ways in turn."""
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for _ in range(times):
            for name, command in commands(count, place, peers).items():
                taken_s = whole_cpu_s(command, place, budgets.at_home_in(place))
                least[name] = min(taken_s, least.get(name, taken_s))
    return least


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="has the peers")
    asked = parser.parse_args()
    if asked.tasks < 1 or asked.times < 1:
        parser.error("at least one task is run, at least once")
    if shutil.which(asked.peers) is None:
        parser.error(f"--peers {asked.peers}: is no program; name a Python, as in --peers P/bin/python")
    taken = measured(asked.tasks, asked.times, asked.peers)
    print(f"CPU of {asked.tasks:,} tasks `{' '.join(TASK)}`, {WORKERS} at a time, least of {asked.times}")
    for name, taken_s in taken.items():
        ratios = (f"{taken_s / taken[peer]:5.2f} times {peer}" for peer in PEERS if peer in taken and peer != name)
        print(f"{name:<24} {taken_s:7.2f} s   a task {1e3 * taken_s / asked.tasks:6.3f} ms   {'   '.join(ratios)}")


if __name__ == "__main__":
    main()
