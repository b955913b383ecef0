"""Reading JSON and TOML of any origin: whatever the text is, it is understood or refused with a `ValueError`.

The standard library's parsers recurse, and raise what nobody expects of a file when it is nested too deep.
"""

from __future__ import annotations

import json
import tomllib
from typing import Any

__all__ = ["TooDeepError", "read_json", "read_toml"]


class TooDeepError(ValueError):
    """A document is nested deeper than can be read."""

    def __init__(self) -> None:
        super().__init__("its brackets are nested too deep")


def read_json(text: str | bytes | bytearray) -> Any:
    """Read a document of JSON.

    Parameters
    ----------
    text
        The document.

    Raises
    ------
    ValueError
        It is none; `TooDeepError` if it is nested too deep.

    Examples
    --------
    >>> read_json('{"cores": [28, 56]}')
    {'cores': [28, 56]}
    """
    try:
        return json.loads(text)  # noqa: TID251 - here it is guarded
    except RecursionError:
        raise TooDeepError from None


def read_toml(text: str) -> dict[str, Any]:
    """Read a document of TOML.

    Parameters
    ----------
    text
        The document.

    Returns
    -------
    dict
        What it says.

    Raises
    ------
    ValueError
        It is none, or has a number of too many digits; `TooDeepError` if it is nested too deep.

    Examples
    --------
    >>> read_toml("cores = 28")
    {'cores': 28}
    """
    try:
        return tomllib.loads(text)  # noqa: TID251 - likewise
    except RecursionError:
        raise TooDeepError from None
