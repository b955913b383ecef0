"""The machine that one sits at as a batch system: its processes, its cores, and an honest queue."""

from .facility import LocalMachine

__all__ = ["LocalMachine"]
