"""``asa campaign``: repeats the paper's evaluation, and compares every strategy under every scheduler."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from asa.cli.asked import EstimatorOption, ExecutorOption, JobsOption, counts_in, names_in
from asa.cli.progress import print_found, run_study
from asa.cli.report import PageOption, check_page, made, write_page
from asa.core.options import Output, OutputOption
from asa.units import MAX_JOBS, MAX_RUNS, MAX_SEED

app = typer.Typer(
    help="Whole evaluations, resumable: the paper's, and every strategy under every scheduler.", no_args_is_help=True
)


class CampaignWay(StrEnum):
    """The way in which workflows are submitted."""

    BOTH = "both"
    SEQUENTIAL = "sequential"
    CONCURRENT = "concurrent"


_MODES: dict[CampaignWay, tuple[Literal["sequential", "concurrent"], ...]] = {
    CampaignWay.BOTH: ("sequential", "concurrent"),
    CampaignWay.SEQUENTIAL: ("sequential",),
    CampaignWay.CONCURRENT: ("concurrent",),
}


class WaitsOf(StrEnum):
    """The table of the paper whose waits the simulated centres have."""

    TABLE_1 = "table-1"
    TABLE_2 = "table-2"


_Seeds = Annotated[int, typer.Option(help="Number of replications of each run.", min=1, max=MAX_RUNS)]
_Seed = Annotated[
    int,
    typer.Option(
        help="Seed of the first replication; the same seed gives the same results on any machine.",
        min=0,
        max=MAX_SEED,
        show_default=True,
    ),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option(
        help="Write results to this file; the same command continues from it after an interruption.",
        metavar="FILE.jsonl",
    ),
]
WorkflowsOption = Annotated[str, typer.Option(help="Workflows, comma-separated.")]
PastJobsOption = Annotated[
    int, typer.Option(help="Learn the waits of so many past jobs before each run.", min=0, max=MAX_JOBS)
]
_Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategies",
        help="Strategies, comma-separated; big-job and per-stage are always included. [default: seven]",
        show_default=False,
    ),
]
_Systems = Annotated[
    str | None,
    typer.Option(
        "--systems",
        help="Simulated centres, comma-separated: hpc2n, uppmax, or with -table2 behind it. "
        "[default: uppmax, without a log]",
        show_default=False,
    ),
]
_Traces = Annotated[
    list[Path] | None,
    typer.Option("--trace", help="Workload log (SWF, plain or .gz); may be repeated.", metavar="FILE"),
]
_Schedulers = Annotated[
    str | None,
    typer.Option(
        help="Which, comma-separated, each with what is set of it behind colons: wfp, easy:age_accrues=no. "
        "[default: all nine]",
        show_default=False,
    ),
]
_Cores = Annotated[
    str | None,
    typer.Option(
        help="Cores of the widest stage, comma-separated. [default: the largest that fits each machine twice]",
        show_default=False,
    ),
]
_Window = Annotated[
    str, typer.Option(help="Others that come up to so long after the client are followed, twice as long.")
]


@app.command("paper")
def paper(
    seeds: _Seeds = 20,
    seed: _Seed = 0,
    estimator: Annotated[
        str, typer.Option(help="What predicts waits: asa-tuned is the paper's; or another that `asa list` shows.")
    ] = "asa-tuned",
    history: Annotated[
        int,
        typer.Option(
            help="Learn the waits of so many past jobs before each run; in the paper none.", min=0, max=MAX_JOBS
        ),
    ] = 0,
    age_accrues: Annotated[
        bool,
        typer.Option(
            "--age-accrues/--no-age-accrues",
            help="Whether jobs gain priority while they wait for a dependency, which the paper's results need.",
        ),
    ] = True,
    mode: Annotated[
        CampaignWay, typer.Option(help="Whether one workflow runs at a time, or three side by side.")
    ] = CampaignWay.BOTH,
    waits: Annotated[
        WaitsOf,
        typer.Option(help="Table of the paper whose waits the centres have: Table 2's are up to 30 times longer."),
    ] = WaitsOf.TABLE_1,
    results: ResultsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = "local",
    page: PageOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Repeat the evaluation of the ASA paper: Tables 1 and 2, Figs 5 to 9, each figure compared with the paper's.

    Each gets a verdict (as in the paper, same order, or different) by a rule that is printed below.

    Example: `asa campaign paper --results paper.jsonl`
    """
    from asa.studies.paper.findings import conclude
    from asa.studies.paper.study import PaperCampaign, run_campaign
    from asa.studies.tables import of_paper

    name = "paper" if waits is WaitsOf.TABLE_1 else f"paper-{waits}"
    check_page(page, name)
    campaign = PaperCampaign(seeds, seed, estimator, history, age_accrues, _MODES[mode], waits.value)
    outcomes = run_study(run_campaign, campaign, results, executor=executor, jobs=jobs, kept=results)
    conclusions = conclude(campaign, outcomes)
    print_found(conclusions, of_paper, as_json=output is Output.JSON)
    if page is not None:
        from asa.studies.paper.page import paper_page, workflow_pages

        how = _made(seed, seeds, estimator) | made(Waits=f"Table {waits.value[-1]}'s")
        write_page(page, name, paper_page(conclusions, made=how), lambda: workflow_pages(conclusions, made=how))


@app.command("schedulers")
def schedulers(
    systems: _Systems = None,
    traces: _Traces = None,
    schedulers: _Schedulers = None,
    strategies: _Strategies = None,
    workflows: WorkflowsOption = "montage,blast,statistics,graph",
    cores: _Cores = None,
    seeds: _Seeds = 5,
    seed: _Seed = 0,
    estimator: EstimatorOption = "asa",
    history: PastJobsOption = 2000,
    window: _Window = "12h",
    results: ResultsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = "local",
    page: PageOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare every strategy under every scheduler, and what each costs other users.

    On a simulated centre: `asa campaign schedulers --systems uppmax --seeds 10 --results schedulers.jsonl`

    On a recorded log: `asa campaign schedulers --trace KTH-SP2.swf.gz --schedulers easy,wfp --workflows montage,graph`
    """
    from asa.studies.schedulers.study import SCHEDULERS, STRATEGIES, SchedulerCampaign, conclude, run_campaign
    from asa.studies.tables import of_schedulers
    from asa.units import parse_duration

    check_page(page, "schedulers")
    logs = tuple(traces or ())
    campaign = SchedulerCampaign(
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
    trials, left_out = run_study(run_campaign, campaign, results, executor=executor, jobs=jobs, kept=results)
    conclusions = conclude(campaign, trials, left_out)
    print_found(conclusions, of_schedulers, as_json=output is Output.JSON)
    if page is not None:
        from asa.studies.schedulers.page import scheduler_pages, schedulers_page

        how = _made(seed, seeds, estimator)
        write_page(
            page, "schedulers", schedulers_page(conclusions, made=how), lambda: scheduler_pages(conclusions, made=how)
        )


def _made(seed: int, seeds: int, estimator: str) -> dict[str, str]:
    return made(Seeds=f"{seed} to {seed + seeds - 1}", Estimator=estimator)
