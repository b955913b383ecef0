"""A simulated site with a planning scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from asa.backends.simulated import SchedulerSite
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.policies import scheduler as find_scheduler
from asa.backends.simulated.site import PlanningBackend, SimulatedBackend
from asa.backends.simulated.table import JobTable

from asa.backend import JobSpec

from .core import OpenCcs
from .nodes_core import EXCLUSIVE, GPUS, MEMORY, NODES, NodesCore, NodesMachine, refuse_impossible
from .requests import ResourceRequest


class OpenCcsSite(SchedulerSite):
    """A centre or a log as in `asa.backends.simulated.SimulatedSite`, with OpenCCS as the scheduler.

    Background jobs and the client's are in one plan, and each job gets a promised start at submission
    (`asa.backend.Planning`). With `nodes` its jobs are chunks on these, under `limits` of users and free pools.

    Parameters
    ----------
    system, settings
        See `SchedulerSite`; settings of the scheduler: see `asa.backends.openccs.core.openccs`.

    Examples
    --------
    >>> from asa.backend import JobSpec
    >>> world = OpenCcsSite("hpc2n").open(seed=1)
    >>> job = JobSpec("fit", cores=112, walltime_s=600.0, run_s=300.0)
    >>> planned_s = world.planned_start(job, world.now())
    >>> job_id = world.submit(job)
    >>> while world.status([job_id])[job_id].start_s is None:
    ...     _ = world.wait(None)
    >>> world.status([job_id])[job_id].start_s <= planned_s
    True
    """

    SCHEDULER: ClassVar[str] = "openccs"

    def __init__(self, system: str | None = None, **settings: Any) -> None:
        super().__init__(system, **settings)
        found = find_scheduler(self.scheduler, self.scheduler_settings)
        self._nodes: NodesMachine | None = None
        if isinstance(found, OpenCcs) and found.nodes:
            self.shrink = self.grow = False  # the paper's jobs are rigid
            users = None if self.trace is None else self.trace.users.astype(np.int64)
            self._nodes = found.machine(self.machine.cores, self.machine.name, users)
            assert self._nodes is not None, "it has nodes"
            self._most = found.most
            of_node, cores = self._nodes.node_cores, self._nodes.cores
            is_even = len(self._nodes.system.nodes) * of_node == cores
            nodes, size = (cores // of_node, of_node) if is_even else (cores, 1)
            self.machine = Machine(self.machine.name, nodes, size)

    def _engine(self, table: JobTable) -> Engine:
        if self._nodes is None:
            return super()._engine(table)
        now = int(table.submit[0]) if len(table) else 0
        core = NodesCore(self._nodes, self.machine.cores, table, now=now, most=self._most or None)
        return Engine(self.machine.cores, table, core=core)

    def _backend(
        self, engine: Engine, make: Callable[..., SimulatedBackend] = SimulatedBackend, **more: Any
    ) -> SimulatedBackend:
        return super()._backend(engine, make if self._nodes is None else NodesBackend, **more)


class NodesBackend(PlanningBackend):
    """A simulated machine of nodes that plans: jobs may ask for nodes, memory, GPUs, and nodes of their own."""

    @property
    def _core(self) -> NodesCore:
        core = self._engine.core
        assert isinstance(core, NodesCore)
        return core

    def planned_start(self, spec: JobSpec, submit_s: float) -> float:
        """Return the planned start of a job if it were submitted at a time; see `asa.backend.Planning`."""
        request = self._request(spec)
        return float(self._core.start_of(request, math.ceil(submit_s)))

    def _amounts(self, spec: JobSpec) -> dict[str, int]:
        if spec.local:
            return {}
        refuse_impossible(self._core.machine, self._request(spec), spec.name)
        return _amounts_of(spec)

    def _request(self, spec: JobSpec) -> ResourceRequest:
        cores = self._machine.allocated(spec.cores, spec.nodes)
        return self._core.machine.request(cores, math.ceil(spec.walltime_s), _amounts_of(spec))


def _amounts_of(spec: JobSpec) -> dict[str, int]:
    """Return what a job asks for besides cores."""
    amounts = {NODES: spec.nodes, MEMORY: spec.memory_bytes, GPUS: spec.gpus, EXCLUSIVE: int(spec.exclusive)}
    return {name: amount for name, amount in amounts.items() if amount}
