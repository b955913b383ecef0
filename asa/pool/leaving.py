"""Lets workers leave a pool without loss: no new tasks come, running tasks end, results are moved, workers close."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from distributed.core import Status, rpc
from distributed.protocol.pickle import dumps

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler
    from distributed.worker import Worker

_LEAVING: WeakKeyDictionary[Scheduler, int] = WeakKeyDictionary()  # by scheduler: how many departures copy results now
# by scheduler: whether dask's memory manager ran before that
_RAN: WeakKeyDictionary[Scheduler, bool] = WeakKeyDictionary()
_LOOK_S = 0.1
_LAST_S = 10.0  # for moving the last results


def others_run(scheduler: Scheduler, addresses: Collection[str]) -> bool:
    """Whether other workers can take the tasks and results of these workers."""
    return any(worker.address not in addresses for worker in scheduler.running)


async def leave(
    scheduler: Scheduler,
    addresses: Collection[str],
    patience_s: float,
    connection: Mapping[str, Any],
    keep: Callable[[Collection[str]], Awaitable[bool]],
) -> bool:
    """Remove workers. Return whether they left: they stay if results would be lost.

    `patience_s`: how long to wait for running tasks. Those that have not ended by then run again elsewhere.
    `keep`: called when these workers get no more tasks, to save results that no other worker can take; returns whether
    these are safe.
    """
    ends_s = time.monotonic() + patience_s
    moved: Collection[str] = ()
    if others_run(scheduler, addresses):
        moved = await scheduler.retire_workers(workers=list(addresses), close_workers=False, remove=False)
    lonely = [address for address in addresses if address in scheduler.workers and address not in moved]
    with _copies_stay(scheduler) if lonely else nullcontext():
        if lonely:
            _tell_status(scheduler, lonely, Status.closing_gracefully)
            if not await keep(lonely):
                _tell_status(scheduler, addresses, Status.running)
                return False
        for address in addresses:
            await _give_up_unbegun(scheduler, address, connection)
        # dask has no event for it
        while time.monotonic() < ends_s and any(w.processing for w in _there(scheduler, addresses)):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        if lonely and not await keep(lonely):  # also the latest results
            _tell_status(scheduler, addresses, Status.running)
            return False
        try:
            await throw_out(scheduler, lonely)
            async with asyncio.timeout(_LAST_S):
                await scheduler.retire_workers(workers=list(addresses), close_workers=True, remove=True)
        finally:
            await throw_out(scheduler, addresses)
    return True


@contextmanager
def _copies_stay(scheduler: Scheduler) -> Iterator[None]:
    """Stop dask's memory manager: of two copies of a result, it might drop the copy on a worker that stays."""
    manager = scheduler.extensions.get("amm")
    leaving = _LEAVING.get(scheduler, 0)
    if not leaving:
        _RAN[scheduler] = manager is not None and manager.running
    _LEAVING[scheduler] = leaving + 1
    if manager is not None and manager.running:
        manager.stop()
    try:
        yield
    finally:
        _LEAVING[scheduler] -= 1
        if not _LEAVING[scheduler] and _RAN[scheduler] and manager is not None:
            manager.start()


async def throw_out(scheduler: Scheduler, addresses: Collection[str]) -> None:
    """Remove workers at once. Their tasks run again elsewhere; this is not counted as a failure of the tasks."""
    for worker in _there(scheduler, addresses):
        await scheduler.remove_worker(worker.address, stimulus_id=_why(), expected=True)


async def _give_up_unbegun(scheduler: Scheduler, address: str, connection: Mapping[str, Any]) -> None:
    """Release the tasks that wait at a leaving worker. Only the worker knows which it has not begun."""
    async with rpc(address, connection_args=connection) as worker:
        while address in scheduler.workers:
            try:
                unbegun = (await worker.run(function=dumps(_unbegun)))["result"]
            except OSError:
                return  # the worker and its tasks are gone
            if unbegun is not None:
                break
            await asyncio.sleep(_LOOK_S / 10)  # the worker does not know yet that it is to leave
        else:
            return
    if (there := scheduler.workers.get(address)) is not None:
        waiting = [task.key for task in there.processing if task.key in unbegun]
        scheduler.transitions(dict.fromkeys(waiting, "released"), stimulus_id=_why())


def _unbegun(dask_worker: Worker) -> set[Any] | None:
    """Return the tasks that wait at a worker; leave out tasks whose end the scheduler does not know yet."""
    if dask_worker.status == Status.running:
        return None
    waiting = {"waiting", "ready", "constrained"}
    tasks = dask_worker.state.tasks.values()
    return {task.key for task in tasks if task.state in waiting or (task.state, task.next) == ("resumed", "waiting")}


def _tell_status(scheduler: Scheduler, addresses: Collection[str], status: Status) -> None:
    """Set a new status of workers, and report it to the scheduler at once."""
    for worker in _there(scheduler, addresses):
        message = {"op": "worker-status-change", "status": status.name, "stimulus_id": (why := _why())}
        scheduler.handle_worker_status_change(status, worker, why)
        scheduler.stream_comms[worker.address].send(message)


def _there(scheduler: Scheduler, addresses: Collection[str]) -> list[Any]:
    return [scheduler.workers[address] for address in addresses if address in scheduler.workers]


def _why() -> str:
    return f"asa-pool-leaving-{time.time()}"
