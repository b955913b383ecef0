"""A strategy of your own, compared with the installed ones: ASA that submits half an hour earlier than predicted.

A strategy derives from `asa.strategies.Strategy`; this one changes the plans of an installed one. Your package
registers it as an entry point; then `asa compare montage --strategies asa,cautious` and `asa run flow.toml --strategy
cautious` find it:

    [project.entry-points."asa.strategies"]
    cautious = "own_strategy:Cautious"

    python examples/own_strategy.py
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from asa.backends.simulated import SimulatedSite
from asa.workflows import montage
from rich.console import Console

from asa import Run, WaitBank, run_all
from asa.metrics import measure
from asa.strategies import Forecast, Plan, RunView, Strategy, load_strategy
from asa.strategies.asa import AheadOfTime


@dataclass(frozen=True)
class Cautious(AheadOfTime):
    """ASA with a longer lead."""

    margin_s: float = 1800.0

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Plan as ASA does, then submit every job earlier."""
        planned = AheadOfTime.plan(self, view, forecast)
        return Plan.of(
            replace(job, submit_s=job.submit_s - self.margin_s, reason=f"{job.reason}, and half an hour to be safe")
            for job in planned.submissions
        )


def main(replications: int = 10) -> None:
    """Compare it in some replications of a simulated queue."""
    site = SimulatedSite("hpc2n")
    site.prepare(range(replications))
    flow = montage(112)
    strategies: dict[str, Strategy] = {"asa": load_strategy("asa"), "cautious": Cautious()}
    for name, strategy in strategies.items():
        bank = WaitBank(seed=0)
        makespans = []
        for seed in range(replications):
            world = site.open(seed)
            [result] = run_all(world, [Run(flow, strategy, bank=bank)])
            makespans.append(measure(flow, result.records).makespan_s)
        Console().print(f"{name:9} mean makespan {sum(makespans) / len(makespans):,.0f} s", highlight=False)


if __name__ == "__main__":
    main()
