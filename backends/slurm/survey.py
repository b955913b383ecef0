"""Derives a site's abilities from Slurm's reports. Pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from asa.backend import Capabilities, PartitionLimits
from asa.errors import InputError

from .link import SlurmNode, SlurmPartition, whole
from .settings import SlurmSettings

USUAL_PLANNED = 20
"""Slurm's default of ``bf_max_job_array_resv``."""

_UNKNOWN: Mapping[str, str] = {}
_PLANNED = re.compile(r"\bbf_max_job_array_resv=(\d+)")


def age_accrues(config: Mapping[str, str]) -> bool | None:
    """Whether a job's age accrues while a dependency holds it, by slurm.conf; None if that is not known.

    With ``priority/basic`` a job's priority follows from the order of submission, even if the job is held. Else age
    begins to count when a job becomes eligible, unless ``PriorityFlags`` say otherwise.

    Examples
    --------
    >>> age_accrues({"PriorityType": "priority/multifactor", "PriorityFlags": "ACCRUE_ALWAYS,NO_FAIR_TREE"})
    True
    """
    if config.get("PriorityType", "").endswith("basic"):
        return True
    if "ACCRUE_ALWAYS" in config.get("PriorityFlags", "").upper():
        return True
    return False if "PriorityType" in config else None


def kills_invalid(config: Mapping[str, str]) -> bool | None:
    """Whether Slurm cancels jobs whose dependency can never be met; None if slurm.conf does not say.

    The flag is in ``DependencyParameters``; in earlier versions it was in ``SchedulerParameters``.
    """
    lists = [config[name] for name in ("DependencyParameters", "SchedulerParameters") if name in config]
    return any("kill_invalid_depend" in list_ for list_ in lists) if lists else None


def planned_together(config: Mapping[str, str]) -> int | None:
    """Return for how many waiting jobs of an array the backfill scheduler keeps places; None if that is not known.

    Examples
    --------
    >>> settings = {"SchedulerType": "sched/backfill", "SchedulerParameters": "bf_continue,bf_max_job_array_resv=5"}
    >>> planned_together(settings), planned_together({**settings, "SchedulerParameters": "(null)"})
    (5, 20)
    """
    if not config.get("SchedulerType", "").endswith("backfill"):
        return None
    found = _PLANNED.search(config.get("SchedulerParameters", ""))
    planned = whole(found[1]) if found else None
    return USUAL_PLANNED if planned is None else planned


def partition_limits(
    partition: SlurmPartition, nodes: Sequence[SlurmNode], *, is_whole: bool | None = None
) -> PartitionLimits:
    """Return the limits of a job in a partition; `is_whole`: whether it gives whole nodes, if a user says so."""
    own = [node for node in nodes if partition.name in node.partitions]
    widest = max((node.cores for node in own), default=0)
    cores = max(sum(node.cores for node in own), partition.cores)  # an answer may lack some nodes
    if partition.max_nodes is not None and widest:
        cores = min(cores, partition.max_nodes * widest)
    return PartitionLimits(
        max_walltime_s=partition.max_walltime_s,
        max_nodes=partition.max_nodes,
        max_cores=cores or None,
        cores_per_node=widest,
        memory_per_node_bytes=max((node.memory_bytes for node in own), default=0),
        gpus_per_node=max((node.gpus for node in own), default=None),
        is_up=partition.is_up,
        accounts=partition.accounts,
        barred_accounts=partition.barred_accounts,
        whole_nodes=partition.is_exclusive if is_whole is None else is_whole,
    )


def default_partition(partitions: Sequence[SlurmPartition]) -> str:
    """Return the default partition; empty if it is not reported and there are several.

    Most versions of the REST interface do not report it.
    """
    if len(partitions) == 1:
        return partitions[0].name
    return next((partition.name for partition in partitions if partition.is_default), "")


def capabilities(
    system: str,
    partitions: Sequence[SlurmPartition],
    nodes: Sequence[SlurmNode],
    settings: SlurmSettings,
    *,
    accrues: bool,
    accounts: Sequence[str] = (),
    changeable: Collection[str] = ("nodes",),
    config: Mapping[str, str] = _UNKNOWN,
) -> Capabilities:
    """Return the abilities of a site; the user's settings take precedence.

    `accounts`: accounts for jobs that name none; empty if not known. `changeable`: properties of a job that the link
    can change; see `SlurmLink.changeable`. `config`: the cluster's configuration by Slurm's names, as far as known.
    Raises `InputError`: the user's partition does not exist, or Slurm does not report the machine's size.
    """
    is_linear = config.get("SelectType", "").endswith("linear")
    is_whole = is_linear or None if settings.whole_nodes is None else settings.whole_nodes
    limits = {partition.name: partition_limits(partition, nodes, is_whole=is_whole) for partition in partitions}
    if settings.partition and limits and settings.partition not in limits:
        raise InputError(
            f"there is no partition {settings.partition!r}",
            where="partition",
            hint=f"Name one of those that are there: {', '.join(limits)}.",
        )
    default = settings.partition or default_partition(partitions)
    reachable = [limit.max_cores or 0 for limit in limits.values() if limit.is_up]
    max_cores = settings.max_cores or max(reachable, default=0) or sum(node.cores for node in nodes)
    if not max_cores:
        raise InputError(
            "Slurm tells of no partition that is up, and of no nodes",
            where="max_cores",
            hint="If that is how the site is, set max_cores and cores_per_node.",
        )
    cores_per_node = settings.cores_per_node or _common_width(default, nodes)
    return Capabilities(
        system=system,
        max_cores=max_cores,
        cores_per_node=cores_per_node,
        age_accrues=accrues,
        **settings.resizability(cores_per_node, changeable, config),
        max_queued=settings.max_queued,
        **settings.kinds_of_jobs(config, changeable),
        charges=settings.charges,
        partition=default,
        partitions=limits,
        accounts=tuple(accounts),
        whole_nodes=bool(limits) and all(limit.whole_nodes for limit in limits.values()),
    )


def _common_width(partition: str, nodes: Sequence[SlurmNode]) -> int:
    """Return the most common number of cores of a partition's nodes (or of all nodes); the larger of two."""
    own = [node for node in nodes if partition in node.partitions] or nodes
    counts = Counter(node.cores for node in own)
    return max(counts, key=lambda cores: (counts[cores], cores), default=1)
