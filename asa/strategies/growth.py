"""Submitted jobs that grow: when to request their cores, to give cores back, or to give a job up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from asa.core.late import dataclass
from asa.units import format_duration

from .base import (
    Cancellation,
    Forecast,
    GrowthView,
    Keep,
    Phase,
    PlannedJob,
    RunView,
    StageView,
    predicted,
    wait_in_words,
)

_LOOKED_AHEAD = 64  # increases of one job for which cores are planned ahead
_LOOK_S = 60.0  # between looks at a stage that takes longer than expected
# until an event is noticed: a client looks once a minute, and batch systems look at their queues now and then
NOTICE_S = 120.0
MAX_SPARE = 0.25  # as a share of the stages' own walltime


@dataclass(frozen=True, slots=True)
class _Rise:
    """An unbegun stage of a job that needs more cores than the stage before it."""

    needed_s: float  # expected end of the stage before it
    is_kept: bool  # whether cores that join now would be kept until then
    growth: GrowthView | None  # the existing request for the cores
    planned: PlannedJob | None  # otherwise the request to make, if its time can be foreseen


@dataclass(frozen=True, slots=True)
class Watched:
    """Actions on jobs that have been submitted."""

    submissions: tuple[PlannedJob, ...] = ()  # requests for more cores
    # cancellations of cores that came too early, and of jobs that idled too long
    cancellations: tuple[Cancellation, ...] = ()
    wake_s: float | None = None  # when the next job will have idled too long
    ends_s: Mapping[str, float] = field(default_factory=dict)  # by stage: its expected end


@dataclass(frozen=True, slots=True)
class Growth:
    """Plans the requests by which jobs get cores as they need them."""

    lead_level: float = 0.5
    max_hold_s: float = 60.0
    max_resubmissions: int = 5

    def watch(self, view: RunView, forecast: Forecast) -> Watched:
        """Request cores that jobs will lack; give back cores that came too early; give up jobs that idle too long."""
        ends: dict[str, float] = {}
        growths: list[PlannedJob] = []
        cancelled: list[Cancellation] = []
        wakes: list[float] = []
        asked: dict[tuple[str, str], list[GrowthView]] = {}
        for growth in view.growths:
            asked.setdefault((growth.joins, growth.stage), []).append(growth)
        for names in _jobs(view):
            if (late_s := _late_s(view, names)) is not None and view.now_s >= late_s:
                job_id = view.stages[names[0]].job_id or ""
                cancelled.append(Cancellation(job_id, "it has been idle for as long as it may"))
            elif late_s is not None:
                wakes.append(late_s)
            elif (ended_s := _doomed_s(view, names)) is not None:
                wakes.append(ended_s)
            for rise in self._rises(view, forecast, names, ends, asked):
                if rise.planned is not None:
                    growths.append(rise.planned)
                elif rise.growth is not None and self._is_too_early(view, rise):
                    early = format_duration(rise.needed_s - view.now_s)
                    cancelled.append(
                        Cancellation(rise.growth.job_id, f"its cores came {early} before they were needed")
                    )
        return Watched(tuple(growths), tuple(cancelled), min(wakes, default=None), ends)

    def _rises(
        self,
        view: RunView,
        forecast: Forecast,
        names: Sequence[str],
        ends: dict[str, float],
        asked: Mapping[tuple[str, str], Sequence[GrowthView]],
    ) -> Iterator[_Rise]:
        """Yield the increases of a job's cores, and store in `ends` when its stages are expected to end."""
        stages = [view.stages[name] for name in names]
        begin_s = _beginning_s(view, names, ends)
        is_overdue = stages[0].phase is Phase.QUEUED and begin_s <= view.now_s
        ends[names[0]] = time_s = _end_s(view, stages[0], begin_s)
        is_kept, n_planned, widest = True, 0, stages[0].cores
        for index, (before, stage) in enumerate(pairwise(stages), start=1):
            widest = stage.cores if stage.started_s is not None else widest
            if stage.phase.is_settled and stage.started_s is None:
                return  # the request for its cores was refused
            if stage.started_s is None:
                time_s = max(time_s, view.now_s)
                is_kept &= stage.cores >= before.cores
                if (cores := stage.cores - before.cores) > 0:
                    growth, former = _asked_for(asked.get((stage.job_id or "", stage.stage.name), ()))
                    planned = None
                    # a request queued ahead of the job itself is granted as the job begins, which is too early
                    fits = widest + cores <= view.capabilities.max_cores  # beyond the job's cores until then
                    if growth is None and not is_overdue and fits and n_planned < _LOOKED_AHEAD:
                        n_planned += 1
                        planned = self._growth(
                            view, forecast, names, index, from_s=max(begin_s, view.now_s), due_s=time_s, former=former
                        )
                    yield (rise := _Rise(time_s, is_kept, growth, planned))
                    time_s = max(time_s, _join_s(rise))
                widest = max(widest, stage.cores)
            ends[names[index]] = time_s = _end_s(view, stage, time_s)

    def _growth(
        self,
        view: RunView,
        forecast: Forecast,
        names: Sequence[str],
        index: int,
        *,
        from_s: float,
        due_s: float,
        former: int,
    ) -> PlannedJob:
        """Request the cores that a stage needs in addition to those of the stage before it."""
        before, stage = (view.stages[name] for name in names[index - 1 : index + 1])
        cores, limit_s = stage.cores - before.cores, stage.limit_s
        left_s = walltime_of(view, names) if limit_s is None else max(limit_s - view.now_s, 1.0)
        prediction = predicted(forecast, (names[index],), due_s, cores, left_s)
        lead_s = prediction.wait_s if prediction.alternative >= 0 else prediction.at(self.lead_level)
        lead_s = 0.0 if former > self.max_resubmissions else lead_s / 2**former
        more = "1 more core" if cores == 1 else f"{cores} more cores"
        in_s, wait = format_duration(due_s - view.now_s), wait_in_words(forecast, prediction.wait_s)
        return PlannedJob(
            (names[index],),
            max(from_s, due_s - lead_s),
            Keep.NOTHING,
            f"{more} for its job, needed in {in_s}, {wait}",
            prediction,
            due_s,
            joins=stage.job_id or "",
        )

    def _is_too_early(self, view: RunView, rise: _Rise) -> bool:
        """Whether cores that have joined a job are to be given back."""
        if rise.growth is None or rise.growth.phase is not Phase.ALLOCATED:
            return False
        return rise.needed_s - view.now_s > (self.max_hold_s if rise.is_kept else 0.0)


def _jobs(view: RunView) -> Iterator[tuple[str, ...]]:
    """Yield the stages of each submitted and unended job, in the workflow's order."""
    jobs: dict[str, list[str]] = {}
    for name in view.workflow.order:
        stage = view.stages[name]
        if stage.phase not in (Phase.WAITING, Phase.DONE) and stage.job_id is not None:
            jobs.setdefault(stage.job_id, []).append(name)
    yield from map(tuple, jobs.values())


def _asked_for(asked: Sequence[GrowthView]) -> tuple[GrowthView | None, int]:
    """Return a stage's present request for cores, and how many earlier requests for it have ended."""
    present = [growth for growth in asked if growth.phase is not Phase.DONE]
    return (present[0] if present else None), len(asked) - len(present)


def _beginning_s(view: RunView, names: Sequence[str], ends: Mapping[str, float]) -> float:
    """Return when a job's payload began, or is expected to."""
    first = view.stages[names[0]]
    if first.started_s is not None:
        return first.started_s
    before = {other for name in names for other in view.stages[name].stage.after} - set(names)
    ready_s = max([view.now_s, *(ends[other] for other in before if other in ends)])
    if first.phase is not Phase.QUEUED or first.submit_s is None or first.predicted_wait_s is None:
        return ready_s
    if first.keep is Keep.DEPENDENCY and ready_s > view.now_s and not view.capabilities.age_accrues:
        return ready_s + first.predicted_wait_s
    return max(ready_s, first.submit_s + first.predicted_wait_s)


def _end_s(view: RunView, stage: StageView, start_s: float) -> float:
    if stage.ended_s is not None:
        return stage.ended_s
    began_s = start_s if stage.started_s is None else stage.started_s
    return max(began_s + stage.stage.expected_s, view.now_s)


def _join_s(rise: _Rise) -> float:
    """Return when requested cores are expected to have joined."""
    if rise.planned is not None and rise.planned.prediction is not None:
        return rise.planned.submit_s + rise.planned.prediction.wait_s
    if rise.growth is not None and rise.growth.phase is Phase.QUEUED:
        return rise.growth.submit_s + (rise.growth.predicted_wait_s or 0.0)
    return -math.inf


def _late_s(view: RunView, names: Sequence[str]) -> float | None:
    """Return until when a job may wait for cores between two stages; None if it does not wait."""
    stages = [view.stages[name] for name in names]
    if not any(stage.cores for stage in stages):
        return None
    left = [stage for stage in stages if stage.started_s is None]
    begun = stages[: len(stages) - len(left)]
    if not left or not begun or begun[-1].ended_s is None or left[0].limit_s is None:
        return None
    if left[0].phase.is_settled:
        return -math.inf  # the stage failed: the request for its cores was refused
    whole_s = walltime_of(view, names)
    share = sum(stage.stage.walltime_s for stage in left) / sum(stage.stage.walltime_s for stage in stages)
    fits_s = left[0].limit_s - share * whole_s
    spare_s = left[0].limit_s - whole_s - (begun[0].started_s or 0.0)  # the job's spare walltime, as requested
    times = [(one.ended_s, other.started_s) for one, other in pairwise(begun)]
    stood_s = sum(max(begin_s - end_s, 0.0) for end_s, begin_s in times if end_s is not None and begin_s is not None)
    return min(fits_s, begun[-1].ended_s + max(spare_s, NOTICE_S) - stood_s)


def _doomed_s(view: RunView, names: Sequence[str]) -> float | None:
    """Return when to check whether a job's running stage has ended, if its next stage will not run; else None."""
    running = [view.stages[name] for name in names if view.stages[name].started_s is not None]
    left = [view.stages[name] for name in names if view.stages[name].started_s is None]
    if not running or not left or not left[0].phase.is_settled or running[-1].started_s is None:
        return None
    return max(running[-1].started_s + running[-1].stage.expected_s, view.now_s + _LOOK_S)


def walltime_of(view: RunView, names: Sequence[str]) -> float:
    """Return the walltime of stages together, without time in which their job may idle.

    For all stages of a workflow, it is the workflow's own walltime, if that is set.
    """
    if len(names) == len(view.workflow.stages):
        return view.workflow.walltime_s
    return sum(view.stages[name].stage.walltime_s for name in names)


def width_of(view: RunView, name: str) -> int:
    """Return the width that a growing job would have during a stage; 0 if jobs cannot grow, or not to that width.

    It is the stage's cores, rounded up to multiples that the site gives and takes.
    """
    site, stage = view.capabilities, view.stages[name].stage
    if not site.grow_by:
        return 0
    by = math.lcm(site.shrink_by or 1, site.grow_by, stage.cpus_per_task)
    width = -(-stage.cores_on(site.cores_per_node) // by) * by
    return width if width <= site.max_cores else 0
