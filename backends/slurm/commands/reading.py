"""Reads the output of Slurm's commands, tolerating messages around it, and any text within a job's name."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from sys import intern
from typing import Final

from asa.errors import InputError
from asa.units import parse_duration

from ..link import LAST_S, SlurmLimits, SlurmNode, SlurmPartition, SlurmRecord, count_gpus, read_number, whole
from ..states import ENDED, WAITING, base_of, is_over

ASSOCIATION_LIMITS: Final = (
    "Account", "User", "Partition", "QOS", "MaxJobs", "MaxSubmitJobs", "MaxTRES", "MaxWall", "GrpJobs",
    "GrpSubmitJobs", "GrpTRES", "GrpTRESMins", "GrpWall",
)  # fmt: skip
QUALITY_LIMITS: Final = (
    "Name", "MaxJobsPerUser", "MaxSubmitJobsPerUser", "MaxTRESPerUser", "MaxTRES", "MaxWall", "GrpJobs",
    "GrpSubmitJobs", "GrpTRES",
)  # fmt: skip
_SHORT_LIMITS: Final = {
    "MaxSubmit": "MaxSubmitJobs", "GrpSubmit": "GrpSubmitJobs", "MaxJobsPU": "MaxJobsPerUser",
    "MaxSubmitPU": "MaxSubmitJobsPerUser", "MaxSubmitJobsPU": "MaxSubmitJobsPerUser", "MaxTRESPU": "MaxTRESPerUser",
}  # fmt: skip
_ENDED: Final = ENDED | {"COMPLETING"}
_REQUEUED: Final = frozenset({"REQUEUED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})
_NOTHING: Final = frozenset({"", "(null)", "N/A", "None", "NONE", "Unknown"})
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_PIECE: Final = 1 << 20  # in characters
_COUNT = re.compile(r"(\d{1,18}(?:\.\d+)?)([KMG]?)")
_NUMBER = re.compile(r"(?<!\d)(\d++)\Z")
_BEGUN = re.compile(r"\s*\d+(?:@[0-9a-f]*)?")
_START = re.compile(r"\bto start at (\S+)")
_JOB_ID = re.compile(r"(?m)^(\d+)(?:;\S*)?[ \t\r]*\n")  # a line without end may be incomplete
_SETTING = re.compile(r"(?m)^(\w[\w\[\]]*+)[ \t]*+=[ \t]*+(.*)$")
_FIELD = re.compile(r"(?:^|\s)([\w/:]+)=(\S*)")


class QueueFormat:
    """A format for squeue's ``-O``, new for each call, and a reader of its output.

    Names and comments may contain any text, including line breaks. So a job's record has three parts, separated by a
    mark that cannot be known in advance: its number; the fields without free text, followed by the name; and the
    comment. With a width of 0 a field is neither cut nor padded.

    Examples
    --------
    >>> QueueFormat(mark="@").option[:40]
    'JobID:0@,JobArrayID:0|,UserName:0|,State'
    """

    _FIELDS = (
        "JobArrayID", "UserName", "State", "Reason", "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime",
        "TimeLimit", "NumCPUs", "NumNodes", "NodeList", "Partition", "exit_code", "RestartCnt", "Dependency",
    )  # fmt: skip

    def __init__(self, mark: str = "") -> None:
        self._mark = mark or _new_mark()
        fixed = ",".join(f"{name}:0|" for name in self._FIELDS)
        self.option = f"JobID:0{self._mark},{fixed},Name:0{self._mark},Comment:0{self._mark}"

    def is_cut(self, printed: str) -> bool:
        """Whether the output of squeue ends within a job."""
        return _is_cut(printed, self._mark, 3)

    def read(self, printed: str) -> Iterator[SlurmRecord]:
        """Read the output of squeue; unreadable records are left out."""
        for job_id, line, comment in _records(printed, self._mark, 3):
            values = line.split("|", len(self._FIELDS))
            if (number := _NUMBER.search(job_id)) is None or len(values) <= len(self._FIELDS):
                continue
            fields = dict(zip(self._FIELDS, values, strict=False))
            record = _queued(number[1], fields, name=values[-1], comment=_text(comment))
            if record is not None:
                yield record


def _queued(job_id: str, fields: Mapping[str, str], *, name: str, comment: str) -> SlurmRecord | None:
    submit_s = _time_s(fields["SubmitTime"])
    if submit_s is None:
        return None
    start_s, end_s = _time_s(fields["StartTime"]), _time_s(fields["EndTime"])
    code, signal_ = _exit(fields["exit_code"], "")
    states = base_of(
        [fields["State"].upper()],
        ran=bool(_text(fields["NodeList"])),
        has_ended=is_over(start_s, end_s, _limit_s(fields["TimeLimit"]), has_failed=bool(code or signal_)),
    )
    state = states[0]
    expected_start_s = start_s if state in WAITING else None
    # for a job that was cancelled while pending, Slurm shows its end as its start
    never = state in WAITING or (state in _ENDED and start_s == end_s and not _text(fields["NodeList"]))
    ended = state in _ENDED and state != "COMPLETING"
    exit_code, signal = _exit(fields["exit_code"], state) if ended and not never else (None, None)
    return SlurmRecord(
        job_id=job_id,
        name=name,
        user=intern(fields["UserName"]),  # the same text for very many jobs
        states=states,
        submit_s=submit_s,
        reason=intern(_text(fields["Reason"])),
        eligible_s=_time_s(fields["EligibleTime"]),
        accrue_s=_time_s(fields["AccrueTime"]),
        start_s=None if never else start_s,
        end_s=end_s if state in _ENDED else None,
        expected_start_s=expected_start_s,
        limit_s=_limit_s(fields["TimeLimit"]),
        cores=_count(fields["NumCPUs"]) or 1,
        nodes=_count(fields["NumNodes"]),
        partition=intern(fields["Partition"]),
        exit_code=exit_code,
        signal=signal,
        restarts=_count(fields["RestartCnt"]),
        dependency=_text(fields["Dependency"]),
        comment=comment,
        node_list="" if never else _text(fields["NodeList"]),
        **read_number(fields["JobArrayID"], waits=not ended),
    )


class RecordFormat:
    """A format for sacct's ``-o``, new for each call, and a reader of its output.

    Like `QueueFormat`, with the mark after each field. It has no ``Reason`` and no ``Restarts``, which older versions
    lack; requeues are counted from a job's records.
    """

    _FIELDS = (
        "JobIDRaw", "JobID", "User", "State", "Submit", "Eligible", "Start", "End", "TimelimitRaw", "ReqCPUS",
        "AllocCPUS", "NNodes", "NodeList", "Partition", "ExitCode", "JobName", "Comment",
    )  # fmt: skip

    def __init__(self, mark: str = "") -> None:
        self._mark = mark or _new_mark()
        self.options = ("-n", "-p", f"--delimiter={self._mark}", "-o", ",".join(self._FIELDS))

    def is_cut(self, printed: str) -> bool:
        """Whether the output of sacct ends within a job."""
        return _is_cut(printed, self._mark, len(self._FIELDS))

    def read(self, printed: str) -> list[SlurmRecord]:
        """Read the output of sacct: the latest record of each number and name, in order of submission."""
        latest: dict[tuple[str, str], SlurmRecord] = {}
        put_back: dict[tuple[str, str], int] = {}
        for record in sorted(self._all(printed), key=lambda record: record.submit_s):
            which = record.job_id, record.name
            if which in latest:
                put_back[which] = put_back.get(which, 0) + (latest[which].states[0] in _REQUEUED)
            latest[which] = record
        return [replace(record, restarts=put_back.get(which, 0)) for which, record in latest.items()]

    def _all(self, printed: str) -> Iterator[SlurmRecord]:
        for values in _records(printed, self._mark, len(self._FIELDS)):
            fields = dict(zip(self._FIELDS, values, strict=True))
            # preceded by the end of the previous line
            if (number := _NUMBER.search(fields["JobIDRaw"])) is not None:
                record = _recorded(number[1], fields)
                if record is not None:
                    yield record


def _is_cut(printed: str, mark: str, count: int) -> bool:
    """Whether the fields, `count` for each job, end within a job; a login shell's output may follow the last."""
    marks = printed.count(mark)
    return marks % count != 0 or (marks > 0 and bool(_BEGUN.fullmatch(printed, printed.rindex(mark) + len(mark))))


def _records(printed: str, mark: str, count: int) -> Iterator[tuple[str, ...]]:
    """Yield the fields of each job, `count` of them, each ended by the mark; very many jobs are never all in memory."""
    at, size = 0, _PIECE
    while at < len(printed):
        parts = printed[at : at + size].split(mark)
        whole = (len(parts) - 1) // count * count
        if not whole and at + size >= len(printed):
            return
        yield from zip(*(parts[index:whole:count] for index in range(count)), strict=True)
        at += sum(map(len, parts[:whole])) + whole * len(mark)
        size = _PIECE if whole else 4 * size


def _recorded(job_id: str, fields: Mapping[str, str]) -> SlurmRecord | None:
    submit_s = _time_s(fields["Submit"])
    if submit_s is None:
        return None
    word = fields["State"].upper().split(maxsplit=1)[0].rstrip("+") if fields["State"].strip() else "UNKNOWN"
    has_run = _count(fields["AllocCPUS"]) > 0
    start_s, end_s = _time_s(fields["Start"]), _time_s(fields["End"])
    states = base_of([word], ran=has_run, has_ended=end_s is not None)  # sacct has no end for jobs that run
    state = states[0]
    exit_code, signal = _exit(fields["ExitCode"], state) if has_run and end_s is not None else (None, None)
    limit_min = whole(fields["TimelimitRaw"])
    return SlurmRecord(
        job_id=job_id,
        name=fields["JobName"],
        user=fields["User"],
        states=states,
        submit_s=submit_s,
        eligible_s=_time_s(fields["Eligible"]),
        start_s=start_s if has_run else None,
        end_s=end_s,
        limit_s=None if limit_min is None else limit_min * 60.0,
        cores=_count(fields["AllocCPUS"]) or _count(fields["ReqCPUS"]) or 1,
        nodes=_count(fields["NNodes"]),
        partition=fields["Partition"],
        exit_code=exit_code,
        signal=signal,
        comment=_text(fields["Comment"]),
        node_list="" if fields["NodeList"] == "None assigned" else _text(fields["NodeList"]),
        **read_number(fields["JobID"], waits=end_s is None),
    )


def read_job_id(printed: str) -> str | None:
    r"""Parse the output of ``sbatch --parsable``, also after messages of a login shell; None if it is not one number.

    Examples
    --------
    >>> read_job_id("Welcome!\n4711;cluster\n"), read_job_id("47"), read_job_id("4711\n1200\n")
    ('4711', None, None)
    """
    numbers = set(_JOB_ID.findall(printed))
    return numbers.pop() if len(numbers) == 1 else None


def read_start_s(printed: str) -> float | None:
    r"""Parse the output of ``sbatch --test-only``, in UTC or in seconds since 1970; None if it has no time.

    Examples
    --------
    >>> [read_start_s(f"sbatch: Job 7 to start at {time} using 2 processors") for time in ("60", "1970-01-01T00:01:00")]
    [60.0, 60.0]
    >>> read_start_s("allocation failure: Requested node configuration is not available")
    """
    if (match := _START.search(printed)) is None:
        return None
    if match[1].isdecimal():
        return _time_s(match[1])
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
    return None


def read_limits(printed: str) -> list[SlurmLimits]:
    """Parse the output of sacctmgr on associations or qualities of service, by its headings."""
    lines = [line.split("|") for line in printed.splitlines() if "|" in line]
    headings = [_SHORT_LIMITS.get(name, name) for name in lines[0]] if lines else []
    limits = []
    for line in lines[1:]:
        fields = {name: value for name, value in zip(headings, line, strict=False) if value}
        limits.append(
            SlurmLimits(
                account=fields.pop("Account", "").strip(),
                user=fields.pop("User", ""),
                partition=fields.pop("Partition", ""),
                quality=fields.pop("Name", ""),
                qualities=tuple(filter(None, fields.pop("QOS", "").split(","))),
                limits=fields,
            )
        )
    return limits


def read_configuration(printed: str) -> dict[str, str]:
    r"""Parse the output of ``scontrol show config``; a value that is not set is empty.

    Examples
    --------
    >>> read_configuration("MinJobAge    = 300 sec\nPrologFlags  = (null)")
    {'MinJobAge': '300 sec', 'PrologFlags': ''}
    """
    settings: dict[str, str] = {}
    for name, value in _SETTING.findall(printed):
        settings.setdefault(name, _text(value.rstrip()))
    return settings


def read_partitions(printed: str) -> list[SlurmPartition]:
    """Parse the output of ``scontrol show partition -o``."""
    return [
        SlurmPartition(
            name=fields["PartitionName"],
            is_default=fields.get("Default") == "YES",
            is_up=fields.get("State", "UP") == "UP",
            max_walltime_s=_limit_s(fields.get("MaxTime", "")),
            max_nodes=_count(fields.get("MaxNodes", "")) or None,
            nodes=_count(fields.get("TotalNodes", "")),
            cores=_count(fields.get("TotalCPUs", "")),
            accounts=tuple(name for name in fields.get("AllowAccounts", "ALL").split(",") if name not in {"", "ALL"}),
            barred_accounts=tuple(name for name in fields.get("DenyAccounts", "").split(",") if name),
            priority_factor=_count(fields.get("PriorityJobFactor", "1")),
            priority_tier=_count(fields.get("PriorityTier", "1")),
            # before 26.05, and from 26.05 on
            is_exclusive=fields.get("OverSubscribe") == "EXCLUSIVE" or fields.get("Exclusive") == "NODE",
            quality=fields.get("QoS", "").replace("N/A", ""),
        )
        for fields in _lines("PartitionName", printed)
    ]


def read_nodes(printed: str) -> list[SlurmNode]:
    """Parse the output of ``scontrol show node -o``."""
    return [
        SlurmNode(
            name=fields["NodeName"],
            cores=_count(fields.get("CPUTot", "")),
            memory_bytes=_count(fields.get("RealMemory", "")) << 20,
            states=tuple(re.findall("[A-Z_]+", fields.get("State", "").upper())),
            partitions=tuple(name for name in fields.get("Partitions", "").split(",") if name),
            gpus=count_gpus(fields.get("Gres", "")),
            traits=f"{fields.get('AvailableFeatures', '')} {fields.get('Gres', '')}",
        )
        for fields in _lines("NodeName", printed)
    ]


def _lines(first: str, printed: str) -> Iterator[dict[str, str]]:
    """Parse lines of ``Name=value`` that begin with a given name; free text comes last, so the first value counts."""
    for line in printed.splitlines():
        if line.startswith(f"{first}="):
            yield dict(reversed(_FIELD.findall(line)))


def _new_mark() -> str:
    return f"@{secrets.token_hex(8)}@"  # a digit would be taken as a part of the width before it


def _text(text: str) -> str:
    return "" if text in _NOTHING else text


def _time_s(text: str) -> float | None:
    moment_s = whole(text)
    return float(moment_s) if moment_s and moment_s < LAST_S else None


def _limit_s(text: str) -> float | None:
    try:
        return parse_duration(text) or None
    except InputError:  # such as UNLIMITED, NONE, NOT_SET, Partition_Limit
        return None


def _count(text: str) -> int:
    """Parse a number, or the minimum of a range; Slurm may write thousands with a letter."""
    match = _COUNT.match(text)
    return round(float(match[1]) * _UNITS[match[2]]) if match else 0


def _exit(text: str, state: str) -> tuple[int | None, int | None]:
    """Parse how a script ended: ``code:signal``, or a wait status, as 22.05 and older write it.

    Accounting has 0 for a job that reached its walltime, so 0 counts only if the job completed.
    """
    first, colon, second = text.partition(":")
    code, signal = whole(first), whole(second or "0")
    if code is None or signal is None or (colon and not second):
        return None, None
    status, killed_by = (code, signal) if colon else (code >> 8 & 0xFF, code & 0x7F)
    if killed_by:
        return None, killed_by
    return (status if status or state == "COMPLETED" else None), None
