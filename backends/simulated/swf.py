"""Reading workload logs in the Standard Workload Format (SWF), plain or compressed by gzip.

Logs are odd. Each oddity is handled by a stated rule and counted, or refused with file and line; see `read_swf`.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asa.errors import TraceError

from .engine import JobTable

__all__ = ["Trace", "read_swf"]

_ID, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUEST_S = range(6)
_COLUMNS = (0, 1, 3, 4, 7, 8)  # of the 18 fields of SWF, counted from 0
_FIELDS_NEEDED = 9
_LARGEST = 2**53  # beyond it a float is no whole number any more
_HEADER = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d[\d,]*)")


@dataclass(frozen=True, slots=True)
class Trace:
    """A log that can be replayed.

    Parameters
    ----------
    path
        Where it came from.
    cores
        Processors of its machine.
    table
        Its jobs.
    job_ids
        The log's ids, in the order of the table.
    oddities
        How many jobs each documented rule touched, by the rule's words.
    """

    path: Path
    cores: int
    table: JobTable
    job_ids: NDArray[np.int64]
    oddities: dict[str, int]


def read_swf(path: str | Path, *, cores: int | None = None) -> Trace:
    """Read a log.

    A job's width is what it requested, or what it was allocated where no request is noted; its requested time is the
    log's, or its run time where none is noted.

    Rules for what is odd, each counted in `Trace.oddities`:

    - run time of 0 or unknown: left out, it did no work;
    - width of 0 or unknown, or more than the machine has: left out;
    - submitted before second 0: left out;
    - ran for longer than requested: the request is raised to the run time, for the site let it run;
    - no requested time: the run time stands for it;
    - not in order of submission: sorted, ties as in the file.

    Job ids may repeat or be missing; they are not used.

    Parameters
    ----------
    path
        The file.
    cores
        Processors of the machine, if the header does not say or is not to be believed.

    Returns
    -------
    Trace
        With at least one job.

    Raises
    ------
    TraceError
        The file cannot be read, a line is broken, no machine size is known, or no job is left.
    """
    file = Path(path)
    text = _text(file)
    rows = _numbers(file, text)
    cores = cores or _machine_size(file, text)
    return _clean(file, rows, cores)


def _text(file: Path) -> str:
    try:
        raw = file.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
    except OSError as error:
        raise TraceError(
            f"cannot be read: {error.strerror or error}",
            where=str(file),
            hint="Check the path; it must be an SWF log.",
        ) from error
    except (EOFError, zlib.error) as error:
        raise TraceError("is cut off or no gzip file", where=str(file), hint="Fetch it again.") from error
    text = raw.decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _numbers(file: Path, text: str) -> NDArray[np.float64]:
    try:
        rows = np.loadtxt(io.StringIO(text), comments=";", usecols=_COLUMNS, ndmin=2)
    except ValueError:
        raise _first_broken_line(file, text) from None
    except UserWarning:  # an empty file, where warnings are errors
        rows = np.empty((0, len(_COLUMNS)))
    if rows.size and not (np.all(np.isfinite(rows)) and np.abs(rows).max() < _LARGEST):
        raise _first_broken_line(file, text)
    if rows.size == 0:
        raise TraceError("holds no jobs", where=str(file), hint="Give a log in the Standard Workload Format.")
    return rows


def _first_broken_line(file: Path, text: str) -> TraceError:
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split(";")[0].split()
        if not fields:
            continue
        where = f"{file}:{number}"
        if len(fields) < _FIELDS_NEEDED:
            return TraceError(
                f"has {len(fields)} fields where a job needs at least {_FIELDS_NEEDED}",
                where=where,
                hint="An SWF line has 18 numbers; mend or delete this one.",
            )
        for column in _COLUMNS:
            try:
                meant = abs(float(fields[column])) < _LARGEST  # false for nan
            except ValueError:
                meant = False
            if not meant:
                return TraceError(
                    f"field {column + 1} is {fields[column]!r}, which no log can mean",
                    where=where,
                    hint="Mend or delete this line.",
                )
    return TraceError("is no log in the Standard Workload Format", where=str(file), hint="Give an SWF log.")


def _machine_size(file: Path, text: str) -> int:
    found: dict[str, int] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith(";"):
            break
        if match := _HEADER.match(line):
            found.setdefault(match[1], int(match[2].replace(",", "")))
    size = found.get("MaxProcs") or found.get("MaxNodes")
    if not size:
        raise TraceError(
            "does not say how large its machine is (no MaxProcs or MaxNodes in the header)",
            where=str(file),
            hint="Give the number of processors with --trace-cores.",
        )
    return size


def _clean(file: Path, rows: NDArray[np.float64], cores: int) -> Trace:
    columns = np.floor(rows).astype(np.int64)
    submit, run = columns[:, _SUBMIT], columns[:, _RUN]
    width = np.where(columns[:, _REQUESTED] > 0, columns[:, _REQUESTED], columns[:, _ALLOCATED])
    asked = columns[:, _REQUEST_S]
    left_out = {
        "left out: run time 0 or unknown": run < 1,
        "left out: width 0 or unknown": width < 1,
        "left out: wider than the machine": width > cores,
        "left out: submitted before second 0": submit < 0,
    }
    oddities: dict[str, int] = {}
    keep = np.ones(len(rows), dtype=np.bool_)
    for words, odd in left_out.items():
        oddities[words] = int(np.count_nonzero(odd & keep))
        keep &= ~odd
    if not keep.any():
        why = "; ".join(f"{count} {words}" for words, count in oddities.items() if count)
        raise TraceError(
            f"has no job that a machine of {cores} processors can run ({why})",
            where=str(file),
            hint="Give another log, or the machine's processors with --trace-cores.",
        )
    submit, run, width, asked = (column[keep] for column in (submit, run, width, asked))
    job_ids = columns[keep, _ID]
    oddities["request raised: ran for longer than requested"] = int(np.count_nonzero((asked > 0) & (run > asked)))
    oddities["no requested time: run time taken"] = int(np.count_nonzero(asked < 1))
    oddities["not in order of submission: sorted"] = int(np.count_nonzero(np.diff(submit) < 0))
    table = JobTable(submit, run, np.maximum(asked, run), width)
    return Trace(file, cores, table, job_ids[table.order], {words: count for words, count in oddities.items() if count})
