"""Values for planning a pool: shapes of jobs, kinds of tasks, allocations, rules and decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from asa.errors import InputError
from asa.waits import WaitForecast

_RESOURCES = frozenset({"cores", "memory", "gpus"})

Needs = frozenset[tuple[str, float]]
"""The resources that a task needs of its worker process, each with its amount."""


@dataclass(frozen=True, slots=True)
class AllocationShape:
    """The size of one job of a pool, and of the workers in it.

    Parameters
    ----------
    cores, walltime_s
        What the job asks for.
    threads
        Of each worker process; `cores` is a multiple. Tasks of one process share its memory and Python's lock.
    memory_bytes, gpus
        Of the whole job; 0 for no demand.
    nodes
        Whole nodes to spread over; 0 for a part of one.
    tags
        Tags that tasks can ask for, such as names of stages.
    partition, account, options
        As in `asa.backend.JobSpec`.

    Examples
    --------
    >>> AllocationShape(8, 3600.0, threads=2, gpus=1, tags=frozenset({"train"})).resources
    {'cores': 2.0, 'gpus': 0.25, 'train': 2.0}
    """

    cores: int
    walltime_s: float
    threads: int = 1
    memory_bytes: int = 0
    gpus: int = 0
    nodes: int = 0
    tags: frozenset[str] = frozenset()
    partition: str = ""
    account: str = ""
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        places = max(self.nodes, 1)
        if self.cores < 1 or self.threads < 1 or self.cores % (self.threads * places):
            raise InputError(
                f"{self.cores} cores on {places} nodes are no whole number of workers of {self.threads} threads",
                hint="Give a multiple, or other threads.",
            )
        if not 0 < self.walltime_s < math.inf:
            raise InputError(f"a walltime of {self.walltime_s} s cannot be", hint="Give some time.")
        if bad := [tag for tag in self.tags if not tag or set(tag) & set(" ,='\"") or tag in _RESOURCES]:
            raise InputError(f"the tag {bad[0]!r} cannot be", hint="Take a word without spaces, commas, '='.")

    @property
    def processes(self) -> int:
        """Number of worker processes."""
        return self.cores // self.threads

    @property
    def resources(self) -> dict[str, float]:
        """Resources that each process offers: its share of the job's, and for each tag its number of threads."""
        offered = {"cores": float(self.threads)}
        if self.memory_bytes:
            offered["memory"] = self.memory_bytes / self.processes
        if self.gpus:
            offered["gpus"] = self.gpus / self.processes
        return offered | {tag: float(self.threads) for tag in sorted(self.tags)}

    def part(self, processes: int) -> AllocationShape:
        """Return the shape of a job with fewer worker processes, each with the same resources."""
        if processes >= self.processes or self.nodes > 1:
            return self
        share = processes / self.processes
        memory = math.ceil(self.memory_bytes * share)
        return replace(self, cores=processes * self.threads, memory_bytes=memory, gpus=math.ceil(self.gpus * share))

    def serves(self, needs: Needs) -> bool:
        """Whether its workers can run tasks with these needs."""
        has = self.resources
        return all(has.get(name, 0.0) >= amount for name, amount in needs)


class TaskKind(NamedTuple):
    """Tasks that may run at the same time, and the run time of a single task."""

    tasks: int  # number of tasks, each of one core
    task_s: float
    needs: Needs = frozenset()  # what a worker must offer to run them


@dataclass(frozen=True, slots=True)
class View:
    """An allocation as the planner sees it."""

    id: str  # its name
    shape: AllocationShape
    asked_s: float  # time of the request
    forecast: WaitForecast  # forecast of its wait, made at that time
    expected_start_s: float | None = None  # start that the batch system expects; None if unknown
    start_s: float | None = None  # time of its start; None while it waits
    until_s: float | None = None  # time at which its workers leave; None while it waits
    idle_s: float = 0.0  # seconds for which no task has run; 0 while one runs, and before its workers have come
    useless_s: float = 0.0  # seconds for which it has been among `Decision.useless`
    is_pinned: bool = False  # requested by the user, who also releases it

    def starts_s(self, now_s: float, level: float) -> float:
        """Return by when it will have started with a given probability, given that it has not started so far."""
        if self.start_s is not None:
            return self.start_s
        waited_s = now_s - self.asked_s
        past = self.forecast.probability_within(waited_s)
        start_s = self.asked_s + self.forecast.at(past + (1.0 - past) * level)
        if self.expected_start_s is not None:  # an upper bound if other jobs end before their walltimes
            start_s = min(start_s, self.expected_start_s)
        return max(start_s, now_s)


@dataclass(frozen=True, slots=True)
class PoolRules:
    """The rules by which a pool is planned."""

    # lower and upper bound of its cores, pending ones included. An allocation that ends before a new one is expected to
    # start does not count, so that a full pool is renewed in time. If the new one starts sooner, the allocation that
    # ends first is given back.
    minimum: int = 0
    maximum: float = math.inf
    # in cores: how many core-hours it is worth to be done an hour sooner
    price: float = 10.0
    startup_s: float = 10.0  # seconds from the start of a job until its workers work
    margin_s: float = 60.0  # seconds before the end of its walltime at which an allocation is vacated
    target_s: float = 5.0  # no cores are added for work that will be done within this time
    max_waiting: int | None = None  # upper bound of the jobs that wait in the queue; None for none
    is_fixed: bool = False  # the pool keeps `minimum` cores, whatever the work


@dataclass(frozen=True, slots=True)
class Decision:
    """The planner's decision: what to submit, withdraw and give back now."""

    ask: tuple[AllocationShape, ...] = ()
    withdraw: tuple[str, ...] = ()  # pending allocations to be withdrawn
    give_back: tuple[str, ...] = ()  # allocations to be given back because they idle or are replaced
    useless: frozenset[str] = frozenset()  # pending allocations that are expected to be useless
    reasons: tuple[str, ...] = ()
