"""The loop that tries every selection of the jobs of a window."""

from __future__ import annotations

from typing import Any

from asa.core.compiled import At, kernel


@kernel
def try_all(uses: Any, jobs: int, limits: Any, used: Any, best: Any, sets: Any) -> None:
    """Find the largest second part of a usage for each value of the first, in all 2^jobs selections (in Gray's order).

    `used`: the usage of the forced jobs. `best`: -1 at the beginning. `sets`: the selection; the first job is its
    highest bit, so that the larger of two has the jobs nearest the head.
    """
    first, second, chosen = used[0], used[1], 0
    best[At(first)] = second
    for step in range(1, 1 << jobs):
        bit = 0
        while step >> bit & 1 == 0:
            bit += 1
        job = jobs - 1 - bit
        chosen ^= 1 << bit
        sign = 1 if chosen >> bit & 1 else -1
        first += sign * uses[At(2 * job)]
        second += sign * uses[At(2 * job + 1)]
        if first <= limits[0] and second <= limits[1]:
            old = best[At(first)]
            if second > old or (second == old and chosen > sets[At(first)]):
                best[At(first)] = second
                sets[At(first)] = chosen
