"""Benchmarks of the hot paths, as ratios to something plain, since machines are noisy.

python tests/bench.py
"""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from asa.backends.simulated import SimulatedSite
from asa.backends.simulated.engine import NEVER, Engine
from asa.backends.simulated.presets import PRESETS
from asa.backends.simulated.swf import read_swf
from asa.workflows import montage
from rich.console import Console
from rich.table import Table

from asa.estimators import Asa
from asa.runner import Run, run_all
from asa.strategies import load_strategy


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of some tries."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def growth() -> tuple[str, float, str, float]:
    """Cost a job on a long load against a short one: it should not grow."""
    model = PRESETS["hpc2n"]
    short, long = (model.generate(days * 86400, 1) for days in (4, 32))
    costs = [best(lambda t=t: Engine(model.machine.cores, t).advance(NEVER), 2) / len(t) for t in (short, long)]
    return f"engine, a job ({len(long):,} jobs)", costs[1], f"the same, {len(short):,} jobs", costs[0]


def estimator() -> tuple[str, float, str, float]:
    """Predict and observe against keeping the last wait in a variable."""
    rng = np.random.default_rng(0)
    waits = rng.choice([100.0, 150.0, 5000.0], 1000).tolist()
    learner = Asa("tuned", seed=1)

    def learn() -> None:
        for wait in waits:
            learner.observe(wait, learner.predict())

    def remember() -> None:
        last = 0.0
        for wait in waits:
            _ = last
            last = wait

    return "tuned ASA, predict + observe", best(learn) / 1000, "last wait", best(remember) / 1000


def reading() -> tuple[str, float, str, float]:
    """A log against splitting its lines."""
    line = "{0} {1} -1 60 4 -1 -1 4 600 -1 1 1 1 1 1 1 -1 -1\n"
    text = "; MaxProcs: 100\n" + "".join(line.format(i, i) for i in range(50_000))
    path = Path("/tmp/asa-bench.swf")
    path.write_text(text)
    split = best(lambda: [row.split() for row in io.StringIO(text)], 3) / 50_000
    ours = best(lambda: read_swf(path), 3) / 50_000
    path.unlink()
    return "reading a log, a line", ours, "split() of a line", split


def run() -> tuple[str, float, str, float]:
    """One run of Montage under ASA against the warm-up that all runs of a seed share."""
    begun = time.perf_counter()
    site = SimulatedSite("hpc2n")
    site.prepare([1])
    warm_up = time.perf_counter() - begun
    flow, strategy = montage(112), load_strategy("chained")
    return "one run of Montage", best(lambda: run_all(site.open(1), [Run(flow, strategy)])), "its warm-up", warm_up


def imports() -> tuple[str, float, str, float]:
    """`import asa` against `import numpy`."""
    cost = {
        name: best(lambda name=name: subprocess.run([sys.executable, "-c", f"import {name}"], check=True), 5)
        for name in ("asa", "numpy")
    }
    return "import asa", cost["asa"], "import numpy", cost["numpy"]


def main() -> None:
    """Run all and print the table."""
    table = Table(title="Hot paths", title_justify="left")
    for heading in ("What", "Takes", "Beside", "Takes", "Ratio"):
        table.add_column(heading, justify="left" if heading in {"What", "Beside"} else "right")
    for bench in (growth, estimator, reading, run, imports):
        what, ours, beside, theirs = bench()
        table.add_row(what, _show(ours), beside, _show(theirs), f"{ours / theirs:.3g}")
    Console().print(table)


def _show(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


if __name__ == "__main__":
    main()
