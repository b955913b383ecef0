"""A client's job that gets more cores by a second job, whose cores join its own: on machines of every kind."""

import numpy as np
import pytest
from asa.backends.dmr.scheduler import dmr
from asa.backends.openccs.core import OpenCcsCore
from asa.backends.simulated.cluster import Cluster, Load, Outage
from asa.backends.simulated.cores.fast import FastCore
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import NEVER, Engine, JobTable
from asa.backends.simulated.policies import Policy
from hypothesis import given
from hypothesis import strategies as st

from asa.backend import JobState

CORES = 8
MAKERS = {
    "fast": lambda jobs: FastCore(CORES, jobs, backfill=True, now=0),
    "general": lambda jobs: GeneralCore(Load(jobs, Cluster({"cores": CORES})), Policy()),
    "openccs": lambda jobs: OpenCcsCore(CORES, jobs, now=0),
    "dmr": lambda jobs: dmr(malleable=0.0).core(CORES, jobs, now=0),
}


@pytest.fixture(params=MAKERS)
def machine(request):
    """Make a machine with a background of jobs (submission, run time and request, cores)."""

    def make(*jobs):
        columns = np.array([(submit, run, run, cores) for submit, run, cores in jobs], dtype=np.int64).reshape(-1, 4).T
        table = JobTable(*(column.copy() for column in columns))
        return Engine(CORES, table, now=0, core=MAKERS[request.param](table))

    return make


def live_until(world, moment):
    while world.now < moment:
        world.advance(moment)


def until_the_end(world):
    while any(not job.state.is_final for job in world.clients):
        world.advance(10_000)
        assert world.now < 10_000, "everything ends"


def test_cores_join_when_there_are_some_and_end_with_the_job(machine):
    """They are requested at 10, while background jobs hold the others until 50."""
    world = machine((0, 50, 6))
    job = world.submit(cores=2, request=200, run=100)
    live_until(world, 10)
    other = world.widths.grow(job, 4)
    live_until(world, 11)
    assert world.clients[other].state is JobState.PENDING
    assert world.widths.of(job) == 2
    live_until(world, 51)
    assert (world.clients[other].state, world.clients[other].start) == (JobState.RUNNING, 50)
    assert (world.widths.of(job), world.free_cores) == (6, 2)
    live_until(world, 101)
    assert [(one.state, one.end) for one in world.clients] == [(JobState.COMPLETED, 100)] * 2
    assert world.free_cores == CORES


def test_what_is_asked_for_takes_its_turn(machine):
    """The request starts after earlier jobs and before later ones."""
    world = machine((0, 50, 6), (5, 30, 8), (20, 30, 6))
    job = world.submit(cores=2, request=40, run=40)
    live_until(world, 10)
    other = world.widths.grow(job, 6)
    until_the_end(world)
    assert world.clients[other].state is JobState.CANCELLED, "the job ended at 40, and needs no more"
    world = machine((0, 50, 6), (20, 30, 6))
    job = world.submit(cores=2, request=200, run=100)
    live_until(world, 10)
    other = world.widths.grow(job, 6)
    until_the_end(world)
    assert (world.clients[other].start, world.start.tolist()) == (50, [0, 100])


def test_a_payload_stands_still_until_it_is_as_wide_as_it_must_be(machine):
    """From 30 s on the payload needs 6 cores, which it gets at 50; from its 60th second on it needs 2."""
    world = machine((0, 50, 6), (51, 10, 4))
    job = world.submit(cores=2, request=200, run=100, widths=[(30, 6, True), (60, 2, False)])
    live_until(world, 10)
    other = world.widths.grow(job, 4)
    while world.now < 30:
        told = world.advance(30)
    assert told == [job], "it is told when it begins to wait"
    one = world.clients[job]
    assert [one.moment(30, before=True), one.moment(30), one.done(40)] == [30, NEVER, 30]
    live_until(world, 51)
    assert [one.moment(30), one.moment(60), one.done(51)] == [50, 80, 31]
    until_the_end(world)
    assert (one.state, one.end) == (JobState.COMPLETED, 120)
    assert (world.clients[other].state, world.clients[other].end) == (JobState.COMPLETED, 80), "it was given back"
    assert world.start.tolist() == [0, 80]


def test_cores_that_join_ahead_of_time_are_waiting_for_the_payload(machine):
    world = machine()
    job = world.submit(cores=2, request=200, run=100, widths=[(30, 6, True)])
    live_until(world, 10)
    world.widths.grow(job, 4)
    until_the_end(world)
    assert world.clients[job].end == 100
    assert world.clients[job].moment(30) == 30


def test_a_payload_that_gets_no_cores_is_killed_at_its_limit(machine):
    world = machine((0, 500, 6))
    job = world.submit(cores=2, request=120, run=100, widths=[(30, 3, True)])
    other = world.widths.grow(job, 1)
    until_the_end(world)
    assert (world.clients[job].state, world.clients[job].end) == (JobState.TIMEOUT, 120)
    assert world.clients[other].state is JobState.CANCELLED


def test_a_wish_may_be_withdrawn_and_cores_given_back_by_it(machine):
    world = machine((0, 50, 6))
    job = world.submit(cores=2, request=200, run=100, widths=[(60, 6, True)])
    early = world.widths.grow(job, 6)
    late = world.widths.grow(job, 4)
    live_until(world, 20)
    world.cancel(early)
    live_until(world, 70)
    assert [world.clients[one].state for one in (early, late)] == [JobState.CANCELLED, JobState.RUNNING]
    world.cancel(late)
    live_until(world, 71)
    assert (world.widths.of(job), world.free_cores) == (2, 6)
    again = world.widths.grow(job, 4)
    live_until(world, 72)
    assert world.clients[again].state is JobState.RUNNING
    until_the_end(world)
    assert world.clients[job].end == 101, "it stood still from 70 to 71"
    assert world.clients[job].stood == ((70, 1),)


def test_what_joined_last_is_given_back_first(machine):
    world = machine()
    job = world.submit(cores=2, request=100, run=50)
    live_until(world, 1)
    first, second = world.widths.grow(job, 3), world.widths.grow(job, 2)
    live_until(world, 2)
    assert world.widths.of(job) == 7
    assert world.widths.resize(job, 6)
    assert [one.cores for one in world.clients] == [2, 3, 1]
    assert world.widths.resize(job, 4)
    assert [one.state for one in world.clients] == [JobState.RUNNING, JobState.RUNNING, JobState.COMPLETED]
    assert [world.clients[first].cores, world.clients[second].end] == [2, 2]
    assert world.widths.resize(job, 1)
    assert [one.cores for one in world.clients[:2]] == [1, 2]
    assert world.clients[first].state is JobState.COMPLETED
    assert world.free_cores == 7
    assert world.widths.resize(job, 5, left=10)
    until_the_end(world)
    assert world.clients[job].end == 12


def test_a_job_that_has_not_started_can_ask(machine):
    world = machine((0, 50, 8))
    job = world.submit(cores=2, request=100, run=30)
    world.widths.grow(job, 4)
    live_until(world, 20)
    assert len(world.queued) == 1, "what it asks for waits for its start"
    until_the_end(world)
    assert [(one.start, one.end) for one in world.clients] == [(50, 80), (50, 80)]


@pytest.mark.parametrize("end", ["cancel", "limit"])
def test_what_joined_ends_with_the_job_however_that_ends(machine, end):
    world = machine()
    job = world.submit(cores=2, request=30, run=90)
    live_until(world, 1)
    joined, waits = world.widths.grow(job, 4), world.widths.grow(job, 2)
    world.submit(cores=2, request=500, run=500, held=True)
    live_until(world, 5)
    if end == "cancel":
        world.cancel(job)
    live_until(world, 31)
    assert world.clients[job].state is (JobState.CANCELLED if end == "cancel" else JobState.TIMEOUT)
    assert {world.clients[one].state for one in (joined, waits)} == {JobState.COMPLETED}
    assert world.free_cores == CORES


def test_what_cannot_grow_is_refused(machine):
    world = machine()
    job = world.submit(cores=2, request=30, run=10)
    beside = world.submit(cores=1, request=30, run=30, is_local=True)
    live_until(world, 1)
    other = world.widths.grow(job, 4)
    for number, cores in ((job, 7), (beside, 1), (other, 1)):
        with pytest.raises(ValueError, match="cannot get"):
            world.widths.grow(number, cores)
    live_until(world, 20)
    with pytest.raises(ValueError, match="cannot get"):
        world.widths.grow(job, 1)


def test_a_fork_grows_by_itself(machine):
    world = machine((0, 50, 6))
    job = world.submit(cores=2, request=200, run=100, widths=[(30, 6, True)])
    world.widths.grow(job, 4)
    live_until(world, 40)
    twin = world.fork()
    until_the_end(twin)
    assert twin.clients[job].end == 120
    assert world.clients[job].state is JobState.RUNNING
    assert world.clients[job].stands == 30
    until_the_end(world)
    assert [(one.state, one.end) for one in world.clients] == [(one.state, one.end) for one in twin.clients]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, CORES)), max_size=8),
    st.lists(
        st.tuples(
            st.integers(0, 90),
            st.sampled_from(["grow", "grow", "resize", "cancel"]),
            st.integers(0, 4),
            st.integers(1, 6),
        ),
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=2),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=2),
    st.sampled_from(list(MAKERS)),
)
def test_no_core_is_lost(jobs, deeds, grows, shrinks, maker):
    columns = np.array([(s, run, run, cores) for s, run, cores in sorted(jobs)], dtype=np.int64).reshape(-1, 4).T
    table = JobTable(*(column.copy() for column in columns))
    world = Engine(CORES, table, now=0, core=MAKERS[maker](table))
    widths = [*((*grow, True) for grow in grows), *((*shrink, False) for shrink in shrinks)]
    world.submit(cores=2, request=120, run=50, widths=widths)
    for moment, what, number, cores in sorted(deeds):
        live_until(world, moment)
        if what == "grow":
            job = world.clients[0]
            if not job.state.is_final and world.widths.of(0) + cores <= CORES:
                world.widths.grow(0, cores)
        elif number < len(world.clients):
            world.cancel(number) if what == "cancel" else world.widths.resize(number, cores)
        runs = (world.start >= 0) & (world.start + table.run > world.now)
        mine = sum(job.cores for job in world.clients if job.state is JobState.RUNNING)
        assert world.free_cores + int(table.cores[runs].sum()) + mine == CORES
        assert world.free_cores >= 0
    live_until(world, 1000)
    assert world.free_cores == CORES
    assert min(world.start, default=0) >= 0
    first = world.clients[0]
    stood = sum(lasted for _, lasted in first.stood)
    assert first.state is not JobState.COMPLETED or first.end == first.start + 50 + stood or not deeds
    assert all(job.state.is_final and job.end <= max(first.end, 0) for job in world.clients[1:])


def test_a_job_that_is_requeued_loses_what_joined_it():
    """At 20 all cores but one fail; the job restarts at 60, and cores that had not joined yet join then."""
    table = JobTable(*(np.array([value], dtype=np.int64) for value in (500, 1, 1, 1)))
    cluster = Cluster({"cores": CORES}, [Outage(20, {"cores": 7}, 60)])
    world = Engine(CORES, table, now=0, core=GeneralCore(Load(table, cluster), Policy()))
    job = world.submit(cores=4, request=100, run=50, widths=[(10, 6, True)])
    joined = world.widths.grow(job, 2)
    late = world.widths.grow(job, 4)
    live_until(world, 5)
    assert (world.widths.of(job), world.clients[late].state) == (6, JobState.PENDING)
    live_until(world, 30)
    assert {one.state for one in world.clients} == {JobState.PENDING}
    assert world.queued.tolist() == [1], "what is to join it waits for its start"
    live_until(world, 61)
    assert [one.start for one in world.clients] == [60, 60, -1]
    live_until(world, 200)
    assert [(one.state, one.end) for one in world.clients] == [
        (JobState.COMPLETED, 110),
        (JobState.COMPLETED, 110),
        (JobState.CANCELLED, 110),
    ]
    assert (world.clients[job].start, world.clients[joined].start, world.free_cores) == (60, 60, CORES)


def test_a_job_that_is_preempted_with_what_joined_it_comes_back_with_it():
    """At 20 a job of higher quality needs the whole machine for 10 s; the job ends sooner than the joined cores."""
    table = JobTable(*(np.array([value], dtype=np.int64) for value in (20, 10, 10, CORES)))
    load = Load(table, Cluster({"cores": CORES}), qos=[1])
    world = Engine(CORES, table, now=0, core=GeneralCore(load, Policy(preempt="requeue")))
    job = world.submit(cores=4, request=100, run=50)
    live_until(world, 10)
    world.widths.resize(job, 3)
    other = world.widths.grow(job, 2)
    live_until(world, 25)
    assert [one.state for one in world.clients] == [JobState.PENDING] * 2
    assert world.free_cores == 0
    until_the_end(world)
    assert [(one.start, one.end) for one in world.clients] == [(30, 80), (30, 80)]
    assert world.clients[other].state is JobState.COMPLETED
    assert world.free_cores == CORES
