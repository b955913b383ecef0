"""The lines of a wait store: how records are written and read; see `store`."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import blake2s
from pathlib import Path
from sys import intern
from typing import IO, Any, get_args, get_type_hints

from asa.core.documents import open_file
from asa.core.late import dataclass
from asa.core.reading import (
    EXPORT_BYTES,
    EXPORT_RECORDS,
    UNPACKING_ERRORS,
    Stream,
    TooManyError,
    bound,
    read_blocks,
    read_lines,
    unpacked,
)
from asa.core.safe import look_at
from asa.core.store import decode, encode, refuse_later_version
from asa.errors import InputError, StateError
from asa.waits import LEVELS, QueuedJob, WaitObservation

FORMAT = "asa-waits"
VERSION = 1
FIELDS = (
    "id", "submit_s", "wait_s", "kind", "cores", "walltime_s", "user", "system", "partition", "run_s", "estimator",
    "source", "forecast_s",
)  # fmt: skip
USER, SYSTEM, PARTITION, CORES = map(FIELDS.index, ("user", "system", "partition", "cores"))
_KINDS = get_args(get_type_hints(WaitObservation)["kind"])
_ID = re.compile(r"[0-9A-Za-z._-]{1,64}")
_HASHED = re.compile(r"~[0-9a-f]{8}(?:[0-9a-f]{8})?")  # the longer ones are pseudonyms from an export
# The batch system's own estimate is appended to the name of the estimator: earlier versions can read such a record, but
# not one with a further field.
_WORD_BEHIND = "; the batch system said "
_WORD = re.compile(rf"{_WORD_BEHIND}(\d+\.?\d*(?:e[+-]?\d+)?)\Z", re.ASCII)
WITHDRAWAL = b"!\n"  # marks what a failed write left, so that it is not read as a record
_BLOCK_BYTES = 1 << 20
_HINT_DAMAGED = "Restore it, or name another file."

Row = list[Any]


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """A queue wait in a store: the job, the observation of its wait, the prediction.

    Parameters
    ----------
    job
        The job. A store keeps its user's name only as a short hash, ``~1f2e3d4c``. That distinguishes users without
        showing their names; but whoever knows the names can compute the hashes.
    observation
        The observation of its wait.
    forecast
        The quantiles in seconds at `LEVELS`, p10 to p90, that were predicted at submission; None if there are none.
    estimator
        Name of the estimator; may be empty.
    run_s
        Seconds that the job ran; -1 if not known.
    source
        Empty for the user's own run; else the source, such as the name of a log.
    id
        Permanent identifier. Empty for a new record; a store gives it one.
    word_s
        The wait in seconds that the batch system itself estimated at submission; None if there is no estimate.
    """

    job: QueuedJob
    observation: WaitObservation
    forecast: tuple[float, ...] | None = None
    estimator: str = ""
    run_s: float = -1.0
    source: str = ""
    id: str = ""
    word_s: float | None = None

    @property
    def known_s(self) -> float:
        """Time at which the wait became known, in seconds of the scheduler's clock."""
        return self.job.submit_s + self.observation.wait_s


TORN = "line cut off, as by a writer that was killed, or is writing: left out"
DAMAGED = "damaged line: left out"


def line_of(row: Row) -> bytes:
    """Return a row as a line, with a checksum of its text as the last value."""
    body = encode(row)[:-1]
    return f"{body},{zlib.crc32(body.encode())}]\n".encode()


def _is_whole(line: bytes, value: Any) -> bool:
    """Whether a line has the form that `line_of` writes."""
    return (
        type(value) is list
        and len(value) == len(FIELDS) + 1
        and value[-1] == zlib.crc32(line[: line.rfind(b",")])
        and type(value[0]) is str
    )


def is_record(row: Row) -> bool:
    """Whether a row has the types and the kind of a record. Its texts are interned, since rows have many equal ones."""
    try:
        row[3], row[6], row[7] = intern(row[3]), intern(row[6]), intern(row[7])
        row[8], row[10], row[11] = intern(row[8]), intern(row[10]), intern(row[11])
        is_finite = -math.inf < row[1] + row[2] + row[4] + row[5] + row[9] + sum(row[12] or ()) < math.inf
        return is_finite and row[3] in _KINDS and len(row[12] or LEVELS) == len(LEVELS)
    except (TypeError, OverflowError):
        return False


def header_of(took: Mapping[str, int] | None = None) -> bytes:
    """Return a segment's first line."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "fields": [*FIELDS, "check"]}
    if took is not None:
        content["took"] = took
    body = encode(content)[:-1]
    return f'{body},"check":{zlib.crc32(body.encode())}}}\n'.encode()


def taken_of(line: bytes, path: Path) -> dict[str, int]:
    """Return the bytes that a segment took, from its header; none if that is damaged."""
    header = decode(line)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return {}
    refuse_later_version(header, path, VERSION)
    sound = header.get("check") == zlib.crc32(line[: line.rfind(b",")])
    return dict(header.get("took", {})) if sound else {}


class SegmentLines:
    """Reads the complete lines of a segment from an offset, block by block, and counts damaged lines."""

    def __init__(self, file: IO[bytes], start: int) -> None:
        self._file = file
        self._start = start
        self.end = start  # end of the last complete line
        self.rest = 0  # number of bytes after it
        self.damaged = 0
        self.torn = 0
        self._hole = -1

    @property
    def sound_end(self) -> int:
        """Return the offset up to which the file is final.

        On a network file system the bytes of another host may arrive out of order, with zeros in place of missing ones.
        The bytes beyond are read again next time.
        """
        return self.end if self._hole < 0 else self._hole

    def __iter__(self) -> Iterator[tuple[list[bytes], list[Row]]]:
        self._file.seek(self._start)
        first = self._start == 0
        for block in read_blocks(self._file, self._file.name, block_bytes=_BLOCK_BYTES):
            if not block.endswith(b"\n"):
                self.rest = len(block)
                self.torn += 1
                return
            yield self._rows(block, first=first)
            first = False
            self.end += len(block)

    def _rows(self, block: bytes, *, first: bool) -> tuple[list[bytes], list[Row]]:
        lines = block.split(b"\n")[:-1]
        if first:
            header = decode(lines[0])
            if isinstance(header, dict):
                del lines[0]
        values = decode(b"[" + b",".join(lines) + b"]")
        if type(values) is list and len(values) == len(lines) and all(map(_is_whole, lines, values)):
            return lines, values
        return self._one_by_one(lines, block)

    def _one_by_one(self, lines: list[bytes], block: bytes) -> tuple[list[bytes], list[Row]]:
        whole_lines, rows = [], []
        for line in lines:
            if line.endswith(WITHDRAWAL[:-1]):
                self.torn += len(line) > 1
                continue
            # if a line end is lost, the next record is found by the text with which every record begins
            for part in [line] if _is_whole(line, decode(line)) else re.split(rb'(?=\[")', line):
                text = part[: part.rfind(b"]") + 1]
                value = decode(text)
                if _is_whole(text, value):
                    whole_lines.append(text)
                    rows.append(value)
                else:
                    self.damaged += bool(part.strip())
        hole = block.find(b"\0")
        if self._hole < 0 <= hole:
            self._hole = self.end + block.rfind(b"\n", 0, hole) + 1
        return whole_lines, rows


def row_of(record: WaitRecord, name: str) -> Row:
    """Return the row of a record; refuse values that could not be read back or used."""
    job, seen, quantiles = record.job, record.observation, record.forecast
    texts = (job.user, job.system, job.partition, record.estimator, record.source)
    try:
        times = (float(job.submit_s), float(seen.wait_s), float(job.walltime_s), float(record.run_s))
        forecast = None if quantiles is None else [float(value) for value in quantiles]
        sound = (
            all(map(math.isfinite, times))
            and times[1] >= 0
            and times[2] > 0
            and job.cores == int(job.cores) >= 1
            and seen.kind in _KINDS
            and all(isinstance(text, str) for text in texts)
            and (record.word_s is None or 0 <= record.word_s < math.inf)
            and _WORD.search(record.estimator) is None
            and (forecast is None or (len(forecast) == len(LEVELS) and all(map(math.isfinite, forecast))))
        )
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise InputError(
            f"no job is like {record}",
            where=record.source or "bank",
            hint=f"Times are finite, cores and walltime above 0, forecasts {len(LEVELS)} waits.",
        )
    if not _ID.fullmatch(name):
        raise InputError(
            f"{name!r} is not an id of a record", hint="Use at most 64 letters, digits, dots, dashes, underscores."
        )
    user, system, partition, estimator, source = texts
    if record.word_s is not None:
        estimator = f"{estimator}{_WORD_BEHIND}{float(record.word_s)!r}"
    user = user_in_store(user)
    submit_s, wait_s, walltime_s, run_s = times
    return [
        name, submit_s, wait_s, seen.kind, int(job.cores), walltime_s, user, system, partition, run_s, estimator,
        source, forecast,
    ]  # fmt: skip


def record_of(row: Row) -> WaitRecord:
    """Return the record of a row."""
    name, submit_s, wait_s, kind, cores, walltime_s, user, system, partition, run_s, estimator, source, *more = row
    word_s = None
    if _WORD_BEHIND in estimator and (match := _WORD.search(estimator)) is not None:
        estimator, word_s = estimator[: match.start()], float(match[1])
    return WaitRecord(
        QueuedJob(submit_s, cores, walltime_s, user, system, partition),
        WaitObservation(wait_s, kind),
        tuple(more[0]) if more[0] else None,
        estimator,
        run_s,
        source,
        name,
        word_s,
    )


def user_in_store(user: str) -> str:
    """Return a user's name as stores keep it: a short hash. A hash is returned unchanged."""
    return user if not user or _HASHED.fullmatch(user) else _hash_of(user)


@lru_cache(maxsize=1 << 14)
def _hash_of(user: str) -> str:
    return "~" + blake2s(user.encode(errors="surrogatepass"), digest_size=4).hexdigest()


def exported_records(path: Path) -> Iterator[WaitRecord]:
    """Yield the records of a file that `WaitStore.export` wrote; refuse a damaged file, with the line."""
    look_at(path)
    try:
        with open_file(path) as raw, unpacked(raw) as stream:
            yield from _exported_lines(path, stream)
    except UNPACKING_ERRORS as error:
        raise StateError("is cut off or no gzip file", where=str(path), hint="Fetch it again.") from error
    except OSError as error:
        raise StateError(
            f"cannot be read: {error.strerror or error}", where=str(path), hint="Check the path."
        ) from error


def _exported_lines(path: Path, stream: Stream) -> Iterator[WaitRecord]:
    """Check the first line of an exported bank, and yield its records."""
    lines = read_lines(stream, path, max_bytes=EXPORT_BYTES)
    header = decode(next(lines, b""))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StateError("is not a bank of waits", where=str(path), hint="Name a file that `asa bank export` wrote.")
    refuse_later_version(header, path, VERSION)
    if header.get("fields") != list(FIELDS):
        raise StateError("has other fields than an exported bank", where=f"{path}:1", hint=_HINT_DAMAGED)
    count = 0
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        try:
            record = record_of(decode(line))
            row_of(record, record.id)
        except (InputError, TypeError, ValueError, IndexError) as error:
            raise StateError(
                f"is no record: {line[:80].decode(errors='replace')}", where=f"{path}:{number}", hint=_HINT_DAMAGED
            ) from error
        count += 1
        if count > bound(EXPORT_RECORDS):
            raise TooManyError("observations", bound(EXPORT_RECORDS), path)
        yield record
    expected = header.get("records", count)
    if expected != count:
        raise StateError(f"has {count} of its {expected} records", where=str(path), hint="Fetch it again.")
