"""A twin of a site: its machine, its scheduler's rules and its jobs, in which a workflow can be tried out."""

from .agreement import Agreement
from .model import Twin
from .site import TwinSite

__all__ = ["Agreement", "Twin", "TwinSite"]
