"""The batch system's own estimate next to a forecast, weighed by its past errors."""

import math

import numpy as np
import pytest

from asa import QueuedJob
from asa.estimators.joint import JointForecast
from asa.estimators.site_estimate import Lived, assumed_error, blend, blended_together, off_lately
from asa.waits import WaitForecast

HOUR = 3600.0


def stated(wait_s):
    return WaitForecast(tuple(wait_s * (0.2 + 0.2 * place) for place in range(9)), wait_s)


def outcomes(word, forecast, count=60):
    """Draw waits of minutes to hours, and the factors by which estimates and forecasts of them were wrong."""
    waits = 10 ** np.random.default_rng(3).uniform(2.5, 4.5, count)
    return [Lived(wait * word, wait * forecast, wait) for wait in waits.tolist()]


def test_before_anything_is_known_both_count():
    told = blend(stated(HOUR), 10 * HOUR, [])
    assert 0.1 < told.share < 0.5
    assert HOUR < told.forecast.wait_s < 10 * HOUR
    assert off_lately([])[0] == 0
    new = blend(stated(HOUR), 10 * HOUR, [], assumed_error(0, []))
    assert new.share > told.share, "little was learned"


def test_a_word_that_was_right_is_believed():
    told = blend(stated(HOUR), 4 * HOUR, outcomes(word=1.0, forecast=20.0))
    assert told.share > 0.9
    assert told.forecast.wait_s == pytest.approx(4 * HOUR, rel=0.3)


@pytest.mark.parametrize("word", [0.05, 50.0])
def test_a_word_that_is_always_off_alike_is_set_right(word):
    """Slurm's estimate is always off: it assumes that jobs run for their whole walltimes."""
    told = blend(stated(HOUR), 4 * HOUR * word, outcomes(word, forecast=20.0))
    assert 2 * HOUR < told.forecast.wait_s < 8 * HOUR


def test_a_word_without_rhyme_does_not_count_beside_a_good_forecast():
    off = 10 ** np.random.default_rng(5).uniform(-3, 3, 60)
    lived = [one._replace(word_s=one.wait_s * times) for one, times in zip(outcomes(1.0, 1.1), off, strict=True)]
    told = blend(stated(HOUR), 1000 * HOUR, lived, assumed_error(1000, [(one.forecast_s, one.wait_s) for one in lived]))
    assert told.share < 0.05
    assert told.forecast.wait_s < 2 * HOUR
    count, of_word, of_forecast = off_lately(lived)
    assert (count, of_word > 1.0, of_forecast < 0.1) == (50, True, True)


@pytest.mark.parametrize("word_s", [0.0, 3.0, 1e9])
@pytest.mark.parametrize("lived", [[], outcomes(1.0, 9.0), outcomes(9.0, 1.0), [Lived(0.0, 0.0, 0.0)] * 300])
def test_quantiles_stay_in_order_and_are_waits(word_s, lived):
    forecast = WaitForecast((0.0, 0.0, 1.0, 5.0, 60.0, 61.0, 600.0, 1e4, 1e6), 60.0)
    for one in (forecast, WaitForecast((0.0,) * 9, 0.0)):
        told = blend(one, word_s, lived).forecast
        assert list(told.quantiles_s) == sorted(told.quantiles_s)
        assert all(0 <= wait_s < math.inf for wait_s in (*told.quantiles_s, told.wait_s))


def test_requests_that_are_judged_together_move_alone_and_stay_coherent():
    jobs = (QueuedJob(0.0, 4, HOUR), QueuedJob(0.0, 64, HOUR))
    joint = JointForecast(jobs, np.full((8, 2), 600.0))
    moved = blended_together(joint, [0.0, 1.0]).waits_s
    assert (moved[:, 0].round() == 600).all()
    assert (moved[:, 1] > 5000).all()
    assert (np.diff(blended_together(joint, [1.0, 0.0]).waits_s, axis=1) >= 0).all(), "who asks for more waits no less"
