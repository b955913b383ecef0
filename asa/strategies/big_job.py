"""Big Job: one allocation of the widest stage's cores for the whole run."""

from __future__ import annotations

from .base import Forecast, ForecastKind, Keep, Phase, Plan, PlannedJob, RunView, Strategy


class BigJob(Strategy):
    """Submit one job of peak cores for the sum of all run times (Section 2.2, equation 1): one wait, idle cores."""

    forecast = ForecastKind.NONE
    is_one_job = True

    def plan(self, view: RunView, forecast: Forecast) -> Plan:  # noqa: ARG002 - it predicts nothing
        """Submit everything as one job at once."""
        left = tuple(name for name in view.left() if view.stages[name].phase is not Phase.CONDITIONAL)
        if not left or any(view.stages[name].phase is not Phase.WAITING for name in left):
            return Plan()
        what = "the whole workflow" if len(left) == len(view.workflow.order) else "what is left"
        reason = f"one job for {what}, with the cores of its widest stage"
        return Plan.of([PlannedJob(left, view.now_s, Keep.NOTHING, reason)])
