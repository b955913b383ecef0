"""``asa compare``: compares strategies on a simulated queue."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from asa.cli.asked import ExecutorOption, counts_in, names_in
from asa.cli.assumed import age_rule, tell_assumed, with_known_run_times
from asa.cli.completing import (
    complete_backends,
    complete_estimators,
    complete_schedulers,
    complete_strategies,
    complete_systems,
    complete_workflows,
)
from asa.cli.given import (
    FormerSetOption,
    Given,
    OptionsOption,
    ParamsOption,
    is_file,
    parameters_meant,
    unknown_workflow,
)
from asa.cli.own_centre import own_centre
from asa.cli.report import PageOption, asked, check_page, made, write_page, write_to
from asa.cli.terminal import write_notice
from asa.core.documents import print_json
from asa.errors import InputError, RunError
from asa.units import MAX_CORES, MAX_JOBS, MAX_POLL_S, MAX_PROCESSES, MAX_RUNS, MAX_SEED

if TYPE_CHECKING:
    from asa.backend import Site
    from asa.cli.own_centre import OwnCentre
    from asa.studies.compare.study import CompareRun, Comparison
    from asa.workflow import Workflow

_SIMULATED = "simulated"
_OUTPUT = "Print tables, or all runs for programs: as JSON, or as CSV (without the stages)."


class RunsOutput(StrEnum):
    """The output format."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


_OF_THE_SITE = ("grow", "shrink")  # settings of the machine, not of a scheduler
_DEFAULT_SYSTEM = "uppmax"  # where nothing queues, all strategies come out equal
_SMALL, _LARGE = "28,56,112", "160,320,640"
_DEFAULT_CORES = {"hpc2n": _SMALL, "hpc2n-table2": _SMALL, "uppmax": _LARGE, "uppmax-table2": _LARGE}
_DEFAULT_STRATEGIES = ("big-job", "per-stage", "asa", "chained", "asa-plan")
_HARDLY = 0.05  # of the makespan
_OWN_SHAPES = "asa-plan:shapes=own"


_Workflow = Annotated[
    str,
    typer.Argument(help="montage, blast, statistics, or a workflow file (.toml).", autocompletion=complete_workflows),
]
_Backend = Annotated[
    str,
    typer.Option(
        help="The simulator: `simulated`, or one with a scheduler of its own, as openccs; `asa list` shows all.",
        autocompletion=complete_backends,
    ),
]
_System = Annotated[
    str | None,
    typer.Option(
        help="Simulated centre: hpc2n or uppmax, with -table2 behind it for the longer waits of the paper's Table 2. "
        f"[default: {_DEFAULT_SYSTEM}, the busier]",
        show_default=False,
        autocompletion=complete_systems,
    ),
]
_Trace = Annotated[
    Path | None,
    typer.Option(help="Replay this workload log (SWF, plain or .gz) in place of a simulated centre.", metavar="FILE"),
]
_TraceCores = Annotated[
    int | None, typer.Option(help="Cores of the log's machine, if its header does not tell.", min=1, max=MAX_CORES)
]
_Cores = Annotated[
    str | None,
    typer.Option(
        help="Cores of the widest stage; several, comma-separated, are compared. [default: the paper's for "
        "the centre, else 112]"
    ),
]
_Widths = Annotated[
    str | None,
    typer.Option(
        help="Further numbers of cores for the parallel stages of an installed workflow, comma-separated, among "
        "which asa-plan chooses. [default: none; workflow files have their own]",
        show_default=False,
    ),
]
_Strategies = Annotated[
    str | None,
    typer.Option(
        help="Strategies to compare, comma-separated; `asa list` shows all. [default: "
        f"{','.join(_DEFAULT_STRATEGIES)}; where stages have several shapes also {_OWN_SHAPES}]",
        show_default=False,
        autocompletion=complete_strategies,
    ),
]
_Price = Annotated[
    list[str] | None,
    typer.Option(
        help='Also asa-plan at this price of time, as "1 h = 200 core-hours" (an hour sooner is worth so much to you); '
        "may be repeated.",
        metavar="PRICE",
        show_default=False,
    ),
]
_Seeds = Annotated[int, typer.Option(help="Replications of each strategy and number of cores.", min=1, max=MAX_RUNS)]
_Seed = Annotated[
    int,
    typer.Option(
        help="Seed of the first replication; the same seed gives the same results on any machine.", min=0, max=MAX_SEED
    ),
]
_AgeAccrues = Annotated[
    bool | None,
    typer.Option(
        "--age-accrues/--no-age-accrues",
        help="Whether jobs gain priority while they wait for a dependency (in Slurm: only with ACCRUE_ALWAYS). "
        "[default: of a workflow file that of the saved site, else no; of an installed workflow yes, as in the paper]",
        show_default=False,
    ),
]
_Estimator = Annotated[
    str,
    typer.Option(
        help="What predicts waits: asa, asa-tuned (the paper's), asa-queue (which `asa run` takes where a site shows "
        "the jobs of others), or another that `asa list` shows.",
        autocompletion=complete_estimators,
    ),
]
_History = Annotated[
    int,
    typer.Option(
        help="Learn the waits of so many past jobs before each replication; with 0 only those of the workflow's own "
        "jobs, from one replication to the next.",
        min=0,
        max=MAX_JOBS,
    ),
]
_Spread = Annotated[
    float,
    typer.Option(help="Spread of real run times around the expected ones (standard deviation of their logarithm)."),
]
_Scheduler = Annotated[
    str | None,
    typer.Option(
        help="The scheduler: easy, or another that `asa list` shows. [default: easy, or the backend's]",
        show_default=False,
        autocompletion=complete_schedulers,
    ),
]
_Poll = Annotated[int, typer.Option(help="Seconds from one look at the queue to the next.", min=0, max=MAX_POLL_S)]
_Jobs = Annotated[
    int | None, typer.Option(help="Number of processes. [default: the number of cores here]", min=1, max=MAX_PROCESSES)
]
_Results = Annotated[
    Path | None,
    typer.Option(
        help="Write all runs to this file, from which `asa report FILE.json` makes a page, a trace or a CSV table.",
        metavar="FILE.json",
    ),
]
_Plot = Annotated[
    Path | None,
    typer.Option(help="Draw the waits and run times of the stages, one bar per strategy (.png, .svg).", metavar="FILE"),
]


def compare(
    workflow: _Workflow,
    parameters: ParamsOption = None,
    options: OptionsOption = None,
    either: FormerSetOption = None,
    backend: _Backend = _SIMULATED,
    system: _System = None,
    trace: _Trace = None,
    trace_cores: _TraceCores = None,
    cores: _Cores = None,
    widths: _Widths = None,
    strategies: _Strategies = None,
    price: _Price = None,
    seeds: _Seeds = 20,
    seed: _Seed = 0,
    age_accrues: _AgeAccrues = None,
    estimator: _Estimator = "asa",
    history: _History = 2000,
    spread: _Spread = 0.0,
    scheduler: _Scheduler = None,
    poll: _Poll = 10,
    jobs: _Jobs = None,
    executor: ExecutorOption = "local",
    output: Annotated[RunsOutput, typer.Option("--output", help=_OUTPUT)] = RunsOutput.TABLE,
    results: _Results = None,
    plot: _Plot = None,
    page: PageOption = None,
) -> None:
    """Compare strategies for submitting a workflow, on a simulated machine.

    In each replication every strategy meets the same queue, and has learned from the same past. The tables show the
    time and the core-hours of each. If stages have several shapes, asa-plan chooses among them; all others, and
    asa-plan:shapes=own, take the first.

    On a simulated centre: `asa compare montage --system hpc2n --cores 28,56,112 --seeds 20`

    With a choice of widths: `asa compare montage --system uppmax --cores 640 --widths 80,160,320,640`

    What an hour sooner costs: the last table, with one more row for each `--price "1 h = 50 core-hours"`

    On a recorded log: `asa compare blast --trace CTC-SP2.swf.gz --cores 112 --no-age-accrues`

    Where half of the others' jobs can shrink and grow: `asa compare montage --backend dmr --option malleable=0.5`
    """
    from asa.cli.progress import run_study
    from asa.studies.compare.study import Comparison
    from asa.studies.compare.study import compare as run_comparison

    _check_files(results, plot, page)
    accrues, whose_rule = age_rule(age_accrues, is_own=is_file(workflow))
    is_chosen = bool(system or trace) or backend != _SIMULATED
    centre = own_centre() if is_file(workflow) and not is_chosen else None

    def simulated(given: Mapping[str, str]) -> Site:
        rules = {"age_accrues": accrues, "poll_s": poll, **_rules(backend, scheduler, given)}
        return _site(backend, system, trace, trace_cores, rules, centre)

    ours, theirs = Given(parameters, options, either).split(workflow, simulated)
    with parameters_meant(workflow):
        site = simulated(theirs)
    make_workflow, counts = workflow_of(workflow, cores, widths, ours, site)
    check_page(page, f"compare-{make_workflow(counts[0]).name}-{site.capabilities.system}")
    comparison = Comparison(
        make_workflow=make_workflow,
        site=site,
        cores=counts,
        strategies=(*_named(strategies, make_workflow(counts[0])), *_at_prices(price or ())),
        seeds=tuple(range(seed, seed + seeds)),
        estimator=estimator,
        history=history,
        spread=spread,
    )
    if strategies is None:
        comparison = _possible(comparison)
    tell_assumed(
        comparison,
        centre=centre.text if centre else "",
        is_own=is_file(workflow) and not is_chosen,
        whose_rule=whose_rule,
    )
    runs = run_study(run_comparison, comparison, executor=executor, jobs=jobs)
    if output is RunsOutput.JSON:
        print_json(_with_frontier(runs))
    elif output is RunsOutput.CSV:
        _print_csv(runs)
    else:
        _print_tables(runs, comparison, is_default=not (is_chosen or centre))
    sys.stdout.flush()
    _write_files(results, plot, page, runs, comparison)
    _refuse_failed(runs)


def _named(strategies: str | None, workflow: Workflow) -> tuple[str, ...]:
    """Name the strategies; if stages have several shapes, add the same plans without a choice of shapes."""
    if strategies is not None:
        return names_in(strategies, "--strategies")
    is_moldable = any(stage.moldable for stage in workflow.stages.values())
    return (*_DEFAULT_STRATEGIES[:-1], *([_OWN_SHAPES] if is_moldable else []), _DEFAULT_STRATEGIES[-1])


def _possible(comparison: Comparison) -> Comparison:
    """Leave out the strategies that cannot run the workflow, and say why."""
    refusals = {name: comparison.refusal_of(name) for name in comparison.strategies}
    for name in filter(refusals.get, refusals):
        write_notice(f"{name} is left out: {refusals[name]}.")
    return replace(comparison, strategies=tuple(name for name, why in refusals.items() if not why))


def _at_prices(prices: Sequence[str]) -> tuple[str, ...]:
    """Name the strategies that plan at the given prices."""
    from asa.studies.compare.frontier import AT_PRICE
    from asa.units import parse_price

    found = []
    for price in prices:
        try:
            price_s = parse_price(price)
        except InputError as error:
            raise InputError(error.message, where="--price", hint=error.hint) from None
        amount = f"{float(f'{3600 / price_s:.6g}'):.9f}".rstrip("0").rstrip(".") if price_s else "0"
        found.append(f"{AT_PRICE}{amount} core-h/h" if amount != "0" else f"{AT_PRICE}{price_s:g}")  # short
    return tuple(dict.fromkeys(found))


def _with_frontier(runs: Sequence[CompareRun]) -> list[dict[str, Any]]:
    """Return all runs as data, each with the price of an hour if its strategy is on the frontier of means."""
    from asa.studies.compare.frontier import frontier_rows
    from asa.studies.compare.table import cells_of

    costs = {(row.cell.cores, row.cell.strategy): row.hour_sooner for row in frontier_rows(cells_of(runs))}
    return [
        {
            **run.as_dict(),
            "on_frontier": (run.cores, run.strategy) in costs,
            "hour_sooner_core_hours": costs.get((run.cores, run.strategy)),
        }
        for run in runs
    ]


def _rules(backend: str, scheduler: str | None, others: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the simulator; a backend other than the default has no settings but its own."""
    if backend != _SIMULATED:
        if scheduler is not None:
            raise InputError(
                "this backend has its own scheduler", where="--backend --scheduler", hint="Give one of them."
            )
        return dict(others)
    of_the_site = {name: others[name] for name in _OF_THE_SITE if name in others}
    of_the_scheduler = {name: value for name, value in others.items() if name not in of_the_site}
    return {**of_the_site, "scheduler": scheduler or "easy", "scheduler_settings": of_the_scheduler}


def _refuse_failed(runs: Sequence[CompareRun]) -> None:
    if failed := [run for run in runs if run.metrics is None]:
        first = failed[0]
        raise RunError(
            f"{len(failed)} of {len(runs)} runs did not complete: {first.reason}",
            where=f"{first.workflow}, {first.cores} cores, {first.strategy}, seed {first.seed}",
            hint="A stage that ran out of its walltime needs a longer one.",
        )


def _site(
    backend: str,
    system: str | None,
    trace: Path | None,
    trace_cores: int | None,
    rules: dict[str, Any],
    centre: OwnCentre | None,
) -> Site:
    from asa.core import plugins

    if system is not None and trace is not None:
        raise InputError(
            "a comparison is on a simulated centre or on a log", where="--system --trace", hint="Give one of them."
        )
    if trace is None and trace_cores is not None:
        raise InputError("needs a log", where="--trace-cores", hint="Give --trace too.")
    make = plugins.load("asa.backends", backend)
    if not hasattr(make, "open"):
        raise InputError(
            f"{backend!r} is not a simulator",
            where="--backend",
            hint=f"Known: {', '.join(_simulators())}.",
        )
    if trace is not None:
        return cast("Site", make(trace=trace, trace_cores=trace_cores, **rules))
    if centre is not None:
        return cast("Site", make(model=centre.model, **rules))
    return cast("Site", make(system or _DEFAULT_SYSTEM, **rules))


def _simulators() -> list[str]:
    """Name the installed backends that can simulate; leave out those that cannot be loaded."""
    from asa.core import plugins

    found = []
    for name in plugins.names("asa.backends"):
        with suppress(InputError):
            found += [name] if hasattr(plugins.load("asa.backends", name), "open") else []
    return found


class _Fixed:
    """A workflow file whose width is fixed: it gives the same workflow for any number of cores."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow

    def __call__(self, cores: int) -> Workflow:  # noqa: ARG002 - see the class
        return self.workflow


def workflow_of(
    given: str, cores: str | None, widths: str | None, parameters: dict[str, str], site: Site
) -> tuple[Callable[[int], Workflow], tuple[int, ...]]:
    """Return a function from peak cores to the named workflow, and the peak cores to compare."""
    from asa.core import plugins
    from asa.spec import load_workflow
    from asa.studies.compare.study import workflow_maker

    if is_file(given):
        for option, value in (("--cores", cores), ("--widths", widths)):
            if value is not None:
                raise InputError(
                    "the cores of each stage are in the workflow file",
                    where=option,
                    hint=f"Leave {option} out.",
                )
        fixed = with_known_run_times(load_workflow(given, parameters), site.capabilities)
        return _Fixed(fixed), (fixed.peak_cores(site.capabilities.cores_per_node, site.capabilities.max_cores),)
    if given not in plugins.names("asa.workflows"):
        raise unknown_workflow(given)
    make = workflow_maker(given)
    if widths is not None:
        if "widths" not in inspect.signature(make).parameters:
            raise InputError(f"{given} has one width at a time", where="--widths", hint="Leave --widths out.")
        make = partial(cast("Callable[..., Workflow]", make), widths=counts_in(widths, "--widths"))
    return make, counts_in(cores or _DEFAULT_CORES.get(site.capabilities.system, "112"))


def _print_tables(runs: Sequence[CompareRun], comparison: Comparison, *, is_default: bool) -> None:
    """Print the tables and notes; `is_default`: whether the centre follows neither from options nor a saved site."""
    from asa.core.console import Console
    from asa.studies.compare.table import render

    console = Console()
    console.print(render(runs, seeds=len(comparison.seeds)))
    for note in comparison.notes:
        if note == comparison.assumed:  # it was printed before the simulation
            continue
        console.print(f"Note: {note}", style="dim", highlight=False, markup=False)
    if (share := _max_waiting(runs)) < _HARDLY:
        text = f"Note: jobs like these hardly wait there, for at most {100 * share:.0f} % of the makespan, so "
        text += "strategies differ little."
        if is_default:
            text += " If they wait longer at your site: asa doctor --save NAME, and asa learn, let it be simulated."
        console.print(text, style="dim", highlight=False, markup=False)


def _max_waiting(runs: Sequence[CompareRun]) -> float:
    """Return the largest share of the makespan that stages wait in the queue, of the means of all strategies."""
    from asa.studies.compare.table import cells_of

    means = [(cell.intervals["twt_s"].mean, cell.intervals["makespan_s"].mean) for cell in cells_of(runs)]
    return max((wait_s / makespan_s for wait_s, makespan_s in means if makespan_s > 0), default=1.0)


def _check_files(results: Path | None, plot: Path | None, page: Path | None) -> None:
    """Before simulating, refuse output files that could not be written."""
    if plot is not None:
        from asa.core.drawing import check_figure_path

        check_figure_path(plot)
    if results is not None and (results.is_dir() or not results.absolute().parent.is_dir()):
        raise InputError("cannot be written", where=f"--results {results}", hint="Name a file in a folder that exists.")
    check_page(page)


def _write_files(
    results: Path | None, plot: Path | None, page: Path | None, runs: Sequence[CompareRun], comparison: Comparison
) -> None:
    from asa.studies.compare.kept import KeptComparison

    of = comparison.seeds
    how = made(Seeds=f"{of[0]} to {of[-1]}", Estimator=_of_estimator(comparison))
    kept = KeptComparison(1, asked(), how, comparison.notes, tuple(runs))
    if results is not None:
        write_to(results, "--results", lambda file: file.write(kept.text()))
    if plot is not None:
        from asa.studies.compare.figures import makespan_bars

        makespan_bars(runs, plot)
        write_notice(f"Figure written to {plot}")
    if page is not None:
        write_page(page, kept.name, kept.page(), of=kept.of)


def _of_estimator(comparison: Comparison) -> str:
    """Name the estimator, and the number of waits that it had learned."""
    learned = "the workflow's own jobs, from one replication to the next: replications are not independent"
    if comparison.history:
        learned = f"the last {comparison.history} jobs before each replication"
    return f"`{comparison.estimator}`, which had learned the waits of {learned}"


def _print_csv(runs: Sequence[CompareRun]) -> None:
    import csv

    rows = [{key: value for key, value in run.as_dict().items() if key != "stages"} for run in runs]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
