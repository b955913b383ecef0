"""Finding few jobs in a long listing without decoding the rest.

A listing of 2,000 jobs is 6 to 16 MB of JSON, of which a client wants a handful of objects. They are found by their key
in the bytes and decoded alone. That is sound: inside a JSON text a quotation mark is escaped, so ``"job_id":`` in the
bytes is a key and nothing else. Whatever looks otherwise than expected is left to a decoder of the whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from asa.core.documents import read_json

_DECODER = json.JSONDecoder()
_EDGE_BYTES = 8192
_NO_ERRORS = re.compile(rb'"errors"\s*:\s*\[\s*\]')
_NO_JOBS = re.compile(rb'"jobs"\s*:\s*\[\s*\]')
_WINDOW_BYTES = 1 << 15
_MAX_BRACES = 2000
_MARGIN = 16
_PLAIN = re.compile(r"[A-Za-z0-9._+-]+")


def parse(body: bytes) -> dict[str, Any]:
    """Decode an answer that is an object."""
    found = read_json(body.decode("utf-8", "replace"))  # a job's name may be in any encoding
    if not isinstance(found, dict):
        raise ValueError("no object")  # noqa: TRY004 - one error for all that is no answer
    return found


def find(body: bytes, key: str, values: Collection[int | str]) -> list[Mapping[str, Any]] | None:
    """Find the jobs of a listing whose `key`, at the top of the job, has one of some values.

    Returns: in their order; None if this cannot be found out without decoding the whole.
    """
    if any(isinstance(value, str) and not _PLAIN.fullmatch(value) for value in values) or not _is_sound(body, key):
        return None
    wanted = b"|".join(re.escape(json.dumps(value).encode()) for value in values)
    jobs: list[Mapping[str, Any]] = []
    end = 0
    for match in re.finditer(rb'"%s"\s*:\s*(?:%s)(?=[\s,}])' % (key.encode(), wanted), body):
        if match.start() < end:
            continue  # deeper inside the job that was just decoded
        found = _object_around(body, match.start(), end)
        if found is None:
            return None
        job, end = found
        if job.get(key) in values:
            jobs.append(job)
    return jobs


def _is_sound(body: bytes, key: str) -> bool:
    """Whether it is whole, free of errors, and spells the key as expected."""
    if body.rstrip()[-1:] != b"}" or not (
        _NO_ERRORS.search(body, 0, _EDGE_BYTES) or _NO_ERRORS.search(body, max(0, len(body) - _EDGE_BYTES))
    ):
        return False
    plain = rb"\d" if key == "job_id" else rb'"'
    return bool(re.search(rb'"%s"\s*:\s*%s' % (key.encode(), plain), body) or _NO_JOBS.search(body))


def _object_around(body: bytes, position: int, since: int) -> tuple[dict[str, Any], int] | None:
    """Decode the job around a position; give it and where it ends. None if there is none to be found."""
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
    """Decode the object that begins at `start` if it reaches beyond `position`."""
    window = position - start + _WINDOW_BYTES
    while True:
        chunk = body[start : start + window]
        text = chunk.decode("utf-8", "replace")
        try:
            found, length = _DECODER.raw_decode(text)
        except RecursionError:
            return None
        except json.JSONDecodeError as error:
            is_cut = error.msg.startswith("Unterminated") or error.pos >= len(text) - _MARGIN
            if not is_cut or start + window >= len(body):
                return None
            window *= 8
            continue
        length = len(text[:length].encode()) if len(text) != len(chunk) else length
        return (found, start + length) if start + length > position and isinstance(found, dict) else None
