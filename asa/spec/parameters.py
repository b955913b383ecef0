"""Parameters of a workflow file: ``{{width}}`` in its text is replaced by the user's value, or the file's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from asa.spec.locations import Location

Parameter = str | int | float | bool

PLACEHOLDER = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_-]*)[ \t]*\}\}")

_BY_WIDTH = (("expected",), ("until",), ("walltime",))  # tables whose keys are widths, which may be parameters, too
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Filled(str):
    """Text into which a parameter's value was inserted, so that it may be a number."""

    __slots__ = ()


def text_of(value: Parameter) -> str:
    """Write a parameter's value for use in text.

    Examples
    --------
    >>> text_of(True), text_of(0.5), text_of("a")
    ('true', '0.5', 'a')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_as(given: Parameter, default: Parameter) -> Parameter:
    """Convert a value, as from a command line, to the type of the parameter's default.

    Examples
    --------
    >>> read_as("56", 28), read_as("no", True), read_as(2, 0.5), read_as(2, "a")
    (56, False, 2.0, '2')
    """
    text = text_of(given).strip()
    if isinstance(default, bool):
        if text.lower() not in _TRUTHS:
            raise ValueError("true or false")
        return _TRUTHS[text.lower()]
    if isinstance(default, str):
        return text_of(given)
    kind = type(default)
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError("a whole number" if kind is int else "a number") from error


def fill(
    value: Any,
    parameters: Mapping[str, Parameter],
    location: Location,
    unknown: Callable[[Location, str], None],
    used: set[str],
) -> Any:
    """Put parameters' values into a string, or into all strings of a list or table.

    `parameters`: name to value. Values are not expanded again, so one may contain ``{{``.
    `unknown`: called for each unknown name, with its location and the text that contains it.
    """
    if isinstance(value, str):
        if _is_script_text(location, value):
            return value
        return _fill_text(value, parameters, location, unknown, used)
    if isinstance(value, list):
        return [fill(part, parameters, (*location, i), unknown, used) for i, part in enumerate(value)]
    if isinstance(value, dict):
        filled = {key: fill(part, parameters, (*location, key), unknown, used) for key, part in value.items()}
        if location[-1:] in _BY_WIDTH:
            return {_fill_text(key, parameters, location, unknown, used): part for key, part in filled.items()}
        return filled
    return value


def _is_script_text(location: Location, value: str) -> bool:
    """Whether a value is text in another language, which may contain double braces."""
    return location[-1:] == ("script",) and is_text_of_script(value)


def is_text_of_script(value: str) -> bool:
    """Whether a stage's ``script`` is the script itself and not its path: it has more than one line, or begins with #!.

    Examples
    --------
    >>> is_text_of_script("run.sh"), is_text_of_script("#!/bin/sh")
    (False, True)
    """
    return "\n" in value or value.startswith("#!")


def _fill_text(
    text: str,
    parameters: Mapping[str, Parameter],
    location: Location,
    unknown: Callable[[Location, str], None],
    used: set[str],
) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1] not in parameters:
            unknown(location, match[0])
            return match[0]
        used.add(match[1])
        return text_of(parameters[match[1]])

    filled, count = PLACEHOLDER.subn(replaced, text)
    return Filled(filled) if count else text
