"""Decides when the next leg is submitted: in its turn, with a dependency on the running leg, or early, to take over.

If a leg can be signalled to save its state and end, the next leg takes over as soon as it starts: nothing idles, and an
early start only shortens the leg before. So the lead is optimized over all legs together. A leg lasts L seconds and
needs s seconds to save its state. The next leg is submitted a seconds before a leg must begin to save its state, and
waits w seconds. Then each leg works for min(L - s, L - s - a + w) seconds, and between two legs nothing runs for
s + max(w - a, 0) seconds. The chosen lead has the least loss per second of work. The loss is that time without work
plus, at the price of plans, the core-hours of the s seconds in which both legs have their cores. No lead can save the
part of a wait that exceeds the length of a leg. That part is left out: long waits come in clusters, so counting it
would make short legs look more expensive than they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from asa.backend import DependencyType
from asa.continuation import Continuation
from asa.core.late import dataclass
from asa.strategies.base import Forecast, Keep, Phase, PlannedJob, RunView, StageView, wait_in_words
from asa.units import format_duration
from asa.waits import WaitForecast

_LEVELS = (np.arange(400) + 0.5) / 400
_SLACK = 1.1  # the last leg must have time for the remaining work times this factor
_SIGMAS = 1.28  # nine of ten normally distributed values lie below this
_LOOKS = 8.0  # looks at a lead per time until the next submission, and per leg
_LOOKS_A_LEG = 100.0
_FAIR = 0.8  # how many percent of makespan one percent of core-hours is worth

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lead:
    """The lead with which the next leg is submitted, and the expected result.

    `lead_s`: seconds before the running leg must begin to save its state.
    `in_time`: probability that the next leg has started by then.
    `gap_s`: mean seconds after that in which nothing runs.
    `works_s`: mean seconds of work in a leg.
    """

    lead_s: float
    in_time: float
    gap_s: float
    works_s: float


def best_lead(waits_s: Floats, leg_s: float, saves_s: float, price: float = _FAIR) -> Lead:
    """Choose the lead of the next leg, for a chain of legs with the same lead.

    O(n^2) in the samples.

    `waits_s`: samples of the wait, shape (n,).
    `leg_s`: seconds that a leg may last.
    `saves_s`: seconds that a leg takes to save its state.
    `price`: how many percent of makespan one percent of core-hours is worth.

    Examples
    --------
    >>> best_lead(np.full(9, 600.0), 86400, 60).lead_s
    600.0
    """
    works = max(leg_s - saves_s, 1.0)
    waits_s = np.minimum(waits_s, works)
    leads = np.unique(np.concatenate([[0.0], waits_s]))
    early = np.maximum(leads[:, None] - waits_s, 0.0)
    gap = np.maximum(waits_s - leads[:, None], 0.0).mean(axis=1)
    worked = np.maximum(works - early, 1.0).mean(axis=1)
    overlaps = saves_s * (waits_s < leads[:, None]).mean(axis=1)
    lost = (saves_s + gap + price * (saves_s + overlaps)) / worked
    at = int(np.argmin(lost))
    in_time = float(((waits_s <= leads[at]) & (waits_s < works)).mean())
    return Lead(float(leads[at]), in_time, float(gap[at]), float(worked[at]))


@dataclass(frozen=True, slots=True)
class Running:
    """A running leg whose successor is to be submitted.

    `view`: the state of the run.
    `stage`: the state of its stage.
    `forecast`: the predicted waits.
    `saves_s`: how long its legs take to save their state, in seconds; None if not known.
    `price`: the price of core-hours; see `best_lead`.
    """

    view: RunView
    stage: StageView
    forecast: Forecast
    saves_s: float | None = None
    price: float = _FAIR

    @property
    def terms(self) -> Continuation:
        """Rules by which its stage is split into legs."""
        return self.stage.stage.continues or Continuation()

    @property
    def number(self) -> int:
        """Its number among all legs of the stage."""
        return self.stage.earlier_legs + self.stage.leg

    @property
    def ends_s(self) -> float:
        """Time at which it must begin to save its state."""
        limit_s = self.stage.limit_s
        return (self.view.now_s if limit_s is None else limit_s) - self.terms.warn_s

    @property
    def ready_s(self) -> float:
        """Time from which the leg may be signalled; a leg that has just begun has no new state to save."""
        began_s = self.stage.leg_start_s
        return (self.view.now_s if began_s is None else began_s) + self.terms.warn_s

    def asked(self, at_s: float, keep: Keep, text: str, forecast: WaitForecast | None = None) -> PlannedJob:
        """Plan the next leg for a submission at the given time."""
        name, leg = self.stage.stage.name, self.stage.leg + 1
        text = f"leg {self.number + 1}, {text}"
        return PlannedJob((name,), max(at_s, self.view.now_s), keep, text, forecast, self.ends_s, leg=leg)

    @property
    def does_the_rest(self) -> bool:
        """Whether this leg is expected to complete the stage."""
        stage, whole = self.stage, self.stage.stage
        if whole.expected_run_s is None or stage.leg_start_s is None:
            return False
        worked_s = stage.ran_s + max(self.view.now_s - stage.leg_start_s, 0.0)
        if worked_s >= whole.expected_run_s:
            return False  # the leg already takes longer than expected
        left_s = whole.expected_run_s * max(_SLACK, math.exp(_SIGMAS * whole.run_spread)) - worked_s
        return self.view.now_s + left_s <= self.ends_s


NextLeg = Callable[[Running], PlannedJob | None]
"""Plans the next leg while a leg runs; None if no leg is to be submitted."""


def ahead(leg: Running) -> PlannedJob | None:
    """Submit the next leg early enough to take over in time; with a dependency if the running leg gets no signal."""
    if not leg.terms.hands_over:
        return behind(leg, ", which is not signalled before its end: with `warn` the next one can take over")
    stage, warn_s = leg.stage, leg.terms.warn_s
    forecast = leg.forecast.predict((stage.stage.name,), leg.ends_s)
    saves_s = warn_s if leg.saves_s is None else min(leg.saves_s, warn_s)
    waits_s = np.array([forecast.at(float(level)) for level in _LEVELS])
    lead = best_lead(waits_s, stage.stage.walltime_s - warn_s + saves_s, saves_s, leg.price)
    text = (
        f"{format_duration(lead.lead_s)} before leg {leg.number} has to save its state; it takes over when it starts, "
        f"{lead.in_time:.0%} in time, {wait_in_words(leg.forecast, forecast.wait_s)}"
    )
    at_s = max(leg.ends_s - lead.lead_s, leg.ready_s)
    can_age = leg.view.capabilities.age_accrues and DependencyType.AFTER in leg.view.capabilities.dependency_types
    if can_age and at_s > leg.view.now_s and stage.limit_s is not None:
        # start of the running job, from which a delayed dependency counts: the next leg gains priority while it waits
        began_s = stage.limit_s - stage.stage.walltime_s
        aged = leg.asked(leg.view.now_s, Keep.DEPENDENCY, text, forecast)
        return replace(aged, delay_s=max(at_s - began_s, 1.0))
    return leg.asked(at_s, Keep.NOTHING, text, forecast)


def behind(leg: Running, why: str = "") -> PlannedJob | None:
    """Submit the next leg at once, with a dependency on the end of the running leg."""
    if DependencyType.AFTERANY not in leg.view.capabilities.dependency_types:
        return None
    return leg.asked(leg.view.now_s, Keep.DEPENDENCY, f"behind leg {leg.number}{why}")


def in_turn(leg: Running) -> None:
    """Submit the next leg when the running one has ended."""
    del leg


def successors(
    view: RunView,
    forecast: Forecast,
    next_leg: NextLeg,
    saves_s: Callable[[str], float | None],
    price_s: float | None = None,
) -> Iterator[tuple[PlannedJob, float]]:
    """Plan the next legs of stages with a running leg, each with the time to look again. O(stages that continue).

    `saves_s`: returns how long a stage's legs take to save their state; None if not known.
    `price_s`: seconds that a core-hour is worth; None for the default price.
    """
    for name in view.workflow.continuing if next_leg is not in_turn else ():
        stage = view.stages[name]
        legs = stage.stage.continues
        if legs is None or stage.phase is not Phase.RUNNING or stage.job_id is None or stage.next_job_id is not None:
            continue
        if stage.limit_s is None or stage.is_unyielding or stage.earlier_legs + stage.leg >= legs.max_legs:
            continue
        cores = stage.stage.cores_on(view.capabilities.cores_per_node)
        price = _FAIR if price_s is None else price_s * cores / 3600
        leg = Running(view, stage, forecast, saves_s(name), price)
        if not leg.does_the_rest and (found := next_leg(leg)) is not None:
            until_s = found.submit_s - view.now_s
            often_s = max(until_s / _LOOKS, stage.stage.walltime_s / _LOOKS_A_LEG)
            yield found, view.now_s + min(until_s, often_s)
