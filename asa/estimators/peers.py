"""Estimators for comparison with asa's own: simple ones, a regression, and Algorithm 1 as published.

All of them predict a job by its geometry; for an unknown geometry they use the whole site. QBETS is in
`asa.estimators.qbets`.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from asa.errors import InputError, StateError
from asa.estimators.algorithm1 import Asa, Policy, checked_policy
from asa.estimators.base import Prediction
from asa.estimators.calibration import FLOOR_S, Calibrator
from asa.geometry import JobGeometry
from asa.waits import LEVELS, QueuedJob, Surroundings, WaitForecast, WaitObservation

FIRST_GUESS_S = 600.0
"""Predicted wait before any wait of a site is known."""

_SPREAD = 1.6  # in decades from p10 to p90, around the first guess
_RECENT = 50  # number of waits for the median; the regression's mean has about as many
_MAX_REQUESTS = 100_000  # upper bound of the requests whose geometry is remembered


def contradicts(observation: WaitObservation, point_s: float) -> bool:
    """Whether a wait, exact or censored, shows that a prediction was wrong.

    An exact wait always counts. From a censored one that is consistent with the prediction, a point predictor learns
    nothing. From one that is not, it learns the nearest wait that is possible.

    Examples
    --------
    >>> from asa.waits import at_least, at_most
    >>> contradicts(at_most(300.0), 600.0), contradicts(at_least(300.0), 600.0)
    (True, False)
    """
    if observation.kind == "exact":
        return True
    return point_s > observation.wait_s if observation.kind == "at_most" else point_s < observation.wait_s


class GeometryMemory:
    """The memory of a geometry, or of a whole site: here the last wait."""

    __slots__ = ("geometry", "known", "point_s")

    def __init__(self, geometry: JobGeometry | None) -> None:
        self.geometry = geometry
        self.known = 0
        self.point_s = FIRST_GUESS_S

    def learn(self, wait_s: float) -> None:
        """Learn a wait, in seconds."""
        self.known += 1
        self.point_s = wait_s

    def state(self) -> list[Any]:
        """Return the state without the geometry, as JSON-ready data."""
        return [self.known, self.point_s]

    def restore(self, state: Sequence[Any]) -> None:
        """Restore a state."""
        self.known, self.point_s = int(state[0]), float(state[1])
        if self.known < 0 or not 0 <= self.point_s < math.inf:
            raise ValueError("a count or a wait that cannot be")


_M = TypeVar("_M", bound=GeometryMemory)


class SiteEstimator(Generic[_M]):
    """Base of estimators that keep a memory for each geometry: tickets, geometries, state.

    A subclass defines `_memory_type`, `predict` and `_learn`. For each pending job the base keeps under its ticket: the
    memory of its geometry, the predicted wait, the quantiles, and the values that `_facts` adds.
    """

    sees_queue: ClassVar[bool] = False
    _memory_type: ClassVar[type[GeometryMemory]]

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        del surroundings
        self._site: _M = self._new(None)
        self._memories: dict[JobGeometry, _M] = {}
        # classifying a job costs more time than all the rest
        self._by_request: dict[tuple[int, float, str, str], _M] = {}
        self._waiting: dict[int, tuple[_M, float, tuple[float, ...], tuple[float, ...]]] = {}
        self._tickets = 0

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now."""
        raise NotImplementedError

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:
        """Learn that a job is pending from now on; without a forecast, `predict` makes one."""
        if forecast is None:
            forecast = self.predict(job)
        ticket = self._tickets
        self._tickets = ticket + 1
        memory = self._by_request.get((job.cores, job.walltime_s, job.system, job.partition)) or self._remember(job)
        self._waiting[ticket] = (memory, forecast.wait_s, tuple(forecast.quantiles_s), self._facts(job, memory))
        return ticket

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn the observation of a wait."""
        waited = self._waiting.pop(ticket, None)
        if waited is None:
            raise _unknown(ticket)
        self._learn(*waited, observation)

    def ended(self, ticket: int, run_s: float) -> None:
        """Do nothing: run times are not used."""

    def withdrawn(self, ticket: int) -> None:
        """Forget a pending job, and learn nothing from it."""
        self._waiting.pop(ticket, None)

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue, as JSON-ready data; its size is linear in the memories."""
        waiting = {memory.geometry for memory, *_ in self._waiting.values()}
        geometries = sorted(g for g, memory in self._memories.items() if memory.known or g in waiting)
        place = {geometry: number for number, geometry in enumerate(geometries)}
        return {
            "estimator": type(self).__name__,
            "tickets": self._tickets,
            "site": self._site.state(),
            "geometries": [[*_words(geometry), self._memories[geometry].state()] for geometry in geometries],
            "waiting": [
                [ticket, place[memory.geometry], point_s, list(stated_s), list(facts)]
                for ticket, (memory, point_s, stated_s, facts) in self._waiting.items()
                if memory.geometry is not None
            ],
            **self._more_state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return an estimator that continues bit for bit from the `state` of another."""
        if state.get("estimator") != cls.__name__:
            raise StateError(f"no state of {cls.__name__}", hint="It is of another estimator, or was changed.")
        made = cls()
        try:
            made._tickets = int(state["tickets"])
            made._site.restore(state["site"])
            memories = []
            for *words, kept in state["geometries"]:
                geometry = _geometry(words)
                memory = made._memories[geometry] = made._new(geometry)
                memory.restore(kept)
                memories.append(memory)
            for ticket, place, point_s, stated_s, facts in state["waiting"]:
                stated = tuple(map(float, stated_s))
                _check_waiting(ticket, place, made._tickets, len(stated))
                made._waiting[int(ticket)] = (memories[place], float(point_s), stated, tuple(map(float, facts)))
            made._restore_more(state)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise StateError(f"no state of an estimator: {error!r}", hint="Forget it and learn anew.") from error
        return made

    def _learn(
        self,
        memory: _M,
        point_s: float,
        stated_s: tuple[float, ...],
        facts: tuple[float, ...],
        observation: WaitObservation,
    ) -> None:
        raise NotImplementedError

    def _facts(self, job: QueuedJob, memory: _M) -> tuple[float, ...]:
        """Return further values to be kept while a job is pending."""
        del job, memory
        return ()

    def _more_state(self) -> dict[str, Any]:
        return {}

    def _restore_more(self, state: Mapping[str, Any]) -> None:
        pass

    def _new(self, geometry: JobGeometry | None) -> _M:
        return self._memory_type(geometry)  # type: ignore[return-value]  # each kind names its own

    def _memory(self, job: QueuedJob) -> _M:
        return self._by_request.get((job.cores, job.walltime_s, job.system, job.partition)) or self._remember(job)

    def _remember(self, job: QueuedJob) -> _M:
        geometry = job.geometry
        memory = self._memories.get(geometry)
        if memory is None:
            memory = self._memories[geometry] = self._new(geometry)
        if len(self._by_request) >= _MAX_REQUESTS:
            self._by_request.clear()
        self._by_request[job.cores, job.walltime_s, job.system, job.partition] = memory
        return memory


def _unknown(ticket: int) -> InputError:
    return InputError(
        f"no job waits under ticket {ticket}", hint="Hand back what `submitted` returned, once for each job."
    )


def _check_waiting(ticket: int, place: int, tickets: int, quantiles: int = len(LEVELS)) -> None:
    if not 0 <= ticket < tickets or place < 0 or quantiles != len(LEVELS):
        raise ValueError(f"a job waits under ticket {ticket} that does not fit")


def _words(geometry: JobGeometry) -> list[Any]:
    return [geometry.size_class, geometry.walltime_class, geometry.system, geometry.partition]


def _geometry(words: Sequence[Any]) -> JobGeometry:
    size, walltime, system, partition = words
    if not (isinstance(system, str) and isinstance(partition, str)):
        raise TypeError("a system or partition that is no text")
    return JobGeometry(int(size), int(walltime), system, partition)


class _PointEstimator(SiteEstimator[_M]):
    """Predicts one number for each geometry; quantiles around it are learned from the errors."""

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        super().__init__(surroundings)
        self._calibrator = Calibrator(spread=_SPREAD)

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now, from its geometry's memory, or from the site's."""
        memory = self._by_request.get((job.cores, job.walltime_s, job.system, job.partition)) or self._remember(job)
        point_s = memory.point_s if memory.known else self._site.point_s
        return WaitForecast(self._calibrator.around(point_s), point_s)

    def _learn(
        self,
        memory: _M,
        point_s: float,
        stated_s: tuple[float, ...],
        facts: tuple[float, ...],
        observation: WaitObservation,
    ) -> None:
        del facts
        wait_s = float(observation.wait_s)
        self._calibrator.observe(point_s, stated_s, wait_s, observation.kind)
        if contradicts(observation, point_s):
            memory.learn(wait_s)
            self._site.learn(wait_s)

    def _more_state(self) -> dict[str, Any]:
        return {"calibrator": self._calibrator.state()}

    def _restore_more(self, state: Mapping[str, Any]) -> None:
        self._calibrator = Calibrator.from_state(state["calibrator"])


class LastWait(_PointEstimator[GeometryMemory]):
    """Predicts the last known wait of the geometry.

    Examples
    --------
    >>> from asa.waits import exactly
    >>> estimator = LastWait()
    >>> job = QueuedJob(0.0, cores=28, walltime_s=3600.0)
    >>> estimator.observe(estimator.submitted(job), exactly(120.0))
    >>> estimator.predict(job).wait_s
    120.0
    """

    _memory_type = GeometryMemory


class _Mean(GeometryMemory):
    __slots__ = ()

    def learn(self, wait_s: float) -> None:
        before = self.point_s if self.known else 0.0
        self.known += 1
        self.point_s = before + (wait_s - before) / self.known


class MeanWait(_PointEstimator[_Mean]):
    """Predicts the mean of all waits of the geometry that are known."""

    _memory_type = _Mean


class _Median(GeometryMemory):
    __slots__ = ("ascending", "recent")

    def __init__(self, geometry: JobGeometry | None) -> None:
        super().__init__(geometry)
        self.recent: deque[float] = deque()
        self.ascending: list[float] = []

    def learn(self, wait_s: float) -> None:
        self.known += 1
        ascending = self.ascending
        if len(ascending) == _RECENT:
            del ascending[bisect_left(ascending, self.recent.popleft())]
        self.recent.append(wait_s)
        insort(ascending, wait_s)
        self._find()

    def _find(self) -> None:
        ascending = self.ascending
        half = len(ascending) // 2
        self.point_s = ascending[half] if len(ascending) % 2 else (ascending[half - 1] + ascending[half]) / 2

    def state(self) -> list[Any]:
        return [self.known, self.point_s, list(self.recent)]

    def restore(self, state: Sequence[Any]) -> None:
        super().restore(state)
        self.recent = deque(map(float, state[2]))
        self.ascending = sorted(self.recent)
        if len(self.recent) != min(self.known, _RECENT):
            raise ValueError("a median of too many or too few waits")


class MedianWait(_PointEstimator[_Median]):
    """Predicts the median of the last 50 waits of the geometry that became known."""

    _memory_type = _Median


class _Logs(GeometryMemory):
    """The last and the mean logarithm of the waits, relative to that of the first guess."""

    __slots__ = ("last", "mean")

    def __init__(self, geometry: JobGeometry | None) -> None:
        super().__init__(geometry)
        self.last = self.mean = 0.0

    def learn(self, wait_s: float) -> None:
        self.known += 1
        self.last = _log(wait_s)
        self.mean += (self.last - self.mean) / min(self.known, _RECENT)

    def state(self) -> list[Any]:
        return [self.known, self.point_s, self.last, self.mean]

    def restore(self, state: Sequence[Any]) -> None:
        super().restore(state)
        self.last, self.mean = float(state[2]), float(state[3])
        if not (math.isfinite(self.last) and math.isfinite(self.mean)):
            raise ValueError("a logarithm that cannot be")


_MIDDLE = math.log10(FIRST_GUESS_S)


def _log(wait_s: float) -> float:
    return math.log10(max(wait_s, FLOOR_S)) - _MIDDLE


# decades per step: the smallest, and the first, which shrinks with the root of the number of steps
_RATE, _FIRST_RATE = 0.002, 0.05
_WEIGHTS = (0.0, 0.0, 0.0, 0.4, 0.4, 0.0)
_LOWEST, _HIGHEST = -3.0, 7.0  # decades from the first guess: bounds of a prediction


class Regression(_PointEstimator[_Logs]):
    """Predicts by an online linear regression of the median, in log seconds.

    Its features are the logarithms of a job's cores and walltime, the geometry's last wait and mean of about the last
    50, and the site's last wait, all in decades. The weights follow the subgradient of the absolute error in decades,
    that is, of the median's pinball loss, with steps that shrink with the root of their number down to a constant. One
    set of weights serves all levels: quantiles around the prediction are learned from its errors, for each decade of
    it.

    Parameters
    ----------
    surroundings
        Not used; all estimators have this argument.

    Examples
    --------
    >>> from asa.waits import exactly
    >>> estimator = Regression()
    >>> for cores in (1, 100, 10_000) * 300:
    ...     job = QueuedJob(0.0, cores=cores, walltime_s=3600.0)
    ...     estimator.observe(estimator.submitted(job), exactly(20.0 * cores))
    >>> 1000.0 < estimator.predict(QueuedJob(0.0, cores=100, walltime_s=3600.0)).wait_s < 4000.0
    True
    """

    _memory_type = _Logs

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        super().__init__(surroundings)
        self._weights = list(_WEIGHTS)
        self._steps = 0

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now."""
        point_s = self._point_s(self._facts(job, self._memory(job)))
        return WaitForecast(self._calibrator.around(point_s), point_s)

    def _facts(self, job: QueuedJob, memory: _Logs) -> tuple[float, ...]:
        near = memory if memory.known else self._site
        cores, walltime = math.log10(job.cores) - 1.5, math.log10(job.walltime_s) - 3.5
        return (1.0, cores, walltime, near.last, near.mean, self._site.last)

    def _point_s(self, facts: Sequence[float]) -> float:
        decades = sum(map(mul, self._weights, facts))
        return math.pow(10.0, _MIDDLE + min(max(decades, _LOWEST), _HIGHEST))

    def _learn(
        self,
        memory: _Logs,
        point_s: float,
        stated_s: tuple[float, ...],
        facts: tuple[float, ...],
        observation: WaitObservation,
    ) -> None:
        wait_s = observation.wait_s
        now_s = self._point_s(facts)
        if contradicts(observation, now_s):
            self._descend(facts, max(wait_s, FLOOR_S), max(now_s, FLOOR_S))
        super()._learn(memory, point_s, stated_s, facts, observation)

    def _descend(self, facts: Sequence[float], wait_s: float, point_s: float) -> None:
        if wait_s == point_s:
            return
        self._steps += 1
        step = max(_RATE, _FIRST_RATE / math.sqrt(self._steps))
        if wait_s < point_s:
            step = -step
        self._weights = [weight + step * fact for weight, fact in zip(self._weights, facts, strict=True)]

    def _more_state(self) -> dict[str, Any]:
        return {**super()._more_state(), "weights": list(self._weights), "steps": self._steps}

    def _restore_more(self, state: Mapping[str, Any]) -> None:
        super()._restore_more(state)
        self._weights = list(map(float, state["weights"]))
        self._steps = int(state["steps"])
        if len(self._weights) != len(_WEIGHTS) or self._steps < 0 or not all(map(math.isfinite, self._weights)):
            raise ValueError("weights that do not fit")


class Algorithm1:
    """Algorithm 1 of the ASA paper, with a learner for each geometry.

    Each learner has its own random generator, seeded from the seed and the geometry, so that the waits of one geometry
    never change the predictions of another.

    The predicted wait is the learner's draw; the quantiles are those of the distribution from which it draws, over the
    paper's 53 alternatives. A new geometry begins with equal weights.

    Unlike with other estimators, `predict` has a side effect under the policies ``default`` and ``tuned``: each call
    draws from the geometry's generator. So the same sequence of calls gives the same forecasts, but two calls may
    differ. The forecast contains the drawn alternative and must be passed to `submitted`, since the algorithm learns
    from the alternative that was used. Without a forecast, one is drawn when the wait becomes known.

    Examples
    --------
    >>> from asa.waits import exactly
    >>> estimator = Algorithm1(Surroundings(seed=1), policy="tuned")
    >>> job = QueuedJob(0.0, cores=28, walltime_s=3600.0)
    >>> for _ in range(30):
    ...     ticket = estimator.submitted(job, estimator.predict(job))
    ...     estimator.observe(ticket, exactly(200.0))
    >>> estimator.predict(job).wait_s
    200.0
    """

    sees_queue: ClassVar[bool] = False
    draws: ClassVar[bool] = True

    def __init__(self, surroundings: Surroundings | None = None, *, policy: Policy = "default") -> None:
        self.policy: Policy = checked_policy(policy)
        self._seed = (surroundings or Surroundings()).seed
        self._beliefs: dict[JobGeometry, _Belief] = {}
        self._by_request: dict[tuple[int, float, str, str], _Belief] = {}
        self._waiting: dict[int, tuple[_Belief, Prediction | None]] = {}
        self._tickets = 0

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Draw a wait for a job that is submitted now. Under ``greedy`` no draw is made and no state changes."""
        belief = self._by_request.get((job.cores, job.walltime_s, job.system, job.partition)) or self._remember(job)
        drawn = belief.learner.predict()
        if self.policy == "greedy":
            return WaitForecast((drawn.wait_s,) * len(LEVELS), drawn.wait_s, drawn.alternative)
        return WaitForecast(belief.quantiles_s(), drawn.wait_s, drawn.alternative)

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:
        """Learn that a job is pending from now on; `forecast`: what `predict` drew for it, if it was used."""
        belief = self._by_request.get((job.cores, job.walltime_s, job.system, job.partition)) or self._remember(job)
        ticket = self._tickets
        self._tickets = ticket + 1
        drawn = None
        if forecast is not None and forecast.alternative >= 0:
            drawn = Prediction(forecast.wait_s, forecast.alternative)
        self._waiting[ticket] = (belief, drawn)
        return ticket

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn the observation of a wait.

        Raises `InputError`: no pending job has this ticket, or its forecast is not Algorithm 1's.
        """
        waited = self._waiting.pop(ticket, None)
        if waited is None:
            raise _unknown(ticket)
        belief, drawn = waited
        belief.learner.observe(observation, drawn)

    def ended(self, ticket: int, run_s: float) -> None:
        """Do nothing: run times are not used."""

    def withdrawn(self, ticket: int) -> None:
        """Forget a pending job, and learn nothing from it."""
        self._waiting.pop(ticket, None)

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue, as JSON-ready data; linear in the geometries and pending jobs."""
        geometries = sorted(self._beliefs)
        place = {geometry: number for number, geometry in enumerate(geometries)}
        return {
            "estimator": type(self).__name__,
            "policy": self.policy,
            "seed": self._seed,
            "tickets": self._tickets,
            "geometries": [[*_words(geometry), self._beliefs[geometry].learner.state()] for geometry in geometries],
            "waiting": [
                [ticket, place[belief.geometry], *((drawn.wait_s, drawn.alternative) if drawn else ())]
                for ticket, (belief, drawn) in self._waiting.items()
            ],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return an estimator that continues bit for bit from the `state` of another."""
        try:
            made = cls(Surroundings(seed=state["seed"]), policy=state["policy"])
            made._tickets = int(state["tickets"])
            beliefs = []
            for *words, kept in state["geometries"]:
                geometry = _geometry(words)
                beliefs.append(_Belief(geometry, Asa.from_state(kept)))
                made._beliefs[geometry] = beliefs[-1]
            for ticket, place, *drawn in state["waiting"]:
                _check_waiting(ticket, place, made._tickets)
                prediction = Prediction(float(drawn[0]), int(drawn[1])) if drawn else None
                made._waiting[int(ticket)] = (beliefs[place], prediction)
        except InputError as error:
            raise StateError(error.message, hint="The file was changed or cut off.") from error
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise StateError(f"no state of an estimator: {error!r}", hint="Forget it and learn anew.") from error
        return made

    def _learner(self, geometry: JobGeometry) -> Asa:
        key = json.dumps([self._seed, *_words(geometry)]).encode()
        entropy = int.from_bytes(hashlib.sha256(key).digest()[:16], "big")
        return Asa(self.policy, seed=np.random.SeedSequence(entropy))

    def _remember(self, job: QueuedJob) -> _Belief:
        geometry = job.geometry
        belief = self._beliefs.get(geometry)
        if belief is None:
            belief = self._beliefs[geometry] = _Belief(geometry, self._learner(geometry))
        if len(self._by_request) >= _MAX_REQUESTS:
            self._by_request.clear()
        self._by_request[job.cores, job.walltime_s, job.system, job.partition] = belief
        return belief


class _Belief:
    """A learner of one geometry, with its quantiles, which change only when a round ends."""

    __slots__ = ("_quantiles_s", "_rounds", "geometry", "learner")

    def __init__(self, geometry: JobGeometry, learner: Asa) -> None:
        self.geometry = geometry
        self.learner = learner
        self._rounds = -1
        self._quantiles_s: tuple[float, ...] = ()

    def quantiles_s(self) -> tuple[float, ...]:
        if self._rounds != self.learner.rounds:
            self._rounds = self.learner.rounds
            self._quantiles_s = self.learner.quantiles_s(LEVELS)
        return self._quantiles_s


def asa_default(surroundings: Surroundings) -> Algorithm1:
    """Run Algorithm 1 of the ASA paper as it is printed.

    Parameters
    ----------
    surroundings
        Only the seed is used.
    """
    return Algorithm1(surroundings, policy="default")


def asa_greedy(surroundings: Surroundings) -> Algorithm1:
    """Run Algorithm 1 of the ASA paper with the greedy policy.

    Parameters
    ----------
    surroundings
        Only the seed is used.
    """
    return Algorithm1(surroundings, policy="greedy")


def asa_tuned(surroundings: Surroundings) -> Algorithm1:
    """Run Algorithm 1 of the ASA paper with the tuned policy, 50 draws for each observation.

    Parameters
    ----------
    surroundings
        Only the seed is used.
    """
    return Algorithm1(surroundings, policy="tuned")
