"""Measures whether predicted quantiles have the coverage of their levels, and moves them until they do."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asa.errors import InputError, StateError
from asa.waits import LEVELS

FLOOR_S = 10.0
"""Waits up to this many seconds count as equal: the job started when the scheduler looked next."""

_N = len(LEVELS)
_SAME = 1e-9  # relative difference of two computations of the same wait
_ALMOST, _HARDLY = 1 - _SAME, 1 + _SAME
_BETWEEN = [(low + high) / 2 for low, high in zip((0.0, *LEVELS), (*LEVELS, 1.0), strict=True)]
"""Midpoints: between 0 and the first level, between successive levels, and between the last level and 1."""

Kind = Literal["exact", "at_most", "at_least"]


def coverage(quantiles_s: ArrayLike, waits_s: ArrayLike) -> NDArray[np.float64]:
    """Return for each predicted quantile the share of the observed wait that it covered.

    A quantile above the wait covers it (1), one below does not (0). Quantiles equal to the wait need a rule, since
    waits have atoms: many are exactly 0, many repeat. A forecast with 35 % of all waits below 60 s and 30 % at 60 s has
    60 s as p40, p50 and p60. If all three covered a wait of 60 s, each would cover 65 % of the waits; if none did, 35
    %. So the wait is spread evenly over the probabilities from ``lo = 0.35`` to ``hi = 0.65`` that the forecast gives
    it, and a level ``tau`` covers it with the share ``(tau - lo) / (hi - lo)``: p40 with a sixth, p60 with five sixths.

    Nine levels only show between which two of them an atom begins and ends. It is assumed to begin and end in the
    middle between these, as in the example. In two cases more is known: no wait is below the floor, so an atom there
    has ``lo = 0``; and a forecast with nine equal quantiles claims certainty, so ``lo = 0`` and ``hi = 1``.

    For a perfect forecast, the mean share at a level equals the level: exactly if there are no atoms, or if each begins
    and ends in the middle between two levels; else on average over the positions of atoms. A single atom shifts it by
    at most 0.05, or by 0.1 if all nine quantiles are on it but other waits occur too.

    `quantiles_s`: predicted quantiles in seconds at `LEVELS`, ascending in each row. They are floored at `FLOOR_S`, as
    the waits are: 0 s and 7 s are equal.
    Returns shares between 0 and 1, ascending in each row. The mean of a column is the coverage of its level.
    Raises `InputError`: the shapes do not fit, something is not a number, or a row does not ascend.

    Notes
    -----
    O(n), in a few arrays as large as the quantiles.

    Examples
    --------
    >>> stated = [0, 0, 0, 60, 60, 60, 300, 900, 3600]
    >>> shares = coverage([stated, stated, stated], [100, 60, 5])
    >>> shares[0].round(2).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    >>> shares[1].round(2).tolist()
    [0.0, 0.0, 0.0, 0.17, 0.5, 0.83, 1.0, 1.0, 1.0]
    >>> shares[2].round(2).tolist()
    [0.29, 0.57, 0.86, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    stated = np.asarray(quantiles_s, dtype=np.float64)
    waits = np.asarray(waits_s, dtype=np.float64)
    if waits.ndim != 1 or stated.shape != (len(waits), _N):
        raise InputError(
            f"quantiles of shape {stated.shape} do not fit waits of shape {waits.shape}",
            hint=f"Give {_N} quantiles for each wait.",
        )
    if np.isnan(stated).any() or np.isnan(waits).any():
        raise InputError("a quantile or a wait is not a number", hint="Leave out jobs whose wait is not known.")
    if (stated[:, 1:] < stated[:, :-1]).any():
        raise InputError("the quantiles of a forecast do not ascend", hint="Sort them.")
    waits = np.maximum(waits, FLOOR_S)
    stated = np.maximum(stated, FLOOR_S)
    first = np.count_nonzero(stated < (waits * _ALMOST)[:, None], axis=1)
    after = np.count_nonzero(stated <= (waits * _HARDLY)[:, None], axis=1)
    at_floor = (waits <= FLOOR_S).astype(np.intp)
    shares: NDArray[np.float64] = _SHARES[at_floor, first, after]
    return shares


def _shares(first: int, after: int, *, at_floor: bool) -> list[float]:
    """Return each level's share in covering a wait; the levels from `first` to before `after` are equal to the wait."""
    certain = after - first == _N
    low = 0.0 if certain or at_floor else _BETWEEN[first]
    high = 1.0 if certain else _BETWEEN[after]
    within = [(level - low) / (high - low) for level in LEVELS[first:after]]
    return [0.0] * first + within + [1.0] * (_N - after)


def _shares_of_at_most(first: int) -> list[float]:
    """Return the expected shares for an upper bound of a wait; `first` levels are below the bound.

    The forecast's probability above the bound is distributed over waits below it, in proportion.
    """
    below = 1.0 if first == _N else _BETWEEN[first]
    return [min(1.0, level / below) for level in LEVELS]


def _shares_of_at_least(first: int) -> list[float]:
    """Return the expected shares for a lower bound of a wait; `first` levels are below the bound."""
    below = 0.0 if first == 0 else _BETWEEN[first]
    return [max(0.0, (level - below) / (1.0 - below)) for level in LEVELS]


_PLACES = range(_N + 1)
_SHARES = np.array(
    [
        [[_shares(first, max(first, after), at_floor=floor) for after in _PLACES] for first in _PLACES]
        for floor in (False, True)
    ]
)
"""Shares, by whether the wait is at the floor, the first level that equals it, and the first that is above it."""


def _errors(shares: Sequence[float]) -> tuple[float, ...]:
    """Return each level less its coverage: positive if the quantile has to rise."""
    return tuple(level - share for level, share in zip(LEVELS, shares, strict=True))


_ERRORS: dict[tuple[str, int, int], tuple[float, ...]] = {
    **{("exact", i, j): _errors(_shares(i, j, at_floor=False)) for i in _PLACES for j in range(i, _N + 1)},
    **{("at_most", i, j): _errors(_shares_of_at_most(i)) for i in _PLACES for j in range(i, _N + 1)},
    **{("at_least", i, j): _errors(_shares_of_at_least(i)) for i in _PLACES for j in range(i, _N + 1)},
    **{("floor", 0, j): _errors(_shares(0, j, at_floor=True)) for j in _PLACES},
}


def shortfalls(stated_s: Sequence[float], wait_s: float, kind: Kind = "exact") -> tuple[float, ...]:
    """Return each level less the coverage of a wait by its quantile; the mean is 0 for calibrated quantiles.

    `coverage` has the rule for quantiles equal to the wait.
    """
    return _ERRORS[_position(stated_s, wait_s, FLOOR_S, kind)]


_EDGES_S = (10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
_STEP = 0.03  # in decades, for an error of 1
_FIRST_STEP = 1.0  # divided by the root of the number of learned waits, down to _STEP
_SETTLED = round((_FIRST_STEP / _STEP) ** 2)
_STATED = 0.8  # share of a step that follows the coverage by the quantiles at submission
_CURRENT = 1 - _STATED  # share that follows the coverage by the present quantiles
_FAR = 100.0  # ratio to the wait: quantiles beyond it do not move further for the former share
_STEPS_OF_STATED = {key: tuple(10 ** (_STEP * _STATED * error) for error in each) for key, each in _ERRORS.items()}
_STEPS_OF_CURRENT = {key: tuple(10 ** (_STEP * _CURRENT * error) for error in each) for key, each in _ERRORS.items()}
_WIDEST = 1e5  # upper bound of a factor; the lower bound is one over it
_BELOW_FLOOR = 0.01  # ratio to the floor: a factor moves no quantile below this


class Calibrator:
    """Makes quantiles around point predictions, and adapts them online until each has the coverage of its level.

    Each level has a factor on the point predictions, and another one for each decade of these, because predictions of 0
    s have other errors than those of a day. When a wait becomes known, each factor moves along the subgradient of the
    pinball loss of log seconds: up by a step times the level if the wait was not covered, down by a step times 1 minus
    the level if it was. So no distribution is assumed, and the factors follow a change of regime. As each step is an
    error of coverage, the errors' sum is bounded by the factors' total change (as in Gibbs and Candès, "Adaptive
    conformal inference under distribution shift", 2021, and in the quantile tracking of Angelopoulos, Candès and
    Tibshirani, "Conformal PID control for time series prediction", 2023). Steps shrink with the root of the number of
    waits, down to a constant. The following rules depart from that, so the guarantee holds only approximately; on real
    logs the coverage of p50 and p90 is within 0.03 of their levels.

    Waits become known late and in bursts. If only the coverage by the present factors counted, errors made in the
    meantime would never be corrected: while a queue grows, too few waits would be covered. If only the coverage by the
    quantiles predicted at submission counted, as in these papers, a burst of a hundred waits with equal predictions
    would move the factors by a hundred steps. So four fifths of each step follow the quantiles predicted at submission,
    and one fifth follows the present ones. The former part does not move a quantile further that is already a hundred
    times the wait, or a hundredth of it.

    Coverage is computed by `coverage`, so many waits at the floor do not keep quantiles up. Near any other atom the
    quantiles alternate by a step, and those of several levels may be wrong by some hundredths. For a censored wait the
    forecast's own distribution is used: with a lower bound, the probability below it is distributed over waits above
    it, in proportion; with an upper bound, that above it over waits below it.

    `spread`: decades from p10 to p90 around a point prediction before anything is learned, such as 1.6.

    Examples
    --------
    A predictor that always says a minute, in a queue that takes two hours or a second, three to one:

    >>> calibrator = Calibrator(spread=1.6)
    >>> for wait_s in (7200.0, 7200.0, 1.0, 7200.0) * 500:
    ...     stated = calibrator.around(60.0)
    ...     calibrator.observe(60.0, stated, wait_s)
    >>> p10, *_, p40, p50, p60, p70, p80, p90 = calibrator.around(60.0)
    >>> p10 < 60.0, 3600.0 < p50 < 14_400.0
    (True, True)
    """

    def __init__(self, *, spread: float = 0.0) -> None:
        if not 0 <= spread <= 8:
            raise InputError(f"a spread of {spread} decades cannot be", hint="Give 0 to 8.")
        self._factors = [_spread_out(spread) for _ in range(len(_EDGES_S) + 1)]
        self._learned = [0] * len(self._factors)

    def around(self, point_s: float) -> tuple[float, ...]:
        """Return quantiles around a point prediction."""
        base = max(point_s, FLOOR_S)
        return tuple(sorted([base * factor for factor in self._factors[bisect_left(_EDGES_S, point_s)]]))

    def observe(self, point_s: float, stated_s: Sequence[float], wait_s: float, kind: Kind = "exact") -> None:
        """Learn a wait, given the quantiles that were predicted for it."""
        place = bisect_left(_EDGES_S, point_s)
        factors = self._factors[place]  # sorted like the quantiles, so nine products are saved
        base = max(float(point_s), FLOOR_S)
        now = _position(factors, wait_s / base, FLOOR_S / base, kind)
        then = _position(stated_s, wait_s, FLOOR_S, kind)
        learned = self._learned[place] = self._learned[place] + 1
        # whether some levels missed on one side as they were at submission, and would miss on the other side now
        apart = then[1] > now[2] or then[2] < now[1]
        if learned > _SETTLED and not apart:
            pairs = zip(factors, _STEPS_OF_STATED[then], _STEPS_OF_CURRENT[now], strict=True)
            moved = [factor * one * other for factor, one, other in pairs]
        else:
            step: float = max(_FIRST_STEP / learned**0.5, _STEP)
            errors = _paid(then, factors, max(wait_s, FLOOR_S) / base) if apart else _ERRORS[then]
            pairs = zip(factors, errors, _ERRORS[now], strict=True)
            moved = [factor * 10.0 ** (step * (_STATED * one + _CURRENT * other)) for factor, one, other in pairs]
        moved.sort()
        least = max(_BELOW_FLOOR * FLOOR_S / base, 1 / _WIDEST)
        if moved[0] < least or moved[-1] > _WIDEST:
            moved = [min(max(factor, least), _WIDEST) for factor in moved]
        self._factors[place] = moved

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue, as JSON-ready data."""
        return {"factors": [list(factors) for factors in self._factors], "learned": list(self._learned)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Calibrator:
        """Return a calibrator that continues bit for bit from the `state` of another."""
        made = cls()
        try:
            factors = [[float(factor) for factor in each] for each in state["factors"]]
            learned = [int(count) for count in state["learned"]]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"no state of a calibrator: {error!r}", hint="Forget it and learn anew.") from error
        fits = len(factors) == len(learned) == len(made._factors)
        if not fits or any(len(each) != _N or not _sound(each) for each in factors) or min(learned) < 0:
            raise StateError("the factors of a calibrator do not fit", hint="The file was changed or cut off.")
        made._factors, made._learned = factors, learned
        return made


def _paid(then: tuple[str, int, int], current: Sequence[float], wait: float) -> Sequence[float]:
    """Return the errors at submission, less those of levels whose present quantiles are far beyond the wait."""
    errors = list(_ERRORS[then])
    for level in range(bisect_right(current, wait * _FAR), then[1]):
        errors[level] = min(errors[level], 0.0)
    for level in range(then[2], bisect_left(current, wait / _FAR)):
        errors[level] = max(errors[level], 0.0)
    return errors


def _spread_out(spread: float) -> list[float]:
    return [10.0 ** ((level - 0.5) / (LEVELS[-1] - LEVELS[0]) * spread) for level in LEVELS]


def _sound(factors: Sequence[float]) -> bool:
    return all(1 / _WIDEST <= factor <= _WIDEST for factor in factors)


def _position(quantiles: Sequence[float], wait: float, floor: float, kind: Kind) -> tuple[str, int, int]:
    """Return the position of a wait among ascending quantiles, and which of them equal it: the key of its errors."""
    if wait <= floor:
        if kind == "at_least":
            return "at_least", 0, 0  # such a bound gives no information
        # no wait is below the floor, so an upper bound at the floor is an exact wait
        return "floor", 0, bisect_right(quantiles, floor)
    return kind, bisect_left(quantiles, wait * _ALMOST), bisect_right(quantiles, wait * _HARDLY)
