"""What a hosted run gained, in a line for its user."""

from __future__ import annotations

from statistics import median, quantiles

from asa.metrics import measure
from asa.records import Ended, Observed
from asa.runner.folder import RunFolder
from asa.units import format_core_hours, format_duration


def gained(folder: RunFolder) -> str:
    """Return what a run cost, and what a job for each stage would have waited; empty if it has not completed.

    With a job for each, every stage of the critical path waits in the queue, each about as long as this run's own
    allocations did; the range is that of their quartiles.
    """
    state, records = folder.state()
    try:
        metrics = measure(state.workflow, records)
    except ValueError:
        return ""
    path = [stage.perceived_wait_s for stage in metrics.stages if stage.critical]
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
