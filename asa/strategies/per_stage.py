"""Per-Stage: one job a stage, submitted when the stages that it follows have ended."""

from __future__ import annotations

from .base import Forecast, ForecastKind, Keep, Plan, PlannedJob, RunView, Strategy


class PerStage(Strategy):
    """Ask for each stage's own cores when it is its turn (Section 2.2, equation 2): thrifty, and one wait a stage."""

    forecast = ForecastKind.NONE

    def plan(self, view: RunView, forecast: Forecast) -> Plan:  # noqa: ARG002 - it predicts nothing
        """Submit the stages whose predecessors have ended."""
        return Plan.of(
            PlannedJob((name,), view.now_s, Keep.NOTHING, "all stages that it depends on have ended")
            for name in view.to_run_now()
        )
