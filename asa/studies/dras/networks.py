"""The networks of Table III, and how long they take to decide and to learn (Section V-E)."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from asa.backends.dras.network import Kind, NetworkSize
from asa.backends.dras.rewards import Capability
from asa.backends.dras.scheduler import TwoLevels
from asa.backends.dras.scoring import run
from asa.backends.dras.state import Integers
from asa.backends.simulated.policies import QueueView

from .learners import PolicyGradient, QLearning, learner
from .paper import TABLE_III
from .training import PHASES, Config, Material, Phase, sets_of

NETWORKS: Final[tuple[Kind, ...]] = ("pg", "dql")


@dataclass(frozen=True, slots=True)
class DescribedNetwork:
    """A network's size and speed."""

    agent: str
    rows: int  # of the input, each of two numbers
    hidden: tuple[int, int]
    outputs: int
    parameters: int
    papers: int | None  # parameters by Table III; None of other machines and layers
    # median times of choosing a job, and of an update, and the number of updates; None if not measured
    decision_s: float | None = None
    update_s: float | None = None
    updates: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the network as JSON-ready data."""
        return asdict(self)


def describe_network(kind: Kind, nodes: int, config: Config) -> DescribedNetwork:
    """Describe the network of an agent for a machine."""
    size = NetworkSize(kind, nodes, config.window, config.hidden)
    papers = TABLE_III.get((kind, nodes, size.hidden))
    return DescribedNetwork(kind, size.rows, size.hidden, size.outputs, size.parameters, papers)


def jobs_of(material: Material, config: Config) -> dict[Phase, list[int]]:
    """Return the number of jobs in each set of a training, by phase."""
    counts: dict[Phase, list[int]] = {phase: [] for phase in PHASES}
    for phase, number in sets_of(material, config):
        table = material.jobs(phase, number, count=config.jobs, seed=0, days=config.days)
        counts[phase].append(len(table))
    return counts


def measure(network: DescribedNetwork, kind: Kind, material: Material, config: Config, jobs: int) -> DescribedNetwork:
    """Measure decisions and updates while an agent learns from sampled jobs, which it selects one by one."""
    size = NetworkSize(kind, material.nodes, config.window, config.hidden)
    clocked = _Clocked(learner(size, config.how, scale_s=config.scale_s))
    table = material.jobs("sampled", 0, count=jobs, seed=0)
    run(table, material.nodes, TwoLevels(clocked, window=config.window, reward=Capability()))
    return replace(
        network,
        decision_s=statistics.median(clocked.decisions_s),
        update_s=statistics.median(clocked.updates_s) if clocked.updates_s else None,
        updates=len(clocked.updates_s),
    )


class _Clocked:
    """A learner whose decisions and updates are timed."""

    def __init__(self, student: PolicyGradient | QLearning) -> None:
        self._student = student
        self.decisions_s: list[float] = []
        self.updates_s: list[float] = []

    def choose(self, view: QueueView, jobs: Integers) -> int:
        began = time.perf_counter()
        chosen = self._student.choose(view, jobs)
        self.decisions_s.append(time.perf_counter() - began)
        return chosen

    def credit(self, reward: float) -> None:
        self._student.credit(reward)

    def end_instance(self) -> None:
        began, before = time.perf_counter(), self._student.updates
        self._student.end_instance()
        if self._student.updates > before:
            self.updates_s.append(time.perf_counter() - began)
