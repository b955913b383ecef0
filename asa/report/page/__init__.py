"""A page of HTML that needs nothing but itself: words, tables that sort, figures drawn as inline SVG."""

from .document import Around, Column, Figure, Folded, Link, Links, Page, Part, Section, Table, Text
from .rendering import check_installed, render, rendered_metadata

__all__ = [
    "Around",
    "Column",
    "Figure",
    "Folded",
    "Link",
    "Links",
    "Page",
    "Part",
    "Section",
    "Table",
    "Text",
    "check_installed",
    "render",
    "rendered_metadata",
]
