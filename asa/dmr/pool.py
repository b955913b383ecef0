"""Processes of this machine that share the rows of arrays, and whose number can change while they work.

Each process has its block of rows in its own shared memory, which the others can read. When the number changes, each
process of the new set copies its rows from the blocks of the old set, all at the same time; then surplus processes end.
Processes that stay are not restarted.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from asa.core.parallel import end_with_parent
from asa.core.processes import context
from asa.errors import InputError, RunError

from .distribution import Move, blocks, moves
from .protocol import whole

_END_S = 5.0  # how many seconds a signalled process has to end
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class _Layout:
    """The positions of an array's blocks."""

    dtype: DTypeLike  # of its items, and the shape of a row
    row: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]  # shared memories, one for each process

    def block(self, rank: int, memory: SharedMemory) -> NDArray[Any]:
        """Return a process's memory as an array of rows."""
        return np.ndarray((self.sizes[rank], *self.row), self.dtype, memory.buf)


class Part:
    """The part of a `Pool` that one process holds: its rows, with a view of the other processes' rows.

    Parameters
    ----------
    rank
        Which process it is, from 0.
    layouts
        Of the arrays, by their names.
    exchange
        Sends a value to all processes and returns all their values.

    Attributes
    ----------
    processes
        How many there are.
    rows, all_rows
        Number of its rows, and of all rows.
    arrays
        Its rows of each array; readable and writable.
    """

    def __init__(self, rank: int, layouts: Mapping[str, _Layout], exchange: Callable[[Any], list[Any]]) -> None:
        self.rank = rank
        self._layouts = layouts
        self._exchange = exchange
        self._memories: dict[str, SharedMemory] = {}
        self._blocks: dict[tuple[str, int], NDArray[Any]] = {}
        sizes = next(iter(layouts.values())).sizes
        self._starts = [0, *accumulate(sizes)]
        self.processes = len(sizes)
        self.all_rows = range(self._starts[-1])
        self.rows = self.all_rows[self._starts[rank] : self._starts[rank + 1]]
        self.arrays: dict[str, NDArray[Any]] = {name: self._block(name, rank) for name in layouts}

    def row(self, name: str, index: int) -> NDArray[Any]:
        """Read a row of an array, held by any process, by its number among all rows.

        Raises
        ------
        InputError
            There is no such row.
        """
        if index not in self.all_rows:
            raise InputError(f"is none of {len(self.all_rows)} rows", where=f"row {index} of {name!r}")
        rank = bisect_right(self._starts, index) - 1
        row: NDArray[Any] = self._block(name, rank)[index - self._starts[rank]]
        return row

    def exchange(self, value: Any = None) -> list[Any]:
        """Wait until all processes are here, and return what each of them brought, by rank."""
        return self._exchange(value)

    def _block(self, name: str, rank: int) -> NDArray[Any]:
        if (name, rank) not in self._blocks:
            layout = self._layouts[name]
            memory = self._memories[layout.names[rank]] = SharedMemory(layout.names[rank])
            self._blocks[name, rank] = layout.block(rank, memory)
        return self._blocks[name, rank]

    def _fetch(self, older: Mapping[str, _Layout], coming: Sequence[Move]) -> None:
        """Copy rows out of the blocks of an older distribution."""
        for name, layout in older.items():
            for move in coming:
                memory = SharedMemory(layout.names[move.source])
                self.arrays[name][move.put] = layout.block(move.source, memory)[move.taken]
                memory.close()

    def _close(self) -> None:
        self._blocks.clear()
        self.arrays.clear()
        for memory in self._memories.values():
            with suppress(BufferError):  # the program kept a view of it: the memory is closed with the process
                memory.close()


class Pool:
    """Processes that share the rows of arrays; a context manager, at whose end they and the arrays are gone.

    They are started anew, not forked: what they run must be a function of a module, and a program that makes a pool
    must do so under ``if __name__ == "__main__":``.

    Parameters
    ----------
    processes
        How many there are at first.
    arrays
        The shared arrays, by name. All have equally many rows, distributed as by `blocks`. They are copied.

    Raises
    ------
    InputError
        The arrays cannot be shared in this way.
    RunError
        There is too little shared memory for them.

    Examples
    --------
    >>> def double(part):
    ...     part.arrays["x"] *= 2
    >>> with Pool(2, {"x": [1, 2, 3]}) as pool:  # doctest: +SKIP
    ...     pool.run(double)
    ...     pool.resize(3)
    ...     pool.collect("x")
    array([2, 4, 6])
    """

    def __init__(self, processes: int, arrays: Mapping[str, ArrayLike]) -> None:
        given = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        rows = _rows(given)
        self._rows = rows
        self._context = context()
        self._workers: list[tuple[SpawnProcess, Connection]] = []
        self._memories: list[SharedMemory] = []
        self._layouts: dict[str, _Layout] = {}
        try:
            sizes = blocks(rows, whole(processes, "processes"))
            self._layouts, self._memories = _allocate(given, sizes)
            places = iter(self._memories)
            for name, array in given.items():
                for rank, rows_of in enumerate(np.split(array, list(accumulate(sizes))[:-1])):
                    self._layouts[name].block(rank, next(places))[...] = rows_of
            self._start(len(sizes))
            self._give("hold", [(self._layouts, {}, [])] * len(sizes))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def processes(self) -> int:
        """Number of processes."""
        return len(self._workers)

    def run(self, function: Callable[Concatenate[Part, _P], _R], *args: _P.args, **kwargs: _P.kwargs) -> list[_R]:
        """Call a function in all processes at the same time, each with its own `Part`; return the results by rank.

        Raises
        ------
        RunError
            It failed in one of them; that process's traceback is a note. Or a process has died, and with it the pool.
        """
        return self._give("run", [(function, args, kwargs)] * self.processes)

    def resize(self, processes: int) -> None:
        """Change the number of processes, and redistribute the rows; on return, processes that left have ended.

        For a while all arrays are in memory twice. If memory or processes are lacking, nothing changes.

        Raises
        ------
        InputError
            This number of processes is impossible.
        RunError
            There is too little shared memory; or a process has died, and with it the pool.
        OSError
            No process can be started.
        """
        sizes = blocks(self._rows, whole(processes, "processes"))
        before = self.processes
        if len(sizes) == before or not before:
            return
        older, oldest = self._layouts, self._memories
        going = moves(next(iter(older.values())).sizes, sizes)
        empty = {name: np.empty((0, *layout.row), layout.dtype) for name, layout in older.items()}
        layouts, memories = _allocate(empty, sizes)
        try:
            self._start(len(sizes))
        except BaseException:
            self._end(before)
            _free(memories)
            raise
        self._memories = [*oldest, *memories]  # if it fails from here on, all memories are freed with the pool
        try:
            self._give("hold", [(layouts, older, [m for m in going if m.target == n]) for n in range(len(sizes))])
        except BaseException:
            self.close()  # some processes have the new rows, others the old ones
            raise
        self._end(len(sizes))
        self._layouts, self._memories = layouts, memories
        _free(oldest)

    def collect(self, name: str) -> NDArray[Any]:
        """Put an array together."""
        layout = self._layouts[name]
        by_name = {memory.name: memory for memory in self._memories}
        return np.concatenate([layout.block(rank, by_name[of]) for rank, of in enumerate(layout.names)])

    def close(self) -> None:
        """Kill all processes, and free the memory."""
        for process, _ in self._workers:
            process.terminate()
        self._end(0)
        _free(self._memories)
        self._memories = []

    def _start(self, processes: int) -> None:
        """Start processes until the pool has the given number."""
        for rank in range(self.processes, processes):
            ours, its = self._context.Pipe()
            process = self._context.Process(target=_work, args=(rank, its), name=f"process {rank}", daemon=True)
            try:
                process.start()
            except BaseException:
                ours.close()
                raise
            finally:
                its.close()
            self._workers.append((process, ours))

    def _end(self, processes: int) -> None:
        """End processes until the pool has the given number."""
        leaving, self._workers = self._workers[processes:], self._workers[:processes]
        for _, connection in leaving:
            connection.close()  # the closed connection ends the process
        for process, _ in leaving:
            process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()

    def _give(self, what: Literal["hold", "run"], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Give each of the first processes a task, and wait for all results."""
        sent = [ForkingPickler.dumps((what, *task)) for task in tasks]  # if one cannot be sent, none is sent
        try:
            for rank, task in enumerate(sent):
                with _whose(rank):
                    self._workers[rank][1].send_bytes(task)
            return self._results(len(sent))
        except _DiedError as error:
            process, _ = self._workers[error.rank]
            process.join(_END_S)
            died = RunError(
                f"has died, exit code {process.exitcode}",
                where=f"process {error.rank} of the pool",
                hint="Its rows are lost: begin anew.",
            )
            self.close()
            raise died from error
        except RunError:
            raise
        except BaseException:
            self.close()  # after an interrupt, the state of each process is unknown
            raise

    def _results(self, processes: int) -> list[Any]:
        """Wait for the results of the first processes; meanwhile pass on the values that they exchange."""
        connections = [connection for _, connection in self._workers[:processes]]
        results: dict[int, Any] = {}
        failures: dict[int, str] = {}
        brought: dict[int, Any] = {}
        quarrel = ""
        while len(results) + len(failures) < processes:
            busy = [
                connection for rank, connection in enumerate(connections) if rank not in {*results, *failures, *brought}
            ]
            for connection in wait(busy):
                rank = connections.index(connection)  # type: ignore[arg-type] # it waits for sockets too
                with _whose(rank):
                    what, value = connections[rank].recv()
                {"result": results, "failed": failures, "brought": brought}[what][rank] = value
            if brought and len(results) + len(failures) + len(brought) == processes:
                is_whole = len(brought) == processes
                if results and not failures:
                    quarrel = "some processes ended, while others waited for them in an exchange"
                for rank in brought:
                    with _whose(rank):
                        connections[rank].send([brought[n] for n in range(processes)] if is_whole else None)
                brought = {}
        if quarrel:
            raise RunError(quarrel, where="the pool", hint="All processes must exchange equally often.")
        if failures:
            rank, trace = min((rank, trace) for rank, trace in failures.items() if trace)
            failed = RunError(trace.strip().splitlines()[-1], where=f"process {rank} of the pool")
            failed.add_note(trace)
            raise failed
        return [results[rank] for rank in range(processes)]


def _rows(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Count the rows of arrays."""
    if not arrays:
        raise InputError("there are no arrays to share", where="arrays", hint="Give at least one.")
    for name, array in arrays.items():
        if not array.shape:
            raise InputError("has no rows", where=f"array {name!r}", hint="Give it a dimension.")
        if array.dtype.hasobject:
            raise InputError("has objects, which processes cannot share", where=f"array {name!r}", hint="Use numbers.")
    if len(rows := {len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name!r} {len(array)}" for name, array in arrays.items())
        raise InputError(f"arrays have different numbers of rows: {lengths}", where="arrays", hint="Give all the same.")
    return rows.pop()


def _allocate(
    arrays: Mapping[str, NDArray[Any]], sizes: tuple[int, ...]
) -> tuple[dict[str, _Layout], list[SharedMemory]]:
    """Make memory for the blocks of arrays that are like the given arrays."""
    layouts: dict[str, _Layout] = {}
    memories: list[SharedMemory] = []
    try:
        for name, array in arrays.items():
            row = array.shape[1:]
            row_bytes = array.dtype.itemsize * prod(row)
            for size in sizes:
                memories.append(SharedMemory(create=True, size=max(size * row_bytes, 1)))
                _reserve(memories[-1])
            names = tuple(memory.name for memory in memories[-len(sizes) :])
            layouts[name] = _Layout(array.dtype, row, sizes, names)
    except BaseException:
        _free(memories)
        raise
    return layouts, memories


def _reserve(memory: SharedMemory) -> None:
    """Reserve the memory now: without it, a process that wrote to missing memory would be killed."""
    path = Path("/dev/shm", memory.name)  # noqa: S108 - where the system keeps it
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, memory.size)
    except OSError as error:
        raise RunError(
            f"there are no {memory.size:,} bytes of shared memory: {error.strerror}",
            where=str(path.parent),
            hint="Free space there; a container is given more when it is started, as by --shm-size.",
        ) from error


def _free(memories: Sequence[SharedMemory]) -> None:
    for memory in memories:
        memory.unlink()
        with suppress(BufferError):  # a view of it still exists: the memory is closed with the process
            memory.close()


class _DiedError(Exception):
    """A process has died."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


@contextmanager
def _whose(rank: int) -> Iterator[None]:
    """Name the process whose connection is broken."""
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise _DiedError(rank) from error


class _AbandonedError(Exception):
    """Other processes will not take part in an exchange."""


def _work(rank: int, connection: Connection) -> None:
    """Run the pool's functions until it closes the connection or has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool handles interrupts
    threading.Thread(target=end_with_parent, daemon=True).start()
    part: Part | None = None

    def exchange(value: Any) -> list[Any]:
        connection.send(("brought", value))
        brought: list[Any] | None = connection.recv()
        if brought is None:
            raise _AbandonedError
        return brought

    while True:
        try:
            what, *task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            result: Any = None
            if what == "hold":
                layouts, older, coming = task
                former, part = part, Part(rank, layouts, exchange)
                part._fetch(older, coming)  # noqa: SLF001 - the pool's other half
                if former is not None:
                    former._close()  # noqa: SLF001 - as above
            else:
                function, args, kwargs = task
                result = function(part, *args, **kwargs)
            connection.send(("result", result))
        except _AbandonedError:
            connection.send(("failed", ""))
        except Exception:  # noqa: BLE001 - the caller gets it
            connection.send(("failed", traceback.format_exc()))
