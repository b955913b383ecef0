"""``asa dmr``: the benefit of malleable jobs, compared with the paper's figures."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.core.drawing import check_figure_path, make_figure_folder
from asa.core.options import Output, OutputOption, sizes_in
from asa.studies.dmr.serving import run_in_job, serve, submit
from asa.units import MAX_PROCESSES, MAX_RUNS

if TYPE_CHECKING:
    from asa.backends.dmr.mechanics import Costs
    from asa.studies.dmr.cluster import JobRecord
    from asa.studies.present import Row, Table

    from .study import Study
    from .tables import PaperNumber

_SCHEMA = 1
_MAX_JOBS = 10_000
_ACTIONS = {
    "expands": "expansions a job",
    "expand_s": "time of one, s",
    "timed_out": "share that timed out",
    "shrinks": "shrinks a job",
    "shrink_s": "time of one, s",
}
_FIGURES = ("figures-4-5", "figure-6", "figure-7", "figure-8")

app = typer.Typer(
    help="""Jobs that shrink and grow while they run, when the resource manager asks them to.

    After Iserte et al., "DMR API: Improving the Cluster Productivity by Turning Applications into Malleable".
    """,
    no_args_is_help=True,
)


for _command in (serve, submit):
    app.command()(_command)
app.command("beside")(run_in_job)


@app.command()
def study(
    jobs: Annotated[str, typer.Option(help="Sizes of the throughput workloads.", metavar="N,N,...")] = "50,100,200,400",
    seeds: Annotated[int, typer.Option(help="Workloads of each size.", min=1, max=MAX_RUNS)] = 20,
    plot: Annotated[Path | None, typer.Option(help="Draw Figures 4 to 8 into this folder.", metavar="DIR")] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Resize by checkpoint and restart, instead of by messages.")
    ] = False,
    *,
    costs: Annotated[
        Path | None,
        typer.Option(
            help="What resizes take, as `asa dmr measure --output json` prints it; if not given, as in the paper.",
            metavar="FILE.json",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run the paper's workloads with fixed and with flexible jobs, and print its tables beside ours.

    Throughput workloads are of CG, Jacobi and N-body on 64 nodes (Table 4), preliminary ones of Flexible Sleep on 20,
    with checks that are answered at once or a step later (Tables 2 and 3); those have 10 to 400 jobs, but no more than
    the largest of the others.

    Ours are means over seeds, with their 95 % intervals. The paper has one workload of each size.

    Takes a quarter of a minute on two cores.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.backends.dmr.mechanics import Checkpoints, Costs
    from asa.studies.present import print_json

    from .measuring import read_costs
    from .study import study as run
    from .workloads import PRELIMINARY_JOBS

    sizes = sizes_in(jobs, _MAX_JOBS, "--jobs", "number of jobs", "50,100")
    if plot is not None:
        make_figure_folder(plot)
    of_resizes = Costs() if costs is None else read_costs(costs)
    of_resizes = replace(of_resizes, checkpoints=Checkpoints() if checkpoints else None)
    small = [many for many in PRELIMINARY_JOBS if many <= max(sizes)] or [max(sizes)]
    made = run(seeds, throughput_jobs=sizes, preliminary_jobs=small, costs=of_resizes)
    if output is Output.JSON:
        print_json(_as_dict(made, min(sizes), of_resizes))
    else:
        _print(made)
    if plot is not None:
        _draw(made, plot, min(sizes), of_resizes)


@app.command()
def measure(
    sizes: Annotated[
        str, typer.Option(help="Numbers of processes, each a power of two times another.", metavar="N,N,...")
    ] = "1,2,4,8",
    repeats: Annotated[int, typer.Option(help="How often each resize is done.", min=1, max=MAX_RUNS)] = 10,
    data: Annotated[float, typer.Option(help="Data that are redistributed, in GB.", min=0.001, max=1000.0)] = 1.0,
    plot: Annotated[Path | None, typer.Option(help="Draw Figure 3 into this file.", metavar="FILE")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure on this machine what resizes take (Fig. 3): of Flexible Sleep, an MPI program, under asa's manager.

    Needs mpirun and the extra `mpi`. Also prints the constants of the simulation that follow, for `asa dmr study
    --costs`. With the default options, takes some minutes.

    Exit codes: 0 done, 1 the program failed, 2 the input cannot be used.
    """
    from asa.studies.present import Table, console, number, print_json

    from .measuring import as_dict, costs_of
    from .measuring import measure as run

    if plot is not None:
        check_figure_path(plot)
    resizes = run(sizes_in(sizes, MAX_PROCESSES, "--sizes", "number of processes", "1,2,4,8"), repeats, data)
    costs = costs_of(resizes, data)
    if plot is not None:
        from .pictures import draw_resizes

        draw_resizes(resizes, plot)
        sys.stderr.write(f"Figure written to {plot}\n")
    if output is Output.JSON:
        print_json({"schema": _SCHEMA, **as_dict(resizes, costs)})
        return
    rows = [
        (f"{one.before} to {one.after}", *(number(time_s, 4) for time_s in (one.decide_s, one.spawn_s, one.move_s)))
        for one in resizes
    ]
    headings = ["processes", "deciding, s", "spawning, s", "moving, s"]
    constants = as_dict(resizes, costs)["costs"].items()
    out = console()
    out.print(
        Table(headings, rows, f"Figure 3: means of {repeats} resizes with {data:g} GB"),
        Table(["", ""], [(name, number(value, 4)) for name, value in constants], "Constants of the simulation"),
        sep="\n",
    )


def _examples(jobs: int, costs: Costs) -> tuple[list[JobRecord], list[JobRecord]]:
    """Run the workload of Figures 6 to 8, fixed and flexible."""
    from .study import run_workload

    return (
        run_workload("throughput", "fixed", jobs, 0, costs),
        run_workload("throughput", "synchronous", jobs, 0, costs),
    )


def _as_dict(made: Study, jobs: int, costs: Costs) -> dict[str, Any]:
    from .series import compare, evolution
    from .tables import table_2, table_3, table_4

    fixed, flexible = _examples(jobs, costs)
    return {
        "schema": _SCHEMA,
        "seeds": made.seeds,
        "table_2": [row.as_dict() for row in table_2(made)],
        "table_3": [row.as_dict() for row in table_3(made)],
        "table_4": [row.as_dict() for row in table_4(made)],
        "figure_6": {"jobs": jobs, "fixed": asdict(evolution(fixed)), "flexible": asdict(evolution(flexible))},
        "figures_7_and_8": [{**asdict(pair), "gains_s": pair.gains_s} for pair in compare(fixed, flexible)],
    }


def _draw(made: Study, folder: Path, jobs: int, costs: Costs) -> None:
    from .pictures import draw_differences, draw_evolution, draw_gains, draw_jobs
    from .series import compare, evolution
    from .workloads import NODES

    fixed, flexible = _examples(jobs, costs)
    paths = [folder / f"{name}.png" for name in _FIGURES]
    draw_gains(made, paths[0])
    draw_evolution(evolution(fixed), evolution(flexible), NODES, paths[1])
    draw_jobs(compare(fixed, flexible), paths[2])
    draw_differences(compare(fixed, flexible), paths[3])
    sys.stderr.write(f"Figures written to {folder}: {', '.join(path.name for path in paths)}\n")


_DIFFER = (
    "Known differences: in Table 4, flexible jobs run three quarters longer than fixed ones, in the paper half as "
    "long again: here a job prefers the width at the knee of Amdahl's curve, where N-body loses more. In Table 3, "
    "run times hardly grow, because jobs of small workloads also expand into an idle machine. Fewer jobs shrink, "
    "because none shrinks for a job that already gets the cores of another."
)


def _print(made: Study) -> None:
    from asa.studies.present import console

    from .tables import table_2, table_3, table_4

    out = console()
    out.print(_actions(table_2(made)), _gains(table_3(made)), _throughput(table_4(made)), sep="\n")
    out.print(
        f"Ours: means over {made.seeds} workloads of each size, +- half their 95 % interval. Gain: percent less than "
        f"with fixed jobs. {_DIFFER}",
        style="dim",
    )


def _actions(rows: Sequence[PaperNumber]) -> Table:
    by_key = {(row.version, row.what): row for row in rows}
    versions = list(dict.fromkeys(row.version for row in rows))
    cells = [
        (words, *(cell for of in versions for cell in _pair(by_key[of, what], 3))) for what, words in _ACTIONS.items()
    ]
    return _table(f"Table 2: actions, in a preliminary workload of {rows[0].jobs} jobs", [""], versions, cells)


def _gains(rows: Sequence[PaperNumber]) -> Table:
    pairs = zip(rows[::2], rows[1::2], strict=True)
    cells = [(mean.what, mean.version, *_pair(mean, 1), *_pair(off, 1)) for mean, off in pairs]
    return _table("Table 3: preliminary workloads of all sizes, in percent", ["", ""], ["mean", "deviation"], cells)


def _throughput(rows: Sequence[PaperNumber]) -> Table:
    from asa.studies.present import Row

    by_key = {(row.jobs, row.what, row.version): row for row in rows}
    versions = list(dict.fromkeys(row.version for row in rows))
    cells: list[Row | Sequence[str]] = []
    for jobs in dict.fromkeys(row.jobs for row in rows):
        cells.append(Row([f"{jobs} jobs"], "bold"))
        for what in dict.fromkeys(row.what for row in rows):
            pairs = (_pair(by_key[jobs, what, of], _digits(what, of)) for of in versions)
            cells.append((what, *(cell for pair in pairs for cell in pair)))
    return _table(
        "Table 4: throughput workloads; changes in points of utilisation, and in percent", [""], versions, cells
    )


def _table(title: str, first: Sequence[str], groups: Sequence[str], rows: Sequence[Row | Sequence[str]]) -> Table:
    """Return a table with two columns for each group, the paper's and ours."""
    from asa.studies.present import Table

    headings = [*first, *(heading for group in groups for heading in ("\npaper", f"{group}\nours"))]
    left = range(len(first))
    ours = range(len(first) + 1, len(headings), 2)  # with few seeds the interval may not fit into one line
    return Table(headings, rows, title, left=left, wraps=ours)


def _digits(what: str, version: str) -> int | None:
    """Return the decimals of a figure of Table 4; see `asa.studies.present.number`."""
    if what == "utilisation":
        return 1
    return 0 if version == "change" else None


def _pair(row: PaperNumber, digits: int | None) -> tuple[str, str]:
    """Format the paper's number and ours."""
    from asa.studies.present import number

    ours = row.ours
    paper = number(math.nan if row.paper is None else row.paper, digits)
    if math.isnan(ours.mean):
        return paper, "-"
    half = max(ours.mean - ours.low, ours.high - ours.mean)  # the other half may be cut at the bound of the measure
    spread = "" if math.isnan(half) else f" +-{number(half, 0 if digits is not None and half >= 10 else digits)}"
    return paper, f"{number(ours.mean, digits)}{spread}"
