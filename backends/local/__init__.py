"""The user's own machine as a batch system, with its processes, its cores, and a real queue."""

from .facility import LocalMachine

__all__ = ["LocalMachine"]
