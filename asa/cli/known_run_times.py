"""Shows the known run times of stages: of all workflows, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from asa.cli.runs import print_document

if TYPE_CHECKING:
    from asa.runtimes import RunForecast, RunTime, RunTimes

BEGIN = (
    "Each `asa run` notes in the bank how long its stages ran; after some five runs there is advice. A stage that says "
    '`expected = "learn"` is also expected to run as long as it did.'
)


def forecast_dict(forecast: RunForecast) -> dict[str, Any]:
    """Return a forecast as JSON-ready data."""
    fields = asdict(forecast)
    quantiles = zip(("p10_s", "p50_s", "p90_s", "p99_s"), fields.pop("quantiles_s"), strict=True)
    return {**dict(quantiles), **fields}


# fewest runs for these quantiles: of this number of runs, one is expected to exceed the quantile
FOR_P90, FOR_P99 = 10, 100


def quantile_cells(known: RunForecast) -> tuple[str, str, str, str]:
    """Write p50, p90, p99 and the longest run; empty if too few runs are known for a quantile."""
    from asa.units import format_duration

    p90 = format_duration(known.p90_s) if known.count >= FOR_P90 else ""
    p99 = format_duration(known.p99_s) if known.count >= FOR_P99 else ""
    return format_duration(known.p50_s), p90, p99, format_duration(known.longest_s)


def tell_all(runs: RunTimes, *, as_json: bool) -> None:
    """Print the known run times of all stages."""
    from asa.runtimes import forecast_run

    groups: dict[tuple[str, str, str, int], list[RunTime]] = {}
    for run in runs.read():
        groups.setdefault((run.workflow, run.stage, run.system, run.cores), []).append(run)
    known = {
        key: forecast
        for key, times in sorted(groups.items())
        if (forecast := forecast_run(times, key[3], system=key[2])) is not None
    }
    if as_json:
        names = ("workflow", "stage", "system", "cores")
        rows = [{**dict(zip(names, key, strict=True)), **forecast_dict(seen)} for key, seen in known.items()]
        print_document({"stages": rows})
        return
    from asa.core.console import Console

    console = Console(highlight=False)
    if not known:
        console.print(f"No run times are known yet. {BEGIN}", markup=False, soft_wrap=not console.is_terminal)
        return
    console.print(_all_table(known))
    console.print("\nfor one workflow:  asa walltimes FILE", style="dim")


def _all_table(known: Mapping[tuple[str, str, str, int], RunForecast]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("Workflow", "Stage", "System"):
        table.add_column(heading, overflow="fold")
    for heading in ("Cores", "Runs", "p50", "p90", "p99", "Longest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for (flow, stage, system, cores), seen in known.items():
        times = quantile_cells(seen)
        names = (Text(flow), Text(stage), Text(system))
        table.add_row(*names, str(cores), str(seen.count), *times)
    return table
