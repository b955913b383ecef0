"""The reconfiguration policy of section 4: what the resource manager answers to a job that asks whether to resize.

Three modes, the first that applies:

request an action (4.1)
    The job holds fewer nodes than its least, or more than its most. It is given the smallest change that ends that.
preferred number of nodes (4.2)
    The job names a size that it prefers. With nobody queued it grows as far as it may, else it goes to that size.
wide optimisation (4.3)
    It shrinks if that lets a queued job start, and grows if no queued job could use the free nodes.

Where the paper leaves room
---------------------------
- With nobody queued, a job at its preferred size grows: 4.2 says both "no action" and "the expansion can be granted",
  and in section 7.5 the last job, which had been at its preferred size, "has been expanded".
- A shrink to the preferred size needs no queued job that gains by it: in section 7.5 jobs are scaled down though the
  next one in the queue needs more than what is then free. Whenever one does gain, it is promoted, as 4.3 has it.
- In wide optimisation a shrink goes before an expansion. In the other order a job would grow into what it is then asked
  to give back.
- Of the queued jobs the first that gains counts, and of the sizes that let it start the largest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from asa.dmr.protocol import Action, Wish

_ROUNDING = 1e-9


def sizes_from(wish: Wish, nodes: int) -> tuple[int, ...]:
    """Give the sizes that a job of so many nodes can be resized to, in order; its own is not among them.

    Examples
    --------
    >>> sizes_from(Wish(2, 32), 8)
    (2, 4, 16, 32)
    >>> sizes_from(Wish(1, 20), 12)
    (3, 6)
    """
    return _sizes(wish.minimum, wish.maximum, wish.factor, nodes)


@lru_cache(maxsize=1 << 16)
def _sizes(least: int, most: int, factor: int, nodes: int) -> tuple[int, ...]:
    smaller, larger = [], []
    size = nodes
    while size % factor == 0:
        size //= factor
        smaller.append(size)
    size = nodes * factor
    while size <= most:
        larger.append(size)
        size *= factor
    return tuple(size for size in (*reversed(smaller), *larger) if least <= size <= most)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the resource manager answers."""

    action: Action
    nodes: int  # how many the job has then
    # place in the queue of the job that gets the highest priority, as it can start on what a shrink gives back
    promotes: int | None = None


def decide(nodes: int, wish: Wish, *, free: int, queued: Sequence[int]) -> Answer:
    """Answer a check (section 4).

    `wish`: what the job hands over with a check (section 5.1): of it, a process is a node.
    `queued`: nodes that each waiting job needs, in the order of their priority.

    Examples
    --------
    >>> decide(16, Wish(1, 20), free=0, queued=[20, 4])
    Answer(action=<Action.SHRINK: 'shrink'>, nodes=8, promotes=1)
    """
    others = sizes_from(wish, nodes)
    own = bisect_left(others, nodes)  # it is not among them
    smaller, larger = others[:own], others[own : bisect_right(others, nodes + free)]
    size = nodes
    if nodes < wish.minimum:
        size = min(larger, default=nodes)
    elif nodes > wish.maximum:
        size = max(smaller, default=nodes)
    elif wish.preferred is None:
        size = _widely(nodes, smaller, larger, free, queued)
    elif not queued:
        size = max(larger, default=nodes)
    elif nodes > wish.preferred:
        size = min((size for size in smaller if size >= wish.preferred), default=nodes)
    elif nodes < wish.preferred:
        size = max((size for size in larger if size <= wish.preferred), default=nodes)
    if size == nodes:
        return Answer(Action.NONE, nodes)
    if size > nodes:
        return Answer(Action.EXPAND, size)
    gains = (place for place, need in enumerate(queued) if free < need <= free + nodes - size)
    return Answer(Action.SHRINK, size, next(gains, None))


def _widely(nodes: int, smaller: Sequence[int], larger: Sequence[int], free: int, queued: Sequence[int]) -> int:
    """Find the size of section 4.3."""
    if smaller:
        most = free + nodes - smaller[0]
        for need in queued:
            if free < need <= most:
                return max(size for size in smaller if free + nodes - size >= need)
    if larger and all(need > free for need in queued):
        return larger[-1]
    return nodes


def unpromised(free: int, coming: int, queued: Sequence[int], promoted: int) -> tuple[int, list[int]]:
    """Say what a decision may count on: nodes and queued jobs that no earlier answer has promised, nor been given.

    A shrink takes a while. Until then the job that it is for still waits, and another job must not shrink for it, too.

    `coming`: nodes that jobs are about to give back, less those that others are about to get.
    `queued`: nodes that each waiting job needs, in the order of their priority.
    Returns: idle nodes, and the places in the queue of jobs, that nothing was promised of, nor to.

    Examples
    --------
    >>> unpromised(0, 4, [4, 8], 1)
    (0, [1])
    >>> unpromised(2, 0, [4, 8], 1)
    (2, [0, 1])
    """
    left, kept = free + coming, []
    for place, need in enumerate(queued[:promoted]):
        if need <= left:
            left -= need
        else:
            kept.append(place)
    return max(min(free, left), 0), [*kept, *range(promoted, len(queued))]


def next_check(iteration_s: float, since_s: float, period_s: float) -> int:
    """Count the iterations to the next check that is not ignored (the checking inhibitor, section 5.1).

    `since_s`: time since the last check that was answered, or since the start.

    Examples
    --------
    >>> next_check(0.5, 0.0, 15.0), next_check(0.5, 14.8, 15.0), next_check(40.0, 0.0, 15.0), next_check(40.0, 0.0, 0.0)
    (30, 1, 1, 1)
    """
    return max(ceil((period_s - since_s) / iteration_s - _ROUNDING), 1)
