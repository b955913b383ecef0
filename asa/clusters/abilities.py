"""What a site of several clusters can do: what all of them can, in partitions of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from asa.backend import Capabilities, DependencyType, PartitionLimits


def abilities_of(clusters: Mapping[str, Capabilities], *, moves_s: float = 0.0) -> Capabilities:
    """Return the abilities of several clusters, the first of which takes jobs that name no partition.

    Examples
    --------
    >>> big, small = (Capabilities(name, cores, 4, True, partition="batch") for name, cores in (("b", 64), ("s", 8)))
    >>> both = abilities_of({"big": big, "small": small})
    >>> both.system, both.partition, list(both.partitions), both.max_cores
    ('b+s', 'batch@big', ['batch@big', 'batch@small'], 64)
    """
    every = list(clusters.values())
    return Capabilities(
        **_limits(every),
        system="+".join(here.system for here in every),
        cores_per_node=max(here.cores_per_node for here in every),
        dependency_types=frozenset(DependencyType).intersection(*(here.dependency_types for here in every)),
        partition=every[0].partition_on(next(iter(clusters))),
        partitions=dict(part for name, here in clusters.items() for part in _partitions(name, here)),
        accounts=tuple(dict.fromkeys(account for here in every for account in here.accounts)),
        charges="allocated" if any(here.charges == "allocated" for here in every) else "used",
        clusters=dict(clusters),
        moves_s=moves_s,
    )


def _limits(every: Sequence[Capabilities]) -> dict[str, Any]:
    """Return what holds of several clusters: a bound is the smallest, and an ability is one that all have.

    But the largest job goes to the largest cluster, one that accepts late is enough for doubt, and whether nodes are
    given whole is said by each partition.
    """
    found: dict[str, Any] = {}
    for one in fields(Capabilities):
        values = [getattr(here, one.name) for here in every]
        if one.name.startswith("max_"):
            found[one.name] = min((value for value in values if value is not None), default=None)
        elif all(isinstance(value, bool) for value in values):
            found[one.name] = all(values)
    return found | {
        "max_cores": max(here.max_cores for here in every),
        "accepts_late": any(here.accepts_late for here in every),
        "whole_nodes": False,
        "plans": False,
    }


def _partitions(name: str, here: Capabilities) -> Iterator[tuple[str, PartitionLimits]]:
    for partition, limits in (here.partitions or {here.partition: PartitionLimits()}).items():
        yield (
            here.partition_on(name, partition),
            replace(
                limits,
                max_cores=here.max_cores if limits.max_cores is None else limits.max_cores,
                cores_per_node=limits.cores_per_node or here.cores_per_node,
                whole_nodes=here.gives_whole_nodes(limits),
            ),
        )
