"""The strategy ``pool``: a workflow's stages as tasks of one pool of allocations."""

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
    """Run stages as tasks on allocations that they share, asked for ahead of time by what the graph needs."""

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
    """Give a workflow as a strategy runs it: its own stages, or those that a pool's tasks are made of."""
    if strategy != POOL:
        return workflow
    from asa.pool.stages import as_tasks

    return as_tasks(workflow)


def facility_for(strategy: str, opened: OpenedSite, workflow: Workflow) -> Facility:
    """Give what a run's stages are handed to: the site, or a pool of its allocations."""
    if strategy != POOL:
        return opened.facility
    from asa.pool.stages import PoolOfStages

    return PoolOfStages(opened, workflow)
