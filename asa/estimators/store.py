"""A store of observed waits, to which many processes append at the same time, also on a network file system.

A store is a folder of segments, files with one line of JSON for each record; see `asa.core.store`:

- ``live-*``: one process alone appends to it.
- ``kept-*``: records added together, as from a log.
- ``all-*``: made by merging other segments. Its first line says how many bytes of which segments it *took*.

A running process may go on appending to its segment, because only the first bytes were taken. A merged segment is
deleted when its process has ended, or has appended nothing for a day; and a process that has appended nothing for an
hour begins a new one.

Each record has a permanent id. A record found twice counts once.
"""

from __future__ import annotations

import errno
import gc
import heapq
import math
import os
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2s
from itertools import chain
from pathlib import Path
from sys import intern
from tempfile import SpooledTemporaryFile, TemporaryFile
from types import TracebackType
from typing import IO, Any, NamedTuple, Self, get_args, get_type_hints

from asa.core.documents import open_file
from asa.core.files import compressed
from asa.core.locks import FileLock
from asa.core.reading import (
    BANK_RECORDS,
    EXPORT_BYTES,
    EXPORT_RECORDS,
    LINE_BYTES,
    UNPACKING_ERRORS,
    Stream,
    TooManyError,
    bound,
    read_blocks,
    read_lines,
    unpacked,
)
from asa.core.safe import followed, look_at, writing
from asa.core.store import LineFile, Segment, SegmentFolder, decode, encode, refuse_later_version, saying
from asa.errors import InputError, StateError
from asa.estimators.pseudonyms import Pseudonyms
from asa.waits import LEVELS, QueuedJob, WaitObservation

_FORMAT = "asa-waits"
_VERSION = 1
_FIELDS = (
    "id", "submit_s", "wait_s", "kind", "cores", "walltime_s", "user", "system", "partition", "run_s", "estimator",
    "source", "forecast_s",
)  # fmt: skip
_USER, _SYSTEM, _PARTITION, _CORES = map(_FIELDS.index, ("user", "system", "partition", "cores"))
_KINDS = get_args(get_type_hints(WaitObservation)["kind"])
_ID = re.compile(r"[0-9A-Za-z._-]{1,64}")
_HASHED = re.compile(r"~[0-9a-f]{8}(?:[0-9a-f]{8})?")  # the longer ones are of an export
# A batch system's own word is appended to the estimator's name, so that earlier versions can read a record, which an
# additional field would prevent.
_WORD_BEHIND = "; the batch system said "
_WORD = re.compile(rf"{_WORD_BEHIND}(\d+\.?\d*(?:e[+-]?\d+)?)\Z", re.ASCII)
_WITHDRAW = b"!\n"  # ends what a failed write left, so that it is never taken for a record

_IDLE_S = 3600.0  # silent for so long, a process begins another segment, long before others may merge the old one
_MANY_SEGMENTS = 64
_BLOCK_BYTES = 1 << 20
_IN_MEMORY_BYTES = 1 << 24  # of new records: of very many there is no memory for all
_SORTED_ROWS = 50_000  # that are sorted at once
_HINT_DAMAGED = "Restore it, or name another file."

_Row = list[Any]


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """A queue wait in a store: the job, the observation of its wait, the prediction.

    Parameters
    ----------
    job
        The job. A store keeps its user's name only as a short hash, ``~1f2e3d4c``. That distinguishes users without
        showing their names; but those who know the names can still tell whose is which.
    observation
        The observation of its wait.
    forecast
        The predicted quantiles in seconds at `LEVELS`, p10 to p90, when it was submitted; None if there are none.
    estimator
        Name of the estimator; may be empty.
    run_s
        Seconds that it ran; -1 if not known.
    source
        Empty for the user's own run; else the source, such as the name of a log.
    id
        Identifies it for ever. Empty for a new record; a store gives it one.
    word_s
        The wait in seconds that the batch system itself estimated at submission; None if it was not asked.
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
        """When its wait became known, in seconds of the scheduler's clock."""
        return self.job.submit_s + self.observation.wait_s


def default_folder() -> Path:
    """Default folder of the store.

    That is ``ASA_BANK`` of the environment, else ``asa/bank`` in ``XDG_DATA_HOME``, else in ``~/.local/share``.
    """
    if named := os.environ.get("ASA_BANK"):
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME", "")
    try:
        # the standard wants relative paths ignored
        return (Path(data) if Path(data).is_absolute() else Path.home() / ".local" / "share") / "asa" / "bank"
    except RuntimeError as error:
        raise StateError("nobody's home is known here", where="bank", hint="Name its folder in ASA_BANK.") from error


class WaitStore:
    """A folder of wait records, to which many processes, on many hosts, append at the same time.

    An object is for one thread. After a fork it works in both processes, each with a segment of its own.

    Parameters
    ----------
    folder
        Where the records are.
    create
        Make the folder at the first write if it is missing.
    durable
        Whether a record is on the disk when `append` returns, so that it survives a crash of the host. This takes some
        milliseconds a record. A crash of the process alone never loses a record.
    lock_wait_s
        How many seconds merging and forgetting wait for another process that does the same.

    Attributes
    ----------
    folder
        As given.
    oddities
        How many lines the last `read` or `news` skipped as damaged, by the rule's words.

    Raises
    ------
    StateError
        The folder is missing, or is no folder. All methods also raise it if a file cannot be read or written, or is of
        a later version.

    Notes
    -----
    200,000 records take some 30 MB on disk, 1.5 s to write with `extend` and the same to read. A store may have more,
    but only the newest 200,000 are read; `export`, `count`, `forget` and `compact` process all of them.

    Examples
    --------
    >>> import tempfile
    >>> from asa.waits import exactly
    >>> with tempfile.TemporaryDirectory() as folder, WaitStore(folder) as ours, WaitStore(folder) as theirs:
    ...     job = QueuedJob(submit_s=100.0, cores=64, walltime_s=3600.0, user="ada")
    ...     _ = ours.append(WaitRecord(job, exactly(20.0)))
    ...     [(record.observation.wait_s, record.job.user) for record in theirs.news()], theirs.news()
    ([(20.0, '~2469988c')], [])
    """

    def __init__(
        self, folder: str | Path, *, create: bool = True, durable: bool = True, lock_wait_s: float = 30.0
    ) -> None:
        self.folder = Path(folder)
        self._files = SegmentFolder(self.folder, signed=True, must_exist=not create)
        self.durable = durable
        self.lock_wait_s = lock_wait_s
        self.oddities: dict[str, int] = {}
        if not self.folder.is_dir() and (not create or self.folder.exists()):
            is_file = self.folder.exists()
            raise StateError(
                "is a file, not the folder of a bank" if is_file else "there is no bank",
                where=str(self.folder),
                hint="Name its folder, or fill one with `asa learn`.",
            )
        self._took: dict[str, dict[str, int]] = {}  # by the token of each segment whose header is known to be right
        self._done: dict[str, int] = {}  # bytes of each segment that were handed out
        self._seen: set[str] = set()
        self._floor = _LOWEST
        self._begin_as(os.getpid())

    def _begin_as(self, pid: int) -> None:
        self._pid = pid
        self._ids = secrets.token_hex(8)
        self._count = 0
        self._own: set[str] = set()  # tokens of the segments that this object wrote in this process
        self._live: LineFile | None = None  # the segment that is appended to
        self._written_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the segment that is appended to. The store can be used on; it then begins another."""
        if self._live is not None:
            with suppress(OSError):
                self._live.close()
            self._live = None

    def _heed_fork(self) -> None:
        if os.getpid() != self._pid:
            self.close()  # this process's end of it
            self._begin_as(os.getpid())

    # -------------------------------------------------------------------------------------------- writing

    def append(self, record: WaitRecord) -> str:
        """Add a record.

        Parameters
        ----------
        record
            The record. It keeps its id if it has one; if the store has that id already, it is the same record.

        Returns
        -------
        str
            Its id. The record is in the store now, even if this process is killed.

        Raises
        ------
        InputError
            The record has impossible values.
        StateError
            It could not be written, and is not in the store, unless the disk failed afterwards.
        """
        self._heed_fork()
        name = record.id or self._new_id()
        line = _line(_row(record, name))
        for _ in range(3):
            if self._write(line):
                self._seen.add(name)
                return name
            self.close()  # the segment was deleted: to another
        raise StateError("its files disappear", where=str(self.folder), hint="Does something clean up there?")

    def extend(self, records: Iterable[WaitRecord]) -> int:
        """Add many records; all of them or, if that fails or is killed, none.

        Parameters
        ----------
        records
            The records. Those whose id the store has already are left out; it is read for that if any has an id.

        Returns
        -------
        int
            How many were added.

        Raises
        ------
        InputError
            A record has impossible values.
        """
        self._heed_fork()
        given, names, wanted = False, [], set()
        with saying(self.folder, "cannot be written"), SpooledTemporaryFile(_IN_MEMORY_BYTES) as lines:
            for record in records:
                given |= bool(record.id)
                name = record.id or self._new_id()
                line = _line(_row(record, name))
                if name not in wanted:
                    names.append(name)
                    wanted.add(name)
                    lines.write(line)
            if given:
                self._visit(lambda: lambda row: wanted.discard(row[0]))
            if wanted:
                lines.seek(0)
                new = (line for name, line in zip(names, lines, strict=True) if name in wanted)
                self._own.add(self._files.add("kept", chain([_header()], new)).token)
                self._seen = self._seen | wanted if self._seen else wanted
        return len(wanted)

    def _new_id(self) -> str:
        self._count += 1
        return f"{self._ids}{self._count:08x}"

    def _write(self, line: bytes) -> bool:
        """Append a line; say whether it is in a segment that has a name."""
        # a segment that was silent for long may be deleted; so it is not written to again
        if _now_s() - self._written_s > _IDLE_S:
            self.close()
        live = self._live or self._begin()
        try:
            with saying(live.path, "cannot be written"):
                live.append(line)
                self._written_s = _now_s()
                return not live.is_deleted()
        except StateError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ESTALE:
                return False
            if not live.is_open:  # it is not known what is on the disk
                self._live = None
            raise

    def _begin(self) -> LineFile:
        if len(self._segments()) > _MANY_SEGMENTS:
            with suppress(StateError):  # it is only for tidiness, and another may be at it
                self._compact(beyond=_MANY_SEGMENTS, wait_s=0.0)
        segment, self._live = self._files.begin(_header(), withdrawal=_WITHDRAW, durable=self.durable)
        self._own.add(segment.token)
        self._written_s = _now_s()
        return self._live

    # -------------------------------------------------------------------------------------------- reading

    def read(self, latest: int | None = None) -> list[WaitRecord]:
        """Read all records, but at most the newest 200,000, by when they became known.

        Parameters
        ----------
        latest
            Return at most so many, the newest.

        Returns
        -------
        list of WaitRecord
            In the order in which they became known on the scheduler's clock, ties by id. This does not depend on which
            process wrote them, in what order and files.

        Raises
        ------
        InputError
            `latest` is negative.
        """
        if latest is not None and latest < 0:
            raise InputError(f"{latest} records cannot be read", where="latest", hint="Ask for 0 or more.")
        self._floor = _LOWEST
        found = self._collect({})
        self._settle(found)
        self._seen = {row[0] for row in found.rows}
        return self._records(found.rows if latest is None else found.rows[max(len(found.rows) - latest, 0) :])

    def news(self) -> list[WaitRecord]:
        """Read what others have appended since the last `read` or `news` of this object.

        Returns
        -------
        list of WaitRecord
            In the order of `read`. Each record is returned once; those that this object appended are not.

        Notes
        -----
        Takes time for new records, and some 50 us a segment. A merged segment is read once, unless all its records were
        returned before.
        """
        self._heed_fork()
        found = self._collect(self._done, own=self._own, seen=self._seen)
        self._settle(found)
        self._seen.update(row[0] for row in found.rows)
        return self._records(found.rows)

    def position(self) -> dict[str, int]:
        """Say how far this object has read, so that another can `resume` there."""
        return dict(self._done)

    def beyond(self, position: Mapping[str, int]) -> float:
        """Count the bytes beyond what another object had read; infinity if reading cannot continue from there.

        Parameters
        ----------
        position
            What its `position` said.

        Returns
        -------
        float
            Bytes.
        """
        segments = self._segments()
        sizes = {token: segment.path.stat().st_size for token, segment in segments.items()}
        if any(sizes.get(token, -1) < end for token, end in position.items()):
            return math.inf
        if any(one.kind == "all" and token not in position for token, one in segments.items()):
            return math.inf  # others were merged into it, some of which may have been forgotten
        return sum(sizes.values()) - sum(position.values())

    def resume(self, position: Mapping[str, int]) -> bool:
        """Let `news` continue where another object was.

        Parameters
        ----------
        position
            What its `position` said.

        Returns
        -------
        bool
            False, without any change, if something that it had read is no longer in its place, as after merging or
            forgetting: it may have learned from records that are gone.
        """
        if self.beyond(position) == math.inf:
            return False
        self._done = {str(token): int(end) for token, end in position.items()}
        return True

    def _settle(self, found: _Found) -> None:
        self._done = found.done
        self._floor = found.floor
        self.oddities = {words: count for words, count in found.oddities.items() if count}

    def _records(self, rows: list[_Row]) -> list[WaitRecord]:
        records = []
        rows.reverse()
        with _no_collector():
            while rows:  # each row goes as its record comes: of very many they are never there twice
                records.append(_record(rows.pop()))
        return records

    def _segments(self) -> dict[str, Segment]:
        """Segments by token, in a fixed order."""
        return {segment.token: segment for segment in self._files.segments()}

    def count(self, matching: Callable[[WaitRecord], bool]) -> tuple[int, int]:
        """Count records, of which there may be more than `read` returns.

        Parameters
        ----------
        matching
            Returns whether a record is counted.

        Returns
        -------
        (int, int)
            How many match, of how many.
        """
        known: dict[str, bool] = {}

        def take(row: _Row) -> None:
            if row[0] not in known:
                known[row[0]] = matching(_record(row))

        self._visit(lambda: take)
        return sum(known.values()), len(known)

    def widest(self, system: str) -> dict[str, int]:
        """Say how many cores the widest job of each of a system's partitions had, of however many records there are."""
        found: dict[str, int] = {}

        def take(row: _Row) -> None:
            if row[_SYSTEM] == system:
                found[row[_PARTITION]] = max(row[_CORES], found.get(row[_PARTITION], 0))

        self._visit(lambda: take)
        return found

    def _collect(self, done: Mapping[str, int], *, own: Iterable[str] = (), seen: Iterable[str] = ()) -> _Found:
        """Gather the newest of what lies beyond the bytes that are done, from a folder that others change meanwhile."""
        seen = seen if isinstance(seen, set) else set(seen)
        newest = _Newest(seen, self._floor)

        def begin() -> Callable[[_Row], None]:
            nonlocal newest
            newest = _Newest(seen, self._floor)
            return newest.take

        after, oddities = self._visit(begin, done, own)
        newest.trim()
        oddities[f"older than the newest {newest.max_count:,} observations: left out"] = newest.left_out
        return _Found(newest.rows, after, oddities, newest.floor)

    def _visit(
        self,
        begin: Callable[[], Callable[[_Row], object]],
        done: Mapping[str, int] | None = None,
        own: Iterable[str] = (),
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Pass each row beyond the bytes already read to the function that `begin` returns; some rows twice.

        If others change the folder meanwhile, `begin` is called again, and all rows are passed anew. Return the bytes
        read, and what was skipped.
        """
        own, done = frozenset(own), done or {}
        return self._files.steadily(
            lambda segments: self._gather({one.token: one for one in segments}, done, own, begin())
        )

    def _gather(
        self,
        segments: Mapping[str, Segment],
        done: Mapping[str, int],
        own: frozenset[str],
        take: Callable[[_Row], object],
    ) -> tuple[dict[str, int], dict[str, int]]:
        took = self._taken(segments)
        after = {token: end for token, end in done.items() if token in segments or token in took}
        oddities = dict.fromkeys((_TORN, _DAMAGED), 0)
        with _no_collector():
            for token, segment in segments.items():
                if token in own or (token in done and segment.kind != "live"):
                    continue
                holds = self._took.get(token)
                if holds and all(part in own or done.get(part, -1) >= end for part, end in holds.items()):
                    after[token] = segment.path.stat().st_size  # it was handed out from where it was before
                    continue
                with segment.path.open("rb", buffering=0) as file:
                    reading = _Reading(file, max(done.get(token, 0), took.get(token, 0)))
                    for _, found in reading:
                        for row in found:
                            if _is_record(row):
                                take(row)
                            else:
                                reading.damaged += 1
                after[token] = reading.sound_end if segment.kind == "live" else reading.end
                oddities[_TORN] += reading.torn
                oddities[_DAMAGED] += reading.damaged
        return after, oddities

    def _taken(self, segments: Mapping[str, Segment]) -> dict[str, int]:
        """Bytes of segments that others hold; refuses what a later version wrote."""
        taken: dict[str, int] = {}
        for token, segment in segments.items():
            if token not in self._took:
                with segment.path.open("rb") as file:
                    line = file.readline(LINE_BYTES)
                if not line.endswith(b"\n"):
                    continue  # it is being written, or its writer was killed
                self._took[token] = _took(line, segment.path)
            for part, end in self._took[token].items():
                taken[part] = max(end, taken.get(part, 0))
        for token in self._took.keys() - segments.keys():
            del self._took[token]
        return taken

    # ------------------------------------------------------------------------------- merging and forgetting

    def compact(self, *, beyond: int = 1) -> int:
        """Merge the segments that nobody writes to any more.

        It is safe at any time, in parallel with any number of writers and readers; nothing is lost or doubled if it is
        killed. Appending merges automatically when there are many segments. Damaged lines are dropped.

        Parameters
        ----------
        beyond
            Merge only if more than so many can be merged.

        Returns
        -------
        int
            How many segments became one; 0 if there was nothing to do.

        Raises
        ------
        StateError
            Another process merges or forgets, and does not come to an end.
        """
        return self._compact(beyond=beyond, wait_s=self.lock_wait_s)

    def _compact(self, *, beyond: int, wait_s: float) -> int:
        self._heed_fork()
        self.close()
        if not self._segments():
            return 0
        with self._files.tidied(wait_s) as lock, TemporaryFile() as lines:
            segments = self._segments()
            took = self._taken(segments)
            closed = self._closed(segments, lock.now_s())
            self._files.sweep(lock)
            sizes = {token: segments[token].path.stat().st_size for token in closed}
            idle = [token for token in closed if took.get(token, 0) >= sizes[token]]
            self._files.delete(segments[token] for token in idle)
            sources = [token for token in closed if token not in idle]
            if len(sources) <= beyond:
                return 0
            self._merge(lines, lock, segments, sources, closed=closed, took=took)
            return len(sources)

    def forget(self, matching: Callable[[WaitRecord], bool]) -> int:
        """Remove records for good.

        For all readers they are gone in one step. Records of a process that still runs stay in its file, but are not
        read, until it has ended and `compact` or `forget` is called again. Records appended meanwhile stay.

        Parameters
        ----------
        matching
            Returns whether a record is removed.

        Returns
        -------
        int
            How many were removed.

        Raises
        ------
        StateError
            Another process merges or forgets, and does not come to an end.
        """
        self._heed_fork()
        self.close()
        if not self._segments():
            return 0
        with self._files.tidied(self.lock_wait_s) as lock, TemporaryFile() as lines:
            segments = self._segments()
            took = self._taken(segments)
            closed = self._closed(segments, lock.now_s())
            self._files.sweep(lock)
            return self._merge(lines, lock, segments, list(segments), closed=closed, took=took, matching=matching)

    def _merge(
        self,
        lines: IO[bytes],
        lock: FileLock,
        segments: Mapping[str, Segment],
        sources: list[str],
        *,
        closed: set[str],
        took: Mapping[str, int],
        matching: Callable[[WaitRecord], bool] | None = None,
    ) -> int:
        """Write what the sources hold to one segment, and delete them; return how many records were left out.

        `lines`: a temporary file, as of very many there is no memory for all.
        """
        ends: dict[str, int] = {}
        sizes: dict[str, int] = {}
        names: set[str] = set()
        out: set[str] = set()
        for token in sources:
            with segments[token].path.open("rb", buffering=0) as file:
                reading = _Reading(file, took.get(token, 0))
                for found_lines, found in reading:
                    lock.beat()
                    for line, row in zip(found_lines, found, strict=True):
                        if row[0] in names:
                            continue
                        names.add(row[0])
                        if matching is not None and matching(_record(row)):
                            out.add(row[0])
                        else:
                            lines.write(line + b"\n")
            ends[token] = reading.end
            sizes[token] = reading.end + reading.rest
        if matching is not None and not out:
            return 0
        held = {token: end for token, end in took.items() if token in segments}
        for token, end in ends.items():
            held[token] = max(end, held.get(token, 0))
        lines.seek(0)
        self._files.add("all", chain([_header(held)], lines), before=lock.check)
        # what grew meanwhile has a writer after all; its file stays, and only what it grew by is read
        grew = {token for token in sources if segments[token].path.stat().st_size != sizes[token]}
        self._files.delete(segments[token] for token in sources if token in closed and token not in grew)
        return len(out)

    def _closed(self, segments: Mapping[str, Segment], now_s: float) -> set[str]:
        """Tokens of the segments that are written to no more."""
        return {
            token
            for token, segment in segments.items()
            if segment.kind != "live" or token in self._own or segment.is_over(now_s)
        }

    # ------------------------------------------------------------------------------- handing on

    def export(self, path: str | Path) -> int:
        """Write all records to a file that `import_`, and other programs, can read.

        Each record is one line of JSON, a list; the first line is an object that names its columns. The file is
        complete or not there. The same records give the same bytes. Users, and ids derived from them, are replaced by
        pseudonyms, with a secret that stays in the bank's folder: even a list of users does not show whose jobs are
        whose.

        Parameters
        ----------
        path
            The file; compressed by gzip if the name ends in ``.gz``.

        Returns
        -------
        int
            How many records.
        """
        sorting = _Sorting()

        def begin() -> Callable[[_Row], None]:
            nonlocal sorting
            sorting = _Sorting()
            return sorting.take

        self._visit(begin)
        names, count, file = Pseudonyms.of(self.folder), 0, followed(Path(path))
        with saying(file, "cannot be written"), TemporaryFile() as lines:
            for row in sorting:
                row[_USER] = names.user(row[_USER])
                row[0] = names.id(row[0])
                lines.write(f"{encode(row[:-1])}\n".encode())
                count += 1
            lines.seek(0)
            header = {"format": _FORMAT, "version": _VERSION, "fields": _FIELDS, "records": count}
            with writing(file) as raw, compressed(raw, file) as stream:
                stream.write(f"{encode(header)}\n".encode())
                shutil.copyfileobj(lines, stream)
        return count

    def import_(self, path: str | Path) -> int:
        """Add the records of a file that `export` wrote; all of them, or none if the file is damaged.

        Records keep their ids: those that the store has already, as from an earlier import, are not added again; nor
        are those that it has exported itself and still has.

        Parameters
        ----------
        path
            The file, plain or compressed by gzip.

        Returns
        -------
        int
            How many were added.

        Raises
        ------
        StateError
            The file cannot be read, is no bank, is damaged or of a later version.
        """
        given, names = _exported(Path(path)), Pseudonyms.before(self.folder)
        if names is None:
            return self.extend(given)
        exported: set[str] = set()
        users: dict[str, str] = {}  # which are this bank's own again

        def take(row: _Row) -> None:
            exported.add(names.id(row[0]))
            users[names.user(row[_USER])] = row[_USER]

        self._visit(lambda: take)
        return self.extend(
            replace(one, job=replace(one.job, user=users.get(one.job.user, one.job.user)))
            for one in given
            if one.id not in exported
        )


class _Found(NamedTuple):
    """What was read: rows in order, the bytes that are done now, what was left out, the newest that was too old."""

    rows: list[_Row]
    done: dict[str, int]
    oddities: dict[str, int]
    floor: tuple[float, str]


_LOWEST = (-math.inf, "")


def _age(row: _Row) -> tuple[float, str]:
    """When a record became known; ties by its id."""
    return row[1] + row[2], row[0]


class _Newest:
    """Keeps the newest rows of any number, as many as there is memory for; each once, and none that was `seen`."""

    def __init__(self, seen: set[str], floor: tuple[float, str]) -> None:
        self.rows: list[_Row] = []
        self.floor = floor  # the newest that was too old
        self.left_out = 0
        self.max_count = bound(BANK_RECORDS)
        self._slack = self.max_count // 8 + 1
        self._seen = seen
        self._names: set[str] = set()

    def take(self, row: _Row) -> None:
        """Keep a row, unless it is too old."""
        if row[0] in self._seen or row[0] in self._names:
            return
        if self.floor is not _LOWEST and _age(row) <= self.floor:
            self.left_out += 1
            return
        self._names.add(row[0])
        self.rows.append(row)
        if len(self.rows) >= self.max_count + self._slack:
            self.trim()

    def trim(self) -> None:
        """Put the rows in order, and drop those that are too old."""
        self.rows.sort(key=_age)
        surplus = len(self.rows) - self.max_count
        if surplus > 0:
            self.floor = _age(self.rows[surplus - 1])
            self.left_out += surplus
            self._names.difference_update(row[0] for row in self.rows[:surplus])
            del self.rows[:surplus]


class _Sorting:
    """Puts any number of rows in order, each once: what is sorted already waits on the disk."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._files: list[IO[bytes]] = []

    def take(self, row: _Row) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) >= _SORTED_ROWS:
            self._rows.sort(key=_age)
            file = TemporaryFile()  # noqa: SIM115 - until all are merged
            file.writelines(f"{encode(one)}\n".encode() for one in self._rows)
            self._files.append(file)
            self._rows = []

    def __iter__(self) -> Iterator[_Row]:
        for file in self._files:
            file.seek(0)
        parts: list[Iterable[_Row]] = [map(decode, file) for file in self._files]
        last = ""
        for row in heapq.merge(*parts, sorted(self._rows, key=_age), key=_age):
            if row[0] != last:
                last = row[0]
                yield row
        for file in self._files:
            file.close()


# ------------------------------------------------------------------------------------------------- lines

_TORN = "line cut off, as by a writer that was killed, or is writing: left out"
_DAMAGED = "damaged line: left out"


def _line(row: _Row) -> bytes:
    """Write a row, with a checksum of its text as last value."""
    body = encode(row)[:-1]
    return f"{body},{zlib.crc32(body.encode())}]\n".encode()


def _is_whole(line: bytes, value: Any) -> bool:
    """Whether the line is as `_line` wrote it."""
    return (
        type(value) is list
        and len(value) == len(_FIELDS) + 1
        and value[-1] == zlib.crc32(line[: line.rfind(b",")])
        and type(value[0]) is str
    )


def _is_record(row: _Row) -> bool:
    """Whether a row has texts and numbers in their places; its texts become the same ones as in other rows."""
    try:
        row[3], row[6], row[7] = intern(row[3]), intern(row[6]), intern(row[7])
        row[8], row[10], row[11] = intern(row[8]), intern(row[10]), intern(row[11])
        return bool(row[1] + row[2] + row[4] + row[5] + row[9] < math.inf)
    except TypeError:
        return False


def _header(took: Mapping[str, int] | None = None) -> bytes:
    content: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "fields": [*_FIELDS, "check"]}
    if took is not None:
        content["took"] = took
    body = encode(content)[:-1]
    return f'{body},"check":{zlib.crc32(body.encode())}}}\n'.encode()


def _took(line: bytes, path: Path) -> dict[str, int]:
    """Read what a segment took from its header; nothing if that is damaged."""
    header = decode(line)
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        return {}
    refuse_later_version(header, path, _VERSION)
    sound = header.get("check") == zlib.crc32(line[: line.rfind(b",")])
    return dict(header.get("took", {})) if sound else {}


class _Reading:
    """Reads the whole lines of a segment from some byte on, block by block, and counts what is not whole."""

    def __init__(self, file: IO[bytes], start: int) -> None:
        self._file = file
        self._start = start
        self.end = start  # of the last whole line
        self.rest = 0  # bytes after it
        self.damaged = 0
        self.torn = 0
        self._hole = -1

    @property
    def sound_end(self) -> int:
        """Return up to where the file is final.

        On a network file system the bytes of another host may arrive out of order, with zeros in place of missing ones.
        What follows is read again next time.
        """
        return self.end if self._hole < 0 else self._hole

    def __iter__(self) -> Iterator[tuple[list[bytes], list[_Row]]]:
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

    def _rows(self, block: bytes, *, first: bool) -> tuple[list[bytes], list[_Row]]:
        lines = block.split(b"\n")[:-1]
        if first:
            header = decode(lines[0])
            if isinstance(header, dict):
                del lines[0]
        values = decode(b"[" + b",".join(lines) + b"]")
        if type(values) is list and len(values) == len(lines) and all(map(_is_whole, lines, values)):
            return lines, values
        return self._one_by_one(lines, block)

    def _one_by_one(self, lines: list[bytes], block: bytes) -> tuple[list[bytes], list[_Row]]:
        whole_lines, rows = [], []
        for line in lines:
            if line.endswith(_WITHDRAW[:-1]):
                self.torn += len(line) > 1
                continue
            # Where a line end is lost, the next record is found by what every record begins with.
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


def _row(record: WaitRecord, name: str) -> _Row:
    """Turn a record into what is written; refuse what could not be read back or used."""
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


def _record(row: _Row) -> WaitRecord:
    name, submit_s, wait_s, kind, cores, walltime_s, user, system, partition, run_s, estimator, source, *more = row
    word_s = None
    if _WORD_BEHIND in estimator and (said := _WORD.search(estimator)) is not None:
        estimator, word_s = estimator[: said.start()], float(said[1])
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
    """Name a user as stores do: by a short hash, which names itself."""
    return user if not user or _HASHED.fullmatch(user) else _hash_of(user)


@lru_cache(maxsize=1 << 14)
def _hash_of(user: str) -> str:
    return "~" + blake2s(user.encode(errors="surrogatepass"), digest_size=4).hexdigest()


def _exported(path: Path) -> Iterator[WaitRecord]:
    """Read what `WaitStore.export` wrote, or refuse it with file and line, at its end at the latest."""
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
    """Read the first line of an exported bank, and its records."""
    lines = read_lines(stream, path, max_bytes=EXPORT_BYTES)
    header = decode(next(lines, b""))
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise StateError("is not a bank of waits", where=str(path), hint="Name a file that `asa bank export` wrote.")
    refuse_later_version(header, path, _VERSION)
    if header.get("fields") != list(_FIELDS):
        raise StateError("has other fields than an exported bank", where=f"{path}:1", hint=_HINT_DAMAGED)
    count = 0
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        try:
            record = _record(decode(line))
            _row(record, record.id)
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


# ------------------------------------------------------------------------------------------------- the system


@contextmanager
def _no_collector() -> Iterator[None]:
    """Switch off garbage collection while many objects are made, none of them garbage: it takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _now_s() -> float:
    """Seconds of a clock that runs on while the machine sleeps, and cannot be set."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
