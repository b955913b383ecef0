"""What ``asa bbsched`` prints: tables that fit the terminal, with the paper's figures where its text has them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from asa.core.intervals import Interval, mean_interval

from .comparison import Outcome
from .distance import Distance
from .paper import BEST, CHANGES, FIGURES, PART_CHANGES
from .tables import (
    BASELINE,
    MEASURES,
    SSD_MEASURES,
    By,
    Grid,
    Measure,
    Rank,
    area,
    arrange,
    breakdown,
    change,
    flat,
    has_ssd,
    kiviat,
    label,
    machines,
    methods_of,
    of_machine,
    part_change,
    shown,
    solvers_of,
    standings,
    values,
    windows_of,
)
from .windows import DECIDERS, Timing

__all__ = ["print_comparison", "print_curve", "print_timings"]

_WIDE = 100
_BREAKDOWNS: Mapping[By, str] = {
    "by_nodes": "nodes",
    "by_burst_buffer": "burst buffer (TB)",
    "by_run": "run time",
}


def print_comparison(outcomes: Sequence[Outcome]) -> None:
    """Print how methods do on workloads, and what the paper says of that."""
    console = Console(highlight=False)
    grid = shown(outcomes)
    for title, measures in (("Section 4", MEASURES), ("Section 5", SSD_MEASURES)):
        some = {name: methods for name, methods in grid.items() if has_ssd(methods) == (measures is SSD_MEASURES)}
        for machine in machines(some):
            _print_machine(console, machine.capitalize(), of_machine(some, machine), measures)
        if some:
            _print_standings(console, some, measures, title)
    for name, methods in grid.items():
        if name.endswith("s4"):
            _print_breakdowns(console, name, methods)
    _print_text(console, grid)
    if len(outcomes) > len(flat(grid)):
        _print_sensitivity(console, outcomes)
    _print_notes(console, flat(grid))


def _print_machine(console: Console, machine: str, grid: Grid, measures: Sequence[Measure]) -> None:
    methods, headings = methods_of(grid), _short(grid)
    buffer = " or ".join(sorted({f"{one.burst_buffer_gb / 1000:,g} TB" for one in flat(grid)}))
    title = f"{machine}{', SSD' if has_ssd(next(iter(grid.values()))) else ''}"
    nodes = " or ".join(sorted({f"{one.nodes:,}" for one in flat(grid)}))
    console.print(f"\n[bold]{title}[/bold]: {_counted(grid)}, {nodes} nodes, {buffer} of burst buffer")
    for one in measures:
        found = {
            method: [mean_interval((values(of[method], one.name) * one.scale).tolist()) for of in grid.values()]
            for method in methods
        }
        best = [{method for method, stand in standings(of, one).items() if stand == "best"} for of in grid.values()]
        papers = _papers(grid, one)
        _print_estimates(console, f"{title}: {_words(one)}", headings, found, one.digits, best=best, papers=papers)
    if BASELINE in methods and len(methods) > 1:
        found = {
            method: [change(of[method], of[BASELINE], "average_wait_s") for of in grid.values()]
            for method in methods
            if method != BASELINE
        }
        _print_estimates(
            console, f"{title}: average wait against {BASELINE}, %, draw by draw", headings, found, 1, sign="+"
        )
    table = _table(headings)
    for method in methods:
        longest_s = (max(one.longest_wait_s for one in of[method]) for of in grid.values())
        table.add_row(method, *(f"{wait_s / 3600:,.1f}" for wait_s in longest_s))
    _put(console, f"{title}: longest wait, h", table)
    if len(methods) > 1:
        table = _table(headings)
        areas = [{method: area(shares) for method, shares in kiviat(of, measures).items()} for of in grid.values()]
        for method in methods:
            table.add_row(
                method, *(_starred(f"{100 * of[method]:.0f}", is_best=of[method] == max(of.values())) for of in areas)
            )
        _put(console, f"{title}: area in the Kiviat graph, % of the whole", table)


def _print_estimates(
    console: Console,
    title: str,
    headings: Sequence[str],
    found: Mapping[str, Sequence[Interval]],
    digits: int,
    *,
    sign: str = "",
    best: Sequence[Collection[str]] | None = None,
    papers: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Print estimates by method and column; where there is no room for intervals, the largest of each column."""
    has_room = console.width >= _WIDE
    table = _table(headings)
    for method, estimates in found.items():
        cells = [_written(one, digits, with_half=has_room, sign=sign) for one in estimates]
        if best is not None:
            cells = [_starred(cell, is_best=method in those) for cell, those in zip(cells, best, strict=True)]
        table.add_row(method, *cells)
        if papers is not None and method in papers:
            table.add_row("  the paper's", *papers[method], style="dim")
    widest = [max(one.half for one in column) for column in zip(*found.values(), strict=True)]
    if not has_room and not any(map(math.isnan, widest)):
        table.add_row("+- at most", *(f"{half:,.{digits}f}" for half in widest), style="dim")
    _put(console, title, table)


def _papers(grid: Grid, measure: Measure) -> dict[str, list[str]]:
    """Give the paper's figures by method, of those that its text has."""
    found = {}
    for method in methods_of(grid):
        papers = [
            FIGURES.get((name, method, measure.name), {}).get(of[method][0].case.window) for name, of in grid.items()
        ]
        if any(papers):
            found[method] = [f"{paper * measure.scale:,.{measure.digits}f}" if paper else "" for paper in papers]
    return found


def _print_standings(console: Console, grid: Grid, measures: Sequence[Measure], title: str) -> None:
    methods, many = methods_of(grid), len(grid)
    if len(methods) == 1:
        return
    kinds = (Rank.BEST, Rank.TIED, Rank.CLOSE)
    table = _table([*(one.words.replace(" ", "\n") for one in measures), "\nall"])
    stands = [[standings(of, one) for of in grid.values()] for one in measures]
    cells, totals = many * len(measures), {}
    for method in methods:
        counts = [[sum(of[method] == kind for of in some) for kind in kinds] for some in stands]
        totals[method] = [sum(column) for column in zip(*counts, strict=True)]
        table.add_row(method, *("+".join(map(str, some)) for some in (*counts, totals[method])))
        if method == "bbsched" and title == "Section 4":
            papers = (f"{BEST[one.name]} of 10" if one.name in BEST else "" for one in measures)
            table.add_row("  the paper's", *papers, style="dim")
    _put(
        console,
        f"{title}, {many} workload{'' if many == 1 else 's'}: on how many best + within 1 % + untold from it",
        table,
    )
    if "bbsched" in totals:
        best, tied, close = totals.pop("bbsched")
        others = [sum(some) for some in totals.values()]
        console.print(
            f"bbsched is best or tied in {best + tied + close} of {cells} cells (the others in {min(others)} to "
            f"{max(others)}): best in {best}, within 1 % of the best in {tied}, and in {close} the draws do not tell "
            "them apart."
        )


def _print_breakdowns(console: Console, name: str, methods: Mapping[str, Sequence[Outcome]]) -> None:
    for by, words in _BREAKDOWNS.items():
        found = {method: breakdown(some, by) for method, some in methods.items()}
        columns = list(zip(*found.values(), strict=True))
        table = _table([label(by, parts[0]) for parts in columns])
        least = [min(part.average_wait_s for part in parts) for parts in columns]
        for method, parts in found.items():
            waits = (part.average_wait_s for part in parts)
            table.add_row(
                method, *(_starred(f"{s / 3600:,.2f}", is_best=s == best) for s, best in zip(waits, least, strict=True))
            )
        table.add_row("jobs", *(f"{parts[0].jobs:,}" for parts in columns), style="dim")
        _put(console, f"{name}: average wait, h, by {words}", table)


def _print_text(console: Console, grid: Grid) -> None:
    """Print changes that the paper's text states beside ours."""
    rows = []
    words = {one.name: one.words for one in MEASURES}
    for (name, method, measure), paper in CHANGES.items():
        of = grid.get(name, {})
        if {method, BASELINE} <= set(of):
            ours = _written(change(of[method], of[BASELINE], measure), 2, sign="+")
            rows.append((name, method, words[measure], paper, ours))
    of = grid.get("theta-s4", {})
    for (method, by, least, words_of_part), paper in PART_CHANGES.items():
        if {method, BASELINE} <= set(of):
            gain = part_change(of[method], of[BASELINE], by, least)
            rows.append(("theta-s4", method, f"wait, {words_of_part}", paper, "-" if gain is None else f"{gain:+,.2f}"))
    if not rows:
        return
    table = _table(["method", "of", "paper", "ours"])
    for column in table.columns[1:3]:
        column.justify = "left"
    for name, method, what, paper, ours in rows:
        table.add_row(name, method, what, f"{paper:+.2f}", ours)
    _put(console, "What the paper's text says: changes against the baseline, %", table)


def _print_sensitivity(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print Table 3: BBSched by windows and solvers."""
    windows, solvers = windows_of(outcomes), solvers_of(outcomes)
    methods = {one.case.method for one in outcomes}
    method = "bbsched" if "bbsched" in methods else min(methods)
    grids = {(window, solver): arrange(outcomes, window, solver) for window in windows for solver in solvers}
    names = [name for name, of in shown(outcomes).items() if method in of]
    table = _table(["", *map(str, windows)])
    table.columns[1].justify = "left"
    for name in [name for name in names if name.endswith("s4")] or names:
        table.add_row(name, style="bold")
        for one in MEASURES:
            for solver in solvers:
                found = [values(grids[window, solver][name][method], one.name) * one.scale for window in windows]
                table.add_row(
                    _words(one) if solver == solvers[0] else "",
                    solver,
                    *(_written(mean_interval(some.tolist()), one.digits) for some in found),
                )
            papers = FIGURES.get((name, method, one.name), {})
            if papers:
                ours = (f"{papers[of] * one.scale:,.{one.digits}f}" if of in papers else "" for of in windows)
                table.add_row("", "paper", *ours, style="dim")
    _put(console, f"{'Table 3: ' if method == 'bbsched' else ''}{method} by the size of the window", table)


def _print_notes(console: Console, outcomes: Sequence[Outcome]) -> None:
    case = outcomes[0].case
    seeds = len({one.case.seed for one in outcomes})
    spread = ", +- half their 95 % interval" if seeds > 1 else ", too few for intervals"
    decisions, inexact = (sum(getattr(one, name) for one in outcomes) for name in ("decisions", "inexact"))
    mean_ms = 1e3 * sum(one.decision_s * one.decisions for one in outcomes) / decisions
    worst_ms = 1e3 * max(one.worst_decision_s for one in outcomes)
    console.print(
        f"\nTables are of a window of {case.window} and the {case.solver} solver. Means over {seeds} "
        f"draw{'' if seeds == 1 else 's'} of each workload{spread}. * the best of a column. A decision took "
        f"{_ms(mean_ms)} ms on average and {_ms(worst_ms)} ms at most; {inexact:,} of {decisions:,} were not known to "
        "be the best.",
        style="dim",
    )


def print_curve(curve: Sequence[Distance], told: Mapping[str, Any]) -> None:
    """Print how near the genetic algorithm comes (Fig. 4)."""
    populations = list(dict.fromkeys(point.population for point in curve))
    headings = [f"P={many}\n{what}" for many in populations for what in ("distance", "ms")]
    table = _table(headings)
    for generations in dict.fromkeys(point.generations for point in curve):
        points = [point for point in curve if point.generations == generations]
        cells = ((f"{100 * one.distance:.4f}", f"{1e3 * one.seconds:.2f}") for one in points)
        table.add_row(f"G={generations}", *(cell for pair in cells for cell in pair))
    console = Console(highlight=False)
    _put(console, f"{told['workload']}: the genetic algorithm by generations (G) and population (P)", table)
    console.print(
        "Distance from the exact front, % of the machine, and time of a solution, on average. Windows of up to "
        f"{told['window']} jobs that BBSched met: {told['windows']:,}; measured, as most jobs fit: {told['measured']}. "
        "In the paper G=500 and P=20 take less than 200 ms.",
        style="dim",
    )


def print_timings(timings: Sequence[Timing], name: str) -> None:
    """Print how long decisions take on a workload."""
    table = _table(["w", "windows", "median", "p99", "worst", "exact", "limit", "paper"])
    table.columns[2].justify = "left"
    deciders = {(one.name, one.window): one for one in DECIDERS}
    for one in timings:
        of = deciders[one.solver, one.window]
        may = " / ".join(f"{1e3 * limit:g}" for limit in (of.median_s, of.p99_s) if limit is not None)
        papers = "" if of.paper_s is None else f"{1e3 * of.paper_s:,g}"
        is_first = one.which == "all"
        table.add_row(
            *((one.solver, str(one.window)) if is_first else ("", "")),
            f"{one.which} {one.windows:,}",
            *(f"{1e3 * seconds:.2f}" for seconds in (one.median_s, one.p99_s, one.worst_s)),
            f"{100 * one.exact:.0f} %",
            *((may, papers) if is_first else ("", "")),
        )
    console = Console(highlight=False)
    _put(console, f"{name}: ms that a decision takes", table)
    console.print(
        "w: jobs in a window. All windows that BBSched met, and the quarter of them in which most jobs fit. Limit: "
        "what may be the median / p99. P is 20; with G=500 the authors' code, ported, takes 45 ms.",
        style="dim",
    )


def _table(headings: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _put(console: Console, title: str, table: Table) -> None:
    """Print a table, with a title that may be wider."""
    console.print(f"\n[bold]{title}[/bold]")
    console.print(table)


def _written(found: Interval, digits: int, *, with_half: bool = True, sign: str = "") -> str:
    if math.isnan(found.mean):
        return "-"
    half = "" if math.isnan(found.half) or not with_half else f" +-{found.half:,.{digits}f}"
    return f"{found.mean:{sign},.{digits}f}{half}"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 10 else f"{milliseconds:.2g}"


def _starred(text: str, *, is_best: bool) -> str:
    return f"[bold]*{text}[/bold]" if is_best else text


def _counted(grid: Grid) -> str:
    """Say how many jobs are measured of a workload."""
    counts = [one.jobs for one in flat(grid)]
    least, most = min(counts), max(counts)
    return f"{least:,} jobs" if least == most else f"{least:,} to {most:,} jobs"


def _words(measure: Measure) -> str:
    return f"{measure.words}{measure.unit and f', {measure.unit}'}"


def _short(names: Collection[str]) -> list[str]:
    return [name.split("-")[1] for name in names]
