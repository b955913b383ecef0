"""Runs that continue without a client: the keepers that a site allows, and the jobs that drive such runs."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.runs import command, read_state
from asa.cli.terminal import write_notice
from asa.core.variables import KEEPS, left_out
from asa.errors import AsaError, InputError, LeaseError, UnavailableError
from asa.keepers import Way
from asa.units import parse_duration

if TYPE_CHECKING:
    from asa.backend import Backend, Facility
    from asa.keepers import KeptRun
    from asa.runner import RunFolder, RunPlan
    from asa.runner.state import RunState
    from asa.workflow import Stage

_LOCAL = "local"
_BUSY_S = 10.0
_LOOK_S = 600.0  # a look takes seconds, unless it runs stages itself
_ELSE = " A stage gets what is no secret in its `environment`, which goes with every way."


DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Return at once; the run is continued unattended, see --detach-by."),
]
DetachByOption = Annotated[
    Way | None,
    typer.Option(
        help="With --detach, what continues the run: a systemd timer, cron, Slurm's crontab, or a chain of one-core "
        "jobs. [default: the first of these that works here]",
        show_default=False,
    ),
]
KeeperOption = Annotated[
    str,
    typer.Option(
        "--keeper-walltime",
        help="With --detach-by job: walltime of each of these jobs. With scrontab: the same, if stages have "
        "`local = true`.",
    ),
]


def chosen_way(wanted: Way | None, plan: RunPlan, facility: Facility) -> Way:
    """Choose a keeper that is available here.

    Raises `InputError`: the requested keeper, or every keeper, is unavailable; the message says why.
    """
    from asa.keepers import possible
    from asa.strategies.on_pool import POOL

    if plan.strategy == POOL:
        hint = "Take another strategy, or leave --detach out."
        raise InputError(f"a run by {POOL} needs a client that keeps running", where="--detach", hint=hint)
    needs = next((stage for stage in plan.stages if stage.secrets), None)
    kept = f"secrets are not kept, and stage {needs.name!r} asks for {needs.secrets[0]}" if needs is not None else ""
    troubles = {
        **{way: kept or trouble for way, trouble in possible(facility).items()},
        Way.JOB: "the local queue stops when this computer does" if plan.backend == _LOCAL else "",
    }
    if wanted is not None and not troubles[wanted]:
        return wanted
    if wanted is not None:
        hint = f"Use another one.{_ELSE if kept else ''}"
        raise InputError(troubles[wanted], where=f"--detach-by {wanted.value}", hint=hint)
    able = next((way for way in Way if not troubles[way]), None)
    if able is None:
        why = "; ".join(f"{way}: {trouble}" for way, trouble in troubles.items())
        hint = "Leave --detach out, and keep the client alive: see docs/how-to/unattended.md."
        hint += _ELSE if kept else ""
        raise InputError(f"nothing here can continue the run ({why})", where="--detach", hint=hint)
    return able


def checked_walltime_s(text: str) -> float:
    """Read the walltime of a keeper's job.

    Raises `InputError`: it is not a time, or too short.
    """
    from asa.keepers.job import SHORTEST_S

    walltime_s = parse_duration(text)
    if walltime_s < SHORTEST_S:
        raise InputError(f"a job of {text} is too short", where="--keeper-walltime", hint="Give a minute or more.")
    return walltime_s


def detach(folder: RunFolder, facility: Facility, way: Way, walltime_s: float, **how: Any) -> None:
    """Install the keeper of a run, look at the run once, and say how the run continues; `how` is passed to `look`."""
    from asa import keepers
    from asa.runner.local_stages import with_local_stages
    from asa.runner.look import look

    stages = (how.get("revised") or folder.state()[0].workflow).stages.values()
    near = with_local_stages(folder.plan.backend, stages, facility)
    end_keeper(folder, facility)
    try:
        if way is Way.JOB:
            made = keepers.KeptRun.made(way, "", number=1, chain=os.urandom(3).hex())
            _submit_keeper(folder, facility, made, walltime_s, None)
        else:
            long_s = walltime_s if any(stage.local for stage in stages) else min(walltime_s, _LOOK_S)
            made = keepers.keep(way, folder.path, folder.plan.id[:12], facility, long_s)
    except AsaError as error:
        hint = f"{error.hint or ''} The run is created, but nothing continues it: {command('resume', folder)}".strip()
        raise type(error)(error.message, where=error.where, hint=hint) from error
    with suppress(LeaseError), ExitStack() as exits:  # the keeper may already be looking at the run
        look(folder, connecting(near, exits), **how)
    sys.stderr.write(
        f"{folder.path.name} goes on unattended: {made.text}.\n  watch:    {command('status', folder)}\n  cancel:  "
        f" {command('cancel', folder)}\n"
    )


def say_what_is_not_kept(stages: Iterable[Stage], folder: str) -> None:
    """Before a run is detached, name the variables that later jobs will lack; warn of variables that stages use."""
    from asa.spec.withheld import dollars, uses_of

    left = left_out(os.environ)
    used: dict[str, list[str]] = {}
    for stage in stages if left else ():
        for use in uses_of(stage, folder, set(left).__contains__):
            used.setdefault(use.name, []).append(stage.name)
    for name, users in used.items():
        whose = f"stage {users[0]} uses" if len(users) == 1 else f"stages {', '.join(users)} use"
        write_notice(f"Warning: {whose} {dollars([name])}, which is not kept: later jobs will not have it.")
    if left:
        add = shlex.quote(",".join([*used, *(name for name in left if name not in used)]))
        write_notice(
            f"Note: not kept for later jobs, as neither on the list of what is nor plainly ordinary settings: "
            f"{', '.join(left)}. Say what a stage needs in its `environment`, or have them kept, before you "
            f"detach; for all of them: export {KEEPS}={add}"
        )


def connecting(facility: Facility, exits: ExitStack) -> Callable[[RunFolder], Backend]:
    """Return a function that opens a run's batch system from the run's folder."""
    from asa.cli.driving import in_its_folder, opened

    def connect(folder: RunFolder) -> Backend:
        with in_its_folder(folder):
            return exits.enter_context(opened(lambda: facility.connect(folder.path, sleep=folder.sleep)))

    return connect


def _submit_keeper(
    folder: RunFolder, facility: Facility, now: KeptRun, walltime_s: float, after_s: float | None
) -> None:
    """Submit the keeper's job, which begins after `after_s` seconds, and record it once it is accepted."""
    from asa import keepers
    from asa.keepers import job

    options = (f"--keeper={now.number}", f"--lasts={walltime_s:g}")
    call = shlex.join(keepers.client("tick", folder.path, *options))
    with ExitStack() as exits:
        backend = exits.enter_context(_opened(folder, facility))
        begin_s = None if after_s is None else backend.now() + after_s
        mark = f"{folder.plan.id[:12]}-{now.chain}"
        names = dict.fromkeys(name for stage in folder.plan.stages for name in stage.secrets)
        job_id = job.submit(
            backend, mark, now.number, f"exec {call}", walltime_s=walltime_s, begin_s=begin_s, names=names
        )
    keepers.note(folder.path, replace(now, mark=job_id))


@contextmanager
def _opened(folder: RunFolder, facility: Facility) -> Iterator[Backend]:
    """Open a second connection to the batch system, in addition to that of the client that drives the run."""
    from asa.cli.driving import in_its_folder, opened

    with in_its_folder(folder), opened(lambda: facility.connect(folder.path, sleep=_sleep)) as backend:
        yield backend


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def keep(folder: RunFolder, number: int, walltime_s: float) -> None:
    """Drive a run from the keeper's n-th job, until its walltime is nearly over, and submit the next job."""
    from asa import keepers
    from asa.cli.driving import Detached, drive_here, reopen
    from asa.cli.live import Silent
    from asa.keepers.job import spare_s

    began_s = time.monotonic()
    now = keepers.kept(folder.path)
    if now is None or now.way is not Way.JOB or number < now.number - 1:
        return  # the run has another keeper, or a later job drives it
    now.take_over()
    facility = reopen(folder, {})
    if has_ended(read_state(folder)[0]):
        end_keeper(folder, facility)
        return
    following = replace(now, number=number + 1, mark="") if number >= now.number else now
    spare, is_over = spare_s(walltime_s), threading.Event()
    with _interrupted_after(walltime_s - spare, is_over):
        is_followed = has_come_to_an_end = False
        while not is_over.is_set() and not has_come_to_an_end:
            if not is_followed:
                lasted_s = time.monotonic() - began_s
                is_followed = _is_followed(folder, facility, following, walltime_s, walltime_s - 2 * spare - lasted_s)
            to_ask_again = threading.Event()
            try:
                with nullcontext() if is_followed else _interrupted_after(6 * _BUSY_S, to_ask_again):
                    drive_here(folder, facility, Silent())
                has_come_to_an_end = True
            except (LeaseError, UnavailableError):  # another client drives the run, or the batch system does not answer
                time.sleep(_BUSY_S)
            except Detached:
                if not to_ask_again.is_set():
                    break  # the walltime is nearly over, or somebody ends the job
    if has_come_to_an_end:
        end_keeper(folder, facility)


@contextmanager
def _interrupted_after(seconds: float, is_so: threading.Event) -> Iterator[None]:
    """Send this process SIGTERM after a while; the client that drives a run then leaves in good order."""

    def interrupt() -> None:
        is_so.set()
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_followed(folder: RunFolder, facility: Facility, following: KeptRun, walltime_s: float, after_s: float) -> bool:
    """Submit the next job in a keeper's chain; return whether the batch system accepted it."""
    try:
        _submit_keeper(folder, facility, following, walltime_s, max(after_s, 0.0))
    except AsaError as error:
        folder.log_note(f"the next one-core job cannot be submitted: {error}")
        return False
    return True


def end_keeper(folder: RunFolder, facility: Facility | None = None) -> None:
    """Remove the keeper of a run that has ended; without a facility, the run's own is opened if that takes one."""
    from asa import keepers
    from asa.cli.driving import reopen
    from asa.keepers import scrontab

    now = keepers.kept(folder.path)
    if now is None:
        return
    if now.way is Way.SCRONTAB:
        with suppress(AsaError):
            scrontab.end(facility or reopen(folder, {}), now.mark)
    if now.way is Way.JOB and now.mark:
        with suppress(AsaError), _opened(folder, facility or reopen(folder, {})) as backend:
            backend.cancel(now.mark)
    keepers.end(folder.path)


def has_ended(state: RunState) -> bool:
    """Whether a run has ended, and all its jobs as well."""
    is_settled = not state.jobs.unfinished() and not state.jobs.open_intents and not state.jobs.doubtful
    return state.outcome is not None and is_settled
