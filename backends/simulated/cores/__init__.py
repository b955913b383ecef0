"""Machines with a queue and a clock, for the engine and its client."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["slow"]


def slow() -> str:
    """Return the reason why simulations are slow here; empty if they are not."""
    if find_spec("numba") is not None:
        return ""
    return "numba is not installed: simulating takes some 40 times as long (pip install numba)"
