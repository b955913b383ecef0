"""Jobs whose width changes: what plans expect of jobs that give cores back, and of jobs that get more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.core.late import dataclass
from asa.strategies.base import Forecast, Phase, RunView
from asa.strategies.growth import MAX_SPARE, NOTICE_S, Growth, Watched, width_of
from asa.units import format_duration

_GROWTH = Growth()
_SPARE_LEVEL = 0.9  # probability that cores come before the job has idled as long as it may

MoreWaits = Callable[[str, int, float], NDArray[np.float64]]
"""Returns sorted samples of the wait for a number of further cores, for a duration, for a stage."""


@dataclass(frozen=True, slots=True)
class Elasticity:
    """The changes of a job's width while it runs."""

    shrinks: bool = False  # whether it gives back cores that its remaining stages do not need
    widths: tuple[int, ...] = ()  # of a growing job: its cores during each stage
    spare_s: float = 0.0  # part of its walltime in which it may idle
    # sorted samples of how long it will idle or, if that is too long, until another job has its stages
    late_s: NDArray[np.float64] | None = field(default=None, compare=False)

    @property
    def turns(self) -> list[str]:
        """Describe the changes of width in words."""
        turns = ["gives cores back as it goes"] if self.shrinks else []
        if self.widths:
            turns.append(f"gets more as it needs them, and may be idle for {format_duration(self.spare_s)}")
        return turns

    @property
    def clause(self) -> str:
        """Describe the change in a clause of a sentence."""
        return ", which gives cores back as stages end" if self.shrinks else ""

    @property
    def mark(self) -> str:
        """Describe the change in a table, after the cores."""
        return ", shrinks" if self.shrinks else ""

    def shown(self) -> dict[str, Any]:
        """Return the change as JSON-ready data."""
        return {"shrinks": self.shrinks}

    def asked(self) -> dict[str, Any]:
        """Return the fields of `PlannedJob` that ask for it."""
        return {"shrinks": self.shrinks, "widths": self.widths}


RIGID = Elasticity()
_NARROWING = Elasticity(shrinks=True)


@dataclass(frozen=True, slots=True)
class Resizing:
    """The changes of width that a site allows.

    `shrink_by`: the site takes cores back in multiples of this; 0 if it does not.
    `widths`: the cores of a growing job during each stage, rounded to what the site gives and takes; 0 where
    impossible.
    `max_cores`: upper bound of the cores of a job with those that join it.
    `more_s`: samples the waits for additional cores; None if no job grows.
    """

    shrink_by: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)
    max_cores: float = math.inf
    more_s: MoreWaits | None = None

    @classmethod
    def at(cls, view: RunView, more_s: MoreWaits, *, may_rise: bool) -> Resizing:
        """Return how jobs of a run may change; `may_rise`: whether they may grow, if the site can do that."""
        site = view.capabilities
        widths = {name: width_of(view, name) for name in view.workflow.order} if may_rise and site.grow_by else {}
        return cls(site.shrink_by, widths, site.max_cores, more_s)

    @property
    def rises(self) -> bool:
        """Whether jobs may grow."""
        return bool(self.widths) and self.more_s is not None

    def only_back(self) -> Resizing:
        """Return the same rules without growth."""
        return Resizing(self.shrink_by)

    def core_seconds_of(
        self, cores: int, run_s: float, needs: Sequence[int], lasts_s: Sequence[float]
    ) -> tuple[float, Elasticity]:
        """Count the core-seconds of consecutive stages in a job, and say whether the job gives cores back."""
        by = self.shrink_by
        if not by:
            return cores * run_s, RIGID
        left = list(accumulate(reversed(needs), max))[::-1]
        shrinks = not cores % by and left[-1] <= cores - by
        if by > 1:
            left = [-(-need // by) * by for need in left]
        return (sum(map(mul, left, lasts_s)), _NARROWING) if shrinks else (cores * run_s, RIGID)


class RisingJob:
    """A job that takes more and more stages, and gets more cores as they need them.

    Each time that the job grows, the cores are requested one usual wait ahead, as `Growth` does, for the rest of the
    job's walltime. That rest is approximated by the job's whole walltime so far.
    """

    def __init__(self, site: Resizing) -> None:
        assert site.more_s is not None
        self._site, self._more_s = site, site.more_s
        self.widths: list[int] = []
        self.core_seconds = 0.0
        self.rises = 0  # how often it grows
        self._ends_s: list[float] = []
        self._runs_s = self._walltime_s = self._waits_s = 0.0
        self._late_s: NDArray[np.float64] = np.zeros(1)
        self._shrinks = False

    def add(self, name: str, run_s: float, walltime_s: float) -> bool:
        """Add a stage; return whether the job can run it."""
        width, before = self._site.widths.get(name, 0), self.widths[-1] if self.widths else math.inf
        self._shrinks |= bool(self.widths) and width < before
        if not width or (self._shrinks and not self._site.shrink_by):
            return False
        self._walltime_s += walltime_s
        if width > before:
            self._rise(name, width, walltime_s)
        self.widths.append(width)
        self._runs_s += run_s
        self._ends_s.append(self._runs_s)
        self.core_seconds += width * run_s
        return True

    def _rise(self, name: str, width: int, walltime_s: float) -> None:
        """Account for a request for more cores."""
        before = self.widths[-1]
        cores = width - before
        room, ahead_s = self._site.max_cores - cores, self._runs_s
        # the machine must have space for both, so the request waits for the end of the wide stages
        if max(self.widths) > room:
            ahead_s -= max(end_s for had, end_s in zip(self.widths, self._ends_s, strict=True) if had > room)
        waits_s = self._more_s(name, cores, self._walltime_s)
        late_s, early_s = _late_s(waits_s, ahead_s)
        max_s = MAX_SPARE * self._walltime_s
        stands_s = float(np.minimum(late_s, max_s).sum()) / len(late_s)
        if max(late_s[0], late_s[-1]) > max_s:
            # then another job is submitted to a queue that is slow: its wait is a long one, too
            late_s = np.where(late_s > max_s, max_s + self._more_s(name, width, walltime_s), late_s)
        self.core_seconds += before * stands_s + cores * early_s
        self._late_s, self.rises = self._late_s + late_s, self.rises + 1
        self._waits_s += float(waits_s[int(_SPARE_LEVEL * len(waits_s))])

    def elasticity(self, walltime_s: float) -> Elasticity:
        """Return how the job's width changes; `walltime_s`: the walltime of its stages."""
        spare_s = max(min(self._waits_s, MAX_SPARE * walltime_s), NOTICE_S * self.rises)
        return Elasticity(self._shrinks, tuple(self.widths), spare_s, self._late_s)


def _late_s(waits_s: NDArray[np.float64], ahead_s: float) -> tuple[NDArray[np.float64], float]:
    """Return how late requested cores come, and for how long they idle if they come early.

    Cores that come much too early are given back, and requested again with half the lead.
    """
    lead_s = min(float(waits_s[int(_GROWTH.lead_level * len(waits_s))]), ahead_s)
    gap_s = waits_s - lead_s
    late_s = np.maximum(gap_s, 0.0)
    if gap_s[0] >= 0:
        return late_s, 0.0
    is_kept = gap_s >= -_GROWTH.max_hold_s
    if not is_kept[0]:
        late_s[~is_kept] = np.maximum(waits_s - lead_s / 2, 0.0).sum() / len(waits_s)
    return late_s, float(np.maximum(-gap_s, 0.0)[is_kept].sum()) / len(gap_s)


def looked_after(view: RunView, forecast: Forecast) -> Watched:
    """Return actions on submitted jobs whose width changes, if there are any."""
    changing = any(stage.cores for stage in view.stages.values())
    return _GROWTH.watch(view, forecast) if changing else Watched()


def additions(view: RunView) -> int:
    """Count the jobs whose cores only join others."""
    return sum(growth.phase is not Phase.DONE for growth in view.growths)
