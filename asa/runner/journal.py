"""The journal: what happened in a run, on the disk before anything is done because of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from asa.core.files import read_file
from asa.errors import JournalError, LeaseError
from asa.runner.entries import Entry, read_entry, write_entry

_CONTROL = re.compile(rb"[\x01-\x1f\x7f]")  # JSON has none of them in a line

__all__ = ["Journal", "read_journal"]


def read_journal(path: Path) -> tuple[list[Entry], int]:
    """Read the entries of a journal, and how many of its bytes hold them.

    Whoever was killed, or found the disk full, may have left a part of a line, or what the file system puts in its
    place, at the end. That is no entry: nothing was done because of it.

    Parameters
    ----------
    path
        Of the journal; one that does not exist is empty.

    Returns
    -------
    (list of Entry, int)
        In the order in which they were written; and bytes.

    Raises
    ------
    JournalError
        It cannot be read, or it is damaged before its end, where what was done is no longer known.
    """
    try:
        text = read_file(path)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise JournalError(
            f"cannot be read: {error.strerror}", where=str(path), hint="Check the path and its rights."
        ) from error
    entries: list[Entry] = []
    sound = 0
    for line in text.split(b"\n")[:-1]:
        try:
            entries.append(read_entry(line))
        except ValueError:
            break
        sound += len(line) + 1
    if not _is_torn(text[sound:]):
        raise JournalError(
            "is damaged",
            where=f"{path}:{len(entries) + 1}",
            hint="What was done since is not known. Restore it; or look at the queue, and begin a new run.",
        )
    return entries, sound


def _is_torn(rest: bytes) -> bool:
    """Whether this may be left of an entry that was not written to its end: its beginning, zeros for what is lost.

    Each entry is on the disk before the next is written, so that only the last can be so.
    """
    line = rest.removesuffix(b"\n")
    is_part = line == rest or b"\0" in line
    return is_part and line[:1] in {b"", b"{", b"\0"} and not _CONTROL.search(line)


class Journal:
    """An append-only file of one entry a line, each on the disk when `append` returns.

    Parameters
    ----------
    path
        The file; made when the first entry is written.
    guard
        Called before each entry is written. It raises if this client may not go on, as when another has taken over.

    Attributes
    ----------
    entries
        What was there when it was opened.
    latest
        The latest entry that was written since; None before the first.

    Raises
    ------
    JournalError
        It cannot be read, or is damaged.

    Notes
    -----
    Only one process may write. Plain appends and `fsync` are all that is asked of the file system, so that NFS and
    Lustre will do.
    """

    def __init__(self, path: Path, *, guard: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.entries, self._sound = read_journal(path)
        self.latest: Entry | None = None
        self._guard = guard
        self._descriptor = -1

    def append(self, entry: Entry) -> None:
        """Write an entry; it is there for good, or not at all.

        Raises
        ------
        JournalError
            It could not be written. What it would have told must not be done.
        LeaseError
            Another client has written to it.
        """
        line = write_entry(entry).encode() + b"\n"
        try:
            self._guard()
            if self._descriptor < 0:
                self._open()
            if os.fstat(self._descriptor).st_size != self._sound:
                raise LeaseError(
                    "another client has written to it", where=str(self.path), hint="See who drives it: asa status."
                )
            self._write(line)
        except OSError as error:
            self._give_back()
            raise JournalError(
                f"cannot be written: {error.strerror or error}",
                where=str(self.path),
                hint="Nothing more is submitted; jobs go on. Make room, then: asa resume.",
            ) from error
        self._sound += len(line)
        self.latest = entry

    def close(self) -> None:
        """Close the file; the next entry opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        is_new = not self.path.exists()
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, self._sound)  # what a crash has left
        if is_new:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _write(self, line: bytes) -> None:
        done = 0
        while done < len(line):
            done += os.write(self._descriptor, line[done:])
        os.fsync(self._descriptor)

    def _give_back(self) -> None:
        """Close after a failure; the next `_open` cuts off what was written of a line."""
        if self._descriptor >= 0:
            try:
                self.close()
            except OSError:
                self._descriptor = -1
