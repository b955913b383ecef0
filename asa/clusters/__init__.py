"""Several clusters as one batch system: stages of one run go to where they are expected to end first.

A partition is named with its cluster, as in ``batch@big``, and so is a job, as in ``12@big``, since clusters count
their jobs by themselves. The run's folder is on a file system that all clusters share; each cluster keeps what is its
own, scripts and records of its jobs, in a folder of its name there.
"""

from __future__ import annotations

from .facility import SeveralClusters

__all__ = ["SeveralClusters"]
