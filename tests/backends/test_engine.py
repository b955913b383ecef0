"""The event engine, compared with a simple queue, and by hand."""

import csv
import gzip
import importlib.util
import itertools
import sys

import asa.backends.simulated.engine as engine_module
import numpy as np
import pytest
from asa.backends.simulated.client import Need
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.fast import FastCore
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import NEVER, Engine, JobTable
from asa.backends.simulated.policies import Easy, Fcfs, NoBackfill, Policy
from asa.backends.simulated.presets import PRESETS
from asa.backends.simulated.swf import read_swf
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_queue import PlainQueue, simulate

from asa.backend import DependencyType, JobState
from asa.errors import InputError

CAPACITY = 8


def general_core(capacity, table, *, backfill, now):
    """Make the core of every other discipline do first come first served on one pool."""
    policy = Policy(Fcfs(), Easy() if backfill else NoBackfill())
    return GeneralCore(Load(table, Cluster({"cores": capacity})), policy, now=now)


@pytest.fixture(params=["compiled", "plain", "general"], autouse=True)
def core(request, monkeypatch, plain_cores):
    """Each test runs on the compiled fast core, on the same in plain Python, and on the general core."""
    if request.param == "compiled" and not importlib.util.find_spec("numba"):
        pytest.skip("numba is not installed")
    if request.param == "plain":
        monkeypatch.setattr(engine_module, "_fast_core", lambda: plain_cores("fast").FastCore)
    if request.param == "general":
        monkeypatch.setattr(engine_module, "_fast_core", lambda: general_core)


AFTEROK, AFTERANY, AFTER = DependencyType.AFTEROK, DependencyType.AFTERANY, DependencyType.AFTER


def table(jobs):
    columns = np.array(jobs, dtype=np.int64).reshape(-1, 4).T
    return JobTable(*(column.copy() for column in columns))


def idle(**options):
    """Make a machine of 8 cores without other users."""
    return Engine(CAPACITY, table([]), **options)


def until_the_end(engine):
    while engine.advance(NEVER):
        pass
    return engine


backgrounds = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 12), st.integers(1, CAPACITY)),
    min_size=1,
    max_size=25,
).map(lambda jobs: sorted(jobs, key=lambda job: job[0]))


@pytest.mark.full
@settings(max_examples=400)
@given(backgrounds, st.booleans())
def test_every_start_equals_the_plain_queues(jobs, backfill):
    """The order is first come, first served, with and without EASY backfilling."""
    engine = until_the_end(Engine(CAPACITY, table(jobs), backfill=backfill))
    assert engine.start.tolist() == simulate(CAPACITY, jobs, backfill=backfill)


kinds = st.sampled_from(list(DependencyType))
tokens = st.frozensets(st.sampled_from("ab"), max_size=1)
jobs_of_a_client = st.fixed_dictionaries(
    {
        "cores": st.integers(1, CAPACITY),
        "request": st.integers(1, 15),
        "run": st.integers(1, 17),
        "exit_code": st.sampled_from([0, 0, 0, 1]),
        "begin": st.sampled_from([0, 0, 0, 20, 35]),
        "held": st.sampled_from([False] * 8 + [True]),
        "awaits": tokens,
        "posts": tokens,
    }
)
deeds = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.one_of(
            st.tuples(
                st.just("submit"), jobs_of_a_client, st.lists(st.tuples(st.integers(0, 9), kinds, st.integers(0, 8)))
            ),
            st.tuples(st.sampled_from(["cancel", "hold", "release"]), st.integers(0, 9)),
        ),
    ),
    min_size=1,
    max_size=12,
).map(lambda drawn: sorted(drawn, key=lambda deed: deed[0]))


def do(queue, deed, make_need):
    """Let a client perform an action on existing jobs."""
    known = len(queue.clients)
    if deed[0] == "submit":
        needs = tuple(
            make_need(on, kind, delay * (kind is AFTER), kind is AFTER and delay % 2 == 1)
            for on, kind, delay in deed[2][:2]
            if on < known
        )
        queue.submit(**deed[1], needs=needs)
    elif deed[1] < known:
        getattr(queue, deed[0])(deed[1])


@pytest.mark.full
@settings(max_examples=250)
@given(backgrounds.map(lambda jobs: jobs[:12]), deeds, st.booleans(), st.booleans())
def test_clients_jobs_fare_as_in_the_plain_queue(jobs, acts, age_accrues, backfill):
    """Dependencies, begin times, holds, cancellations, tokens, both age rules: all times of all jobs are equal."""
    engine = Engine(CAPACITY, table(jobs), age_accrues=age_accrues, backfill=backfill, now=0)
    for moment, together in itertools.groupby(acts, key=lambda act: act[0]):
        while engine.advance(moment) or engine.now < moment:
            pass
        for _, deed in together:
            do(engine, deed, Need)
        engine = engine.fork()  # nothing is lost by copying
    while engine.advance(400) or engine.now < 400:
        pass
    plain = PlainQueue(CAPACITY, jobs, age_accrues, backfill)
    for second in range(401):
        todo = [deed for moment, deed in acts if moment == second]
        plain.second(lambda queue, todo=todo: [do(queue, deed, lambda *need: need) for deed in todo])
    assert engine.start.tolist() == [job.start for job in plain.others]
    assert [(j.state.value, j.start, j.payload_start, j.end) for j in engine.clients] == [
        (j.state, j.start, j.payload, j.end) for j in plain.clients
    ]


@given(backgrounds)
def test_invariants(jobs):
    """Capacity is never exceeded, no job starts before its submission, and each runs once, within its request."""
    engine = until_the_end(Engine(CAPACITY, table(jobs)))
    starts = engine.start
    ends = starts + engine.table.run
    assert np.all(starts >= engine.table.submit)
    assert np.all(engine.table.run <= engine.table.request)
    for second in starts.tolist():
        assert engine.table.cores[(starts <= second) & (ends > second)].sum() <= CAPACITY
    assert engine.free_cores == CAPACITY
    assert engine.exhausted
    assert len(engine.queued) == 0


@given(backgrounds, st.integers(0, 40))
def test_a_fork_goes_its_own_way(jobs, moment):
    """Both forks have the same future; actions in one do not affect the other."""
    engine = Engine(CAPACITY, table(jobs))
    engine.advance(moment)
    twin, third = engine.fork(), engine.fork()
    third.submit(cores=CAPACITY, request=50, run=50)
    until_the_end(third)
    assert until_the_end(engine).start.tolist() == until_the_end(twin).start.tolist()
    assert not engine.clients


def oracle(name, data):
    folder = data.parent / "simulation"
    if not folder.is_dir():
        pytest.skip("no oracle schedules here")
    with gzip.open(folder / "oracle" / f"reference-{name}.csv.gz", "rt") as file:
        starts = [int(row["start"]) for row in csv.DictReader(file)]
    return read_swf(folder / "traces" / f"{name}.swf.gz"), starts


@pytest.mark.data
@pytest.mark.parametrize("name", ["lublin_256", "kth_sp2"])
def test_every_start_of_a_real_trace_equals_the_oracle(name, data):
    """The check covers each of tens of thousands of jobs."""
    trace, starts = oracle(name, data)
    engine = Engine(trace.cores, trace.table)
    engine.advance(NEVER)
    assert np.count_nonzero(engine.start != np.array(starts)) == 0


def test_a_job_is_killed_at_its_limit():
    """The payload needs 100 s and requested 30."""
    engine = idle()
    engine.submit(cores=1, request=30, run=100)
    until_the_end(engine)
    job = engine.clients[0]
    assert (job.state, job.end) == (JobState.TIMEOUT, 30)


def test_a_job_that_needs_exactly_its_limit_completes():
    """The limit is not exceeded."""
    engine = idle()
    engine.submit(cores=1, request=30, run=30)
    assert until_the_end(engine).clients[0].state is JobState.COMPLETED


def test_backfilling_uses_a_hole_and_never_delays_the_head():
    """Of 8 cores 6 are in use until 100, and the head needs 8: 2 cores for 100 s fit in before, 2 for 101 s do not."""
    engine = Engine(CAPACITY, table([(0, 100, 100, 6), (1, 10, 10, 8), (2, 101, 101, 2), (3, 97, 97, 2)]))
    until_the_end(engine)
    assert engine.start.tolist() == [0, 100, 110, 3]


def test_extra_cores_may_be_kept_past_the_reservation():
    """At 100 eight cores are free and the head takes 5: a long job of 2 may start now, one of 4 may not."""
    engine = Engine(CAPACITY, table([(0, 100, 100, 4), (1, 10, 10, 5), (2, 500, 500, 4), (3, 500, 500, 2)]))
    until_the_end(engine)
    assert engine.start.tolist()[:2] == [0, 100]
    assert engine.start[3] == 3
    assert engine.start[2] == 110


@pytest.mark.parametrize(
    ("kind", "delay", "exit_code", "expected"),
    [
        (AFTEROK, 0, 0, 40),
        (AFTERANY, 0, 0, 40),
        (AFTERANY, 0, 1, 40),
        (AFTER, 0, 0, 0),
        (AFTER, 25, 1, 25),
        (AFTER, 60, 0, 60),
    ],
)
def test_dependencies(kind, delay, exit_code, expected):
    """The first job runs from 0 to 40."""
    engine = idle()
    first = engine.submit(cores=1, request=50, run=40, exit_code=exit_code)
    second = engine.submit(cores=1, request=50, run=10, needs=[Need(first, kind, delay)])
    until_the_end(engine)
    assert engine.clients[second].start == expected
    assert engine.clients[second].eligible == expected


@pytest.mark.parametrize(("delay", "expected"), [(60, 40), (25, 25)])
def test_an_end_is_enough_where_the_delay_is_longer(delay, expected):
    engine = idle()
    first = engine.submit(cores=1, request=50, run=40, exit_code=1)
    second = engine.submit(cores=1, request=50, run=10, needs=[Need(first, AFTER, delay, or_end=True)])
    until_the_end(engine)
    assert (engine.clients[second].start, engine.clients[second].eligible) == (expected, expected)


def test_a_failed_dependency_is_told_and_never_starts():
    """The dependent stays pending, and the client hears of it."""
    engine = idle()
    first = engine.submit(cores=1, request=50, run=40, exit_code=1)
    second = engine.submit(cores=1, request=50, run=10, needs=[Need(first, AFTEROK)])
    told = []
    while changed := engine.advance(NEVER):
        told += changed
    assert told == [first, first, second]
    assert engine.clients[second].doomed
    assert engine.clients[second].state is JobState.PENDING


def test_a_dependency_on_what_already_ended_is_met_at_once():
    """Successful predecessors do not hold anything up."""
    engine = idle()
    first = engine.submit(cores=1, request=5, run=5)
    until_the_end(engine)
    second = engine.submit(cores=1, request=5, run=5, needs=[Need(first, AFTEROK)])
    until_the_end(engine)
    assert engine.clients[second].start == 5


BUSY = [(0, 100, 100, 8), (10, 100, 100, 8), (20, 100, 100, 8), (130, 50, 50, 8), (140, 50, 50, 8)]


@pytest.mark.parametrize(("accrues", "expected"), [(True, 200), (False, 500)])
def test_the_age_rule_decides_where_a_dependent_job_stands(accrues, expected):
    """Submitted at 5 and released at 200: by its age it is next, without it comes after all four that queue then."""
    engine = Engine(CAPACITY, table(BUSY), age_accrues=accrues)
    engine.advance(5)
    first = engine.submit(cores=8, request=100, run=100)
    second = engine.submit(cores=8, request=50, run=50, needs=[Need(first, AFTEROK)])
    until_the_end(engine)
    assert engine.clients[first].start == 100
    assert engine.clients[second].eligible == 200
    assert engine.clients[second].start == (expected)


def test_holds_keep_a_job_and_release_lets_it_go():
    """A hold on a queued job takes it out of the queue."""
    engine = Engine(CAPACITY, table([(0, 10, 10, 8)]), age_accrues=False)
    engine.advance(0)
    job = engine.submit(cores=1, request=5, run=5)
    engine.hold(job)
    engine.advance(50)
    assert engine.clients[job].state is JobState.PENDING
    engine.release(job)
    until_the_end(engine)
    assert (engine.clients[job].eligible, engine.clients[job].start) == (50, 50)


def test_cancelling_frees_the_queue_and_the_cores():
    """A cancelled head no longer blocks; a cancelled running job gives its cores back at once."""
    engine = Engine(CAPACITY, table([(0, 100, 100, 4), (3, 10, 10, 4)]))
    engine.advance(1)
    blocker = engine.submit(cores=8, request=500, run=500)
    engine.advance(2)
    engine.cancel(blocker)
    assert engine.clients[blocker].state is JobState.CANCELLED
    assert engine.advance(4) == [blocker]
    assert engine.advance(4) == []
    assert engine.start.tolist() == [0, 3]
    next_blocker = engine.submit(cores=8, request=500, run=500)
    patient = engine.submit(cores=8, request=50, run=50)
    while engine.clients[next_blocker].state is JobState.PENDING:
        engine.advance(NEVER)
    engine.advance(150)
    engine.cancel(next_blocker)
    until_the_end(engine)
    assert engine.clients[next_blocker].end == 150
    assert engine.clients[patient].start == 150


def test_a_begin_time_is_kept():
    """Even while cores idle."""
    engine = idle()
    engine.submit(cores=1, request=5, run=5, begin=77)
    until_the_end(engine)
    assert engine.clients[0].start == 77


def test_an_allocation_may_begin_before_its_payload():
    """It idles until what it awaits is posted, and is killed if that is too late."""
    engine = idle()
    engine.submit(cores=1, request=100, run=30, posts=["a"])
    early = engine.submit(cores=1, request=60, run=20, awaits=["a"])
    late = engine.submit(cores=1, request=25, run=20, awaits=["a"])
    until_the_end(engine)
    job = engine.clients[early]
    assert (job.start, job.payload_start, job.end, job.state) == (0, 30, 50, JobState.COMPLETED)
    job = engine.clients[late]
    assert (job.payload_start, job.end, job.state) == (-1, 25, JobState.TIMEOUT)


def test_a_failure_posts_nothing():
    """Its completion markers are not written."""
    engine = idle()
    engine.submit(cores=1, request=100, run=30, exit_code=2, posts=["a"])
    waiting = engine.submit(cores=1, request=60, run=20, awaits=["a"])
    until_the_end(engine)
    assert engine.clients[waiting].state is JobState.TIMEOUT


def test_control_returns_for_the_clients_events_only():
    """Events of a thousand background jobs are not reported."""
    jobs = [(i, 1, 1, 1) for i in range(1000)]
    engine = Engine(CAPACITY, table(jobs))
    engine.submit(cores=1, request=10, run=10, begin=500)
    assert engine.advance(NEVER) == [0]
    assert engine.now == 500
    assert engine.advance(505) == []
    assert engine.now == 505
    assert engine.advance(NEVER) == [0]
    assert engine.now == 510


def test_a_background_job_that_cannot_be_is_refused():
    """Zero run times and jobs wider than the machine are the reader's business."""
    with pytest.raises(ValueError, match="at least 1"):
        table([(0, 0, 5, 1)])
    with pytest.raises(ValueError, match="more than the machine"):
        Engine(4, table([(0, 1, 5, 8)]))


def test_all_cores_tell_the_same_of_a_loaded_machine(plain_cores):
    """Days of the workload model with a client's jobs, more of these than a core first has memory for."""
    table_of = PRESETS["hpc2n"].generate(3 * 86400, 1)
    outcomes = []
    for kind in (plain_cores("fast").FastCore, FastCore, general_core):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine_module, "_fast_core", lambda kind=kind: kind)
            engine = Engine(PRESETS["hpc2n"].machine.cores, table_of)
        engine.advance(2 * 86400)
        for number in range(200):
            engine.submit(cores=1 + number % 900, request=3600, run=60 + 20 * number, begin=number * 100)
        engine = engine.fork()
        until_the_end(engine)
        outcomes.append((engine.start.tolist(), [(job.state, job.start, job.end) for job in engine.clients]))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_more_jobs_than_can_be_numbered_are_refused(monkeypatch):
    """They are not scheduled wrongly."""
    monkeypatch.setattr(sys.modules[FastCore.__module__], "_MAX_JOBS", 2)
    with pytest.raises(InputError, match="3 jobs are too many"):
        FastCore(CAPACITY, table([(0, 1, 1, 1)] * 3), backfill=True, now=0)


def test_a_running_job_may_change_its_width():
    """Shrinking frees cores at once, growing takes idle ones only; the rest takes as long as the client says."""
    engine = Engine(CAPACITY, table([(0, 100, 100, 2), (10, 30, 30, 4)]))
    engine.advance(0)
    job = engine.submit(cores=6, request=200, run=100)
    assert engine.advance(20) == [job]
    engine.advance(20)
    assert engine.start.tolist() == [0, -1]
    assert engine.widths.resize(job, 2, left=120)
    engine.advance(20)
    assert engine.start.tolist() == [0, 20]
    assert not engine.widths.resize(job, 4)
    engine.advance(50)
    assert engine.free_cores == 4
    assert engine.widths.resize(job, 6, left=30)
    assert engine.free_cores == 0
    until_the_end(engine)
    assert (engine.clients[job].end, engine.clients[job].state) == (80, JobState.COMPLETED)
    assert engine.free_cores == CAPACITY
    assert not engine.widths.resize(job, 1)
    for wrong in ({"cores": 0}, {"cores": 1, "left": 0}):
        with pytest.raises(ValueError, match="cannot be"):
            engine.widths.resize(job, **wrong)


@given(backgrounds, st.lists(st.tuples(st.integers(0, 30), st.integers(1, CAPACITY)), max_size=6))
def test_resizing_never_takes_what_is_not_there(jobs, wishes):
    """Cores are conserved, and everything else goes on."""
    engine = Engine(CAPACITY, table(jobs), now=0)
    job = engine.submit(cores=4, request=60, run=40)
    for moment, cores in sorted(wishes):
        while engine.advance(moment) or engine.now < moment:
            pass
        before = engine.free_cores + engine.clients[job].cores
        if engine.widths.resize(job, cores):
            assert engine.free_cores + cores == before
        assert engine.free_cores >= 0
    until_the_end(engine)
    assert engine.free_cores == CAPACITY
    assert min(engine.start) >= 0


def test_what_is_submitted_together_is_looked_at_together():
    """Behind a blocked head, all of several jobs that a client submits at one moment may start."""
    engine = Engine(CAPACITY, table([(0, 100, 100, 5), (1, 10, 10, 8)]))
    engine.advance(2)
    jobs = [engine.submit(cores=1, request=50, run=50) for _ in range(3)]
    until_the_end(engine)
    assert [engine.clients[job].start for job in jobs] == [2, 2, 2]


@pytest.mark.parametrize("wrong", [{"cores": 0}, {"cores": -3}, {"cores": CAPACITY + 1}, {"request": 0}, {"run": -7}])
def test_a_clients_job_that_cannot_be_is_refused(wrong):
    """Nothing is taken that there is not, and nothing ends before it begins."""
    with pytest.raises(ValueError, match="cannot be"):
        idle().submit(**{"cores": 1, "request": 5, "run": 5} | wrong)


def test_a_core_must_be_of_the_same_machine():
    """It must also have the same jobs."""
    table_of = table([(0, 1, 1, 1)])
    core = FastCore(CAPACITY, table_of, backfill=True, now=0)
    for capacity, jobs in ((CAPACITY + 1, table_of), (CAPACITY, table([(0, 1, 1, 1)]))):
        with pytest.raises(ValueError, match="another machine"):
            Engine(capacity, jobs, core=core)


def test_a_job_that_shrinks_gives_cores_back_at_its_moments():
    """These are counted from the beginning of its payload, and waiting jobs get the cores."""
    engine = Engine(CAPACITY, table([(0, 30, 30, 8), (5, 10, 10, 4), (6, 10, 10, 6)]))
    job = engine.submit(cores=8, request=100, run=60, awaits=["go"], widths=[(20, 4, False), (40, 2, False)])
    engine.submit(cores=1, request=50, run=35, posts=["go"], is_local=True)
    until_the_end(engine)
    assert (engine.clients[job].start, engine.clients[job].payload_start, engine.clients[job].end) == (30, 35, 95)
    assert engine.start.tolist() == [0, 55, 75]


def test_a_job_that_is_cancelled_or_ends_early_does_not_shrink_any_more():
    engine = idle()
    first = engine.submit(cores=8, request=10, run=60, widths=[(20, 4, False)])
    until_the_end(engine)
    assert (engine.clients[first].state, engine.clients[first].cores) == (JobState.TIMEOUT, 8)
    second = engine.submit(cores=8, request=100, run=60, widths=[(20, 4, False), (21, 6, False)])
    soon = engine.now + 21
    while engine.now < soon:
        engine.advance(soon)
    assert engine.clients[second].cores == 4, "it never grows again"
    engine.cancel(second)
    until_the_end(engine)
    assert engine.free_cores == CAPACITY


@given(backgrounds, st.lists(st.tuples(st.integers(0, 30), st.integers(1, CAPACITY)), max_size=4))
def test_shrinking_conserves_cores(jobs, shrinks):
    engine = Engine(CAPACITY, table(jobs), now=0)
    job = engine.submit(cores=6, request=60, run=40, widths=[(*shrink, False) for shrink in shrinks])
    until_the_end(engine)
    assert engine.free_cores == CAPACITY
    assert min(engine.start) >= 0
    assert engine.clients[job].end == engine.clients[job].start + 40
    assert engine.clients[job].cores == min([6, *(cores for _, cores in shrinks)])
