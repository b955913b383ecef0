"""Summaries of methods: means over runs with intervals, and which method beats which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asa.core.intervals import Interval, mean_interval
from asa.studies.present import Measure, shares_of_best

from .evaluation import MethodOutcome, ModeShare, WidthPart

BASELINE: Final = "fcfs-easy"
_NOT_TRAINED: Final = (BASELINE, "sjf", "wfp")  # not trained, and so equal in each run
WITH_RESERVATION: Final = (*_NOT_TRAINED, "dras-pg", "dras-dql")
_MAX_WAIT: Final = 1.5


MEASURES: Final = (
    Measure("mean_wait_s", "mean wait", digits=None, is_loss=True),
    Measure("max_wait_s", "longest wait", digits=None, is_loss=True),
    Measure("slowdown", "bounded slowdown", digits=1, is_loss=True),
    Measure("response_s", "response time", digits=None, is_loss=True),
    Measure("utilisation", "utilisation (%)", 100.0),
)


def grouped(outcomes: Sequence[MethodOutcome]) -> dict[str, list[MethodOutcome]]:
    """Group the runs of each method."""
    methods: dict[str, list[MethodOutcome]] = {}
    for outcome in outcomes:
        methods.setdefault(outcome.method, []).append(outcome)
    return methods


def of(outcomes: Sequence[MethodOutcome], measure: str) -> Interval:
    """Average a measure over runs of a method."""
    return mean_interval([float(getattr(outcome, measure)) for outcome in outcomes])


def change(some: Sequence[MethodOutcome], others: Sequence[MethodOutcome], measure: str) -> Interval:
    """Return the mean change of a measure from some runs to others.

    Runs with the same number share their seed and are compared; a single run is compared with each.
    """
    ours, theirs = ([float(getattr(outcome, measure)) for outcome in each] for each in (some, others))
    return mean_interval((np.array(ours) - np.array(theirs)).tolist())


def kiviat(methods: Mapping[str, Sequence[MethodOutcome]]) -> dict[str, NDArray[np.float64]]:
    """Normalise measures as in Fig. 6; see `asa.studies.present.shares_of_best`."""
    means = [[of(some, measure.name).mean for measure in MEASURES] for some in methods.values()]
    return dict(zip(methods, shares_of_best(means, [measure.is_loss for measure in MEASURES]), strict=True))


def sizes(outcomes: Sequence[MethodOutcome]) -> list[WidthPart]:
    """Average waits by size over runs; the longest wait is that of all runs."""
    by_size: dict[float, list[WidthPart]] = {}
    for outcome in outcomes:
        for part in outcome.by_size:
            by_size.setdefault(part.above, []).append(part)
    return [
        WidthPart(
            above,
            some[0].to,
            some[0].jobs,
            float(np.mean([part.mean_wait_s for part in some])),
            max(part.max_wait_s for part in some),
        )
        for above, some in sorted(by_size.items())
    ]


def modes(outcomes: Sequence[MethodOutcome]) -> dict[str, ModeShare]:
    """Average shares and waits of each mode over runs."""
    by_mode: dict[str, list[ModeShare]] = {}
    for outcome in outcomes:
        for share in outcome.modes:
            by_mode.setdefault(share.mode, []).append(share)
    return {
        mode: ModeShare(mode, *(float(np.mean([getattr(s, what) for s in some])) for what in ModeShare.__slots__[1:]))
        for mode, some in by_mode.items()
    }


def target(methods: Mapping[str, Sequence[MethodOutcome]], ours: str) -> dict[str, bool | None]:
    """Return for each rival with reservations whether ours is significantly better on mean wait and on slowdown.

    None if there is no interval, since ours, or a trained rival, has a single run. The key ``longest wait`` says
    whether ours is at most 1.5 times that of EASY backfilling in every run.
    """
    verdicts: dict[str, bool | None] = {}
    for name in WITH_RESERVATION:
        if name == ours or name not in methods:
            continue
        if any(len(methods[method]) < 2 for method in (ours, name) if method not in _NOT_TRAINED):
            verdicts[name] = None
            continue
        verdicts[name] = all(
            _clearly_less(of(methods[ours], measure), of(methods[name], measure))
            for measure in ("mean_wait_s", "slowdown")
        )
    if BASELINE in methods:
        most = _MAX_WAIT * of(methods[BASELINE], "max_wait_s").mean
        verdicts["longest wait"] = max(method.max_wait_s for method in methods[ours]) <= most
    return verdicts


def _clearly_less(interval: Interval, other: Interval) -> bool:
    return bool(interval.mean + np.nan_to_num(interval.half) < other.mean - np.nan_to_num(other.half))
