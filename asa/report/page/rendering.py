"""From a `Page` to one file of HTML."""

from __future__ import annotations

import math
import re
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from asa.errors import MissingExtraError

from .document import Column, Figure, Page, Table, Text

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["render"]

_NOTHING = "\N{EN DASH}"
_SEARCHED = 8
_WORDY = 30
_SIGNS = {"good": "✓", "bad": "✗", "best": "★"}


def render(page: Page) -> str:
    """Write a page as HTML that needs nothing else: no network, no other file.

    Raises
    ------
    MissingExtraError
        jinja2 is not installed.
    """
    here = files(__package__)
    template = _environment().from_string(here.joinpath("page.html.j2").read_text("utf-8"))
    return template.render(
        page=page,
        style=here.joinpath("page.css").read_text("utf-8"),
        script=here.joinpath("page.js").read_text("utf-8"),
    )


def _environment() -> Environment:
    try:
        from jinja2 import Environment  # noqa: PLC0415 - of an extra
        from markupsafe import Markup  # noqa: PLC0415 - comes with it
    except ImportError as error:
        raise MissingExtraError(
            "a page needs jinja2, which is not installed", hint="pip install 'asa-client[report]'"
        ) from error

    def worded(words: str) -> Markup:
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words)))  # noqa: S704 - escaped before

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"worded": worded, "svg": Markup, "cell": _cell}
    environment.tests |= {
        "text": lambda part: isinstance(part, Text),
        "table": lambda part: isinstance(part, Table),
        "figure": lambda part: isinstance(part, Figure),
        "wordy": lambda value: isinstance(value, str) and len(value) > _WORDY,
    }
    environment.globals |= {"searched": _SEARCHED, "signs": _SIGNS}
    return environment


def _cell(value: str | float | None, column: Column) -> str:
    """Write a cell as people read it."""
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return _NOTHING
    return f"{value:,.{column.digits or 0}f}"
