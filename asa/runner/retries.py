"""Decides what happens after a job failed: whether its stages are asked for again or retried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from asa.backend import Capabilities, End, JobState, JobStatus
from asa.outcome import JobOutcome, meaning, outcome_of, would_end_so_again
from asa.requests import with_memory
from asa.runner.jobs import Job
from asa.strategies.base import StageView
from asa.units import format_duration
from asa.workflow import Stage

_NO_NEWS = frozenset({"", "None", "NonZeroExitCode"})  # reasons that say less than the exit code
_PAUSE_S = 5.0  # before the first retry
_LONGEST_PAUSE_S = 60.0
_GAVE_BACK = frozenset({JobOutcome.GAVE_BACK, JobOutcome.OUTRUN})
_KILLED = 128 + 9  # exit code of a process that the kernel killed
_MAX_AVOIDED = 8  # upper bound of avoided nodes, so that enough nodes remain if failures continue
_MAX_SHORT = 5  # times that a stage is asked for again after a job had too few cores


def is_short(job: Job, view: StageView) -> bool:
    """Whether a job ended because it had fewer cores than its stage needs, although another job may get enough."""
    has_few = job.status.state is JobState.FAILED and outcome_of(job.status) is JobOutcome.TOO_FEW_CORES
    return has_few and view.resubmissions < _MAX_SHORT


def may_retry(job: Job, view: StageView) -> bool:
    """Whether the stage of a failed job may be retried."""
    if job.status.state is JobState.CANCELLED:
        return False  # somebody cancelled the job
    if job.status.state is JobState.FAILED and would_end_so_again(job.status):
        return False  # the job would fail again
    return view.attempts < view.stage.retries


def has_run_out_of_memory(status: End) -> bool:
    """Whether a job or an element ran out of memory, by the batch system's report or its own."""
    if status.state is not JobState.FAILED:
        return False
    if status.reason.replace("_", "").lower() == "outofmemory" or status.exit_code == _KILLED:
        return True
    return status.outcome is JobOutcome.OUT_OF_MEMORY


def with_more_memory(stage: Stage, capabilities: Capabilities) -> Stage:
    """Return a stage with more memory, by its own factor, up to its own limit and that of its partition's nodes."""
    limits = capabilities.partitions.get(stage.partition or capabilities.partition)
    of_a_node = limits.memory_per_node_bytes if limits is not None else 0
    nodes = stage.nodes_on(capabilities.cores_per_node)
    most = [amount for amount in (stage.retry_max_memory_bytes, of_a_node * nodes) if amount > 0]
    wanted = int(stage.memory_bytes * stage.retry_memory_factor)
    amount = max(min([wanted, *most]), stage.memory_bytes)
    if stage.request is None or amount == stage.memory_bytes:
        return replace(stage, memory_bytes=amount)
    # the memory is part of the request
    return replace(stage, request=with_memory(stage.request, amount / stage.memory_bytes), memory_bytes=0)


def avoidable(bad_nodes: Sequence[str], capabilities: Capabilities, needed: int = 1) -> tuple[str, ...]:
    """Choose the nodes that a job avoids, the latest to fail: at most eight, and at most half of all nodes.

    `needed`: how many other nodes the job needs.
    """
    nodes = capabilities.max_cores // capabilities.cores_per_node if capabilities.cores_per_node else 0
    count = max(min(_MAX_AVOIDED, nodes // 2, nodes - needed), 0) if nodes else _MAX_AVOIDED
    return tuple(bad_nodes[-count:]) if count else ()


def learned(before: Stage, after: Stage, avoided: Sequence[str] = ()) -> str:
    """Return how a stage's new request differs from its last one; `avoided`: bad nodes that it avoids."""
    parts = [f"on another node than {node}" for node in avoided]
    if after.walltime_s != before.walltime_s:
        parts.append(f"with {format_duration(after.walltime_s)} in place of {format_duration(before.walltime_s)}")
    if after.memory_bytes != before.memory_bytes:
        parts.append(f"with {_amount(after.memory_bytes)} of memory in place of {_amount(before.memory_bytes)}")
    return f"; now {' and '.join(parts)}" if parts else ""


def _amount(count: int) -> str:
    unit, size = ("GiB", 1 << 30) if count >= 1 << 30 else ("MiB", 1 << 20)
    return f"{count / size:.4g} {unit}"


def tried_again(view: StageView, end_s: float) -> StageView:
    """Return the view of a failed stage that is tried again after a pause."""
    pause_s = min(_PAUSE_S * 2**view.attempts, _LONGEST_PAUSE_S)
    return replace(view, attempts=view.attempts + 1, not_before_s=end_s + pause_s)


def idled_out(job: Job) -> bool:
    """Whether an allocation ended because it idled too long, before any of its remaining stages began."""
    status = job.status
    if status.state is JobState.TIMEOUT:
        return status.payload_start_s is None or _stood_still(job)
    if status.state is not JobState.FAILED or outcome_of(status) not in _GAVE_BACK:
        return False
    return status.payload_start_s is None or any(step.awaits for step in job.spec.steps)


def _stood_still(job: Job) -> bool:
    """Whether a job ended while it waited for more cores between two of its stages."""
    steps = job.status.steps
    waits = bool(job.planned.widths) and 0 < len(steps) < len(job.planned.stages)
    return waits and all(step.end_s is not None for step in steps)


def why(status: JobStatus) -> str:
    """Describe how an uncompleted job ended."""
    means = meaning(status.exit_code, status.outcome) if status.state is JobState.FAILED else ""
    if not means and status.reason in _NO_NEWS and status.exit_code and status.state is JobState.FAILED:
        means = f"exit code {status.exit_code}"
    words = "" if means and status.reason in _NO_NEWS else status.reason
    detail = ": ".join(part for part in (words, means) if part)
    return f"{status.state.value} ({detail})" if detail else status.state.value
