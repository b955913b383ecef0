"""Writes accounting's jobs as ``sacct -P`` would, since there is one reader for histories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from .reading import accounted, nested, number, states_of, text, whole

_COLUMNS = (
    "Cluster", "JobID", "User", "Partition", "Submit", "Eligible", "Start", "End", "State", "TimelimitRaw", "ReqCPUS",
    "Reservation", "Reason",
)  # fmt: skip
_UNKNOWN = "Unknown"
_SEPARATORS = str.maketrans({"|": "?", "\n": " ", "\r": " "})


_Line = tuple[tuple[str, str, str], str]


def as_sacct(jobs: Iterable[Mapping[str, Any]]) -> str:
    """Return jobs in the format of `asa.backends.slurm.accounting.read_history`; duplicates are written once.

    The first line has the names of the columns; a line for each job follows. Times are seconds since 1970.
    """
    return sacct_text(line for job in jobs if (line := sacct_line(job)) is not None)


def sacct_line(job: Mapping[str, Any]) -> _Line | None:
    """Return the line of a job, with its identity; None if it is incomplete."""
    if not (fields := _fields(job)):
        return None
    line = "|".join(fields[name].translate(_SEPARATORS) for name in _COLUMNS)
    return (fields["Cluster"], fields["JobID"], fields["Submit"]), line


def sacct_text(lines: Iterable[_Line]) -> str:
    """Return lines of jobs below the names of the columns."""
    return "\n".join(("|".join(_COLUMNS), *dict(lines).values(), ""))


def _fields(job: Mapping[str, Any]) -> dict[str, str] | None:
    record = accounted(job)
    if record is None:
        return None
    reservation = nested(job, "reservation", "name")
    return {
        "Cluster": text(job.get("cluster")),
        "JobID": _job_id(job, record.job_id),
        "User": record.user,
        "Partition": record.partition,
        "Submit": _seconds(record.submit_s),
        "Eligible": _seconds(record.eligible_s),
        "Start": _seconds(record.start_s),
        "End": _seconds(record.end_s),
        "State": (states_of(nested(job, "state", "current")) or ("UNKNOWN",))[0],
        "TimelimitRaw": _limit(nested(job, "time", "limit")),
        "ReqCPUS": str(record.cores),
        "Reservation": reservation if isinstance(reservation, str) else "",  # 22.05 reports 0
        "Reason": text(nested(job, "state", "reason")),
    }


def _job_id(job: Mapping[str, Any], plain: str) -> str:
    """Return a job's id as sacct prints it: an element by its array, a part of a heterogeneous job by its head."""
    for kind, which, mark in (("array", "task_id", "_"), ("het", "job_offset", "+")):
        head, part = whole(nested(job, kind, "job_id")), whole(nested(job, kind, which))
        if head and part is not None and part < 2**31:
            return f"{head}{mark}{part}"
    return plain


def _seconds(moment_s: float | None) -> str:
    return str(int(moment_s)) if moment_s else _UNKNOWN


def _limit(value: Any) -> str:
    minutes = number(value)
    if minutes is None or not math.isfinite(minutes) or minutes >= 2**32 - 2:
        return "UNLIMITED" if minutes is not None else "Partition_Limit"
    return str(int(minutes))
