"""Runs of the strategy ``pool`` in simulated worlds: their figures are those of the pool's allocations."""

from __future__ import annotations

from dataclasses import replace

from asa.backend import Backend, JobState
from asa.estimators import WaitBank
from asa.metrics import RunMetrics
from asa.pool.modelled import ModelledAllocation, ModelledPool
from asa.runner import Run, RunResult, run_all
from asa.timeline import Lane, Span, Timeline


def run_on_pool(
    world: Backend, run: Run, bank: WaitBank, *, history: int, is_followed: bool
) -> tuple[RunResult, ModelledPool]:
    """Run a workflow on a pool of allocations of a simulated machine; see `asa.runner.run_all`."""
    if not is_followed:
        bank.lose_sight()
    pool = ModelledPool(world, run.workflow, bank, history=history)
    [result] = run_all(pool, [run], history=0)
    pool.close()
    return result, pool


def with_allocations(metrics: RunMetrics, pool: ModelledPool) -> RunMetrics:
    """Return the metrics of a run with the core-hours of its pool's allocations, and of these the idle ones."""
    allocated = sum(allocation.core_hours for allocation in pool.allocations)
    used = sum(allocation.used_core_hours for allocation in pool.allocations)
    return replace(metrics, core_hours=allocated, overhead_core_hours=max(allocated - used, 0.0))


def of_allocations(drawn: Timeline, pool: ModelledPool) -> Timeline:
    """Return a run's timeline with a lane for each allocation, in place of one for each stage."""
    return replace(drawn, lanes=tuple(_lane(allocation) for allocation in pool.allocations))


def _lane(allocation: ModelledAllocation) -> Lane:
    view = allocation.view
    end_s = view.asked_s if allocation.end_s is None else allocation.end_s
    start_s = end_s if view.start_s is None else view.start_s
    spans = [Span("pending", view.asked_s, start_s, view.shape.cores)]
    for begin_s, until_s, stage, _ in sorted(allocation.busy):
        since_s = spans[-1].end_s
        if begin_s > since_s:
            spans.append(Span("held", since_s, begin_s, view.shape.cores))
        if until_s > max(begin_s, since_s):
            spans.append(Span("running", max(begin_s, since_s), until_s, view.shape.cores, stage))
    if end_s > spans[-1].end_s:
        spans.append(Span("held", spans[-1].end_s, end_s, view.shape.cores))
    return Lane(
        allocation.job_id,
        tuple(dict.fromkeys(busy.stage for busy in allocation.busy)),
        view.shape.cores,
        view.shape.walltime_s,
        view.asked_s,
        view.asked_s + view.forecast.wait_s,
        view.start_s,
        tuple(span for span in spans if span.end_s > span.begin_s),
        JobState.CANCELLED.value,
        "an allocation of the pool",
        predicted_wait_over_s=view.asked_s + view.forecast.wait_s,
    )
