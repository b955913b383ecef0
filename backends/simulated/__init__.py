"""The simulated queue: a batch system in which a day passes in milliseconds.

>>> from asa.backend import JobSpec
>>> from asa.backends.simulated import SimulatedSite
>>> queue = SimulatedSite("hpc2n").open(seed=1)
>>> job = queue.submit(JobSpec("hello", cores=28, walltime_s=600, run_s=60))
>>> status, = queue.wait(None)
>>> status.state.value
'running'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .machine import SYSTEMS, Machine
    from .site import SchedulerSite, SimulatedBackend, SimulatedSite
    from .swf import Trace, read_swf
    from .workload import WorkloadModel

__all__ = [
    "SYSTEMS",
    "Machine",
    "SchedulerSite",
    "SimulatedBackend",
    "SimulatedSite",
    "Trace",
    "WorkloadModel",
    "read_swf",
]

# loaded on first use: the command line imports this package only for its commands, which do not need numpy
_PLACES = {
    "SYSTEMS": ".machine",
    "Machine": ".machine",
    "SchedulerSite": ".site",
    "SimulatedBackend": ".site",
    "SimulatedSite": ".site",
    "Trace": ".swf",
    "WorkloadModel": ".workload",
    "read_swf": ".swf",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
