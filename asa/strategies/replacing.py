"""Decides when a queued job is replaced by one of another shape.

A job is replaced if another one is better by at least five minutes in at least 9 of 10 sampled futures of the visible
queue, although the other joins the end of the queue while the first keeps its position: the first job's age counts in
full. As in plans, a job is judged by its end and by the price of its core-hours.

This needs all users' jobs to be visible; elsewhere no job is replaced. Nor is a job on which others depend, that is
kept back by something other than the queue, or that has already replaced others as often as allowed.

The cancellation names the replacing job, which is the next one submitted for these stages. Otherwise a plan made a
moment later might ask for the old shape again, at the end of the queue. Where both may be in the queue, `asa-plan` has
the replacing job submitted first (`asa.strategies.racing.rival_of`): if that is refused, the queued job stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from asa.core.late import dataclass
from asa.units import core_hours, format_duration

from .base import (
    Cancellation,
    Forecast,
    JobRequest,
    Keep,
    Phase,
    PlannedJob,
    Replacing,
    RunView,
    Sampled,
    StageView,
    Substitute,
)
from .planning import Aim, Block, Outlook, SearchedJob, look_ahead

_SURE = 0.9
_MIN_GAIN_S = 300.0
_LOOK_AGAIN_S = 600.0
_LOOK_AGAIN = 1 / 8  # as a share of the time that the job has waited
_HAS_JOB = frozenset({Phase.QUEUED, Phase.ALLOCATED})


@dataclass(frozen=True, slots=True)
class Replacement:
    """Finds queued jobs to replace; `max_replacements`: how often the job of a stage may be replaced."""

    max_replacements: int = 1

    def may_come(self, view: RunView, planned: PlannedJob, forecast: Forecast) -> bool:
        """Whether a job that is to be submitted may be replaced while it is queued."""
        views = [view.stages[name] for name in planned.stages]
        return (
            isinstance(forecast, Replacing)
            and forecast.sees_queue
            and not planned.is_addition
            and any(view.stage.moldable is not None for view in views)
            and all(view.resubmissions < self.max_replacements and not view.attempts for view in views)
        )

    def candidates(self, view: RunView, forecast: Forecast) -> list[tuple[str, ...]]:
        """Return the stages of each queued job that may be replaced."""
        if not isinstance(forecast, Replacing) or not self.max_replacements:
            return []
        jobs: dict[str, tuple[str, ...]] = {}
        for name in view.left():
            stage = view.stages[name]
            if stage.phase is Phase.QUEUED and stage.job_id is not None:
                jobs[stage.job_id] = (*jobs.get(stage.job_id, ()), name)
        return [stages for stages in jobs.values() if self._may_be(view, stages)]

    def _may_be(self, view: RunView, stages: tuple[str, ...]) -> bool:
        views = [view.stages[name] for name in stages]
        return (
            any(view.stage.moldable is not None for view in views)
            and view.rivals(stages) < self.max_replacements
            and not any(view.cores or view.stage.local for view in views)
            and all(view.resubmissions < self.max_replacements and not view.attempts for view in views)
            and all(view.is_ready(name) or not set(stages).isdisjoint(view.stages[name].stage.after) for name in stages)
            and not any(
                view.stages[name].phase in _HAS_JOB and not set(stages).isdisjoint(view.stages[name].stage.after)
                for name in view.left()
                if name not in stages
            )
        )

    def wake_s(self, view: RunView, forecast: Forecast) -> float | None:
        """Return when to look again; None if no job may be replaced."""
        submits = [view.stages[first].submit_s for first, *_ in self.candidates(view, forecast)]
        waited_s = [view.now_s - submit_s for submit_s in submits if submit_s is not None]
        return view.now_s + max(_LOOK_AGAIN_S, _LOOK_AGAIN * min(waited_s)) if waited_s else None

    def find(self, view: RunView, outlook: Outlook, forecast: Forecast, aim: Aim) -> Iterator[Cancellation]:
        """Yield cancellations of jobs that another shape is to replace."""
        queued = {job.block.stages: job.block for job in outlook.under_way}
        for stages in self.candidates(view, forecast):
            job_id = view.stages[stages[0]].job_id
            if job_id is not None and stages in queued and isinstance(forecast, Replacing):
                with forecast.instead_of(job_id, stages) as sampled:
                    if sampled is None:
                        continue
                    other = look_ahead(_without(view, stages), forecast, aim)
                    job = next((job for job in other.sketch.jobs if set(stages) <= set(job.block.stages)), None)
                    if job is None or not (reason := _reason(view, queued[stages], job.block, other, sampled)):
                        continue
                    substitute = _substitute(view, job_id, job, other)
                yield Cancellation(job_id, reason, substitute)


def _substitute(view: RunView, job_id: str, job: SearchedJob, outlook: Outlook) -> Substitute:
    """Return the job that replaces a queued one, from a plan made without the queued job."""
    wait_s = max(float((job.start_s - job.ready_s).mean()), 0.0)
    planned = PlannedJob(
        job.block.stages,
        view.now_s,
        Keep.NOTHING,
        f"takes the place of job {job_id}, expected wait {format_duration(wait_s)}",
        outlook.predict(job.block),
        view.now_s,
        job.block.elasticity.spare_s,
        **job.block.elasticity.asked(),
    )
    choices = outlook.choices()
    return Substitute(planned, {name: choices[name] for name in planned.stages if name in choices})


def _reason(view: RunView, block: Block, other: Block, outlook: Outlook, sampled: Sampled) -> str:
    """Return why a newly planned job should replace a queued one; empty if it should not."""
    if not other.shapes:
        return ""
    queued, asked = _request(view, block), _request(view, other)
    if queued == asked:
        return ""
    rest_s = block.run_s - _until_s(block.stages, other)
    # stages that would share the new job
    more = [view.stages[name].stage for name in other.stages if name not in block.stages]
    per_node = view.capabilities.cores_per_node
    hours = block.core_hours + sum(core_hours(stage.cores_on(per_node), stage.expected_s) for stage in more)
    rest_s += outlook.question.price_s * (hours - other.core_hours)
    gains_s = sampled(queued, asked) @ np.array([1.0, -1.0]) + rest_s
    share, gain_s = float((gains_s >= _MIN_GAIN_S).mean()), float(np.median(gains_s))
    if share < _SURE:
        return ""
    return (
        f"{asked.cores} cores for {format_duration(asked.walltime_s)} in place of {queued.cores} for "
        f"{format_duration(queued.walltime_s)} are better by {format_duration(gain_s)} in half of the sampled futures, "
        f"and better in {share:.0%} of them, although they are at the end of the queue"
    )


def _until_s(stages: tuple[str, ...], block: Block) -> float:
    """Return how long a job runs until the last of some of its stages has ended."""
    last = max(block.stages.index(name) for name in stages)
    return sum(shape.run_s for shape in block.shapes[: last + 1])


def _request(view: RunView, block: Block) -> JobRequest:
    partition = block.shapes[0].partition if block.shapes else view.stages[block.stages[0]].stage.partition
    return JobRequest(block.cores, block.walltime_s, partition)


def _without(view: RunView, stages: tuple[str, ...]) -> RunView:
    """Return the view as if the job of the given stages had been withdrawn."""
    left = {
        name: StageView(stage.stage, resubmissions=stage.resubmissions + 1)
        for name, stage in view.stages.items()
        if name in stages
    }
    return replace(view, stages={**view.stages, **left}, turn=None)
