"""Chained: all stages are submitted at once, and dependencies keep them in order."""

from __future__ import annotations

from asa.backend import DependencyType

from .base import Forecast, ForecastKind, Keep, Phase, Plan, PlannedJob, RunView, Strategy
from .legs import NextLeg, behind


class Chained(Strategy):
    """Submit the whole graph at the start, each job with dependencies on those it follows.

    Many users do this today. If a dependent job's age accrues, its wait overlaps with the stages before it; if not,
    this is Per-Stage without the client's own delay.
    """

    forecast = ForecastKind.NONE
    next_leg: NextLeg = staticmethod(behind)
    needs = frozenset({DependencyType.AFTEROK})

    def plan(self, view: RunView, forecast: Forecast) -> Plan:  # noqa: ARG002 - it predicts nothing
        """Submit every stage at once."""
        return Plan.of(
            PlannedJob(
                (name,),
                view.now_s,
                Keep.NOTHING if view.is_ready(name) else Keep.DEPENDENCY,
                "everything is submitted at the start",
            )
            for name in view.left()
            if view.stages[name].phase is Phase.WAITING
        )
