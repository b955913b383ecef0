# ruff: noqa: T201 - it prints its table
"""Compares a bag of tasks over several jobs with dask-jobqueue's `SLURMCluster.adapt`, on real Slurm daemons.

    python tools/bags_against_jobqueue.py [--rounds N] [--tasks N] [--seed N] [--who bag,jobqueue,...]

The machine, four nodes of 28 cores that need not exist, is full of others' jobs, and a constant number of them waits.
The work is many equal tasks that sleep. Each way may have 112 cores at a time: `bag` as 16 jobs of 7 cores that share
one folder; `jobqueue` as up to 16 jobs of 7 cores that follow demand; `nodes` as up to 4 jobs of 28 cores, the usual
set-up of one worker per node; and `wide` as one job. In each round, all ways meet the same other jobs. Allocated
core-hours are taken from Slurm's own records. Two of the ways need `dask-jobqueue`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the tests start the daemons

from against_jobqueue import Others
from slurm_testbed import SCRIPT, Testbed, missing

CORES = 112
WALLTIME_MIN = 30
SHARES = {"bag": 16, "wide": 1, "jobqueue": 16, "nodes": 4}  # upper bound of jobs
_CONF = "MinJobAge=7200\nPriorityType=priority/basic"  # first come, first served, with backfilling
WARM_S = 60.0  # until the queue is in a steady state


@dataclass(frozen=True)
class Told:
    """The results of a run."""

    who: str
    seed: int
    makespan_s: float
    core_hours: float
    jobs: int  # that began


def run(testbed: Testbed, place: Path, who: str, seed: int, tasks: int, task_s: float) -> Told:
    """Run all tasks in one of the ways."""
    testbed.empty()
    commands = ["env", f"TB_ROOT={testbed.root}", "bash", str(SCRIPT), "run-root"]
    folder = place / f"{who}-{seed}"
    folder.mkdir()
    with Others(testbed, seed):
        time.sleep(WARM_S)
        began_s, began = time.time(), time.monotonic()
        if who in {"bag", "wide"}:
            as_bag(commands, folder, SHARES[who], tasks, task_s)
        else:
            with their_cluster(commands, folder, SHARES[who]) as client:
                began = time.monotonic()
                as_they_come(client, tasks, task_s)
        makespan_s, ended_s = time.monotonic() - began, time.time()
    time.sleep(2.0)
    held = list(allocated(testbed, began_s - 2.0, ended_s))
    return Told(who, seed, makespan_s, sum(held) / 3600, len(held))


def as_bag(commands: Sequence[str], folder: Path, jobs: int, tasks: int, task_s: float) -> None:
    """Run the tasks as a stage of `asa run`."""
    (folder / "list").write_text(f"sleep {task_s:g}\n" * tasks)
    (folder / "flow.toml").write_text(
        f'name = "bag"\n[[stage]]\nname = "work"\ntasks_file = "list"\ncores = {CORES}\njobs = {jobs}\n'
        f'walltime = "{WALLTIME_MIN}min"\nexpected = "{tasks * task_s / CORES:.0f}s"\n'
    )
    words = ["run", "flow.toml", "--quiet", "--backend", "slurm-cli", "--set", f"prefix={' '.join(commands)}"]
    words += ["--set", "poll=1s", "--set", "max_poll=2s"]
    own = {"ASA_RUNS": "runs", "ASA_BANK": "bank", "HOME": str(folder)}
    asa = str(Path(sys.executable).with_name("asa"))
    done = subprocess.run([asa, *words], cwd=folder, env=os.environ | own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


@contextmanager
def their_cluster(commands: Sequence[str], folder: Path, jobs: int) -> Iterator[Any]:
    """Open dask-jobqueue's cluster, as its documentation sets it up."""
    import shlex

    from dask_jobqueue import SLURMCluster
    from dask_jobqueue.slurm import SLURMJob
    from distributed import Client

    SLURMJob.submit_command = shlex.join([*commands, "sbatch"])
    SLURMJob.cancel_command = shlex.join([*commands, "scancel"])
    lives = ["--lifetime", f"{WALLTIME_MIN * 55}s", "--lifetime-stagger", f"{WALLTIME_MIN * 4}s"]
    with SLURMCluster(
        cores=CORES // jobs, processes=1, memory="2 GB", walltime=f"00:{WALLTIME_MIN}:00",
        log_directory=str(folder), local_directory=str(folder), worker_extra_args=lives,
    ) as cluster, Client(cluster) as client:  # fmt: skip
        cluster.adapt(minimum_jobs=0, maximum_jobs=jobs)
        yield client


def nap(seconds: float, *_: Any) -> float:
    """Sleep in place of work; defined in this file, so that workers get the function itself."""
    time.sleep(seconds)
    return seconds


def as_they_come(client: Any, tasks: int, task_s: float) -> None:
    """Fetch each result as it comes, so that a worker's end loses none."""
    from distributed import as_completed

    for task in as_completed([client.submit(nap, task_s, number, pure=False) for number in range(tasks)]):
        task.result()
        task.release()


def allocated(testbed: Testbed, since_s: float, ended_s: float) -> Iterator[float]:
    """Yield the core-seconds of each of our jobs that began."""
    for line in testbed.run_as_root("env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job").splitlines():
        told = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if told["JobName"] == "other" or float(told["SubmitTime"]) < since_s:
            continue
        if told["StartTime"].isdigit() and told["RunTime"] != "00:00:00":
            yield int(told["NumCPUs"]) * (min(float(told["EndTime"]), ended_s) - float(told["StartTime"]))


def show(told: Sequence[Told]) -> None:
    """Print a line for each way, and how they compare."""
    by_who = {who: [one for one in told if one.who == who] for who in dict.fromkeys(one.who for one in told)}
    print(f"{'':9} {'makespan':>9} {'core-hours':>11} {'jobs begun':>11}   (medians; makespan of each round)")
    for who, mine in by_who.items():
        middle = [
            statistics.median(values)
            for values in zip(*((o.makespan_s, o.core_hours, o.jobs) for o in mine), strict=True)
        ]
        each = ", ".join(f"{one.makespan_s:.0f}" for one in mine)
        print(f"{who:9} {middle[0]:7.0f} s {middle[1]:11.2f} {middle[2]:11g}   {each}")
    for who, theirs in by_who.items():
        pairs = list(zip(by_who.get("bag", []), theirs, strict=False))
        if who == "bag" or not pairs:
            continue
        ratios = [statistics.geometric_mean(f(m) / f(t) for m, t in pairs) for f in (_makespan, _hours)]
        print(
            f"bag over {who}, geometric means of {len(pairs)} rounds: "
            f"makespan {ratios[0]:.2f}, core-hours {ratios[1]:.2f}"
        )


def _makespan(one: Told) -> float:
    return one.makespan_s


def _hours(one: Told) -> float:
    return one.core_hours


def main() -> None:
    """Run the requested comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--task-s", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--who", default="bag,jobqueue,nodes,wide")
    asked = parser.parse_args()
    ways = asked.who.split(",")
    if unknown := set(ways) - SHARES.keys():
        raise SystemExit(f"no such way: {', '.join(unknown)}; known: {', '.join(SHARES)}")
    if reason := missing():
        raise SystemExit(reason)
    told = []
    with tempfile.TemporaryDirectory(prefix="asa-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # Slurm's own user must enter it
        testbed = Testbed(Path(folder) / "slurm", nodes=4, cores_per_node=CORES // 4, conf=_CONF)
        place = Path(folder) / "runs"
        place.mkdir()
        try:
            testbed.start()
            print(f"Slurm {testbed.version}, {asked.tasks} tasks of {asked.task_s:g} s")
            for number in range(asked.rounds):
                order = ways[number % len(ways) :] + ways[: number % len(ways)]  # each way is the first one in turn
                for who in order:
                    told.append(run(testbed, place, who, asked.seed + number, asked.tasks, asked.task_s))
                    print(json.dumps(asdict(told[-1])), flush=True)
        finally:
            testbed.stop()
    show(told)


if __name__ == "__main__":
    main()
