"""Strategies: pure planners that say which jobs to submit when.

A strategy gets a `RunView`, the present state, and returns a `Plan`; it submits nothing itself, keeps no state and
reads no clock. The runner calls it again after every event. The same strategy drives a simulated queue and a real one.
"""

from .base import (
    Cancellation,
    Forecast,
    ForecastKind,
    GrowthView,
    Keep,
    Phase,
    Plan,
    PlannedJob,
    RunView,
    Sizing,
    StageView,
    Strategy,
    Substitute,
    lacking,
    load_strategy,
)

__all__ = [
    "Cancellation",
    "Forecast",
    "ForecastKind",
    "GrowthView",
    "Keep",
    "Phase",
    "Plan",
    "PlannedJob",
    "RunView",
    "Sizing",
    "StageView",
    "Strategy",
    "Substitute",
    "lacking",
    "load_strategy",
]
