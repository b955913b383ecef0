"""The interface of every strategy, and the values that it takes and returns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from asa.backend import Capabilities, DependencyType
from asa.core import plugins
from asa.core.late import dataclass
from asa.errors import InputError
from asa.shapes import Shape
from asa.units import format_duration
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asa.strategies.legs import NextLeg

MIN_IDLE_S = 10.0
"""No allocation is requested ahead if it may idle for less than this: the client would hardly notice its start."""


class Phase(StrEnum):
    """The phase of a stage."""

    WAITING = "waiting"
    """No job is submitted for the stage."""
    QUEUED = "queued"
    """The stage's job is pending."""
    ALLOCATED = "allocated"
    """The stage's job holds resources, but the stage's predecessors have not ended."""
    RUNNING = "running"
    DONE = "done"
    CONDITIONAL = "conditional"
    """Whether the stage runs is known only when its predecessors have ended, so it cannot be requested ahead."""
    FAILED = "failed"
    """The stage failed for good, or was cancelled."""
    BLOCKED = "blocked"
    """The stage will not run, since a stage that it follows failed."""
    SKIPPED = "skipped"
    """The stage will not run, since none of the stages failed whose failure it waits for."""
    NOT_WANTED = "dropped"
    """The stage will not run, since the program that hosts the run no longer wants it."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will happen to the stage."""
        return self in _SETTLED


_SETTLED = frozenset({Phase.DONE, Phase.FAILED, Phase.BLOCKED, Phase.SKIPPED, Phase.NOT_WANTED})


class Keep(StrEnum):
    """The mechanism that keeps a stage's job from running before its predecessors have ended."""

    NOTHING = "nothing"
    """Nothing: the predecessors have ended."""
    DEPENDENCY = "dependency"
    """The batch system: the allocation cannot begin early."""
    AWAIT = "await"
    """The payload: the allocation may begin early, and idles until the predecessors have ended."""


class ForecastKind(StrEnum):
    """The source of the waits that a strategy plans with."""

    NONE = "none"
    LEARNED = "learned"
    PUBLISHED = "published"
    """Algorithm 1 of the ASA paper with the tuned policy, learned from this client's own waits alone."""
    PLANNED = "planned"
    """The batch system's own plan, for which it is asked."""
    KNOWN = "known"
    """The future itself, which only a simulator knows."""


@dataclass(frozen=True)  # without slots, see `changed`
class StageView:
    """The state of one stage.

    Parameters
    ----------
    stage
        The stage.
    phase
        Its phase.
    job_id
        Id of its present job.
    submit_s
        When that job was submitted.
    keep
        What keeps that job from running too early.
    predicted_wait_s
        The wait predicted for that job.
    hold_until_s
        Once allocated: until when the allocation may idle and still be long enough for the stage.
    limit_s
        Once allocated: when the walltime ends.
    cores
        Cores that its job has while this stage runs, if the job's cores change; else 0.
    started_s, ended_s
        When the stage itself (not its allocation) began and ended. A stage may have ended although its phase is not
        done yet, while its job runs other stages.
    resubmissions
        How often it was submitted again, because its job was given back before the stage began, or failed.
    attempts
        How often it failed and is to be retried.
    not_before_s
        The earliest time for the next attempt.
    reason
        Why it failed, or will not run; else empty.
    leg
        If it runs in legs: number of the current leg since its last submission, from 1 on.
    earlier_legs
        How many legs it had before its last submission.
    next_job_id
        Id of the next leg's job, if that was submitted already.
    ran_s
        Run time of its earlier legs.
    leg_start_s
        When the payload of the current leg began.
    is_unyielding
        Whether later legs are submitted only at their turn, because a leg did not end when it was signalled, or the
        next one was taken out of the queue.
    """

    stage: Stage
    phase: Phase = Phase.WAITING
    job_id: str | None = None
    submit_s: float | None = None
    keep: Keep = Keep.NOTHING
    predicted_wait_s: float | None = None
    hold_until_s: float | None = None
    limit_s: float | None = None
    cores: int = 0
    started_s: float | None = None
    ended_s: float | None = None
    resubmissions: int = 0
    attempts: int = 0
    not_before_s: float = float("-inf")
    reason: str = ""
    leg: int = 1
    earlier_legs: int = 0
    next_job_id: str | None = None
    ran_s: float = 0.0
    leg_start_s: float | None = None
    is_unyielding: bool = False

    def with_past(self, before: StageView) -> StageView:
        """Return the view with the legs that the stage had before it was submitted again, if any.

        Parameters
        ----------
        before
            The stage's view until now.
        """
        if self.stage.continues is None:
            return self
        earlier = before.earlier_legs + before.leg - 1
        return replace(self, ran_s=before.ran_s, earlier_legs=earlier, is_unyielding=before.is_unyielding)


@dataclass(frozen=True, slots=True)
class GrowthView:
    """The state of a request for more cores.

    Parameters
    ----------
    job_id
        Id of the job that waits for the cores.
    joins
        Id of the job that the cores will join.
    stage
        The first stage that needs them.
    cores
        How many cores.
    phase
        Queued; allocated, once the cores have joined; or done, once the cores were given back or the request failed.
    submit_s
        When the cores were requested.
    predicted_wait_s
        The wait predicted for the cores.
    """

    job_id: str
    joins: str
    stage: str
    cores: int
    phase: Phase
    submit_s: float
    predicted_wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class RacerView:
    """A job that was asked for in a race whose first stage has not begun.

    Parameters
    ----------
    stages
        The stages that it is to run, in order.
    number
        Its number in the race; 1 represents the stages.
    job_id
        Its job; empty if the batch system refused it.
    submit_s
        When it was submitted, or refused.
    cores
        What it asks for.
    shapes
        The shapes of its stages; of the first not given.
    is_pending
        Whether it is still in the queue, and may win.
    """

    stages: tuple[str, ...]
    number: int
    job_id: str
    submit_s: float
    cores: int
    shapes: tuple[Shape, ...] = ()
    is_pending: bool = True


@dataclass(frozen=True, slots=True)
class RunView:
    """The state of one workflow's run.

    Parameters
    ----------
    workflow
        The workflow that runs.
    stages
        Every stage's view, by name.
    now_s
        The present time on the backend's clock.
    capabilities
        The site's rules and limits.
    spent
        Returns the core-hours of the run's ended jobs; see `spent_core_hours`.
    growths
        Requests for more cores for the run's jobs, in order.
    ready
        Names of the stages whose predecessors are all settled; derived from `stages` if not given.
    turn
        Names of the ready stages that have no job yet; derived likewise.
    first
        Index in the workflow's order before which all stages are settled.
    idle_core_hours
        Core-hours that early allocations have idled so far, and those that present ones may yet idle.
    racers
        All jobs that were asked for in the races that are not decided, in order.
    kept
        What the strategy's last plan is to keep (`Plan.kept`); None at first, and after a restart.
    """

    workflow: Workflow
    stages: Mapping[str, StageView]
    now_s: float
    capabilities: Capabilities
    spent: Callable[[], float] = float
    growths: tuple[GrowthView, ...] = ()
    ready: frozenset[str] | None = None
    turn: frozenset[str] | None = None
    first: int = 0
    idle_core_hours: float = 0.0
    racers: tuple[RacerView, ...] = ()
    kept: object = field(default=None, compare=False, repr=False)

    def rivals(self, stages: Iterable[str]) -> int:
        """Count the further jobs, also refused ones, that were asked for in addition to some stages' queued job."""
        names = set(stages)
        return sum(racer.number > 1 and not names.isdisjoint(racer.stages) for racer in self.racers)

    @property
    def spent_core_hours(self) -> float:
        """Core-hours of the run's ended jobs, however they ended; computed on demand."""
        return self.spent()

    def left(self, most: int | None = None) -> Iterator[str]:
        """Yield the names of unsettled stages in the workflow's order, at most `most` of them."""
        order, stages = self.workflow.order, self.stages
        unsettled = (order[i] for i in range(self.first, len(order)) if not stages[order[i]].phase.is_settled)
        return islice(unsettled, most)

    def to_run_now(self) -> list[str]:
        """Return the names of the stages that may run at once and have no job yet, in order."""
        if self.turn is not None:
            return self.workflow.in_order(self.turn)
        return [name for name in self.left() if self.stages[name].phase is Phase.WAITING and self.is_ready(name)]

    def follows_running(self, name: str) -> bool:
        """Whether each predecessor of a stage runs or is settled, so that the last of their ends can be predicted.

        A stage that is merely allocated does not run: it still waits for other stages.
        """
        phases = (self.stages[before].phase for before in self.stages[name].stage.after)
        return all(phase.is_settled or phase is Phase.RUNNING for phase in phases)

    def run_or_hold_cores(self, names: Iterable[str]) -> bool:
        """Whether all these stages run, are allocated, or are settled, so that no other job can take their cores."""
        phases = (self.stages[name].phase for name in names)
        return all(phase.is_settled or phase in (Phase.RUNNING, Phase.ALLOCATED) for phase in phases)

    def is_ready(self, name: str) -> bool:
        """Whether all predecessors of a stage are settled, so that it may run at once."""
        if self.ready is not None:
            return name in self.ready
        return all(self.stages[before].phase.is_settled for before in self.stages[name].stage.after)


@dataclass(slots=True)
class IdleAllowance:
    """The core-hours that a run's early allocations may idle in total; each planned allocation takes its share."""

    core_hours: float
    left: float

    @classmethod
    def of(cls, view: RunView, share: float, most: float = math.inf) -> IdleAllowance:
        """Allow a share of the core-hours of the workflow's stages, and at most `most` core-hours."""
        allowed = min(share * view.workflow.stage_core_hours(view.capabilities.cores_per_node), most)
        return cls(allowed, max(allowed - view.idle_core_hours, 0.0))

    def lasts_s(self, cores: int) -> float:
        """Return how long this number of cores may idle."""
        return self.left / max(cores, 1) * 3600

    def take(self, cores: int, idle_s: float) -> None:
        """Reserve the core-hours that an allocation may idle."""
        self.left = max(self.left - cores * idle_s / 3600, 0.0)

    @property
    def text(self) -> str:
        """Describe the bound."""
        return f"of the {self.core_hours:.3g} core-hours that this run may idle {self.left:.3g} are left"


class Forecast(Protocol):
    """Predicted waits to plan with."""

    @property
    def is_informed(self) -> bool:
        """Whether predictions have any data."""
        ...

    def predict(self, stages: tuple[str, ...], needed_s: float) -> WaitForecast:
        """Predict the wait of a job that runs these stages, in order, and is needed at the given time."""
        ...


def wait_in_words(forecast: Forecast, wait_s: float) -> str:
    """Describe the expected wait; add if it is an assumption because hardly any wait is known."""
    wait = format_duration(wait_s)
    is_known = forecast.is_informed or not wait_s  # a local stage does not wait
    return f"predicted wait {wait}" if is_known else f"assumed wait {wait}, since few waits are known here yet"


@runtime_checkable
class Sizing(Protocol):
    """A forecast that can predict for jobs of any size."""

    def predict_size(self, stages: tuple[str, ...], needed_s: float, cores: int, walltime_s: float) -> WaitForecast:
        """Predict like `Forecast.predict`, but for a job with given cores and walltime."""
        ...


def predicted(
    forecast: Forecast, stages: tuple[str, ...], needed_s: float, cores: int, walltime_s: float
) -> WaitForecast:
    """Predict the wait of a job of a given size, if the forecast can.

    `cores`, `walltime_s`: the job's request; ignored by a forecast that only knows stages.
    """
    if isinstance(forecast, Sizing):
        return forecast.predict_size(stages, needed_s, cores, walltime_s)
    return forecast.predict(stages, needed_s)


class JobRequest(NamedTuple):
    """The size and destination of a possible job."""

    cores: int
    walltime_s: float
    partition: str  # empty for the site's default


@runtime_checkable
class Comparing(Protocol):
    """A forecast that compares alternative requests; only one of them will be submitted."""

    def predict_each(self, stages: tuple[str, ...], requests: Sequence[JobRequest]) -> Sequence[WaitForecast]:
        """Predict the wait of a job of the given stages for each of several requests, comparable with each other."""
        ...


class PlanStep(NamedTuple):
    """A job of a plan: what it would ask for, and when.

    `stages`: the stages that it runs, in order.
    `request`: what it asks for.
    `after`: indices of the earlier jobs of the plan whose ends it waits for.
    `keep`: what keeps it from running too early.
    `ages`: whether it gains priority while a dependency keeps it back.
    `submit_s`: seconds until its submission; with `Keep.NOTHING`, until its expected submission.
    `ready_s`: samples of the earliest time at which its stages can begin, apart from the plan's other jobs.
    `run_s`: samples of how long they run.
    """

    stages: tuple[str, ...]
    request: JobRequest
    after: tuple[int, ...]
    keep: Keep
    ages: bool
    submit_s: float
    ready_s: NDArray[np.float64]
    run_s: NDArray[np.float64]


@runtime_checkable
class Joint(Protocol):
    """A forecast that judges the jobs of a plan together, and several plans in the same futures."""

    def sample_plans(self, plans: Sequence[Sequence[PlanStep]], samples: int) -> Sequence[NDArray[np.float64]] | None:
        """Sample when the jobs of each of several plans have their cores; only one of the plans will be followed.

        In each future, a plan's first job is queued before the second is judged. Parallel jobs compete for cores; later
        jobs begin after the ends of their predecessors. The futures are the same for all plans, so plans can be
        compared future by future. None if the forecast cannot judge these plans.

        Returns: for each plan, seconds from now, shape (samples, jobs).
        """
        ...


class Sampled(Protocol):
    """Samples the waits of two requests."""

    def __call__(self, queued: JobRequest, other: JobRequest, /) -> NDArray[np.float64]:
        """Sample the remaining wait of the queued job, and the wait of another job at the end of the queue.

        Returns seconds, shape (samples, 2), one row for each sampled future.
        """
        ...


@runtime_checkable
class Replacing(Protocol):
    """A forecast that knows what a queued job's position in the queue is worth."""

    @property
    def sees_queue(self) -> bool:
        """Whether the queue is known; if not, `instead_of` yields None for every job."""
        ...

    def instead_of(self, job_id: str, stages: tuple[str, ...]) -> AbstractContextManager[Sampled | None]:
        """Predict, inside this context, as if a queued job of the given stages were withdrawn.

        Yields a function that compares that job's request with another one; None if the job's position is not known.
        """
        ...


@dataclass(frozen=True, slots=True)
class Weighed:
    """A possible shape of a stage, and what was expected of it.

    `shape`: the shape.
    `cores`: cores of its job.
    `run_s`: how long the job would run, with all stages in it.
    `core_hours`: core-hours that the job would use.
    `waits_s`, `ends_s`: p10, p50 and p90 of its wait in the queue, and of its end, in seconds from when it may begin.
    """

    shape: Shape
    cores: int
    run_s: float
    core_hours: float
    waits_s: tuple[float, float, float]
    ends_s: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """The shape chosen for a stage.

    `shape`: the shape.
    `weighed`: all shapes that it was chosen from.
    """

    shape: Shape
    weighed: tuple[Weighed, ...] = ()


@dataclass(frozen=True)  # without slots, see `changed`
class PlannedJob:
    """A job to submit, or more cores for a submitted one.

    Parameters
    ----------
    stages
        The stages that it runs, in order.
    submit_s
        When to submit it; now or an earlier time means at once.
    keep
        What keeps it from running too early.
    reason
        Why it is submitted at that time, in words.
    prediction
        The predicted wait, if there is one.
    needed_s
        When its resources are expected to be needed, if known.
    spare_walltime_s
        Walltime in addition to the stages' own, for time in which the allocation idles.
    shrinks
        Whether the job gives back cores that none of its remaining stages needs, if the site takes cores back.
    widths
        Cores during each of its stages, if they vary: it begins with those of the first stage; before each further
        stage it gives cores back, or waits for additional ones (`joins`).
    joins
        Id of a pending or running job of this run that has `widths`. Then this job runs nothing: its cores join that
        job, and `stages` is the first stage that needs them.
    mate
        If several jobs take a stage's tasks: number of an additional job, from 1 on. The strategy submits the first
        job, which has 0; the run submits the others by itself.
    leg
        If the stage runs in legs: number of a leg that is submitted while the one before runs; 0 for the current leg.
    delay_s
        For such a leg with a dependency: how many seconds after the start of the leg before it may start; 0: after the
        end of that leg.
    racer
        The job's number among those that race for its first stage, from 1 on; 0 if none does. The first represents its
        stages until another of them starts; `asa.runner.kinds.racers` says what may race.
    shapes
        Of a further racer: the shapes of its stages, which may differ from those in which the first has them.
    replaces
        Of a further racer: id of the pending job that is withdrawn once this one is accepted; empty for none.
    """

    stages: tuple[str, ...]
    submit_s: float
    keep: Keep
    reason: str
    prediction: WaitForecast | None = None
    needed_s: float | None = None
    spare_walltime_s: float = 0.0
    shrinks: bool = False
    widths: tuple[int, ...] = ()
    joins: str = ""
    mate: int = 0
    leg: int = 0
    delay_s: float = 0.0
    racer: int = 0
    shapes: tuple[Shape, ...] = ()
    replaces: str = ""

    @property
    def has_payload(self) -> bool:
        """Whether the job runs stages; else its cores only join another job."""
        return not self.joins

    @property
    def is_plain(self) -> bool:
        """Whether it runs one stage, is the only job to do so, and keeps its cores."""
        return len(self.stages) == 1 and not (self.is_addition or self.is_elastic or self.racer)

    @property
    def is_elastic(self) -> bool:
        """Whether its number of cores may change while it runs."""
        return bool(self.joins or self.widths or self.shrinks)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of what the job is for: its stages, in any combination; more cores of a job; or a racer's turn."""
        if self.racer > 1:
            return (f"{self.stages[0]}~{self.racer}",)
        return (f"{self.joins}+{self.stages[0]}",) if self.joins else self.stages

    @property
    def is_addition(self) -> bool:
        """Whether its stages have a job already: this job is an additional one, a racer, a next leg, or more cores."""
        return bool(self.joins or self.mate or self.leg or self.is_alternative)

    @property
    def is_alternative(self) -> bool:
        """Whether it is an alternative to a pending job: the first to start runs the stages, the other is cancelled."""
        return self.racer > 1


@dataclass(frozen=True, slots=True)
class Substitute:
    """The job that replaces a queued job, which is cancelled for it.

    Parameters
    ----------
    planned
        The job.
    choices
        The shapes chosen for those of its stages that have several.
    """

    planned: PlannedJob
    choices: Mapping[str, Choice] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A job to cancel.

    Parameters
    ----------
    job_id
        Id of the job in the batch system.
    reason
        The reason, for people.
    substitute
        The job to submit in its place once it is cancelled, whatever a later plan says; None to let a later plan
        decide.
    """

    job_id: str
    reason: str
    substitute: Substitute | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions from now on, until the next event.

    Parameters
    ----------
    submissions
        Jobs to submit, now or later, after the cancellations.
    cancellations
        Jobs to cancel now.
    wake_s
        When to plan again, even if nothing happens before; None for not.
    choices
        The chosen shapes, by stage, of stages with several shapes that are to be submitted.
    kept
        What the strategy wants to find in its next view, such as a plan that may still hold; None for nothing.
    """

    submissions: tuple[PlannedJob, ...] = ()
    cancellations: tuple[Cancellation, ...] = ()
    wake_s: float | None = None
    choices: Mapping[str, Choice] = field(default_factory=dict)
    kept: object = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        submissions: Iterable[PlannedJob],
        cancellations: Iterable[Cancellation] = (),
        wake_s: float | None = None,
        choices: Mapping[str, Choice] | None = None,
    ) -> Plan:
        """Make a plan from any iterables."""
        return cls(tuple(submissions), tuple(cancellations), wake_s, choices or {})


def lacking(strategy: Strategy, capabilities: Capabilities) -> str:
    """Return in words the needs of a strategy that a site lacks; empty if it lacks none.

    A strategy declares its needs by `forecast` and `needs`.

    Parameters
    ----------
    strategy
        The strategy.
    capabilities
        What the site can do.

    Examples
    --------
    >>> lacking(load_strategy("chained"), Capabilities("x", 8, 8, age_accrues=True, dependency_types=frozenset()))
    "needs dependencies of the kind 'afterok', which the site does not have"
    """
    if strategy.forecast is ForecastKind.PLANNED and not capabilities.plans:
        return "needs a batch system that plans ahead, which this one does not"
    if missing := sorted(strategy.needs - capabilities.dependency_types):
        return f"needs dependencies of the kind {missing[0].value!r}, which the site does not have"
    return ""


class Strategy(Protocol):
    """A way of asking for resources, and its properties.

    A derived class must define `forecast` and `plan`; it overrides other members where it differs.
    """

    __slots__ = ()

    @property
    def forecast(self) -> ForecastKind:
        """Source of the waits that it plans with."""
        ...

    @property
    def needs(self) -> frozenset[DependencyType]:
        """Types of dependency without which it cannot plan; none by default."""
        return frozenset()

    @property
    def replaces(self) -> bool:
        """Whether the strategy may replace queued jobs, by default not; it is then also called while all are queued."""
        return False

    @property
    def max_idle(self) -> float | None:
        """Upper bound of idle core-hours before its stages begin, as a share of the workflow's own core-hours.

        None if there is no bound, or if its jobs never idle, since each is submitted when its stage may run.
        """
        return None

    @property
    def price_s(self) -> float | None:
        """Value of one core-hour, in seconds of makespan; None for the default price."""
        return None

    @property
    def next_leg(self) -> NextLeg | None:
        """How a stage's next leg is submitted while one runs: `asa.strategies.legs.ahead`, `behind` or `in_turn`.

        None for the default: ahead of time with a forecast, and in turn without one.
        """
        return None

    @property
    def is_one_job(self) -> bool:
        """Whether all stages share one job, so that elements of an array take turns in it; by default not."""
        return False

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Plan the run from now on; the same view and forecast give the same plan."""
        ...


@runtime_checkable
class Configurable(Protocol):
    """A class of strategies that has settings."""

    def configured(self, settings: Mapping[str, str], /) -> Strategy:
        """Make a strategy with settings given as text.

        Raises `InputError`: there is no such setting, or its value is invalid.
        """
        ...


_SAID_HERE = ("needs", "replaces", "max_idle", "price_s", "next_leg", "is_one_job")


@dataclass(frozen=True, slots=True)
class _Plain(Strategy):
    """Completes a strategy that has only a forecast and a plan with the defaults of `Strategy`."""

    own: Strategy

    @property
    def forecast(self) -> ForecastKind:
        """Source of the waits that it plans with."""
        return self.own.forecast

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Return the plan of the completed strategy."""
        return self.own.plan(view, forecast)


def whole(strategy: Strategy) -> Strategy:
    """Complete a strategy that defines only `forecast` and `plan`.

    `strategy`: an object with all attributes of `Strategy`, as by deriving from it, or with only these two.
    Raises `InputError`: it has only some of the others, which suggests that it lacks some by mistake.
    """
    missing = [name for name in _SAID_HERE if not hasattr(strategy, name)]
    if not missing:
        return strategy
    if len(missing) < len(_SAID_HERE):
        raise InputError(
            f"says nothing of {', '.join(missing)}",
            where=f"strategy {type(strategy).__name__}",
            hint="Derive it from asa.strategies.Strategy, which says it.",
        )
    return _Plain(strategy)


def load_strategy(name: str) -> Strategy:
    """Make an installed strategy from its name, with each setting after a colon.

    Parameters
    ----------
    name
        The name, such as ``asa`` or ``asa-plan:at-most=1.1:price=2``.

    Raises
    ------
    UnknownNameError
        No strategy of that name is installed.
    InputError
        The strategy has no such setting, or its value is invalid.

    Examples
    --------
    >>> load_strategy("asa-plan:at-most=1.1").aim.at_most
    1.1
    """
    name, *words = re.split(r":(?=[a-z-]+=)", name)
    made = plugins.load("asa.strategies", name)
    if not words:
        return whole(made())
    if not isinstance(made, Configurable):
        raise InputError("takes no settings", where=f"strategy {name!r}", hint="Leave out what follows the colon.")
    settings = dict(word.partition("=")[::2] for word in words)
    return whole(made.configured(settings))
