"""The planned resources: nodes of several kinds, licences, and reserves for jobs that need expensive resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.core import documents
from asa.errors import InputError, near
from asa.units import parse_duration, parse_memory

from .requests import PARTS, STANDARD_KINDS, Arrangement, RequestKind, ResourceRequest

_MAX_NODES = 1_000_000  # of one kind: the largest machines have a sixth of that
_GIB = 1 << 30
_OCULUS = "oculus"
_MAX_ITEMS = 1 << 50  # upper bound for a resource
_NAME = re.compile(r"[^\s,:+=]+")
PRIORITIES = ("start", "deadline", "node")
"""What a request may get a priority for, besides resources."""
_WORDS = {"rset", *PARTS}


@dataclass(frozen=True, slots=True)
class Admission:
    """A condition under which a node accepts a job (node specific limits, Section 5.4)."""

    at_least: Mapping[str, int] = field(default_factory=dict)  # minimum requirements of one of its chunks
    at_most_s: int = 0  # upper bound of its duration; 0 for any

    def admits(self, needs: Mapping[str, int], lasts_s: int) -> bool:
        """Return whether the condition holds for a chunk and the duration of its job."""
        is_large = all(needs.get(name, 0) >= items for name, items in self.at_least.items())
        return is_large and (not self.at_most_s or lasts_s <= self.at_most_s)


@dataclass(frozen=True, slots=True)
class Node:
    """A computer."""

    name: str
    resources: Mapping[str, int]  # items of each consumable resource; memory in bytes
    properties: Mapping[str, str] = field(default_factory=dict)  # such as its architecture and network
    priority: int = 0  # nodes of higher priority are more expensive, and used after others
    # conditions of which one must hold for a job; any job is accepted if there are none
    admits: tuple[Admission, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Resources that are kept free on nodes with an expensive resource, such as cores for jobs that use a GPU.

    Jobs that do not ask for it get only the rest, and never such a node exclusively.
    """

    resource: str
    keeps: Mapping[str, int]  # amounts of other resources kept on such a node, by name


@dataclass(frozen=True, slots=True)
class CcsTimeouts:
    """Longest times of operations around a job, in seconds, for which its resources are planned as well.

    A node that takes longer is down for the planner, and its jobs are planned anew.
    """

    allocate_s: int = 0  # to get a job's nodes ready
    release_s: int = 0  # to free them once it has ended

    @property
    def sum_s(self) -> int:
        """Both together."""
        return self.allocate_s + self.release_s


@dataclass(frozen=True, slots=True)
class CcsSystem:
    """A cluster."""

    name: str
    nodes: tuple[Node, ...]
    licences: Mapping[str, int] = field(default_factory=dict)  # items of resources without nodes
    reserves: tuple[Reserve, ...] = ()
    walltime_s: int = 3600  # default duration of a request
    sizes: frozenset[str] = frozenset({"mem", "vmem"})  # resources counted in bytes
    timeouts: CcsTimeouts = CcsTimeouts()  # frozen
    # what a request that says no priority gets: for a `start`, a `deadline`, each `node` that it needs at least, and
    # for each resource, by name, that it asks for
    priorities: Mapping[str, int] = field(default_factory=dict)
    extension_percent: int = 10  # by so much of its first walltime a running job may be extended

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        if not names or len(set(names)) != len(names):
            raise InputError("nodes need names that differ", where=f"system {self.name!r}", hint="Name each, once.")
        if why := self._wrong():
            raise InputError(why, where=f"system {self.name!r}", hint="Correct its description.")

    def _wrong(self) -> str:
        """Return the error of an invalid system."""
        resources = {name for node in self.nodes for name in node.resources}
        counted, properties = resources | set(self.licences), set(self.properties)
        kept = [name for reserve in self.reserves for name in (reserve.resource, *reserve.keeps)]
        kept += [name for node in self.nodes for reason in node.admits for name in reason.at_least]
        named = [self.licences, *(node.resources for node in self.nodes), *(reserve.keeps for reserve in self.reserves)]
        named += [reason.at_least for node in self.nodes for reason in node.admits]
        texts = {
            *counted,
            *properties,
            *(text for node in self.nodes for text in (node.name, *node.properties.values())),
        }
        wrong = {
            "its nodes have no resources": set() if resources else {""},
            "cannot be that many: {}": {
                name for items in named for name, many in items.items() if not 0 <= many < _MAX_ITEMS
            },
            "{} belongs to nodes, and to none": set(self.licences) & resources,
            "{} is counted, and a property": counted & properties,
            "{} is a word of requests, and cannot name a resource": (counted | properties) & _WORDS,
            "no request could write {!r}": {text for text in texts if not _NAME.fullmatch(text)},
            "no node has {}": set(kept) - resources,
            "nothing of a request has a priority by {!r}": set(self.priorities) - counted - set(PRIORITIES),
            "a request lasts a second at least": {""} if self.walltime_s < 1 else set(),
        }
        return next((why.format(min(names)) for why, names in wrong.items() if names), "")

    @property
    def resources(self) -> tuple[str, ...]:
        """The consumable resources of nodes, in order of first appearance."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.resources))

    @property
    def properties(self) -> frozenset[str]:
        """The properties of any node."""
        return frozenset(name for node in self.nodes for name in node.properties)

    @property
    def kinds(self) -> Mapping[str, RequestKind]:
        """Kind of each resource of requests."""
        counted = [*self.resources, *self.licences]
        own = {name: RequestKind.SIZE if name in self.sizes else RequestKind.COUNT for name in counted}
        return dict(STANDARD_KINDS) | dict.fromkeys(self.properties, RequestKind.PROPERTY) | own

    def priority_of(self, request: ResourceRequest) -> int:
        """Compute the priority of a request by its kind, its special resources, and its parallelism (Section 5.4).

        Examples
        --------
        >>> system = CcsSystem("s", (Node("n", {"ncpus": 16}),), priorities={"node": 2, "deadline": 100})
        >>> system.priority_of(ResourceRequest.parse("rset=40:ncpus=1,deadline=3600"))
        106
        """
        if not self.priorities:
            return 0
        wanted = {name for name, items in request.job_set().items() if items} | set(request.licences)
        wanted |= {"start"} if request.start_s is not None else set()
        wanted |= {"deadline"} if request.deadline_s is not None else set()
        nodes = self._least_nodes(request) * self.priorities.get("node", 0)
        return nodes + sum(self.priorities[name] for name in wanted & self.priorities.keys())

    def _least_nodes(self, request: ResourceRequest) -> int:
        """Return the number of nodes that a request needs at least."""
        if request.place.arrangement is Arrangement.SCATTER:
            return sum(chunk.count for chunk in request.chunks)
        most = dict(zip(self.resources, self.items().max(axis=0).tolist(), strict=True))
        needs = [-(-items // most[name]) for name, items in request.job_set().items() if most.get(name)]
        return max(needs, default=1)

    def items(self) -> NDArray[np.int64]:
        """Items by node and resource."""
        rows = [[node.resources.get(name, 0) for name in self.resources] for node in self.nodes]
        return np.array(rows, dtype=np.int64)

    def weights(self) -> NDArray[np.float64]:
        """Return the cost of each node: its largest share of any resource, and its priority (Section 5.2).

        Examples
        --------
        >>> nodes = (Node("big", {"ncpus": 32}), Node("small", {"ncpus": 8}), Node("gpu", {"ncpus": 8, "gpus": 1}))
        >>> CcsSystem("s", nodes).weights().tolist()
        [32.0, 8.0, 48.0]
        """
        items = self.items()
        totals = np.maximum(items.sum(axis=0), 1)
        cores = float(items[:, self.resources.index("ncpus")].sum()) if "ncpus" in self.resources else 1.0
        largest: NDArray[np.float64] = (items / totals).max(axis=1)
        priorities = np.array([node.priority for node in self.nodes], dtype=np.float64)
        return largest * cores + priorities * cores


def oculus() -> CcsSystem:
    """Return a cluster like the paper's OCuLUS: 616 nodes, 9,920 cores, 32 GPUs, 8 Xeon Phis; 64 GB, 256 GB and 1 TB.

    The paper does not give the numbers of nodes by memory. Jobs without a GPU leave two cores of its node to those with
    one, and the four nodes of 1 TB take only large or short jobs.
    """
    ib = {"arch": "linux", "net": "IB"}
    large = (
        Admission({"vmem": 80 * _GIB}),
        Admission({"mem": 66 * _GIB}),
        Admission({"ncpus": 17}),
        Admission(at_most_s=12 * 3600),
    )
    return CcsSystem(
        "oculus",
        (
            *_nodes("norm", 552, {"ncpus": 16, "mem": 64 * _GIB, "vmem": 80 * _GIB}, ib),
            *_nodes("wash", 20, {"ncpus": 16, "mem": 256 * _GIB, "vmem": 272 * _GIB}, ib),
            *_nodes("gpu", 32, {"ncpus": 16, "mem": 64 * _GIB, "vmem": 80 * _GIB, "gpus": 1}, ib | {"acc": "tesla"}),
            *_nodes("phi", 8, {"ncpus": 16, "mem": 64 * _GIB, "vmem": 80 * _GIB, "phis": 1}, ib | {"acc": "phi"}),
            *_nodes("smp", 4, {"ncpus": 32, "mem": 1024 * _GIB, "vmem": 1040 * _GIB}, ib, admits=large),
        ),
        licences={"g03": 16},
        reserves=(Reserve("gpus", {"ncpus": 2}),),
    )


def _nodes(
    name: str, many: int, resources: Mapping[str, int], properties: Mapping[str, str], **more: Any
) -> list[Node]:
    return [Node(f"{name}{number:03}", resources, properties, **more) for number in range(1, many + 1)]


def find_system(name: str, where: str = "nodes") -> CcsSystem:
    """Return a system by its name, or from its file."""
    if name == _OCULUS:
        return oculus()
    if not name.endswith(".toml") and not Path(name).exists():
        hint = f"{near(name, [_OCULUS])}Write oculus, or name a .toml file."
        raise InputError(f"there is no system {name!r}", where=where, hint=hint)
    return load_system(name)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return documents.read_toml(documents.read_text(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="Check the path.") from error
    except ValueError as error:
        raise InputError(f"cannot be read: {error}", where=str(path), hint="It is to be a file of TOML.") from error


def load_system(path: str | Path) -> CcsSystem:
    """Read a cluster from a TOML file.

    `path`: a file with ``name``, a table ``[[nodes]]`` for each kind of node (``name``, ``count``, ``resources``,
    ``properties``, ``priority``, ``admits``), and optionally ``[licences]``, ``[[reserves]]``, ``walltime``,
    ``extension`` (of a running job, as ``"10%"`` of its walltime), ``[timeouts]`` (``allocate``, ``release``),
    ``[priority]`` (numbers for ``start``, ``deadline``, ``node``, and resources). Sizes are text with a unit, as
    ``"64G"``; a bare number means bytes, or items.
    """
    document = read_toml(path)
    reader = _SystemReader()
    try:
        nodes = [node for kind in document.pop("nodes") for node in reader.kind(dict(kind))]
        reserves = tuple(reader.reserve(dict(table)) for table in document.pop("reserves", []))
        walltime_s = int(parse_duration(str(document.pop("walltime", "1h"))))
        licences = reader.items(document.pop("licences", {}))
        extension = _percent(document.pop("extension", "10%"))
        name = str(document.pop("name", Path(path).stem))
        sizes = frozenset({"mem", "vmem", *reader.sizes})
        timeouts = reader.timeouts(dict(document.pop("timeouts", {})))
        priorities = {name: _whole(value, name) for name, value in document.pop("priority", {}).items()}
        _all_read(document, "a system")
        return CcsSystem(name, tuple(nodes), licences, reserves, walltime_s, sizes, timeouts, priorities, extension)
    except InputError as error:
        raise InputError(error.message, where=str(path), hint=error.hint) from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"has no {error}" if isinstance(error, KeyError) else f"is no system: {error}"
        raise InputError(what, where=str(path), hint="See `load_system`.") from error


class _SystemReader:
    """Reads the parts of a system, and collects the resources that were given as sizes."""

    def __init__(self) -> None:
        self.sizes: set[str] = set()

    def kind(self, table: dict[str, Any]) -> Iterable[Node]:
        name, count = str(table.pop("name")), _whole(table.pop("count", 1), "count")
        resources = self.items(table.pop("resources"))
        properties = {key: _text(value) for key, value in table.pop("properties", {}).items()}
        admits = tuple(self.admission(dict(entry)) for entry in table.pop("admits", []))
        priority = _whole(table.pop("priority", 0), "priority")
        if not 1 <= count <= _MAX_NODES:
            raise ValueError(f"count = {count!s:.40}, which is not between 1 and {_MAX_NODES:,}")
        _all_read(table, "nodes")
        numbers = range(1, count + 1)
        names = [name] if count == 1 else [f"{name}{number:0{len(str(count))}}" for number in numbers]
        return [Node(name, resources, properties, priority, admits) for name in names]

    def admission(self, table: dict[str, Any]) -> Admission:
        lasts_s = int(parse_duration(str(table.pop("walltime")))) if "walltime" in table else 0
        return Admission(self.items(table), lasts_s)

    def timeouts(self, table: dict[str, Any]) -> CcsTimeouts:
        allocate_s, release_s = (int(parse_duration(str(table.pop(name, "0")))) for name in ("allocate", "release"))
        _all_read(table, "timeouts")
        return CcsTimeouts(allocate_s, release_s)

    def reserve(self, table: dict[str, Any]) -> Reserve:
        made = Reserve(str(table.pop("resource")), self.items(table.pop("keeps")))
        _all_read(table, "reserves")
        return made

    def items(self, amounts: Mapping[str, Any]) -> dict[str, int]:
        """Read items: numbers, or sizes of memory such as ``64g``."""
        texts = {name: value for name, value in amounts.items() if isinstance(value, str) and not value.isdecimal()}
        self.sizes |= texts.keys()
        sizes = {name: int(parse_memory(value)) for name, value in texts.items()}
        others = {name: value for name, value in amounts.items() if name not in texts}
        return sizes | {name: _whole(int(v) if isinstance(v, str) else v, name) for name, v in others.items()}


def _whole(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} = {value!r} is no whole number")  # noqa: TRY004 - the caller reports a value
    return value


def _percent(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,4}%", value):
        raise ValueError(f"{value!r} is no percentage, such as '10%'")
    return int(value[:-1])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _all_read(left: Mapping[str, Any], whose: str) -> None:
    if left:
        raise ValueError(f"{whose} have no {min(left)!r}")
