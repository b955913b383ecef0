"""Shared by studies of strategies: replications at a site, the figures of each run, and the typical run."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

from asa.backend import Backend, Site
from asa.core import plugins
from asa.errors import InputError, RunError
from asa.estimators import WaitBank
from asa.metrics import RunMetrics, measure
from asa.runner import RunResult
from asa.timeline import Timeline, timeline
from asa.workflow import Workflow

_K = TypeVar("_K")
_T = TypeVar("_T")


@lru_cache(maxsize=4)  # cells that follow each other read a log once
def simulated(**how: Any) -> Site:
    """Return a simulated site; see `asa.backends.simulated.SimulatedSite`."""
    return cast("Site", plugins.load("asa.backends", "simulated")(**how))


def one_by_one(site: Site, seeds: Sequence[int], run: Callable[[int, Backend], _T]) -> list[_T]:
    """Run a function in the world of each seed, in the order of a log's time; runs learn from earlier ones.

    Returns: the results, in the order of the seeds.
    """
    came = {seed: run(seed, site.open(seed)) for seed in site.in_order(seeds)}
    return [came[seed] for seed in seeds]


@dataclass(frozen=True, slots=True)
class Known:
    """The knowledge at the beginning of a replication, the same for all competitors."""

    site: Site
    seed: int
    history: int
    sees_queue: bool  # whether its bank also learns when jobs end
    # pickled bank that has learned the past and seen the queue; unpickling is several times as fast as a deep copy
    bank: bytes

    def begin(self) -> tuple[Backend, WaitBank]:
        """Return a new world, and a bank that already follows its queue: for `run_all` with `is_followed`."""
        world = self.site.open(self.seed)
        world.queue_events(self.history, ends=self.sees_queue)  # the bank has these already
        return world, cast("WaitBank", pickle.loads(self.bank))  # noqa: S301 - pickled here


def each_knowing(
    site: Site, seeds: Sequence[int], bank: WaitBank, history: int, run: Callable[[Known], _T]
) -> list[_T]:
    """Run a function at each seed, in the order of a log's time, with a bank that has learned the log up to then.

    Learning the past takes longer than most runs, so it is done once for all competitors. None of them learns from its
    own jobs for the next seed.

    Returns: the results, in the order of the seeds.
    """

    def knowing(seed: int, world: Backend) -> _T:
        bank.lose_sight()
        bank.follow(world.queue_events(history, ends=bank.sees_queue))
        return run(Known(site, seed, history, bank.sees_queue, pickle.dumps(bank, pickle.HIGHEST_PROTOCOL)))

    return one_by_one(site, seeds, knowing)


def put_together(runs: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Group items by key, in order of first appearance."""
    groups: dict[_K, list[_T]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def refuse_wider(sizes: Iterable[int], machine_cores: int, where: str) -> None:
    """Refuse peak sizes that exceed a world's machine."""
    for size in sizes:
        if size > machine_cores:
            text = f"{size} cores are more than its machine's {machine_cores}"
            raise InputError(text, where=where, hint="Give --cores that fit.")


def figures(workflow: Workflow, run: RunMetrics) -> tuple[float, float, float, float, float]:
    """Return makespan, core-hours, unused core-hours, and the sums of waits of dependent stages and of all stages."""
    between_s = sum(stage.perceived_wait_s for stage in run.stages if workflow.stages[stage.stage].after)
    return run.makespan_s, run.core_hours, run.overhead_core_hours, between_s, run.twt_s


def completed(workflow: Workflow, result: RunResult, where: str) -> RunMetrics:
    """Return the metrics of a run; raise if it did not complete."""
    if result.outcome != "completed":
        raise RunError(f"did not complete: {result.reason}", where=where, hint="Look at it with: asa compare.")
    return measure(workflow, result.records)


def measured(
    workflow: Workflow, result: RunResult, where: str, *, age_accrues: bool = True
) -> tuple[RunMetrics, Timeline]:
    """Return the metrics of a run, and the timeline of its jobs.

    `age_accrues`: whether a job at its site gains priority while a dependency holds it.
    """
    metrics = completed(workflow, result, where)
    return metrics, timeline(result.records, workflow, age_accrues=age_accrues)


def typical(makespans_s: Mapping[_K, float]) -> _K:
    """Return the key with the median makespan: of two, the quicker one; of equal makespans, the first.

    `makespans_s`: makespans in seconds, or sums of several; at least one.

    Examples
    --------
    >>> typical({"a": 30.0, "b": 10.0, "c": 20.0, "d": 20.0})
    'c'
    """
    return sorted(makespans_s, key=makespans_s.__getitem__)[(len(makespans_s) - 1) // 2]
