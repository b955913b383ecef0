"""Submit the stages of a workflow ahead of time, by learning how long the batch queue makes each job wait.

Importing this package loads nothing; a name is loaded at its first use. The estimator needs numpy and nothing heavier,
so that it can be used alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asa.attended import resume
    from asa.continuation import Continuation
    from asa.errors import AsaError
    from asa.estimators import Asa, Prediction, WaitBank, WaitStore
    from asa.flow import Flow, stage
    from asa.geometry import JobGeometry
    from asa.preparation import Preparation
    from asa.runner import Run, run_all
    from asa.spec import load_workflow
    from asa.waits import QueuedJob, WaitForecast, WaitObservation, at_least, at_most, exactly
    from asa.workflow import Stage, Workflow

__version__ = "0.2.0"
__all__ = [
    "Asa",
    "AsaError",
    "Continuation",
    "Flow",
    "JobGeometry",
    "Prediction",
    "Preparation",
    "QueuedJob",
    "Run",
    "Stage",
    "WaitBank",
    "WaitForecast",
    "WaitObservation",
    "WaitStore",
    "Workflow",
    "at_least",
    "at_most",
    "exactly",
    "load_workflow",
    "resume",
    "run_all",
    "stage",
]

_LAZY = {
    "Asa": "asa.estimators",
    "AsaError": "asa.errors",
    "Continuation": "asa.continuation",
    "JobGeometry": "asa.geometry",
    "Prediction": "asa.estimators",
    "Preparation": "asa.preparation",
    "QueuedJob": "asa.waits",
    "WaitBank": "asa.estimators",
    "WaitForecast": "asa.waits",
    "WaitObservation": "asa.waits",
    "WaitStore": "asa.estimators",
    "at_least": "asa.waits",
    "at_most": "asa.waits",
    "exactly": "asa.waits",
    "Flow": "asa.flow",
    "Run": "asa.runner",
    "Stage": "asa.workflow",
    "Workflow": "asa.workflow",
    "load_workflow": "asa.spec",
    "resume": "asa.attended",
    "run_all": "asa.runner",
    "stage": "asa.flow",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
