"""The parts of a page. The template decides how they look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs; text between backticks is code."""

    paragraphs: tuple[str, ...]
    is_small: bool = False  # whether it is a side note


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    heading: str
    digits: int | None = None  # decimals of its numbers; None if it holds text
    note: str = ""  # what the column means, if the heading does not say
    is_time: bool = False  # whether its numbers are seconds, which are written as durations

    @classmethod
    def of_time(cls, heading: str, note: str = "") -> Column:
        """Return a column of durations, given in seconds."""
        return cls(heading, 0, note, is_time=True)


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table that readers can sort. A long one can be searched, and filtered by columns of few different values."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | float | None]]  # text or numbers, as the column requires; None for an empty cell
    caption: str = ""
    # marks of cells, by row and column: `good`, `bad` or `best`; each is shown by a colour and a sign
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A drawing with its description."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Another page."""

    address: str  # its file, as seen from this page's
    text: str
    about: str = ""  # what the page shows, if its name does not say


@dataclass(frozen=True, slots=True)
class Links:
    """A list of other pages."""

    links: Sequence[Link]


@dataclass(frozen=True, slots=True)
class Folded:
    """Content that is hidden until its title is selected; it is always printed."""

    title: str
    parts: Sequence[Text | PageTable | PageFigure]  # the hidden content, in order


Part = Text | PageTable | PageFigure | Links | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """A section with a heading."""

    key: str
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page."""

    title: str
    summary: Sequence[str]  # the page's content in a few sentences, shown first
    sections: Sequence[Section]
    # how to make the page again: names and values, such as the seeds and the version
    made: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Around:
    """The other pages of a page's folder; none if there is no folder."""

    above: Sequence[Link] = ()  # links from the folder's first page down to the page that contains this one
    parts: Sequence[Link] = ()  # the parts of this page
    of: str = ""  # the run or command that the page is about; only a page about the same one may replace it
