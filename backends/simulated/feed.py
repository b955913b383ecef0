"""Events of all users' jobs in the simulated queue; each look returns the new ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asa.waits import QueuedJob, QueueEvent

from .engine import Engine
from .table import UNSTARTED

_ENDED, _SUBMITTED, _STARTED = range(3)  # in their order within a second
_NONE = np.empty(0, dtype=np.int64)


class QueueFeed:
    """Events of the background's jobs, each reported once.

    `users`: owners of the jobs in the rows of its table; -1 if not known.

    Notes
    -----
    A look takes time for the events since the last one and for pending and running jobs, not for the length of the log.
    """

    def __init__(self, engine: Engine, system: str, users: NDArray[np.int32] | None = None) -> None:
        self._engine = engine
        self._system = system
        self._users = users
        self._next: int | None = None
        self._waiting = _NONE
        self._running = _NONE

    def news(self, most: int, *, ends: bool = False) -> Sequence[QueueEvent]:
        """Return the events since the last call; see `asa.backend.Backend.queue_events`."""
        engine, table = self._engine, self._engine.table
        now = engine.now
        upto = int(np.searchsorted(table.submit, now, side="right"))
        start = engine.start
        if self._next is None:
            first = max(0, upto - most)
            older = np.arange(first)
            shown = start[older] == UNSTARTED
            if ends:
                shown |= engine.ends(older) > now
            new = np.concatenate([older[shown], np.arange(first, upto)])
        else:
            new = np.arange(self._next, upto)
        self._next = upto
        waited = np.concatenate([self._waiting, new])
        begun = start[waited] != UNSTARTED
        started, self._waiting = waited[begun], waited[~begun]
        rows = [new, started]
        times = [table.submit[new], start[started]]
        kinds = [_SUBMITTED, _STARTED]
        if ends:
            ran = np.concatenate([self._running, started])
            end = engine.ends(ran)
            over = end <= now
            self._running = ran[~over]
            rows.append(ran[over])
            times.append(end[over])
            kinds.append(_ENDED)
        kind = np.repeat(kinds, [len(part) for part in rows])
        row, time = np.concatenate(rows), np.concatenate(times)
        order = np.lexsort((kind, time))
        events = zip(kind[order].tolist(), row[order].tolist(), time[order].tolist(), strict=True)
        return [self._event(*event) for event in events]

    def _event(self, kind: int, row: int, time: int) -> QueueEvent:
        if kind != _SUBMITTED:
            return QueueEvent("started" if kind == _STARTED else "ended", row, float(time))
        table = self._engine.table
        user = "" if self._users is None or self._users[row] < 0 else f"u{self._users[row]}"
        job = QueuedJob(float(time), int(table.cores[row]), float(table.request[row]), user, self._system)
        return QueueEvent("submitted", row, float(time), job)
