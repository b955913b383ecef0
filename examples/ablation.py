"""Measures how much each part of the default estimator contributes, added one by one, and left out alone.

python examples/ablation.py [TRACE...]

Traces are job histories (SWF or `sacct -P`); without one, four weeks of a simulated centre are used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from asa.backends.simulated.presets import PRESETS
from asa.backends.simulated.replay import replayed
from rich.console import Console
from rich.table import Table

from asa.estimators.contextual import PARTS, ContextualAsa
from asa.history import JobHistory, read_history
from asa.studies.accuracy import evaluate
from asa.waits import Surroundings, WaitEstimator

Make = Callable[[Surroundings], WaitEstimator]


def make(surroundings: Surroundings, *, without: tuple[str, ...] = (), closeness: float = 0.5) -> ContextualAsa:
    """Make the estimator without some of its parts."""
    return ContextualAsa(seed=surroundings.seed, without=without, closeness=closeness)


def contestants() -> dict[str, Make]:
    """Return the variants: the geometry's exponential weights, then one more part in each row; then all but one."""
    made: dict[str, Make] = {"geometry alone": partial(make, without=PARTS)}
    for count, part in enumerate(PARTS, start=1):
        made[f"+ {part}"] = partial(make, without=PARTS[count:])
    made |= {f"all but {part}": partial(make, without=(part,)) for part in PARTS}
    made["all, median stated"] = partial(make, closeness=0.0)
    return made


def simulated() -> JobHistory:
    """Simulate jobs of a workload model under EASY backfilling."""
    model = PRESETS["uppmax"]
    return replayed(model.generate(28 * 86400, np.random.SeedSequence(1)), model.machine.cores)


def main() -> None:
    """Evaluate all variants on all traces."""
    traces = [Path(name) for name in sys.argv[1:]]
    histories = {path.name: read_history(path).first(40_000) for path in traces}
    histories = histories or {"simulated": simulated().first(6000)}
    scores = evaluate(histories, contestants())
    table = Table(title="Mean error in powers of ten, share of hits, pinball loss of p10 to p90")
    table.add_column("Parts")
    for name in histories:
        table.add_column(name, justify="right")
    rows: dict[str, list[str]] = {}
    for score in scores:
        told = f"{score.log10_error:.3f}  {100 * score.hit_ratio:4.1f} %  {score.pinball_log10:.3f}"
        rows.setdefault(score.estimator, []).append(told)
    for parts, cells in rows.items():
        if parts != "oracle":
            table.add_row(parts, *cells)
    Console(width=max(80, 30 + 28 * len(histories))).print(table)


if __name__ == "__main__":
    main()
