"""What a hosted run gained, in a line for its user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from statistics import median, quantiles

from asa.metrics import RunMetrics, measure
from asa.records import Ended, Observed, Record, StageStarted
from asa.runner.folder import RunFolder
from asa.runner.state import RunState
from asa.units import format_core_hours, format_duration


def gained(folder: RunFolder) -> str:
    """Return what a run cost, and what a job for each stage would have waited; empty if it has not completed.

    What a stage waits before it is handed over is the host's affair, such as its upper bound of jobs at a time.

    With a job for each, every stage of the critical path waits in the queue, each about as long as this run's own
    allocations did; the range is that of their quartiles.
    """
    state, records = folder.state()
    try:
        metrics = measure(state.workflow, records)
    except ValueError:
        return ""
    path = list(_waits_on_the_path(state, metrics, records))
    allocations = sum(isinstance(record, Ended) and record.payload_start_s is not None for record in records)
    waits = [record.wait_s for record in records if isinstance(record, Observed) and record.bound == "exact"]
    parts = [
        f"{_count(len(metrics.stages), 'job')} in {_count(allocations, 'allocation')}",
        f"waited {format_duration(sum(path))}",
        f"{format_core_hours(metrics.core_hours)} core-hours",
    ]
    if waits and allocations < len(metrics.stages):
        low, _, high = quantiles(waits, n=4, method="inclusive") if len(waits) > 1 else waits * 3
        usual, least, most = (format_duration(len(path) * wait_s) for wait_s in (median(waits), low, high))
        between = f" ({least} to {most})" if least != most else ""
        parts.append(f"one job each would have waited about {usual}{between}")
    return f"{'; '.join(parts)}: asa report {folder.path}"


def _waits_on_the_path(state: RunState, metrics: RunMetrics, records: Iterable[Record]) -> Iterator[float]:
    """Yield how long each stage of the critical path waited, once it could run and had been handed over."""
    began_s = {name: r.time_s for r in records if isinstance(r, StageStarted) for name in r.stages}
    for stage in metrics.stages:
        if stage.critical:
            claimed_s = state.host.claimed_s.get(stage.stage, -math.inf)
            yield min(stage.perceived_wait_s, max(began_s[stage.stage] - claimed_s, 0.0))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
