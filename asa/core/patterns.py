"""Regular expressions that are compiled when they are first used: most commands use few of those that they import."""

from __future__ import annotations

import re
from typing import Any, cast


class _Late:
    """Stands for a compiled expression, whose methods it keeps as its own once they were asked for."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # for what copies or pickles it
            raise AttributeError(name)
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a stand-in for ``re.compile(text, flags)`` that is compiled only when it is first used.

    Raises `re.error` when it is first used, not here, if the text is no regular expression.

    Examples
    --------
    >>> pattern("[0-9]+").findall("4 nodes of 28 cores")
    ['4', '28']
    """
    return cast("re.Pattern[str]", _Late(text, flags))
