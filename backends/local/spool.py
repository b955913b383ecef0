"""The files of this machine's queue, by which clients and the server communicate.

::

    count        number of the latest job
    lock         held by the server
    server.pid   number of the server's process, while there is one
    bell         a FIFO to which clients write the number of a job with news
    changes      numbers of changed jobs, one a line, in order
    outlook      predicted starts of pending jobs
    trouble      what keeps the server from working; of constant size, so that a full disk has space for it
    server.log   what the server could not report otherwise
    jobs/17/     a job until its end, and then ended/17/
        order.json    its request, once it is complete; without environment once the job has ended
        script        what it runs
        hold cancel walltime   its user's requests
        status.json   its state, by the server
        process       its process, written by that process
        code          how that process's payload ended, likewise

Files are written atomically. Only the standard library is needed here, so that the server starts quickly.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from .folder_check import check_entry, check_folder, make_folder

TROUBLE_BYTES = 512
MAX_CHANGES_BYTES = 1 << 22
_MAX_FILE_BYTES = 1 << 26
_MAX_NUMBER = 10**15  # of jobs, of cores and of seconds
_STATES = frozenset({"pending", "running", "completed", "failed", "cancelled", "timeout"})
_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}

_OF_A_SPACE = re.compile(r"-[0-9]{10}$")
_INITIAL_SPACE = "pid:[4026531836]"  # the initial process namespace, outside of containers
_Read = TypeVar("_Read")


OR_END = "after-or-end"
"""A dependency that is also met by the other's end before its delay is over; an older server waits for the end only."""


@dataclass(frozen=True, slots=True)
class JobOrder:
    """A client's request, written once."""

    job_id: str
    cores: int  # cores of the queue that it takes
    slots: int  # cores that all jobs of the queue may use together when this one starts
    walltime_s: float
    submit_s: float
    run: str
    stdout: str
    stderr: str
    environment: dict[str, str]  # of its processes; an empty affinity means that of the server
    umask: int
    # number of the other job, kind (a `DependencyType`, or `OR_END`), and delay in seconds
    dependencies: tuple[tuple[int, str, float], ...] = ()
    begin_s: float | None = None
    is_beside: bool = False  # whether it runs outside the queue
    affinity: tuple[int, ...] = ()
    nice: int = 0


@dataclass(frozen=True, slots=True)
class SpooledStanding:
    """A job's state, written by the server."""

    state: str = "pending"
    eligible_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    exit_code: int | None = None
    reason: str = ""
    ending: str = ""  # reason for its end: `TimeLimit` or `Cancelled`
    ending_s: float | None = None
    walltime_s: float | None = None  # its walltime, if that was changed

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state not in ("pending", "running")


class Spool:
    """The folder of one machine's queue."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs, self.ended = root / "jobs", root / "ended"
        self.count, self.lock, self.bell = root / "count", root / "lock", root / "bell"
        self.changes, self.outlook, self.trouble = root / "changes", root / "outlook", root / "trouble"
        self.pid, self.log = root / "server.pid", root / "server.log"

    def make(self) -> None:
        """Make missing folders and files, so that only the user controls them.

        Raises `OSError`: they cannot be made, or other users control existing ones; see `check`.
        """
        make_folder(self.root)
        check_folder(self.root)
        for folder in (self.jobs, self.ended):
            folder.mkdir(mode=0o700, exist_ok=True)
        for file in (self.count, self.lock, self.changes):
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
        with suppress(FileExistsError):
            os.mkfifo(self.bell, 0o600)
        self._check_entries()

    def check(self) -> None:
        """Refuse a queue that other users own or can change; see `folder_check`.

        Raises `OSError` to refuse it, or if there is no queue.
        """
        check_folder(self.root)
        self._check_entries()

    def is_strange(self) -> bool:
        """Whether other users own the path or can change it, so that its content must not be trusted."""
        try:
            self.check()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def _check_entries(self) -> None:
        for folder in (self.jobs, self.ended):
            check_entry(folder, stat.S_IFDIR)
        for file in (self.count, self.lock, self.changes):
            check_entry(file, stat.S_IFREG)
        check_entry(self.bell, stat.S_IFIFO)

    # ------------------------------------------------------------------ clients

    def next_number(self) -> int:
        """Reserve the number of a new job; each is given once."""
        with self.count.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read().strip()
            number = number_of(text) if text.isdigit() else self._latest()
            number = self._latest() if number is None else number
            while True:
                number += 1
                file.seek(0)
                file.write(f"{number:012d}\n".encode())  # of constant length, so that a full disk has space for it
                file.flush()
                with suppress(FileExistsError):
                    (self.jobs / str(number)).mkdir(mode=0o700)
                    return number

    def _latest(self) -> int:
        return max((*self.numbers(), *_numbers(self.ended)), default=0)

    def publish(self, number: int, order: JobOrder, script: bytes, *, held: bool) -> None:
        """Make a job valid; its folder was made with its number."""
        folder = self.jobs / str(number)
        if held:
            (folder / "hold").touch()
        put(folder / "script", script)
        put(folder / "order.json", json.dumps(asdict(order)).encode())

    def forget_environment(self, number: int) -> None:
        """Remove the environment of an ended job, which may contain secrets."""
        order = self.order(number)
        if order is not None and order.environment:
            put(self.jobs / str(number) / "order.json", json.dumps(asdict(replace(order, environment={}))).encode())

    def ring(self, number: int | None = None) -> bool:
        """Notify the server of news about a job; without one, only return whether a server runs."""
        try:
            bell = os.open(self.bell, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            raise
        try:
            if number is not None:
                os.write(bell, f"{number}\n".encode())
        except BlockingIOError:  # the pipe is full; the server looks at all files from time to time
            pass
        except BrokenPipeError:
            return False
        finally:
            os.close(bell)
        return True

    # ------------------------------------------------------------------ all users

    def numbers(self) -> list[int]:
        """Return the numbers of jobs that have not ended, in order."""
        return _numbers(self.jobs)

    def ended_numbers(self) -> list[int]:
        """Return the numbers of jobs that have ended, in order."""
        return _numbers(self.ended)

    def read(self, number: int, read: Callable[[Path], _Read]) -> _Read | None:
        """Read a file of a job, from the folder of current or of ended jobs; None if there is none."""
        for folders in (self.jobs, self.ended, self.jobs):  # the job may be moved meanwhile, but only once
            with suppress(FileNotFoundError, NotADirectoryError):
                return read(folders / str(number))
        return None

    def order(self, number: int) -> JobOrder | None:
        """Return a job's request; None if there is no valid job."""
        text = self.read(number, lambda folder: contents(folder / "order.json"))
        return None if text is None else _order(text)

    def standing(self, number: int) -> SpooledStanding | None:
        """Return the server's record of a job's state; None if the server has not seen it, or there is no server."""
        text = self.read(number, lambda folder: contents(folder / "status.json"))
        return None if text is None else _standing(text)

    def holds(self, number: int) -> bool:
        """Whether a job exists."""
        jobs, ended = os.fspath(self.jobs), os.fspath(self.ended)
        for folders in (jobs, ended, jobs):  # as in `read`; called once for each edge of a graph
            with suppress(FileNotFoundError, NotADirectoryError):
                os.stat(f"{folders}/{number}/order.json")  # noqa: PTH116 - a path object costs more than the call
                return True
        return False

    def is_served(self) -> bool:
        """Whether a server runs, possibly in another container."""
        try:
            with locked(self.lock) as is_free:
                return not is_free
        except FileNotFoundError:
            return False

    def sign_s(self, number: int) -> float:
        """Return when a file of a job, or of any, was last written; 0 if there is none."""
        signs = [0.0]
        for path in (self.changes, self.jobs / str(number)):
            with suppress(FileNotFoundError):
                signs.append(path.stat().st_mtime)
        return max(signs)


class Changes:
    """The changes since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = self._end()

    def fresh(self) -> set[int] | None:
        """Return the numbers of jobs that changed since the last call; None if any may have."""
        inode, position = self._position
        now_inode, end = self._end()
        if (now_inode, end) == (inode, position):
            return set()
        self._position = now_inode, end
        if now_inode != inode or end < position:
            return None
        with self._path.open("rb") as file:
            file.seek(position)
            text = file.read(end - position)
        lines = text.split(b"\n")
        self._position = now_inode, end - len(lines[-1])
        return {number for line in lines[:-1] if (number := number_of(line)) is not None}

    def _end(self) -> tuple[int, int]:
        status = self._path.stat()
        return status.st_ino, status.st_size


def host() -> str:
    """Return the name of this computer, or of the container, with its own process numbers."""
    name = re.sub(r"[^0-9A-Za-z-]", "_", os.uname().nodename.partition(".")[0])[:40] or "here"
    space = process_space()
    return name if space == _INITIAL_SPACE else f"{name}-{re.sub(r'[^0-9]', '', space)}"


def is_same_machine(one: str, other: str) -> bool:
    """Whether two names belong to a computer and its containers, or to one container before and after a restart.

    Examples
    --------
    >>> is_same_machine("login1-4026532290", "login1-4026533001"), is_same_machine("login1", "login2")
    (True, False)
    """
    return _OF_A_SPACE.sub("", one) == _OF_A_SPACE.sub("", other)


def process_space() -> str:
    """Return the name of the process namespace, within which process numbers are valid."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return _INITIAL_SPACE


def put(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def written(standing: SpooledStanding) -> bytes:
    """Return a job's state as JSON, without empty fields."""
    return json.dumps({key: value for key, value in asdict(standing).items() if value not in (None, "")}).encode()


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Try to take a lock; yield whether this process has it now. The lock ends with the process."""
    with path.open("r+b") as file:  # NFS locks only files that are open for writing
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _numbers(folder: Path) -> list[int]:
    with os.scandir(folder) as entries:
        return sorted(number for entry in entries if (number := number_of(entry.name)) is not None)


def number_of(text: str | bytes) -> int | None:
    """Read the number of a job; None if it is none that was ever given."""
    is_number = text.isdigit() and text.isascii() and len(text) < len(str(_MAX_NUMBER))
    return int(text) if is_number else None


def contents(path: Path) -> bytes:
    """Read a file of a job. Raises `ValueError`: it is larger than any that was written."""
    with path.open("rb") as file:
        text = file.read(_MAX_FILE_BYTES + 1)
    if len(text) > _MAX_FILE_BYTES:
        raise ValueError("is too large")
    return text


def _order(text: bytes) -> JobOrder:
    parts = _parts(text)
    try:
        parts["dependencies"] = tuple((int(n), str(kind), float(delay)) for n, kind, delay in parts["dependencies"])
        parts["affinity"] = tuple(int(core) for core in parts.get("affinity", ()))
        order = JobOrder(**parts)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    _check_types(order)
    numbers = [number for n, _, delay_s in order.dependencies for number in (n, delay_s)]
    if not all(0 <= number < _MAX_NUMBER for number in (order.cores, order.slots, *numbers)):
        raise ValueError("has a number that cannot be")
    if not all(0 <= core < 1 << 20 for core in order.affinity) or not (
        -20 <= order.nice < 20 and 0 <= order.umask < 0o1000
    ):
        raise ValueError("is of no process")
    if not all(isinstance(text, str) for text in (*order.environment, *order.environment.values())):
        raise ValueError("has a variable that is no text")
    return order


def _standing(text: bytes) -> SpooledStanding:
    try:
        standing = SpooledStanding(**_parts(text))
    except TypeError as error:
        raise ValueError(str(error)) from error
    _check_types(standing)
    if standing.state not in _STATES:
        raise ValueError("has a state that cannot be")
    return standing


def _check_types(record: JobOrder | SpooledStanding) -> None:
    """Refuse values of other types than the fields', and numbers beyond any that was written."""
    for one in fields(record):
        kind, is_optional, _ = str(one.type).partition(" | ")
        value = getattr(record, one.name)
        if (is_optional and value is None) or kind.startswith("tuple"):
            continue
        if type(value) not in _TYPES.get(kind, (dict,)):
            raise ValueError(f"{one.name} is of another type")
        if isinstance(value, int | float) and not -_MAX_NUMBER < value < _MAX_NUMBER:
            raise ValueError(f"{one.name} cannot be")


def _parts(text: bytes) -> dict[str, Any]:
    try:
        parts = json.loads(text)  # noqa: TID251 - the queue's server imports only this folder
    except RecursionError as error:
        raise ValueError("is nested too deep") from error
    if not isinstance(parts, dict):
        raise ValueError("is no object")  # noqa: TRY004 - about the content of a file
    return parts
