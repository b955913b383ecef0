"""Where results go when the last workers leave: to one in the client's own process, which runs nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed.comm import get_address_host
from distributed.core import Status
from distributed.spill import SpillBuffer
from distributed.worker import Worker

from .pages import on_loopback

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState
    from distributed.security import Security

KEEPER = "keeper"
"""Name of the worker that keeps results."""

_MEMORY_BYTES = 2**30  # of results in memory; what is more lies in files
_BATCH_BYTES = 2**26  # that move at a time, so that what has moved is safe when time is over


class Keeper(Worker):
    """Holds results for other workers, and never gets a task, as it is always paused."""

    @property
    def status(self) -> Status:
        """Whether it is there."""
        current: Status = Worker.status.fget(self)
        return current

    @status.setter
    def status(self, value: Status) -> None:
        Worker.status.fset(self, Status.paused if value is Status.running else value)


async def open_keeper(scheduler: Scheduler, security: Security, folder: Path) -> Keeper:
    """Start one in this process."""
    keeper: Keeper = await Keeper(
        scheduler.address,
        nthreads=1,
        name=KEEPER,
        host=get_address_host(scheduler.address),
        security=security,
        local_directory=str(folder),
        memory_limit=0,  # what the process has is its user's
        data=_store,
        dashboard=False,
        dashboard_address=on_loopback(":0"),
    )
    return keeper


def _store(worker_local_directory: str) -> SpillBuffer:
    """Make what holds results: in memory, and in files what is more."""
    return SpillBuffer(str(Path(worker_local_directory) / "storage"), target=_MEMORY_BYTES)


async def gather_on(keeper: str, scheduler: Scheduler, addresses: Collection[str]) -> bool:
    """Move there what only some workers hold, the smallest first; return whether all of it is there."""
    failed: set[Any] = set()
    for batch in _batches(sorted(_sole(scheduler, addresses), key=lambda task: task.get_nbytes())):
        who_has = {task.key: [worker.address for worker in task.who_has or ()] for task in batch}
        failed |= await scheduler.gather_on_worker(keeper, {key: there for key, there in who_has.items() if there})
    # what was released meanwhile is no loss
    return not any(task.key in failed for task in _sole(scheduler, addresses))


def sole_bytes(scheduler: Scheduler, addresses: Collection[str]) -> float:
    """Tell how much only some workers hold, in bytes; without end if it can move nowhere."""
    there = [scheduler.workers[address] for address in addresses if address in scheduler.workers]
    if any(worker.actors for worker in there):
        return float("inf")
    return float(sum(task.get_nbytes() for task in _sole(scheduler, addresses)))


def _sole(scheduler: Scheduler, addresses: Collection[str]) -> list[TaskState]:
    """Give the tasks whose results only some workers hold."""
    there = {scheduler.workers[address] for address in addresses if address in scheduler.workers}
    held = {task for worker in there for task in worker.has_what if not task.actor}
    return [task for task in held if not (task.who_has or set()) - there]


def _batches(tasks: list[TaskState]) -> Iterator[list[TaskState]]:
    batch: list[TaskState] = []
    size = 0
    for task in tasks:
        if batch and size + task.get_nbytes() > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += task.get_nbytes()
    if batch:
        yield batch
