"""The plain cluster with which others are compared, checked by hand."""

import plain_queue
import pytest
from asa.backends.simulated.cluster import Outage
from asa.backends.simulated.policies import (
    F1,
    Conservative,
    Easy,
    Fcfs,
    Multifactor,
    NoBackfill,
    Periodic,
    Sjf,
    Wfp,
)
from hypothesis import given
from hypothesis import strategies as st
from plain_cluster import simulate


def job(submit, run, request, cores=1, *, user=0, qos=0, partition=0, **demand):
    return {
        "submit": submit,
        "run": run,
        "request": request,
        "demand": {"cores": cores} | demand,
        "user": user,
        "qos": qos,
        "partition": partition,
    }


def starts(cores, jobs, *, order=None, backfill=None, **more):
    pools = cores if isinstance(cores, dict) else {"cores": cores}
    return [start for start, _, _ in simulate(pools, jobs, order=order or Fcfs(), backfill=backfill or Easy(), **more)]


def test_a_run_ends_by_itself_or_at_its_limit():
    ends = simulate({"cores": 1}, [job(3, 5, 5), job(4, 9, 2)], order=Fcfs(), backfill=NoBackfill())
    assert ends == [(3, 8, "completed"), (8, 10, "timeout")]


@pytest.mark.parametrize(("request_s", "start"), [(8, 2), (9, 15)])
def test_easy_fills_a_hole_that_is_long_enough(request_s, start):
    jobs = [job(0, 10, 10, 3), job(1, 5, 5, 4), job(2, request_s, request_s, 1)]
    assert starts(4, jobs) == [0, 10, start]
    assert starts(4, jobs, backfill=NoBackfill()) == [0, 10, 15]


def test_easy_gives_out_what_the_first_leaves_beside_its_reservation():
    # At 10 the second job takes 3 of 4: one core is nobody's, for one job. The last finds none before 15.
    jobs = [job(0, 10, 10, 3), job(1, 5, 5, 3), job(2, 20, 20, 1), job(3, 20, 20, 1)]
    assert starts(4, jobs) == [0, 10, 2, 15]


def test_conservative_protects_the_second_that_waits_easy_does_not():
    # The second waits till 10 for 3 of 4 cores, the third till 15 for all; the last may have the fourth core till 15.
    jobs = [job(0, 10, 10, 2), job(1, 5, 5, 3), job(2, 5, 5, 4)]
    assert starts(4, [*jobs, job(3, 12, 12)], backfill=Conservative()) == [0, 10, 15, 3]
    assert starts(4, [*jobs, job(3, 13, 13)], backfill=Conservative()) == [0, 10, 15, 20]
    assert starts(4, [*jobs, job(3, 13, 13)], backfill=Easy()) == [0, 10, 16, 3]


def test_conservative_moves_reservations_in_order_when_something_ends_early():
    # Reserved at first: 10 to 15 (both cores), 15 to 20 (both), 20 to 23 (one). At 4, when the first ends after 4 of
    # its 10 seconds, the second moves to 4, the third to 9; the last finds no earlier place than their end, 14.
    jobs = [job(0, 4, 10, 2), job(1, 5, 5, 2), job(2, 5, 5, 2), job(3, 3, 3, 1)]
    assert starts(2, jobs, backfill=Conservative()) == [0, 4, 9, 14]


def test_conservative_moves_one_at_a_time_among_all_others():
    # Reserved: second 10 to 20 (both cores), third 20 to 23 (both). At 4 it is the third's turn first, being shorter:
    # 4 to 7. Then the second's: 7.
    jobs = [job(0, 4, 10, 2), job(1, 10, 10, 2), job(2, 3, 3, 2)]
    assert starts(2, jobs, order=Sjf(), backfill=Conservative()) == [0, 7, 4]


def test_a_late_job_takes_nothing_of_reservations_made_before_whatever_the_order():
    jobs = [job(0, 10, 10, 2), job(1, 10, 10, 3), job(2, 9, 9, 2)]
    assert starts(3, jobs, order=Sjf(), backfill=Conservative()) == [0, 10, 20]
    assert starts(3, jobs, order=Sjf(), backfill=Easy()) == [0, 19, 10]


def test_periodic_backfills_at_multiples_of_its_interval_only():
    every_ten = Periodic(interval_s=10, resolution_s=10)
    jobs = [job(0, 20, 20, 3), job(1, 5, 5, 4)]
    # The extra pass at 10 plans the second at 20. Ten seconds fit before; eleven are planned for 30, after the second,
    # but start with it out of the way, at 25, in order.
    assert starts(4, [*jobs, job(2, 10, 10)], backfill=every_ten) == [0, 20, 10]
    assert starts(4, [*jobs, job(2, 11, 11)], backfill=every_ten) == [0, 20, 25]
    # At 10, 20 is 10 seconds away: within the window or beyond it.
    within, beyond = (Periodic(interval_s=10, resolution_s=10, window_s=window) for window in (10, 9))
    assert starts(4, [*jobs, job(2, 11, 11)], backfill=within) == [0, 20, 25]
    assert starts(4, [*jobs, job(2, 11, 11)], backfill=beyond) == [0, 21, 10]
    # A pass that looks at one job never comes to the third.
    assert starts(4, [*jobs, job(2, 10, 10)], backfill=Periodic(10, depth=1)) == [0, 20, 25]


def test_periodic_plans_later_starts_at_multiples_of_the_resolution():
    # At 4 the second is planned for 12, not 10: eight seconds fit before it. At 10, when the first ends, it starts if
    # it finds all cores.
    jobs = [job(0, 10, 10, 3), job(1, 5, 5, 4), job(2, 8, 8)]
    assert starts(4, jobs, backfill=Periodic(4, resolution_s=4)) == [0, 12, 4]
    assert starts(4, jobs, backfill=Periodic(4, resolution_s=2)) == [0, 10, 15]


def test_who_waits_holds_up_the_own_partition_only():
    jobs = [job(0, 10, 10, 3), job(1, 5, 5, 2), job(2, 5, 5, 1), job(3, 5, 5, 1, partition=1)]
    assert starts(4, jobs, backfill=NoBackfill(), partitions=2) == [0, 10, 10, 3]
    # Its reservation, under EASY, is respected by all: the last is the first of its partition, and has to wait.
    jobs = [job(0, 10, 10, 3), job(1, 5, 5, 5), job(2, 20, 20, 1), job(3, 20, 20, 1, partition=1)]
    assert starts(5, jobs, partitions=2) == [0, 10, 15, 15]


@pytest.mark.parametrize(("request_s", "start"), [(12, 3), (13, 20)])
def test_each_partition_has_one_reservation(request_s, start):
    # Reserved are 10 to 15 for the second, 3 of 4 cores, and 15 to 20 for the third, all. One core is free till 15.
    jobs = [job(0, 10, 10, 3), job(1, 5, 5, 3), job(2, 5, 5, 4, partition=1)]
    last = job(3, request_s, request_s, 1, partition=1)
    assert starts(4, [*jobs, last], partitions=2) == [0, 10, 15, start]


def test_all_pools_are_asked_for():
    # The second waits for the GPU till 10 and needs one of the cores then; the third may have the other three.
    jobs = [job(0, 10, 10, 1, gpus=1), job(1, 5, 5, 1, gpus=1), job(2, 20, 20, 3), job(3, 1, 1, 1)]
    assert starts({"cores": 4, "gpus": 1}, jobs) == [0, 10, 2, 15]


def test_a_better_job_ends_worse_ones_of_the_worst_the_last():
    jobs = [job(0, 9, 9, qos=1), job(0, 9, 9), job(1, 9, 9), job(1, 9, 9, qos=1), job(2, 9, 9, qos=2)]
    # The machine is full at 2. Of quality 0 the one that started at 1 goes, and comes back at 9, with its old age.
    requeued = simulate({"cores": 4}, jobs, order=Fcfs(), backfill=Easy(), preempt="requeue")
    full = "completed"
    assert requeued == [(0, 9, full), (0, 9, full), (9, 18, full), (1, 10, full), (2, 11, full)]
    cancelled = simulate({"cores": 4}, jobs, order=Fcfs(), backfill=Easy(), preempt="cancel")
    assert cancelled == [*requeued[:2], (1, 2, "preempted"), *requeued[3:]]


def test_nobody_is_ended_in_vain_nor_for_what_is_not_missing():
    # Two cores of worse jobs are not enough for three; the second attempt asks for a GPU, which only the first holds.
    jobs = [job(0, 9, 9, 1, gpus=1), job(1, 9, 9, 1), job(1, 9, 9, 1, qos=5), job(2, 9, 9, 3, qos=2)]
    pools = {"cores": 3, "gpus": 1}
    assert starts(pools, jobs, preempt="requeue") == [0, 1, 1, 10]
    jobs = [job(0, 9, 9, 1, gpus=1), job(1, 9, 9, 1), job(2, 9, 9, 1, qos=2, gpus=1)]
    assert starts(pools, jobs, preempt="requeue") == [11, 1, 2]


def test_an_outage_ends_those_that_started_last():
    jobs, outage = [job(0, 10, 10), job(1, 10, 10)], [Outage(5, {"cores": 1}, 8)]
    lives = simulate({"cores": 2}, jobs, order=Fcfs(), backfill=Easy(), outages=outage)
    assert lives == [(0, 10, "completed"), (8, 18, "completed")]
    lost = simulate({"cores": 2}, jobs, order=Fcfs(), backfill=Easy(), outages=outage, requeue=False)
    assert lost == [(0, 10, "completed"), (1, 5, "lost")]


def test_a_drain_ends_nothing_and_gives_nothing_out_again():
    # The core that the first leaves at 10 is the one away; the second's at 11 is there to have.
    jobs, drain = [job(0, 10, 10), job(1, 10, 10), job(6, 3, 3)], [Outage(5, {"cores": 1}, 20, drain=True)]
    assert starts(2, jobs, outages=drain) == [0, 1, 11]


@pytest.mark.parametrize("backfill", [NoBackfill(), Easy(), Conservative(), Periodic(interval_s=4)])
def test_what_asks_for_more_than_there_is_now_is_passed_over(backfill):
    jobs = [job(0, 5, 5, 3), job(1, 5, 5, 2), job(2, 5, 5, 1)]
    assert starts(3, jobs, backfill=backfill, outages=[Outage(0, {"cores": 1})]) == [-1, 1, 6]
    assert starts(3, jobs, backfill=backfill, outages=[Outage(0, {"cores": 1}, 9)]) == [11, 1, 6]


def test_who_used_more_stands_behind():
    # The first user's share is all: 2^-2 to the second's 1.
    jobs = [job(0, 10, 10, user=7), job(1, 5, 5, user=7), job(2, 5, 5, user=8)]
    assert starts(1, jobs, order=Multifactor()) == [0, 15, 10]
    assert starts(1, jobs, order=Multifactor(fair_share=0)) == [0, 10, 15]


def test_a_fair_tree_ranks_users_and_those_who_have_used_nothing_come_first():
    # At 10 they have used 6, 4 and 0 core-seconds. Of ten who share the machine 9, 8 and none have used less: they have
    # 10, 20 and 100 points. At 20 points a second of age that is 10 + 140, 20 + 40 and 100 + 20.
    jobs = [
        job(0, 6, 6, user=0),
        job(0, 4, 4, user=1),
        job(3, 5, 5, user=0),
        job(8, 5, 5, user=1),
        job(9, 5, 5, user=2),
    ]
    weights = {"fair_share": 100, "half_life_s": 10**6, "fair_tree": True, "users": 10}
    assert starts(1, jobs, order=Multifactor(age=0, **weights), backfill=NoBackfill())[2:] == [20, 15, 10]
    assert starts(1, jobs, order=Multifactor(age=2000, max_age_s=100, **weights))[2:] == [10, 20, 15]


@pytest.mark.parametrize(("half_life_s", "order"), [(5, [25, 30]), (10**6, [30, 25])])
def test_usage_is_forgotten_by_halves(half_life_s, order):
    # At 25, in units of half-life / ln 2 and for a half-life of 5: 2^-2 - 2^-5 = 0.22 of the first user's 15 seconds,
    # 1 - 2^-2 = 0.75 of the second's 10. Nothing forgotten, it is 15 to 10.
    jobs = [job(0, 15, 15, user=0), job(1, 10, 10, user=1), job(16, 5, 5, user=0), job(16, 5, 5, user=1)]
    policy = Multifactor(age=0, half_life_s=half_life_s)
    assert starts(1, jobs, order=policy, backfill=NoBackfill()) == [0, 15, *order]


def test_multifactor_adds_up():
    # One at a time. Size, quality and partition: 25 + 0 + 30 = 55, 100 + 5 + 0 = 105, 25 + 10 + 30 = 65; favouring
    # small ones 105, 5 and 115.
    jobs = [job(0, 10, 10, 4, slots=1), job(1, 5, 5, 1, slots=1, partition=1)]
    jobs += [job(2, 5, 5, 4, slots=1, qos=1), job(3, 5, 5, 1, slots=1, qos=2, partition=1)]
    weights = {"age": 0, "fair_share": 0, "size": 100, "qos": 10, "partition": 60, "partition_factors": (0.0, 0.5)}
    for favor_small, order in ((False, [20, 10, 15]), (True, [15, 20, 10])):
        policy = Multifactor(**weights, favor_small=favor_small)
        assert starts({"cores": 4, "slots": 1}, jobs, order=policy, partitions=2) == [0, *order]


@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ({"age": 0, "size": 0.9}, [10, 15]),  # 0.225 and 0.9 are both 0: age decides
        ({"age": 0, "size": 1}, [15, 10]),  # 0.25 is 0, and 1 is 1
        ({"age": 10, "max_age_s": 5, "size": 1}, [15, 10]),  # both are as old as counts: 10.25 and 11
        ({"age": 10, "max_age_s": 10, "size": 1}, [10, 15]),  # 8.25 and 6
    ],
)
def test_multifactor_rounds_down_and_counts_age_up_to_a_limit(weights, order):
    jobs = [job(0, 10, 10, 4), job(2, 5, 5, 1), job(5, 5, 5, 4)]
    assert starts(4, jobs, order=Multifactor(fair_share=0, **weights), backfill=NoBackfill()) == [0, *order]


def test_wfp_lets_short_and_wide_jobs_rise():
    # At 10: (8/8)^3 x 2 = 2 for the second, (4/2)^3 x 1 = 8 for the third.
    jobs = [job(0, 10, 10, 2), job(2, 8, 8, 2), job(6, 2, 2, 1)]
    assert starts(2, jobs, order=Wfp(), backfill=NoBackfill()) == [0, 12, 10]
    # With the width in slots: 2 x 1 x 9 = 9 for the second, 8 for the third.
    jobs = [job(0, 10, 10, 2), job(2, 8, 8, 2, slots=9), job(6, 2, 2, 1, slots=1)]
    assert starts({"cores": 2, "slots": 9}, jobs, order=Wfp(pool=1), backfill=NoBackfill()) == [0, 10, 18]


def test_f1_weighs_shape_against_arrival():
    # F4 at 1: 100 x 1 + 530000 log10(2) = 159646 and 4 x 1 + 530000 log10(3) = 252875.
    jobs = [job(0, 10, 10), job(1, 100, 100), job(2, 4, 4)]
    assert starts(1, jobs, order=F1(4)) == [0, 10, 110]
    # Both submitted at 1: log10(100) = 2 and log10(4) = 0.6 decide.
    assert starts(1, [job(0, 10, 10), job(1, 100, 100), job(1, 4, 4)], order=F1(1)) == [0, 14, 10]


def test_an_order_of_ones_own():
    jobs = [job(0, 5, 5), job(1, 5, 5), job(2, 5, 5)]
    assert starts(1, jobs, priority_of=lambda number, _now: number) == [0, 10, 5]


shapes = st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 12), st.integers(1, 4))


@given(jobs=st.lists(shapes, max_size=8), easy=st.booleans())
def test_it_agrees_with_the_plain_queue(jobs, easy):
    jobs = sorted(jobs, key=lambda shape: shape[0])
    expected = plain_queue.simulate(4, jobs, backfill=easy)
    assert starts(4, [job(*shape) for shape in jobs], backfill=Easy() if easy else NoBackfill()) == expected
