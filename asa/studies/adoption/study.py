"""The runs of `asa experiment adoption`: the same weeks of a log, with more and more users who use asa.

A draw is some weeks of the log, an order in which users begin to use asa, and which of their programs are moldable. At
every share of users the same jobs are submitted by the same users; each share is compared with share 0, draw by draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack, cast

from asa.core import plugins
from asa.errors import InputError
from asa.strategies.racing import Races
from asa.studies.adoption.habits import MODELS, WAYS, Habits, Model
from asa.studies.harness import How, Kind, code_digest, digest, fill

SHARES = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class AdoptionCell:
    """A unit of work: one draw, with every share of users."""

    trace: str
    model: Model
    draw: int
    shares: str  # ascending, from 0 on, separated by commas
    weeks: float
    ways: str  # separated by commas
    parts: int
    max_racers: int
    age_accrues: bool
    estimator: str
    log: str  # digest of the log; `code`: of all code
    code: str


@dataclass(frozen=True, slots=True)
class AdoptionRun:
    """A world in which a share of the users uses asa. Waits and makespans are in seconds."""

    trace: str
    model: str
    age_accrues: bool
    draw: int
    share: float
    adopters: int  # number of users who use asa
    jobs_share: float  # the share of all jobs, and of all core-hours, that is theirs
    work_share: float
    # makespan over that at share 0 of their chains with a job in one of asa's ways: geometric mean; 1 if there are none
    makespan: float
    others: int  # number of others' jobs
    wait_s: float  # mean wait of others' jobs, and their bounded slowdown
    slowdown: float
    wait_before_s: float  # the same of the same jobs at share 0
    slowdown_before: float
    utilisation: float
    idle: float  # the share of the used core-hours in which jobs waited for others to end
    submissions_h: float  # of all users, an hour
    cancellations_h: float
    queue_variance: float  # variance, over hours, of the number of pending jobs that could start
    covered: float  # share of the predicted waits of others that were at most their p90


@dataclass(frozen=True, slots=True)
class AdoptionQuestion:
    """The parameters of the study."""

    traces: tuple[Path, ...]
    models: tuple[str, ...] = MODELS
    shares: tuple[float, ...] = SHARES
    draws: int = 20
    weeks: float = 4.0
    ways: tuple[str, ...] = tuple(WAYS)
    parts: int = Habits().parts
    max_racers: int = Races().max_racers
    age_accrues: bool = True
    estimator: str = "asa"

    def cells(self) -> list[AdoptionCell]:
        """Return all units of work. Those of a log and a model are together, so that it is read once."""
        if self.draws < 2 or not self.traces or not self.models:
            raise InputError("there is nothing to compare", hint="Give a log, a model, and at least two draws.")
        _check(self.models, MODELS, "model", "--models")
        _check(self.ways, tuple(WAYS), "way of asking", "--ways")
        if not self.shares or not all(0 <= share <= 1 for share in self.shares):
            raise InputError("shares are from 0 to 100 %", where="--shares", hint="As in 5,25,100.")
        plugins.load("asa.estimators", self.estimator)
        shares = ",".join(f"{share:g}" for share in sorted({0.0, *self.shares}))
        code = code_digest([("asa.estimators", self.estimator)])
        rest = shares, self.weeks, ",".join(self.ways), self.parts, self.max_racers, self.age_accrues, self.estimator
        return [
            AdoptionCell(str(trace), cast("Model", model), draw, *rest, digest([trace]), code)
            for trace in self.traces
            for model in self.models
            for draw in range(self.draws)
        ]


def _check(names: Sequence[str], known: Sequence[str], what: str, where: str) -> None:
    if unknown := next((name for name in names if name not in known), None):
        raise InputError(f"{unknown!r} is no {what}", where=where, hint=f"Known: {', '.join(known)}.")


def compare_shares(question: AdoptionQuestion, kept: Path | None = None, **how: Unpack[How]) -> list[AdoptionRun]:
    """Run every cell whose runs are not kept already; see `asa.studies.harness.fill`."""
    run_cell = plugins.load("asa.evaluations", "adoption")  # it needs a simulator, which none of the core imports
    outcomes = fill(question.cells(), Kind(run_cell, AdoptionCell, AdoptionRun), kept, **how)
    return [run for runs in outcomes.values() for run in runs]
