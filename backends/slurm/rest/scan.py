"""Reads a long listing while it arrives, and finds few jobs in it without decoding the rest.

A listing of 2,000 jobs is 6 to 16 MB of JSON, one of 200,000 jobs more than a gigabyte; it is never in memory as a
whole. A client mostly wants a few of its objects. Jobs are found by their key in the bytes, and only these jobs are
decoded. That is correct: inside a JSON text a quotation mark is escaped, so ``"job_id":`` in the bytes is always a key.
If anything is unexpected, the whole listing is decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pydantic_core import from_json

from asa.core.documents import read_json
from asa.core.reading import ANSWER_BYTES, ENTRY_BYTES, LISTED_BYTES, LISTING_BYTES, TooLargeError, bound

_DECODER = json.JSONDecoder()
_PART_BYTES = 1 << 20
ITEM_BYTES = 700
"""Memory for a job's record, without texts of its user."""
_MARGIN_BYTES = 256
_MAX_CUTS = 3
_OPENING = re.compile(rb'\s*(\{\s*"[^"\\]*")')
_BLANK = re.compile(r"\s*")
_WINDOW_BYTES = 1 << 15
_MAX_BRACES = 2000
_MARGIN = 16
_PLAIN = re.compile(r"[A-Za-z0-9._+-]+")


def parse(body: bytes) -> dict[str, Any]:
    """Decode an answer, which must be an object."""
    document = read_json(body.decode("utf-8", "replace"))  # names of jobs may be in any encoding
    if not isinstance(document, dict):
        raise ValueError("no object")  # noqa: TRY004 - the same error for every invalid answer
    return document


_Read = TypeVar("_Read")


class Listing(Generic[_Read]):
    """A long list in an answer, read a megabyte at a time while it arrives, so that its length is not limited.

    `key`: the list's key in the answer.
    `read`: reads some entries, JSON values separated by commas, and raises `ValueError` if they are invalid; its
    results are kept in `found`.
    `weigh`: returns the memory of a result in bytes.

    The list is cut before an entry that begins like the first one, searched from the end of the received bytes. A wrong
    cut is noticed, since neither side of it can be decoded; then reading waits for more.
    """

    def __init__(
        self, key: str, read: Callable[[bytes], Sequence[_Read]], weigh: Callable[[_Read], int] = lambda _: ITEM_BYTES
    ) -> None:
        self._begin = re.compile(rb'"%s"\s*:\s*\[' % key.encode())
        self._read, self._weigh = read, weigh
        self.start()

    def start(self) -> None:
        """Begin again, with another answer."""
        self.found: list[_Read] = []
        self.size = self._kept_bytes = 0
        self._head, self._opening = b"", b""
        self._buffer = bytearray()
        self._next = _PART_BYTES
        self._sought = 0

    def feed(self, piece: bytes) -> None:
        """Add received bytes. Raises `TooLargeError`: the answer, or one entry, is too large."""
        self.size += len(piece)
        self._buffer += piece
        if self.size > bound(LISTING_BYTES):
            raise TooLargeError("the answer", bound(LISTING_BYTES))
        if not self._head:
            self._look_for_list()
        elif len(self._buffer) >= self._next:
            self._next = _PART_BYTES if self._cut() else 2 * len(self._buffer)
            if len(self._buffer) > bound(ENTRY_BYTES):
                raise TooLargeError("an entry of the answer", bound(ENTRY_BYTES))

    def rest(self) -> bytes:
        """Finish; return the answer without the list's entries, or unchanged if it has no such list."""
        if not self._head:
            return bytes(self._buffer)
        self._cut()  # only the last entry must still be searched for its end
        text = self._buffer.decode("utf-8", "replace")  # names of jobs may be in any encoding
        at = _BLANK.match(text).end()  # type: ignore[union-attr] # the pattern matches anything
        try:
            while text[at : at + 1] not in {"]", ""}:
                at = _BLANK.match(text, _DECODER.raw_decode(text, at)[1]).end()  # type: ignore[union-attr] # likewise
                at = at + 1 if text[at : at + 1] == "," else at
                at = _BLANK.match(text, at).end()  # type: ignore[union-attr] # likewise
        except (ValueError, RecursionError):
            return self._head + self._buffer  # invalid JSON
        if (entries := text[:at].strip()) and not self._reads(entries.encode()):
            return self._head + self._buffer
        return self._head + text[at:].encode()

    def _look_for_list(self) -> None:
        if match := self._begin.search(self._buffer, self._sought):
            self._head = bytes(self._buffer[: match.end()])
            del self._buffer[: match.end()]
        elif len(self._buffer) > bound(ANSWER_BYTES):
            raise TooLargeError("the answer", bound(ANSWER_BYTES))
        self._sought = max(len(self._buffer) - _MARGIN_BYTES, 0)

    def _cut(self) -> bool:
        """Read the complete entries; return whether there were any."""
        if not self._opening:
            match = _OPENING.match(self._buffer)
            self._opening = match[1] if match else b""
        at = len(self._buffer)
        for _ in range(_MAX_CUTS if self._opening else 0):
            at = self._buffer.rfind(self._opening, 1, at)
            if at < 0:
                return False
            since = max(at - _MARGIN_BYTES, 0)
            before = self._buffer[since:at].rstrip()
            if not before.endswith(b","):
                continue
            with memoryview(self._buffer) as view:
                entries = bytes(view[: since + len(before) - 1])
            if self._reads(entries.rstrip()):
                del self._buffer[:at]
                return True
        return False

    def _reads(self, entries: bytes) -> bool:
        try:
            found = self._read(entries)
        except ValueError:
            return False
        self.found += found
        self._kept_bytes += sum(map(self._weigh, found))
        if self._kept_bytes > bound(LISTED_BYTES):
            raise TooLargeError("what is kept of the answer", bound(LISTED_BYTES))
        return True


def decoded(entries: bytes) -> list[Mapping[str, Any]]:
    """Decode entries of a list that are separated by commas; raises `ValueError` if they are invalid."""
    text = b"[" + entries + b"]"
    try:
        found = from_json(text)
    except ValueError:
        found = read_json(text.decode("utf-8", "replace"))
    return [entry for entry in found if isinstance(entry, Mapping)]


def find(entries: bytes, key: str, values: Collection[int | str]) -> list[Mapping[str, Any]] | None:
    """Return the jobs among a listing's entries whose top-level `key` has one of the given values.

    They are in order; None if the whole listing has to be decoded to find them.
    """
    if _object_around(entries, len(entries) - 1, 0) is None:
        return None  # the entries end within a job
    plain = rb"\d" if key == "job_id" else rb'"'
    if any(isinstance(value, str) and not _PLAIN.fullmatch(value) for value in values) or not re.search(
        rb'"%s"\s*:\s*%s' % (key.encode(), plain), entries
    ):
        return None
    wanted = b"|".join(re.escape(json.dumps(value).encode()) for value in values)
    jobs: list[Mapping[str, Any]] = []
    end = 0
    for match in re.finditer(rb'"%s"\s*:\s*(?:%s)(?=[\s,}])' % (key.encode(), wanted), entries):
        if match.start() < end:
            continue  # nested inside the job that was just decoded
        found = _object_around(entries, match.start(), end)
        if found is None:
            return None
        job, end = found
        if job.get(key) in values:
            jobs.append(job)
    return jobs


def _object_around(body: bytes, position: int, since: int) -> tuple[dict[str, Any], int] | None:
    """Decode the job around a position; return it and its end, or None if there is none."""
    start = position
    for _ in range(_MAX_BRACES):
        start = body.rfind(b"{", since, start)
        if start < 0:
            return None
        found = _decode(body, start, position)
        if found is not None and "job_state" in found[0]:
            return found
    return None


def _decode(body: bytes, start: int, position: int) -> tuple[dict[str, Any], int] | None:
    """Decode the object that begins at `start`, if it extends beyond `position`."""
    window = position - start + _WINDOW_BYTES
    while True:
        chunk = body[start : start + window]
        text = chunk.decode("utf-8", "replace")
        try:
            value, length = _DECODER.raw_decode(text)
        except RecursionError:
            return None
        except json.JSONDecodeError as error:
            is_cut = error.msg.startswith("Unterminated") or error.pos >= len(text) - _MARGIN
            if not is_cut or start + window >= len(body):
                return None
            window *= 8
            continue
        except ValueError:  # a number of too many digits
            return None
        length = len(text[:length].encode()) if len(text) != len(chunk) else length
        return (value, start + length) if start + length > position and isinstance(value, dict) else None
