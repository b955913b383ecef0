"""A machine on which the log's jobs wait as recorded, and the user's as long as the most similar job of the log.

A replay schedules anew, and what it leaves out (users' limits, nodes that were down, reservations) makes the load lower
than it was. Here no wait is computed; but no job delays another, either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError

from .cluster import Cluster, Load
from .cores.general import GeneralCore
from .engine import Engine
from .policies import QueueView
from .site import SimulatedSite
from .swf import Trace
from .table import JobTable

_ROOM = 64  # times the machine: the log's jobs overlap where its clocks or its rows are wrong, and ours come on top
_LIKE = 2.0  # a job is like another if neither its width nor its time is more than so many times the other's
_FEWEST = 30  # jobs that must be like one for it to have a wait


class AsRecorded:
    """A scheduler that starts each job when the log says."""

    def __init__(self, trace: Trace) -> None:
        table = trace.table
        self._due = table.submit + np.maximum(trace.wait_s, 0)
        self._submit, self._wait = table.submit, trace.wait_s
        self._cores, self._request = table.cores, table.request
        self._like: dict[tuple[int, int], NDArray[np.intp]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> AsRecorded:
        """Give itself: it remembers nothing of a world."""
        return self

    def schedule(self, view: QueueView) -> None:
        """Start what is due."""
        for job in view.queue.tolist():
            due = self._due_of(view, job)
            if due <= view.now:
                view.start(job)
            else:
                view.wake_at(due)

    def _due_of(self, view: QueueView, job: int) -> int:
        if job < len(self._due):
            return int(self._due[job])
        since = int(view.submit[job])
        return since + self.wait_s(int(view.demand[job][0]), int(view.request[job]), since)

    def wait_s(self, cores: int, request_s: int, at_s: int) -> int:
        """Tell how long the job waited that was most like one, of those submitted nearest in time."""
        if (cores, request_s) not in self._like:
            wide, long = np.abs(np.log(self._cores / cores)), np.abs(np.log(self._request / request_s))
            self._like[cores, request_s] = np.flatnonzero((np.maximum(wide, long) <= np.log(_LIKE)) & (self._wait >= 0))
        like = self._like[cores, request_s]
        if len(like) < _FEWEST:
            text = f"only {len(like)} of its jobs are like one of {cores} cores and {request_s} s"
            raise InputError(text, where="its recorded waits", hint="Give another width or time.")
        at = int(np.searchsorted(self._submit[like], at_s))
        around = like[max(at - 1, 0) : at + 1]
        return int(self._wait[around[np.argmin(np.abs(self._submit[around] - at_s))]])


class RecordedSite(SimulatedSite):
    """A log's machine, simulated: each job of the log starts when it really did.

    Parameters
    ----------
    system
        There are no systems by name.
    trace
        The log.
    settings
        Those of `SimulatedSite`, except a scheduler.
    """

    def __init__(self, system: str | None = None, *, trace: str | Path | None = None, **settings: Any) -> None:
        if system is not None or trace is None:
            raise InputError("is a log's machine", where="as-recorded", hint="Give the log, as in --trace CTC.swf.gz.")
        super().__init__(trace=trace, **settings)
        if self.scheduler != "easy" or self.scheduler_settings:
            raise InputError("schedules nothing", where="as-recorded", hint="Leave the scheduler out.")

    def _engine(self, table: JobTable) -> Engine:
        assert self.trace is not None
        cores = _ROOM * self.machine.cores
        load = Load(table, Cluster({"cores": cores}), users=self.trace.users)
        core = GeneralCore(load, AsRecorded(self.trace), now=int(table.submit[0]))
        return Engine(cores, table, core=core)
