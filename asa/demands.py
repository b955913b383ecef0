"""Resources that a stage and its job need in addition to cores and time: each is described once, here.

Stages, jobs and Slurm's options take their fields from here. The description also gives the sum for stages that share a
job, the key in a workflow file, and the upper bound that is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import Field, dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from asa.units import parse_memory, parse_storage

_MAX_BYTES = 1 << 60
MAX_COUNT = 20_000_000
"""Upper bound of a stage's cores, nodes or GPUs: no machine has more."""


class Resource(NamedTuple):
    """A resource."""

    field: str  # of a stage and a job
    key: str  # of a workflow file and of `asa.stage`
    words: str  # what is counted, in messages
    kind: Literal["count", "bytes", "flag"]
    max_amount: int

    @property
    def parse(self) -> Callable[[str], int]:
        """Return the function that reads it from text; only resources in bytes are written as text."""
        return parse_memory if self.key == "memory" else parse_storage


def _count(key: str) -> Any:
    return field(default=0, metadata={"resource": (key, key, "count", MAX_COUNT)})


def _size(key: str, words: str) -> Any:
    return field(default=0, metadata={"resource": (key, f"bytes of {words}", "bytes", _MAX_BYTES)})


def _flag(key: str) -> Any:
    return field(default=False, metadata={"resource": (key, key, "flag", 1)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What a whole stage or job needs; 0 for no particular demand.

    Parameters
    ----------
    memory_bytes
        Memory, on all nodes together.
    gpus
        GPUs, likewise.
    burst_buffer_bytes
        Fast storage, shared by its nodes while it runs.
    exclusive
        No other job is on its nodes: it has, and pays for, all their cores.
    """

    memory_bytes: int = _size("memory", "memory")
    gpus: int = _count("gpus")
    burst_buffer_bytes: int = _size("burst_buffer", "burst buffer")
    exclusive: bool = _flag("exclusive")

    def allocated(self, cores: int, nodes: int, cores_per_node: int) -> int:
        """Count the cores allocated for a request of cores, nodes or both; 0 for what is not given."""
        cores = max(cores, nodes * cores_per_node)
        return -(-cores // cores_per_node) * cores_per_node if self.exclusive and cores_per_node else cores


_FIELDS: tuple[Field[Any], ...] = fields(Demands)
_NAMES = tuple(one.name for one in _FIELDS)
_VALUES = attrgetter(*_NAMES)


def resources() -> Iterator[Resource]:
    """List the resources.

    Examples
    --------
    >>> [resource.key for resource in resources()]
    ['memory', 'gpus', 'burst_buffer', 'exclusive']
    """
    return (Resource(one.name, *one.metadata["resource"]) for one in _FIELDS)


def demands_of(one: Demands) -> dict[str, Any]:
    """Return what a stage or a job needs, by field.

    Examples
    --------
    >>> demands_of(Demands(gpus=2))
    {'memory_bytes': 0, 'gpus': 2, 'burst_buffer_bytes': 0, 'exclusive': False}
    """
    return dict(zip(_NAMES, _VALUES(one), strict=True))


def divided(one: Demands, count: int) -> dict[str, Any]:
    """Divide a need among so many jobs, by field, rounded up.

    Examples
    --------
    >>> divided(Demands(memory_bytes=10, gpus=3, exclusive=True), 2)
    {'memory_bytes': 5, 'gpus': 2, 'burst_buffer_bytes': 0, 'exclusive': True}
    """
    return {name: value if isinstance(value, bool) else -(-value // count) for name, value in demands_of(one).items()}


def multiplied(one: Demands, count: int) -> dict[str, Any]:
    """Return what so many of the same need together, by field.

    Examples
    --------
    >>> multiplied(Demands(memory_bytes=10, exclusive=True), 3)
    {'memory_bytes': 30, 'gpus': 0, 'burst_buffer_bytes': 0, 'exclusive': True}
    """
    return {name: value if isinstance(value, bool) else value * count for name, value in demands_of(one).items()}


def together(stages: Iterable[Demands]) -> Demands:
    """Return what stages need that run at the same time in one job: the sum; exclusive nodes if one asks for them.

    Examples
    --------
    >>> together([Demands(memory_bytes=4), Demands(memory_bytes=10)]).memory_bytes
    14
    """
    amounts = zip(*map(_VALUES, stages), strict=True)
    sums = (any(column) if isinstance(column[0], bool) else sum(column) for column in amounts)
    return Demands(**dict(zip(_NAMES, sums, strict=True)))


def shared_by(stages: Iterable[Demands]) -> dict[str, Any]:
    """Return what stages need that run one after the other in one job: the maximum of each resource.

    Examples
    --------
    >>> shared_by([Demands(gpus=2), Demands(memory_bytes=10)])
    {'memory_bytes': 10, 'gpus': 2, 'burst_buffer_bytes': 0, 'exclusive': False}
    """
    return dict(zip(_NAMES, map(max, zip(*map(_VALUES, stages), strict=True)), strict=True))
