"""How workers leave a pool so that nothing is lost: no new tasks, those that run end, results move, then they go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from distributed.core import Status, rpc
from distributed.protocol.pickle import dumps

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler
    from distributed.worker import Worker

__all__ = ["leave", "others_run", "throw_out"]

_LOOK_S = 0.1
_LAST_S = 10.0  # for results to move that came up to the end


def others_run(scheduler: Scheduler, addresses: Collection[str]) -> bool:
    """Whether there is a worker to which the tasks and results of some could go."""
    return any(worker.address not in addresses for worker in scheduler.running)


async def leave(
    scheduler: Scheduler, addresses: Collection[str], patience_s: float, connection: Mapping[str, Any]
) -> bool:
    """Have workers leave; tell whether they did, which they do not where results would be lost.

    Parameters
    ----------
    scheduler
        Of the pool.
    addresses
        Of the workers.
    patience_s
        Tasks that run there are waited for so long; then they run again elsewhere.
    connection
        Arguments with which to connect to a worker.
    """
    ends_s = time.monotonic() + patience_s
    moved = await scheduler.retire_workers(workers=list(addresses), close_workers=False, remove=False)
    if any(address in scheduler.workers and address not in moved for address in addresses):
        _stay(scheduler, addresses)
        return False
    for address in addresses:
        await _give_up_unbegun(scheduler, address, connection)
    # dask tells no event
    while time.monotonic() < ends_s and any(w.processing for w in _there(scheduler, addresses)):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
    try:
        async with asyncio.timeout(_LAST_S):
            await scheduler.retire_workers(workers=list(addresses), close_workers=True, remove=True)
    finally:
        await throw_out(scheduler, addresses)
    return True


async def throw_out(scheduler: Scheduler, addresses: Collection[str]) -> None:
    """Have workers go at once; their tasks run again elsewhere, and are not blamed for it."""
    for worker in _there(scheduler, addresses):
        await scheduler.remove_worker(worker.address, stimulus_id=_why(), expected=True)


async def _give_up_unbegun(scheduler: Scheduler, address: str, connection: Mapping[str, Any]) -> None:
    """Send tasks elsewhere that wait at a worker; it begins none any more, but only it knows which it has begun."""
    async with rpc(address, connection_args=connection) as worker:
        while address in scheduler.workers:
            try:
                begun = (await worker.run(function=dumps(_begun)))["result"]
            except OSError:
                return  # it is gone, and its tasks with it
            if begun is not None:
                break
            await asyncio.sleep(_LOOK_S / 10)  # it has not heard yet that it is to leave
        else:
            return
    if (there := scheduler.workers.get(address)) is not None:
        waiting = [task.key for task in there.processing if task.key not in begun]
        scheduler.transitions(dict.fromkeys(waiting, "released"), stimulus_id=_why())


def _begun(dask_worker: Worker) -> list[Any] | None:
    if dask_worker.status == Status.running:
        return None
    return [task.key for task in dask_worker.state.executing | dask_worker.state.long_running]


def _stay(scheduler: Scheduler, addresses: Collection[str]) -> None:
    """Let workers go on that were about to leave."""
    for worker in _there(scheduler, addresses):
        told = {"op": "worker-status-change", "status": Status.running.name, "stimulus_id": _why()}
        scheduler.stream_comms[worker.address].send(told)


def _there(scheduler: Scheduler, addresses: Collection[str]) -> list[Any]:
    return [scheduler.workers[address] for address in addresses if address in scheduler.workers]


def _why() -> str:
    return f"asa-pool-leaving-{time.time()}"
