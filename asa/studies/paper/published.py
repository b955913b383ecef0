"""Figures of the ASA paper: averages below Table 1, Table 2, claims of the text. Table 1 is kept with the workflows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol

WORKFLOWS: Final = ("montage", "blast", "statistics")
STRATEGIES: Final = ("big-job", "per-stage", "asa")
METRICS: Final = ("twt_s", "makespan_s", "core_hours")
SIZES: Final[Mapping[str, tuple[int, ...]]] = {"hpc2n": (28, 56, 112), "uppmax": (160, 320, 640)}
NAIVE: Final = ("hpc2n", "montage", 112)
"""The runs of ASA Naive: centre, workflow and cores."""
PROBES: Final = 60
"""Submissions of each geometry for Table 2, one a minute."""

FIGURES: Final[Mapping[str, str]] = {"montage": "6", "blast": "7", "statistics": "8"}

MAKESPAN_ABOVE_BEST: Final = 2.0
"""Percent by which ASA takes longer than allocations that are wide enough for all stages (Section 6)."""

CORE_HOURS_SAVED: Final = 43.0
"""Percent of these allocations' core-hours that ASA saves (Section 6)."""

NORMALISED: Final[Mapping[str, Mapping[str, tuple[float, float, float]]]] = {
    # below each workflow in Table 1: percent above the best of each size, for TWT, makespan and core-hours
    "montage": {"big-job": (5, 1, 53), "per-stage": (82, 34, 0), "asa": (10, 6, 0)},
    "blast": {"big-job": (6, 0, 1), "per-stage": (13, 2, 0), "asa": (2, 0, 1)},
    "statistics": {"big-job": (17, 2, 83), "per-stage": (115, 36, 0), "asa": (5, 0, 1)},
}


class Used(Protocol):
    """A cell of Table 1: seconds, seconds, core-hours."""

    @property
    def twt_s(self) -> int:
        """Total waiting time."""
        ...

    @property
    def makespan_s(self) -> int:
        """From the submission of the workflow to its end."""
        ...

    @property
    def core_hours(self) -> int:
        """All allocated core-hours."""
        ...


TABLE_1: Final[Mapping[str, Mapping[int, Mapping[str, Used]]]] = import_module("asa.workflows.paper").TABLE_1
"""The whole Table 1, by workflow, cores and strategy; its data are kept with the workflows, which are fitted to it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean, and the standard deviation printed next to it."""

    mean: float  # in the unit of their column; a deviation that is not printed is 0
    deviation: float


@dataclass(frozen=True, slots=True)
class Probed:
    """A row of Table 2."""

    real_h: Spread
    predicted_h: Spread
    perceived_h: Spread
    hit_percent: Spread  # shares of predictions that were not too long, and that were too long
    miss_percent: Spread
    overhead_h: Spread  # core-hours spent by allocations that came early


def _rows(text: str) -> dict[int, Probed]:
    table: dict[int, Probed] = {}
    for line in text.strip().splitlines():
        cores, *words = line.split()
        pairs = [Spread(float(mean), float(sd or 0)) for mean, _, sd in (word.partition("+") for word in words)]
        table[int(cores)] = Probed(*pairs)
    return table


TABLE_2: Final[Mapping[str, Mapping[int, Probed]]] = {
    # cores, then real, predicted and perceived wait (h), hit and miss ratio (%), overhead (core-h); mean+deviation
    "montage": _rows("""
        28 0.4+0.3 0.7+0.6 0.5+0.4 60 40 1.7+0.5
        56 1.1+0.8 1.2+0.9 0.4+0.4 68 32 3.0+0.8
        112 1.5+0.7 2.0+1.9 0.5+0.4 87 13 2.0+0.8
        160 11+1.6 3.9+4.6 0.7+0.3 100 0 0
        320 15+1.3 12+3.9 0.2+0.3 100 0 0
        640 17+0.6 12+3.3 0.3+0.2 100 0 0
    """),
    "blast": _rows("""
        28 0.4+0.3 1.0+1.0 0.6+0.3 70 30 8+1.9
        56 1.1+0.8 1.3+1.2 0.7+0.5 71 29 11+2.7
        112 1.5+0.7 1.0+1.0 0.6+0.4 89 11 3+0.7
        160 11+1.6 4.5+5.0 0.7+0.4 100 0 0
        320 15+1.3 11+4.1 0.2+0.3 100 0 0
        640 16+0.6 11+3.8 0.3+0.2 100 0 0
    """),
    "statistics": _rows("""
        28 0.4+0.6 0.5+0.7 0.4+0.4 67 33 3+0.2
        56 1.1+0.8 1.2+0.9 0.4+0.4 69 31 6+2.0
        112 1.5+0.7 2.0+1.9 0.5+0.4 87 13 5+1.0
        160 11+1.7 5.2+5.8 0.6+0.4 100 0 0
        320 14+1.3 11+3.9 0.2+0.3 100 0 0
        640 16+0.6 12+3.3 0.3+0.2 100 0 0
    """),
}
"""The whole Table 2, by workflow and cores."""
