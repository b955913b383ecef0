"""Reads documents of any origin; bad ones are refused with an `OSError` or a `ValueError`, whatever they contain.

The standard library's parsers recurse, and raise unexpected errors if a file is nested too deep; they read a device
such as ``/dev/zero`` until memory is exhausted; and they turn thirty million brackets into two gigabytes of lists.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import sys
from pathlib import Path
from typing import IO, Any

from asa.core.patterns import pattern
from asa.core.reading import DOCUMENT_BYTES, bound, read_whole
from asa.printable import printable_json

_MAX_PARTS = 100  # parts of a dotted key; Python's reader takes time quadratic in their number
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = pattern(rf"(?<![\w.-]){_PART}(?:\.[ \t]*+{_PART}){{{_MAX_PARTS}}}")
_MAX_VALUES = 2_000_000  # each takes at least some 60 bytes of memory; a run of 30,000 stages has 1.5 million


class TooDeepError(ValueError):
    """A document is nested deeper than can be read."""

    def __init__(self) -> None:
        super().__init__("its brackets are nested too deep")


def open_file(path: str | Path) -> IO[bytes]:
    """Open a path that a user named: a file, a pipe or a terminal.

    Endless devices are refused, and a FIFO that another user has made, for which one could wait for ever.
    """
    _refuse_fifo(path)
    file = Path(path).open("rb")  # noqa: SIM115 - the caller closes it
    about = os.fstat(file.fileno())
    is_empty = about.st_rdev == Path(os.devnull).stat().st_rdev
    if stat.S_ISCHR(about.st_mode) and not file.isatty() and not is_empty:
        file.close()
        raise OSError(errno.EINVAL, "it is a device, and no file", str(path))
    return file


def _refuse_fifo(path: str | Path) -> None:
    about = Path(path).stat()
    if (
        stat.S_ISFIFO(about.st_mode)
        and about.st_uid not in {os.geteuid(), 0}
        and Path(os.path.realpath(path)).exists()  # else it is a stream that this process has inherited
    ):
        raise OSError(errno.EINVAL, "it is a FIFO of another user", str(path))


def read_file(path: str | Path, max_bytes: int = DOCUMENT_BYTES) -> bytes:
    """Read the whole of a path that a user named, as `open_file` opens it; refuse more than `max_bytes`."""
    with open_file(path) as file:
        return read_whole(file, path, max_bytes)


def read_text(
    path: str | Path, encoding: str = "utf-8", errors: str = "strict", max_bytes: int = DOCUMENT_BYTES
) -> str:
    """Read the text of a path that a user named, as `read_file` does; any line end becomes a line feed."""
    return io.TextIOWrapper(io.BytesIO(read_file(path, max_bytes)), encoding=encoding, errors=errors).read()


def read_json(text: str | bytes | bytearray) -> Any:
    """Read a JSON document.

    Examples
    --------
    >>> read_json('{"cores": [28, 56]}')
    {'cores': [28, 56]}
    """
    _check_count(text)
    try:
        return json.loads(text)  # noqa: TID251 - here it is guarded
    except RecursionError:
        raise TooDeepError from None


def _check_count(text: str | bytes | bytearray) -> None:
    """Refuse text with more values than memory could hold; a value takes at least two bytes of text."""
    if len(text) > _MAX_VALUES:
        marks = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
        if sum(map(text.count, marks)) > bound(_MAX_VALUES):  # type: ignore[arg-type] # either texts or bytes
            raise ValueError(f"it has more than {bound(_MAX_VALUES):,} values; set ASA_READ_FACTOR=4 to read more")


def read_toml(text: str) -> dict[str, Any]:
    """Read a TOML document.

    Raises `ValueError`: it is no TOML, or has a number of too many digits; `TooDeepError`: it is nested too deep.

    Examples
    --------
    >>> read_toml("cores = 28")
    {'cores': 28}
    """
    import tomllib  # noqa: PLC0415 - commands about runs read no TOML

    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {_MAX_PARTS} parts")
    try:
        return tomllib.loads(text)  # noqa: TID251 - likewise
    except RecursionError:
        raise TooDeepError from None


def print_json(document: Any, *, indent: int | None = 1, allow_nan: bool = True) -> None:
    """Print a JSON document, as commands do with ``--output json``; without an indent on one line."""
    sys.stdout.write(printable_json(json.dumps(document, indent=indent, allow_nan=allow_nan)) + "\n")
    sys.stdout.flush()  # a program may be waiting for this one object
