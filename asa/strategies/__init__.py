"""Strategies: pure planners that say which jobs to submit when.

A strategy sees a `RunView`, what is true now, and returns a `Plan`; it submits nothing itself, keeps no state and
reads no clock. The runner asks again whenever something happened. The same strategy drives a simulated queue and a
real one.
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
    "lacking",
    "load_strategy",
]
