"""Machines of the simulated queue."""

from __future__ import annotations

from dataclasses import dataclass

from asa.errors import InputError

__all__ = ["SYSTEMS", "Machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of equal nodes whose cores are allocated by count.

    Parameters
    ----------
    name
        Name of the machine.
    nodes, cores_per_node
        Number of nodes, and of cores in each.
    whole_nodes
        Whether jobs get only whole nodes; else any number of cores, as on sites where jobs share nodes.
    """

    name: str
    nodes: int
    cores_per_node: int
    whole_nodes: bool = False

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.cores_per_node < 1:
            raise InputError(
                f"a machine of {self.nodes} nodes of {self.cores_per_node} cores cannot be",
                where=f"machine {self.name!r}",
                hint="Give at least one of each.",
            )

    @property
    def cores(self) -> int:
        """Total number of cores."""
        return self.nodes * self.cores_per_node

    @property
    def resized_by(self) -> int:
        """Number of cores; a running job returns or receives multiples of it."""
        return self.cores_per_node if self.whole_nodes else 1

    def allocated(self, cores: int, nodes: int = 0) -> int:
        """Return the cores that a job gets, and is charged for, for a request of cores or nodes.

        Examples
        --------
        >>> Machine("m", nodes=10, cores_per_node=28, whole_nodes=True).allocated(30)
        56
        """
        wanted = max(cores, nodes * self.cores_per_node)
        return -(-wanted // self.cores_per_node) * self.cores_per_node if self.whole_nodes else wanted


SYSTEMS = {
    machine.name: machine
    for machine in (
        Machine("hpc2n", nodes=602, cores_per_node=28),
        Machine("uppmax", nodes=486, cores_per_node=20),
    )
}
"""The two centres of the ASA paper's evaluation (Section 4.2)."""
