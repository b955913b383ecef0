"""Jobs of one plan are forecast together: in order, side by side, and by usual waits beyond what is known."""

import math

import numpy as np
import pytest

from asa.errors import InputError
from asa.estimators import WaitBank
from asa.estimators.differences import Differences
from asa.estimators.joint import plans_together
from asa.waits import JobAhead, QueuedJob, WaitForecast, exactly

NOW = 1e6


def ahead(cores, run_s, after=(), queues="ready", **other):
    job = QueuedJob(NOW, cores, 2.0 * run_s, "me", "x")
    return JobAhead(job, NOW, np.array([float(run_s)]), tuple(after), queues, **other)


class Proportional:
    """A forecast in which a job waits a minute for each core."""

    def predict(self, job):
        return WaitForecast((60.0 * job.cores,) * 9, 60.0 * job.cores)


class Fading(Proportional):
    """Likewise at first; jobs that are submitted later wait ten minutes."""

    def usual_later(self, jobs, samples):
        return 3600.0, np.full((samples, len(jobs)), 600.0)


def test_a_chain_comes_one_after_the_other():
    [starts] = plans_together(Proportional(), [[ahead(2, 100.0), ahead(3, 50.0, [0]), ahead(1, 10.0, [1])]], 8)
    assert np.median(starts, axis=0) == pytest.approx([120.0, 120 + 100 + 180.0, 400 + 50 + 60.0], rel=1e-6)


def test_jobs_side_by_side_compete_and_the_same_ones_one_after_the_other_do_not():
    fork = [ahead(1, 100.0), ahead(4, 50.0, [0]), ahead(4, 50.0, [0])]
    [starts] = plans_together(Proportional(), [fork], 4)
    assert np.median(starts[:, 2] - starts[:, 1]) == pytest.approx(240.0)


def test_who_keeps_its_age_has_waited_meanwhile():
    aging = [ahead(2, 1000.0), ahead(2, 50.0, [0], "aging")]
    [starts] = plans_together(Proportional(), [aging], 400)
    waits_s = starts[:, 1] - starts[:, 0] - 1000.0
    assert (waits_s < 1.0).mean() == pytest.approx(0.62, abs=0.02)  # at the head of the queue by then
    assert waits_s[waits_s >= 1.0].mean() == pytest.approx(0.65 * 120.0, rel=0.15)
    early = [ahead(2, 1000.0), ahead(2, 50.0, [0], "early"), ahead(1, 1.0, [1])]
    [starts] = plans_together(Proportional(), [early], 4)
    assert np.median(starts[:, 1]) == pytest.approx(120.0)
    assert np.median(starts[:, 2]) == pytest.approx(1120.0 + 50.0 + 60.0)
    [starts] = plans_together(Proportional(), [[ahead(2, 50.0, queues="local"), ahead(1, 1.0, [0])]], 4)
    assert np.median(starts, axis=0) == pytest.approx([0.0, 110.0])


def test_waits_return_to_what_is_usual_as_what_is_known_fades():
    first, soon, late = (ahead(100, 1.0, ready_s=np.array([at_s])) for at_s in (0.0, 1800.0, 8 * 3600.0))
    starts = plans_together(Fading(), [[first], [soon], [late]], 400)
    waits = [found[:, 0] - at_s for found, at_s in zip(starts, (0.0, 1800.0, 8 * 3600.0), strict=True)]
    assert [float((wait > 3000).mean()) for wait in waits] == pytest.approx(
        [1.0, math.exp(-0.5), math.exp(-8.0)], abs=0.07
    )


def test_all_plans_meet_the_same_futures():
    bank = WaitBank("asa")
    rng = np.random.default_rng(1)
    for index in range(300):
        job = QueuedJob(600.0 * index, int(rng.choice([1, 8])), 3600.0, "ada", "x")
        bank.observe(bank.submitted(job), exactly(float(rng.exponential(600))))
    plan = [ahead(8, 100.0), ahead(8, 50.0, [0])]
    one, other, alone = bank.predict_plans([plan, [*plan, ahead(1, 5.0, [1])], plan[:1]], 32)
    assert np.array_equal(one, other[:, :2])
    assert np.array_equal(one[:, :1], alone)
    assert (other[:, 2] >= other[:, 1] + 50).all()
    with pytest.raises(InputError, match="no plans"):
        bank.predict_plans([])


@pytest.mark.parametrize("estimator", ["asa", "asa-queue"])
def test_a_plan_on_two_systems_waits_on_each_as_a_plan_there_does(estimator):
    bank = WaitBank(estimator, machine_cores=64)
    rng = np.random.default_rng(1)
    for index in range(300):
        for system, mean_s in (("x", 600), ("y", 60)):
            job = QueuedJob(600.0 * index, int(rng.choice([1, 8])), 3600.0, "ada", system)
            bank.observe(bank.submitted(job), exactly(float(rng.exponential(mean_s))))

    def on(system, run_s, after=()):
        return JobAhead(QueuedJob(NOW, 8, 3600.0, system=system), NOW, np.full(32, run_s), tuple(after))

    here, there = [on("x", 100.0), on("x", 50.0, [0])], [on("y", 100.0), on("y", 50.0, [0])]
    mixed, turned = [here[0], there[1]], [there[0], here[1]]
    starts = bank.predict_plans([here, there, mixed, turned, here[:1]], 32)
    alone = [*bank.predict_plans([here, here[:1]], 32)[:1], *bank.predict_plans([there], 32)]
    if estimator == "asa":  # which samples the same however often it is asked
        assert all(np.array_equal(*of) for of in zip(starts, alone, strict=False)), "other systems change nothing"
    assert (starts[2][:, 1] >= starts[2][:, 0] + 100).all()
    assert np.median(starts[3][:, 0]) < np.median(starts[2][:, 0]), "the quicker queue"
    mean_s = [float(np.median(of[:, 1] - of[:, 0])) for of in starts[:4]]
    assert mean_s[2] < mean_s[3], "and so for the second job"


def test_with_the_queue_the_second_job_does_not_find_the_hole_that_the_first_has_taken():
    bank = WaitBank("asa-queue", machine_cores=224)
    running = bank.submitted(QueuedJob(NOW - 20, 112, 5400.0, "ann", "x"))
    bank.observe(running, exactly(0.0))
    bank.submitted(QueuedJob(NOW - 10, 224, 3600.0, "bob", "x"))
    job = JobAhead(QueuedJob(NOW, 112, 3000.0, "me", "x"), NOW, np.full(32, 3000.0))
    [[*alone]] = bank.predict_plans([[job]], 32)
    [beside] = bank.predict_plans([[job, job]], 32)
    assert np.median(beside[:, 0]) == np.median(alone)
    assert np.median(beside[:, 1]) > np.median(beside[:, 0]) + 600


def test_it_is_found_how_fast_what_is_known_fades_and_what_is_usual_at_the_hour():
    rng = np.random.default_rng(3)
    made, level, times = Differences(), 0.0, {}
    for index in range(6000):
        at_s = 300.0 * index
        keeps = math.exp(-300.0 / (6 * 3600.0))
        level = keeps * level + math.sqrt(1 - keeps**2) * rng.standard_normal()
        decades = 3.0 + 0.4 * level + 0.5 * math.cos(2 * math.pi * at_s / 86_400.0)
        row, since_s = made.next_row(at_s)
        made.rows[row] = since_s, int(rng.choice([1, 2, 4])), 3600.0, decades, 2.8, 0
    for hour in (0, 12):
        times[hour], usual = made.later([QueuedJob(7 * 86_400.0 + 3600.0 * hour, 2, 3600.0)], [0], 9)
        times[f"{hour} usual"] = float(np.log10(usual[4, 0]))
    assert 2 * 3600 < times[0] < 18 * 3600  # of six hours
    assert times["0 usual"] - times["12 usual"] == pytest.approx(1.0, abs=0.25)
    assert Differences().later([QueuedJob(0.0, 2, 3600.0)], [0], 9) is None
