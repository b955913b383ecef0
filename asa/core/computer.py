"""The name of this computer, as a system of its own."""

from __future__ import annotations

import platform


def is_here(system: str) -> bool:
    """Whether a system is this computer, whose jobs run without a batch system."""
    return system == platform.node().partition(".")[0]


def tells_of(system: str, other: str) -> bool:
    """Whether run times on one system tell of those on another: those on this computer, often trials, tell of no other.

    Examples
    --------
    >>> tells_of("a cluster", "another"), tells_of(platform.node().partition(".")[0], "a cluster")
    (True, False)
    """
    return is_here(other) or not is_here(system)
