"""``asa worth``: says whether asa helps with the user's own workflow at the user's own site."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.asked import ExecutorOption, names_in
from asa.cli.compare import workflow_of
from asa.cli.completing import complete_workflows
from asa.cli.given import ParamsOption, given_parameters
from asa.cli.report import PageOption, asked, check_page, made, write_page
from asa.cli.terminal import write_notice
from asa.cli.twin import AgeOption, YouOption, agreement_table, is_rough, new_twin, trust
from asa.core.documents import print_json
from asa.core.options import Output, OutputOption
from asa.errors import InputError
from asa.units import MAX_PROCESSES, MAX_RUNS, MAX_SEED

if TYPE_CHECKING:
    from asa.shapes import Scaling
    from asa.studies.compare.study import CompareRun, Comparison
    from asa.studies.widths import AssumedWidths
    from asa.studies.worth import WorthVerdict
    from asa.workflow import Stage, Workflow

_MOST_MOMENTS = 100
_CHOOSES, _IN_OWN_SHAPES = "asa-plan", "asa-plan:shapes=own"
_NONE = "none"


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
    widths: Annotated[
        str | None,
        typer.Option(
            help="What if parallel stages of one width might have others: these, as 7,14,28 or 7..112. [default: "
            "narrower ones, down to a sixteenth]",
            show_default=False,
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            help="The law of their run times there, as amdahl=0.95; `none` leaves that question out. [default: perfect "
            "scaling, then one by which the widest runs half as fast as that]",
            show_default=False,
        ),
    ] = None,
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
    per stage, submitted when the last one ends; all jobs at once, chained by dependencies; and those of asa. If each
    stage has one width, the answer also says whether several widths would change it.

    On a cluster: `asa worth flow.toml`

    Elsewhere: `asa worth flow.toml --twin site.twin`, or on a public log: `asa worth montage --history CTC-SP2.swf.gz`

    Exit codes: 0 a verdict, whichever it is; 1 nothing completed, or the batch system does not answer; 2 the input
    cannot be used.
    """
    from asa.cli.progress import run_study
    from asa.core import plugins
    from asa.studies.compare.study import Comparison, compare
    from asa.studies.plain import as_plain
    from asa.studies.worth import Alternatives, judged

    check_page(page)
    named = names_in(strategies, "--strategies") if strategies else None
    _check(twin, history, you, named)
    law, others = _law(scaling), _widths(widths, scaling)
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

    def is_possible(stage: Stage) -> bool:
        return not _lack(stage, site)

    ways = named or _ways(flow)
    asks = scaling != _NONE and _CHOOSES in ways
    assumed_of = _assumed(flow, is_possible, law, others) if asks else []
    alternatives = Alternatives.of(flow, ways, assumed_of, is_possible)
    comparison = Comparison(
        make_workflow=alternatives,
        site=site,
        cores=tuple(range(len(alternatives.workflows))),
        strategies=ways,
        seeds=tuple(range(moments)),
        estimator=estimator,
        only=alternatives.pairs,
    )
    came = run_study(compare, comparison, executor=executor, jobs=jobs)
    about = site.twin.about
    runs, assumed = alternatives.sorted_out(came, counts[0])
    verdict = judged(flow, runs, is_rough=is_rough(about), assumed=assumed)
    if output is Output.JSON:
        twin_of = {"agreement": [asdict(agreement) for agreement in about.agreement], "assumed": about.assumed}
        document = {"verdict": verdict.as_dict(), "twin": twin_of, "runs": [run.as_dict() for run in runs]}
        print_json(as_plain(document))
    else:
        _tell(verdict, runs, about, comparison)
    if page is not None:
        _write(page, verdict, runs, site, comparison)


def _assumed(
    flow: Workflow, is_possible: Callable[[Stage], bool], law: Scaling | None, widths: tuple[int, ...]
) -> list[AssumedWidths]:
    """Return the workflow with several widths, once for each assumed law."""
    from asa.studies.widths import assumed_widths, usual_laws

    laws = [law] if law is not None else usual_laws(flow)
    assumptions = [assumed_widths(flow, law, widths, is_possible) for law in laws]
    if assumptions[0] is None and (law is not None or widths):
        raise InputError(
            "there is no stage for which other widths can be assumed",
            where="--scaling" if law is not None else "--widths",
            hint="Stages of several cores or nodes, but one shape, can have them.",
        )
    return [widths for widths in assumptions if widths is not None]


def _law(text: str | None) -> Scaling | None:
    from asa.cli.one_command import law_in

    if text is None or text == _NONE:
        return None
    law = law_in(text)
    if law.min_points > 1 or law.law not in ("amdahl", "downey"):
        raise InputError(
            f"{text!r} says nothing of other widths", where="--scaling", hint="Give a parameter: amdahl=0.95."
        )
    return law


def _widths(text: str | None, scaling: str | None) -> tuple[int, ...]:
    from asa.cli.asked import counts_in
    from asa.spec.moldable import several

    if text is None:
        return ()
    if scaling == _NONE:
        raise InputError("is for a question that is left out", where="--widths", hint="Give a law with --scaling.")
    return tuple(several(text)) if ".." in text else counts_in(text, "--widths")


def _check(twin: Path | None, history: Path | None, you: str | None, named: Sequence[str] | None) -> None:
    """Refuse impossible requests, before anything is simulated."""
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
    """Refuse a stage that no job could run there, before anything is simulated."""
    for stage in flow.stages.values():
        if not stage.moldable and (lack := _lack(stage, site)):
            raise InputError(lack, where=f"stage {stage.name!r}", hint="Ask for what the site has.")


def _lack(stage: Stage, site: Any) -> str:
    """Return why no job could run a stage at a site; empty if one can."""
    from asa.backend import JobSpec

    cores = stage.cores_on(site.capabilities.cores_per_node)
    job = JobSpec(stage.name, cores, stage.walltime_s, partition=stage.partition, local=stage.local)
    return str(site.capabilities.impossible(job) or "")


def _ways(flow: Workflow) -> tuple[str, ...]:
    """Name the strategies that can run a workflow."""
    one_job = len(flow.stages) == 1 or not any(stage.has_unknown_last_job for stage in flow.stages.values())
    is_moldable = any(stage.moldable for stage in flow.stages.values())
    plans = (*([_IN_OWN_SHAPES] if is_moldable else []), _CHOOSES)
    return ("per-stage", "chained", *(["big-job"] if one_job else []), "asa", *plans)


def _tell(verdict: WorthVerdict, runs: Sequence[CompareRun], about: Any, comparison: Comparison) -> None:
    from asa.studies.compare.table import render
    from asa.studies.present import console

    screen = console()
    screen.print(verdict.sentences[0], style="bold", markup=False)
    for words in (*verdict.sentences[1:], *([verdict.widths.sentence] if verdict.widths else [])):
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
    """Return the notes on the workflow in its twin; those on the twin are printed elsewhere."""
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
        summary=[*verdict.sentences, *([verdict.widths.sentence] if verdict.widths else []), *whole.summary[1:]],
    )
    write_page(page, f"worth-{runs[0].workflow}-{runs[0].system}", whole, of=asked())
    write_notice(f"Page written to {page}")
