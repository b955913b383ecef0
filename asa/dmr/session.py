"""A program's end of the DMR API: asking, and what becomes of the answers (section 5.1).

No trouble of the resource manager is one of the program. It may not be there, die while it is asked, or say what makes
no sense: the answer is then to go on. One that is there and does not answer costs little: it is left alone for nine
times as long as it was waited for in vain.
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
_LEFT_ALONE = 9.0  # a manager that hangs costs at most a tenth of the program's time
_SILENT = "the resource manager does not answer"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a check came to. It is true where there is something to do.

    Parameters
    ----------
    action
        What to do.
    processes
        How many the program is to have then.
    before
        How many it has.
    why
        In words, for people.
    """

    action: Action
    processes: int
    before: int
    why: str = ""

    def __bool__(self) -> bool:
        return self.action is not Action.NONE


class Session:
    """What a program and its resource manager know of each other.

    The functions of this package act on one that is made of the environment when the first of them is called.

    Parameters
    ----------
    address
        Path of the manager's Unix socket; empty where there is none.
    job
        How it calls this program's job.
    processes
        With how many the program begins; as many as it may use cores, if not given.
    period_s
        For so many seconds after a check was answered, or after the beginning, checks are ignored.
    answer_s
        The manager is waited for so many seconds.
    expand_s
        An expansion is waited for so many seconds, should others have taken its nodes since it was answered.
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
        self._max_processes = self._processes  # that it may turn out to have: a shrink may fail
        self._is_period_set = False
        self._period_s = _seconds(period_s, "period_s")
        self._answer_s, self._expand_s = _seconds(answer_s, "answer_s"), _seconds(expand_s, "expand_s")
        self._clock = clock
        self._answered_s = clock()
        self._left_alone_until_s = -math.inf
        self._asked: _Call | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Make one as a job's environment says.

        Raises
        ------
        InputError
            A variable makes no sense; `where` is its name.
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
        """How many processes the program has, or is to have as it was last answered."""
        return self._processes

    @property
    def is_managed(self) -> bool:
        """Whether there is somebody to ask."""
        return bool(self._address)

    def inhibit(self, period_s: float) -> None:
        """Ignore checks for so many seconds after each that was answered, unless the user set another period."""
        period_s = _seconds(period_s, "period_s")
        if not self._is_period_set:
            self._period_s = period_s

    def begin_with(self, processes: int) -> None:
        """Say with how many processes the program begins, where no manager has said it."""
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
        """Ask what to do, and do what was answered the time before; see `icheck_status`."""
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
        """Say that it is done; see `acknowledge`.

        Parameters
        ----------
        processes
            How many the program has now; those that it was granted if not given.

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
        """Say why the manager is not asked; empty if it is."""
        now_s = self._clock()
        if not self.is_managed:
            return "there is no resource manager that resizes"
        if now_s < self._left_alone_until_s:
            return _SILENT
        if now_s < self._answered_s + self._period_s:
            return "inhibited"
        return ""

    def _act(self, scheduled: Reply) -> Answer:
        """Do what was true when it was asked for."""
        if scheduled.action is Action.SHRINK:
            return self._take(scheduled)
        request = DmrRequest("expand", self._job, self._processes, to=scheduled.processes, wait_s=self._expand_s)
        return self._take(self._call(request))

    def _take(self, reply: Reply | str) -> Answer:
        """Make an answer of a reply, or of why there is none."""
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
        return Answer(reply.action, reply.processes, before, reply.why)

    def _nothing(self, why: str) -> Answer:
        return Answer(Action.NONE, self._processes, self._processes, why)

    def _call(self, request: DmrRequest) -> Reply | str:
        """Tell the manager, and wait for its reply; in place of that, say why there is none."""
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
        """Tell the manager; in place of the call, say why it cannot be reached."""
        begun_s = self._clock()
        try:
            return _Call(self._address, request, self._answer_s)
        except TimeoutError:
            return self._leave_alone(begun_s)
        except OSError as error:
            return f"the resource manager cannot be reached: {error.strerror or error}"

    def _leave_alone(self, since_s: float) -> str:
        """Ask no more for a while, and say so."""
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
        """Ask nobody else, who may have taken the place, as in ``/tmp``, of a manager that is gone."""
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
            raise ValueError("is no object")  # noqa: TRY004 - it is about what was sent
        return Reply.heard(message)

    def close(self) -> None:
        """Be done with it, answered or not."""
        with suppress(OSError):
            self._socket.close()

    def __del__(self) -> None:
        self.close()  # a program may end, or forget its session, before it is answered


@cache
def _session() -> Session:
    return Session.of_environment()


def check_status(minimum: int, maximum: int, factor: int = 2, preferred: int | None = None) -> Answer:
    """Ask the resource manager whether to resize, at a reconfiguration point (``dmr_check_status``, section 5.1).

    Where the answer is to expand, the nodes are there. Where it is to shrink, the processes that leave are to end, and
    then `acknowledge` gives their nodes back; the next check does so too.

    Parameters
    ----------
    minimum, maximum
        Numbers of processes to be resized to at least and at most. To request an action (section 4.1), set the minimum
        above what the program has, or the maximum below it.
    factor
        The number of processes is multiplied or divided by it, or by a power of it.
    preferred
        The number of processes that the program prefers, if it does (section 4.2).

    Returns
    -------
    Answer
        What to do; false if nothing, as where no manager is there to be asked.

    Raises
    ------
    InputError
        The numbers make no sense; `where` says which.
    """
    return _session().check_status(minimum, maximum, factor, preferred)


def icheck_status(minimum: int, maximum: int, factor: int = 2, preferred: int | None = None) -> Answer:
    """Ask, and wait for nothing: the answer is done at the next check (``dmr_icheck_status``, section 5.1).

    It saves the time of asking. But what is done was best a step ago: a shrink may help nobody any more, and others may
    have taken the nodes of an expansion. Those are waited for, and if they do not come in time nothing is done.

    Checks that are inhibited are no checks: with a period, an answer is as old.

    Parameters
    ----------
    minimum, maximum, factor, preferred
        As for `check_status`.

    Returns
    -------
    Answer
        What to do by the answer to the check before.

    Raises
    ------
    InputError
        The numbers make no sense; `where` says which.
    """
    return _session().icheck_status(minimum, maximum, factor, preferred)


def acknowledge(processes: int | None = None) -> None:
    """Tell the resource manager that the program has done what it was answered (the ACKs of section 5.2.2).

    Call it once the processes that leave have ended: others get their nodes then. After an expansion it need not be
    called, unless the program made less of it.

    Parameters
    ----------
    processes
        How many the program has now, where that is not what was answered: nodes that it does not use go back.

    Raises
    ------
    InputError
        So many were never granted.
    """
    _session().acknowledge(processes)


def processes(default: int | None = None) -> int:
    """Tell how many processes the program has, by the resource manager.

    Parameters
    ----------
    default
        How many it has where no manager says; if not given, as many as it may use cores.
    """
    session = _session()
    if default is not None:
        session.begin_with(default)
    return session.processes


def inhibit(period_s: float) -> None:
    """Let checks be ignored for a while after each that was answered (the checking inhibitor, section 5.1).

    Ignored checks cost nothing and answer nothing. It is for programs with short iterations. The period counts from the
    program's first call of this package at first. The user's ``ASA_DMR_PERIOD`` goes before it.

    Parameters
    ----------
    period_s
        In seconds.

    Raises
    ------
    InputError
        It is no time.
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
