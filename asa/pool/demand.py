"""What is to be done, read from dask's scheduler: how many tasks, one after which other, and how long they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .values import Needs, Wave

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskGroup, TaskPrefix, TaskState

__all__ = ["longest_task_s", "read_demand"]

_LIVE = ("no-worker", "queued", "processing")
_UNFINISHED = ("waiting", *_LIVE)
_MOST_TASKS = 20_000  # of which each is looked at


def read_demand(scheduler: Scheduler, unknown_s: float = 0.0) -> list[Wave]:
    """Read the unfinished tasks, as waves that come one after the other.

    Durations are what dask measured of tasks of that name, or else expects; what a task has run already is over. One of
    which no more is known than what dask takes for granted, half a second, is taken to last for `unknown_s` at least.
    A task that needs several cores counts as several. Of what else tasks need only that is told that keeps them from
    running now. In a large graph the tasks of a group, which is what dask calls those that one line of a program made,
    are taken to be alike: it is read in the time that its groups take.
    """
    read = _by_tasks if len(scheduler.tasks) <= _MOST_TASKS else _by_groups
    return read(scheduler, unknown_s)


def _duration_s(scheduler: Scheduler, prefix: TaskPrefix, unknown_s: float) -> float:
    told_s = float(scheduler._get_prefix_duration(prefix))  # noqa: SLF001 - as `adaptive_target` does
    return told_s if prefix.duration_average >= 0 else max(told_s, unknown_s)


def _by_tasks(scheduler: Scheduler, unknown_s: float) -> list[Wave]:
    """Lay each task after all that it waits for."""
    depths: dict[TaskState, int] = {}
    tasks = [task for task in scheduler.tasks.values() if task.state in _UNFINISHED]
    missing = {task: sum(other.state in _UNFINISHED for other in task.dependencies) for task in tasks}
    ready = [task for task in tasks if not missing[task]]
    for task in ready:  # it grows meanwhile
        depth = depths.setdefault(task, 0)
        for after in task.dependents:
            if after in missing:
                depths[after] = max(depths.get(after, 0), depth + 1)
                missing[after] -= 1
                if not missing[after]:
                    ready.append(after)
    durations: dict[str, float] = {}
    told: dict[tuple[int, Needs], list[Wave]] = {}
    for task in ready:
        prefix, needed = task.prefix, task.resource_restrictions or {}
        if prefix.name not in durations:
            durations[prefix.name] = _duration_s(scheduler, prefix, unknown_s)
        ran_s = task.processing_on.executing.get(task, 0.0) if task.processing_on else 0.0
        needs = frozenset(needed.items()) if task in scheduler.unrunnable else frozenset()
        cores = max(int(needed.get("cores", 1)), 1)
        told.setdefault((depths[task], needs), []).append(Wave(cores, max(durations[prefix.name] - ran_s, 0.0)))
    return _joined((depth, wave._replace(needs=needs)) for (depth, needs), alike in told.items() for wave in alike)


def _by_groups(scheduler: Scheduler, unknown_s: float) -> list[Wave]:
    stuck = _stuck(scheduler.unrunnable)
    groups = {group for group in scheduler.task_groups.values() if _unfinished(group)}
    waves: list[tuple[int, Wave]] = []
    depths: dict[TaskGroup, int] = {}
    for group in sorted(groups, key=lambda group: str(group.name)):
        depth = _depth(group, groups, depths)
        task_s = _duration_s(scheduler, group.prefix, unknown_s)
        needing = stuck.get(group, Counter())
        if (tasks := _unfinished(group) - needing.total()) > 0:
            waves.append((depth, Wave(tasks, task_s)))
        waves += [(depth, Wave(tasks, task_s, needs)) for needs, tasks in needing.items()]
    return _joined(waves)


def longest_task_s(scheduler: Scheduler) -> float:
    """Tell how long the longest of the tasks that are about to run is expected to take; 0 if there is none."""
    groups = (g for g in scheduler.task_groups.values() if any(g.states[state] for state in _LIVE))
    return max((scheduler._get_prefix_duration(group.prefix) for group in groups), default=0.0)  # noqa: SLF001 - as above


def _unfinished(group: TaskGroup) -> int:
    return sum(group.states[state] for state in _UNFINISHED)


def _stuck(tasks: Iterable[TaskState]) -> dict[TaskGroup, Counter[Needs]]:
    """Count, group by group, the tasks that no worker can run for what they need."""
    told: dict[TaskGroup, Counter[Needs]] = {}
    for task in tasks:
        if task.resource_restrictions:
            told.setdefault(task.group, Counter())[frozenset(task.resource_restrictions.items())] += 1
    return told


def _depth(group: TaskGroup, groups: set[TaskGroup], depths: dict[TaskGroup, int]) -> int:
    """Count the groups with work left before one, along the longest path; without recursion, for paths may be long."""
    path = [group]
    while path:  # where groups depend on each other in a circle, somewhere it is cut
        last = path[-1]
        before = [other for other in last.dependencies if other in groups and other is not last]
        if unknown := [other for other in before if other not in depths and other not in path]:
            path.append(unknown[0])
            continue
        depths[last] = 1 + max((depths.get(other, 0) for other in before), default=0)
        path.pop()
    return depths[group]


def _joined(waves: Iterable[tuple[int, Wave]]) -> list[Wave]:
    """Make one wave of what has the same depth and needs: as many tasks, as much work."""
    told: dict[tuple[int, Needs], list[Wave]] = {}
    for depth, wave in waves:
        told.setdefault((depth, wave.needs), []).append(wave)
    joined = []
    for (_, needs), alike in sorted(told.items(), key=lambda item: (item[0][0], sorted(item[0][1]))):
        tasks = sum(wave.tasks for wave in alike)
        joined.append(Wave(tasks, sum(wave.tasks * wave.task_s for wave in alike) / tasks, needs))
    return joined
