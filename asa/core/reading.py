"""The one reader of data from others: files, logs, answers and output of commands, each with an upper bound in bytes.

A file may have grown by mistake, or be made to exhaust a node's memory; a server may never end its answer; four
megabytes of gzip unpack to four gigabytes. So nothing is read whole without a bound, and packed or endless data are
read in pieces. Larger data are refused with a `TooLargeError`. The error is an `OSError` whose `strerror` gives the
bound and what to do, so it is reported like any system error.

With these bounds, reading takes less than 300 MB of memory; they are far above sizes seen at sites. The variable
``ASA_READ_FACTOR`` multiplies them all.

A test searches the sources for other ways of reading.
"""

from __future__ import annotations

import errno
import gzip
import math
import os
import select
import selectors
import subprocess
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any, Protocol

_MIB = 1 << 20
DOCUMENT_BYTES = 32 * _MIB
"""A document that is parsed as a whole, as TOML, JSON or a script: a run of 30,000 stages has 26 MB."""
SMALL_BYTES = _MIB
"""A file with a few words or numbers, such as a token, a mark or a process's status."""
JOURNAL_BYTES = 64 * _MIB
"""The journal of a run that others can change, or one line of a journal: a run of 15,000 jobs has some 60 MB."""
OWN_JOURNAL_BYTES = 1 << 30
"""The journal of the user's own run, which must always stay readable: this is enough for 250,000 jobs."""
OTHERS_BYTES = _MIB
"""A file of another user's run in a list of runs, which may have very many: this is enough for 1,000 stages."""
LINE_BYTES = 4 * _MIB
"""One of many lines or records."""
OUTPUT_BYTES = 48 * _MIB
"""The output of a command: 200,000 jobs of squeue, with some 220 bytes each."""
ANSWER_BYTES = 16 * _MIB
"""An answer of slurmrestd, unpacked; entries of a list that are read while they arrive do not count."""
ENTRY_BYTES = 32 * _MIB
"""One entry of such a list: a job on 9,000 nodes of 64 cores has 26 MB."""
LISTING_BYTES = 4 << 30
"""A whole list: 500,000 jobs, with 3 to 8 kB each, depending on the version of the API."""
LISTED_BYTES = 176 * _MIB
"""The records that are kept of a list's jobs at the same time: 230,000 jobs, with at least 700 bytes each."""
BANK_BYTES = 40 * _MIB
"""A bank's file of run times: 230,000 of them."""
EXPORT_BYTES = 256 * _MIB
"""An exported bank of waits, unpacked: `EXPORT_RECORDS` have some 150 MB."""
LOG_BYTES = 4 << 30
"""A log of jobs, unpacked, which is read in pieces."""

LOG_JOBS = 1_000_000
"""Number of jobs in a log: 90 days of a site with 11,000 jobs a day; each takes 150 to 250 bytes."""
BANK_RECORDS = 200_000
"""Number of a bank's observations that are kept in memory, the newest ones; each takes a kilobyte."""
EXPORT_RECORDS = 1_000_000
"""Number of observations in an exported bank; each takes some 150 bytes during the import."""

_BLOCK_BYTES = 1 << 18
_GZIP = b"\x1f\x8b"


class TooLargeError(OSError):
    """The data exceed asa's bound for data of this kind."""

    def __init__(self, what: str, max_bytes: int, path: object = None, *, instead: str = "") -> None:
        _refuse(self, f"{what} is larger than {_size(max_bytes)}", path, instead)


class TooManyError(TooLargeError):
    """There are more things of a kind than asa reads."""

    def __init__(self, what: str, max_count: int, path: object = None, *, instead: str = "") -> None:
        _refuse(self, f"it has more than {max_count:,} {what}", path, instead)


def _refuse(error: OSError, why: str, path: object, instead: str) -> None:
    """Set the error's text: why it was refused, and what to do."""
    OSError.__init__(error, errno.EOVERFLOW, "", "")
    error.strerror = (
        f"{why}, the most that asa reads of it; if it is right, and there is memory for it, set ASA_READ_FACTOR=4 to "
        f"read four times as much{'; or ' if instead else ''}{instead}"
    )
    error.filename = None if path is None else str(path)


def _size(count: int) -> str:
    for factor, unit in ((1 << 30, "GiB"), (_MIB, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"


def factor() -> float:
    """Return the factor of all bounds: ``ASA_READ_FACTOR``, if that is a number above 1."""
    try:
        given = float(os.environ.get("ASA_READ_FACTOR", ""))
    except ValueError:
        return 1.0
    return given if 1.0 < given < math.inf else 1.0


def bound(count: int) -> int:
    """Return a bound, multiplied by the user's factor."""
    return int(count * factor())


# ------------------------------------------------------------------------------------------------------- files


class Stream(Protocol):
    """An object that returns its next bytes, and none at its end."""

    def read(self, size: int, /) -> bytes: ...  # noqa: D102 - as files do


def read_whole(file: IO[bytes], path: object, max_bytes: int = DOCUMENT_BYTES) -> bytes:
    """Read an open file from its position to its end.

    Raises `TooLargeError`: there is more than the bound; if the file's size says so, nothing is read.
    """
    most = bound(max_bytes)
    try:
        size = os.fstat(file.fileno()).st_size
    except (OSError, AttributeError):  # no file of the system
        size = 0
    if size > most:
        raise TooLargeError("it", most, path)
    data = file.read(size + 1)  # one byte more, to see whether it ends
    if 0 < len(data) <= size:
        return data
    whole = bytearray(data)
    while piece := file.read(_BLOCK_BYTES):
        whole += piece
        if len(whole) > most:
            raise TooLargeError("it", most, path)
    return bytes(whole)


def read_lines(
    file: Stream, path: object, max_line_bytes: int = LINE_BYTES, max_bytes: int = LOG_BYTES
) -> Iterator[bytes]:
    r"""Read a stream line by line, without line ends.

    Raises `TooLargeError`: a line or the whole stream is longer than its bound.

    Examples
    --------
    >>> import io
    >>> list(read_lines(io.BytesIO(b"a\n\nb"), "x"))
    [b'a', b'', b'b']
    """
    for block in read_blocks(file, path, max_line_bytes, max_bytes):
        *lines, last = block.split(b"\n")
        yield from lines
        if last:
            yield last


def read_blocks(
    file: Stream,
    path: object,
    max_line_bytes: int = LINE_BYTES,
    max_bytes: int = LOG_BYTES,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[bytes]:
    """Read a stream in blocks of whole lines; the last block may end within one.

    Raises `TooLargeError`: a line or the whole stream is longer than its bound.
    """
    longest = bound(max_line_bytes)
    rest = bytearray()
    for chunk in read_pieces(file, path, max_bytes, block_bytes):
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest += chunk
            if len(rest) > longest:
                raise TooLargeError("one of its lines", longest, path)
            continue
        yield bytes(rest) + chunk[:cut] if rest else chunk[:cut]
        rest = bytearray(chunk[cut:])
    if rest:
        yield bytes(rest)


def read_pieces(file: Stream, path: object, max_bytes: int, piece_bytes: int = _BLOCK_BYTES) -> Iterator[bytes]:
    """Read a stream in pieces as they arrive.

    Raises `TooLargeError`: all together are larger than the bound.
    """
    most, total = bound(max_bytes), 0
    while piece := file.read(piece_bytes):
        total += len(piece)
        if total > most:
            raise TooLargeError("it", most, path)
        yield piece


@contextmanager
def unpacked(raw: IO[bytes]) -> Iterator[Stream]:
    """Return a reader of a file's content, which is unpacked while reading if it begins like gzip."""
    is_packed = raw.read(2) == _GZIP
    raw.seek(0)
    if not is_packed:
        yield raw
        return
    with gzip.open(raw) as stream:
        yield stream


UNPACKING_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)
"""The errors that a damaged file causes while `unpacked` reads it."""


def inflate(packed: bytes, max_bytes: int = DOCUMENT_BYTES) -> bytes:
    """Unpack data packed with zlib.

    Raises `zlib.error`: it is not zlib data; `TooLargeError`: it unpacks to more than the bound.
    """
    most = bound(max_bytes)
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(packed, most + 1)
    if len(data) > most:
        raise TooLargeError("what it unpacks to", most)
    if not unpacking.eof:
        raise zlib.error("it is cut off")
    return data


def inflated(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Unpack a stream of pieces, packed as HTTP's ``gzip`` or ``deflate``, into pieces of limited size.

    Raises `zlib.error`: it is not packed in one of these ways.
    """
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise zlib.error(f"it is packed as {encoding}, which is not read")
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either format, by its first bytes
    for packed in pieces:
        left = packed
        while left and not unpacking.eof:
            yield unpacking.decompress(left, _BLOCK_BYTES)
            left = unpacking.unconsumed_tail
    if not unpacking.eof:
        raise zlib.error("it is cut off")


def joined(pieces: Iterable[bytes], what: str, max_bytes: int) -> bytes:
    """Join pieces.

    Raises `TooLargeError`: together they are larger than the bound.
    """
    most, whole = bound(max_bytes), bytearray()
    for piece in pieces:
        whole += piece
        if len(whole) > most:
            raise TooLargeError(what, most)
    return bytes(whole)


# ---------------------------------------------------------------------------------------------------- commands


def run_command(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float | None = None,
    errors: str = "replace",
    max_bytes: int = OUTPUT_BYTES,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output, as `subprocess.run` does, up to a bound.

    `stdin`: its input; empty if not given.
    `errors`: how bytes that are not valid text are decoded.
    `options`: further arguments of `subprocess.Popen`.

    Raises `OSError`: it cannot be started; `subprocess.TimeoutExpired`: it took longer, and was killed;
    `TooLargeError`: it printed more than the bound, and was killed.

    Examples
    --------
    >>> run_command(["tr", "a-z", "A-Z"], stdin="squeue").stdout
    'SQUEUE'
    """
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    process = subprocess.Popen(  # noqa: S603 - whoever calls it knows what is run
        command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    try:
        out, err = received(process, (stdin or "").encode(errors=errors), timeout_s, max_bytes, command[0])
    except BaseException:
        process.kill()
        process.wait()
        raise
    printed, complaint = (text.decode(errors=errors) for text in (out, err))
    return subprocess.CompletedProcess(command, process.returncode, printed, complaint)


def received(
    process: subprocess.Popen[bytes], stdin: bytes, timeout_s: float | None, max_bytes: int, name: str
) -> tuple[bytes, bytes]:
    """Send a process its input, and return its output until it ends, as `Popen.communicate` does.

    Raises `subprocess.TimeoutExpired`, or `TooLargeError`: its pipes are closed, but the process is not killed.
    """
    end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    out, err = bytearray(), bytearray()
    try:
        with selectors.DefaultSelector() as waiting, ExitStack() as pipes:
            for stream, event, data in (
                (process.stdout, selectors.EVENT_READ, out),
                (process.stderr, selectors.EVENT_READ, err),
                (process.stdin, selectors.EVENT_WRITE, memoryview(stdin)),
            ):
                if stream is not None:
                    pipes.callback(_close, stream)
                    os.set_blocking(stream.fileno(), False)
                    waiting.register(stream, event, data)
            while waiting.get_map():
                for key, event in waiting.select(_left_s(end_s)):
                    _serve(waiting, key, event)
                if len(out) + len(err) > bound(max_bytes):
                    raise TooLargeError("what it prints", bound(max_bytes), name)
                _check(end_s)
        process.wait(_left_s(end_s))
    except (TimeoutError, subprocess.TimeoutExpired):
        raise subprocess.TimeoutExpired(process.args, timeout_s or 0.0, bytes(out), bytes(err)) from None
    return bytes(out), bytes(err)


def _serve(waiting: selectors.BaseSelector, key: selectors.SelectorKey, event: int) -> None:
    """Read from a pipe that has data, or write to a pipe that accepts data; unregister the pipe at its end."""
    if event & selectors.EVENT_READ:
        piece = os.read(key.fd, _BLOCK_BYTES)
        key.data.extend(piece)
        is_over = not piece
    else:
        left = _gave(key.fd, key.data)
        waiting.modify(key.fileobj, selectors.EVENT_WRITE, left)
        is_over = not left
    if is_over:
        waiting.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr] # a pipe


def _check(end_s: float) -> None:
    if time.monotonic() >= end_s:
        raise TimeoutError


def _left_s(end_s: float) -> float | None:
    return None if end_s == math.inf else max(end_s - time.monotonic(), 0.0)


def _gave(pipe: int, given: memoryview) -> memoryview:
    """Write to a pipe; return the rest, which is empty if the reader is gone."""
    try:
        return given[os.write(pipe, given[: select.PIPE_BUF]) :] if given else given
    except BlockingIOError:
        return given
    except BrokenPipeError:
        return given[:0]


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with suppress(OSError):
            stream.close()
