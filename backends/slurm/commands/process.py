"""Running one command, for so long and no longer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_LAST_WORDS_S = 1.0


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    returncode: int  # its exit status; negative if a signal ended it
    stdout: str = ""
    stderr: str = ""


Runner = Callable[[Sequence[str], str, float], Done]
"""Runs a command with some text as its input, for so many seconds at most.

It raises `TimeoutError` if the command took longer, and another `OSError` if it could not be started.
"""


def run(
    command: Sequence[str],
    stdin: str,
    timeout_s: float,
    *,
    variables: Mapping[str, str] | None = None,
    descriptor: int | None = None,
) -> Done:
    """Run a command to its end.

    `variables`: its environment; this process's if not given. `descriptor`: of this process, which it has, too.

    It has a session of its own: no terminal that ssh could ask for a password, and whatever it started can be ended
    together with it.

    Raises `TimeoutError`: it took longer; with what it had printed as errors until then.

    Examples
    --------
    >>> run(["tr", "a-z", "A-Z"], "squeue", 10.0)
    Done(returncode=0, stdout='SQUEUE', stderr='')
    """
    process = subprocess.Popen(  # noqa: S603 - the commands are ours, the prefix is the user's
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=variables,
        pass_fds=() if descriptor is None else (descriptor,),
    )
    try:
        stdout, stderr = process.communicate(stdin.encode(errors="surrogateescape"), timeout_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError(_text(_end(process))) from None
    except BaseException:
        _end(process)
        raise
    return Done(process.returncode, _text(stdout), _text(stderr))


def _text(printed: bytes) -> str:
    return printed.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> bytes:
    """Kill a command with its children; return what it had printed as errors."""
    with contextlib.suppress(OSError):  # it has just ended, or belongs to somebody else, as below sudo
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=_LAST_WORDS_S)[1]
    except subprocess.TimeoutExpired as error:  # something that left the session holds the pipes
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS_S)
        return error.stderr or b""
