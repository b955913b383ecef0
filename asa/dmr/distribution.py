"""Block distributions, and the rows that each process sends to each other when their number changes (section 6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asa.errors import InputError


@dataclass(frozen=True, slots=True)
class Move:
    """Items that go from a process of the old distribution to one of the new.

    Parameters
    ----------
    source
        Rank of the old process.
    taken
        Which of its items.
    target
        Rank of the new process.
    put
        Where in its block they belong.
    """

    source: int
    taken: slice
    target: int
    put: slice


def blocks(items: int, processes: int) -> tuple[int, ...]:
    """Return how many items each process has: numbers as equal as possible, the first processes having one more.

    Parameters
    ----------
    items
        How many, at least 0.
    processes
        How many, at least 1.

    Returns
    -------
    tuple of int
        Items of each process, in order of rank; they add up to `items`.

    Raises
    ------
    InputError
        There is no process, or a negative number of items.

    Examples
    --------
    >>> blocks(10, 4)
    (3, 3, 2, 2)
    """
    if items < 0 or processes < 1:
        raise InputError(
            f"{items} items cannot be distributed over {processes} processes",
            hint="Give at least 0 items and at least 1 process.",
        )
    least, more = divmod(items, processes)
    return tuple(least + (rank < more) for rank in range(processes))


def moves(before: Sequence[int], after: Sequence[int]) -> list[Move]:
    """Return which items go where, between any two block distributions, in the order of the items.

    Items that stay with a rank are listed too, as their place in its block may change. There are fewer moves than old
    and new processes together.

    Parameters
    ----------
    before, after
        How many items each old and each new process has, as by `blocks`.

    Returns
    -------
    list of Move
        In the order of the items. Rows that stay on a process are listed with that process as source and target.

    Raises
    ------
    InputError
        The two do not have equally many items.

    Examples
    --------
    >>> for move in moves(blocks(8, 2), blocks(8, 4)):
    ...     print(move.source, move.taken, "to", move.target, move.put)
    0 slice(0, 2, None) to 0 slice(0, 2, None)
    0 slice(2, 4, None) to 1 slice(0, 2, None)
    1 slice(0, 2, None) to 2 slice(0, 2, None)
    1 slice(2, 4, None) to 3 slice(0, 2, None)
    """
    if min((*before, *after), default=0) < 0 or sum(before) != sum(after):
        raise InputError(
            f"blocks of {list(before)} and of {list(after)} items do not have the same items",
            hint="Give two distributions of equally many items.",
        )
    listed: list[Move] = []
    source = target = taken = put = 0
    while source < len(before) and target < len(after):
        many = min(before[source] - taken, after[target] - put)
        if many:
            listed.append(Move(source, slice(taken, taken + many), target, slice(put, put + many)))
        taken, put = taken + many, put + many
        if taken == before[source]:
            source, taken = source + 1, 0
        if put == after[target]:
            target, put = target + 1, 0
    return listed
