"""Which records of jobs are still good, so that a quiet look at the queue is one small request.

The light listing tells states only. A record is read again when its state changed; and since eligible times, reasons
and estimates change without it, a job that has not ended is also read again when any job asked for changed (a
dependency among them may have been met), and at an age that doubles from 30 seconds to 10 minutes while nothing
changes. A quiet hour costs eleven such readings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..link import SlurmRecord

__all__ = ["Memory"]

_SOONEST_S = 30.0
_LATEST_S = 600.0
_FINAL = frozenset({
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
})  # fmt: skip


@dataclass(slots=True)
class _Kept:
    record: SlurmRecord
    read_s: float


class Memory:
    """Records of jobs as they were last read."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._changed_s = 0.0

    def stale(self, states: Mapping[str, Collection[str]], now_s: float) -> list[str]:
        """Say which jobs must be read anew, given their states now.

        Parameters
        ----------
        states
            Of every job asked for that the controller knows.
        now_s
            Seconds on any clock, always the same.
        """
        changed = [job_id for job_id, now in states.items() if self._has_changed(job_id, now)]
        if changed:
            self._changed_s = now_s
        return [
            job_id
            for job_id, now in states.items()
            if job_id in changed or (not self._has_ended(now) and (changed or self._is_old(job_id, now_s)))
        ]

    def keep(self, record: SlurmRecord, now_s: float) -> None:
        """Remember a record that was just read."""
        self._kept[record.job_id] = _Kept(record, now_s)

    def forget(self, job_id: str) -> None:
        """Let the next look read it: we changed it, or the controller does not know it any more."""
        self._kept.pop(job_id, None)

    def get(self, job_id: str) -> SlurmRecord | None:
        """Give the record as it was last read."""
        kept = self._kept.get(job_id)
        return kept.record if kept else None

    def _has_changed(self, job_id: str, states: Collection[str]) -> bool:
        kept = self._kept.get(job_id)
        return kept is None or set(kept.record.states) != set(states)

    def _is_old(self, job_id: str, now_s: float) -> bool:
        read_s = self._kept[job_id].read_s
        good_s = min(max(read_s - self._changed_s, _SOONEST_S), _LATEST_S)
        return not 0 <= now_s - read_s < good_s

    @staticmethod
    def _has_ended(states: Collection[str]) -> bool:
        return not _FINAL.isdisjoint(states) and "COMPLETING" not in states
