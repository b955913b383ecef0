"""Where the strategy ``pool`` runs a workflow: in a pool of a site's allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asa.errors import InputError
from asa.strategies.on_pool import POOL

if TYPE_CHECKING:
    from asa.backend import Facility
    from asa.sites import OpenedSite
    from asa.workflow import Workflow


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
