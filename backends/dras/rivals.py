"""The schedulers with which DRAS is compared (Section IV-A), on the same engine and with the same information.

First come first served with EASY backfilling, and others, are in `asa.backends.simulated.policies`. Decima-PG is an
agent of one level: see `asa.backends.dras.weights.Agent`.
"""

from __future__ import annotations

import numpy as np
from asa.backends.simulated.policies import QueueView
from numpy.typing import NDArray

from asa.errors import InputError

from .rewards import Reward, read_reward
from .scheduler import First, Mode, OneLevel, Selecting, TwoLevels
from .state import Integers
from .weights import Ranked, load_agent, shipped


class Largest:
    """Chooses the job with the most nodes, the older of two (BinPacking)."""

    def choose(self, view: QueueView, jobs: Integers) -> int:
        """Return the index of the chosen job among `jobs`."""
        return int(view.demand[jobs, 0].argmax())


class AtRandom:
    """Chooses a random job (Random)."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def choose(self, view: QueueView, jobs: Integers) -> int:
        """Return the index of the chosen job among `jobs`."""
        del view
        return int(self._rng.integers(len(jobs)))


class Knapsack(Selecting):
    """Starts the set of jobs with the highest value (Optimization).

    At each pass this is the best of all sets that fit, by dynamic programming, where a set's value is the sum of what
    its jobs add to the objective (`Reward.worth`). It never makes a reservation.
    """

    def __init__(self, objective: Reward, *, window: int = 0, reward: Reward | None = None) -> None:
        super().__init__(First(), window=window, reward=reward)
        self._objective = objective

    def _pass(self, view: QueueView) -> None:
        queue, free = view.queue, int(view.free[0])
        jobs = queue[: self.window]
        jobs = jobs[view.demand[jobs, 0] <= free]
        if not len(jobs):
            return
        sizes, waits = view.demand[jobs, 0], view.now - view.submit
        worth = self._objective.worth(
            sizes,
            view.request[jobs],
            waits[jobs],
            longest_wait_s=int(waits[queue].max()),
            waiting=len(queue),
            nodes=int(view.capacity[0]),
        )
        for job in jobs[pack(sizes, worth, free)].tolist():
            self._start(view, job, Mode.READY)
            self._selected(view, job)


def pack(sizes: Integers, worth: NDArray[np.float64], room: int) -> NDArray[np.intp]:
    """Solve a 0-1 knapsack: choose fitting jobs with the highest total value, the first of equal choices.

    Examples
    --------
    >>> pack(np.array([5, 4, 3]), np.array([6.0, 4.0, 3.0]), 7).tolist()
    [1, 2]
    """
    if sizes.sum() <= room:
        return np.flatnonzero(worth >= 0)
    best = np.zeros(room + 1)
    taken = np.zeros((len(sizes), room + 1), dtype=np.bool_)
    for index in range(len(sizes) - 1, -1, -1):  # so that reading the table back decides on the oldest job first
        size = int(sizes[index])
        if size > room:
            continue
        with_it = best[: room + 1 - size] + worth[index]
        np.greater_equal(with_it, best[size:], out=taken[index, size:])
        best[size:] = np.maximum(best[size:], with_it)
    chosen = []
    for index in range(len(sizes)):
        if taken[index, room]:
            chosen.append(index)
            room -= int(sizes[index])
    return np.array(chosen, dtype=np.intp)


# ---------------------------------------------------------------------- by name


def dras(*, weights: str = "", sample: bool = False, seed: int = 0) -> OneLevel | TwoLevels:
    """Let a trained agent select, reserve and backfill: the package's, or that of a file (weights=FILE).

    One of pg or decima draws by its likelihoods if asked to (sample=true, seed=1).

    Parameters
    ----------
    weights
        The agent's file; the package's agent if empty.
    sample
        Whether to draw, rather than take the likeliest job.
    seed
        Seed of the draws.

    Raises
    ------
    InputError
        The agent does not draw, or the file does not contain one.
    """
    agent = load_agent(weights) if weights else shipped()
    if not isinstance(agent, Ranked) and agent.shape.kind == "pg" and (sample or not seed):
        return agent.scheduler(sample=sample, seed=seed)
    if sample or seed:
        of = "sample" if sample else "seed"
        raise InputError(
            f"means nothing for {weights or 'the agent that comes with the package'}, which draws nothing",
            where=f"scheduler dras, {of}",
            hint="Leave it out, or name an agent that draws, pg or decima (weights=FILE), and sample=true.",
        )
    return agent.scheduler()


def bin_packing(*, window: int = 0) -> OneLevel:
    """Start the largest job that fits, again and again; reserve for none (BinPacking).

    Parameters
    ----------
    window
        Number of oldest jobs considered; 0 for all.
    """
    return OneLevel(Largest(), window=window)


def random_fit(*, window: int = 0, seed: int = 0) -> OneLevel:
    """Start any job that fits, again and again; reserve for none (Random).

    Parameters
    ----------
    window
        Number of oldest jobs considered; 0 for all.
    seed
        Seed of the draws.
    """
    return OneLevel(AtRandom(seed), window=window)


def knapsack(*, objective: str = "capability", window: int = 0) -> Knapsack:
    """Start the set of jobs with the highest value by DRAS's objective, capability or capacity; no reservations.

    Parameters
    ----------
    objective
        See `read_reward`.
    window
        Number of oldest jobs considered; 0 for all.
    """
    return Knapsack(read_reward(objective), window=window)
