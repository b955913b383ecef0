"""What outcomes say of methods: means over runs with intervals, and who beats whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import Interval, mean_interval

from .evaluation import MethodOutcome as Outcome
from .evaluation import Share
from .evaluation import WidthPart as Part

__all__ = ["BASELINE", "MEASURES", "Measure", "change", "grouped", "kiviat", "modes", "sizes", "target"]

BASELINE: Final = "fcfs-easy"
_NOT_TRAINED: Final = (BASELINE, "sjf", "wfp")  # and so the same in each run
WITH_RESERVATION: Final = (*_NOT_TRAINED, "dras-pg", "dras-dql")
_MOST_WAIT: Final = 1.5


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of an outcome."""

    name: str
    words: str
    scale: float = 1.0  # it is multiplied by this to be shown
    digits: int = 2  # with so many after the point
    is_loss: bool = True


MEASURES: Final = (
    Measure("mean_wait_s", "mean wait (h)", 1 / 3600),
    Measure("max_wait_s", "longest wait (h)", 1 / 3600, 1),
    Measure("slowdown", "bounded slowdown", 1.0, 1),
    Measure("response_s", "response (h)", 1 / 3600),
    Measure("utilisation", "utilisation (%)", 100.0, 2, is_loss=False),
)


def grouped(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Put the runs of each method together."""
    methods: dict[str, list[Outcome]] = {}
    for one in outcomes:
        methods.setdefault(one.method, []).append(one)
    return methods


def of(outcomes: Sequence[Outcome], measure: str) -> Interval:
    """Average a measure over runs of a method."""
    return mean_interval([float(getattr(one, measure)) for one in outcomes])


def change(some: Sequence[Outcome], others: Sequence[Outcome], measure: str) -> Interval:
    """Average by how much a measure is more for some runs than for others.

    Runs of the same number are compared, as they share their seed; if there is a single one, it is compared with each.
    """
    ours, theirs = ([float(getattr(one, measure)) for one in each] for each in (some, others))
    return mean_interval((np.array(ours) - np.array(theirs)).tolist())


def kiviat(methods: Mapping[str, Sequence[Outcome]]) -> dict[str, NDArray[np.float64]]:
    """Normalise measures as Fig. 6 does: 1 for the best method, 0 for the worst; of losses, the reciprocals."""
    means = np.array([[of(some, one.name).mean for one in MEASURES] for some in methods.values()])
    goods = np.where([one.is_loss for one in MEASURES], 1 / np.maximum(means, 1e-9), means)
    spread = np.ptp(goods, axis=0)
    is_one = spread <= 1e-9 * np.abs(goods).max(axis=0)
    shares = np.where(is_one, 1.0, (goods - goods.min(axis=0)) / np.where(is_one, 1.0, spread))
    return dict(zip(methods, shares, strict=True))


def sizes(outcomes: Sequence[Outcome]) -> list[Part]:
    """Average waits by size over runs; the longest wait is that of all runs."""
    by_size: dict[float, list[Part]] = {}
    for one in outcomes:
        for part in one.by_size:
            by_size.setdefault(part.above, []).append(part)
    return [
        Part(
            above,
            some[0].to,
            some[0].jobs,
            float(np.mean([part.mean_wait_s for part in some])),
            max(part.max_wait_s for part in some),
        )
        for above, some in sorted(by_size.items())
    ]


def modes(outcomes: Sequence[Outcome]) -> dict[str, Share]:
    """Average shares and waits of each mode over runs."""
    by_mode: dict[str, list[Share]] = {}
    for one in outcomes:
        for share in one.modes:
            by_mode.setdefault(share.mode, []).append(share)
    return {
        mode: Share(mode, *(float(np.mean([getattr(s, what) for s in some])) for what in Share.__slots__[1:]))
        for mode, some in by_mode.items()
    }


def target(methods: Mapping[str, Sequence[Outcome]], ours: str) -> dict[str, bool | None]:
    """Say of each rival that reserves whether ours beats it, beyond the interval, on mean wait and on slowdown.

    None where there is no interval: of ours, or of a rival that was trained, there is a single run.
    Under ``longest wait`` it stands whether ours is within 1.5 times of that with EASY backfilling, in every run.
    """
    told: dict[str, bool | None] = {}
    for name in WITH_RESERVATION:
        if name == ours or name not in methods:
            continue
        if any(len(methods[one]) < 2 for one in (ours, name) if one not in _NOT_TRAINED):
            told[name] = None
            continue
        told[name] = all(
            _clearly_less(of(methods[ours], measure), of(methods[name], measure))
            for measure in ("mean_wait_s", "slowdown")
        )
    if BASELINE in methods:
        most = _MOST_WAIT * of(methods[BASELINE], "max_wait_s").mean
        told["longest wait"] = max(one.max_wait_s for one in methods[ours]) <= most
    return told


def _clearly_less(one: Interval, other: Interval) -> bool:
    return bool(one.mean + np.nan_to_num(one.half) < other.mean - np.nan_to_num(other.half))
