"""asa's estimator for a visible queue: it also uses simulations of the jobs of all users."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from asa.core import plugins
from asa.errors import InputError, StateError
from asa.estimators.contextual import ContextualAsa
from asa.estimators.joint import FLOOR_S, SAMPLES, JointForecast, aged_shares, monotone, usual_of
from asa.waits import JobAhead, QueuedJob, Surroundings, WaitEstimator, WaitForecast, WaitObservation

_ADVISER = "queue"
_TRIED_EACH = 32  # number of submissions between two comparisons of sampled futures with forecasts
_TRIED_WITH = 16  # number of samples for this
_KEEP = 0.98  # factor on the weight of an error with each later one
_FIRST_ERROR = 0.3  # prior error of both, in decades
# number of requests that are also predicted singly; the others use the correction of the most similar one
_MAX_SINGLE = 12
_LIKE = 1.2  # ratio of walltimes up to which two requests have the same correction
_SHARPNESS = 10.0  # trust falls by exp(-sharpness x error in decades)


class Adviser(WaitEstimator, Protocol):
    """An estimator with several opinions on a job's wait."""

    def opinions(self, job: QueuedJob) -> tuple[float, ...]:
        """Return several estimates, in seconds, of the wait of a job that is submitted now."""
        ...

    def facts(self, job: QueuedJob) -> tuple[float, ...]:
        """Return the state of the queue for a job: counts, cores, seconds, core-seconds; none is negative."""
        ...

    def futures(self, jobs: Sequence[QueuedJob], samples: int, ahead: int | None = None) -> NDArray[np.float64]:
        """Sample the waits of requests, all in the same futures; shape (samples, requests).

        `ahead`: number of pending jobs before them in the queue; by default all.
        """
        ...

    def plan_futures(
        self,
        plans: Sequence[Sequence[JobAhead]],
        samples: int,
        later: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Sample when the jobs of several plans start; for each, shape (samples, jobs).

        `later`: for each plan, when the present queue has no more influence, and the waits of its jobs after that.
        """
        ...

    def hidden(self, ticket: int) -> AbstractContextManager[int | None]:
        """Take a pending job out of the queue in this context; yield the number of jobs ahead, None if not pending."""
        ...


class QueueAwareAsa:
    """`ContextualAsa` with opinions from simulations of the visible queue.

    A simulation includes the jobs ahead in the queue, but not priorities, reservations and later jobs, which are
    hidden. Each of its opinions is an expert like the others, whose profile is learned from its errors. The state of
    the queue is an input of the network.

    Notes
    -----
    Most of the time goes into the simulations: 0.1 to 0.4 milliseconds a job on logs with some hundred pending jobs,
    some milliseconds with thousands.
    """

    sees_queue: ClassVar[bool] = True

    def __init__(self, adviser: Adviser, learner: ContextualAsa) -> None:
        self.adviser, self.learner = adviser, learner
        self._tickets: dict[int, int] = {}  # by ticket of the adviser: ticket of the learner
        # by ticket, in decades: the median of the futures, and of the forecast
        self._tried: dict[int, tuple[float, float]] = {}
        self._errors = [_FIRST_ERROR, _FIRST_ERROR]  # mean errors of these two, in decades
        self._until_tried = 0
        # until the next event, in decades for each future: the wait of a job by itself, and its correction
        self._alone: dict[QueuedJob, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self._stated: dict[QueuedJob, WaitForecast] = {}  # until the next event: forecasts of jobs

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now."""
        forecast = self._stated[job] = self.learner.predict(job, self._outside(job))
        return forecast

    def predict_together(self, jobs: Sequence[QueuedJob], samples: int = SAMPLES) -> JointForecast:
        """Predict the waits of requests, one of which will be submitted; see `JointEstimator`.

        The correlation of the waits is that of the sampled futures of the queue. Their lengths are averages of these
        and of the forecasts of single requests, with more weight for the one that was more accurate lately.
        """
        futures, off = self._corrections(jobs, samples)
        return JointForecast(tuple(jobs), np.maximum(10.0 ** monotone(jobs, futures + off) - FLOOR_S, 0.0))

    def predict_plans(self, plans: Sequence[Sequence[JobAhead]], samples: int = SAMPLES) -> list[NDArray[np.float64]]:
        """Sample when the jobs of plans start; see `PlanEstimator`.

        In each sampled future of the queue a plan's jobs take their places one after the other. The difference between
        a job's forecast and the futures of the job by itself is added to its wait.
        """
        later = usual_of(self.learner, plans, samples)
        starts_s = self.adviser.plan_futures(plans, samples, later)
        asked = {ahead.as_if_now: None for plan in plans for ahead in plan if ahead.queues != "local"}
        if unknown := [job for job in asked if self._like(job) is None]:
            self._corrections(unknown, SAMPLES)
        return [self._corrected(*of) for of in zip(plans, starts_s, later, strict=True)]

    def _corrections(self, jobs: Sequence[QueuedJob], samples: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the futures of requests, and the corrections of these futures in decades."""
        futures = _decades(self.adviser.futures(jobs, samples))
        order = np.argsort(futures, axis=0, kind="stable")
        ascending = np.take_along_axis(futures, order, axis=0)
        levels = ((np.arange(len(futures)) + 0.5) / len(futures)).tolist()
        singles, nearest = _spread_out(jobs)
        off = np.empty_like(futures)  # the forecast at each level, less the futures
        for place in singles:
            forecast = self._stated.get(jobs[place]) or self.predict(jobs[place])
            off[:, place] = _decades(np.array([forecast.at(level) for level in levels])) - ascending[:, place]
        made = np.empty_like(futures)
        np.put_along_axis(made, order, (1.0 - self.trust) * off[:, nearest], axis=0)
        self._alone.update(zip(jobs, zip(futures.T, made.T, strict=True), strict=True))
        return futures, made

    def _like(self, job: QueuedJob) -> QueuedJob | None:
        """Return a request that hardly differs from a job and whose correction is known; None if there is none."""
        if job in self._alone:
            return job
        for known in self._alone:
            if known.cores == job.cores and _elsewhere(known) == _elsewhere(job):
                low_s, high_s = sorted((known.walltime_s, job.walltime_s))
                if high_s <= _LIKE * low_s:
                    return known
        return None

    def _corrected(
        self,
        plan: Sequence[JobAhead],
        starts_s: NDArray[np.float64],
        later: tuple[NDArray[np.float64], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        """Correct the waits in the sampled futures of a plan, and shift the jobs that follow."""
        count = len(starts_s)
        each, shares = np.arange(count), aged_shares(plan, count)
        before_s, ends_s, made = np.zeros_like(starts_s), np.zeros_like(starts_s), np.zeros_like(starts_s)
        for index, ahead in enumerate(plan):
            run_s = ahead.run_s[each % len(ahead.run_s)]
            floor_s = np.zeros(count) if ahead.ready_s is None else ahead.ready_s[each % len(ahead.ready_s)]
            was_s = np.maximum(floor_s, np.max(before_s[:, list(ahead.after)], axis=1, initial=0.0))
            due_s = np.maximum(floor_s, np.max(ends_s[:, list(ahead.after)], axis=1, initial=0.0))
            before_s[:, index] = np.maximum(starts_s[:, index], was_s) + run_s
            start_s = starts_s[:, index] + (due_s - was_s)
            if ahead.queues != "local":
                from_s = was_s if ahead.queues == "ready" else np.full(count, ahead.submit_s)
                is_known = from_s < later[0][:count]
                like = self._like(ahead.as_if_now)
                assert like is not None, "it was asked for"
                alone, off = (row[each % len(row)] for row in self._alone[like])
                alone_s = np.maximum(10.0 ** (alone + off) - FLOOR_S, 0.0)
                wait_s = np.maximum(starts_s[:, index] - from_s, 0.0)
                # jobs that arrive later may take the cores that are free when this job is ready
                if ahead.queues == "aging":
                    start_s = np.maximum(
                        start_s, np.where(is_known, _aged(due_s, from_s, alone_s, shares[:, index]), 0.0)
                    )
                else:
                    decades = _decades(wait_s)
                    # the correction is known only for waits like that of the job by itself
                    decades += off * np.maximum(1.0 - np.abs(decades - alone), 0.0)
                    changed_s = np.maximum(10.0**decades - FLOOR_S, 0.0)
                    # later jobs arrive meanwhile, so the queue ahead does not get shorter than now
                    wait_s = np.where(is_known, np.maximum(changed_s, alone_s), wait_s)
                    start_s = wait_s + (due_s if ahead.queues == "ready" else from_s)
            made[:, index] = start_s
            ends_s[:, index] = np.maximum(start_s, due_s) + run_s
        return made

    @contextmanager
    def instead_of(self, ticket: int) -> Iterator[Callable[[QueuedJob, QueuedJob], NDArray[np.float64]] | None]:
        """Predict as if a pending job were withdrawn; see `ReplacingEstimator`."""
        with self.adviser.hidden(ticket) as ahead:
            if ahead is None:
                yield None
                return

            def sampled(own: QueuedJob, other: QueuedJob) -> NDArray[np.float64]:
                here = self.adviser.futures([own], SAMPLES, ahead)
                return np.concatenate([here, self.adviser.futures([other], SAMPLES)], axis=1)

            self._forget()
            try:
                yield sampled
            finally:
                self._forget()

    def _forget(self) -> None:
        """Drop predictions for the queue as it was."""
        self._alone.clear()
        self._stated.clear()

    @property
    def trust(self) -> float:
        """Weight of the sampled futures relative to the forecast of a single request."""
        of_futures, of_forecast = self._errors
        return 1.0 / (1.0 + math.exp(_SHARPNESS * (of_futures - of_forecast)))

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:
        """Learn that a job is pending from now on."""
        self._forget()
        try_them = self._until_tried == 0
        if try_them:
            stated = forecast or self.predict(job)
            of_futures = float(np.median(_decades(self.adviser.futures([job], _TRIED_WITH))))
        mine = self.learner.submitted(job, forecast, self._outside(job))
        ticket = self.adviser.submitted(job, forecast)
        self._tickets[ticket] = mine
        if try_them:
            self._tried[ticket] = of_futures, float(_decades(np.array(stated.quantiles_s[4])))
            self._until_tried = _TRIED_EACH
        self._until_tried -= 1
        return ticket

    def _outside(self, job: QueuedJob) -> tuple[float, ...]:
        """Return the opinions of the adviser, and the magnitudes of its facts."""
        facts = (math.log10(1.0 + fact) / 2.0 - 1.0 for fact in self.adviser.facts(job))
        return (*self.adviser.opinions(job), *facts)

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn the observation of a wait."""
        if ticket not in self._tickets:
            raise InputError(f"no job waits under ticket {ticket}", hint="Hand back what `submitted` gave.")
        self._forget()
        mine = self._tickets.pop(ticket)
        if (tried := self._tried.pop(ticket, None)) is not None and observation.kind == "exact":
            truth = math.log10(observation.wait_s + FLOOR_S)
            for index, pair in enumerate(tried):
                self._errors[index] += (1.0 - _KEEP) * (abs(pair - truth) - self._errors[index])
        self.adviser.observe(ticket, observation)
        self.learner.observe(mine, observation)

    def ended(self, ticket: int, run_s: float) -> None:
        """Learn how long a started job ran."""
        self._forget()
        self.adviser.ended(ticket, run_s)

    def withdrawn(self, ticket: int) -> None:
        """Forget a pending or running job, and learn nothing from it."""
        self._forget()
        mine = self._tickets.pop(ticket, None)
        self._tried.pop(ticket, None)
        if mine is not None:
            self.learner.withdrawn(mine)
        self.adviser.withdrawn(ticket)

    def state(self) -> dict[str, Any]:
        """Return the state of the adviser and the learner."""
        return {
            "adviser": self.adviser.state(),
            "learner": self.learner.state(),
            "tickets": [[theirs, mine] for theirs, mine in self._tickets.items()],
            "tried": [[ticket, *pair] for ticket, pair in self._tried.items()],
            "errors": list(self._errors),
            "until_tried": self._until_tried,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QueueAwareAsa:
        """Return an estimator that continues bit for bit from the `state` of another."""
        try:
            adviser = type(_adviser(Surroundings())).from_state(state["adviser"])  # type: ignore[attr-defined]
            made = cls(adviser, ContextualAsa.from_state(state["learner"]))
            made._tickets = {int(theirs): int(mine) for theirs, mine in state["tickets"]}
            made._tried = {int(ticket): (float(one), float(other)) for ticket, one, other in state["tried"]}
            of_futures, of_forecast = map(float, state["errors"])
            made._errors, made._until_tried = [of_futures, of_forecast], int(state["until_tried"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"no state of an estimator: {error}", hint="Forget it and learn anew.") from error
        if not all(map(math.isfinite, made._errors)) or made._until_tried < 0:
            raise StateError("no state of an estimator: errors that cannot be", hint="Forget it and learn anew.")
        return made


def _aged(
    due_s: NDArray[np.float64], from_s: NDArray[np.float64], wait_s: NDArray[np.float64], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the earliest starts of jobs that are held until they are due, given their waits without the hold."""
    aged: NDArray[np.float64] = np.maximum(due_s + np.where(due_s > from_s, share * wait_s, 0.0), from_s + wait_s)
    return aged


def _spread_out(jobs: Sequence[QueuedJob]) -> tuple[list[int], list[int]]:
    """Return dissimilar requests, and for each request the most similar one among these."""
    place = {key: 64.0 * number for number, key in enumerate(dict.fromkeys(map(_elsewhere, jobs)))}
    asked = np.array([(math.log2(job.cores), math.log2(job.walltime_s), place[_elsewhere(job)]) for job in jobs])
    picked, nearest = [0], np.zeros(len(jobs), dtype=np.intp)
    far = np.abs(asked - asked[0]).sum(axis=1)
    while len(picked) < _MAX_SINGLE and far.max() > 0:
        farthest = int(np.argmax(far))
        picked.append(farthest)
        from_one = np.abs(asked - asked[farthest]).sum(axis=1)
        nearest[from_one < far] = farthest
        far = np.minimum(far, from_one)
    return picked, nearest.tolist()


def _elsewhere(job: QueuedJob) -> tuple[str, str, float]:
    return job.partition, job.user, job.submit_s


def _decades(waits_s: NDArray[np.float64]) -> NDArray[np.float64]:
    decades: NDArray[np.float64] = np.log10(waits_s + FLOOR_S)
    return decades


def _adviser(surroundings: Surroundings) -> Adviser:
    adviser: Adviser = plugins.load("asa.estimators", _ADVISER)(surroundings)
    return adviser


def queue_aware_asa(surroundings: Surroundings) -> QueueAwareAsa:
    """Learn as `asa` does, and from simulations of the visible queue.

    Parameters
    ----------
    surroundings
        The seed, and the machine whose queue is simulated.
    """
    adviser = _adviser(surroundings)
    job = QueuedJob(0.0, 1, 1.0)
    opinions, facts = len(adviser.opinions(job)), len(adviser.facts(job))
    return QueueAwareAsa(adviser, ContextualAsa(seed=surroundings.seed, opinions=opinions, facts=facts))
