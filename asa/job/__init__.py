"""The text that runs inside a job: the ``.sh`` files of this folder, for any POSIX shell, and the values that they use.

A job's text is a head, with a line ``name=value`` for each value, and then the files that it needs, unchanged but for
comments, which are removed. Nothing else is generated, so shellcheck's findings on the files hold for the text. All
files are read when the first is needed, so that an update of asa during a client's life does not mix two versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["exported", "head", "text"]

_SUFFIX = ".sh"
_NEEDS_NO_QUOTES = re.compile(r"[\w@%+:,./-]+", re.ASCII)  # without `=`: a word that contains it may be an assignment
_SPECIAL = '$`"\\'  # characters with a meaning inside double quotes
_SHORT = 4096  # characters; longer texts are asa's own, for which single quotes need fewer escapes
_SPECIAL_ESCAPED = str.maketrans({letter: f"\\{letter}" for letter in _SPECIAL})


def text(*names: str) -> str:
    """Return the text of the named files, in order, each once and without comments.

    Examples
    --------
    >>> print(text("signal").splitlines()[0])
    asa_tell_process() { # its number, a signal
    """
    files = _files()
    return "".join(files[name] for name in dict.fromkeys(names))


@cache
def _files() -> dict[str, str]:
    folder = Path(__file__).parent
    return {file.stem: _bare(file.read_text("utf-8")) for file in sorted(folder.glob(f"*{_SUFFIX}"))}


def _bare(file: str) -> str:
    """Remove comment lines, since each job's script contains the text."""
    return "".join(line for line in file.splitlines(keepends=True) if not line.lstrip().startswith("#"))


def head(values: Mapping[str, object]) -> str:
    """Return the head of a text, with its values; None and False are empty, and True is 1.

    Examples
    --------
    >>> print(head({"token": "a1", "command": "echo it's", "shares": False}), end="")
    token=a1
    command="echo it's"
    shares=
    """
    return "".join(f"{name}={_word(value)}\n" for name, value in values.items())


def exported(values: Mapping[str, object]) -> str:
    """Return a line that sets values for the text and for all processes that it starts; empty without values.

    Examples
    --------
    >>> print(exported({"ASA_STAGE": "fit", "ASA_CORES": 4}), end="")
    export ASA_STAGE=fit ASA_CORES=4
    """
    words = [f"{name}={_word(value)}" for name, value in values.items()]
    return f"export {' '.join(words)}\n" if words else ""


def _word(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "1" if value else ""
    return _quoted(str(value)) if value != "" else ""


def _quoted(value: str) -> str:
    """Quote a text as one word for a shell, in the quotes that need fewer escapes."""
    if _NEEDS_NO_QUOTES.fullmatch(value):
        return value
    if len(value) < _SHORT and sum(map(value.count, _SPECIAL)) < 3 * value.count("'"):
        return f'"{value.translate(_SPECIAL_ESCAPED)}"'
    escaped = value.replace("'", "'\\''")
    return f"'{escaped}'"
