"""What a site tells of itself beside its jobs: nodes, partitions, how its scheduler ranks, and what was away when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from asa.backend import PartitionLimits

__all__ = ["Away", "PartitionFacts", "SiteFacts", "Survey"]


@dataclass(frozen=True, slots=True)
class Away:
    """Cores that could not be used for a while.

    Parameters
    ----------
    begin_s, end_s
        From when and until when, seconds since 1970; None for still.
    cores
        How many.
    pool
        Of which group of nodes.
    is_drained
        Jobs that ran there could finish.
    """

    begin_s: float
    end_s: float | None
    cores: int
    pool: str
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition.

    Parameters
    ----------
    name
        By which jobs name it.
    pool
        The group of nodes that its jobs run on; partitions that share nodes are of one.
    limits
        What a job there may ask for.
    points
        Priority that its jobs have from it.
    """

    name: str
    pool: str
    limits: PartitionLimits = field(default_factory=PartitionLimits)
    points: float = 0.0


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """What is known of a site.

    Parameters
    ----------
    system
        Its name.
    pools
        Cores of each group of nodes that partitions share.
    partitions
        The one that jobs go to which name none comes first.
    cores_per_node
        Of its widest nodes.
    whole_nodes
        Jobs share no node.
    age_accrues
        Whether jobs gain priority while a dependency keeps them back; None where that is not known.
    scheduler, settings
        Its name among ``asa.schedulers``, and how it is set.
    knows_rules
        Whether these are the site's own; else they are a guess.
    away
        What was away.
    seen, assumed
        For people, a sentence each: what was read of the site, and what was taken to be so in its place.
    """

    system: str
    pools: Mapping[str, int]
    partitions: tuple[PartitionFacts, ...]
    cores_per_node: int
    whole_nodes: bool = False
    age_accrues: bool | None = None
    scheduler: str = "multifactor"
    settings: Mapping[str, str] = field(default_factory=dict)
    knows_rules: bool = True
    away: tuple[Away, ...] = ()
    seen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """How a batch system is asked for its facts, and for its jobs.

    Parameters
    ----------
    commands
        By the name of the file that holds what it prints: a command line for a shell.
    read
        Makes facts of the texts, by the same names; those that are missing were not to be had.
    jobs
        The name of the file of jobs.
    needed
        Names without which nothing can be said.
    """

    commands: Mapping[str, str]
    read: Callable[[Mapping[str, str]], SiteFacts]
    jobs: str
    needed: tuple[str, ...] = ()
