"""Drivers in any language, by recording what they submit: run once with stand-ins for Slurm's programs."""

from .kept import changed_since, folder_beside, keep
from .recorder import Recording, record
from .translation import translate

__all__ = ["Recording", "changed_since", "folder_beside", "keep", "record", "translate"]
