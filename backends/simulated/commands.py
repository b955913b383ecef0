"""``asa workload``: workload models, calibrated to a centre's waits or fitted to a log, and the generation of jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.core.documents import print_json
from asa.core.options import Output, OutputOption
from asa.errors import InputError
from asa.units import MAX_DAYS, MAX_RUNS, MAX_SEED, format_duration

from .limits import MAX_CORES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from .calibrate import MeasuredWait
    from .fitted import FittedWorkload
    from .workload import WorkloadModel

app = typer.Typer(help="Workload models: of the simulated centres, and of logs.", no_args_is_help=True)

_System = Annotated[str, typer.Argument(help="hpc2n, uppmax, hpc2n-table2 or uppmax-table2.")]
_Seeds = Annotated[int, typer.Option(help="Simulated periods.", min=1, max=MAX_RUNS)]
_Days = Annotated[int, typer.Option(help="Length of a period, after a week of warm-up.", min=1, max=MAX_DAYS)]


@app.command()
def check(system: _System, seeds: _Seeds = 8, days: _Days = 28) -> None:
    """Compare the waits of a simulated centre with those in the paper: for each geometry, on other seeds than its own.

    Example, where runs begin: `asa workload check uppmax-table2 --days 7 --seeds 64`
    """
    from .calibrate import measure
    from .presets import TARGETS, preset

    model = preset(system)
    with _processes() as executor:
        measured = measure(model, TARGETS[system], seeds=range(100, 100 + seeds), days=days, executor=executor)
    _show(f"{system}: mean wait of one job dropped in at random, {seeds} periods of {days} days", measured)


@app.command()
def calibrate(
    system: _System,
    trials: Annotated[int, typer.Option(help="Models to try.", min=1, max=MAX_RUNS)] = 60,
    seeds: _Seeds = 4,
    days: _Days = 28,
    seed: Annotated[int, typer.Option(help="Of the search.", min=0, max=MAX_SEED)] = 0,
) -> None:
    """Search for the workload whose waits are nearest to the paper's, starting from the present one.

    Takes some seconds a trial. The result is checked on periods to which it was not fitted.
    """
    from asa.core.console import Console

    from .calibrate import CalibrationTrial, measure
    from .calibrate import calibrate as search
    from .presets import TARGETS, preset

    console = Console()
    targets = TARGETS.get(system)
    start = preset(system)
    if targets is None:
        raise InputError("has no waits to aim at", where=f"system {system!r}", hint=f"Known: {', '.join(TARGETS)}.")

    def report(step: CalibrationTrial) -> None:
        if step.best:
            numbers = ", ".join(f"{name}={value:g}" for name, value in step.model.parameters().items())
            waits = ", ".join(format_duration(m.mean_wait_s) for m in step.measured)
            console.print(f"trial {step.number}: waits {waits}; misfit {step.misfit:.3f}; {numbers}", highlight=False)

    with _processes() as executor:
        best = search(
            start,
            targets,
            trials=trials,
            seeds=range(seeds),
            days=days,
            executor=executor,
            seed=seed,
            report=report,
        )
        others = range(100, 100 + max(seeds, 8))
        measured = measure(best, targets, seeds=others, days=days, executor=executor)
    _show(f"{system}: mean waits on {len(others)} other periods of {days} days", measured)
    console.print(f"\nbest model: {best.parameters()}", highlight=False)


@app.command()
def fit(
    trace: Annotated[Path, typer.Argument(help="Workload log (SWF, plain or .gz).", metavar="TRACE")],
    trace_cores: Annotated[
        int | None,
        typer.Option(help="Processors of the log's machine, if its header does not say.", min=1, max=MAX_CORES),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the model here, as JSON.", metavar="MODEL.json")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample that the log is compared with.", min=0, max=MAX_SEED)] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Fit a workload model to a log, and compare a sample of it with the log.

    Jobs that ran for longer than they had requested count as killed at their request.

    Example: `asa workload fit CTC-SP2.swf.gz --out ctc.json`
    """
    from .fit import distances, halves, marginals, offered_load
    from .fit import fit as fit_to
    from .model_file import save_model
    from .swf import read_swf

    log = read_swf(trace, cores=trace_cores, exceed="kill")
    model = fit_to(log)
    if out is not None:
        save_model(model, out)
    table = log.table
    span_s = int(table.submit[-1] - table.submit[0])
    sample = model.generate(span_s, seed)
    near = distances(marginals(table, clock_s=log.clock_s), marginals(sample))
    itself = halves(log)
    document = {
        "log": str(trace),
        "cores": log.cores,
        "days": span_s / 86400,
        "jobs": {"log": len(table), "sample": len(sample)},
        "load": {"log": offered_load(table, log.cores), "sample": offered_load(sample, log.cores, span_s)},
        "fitted": model.summary(),
        "distances": {
            name: {"log_to_sample": near[name], "odd_to_even_weeks": itself[name] if itself else None} for name in near
        },
        "oddities": log.oddities,
    }
    if output is Output.JSON:
        print_json(document)
    else:
        _show_fit(log.path.name, document)


@app.command()
def generate(
    model: Annotated[
        str,
        typer.Argument(
            help="A model that `asa workload fit` wrote, or hpc2n or another centre.", metavar="MODEL|SYSTEM"
        ),
    ],
    days: Annotated[int, typer.Option(help="Length of the log, which begins on a Monday.", min=1, max=36500)],
    seed: Annotated[int, typer.Option(help="The same seed gives the same log.", min=0, max=MAX_SEED)],
    out: Annotated[Path, typer.Option(help="Write the log here; compressed if it ends in .gz.", metavar="FILE.swf")],
    load: Annotated[
        float | None, typer.Option(help="Work that arrives, as a share of what the machine can do.")
    ] = None,
) -> None:
    """Write a log of jobs drawn from a workload model.

    Example: `asa workload generate ctc.json --days 28 --load 0.9 --seed 1 --out busy.swf.gz`
    """
    from dataclasses import replace

    from asa.core.console import Console

    from .fit import offered_load
    from .swf import write_swf

    workload = _workload(model)
    if load is not None:
        workload = replace(workload, load=load)
    jobs = workload.generate(days * 86400, seed)
    if not len(jobs):
        raise InputError(
            f"no job came in {days} days at a load of {workload.load:g}",
            where="--days --load",
            hint="Give more of them.",
        )
    cores = workload.machine.cores
    note = f"Drawn from the workload model {model} by asa: load {workload.load:g}, seed {seed}, {days} days."
    # second 0 is a Monday, as in the models
    write_swf(out, jobs, cores=cores, notes=[note, "No job of it ever was."], unix_start_s=4 * 86400)
    share = offered_load(jobs, cores, days * 86400)
    Console().print(f"{out}: {len(jobs):,} jobs, {days} days, load {share:.3f} of {cores:,} cores", highlight=False)


def _workload(name: str) -> FittedWorkload | WorkloadModel:
    from .model_file import load_model
    from .presets import PRESETS, preset

    if name in PRESETS or not (Path(name).exists() or Path(name).suffix == ".json"):
        return preset(name)
    return load_model(name)


@contextmanager
def _processes() -> Iterator[Executor]:
    from concurrent.futures import ProcessPoolExecutor

    from asa.core.processes import context

    with ProcessPoolExecutor(mp_context=context()) as executor:
        yield executor


def _show(title: str, measured: Sequence[MeasuredWait]) -> None:
    from rich.table import Table

    from asa.core.console import Console

    table = Table(title=title, title_justify="left")
    for heading in (
        "Cores",
        "Walltime",
        "Paper",
        "Simulated",
        "95 % +-",
        "Simulated / paper",
        "Had to wait",
    ):
        table.add_column(heading, justify="right")
    for m in measured:
        table.add_row(
            str(m.target.cores),
            format_duration(m.target.walltime_s),
            format_duration(m.target.mean_wait_s),
            format_duration(m.mean_wait_s),
            "-" if math.isnan(m.half_width_s) else format_duration(m.half_width_s),
            f"{m.ratio:.2f}",
            f"{100 * m.waited:.0f} %",
        )
    Console().print(table)


def _show_fit(name: str, document: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from asa.core.console import Console

    console = Console()
    fitted = document["fitted"]
    jobs, load = document["jobs"], document["load"]
    table = Table(title=f"{name}: what was fitted", title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    headings = ("Cores", "Jobs", "Work", "Jobs a campaign", "Mean cores", "Mean request", "Mean run", "At limit")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in fitted["widths"]:
        table.add_row(
            _between(row["least_cores"], row["most_cores"]),
            f"{100 * row['jobs']:.1f} %",
            f"{100 * row['work']:.1f} %",
            f"{row['jobs_a_campaign']:.2f}",
            f"{row['mean_cores']:.1f}",
            format_duration(row["mean_request_s"]),
            format_duration(row["mean_run_s"]),
            f"{100 * row['at_limit']:.1f} %",
        )
    console.print(table)
    requests = ", ".join(
        f"{format_duration(entry['request_s'])} {100 * entry['share']:.0f} %" for entry in fitted["requests"]
    )
    for line in (
        (
            f"widths: serial {100 * fitted['serial']:.1f} %, powers of two {100 * fitted['powers_of_two']:.1f} %, "
            f"other popular ones {abs(100 * fitted['other_popular']):.1f} %, the rest "
            f"{100 * fitted['other_widths']:.1f} %"
        ),
        f"most popular requests: {requests}",
        (
            f"busiest hour {fitted['busiest_hour']}:00 with {fitted['busiest_rate']:.2f} times the mean rate, quietest "
            f"{fitted['quietest_hour']}:00 with {fitted['quietest_rate']:.2f}; a weekend day "
            f"{fitted['weekend']:.2f} times a weekday; weeks from {fitted['quietest_week']:.2f} to "
            f"{fitted['busiest_week']:.2f}"
        ),
        f"jobs of a campaign run alike: {100 * fitted['alike']:.0f} %",
        (
            f"jobs: {jobs['log']:,} in the log, {jobs['sample']:,} in the sample; load {load['log']:.3f} and "
            f"{load['sample']:.3f}, fitted {fitted['load']:.3f}; {fitted['numbers']:,} numbers in the model"
        ),
    ):
        console.print(line, highlight=False)
    table = Table(
        title="Kolmogorov-Smirnov distances",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
    )
    for heading in ("", "Log to sample", "Log's odd to even weeks"):
        table.add_column(heading, justify="right" if heading else "left")
    for marginal, row in document["distances"].items():
        itself = row["odd_to_even_weeks"]
        table.add_row(marginal, f"{row['log_to_sample']:.3f}", "-" if itself is None else f"{itself:.3f}")
    console.print()
    console.print(table)
    for words, count in document["oddities"].items():
        console.print(f"Log: {count} jobs {words}", style="dim", highlight=False)


def _between(least: int, most: int) -> str:
    return f"{least}-{most}" if least < most else str(most)
