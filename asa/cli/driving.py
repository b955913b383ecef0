"""Drives a run from the command line: shows it to its user, leaves it in good order, sums it up at the end."""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from asa.cli.terminal import silence_output
from asa.core.documents import print_json
from asa.errors import InputError

if TYPE_CHECKING:
    from types import FrameType

    from asa.backend import Backend, Facility
    from asa.cli.live import Display
    from asa.cli.standing import RunStanding
    from asa.records import Record
    from asa.runner import RunFolder, RunResult
    from asa.runner.state import RunState
    from asa.workflow import Workflow

_DETACHED = 130
_LAST_LINES = 10
_MAX_LISTED = 3  # failed stages
_LONG_S = 5.0
_COMPILERS = ("numba", "llvmlite")
_COMPILING_S = 10.0  # how long a client that is asked to leave waits for a compiler
_PATIENCE_S = 1.0  # seconds that a client waits for other work before it leaves
_UNWINDING_S = 5.0  # seconds for which a second request is ignored
_WHY = {
    signal.SIGINT: "it was interrupted (SIGINT)",
    signal.SIGTERM: "it was asked to end (SIGTERM)",
    signal.SIGHUP: "its terminal was closed (SIGHUP)",
    signal.SIGUSR1: "it was sent SIGUSR1",
    signal.SIGUSR2: "it was sent SIGUSR2",
    signal.SIGXCPU: "it reached the CPU time limit here (SIGXCPU)",
}
_UNREAD = "its output was not read any more"


class Detached(SystemExit):
    """The client leaves; the run goes on without it."""

    def __init__(self, why: str) -> None:
        super().__init__(_DETACHED)
        self.why = why


@contextmanager
def opened(connect: Callable[[], Backend]) -> Iterator[Backend]:
    """Open a backend, and close it afterwards if it can be closed."""
    from asa.backend import check_backend

    with ExitStack() as exits:
        with _patience("connecting to the batch system"):
            backend = connect()
        check_backend(backend)
        if (close := getattr(backend, "close", None)) is not None:
            exits.callback(close)
        yield backend


@contextmanager
def _patience(what: str) -> Iterator[None]:
    """If a step takes long, name it on stderr."""
    timer = threading.Timer(_LONG_S, lambda: _say(f"Still {what} ...\n"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def in_its_folder(run: RunFolder) -> Iterator[None]:
    """Change to the folder in which a run was begun, where its stages run.

    Raises `InputError`: the folder does not exist.
    """
    where = run.plan.folder or "."
    if not Path(where).is_dir():
        hint = "Make it, or start a new run."
        raise InputError("the folder in which the stages run does not exist", where=where, hint=hint)
    with chdir(where):
        yield


def reopen(folder: RunFolder, changed: dict[str, str]) -> Facility:
    """Open the batch system of a run, with settings that may have changed.

    Raises `InputError`: its backend is not installed here, or a setting is invalid.
    """
    from asa.cli.pooled import facility_for
    from asa.sites import open_facility

    if "share" in changed:
        hint = "Leave it out, and give it to the next `asa run`."
        raise InputError("is settled when a run begins", where="--option share", hint=hint)
    opened = open_facility(folder.plan.backend, None, {**folder.plan.settings, **changed})
    return facility_for(folder.plan.strategy, opened, folder.state()[0].workflow)


def drive_here(
    folder: RunFolder,
    facility: Facility,
    display: Display,
    *,
    retry: bool = False,
    again: Sequence[str] = (),
    revised: Workflow | None = None,
    greeting: str = "",
) -> RunResult:
    """Drive a run until it ends, and show its progress as soon as this client holds the run's lease.

    A signal that was ignored when this client was started, as by `nohup`, stays ignored. If the terminal disappears
    without such a signal, as after `disown`, the client writes nothing more to it, and the run goes on.

    Raises `Detached`: the user left, the terminal was closed, this computer shuts down, or the reader of the output is
    gone. The run's folder is left in good order, and its `client.log` says why.
    """
    from asa.runner.driver import drive
    from asa.runner.local_stages import with_local_stages

    exits = ExitStack()

    def leave(why: str) -> NoReturn:
        try:
            exits.close()
            _say_why(folder, why)
        finally:  # the caller would lose an error, and a run survives that its client is killed
            os._exit(_DETACHED)

    try:
        with exits:
            stages = (revised or folder.state()[0].workflow).stages.values()
            watch = _Watch(
                folder, with_local_stages(folder.plan.backend, stages, facility), display, exits, greeting, leave
            )
            exits.enter_context(watch.shown())
            exits.enter_context(watch.departures.heeded())
            return drive(
                folder,
                watch.connect,
                retry=retry,
                again=again,
                revised=revised,
                on_record=watch.on_record,
                on_pass=watch.on_pass,
            )
    except Detached as left:
        _say_why(folder, left.why)
        raise


@contextmanager
def if_heard() -> Iterator[None]:
    """Run a block that writes to the terminal, and ignore it if the terminal is gone."""
    try:
        yield
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        _silence_lost_terminal()


def _silence_lost_terminal() -> None:
    """Redirect stdout and stderr, if their terminal is gone, to the null device; files stay."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            silence_output(descriptor)


def _say(text: str) -> None:
    """Write to stderr, if that is possible."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _silence_lost_terminal()


def _say_why(folder: RunFolder, why: str) -> None:
    from asa.cli.runs import command
    from asa.strategies.on_pool import POOL

    folder.log_left(why, command("resume", folder))
    happens = "Submitted jobs go on; nothing more is submitted"
    if folder.plan.strategy == POOL:
        happens = "The pool ended with its client; its unfinished stages run again, but not"
    _say(
        f"Stopped. {happens} until you continue.\n  continue: {command('resume', folder)}\n  cancel:   "
        f"{command('cancel', folder)}\n"
    )


class _Departures:
    """Ctrl-C, a closed terminal, a request to end: each stops the client, but not in the middle of a submission.

    A sleeping client stops at once. A busy one stops at its next sleep, or after a second unless it is submitting. A
    second request stops it at once, but not a second SIGHUP: a closed terminal may send that signal twice. A compiler
    cannot be stopped by an exception: the client waits for it for a short time, and then exits without unwinding.

    `leave`: exits at once, with a reason.
    `is_submitting`: returns whether a job was sent whose answer is still missing.
    `is_unattended`: whether to ignore a closed terminal, as under `nohup`.
    """

    def __init__(self, is_submitting: Callable[[], bool], leave: Callable[[str], NoReturn]) -> None:
        self.is_acting = False
        self.is_unattended = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self.why = ""
        self._is_submitting, self._leave = is_submitting, leave
        self._asked_s = math.inf
        self._went_s = -math.inf

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Handle the signals that are not ignored; restore their handlers at the end."""
        numbers = [number for number in _WHY if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._ask) for number in numbers}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._insist)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def rest(self) -> None:
        """Between two steps of work: leave, if that was requested."""
        self.is_acting = False
        if self.why:
            self._go()

    def want(self, why: str) -> None:
        """Leave at the next rest."""
        self.why = self.why or why

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() - self._went_s < _UNWINDING_S:
            return  # the client is already leaving
        is_urged = bool(self.why) and number != signal.SIGHUP
        self.want(_WHY[signal.Signals(number)])
        self._asked_s = min(self._asked_s, time.monotonic())
        if is_urged or not (self.is_acting or _is_compiling(frame)):
            self._go(frame)
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S, _PATIENCE_S)

    def _insist(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's shape
        self.want("it was sent SIGALRM")  # from the user, if nothing was requested before
        self._asked_s = min(self._asked_s, time.monotonic())
        if _is_compiling(frame) and time.monotonic() < self._asked_s + _COMPILING_S:
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S, _PATIENCE_S)  # start the timer even if none was running
        elif not self._is_submitting():
            self._go(frame)

    def _go(self, frame: FrameType | None = None) -> NoReturn:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        if _is_compiling(frame):
            self._leave(self.why)
        self._went_s = time.monotonic()
        raise Detached(self.why)


def _is_compiling(frame: FrameType | None) -> bool:
    """Whether a compiler is running.

    It loses exceptions that are raised in its callbacks from C, and cannot be interrupted.
    """
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] not in _COMPILERS:
        frame = frame.f_back
    return frame is not None


class _Watch:
    """Shows a run while it is driven, and records for other clients that this client is alive."""

    def __init__(
        self,
        folder: RunFolder,
        facility: Facility,
        display: Display,
        exits: ExitStack,
        greeting: str,
        leave: Callable[[str], NoReturn],
    ) -> None:
        from asa.cli.notices import Notices
        from asa.cli.runs import advice_on

        self.departures = _Departures(lambda: folder.is_submitting, leave)
        self._notices = Notices(lambda reason: advice_on(facility, reason), self._remedy)
        self._greeting = greeting
        self._folder, self._facility, self._display, self._exits = folder, facility, display, exits
        self._records: list[Record] = []
        self._state: RunState | None = None
        self._wake_s: float | None = None

    def connect(self, run: RunFolder) -> Backend:
        """Open the batch system, in the folder in which the run was begun."""
        with in_its_folder(run):
            _say(self._greeting)
            run.log_begin()
            connecting = opened(lambda: self._facility.connect(run.path, sleep=self.sleep))
            self._backend = self._exits.enter_context(connecting)
        self._holder = run.driver()
        self._records = run.state()[1]
        self.departures.is_acting = True
        return self._backend

    def on_record(self, record: Record) -> None:
        """Show an event."""
        self._records.append(record)
        self._notice(None)  # an event ends a trouble; the end of the trouble is shown first
        with self._read_by_somebody():
            self._display.happened(record)

    def on_pass(self, states: Sequence[RunState], backend: Backend, wake_s: float | None) -> None:
        """Keep the run's state, to show it while the client sleeps."""
        [self._state], self._wake_s = states, wake_s
        self._heard = backend.condition
        self._notice(self._state)
        self.departures.rest()

    def sleep(self, seconds: float) -> bool:
        """Sleep; meanwhile update the display and record that this client is alive."""
        if self._state is not None:  # without a state, the client is still connecting
            self._notice(self._state)
        self.departures.rest()
        self._sign()
        end_s = time.monotonic() + seconds
        is_wanted = False
        while (left_s := end_s - time.monotonic()) > 0 and not is_wanted:
            due_s = self._display.due_s() if self._state is not None else None
            if due_s is not None and due_s <= 0:
                self._show()
                continue
            is_wanted = self._folder.sleep(left_s if due_s is None else min(left_s, due_s))
        self.departures.is_acting = True
        return is_wanted

    def _notice(self, state: RunState | None) -> None:
        """Show news that is no event of the run: about the batch system, and about its jobs."""
        for notice in self._notices.news(self._backend.condition, state, self._backend.now()):
            with self._read_by_somebody():
                self._display.noticed(notice)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the run until it ends."""
        with ExitStack() as exits:
            with self._read_by_somebody():
                exits.enter_context(self._display)
            yield

    @contextmanager
    def _read_by_somebody(self) -> Iterator[None]:
        """Print something; if the reader is gone, as in `asa run | head`, leave as if the user had left.

        A client continues if it is unattended, its terminal is gone, or its output cannot be written: the run matters
        more.
        """
        try:
            yield
        except BrokenPipeError:
            silence_output()
            if not self.departures.is_unattended:
                self.departures.want(_UNREAD)
        except OSError as error:
            if error.errno == errno.EIO:
                _silence_lost_terminal()

    def _remedy(self, trouble: str) -> str:
        from asa.cli.runs import remedy_on

        return remedy_on(self._facility, self._folder, trouble)

    def _sign(self) -> None:
        """Record for other clients what this client does."""
        if self._state is None or (heard := self._backend.condition) == self._heard:
            return
        self._heard = heard
        self._folder.pulse(heard, self._state, self._wake_s)

    def _show(self) -> None:
        from asa.cli.standing import stand

        assert self._state is not None
        standing = stand(
            self._folder,
            self._state,
            self._records,
            self._backend.now(),
            condition=self._backend.condition,
            next_s=self._wake_s,
            driver=self._holder,
            remedy=self._remedy(self._backend.condition.trouble),
        )
        with self._read_by_somebody():
            self._display.show(standing)


# ---------------------------------------------------------------------- at the end


def tell_end(folder: RunFolder, *, as_json: bool = False) -> int:
    """Report how a run ended and what to do next; return the exit code."""
    from asa.cli.runs import retry_command
    from asa.cli.screen import summary
    from asa.cli.standing import standing_of
    from asa.core.console import Console

    run = standing_of(folder, time.time())
    with if_heard():
        if as_json:
            print_json({"kind": "status", **run.as_dict()}, indent=None)
        elif run.state == "completed":
            console = Console(highlight=False)
            console.print(summary(run))
            console.print(f"All its files are in {folder.path}", style="dim", markup=False, soft_wrap=True)
        elif run.state == "cancelled":
            text = f"{run.name} was cancelled{f': {run.reason}' if run.reason else ''}"
            sys.stderr.write(f"{text}\n{run.tally}.\n  continue:  {retry_command(folder)}\n")
        else:
            _tell_failure(folder, run)
    return 0 if run.state == "completed" else 1


def _tell_failure(folder: RunFolder, run: RunStanding) -> None:
    from asa.cli.logs import last_words, logs_command
    from asa.cli.runs import command, read_state, retry_command
    from asa.cli.stand_ins import remedy_for
    from asa.cli.standing import failed_stages

    state, _ = read_state(folder)
    failed = failed_stages(state)
    lines = [f"{run.name} failed: {run.reason}"]
    if failed:
        lines += _last_words(folder, state, failed[0])
    lines += [f"{run.tally}.", "What now:"]
    if about := [*failed, *state.ending.refused]:
        named = f"explain {about[0]} --run" if len(about) == 1 else "explain --run"
        lines.append(f"  why it failed:      {command(named, folder)}")
    for stage in failed[:_MAX_LISTED]:
        file, last = last_words(folder, state, stage, _LAST_LINES)
        lines.append(f"  its whole output:   {logs_command(folder, stage, file)}")
        lines += [f"  {f'stand-in for {name}:':<18}  {way}" for name, way in [remedy_for(folder, last)] if name]
    lines.append(f"  once it is fixed:   {retry_command(folder)}")
    sys.stderr.write("\n".join(lines) + "\n")


def _last_words(folder: RunFolder, state: RunState, stage: str) -> list[str]:
    from asa.cli.logs import last_words

    file, last = last_words(folder, state, stage, _LAST_LINES)
    if file is None:
        return []
    return [f"Last lines of {file}:", *(f"  {line}" for line in last.splitlines())]
