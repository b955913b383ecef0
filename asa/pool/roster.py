"""The state of a pool's allocations, from the desk's reports on jobs and from the workers that are connected."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from asa.backend import JobState, JobStatus
from asa.core.files import append_to, in_words, read_text
from asa.errors import UnavailableError
from asa.outcome import JobOutcome

from .allocation import Allocation, AllocationPhase
from .desk import PoolNews
from .values import AllocationShape, PoolRules

logger = logging.getLogger("asa.pool")

_MAX_BARREN = 3  # the pool requests no more jobs after this number in a row ended without a worker
_LEARN = 0.5  # weight of the latest startup time in the moving average
_GONE_S = 60.0  # after the end of a job, until the last calls of its workers have ended
_ASKED = "asked"  # file in the pool's folder with the tokens of jobs


class Roster:
    """All allocations that a pool ever submitted.

    It records reports, and acts on none.

    `folder`: of the pool. The tokens of the jobs are kept there, for a later pool.
    `startup_s`: seconds from a job's start until its workers are ready, learned from earlier ones.
    """

    def __init__(self, folder: Path) -> None:
        self._tokens_file, self._logs = folder / _ASKED, folder / "logs"
        self._by_id: dict[str, Allocation] = {}
        self._by_token: dict[str, Allocation] = {}
        self._refused: set[AllocationShape] = set()
        self._refusal = ""
        self._barren, self._last = 0, ""  # jobs in a row without a worker, and how the last of them ended
        self._offset_s = 0.0
        self._samples: list[tuple[float, int, int, int]] = []
        self.startup_s = PoolRules().startup_s
        self.trouble = ""

    def __getitem__(self, one_id: str) -> Allocation:
        return self._by_id[one_id]

    # ------------------------------------------------------------------ contents

    def now(self) -> float:
        """Read the batch system's clock."""
        return time.time() + self._offset_s

    def all(self) -> list[Allocation]:
        """Return all allocations, in the order in which they were asked for."""
        return list(self._by_id.values())

    def live(self) -> list[Allocation]:
        """Return the allocations that have not ended."""
        return [allocation for allocation in self._by_id.values() if allocation.phase is not AllocationPhase.ENDED]

    def useful(self) -> list[Allocation]:
        """Return the allocations that are part of the pool, or will be."""
        return [allocation for allocation in self._by_id.values() if allocation.is_useful]

    def some_leave(self) -> bool:
        """Whether workers of some allocation leave, or have just left."""
        since_s = self.now() - _GONE_S
        return any(
            allocation.phase is AllocationPhase.DRAINING or (allocation.end_s or 0.0) > since_s
            for allocation in self._by_id.values()
        )

    def has_ended(self, one_id: str) -> bool:
        """Whether an allocation of this name has ended."""
        return one_id in self._by_id and self._by_id[one_id].phase is AllocationPhase.ENDED

    def records(self) -> dict[str, Any]:
        """Return the data for a picture of the pool's time; see `asa.pool.AsaCluster.timeline`."""
        names = ("time_s", "alive", "busy", "waiting")
        samples = [dict(zip(names, sample, strict=True)) for sample in self._samples]
        return {"allocations": [allocation.record() for allocation in self.all()], "cores": samples}

    # ------------------------------------------------------------------ requests

    def left_over(self) -> list[str]:
        """Return the tokens of the jobs that an earlier pool in the same folder asked for."""
        with in_words("cannot be read", self._tokens_file, "Its jobs may still wait: cancel them, and move it away."):
            return read_text(self._tokens_file, "ascii", "replace").split() if self._tokens_file.exists() else []

    def next_id(self) -> str:
        """Return the name of the next allocation."""
        return f"a{len(self._by_id) + 1}"

    def add(self, allocation: Allocation) -> None:
        """Record an allocation that is to be submitted, after writing its token, by which its job can be found.

        Raises `UnavailableError`: the token could not be written, so the job must not be submitted.
        """
        try:
            with append_to(self._tokens_file) as file:
                file.write(f"{allocation.token}\n".encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            hint = "No job is asked for that could not be found again. Free disk space."
            raise UnavailableError(
                f"cannot be written: {error.strerror or error}", where=str(self._tokens_file), hint=hint
            ) from error
        self._by_id[allocation.id] = self._by_token[allocation.token] = allocation

    def refuse(self, shape: AllocationShape, why: str) -> None:
        """Record that allocations of a shape are impossible."""
        self._refused.add(shape)
        self._refusal = why

    def is_possible(self, shape: AllocationShape) -> bool:
        """Whether allocations of a shape may be possible."""
        return shape not in self._refused

    @property
    def is_barren(self) -> bool:
        """Whether too many jobs in a row ended without a worker to request more."""
        return self._barren >= _MAX_BARREN

    def hope_again(self) -> None:
        """Reset the number of jobs in a row that had no worker."""
        self._barren = 0

    def stuck(self, offered: Iterable[AllocationShape]) -> str:
        """Return why there is no allocation and none is asked for; empty if there is or may be one."""
        if self.live():
            return ""
        if self.is_barren:
            how = f"the last as {self._last!r}; their output is in {self._logs}"
            return f"{self._barren} jobs in a row ended without one, {how}"
        return self._refusal if self._refused.issuperset(offered) else ""

    # ------------------------------------------------------------------ reports

    def hear(self, news: PoolNews) -> None:
        """Update the allocations from a report on jobs."""
        self._offset_s = news.now_s - news.local_now_s
        self.trouble = news.trouble
        for token, why in news.refused.items():
            allocation = self._by_token[token]
            if not allocation.why:
                logger.warning("allocation %s was refused: %s", allocation.id, why)
                self.refuse(allocation.shape, why)
            self._end(allocation, news.now_s, why)
        for token, status in news.statuses.items():
            self._hear_of(self._by_token[token], status)

    def _hear_of(self, allocation: Allocation, status: JobStatus) -> None:
        allocation.job_id = status.job_id
        allocation.start_s = status.start_s
        allocation.expected_s = status.expected_start_s
        if status.state is JobState.PENDING:
            allocation.phase = AllocationPhase.PENDING  # also after a requeue
        elif status.state is JobState.RUNNING:
            if allocation.is_waiting:
                allocation.phase = AllocationPhase.STARTING
                allocation.bare_since_s = self.now()
        else:
            why = f"{status.state}: {status.reason}" if status.reason else str(status.state)
            # a job that its node could not even start has no start
            reached_node = status.start_s is not None or status.outcome is JobOutcome.UNABLE
            self._end(
                allocation, status.end_s if status.end_s is not None else self.now(), why, reached_node=reached_node
            )

    def _end(self, allocation: Allocation, at_s: float, why: str, *, reached_node: bool = False) -> None:
        if allocation.phase is AllocationPhase.ENDED:
            return
        if reached_node and allocation.joined_s is None and not allocation.why:
            self._barren, self._last = self._barren + 1, why
            if self._barren == _MAX_BARREN:
                until = "no more is asked for until `scale`, `adapt` or `ask` say so"
                logger.error("%d jobs in a row had no worker: see %s; %s", self._barren, self._logs, until)
        allocation.why = allocation.why or why
        allocation.phase, allocation.end_s = AllocationPhase.ENDED, at_s
        allocation.idle_since_s = allocation.useless_since_s = None
        allocation.workers = set()
        logger.info("allocation %s ended: %s", allocation.id, allocation.why)

    # ------------------------------------------------------------------ views

    def see_workers(self, allocation: Allocation, workers: Collection[Any], now_s: float) -> None:
        """Update an allocation's connected workers, and whether they are busy."""
        allocation.workers = {str(worker.name) for worker in workers}
        if allocation.is_waiting:
            return
        if not workers:
            allocation.bare_since_s = allocation.bare_since_s or now_s
            return
        allocation.bare_since_s = None
        if allocation.phase is AllocationPhase.STARTING:
            allocation.phase, allocation.joined_s = AllocationPhase.ALIVE, now_s
            self._barren = 0
            if allocation.start_s is not None:
                self.startup_s += _LEARN * (max(now_s - allocation.start_s, 0.0) - self.startup_s)
        is_busy = any(worker.processing for worker in workers)
        allocation.idle_since_s = None if is_busy else allocation.idle_since_s or now_s

    def sample(self, workers: Collection[Any], now_s: float) -> None:
        """Record the numbers of connected, busy and pending cores."""
        alive = sum(worker.nthreads for worker in workers)
        busy = sum(min(len(worker.processing), worker.nthreads) for worker in workers)
        waiting = sum(allocation.shape.cores for allocation in self.live() if allocation.is_waiting)
        if not self._samples or self._samples[-1][1:] != (alive, busy, waiting):
            self._samples.append((now_s, alive, busy, waiting))
