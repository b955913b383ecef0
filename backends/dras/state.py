"""The agent's input: jobs that it may choose, and the machine (Section III-A), as numbers of about 1.

A job is four numbers: its nodes as a share of the machine, its requested time, 1 or 0 for whether its quality of
service is above 0, and its present wait. A node is two: 1 or 0 for whether it is free, and the time until it is
expected to be. A time t is given as t / (t + a), with a scale a of some hours: from 0 to 1, monotonic, and the same for
all three, so that they can be compared; days still differ, and no time is too long. Nodes that are down are not free,
and count as busy for the time a.

Nodes are in a fixed order: free ones, then the others by the time at which they are expected to be free, then those
that are down. The engine allocates nodes by count, and so does the agent: nothing depends on which node is which.
Distinguishing them would show the network one situation in all orders of nodes, each of which it would have to learn.
In this order the n-th row says when n nodes will be free, which is what matters for a job of n nodes. It can be made
from the running jobs alone, in the engine's order, so that nothing must be remembered between decisions.

Actual run times are not included, as the engine does not show them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from asa.backends.simulated.policies import QueueView
from numpy.typing import NDArray

from asa.errors import InputError

Integers = NDArray[np.int64]

SCALE_S = 6 * 3600
"""Default scale of times: between the short and the long requests of a large machine."""


@dataclass(frozen=True, slots=True)
class State:
    """A queue and a machine as numbers."""

    jobs: NDArray[np.float32]  # a row of four numbers for each job that may be chosen
    edges: Integers  # begin of each group of equal nodes, from 0, and end of the last one
    groups: NDArray[np.float32]  # a row of two numbers for each group; a group may be empty

    def rows(self, jobs: int, *, only: int | None = None) -> NDArray[np.float32]:
        """Return the network's input: rows for `jobs` jobs, missing ones as 0, then all nodes.

        `only`: the position of the single job to describe; if not given, the first jobs are described.
        """
        shown = self.jobs if only is None else self.jobs[only : only + 1]
        nodes = int(self.edges[-1])
        rows = np.zeros((2 * jobs + nodes, 2), dtype=np.float32)
        rows[: 2 * len(shown)] = shown.reshape(-1, 2)
        rows[2 * jobs :] = np.repeat(self.groups, np.diff(self.edges), axis=0)
        return rows


class Encoder:
    """Encodes the state at a scheduling pass.

    Raises `InputError`: at the first pass: the machine has another number of nodes. (Later, some may be away.)
    """

    def __init__(self, nodes: int, scale_s: int = SCALE_S) -> None:
        if scale_s < 1:
            raise InputError(f"{scale_s} s is no scale of times", where="agent", hint="Give seconds, 1 or more.")
        self.nodes = nodes
        self.scale_s = scale_s
        self._fits = False

    def __call__(self, view: QueueView, jobs: Integers) -> State:
        """Encode jobs that may be chosen, and the machine. O(jobs + running jobs)."""
        if not self._fits:
            self._check(int(view.capacity[0]))
        now, running = view.now, view.running
        features = np.empty((len(jobs), 4), dtype=np.float32)
        features[:, 0] = view.demand[jobs, 0] / self.nodes
        features[:, 1] = self._scaled(view.request[jobs])
        features[:, 2] = view.qos[jobs] > 0
        features[:, 3] = self._scaled(now - view.submit[jobs])
        edges = np.zeros(len(running) + 3, dtype=np.int64)
        edges[1] = max(int(view.free[0]), 0)
        edges[2:-1] = view.demand[running, 0]
        np.cumsum(edges[:-1], out=edges[:-1])
        edges[-1] = self.nodes
        groups = np.zeros((len(running) + 2, 2), dtype=np.float32)
        groups[0, 0] = 1.0
        groups[1:-1, 1] = self._scaled(view.expected_end[running] - now)
        groups[-1, 1] = 0.5
        return State(features, edges, groups)

    def _check(self, capacity: int) -> None:
        if capacity != self.nodes:
            raise InputError(
                f"was trained for {self.nodes} nodes, and there are {capacity}",
                where="agent",
                hint=f"Take one that was trained for {capacity} nodes, or train one.",
            )
        self._fits = True

    def _scaled(self, seconds: Integers) -> NDArray[np.float64]:
        seconds = np.maximum(seconds, 0)
        scaled: NDArray[np.float64] = seconds / (seconds + self.scale_s)
        return scaled
