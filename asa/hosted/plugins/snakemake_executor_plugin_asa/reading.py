"""Reads Snakemake's graph: its jobs, their predecessors, and their resources."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from asa.core.files import read_text
from asa.errors import InputError
from asa.hosted.expected import Expectations
from asa.hosted.graph import HostJob
from asa.workflow import Stage

_MIB = 1 << 20
_UNLIMITED = 1 << 31
_MIN_MEMORY_MB = 1000  # Snakemake's default for jobs with small inputs
_UNHEEDED_HERE = {
    "memory_bytes": "mem_mb",
    "gpus": "gpu",
    "nodes": "nodes",
    "partition": "slurm_partition",
    "account": "slurm_account",
    "reservation": "reservation",
}
_OPTIONS = {  # names of resources as in Snakemake's own executor for Slurm
    "constraint": "--constraint",
    "qos": "--qos",
    "clusters": "--clusters",
    "gres": "--gres",
}


def key_of(job: Any) -> Hashable:
    """Return a job's identity, which stays the same if Snakemake makes a new object for it."""
    if job.is_group():
        return frozenset(map(key_of, job.jobs))
    return (
        job.rule.name,
        tuple(sorted((name, str(value)) for name, value in job.wildcards_dict.items())),
        tuple(map(str, job.output)),
    )


def kind_of_job(job: Any) -> str:
    """Return the name that similar jobs share: the rule, or the rules of a group."""
    if job.is_group():
        return "-".join(sorted({job.rule.name for job in job.jobs}))
    return str(job.rule.name)


class Reader:
    """Reads the remaining jobs. The key of each job is computed once."""

    def __init__(self, dag: Any) -> None:
        self._dag = dag
        self._groups: Mapping[Any, Any] = getattr(dag, "_group", {})
        # by id of the job; the job is kept, so its id is not used again
        self._keys: dict[int, tuple[Any, Hashable]] = {}

    def nodes(self) -> Iterator[HostJob]:
        """Yield the jobs that have not run yet, except those that Snakemake runs itself."""
        self._groups = getattr(self._dag, "_group", {})
        left = sorted(self._dag.needrun_jobs(), key=self._dag.jobid)
        wanted = set(left)
        seen: set[Hashable] = set()
        for job in left:
            unit = self._unit(job)
            if unit.is_local or (key := self.key(unit)) in seen:
                continue
            seen.add(key)
            yield HostJob(key, kind_of_job(unit), unit, tuple(self._before(unit, wanted)))

    def key(self, unit: Any) -> Hashable:
        """Return the key of a job or of a group."""
        if (known := self._keys.get(id(unit))) is None or known[0] is not unit:
            known = self._keys[id(unit)] = (unit, key_of(unit))
        return known[1]

    def _unit(self, job: Any) -> Any:
        return job if job.group is None else self._groups.get(job, job)

    def _before(self, unit: Any, wanted: set[Any]) -> Iterator[Hashable]:
        """Yield the keys of the jobs that a job follows, also through jobs that Snakemake runs itself."""
        members = list(unit.jobs) if unit.is_group() else [unit]
        inside, seen = set(members), set[Any](members)
        to_see = [dependency for job in members for dependency in self._dag.dependencies[job]]
        given: set[Hashable] = set()
        while to_see:
            job = to_see.pop()
            if job in seen or job not in wanted:
                continue
            seen.add(job)
            other = self._unit(job)
            if other.is_local:
                to_see.extend(self._dag.dependencies[job])
            elif job not in inside and (key := self.key(other)) not in given:
                given.add(key)
                yield key


def stage_of(node: HostJob, name: str, after: tuple[str, ...], command: str, expected: Expectations) -> Stage:
    """Return the stage of a job, with its resources. Resources that the job does not state get default values."""
    resources = _Resources(node.job)
    tasks, cpus_per_task = resources.tasks()
    partition = resources.text("slurm_partition")
    site = expected.site
    limits = site.partitions.get(partition or site.partition)
    cores = tasks * cpus_per_task
    runtime_min = resources.number("runtime")
    walltime_s, run_s, spread = expected.of(
        node.kind,
        cores,
        None if not runtime_min else runtime_min * 60.0,
        None if limits is None else limits.max_walltime_s,
    )
    return Stage(
        name,
        cores=cores,
        nodes=int(resources.number("nodes") or 0) or None,
        cpus_per_task=cpus_per_task,
        walltime_s=walltime_s,
        expected_run_s=run_s,
        run_spread=spread,
        after=after,
        command=command,
        memory_bytes=int(resources.memory_mb(cores) * _MIB),
        gpus=int(resources.number("gpu") or resources.number("gpus") or 0)
        if not (resources.text("gpu_model") or resources.text("gres"))
        else 0,
        partition=partition,
        account=resources.text("slurm_account"),
        reservation=resources.text("reservation"),
        options=tuple(resources.options()),
    )


def unheeded_here(stages: Iterable[Stage]) -> str:
    """Return a sentence that names the resources of jobs that the local backend ignores; empty if there are none."""
    names: set[str] = set()
    for stage in stages:
        names |= {name for field, name in _UNHEEDED_HERE.items() if getattr(stage, field)}
        names |= {name for name, option in _OPTIONS.items() if any(given.startswith(option) for given in stage.options)}
    listed = ", ".join(sorted(names))
    return f"This computer heeds threads and runtime; not what rules say of: {listed}.\n" if names else ""


class _Resources:
    """A job's resources. Those that are unknown until its inputs exist are left out."""

    def __init__(self, job: Any) -> None:
        self._job = job
        is_group = job.is_group()
        had = getattr(job, "_resources", None)
        self._values: dict[str, Any] = dict(job.resources.items())
        if is_group and had is None:  # else Snakemake would keep the values that are unknown so far
            job._resources = None  # noqa: SLF001

    def number(self, name: str) -> float | None:
        value = self._values.get(name)
        if isinstance(value, bool) or value is None:
            return None
        try:
            return float(value)
        except (TypeError, ValueError):
            return None  # such as "<TBD>"

    def text(self, name: str) -> str:
        value = self._values.get(name)
        words = "" if value is None else str(value)
        return "" if words == "<TBD>" else words.strip()

    def tasks(self) -> tuple[int, int]:
        """Return the number of tasks, and the cores of each."""
        threads = max(int(self.number("_cores") or 1), 1)
        cpus_per_task = max(int(self.number("cpus_per_task") or threads), 1)
        tasks = int(self.number("tasks") or 1)
        per_node = int(self.number("ntasks_per_node") or 0)
        nodes = int(self.number("nodes") or 0)
        return max(tasks, nodes * per_node, nodes, 1), cpus_per_task

    def memory_mb(self, cores: int) -> float:
        if per_core := self.number("mem_mb_per_cpu"):
            return per_core * cores
        known = self.number("mem_mb")
        if known is None and "mem_mb" in self._values:
            return _MIN_MEMORY_MB
        return known or 0.0

    def options(self) -> Iterator[str]:
        for name, option in _OPTIONS.items():
            if value := self.text(name):
                yield f"{option}={value}"
        if model := self.text("gpu_model"):
            yield f"--gpus={model}:{int(self.number('gpu') or 1)}"
        try:
            yield from shlex.split(self.text("slurm_extra"))
        except ValueError as error:
            raise InputError(
                f"cannot be taken apart into words: {error}",
                where=f"slurm_extra of {kind_of_job(self._job)}",
                hint="Close its quotes.",
            ) from error


def benchmarks(dag: Any) -> Iterator[tuple[str, int, float, float]]:
    """Yield rule, threads, seconds and moment of Snakemake's benchmarks of the jobs of its graph."""
    for job in dag.jobs:
        if (file := job.benchmark) is None:
            continue
        path = Path(str(file))
        try:
            head, *lines = read_text(path).splitlines()
            column = head.split("\t").index("s")
            times = [float(line.split("\t")[column]) for line in lines]
            yield from ((job.rule.name, int(job.threads), time, path.stat().st_mtime) for time in times)
        except (OSError, ValueError, IndexError):
            continue


def max_jobs(workflow: Any) -> int | None:
    """Return the upper bound of the jobs that Snakemake hands over at a time (``--jobs``); None for none."""
    nodes = workflow.resource_settings.nodes
    return int(nodes) if isinstance(nodes, int) and 0 < nodes < _UNLIMITED else None
