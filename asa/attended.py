"""Runs that a Python program waits for: it shows them meanwhile, and goes on with those that it had to leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, chdir, closing, nullcontext
from pathlib import Path
from typing import Any

from asa.backend import Backend, Facility
from asa.errors import InputError, RunError
from asa.estimators import readiness
from asa.progress import RunProgress, follower
from asa.records import Record
from asa.runner import Run, RunFolder, RunResult, default_runs_folder, drive, find_run
from asa.runner.begin import check_resumable
from asa.runner.local_stages import with_local_stages
from asa.runner.state import RunState
from asa.sites import open_facility
from asa.strategies import load_strategy

__all__ = ["resume"]

_SLICE_S = 0.5  # between two looks at how far a run is


def resume(
    run: str | Path = "",
    *,
    retry: bool = False,
    runs: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    check: bool = True,
    on_record: Callable[[Record], None] = lambda _: None,
    progress: bool | None = None,
) -> RunResult:
    """Go on with a run whose program ended or was interrupted, and wait until it has ended; no job is submitted twice.

    Of a run that has ended, this gives the result at once.

    Parameters
    ----------
    run
        Its name, the beginning of the name, or its folder; the latest run if not given.
    retry
        If the run failed or was cancelled: submit again what did not complete.
    runs
        The folder of the run's folder; ``$ASA_RUNS``, else `asa-runs`, if not given.
    settings
        Those settings of the backend that have changed.
    check, on_record, progress
        As for `asa.Flow.run`.

    Returns
    -------
    RunResult
        Its records are those of the whole run, and it has the values of stages that completed earlier.

    Raises
    ------
    RunError
        The run failed, or somebody cancelled it.
    InputError
        There is no such run, or the program that hosts it must go on with it.
    AsaError
        As ``asa resume`` would report; another client may be at work on it.

    Examples
    --------
    After the kernel of a notebook was restarted, ``asa.resume().result("combine")`` waits for the latest run, and gives
    the value of its stage.
    """
    folder = RunFolder(find_run(Path(runs or default_runs_folder()), str(run)).path.absolute())
    folder.check_own()
    plan = folder.plan
    if plan.host:
        hint = f"Run {plan.host} again."
        raise InputError(f"is hosted by {plan.host}, which alone can go on with it", where=folder.path.name, hint=hint)
    state, records = folder.state()
    is_over = state.outcome == "completed" or (state.outcome is not None and not retry and not _has_loose_ends(state))
    if is_over:
        ended = Run(state.workflow, load_strategy(plan.strategy), name=plan.name, place=str(folder.path))
        return checked(RunResult(ended, state.outcome or "failed", state.reason, tuple(records)), check=check)
    check_resumable(state, state.workflow, (), retry=retry)
    readiness.prefer(plan.estimator)
    facility = open_facility(plan.backend, None, {**plan.settings, **(settings or {})}).facility
    where = Path(plan.folder or ".")
    if not where.is_dir():
        raise InputError("the folder in which the stages run does not exist", where=str(where), hint="Make it.")
    with chdir(where):
        result = attend(folder, facility, retry=retry, on_record=on_record, progress=progress)
    return checked(result, check=check)


def _has_loose_ends(state: RunState) -> bool:
    """Whether a run has ended, but still has jobs to cancel."""
    return bool(state.jobs.unfinished()) or bool(state.jobs.open_intents)


def attend(
    run: RunFolder,
    facility: Facility,
    *,
    retry: bool = False,
    on_record: Callable[[Record], None],
    progress: bool | None,
) -> RunResult:
    """Drive a run until it ends, show it meanwhile, and then close its site."""
    state, records = run.state()
    shown = follower(RunProgress(run.path.name, state.workflow.order, records), wanted=progress)
    backend: Backend | None = None

    def follow(record: Record) -> None:
        shown.add(record)
        on_record(record)

    def see(states: Sequence[RunState], *_: object) -> None:
        for job in map(states[0].jobs.__getitem__, states[0].jobs.unfinished()):
            if len(job.planned.stages) > 1:
                shown.progress.reach(job.status.steps)

    def sleep(seconds: float) -> bool:
        end_s = time.monotonic() + seconds
        is_wanted = False
        while (left_s := end_s - time.monotonic()) > 0 and not is_wanted:
            is_wanted = run.sleep(min(left_s, _SLICE_S))
            if backend is not None:
                shown.look(backend.now())
        return is_wanted

    with closing(shown), ExitStack() as opened:

        def connect(folder: RunFolder) -> Backend:
            nonlocal backend
            folder.log_begin()
            backend = opened.enter_context(closing_it(facility.connect(folder.path, sleep=sleep)))
            return backend

        stages = state.workflow.stages.values()
        facility = with_local_stages(run.plan.backend, stages, facility)
        try:
            return drive(run, connect, retry=retry, on_record=follow, on_pass=see)
        except KeyboardInterrupt:
            shown.progress.state = "interrupted"
            then = f"asa resume {run.path.name}"
            run.log_left("it was interrupted", then)
            raise KeyboardInterrupt(  # where the client was at that moment is of no use to the user
                "submitted jobs go on; nothing more is submitted until you continue.\n"
                f"  continue: asa.resume({run.path.name!r}) in Python, or {then}\n"
                f"  cancel:   asa cancel {run.path.name}"
            ) from None


def closing_it(backend: Any) -> Any:
    """Close a backend at the end of a block, if it can be closed."""
    return closing(backend) if hasattr(backend, "close") else nullcontext(backend)


def checked(result: RunResult, *, check: bool) -> RunResult:
    """Raise an error if a run did not complete, unless that is not wanted."""
    if check and result.outcome != "completed":
        raised = result.raised()
        why = f"{result.outcome}: {result.reason}{f': {type(raised).__name__}: {raised}' if raised else ''}"
        hint = f"See what it wrote: asa explain --run {Path(result.run.place).name}"
        raise RunError(why, where=result.run.place, hint=hint) from raised
    return result
