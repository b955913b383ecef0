"""What outcomes say of methods: means over runs with intervals, and who beats whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from asa.backends.bbsched.tables import Estimate, estimate
from numpy.typing import NDArray

from .evaluation import Outcome, Part, Share

__all__ = ["BASELINE", "MEASURES", "Measure", "grouped", "kiviat", "modes", "sizes", "target"]

BASELINE: Final = "fcfs-easy"
WITH_RESERVATION: Final = (BASELINE, "sjf", "wfp", "dras-pg", "dras-dql")
_MOST_WAIT: Final = 1.5


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of an outcome: its field, what it is called, and what it is multiplied by to be shown."""

    name: str
    words: str
    scale: float = 1.0
    digits: int = 2
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


def of(outcomes: Sequence[Outcome], measure: str) -> Estimate:
    """Average a measure over runs of a method."""
    return estimate(np.array([float(getattr(one, measure)) for one in outcomes]))


def kiviat(methods: Mapping[str, Sequence[Outcome]]) -> dict[str, NDArray[np.float64]]:
    """Normalise measures as Fig. 6 does: 1 for the best method, 0 for the worst; of losses, the reciprocals."""
    means = np.array([[of(some, one.name).value for one in MEASURES] for some in methods.values()])
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


def target(methods: Mapping[str, Sequence[Outcome]], ours: str) -> dict[str, bool]:
    """Say of each rival that reserves whether ours beats it, beyond the interval, on mean wait and on slowdown.

    Under ``longest wait`` it stands whether ours is within 1.5 times of that with EASY backfilling, in every run.
    """
    told = {}
    for name in WITH_RESERVATION:
        if name != ours and name in methods:
            told[name] = all(
                _clearly_less(of(methods[ours], measure), of(methods[name], measure))
                for measure in ("mean_wait_s", "slowdown")
            )
    if BASELINE in methods:
        most = _MOST_WAIT * of(methods[BASELINE], "max_wait_s").value
        told["longest wait"] = max(one.max_wait_s for one in methods[ours]) <= most
    return told


def _clearly_less(one: Estimate, other: Estimate) -> bool:
    return bool(one.value + np.nan_to_num(one.half) < other.value - np.nan_to_num(other.half))
