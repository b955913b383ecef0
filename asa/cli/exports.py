"""``asa export``: writes workflows in other tools' formats."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.given import ParamsOption, given_parameters
from asa.cli.imported import write_text
from asa.cli.imports import ForceOption, OutOption
from asa.cli.runs import RunsOption, open_run, read_state
from asa.cli.terminal import write_document, write_notice
from asa.errors import InputError
from asa.printable import printable_json

if TYPE_CHECKING:
    from asa.importers.wfformat import Measured
    from asa.runner import RunFolder
    from asa.workflow import Workflow

app = typer.Typer(help="Convert a workflow file for other tools.", no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def _others() -> None:
    """Convert a workflow file for other tools."""


@app.command("wfformat")
def wfformat(
    workflow: Annotated[
        str, typer.Argument(help="A workflow file (.toml); not with --run.", metavar="[FILE]", show_default=False)
    ] = "",
    out: OutOption = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Take the workflow and the run times of this completed run: its name, the beginning of it, or its "
            "folder.",
            metavar="RUN",
            show_default=False,
        ),
    ] = None,
    runs: RunsOption = None,
    parameters: ParamsOption = None,
    force: ForceOption = False,
) -> None:
    """Write a workflow as a WfFormat 1.5 instance, with the run times of a run, or else the expected ones.

    Each stage becomes a task; a stage with a list of tasks becomes that many tasks.
    """
    from asa.importers import export_wfformat
    from asa.importers.base import ImportNotes
    from asa.spec import load_workflow

    measured = None
    if run is not None:
        if workflow:
            raise InputError("a workflow file and a run are given", where="--run", hint="Give one of them.")
        flow, measured = _of_run(open_run(runs, run))
    elif workflow:
        flow = load_workflow(workflow, given_parameters(parameters))
    else:
        raise InputError("nothing to export is given", where="FILE", hint="Give a workflow file, or --run RUN.")
    notes = ImportNotes()
    document = export_wfformat(flow, made_s=time.time(), measured=measured, notes=notes)
    text = printable_json(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"
    if out is None:
        write_document(text)
    else:
        write_text(out, text, force=force)
    if measured is None:
        notes.add("run times are the expected ones; --run RUN takes those of a run.")
    for note in notes.sentences():
        write_notice(f"note: {note}")


def _of_run(folder: RunFolder) -> tuple[Workflow, Measured]:
    """Return the workflow of a run that completed, and its times."""
    from asa.importers.wfformat import Measured
    from asa.metrics import idle_times, without
    from asa.records import RunEnded, RunStarted

    state, records = read_state(folder)
    if state.outcome != "completed":
        raise InputError(
            "has not completed, so not all run times are known",
            where=f"run {folder.plan.id}",
            hint="Export its workflow file, with the expected ones.",
        )
    began_s = min(record.time_s for record in records if isinstance(record, RunStarted))
    ended_s = max(record.time_s for record in records if isinstance(record, RunEnded))
    runs_s = {
        name: view.ended_s - view.started_s
        for name, view in state.stages.items()
        if view.started_s is not None and view.ended_s is not None
    }
    makespan_s = without(idle_times(records), ended_s) - began_s
    return state.workflow, Measured(began_s, makespan_s, runs_s)
