"""The price of time: the plans that are best in time or core-hours, and what an hour costs between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asa.units import format_core_hours, format_duration, format_price

if TYPE_CHECKING:
    from asa.core.console import Console
    from asa.report.frontier import PlanAmongOthers
    from asa.strategies.planning import Outlook, Sketch

_MOST = 8  # maximum number of rows; further plans, those closest to their neighbours, are left out
_FEW_JOBS = 3


@dataclass(frozen=True, slots=True)
class PlanOnFrontier:
    """A plan on the frontier: no other plan is better in both time and core-hours."""

    name: str
    cores: tuple[int, ...]  # of each job
    time_s: float  # seconds to the end of all stages; the same statistic by which plans are chosen
    p90_s: float
    core_hours: float
    hour_sooner: float | None  # core-hours per hour saved against the previous row; None in the first
    is_chosen: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-ready data."""
        return {
            "name": self.name,
            "chosen": self.is_chosen,
            "cores": list(self.cores),
            "time_s": self.time_s,
            "p90_s": self.p90_s,
            "core_hours": self.core_hours,
            "hour_sooner_core_hours": self.hour_sooner,
        }


def frontier_rows(
    outlook: Outlook, candidates: Sequence[PlanAmongOthers], *, is_priced: bool = True
) -> list[PlanOnFrontier]:
    """Return the plans on the frontier, sorted by core-hours; the chosen plan is always among them.

    `is_priced`: whether a price decided, not a budget or deadline. Then the chosen plan has the lowest cost (time plus
    price times core-hours) of all returned plans.
    """
    from asa.report.tradeoff import hour_costs, unbeaten

    question = outlook.question
    chosen = next(candidate for candidate in candidates if candidate.is_chosen)
    least_s = question.cost_s(chosen.sketch) if is_priced else 0.0
    # a search at this price finds plans that suit another price only by chance: do not offer these
    offered = [
        candidate
        for candidate in candidates
        if candidate is chosen or (candidate.is_best and question.cost_s(candidate.sketch) >= least_s)
    ]

    def point(plan: PlanAmongOthers) -> tuple[float, float]:
        return question.span_s(plan.sketch), plan.sketch.core_hours

    kept = [offered[index] for index in unbeaten([point(plan) for plan in offered])]
    if chosen not in kept:  # another plan has the same time and cost
        kept = sorted(
            [*(plan for plan in kept if point(plan) != point(chosen)), chosen], key=lambda plan: point(plan)[1]
        )
    points = [point(plan) for plan in kept]
    while len(points) > _MOST:
        inner = [index for index in range(1, len(points) - 1) if not kept[index].is_chosen]
        nearest = min(inner, key=lambda index: (points[index - 1][0] - points[index + 1][0], index))
        del kept[nearest], points[nearest]
    rows = zip(kept, points, hour_costs(points), strict=True)
    return [
        PlanOnFrontier(row.name, _cores(row.sketch), time_s, _p90_s(row.sketch), hours, cost, row.is_chosen)
        for row, (time_s, hours), cost in rows
    ]


def _cores(sketch: Sketch) -> tuple[int, ...]:
    return tuple(job.block.cores for job in sketch.jobs)


def _p90_s(sketch: Sketch) -> float:
    import numpy as np

    return float(np.quantile(sketch.end_s, 0.9))


def print_frontier(console: Console, rows: Sequence[PlanOnFrontier], *, typically: bool, price_s: float | None) -> None:
    """Print the frontier as a table with the choice marked; `price_s`: the price, if one decided."""
    from rich.table import Table
    from rich.text import Text

    console.print(Text("Time against core-hours: no plan is better in both than one of these", style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("Plan", overflow="fold")
    for column in ("Cores", "Time", "9 in 10 within", "Core-h", "An hour sooner"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            "*" if row.is_chosen else "",
            row.name,
            _widths(row.cores),
            format_duration(row.time_s),
            format_duration(row.p90_s),
            format_core_hours(row.core_hours),
            "" if row.hour_sooner is None else f"{_amount(row.hour_sooner)} core-h",
            style="bold green" if row.is_chosen else "",
        )
    console.print(table)
    which = "typical (geometric mean)" if typically else "expected"
    text = (
        f"Time: {which}, to the end of everything, as plans are chosen by it. An hour sooner: the core-hours paid for "
        "each hour saved, compared with the row above."
    )
    if price_s:
        hours = format_price(price_s).removeprefix("1 h = ").removesuffix("s").removesuffix(" core-hour")
        text = f"{text} *: of these the least hours x {hours} + core-hours."
    console.print(Text(f"\n{text}\n", style="dim"))


def _widths(cores: Sequence[int]) -> str:
    if len(cores) <= _FEW_JOBS:
        return ", ".join(map(str, cores))
    low, high = min(cores), max(cores)
    return str(low) if low == high else f"{low}-{high}"


def _amount(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"
