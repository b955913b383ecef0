"""Several requests predicted together: results of samples, and coherence of the forecasts."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa import WaitBank
from asa.errors import InputError
from asa.estimators.contextual import ContextualAsa
from asa.estimators.differences import KEPT, Differences
from asa.estimators.joint import JointForecast, aged_shares, monotone, together
from asa.estimators.peers import LastWait
from asa.waits import JobAhead, QueuedJob, WaitForecast, at_least, exactly

ASKED = [
    QueuedJob(0.0, cores, walltime_s, "me", "x", partition)
    for partition in ("a", "b")
    for cores in (1, 8, 64)
    for walltime_s in (600.0, 7200.0)
]


def of(waits, submit_s=(0.0, 0.0)):
    return JointForecast(tuple(QueuedJob(at, 4, 60.0) for at in submit_s), np.array(waits, dtype=float))


def test_which_ends_first_is_counted_future_by_future():
    joint = of([[0, 100], [50, 100], [500, 100], [100, 100]])
    assert joint.probability_before(0, 1) == 2.5 / 4  # what is the same is half of each
    assert joint.probability_before(0, 1, [200, 10]) == 0.0 + 0.0 / 4
    assert joint.probability_before(1, 0, [200, 10]) == 1.0


def test_to_ask_later_counts_from_the_first_submission():
    joint = of([[100, 0], [100, 0]], submit_s=(1000.0, 1060.0))
    assert joint.ends_s().tolist() == [[100, 60], [100, 60]]
    assert joint.best() == 1
    assert joint.best([0, 50]) == 0


def test_the_best_is_by_ratios():
    # on average 550 s against 500 s, but ten times sooner in half of the cases
    assert of([[100, 500], [1000, 500]]).best([0, 0]) == 0


def test_ones_own_request_is_left_only_where_that_is_probably_sooner():
    joint = of([[10, 500], [10, 500], [900, 500], [900, 500]])
    assert joint.best() == 0
    assert joint.best(own=1) == 1
    assert joint.best(own=1, sure=0.5) == 0
    assert joint.best(own=0) == 0


def test_long_experience_is_weighed_in():
    narrow, wide = np.full((3, 1), 100.0), np.full((3, 1), 90.0)
    joint = JointForecast(of([[0, 0]]).jobs, np.hstack([narrow, wide]), np.array([[100.0, 10_000.0]]))
    assert joint.best() == 0


def test_until_they_end_doubt_and_straying_run_times_are_in_the_samples():
    joint = JointForecast(of([[0, 0]]).jobs, np.full((200, 2), 100.0), np.full((50, 2), 300.0), np.array([1.0, 2.0]))
    sure = joint.until_ends([50.0, 50.0], [0.0, 0.0])
    assert sure.waits_s[0].tolist() == [150.0, 250.0]
    assert sure.usual_s[0].tolist() == [350.0, 650.0]
    assert sure.doubt is None
    strayed = joint.until_ends([50.0, 50.0], [0.5, 0.5]).waits_s - [100.0, 200.0]
    assert np.log(strayed).mean(axis=0) == pytest.approx([math.log(50.0)] * 2)
    assert np.log(strayed).std(axis=0) == pytest.approx([0.5] * 2, rel=0.02)
    assert abs(np.corrcoef(strayed.T)[0, 1]) < 0.2  # each strays by itself


def test_some_requests_are_judged_in_the_futures_of_all():
    joint = of([[0, 100], [50, 200]])
    some = joint.only([1, 1])
    assert some.waits_s.tolist() == [[100, 100], [200, 200]]
    assert some.jobs == (joint.jobs[1],) * 2
    assert joint.only([1, 0]).costs([5.0, 9.0]).tolist() == joint.costs([9.0, 5.0])[::-1].tolist()


def test_run_times_are_one_for_each():
    with pytest.raises(InputError, match="1 run times for 2 requests"):
        of([[1, 2]]).best([3.0])


def test_what_cannot_be_chosen_from_is_refused():
    for wrong in ({"own": 7}, {"run_s": [-1.0, 1.0]}, {"run_s": [float("nan"), 1.0]}):
        with pytest.raises(InputError):
            of([[1, 2]]).best(**wrong)
    with pytest.raises(InputError, match="0 futures"):
        WaitBank().predict_together([QueuedJob(0.0, 1, 60.0)], 0)


def test_a_forecast_of_one_is_its_samples():
    forecast = of([[float(i), 0] for i in range(101)]).forecast(0)
    assert forecast.quantiles_s == pytest.approx(tuple(range(10, 100, 10)))
    assert forecast.wait_s == 50


@given(st.lists(st.lists(st.floats(0, 7), min_size=12, max_size=12), min_size=1, max_size=3))
def test_waits_are_made_to_rise_with_what_is_asked_for(decades):
    made = monotone(ASKED, np.array(decades))
    for i, one in enumerate(ASKED):
        for j, other in enumerate(ASKED):
            if one.partition == other.partition and one.cores <= other.cores and one.walltime_s <= other.walltime_s:
                assert (made[:, i] <= made[:, j]).all()
    assert np.array_equal(monotone(ASKED, made), made)  # what rises stays
    assert made.min() >= np.min(decades)
    assert made.max() <= np.max(decades)


def lived(estimator, jobs=600, seed=0):
    """Make a site where wide jobs wait ten times as long, and in half of the day all jobs wait five times as long."""
    rng = np.random.default_rng(seed)
    for place in range(jobs):
        at = 900.0 * place
        wide = bool(rng.random() < 0.4)
        job = QueuedJob(at, 64 if wide else 4, 3600.0, f"u{rng.integers(9)}", "x", "a")
        wait = (3000.0 if wide else 300.0) * (5.0 if at % 86_400 < 43_200 else 1.0) * np.exp(0.3 * rng.normal())
        estimator.observe(estimator.submitted(job, estimator.predict(job)), exactly(wait))
    return estimator, at + 900.0


def test_a_wider_job_is_predicted_to_wait_longer_in_the_same_futures():
    estimator, now = lived(ContextualAsa(seed=1))
    jobs = [QueuedJob(now, cores, 3600.0, "me", "x", "a") for cores in (4, 64)]
    joint = estimator.predict_together(jobs)
    assert joint.waits_s.shape == (64, 2)
    narrow, wide = np.sort(joint.waits_s, axis=0).T
    assert (narrow <= wide).all()
    assert joint.probability_before(0, 1) > 0.95
    ratio = np.log10(joint.waits_s[:, 1] / np.maximum(joint.waits_s[:, 0], 10.0))
    assert 0.6 < np.median(ratio) < 1.4
    assert joint.best([5400.0, 600.0]) == 0  # 300 to 1500 s and 5400 s, against 3000 to 15,000 s
    assert joint.best([54_000.0, 600.0]) == 1


def test_a_request_is_judged_alike_in_any_company_and_place():
    estimator, now = lived(ContextualAsa(seed=1))
    few, many = (
        [QueuedJob(now, cores, walltime_s, "me", "x", "a") for cores in widths for walltime_s in (600.0, 3600.0)]
        for widths in ((4, 64), (64, 4, 5, 8, 16, 32))
    )
    one, other = estimator.predict_together(few), estimator.predict_together(many)
    for place, job in enumerate(few):
        mine, theirs = one.waits_s[:, place], other.waits_s[:, many.index(job)]
        # but for what makes them rise with what is asked for
        ratio = np.quantile(mine, [0.1, 0.5, 0.9]) / np.quantile(theirs, [0.1, 0.5, 0.9])
        assert (np.abs(np.log(ratio)) < np.log(3)).all()
        assert 0.5 < np.median(mine) / estimator.predict(job).quantiles_s[4] < 2
    twice = estimator.predict_together([few[0], few[0]])
    assert np.array_equal(twice.waits_s[:, 0], twice.waits_s[:, 1])


def test_being_asked_changes_nothing():
    estimator, now = lived(ContextualAsa(seed=1), 300)
    jobs = [QueuedJob(now, cores, 3600.0, "me", "x", "a") for cores in (4, 8, 64)]
    before = estimator.predict(jobs[0])
    first = estimator.predict_together(jobs)
    again = estimator.predict_together(jobs)
    assert np.array_equal(first.waits_s, again.waits_s)
    assert estimator.predict(jobs[0]) == before


def test_what_was_compared_is_part_of_the_state():
    estimator, now = lived(ContextualAsa(seed=1), 300)
    other = ContextualAsa.from_state(json.loads(json.dumps(estimator.state())))
    jobs = [QueuedJob(now, cores, 3600.0, "me", "x", "a") for cores in (4, 64)]
    mine, theirs = estimator.predict_together(jobs), other.predict_together(jobs)
    assert np.array_equal(mine.waits_s, theirs.waits_s)
    assert mine.usual_s is not None
    assert np.array_equal(mine.usual_s, theirs.usual_s)


@pytest.mark.parametrize("estimator", ["asa", "asa-queue", "asa-blind", "queue", "last", "qbets"])
def test_every_estimator_can_be_asked(estimator):
    bank = WaitBank(estimator, machine_cores=100)
    _, now = lived(bank["x"], 60)
    joint = bank.predict_together([QueuedJob(now, c, w, "me", "x", "a") for c in (1, 16) for w in (60.0, 1e5)], 32)
    assert joint.waits_s.shape == (32, 4)
    assert np.isfinite(joint.waits_s).all()
    assert (joint.waits_s >= 0).all()
    assert sorted(joint.forecast(2).quantiles_s) == list(joint.forecast(2).quantiles_s)


@pytest.mark.parametrize("estimator", ["asa", "asa-queue", "last"])
def test_requests_to_several_systems_wait_there_as_they_would_alone_in_independent_futures(estimator):
    bank = WaitBank(estimator, machine_cores=100)
    _, now = lived(bank["x"], 60)
    lived(bank["y"], 20)
    jobs = [QueuedJob(now, cores, 600.0, "me", system, "a") for cores in (4, 16) for system in "xy"]
    both = bank.predict_together(jobs, 32)
    for system in "xy":
        own = [place for place, job in enumerate(jobs) if job.system == system]
        alone = bank.predict_together([jobs[place] for place in own], 32)
        assert np.array_equal(np.sort(both.waits_s[:, own], axis=0), np.sort(alone.waits_s, axis=0))
        assert [both.jobs[place] for place in own] == list(alone.jobs)
    assert both.waits_s.shape == (32, 4)
    assert 0 <= both.best([60.0] * 4) < 4


def test_nothing_can_be_said_of_no_request():
    with pytest.raises(InputError, match="no requests"):
        WaitBank().predict_together([])


def test_of_others_all_wait_long_together():
    joint = together(lived(LastWait(), 30)[0], [QueuedJob(1e6, 4, 60.0), QueuedJob(1e6, 64, 60.0)], 10)
    assert (np.diff(joint.waits_s, axis=0) >= 0).all()


@settings(max_examples=30)
def remember(differences, job, stated_s, wait_s, place):
    """Write the row of a wait as the estimator does."""
    row, since_s = differences.next_row(job.submit_s)
    wait, *stated = np.log10(np.maximum([wait_s, stated_s[1], stated_s[4], stated_s[7]], 10.0))
    differences.rows[row] = since_s, job.cores, job.walltime_s, wait, np.mean(stated), place


def test_an_estimator_remembers_each_wait_that_was_seen_whole():
    estimator, plain = ContextualAsa(), Differences()
    rng = np.random.default_rng(1)
    for turn in range(40):
        job = QueuedJob(1e9 + 977.0 * turn, int(rng.integers(1, 300)), 600.0 * int(rng.integers(1, 50)), "ann")
        wait, forecast = float(rng.choice([0.0, 30.0, 5e4])), estimator.predict(job)
        ticket = estimator.submitted(job, forecast)
        if turn % 5 == 0:
            estimator.observe(ticket, at_least(wait))
            continue
        estimator.observe(ticket, exactly(wait))
        remember(plain, job, forecast.quantiles_s, wait, 1)  # the site is row 0, its only partition row 1
    assert len(plain.known) == 32
    assert estimator._differences.known == pytest.approx(plain.known)


@given(st.integers(0, 2**32 - 1), st.integers(0, 400), st.integers(1, 5))
def test_whatever_was_seen_samples_are_sound(seed, count, places):
    rng = np.random.default_rng(seed)
    differences = Differences()
    at = 0.0
    for _ in range(count):
        at += float(rng.choice([0.0, 60.0, 1e6]))
        wait = float(rng.choice([0.0, 1.0, 1e3, 1e7]))
        job = QueuedJob(at, int(rng.choice([1, 64, 10**6])), float(rng.choice([1.0, 3600.0, 1e8])))
        remember(differences, job, np.sort(rng.exponential(wait + 1, 9)), wait, int(rng.integers(places)))
    jobs = [QueuedJob(at, int(c), w) for c in (1, 7, 10**6) for w in (1.0, 1e8)]
    forecasts = [WaitForecast(tuple(np.sort(rng.exponential(1e4, 9)).tolist()), 1.0) for _ in jobs]
    joint = differences.judge(jobs, forecasts, [i % places for i in range(6)], 16)
    for waits in (joint.waits_s, joint.usual_s):
        if waits is not None:
            assert np.isfinite(waits).all()
            assert (waits >= 0).all()


def test_only_the_latest_are_kept():
    differences = Differences()
    for place in range(KEPT + 10):
        remember(differences, QueuedJob(float(place), 1, 60.0), (1.0,) * 9, 5.0, 0)
    assert len(differences.known) == KEPT
    assert differences.known[:, 0].min() == 10


def test_a_job_whose_age_accrues_mostly_starts_as_soon_as_it_is_due():
    job, run_s = QueuedJob(0.0, 8, 3600.0), np.full(4, 1800.0)
    plan = [JobAhead(job, 0.0, run_s, ()), JobAhead(job, 0.0, run_s, (0,), "aging"), JobAhead(job, 0.0, run_s, (0,))]
    shares = aged_shares(plan, 200)
    assert (shares[:, [0, 2]] == 1.0).all()
    assert (shares[:, 1] == 0.0).mean() == pytest.approx(0.62, abs=0.01)
    assert shares[:, 1].mean() == pytest.approx((1.0 - 0.62) * 0.65, rel=0.03)
