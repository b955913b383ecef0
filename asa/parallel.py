"""A pool of processes that share one thing, end with their parent, and leave nothing behind at an interrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from typing import Any

__all__ = ["available_cores", "pool", "shared"]

_shared: Any = None  # of a worker process: set once, so that what is shared travels once


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))


def shared() -> Any:
    """Return what the pool that this process belongs to shares."""
    return _shared


@contextmanager
def pool(processes: int, to_share: Any = None) -> Iterator[ProcessPoolExecutor | None]:
    """Open a pool of processes; none for one process.

    An interrupt is the parent's business: it ends the processes at once and waits for nothing.

    Parameters
    ----------
    processes
        How many.
    to_share
        What `shared` returns in each of them; sent once to each.
    """
    if processes <= 1:
        yield None
        return
    with _interrupts_deferred():
        executor = ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_begin_worker, initargs=(to_share,)
        )
        for _ in range(processes):
            executor.submit(int)  # starts a process, which inherits that interrupts are blocked
    try:
        yield executor
        executor.shutdown()
    except BaseException:
        for child in active_children():
            child.terminate()
        executor.shutdown(wait=False, cancel_futures=True)
        raise


def _begin_worker(to_share: Any) -> None:
    global _shared  # noqa: PLW0603 - see there
    _shared = to_share
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Leave no process behind, however the parent ended."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Keep an interrupt until the end of the block: a process that is half started could not be ended.

    Blocking the signal is not enough, as another thread of this process may take it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    resource_tracker.ensure_running()  # now, as starting it would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came:
        for child in active_children():
            child.terminate()
        raise KeyboardInterrupt
