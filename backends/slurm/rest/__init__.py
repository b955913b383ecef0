"""Slurm over HTTP: slurmrestd's API v0.0.38 and v0.0.40 to v0.0.45."""

from .exchange import InClearError, StrangerError
from .link import RestLink
from .tokens import TokenSource

__all__ = ["InClearError", "RestLink", "StrangerError", "TokenSource"]
