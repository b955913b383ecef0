"""``asa worth``: whether asa helps, for the user's own workflow and site."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.asked import ExecutorOption, names_in
from asa.cli.compare import workflow_of
from asa.cli.completing import complete_workflows
from asa.cli.given import ParamsOption, given_parameters
from asa.cli.report import PageOption, asked, check_page, made, write_page
from asa.cli.twin import AgeOption, YouOption, agreement_table, is_rough, new_twin, trust
from asa.core.documents import print_json
from asa.core.options import Output, OutputOption
from asa.errors import InputError
from asa.units import MAX_PROCESSES, MAX_RUNS, MAX_SEED

if TYPE_CHECKING:
    from asa.studies.compare.study import CompareRun, Comparison
    from asa.studies.worth import WorthVerdict
    from asa.workflow import Workflow

_MOST_MOMENTS = 100


def worth(
    workflow: Annotated[
        str,
        typer.Argument(
            help="A workflow file (.toml), or montage, blast, statistics.", autocompletion=complete_workflows
        ),
    ],
    twin: Annotated[
        Path | None, typer.Option(help="A twin of the site, made by `asa twin`.", metavar="FOLDER", show_default=False)
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Past jobs of the site, in place of a twin: output of `sacct -P`, an SWF log, or the folder made by "
            "`asa twin --script`.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    parameters: ParamsOption = None,
    cores: Annotated[
        str | None,
        typer.Option(
            help="Cores of the widest stage of montage, blast or statistics. [default: 112]", show_default=False
        ),
    ] = None,
    moments: Annotated[
        int,
        typer.Option(
            help="Number of times, spread over the last months, at which the workflow is started.", min=2, max=MAX_RUNS
        ),
    ] = _MOST_MOMENTS,
    strategies: Annotated[
        str | None,
        typer.Option(help="Strategies to compare, comma-separated. [default: all that make sense]", show_default=False),
    ] = None,
    estimator: Annotated[str, typer.Option(help="What predicts waits.")] = "asa-queue",
    partition: Annotated[str, typer.Option(help="Partition of stages that name none. [default: the site's]")] = "",
    user: Annotated[
        str,
        typer.Option(help="Whose fair share the jobs have: a user's number in the twin, `typical`, or `new`."),
    ] = "",
    you: YouOption = None,
    age_accrues: AgeOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.", min=0, max=MAX_SEED)] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(help="Number of processes. [default: the number of cores here]", min=1, max=MAX_PROCESSES),
    ] = None,
    executor: ExecutorOption = "local",
    output: OutputOption = Output.TABLE,
    page: PageOption = None,
) -> None:
    """Find out whether asa would help this workflow here: a verdict, and the figures behind it.

    Strategies are simulated in a twin of the site, from many times of its last months: one job for all stages; a job
    per stage, submitted when the last one ends; all jobs at once, chained by dependencies; and those of asa.

    On a cluster: `asa worth flow.toml`

    Elsewhere: `asa worth flow.toml --twin site.twin`, or on a public log: `asa worth montage --history CTC-SP2.swf.gz`

    Exit codes: 0 a verdict, whichever it is; 1 nothing completed, or the batch system does not answer; 2 the input
    cannot be used.
    """
    from asa.cli.progress import run_study
    from asa.core import plugins
    from asa.studies.compare.study import Comparison, compare
    from asa.studies.plain import as_plain
    from asa.studies.worth import judged

    check_page(page)
    named = names_in(strategies, "--strategies") if strategies else None
    _check(twin, history, you, named)
    make: Any = plugins.load("asa.backends", "twin")
    known: Any = twin if twin is not None else new_twin(history, you, age_accrues).twin
    rule = {} if age_accrues is None else {"age_accrues": age_accrues}
    site: Any = make(twin=known, partition=partition, user=user, **rule)
    make_workflow, counts = workflow_of(workflow, cores, None, dict(given_parameters(parameters)), site)
    if len(counts) > 1:
        raise InputError("a verdict is for one number of cores", where="--cores", hint="Give one number.")
    flow = make_workflow(counts[0])
    _refuse_impossible(flow, site)
    site.arrive_evenly(moments, seed)
    comparison = Comparison(
        make_workflow=make_workflow,
        site=site,
        cores=counts,
        strategies=named or _ways(flow),
        seeds=tuple(range(moments)),
        estimator=estimator,
    )
    runs = run_study(compare, comparison, executor=executor, jobs=jobs)
    about = site.twin.about
    verdict = judged(flow, runs, is_rough=is_rough(about))
    if output is Output.JSON:
        twin_of = {"agreement": [asdict(one) for one in about.agreement], "assumed": about.assumed}
        document = {"verdict": verdict.as_dict(), "twin": twin_of, "runs": [run.as_dict() for run in runs]}
        print_json(as_plain(document))
    else:
        _tell(verdict, runs, about, comparison)
    if page is not None:
        _write(page, verdict, runs, site, comparison)


def _check(twin: Path | None, history: Path | None, you: str | None, named: Sequence[str] | None) -> None:
    """Refuse what cannot be answered, before anything is run."""
    from asa.studies.worth import OURS, SIMPLE

    if twin is not None and history is not None:
        raise InputError("is made of past jobs already", where="--twin", hint="Give --twin or --history.")
    if twin is not None and you is not None:
        raise InputError("a twin has no user names", where="--you", hint="Give --user and a number of the twin.")
    for names, words in ((OURS, "strategy of asa"), (SIMPLE, "strategy without asa")):
        if named is not None and not {name.partition(":")[0] for name in named} & set(names):
            raise InputError(
                f"there is no {words} among them", where="--strategies", hint=f"Add one of {', '.join(names)}."
            )


def _refuse_impossible(flow: Workflow, site: Any) -> None:
    """Refuse a stage that no job could run there, before anything is tried out."""
    from asa.backend import JobSpec

    for stage in flow.stages.values():
        cores = stage.cores_on(site.capabilities.cores_per_node)
        job = JobSpec(stage.name, cores, stage.walltime_s, partition=stage.partition, local=stage.local)
        if not stage.moldable and (lack := site.capabilities.impossible(job)):
            raise InputError(lack, where=f"stage {stage.name!r}", hint="Ask for what the site has.")


def _ways(flow: Workflow) -> tuple[str, ...]:
    """Name the ways of asking that a workflow can go."""
    one_job = len(flow.stages) == 1 or not any(stage.has_unknown_last_job for stage in flow.stages.values())
    return ("per-stage", "chained", *(["big-job"] if one_job else []), "asa", "asa-plan")


def _tell(verdict: WorthVerdict, runs: Sequence[CompareRun], about: Any, comparison: Comparison) -> None:
    from asa.studies.compare.table import render
    from asa.studies.present import console

    screen = console()
    screen.print(verdict.sentences[0], style="bold", markup=False)
    for words in verdict.sentences[1:]:
        screen.print(words, markup=False)
    screen.print()
    screen.print(render(runs, seeds=len(comparison.seeds)))
    screen.print(agreement_table(about))
    screen.print(trust(about), style="dim", markup=False)
    for line in about.assumed:
        screen.print(f"Assumed: {line}", style="dim", markup=False)
    for line in _of_workflow(comparison):
        screen.print(f"Note: {line}", style="dim", markup=False)


def _of_workflow(comparison: Comparison) -> Sequence[str]:
    """Give what is to be known of the workflow in its twin; of the twin all is reported."""
    return comparison.notes[len(comparison.site.notes) :]


def _write(page: Path, verdict: WorthVerdict, runs: Sequence[CompareRun], site: Any, comparison: Comparison) -> None:
    from asa.studies.compare.page import comparison_page

    about = site.twin.about
    notes = [trust(about).rstrip("."), *(f"assumed: {line}" for line in about.assumed), *_of_workflow(comparison)]
    of = comparison.seeds
    how = made(Moments=f"seeds {of[0]} to {of[-1]}", Estimator=f"`{comparison.estimator}`")
    whole = comparison_page(runs, notes=notes, made=how)
    whole = replace(
        whole,
        title=f"Is it worth it? {whole.title.partition(': ')[0]}",
        summary=[*verdict.sentences, *whole.summary[1:]],
    )
    write_page(page, f"worth-{runs[0].workflow}-{runs[0].system}", whole, of=asked())
    sys.stderr.write(f"Page written to {page}\n")
