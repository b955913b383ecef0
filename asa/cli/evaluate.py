"""``asa evaluate``: measures how well estimators would have predicted the waits of a log."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.asked import JobsOption, names_in
from asa.cli.report import PageOption, check_page, made, write_page
from asa.cli.terminal import write_notice
from asa.core.documents import print_json
from asa.core.files import in_words
from asa.core.options import Output, OutputOption
from asa.core.safe import writing_text
from asa.errors import AsaError, InputError
from asa.units import MAX_JOBS, MAX_SEED

if TYPE_CHECKING:
    from asa.history import JobHistory
    from asa.studies.accuracy.scores import Score
    from asa.studies.accuracy.start_estimates import StartEstimates

_CHOOSERS = ("asa", "asa-queue", "queue", "median", "last")  # estimators for --choices, if none are named
MAX_TIMES = 10_000  # per log, the number of times at which jobs are simulated
_COURSES = 10  # of waits, drawn as in Fig. 5
_SMALL = 50_000  # with fewer predictions, more processes take longer to start than they save


def evaluate(
    traces: Annotated[
        list[Path],
        typer.Argument(
            help="Job histories (SWF, `sacct -P`), or CSV files of a scheduler's estimated and real starts.",
            metavar="TRACE...",
        ),
    ],
    estimators: Annotated[
        str | None,
        typer.Option(
            help="Estimators, comma-separated. [default: all but those that simulate the queue, or lack a package]",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        bool,
        typer.Option("--queue", help="Also evaluate estimators that simulate the visible queue, which takes long."),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            help="Also give scores by `geometry` (cores, walltime, partition).", metavar="geometry", show_default=False
        ),
    ] = None,
    choices: Annotated[
        bool,
        typer.Option(
            "--choices",
            help="Instead, evaluate choices of a width: which one is predicted to end first, and which one does.",
        ),
    ] = False,
    times: Annotated[
        int, typer.Option(help="With --choices: number of times in each log.", min=2, max=MAX_TIMES)
    ] = 200,
    limit: Annotated[
        int | None, typer.Option(help="Use only the first N jobs of each log.", min=1, max=MAX_JOBS)
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the estimators; the same seed gives the same results on any machine.", min=0, max=MAX_SEED
        ),
    ] = 0,
    jobs: JobsOption = None,
    output: OutputOption = Output.TABLE,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write all scores to this file.", metavar="FILE")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw error and coverage over time (.png, .svg).", metavar="FILE"),
    ] = None,
    page: PageOption = None,
) -> None:
    """Measure how well estimators would have predicted the waits of a log.

    Each job is predicted when it is submitted, only from what was known then: the wait of an earlier job is learned
    when that job starts. So the results are those that a user would have had.

    Example: `asa evaluate KTH-SP2.swf.gz CTC-SP2.swf.gz --report accuracy.html`

    With `--choices`, jobs of several widths are simulated among the log's jobs: how much later the width chosen by
    predictions ends than the best one, and than the one that is best on average.

    For a scheduler's own estimates: `asa evaluate starts.csv`, with the columns true_start_time and
    estimate_start_time.
    """
    from asa.cli.progress import with_progress
    from asa.studies.accuracy.start_estimates import score_start_estimates
    from asa.studies.accuracy.study import evaluate as run_evaluation
    from asa.studies.accuracy.study import installed

    _check_asked(by)
    names = None if estimators is None else names_in(estimators, "--estimators")
    if choices:
        _refuse({"--by": by, "--csv": csv_file, "--plot": plot, "--report": page})
        _evaluate_choices(traces, names, limit, (times, seed, jobs), as_json=output is Output.JSON)
        return
    _check_outputs(plot, csv_file, page)
    failures: list[AsaError] = []
    makers = (
        {} if names is None else installed(names, on_failure=failures.append)
    )  # report a misspelt name before reading logs
    histories, estimates = _read(traces, limit)
    if plot is not None and not histories:
        raise InputError(
            "there is nothing over time to draw of a scheduler's estimates", where="--plot", hint="Leave it out."
        )
    scores: list[Score] = []
    if histories:
        makers = makers or installed(queue=queue, on_failure=failures.append)
        predictions = sum(map(len, histories.values())) * len(makers)
        processes = jobs or (1 if predictions < _SMALL else None)
        scores = with_progress(
            lambda on_progress: run_evaluation(
                histories,
                makers,
                seed=seed,
                by_geometry=by is not None,
                jobs=processes,
                on_progress=lambda done, of: on_progress("predicting waits", done, of),
                on_failure=failures.append,
            )
        )
    scores += [score_start_estimates(starts, trace=trace) for trace, starts in estimates.items()]
    order = {str(path): index for index, path in enumerate(traces)}
    scores.sort(key=lambda score: order[score.trace])
    _print(scores, histories, estimates, limit, as_json=output is Output.JSON)
    for failure in failures:
        write_notice(f"asa: failed: {failure}")
    if plot is not None:
        from asa.studies.accuracy.table import draw

        draw(scores, plot)
        write_notice(f"Figure written to {plot}")
    if csv_file is not None:
        _write_csv(scores, csv_file)
    if page is not None:
        _write_page(page, scores, _oddities(histories, estimates), seed, limit)
    if failures:
        raise typer.Exit(1)


def _refuse(options: Mapping[str, object]) -> None:
    for option, given in options.items():
        if given is not None:
            raise InputError("does not go with --choices", where=option, hint="Leave it or --choices out.")


def _evaluate_choices(
    traces: Sequence[Path],
    names: Sequence[str] | None,
    limit: int | None,
    drawn: tuple[int, int, int | None],
    *,
    as_json: bool,
) -> None:
    """Measure how good choices of widths by predictions are."""
    from asa.cli.progress import print_found, with_progress
    from asa.core import plugins
    from asa.studies.accuracy.study import installed

    makers = installed(names or _CHOOSERS)
    histories, estimates = _read(traces, limit)
    if estimates:
        where = next(iter(estimates))
        raise InputError("has estimates, but no jobs to simulate", where=where, hint="Leave it out.")
    times, seed, jobs = drawn
    judge = plugins.load("asa.evaluations", "choices")
    found = with_progress(
        lambda on_progress: judge(histories, makers, times=times, seed=seed, jobs=jobs, on_progress=on_progress)
    )
    print_found(found, as_json=as_json)


def _check_asked(by: str | None) -> None:
    if by not in (None, "geometry"):
        raise InputError(f"scores cannot be given by {by!r}", where="--by", hint="Known: geometry.")


def _check_outputs(plot: Path | None, csv_file: Path | None, page: Path | None) -> None:
    """Refuse output files that cannot be written; warn if numba is missing, since estimators are slow without it."""
    check_page(page, "accuracy")
    if plot is not None:
        from asa.core.drawing import check_figure_path

        check_figure_path(plot)
    if csv_file is not None and not csv_file.absolute().parent.is_dir():
        raise InputError("its folder does not exist", where=f"--csv {csv_file}", hint="Make the folder first.")
    if find_spec("numba") is None:
        write_notice("asa: numba is not installed: the estimators asa* take 40 times as long (pip install numba)")


def _read(traces: Sequence[Path], limit: int | None) -> tuple[dict[str, JobHistory], dict[str, StartEstimates]]:
    """Read each file, as a job history or as start estimates."""
    from asa.history import read_history
    from asa.studies.accuracy.start_estimates import read_start_estimates

    histories: dict[str, JobHistory] = {}
    estimates: dict[str, StartEstimates] = {}
    for path in dict.fromkeys(traces):
        if (starts := read_start_estimates(path)) is not None:
            estimates[str(path)] = starts if limit is None else starts.first(limit)
        else:
            history = read_history(path)
            histories[str(path)] = history if limit is None else history.first(limit)
    return histories, estimates


def _print(
    scores: Sequence[Score],
    histories: Mapping[str, JobHistory],
    estimates: Mapping[str, StartEstimates],
    limit: int | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        odd = _oddities(histories, estimates)
        print_json([{**score.as_dict(), "oddities_of_file": odd[score.trace]} for score in scores])
    else:
        _print_tables(scores, histories, estimates, "" if limit is None else ", in the whole file")
    sys.stdout.flush()


def _print_tables(
    scores: Sequence[Score], histories: Mapping[str, JobHistory], estimates: Mapping[str, StartEstimates], of: str
) -> None:
    from asa.core.console import Console
    from asa.studies.accuracy.table import render

    console = Console()
    console.print(render(scores))
    for trace, odd in _oddities(histories, estimates).items():
        for words, count in odd.items():
            note = f"{Path(trace).name}: {count:,} jobs {words}{of}"
            console.print(note, style="dim", highlight=False, markup=False)


def _oddities(
    histories: Mapping[str, JobHistory], estimates: Mapping[str, StartEstimates]
) -> dict[str, dict[str, int]]:
    return {trace: data.oddities for read in (histories, estimates) for trace, data in read.items()}


def _write_page(
    page: Path, scores: Sequence[Score], oddities: Mapping[str, Mapping[str, int]], seed: int, limit: int | None
) -> None:
    from asa.studies.accuracy.convergence import converge
    from asa.studies.accuracy.page import accuracy_page

    taken = "all of each log" if limit is None else f"the first {limit:,} of each log"
    if limit is not None:
        oddities = {
            trace: {f"{words}, in the whole file": count for words, count in odd.items()}
            for trace, odd in oddities.items()
        }
    followed = converge(range(seed, seed + _COURSES))
    write_page(
        page, "accuracy", accuracy_page(scores, followed, oddities=oddities, made=made(Seed=str(seed), Jobs=taken))
    )


def _write_csv(scores: Sequence[Score], path: Path) -> None:
    import csv

    rows = [score.as_dict() for score in scores]
    refused = in_words("cannot be written", f"--csv {path}", "Name another file.")
    with refused, writing_text(path, newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_notice(f"Scores written to {path}")
