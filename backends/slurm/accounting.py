"""Reads job histories from Slurm's accounting: the output of ``sacct -P``.

Accounting has oddities. Each is handled by a stated rule and counted, or refused with file and line; see
`read_history`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asa.core.reading import LOG_JOBS, TooManyError, bound, read_lines
from asa.errors import InputError, TraceError
from asa.history import JobHistory, opened
from asa.units import parse_duration

SACCT_COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct -a -D -X -P -S now-90days"
    " -o Cluster,JobID,User,Partition,Submit,Eligible,Start,End,State,TimelimitRaw,ReqCPUS,Reservation,Reason"
)
"""The command whose output `read_history` reads, with Slurm 21.08 and later.

Times are seconds since 1970, so that a change of clocks makes none ambiguous. ``-a`` asks for the jobs of all users,
``-D`` for every record of requeued jobs, ``-X`` for no job steps. The column ``Restarts`` is left out: older versions
do not have it, and ``-D`` shows the same.
"""

TWIN_COMMAND = SACCT_COMMAND + ",AllocCPUS"
"""The same command with the allocated cores, which a twin of the site needs."""

_JOB, _USER, _LIMIT = ("jobid", "jobidraw"), ("user", "uid"), ("timelimitraw", "timelimit")
_WIDTHS = ("reqcpus", "reqtres", "alloccpus", "ncpus", "alloctres")
_NODES = ("reqnodes", "nnodes", "allocnodes")
_TELLING = {"jobid", "jobidraw", "submit", "start", "state"}

_UNKNOWN = frozenset({"", "unknown", "none", "n/a", "none assigned", "invalid"})
_NO_TIME = frozenset({"0", "4294967294", "4294967295"})  # Slurm's values for never, not set and infinite
_LIMITLESS = _UNKNOWN | {"unlimited", "infinite", "partition_limit"}
_ENDED, _RAN, _RUNNING, _CANCELLED, _PENDING, _REVOKED = range(6)
_KINDS = {
    **dict.fromkeys(("COMPLETED", "TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED"), _RAN),
    **dict.fromkeys(("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "STOPPED"), _RUNNING),
    **dict.fromkeys(("CANCELLED", "DEADLINE"), _CANCELLED),  # whether or not it had started
    **dict.fromkeys(("PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"), _PENDING),
    "REVOKED": _REVOKED,
}
_FREE = frozenset(  # columns that may contain a |
    {
        "admincomment", "comment", "constraints", "container", "extra", "jobname", "licenses", "stderr", "stdin",
        "stdout", "submitline", "systemcomment", "wckey", "workdir",
    }
)  # fmt: skip
_OF_SACCT = frozenset((*_JOB, *_USER, *_LIMIT, *_WIDTHS, *_NODES, "submit", "eligible", "start", "end", "state"))
_SURELY = 5  # a table with this number of sacct's column names is one of sacct
_MAX_GREETING = 50
_CUT_OFF = "is sacct's default output, whose columns are cut off"
_RECORD = re.compile(r"(?:[^|]*\|){4}")
_LIKE_TIME = re.compile(r"(?<![^|])(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|1\d{9}|Unknown)(?![^|])")
_HELD = frozenset({"JobArrayTaskLimit", "JobHeldUser", "JobHeldAdmin"})
_KEPT_BACK = frozenset({"Dependency", "BeginTime"})  # reasons that Eligible shows, too
_CPUS = re.compile(r"(?:^|,)cpu=(\d{1,15})(?:,|$)")
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMG]?)")
_NO_LIMIT_S = 7 * 86400.0
_LATEST_S = 1e11  # larger times are not seconds
_MAX_DIGITS = 11
_NO_DAY = float("-inf")
_MAX_CORES = 2**31 - 2

_TIMES = ("submit", "eligible", "start", "end")
_COLUMNS = (*_TIMES, "elapsed", "kind", "cores", "limit", "user", "partition", "allocated", "flags")
_FLAGS = ("reserved", "restarted", "held", "nodes")  # one bit each


def read_history(path: str | Path, *, zone: tzinfo | None = None) -> JobHistory | None:
    r"""Read the output of ``sacct -P`` or ``sacct -p``, plain or compressed by gzip.

    Columns are found by their names in the first line, in any order; unknown ones are ignored. Required are JobID or
    JobIDRaw, Submit, Start, State, a width and a time limit. A job's width is the first above 0 of ReqCPUS, ReqTRES,
    AllocCPUS, NCPUS and AllocTRES; if there is no such column, its number of nodes. Its limit is TimelimitRaw or
    Timelimit.

    A job queues from its submission, or from when it became eligible if that was later: until then a dependency or a
    begin time held it.

    Rules, each counted in `JobHistory.oddities`:

    - job steps: left out;
    - more fields than the first line, as with a ``|`` in a name: the surplus belongs to columns with free text, such as
      JobName and Comment. The line is read if only one way to divide it among these puts times and states into their
      columns, else left out;
    - fewer fields, as after a name with a line break, or an id that does not begin with a number: left out;
    - lines before the one with the names of the columns, such as a greeting: left out;
    - parts of heterogeneous jobs, which wait for each other: left out;
    - jobs listed more than once, as requeued ones by ``sacct -D``: the first record by submission is kept;
    - still pending: left out, since the wait is not known;
    - revoked, since another cluster of a federation started the job: left out;
    - in a reservation: left out, since the job did not queue;
    - requeued according to the column Restarts, with the first record missing: left out;
    - held by its user, an administrator or its own array's limit, according to the column Reason: left out; without the
      column Eligible also jobs that a dependency or a begin time held;
    - ended without ever being eligible: left out;
    - ended before it started: the time until then is a lower bound of its wait. A cancelled job that started in the
      second of its end counts as such, since some versions of Slurm record it so;
    - wait below 0, as after a change of clocks, or unknown: left out;
    - width of 0 or unknown: left out;
    - a walltime that is missing, unlimited or the partition's: counts as 7 days.

    Parameters
    ----------
    path
        The file; `SACCT_COMMAND` makes one.
    zone
        Time zone of local times without offset; by default this computer's. If an hour occurs twice, as clocks are set
        back, the first is assumed. Times in a skipped hour are read as if the clock had not been set forward yet.

    Returns
    -------
    JobHistory or None
        A history with at least one job; None if the first line does not have column names of ``sacct``.

    Raises
    ------
    TraceError
        The file cannot be read, a required column is missing, a time cannot be read, jobs of several clusters are
        mixed, or no job is left.

    Notes
    -----
    Linear in the length of the file: some 2 s for 200 000 jobs, with about 250 bytes of memory each.

    Examples
    --------
    >>> import tempfile
    >>> lines = ["JobID|Submit|Start|End|State|Timelimit|ReqCPUS"]
    >>> lines += ["7|2024-03-01T12:00:00|2024-03-01T12:05:00|2024-03-01T12:06:00|COMPLETED|01:00:00|4"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "jobs.txt")
    ...     _ = file.write_text("\n".join(lines))
    ...     history = read_history(file)
    >>> history.wait_s.tolist(), history.cores.tolist(), history.walltime_s.tolist()
    ([300.0], [4], [3600.0])
    """
    file = Path(path)
    with opened(file, "Check the path; it must be the output of sacct -P.") as stream:
        lines = (line.decode(errors="replace") for line in read_lines(stream, file))
        greeting: list[str] = []
        for header in islice(lines, _MAX_GREETING):
            names = [name.strip().lower() for name in header.removeprefix("\ufeff").split("|")]
            if len(names) > 1 and len(_TELLING.intersection(names)) > 1:
                break
            greeting.append(header)
        else:
            _refuse_what_sacct_wrote_otherwise(file, greeting)
            return None
        records = _Records(file, header.removeprefix("\ufeff"), _indices(file, names, len(greeting) + 1), zone)
        records.oddities["left out: before the names of the columns"] = sum(map(bool, map(str.strip, greeting)))
        for number, line in enumerate(lines, start=len(greeting) + 2):
            records.add(line, number)
    return _history(file, records)


read_history.how_to_make = (  # type: ignore[attr-defined]  # shown by `asa.history`
    f"on a system with Slurm, {SACCT_COMMAND} > jobs.txt"
)


def _refuse_what_sacct_wrote_otherwise(file: Path, lines: list[str]) -> None:
    """Refuse output of sacct that shows that it was called with unsuitable options."""
    first = next((line for line in lines if line.strip()), "")
    words = set(re.findall(r"\w+", first.lower()))
    why = ""
    if first.lstrip().startswith("{"):
        text = "".join(lines).lower()
        is_of_slurm = '"jobs"' in text and any(
            word in text for word in ('"slurm"', '"association"', '"allocation_nodes"')
        )
        why = "is JSON, as of sacct --json" if is_of_slurm else ""
    elif len(_TELLING & words) > 1:
        parted = next((mark for mark in ("\t", ",", ";", ":", "^", "~") if first.count(mark) > 1), "")
        if parted and len(words & _OF_SACCT) < _SURELY:
            return
        what = "tabs" if parted == "\t" else repr(parted)
        why = f"has columns that are parted by {what}, not by '|'" if parted else _CUT_OFF
    elif _RECORD.match(first) and len(_LIKE_TIME.findall(first)) > 1:
        why = "does not begin with the names of its columns, as of sacct -n"
    elif len(words & {state.lower() for state in _KINDS}) == 1 and re.match(r"\d\S*\s", first):
        why = f"{_CUT_OFF}, and does not have their names, as of sacct -n"
    if why:
        raise TraceError(why, where=str(file), hint=f"Make it with: {SACCT_COMMAND}")


def _indices(file: Path, names: list[str], number: int) -> dict[str, int]:
    """Return the indices of columns by name; of equal names the first counts."""
    indices = {name: names.index(name) for name in names}
    needed = {
        "JobID": _JOB,
        "Submit": ("submit",),
        "Start": ("start",),
        "State": ("state",),
        "ReqCPUS": _WIDTHS + _NODES,
        "TimelimitRaw": _LIMIT,
    }
    missing = [column for column, known in needed.items() if not indices.keys() & set(known)]
    if missing:
        raise TraceError(
            f"has no column {' and no column '.join(missing)}",
            where=f"{file}:{number}",
            hint=f"Make it with: {SACCT_COMMAND}",
        )
    return indices


class _Clock:
    """Converts times printed by sacct into seconds since 1970; NaN for none."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._midnights: dict[str, float] = {}

    def __call__(self, text: str) -> float:
        if text.isdecimal():
            if len(text) > _MAX_DIGITS:
                raise ValueError(text)
            return float("nan") if text in _NO_TIME else float(text)
        day = text[:10]
        midnight = self._midnights.get(day)
        if midnight is None:
            if text.strip().lower() in _UNKNOWN:
                return float("nan")
            midnight = self._midnights[day] = self._midnight(day)
        if midnight > _NO_DAY and len(text) == 19 and text[10] in "T " and text[13] == text[16] == ":":
            hours, minutes, seconds = int(text[11:13]), int(text[14:16]), int(text[17:])
            if 0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60:
                return midnight + (3600 * hours + 60 * minutes + seconds)
        return self._slowly(text)

    def _slowly(self, text: str) -> float:
        moment = datetime.fromisoformat(text)
        try:
            return (moment if moment.tzinfo else moment.replace(tzinfo=self._zone)).timestamp()
        except (OverflowError, OSError) as error:  # a year beyond the range of this computer's clock
            raise ValueError(text) from error

    def _midnight(self, day: str) -> float:
        """Return the begin of a day; `_NO_DAY` for an invalid day, or a day without 24 hours."""
        try:
            if day[4:8:3] != "--":
                return _NO_DAY
            midnight = self._slowly(day)
            tomorrow = self._slowly((datetime.fromisoformat(day) + timedelta(days=1)).isoformat())
        except (ValueError, OverflowError):
            return _NO_DAY
        return midnight if tomorrow - midnight == 86400 else _NO_DAY


class _Records:
    """The jobs of a file while it is read: a row of numbers for each."""

    def __init__(self, file: Path, header: str, indices: Mapping[str, int], zone: tzinfo | None) -> None:
        self._file, self._header, self._fields = file, header.rstrip("\r\n"), header.count("|") + 1
        self._clock = _Clock(zone)
        self._limits: dict[str, float] = {}
        self._kinds: dict[str, int] = {}
        self.keys = array("q")  # digests of cluster, number and user; a dictionary of a million jobs would be too large
        self.numbers = array("d")
        self.users: dict[str, int] = {"": -1}
        self.partitions: dict[str, int] = {"": -1}
        self.clusters: set[str] = set()
        self.oddities = {
            "left out: step of a job": 0,
            "left out: not the fields of the first line": 0,
            "read: has a | in its text": 0,
            "left out: part of a heterogeneous job": 0,
        }
        self.has_eligible_column = "eligible" in indices
        self._max_jobs = bound(LOG_JOBS)

        def index(*known: str) -> int:
            return next((indices[name] for name in known if name in indices), -1)

        self._job, self._user, self._limit = index(*_JOB), index(*_USER), index(*_LIMIT)
        self._submit, *self._other_times = (index(name) for name in _TIMES)
        self._state, self._partition, self._cluster = index("state"), index("partition"), index("cluster")
        self._elapsed = -1 if "end" in indices else index("elapsedraw", "elapsed")
        self._reservation, self._restarts, self._reason = index("reservation"), index("restarts"), index("reason")
        self._allocated = index("alloccpus", "alloctres")
        widths = [indices[name] for name in _WIDTHS if name in indices]
        self._nodes = not widths
        self._widths = widths or [indices[name] for name in _NODES if name in indices]
        self._texts = [index for name, index in indices.items() if name in _FREE]
        used = {self._job, self._user, self._limit, self._submit, *self._other_times, self._state, self._partition}
        used |= {self._cluster, self._elapsed, self._reservation, self._restarts, self._reason, self._allocated}
        self._used = sorted((used | {*self._widths}) - {-1})
        self._reasons = _HELD if self.has_eligible_column else _HELD | _KEPT_BACK

    def add(self, line: str, number: int) -> None:
        line = line.rstrip("\r\n")
        if line == self._header:  # repeated if files of several months were concatenated
            return
        fields = line.split("|")
        if len(fields) > self._fields and self._texts:
            fields = self._without_texts(fields)
        if len(fields) != self._fields or not fields[self._job][:1].isdecimal():
            self.oddities["left out: not the fields of the first line"] += bool(line.strip())
            return
        fields.append("")  # for missing columns
        job, user, cluster = fields[self._job], fields[self._user], fields[self._cluster]
        if "." in job:
            self.oddities["left out: step of a job"] += 1
            return
        if "+" in job:
            self.oddities["left out: part of a heterogeneous job"] += 1
            return
        partition, reservation, restarts = fields[self._partition], fields[self._reservation], fields[self._restarts]
        self.clusters.add(cluster)
        self._add_times(fields, number)
        self.numbers.extend(
            (
                _elapsed_s(fields[self._elapsed]),
                self._kind(fields[self._state]),
                self._cores(fields),
                self._limit_s(fields[self._limit]),
                self.users.setdefault(user, len(self.users) - 1),
                self.partitions.setdefault(partition, len(self.partitions) - 1),
                _count(fields[self._allocated]),
                (reservation.lower() not in _UNKNOWN)
                + 2 * (restarts.isdecimal() and restarts.strip("0") != "")
                + 4 * (fields[self._reason] in self._reasons)
                + 8 * self._nodes,
            )
        )
        self.keys.append(hash((cluster, job, user)))
        if len(self.keys) > self._max_jobs:
            raise TooManyError("jobs", self._max_jobs, self._file, instead="ask sacct for a shorter time (-S, -E)")

    def _without_texts(self, fields: list[str]) -> list[str]:
        """Join the fields of a text that contains a |, if there is only one way to do so."""
        more = len(fields) - self._fields
        found: dict[tuple[str, ...], list[str]] = {}
        for index in self._texts:
            whole = [*fields[:index], "|".join(fields[index : index + more + 1]), *fields[index + more + 1 :]]
            if self._is_likely(whole):
                found.setdefault(tuple(whole[used] for used in self._used), whole)
        if len(found) != 1:
            return fields
        self.oddities["read: has a | in its text"] += 1
        return next(iter(found.values()))

    def _is_likely(self, fields: list[str]) -> bool:
        try:
            for index in (self._submit, *self._other_times):
                self._clock(fields[index] if index >= 0 else "")
        except ValueError:
            return False
        state = fields[self._state].split(maxsplit=1)[:1] or [""]
        return fields[self._job][:1].isdecimal() and state[0].rstrip("+").isupper()

    def _add_times(self, fields: list[str], number: int) -> None:
        indices = (self._submit, *self._other_times)
        read: list[float] = []
        try:
            for index in indices:
                # a time equal to the submission, as Eligible often is, is not parsed again
                same = index != self._submit and fields[index] == fields[self._submit]
                read.append(read[0] if same else self._clock(fields[index]))
        except ValueError as error:
            at = len(read)
            raise TraceError(
                f"{_TIMES[at].capitalize()} is {fields[indices[at]]!r}, which is no time that can be read",
                where=f"{self._file}:{number}",
                hint=f"Mend or delete this line, or make the file anew with: {SACCT_COMMAND}",
            ) from error
        self.numbers.extend(read)

    def _cores(self, fields: list[str]) -> int:
        for index in self._widths:
            if cores := _count(fields[index]):
                return cores
        return 0

    def _limit_s(self, text: str) -> float:
        limit_s = self._limits.get(text)
        if limit_s is None:
            known = text.strip().lower() not in _LIMITLESS
            limit_s = self._limits[text] = _duration_s(text) if known else float("nan")
        return limit_s

    def _kind(self, state: str) -> int:
        kind = self._kinds.get(state)
        if kind is None:
            word = state.split(maxsplit=1)[0].rstrip("+").upper() if state.strip() else ""
            kind = self._kinds[state] = _KINDS.get(word, _ENDED)
        return kind


def _duration_s(text: str) -> float:
    """Parse a duration above 0; NaN if it is invalid."""
    try:
        return min(parse_duration(text), _LATEST_S) or float("nan")
    except (InputError, OverflowError, ValueError):  # Python refuses to parse very many digits
        return float("nan")


def _elapsed_s(text: str) -> float:
    """Parse a run time: seconds, or as on a clock; NaN if it is missing."""
    if not text:
        return float("nan")
    if text.isdecimal():
        return min(float(text), _LATEST_S)
    return 0.0 if not text.strip("0:") else _duration_s(text)


def _count(text: str) -> int:
    """Parse a number of processors or nodes, also within a list of resources, or in thousands; 0 if there is none."""
    if len(text) < 10 and text.isdecimal():
        return int(text)
    if match := _CPUS.search(text):
        count = int(match[1])
    elif match := _COUNT.fullmatch(text):
        count = round(float(match[1]) * 1024 ** " KMG".index(match[2] or " "))
    else:
        count = 0
    return count if count <= _MAX_CORES else 0


def _history(file: Path, records: _Records) -> JobHistory:
    if len(records.clusters) > 1:
        raise TraceError(
            f"holds jobs of several clusters ({', '.join(sorted(records.clusters))}), whose queues are not one",
            where=str(file),
            hint="Ask for one cluster at a time: sacct -M NAME ...",
        )
    table = np.asarray(records.numbers).reshape(-1, len(_COLUMNS)).T
    columns = dict(zip(_COLUMNS, table, strict=True))
    submit, eligible, start, end, kind = (columns[name] for name in ("submit", "eligible", "start", "end", "kind"))
    bits = columns["flags"].astype(np.int8)
    flags = {name: bits & (1 << index) > 0 for index, name in enumerate(_FLAGS)}
    run = np.where(np.isnan(end), columns["elapsed"], end - start)
    started = ~np.isnan(start)
    stillborn = started & (kind == _CANCELLED) & (run == 0)
    started &= ~stillborn
    since = np.fmax(submit, eligible)
    left = np.where(np.isnan(start) & (kind != _RAN) & (kind != _RUNNING), end, start)
    wait = left - since
    never_eligible = ~started & (np.isnan(eligible) | (left < since)) & records.has_eligible_column

    keep = np.ones(len(submit), dtype=np.bool_)
    oddities = dict(records.oddities)
    for words, odd in {
        "left out: told again, as sacct -D tells what was requeued": ~_first_records(np.asarray(records.keys), columns),
        "left out: still pending": kind == _PENDING,
        "left out: revoked, another cluster started it": kind == _REVOKED,
        "left out: in a reservation": flags["reserved"],
        "left out: requeued, its first record is not there": flags["restarted"],
        "left out: held by its user, an administrator or its own array's limit": flags["held"],
        "left out: never eligible": never_eligible,
        "left out: submission, or both start and end, unknown": np.isnan(submit) | np.isnan(wait),
        "left out: wait below 0, as if a clock was set": wait < 0,
        "left out: width 0 or unknown": columns["cores"] < 1,
    }.items():
        oddities[words] = int(np.count_nonzero(odd & keep))
        keep &= ~odd
    if not keep.any():
        why = "; ".join(f"{count} {words}" for words, count in oddities.items() if count)
        raise TraceError(
            f"has no job whose wait is known ({why or 'it has no lines but the first'})",
            where=str(file),
            hint=f"Make it with: {SACCT_COMMAND}",
        )
    partition = columns["partition"].astype(np.int32)
    limitless = np.isnan(columns["limit"])
    walltime_s = np.where(limitless, _NO_LIMIT_S, columns["limit"])
    known_run = started & (kind != _RUNNING) & (run >= 0)
    oddities |= {
        words: int(np.count_nonzero(odd & keep))
        for words, odd in {
            "kept back at first: waits from when it was eligible": eligible > submit,
            "no column Eligible: waits from its submission": np.full(len(keep), not records.has_eligible_column),
            "ended before it started: waited at least so long": ~started & ~stillborn,
            "cancelled in the second of its start: never started, waited at least so long": stillborn,
            "no limit of its own: 7 days taken": limitless,
            "no cores told: nodes stand for them": flags["nodes"],
            "ended before its start by the clock: run time unknown": started & (run < 0),
        }.items()
    }
    order = np.flatnonzero(keep)[np.argsort(since[keep], kind="stable")]
    return JobHistory(
        submit_s=since[order],
        wait_s=wait[order],
        cores=columns["cores"][order].astype(np.int64),
        walltime_s=walltime_s[order],
        started=started[order],
        run_s=np.where(known_run, run, -1.0)[order],
        user=columns["user"][order].astype(np.int32),
        partition=partition[order],
        allocated=columns["allocated"][order].astype(np.int64),
        users=list(records.users)[1:],
        partitions=list(records.partitions)[1:],
        system=next(iter(records.clusters), ""),
        source=str(file),
        oddities={words: count for words, count in oddities.items() if count},
    )


def _first_records(keys: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Mark the rows that are the first record of their job.

    Slurm keeps one record for each submission of a job, and a requeue submits the job again. Rows of one submission are
    the same record, printed at different times: the most complete of them counts.
    """
    order = np.lexsort((columns["end"], columns["start"], columns["submit"], keys))
    keys = keys[order]
    first = np.ones(len(keys), dtype=np.bool_)
    first[order[1:]] = keys[1:] != keys[:-1]
    return first
