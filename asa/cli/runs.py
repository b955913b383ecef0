"""Common parts of the commands about runs: options, finding a run, reading its state."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from asa.cli.completing import beginning
from asa.core import safe
from asa.core.documents import print_json
from asa.errors import InputError, JournalError

if TYPE_CHECKING:
    from asa.backend import Advice, Facility
    from asa.records import Record
    from asa.runner import RunFolder
    from asa.runner.jobs import Job
    from asa.runner.state import RunState

SCHEMA = 1
"""Version of the JSON that is printed; adding keys does not change it."""


def complete_runs(ctx: Any, incomplete: str) -> list[str]:
    """Complete the name of a run, the latest first."""
    from asa.runner import run_paths

    with suppress(Exception):  # a shell cannot show an error
        return beginning(incomplete, (path.name for path in reversed(run_paths(runs_folder(ctx.params.get("runs"))))))
    return []


def complete_stages(ctx: Any, incomplete: str) -> list[str]:
    """Complete a stage of the run on the command line, or of the latest run."""
    with suppress(Exception):  # likewise
        state, _ = read_state(open_run(ctx.params.get("runs"), ctx.params.get("run") or ""))
        return beginning(incomplete, state.workflow.order)
    return []


RunsOption = Annotated[
    Path | None,
    typer.Option(
        "--runs",
        help="Folder of the runs. [default: $ASA_RUNS, else asa-runs here; asa-runs-USER where that is another user's]",
        show_default=False,
        metavar="DIR",
    ),
]
OrRunArgument = Annotated[
    str,
    typer.Argument(
        help="The run, as --run has it; run and stage may be in either order.",
        show_default=False,
        metavar="[RUN]",
        autocompletion=complete_runs,
    ),
]
RunArgument = Annotated[
    str,
    typer.Argument(
        help="The run: its name, the beginning of it, or its folder. [default: the latest]",
        show_default=False,
        metavar="[RUN]",
        autocompletion=complete_runs,
    ),
]


def print_document(document: Mapping[str, Any], *, indent: int | None = 1) -> None:
    """Print a JSON document, with the version of its schema."""
    print_json({"schema": SCHEMA, **document}, indent=indent)


def runs_folder(given: Path | None, *, begins: bool = False) -> Path:
    """Return the folder of the runs; `begins`: whether a run is to begin there."""
    from asa.runner import default_runs_folder

    return given if given is not None else default_runs_folder(begins=begins)


def open_run(runs: Path | None, named: str, *, to_act: bool = False) -> RunFolder:
    """Find a run by its name, the beginning of the name, or its folder; return it with an absolute path.

    `to_act`: the run is to be changed, so it must belong to the user; for a run that is only read, its owner is shown.
    Raises `OwnerError`: the run is to be changed, but others own it or can change it.
    """
    from asa.runner import find_run

    folder = find_run(runs_folder(runs), named)
    folder.path = folder.path.absolute()
    if to_act:
        folder.check_own()
    else:
        safe.look_at(folder.path)
    return folder


def open_named(
    runs: Path | None, first: str, second: str, option: str, *, needs_stage: bool = False
) -> tuple[RunFolder, RunState, str]:
    """Find a run and a stage of it by two words, in either order; each may be missing.

    `option` is the run that `--run` names. A word alone is a stage of that run, or of the latest; else it is a run.
    Returns the run's folder, its state, and the stage, which is empty if none is named.
    Raises `InputError`: there is no such run, or it has no such stage.
    """
    if second and option:
        raise InputError("the run is named twice", where=f"--run {option}", hint=f"Leave --run out, or {second!r}.")
    try:
        folder = open_run(runs, second or option)
        state, _ = read_state(folder)
        return folder, state, stage_of(state, first) if first else ""
    except InputError:
        if not first or option:
            raise
        try:
            folder = open_run(runs, first)
        except InputError:
            folder = None
        if folder is None:  # neither order fits: report the error of the usual one
            raise
    state, _ = read_state(folder)
    if needs_stage and not second:
        hint = f"Name one of its stages: {', '.join(state.workflow.order)}."
        raise InputError("is a run, of which no stage is named", where=folder.path.name, hint=hint)
    return folder, state, stage_of(state, second) if second else ""


def check_not_hosted(folder: RunFolder) -> None:
    """Refuse to resume a run that another program hosts: only that program knows what its stages run."""
    if host := folder.plan.host:
        hint = f"{how_its_host_goes_on(folder)} To end it now: {command('cancel', folder)}"
        raise InputError(f"is hosted by {host}, which alone can go on with it", where=folder.path.name, hint=hint)


def how_its_host_goes_on(folder: RunFolder) -> str:
    """Say how a run that another program hosts is continued."""
    host = folder.plan.host
    return f"Run {host} again: it first ends what this run has left, then goes on from the files that are there."


def own_output(folder: RunFolder, log: str) -> str:
    """Return what a job's command printed to a log, without what a program that hosts the run printed there."""
    from asa.hosted.printed import printed

    found = printed(folder.plan.host, log)
    return log if found is None else found.own


def read_state(folder: RunFolder) -> tuple[RunState, list[Record]]:
    """Read a run's state."""
    return folder.state()


def stage_of(state: RunState, name: str) -> str:
    """Check that a run has a stage of this name."""
    from asa.core.plugins import unknown_name

    if name not in state.stages:
        raise unknown_name("stage", name, list(state.workflow.order))
    return name


def latest_job(state: RunState, stage: str) -> Job | None:
    """Return a stage's present job; if it has none, its last job."""
    job_id = state.stages[stage].job_id
    if job_id is not None:
        return state.jobs[job_id]
    former = [job for job in state.jobs.values() if stage in job.planned.stages and job.planned.has_payload]
    return former[-1] if former else None


def has_begun_in(job: Job, stage: str) -> bool:
    """Whether a stage has begun in a job, which it may share with others."""
    status = job.status
    if len(job.planned.stages) == 1 or not status.steps:
        return status.payload_start_s is not None
    return any(step.name == stage for step in status.steps)


def command(verb: str, folder: RunFolder, *options: str) -> str:
    """Write a command about a run, to be typed in the current folder."""
    from asa.runner import default_runs_folder

    path, here = folder.path.absolute(), Path.cwd()
    name = path.name
    if path.parent != default_runs_folder().absolute():
        name = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return shlex.join(["asa", *verb.split(), *options, name])


def retry_command(folder: RunFolder) -> str:
    """Write the command that resumes a run after a repair, with the run's workflow file if it has one."""
    if not (source := folder.plan.source):
        return command("resume --retry", folder)
    here = Path.cwd()
    path = Path(source)
    name = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return command("resume --retry", folder, "--workflow", name)


def want(folder: RunFolder, stage: str) -> Path:
    """Ask the client that drives a run to cancel the run, or one of its stages; return the file of the request."""
    from asa.runner import CancelRequest

    try:
        return folder.request(CancelRequest(folder.plan.name, stage))
    except OSError as error:
        _unwritable(folder, error)


def _unwritable(folder: RunFolder, error: OSError) -> NoReturn:
    raise JournalError(
        f"cannot be written: {error.strerror}", where=str(folder.path), hint="Fix its permissions, or free disk space."
    ) from error


def facility_of(folder: RunFolder) -> Facility | None:
    """Open a run's facility without connecting, for its advice; None if that is impossible."""
    from asa.errors import AsaError
    from asa.runner.local_stages import with_local_stages
    from asa.sites import open_facility

    plan = folder.plan
    try:
        return with_local_stages(plan.backend, plan.stages, open_facility(plan.backend, None, plan.settings).facility)
    except AsaError:  # the backend is not installed here, or a setting names something that is not here
        return None


def advice_on(facility: Facility | None, reason: str) -> Advice | None:
    """Explain a batch system's reason, if its facility can; the batch system itself is not asked."""
    from asa.backend import Advisor

    if facility is None or not reason:
        return None
    return facility.advice(reason) if isinstance(facility, Advisor) else None


def remedy_on(facility: Facility | None, folder: RunFolder, trouble: str) -> str:
    """Return what to do about a trouble with the batch system, if its facility knows; else an empty text."""
    from asa.backend import Troubleshooting

    if facility is None or not trouble:
        return ""
    remedy = facility.remedy(trouble) if isinstance(facility, Troubleshooting) else ""
    return f"{remedy} Resume it with: {command('resume', folder)}" if remedy else ""
