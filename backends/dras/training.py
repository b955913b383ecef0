"""Training in three phases, from simple to rare (Section III-C): sampled jobs, real weeks, synthetic weeks.

An episode is a set of jobs that the learner schedules on an empty machine. After each the agent as it then is, which
acts and does not learn, schedules a validation set that it never learns from; the best one is kept.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import PassScheduler
from asa.backends.simulated.table import NEVER, JobTable

from asa.errors import InputError, StateError

from .agents import Learning, learner
from .network import Kind, Shape
from .rewards import Capability, Reward
from .scheduler import OneLevel, TwoLevels
from .state import SCALE_S
from .weights import Agent, load_agent, read_file, save_agent, write_file

__all__ = ["PAPER", "PHASES", "SMALL", "Config", "Episode", "Material", "Phase", "Score", "Source", "Training", "score"]

Phase = Literal["sampled", "real", "synthetic"]

PHASES: Final[tuple[Phase, ...]] = ("sampled", "real", "synthetic")
"""In the paper's order."""

_WEEK_S = 7 * 86400
_SHORTEST_S = 10  # shorter runs count as so long in the bounded slowdown


class Source(Protocol):
    """A model of a workload, such as `asa.backends.simulated.fitted.FittedWorkload`."""

    def generate(self, duration_s: int, seed: int | np.random.SeedSequence) -> JobTable:
        """Draw the jobs submitted within a duration."""
        ...


@dataclass(frozen=True, slots=True)
class Config:
    """The size of a training.

    Parameters
    ----------
    hidden, window, scale_s
        Of the agent.
    sampled, real, synthetic
        Sets of jobs of each phase; of real weeks the first, or as many as there are.
    jobs
        Of a sampled set.
    patience
        In the last phase, stop after so many episodes in which no agent was better than the best.
    how
        How it is learned.
    """

    hidden: tuple[int, int]
    window: int = 50
    scale_s: int = SCALE_S
    sampled: int = 9
    real: int = 9
    synthetic: int = 82
    jobs: int = 3200
    patience: int = 30
    how: Learning = field(default_factory=Learning)

    def __post_init__(self) -> None:
        if min(self.sampled, self.real, self.synthetic) < 0 or min(self.jobs, self.patience) < 1:
            raise InputError(
                f"{self} cannot be", where="training", hint="Give numbers of sets from 0 on, others from 1."
            )


SMALL = Config((128, 64), synthetic=32, jobs=1000, patience=15, how=Learning(discount=0.9))
"""For a laptop, and small machines. Without a discount the values of DRAS-DQL grow for as long as it learns."""
PAPER = Config((4000, 1000), how=Learning(device="auto"))
"""The paper's for Theta: 100 sets, 320,000 jobs."""


@dataclass(frozen=True, slots=True)
class Material:
    """What can be learned from.

    Parameters
    ----------
    nodes
        Of the machine: what the jobs' cores count.
    training, validation
        Jobs to learn from, and to choose the best agent by.
    model
        Makes synthetic jobs like those to learn from; it must not be fitted to others. Its `repr` says which it is.
    """

    nodes: int
    training: JobTable
    validation: JobTable
    model: Source

    def weeks(self) -> list[int]:
        """Weeks of the jobs to learn from, counted from the first, in which there are any."""
        weeks: list[int] = np.unique((self.training.submit - self.training.submit[0]) // _WEEK_S).tolist()
        return weeks

    def jobs(self, phase: Phase, number: int, *, count: int, seed: int) -> JobTable:
        """Make a set of jobs; the same arguments give the same.

        Parameters
        ----------
        phase
            Of which kind.
        number
            Which of that kind, from 0; for real jobs, which week.
        count
            Jobs of a sampled set.
        seed
            Of what is drawn.
        """
        table = self.training
        drawn = np.random.SeedSequence([seed, PHASES.index(phase), number])
        if phase == "synthetic":
            return self.model.generate(_WEEK_S, drawn)
        if phase == "real":
            begin = int(table.submit[0]) + number * _WEEK_S
            rows = np.flatnonzero((table.submit >= begin) & (table.submit < begin + _WEEK_S))
            submit = table.submit[rows] - begin
        else:
            rng = np.random.Generator(np.random.PCG64(drawn))
            rows = rng.choice(len(table), size=count, replace=count > len(table))
            mean = float(table.submit[-1] - table.submit[0]) / max(len(table) - 1, 1)
            submit = np.cumsum(rng.exponential(mean, size=count)).astype(np.int64)
        return JobTable(submit, table.run[rows], table.request[rows], table.cores[rows])


@dataclass(frozen=True, slots=True)
class Score:
    """How well a set of jobs was scheduled.

    Parameters
    ----------
    reward
        Mean over selections; 0 if none was reckoned.
    mean_wait_s, max_wait_s
        Of all jobs.
    slowdown
        Mean; runs below 10 s count as 10 s.
    utilisation
        Share of the machine that ran jobs, from the first submission to the last end.
    """

    reward: float
    mean_wait_s: float
    max_wait_s: int
    slowdown: float
    utilisation: float


def score(table: JobTable, nodes: int, scheduler: PassScheduler) -> Score:
    """Schedule a set of jobs on an empty machine.

    Raises
    ------
    InputError
        There are no jobs, or one never started.
    """
    core = GeneralCore(Load(table, Cluster({"cores": nodes})), scheduler)
    core.run(NEVER - 1)
    started = core.start >= 0
    if not len(table) or not started.all():
        raise InputError(
            f"{int((~started).sum())} of {len(table)} jobs never started",
            where="training",
            hint="Give jobs, and a scheduler that starts them all.",
        )
    waits = core.start - table.submit
    ends = core.start + table.run
    span = int(ends.max() - table.submit.min())
    slowdown = np.maximum(1.0, (waits + table.run) / np.maximum(table.run, _SHORTEST_S))
    total, selections = getattr(scheduler, "total_reward", 0.0), getattr(scheduler, "selections", 0)
    return Score(
        reward=total / max(selections, 1),
        mean_wait_s=float(waits.mean()),
        max_wait_s=int(waits.max()),
        slowdown=float(slowdown.mean()),
        utilisation=float((table.run * table.cores).sum() / (nodes * span)),
    )


@dataclass(frozen=True, slots=True)
class Episode:
    """What came of an episode.

    Parameters
    ----------
    number
        From 1.
    phase, jobs
        Of the set that was learned from.
    updates
        Of the parameters, so far.
    learned
        The learner's own score, while learning.
    validation
        That of the agent after the episode.
    best
        Whether none before was better.
    seconds
        That it took.
    """

    number: int
    phase: Phase
    jobs: int
    updates: int
    learned: Score
    validation: Score
    best: bool
    seconds: float


class Training:
    """A training, which can be interrupted and gone on with.

    Parameters
    ----------
    material
        What is learned from.
    config
        The size.
    kind
        DRAS-PG (``pg``) or DRAS-DQL (``dql``).
    levels
        2; 1 for an agent that never reserves, as Decima-PG.
    reward
        The objective.
    order
        Of the phases; those that are missing are left out.
    seed
        The same seed gives the same agent, on the same kind of processor.
    folder
        Where ``best.npz`` is kept, a snapshot after each episode (``episode-NNN.npz``), and ``training.npz``, from
        which an interrupted training goes on where its last whole episode ended: the result is that of one that was
        not interrupted. Nothing is kept if not given.
    command
        How it can be done again, noted in the agents.

    Attributes
    ----------
    episodes
        Those that are done.
    best
        The best agent so far; None before the first episode.

    Raises
    ------
    StateError
        The folder holds another training, or cannot be used.
    """

    def __init__(
        self,
        material: Material,
        config: Config = SMALL,
        *,
        kind: Kind = "pg",
        levels: Literal[1, 2] = 2,
        reward: Reward | None = None,
        order: Sequence[Phase] = PHASES,
        seed: int = 0,
        folder: str | Path | None = None,
        command: str = "",
    ) -> None:
        if not order or len(set(order)) < len(order) or not set(order) <= set(PHASES):
            raise InputError(f"{list(order)} is no order of phases", where="training", hint=f"Known: {PHASES}.")
        self.material, self.config, self.levels, self.seed, self.command = material, config, levels, seed, command
        self.reward = reward or Capability()
        self.episodes: list[Episode] = []
        self.best: Agent | None = None
        numbers: dict[Phase, Sequence[int]] = {
            "sampled": range(config.sampled),
            "real": material.weeks()[: config.real],
            "synthetic": range(config.synthetic),
        }
        self._sets = [(phase, number) for phase in order for number in numbers[phase]]
        shape = Shape(kind, material.nodes, config.window, config.hidden)
        self._learner = learner(shape, config.how, scale_s=config.scale_s, seed=seed)
        self._folder = Path(folder) if folder is not None else None
        if self._folder is not None:
            self._go_on(self._folder)

    @property
    def is_over(self) -> bool:
        """Whether all sets were learned from, or too many in the last phase brought nothing."""
        if len(self.episodes) >= len(self._sets):
            return True
        recent = self.episodes[-self.config.patience :]
        is_last = all(episode.phase == self._sets[-1][0] for episode in recent)
        return len(recent) == self.config.patience and is_last and not any(episode.best for episode in recent)

    def __iter__(self) -> Iterator[Episode]:
        """Do the episodes that are left, and tell of each."""
        while not self.is_over:
            yield self._do(*self._sets[len(self.episodes)])

    def _do(self, phase: Phase, number: int) -> Episode:
        began = time.perf_counter()
        material, nodes = self.material, self.material.nodes
        table = material.jobs(phase, number, count=self.config.jobs, seed=self.seed)
        kind_of_pass = TwoLevels if self.levels == 2 else OneLevel
        learned = score(table, nodes, kind_of_pass(self._learner, window=self.config.window, reward=self.reward))
        self._learner.end_episode()
        agent = Agent(
            self._learner.shape,
            self._learner.parameters,
            self.config.scale_s,
            self.levels,
            repr(self.reward),
            self.command,
        )
        validation = score(material.validation, nodes, agent.scheduler(reward=self.reward))
        best = all(episode.validation.reward < validation.reward for episode in self.episodes)
        seconds = time.perf_counter() - began
        updates = self._learner.updates
        episode = Episode(
            len(self.episodes) + 1, phase, len(table), updates, learned, validation, best=best, seconds=seconds
        )
        self.episodes.append(episode)
        if best:
            self.best = agent
        if self._folder is not None:
            self._keep(self._folder, agent, episode)
        return episode

    # ------------------------------------------------------------------ what is kept

    def _keep(self, folder: Path, agent: Agent, episode: Episode) -> None:
        """Write the state last: an episode that is not in it is done again, and gives the same."""
        save_agent(agent, folder / f"episode-{episode.number:03d}.npz")
        if episode.best:
            save_agent(agent, folder / "best.npz")
        arrays, facts = self._learner.state()
        episodes = [asdict(each) for each in self.episodes]
        header = {"content": "training", "plan": self._plan(), "facts": facts, "episodes": episodes}
        write_file(folder / "training.npz", header, arrays)

    def _go_on(self, folder: Path) -> None:
        """Take up what the folder holds."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"cannot be made: {error.strerror}", where=str(folder), hint="Name another.") from error
        file = folder / "training.npz"
        if not file.exists():
            return
        header, arrays = read_file(file)
        if header.get("plan") != self._plan():
            raise StateError(
                "is of another training", where=str(file), hint="Give the same jobs and settings, or another folder."
            )
        try:
            self._learner.restore(arrays, header["facts"])
            self.episodes = [_episode(told) for told in header["episodes"]]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise StateError(f"is damaged: {error!r}", where=str(file), hint="Train anew in another folder.") from error
        self.best = load_agent(folder / "best.npz")

    def _plan(self) -> dict[str, Any]:
        """All that decides what comes out, fit for JSON."""
        digest = hashlib.blake2s(repr(self.material.model).encode())
        for table in (self.material.training, self.material.validation):
            for column in (table.submit, table.run, table.request, table.cores):
                digest.update(column.tobytes())
        plan = {
            "kind": self._learner.shape.kind,
            "nodes": self.material.nodes,
            "levels": self.levels,
            "reward": repr(self.reward),
            "seed": self.seed,
            "sets": self._sets,
            "config": asdict(self.config),
            "material": digest.hexdigest(),
        }
        told: dict[str, Any] = json.loads(json.dumps(plan))
        return told


def _episode(told: dict[str, Any]) -> Episode:
    return Episode(**(told | {name: Score(**told[name]) for name in ("learned", "validation")}))
