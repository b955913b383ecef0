"""The advised shape, and the further width that is worth a trial, compared with plain arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.estimators.joint import JointForecast
from asa.runtimes.comparing import DEFAULT_TOLL, Offer, Toll, compare
from asa.runtimes.trials import MIN_GAIN, UntriedOffer, best_trial, untried
from asa.shapes import RunAt, Scaling, Shape
from asa.waits import QueuedJob


def joint(*waits_s):
    """Make forecasts of requests from their samples."""
    samples = np.atleast_2d(np.array(waits_s, dtype=float).T)
    return JointForecast(tuple(QueuedJob(0.0, place + 1, 60.0) for place in range(len(waits_s))), samples)


def offers(*points, spread=0.0):
    return [Offer(cores, Shape(cores, run_s, 2 * run_s, spread)) for cores, run_s in points]


def test_where_nobody_waits_the_widest_is_asked_for_and_behind_a_long_queue_a_narrow_one():
    shapes = offers((8, 8000.0), (32, 2500.0))
    assert compare(shapes, joint(1.0, 1.0), None).best == 1
    assert compare(shapes, joint(1.0, 20_000.0), None).best == 0


def test_core_hours_count_a_little():
    """As soon, for four times the core-hours, is not better; as they cost nothing, it is."""
    shapes = offers((8, 1000.0), (32, 990.0))
    assert compare(shapes, joint(0.0, 0.0), None).best == 0
    assert compare(shapes, joint(0.0, 0.0), None, Toll(power=0.0)).best == 1


def test_what_is_asked_for_now_stays_unless_another_is_probably_better():
    shapes = offers((8, 600.0), (32, 600.0))
    often, seldom = [9000.0] * 7 + [1.0] * 3, [9000.0] * 5 + [1.0] * 5
    for waits_s, best in ((often, 0), (seldom, 1)):
        compared = compare(shapes, joint([3000.0] * 10, waits_s), 1, Toll(power=0.0))
        assert compared.best == best
    assert compared.sooner(0, 1) == pytest.approx(0.5)
    assert compare(shapes, joint([3000.0] * 10, seldom), None, Toll(power=0.0)).best == compared.least


def test_how_far_run_times_stray_is_in_the_ends_and_in_the_probability():
    shapes = offers((8, 2000.0), (16, 1500.0))
    waits = joint(*[[0.0] * 200] * 2)
    assert compare(shapes, waits, None).sooner(1, 0) == 1.0
    strayed = compare(offers((8, 2000.0), (16, 1500.0), spread=0.3), waits, None)
    low_s, half_s, high_s = strayed.end_s(0)
    assert half_s == pytest.approx(2000.0, rel=0.01)
    assert (low_s, high_s) == pytest.approx((2000 / math.exp(1.28 * 0.3), 2000 * math.exp(1.28 * 0.3)), rel=0.03)
    # two logarithms that stray by 0.3 each, 0.288 apart: Phi(0.288 / 0.424) = 0.75
    assert strayed.sooner(1, 0) == pytest.approx(0.75, abs=0.05)


# ---------------------------------------------------------------------- trials


def widths(points, law=None, listed=(), unit=1):
    return {one.width: one for one in untried([RunAt(*one) for one in points], law or Scaling(), listed, unit)}


def test_neighbours_of_what_is_known_may_be_tried():
    assert set(widths([(28, 3600.0)])) == {14, 56}
    assert set(widths([(7, 6000.0), (56, 900.0)], listed=(7, 40))) == {14, 28, 40, 112}
    assert set(widths([(6, 3600.0)], unit=6)) == {12}


def test_what_a_width_may_take_is_all_between_no_scaling_and_perfect_unless_something_is_known():
    one = widths([(28, 3600.0)])
    assert (one[56].runs_s[0], one[56].runs_s[-1]) == pytest.approx((1800.0, 3600.0), rel=0.02)
    assert (one[14].runs_s[0], one[14].runs_s[-1]) == pytest.approx((3600.0, 7200.0), rel=0.02)
    # it ran 1.41 times as fast on twice as many: further up no better than that, further down no worse
    two = widths([(28, 3600.0), (56, 3600.0 / math.sqrt(2))])
    assert two[112].runs_s[0] == pytest.approx(1800.0, rel=0.02)
    assert two[14].runs_s[0] == pytest.approx(3600 * math.sqrt(2), rel=0.02)
    law = widths([(28, 3600.0), (56, 2000.0)], Scaling("amdahl"))
    assert 900 < law[112].run_s[0] < law[112].run_s[1] < law[112].run_s[2] < 2000


def trial(known, waits_s, toll=DEFAULT_TOLL, own=None):
    """Advise on a trial where a job of each width waits so long, which is the same in every future."""
    points = [RunAt(*one) for one in known]
    compared = compare(offers(*known), joint(*(waits_s(width) for width, _ in known)), own, toll)
    candidates = [UntriedOffer(one, one.width, "", joint(waits_s(one.width))) for one in untried(points, Scaling())]
    return compared, best_trial(compared, candidates, toll)


def test_one_width_known_and_nobody_waits_twice_as_wide_is_worth_a_trial():
    """By how much: the mean of what is gained over run times from none to perfect scaling, written out."""
    _, found = trial([(28, 3600.0)], lambda _: 0.0)
    powers = (np.arange(2000) + 0.5) / 2000
    runs_s = 3600.0 * 2.0**-powers
    cost_ratio = runs_s / 3600.0 * (2 * runs_s / 3600.0) ** 0.1
    gains = np.maximum(1 - cost_ratio, 0.0)
    assert found.untried.width == 56
    assert found.share == pytest.approx(gains.mean(), abs=0.01)
    assert found.gain_s == pytest.approx(3600 * gains.mean(), abs=36)
    assert found.likely == pytest.approx((gains > 0).mean(), abs=0.02)
    assert found.needed_s == pytest.approx(3600.0 * 2 ** (-0.1 / 1.1), rel=1e-3)
    assert found.untried.scales(found.needed_s) == pytest.approx(2 ** (0.1 / 1.1) / 2, rel=1e-3)


def test_a_wider_job_that_would_wait_for_a_day_is_worth_none():
    _, found = trial([(28, 3600.0)], lambda width: 86_400.0 if width > 28 else 0.0)
    assert not found.is_worth_it
    _, found = trial([(28, 3600.0)], lambda width: 86_400.0 if width >= 28 else 0.0)
    assert (found.untried.width, found.likely) == (14, 1.0)
    assert found.is_worth_it


def test_a_trial_gains_nothing_that_is_known_without():
    """What is asked for now is kept, though another is better by what is known: that is no gain of a trial."""
    known = [(28, 3600.0), (56, 3600.0)]
    _, free = trial(known, lambda _: 100.0, own=None)
    _, kept = trial(known, lambda _: 100.0, own=1)
    assert kept.share == free.share


@given(
    st.floats(60, 1e5),
    st.floats(1.0, 2.2),
    st.lists(st.floats(0, 1e5), min_size=4, max_size=4),
)
def test_a_gain_is_never_negative_and_needs_no_more_than_the_limit_that_is_told(run_s, faster, waits_s):
    known = [(16, run_s), (32, run_s / faster)]
    by_width = dict(zip((8, 16, 32, 64), waits_s, strict=True))
    compared, found = trial(known, lambda width: by_width[width])
    assert 0 <= found.share < 1
    assert 0 <= found.likely <= 1
    assert found.is_worth_it == (found.share >= MIN_GAIN)
    if found.likely in {0.0, 1.0}:
        return
    # at the run time that is told it is as good as the best of the others; a little slower it is not
    at = [
        compare([*offers(*known), *offers((found.untried.width, found.needed_s * factor))],
                joint(*(by_width[width] for width in (16, 32, found.untried.width))), None).least
        for factor in (0.98, 1.02)
    ]  # fmt: skip
    assert at == [2, compared.least]


def test_with_a_price_a_core_hour_lengthens_the_time_to_the_end_by_so_many_seconds():
    """28 cores for 1 h, or 56 for 40 min, and nobody waits: 20 min sooner costs 9.33 core-hours."""
    known = [(28, 3600.0), (56, 2400.0)]
    even_s = 1200.0 / (28 * 4 / 3 - 28)
    for price_s, width in ((0.0, 56), (even_s * 0.99, 56), (even_s * 1.01, 28), (3600.0, 28)):
        compared = compare(offers(*known), joint(0.0, 0.0), None, Toll(price_s=price_s))
        assert compared.offers[compared.best].shape.width == width


def test_what_a_trial_gains_counts_core_hours_at_the_price():
    toll = Toll(price_s=30.0)
    _, found = trial([(28, 3600.0)], lambda _: 0.0, toll)
    powers = (np.arange(2000) + 0.5) / 2000
    runs_s = 3600.0 * 2.0**-powers
    costs = (runs_s * (1 + 30.0 * 56 / 3600), 3600.0 * (1 + 30.0 * 28 / 3600))
    gains = np.maximum(1 - costs[0] / costs[1], 0.0)
    assert found.share == pytest.approx(gains.mean(), abs=0.01)
    assert found.needed_s == pytest.approx(costs[1] / (1 + 30.0 * 56 / 3600), rel=1e-3)
    assert trial([(28, 3600.0)], lambda _: 0.0, Toll(price_s=3600.0))[1].untried.width == 14
