"""A study of your own: whether ASA saves as much under another scheduler as under EASY backfilling.

A study has cells, a function that runs one cell, and outcomes. `asa.studies.harness` runs cells in parallel, stores
each as it ends, and never runs one twice: after an interruption, the same command continues. Outcomes are compared
replication by replication, with intervals and significance as in every study of asa.

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
    """One cell: a strategy under a scheduler, with an estimator that all its replications share."""

    scheduler: str
    strategy: str
    cores: int
    moments: int  # replications; the name is part of stored results
    code: str  # digest of the code, since results of other code belong to another cell


@dataclass(frozen=True)
class Outcome:
    """One run; its figures have the names that `standings` compares."""

    scheduler: str
    strategy: str
    moment: int  # replication; the name is part of stored results
    makespan_s: float
    core_hours: float
    overhead_core_hours: float
    perceived_wait_s: float
    total_wait_s: float


def cells() -> list[SchedulerCell]:
    """Return all cells to run."""
    return [
        SchedulerCell(scheduler, strategy, 56, REPLICATIONS, code_digest([("asa.strategies", strategy)]))
        for scheduler, strategy in product(SCHEDULERS, STRATEGIES)
    ]


@lru_cache
def site(scheduler: str) -> SimulatedSite:
    """Make a simulated centre, once in each process."""
    return SimulatedSite("hpc2n", scheduler=scheduler)


def run_cell(cell: SchedulerCell) -> list[Outcome]:
    """Run all replications of the workflow."""
    centre, workflow, bank = site(cell.scheduler), statistics(cell.cores), WaitBank(seed=0)

    def run(seed: int, world: Backend) -> Outcome:
        [result] = run_all(world, [Run(workflow, load_strategy(cell.strategy), bank=bank)], history=200)
        took, _ = measured(workflow, result, f"{cell.strategy} under {cell.scheduler}")
        return Outcome(cell.scheduler, cell.strategy, seed, *figures(workflow, took))

    return one_by_one(centre, range(cell.moments), run)


KIND = Kind(run_cell, SchedulerCell, Outcome)


def main(kept: Path | None = None) -> None:
    """Run the cells that are not stored, and print how strategies compare under each scheduler."""
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
