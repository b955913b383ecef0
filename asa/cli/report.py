"""``asa report``: writes a run or a comparison as an HTML page, a trace for timeline viewers, or a spreadsheet."""

from __future__ import annotations

import csv
import json
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from asa.cli.runs import RunsOption, open_run, read_state
from asa.cli.terminal import write_notice
from asa.core.files import in_words
from asa.core.safe import writing_text
from asa.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asa.report.page import Page
    from asa.runner import RunFolder


def _target(text: str) -> Path:
    if not text.strip():
        raise typer.BadParameter("is empty; name FILE.html, or a folder: the present one is `.`")
    return Path(text)


PageOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        parser=_target,
        help="Write an HTML page to this file; or to this folder, with its details on further pages and links to the "
        "pages already there.",
        metavar="FILE.html|FOLDER",
    ),
]


def report(
    run: Annotated[
        str,
        typer.Argument(
            help="The run: its name, the beginning of it, or its folder; or the results file of a comparison. "
            "[default: the latest run]",
            show_default=False,
            metavar="[RUN|FILE.json]",
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the page: a file or a folder. [default: NAME.html here]",
            parser=_target,
            metavar="FILE.html|FOLDER",
            show_default=False,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write trace events, for Perfetto or chrome://tracing, in place of a page.", metavar="FILE.json"
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--csv", help="Write a table of the jobs and their times, in place of a page.", metavar="FILE.csv"
        ),
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Write the report of a run, or of a comparison, as one HTML page that needs no network and no other file.

    The page shows what each job did, how long stages waited and ran, and how far off the predictions were. It is made
    from the run's folder, also while the run goes on; or from the file that `asa compare --results` wrote.

    Examples: `asa report` (the latest run), `asa report montage --out montage.html --trace montage.json`

    Of a comparison: `asa compare montage --results montage.json`, `asa report montage.json`

    Exit codes: 0 done, 1 the run's folder cannot be read, 2 the input cannot be used.
    """
    is_comparison = Path(run).is_file() or Path(run).suffix == ".json"
    subject = _of_comparison(Path(run)) if is_comparison else _of_run(open_run(runs, run))
    if out is None and trace is None and table is None:
        out = Path(f"{subject.name}.html")
    check_page(out, subject.name, option="--out", of=subject.of)
    if trace is not None:
        write_to(trace, "--trace", lambda file: json.dump(subject.trace_events(), file, indent=1))
    if table is not None:
        write_to(table, "--csv", lambda file: _write_rows(subject.rows(), file))
    if out is not None:
        write_page(out, subject.name, subject.page(), option="--out", of=subject.of)


@dataclass(frozen=True, slots=True)
class _Subject:
    """A run or a comparison, with functions that make each output of it."""

    name: str
    of: str
    trace_events: Callable[[], dict[str, Any]]
    rows: Callable[[], list[dict[str, Any]]]
    page: Callable[[], Page]


def _of_comparison(file: Path) -> _Subject:
    from asa.studies.compare.kept import KeptComparison

    kept = KeptComparison.read(file)
    return _Subject(kept.name, kept.of, kept.trace_events, kept.rows, kept.page)


def _of_run(folder: RunFolder) -> _Subject:
    from asa.timeline import timeline

    state, records = read_state(folder)
    try:
        run_timeline = timeline(records, state.workflow, age_accrues=state.capabilities.age_accrues)
    except ValueError:
        raise InputError(
            "nothing has happened in this run yet", where=str(folder.path), hint="Wait until its client has started."
        ) from None
    return _Subject(
        folder.path.name, str(folder.path), run_timeline.trace_events, run_timeline.rows, lambda: _page(folder)
    )


def _page(folder: RunFolder) -> Page:
    from asa import __version__
    from asa.cli.standing import standing_of
    from asa.report.run import run_page
    from asa.report.tasks import tasks_sections

    state, records = read_state(folder)
    plan, run = folder.plan, standing_of(folder, time.time())
    made = {
        "Run": str(folder.path),
        "Workflow": plan.workflow,
        "Begun": datetime.fromtimestamp(plan.created_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "Strategy": plan.strategy,
        "Estimator": f"{plan.estimator}, because {plan.estimator_why}" if plan.estimator_why else plan.estimator,
        "Backend": plan.backend,
        "asa": __version__,
    }
    jobs = {job.spec.token: (job.status.job_id, job.spec.cores) for job in state.jobs.values()}
    folders = {name: Path(state.tasks_of(name)) for name in state.workflow.shared}
    return run_page(
        plan.name,
        records,
        run.metrics,
        workflow=state.workflow,
        age_accrues=state.capabilities.age_accrues,
        strategy=plan.strategy,
        stands=[(stage.stage, stage.state, stage.job_id or "", stage.given_up or stage.reason) for stage in run.stages],
        made=made,
        more=tasks_sections(folders, jobs),
    )


_COLUMNS = (
    "run", "job", "stages", "kind", "stage", "begin_s", "end_s", "cores", "predicted_wait_over_s",
    "predicted_start_s", "state",
)  # fmt: skip


def _write_rows(rows: Sequence[Mapping[str, Any]], file: TextIO) -> None:
    writer = csv.DictWriter(file, list(rows[0]) if rows else _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def check_page(
    target: Path | None, name: str | None = None, *, option: str = "--report", of: str | None = None
) -> None:
    """Before long work, refuse a page that could not be written.

    `name`: the page's file in a folder, if already known.
    Raises `InputError`: the path is in use for something else, its folder does not exist, or it has a file that is no
    page of asa.
    """
    if target is None:
        return
    from asa.report.folder import INDEX, check_ours, free_name, page_file
    from asa.report.page import check_installed

    check_installed()
    where = f"{option} {target}"
    if not _is_folder(target) and target.is_dir():
        raise InputError("cannot be written: it is a folder", where=where, hint="Name a file in it.")
    if _is_folder(target) and target.is_dir():
        for file in (
            INDEX,
            *([] if name is None else [page_file(free_name(target, name, asked() if of is None else of))]),
        ):
            check_ours(target / file)
        return
    if _is_folder(target) and target.exists():
        raise InputError("cannot be written: it is no folder", where=where, hint="Name a folder, or FILE.html.")
    if not target.absolute().parent.is_dir():
        raise InputError("cannot be written: no such folder", where=where, hint="Make the folder first.")


def write_page(
    target: Path,
    name: str,
    page: Page,
    parts: Callable[[], Mapping[str, Page]] = dict,
    *,
    option: str = "--report",
    of: str | None = None,
) -> None:
    """Write a page to a file; or, with the pages of its parts, into a folder of linked pages.

    `of`: the page's subject; by default this command with its settings. In a folder, the page replaces an earlier one
    of the same subject; other pages stay.
    """
    from asa.report.folder import free_name, page_file, write_folder
    from asa.report.page import render

    if not _is_folder(target):
        text = render(page)
        write_to(target, option, lambda file: file.write(text))
        return
    with _writing(target, option):
        of = asked() if of is None else of
        file = target / page_file(free_name(target, name, of))
        replaces = _replaces(file)
        first, *_ = write_folder(target, name, page, parts(), of=of)
    write_notice(f"Written to {first} and, next to it, {file.name}{replaces}")


def made(**more: str) -> dict[str, str]:
    """Return how a page was made, so that it can be made again: the command, `more`, and the version."""
    from asa import __version__

    return {"Command": f"`{shlex.join(['asa', *sys.argv[1:]])}`", **more, "asa": __version__}


_OF_NO_MATTER = {
    **dict.fromkeys(("--report", "--results", "--jobs", "-j", "--executor", "--plot", "--output"), 1),
    "--json": 0,
}
"""Options that do not affect what a page says, each with the number of words that it takes."""


def asked() -> str:
    """Return the command line without the options that say where results go, or that only affect the speed."""
    kept, words = ["asa"], iter(sys.argv[1:])
    for word in words:
        option, equals, _ = word.partition("=")
        if option not in _OF_NO_MATTER:
            kept.append(word)
        elif not equals:
            for _ in range(_OF_NO_MATTER[option]):
                next(words, None)
    return shlex.join(kept)


def _is_folder(target: Path) -> bool:
    return target.suffix.lower() not in {".html", ".htm"}


def write_to(path: Path, option: str, write: Callable[[TextIO], object]) -> None:
    """Write a file that the user named, and report that."""
    replaces = _replaces(path)
    with _writing(path, option), writing_text(path, newline="") as file:
        write(file)
    write_notice(f"Written to {path}{replaces}")


def _replaces(file: Path) -> str:
    return ", replaces what was there under this name" if file.exists() else ""


@contextmanager
def _writing(path: Path, option: str) -> Iterator[None]:
    with in_words("cannot be written", f"{option} {path}", "Name another file."):
        yield
