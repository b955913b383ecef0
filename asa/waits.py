"""Queue waits as values (the waiting job, predictions, observations), and the interface of estimators.

Estimators, evaluation, the runner and the backends exchange these values.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from asa.core.late import dataclass
from asa.errors import InputError
from asa.geometry import JobGeometry
from asa.units import format_duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "LEVELS",
    "JobAhead",
    "QueueEvent",
    "QueuedJob",
    "Surroundings",
    "WaitEstimator",
    "WaitForecast",
    "WaitObservation",
    "aged_share",
    "at_least",
    "at_most",
    "exactly",
]

_END_OF_TIME_S = _MAX_CORES = 1e15
_FLOOR_S = 10.0  # shorter waits count as this long
_MIN_TAIL = 0.8  # lower bound of a tail: p99 is about ten times p90; forecasts with thinner tails were too confident
# upper bound of any probability: nine quantiles tell no more, and higher claims failed on every log tried
_CERTAIN = 0.99
LEVELS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Probabilities whose quantiles a forecast states: p10, p20, ..., p90."""
_AGED_AT_ONCE, _AGED_MEAN = 0.62, 0.65
"""Of jobs whose age accrued for longer than their usual wait: how many start as soon as they are due; and what share of
their usual wait the others still wait on average, while cores drain for them at the head of the queue.

Chosen on the logs KTH, CTC and HPC2N (703 jobs: 61 to 63 percent); on Theta and Gaia, 52 and 69 percent of 66 jobs.
"""


@dataclass(frozen=True, slots=True)
class WaitObservation:
    """An observation of a queue wait, exact or censored.

    A wait is not always observed from beginning to end. If a dependency kept a job back and the job started the moment
    it was released, its turn had come before: the time since submission is an upper bound. If a job was cancelled in
    the queue, its time there is a lower bound. If such waits counted as exact, estimators would learn errors that
    reinforce themselves.

    Parameters
    ----------
    wait_s
        Seconds, at least 0.
    kind
        ``exact``, or how it is censored.
    """

    wait_s: float
    kind: Literal["exact", "at_most", "at_least"] = "exact"

    def __post_init__(self) -> None:
        if not 0 <= self.wait_s < float("inf"):
            raise InputError(f"a wait of {self.wait_s} s cannot be", hint="Waits are finite and not negative.")


def exactly(wait_s: float) -> WaitObservation:
    """Make an exact observation of a wait.

    Parameters
    ----------
    wait_s
        Seconds, at least 0.
    """
    return WaitObservation(wait_s)


def at_most(wait_s: float) -> WaitObservation:
    """Make an upper bound of a wait: the job's turn came before it was allowed to start.

    Parameters
    ----------
    wait_s
        Seconds, at least 0, that the wait did not exceed.
    """
    return WaitObservation(wait_s, "at_most")


def aged_share(rank: float) -> float:
    """Return the share of its usual wait that a job still waits once it is due, if its age accrued while it was held.

    Most such jobs start at once; the others wait for an exponentially distributed share.

    Parameters
    ----------
    rank
        The probability of a shorter wait, at least 0 and less than 1.

    Examples
    --------
    >>> [round(aged_share(rank), 2) for rank in (0.5, 0.75, 0.95)]
    [0.0, 0.27, 1.32]
    """
    return max(-_AGED_MEAN * math.log((1.0 - rank) / (1.0 - _AGED_AT_ONCE)), 0.0)


def at_least(wait_s: float) -> WaitObservation:
    """Make a lower bound of a wait: the job was still waiting when it was last seen in the queue.

    Parameters
    ----------
    wait_s
        Seconds, at least 0, that the wait exceeds.
    """
    return WaitObservation(wait_s, "at_least")


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A queued job, with what is known at its submission.

    Parameters
    ----------
    submit_s
        Since when it queues, on the scheduler's clock: since its submission or, if a dependency or a begin time kept it
        back, since it is eligible.
    cores, walltime_s
        What the job asks for.
    user
        Owner of the job: any text that distinguishes users; empty if not known.
    system, partition
        Where the job was sent; may be empty.
    """

    submit_s: float
    cores: int
    walltime_s: float
    user: str = ""
    system: str = ""
    partition: str = ""

    def __post_init__(self) -> None:
        if not (
            abs(self.submit_s) < _END_OF_TIME_S and 0 < self.walltime_s < _END_OF_TIME_S and 0 < self.cores < _MAX_CORES
        ):
            raise InputError(
                f"a job of {self.cores} cores for {self.walltime_s} s, submitted at {self.submit_s} s, cannot be",
                hint="Ask for at least 1 core and some time, at a time that is a number.",
            )

    @property
    def geometry(self) -> JobGeometry:
        """The class of jobs that it belongs to."""
        return JobGeometry.of(
            cores=self.cores, walltime_s=self.walltime_s, system=self.system, partition=self.partition
        )


@dataclass(frozen=True, slots=True, eq=False)
class JobAhead:
    """A job of a plan, to be submitted now or later, together with other jobs of that plan.

    Parameters
    ----------
    job
        Its request; if `queues` is ``aging`` or ``early``, it is submitted at its `submit_s`.
    now_s
        When the forecast is made, on the scheduler's clock.
    run_s
        Run time of its payload in seconds, in each sampled future, shape (samples,).
    after
        Indices of the earlier jobs of the plan whose ends it waits for.
    queues
        ``ready``: it is submitted when these jobs have ended, or its age counts only from then. ``aging``: it keeps its
        position in the queue from its submission on, but does not start before they have ended. ``early``: it may start
        before they end, and then its cores idle until they have. ``local``: it waits only for them, and takes no cores.
    ready_s
        Seconds until its payload can begin at the earliest, in each future, apart from the plan's other jobs; None for
        0.
    due_s
        Seconds until it is expected to be ready, roughly: they give the hour of the day for which usual waits are
        taken.
    """

    job: QueuedJob
    now_s: float
    run_s: NDArray[np.float64]
    after: tuple[int, ...] = ()
    queues: Literal["ready", "aging", "early", "local"] = "ready"
    ready_s: NDArray[np.float64] | None = None
    due_s: float = 0.0

    @property
    def as_if_now(self) -> QueuedJob:
        """The job as if it were submitted now."""
        return self.job if self.job.submit_s == self.now_s else replace(self.job, submit_s=self.now_s)

    @property
    def submit_s(self) -> float:
        """Seconds until it may be submitted."""
        return max(self.job.submit_s - self.now_s, 0.0) if self.queues in ("aging", "early") else 0.0


class QueueEvent(NamedTuple):
    """An event of a job of any user.

    Parameters
    ----------
    what
        ``submitted``, with the job; ``started``; ``left`` the queue without having started; or ``ended``.
    key
        Identifies the job, as long as the queue is followed.
    time_s
        Time of the event, on the scheduler's clock.
    job
        The job, if it was submitted.
    """

    what: Literal["submitted", "started", "left", "ended"]
    key: int | str
    time_s: float
    job: QueuedJob | None = None


class WaitForecast(NamedTuple):
    """The prediction of a wait.

    Parameters
    ----------
    quantiles_s
        Quantiles of the wait at the probabilities of `LEVELS`, in seconds; ascending.
    wait_s
        The point prediction, in seconds; for most estimators the p50.
    alternative
        Index of the alternative that `wait_s` was drawn from, for estimators that draw (Algorithm 1); else -1.

    Examples
    --------
    >>> forecast = WaitForecast((0.0, 0.0, 10.0, 20.0, 60.0, 90.0, 120.0, 600.0, 3600.0), 60.0)
    >>> forecast.at(0.5), round(forecast.at(0.55)), round(forecast.probability_within(105.0), 2)
    (60.0, 75, 0.65)
    >>> forecast, forecast.p90
    (WaitForecast(1m00s (p10 0s to p90 1h00m)), 3600.0)
    """

    quantiles_s: tuple[float, ...]
    wait_s: float
    alternative: int = -1

    def __repr__(self) -> str:
        if len(self.quantiles_s) != len(LEVELS):
            return f"WaitForecast({self.quantiles_s!r}, {self.wait_s!r})"
        low, high = format_duration(self.p10), format_duration(self.p90)
        return f"WaitForecast({format_duration(self.wait_s)} (p10 {low} to p90 {high}))"

    @property
    def p10(self) -> float:
        """The wait in seconds that nine jobs in ten exceed."""
        return self.quantiles_s[0]

    @property
    def p50(self) -> float:
        """The median of the wait in seconds."""
        return self.quantiles_s[LEVELS.index(0.5)]

    @property
    def p90(self) -> float:
        """The wait in seconds that one job in ten exceeds."""
        return self.quantiles_s[-1]

    def at(self, level: float) -> float:
        """Return the quantile at a probability, interpolated linearly between the given ones.

        If a second too late costs ``late`` and a second too early ``early``, the lead that costs least is the quantile
        at level ``late / (late + early)``.

        Parameters
        ----------
        level
            From 0 to 0.99; more counts as 0.99. Below p10 the quantile falls linearly to 0 s. Above p90 the tail is a
            Pareto distribution through p80 and p90, which are at least 10 s: waits are heavy-tailed, and a straight
            line would promise too much.
        """
        q = self.quantiles_s
        if level <= LEVELS[0]:
            return q[0] * max(level, 0.0) / LEVELS[0]
        if level >= LEVELS[-1]:
            return q[-1] * math.pow((1.0 - LEVELS[-1]) / (1.0 - min(level, _CERTAIN)), _tail(q))
        after = bisect_right(LEVELS, level)
        share = (level - LEVELS[after - 1]) / (LEVELS[after] - LEVELS[after - 1])
        return q[after - 1] + share * (q[after] - q[after - 1])

    def probability_within(self, wait_s: float) -> float:
        """Return the probability that the job starts within `wait_s` seconds; the inverse of `at`."""
        q = self.quantiles_s
        if wait_s < 0:
            return 0.0
        if wait_s < q[0]:
            return LEVELS[0] * wait_s / q[0]
        if wait_s >= q[-1]:
            tail, times = _tail(q), max(wait_s, _FLOOR_S) / max(q[-1], _FLOOR_S)
            return min(_CERTAIN, 1.0 - (1.0 - LEVELS[-1]) * math.pow(times, -1.0 / tail))
        after = bisect_right(q, wait_s)
        share = (wait_s - q[after - 1]) / (q[after] - q[after - 1])
        return LEVELS[after - 1] + share * (LEVELS[after] - LEVELS[after - 1])


def _tail(quantiles_s: tuple[float, ...]) -> float:
    """Return the powers of two by which the wait grows beyond p90 while the probability to exceed it halves."""
    return max(_MIN_TAIL, math.log2(max(quantiles_s[-1], _FLOOR_S) / max(quantiles_s[-2], _FLOOR_S)))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The conditions for which an estimator is made.

    Parameters
    ----------
    seed
        Seed of its random numbers.
    machine_cores
        Cores of the machine; 0 if not known.
    """

    seed: int = 0
    machine_cores: int = 0


@runtime_checkable
class WaitEstimator(Protocol):
    """Learns a site's waits from the submissions and starts of its jobs, and predicts waits.

    Calls come in order of time. `predict` changes nothing, and may be called at any time. `submitted` reports a job
    that was really submitted, and returns a ticket; the caller passes that to `observe` when something becomes known of
    the wait, and to `ended` when the job has ended. Many jobs may wait at the same time. State is plain data, which can
    be stored and shared; an estimator made from another's state continues exactly from there.
    """

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now, which is its `submit_s`."""
        ...

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:
        """Learn that a job waits from now on; `forecast`: the forecast on which the submission was based, if any."""
        ...

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn about a wait; the job no longer waits."""
        ...

    def ended(self, ticket: int, run_s: float) -> None:
        """Learn how long a started job ran. Only a visible queue shows that; many estimators ignore it."""
        ...

    def withdrawn(self, ticket: int) -> None:
        """Forget a waiting or running job that is no longer visible; learn nothing. Ignore unknown tickets."""
        ...

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue, as JSON-ready data."""
        ...
