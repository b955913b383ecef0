"""Events of the jobs of other runs in this machine's queue; each look returns the new ones."""

from __future__ import annotations

import getpass
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Literal

from asa.waits import QueuedJob, QueueEvent

from .spool import JobOrder, Spool, SpooledStanding

_What = Literal["submitted", "started", "left", "ended"]


class LocalQueueFeed:
    """Events of jobs, each reported once. A job is reported once it is eligible, as queued since then."""

    def __init__(self, system: str) -> None:
        self._system = system
        self._reported: dict[int, set[str]] = {}  # for jobs that have not ended
        self._over: set[int] = set()
        self._is_first = True

    def news(self, spool: Spool, own: Collection[int], most: int, *, ends: bool) -> Sequence[QueueEvent]:
        """Report the events since the last look; see `asa.backend.Backend.queue_events`."""
        ended = [number for number in spool.ended_numbers() if number not in self._over and number not in own]
        if self._is_first:
            self._over |= set(ended[: max(len(ended) - most, 0)])
            self._is_first = False
        events = []
        for number in sorted({*ended, *spool.numbers()} - self._over - set(own)):
            with suppress(ValueError):
                order, standing = spool.order(number), spool.standing(number)
                if order is not None and standing is not None and not order.is_beside:
                    events += list(self._of(number, order, standing, ends=ends))
        return sorted(events, key=lambda event: event.time_s)

    def _of(self, number: int, order: JobOrder, standing: SpooledStanding, *, ends: bool) -> Iterator[QueueEvent]:
        reported = self._reported.setdefault(number, set())
        times: list[tuple[_What, float | None]] = []
        if standing.eligible_s is not None:
            left_s = standing.end_s if standing.start_s is None else None
            ended_s = standing.end_s if ends and standing.start_s is not None else None
            times = [
                ("submitted", standing.eligible_s),
                ("started", standing.start_s),
                ("left", left_s),
                ("ended", ended_s),
            ]
        for what, time_s in times:
            if time_s is not None and what not in reported:
                reported.add(what)
                yield QueueEvent(what, str(number), time_s, self._job(order, time_s) if what == "submitted" else None)
        if standing.is_final:
            self._over.add(number)
            del self._reported[number]

    def _job(self, order: JobOrder, since_s: float) -> QueuedJob:
        return QueuedJob(since_s, order.cores, order.walltime_s, getpass.getuser(), self._system)
