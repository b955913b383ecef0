"""The run loop: observe, plan, act, until every workflow has ended."""

from .forecasts import learn_history
from .loop import Run, RunResult, run_all

__all__ = ["Run", "RunResult", "learn_history", "run_all"]
