"""The line of each value in a TOML file, which `tomllib` does not report."""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from asa.core.documents import read_toml

Location = tuple[str | int, ...]
"""The path to a value: names of keys, and indices of elements from 0."""

_MAX_PARTS = 100  # of a dotted key: one with more is refused where the file is read
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY_PART = re.compile(r"[ \t]*(?:(\"(?:[^\"\\\n]|\\.)*\")|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*")
_SCALAR = re.compile(r"[^,\]}\n#]*")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}(?!")', re.DOTALL),
    re.compile(r"'''.*?'{3,5}(?!')", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


class Locations:
    r"""Line numbers of the keys and values of a TOML file.

    `text`: the file's content; in invalid TOML only lines before the first mistake are found.

    Examples
    --------
    >>> path = Locations(Path("flow.toml"), 'name = "x"\n[[stage]]\nafter = [\n  "a",\n]')
    >>> path.line(("stage", 0, "after", 0)), path.line(("stage", 0, "cores"))
    (4, 2)
    """

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        # lines as TOML counts them: some other characters do not end a line there
        self.lines_of_text = text.split("\n")
        self._text = text
        self._breaks = [match.end() for match in re.finditer("\n", text)]
        self._lines: dict[Location, int] = {}
        self._counts: dict[Location, int] = {}
        with contextlib.suppress(RecursionError):  # too many brackets: reported elsewhere
            self._scan()

    def line(self, location: Location) -> int:
        """Return the line of a value, or of the innermost existing table around it; else the first line."""
        for length in range(len(location), 0, -1):
            if location[:length] in self._lines:
                return self._lines[location[:length]]
        return 1

    def has(self, location: Location) -> bool:
        """Whether exactly this location is in the file."""
        return location in self._lines

    def line_of_text(self, location: Location, wanted: str) -> int:
        """Return the line of some text within a value; the value's own line if the text is not found."""
        first = self.line(location)
        for number in range(first, len(self.lines_of_text) + 1):
            if wanted in self.lines_of_text[number - 1]:
                return number
        return first

    def first_line_of_string(self, location: Location) -> int:
        """Return the line on which a string's text begins: the next one if its quotes are alone on a line."""
        line = self.line(location)
        begins = self.lines_of_text[line - 1].rstrip() if line <= len(self.lines_of_text) else ""
        return line + 1 if begins.endswith(("'''", '"""')) and begins.count(begins[-3:]) == 1 else line

    def _scan(self) -> None:
        table: Location = ()
        at = self._blank(0)
        while at < len(self._text):
            if self._text[at] == "[":
                is_array = self._text.startswith("[[", at)
                parts, end = self._key(at + (2 if is_array else 1))
                table = self._table(parts, is_array=is_array)
                for length in range(1, len(table) + 1):
                    self._lines.setdefault(table[:length], self._line_at(at))
                end = self._text.find("]", end) + (2 if is_array else 1)
            else:
                end = self._pair(table, at)
            if end <= at:  # invalid TOML: keep the lines that are known so far
                return
            at = self._blank(end)

    def _table(self, parts: Sequence[str], *, is_array: bool) -> Location:
        """Return the location that a heading refers to: below an array of tables, its latest table."""
        way: Location = ()
        for number, part in enumerate(parts, start=1):
            way = (*way, part)
            if number == len(parts) and is_array:
                self._counts[way] = self._counts.get(way, -1) + 1
            if way in self._counts:
                way = (*way, self._counts[way])
        return way

    def _pair(self, table: Location, at: int) -> int:
        parts, end = self._key(at)
        if not parts or not self._text.startswith("=", end):
            return at
        for length in range(1, len(parts) + 1):
            self._lines.setdefault((*table, *parts[:length]), self._line_at(at))
        return self._value((*table, *parts), self._spaces(end + 1))

    def _key(self, at: int) -> tuple[list[str], int]:
        parts: list[str] = []
        while len(parts) <= _MAX_PARTS and (match := _KEY_PART.match(self._text, at)):
            quoted, literal, bare = match.groups()
            parts.append(_unescaped(quoted) if quoted is not None else literal if literal is not None else bare)
            at = match.end()
            if not self._text.startswith(".", at):
                break
            at += 1
        return parts, at

    def _value(self, way: Location, at: int) -> int:
        self._lines.setdefault(way, self._line_at(at))
        if self._text.startswith("[", at):
            return self._array(way, at + 1)
        if self._text.startswith("{", at):
            return self._inline_table(way, at + 1)
        for pattern in _STRINGS:
            if match := pattern.match(self._text, at):
                return match.end()
        match = _SCALAR.match(self._text, at)
        return match.end() if match else at

    def _array(self, way: Location, at: int) -> int:
        index = 0
        at = self._blank(at)
        while at < len(self._text) and self._text[at] != "]":
            end = self._blank(self._value((*way, index), at))
            if end <= at:
                break
            index += 1
            at = self._blank(end + 1) if self._text.startswith(",", end) else end
        return at + 1

    def _inline_table(self, way: Location, at: int) -> int:
        at = self._blank(at)
        while at < len(self._text) and self._text[at] != "}":
            end = self._blank(self._pair(way, at))
            if end <= at:
                break
            at = self._blank(end + 1) if self._text.startswith(",", end) else end
        return at + 1

    def _line_at(self, at: int) -> int:
        return bisect_right(self._breaks, at) + 1

    def _blank(self, at: int) -> int:
        match = _BLANK.match(self._text, at)
        return match.end() if match else at

    def _spaces(self, at: int) -> int:
        while self._text[at : at + 1] in {" ", "\t"}:
            at += 1
        return at


def _unescaped(quoted: str) -> str:
    """Read a key in double quotes."""
    try:
        return str(read_toml(f"key = {quoted}")["key"])
    except ValueError:  # reported elsewhere
        return quoted[1:-1]
