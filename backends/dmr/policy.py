"""The reconfiguration policy of section 4: the resource manager's answers to jobs that ask whether to resize.

Three modes, the first that applies:

request an action (4.1)
    The job holds fewer nodes than its minimum, or more than its maximum. The answer is the smallest change to within
    these.
preferred number of nodes (4.2)
    The job has a preferred size. With an empty queue the job grows as far as it may, else it goes to that size.
wide optimisation (4.3)
    It shrinks if that lets a queued job start, and grows if no queued job could use the free nodes.

Where the paper leaves room
---------------------------
- With an empty queue, a job at its preferred size grows: 4.2 says both "no action" and "the expansion can be granted",
  and in section 7.5 the last job, which had been at its preferred size, "has been expanded".
- A shrink to the preferred size needs no queued job that gains by it: in section 7.5 jobs are scaled down though the
  next one in the queue needs more than what is then free. If a job does gain, it is promoted, as in 4.3.
- In wide optimisation a shrink is tried before an expansion. In the opposite order, a job would grow into nodes that it
  would then have to give back.
- Of the queued jobs, the first that gains counts; of the sizes that let it start, the largest.
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
    """Return the sizes to which a job of this number of nodes can be resized, in order, without its own.

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
class PolicyAnswer:
    """An answer of the resource manager."""

    action: Action
    nodes: int  # the job's number of nodes afterwards
    # index in the queue of the job that gets the highest priority, because a shrink lets it start
    promotes: int | None = None


def decide(nodes: int, wish: Wish, *, free: int, queued: Sequence[int]) -> PolicyAnswer:
    """Answer a check (section 4).

    `wish`: the job's arguments of a check (section 5.1), where a process is a node.
    `queued`: nodes that each pending job needs, in order of priority.

    Examples
    --------
    >>> decide(16, Wish(1, 20), free=0, queued=[20, 4])
    PolicyAnswer(action=<Action.SHRINK: 'shrink'>, nodes=8, promotes=1)
    """
    others = sizes_from(wish, nodes)
    own = bisect_left(others, nodes)  # the present size is not among them
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
        return PolicyAnswer(Action.NONE, nodes)
    if size > nodes:
        return PolicyAnswer(Action.EXPAND, size)
    gains = (index for index, need in enumerate(queued) if free < need <= free + nodes - size)
    return PolicyAnswer(Action.SHRINK, size, next(gains, None))


def _widely(nodes: int, smaller: Sequence[int], larger: Sequence[int], free: int, queued: Sequence[int]) -> int:
    """Return the size by section 4.3."""
    if smaller:
        most = free + nodes - smaller[0]
        for need in queued:
            if free < need <= most:
                return max(size for size in smaller if free + nodes - size >= need)
    if larger and all(need > free for need in queued):
        return larger[-1]
    return nodes


def unpromised(free: int, coming: int, queued: Sequence[int], promoted: int) -> tuple[int, list[int]]:
    """Return the nodes and queued jobs available to a decision: those without promises by earlier answers.

    A shrink takes a while. Until then its beneficiary is still pending, and no other job must shrink for it.

    `coming`: nodes that jobs are about to give back, less those that others are about to get.
    `queued`: nodes that each pending job needs, in order of priority.
    Returns: idle nodes, and the places in the queue of jobs, without promises.

    Examples
    --------
    >>> unpromised(0, 4, [4, 8], 1)
    (0, [1])
    >>> unpromised(2, 0, [4, 8], 1)
    (2, [0, 1])
    """
    left, kept = free + coming, []
    for index, need in enumerate(queued[:promoted]):
        if need <= left:
            left -= need
        else:
            kept.append(index)
    return max(min(free, left), 0), [*kept, *range(promoted, len(queued))]


def next_check(iteration_s: float, since_s: float, period_s: float) -> int:
    """Return the number of iterations to the next check that is not ignored (the checking inhibitor, section 5.1).

    `since_s`: time since the last answered check, or since the start.

    Examples
    --------
    >>> next_check(0.5, 0.0, 15.0), next_check(0.5, 14.8, 15.0), next_check(40.0, 0.0, 15.0), next_check(40.0, 0.0, 0.0)
    (30, 1, 1, 1)
    """
    return max(ceil((period_s - since_s) / iteration_s - _ROUNDING), 1)
