"""The learned queue waits of a client: an estimator for each system, fed by its own jobs, the queue, and a store."""

from __future__ import annotations

import getpass
import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asa.core import plainly, plugins
from asa.errors import InputError
from asa.estimators.followed import FollowedQueue
from asa.estimators.joint import (
    SAMPLES,
    JointForecast,
    ReplacingEstimator,
    plans_apart,
    plans_together,
    side_by_side,
    together,
)
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord, user_in_store
from asa.history import JobHistory
from asa.waits import (
    LEVELS,
    JobAhead,
    QueuedJob,
    QueueEvent,
    Surroundings,
    WaitEstimator,
    WaitForecast,
    WaitObservation,
)

OWN_USER = "~me"
"""The user of this client's jobs, if the site does not show it."""

PUBLISHED = "asa-tuned"
"""The estimator of the ASA paper."""

_MAX_RECORDS, _MAX_IF_SLOW = 20_000, 3000
_RECENT = 1000
_ROWS_AT_ONCE = 10_000
_NAMES = tuple(f"p{100 * level:.0f}" for level in LEVELS)
_NONE = np.empty(0, dtype=np.intp)


@dataclass(slots=True, eq=False)
class OwnJob:
    """A pending job of this client, as its bank knows it; to be passed to `WaitBank.observe`.

    Parameters
    ----------
    job
        The job.
    forecast
        The forecast that was used, if any.
    ticket
        The estimator's identifier of the job.
    """

    job: QueuedJob
    forecast: WaitForecast | None
    ticket: int


class Outcome(NamedTuple):
    """A forecast, and the observed wait."""

    job: QueuedJob
    forecast: WaitForecast
    wait_s: float


class WaitBank:
    """An estimator for each system, made at first use and kept up to date.

    Parameters
    ----------
    estimator
        Name of an installed estimator (`asa list`), or a function that makes one.
    seed
        Seed of the estimators' random numbers.
    machine_cores
        Cores of the machine, for estimators that simulate it; 0 if not known.
    user
        Owner of this client's jobs. By default the login name if there is a store, since users may share it.
    store
        Where observations are stored, and those of other processes are read. The latest 20,000 (3000 without numba) are
        learned at once.

    Attributes
    ----------
    learned, own : int
        Waits learned so far: of all jobs, and of this client's.
    sees_queue : bool
        Whether the estimators also need to know when jobs end.
    draws : bool
        Whether two equal calls of `predict` may differ.

    Examples
    --------
    >>> from asa.waits import exactly
    >>> bank = WaitBank(seed=1)
    >>> for hour in range(60):
    ...     job = QueuedJob(submit_s=3600.0 * hour, cores=112, walltime_s=7200.0)
    ...     bank.observe(bank.submitted(job, bank.predict(job)), exactly(450.0))
    >>> 400 < bank.predict(job).wait_s < 500
    True
    """

    def __init__(
        self,
        estimator: str | Callable[[Surroundings], WaitEstimator] = "asa",
        *,
        seed: int = 0,
        machine_cores: int = 0,
        user: str | None = None,
        store: WaitStore | None = None,
    ) -> None:
        self._make: Callable[[Surroundings], WaitEstimator]
        if isinstance(estimator, str):
            self.name, self._make = estimator, plugins.load("asa.estimators", estimator)
        else:
            self.name, self._make = "", estimator
        self.seed, self.machine_cores, self.store = seed, machine_cores, store
        self.user = user or (OWN_USER if store is None else login_name())
        sample = self._make(Surroundings())
        self.sees_queue = bool(getattr(sample, "sees_queue", False))
        self.draws = bool(getattr(sample, "draws", False))
        self.learned = self.own = 0
        self._estimators: dict[str, WaitEstimator] = {}
        self._queue = FollowedQueue()
        self._keep: Callable[[], None] | None = None
        self._own: dict[tuple[str, int], OwnJob] = {}  # by system and ticket: jobs that wait or run
        self._outcomes: dict[str, deque[Outcome]] = {}
        self._published: WaitBank | None = None
        if store is not None:
            self.take(store.read(max_records()))

    def __repr__(self) -> str:
        kept = f", kept in {str(self.store.folder)!r}" if self.store is not None else ""
        systems = ", ".join(map(repr, self._estimators)) or "no system yet"
        return f"WaitBank({self.name!r}, {self.learned} waits learned of {systems}{kept})"

    def __iter__(self) -> Iterator[str]:
        """Iterate over the systems whose waits were learned."""
        return iter(sorted(self._estimators))

    def __getitem__(self, system: str) -> WaitEstimator:
        """Return the estimator of a system; make it at first use."""
        estimator = self._estimators.get(system)
        if estimator is None:
            digest = hashlib.sha256(f"{self.seed} {system}".encode()).digest()
            seed = int.from_bytes(digest[:4], "big")
            estimator = self._estimators[system] = self._make(Surroundings(seed, self.machine_cores))
        return estimator

    def adopt(
        self,
        system: str,
        estimator: WaitEstimator,
        learned: int = 0,
        *,
        store: WaitStore | None = None,
        queue: FollowedQueue | None = None,
        keep: Callable[[], None] | None = None,
    ) -> None:
        """Use an estimator that has already learned waits of a system.

        Parameters
        ----------
        system
            The system.
        estimator
            The estimator; it will be changed.
        learned
            Number of waits that it has learned.
        store
            The store from which it has learned them, at the position up to which it was read. New observations go
            there.
        queue
            The queue that the estimator has followed before, if it is to go on following it.
        keep
            Called by `close`: keeps the estimator for the next client.
        """
        if store is not None:
            self.store = store
            self.user = login_name() if self.user == OWN_USER else self.user
        self._estimators[system] = estimator
        self.learned += learned
        self._queue, self._keep = queue or FollowedQueue(), keep

    def close(self) -> None:
        """Keep what was learned for the next client, and close the store; nothing more may be learned."""
        if self._keep is not None:
            for own in list(self._own.values()):  # the next client reports them anew
                self.withdrawn(own)
            self._keep()
        if self.store is not None:
            self.store.close()

    @property
    def published(self) -> WaitBank:
        """The bank of the ASA paper: Algorithm 1, tuned, which learns only from this client's own waits."""
        if self._published is None:
            self._published = _OwnWaits(
                PUBLISHED, seed=self.seed, machine_cores=self.machine_cores, user=self.user, store=self.store
            )
        return self._published

    # ------------------------------------------------------------------ this client's own jobs

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now."""
        return self[job.system].predict(self._as_kept(job))

    def predict_many(
        self,
        cores: ArrayLike,
        walltime_s: ArrayLike,
        submit_s: ArrayLike = 0.0,
        *,
        system: str = "",
        partition: str = "",
    ) -> NDArray[np.float64]:
        """Predict the waits of many requests, each as if it alone were submitted now.

        Parameters
        ----------
        cores, walltime_s, submit_s
            Arrays of what the requests ask for, or one value for all of them.
        system, partition
            Where they would be sent.

        Returns
        -------
        NDArray[np.float64]
            Quantiles in seconds, with a field for each: ``p10``, ``p20``, ..., ``p90``, and ``wait_s``, the point
            prediction; of the shape of the requests.

        Raises
        ------
        InputError
            The arrays do not have the same shape, or a request cannot be.

        Examples
        --------
        >>> waits = WaitBank().predict_many(cores=[8, 64, 512], walltime_s=3600.0)
        >>> waits.shape, waits["p90"].shape, bool((waits["p10"] <= waits["p90"]).all())
        ((3,), (3,), True)
        """
        try:
            asked = np.broadcast_arrays(cores, walltime_s, submit_s)
        except ValueError as error:
            hint = "Give as many of each, or one value for all."
            raise InputError(f"the arrays of requests differ in shape: {error}", hint=hint) from error
        made = np.empty(asked[0].shape, dtype=[(name, np.float64) for name in (*_NAMES, "wait_s")])
        for place in np.ndindex(made.shape):
            of_one, walltime, since = (array[place] for array in asked)
            job = QueuedJob(float(since), int(of_one), float(walltime), system=system, partition=partition)
            forecast = self.predict(job)
            made[place] = (*forecast.quantiles_s, forecast.wait_s)
        return made

    def predict_together(self, jobs: Sequence[QueuedJob], samples: int = SAMPLES) -> JointForecast:
        """Predict the waits of several requests, one of which will be submitted, in the same sampled futures.

        Parameters
        ----------
        jobs
            The requests, which differ in cores, walltime, system, partition or time of submission. Futures of different
            systems are independent.
        samples
            Upper bound of the number of futures.

        Raises
        ------
        InputError
            There are none.

        Examples
        --------
        >>> bank = WaitBank()
        >>> joint = bank.predict_together([QueuedJob(0.0, cores, 3600.0) for cores in (8, 64)])
        >>> joint.best(run_s=[2400.0, 300.0])
        1
        """
        kept = [self._as_kept(job) for job in jobs]
        systems = _systems((job.system for job in jobs), "requests")
        if len(systems) == 1:
            return together(self[systems[0]], kept, samples)
        places = [[place for place, job in enumerate(jobs) if job.system == system] for system in systems]
        each = [
            together(self[system], [kept[place] for place in own], samples)
            for system, own in zip(systems, places, strict=True)
        ]
        return side_by_side(each, places)

    def predict_plans(self, plans: Sequence[Sequence[JobAhead]], samples: int = SAMPLES) -> list[NDArray[np.float64]]:
        """Sample when the jobs of several plans start, in the same sampled futures; see `PlanEstimator`.

        Parameters
        ----------
        plans
            The plans, one of which will be followed. In a plan with jobs on several systems, each waits as if the
            plan's jobs on other systems were not there.
        samples
            Upper bound of the number of futures.

        Raises
        ------
        InputError
            There are none.
        """
        systems = _systems((ahead.job.system for plan in plans for ahead in plan), "plans")
        kept = [[replace(ahead, job=self._as_kept(ahead.job)) for ahead in plan] for plan in plans]
        if len(systems) == 1:
            return plans_together(self[systems[0]], kept, samples)
        return plans_apart({system: self[system] for system in systems}, kept, samples)

    @contextmanager
    def instead_of(self, own: OwnJob) -> Iterator[Callable[[QueuedJob, QueuedJob], NDArray[np.float64]] | None]:
        """Within this context, predict as if a pending job of this client were withdrawn; see `ReplacingEstimator`.

        Yields None if the job is not pending, or the estimator does not see the queue.
        """
        estimator = self[own.job.system]
        if not isinstance(estimator, ReplacingEstimator):
            yield None
            return
        with estimator.instead_of(own.ticket) as sampled:
            if sampled is None:
                yield None
                return

            def both(one: QueuedJob, other: QueuedJob) -> NDArray[np.float64]:
                one, other = self._as_kept(one), self._as_kept(other)
                if other.system == own.job.system:
                    return sampled(one, other)
                here = sampled(one, one)[:, :1]
                there = together(self[other.system], [other], len(here)).likely_s
                return np.concatenate([here, there[np.arange(len(here)) % len(there)]], axis=1)

            yield both

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> OwnJob:
        """Record that a job of this client is pending from now on."""
        job = self._as_kept(job)
        own = OwnJob(job, forecast, self[job.system].submitted(job, forecast))
        self._own[job.system, own.ticket] = own
        return own

    def observe(
        self, own: OwnJob, observation: WaitObservation, *, token: str = "", word_s: float | None = None
    ) -> None:
        """Learn and store the observation of a wait of this client; with a token, only once.

        `word_s`: the batch system's own estimate of the wait at submission.
        """
        self[own.job.system].observe(own.ticket, observation)
        self.own += 1
        if self._keep is not None:
            self._queue.own.append(own.job)
        if observation.kind != "exact" or not self.sees_queue:
            self._own.pop((own.job.system, own.ticket), None)
        self._learned(own.job, own.forecast, observation)
        if self.store is not None:
            self.store.append(self._record(own.job, own.forecast, observation, token, word_s))

    def keep(
        self,
        waits: Iterable[tuple[QueuedJob, WaitForecast | None, WaitObservation, str]],
        words_s: Mapping[str, float] = MappingProxyType({}),
    ) -> int:
        """Store waits of this client, each with its token, unless they are stored; return how many were added.

        For use after a crash, when an observation may or may not have reached the store.
        `words_s`: by token, the batch system's own estimates.
        """
        if self.store is None:
            return 0
        return self.store.extend(
            self._record(job, forecast, wait, token, words_s.get(token)) for job, forecast, wait, token in waits
        )

    def withdrawn(self, own: OwnJob) -> None:
        """Forget a job of this client whose wait will never be known."""
        self._own.pop((own.job.system, own.ticket), None)
        self[own.job.system].withdrawn(own.ticket)

    def _record(
        self,
        job: QueuedJob,
        forecast: WaitForecast | None,
        observation: WaitObservation,
        token: str,
        word_s: float | None,
    ) -> WaitRecord:
        stated = forecast.quantiles_s if forecast is not None else None
        kept = self._as_kept(job)
        name = f"run-{token}" if token else ""
        return WaitRecord(kept, observation, forecast=stated, estimator=self.name, id=name, word_s=word_s)

    def ended(self, own: OwnJob, run_s: float) -> None:
        """Record that a started job of this client has ended."""
        self._own.pop((own.job.system, own.ticket), None)
        self[own.job.system].ended(own.ticket, run_s)

    # ------------------------------------------------------------------ data of all users

    def follow(self, events: Iterable[QueueEvent]) -> int:
        """Learn from a site's events of the jobs of all users; return how many waits became known.

        A job is skipped if its submission was not reported.
        """
        told = [event if event.job is None else event._replace(job=self._as_kept(event.job)) for event in events]
        known = self._queue.follow(told, self.__getitem__, sees_ends=self.sees_queue)
        self.learned += known
        return known

    def lose_sight(self) -> None:
        """Forget the pending jobs of the followed queue, but keep the learned waits; called when the queue changes."""
        if not self._queue.is_behind:
            self._queue.lose_sight(self.__getitem__)

    def learn(self, history: JobHistory, *, most: int | None = None) -> int:
        """Learn a history of jobs, in order of time; return how many waits were learned.

        Parameters
        ----------
        history
            The jobs.
        most
            Upper bound of the number of jobs; the latest are taken.
        """
        records = list(history_records(history, most=most))
        if self.store is not None:
            self.store.extend(records)
        self.take([replace(record, job=self._as_kept(record.job)) for record in records])
        return len(records)

    def refresh(self) -> int:
        """Learn the waits that other processes have stored since the last call; return how many."""
        news = self.store.news() if self.store is not None else []
        self.take(news)
        return len(news)

    def outcomes(self, system: str) -> Sequence[Outcome]:
        """Return a system's latest forecasts with the observed waits, the oldest first; at most 1000."""
        return tuple(self._outcomes.get(system, ()))

    def _as_kept(self, job: QueuedJob) -> QueuedJob:
        """Rename a job's user as in the store, so that stored jobs of this user are recognized."""
        if self.store is None or not job.user:
            return job
        return replace(job, user=user_in_store(job.user))

    def take(self, records: Sequence[WaitRecord], *, until_s: float = math.inf) -> None:
        """Learn records of a store, in order of time until `until_s`, besides those learned before."""
        systems: dict[str, list[WaitRecord]] = {}
        for record in records:
            systems.setdefault(record.job.system, []).append(record)
        for system, theirs in systems.items():
            jobs, observations = [r.job for r in theirs], [r.observation for r in theirs]
            runs = [r.run_s for r in theirs] if self.sees_queue else ()
            forecasts = replay(self[system], jobs, observations, until_s=until_s, run_s=runs)
            for record, forecast in zip(theirs, forecasts, strict=True):
                if record.known_s > until_s:
                    continue
                self._learned(record.job, forecast, record.observation)

    def _learned(self, job: QueuedJob, forecast: WaitForecast | None, observation: WaitObservation) -> None:
        self.learned += 1
        if forecast is not None and observation.kind == "exact":
            recent = self._outcomes.setdefault(job.system, deque(maxlen=_RECENT))
            recent.append(Outcome(job, forecast, observation.wait_s))


class _OwnWaits(WaitBank):
    """A bank to which the jobs of others tell nothing."""

    def follow(self, events: Iterable[QueueEvent]) -> int:
        """Learn nothing of the queue."""
        del events
        return 0

    def learn(self, history: JobHistory, *, most: int | None = None) -> int:
        """Learn nothing of a history."""
        del history, most
        return 0

    def take(self, records: Sequence[WaitRecord], *, until_s: float = math.inf) -> None:
        """Learn this client's own records."""
        own = user_in_store(self.user)
        super().take([record for record in records if record.job.user == own], until_s=until_s)


def login_name() -> str:
    """Return the login name of this process's user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user has no name on this host
        return OWN_USER


def max_records() -> int:
    """Return how many stored observations are learned at once: about a second's worth; fewer in plain Python."""
    return _MAX_RECORDS if find_spec("numba") is not None and not plainly.is_for_good() else _MAX_IF_SLOW


def history_records(history: JobHistory, *, most: int | None = None, system: str = "") -> Iterator[WaitRecord]:
    """Yield records of a history's jobs one by one, since very many would not fit into memory."""
    first = 0 if most is None else max(0, len(history) - most)
    place = system or history.system
    users, partitions = [*history.users, ""], [*history.partitions, ""]
    columns = (history.submit_s, history.wait_s, history.cores, history.walltime_s, history.started, history.run_s)
    for begin in range(first, len(history), _ROWS_AT_ONCE):
        part = slice(begin, begin + _ROWS_AT_ONCE)
        rows = zip(*(c[part].tolist() for c in (*columns, history.user, history.partition)), strict=True)
        for submit_s, wait_s, cores, walltime_s, started, run_s, user, partition in rows:
            yield WaitRecord(
                QueuedJob(submit_s, cores, walltime_s, users[user], place, partitions[partition]),
                WaitObservation(wait_s, "exact" if started else "at_least"),
                run_s=run_s,
                source=history.source,
            )


def replay(
    estimator: WaitEstimator,
    jobs: Sequence[QueuedJob],
    observations: Sequence[WaitObservation],
    *,
    until_s: float = math.inf,
    run_s: Sequence[float] = (),
) -> list[WaitForecast]:
    """Feed waits to an estimator in order of time; each becomes known only when it is over.

    Parameters
    ----------
    estimator
        The estimator; it learns the waits.
    jobs
        The jobs, in order of submission.
    observations
        The observation of each.
    until_s
        Later events are left out: jobs that are pending at this time stay pending.
    run_s
        How long each job ran, for estimators that see the queue; negative if not known.

    Returns
    -------
    list of WaitForecast
        The forecast for each job at its submission.
    """
    count = len(jobs)
    plainly.expect(count)
    submits = np.array([job.submit_s for job in jobs], dtype=np.float64)
    waits = np.array([observation.wait_s for observation in observations], dtype=np.float64)
    runs = np.array(run_s, dtype=np.float64)
    ran = np.flatnonzero((runs >= 0) & np.array([o.kind == "exact" for o in observations])) if len(runs) else _NONE
    times = np.concatenate([submits, submits + waits, (submits + waits)[ran] + runs[ran]])
    # of events at the same time, submissions come first, then starts, then ends
    kinds = np.repeat([0, 1, 2], [count, count, len(ran)])
    order = np.lexsort((kinds, times))
    forecasts: list[WaitForecast] = [WaitForecast((), 0.0)] * count
    tickets = [0] * count
    for place in order[times[order] <= until_s].tolist():
        if place < count:
            job = jobs[place]
            forecasts[place] = forecast = estimator.predict(job)
            tickets[place] = estimator.submitted(job, forecast)
        elif place < 2 * count:
            estimator.observe(tickets[place - count], observations[place - count])
        else:
            row = int(ran[place - 2 * count])
            estimator.ended(tickets[row], float(runs[row]))
    return forecasts


def _systems(systems: Iterable[str], what: str) -> list[str]:
    """Return the systems of all items, each once. `what`: the items' name in the message."""
    if found := list(dict.fromkeys(systems)):
        return found
    raise InputError(f"there are no {what} to judge", hint="Give one or more.")
