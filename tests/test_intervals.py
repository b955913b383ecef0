"""Intervals have their coverage, and significant differences are rarely chance."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.intervals import (
    Interval,
    as_ratio,
    beyond_chance,
    chance,
    mean_interval,
    pooled_interval,
    statistic_interval,
    student_quantile,
)


@pytest.mark.parametrize(
    ("level", "freedom", "expected"),
    [  # of printed tables
        (0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 5, 2.5706), (0.975, 30, 2.0423), (0.975, 1000, 1.9623),
        (0.9, 1, 3.0777), (0.99, 3, 4.5407), (0.9995, 4, 8.6103), (0.75, 10, 0.6998), (0.1, 7, -1.4149), (0.5, 3, 0.0),
    ],
)  # fmt: skip
def test_quantiles_are_those_of_tables(level, freedom, expected):
    assert student_quantile(level, freedom) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("freedom", [1.5, 2.5, 7.3])
def test_degrees_of_freedom_need_not_be_whole(freedom):
    """The density is added up up to the quantile."""
    t = np.linspace(0.0, student_quantile(0.975, freedom), 200_001)
    height = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(math.pi * freedom)
    density = height * (1 + t**2 / freedom) ** (-(freedom + 1) / 2)
    assert 0.5 + float(np.sum((density[1:] + density[:-1]) / 2) * t[1]) == pytest.approx(0.975, abs=1e-6)


@given(st.floats(0.001, 0.999), st.floats(1, 1e5))
def test_a_quantile_is_where_its_share_lies_below(level, freedom):
    """And a chance is the way back: what lies at the end of an interval of some width has what is beyond it."""
    quantile = student_quantile(level, freedom)
    half = student_quantile(0.975, freedom)
    beyond = chance(Interval(quantile, quantile - half, quantile + half, freedom))
    assert beyond == pytest.approx(2 * min(level, 1 - level), abs=1e-7)


@pytest.mark.parametrize("count", [2, 3, 5, 6, 20])
def test_intervals_of_normal_values_hold_as_often_as_they_say(count):
    rng = np.random.default_rng(count)
    found = [mean_interval(rng.normal(5.0, 2.0, count).tolist()) for _ in range(2000)]
    held = sum(one.low <= 5.0 <= one.high for one in found) / 2000
    assert 0.935 < held < 0.965


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12))
def test_of_a_plain_mean_the_jackknife_is_students(values):
    found, known = statistic_interval(float, np.array(values)), mean_interval(values)
    assert (found.mean, found.low, found.high) == pytest.approx((known.mean, known.low, known.high), abs=1e-6)
    assert found.freedom == pytest.approx(known.freedom)


@pytest.mark.parametrize("count", [5, 20])
def test_intervals_of_a_change_in_percent_hold_as_often_as_they_say(count):
    """Of means that go up and down together."""
    rng = np.random.default_rng(count)
    held = 0
    for _ in range(2000):
        luck = rng.normal(0.0, 30.0, count)
        rows = np.column_stack([100 + luck + rng.normal(0, 5, count), 50 + luck / 2 + rng.normal(0, 5, count)])
        found = statistic_interval(lambda mean: 100 * (mean[1] / mean[0] - 1), rows)
        held += found.low <= -50.0 <= found.high
    assert 0.93 < held / 2000 < 0.965


def test_a_statistic_leaves_out_what_is_not_known():
    rows = np.array([[1.0, 2.0], [math.nan, 7.0], [3.0, 4.0]])
    assert statistic_interval(lambda mean: mean[1] / mean[0], rows).mean == 1.5
    assert math.isnan(statistic_interval(float, np.array([5.0])).half)
    assert math.isnan(statistic_interval(float, np.array([math.nan])).mean)


def test_of_several_worlds_each_has_its_own_spread():
    """Which differ by a factor of ten, and how far apart the worlds are is no noise."""
    rng = np.random.default_rng(1)
    held = wide = 0
    for _ in range(1000):
        worlds = [rng.normal(0.0, 1.0, 4).tolist(), rng.normal(1000.0, 10.0, 8).tolist()]
        found = pooled_interval(worlds, [1.0, 3.0])
        held += found.low <= 750.0 <= found.high
        wide += found.high - found.low > 100
    assert 0.93 < held / 1000 < 0.98
    assert wide < 10


def test_what_is_not_known_is_left_out_and_one_value_tells_no_spread():
    assert mean_interval([1.0, math.nan, 3.0]) == mean_interval([1.0, 3.0])
    assert pooled_interval([[1.0, 3.0], [math.nan]]) == mean_interval([1.0, 3.0])
    assert pooled_interval([[1.0, 3.0], [9.0, 9.0]], [1.0, 0.0]) == mean_interval([1.0, 3.0])
    for found in (mean_interval([]), mean_interval([math.nan]), mean_interval([4.0]), pooled_interval([[1.0], [1, 2]])):
        assert math.isnan(found.low)
        assert math.isnan(found.high)
        assert beyond_chance([found]) == [False]
    assert mean_interval([4.0]).mean == 4.0


def test_equal_values_are_certain_and_rounding_is_no_difference():
    same = mean_interval([0.1 + 0.2 - 0.3] * 3)
    assert beyond_chance([same, mean_interval([2.0, 2.0])]) == [False, True]
    assert not as_ratio(mean_interval([math.log(2.45), math.log(2.45) + 1e-15])).is_spread
    assert mean_interval([1.0, 1.1]).is_spread
    assert beyond_chance([Interval(1.0 + 1e-15, 1.0, 1.0 + 2e-15, 4.0)], ratios=True) == [False]


def test_a_ratio_is_judged_by_its_logarithm():
    """Half is as far from 1 as twice."""
    logs = [math.log(2.0) + away for away in (-0.1, 0.0, 0.1)]
    twice, half = as_ratio(mean_interval(logs)), as_ratio(mean_interval([-log for log in logs]))
    assert (twice.mean, half.mean) == pytest.approx((2.0, 0.5))
    assert twice.low == pytest.approx(1 / half.high)
    assert beyond_chance([twice, half], ratios=True) == [True, True]
    assert beyond_chance([twice, half] + [as_ratio(mean_interval([-0.1, 0.1]))] * 8, ratios=True) == [False] * 10


def test_of_many_differences_that_are_none_hardly_ever_one_is_claimed():
    """Twenty at once: uncorrected, two times of three there is one; and one that is there is found among them."""
    rng = np.random.default_rng(3)
    wrong = uncorrected = found = 0
    for _ in range(400):
        none = [mean_interval(rng.normal(0, 1, 6).tolist()) for _ in range(20)]
        there = mean_interval(rng.normal(8, 1, 6).tolist())
        told = beyond_chance([*none, there])
        wrong += any(told[:-1])
        found += told[-1]
        uncorrected += any(one.low > 0 or one.high < 0 for one in none)
    assert wrong / 400 < 0.08
    assert uncorrected / 400 > 0.5
    assert found / 400 > 0.9
