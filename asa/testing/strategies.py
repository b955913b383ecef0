"""The contract of `asa.strategies.Strategy`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from asa.backend import Capabilities, DependencyType
from asa.compatible import conflict
from asa.keys import keys_of
from asa.shapes import Moldable, RunAt
from asa.strategies.base import (
    ForecastKind,
    Keep,
    Phase,
    Plan,
    PlannedJob,
    RunView,
    StageView,
    Strategy,
    lacking,
    whole,
)
from asa.units import core_hours
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

_CORES, _PER_NODE = 64, 8
_MAX_PLANS = 400  # plans of one run; a strategy that is called more often makes no progress


def check_strategy(make: Callable[[], Strategy]) -> None:
    """Check that a strategy fulfils the contract.

    It runs workflows on a model of a site: a chain, a diamond, one with stages that run only after failures, one whose
    stages have several shapes, and one with stages that cannot share a job; with short and long waits; with and without
    age accrual for dependent jobs, and without dependencies; with right, wrong and no forecasts. In each case all
    submissions must be valid, the same view must give the same plan, and every stage must run once. Stages that cannot
    share a job must be in different ones (`asa.compatible.conflict`), except with `is_one_job`: then such a workflow is
    refused before anything is submitted.

    Parameters
    ----------
    make
        Makes a fresh strategy.

    Raises
    ------
    AssertionError
        The strategy violates the contract; the message says what was expected.

    Notes
    -----
    Jobs that grow or shrink are not tested. A stage with several jobs is one job in the model.

    Examples
    --------
    >>> from asa.strategies import load_strategy
    >>> check_strategy(lambda: load_strategy("per-stage"))
    """
    strategy = whole(make())
    for name, value, kind in (
        ("forecast", strategy.forecast, ForecastKind),
        ("needs", strategy.needs, frozenset),
        ("replaces", strategy.replaces, bool),
    ):
        assert isinstance(value, kind), f"`{name}` is {value!r}: it has to be a {kind.__name__}"
    for name, number in (("max_idle", strategy.max_idle), ("price_s", strategy.price_s)):
        assert number is None or number >= 0, f"`{name}` is {number!r}: it has to be a number from 0 on, or None"
    for workflow, site, wait_s, forecast_s in product(_workflows(), _sites(), (0.0, 30.0, 3000.0), (None, 0.0, 900.0)):
        if not lacking(strategy, site) and not (strategy.is_one_job and conflict(list(workflow.stages.values()))):
            _ModelRun(workflow, site, wait_s, _Forecaster(forecast_s)).run(strategy, whole(make()))


def _workflows() -> Iterator[Workflow]:
    def stage(name: str, cores: int, run_s: float, after: str = "", **more: Any) -> Stage:
        common: dict[str, Any] = {"cores": cores, "walltime_s": 2 * run_s, "expected_run_s": run_s, "command": "work"}
        return Stage(name, after=tuple(after.split()), **common | more)

    yield Workflow("one", [stage("a", 8, 600.0)])
    yield Workflow("chain", [stage("a", 8, 600.0), stage("b", 64, 60.0, "a"), stage("c", 1, 1200.0, "b")])
    yield Workflow(
        "diamond",
        [stage("a", 8, 60.0), stage("b", 16, 900.0, "a"), stage("c", 1, 300.0, "a"), stage("d", 64, 60.0, "b c")],
    )
    yield Workflow(
        "when",
        [
            stage("a", 8, 60.0),
            stage("mend", 8, 60.0, "a", when="failed"),
            stage("tidy", 1, 60.0, "a", when="always"),
            stage("b", 8, 60.0, "a"),
        ],
    )
    shapes = Moldable((8, 16), (RunAt(8, 900.0), RunAt(16, 500.0)))
    yield Workflow("shapes", [stage("a", 8, 900.0, moldable=shapes), stage("b", 8, 900.0, "a", moldable=shapes)])

    listed: dict[str, Any] = {"jobs": (2, 2), "command": "", "tasks": ("x", "y")}
    own = {key.field: key.notation.read(key.examples[0]) for key in keys_of(Stage) if key.notation is not None}
    yield Workflow(
        "apart",
        [
            stage("a", 8, 60.0, account="p"),
            stage("b", 8, 60.0, "a", account="q"),
            stage("own", 8, 60.0, "b", account="q", **own),
            stage("c", 8, 60.0, "own", account="q"),
            stage("list", 8, 60.0, "c", account="q", **listed),
            stage("d", 8, 60.0, "list"),
        ],
    )


def _sites() -> Iterator[Capabilities]:
    for accrues in (True, False):
        yield Capabilities("model", _CORES, _PER_NODE, age_accrues=accrues)
    yield Capabilities("model", _CORES, _PER_NODE, age_accrues=False, plans=True)
    yield Capabilities("model", _CORES, _PER_NODE, age_accrues=False, dependency_types=frozenset(), begin_time=False)


@dataclass(frozen=True, slots=True)
class _Forecaster:
    """Predicts one wait for all jobs, or knows nothing if that wait is None."""

    wait_s: float | None

    @property
    def is_informed(self) -> bool:
        """Whether any wait is predicted."""
        return self.wait_s is not None

    def predict(self, stages: tuple[str, ...], needed_s: float) -> WaitForecast:  # noqa: ARG002 - the port's shape
        """Predict this wait."""
        wait_s = self.wait_s or 0.0
        return WaitForecast((wait_s,) * 9, wait_s)


@dataclass(slots=True)
class _ModelJob:
    """A job in the model."""

    job_id: str
    planned: PlannedJob
    submit_s: float
    cores: int
    start_s: float | None = None  # time at which it gets its cores
    began_s: float | None = None  # when its first stage runs
    ends_s: dict[str, float] = field(default_factory=dict)  # by stage, once it runs


@dataclass(slots=True)
class _ModelRun:
    """A site in which each job waits equally long, and a run on it."""

    workflow: Workflow
    site: Capabilities
    wait_s: float
    forecast: _Forecaster
    now_s: float = 1000.0
    views: dict[str, StageView] = field(default_factory=dict)
    jobs: dict[str, _ModelJob] = field(default_factory=dict)  # the jobs that have not ended
    count: int = 0
    idle_core_hours: float = 0.0
    ended: list[str] = field(default_factory=list)

    def run(self, strategy: Strategy, other: Strategy) -> None:
        """Run the workflow by a strategy, and check each of its plans; `other` is a fresh strategy of the same kind."""
        self.views = {name: StageView(stage) for name, stage in self.workflow.stages.items()}
        self._settle()
        for _ in range(_MAX_PLANS):
            if all(view.phase.is_settled for view in self.views.values()):
                break
            self._turn(strategy, other)
        else:
            raise AssertionError(self._words(f"the run does not end: {_MAX_PLANS} plans were asked for"))
        ran = [name for name, view in self.views.items() if view.phase is Phase.DONE]
        assert sorted(self.ended) == sorted(ran), self._words(f"each stage runs once, but {self.ended} ran")
        if (share := strategy.max_idle) is not None:
            bound = share * self.workflow.stage_core_hours(_PER_NODE) + core_hours(_CORES, 1.0) * self.count
            text = f"its allocations idled for {self.idle_core_hours:.3g} core-hours, of {bound:.3g} by `max_idle`"
            assert self.idle_core_hours <= bound, self._words(text)

    def _words(self, what: str) -> str:
        forecast = "no forecast" if self.forecast.wait_s is None else f"{self.forecast.wait_s:g} s predicted"
        how = "age accrues" if self.site.age_accrues else "no age accrues"
        depends = "" if self.site.dependency_types else ", no dependencies"
        return (
            f"workflow {self.workflow.name!r}, jobs wait {self.wait_s:g} s, {forecast}, {how}{depends}; at "
            f"{self.now_s - 1000.0:g} s: {what}"
        )

    # ------------------------------------------------------------------ plans

    def _view(self) -> RunView:
        return RunView(
            self.workflow,
            dict(self.views),
            self.now_s,
            self.site,
            idle_core_hours=self.idle_core_hours + self._holding(),
        )

    def _holding(self) -> float:
        """Return the core-hours that idle allocations may still idle."""
        idle = (job for job in self.jobs.values() if job.start_s is not None and job.began_s is None)
        return sum(core_hours(job.cores, job.planned.spare_walltime_s) for job in idle)

    def _turn(self, strategy: Strategy, other: Strategy) -> None:
        """Ask for a plan, take its due actions, and let time pass until the next event."""
        plan = self._plan(strategy, other)
        for cancellation in plan.cancellations:
            self._cancel(cancellation.job_id, cancellation.reason)
        if plan.cancellations:
            return
        due = [job for job in plan.submissions if job.submit_s <= self.now_s]
        for job in due:
            self._submit(job, plan)
        later = [job.submit_s for job in plan.submissions if job.submit_s > self.now_s]
        wakes = [plan.wake_s] if plan.wake_s is not None and plan.wake_s > self.now_s else []
        times = [time for time in (*later, *wakes, *self._events()) if time > self.now_s]
        if not due:
            assert times, self._words("nothing is submitted, and no time is named at which it would be")
        self.now_s = min(times, default=self.now_s)
        self._pass()

    def _plan(self, strategy: Strategy, other: Strategy) -> Plan:
        view = self._view()
        plan = strategy.plan(view, self.forecast)
        assert isinstance(plan, Plan), self._words(f"a plan has to be a Plan, and not {plan!r}")
        for again in (strategy, other):
            assert again.plan(view, self.forecast) == plan, self._words("the same view has to give the same plan")
        asked = [name for job in plan.submissions for name in job.stages]
        assert len(set(asked)) == len(asked), self._words(f"each stage is in one job, but these are asked for: {asked}")
        back = {cancellation.job_id for cancellation in plan.cancellations}  # their stages may be asked for again
        for job in plan.submissions:
            self._check(job, plan, back)
        for cancellation in plan.cancellations:
            given = self.jobs.get(cancellation.job_id)
            assert given is not None, self._words(f"there is no job {cancellation.job_id!r} to be taken back")
            assert given.began_s is None, self._words("a job is taken back whose stages run")
            assert cancellation.reason, self._words("a job is taken back, and no reason is given")
        return plan

    def _check(self, job: PlannedJob, plan: Plan, back: AbstractSet[str]) -> None:
        """Check that a job that is to be submitted makes sense."""
        what = "+".join(job.stages)
        assert job.stages, self._words("a job has no stages")
        for index, name in enumerate(job.stages):
            assert name in self.views, self._words(f"there is no stage {name!r}")
            view = self.views[name]
            may_be = view.phase is Phase.WAITING or view.job_id in back
            assert may_be, self._words(f"stage {name!r} is asked for, which is {view.phase.value}")
            inside = [earlier for earlier in self.workflow.stages[name].after if earlier in job.stages]
            assert all(job.stages.index(earlier) < index for earlier in inside), self._words(f"{what}: not in order")
        if len(job.stages) > 1:
            why = conflict([self.workflow.stages[name] for name in job.stages])
            assert not why, self._words(f"{what} cannot share a job: {why}")
        before = {earlier for name in job.stages for earlier in self.workflow.stages[name].after} - set(job.stages)
        is_ready = all(self.views[earlier].phase.is_settled for earlier in before)
        if job.keep is Keep.NOTHING:
            assert is_ready, self._words(f"{what}: nothing keeps it from running before what it follows has ended")
        if job.keep is Keep.DEPENDENCY:
            types = self.site.dependency_types
            assert DependencyType.AFTEROK in types, self._words(f"{what}: the site has no dependencies")
            has_jobs = all(self.views[earlier].phase.is_settled or self._comes(earlier, plan) for earlier in before)
            assert has_jobs, self._words(f"{what}: it depends on a stage that has no job")
        assert job.reason, self._words(f"{what}: no reason is given")
        assert math.isfinite(job.submit_s), self._words(f"{what}: it is to be submitted at {job.submit_s}")
        assert job.spare_walltime_s >= 0, self._words(f"{what}: {job.spare_walltime_s} s to spare")
        assert len(job.widths) in {0, len(job.stages)}, self._words(f"{what}: it has as many widths as stages, or none")
        for name in job.stages:
            choice = plan.choices.get(name)
            shapes = self.workflow.stages[name].shapes
            text = f"{name!r} has no such shape as it is asked for in"
            assert choice is None or choice.shape in shapes, self._words(text)

    def _comes(self, name: str, plan: Plan) -> bool:
        """Whether a stage has a job already, or gets one by this plan."""
        return self.views[name].job_id is not None or any(name in job.stages for job in plan.submissions)

    # ------------------------------------------------------------------ the site

    def _submit(self, job: PlannedJob, plan: Plan) -> None:
        self.count += 1
        job_id = str(self.count)
        for name in job.stages:
            view = self.views[name]
            if (choice := plan.choices.get(name)) is not None:
                view = replace(view, stage=view.stage.shaped(choice.shape))
            self.views[name] = replace(view, phase=Phase.QUEUED, job_id=job_id, submit_s=self.now_s, keep=job.keep)
        cores = max(self.views[name].stage.cores_on(_PER_NODE) for name in job.stages)
        self.jobs[job_id] = _ModelJob(job_id, job, self.now_s, cores)

    def _cancel(self, job_id: str, _reason: str) -> None:
        """Cancel a job; its stages are to be asked for again."""
        job = self.jobs.pop(job_id)
        if job.start_s is not None:
            self.idle_core_hours += core_hours(job.cores, self.now_s - job.start_s)
        for name in job.planned.stages:
            view = self.views[name]
            self.views[name] = StageView(view.stage, resubmissions=view.resubmissions + 1)

    def _starts_s(self, job: _ModelJob) -> float:
        """Return when a job gets its cores; infinity while that depends on other jobs."""
        if job.planned.keep is not Keep.DEPENDENCY:
            return job.submit_s + self.wait_s
        ends = [view.ended_s or self.now_s for view in self._before(job)]
        if not all(view.phase.is_settled for view in self._before(job)):
            return math.inf
        released_s = max(ends, default=job.submit_s)
        since_s = job.submit_s if self.site.age_accrues else max(released_s, job.submit_s)
        return max(since_s + self.wait_s, released_s)

    def _before(self, job: _ModelJob) -> list[StageView]:
        after = {earlier for name in job.planned.stages for earlier in self.workflow.stages[name].after}
        return [self.views[earlier] for earlier in sorted(after - set(job.planned.stages))]

    def _events(self) -> Iterator[float]:
        """Yield the times of the next events of jobs."""
        for job in self.jobs.values():
            if job.began_s is not None:
                yield from job.ends_s.values()
            elif job.start_s is not None:
                yield job.start_s + job.planned.spare_walltime_s
            elif (start_s := self._starts_s(job)) < math.inf:
                yield max(start_s, self.now_s + 1.0)

    def _pass(self) -> None:
        """Let all events happen that are due now."""
        for job in list(self.jobs.values()):
            for name, end_s in job.ends_s.items():
                if end_s <= self.now_s and self.views[name].phase is not Phase.DONE:
                    self.views[name] = replace(self.views[name], phase=Phase.DONE, ended_s=end_s)
                    self.ended.append(name)
            if job.ends_s and max(job.ends_s.values()) <= self.now_s:
                del self.jobs[job.job_id]
        self._settle()
        for job in list(self.jobs.values()):
            if job.start_s is None and self._starts_s(job) <= self.now_s:
                job.start_s = self.now_s
                until_s = self.now_s + job.planned.spare_walltime_s
                for name in job.planned.stages:
                    stage = self.views[name].stage
                    view = replace(self.views[name], phase=Phase.ALLOCATED, hold_until_s=until_s)
                    self.views[name] = replace(view, limit_s=until_s + stage.walltime_s)
            if job.start_s is not None and job.began_s is None:
                self._begin_or_give_up(job, job.start_s)

    def _begin_or_give_up(self, job: _ModelJob, start_s: float) -> None:
        """Begin a job that has its cores, once nothing holds it back; give the job up if it has idled for too long."""
        if all(view.phase.is_settled for view in self._before(job)):
            job.began_s = at_s = self.now_s
            self.idle_core_hours += core_hours(job.cores, self.now_s - start_s)
            for name in job.planned.stages:
                view = self.views[name]
                job.ends_s[name] = at_s + view.stage.expected_s
                self.views[name] = replace(view, phase=Phase.RUNNING, started_s=at_s, hold_until_s=None)
                at_s = job.ends_s[name]
        elif self.now_s > start_s + job.planned.spare_walltime_s:
            self._cancel(job.job_id, "it has idled for as long as it may")

    def _settle(self) -> None:
        """Decide whether conditional stages run, given that no stage fails here."""
        for name in self.workflow.order:
            view = self.views[name]
            if not view.stage.is_conditional or view.phase not in {Phase.WAITING, Phase.CONDITIONAL}:
                continue
            if not all(self.views[before].phase.is_settled for before in view.stage.after):
                self.views[name] = replace(view, phase=Phase.CONDITIONAL)
            else:
                phase = Phase.SKIPPED if view.stage.when == "failed" else Phase.WAITING
                self.views[name] = replace(view, phase=phase)
