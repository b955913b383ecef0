"""Bounds from order statistics, and when earlier waits are forgotten."""

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.estimators.qbets import CONFIDENCE, MIN_HISTORY, Qbets, bound_places, rare_run
from asa.waits import LEVELS, QueuedJob, at_least, at_most, exactly

JOB = QueuedJob(0.0, cores=28, walltime_s=3600.0)
OTHER = QueuedJob(0.0, cores=1, walltime_s=60.0)


def feed(estimator, waits, job=JOB):
    for wait in waits:
        estimator.observe(estimator.submitted(job, estimator.predict(job)), exactly(float(wait)))
    return estimator


def at_most_so_many(n, level):
    """Return the probabilities that a binomial number is at most 0, 1, ..., n, summed from the definition."""
    return list(accumulate(math.comb(n, k) * level**k * (1 - level) ** (n - k) for k in range(n + 1)))


@pytest.mark.parametrize("n", [1, 2, 4, 5, 13, 28, 29, 30, 59, 100, 333, 1000])
def test_the_bound_is_the_first_order_statistic_with_enough_confidence(n):
    """Compared with the binomial distribution; it is the longest wait if no statistic has enough confidence."""
    for level, place in zip(LEVELS, bound_places(n), strict=True):
        enough = [k for k, probability in enumerate(at_most_so_many(n, level)[:n]) if probability >= CONFIDENCE]
        assert place == (enough[0] if enough else n - 1)


def test_the_fewest_waits_that_bound_the_highest_level():
    """29 waits for p90: the first number n for which 0.9 ** n is at most 0.05."""
    assert MIN_HISTORY == 29
    assert 1 - 0.9**29 >= CONFIDENCE > 1 - 0.9**28


def test_bounds_are_below_the_quantile_as_seldom_as_they_say():
    """At most once in twenty, whatever the distribution; here an exponential one."""
    rng = np.random.default_rng(1)
    true = -np.log(1 - np.array(LEVELS))
    for n in (40, 150):
        bounds = np.sort(rng.exponential(size=(4000, n)), axis=1)[:, bound_places(n)]
        below = (bounds < true).mean(axis=0)
        assert np.all(below < 0.06)
        assert np.all(below > 0.005), "nor are they much too high"


def test_rare_is_what_fewer_than_one_wait_in_a_thousand_completes():
    """Compared with a simulated Gaussian series of first order; a run that is one wait shorter is not rare."""
    rng = np.random.default_rng(2)
    above = 1.2816
    for tenth in range(10):
        rho = tenth / 10
        wait, run, often = rng.standard_normal(20_000), np.zeros(20_000, dtype=int), np.zeros(1000)
        for _ in range(60):
            wait = rho * wait + math.sqrt(1 - rho * rho) * rng.standard_normal(20_000)
            run = np.where(wait > above, run + 1, 0)
            often += np.bincount(run, minlength=1000)
        often /= 20_000 * 60
        rare = rare_run(rho)
        if rho < 0.9:  # in so few steps the longest runs are not yet as frequent as they get
            assert often[rare - 1] > 0.001
        assert often[rare] < 0.0011


def test_rare_runs_never_shorten_with_autocorrelation():
    """Also for values beyond the table."""
    runs = [rare_run(rho) for rho in np.linspace(-1, 1, 41)]
    assert runs == sorted(runs)
    assert runs[0] == 3


@given(st.lists(st.floats(0, 1e6), min_size=29, max_size=80), st.randoms(use_true_random=False))
def test_bounds_are_among_the_waits_and_ascend(waits, random):
    """Each is a wait that was seen."""
    forecast = feed(Qbets(), waits).predict(JOB)
    assert set(forecast.quantiles_s) <= set(waits)
    assert list(forecast.quantiles_s) == sorted(forecast.quantiles_s)
    assert forecast.wait_s == forecast.quantiles_s[4]


def test_when_the_queue_grows_all_but_the_latest_waits_are_forgotten():
    """Within some dozens of waits the median is bounded by the new ones."""
    rng = np.random.default_rng(3)
    estimator = feed(Qbets(), rng.uniform(50, 150, 800))
    assert estimator.predict(JOB).wait_s < 150
    feed(estimator, rng.uniform(5000, 15_000, 20))
    assert estimator.predict(JOB).wait_s > 5000
    kept = estimator.state()["geometries"][0][-1][-1]
    assert len(kept) <= MIN_HISTORY + 20


def test_when_the_queue_shrinks_nothing_is_forgotten_at_once():
    """Only exceeded bounds are errors; short waits come to outnumber the long ones."""
    rng = np.random.default_rng(4)
    estimator = feed(Qbets(), rng.uniform(5000, 15_000, 200))
    feed(estimator, rng.uniform(50, 150, 20))
    assert estimator.predict(JOB).wait_s > 5000
    feed(estimator, rng.uniform(50, 150, 300))
    assert estimator.predict(JOB).wait_s < 150


def test_a_steady_queue_is_seldom_taken_for_a_changed_one():
    """With independent waits the history grows up to its limit, and not beyond."""
    estimator = feed(Qbets(), np.random.default_rng(5).exponential(1000.0, 5000))
    lengths = []
    for wait in np.random.default_rng(6).exponential(1000.0, 400):
        feed(estimator, [wait])
        lengths.append(len(estimator.state()["site"][-1]))
    assert max(lengths) == 1000
    assert sorted(lengths)[len(lengths) // 2] > 300


def test_a_run_must_be_longer_where_long_waits_follow_upon_long_ones():
    """Five waits in a row above p90 are a change if waits are independent, and none if waits change slowly."""
    rng = np.random.default_rng(8)
    level, creeping = 0.0, []
    for _ in range(600):
        level = 0.95 * level + rng.normal(0, 0.3)
        creeping.append(10 ** (3 + level))
    shuffled = rng.permutation(creeping).tolist()
    kept = []
    for waits in (creeping, shuffled):
        estimator = Qbets()
        estimator._site.recent.extend(waits)
        estimator._site.ascending = sorted(waits)
        for number in range(5):
            estimator._site.learn(1e7 + number)
        kept.append(len(estimator._site.recent))
    assert kept[0] == 605
    assert kept[1] < 40


def test_a_burst_of_late_answers_is_one_change():
    """The waits of a hundred jobs, during which the queue grew, become known at once; the latest are kept."""
    estimator = feed(Qbets(), np.random.default_rng(7).uniform(50, 150, 800))
    tickets = [estimator.submitted(JOB, estimator.predict(JOB)) for _ in range(100)]
    for number, ticket in enumerate(tickets):
        estimator.observe(ticket, exactly(20_000.0 + 37 * number % 100))
    kept = estimator.state()["geometries"][0][-1][-1]
    assert len(kept) > 100, "the bounds of now are kept by the later answers, and nothing more is forgotten"


def test_a_geometry_with_few_waits_gets_the_bounds_of_the_site():
    """Until it has enough of its own; before any wait is known, the bounds are a guess."""
    estimator = Qbets()
    assert estimator.predict(JOB).quantiles_s == (600.0,) * 9
    feed(estimator, range(1000, 1100), OTHER)
    assert estimator.predict(JOB) == estimator.predict(OTHER)
    feed(estimator, [5.0] * (MIN_HISTORY - 1))
    assert estimator.predict(JOB).at(0.9) > 1000
    feed(estimator, [5.0])
    assert estimator.predict(JOB).quantiles_s == (5.0,) * 9


def test_bounds_on_waits_count_where_they_break_the_prediction():
    """Where a minute was predicted, 'at least a day' counts as a wait of a day; 'at most a day' is not counted."""
    estimator = feed(Qbets(), [60.0] * 100)
    before = estimator.state()["site"]
    for observation in (at_most(86_400.0), at_least(5.0)):
        estimator.observe(estimator.submitted(JOB), observation)
    assert estimator.state()["site"] == before
    estimator.observe(estimator.submitted(JOB), at_least(86_400.0))
    assert max(estimator.state()["site"][-1]) == 86_400.0
