"""Passes on two levels with bounded waits: no job waits much longer than in order of age.

They differ from DRAS: a reservation is postponed for jobs that the judge now prefers, unless its job is overdue.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import numpy as np
from asa.backends.simulated.policies import QueueView

from asa.errors import InputError

from .network import Floats
from .ranking import JobContext, Judge, tell
from .rewards import Cost
from .scheduler import First, Hole, Mode, TwoLevels
from .state import Integers

PATIENCE: Final = 0.4
"""Default, as a share of the longest backlog: the longest wait was then 1.0 to 1.6 times EASY's in our trials."""
WINDOW: Final = 64
"""Default number of jobs that are judged together."""


@runtime_checkable
class Pupil(Judge, Protocol):
    """A judge that learns from the cost of waiting."""

    def elapse(self, cost: float, seconds: int, now: int) -> None:
        """Note the time since the last pass, and the cost of waiting during it."""
        ...


class Oldest:
    """A judge that takes the oldest job."""

    def choose(self, rows: Floats) -> int:
        """Choose the first job."""
        del rows
        return 0


class Patient(TwoLevels):
    """Two levels as in DRAS, with a judge of jobs, and a bound for waits.

    Level 1 and level 2 are those of `TwoLevels`. Different from the paper is how long a reservation holds: if it is
    postponed, the job starts later than first promised. A job is *overdue* when it has waited longer than a share,
    `patience`, of the longest backlog so far: the time that the fully used machine would take for all pending and
    running jobs, by their requests. That is about the wait of a job at the end of the queue in order of age. If a usual
    wait in order of age is known, no job is overdue sooner than that. Overdue jobs are selected before all others, the
    oldest first, and their reservation holds until they start: nothing can delay them. Other reservations hold for one
    pass; at the next one level 1 chooses again, and may choose a newer job.

    `patience`: see above; 0 for order of age, with EASY backfilling where the judge chooses the backfilled jobs.
    `usual_s`: a wait seen in order of age; 0 if none is known.
    `cost`: the cost of waiting, if it is to be computed; training needs it.
    `fills`: whether there is a level 2, so that jobs are backfilled around a reservation.
    `keeps`: whether every reservation holds until its job starts, as in the paper.
    `total_reward`, `selections`: the negated cost of all waiting so far, and how many jobs have started.
    `promised`: the start first promised, by job with a reservation.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        patience: float = PATIENCE,
        window: int = WINDOW,
        usual_s: int = 0,
        cost: Cost | None = None,
        fills: bool = True,
        keeps: bool = False,
    ) -> None:
        super().__init__(First(), window=window)
        if not patience >= 0.0 or usual_s < 0:
            raise InputError(
                f"a patience of {patience} and {usual_s} s cannot be", where="scheduler", hint="Give 0 or more."
            )
        self.judge, self.patience, self.usual_s, self.cost = judge, patience, usual_s, cost
        self.fills, self.keeps = fills, keeps
        self._pupil = judge if isinstance(judge, Pupil) else None
        if self._pupil is not None and cost is None:
            raise InputError("nothing can be learned without a cost", where="scheduler", hint="Give one.")
        self._outlook = JobContext()
        self._longest_s = 0.0
        self._is_overdue = False
        self._awaited: int | None = None
        self._last: int | None = None

    def _pass(self, view: QueueView) -> None:
        queue = view.queue
        if self.cost is not None:
            self._reckon(view, queue)
        self._awaited = self.reserved
        if not len(queue):
            self.reserved = None
            return
        self._look(view, queue)
        if not self._stands:
            self.reserved = None
        super()._pass(view)

    def _look(self, view: QueueView, queue: Integers) -> None:
        """Measure the backlog, and compute the bound of waits."""
        running = view.running
        work = int(view.request[queue] @ view.demand[queue, 0])
        work += int(np.maximum(view.expected_end[running] - view.now, 0) @ view.demand[running, 0])
        backlog_s = work / max(int(view.capacity[0]), 1)
        self._longest_s = max(self._longest_s, backlog_s)
        bound_s = max(self.patience * self._longest_s, self.usual_s)
        self._outlook = JobContext(None, len(queue), backlog_s, bound_s)

    def _pick(self, view: QueueView, jobs: Integers, hole: Hole | None) -> int:
        if hole is None:
            self._is_overdue = view.now - int(view.submit[jobs[0]]) > self._outlook.bound_s
            if self._is_overdue:
                return int(jobs[0])
        offered = jobs[: self.window]
        if len(offered) == 1:
            return int(offered[0])
        self._outlook.hole = hole
        return int(offered[self._best(view, offered)])

    def _best(self, view: QueueView, offered: Integers) -> int:
        """Return the index of the job to take."""
        return self.judge.choose(tell(view, offered, self._outlook))

    @property
    def _stands(self) -> bool:
        """Whether the present reservation holds for longer than a pass."""
        return self.keeps or self._is_overdue

    def _reserve(self, view: QueueView, job: int) -> None:
        if self._stands:
            super()._reserve(view, job)
        else:
            self.reserved = job

    def _backfill(self, view: QueueView, reserved: int, waiting: Integers) -> None:
        if self.fills:
            super()._backfill(view, reserved, waiting)

    def _start(self, view: QueueView, job: int, mode: Mode) -> None:
        if mode is Mode.READY and job == self._awaited:
            mode = Mode.RESERVED
        super()._start(view, job, mode)
        self.selections += 1

    def _selected(self, view: QueueView, job: int) -> None:
        """Count starts only: a job with a reservation for several passes is selected at each."""

    def _reckon(self, view: QueueView, queue: Integers) -> None:
        """Charge for the waiting since the last pass: of all waiting jobs, as nothing starts between passes."""
        now, nodes = view.now, int(view.capacity[0])
        if self._last is not None:
            queue = queue[view.submit[queue] < now]  # new jobs have not waited, and are not part of a mean
            waits = now - view.submit[queue]
            rates = self.cost(view.demand[queue, 0], view.request[queue], waits, nodes=nodes) if self.cost else waits
            cost = float(np.minimum(waits, now - self._last) @ rates)
            self.total_reward -= cost
            if self._pupil is not None:
                self._pupil.elapse(cost, now - self._last, now)
        self._last = now
