"""Measures the value of each part of the `ppo` agent: one after the other is left out, and the rest is tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from asa.backends.dras.network import Floats
from asa.backends.dras.patient import Oldest, Patient
from asa.backends.dras.ranking import COLUMNS, RankJudge, first_ranks
from asa.backends.dras.rewards import Capability, Capacity, Cost, Forgone, Waiting
from asa.backends.dras.scheduler import First, TwoLevels
from asa.backends.dras.state import Integers
from asa.backends.simulated.policies import PassScheduler, Policy, QueueView, sjf
from asa.studies.dras.training import PHASES, PROXIMAL_SMALL, Config, Phase, Training

from .evaluation import MethodOutcome, Split, evaluate

FULL: Final = "full"
UNBOUNDED: Final = 1e9
"""A patience that no job's wait reaches."""
_REQUEST: Final = COLUMNS.index("logarithm of the request")

BRIEF: Final = replace(PROXIMAL_SMALL, sampled=1, real=2, synthetic=4, jobs=500, exams=1)
"""Configuration of these trainings: about a tenth of `PROXIMAL_SMALL`."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A training that differs from the full one."""

    words: str
    cost: Cost = field(default_factory=Waiting)
    # phases; a single one has as many sets as all have otherwise, or as many as exist
    order: tuple[Phase, ...] = PHASES
    how: Mapping[str, Any] = field(default_factory=dict)  # changed fields of `ProximalLearning`


def _without(text: str, *columns: int) -> Variant:
    return Variant(f"not shown {text}", how={"unseen": tuple(COLUMNS[column] for column in columns)})


ABLATION: Final[Mapping[str, Variant]] = {
    FULL: Variant("the whole agent"),
    "no-bound": Variant("nobody is ever overdue, in training too", how={"patience": UNBOUNDED}),
    "kept": Variant("a reservation stands until its job starts, as in the paper", how={"keeps": True}),
    "no-level-2": Variant("nothing starts beside a reservation", how={"fills": False}),
    "real-only": Variant("no curriculum: parts of the log only", order=("real",)),
    "synthetic-only": Variant("no curriculum: sets of the model only", order=("synthetic",)),
    "hours": Variant("pays for hours of waiting only (waiting:1,0)", Waiting(1.0, 0.0)),
    "requests": Variant("pays for waiting in requests only, as in the slowdown (waiting:0,1)", Waiting(0.0, 1.0)),
    "capacity": Variant("pays by Equation 2", Forgone(Capacity())),
    "capability": Variant("pays by Equation 1", Forgone(Capability())),
    "no-job": _without("a job's size, request and work", 0, 1, 2, 9),
    "no-wait": _without("how long jobs have waited", 3, 4, 5),
    "no-fit": _without("whether and when jobs fit", 6, 7, 8),
    "no-hole": _without("of the hole before a reservation", 10, 11, 12, 13, 14),
    "no-load": _without("of the machine, the queue and the backlog", 15, 16, 17, 21),
    "no-others": _without("how jobs compare with others", 18, 19, 20),
}
"""The trainings, by name."""

UNTRAINED: Final[Mapping[str, str]] = {
    "full-unbounded": "the whole agent, which then acts without the bound",
    "untrained": "the ranks that learning begins with",
    "untrained-unbounded": "the same, without the bound",
    "by-request": "the shortest request first, with the same bound, and level 2",
    "oracle": "the shortest run time first, which nobody knows before, with the same bound, and level 2",
    "sjf": "the shortest request first, with EASY backfilling and no bound",
    "fcfs-easy": "in order of age, with EASY backfilling",
}
"""Schedulers that are tested in addition, by name."""


class _ByRequest:
    """Chooses the job with the shortest walltime."""

    def choose(self, situation: Floats) -> int:
        return int(situation[:, _REQUEST].argmin())


class _RunTimeOracle(Patient):
    """Chooses the job with the shortest run time: the bound of what an agent that knew run times could learn."""

    def __init__(self, runs_s: Integers, **others: Any) -> None:
        super().__init__(Oldest(), window=0, **others)
        self._runs_s = runs_s

    def _best(self, view: QueueView, offered: Integers) -> int:
        del view
        return int(self._runs_s[offered].argmin())


def ablation(
    tested: Split, config: Config = BRIEF, *, seeds: int = 2, names: Sequence[str] | None = None
) -> Iterator[MethodOutcome]:
    """Train variants, and test each on days that none has seen.

    `names`: keys of `ABLATION` and `UNTRAINED`; by default all. The full agent is always trained, since the others are
    compared with it.
    """
    wanted = [*ABLATION, *UNTRAINED] if names is None else names
    material = tested.material

    def test(scheduler: PassScheduler | Policy, name: str, seed: int = 0) -> MethodOutcome:
        return evaluate(tested.test, material.nodes, scheduler, name, seed)

    for name, variant in ABLATION.items():
        if name not in wanted and name != FULL:
            continue
        for seed in range(seeds):
            training = Training(
                material, _sized(config, variant), kind="ppo", cost=variant.cost, order=variant.order, seed=seed
            )
            for _ in training:
                pass
            assert training.best is not None
            judge = RankJudge(training.best.parameters)
            how = replace(config.proximal, **{"usual_s": material.usual_s, **variant.how})
            yield test(how.scheduler(judge), name, seed)
            if name == FULL and "full-unbounded" in wanted:
                yield test(Patient(judge, patience=UNBOUNDED), "full-unbounded", seed)
    bounded = replace(config.proximal, usual_s=material.usual_s)
    bound: dict[str, Any] = {"patience": bounded.patience, "usual_s": bounded.usual_s}
    first = RankJudge(first_ranks(np.random.Generator(np.random.PCG64(0))))
    others: dict[str, Callable[[], PassScheduler | Policy]] = {
        "untrained": lambda: bounded.scheduler(first),
        "untrained-unbounded": lambda: Patient(first, patience=UNBOUNDED),
        "by-request": lambda: Patient(_ByRequest(), window=0, **bound),
        "oracle": lambda: _RunTimeOracle(tested.test.run, **bound),
        "sjf": sjf,
        "fcfs-easy": lambda: TwoLevels(First(), window=0),
    }
    for name, make in others.items():
        if name in wanted:
            yield test(make(), name)


def _sized(config: Config, variant: Variant) -> Config:
    """Return a single phase as many sets as all phases have together."""
    if len(variant.order) == 1:
        total = config.sampled + config.real + config.synthetic
        config = replace(config, sampled=total, real=total, synthetic=total)
    return replace(config, proximal=replace(config.proximal, **variant.how))
