"""Training in three phases, from simple to rare (Section III-C): sampled jobs, real weeks, synthetic weeks.

An episode is a set of jobs that the learner schedules on an empty machine. After each episode the present agent,
without learning, schedules sets that it never learns from: an unseen part of the log, and some of the model. The agent
that is best over all of these is kept. A single set would not do: its order of arrivals matters more than small
differences between agents.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from asa.backends.dras.network import Kind, NetworkSize
from asa.backends.dras.patient import Oldest, Patient
from asa.backends.dras.ranking import RankJudge
from asa.backends.dras.rewards import Capability, Cost, Reward, Waiting
from asa.backends.dras.scheduler import First, OneLevel, TwoLevels
from asa.backends.dras.scoring import ScheduleScore, score
from asa.backends.dras.state import SCALE_S
from asa.backends.dras.weights import Agent, Ranked, load_agent, read_file, save_agent, write_file
from asa.backends.simulated.policies import PassScheduler
from asa.backends.simulated.table import JobTable
from asa.core.documents import read_json
from asa.core.files import in_words
from asa.errors import InputError, StateError

from .learners import Learning, learner
from .ppo import Proximal, ProximalLearning

Phase = Literal["sampled", "real", "synthetic"]

PHASES: Final[tuple[Phase, ...]] = ("sampled", "real", "synthetic")
"""Phases in the paper's order."""

_DAY_S = 86400
_UNSEEN: Final = len(PHASES)  # seed of the sets for choosing agents; no phase uses it


class Source(Protocol):
    """A model of a workload, such as `asa.backends.simulated.fitted.FittedWorkload`."""

    def generate(self, duration_s: int, seed: int | np.random.SeedSequence) -> JobTable:
        """Draw the jobs submitted within a duration."""
        ...


@dataclass(frozen=True, slots=True)
class Varied:
    """A model whose load differs between sets, so that they contain idle and crowded machines."""

    model: Any  # the workload; its own load is ignored
    least: float = 0.75  # bounds of the load, as shares of the machine
    most: float = 0.99

    def generate(self, duration_s: int, seed: int | np.random.SeedSequence) -> JobTable:
        """Draw the jobs submitted within a duration."""
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        loads, jobs = sequence.spawn(2)
        load = np.random.Generator(np.random.PCG64(loads)).uniform(self.least, self.most)
        table: JobTable = replace(self.model, load=float(load)).generate(duration_s, jobs)
        return table


@dataclass(frozen=True, slots=True)
class Config:
    """The size of a training."""

    hidden: tuple[int, int] = (128, 64)
    window: int = 50
    scale_s: int = SCALE_S
    sampled: int = 9  # number of sets of jobs in each phase; of real weeks the first ones, or as many as exist
    real: int = 9
    synthetic: int = 82
    jobs: int = 3200
    days: int = 7  # length of a real and of a synthetic set
    patience: int = 30  # in the last phase, stop after this number of episodes without a better agent
    exams: int = 3  # number of synthetic sets for choosing the best, besides the validation set; the same for all seeds
    # parameters of learning: of the paper's agents, and of the `ppo` agent, whose network has a fixed size
    how: Learning = field(default_factory=Learning)
    proximal: ProximalLearning = field(default_factory=ProximalLearning)

    def __post_init__(self) -> None:
        if min(self.sampled, self.real, self.synthetic, self.exams) < 0 or min(self.jobs, self.days, self.patience) < 1:
            raise InputError(
                f"{self} cannot be", where="training", hint="Give numbers of sets from 0 on, others from 1."
            )


SMALL = Config((128, 64), synthetic=32, jobs=1000, patience=15, how=Learning(discount=0.9))
"""For a laptop, and small machines. Without a discount the values of DRAS-DQL grow without bound."""
PAPER_THETA = Config((4000, 1000), how=Learning(device="auto"))
"""The paper's for Theta: 100 sets. They have its 320,000 jobs on a log whose weeks have 3,200 each."""
PAPER_CORI = replace(PAPER_THETA, hidden=(10000, 4000), jobs=200_000)
"""The paper's for Cori: 100 sets. They have its 20,000,000 jobs on a log whose weeks have 200,000 each."""
_THETA_NODES: Final = 4360
_CORI_NODES: Final = 12_076


def paper(nodes: int) -> Config:
    """Return the paper's configuration for a machine: that of Theta or of Cori, whichever is nearer in size."""
    return PAPER_THETA if nodes**2 < _THETA_NODES * _CORI_NODES else PAPER_CORI


PROXIMAL_SMALL = Config(sampled=2, real=4, synthetic=24, jobs=1000, days=21, patience=15)
"""For the `ppo` agent. Sets are longer than a week, since a job may wait for days.

On Theta's log the best agent of five trainings came up to 14 episodes after the second best.
"""
PROXIMAL_PAPER = replace(PROXIMAL_SMALL, synthetic=400, patience=100)


def add_jobs(digest: hashlib.blake2s, table: JobTable) -> None:
    """Add all fields of the given jobs to a digest."""
    for column in (table.submit, table.run, table.request, table.cores):
        digest.update(column.tobytes())


@dataclass(frozen=True, slots=True)
class Material:
    """The material for learning."""

    nodes: int  # nodes of the machine: the unit of the jobs' cores
    training: JobTable  # jobs for learning, and for choosing the best agent besides those of the model
    validation: JobTable
    # makes synthetic jobs like those for learning, to which alone it is fitted; its `repr` identifies it
    model: Source
    # origin of the jobs, length of both sets in days of a log, and a digest of these days' jobs; recorded in the agents
    source: str = ""
    seen_days: int = 0
    usual_s: int = 0  # usual wait in order of age; 0 if it gives no guidance. For `Patient`
    seen: str = ""

    def parts(self, days: int = 7) -> list[int]:
        """Return the numbers of the weeks, or other parts, with jobs for learning, counted from the first."""
        parts: list[int] = np.unique((self.training.submit - self.training.submit[0]) // (days * _DAY_S)).tolist()
        return parts

    def exams(self, count: int, days: int = 7) -> list[JobTable]:
        """Return the sets for choosing the best agent: the validation set, and synthetic sets of a given length."""
        drawn = [np.random.SeedSequence([0, _UNSEEN, number]) for number in range(count)]
        tables = [self.model.generate(days * _DAY_S, seed) for seed in drawn]
        return [self.validation, *(table for table in tables if len(table))]

    def jobs(self, phase: Phase, number: int, *, count: int, seed: int, days: int = 7) -> JobTable:
        """Return a set of jobs; equal arguments give equal sets."""
        table = self.training
        drawn = np.random.SeedSequence([seed, PHASES.index(phase), number])
        if phase == "synthetic":
            return self.model.generate(days * _DAY_S, drawn)
        if phase == "real":
            begin = int(table.submit[0]) + number * days * _DAY_S
            rows = np.flatnonzero((table.submit >= begin) & (table.submit < begin + days * _DAY_S))
            submit = table.submit[rows] - begin
        else:
            rng = np.random.Generator(np.random.PCG64(drawn))
            rows = rng.choice(len(table), size=count, replace=count > len(table))
            mean = float(table.submit[-1] - table.submit[0]) / max(len(table) - 1, 1)
            submit = np.cumsum(rng.exponential(mean, size=count)).astype(np.int64)
        return JobTable(submit, table.run[rows], table.request[rows], table.cores[rows])


def sets_of(material: Material, config: Config, order: Sequence[Phase] = PHASES) -> list[tuple[Phase, int]]:
    """Return the sets of a training by phase and number."""
    numbers: dict[Phase, Sequence[int]] = {
        "sampled": range(config.sampled),
        "real": material.parts(config.days)[: config.real],
        "synthetic": range(config.synthetic),
    }
    return [(phase, number) for phase in order for number in numbers[phase]]


@dataclass(frozen=True, slots=True)
class Episode:
    """The outcome of an episode."""

    number: int
    phase: Phase  # of the set that was learned from
    jobs: int
    updates: int  # number of updates of the parameters so far
    learned: ScheduleScore  # score of the learner while learning
    validation: ScheduleScore  # score of the agent after the episode, on the validation set
    exams: tuple[float, ...]  # its rewards on all sets for choosing, the validation set first
    worth: float  # mean of these, each relative to the reward of order of age with EASY backfilling
    best: bool  # whether it is the best so far
    seconds: float


class Training:
    """A training that can be interrupted and resumed.

    `reward`, `cost`: the objective: a reward for the paper's agents, a cost for ``ppo``.
    `seed`: the same seed gives the same agent, on the same kind of processor.
    `folder`: for ``best.npz``, a snapshot after each episode (``episode-NNN.npz``), and ``training.npz``, from which an
    interrupted training resumes after its last complete episode, with the same result. By default nothing is kept.
    """

    def __init__(
        self,
        material: Material,
        config: Config = SMALL,
        *,
        kind: Kind | Literal["ppo"] = "pg",
        levels: Literal[1, 2] = 2,
        reward: Reward | None = None,
        cost: Cost | None = None,
        order: Sequence[Phase] = PHASES,
        seed: int = 0,
        folder: str | Path | None = None,
        command: str = "",
    ) -> None:
        if not order or len(set(order)) < len(order) or not set(order) <= set(PHASES):
            raise InputError(f"{list(order)} is no order of phases", where="training", hint=f"Known: {PHASES}.")
        self.material, self.config, self.seed, self.command = material, config, seed, command
        self.episodes: list[Episode] = []
        self.best: Agent | Ranked | None = None
        self._sets = sets_of(material, config, order)
        self._exams = material.exams(config.exams, config.days)
        self._course: _Course
        if kind == "ppo":
            self._course = _OfProximal(config.proximal, material.usual_s, cost or Waiting(), seed)
        else:
            shape = NetworkSize(kind, material.nodes, config.window, config.hidden)
            self._course = _OfPaper(shape, config, levels, reward or Capability(), seed)
        self._folder = Path(folder) if folder is not None else None
        if self._folder is not None:
            self._go_on(self._folder)

    @property
    def is_over(self) -> bool:
        """Whether all sets were learned from, or the last phase stopped because no better agent came for too long."""
        if len(self.episodes) >= len(self._sets):
            return True
        recent = self.episodes[-self.config.patience :]
        is_last = all(episode.phase == self._sets[-1][0] for episode in recent)
        return len(recent) == self.config.patience and is_last and not any(episode.best for episode in recent)

    def __iter__(self) -> Iterator[Episode]:
        """Run the remaining episodes, and yield each."""
        while not self.is_over:
            yield self._do(*self._sets[len(self.episodes)])

    @cached_property
    def _of_easy(self) -> NDArray[np.float64]:
        """Return the rewards of the reference; none is 0, since others are divided by them."""
        rewards = [score(exam, self.material.nodes, self._course.easy()).reward for exam in self._exams]
        found: NDArray[np.float64] = np.abs(np.array(rewards)) + 1e-9
        return found

    def _do(self, phase: Phase, number: int) -> Episode:
        began = time.perf_counter()
        material, config, course = self.material, self.config, self._course
        table = material.jobs(phase, number, count=config.jobs, seed=self.seed, days=config.days)
        learned = course.practise(table, material.nodes)
        agent = course.agent(_Origin(self.command, material.source, material.seen_days, material.seen))
        scores = [score(exam, material.nodes, course.scheduler(agent)) for exam in self._exams]
        rewards = tuple(score.reward for score in scores)
        worth = float(np.mean(np.array(rewards) / self._of_easy))
        best = all(episode.worth < worth for episode in self.episodes)
        episode = Episode(
            len(self.episodes) + 1,
            phase,
            len(table),
            course.updates,
            learned,
            scores[0],
            rewards,
            worth,
            best=best,
            seconds=time.perf_counter() - began,
        )
        self.episodes.append(episode)
        if best:
            self.best = agent
        if self._folder is not None:
            self._keep(self._folder, agent, episode)
        return episode

    # ------------------------------------------------------------------ state

    def _keep(self, folder: Path, agent: Agent | Ranked, episode: Episode) -> None:
        """Write the state last: an episode that it lacks is repeated, with the same result."""
        save_agent(agent, folder / f"episode-{episode.number:03d}.npz")
        if episode.best:
            save_agent(agent, folder / "best.npz")
        arrays, facts = self._course.state()
        episodes = [asdict(each) for each in self.episodes]
        header = {"content": "training", "plan": self._plan(), "facts": facts, "episodes": episodes}
        write_file(folder / "training.npz", header, arrays)

    def _go_on(self, folder: Path) -> None:
        """Resume from the folder."""
        with in_words("cannot be made", folder, "Name another.", StateError):
            folder.mkdir(parents=True, exist_ok=True)
        file = folder / "training.npz"
        if not file.exists():
            return
        header, arrays = read_file(file)
        if header.get("plan") != self._plan():
            raise StateError(
                "is of another training", where=str(file), hint="Give the same jobs and settings, or another folder."
            )
        with _undamaged(file):
            self._course.restore(arrays, header["facts"])
            self.episodes = [_episode(fields) for fields in header["episodes"]]
        self.best = load_agent(folder / "best.npz")

    def _plan(self) -> dict[str, Any]:
        """Return all that determines the result, as JSON-ready data."""
        digest = hashlib.blake2s(repr(self.material.model).encode())
        for table in (self.material.training, *self._exams):
            add_jobs(digest, table)
        plan = {
            "course": self._course.words,
            "nodes": self.material.nodes,
            "seed": self.seed,
            "sets": self._sets,
            "config": asdict(self.config),
            "material": digest.hexdigest(),
        }
        as_json: dict[str, Any] = read_json(json.dumps(plan))
        return as_json


class _Origin(NamedTuple):
    """The origin that is recorded in an agent."""

    command: str
    source: str
    seen_days: int
    seen: str


class _Course(Protocol):
    """The way in which a kind of agent learns."""

    @property
    def words(self) -> str: ...
    @property
    def updates(self) -> int: ...
    def practise(self, table: JobTable, nodes: int) -> ScheduleScore: ...
    def agent(self, origin: _Origin) -> Any: ...
    def scheduler(self, agent: Any) -> PassScheduler: ...
    def easy(self) -> PassScheduler: ...
    def state(self) -> tuple[dict[str, Any], dict[str, Any]]: ...
    def restore(self, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None: ...


class _OfPaper:
    """DRAS-PG, DRAS-DQL and Decima-PG: they schedule a set once, and learn meanwhile."""

    def __init__(self, shape: NetworkSize, config: Config, levels: Literal[1, 2], reward: Reward, seed: int) -> None:
        self._learner = learner(shape, config.how, scale_s=config.scale_s, seed=seed)
        self._config, self._levels, self._reward = config, levels, reward
        self.words = f"{shape.kind} on {levels} levels for {reward!r}"
        self.state, self.restore = self._learner.state, self._learner.restore

    @property
    def updates(self) -> int:
        return self._learner.updates

    def practise(self, table: JobTable, nodes: int) -> ScheduleScore:
        levels = TwoLevels if self._levels == 2 else OneLevel
        learned = score(table, nodes, levels(self._learner, window=self._config.window, reward=self._reward))
        self._learner.end_episode()
        return learned

    def agent(self, origin: _Origin) -> Agent:
        own = self._learner
        reward, scale_s = repr(self._reward), self._config.scale_s
        discount = self._config.how.discount
        return Agent(own.shape, own.parameters, scale_s, self._levels, reward, discount=discount, **origin._asdict())

    def scheduler(self, agent: Agent) -> PassScheduler:
        return agent.scheduler(reward=self._reward)

    def easy(self) -> PassScheduler:
        return TwoLevels(First(), window=0, reward=self._reward)


class _OfProximal:
    """The `ppo` agent: it schedules a set several times, then learns."""

    def __init__(self, how: ProximalLearning, usual_s: int, cost: Cost, seed: int) -> None:
        self._learner = Proximal(replace(how, usual_s=usual_s), cost, seed=seed)
        self.words = f"ppo for {cost!r}, nobody overdue before {usual_s} s"
        self.state, self.restore, self.practise = self._learner.state, self._learner.restore, self._learner.practise

    @property
    def updates(self) -> int:
        return self._learner.updates

    def agent(self, origin: _Origin) -> Ranked:
        own, how = self._learner, self._learner.how
        return Ranked(own.parameters, how.patience, how.window, how.usual_s, repr(own.cost), **origin._asdict())

    def scheduler(self, agent: Ranked) -> PassScheduler:
        return self._learner.how.scheduler(RankJudge(agent.parameters), self._learner.cost)

    def easy(self) -> PassScheduler:
        return Patient(Oldest(), patience=0.0, window=0, cost=self._learner.cost)


def folder_of(agent: Path) -> Path:
    """Return the folder of a training's state, beside the file of its best agent."""
    return agent.with_name(f"{agent.name}.training")


def kept_episodes(folder: Path) -> list[Episode]:
    """Read the episodes of a training, which may not be complete, from its folder.

    Raises `StateError`: there is none, or it is damaged.
    """
    file = folder / "training.npz"
    header, _ = read_file(file)
    with _undamaged(file):
        return [_episode(fields) for fields in header["episodes"]]


@contextmanager
def _undamaged(file: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StateError(f"is damaged: {error!r}", where=str(file), hint="Train anew in another folder.") from error


def _episode(fields: dict[str, Any]) -> Episode:
    scores = {name: ScheduleScore(**fields[name]) for name in ("learned", "validation")}
    return Episode(**(fields | scores | {"exams": tuple(fields["exams"])}))
