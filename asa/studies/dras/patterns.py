"""Describes the jobs of a log as Figures 2 and 3 do: sizes, arrivals, and the accuracy of requests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asa.backends.simulated.table import JobTable

from .evaluation import Split

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
PARTS: Final = 10
"""Number of classes of the accuracy of requests."""

_HOUR_S, _DAY_S = 3600, 86400
_FIRST_MONDAY = 4  # days from 1970-01-01
_MAX_CLASSES = 8


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Jobs of `first` to `last` nodes: their shares of all jobs and of the core-hours, 0 to 1."""

    first: int
    last: int
    jobs: float
    core_hours: float

    @property
    def name(self) -> str:
        """The class in words."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Patterns:
    """A description of jobs."""

    jobs: int
    sizes: tuple[SizeClass, ...]
    weekdays: tuple[float, ...]  # jobs a day on Mondays, Tuesdays, ...
    hours: tuple[float, ...]  # jobs an hour in each of the 24 hours of the day
    accuracy: tuple[float, ...]  # shares of the jobs whose run time is up to 10, 20, ... 100 % of what was requested

    def as_dict(self) -> dict[str, Any]:
        """Return the description as JSON-ready data."""
        return asdict(self)


def size_edges(cores: NDArray[np.int64], nodes: int) -> list[int]:
    """Return the smallest size of each class, and the machine's size plus 1; sizes double, or grow faster if many."""
    smallest, factor = int(cores.min()), 2
    while smallest * factor**_MAX_CLASSES <= nodes:
        factor *= 2
    edges = [smallest]
    while edges[-1] * factor <= nodes:
        edges.append(edges[-1] * factor)
    return [*edges, nodes + 1]


def describe(table: JobTable, edges: list[int], *, clock_s: int = 0) -> Patterns:
    """Describe jobs.

    `edges`: see `size_edges`; sizes outside count to the class next to them.
    `clock_s`: local time at second 0, in seconds since 1970-01-01.
    """
    kind = np.clip(np.searchsorted(edges, table.cores, side="right") - 1, 0, len(edges) - 2)
    work = (table.run * table.cores).astype(np.float64)
    jobs, core_hours = (
        np.bincount(kind, weights=weights, minlength=len(edges) - 1) / weights.sum()
        for weights in (np.ones(len(table)), work)
    )
    local = table.submit + clock_s
    day = local // _DAY_S - _FIRST_MONDAY
    days = np.arange(int(day.min()), int(day.max()) + 1)
    seen = np.maximum(np.bincount(days % 7, minlength=7), 1)
    accuracy = np.clip(np.ceil(PARTS * table.run / np.maximum(table.request, 1)).astype(np.int64) - 1, 0, PARTS - 1)
    return Patterns(
        len(table),
        tuple(
            SizeClass(first, after - 1, float(one), float(two))
            for first, after, one, two in zip(edges, edges[1:], jobs, core_hours, strict=False)
        ),
        tuple((np.bincount(day % 7, minlength=7) / seen).tolist()),
        tuple((np.bincount(local % _DAY_S // _HOUR_S, minlength=24) / len(days)).tolist()),
        tuple((np.bincount(accuracy, minlength=PARTS) / len(table)).tolist()),
    )


@dataclass(frozen=True, slots=True)
class LogPatterns:
    """Descriptions of a log's jobs."""

    log: str
    nodes: int
    all: Patterns  # all jobs (Fig. 2)
    learned: Patterns  # those of the days that agents learn from (Fig. 3)
    drawn: Patterns  # those of equally many weeks of the third phase, which are drawn from a model

    def as_dict(self) -> dict[str, Any]:
        """Return the descriptions as JSON-ready data."""
        return asdict(self)


def describe_log(tested: Split) -> LogPatterns:
    """Describe a log's jobs, and those that are drawn after its pattern."""
    material, week_s = tested.material, 7 * _DAY_S
    edges = size_edges(tested.jobs.cores, material.nodes)
    training = material.training
    weeks = max(round(int(training.submit[-1] - training.submit[0]) / week_s), 1)
    sets = [material.jobs("synthetic", number, count=0, seed=0) for number in range(weeks)]
    submits = [one.submit + number * week_s for number, one in enumerate(sets)]
    columns = (np.concatenate([getattr(one, name) for one in sets]) for name in ("run", "request", "cores"))
    drawn = JobTable(np.concatenate(submits), *columns)
    return LogPatterns(
        tested.name,
        material.nodes,
        describe(tested.jobs, edges, clock_s=tested.clock_s),
        describe(training, edges, clock_s=tested.clock_s),
        describe(drawn, edges, clock_s=_FIRST_MONDAY * _DAY_S),  # a model's weeks begin on Mondays
    )
