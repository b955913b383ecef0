"""What a page consists of; how that looks is the template's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Column", "Figure", "Page", "Part", "Section", "Table", "Text"]


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs; what stands between backticks is code."""

    paragraphs: tuple[str, ...]
    is_small: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    heading
        What stands above it.
    digits
        Behind the point of its numbers; None where it has words.
    note
        What it means, where the heading does not say.
    """

    heading: str
    digits: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be sorted, and searched if it is long.

    Parameters
    ----------
    columns
        Its columns.
    rows
        Words or numbers, as the columns have them; None for nothing.
    caption
        What it shows.
    marks
        By row and column, how a cell is shown: ``good``, ``bad`` or ``best``, each of which has a sign, too.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | float | None]]
    caption: str = ""
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing, with what it shows in words.

    Parameters
    ----------
    svg
        The drawing; see `asa.report.page.drawing`.
    caption
        What it shows.
    """

    svg: str
    caption: str = ""


Part = Text | Table | Figure


@dataclass(frozen=True, slots=True)
class Section:
    """A section with a heading.

    Parameters
    ----------
    key
        Its name in links.
    title
        The heading.
    parts
        What it consists of.
    """

    key: str
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page.

    Parameters
    ----------
    title
        The heading.
    summary
        What it says, in sentences, before anything else.
    sections
        In order.
    made
        How it was made: words and values, such as the seeds and the version, by which it can be made again.
    """

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    made: Mapping[str, str] = field(default_factory=dict)
