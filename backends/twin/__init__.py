"""Twins of sites: the machine, the scheduler's rules and the jobs of a site, for simulating workflows."""

from .agreement import Agreement
from .model import Twin
from .site import TwinSite

__all__ = ["Agreement", "Twin", "TwinSite"]
