"""A program's side of the DMR API: asking, and acting on the answers (section 5.1).

Faults of the resource manager do not stop the program. If the manager is missing, dies during a request, or sends
nonsense, the program is told to go on. A manager that does not respond costs little: after a wait in vain, the program
does not ask again for nine times as long.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Self

from asa.core.documents import read_json
from asa.core.parallel import available_cores
from asa.core.peers import stranger_at_socket
from asa.errors import InputError

from .protocol import ADDRESS, JOB, MAX_BYTES, PERIOD, PROCESSES, TIMEOUT, Action, DmrRequest, Reply, Wish, whole

_ANSWER_S = 5.0  # a manager that lives answers at once
_EXPAND_S = 40.0  # about the longest expansion of the paper's Table 2
_LEFT_ALONE = 9.0  # a manager that does not respond costs at most a tenth of the program's time
_SILENT = "the resource manager does not answer"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a check; true if the program has to act.

    Parameters
    ----------
    action
        What to do.
    processes
        How many the program is to have afterwards.
    before
        How many it has.
    why
        In words, for people.
    nodes
        Names of the nodes that came with an expansion, if the batch system names them.
    """

    action: Action
    processes: int
    before: int
    why: str = ""
    nodes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.action is not Action.NONE


class Session:
    """The state between a program and its resource manager.

    The functions of this package use one that is made from the environment at the first call.

    Parameters
    ----------
    address
        Path of the manager's Unix socket; empty where there is none.
    job
        The manager's name of this program's job.
    processes
        How many the program begins with; if not given, as many as the cores that it may use.
    period_s
        Seconds for which checks are ignored after an answer, or after the beginning.
    answer_s
        How many seconds to wait for the manager.
    expand_s
        How many seconds to wait for an expansion, if others have taken its nodes since the answer.
    clock
        In seconds.
    """

    def __init__(
        self,
        address: str = "",
        job: str = "",
        processes: int | None = None,
        *,
        period_s: float = 0.0,
        answer_s: float = _ANSWER_S,
        expand_s: float = _EXPAND_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._job = address, job
        self._processes = available_cores() if processes is None else _at_least_one(processes)
        self._max_processes = self._processes  # the most processes that the program may still have: a shrink may fail
        self._is_period_set = False
        self._period_s = _seconds(period_s, "period_s")
        self._answer_s, self._expand_s = _seconds(answer_s, "answer_s"), _seconds(expand_s, "expand_s")
        self._clock = clock
        self._answered_s = clock()
        self._left_alone_until_s = -math.inf
        self._asked: _Call | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Make a session from a job's environment.

        Raises
        ------
        InputError
            A variable is invalid; `where` is its name.
        """
        variables = os.environ if environment is None else environment
        processes = variables.get(PROCESSES, "")
        session = cls(
            variables.get(ADDRESS, ""),
            variables.get(JOB, ""),
            _at_least_one(processes, PROCESSES) if processes else None,
            period_s=_seconds(variables.get(PERIOD) or 0.0, PERIOD),
            expand_s=_seconds(variables.get(TIMEOUT) or _EXPAND_S, TIMEOUT),
        )
        session._is_period_set = bool(variables.get(PERIOD))
        return session

    @property
    def processes(self) -> int:
        """Number of processes that the program has, or is to have by the last answer."""
        return self._processes

    @property
    def is_managed(self) -> bool:
        """Whether there is a manager."""
        return bool(self._address)

    def inhibit(self, period_s: float) -> None:
        """Ignore checks for some seconds after each answer, unless the user set another period."""
        period_s = _seconds(period_s, "period_s")
        if not self._is_period_set:
            self._period_s = period_s

    def begin_with(self, processes: int) -> None:
        """Set the number of processes with which the program begins, if no manager has given it."""
        processes = _at_least_one(processes)
        if not self.is_managed:
            self._processes = self._max_processes = processes

    def check_status(self, minimum: int, maximum: int, factor: int = 2, preferred: int | None = None) -> Answer:
        """Ask what to do, and wait for the answer; see `check_status`."""
        wish = Wish(minimum, maximum, factor, preferred)
        if silence := self._silence():
            return self._nothing(silence)
        self._forget_asked()
        return self._take(self._call(DmrRequest("check", self._job, self._processes, wish)))

    def icheck_status(self, minimum: int, maximum: int, factor: int = 2, preferred: int | None = None) -> Answer:
        """Ask what to do, and act on the previous answer; see `icheck_status`."""
        wish = Wish(minimum, maximum, factor, preferred)
        if silence := self._silence():
            return self._nothing(silence)
        if self._asked is not None:
            try:
                scheduled = self._asked.reply(0.0)
            except (OSError, ValueError):
                self._forget_asked()
            else:
                if scheduled is None:
                    return self._nothing("the resource manager has not answered yet")
                self._forget_asked()
                if scheduled.action is not Action.NONE:
                    return self._act(scheduled)
        asked = self._begin(DmrRequest("ask", self._job, self._processes, wish))
        if isinstance(asked, str):
            return self._nothing(asked)
        self._asked, self._answered_s = asked, self._clock()
        return self._nothing("what is answered will be done at the next check")

    def acknowledge(self, processes: int | None = None) -> None:
        """Report that the program has resized; see `acknowledge`.

        Parameters
        ----------
        processes
            How many the program has now; as many as were granted if not given.

        Raises
        ------
        InputError
            More than were granted.
        """
        if processes is not None:
            processes = _at_least_one(processes)
            if processes > self._max_processes:
                raise InputError(
                    f"{processes} processes were never granted",
                    where="processes",
                    hint=f"It has {self._max_processes} at most.",
                )
            self._processes = processes
        self._max_processes = self._processes
        if self.is_managed and self._clock() >= self._left_alone_until_s:
            self._call(DmrRequest("done", self._job, self._processes))

    def _silence(self) -> str:
        """Return why the manager is not asked; empty if it is."""
        now_s = self._clock()
        if not self.is_managed:
            return "there is no resource manager that resizes"
        if now_s < self._left_alone_until_s:
            return _SILENT
        if now_s < self._answered_s + self._period_s:
            return "inhibited"
        return ""

    def _act(self, scheduled: Reply) -> Answer:
        """Act on an answer."""
        if scheduled.action is Action.SHRINK:
            return self._take(scheduled)
        request = DmrRequest("expand", self._job, self._processes, to=scheduled.processes, wait_s=self._expand_s)
        return self._take(self._call(request))

    def _take(self, reply: Reply | str) -> Answer:
        """Make an answer from a reply, or from the reason why there is none."""
        if isinstance(reply, str):
            return self._nothing(reply)
        before = self._processes
        changes = {Action.EXPAND: reply.processes > before, Action.SHRINK: 1 <= reply.processes < before}
        self._answered_s = self._clock()
        if reply.action is Action.NONE:
            return self._nothing(reply.why)
        if not changes[reply.action]:
            return self._nothing(f"the answer makes no sense: {reply.action} from {before} to {reply.processes}")
        self._processes, self._max_processes = reply.processes, max(before, reply.processes)
        return Answer(reply.action, reply.processes, before, reply.why, reply.nodes)

    def _nothing(self, why: str) -> Answer:
        return Answer(Action.NONE, self._processes, self._processes, why)

    def _call(self, request: DmrRequest) -> Reply | str:
        """Send to the manager, and return its reply, or the reason why there is none."""
        begun_s = self._clock()
        call = self._begin(request)
        if isinstance(call, str):
            return call
        try:
            reply = call.reply(request.wait_s + self._answer_s)
        except (OSError, ValueError) as error:
            return f"the resource manager's answer was lost: {error}"
        finally:
            call.close()
        return self._leave_alone(begun_s) if reply is None else reply

    def _begin(self, request: DmrRequest) -> _Call | str:
        """Send the manager a request; if it cannot be reached, return the reason in place of the call."""
        begun_s = self._clock()
        try:
            return _Call(self._address, request, self._answer_s)
        except TimeoutError:
            return self._leave_alone(begun_s)
        except OSError as error:
            return f"the resource manager cannot be reached: {error.strerror or error}"

    def _leave_alone(self, since_s: float) -> str:
        """Do not ask for a while; return the reason."""
        now_s = self._clock()
        self._left_alone_until_s = now_s + _LEFT_ALONE * (now_s - since_s)
        return _SILENT

    def _forget_asked(self) -> None:
        if self._asked is not None:
            self._asked.close()
            self._asked = None


class _Call:
    """A request that was sent."""

    def __init__(self, address: str, request: DmrRequest, within_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._heard = b""
        try:
            self._socket.settimeout(within_s)
            self._socket.connect(address)
            self._check_peer()
            self._socket.sendall(json.dumps(request.message()).encode() + b"\n")
        except BaseException:
            self._socket.close()
            raise

    def _check_peer(self) -> None:
        """Refuse to ask another user's process, which may have replaced a manager that is gone, as in ``/tmp``."""
        if who := stranger_at_socket(self._socket):
            raise ConnectionRefusedError(f"{who} answers there")

    def reply(self, within_s: float) -> Reply | None:
        """Read the reply; None if it has not come."""
        until_s = time.monotonic() + within_s
        while not self._heard.endswith(b"\n"):
            self._socket.settimeout(max(until_s - time.monotonic(), 0.0))
            try:
                piece = self._socket.recv(1 << 16)
            except (BlockingIOError, TimeoutError):
                return None
            if not piece or len(self._heard) > MAX_BYTES:
                raise ConnectionError("the connection ended")
            self._heard += piece
        message = read_json(self._heard)
        if not isinstance(message, dict):
            raise ValueError("is no object")  # noqa: TRY004 - the value that was sent is wrong
        return Reply.heard(message)

    def close(self) -> None:
        """Close the call, answered or not."""
        with suppress(OSError):
            self._socket.close()

    def __del__(self) -> None:
        self.close()  # a program may end, or forget its session, before it is answered


@cache
def _session() -> Session:
    return Session.of_environment()


def check_status(minimum: int, maximum: int, factor: int = 2, preferred: int | None = None) -> Answer:
    """Ask the resource manager whether to resize, at a reconfiguration point (``dmr_check_status``, section 5.1).

    If the answer is to expand, the nodes are there. If it is to shrink, surplus processes must end, and then
    `acknowledge` gives their nodes back; so does the next check.

    Parameters
    ----------
    minimum, maximum
        Lower and upper bound of the number of processes. To request an action (section 4.1), set the minimum above the
        present number, or the maximum below it.
    factor
        The number of processes is multiplied or divided by a power of it.
    preferred
        The preferred number of processes, if any (section 4.2).

    Returns
    -------
    Answer
        What to do; false if nothing, as without a manager.

    Raises
    ------
    InputError
        The numbers make no sense; `where` says which.
    """
    return _session().check_status(minimum, maximum, factor, preferred)


def icheck_status(minimum: int, maximum: int, factor: int = 2, preferred: int | None = None) -> Answer:
    """Ask without waiting: the answer is carried out at the next check (``dmr_icheck_status``, section 5.1).

    This hides the time of asking. But the action is one step old: a shrink may no longer help anybody, and others may
    have taken the nodes of an expansion. The program waits for the nodes; if they do not come in time, nothing is done.

    An inhibited check does not count as the next check, so an answer may be as old as the period.

    Parameters
    ----------
    minimum, maximum, factor, preferred
        As for `check_status`.

    Returns
    -------
    Answer
        What to do, by the answer to the previous check.

    Raises
    ------
    InputError
        The numbers make no sense; `where` says which.
    """
    return _session().icheck_status(minimum, maximum, factor, preferred)


def acknowledge(processes: int | None = None) -> None:
    """Report to the resource manager that the program has carried out the answer (the ACKs of section 5.2.2).

    Call it once surplus processes have ended: others then get their nodes. After an expansion it is needed only if the
    program uses fewer processes than granted.

    Parameters
    ----------
    processes
        How many the program has now, if not as many as granted: unused nodes are given back.

    Raises
    ------
    InputError
        So many were never granted.
    """
    _session().acknowledge(processes)


def processes(default: int | None = None) -> int:
    """Return how many processes the program has, by the resource manager.

    Parameters
    ----------
    default
        The number without a manager; if not given, as many as the cores that it may use.
    """
    session = _session()
    if default is not None:
        session.begin_with(default)
    return session.processes


def inhibit(period_s: float) -> None:
    """Ignore checks for a while after each answer (the checking inhibitor, section 5.1).

    Ignored checks cost nothing, and their answer is to go on. This is for programs with short iterations. The first
    period counts from the program's first call of this package. The user's ``ASA_DMR_PERIOD`` takes precedence.

    Parameters
    ----------
    period_s
        In seconds.

    Raises
    ------
    InputError
        It is no valid time.
    """
    _session().inhibit(period_s)


def _at_least_one(value: int | str, where: str = "processes") -> int:
    with suppress(ValueError):
        if (number := int(value) if isinstance(value, str) else whole(value, where)) >= 1:
            return number
    raise InputError(f"{value!r} is no number of processes", where=where, hint="Give 1 or more.")


def _seconds(value: float | str, where: str) -> float:
    with suppress(TypeError, ValueError):
        if 0 <= (seconds := float(value)) < math.inf:
            return seconds
    raise InputError(f"{value!r} is no number of seconds", where=where, hint="Give 0 or more.")
