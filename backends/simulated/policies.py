"""Queue disciplines: in what order jobs stand, what may overtake them, who must give way.

A `Policy` puts these together. `scheduler` finds one by name, ours and a third party's alike, through the entry-point
group ``asa.schedulers``: a function whose keyword arguments are its settings. Where a policy is nothing of this kind -
a neural network, a planner, an optimiser - it is a `PassScheduler`, which is asked at every scheduling pass what to
start; one that brings a whole machine of its own is a `CoreMaker`.

Semantics
---------
Time is whole seconds. Within a second: jobs end; resources come back, then go away; jobs are submitted; then one pass.

Order. The queue is sorted by the order's score at the time of the pass, ties by the time since which a job's age counts
(for background jobs their submission), then by arrival.

Pass. There is one in each second in which something ended, was submitted, went away or came back. Jobs are looked at
in order. One starts if it fits into what is idle, takes nothing that is reserved by then, and no earlier job of its
partition had to wait. What it does not ask for may be short. What happens to one that has to wait:

- no backfilling: it waits;
- EASY: the first of each partition that has to wait gets a reservation, the earliest time at which it fits by the
  requested ends of the running jobs and the reservations made so far in this pass. Later ones start now if from now
  until their requested end they take nothing that is reserved;
- conservative: every job has a reservation, made when it is first looked at, the earliest time that takes nothing of
  those made before, and starts when that time has come. When something ends before its requested end, the
  reservations are gone through once, in order, and each moves to the earliest time that takes nothing of all others;
  it never moves back. When resources go away or come back, a job is preempted or requeued, or a running one grows,
  all reservations are made anew, in order;
- periodic, as Slurm's: at a pass nothing overtakes. At the first multiple of the interval at or after anything
  happened, and after that second's pass, up to so many jobs are gone through in order, each reserves as under
  conservative backfilling but all anew, at whole multiples of the resolution if not now, and starts if that is now;
  those that would start beyond the window reserve nothing.

A job that asks for more than the machine has at the time, while some of it is away, is passed over; it holds nobody up.

Preemption. The first job of each partition that does not fit into what is idle may, before anything else is done about
it, end running jobs of lower quality of service: those of the lowest first, among them those that started last, and
only such as hold something that is still missing. If that makes it fit, they are requeued (or cancelled), it starts,
and the pass begins anew; else nothing is ended. (Not in the extra passes of periodic backfilling.)

A job that is ended by an outage goes back into the queue with its old age, and runs from its beginning; or is lost.
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
    """Cobalt's utility: (wait / request)^3 x width, the highest first; old and large jobs rise.

    Parameters
    ----------
    pool
        Place of the pool that the width is counted in, such as nodes; cores if not given.
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
        Which of the four.
    """

    number: Literal[1, 2, 3, 4] = 1

    def __post_init__(self) -> None:
        if self.number not in (1, 2, 3, 4):
            raise InputError(f"there is no F{self.number}", where="f1", hint="Give a number from 1 to 4.")


@dataclass(frozen=True, slots=True)
class Multifactor:
    """Slurm's multifactor priority: a sum of weighted factors of 0 to 1, rounded down, the highest first.

    Parameters
    ----------
    age
        Weight of min(wait / `max_age_s`, 1).
    max_age_s
        Waiting longer earns no more.
    size
        Weight of cores / cores of the machine.
    favor_small
        Count the size factor from the other end: 1 less it.
    fair_share
        Weight of 2^(-u n), where u is the user's share of all users' decayed usage and n the number of users of the
        load, and one more if there is a client: a user who had the just share of 1/n has a factor of 1/2. It is 1
        while nobody has used anything.
    fair_tree
        Count users by rank instead, as Slurm does of itself where all are in one account with equal shares: 1 less the
        share of users who have used less.
    users
        How many share the machine, where that is more than those of the load; the others have used nothing.
    half_life_s
        Usage, in core-seconds, halves in so long.
    period_s
        Age and fair share are reckoned anew when so much has passed, and stay until then. 0: always.
    partition, partition_factors
        Weight, and the factor of each of the cluster's partitions (0 for those not given).
    qos
        Weight of the job's quality of service over the highest that was met.
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
    """The queue and the machine at a scheduling pass, as read-only arrays that are views of the engine's own.

    Only `queue` is a copy, once jobs were started in the pass.
    """

    @property
    def now(self) -> int:
        """The clock, in seconds."""
        ...

    @property
    def queue(self) -> NDArray[np.int64]:
        """Jobs that wait, in order of age."""
        ...

    @property
    def running(self) -> NDArray[np.int64]:
        """Jobs that run, in order of their expected ends."""
        ...

    @property
    def submit(self) -> NDArray[np.int64]:
        """By job, when its age began to count."""
        ...

    @property
    def request(self) -> NDArray[np.int64]:
        """By job, seconds."""
        ...

    @property
    def demand(self) -> NDArray[np.int64]:
        """By job a row, by pool a column."""
        ...

    @property
    def users(self) -> NDArray[np.int64]:
        """By job."""
        ...

    @property
    def qos(self) -> NDArray[np.int64]:
        """By job."""
        ...

    @property
    def partitions(self) -> NDArray[np.int64]:
        """By job."""
        ...

    @property
    def expected_end(self) -> NDArray[np.int64]:
        """By running job, its start plus its request."""
        ...

    @property
    def free(self) -> NDArray[np.int64]:
        """By pool."""
        ...

    @property
    def capacity(self) -> NDArray[np.int64]:
        """By pool, less what is away."""
        ...

    def start(self, job: int, amounts: NDArray[np.int64] | None = None) -> None:
        """Start a queued job that fits.

        Parameters
        ----------
        job
            The job.
        amounts
            What it takes of each pool, where a scheduler chooses between pools; its row of `demand` from then on.
            What it asks for if not given.
        """
        ...

    def backfill(self) -> None:
        """Do an EASY pass over what is left of the queue, in order of age."""
        ...

    def wake_at(self, time: int) -> None:
        """Ask for a pass at a time, if none comes sooner."""
        ...


@runtime_checkable
class CustomOrder(Protocol):
    """An order of one's own, in numpy: scores of the queued jobs, the highest first."""

    def scores(self, view: QueueView) -> NDArray[np.float64]:
        """Score of each job of ``view.queue``, in its order."""
        ...


@runtime_checkable
class PassScheduler(Protocol):
    """A scheduler of one's own, in place of a `Policy`: anything that can decide what to start now.

    One object serves one simulation at a time; what it remembers between passes is its own.
    """

    def schedule(self, view: QueueView) -> None:
        """Do a scheduling pass: call `QueueView.start` for each job that is to start now."""
        ...


@runtime_checkable
class CoreMaker(Protocol):
    """A scheduler that brings a machine of its own, as one that plans does: it makes the engine's core."""

    def core(self, capacity: int, table: JobTable, *, now: int) -> Core:
        """Make a machine of so many cores with a background load, and its clock at a time."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What it makes up about the background's jobs, which no log tells, in words for the user."""
        ...


_LARGEST = 2**31  # of a setting

Order = Fcfs | Sjf | Wfp | F1 | Multifactor | CustomOrder


@dataclass(frozen=True, slots=True)
class NoBackfill:
    """Nothing overtakes within a partition."""


@dataclass(frozen=True, slots=True)
class Easy:
    """Only the first that waits is protected."""


@dataclass(frozen=True, slots=True)
class Conservative:
    """Everything that waits is protected."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """Backfilling as a task of its own, as Slurm has it.

    Parameters
    ----------
    interval_s
        A pass at most so often (``bf_interval``).
    depth
        Jobs that a pass looks at (``bf_max_job_test``).
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


@dataclass(frozen=True, slots=True)
class Policy:
    """A queue discipline.

    Parameters
    ----------
    order
        How the queue is sorted.
    backfill
        What may overtake.
    preempt
        Whether a job of higher quality of service may end running ones of lower, and what becomes of these.
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
    """First come first served; others go ahead if they do not delay the first that waits (EASY backfilling)."""
    return Policy()


def fcfs() -> Policy:
    """First come first served, and nobody goes ahead."""
    return Policy(Fcfs(), NoBackfill())


def conservative() -> Policy:
    """First come first served; others go ahead if they delay nobody's planned start (conservative backfilling)."""
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
    """First by a function of request, width and time of submission that was learned from simulations (F1 to F4).

    Parameters
    ----------
    number
        Which of the functions, from 1 to 4.
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
    """Slurm's way: priority by age, size and fair share, backfilling now and then and not too deep.

    Parameters
    ----------
    age, max_age_s, size, favor_small, fair_share, half_life_s, fair_tree, users, period_s
        As for `Multifactor`.
    interval_s, depth, window_s, resolution_s
        As for `Periodic`.
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
    """Look a scheduler up and set it.

    Parameters
    ----------
    name
        Of the entry-point group ``asa.schedulers``.
    settings
        By name, as text; durations (``..._s``) as in Slurm or with units.

    Raises
    ------
    InputError
        There is no such scheduler or setting, or a value cannot be read.

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


def _value(text: str, default: Any, key: str, where: str) -> Any:
    try:
        value = _read(text, default, key)
    except (ValueError, KeyError, InputError) as error:
        raise InputError(f"{text!r} cannot be read", where=where, hint=f"Give something like {default!r}.") from error
    if isinstance(value, int | float) and not abs(value) < _LARGEST:  # nan, too
        raise InputError(f"{text!r} is no number to count with", where=where, hint=f"Give something like {default!r}.")
    return value


def _read(text: str, default: Any, key: str) -> Any:
    if isinstance(default, bool):
        return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}[text.lower()]
    if isinstance(default, int) and key.endswith("_s"):
        return int(text) if text.isdecimal() else int(parse_duration(text))
    return type(default)(text)
