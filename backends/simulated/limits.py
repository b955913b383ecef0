"""Special numbers, and upper bounds of counting."""

from __future__ import annotations

from asa.units import MAX_CORES

__all__ = ["LATEST_S", "LONGEST_S", "MAX_CORES", "NEVER", "UNSTARTED"]

NEVER = 1 << 62
UNSTARTED = -1
LONGEST_S = 2**31 - 2
"""Longer requests and runs, beyond 68 years, count as so long."""
LATEST_S = 2**38
"""Nothing may happen at this second or later, though all jobs ran one after the other."""
