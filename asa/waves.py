"""Waves: the stages of a job that run at the same time inside it, each on its own cores.

Stages in one job run one after the other. Small stages, of a single task each, that do not depend on each other run
side by side, as many as fit on the job's cores of one node. Where jobs get whole nodes, these are all of the node's
cores, which are paid for anyway. The next wave begins when all stages of the last one have ended.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from asa.backend import Capabilities, PartitionLimits
from asa.keys import OF_JOBS, as_options, asked, shared_by, together
from asa.requests import marked, name_of
from asa.workflow import Slot, Stage

Waves = tuple[tuple[Stage, ...], ...]

_OF_EACH = (
    "name after after_any after_start start_delay_s after_matching when command script tasks tasks_file cores nodes "
    "walltime_s expected_run_s run_spread assumes_walltime learns_run retries retry_walltime_factor "
    "retry_memory_factor retry_max_memory_bytes environment secrets preparation inputs outputs stdout stderr "
    "input_patience_s input_size out_of_memory local comment partition moldable jobs continues array request"
)
OF_EACH = frozenset(_OF_EACH.split())
"""Fields that may differ among stages that share a job, or that keep stages apart in another way, as `local` does."""
_COUNTED = marked("counted")
_STARTS_TASKS = re.compile(r"\b(srun|mpirun|mpiexec)\b")  # these programs start tasks on any number of cores


def is_small(stage: Stage) -> bool:
    """Whether a stage has a single task, so that it can run side by side with others on a node.

    Examples
    --------
    >>> is_small(Stage("index", cores=4, cpus_per_task=4)), is_small(Stage("solve", cores=4))
    (True, False)
    """
    return not (
        (stage.cores or 0) > stage.cpus_per_task
        or (stage.nodes or 0) > 0
        or stage.gpus
        or stage.burst_buffer_bytes
        or stage.exclusive
        or stage.local
        or not stage.is_one_job
        or (stage.preparation is not None and stage.preparation.launcher)
        or any(name_of(option) in _COUNTED for option in (*stage.options, *as_options(stage)))
        or _STARTS_TASKS.search(stage.command or stage.script)
    )


def likeness(stage: Stage, site: Capabilities | None) -> tuple[Hashable, ...]:
    """Return the values that stages must have in common to run in one job.

    These are all that the stages ask for except cores and time. Small stages on whole nodes may differ in cores and
    memory.
    """
    asks = asked(stage)
    if site is not None and is_small(stage) and site.gives_whole_nodes(site.limits(stage.partition)):
        return stage.options, 0, *(asks | {"memory_bytes": 0}).values()
    return stage.options, stage.cpus_per_task, *asks.values()


def unlike(stages: Sequence[Stage], site: Capabilities | None) -> str:
    """Name two stages that differ in their `likeness`, and the key; empty if all are alike.

    Examples
    --------
    >>> stages = [Stage("split", cores=1), Stage("count", cores=8, cpus_per_task=8)]
    >>> unlike(stages, Capabilities("x", 56, 2, age_accrues=False))
    'split and count differ in cpus_per_task'
    """
    first, *others = stages
    for other in others:
        if likeness(other, site) != likeness(first, site):
            ours, theirs = (
                {"options": stage.options, "cpus_per_task": stage.cpus_per_task, **asked(stage)}
                for stage in (first, other)
            )
            names = {key.field: key.name for key in OF_JOBS}
            field = next((field for field in ours if ours[field] != theirs[field]), "")
            return f"{first.name} and {other.name} differ in {names.get(field, field) or 'whether they fill nodes'}"
    return ""


def waves_of(stages: Sequence[Stage], site: Capabilities) -> Waves:
    """Divide the stages of a job into waves, which run at the same time.

    O(stages + edges). Stages of equal depth in the graph are put into waves in their order, each into the last wave if
    it fits.

    `stages`: those that share the job, in the workflow's order.
    `site`: has the size of nodes, and whether they are allocated whole.
    Returns: the waves, in order; a stage is alone if nothing can run side by side with it.

    Examples
    --------
    >>> parts = [Stage(name, cores=1, after=("split",)) for name in "abc"]
    >>> site = Capabilities("x", 56, 2, age_accrues=False, whole_nodes=True)
    >>> [[stage.name for stage in wave] for wave in waves_of([Stage("split", cores=1), *parts], site)]
    [['split'], ['a', 'b'], ['c']]
    """
    series: Waves = tuple((stage,) for stage in stages)
    limits = site.limits(next((stage.partition for stage in stages if stage.partition), ""))
    width = _width(stages, site, limits) if len(stages) > 1 else 0
    if not width:
        return series
    depths: dict[str, int] = {}
    levels: dict[int, list[list[Stage]]] = {}
    for stage in stages:
        depth = depths[stage.name] = max((depths[name] + 1 for name in stage.after if name in depths), default=0)
        waves = levels.setdefault(depth, [])
        if waves and is_small(stage) and _has_room(waves[-1], stage, width, limits.memory_per_node_bytes):
            waves[-1].append(stage)
        else:
            waves.append([stage])
    found = tuple(tuple(wave) for _, waves in sorted(levels.items()) for wave in waves)
    return found if len(found) < len(stages) else series


def _width(stages: Iterable[Stage], site: Capabilities, limits: PartitionLimits) -> int:
    """Return how many cores of a node stages may share; 0 if their job spans nodes, or changes its width."""
    node = limits.cores_per_node or site.cores_per_node
    most = max(stage.cores_on(node) for stage in stages)
    if most > node:
        return 0
    width = node if site.gives_whole_nodes(limits) else most
    return 0 if site.resizes_within(width) else width


def _has_room(wave: Sequence[Stage], stage: Stage, width: int, memory_bytes: int) -> bool:
    if not is_small(wave[0]):
        return False
    all_of_it = [*wave, stage]
    if memory_bytes and sum(task.memory_bytes for task in all_of_it) > memory_bytes:
        return False
    return sum(task.cores or 0 for task in all_of_it) <= width


def is_series(waves: Waves) -> bool:
    """Whether no two stages run at the same time."""
    return all(len(wave) == 1 for wave in waves)


def walltime_of(waves: Waves) -> float:
    """Return the walltime that waves need, in seconds."""
    return sum(max(stage.walltime_s for stage in wave) for wave in waves)


def sums_defaults(waves: Waves) -> bool:
    """Whether a job for these waves would ask for the sum of several walltimes that are mere defaults.

    Three stages of a second each would ask for three hours: until their run times are known, each has a job of its own.

    Examples
    --------
    >>> a, b = Stage("a", cores=1, assumes_walltime=True), Stage("b", cores=1, assumes_walltime=True)
    >>> sums_defaults(((a,), (b,))), sums_defaults(((a, b),)), sums_defaults(((a,), (Stage("c", cores=1),)))
    (True, False, False)
    """
    return sum(any(stage.assumes_walltime for stage in wave) for wave in waves) > 1


def cores_of(waves: Waves, cores_per_node: int) -> int:
    """Return the cores of the widest wave."""
    return max(sum(stage.cores_on(cores_per_node) for stage in wave) for wave in waves)


def asked_by(waves: Waves) -> dict[str, Any]:
    """Return the further needs of a job for its waves, by field: the maximum over waves."""
    return shared_by(wave[0] if len(wave) == 1 else together(wave) for wave in waves)


def slots_of(waves: Waves, run_s: dict[str, float]) -> tuple[Slot, ...]:
    """Return when each stage runs inside its job, in the order of waves; `run_s`: how long each runs."""
    slots: list[Slot] = []
    begin_s = 0.0
    for wave in waves:
        slots += [Slot(stage.name, begin_s, begin_s + run_s[stage.name]) for stage in wave]
        begin_s += max(run_s[stage.name] for stage in wave)
    return tuple(slots)
