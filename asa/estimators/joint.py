"""Waits of several alternative requests at the same time, in the same sampled futures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from statistics import NormalDist
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from asa.core.late import dataclass
from asa.errors import InputError
from asa.waits import LEVELS, JobAhead, QueuedJob, WaitEstimator, WaitForecast, aged_share

SAMPLES = 64
"""Default number of sampled futures."""

FLOOR_S = 10.0
"""Waits up to this many seconds count as equal."""

_USUAL = 0.4  # weight of long-run waits in a choice, relative to the forecast
_LEVELS = np.array(LEVELS)
_SEED = 20_261_129
_OF_AGE = 1 << 20  # far from the orders of waits
_OF_SYSTEMS = 1 << 21


@dataclass(frozen=True, slots=True, eq=False)
class JointForecast:
    """The joint forecast of several requests, one of which will be submitted.

    A row is one sampled future, the same for all requests: the same jobs run for the same time, and the same cores
    become free. So differences between requests are more certain than the waits themselves.

    Parameters
    ----------
    jobs
        The requests. Their `submit_s` may differ: submitting now or later is a choice as well.
    waits_s
        Sampled waits in seconds, shape (samples, requests); rows are equally likely.
    usual_s
        Long-run waits of such jobs, shape (any, requests), if they are known and add to the samples. A choice takes
        them into account.
    doubt
        Factors on the sampled waits in comparisons, shape (requests,). They are learned from observed differences
        between such requests, and are larger for rare kinds of jobs, whose predictions are mostly too short.

    Examples
    --------
    >>> jobs = [QueuedJob(0.0, cores, 7200.0) for cores in (28, 112)]
    >>> joint = JointForecast(tuple(jobs), np.array([[0.0, 900.0], [600.0, 600.0], [60.0, 9000.0]]))
    >>> run_s = [5400.0, 1800.0]
    >>> round(joint.probability_before(1, 0, run_s), 2), joint.best(run_s)
    (0.67, 1)
    >>> joint.forecast(0).quantiles_s[4]
    60.0
    """

    jobs: tuple[QueuedJob, ...]
    waits_s: NDArray[np.float64]
    usual_s: NDArray[np.float64] | None = None
    doubt: NDArray[np.float64] | None = None

    def forecast(self, place: int) -> WaitForecast:
        """Return the forecast of one request.

        Parameters
        ----------
        place
            Index of the request.
        """
        quantiles = np.quantile(self.waits_s[:, place], _LEVELS).tolist()
        return WaitForecast(tuple(quantiles), quantiles[4])

    def for_choice(self, place: int) -> WaitForecast:
        """Return the sampled and the long-run waits of one request for a choice, both with doubt.

        Parameters
        ----------
        place
            Index of the request.
        """
        waits_s, weights = self.likely_s[:, place], np.full(len(self.waits_s), 1.0 / len(self.waits_s))
        if self.usual_s is not None:
            doubt = 1.0 if self.doubt is None else self.doubt[place]
            waits_s = np.concatenate([waits_s, self.usual_s[:, place] * doubt])
            usual = np.full(len(self.usual_s), _USUAL / len(self.usual_s))
            weights = np.concatenate([weights * (1.0 - _USUAL), usual])
        order = np.argsort(waits_s, kind="stable")
        middles = np.cumsum(weights[order]) - weights[order] / 2
        quantiles = np.interp(_LEVELS, middles, waits_s[order]).tolist()
        return WaitForecast(tuple(quantiles), quantiles[4])

    def ends_s(self, run_s: Sequence[float] | None = None) -> NDArray[np.float64]:
        """Return when each request would end in each future, in seconds after the first of their submissions.

        Parameters
        ----------
        run_s
            How long each runs, in seconds; without it, when each starts.

        Returns
        -------
        ndarray
            Shape (samples, requests).
        """
        return self._ends_s(self.waits_s, run_s)

    def probability_before(self, first: int, second: int, run_s: Sequence[float] | None = None) -> float:
        """Return the probability that one request ends before another; without run times, that it starts before it.

        Parameters
        ----------
        first, second
            Indices of the requests.
        run_s
            How long each of all requests runs, in seconds.
        """
        ends_s = self._ends_s(self.likely_s, run_s)
        before, same = ends_s[:, first] < ends_s[:, second], ends_s[:, first] == ends_s[:, second]
        return float(before.mean() + same.mean() / 2)

    def costs(self, run_s: Sequence[float] | None = None) -> NDArray[np.float64]:
        """Return the expected logarithm of the time to each request's end, which a choice minimizes.

        Parameters
        ----------
        run_s
            How long each runs, in seconds.
        """
        now: NDArray[np.float64] = _mean_log(self._ends_s(self.likely_s, run_s))
        if self.usual_s is None:
            return now
        doubt = 1.0 if self.doubt is None else self.doubt
        usual: NDArray[np.float64] = _mean_log(self._ends_s(self.usual_s * doubt, run_s))
        return (1.0 - _USUAL) * now + _USUAL * usual

    def best(self, run_s: Sequence[float] | None = None, *, own: int | None = None, sure: float = 0.6) -> int:
        """Choose the request with the least expected logarithm of the time to its end.

        Parameters
        ----------
        run_s
            How long each runs, in seconds; without it, the one that starts first is chosen.
        own
            Index of the user's own request: another is chosen only if it is likely to end before this one.
        sure
            The probability that this requires.

        Returns
        -------
        int
            Its index.

        Raises
        ------
        InputError
            There is no such index, or a run time is impossible.
        """
        if own is not None and not 0 <= own < len(self.jobs):
            raise InputError(f"there is no request {own} of {len(self.jobs)}", hint="Give its place, from 0 on.")
        place = int(np.argmin(self.costs(run_s)))
        if own is None or place == own or self.probability_before(place, own, run_s) >= sure:
            return place
        return own

    def only(self, places: Sequence[int]) -> JointForecast:
        """Return the forecast of some of the requests, in the same futures.

        Parameters
        ----------
        places
            Indices of these requests; an index may occur several times.
        """
        chosen = list(places)
        return replace(
            self,
            jobs=tuple(self.jobs[place] for place in chosen),
            waits_s=self.waits_s[:, chosen],
            usual_s=None if self.usual_s is None else self.usual_s[:, chosen],
            doubt=None if self.doubt is None else self.doubt[chosen],
        )

    def until_ends(self, run_s: Sequence[float], spreads: Sequence[float]) -> JointForecast:
        """Return the forecast of the time until the requests end, for uncertain run times.

        Parameters
        ----------
        run_s
            How long each is expected to run, in seconds.
        spreads
            Standard deviations of the logarithms of these run times, which are independent.
        """
        usual_s = self.usual_s
        if usual_s is not None:
            usual_s = usual_s if self.doubt is None else usual_s * self.doubt
            usual_s = usual_s + _runs_s(len(usual_s), run_s, spreads)
        return replace(
            self, waits_s=self.likely_s + _runs_s(len(self.waits_s), run_s, spreads), usual_s=usual_s, doubt=None
        )

    @property
    def likely_s(self) -> NDArray[np.float64]:
        """Waits by which requests are compared."""
        return self.waits_s if self.doubt is None else self.waits_s * self.doubt

    def _ends_s(self, waits_s: NDArray[np.float64], run_s: Sequence[float] | None) -> NDArray[np.float64]:
        submit_s = np.array([job.submit_s for job in self.jobs])
        after_s = submit_s - submit_s.min()
        if run_s is not None:
            if len(run_s) != len(self.jobs):
                raise InputError(
                    f"{len(run_s)} run times for {len(self.jobs)} requests", hint="Give one for each request."
                )
            if not all(0 <= time_s < np.inf for time_s in run_s):
                raise InputError(f"run times of {list(run_s)} s cannot be", hint="They are finite and not negative.")
            after_s += np.asarray(run_s, dtype=np.float64)
        ends_s: NDArray[np.float64] = waits_s + after_s
        return ends_s


def _runs_s(samples: int, run_s: Sequence[float], spreads: Sequence[float]) -> NDArray[np.float64]:
    """Return samples of run times, log-normal around the expected ones; each request has a fixed order of samples."""
    normal = np.array([NormalDist().inv_cdf((number + 0.5) / samples) for number in range(samples)])
    orders = [np.random.Generator(np.random.PCG64(index)).permutation(samples) for index in range(len(run_s))]
    strays = np.stack([normal[order] for order in orders], axis=1)
    made: NDArray[np.float64] = np.asarray(run_s) * np.exp(np.asarray(spreads) * strays)
    return made


def _mean_log(ends_s: NDArray[np.float64]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = np.log(np.maximum(ends_s, FLOOR_S)).mean(axis=0)
    return mean


@runtime_checkable
class JointEstimator(WaitEstimator, Protocol):
    """An estimator that predicts several requests in the same futures."""

    def predict_together(self, jobs: Sequence[QueuedJob], samples: int = SAMPLES) -> JointForecast:
        """Predict the waits of requests, one of which will be submitted. The state does not change.

        Parameters
        ----------
        jobs
            The requests, of one system. Forecasts use what is known now, also for requests to be submitted later.
        samples
            Number of futures.
        """
        ...


@runtime_checkable
class PlanEstimator(WaitEstimator, Protocol):
    """An estimator that sees the queue, and so can simulate the jobs of a plan in it."""

    def predict_plans(self, plans: Sequence[Sequence[JobAhead]], samples: int = SAMPLES) -> list[NDArray[np.float64]]:
        """Sample when the jobs of several plans start, in the same futures. The state does not change.

        Parameters
        ----------
        plans
            The plans, one of which will be followed, on one system. The jobs of a plan are in topological order.
        samples
            Number of futures.

        Returns
        -------
        list of ndarray
            For each plan, in seconds from now, shape (samples, jobs). In each future a job takes its place in the
            queue, and its cores, before the next is simulated; parallel jobs compete. A job that is submitted when the
            known queue has no more influence has the wait that is usual for the hour and its geometry.
        """
        ...


@runtime_checkable
class Later(Protocol):
    """An estimator that predicts waits for the time when the present queue has no more influence."""

    def usual_later(self, jobs: Sequence[QueuedJob], samples: int) -> tuple[float, NDArray[np.float64]] | None:
        """Return the mean time until the present queue has no more influence, and the usual waits after that.

        Parameters
        ----------
        jobs
            The jobs, each with its future time of submission.
        samples
            Number of samples.

        Returns
        -------
        tuple, or None
            Seconds; and waits in seconds, ascending, shape (samples, jobs). None if too few waits are known.
        """
        ...


@runtime_checkable
class ReplacingEstimator(WaitEstimator, Protocol):
    """An estimator that sees the queue, and so knows the value of a pending job's place in it."""

    def instead_of(
        self, ticket: int
    ) -> AbstractContextManager[Callable[[QueuedJob, QueuedJob], NDArray[np.float64]] | None]:
        """Within this context, predict as if a pending job were withdrawn.

        `ticket`: what `submitted` returned for the job.
        Returns: yields a function of the pending job and of a job to be submitted in its stead, both with the present
        time as `submit_s`. The function returns seconds, shape (samples, 2), a row for each future: how much longer the
        first job waits in its present place, and how long the second waits at the end of the queue. Yields None if the
        job is not pending.
        """
        ...


def together(estimator: WaitEstimator, jobs: Sequence[QueuedJob], samples: int = SAMPLES) -> JointForecast:
    """Predict the waits of requests, one of which will be submitted, with any estimator.

    If the estimator cannot sample futures, its forecasts are combined level by level: if one request waits long, all
    do.
    """
    if samples < 1:
        raise InputError(f"{samples} futures cannot be sampled", hint="Ask for 1 or more.")
    if isinstance(estimator, JointEstimator):
        return estimator.predict_together(jobs, samples)
    levels = ((np.arange(samples) + 0.5) / samples).tolist()
    waits_s = [[forecast.at(level) for level in levels] for forecast in map(estimator.predict, jobs)]
    decades = monotone(jobs, np.log10(np.array(waits_s).T + FLOOR_S))
    return JointForecast(tuple(jobs), np.maximum(10.0**decades - FLOOR_S, 0.0))


def side_by_side(each: Sequence[JointForecast], places: Sequence[Sequence[int]]) -> JointForecast:
    """Combine forecasts of requests to several systems, whose queues have nothing to do with each other.

    `places`: for each forecast, where its requests are among all.
    """
    total = sum(map(len, places))
    samples = max(len(joint.waits_s) for joint in each)
    usual = [joint.usual_s for joint in each if joint.usual_s is not None]
    jobs: list[QueuedJob] = [each[0].jobs[0]] * total
    waits_s, doubt = np.empty((samples, total)), np.ones(total)
    usual_s = np.empty((max(map(len, usual)), total)) if usual else None
    for number, (joint, own) in enumerate(zip(each, places, strict=True)):
        rows = _order(_OF_SYSTEMS + number, samples) if number else np.arange(samples)
        waits_s[:, own] = joint.waits_s[rows % len(joint.waits_s)]
        if joint.doubt is not None:
            doubt[list(own)] = joint.doubt
        if usual_s is not None:
            known_s = joint.waits_s if joint.usual_s is None else joint.usual_s
            rows = _order(_OF_SYSTEMS + number, len(usual_s)) if number else np.arange(len(usual_s))
            usual_s[:, own] = known_s[rows % len(known_s)]
        for place, job in zip(own, joint.jobs, strict=True):
            jobs[place] = job
    return JointForecast(tuple(jobs), waits_s, usual_s, None if all(joint.doubt is None for joint in each) else doubt)


def plans_apart(
    estimators: Mapping[str, WaitEstimator], plans: Sequence[Sequence[JobAhead]], samples: int = SAMPLES
) -> list[NDArray[np.float64]]:
    """Sample when the jobs of plans on several systems start; `estimators`: of each system. See `plans_together`.

    A plan on one system is sampled by that system's estimator. Of another, each job waits as if its system had none of
    the plan's jobs but those submitted beside it.
    """
    found: list[NDArray[np.float64] | None] = [None] * len(plans)
    for system, estimator in estimators.items():
        own = [place for place, plan in enumerate(plans) if plan and {ahead.job.system for ahead in plan} == {system}]
        sampled = plans_together(estimator, [plans[place] for place in own], samples) if own else []
        for place, starts_s in zip(own, sampled, strict=True):
            found[place] = starts_s
    rows = min((len(starts_s) for starts_s in found if starts_s is not None), default=samples)
    return [
        _mixed(estimators, plan, rows) if starts_s is None else starts_s[:rows]
        for plan, starts_s in zip(plans, found, strict=True)
    ]


def _mixed(estimators: Mapping[str, WaitEstimator], plan: Sequence[JobAhead], samples: int) -> NDArray[np.float64]:
    """Sample when the jobs of a plan on several systems start."""
    if not plan:
        return np.zeros((samples, 0))
    asked, rows = _beside(plan), np.arange(samples)
    waits_s, fades_s, usual_s = (np.empty((samples, len(plan))) for _ in range(3))
    for number, (system, estimator) in enumerate(estimators.items()):
        own = [place for place, ahead in enumerate(plan) if ahead.job.system == system]
        if not own:
            continue
        order = _order(_OF_SYSTEMS + number, samples) if number else rows
        likely_s = together(estimator, [asked[place] for place in own], samples).likely_s
        waits_s[:, own] = likely_s[order % len(likely_s)]
        [(of_system_s, waits_later_s)] = usual_of(estimator, [plan], samples)
        fades_s[:, own], usual_s[:, own] = of_system_s[order, None], waits_later_s[:, own][order]
    return _played(plan, waits_s, (fades_s, usual_s))


def plans_together(
    estimator: WaitEstimator, plans: Sequence[Sequence[JobAhead]], samples: int = SAMPLES
) -> list[NDArray[np.float64]]:
    """Sample when the jobs of plans start, with any estimator; see `PlanEstimator`.

    If the estimator does not see the queue, a job that is queued while the present queue has influence waits as it
    would now. In each future it waits as long, relative to its forecast, as the other jobs there. Each of several
    parallel jobs waits like a job that also has the cores of those before it. Later jobs have usual waits, independent
    of those before.
    """
    if samples < 1:
        raise InputError(f"{samples} futures cannot be sampled", hint="Ask for 1 or more.")
    if isinstance(estimator, PlanEstimator):
        return estimator.predict_plans(plans, samples)
    asked = [_beside(plan) for plan in plans]
    every = list(dict.fromkeys(job for jobs in asked for job in jobs))
    if not every:
        return [np.zeros((samples, 0)) for _ in plans]
    waits_s = together(estimator, every, samples).likely_s
    later = usual_of(estimator, plans, samples)
    return [
        _played(plan, waits_s[:, [every.index(job) for job in jobs]], fading)
        for plan, jobs, fading in zip(plans, asked, later, strict=True)
    ]


def usual_of(
    estimator: object, plans: Sequence[Sequence[JobAhead]], samples: int
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Sample when the present queue has no more influence, and the waits of the jobs of plans after that.

    Jobs with equally many predecessors in a row meet the same queue, and so wait long in the same futures.

    Returns: for each plan, seconds from now, shape (samples,), and waits once it is due, shape (samples, jobs).
    """
    at = [
        replace(ahead.job, submit_s=ahead.now_s + max(ahead.due_s, ahead.submit_s)) for plan in plans for ahead in plan
    ]
    found = estimator.usual_later(at, samples) if isinstance(estimator, Later) and at else None
    if found is None:
        return [(np.full(samples, np.inf), np.zeros((samples, len(plan)))) for plan in plans]
    mean_s, usual_s = found
    rare = (_order(0, samples) + 0.5) / samples
    fades_s = -mean_s * np.log(rare)
    made, begin = [], 0
    for plan in plans:
        columns = [usual_s[_order(depth, samples), begin + index] for index, depth in enumerate(_depths(plan))]
        waits_s = np.stack(columns, axis=1) if columns else np.zeros((samples, 0))
        made.append((fades_s, waits_s * aged_shares(plan, samples)))
        begin += len(plan)
    return made


def aged_shares(plan: Sequence[JobAhead], samples: int) -> NDArray[np.float64]:
    """Sample the share of its usual wait that each job of a plan still waits once it is due; shape (samples, jobs).

    It is 1 but for jobs whose age accrues until then. Jobs with equally many predecessors in a row wait in the same
    futures.
    """
    shares = np.ones((samples, len(plan)))
    ranks = ((np.arange(samples) + 0.5) / samples).tolist()
    aged = np.array(list(map(aged_share, ranks)))
    for index, (ahead, depth) in enumerate(zip(plan, _depths(plan), strict=True)):
        if ahead.queues == "aging" and (ahead.after or ahead.ready_s is not None):
            shares[:, index] = aged[_order(_OF_AGE + depth, samples)]
    return shares


def _depths(plan: Sequence[JobAhead]) -> list[int]:
    """Return how many jobs of a plan each job follows in a row, itself included."""
    depths: list[int] = []
    for ahead in plan:
        depths.append(max((depths[p] + 1 for p in ahead.after), default=1))
    return depths


def _beside(plan: Sequence[JobAhead]) -> list[QueuedJob]:
    """Return for each job of a plan a job with its wait: with the cores of earlier jobs that follow the same jobs."""
    cores: dict[tuple[object, ...], int] = {}
    asked = []
    for ahead in plan:
        alike = (ahead.after, ahead.queues, ahead.job.system, ahead.job.partition)
        cores[alike] = cores.get(alike, 0) + ahead.job.cores
        asked.append(replace(ahead.job, cores=cores[alike], submit_s=ahead.now_s))
    return asked


def _played(
    plan: Sequence[JobAhead],
    waits_s: NDArray[np.float64],
    later: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return the starts of the jobs of a plan.

    `waits_s`: waits if submitted now, shape (samples, jobs).
    `later`: until when the present queue has influence, in each future, or for each job, too; and the waits after that.
    """
    fades_s, usual_s = later
    starts_s: NDArray[np.float64] = np.zeros((len(waits_s), len(plan)))
    ends_s: NDArray[np.float64] = np.zeros_like(starts_s)
    samples, shares = np.arange(len(waits_s)), aged_shares(plan, len(waits_s))
    for index, ahead in enumerate(plan):
        due_s = np.max(ends_s[:, list(ahead.after)], axis=1, initial=0.0)
        if ahead.ready_s is not None:
            due_s = np.maximum(due_s, ahead.ready_s[samples % len(ahead.ready_s)])
        comes_s = (
            np.full(len(samples), ahead.submit_s) if ahead.queues == "early" else np.maximum(due_s, ahead.submit_s)
        )
        is_known = comes_s < (fades_s if fades_s.ndim == 1 else fades_s[:, index])
        wait_s = np.where(is_known, waits_s[:, index], usual_s[:, index])
        if ahead.queues == "local":
            start_s = comes_s
        elif ahead.queues == "aging":
            aged_s = np.maximum(comes_s + shares[:, index] * wait_s, ahead.submit_s + wait_s)
            start_s = np.where(is_known & (comes_s > ahead.submit_s), aged_s, comes_s + wait_s)
        else:
            start_s = comes_s + wait_s
        starts_s[:, index] = start_s
        ends_s[:, index] = np.maximum(start_s, due_s) + ahead.run_s[samples % len(ahead.run_s)]
    return starts_s


def _order(salt: int, count: int) -> NDArray[np.intp]:
    return np.random.Generator(np.random.PCG64([_SEED, salt])).permutation(count)


def monotone(jobs: Sequence[QueuedJob], decades: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make waits increase with cores and walltime: each becomes the mean of its closest increasing bounds.

    `decades`: any increasing function of waits, shape (samples, requests). Quadratic in the number of requests.
    """
    cores = np.array([job.cores for job in jobs])
    walltime_s = np.array([job.walltime_s for job in jobs])
    place = {key: number for number, key in enumerate(dict.fromkeys(map(_else, jobs)))}
    other = np.array([place[_else(job)] for job in jobs])
    # [i, j]: request i asks for no more than request j
    below = (cores[:, None] <= cores) & (walltime_s[:, None] <= walltime_s) & (other[:, None] == other)
    highest_below, lowest_above = np.empty_like(decades), np.empty_like(decades)
    for number in range(len(jobs)):
        highest_below[:, number] = decades[:, below[:, number]].max(axis=1)
        lowest_above[:, number] = decades[:, below[number]].min(axis=1)
    return (highest_below + lowest_above) / 2


def _else(job: QueuedJob) -> tuple[str, str, str, float]:
    return job.system, job.partition, job.user, job.submit_s
