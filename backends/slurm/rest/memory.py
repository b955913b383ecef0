"""Keeps records of jobs while they are valid, so that a look at an unchanged queue is one small request.

The small listing has only states. A record is read again when the job's state has changed, or that of a job on which it
depends. Eligible times, reasons and estimates change independently of the state. So a pending job's record is also read
again after an interval that doubles from 30 up to 90 seconds while nothing about it changes; this reveals a hold. A
running job's record is read again after 10 minutes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ..link import SlurmRecord

_SOONEST_S = 30.0
_LATEST_S = 90.0
_RUNNING_S = 600.0
_NUMBER = re.compile(r"\d+")
_FINAL = frozenset({
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
})  # fmt: skip


@dataclass(slots=True)
class _Kept:
    record: SlurmRecord
    read_s: float
    changed_s: float


class RecordMemory:
    """Records of jobs as they were last read. All times are seconds on one clock."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def old(self, job_ids: Collection[str], now_s: float) -> list[str]:
        """Return the jobs that must be read again whatever their states are."""
        return [job_id for job_id in job_ids if self._is_old(job_id, now_s)]

    def stale(self, states: Mapping[str, Collection[str]], now_s: float) -> list[str]:
        """Return the jobs that must be read again, given their present states."""
        changed = {job_id for job_id, now in states.items() if self._has_changed(job_id, now)}
        return [job_id for job_id in states if job_id in changed or self._is_due(job_id, changed, now_s)]

    def keep(self, record: SlurmRecord, now_s: float) -> None:
        """Remember a record that was just read."""
        before = self._kept.get(record.job_id)
        same = before is not None and _essence(before.record) == _essence(record)
        self._kept[record.job_id] = _Kept(record, now_s, before.changed_s if before and same else now_s)

    def forget(self, job_id: str) -> None:
        """Have the next look read a job: this client changed it, or the controller does not know it any more."""
        self._kept.pop(job_id, None)

    def get(self, job_id: str) -> SlurmRecord | None:
        """Return the record as it was last read."""
        kept = self._kept.get(job_id)
        return kept.record if kept else None

    def _has_changed(self, job_id: str, states: Collection[str]) -> bool:
        kept = self._kept.get(job_id)
        return kept is None or set(kept.record.states) != set(states)

    def _is_due(self, job_id: str, changed: AbstractSet[str], now_s: float) -> bool:
        needed = _NUMBER.findall(self._kept[job_id].record.dependency)
        return self._is_old(job_id, now_s) or not changed.isdisjoint(needed)

    def _is_old(self, job_id: str, now_s: float) -> bool:
        if (kept := self._kept.get(job_id)) is None:
            return True
        if _has_ended(kept.record.states):
            return False
        good_s = min(max(kept.read_s - kept.changed_s, _SOONEST_S), _LATEST_S)
        if "PENDING" not in kept.record.states:
            good_s = _RUNNING_S
        return not 0 <= now_s - kept.read_s < good_s


def _has_ended(states: Collection[str]) -> bool:
    return not _FINAL.isdisjoint(states) and "COMPLETING" not in states


def _essence(record: SlurmRecord) -> SlurmRecord:
    """Leave out fields that change all the time."""
    return replace(record, expected_start_s=None)
