"""The command line's output streams, which may be closed, full or of a small character set; and screen widths.

All output passes through `asa.printable` here, so that no command needs to do that.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from asa.printable import printable

_MIN_WIDTH, _MAX_WIDTH = 20, 10_000
_SIZES = ("COLUMNS", "LINES", "TERMINAL_WIDTH")
_PLAIN = "asa-plain"
_LINES = dict.fromkeys("│┃║╵╷╎", "|") | dict.fromkeys("─━═╴╶", "-") | dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┡┩╇╈", "+")
_BLOCKS = dict(zip("▁▂▃▄▅▆▇█", "..::--##", strict=True))
_SIGNS = {"▼": "v", "→": "->", "…": "...", "•": "*", "✔": "+", "✘": "x", "\u2019": "'", "\u2013": "-", "\u2014": "-"}
_LIKE = {**_LINES, **_BLOCKS, **_SIGNS}
"""Replacements of characters that ASCII lacks."""


def make_usable() -> None:
    """Set up the streams so that all output can be printed, as far as streams, locale and width allow."""
    _fill_closed()
    for name in _SIZES:
        if not _is_size(name):
            os.environ.pop(name, None)
    codecs.register_error(_PLAIN, _plain)
    if isinstance(sys.stderr, io.TextIOWrapper) and sys.stderr is sys.__stderr__:
        sys.stderr = _Checked.around(sys.stderr, _Unfailing, line_buffering=True)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout = _Checked.around(sys.stdout, io.FileIO, line_buffering=sys.stdout.line_buffering)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # its progress is not known
                stream.reconfigure(encoding="ascii" if _is_of_c() else None, errors=_PLAIN)


def write_document(text: str) -> None:
    """Write a file's content to the standard output: in UTF-8, whatever the locale, as into the file itself."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        write_bytes(text.encode(errors="surrogateescape"))
    else:
        sys.stdout.write(text)


def write_bytes(data: bytes) -> None:
    """Write bytes to the standard output as they are: of a document of ours, or of what a job wrote for a pipe."""
    sys.stdout.flush()
    stream = sys.stdout.unchecked if isinstance(sys.stdout, _Checked) else sys.stdout.buffer
    stream.write(data)
    stream.flush()


def silence_output(descriptor: int = 1) -> None:
    """Redirect stdout to the null device, since its reader is gone; the interpreter also flushes it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def counted(number: int, noun: str) -> str:
    """Write how many there are of something."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _fill_closed() -> None:
    """Replace a stream that was closed before we began by the null device.

    Else a file that is opened later would get its number, and with it what others print.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != descriptor and not _is_open(descriptor):
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
            nowhere = descriptor
        setattr(sys, name, open(nowhere, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - to the end


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _is_size(name: str) -> bool:
    value = os.environ.get(name, "")
    least = 1 if name == "LINES" else _MIN_WIDTH
    return value.isascii() and value.isdecimal() and len(value) < 9 and least <= int(value) <= _MAX_WIDTH


def _is_of_c() -> bool:
    """Whether the user wants ASCII: by LC_ALL, since Python treats C in the other variables as not set."""
    return os.environ.get("LC_ALL") in {"C", "POSIX"} and not {"PYTHONUTF8", "PYTHONIOENCODING"} & os.environ.keys()


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    r"""Write characters that an encoding lacks: as a similar one, or by number; bytes as they were.

    Lone control bytes, as in C1, do not occur here: they are escaped before.

    Examples
    --------
    >>> codecs.register_error("plain", _plain)
    >>> "┌─┐ étape → …".encode("ascii", "plain")
    b'+-+ \\xe9tape -> ...'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter = error.object[error.start]
    if "\udc80" <= letter <= "\udcff":
        return bytes([ord(letter) - 0xDC00]), error.start + 1
    return _LIKE.get(letter) or letter.encode("ascii", "backslashreplace").decode(), error.start + 1


class _Checked(io.TextIOWrapper):
    """A stream that escapes control and direction characters in all that is written to it."""

    @classmethod
    def around(cls, stream: TextIO, kind: type[io.FileIO], *, line_buffering: bool) -> TextIO:
        """Write to where a stream does, as a kind of file."""
        try:
            raw = kind(stream.fileno(), "w", closefd=False)
        except (OSError, ValueError):  # it is no file
            return stream
        made = cls(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=line_buffering)
        made.unchecked = super(_Checked, made).buffer
        return made

    unchecked: Any  # its bytes, for what may go out as it is

    @property
    def buffer(self) -> Any:
        """The way of bytes, as libraries take it that write in an encoding of their own: checked, too."""
        return _CheckedBytes(self)

    def write(self, text: str, /) -> int:
        """Write it, escaped."""
        super().write(printable(text))
        return len(text)

    @property
    def rich_proxied_file(self) -> _Past:
        """The consoles' stream, which rich looks for under this name: its colours are control characters as well.

        A console reads this before it renders anything; from then on all of them check their texts.
        """
        from asa.core.console import check_others

        check_others()
        return _Past(self)


class _CheckedBytes(io.BufferedIOBase):
    """The bytes of a checked stream, which it gets as text."""

    def __init__(self, stream: _Checked) -> None:
        self._stream = stream

    def writable(self) -> bool:
        """Whether it can be written, which it can."""
        return True

    def write(self, data: Any, /) -> int:
        """Write it, escaped."""
        text = bytes(data)
        self._stream.write(text.decode(errors="surrogateescape"))
        return len(text)

    def flush(self) -> None:
        """Have all of it written."""
        self._stream.flush()


class _Past:
    """A checked stream without the check, for what was checked before it got its colours."""

    def __init__(self, stream: _Checked) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write it as it is."""
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Unfailing(io.FileIO):
    """A file whose write errors are ignored: output to stderr does not affect the outcome."""

    def write(self, data: Any) -> int:
        """Write, if that can be done."""
        try:
            return super().write(data) or 0
        except OSError:
            return len(memoryview(data).cast("B"))
