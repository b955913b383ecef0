"""A resource manager for this machine that resizes running jobs, for programs that use `asa.dmr`.

Some of the machine's cores count as nodes with one process each. Jobs start in order of submission, without
backfilling, except for a job promoted by a shrink (section 4.3). `policy.decide` decides on resizes, and the steps of
`mechanics.Ledger` carry them out:

- An expansion is a resizer job that is before all others. It waits until its nodes are free, and is cancelled at its
  time-out (section 5.2.1).
- A shrink is for a job that is to start. Its nodes are free when the program has acknowledged that the processes on
  them have ended (section 5.2.2), or has ended itself. Until then they are neither promised again, nor used for an
  expansion.

When a job ends, processes that it leaves are killed, and all its nodes are free.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from asa.backends.local.processes import tell_session

from asa.backend import JobState
from asa.core import temporary
from asa.dmr.protocol import ADDRESS, JOB, PROCESSES, Action, DmrRequest, Reply, Wish, whole
from asa.errors import InputError

from . import policy
from .desk import ManagerDesk
from .mechanics import Ledger, Resizer

SOCKET = "socket"
"""Name of the socket in its folder."""

_GRACE_S = 2.0  # time for processes to end after a signal
_LOOK_S = 0.02


@dataclass(slots=True)
class ManagedJob:
    """A job of a `LocalManager`."""

    number: int
    name: str
    nodes: int
    output: Path  # file of its output
    submit_s: float
    state: JobState = JobState.PENDING
    start_s: float | None = None
    end_s: float | None = None
    exit_code: int | None = None  # exit code of its process; negative for a signal
    reason: str = ""  # reason if it could not be started
    sizes: list[tuple[float, int]] = field(default_factory=list)  # times of its changes of size, and numbers of nodes


@dataclass(slots=True)
class _RunningProgram:
    job: ManagedJob
    process: subprocess.Popen[bytes]
    target: int | None = None  # target size of a shrink
    is_cancelled: bool = False


class LocalManager:
    """Runs jobs on some nodes of this machine, and resizes those that ask; a context manager, which ends all of them.

    `grows`: whether a running job can get more nodes. Some batch systems can only take nodes back.
    `folder`: folder of its socket and of jobs' output; a temporary one, if not given.

    Examples
    --------
    >>> with LocalManager(4) as manager:  # doctest: +SKIP
    ...     program = manager.submit(["python", "program.py"], nodes=4)
    ...     manager.wait(program)
    """

    def __init__(
        self,
        nodes: int,
        *,
        grows: bool = True,
        folder: Path | None = None,
        tell: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if nodes < 1:
            raise InputError(f"{nodes} nodes cannot run jobs", where="nodes", hint="Give 1 or more.")
        self._ledger = Ledger(nodes)
        self._grows, self._clock = grows, clock
        self._tell = tell or (lambda _: None)
        self._changed = threading.Condition()
        self._jobs: dict[int, ManagedJob] = {}
        self._orders: dict[int, tuple[list[str], dict[str, str], str]] = {}  # for waiting jobs, in their order
        self._promoted: list[int] = []
        self._resizers: dict[int, Resizer] = {}
        self._running: dict[int, _RunningProgram] = {}
        self._watchers: list[threading.Thread] = []
        self._is_closed = False
        self._temporary = None
        if folder is None:
            self._temporary = temporary.folder("asa-dmr-")
            folder = Path(self._temporary.name)
        self._folder = folder
        self._desk = ManagerDesk(self._folder / SOCKET, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> Path:
        """Path of its socket."""
        return self._desk.path

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self._ledger.nodes

    @property
    def free(self) -> int:
        """Number of idle nodes."""
        with self._changed:
            return self._ledger.free

    # ------------------------------------------------------------------ users

    def submit(
        self,
        command: Sequence[str],
        nodes: int,
        *,
        name: str = "",
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> int:
        """Submit a job, and return its number."""
        if not command:
            raise InputError("has no command", where="job", hint="Name a program, and its arguments.")
        if not 1 <= nodes <= self.nodes:
            raise InputError(
                f"asks for {nodes} nodes, and there are {self.nodes}",
                where=f"job {name or command[0]!r}",
                hint=f"Ask for 1 to {self.nodes}.",
            )
        with self._changed:
            if self._is_closed:
                raise InputError("the manager is closed", where=f"job {name or command[0]!r}", hint="Start another.")
            number = len(self._jobs) + 1
            output = self._folder / f"{number}.out"
            name = name or Path(command[0]).name
            self._jobs[number] = ManagedJob(number, name, nodes, output, self._clock())
            variables = dict(os.environ if environment is None else environment)
            self._orders[number] = list(command), variables, str(folder or Path.cwd())
            self._tell(f"job {number} ({name}) asks for {nodes} nodes")
            self._schedule()
        return number

    def cancel(self, number: int) -> None:
        """Cancel a job; an ended one is ignored."""
        with self._changed:
            if self._orders.pop(number, None) is not None:
                self._end(self._jobs[number], JobState.CANCELLED)
            elif (running := self._running.get(number)) is not None:
                running.is_cancelled = True
                tell_session(running.process.pid, signal.SIGTERM)

    def job(self, number: int) -> ManagedJob:
        """Return the present state of a job."""
        with self._changed:
            job = self._jobs[number]
            return replace(job, sizes=list(job.sizes))

    def wait(self, number: int, timeout_s: float | None = None) -> ManagedJob:
        """Wait for a job's end, or until the timeout, and return its state."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs[number].state.is_final, timeout_s)
            return self.job(number)

    def close(self) -> None:
        """End all jobs, and stop answering."""
        with self._changed:
            self._is_closed = True
            for number in [*self._orders, *self._running]:
                self.cancel(number)
            self._changed.notify_all()
        for watcher in self._watchers:
            watcher.join(_GRACE_S)
        with self._changed:
            for running in self._running.values():
                tell_session(running.process.pid, signal.SIGKILL)
        for watcher in self._watchers:
            watcher.join()
        self._desk.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    # ------------------------------------------------------------------ programs

    def reply(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a program, or the submitter of a job; see `Clerk`."""
        if message.get("what") == "submit":
            return self._take_in(message)
        request = DmrRequest.heard(message)
        with self._changed:
            running = self._running.get(int(request.job)) if request.job.isdecimal() else None
            if running is None:
                return Reply(Action.NONE, request.processes, f"no job {request.job!r} runs here").message()
            allocated = self._allocated(running)
            if request.processes > allocated:
                why = f"job {request.job} holds {allocated} nodes, and says that it has {request.processes} processes"
                return Reply(Action.NONE, allocated, why).message()
            self._settle(running, request.processes)
            return self._answer(running, request).message()

    def _answer(self, running: _RunningProgram, request: DmrRequest) -> Reply:
        """Answer a program with a known number of processes."""
        if request.what == "expand":
            return self._expand(running, request.to, request.wait_s)
        if request.wish is None:
            return Reply(Action.NONE, request.processes, "acknowledged")
        answer = self._decide(running, request.wish)
        if request.what == "check" and answer.action is Action.EXPAND:
            granted = self._expand(running, answer.processes, 0.0)
            return replace(granted, why=granted.why or answer.why)
        return answer

    def unheard(self, message: Mapping[str, Any]) -> None:
        """Undo an answer that a program did not receive; see `Clerk`."""
        if message.get("what") == "submit":
            return  # the job was submitted on purpose, even if the client is gone
        request = DmrRequest.heard(message)
        with self._changed:
            running = self._running.get(int(request.job)) if request.job.isdecimal() else None
            if running is not None and request.processes <= self._allocated(running):
                self._settle(running, request.processes)

    def _take_in(self, submission: Mapping[str, Any]) -> dict[str, Any]:
        try:
            environment = dict(submission["environment"])
            number = self.submit(
                _texts(submission["command"]),
                whole(submission["nodes"], "nodes"),
                name=_texts([submission["name"]])[0],
                environment=dict(zip(_texts(environment), _texts(environment.values()), strict=True)),
                folder=Path(submission["folder"]),
            )
        except InputError as error:
            return {"error": error.message, "where": error.where, "hint": error.hint}
        except (KeyError, TypeError) as error:
            raise ValueError(f"cannot be understood: {error}") from error
        return {"job": number, "output": str(self._jobs[number].output)}

    def _allocated(self, running: _RunningProgram) -> int:
        return self._ledger.allocated[running.job.number]

    def _settle(self, running: _RunningProgram, processes: int) -> None:
        """Take back nodes without processes of the program."""
        running.target = None
        if processes < self._allocated(running):
            self._ledger.lower(running.job.number, processes)
            self._resized(running)
            self._schedule()

    def _resized(self, running: _RunningProgram) -> None:
        job, allocated = running.job, self._allocated(running)
        self._tell(f"job {job.number} ({job.name}) has {allocated} nodes, and had {job.sizes[-1][1]}")
        job.sizes.append((self._clock(), allocated))

    def _decide(self, running: _RunningProgram, wish: Wish) -> Reply:
        """Ask the policy, with the nodes and jobs that have no part in earlier promises."""
        allocated = self._allocated(running)
        coming = sum(self._allocated(job) - job.target for job in self._running.values() if job.target is not None)
        coming -= sum(resizer.nodes for resizer in self._resizers.values())
        queue = self._queue()
        needs = [job.nodes for job in queue]
        free, places = policy.unpromised(self._ledger.free, coming, needs, len(self._promoted))
        waiting = [queue[place] for place in places]
        answer = policy.decide(allocated, wish, free=free, queued=[job.nodes for job in waiting])
        if answer.action is Action.EXPAND and not self._grows:
            return Reply(Action.NONE, allocated, "nodes can only be given back here")
        promoted = None if answer.promotes is None else waiting[answer.promotes]
        if answer.action is Action.SHRINK:
            running.target = answer.nodes
        if promoted is not None and promoted.number not in self._promoted:
            self._promoted.append(promoted.number)
        return Reply(answer.action, answer.nodes, _why(answer, allocated, wish, promoted, waiting))

    def _expand(self, running: _RunningProgram, nodes: int, wait_s: float) -> Reply:
        """Expand a job by a resizer job, and wait for it."""
        number, allocated = running.job.number, self._allocated(running)
        if not self._grows or not allocated < nodes <= self.nodes:
            return Reply(Action.NONE, allocated, f"job {number} of {allocated} nodes cannot be given {nodes} here")
        resizer = self._resizers[number] = Resizer(number, nodes - allocated, self._clock() + wait_s)
        self._schedule()
        self._changed.wait_for(
            lambda: number not in self._resizers or self._is_closed, min(wait_s, threading.TIMEOUT_MAX)
        )
        if self._resizers.get(number) is resizer:
            del self._resizers[number]
            self._schedule()
            return Reply(Action.NONE, allocated, f"{resizer.nodes} nodes did not come free in {wait_s:g} s")
        if number not in self._running:
            return Reply(Action.NONE, allocated, "the job has ended")
        return Reply(Action.EXPAND, nodes, "" if not wait_s else "its nodes are free")

    # ------------------------------------------------------------------ jobs

    def _schedule(self) -> None:
        """Start and expand all jobs that are allowed to, in order."""
        for number, resizer in list(self._resizers.items()):
            if resizer.nodes > self._ledger.free:
                break
            del self._resizers[number]
            self._ledger.expand(resizer, number=-number)
            self._resized(self._running[number])
        else:
            for job in self._queue():
                if job.nodes > self._ledger.free:
                    break
                self._start(job)
        self._changed.notify_all()

    def _queue(self) -> list[ManagedJob]:
        """Return the waiting jobs, in order."""
        others = [number for number in self._orders if number not in self._promoted]
        return [self._jobs[number] for number in (*self._promoted, *others)]

    def _start(self, job: ManagedJob) -> None:
        command, environment, folder = self._orders.pop(job.number)
        if job.number in self._promoted:
            self._promoted.remove(job.number)
        variables = {ADDRESS: str(self.address), JOB: str(job.number), PROCESSES: str(job.nodes)}
        try:
            with job.output.open("wb") as output:
                process = subprocess.Popen(  # noqa: S603 - the user's own command
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env={**environment, **variables},
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            job.reason = f"cannot be started: {error}"
            self._end(job, JobState.FAILED)
            return
        self._ledger.allocate(job.number, job.nodes)
        job.state, job.start_s = JobState.RUNNING, self._clock()
        job.sizes.append((job.start_s, job.nodes))
        running = self._running[job.number] = _RunningProgram(job, process)
        self._tell(f"job {job.number} ({job.name}) starts on {job.nodes} nodes")
        watcher = threading.Thread(target=self._watch, args=(running,), daemon=True)
        self._watchers = [*(thread for thread in self._watchers if thread.is_alive()), watcher]
        watcher.start()

    def _watch(self, running: _RunningProgram) -> None:
        """Wait for a job's end, and end its remaining processes. Its process id is not reused before."""
        job, process = running.job, running.process
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        _end_rest(process.pid)
        with self._changed:
            job.exit_code = process.wait()
            self._resizers.pop(job.number, None)
            del self._running[job.number]
            self._ledger.end(job.number)
            if running.is_cancelled:
                self._end(job, JobState.CANCELLED)
            else:
                self._end(job, JobState.FAILED if process.returncode else JobState.COMPLETED)
            self._schedule()

    def _end(self, job: ManagedJob, state: JobState) -> None:
        job.state, job.end_s = state, self._clock()
        if job.number in self._promoted:
            self._promoted.remove(job.number)
        code = "" if job.exit_code is None else f", exit code {job.exit_code}"
        self._tell(f"job {job.number} ({job.name}) is {state}{code}{f': {job.reason}' if job.reason else ''}")
        self._changed.notify_all()


def _end_rest(session: int) -> None:
    """End processes left by a job's first process, with time to clean up."""
    deadline_s = time.monotonic() + _GRACE_S
    tell_session(session, signal.SIGTERM)
    while _has_others(session) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
    tell_session(session, signal.SIGKILL)


def _has_others(session: int) -> bool:
    """Whether a session has more processes than the first."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != session:
            with suppress(OSError, ProcessLookupError):
                if os.getsid(int(entry.name)) == session:
                    return True
    return False


def _texts(given: Iterable[Any]) -> list[str]:
    """Return texts of a message. Raises `TypeError`: there is something else among them."""
    texts = list(given)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("what is to be text is something else")
    return texts


def _why(
    answer: policy.PolicyAnswer, allocated: int, wish: Wish, promoted: ManagedJob | None, waiting: Sequence[ManagedJob]
) -> str:
    """Describe the reason of an answer."""
    if answer.action is Action.NONE:
        return "nothing is gained by a change"
    if allocated < wish.minimum or allocated > wish.maximum:
        return "the program asks for it"
    if promoted is not None:
        return f"lets job {promoted.number} ({promoted.name}) start on {promoted.nodes} nodes"
    if answer.action is Action.SHRINK:
        return "the program prefers fewer, and others wait"
    if wish.preferred is not None and waiting:
        return "the program prefers more"
    return "no waiting job can use the free nodes" if waiting else "nodes are free, and nobody waits"
