# ruff: noqa: T201 - it prints its table
"""Compares a bag of tasks over several jobs with the pool that asks ahead of time, simulated under recorded logs.

    python tools/bags_against_pool.py LOG ... [--rounds N] [--hours H ...] [--job-cores C]

Both have the same number of cores together, in jobs of the same width, and do the same work in the same worlds. The bag
is a stage of as many jobs as share its cores. The pool decides by `asa.pool.planning.decide` from the waits that it
learns, as in `tools/against_jobqueue.py`, and may replace jobs that reached their walltime or were given back.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

import against_jobqueue
from against_jobqueue import Graph, Logged, model

from asa.metrics import measure
from asa.runner import Run, run_all
from asa.sites import open_facility
from asa.strategies import load_strategy
from asa.studies.bags.study import SIZES, bag

TASKS_A_CORE = 20


def of_bag(site: Any, hours: float, cores: int, jobs: int, seed: int) -> tuple[float, float]:
    """Run a bag; return its makespan in seconds, and its core-hours."""
    flow = bag(hours, cores, jobs)
    [result] = run_all(site.open(seed), [Run(flow, load_strategy("per-stage"))])
    took = measure(flow, result.records)
    return took.makespan_s, took.core_hours


def of_pool(site: Any, hours: float, cores: int, jobs: int, seed: int) -> tuple[float, float]:
    """Run the same work in a pool."""
    against_jobqueue.MAX_JOBS = jobs
    each = cores // jobs
    graph = Graph(1, TASKS_A_CORE * cores, 3600 * hours / TASKS_A_CORE, 15.0, 1.25 * 3600 * hours, each, 15.0)
    told = model(Logged(site, seed), graph, "pool", float(each), "asa")
    return told.makespan_s, told.allocated_h


def main() -> None:
    """Print a row for each log and size: geometric means of the bag's makespan and core-hours over the pool's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--hours", type=float, nargs="+", default=[1.0, 12.0])
    parser.add_argument("--job-cores", type=int, default=7)
    asked = parser.parse_args()
    print(f"{'log':<12} {'hours':>5} {'jobs':>4}  makespan  core-hours  (bag over pool)", flush=True)
    for log in asked.logs:
        site = open_facility("simulated", None, {"trace": str(log), "poll_s": "0"}).facility
        cores = next(size for size in SIZES if size <= site.capabilities.max_cores)
        jobs = cores // asked.job_cores
        for hours in asked.hours:
            pairs = [
                (of_bag(site, hours, cores, jobs, seed), of_pool(site, hours, cores, jobs, seed))
                for seed in range(asked.rounds)
            ]
            ratios = [
                math.exp(statistics.fmean(math.log(ours[i] / theirs[i]) for ours, theirs in pairs)) for i in (0, 1)
            ]
            name = log.name.partition(".")[0]
            print(f"{name:<12} {hours:>5g} {jobs:>4}  {ratios[0]:>8.2f}  {ratios[1]:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
