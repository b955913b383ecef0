"""Jobs whose width changes as they go: what plans expect of those that give cores back, and that get more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.strategies.base import Forecast, Phase, RunView
from asa.strategies.growth import MAX_SPARE, NOTICE_S, Growth, Watched, width_of
from asa.units import format_duration

_GROWTH = Growth()
_SPARE_LEVEL = 0.9  # probability with which the wait for more cores does not exceed the time that a job may idle

MoreWaits = Callable[[str, int, float], NDArray[np.float64]]
"""Returns samples, in order, of the wait for so many more cores for so long, for a stage."""


@dataclass(frozen=True, slots=True)
class Elasticity:
    """How the width of one job changes while it runs."""

    shrinks: bool = False  # whether it gives back what its stages that are left do not need
    widths: tuple[int, ...] = ()  # where it grows: its cores during each of its stages
    spare_s: float = 0.0  # the part of its walltime for idling
    # samples of how long it will idle, in order; if that would be too long, until another job has its stages
    late_s: NDArray[np.float64] | None = field(default=None, compare=False)

    @property
    def turns(self) -> list[str]:
        """What it does as it goes, in words."""
        turns = ["gives cores back as it goes"] if self.shrinks else []
        if self.widths:
            turns.append(f"gets more as it needs them, and may be idle for {format_duration(self.spare_s)}")
        return turns

    @property
    def clause(self) -> str:
        """What a sentence says of it."""
        return ", which gives cores back as stages end" if self.shrinks else ""

    @property
    def mark(self) -> str:
        """What a table says of it, behind the cores."""
        return ", shrinks" if self.shrinks else ""

    def shown(self) -> dict[str, Any]:
        """Give what documents say of it."""
        return {"shrinks": self.shrinks}

    def asked(self) -> dict[str, Any]:
        """Give what a job asks for because of it: fields of `PlannedJob`."""
        return {"shrinks": self.shrinks, "widths": self.widths}


RIGID = Elasticity()
_NARROWING = Elasticity(shrinks=True)


@dataclass(frozen=True, slots=True)
class Resizing:
    """How jobs may change their width at a site.

    `shrink_by`: the site takes cores back in multiples of this; 0 if it does not.
    `widths`: where jobs can grow, the cores of such a job during each stage, as the site gives and takes them; 0 if it
    cannot.
    `max_cores`: of a job, with what is to join it.
    `more_s`: the waits for what is to join a job; None where none grows.
    """

    shrink_by: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)
    max_cores: float = math.inf
    more_s: MoreWaits | None = None

    @classmethod
    def at(cls, view: RunView, more_s: MoreWaits, *, may_rise: bool) -> Resizing:
        """Tell how jobs of a run may change; `may_rise`: whether they may get more cores, where the site gives them."""
        site = view.capabilities
        widths = {name: width_of(view, name) for name in view.workflow.order} if may_rise and site.grow_by else {}
        return cls(site.shrink_by, widths, site.max_cores, more_s)

    @property
    def rises(self) -> bool:
        """Whether jobs may get more cores."""
        return bool(self.widths) and self.more_s is not None

    def only_back(self) -> Resizing:
        """Give the same where jobs get no more cores."""
        return Resizing(self.shrink_by)

    def core_seconds_of(
        self, cores: int, run_s: float, needs: Sequence[int], lasts_s: Sequence[float]
    ) -> tuple[float, Elasticity]:
        """Count the core-seconds that stages hold one after the other; and say whether their job gives cores back."""
        by = self.shrink_by
        if not by:
            return cores * run_s, RIGID
        left = list(accumulate(reversed(needs), max))[::-1]
        shrinks = not cores % by and left[-1] <= cores - by
        if by > 1:
            left = [-(-need // by) * by for need in left]
        return (sum(map(mul, left, lasts_s)), _NARROWING) if shrinks else (cores * run_s, RIGID)


class RisingJob:
    """A job that more and more stages share, and that gets more cores as they need them.

    Each time that it grows, the cores are asked for ahead by what they usually wait, as `Growth` does, and for the
    rest of the job's walltime. That rest is taken here to be as long as its whole walltime so far.
    """

    def __init__(self, site: Resizing) -> None:
        assert site.more_s is not None
        self._site, self._more_s = site, site.more_s
        self.widths: list[int] = []
        self.core_seconds = 0.0
        self.rises = 0  # how often it gets more
        self._ends_s: list[float] = []
        self._runs_s = self._walltime_s = self._waits_s = 0.0
        self._late_s: NDArray[np.float64] = np.zeros(1)
        self._shrinks = False

    def add(self, name: str, run_s: float, walltime_s: float) -> bool:
        """Add a stage; say whether it can have one."""
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
        """Ask for more cores."""
        before = self.widths[-1]
        cores = width - before
        room, ahead_s = self._site.max_cores - cores, self._runs_s
        if max(self.widths) > room:  # they cannot be asked for while the machine does not hold both
            ahead_s -= max(end_s for had, end_s in zip(self.widths, self._ends_s, strict=True) if had > room)
        waits_s = self._more_s(name, cores, self._walltime_s)
        late_s, early_s = _late_s(waits_s, ahead_s)
        max_s = MAX_SPARE * self._walltime_s
        stands_s = float(np.minimum(late_s, max_s).sum()) / len(late_s)
        if max(late_s[0], late_s[-1]) > max_s:
            # then another job is asked for, of a queue that is slow now: its wait is a long one, too
            late_s = np.where(late_s > max_s, max_s + self._more_s(name, width, walltime_s), late_s)
        self.core_seconds += before * stands_s + cores * early_s
        self._late_s, self.rises = self._late_s + late_s, self.rises + 1
        self._waits_s += float(waits_s[int(_SPARE_LEVEL * len(waits_s))])

    def elasticity(self, walltime_s: float) -> Elasticity:
        """Say how it changes; `walltime_s`: its stages' own."""
        spare_s = max(min(self._waits_s, MAX_SPARE * walltime_s), NOTICE_S * self.rises)
        return Elasticity(self._shrinks, tuple(self.widths), spare_s, self._late_s)


def _late_s(waits_s: NDArray[np.float64], ahead_s: float) -> tuple[NDArray[np.float64], float]:
    """Return how late cores come that are asked for ahead, and how long they idle because they come early.

    Cores that come much too early are given back, and asked for again with half the lead.
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
    """Say what is to be done about jobs whose width is to change, if there are any."""
    changing = any(stage.cores for stage in view.stages.values())
    return _GROWTH.watch(view, forecast) if changing else Watched()


def additions(view: RunView) -> int:
    """Count the jobs that are there only to make others wider."""
    return sum(one.phase is not Phase.DONE for one in view.growths)
