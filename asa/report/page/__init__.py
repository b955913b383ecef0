"""A page of HTML that needs nothing but itself: words, tables that sort, figures drawn as inline SVG."""

from .document import Column, Figure, Page, Part, Section, Table, Text
from .rendering import render

__all__ = ["Column", "Figure", "Page", "Part", "Section", "Table", "Text", "render"]
