"""Sorts rows of a wait store by when their waits became known: the newest ones in memory, or all with files."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from typing import IO

from asa.core.reading import BANK_RECORDS, bound
from asa.core.store import decode, encode

from .stored import Row

_SORTED_ROWS = 50_000  # number of rows that are sorted in memory
LOWEST = (-math.inf, "")


def age_of(row: Row) -> tuple[float, str]:
    """Return when a record became known, and its id for ties."""
    return row[1] + row[2], row[0]


class NewestRows:
    """Keeps the newest rows, as many as fit into memory, each once, without those in `seen`."""

    def __init__(self, seen: set[str], floor: tuple[float, str]) -> None:
        self.rows: list[Row] = []
        self.floor = floor  # the newest row that was too old
        self.left_out = 0
        self.max_count = bound(BANK_RECORDS)
        self._slack = self.max_count // 8 + 1
        self._seen = seen
        self._names: set[str] = set()

    def take(self, row: Row) -> None:
        """Keep a row unless it is too old."""
        if row[0] in self._seen or row[0] in self._names:
            return
        if self.floor is not LOWEST and age_of(row) <= self.floor:
            self.left_out += 1
            return
        self._names.add(row[0])
        self.rows.append(row)
        if len(self.rows) >= self.max_count + self._slack:
            self.trim()

    def trim(self) -> None:
        """Sort the rows, and drop those that are too old."""
        self.rows.sort(key=age_of)
        surplus = len(self.rows) - self.max_count
        if surplus > 0:
            self.floor = age_of(self.rows[surplus - 1])
            self.left_out += surplus
            self._names.difference_update(row[0] for row in self.rows[:surplus])
            del self.rows[:surplus]


class SortedRows:
    """Sorts any number of rows, dropping duplicates; sorted parts are kept in files."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._files: list[IO[bytes]] = []

    def take(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) >= _SORTED_ROWS:
            self._rows.sort(key=age_of)
            file = TemporaryFile()  # noqa: SIM115 - open until all parts are merged
            file.writelines(f"{encode(row)}\n".encode() for row in self._rows)
            self._files.append(file)
            self._rows = []

    def __iter__(self) -> Iterator[Row]:
        for file in self._files:
            file.seek(0)
        parts: list[Iterable[Row]] = [map(decode, file) for file in self._files]
        last = ""
        for row in heapq.merge(*parts, sorted(self._rows, key=age_of), key=age_of):
            if row[0] != last:
                last = row[0]
                yield row
        for file in self._files:
            file.close()
