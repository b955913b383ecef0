"""A network that ranks pending jobs by their properties, not by their position, for machines of any size.

The paper's network has a fixed place for each job of the window and each node of the machine, so it must learn every
situation once for each possible order, on one machine. Here a job is described by a few numbers with the same meaning
on every machine, all jobs are judged with the same weights, and each sees the mean of the others. So a few thousand
parameters are enough, for any number of nodes and jobs.

What it learns is added to an initial rank by size and request: a job that is half as long, or has a quarter of the
nodes, comes first. To learn that from scratch takes as long as all later training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from asa.backends.simulated.policies import QueueView

from .network import Floats
from .scheduler import Hole
from .state import Integers

COLUMNS: Final = (
    "share of the nodes",
    "its logarithm",
    "logarithm of the request",
    "logarithm of the wait",
    "logarithm of the wait in requests",
    "share of the longest wait that is allowed",
    "fits now",
    "share of the free nodes",
    "logarithm of the time until it fits",
    "logarithm of the work, in times of the whole machine",
    "whether there is a hole to fill",
    "ends before the hole does",
    "share of the hole's time",
    "needs only nodes that are spare",
    "logarithm of the hole's time",
    "share of nodes that are free",
    "logarithm of the length of the queue",
    "logarithm of the time that all work takes",
    "share of the offered jobs that are shorter",
    "share of the offered jobs that are less work",
    "share of the offered jobs that fit",
    "share of the nodes that are free within an hour",
)
"""The description of a job. Columns about the hole are 0 if there is none."""
HIDDEN: Final = 32
"""Default number of neurons in each layer."""

_HOUR = 3600
_SIZE, _REQUEST = 1, 2  # columns of the initial ranks
_SURE = 4.0  # factor of the initial ranks: a job that is half as long is chosen two times in three
_BY_SIZE = 0.5


@dataclass(slots=True)
class JobContext:
    """The context of a judgement, besides the jobs and the machine."""

    hole: Hole | None = None  # space to fill; None if a job is chosen to start next
    queued: int = 0
    backlog_s: float = 0.0  # time of the fully used machine for all waiting and running jobs
    bound_s: float = 0.0  # wait after which a job is next


class Judge(Protocol):
    """A chooser among jobs described by numbers."""

    def choose(self, rows: Floats) -> int:
        """Return the index of the chosen job among `rows` of `COLUMNS`."""
        ...


def tell(view: QueueView, jobs: Integers, outlook: JobContext) -> Floats:
    """Describe jobs that may be chosen, each by a row of `COLUMNS`. O(jobs log jobs + running jobs)."""
    now, nodes, free = view.now, max(int(view.capacity[0]), 1), max(int(view.free[0]), 0)
    size, request = view.demand[jobs, 0], view.request[jobs]
    wait = np.maximum(now - view.submit[jobs], 0)
    running = view.running
    held, left = view.demand[running, 0], np.maximum(view.expected_end[running] - now, 0)
    fits = size <= free
    work = size * request
    many = len(jobs)
    rows = np.zeros((many, len(COLUMNS)), dtype=np.float32)
    share = size / nodes
    rows[:, 0] = share
    rows[:, 1] = 0.2 * np.log(share) + 1.0
    rows[:, 2] = 0.25 * np.log(request / _HOUR)
    rows[:, 3] = 0.25 * np.log1p(wait / _HOUR)
    rows[:, 4] = 0.25 * np.log1p(wait / request)
    rows[:, 5] = np.minimum(wait / max(outlook.bound_s, _HOUR), 2.0)
    rows[:, 6] = fits
    rows[:, 7] = np.where(fits, size / max(free, 1), 0.0)
    if len(running):
        at = np.minimum(np.searchsorted(free + np.cumsum(held), size), len(running) - 1)
        rows[:, 8] = np.where(fits, 0.0, 0.25 * np.log1p(left[at] / _HOUR))
        rows[:, 21] = min(int(held @ (left <= _HOUR)), nodes) / nodes
    rows[:, 9] = 0.2 * np.log(work / (nodes * _HOUR) + 1e-4) + 1.0
    if outlook.hole is not None:
        gap = max(outlook.hole.begin - now, 1)
        rows[:, 10] = 1.0
        rows[:, 11] = request <= gap
        rows[:, 12] = np.minimum(request / (3.0 * gap), 1.0)
        rows[:, 13] = size <= outlook.hole.spare
        rows[:, 14] = 0.25 * np.log1p(gap / _HOUR)
    rows[:, 15] = free / nodes
    rows[:, 16] = np.log1p(outlook.queued) / 6.0
    rows[:, 17] = np.log1p(outlook.backlog_s / _HOUR) / 6.0
    rows[:, 18] = np.searchsorted(np.sort(request), request) / many
    rows[:, 19] = np.searchsorted(np.sort(work), work) / many
    rows[:, 20] = np.count_nonzero(fits) / many
    return rows


def rank_arrays(hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter array, by name; those for the value of a situation are only for learning."""
    columns = len(COLUMNS)
    return {
        "straight": (columns, 1),
        "job": (columns, hidden),
        "job_bias": (hidden,),
        "own": (hidden, hidden),
        "others": (hidden, hidden),
        "mixed_bias": (hidden,),
        "rank": (hidden, 1),
        "mean": (hidden, hidden),
        "most": (hidden, hidden),
        "value_bias": (hidden,),
        "value": (hidden, 1),
        "last_bias": (1,),
    }


def first_ranks(rng: np.random.Generator, hidden: int = HIDDEN) -> dict[str, Floats]:
    """Draw the initial parameters of learning: small and short jobs rank first."""
    parameters: dict[str, Floats] = {}
    for name, size in rank_arrays(hidden).items():
        spread = 0.01 if name in ("rank", "value") else 1.0
        drawn = spread / np.sqrt(size[0]) * rng.standard_normal(size)
        if name == "straight" or name.endswith("bias"):
            drawn[:] = 0.0
        parameters[name] = drawn.astype(np.float32)
    parameters["straight"][_REQUEST] = -_SURE
    parameters["straight"][_SIZE] = -_SURE * _BY_SIZE * 0.25 / 0.2  # with the scales of the columns
    return parameters


def rank(parameters: Mapping[str, Floats], rows: Floats) -> Floats:
    """Rank jobs, the highest first: logarithms of their likelihoods in learning, up to a constant."""
    seen = np.tanh(rows @ parameters["job"] + parameters["job_bias"])
    around = seen.mean(axis=0) @ parameters["others"] + parameters["mixed_bias"]
    ranks: Floats = np.tanh(seen @ parameters["own"] + around) @ parameters["rank"] + rows @ parameters["straight"]
    return ranks[:, 0]


class RankJudge:
    """Takes the job of the highest rank, and does not learn. It needs no PyTorch."""

    def __init__(self, parameters: Mapping[str, Floats]) -> None:
        self._parameters = {name: array.copy() for name, array in parameters.items()}

    def choose(self, rows: Floats) -> int:
        """Return the index of the chosen job among `rows` of `COLUMNS`."""
        return int(rank(self._parameters, rows).argmax())

    def __deepcopy__(self, memo: dict[int, Any]) -> RankJudge:
        """Share the constant parameters."""
        return self
