"""The run loop: observe, plan, act, until every workflow has ended."""

from .loop import Run, RunResult, run_all

__all__ = ["Run", "RunResult", "run_all"]
