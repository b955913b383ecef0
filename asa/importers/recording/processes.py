"""Finds from a driver's processes whether it only waits for ``sbatch --wait``, and which processes know of its end.

Elapsed time tells neither: on a login node under load a driver may need seconds from one call to the next. A driver
waits if none of its processes runs or is about to run.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAX_COMMAND_BYTES: Final = 1 << 20
_PROC: Final = Path("/proc")
_OF_VIEW: Final = re.compile(r"^.*/asa-record-[^/]*/root(?=/|$)")
_BETWEEN_SAMPLES_S: Final = 0.01
_RESTLESS_S: Final = 0.5  # a process that only polls, such as GNU parallel, starts no other in this time
# system call numbers of nanosleep and clock_nanosleep on x86 and ARM
_SLEEPS: Final = frozenset({"35", "230", "101", "115"})


@dataclass(frozen=True, slots=True)
class Process:
    """A process, distinguished from later processes with the same number."""

    number: int
    began_ticks: int  # clock ticks after the start of the system

    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        seen = _stat(self.number)
        return seen is not None and seen.began_ticks == self.began_ticks and seen.state != "Z"

    def words_and_folder(self) -> tuple[list[str], Path]:
        """Return the process's command line, and its current folder as it sees it; no words if it has ended."""
        try:
            with Path(_PROC, str(self.number), "cmdline").open("rb") as file:
                words = file.read(_MAX_COMMAND_BYTES).decode(errors="surrogateescape")
            folder = str(Path(_PROC, str(self.number), "cwd").readlink())
            return words.split("\0")[:-1], Path(_OF_VIEW.sub("", folder) or "/")
        except OSError:
            return [], Path()


@dataclass(frozen=True, slots=True)
class EndOfWait:
    """The end of an ``sbatch --wait``: the processes that called it, the nearest first, and when it ended."""

    lineage: tuple[Process, ...]
    ended_ticks: int
    slept: int  # how often the driver had slept at that time

    def is_known_to(self, lineage: Sequence[Process], slept: int) -> bool:
        """Whether a process with this lineage may know that this ``sbatch --wait`` has ended.

        The call's nearest living ancestor knows it, and so do processes that this ancestor started after the end. If
        the driver has slept since, any of its processes may know it by other means.
        """
        knowing = next((process for process in self.lineage[1:] if process.is_alive()), None)
        if not lineage or knowing is None or slept > self.slept:
            return True
        if knowing not in lineage:
            return False
        index = lineage.index(knowing)
        return index == 0 or lineage[index - 1].began_ticks >= self.ended_ticks


def now_ticks() -> int:
    """Return the time in clock ticks after the start of the system."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def lineage_of(number: int, top: int) -> tuple[Process, ...]:
    """Return a process and its ancestors, up to the child of the top process."""
    lineage: list[Process] = []
    while number not in {top, 0, 1} and (seen := _stat(number)) is not None:
        lineage.append(Process(number, seen.began_ticks))
        number = seen.parent
    return tuple(lineage)


def is_idle(top: int, waiting: frozenset[int], stand_ins: str) -> bool:
    """Whether a driver does nothing until a stand-in that waits is answered.

    `top`: the process that started the driver; it does not count. `stand_ins`: text in the command line of each
    stand-in.
    """
    first = _sample(top)
    until_s = time.monotonic() + _RESTLESS_S
    while first and _all_wait(first, waiting, stand_ins):
        time.sleep(_BETWEEN_SAMPLES_S)
        second = _sample(top)
        if second is None or second.keys() != first.keys():
            return False
        if second == first:
            return not any(_sleeps(number) for number in first)
        if time.monotonic() > until_s:
            return _all_wait(second, waiting, stand_ins)
        first = second
    return False


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    parent: int
    began_ticks: int


def _stat(number: int) -> _Stat | None:
    try:
        fields = _read(number, "stat").rpartition(")")[2].split()
        return _Stat(fields[0], int(fields[1]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _sample(top: int) -> dict[int, tuple[str, ...]] | None:
    """Return the state and the number of waits of each descendant's threads; None if unknown."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (seen := _stat(int(entry.name))) is not None and seen.state != "Z":
            children.setdefault(seen.parent, []).append(int(entry.name))
    samples: dict[int, tuple[str, ...]] = {}
    left = list(children.get(top, ()))
    while left:
        number = left.pop()
        left += children.get(number, ())
        try:
            samples[number] = tuple(
                "".join(_of_thread(_read(number, f"task/{thread.name}/status")))
                for thread in sorted(Path(_PROC, str(number), "task").iterdir())
            )
        except OSError:
            return None
    return samples


def _of_thread(status: str) -> list[str]:
    lines = status.splitlines()
    return [line for line in lines if line.startswith(("State:", "voluntary_ctxt", "nonvoluntary_ctxt"))]


def _all_wait(sample: Mapping[int, tuple[str, ...]], waiting: frozenset[int], stand_ins: str) -> bool:
    """Whether no process runs, and no stand-in has a call that was not received yet."""
    if not all(thread.startswith(("State:\tS", "State:\tT")) for threads in sample.values() for thread in threads):
        return False
    return not any(stand_ins in _command_line(number) for number in sample.keys() - waiting)


def _command_line(number: int) -> str:
    try:
        with Path(_PROC, str(number), "cmdline").open("rb") as file:
            return file.read(_MAX_COMMAND_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _read(number: int, what: str) -> str:
    with Path(_PROC, str(number), what).open(errors="replace") as file:
        return file.read(_MAX_COMMAND_BYTES)


def _sleeps(number: int) -> bool:
    """Whether a process sleeps for a time, and so continues by itself."""
    try:
        with Path(_PROC, str(number), "syscall").open() as file:
            return file.read(_MAX_COMMAND_BYTES).partition(" ")[0] in _SLEEPS
    except OSError:
        return False
