"""Running one command, for so long and no longer."""

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
    """How a command ended."""

    returncode: int  # its exit status; negative if a signal ended it
    stdout: str = ""
    stderr: str = ""


Runner = Callable[[Sequence[str], str, float], Done]
"""Runs a command with a text as its input, for a number of seconds at most.

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

    `variables`: its environment; this process's if not given.
    `descriptor`: of this process, which the command inherits.

    It has a session of its own: there is no terminal on which ssh could ask for a password, and all that it started can
    be killed with it.

    Raises `TimeoutError`, with its error output: it took longer. Raises `TooLargeError`: it printed more than the
    bound. In both cases it was killed, and may have done its work.

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
    with contextlib.suppress(OSError):  # it has just ended, or belongs to somebody else, as below sudo
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_S)
