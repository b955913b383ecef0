"""Sites with several clusters: which of them a stage may go to, and what follows from a stage on another one."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from asa.backend import ON, Capabilities, JobSpec, cluster_of
from asa.keys import asked
from asa.runner.course import RunCourse
from asa.shapes import Moldable
from asa.workflow import Stage, Workflow

if TYPE_CHECKING:
    from asa.strategies.base import Choice, PlannedJob


def on_clusters(workflow: Workflow, site: Capabilities) -> Workflow:
    """Let each stage choose among the clusters that have its partitions; one that names none, among all of them.

    A partition that names its cluster, as in ``batch@big``, is left as it is. The first cluster on which a stage could
    run is its own, to which strategies that choose nothing send it. If the site is that one cluster, the name of its
    cluster is left out.
    """
    offered = _offered if site.clusters else _named_here
    stages = [offered(stage, site) for stage in workflow.stages.values()]
    if all(map(operator.is_, stages, workflow.stages.values())):
        return workflow
    return Workflow(workflow.name, stages, walltime_s=workflow.walltime_s if workflow.says_walltime else None)


def _named_here(stage: Stage, site: Capabilities) -> Stage:
    """Return a stage with the partitions that it names of the site's one cluster; with all if it names none there."""
    offered = stage.moldable.partitions if stage.moldable is not None else ()
    if not any(ON in partition for partition in (stage.partition, *offered)):
        return stage
    names = [*dict.fromkeys(map(site.name_of, (stage.partition, *offered)))]
    here = [name for name in names if ON not in name] or names
    moldable = stage.moldable and replace(stage.moldable, partitions=tuple(here) if len(here) > 1 else ())
    return replace(stage, partition=here[0], moldable=moldable)


def _offered(stage: Stage, site: Capabilities) -> Stage:
    if stage.local:
        return stage
    offered = stage.moldable.partitions if stage.moldable is not None else ()
    places = list(
        dict.fromkeys(
            place
            for name in map(site.name_of, offered or (stage.partition,))
            for place in _places(name, site, is_of_nodes=bool(stage.nodes))
        )
    )
    if places == [*(offered or (stage.partition,))] or not places:
        return stage  # what is wrong with it is said when the run is checked
    own = next((place for place in places if _could_run(stage, place, site)), places[0])
    has_one_size = stage.cores is None or stage.nodes is None
    if len(places) == 1 or not has_one_size:
        moldable = stage.moldable and replace(stage.moldable, partitions=())
    else:
        moldable = replace(stage.moldable or Moldable(), partitions=tuple(places))
    return replace(stage, partition=own, moldable=moldable)


def _places(partition: str, site: Capabilities, *, is_of_nodes: bool) -> Iterator[str]:
    """Yield a partition with the name of each cluster that has it, and nodes of the largest size if that matters."""
    if ON in partition:  # of several names, those on one cluster are for its batch system to choose from
        by_cluster: dict[str, list[str]] = {}
        for name in partition.split(","):
            by_cluster.setdefault(cluster_of(name), []).append(name)
        yield from map(",".join, by_cluster.values())
        return
    for cluster, here in site.clusters.items():
        if is_of_nodes and here.cores_per_node != site.cores_per_node:
            continue  # with others' nodes, its cores would be others
        if not partition or all(name in here.partitions for name in partition.split(",")):
            yield here.partition_on(cluster, partition)


def _could_run(stage: Stage, place: str, site: Capabilities) -> bool:
    cores = stage.cores_on(site.cores_per_node)
    job = JobSpec(stage.name, cores, stage.walltime_s, nodes=stage.nodes or 0, partition=place, **asked(stage))
    return site.impossible(job) is None


def queue_of(site: Capabilities, partition: str) -> tuple[str, str]:
    """Return the system and the partition, by their names there, whose waits are those of a partition."""
    here, name = site.place(partition)
    return here.system, name


def fetching_s(run: RunCourse, stages: Iterable[str], partition: str, others: Iterable[str] = ()) -> float:
    """Return how long a job in a partition first fetches what stages before its own have left on other clusters.

    `others`: partitions of planned jobs before it.
    """
    site = run.capabilities
    if not site.moves_s:
        return 0.0
    here = cluster_of(partition or site.partition)
    before = {cluster_of(name or site.partition) for name in others}
    before |= {cluster_of(run.stages[name].job_id or "") for name in _before(run, stages)}
    return site.moves_s if before & site.clusters.keys() - {here} else 0.0


def waits_elsewhere(run: RunCourse, planned: PlannedJob, choices: Mapping[str, Choice]) -> bool:
    """Whether a job is to depend on one of another cluster, which no batch system can do: it must be submitted later.

    `choices`: shapes in which the plan asks for stages.
    """
    here = _cluster(run, planned.stages[0], choices)
    before = {name for name in _before(run, planned.stages) if not run.stages[name].phase.is_settled}
    while local := {name for name in before if run.stages[name].stage.local}:  # a job depends on those before them
        further = {name for one in local for name in run.stages[one].stage.after}
        before = (before - local) | {name for name in further if not run.stages[name].phase.is_settled}
    there = {cluster_of(i) if (i := run.stages[name].job_id) else _cluster(run, name, choices) for name in before}
    return bool(there & run.capabilities.clusters.keys() - {here})


def _cluster(run: RunCourse, name: str, choices: Mapping[str, Choice]) -> str:
    chosen = choices[name].shape.partition if name in choices else run.stages[name].stage.partition
    return cluster_of(chosen or run.capabilities.partition)


def _before(run: RunCourse, stages: Iterable[str]) -> Iterator[str]:
    inside = {*stages}
    return (name for stage in inside for name in run.stages[stage].stage.after if name not in inside)
