"""The run times of stages, in a folder next to the bank's waits, to which many processes on many hosts write.

Run times are added a run at a time, so each run has a segment of its own (see `asa.core.store`), which never changes.
The first line of a merged segment lists the *files* that it took as a whole; for waits, which are appended, it has
numbers of bytes instead.

A record has a permanent id. Of two records with the same id, the one with more information counts: an exact run time
before a censored one, a longer one before a shorter. So a run may add all its records any number of times. A forgotten
record leaves a short hash of its id, so that it is not added again.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Literal

from asa.core.files import read_file
from asa.core.late import dataclass
from asa.core.locks import FileLock
from asa.core.reading import BANK_BYTES
from asa.core.store import Segment, SegmentFolder, decode, encode, refuse_later_version
from asa.errors import InputError, StateError
from asa.runtimes.forecast import RunForecast, forecast_run

_FOLDER = "runtimes"
_FORMAT = "asa-run-times"
_VERSION = 1
_MANY_FILES = 64
_MAX_CORES = 1 << 53
_TRACE = 16  # hexadecimal digits of a hash


@dataclass(frozen=True, slots=True)
class RunTime:
    """The time of one run of a stage.

    Parameters
    ----------
    workflow, stage
        Their names.
    cores
        Cores that the stage had.
    run_s
        Seconds from the stage's beginning to its end, without the time that its job waited and idled.
    at_s
        When the stage ended, on the batch system's clock: later runs have more weight.
    system
        The system on which it ran; may be empty.
    input_size
        Amount of input, in the workflow's unit; None if not given.
    kind
        ``exact``, or ``at_least`` if it reached its walltime.
    id
        Permanent id of the record. Empty for a new record, which gets one from the log.

    Raises
    ------
    InputError
        The values are impossible.
    """

    workflow: str
    stage: str
    cores: int
    run_s: float
    at_s: float
    system: str = ""
    input_size: float | None = None
    kind: Literal["exact", "at_least"] = "exact"
    id: str = ""

    def __post_init__(self) -> None:
        if not _is_sound(self):
            raise InputError(
                f"no stage runs like {astuple(self)}",
                where="run times",
                hint="Times are finite and not negative, cores at least 1, sizes above 0.",
            )

    def tells_more_than(self, other: RunTime) -> bool:
        """Whether this record, and not another with the same id, is to be kept."""
        return (self.kind == "exact", self.run_s) > (other.kind == "exact", other.run_s)


_FIELDS = tuple(field.name for field in fields(RunTime))


def _is_sound(run: RunTime) -> bool:
    size = run.input_size
    try:
        return (
            all(isinstance(text, str) for text in (run.workflow, run.stage, run.system, run.id))
            and math.isfinite(run.run_s)
            and math.isfinite(run.at_s)
            and run.run_s >= 0
            and 1 <= run.cores < _MAX_CORES
            and run.cores == int(run.cores)
            and (size is None or 0 < size < math.inf)
            and run.kind in {"exact", "at_least"}
        )
    except (TypeError, ValueError, OverflowError):
        return False


class RunTimes:
    """The run times in a bank's folder.

    Parameters
    ----------
    folder
        The bank's folder; run times are in a folder inside it, which is made at the first write.
    lock_wait_s
        How many seconds `forget` waits for another process that forgets.

    Attributes
    ----------
    folder
        The folder of the run times.
    damaged
        How many lines could not be read at the last reading, and were skipped.

    Raises
    ------
    StateError
        All methods raise it if a file cannot be read or written, or has the format of a later version.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = RunTimes(folder)
    ...     runs.observe(RunTime("blast", "search", 112, 600.0, at_s=float(i), id=f"run-{i}") for i in range(5))
    ...     runs.observe([RunTime("blast", "search", 112, 600.0, at_s=4.0, id="run-4")])
    ...     forecast = runs.forecast("blast", "search", 112)
    ...     forecast.p50_s, forecast.count, forecast.how
    5
    0
    (600.0, 5, 'from 5 runs')
    """

    def __init__(self, folder: str | Path, *, lock_wait_s: float = 30.0) -> None:
        self.folder = Path(folder) / _FOLDER
        self.lock_wait_s = lock_wait_s
        self.damaged = 0
        self._segments = SegmentFolder(self.folder, signed=False)
        self._files: dict[str, _File] = {}  # files never change
        self._forgotten: frozenset[str] = frozenset()  # hashes of ids

    def observe(self, times: Iterable[RunTime]) -> int:
        """Store run times: all of them or, if that fails or is killed, none.

        Parameters
        ----------
        times
            The run times. Known and forgotten ones are not added again.

        Returns
        -------
        int
            How many records were added.
        """
        known = self._known()
        fresh: dict[str, RunTime] = {}
        for given in times:
            run = given if given.id else replace(given, id=secrets.token_hex(8))
            if self._is_forgotten(run):
                continue
            before = fresh.get(run.id) or known.get(run.id)
            if before is None or run.tells_more_than(before):
                fresh[run.id] = run
        if fresh:
            self._segments.add("kept", _lines(fresh.values()))
            self._tidy()
        return len(fresh)

    def read(self) -> list[RunTime]:
        """Return all run times, the latest last."""
        return _in_order(self._known().values())

    def of(self, workflow: str, stage: str = "") -> list[RunTime]:
        """Return the run times of a workflow, or of one of its stages, the latest last."""
        known = self._known().values()
        return _in_order(run for run in known if run.workflow == workflow and stage in {"", run.stage})

    def by_stage(self, workflow: str) -> dict[str, list[RunTime]]:
        """Return the run times of each stage of a workflow that has some, the latest last, in one reading."""
        found: dict[str, list[RunTime]] = {}
        for run in self.of(workflow):
            found.setdefault(run.stage, []).append(run)
        return found

    def forecast(
        self, workflow: str, stage: str, cores: int, input_size: float | None = None, system: str = ""
    ) -> RunForecast | None:
        """Forecast how long a stage runs; see `forecast_run`.

        Parameters
        ----------
        workflow, stage
            Their names.
        cores
            Cores that the stage gets.
        input_size
            Amount of input, in the workflow's unit; None if not given.
        system
            The system on which it will run.

        Returns
        -------
        RunForecast or None
            None if no run is known.
        """
        return forecast_run(self.of(workflow, stage), cores, input_size=input_size, system=system)

    def forget(self, workflow: str, stage: str = "") -> int:
        """Remove the run times of a workflow, or of one of its stages, for good; return how many.

        Resumed runs do not bring them back; new runs are stored again.

        Raises
        ------
        StateError
            Another process is forgetting run times, and does not end.
        """
        if not self._segments.segments():
            return 0
        with self._segments.tidied(self.lock_wait_s) as lock:
            return self._merge(lock, lambda run: run.workflow == workflow and stage in {"", run.stage})

    # ------------------------------------------------------------------ files

    def _known(self) -> dict[str, RunTime]:
        """Read the records of all files."""
        return self._segments.steadily(self._gather)

    def _gather(self, segments: Iterable[Segment]) -> dict[str, RunTime]:
        self._files = {
            segment.path.name: self._files.get(segment.path.name) or _read(segment.path) for segment in segments
        }
        taken = {name for file in self._files.values() for name in file.took}
        counted = [file for name, file in self._files.items() if name not in taken]
        self.damaged = sum(file.damaged for file in counted)
        self._forgotten = frozenset().union(*(file.forgotten for file in counted))
        runs = (run for file in counted for run in file.runs)
        return _united(run for run in runs if not self._is_forgotten(run))

    def _is_forgotten(self, run: RunTime) -> bool:
        return bool(self._forgotten) and _trace(run.id) in self._forgotten

    # ------------------------------------------------------------------ merging and forgetting

    def _tidy(self) -> None:
        """Merge many files into one, unless another process is doing it."""
        if len(self._segments.segments()) > _MANY_FILES:
            with suppress(StateError), self._segments.tidied(0.0) as lock:
                self._merge(lock)

    def _merge(self, lock: FileLock, matching: Callable[[RunTime], bool] | None = None) -> int:
        """Write the records of all files, except matching records, into one file; return how many were left out."""
        known = self._known()
        gone = {run.id for run in known.values() if matching is not None and matching(run)}
        if matching is not None and not gone:
            return 0
        # files that earlier merges could not delete must stay listed as taken
        took = set(self._files)
        left = (run for run in known.values() if run.id not in gone)
        forgotten = self._forgotten.union(map(_trace, gone))
        self._segments.add("all", _lines(left, took=took, forgotten=forgotten), before=lock.check)
        self._segments.sweep(lock)
        self._segments.delete(segment for segment in self._segments.segments() if segment.path.name in took)
        return len(gone)


@dataclass(frozen=True, slots=True)
class _File:
    """The content of a file."""

    runs: tuple[RunTime, ...]
    took: frozenset[str]
    forgotten: frozenset[str]
    damaged: int


def _lines(runs: Iterable[RunTime], *, took: Iterable[str] = (), forgotten: Iterable[str] = ()) -> Iterator[bytes]:
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "fields": _FIELDS,
        "took": sorted(took),
        "forgotten": "".join(sorted(forgotten)),
    }
    yield f"{encode(header)}\n".encode()
    for run in runs:
        yield f"{encode(astuple(run))}\n".encode()


def _read(path: Path) -> _File:
    first, *lines = read_file(path, BANK_BYTES).splitlines() or [b""]
    header = decode(first)
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        return _File((), frozenset(), frozenset(), 1 + len(lines))
    refuse_later_version(header, path, _VERSION)
    runs = [run for line in lines if (run := _run_of(line)) is not None]
    took, forgotten = header.get("took"), _parts(str(header.get("forgotten", "")))
    taken = frozenset(map(str, took)) if isinstance(took, list) else frozenset()
    return _File(tuple(runs), taken, forgotten, len(lines) - len(runs))


def _trace(run_id: str) -> str:
    """Return the hash that remains of a forgotten record's id."""
    return hashlib.blake2s(run_id.encode(), digest_size=_TRACE // 2).hexdigest()


def _parts(traces: str) -> frozenset[str]:
    return frozenset(traces[at : at + _TRACE] for at in range(0, len(traces), _TRACE))


def _run_of(line: bytes) -> RunTime | None:
    values = decode(line)
    if not isinstance(values, list) or len(values) != len(_FIELDS):
        return None
    try:
        return RunTime(*values)
    except InputError:
        return None


def _in_order(runs: Iterable[RunTime]) -> list[RunTime]:
    return sorted(runs, key=lambda run: (run.at_s, run.id))


def _united(runs: Iterable[RunTime]) -> dict[str, RunTime]:
    known: dict[str, RunTime] = {}
    for run in runs:
        if (before := known.get(run.id)) is None or run.tells_more_than(before):
            known[run.id] = run
    return known
