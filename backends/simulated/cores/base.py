"""The interface between the engine and a machine with a queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..table import NEVER, JobTable


class Fate(IntEnum):
    """Outcome of a job."""

    STARTED = 0
    FAILED = 1
    """Resources of the job failed."""
    PREEMPTED = 2


class News(NamedTuple):
    """A change of a client's job."""

    job: int
    fate: Fate
    again: bool = False  # whether the job is back in the queue


class Core(Protocol):
    """The part of the engine for machine, queue and clock, without dependencies.

    Jobs are numbered: the background's by their rows, the client's from ``len(table)`` on. `ended` and `news` are the
    client's jobs that changed in the last call: those whose payloads ended, and all other changes; the reader empties
    them. An end that became invalid, because the job was cancelled or its end changed, is reported nevertheless: the
    client knows which ends are valid.
    """

    now: int
    capacity: int
    table: JobTable
    ended: list[int]
    news: list[News]

    @property
    def start(self) -> NDArray[np.int64]:
        """Start of each background job, -1 while it waits."""
        ...

    @property
    def free(self) -> int:
        """Idle cores."""
        ...

    @property
    def queued(self) -> NDArray[np.int64]:
        """Eligible jobs in queue order."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether no row of the table remains to be submitted."""
        ...

    def fork(self) -> Self:
        """Copy all mutable state."""
        ...

    def add(self, cores: int, request: int, *, qos: int = 0, partition: int = 0) -> int:
        """Assign a number to a client's job. The core ignores attributes that its machine does not distinguish."""
        ...

    def run(self, until: int) -> None:
        """Process whole seconds; stop within one in which a client's job ends, or after one in which a job starts."""
        ...

    def begin_second(self, now: int) -> None:
        """Set the clock, and process the ends at this time."""
        ...

    def end_second(self) -> None:
        """Queue the jobs submitted now, and schedule."""
        ...

    def schedule(self) -> None:
        """Do a scheduling pass, if the client changed anything since the last one."""
        ...

    def push_end(self, index: int, end: int) -> None:
        """Set the future end of a client's running job."""
        ...

    def give_back(self, index: int, expected_end: int) -> None:
        """Free the cores of a client's job that was expected to run until a time."""
        ...

    def resize(self, index: int, cores: int, expected_end: int) -> bool:
        """Change the width of a client's running job; without any change False if it exceeds the idle cores."""
        ...

    def insert(self, index: int, age_since: int) -> None:
        """Insert a client's job into the queue, after jobs of the same age."""
        ...

    def remove(self, index: int) -> None:
        """Take a client's job out of the queue."""
        ...


class InPython(ABC):
    """The loop of a core written in Python, from one second with events to the next."""

    now: int
    ended: list[int]
    news: list[News]

    def run(self, until: int) -> None:
        """See `Core.run`."""
        while (moment := self._next_event()) <= until and moment < NEVER:
            self.begin_second(moment)
            if self.ended:
                return
            self.end_second()
            if self.news:
                return
        if until < NEVER - 1:
            self.now = max(self.now, until)

    @abstractmethod
    def _next_event(self) -> int:
        """Return the second of the next event; `NEVER` if there is none."""

    @abstractmethod
    def begin_second(self, now: int) -> None:
        """See `Core.begin_second`."""

    @abstractmethod
    def end_second(self) -> None:
        """See `Core.end_second`."""


@runtime_checkable
class PlanningCore(Core, Protocol):
    """A core that plans the start of every job at its submission."""

    def planned_start(self, cores: int, lasts_s: int, since: int) -> int:
        """Return the planned start of a job submitted now that may not start before a time."""
        ...

    def planned(self, index: int) -> int:
        """Return the planned start of a waiting job."""
        ...


@runtime_checkable
class PooledCore(Core, Protocol):
    """A core of a machine with further resources besides cores."""

    @property
    def pools(self) -> Mapping[str, int]:
        """Total size of each pool, by name."""
        ...

    def ask(self, index: int, amounts: Mapping[str, int]) -> None:
        """Let a client's job that is not queued yet take amounts of pools, in addition to its cores."""
        ...


@runtime_checkable
class ReturningCore(Core, Protocol):
    """A core that keeps moments of a replay as less than a fork is."""

    def kept(self) -> Any | None:
        """Keep this moment for `return_to`; None if only a fork can keep it."""
        ...

    def return_to(self, moment: Any) -> None:
        """Return to a moment that was kept before."""
        ...
