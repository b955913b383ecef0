"""How a figure of ours is held against the paper's: by a rule that is stated, and the same for all.

A machine's load cannot be had again, so seconds are not expected to be equal. What a table says is who is better, and
by how much; that can be.

**Table 1 and its averages**: a figure is looked at beside those of the other strategies in the same row.

- *as the paper*: no strategy that the paper has above it is below it here, nor the reverse, and its ratio to the row's
  best is the paper's within a factor of 1.25;
- *same order*: only the first;
- *differs*: not even that.

Figures within 5 % of each other count as equal, which contradicts nothing.

**Table 2**: likewise, beside the other sizes of the same workflow; instead of the ratio, the figure itself is within a
factor of 1.25, within the paper's own deviation, or nearer than the last digit that it prints tells.

**Claims of the text** are percentages: *as the paper* within 5 points, *same order* with the same sign. Where the paper
claims no number but that there is more than nothing, *as the paper* if so does the whole interval.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from asa.experiment import Interval

__all__ = [
    "RULE",
    "VERDICTS",
    "Compared",
    "Verdict",
    "above_best",
    "beside_others",
    "beside_sizes",
    "count",
    "of_claim",
]

Verdict = Literal["as the paper", "same order", "differs"]

VERDICTS: tuple[Verdict, ...] = ("as the paper", "same order", "differs")

FACTOR = 1.25
EQUAL = 0.05
POINTS = 5.0

RULE = (
    f"As the paper: the order of the strategies is the paper's, and the ratio to the row's best is the paper's within "
    f"a factor of {FACTOR}. Same order: only the first. Differs: not even that. Within {EQUAL:.0%} counts as equal. In "
    "Table 2 sizes stand for strategies, and the figure itself, within that factor or the paper's deviation, for the "
    f"ratio. A percentage of the text is as the paper within {POINTS:.0f} points, or, where the paper gives no number, "
    "if the whole interval is above nothing; of the same order if it has the same sign."
)

_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of ours beside the paper's.

    Parameters
    ----------
    ours
        Mean of the seeds and its 95 % interval.
    published
        What the paper prints.
    deviation
        ours / published - 1; nan where that is 0.
    verdict
        See the module.
    """

    ours: Interval
    published: float
    deviation: float
    verdict: Verdict

    @classmethod
    def of(cls, ours: Interval, published: float, verdict: Verdict) -> Compared:
        """Put the two side by side."""
        return cls(ours, published, ours.mean / published - 1 if published else math.nan, verdict)


def beside_others(ours: Mapping[_K, float], published: Mapping[_K, float], key: _K) -> Verdict:
    """Judge one figure of a row, by who is better and by how much.

    Parameters
    ----------
    ours, published
        The row: figures that are better when smaller, of the same keys.
    key
        Which.

    Examples
    --------
    >>> beside_others({"a": 10.0, "b": 20.0}, {"a": 100.0, "b": 210.0}, "b")
    'as the paper'
    >>> beside_others({"a": 10.0, "b": 20.0}, {"a": 100.0, "b": 400.0}, "b")
    'same order'
    >>> beside_others({"a": 10.0, "b": 20.0}, {"a": 100.0, "b": 50.0}, "b")
    'differs'
    """
    if _contradicts(ours, published, key):
        return "differs"
    return "as the paper" if _within(_ratio(ours, key), _ratio(published, key)) else "same order"


def beside_sizes(
    ours: Mapping[_K, float], published: Mapping[_K, float], key: _K, *, deviation: float, least: float
) -> Verdict:
    """Judge one figure of a column, by how it stands to other sizes and by itself.

    Parameters
    ----------
    ours, published
        The column, of the same keys.
    key
        Which.
    deviation
        The paper's, of this figure.
    least
        A difference that its last digit does not tell.

    Examples
    --------
    >>> beside_sizes({28: 0.5, 640: 9.0}, {28: 0.4, 640: 17.0}, 28, deviation=0.3, least=0.1)
    'as the paper'
    >>> beside_sizes({28: 0.5, 640: 9.0}, {28: 0.4, 640: 17.0}, 640, deviation=0.6, least=0.5)
    'same order'
    """
    if _within(ours[key], published[key]) or abs(ours[key] - published[key]) <= max(deviation, least):
        return "as the paper"
    return "differs" if _contradicts(ours, published, key) else "same order"


def of_claim(ours: Interval, published: float) -> Verdict:
    """Judge a percentage; where the paper gives none (nan), it only says that there is more than nothing of it.

    Examples
    --------
    >>> [of_claim(Interval(mean, mean - 1, mean + 1), 43.0) for mean in (40.0, 20.0, -20.0)]
    ['as the paper', 'same order', 'differs']
    >>> [of_claim(Interval(mean, mean - 2, mean + 2), math.nan) for mean in (3.0, 1.0, -1.0)]
    ['as the paper', 'same order', 'differs']
    """
    if abs(ours.mean - published) <= POINTS or (math.isnan(published) and ours.low > 0):
        return "as the paper"
    return "same order" if ours.mean * (1.0 if math.isnan(published) else published) > 0 else "differs"


def above_best(row: Mapping[_K, float]) -> dict[_K, float]:
    """Say by how many percent each figure of a row is above the least; nan where that is 0.

    Examples
    --------
    >>> above_best({"a": 10.0, "b": 15.0})
    {'a': 0.0, 'b': 50.0}
    """
    best = min(row.values())
    return {key: 100 * (value / best - 1) if best else math.nan for key, value in row.items()}


def count(verdicts: Iterable[Verdict]) -> dict[Verdict, int]:
    """Count how often each was given."""
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


def _contradicts(ours: Mapping[_K, float], published: Mapping[_K, float], key: _K) -> bool:
    """Whether some other figure is on the other side of this one."""
    return any(_side(ours[key], ours[other]) * _side(published[key], published[other]) < 0 for other in published)


def _side(one: float, other: float) -> int:
    """Say which is the larger, beyond what counts as equal."""
    if abs(one - other) <= EQUAL * max(abs(one), abs(other)):
        return 0
    return 1 if one > other else -1
