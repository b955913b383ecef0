"""``asa campaign``: the paper's evaluation done anew, and every way of asking under every scheduler."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from asa.cli.asked import ExecutorOption, counts_in, names_in

if TYPE_CHECKING:
    from rich.console import RenderableType

    from asa.report.page import Page

__all__ = ["app"]

_ABOUT = "Whole evaluations, resumable: the paper's, and every way of asking under every scheduler."

app = typer.Typer(help=_ABOUT, no_args_is_help=True)


class How(StrEnum):
    """How workflows are handed over."""

    BOTH = "both"
    SEQUENTIAL = "sequential"
    CONCURRENT = "concurrent"


_MODES: dict[How, tuple[Literal["sequential", "concurrent"], ...]] = {
    How.BOTH: ("sequential", "concurrent"),
    How.SEQUENTIAL: ("sequential",),
    How.CONCURRENT: ("concurrent",),
}

_Seeds = Annotated[int, typer.Option(help="Runs of each, at as many moments of the queue.", min=1)]
_Seed = Annotated[
    int, typer.Option(help="Of the first run; the same seed gives the same numbers anywhere.", min=0, show_default=True)
]
_Results = Annotated[
    Path | None,
    typer.Option(help="Keep what is done here, and go on from there after an interruption.", metavar="FILE.jsonl"),
]
_Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="Processes. [default: the cores there are]", min=1)]
_Page = Annotated[
    Path | None,
    typer.Option(
        "--report", help="Write it as one page of HTML, with figures, which stands alone.", metavar="FILE.html"
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print everything that came out as JSON, and no tables.")]


@app.callback()
def _group() -> None:
    """Whole evaluations, resumable: the paper's, and every way of asking under every scheduler."""


@app.command("paper")
def paper(
    seeds: _Seeds = 20,
    seed: _Seed = 0,
    estimator: Annotated[
        str, typer.Option(help="Who predicts: asa-tuned is the paper's; or another that `asa list` shows.")
    ] = "asa-tuned",
    history: Annotated[
        int, typer.Option(help="Past jobs of others that it learns before each run; the paper's learns none.", min=0)
    ] = 0,
    age_accrues: Annotated[
        bool,
        typer.Option(
            "--age-accrues/--no-age-accrues",
            help="Whether a job gains priority while a dependency keeps it back, which the paper's results need.",
        ),
    ] = True,
    mode: Annotated[
        How, typer.Option(help="Whether a workflow runs alone in the queue, or three side by side.")
    ] = How.BOTH,
    results: _Results = None,
    jobs: _Jobs = None,
    executor: ExecutorOption = "local",
    page: _Page = None,
    as_json: _Json = False,
) -> None:
    """Do the ASA paper's evaluation anew: Tables 1 and 2, Figs 5 to 9, each figure beside the paper's.

    Each has a verdict, by a rule that is printed below: as the paper, the same order, or different.

    As in: `asa campaign paper --results paper.jsonl`
    """
    from asa.campaign.paper import Campaign, conclude, run_campaign
    from asa.cli.progress import with_progress
    from asa.pool.executors import executor_of

    _check_page(page)
    campaign = Campaign(seeds, seed, estimator, history, age_accrues, _MODES[mode])
    with executor_of(executor, jobs) as elsewhere:
        outcomes = with_progress(
            lambda on_progress: run_campaign(campaign, results, jobs=jobs, elsewhere=elsewhere, on_progress=on_progress)
        )
    told = conclude(campaign, outcomes)
    if page is not None:
        from asa.report.campaign import paper_page

        _write_page(page, paper_page(told, made=_made(seed, seeds, estimator)))
    if as_json:
        _print_json(told.as_dict())
        return
    from asa.campaign.tables import of_paper

    _print(of_paper(told))


@app.command("schedulers")
def schedulers(
    systems: Annotated[
        str | None,
        typer.Option(
            "--systems",
            help="Simulated centres, comma-separated: hpc2n, uppmax. [default: uppmax, without a log]",
            show_default=False,
        ),
    ] = None,
    traces: Annotated[
        list[Path] | None,
        typer.Option("--trace", help="Workload log (SWF, plain or .gz); may be repeated.", metavar="FILE"),
    ] = None,
    schedulers: Annotated[
        str | None,
        typer.Option(
            help="Which, comma-separated, each with what is set of it behind colons: wfp, easy:age_accrues=no. "
            "[default: all nine]",
            show_default=False,
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            help="Which, comma-separated; big-job and per-stage run anyway. [default: seven]", show_default=False
        ),
    ] = None,
    workflows: Annotated[str, typer.Option(help="Which, comma-separated.")] = "montage,blast,statistics,graph",
    cores: Annotated[
        str | None,
        typer.Option(
            help="Peak sizes, comma-separated. [default: the largest that fits each machine twice]", show_default=False
        ),
    ] = None,
    seeds: _Seeds = 5,
    seed: _Seed = 0,
    estimator: Annotated[str, typer.Option(help="Who predicts waits; `asa list` shows all.")] = "asa",
    history: Annotated[int, typer.Option(help="Past jobs of others that it learns before each run.", min=0)] = 2000,
    window: Annotated[
        str, typer.Option(help="Others that come up to so long after the client are followed, twice as long.")
    ] = "12h",
    results: _Results = None,
    jobs: _Jobs = None,
    executor: ExecutorOption = "local",
    page: _Page = None,
    as_json: _Json = False,
) -> None:
    """Compare every way of asking under every scheduler, and see what each does to everybody else.

    On a centre: `asa campaign schedulers --systems uppmax --seeds 10 --results schedulers.jsonl`

    On a log: `asa campaign schedulers --trace KTH-SP2.swf.gz --schedulers easy,wfp --workflows montage,graph`
    """
    from asa.campaign.schedulers import SCHEDULERS, STRATEGIES, Campaign, conclude, run_campaign
    from asa.cli.progress import with_progress
    from asa.pool.executors import executor_of
    from asa.units import parse_duration

    _check_page(page)
    logs = tuple(traces or ())
    campaign = Campaign(
        systems=() if systems is None and logs else names_in(systems or "uppmax", "--systems"),
        traces=logs,
        schedulers=SCHEDULERS if schedulers is None else names_in(schedulers, "--schedulers"),
        strategies=STRATEGIES if strategies is None else names_in(strategies, "--strategies"),
        workflows=names_in(workflows, "--workflows"),
        cores=counts_in(cores),
        seeds=seeds,
        seed=seed,
        estimator=estimator,
        history=history,
        window_s=parse_duration(window),
    )
    with executor_of(executor, jobs) as elsewhere:
        trials, left_out = with_progress(
            lambda on_progress: run_campaign(campaign, results, jobs=jobs, elsewhere=elsewhere, on_progress=on_progress)
        )
    told = conclude(campaign, trials, left_out)
    if page is not None:
        from asa.report.campaign import schedulers_page

        _write_page(page, schedulers_page(told, made=_made(seed, seeds, estimator)))
    if as_json:
        _print_json(told.as_dict())
        return
    from asa.campaign.tables import of_schedulers

    _print(of_schedulers(told))


def _check_page(path: Path | None) -> None:
    if path is not None:
        from asa.cli.report import check_folder

        check_folder(path, "--report")


def _write_page(path: Path, page: Page) -> None:
    from asa.cli.report import write_to
    from asa.report.page import render

    text = render(page)
    write_to(path, "--report", lambda file: file.write(text))


def _made(seed: int, seeds: int, estimator: str) -> dict[str, str]:
    """Say how results were made, so that they can be made again."""
    from asa import __version__

    return {
        "Command": f"`{shlex.join(['asa', *sys.argv[1:]])}`",
        "Seeds": f"{seed} to {seed + seeds - 1}",
        "Estimator": estimator,
        "asa": __version__,
    }


def _print_json(told: dict[str, Any]) -> None:
    import json

    sys.stdout.write(json.dumps(told, indent=1) + "\n")


def _print(tables: RenderableType) -> None:
    from rich.console import Console

    Console(highlight=False).print(tables)
