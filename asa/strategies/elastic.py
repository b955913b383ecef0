"""Elastic: the workflow as one job, which gives cores back after a wide stage, and gets more before the next one.

The job begins as wide as its first stage. If a stage needs fewer cores than the stage before, the other cores are given
back. If it needs more, a second job asks for the additional cores, one predicted wait before the previous stage is
expected to end, and these cores join the first job (`asa.backend.Growing`). Until they have joined, the payload idles.
So the workflow waits in the queue once, and later only for additional cores: ASA's idea, applied to resizing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from asa.backend import DependencyType
from asa.units import format_duration

from .base import (
    Forecast,
    ForecastKind,
    Keep,
    Phase,
    Plan,
    PlannedJob,
    RunView,
    Strategy,
    predicted,
)
from .growth import MAX_SPARE, NOTICE_S, Growth, walltime_of, width_of
from .planning import Parts
from .planning.elasticity import Resizing
from .planning.outlook import fair_price_s, samples
from .planning.parts import max_walltimes


@dataclass(frozen=True, slots=True)
class Elastic(Strategy):
    """One job that gives cores back and gets more as its stages need them.

    Stages that cannot share a job, because they ask for other partitions or are retried alone, get jobs of their own,
    each submitted at once with a dependency. Where jobs cannot grow, each sequence of stages without an increase in
    cores shares a job, which gives cores back if the site takes them. Parallel stages run one after the other in a job.

    Idling uses up walltime. So the job asks for more walltime than its stages: for each time that it is to grow, the
    quantile of the wait at `spare_level` is added, up to a quarter of the stages' walltime. More would make the job,
    and the cores that join it, wait longer. If the rest of the walltime is too short for the remaining stages, the job
    is cancelled, and these stages are submitted as another job.

    When a job is submitted, the strategy decides whether the next stage shares it. If so, the job's walltime and its
    wait are longer. If not, the stage's own job queues while the first one runs, where age accrues, and begins up to
    two minutes late. If the next stage needs more cores, the strategy also decides whether to ask for them, or to keep
    an earlier stage's cores, idle during the narrow stages in between. On a busy machine, additional cores for the
    job's whole remaining walltime may come long after the job has idled as long as it can.

    Parameters
    ----------
    worth
        How many percent of makespan one percent of core-hours is worth.
    lead_level
        The lead is the quantile of the wait at this probability; cores that come early idle.
    spare_level
        Probability level of the wait that is added to the walltime, as above.
    max_hold_s
        Seconds for which cores that came early may idle. If they are needed later than that, or the job itself would
        give them back before they are needed, they are given back at once and requested again, with half the lead.
    max_resubmissions
        After this number of requests, cores are requested only when they are needed.
    forecast
        The source of its forecasts.
    """

    worth: float = 0.8
    lead_level: float = 0.5
    spare_level: float = 0.9
    max_hold_s: float = 60.0
    max_resubmissions: int = 5
    forecast: ForecastKind = ForecastKind.LEARNED

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Submit missing jobs, and requests for cores that jobs will lack; give back cores that came too early."""
        watched = Growth(self.lead_level, self.max_hold_s, self.max_resubmissions).watch(view, forecast)
        if watched.cancellations:
            return Plan.of((), watched.cancellations)
        return Plan.of([*self._jobs_to_ask_for(view, forecast), *watched.submissions], wake_s=watched.wake_s)

    # ------------------------------------------------------------------ jobs to submit

    def _jobs_to_ask_for(self, view: RunView, forecast: Forecast) -> Iterator[PlannedJob]:
        """Arrange the stages without a job in as few jobs as possible."""
        site = view.capabilities
        can_depend = DependencyType.AFTEROK in site.dependency_types
        left = [name for name in view.workflow.order if view.stages[name].phase is Phase.WAITING]
        for names, widths in self._groups(view, forecast, left):
            before = {other for name in names for other in view.stages[name].stage.after} - set(names)
            is_ready = all(view.stages[other].phase.is_settled for other in before)
            if not (is_ready or can_depend):
                continue
            cores = max(widths[:1] or [_cores(view, name) for name in names])
            spare_s = self._spare_s(view, forecast, names, widths)
            yield PlannedJob(
                names,
                view.now_s,
                Keep.NOTHING if is_ready else Keep.DEPENDENCY,
                _reason(names, widths, spare_s),
                predicted(forecast, names, view.now_s, cores, walltime_of(view, names) + spare_s),
                spare_walltime_s=spare_s,
                shrinks=len(names) > 1,
                widths=widths,
            )

    def _spare_s(self, view: RunView, forecast: Forecast, names: Sequence[str], widths: Sequence[int]) -> float:
        """Return the walltime that a job may idle while it waits for cores."""
        walltime_s = walltime_of(view, names)
        rises = [(name, to - of) for name, (of, to) in zip(names[1:], pairwise(widths), strict=False) if to > of]
        waits = [predicted(forecast, (name,), view.now_s, cores, walltime_s) for name, cores in rises]
        spare_s = min(sum(wait.at(self.spare_level) for wait in waits), MAX_SPARE * walltime_s)
        return max(spare_s, NOTICE_S * len(rises))

    def _groups(
        self, view: RunView, forecast: Forecast, left: Sequence[str]
    ) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """Yield stages that share a job, in order, with the job's cores during each stage if these differ."""
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
            names, widths = (*names, name), longer or (width_of(view, name),)
        if names:
            yield names, _differing(widths)

    def _price_s(self, view: RunView, forecast: Forecast) -> float:
        """Return how many seconds a core-hour is worth."""
        if view.capabilities.charges == "used":
            return 0.0
        hours = view.workflow.stage_core_hours(view.capabilities.cores_per_node)
        waits_s = (float(samples(forecast.predict((name,), view.now_s)).mean()) for name in view.workflow.order)
        return self.worth * fair_price_s(sum(waits_s) + view.workflow.execution_s, hours)


def _reason(names: Sequence[str], widths: Sequence[int], spare_s: float) -> str:
    if len(names) == 1:
        return "a job of its own"
    words = []
    if any(to < of for of, to in pairwise(widths)):
        words.append("gives cores back as it goes")
    if any(to > of for of, to in pairwise(widths)):
        words.append(f"gets more as it needs them, and may be idle for {format_duration(spare_s)}")
    return f"{len(names)} stages in one job{', which ' if words else ''}{' and '.join(words)}"


def _parts(view: RunView, left: Sequence[str]) -> Parts:
    """Return the pieces of a workflow that tell which stages can share a job."""
    site = view.capabilities
    return Parts(
        view.workflow,
        left,
        cores_per_node=site.cores_per_node,
        resizing=Resizing(site.shrink_by),
        max_walltime_s=max_walltimes(site),
    )


def _differing(widths: tuple[int, ...]) -> tuple[int, ...]:
    return widths if all(widths) and len(set(widths)) > 1 else ()


def _with(
    view: RunView, forecast: Forecast, names: tuple[str, ...], widths: tuple[int, ...], name: str, *, price_s: float
) -> tuple[int, ...] | None:
    """Return the job's cores during its stages and a further stage; None if that stage is to begin another job."""
    site, width = view.capabilities, width_of(view, name)
    if width and all(widths):
        fits = width >= widths[-1] or site.shrink_by > 0
    else:
        first, last, needs = (_cores(view, stage) for stage in (names[0], names[-1], name))
        fits = needs == last or (needs < last and site.shrink_by > 0 and first % site.shrink_by == 0)
    if not fits:
        return None
    return _weigh(view, forecast, names, widths, name, price_s=price_s) if forecast.is_informed else (*widths, width)


def _weigh(
    view: RunView, forecast: Forecast, names: tuple[str, ...], widths: tuple[int, ...], name: str, *, price_s: float
) -> tuple[int, ...] | None:
    """Return the cores of a job with a further stage, added or kept; None if a job of its own is better."""
    site, width = view.capabilities, width_of(view, name)

    def waits_s(stages: tuple[str, ...], cores: int, of: tuple[str, ...]) -> NDArray[np.float64]:
        return samples(predicted(forecast, stages, view.now_s, cores, walltime_of(view, of)))

    longer, cores = (*names, name), widths[0] or _cores(view, names[0])
    lasts_s = [view.stages[stage].stage.expected_s for stage in names]
    job_s, short_s = (float(waits_s(stages, cores, stages).mean()) for stages in (longer, names))
    other_s = waits_s((name,), width or _cores(view, name), (name,))
    ways: list[tuple[float, tuple[int, ...] | None]] = []

    if width <= widths[-1] or not all(widths):
        ways.append((job_s, (*widths, width)))
    else:
        more_s = waits_s((name,), width - widths[-1], longer)
        max_s, ahead_s = MAX_SPARE * walltime_of(view, longer), sum(lasts_s)
        in_time = more_s <= ahead_s + max_s  # otherwise the job is given up, and another one submitted
        late_s = np.where(in_time, np.maximum(more_s - ahead_s, 0.0), max_s + other_s.mean())
        idle_hours = widths[-1] * np.minimum(late_s, max_s).mean() / 3600
        ways.append((job_s + float(late_s.mean() + price_s * idle_hours), (*widths, width)))
        if begin := next((at + 1 for at in reversed(range(len(widths))) if widths[at] >= width), 0):
            idle = zip(widths[begin:], lasts_s[begin:], strict=True)
            idle_hours = sum((width - had) * last_s for had, last_s in idle) / 3600
            kept = (*widths[:begin], *(width,) * (len(widths) - begin), width)
            ways.append((job_s + price_s * idle_hours, kept))

    can_queue = site.age_accrues and DependencyType.AFTEROK in site.dependency_types
    queues_s = short_s + sum(lasts_s) if can_queue else 0.0
    ways.append((short_s + float(np.maximum(other_s - queues_s, 0.0).mean()) + NOTICE_S, None))
    return min(ways, key=lambda way: way[0])[1]


def _cores(view: RunView, name: str) -> int:
    return view.stages[name].stage.cores_on(view.capabilities.cores_per_node)
