"""What a page consists of; how that looks is the template's."""

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
    digits: int | None = None  # behind the point of its numbers; None where it has words
    note: str = ""  # what it means, where the heading does not say
    is_time: bool = False  # whether its numbers are seconds, to be written as durations

    @classmethod
    def of_time(cls, heading: str, note: str = "") -> Column:
        """Give a column of durations, in seconds."""
        return cls(heading, 0, note, is_time=True)


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table that can be sorted; searched if it is long, and narrowed by columns that say the same again and again."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | float | None]]  # words or numbers, as the columns have them; None for nothing
    caption: str = ""
    # by row and column, how a cell is shown: `good`, `bad` or `best`, each of which has a sign, too
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A drawing, with what it shows in words."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Another page."""

    address: str  # its file, as seen from this page's
    text: str
    about: str = ""  # what it shows, if its name does not say


@dataclass(frozen=True, slots=True)
class Links:
    """A list of other pages."""

    links: Sequence[Link]


@dataclass(frozen=True, slots=True)
class Folded:
    """Something that is shown when its title is chosen, and in print."""

    title: str
    parts: Sequence[Text | PageTable | PageFigure]  # what is shown then, in order


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
    summary: Sequence[str]  # what it says, in sentences, before anything else
    sections: Sequence[Section]
    # how it was made: words and values, such as the seeds and the version, by which it can be made again
    made: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Around:
    """The other pages of a page's folder; none if there is no folder."""

    above: Sequence[Link] = ()  # from the first page of all down to the one that this is a part of
    parts: Sequence[Link] = ()  # what this one consists of
    of: str = ""  # the run or command: a page of another one does not replace it
