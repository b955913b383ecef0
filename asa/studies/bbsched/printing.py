"""The output of ``asa bbsched``: tables that fit the terminal, with the figures that the paper's text has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from asa.core.console import Console
from asa.core.intervals import Interval, mean_interval
from asa.studies.present import Measure, Row, Table, console, number, plus_minus

from .asked import BIN_TB, AskedBuffer
from .comparison import ComparedOutcome
from .distance import Distance
from .paper import BEST, BUFFERS_TB, CHANGES, FIGURES, PART_CHANGES, WHY_BUFFERS
from .scaling import LIMIT_S, SolutionTime
from .tables import (
    BASELINE,
    MEASURES,
    SSD_MEASURES,
    By,
    Grid,
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

_WIDE = 100
_BREAKDOWNS: Mapping[By, str] = {
    "by_nodes": "nodes",
    "by_burst_buffer": "burst buffer (TB)",
    "by_run": "run time",
}


def print_comparison(outcomes: Sequence[ComparedOutcome]) -> None:
    """Print the results of methods on workloads, and what the paper says about these."""
    out = console()
    grid = shown(outcomes)
    for title, measures in (("Section 4", MEASURES), ("Section 5", SSD_MEASURES)):
        some = {name: methods for name, methods in grid.items() if has_ssd(methods) == (measures is SSD_MEASURES)}
        for machine in machines(some):
            _print_machine(out, machine.capitalize(), of_machine(some, machine), measures)
        if some:
            _print_standings(out, some, measures, title)
    for name, methods in grid.items():
        if name.endswith("s4"):
            _print_breakdowns(out, name, methods)
    _print_text(out, grid)
    if len(outcomes) > len(flat(grid)):
        _print_sensitivity(out, outcomes)
    _print_notes(out, flat(grid))


def _print_machine(out: Console, machine: str, grid: Grid, measures: Sequence[Measure]) -> None:
    methods, headings = methods_of(grid), [name.split("-")[1] for name in grid]
    buffer = " or ".join(sorted({f"{outcome.burst_buffer_gb / 1000:,g} TB" for outcome in flat(grid)}))
    title = f"{machine}{', SSD' if has_ssd(next(iter(grid.values()))) else ''}"
    nodes = " or ".join(sorted({f"{outcome.nodes:,}" for outcome in flat(grid)}))
    out.print(Text.assemble("\n", (title, "bold"), f": {_counted(grid)}, {nodes} nodes, {buffer} of burst buffer"))
    out.print(f"Burst buffer: {_why(machine, flat(grid))}.", style="dim")
    orders = " or ".join(sorted({outcome.order for outcome in flat(grid)}))
    bounds = " or ".join(map(str, sorted({outcome.case.starvation_bound for outcome in flat(grid)})))
    out.print(f"Base order: {orders}; a job that {bounds} selections passed over must be selected.", style="dim")
    offered: list[Sequence[str | Text]] = [
        (name, *(number(100 * float(values(flat({"": of}), field).mean()), 1) for of in grid.values()))
        for name, field in (("nodes", "offered_nodes"), ("burst buffer", "offered_burst_buffer"))
    ]
    _put(out, f"{title}: offered load, % of the machine", headings, offered)
    for measure in measures:
        found = {
            method: [mean_interval((values(of[method], measure.name) * measure.scale).tolist()) for of in grid.values()]
            for method in methods
        }
        best = [{method for method, stand in standings(of, measure).items() if stand == "best"} for of in grid.values()]
        rows = _estimates(out, found, measure.digits, best=best, papers=_papers(grid, measure))
        _put(out, f"{title}: {_words(measure)}", headings, rows)
    if BASELINE in methods and len(methods) > 1:
        found = {
            method: [change(of[method], of[BASELINE], "average_wait_s") for of in grid.values()]
            for method in methods
            if method != BASELINE
        }
        rows = _estimates(out, found, 1, is_change=True)
        _put(out, f"{title}: average wait against {BASELINE}, %, draw by draw", headings, rows)
    longest = [
        (method, *(number(max(outcome.longest_wait_s for outcome in of[method]), None) for of in grid.values()))
        for method in methods
    ]
    _put(out, f"{title}: longest wait", headings, longest)
    if len(methods) > 1:
        areas = [{method: area(shares) for method, shares in kiviat(of, measures).items()} for of in grid.values()]
        shares: list[Sequence[str | Text]] = [
            (method, *(_starred(f"{100 * of[method]:.0f}", is_best=of[method] == max(of.values())) for of in areas))
            for method in methods
        ]
        _put(out, f"{title}: area in the Kiviat graph, % of the whole", headings, shares)


def _estimates(
    out: Console,
    found: Mapping[str, Sequence[Interval]],
    digits: int | None,
    *,
    is_change: bool = False,
    best: Sequence[Collection[str]] = (),
    papers: Mapping[str, Sequence[str]] | None = None,
) -> list[Row]:
    """Format estimates by method and column. If intervals do not fit, only the largest of each column is given."""
    has_room = out.width >= _WIDE
    rows = []
    for method, estimates in found.items():
        shown = estimates if has_room else [Interval(estimate.mean, math.nan, math.nan) for estimate in estimates]
        cells: list[str | Text] = [plus_minus(interval, digits, "+" if is_change else "") for interval in shown]
        if best:
            cells = [_starred(str(cell), is_best=method in those) for cell, those in zip(cells, best, strict=True)]
        rows.append(Row([method, *cells]))
        if papers is not None and method in papers:
            rows.append(Row(["  the paper's", *papers[method]], "dim"))
    widest = [max(interval.half for interval in column) for column in zip(*found.values(), strict=True)]
    if not has_room and not any(map(math.isnan, widest)):
        rows.append(Row(["+- at most", *(number(half, digits) for half in widest)], "dim"))
    return rows


def _papers(grid: Grid, measure: Measure) -> dict[str, list[str]]:
    """Return the figures in the paper's text, by method."""
    found = {}
    for method in methods_of(grid):
        papers = [
            FIGURES.get((name, method, measure.name), {}).get(of[method][0].case.window) for name, of in grid.items()
        ]
        if any(papers):
            found[method] = [number(paper * measure.scale, measure.digits) if paper else "" for paper in papers]
    return found


def _print_standings(out: Console, grid: Grid, measures: Sequence[Measure], title: str) -> None:
    methods, many = methods_of(grid), len(grid)
    if len(methods) == 1:
        return
    kinds = (Rank.BEST, Rank.TIED, Rank.CLOSE)
    stands = [[standings(of, measure) for of in grid.values()] for measure in measures]
    rows, totals = [], {}
    for method in methods:
        counts = [[sum(of[method] == kind for of in some) for kind in kinds] for some in stands]
        totals[method] = [sum(column) for column in zip(*counts, strict=True)]
        rows.append(Row([method, *("+".join(map(str, some)) for some in (*counts, totals[method]))]))
        if method == "bbsched" and title == "Section 4":
            papers = (f"{BEST[measure.name]} of 10" if measure.name in BEST else "" for measure in measures)
            rows.append(Row(["  the paper's", *papers], "dim"))
    plural = "" if many == 1 else "s"
    text = f"{title}, {many} workload{plural}: on how many best + within 1 % + not significantly different"
    _put(out, text, [*(measure.words.replace(" ", "\n") for measure in measures), "\nall"], rows)
    if "bbsched" in totals:
        best, tied, close = totals.pop("bbsched")
        least, most = (bound(map(sum, totals.values())) for bound in (min, max))
        others = f"{least} to {most}" if least < most else f"{most} each"
        out.print(
            f"bbsched is best or tied in {best + tied + close} of {many * len(measures)} cells (the others in "
            f"{others}): best in {best}, within 1 % of the best in {tied}, and in {close} the "
            "draws show no significant difference."
        )


def _print_breakdowns(out: Console, name: str, methods: Mapping[str, Sequence[ComparedOutcome]]) -> None:
    for by, words in _BREAKDOWNS.items():
        found = {method: breakdown(some, by) for method, some in methods.items()}
        columns = list(zip(*found.values(), strict=True))
        least = [min(part.average_wait_s for part in parts) for parts in columns]
        rows = []
        for method, parts in found.items():
            waits = zip((part.average_wait_s for part in parts), least, strict=True)
            rows.append(Row([method, *(_starred(number(s, None), is_best=s == best) for s, best in waits)]))
        rows.append(Row(["jobs", *(f"{parts[0].jobs:,}" for parts in columns)], "dim"))
        _put(out, f"{name}: average wait by {words}", [label(by, parts[0]) for parts in columns], rows)


def _print_text(out: Console, grid: Grid) -> None:
    """Print changes that the paper's text states, compared with ours."""
    rows = []
    words = {measure.name: measure.words for measure in MEASURES}
    for (name, method, measure), paper in CHANGES.items():
        of = grid.get(name, {})
        if {method, BASELINE} <= set(of):
            ours = plus_minus(change(of[method], of[BASELINE], measure), 2, "+")
            rows.append((name, method, words[measure], f"{paper:+.2f}", ours))
    of = grid.get("theta-s4", {})
    for (method, by, least, part), paper in PART_CHANGES.items():
        if {method, BASELINE} <= set(of):
            gain = part_change(of[method], of[BASELINE], by, least)
            ours = "-" if gain is None else f"{gain:+,.2f}"
            rows.append(("theta-s4", method, f"wait, {part}", f"{paper:+.2f}", ours))
    if rows:
        title = "What the paper's text says: changes against the baseline, %"
        _put(out, title, ["method", "of", "paper", "ours"], rows, left=(0, 1, 2))


def _print_sensitivity(out: Console, outcomes: Sequence[ComparedOutcome]) -> None:
    """Print Table 3: BBSched by windows and solvers."""
    windows, solvers = windows_of(outcomes), solvers_of(outcomes)
    methods = {outcome.case.method for outcome in outcomes}
    method = "bbsched" if "bbsched" in methods else min(methods)
    grids = {(window, solver): arrange(outcomes, window, solver) for window in windows for solver in solvers}
    names = [name for name, of in shown(outcomes).items() if method in of]
    rows = []
    for name in [name for name in names if name.endswith("s4")] or names:
        rows.append(Row([name], "bold"))
        for measure in MEASURES:
            for solver in solvers:
                found = [
                    values(grids[window, solver][name][method], measure.name) * measure.scale for window in windows
                ]
                ours = (plus_minus(mean_interval(some.tolist()), measure.digits) for some in found)
                rows.append(Row([_words(measure) if solver == solvers[0] else "", solver, *ours]))
            papers = FIGURES.get((name, method, measure.name), {})
            if papers:
                theirs = (number(papers[of] * measure.scale, measure.digits) if of in papers else "" for of in windows)
                rows.append(Row(["", "paper", *theirs], "dim"))
    title = f"{'Table 3: ' if method == 'bbsched' else ''}{method} by the size of the window"
    _put(out, title, ["", *map(str, windows)], rows, left=(0, 1))


def _print_notes(out: Console, outcomes: Sequence[ComparedOutcome]) -> None:
    case = outcomes[0].case
    seeds = len({outcome.case.seed for outcome in outcomes})
    spread = ", +- half their 95 % interval" if seeds > 1 else ", too few for intervals"
    decisions, inexact = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("decisions", "inexact"))
    mean_ms = 1e3 * sum(outcome.decision_s * outcome.decisions for outcome in outcomes) / decisions
    worst_ms = 1e3 * max(outcome.worst_decision_s for outcome in outcomes)
    out.print(
        f"\nTables are of a window of {case.window} and the {case.solver} solver. Means over {seeds} "
        f"draw{'' if seeds == 1 else 's'} of each workload{spread}. * the best of a column. A decision took "
        f"{_ms(mean_ms)} ms on average and {_ms(worst_ms)} ms at most; {inexact:,} of {decisions:,} were not known to "
        "be the best.",
        style="dim",
    )


def print_curve(curve: Sequence[Distance], facts: Mapping[str, Any]) -> None:
    """Print how close the genetic algorithm comes to the exact front (Fig. 4)."""
    populations = dict.fromkeys(point.population for point in curve)
    rows = []
    for generations in dict.fromkeys(point.generations for point in curve):
        points = [point for point in curve if point.generations == generations]
        cells = ((f"{100 * point.distance:.4f}", f"{1e3 * point.seconds:.2f}") for point in points)
        rows.append((f"G={generations}", *(cell for pair in cells for cell in pair)))
    out = console()
    title = f"{facts['workload']}: the genetic algorithm by generations (G) and population (P)"
    _put(out, title, [f"P={many}\n{what}" for many in populations for what in ("distance", "ms")], rows)
    out.print(
        "Distance from the exact front, % of the machine, and time of a solution, on average. Windows of up to "
        f"{facts['window']} jobs that BBSched met: {facts['windows']:,}; measured, as most jobs fit: "
        f"{facts['measured']}. In the paper G=500 and P=20 take less than 200 ms.",
        style="dim",
    )


def print_timings(timings: Sequence[Timing], name: str) -> None:
    """Print the times of decisions on a workload."""
    deciders = {(decider.name, decider.window): decider for decider in DECIDERS}
    rows = []
    for timing in timings:
        of = deciders[timing.solver, timing.window]
        may = " / ".join(f"{1e3 * limit:g}" for limit in (of.median_s, of.p99_s) if limit is not None)
        papers = "" if of.paper_s is None else f"{1e3 * of.paper_s:,g}"
        times = (f"{1e3 * seconds:.2f}" for seconds in (timing.median_s, timing.p99_s, timing.worst_s))
        first, last = (
            ((timing.solver, str(timing.window)), (may, papers)) if timing.which == "all" else (("", ""), ("", ""))
        )
        rows.append((*first, f"{timing.which} {timing.windows:,}", *times, f"{100 * timing.exact:.0f} %", *last))
    headings = ["w", "windows", "median", "p99", "worst", "exact", "limit", "paper"]
    out = console()
    _put(out, f"{name}: ms that a decision takes", headings, rows, left=(0, 2))
    out.print(
        "w: jobs in a window. All windows that BBSched met, and the quarter of them in which most jobs fit. Limit: "
        "what may be the median / p99. P is 20; with G=500 the authors' code, ported, takes 45 ms.",
        style="dim",
    )


def print_times(times: Sequence[SolutionTime], name: str) -> None:
    """Print the time of a solution by the size of the window (Fig. 2)."""
    solvers = dict.fromkeys(point.solver for point in times)
    by_key = {(point.window, point.solver): point for point in times}
    rows = []
    for size in sorted({point.window for point in times}):
        points = [by_key.get((size, solver)) for solver in solvers]
        cells = ("-" if at is None else f"{'' if at.windows else '~'}{1e3 * at.seconds:,.3g}" for at in points)
        exact = by_key.get((size, "exact"))
        rows.append((str(size), *cells, "-" if exact is None else f"{100 * exact.exact:.0f} %"))
    out = console()
    title = f"{name}: ms that a solution takes on average, by the size of the window"
    _put(out, title, [*solvers, "exact: proved"], rows)
    out.print(
        f"Windows of the workload's first jobs, on the empty machine. ~ not measured: twice as long for each job more. "
        f"In the paper a scheduler has to respond within {LIMIT_S / 2:g} to {LIMIT_S:g} s.",
        style="dim",
    )


def print_asked(requests: Sequence[AskedBuffer]) -> None:
    """Print histograms of the requests for burst buffer, a table for each machine (Fig. 5)."""
    out = console()
    for machine in dict.fromkeys(of.workload.split("-")[0] for of in requests):
        mine = [of for of in requests if of.workload.startswith(machine)]
        rows: list[Row | Sequence[str]] = [("all jobs", *(f"{of.jobs:,}" for of in mine))]
        for place in range(max(len(of.counts) for of in mine)):
            counts = [of.counts[place] if place < len(of.counts) else 0 for of in mine]
            if any(counts):
                rows.append((f"{BIN_TB * place}-{BIN_TB * (place + 1)} TB", *(f"{count:,}" for count in counts)))
        rows.append(Row(["in all, PB", *(f"{of.total_tb / 1000:,.1f}" for of in mine)], "bold"))
        _put(out, f"{machine.capitalize()}: jobs by their request", [of.workload.split("-")[1] for of in mine], rows)


def _put(
    out: Console,
    title: str,
    headings: Sequence[str],
    rows: Iterable[Row | Sequence[str | Text]],
    *,
    left: Collection[int] = (0,),
) -> None:
    """Print a table with a title that may be wider; the first column has no heading."""
    out.print(f"\n{title}", style="bold")
    out.print(Table(["", *headings], rows, left=left, wraps=(), is_open=True))


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 10 else f"{milliseconds:.2g}"


def _starred(text: str, *, is_best: bool) -> Text:
    return Text(f"*{text}", "bold") if is_best else Text(text)


def _why(machine: str, outcomes: Sequence[ComparedOutcome]) -> str:
    """Return the reason for the capacity of a machine's burst buffer."""
    paper_tb = BUFFERS_TB[machine.lower()]
    if any(outcome.burst_buffer_gb != 1000 * paper_tb for outcome in outcomes):
        return f"as given; the paper's is {paper_tb:,} TB"
    return WHY_BUFFERS[machine.lower()]


def _counted(grid: Grid) -> str:
    """Return how many jobs of each workload are measured."""
    counts = [outcome.jobs for outcome in flat(grid)]
    least, most = min(counts), max(counts)
    return f"{least:,} jobs" if least == most else f"{least:,} to {most:,} jobs"


def _words(measure: Measure) -> str:
    return f"{measure.words}{measure.unit and f', {measure.unit}'}"
