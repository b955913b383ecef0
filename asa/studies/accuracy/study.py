"""How well estimators predict waits: each job of a history in its turn, and never with a look ahead.

A history is lived through in order of time. An estimator predicts a job when it is submitted, and learns its wait when
it starts: that is called prequential evaluation, here with the delay that waits have by nature. Estimators are handed
values of the port `asa.waits.WaitEstimator` and nothing else: what one is told holds nothing of the future.

`prequential` is the loop, `judge` turns what was predicted into figures, `evaluate` does both for many. The figures are
pure functions of arrays.
"""

from __future__ import annotations

import csv
import io
import math
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asa.core import plugins
from asa.errors import AsaError, InputError, RunError, TraceError, UnknownNameError
from asa.estimators.alternatives import PAPER_ALTERNATIVES_S
from asa.estimators.calibration import FLOOR_S, coverage
from asa.geometry import JobGeometry, size_class, walltime_class
from asa.history import JobHistory, opened
from asa.studies.harness import counted, run_cells
from asa.waits import LEVELS, QueuedJob, Surroundings, WaitEstimator, WaitObservation, at_least, exactly

__all__ = [
    "Course",
    "Forecasts",
    "MakeEstimator",
    "Score",
    "StartEstimates",
    "Timeline",
    "block_range",
    "closest",
    "evaluate",
    "installed",
    "judge",
    "log10_errors",
    "oracle",
    "pinball",
    "prequential",
    "read_start_estimates",
    "regret_bound",
    "rounds_ended",
    "score_start_estimates",
    "within_factor",
]

MakeEstimator = Callable[[Surroundings], WaitEstimator]
"""What the entry points of the group ``asa.estimators`` are."""

_DELTA = 0.05  # Theorem 1 holds with at least the probability 1 - delta
_BLOCKS = 10
_FEWEST_OF_A_BLOCK = 10  # shares of fewer jobs are noise
_BLOCKS_OF_A_COURSE = 40
_WARMING_UP = 0.05  # share of the loop in which loops are compiled and caches fill; not timed
_QUANTILES = len(LEVELS)
_RECORD = struct.Struct(f"={_QUANTILES + 1}d")
_ALTERNATIVES_S = np.asarray(PAPER_ALTERNATIVES_S)
_LEVELS = np.asarray(LEVELS)
_HEADER_BYTES = 1 << 16

_TRUE, _ESTIMATE, _DIFFERENCE = "true_start_time", "estimate_start_time", "diff_in_s"


# --- the loop ---------------------------------------------------------------------------------------------------------


class Timeline:
    """A history as the events that estimators live through; made once and shared by all of them.

    The events of a second come in this order: runs end, jobs are submitted, jobs start or leave the queue. So a job
    that starts in the second of its submission is not known to have done so when it, or another job of that second, is
    predicted. A run that ends in the second of its own start ends after it.

    `outcomes`: what becomes known of each: its wait, or a lower bound if it never started.
    `known_order`: the jobs that started, in the order in which their waits became known.
    Raises `InputError`: a wait is negative or endless, or a job asks for no cores or no time.

    Notes
    -----
    About 3 microseconds and 300 bytes a job.
    """

    def __init__(self, history: JobHistory) -> None:
        _refuse_what_cannot_be(history)
        self.history = history
        rows = len(history)
        users = [*history.users, ""]  # -1, unknown, is the last
        partitions = [*history.partitions, ""]
        system = history.system
        self.jobs = [
            QueuedJob(submit_s, cores, walltime_s, users[user], system, partitions[partition])
            for submit_s, cores, walltime_s, user, partition in zip(
                history.submit_s.tolist(),
                history.cores.tolist(),
                history.walltime_s.tolist(),
                history.user.tolist(),
                history.partition.tolist(),
                strict=True,
            )
        ]
        self.outcomes: list[WaitObservation] = [
            exactly(wait_s) if started else at_least(wait_s)
            for wait_s, started in zip(history.wait_s.tolist(), history.started.tolist(), strict=True)
        ]
        known_s = history.submit_s + history.wait_s
        every = np.arange(rows)
        ran = np.flatnonzero(history.started & (history.run_s >= 0))
        end_s = known_s[ran] + history.run_s[ran]
        self._times = np.concatenate([history.submit_s, known_s, end_s])
        self._kinds = np.concatenate(
            [np.full(rows, 1), np.full(rows, 2), np.where(end_s > known_s[ran], 0, 3)]  # see the class
        )
        self._codes = np.concatenate([every, every + rows, ran + 2 * rows])
        order = every[np.lexsort((every, known_s))]
        self.known_order = order[history.started[order]]

    def events(self, *, ends: bool) -> list[int]:
        """Events in order: a job's place for its submission, plus n for its start, plus 2 n for its end."""
        most = len(self._codes) if ends else 2 * len(self.jobs)
        codes = self._codes[:most]
        order: list[int] = codes[np.lexsort((codes, self._kinds[:most], self._times[:most]))].tolist()
        return order


def _refuse_what_cannot_be(history: JobHistory) -> None:
    for wrong, words in (
        (~(history.wait_s >= 0) | (history.wait_s == np.inf), "a wait that is negative or endless"),
        (history.cores < 1, "no cores"),
        (~(history.walltime_s > 0) | (history.walltime_s == np.inf), "a walltime that is not positive or endless"),
        (~np.isfinite(history.submit_s), "no moment of submission"),
    ):
        if wrong.any():
            raise InputError(
                f"job {int(np.argmax(wrong)) + 1} has {words}",
                where=history.source or None,
                hint="Mend the history, or leave the job out.",
            )


@dataclass(frozen=True, slots=True)
class Forecasts:
    """What was predicted of each job of a history when it was submitted."""

    quantiles_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]  # the one wait to count on
    # processor time for predicting and learning a job, in microseconds; that of the loop itself, under one microsecond,
    # is in it, the first twentieth of the events is not. nan if it was not measured.
    us_per_job: float = math.nan


def prequential(
    history: JobHistory, make: MakeEstimator, *, seed: int = 0, timeline: Timeline | None = None
) -> Forecasts:
    """Let an estimator live through a history, and keep what it predicted.

    At each submission it is asked for a forecast and told of the job. When a job starts it learns its wait; when a job
    leaves the queue unstarted, that its wait would have been at least as long. Ends of runs are told to estimators
    whose attribute `sees_queue` is true, and to no others. It never gets the history.

    Raises `InputError`: the history makes no sense, or the estimator's forecasts do not: not nine quantiles,
    negative, descending, or not finite.

    Notes
    -----
    The loop itself takes under a microsecond a job, beside what the estimator takes.

    Examples
    --------
    >>> from asa.waits import WaitForecast
    >>> class Same:
    ...     def predict(self, job):
    ...         return WaitForecast((60.0,) * 9, 60.0)
    ...     def submitted(self, job, forecast=None):
    ...         return 0
    ...     def observe(self, ticket, observation):
    ...         print(observation.kind, observation.wait_s)
    >>> submit_s, wait_s, started = np.array([0.0, 5.0]), np.array([30.0, 7.0]), np.array([True, False])
    >>> history = JobHistory(submit_s, wait_s, np.ones(2, int), np.full(2, 3600.0), started)
    >>> prequential(history, lambda surroundings: Same()).wait_s
    at_least 7.0
    exact 30.0
    array([60., 60.])
    """
    timeline = timeline or Timeline(history)
    estimator = make(Surroundings(seed, history.machine_cores))
    rows = len(timeline.jobs)
    stated = np.empty((rows, _QUANTILES + 1))
    events = timeline.events(ends=_sees_queue(estimator))
    cold = int(len(events) * _WARMING_UP)
    try:
        _live(estimator, timeline, events[:cold], stated, tickets := [0] * rows)
        began = time.process_time()
        _live(estimator, timeline, events[cold:], stated, tickets)
        took_s = time.process_time() - began
    except struct.error as error:
        raise InputError(
            f"a forecast is not {_QUANTILES} quantiles and a wait: {error}",
            where=type(estimator).__name__,
            hint="See `asa.waits.WaitForecast`.",
        ) from error
    sound = np.isfinite(stated).all(axis=1) & (stated >= 0).all(axis=1)
    sound &= (np.diff(stated[:, :_QUANTILES], axis=1) >= 0).all(axis=1)
    if not sound.all():
        job = int(np.argmin(sound))
        raise InputError(
            f"of job {job + 1} it states the quantiles {stated[job, :-1].tolist()} and the wait {stated[job, -1]}",
            where=type(estimator).__name__,
            hint="Quantiles are finite, not negative and ascending; try `asa.testing.check_estimator`.",
        )
    us_per_job = 1e6 * took_s / rows * len(events) / (len(events) - cold) if rows else math.nan
    return Forecasts(stated[:, :_QUANTILES], np.ascontiguousarray(stated[:, _QUANTILES]), us_per_job)


def _sees_queue(estimator: WaitEstimator) -> bool:
    return bool(getattr(estimator, "sees_queue", False))


def _live(
    estimator: WaitEstimator, timeline: Timeline, events: list[int], stated: NDArray[np.float64], tickets: list[int]
) -> None:
    """Tell an estimator these events, and note what it predicts."""
    predict, submitted, observe = estimator.predict, estimator.submitted, estimator.observe
    jobs, outcomes, run_s = timeline.jobs, timeline.outcomes, timeline.history.run_s
    write, record_bytes = _RECORD.pack_into, _RECORD.size
    buffer = stated.reshape(-1).view(np.uint8).data
    rows = len(jobs)
    ends_from = 2 * rows
    for event in events:
        if event < rows:
            job = jobs[event]
            forecast = predict(job)
            write(buffer, event * record_bytes, *forecast[0], forecast[1])
            tickets[event] = submitted(job, forecast)
        elif event < ends_from:
            observe(tickets[event - rows], outcomes[event - rows])
        else:
            estimator.ended(tickets[event - ends_from], float(run_s[event - ends_from]))


def oracle(history: JobHistory) -> Forecasts:
    """Return the truth as forecasts: what no estimator can reach, to hold the others against.

    Returns: of each job all quantiles, and the wait to count on, are its true wait.
    """
    return Forecasts(np.repeat(history.wait_s[:, np.newaxis], _QUANTILES, axis=1), history.wait_s.copy())


# --- figures ----------------------------------------------------------------------------------------------------------


def log10_errors(predicted_s: ArrayLike, wait_s: ArrayLike) -> NDArray[np.float64]:
    """Distance of each prediction from its wait in powers of ten, either way; both at least `FLOOR_S`.

    Returns: of the same shape; 0 is right, 1 is ten times too long or too short.

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
    """Whether each prediction is right up to a factor; both at least `FLOOR_S`.

    Examples
    --------
    >>> within_factor([100.0, 100.0, 0.0], [200.0, 201.0, 20.0]).tolist()
    [True, False, True]
    """
    predicted, wait = np.maximum(predicted_s, FLOOR_S), np.maximum(wait_s, FLOOR_S)
    return (predicted <= factor * wait) & (wait <= factor * predicted)


def closest(wait_s: ArrayLike, alternatives_s: ArrayLike = _ALTERNATIVES_S) -> NDArray[np.intp]:
    """Place of the alternative that is closest to each wait, as `asa.estimators.alternatives.nearest` has it.

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
    """Pinball loss of each forecast, the mean over its levels; least, in the mean, for the true quantiles.

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
    """Least and largest mean of so many equal blocks, in order: drift that the mean of all would hide.

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
    """Count the rounds that Algorithm 1's rule ends on these losses: eta(t) of Theorem 1, by learner.

    A round of a learner ends once one alternative has gathered more loss than 1 in it. With losses of 0 or 1, of which
    only the chosen alternative's is known (lines 4 and 5 of the algorithm), that is when an alternative loses for the
    second time in the round. This can be counted for anyone's predictions, with the alternative closest to each as
    the one chosen; for the default policy it is the algorithm's own count. The tuned policy, which replays each wait,
    ends more rounds than these.

    `chosen`, `lost`, `learner`: by prediction: its alternative, whether it lost, and whose it was; in the order in
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
    """Theorem 1's bound on the regret of one learner: ``4 eta + ln m + sqrt(2 t ln(m / delta))``.

    `delta`: as the theorem has it, the bound holds with a probability of at least 1 - delta. The proof needs losses
    of all alternatives, each known at once: under the policy ``default`` it fails (see `Asa`), and delay is not in
    it.
    """
    t = np.asarray(predictions, dtype=np.float64)
    bound: NDArray[np.float64] = (
        4.0 * np.asarray(rounds) + math.log(alternatives) + np.sqrt(2 * t * math.log(alternatives / delta))
    )
    return bound


class Course(NamedTuple):
    """How figures went over time, as means of up to 40 blocks of equally many jobs."""

    day: tuple[float, ...]  # middle of each block, in days since the first submission
    log10_error: tuple[float, ...]
    coverage_p50: tuple[float, ...]
    coverage_p90: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """How well one estimator predicted the waits of one trace, or of one geometry of it; nan is unknown.

    Jobs that never started are learned from and not scored. Means are over jobs.
    """

    trace: str
    estimator: str
    geometry: str = ""  # whose jobs these are, in words; empty for those of the whole trace
    jobs: int = 0
    # mean distance of the predicted wait from the real one in powers of ten, both at least 10 s
    log10_error: float = math.nan
    # share whose predicted wait is closest to that of the 53 alternatives that the real wait is closest to
    hit_ratio: float = math.nan
    within_2x: float = math.nan  # share predicted within a factor of two, both at least 10 s
    # shares of waits that did not exceed the stated p10 ... p90; see `asa.estimators.calibration.coverage`.
    coverage: tuple[float, ...] = (math.nan,) * _QUANTILES
    # least and largest coverage of ten blocks of the trace
    coverage_p50_range: tuple[float, float] = (math.nan, math.nan)
    coverage_p90_range: tuple[float, float] = (math.nan, math.nan)
    # mean pinball loss of the nine quantiles, in seconds, and in powers of ten of waits of at least 10 s, which a few
    # long waits do not rule
    pinball_s: float = math.nan
    pinball_log10: float = math.nan
    late_s: float = math.nan  # mean of what a job still waits when it was submitted the predicted wait ahead
    late_share: float = math.nan  # share of jobs that waited longer than predicted
    # mean of what its cores idle when it started before it was wanted and nothing kept it back, in core-hours
    idle_core_h: float = math.nan
    # mean, median and 90 % quantile of the distance between predicted and real wait, in seconds
    abs_error_s: float = math.nan
    abs_error_p50_s: float = math.nan
    abs_error_p90_s: float = math.nan
    bias_s: float = math.nan  # mean of predicted less real wait
    # how many more predictions missed the closest alternative than of the best fixed one, chosen in hindsight for each
    # geometry; divided by jobs, negative if fewer did
    regret_per_job: float = math.nan
    # what Theorem 1 would allow, summed over the geometries, each with its own delta; see `rounds_ended` and
    # `regret_bound`
    regret_bound_per_job: float = math.nan
    us_per_job: float = math.nan  # processor time for predicting and learning one job, in microseconds
    course: Course | None = field(default=None, repr=False)  # its course, of whole traces

    def coverage_at(self, level: float) -> float:
        """Coverage of one of `asa.waits.LEVELS`."""
        return self.coverage[LEVELS.index(level)]

    def as_dict(self) -> dict[str, Any]:
        """Return it as one flat JSON-ready record; what is unknown is null."""
        record: dict[str, Any] = {
            "trace": self.trace,
            "estimator": self.estimator,
            "geometry": self.geometry or None,
            "jobs": self.jobs,
            "log10_error": self.log10_error,
            "hit_ratio": self.hit_ratio,
            "within_2x": self.within_2x,
        }
        record |= {f"coverage_p{100 * level:.0f}": share for level, share in zip(LEVELS, self.coverage, strict=True)}
        for name, bounds in (("p50", self.coverage_p50_range), ("p90", self.coverage_p90_range)):
            record[f"coverage_{name}_min"], record[f"coverage_{name}_max"] = bounds
        for name in (
            "pinball_s",
            "pinball_log10",
            "late_s",
            "late_share",
            "idle_core_h",
            "abs_error_s",
            "abs_error_p50_s",
            "abs_error_p90_s",
            "bias_s",
            "regret_per_job",
            "regret_bound_per_job",
            "us_per_job",
        ):
            record[name] = getattr(self, name)
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }


def judge(
    history: JobHistory,
    forecasts: Forecasts,
    *,
    trace: str = "",
    estimator: str = "",
    by_geometry: bool = False,
    known_order: NDArray[np.intp] | None = None,
) -> list[Score]:
    """Turn forecasts into figures.

    Returns: the whole trace's, then those of the geometries, the one of most jobs first.

    Notes
    -----
    Half a second for 200,000 jobs.
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
        "pinball_s": pinball(quantiles_s, wait_s),
        "pinball_log10": pinball(_log10(quantiles_s), _log10(wait_s)),
        "late_s": np.maximum(0.0, -error_s),
        "late_share": error_s < 0,
        "idle_core_h": np.maximum(0.0, error_s) * history.cores[scored] / 3600,
        "bias_s": error_s,
    }
    covered = coverage(quantiles_s, wait_s)
    if known_order is None:
        known_order = Timeline(history).known_order
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
    """Each job's geometry as a place in a list of those that there are."""
    partitions = np.asarray(history.partition, dtype=np.int64)
    classes = np.stack([size_class(history.cores), walltime_class(history.walltime_s), partitions], axis=1)
    kinds, whose = np.unique(classes, axis=0, return_inverse=True)
    names = [*history.partitions, ""]
    made = [
        JobGeometry(size, walltime, history.system, names[partition]) for size, walltime, partition in kinds.tolist()
    ]
    return whose.reshape(-1), made


def _most_often(learner: NDArray[np.intp], truth: NDArray[np.intp], learners: int) -> NDArray[np.int64]:
    """How often the best fixed alternative of each learner would have been right."""
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


# --- many at once -----------------------------------------------------------------------------------------------------


def installed(
    names: Sequence[str] | None = None,
    *,
    queue: bool = False,
    on_failure: Callable[[AsaError], None] | None = None,
) -> dict[str, MakeEstimator]:
    """Find estimators by name.

    `names`: which; if not given, all that are installed but those that see the queue.
    `on_failure`: called with what went wrong where one cannot be loaded or made; the others are found all the same.
    Without it the first failure is raised.
    """
    found: dict[str, MakeEstimator] = {}
    for name in plugins.names("asa.estimators") if names is None else names:
        try:
            make: MakeEstimator = plugins.load("asa.estimators", name)
            with _blaming(name):
                wanted = names is not None or queue or not _sees_queue(make(Surroundings()))
        except UnknownNameError:
            raise
        except AsaError as error:
            if on_failure is None:
                raise
            on_failure(error)
            continue
        if wanted:
            found[name] = make
    if not found:
        raise InputError("there is no estimator to evaluate", where="--estimators", hint="Name at least one.")
    return found


def evaluate(
    histories: Mapping[str, JobHistory],
    estimators: Mapping[str, MakeEstimator],
    *,
    seed: int = 0,
    by_geometry: bool = False,
    jobs: int | None = 1,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
    on_failure: Callable[[AsaError], None] | None = None,
) -> list[Score]:
    """Evaluate every estimator on every history.

    `estimators`: by name; with more than one process they must be importable. Each history meets a fresh one.
    `jobs`: processes, each of which takes one estimator on one history after the other; as many as this machine
    lets us use, if None. Nothing but the time taken depends on it.
    `on_progress`: called with how many of how many pairs of estimator and history are done.
    `on_failure`: called with what went wrong where an estimator failed on a history; the others are evaluated all
    the same. Without it the first failure is raised.
    Returns: by history and estimator in the order given, the ``oracle`` last: the truth as prediction, for
    reference.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> waits, cores, hour = rng.exponential(600.0, 500), np.ones(500, int), np.full(500, 3600.0)
    >>> history = JobHistory(np.arange(500) * 60.0, waits, cores, hour, np.ones(500, bool))
    >>> scores = evaluate({"made up": history}, installed(["last"]))
    >>> [(score.estimator, score.jobs) for score in scores], scores[1].log10_error
    ([('last', 500), ('oracle', 500)], 0.0)
    """
    if not histories or not estimators:
        raise InputError("there is nothing to evaluate", hint="Give a trace and an estimator.")
    for trace, history in histories.items():
        if not history.started.any():
            raise InputError("has no job whose wait is known", where=trace, hint="Give a log with waits.")
    pairs = [(trace, name) for trace in histories for name in (*estimators, _ORACLE)]
    work = _Work(dict(histories), dict(estimators), seed, by_geometry)
    done = counted(lambda _what, done, of: on_progress(done, of), "evaluating", len(pairs))

    def tell(_pair: tuple[str, str], result: list[Score] | RunError) -> None:
        if isinstance(result, RunError):
            if on_failure is None:
                raise result
            on_failure(result)
        done()

    results = run_cells(_Work.do, pairs, work, jobs=jobs, on_end=tell)
    return [score for result in results if not isinstance(result, RunError) for score in result]


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Say which estimator it was that failed; it may be somebody else's."""
    try:
        yield
    except AsaError as error:
        raise RunError(f"failed: {error.message}", where=f"estimator {name!r}", hint=error.hint) from error
    except Exception as error:
        raise RunError(
            f"failed: {type(error).__name__}: {error}",
            where=f"estimator {name!r}",
            hint="Mend it, or leave it out with --estimators.",
        ) from error


_ORACLE = "oracle"


class _Work:
    """What there is to evaluate; travels to each process once, where the last trace's events are kept."""

    def __init__(
        self,
        histories: dict[str, JobHistory],
        estimators: dict[str, MakeEstimator],
        seed: int,
        by_geometry: bool,  # noqa: FBT001 - private
    ) -> None:
        self.histories, self.estimators, self.seed, self.by_geometry = histories, estimators, seed, by_geometry
        self._last: tuple[str, Timeline] | None = None

    def do(self, pair: tuple[str, str]) -> list[Score] | RunError:
        """Evaluate an estimator on a trace, or give what went wrong with it."""
        trace, name = pair
        history = self.histories[trace]
        if self._last is None or self._last[0] != trace:
            self._last = None  # room for the next
            self._last = (trace, Timeline(history))
        timeline = self._last[1]
        try:
            if name == _ORACLE:
                forecasts = oracle(history)
            else:
                with _blaming(name):
                    forecasts = prequential(history, self.estimators[name], seed=self.seed, timeline=timeline)
        except RunError as error:
            return error
        return judge(
            history,
            forecasts,
            trace=trace,
            estimator=name,
            by_geometry=self.by_geometry,
            known_order=timeline.known_order,
        )


# --- a scheduler's own estimates --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartEstimates:
    """When a scheduler said that jobs would start, and when they did."""

    # estimated less real start by job, in seconds; negative where the job started later than estimated
    error_s: NDArray[np.float64]
    source: str = ""  # where this is from, for people
    oddities: dict[str, int] = field(default_factory=dict)  # how many rows each rule touched, by the rule's words

    def first(self, jobs: int) -> StartEstimates:
        """Return those of the first so many jobs."""
        return StartEstimates(self.error_s[:jobs], self.source, self.oddities)


def read_start_estimates(path: str | Path) -> StartEstimates | None:
    """Read a CSV file with the columns ``true_start_time`` and ``estimate_start_time``.

    Rules for what is odd, each counted:

    - a time that is missing or cannot be read: the row is left out;
    - the column ``diff_in_s``, if there is one, is neither their difference nor its amount, to the second: the times
      are believed.

    Raises `TraceError`: one of the two columns is missing, or no row can be used.

    Notes
    -----
    Times without an offset are those of one clock: across a change to summer time they are an hour off.
    """
    file = Path(path)
    with opened(file) as stream:
        begin = stream.read(_HEADER_BYTES)
        titles = _titles(_text(begin.split(b"\n")[0]))
        if not {_TRUE, _ESTIMATE}.intersection(titles):
            return None
        content = _text(begin + stream.read())
    if missing := {_TRUE, _ESTIMATE}.difference(titles):
        raise TraceError(
            f"lacks the column {missing.pop()}", where=str(file), hint=f"It needs {_TRUE} and {_ESTIMATE}."
        )
    try:
        rows = csv.DictReader(io.StringIO(content, newline=""), titles, skipinitialspace=True)
        next(rows, None)  # the titles
        errors_s, oddities = _start_errors(rows)
    except csv.Error as error:
        raise TraceError(f"is no CSV: {error}", where=str(file), hint="Write it anew.") from error
    if not errors_s:
        raise TraceError("has no row with both times", where=str(file), hint="Write times as in 2024-03-01 12:00:00.")
    told = {words: count for words, count in oddities.items() if count}
    return StartEstimates(np.asarray(errors_s), str(file), told)


def _text(content: bytes) -> str:
    return content.decode("utf-8-sig", errors="replace")


def _titles(line: str) -> list[str]:
    try:
        return [title.strip() for title in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def _start_errors(rows: Iterable[dict[str, str | None]]) -> tuple[list[float], dict[str, int]]:
    left_out = "left out: a time is missing or cannot be read"
    differs = f"with a {_DIFFERENCE} that is not the difference of the times: the times are believed"
    oddities = {left_out: 0, differs: 0}
    errors_s = []
    for row in rows:
        try:
            real, estimate = (datetime.fromisoformat((row[name] or "").strip()) for name in (_TRUE, _ESTIMATE))
            error_s = (estimate - real).total_seconds()
        except (ValueError, TypeError):  # a TypeError is for one time with an offset and one without
            oddities[left_out] += 1
            continue
        errors_s.append(error_s)
        if _DIFFERENCE in row:
            try:
                told_s = float(row[_DIFFERENCE] or "")
            except ValueError:
                told_s = math.nan
            oddities[differs] += not min(abs(told_s - error_s), abs(told_s - abs(error_s))) < 1.0
    return errors_s, oddities


def score_start_estimates(estimates: StartEstimates, *, trace: str = "") -> Score:
    """Score a scheduler's estimates; without moments of submission only seconds can be told.

    `trace`: what the score calls them; where they are from, if not given.

    Examples
    --------
    >>> score = score_start_estimates(StartEstimates(np.array([-10.0, 0.0, 40.0])))
    >>> score.abs_error_p50_s, round(score.late_share, 2), score.bias_s
    (10.0, 0.33, 10.0)
    """
    error_s = estimates.error_s
    if not len(error_s):
        raise InputError("holds no estimates", where=trace or estimates.source or None, hint="Give some.")
    distance_s = np.abs(error_s)
    median_s, p90_s = np.quantile(distance_s, [0.5, 0.9]).tolist()
    return Score(
        trace or estimates.source,
        "scheduler",
        jobs=len(error_s),
        late_s=float(np.maximum(0.0, -error_s).mean()),
        late_share=float((error_s < 0).mean()),
        abs_error_s=float(distance_s.mean()),
        abs_error_p50_s=median_s,
        abs_error_p90_s=p90_s,
        bias_s=float(error_s.mean()),
    )
