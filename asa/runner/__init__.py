"""The run loop: observe, plan, act, until every workflow has ended."""

from .journal import Journal, read_journal
from .loop import Run, RunResult, Wish, run_all

__all__ = ["Journal", "Run", "RunResult", "Wish", "read_journal", "run_all"]
