"""A binary heap of integers; each combines the end of a running job and its number."""

from __future__ import annotations

from typing import Any

from asa.core.compiled import At, kernel

BITS = 24
"""Bits of a key for the number of the job."""
MASK = (1 << BITS) - 1


@kernel
def push(keys: Any, count: int, key: int) -> None:
    """Add a key to a heap of `count`, or fill a hole at that place, which must not be below the key's position."""
    i = count
    while i > 0:
        parent = (i - 1) >> 1
        if keys[At(parent)] <= key:
            break
        keys[At(i)] = keys[At(parent)]
        i = parent
    keys[At(i)] = key


@kernel
def pop(keys: Any, last: int, place: int) -> None:
    """Remove the key at a position, 0 for the least one, from a heap of ``last + 1``.

    The hole sinks to a leaf without comparing the key that will fill it, which nearly always belongs there.
    """
    i = place
    child = 2 * i + 1
    while child + 1 < last:
        child += keys[At(child + 1)] < keys[At(child)]
        keys[At(i)] = keys[At(child)]
        i = child
        child = 2 * i + 1
    if child < last:
        keys[At(i)] = keys[At(child)]
        i = child
    if i < last:
        push(keys, i, keys[At(last)])


@kernel
def forget(keys: Any, last: int, key: int) -> None:
    """Remove a key from a heap of ``last + 1``, at any position."""
    i = 0
    while keys[At(i)] != key:
        i += 1
    pop(keys, last, i)
