"""What a job asks for, by the names that Snakemake's executor for Slurm has for it: as options of sbatch.

A rule or a profile that was written for that executor gets the same job here. What asa replaces is named to the user.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from asa.backend import Capabilities
from asa.errors import InputError
from asa.hosted.asking import HostRequest
from asa.requests.directives import Directive, by_name, take_options

from .options import LOGS, NAMES, OPTIONS, argument_of
from .partitions import Partitions
from .resources import JobResources

_CLUSTERS: Final = ("cluster", "clusters", "slurm_cluster")

_PARTITIONS: Final = "SNAKEMAKE_SLURM_PARTITIONS"  # the variable that names a file of partitions
# options of sbatch in slurm_extra that are of no use with asa, and what it uses in their place
_OF_ASA: Final[Mapping[str, str]] = {
    "comment": "rule and wildcards are in a job's comment",
    "job-name": NAMES,
    **dict.fromkeys(("output", "error"), LOGS),
    **dict.fromkeys(("quiet", "verbose", "parsable", "wait"), "asa submits and waits in its own way"),
    "kill-on-invalid-dep": "asa cancels such jobs itself",
}
_HERE: Final = "This computer heeds threads and runtime; not what rules say of: {}."
_NOT_HERE: Final = (
    "slurm_partition", "slurm_account", "slurm_extra", "constraint", "qos", "reservation", *_CLUSTERS, "mem_mb",
    "mem_mb_per_cpu", "tasks_per_node", "tasks_per_gpu", "gpu", "gpus", "gpu_model", "gres", "cpus_per_gpu",
)  # fmt: skip


@dataclass(slots=True)
class RequestReader:
    """Reads what jobs ask for, and notes what the user should know of it.

    `given`: the options of Snakemake's executor for Slurm that the user gave, without ``slurm_``.
    `is_local`: whether jobs run on this computer, which knows threads and times alone.
    """

    given: Mapping[str, Any]
    is_local: bool = False
    _partitions: Partitions | None = field(default=None, init=False)
    _notes: dict[str, str] = field(default_factory=dict, init=False)
    _said: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if self.given.get("requeue") and self.given.get("no_requeue"):
            raise InputError(
                "--slurm-requeue and --slurm-no-requeue say the opposite", where="options", hint="Leave one out."
            )
        file = self.given.get("partition_config") or os.environ.get(_PARTITIONS)
        if file and not self.is_local:
            self._partitions = Partitions.read(Path(str(file)))
        for name in self.given:
            instead = OPTIONS[name].instead if name in OPTIONS else "nothing: asa does not know it"
            if instead or self.is_local:
                self._notes[argument_of(name)] = _HERE if self.is_local else f"In place of {{}}: {instead}."

    def news(self) -> str:
        """Return a text on what is replaced or not heeded and was in no earlier text; empty if there is nothing."""
        by_note: dict[str, list[str]] = {}
        for name in sorted(self._notes.keys() - self._said):
            by_note.setdefault(self._notes[name], []).append(name)
        self._said |= self._notes.keys()
        return "".join(f"{note.format(', '.join(names))}\n" for note, names in by_note.items())

    def of(self, resources: JobResources, site: Capabilities) -> HostRequest:
        """Return what a job with these resources asks for at a site."""
        walltime_s = (resources.number("runtime") or 0.0) * 60.0 or None
        if self.is_local:
            self._notes |= dict.fromkeys(filter(resources.has, _NOT_HERE), _HERE)
            return HostRequest(tuple(_on_this_computer(resources, site.max_cores)), walltime_s=walltime_s)
        account = re.split(r"[,\s]+", resources.text("slurm_account").strip(", "))[0]
        if resources.count("tasks_per_node") and not resources.text("mpi"):
            self._notes["tasks_per_node"] = "In place of {}: a rule without `mpi` has one task, or as many as `tasks`."
        words = [*_tasks(resources), *_cores(resources), *_amounts(resources), *self._options(resources)]
        given = by_name([*take_options(words, resources.name)[0], *_extra(resources)])
        for name in given.keys() & _OF_ASA.keys():
            del given[name]
            self._notes[f"--{name} in slurm_extra"] = f"In place of {{}}: {_OF_ASA[name]}."
        return replace(
            HostRequest.of(
                given.values(),
                partition=self._partition(resources),
                account="" if self.given.get("no_account") else account,
                clusters=_cluster_of(resources),
            ),
            reservation=str(self.given.get("reservation") or resources.text("reservation")),
            walltime_s=walltime_s,
        )

    def _partition(self, resources: JobResources) -> str:
        partition = resources.text("slurm_partition")
        if self._partitions is None:
            return partition
        return self._partitions.of_job(resources, partition, _cluster_of(resources))

    def _options(self, resources: JobResources) -> Iterator[str]:
        if constraint := resources.text("constraint"):
            yield f"--constraint={constraint}"
        if qos := str(self.given.get("qos") or resources.text("qos")):
            yield f"--qos={qos}"
        if self.given.get("requeue"):
            yield "--requeue"
        if self.given.get("no_requeue"):
            yield "--no-requeue"
        if nodes := ",".join(re.split(r"[,\s]+", str(self.given.get("exclude_failed_nodes") or "").strip(", "))):
            yield f"--exclude={nodes}"


def _has_gpus(resources: JobResources) -> bool:
    return bool(resources.count("gpu", "gpus")) or "gpu" in resources.text("gres")


def _tasks(resources: JobResources) -> Iterator[str]:
    tasks, nodes, per_node = map(resources.count, ("tasks", "nodes", "ntasks_per_node"))
    is_mpi = bool(resources.text("mpi"))
    if is_mpi and not per_node:
        per_node = resources.count("tasks_per_node")
    if nodes:
        yield f"--nodes={nodes}"
    if per_node:
        yield f"--ntasks-per-node={per_node}"
    if _has_gpus(resources):
        per_gpu = resources.number("tasks_per_gpu")
        if (of_each := int(tasks if per_gpu is None else per_gpu)) >= 1:
            yield f"--ntasks-per-gpu={of_each}"
        if not (is_mpi and tasks):
            return
    if tasks or not per_node:
        yield f"--ntasks={tasks or 1}"


def _cores(resources: JobResources) -> Iterator[str]:
    per_task, per_gpu = resources.number("cpus_per_task"), resources.number("cpus_per_gpu")
    if per_task:
        if per_task > 0:  # below: the partition's own number of cores
            yield f"--cpus-per-task={int(per_task)}"
    elif per_gpu and _has_gpus(resources):
        if per_gpu > 0:
            yield f"--cpus-per-gpu={int(per_gpu)}"
    else:
        yield f"--cpus-per-task={resources.threads}"


def _amounts(resources: JobResources) -> Iterator[str]:
    if per_core_mb := resources.memory_mb("mem_mb_per_cpu"):
        yield f"--mem-per-cpu={per_core_mb}M"
    elif memory_mb := resources.memory_mb("mem_mb"):
        yield f"--mem={memory_mb}M"
    if gres := resources.text("gres"):
        yield f"--gres={gres}"
    if model := resources.text("gpu_model"):
        yield f"--gpus={model}:{resources.count('gpu', 'gpus') or 1}"
    elif gpus := resources.count("gpu", "gpus"):
        yield f"--gpus={gpus}"


def _on_this_computer(resources: JobResources, most: int) -> Iterator[str]:
    """Yield the size of a job here: as large as the computer at most, as with Snakemake's local executor."""
    of_each = min(resources.count("cpus_per_task") or resources.threads, most)
    nodes = resources.count("nodes")
    tasks = max(resources.count("tasks"), nodes * resources.count("ntasks_per_node"), nodes, 1)
    yield f"--ntasks={max(min(tasks, most // of_each), 1)}"
    yield f"--cpus-per-task={of_each}"


def _cluster_of(resources: JobResources) -> str:
    return next((text for name in _CLUSTERS if (text := resources.text(name))), "")


def _extra(resources: JobResources) -> list[Directive]:
    """Read ``slurm_extra``, also where all of it is in quotes once more, as in that executor's examples."""
    text, where = resources.text("slurm_extra"), f"slurm_extra of {resources.name}"
    try:
        words = shlex.split(text)
        if len(words) == 1 and text[:1] in {"'", '"'}:
            words = shlex.split(words[0])
    except ValueError as error:
        raise InputError(f"cannot be taken apart into words: {error}", where=where, hint="Close its quotes.") from error
    options, rest = take_options(words, where)
    if rest:
        raise InputError(f"{rest[0]!r} is no option of sbatch", where=where, hint="Write options alone: --name=value.")
    return options
