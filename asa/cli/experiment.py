"""``asa experiment``: experiments on recorded logs; each command prints its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.asked import ExecutorOption, JobsOption, counts_in, names_in
from asa.cli.campaign import PastJobsOption, ResultsOption, WorkflowsOption
from asa.cli.progress import print_found, run_study
from asa.cli.terminal import write_notice
from asa.core.documents import print_json
from asa.core.options import Output, OutputOption
from asa.units import MAX_RUNS

if TYPE_CHECKING:
    from asa.core.intervals import Interval
    from asa.studies.standings import Standing

app = typer.Typer(help="Experiments on recorded logs.", no_args_is_help=True)


class Age(StrEnum):
    """Whether dependent jobs gain priority by age while they are blocked."""

    BOTH = "both"
    ACCRUES = "accrues"
    NOT = "not"


_RULES = {Age.BOTH: (True, False), Age.ACCRUES: (True,), Age.NOT: (False,)}


_Traces = Annotated[list[Path], typer.Option(help="Workload log (SWF, plain or .gz); may be repeated.", metavar="FILE")]
_Names = Annotated[
    str, typer.Option("--strategies", help="Strategies, comma-separated; big-job and per-stage are always included.")
]
_Cores = Annotated[
    str | None,
    typer.Option(
        help="Cores of the widest stage, comma-separated. [default: three that fit each log's machine]",
        show_default=False,
    ),
]
_Estimator = Annotated[
    str, typer.Option(help="What predicts waits; `asa list` shows all. `queue` simulates the visible queue.")
]
_Age = Annotated[Age, typer.Option(help="Whether jobs gain priority while they wait for a dependency.")]
_Starts = Annotated[
    int, typer.Option(help="Number of replications, each from another time of the log.", min=2, max=MAX_RUNS)
]
_Plot = Annotated[
    Path | None,
    typer.Option(help="Draw makespans and core-hours, one point per strategy (.png, .svg).", metavar="FILE"),
]


@app.command("strategies")
def strategies(
    trace: _Traces,
    workflows: WorkflowsOption = "montage,statistics",
    names: _Names = "chained,asa,asa-naive,asa-plan,elastic",
    cores: _Cores = None,
    starts: Annotated[
        int, typer.Option(help="Number of replications, each from another time of the log.", min=1, max=MAX_RUNS)
    ] = 40,
    age: _Age = Age.BOTH,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Whether running jobs can give cores back.")
    ] = True,
    estimator: _Estimator = "queue",
    history: PastJobsOption = 2000,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = "local",
    output: OutputOption = Output.TABLE,
    plot: _Plot = None,
) -> None:
    """Compare strategies on recorded logs: makespan over Big Job's, core-hours over Per-Stage's.

    In each replication every strategy meets the same queue, under the same rules. Waits are learned, not known in
    advance.

    Example: `asa experiment strategies --trace HPC2N.swf.gz --trace CTC.swf.gz --results runs.jsonl`
    """
    from asa.studies.logs.study import Contest, compare_ways, standings

    if plot is not None:
        from asa.core.drawing import check_figure_path

        check_figure_path(plot)
    contest = Contest(
        tuple(trace),
        names_in(workflows, "--workflows"),
        names_in(names, "--strategies"),
        counts_in(cores),
        _RULES[age],
        shrink,
        estimator,
        starts,
        history,
    )
    trials = run_study(compare_ways, contest, results, executor=executor, jobs=jobs, kept=results)
    if output is Output.JSON:
        print_json([asdict(trial) for trial in trials])
        return
    by_age = standings(trials)
    _print_table(by_age, contest.starts, contest.estimator, shrink=shrink)
    if plot is not None:
        from asa.studies.logs.figure import frontier

        frontier(by_age, plot)
        write_notice(f"Figure written to {plot}")


@app.command("shapes")
def shapes(
    trace: _Traces,
    workflows: Annotated[
        str, typer.Option(help="Moldable workflows, comma-separated: the paper's, and a chain of NAS benchmarks.")
    ] = "montage,blast,statistics,benchmarks",
    strategies: Annotated[
        str,
        typer.Option(help="Strategies that choose shapes, comma-separated, as in `asa-plan,asa-plan:races=yes`."),
    ] = "asa-plan",
    starts: _Starts = 40,
    age: _Age = Age.BOTH,
    estimator: Annotated[
        str, typer.Option(help="What predicts waits; `asa list` shows all. `asa-queue` sees the queue, `asa` does not.")
    ] = "asa-queue",
    history: PastJobsOption = 2000,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = "local",
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare strategies that choose shapes with every form at each single width, on recorded logs.

    Each stage may be asked for on 7 to 224 cores. Two references are known only in hindsight: the form (Big Job,
    Per-Stage, chained, asa-plan) and width that were best over all starts, and asa-plan's best width at each start.

    Example: `asa experiment shapes --trace HPC2N.swf.gz --trace CTC.swf.gz --results runs.jsonl`
    """
    from asa.studies.shapes.scores import ShapeVerdicts
    from asa.studies.shapes.study import ShapeQuestion, compare_ways

    question = ShapeQuestion(
        tuple(trace),
        names_in(workflows, "--workflows"),
        names_in(strategies, "--strategies"),
        _RULES[age],
        estimator,
        starts,
        history,
    )
    runs = run_study(compare_ways, question, results, executor=executor, jobs=jobs, kept=results)
    print_found(ShapeVerdicts(runs, starts, estimator), as_json=output is Output.JSON)


@app.command("bags")
def bags(
    trace: _Traces,
    hours: Annotated[
        str, typer.Option(help="Sizes, comma-separated: hours that all jobs together take for all tasks.")
    ] = "1,12",
    starts: _Starts = 40,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = "local",
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare one wide job for the tasks of a stage with 2 to 112 jobs that share them, on recorded logs.

    Together they have 112 cores, or 56 if the machine is smaller. Of a range such as `jobs = "1..112"` asa takes the
    maximum.

    Example: `asa experiment bags --trace HPC2N.swf.gz --trace CTC.swf.gz --results runs.jsonl`
    """
    from asa.studies.bags.scores import BagVerdicts
    from asa.studies.bags.study import BagQuestion, compare_ways

    question = BagQuestion(tuple(trace), _numbers(hours), starts)
    runs = run_study(compare_ways, question, results, executor=executor, jobs=jobs, kept=results)
    print_found(BagVerdicts(runs, starts), as_json=output is Output.JSON)


@app.command("legs")
def legs(
    trace: _Traces,
    cores: Annotated[str, typer.Option(help="Widths of a leg, comma-separated.")],
    leg: Annotated[str, typer.Option(help="Walltime of a leg, as in 18h.")],
    count: Annotated[int, typer.Option("--legs", help="Legs that the computation takes.", min=2, max=100)] = 3,
    age: Annotated[Age, typer.Option(help="Whether jobs gain priority behind a dependency.")] = Age.BOTH,
    rivals: Annotated[
        str | None, typer.Option(help="Who is compared, comma-separated. [default: all]", show_default=False)
    ] = None,
    starts: _Starts = 24,
    since: Annotated[
        str | None,
        typer.Option(help="Day of the first hand-over, as in 2023-03-01; starts are drawn if not given."),
    ] = None,
    every: Annotated[str, typer.Option(help="With --since: from one hand-over to the next.")] = "4h",
    recorded: Annotated[
        bool, typer.Option(help="Jobs wait as the log says, yours as the one most like it: no replay.")
    ] = False,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = "local",
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare ways of submitting the next leg of a long computation, on recorded logs.

    The ways: when the running leg has ended; the mean wait ahead of that; at once, with a dependency; ahead by boosted
    trees; by asa's forecasts, without and with hand-over; and as if the wait were known.

    Example: `asa experiment legs --trace CTC.swf.gz --cores 3,32 --leg 18h --results legs.jsonl`
    """
    from asa.studies.legs.scores import LegVerdicts
    from asa.studies.legs.study import WAYS, LegQuestion, compare_ways
    from asa.units import parse_duration

    question = LegQuestion(
        tuple(trace),
        tuple(counts_in(cores, "--cores")),
        parse_duration(leg),
        _RULES[age],
        tuple(WAYS) if rivals is None else names_in(rivals, "--rivals"),
        count,
        starts,
        None if since is None else _day(since),
        parse_duration(every),
        recorded,
    )
    found = run_study(compare_ways, question, results, executor=executor, jobs=jobs, kept=results)
    print_found(LegVerdicts(found), as_json=output is Output.JSON)


@app.command("adoption")
def adoption(
    trace: _Traces,
    models: Annotated[
        str,
        typer.Option(
            help="Models of each log's machine, comma-separated: replay (EASY backfilling), or a fitted twin."
        ),
    ] = "replay,twin",
    shares: Annotated[
        str, typer.Option(help="Shares of users who use asa, in percent, comma-separated.")
    ] = "5,10,25,50,100",
    draws: Annotated[int, typer.Option(help="Number of draws of weeks and users.", min=2, max=MAX_RUNS)] = 20,
    weeks: Annotated[float, typer.Option(help="Weeks of the log in each draw.", min=0.1, max=520)] = 4.0,
    ways: Annotated[
        str,
        typer.Option(
            help="What they do, comma-separated: ask for jobs ahead, race in two shapes, split jobs into parts."
        ),
    ] = "ahead,races,parts",
    parts: Annotated[int, typer.Option(help="Number of jobs into which one is split.", min=2, max=1000)] = 8,
    rivals: Annotated[
        int, typer.Option("--max-racers", help="Jobs that race with the first one, at most.", min=0, max=100)
    ] = 3,
    age: Annotated[
        Age, typer.Option(help="Whether jobs gain priority while they wait for a dependency.")
    ] = Age.ACCRUES,
    estimator: Annotated[str, typer.Option(help="What predicts waits; `asa list` shows all.")] = "asa",
    results: ResultsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = "local",
    output: OutputOption = Output.TABLE,
    table: Annotated[
        Path | None, typer.Option("--csv", help="Write every score to this file, too.", metavar="FILE.csv")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw others' waits by the share of users (.png, .svg).", metavar="FILE")
    ] = None,
) -> None:
    """Show what asa does to everybody if a share of a site's users uses it, on recorded logs.

    Users with many or wide jobs submit them as in the log, or in asa's ways. All are in one simulated world, so those
    who use asa learn from a queue that they change.

    Example: `asa experiment adoption --trace KTH.swf.gz --draws 5 --models replay --plot others.png`
    """
    from asa.studies.adoption.scores import AdoptionVerdicts
    from asa.studies.adoption.study import AdoptionQuestion, compare_shares

    if plot is not None:
        from asa.core.drawing import check_figure_path

        check_figure_path(plot)
    runs = []
    for rule in _RULES[age]:
        question = AdoptionQuestion(
            tuple(trace),
            names_in(models, "--models"),
            tuple(percent / 100 for percent in _numbers(shares, "--shares")),
            draws,
            weeks,
            names_in(ways, "--ways"),
            parts,
            rivals,
            rule,
            estimator,
        )
        runs += run_study(compare_shares, question, results, executor=executor, jobs=jobs, kept=results)
    found = AdoptionVerdicts(runs, question.ways)
    if table is not None:
        found.write_csv(table)
    print_found(found, as_json=output is Output.JSON)
    if plot is not None:
        found.draw(plot)
        write_notice(f"Figure written to {plot}")


def _day(text: str) -> float:
    from datetime import UTC, datetime

    from asa.errors import InputError

    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{text!r} is not a date", where="--since", hint="As in 2023-03-01.") from None


def _numbers(text: str, option: str = "--hours") -> tuple[float, ...]:
    from asa.errors import InputError

    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{text!r} is not a list of numbers", where=option, hint="As in 1,12.") from None


def _print_table(by_age: Mapping[bool, Sequence[Standing]], starts: int, estimator: str, *, shrink: bool) -> None:
    from asa.studies.present import Table, console, number

    headings = ["Strategy", "Makespan", "Core-hours", "Perceived", "All waits", "Dominated"]
    out = console()
    for age, standings in by_age.items():
        rows = [
            (
                f"{standing.strategy}{'=' if standing.is_as_quick else ''}",
                _interval(standing.makespan),
                _interval(standing.core_hours),
                number(standing.perceived_wait, 2),
                number(standing.total_wait, 2),
                f"{standing.dominated} of {standing.cells}",
            )
            for standing in standings
        ]
        rule = "" if age else "no "
        title = (
            f"If jobs gain {rule}priority while they wait for a dependency: {standings[0].cells} cells of {starts} "
            f"starts"
        )
        out.print(Table(headings, rows, title, "table.title", is_ruled=False))
        out.print()
    words = (
        "Makespans over Big Job's, core-hours over Per-Stage's: geometric means over paired starts and cells, with",
        "95 % intervals (Student's t over starts). Waits, those between stages and all: their sum over Per-Stage's.",
        f"Predicted by {estimator}; running jobs {'can' if shrink else 'cannot'} give cores back.",
        "= the quickest, or not significantly slower. Dominated: another strategy took less time, by significantly",
        "more than 2 %, and no more core-hours, or the reverse. Corrected for all strategies, or all cells, by Holm's",
        "rule, at 95 %.",
    )
    out.print(" ".join(words), style="dim")


def _interval(interval: Interval) -> str:
    from asa.report.intervals import written

    bounds = written(interval, 2)
    return f"{interval.mean:.3f}{f' ({bounds})' if bounds else ''}"
