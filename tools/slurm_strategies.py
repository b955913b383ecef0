"""Compares strategies on a real Slurm cluster, in competition with another user's jobs.

It runs all installed strategies that can run there. Left out are those that know the future, as only a simulator does,
those that ask a planning batch system, which Slurm is not, and `pool`, whose stages share jobs of a dask cluster.

The paper ran Montage at two centres for weeks. Here its nine stages last seconds in place of minutes (`sleep`), on a
temporary cluster of real daemons (slurmctld, 16 slurmd, slurmrestd) that this script starts, while another user keeps
the cluster busy. Each strategy has its own client and run folder; all meet the same load.

    python tools/slurm_strategies.py --rounds 3          # the release that this computer has
    python tools/slurm_strategies.py --release 26.05     # another Slurm, from the tree that the tests use

It needs root, for its own cluster, and Slurm installed (Debian: slurmctld slurmd slurmrestd slurm-client munge).
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

# the tests start the daemons, and have replacements for them
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from asa.backends.slurm.facility import SlurmRest
from asa.workflows import montage
from rich.console import Console
from slurm_testbed import OLDEST, RELEASES, Testbed, missing

import asa
from asa.backend import Backend
from asa.core.plugins import names
from asa.metrics import measure
from asa.runner import RunFolder, RunPlan, drive
from asa.strategies import load_strategy
from asa.strategies.base import ForecastKind
from asa.strategies.on_pool import POOL
from asa.studies.compare.study import CompareRun
from asa.studies.compare.table import render
from asa.workflow import Stage, Workflow

ON_SLURM = (ForecastKind.NONE, ForecastKind.LEARNED, ForecastKind.PUBLISHED)
STRATEGIES = [name for name in names("asa.strategies") if name != POOL and load_strategy(name).forecast in ON_SLURM]
NODES, CORES_PER_NODE = 16, 28
SECONDS = 24.0  # of all stages together
WAITING = 4  # jobs of the other user that always wait in the queue


def scaled(flow: Workflow, total_s: float) -> Workflow:
    """Scale a workflow to a total run time, with stages in proportion, but at least a second each."""
    whole = sum(stage.expected_s for stage in flow.stages.values())

    def short(stage: Stage) -> Stage:
        lasts = max(1.0, round(stage.expected_s / whole * total_s))
        return replace(stage, walltime_s=60.0, expected_run_s=lasts, command=f"sleep {lasts:.0f}")

    return Workflow(flow.name, [short(stage) for stage in flow.stages.values()], walltime_s=2 * total_s)


class OtherUser(threading.Thread):
    """Another user, of whom a constant number of jobs waits in the queue."""

    def __init__(self, cluster: Testbed, seed: int) -> None:
        super().__init__(daemon=True)
        self.cluster, self.random, self.over = cluster, random.Random(seed), threading.Event()

    def run(self) -> None:
        """Submit a job whenever fewer wait."""
        while not self.over.wait(0.3):
            waiting = self.cluster.run_as_root("squeue", "-h", "-t", "PD", "-u", "root", check=False)
            for _ in range(WAITING - len(waiting.splitlines())):
                cores, lasts = self.random.choice([28, 56, 56, 112, 224]), self.random.randint(5, 15)
                command = ["sbatch", "-Q", "-n", str(cores), "-t", "1", "-o", "/dev/null", "--wrap", f"sleep {lasts}"]
                self.cluster.run_as_root(*command, check=False)


def one_run(cluster: Testbed, folder: Path, strategy: str, cores: int, seed: int) -> CompareRun:
    """Run Montage once under a strategy, as `asa run` does."""
    flow = scaled(montage(cores), SECONDS)
    reached = {"url": f"unix://{cluster.socket}", "served_by": cluster.user}
    facility = SlurmRest(**reached, system="testbed", poll="1s", max_poll="5s", age_accrues=True)

    def connect(run: RunFolder) -> Backend:
        return facility.connect(run.path, sleep=run.sleep)

    plan = RunPlan(
        id=f"{seed:02d}{strategy.replace('-', '')}{int(time.time()):x}",
        name=f"montage-{strategy}",
        workflow=flow.name,
        stages=tuple(flow.stages.values()),
        walltime_s=flow.walltime_s,
        strategy=strategy,
        backend="slurm-rest",
        capabilities=facility.connect(folder).capabilities,
        folder=str(folder),
        bank=str(folder / f"bank-{strategy}"),
        created_s=time.time(),
        version=asa.__version__,
    )
    run = RunFolder.create(folder, plan)
    result = drive(run, connect)
    metrics = measure(flow, result.records) if result.outcome == "completed" else None
    return CompareRun(flow.name, "testbed", cores, strategy, seed, True, metrics, result.reason)


def all_rounds(cluster: Testbed, rounds: int, cores: int) -> list[CompareRun]:
    """Run all strategies at the same time, so that they meet the same load, several times."""
    folder = cluster.folder("runs")
    os.chdir(folder)  # payloads run here: nodes must see the folder
    other = OtherUser(cluster, seed=1)
    other.start()
    runs: list[CompareRun] = []
    try:
        with ThreadPoolExecutor(len(STRATEGIES)) as clients:
            for seed in range(rounds):
                tasks = [clients.submit(one_run, cluster, folder, name, cores, seed) for name in STRATEGIES]
                runs += [task.result() for task in tasks]
    finally:
        other.over.set()
        other.join()
    return runs


def main() -> int:
    """Start a cluster, run, and print; exit code 1 if a run failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cores", type=int, default=112)
    parser.add_argument("--release", default=OLDEST, choices=RELEASES, help="of Slurm; the oldest is this computer's")
    options: Any = parser.parse_args()
    console = Console()
    if reason := missing(options.release):
        console.print(f"Nothing is run: {reason}")
        return 0
    os.umask(0)  # the cluster has another user, who writes into its folders
    root = Path(tempfile.mkdtemp(prefix="asa-", dir="/tmp"))
    root.chmod(0o755)
    # jobs of equal priority go in order of their numbers: early submission counts, even with a dependency
    cluster = Testbed(
        root, release=options.release, nodes=NODES, cores_per_node=CORES_PER_NODE, conf="PriorityType=priority/basic"
    )
    try:
        cluster.start()
        runs = all_rounds(cluster, options.rounds, options.cores)
    finally:
        cluster.stop()
    size = f"{NODES} nodes of {CORES_PER_NODE} cores"
    console.print(f"Slurm {cluster.version}, {size}, {WAITING} other jobs always waiting")
    console.print(render(runs, seeds=options.rounds))
    for run in runs:
        if run.metrics is None:
            console.print(f"{run.strategy}: {run.reason}")
    return 0 if all(run.metrics is not None for run in runs) else 1


if __name__ == "__main__":
    raise SystemExit(main())
