"""A machine on which a log's jobs wait as recorded, and the user's jobs as long as the most similar job of the log.

A replay schedules the log again, and its load is too low, because it lacks users' limits, failed nodes and
reservations. Here waits are not computed but read; so no job delays another.
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

# times the size of the machine: the log's jobs overlap where its clocks or rows are wrong, and the user's are added
_ROOM = 64
_LIKE = 2.0  # upper bound of the ratio of the widths, and of the times, of two similar jobs
_FEWEST = 30  # lower bound of the number of similar jobs for an estimate of the wait


class AsRecorded:
    """A scheduler that starts each job of the log at its recorded time."""

    def __init__(self, trace: Trace) -> None:
        table = trace.table
        self._due = table.submit + np.maximum(trace.wait_s, 0)
        self._submit, self._wait = table.submit, trace.wait_s
        self._cores, self._request = table.cores, table.request
        self._like: dict[tuple[int, int], NDArray[np.intp]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> AsRecorded:
        """Return itself, as it keeps no state of a world."""
        return self

    def schedule(self, view: QueueView) -> None:
        """Start the jobs that are due."""
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
        """Return the wait of the most similar job among those submitted at about the same time."""
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
    """The simulated machine of a log: each job of the log starts at its recorded time.

    Parameters
    ----------
    system
        Not supported: there are no systems by name.
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
