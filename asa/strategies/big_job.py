"""Big Job: one allocation of the widest stage's cores for the whole run."""

from __future__ import annotations

from .base import Forecast, ForecastKind, Keep, Phase, Plan, PlannedJob, RunView

__all__ = ["BigJob"]


class BigJob:
    """Ask once, for the peak, for the sum of all stages (Section 2.2, equation 1): one wait, and idle cores."""

    forecast = ForecastKind.NONE

    def plan(self, view: RunView, forecast: Forecast) -> Plan:  # noqa: ARG002 - it predicts nothing
        """Submit everything as one job at once."""
        if any(stage.phase is not Phase.WAITING for stage in view.stages.values()):
            return Plan()
        reason = "one job for the whole workflow, as wide as its widest stage"
        return Plan.of([PlannedJob(view.workflow.order, view.now_s, Keep.NOTHING, reason)])
