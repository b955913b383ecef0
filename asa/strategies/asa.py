"""ASA: each stage's job is submitted one predicted wait before its resources are needed.

The paper submits the next stage at `t - a`, where t is the expected end of the running stage and a the predicted wait
(Section 3.2). At a busy centre a exceeds the run time of the running stage, so later stages must be submitted as well:
the plan covers the whole graph. A stage's resources are needed when the last of its predecessors is expected to end.
Expected ends follow from expected starts, predicted waits and expected run times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from asa.backend import DependencyType
from asa.units import format_duration
from asa.workflow import Workflow

from .base import (
    MIN_IDLE_S,
    Cancellation,
    Forecast,
    ForecastKind,
    IdleAllowance,
    Keep,
    Phase,
    Plan,
    PlannedJob,
    RunView,
    StageView,
    Strategy,
    wait_in_words,
)

_LOOKED_AHEAD = 64  # stages with a later submission that are planned at a time, in the workflow's order


@dataclass(frozen=True, slots=True)
class AheadOfTime(Strategy):
    """ASA: each stage is submitted its predicted wait ahead; a dependency keeps it from starting early.

    So an over-estimate costs no core-hours. It submits as the paper's ASA, with the estimator of the run; `AsPaper` has
    the paper's own estimator.

    Parameters
    ----------
    lead_level
        The lead is the quantile of the wait at this probability. A second too late delays the workflow; a second too
        early costs nothing here. The level is below 1 only so that jobs do not queue longer than needed. If the
        estimator draws one wait (Algorithm 1), that wait is the lead.
    forecast
        The source of its forecasts.
    needs
        Types of dependency that the site must have.
    """

    lead_level: float = 0.9
    forecast: ForecastKind = ForecastKind.LEARNED
    needs: frozenset[DependencyType] = frozenset({DependencyType.AFTEROK})

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Plan the whole graph from the present state."""
        walk = _Walk(view)
        planned: dict[str, PlannedJob] = {}
        for name in walk:
            stage, needed = view.stages[name], walk.needed_s(name)
            if stage.phase is Phase.WAITING:
                keep = Keep.NOTHING if view.is_ready(name) else Keep.DEPENDENCY
                planned[name] = _ahead(view, forecast, name, needed, keep=keep, level=self.lead_level)
                walk.ask(planned[name])
                start = _expected_start(view, planned[name], needed)
            else:
                start = _present_start(view, stage, needed)
            walk.ends_s[name] = _expected_end(view, stage, start)
        return Plan.of(_monotone(view.workflow, planned).values())


@dataclass(frozen=True, slots=True)
class AsPaper(AheadOfTime):
    """ASA as in its paper: waits are predicted by Algorithm 1, tuned, which learns from one's own jobs alone.

    Whatever estimator the run has. What Algorithm 1 draws is the lead.

    Parameters
    ----------
    lead_level, forecast, needs
        As for `AheadOfTime`.
    """

    forecast: ForecastKind = ForecastKind.PUBLISHED


@dataclass(frozen=True, slots=True)
class Oracle(AheadOfTime):
    """ASA with perfect predictions, read from the simulator's future: an upper bound of what prediction gains.

    Parameters
    ----------
    lead_level, forecast, needs
        As for `AheadOfTime`.
    """

    forecast: ForecastKind = ForecastKind.KNOWN


@dataclass(frozen=True, slots=True)
class Asks(AheadOfTime):
    """ASA without learning: it asks a planning batch system when a job would start.

    Parameters
    ----------
    lead_level, forecast, needs
        As for `AheadOfTime`.
    """

    forecast: ForecastKind = ForecastKind.PLANNED


@dataclass(frozen=True, slots=True)
class Naive(Strategy):
    """ASA Naive: without dependencies, so that an allocation may begin early (Section 4.5).

    As in the paper, a stage is submitted ahead once its predecessors run, or at least have their cores: a job submitted
    earlier may occupy cores that these need. The run's idle core-hours are bounded.

    Parameters
    ----------
    max_hold_s
        Seconds for which an allocation that began early may idle; they are added to its walltime. As soon as its stage
        is expected to begin later than that, the job is cancelled and submitted again, which costs another wait. The
        paper cancels every early allocation; for a minute of idling that costs more than it saves, so the default is a
        minute. Each time that a stage's allocation is given back, its lead is halved.
    max_resubmissions
        After this number of resubmissions, a stage is submitted only when its predecessors have ended.
    max_idle
        Upper bound of all idle core-hours, as a share of the workflow's own. If an allocation could idle longer than
        the budget allows, it is kept for a shorter time; if next to nothing is left, no stage is submitted ahead.
    lead_level
        As for `AheadOfTime`; but a second too early idles, so it counts as much as a second too late.
    forecast
        The source of its forecasts.
    """

    max_hold_s: float = 60.0
    max_resubmissions: int = 5
    max_idle: float = 0.25
    lead_level: float = 0.5
    forecast: ForecastKind = ForecastKind.LEARNED

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Plan the whole graph from the present state, and give back allocations that began too early."""
        walk, allowance = _Walk(view), IdleAllowance.of(view, self.max_idle)
        cancelled: list[Cancellation] = []
        wake: list[float] = []
        for name in walk:
            stage, needed = view.stages[name], walk.needed_s(name)
            hold_until = stage.hold_until_s
            if stage.phase is Phase.ALLOCATED and stage.job_id and hold_until is not None:
                if view.now_s >= hold_until or needed > hold_until:
                    cancelled.append(Cancellation(stage.job_id, _too_early(view.now_s, needed, hold_until)))
                    stage = replace(stage, phase=Phase.WAITING, resubmissions=stage.resubmissions + 1)
                else:
                    wake.append(hold_until)
            start = needed  # for a stage that is planned once it is ready
            if stage.phase is not Phase.WAITING:
                start = _present_start(view, stage, needed)
            elif (job := self._asked(view, forecast, stage, needed, allowance)) is not None:
                walk.ask(job)
                start = _expected_start(view, job, needed)
            walk.ends_s[name] = _expected_end(view, stage, start)
        return Plan.of(walk.asked, cancelled, min(wake, default=None))

    def _asked(
        self, view: RunView, forecast: Forecast, stage: StageView, needed: float, allowance: IdleAllowance
    ) -> PlannedJob | None:
        """Plan a stage's job; None if its time has not come."""
        name = stage.stage.name
        if view.is_ready(name):
            return _ahead(view, forecast, name, needed, keep=Keep.NOTHING, level=self.lead_level)
        if stage.resubmissions >= self.max_resubmissions or not view.run_or_hold_cores(stage.stage.after):
            return None
        idle_s = min(self.max_hold_s, allowance.lasts_s(stage.stage.cores_on(view.capabilities.cores_per_node)))
        if idle_s < min(MIN_IDLE_S, self.max_hold_s):
            return None
        job = _ahead(
            view, forecast, name, needed, keep=Keep.AWAIT, level=self.lead_level, times=0.5**stage.resubmissions
        )
        job = replace(job, spare_walltime_s=idle_s, reason=f"{job.reason}; {allowance.text}")
        allowance.take(stage.stage.cores_on(view.capabilities.cores_per_node), idle_s)
        return job


@dataclass(frozen=True, slots=True)
class NaiveHold(Naive):
    """ASA Naive that keeps an allocation idle for up to half an hour rather than giving it back.

    Parameters
    ----------
    max_hold_s, max_resubmissions, max_idle, lead_level, forecast
        As for `Naive`.
    """

    max_hold_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class NaiveAsks(Naive):
    """ASA Naive without learning: it asks a planning batch system when a job would start.

    Parameters
    ----------
    max_hold_s, max_resubmissions, max_idle, lead_level, forecast
        As for `Naive`.
    """

    forecast: ForecastKind = ForecastKind.PLANNED


def _too_early(now_s: float, needed_s: float, hold_until_s: float) -> str:
    if needed_s > now_s:
        idles = "has idled for as long as it may" if now_s >= hold_until_s else "would idle for longer than it may"
        return f"it {idles}: the stage can begin in {format_duration(needed_s - now_s)} at the earliest"
    return "it was idle for so long that the rest of its walltime is too short for the stage"


class _Walk:
    """Walks over the remaining stages in order, until enough later jobs are planned; knows when each is needed.

    O(stages + edges), where stages with equal predecessors count these edges once.
    """

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._fronts: dict[int, float] = {}
        self._later = 0
        self.ends_s: dict[str, float] = {}
        self.asked: list[PlannedJob] = []

    def __iter__(self) -> Iterator[str]:
        for name in self._view.left():
            if self._later >= _LOOKED_AHEAD:
                return
            yield name

    def ask(self, job: PlannedJob) -> None:
        """Add a job to submit."""
        self.asked.append(job)
        self._later += job.submit_s > self._view.now_s

    def needed_s(self, name: str) -> float:
        """Return when a stage's predecessors, which the walk has passed, are expected to have ended."""
        follows, workflow = self._view.stages[name].stage.after, self._view.workflow
        is_whole = follows is workflow.stages[name].after  # otherwise some predecessors need not end first
        front = workflow.fronts[name] if is_whole else follows
        if id(front) not in self._fronts:
            ends_s = (self.ends_s[before] for before in front if before in self.ends_s)
            self._fronts[id(front)] = max(ends_s, default=self._view.now_s)
        return max(self._fronts[id(front)], self._view.now_s)


def _ahead(
    view: RunView, forecast: Forecast, name: str, needed_s: float, *, keep: Keep, level: float, times: float = 1.0
) -> PlannedJob:
    prediction = forecast.predict((name,), needed_s)
    lead = times * (prediction.wait_s if prediction.alternative >= 0 else prediction.at(level))
    submit = max(view.now_s, needed_s - lead)
    needed_in = format_duration(needed_s - view.now_s)
    reason = f"its stage can begin in {needed_in}, {wait_in_words(forecast, prediction.wait_s)}"
    if times == 1.0 and lead != prediction.wait_s and forecast.is_informed:
        reason += f", at most {format_duration(lead)} with {level:.0%} probability"
    return PlannedJob((name,), submit, keep, reason, prediction, needed_s)


def _expected_start(view: RunView, job: PlannedJob, needed_s: float) -> float:
    wait = job.prediction.wait_s if job.prediction else 0.0
    if job.keep is Keep.DEPENDENCY and not view.capabilities.age_accrues:
        return needed_s + wait  # the job begins to queue only once its dependency is met
    return max(needed_s, job.submit_s + wait)


def _present_start(view: RunView, stage: StageView, needed_s: float) -> float:
    """Return when a stage with a job started, or is expected to start."""
    if stage.started_s is not None:
        return stage.started_s
    if stage.phase is Phase.QUEUED and stage.submit_s is not None and stage.predicted_wait_s is not None:
        kept_back = stage.keep is Keep.DEPENDENCY and not view.is_ready(stage.stage.name)
        if kept_back and not view.capabilities.age_accrues:
            return needed_s + stage.predicted_wait_s
        return max(needed_s, stage.submit_s + stage.predicted_wait_s)
    return needed_s


def _expected_end(view: RunView, stage: StageView, start_s: float) -> float:
    if stage.ended_s is not None:
        return stage.ended_s
    return max(start_s + stage.stage.expected_s, view.now_s)


def _monotone(workflow: Workflow, planned: dict[str, PlannedJob]) -> dict[str, PlannedJob]:
    """Submit no job before one that it depends on: submit the other earlier, which is free with dependencies."""
    for name in reversed(planned):
        job = planned[name]
        for before in workflow.fronts[name] if job.keep is not Keep.NOTHING else ():
            if before in planned and planned[before].submit_s > job.submit_s:
                reason = f"{planned[before].reason}; with {name!r}, which depends on it and is due earlier"
                planned[before] = replace(planned[before], submit_s=job.submit_s, reason=reason)
    return planned
