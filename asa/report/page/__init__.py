"""Pages of HTML in one file each: text, tables that can be sorted, figures as inline SVG."""

from .document import Around, Column, Folded, Link, Links, Page, PageFigure, PageTable, Part, Section, Text
from .rendering import check_installed, render, rendered_metadata

__all__ = [
    "Around",
    "Column",
    "Folded",
    "Link",
    "Links",
    "Page",
    "PageFigure",
    "PageTable",
    "Part",
    "Section",
    "Text",
    "check_installed",
    "render",
    "rendered_metadata",
]
