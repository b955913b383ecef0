"""The runs of `asa experiment legs`: one long computation on real logs, under each rival in the same worlds.

A computation of several legs begins at a time of the log. Each hand-over from one leg to the next is judged: for how
long nothing runs (the interruption), and for how long two jobs hold their cores (the overlap). A leg that can be
signalled saves its state in `SAVES_S` seconds when the next one starts. If it cannot, the next leg waits idle until it
ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Unpack, cast

import numpy as np

from asa.backend import Foresight, JobSpec, JobState, Site
from asa.continuation import Continuation
from asa.core import plugins
from asa.errors import InputError, RunError, near
from asa.estimators import WaitBank
from asa.records import Ended
from asa.runner import Run, RunResult, run_all
from asa.strategies import Strategy, load_strategy
from asa.strategies.base import Forecast, ForecastKind, Keep, Plan, PlannedJob, RunView
from asa.strategies.legs import NextLeg, Running, ahead
from asa.studies.harness import How, Kind, code_digest, digest, fill
from asa.studies.runs import Known, each_knowing
from asa.workflow import Stage, Workflow

SAVES_S = 120.0
"""Time that a leg takes to save its state, in seconds."""

_HISTORY = 2000
_TIMES = 65  # number of times at which an oracle may submit the next leg
_LEAD_S = 86_400.0  # a run for a given hand-over begins this long before its first leg is to start
_WEIGHED_LEVEL = 0.55  # level at which a second of interruption costs as much as 1.25 s of overlap


@dataclass(frozen=True, slots=True)
class Rival(Strategy):
    """Asks for the first leg as Per-Stage does, and for each next leg by a function."""

    next_leg: NextLeg
    forecast = ForecastKind.LEARNED

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Ask for the next leg that is due."""
        return load_strategy("per-stage").plan(view, forecast)


def _early(leg: Running, lead_s: float, text: str) -> PlannedJob:
    return leg.asked(max(leg.ends_s - lead_s, leg.ready_s), Keep.NOTHING, text)


def _by_mean(leg: Running) -> PlannedJob:
    found = leg.forecast.predict((leg.stage.stage.name,), leg.ends_s)
    return _early(leg, found.wait_s, "the mean wait ahead")


def _by_median(leg: Running) -> PlannedJob:
    found = leg.forecast.predict((leg.stage.stage.name,), leg.ends_s)
    return _early(leg, found.at(0.5), "as soon as the predicted wait is that long")


def _weighed(leg: Running) -> PlannedJob:
    found = leg.forecast.predict((leg.stage.stage.name,), leg.ends_s)
    return _early(leg, found.at(_WEIGHED_LEVEL), "where an interruption and idle cores weigh as much")


class _LegOracle:
    """Asks for the next leg just in time to start before the running leg ends; if it cannot, at once."""

    def __init__(self, world: Foresight) -> None:
        self._world = world
        self._found: dict[int, float] = {}  # by leg: when to ask for the next one

    def __call__(self, leg: Running) -> PlannedJob:
        number, stage = leg.stage.leg, leg.stage.stage
        if number not in self._found:
            spec = JobSpec("next", stage.cores or 1, stage.walltime_s, run_s=stage.walltime_s)
            first_s, last_s = max(leg.view.now_s, leg.ready_s), leg.ends_s

            def is_late(at_s: float) -> bool:
                return self._world.foresee_start(spec, at_s) > last_s

            times = np.linspace(first_s, last_s, _TIMES).tolist()
            self._found[number] = times[max(bisect_left(times, x=True, key=is_late) - 1, 0)]
        return leg.asked(self._found[number], Keep.NOTHING, "as late as it is in time")


@dataclass(frozen=True, slots=True)
class LegsRival:
    """A rival: how to make it, its estimator, and whether its legs can be signalled to end."""

    make: Callable[[Foresight], Strategy]
    estimator: str = "mean"
    hands_over: bool = False
    text: str = ""


WAYS: Mapping[str, LegsRival] = {
    "reactive": LegsRival(lambda _: load_strategy("per-stage"), text="when a leg has ended"),
    "mean": LegsRival(lambda _: Rival(_by_mean), text="the mean of the waits ahead"),
    "at-once": LegsRival(lambda _: load_strategy("chained"), text="at once, behind the leg that runs"),
    "trees": LegsRival(lambda _: Rival(_by_median), "asa-queue-boost", text="boosted trees on the queue and the past"),
    "asa-waits": LegsRival(lambda _: Rival(_weighed), "asa-queue", text="asa's forecasts, without hand-over"),
    "asa": LegsRival(lambda _: Rival(ahead), "asa-queue", hands_over=True, text="asa"),
    "oracle": LegsRival(lambda world: Rival(_LegOracle(world)), hands_over=True, text="knows the wait, and takes over"),
}
"""The rivals, by name."""


@dataclass(frozen=True, slots=True)
class LegCell:
    """A unit of work: all starts of one rival."""

    trace: str
    cores: int
    leg_s: float
    age_accrues: bool
    way: str
    legs: int
    starts: int
    since_s: float | None  # time of the first hand-over, on the log's clock; None for starts that are drawn
    every_s: float
    recorded: bool
    log: str  # digest of the log; `code`: of all code
    code: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """A change from one leg to the next."""

    trace: str
    cores: int
    age_accrues: bool
    way: str
    start: int
    number: int
    interruption_s: float
    overlap_s: float  # during which two jobs hold their cores
    held_s: float  # seconds for which the leg held them
    makespan_s: float  # of the whole run, from the start of the first leg


@dataclass(frozen=True, slots=True)
class LegQuestion:
    """The parameters of the study."""

    traces: tuple[Path, ...]
    cores: tuple[int, ...]
    leg_s: float
    ages: tuple[bool, ...] = (False, True)
    ways: tuple[str, ...] = tuple(WAYS)
    legs: int = 3
    starts: int = 24
    since_s: float | None = None
    every_s: float = 4 * 3600.0
    recorded: bool = False  # jobs wait as recorded in the log, instead of in a replay

    def cells(self) -> list[LegCell]:
        """Return all units of work."""
        if self.starts < 2 or not self.traces or not self.cores or self.legs < 2:
            hint = "Give a log, cores, at least two legs and two starts."
            raise InputError("there is nothing to compare", hint=hint)
        if unknown := next((way for way in self.ways if way not in WAYS), ""):
            raise InputError(f"{unknown!r} is no rival", hint=f"{near(unknown, WAYS)}Known: {', '.join(WAYS)}.")
        if self.leg_s < 10 * SAVES_S:
            raise InputError(f"legs of {self.leg_s:g} s are too short", hint=f"Give {10 * SAVES_S:g} or more.")
        code = code_digest([("asa.strategies", "per-stage"), ("asa.estimators", "asa-queue-boost")])
        cells = []
        for trace in self.traces:
            machine = _site(str(trace), None, 0.0, 0).capabilities.max_cores
            if max(self.cores) > machine:
                raise InputError(f"{max(self.cores)} cores are more than its {machine}", where=str(trace))
            log = digest([trace])
            cells += [
                LegCell(
                    str(trace),
                    cores,
                    self.leg_s,
                    age,
                    way,
                    self.legs,
                    self.starts,
                    self.since_s,
                    self.every_s,
                    self.recorded,
                    log,
                    code,
                )
                for cores in self.cores
                for age in self.ages
                for way in self.ways
            ]
        return cells


@lru_cache(maxsize=4)
def _site(
    trace: str,
    since_s: float | None,
    every_s: float,
    starts: int,
    *,
    age_accrues: bool = False,
    recorded: bool = False,
) -> Site:
    site = plugins.load("asa.backends", "as-recorded" if recorded else "simulated")(
        trace=trace, age_accrues=age_accrues
    )
    if since_s is not None:
        site.arrive(since_s + number * every_s for number in range(starts))
    return cast("Site", site)


def compare_ways(question: LegQuestion, kept: Path | None = None, **how: Unpack[How]) -> list[HandOver]:
    """Run every cell whose runs are not kept already; see `asa.studies.harness.fill`."""
    outcomes = fill(question.cells(), Kind(run_cell, LegCell, HandOver), kept, **how)
    return [hand_over for of in outcomes.values() for hand_over in of]


def chain(cores: int, leg_s: float, legs: int, *, hands_over: bool) -> Workflow:
    """Return a workflow that is one long computation."""
    terms = Continuation.warned(f"USR1@{SAVES_S:g}s") if hands_over else Continuation()
    total_s = (legs - 0.5) * leg_s
    terms = replace(terms, max_legs=1000)
    stage = Stage("train", cores=cores, walltime_s=leg_s, expected_run_s=total_s, command="train", continues=terms)
    return Workflow("chain", [stage])


def run_cell(cell: LegCell) -> list[HandOver]:
    """Run all starts of a rival."""
    since_s = None if cell.since_s is None else cell.since_s - cell.leg_s - _LEAD_S
    how = {"age_accrues": cell.age_accrues, "recorded": cell.recorded}
    site, way = _site(cell.trace, since_s, cell.every_s, cell.starts, **how), WAYS[cell.way]
    site.prepare(range(cell.starts))
    bank = WaitBank(way.estimator, machine_cores=site.capabilities.max_cores)

    def runs(known: Known) -> list[HandOver]:
        world, own = known.begin()
        flow = chain(cell.cores, cell.leg_s, cell.legs, hands_over=way.hands_over)
        [result] = run_all(
            world, [Run(flow, way.make(cast("Foresight", world)), bank=own)], history=_HISTORY, is_followed=True
        )
        if result.outcome != "completed":
            where = f"{cell.trace}, {cell.way}, start {known.seed}"
            raise RunError(f"did not complete: {result.reason}", where=where, hint="Give longer legs.")
        system = site.capabilities.system + ", waits as recorded" * cell.recorded
        return _hand_overs(cell, system, known.seed, result)

    found = each_knowing(site, range(cell.starts), bank, _HISTORY, runs)
    return [hand_over for of in found for hand_over in of]


def _legs(result: RunResult) -> list[Ended]:
    """Return the jobs that ran a leg, in order."""
    jobs = [record for record in result.records if isinstance(record, Ended) and record.payload_start_s is not None]
    ran = [job for job in jobs if job.state is not JobState.CANCELLED]
    return sorted(ran, key=lambda job: job.payload_start_s or 0.0)


def _hand_overs(cell: LegCell, system: str, seed: int, result: RunResult) -> list[HandOver]:
    """Return the changes from one leg to the next."""
    legs = _legs(result)
    makespan_s = legs[-1].time_s - (legs[0].start_s or 0.0)
    found = []
    for number, (before, after) in enumerate(pairwise(legs), start=1):
        started_s, began_s = after.start_s or 0.0, after.payload_start_s or 0.0
        interruption_s, overlap_s = max(started_s - before.time_s, 0.0), max(began_s - started_s, 0.0)
        held_s = before.time_s - (before.start_s or 0.0)
        of = (system, cell.cores, cell.age_accrues, cell.way, seed, number)
        found.append(HandOver(*of, interruption_s, overlap_s, held_s, makespan_s))
    return found
