"""Splits a log by time, and compares schedulers on the part that none has learned from (Sections IV-E and V)."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asa.backends.dras.patient import Patient
from asa.backends.dras.ranking import RankJudge, first_ranks
from asa.backends.dras.rewards import Reward, described_reward
from asa.backends.dras.rivals import Knapsack, bin_packing, random_fit
from asa.backends.dras.scheduler import First, Mode, Selecting, TwoLevels
from asa.backends.dras.scoring import run, slowdowns
from asa.backends.dras.weights import Agent, Ranked
from asa.backends.simulated.fit import fit
from asa.backends.simulated.policies import PassScheduler, Policy, easy, sjf, wfp
from asa.backends.simulated.swf import Trace
from asa.backends.simulated.table import JobTable
from asa.errors import InputError
from asa.studies.dras.learners import Learning, learner
from asa.studies.dras.ppo import Proximal, ProximalLearning
from asa.studies.dras.training import Material, Varied, add_jobs

RIVALS: Final = ("fcfs-easy", "sjf", "wfp", "bin-packing", "random", "optimization", "untrained")
"""The rivals of agents. `untrained` is `Patient` with the initial ranks of learning."""

_DAY_S = 86400
_WEEK_S = 7 * _DAY_S
_MONDAY_S = 4 * _DAY_S  # 1970-01-05
_SIZES = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
_KEPT = ("users", "groups", "queues", "partitions", "memory_kb", "wait_s", "job_ids")


@dataclass(frozen=True)
class Split:
    """A log in three parts, in order of time."""

    name: str
    # for learning and for choosing agents: the first part, with a model fitted to it, and the second
    material: Material
    test: JobTable  # the rest; its first day is counted as day `from_day` of the log
    from_day: int
    jobs: JobTable
    clock_s: int = 0  # local time at second 0 of `jobs`, as in `Trace`

    def digest(self, days: int) -> str:
        """Return a digest of the jobs in the log's first days; it does not depend on the log's name and beginning."""
        return _digest(self.jobs, days)


@dataclass(frozen=True, slots=True)
class WidthPart:
    """Waits of jobs whose width is a share of the machine above `above`, up to `to`."""

    above: float  # shares of the machine, from 0 to 1
    to: float
    jobs: int
    mean_wait_s: float
    max_wait_s: int


@dataclass(frozen=True, slots=True)
class ModeShare:
    """Jobs that started in one mode: their shares of all jobs and of the core-hours, and their mean wait."""

    mode: str
    jobs: float  # shares, from 0 to 1
    core_hours: float
    mean_wait_s: float


@dataclass(frozen=True, slots=True)
class Week:
    """Jobs submitted in a week: core-hours of their runs, and their mean wait."""

    number: int
    core_hours: float
    mean_wait_s: float


@dataclass(frozen=True, slots=True)
class MethodOutcome:
    """The outcome of the test jobs under a method."""

    method: str
    run: int  # number of the run with this method, from 0
    mean_wait_s: float
    max_wait_s: int
    response_s: float
    slowdown: float
    utilisation: float
    by_size: tuple[WidthPart, ...]  # waits by width (Fig. 7)
    modes: tuple[ModeShare, ...]  # how jobs started (Table IV, Fig. 8); empty if the method does not report it
    weeks: tuple[Week, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON-ready data."""
        return asdict(self)


def trace_of(table: JobTable, nodes: int, name: str) -> Trace:
    """Return a log of given jobs, without users, which begins on a Monday, as models do."""
    unknown = np.full(len(table), -1, dtype=np.int32)
    ids = np.arange(1, len(table) + 1)
    others = (unknown, unknown, unknown, unknown, unknown.astype(int), unknown)
    return Trace(Path(name), nodes, table, ids, {}, *others, clock_s=_MONDAY_S)


def split(trace: Trace, *, train_days: int = 90, validate_days: int = 30) -> Split:
    """Split a log into parts for learning, for choosing agents, and for testing them.

    The model of synthetic jobs is fitted only to the first part. A job belongs to the part in which it is submitted.
    """
    table, days = trace.table, (train_days, train_days + validate_days)
    begin = int(table.submit[0]) if len(table) else 0
    day = (table.submit - begin) // _DAY_S
    masks = [day < days[0], (day >= days[0]) & (day < days[1]), day >= days[1]]
    if min(train_days, validate_days) < 1 or not all(mask.any() for mask in masks):
        last = f"{int(day[-1]) + 1} days" if len(table) else "no jobs"
        raise InputError(
            f"the log has {last}, and {days[0]} are to be learned from, and {validate_days} to choose by",
            where=str(trace.path),
            hint="Give fewer (--train-days, --validate-days), 1 or more of each, so that some are left to test on.",
        )
    first, validation, test = (_rows(table, mask) for mask in masks)
    early = {name: getattr(trace, name)[masks[0]] for name in _KEPT}
    model = fit(dataclasses.replace(trace, table=first, **early))
    name = trace.path.name
    source = f"{name}: days 1 to {days[0]}, chosen by the {validate_days} after these"
    seen = _from_nothing(_rows(table, ~masks[2]))
    usual_s = int((run(seen, trace.cores, easy()) - seen.submit).max())
    material = Material(
        trace.cores,
        first,
        _from_nothing(validation),
        Varied(model),
        source,
        days[1],
        usual_s,
        _digest(table, days[1]),
    )
    return Split(name, material, _from_nothing(test), days[1], table, trace.clock_s)


def check_unseen(agent: Agent | Ranked, tested: Split, where: str) -> None:
    """Refuse an agent that has seen jobs on which it is to be tested.

    The log is recognized by its jobs; by its name if an agent's file does not say which jobs it has seen.

    Raises `InputError`: the agent learned from this log, or was chosen by it, up to a later day than the test begins.
    """
    if agent.seen_days <= tested.from_day:
        return
    if agent.seen == tested.digest(agent.seen_days) if agent.seen else agent.source.startswith(f"{tested.name}:"):
        raise InputError(
            f"has seen the log's first {agent.seen_days} days, and the test begins after {tested.from_day}",
            where=where,
            hint="Give the same --train-days and --validate-days as for its training.",
        )


def rivals(objective: Reward, seed: int = 0, *, usual_s: int = 0) -> Mapping[str, Callable[[], PassScheduler | Policy]]:
    """Return functions that make each of `RIVALS`."""
    ranks = first_ranks(np.random.Generator(np.random.PCG64(0)))
    return {
        "fcfs-easy": lambda: TwoLevels(First(), window=0),
        "sjf": sjf,
        "wfp": wfp,
        "bin-packing": bin_packing,
        "random": lambda: random_fit(seed=seed),
        "optimization": lambda: Knapsack(objective, window=50),
        "untrained": lambda: Patient(RankJudge(ranks), usual_s=usual_s),
    }


def evaluate(
    table: JobTable, nodes: int, scheduler: PassScheduler | Policy, method: str, number: int = 0
) -> MethodOutcome:
    """Schedule test jobs on an empty machine, and measure the outcome."""
    start = run(table, nodes, scheduler)
    waits = start - table.submit
    work = table.run * table.cores
    ends = start + table.run
    week = (table.submit - table.submit[0]) // _WEEK_S
    return MethodOutcome(
        method,
        number,
        mean_wait_s=float(waits.mean()),
        max_wait_s=int(waits.max()),
        response_s=float((waits + table.run).mean()),
        slowdown=float(slowdowns(table, waits).mean()),
        utilisation=float(work.sum() / (nodes * int(ends.max() - table.submit[0]))),
        by_size=_by_size(table.cores / nodes, waits),
        modes=_by_mode(getattr(scheduler, "modes", {}), waits, work),
        weeks=tuple(
            Week(int(n), float(work[week == n].sum() / 3600), float(waits[week == n].mean())) for n in np.unique(week)
        ),
    )


def adapting(agent: Agent | Ranked, table: JobTable, nodes: int, *, seed: int = 0) -> Selecting:
    """Return a scheduler whose agent continues to learn while it schedules the test jobs (Section V-D).

    The paper's agents learn from their own choices, as in training, after every ten passes with a choice: DRAS-PG and
    Decima-PG draw by their likelihoods, DRAS-DQL no longer chooses at random. `ppo` learns once a week from the jobs of
    the week before. All know only what has happened by then: of jobs that still run, no run times.

    Raises `InputError`: as `check_adapts`.
    """
    if isinstance(agent, Ranked):
        return _Adapting(agent, table, nodes, seed)
    how, reward = _as_it_learned(agent)
    student = learner(agent.shape, how, scale_s=agent.scale_s, seed=seed, parameters=agent.parameters)
    return agent.scheduler(chooser=student, reward=reward)


def check_adapts(agent: Agent | Ranked) -> None:
    """Refuse an agent whose file does not say how it learned, so that it cannot continue to."""
    if isinstance(agent, Agent):
        _as_it_learned(agent)


def _as_it_learned(agent: Agent) -> tuple[Learning, Reward]:
    """Return how an agent continues to learn, and for which reward."""
    if agent.discount is None:
        raise InputError(
            "cannot go on to learn: its file, of an earlier version, does not say how it discounted rewards",
            where=agent.name,
            hint="Train it anew, or leave out --adapt.",
        )
    return Learning(epsilon=0.0, discount=agent.discount), described_reward(agent.reward)


class _Adapting(Patient):
    """A `ppo` agent that continues to learn; see `adapting`."""

    def __init__(self, agent: Ranked, table: JobTable, nodes: int, seed: int) -> None:
        patience, window, usual_s = agent.patience, agent.window, agent.usual_s
        super().__init__(RankJudge(agent.parameters), patience=patience, window=window, usual_s=usual_s)
        how = ProximalLearning(patience=patience, window=window, usual_s=usual_s)
        self._learner = Proximal(how, seed=seed, parameters=agent.parameters)
        self._table, self._nodes = table, nodes
        self._next = int(table.submit[0]) + _WEEK_S
        self._began: dict[int, int] = {}

    def _pass(self, view: Any) -> None:
        if view.now >= self._next:
            self._adapt(view.now)
            self._next += _WEEK_S * (1 + (view.now - self._next) // _WEEK_S)
        super()._pass(view)

    def _start(self, view: Any, job: int, mode: Mode) -> None:
        super()._start(view, job, mode)
        self._began[job] = view.now

    def _adapt(self, now: int) -> None:
        table = self._table
        ended = np.zeros(len(table), dtype=np.bool_)
        jobs = np.array([job for job in self._began if job < len(table)], dtype=np.int64)
        begun = np.array([self._began[job] for job in jobs.tolist()], dtype=np.int64)
        ended[jobs[begun + table.run[jobs] <= now]] = True
        recent = ended & (table.submit >= now - _WEEK_S)
        if recent.any():
            self._learner.practise(_from_nothing(_rows(table, recent)), self._nodes)
            self.judge = RankJudge(self._learner.parameters)


def _digest(table: JobTable, days: int) -> str:
    digest = hashlib.blake2s()
    add_jobs(digest, _from_nothing(_rows(table, table.submit - table.submit[0] < days * _DAY_S)))
    return digest.hexdigest()


def _rows(table: JobTable, mask: NDArray[np.bool_]) -> JobTable:
    return JobTable(*(column[mask] for column in (table.submit, table.run, table.request, table.cores)))


def _from_nothing(table: JobTable) -> JobTable:
    """Shift times so that the first submission is at 0."""
    return JobTable(table.submit - table.submit[0], table.run, table.request, table.cores)


def _by_size(share: NDArray[np.float64], waits: NDArray[np.int64]) -> tuple[WidthPart, ...]:
    parts = []
    for above, to in zip(_SIZES, [*_SIZES[1:], math.inf], strict=True):
        some = waits[(share > above) & (share <= to)]
        if len(some):
            parts.append(WidthPart(above, min(to, 1.0), len(some), float(some.mean()), int(some.max())))
    return tuple(parts)


def _by_mode(modes: Mapping[int, Mode], waits: NDArray[np.int64], work: NDArray[np.int64]) -> tuple[ModeShare, ...]:
    shares = []
    for mode in Mode if modes else ():
        jobs = np.array([job for job, how in modes.items() if how is mode], dtype=np.int64)
        mean = float(waits[jobs].mean()) if len(jobs) else 0.0
        shares.append(ModeShare(mode.name.lower(), len(jobs) / len(waits), float(work[jobs].sum() / work.sum()), mean))
    return tuple(shares)
