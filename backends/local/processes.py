"""Processes that outlive their parent: starts, recognizes and signals them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from .spool import JobOrder, contents, process_space

UNBEGUN_EXIT = 88
"""Exit code of a job's first process that could not record its start, or that found a duplicate."""

NO_OUTPUT = "no output"
"""Replaces an exit code if a job's output cannot be written."""

_MAX_PID = 1 << 22  # of Linux
_LONGEST_CODE = 3

# not in `asa.job`, since a server runs without asa
_FIRST_PROCESS = Path(__file__).with_name("first.sh").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Doing:
    """A process that runs a job."""

    boot: str  # identifies the boot of the computer
    space: str  # namespace of its number
    pid: int  # its number, which is also that of its session
    start: str  # its start in ticks after the boot: a number may be reused, but not with the same start

    @property
    def is_seen(self) -> bool:
        """Whether the process would be visible from here if it runs."""
        return self.space == process_space()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, in a session of its own and as this user; requires that it would be visible."""
        if self.boot != boot():
            return False
        fields = _stat(self.pid)
        if fields is None or fields[0] in "ZX" or fields[19] != self.start:
            return False
        return fields[2] == fields[3] == str(self.pid) and may_be_a_job(self.pid) and _is_own(self.pid)

    def watch(self) -> int | None:
        """Open a descriptor that signals its end; None if the system has none, or the process has ended."""
        try:
            watched = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.is_alive:  # checked after opening: the number has not been reused
            return watched
        os.close(watched)
        return None

    def end_rest(self) -> None:
        """Kill its remaining children after its end. Its number is not reused while any of them exists."""
        fields = _stat(self.pid)
        if self.boot != boot() or not self.is_seen or (fields is not None and fields[19] != self.start):
            return
        for pid in list(_in_session(self.pid)) if may_be_a_job(self.pid) else ():
            with suppress(ProcessLookupError, PermissionError):
                if _is_own(pid):
                    os.kill(pid, signal.SIGKILL)


def may_be_a_job(pid: int) -> bool:
    """Whether a number may be that of a job's process: a signal to 0, 1 or a negative one ends much more than a job."""
    return 1 < pid <= _MAX_PID and pid not in {os.getpid(), os.getpgrp(), os.getsid(0)}


def _is_own(pid: int) -> bool:
    """Whether a process has the same user: root may signal those of others, too."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Uid:"):
                return line.split()[1] == str(os.getuid())
    return False


@cache
def boot() -> str:
    """Return an identifier of the computer's present boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def begin(folder: Path, order: JobOrder) -> subprocess.Popen[bytes]:
    """Start a job's first process, in its own session.

    Raises `OSError`: there are too many processes, or its variables are too long.
    """
    identity = f"{boot()} {process_space()}"
    is_alike = set(order.affinity or os.sched_getaffinity(0)) == os.sched_getaffinity(0) and order.nice == _nice()
    return subprocess.Popen(  # noqa: S603 - the user's command
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
    """Take over cores and priority of the client that submitted the job, as far as allowed."""
    with suppress(OSError, ValueError):
        if order.affinity:
            os.sched_setaffinity(0, order.affinity)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, order.nice)


def doing_of(folder: Path) -> Doing | None:
    """Read which process runs a job; None if that is not recorded completely."""
    try:
        text = contents(folder / "process").decode("utf-8", "replace")
        head, _, tail = text.rpartition(")")
        boot_id, space, pid = head.split(" ", 3)[:3]
        doing = Doing(boot_id, space, int(pid), tail.split()[19])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    return doing if may_be_a_job(doing.pid) else None


def code_of(folder: Path) -> int | str | None:
    """Read how a job's payload ended: an exit code, or a text instead; None if that is not recorded."""
    try:
        text = contents(folder / "code").decode("ascii", "replace")
    except FileNotFoundError:
        return None
    except ValueError:
        return "damaged"
    if not text.endswith("\n"):
        return None
    code = text.strip()
    return int(code) if code.isdigit() and len(code) <= _LONGEST_CODE else code


def tell_session(pid: int, number: signal.Signals, *, whole: bool = True) -> None:
    """Signal all processes of a session; or only the group of its first process, which is faster."""
    if not may_be_a_job(pid):
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
    for other in list(_in_session(pid, but_group=pid)) if whole else ():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(other, number)


def _in_session(session: int, but_group: int = 0) -> Iterator[int]:
    """Yield the processes of a session, except those of one group."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        fields = _stat(pid)
        if fields is not None and fields[3] == str(session) and fields[2] != str(but_group):
            yield pid


def _stat(pid: int) -> list[str] | None:
    """Return the system's fields on a process, from its state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
