"""Trainings requested from ``asa dras``: the jobs for learning, the size and the objective.

A requested training is plain data, so it can run in another process, or on another machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from asa.backends.dras.network import pytorch
from asa.backends.dras.rewards import Forgone, Reward, Waiting, read_objective, read_reward
from asa.backends.dras.weights import save_agent
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.presets import preset
from asa.backends.simulated.swf import Trace, read_swf
from asa.core.options import check_known
from asa.errors import InputError
from asa.studies.bbsched.workloads import cori
from asa.studies.dras.training import (
    PROXIMAL_PAPER,
    PROXIMAL_SMALL,
    SMALL,
    Config,
    Episode,
    Material,
    Training,
    Varied,
    folder_of,
    paper,
)

from .evaluation import Split, split, trace_of

AGENTS: Final = ("ppo", "pg", "dql", "decima")
CONFIGS: Final = ("small", "paper")
_SYSTEMS: Final = ("hpc2n", "uppmax")
_CORI: Final = "cori"
_CORI_DAYS = 63
_DAYS: Final = (90, 30)
_DAYS_OF_CORI: Final = (21, 7)


@dataclass(frozen=True, slots=True)
class Order:
    """A requested training."""

    # log or model for learning, its processors, and the days for learning and for choosing
    source: str
    cores: int | None
    days: tuple[int, int]
    agent: str  # name of the agent, of the configuration, and of the objective
    config: str
    objective: str | None
    sets: int | None  # number of synthetic sets, and of jobs in each, unless those of the configuration
    jobs: int | None
    seed: int  # of all random numbers
    out: Path  # file for the best agent; the state of the training is kept next to it

    @property
    def folder(self) -> Path:
        """Folder of the training's state, from which it can resume."""
        return folder_of(self.out)

    @property
    def text(self) -> str:
        """The command line of this training."""
        text = f"asa dras train {self.source} --agent {self.agent} --config {self.config} --seed {self.seed}"
        text += f" --train-days {self.days[0]} --validate-days {self.days[1]}"
        given = {"sets": self.sets, "jobs": self.jobs, "cores": self.cores, "objective": self.objective}
        return text + "".join(f" --{name} {value}" for name, value in given.items() if value is not None)

    def begin(self) -> Training:
        """Begin the training, or resume it."""
        material = material_of(self.source, self.cores, self.days)
        size = config_of(self.config, self.agent, material, self.sets, self.jobs)
        on_few_cores(self.agent, self.config)
        kind = kind_of(self.agent, self.objective)
        return Training(material, size, **kind, seed=self.seed, folder=self.folder, command=self.text)


def fill(order: Order, tell: Callable[[Sequence[Episode]], None] | None = None) -> list[Episode]:
    """Run a training, and write the best agent.

    `tell`: called with all finished episodes, at the beginning and after each.
    """
    training = order.begin()
    if tell is not None:
        tell(training.episodes)
    for _ in training:
        if tell is not None:
            tell(training.episodes)
    assert training.best is not None
    save_agent(training.best, order.out)
    return training.episodes


def best_of(episodes: Sequence[Episode]) -> Episode:
    """Return the episode after which the agent was best."""
    return next(episode for episode in reversed(episodes) if episode.best)


def check(agent: str, config: str, objective: str | None) -> None:
    """Check that a training can have these names."""
    check_known(agent, AGENTS, "--agent")
    check_known(config, CONFIGS, "--config")
    kind_of(agent, objective)


def on_few_cores(agent: str, config: str) -> None:
    """Restrict small networks to one core: more threads would mostly wait for each other."""
    if agent == "ppo" or config == "small":
        pytorch().set_num_threads(1)


def kind_of(agent: str, objective: str | None) -> dict[str, Any]:
    """Return the arguments of a training that give its agent and objective."""
    if agent == "ppo":
        wanted = read_objective("waiting" if objective is None else objective, where="--objective")
        return {"kind": "ppo", "cost": wanted if isinstance(wanted, Waiting) else Forgone(wanted)}
    kind = {"kind": "pg", "levels": 1} if agent == "decima" else {"kind": agent}
    return kind | {"reward": reward_of("capability" if objective is None else objective)}


def reward_of(text: str) -> Reward:
    """Parse the reward that ``--objective`` names."""
    return read_reward(text, where="--objective")


def config_of(name: str, agent: str, material: Material, sets: int | None, jobs: int | None) -> Config:
    """Return the configuration, with the requested changes."""
    known = {"ppo": (PROXIMAL_SMALL, PROXIMAL_PAPER)}.get(agent, (SMALL, paper(material.nodes)))
    config = known[CONFIGS.index(name)]
    if jobs is not None or agent == "ppo":
        config = sized(config, material, jobs)
    return config if sets is None else replace(config, synthetic=sets)


def sized(config: Config, material: Material, jobs: int | None) -> Config:
    """Return all sets about equally many jobs: by default those of a week, since in less time few have to wait."""
    least = 1 if jobs is not None else min(7, config.days)
    jobs = config.jobs if jobs is None else jobs
    table = material.training
    days = max(int(table.submit[-1] - table.submit[0]), 1) / 86400
    return replace(config, jobs=jobs, days=min(max(round(jobs * days / len(table)), least), config.days))


def days_of(source: str, train_days: int | None, validate_days: int | None) -> tuple[int, int]:
    """Return the number of days for learning, and for choosing."""
    train, validate = _DAYS_OF_CORI if source == _CORI else _DAYS
    return train_days or train, validate_days or validate


def material_of(source: str, cores: int | None, days: tuple[int, int]) -> Material:
    """Return the material for learning and choosing."""
    tested = _split(source, cores, days)
    if tested is not None:
        return tested.material
    model = preset(source)
    if cores is not None:
        if cores < 64:
            raise InputError(f"{cores} cores are too few", where=f"--cores {cores}", hint="Give 64 or more.")
        widest = min(model.log2_widest, math.log2(cores))
        model = replace(model, machine=Machine(source, cores, 1), log2_widest=widest)
    training, validation = (model.generate(some * 86400, number) for number, some in enumerate(days))
    text = f"the built-in workload model of {source}, {model.machine.cores} cores"
    return Material(model.machine.cores, training, validation, Varied(model), text)


def tested_days(source: str, cores: int | None, train_days: int | None, validate_days: int | None) -> Split:
    """Split a log into parts for learning, choosing and testing."""
    tested = _split(source, cores, days_of(source, train_days, validate_days))
    if tested is None:
        raise InputError("is a model, which has no days to test on", where=source, hint="Give a log (SWF), or cori.")
    return tested


def _split(source: str, cores: int | None, days: tuple[int, int]) -> Split | None:
    """Split a log; None for a model, which has no end."""
    if source in _SYSTEMS:
        return None
    return split(_trace(source, cores), train_days=days[0], validate_days=days[1])


def _trace(source: str, cores: int | None) -> Trace:
    if source != _CORI:
        return read_swf(source, cores=cores, exceed="kill")
    if cores is not None:
        hint = "Leave it out: it is for logs, hpc2n and uppmax."
        raise InputError("the machine of cori has a size of its own", where=f"--cores {cores}", hint=hint)
    workload = cori(days=_CORI_DAYS)["cori-original"]
    return trace_of(workload.table, workload.system.totals[0], _CORI)
