"""The command line's output streams, which may be closed, full or of a small character set; and screen widths.

All output passes through `asa.printable` here, so that no command needs to do that.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from shutil import get_terminal_size
from textwrap import fill
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


def write_notice(words: str) -> None:
    """Write sentences to standard error, in lines of whole words where that is a terminal."""
    if sys.stderr.isatty():
        words = wrapped(words, get_terminal_size().columns)
    sys.stderr.write(f"{words}\n")


def wrapped(text: str, width: int) -> str:
    r"""Break lines between words; what follows is indented as its line is.

    Examples
    --------
    >>> print(wrapped("One, and\n  two three four", 9))
    One, and
      two
      three
      four
    """
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")))
        filled = fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines.append(filled)
    return "\n".join(lines)


def make_usable() -> None:
    """Set up the streams so that all output can be printed, whatever the streams, the locale and the width."""
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
            with suppress(OSError):  # the position in the file is not known
                stream.reconfigure(encoding="ascii" if _is_of_c() else None, errors=_PLAIN)


def write_document(text: str) -> None:
    """Write a document to stdout in UTF-8, whatever the locale, so that it equals the file."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        write_bytes(text.encode(errors="surrogateescape"))
    else:
        sys.stdout.write(text)


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout unchanged: a document of asa, or a job's output for a pipe."""
    sys.stdout.flush()
    stream = sys.stdout.unchecked if isinstance(sys.stdout, _Checked) else sys.stdout.buffer
    stream.write(data)
    stream.flush()


def silence_output(descriptor: int = 1) -> None:
    """Redirect a stream to the null device: its reader is gone, and the interpreter would flush it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _fill_closed() -> None:
    """Open the null device in place of a stream that was closed when the process began.

    Else a file that is opened later gets the stream's number, and what is printed goes into that file.
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
    """Whether the user wants ASCII, by LC_ALL; Python ignores C in the other variables."""
    return os.environ.get("LC_ALL") in {"C", "POSIX"} and not {"PYTHONUTF8", "PYTHONIOENCODING"} & os.environ.keys()


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    r"""Replace characters that an encoding lacks by a similar one, or by their number; keep bytes as they are.

    Lone control bytes, as in C1, do not occur here: they have been escaped before.

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
        """Wrap a stream's file descriptor; `kind` is the class that writes to it."""
        try:
            raw = kind(stream.fileno(), "w", closefd=False)
        except (OSError, ValueError):  # it has no file descriptor
            return stream
        made = cls(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=line_buffering)
        made.unchecked = super(_Checked, made).buffer
        return made

    unchecked: Any  # for bytes that may be written unchanged

    @property
    def buffer(self) -> Any:
        """The byte stream, for libraries that write in an encoding of their own: also checked."""
        return _CheckedBytes(self)

    def write(self, text: str, /) -> int:
        """Write text, escaped."""
        super().write(printable(text))
        return len(text)

    @property
    def rich_proxied_file(self) -> _Past:
        """The unchecked stream: rich's consoles look it up by this name, and their colours are control characters.

        A console looks it up before it renders; from then on, all consoles escape their texts themselves.
        """
        from asa.core.console import check_others

        check_others()
        return _Past(self)


class _CheckedBytes(io.BufferedIOBase):
    """The byte stream of a checked stream; bytes are passed on as text."""

    def __init__(self, stream: _Checked) -> None:
        self._stream = stream

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Write bytes as text, escaped."""
        text = bytes(data)
        self._stream.write(text.decode(errors="surrogateescape"))
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()


class _Past:
    """A variant of a checked stream without the check, for text that was escaped before it was coloured."""

    def __init__(self, stream: _Checked) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text unchanged."""
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Unfailing(io.FileIO):
    """A file that ignores write errors: output to stderr must not affect the outcome."""

    def write(self, data: Any) -> int:
        """Write text, unless the terminal is gone."""
        try:
            return super().write(data) or 0
        except OSError:
            return len(memoryview(data).cast("B"))
