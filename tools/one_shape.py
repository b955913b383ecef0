"""Compares `asa-plan` with `chained` and `per-stage` on public logs, for workflows whose stages have one shape each.

    python tools/one_shape.py --first 32 --starts 40 KTH.swf.gz CTC.swf.gz ...

All meet the same queues with the same knowledge of the past. Printed are ratios of makespans: the geometric mean over
starts, and the worst start.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from asa.core import plugins
from asa.estimators import WaitBank
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.studies.present import Table, console
from asa.studies.runs import Known, completed, each_knowing, simulated
from asa.workflow import Stage, Workflow

HISTORY = 2000
STRATEGIES = ("chained", "per-stage", "asa-plan")


def stage(name: str, cores: int, run_s: float, *after: str) -> Stage:
    """Make a stage that asks for twice its run time."""
    return Stage(name, cores=cores, walltime_s=2 * run_s, expected_run_s=run_s, command="true", after=after)


def fan(levels: int, width: int) -> Iterator[Stage]:
    """Yield levels of parallel stages, each followed by a stage that joins them."""
    yield stage("root", 4, 600.0)
    before = "root"
    for level in range(levels):
        names = [f"{level}-{number}" for number in range(width)]
        for number, name in enumerate(names):
            yield stage(name, 8 * (1 + number % 3), 900.0 + 300.0 * number, before)
        before = f"join-{level}"
        yield stage(before, 4, 300.0, *names)


def workflows(machine_cores: int) -> dict[str, Workflow]:
    """Return the workflows: two of the paper's, a graph with branches of several widths, a chain and a fan."""
    wide = min(112, machine_cores // 2)
    branches = [stage("b", wide // 2, 1800.0, "a"), stage("c", wide // 4, 3600.0, "a"), stage("d", 8, 1200.0, "a")]
    ends = [stage("e", 8, 900.0, "b", "c", "d"), stage("f", wide // 2, 1800.0, "e")]
    narrow = [stage(f"n{number}", 8, 1800.0, *([f"n{number - 1}"] if number else ())) for number in range(6)]
    made = {name: cast("Workflow", plugins.load("asa.workflows", name)(wide)) for name in ("montage", "statistics")}
    made["branches"] = Workflow("branches", [stage("a", 8, 900.0), *branches, *ends])
    return made | {"narrow chain": Workflow("chain", narrow), "fan": Workflow("fan", fan(3, 5))}


def makespans_s(log: Path, starts: Sequence[int], *, age_accrues: bool) -> dict[str, dict[str, list[float]]]:
    """Return makespans in seconds, by workflow and strategy, in the order in which starts come in the log."""
    site = simulated(trace=str(log), age_accrues=age_accrues)
    asked = workflows(site.capabilities.max_cores)
    found: dict[str, dict[str, list[float]]] = {name: {how: [] for how in STRATEGIES} for name in asked}

    def run(known: Known) -> None:
        for name, workflow in asked.items():
            for how in STRATEGIES:
                world, bank = known.begin()
                runs = [Run(workflow, load_strategy(how), bank=bank)]
                [result] = run_all(world, runs, history=HISTORY, is_followed=True)
                found[name][how].append(completed(workflow, result, f"{log.name}, {name}, {known.seed}").makespan_s)

    bank = WaitBank("asa-queue", machine_cores=site.capabilities.max_cores)
    each_knowing(site, starts, bank, HISTORY, run)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each log and workflow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--first", type=int, default=0, help="the first start, as a seed")
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--no-age-accrues", action="store_true")
    options: Any = parser.parse_args(arguments)
    starts = range(options.first, options.first + options.starts)
    rows = []
    for log in options.logs:
        for name, took in makespans_s(log, starts, age_accrues=not options.no_age_accrues).items():
            chained, per_stage, plan = (np.array(took[how]) for how in STRATEGIES)
            over = [float(np.exp(np.log(one / chained).mean())) for one in (per_stage, plan)]
            worst = [float((plan / other).max()) for other in (chained, np.minimum(chained, per_stage))]
            rows.append((log.name.partition(".")[0], name, *(f"{value:.2f}" for value in (*over, *worst))))
    headings = ("Log", "Workflow", "per-stage", "asa-plan", "Worst", "Worst over the better of both")
    console().print(Table(headings, rows, title="Makespans over those of chained", left=(0, 1)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
