"""The journal: every event of a run is on the disk before the run acts on it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from asa.core import safe
from asa.core.files import open_file
from asa.core.reading import JOURNAL_BYTES, OWN_JOURNAL_BYTES, TooLargeError, bound, read_blocks
from asa.core.store import LineFile
from asa.errors import JournalError, LeaseError
from asa.runner.entries import Entry, read_entries, write_entries

_END_BYTES = 1024
_CONTROL = re.compile(rb"[\x01-\x1f\x7f]")  # none of these occurs in a line of JSON


def read_journal(path: Path, *, is_acted_on: bool = False, max_bytes: int = JOURNAL_BYTES) -> tuple[list[Entry], int]:
    """Read a journal's entries, and how many of its bytes hold them.

    A client that was killed, or found the disk full, may have left an incomplete line at the end, or bytes that the
    file system put there. Such a line is no entry: the client did nothing because of it.

    Parameters
    ----------
    path
        Path of the journal; a missing file counts as empty.
    is_acted_on
        Whether the caller acts on it, so that it must belong to the user.
    max_bytes
        Upper bound of its size. With the default, the user's own journal may have up to `OWN_JOURNAL_BYTES`.

    Returns
    -------
    (list of Entry, int)
        The entries in the order of writing, and the number of bytes.

    Raises
    ------
    JournalError
        It cannot be read, or is damaged before its end, so that the client's actions are not known.
    OwnerError
        The caller acts on it, but others own it or can change it.
    """
    reader = JournalReader(path, is_acted_on=is_acted_on, max_bytes=max_bytes)
    entries, _ = reader.read()
    return entries, reader.sound_bytes


class JournalReader:
    """Reads a journal, and later what was added to it.

    `path`, `is_acted_on`, `max_bytes`: as for `read_journal`.
    `sound_bytes`: how many of its bytes hold the entries that were read.
    """

    def __init__(self, path: Path, *, is_acted_on: bool = False, max_bytes: int = JOURNAL_BYTES) -> None:
        self.sound_bytes = 0
        self._path, self._is_acted_on, self._bound = path, is_acted_on, max_bytes
        self._lines = 0  # that were read
        self._inode = -1
        self._end = b""  # what stood before `sound_bytes`, by which the file is known again

    def read(self) -> tuple[list[Entry], bool]:
        """Return the entries that were added since the last time, and whether these are all that it has.

        They are all that it has at first, and if the file has been replaced since.
        Raises `JournalError`, `OwnerError`: as `read_journal` does.
        """
        path = self._path
        entries: list[Entry] = []
        rest = bytearray()
        try:
            with open_file(path) as file:
                about = os.fstat(file.fileno())
                if self._is_acted_on:
                    safe.check(path, about)
                most = _max_bytes(path, about, self._bound)
                is_whole = not self._goes_on(file, about)
                for block in read_blocks(file, path, JOURNAL_BYTES, most):
                    _check_rest(rest, path)
                    at = 0 if rest else _read_block(block, entries)
                    self.sound_bytes += at
                    self._lines += block.count(b"\n", 0, at)
                    self._end = block[max(at - _END_BYTES, 0) : at] or self._end
                    rest += block[at:]
        except FileNotFoundError:
            self._forget()
            return [], True
        except TooLargeError as error:  # its message says what to do
            raise JournalError(f"is not read: {error.strerror}", where=str(path)) from error
        except OSError as error:
            raise JournalError(
                f"cannot be read: {error.strerror}", where=str(path), hint="Check the path and its permissions."
            ) from error
        if not _is_torn(bytes(rest)):
            raise JournalError(
                "is damaged",
                where=f"{path}:{self._lines + 1}",
                hint="What was done since is not known. Restore it; or look at the queue, and start a new run.",
            )
        return entries, is_whole

    def _goes_on(self, file: BufferedReader, about: os.stat_result) -> bool:
        """Go to where the last reading ended; or to the beginning, if this is another file, and return False."""
        begin = self.sound_bytes - len(self._end)
        if self._end and about.st_ino == self._inode:
            file.seek(begin)
            if file.read(len(self._end)) == self._end:
                return True
            file.seek(0)
        self._forget()
        self._inode = about.st_ino
        return False

    def _forget(self) -> None:
        self.sound_bytes, self._lines, self._end = 0, 0, b""


def _max_bytes(path: Path, about: os.stat_result, max_bytes: int) -> int:
    """Return the size bound of a journal, by its owner; refuse a larger one before reading."""
    if max_bytes >= JOURNAL_BYTES and safe.is_safe(path, about):
        max_bytes = max(max_bytes, OWN_JOURNAL_BYTES)
    if about.st_size > bound(max_bytes):
        raise TooLargeError("it", bound(max_bytes), path)
    return max_bytes


def _check_rest(rest: bytearray, path: Path) -> None:
    """Refuse a journal with more bytes after its last sound line than an entry can have."""
    if len(rest) > bound(JOURNAL_BYTES):
        raise TooLargeError("what lies behind its last sound line", bound(JOURNAL_BYTES), path)


def _read_block(block: bytes, entries: list[Entry]) -> int:
    """Add the entries of all sound lines; return how many bytes these lines have."""
    at = 0
    while (end := block.find(b"\n", at)) >= 0:
        try:
            entries += read_entries(block[at:end])
        except ValueError:
            break
        at = end + 1
    return at


def _is_torn(rest: bytes) -> bool:
    """Whether a line may be an incomplete entry: its beginning, with zeros in place of lost bytes.

    Each entry is on the disk before the next is written, so only the last one can be incomplete.
    """
    line = rest.removesuffix(b"\n")
    is_part = line == rest or b"\0" in line
    return is_part and line[:1] in {b"", b"{", b"\0"} and not _CONTROL.search(line)


@contextmanager
def consistent(path: Path) -> Iterator[None]:
    """Turn the error of applying entries that contradict each other into a `JournalError`."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, ValueError) as error:
        hint = "It was changed by hand. Look at the queue, and start a new run."
        raise JournalError("is not consistent", where=str(path), hint=hint) from error


class Journal:
    """An append-only file of entries; those appended together form one line, on the disk when `append` returns.

    Parameters
    ----------
    path
        The file; made when the first entry is written.
    guard
        Called before each entry is written; raises if this client must stop, as when another has taken over.

    Attributes
    ----------
    entries
        The entries in the file when it was opened.
    latest
        The last entry written since then; None before the first.

    Raises
    ------
    JournalError
        It cannot be read, or is damaged.
    OwnerError
        Others own it, or can change it.

    Notes
    -----
    Only one process may write. The file system need only provide plain appends and `fsync`, as NFS and Lustre do.
    """

    def __init__(self, path: Path, *, guard: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.entries, sound = read_journal(path, is_acted_on=True)
        self.latest: Entry | None = None
        self._guard = guard
        self._file = LineFile(path, end=sound, mode=0o600)

    def append(self, *entries: Entry) -> None:
        """Write one or more entries as one line: all of them are on the disk, or none.

        Raises
        ------
        JournalError
            It could not be written. The caller must not do what it would have recorded.
        LeaseError
            Another client has written to it.
        """
        line = write_entries(entries).encode() + b"\n"
        try:
            self._guard()
            if self._file.has_changed():
                raise LeaseError(
                    "another client has written to it", where=str(self.path), hint="See which: asa status."
                )
            self._file.append(line)
        except OSError as error:
            with suppress(OSError):
                self._file.close()
            raise JournalError(
                f"cannot be written: {error.strerror or error}",
                where=str(self.path),
                hint="Nothing more is submitted; jobs go on. Free disk space, then: asa resume.",
            ) from error
        self.latest = entries[-1]

    def close(self) -> None:
        """Close the file; the next entry opens it again."""
        self._file.close()
