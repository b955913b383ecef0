"""Files that asa itself keeps: replaced as a whole, private if wanted, and always regular files."""

from __future__ import annotations

import errno
import gzip
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO

from asa.core.reading import DOCUMENT_BYTES, SMALL_BYTES, read_whole
from asa.errors import AsaError, InputError

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading; others are refused, such as a FIFO, which could block for ever.

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


def read_file(path: Path, max_bytes: int = DOCUMENT_BYTES) -> bytes:
    """Read a whole file, as `open_file` opens it; one that is larger than the bound is refused."""
    with open_file(path) as file:
        return read_whole(file, path, max_bytes)


def read_text(path: Path, encoding: str = "utf-8", errors: str = "strict", max_bytes: int = SMALL_BYTES) -> str:
    """Read a small text file, as `read_file` does."""
    return read_file(path, max_bytes).decode(encoding, errors)


def without_tilde(path: str, where: str) -> Path:
    """Return a path with a home folder in place of ``~`` or ``~user``; `where`: what names it.

    Raises `InputError`: there is no such user, or no home folder is known.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        hint = "Write the whole path."
        raise InputError(f"{path} is in no home folder that is known here", where=where, hint=hint) from error


@contextmanager
def in_words(what: str, where: object, hint: str, kind: type[AsaError] = InputError) -> Iterator[None]:
    """Turn a system error into an error of asa that says what cannot be done, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}", where=str(where), hint=hint) from error


@contextmanager
def replacing(
    path: Path, *, is_private: bool = False, is_shared: bool = False, is_durable: bool = False
) -> Iterator[BinaryIO]:
    """Replace a file, completely or not at all; a link is replaced, not followed.

    `is_private`: only its user may read it.
    `is_shared`: its group may read it too, whatever the umask.
    `is_durable`: the new file is on the disk before it replaces the old one.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    made = partial(os.open, mode=0o600 if is_private else 0o666)  # created with its mode, never changed later
    try:
        with open(draft, "xb", opener=made) as file:
            if is_shared:
                os.fchmod(file.fileno(), 0o640)
            yield file
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def append_to(path: Path, *, is_private: bool = False) -> BinaryIO:
    """Open a file for appending, and create it if needed; links are not followed, and pipes refused.

    `is_private`: a new file is readable only by its user; else the umask decides.
    """
    how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, how, 0o600 if is_private else 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "ab")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def put(
    path: Path, data: bytes, *, is_private: bool = False, is_shared: bool = False, is_durable: bool = False
) -> None:
    """Write a file as `replacing` does."""
    with replacing(path, is_private=is_private, is_shared=is_shared, is_durable=is_durable) as file:
        file.write(data)


def compressed(file: IO[bytes], path: Path) -> AbstractContextManager[IO[bytes] | Any]:
    """Compress a file whose name ends in ``.gz``; equal content gives equal bytes, at any time."""
    if path.suffix == ".gz":
        return gzip.GzipFile("", "wb", compresslevel=5, fileobj=file, mtime=0)
    return nullcontext(file)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, or raise `OSError`; some of them may then have been written."""
    while data:
        if not (done := os.write(descriptor, data)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = data[done:]


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
