"""Queue disciplines: the order of jobs, backfilling, and preemption.

A `Policy` combines these. `scheduler` finds one by name, ours or a third party's, through the entry-point group
``asa.schedulers``, whose entries are functions with the settings as keyword arguments. Other schedulers, such as a
neural network, a planner or an optimiser, are a `PassScheduler`, which decides at each scheduling pass what to start;
one with a whole machine of its own is a `CoreMaker`. One that gets the queue in an order that a `Policy` may have, and
not in order of age, is an `OrderedScheduler`.

Semantics
---------
Time is in whole seconds. Within a second: jobs end; outages end, then begin; jobs are submitted; then one pass.

Order. The queue is sorted by the order's score at the time of the pass, ties by the time since which a job's age counts
(for background jobs their submission), then by arrival.

Pass. There is one in each second in which a job ended or was submitted, or an outage began or ended. Jobs are
considered in order. A job starts if it fits into the idle resources, takes nothing that is reserved in its time, and no
earlier job of its partition had to wait. Resources that it does not request are ignored. A job that has to wait is
handled by the kind of backfilling:

- no backfilling: it waits;
- EASY: the first of each partition that has to wait gets a reservation, the earliest time at which it fits by the
  requested ends of the running jobs and the reservations made so far in this pass. Later jobs start now if from now
  until their requested end they take nothing that is reserved;
- conservative: every job has a reservation, made when it is first considered, at the earliest time that takes nothing
  from earlier reservations, and starts at that time. When a job ends before its requested end, each reservation, in
  order, moves once to the earliest time that takes nothing from all others; it never moves to a later time. When an
  outage begins or ends, a job is preempted or requeued, or a running one grows, all reservations are made anew, in
  order;
- periodic, as in Slurm: a normal pass does not backfill. At the first multiple of the interval at or after any event,
  after that second's pass, jobs up to the depth are considered in order. Each gets a reservation as under conservative
  backfilling, but all reservations are made anew, and begin now or at a multiple of the resolution. Jobs whose
  reservation begins now start; jobs that would start beyond the window reserve nothing.

A job that requests more than the machine has at the time, during an outage, is skipped, and delays no other.

Preemption. The first job of each partition that does not fit into the idle resources may first end running jobs of
lower quality of service: the lowest first, among equals those that started last, and only jobs that hold something
still missing. If it then fits, they are requeued (or cancelled), it starts, and the pass begins anew; else nothing is
ended. (Not in the extra passes of periodic backfilling.)

A job that is ended by an outage is requeued with its old age, and starts from its beginning; or it is lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from asa.core.plugins import load, unknown_name
from asa.errors import InputError, near
from asa.units import parse_duration

from .cores.base import Core
from .table import JobTable

__all__ = [
    "F1",
    "Backfill",
    "Conservative",
    "CoreMaker",
    "CustomOrder",
    "Easy",
    "Fcfs",
    "Multifactor",
    "NoBackfill",
    "Order",
    "OrderedScheduler",
    "PassScheduler",
    "Periodic",
    "Policy",
    "QueueView",
    "Sjf",
    "Wfp",
    "conservative",
    "easy",
    "f1",
    "fcfs",
    "multifactor",
    "order_of",
    "scheduler",
    "sjf",
    "wfp",
]


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come first served."""


@dataclass(frozen=True, slots=True)
class Sjf:
    """Shortest job first, by requested time."""


@dataclass(frozen=True, slots=True)
class Wfp:
    """Cobalt's utility: (wait / request)^3 x width, the highest first; favours old and large jobs.

    Parameters
    ----------
    pool
        Index of the pool in which the width is counted, such as nodes; cores if not given.
    """

    pool: int | None = None


@dataclass(frozen=True, slots=True)
class F1:
    """A function learned from simulations by Carastan-Santos and de Camargo (SC 2017): the lowest first.

    log10(r) n + 870 log10(s) for F1, sqrt(r) n + 25600 log10(s) for F2, r n + 6860000 log10(s) for F3 and
    r sqrt(n) + 530000 log10(s) for F4, where r is the requested time in seconds, n the cores, s the seconds from the
    first submission, plus one, to the job's.

    Parameters
    ----------
    number
        Number of the function, 1 to 4.
    """

    number: Literal[1, 2, 3, 4] = 1

    def __post_init__(self) -> None:
        if self.number not in (1, 2, 3, 4):
            raise InputError(f"there is no F{self.number}", where="f1", hint="Give a number from 1 to 4.")


@dataclass(frozen=True, slots=True)
class Multifactor:
    """Slurm's multifactor priority: a sum of weighted factors from 0 to 1, rounded down, the highest first.

    Parameters
    ----------
    age
        Weight of min(wait / `max_age_s`, 1).
    max_age_s
        A longer wait adds nothing.
    size
        Weight of cores / cores of the machine.
    favor_small
        Use 1 minus the size factor.
    fair_share
        Weight of 2^(-u n), where u is the user's share of all users' decayed usage and n the number of users of the
        load, plus one if there is a client: a user with the fair share of 1/n has a factor of 1/2. The factor is 1
        until a first job has used any.
    fair_tree
        Use the users' rank instead, as Slurm does by default if all are in one account with equal shares: 1 minus the
        share of users who have used less.
    users
        Number of users of the machine, if more than those of the load; the others have used nothing.
    half_life_s
        Half-life of usage, which is in core-seconds.
    period_s
        Age and fair share are updated after each such time, and constant in between. 0: always.
    partition, partition_factors
        Weight, and the factor of each of the cluster's partitions (0 for those not given).
    qos
        Weight of the job's quality of service divided by the highest seen.
    """

    age: float = 1000.0
    max_age_s: int = 7 * 86400
    size: float = 0.0
    favor_small: bool = False
    fair_share: float = 10000.0
    half_life_s: int = 7 * 86400
    partition: float = 0.0
    partition_factors: tuple[float, ...] = ()
    qos: float = 0.0
    fair_tree: bool = False
    users: int = 0
    period_s: int = 0

    def __post_init__(self) -> None:
        if self.max_age_s < 1 or self.half_life_s < 1:
            raise InputError("an age or half-life of less than a second", where="multifactor", hint="Give 1 or more.")


class QueueView(Protocol):
    """The queue and the machine at a scheduling pass, as read-only views of the engine's arrays.

    Only `queue` is a copy, as soon as the pass has started jobs.
    """

    @property
    def now(self) -> int:
        """The clock, in seconds."""
        ...

    @property
    def queue(self) -> NDArray[np.int64]:
        """Waiting jobs in order of age; for an `OrderedScheduler`, in its order."""
        ...

    @property
    def running(self) -> NDArray[np.int64]:
        """Running jobs in order of their expected ends."""
        ...

    @property
    def submit(self) -> NDArray[np.int64]:
        """Start of each job's age, by job."""
        ...

    @property
    def request(self) -> NDArray[np.int64]:
        """Requested seconds, by job."""
        ...

    @property
    def demand(self) -> NDArray[np.int64]:
        """Demands: a row for each job, a column for each pool."""
        ...

    @property
    def users(self) -> NDArray[np.int64]:
        """Owner of each job."""
        ...

    @property
    def qos(self) -> NDArray[np.int64]:
        """Quality of service of each job."""
        ...

    @property
    def partitions(self) -> NDArray[np.int64]:
        """Partition of each job."""
        ...

    @property
    def expected_end(self) -> NDArray[np.int64]:
        """Expected end of each running job: its start plus its request."""
        ...

    @property
    def free(self) -> NDArray[np.int64]:
        """Idle amount of each pool."""
        ...

    @property
    def capacity(self) -> NDArray[np.int64]:
        """Capacity of each pool, without unavailable resources."""
        ...

    def start(self, job: int, amounts: NDArray[np.int64] | None = None) -> None:
        """Start a queued job that fits.

        Parameters
        ----------
        job
            The job.
        amounts
            Amounts from each pool, if a scheduler chooses between pools; they replace its row of `demand`. By default
            its request.
        """
        ...

    def backfill(self) -> None:
        """Do an EASY pass over the remaining queue, in its order."""
        ...

    def wake_at(self, time: int) -> None:
        """Request a pass at a time, if none happens sooner."""
        ...


@runtime_checkable
class CustomOrder(Protocol):
    """A custom order, in numpy: scores of the queued jobs, the highest first."""

    def scores(self, view: QueueView) -> NDArray[np.float64]:
        """Return the score of each job of ``view.queue``, in its order."""
        ...


@runtime_checkable
class PassScheduler(Protocol):
    """A custom scheduler in place of a `Policy`: any object that can decide what to start now.

    One object serves one simulation at a time, and may keep state between passes.
    """

    def schedule(self, view: QueueView) -> None:
        """Do a scheduling pass: call `QueueView.start` for each job that is to start now."""
        ...


@runtime_checkable
class CoreMaker(Protocol):
    """A scheduler with a machine of its own, as a planning scheduler has: it makes the engine's core."""

    def core(self, capacity: int, table: JobTable, *, now: int, users: NDArray[np.integer] | None = None) -> Core:
        """Make a machine with this number of cores and a background load, with its clock at `now`.

        `users`: owner of each job, where it is known.
        """
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Attributes of background jobs that it invents, since logs lack them, as text for the user."""
        ...


_LARGEST = 2**31  # upper bound of a setting

Order = Fcfs | Sjf | Wfp | F1 | Multifactor | CustomOrder


@dataclass(frozen=True, slots=True)
class NoBackfill:
    """No job overtakes another of its partition."""


@dataclass(frozen=True, slots=True)
class Easy:
    """Only the first waiting job is protected."""


@dataclass(frozen=True, slots=True)
class Conservative:
    """All pending jobs are protected."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """Backfilling as a separate periodic task, as in Slurm.

    Parameters
    ----------
    interval_s
        Lower bound of the time between passes (``bf_interval``).
    depth
        Jobs that a pass considers (``bf_max_job_test``).
    window_s
        Starts beyond this time from now are not planned (``bf_window``).
    resolution_s
        Planned starts are multiples of this (``bf_resolution``).
    """

    interval_s: int = 30
    depth: int = 500
    window_s: int = 86400
    resolution_s: int = 60

    def __post_init__(self) -> None:
        if min(self.interval_s, self.depth, self.window_s, self.resolution_s) < 1:
            raise InputError("a number below 1", where="backfilling", hint="Give 1 or more.")


Backfill = NoBackfill | Easy | Conservative | Periodic


@runtime_checkable
class OrderedScheduler(PassScheduler, Protocol):
    """A `PassScheduler` on top of a base scheduler, in whose order it gets the queue."""

    @property
    def base_order(self) -> Order:
        """The order of the queue."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """A queue discipline.

    Parameters
    ----------
    order
        Order of the queue.
    backfill
        Kind of backfilling.
    preempt
        Whether a job of higher quality of service may end running ones of lower, and whether these are requeued or
        cancelled.
    requeue
        Whether jobs that an outage ends are requeued, or lost.

    Examples
    --------
    >>> Policy(Wfp(), Easy())
    Policy(order=Wfp(pool=None), backfill=Easy(), preempt='off', requeue=True)
    """

    order: Order = Fcfs()
    backfill: Backfill = Easy()
    preempt: Literal["off", "requeue", "cancel"] = "off"
    requeue: bool = True

    def __post_init__(self) -> None:
        order: object = self.order
        backfill: object = self.backfill
        known = (
            isinstance(order, Fcfs | Sjf | Wfp | F1 | Multifactor | CustomOrder)
            and isinstance(backfill, NoBackfill | Easy | Conservative | Periodic)
            and self.preempt in ("off", "requeue", "cancel")
        )
        if not known:
            raise InputError(
                f"{self.order!r}, {self.backfill!r}, {self.preempt!r} are no order, backfilling and way to preempt",
                where="policy",
                hint="Give objects of asa.backends.simulated.policies; off, requeue or cancel.",
            )


def easy() -> Policy:
    """First come first served; other jobs go ahead if they do not delay the first that waits (EASY backfilling)."""
    return Policy()


def fcfs() -> Policy:
    """First come first served, without backfilling."""
    return Policy(Fcfs(), NoBackfill())


def conservative() -> Policy:
    """First come first served; other jobs go ahead if they delay no planned start (conservative backfilling)."""
    return Policy(Fcfs(), Conservative())


def sjf(*, backfill: str = "easy") -> Policy:
    """Shortest requested time first.

    Parameters
    ----------
    backfill
        ``easy``, ``conservative`` or ``none``.
    """
    return Policy(Sjf(), _backfill(backfill))


def wfp(*, backfill: str = "easy") -> Policy:
    """Old and large jobs first, by (wait / request)^3 x width, as on Cobalt's machines.

    Parameters
    ----------
    backfill
        ``easy``, ``conservative`` or ``none``.
    """
    return Policy(Wfp(), _backfill(backfill))


def f1(*, number: int = 1, backfill: str = "easy") -> Policy:
    """First by a function of request, width and submission time that was learned from simulations (F1 to F4).

    Parameters
    ----------
    number
        Number of the function, from 1 to 4.
    backfill
        ``easy``, ``conservative`` or ``none``.
    """
    return Policy(F1(number), _backfill(backfill))  # type: ignore[arg-type]


def multifactor(
    *,
    age: float = 1000.0,
    max_age_s: int = 7 * 86400,
    size: float = 0.0,
    favor_small: bool = False,
    fair_share: float = 10000.0,
    half_life_s: int = 7 * 86400,
    fair_tree: bool = False,
    users: int = 0,
    period_s: int = 0,
    interval_s: int = 30,
    depth: int = 500,
    window_s: int = 86400,
    resolution_s: int = 60,
) -> Policy:
    """As in Slurm: priority by age, size and fair share, and periodic backfilling of limited depth.

    Parameters
    ----------
    age, max_age_s, size, favor_small, fair_share, half_life_s, fair_tree, users, period_s
        See `Multifactor`.
    interval_s, depth, window_s, resolution_s
        See `Periodic`.
    """
    order = Multifactor(
        age, max_age_s, size, favor_small, fair_share, half_life_s, fair_tree=fair_tree, users=users, period_s=period_s
    )
    return Policy(order, Periodic(interval_s, depth, window_s, resolution_s))


def _backfill(name: str) -> Backfill:
    kinds: dict[str, Backfill] = {"none": NoBackfill(), "easy": Easy(), "conservative": Conservative()}
    if name not in kinds:
        error: InputError = unknown_name("backfilling", name, list(kinds))
        raise error
    return kinds[name]


def scheduler(name: str, settings: Mapping[str, str] | None = None) -> Policy | PassScheduler | CoreMaker:
    """Find a scheduler by name, and apply its settings.

    Parameters
    ----------
    name
        Name in the entry-point group ``asa.schedulers``.
    settings
        By name, as text; durations (``..._s``) as in Slurm or with units.

    Raises
    ------
    InputError
        The scheduler or a setting is unknown, or a value is invalid.

    Examples
    --------
    >>> scheduler("sjf", {"backfill": "none"}).backfill
    NoBackfill()
    """
    make = load("asa.schedulers", name)
    known = {p.name: p.default for p in inspect.signature(make).parameters.values() if p.kind is p.KEYWORD_ONLY}
    values: dict[str, Any] = {}
    for key, text in (settings or {}).items():
        if key not in known:
            hint = f"{near(key, known)}Known: {', '.join(known)}." if known else "It has none."
            raise InputError(f"the scheduler has no setting {key!r}", where=name, hint=hint)
        values[key] = _value(text, known[key], key, f"{name}: {key}")
    made: Policy | PassScheduler | CoreMaker = make(**values)
    return made


def order_of(text: str) -> Order:
    """Find the order of a scheduler's queue, for an `OrderedScheduler` on top of it.

    Parameters
    ----------
    text
        A scheduler's name, if need be with settings behind a colon.

    Raises
    ------
    InputError
        The scheduler or a setting is unknown, or it is one that decides by more than an order.

    Examples
    --------
    >>> order_of("wfp"), order_of("f1:number=3")
    (Wfp(pool=None), F1(number=3))
    """
    name, _, given = text.partition(":")
    pairs = [pair.partition("=") for pair in given.split(",") if pair]
    made = scheduler(name, {key.strip(): value.strip() for key, _, value in pairs})
    if not isinstance(made, Policy):
        raise InputError(
            f"{name!r} does not decide by an order of its queue",
            where="order",
            hint="Name a scheduler that sorts its queue, such as easy, wfp, sjf, f1 or multifactor.",
        )
    return made.order


def _value(text: str, default: Any, key: str, where: str) -> Any:
    try:
        value = _read(text, default, key)
    except (ValueError, KeyError, InputError) as error:
        raise InputError(f"{text!r} cannot be read", where=where, hint=f"Give something like {default!r}.") from error
    if isinstance(value, int | float) and not abs(value) < _LARGEST:  # also false for nan
        raise InputError(f"{text!r} is no number to count with", where=where, hint=f"Give something like {default!r}.")
    return value


def _read(text: str, default: Any, key: str) -> Any:
    if isinstance(default, bool):
        return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}[text.lower()]
    if isinstance(default, int) and key.endswith("_s"):
        return int(text) if text.isdecimal() else int(parse_duration(text))
    return type(default)(text)
