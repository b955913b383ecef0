"""Scores of predicted waits: measures as pure functions of arrays, and all measures of a history."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asa.errors import InputError
from asa.estimators.alternatives import PAPER_ALTERNATIVES_S
from asa.estimators.calibration import FLOOR_S, coverage
from asa.geometry import JobGeometry, size_class, walltime_class
from asa.history import JobHistory
from asa.studies.accuracy.prequential import Events, Forecasts
from asa.studies.plain import as_plain
from asa.waits import LEVELS

_DELTA = 0.05  # Theorem 1 holds with a probability of at least 1 - delta
_BLOCKS = 10
_FEWEST_OF_A_BLOCK = 10  # shares of fewer jobs are noise
_BLOCKS_OF_A_COURSE = 40
_QUANTILES = len(LEVELS)
_ALTERNATIVES_S = np.asarray(PAPER_ALTERNATIVES_S)
_LEVELS = np.asarray(LEVELS)


def log10_errors(predicted_s: ArrayLike, wait_s: ArrayLike) -> NDArray[np.float64]:
    """Return the distance of each prediction from its wait in powers of ten; both are at least `FLOOR_S`.

    Returns: an array of the same shape; 0 is right, 1 is ten times too long or too short.

    Examples
    --------
    >>> log10_errors([100.0, 0.0, 1000.0], [1000.0, 9.0, 1000.0]).tolist()
    [1.0, 0.0, 0.0]
    """
    return np.abs(_log10(predicted_s) - _log10(wait_s))


def _log10(wait_s: ArrayLike) -> NDArray[np.float64]:
    logarithm: NDArray[np.float64] = np.log10(np.maximum(wait_s, FLOOR_S))
    return logarithm


def within_factor(predicted_s: ArrayLike, wait_s: ArrayLike, factor: float = 2.0) -> NDArray[np.bool_]:
    """Whether each prediction is right within a factor; both are at least `FLOOR_S`.

    Examples
    --------
    >>> within_factor([100.0, 100.0, 0.0], [200.0, 201.0, 20.0]).tolist()
    [True, False, True]
    """
    predicted, wait = np.maximum(predicted_s, FLOOR_S), np.maximum(wait_s, FLOOR_S)
    return (predicted <= factor * wait) & (wait <= factor * predicted)


def within_quantile(quantiles_s: ArrayLike, wait_s: ArrayLike, level: float) -> NDArray[np.bool_]:
    """Whether each wait is at most its predicted quantile at one of `LEVELS`, or at most `FLOOR_S`.

    Examples
    --------
    >>> within_quantile([[0, 0, 0, 60, 60, 60, 300, 900, 3600]] * 3, [7.0, 60.0, 61.0], 0.5).tolist()
    [True, True, False]
    """
    stated = np.asarray(quantiles_s, dtype=np.float64)[:, LEVELS.index(level)]
    within: NDArray[np.bool_] = np.asarray(wait_s, dtype=np.float64) <= np.maximum(stated, FLOOR_S)
    return within


def closest(wait_s: ArrayLike, alternatives_s: ArrayLike = _ALTERNATIVES_S) -> NDArray[np.intp]:
    """Return the index of the alternative closest to each wait, as `asa.estimators.alternatives.nearest` does.

    Examples
    --------
    >>> closest([9.0, 15.0, 24.0], [10.0, 20.0, 40.0]).tolist()
    [0, 0, 1]
    """
    waits, alternatives = np.asarray(wait_s, dtype=np.float64), np.asarray(alternatives_s, dtype=np.float64)
    right = np.clip(np.searchsorted(alternatives, waits), 1, len(alternatives) - 1)
    nearer_left: NDArray[np.bool_] = waits - alternatives[right - 1] <= alternatives[right] - waits
    return right - nearer_left


def pinball(quantiles: ArrayLike, outcomes: ArrayLike, levels: ArrayLike = _LEVELS) -> NDArray[np.float64]:
    """Return the pinball loss of each forecast, averaged over its levels; its mean is smallest for the true quantiles.

    Examples
    --------
    >>> pinball([[10.0, 20.0]], [30.0], [0.5, 0.9]).tolist()
    [9.5]
    """
    short = np.asarray(outcomes, dtype=np.float64)[:, np.newaxis] - np.asarray(quantiles, dtype=np.float64)
    level = np.asarray(levels, dtype=np.float64)
    losses: NDArray[np.float64] = np.maximum(level * short, (level - 1) * short).mean(axis=1)
    return losses


def block_range(values: NDArray[np.float64], blocks: int = _BLOCKS) -> tuple[float, float]:
    """Return the smallest and largest mean of equal blocks, in order: they show drift that the overall mean hides.

    Examples
    --------
    >>> block_range(np.repeat([0.0, 1.0], 50))
    (0.0, 1.0)
    """
    if len(values) < blocks * _FEWEST_OF_A_BLOCK:
        return math.nan, math.nan
    means = [float(part.mean()) for part in np.array_split(values, blocks)]
    return min(means), max(means)


def rounds_ended(
    chosen: NDArray[np.intp], lost: NDArray[np.bool_], learner: NDArray[np.intp], learners: int
) -> NDArray[np.int64]:
    """Count the rounds that Algorithm 1's rule ends with these losses: eta(t) of Theorem 1, by learner.

    A round of a learner ends once the losses of one alternative in it exceed 1. Losses are 0 or 1, and only the chosen
    alternative's is known (lines 4 and 5 of the algorithm), so this happens when an alternative loses for the second
    time in the round. This can be counted for the predictions of any estimator, with the alternative closest to each as
    the chosen one; for the default policy it is the algorithm's own count. The tuned policy, which replays each wait,
    ends more rounds than these.

    `chosen`, `lost`, `learner`: for each prediction its alternative, whether it lost, and its learner; in the order in
    which waits became known.

    Examples
    --------
    >>> rounds_ended(np.array([3, 4, 3, 3, 3]), np.array([True, True, True, True, False]), np.zeros(5, int), 1).tolist()
    [1]
    """
    ended = [0] * learners
    lost_once: list[set[int]] = [set() for _ in range(learners)]
    for whose, alternative in zip(learner[lost].tolist(), chosen[lost].tolist(), strict=True):
        so_far = lost_once[whose]
        if alternative in so_far:
            ended[whose] += 1
            so_far.clear()
        else:
            so_far.add(alternative)
    return np.asarray(ended, dtype=np.int64)


def regret_bound(
    rounds: ArrayLike, predictions: ArrayLike, alternatives: int = len(PAPER_ALTERNATIVES_S), delta: float = _DELTA
) -> NDArray[np.float64]:
    """Return Theorem 1's bound on the regret of one learner: ``4 eta + ln m + sqrt(2 t ln(m / delta))``.

    `delta`: by the theorem the bound holds with a probability of at least 1 - delta. The proof requires that the losses
    of all alternatives are known, and at once: under the policy ``default`` it fails (see `Asa`), and it does not allow
    for delay.
    """
    t = np.asarray(predictions, dtype=np.float64)
    bound: NDArray[np.float64] = (
        4.0 * np.asarray(rounds) + math.log(alternatives) + np.sqrt(2 * t * math.log(alternatives / delta))
    )
    return bound


class Course(NamedTuple):
    """Measures over time, as means of up to 40 blocks with equally many jobs."""

    day: tuple[float, ...]  # middle of each block, in days since the first submission
    log10_error: tuple[float, ...]
    coverage_p50: tuple[float, ...]
    coverage_p90: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The scores of one estimator on one trace, or on one geometry of it; nan for unknown values.

    Estimators also learn from jobs that never started, but such jobs are not scored. Means are over jobs.
    """

    trace: str
    estimator: str
    geometry: str = ""  # description of the geometry; empty for the whole trace
    jobs: int = 0
    # mean distance of the predicted wait from the real one in powers of ten, both at least 10 s
    log10_error: float = math.nan
    # share of predictions whose closest of the 53 alternatives is also the closest to the real wait
    hit_ratio: float = math.nan
    within_2x: float = math.nan  # share predicted within a factor of two, both at least 10 s
    # shares of jobs that started within the predicted p50 and p90, where waits up to 10 s are equal: as users read a
    # forecast
    within_p50: float = math.nan
    within_p90: float = math.nan
    # coverage of the predicted p10 ... p90: such shares, but waits that equal a quantile are spread over the levels
    # with this value, so that the truth has 0.1 ... 0.9 even with many equal waits; see
    # `asa.estimators.calibration.coverage`
    coverage: tuple[float, ...] = (math.nan,) * _QUANTILES
    # smallest and largest coverage of ten blocks of the trace
    coverage_p50_range: tuple[float, float] = (math.nan, math.nan)
    coverage_p90_range: tuple[float, float] = (math.nan, math.nan)
    # mean pinball loss of the nine quantiles, in seconds; and in powers of ten of waits of at least 10 s, which a few
    # long waits do not dominate
    pinball_s: float = math.nan
    pinball_log10: float = math.nan
    late_s: float = math.nan  # mean of a job's remaining wait if it is submitted ahead by its predicted wait
    late_share: float = math.nan  # share of jobs that waited longer than predicted
    # mean core-hours that such a job idles if it starts before it is needed
    idle_core_h: float = math.nan
    # mean, median and 90 % quantile of the distance between predicted and real wait, in seconds
    abs_error_s: float = math.nan
    abs_error_p50_s: float = math.nan
    abs_error_p90_s: float = math.nan
    bias_s: float = math.nan  # mean of predicted less real wait
    # number of predictions that missed the closest alternative, less that of the best fixed alternative, chosen in
    # hindsight for each geometry; divided by the number of jobs
    regret_per_job: float = math.nan
    # bound by Theorem 1, summed over the geometries, each with its own delta; see `rounds_ended` and `regret_bound`
    regret_bound_per_job: float = math.nan
    us_per_job: float = math.nan  # processor time for predicting and learning one job, in microseconds
    course: Course | None = field(default=None, repr=False)  # measures over time, for whole traces

    def coverage_at(self, level: float) -> float:
        """Return the coverage at one of `asa.waits.LEVELS`."""
        return self.coverage[LEVELS.index(level)]

    def as_dict(self) -> dict[str, Any]:
        """Return the score as a flat JSON-ready record; unknown values are null."""
        record: dict[str, Any] = {}
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            if name == "coverage":
                record |= {f"coverage_p{100 * level:.0f}": share for level, share in zip(LEVELS, value, strict=True)}
            elif name.endswith("_range"):
                record |= zip((name.replace("range", "min"), name.replace("range", "max")), value, strict=True)
            elif name != "course":
                record[name] = value
        return cast("dict[str, Any]", as_plain({**record, "geometry": self.geometry or None}))


def judge(
    history: JobHistory,
    forecasts: Forecasts,
    *,
    trace: str = "",
    estimator: str = "",
    by_geometry: bool = False,
    known_order: NDArray[np.intp] | None = None,
) -> list[Score]:
    """Compute the scores of forecasts.

    Returns: the score of the whole trace, then those of the geometries, the one with most jobs first.
    """
    scored = np.flatnonzero(history.started)
    if not len(scored):
        raise InputError(
            "has no job whose wait is known", where=trace or history.source or None, hint="Give a log with waits."
        )
    whose, geometries = _geometries(history)
    learner = whose[scored]
    wait_s, predicted_s, quantiles_s = history.wait_s[scored], forecasts.wait_s[scored], forecasts.quantiles_s[scored]
    truth, guess = closest(wait_s), closest(predicted_s)
    error_s = predicted_s - wait_s
    columns = {
        "log10_error": log10_errors(predicted_s, wait_s),
        "hit_ratio": guess == truth,
        "within_2x": within_factor(predicted_s, wait_s),
        "within_p50": within_quantile(quantiles_s, wait_s, 0.5),
        "within_p90": within_quantile(quantiles_s, wait_s, 0.9),
        "pinball_s": pinball(quantiles_s, wait_s),
        "pinball_log10": pinball(_log10(quantiles_s), _log10(wait_s)),
        "late_s": np.maximum(0.0, -error_s),
        "late_share": error_s < 0,
        "idle_core_h": np.maximum(0.0, error_s) * history.cores[scored] / 3600,
        "bias_s": error_s,
    }
    covered = coverage(quantiles_s, wait_s)
    if known_order is None:
        known_order = Events(history).known_order
    order = np.searchsorted(scored, known_order)
    lost = guess != truth
    rounds = rounds_ended(guess[order], lost[order], learner[order], len(geometries))
    predictions = np.bincount(learner, minlength=len(geometries))
    regret = np.bincount(learner, weights=lost, minlength=len(geometries)) - (
        predictions - _most_often(learner, truth, len(geometries))
    )
    bound = np.where(predictions > 0, regret_bound(rounds, predictions), 0.0)

    def score(rows: slice | NDArray[np.intp], of: slice | int, **others: Any) -> Score:
        jobs = len(wait_s[rows])
        here = covered[rows]
        distance_s = np.abs(error_s[rows])
        median_s, p90_s = np.quantile(distance_s, [0.5, 0.9]).tolist()
        others |= {name: float(column[rows].mean()) for name, column in columns.items()}
        return Score(
            trace,
            estimator,
            jobs=jobs,
            coverage=tuple(here.mean(axis=0).tolist()),
            coverage_p50_range=block_range(here[:, LEVELS.index(0.5)]),
            coverage_p90_range=block_range(here[:, LEVELS.index(0.9)]),
            abs_error_s=float(distance_s.mean()),
            abs_error_p50_s=median_s,
            abs_error_p90_s=p90_s,
            regret_per_job=float(np.sum(regret[of])) / jobs,
            regret_bound_per_job=float(np.sum(bound[of])) / jobs,
            **others,
        )

    everything = slice(None)
    course = _course(history.submit_s[scored], columns["log10_error"], covered)
    scores = [score(everything, everything, us_per_job=forecasts.us_per_job, course=course)]
    if by_geometry:
        together = np.split(np.argsort(learner, kind="stable"), np.cumsum(predictions)[:-1])
        most_first = np.argsort(-predictions, kind="stable")[: np.count_nonzero(predictions)]
        scores += [score(together[place], place, geometry=geometries[place].label()) for place in most_first.tolist()]
    return scores


def _geometries(history: JobHistory) -> tuple[NDArray[np.intp], list[JobGeometry]]:
    """Return the geometry of each job as an index into the list of geometries."""
    partitions = np.asarray(history.partition, dtype=np.int64)
    classes = np.stack([size_class(history.cores), walltime_class(history.walltime_s), partitions], axis=1)
    kinds, whose = np.unique(classes, axis=0, return_inverse=True)
    names = [*history.partitions, ""]
    made = [
        JobGeometry(size, walltime, history.system, names[partition]) for size, walltime, partition in kinds.tolist()
    ]
    return whose.reshape(-1), made


def _most_often(learner: NDArray[np.intp], truth: NDArray[np.intp], learners: int) -> NDArray[np.int64]:
    """Return how often the best fixed alternative of each learner would have been right."""
    width = len(PAPER_ALTERNATIVES_S)
    pairs, counts = np.unique(learner * width + truth, return_counts=True)
    most = np.zeros(learners, dtype=np.int64)
    np.maximum.at(most, pairs // width, counts)
    return most


def _course(submit_s: NDArray[np.float64], errors: NDArray[np.float64], covered: NDArray[np.float64]) -> Course:
    blocks = min(_BLOCKS_OF_A_COURSE, max(len(errors) // _FEWEST_OF_A_BLOCK, 1))
    columns = (
        (submit_s - submit_s[0]) / 86400,
        errors,
        covered[:, LEVELS.index(0.5)],
        covered[:, LEVELS.index(0.9)],
    )
    return Course(*(tuple(float(part.mean()) for part in np.array_split(column, blocks)) for column in columns))
