"""The strategy ``pool``: runs a workflow's stages as tasks in one pool of allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asa.errors import InputError
from asa.strategies.base import Forecast, Plan, RunView
from asa.strategies.chained import Chained

if TYPE_CHECKING:
    from asa.backend import Facility
    from asa.sites import OpenedSite
    from asa.workflow import Workflow

POOL = "pool"


class OnPool(Chained):
    """Run stages as tasks on shared allocations, which the pool requests ahead of time by what the graph needs."""

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Submit all stages at once, in topological order.

        Raises
        ------
        InputError
            The site is no pool.
        """
        from asa.pool.stages import POOLED

        if not view.capabilities.system.endswith(POOLED):
            raise InputError(
                "runs on a pool of real allocations", where=f"strategy {POOL!r}", hint="Use it with: asa run."
            )
        return super().plan(view, forecast)


def workflow_for(strategy: str, workflow: Workflow) -> Workflow:
    """Return the workflow that a strategy runs: the given one, or for ``pool`` one of the pool's tasks."""
    if strategy != POOL:
        return workflow
    from asa.pool.stages import as_tasks

    return as_tasks(workflow)


def facility_for(strategy: str, opened: OpenedSite, workflow: Workflow) -> Facility:
    """Return the facility that runs the stages: the site, or a pool of its allocations."""
    if strategy != POOL:
        return opened.facility
    from asa.backend import Site
    from asa.pool.stages import PoolOfStages

    if isinstance(opened.facility, Site):
        raise InputError(
            f"strategy {POOL!r} runs its tasks in real jobs, and {opened.backend!r} only simulates them",
            where=f"--backend {opened.backend}",
            hint="Use a batch system, or --backend local.",
        )
    return PoolOfStages(opened, workflow)
