"""Append-only files of lines on shared file systems: what every store guarantees.

A line is read whole or not at all: a part of a line, left when a writer was killed or the disk was full, is never read
as a line. The file system need only provide appending, `fsync` and renaming: no locks, no atomic appends between hosts,
no synchronized clocks.

- `LineFile`: one file, to which one process appends.
- `SegmentFolder`: a folder to which many processes add at the same time, each with files of its own, its *segments*. A
  segment that is added as a whole gets its name when it is complete. Now and then many segments are merged into one,
  which lists what it *took* from others; as soon as it has its name, readers skip the others, deleted or not. So
  merging and forgetting are one step, the renaming of a complete file; a process that dies before or after that step
  has changed nothing, or leaves files that nobody reads.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from asa.core import safe
from asa.core.documents import read_json
from asa.core.files import read_file, sync_folder, write_all
from asa.core.locks import FileLock, is_running, machine
from asa.core.reading import JOURNAL_BYTES, TooLargeError
from asa.errors import InputError, LeaseError, StateError

SILENT_S = 24 * 3600.0
"""A process that has not written to a file for this time never writes to it again."""

_T = TypeVar("_T")
_SEGMENT = re.compile(
    r"(?P<kind>live|kept|all|tmp)-(?:(?P<machine>[0-9A-Za-z._]+)-(?P<pid>\d{1,9})-)?(?P<token>[0-9a-f]{16})\.jsonl"
)
_LOCK = "lock"
_STEADY_S = 30.0
_BLOCK_BYTES = 1 << 16

encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def decode(line: bytes) -> Any:
    """Read a line of JSON; None if it is invalid."""
    try:
        return read_json(line.decode())
    except ValueError:
        return None


def refuse_later_version(header: Any, path: Path, known: int) -> None:
    """Refuse a file of a later version, whose fields may mean something else."""
    version = header.get("version")
    if isinstance(version, int) and version > known:
        raise StateError(
            f"is of version {version}, this asa reads {known}", where=str(path), hint="Upgrade asa-client."
        )


@contextmanager
def saying(where: Path, what: str) -> Iterator[None]:
    """Turn an error of the system into a `StateError`."""
    try:
        yield
    except OSError as error:
        raise _refusal(str(where), what, error) from error


def _refusal(where: str, what: str, error: OSError) -> StateError:
    if isinstance(error, TooLargeError):  # its message says what to do
        return StateError(f"{what}: {error.strerror}", where=where)
    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    hint = "Free disk space, or name another folder." if full else "Check the path and its rights."
    return StateError(f"{what}: {error.strerror or error}", where=where, hint=hint)


# ------------------------------------------------------------------------------------------------- one writer


def read_lines(path: Path) -> tuple[list[bytes], bytes]:
    """Return the whole lines of a file, and the bytes after the last one; a missing file has none."""
    try:
        *lines, rest = read_file(path, JOURNAL_BYTES).split(b"\n")
    except FileNotFoundError:
        return [], b""
    return lines, rest


class LineFile:
    """A file of lines to which one process appends.

    `end`: how many of its bytes are known to be whole lines; by default all up to the last line end. Bytes after that
    are cut off before the next line is written.
    `withdrawal`: a line to write after the rest of a failed write, if that must not be cut off because others read the
    file meanwhile. The file must exist.
    `durable`: whether a line is on the disk when `append` returns, so that it survives a crash of the host.
    `mode`: permissions of the file, if it is made.
    """

    def __init__(
        self, path: Path, *, end: int | None = None, withdrawal: bytes = b"", durable: bool = True, mode: int = 0o666
    ) -> None:
        self.path = path
        self.durable = durable
        self._end = end
        self._withdrawal = withdrawal
        self._mode = mode
        self._descriptor = -1
        self._is_torn = False  # whether a failed write may have left bytes
        self._has_links = False

    @property
    def is_open(self) -> bool:
        """Whether the file is open; if not, the next line opens it."""
        return self._descriptor >= 0

    def append(self, line: bytes) -> None:
        """Append a line, which ends in a newline.

        Raises `OSError`: the line could not be written, and is not in the file, unless only the sync to disk failed.
        The file is then closed, unless the next line can begin with a `withdrawal` of the rest of this one.
        """
        try:
            if self._descriptor < 0:
                self._open()
            data = self._withdrawal + line if self._is_torn else line
            self._is_torn = True
            write_all(self._descriptor, data)
            self._is_torn = False
            if self.durable:
                os.fsync(self._descriptor)
        except OSError:
            if not (self._is_torn and self._withdrawal):
                with suppress(OSError):
                    self.close()
            raise
        if self._end is not None:
            self._end += len(line)

    def has_changed(self) -> bool:
        """Whether another process has written to the file since it was opened here."""
        return self.is_open and os.fstat(self._descriptor).st_size != self._end

    def is_deleted(self) -> bool:
        """Whether the file was deleted since this process opened it; known only where the file system counts links."""
        return self._has_links and os.fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _open(self) -> None:
        is_new = not self.path.exists()
        how = os.O_WRONLY if self._end is not None or self._withdrawal else os.O_RDWR
        how |= os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, how, self._mode)
        about = os.fstat(self._descriptor)
        self._has_links = about.st_nlink > 0
        try:
            safe.check(self.path, about)
        except InputError:
            self.close()
            raise
        if not self._withdrawal:
            whole = _whole_bytes(self._descriptor) if self._end is None else self._end
            if os.fstat(self._descriptor).st_size != whole:  # only a regular file can and need be cut
                os.ftruncate(self._descriptor, whole)
            self._is_torn = False
        if is_new and self.durable:
            sync_folder(self.path.parent)


def _whole_bytes(descriptor: int) -> int:
    """Count the bytes up to the last line end."""
    end = os.fstat(descriptor).st_size
    while end:
        begin = max(end - _BLOCK_BYTES, 0)
        last = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if last >= 0:
            return begin + last + 1
        end = begin
    return 0


# ------------------------------------------------------------------------------------------------- many writers


class Segment(NamedTuple):
    """A file of a `SegmentFolder`, named ``live-MACHINE-PID-TOKEN.jsonl``, or without machine and process."""

    path: Path
    # `live`: one process appends to it; `kept`: added as a whole; `all`: merged from others; `tmp`: incomplete
    kind: str
    token: str
    machine: str = ""  # of its writer; empty if the name does not have it
    pid: int = -1

    @classmethod
    def of(cls, folder: Path, kind: str, token: str, machine: str = "", pid: int = -1) -> Segment:
        """Return a new segment of a folder."""
        writer = f"{machine}-{pid}-" if machine else ""
        return cls(folder / f"{kind}-{writer}{token}.jsonl", kind, token, machine, pid)

    @classmethod
    def named(cls, folder: Path, name: str) -> Segment | None:
        """Read a segment from a file's name; None if the name is no segment's."""
        match = _SEGMENT.fullmatch(name)
        return match and cls(
            folder / name, match["kind"], match["token"], match["machine"] or "", int(match["pid"] or -1)
        )

    def become(self, kind: str) -> Segment:
        """Return the same segment with another kind."""
        return Segment.of(self.path.parent, kind, self.token, self.machine, self.pid)

    def is_over(self, now_s: float) -> bool:
        """Whether its process has ended, or has written nothing for long."""
        if self.machine == machine() and not is_running(self.pid):
            return True
        return now_s - self.path.stat().st_mtime > SILENT_S


class SegmentFolder:
    """A folder to which many processes, on many hosts, add segments at the same time.

    `signed`: whether segments are named after the processes that write them.
    `must_exist`: whether it is an error if the folder is missing; else it is made at the first write.

    All methods raise `StateError` if the system refuses something.
    """

    def __init__(self, path: Path, *, signed: bool, must_exist: bool = False) -> None:
        self.path = path
        self.signed = signed
        self.must_exist = must_exist
        self._is_own = False

    def _check_own(self) -> None:
        """Refuse a folder that others own or can change, since asa learns from it; checked only once."""
        if self._is_own:
            return
        try:
            with suppress(FileNotFoundError):
                safe.check(self.path)
                self._is_own = True
        except InputError as error:
            raise StateError(error.message, where=error.where, hint=error.hint) from error

    # -------------------------------------------------------------------------------------------- writing

    def make(self) -> None:
        """Make the folder, unless it must exist."""
        if not self.must_exist:
            with saying(self.path, "cannot be made"):
                safe.provide_folder(self.path)
                self._check_own()

    def begin(self, header: bytes, *, withdrawal: bytes, durable: bool) -> tuple[Segment, LineFile]:
        """Begin a segment to which this process appends."""
        self.make()
        segment = self._new("live")
        file = LineFile(segment.path, withdrawal=withdrawal, durable=False)
        with saying(segment.path, "cannot be written"):
            os.close(self._create(segment.path))
            try:
                file.append(header)
                if durable:
                    with suppress(OSError):  # some file systems cannot sync folders
                        sync_folder(self.path)
            except BaseException:
                with suppress(OSError):
                    file.close()
                with suppress(OSError):
                    segment.path.unlink()
                raise
        file.durable = durable
        return segment, file

    def add(self, kind: str, lines: Iterable[bytes], *, before: Callable[[], None] = lambda: None) -> Segment:
        """Add a segment, which gets its name once it is complete and on the disk; `before` is called just before that.

        If `before` raises, or this process is killed, nothing was added.
        """
        self.make()
        temporary = self._new("tmp")
        segment = temporary.become(kind)
        with saying(segment.path, "cannot be written"):
            try:
                with os.fdopen(self._create(temporary.path), "wb") as file:
                    file.writelines(lines)
                    file.flush()
                    os.fsync(file.fileno())
                before()
                temporary.path.rename(segment.path)
                with suppress(OSError):  # some file systems cannot sync folders
                    sync_folder(self.path)
            except BaseException:
                with suppress(OSError):
                    temporary.path.unlink()
                raise
        return segment

    def _new(self, kind: str) -> Segment:
        signature = (machine(), os.getpid()) if self.signed else ()
        return Segment.of(self.path, kind, os.urandom(8).hex(), *signature)

    def _create(self, path: Path) -> int:
        """Create a file for reading and writing, with the folder's permissions."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        with suppress(OSError):  # some file systems have no permissions
            os.fchmod(descriptor, self.path.stat().st_mode & 0o666)
        return descriptor

    # -------------------------------------------------------------------------------------------- reading

    def segments(self) -> list[Segment]:
        """Return the finished segments, in a fixed order."""
        return [segment for segment in self._listed() if segment.kind != "tmp"]

    def _listed(self) -> list[Segment]:
        with saying(self.path, "cannot be read"):
            try:
                self._check_own()
                names = _names(self.path)
            except FileNotFoundError:
                if self.must_exist:
                    raise
                names = []  # nothing was written yet
        return [segment for name in names if (segment := Segment.named(self.path, name))]

    def steadily(self, read: Callable[[list[Segment]], _T]) -> _T:
        """Read segments; read again if other processes merged segments meanwhile."""
        patience_s = time.monotonic() + _STEADY_S
        pause_s = 0.001
        while True:
            segments = self.segments()
            try:
                found = read(segments)
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.ESTALE}:
                    raise _refusal(error.filename or str(self.path), "cannot be read", error) from error
            else:
                # a listing made while the folder changes may lack both the merged segments and the one made of them
                if _merged(self.segments()) <= _merged(segments):
                    return found
            if time.monotonic() > patience_s:
                raise StateError("changes faster than it can be read", where=str(self.path), hint="Try again.")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    # ------------------------------------------------------------------------------- merging and forgetting

    @contextmanager
    def tidied(self, wait_s: float) -> Iterator[FileLock]:
        """Lock the folder against merging and forgetting by others.

        Without the lock no records would be lost, but work would be done twice, and forgotten records be written again.
        """
        try:
            with (
                saying(self.path, "cannot be written"),
                FileLock(self.path / _LOCK, wait_s, doing="is being tidied by") as lock,
            ):
                yield lock
        except LeaseError as error:
            raise StateError(error.message, where=error.where, hint=error.hint) from error

    def sweep(self, lock: FileLock) -> None:
        """Delete files that killed processes left next to the segments."""
        now_s = lock.now_s()
        for segment in self._listed():
            if segment.kind == "tmp":
                with suppress(OSError):
                    if segment.is_over(now_s):
                        segment.path.unlink()
        for path in self.path.glob(f"{_LOCK}.*"):
            with suppress(OSError):
                if now_s - path.stat().st_mtime > SILENT_S:
                    path.unlink()

    def delete(self, segments: Iterable[Segment]) -> None:
        """Delete segments that are no longer read."""
        for segment in segments:
            with suppress(OSError):  # in a shared folder, other users' files may not be deletable
                segment.path.unlink()


def _merged(segments: Iterable[Segment]) -> set[str]:
    return {segment.token for segment in segments if segment.kind == "all"}


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)
