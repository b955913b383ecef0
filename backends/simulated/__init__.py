"""The simulated queue: a batch system in which a day passes in milliseconds.

>>> from asa.backend import JobSpec
>>> queue = SimulatedSite("hpc2n").open(seed=1)
>>> job = queue.submit(JobSpec("hello", cores=28, walltime_s=600, run_s=60))
>>> status, = queue.wait(None)
>>> status.state.value
'running'
"""

from .machine import SYSTEMS, Machine
from .site import SimulatedBackend, SimulatedSite
from .swf import Trace, read_swf
from .workload import WorkloadModel

__all__ = ["SYSTEMS", "Machine", "SimulatedBackend", "SimulatedSite", "Trace", "WorkloadModel", "read_swf"]
