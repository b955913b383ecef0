"""A pool of processes that share large values, end with their parent, and leave nothing behind at an interrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import parent_process
from typing import Any, Protocol, TypeVar, runtime_checkable

from asa.core.handover import HandoverMemory, MappedValue
from asa.core.processes import begin_tracker, context
from asa.errors import UnavailableError

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

Progress = Callable[[str, int, int], None]
"""Receives reports of progress: the current activity, the amount done, and the total."""


def silent(_what: str, _done: int, _of: int) -> None:
    """Report no progress."""


class SharedValue(Protocol[_T_co]):
    """A reference to a value, for all functions that run on one executor."""

    def value(self) -> _T_co:
        """Return the value; raises OSError if it no longer exists."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """An executor that keeps functions' results in the processes that made them."""

    def keep(self, function: Callable[[Any], _T], each: Iterable[Any]) -> list[SharedValue[_T]]:
        """Call a function with each argument; return references to the results, which stay in the processes."""
        ...


class Processes(ProcessPoolExecutor):
    """A pool of processes on this machine that pass values to each other without sending them."""

    def __init__(self, processes: int) -> None:
        self._memory = HandoverMemory()
        super().__init__(
            processes,
            mp_context=context(),
            initializer=_begin_worker,
        )

    def submit(self, function: Callable[..., _T], /, *args: Any, **options: Any) -> Future[_T]:
        """Call a function in one of the processes; an argument that is a reference is replaced by its value."""
        return super().submit(_call, function, *args, **options)

    def share(self, value: _T) -> MappedValue[_T]:
        """Hold a value for all processes, so that it is not sent to each."""
        return self._memory.publish(value)

    def keep(self, function: Callable[[Any], _T], each: Iterable[Any]) -> list[SharedValue[_T]]:
        """See `Keeping`."""
        return [future.result() for future in [super(Processes, self).submit(_keep, function, value) for value in each]]

    def end(self) -> None:
        """Kill the processes at once."""
        for process in list((self._processes or {}).values()):
            process.terminate()
        self.shutdown(wait=False, cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - its shape
        """End the processes, and free the shared values."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        self._memory.close()


_value = lru_cache(maxsize=1)(MappedValue.value)


def _call(function: Callable[..., _T], *args: Any, **options: Any) -> _T:
    return function(
        *(_value(argument) if isinstance(argument, MappedValue) else argument for argument in args), **options
    )


@lru_cache(maxsize=1)
def _own_memory() -> HandoverMemory:
    return HandoverMemory()


def _keep(function: Callable[[Any], _T], argument: Any) -> MappedValue[_T]:
    return _own_memory().publish(function(argument))


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def pool(processes: int) -> Iterator[Processes | None]:
    """Open a pool of processes; yields None if one process is enough.

    Only the parent handles an interrupt: it kills the processes at once, without waiting.
    """
    if processes <= 1:
        yield None
        return
    executor = Processes(processes)
    try:
        with _interrupts_deferred():
            for _ in range(processes):
                executor.submit(int)  # starts a process, which inherits the blocked interrupt
        yield executor
        executor.shutdown()
    except BrokenProcessPool as error:
        executor.end()
        hint = "Where memory is short give fewer --jobs; what was kept (--results) is not done again."
        raise UnavailableError("a process that worked for this one was killed", hint=hint) from error
    except BaseException:
        executor.end()
        raise


def _begin_worker() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Exit this process when its parent has ended, in whatever way."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Defer an interrupt to the end of the block: a half-started process could not be killed.

    Blocking the signal is not enough, since another thread of this process may receive it. An ignored signal stays
    ignored.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    begin_tracker()  # now, since starting it later would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt
