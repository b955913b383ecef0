"""Machines with a queue and a clock, for the engine and its client."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["slow"]


def slow() -> str:
    """Say why simulating takes long here; nothing if it does not."""
    if find_spec("numba") is not None:
        return ""
    return "numba is not installed: simulating takes some 40 times as long (pip install numba)"
