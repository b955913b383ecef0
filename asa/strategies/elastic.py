"""Elastic: the workflow as one job that gives cores back after a wide stage, and gets more ahead of the next.

The job is as wide as its first stage. Where a stage needs fewer cores than the one before it, the others are given
back; where it needs more, a second job asks for these, the predicted wait ahead of the moment when the stage before is
expected to end, and its cores join the first's (`asa.backend.Growing`). Until they have, the payload stands still. So
the workflow waits in the queue once, and then only for what it lacks: ASA's idea, applied to a resize.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from asa.backend import DependencyType
from asa.units import format_duration
from asa.waits import WaitForecast

from .base import (
    Cancellation,
    Forecast,
    ForecastKind,
    GrowthView,
    Keep,
    Phase,
    Plan,
    PlannedJob,
    RunView,
    Sizing,
    StageView,
)
from .planning import Parts
from .planning.outlook import fair_price_s, samples

__all__ = ["Elastic"]


_NOTICE_S = 120.0  # a client looks at least once a minute, and batch systems look at their queues now and then
_MOST_SPARE = 0.25  # of the stages' own walltime


@dataclass(frozen=True, slots=True)
class _Rise:
    """A stage of a job that has yet to begin, and needs more cores than the one before it.

    Parameters
    ----------
    needed_s
        When the one before it is expected to end.
    is_kept
        Whether the job would keep until then what joined it now.
    growth
        What was asked for already.
    planned
        Else what is to be asked for, if it can be foreseen when.
    """

    needed_s: float
    is_kept: bool
    growth: GrowthView | None
    planned: PlannedJob | None


@dataclass(frozen=True, slots=True)
class Elastic:
    """One job that gives cores back and gets more as its stages need them.

    Stages that cannot share a job, as they ask for other partitions or are retried alone, get jobs of their own, each
    submitted at once behind a dependency. Where no job can grow, so does each run of stages of which none needs more
    cores than the one before it; it gives cores back where the site takes them. Stages side by side run one after the
    other, as in every job that stages share.

    A payload that stands still runs against the walltime. So the job asks for more than its stages do: for a wait that
    is not exceeded with the probability `spare_level`, each time that it is to grow, and at most for a quarter more: a
    longer one makes the job wait longer, and what joins it. When what is left of that would no longer hold the stages
    that are left, the job is cancelled as it stands, and those are asked for as another.

    Whether a stage goes into the job of the one before it is weighed when that is submitted: with it the job asks for
    longer, and waits longer; another job queues meanwhile where age accrues, and begins up to two minutes late. If the
    stage needs more cores it is also weighed whether to ask for these, or to keep what an earlier stage had, idle over
    the narrow ones between. On a busy machine more cores for all the time that a job has left may take far longer to
    come than it can stand still.

    Parameters
    ----------
    worth
        Percent of makespan that a percent of core-hours is worth.
    lead_level
        The lead is the wait that is not exceeded with this probability; cores that come early idle.
    spare_level
        See above.
    most_hold_s
        Cores that came early are kept idle for so many seconds. Those that are needed later are given back at once and
        asked for again, with half the lead, and so are those that the job would give back itself before they are
        needed.
    most_resubmissions
        After so many, they are asked for only when they are needed.
    """

    worth: float = 0.8
    lead_level: float = 0.5
    spare_level: float = 0.9
    most_hold_s: float = 60.0
    most_resubmissions: int = 5
    forecast: ForecastKind = ForecastKind.LEARNED

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Ask for jobs where there are none, and for the cores that they will lack; give back what came too early."""
        ends: dict[str, float] = {}
        growths: list[PlannedJob] = []
        cancelled: list[Cancellation] = []
        wakes: list[float] = []
        for names in _jobs(view):
            if (late_s := _late_s(view, names)) is not None and view.now_s >= late_s:
                cancelled.append(
                    Cancellation(_job_id(view, names), "its cores are so late that the rest would not fit")
                )
            elif late_s is not None:
                wakes.append(late_s)
            for rise in self._rises(view, forecast, names, ends):
                if rise.planned is not None:
                    growths.append(rise.planned)
                elif rise.growth is not None and self._is_too_early(view, rise):
                    early = format_duration(rise.needed_s - view.now_s)
                    cancelled.append(Cancellation(rise.growth.job_id, f"its cores came {early} before they are needed"))
        if cancelled:
            return Plan.of((), cancelled)
        return Plan.of([*self._jobs_to_ask_for(view, forecast), *growths], wake_s=min(wakes, default=None))

    # ------------------------------------------------------------------ more cores for jobs that there are

    def _rises(
        self, view: RunView, forecast: Forecast, names: Sequence[str], ends: dict[str, float]
    ) -> Iterator[_Rise]:
        """Follow a job to where it needs more cores; note when its stages are expected to end."""
        stages = [view.stages[name] for name in names]
        begin_s = _beginning_s(view, names, ends)
        is_overdue = stages[0].phase is Phase.QUEUED and begin_s <= view.now_s
        ends[names[0]] = time_s = _end_s(view, stages[0], begin_s)
        is_kept = True
        for place, (before, stage) in enumerate(pairwise(stages), start=1):
            if stage.started_s is None:
                time_s = max(time_s, view.now_s)
                is_kept &= stage.cores >= before.cores
                if (cores := stage.cores - before.cores) > 0:
                    growth, former = _asked_for(view, stage)
                    planned = None
                    # what queues before its job does comes as soon as that begins, which is too early
                    if growth is None and not is_overdue and _may_ask(view, stages[:place], cores):
                        planned = self._growth(
                            view, forecast, names, place, from_s=max(begin_s, view.now_s), due_s=time_s, former=former
                        )
                    yield (rise := _Rise(time_s, is_kept, growth, planned))
                    time_s = max(time_s, _join_s(rise))
            ends[names[place]] = time_s = _end_s(view, stage, time_s)

    def _growth(
        self,
        view: RunView,
        forecast: Forecast,
        names: Sequence[str],
        place: int,
        *,
        from_s: float,
        due_s: float,
        former: int,
    ) -> PlannedJob:
        """Ask for the cores that a stage needs more than the one before it."""
        before, stage = (view.stages[name] for name in names[place - 1 : place + 1])
        cores, limit_s = stage.cores - before.cores, stage.limit_s
        walltime_s = _walltime_s(view, names) if limit_s is None else max(limit_s - view.now_s, 1.0)
        prediction = _predict(forecast, (names[place],), due_s, cores, walltime_s)
        lead_s = prediction.wait_s if prediction.alternative >= 0 else prediction.at(self.lead_level)
        lead_s = 0.0 if former > self.most_resubmissions else lead_s / 2**former
        more = "1 more core" if cores == 1 else f"{cores} more cores"
        in_s, wait = format_duration(due_s - view.now_s), format_duration(prediction.wait_s)
        return PlannedJob(
            (names[place],),
            max(from_s, due_s - lead_s),
            Keep.NOTHING,
            f"{more} for its job, needed in {in_s}, predicted wait {wait}",
            prediction,
            due_s,
            joins=stage.job_id or "",
        )

    def _is_too_early(self, view: RunView, rise: _Rise) -> bool:
        """Whether cores that have joined are to be given back."""
        if rise.growth is None or rise.growth.phase is not Phase.ALLOCATED:
            return False
        return rise.needed_s - view.now_s > (self.most_hold_s if rise.is_kept else 0.0)

    # ------------------------------------------------------------------ jobs that there are not

    def _jobs_to_ask_for(self, view: RunView, forecast: Forecast) -> Iterator[PlannedJob]:
        """Put the stages that have no job into as few as can be."""
        site = view.capabilities
        can_depend = DependencyType.AFTEROK in site.dependency_types
        left = [name for name in view.workflow.order if view.stages[name].phase is Phase.WAITING]
        for names, widths in self._groups(view, forecast, left):
            before = {other for name in names for other in view.stages[name].stage.after} - set(names)
            is_ready = all(view.stages[other].phase is Phase.DONE for other in before)
            if not (is_ready or can_depend):
                continue
            cores = max(widths[:1] or [_cores(view, name) for name in names])
            spare_s = self._spare_s(view, forecast, names, widths)
            yield PlannedJob(
                names,
                view.now_s,
                Keep.NOTHING if is_ready else Keep.DEPENDENCY,
                _reason(names, widths, spare_s),
                _predict(forecast, names, view.now_s, cores, _walltime_s(view, names) + spare_s),
                spare_walltime_s=spare_s,
                shrinks=len(names) > 1,
                widths=widths,
            )

    def _spare_s(self, view: RunView, forecast: Forecast, names: Sequence[str], widths: Sequence[int]) -> float:
        """Say how long a job may stand still."""
        walltime_s = _walltime_s(view, names)
        rises = [(name, to - of) for name, (of, to) in zip(names[1:], pairwise(widths), strict=False) if to > of]
        waits = [_predict(forecast, (name,), view.now_s, cores, walltime_s) for name, cores in rises]
        spare_s = min(sum(wait.at(self.spare_level) for wait in waits), _MOST_SPARE * walltime_s)
        return max(spare_s, _NOTICE_S * len(rises))

    def _groups(
        self, view: RunView, forecast: Forecast, left: Sequence[str]
    ) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """Put stages together that share a job, in order; with how wide it is during each, where that differs."""
        parts = _parts(view, left)
        price_s = self._price_s(view, forecast) if left and forecast.is_informed else 0.0
        names: tuple[str, ...] = ()
        widths: tuple[int, ...] = ()
        for name in left:
            may_share = bool(names) and parts.block((*names, name)) is not None
            longer = _with(view, forecast, names, widths, name, price_s=price_s) if may_share else None
            if names and longer is None:
                yield names, _differing(widths)
                names = ()
            names, widths = (*names, name), longer or (_width(view, name),)
        if names:
            yield names, _differing(widths)

    def _price_s(self, view: RunView, forecast: Forecast) -> float:
        """Say how many seconds a core-hour is worth."""
        if view.capabilities.charges == "used":
            return 0.0
        hours = view.workflow.stage_core_hours(view.capabilities.cores_per_node)
        waits_s = (float(samples(forecast.predict((name,), view.now_s)).mean()) for name in view.workflow.order)
        return self.worth * fair_price_s(sum(waits_s) + view.workflow.execution_s, hours)


def _predict(
    forecast: Forecast, stages: tuple[str, ...], needed_s: float, cores: int, walltime_s: float
) -> WaitForecast:
    if isinstance(forecast, Sizing):
        return forecast.predict_size(stages, needed_s, cores, walltime_s)
    return forecast.predict(stages, needed_s)


def _reason(names: Sequence[str], widths: Sequence[int], spare_s: float) -> str:
    if len(names) == 1:
        return "a job of its own"
    words = []
    if any(to < of for of, to in pairwise(widths)):
        words.append("gives cores back as it goes")
    if any(to > of for of, to in pairwise(widths)):
        words.append(f"gets more as it needs them, and may stand still for {format_duration(spare_s)}")
    return f"{len(names)} stages in one job{', which ' if words else ''}{' and '.join(words)}"


def _jobs(view: RunView) -> Iterator[tuple[str, ...]]:
    """Give the stages of each job that has been submitted and not ended, in the workflow's order."""
    jobs: dict[str, list[str]] = {}
    for name in view.workflow.order:
        stage = view.stages[name]
        if stage.phase not in (Phase.WAITING, Phase.DONE) and stage.job_id is not None:
            jobs.setdefault(stage.job_id, []).append(name)
    yield from map(tuple, jobs.values())


def _job_id(view: RunView, names: Sequence[str]) -> str:
    return view.stages[names[0]].job_id or ""


def _asked_for(view: RunView, stage: StageView) -> tuple[GrowthView | None, int]:
    """Give what was asked for a stage, and how often something was that is no more."""
    asked = [one for one in view.growths if one.joins == stage.job_id and one.stage == stage.stage.name]
    present = [one for one in asked if one.phase is not Phase.DONE]
    return (present[0] if present else None), len(asked) - len(present)


def _may_ask(view: RunView, before: Sequence[StageView], cores: int) -> bool:
    """Whether the machine holds a job and more cores, now and until the stage that needs them."""
    present = max((at for at, stage in enumerate(before) if stage.started_s is not None), default=0)
    return max(stage.cores for stage in before[present:]) + cores <= view.capabilities.max_cores


def _beginning_s(view: RunView, names: Sequence[str], ends: Mapping[str, float]) -> float:
    """Say when a job's payload began, or is expected to."""
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
    """Say when cores are expected to have joined."""
    if rise.planned is not None and rise.planned.prediction is not None:
        return rise.planned.submit_s + rise.planned.prediction.wait_s
    if rise.growth is not None and rise.growth.phase is Phase.QUEUED:
        return rise.growth.submit_s + (rise.growth.predicted_wait_s or 0.0)
    return -math.inf


def _late_s(view: RunView, names: Sequence[str]) -> float | None:
    """Say until when a job may go on standing still; None if it does not."""
    stages = [view.stages[name] for name in names]
    left = [stage for stage in stages if stage.started_s is None]
    begun = stages[: len(stages) - len(left)]
    if not left or not begun or begun[-1].ended_s is None or left[0].limit_s is None:
        return None
    share = sum(stage.stage.walltime_s for stage in left) / sum(stage.stage.walltime_s for stage in stages)
    return left[0].limit_s - share * _walltime_s(view, names)


def _walltime_s(view: RunView, names: Sequence[str]) -> float:
    """Say what stages ask for together, without what their job may stand still."""
    if len(names) == len(view.workflow.stages):
        return view.workflow.walltime_s
    return sum(view.stages[name].stage.walltime_s for name in names)


def _parts(view: RunView, left: Sequence[str]) -> Parts:
    """Tell which stages can share a job."""
    site = view.capabilities

    def most_walltime_s(partition: str) -> float:
        limits = site.partitions.get(partition or site.partition)
        return math.inf if limits is None or limits.max_walltime_s is None else limits.max_walltime_s

    return Parts(
        view.workflow,
        left,
        cores_per_node=site.cores_per_node,
        shrink_by=site.shrink_by,
        most_walltime_s=most_walltime_s,
    )


def _width(view: RunView, name: str) -> int:
    """Say how wide a job that can grow is during a stage; 0 where none can, or not so far."""
    site, stage = view.capabilities, view.stages[name].stage
    if not site.grow_by:
        return 0
    by = math.lcm(site.shrink_by or 1, site.grow_by, stage.cpus_per_task)
    width = -(-stage.cores_on(site.cores_per_node) // by) * by
    return width if width <= site.max_cores else 0


def _differing(widths: tuple[int, ...]) -> tuple[int, ...]:
    return widths if all(widths) and len(set(widths)) > 1 else ()


def _with(
    view: RunView, forecast: Forecast, names: tuple[str, ...], widths: tuple[int, ...], name: str, *, price_s: float
) -> tuple[int, ...] | None:
    """Say how wide a job is during its stages and one more; None if that one is to begin another job."""
    site, width = view.capabilities, _width(view, name)
    if width and all(widths):
        fits = width >= widths[-1] or site.shrink_by > 0
    else:
        first, last, needs = (_cores(view, one) for one in (names[0], names[-1], name))
        fits = needs == last or (needs < last and site.shrink_by > 0 and first % site.shrink_by == 0)
    if not fits:
        return None
    return _weigh(view, forecast, names, widths, name, price_s=price_s) if forecast.is_informed else (*widths, width)


def _weigh(
    view: RunView, forecast: Forecast, names: tuple[str, ...], widths: tuple[int, ...], name: str, *, price_s: float
) -> tuple[int, ...] | None:
    """Weigh what one more stage costs in a job, if need be by more cores, or those of before, and in another (None)."""
    site, width = view.capabilities, _width(view, name)

    def waits_s(stages: tuple[str, ...], cores: int, of: tuple[str, ...]) -> NDArray[np.float64]:
        return samples(_predict(forecast, stages, view.now_s, cores, _walltime_s(view, of)))

    longer, cores = (*names, name), widths[0] or _cores(view, names[0])
    lasts_s = [view.stages[one].stage.expected_s for one in names]
    job_s, short_s = (float(waits_s(stages, cores, stages).mean()) for stages in (longer, names))
    other_s = waits_s((name,), width or _cores(view, name), (name,))
    ways: list[tuple[float, tuple[int, ...] | None]] = []

    if width <= widths[-1] or not all(widths):
        ways.append((job_s, (*widths, width)))
    else:
        more_s = waits_s((name,), width - widths[-1], longer)
        most_s, ahead_s = _MOST_SPARE * _walltime_s(view, longer), sum(lasts_s)
        in_time = more_s <= ahead_s + most_s  # else the job is given up, and another asked for
        late_s = np.where(in_time, np.maximum(more_s - ahead_s, 0.0), most_s + other_s.mean())
        idle_hours = widths[-1] * np.minimum(late_s, most_s).mean() / 3600
        ways.append((job_s + float(late_s.mean() + price_s * idle_hours), (*widths, width)))
        if begin := next((at + 1 for at in reversed(range(len(widths))) if widths[at] >= width), 0):
            idle = zip(widths[begin:], lasts_s[begin:], strict=True)
            idle_hours = sum((width - had) * last_s for had, last_s in idle) / 3600
            kept = (*widths[:begin], *(width,) * (len(widths) - begin), width)
            ways.append((job_s + price_s * idle_hours, kept))

    can_queue = site.age_accrues and DependencyType.AFTEROK in site.dependency_types
    queues_s = short_s + sum(lasts_s) if can_queue else 0.0
    ways.append((short_s + float(np.maximum(other_s - queues_s, 0.0).mean()) + _NOTICE_S, None))
    return min(ways, key=lambda way: way[0])[1]


def _cores(view: RunView, name: str) -> int:
    return view.stages[name].stage.cores_on(view.capabilities.cores_per_node)
