"""What campaigns take of a run, and of several the moment that is typical."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from asa.errors import RunError
from asa.metrics import RunMetrics, measure
from asa.runner import RunResult
from asa.timeline import Timeline, timeline
from asa.workflow import Workflow

__all__ = ["measured", "typical"]

_K = TypeVar("_K")


def measured(
    workflow: Workflow, result: RunResult, where: str, *, age_accrues: bool = True
) -> tuple[RunMetrics, Timeline]:
    """Give what a run took and cost, and what its jobs did.

    `age_accrues`: whether at its site a job gains priority while a dependency keeps it back.
    """
    if result.outcome != "completed":
        raise RunError(f"did not complete: {result.reason}", where=where, hint="Look at it with: asa compare.")
    return measure(workflow, result.records), timeline(result.records, workflow, age_accrues=age_accrues)


def typical(makespans_s: Mapping[_K, float]) -> _K:
    """Choose what is in the middle by its makespan, of two the quicker, of equals the first.

    `makespans_s`: each one's makespan in seconds, or a sum of several; at least one.

    Examples
    --------
    >>> typical({"a": 30.0, "b": 10.0, "c": 20.0, "d": 20.0})
    'c'
    """
    return sorted(makespans_s, key=makespans_s.__getitem__)[(len(makespans_s) - 1) // 2]
