"""Checks before submission whether a job could ever run: by limits, and by ``sbatch --test-only``.

A negative answer counts only if it is permanent. Slurm tests with the nodes that are up: a job that no node can run
gets the same answer as one that needs a node which is down, although Slurm would accept the latter. So answers about
nodes count only if the nodes that are down would make no difference.

Unless the site is configured otherwise, Slurm also accepts a job that exceeds a limit of its account or quality of
service (QOS), but never starts it. These limits are checked here, for commands and the REST API.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

from asa.errors import BackendError, InputError
from asa.requests import SIZES, come_to, marked, name_of
from asa.units import format_duration, parse_duration

from .link import SlurmJob, SlurmLimits, SlurmLink, SlurmNode, SlurmPartition

_T = TypeVar("_T")
ENFORCED: Final = re.compile(r"\b(limits|safe|all)\b", re.IGNORECASE)
"""Values of ``AccountingStorageEnforce`` that enforce limits."""

_OF_NODES: Final = (
    "Requested node configuration is not available",
    "Requested topology configuration is not available",
    "Requested partition configuration not available now",
    "Requested nodes not in this partition",
    "Insufficient GRES available in allocation",
)
# answers for a job that would wait in the queue, or about the question rather than the job
_NO_FINDING: Final = (
    "Access/permission denied",
    "Immediate execution impossible",
    "Job can not start immediately",
    "Requested account has breached requested QOS usage threshold",
    "Requested operation is presently disabled",
    "Requested operation not supported on this system",
    "Requested reservation not usable now",
    "Unspecified error",
)
_AWAY: Final = frozenset(
    {
        *("BLOCKED", "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "INVAL", "MAINT", "MAINTENANCE"),
        *("NOT_RESPONDING", "NO_RESPOND", "POWERING_DOWN", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "UNKNOWN"),
    }
)
# options that demand certain nodes, or properties of nodes that are not known here
_CHOOSY: Final = marked("placing")
_KINDS: Final = {"cpu": "cores", "node": "nodes", "mem": "MB of memory", "gres/gpu": "GPUs"}
_AMOUNT: Final = re.compile(r"(?<![a-z/_])([a-z/_]++)=(\d+(?:\.\d+)?)([KMGTP]?)", re.IGNORECASE)
_UNITS: Final = {"": 1.0, "K": 2.0**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}  # factors to MB


class SlurmPreflight:
    """Checks jobs that are not submitted yet. It reads what it needs of the site once."""

    def __init__(self, link: SlurmLink) -> None:
        self._link = link

    def objection(self, job: SlurmJob, timeout_s: float) -> str | None:
        """Return why a job could never run; None if it could, or that is not known."""
        if why := beyond_limits(self._limits, self._partitions, job):
            return why
        answer = self._link.test(job, timeout_s)
        if answer is None or any(words in answer for words in _NO_FINDING):
            return None
        if any(words in answer for words in _OF_NODES) and not is_certain(self._nodes(), self._partitions, job):
            return None
        return answer

    @cached_property
    def _limits(self) -> Sequence[SlurmLimits]:
        return _or_nothing(self._asked_limits)

    def _asked_limits(self) -> Sequence[SlurmLimits]:
        settings = self._link.settings()
        enforced = settings.get("AccountingStorageEnforce")
        if enforced is not None and not ENFORCED.search(enforced):
            return ()
        cluster = settings.get("ClusterName", "") or self._link.about().cluster
        return self._link.limits(cluster)

    @cached_property
    def _partitions(self) -> Sequence[SlurmPartition]:
        return _or_nothing(self._link.partitions)

    def _nodes(self) -> Sequence[SlurmNode]:
        return _or_nothing(self._link.nodes)  # not cached, since nodes come and go


def in_numbers(job: SlurmJob) -> SlurmJob:
    """Return a job with its minimum request as numbers, even if only options give it."""
    own = [f"--ntasks={job.tasks}", f"--cpus-per-task={job.cpus_per_task}"] if job.cores else []
    own += [f"--nodes={job.nodes}"] if job.nodes else []
    sizes = tuple(option for option in job.options if name_of(option) in SIZES)
    try:
        needs = come_to((*own, *sizes), job.further_options)
    except InputError:
        return job
    return replace(
        job,
        cores=job.cores or needs.cores,
        cpus_per_task=job.cpus_per_task if job.cores else needs.cpus_per_task,
        nodes=job.nodes or needs.nodes,
        memory_bytes=max(job.memory_bytes, needs.min_memory_bytes),
        gpus=max(job.gpus, needs.min_gpus),
    )


def _or_nothing(ask: Callable[[], Sequence[_T]]) -> Sequence[_T]:
    try:
        return ask()
    except BackendError:
        return ()


# ---------------------------------------------------------------------- nodes


def is_certain(nodes: Sequence[SlurmNode], partitions: Sequence[SlurmPartition], job: SlurmJob) -> bool:
    """Whether nodes that are down now make no difference for a job, since enough similar nodes are up."""
    names = (
        set(job.partition.split(","))
        if job.partition
        else {partition.name for partition in partitions if partition.is_default}
    )
    own = [node for node in nodes if not names or names & set(node.partitions)]
    away = [node for node in own if _AWAY & set(node.states)]
    if not own:
        return False
    if not away:
        return True
    options = dict(option.partition("=")[::2] for option in job.options)
    if not _CHOOSY.isdisjoint(map(name_of, job.options)) or not options.get("--nodes", "1").isdigit():
        return False
    there, most = Counter(_kind(node) for node in own if node not in away), _most_nodes(job)
    return all(there[_kind(node)] >= most for node in away)


def _kind(node: SlurmNode) -> tuple[object, ...]:
    return node.cores, node.memory_bytes, node.gpus, node.traits


def _most_nodes(job: SlurmJob) -> int:
    """Return the largest number of nodes that a job could use: each task, and each GPU, may be on a node of its own."""
    counted = in_numbers(job)
    return counted.nodes or max(counted.tasks, job.gpus, 1)


# ---------------------------------------------------------------------- limits of accounts and qualities of service


def beyond_limits(every: Sequence[SlurmLimits], partitions: Sequence[SlurmPartition], job: SlurmJob) -> str | None:
    """Return the limit per job that a job exceeds for all its possible accounts and qualities of service.

    None if there is none, or it is not known. A limit of the quality of service takes precedence over one of the
    association.
    """
    ways = list(_ways(every, partitions, job))
    beyond = [_beyond(way, job) for way in ways]
    return beyond[0] if beyond and all(beyond) else None


def _ways(
    every: Sequence[SlurmLimits], partitions: Sequence[SlurmPartition], job: SlurmJob
) -> Iterator[tuple[SlurmLimits, ...]]:
    """Yield the alternatives of limits for a job, each in order of precedence."""
    options = dict(option.partition("=")[::2] for option in job.options)
    account, quality = options.get("--account", job.account), options.get("--qos", job.qos)
    names = (
        job.partition.split(",")
        if job.partition
        else [partition.name for partition in partitions if partition.is_default]
    )
    if any(partition.quality for partition in partitions if not names or partition.name in names):
        return  # a partition's own quality of service takes precedence, and its limits are not known
    qualities = {row.quality: row for row in every if row.quality}
    for row in every:
        if not row.user or (account and row.account != account) or row.partition not in ("", *names):
            continue
        for name in (quality,) if quality else (row.qualities or ("",)):
            yield (qualities[name], row) if name in qualities else (row,)


def _beyond(way: Sequence[SlurmLimits], job: SlurmJob) -> str | None:
    options = dict(option.partition("=")[::2] for option in job.options)
    if limit := next((row for row in way if "MaxWall" in row.limits), None):
        most_s = _seconds(limit.limits["MaxWall"])
        if most_s is not None and job.walltime_s > most_s and not {"--time", "-t"} & options.keys():
            most = format_duration(most_s)
            return f"asks for {format_duration(job.walltime_s)}, and {_whose(limit)} has at most {most} a job (MaxWall)"
    least = in_numbers(job)
    cores = 0 if {"--overcommit", "-O"} & options.keys() else least.cores  # then several tasks may share a core
    asked = {"cpu": cores, "node": least.nodes, "gres/gpu": least.gpus, "mem": least.memory_bytes / (1 << 20)}
    for kind, amount in asked.items():
        for row in way:
            allowed = _amounts(row.limits.get("MaxTRES", "")).get(kind)
            if allowed is None:
                continue
            if amount > allowed:
                unit = _KINDS[kind]
                return f"asks for {amount:.0f} {unit}, and {_whose(row)} has at most {allowed:.0f} a job (MaxTRES)"
            break
    return None


def _amounts(text: str) -> dict[str, float]:
    """Parse amounts of resources, memory in MB."""
    found = {}
    for kind, number, unit in _AMOUNT.findall(text):
        found[kind.lower()] = float(number) * (_UNITS[unit.upper()] if kind.lower() == "mem" else 1.0)
    return found


def _seconds(text: str) -> float | None:
    try:
        return parse_duration(text) or None
    except InputError:
        return None


def _whose(limit: SlurmLimits) -> str:
    return f"QOS {limit.quality}" if limit.quality else f"account {limit.account}"
