# ruff: noqa: T201 - it prints its table
"""Compares Snakemake's `--executor asa` with `snakemake-executor-plugin-slurm`, in pairs, on real Slurm daemons.

    python tools/snakemake_pairs.py [--pairs N] [--clusters N] [--seed N] [--seconds S] [--small N]

One workflow has seven levels, of one job and of two in turn, each job on a whole node for some seconds. Others' jobs
arrive at times, with sizes and for durations that the pair's seed draws, independent of ours. Both runs of a pair meet
the same jobs, one after the other on an empty cluster that was filled for the same time, and are first in turn.
Priority is multifactor, and grows with the time for which a job is eligible, so not while it depends on another.
Allocated time is Slurm's own accounting of all of the user's jobs, idle or not.

Both plugins look once a second at the states of their jobs. For the other plugin this is a changed setting: by its own
rule, of 40 seconds and more, it would find that jobs of seconds ended long ago. asa knows run times from one earlier
run on an empty cluster, and of waits only what the cluster's accounting shows to anybody. A job of the other plugin
starts Snakemake twice, once more than asa's: with short jobs, this is part of the difference; `--seconds` makes them
longer.

With `--small N`, levels have one job, N jobs and one job, each job of one core, on nodes that Slurm allocates whole.

It needs root, Slurm with its accounting (as tests/slurm), Snakemake as `tests/snakemake/install.sh` installs it, and a
package index: the newest version of the other plugin is installed next to Snakemake.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the tests start the daemons, and install Snakemake

import snakemake_runs
from slurm_testbed import Testbed, until
from slurm_testbed import missing as no_slurm

from asa.core.intervals import Interval, as_ratio, mean_interval
from asa.runtimes import RunTimes

WIDTHS = (1, 2, 1, 2, 1, 2, 1)
NODES, CORES = 4, 28  # nodes of the machine, and cores of a node
WARM_S = 20.0  # others' jobs arrive for this long before ours
OURS, THEIRS = "asa", "slurm"
PLUGIN = "snakemake-executor-plugin-slurm"
BESIDE = snakemake_runs.INSTALLED.with_name("snakemake-slurm")
PATIENCE_S = 900.0
PYTHON = "/usr/bin/python3"  # the cluster's user may run it
_OTHERS_FIRST = 6  # others' jobs that arrive at the beginning
_EVERY_S = 7.0  # mean time between others' jobs, which then fill about five sixths of the machine
_ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
_ONE_BEGINS = threading.Lock()
_LOOKS_EACH_SECOND = """
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
RemoteExecutor.next_seconds_between_status_checks = property(lambda self: 1.0, lambda self, value: None)
from snakemake.cli import main
main()
"""
_HOW = {
    OURS: [
        *("-m", "snakemake", "--executor", "asa", "--asa-strategy", "asa-plan", "--asa-backend", "slurm-cli"),
        *("--asa-option", "poll=1s", "max_poll=1s", "--asa-history", "200"),
    ],
    THEIRS: ["-c", _LOOKS_EACH_SECOND, "--executor", "slurm", "--slurm-init-seconds-before-status-checks", "1"],
}


def snakefile(seconds: float, widths: Sequence[int], cores: int) -> str:
    """Write the workflow; each job of a level follows all jobs of the level before."""
    drawn = random.Random(0)
    rules = [f'rule all:\n    input: "{len(widths) - 1}/0.txt"\n']
    for level, width in enumerate(widths):
        lasts = {str(job): f"{drawn.uniform(0.85, 1.15) * seconds:.1f}" for job in range(width)}
        before = [f"{level - 1}/{job}.txt" for job in range(widths[level - 1])] if level else []
        rules.append(
            f"rule level{level}:\n    input: {before!r}\n"
            f'    output: "{level}/{{job}}.txt"\n    threads: {cores}\n'
            f"    params: lasts=lambda wildcards: {lasts!r}[wildcards.job]\n"
            f'    resources: runtime={math.ceil(seconds / 60) + 1}, slurm_partition="normal", slurm_account="test"\n'
            '    shell: "sleep {params.lasts}; date > {output}"\n'
        )
    return "".join(rules)


@dataclass(frozen=True)
class Told:
    """The results of a run."""

    pair: int
    who: str
    makespan_s: float
    core_hours: float
    jobs: int  # our jobs that began
    held_s: float  # mean allocated time of a job


@dataclass
class Others:
    """Other users' jobs; they arrive as a seed draws them, whatever the competitors do."""

    cluster: Testbed
    seed: int
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._arrive, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join()

    def _arrive(self) -> None:
        began_s = time.monotonic()
        for at_s, nodes, lasts_s, minutes in arrivals(self.seed):
            if self.over.wait(max(at_s - (time.monotonic() - began_s), 0.0)):
                return
            how = ["-Q", "-J", "other", f"-N{nodes}", "--exclusive", f"-t{minutes}", "-D", "/tmp", "-o", "/dev/null"]
            self.cluster.run_as_root("sbatch", *how, "--wrap", f"sleep {lasts_s:.1f}", check=False)


def arrivals(seed: int) -> Iterator[tuple[float, int, float, int]]:
    """Draw others' jobs: arrival, number of nodes, run time in seconds, and walltime in minutes."""
    drawn, at_s = random.Random(seed), 0.0
    for count in range(1_000_000):
        if count >= _OTHERS_FIRST:
            at_s += drawn.uniform(0.3, 1.7) * _EVERY_S
        yield at_s, drawn.choice((1, 1, 2)), drawn.uniform(8.0, 25.0), drawn.choice((1, 2, 3))


def run(cluster: Testbed, folder: Path, who: str, text: str) -> float:
    """Run the workflow in a folder to its end; return the seconds that it took."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Snakefile").write_text(text)
    path = (
        [snakemake_runs.asa_folder(), snakemake_runs.INSTALLED] if who == OURS else [snakemake_runs.INSTALLED, BESIDE]
    )
    env = {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": ":".join(map(str, path)),
        "ASA_BANK": str(folder / "bank"),
        "ASA_SITES": str(folder / "no-sites"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    paths = f"PATH={with_srun(cluster)}:/usr/bin:/bin"
    command = [*cluster.prefix, "env", "-C", str(folder), paths, PYTHON, "-P", *_HOW[who]]
    began_s = time.monotonic()
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--jobs", "20", "--latency-wait", "20"],
            env=env, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code:
        raise RuntimeError(f"{who}: exit {code}\n{(folder / 'said').read_text(errors='replace')[-3000:]}")
    return time.monotonic() - began_s


def with_srun(cluster: Testbed) -> Path:
    """Make a folder with an `srun` that finds the cluster, since the other plugin's jobs lack SLURM_CONF."""
    folder = cluster.root / "jobs" / "bin"
    folder.mkdir(exist_ok=True)
    script = folder / "srun"
    script.write_text(f'#!/bin/sh\nSLURM_CONF={cluster.env["SLURM_CONF"]} exec /usr/bin/srun "$@"\n')
    script.chmod(0o755)
    return folder


def allocated(cluster: Testbed, since_s: float) -> list[tuple[int, int]]:
    """Return the cores and seconds of each of the user's jobs that began, once the accounting has all of them."""
    until(lambda: not cluster.run_as_root("squeue", "-h", "-u", cluster.user).strip(), what="the end of all jobs")
    asked = (
        "-X",
        "-n",
        "-P",
        "-u",
        cluster.user,
        "-S",
        "now-3hours",
        "-o",
        "JobIDRaw,State,Submit,ElapsedRaw,AllocCPUS",
    )

    def found() -> list[list[str]] | None:
        told = cluster.run_as_root("env", "SLURM_TIME_FORMAT=%s", "sacct", *asked)
        rows = [line.split("|") for line in told.splitlines()]
        every = cluster.run_as_root("squeue", "-h", "-t", "all", "-u", cluster.user, "-o", "%A %M").splitlines()
        numbers = {number for number, _, lasted in (line.partition(" ") for line in every) if lasted.strip() != "0:00"}
        is_whole = numbers <= {row[0] for row in rows} and all(row[1].startswith(_ENDED) for row in rows)
        return rows if is_whole else None

    ours = [row for row in until(found, what="the accounting of all jobs") if int(row[2]) >= since_s]
    return [(int(cores), int(lasted_s)) for *_, lasted_s, cores in ours if int(lasted_s or 0) > 0]


def one_run(cluster: Testbed, place: Path, pair: int, who: str, seed: int, text: str, times: Path) -> Told:
    """Run the workflow in competition with others' jobs."""
    cluster.empty()
    folder = place / f"{pair}-{who}" / "flow"  # asa knows a workflow by its folder's name
    if who == OURS:
        shutil.copytree(times, RunTimes(folder / "bank").folder, copy_function=shutil.copyfile)
        cluster.run_as_root("chown", "-R", f"{cluster.user}:", str(folder.parent))
    with Others(cluster, seed):
        time.sleep(WARM_S)
        since_s = time.time() - 1.0
        makespan_s = run(cluster, folder, who, text)
    held = allocated(cluster, since_s)
    core_hours = sum(cores * lasted_s for cores, lasted_s in held) / 3600
    return Told(pair, who, makespan_s, core_hours, len(held), sum(lasted_s for _, lasted_s in held) / len(held))


def pairs_of_cluster(number: int, root: Path, asked: argparse.Namespace) -> list[Told]:
    """Run this cluster's share of the pairs."""
    conf = "MinJobAge=7200" + "\nPartitionName=DEFAULT OverSubscribe=EXCLUSIVE" * bool(asked.small)
    cluster = Testbed(root / str(number), accounting=True, nodes=NODES, cores_per_node=CORES, conf=conf)
    told: list[Told] = []
    try:
        with _ONE_BEGINS:
            cluster.start()
        place, text = cluster.folder("pairs"), snakefile(asked.seconds, widths_of(asked), 1 if asked.small else CORES)
        first_s = run(cluster, place / "before" / "flow", OURS, text)
        times = RunTimes(place / "before" / "flow" / "bank").folder
        print(f"cluster {number}: Slurm {cluster.version}, {first_s:.0f} s where nobody else is", flush=True)
        for pair in range(number, asked.pairs, asked.clusters):
            ours_first = (pair // asked.clusters + number) % 2 == 0
            for who in (OURS, THEIRS) if ours_first else (THEIRS, OURS):
                told.append(one_run(cluster, place, pair, who, asked.seed + pair, text, times))
                print(json.dumps(asdict(told[-1])), flush=True)
    except (RuntimeError, AssertionError, subprocess.SubprocessError) as error:
        print(f"cluster {number} goes no further: {error}", flush=True)
    finally:
        if asked.keep is not None:
            shutil.copytree(cluster.root / "jobs", asked.keep / str(number), dirs_exist_ok=True, symlinks=True)
        cluster.stop()
    return told


def widths_of(asked: argparse.Namespace) -> Sequence[int]:
    """Return the number of jobs of each level."""
    return (1, asked.small, 1) if asked.small else WIDTHS


def install() -> str:
    """Install the newest version of the other plugin that fits the installed Snakemake; return its version."""
    there = [f"{one.name}=={one.version}" for one in distributions(path=[str(snakemake_runs.INSTALLED)])]
    shutil.rmtree(BESIDE, ignore_errors=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(there))
        file.flush()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--target", str(BESIDE)]
        subprocess.run([*pip, "-c", file.name, PLUGIN], check=True)
    for path in (BESIDE, *BESIDE.rglob("*")):
        path.chmod(0o755 if path.is_dir() else path.stat().st_mode | 0o644)
    return next(one.version for one in distributions(path=[str(BESIDE)]) if one.name == PLUGIN)


def ratio(told: Sequence[Told], of: Callable[[Told], float]) -> tuple[Interval, int]:
    """Return the geometric mean of ours over theirs, with its interval over pairs, and the number of pairs."""
    by_pair: dict[int, dict[str, Told]] = {}
    for one in told:
        by_pair.setdefault(one.pair, {})[one.who] = one
    logs = [math.log(of(both[OURS]) / of(both[THEIRS])) for both in by_pair.values() if len(both) == 2]
    return as_ratio(mean_interval(logs)), len(logs)


def show(told: Sequence[Told]) -> None:
    """Print the means, and how they compare."""
    print(f"\n{'':10} {'makespan':>9} {'core-hours':>11} {'jobs begun':>11} {'a job held':>11}   (means)")
    for who in (OURS, THEIRS):
        if mine := [one for one in told if one.who == who]:
            rows = ((one.makespan_s, one.core_hours, one.jobs, one.held_s) for one in mine)
            middle = [sum(values) / len(mine) for values in zip(*rows, strict=True)]
            print(f"{who:10} {middle[0]:7.0f} s {middle[1]:11.2f} {middle[2]:11.1f} {middle[3]:9.1f} s")
    for name, of in (("makespan", _makespan), ("core-hours", _hours)):
        found, count = ratio(told, of)
        print(f"{name}: asa / slurm {found.mean:.2f} [{found.low:.2f}, {found.high:.2f}] over {count} pairs")


def _makespan(one: Told) -> float:
    return one.makespan_s


def _hours(one: Told) -> float:
    return one.core_hours


def main() -> int:
    """Run the requested pairs; exit code 1 if one is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--clusters", type=int, default=1, help="that run pairs at the same time, each a share of them")
    parser.add_argument("--seed", type=int, default=1, help="of the others' jobs of the first pair")
    parser.add_argument("--seconds", type=float, default=6.0, help="for which a job runs")
    parser.add_argument("--small", type=int, default=0, help="of so many jobs of one core, on nodes given whole")
    parser.add_argument("--keep", type=Path, help="folder to which all that the runs have left is copied")
    asked: Any = parser.parse_args()
    if reason := no_slurm() or snakemake_runs.missing():
        print(f"Nothing is run: {reason}")
        return 0
    version = install()
    # before any thread starts; compiled, as an installed package is
    subprocess.run([PYTHON, "-m", "compileall", "-q", str(snakemake_runs.asa_folder())], check=True)
    os.umask(0)  # the cluster has another user, who writes into its folders
    [snakemake, *_] = (snakemake_runs.INSTALLED / ".installed").read_text().split()
    widths = widths_of(asked)
    work_h = sum(widths) * asked.seconds * (1 if asked.small else CORES) / 3600
    print(f"{snakemake}, {PLUGIN} {version}; levels of {', '.join(map(str, widths))} jobs, {work_h:.2f} core-hours")
    with tempfile.TemporaryDirectory(prefix="asa-", dir="/tmp") as folder, ThreadPoolExecutor(asked.clusters) as every:
        Path(folder).chmod(0o755)
        begun = [every.submit(pairs_of_cluster, number, Path(folder), asked) for number in range(asked.clusters)]
        told = [one for done in begun for one in done.result()]
    show(told)
    return 0 if len(told) == 2 * asked.pairs else 1


if __name__ == "__main__":
    raise SystemExit(main())
