"""Per-Stage: one job per stage, submitted when the stage's predecessors have ended."""

from __future__ import annotations

from .base import Forecast, ForecastKind, Keep, Plan, PlannedJob, RunView, Strategy


class PerStage(Strategy):
    """Submit each stage with its own cores at its turn (Section 2.2, equation 2): no idle cores, a wait per stage."""

    forecast = ForecastKind.NONE

    def plan(self, view: RunView, forecast: Forecast) -> Plan:  # noqa: ARG002 - it predicts nothing
        """Submit the stages whose predecessors have ended."""
        return Plan.of(
            PlannedJob((name,), view.now_s, Keep.NOTHING, "all stages that it depends on have ended")
            for name in view.to_run_now()
        )
