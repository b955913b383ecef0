"""Events of all users' jobs that Slurm shows; each look returns the new ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from asa.backend import JobState, JobStatus
from asa.waits import QueuedJob, QueueEvent

from .link import SlurmRecord
from .states import status_of

_NO_LIMIT_S = 7 * 86400.0  # counts as this walltime, as in histories


class _Phase(IntEnum):
    """The part of a job's life that was reported."""

    UNREPORTED, WAITS, RUNS, OVER = range(4)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A job at the last look: its attempt, what was reported, and its key."""

    attempt: tuple[float, int]
    phase: _Phase
    key: str
    submissions: int


class SlurmQueueFeed:
    """Events of the jobs of all users, each reported once.

    A job is reported once it is eligible, as queued since then. Records for several elements of an array are not
    reported. A requeued job is reported as submitted again, under another key.
    """

    def __init__(self, system: str) -> None:
        self._system = system
        self._seen: dict[str, _Seen] | None = None

    def news(
        self, records: Iterable[SlurmRecord], own: Collection[str], now_s: float, most: int, *, ends: bool
    ) -> Sequence[QueueEvent]:
        """Report what happened since the last look; see `asa.backend.Backend.queue_events`.

        `most`: upper bound of the jobs reported at the first look that are no longer pending.
        """
        jobs = {
            record.job_id: (record, status)
            for record in records
            if record.job_id not in own and record.is_one and (status := status_of(record, now_s)) is not None
        }
        first, was = self._seen is None, self._seen or {}
        seen: dict[str, _Seen] = {}
        events: list[tuple[str, list[QueueEvent]]] = []
        for job_id, (record, status) in jobs.items():
            seen[job_id], of_job = self._compare(was.get(job_id), record, status, now_s, ends=ends)
            events.append((job_id, of_job))
        events += [(job_id, list(_gone(was[job_id], now_s, ends=ends))) for job_id in was.keys() - jobs.keys()]
        self._seen = seen
        if first:
            events = _latest(events, seen, most, ends=ends)
        return sorted((event for _, of_job in events for event in of_job), key=lambda event: event.time_s)

    def _compare(
        self, was: _Seen | None, record: SlurmRecord, status: JobStatus, now_s: float, *, ends: bool
    ) -> tuple[_Seen, list[QueueEvent]]:
        """Yield the events of a job since the last look."""
        attempt = (status.submit_s, status.restarts)
        events: list[QueueEvent] = []
        if was is not None and was.attempt != attempt:
            events += _gone(was, status.submit_s, ends=ends)
            was = replace(was, attempt=attempt, phase=_Phase.UNREPORTED)
        now = was or _Seen(attempt, _Phase.UNREPORTED, record.job_id, 0)
        eligible_s = status.eligible_s
        if now.phase is _Phase.UNREPORTED and eligible_s is not None:
            key = f"{record.job_id}+{now.submissions}" if now.submissions else record.job_id
            now = replace(now, phase=_Phase.WAITS, key=key, submissions=now.submissions + 1)
            events.append(QueueEvent("submitted", key, eligible_s, self._queued(record, eligible_s)))
        if now.phase is _Phase.WAITS:
            if status.start_s is not None:
                now = replace(now, phase=_Phase.RUNS)
                events.append(QueueEvent("started", now.key, status.start_s))
            elif status.state.is_final or (eligible_s is None and status.state is JobState.PENDING):
                events += _gone(now, now_s if status.end_s is None else status.end_s, ends=ends)
                now = replace(now, phase=_Phase.OVER if status.state.is_final else _Phase.UNREPORTED)
        if now.phase is _Phase.RUNS and status.end_s is not None:
            events += _gone(now, status.end_s, ends=ends)
            now = replace(now, phase=_Phase.OVER)
        return now, events

    def _queued(self, record: SlurmRecord, eligible_s: float) -> QueuedJob:
        return QueuedJob(
            submit_s=eligible_s,
            cores=max(record.cores, 1),
            walltime_s=record.limit_s or _NO_LIMIT_S,
            user=record.user,
            system=self._system,
            partition=record.partition.partition(",")[0],
        )


def _gone(job: _Seen, time_s: float, *, ends: bool) -> Iterator[QueueEvent]:
    """Yield the events of a job that no longer waits or runs."""
    if job.phase is _Phase.WAITS:
        yield QueueEvent("left", job.key, time_s)
    elif job.phase is _Phase.RUNS and ends:
        yield QueueEvent("ended", job.key, time_s)


def _latest(
    events: list[tuple[str, list[QueueEvent]]], seen: dict[str, _Seen], most: int, *, ends: bool
) -> list[tuple[str, list[QueueEvent]]]:
    """Keep the past jobs that wait, those that run if their ends will be reported, and the latest others."""
    lasting = {_Phase.WAITS, _Phase.RUNS} if ends else {_Phase.WAITS}
    past = sorted(
        (of_job[0].time_s, job_id) for job_id, of_job in events if of_job and seen[job_id].phase not in lasting
    )
    kept = {job_id for _, job_id in past[max(len(past) - most, 0) :]}
    return [(job_id, of_job) for job_id, of_job in events if seen[job_id].phase in lasting or job_id in kept]
