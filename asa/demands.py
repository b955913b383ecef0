"""What a stage, and so its job, takes of a machine beside cores and time: each resource is described here, once.

Stages, jobs and what is passed to Slurm have these fields from here. What stages that share a job need together, the
key of a workflow file that is written back, and the bounds that are checked follow from the description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import Field, dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from asa.units import parse_memory, parse_storage

_MAX_BYTES = 1 << 60
MAX_COUNT = 20_000_000
"""Cores, nodes or GPUs of a stage at most: no machine has more."""


class Resource(NamedTuple):
    """One of them."""

    field: str  # of a stage and a job
    key: str  # of a workflow file and of `asa.stage`
    words: str  # what there is so and so much of, in messages
    kind: Literal["count", "bytes", "flag"]
    max_amount: int

    @property
    def parse(self) -> Callable[[str], int]:
        """Give what reads it from text; only resources in bytes are written as text."""
        return parse_memory if self.key == "memory" else parse_storage


def _count(key: str) -> Any:
    return field(default=0, metadata={"resource": (key, key, "count", MAX_COUNT)})


def _size(key: str, words: str) -> Any:
    return field(default=0, metadata={"resource": (key, f"bytes of {words}", "bytes", _MAX_BYTES)})


def _flag(key: str) -> Any:
    return field(default=False, metadata={"resource": (key, key, "flag", 1)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What is needed for the whole of a stage or a job; 0 for nothing in particular.

    Parameters
    ----------
    memory_bytes
        Memory, on all its nodes together.
    gpus
        GPUs, likewise.
    burst_buffer_bytes
        Fast storage that its nodes share while it runs.
    exclusive
        Its nodes are its own: no other job is on them, and it has, and pays for, all their cores.
    """

    memory_bytes: int = _size("memory", "memory")
    gpus: int = _count("gpus")
    burst_buffer_bytes: int = _size("burst_buffer", "burst buffer")
    exclusive: bool = _flag("exclusive")

    def allocated(self, cores: int, nodes: int, cores_per_node: int) -> int:
        """Count the cores that are given to who asks for so many, or for nodes; 0 for what is not said."""
        cores = max(cores, nodes * cores_per_node)
        return -(-cores // cores_per_node) * cores_per_node if self.exclusive and cores_per_node else cores


_FIELDS: tuple[Field[Any], ...] = fields(Demands)
_NAMES = tuple(one.name for one in _FIELDS)
_VALUES = attrgetter(*_NAMES)


def resources() -> Iterator[Resource]:
    """List what there is to ask for.

    Examples
    --------
    >>> [resource.key for resource in resources()]
    ['memory', 'gpus', 'burst_buffer', 'exclusive']
    """
    return (Resource(one.name, *one.metadata["resource"]) for one in _FIELDS)


def demands_of(one: Demands) -> dict[str, Any]:
    """Give what a stage or a job needs, by field.

    Examples
    --------
    >>> demands_of(Demands(gpus=2))
    {'memory_bytes': 0, 'gpus': 2, 'burst_buffer_bytes': 0, 'exclusive': False}
    """
    return dict(zip(_NAMES, _VALUES(one), strict=True))


def divided(one: Demands, count: int) -> dict[str, Any]:
    """Give what each of so many jobs needs of what they need together, by field; what is counted is rounded up.

    Examples
    --------
    >>> divided(Demands(memory_bytes=10, gpus=3, exclusive=True), 2)
    {'memory_bytes': 5, 'gpus': 2, 'burst_buffer_bytes': 0, 'exclusive': True}
    """
    return {name: value if isinstance(value, bool) else -(-value // count) for name, value in demands_of(one).items()}


def multiplied(one: Demands, count: int) -> dict[str, Any]:
    """Give what so many of something need together, by field.

    Examples
    --------
    >>> multiplied(Demands(memory_bytes=10, exclusive=True), 3)
    {'memory_bytes': 30, 'gpus': 0, 'burst_buffer_bytes': 0, 'exclusive': True}
    """
    return {name: value if isinstance(value, bool) else value * count for name, value in demands_of(one).items()}


def together(stages: Iterable[Demands]) -> Demands:
    """Give what some stages need that run at the same time, in one job: the sum, and nodes of their own if one does.

    Examples
    --------
    >>> together([Demands(memory_bytes=4), Demands(memory_bytes=10)]).memory_bytes
    14
    """
    amounts = zip(*map(_VALUES, stages), strict=True)
    sums = (any(column) if isinstance(column[0], bool) else sum(column) for column in amounts)
    return Demands(**dict(zip(_NAMES, sums, strict=True)))


def shared_by(stages: Iterable[Demands]) -> dict[str, Any]:
    """Give what a job needs in which some stages run one after the other: of each resource the largest amount.

    Examples
    --------
    >>> shared_by([Demands(gpus=2), Demands(memory_bytes=10)])
    {'memory_bytes': 10, 'gpus': 2, 'burst_buffer_bytes': 0, 'exclusive': False}
    """
    return dict(zip(_NAMES, map(max, zip(*map(_VALUES, stages), strict=True)), strict=True))
