"""What the agent sees: jobs that it may choose from, and the machine (Section III-A), as numbers of about 1.

A job is four numbers: its nodes as a share of the machine, the time it asks for, 1 or 0 for whether its quality of
service is above 0, and the time that it has waited. A node is two: 1 or 0 for whether it is free, and the time until it
is expected to be. A time t is given as t / (t + a), with a scale a of some hours: from 0 to 1, in order, and alike for
all three, so that they can be compared; days still differ, and nothing is too long. Nodes that are away are not free,
and given as if for as long as the scale.

Nodes are given in a fixed order: those that are free, then the others by the time at which they are expected to be,
then those that are away. The engine gives out nodes by count, and so does the agent: nothing that can happen depends on
which node is which. To tell them apart would show the network one situation in as many guises as nodes have orders,
each of which it had to learn. In this order the n-th row says when n nodes will be free, which is what a job of n nodes
has to know. It also is made from the running jobs alone, in the order in which the engine keeps them, so that nothing
has to be remembered from one decision to the next.

Actual run times are nowhere in what the engine shows, so they are not in here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from asa.backends.simulated.policies import QueueView
from numpy.typing import NDArray

from asa.errors import InputError

Integers = NDArray[np.int64]

SCALE_S = 6 * 3600
"""Scale of times, if none is given: between the short and the long requests of a large machine."""


@dataclass(frozen=True, slots=True)
class State:
    """A queue and a machine as numbers."""

    jobs: NDArray[np.float32]  # a row of four for each job that may be chosen
    edges: Integers  # where groups of nodes that are alike begin, from 0, and where the last ends
    groups: NDArray[np.float32]  # a row of two for each group; a group may be empty

    def rows(self, jobs: int, *, only: int | None = None) -> NDArray[np.float32]:
        """Write it as the network's input: so many jobs, of which those that are missing are 0, then all nodes.

        `only`: the place of the one job that is described; the first ones if not given.
        """
        shown = self.jobs if only is None else self.jobs[only : only + 1]
        nodes = int(self.edges[-1])
        rows = np.zeros((2 * jobs + nodes, 2), dtype=np.float32)
        rows[: 2 * len(shown)] = shown.reshape(-1, 2)
        rows[2 * jobs :] = np.repeat(self.groups, np.diff(self.edges), axis=0)
        return rows


class Encoder:
    """Tells what can be seen at a scheduling pass.

    Raises `InputError`: at the first pass: the machine has another number of nodes. (Later, some may be away.)
    """

    def __init__(self, nodes: int, scale_s: int = SCALE_S) -> None:
        if scale_s < 1:
            raise InputError(f"{scale_s} s is no scale of times", where="agent", hint="Give seconds, 1 or more.")
        self.nodes = nodes
        self.scale_s = scale_s
        self._fits = False

    def __call__(self, view: QueueView, jobs: Integers) -> State:
        """Tell of jobs that may be chosen, and of the machine. O(jobs + running jobs)."""
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
