"""Imports drivers in any language: runs a driver with stand-ins for Slurm's programs, and records its submissions."""

from .kept import keep
from .parameters import with_parameters
from .recorder import NoPrivateViewError, Recording, record
from .translation import translate

__all__ = ["NoPrivateViewError", "Recording", "keep", "record", "translate", "with_parameters"]
