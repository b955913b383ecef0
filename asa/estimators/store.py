"""A store of observed waits, to which many processes append at the same time, also on a network file system.

A store is a folder of segments, files with one line of JSON for each record; see `asa.core.store`:

- ``live-*``: a single process appends to it.
- ``kept-*``: records added together, as from a log.
- ``all-*``: merged from other segments. Its first line says how many bytes of which segments it *took*.

The process of a live segment may go on appending to it, because a merge takes only the bytes that are there. A merged
segment is deleted when its process has ended, or has appended nothing for a day. A process that has appended nothing
for an hour begins a new segment.

Each record has a permanent id. A record that is found twice counts once.
"""

from __future__ import annotations

import errno
import gc
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from types import TracebackType
from typing import IO, NamedTuple, Self

from asa.core.files import compressed
from asa.core.locks import FileLock
from asa.core.reading import (
    LINE_BYTES,
)
from asa.core.safe import followed, writing
from asa.core.store import LineFile, Segment, SegmentFolder, encode, saying
from asa.errors import InputError, StateError
from asa.estimators.pseudonyms import Pseudonyms

from .ordering import LOWEST, NewestRows, SortedRows
from .stored import (
    CORES,
    DAMAGED,
    FIELDS,
    FORMAT,
    PARTITION,
    SYSTEM,
    TORN,
    USER,
    VERSION,
    WITHDRAWAL,
    Row,
    SegmentLines,
    WaitRecord,
    exported_records,
    header_of,
    is_record,
    line_of,
    record_of,
    row_of,
    taken_of,
)

# a process that was silent for so long begins another segment; only much later may others merge the old one
_IDLE_S = 3600.0
_MANY_SEGMENTS = 64
_IN_MEMORY_BYTES = 1 << 24  # buffer for new records, since very many would not fit into memory


def default_folder() -> Path:
    """Return the default folder of the store.

    That is ``ASA_BANK`` from the environment, else ``asa/bank`` in ``XDG_DATA_HOME``, else in ``~/.local/share``.
    """
    if named := os.environ.get("ASA_BANK"):
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME", "")
    try:
        # the XDG standard says that relative paths are to be ignored
        return (Path(data) if Path(data).is_absolute() else Path.home() / ".local" / "share") / "asa" / "bank"
    except RuntimeError as error:
        raise StateError("nobody's home is known here", where="bank", hint="Name its folder in ASA_BANK.") from error


class WaitStore:
    """A folder of wait records, to which many processes, on many hosts, append at the same time.

    An object is for one thread. After a fork it works in both processes; each has its own segment.

    Parameters
    ----------
    folder
        Folder of the records.
    create
        Make the folder at the first write if it is missing.
    durable
        Whether `append` returns only when the record is on the disk, so that it survives a crash of the host. This
        takes some milliseconds a record. A crash of only the process never loses a record.
    lock_wait_s
        How many seconds to wait for another process that merges or forgets, before doing so.

    Attributes
    ----------
    folder
        The given folder.
    oddities
        How many lines the last `read` or `news` skipped, by reason.

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
    >>> from asa.waits import QueuedJob, exactly
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
        # for each segment with a valid header: the bytes of other segments that it took, by their tokens
        self._took: dict[str, dict[str, int]] = {}
        self._done: dict[str, int] = {}  # bytes of each segment whose records were returned
        self._seen: set[str] = set()
        self._floor = LOWEST
        self._begin_as(os.getpid())

    def _begin_as(self, pid: int) -> None:
        self._pid = pid
        self._ids = secrets.token_hex(8)
        self._count = 0
        self._own: set[str] = set()  # tokens of the segments that this object wrote in this process
        self._live: LineFile | None = None  # the segment for appending
        self._written_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the segment for appending. A store that is used again begins another segment."""
        if self._live is not None:
            with suppress(OSError):
                self._live.close()
            self._live = None

    def _heed_fork(self) -> None:
        if os.getpid() != self._pid:
            self.close()  # closes the files of this process alone
            self._begin_as(os.getpid())

    # -------------------------------------------------------------------------------------------- writing

    def append(self, record: WaitRecord) -> str:
        """Add a record.

        Parameters
        ----------
        record
            The record. It keeps its id if it has one. A record with an id that the store has already counts as the
            same.

        Returns
        -------
        str
            Its id. The record stays in the store even if this process is killed now.

        Raises
        ------
        InputError
            The record has impossible values.
        StateError
            The record could not be written, and is not in the store, unless the disk failed afterwards.
        """
        self._heed_fork()
        name = record.id or self._new_id()
        line = line_of(row_of(record, name))
        for _ in range(3):
            if self._write(line):
                self._seen.add(name)
                return name
            self.close()  # the segment was deleted: write to another
        raise StateError("its files disappear", where=str(self.folder), hint="Does something clean up there?")

    def extend(self, records: Iterable[WaitRecord]) -> int:
        """Add many records: all of them or, if that fails or is killed, none.

        Parameters
        ----------
        records
            The records. Those whose id the store has already are left out; to find these the store is read, if any
            record has an id.

        Returns
        -------
        int
            Number of records that were added.

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
                line = line_of(row_of(record, name))
                if name not in wanted:
                    names.append(name)
                    wanted.add(name)
                    lines.write(line)
            if given:
                self._visit(lambda: lambda row: wanted.discard(row[0]))
            if wanted:
                lines.seek(0)
                new = (line for name, line in zip(names, lines, strict=True) if name in wanted)
                self._own.add(self._files.add("kept", chain([header_of()], new)).token)
                self._seen = self._seen | wanted if self._seen else wanted
        return len(wanted)

    def _new_id(self) -> str:
        self._count += 1
        return f"{self._ids}{self._count:08x}"

    def _write(self, line: bytes) -> bool:
        """Append a line; return whether its segment still has a name, that is, was not deleted."""
        # a segment that was silent for long may be deleted, so it is not written to again
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
            if not live.is_open:  # its content is not known after a failed write
                self._live = None
            raise

    def _begin(self) -> LineFile:
        if len(self._segments()) > _MANY_SEGMENTS:
            with suppress(StateError):  # merging only tidies up, and another process may be merging
                self._compact(beyond=_MANY_SEGMENTS, wait_s=0.0)
        segment, self._live = self._files.begin(header_of(), withdrawal=WITHDRAWAL, durable=self.durable)
        self._own.add(segment.token)
        self._written_s = _now_s()
        return self._live

    # -------------------------------------------------------------------------------------------- reading

    def read(self, latest: int | None = None) -> list[WaitRecord]:
        """Read all records, but at most the newest 200,000, by when they became known.

        Parameters
        ----------
        latest
            Upper bound; the newest are returned.

        Returns
        -------
        list of WaitRecord
            In the order in which they became known on the scheduler's clock, ties by id. It does not depend on which
            process wrote them, nor on the order and files in which they were written.

        Raises
        ------
        InputError
            `latest` is negative.
        """
        if latest is not None and latest < 0:
            raise InputError(f"{latest} records cannot be read", where="latest", hint="Ask for 0 or more.")
        self._floor = LOWEST
        found = self._collect({})
        self._settle(found)
        self._seen = {row[0] for row in found.rows}
        return self._records(found.rows if latest is None else found.rows[max(len(found.rows) - latest, 0) :])

    def news(self) -> list[WaitRecord]:
        """Read the records that other objects have appended since the last `read` or `news` of this object.

        Returns
        -------
        list of WaitRecord
            In the order of `read`. Each record is returned once; those that this object appended are not.

        Notes
        -----
        Takes time proportional to the new records, and some 50 us a segment. A merged segment is read once, unless all
        its records were returned before.
        """
        self._heed_fork()
        found = self._collect(self._done, own=self._own, seen=self._seen)
        self._settle(found)
        self._seen.update(row[0] for row in found.rows)
        return self._records(found.rows)

    def position(self, *, with_own: bool = False) -> dict[str, int]:
        """Return how far this object has read, so that another can `resume` there.

        `with_own`: what this object has appended counts as read.
        """
        if not with_own:
            return dict(self._done)
        own = [one for token, one in self._segments().items() if token in self._own and one.kind == "live"]
        return self._done | {one.token: one.path.stat().st_size for one in own}

    def beyond(self, position: Mapping[str, int]) -> float:
        """Return the number of bytes beyond the position of another object; infinity if it cannot be resumed.

        Parameters
        ----------
        position
            The other object's `position`.

        Returns
        -------
        float
            Bytes.
        """
        segments = self._segments()
        sizes = self.end()
        if any(sizes.get(token, -1) < end for token, end in position.items()):
            return math.inf
        if any(segment.kind == "all" and token not in position for token, segment in segments.items()):
            return math.inf  # segments were merged into it, and some records may have been forgotten
        return sum(sizes.values()) - sum(position.values())

    def end(self) -> dict[str, int]:
        """Return the position of an object that had read all that is there."""
        return {token: segment.path.stat().st_size for token, segment in self._segments().items()}

    def resume(self, position: Mapping[str, int]) -> bool:
        """Let `news` continue from the position of another object.

        Parameters
        ----------
        position
            The other object's `position`.

        Returns
        -------
        bool
            False, without any change, if a segment that the other object had read is gone, as after merging or
            forgetting: that object may have learned from records that were removed.
        """
        if self.beyond(position) == math.inf:
            return False
        self._done = {str(token): int(end) for token, end in position.items()}
        return True

    def _settle(self, found: _Found) -> None:
        self._done = found.done
        self._floor = found.floor
        self.oddities = {words: count for words, count in found.oddities.items() if count}

    def _records(self, rows: list[Row]) -> list[WaitRecord]:
        records = []
        rows.reverse()
        with _no_collector():
            while rows:  # each row is released once its record is made, so that very many are not in memory twice
                records.append(record_of(rows.pop()))
        return records

    def _segments(self) -> dict[str, Segment]:
        """Return the segments by token, in a fixed order."""
        return {segment.token: segment for segment in self._files.segments()}

    def count(self, matching: Callable[[WaitRecord], bool]) -> tuple[int, int]:
        """Count records, also if there are more than `read` returns.

        Parameters
        ----------
        matching
            Returns whether a record is counted.

        Returns
        -------
        (int, int)
            Number of matching records, and of all.
        """
        known: dict[str, bool] = {}

        def take(row: Row) -> None:
            if row[0] not in known:
                known[row[0]] = matching(record_of(row))

        self._visit(lambda: take)
        return sum(known.values()), len(known)

    def widest(self, system: str) -> dict[str, int]:
        """Return the cores of the widest job in each of a system's partitions, also if there are very many records."""
        widths: dict[str, int] = {}

        def take(row: Row) -> None:
            if row[SYSTEM] == system:
                widths[row[PARTITION]] = max(row[CORES], widths.get(row[PARTITION], 0))

        self._visit(lambda: take)
        return widths

    def _collect(self, done: Mapping[str, int], *, own: Iterable[str] = (), seen: Iterable[str] = ()) -> _Found:
        """Return the newest rows beyond the bytes read so far, from a folder that other processes change."""
        seen = seen if isinstance(seen, set) else set(seen)
        newest = NewestRows(seen, self._floor)

        def begin() -> Callable[[Row], None]:
            nonlocal newest
            newest = NewestRows(seen, self._floor)
            return newest.take

        after, oddities = self._visit(begin, done, own)
        newest.trim()
        oddities[f"older than the newest {newest.max_count:,} observations: left out"] = newest.left_out
        return _Found(newest.rows, after, oddities, newest.floor)

    def _visit(
        self,
        begin: Callable[[], Callable[[Row], object]],
        done: Mapping[str, int] | None = None,
        own: Iterable[str] = (),
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Pass each row beyond the bytes read so far to the function that `begin` returns; some rows are passed twice.

        If other processes change the folder meanwhile, `begin` is called again, and all rows are passed again. Return
        the bytes read, and the numbers of skipped lines.
        """
        own, done = frozenset(own), done or {}
        return self._files.steadily(
            lambda segments: self._gather({segment.token: segment for segment in segments}, done, own, begin())
        )

    def _gather(
        self,
        segments: Mapping[str, Segment],
        done: Mapping[str, int],
        own: frozenset[str],
        take: Callable[[Row], object],
    ) -> tuple[dict[str, int], dict[str, int]]:
        took = self._taken(segments)
        after = {token: end for token, end in done.items() if token in segments or token in took}
        oddities = dict.fromkeys((TORN, DAMAGED), 0)
        with _no_collector():
            for token, segment in segments.items():
                if token in own or (token in done and segment.kind != "live"):
                    continue
                holds = self._took.get(token)
                if holds and all(part in own or done.get(part, -1) >= end for part, end in holds.items()):
                    # the segments that it took have returned its records already
                    after[token] = segment.path.stat().st_size
                    continue
                with segment.path.open("rb", buffering=0) as file:
                    reading = SegmentLines(file, max(done.get(token, 0), took.get(token, 0)))
                    for _, found in reading:
                        for row in found:
                            if is_record(row):
                                take(row)
                            else:
                                reading.damaged += 1
                after[token] = reading.sound_end if segment.kind == "live" else reading.end
                oddities[TORN] += reading.torn
                oddities[DAMAGED] += reading.damaged
        return after, oddities

    def _taken(self, segments: Mapping[str, Segment]) -> dict[str, int]:
        """Return the bytes of segments that merged segments took; refuse segments of a later version."""
        taken: dict[str, int] = {}
        for token, segment in segments.items():
            if token not in self._took:
                with segment.path.open("rb") as file:
                    line = file.readline(LINE_BYTES)
                if not line.endswith(b"\n"):
                    continue  # the header is being written, or its writer was killed
                self._took[token] = taken_of(line, segment.path)
            for part, end in self._took[token].items():
                taken[part] = max(end, taken.get(part, 0))
        for token in self._took.keys() - segments.keys():
            del self._took[token]
        return taken

    # ------------------------------------------------------------------------------- merging and forgetting

    def compact(self, *, beyond: int = 1) -> int:
        """Merge the segments that no process writes to any more.

        This is safe at any time, in parallel with any number of writers and readers. If it is killed, no record is lost
        or doubled. Appending merges automatically when there are many segments. Damaged lines are dropped.

        Parameters
        ----------
        beyond
            Merge only if more segments than this can be merged.

        Returns
        -------
        int
            Number of segments that became one; 0 if there was nothing to do.

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

        To readers, all of these records disappear at once. Records of a process that still runs stay in its file,
        unread, until it has ended and `compact` or `forget` is called again. Records appended meanwhile stay.

        Parameters
        ----------
        matching
            Returns whether a record is removed.

        Returns
        -------
        int
            Number of records that were removed.

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
        """Write the records of the sources to one segment, and delete the sources; return how many were left out.

        `lines`: a temporary file for the lines, which may be too many for memory.
        """
        ends: dict[str, int] = {}
        sizes: dict[str, int] = {}
        names: set[str] = set()
        out: set[str] = set()
        for token in sources:
            with segments[token].path.open("rb", buffering=0) as file:
                reading = SegmentLines(file, took.get(token, 0))
                for found_lines, found in reading:
                    lock.beat()
                    for line, row in zip(found_lines, found, strict=True):
                        if row[0] in names:
                            continue
                        names.add(row[0])
                        if matching is not None and matching(record_of(row)):
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
        self._files.add("all", chain([header_of(held)], lines), before=lock.check)
        # these have a writer after all: the files stay, and only the bytes beyond those taken are read
        grew = {token for token in sources if segments[token].path.stat().st_size != sizes[token]}
        self._files.delete(segments[token] for token in sources if token in closed and token not in grew)
        return len(out)

    def _closed(self, segments: Mapping[str, Segment], now_s: float) -> set[str]:
        """Return the tokens of the segments that no process writes to any more."""
        return {
            token
            for token, segment in segments.items()
            if segment.kind != "live" or token in self._own or segment.is_over(now_s)
        }

    # ------------------------------------------------------------------------------- export and import

    def export(self, path: str | Path) -> int:
        """Write all records to a file that `import_`, and other programs, can read.

        Each record is one line of JSON, a list; the first line is an object that names its columns. The file is
        complete, or does not exist. The same records give the same bytes. Users, and ids derived from them, are
        replaced by pseudonyms, with a secret that stays in the bank's folder: even a list of users does not show whose
        jobs are whose.

        Parameters
        ----------
        path
            The file; compressed by gzip if the name ends in ``.gz``.

        Returns
        -------
        int
            Number of records.
        """
        sorting = SortedRows()

        def begin() -> Callable[[Row], None]:
            nonlocal sorting
            sorting = SortedRows()
            return sorting.take

        self._visit(begin)
        names, count, file = Pseudonyms.of(self.folder), 0, followed(Path(path))
        with saying(file, "cannot be written"), TemporaryFile() as lines:
            for row in sorting:
                row[USER] = names.user(row[USER])
                row[0] = names.id(row[0])
                lines.write(f"{encode(row[:-1])}\n".encode())
                count += 1
            lines.seek(0)
            header = {"format": FORMAT, "version": VERSION, "fields": FIELDS, "records": count}
            with writing(file) as raw, compressed(raw, file) as stream:
                stream.write(f"{encode(header)}\n".encode())
                shutil.copyfileobj(lines, stream)
        return count

    def import_(self, path: str | Path) -> int:
        """Add the records of a file that `export` wrote; all of them, or none if the file is damaged.

        Records keep their ids. Those that the store has already, as from an earlier import, are not added again; nor
        are those that it has exported itself and still has.

        Parameters
        ----------
        path
            The file, plain or compressed by gzip.

        Returns
        -------
        int
            Number of records that were added.

        Raises
        ------
        StateError
            The file cannot be read, is no bank, is damaged or of a later version.
        """
        given, names = exported_records(Path(path)), Pseudonyms.before(self.folder)
        if names is None:
            return self.extend(given)
        exported: set[str] = set()
        users: dict[str, str] = {}  # pseudonyms of this bank's own users, to be replaced by the users

        def take(row: Row) -> None:
            exported.add(names.id(row[0]))
            users[names.user(row[USER])] = row[USER]

        self._visit(lambda: take)
        return self.extend(
            replace(event, job=replace(event.job, user=users.get(event.job.user, event.job.user)))
            for event in given
            if event.id not in exported
        )


class _Found(NamedTuple):
    """Rows in order, the bytes read so far, the skipped lines, and the newest row that was too old."""

    rows: list[Row]
    done: dict[str, int]
    oddities: dict[str, int]
    floor: tuple[float, str]


@contextmanager
def _no_collector() -> Iterator[None]:
    """Switch off garbage collection while many objects are made, none of them garbage: it would dominate."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _now_s() -> float:
    """Return the seconds of a clock that continues while the machine sleeps, and that cannot be set."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
