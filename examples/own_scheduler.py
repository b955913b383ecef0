"""Schedulers of your own, compared with the installed ones: an order in one line of numpy, and a whole scheduling pass.

The first ranks jobs by their area, smallest first. The second fills the machine with the largest jobs that fit, so a
job may be overtaken for ever. Your package registers functions that return such schedulers as entry points; `--option`
sets their keyword-only arguments. Then `asa simulate LOG --scheduler largest-first` and `asa compare montage
--scheduler smallest-area` find them:

    [project.entry-points."asa.schedulers"]
    smallest-area = "own_scheduler:smallest_area"
    largest-first = "own_scheduler:BinPacking"

    python examples/own_scheduler.py
"""

from __future__ import annotations

import numpy as np
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import Easy, PassScheduler, Policy, QueueView, easy, sjf
from asa.backends.simulated.presets import PRESETS
from asa.backends.simulated.table import NEVER
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table


class SmallestArea:
    """Jobs with the fewest requested core-seconds first."""

    def scores(self, view: QueueView) -> NDArray[np.float64]:
        """Score the queued jobs; the highest goes first."""
        area = view.demand[view.queue, 0] * view.request[view.queue]
        scores: NDArray[np.float64] = -1.0 * area
        return scores


def smallest_area() -> Policy:
    """Return this order, with backfilling as in EASY."""
    return Policy(SmallestArea(), Easy())


class BinPacking:
    """Starts the largest job that fits, again and again."""

    def schedule(self, view: QueueView) -> None:
        """Start jobs until none fits."""
        queue = view.queue
        for job in queue[np.argsort(-view.demand[queue, 0], kind="stable")].tolist():
            if np.all(view.demand[job] <= view.free):
                view.start(job)


def main(days: int = 4) -> None:
    """Schedule some days of a simulated centre, and compare waits."""
    model = PRESETS["hpc2n"]
    table = model.generate(days * 86400, seed=1)
    load = Load(table, Cluster({"cores": model.machine.cores}))
    contestants: dict[str, Policy | PassScheduler] = {
        "easy": easy(),
        "sjf": sjf(),
        "smallest area, EASY": smallest_area(),
        "bin packing": BinPacking(),
    }
    shown = Table(title=f"{len(table):,} jobs on {model.machine.cores:,} cores: waits in seconds", title_justify="left")
    for heading in ("Scheduler", "Mean", "95 %", "Longest"):
        shown.add_column(heading, justify="left" if heading == "Scheduler" else "right")
    for name, policy in contestants.items():
        core = GeneralCore(load, policy)
        core.run(NEVER - 1)
        wait = core.start - table.submit
        shown.add_row(name, f"{wait.mean():,.0f}", f"{np.quantile(wait, 0.95):,.0f}", f"{wait.max():,.0f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
