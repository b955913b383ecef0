"""Processes that outlive their parent: starting them, recognizing them, signalling them to end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from .spool import JobOrder, process_space

UNBEGUN_EXIT = 88
"""Exit code of a job's first process which could not write down that it began, or had a duplicate that did."""

NO_OUTPUT = "no output"
"""Replaces an exit code if a job's output cannot be written."""

_FIRST_PROCESS = Path(__file__).with_name("first.sh").read_text("utf-8")  # not of `asa.job`: a server is without asa


@dataclass(frozen=True, slots=True)
class Doing:
    """A process that runs a job."""

    boot: str  # which start of the computer it belongs to
    space: str  # in which space its number means something
    pid: int  # its number, and that of its session
    start: str  # when it began, in ticks since then: a number may be given away again, not with the same beginning

    @property
    def is_seen(self) -> bool:
        """Whether it could be seen from here if it runs."""
        return self.space == process_space()

    @property
    def is_alive(self) -> bool:
        """Whether it runs, if it could be seen."""
        if self.boot != boot():
            return False
        fields = _stat(self.pid)
        return fields is not None and fields[0] not in "ZX" and fields[19] == self.start

    def watch(self) -> int | None:
        """Open what can be waited on for its end; None where the system has no such thing, or it has ended."""
        try:
            watched = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.is_alive:  # what was opened is it, and no other of its number
            return watched
        os.close(watched)
        return None

    def end_rest(self) -> None:
        """Kill what it left behind once it is no more: while anything is, its number is not given away again."""
        fields = _stat(self.pid)
        if self.boot != boot() or not self.is_seen or (fields is not None and fields[19] != self.start):
            return
        for pid in list(_in_session(self.pid)):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


@cache
def boot() -> str:
    """Tell one start of the computer from the next."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def begin(folder: Path, order: JobOrder) -> subprocess.Popen[bytes]:
    """Start a job's first process, in a session of its own.

    Raises `OSError`: there are too many processes, or its variables are too long.
    """
    identity = f"{boot()} {process_space()}"
    is_alike = set(order.affinity or os.sched_getaffinity(0)) == os.sched_getaffinity(0) and order.nice == _nice()
    return subprocess.Popen(  # noqa: S603 - what the user wants run
        ["/bin/sh", "-c", _FIRST_PROCESS, "asa-job", str(folder), identity, order.stdout, order.stderr],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**order.environment, "ASA_JOB_ID": order.job_id},
        start_new_session=True,
        umask=order.umask,
        preexec_fn=None if is_alike else partial(_become_alike, order),  # noqa: PLW1509 - the server has one thread
    )


def _nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def _become_alike(order: JobOrder) -> None:
    """Take the cores and the priority of the client that ordered this, as far as allowed."""
    with suppress(OSError, ValueError):
        if order.affinity:
            os.sched_setaffinity(0, order.affinity)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, order.nice)


def doing_of(folder: Path) -> Doing | None:
    """Read which process runs a job; None if that is not written down, or not wholly."""
    try:
        text = (folder / "process").read_text(encoding="utf-8", errors="replace")
        head, _, tail = text.rpartition(")")
        boot_id, space, pid = head.split(" ", 3)[:3]
        return Doing(boot_id, space, int(pid), tail.split()[19])
    except (FileNotFoundError, ValueError, IndexError):
        return None


def code_of(folder: Path) -> int | str | None:
    """Read how a job's payload ended: an exit code, or words in its place; None if that is not written down."""
    try:
        text = (folder / "code").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return None
    if not text.endswith("\n"):
        return None
    return int(text) if text.strip().isdigit() else text.strip()


def tell_session(pid: int, number: signal.Signals, *, whole: bool = True) -> None:
    """Signal all processes of a session, or only those in the group of its first process, which is quicker."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
    for other in list(_in_session(pid, but_group=pid)) if whole else ():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(other, number)


def _in_session(session: int, but_group: int = 0) -> Iterator[int]:
    """Tell the processes of a session; those in one group may be left out."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        fields = _stat(pid)
        if fields is not None and fields[3] == str(session) and fields[2] != str(but_group):
            yield pid


def _stat(pid: int) -> list[str] | None:
    """Tell what the system says of a process, from its state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
