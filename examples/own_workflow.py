"""Three strategies for a workflow of your own, from Python, and the events of one run.

A workflow is a name and stages; if its width is free, it is a function of its peak cores. Your package registers that
function as an entry point; then `asa compare search --cores 28,112` finds it:

    [project.entry-points."asa.workflows"]
    search = "own_workflow:search"

    python examples/own_workflow.py
"""

from __future__ import annotations

from pathlib import Path

from asa.backends.simulated import SimulatedSite
from rich.console import Console

from asa import Run, Stage, WaitBank, Workflow, load_workflow, run_all
from asa.metrics import measure
from asa.records import Submitted
from asa.strategies import load_strategy
from asa.units import format_duration

console = Console()


def search(cores: int = 112) -> Workflow:
    """Search on all cores, then merge on one."""
    return Workflow(
        "search",
        [
            Stage("align", cores=cores, walltime_s=201_600 / cores, expected_run_s=84_560 / cores),
            Stage("merge", cores=1, walltime_s=300, expected_run_s=6, after=("align",)),
        ],
    )


def main() -> None:
    """Run both workflows at the same time on one simulated machine, under each strategy."""
    workflows = (search(), load_workflow(Path(__file__).with_name("mosaic.toml")))
    site = SimulatedSite("hpc2n")
    bank = WaitBank(seed=1)
    for name in ("big-job", "per-stage", "asa"):
        strategy = load_strategy(name)
        world = site.open(seed=5)  # the same queue for each strategy
        results = run_all(world, [Run(workflow, strategy, bank=bank) for workflow in workflows])
        for result in results:
            metrics = measure(result.run.workflow, result.records)
            console.print(
                f"{name:10} {result.run.workflow.name:7} makespan {format_duration(metrics.makespan_s):>7}, "
                f"waited {format_duration(metrics.twt_s):>7}, {metrics.core_hours:6.1f} core-hours",
                highlight=False,
            )
    console.print("\nWhat asa submitted for the mosaic:")
    began = results[1].records[0].time_s
    for record in results[1].records:
        if isinstance(record, Submitted):
            console.print(
                f"  {format_duration(record.time_s - began):>7} after the start: {record.stages[0]} ({record.reason})",
                highlight=False,
            )


if __name__ == "__main__":
    main()
