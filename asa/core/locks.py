"""Locks made of files, for hosts that share only a file system."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from asa.core.documents import read_json
from asa.core.files import open_file, read_text, write_all
from asa.errors import LeaseError

STALE_S = 600.0
"""A lock is stale if it was not touched for this time; its holder touches it far more often."""

_BEAT_S = 5.0
_NAMING_S = 1.0  # seconds that an empty lock file may be new: its creator writes into it at once


class Holder(NamedTuple):
    """The holder of a lock."""

    # identifies the holder, even if its file is still empty
    token: str
    machine: str  # machine and process id; the machine is empty if not known
    pid: int
    since_s: float  # when it took the lock, and when it last touched it
    touched_s: float

    def __str__(self) -> str:
        if not self.machine:
            return "a process that is not named"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since_s))
        return f"process {self.pid} on {self.machine.rpartition('.')[0]} since {since}"


class FileLock:
    """A lock file, which exists while a process holds the lock, and which the holder touches regularly.

    It is stale if its process has ended, or if it was last touched too long ago by the file system's clock, the only
    one that all hosts share. Whoever deletes a stale lock must hold a second lock on it, and check again. So no two
    processes take it over, and nobody deletes a lock that another has just made.

    A holder that was stopped for so long that another process took over does not notice; `check` then raises. It is
    called before anything that only the holder may do.

    `doing`: what a holder does, for the message.
    """

    def __init__(self, path: Path, wait_s: float = 0.0, *, doing: str = "is in use by") -> None:
        self.path = path
        self.wait_s = wait_s
        self.doing = doing
        self.token = os.urandom(8).hex()
        self._beaten_s = 0.0

    def __enter__(self) -> Self:
        deadline_s = time.monotonic() + self.wait_s
        named_s = max(deadline_s, time.monotonic() + _NAMING_S)
        pause_s = 0.01
        while not self._create():
            holder = self.holder()
            if holder is not None and self.is_stale(holder) and self._break(holder):
                continue
            if time.monotonic() >= (deadline_s if holder is None or holder.machine else named_s):
                raise LeaseError(
                    f"{self.doing} {holder or 'others'}",
                    where=str(self.path.parent),
                    hint=f"Wait for it. If it is no more, delete {self.path}.",
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        holder = self.holder()
        if holder is not None and holder.token == self.token:
            with suppress(OSError):
                self.path.unlink()

    def beat(self) -> None:
        """Touch the file, to show that the holder is alive."""
        if time.monotonic() - self._beaten_s > _BEAT_S:
            self._beaten_s = time.monotonic()
            with suppress(OSError):
                os.utime(self.path)

    def now_s(self) -> float:
        """Read the file system's clock; the lock must be held."""
        os.utime(self.path)
        return self.path.stat().st_mtime

    def check(self) -> None:
        """Raise if another process took over the lock, which may happen after this process was stopped for long."""
        holder = self.holder()
        if holder is None or holder.token != self.token:
            raise LeaseError("was taken over by another process", where=str(self.path), hint="Try again.")

    def holder(self) -> Holder | None:
        """Read the present holder; None if there is none."""
        try:
            with open_file(self.path) as file:
                text = file.read(4096)
                status = os.fstat(file.fileno())
        except FileNotFoundError:
            return None
        try:
            content = read_json(text)
            return Holder(
                str(content["token"]),
                str(content["machine"]),
                int(content["pid"]),
                float(content["since_s"]),
                status.st_mtime,
            )
        except (TypeError, KeyError, ValueError):
            return Holder(f"{status.st_ino:016x}", "", -1, 0.0, status.st_mtime)

    def _create(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        try:
            content = {"machine": machine(), "pid": os.getpid(), "since_s": time.time(), "token": self.token}
            write_all(descriptor, json.dumps(content).encode())
        except BaseException:
            with suppress(OSError):
                self.path.unlink()
            raise
        finally:
            os.close(descriptor)
        return True

    def is_stale(self, holder: Holder) -> bool:
        """Whether the holder has ended, or has not touched the file for ten minutes."""
        if holder.machine == machine() and not is_running(holder.pid):
            return True
        probe = self.path.with_name(f"{self.path.name}.{os.urandom(8).hex()}")
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        try:
            os.utime(probe)
            return probe.stat().st_mtime - holder.touched_s > STALE_S
        finally:
            probe.unlink()

    def _break(self, holder: Holder) -> bool:
        """Delete a stale lock; return whether to try to take it now."""
        try:
            with FileLock(self.path.with_name(f"{self.path.name}.{holder.token}"), 0.0):
                now = self.holder()
                if now is not None and now.token == holder.token and self.is_stale(now):
                    self.path.unlink()
        except LeaseError:  # another process is deleting it
            return False
        return True


@cache
def machine() -> str:
    """Name the machine that process ids belong to: a host since its boot, or a container."""
    from hashlib import blake2s  # noqa: PLC0415 - loads OpenSSL, and most commands ask for no machine

    marks = ""
    with suppress(OSError):
        marks += read_text(Path("/proc/sys/kernel/random/boot_id"), "ascii")
        marks += str(Path("/proc/self/ns/pid").readlink())
    host = re.sub(r"[^0-9A-Za-z.]", "_", os.uname().nodename)[:40]
    return f"{host}.{blake2s(marks.encode(), digest_size=4).hexdigest()}"


def is_running(pid: int) -> bool:
    """Whether a process runs on this machine, as far as can be seen.

    `pid`: its process id; a zombie does not count as running.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Read a process's state from the kernel."""
    try:
        return read_text(Path(f"/proc/{pid}/stat"), errors="replace").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False
