"""Reads and writes workload logs in the Standard Workload Format (SWF), plain or compressed by gzip.

Logs have oddities. Each is handled by a documented rule and counted, or refused with file and line; see `read_swf`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from asa.core.files import compressed, in_words
from asa.core.reading import LOG_BYTES, LOG_JOBS, Stream, TooManyError, bound, read_pieces
from asa.core.safe import followed, writing
from asa.errors import InputError, TraceError
from asa.history import JobHistory, opened

from .table import LATEST_S, LONGEST_S, MAX_CORES, JobTable

# Positions of the columns that are read, among the 18 fields of SWF, counted from 0.
_ID, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _REQUEST_S = 0, 1, 2, 3, 4, 7, 8
_MEMORY, _STATUS, _USER, _GROUP, _QUEUE, _PARTITION = 9, 10, 11, 12, 14, 15
_SMALL = (_WAIT, _STATUS, _USER, _GROUP, _QUEUE, _PARTITION)  # stored with 32 bits; the others with 64
_TO_REPLAY = (_ID, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUEST_S)
_TO_REPLAY_OPTIONAL = (_WAIT, _MEMORY, _USER, _GROUP, _QUEUE, _PARTITION)
_TO_LEARN = (_SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUEST_S)
_TO_LEARN_OPTIONAL = (_WAIT, _STATUS, _USER, _QUEUE, _PARTITION)
_FIELDS_NEEDED = 9
_CANCELLED = 5
_PARTS = (2, 3, 4)  # statuses of lines for a part of a job that was swapped out
_LARGEST = 2**53  # beyond this, floats are not all whole numbers
_LARGEST_SMALL = 2**31 - 1
_HEADER = re.compile(rb"\s*;\s*(MaxProcs|MaxNodes|UnixStartTime|TimeZone)\s*:\s*(-?\d[\d,]*)")

_UNASKED_S = 86_400
_IN_1973_S = 100_000_000
_BLOCK_BYTES = 1 << 18  # small enough to stay in the cache with its arrays
_LONGEST_LINE_BYTES = 1 << 20
_LINES_WRITTEN_AT_ONCE = 1 << 16
_PAD = b"\n" * 16  # before a block, since the first numbers are loaded together with preceding bytes
_MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
_HINT = "Check the path; it must be an SWF log."

Exceed = Literal["raise", "kill", "keep"]


@dataclass(frozen=True, slots=True)
class Trace:
    """A log that can be replayed.

    Parameters
    ----------
    path
        Path of the log's file.
    cores
        Processors of the log's machine.
    table
        Jobs of the log.
    job_ids
        The log's ids, in the order of the table.
    oddities
        How many jobs each documented rule changed or dropped, by the rule's words.
    users, groups, queues, partitions
        Owners, queues and partitions of the jobs, as the log's numbers, in the order of the table; -1 if the log does
        not contain them.
    memory_kb
        Requested memory per processor, in KB, likewise.
    wait_s
        Seconds that each job queued in the log, likewise.
    clock_s
        Local time at second 0 of the log, in seconds since 1970-01-01 00:00: ``UnixStartTime`` plus ``TimeZone`` of the
        header; 0 if it does not say.
    """

    path: Path
    cores: int
    table: JobTable
    job_ids: NDArray[np.int64]
    oddities: dict[str, int]
    users: NDArray[np.int32]
    groups: NDArray[np.int32]
    queues: NDArray[np.int32]
    partitions: NDArray[np.int32]
    memory_kb: NDArray[np.int64]
    wait_s: NDArray[np.int32]
    clock_s: int = 0


def read_swf(path: str | Path, *, cores: int | None = None, exceed: Exceed = "raise") -> Trace:
    """Read a log.

    A job's width is what it requested or, if the log has no request, what it was allocated; its requested time is the
    log's or, if there is none, its run time.

    Rules for oddities, each counted in `Trace.oddities`:

    - run time of 0 or unknown: left out, it did no work;
    - width of 0 or unknown, or more than the machine has: left out;
    - submitted before second 0, or more than 4000 years after it: left out;
    - ran for longer than requested: see `exceed`;
    - no requested time: the run time is used;
    - run or request of more than 68 years: counts as 68 years;
    - not in order of submission: sorted, ties as in the file;
    - wait, user, group, queue, partition or memory that is no number, or one too large: unknown.

    Job ids may repeat or be missing; they are only copied, like the log's waits, users and similar columns.

    Parameters
    ----------
    path
        The file.
    cores
        Processors of the machine, if the header does not say or is wrong.
    exceed
        Rule for a job that ran for longer than requested: ``raise`` its request to its run time, since the site let it
        run; ``kill`` it at its request, as a batch system does; or ``keep`` both.

    Returns
    -------
    Trace
        With at least one job.

    Raises
    ------
    TraceError
        The file cannot be read, a line is broken, no machine size is known, or no job is left.

    Notes
    -----
    Linear in the length of the file, which is read in blocks: about half a second and 150 MB for a million jobs.
    """
    file = Path(path)
    log = _read(file, _Log(_TO_REPLAY, _TO_REPLAY_OPTIONAL))
    cores = cores or _machine_size(file, log.header)
    if cores > MAX_CORES:
        raise TraceError(
            f"has a machine of {cores} processors",
            where=str(file),
            hint=f"Give at most {MAX_CORES} with --trace-cores.",
        )
    return _clean(file, log, cores, exceed)


def read_history(path: str | Path) -> JobHistory | None:
    """Read the waits of a log, for learning.

    Other jobs count here than in `read_swf`: a job that failed at once has waited all the same. Times are seconds since
    1970 if the header has the log's beginning, else since that beginning. The system has the file's name. Users are
    named ``u<number>``, partitions ``p<number>``, or ``q<number>`` by their queue if there is no partition. Widths are
    found as by `read_swf`.

    Rules, each counted in `JobHistory.oddities`:

    - wait unknown: left out;
    - status 5, cancelled, and run time of 0 or unknown: never started, the recorded wait is a lower bound;
    - status 2, 3 or 4: left out, another line has the whole job;
    - width of 0 or unknown: left out; wider than the machine: kept, headers are often wrong;
    - no requested time: counts as a day, as the run time is not known in advance;
    - submitted before second 0, or more than 4000 years after it: left out;
    - not in order of submission: sorted, ties as in the file;
    - wait, status, user, queue or partition that is no number, or one too large: unknown.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    JobHistory or None
        With at least one job; None if nothing at the file's begin looks like a line or header of a log.

    Raises
    ------
    TraceError
        The file cannot be read, a line is broken, or no wait is known.

    Notes
    -----
    Linear in the length of the file, as `read_swf`.
    """
    file = Path(path)
    with opened(file, _HINT) as stream:
        begin = _newlines(stream.read(_BLOCK_BYTES).removeprefix(_MARK))
    if not any(_HEADER.match(line) or _is_job(line) for line in begin.split(b"\n")):
        return None
    return _history(file, _read(file, _Log(_TO_LEARN, _TO_LEARN_OPTIONAL)))


read_history.how_to_make = (  # type: ignore[attr-defined]  # what `asa.history` tells of this reader
    "a log in the Standard Workload Format, such as those of the Parallel Workloads Archive"
)


def _is_job(line: bytes) -> bool:
    fields = line.split(b";")[0].split()
    return len(fields) >= _FIELDS_NEEDED and all(_number(fields[column]) is not None for column in _TO_LEARN)


class _BrokenError(Exception):
    """A line of this log is invalid; its number is determined only afterwards."""


def _read(file: Path, log: _Log) -> _Log:
    """Read a file into a log."""
    with opened(file, _HINT) as stream:
        try:
            for block in _blocks(file, stream):
                log.add(block)
                if log.rows > bound(LOG_JOBS):
                    raise TooManyError("jobs", bound(LOG_JOBS), file)
        except _BrokenError:
            broken = True
        else:
            broken = False
    if broken:
        raise _first_broken_line(file, log.needed)
    if not log.rows:
        raise TraceError("holds no jobs", where=str(file), hint="Give a log in the Standard Workload Format.")
    return log


def _blocks(file: Path, stream: Stream) -> Iterator[bytes]:
    """Divide a log into blocks of whole lines, and convert line endings to newlines."""
    rest = b""
    first = True
    for chunk in read_pieces(stream, file, LOG_BYTES, _BLOCK_BYTES):
        text = rest + chunk
        if first:
            text, first = text.removeprefix(_MARK), False
        cut = max(text.rfind(b"\n"), text.rfind(b"\r") if b"\n" not in chunk else -1) + 1
        rest = text[cut:]
        if len(rest) > _LONGEST_LINE_BYTES:
            raise TraceError("is no log in the Standard Workload Format", where=str(file), hint="Give an SWF log.")
        if cut:
            yield _newlines(text[:cut])
    if rest:
        yield _newlines(rest) + b"\n"


def _newlines(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


@dataclass(slots=True)
class _Log:
    """The columns of a log while it is read: required ones, and optional ones."""

    needed: tuple[int, ...]
    optional: tuple[int, ...]
    header: dict[bytes, int] = field(default_factory=dict)
    rows: int = 0
    unknown: int = 0
    columns: dict[int, list[NDArray[Any]]] = field(init=False)
    _in_header: bool = True

    def __post_init__(self) -> None:
        self.columns = {column: [] for column in self.needed + self.optional}

    def add(self, block: bytes) -> None:
        if self._in_header:
            self._look_for_header(block)
        if b";" in block:
            block = _without_comments(block)
        block = _PAD + block
        text = np.frombuffer(block, dtype=np.uint8)
        blank = (text - np.uint8(9)) < 5
        blank |= text == 32
        edges = np.flatnonzero(blank[1:] != blank[:-1])
        edges += 1  # begin of a field, its end, begin of the next, ...
        before = np.searchsorted(edges, np.flatnonzero(text == 10), side="right") // 2
        fields = np.diff(before, prepend=0)
        written = fields > 0
        fields = fields[written]
        if not len(fields):
            return
        least, most = int(fields.min()), int(fields.max())
        if least < _FIELDS_NEEDED:
            raise _BrokenError
        self.rows += len(fields)
        pairs = edges.reshape(-1, most, 2) if least == most else None
        firsts = before[written] - fields
        for column in self.columns:
            if pairs is not None and column < most:
                begin, end = pairs[:, column, 0], pairs[:, column, 1]
            else:
                place = 2 * (firsts + np.minimum(column, fields - 1))
                begin, end = edges[place], edges[place + 1]
            values, broken = _whole_numbers(block, text, begin, end)
            self._append(column, values, broken, missing=fields <= column)

    def _append(
        self, column: int, values: NDArray[np.int64], broken: NDArray[np.bool_], missing: NDArray[np.bool_]
    ) -> None:
        small = column in _SMALL
        if column in self.optional:
            if small:
                broken |= values > _LARGEST_SMALL
            self.unknown += int(np.count_nonzero(broken & ~missing))
            values[broken | missing | (values < 0)] = -1
        elif broken.any():
            raise _BrokenError
        self.columns[column].append(values.astype(np.int32 if small else np.int64, copy=False))

    def taken(self, column: int) -> NDArray[Any]:
        """Remove and return a column: its parts are freed."""
        return np.concatenate(self.columns.pop(column))

    def width(self) -> NDArray[np.int64]:
        """Remove and return the requested width of each job, or its allocated width if no request is recorded."""
        width, allocated = self.taken(_REQUESTED), self.taken(_ALLOCATED)
        np.copyto(width, allocated, where=width <= 0)
        return width

    def _look_for_header(self, block: bytes) -> None:
        for line in block.split(b"\n"):
            if match := _HEADER.match(line):
                self.header.setdefault(match[1], int(match[2].replace(b",", b"")))
            elif line.strip() and not line.lstrip().startswith(b";"):
                self._in_header = False
                return


def _without_comments(block: bytes) -> bytes:
    """Replace the text from a semicolon to the end of its line by blanks."""
    text = bytearray(block)
    at = text.find(b";")
    while at >= 0:
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        text[at:end] = b" " * (end - at)
        at = text.find(b";", end)
    return bytes(text)


def _whole_numbers(
    block: bytes, text: NDArray[np.uint8], begin: NDArray[np.intp], end: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Parse the fields between these positions as numbers, rounded down; also return which are not numbers."""
    minus = text[begin] == 45
    digits = end - begin
    digits -= minus
    longest = int(digits.max())
    if longest <= 8:
        number, broken = _eight_digits(block, end, digits)
    else:
        number, broken = _eight_digits(block, end, np.minimum(digits, 8))
        more, also = _eight_digits(block, end - 8, np.clip(digits - 8, 0, 8))
        number += 100_000_000 * more
        broken |= also | (digits > 15)
    broken |= digits < 1
    number[minus] *= -1
    if broken.any():  # fields with a decimal point, a plus sign, an exponent or invalid text: one by one
        for row in np.flatnonzero(broken).tolist():
            value = _number(block[begin[row] : end[row]])
            if value is not None:
                number[row], broken[row] = value, False
    return number, broken


def _eight_digits(
    block: bytes, end: NDArray[np.intp], digits: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Parse at most eight digits that end at each position, all eight at once: as bytes of a word, added in pairs."""
    words: NDArray[np.uint64] = np.ndarray((len(block) - 7,), dtype="<u8", buffer=block, strides=(1,))
    word = words[end - 8]
    word ^= np.uint64(0x3030303030303030)
    others = (64 - 8 * digits).astype(np.uint64)  # bits of the word that do not belong to the number
    word >>= others
    word <<= others
    broken = ((word | (word + np.uint64(0x0606060606060606))) & np.uint64(0xF0F0F0F0F0F0F0F0)) != 0
    for factor, shift, mask in (
        (1 + (10 << 8), 8, 0x00FF00FF00FF00FF),
        (1 + (100 << 16), 16, 0x0000FFFF0000FFFF),
        (1 + (10_000 << 32), 32, 0xFFFFFFFF),
    ):
        word *= np.uint64(factor)
        word >>= np.uint64(shift)
        word &= np.uint64(mask)
    return word.view(np.int64), broken


def _number(token: bytes) -> int | None:
    """Parse one field; None for an invalid one."""
    try:
        value = float(token)
    except ValueError:
        return None
    # false for nan; Python reads underscores between digits, SWF does not know them
    return int(value // 1) if abs(value) < _LARGEST and b"_" not in token else None


def _first_broken_line(file: Path, needed: Iterable[int]) -> TraceError:
    with opened(file, _HINT) as stream:
        lines = (line for block in _blocks(file, stream) for line in block.split(b"\n")[:-1])
        for number, line in enumerate(lines, start=1):
            fields = line.split(b";")[0].split()
            if not fields:
                continue
            where = f"{file}:{number}"
            if len(fields) < _FIELDS_NEEDED:
                return TraceError(
                    f"has {len(fields)} fields where a job needs at least {_FIELDS_NEEDED}",
                    where=where,
                    hint="A line of the Standard Workload Format has 18 numbers; correct or delete this one.",
                )
            for column in needed:
                if _number(fields[column]) is None:
                    return TraceError(
                        f"field {column + 1} is {fields[column].decode(errors='replace')!r}, which is no valid number",
                        where=where,
                        hint="Correct or delete this line, if this is a log in the Standard Workload Format.",
                    )
    return TraceError("is no log in the Standard Workload Format", where=str(file), hint="Give an SWF log.")


def _noted_size(header: Mapping[bytes, int]) -> int:
    """Processors of the machine according to the header; 0 if absent."""
    return max(header.get(b"MaxProcs", 0), 0) or max(header.get(b"MaxNodes", 0), 0)


def _machine_size(file: Path, header: dict[bytes, int]) -> int:
    size = _noted_size(header)
    if not size:
        raise TraceError(
            "does not say how large its machine is (no MaxProcs or MaxNodes in the header)",
            where=str(file),
            hint="Give the number of processors with --trace-cores.",
        )
    return size


def _impossible(submit: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    return {
        "left out: submitted before second 0": submit < 0,
        "left out: submitted after more than 4000 years, as if the log were in milliseconds": submit >= LATEST_S // 2,
    }


def _chosen(left_out: Mapping[str, NDArray[np.bool_]]) -> tuple[slice | NDArray[np.bool_] | None, dict[str, int]]:
    """Select the rows that no rule drops; None if there are none. A dropped row counts for its first rule."""
    oddities: dict[str, int] = {}
    out = np.zeros(len(next(iter(left_out.values()))), dtype=np.bool_)
    for words, odd in left_out.items():
        oddities[words] = int(np.count_nonzero(odd & ~out))
        out |= odd
    if not out.any():
        return slice(None), oddities  # a slice does not copy
    return None if out.all() else ~out, oddities


def _met(oddities: Mapping[str, int]) -> dict[str, int]:
    return {words: count for words, count in oddities.items() if count}


def _why(oddities: Mapping[str, int]) -> str:
    return "; ".join(f"{count} {words}" for words, count in _met(oddities).items())


def _clean(file: Path, log: _Log, cores: int, exceed: Exceed) -> Trace:
    submit, run, width = log.taken(_SUBMIT), log.taken(_RUN), log.width()
    chosen, oddities = _chosen(
        {
            "left out: run time 0 or unknown": run < 1,
            "left out: width 0 or unknown": width < 1,
            "left out: wider than the machine": width > cores,
            **_impossible(submit),
        }
    )
    if chosen is None:
        raise TraceError(
            f"has no job that a machine of {cores} processors can run ({_why(oddities)})",
            where=str(file),
            hint="Give another log, or the machine's processors with --trace-cores.",
        )
    submit, run, width = submit[chosen], run[chosen], width[chosen]
    asked = log.taken(_REQUEST_S)[chosen]
    over = (asked > 0) & (run > asked)
    oddities[
        {
            "raise": "request raised: ran for longer than requested",
            "kill": "run cut to the request: ran for longer than requested",
            "keep": "kept as they are: ran for longer than requested",
        }[exceed]
    ] = int(np.count_nonzero(over))
    oddities["no requested time: run time taken"] = int(np.count_nonzero(asked < 1))
    longest = np.maximum(run, asked)
    oddities["run or request of more than 68 years: counts as so long"] = int(np.count_nonzero(longest > LONGEST_S))
    del longest
    oddities["not in order of submission: sorted"] = int(np.count_nonzero(np.diff(submit) < 0))
    oddities["wait, user, group, queue, partition or memory no number or too large: unknown"] = log.unknown
    np.copyto(asked, run, where=(asked < 1) | over if exceed == "raise" else asked < 1)
    del over
    try:
        table = JobTable(submit, run, asked, width, keep_overruns=exceed == "keep")
    except ValueError as error:
        raise TraceError(f"has {error}", where=str(file), hint="Are its times in seconds?") from error
    del submit, run, asked, width

    def ordered(column: int) -> NDArray[Any]:
        return np.ascontiguousarray(log.taken(column)[chosen][table.order])

    return Trace(
        file,
        cores,
        table,
        ordered(_ID),
        _met(oddities),
        ordered(_USER),
        ordered(_GROUP),
        ordered(_QUEUE),
        ordered(_PARTITION),
        ordered(_MEMORY),
        ordered(_WAIT),
        log.header.get(b"UnixStartTime", 0) + log.header.get(b"TimeZone", 0),
    )


def _history(file: Path, log: _Log) -> JobHistory:
    submit, run, asked, wait = (log.taken(column) for column in (_SUBMIT, _RUN, _REQUEST_S, _WAIT))
    width, status = log.width(), log.taken(_STATUS)
    chosen, oddities = _chosen(
        {
            "left out: part of a job that another line tells whole": np.isin(status, _PARTS),
            "left out: wait unknown": wait < 0,
            "left out: width 0 or unknown": width < 1,
            **_impossible(submit),
        }
    )
    if chosen is None:
        raise TraceError(
            f"has no job whose wait is known ({_why(oddities)})",
            where=str(file),
            hint="Give a log that notes waits (field 3) and requested processors (field 8).",
        )
    order = np.argsort(submit[chosen], kind="stable")

    def ordered(column: NDArray[Any]) -> NDArray[Any]:
        return column[chosen][order]

    # counted before sorting, since the file's order is the oddity
    oddities["not in order of submission: sorted"] = int(np.count_nonzero(np.diff(submit[chosen]) < 0))
    submit, run, asked, wait, width, status = map(ordered, (submit, run, asked, wait, width, status))
    noted = _noted_size(log.header)
    machine_cores = noted if noted <= MAX_CORES else 0
    started = (status != _CANCELLED) | (run > 0)
    oddities["no requested time: a day taken"] = int(np.count_nonzero(asked < 1))
    oddities["cancelled before it started: waited at least so long"] = int(np.count_nonzero(~started))
    if machine_cores:
        oddities["wider than the machine: kept"] = int(np.count_nonzero(width > machine_cores))
    oddities["wait, status, user, queue or partition no number or too large: unknown"] = log.unknown
    partition, queue = (ordered(log.taken(column)).astype(np.int64) for column in (_PARTITION, _QUEUE))
    users, user_names = _named(ordered(log.taken(_USER)).astype(np.int64), "u")
    # both kinds of names in one column: partitions are even, queues odd
    sent = np.where(partition >= 0, 2 * partition, np.where(queue >= 0, 2 * queue + 1, -1))
    partitions, partition_names = _named(sent, "pq")
    # a log's clock either begins with the log, or already counts from 1970
    begins_s = log.header.get(b"UnixStartTime", 0) if submit[0] < _IN_1973_S else 0
    return JobHistory(
        submit_s=(submit + max(begins_s, 0)).astype(np.float64),
        wait_s=wait.astype(np.float64),
        cores=width,
        walltime_s=np.where(asked > 0, asked, _UNASKED_S).astype(np.float64),
        started=started,
        run_s=np.where(started & (run >= 0), run, -1).astype(np.float64),
        user=users,
        partition=partitions,
        users=user_names,
        partitions=partition_names,
        system=file.name.removesuffix(".gz").removesuffix(".swf"),
        machine_cores=machine_cores,
        source=str(file),
        oddities=_met(oddities),
    )


def _named(numbers: NDArray[np.int64], letters: str) -> tuple[NDArray[np.int32], list[str]]:
    """Name numbers by the letter of their kind, one for each remainder, and their quotient; -1 has no name."""
    values, places = np.unique(numbers, return_inverse=True)
    unnamed = int(np.count_nonzero(values < 0))  # at most one, the first
    names = [f"{letters[value % len(letters)]}{value // len(letters)}" for value in values[unnamed:].tolist()]
    return (places.reshape(-1) - unnamed).astype(np.int32), names


def write_swf(
    path: str | Path,
    table: JobTable,
    *,
    cores: int,
    job_ids: Sequence[int] | NDArray[np.integer] | None = None,
    users: Sequence[int] | NDArray[np.integer] | None = None,
    groups: Sequence[int] | NDArray[np.integer] | None = None,
    queues: Sequence[int] | NDArray[np.integer] | None = None,
    partitions: Sequence[int] | NDArray[np.integer] | None = None,
    memory_kb: Sequence[int] | NDArray[np.integer] | None = None,
    waits_s: Sequence[int] | NDArray[np.integer] | None = None,
    notes: Iterable[str] = (),
    unix_start_s: int = 0,
) -> None:
    """Write jobs as a log that `read_swf`, and other programs, read as the same jobs.

    The file is complete or absent: it is written under another name and then renamed.

    `table`: the jobs. None may be submitted before second 0 or be wider than the machine.
    `job_ids`: their ids in the order of the table; 1, 2, 3 and so on if not given.
    Raises `InputError`: the file cannot be written, or would not be read as the same jobs.

    Notes
    -----
    Linear in the number of jobs: about a second for a million, twice that compressed.

    Examples
    --------
    >>> import tempfile
    >>> jobs = JobTable(*(np.array(column) for column in ([0, 5], [60, 7], [600, 70], [4, 9])))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_swf(Path(folder, "two.swf.gz"), jobs, cores=16, notes=["Two jobs."])
    ...     read_swf(Path(folder, "two.swf.gz")).table.cores.tolist()
    [4, 9]
    """
    file = Path(path)
    _refuse_what_would_not_return(file, table, cores)
    ids = np.arange(1, len(table) + 1) if job_ids is None else job_ids
    optional = [("job_ids", ids), ("waits_s", waits_s), ("memory_kb", memory_kb), ("users", users), ("groups", groups)]
    optional += [("queues", queues), ("partitions", partitions)]
    extra = [_optional_column(file, name, given, len(table)) for name, given in optional]
    file = followed(file)
    refused = in_words("cannot be written", file, "Name another file.")
    with refused, writing(file) as raw, compressed(raw, file) as stream:
        _write(stream, table, cores=cores, extra=extra, notes=notes, unix_start_s=unix_start_s)


def _refuse_what_would_not_return(file: Path, table: JobTable, cores: int) -> None:
    if not len(table):
        raise InputError("there is no job to write", where=str(file), hint="Give a table with jobs.")
    for odd, words in (
        (table.cores.max() > cores, f"a job is wider than the machine of {cores} processors"),
        (table.submit[0] < 0, "a job is submitted before second 0"),
    ):
        if odd:
            raise InputError(words, where=str(file), hint="`read_swf` would leave it out; correct the table.")


def _optional_column(
    file: Path, name: str, given: Sequence[int] | NDArray[np.integer] | None, rows: int
) -> NDArray[np.int64]:
    column = np.full(rows, -1, dtype=np.int64) if given is None else np.asarray(given, dtype=np.int64)
    if column.shape != (rows,):
        raise InputError(
            f"{name} has the shape {column.shape} where there are {rows} jobs",
            where=str(file),
            hint="Give one number a job, in the order of the table.",
        )
    return column


def _write(
    stream: IO[bytes],
    table: JobTable,
    *,
    cores: int,
    extra: Sequence[NDArray[np.int64]],
    notes: Iterable[str],
    unix_start_s: int,
) -> None:
    header = ["Version: 2.2", f"UnixStartTime: {unix_start_s}", f"MaxJobs: {len(table)}", f"MaxRecords: {len(table)}"]
    header += [f"MaxProcs: {cores}", *(f"Note: {' '.join(note.split())}" for note in notes)]
    stream.write("".join(f"; {line}\n" for line in header).encode())
    ids, waits, memory_kb, *others = extra
    columns = (ids, table.submit, waits, table.run, table.cores, table.cores, table.request, memory_kb, *others)
    for first in range(0, len(table), _LINES_WRITTEN_AT_ONCE):
        rows = zip(*(column[first : first + _LINES_WRITTEN_AT_ONCE].tolist() for column in columns), strict=True)
        stream.write("".join([_LINE % row for row in rows]).encode())


_LINE = "%d %d %d %d %d -1 -1 %d %d %d 1 %d %d -1 %d %d -1 -1\n"
