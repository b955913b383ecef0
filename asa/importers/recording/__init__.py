"""Drivers in any language, by recording what they submit: run once with stand-ins for Slurm's programs."""

from .kept import changed_since, commands_of, folder_beside, is_as_recorded, keep, note_file
from .parameters import with_parameters
from .recorder import Recording, record
from .translation import translate

__all__ = [
    "Recording",
    "changed_since",
    "commands_of",
    "folder_beside",
    "is_as_recorded",
    "keep",
    "note_file",
    "record",
    "translate",
    "with_parameters",
]
