"""Compares methods on workloads: usage of the machine, and waits of jobs (Sections 4.2 and 4.4)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.backends.bbsched.methods import METHODS, load_method, load_solver
from asa.backends.bbsched.problem import Selection, Window
from asa.backends.bbsched.scheduler import WindowScheduler, make_load
from asa.backends.bbsched.system import NODES, Free, Integers
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.table import NEVER
from asa.errors import InputError
from asa.studies.bbsched.workloads import BUFFER, SSD, Workload, is_normal
from asa.studies.harness import run_cells

_SIZES = (1, 9, 128, 256, 512, 1024)
_BUFFERS_GB = (0, 1, 20_000, 50_000, 100_000, 200_000)
_RUNS_S = (0, 600, 3600, 3 * 3600, 6 * 3600, 12 * 3600)


@dataclass(frozen=True, slots=True)
class Case:
    """One workload under one method."""

    workload: str
    method: str
    window: int = 20  # number of jobs in a window
    solver: str = "exact"
    starvation_bound: int = 50
    seed: int = 0


@dataclass(frozen=True, slots=True)
class WaitsOfPart:
    """The waits of a part of the jobs: those with `least` to `most` of some quantity."""

    least: int  # in nodes, GB of burst buffer, or seconds; `most` is None without an upper bound
    most: int | None
    jobs: int
    average_wait_s: float


@dataclass(frozen=True, slots=True)
class ComparedOutcome:
    """The outcome of a workload.

    Usages are shares of the machine during the measured time; only jobs submitted in that time count.
    """

    case: Case
    order: str  # the base scheduler
    nodes: int  # size of the machine
    burst_buffer_gb: int
    jobs: int
    # what the measured jobs hold while they run, whenever that is, as a share of the machine in the measured time
    offered_nodes: float
    offered_burst_buffer: float
    node_usage: float  # shares of the machine; SSD only if jobs ask for it
    burst_buffer_usage: float
    ssd_usage: float | None
    wasted_ssd: float | None  # SSD on the nodes of running jobs that they did not ask for, as a share of all SSD
    average_wait_s: float
    longest_wait_s: int
    # response time over run time, without jobs that failed early (`asa.studies.bbsched.workloads.is_normal`)
    average_slowdown: float
    # waits by size, request (GB) or run time (s), for parts that have jobs (Figs 9 to 11)
    by_nodes: tuple[WaitsOfPart, ...]
    by_burst_buffer: tuple[WaitsOfPart, ...]
    by_run: tuple[WaitsOfPart, ...]
    decisions: int  # number of decisions, and of those whose answer is the best found but not proved optimal
    inexact: int
    decision_s: float  # mean and largest time of a decision
    worst_decision_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON-ready data, with the fields of the case."""
        fields = asdict(self)
        case: dict[str, Any] = fields.pop("case")
        return case | fields


class _Timed:
    """A method, with the times of its decisions."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.seconds: list[float] = []

    def select(self, window: Window, free: Free) -> Selection:
        """Select jobs of a window."""
        begin = time.perf_counter()
        selection: Selection = self._method.select(window, free)
        self.seconds.append(time.perf_counter() - begin)
        return selection


def methods_for(workload: Workload) -> tuple[str, ...]:
    """Return the methods that the paper compares on a workload: eight in Section 4.3, seven in Section 5."""
    left_out = ("weighted-cpu", "weighted-bb") if workload.system.per_node else ("constrained-ssd",)
    return tuple(name for name in METHODS if name not in left_out)


def run_case(workload: Workload, case: Case) -> ComparedOutcome:
    """Schedule a workload, and measure the outcome.

    Raises `InputError`: the method or solver is unknown, the window or bound is less than 1, or there is no job to
    measure.
    """
    _refuse_empty(workload)
    table, system = workload.table, workload.system
    method = _Timed(load_method(case.method, system, load_solver(case.solver)))
    scheduler = WindowScheduler(
        system, method, order=workload.order, window=case.window, starvation_bound=case.starvation_bound
    )
    core = GeneralCore(make_load(system, table, dict(workload.demands)), scheduler, now=int(table.submit[0]))
    core.run(NEVER - 1)
    wait = core.start - table.submit
    held = core.view.demand[: len(table)]
    busy = _overlap(core.start, core.start + table.run, workload.begin_s, workload.end_s)
    span = workload.end_s - workload.begin_s
    counts = workload.measured
    usage, offered = (
        {name: float(seconds @ held[:, index]) / (system.pools[name] * span) for index, name in enumerate(system.pools)}
        for seconds in (busy, np.where(counts, table.run, 0))
    )
    wasted = None
    if SSD in system.per_node:
        kinds = len(system.kinds)
        assigned = (held[:, :kinds] - np.pad(held[:, 1:kinds], ((0, 0), (0, 1)))) @ system.each
        whole = float(busy @ assigned[:, system.per_node.index(SSD)]) / (system.pools[SSD] * span)
        wasted = whole - usage[SSD]
    normal = counts & is_normal(table)
    seconds = method.seconds or [0.0]
    return ComparedOutcome(
        case=case,
        order=workload.order,
        nodes=system.pools[NODES],
        burst_buffer_gb=system.shared[BUFFER],
        jobs=int(counts.sum()),
        offered_nodes=offered[NODES],
        offered_burst_buffer=offered[BUFFER],
        node_usage=usage[NODES],
        burst_buffer_usage=usage[BUFFER],
        ssd_usage=usage.get(SSD),
        wasted_ssd=wasted,
        average_wait_s=float(wait[counts].mean()),
        longest_wait_s=int(wait[counts].max()),
        average_slowdown=float((1 + wait[normal] / table.run[normal]).mean()),
        by_nodes=_parts(table.cores, wait, counts, _SIZES),
        by_burst_buffer=_parts(workload.demands[BUFFER], wait, counts, _BUFFERS_GB),
        by_run=_parts(table.run, wait, counts, _RUNS_S),
        decisions=scheduler.decisions,
        inexact=scheduler.inexact,
        decision_s=float(np.mean(seconds)),
        worst_decision_s=float(max(seconds)),
    )


def compare(
    workloads: Mapping[tuple[str, int], Workload],
    cases: Iterable[Case],
    *,
    processes: int = 1,
    on_done: Callable[[ComparedOutcome], None] = lambda _outcome: None,
) -> list[ComparedOutcome]:
    """Run cases in parallel.

    Returns: outcomes in the order of the cases. Except for the times of decisions they do not depend on the number of
    processes.
    Raises `InputError`: a workload has no job to measure, which is checked before any run; see also `run_case`.
    """
    wanted = list(cases)
    for workload in workloads.values():
        _refuse_empty(workload)
    return run_cells(_run_one, wanted, dict(workloads), jobs=processes, on_end=lambda _case, outcome: on_done(outcome))


def _run_one(workloads: Mapping[tuple[str, int], Workload], case: Case) -> ComparedOutcome:
    return run_case(workloads[case.workload, case.seed], case)


def _refuse_empty(workload: Workload) -> None:
    if not (workload.measured & is_normal(workload.table)).any():
        raise InputError(
            "no job is submitted between warm-up and cool-down that runs for a minute",
            where=workload.name,
            hint="Take more days, or another log.",
        )


def _overlap(start: Integers, end: Integers, begin_s: int, end_s: int) -> Integers:
    """Return how long each job runs within a time interval."""
    within: Integers = np.maximum(np.minimum(end, end_s) - np.maximum(start, begin_s), 0)
    return within


def _parts(
    values: Integers, wait: Integers, counts: NDArray[np.bool_], edges: Sequence[int]
) -> tuple[WaitsOfPart, ...]:
    """Average the waits of the jobs between each edge and the next, if there are any."""
    parts = []
    for least, after in zip(edges, [*edges[1:], math.inf], strict=True):
        some = counts & (values >= least) & (values < after)
        if some.any():
            most = None if after == math.inf else int(after) - 1
            parts.append(WaitsOfPart(least, most, int(some.sum()), float(wait[some].mean())))
    return tuple(parts)
