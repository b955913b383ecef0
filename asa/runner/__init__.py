"""The run loop: observe, plan, act, until every workflow has ended; and all that lets it be interrupted anywhere."""

from .active import Run, Wish
from .drive import drive
from .folder import Pulse, RunFolder, RunPlan, default_runs_folder, find_run, list_runs, run_paths
from .journal import Journal, read_journal
from .loop import RunResult, run_all

__all__ = [
    "Journal",
    "Pulse",
    "Run",
    "RunFolder",
    "RunPlan",
    "RunResult",
    "Wish",
    "default_runs_folder",
    "drive",
    "find_run",
    "list_runs",
    "read_journal",
    "run_all",
    "run_paths",
]
