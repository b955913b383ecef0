"""The model of a machine in BBSched: nodes, of one or more kinds, and other resources.

A resource is *shared*, like a burst buffer, or belongs to nodes, like a local SSD. All amounts are whole numbers:
nodes, and units of resources, such as GB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError, UnknownNameError, near

Integers = NDArray[np.int64]

NODES: Final = "nodes"
"""Name of nodes among resources."""
LARGEST: Final = 1 << 40
"""Amounts must be below this, so that quotients are exact enough as floats."""
_INTEGER: Final = (int, np.integer)


class JobKind(NamedTuple):
    """Number of equal nodes, and resources of each."""

    nodes: int
    each: Mapping[str, int] = {}  # resources of each node, by name


class Free(NamedTuple):
    """Free nodes of each kind, and free amount of each shared resource."""

    nodes: tuple[int, ...]
    shared: tuple[int, ...] = ()  # amount of each shared resource, in the order of `System.shared`


@dataclass(frozen=True)
class System:
    """The model of a machine in BBSched.

    Examples
    --------
    >>> system = System([JobKind(50, {"ssd": 128}), JobKind(50, {"ssd": 256})], {"burst buffer": 100})
    >>> system.objectives
    ('nodes', 'burst buffer', 'ssd', 'wasted ssd')
    >>> system.whole
    Free(nodes=(50, 50), shared=(100,))
    """

    # number of nodes; or their kinds, each with at least as much of all resources as the previous kind
    nodes: int | Sequence[JobKind]
    shared: Mapping[str, int] = field(default_factory=dict)  # amount of each resource shared by all nodes

    def __post_init__(self) -> None:
        for name, amount in ((NODES, sum(kind.nodes for kind in self.kinds)), *self.shared.items()):
            _whole(amount, f"the machine's {name}", least=1)
        for kind in self.kinds:
            _whole(kind.nodes, "the nodes of a kind", least=1)
            for name in self.per_node:
                _whole(kind.each.get(name, 0), f"a node's {name}")
        for name, total in zip(self.per_node, self.totals[1 + len(self.shared) :], strict=False):
            _whole(total, f"the {name} of all nodes", least=1)
        for name in self.per_node:
            if name in self.shared or name == NODES:
                raise InputError(
                    f"{name!r} is a resource of the nodes and something else as well",
                    where="system",
                    hint="Give each resource a name of its own.",
                )
            amounts = [kind.each.get(name, 0) for kind in self.kinds]
            if amounts != sorted(amounts):
                raise InputError(
                    f"a kind of nodes has less {name} than the one before it",
                    where="system",
                    hint="Give the kinds in order, each with at least as much of everything as the one before.",
                )
        if NODES in self.shared:
            raise InputError(f"{NODES!r} cannot be shared", where="system", hint="Call the resource something else.")

    @cached_property
    def kinds(self) -> tuple[JobKind, ...]:
        """The kinds of nodes."""
        return (JobKind(int(self.nodes)),) if isinstance(self.nodes, _INTEGER) else tuple(self.nodes)

    @cached_property
    def per_node(self) -> tuple[str, ...]:
        """The resources of single nodes."""
        return tuple(dict.fromkeys(name for kind in self.kinds for name in kind.each))

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """The resources of requests: nodes, shared resources, and resources of each node."""
        return (NODES, *self.shared, *self.per_node)

    @cached_property
    def objectives(self) -> tuple[str, ...]:
        """The objectives: resources to use well, and waste to minimize."""
        return (*self.resources, *(f"wasted {name}" for name in self.per_node))

    @cached_property
    def totals(self) -> tuple[int, ...]:
        """Total amount in the machine for each objective, for computing shares."""
        per_node = [sum(kind.nodes * kind.each.get(name, 0) for kind in self.kinds) for name in self.per_node]
        return (sum(kind.nodes for kind in self.kinds), *self.shared.values(), *per_node, *per_node)

    @cached_property
    def each(self) -> Integers:
        """Resources of a node, a row for each kind."""
        return np.array([[kind.each.get(name, 0) for name in self.per_node] for kind in self.kinds], dtype=np.int64)

    @property
    def whole(self) -> Free:
        """The free resources when nothing runs."""
        return Free(tuple(kind.nodes for kind in self.kinds), tuple(self.shared.values()))

    @cached_property
    def pools(self) -> dict[str, int]:
        """The pools, in the order of a job's needs.

        Nodes of each kind or a better one, from all nodes on; shared resources; nodes' resources, summed.
        """
        counts = [kind.nodes for kind in self.kinds]
        at_least = {f"nodes of kind {kind} or better": sum(counts[kind:]) for kind in range(1, len(counts))}
        volumes = self.totals[1 + len(self.shared) : len(self.resources)]
        return {NODES: sum(counts), **at_least, **self.shared, **dict(zip(self.per_node, volumes, strict=True))}

    def left(self, pools: Integers, spare: Integers | None = None) -> Free:
        """Return the free resources, from the remaining amount of each of `pools`.

        `spare`: upper bounds of the amounts that may be taken. Nodes of a kind also count for lower kinds, so the best
        nodes are allocated first, as many as all bounds allow.
        """
        kinds = len(self.kinds)
        nodes, shared = pools[:kinds].tolist(), pools[kinds : kinds + len(self.shared)]
        counts = [more - less for more, less in pairwise([*nodes, 0])]
        if spare is not None:
            shared = np.maximum(np.minimum(shared, spare[kinds : kinds + len(self.shared)]), 0)
            limits, given = spare[:kinds].tolist(), 0
            for kind in reversed(range(kinds)):
                counts[kind] = max(min(counts[kind], min(limits[: kind + 1]) - given), 0)
                given += counts[kind]
        return Free(tuple(counts), tuple(shared.tolist()))

    def free(self, nodes: int | Sequence[int], shared: Mapping[str, int] | None = None) -> Free:
        """Return the free resources.

        Raises `InputError`: a number is below 0 or above the machine's, or the numbers are not as many as the kinds of
        nodes.
        """
        counts = (int(nodes),) if isinstance(nodes, _INTEGER) else tuple(nodes)
        if len(counts) != len(self.kinds):
            raise InputError(
                f"free nodes of {len(counts)} kinds, where there are {len(self.kinds)}",
                where="free",
                hint="Give as many numbers as there are kinds of nodes.",
            )
        for count, kind in zip(counts, self.kinds, strict=True):
            _whole(count, "the free nodes", most=kind.nodes)
        left = dict(self.shared)
        for name, amount in (shared or {}).items():
            if name not in left:
                raise UnknownNameError(
                    f"no resource called {name!r} is shared",
                    where="free",
                    hint=f"{near(name, left)}Known: {', '.join(left) or 'none'}.",
                )
            left[name] = _whole(amount, f"the free {name}", most=self.shared[name])
        return Free(counts, tuple(left.values()))

    def objective(self, name: str) -> int:
        """Return the index of an objective."""
        if name not in self.objectives:
            raise UnknownNameError(
                f"nothing called {name!r} can be used well",
                where="system",
                hint=f"{near(name, self.objectives)}Known: {', '.join(self.objectives)}.",
            )
        return self.objectives.index(name)


def _whole(amount: Any, what: str, *, least: int = 0, most: int = LARGEST - 1) -> int:
    """Check an amount."""
    if isinstance(amount, bool) or not isinstance(amount, _INTEGER) or not least <= amount <= most:
        raise InputError(
            f"{what}: {amount!r} is no whole number from {least} to {most}",
            where="system",
            hint="Count in a unit in which it is one.",
        )
    return int(amount)
