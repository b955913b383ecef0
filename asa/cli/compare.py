"""``asa compare``: strategies side by side on a simulated queue."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from asa.cli.asked import ExecutorOption, counts_in, names_in, split_settings
from asa.cli.doctor import given_settings
from asa.errors import InputError, RunError

if TYPE_CHECKING:
    from asa.backend import Site
    from asa.experiment import CompareRun, Comparison
    from asa.workflow import Workflow

__all__ = ["compare"]

_SIMULATED = "simulated"
_OF_THE_SITE = ("grow", "shrink")  # settings that are no scheduler's
_DEFAULT_CORES = {"hpc2n": "28,56,112", "uppmax": "160,320,640"}
_DEFAULT_STRATEGIES = "big-job,per-stage,asa,asa-naive,chained"


def compare(
    workflow: Annotated[str, typer.Argument(help="montage, blast, statistics, or a workflow file (.toml).")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A parameter of the workflow file, as in width=56, or else a setting of the backend or scheduler, as "
            "in malleable=0.5, or what running jobs can do, as in grow=no; may be repeated.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Which simulator: simulated, openccs, bbsched, dmr, or another that `asa list` shows.")
    ] = _SIMULATED,
    system: Annotated[
        str | None,
        typer.Option(help="Simulated centre: hpc2n or uppmax. [default: hpc2n]", show_default=False),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Replay this workload log (SWF, plain or .gz) in place of a centre.", metavar="FILE"),
    ] = None,
    trace_cores: Annotated[
        int | None, typer.Option(help="Processors of the log's machine, if its header does not say.", min=1)
    ] = None,
    cores: Annotated[
        str | None,
        typer.Option(help="Peak core counts, comma-separated. [default: the paper's for the centre, else 112]"),
    ] = None,
    strategies: Annotated[str, typer.Option(help="Which ways of asking, comma-separated; `asa list` shows all.")] = (
        _DEFAULT_STRATEGIES
    ),
    seeds: Annotated[int, typer.Option(help="Runs of each strategy and core count, each at another moment.")] = 20,
    seed: Annotated[
        int, typer.Option(help="Of the first run; the same seed gives the same numbers anywhere.", min=0)
    ] = 0,
    age_accrues: Annotated[
        bool,
        typer.Option(
            "--age-accrues/--no-age-accrues",
            help="Whether a job gains priority while a dependency keeps it back (Slurm: only with ACCRUE_ALWAYS).",
        ),
    ] = True,
    estimator: Annotated[
        str, typer.Option(help="Who predicts: asa, asa-tuned (the paper's), or another that `asa list` shows.")
    ] = "asa",
    history: Annotated[
        int, typer.Option(help="Past jobs of others that the estimator learns before each run; 0: one's own only.")
    ] = 2000,
    spread: Annotated[
        float,
        typer.Option(help="How far real run times stray from expected ones (sigma of their logarithm)."),
    ] = 0.0,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="The machine's scheduler: easy, or another that `asa list` shows. [default: easy, or the backend's]",
            show_default=False,
        ),
    ] = None,
    poll: Annotated[int, typer.Option(help="The client looks at the queue every so many seconds.", min=0)] = 10,
    jobs: Annotated[int | None, typer.Option(help="Processes. [default: the cores there are]", min=1)] = None,
    executor: ExecutorOption = "local",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of all runs instead of tables.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all runs as CSV instead of tables.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw waits and run times a stage, one bar a strategy (.png, .svg).", metavar="FILE"),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--report", help="Write all of it as one page of HTML, with figures and what jobs did.", metavar="FILE.html"
        ),
    ] = None,
) -> None:
    """Compare ways of asking for a workflow's resources, on a simulated queue.

    Every strategy meets the same queue at the same moments. The tables show what each costs in time and in core-hours.

    On a centre: `asa compare montage --system hpc2n --cores 28,56,112 --seeds 20`

    On a log: `asa compare blast --trace CTC-SP2.swf.gz --cores 112 --no-age-accrues`

    Where half of the others' jobs can shrink and grow: `asa compare montage --backend dmr --set malleable=0.5`
    """
    from asa.cli.progress import with_progress
    from asa.experiment import Comparison
    from asa.experiment import compare as run_comparison
    from asa.pool.executors import executor_of

    if seeds < 1:
        raise InputError(f"{seeds} seeds leave nothing to run", where="--seeds", hint="Ask for at least 1.")
    if as_json and as_csv:
        raise InputError("output is either JSON or CSV", where="--json --csv", hint="Give one of them.")
    _check_files(plot, page)
    parameters, others = split_settings(workflow, dict(given_settings(settings)))
    rules: dict[str, Any] = {"age_accrues": age_accrues, "poll_s": poll}
    if backend != _SIMULATED:
        rules |= others
        if scheduler is not None:
            raise InputError("a backend has its scheduler", where="--backend --scheduler", hint="Give one of them.")
    else:
        rules |= {name: others.pop(name) for name in _OF_THE_SITE if name in others}
        rules |= {"scheduler": scheduler or "easy", "scheduler_settings": others}
    site = _site(backend, system, trace, trace_cores, rules)
    make_workflow, counts = _workflow(workflow, cores, parameters, site)
    comparison = Comparison(
        make_workflow=make_workflow,
        site=site,
        cores=counts,
        strategies=names_in(strategies, "--strategies"),
        seeds=tuple(range(seed, seed + seeds)),
        estimator=estimator,
        history=history,
        spread=spread,
    )
    with executor_of(executor, jobs) as elsewhere:
        runs = with_progress(
            lambda on_progress: run_comparison(comparison, jobs=jobs, elsewhere=elsewhere, on_progress=on_progress)
        )
    if as_json:
        _print_json(runs)
    elif as_csv:
        _print_csv(runs)
    else:
        _print_tables(runs, site, seeds)
    _write_files(plot, page, runs, site, comparison)
    if failed := [run for run in runs if run.metrics is None]:
        first = failed[0]
        raise RunError(
            f"{len(failed)} of {len(runs)} runs did not complete: {first.reason}",
            where=f"{first.workflow}, {first.cores} cores, {first.strategy}, seed {first.seed}",
            hint="Give the stages more walltime.",
        )


def _site(backend: str, system: str | None, trace: Path | None, trace_cores: int | None, rules: dict[str, Any]) -> Site:
    from asa import plugins

    if system is not None and trace is not None:
        raise InputError(
            "a comparison runs on a centre or on a log", where="--system --trace", hint="Give one of them."
        )
    if trace is None and trace_cores is not None:
        raise InputError("there is no log for it", where="--trace-cores", hint="Give --trace too.")
    make = plugins.load("asa.backends", backend)
    if not hasattr(make, "open"):
        raise InputError(
            f"{backend!r} is no simulator, in which the same moment comes again and again",
            where="--backend",
            hint=f"Known: {_SIMULATED}, openccs, bbsched, dmr.",
        )
    if trace is not None:
        return cast("Site", make(trace=trace, trace_cores=trace_cores, **rules))
    return cast("Site", make(system or "hpc2n", **rules))


class _Fixed:
    """A workflow that is as wide as it is."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow

    def __call__(self, cores: int) -> Workflow:  # noqa: ARG002 - see the class
        return self.workflow


def _workflow(
    given: str, cores: str | None, parameters: dict[str, str], site: Site
) -> tuple[Callable[[int], Workflow], tuple[int, ...]]:
    from asa import plugins
    from asa.experiment import workflow_maker
    from asa.spec import load_workflow

    if given.endswith(".toml") or "/" in given:
        if cores is not None:
            raise InputError(
                "a workflow file says itself how many cores each stage takes",
                where="--cores",
                hint="Leave --cores out.",
            )
        fixed = load_workflow(given, parameters)
        return _Fixed(fixed), (fixed.peak_cores(site.capabilities.cores_per_node),)
    if given not in plugins.names("asa.workflows"):
        error = plugins.unknown_name("workflow", given, plugins.names("asa.workflows"))
        raise InputError(error.message, where=error.where, hint=f"{error.hint} Or name a .toml file.")
    return workflow_maker(given), counts_in(cores or _DEFAULT_CORES.get(site.capabilities.system, "112"))


def _print_tables(runs: Sequence[CompareRun], site: Site, seeds: int) -> None:
    from rich.console import Console

    from asa.report.comparison import render

    console = Console()
    console.print(render(runs, seeds=seeds))
    for note in site.notes:
        console.print(f"Note: {note}", style="dim", highlight=False, markup=False)


def _check_files(plot: Path | None, page: Path | None) -> None:
    """Refuse before anything is simulated what could not be written."""
    if plot is not None:
        from asa.drawing import check_figure_path

        check_figure_path(plot)
    if page is not None:
        from asa.cli.report import check_folder

        check_folder(page, "--report")


def _write_files(
    plot: Path | None, page: Path | None, runs: Sequence[CompareRun], site: Site, asked: Comparison
) -> None:
    if plot is not None:
        from asa.report.figures import makespan_bars

        makespan_bars(runs, plot)
        sys.stderr.write(f"Figure written to {plot}\n")
    if page is not None:
        _write_page(page, runs, site, asked)


def _write_page(path: Path, runs: Sequence[CompareRun], site: Site, asked: Comparison) -> None:
    from asa import __version__
    from asa.cli.report import write_to
    from asa.report.compared import comparison_page
    from asa.report.page import render

    made = {
        "Command": f"`{shlex.join(['asa', *sys.argv[1:]])}`",
        "Seeds": f"{asked.seeds[0]} to {asked.seeds[-1]}, one estimator (`{asked.estimator}`) over them in this order",
        "asa": __version__,
    }
    text = render(comparison_page(runs, notes=site.notes, made=made))
    write_to(path, "--report", lambda file: file.write(text))


def _print_json(runs: Sequence[CompareRun]) -> None:
    import json

    sys.stdout.write(json.dumps([run.as_dict() for run in runs], indent=1) + "\n")


def _print_csv(runs: Sequence[CompareRun]) -> None:
    import csv

    rows = [{key: value for key, value in run.as_dict().items() if key != "stages"} for run in runs]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
