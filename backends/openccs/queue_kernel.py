"""The loop of backfilling where all that is planned is cores: the plan is one vector."""

from __future__ import annotations

from typing import Any

from asa.core.compiled import kernel

from .rusv_kernel import FOREVER, change, earliest

__all__ = ["ENDLESS", "improve"]

ENDLESS = 1 << 50
"""More cores than there are anywhere."""


@kernel
def improve(
    times: Any, items: Any, count: int, queue: Any, many: int,
    starts: Any, lasts: Any, widths: Any, capacity: int, now: int,
) -> int:  # fmt: skip
    """Look for an earlier start of each queued job, in order; none starts later. O(jobs x slots).

    The arrays have room for two more steps a job. Returns how many steps there are then.
    """
    for i in range(many):
        job = queue[i]
        old, long, wide = starts[job], lasts[job], widths[job]
        if old > now:
            count = change(times, items, count, old, old + long, -wide, 0, ENDLESS)
            new = earliest(times, items, count, 1, capacity - wide, long, now, old + long - 1)
            if new == FOREVER:
                new = old
            count = change(times, items, count, new, new + long, wide, 0, ENDLESS)
            starts[job] = new
    return count
