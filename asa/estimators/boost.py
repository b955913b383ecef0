"""asa's estimators, averaged with boosted trees.

As one more expert among fifty in the mixture of `asa.estimators.contextual`, trees have no effect. Used by themselves,
with its inputs and outputs as features, they are about as accurate and have other errors: the mean of both logarithms
is better than either. Constants were chosen on some logs and confirmed on others; see "Trees as a second opinion" in
docs/research/forecasts.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError, StateError
from asa.estimators.calibration import shortfalls
from asa.estimators.contextual import ContextualAsa, contextual_asa
from asa.estimators.joint import FLOOR_S, SAMPLES, JointForecast, plans_together
from asa.estimators.packing import packed, unpacked
from asa.estimators.queue_aware import QueueAwareAsa, queue_aware_asa
from asa.estimators.trees import Fitting, Trees, library
from asa.waits import LEVELS, JobAhead, QueuedJob, Surroundings, WaitForecast, WaitObservation

_VERSION = 2
_WINDOW = 10_000  # number of latest waits that trees are fitted to
# number of waits at the first fit, and the growth until the next: a factor, and the fewest and most further waits
_FIRST_FIT, _GROWTH, _MORE, _MAX_BETWEEN = 200, 1.15, 50, 1000
_HAND_OVER = 20  # waits that become known between the beginning of a fit and its first use
_MAX_DECADES = 7.0  # upper bound of a prediction of the trees
_SHARES: Final = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # weights of the trees in the competing blends
_KEEP = 0.9995  # factor on the weight of an error with each later wait
_AT_FIRST = 200.0  # prior: number of waits at which trees were worse than the estimator, by the doubts below
_DOUBT, _DOUBT_OF_LEVELS = 0.3, 0.12  # in decades, for the point prediction; and in pinball loss, for a quantile
_SHARPNESS = 30.0  # the weight of a blend is exp(-sharpness x its mean error in decades)
_SHARPNESS_OF_LEVELS = 100.0  # the same for a quantile, with its mean pinball loss
_AT_ONCE = 0.3  # in decades: if the estimator predicts an immediate start, blends nearer than this predict it, too
_PACE = 0.002  # decades by which an offset of a quantile moves for an error of 1 in its coverage
_WIDEST = 1.0  # in decades: upper bound of the offsets of quantiles
_FLOOR = math.log10(FLOOR_S)
_LOWEST = math.log10(2.0 * FLOOR_S)  # quantiles are moved in log10(wait + floor); this is the value at the floor
_LEVELS: Final = np.array(LEVELS)
_SAID = 2 + 2 * len(LEVELS)  # numbers kept of the prediction of a pending job
_OF_FORECAST = len(LEVELS) + 3  # features of the trees besides the estimator's inputs


class _Look(NamedTuple):
    """The prediction of a job, with its parts."""

    numbers: NDArray[np.float32]  # the features of the trees
    of_base: float  # of the estimator, in decades
    of_trees: float  # of the trees, in decades; nan while there are none
    of_base_s: tuple[float, ...]  # quantiles of the estimator
    stated_s: tuple[float, ...]  # the quantiles that were finally predicted


class BoostedAsa:
    """An estimator and boosted trees, blended by their recent errors.

    The trees' features are the estimator's inputs for a job (waits, ages, counts, simulations of the queue), its
    quantiles, and the job's request. They predict the median of the wait's logarithm. They are fitted in a thread to
    the last 10,000 waits: first to 200, then again after some tens of further waits, later after 1000. A fit is used
    from the twentieth wait on that becomes known after it began. So predictions depend on the order of events, and not
    on how long a fit takes. `predict` never waits for a fit; `observe` waits only if these twenty waits come before the
    fit ends, as when past jobs are learned.

    Five blends of the two, from the estimator alone to the trees alone, are averaged with exponential weights by their
    mean errors over about the last two thousand waits. The estimator's quantiles are shifted towards the trees, too.
    Each has its own share of the trees, found in the same way from the pinball loss of that quantile. Then each is
    shifted by its lack of coverage. Each quantile has its own share because trees with a better median may
    underestimate the longest waits, as they do in deep bursts. Until the first fit, at 200 waits, the result is the
    estimator's. It stays near that until the errors of the trees are known, which takes long in a deep burst. Only the
    estimator learns from censored observations.

    Notes
    -----
    A prediction takes 80 microseconds more than the estimator's; a fit of 10,000 waits takes half a second. A wait
    takes 0.6 KB of memory, all of them at most 6 MB. The same calls give the same forecasts with the same build of
    LightGBM.
    """

    def __init__(self, base: ContextualAsa | QueueAwareAsa, seed: int = 0) -> None:
        library()  # raises now if LightGBM is missing
        self.base, self.seed = base, seed
        learner = base.learner if isinstance(base, QueueAwareAsa) else base
        self._learner = learner
        self._numbers = learner.seen_numbers + _OF_FORECAST
        self._x = np.zeros((0, self._numbers), dtype=np.float32)
        self._y = np.zeros(0)
        self._known = 0
        self._next_fit = _FIRST_FIT
        self._trees: Trees | None = None
        self._fitting: Fitting | Trees | None = None
        self._due = 0
        self._losses, self._judged = np.zeros(len(_SHARES)), 0.0
        self._losses_of_levels, self._judged_levels = np.zeros((len(_SHARES), len(LEVELS))), 0.0
        self._offsets = np.zeros(len(LEVELS))
        self._waiting: dict[int, _Look] = {}
        self._last: tuple[QueuedJob, WaitForecast, WaitForecast, _Look] | None = None

    def __repr__(self) -> str:
        return f"BoostedAsa({self.base!r}, fitted={self._trees is not None})"

    @property
    def sees_queue(self) -> bool:
        """Whether the estimator needs to know when jobs end."""
        return isinstance(self.base, QueueAwareAsa)

    @property
    def share(self) -> float:
        """Current weight of the trees in the point prediction, from 0 to 1."""
        return float(_weighed(self._losses, self._judged, _SHARPNESS, _DOUBT))

    @property
    def shares(self) -> NDArray[np.float64]:
        """Current weights of the trees in the quantiles."""
        return _weighed(self._losses_of_levels, self._judged_levels, _SHARPNESS_OF_LEVELS, _DOUBT_OF_LEVELS)

    # ------------------------------------------------------------------ the port

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now."""
        return self._look(job)[0]

    def predict_together(self, jobs: Sequence[QueuedJob], samples: int = SAMPLES) -> JointForecast:
        """Predict the waits of requests, one of which will be submitted; without the trees. See `JointEstimator`."""
        self._last = None
        return self.base.predict_together(jobs, samples)

    def predict_plans(self, plans: Sequence[Sequence[JobAhead]], samples: int = SAMPLES) -> list[NDArray[np.float64]]:
        """Sample when the jobs of plans start, without the trees; see `PlanEstimator`."""
        self._last = None
        return plans_together(self.base, plans, samples)

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:
        """Learn that a job is pending from now on."""
        last = self._last
        if last is not None and last[0] is job and (forecast is None or forecast is last[1]):
            _, _, of_base, look = last
        else:
            _, of_base, look = self._look(job)
            if forecast is not None:
                # coverage is judged by the quantiles that were used
                look = look._replace(stated_s=forecast.quantiles_s)
        self._last = None
        ticket = self.base.submitted(job, of_base)
        self._waiting[ticket] = look
        return ticket

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn the observation of a wait."""
        self._last = None
        self.base.observe(ticket, observation)
        look = self._waiting.pop(ticket)
        if observation.kind != "exact":
            return
        truth = _decades(observation.wait_s)
        if not math.isnan(look.of_trees):
            blends = look.of_base + _SHARES * (look.of_trees - look.of_base)
            self._losses = _KEEP * self._losses + np.abs(blends - truth)
            self._judged = _KEEP * self._judged + 1.0
            of_base = _above_floor(look.of_base_s)
            short = math.log10(max(observation.wait_s, FLOOR_S) + FLOOR_S) - np.maximum(
                of_base + _SHARES[:, np.newaxis] * (look.of_trees - look.of_base), _LOWEST
            )
            losses = np.maximum(_LEVELS * short, (_LEVELS - 1.0) * short)
            self._losses_of_levels = _KEEP * self._losses_of_levels + losses
            self._judged_levels = _KEEP * self._judged_levels + 1.0
            lacking = shortfalls(look.stated_s, observation.wait_s)
            self._offsets = np.clip(self._offsets + _PACE * np.array(lacking), -_WIDEST, _WIDEST)
        self._remember(look.numbers, truth)

    def ended(self, ticket: int, run_s: float) -> None:
        """Learn how long a started job ran."""
        self._last = None
        self.base.ended(ticket, run_s)

    def withdrawn(self, ticket: int) -> None:
        """Forget a pending or running job, and learn nothing from it."""
        self._last = None
        self._waiting.pop(ticket, None)
        self.base.withdrawn(ticket)

    # ------------------------------------------------------------------ predictions

    def _look(self, job: QueuedJob) -> tuple[WaitForecast, WaitForecast, _Look]:
        """Return the prediction, the estimator's own prediction, and the parts of both."""
        of_base = self.base.predict(job)
        numbers, middle = self._numbers_of(job, of_base), _decades(of_base.wait_s)
        if self._trees is None:
            stated, of_trees = of_base, math.nan
        else:
            of_trees = min(max(self._trees.predict(numbers), _FLOOR), _MAX_DECADES)
            shifts = np.append(self.shares, self.share) * (of_trees - middle)
            if middle <= _FLOOR:
                shifts[shifts < _AT_ONCE] = 0.0
            stated = self._moved(of_base, middle, shifts)
        look = _Look(numbers, middle, of_trees, of_base.quantiles_s, stated.quantiles_s)
        self._last = job, stated, of_base, look
        return stated, of_base, look

    def _numbers_of(self, job: QueuedJob, of_base: WaitForecast) -> NDArray[np.float32]:
        numbers = np.empty(self._numbers, dtype=np.float32)
        numbers[:-_OF_FORECAST] = self._learner.seen
        numbers[-_OF_FORECAST:-3] = np.log10(np.maximum(of_base.quantiles_s, FLOOR_S))
        numbers[-3:] = _decades(of_base.wait_s), math.log10(job.cores), math.log10(job.walltime_s)
        return numbers

    def _moved(self, of_base: WaitForecast, middle: float, shifts: NDArray[np.float64]) -> WaitForecast:
        """Shift the quantiles, and the point prediction by the last of the shifts."""
        times = np.power(10.0, shifts[:-1] + self._offsets)
        moved = np.maximum((np.array(of_base.quantiles_s) + FLOOR_S) * times - FLOOR_S, 0.0)
        return WaitForecast(tuple(np.maximum.accumulate(moved).tolist()), math.pow(10.0, middle + float(shifts[-1])))

    # ------------------------------------------------------------------ learning

    def _remember(self, numbers: NDArray[np.float32], truth: float) -> None:
        """Keep a wait for fitting trees. If it is time, begin a fit, or start to use the trees of the last one."""
        place = self._known % _WINDOW
        if place >= len(self._y):
            more = min(max(_FIRST_FIT, len(self._y)), _WINDOW - len(self._y))
            self._x = np.concatenate([self._x, np.zeros((more, self._numbers), dtype=np.float32)])
            self._y = np.concatenate([self._y, np.zeros(more)])
        self._x[place], self._y[place] = numbers, truth
        self._known += 1
        if self._fitting is not None and self._known >= self._due:
            self._trees, self._fitting = self._fitted(), None
        if self._known >= self._next_fit:
            held = min(self._known, _WINDOW)
            self._fitting = Fitting(self._x[:held].copy(), self._y[:held].copy(), self.seed)
            self._due = self._known + _HAND_OVER
            self._next_fit = int(min(self._known * _GROWTH + _MORE, self._known + _MAX_BETWEEN))

    def _fitted(self) -> Trees | None:
        return self._fitting.result() if isinstance(self._fitting, Fitting) else self._fitting

    # ------------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Return the whole state; waits for a fit that is running."""
        held, self._fitting = min(self._known, _WINDOW), self._fitted()
        looks = self._waiting.values()
        numbers = np.array([look.numbers for look in looks], dtype=np.float32).reshape(-1, self._numbers)
        said = np.array([(look.of_base, look.of_trees, *look.stated_s, *look.of_base_s) for look in looks])
        said = said.reshape(-1, _SAID)
        return {
            "version": _VERSION,
            "seed": self.seed,
            "base": self.base.state(),
            "known": [self._known, self._next_fit, self._due],
            "trees": [None if trees is None else trees.state() for trees in (self._trees, self._fitting)],
            "judged": [self._judged, *self._losses.tolist()],
            "levels": [self._judged_levels, *self._losses_of_levels.ravel().tolist()],
            "offsets": self._offsets.tolist(),
            "x": packed(self._x[:held]),
            "y": packed(self._y[:held]),
            "waiting": {
                "tickets": list(self._waiting),
                "numbers": packed(numbers),
                "said": packed(said.reshape(-1, _SAID)),
            },
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> BoostedAsa:
        """Make an estimator that continues, bit for bit, from the `state` of another.

        Raises `StateError`: the state is incomplete, inconsistent, or of another version.
        """
        try:
            if state["version"] not in {1, _VERSION}:
                raise StateError(f"an estimator of version {state['version']}", hint="Forget it and learn anew.")
            kind = QueueAwareAsa if "adviser" in state["base"] else ContextualAsa
            made = cls(kind.from_state(state["base"]), int(state["seed"]))
            made._take(state)
        except (KeyError, TypeError, ValueError, InputError) as error:
            if isinstance(error, InputError):
                raise
            raise StateError(f"no state of an estimator: {error!r}", hint="Forget it and learn anew.") from error
        return made

    def _take(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        self._known, self._next_fit, self._due = map(int, state["known"])
        self._trees, self._fitting = (
            None if trees is None else Trees.from_state(trees, self._numbers) for trees in state["trees"]
        )
        self._judged, *losses = map(float, state["judged"])
        self._losses, self._offsets = np.array(losses), np.array(state["offsets"], dtype=np.float64)
        none = [0.0] * (1 + self._losses_of_levels.size)  # version 1 has no losses of quantiles
        self._judged_levels, *losses = map(float, state.get("levels", none))
        self._losses_of_levels = np.array(losses).reshape(self._losses_of_levels.shape)
        self._x, self._y = unpacked(state["x"]), unpacked(state["y"])
        waiting = state["waiting"]
        numbers, said = unpacked(waiting["numbers"]), unpacked(waiting["said"])
        if state["version"] == 1:
            # nearly right: the quantiles were the estimator's, shifted
            said = np.concatenate([said, said[:, 2:]], axis=1)
        held = min(self._known, _WINDOW)
        shapes: list[tuple[NDArray[Any], tuple[int, ...]]] = [
            (self._losses, (len(_SHARES),)),
            (self._offsets, (len(LEVELS),)),
            (self._x, (held, self._numbers)),
            (self._y, (held,)),
            (numbers, (len(waiting["tickets"]), self._numbers)),
            (self._losses_of_levels, self._losses_of_levels.shape),
            (said, (len(waiting["tickets"]), _SAID)),
        ]
        sound = all(array.shape == shape for array, shape in shapes) and self._x.dtype == numbers.dtype == np.float32
        sound = sound and all(np.isfinite(array).all() for array, _ in shapes[:-1])
        judged = self._judged, self._judged_levels
        if not sound or not all(map(math.isfinite, judged)) or min(*judged, held, self._next_fit, self._due) < 0:
            raise StateError("numbers that cannot be", hint="The file was changed.")
        self._waiting = {
            int(ticket): _Look(row, of_base, of_trees, tuple(more[len(LEVELS) :]), tuple(more[: len(LEVELS)]))
            for ticket, row, (of_base, of_trees, *more) in zip(waiting["tickets"], numbers, said.tolist(), strict=True)
        }


def _weighed(losses: NDArray[np.float64], judged: float, sharpness: float, doubt: float) -> NDArray[np.float64]:
    """Return the mean of the shares with exponential weights; for each column if there are several."""
    off = (losses.T + _AT_FIRST * doubt * _SHARES).T / (judged + _AT_FIRST)
    weights = np.exp(-sharpness * (off - off.min(axis=0)))
    averages: NDArray[np.float64] = np.asarray(_SHARES @ weights / weights.sum(axis=0))
    return averages


def _above_floor(waits_s: Sequence[float]) -> NDArray[np.float64]:
    """Return the logarithms in which quantiles are moved; near 0 they are nearly linear in the wait."""
    above: NDArray[np.float64] = np.log10(np.add(waits_s, FLOOR_S))
    return above


def _decades(wait_s: float) -> float:
    return math.log10(max(wait_s, FLOOR_S))


def boosted_asa(surroundings: Surroundings) -> BoostedAsa:
    """Learn as `asa` does, blended with boosted trees that are fitted in the background.

    Parameters
    ----------
    surroundings
        Only the seed is used.
    """
    return BoostedAsa(contextual_asa(surroundings), _seed(surroundings))


def boosted_queue_asa(surroundings: Surroundings) -> BoostedAsa:
    """Learn as `asa-queue` does, from simulations of the visible queue, blended with boosted trees.

    Parameters
    ----------
    surroundings
        The seed, and the machine whose queue is simulated.
    """
    return BoostedAsa(queue_aware_asa(surroundings), _seed(surroundings))


def _seed(surroundings: Surroundings) -> int:
    return surroundings.seed % 2**31  # upper bound of LightGBM's seeds
