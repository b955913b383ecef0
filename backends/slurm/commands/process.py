"""Runs a command with a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from asa.core.reading import OUTPUT_BYTES, received

_ENDS_S = 1.0


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a command."""

    returncode: int  # its exit status; negative if a signal ended it
    stdout: str = ""
    stderr: str = ""


Runner = Callable[[Sequence[str], str, float], Done]
"""Runs a command with a text as its input, within a number of seconds.

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
    """Run a command, and wait for its end.

    `variables`: its environment; by default this process's.
    `descriptor`: a file descriptor of this process that the command inherits.

    It has its own session: there is no terminal on which ssh could ask for a password, and its children can be killed
    with it.

    Raises `TimeoutError`, with its error output: it took longer. Raises `TooLargeError`: its output exceeded the bound.
    In both cases it was killed, and may have done its work.

    Examples
    --------
    >>> run(["tr", "a-z", "A-Z"], "squeue", 10.0)
    Done(returncode=0, stdout='SQUEUE', stderr='')
    """
    process = subprocess.Popen(  # noqa: S603 - our commands, with the user's prefix
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=variables,
        pass_fds=() if descriptor is None else (descriptor,),
    )
    try:
        given = stdin.encode(errors="surrogateescape")
        stdout, stderr = received(process, given, timeout_s, OUTPUT_BYTES, command[0])
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise TimeoutError(_text(error.stderr or b"")) from None
    except BaseException:
        _end(process)
        raise
    return Done(process.returncode, _text(stdout), _text(stderr))


def _text(printed: bytes) -> str:
    return printed.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with its children."""
    with contextlib.suppress(OSError):  # it has just ended, or belongs to another user, as below sudo
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_S)
