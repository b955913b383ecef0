"""What runs inside a job: shell text in the files beside this, for any POSIX shell, and what that is given.

A text for a shell is a head, which is a line ``name=value`` for each thing that it is given, and then the files that it
needs, each as it stands here but for its comments. Nothing else of it is made, so what shellcheck says of the files
holds for it. All files are read at once, when the first is asked for: an update of asa beside a client that runs does
not mix two versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["exported", "head", "text"]

_SUFFIX = ".sh"
_NEEDS_NO_QUOTES = re.compile(r"[\w@%+:,./-]+", re.ASCII)  # and no `=`, with which a word may be another assignment
_SPECIAL = '$`"\\'  # within double quotes
_SHORT = 4096  # a user's text; the longest are asa's own, full of what is special there
_SPECIAL_ESCAPED = str.maketrans({letter: f"\\{letter}" for letter in _SPECIAL})


def text(*names: str) -> str:
    """Give the text of files, one after the other and each once, without what is only for their readers here.

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
    """Leave out lines that are comments: a job takes its text along."""
    return "".join(line for line in file.splitlines(keepends=True) if not line.lstrip().startswith("#"))


def head(values: Mapping[str, object]) -> str:
    """Write what a text is given; None and False are empty, and True is 1.

    Examples
    --------
    >>> print(head({"token": "a1", "command": "echo it's", "shares": False}), end="")
    token=a1
    command="echo it's"
    shares=
    """
    return "".join(f"{name}={_word(value)}\n" for name, value in values.items())


def exported(values: Mapping[str, object]) -> str:
    """Write what a text and all that it starts are given: one line, or none.

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
    """Write a text as one word for a shell, in the quotes that let more of it stand as it is."""
    if _NEEDS_NO_QUOTES.fullmatch(value):
        return value
    if len(value) < _SHORT and sum(map(value.count, _SPECIAL)) < 3 * value.count("'"):
        return f'"{value.translate(_SPECIAL_ESCAPED)}"'
    escaped = value.replace("'", "'\\''")
    return f"'{escaped}'"
