"""The worker in the client's own process that takes results when the last other workers leave. It runs no tasks."""

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

_MEMORY_BYTES = 2**30  # of results in memory; more are written to files
_BATCH_BYTES = 2**26  # moved at a time, so that these are safe if time runs out


class Keeper(Worker):
    """Holds results for other workers. It is always paused, so it never gets a task."""

    @property
    def status(self) -> Status:
        """Status of the worker, which is never `running`."""
        current: Status = Worker.status.fget(self)
        return current

    @status.setter
    def status(self, value: Status) -> None:
        Worker.status.fset(self, Status.paused if value is Status.running else value)


async def open_keeper(scheduler: Scheduler, security: Security, folder: Path) -> Keeper:
    """Start a keeper in this process."""
    keeper: Keeper = await Keeper(
        scheduler.address,
        nthreads=1,
        name=KEEPER,
        host=get_address_host(scheduler.address),
        security=security,
        local_directory=str(folder),
        memory_limit=0,  # this process's memory is not the pool's to limit
        data=_store,
        dashboard=False,
        dashboard_address=on_loopback(":0"),
    )
    return keeper


def _store(worker_local_directory: str) -> SpillBuffer:
    """Return a buffer that keeps results in memory up to a limit, and further results in files."""
    return SpillBuffer(str(Path(worker_local_directory) / "storage"), target=_MEMORY_BYTES)


async def gather_on(keeper: str, scheduler: Scheduler, addresses: Collection[str]) -> bool:
    """Move results that only these workers hold to the keeper, the smallest first; return whether all were moved."""
    failed: set[Any] = set()
    for batch in _batches(sorted(_sole(scheduler, addresses), key=lambda task: task.get_nbytes())):
        who_has = {task.key: [worker.address for worker in task.who_has or ()] for task in batch}
        failed |= await scheduler.gather_on_worker(keeper, {key: there for key, there in who_has.items() if there})
    # results that were released meanwhile are not missed
    return not any(task.key in failed for task in _sole(scheduler, addresses))


def sole_bytes(scheduler: Scheduler, addresses: Collection[str]) -> float:
    """Return the bytes of results that only these workers hold; infinite if they cannot be moved."""
    there = [scheduler.workers[address] for address in addresses if address in scheduler.workers]
    if any(worker.actors for worker in there):
        return float("inf")
    return float(sum(task.get_nbytes() for task in _sole(scheduler, addresses)))


def _sole(scheduler: Scheduler, addresses: Collection[str]) -> list[TaskState]:
    """Return the tasks whose results only these workers hold."""
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
