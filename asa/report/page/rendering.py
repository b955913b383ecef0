"""From a `Page` to one file of HTML."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from functools import lru_cache
from html import escape
from html.parser import HTMLParser
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from asa.core.documents import read_json
from asa.errors import MissingExtraError
from asa.printable import printable
from asa.units import format_duration, parse_duration

from .document import Around, Column, Folded, Links, Page, PageFigure, PageTable, Text

if TYPE_CHECKING:
    from jinja2 import Template

_NOTHING = "\N{EN DASH}"
_SEARCHED = 12
_WORDY = 30
_LINKED = 3  # an address, a name, a description
_RANGE = re.compile(r"(-?[\d,]+(?:\.\d+)?)(?: to |-)-?[\d,]+(?:\.\d+)?")
_SPAN = re.compile(r"(-?)((?:\d+[dhms])+) to -?(?:\d+[dhms])+")
_UNKNOWN = ("", "-")
_MARK = "asa-page"
_SIGNS = {"good": "✓", "bad": "✗", "best": "★"}


def render(page: Page, around: Around | None = None) -> str:
    """Write a page as HTML that needs nothing else: no network, no other file."""
    around = around or Around()
    about = {
        "title": page.title,
        "summary": list(page.summary),
        "is_part": len(around.above) > 1,
        "parts": [[link.address, link.text, link.about] for link in around.parts],
        "of": around.of,
    }
    html = _template().render(
        page=page,
        around=around,
        mark=_MARK,
        about=json.dumps(about),
        style=_file("page.css"),
        script=_file("page.js"),
    )
    return printable(html)  # names may contain characters that reverse the direction of the text around them


def check_installed() -> None:
    """Raise early, before any page is made, if the template library is missing."""
    _template()


def rendered_metadata(html: str) -> dict[str, Any] | None:
    """Return a page's metadata.

    That is its ``title``, ``summary``, ``is_part``, ``parts`` (address, words and about of each link) and ``of``; None
    if `render` did not write it.
    """
    reader = _About()
    with suppress(AssertionError):  # some text that looks like markup makes the parser raise this
        reader.feed(html.partition("</head>")[0])
    return {"of": "", **reader.about} if _is_metadata(reader.about) else None


def _is_metadata(about: Any) -> bool:
    """Whether this is a page's metadata from `render`."""
    match about:
        case {"title": str(), "summary": [*summary], "is_part": bool(), "parts": [*parts]}:
            lists = [summary, *parts]
            return (
                isinstance(about.get("of", ""), str)
                and all(isinstance(items, list) and all(isinstance(words, str) for words in items) for items in lists)
                and all(len(part) == _LINKED for part in parts)
            )
    return False


class _About(HTMLParser):
    about: Any = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "meta" and attributes.get("name") == _MARK:
            with suppress(ValueError):
                self.about = read_json(attributes.get("content") or "null")


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


@lru_cache(maxsize=1)
def _template() -> Template:
    try:
        from jinja2 import Environment  # noqa: PLC0415 - of an extra
        from markupsafe import Markup  # noqa: PLC0415 - jinja2 requires it
    except ImportError as error:
        raise MissingExtraError("a page needs jinja2, which is not installed", hint="pip install jinja2") from error

    def worded(text: str) -> Markup:
        kept = re.sub(r"(?<=\d) %", "\u00a0%", escape(text))  # keep a number and its percent sign on one line
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", kept))  # noqa: S704 - escaped before

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"worded": worded, "svg": Markup, "cell": _cell, "ranges": _ranges}
    environment.tests |= {
        "text": lambda part: isinstance(part, Text),
        "table": lambda part: isinstance(part, PageTable),
        "figure": lambda part: isinstance(part, PageFigure),
        "links": lambda part: isinstance(part, Links),
        "folded": lambda part: isinstance(part, Folded),
        "wordy": lambda value: isinstance(value, str) and len(value) > _WORDY,
    }
    environment.globals |= {"searched": _SEARCHED, "signs": _SIGNS}
    return environment.from_string(_file("page.html.j2"))


def _ranges(table: PageTable) -> dict[int, list[str]]:
    """Return the lower bounds of each column that holds only intervals, by which the column is sorted."""
    ranges: dict[int, list[str]] = {}
    for index, column in enumerate(table.columns):
        cells = [str(row[index] or "") for row in table.rows] if column.digits is None else []
        bounds = [_lower_bound(words) for words in cells]
        if any(bounds) and all(bound or words in _UNKNOWN for words, bound in zip(cells, bounds, strict=True)):
            ranges[index] = bounds
    return ranges


def _lower_bound(text: str) -> str:
    """Return the lower bound of an interval as a number, in seconds for durations; empty if the text is no interval."""
    if bound := _RANGE.fullmatch(text):
        return bound[1].replace(",", "")
    if span := _SPAN.fullmatch(text):
        return f"{span[1]}{parse_duration(span[2]):g}"
    return ""


def _cell(value: str | float | None, column: Column) -> str:
    """Format a cell."""
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return _NOTHING
    if column.is_time:
        return format_duration(value)
    digits = column.digits or 0
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # + 0.0 turns -0.0 into 0.0
