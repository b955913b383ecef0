"""The strategy ``pool``: runs a workflow's stages as tasks in one pool of allocations."""

from __future__ import annotations

from asa.errors import InputError

from .base import Forecast, Plan, RunView
from .chained import Chained

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
        from asa.pool.stages import POOLED  # noqa: PLC0415 - other strategies need no pool

        if not view.capabilities.system.endswith(POOLED):
            raise InputError(
                "runs on a pool of allocations",
                where=f"strategy {POOL!r}",
                hint="Use it with: asa run, or asa compare.",
            )
        return super().plan(view, forecast)
