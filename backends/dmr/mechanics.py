"""The resource manager's way to resize a job (sections 3 and 5.2), and its cost (section 7.3).

Expand: a resizer job that depends on the job asks for the additional nodes, with the highest priority. When it runs,
its nodes are taken from it, it is cancelled, and the job's number of nodes is raised. If it does not run within the
time-out it is cancelled, and nothing has changed; the job has idled meanwhile.

Shrink: the processes on nodes to be given back send their data to others, and report to a management node that they
have finished. When all have, the job's number of nodes is lowered, and the nodes are free.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Resizing by checkpoint and restart, as in the paper's related work (section 2), instead of by messages."""

    disk_gb_s: float = 1.0  # rate at which all of the job's data are written and read again, however many nodes it has
    restart_s: float = 10.0  # to end the processes and start the new ones


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds for which a job stands still."""

    none_s: float = 0.0094  # seconds until the answer that there is nothing to do: Table 2's average
    expand_s: float = 0.366  # seconds of a resize, without the parts below: about Table 2's least
    shrink_s: float = 0.334
    # for each node of an expanded job: deciding takes a little longer with more nodes (Fig. 3a).
    per_node_s: float = 0.003
    per_leaving_s: float = 0.006  # for each node that leaves: all of these have to be waited for (Fig. 3b).
    # data move at this rate between each pair of nodes. There are as many pairs as the smaller of the job's two numbers
    # of nodes: the more, the faster (Fig. 3b). FDR10 has 5 GB/s.
    link_gb_s: float = 5.0
    timeout_s: float = 40.0  # seconds to wait for a resizer job: Table 2's largest, less the time of an expansion
    checkpoints: Checkpoints | None = None

    def resize_s(self, before: int, after: int, data_gb: float) -> float:
        """Return the seconds that it takes to resize a job, without waiting for a resizer job.

        Examples
        --------
        >>> costs = Costs()
        >>> round(costs.resize_s(8, 16, 1.0), 2), round(costs.resize_s(16, 8, 1.0), 2)
        (0.43, 0.39)
        """
        few, many = sorted((before, after))
        if after > before:
            manage_s = self.expand_s + self.per_node_s * after
        else:
            manage_s = self.shrink_s + self.per_leaving_s * (before - after)
        if self.checkpoints is not None:
            return manage_s + self.checkpoints.restart_s + 2 * data_gb / self.checkpoints.disk_gb_s
        moved_gb = data_gb * (many - few) / many
        return manage_s + moved_gb / few / self.link_gb_s


@dataclass(frozen=True, slots=True)
class Resizer:
    """A job that obtains nodes for another one, with the highest priority."""

    job: int  # the running job that it depends on
    nodes: int  # number of nodes to add
    until_s: float


class Ledger:
    """The nodes of each job. Each method is one update by the resource manager."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.free = nodes
        self.allocated: dict[int, int] = {}
        self.detached = 0

    def allocate(self, job: int, nodes: int) -> None:
        """Start a job."""
        assert 0 < nodes <= self.free, f"job {job} gets {nodes} nodes of {self.free}"
        assert job not in self.allocated, f"job {job} runs"
        self.free -= nodes
        self.allocated[job] = nodes

    def detach(self, job: int) -> None:
        """Set a job's number of nodes to 0; no other job gets them yet."""
        self.detached += self.allocated[job]
        self.allocated[job] = 0

    def attach(self, job: int, nodes: int) -> None:
        """Increase a job's nodes by nodes that were detached from another."""
        assert nodes <= self.detached, f"job {job} gets {nodes} nodes of {self.detached}"
        self.detached -= nodes
        self.allocated[job] += nodes

    def lower(self, job: int, nodes: int) -> None:
        """Lower a job's number of nodes."""
        assert 0 < nodes <= self.allocated[job], f"job {job} of {self.allocated[job]} nodes shrinks to {nodes}"
        self.free += self.allocated[job] - nodes
        self.allocated[job] = nodes

    def end(self, job: int) -> None:
        """End or cancel a job."""
        self.free += self.allocated.pop(job)

    def expand(self, resizer: Resizer, number: int) -> None:
        """Do all steps of section 3 for a resizer job that can run, under that job's own number."""
        self.allocate(number, resizer.nodes)
        self.detach(number)
        self.end(number)
        self.attach(resizer.job, resizer.nodes)
