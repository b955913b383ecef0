"""Queue waits as values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError
from asa.waits import LEVELS, QueuedJob, WaitForecast, WaitObservation

waits = st.lists(st.floats(0.0, 1e7), min_size=9, max_size=9).map(lambda told: tuple(sorted(told)))


@pytest.mark.parametrize(
    ("submit_s", "cores", "walltime_s"),
    [
        (math.nan, 1, 60.0),
        (math.inf, 1, 60.0),
        (0.0, 0, 60.0),
        (0.0, 10**30, 60.0),
        (0.0, 1, 0.0),
        (0.0, 1, math.inf),
        (0.0, 1, math.nan),
    ],
)
def test_a_job_that_cannot_be_is_refused(submit_s, cores, walltime_s):
    with pytest.raises(InputError, match="cannot be"):
        QueuedJob(submit_s, cores, walltime_s)


@pytest.mark.parametrize("wait_s", [-1.0, math.nan, math.inf])
def test_a_wait_that_cannot_be_is_refused(wait_s):
    with pytest.raises(InputError, match="cannot be"):
        WaitObservation(wait_s)


@given(waits, st.floats(0.0, 0.9999), st.floats(0.0, 0.9999))
def test_a_forecast_never_waits_less_for_more_certainty(quantiles, one, other):
    forecast = WaitForecast(quantiles, quantiles[4])
    low, high = sorted((one, other))
    assert 0 <= forecast.at(low) <= forecast.at(high) * (1 + 1e-12) < math.inf


@given(waits)
def test_a_forecast_states_its_quantiles(quantiles):
    forecast = WaitForecast(quantiles, quantiles[4])
    assert [forecast.at(level) for level in LEVELS] == pytest.approx(quantiles)


@given(waits, st.floats(0.0, 1e8), st.floats(0.0, 1e8))
def test_a_probability_to_start_grows_with_time_and_is_never_certain(quantiles, one, other):
    forecast = WaitForecast(quantiles, quantiles[4])
    low, high = sorted((one, other))
    assert 0 <= forecast.probability_within(low) <= forecast.probability_within(high) + 1e-12 < 1
    assert forecast.probability_within(-1.0) == 0


steep = st.lists(st.floats(1.5, 1e5), min_size=9, max_size=9).map(lambda steps: tuple(10.0 + np.cumsum(steps)))


@given(steep, st.floats(0.02, 0.989))
def test_probability_and_wait_are_each_others_inverse(quantiles, level):
    forecast = WaitForecast(quantiles, quantiles[4])
    assert forecast.probability_within(forecast.at(level)) == pytest.approx(level, abs=1e-6)


def test_the_tail_is_as_heavy_as_waits_are():
    """Exactly Pareto's for a Pareto forecast: the wait that 1 in 100 exceed is no extrapolation by a straight line."""
    shape = 1.0
    forecast = WaitForecast(tuple(100.0 * (1 - level) ** (-1 / shape) for level in LEVELS), 0.0)
    assert forecast.at(0.99) == pytest.approx(100.0 * 0.01 ** (-1 / shape))
    assert forecast.probability_within(1e9) == 0.99, "more cannot be known of nine quantiles"
    assert forecast.at(0.9999) == forecast.at(0.99)
