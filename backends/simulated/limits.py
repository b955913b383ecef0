"""Special numbers, and upper bounds of counting."""

from __future__ import annotations

from asa.units import MAX_CORES

__all__ = ["LATEST_S", "LONGEST_S", "MAX_CORES", "NEVER", "UNSTARTED"]

NEVER = 1 << 62
UNSTARTED = -1
LONGEST_S = 2**31 - 2
"""Upper bound of requests and runs in seconds, about 68 years; longer ones count as this."""
LATEST_S = 2**38
"""All events must be before this second, even if all jobs ran one after the other."""
