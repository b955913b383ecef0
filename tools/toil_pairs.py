# ruff: noqa: T201 - it prints its table
"""Compares Toil's `--batchSystem asa` with its own `slurm`, in pairs, on real Slurm daemons.

    python tools/toil_pairs.py [--pairs N] [--seed N] [--seconds S]

The workflow is `tests/toil/flows/words.cwl`: four levels of one, two, one and one job, each for some seconds, of one
core to four. Others' jobs arrive as in `tools/snakemake_pairs.py`; both runs of a pair meet the same. Each looks at the
states of its jobs as often as it does by itself: Toil once a second. Each call of a command of Slurm is counted.

It needs root, Slurm with its accounting (as tests/slurm), and Toil as `tests/toil/install.sh` installs it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import toil_runs
from slurm_testbed import Testbed
from slurm_testbed import missing as no_slurm
from snakemake_pairs import CORES, NODES, OURS, THEIRS, WARM_S, Others, Told, allocated, show
from toil_flows import put

from asa.runtimes import RunTimes

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo")
OPTIONS = ("--asaBackend", "slurm-cli", "--asaHistory", "200")


def counted(cluster: Testbed, folder: Path) -> Path:
    """Make a folder with Slurm's commands that note each call."""
    programs = folder / "bin"
    programs.mkdir()
    conf = cluster.env["SLURM_CONF"]
    for name in COMMANDS:
        text = f'#!/bin/sh\necho {name} >>{folder}/calls\nSLURM_CONF={conf} exec /usr/bin/{name} "$@"\n'
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return programs


def one_run(
    cluster: Testbed, place: Path, pair: int, who: str, seconds: float, *, seed: int | None, times: Path | None
) -> tuple[Told, Counter[str], dict[str, str]]:
    """Run the workflow, in competition with others' jobs unless `seed` is None; return also calls, and results."""
    cluster.empty()
    folder = place / f"{pair}-{who}"
    folder.mkdir()
    env = {"PATH": f"{counted(cluster, folder)}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    project = toil_runs.ToilProject(folder, on=OPTIONS, prefix=cluster.prefix, env=env)
    flow, inputs = put(project, "words", seconds=str(seconds))
    if times is not None:
        shutil.copytree(times, RunTimes(folder / "bank").folder, copy_function=shutil.copyfile)
        # what every user can change is not used
        cluster.run_as_root("chmod", "-R", "go-w", str(folder / "bank"))
        cluster.run_as_root("chown", "-R", f"{cluster.user}:", str(folder / "bank"))
    others = Others(cluster, seed) if seed is not None else None
    if others is not None:
        others.__enter__()
        time.sleep(WARM_S)
    try:
        since_s, began_s = time.time() - 1.0, time.monotonic()
        project.run(flow, "--slurmTime", "5:00", inputs=[inputs], batch_system=who, within_s=900)
        makespan_s = time.monotonic() - began_s
    finally:
        project.close()
        if others is not None:
            others.__exit__()
    held = allocated(cluster, since_s)
    hours = sum(cores * lasted_s for cores, lasted_s in held) / 3600
    told = Told(pair, who, makespan_s, hours, len(held), sum(lasted_s for _, lasted_s in held) / len(held))
    return told, Counter((folder / "calls").read_text().split()), project.results(who)


def main() -> int:
    """Run the requested pairs; exit code 1 if results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1, help="of the others' jobs of the first pair")
    parser.add_argument("--seconds", type=float, default=6.0, help="for which a job runs")
    asked: Any = parser.parse_args()
    if reason := no_slurm() or toil_runs.missing():
        print(f"Nothing is run: {reason}")
        return 0
    os.umask(0)  # the cluster has another user, who writes into its folders
    found: list[Told] = []
    results = []
    with tempfile.TemporaryDirectory(prefix="asa-", dir="/tmp") as root:
        Path(root).chmod(0o755)
        cluster = Testbed(Path(root) / "0", accounting=True, nodes=NODES, cores_per_node=CORES, conf="MinJobAge=7200")
        try:
            cluster.start()
            place = cluster.folder("pairs")
            one_run(cluster, place, -1, OURS, asked.seconds, seed=None, times=None)
            times = RunTimes(place / f"-1-{OURS}" / "bank").folder
            for pair in range(asked.pairs):
                for who in (OURS, THEIRS) if pair % 2 else (THEIRS, OURS):
                    known = times if who == OURS else None
                    told, calls, made = one_run(
                        cluster, place, pair, who, asked.seconds, seed=asked.seed + pair, times=known
                    )
                    found.append(told)
                    results.append(made)
                    print(json.dumps({**vars_of(told), "calls": dict(calls)}), flush=True)
        finally:
            cluster.stop()
    show(found)
    return 0 if all(made == results[0] for made in results) else 1


def vars_of(told: Told) -> dict[str, Any]:
    """Return the results of a run by name."""
    return {name: getattr(told, name) for name in told.__dataclass_fields__}


if __name__ == "__main__":
    raise SystemExit(main())
