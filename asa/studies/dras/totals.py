"""Total rewards on the validation set: of agents after each episode of their training, and of rivals (Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from asa.backends.dras.rewards import Reward
from asa.backends.dras.scheduler import Selecting
from asa.backends.dras.scoring import run
from asa.backends.dras.weights import Ranked, load_agent
from asa.errors import InputError

from .evaluation import Split, rivals
from .training import folder_of, kept_episodes

REWARDED: Final = ("fcfs-easy", "bin-packing", "random", "optimization")
"""Rivals that select jobs one by one, so that they are rewarded as agents are."""


def of_rivals(names: Sequence[str], tested: Split, reward: Reward, seeds: int) -> dict[str, list[float]]:
    """Return the total reward of each run of the given rivals."""
    totals: dict[str, list[float]] = {}
    for name in names:
        for number in range(seeds if name == "random" else 1):
            scheduler = rivals(reward, number)[name]()
            assert isinstance(scheduler, Selecting)
            scheduler.reward = reward
            run(tested.material.validation, tested.material.nodes, scheduler)
            totals.setdefault(name, []).append(scheduler.total_reward)
    return totals


def of_agents(files: Sequence[Path], tested: Split, reward: Reward) -> dict[str, list[list[float]]]:
    """Return the total reward after each episode, for each training of each kind of agent.

    Raises `InputError`: an agent was rewarded otherwise, or was not chosen by the validation set.
    """
    totals: dict[str, list[list[float]]] = {}
    material = tested.material
    for file in files:
        agent = load_agent(file, nodes=material.nodes)
        if isinstance(agent, Ranked):
            raise InputError(
                "learns by what waiting costs, and has no rewards to add up",
                where=str(file),
                hint="Give agents of pg, dql or decima.",
            )
        if agent.reward != repr(reward):
            raise InputError(
                f"was rewarded by {agent.reward}, and others would be by {reward!r}",
                where=str(file),
                hint="Give the --objective of its training.",
            )
        if (agent.seen, _days(agent.source)) != (material.seen, _days(material.source)):
            raise InputError(
                f"was trained on {agent.source or 'a model'}, and others would be scored on {material.source}",
                where=str(file),
                hint="Give the log, --train-days and --validate-days of its training.",
            )
        episodes = kept_episodes(folder_of(file))  # whose rewards are means over the jobs, each of which is selected
        sums = [episode.validation.reward * len(material.validation) for episode in episodes]
        totals.setdefault(agent.name, []).append(sums)
    return totals


def _days(source: str) -> str:
    """Return the days of a log that an agent has seen, in words, without the log's name."""
    return source.rpartition(":")[2]
