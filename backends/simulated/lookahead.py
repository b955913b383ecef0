"""Predicts a job's wait by simulating a copy of the visible queue.

What ``squeue`` shows of all users' jobs is enough to simulate the queue on the engine: running jobs and their latest
ends, pending jobs and their requests. It does not show the order in which the site starts jobs, when they will really
end, and which may not start though cores are free. So there are several *opinions*, one for each combination of guesses
at these; see `OPINIONS`. `QueueSimulation.opinions` returns them all, for other estimators. As an estimator itself it
learns the error of each, and follows those that were accurate lately.

Rules
-----
Order. First come first served; shortest request first; or by (wait / request)^3 x cores at the time of the prediction,
the highest first. Each with EASY backfilling. The predicted job is the last submitted one; no jobs come after it.

Run times. As requested; or as expected, which is the request times the share that was used by the last two jobs with
the same user, cores and request, else by the user's last two, else by the site's last jobs (after Tsafrir, Etsion and
Feitelson, 2007, who use the run times of the user's last two). A job that outlives this is expected to run for twice
its present time in all, up to its request. A job that exceeds its request is expected to run on for as long as it has
exceeded it, at least 10 s and at most 10 minutes; after an hour it is assumed to have ended unnoticed.

Jobs. All of the machine; or only those of the partition; or of these only jobs that are not kept back. A job counts as
kept back if there are enough idle cores for it now, and already were half a minute ago: then a limit, a dependency or a
reservation keeps it back, and it does not compete for the cores that seem free. If jobs of the predicted job's user are
kept back, the user has reached a limit: the job must then also wait in a queue of the user's own, on the cores that the
user has now.

Machine. It has the cores given in `Surroundings`; if not given, the largest number ever seen in use. A partition has
the largest number ever seen in use there. If more cores are in use than the machine has (logs have such days), nothing
starts until enough of them are free. A job that asks for more cores than that counts as asking for all.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from asa.core import plainly
from asa.core.compiled import passed
from asa.errors import InputError, StateError
from asa.waits import LEVELS, JobAhead, QueuedJob, Surroundings, WaitForecast, WaitObservation

from . import lookahead_kernel as k
from .cores.fast_kernel import BLOCK, SCALARS
from .futures import OF_ALIKE, OF_SITE, OF_USER, RunTimeRatios, plan_starts, starting_now, starts

OPINIONS: tuple[str, ...] = tuple(
    f"{jobs}_{order}_{run}"
    for jobs in ("machine", "partition", "unheld")
    for order in ("fcfs", "shortest", "wfp")
    for run in ("requested", "expected")
)
"""Names of the opinions: which jobs, in which order, with which run times."""

FACTS: dict[str, str] = {
    "cores": "what the job asks for",
    "asked_s": "what the job asks for",
    "expected_run_s": "how long it is expected to run",
    "free_cores": "of the machine",
    "busy_share": "of the machine; above 1 where more are in use than there are",
    "running_jobs": "of the machine",
    "running_work_asked": "core-seconds that the running jobs may still run",
    "running_work_expected": "core-seconds that they are expected to run on",
    "pending_jobs": "of the machine",
    "pending_cores": "what they ask for together",
    "pending_work_asked": "core-seconds that they ask for",
    "pending_work_expected": "core-seconds that they are expected to use",
    "pending_jobs_shorter": "pending jobs that ask for no more time than this job",
    "pending_work_shorter": "core-seconds that these are expected to use",
    "pending_jobs_narrower": "pending jobs that ask for no more cores",
    "pending_jobs_smaller": "pending jobs that ask for no more of either",
    "longest_wait_smaller_s": "how long the oldest of these has waited",
    "longest_wait_s": "how long the oldest pending job has waited",
    "pending_jobs_of_user": "of this job's user",
    "running_jobs_of_user": "of this job's user",
    "running_cores_of_user": "of this job's user",
    "pending_jobs_of_shape": "pending jobs of the same user, cores and request",
    "longest_wait_of_shape_s": "how long the oldest of these has waited",
    "pending_jobs_that_fit": "pending jobs that are no wider than what is free",
    "longest_wait_that_fits_s": "how long the oldest of these has waited",
    "capacity": "cores of the machine, as they are counted here",
    "partition_free_cores": "of what was ever in use at once in this job's partition",
    "partition_running_jobs": "of this job's partition",
    "partition_pending_jobs": "of this job's partition",
    "partition_pending_work": "core-seconds that these are expected to use",
    "held_jobs": "pending jobs that something else than a lack of cores keeps back",
    "user_is_limited": "1 if some of these are of this job's user",
}
"""Facts of the queue, in the order in which `QueueSimulation.facts` gives them."""

_UNNOTICED_AFTER_S = 3600.0
_MAX_UNNOTICED = 10_000
_NEVER_S = 1e300
_LOOK_IN_WAITS, _JOB_IN_WAITS = 0.4, 0.04  # work of a look, and for each job in the queue; see `plainly.count`
_LONGEST_S = float(k.HORIZON_S)
_NOBODY, _NEW = 0, 1  # numbers of users: no particular user; and users who have not submitted anything yet
_SITE_STEP = 0.01
# bounds of sampled futures: their least number, and beyond it the most jobs of all futures together
_MIN_FUTURES, _MAX_JOBS = 24, 20_000
_LEAST_SHARE = 1e-6

_FLOOR_S = 10.0  # waits below this count as equal when opinions are compared
_FLOOR, _CEILING = math.log10(_FLOOR_S), math.log10(k.HORIZON_S)
_DECAY = 0.98
_SHARPNESS = 10.0  # an opinion weighs exp(-sharpness x its mean error in decades)
_STEP = 0.05  # decades
_DECADES = (1.0, 2.0, 3.0, 4.0, 5.0)
_CLASSES_S = (3601.0, 4 * 3600.0 + 1)
_WIDE = 32  # jobs wider than one part in this many of the machine count as wide
_CLASSES = 2 * (len(_CLASSES_S) + 1)
_LEVELS = np.array(LEVELS)
_Jobs = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
_Visible = tuple[int, _Jobs, _Jobs]
_FORMAT = 2


class QueueSimulation:
    """Estimator that simulates the visible queue.

    Its prediction is the weighted median of the opinions. Each is shifted by its recent error, for its own magnitude
    and for jobs of about this width and request, and weighted by its accuracy after that; all in decades of seconds, as
    waits range over six of them. The quantiles are offsets from the prediction, which each observed wait adapts, so
    that each has its coverage.

    Notes
    -----
    A prediction takes 12 simulations, or 24 if a user is limited and there are partitions, each of a few hundred
    nanoseconds for each job that starts before this one. The answer is kept until something happens, so `predict`,
    `opinions`, `facts` and `submitted` for one job take the time of one. Memory and state grow with the number of
    users, and of combinations of user, cores and request, ever seen.

    Examples
    --------
    >>> from asa.waits import QueuedJob, exactly
    >>> queue = QueueSimulation(machine_cores=4)
    >>> queue.observe(queue.submitted(QueuedJob(0.0, 3, 600.0, "ada")), exactly(0.0))
    >>> waits = dict(zip(OPINIONS, queue.opinions(QueuedJob(60.0, 2, 600.0, "bob"))))
    >>> waits["machine_fcfs_requested"], queue.facts(QueuedJob(60.0, 2, 600.0, "bob"))[3]
    (540.0, 1.0)
    """

    sees_queue: ClassVar[bool] = True

    def __init__(self, machine_cores: int = 0) -> None:
        if machine_cores < 0:
            raise InputError(f"a machine of {machine_cores} cores cannot be", hint="Give 0 if the number is not known.")
        self.machine_cores = min(machine_cores, k.MAX_CORES)
        self._waiting, self._running = _Table(), _Table()
        self._beliefs: dict[int, tuple[int, float, NDArray[np.float64]]] = {}  # by ticket; see `_Advice.learn`
        self._unnoticed: dict[int, None] = {}  # tickets of jobs that are assumed to have ended
        self._tickets = 0
        self._in_use, self._max_in_use = 0.0, 0.0
        self._users, self._alike = _Habits(), _Habits()
        self._partitions: dict[str, int] = {}
        self._used: list[float] = []  # by partition, cores in use
        self._max_used: list[float] = []
        self._site_share = 1.0
        self._run_times = RunTimeRatios()
        self._advice = _Advice()
        self._events = 0
        self._answered: tuple[int, QueuedJob] | None = None
        self._opinions: NDArray[np.float64] = np.zeros(len(OPINIONS))
        self._facts: NDArray[np.float64] = np.zeros(len(FACTS))
        self._class = 0
        self._room = 0
        self._scratch: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"QueueSimulation(cores={self.machine_cores}, {self._waiting.count} wait, {self._running.count} run)"

    # ------------------------------------------------------------------ predictions

    def opinions(self, job: QueuedJob) -> tuple[float, ...]:
        """Return how long a job submitted now would wait, by each opinion.

        Returns: seconds, in the order of `OPINIONS`; at most ten years.
        """
        self._look(job)
        return tuple(self._opinions.tolist())

    def facts(self, job: QueuedJob) -> tuple[float, ...]:
        """Return facts of the queue that a job would meet now, in the order of `FACTS`; otherwise like `opinions`."""
        self._look(job)
        return tuple(self._facts.tolist())

    def predict(self, job: QueuedJob) -> WaitForecast:
        """Predict the wait of a job that is submitted now; see `WaitEstimator`."""
        self._look(job)
        return self._advice.forecast(self._class, _in_decades(self._opinions))

    def futures(self, jobs: Sequence[QueuedJob], samples: int, ahead: int | None = None) -> NDArray[np.float64]:
        """Sample the waits of the given requests; a row is one future, the same for all of them.

        Jobs start in order of submission, with EASY backfilling, and no jobs come later; each runs as long as similar
        jobs did recently. Jobs that are kept back are left out.

        `ahead`: how many pending jobs are before the requests in the queue; all if not given.

        Returns: seconds, shape (samples, requests); fewer samples if many jobs run and wait.
        """
        samples, now = self._futures(samples), min(job.submit_s for job in jobs)
        waits_s = np.zeros((samples, len(jobs)))
        place = np.array([self._place(job) for job in jobs])
        for partition in np.unique(place).tolist():
            mine = np.flatnonzero(place == partition).tolist()
            asked = np.array([(jobs[i].cores, jobs[i].walltime_s, jobs[i].submit_s - now) for i in mine]).T
            widest = int(min(asked[0].max(), k.MAX_CORES))
            size, running, waiting = self._visible(now, partition, widest, samples, ahead)
            waits_s[:, mine] = starts(size, running, waiting, (asked[0], asked[1], asked[2])) - asked[2]
        return waits_s

    def plan_futures(
        self,
        plans: Sequence[Sequence[JobAhead]],
        samples: int,
        later: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]] | None = None,
    ) -> list[NDArray[np.float64]]:
        """Sample when the jobs of each of several plans have their cores, all in the futures of `futures`.

        All jobs of a plan are submitted: each takes its position in the queue, and its cores, before the next.

        `later`: for each plan, the time after which nothing is known of the queue; see `plan_starts`.

        Returns: for each plan, seconds from now, shape (samples, jobs).
        """
        samples, now = self._futures(samples), min(ahead.now_s for plan in plans for ahead in plan)
        widest: dict[int, int] = {}
        for ahead in (ahead for plan in plans for ahead in plan):
            place = self._place(ahead.job)
            widest[place] = max(widest.get(place, 1), min(ahead.job.cores, k.MAX_CORES))
        seen_now = {place: self._visible(now, place, cores, samples, None) for place, cores in widest.items()}
        found = []
        for number, plan in enumerate(plans):
            fading = None if later is None else (later[number][0][:samples], later[number][1][:samples])
            places = [self._place(ahead.job) for ahead in plan]
            if len(set(places)) <= 1:
                found.append(plan_starts(*seen_now[places[0]], plan, fading) if plan else np.zeros((samples, 0)))
            else:
                found.append(_in_partitions(seen_now, places, plan, fading))
        return found

    def _futures(self, samples: int) -> int:
        """Return the number of sampled futures for a requested number."""
        return min(samples, max(_MIN_FUTURES, _MAX_JOBS // (self._waiting.count + self._running.count + 1)))

    def _place(self, job: QueuedJob) -> int:
        """Return the number of the partition whose queue a job meets; -1 for the queue of the whole machine."""
        return self._partitions.get(job.partition, -1) if len(self._partitions) > 1 else -1

    def _visible(self, now: float, partition: int, widest: int, samples: int, ahead: int | None) -> _Visible:
        """Return the size of the machine that a job meets, and its running and waiting jobs, as used by `starts`.

        `ahead`: how many pending jobs are before it in the queue; all if not given.
        """
        runs, waits = self._running.rows[:, ~self._unnoticed_by(now)], self._waiting.rows
        first = np.arange(self._waiting.count) < (self._waiting.count if ahead is None else ahead)
        size = self.machine_cores or int(min(self._max_in_use, k.MAX_CORES))
        if partition >= 0:
            here = waits[k.PARTITION] == partition
            runs, waits, first = runs[:, runs[k.PARTITION] == partition], waits[:, here], first[here]
            size = min(int(self._max_used[partition]), size or k.MAX_CORES)
        size = max(size, widest)
        elapsed = np.maximum(now - runs[k.SINCE], 0.0)
        held = self._held(now, runs, waits, elapsed, size)
        return size, *self._drawn_jobs(runs, (waits[:, ~held], first[~held]), elapsed, samples)

    @contextmanager
    def hidden(self, ticket: int) -> Iterator[int | None]:
        """Within this context, remove a pending job from the queue as if withdrawn; yield how many jobs are ahead.

        Yields None, and changes nothing, if no pending job has this ticket.
        """
        place = self._waiting.place(ticket)
        if place is None:
            yield None
            return
        whole, self._waiting = self._waiting, _Table.of(np.delete(self._waiting.rows, place, axis=1))
        self._answered = None
        try:
            yield place
        finally:
            self._waiting, self._answered = whole, None

    @staticmethod
    def _held(
        now: float, running: NDArray[np.float64], waiting: NDArray[np.float64], elapsed: NDArray[np.float64], size: int
    ) -> NDArray[np.bool_]:
        """Return the pending jobs held by more than a lack of cores: they would start now, and could have earlier."""
        due, held = _left_s(running, elapsed), np.zeros(waiting.shape[1], dtype=np.bool_)
        while not held.all():
            others = np.flatnonzero(~held)
            begin = starting_now(size, (running[k.CORES], due), (waiting[k.CORES][others], waiting[k.ASKED][others]))
            late = others[begin & (now - waiting[k.FITS_SINCE][others] > k.HELD_AFTER_S)]
            if not len(late):
                break
            held[late] = True
        return held

    def _drawn_jobs(
        self,
        running: NDArray[np.float64],
        queue: tuple[NDArray[np.float64], NDArray[np.bool_]],
        elapsed: NDArray[np.float64],
        samples: int,
    ) -> tuple[_Jobs, _Jobs]:
        """Sample run times; return the running jobs, and those that wait ahead of the requests.

        `queue`: pending jobs, and which of them are ahead: the others' run times are drawn as well, so that all
        draws are equal for every position of a request in the queue.
        """
        waiting, is_ahead = queue
        count, due = len(elapsed), _left_s(running, elapsed)
        both = np.concatenate([running, waiting], axis=1)
        run = self._drawn(both, np.concatenate([elapsed, np.zeros(waiting.shape[1])]), samples)
        over = elapsed >= running[k.ASKED]
        run[:, :count][:, over] = due[over]
        return (
            (running[k.CORES], due, run[:, :count]),
            (waiting[k.CORES][is_ahead], waiting[k.ASKED][is_ahead], run[:, count:][:, is_ahead]),
        )

    def _drawn(self, rows: NDArray[np.float64], elapsed: NDArray[np.float64], samples: int) -> NDArray[np.float64]:
        """Draw remaining run times."""
        kind, share = self._expected(rows)
        return self._run_times.draw(kind, share * rows[k.ASKED], rows[k.ASKED], elapsed, samples)

    def _expected(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the share of its request that each job is expected to use, and where that expectation comes from."""
        alike, user = (shares[rows[of].astype(np.intp)] for shares, of in self._shares())
        kind = np.where(alike >= 0, OF_ALIKE, np.where(user >= 0, OF_USER, OF_SITE))
        return kind, np.choose(kind, [alike, user, np.full(len(alike), self._site_share)])

    def _shares(self) -> tuple[tuple[NDArray[np.float64], int], tuple[NDArray[np.float64], int]]:
        return (self._alike.share, k.ALIKE), (self._users.share, k.USER)

    # ------------------------------------------------------------------ events

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None) -> int:  # noqa: ARG002 - of the port
        """Record a job that waits from now on. The forecast is not needed: the opinions on the job are kept."""
        self._look(job)
        ticket, self._tickets = self._tickets, self._tickets + 1
        decades = _in_decades(self._opinions)
        self._beliefs[ticket] = (self._class, self._advice.middle(self._class, decades), decades)
        self._number(job)
        self._waiting.add(self._row(job, ticket))
        self._pass_time(job.submit_s)
        return ticket

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn the outcome of a wait. Unless the wait was left unfinished (``at_least``), the job runs from now on."""
        if ticket not in self._beliefs:
            raise InputError(
                f"nobody waits with the ticket {ticket}", hint="Hand back what `submitted` returned, once."
            )
        self._advice.learn(*self._beliefs.pop(ticket), observation)
        row = self._waiting.take(ticket)
        if row is None:  # its end was reported first
            return
        now = float(row[k.SUBMIT]) + observation.wait_s
        if observation.kind != "at_least":
            row[k.SINCE] = now
            self._running.add(row)
            self._use(row, 1)
        self._pass_time(now)

    def ended(self, ticket: int, run_s: float) -> None:
        """Learn that a job ended after a run time, even if its start has not been reported yet.

        Raises `InputError`: no running or pending job has this ticket, or the time is invalid.
        """
        if not 0 <= run_s < math.inf:
            raise InputError(f"a run of {run_s} s cannot be", hint="Runs are finite and not negative.")
        if ticket in self._unnoticed:
            del self._unnoticed[ticket]
            return
        row = self._running.take(ticket)
        if row is not None:
            self._use(row, -1)
        else:
            row = self._waiting.take(ticket)
            if row is None:
                raise InputError(
                    f"nothing runs with the ticket {ticket}", hint="Hand back what `submitted` returned, once."
                )
            row[k.SINCE] = row[k.SUBMIT]
        share = min(max(run_s, 1.0) / float(row[k.ASKED]), 1.0)
        alike, user = int(row[k.ALIKE]), int(row[k.USER])
        of_alike, of_user = float(self._alike.share[alike]), float(self._users.share[user])
        if of_alike >= 0:
            self._run_times.learn(OF_ALIKE, share / max(of_alike, _LEAST_SHARE))
        elif of_user >= 0:
            self._run_times.learn(OF_USER, share / max(of_user, _LEAST_SHARE))
        else:
            self._run_times.learn(OF_SITE, share / max(self._site_share, _LEAST_SHARE))
        self._users.learn(int(row[k.USER]), share)
        self._alike.learn(int(row[k.ALIKE]), share)
        self._site_share += _SITE_STEP * (share - self._site_share)
        self._pass_time(float(row[k.SINCE]) + run_s)

    def withdrawn(self, ticket: int) -> None:
        """Forget a waiting or running job, and learn nothing from it."""
        self._beliefs.pop(ticket, None)
        self._unnoticed.pop(ticket, None)
        if self._waiting.take(ticket) is None and (row := self._running.take(ticket)) is not None:
            self._use(row, -1)
        self._events += 1

    def _use(self, row: NDArray[np.float64], sign: int) -> None:
        """Count cores taken into use, or returned."""
        cores, partition = sign * float(row[k.CORES]), int(row[k.PARTITION])
        self._in_use += cores
        self._max_in_use = max(self._max_in_use, self._in_use)
        self._used[partition] += cores
        self._max_used[partition] = max(self._max_used[partition], self._used[partition])

    def _pass_time(self, now: float) -> None:
        """Update the state at an event: forget jobs that must have ended, and note when pending jobs began to fit."""
        self._events += 1
        over = self._unnoticed_by(now)
        if over.any():
            gone, self._running = self._running.rows[:, over], _Table.of(self._running.rows[:, ~over])
            for row in gone.T:
                self._use(row, -1)
                self._unnoticed[int(row[k.TICKET])] = None
            while len(self._unnoticed) > _MAX_UNNOTICED:
                del self._unnoticed[next(iter(self._unnoticed))]
        waiting = self._waiting.rows
        free: Any = (self.machine_cores or self._max_in_use) - self._in_use
        if len(self._partitions) > 1:
            own = np.array(self._max_used) - np.array(self._used)
            free = np.minimum(free, own[waiting[k.PARTITION].astype(np.intp)])
        fits, since = waiting[k.CORES] <= free, waiting[k.FITS_SINCE]
        since[~fits] = _NEVER_S
        since[fits & (since == _NEVER_S)] = now

    def _unnoticed_by(self, now: float) -> NDArray[np.bool_]:
        """Return the running jobs that must have ended without a report."""
        running = self._running.rows
        over: NDArray[np.bool_] = now - running[k.SINCE] - running[k.ASKED] > _UNNOTICED_AFTER_S
        return over

    # ------------------------------------------------------------------ the simulation

    def _look(self, job: QueuedJob) -> None:
        """Prepare the opinions and facts for a job submitted now."""
        if self._answered == (self._events, job):
            return
        self._make_room()
        running, over = self._running, self._unnoticed_by(job.submit_s)
        if over.any():  # as if their ends had been noticed, but only the next event records that
            running = _Table.of(running.rows[:, ~over])
        row = self._row(job)
        cores, partition = int(row[k.CORES]), int(row[k.PARTITION])
        size = self.machine_cores or max(int(min(self._max_in_use, k.MAX_CORES)), cores)
        own_size = max(int(self._max_used[partition]) if partition >= 0 else 0, cores)
        # new arrays each time: arrays returned earlier must not change
        self._opinions, self._facts = np.zeros(len(OPINIONS)), np.zeros(len(FACTS))
        arrays = (row, self._waiting.flat, running.flat, self._users.share, self._alike.share)
        plainly.count(_LOOK_IN_WAITS + _JOB_IN_WAITS * (self._waiting.count + running.count))
        k.foresee(
            k.Visible(*map(passed, (*arrays, self._opinions, self._facts, *self._scratch))),
            float(job.submit_s),
            self._waiting.count,
            running.count,
            size,
            min(own_size, size),
            partition >= 0 and len(self._partitions) > 1,
            self._site_share,
        )
        self._class = 2 * bisect_right(_CLASSES_S, job.walltime_s) + (_WIDE * cores > size)
        self._answered = (self._events, job)

    def _row(self, job: QueuedJob, ticket: int = -1) -> NDArray[np.float64]:
        """Return a job as a row of a table; new values get a number that no job has yet."""
        user = self._users.number(job.user) if job.user else _NOBODY
        alike = self._alike.number(_likeness(job))
        partition = self._partitions.get(job.partition, -1)
        cores, asked_s = min(job.cores, k.MAX_CORES), min(job.walltime_s, _LONGEST_S)
        return np.array([ticket, job.submit_s, _NEVER_S, cores, asked_s, user, alike, partition], dtype=np.float64)

    def _number(self, job: QueuedJob) -> None:
        """Assign numbers to the new values of a job."""
        if job.user:
            self._users.add(job.user)
        self._alike.add(_likeness(job))
        if job.partition not in self._partitions:
            self._partitions[job.partition] = len(self._partitions)
            self._used.append(0.0)
            self._max_used.append(0.0)

    def _make_room(self) -> None:
        jobs = self._waiting.count + self._running.count + 1
        if jobs <= self._room:
            return
        self._room = 2 * jobs + 64
        kinds = dict.fromkeys(("jobs", "widths", "lasts", "release_widths"), np.int32) | {"key": np.float64}
        lengths = {"s": SCALARS, "nobody": 0}
        names = k.Visible._fields[k.Visible._fields.index("s") :]
        self._scratch = tuple(
            np.zeros(lengths.get(name, self._room + BLOCK), dtype=kinds.get(name, np.int64)) for name in names
        )

    # ------------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue, as JSON-ready data."""
        return {
            "format": _FORMAT,
            "machine_cores": self.machine_cores,
            "waiting": self._waiting.rows.T.tolist(),
            "running": self._running.rows.T.tolist(),
            "beliefs": [[ticket, kind, middle, *x.tolist()] for ticket, (kind, middle, x) in self._beliefs.items()],
            "unnoticed": list(self._unnoticed),
            "tickets": self._tickets,
            "most_in_use": self._max_in_use,
            "users": self._users.state(),
            "shapes": self._alike.state(),
            "partitions": list(self._partitions),
            "most_used": list(self._max_used),
            "site_share": self._site_share,
            "run_times": self._run_times.state(),
            "advice": self._advice.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QueueSimulation:
        """Make an estimator that continues exactly from another's `state`."""
        try:
            if state["format"] != _FORMAT:
                raise StateError(f"a state of format {state['format']!r}", hint="Another version of asa wrote it.")
            made = cls(int(state["machine_cores"]))
            made._partitions = {str(name): i for i, name in enumerate(state["partitions"])}
            made._used = [0.0] * len(made._partitions)
            made._max_used = _numbers(state["most_used"], (len(made._partitions),)).tolist()
            made._users, made._alike = _Habits.from_state(state["users"]), _Habits.from_state(state["shapes"])
            bounds = (len(made._users), len(made._alike), len(made._partitions))
            made._waiting, made._running = (_Table.from_state(state[name], bounds) for name in ("waiting", "running"))
            for row in made._running.rows.T:
                made._use(row, 1)
            made._max_in_use, made._site_share = _numbers([state["most_in_use"], state["site_share"]], (2,)).tolist()
            for ticket, kind, *decades in state["beliefs"]:
                middle, *opinions = _numbers(decades, (1 + len(OPINIONS),))
                made._beliefs[int(ticket)] = (range(_CLASSES)[kind], float(middle), np.array(opinions))
            made._unnoticed = dict.fromkeys(int(ticket) for ticket in state["unnoticed"])
            made._tickets = int(state["tickets"])
            made._run_times = RunTimeRatios.from_state(state["run_times"])
            made._advice = _Advice.from_state(state["advice"])
            tickets = {int(ticket) for ticket in made._waiting.rows[k.TICKET]}
            if not tickets <= set(made._beliefs) or max(made._beliefs, default=-1) >= made._tickets:
                raise StateError("its tickets do not fit together", hint="The file was changed.")
        except InputError as error:
            raise StateError(error.message, hint="The file was changed or cut off.") from error
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise StateError(f"no state of a queue simulation: {error}", hint="Forget it and learn anew.") from error
        return made


def queue_simulation(surroundings: Surroundings) -> QueueSimulation:
    """Simulate the visible queue, with all users' jobs as squeue shows them; it learns nothing.

    Parameters
    ----------
    surroundings
        Only `machine_cores` is used; it draws nothing, so it needs no seed.

    Examples
    --------
    >>> queue_simulation(Surroundings(machine_cores=128))
    QueueSimulation(cores=128, 0 wait, 0 run)
    """
    return QueueSimulation(surroundings.machine_cores)


def _in_partitions(
    visible: Mapping[int, _Visible],
    places: Sequence[int],
    plan: Sequence[JobAhead],
    later: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> NDArray[np.float64]:
    """Sample the starts of a plan's jobs that meet different queues: one job after another, each in its own queue."""
    starts_s: list[NDArray[np.float64]] = []
    ends_s: list[NDArray[np.float64]] = []
    nothing = np.zeros(len(next(iter(visible.values()))[1][2]))
    for index, (place, ahead) in enumerate(zip(places, plan, strict=True)):
        mine = [i for i in range(index + 1) if places[i] == place]
        among = {i: number for number, i in enumerate(mine)}
        here = [
            replace(
                plan[i],
                after=tuple(among[p] for p in plan[i].after if p in among),
                ready_s=np.maximum.reduce(
                    [_row(plan[i].ready_s, nothing), *(ends_s[p] for p in plan[i].after if p not in among)]
                ),
            )
            for i in mine
        ]
        fading = None if later is None else (later[0], later[1][:, mine])
        start_s = plan_starts(*visible[place], here, fading)[:, -1]
        before = [_row(ahead.ready_s, nothing), *(ends_s[p] for p in ahead.after)]
        starts_s.append(start_s)
        ends_s.append(np.maximum.reduce([start_s, *before]) + _row(ahead.run_s, nothing))
    return np.stack(starts_s, axis=1)


def _row(values: NDArray[np.float64] | None, nothing: NDArray[np.float64]) -> NDArray[np.float64]:
    return nothing if values is None else values[np.arange(len(nothing)) % len(values)]


def _left_s(running: NDArray[np.float64], elapsed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the remaining seconds of running jobs if they use their requests."""
    pairs = zip(running[k.ASKED].tolist(), elapsed.tolist(), strict=True)
    return np.array([k.remaining_s(asked_s, elapsed_s, 1.0) for asked_s, elapsed_s in pairs], dtype=np.float64)


def _numbers(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    made = np.array(values, dtype=np.float64)
    if made.shape != shape or not np.all(np.isfinite(made)):
        raise StateError("numbers that do not fit", hint="The file was changed or cut off.")
    return made


class _Table:
    """Jobs in order of entry, as columns for the kernel."""

    def __init__(self) -> None:
        self.count = 0
        self._make(64)

    @classmethod
    def of(cls, columns: NDArray[np.float64]) -> _Table:
        """Make a table of these jobs, one in each column."""
        made = cls()
        for row in columns.T:
            made.add(row)
        return made

    @classmethod
    def from_state(cls, rows: Sequence[Sequence[float]], bounds: tuple[int, ...]) -> _Table:
        """Make a table from its rows, whose users, shapes and partitions are below these bounds."""
        values = _numbers(rows, (len(rows), k.FIELDS)) if rows else np.empty((0, k.FIELDS))
        places = values[:, k.USER :]
        if np.any(places < 0) or np.any(places >= bounds) or np.any(values[:, [k.CORES, k.ASKED]] <= 0):
            raise StateError("a job that cannot be", hint="The file was changed.")
        return cls.of(values.T)

    def _make(self, room: int) -> None:
        self._room = room
        self.flat: NDArray[np.float64] = np.zeros(room * k.FIELDS)
        self._columns = self.flat.reshape(k.FIELDS, room)

    @property
    def rows(self) -> NDArray[np.float64]:
        """The used part, one job in each column; a view."""
        return self._columns[:, : self.count]

    def add(self, row: NDArray[np.float64]) -> None:
        if self.count == self._room:
            old = self._columns
            self._make(2 * self._room)
            self._columns[:, : self.count] = old
        self._columns[:, self.count] = row
        self.count += 1

    def place(self, ticket: int) -> int | None:
        """Return the position of a job; None if it is absent."""
        found = np.flatnonzero(self._columns[k.TICKET, : self.count] == ticket)
        return int(found[0]) if len(found) else None

    def take(self, ticket: int) -> NDArray[np.float64] | None:
        """Remove a job and return it; None if it is absent."""
        place = self.place(ticket)
        if place is None:
            return None
        row = self._columns[:, place].copy()
        self._columns[:, place : self.count - 1] = self._columns[:, place + 1 : self.count]
        self.count -= 1
        return row


class _Habits:
    """Numbers of users, or of shapes, and the share of their requests used by their last two jobs."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._last: NDArray[np.float64] = np.full(64, -1.0)
        self.share: NDArray[np.float64] = np.full(64, -1.0)

    def __len__(self) -> int:
        return len(self._numbers) + _NEW + 1

    def number(self, key: Any) -> int:
        return self._numbers.get(key, _NEW)

    def add(self, key: Any) -> None:
        if key in self._numbers:
            return
        self._numbers[key] = len(self)
        if len(self) > len(self.share):
            self._last, self.share = (np.append(x, np.full_like(x, -1.0)) for x in (self._last, self.share))

    def learn(self, number: int, share: float) -> None:
        if number <= _NEW:  # no particular user
            return
        last = float(self._last[number])
        self.share[number] = share if last < 0 else (last + share) / 2
        self._last[number] = share

    def state(self) -> list[list[Any]]:
        return [[key, float(self._last[i]), float(self.share[i])] for key, i in self._numbers.items()]

    @classmethod
    def from_state(cls, state: Sequence[Sequence[Any]]) -> _Habits:
        made = cls()
        for key, last, share in state:
            made.add(key if isinstance(key, str) else tuple(key))
            made._last[len(made) - 1], made.share[len(made) - 1] = _numbers([last, share], (2,))
        return made


class _Advice:
    """Learns the errors of the opinions, their weights, and the spread of the forecast.

    All in decades of seconds. It learns separately for each class of jobs (short, medium and long requests, narrow and
    wide), whose waits differ when idle cores are scarce; and errors separately for each decade of the predicted value.
    """

    _BINS = len(_DECADES) + 1

    def __init__(self) -> None:
        opinions = len(OPINIONS)
        self._each = np.arange(opinions)
        self._shift: NDArray[np.float64] = np.zeros((_CLASSES, self._BINS, opinions))
        self._error: NDArray[np.float64] = np.zeros((_CLASSES, opinions))
        self._spread: NDArray[np.float64] = np.tile(2 * _LEVELS - 1, (_CLASSES, self._BINS, 1))

    def middle(self, kind: int, decades: NDArray[np.float64]) -> float:
        """Weighted median of the opinions on a job of a class."""
        shifted, error = self._shifted(kind, decades)[1], self._error[kind]
        order = np.argsort(shifted, kind="stable")
        weight = np.cumsum(np.exp(-_SHARPNESS * (error - error.min()))[order])
        return float(shifted[order[np.searchsorted(weight, weight[-1] / 2)]])

    def forecast(self, kind: int, decades: NDArray[np.float64]) -> WaitForecast:
        """Make a forecast from this median."""
        middle = self.middle(kind, decades)
        quantiles_s = 10.0 ** self._quantiles(kind, middle)
        return WaitForecast(tuple(quantiles_s.tolist()), 10.0**middle)

    def learn(self, kind: int, middle: float, decades: NDArray[np.float64], observation: WaitObservation) -> None:
        """Move all values a step towards the observed wait; for a bound, only those that violate it.

        `middle`: the value of `middle` at submission; the present one would be more accurate, with a narrower spread.
        """
        truth = math.log10(max(observation.wait_s, 1.0))
        bins, shifted = self._shifted(kind, decades)
        off = max(truth, _FLOOR) - shifted
        moved = np.where(self._quantiles(kind, middle) < truth, _LEVELS, _LEVELS - 1.0)
        if observation.kind == "at_least":
            off, moved = np.maximum(off, 0.0), np.maximum(moved, 0.0)
        elif observation.kind == "at_most":
            off, moved = np.minimum(off, 0.0), np.minimum(moved, 0.0)
        self._error[kind] += (1.0 - _DECAY) * (np.abs(off) - self._error[kind])
        self._shift[kind, bins, self._each] += _STEP * np.sign(off)
        spread = self._spread[kind, bisect_right(_DECADES, middle)]
        spread += _STEP * moved
        spread.sort()

    def state(self) -> dict[str, Any]:
        return {"shift": self._shift.tolist(), "error": self._error.tolist(), "spread": self._spread.tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> _Advice:
        made = cls()
        for name in ("shift", "error", "spread"):
            setattr(made, f"_{name}", _numbers(state[name], getattr(made, f"_{name}").shape))
        made._spread.sort()
        return made

    def _shifted(self, kind: int, decades: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        bins = np.searchsorted(_DECADES, decades, side="right")
        return bins, np.clip(decades + self._shift[kind, bins, self._each], _FLOOR, _CEILING)

    def _quantiles(self, kind: int, middle: float) -> NDArray[np.float64]:
        made: NDArray[np.float64] = middle + self._spread[kind, bisect_right(_DECADES, middle)]
        return np.clip(made, 0.0, _CEILING)


def _likeness(job: QueuedJob) -> tuple[str, int, float]:
    return job.user, min(job.cores, k.MAX_CORES), min(job.walltime_s, _LONGEST_S)


def _in_decades(waits_s: NDArray[np.float64]) -> NDArray[np.float64]:
    decades: NDArray[np.float64] = np.log10(np.maximum(waits_s, _FLOOR_S))
    return decades
