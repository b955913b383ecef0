"""The machine and its queue for every discipline: any order, any backfilling, several pools, outages, preemption."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.core.compiled import seen
from asa.errors import BackendError, InputError

from ..cluster import Load
from ..policies import (
    F1,
    Backfill,
    Conservative,
    Easy,
    Fcfs,
    Multifactor,
    NoBackfill,
    Order,
    OrderedScheduler,
    PassScheduler,
    Periodic,
    Policy,
    Sjf,
    Wfp,
)
from ..table import NEVER, UNSTARTED
from . import general_kernel as kernels
from . import general_state as k
from . import profile_kernel as profile
from .base import Fate, News
from .fast_kernel import BLOCK
from .heap import BITS, MASK, push

_MAX_JOBS = MASK // 2
_FROM_LOAD = ("submit", "run", "request", "cores", "user", "qos", "partition")
_OF_THE_RUN = ("arrival", "start", "end", "due", "expected", "plan", "ended_by", "requeues", "score", "bookings")
# initial values of columns in `_OF_THE_RUN`; 0 for all others
_BEFORE_SUBMISSION = {"start": UNSTARTED, "end": UNSTARTED, "plan": UNSTARTED}
_FEW_USERS = 4  # of many users, nearly each job follows one of another user
_SMALL = ("free", "capacity", "usage", "rate", "rank", "share", "shared_at", "blocked", "room", "over", "news", "kinds")


@dataclass(frozen=True, slots=True)
class KeptMoment:
    """State of a replay at a moment that later moments no longer have; see `GeneralCore.kept`."""

    scalars: NDArray[np.int64]
    small: Mapping[str, NDArray[Any]]
    lists: Mapping[str, NDArray[Any]]
    there: NDArray[np.int64]  # queued and running jobs
    of_these: Mapping[str, NDArray[Any]]  # their columns
    policy: Policy | PassScheduler


class GeneralCore:
    """Queue, running jobs and clock; see `Core` for what each method does.

    Notes
    -----
    A fork copies the columns that change, O(rows), and shares the others until a client submits a job, which gets a row
    after the background's.
    """

    _SPARE = 64

    def __init__(
        self, load: Load, policy: Policy | PassScheduler, *, now: int = 0, client_user: int | None = None
    ) -> None:
        """Make a core; `client_user`: number of the client among the load's users, if it is one of them."""
        if not isinstance(policy, Policy | PassScheduler):
            raise InputError(f"{policy!r} is no scheduler", hint="Give a Policy, or an object that can `schedule`.")
        table, cluster = load.table, load.cluster
        rows = len(table)
        if rows > _MAX_JOBS:
            raise InputError(f"{rows} jobs are too many", hint=f"Cut the log to {_MAX_JOBS}.")
        self.table = table
        self.load = load
        self.capacity = cluster.cores
        self.policy = policy
        self.ended: list[int] = []
        self.news: list[News] = []
        self._clients = 0
        self.client_user = client_user
        self._shared = False  # whether constant columns are shared with a fork
        self._room = 0
        self._s = np.zeros(k.SCALARS, dtype=np.int64)
        self._s[[k.NOW, k.USED_AT, k.ROWS]] = now, now, rows
        self._s[[k.WAKE, k.TICK]] = NEVER
        self._s[k.FIRST] = table.submit[0] if rows else now
        self._s[k.SIZE_POOL] = -1
        self._s[k.POOLS] = len(cluster.pools)
        capacity = np.array(list(cluster.pools.values()), dtype=np.int64)
        users = int(load.users.max()) + 1 if rows else 0
        self._s[k.USERS] = users
        of_load = (table.submit, table.run, table.request, table.cores, load.users, load.qos, load.partitions)
        self._sources = cluster.sources
        self._max_running = min(rows, cluster.cores)  # upper bound of background jobs running at the same time
        self._arrays: dict[str, NDArray[Any]] = {
            **dict(zip(_FROM_LOAD, of_load, strict=True)),
            **{name: np.zeros(0, dtype=np.float64 if name == "score" else np.int64) for name in _OF_THE_RUN},
            "demand": load.demand.reshape(-1),
            **{name: np.zeros(0, dtype=np.int64) for name in ("queue", "running", "ends", "points")},
            **{name: np.zeros(0, dtype=np.int32) for name in ("widths", "lasts", "like")},
            "free": capacity.copy(),
            "capacity": capacity.copy(),
            "usage": np.zeros(users + 1),  # the last entry is the client's
            "rate": np.zeros(users + 1),
            "rank": np.arange(users + 1),
            "share": np.ones(users + 1),
            "shared_at": np.full(users + 1, -NEVER),
            "room": np.zeros(len(capacity), dtype=np.int64),
            "blocked": np.zeros(max(len(cluster.partitions), 1), dtype=np.int64),
            "over": np.zeros(0, dtype=np.int64),
            "news": np.zeros(0, dtype=np.int64),
            "kinds": np.zeros(0, dtype=np.int64),
            **_outages(load),
            **self._set_policy(policy, len(cluster.partitions)),
        }
        self._each = {"demand": len(capacity), "bookings": 0}  # numbers that a job has of these
        if self._s[k.BACKFILL] == k.CONSERVATIVE:
            self._each["bookings"] = k.BOOKING
        if self._s[k.BACKFILL] in (k.CONSERVATIVE, k.PERIODIC):
            self._arrays["kinds"] = np.zeros(len(capacity) * k.MAGNITUDES * profile.ROW, dtype=np.int64)
        self._grow()
        for name in ("start", "end", "plan"):
            self._arrays[name][:rows] = UNSTARTED

    def _set_policy(self, policy: Policy | PassScheduler, partitions: int) -> dict[str, NDArray[Any]]:
        """Translate a policy to numbers for the kernels."""
        s = self._s
        self._weights = np.zeros(k.WEIGHTS + 1)
        self._weights[[k.MAX_AGE, k.HALF_LIFE]] = 1.0
        self._weights[k.WEIGHTS] = max(self.load.cluster.cores, 1)
        self._factors = np.zeros(max(partitions, 1))
        s[k.REBUILD] = s[k.REQUEUE] = 1
        if isinstance(policy, Policy):
            self._set_order(policy.order)
            self._set_backfill(policy.backfill)
            s[k.PREEMPT] = {"off": k.OFF, "requeue": k.BACK, "cancel": k.CANCEL}[policy.preempt]
            s[k.REQUEUE] = policy.requeue
        else:
            s[k.BACKFILL] = k.OUTSIDE
            if isinstance(policy, OrderedScheduler):
                self._set_order(policy.base_order)
        return {"weights": self._weights, "partition_factor": self._factors}

    def _set_order(self, order: Order) -> None:
        s, weights, factors = self._s, self._weights, self._factors
        match order:
            case Fcfs():
                s[k.ORDER] = k.FCFS
            case Sjf():
                s[k.ORDER] = k.SJF
            case Wfp(pool):
                s[k.ORDER] = k.WFP
                if pool is not None and not 0 <= pool < len(self.load.cluster.pools):
                    raise InputError(f"there is no pool {pool}", where="WFP", hint="Give the place of one.")
                s[k.SIZE_POOL] = -1 if pool is None else pool
            case F1(number):
                s[k.ORDER] = (k.F1, k.F2, k.F3, k.F4)[number - 1]
            case Multifactor() as m:
                s[k.ORDER] = k.MULTIFACTOR
                weights[[k.AGE, k.MAX_AGE, k.SIZE, k.FAVOR_SMALL]] = m.age, m.max_age_s, m.size, m.favor_small
                weights[[k.FAIR_SHARE, k.HALF_LIFE]] = m.fair_share, m.half_life_s
                s[[k.TREE, k.SHARERS, k.PERIOD, k.RECKONED, k.SCORED]] = m.fair_tree, m.users, m.period_s, -1, -1
                weights[[k.PARTITION, k.QOS]] = m.partition, m.qos
                weights[k.HIGHEST_QOS] = self.load.qos.max(initial=0)
                by_age = m.age >= 0 and not (m.size or m.partition or m.qos)  # in which order a user's jobs always are
                s[k.BY_USER] = by_age and s[k.USERS] <= _FEW_USERS
                given = m.partition_factors[: len(factors)]
                factors[: len(given)] = given
            case _:
                s[k.ORDER] = k.CUSTOM

    def _set_backfill(self, backfill: Backfill) -> None:
        s = self._s
        match backfill:
            case NoBackfill():
                s[k.BACKFILL] = k.NONE
            case Easy():
                s[k.BACKFILL] = k.EASY
            case Conservative():
                s[k.BACKFILL] = k.CONSERVATIVE
            case Periodic() as p:
                s[k.BACKFILL] = k.PERIODIC
                s[[k.INTERVAL, k.DEPTH, k.WINDOW, k.RESOLUTION]] = p.interval_s, p.depth, p.window_s, p.resolution_s

    # ------------------------------------------------------------------ copies and growth

    def fork(self) -> GeneralCore:
        fork = copy.copy(self)
        fork.ended, fork.news = list(self.ended), list(self.news)
        fork.policy = self._own_policy(self.policy)
        fork._s = self._s.copy()
        self._shared = fork._shared = True
        fork._arrays = self._arrays | self._copied(_OF_THE_RUN) | self._listed(self._in_use())
        fork._arrays |= {name: self._arrays[name].copy() for name in _SMALL}
        fork._show()
        return fork

    def _own_policy(self, policy: Policy | PassScheduler) -> Policy | PassScheduler:
        """Copy a policy that may have state."""
        own = not isinstance(policy, Policy) or self._s[k.ORDER] == k.CUSTOM
        return copy.deepcopy(policy) if own else policy

    def kept(self) -> KeptMoment | None:
        """Keep this moment for `return_to`; None if a client has jobs in this replay, or a scheduler changes demands.

        Takes O(queued and running jobs), while a fork takes O(rows). Enough in a replay without clients: ended jobs do
        not change again, and jobs not submitted yet have not changed.
        """
        if self._clients or self.ended or self.news or not isinstance(self.policy, Policy):
            return None
        lists = {name: used.copy() for name, used in self._in_use().items()}
        there = np.concatenate([lists["queue"], lists["running"]])
        return KeptMoment(
            self._s.copy(),
            {name: self._arrays[name].copy() for name in _SMALL},
            lists,
            there,
            {name: self._of_jobs(name)[there] for name in _OF_THE_RUN},
            self._own_policy(self.policy),
        )

    def return_to(self, moment: KeptMoment) -> None:
        """Return to an earlier moment of this replay. It writes only rows of jobs that have changed since."""
        submitted_since = slice(int(moment.scalars[k.NEXT]), int(self._s[k.NEXT]))
        self.policy = self._own_policy(moment.policy)
        self._s = moment.scalars.copy()
        self._arrays = self._arrays | self._listed(moment.lists)
        self._arrays |= {name: array.copy() for name, array in moment.small.items()}
        for name, kept in moment.of_these.items():
            column = self._of_jobs(name)
            column[submitted_since] = _BEFORE_SUBMISSION.get(name, 0)
            column[moment.there] = kept
        self._show()

    def _of_jobs(self, name: str) -> NDArray[Any]:
        """Return a column with a row for each job."""
        return self._arrays[name].reshape(len(self._arrays["submit"]), -1)

    def _grow(self) -> None:
        """Make room for more jobs of clients."""
        more = max(self._SPARE, self._room)
        self._room += more
        self._arrays |= self._copied((*_FROM_LOAD, "demand", *_OF_THE_RUN), more)
        self._arrays |= self._listed(self._in_use())
        self._arrays["over"] = np.zeros(self._room, dtype=np.int64)
        self._arrays["news"] = np.zeros(8 * self._room, dtype=np.int64)
        self._shared = False
        self._show()

    def _own(self) -> None:
        """Copy shared columns before writing a client's job into them."""
        if self._shared:
            self._arrays |= self._copied((*_FROM_LOAD, "demand"))
            self._shared = False
            self._show()

    def _copied(self, names: Iterable[str], more: int = 0) -> dict[str, NDArray[Any]]:
        """Copy columns, with room for `more` further jobs."""
        jobs = len(self._arrays["submit"])
        copies: dict[str, NDArray[Any]] = {}
        for name in names:
            ours = self._arrays[name]
            copies[name] = np.zeros((jobs + more) * self._each.get(name, 1), dtype=ours.dtype)
            copies[name][: len(ours)] = ours
        return copies

    def _in_use(self) -> dict[str, NDArray[Any]]:
        """Return the used parts of the lists."""
        s = self._s
        used = {"queue": s[k.QUEUED], "running": s[k.RUNNING], "ends": s[k.ENDS], "points": s[k.POINTS]}
        used |= dict.fromkeys(("widths", "lasts", "like"), s[k.FILLED])
        return {name: self._arrays[name][: int(length)] for name, length in used.items()}

    def _listed(self, lists: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Copy lists; only the used part of their room is written, and takes memory, as nothing depends on the rest."""
        jobs, pools = len(self._arrays["submit"]), len(self._arrays["free"])
        sizes = {
            "queue": jobs,
            "widths": jobs + BLOCK,
            "lasts": jobs + BLOCK,
            "like": jobs + BLOCK,
            "running": jobs,
            "ends": max(len(self._arrays["ends"]), self._max_running + self._SPARE),
            "points": (4 * jobs + 256) * (profile.IDLE + pools),
        }
        copies: dict[str, NDArray[Any]] = {}
        for name, size in sizes.items():
            copies[name] = np.empty(size, dtype=lists[name].dtype)
            copies[name][: len(lists[name])] = lists[name]
        return copies

    def _show(self) -> None:
        """Make the views for the kernels, and those for an external scheduler."""
        views = {name: seen(array) for name, array in self._arrays.items()}
        mine = {name: views.pop(name) for name in ("points", "bookings", "kinds")}
        of_profile = k.Profile(**mine, **{name: views[name] for name in ("plan", "demand", "request")})
        self._a = k.Arrays(**views, profile=of_profile)
        self._seen = seen(self._s)
        self._view: _View | None = None

    @property
    def view(self) -> _View:
        """The view of an external scheduler; made on first use, because it refers back to this object."""
        if self._view is None:
            self._view = _View(self)
        return self._view

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_a", "_seen", "_view")}
        return state | {"_arrays": self._arrays | self._in_use()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._arrays |= self._listed(self._in_use())
        self._show()

    # ------------------------------------------------------------------ views

    @property
    def now(self) -> int:
        return int(self._s[k.NOW])

    @now.setter
    def now(self, value: int) -> None:
        self._s[k.NOW] = value

    @property
    def start(self) -> NDArray[np.int64]:
        return self._arrays["start"][: len(self.table)]

    @property
    def end(self) -> NDArray[np.int64]:
        """End of each background job, -1 until it has ended."""
        return self._arrays["end"][: len(self.table)]

    @property
    def ended_by(self) -> NDArray[np.int64]:
        """Cause of each background job's forced end: a `Fate`, 0 for none."""
        return self._arrays["ended_by"][: len(self.table)]

    @property
    def requeues(self) -> NDArray[np.int64]:
        """Number of times that each background job was requeued."""
        return self._arrays["requeues"][: len(self.table)]

    @property
    def free(self) -> int:
        return int(sum(max(int(self._arrays["free"][pool]), 0) for pool in {pools[0] for pools in self._sources}))

    @property
    def queued(self) -> NDArray[np.int64]:
        queue: NDArray[np.int64] = self._arrays["queue"][: self._s[k.QUEUED]].copy()
        return queue

    @property
    def exhausted(self) -> bool:
        return int(self._s[k.NEXT]) >= len(self.table)

    # ------------------------------------------------------------------ the loop

    def run(self, until: int) -> None:
        self._go(until, k.RUN)

    def begin_second(self, now: int) -> None:
        self._go(now, k.BEGIN)

    def end_second(self) -> None:
        self._go(self.now, k.REST)

    def schedule(self) -> None:
        if self._s[k.STIRRED]:
            self._go(self.now, k.REST)

    def _go(self, until: int, phase: int) -> None:
        s = self._s
        while kernels.run_events(self._seen, self._a, until, phase) == k.WANTED:
            self._wanted()
            phase = k.RUN
            if s[k.NEWS]:
                break
        if s[k.ENDED]:
            self.ended += self._arrays["over"][: s[k.ENDED]].tolist()
            s[k.ENDED] = 0
        if s[k.NEWS]:
            for news in self._arrays["news"][: s[k.NEWS]].tolist():
                self.news.append(News(news >> 3, Fate(news >> 1 & 3), bool(news & 1)))
            s[k.NEWS] = 0

    def _wanted(self) -> None:
        """Do the part of a pass that the kernel leaves to Python."""
        s = self._s
        if isinstance(self.policy, Policy):
            self._score_by(self.policy.order)
            while kernels.schedule(self._seen, self._a, int(s[k.BACKFILL])):
                if s[k.NEWS] > len(self._arrays["news"]) // 2:
                    break
                self._score_by(self.policy.order)
        else:
            s[k.WAKE] = NEVER
            if s[k.ORDER] == k.CUSTOM and isinstance(self.policy, OrderedScheduler):
                self._score_by(self.policy.base_order)
            kernels.in_order(self._seen, self._a)
            self.policy.schedule(self.view)
            kernels.drop_started(self._seen, self._a)
            s[k.STIRRED] = 0

    def _score_by(self, order: Any) -> None:
        """Score the queue by a custom order, which sees it in order of age."""
        kernels.in_order_of_age(self._seen, self._a)
        self._arrays["score"][self.view.queue] = self._scores(order)

    def _scores(self, order: Any) -> NDArray[np.float64]:
        scores = np.asarray(order.scores(self.view), dtype=np.float64)
        if scores.shape != self.view.queue.shape or np.isnan(scores).any():
            raise BackendError(
                f"gives scores of shape {scores.shape}, or no numbers, for {len(self.view.queue)} jobs",
                where=f"order at {self.now} s",
                hint="Give a number for each job of the queue.",
            )
        return scores

    # ------------------------------------------------------------------ the client's jobs

    def add(self, cores: int, request: int, *, qos: int = 0, partition: int = 0) -> int:
        known = list(self.load.cluster.partitions) or ["the only one"]
        if not 0 <= partition < len(known):
            raise InputError(f"there is no partition {partition}", where="job", hint=f"Known: {', '.join(known)}.")
        sources = self._sources[partition]
        most = min(list(self.load.cluster.pools.values())[pool] for pool in sources)
        if cores > most:
            raise InputError(f"asks for {cores} of {most} cores", where=f"partition {known[partition]}")
        self._own()
        if self._clients == self._room:
            self._grow()
        index = len(self.table) + self._clients
        self._clients += 1
        arrays = self._arrays
        users = len(arrays["usage"])
        if self.client_user is not None and not 0 <= self.client_user < users:
            raise ValueError(f"there is no user {self.client_user}")
        for name, value in (("request", request), ("cores", cores), ("qos", qos), ("partition", partition)):
            arrays[name][index] = value
        arrays["user"][index] = users - 1 if self.client_user is None else self.client_user
        arrays["weights"][k.HIGHEST_QOS] = max(arrays["weights"][k.HIGHEST_QOS], qos)
        self._s[k.SCORED] = -1  # as all scores may have changed
        if self.client_user is None:
            self._s[k.USERS] = users
        self._set_demand(index, cores, sources)
        return index

    def _set_demand(self, index: int, cores: int, pools: Iterable[int]) -> None:
        demand, each = self._arrays["demand"], len(self._arrays["free"])
        for pool in pools:
            demand[index * each + pool] = cores

    @property
    def pools(self) -> Mapping[str, int]:
        return self.load.cluster.pools

    def ask(self, index: int, amounts: Mapping[str, int]) -> None:
        names = list(self.pools)
        for name, amount in amounts.items():
            if name not in names:
                raise InputError(f"there is no pool {name!r}", where="job", hint=f"Known: {', '.join(names)}.")
            if not 0 <= amount <= self.pools[name]:
                raise InputError(f"asks for {amount} of {self.pools[name]}", where=f"pool {name}")
            self._arrays["demand"][index * len(names) + names.index(name)] = amount
        self._s[k.FILLED] = 0

    def push_end(self, index: int, end: int) -> None:
        ends = self._arrays["ends"]
        if len(ends) - self._s[k.ENDS] <= self._max_running:  # room for the ends of the background is guaranteed
            self._arrays["ends"] = np.concatenate([ends, np.zeros_like(ends)])
            self._show()
        push(self._a.ends, int(self._s[k.ENDS]), (end << BITS) | index)
        self._s[k.ENDS] += 1

    def give_back(self, index: int, expected_end: int) -> None:
        del expected_end  # unused, since the column contains it
        kernels.age_usage(self._seen, self._a, self.now)
        kernels.vacate(self._seen, self._a, index)

    def resize(self, index: int, cores: int, expected_end: int) -> bool:
        s, arrays = self._s, self._arrays
        pools = self._sources[int(arrays["partition"][index])]
        more = cores - int(arrays["cores"][index])
        if any(more > max(int(arrays["free"][pool]), 0) for pool in pools):
            return False
        self._own()
        arrays = self._arrays
        kernels.age_usage(self._seen, self._a, self.now)
        planned = s[k.BACKFILL] == k.CONSERVATIVE and not s[k.REBUILD] and self.now < expected_end and more < 0
        kernels.take(self._a, index, -1)
        if planned:
            profile.give_back_rest(self._seen, self._a.profile, index)
        self._set_demand(index, cores, pools)
        arrays["cores"][index] = cores
        kernels.take(self._a, index, 1)
        if planned:
            profile.take_rest(self._seen, self._a.profile, index)
        s[k.FREED if more < 0 else k.REBUILD] = s[k.STIRRED] = 1
        s[k.SCANNED] = 0
        return True

    def insert(self, index: int, age_since: int) -> None:
        self._arrays["submit"][index] = age_since
        self._arrays["arrival"][index] = self._s[k.ARRIVED]
        self._s[k.ARRIVED] += 1
        kernels.enqueue(self._seen, self._a, index)

    def remove(self, index: int) -> None:
        kernels.dequeue(self._seen, self._a, index)


class _View:
    """See `QueueView`."""

    submit: NDArray[np.int64]
    request: NDArray[np.int64]
    users: NDArray[np.int64]
    qos: NDArray[np.int64]
    partitions: NDArray[np.int64]
    expected_end: NDArray[np.int64]
    free: NDArray[np.int64]
    capacity: NDArray[np.int64]

    def __init__(self, core: GeneralCore) -> None:
        self._core = core
        self._look()

    def _look(self) -> None:
        core = self._core
        rows = len(core.table) + core._room
        arrays = core._arrays
        self._s = core._s
        for name, column in (
            ("submit", "submit"),
            ("request", "request"),
            ("users", "user"),
            ("qos", "qos"),
            ("partitions", "partition"),
            ("expected_end", "expected"),
            ("free", "free"),
            ("capacity", "capacity"),
        ):
            setattr(self, name, _frozen(arrays[column]))
        self.demand = _frozen(arrays["demand"].reshape(rows, -1))

    def __deepcopy__(self, memo: dict[int, Any]) -> _View:
        return self

    @property
    def now(self) -> int:
        return int(self._s[k.NOW])

    @property
    def queue(self) -> NDArray[np.int64]:
        queue = self._core._arrays["queue"][: self._s[k.QUEUED]]
        waits = self._core._arrays["start"][queue] == UNSTARTED
        return _frozen(queue if waits.all() else queue[waits])

    @property
    def running(self) -> NDArray[np.int64]:
        return _frozen(self._core._arrays["running"][: self._s[k.RUNNING]])

    def start(self, job: int, amounts: NDArray[np.int64] | None = None) -> None:
        core = self._core
        waits = job in core._arrays["queue"][: self._s[k.QUEUED]] and core._arrays["start"][job] == UNSTARTED
        taken = self.demand[job] if amounts is None else amounts
        if not waits or np.any(taken > np.maximum(core._arrays["free"], 0)):
            why = "does not fit into what is idle" if waits else "is not in the queue"
            raise BackendError(
                f"cannot start now: it {why}", where=f"job {job} at {self.now} s", hint="Correct the scheduler."
            )
        if amounts is not None:
            if core._shared:
                core._own()
                core._view = self
                self._look()
            core._arrays["demand"].reshape(-1, len(self.free))[job] = amounts
            core._s[k.FILLED] = 0
        kernels.launch(core._seen, core._a, int(job))

    def backfill(self) -> None:
        core = self._core
        kernels.drop_started(core._seen, core._a)
        core._s[k.SCANNED] = 0
        kernels.easy(core._seen, core._a)

    def wake_at(self, time: int) -> None:
        if time <= self.now:
            raise BackendError(
                f"a pass at {time} s cannot be", where=f"scheduler at {self.now} s", hint="Ask for a later time."
            )
        self._s[k.WAKE] = min(int(self._s[k.WAKE]), time)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _outages(load: Load) -> dict[str, NDArray[np.int64]]:
    """Begins and ends of outages in order; at equal times, ends first."""
    changes = []
    for outage in load.cluster.outages:
        amounts = load.cluster.vector(outage.amounts)
        changes.append((outage.begin_s, 1 if outage.drain else 2, amounts))
        if outage.end_s < NEVER:
            changes.append((outage.end_s, 0, amounts))
    changes.sort(key=lambda change: (change[0], change[1] != 0))
    return {
        "outage_time": np.array([time for time, _, _ in changes], dtype=np.int64),
        "outage_kind": np.array([kind for _, kind, _ in changes], dtype=np.int64),
        "outage_amount": np.array([amounts for _, _, amounts in changes], dtype=np.int64).reshape(-1),
    }
