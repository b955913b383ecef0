"""Lets estimators live through a history of jobs: each job in its turn, without access to the future.

An estimator predicts a job when it is submitted, and learns its wait when it starts. This is prequential evaluation;
here, waits become known with a delay. Estimators get only values of the port `asa.waits.WaitEstimator`, which contain
nothing of the future.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError
from asa.history import JobHistory
from asa.waits import LEVELS, QueuedJob, Surroundings, WaitEstimator, WaitObservation, at_least, exactly

MakeEstimator = Callable[[Surroundings], WaitEstimator]
"""The type of the entry points in the group ``asa.estimators``."""

_WARMING_UP = 0.05  # share of the events in which code is compiled and caches fill; not timed
_QUANTILES = len(LEVELS)
_RECORD = struct.Struct(f"={_QUANTILES + 1}d")


class Events:
    """A history as the events that estimators live through; made once and shared by all of them.

    The events of a second are ordered: runs end, jobs are submitted, jobs start or leave the queue. So if a job starts
    in the second of its submission, this is not known yet when jobs of that second are predicted. A run that ends in
    the second of its own start ends after it.

    `outcomes`: the observation of each job: its wait, or a lower bound if it never started.
    `known_order`: the jobs that started, in the order in which their waits became known.
    Raises `InputError`: a wait is negative or infinite, or a job asks for no cores or no time.
    """

    def __init__(self, history: JobHistory) -> None:
        _refuse_what_cannot_be(history)
        self.history = history
        rows = len(history)
        users = [*history.users, ""]  # -1, unknown, indexes the last
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
            [np.full(rows, 1), np.full(rows, 2), np.where(end_s > known_s[ran], 0, 3)]  # see the docstring of the class
        )
        self._codes = np.concatenate([every, every + rows, ran + 2 * rows])
        order = every[np.lexsort((every, known_s))]
        self.known_order = order[history.started[order]]

    def events(self, *, ends: bool) -> list[int]:
        """Return events in order: a job's index for its submission, plus n for its start, plus 2 n for its end."""
        most = len(self._codes) if ends else 2 * len(self.jobs)
        codes = self._codes[:most]
        order: list[int] = codes[np.lexsort((codes, self._kinds[:most], self._times[:most]))].tolist()
        return order


def _refuse_what_cannot_be(history: JobHistory) -> None:
    for wrong, words in (
        (~(history.wait_s >= 0) | (history.wait_s == np.inf), "a wait that is negative or endless"),
        (history.cores < 1, "no cores"),
        (~(history.walltime_s > 0) | (history.walltime_s == np.inf), "a walltime that is not positive or endless"),
        (~np.isfinite(history.submit_s), "no time of submission"),
    ):
        if wrong.any():
            raise InputError(
                f"job {int(np.argmax(wrong)) + 1} has {words}",
                where=history.source or None,
                hint="Correct the history, or leave out the job.",
            )


@dataclass(frozen=True, slots=True)
class Forecasts:
    """The predictions for each job of a history at its submission."""

    quantiles_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]  # the point prediction
    # processor time for predicting and learning a job, in microseconds; nan if it was not measured. It includes the
    # loop itself, under one microsecond, but not the first twentieth of the events
    us_per_job: float = math.nan


def prequential(
    history: JobHistory, make: MakeEstimator, *, seed: int = 0, timeline: Events | None = None
) -> Forecasts:
    """Let an estimator live through a history, and return its predictions.

    At each submission the estimator is asked for a forecast and given the job. When a job starts, it learns the wait;
    when a job leaves the queue without a start, it learns a lower bound of the wait. The ends of runs are passed only
    to estimators whose attribute `sees_queue` is true. The estimator never gets the history.

    Raises `InputError`: the history is inconsistent; or a forecast has not nine quantiles, or some that are negative,
    descending or not finite.

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
    timeline = timeline or Events(history)
    estimator = make(Surroundings(seed, history.machine_cores))
    rows = len(timeline.jobs)
    stated = np.empty((rows, _QUANTILES + 1))
    events = timeline.events(ends=sees_queue(estimator))
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


def sees_queue(estimator: WaitEstimator) -> bool:
    """Whether an estimator needs the ends of runs."""
    return bool(getattr(estimator, "sees_queue", False))


def _live(
    estimator: WaitEstimator, timeline: Events, events: list[int], stated: NDArray[np.float64], tickets: list[int]
) -> None:
    """Feed events to an estimator, and record its predictions."""
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
    """Return the true waits as forecasts: a reference that no estimator can reach.

    Returns: for each job, all quantiles and the point prediction are its true wait.
    """
    return Forecasts(np.repeat(history.wait_s[:, np.newaxis], _QUANTILES, axis=1), history.wait_s.copy())
