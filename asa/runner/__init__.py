"""The run loop: observe, plan and act until every workflow has ended; it can be interrupted at any point."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .active import Run
    from .driver import drive
    from .folder import Pulse, RunFolder, RunPlan, default_runs_folder, find_run, list_runs, open_listed, run_paths
    from .journal import Journal, read_journal
    from .loop import RunResult, run_all
    from .requests import CancelRequest

__all__ = [
    "CancelRequest",
    "Journal",
    "Pulse",
    "Run",
    "RunFolder",
    "RunPlan",
    "RunResult",
    "default_runs_folder",
    "drive",
    "find_run",
    "list_runs",
    "open_listed",
    "read_journal",
    "run_all",
    "run_paths",
]

_LAZY = {  # reading a run must not import the modules that drive one
    "Journal": "journal",
    "Pulse": "folder",
    "Run": "active",
    "RunFolder": "folder",
    "RunPlan": "folder",
    "RunResult": "loop",
    "CancelRequest": "requests",
    "default_runs_folder": "folder",
    "drive": "driver",
    "find_run": "folder",
    "list_runs": "folder",
    "open_listed": "folder",
    "read_journal": "journal",
    "run_all": "loop",
    "run_paths": "folder",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
