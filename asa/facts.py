"""The facts that a site reports in addition to its jobs: nodes, partitions, its scheduler's rules, and outages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from asa.backend import PartitionLimits
from asa.errors import UnavailableError

__all__ = ["Away", "PartitionFacts", "SiteFacts", "Survey"]


@dataclass(frozen=True, slots=True)
class Away:
    """Cores that were unavailable for a while.

    Parameters
    ----------
    begin_s, end_s
        Seconds since 1970; `end_s` is None while they are unavailable.
    cores
        How many cores.
    pool
        The group of nodes that they belong to.
    is_drained
        Whether jobs that were running there could finish.
    """

    begin_s: float
    end_s: float | None
    cores: int
    pool: str
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition of a site.

    Parameters
    ----------
    name
        The name by which jobs ask for it.
    pool
        The group of nodes that its jobs run on; partitions that share nodes have the same group.
    limits
        What a job there may ask for.
    points
        Priority that it gives to its jobs.
    max_cores_in_use
        Cores that its running jobs may have together; None if only its nodes limit them.
    """

    name: str
    pool: str
    limits: PartitionLimits = field(default_factory=PartitionLimits)
    points: float = 0.0
    max_cores_in_use: int | None = None


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """The known facts about a site.

    Parameters
    ----------
    system
        Its name.
    pools
        Cores of each group of nodes.
    partitions
        The default partition first.
    cores_per_node
        Of its widest nodes.
    whole_nodes
        Whether jobs never share a node.
    age_accrues
        Whether jobs gain priority while a dependency keeps them back; None if not known.
    scheduler, settings
        Its scheduler's name among ``asa.schedulers``, and that one's settings.
    knows_rules
        Whether these are the site's; else they are a guess.
    away
        What was unavailable.
    seen, assumed
        For people, one sentence each: what was read from the site, and what was assumed.
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
    """The commands that ask a batch system for its facts and its jobs.

    Parameters
    ----------
    commands
        Shell command lines, by the name of the file for their output.
    read
        Makes facts of these texts, by the same names; some may be missing.
    jobs
        The name of the file of jobs.
    needed
        Names that are indispensable.
    why_not
        Makes an error of a failed command and what it said, if the batch system's other commands would say it in other
        words; None if those that it said will do.
    """

    commands: Mapping[str, str]
    read: Callable[[Mapping[str, str]], SiteFacts]
    jobs: str
    needed: tuple[str, ...] = ()
    why_not: Callable[[str, str], UnavailableError | None] = lambda command, said: None  # noqa: ARG005
