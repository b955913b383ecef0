"""Replaces arguments of a recorded driver by parameters of the workflow file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from asa.core.documents import read_toml
from asa.errors import InputError

_VALUE: Final = re.compile(r"[\w./@:+%-]+")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_WHERE: Final = "--as-parameter"


def with_parameters(text: str, parameters: Mapping[str, str], kept: Mapping[Path, bytes]) -> str:
    """Replace values by parameters wherever a value is a whole word.

    `text`: of a workflow file. `parameters`: the value to be replaced, by name of the parameter. `kept`: files that the
    driver made; these cannot contain parameters. Raises `InputError`: a value is not in the text, or cannot be
    distinguished from other text.

    Examples
    --------
    >>> text = chr(10).join(['name = "f"', "", "[[stage]]", 'name = "a-s1"'])
    >>> print(with_parameters(text, {"sample": "s1"}, {}))
    name = "f"
    <BLANKLINE>
    [parameters]
    sample = "s1"
    <BLANKLINE>
    [[stage]]
    name = "a-{{sample}}"
    """
    lines = text.split("\n")
    begin = next((number for number, line in enumerate(lines) if line.startswith("[")), len(lines))
    for name, value in parameters.items():
        _check(name, value, kept)
        word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])")
        changed = [
            line if number < begin or line.startswith("#") else word.sub(f"{{{{{name}}}}}", line)
            for number, line in enumerate(lines)
        ]
        if changed == lines:
            raise InputError(
                f"{value!r} stands nowhere in the workflow", where=_WHERE, hint="Give what was an argument."
            )
        lines = changed
    declared = [f'{name} = "{value}"' for name, value in parameters.items()]
    if "[parameters]" in lines:
        at = lines.index("[parameters]") + 1
        lines[at:at] = declared
    else:
        while begin and (not lines[begin - 1].strip() or lines[begin - 1].startswith("#")):
            begin -= 1
        lines[begin:begin] = ["", "[parameters]", *declared]
    made = "\n".join(lines)
    read_toml(made)
    return made


def _check(name: str, value: str, kept: Mapping[Path, bytes]) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name of a parameter", where=_WHERE, hint="Use letters, digits and _.")
    if not _VALUE.fullmatch(value):
        hint = "Leave it out, and write {{" + name + "}} into the file yourself."
        raise InputError(f"{value!r} cannot be told from other text", where=_WHERE, hint=hint)
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])".encode())
    for path, content in kept.items():
        if path.parts[0] == "before":
            continue
        if word.search(str(path).encode()) or word.search(content):
            hint = "Record each such case by itself, with --out: no parameter can stand in a file that the driver made."
            raise InputError(f"{value!r} is also in what the driver made, {path}", where=_WHERE, hint=hint)


def given(words: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` arguments."""
    values = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise InputError(f"{word!r} is no NAME=VALUE", where=_WHERE, hint="Write it as in sample=s1.")
        values[name] = value
    return values
