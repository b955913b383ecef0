"""Slurm through its commands, for the many sites without a REST daemon; on this machine or over ssh."""

from __future__ import annotations

from .link import CommandLink
from .process import Done

__all__ = ["CommandLink", "Done"]
