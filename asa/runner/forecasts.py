"""The sources of a strategy's predicted waits."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from asa.backend import Capabilities, Foresight, JobSpec, Planning
from asa.errors import InputError
from asa.estimators import PAPER_ALTERNATIVES_S, OwnJob, WaitBank, WaitStore
from asa.estimators.kept import bank_of, bank_of_each
from asa.strategies.base import JobRequest, Keep, Plan, PlannedJob, PlanStep
from asa.waits import LEVELS, JobAhead, QueuedJob, WaitForecast

_FEW_WAITS = 10
_NO_WAIT = WaitForecast((0.0,) * len(LEVELS), 0.0)


def bank_at(site: Capabilities, estimator: str, store: WaitStore | None, *, seed: int, now_s: float) -> WaitBank:
    """Open the bank of a run at a site, with what is known of each of its clusters."""
    if not site.clusters:
        return bank_of(estimator, store, site.system, machine_cores=site.max_cores, seed=seed, now_s=now_s)
    cores = {here.system: here.max_cores for here in site.clusters.values()}
    return bank_of_each(estimator, store, cores, seed=seed, now_s=now_s)


class NoForecast:
    """The forecast of strategies that predict nothing."""

    is_informed = False

    def predict(self, stages: tuple[str, ...], needed_s: float) -> WaitForecast:  # noqa: ARG002 - the port's shape
        """Raise an error: a strategy that predicts must say so in its `forecast`."""
        raise InputError(
            f"no forecast is there for stage {stages[0]!r}",
            hint="The strategy must declare the forecast it needs.",
        )


class LearnedForecast:
    """A bank's predictions, for jobs as if they were submitted now.

    Algorithm 1 draws at random. It draws anew only after the bank has learned from another of the client's own
    jobs, so that planning again without news gives the same plan.
    """

    def __init__(
        self,
        bank: WaitBank,
        job_of: Callable[[tuple[str, ...]], QueuedJob],
        *,
        at_once: Callable[[tuple[str, ...]], bool] = lambda _stages: False,
        queue_of: Callable[[str], tuple[str, str]] = lambda partition: ("", partition),
        fetching_s: Callable[[tuple[str, ...], str, Iterable[str]], float] | None = None,
        known_as: Callable[[str], OwnJob | None] = lambda _job_id: None,
    ) -> None:
        self.bank = bank
        self._known_as = known_as  # returns how the bank knows a job of this run; None if it does not
        self._queue_of = queue_of  # returns the system and the name there of a partition; of the default one if empty
        # returns how long a job's stages fetch what was left elsewhere, given its partition, and those of jobs before;
        # None if nothing is ever fetched
        self._fetching_s = fetching_s
        self._job_of = job_of
        self._at_once = at_once
        self._drawn: dict[tuple[tuple[str, ...], int], tuple[int, WaitForecast]] = {}

    @property
    def is_informed(self) -> bool:
        """Whether at least a few waits are known."""
        return self.bank.learned >= _FEW_WAITS

    @property
    def sees_queue(self) -> bool:
        """Whether the bank knows the queue."""
        return self.bank.sees_queue

    def predict(self, stages: tuple[str, ...], needed_s: float) -> WaitForecast:  # noqa: ARG002 - it is unknown
        """Predict the wait of a job."""
        return self._predict(stages, self._job_of(stages))

    def predict_size(self, stages: tuple[str, ...], needed_s: float, cores: int, walltime_s: float) -> WaitForecast:  # noqa: ARG002 - it is unknown
        """Predict the wait of a job whose size differs from its stages' own."""
        return self._predict(stages, replace(self._job_of(stages), cores=cores, walltime_s=walltime_s))

    def predict_each(self, stages: tuple[str, ...], requests: Sequence[JobRequest]) -> list[WaitForecast]:
        """Predict the waits of several requests, comparable with each other."""
        if self._at_once(stages):
            return [_NO_WAIT] * len(requests)
        jobs = self._asking(stages, requests)
        if self.bank.draws:
            return [self._predict(stages, job) for job in jobs]
        joint = self.bank.predict_together(jobs)
        waits = [joint.for_choice(index) for index in range(len(jobs))]
        if self._fetching_s is None:
            return waits
        return [
            _later(wait, self._fetching_s(stages, request.partition, ()))
            for wait, request in zip(waits, requests, strict=True)
        ]

    def sample_plans(self, plans: Sequence[Sequence[PlanStep]], samples: int) -> list[NDArray[np.float64]] | None:
        """Sample when the jobs of each plan get their cores, in the same futures; see `asa.strategies.base.Joint`."""
        if self.bank.draws or not any(plans):
            return None
        steps = [step for plan in plans for step in plan]
        jobs = iter(self._asking(steps[0].stages, (step.request for step in steps)))
        if self._fetching_s is None:
            return self.bank.predict_plans(
                [[self._ahead(step, next(jobs)) for step in plan] for plan in plans], samples
            )
        fetching_s = [[self._fetches_s(plan, step) for step in plan] for plan in plans]
        ahead = [
            [self._ahead(step, next(jobs), more_s) for step, more_s in zip(plan, more, strict=True)]
            for plan, more in zip(plans, fetching_s, strict=True)
        ]
        starts_s = self.bank.predict_plans(ahead, samples)
        return [_fetched(*of) for of in zip(plans, starts_s, fetching_s, strict=True)]

    def _fetches_s(self, plan: Sequence[PlanStep], step: PlanStep) -> float:
        assert self._fetching_s is not None
        return self._fetching_s(step.stages, step.request.partition, [plan[p].request.partition for p in step.after])

    def _ahead(self, step: PlanStep, job: QueuedJob, fetching_s: float = 0.0) -> JobAhead:
        is_aging = step.keep is Keep.DEPENDENCY and step.ages
        queues: Literal["ready", "aging", "early", "local"] = "ready"
        if self._at_once(step.stages):
            queues = "local"
        elif is_aging or step.keep is Keep.AWAIT:
            queues = "aging" if is_aging else "early"
        at_s = job.submit_s + (step.submit_s if step.keep is Keep.AWAIT else 0.0)
        return JobAhead(
            replace(job, submit_s=at_s),
            job.submit_s,
            step.run_s + fetching_s if fetching_s else step.run_s,
            step.after,
            queues,
            step.ready_s,
            step.submit_s,
        )

    @contextmanager
    def instead_of(
        self, job_id: str, stages: tuple[str, ...]
    ) -> Iterator[Callable[[JobRequest, JobRequest], NDArray[np.float64]] | None]:
        """Predict, inside the context, as if a queued job were withdrawn; see `asa.strategies.base.Replacing`."""
        own = self._known_as(job_id)
        if own is None or self.bank.draws:
            yield None
            return
        with self.bank.instead_of(own) as sampled:
            yield None if sampled is None else lambda one, other: sampled(*self._asking(stages, (one, other)))

    def _asking(self, stages: tuple[str, ...], requests: Iterable[JobRequest]) -> list[QueuedJob]:
        own = self._job_of(stages)
        asking = []
        for request in requests:
            system, partition = self._queue_of(request.partition)
            asking.append(
                replace(own, cores=request.cores, walltime_s=request.walltime_s, system=system, partition=partition)
            )
        return asking

    def _predict(self, stages: tuple[str, ...], job: QueuedJob) -> WaitForecast:
        if self._at_once(stages):
            return _NO_WAIT
        if not self.bank.draws:
            return self.bank.predict(job)
        drawn = self._drawn.get((stages, job.cores))
        if drawn is None or drawn[0] != self.bank.own:
            drawn = self._drawn[stages, job.cores] = (self.bank.own, self.bank.predict(job))
        return drawn[1]

    def used(self, stages: tuple[str, ...]) -> None:
        """Forget the prediction for stages that were just submitted, so that the next submission draws again."""
        for key in [key for key in self._drawn if key[0] == stages]:
            del self._drawn[key]


def _fetched(
    plan: Sequence[PlanStep], starts_s: NDArray[np.float64], fetching_s: Sequence[float]
) -> NDArray[np.float64]:
    """Return the starts of a plan's jobs, each later by what it fetches once the jobs before it have ended."""
    found, ends_s, rows = starts_s.copy(), np.zeros_like(starts_s), np.arange(len(starts_s))
    for index, (step, more_s) in enumerate(zip(plan, fetching_s, strict=True)):
        ready_s = np.max(ends_s[:, list(step.after)], axis=1, initial=0.0)
        ready_s = np.maximum(ready_s, step.ready_s[rows % len(step.ready_s)])
        if more_s:
            found[:, index] = np.maximum(starts_s[:, index], ready_s) + more_s
        ends_s[:, index] = np.maximum(found[:, index], ready_s) + step.run_s[rows % len(step.run_s)]
    return found


class WaitAndFetch(WaitForecast):
    """How long after its submission a job begins with its work, which first fetches what is on another cluster.

    `wait`: its wait in the queue. `fetching_s`: what is fetched takes.
    """

    wait: WaitForecast
    fetching_s: float


def _later(forecast: WaitForecast, by_s: float) -> WaitForecast:
    if not by_s:
        return forecast
    later = WaitAndFetch(tuple(wait_s + by_s for wait_s in forecast.quantiles_s), forecast.wait_s + by_s)
    later.wait, later.fetching_s = forecast, by_s
    return later


def in_queues(plan: Plan) -> Plan:
    """Return a plan with its jobs' waits in the queue, which are what is seen later.

    A job that may begin before its turn fetches only then: to be in time, it is submitted its wait alone ahead.
    """
    if not any(isinstance(planned.prediction, WaitAndFetch) for planned in plan.submissions):
        return plan
    return replace(plan, submissions=tuple(map(_in_queue, plan.submissions)))


def _in_queue(planned: PlannedJob) -> PlannedJob:
    whole = planned.prediction
    if not isinstance(whole, WaitAndFetch):
        return planned
    submit_s = planned.submit_s
    if planned.keep is Keep.AWAIT:
        submit_s = max(submit_s, min(submit_s + whole.fetching_s, planned.needed_s or submit_s))
    return replace(planned, submit_s=submit_s, prediction=whole.wait)


class PlannedForecast:
    """Waits from the batch system's own plan, for jobs as if they were submitted now."""

    is_informed = True

    def __init__(
        self,
        backend: Planning,
        spec_of: Callable[[tuple[str, ...]], JobSpec],
        now: Callable[[], float],
    ) -> None:
        self._backend, self._spec_of, self._now = backend, spec_of, now

    def predict(self, stages: tuple[str, ...], needed_s: float) -> WaitForecast:  # noqa: ARG002 - the port's shape
        """Ask the batch system when a job would start."""
        spec, now = self._spec_of(stages), self._now()
        wait_s = 0.0 if spec.local else max(self._backend.planned_start(spec, now) - now, 0.0)
        return WaitForecast((wait_s,) * len(LEVELS), wait_s)


class KnownForecast:
    """Waits read from a simulator's future.

    The simulator is asked when a job would start that is submitted at a given time and eligible once it is needed. The
    prediction is the shortest lead time with which the job starts as early as possible.
    """

    is_informed = True

    def __init__(
        self, backend: Foresight, spec_of: Callable[[tuple[str, ...]], JobSpec], now: Callable[[], float]
    ) -> None:
        self._backend = backend
        self._spec_of = spec_of
        self._now = now

    def predict(self, stages: tuple[str, ...], needed_s: float) -> WaitForecast:
        """Find the shortest lead time with which a job starts when it is needed, or as soon as possible after."""
        whole = float(math.ceil(needed_s))  # batch systems count whole seconds
        lead = self._min_lead(replace(self._spec_of(stages), begin_s=whole), whole)
        return WaitForecast((lead,) * len(LEVELS), lead)

    def _min_lead(self, spec: JobSpec, needed_s: float) -> float:
        now = self._now()
        earliest = self._backend.foresee_start(spec, now)
        if earliest > needed_s or needed_s <= now:
            return earliest - now  # late, even if submitted now
        leads = [0.0, *(lead for lead in PAPER_ALTERNATIVES_S if lead < needed_s - now), needed_s - now]
        return leads[bisect_left(leads, x=True, key=lambda lead: self._is_in_time(spec, needed_s, lead))]

    def _is_in_time(self, spec: JobSpec, needed_s: float, lead_s: float) -> bool:
        return self._backend.foresee_start(spec, needed_s - lead_s) <= needed_s
