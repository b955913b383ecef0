"""Files of our own: written whole, for their user's eyes, and never something else than a file under a file's name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["create_file", "open_file", "read_file", "sync_folder", "write_all"]

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def create_file(path: Path) -> BinaryIO:
    """Open a file for writing that only its user may read; it is made so, and not changed afterwards."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading; what is none, such as a FIFO, which could make us wait for ever, is refused.

    Examples
    --------
    >>> open_file(Path("/dev/null"))
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] it is a device, and no regular file: '/dev/null'
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind == stat.S_IFREG:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, and no regular file", str(path))


def read_file(path: Path) -> bytes:
    """Read a whole file, as `open_file` opens it."""
    with open_file(path) as file:
        return file.read()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, or raise `OSError`; a part may then have been written."""
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done:])


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
