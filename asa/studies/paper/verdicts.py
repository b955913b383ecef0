"""Compares our figures with the paper's, all by the same stated rules.

A machine's load cannot be reproduced, so seconds are not expected to be equal. A table also shows which strategy is
better, and by how much; this can be compared.

**Table 1 and its averages**: a figure is compared with those of the other strategies in the same row.

- *as the paper*: each strategy that is more than 5 % above it in the paper is so here, and each that is more than 5 %
  below likewise, both beyond the 95 % interval of the paired replications; and its ratio to the row's best is that of
  the paper within a factor of 1.25;
- *same order*: only the first condition holds;
- *differs*: not even that, also if a difference of the paper is not significant here.

If figures of the paper are within 5 % of each other, only the ratio is judged.

**Table 2**: likewise, compared with the other sizes of the same workflow. Instead of the ratio, the figure itself has
to be within a factor of 1.25, or within the last digit that the paper prints.

**Claims of the text** are percentages: *as the paper* within a factor of 1.25, *same order* with the same sign. Where
the paper claims only that there is some effect, without a number: *as the paper* if the whole interval is above 0.

A rule is only useful if it can fail. So the same verdicts are also given for a world without differences (`levelled`),
in which every strategy, or size, has the same figure.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from asa.core.intervals import Interval, mean_interval

Verdict = Literal["as the paper", "same order", "differs"]

VERDICTS: tuple[Verdict, ...] = ("as the paper", "same order", "differs")

FACTOR = 1.25
EQUAL = 0.05

RULE = (
    f"As the paper: (1) every strategy that differs by more than {100 * EQUAL:g} % in the paper differs here in the "
    f"same direction, significantly and by more than {100 * EQUAL:g} %; and (2) the ratio to the best of the row is "
    f"the paper's within a factor of {FACTOR}. Same order: only (1) holds. Differs: (1) does not hold. In Table 2 "
    "the sizes of a workflow are compared in place of strategies, and the figure itself in place of the ratio. A "
    f"percentage in the text is as the paper within a factor of {FACTOR}; where the paper gives no number, if its "
    "95 % interval is above 0; and in the same order if it has the same sign. If all were alike: the same counts "
    "for made-up results in which all strategies of a row, or all sizes of a column, have the same figure. "
    "Core-hours are counted apart, because the run times are fitted to them. Of hits and misses, which add up to "
    "100 %, only hits are counted."
)

_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of ours, compared with the paper's."""

    ours: Interval  # mean of the seeds and its 95 % interval
    published: float
    deviation: float  # ours / published - 1; nan if the published figure is 0
    verdict: Verdict
    alike: Verdict  # the verdict in a world without differences

    @classmethod
    def of(cls, ours: Interval, published: float, verdict: Verdict, alike: Verdict) -> ComparedFigure:
        """Return the two figures with their verdicts."""
        return cls(ours, published, ours.mean / published - 1 if published else math.nan, verdict, alike)


def verdict_on_row(ours: Mapping[_K, Sequence[float]], published: Mapping[_K, float], key: _K) -> Verdict:
    """Judge one figure of a row: which strategies are better, and by how much.

    `ours`: the row: each figure in several replications, the same for all; smaller is better.

    Examples
    --------
    >>> row = {"a": (10.0, 11.0, 12.0), "b": (20.0, 22.0, 24.0)}
    >>> verdict_on_row(row, {"a": 100.0, "b": 210.0}, "b")
    'as the paper'
    >>> verdict_on_row(row, {"a": 100.0, "b": 400.0}, "b")
    'same order'
    >>> verdict_on_row(row, {"a": 100.0, "b": 50.0}, "b")
    'differs'
    """
    if not _separates(ours, published, key):
        return "differs"
    means = {name: float(np.mean(values)) for name, values in ours.items()}
    return "as the paper" if _within(_ratio(means, key), _ratio(published, key)) else "same order"


def verdict_on_column(
    ours: Mapping[_K, Sequence[float]], published: Mapping[_K, float], key: _K, *, least: float
) -> Verdict:
    """Judge one figure of a column: its order among other sizes, and its value.

    Examples
    --------
    >>> column = {28: (0.4, 0.5, 0.6), 640: (8.0, 9.0, 10.0)}
    >>> [verdict_on_column(column, {28: 0.4, 640: 17.0}, size, least=0.05) for size in column]
    ['as the paper', 'same order']
    """
    if not _separates(ours, published, key):
        return "differs"
    mean = float(np.mean(ours[key]))
    near = _within(mean, published[key]) or abs(mean - published[key]) <= least
    return "as the paper" if near else "same order"


def levelled(ours: Mapping[_K, Sequence[float]]) -> dict[_K, tuple[float, ...]]:
    """Return a row or column without differences: each figure is the average, in every replication.

    Examples
    --------
    >>> levelled({"a": (1.0, 3.0), "b": (4.0, 4.0)})
    {'a': (3.0, 3.0), 'b': (3.0, 3.0)}
    """
    average = float(np.mean([np.mean(values) for values in ours.values()]))
    return {key: (average,) * len(values) for key, values in ours.items()}


def of_claim(ours: Interval, published: float) -> Verdict:
    """Judge a percentage. If the paper gives none (nan), it only claims that there is some effect.

    Examples
    --------
    >>> [of_claim(Interval(mean, mean - 1, mean + 1), 43.0) for mean in (40.0, 20.0, -20.0)]
    ['as the paper', 'same order', 'differs']
    >>> [of_claim(Interval(mean, mean - 2, mean + 2), math.nan) for mean in (3.0, 1.0, -1.0)]
    ['as the paper', 'same order', 'differs']
    """
    if math.isnan(published):
        if ours.low > 0:
            return "as the paper"
        return "same order" if ours.mean > 0 else "differs"
    if ours.mean * published <= 0:
        return "differs"
    return "as the paper" if _within(abs(ours.mean), abs(published)) else "same order"


def above_best(row: Mapping[_K, float]) -> dict[_K, float]:
    """Return by how many percent each figure of a row exceeds the smallest; nan if that is 0.

    Examples
    --------
    >>> above_best({"a": 10.0, "b": 15.0})
    {'a': 0.0, 'b': 50.0}
    """
    best = min(row.values())
    return {key: 100 * (value / best - 1) if best else math.nan for key, value in row.items()}


def average_above_best(rows: Iterable[Mapping[_K, float]]) -> dict[_K, float]:
    """Average the results of `above_best` over rows, without unknown values and rows whose smallest figure is 0.

    `rows`: figures of which smaller is better; nan if unknown.
    Returns: percent, for the keys of all rows; nan if no row has a value.

    Examples
    --------
    >>> average_above_best([{"a": 10.0, "b": 15.0}, {"a": 3.0, "b": 2.0}])
    {'a': 25.0, 'b': 25.0}
    """
    found: dict[_K, list[float]] = {}
    for row in rows:
        known = {key: value for key, value in row.items() if not math.isnan(value)}
        above = above_best(known) if known else {}
        for key in row:
            found.setdefault(key, []).append(above.get(key, math.nan))
    given = {key: [value for value in values if not math.isnan(value)] for key, values in found.items()}
    return {key: sum(values) / len(values) if values else math.nan for key, values in given.items()}


def count(verdicts: Iterable[Verdict]) -> dict[Verdict, int]:
    """Count how often each verdict was given."""
    given = list(verdicts)
    return {verdict: given.count(verdict) for verdict in VERDICTS}


def _ratio(row: Mapping[_K, float], key: _K) -> float:
    best = min(row.values())
    if row[key] == best:
        return 1.0
    return row[key] / best if best else math.inf


def _within(one: float, other: float) -> bool:
    if one == other:
        return True
    return min(one, other) > 0 and max(one, other) / min(one, other) <= FACTOR


def _separates(ours: Mapping[_K, Sequence[float]], published: Mapping[_K, float], key: _K) -> bool:
    """Whether all figures that are clearly above or below this figure in the paper are so here, too."""
    return all(
        _clearly(ours[key], ours[other]) == side
        for other in published
        if (side := _side(published[key], published[other]))
    )


def _clearly(one: Sequence[float], other: Sequence[float]) -> int:
    """Return which one is larger: by more than counts as equal, and significantly."""
    apart = mean_interval([a - b for a, b in zip(one, other, strict=True)])
    return _side(float(np.mean(one)), float(np.mean(other))) if apart.low > 0 or apart.high < 0 else 0


def _side(one: float, other: float) -> int:
    """Return which one is larger by more than counts as equal."""
    if abs(one - other) <= EQUAL * max(abs(one), abs(other)):
        return 0
    return 1 if one > other else -1
