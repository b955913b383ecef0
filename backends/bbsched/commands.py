"""``asa bbsched``: methods compared over workloads, beside the paper's figures; solvers measured on real windows."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.errors import InputError, UnknownNameError, near

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from .comparison import Outcome
    from .distance import Distance
    from .tables import By, Estimate, Grid, Measure
    from .windows import Timing
    from .workloads import Workload

__all__ = ["app"]

_WIDE = 100
_MOST_WINDOW = 1000
_BREAKDOWNS: Mapping[By, str] = {
    "by_nodes": "nodes",
    "by_burst_buffer": "burst buffer (TB)",
    "by_run": "run time",
}

app = typer.Typer(
    help="""Pick jobs from a window at the front of the queue, so that several resources are used well at once.

    After Fan et al., "Scheduling Beyond CPUs for HPC" (BBSched).
    """,
    no_args_is_help=True,
)

_ThetaOption = Annotated[
    Path | None,
    typer.Option(help="Theta's log (SWF, plain or .gz). Without it there is only Cori, of a model.", metavar="LOG"),
]
_BufferOption = Annotated[
    int,
    typer.Option(
        "--theta-buffer-tb",
        help="Theta's burst buffer. The paper has 1260 TB, which the public log of 2022 never fills: it has a seventh "
        "of the paper's jobs a day. Of 500 TB the jobs of S4 want 0.92, near the paper's usage of 0.895.",
        min=1,
    ),
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and no tables.")]
_DaysOption = Annotated[
    int | None, typer.Option(help="How long workloads are, more than 30 days. [default: 60 on Cori, all of the log]")
]
_WorkloadOption = Annotated[
    str | None, typer.Option(help="Whose windows. [default: theta-s4 with a log, else cori-s4]", show_default=False)
]
_JobsOption = Annotated[int, typer.Option(help="So many of its first jobs are scheduled.", min=1)]


@app.command()
def compare(
    theta: _ThetaOption = None,
    *,
    workloads: Annotated[
        str | None,
        typer.Option(
            help="Some of cori-original, cori-s1 to cori-s7, theta-original, ... [default: all]", metavar="W,W"
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Some, as baseline,bbsched. [default: those that the paper has]", metavar="M,M")
    ] = None,
    windows: Annotated[str, typer.Option(help="Jobs that are looked at together.", metavar="N,N")] = "20",
    solver: Annotated[
        str, typer.Option(help="exact, genetic (the paper's, G=500 and P=20), or both with a comma.", metavar="S,S")
    ] = "exact",
    starvation_bound: Annotated[
        int, typer.Option(help="A job that so many selections passed over must be selected.", min=1)
    ] = 50,
    seeds: Annotated[int, typer.Option(help="Draws of each workload.", min=1)] = 3,
    days: _DaysOption = None,
    theta_buffer_tb: _BufferOption = 500,
    processes: Annotated[int | None, typer.Option(help="At once. [default: the cores there are]", min=1)] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw Figures 8 to 11, 13 and 14 into this folder.", metavar="DIR")
    ] = None,
    as_json: _JsonOption = False,
) -> None:
    """Schedule the paper's workloads with its methods, and print how well each uses the machine.

    Ten workloads with eight methods (Section 4), and six that ask for SSD, too, with seven (Section 5). A method is
    run on those workloads only on which the paper compares it. With several windows or solvers everything is run with
    each; tables are of a window of 20, or else the first.

    A case takes about 5 s of a core: all of Cori 15 minutes, all of both machines half an hour, less on several cores.

    Example: `asa bbsched compare --workloads cori-s4 --methods baseline,bbsched --windows 10,20,50`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from rich.console import Console
    from rich.progress import Progress

    from asa.parallel import available_cores

    from .comparison import SOLVERS, Case
    from .comparison import compare as run
    from .methods import METHODS

    names = _workload_names(workloads, theta)
    wanted = _names(methods, METHODS, "--methods")
    sizes, solvers = _numbers(windows, "--windows"), _names(solver, SOLVERS, "--solver")
    if plot is not None:
        _make_folder(plot)
    made = {
        (name, seed): workload
        for seed in range(seeds)
        for name, workload in _load(names, theta, days, seed, theta_buffer_tb).items()
    }
    cases = [
        Case(name, method, window, by, starvation_bound, seed)
        for (name, seed), workload in made.items()
        for method in _methods_for(workload, wanted)
        for window in sizes
        for by in solvers
    ]
    if not cases:
        raise InputError(
            f"{', '.join(wanted)} and {', '.join(names)} are not compared by the paper",
            where="--methods",
            hint="constrained-ssd is for s5 to s7, weighted-cpu and weighted-bb are for the others.",
        )
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("cases", total=len(cases))
        outcomes = run(
            made, cases, processes=processes or available_cores(), on_done=lambda _outcome: progress.advance(task)
        )
    if as_json:
        sys.stdout.write(json.dumps([one.as_dict() for one in outcomes], indent=1, allow_nan=False) + "\n")
    else:
        _print(outcomes)
    if plot is not None:
        _draw(outcomes, plot)


@app.command()
def gd(
    theta: _ThetaOption = None,
    *,
    workload: _WorkloadOption = None,
    window: Annotated[int, typer.Option(help="Jobs that are looked at together.", min=1, max=_MOST_WINDOW)] = 20,
    jobs: _JobsOption = 1000,
    theta_buffer_tb: _BufferOption = 500,
    plot: Annotated[Path | None, typer.Option(help="Draw Figure 4 into this file.", metavar="FILE")] = None,
    as_json: _JsonOption = False,
) -> None:
    """Measure how far the genetic algorithm's solutions are from the exact front, by generations and population.

    Jobs are scheduled by BBSched, and the windows that it meets are kept. Most are easy: the quarter of them is
    measured in which most jobs fit.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from .distance import gd_curve
    from .genetic import Genetic
    from .windows import fullest, harvest

    if plot is not None:
        from asa.drawing import check_figure_path

        check_figure_path(plot)
    of = _one_workload(workload, theta, theta_buffer_tb)
    met = harvest(of, window, jobs)
    problems = fullest(met)
    Genetic(0).solve(problems[0])  # which compiles
    curve = gd_curve(problems)
    told = {"workload": of.name, "window": window, "windows": len(met), "measured": len(problems)}
    if as_json:
        points = [point._asdict() for point in curve]
        sys.stdout.write(json.dumps({**told, "curve": points}, indent=1, allow_nan=False) + "\n")
    else:
        _print_curve(curve, told)
    if plot is not None:
        from .pictures import draw_curve

        draw_curve(curve, plot)
        sys.stderr.write(f"Figure written to {plot}\n")


@app.command()
def bench(
    theta: _ThetaOption = None,
    *,
    workload: _WorkloadOption = None,
    jobs: _JobsOption = 1000,
    theta_buffer_tb: _BufferOption = 500,
    as_json: _JsonOption = False,
) -> None:
    """Time decisions of BBSched, exact and genetic, on windows of 20 and of 50 that it meets.

    One process, one core; the paper's figures are of a PC of 3.4 GHz.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from .windows import DECIDERS, fullest, harvest, time_decisions

    of = _one_workload(workload, theta, theta_buffer_tb)
    met = {window: harvest(of, window, jobs) for window in {one.window for one in DECIDERS}}
    timings = [
        timing
        for one in DECIDERS
        for timing in (
            time_decisions(one, met[one.window]),
            time_decisions(one, fullest(met[one.window]), "fullest"),
        )
    ]
    if as_json:
        sys.stdout.write(json.dumps([asdict(one) for one in timings], indent=1) + "\n")
    else:
        _print_timings(timings, of.name)


# ---------------------------------------------------------------------- what is asked for


def _names(text: str | None, known: Collection[str], option: str) -> list[str]:
    """Read names with commas between them; all that are known, if none are given."""
    if text is None:
        return list(known)
    names = list(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in names:
        if name not in known:
            raise UnknownNameError(
                f"{name!r} is unknown",
                where=f"{option} {text}",
                hint=f"{near(name, known)}Known: {', '.join(known)}.",
            )
    return names


def _numbers(text: str, option: str) -> list[int]:
    """Read sizes of windows."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdecimal()) or not 1 <= int(word) <= _MOST_WINDOW:
            raise InputError(
                f"{word!r} is no size of a window, which is a number from 1 to {_MOST_WINDOW:,}",
                where=f"{option} {text}",
                hint="Write numbers with commas between them, as in 10,20,50.",
            )
    return sorted({int(word) for word in words})


def _workload_names(text: str | None, theta: Path | None, option: str = "--workloads") -> list[str]:
    """Read names of workloads, of which Theta's need a log."""
    from .workloads import NAMES

    names = _names(text, NAMES, option)
    if theta is not None:
        return names
    if text is None:
        sys.stderr.write("Only Cori's workloads: Theta's are made of its log, which --theta names.\n")
        return [name for name in names if not name.startswith("theta")]
    if any(name.startswith("theta") for name in names):
        raise InputError(
            "Theta's workloads are made of its log, and none was given",
            where=f"{option} {text}",
            hint="Name it with --theta LOG, or ask for Cori's workloads only.",
        )
    return names


def _load(names: Sequence[str], theta: Path | None, days: int | None, seed: int, buffer_tb: int) -> dict[str, Workload]:
    """Make workloads, Theta's with so much burst buffer."""
    from .system import System
    from .workloads import BUFFER, load_workloads

    made = load_workloads(names, theta_log=theta, days=days, seed=seed)
    for name, workload in made.items():
        if name.startswith("theta"):
            most = int(workload.demands[BUFFER].max())
            if most > 1000 * buffer_tb:
                raise InputError(
                    f"a job of {name} asks for {most / 1000:,.1f} TB of burst buffer, and could never start",
                    where=f"--theta-buffer-tb {buffer_tb}",
                    hint="Give 285 or more.",
                )
            made[name] = replace(workload, system=System(workload.system.nodes, {BUFFER: 1000 * buffer_tb}))
    return made


def _one_workload(name: str | None, theta: Path | None, buffer_tb: int) -> Workload:
    text = name or ("cori-s4" if theta is None else "theta-s4")
    first, *others = _workload_names(text, theta, "--workload")
    if others:
        raise InputError("there can be one workload only", where=f"--workload {text}", hint=f"Name {first}, say.")
    return _load([first], theta, None, 0, buffer_tb)[first]


def _methods_for(workload: Workload, wanted: Collection[str]) -> list[str]:
    from .comparison import methods_for

    return [name for name in methods_for(workload) if name in wanted]


def _make_folder(folder: Path) -> None:
    """Refuse early what could not be written."""
    from asa.drawing import check_figure_path

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be made a folder: {error.strerror}", where=f"--plot {folder}", hint="Name another."
        ) from error
    check_figure_path(folder / "figure.png")


# ---------------------------------------------------------------------- printing


def _print(outcomes: Sequence[Outcome]) -> None:
    from rich.console import Console

    from .tables import MEASURES, SSD_MEASURES

    console = Console(highlight=False)
    grid = _shown(outcomes)
    for title, measures in (("Section 4", MEASURES), ("Section 5", SSD_MEASURES)):
        some = {name: methods for name, methods in grid.items() if _has_ssd(methods) == (measures is SSD_MEASURES)}
        for machine in _machines(some):
            _print_machine(console, machine.capitalize(), _of_machine(some, machine), measures)
        if some:
            _print_standings(console, some, measures, title)
    for name, methods in grid.items():
        if name.endswith("s4"):
            _print_breakdowns(console, name, methods)
    _print_text(console, grid)
    if len(outcomes) > len(_flat(grid)):
        _print_sensitivity(console, outcomes)
    _print_notes(console, _flat(grid))


def _print_machine(console: Console, machine: str, grid: Grid, measures: Sequence[Measure]) -> None:
    from .tables import BASELINE, area, change, estimate, kiviat, standings, values

    methods, headings = _methods(grid), _short(grid)
    buffer = " or ".join(sorted({f"{one.burst_buffer_gb / 1000:,g} TB" for one in _flat(grid)}))
    title = f"{machine}{', SSD' if _has_ssd(next(iter(grid.values()))) else ''}"
    console.print(f"\n[bold]{title}[/bold]: {_counted(grid)}, {buffer} of burst buffer")
    for one in measures:
        found = {
            method: [estimate(values(of[method], one.name) * one.scale) for of in grid.values()] for method in methods
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
                method, *(_starred(f"{100 * of[method]:.0f}", of[method] == max(of.values())) for of in areas)
            )
        _put(console, f"{title}: area in the Kiviat graph, % of the whole", table)


def _print_estimates(
    console: Console,
    title: str,
    headings: Sequence[str],
    found: Mapping[str, Sequence[Estimate]],
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
            cells = [_starred(cell, method in those) for cell, those in zip(cells, best, strict=True)]
        table.add_row(method, *cells)
        if papers is not None and method in papers:
            table.add_row("  the paper's", *papers[method], style="dim")
    widest = [max(one.half for one in column) for column in zip(*found.values(), strict=True)]
    if not has_room and not any(map(math.isnan, widest)):
        table.add_row("+- at most", *(f"{half:,.{digits}f}" for half in widest), style="dim")
    _put(console, title, table)


def _papers(grid: Grid, measure: Measure) -> dict[str, list[str]]:
    """Give the paper's figures by method, of those that its text has."""
    from .paper import FIGURES

    found = {}
    for method in _methods(grid):
        papers = [
            FIGURES.get((name, method, measure.name), {}).get(of[method][0].case.window) for name, of in grid.items()
        ]
        if any(papers):
            found[method] = [f"{paper * measure.scale:,.{measure.digits}f}" if paper else "" for paper in papers]
    return found


def _print_standings(console: Console, grid: Grid, measures: Sequence[Measure], title: str) -> None:
    from .paper import BEST
    from .tables import Standing, standings

    methods, many = _methods(grid), len(grid)
    if len(methods) == 1:
        return
    kinds = (Standing.BEST, Standing.TIED, Standing.CLOSE)
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
    from .tables import breakdown, label

    for by, words in _BREAKDOWNS.items():
        found = {method: breakdown(some, by) for method, some in methods.items()}
        columns = list(zip(*found.values(), strict=True))
        table = _table([label(by, parts[0]) for parts in columns])
        least = [min(part.average_wait_s for part in parts) for parts in columns]
        for method, parts in found.items():
            waits = (part.average_wait_s for part in parts)
            table.add_row(
                method, *(_starred(f"{s / 3600:,.2f}", s == best) for s, best in zip(waits, least, strict=True))
            )
        table.add_row("jobs", *(f"{parts[0].jobs:,}" for parts in columns), style="dim")
        _put(console, f"{name}: average wait, h, by {words}", table)


def _print_text(console: Console, grid: Grid) -> None:
    """Print changes that the paper's text states beside ours."""
    from .paper import CHANGES, PART_CHANGES
    from .tables import BASELINE, MEASURES, change, part_change

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
    from .paper import FIGURES
    from .tables import MEASURES, arrange, estimate, values

    windows, solvers = _windows(outcomes), _solvers(outcomes)
    methods = {one.case.method for one in outcomes}
    method = "bbsched" if "bbsched" in methods else min(methods)
    grids = {(window, solver): arrange(outcomes, window, solver) for window in windows for solver in solvers}
    names = [name for name, of in _shown(outcomes).items() if method in of]
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
                    *(_written(estimate(some), one.digits) for some in found),
                )
            papers = FIGURES.get((name, method, one.name), {})
            if papers:
                shown = (f"{papers[of] * one.scale:,.{one.digits}f}" if of in papers else "" for of in windows)
                table.add_row("", "paper", *shown, style="dim")
    _put(console, f"Table 3: {method} by the size of the window", table)


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
        f"{mean_ms:.2g} ms on average and {worst_ms:,.0f} ms at most; {inexact:,} of {decisions:,} were not known to "
        "be the best.",
        style="dim",
    )


def _print_curve(curve: Sequence[Distance], told: Mapping[str, Any]) -> None:
    from rich.console import Console

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
        "Distance from the exact front, % of the machine, and time of a solution: means over "
        f"{told['measured']} windows of up to {told['window']} jobs, those in which most jobs fit of "
        f"{told['windows']:,} that BBSched met. In the paper G=500 and P=20 take less than 200 ms.",
        style="dim",
    )


def _print_timings(timings: Sequence[Timing], name: str) -> None:
    from rich.console import Console

    from .windows import DECIDERS

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
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _put(console: Console, title: str, table: Table) -> None:
    """Print a table, with a title that may be wider."""
    console.print(f"\n[bold]{title}[/bold]")
    console.print(table)


def _written(found: Estimate, digits: int, *, with_half: bool = True, sign: str = "") -> str:
    if math.isnan(found.value):
        return "-"
    half = "" if math.isnan(found.half) or not with_half else f" +-{found.half:,.{digits}f}"
    return f"{found.value:{sign},.{digits}f}{half}"


def _starred(text: str, is_best: bool) -> str:
    return f"[bold]*{text}[/bold]" if is_best else text


def _shown(outcomes: Sequence[Outcome]) -> Grid:
    """Give outcomes of one size of the window and one solver: of the paper's window if there is one, or the first."""
    from .paper import WINDOW
    from .tables import arrange

    windows = _windows(outcomes)
    return arrange(outcomes, WINDOW if WINDOW in windows else windows[0], _solvers(outcomes)[0])


def _windows(outcomes: Sequence[Outcome]) -> list[int]:
    return list(dict.fromkeys(one.case.window for one in outcomes))


def _solvers(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(one.case.solver for one in outcomes))


def _machines(grid: Grid) -> list[str]:
    return list(dict.fromkeys(name.split("-")[0] for name in grid))


def _of_machine(grid: Grid, machine: str) -> Grid:
    return {name: methods for name, methods in grid.items() if name.startswith(machine)}


def _methods(grid: Grid) -> list[str]:
    """Name the methods of workloads that have the same."""
    return list(next(iter(grid.values())))


def _flat(grid: Grid) -> list[Outcome]:
    return [one for methods in grid.values() for some in methods.values() for one in some]


def _has_ssd(methods: Mapping[str, Sequence[Outcome]]) -> bool:
    return next(iter(methods.values()))[0].ssd_usage is not None


def _counted(grid: Grid) -> str:
    """Say how many jobs are measured of a workload."""
    counts = [one.jobs for one in _flat(grid)]
    least, most = min(counts), max(counts)
    return f"{least:,} jobs" if least == most else f"{least:,} to {most:,} jobs"


def _words(measure: Measure) -> str:
    return f"{measure.words}{measure.unit and f', {measure.unit}'}"


def _short(names: Collection[str]) -> list[str]:
    return [name.split("-")[1] for name in names]


# ---------------------------------------------------------------------- drawing


def _draw(outcomes: Sequence[Outcome], folder: Path) -> None:
    from .pictures import draw_breakdowns, draw_kiviats, draw_waits
    from .tables import MEASURES, SSD_MEASURES

    grid = _shown(outcomes)
    names = []
    for machine in _machines(grid):
        mine = _of_machine(grid, machine)
        for figure, measures in ((13, MEASURES), (14, SSD_MEASURES)):
            some = {name: methods for name, methods in mine.items() if _has_ssd(methods) == (measures is SSD_MEASURES)}
            if some:
                names.append(f"figure-{figure}-{machine}.png")
                draw_kiviats(some, measures, folder / names[-1])
        names.append(f"figure-8-{machine}.png")
        draw_waits(mine, folder / names[-1])
        if f"{machine}-s4" in mine:
            names.append(f"figures-9-11-{machine}.png")
            draw_breakdowns(f"{machine}-s4", mine[f"{machine}-s4"], folder / names[-1])
    sys.stderr.write(f"Figures written to {folder}: {', '.join(names)}\n")
