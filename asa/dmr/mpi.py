"""MPI programs that change their number of processes while they run: `Ranks`, by mpi4py.

At a reconfiguration point the first process asks, for all of them. New processes are spawned (``MPI_Comm_spawn``) and
join, processes that leave hand their rows over and end, and all arrays keep block distributions (sections 5.2 and 6.2
of the paper). A program begins as any other, and mpirun must have slots for as many processes as it may ever have::

    mpirun --oversubscribe -n 4 python program.py

Which processes leave
---------------------
Processes that were started together share an ``MPI_COMM_WORLD``, and MPI lets none of them end before the others. So
those that stay are whole groups of processes that were started together, beginning with the first group, as many of
these as fit into the new number; what is then missing is spawned anew. Where numbers change by a factor, as in the
paper, a program that has doubled halves by the end of the group that it had spawned. A program that shrinks below the
number with which it began is replaced, as every program is in the paper.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asa.core.python import this_command
from asa.errors import InputError, MissingExtraError, RunError

from .distribution import blocks, moves
from .protocol import PROCESSES, whole
from .session import Answer, Session

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # mpi4py itself, or a library of MPI
    raise MissingExtraError(
        f"malleable MPI programs need mpi4py and an MPI library: {error}",
        hint="pip install 'asa-client[mpi]', and load the module of your site's MPI.",
    ) from error

__all__ = ["Ranks", "ResizeTimes"]

_Layouts = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]  # of each array: its items, and the shape of a row
_JOIN = 1  # tag of the messages by which old and new processes find each other


@dataclass(frozen=True, slots=True)
class ResizeTimes:
    """How long a change of the number of processes took.

    Parameters
    ----------
    spawn_s
        Seconds until new processes had joined; 0 if none was spawned.
    move_s
        Seconds in which rows moved.
    """

    spawn_s: float
    move_s: float


@dataclass(frozen=True, slots=True)
class _Change:
    """What all processes, old and new, have to know of a change of their number.

    `groups`: sizes of the groups that were started together, in order of rank; `stay`: how many processes stay.
    """

    before: int
    after: int
    stay: int
    groups: tuple[int, ...]
    layouts: _Layouts
    values: Mapping[str, Any]

    def target(self, joint: int) -> int | None:
        """Return the new rank of one of the old and new processes together, of which the new ones are last."""
        if joint < self.before:
            return joint if joint < self.stay else None
        return joint - self.before + self.stay

    def joint(self, target: int) -> int:
        """Return the rank among the old and new processes together of one that has this rank afterwards."""
        return target if target < self.stay else target - self.stay + self.before


class Ranks:
    """The processes of an MPI program, and one process's rows of its arrays; a context manager.

    All processes make one, also those that are spawned later: these run the program from its beginning, and receive
    their rows here.

    Parameters
    ----------
    rows
        How many rows each array has, on all processes together.
    begin
        Given the numbers of a process's rows, returns its rows of each array by name. Called only in processes with
        which the program begins.
    values
        What all processes know in common, such as the number of the iteration; spawned processes get the first one's.
    period_s
        Seconds for which checks are ignored after an answer; the user's ``ASA_DMR_PERIOD`` takes precedence.

    Attributes
    ----------
    comm
        The communicator; another one after each resize.
    rows, all_rows
        Number of its rows, and of all rows.
    arrays
        Its rows of each array; readable and writable.
    values
        As above; to be changed by all processes alike.
    times
        How long the last resize took.

    Raises
    ------
    InputError
        The arrays cannot be distributed; `where` says which.

    Examples
    --------
    >>> def begin(rows):
    ...     return {"x": np.array(rows, float)}
    >>> with Ranks(1000, begin, {"done": 0}) as ranks:  # doctest: +SKIP
    ...     while ranks.values["done"] < 100:
    ...         ranks.arrays["x"] *= 2.0
    ...         ranks.values["done"] += 1
    ...         if not ranks.check(minimum=1, maximum=8):
    ...             break  # this process has handed its rows over
    """

    def __init__(
        self,
        rows: int,
        begin: Callable[[range], Mapping[str, ArrayLike]],
        values: Mapping[str, Any] | None = None,
        *,
        period_s: float = 0.0,
    ) -> None:
        self.all_rows = range(whole(rows, "rows"))
        self.times = ResizeTimes(0.0, 0.0)
        self._period_s = period_s
        self._session: Session | None = None
        self._is_member = True
        parent = MPI.Comm.Get_parent()
        if parent != MPI.COMM_NULL:
            self.arrays: dict[str, NDArray[Any]] = {}
            self._join(parent)
            return
        self.comm: MPI.Intracomm = MPI.COMM_WORLD.Dup()
        self._groups: tuple[int, ...] = (self.comm.size,)
        self.values = dict(values or {})
        try:
            self.arrays = {name: np.array(array, order="C") for name, array in begin(self.rows).items()}
        except Exception as error:
            self._abort(error)
            raise
        self._check_beginning()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the other processes; after an error end all of them, which would wait for this one in vain."""
        if error is not None and self._is_member:
            self._abort(error)
        if self._is_member:
            _leave(self.comm)
            self._is_member = False

    @property
    def rank(self) -> int:
        """Which process this is, from 0."""
        return self.comm.rank

    @property
    def processes(self) -> int:
        """Number of processes."""
        return self.comm.size

    @property
    def rows(self) -> range:
        """Numbers of this process's rows."""
        start, stop = [0, *accumulate(self._sizes())][self.rank : self.rank + 2]
        return self.all_rows[start:stop]

    def ask(
        self, minimum: int, maximum: int, factor: int = 2, preferred: int | None = None, *, later: bool = False
    ) -> Answer:
        """Ask the resource manager, in all processes at the same time; `check` also does what it answers.

        Parameters
        ----------
        minimum, maximum, factor, preferred
            As for `asa.dmr.check_status`.
        later
            Ask without waiting, for the next check, as `asa.dmr.icheck_status` does.

        Raises
        ------
        InputError
            The numbers make no sense; `where` says which.
        """
        outcome: Answer | InputError | None = None
        if self.rank == 0:
            try:
                session = self._manager()
                asked = session.icheck_status if later else session.check_status
                outcome = asked(minimum, maximum, factor, preferred)
            except InputError as error:
                outcome = error
        outcome = self.comm.bcast(outcome)
        if isinstance(outcome, InputError):
            raise outcome
        assert outcome is not None
        return outcome

    def check(
        self, minimum: int, maximum: int, factor: int = 2, preferred: int | None = None, *, later: bool = False
    ) -> bool:
        """Ask the resource manager, do what it answers, and report it, in all processes at the same time.

        If new processes cannot be spawned, nothing changes, and their nodes are given back.

        Parameters
        ----------
        minimum, maximum, factor, preferred, later
            As for `ask`.

        Returns
        -------
        bool
            Whether this process is still one of the program's; if not, it must come to its end.

        Raises
        ------
        InputError
            The numbers make no sense; `where` says which.
        """
        answer = self.ask(minimum, maximum, factor, preferred, later=later)
        if not answer:
            return True
        try:
            stays = self.resize(answer.processes, answer.nodes)
        except RunError as error:
            stays = True
            if self.rank == 0:
                sys.stderr.write(f"asa: goes on with {self.processes} processes: {error.message}\n")
        if stays and self.rank == 0:
            self._manager().acknowledge(self.processes)
        return stays

    def resize(self, processes: int, nodes: Sequence[str] = ()) -> bool:
        """Change the number of processes, and redistribute the rows, in all processes at the same time.

        Parameters
        ----------
        processes
            How many there are to be.
        nodes
            Names of the nodes on which new processes are to be, equally many on each, if mpirun does not have these
            yet; it is told by the info key `add-host` of Open MPI. If not given, mpirun chooses.

        Returns
        -------
        bool
            Whether this process is still one of the program's; if not, it must come to its end.

        Raises
        ------
        InputError
            This number of processes is impossible.
        RunError
            No processes can be spawned; nothing has changed.
        """
        after = len(blocks(0, whole(processes, "processes")))
        if after == self.processes:
            return True
        groups = _that_fit(self._groups, after)
        stay = sum(groups)
        more = (after - stay,) if after > stay else ()
        change = _Change(self.processes, after, stay, groups + more, _layouts(self.arrays), self.values)
        begun_s = MPI.Wtime()
        joint = self._spawn(change, nodes) if more else self.comm
        spawned_s = MPI.Wtime()
        self._redistribute(joint, change)
        self.times = ResizeTimes(spawned_s - begun_s if more else 0.0, MPI.Wtime() - spawned_s)
        return self._is_member

    def gather(self, block: ArrayLike) -> NDArray[Any]:
        """Return all processes' rows of an array, given this process's rows of it; to all processes alike.

        Raises
        ------
        InputError
            It has another number of rows.
        """
        mine = np.ascontiguousarray(block)
        self._check_block("block", mine)
        whole_array = np.empty((len(self.all_rows), *mine.shape[1:]), mine.dtype)
        with _RowType(mine.dtype, mine.shape[1:]) as row:
            sizes = self._sizes()
            self.comm.Allgatherv([mine, len(mine), row], [whole_array, sizes, [0, *accumulate(sizes)][:-1], row])
        return whole_array

    def total(self, block: ArrayLike) -> NDArray[Any]:
        """Return the sum of all rows of an array, given this process's rows of it.

        They are added in one order for any number of processes: the sum is the same to the last bit.

        Raises
        ------
        InputError
            It has another number of rows.
        """
        summed: NDArray[Any] = self.gather(block).sum(axis=0)
        return summed

    def _abort(self, error: BaseException) -> None:
        traceback.print_exception(error)
        sys.stderr.flush()
        self.comm.Abort(1)

    def _sizes(self) -> tuple[int, ...]:
        return blocks(len(self.all_rows), self.processes)

    def _check_beginning(self) -> None:
        """Refuse arrays that cannot be distributed, in all processes, of which the others would wait for one."""
        refusal: InputError | None = None
        try:
            for name, array in self.arrays.items():
                self._check_block(name, array)
        except InputError as error:
            refusal = error
        gathered = self.comm.allgather((refusal, _layouts(self.arrays)))
        if refusals := [error for error, _ in gathered if error is not None]:
            raise refusals[0]
        for rank, (_, layouts) in enumerate(gathered):
            if layouts != gathered[0][1]:
                raise InputError(
                    f"begin with {layouts} on process {rank}, and {gathered[0][1]} on process 0",
                    where="arrays",
                    hint="Give all processes arrays of the same names, types and rows, also where they are empty.",
                )

    def _check_block(self, name: str, block: NDArray[Any]) -> None:
        if block.dtype.hasobject:
            raise InputError("has objects, which are not sent", where=f"array {name!r}", hint="Use numbers.")
        if not block.shape or len(block) != len(self.rows):
            raise InputError(
                f"has {len(block) if block.shape else 'no'} rows on process {self.rank}, not {len(self.rows)}",
                where=f"array {name!r}",
                hint="Give it a row for each of `rows`.",
            )

    def _manager(self) -> Session:
        """Return the session of the first process, which another process may have become."""
        if self._session is None:
            self._session = Session.of_environment({**os.environ, PROCESSES: str(self.processes)})
            self._session.inhibit(self._period_s)
        return self._session

    def _spawn(self, change: _Change, nodes: Sequence[str]) -> MPI.Intracomm:
        """Spawn processes; return a communicator of the old and the new ones.

        One process does it, which can tell the others if it fails; in Open MPI 4.1 they would wait for it forever.
        """
        bridge, pair, failure = MPI.Intercomm(), self.comm, ""
        if self.rank == 0:
            try:
                command, number = this_command(), change.after - change.stay
                places = MPI.Info.Create({"add-host": _slots(nodes, number)}) if nodes else MPI.INFO_NULL
                bridge = MPI.COMM_SELF.Spawn(command[0], command[1:], maxprocs=number, info=places)
                pair = bridge.Merge(high=False)
            except MPI.Exception as error:
                failure = error.Get_error_string()
        if failure := self.comm.bcast(failure):
            raise RunError(
                f"no processes can be spawned: {failure}", where="MPI", hint="Start with mpirun --oversubscribe."
            )
        both = self.comm.Create_intercomm(0, pair, 1, _JOIN)
        joint = both.Merge(high=False)
        joint.bcast(change)
        both.Free()
        if self.rank == 0:
            pair.Free()
            bridge.Disconnect()
        return joint

    def _join(self, parent: MPI.Intercomm) -> None:
        """Join those who spawned this process, and receive its rows."""
        pair = parent.Merge(high=True)
        both = MPI.COMM_WORLD.Create_intercomm(0, pair, 0, _JOIN)
        joint = both.Merge(high=True)
        change: _Change = joint.bcast(None)
        both.Free()
        pair.Free()
        parent.Disconnect()
        self.values = dict(change.values)
        self._redistribute(joint, change)
        if self.rank == 0:  # the first process of before has left
            self._manager().acknowledge()

    def _redistribute(self, joint: MPI.Intracomm, change: _Change) -> None:
        """Move the rows, and leave the communicators of before."""
        rank = change.target(joint.rank)
        older, sizes = self.arrays, blocks(len(self.all_rows), change.after)
        going = moves(blocks(len(self.all_rows), change.before), sizes)
        self.arrays = {}
        for tag, (name, (dtype, shape)) in enumerate(change.layouts.items()):
            if rank is not None:
                self.arrays[name] = np.empty((sizes[rank], *shape), dtype)
            messages = []
            with _RowType(dtype, shape) as row:
                for move in going:
                    source, target = move.source, change.joint(move.target)
                    if source == target == joint.rank:
                        self.arrays[name][move.put] = older[name][move.taken]
                    elif source == joint.rank:
                        taken = np.ascontiguousarray(older[name][move.taken])
                        messages.append(joint.Isend([taken, len(taken), row], target, tag))
                    elif target == joint.rank:
                        put = self.arrays[name][move.put]
                        messages.append(joint.Irecv([put, len(put), row], source, tag))
                MPI.Request.Waitall(messages)
        joint.Barrier()
        comm = joint.Split(MPI.UNDEFINED if rank is None else 0, rank or 0)
        former = getattr(self, "comm", joint)
        _leave(joint)
        if former is not joint:
            former.Free()
        self._groups, self._is_member = change.groups, rank is not None
        if rank is not None:
            assert isinstance(comm, MPI.Intracomm)
            self.comm = comm


class _RowType:
    """The MPI type of a row: counts of rows fit into an int where counts of bytes do not."""

    def __init__(self, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
        self._type = MPI.BYTE.Create_contiguous(dtype.itemsize * prod(shape)).Commit()

    def __enter__(self) -> MPI.Datatype:
        return self._type

    def __exit__(self, *_: object) -> None:
        self._type.Free()


def _leave(comm: MPI.Intracomm) -> None:
    """Free a communicator once nothing is on its way in it.

    Not by ``MPI_Comm_disconnect``: Open MPI 4.1 never comes back from it with a merged communicator.
    """
    comm.Barrier()
    comm.Free()


def _slots(nodes: Sequence[str], processes: int) -> str:
    """Return nodes with their slots for processes, as Open MPI takes them.

    Examples
    --------
    >>> _slots(["n2", "n3"], 8)
    'n2:4,n3:4'
    """
    return ",".join(f"{node}:{slots}" for node, slots in zip(nodes, blocks(processes, len(nodes)), strict=True))


def _layouts(arrays: Mapping[str, NDArray[Any]]) -> _Layouts:
    return {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}


def _that_fit(groups: Sequence[int], processes: int) -> tuple[int, ...]:
    """Return the first groups of processes that are together no more than a number.

    Examples
    --------
    >>> _that_fit((2, 2, 4), 6), _that_fit((4, 4), 2)
    ((2, 2), ())
    """
    return tuple(size for size, ends in zip(groups, accumulate(groups), strict=True) if ends <= processes)
