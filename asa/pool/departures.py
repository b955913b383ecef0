"""Returns allocations of a pool: decides which and when, and moves their results to other workers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .allocation import Allocation, AllocationPhase, workers_by_allocation
from .demand import longest_task_s
from .keeper import KEEPER, Keeper, gather_on, open_keeper, sole_bytes
from .leaving import leave, others_run, throw_out
from .planning import drain_from_s
from .values import AllocationShape

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler
    from distributed.security import Security

logger = logging.getLogger("asa.pool")

_RETRY_S = 5.0  # before workers whose results could not be moved are asked to leave again
_PATIENCE_S = 60.0  # for running tasks of an allocation that is given back
_LAST_SHARE = 0.7  # of the margin before the end of a walltime, for moving results
_KEPT_BYTES = 2**30  # an allocation with at most this many bytes of results may end: the client keeps them


class Departures:
    """Removes allocations from a pool, each with all its workers, without losing results that can be saved.

    Results are moved to workers that stay. If there are none, a `Keeper` in this process takes them: at the end of a
    walltime as many as there is time for, otherwise as many as it has space for. Results that it cannot take stay where
    they are; the removal of their allocation is tried again.

    `folder`: for results that do not fit into the keeper's memory.
    `margin_of`: returns how many seconds before the end of its walltime an allocation of a shape is vacated.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        security: Security,
        folder: Path,
        *,
        margin_of: Callable[[AllocationShape], float],
        now: Callable[[], float],
        cancel: Callable[[str], None],
    ) -> None:
        self._scheduler, self._security, self._folder = scheduler, security, folder
        self._margin_of, self._now, self._cancel = margin_of, now, cancel
        self._leaving: dict[str, tuple[Allocation, asyncio.Task[None]]] = {}
        self._again_s: dict[str, float] = {}  # by allocation that could not leave: when its workers are asked again
        self._keeper: asyncio.Task[Keeper] | None = None

    # ------------------------------------------------------------------ which allocations leave, and when

    async def look_after(self, allocations: Iterable[Allocation], now_s: float) -> None:
        """Remove allocations whose time is up or that are unwanted. Close the keeper if it is empty."""
        await self._leave_off()
        task_s = longest_task_s(self._scheduler)
        for allocation in allocations:
            if (
                allocation.phase is AllocationPhase.ALIVE
                and allocation.id not in self._leaving
                and now_s >= self._again_s.get(allocation.id, 0.0)
            ):
                self._leave_in_time(allocation, now_s, task_s)
                if allocation.unwanted:  # its results could not be moved the last time
                    self.give_back(allocation, allocation.unwanted)
        if self._keeper is not None and self._keeper.done() and not self._leaving and not self._kept_bytes():
            await self.close_keeper()

    def give_back(self, allocation: Allocation, why: str) -> None:
        """Remove an allocation before its time, unless it has many results that cannot be moved."""
        self._have_leave(allocation, _PATIENCE_S, is_last=False, why=why)

    async def stop(self) -> None:
        """Stop all departures."""
        await _cancelled(task for _, task in self._leaving.values())

    async def _leave_off(self) -> None:
        """Stop departures of allocations whose jobs ended or were requeued; cancel requeued jobs that are unwanted."""
        gone = [
            (allocation, task)
            for allocation, task in self._leaving.values()
            if allocation.phase is not AllocationPhase.DRAINING
        ]
        await _cancelled(task for _, task in gone)
        for allocation, _ in gone:
            self._leaving.pop(allocation.id, None)  # a cancelled task that had not begun does not remove its entry
            if allocation.phase is not AllocationPhase.ENDED:
                allocation.drain_s = None
            if allocation.unwanted:
                allocation.why = allocation.why or allocation.unwanted
                self._cancel(allocation.token)

    def _leave_in_time(self, allocation: Allocation, now_s: float, task_s: float) -> None:
        ends_s = allocation.walltime_ends_s
        if ends_s is None or allocation.start_s is None:
            return
        until_s = ends_s - self._margin_of(allocation.shape)
        if now_s >= until_s:
            self._have_leave(allocation, until_s - now_s, is_last=True)
        elif now_s >= drain_from_s(until_s, task_s, allocation.start_s) and others_run(
            self._scheduler, self._addresses(allocation)
        ):
            self._have_leave(allocation, until_s - now_s, is_last=False)

    def _have_leave(self, allocation: Allocation, patience_s: float, *, is_last: bool, why: str = "") -> None:
        """Make an allocation's workers leave, then cancel its job."""
        if allocation.id in self._leaving:
            return
        addresses = self._addresses(allocation)
        if not is_last and not others_run(self._scheduler, addresses) and self._is_much(addresses):
            if allocation.id not in self._again_s:
                logger.warning("allocation %s stays: much is there that could move nowhere", allocation.id)
            self._again_s[allocation.id] = self._now() + _RETRY_S
            return
        before_end_s = time.monotonic() + self._margin_of(allocation.shape) * _LAST_SHARE
        before, allocation.phase, allocation.drain_s = allocation.phase, AllocationPhase.DRAINING, self._now()

        async def go() -> None:
            keep = partial(self._keep, until_s=before_end_s if is_last else None)
            try:
                connection = dict(self._security.get_connection_args("scheduler"))
                if not await leave(self._scheduler, self._addresses(allocation), patience_s, connection, keep):
                    if not is_last:
                        allocation.phase, allocation.drain_s = before, None
                        self._again_s[allocation.id] = self._now() + _RETRY_S
                        return
                    await throw_out(self._scheduler, self._addresses(allocation))
                allocation.why = allocation.why or why or "its walltime was about to end"
            except Exception:
                logger.exception("the workers of allocation %s did not leave as they should", allocation.id)
                allocation.why = allocation.why or why or "its workers could not leave"
            finally:
                self._leaving.pop(allocation.id, None)
            self._cancel(allocation.token)

        self._leaving[allocation.id] = allocation, asyncio.ensure_future(go())

    def _addresses(self, allocation: Allocation) -> list[str]:
        workers = workers_by_allocation(self._scheduler.workers.values())
        return [worker.address for worker in workers.get(allocation.id, [])]

    # ------------------------------------------------------------------ destinations of results

    async def close_keeper(self) -> None:
        """Close the keeper."""
        if self._keeper is not None:
            opened, self._keeper = self._keeper, None
            with suppress(OSError, TimeoutError, ValueError):
                await (await opened).close(nanny=False)

    async def _keep(self, addresses: Collection[str], until_s: float | None) -> bool:
        """Move results that no other worker can take to this process: if a walltime ends, as many as time allows.

        So no paid allocation is held for small results.
        """
        if not sole_bytes(self._scheduler, addresses):
            return True
        if until_s is None and self._is_much(addresses):
            return False
        try:
            async with asyncio.timeout(None if until_s is None else max(until_s - time.monotonic(), 0.0)):
                if self._keeper is None:
                    opening = open_keeper(self._scheduler, self._security, self._folder)
                    self._keeper = asyncio.ensure_future(opening)
                keeper = await asyncio.shield(self._keeper)
                kept = await gather_on(keeper.address, self._scheduler, addresses)
        except TimeoutError:
            kept = False
        except Exception:
            logger.exception("results of %s could not be kept", " and ".join(addresses))
            kept, self._keeper = False, None
        if until_s is not None and not kept:
            logger.warning("results of %s could not all move in time: their tasks run again", " and ".join(addresses))
        return kept or until_s is not None

    def _is_much(self, addresses: Collection[str]) -> bool:
        """Whether some results are only on these workers, and are too large for this process or cannot be moved."""
        return sole_bytes(self._scheduler, addresses) + self._kept_bytes() > _KEPT_BYTES

    def _kept_bytes(self) -> int:
        """Return the bytes that the keeper holds."""
        return sum(worker.nbytes for worker in self._scheduler.workers.values() if worker.name == KEEPER)


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in list(tasks):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
