"""``asa report``: a run as one page of HTML, as a trace for timeline viewers, or as a spreadsheet."""

from __future__ import annotations

import csv
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from asa.cli.runs import RunArgument, RunsOption, open_run, read_state
from asa.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asa.runner import RunFolder
    from asa.timeline import Timeline

__all__ = ["check_folder", "report", "write_to"]


def report(
    run: RunArgument = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page. [default: the run's name and .html, here]", metavar="FILE.html", show_default=False
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Trace events, for Perfetto or a browser's tracing page, in place of a page.", metavar="FILE.json"
        ),
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", help="What each job did when, in place of a page.", metavar="FILE.csv")
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Write what a run did as one page of HTML, which needs no network and no other file.

    It has a chart of what each job did, what stages waited and took, and how far predictions were off. It is made from
    the run's folder alone, of a run that goes on, too.

    As in: `asa report` (the latest run), `asa report montage --out montage.html --trace montage.json`

    Exit codes: 0 done, 1 the run's folder cannot be read, 2 the input cannot be used.
    """
    from asa.timeline import timeline

    folder = open_run(runs, run)
    _, records = read_state(folder)
    try:
        told = timeline(records)
    except ValueError:
        raise InputError(
            "nothing happened in this run yet", where=str(folder.path), hint="Wait until its client has begun."
        ) from None
    if trace is not None:
        write_to(trace, "--trace", lambda file: json.dump(told.trace_events(), file, indent=1))
    if table is not None:
        write_to(table, "--csv", lambda file: _rows(told, file))
    if out is None and (trace is not None or table is not None):
        return
    page = _page(folder)
    write_to(out or Path(f"{folder.path.name}.html"), "--out", lambda file: file.write(page))


def _page(folder: RunFolder) -> str:
    from asa import __version__
    from asa.cli.standing import metrics_of
    from asa.report.page import render
    from asa.report.run import run_page

    state, records = read_state(folder)
    plan = folder.plan
    made = {
        "Run": str(folder.path),
        "Workflow": plan.workflow,
        "Begun": datetime.fromtimestamp(plan.created_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "Strategy": plan.strategy,
        "Estimator": plan.estimator,
        "Backend": plan.backend,
        "asa": __version__,
    }
    return render(run_page(plan.name, records, metrics_of(state, records), strategy=plan.strategy, made=made))


def _rows(told: Timeline, file: TextIO) -> None:
    names = ["run", "job", "stages", "kind", "stage", "begin_s", "end_s", "cores", "predicted_start_s", "state"]
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(told.rows())


def check_folder(path: Path, option: str) -> None:
    """Refuse early a file that could not be written."""
    if not path.absolute().parent.is_dir():
        raise InputError("cannot be written: no such folder", where=f"{option} {path}", hint="Make the folder first.")


def write_to(path: Path, option: str, write: Callable[[TextIO], object]) -> None:
    """Write a file that a user named, and say so."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            write(file)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=f"{option} {path}", hint="Name another file."
        ) from error
    sys.stderr.write(f"Written to {path}\n")
