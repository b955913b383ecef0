"""Sampled futures of a visible queue: each equals a run of the engine, and requests do not affect each other."""

import json

import numpy as np
import pytest
from asa.backends.simulated.client import Need
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.futures import KEPT, OF_ALIKE, OF_USER, RunTimeRatios, plan_starts, starting_now, starts
from asa.backends.simulated.lookahead import QueueSimulation
from asa.backends.simulated.table import NEVER, UNSTARTED, JobTable
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.backend import DependencyType, JobState
from asa.waits import JobAhead, QueuedJob, exactly

SIZE = 16
JOBS = st.lists(st.tuples(st.integers(1, SIZE), st.integers(1, 30), st.integers(1, 30)), max_size=14)
NONE = np.zeros(0)


def columns(rows, count=3):
    return tuple(np.array(rows, dtype=float).reshape(-1, count).T)


@settings(max_examples=150)
@given(JOBS, st.tuples(st.integers(1, SIZE), st.integers(1, 30), st.integers(0, 40)))
def test_a_request_starts_when_the_engine_would_start_it(jobs, request_):
    """All jobs are submitted at once, the request last, and run no longer than requested."""
    jobs = [(cores, max(asked, run), min(asked, run)) for cores, asked, run in jobs]
    cores, asked, at = request_
    wide, wanted, run = (np.array(c, dtype=np.int64) for c in columns(jobs))
    engine = Engine(SIZE, JobTable(np.zeros(len(jobs), dtype=np.int64), run, wanted, wide))
    while engine.now < at:
        engine.advance(at)
    job = engine.clients[engine.submit(cores=cores, request=asked, run=1)]
    while job.start == UNSTARTED:
        engine.advance(NEVER)
    waiting = wide.astype(float), wanted.astype(float), run.astype(float)[None]
    found = starts(SIZE, (NONE, NONE, np.zeros((1, 0))), waiting, columns([(cores, asked, at)]))
    assert found.tolist() == [[job.start]]


@settings(max_examples=60)
@given(JOBS, st.lists(st.tuples(st.integers(1, SIZE), st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=6))
def test_requests_are_judged_as_if_each_were_alone(jobs, requests):
    wide, wanted, run = columns(jobs)
    waiting = wide, wanted, np.stack([run, run[::-1]])
    running = columns([(2, 5)], 2)
    every = starts(SIZE, (*running, np.array([[5.0], [1.0]])), waiting, columns(requests))
    assert every.shape == (2, len(requests))
    for place, one in enumerate(requests):
        alone = starts(SIZE, (*running, np.array([[5.0], [1.0]])), waiting, columns([one]))
        assert every[:, [place]].tolist() == alone.tolist()


PLANS = st.lists(
    st.tuples(st.integers(1, SIZE), st.integers(1, 30), st.integers(1, 30), st.sets(st.integers(0, 4), max_size=2)),
    min_size=1,
    max_size=5,
)


def ahead(plan, queues="ready", **other):
    """Make a plan of rows of cores, walltime, run time, and the indices of what each follows."""
    return [
        JobAhead(QueuedJob(0.0, cores, asked), 0.0, np.array([float(run)]), tuple(after), queues, **other)
        for cores, asked, run, after in plan
    ]


def engine_starts(jobs, plan, *, age_accrues):
    """Run a plan in the engine behind given jobs; all jobs of the plan are submitted first, with their dependencies."""
    wide, wanted, run = (np.array(c, dtype=np.int64) for c in columns(jobs))
    engine = Engine(SIZE, JobTable(np.zeros(len(jobs), dtype=np.int64), run, wanted, wide), age_accrues=age_accrues)
    for cores, asked, run_s, after in plan:
        needs = [Need(one, DependencyType.AFTEROK) for one in after]
        engine.submit(cores=cores, request=asked, run=run_s, needs=needs)
    while any(job.start == UNSTARTED for job in engine.clients):
        engine.advance(NEVER)
    assert not any(job.state is JobState.FAILED for job in engine.clients)
    return [float(job.start) for job in engine.clients]


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(JOBS, PLANS, st.booleans())
def test_the_jobs_of_a_plan_start_when_the_engine_would_start_them(jobs, plan, age_accrues):
    """In chains, forks and parallel jobs, each is placed before those that follow it."""
    jobs = [(cores, max(asked, run), min(asked, run)) for cores, asked, run in jobs]
    plan = [
        (cores, max(asked, run), min(asked, run), {one for one in after if one < index})
        for index, (cores, asked, run, after) in enumerate(plan)
    ]
    wide, wanted, run = columns(jobs)
    found = plan_starts(
        SIZE, (NONE, NONE, np.zeros((1, 0))), (wide, wanted, run[None]),
        ahead(plan, "aging" if age_accrues else "ready"),
    )  # fmt: skip
    assert found.tolist() == [engine_starts(jobs, plan, age_accrues=age_accrues)]


def test_the_second_job_of_a_plan_does_not_find_the_hole_that_the_first_has_taken():
    """Two jobs of 112 cores, each of which would start at once if it were alone: the head-of-queue job comes first."""
    made = QueueSimulation(machine_cores=224)
    made.observe(made.submitted(QueuedJob(0.0, 112, 5400.0, "ann")), exactly(0.0))
    made.submitted(QueuedJob(10.0, 224, 3600.0, "bob"))
    jobs = [QueuedJob(20.0, 112, 3000.0, "me")] * 2
    assert (made.futures(jobs, 40) == 0).all()
    side_by_side = [JobAhead(job, 20.0, np.full(40, 3000.0)) for job in jobs]
    in_a_row = [side_by_side[0], JobAhead(jobs[1], 20.0, np.full(40, 3000.0), (0,))]
    beside, after = made.plan_futures([side_by_side, in_a_row], 40)
    assert (beside[:, 0] == 0).all()
    assert (after[:, 0] == 0).all()
    assert beside[:, 1].min() > 0
    assert (after[:, 1] > 3000.0).mean() > 0.5


def test_a_job_that_comes_early_holds_its_cores_until_its_turn():
    nobody = (NONE, NONE, np.zeros((1, 0)))
    first, second = ahead([(10, 100, 100, ()), (6, 300, 20, (0,))])
    [early] = ahead([(6, 300, 20, (0,))], "early")
    [third] = ahead([(12, 50, 50, ())])
    assert plan_starts(SIZE, nobody, nobody, [first, early, third]).tolist() == [[0.0, 0.0, 120.0]]
    assert plan_starts(SIZE, nobody, nobody, [first, second, third]).tolist() == [[0.0, 150.0, 100.0]]


def test_what_is_queued_after_nothing_is_known_waits_as_is_usual():
    running = columns([(SIZE, 500)], 2)
    nobody = (NONE, NONE, np.zeros((2, 0)))
    runs = (*running, np.array([[500.0], [500.0]]))
    plan = ahead([(4, 100, 100, ()), (4, 100, 100, (0,)), (4, 9, 9, (0,))])
    later = np.array([600.0, 300.0]), np.full((2, 3), 7.0)
    found = plan_starts(SIZE, runs, nobody, plan, later)
    assert found.tolist() == [[500.0, 607.0, 607.0], [500.0, 607.0, 607.0]]
    assert plan_starts(SIZE, runs, nobody, plan)[0].tolist() == [500.0, 600.0, 600.0]
    aging = ahead([(4, 100, 100, ()), (4, 100, 100, (0,))], "aging")
    assert plan_starts(SIZE, runs, nobody, aging, (later[0], later[1][:, :2]))[0].tolist() == [500.0, 607.0]


def test_a_plan_over_partitions_meets_each_ones_queue():
    made = QueueSimulation(machine_cores=20)
    for partition in ("a", "b"):
        made.observe(made.submitted(QueuedJob(0.0, 10, 600.0, "ann", partition=partition)), exactly(0.0))
    made.ended(0, 100.0)
    free, full = (QueuedJob(200.0, 10, 60.0, "me", partition=partition) for partition in ("a", "b"))
    plan = [JobAhead(free, 200.0, np.array([50.0])), JobAhead(free, 200.0, np.array([50.0]), (0,)),
            JobAhead(full, 200.0, np.array([50.0]), (1,))]  # fmt: skip
    [found] = made.plan_futures([plan], 20)
    assert (found[:, :2] == [0.0, 50.0]).all()
    assert (found[:, 2] == np.maximum(made.futures([full], 20)[:, 0], 100.0)).all()


def test_who_starts_now_is_who_fits_and_delays_nobody():
    # 10 of 16 cores are used for 20 s more; the second of the queue is its head, 3 cores will be left beside it
    waiting = columns([(4, 50), (13, 10), (2, 20), (2, 21), (1, 99)], 2)
    assert starting_now(SIZE, columns([(10, 20)], 2), waiting).tolist() == [True, False, True, False, False]


def test_run_times_are_those_seen_of_the_kind():
    times = RunTimeRatios()
    for _ in range(KEPT + 5):
        times.learn(OF_ALIKE, 0.5)
    kind = np.array([OF_ALIKE, OF_ALIKE, OF_USER])
    asked = np.full(3, 1000.0)
    drawn = times.draw(kind, np.full(3, 800.0), asked, np.array([0.0, 100.0, 0.0]), 50)
    assert (drawn[:, 0] == 400).all()
    assert (drawn[:, 1] == 300).all()
    assert 1 < len(np.unique(drawn[:, 2])) <= 50
    assert drawn.min() >= 1
    assert drawn.max() <= 1000


def test_what_outlived_its_kind_ends_before_its_request():
    times = RunTimeRatios()
    for _ in range(20):
        times.learn(OF_ALIKE, 1.0)
    drawn = times.draw(np.array([OF_ALIKE]), np.array([100.0]), np.array([1000.0]), np.array([700.0]), 200)
    assert drawn.max() <= 300
    assert 100 < drawn.mean() < 200


def test_run_times_go_on_from_their_state():
    times = RunTimeRatios()
    for place in range(40):
        times.learn(OF_USER, place / 40)
    again = RunTimeRatios.from_state(json.loads(json.dumps(times.state())))
    given_ = (np.array([OF_USER]), np.array([60.0]), np.array([100.0]), np.array([3.0]), 9)
    assert np.array_equal(again.draw(*given_), times.draw(*given_))


@pytest.mark.parametrize(
    "state", [[], [[1, [0.5]]] * 2, [[2, [0.5]]] * 3, [[1, [-0.5]]] * 3, [[1, [float("nan")]]] * 3]
)
def test_no_state_of_run_times(state):
    with pytest.raises((ValueError, TypeError)):
        RunTimeRatios.from_state(state)


def queue():
    """Make a queue: four of ten cores are free for 600 s, and a job of eight waits."""
    made = QueueSimulation(machine_cores=10)
    made.observe(made.submitted(QueuedJob(0.0, 6, 600.0, "ann")), exactly(0.0))
    made.submitted(QueuedJob(10.0, 8, 3600.0, "bob"))
    return made


def test_a_short_narrow_request_starts_at_once_in_every_future():
    waits = queue().futures([QueuedJob(20.0, 4, 60.0, "me"), QueuedJob(20.0, 9, 60.0, "me")], 40)
    assert (waits[:, 0] == 0).all()
    assert (waits[:, 1] > 0).all()
    assert len(np.unique(waits[:, 1])) > 10


def test_a_request_of_later_waits_from_then():
    now, later = queue().futures([QueuedJob(20.0, 9, 60.0), QueuedJob(120.0, 9, 60.0)], 40).T
    assert (later <= now).all()
    assert (np.maximum(now - 100.0, 0.0) <= later).all()


def test_jobs_that_something_else_keeps_back_do_not_count():
    made = QueueSimulation(machine_cores=10)
    for second in range(3):  # they fit, and do not start
        made.submitted(QueuedJob(10.0 * second, 9, 3600.0, "ann"))
    assert (made.futures([QueuedJob(600.0, 9, 60.0, "me")], 10) == 0).all()


def test_partitions_are_apart():
    made = QueueSimulation(machine_cores=20)
    for partition in ("a", "b"):
        made.observe(made.submitted(QueuedJob(0.0, 10, 600.0, "ann", partition=partition)), exactly(0.0))
    made.ended(0, 100.0)
    free, full = made.futures([QueuedJob(200.0, 10, 60.0, "me", partition=p) for p in ("a", "b")], 20).T
    assert (free == 0).all()
    assert (full > 0).all()
