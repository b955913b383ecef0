"""The work of a pool, read from dask's scheduler: numbers of tasks, their order, and their run times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .values import AllocationShape, Needs, TaskKind

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskGroup, TaskPrefix, TaskState

_LIVE = ("no-worker", "queued", "processing")
_UNFINISHED = ("waiting", *_LIVE)
_NONE: Needs = frozenset()
_MAX_TASKS = 20_000  # in larger graphs not every task is read
_SEEN: WeakKeyDictionary[Scheduler, dict[str, Needs]] = WeakKeyDictionary()  # needs of a task, by the name of its group


def read_demand(scheduler: Scheduler, unknown_s: float = 0.0, shapes: Sequence[AllocationShape] = ()) -> list[TaskKind]:
    """Read the unfinished tasks, in groups that run one after the other.

    Durations are those that dask measured for tasks of the same name, or expects; time that a task has run already is
    subtracted. A task with only dask's default, half a second, is assumed to last at least `unknown_s`. A task counts
    for the cores that it blocks on the first of `shapes` that serves it: one that needs all of a worker's GPUs counts
    for all of its cores. A task's needs are returned only if they keep it from running now. In a large graph all tasks
    of one of dask's groups (those that one line of a program made) are assumed to be alike. Reading it takes time
    proportional to the number of groups, once one task of each has been read.

    `unknown_s`: lower bound, in seconds, for tasks of unknown duration.
    `shapes`: those that jobs may have, the default first.
    """
    read = _by_tasks if len(scheduler.tasks) <= _MAX_TASKS else _by_groups
    return read(scheduler, unknown_s, lru_cache(maxsize=None)(partial(_cores, shapes)))


def _duration_s(scheduler: Scheduler, prefix: TaskPrefix, unknown_s: float) -> float:
    expected_s = float(scheduler._get_prefix_duration(prefix))  # noqa: SLF001 - as in `adaptive_target`
    return expected_s if prefix.duration_average >= 0 else max(expected_s, unknown_s)


def _by_tasks(scheduler: Scheduler, unknown_s: float, cores_of: Callable[[Needs], int]) -> list[TaskKind]:
    """Place each task after all tasks that it waits for."""
    depths: dict[TaskState, int] = {}
    tasks = [task for task in scheduler.tasks.values() if task.state in _UNFINISHED]
    missing = {task: sum(dependency.state in _UNFINISHED for dependency in task.dependencies) for task in tasks}
    ready = [task for task in tasks if not missing[task]]
    for task in ready:  # the list grows meanwhile
        depth = depths.setdefault(task, 0)
        for after in task.dependents:
            if after in missing:
                depths[after] = max(depths.get(after, 0), depth + 1)
                missing[after] -= 1
                if not missing[after]:
                    ready.append(after)
    durations: dict[str, float] = {}
    by_depth: dict[tuple[int, Needs], list[TaskKind]] = {}
    for task in ready:
        prefix, needed = task.prefix, _needs(task)
        if prefix.name not in durations:
            durations[prefix.name] = _duration_s(scheduler, prefix, unknown_s)
        ran_s = task.processing_on.executing.get(task, 0.0) if task.processing_on else 0.0
        needs = needed if task in scheduler.unrunnable else _NONE
        kind = TaskKind(cores_of(needed), max(durations[prefix.name] - ran_s, 0.0))
        by_depth.setdefault((depths[task], needs), []).append(kind)
    return joined((depth, kind._replace(needs=needs)) for (depth, needs), alike in by_depth.items() for kind in alike)


def _by_groups(scheduler: Scheduler, unknown_s: float, cores_of: Callable[[Needs], int]) -> list[TaskKind]:
    stuck = _stuck(scheduler.unrunnable)
    needed = _needs_of_groups(scheduler)
    groups = {group for group in scheduler.task_groups.values() if _unfinished(group)}
    kinds: list[tuple[int, TaskKind]] = []
    depths: dict[TaskGroup, int] = {}
    for group in sorted(groups, key=lambda group: str(group.name)):
        depth = _depth(group, groups, depths)
        task_s = _duration_s(scheduler, group.prefix, unknown_s)
        needing = stuck.get(group, Counter())
        if (tasks := _unfinished(group) - needing.total()) > 0:
            kinds.append((depth, TaskKind(tasks * cores_of(needed[group.name]), task_s)))
        kinds += [(depth, TaskKind(tasks * cores_of(needs), task_s, needs)) for needs, tasks in needing.items()]
    return joined(kinds)


def longest_task_s(scheduler: Scheduler) -> float:
    """Return the expected run time of the longest task that is about to run, in seconds; 0 if there is none."""
    groups = (g for g in scheduler.task_groups.values() if any(g.states[state] for state in _LIVE))
    return max((scheduler._get_prefix_duration(group.prefix) for group in groups), default=0.0)  # noqa: SLF001 - likewise


def _unfinished(group: TaskGroup) -> int:
    return sum(group.states[state] for state in _UNFINISHED)


def _needs(task: TaskState) -> Needs:
    return frozenset((task.resource_restrictions or {}).items())


def _cores(shapes: Sequence[AllocationShape], needs: Needs) -> int:
    """Return how many one-core tasks a task with these needs keeps from running."""
    shape = next((shape for shape in shapes if shape.serves(needs)), None)
    if shape is None:
        return max(int(dict(needs).get("cores", 1)), 1)
    at_once = min((int(shape.resources[name] / amount) for name, amount in needs if amount), default=shape.threads)
    return -(-shape.threads // max(min(at_once, shape.threads), 1))


def _needs_of_groups(scheduler: Scheduler) -> dict[str, Needs]:
    """Return the needs of a task of each group with work left; dask records them by task only."""
    seen = _SEEN.get(scheduler, {})
    groups = [group.name for group in scheduler.task_groups.values() if _unfinished(group)]
    unseen = {name for name in groups if name not in seen}
    needs = {name: seen.get(name, _NONE) for name in groups}
    for task in reversed(scheduler.tasks.values()):  # new tasks are at the end
        if not unseen:
            break
        if task.group.name in unseen:
            unseen.remove(task.group.name)
            needs[task.group.name] = _needs(task)
    _SEEN[scheduler] = needs
    return needs


def _stuck(tasks: Iterable[TaskState]) -> dict[TaskGroup, Counter[Needs]]:
    """Count for each group the tasks whose needs no worker can serve."""
    counts: dict[TaskGroup, Counter[Needs]] = {}
    for task in tasks:
        if task.resource_restrictions:
            counts.setdefault(task.group, Counter())[_needs(task)] += 1
    return counts


def _depth(group: TaskGroup, groups: set[TaskGroup], depths: dict[TaskGroup, int]) -> int:
    """Return the length of the longest path of unfinished groups before one; not recursive, as paths are long."""
    path = [group]
    while path:  # cycles of groups are cut somewhere
        last = path[-1]
        before = [dependency for dependency in last.dependencies if dependency in groups and dependency is not last]
        if unknown := [dependency for dependency in before if dependency not in depths and dependency not in path]:
            path.append(unknown[0])
            continue
        depths[last] = 1 + max((depths.get(dependency, 0) for dependency in before), default=0)
        path.pop()
    return depths[group]


def joined(kinds: Iterable[tuple[int, TaskKind]]) -> list[TaskKind]:
    """Join kinds with the same depth and needs, keeping the number of tasks and the work."""
    by_depth: dict[tuple[int, Needs], list[TaskKind]] = {}
    for depth, kind in kinds:
        by_depth.setdefault((depth, kind.needs), []).append(kind)
    joined = []
    for (_, needs), alike in sorted(by_depth.items(), key=lambda item: (item[0][0], sorted(item[0][1]))):
        tasks = sum(kind.tasks for kind in alike)
        joined.append(TaskKind(tasks, sum(kind.tasks * kind.task_s for kind in alike) / tasks, needs))
    return joined
