"""A study of one's own: is what ASA saves under EASY backfilling saved under another scheduler, too.

A study is cells, a function that runs one, and what comes of it. `asa.studies.harness` runs the cells side by side,
keeps each as it ends, and never runs one twice: interrupted, the same command goes on. What came out is compared
replication by replication, with the intervals and signs of every study here.

    python examples/own_study.py [KEPT.jsonl]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

from asa.backends.simulated import SimulatedSite
from asa.workflows import statistics
from rich.console import Console
from rich.table import Table

from asa import Run, WaitBank, run_all
from asa.backend import Backend
from asa.strategies import load_strategy
from asa.studies.harness import Kind, code_digest, fill
from asa.studies.runs import figures, measured, one_by_one
from asa.studies.standings import QUICK_BASE, THRIFTY_BASE, standings

STRATEGIES = (QUICK_BASE, THRIFTY_BASE, "asa")
SCHEDULERS = ("easy", "wfp")
REPLICATIONS = 4


@dataclass(frozen=True)
class SchedulerCell:
    """What is run in one go: one strategy under one scheduler, with an estimator that all its replications share."""

    scheduler: str
    strategy: str
    cores: int
    moments: int  # replications, as written into what is kept
    code: str  # what other code did is another cell


@dataclass(frozen=True)
class Outcome:
    """One run; the names of its figures are those that `standings` compares."""

    scheduler: str
    strategy: str
    moment: int  # the replication, as written into what is kept
    makespan_s: float
    core_hours: float
    overhead_core_hours: float
    perceived_wait_s: float
    total_wait_s: float


def cells() -> list[SchedulerCell]:
    """All that is to be run."""
    return [
        SchedulerCell(scheduler, strategy, 56, REPLICATIONS, code_digest([("asa.strategies", strategy)]))
        for scheduler, strategy in product(SCHEDULERS, STRATEGIES)
    ]


@lru_cache
def site(scheduler: str) -> SimulatedSite:
    """Make a simulated centre once in each process."""
    return SimulatedSite("hpc2n", scheduler=scheduler)


def run_cell(cell: SchedulerCell) -> list[Outcome]:
    """Run every replication of the workflow."""
    centre, workflow, bank = site(cell.scheduler), statistics(cell.cores), WaitBank(seed=0)

    def run(seed: int, world: Backend) -> Outcome:
        [result] = run_all(world, [Run(workflow, load_strategy(cell.strategy), bank=bank)], history=200)
        took, _ = measured(workflow, result, f"{cell.strategy} under {cell.scheduler}")
        return Outcome(cell.scheduler, cell.strategy, seed, *figures(workflow, took))

    return one_by_one(centre, range(cell.moments), run)


KIND = Kind(run_cell, SchedulerCell, Outcome)


def main(kept: Path | None = None) -> None:
    """Run what is not kept, and print how each strategy stands under each scheduler."""
    outcomes = [one for of in fill(cells(), KIND, kept).values() for one in of]
    table = Table("Scheduler", "Strategy", "Makespan over Big Job's", "Core-hours over Per-Stage's")
    for scheduler in SCHEDULERS:
        here = [one for one in outcomes if one.scheduler == scheduler]
        for one in standings(here, lambda run: (run.scheduler, "statistics"), lambda run: run.moment):
            spans = (
                f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})" for found in (one.makespan, one.core_hours)
            )
            table.add_row(scheduler, f"{one.strategy}{'=' if one.is_as_quick else ''}", *spans)
    Console(highlight=False).print(table, "= the quickest, or not significantly slower.")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
