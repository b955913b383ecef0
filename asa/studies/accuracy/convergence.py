"""Fig. 5: how each sampling policy of Algorithm 1 follows a changing wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asa.estimators.algorithm1 import Asa, Policy
from asa.estimators.alternatives import PAPER_ALTERNATIVES_S

POLICIES: tuple[Policy, ...] = ("default", "greedy", "tuned")
_ITERATIONS, _PERIOD = 1000, 200
_IN_A_ROW = 5


@dataclass(frozen=True, slots=True)
class Convergence:
    """The results of a policy."""

    policy: str
    predicted_s: tuple[float, ...]  # predictions at each iteration of the first seed: a line of Fig. 5
    true_s: tuple[float, ...]  # the true waits: its stepped line
    hits_percent: tuple[float, ...]  # by seed: share of predictions that were the alternative closest to the truth
    # iterations from a change to the first of five such predictions in a row; median over the changes that had these
    found_after: float
    # by seed: share of the changes, down and up, without such predictions until the next change
    lost_after_drops_percent: tuple[float, ...]
    lost_after_rises_percent: tuple[float, ...]


def converge(seeds: Sequence[int]) -> list[Convergence]:
    """Let each policy predict 1000 waits that are drawn anew at 0, 200, 400, 600 and 800 (Section 4.4).

    `seeds`: for each, one sequence of waits, the same for all policies; the first is shown.
    """
    courses = [_true_waits(seed) for seed in seeds]
    return [_of_policy(policy, seeds, courses) for policy in POLICIES]


def _of_policy(policy: Policy, seeds: Sequence[int], courses: Sequence[NDArray[np.float64]]) -> Convergence:
    lines = [_follow(policy, course.tolist(), seed) for seed, course in zip(seeds, courses, strict=True)]
    hits: list[float] = []
    found: list[float] = []
    lost: dict[bool, list[float]] = {True: [], False: []}  # after drops, after rises
    for line, course in zip(lines, courses, strict=True):
        hit = np.equal(line, course)
        hits.append(100 * float(hit.mean()))
        delays = [_first_of_five(hit[begin : begin + _PERIOD]) for begin in range(0, _ITERATIONS, _PERIOD)]
        found += [delay for delay in delays if not math.isnan(delay)]
        drops = np.diff(course[::_PERIOD]) < 0
        for is_drop, shares in lost.items():
            if (drops == is_drop).any():
                shares.append(100 * float(np.isnan(delays[1:])[drops == is_drop].mean()))
    after_found = float(np.median(found)) if found else math.nan
    return Convergence(
        policy,
        tuple(lines[0]),
        tuple(courses[0].tolist()),
        tuple(hits),
        after_found,
        tuple(lost[True]),
        tuple(lost[False]),
    )


def _true_waits(seed: int) -> NDArray[np.float64]:
    rng = np.random.Generator(np.random.PCG64(seed))
    levels = rng.choice(PAPER_ALTERNATIVES_S, size=_ITERATIONS // _PERIOD, replace=False)
    return np.repeat(levels, _PERIOD)


def _follow(policy: Policy, waits: Sequence[float], seed: int) -> list[float]:
    learner = Asa(policy, seed=seed)
    predicted = []
    for wait in waits:
        prediction = learner.predict()
        predicted.append(prediction.wait_s)
        learner.observe(wait, prediction)
    return predicted


def _first_of_five(hits: NDArray[np.bool_]) -> float:
    streak = np.convolve(hits, np.ones(_IN_A_ROW, dtype=int), mode="valid") == _IN_A_ROW
    return float(np.argmax(streak)) if streak.any() else math.nan
