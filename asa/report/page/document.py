"""What a page consists of; how that looks is the template's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Around", "Column", "Figure", "Folded", "Link", "Links", "Page", "Part", "Section", "Table", "Text"]


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs; what stands between backticks is code.

    Parameters
    ----------
    paragraphs
        In order.
    is_small
        Whether it is a note beside what matters.
    """

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
    """A table that can be sorted; searched if it is long, and narrowed by columns that say the same again and again.

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


@dataclass(frozen=True, slots=True)
class Link:
    """Another page.

    Parameters
    ----------
    address
        Its file, as seen from this page's.
    words
        What stands there.
    about
        What it shows, if its name does not say.
    """

    address: str
    words: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Links:
    """A list of other pages.

    Parameters
    ----------
    links
        In order.
    """

    links: Sequence[Link]


@dataclass(frozen=True, slots=True)
class Folded:
    """Something that is shown when its title is chosen, and in print.

    Parameters
    ----------
    title
        What is shown before.
    parts
        What is shown then, in order.
    """

    title: str
    parts: Sequence[Text | Table | Figure]


Part = Text | Table | Figure | Links | Folded


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


@dataclass(frozen=True, slots=True)
class Around:
    """The pages beside which a page stands in a folder; of one that stands alone there are none.

    Parameters
    ----------
    above
        From the first page of all down to the one that this is a part of.
    parts
        What this one consists of.
    of
        Which run, or by which command: a page of another stands beside it, and does not take its place.
    """

    above: Sequence[Link] = ()
    parts: Sequence[Link] = ()
    of: str = ""
