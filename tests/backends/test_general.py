"""Every discipline of the general core, compared with a cluster that is simulated second by second."""

import pickle

import numpy as np
import pytest
from asa.backends.simulated.client import Need
from asa.backends.simulated.cluster import Cluster, Load, Outage
from asa.backends.simulated.cores import fast as fast_module
from asa.backends.simulated.cores import general as general_module
from asa.backends.simulated.cores.base import Fate
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.policies import (
    F1,
    Conservative,
    Easy,
    Fcfs,
    Multifactor,
    NoBackfill,
    Periodic,
    Policy,
    Sjf,
    Wfp,
)
from asa.backends.simulated.table import NEVER, JobTable
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_cluster import PlainCluster, PlainJob, simulate

from asa.backend import DependencyType
from asa.errors import BackendError, InputError

CORES = 8


def general(pools, jobs, *, order, backfill, preempt="off", requeue=True, outages=(), partitions=1, kind=GeneralCore):
    """Schedule with the general core; return what the plain cluster returns."""
    columns = [np.array([job[name] for job in jobs], dtype=np.int64) for name in ("submit", "run", "request")]
    names = list(pools)
    first = np.array([job["demand"].get(names[0], 0) for job in jobs], dtype=np.int64)
    table = JobTable(*columns, first)
    cluster = Cluster(pools, outages, {str(p): names[0] for p in range(partitions)})
    load = Load(
        table,
        cluster,
        amounts={name: [job["demand"].get(name, 0) for job in jobs] for name in names[1:]},
        users=[job["user"] for job in jobs],
        qos=[job["qos"] for job in jobs],
        partitions=[job["partition"] for job in jobs],
    )
    core = kind(load, Policy(order, backfill, preempt, requeue))
    core.run(NEVER - 1)
    fates = {Fate.FAILED: "lost", Fate.PREEMPTED: "preempted"}
    answer = []
    for row, job in enumerate(jobs):
        start, end = int(core.start[row]), int(core.end[row])
        state = "completed" if job["run"] <= job["request"] else "timeout"
        state = fates.get(int(core.ended_by[row]), state) if end >= 0 else "pending"
        answer.append((start, end, state))
    return answer


orders = st.sampled_from(
    [
        Fcfs(),
        Sjf(),
        Wfp(),
        F1(1),
        F1(4),
        Multifactor(age=100, max_age_s=20, fair_share=1000, half_life_s=15, size=50, qos=300),
        Multifactor(age=0, fair_share=0, size=100, favor_small=True, partition=60, partition_factors=(0.5, 1.0)),
        Multifactor(age=300, max_age_s=20, fair_share=1000, half_life_s=15, fair_tree=True, users=7),
        Multifactor(age=100, max_age_s=20, fair_share=1000, half_life_s=15, users=9, period_s=6),
        Multifactor(age=500, max_age_s=20, fair_share=1000, half_life_s=9, fair_tree=True, period_s=4),
    ]
)
backfills = st.sampled_from(
    [NoBackfill(), Easy(), Conservative(), Periodic(7, 2, 40, 1), Periodic(5, 20, 1000, 4), Periodic(3, 1, 15, 3)]
)
jobs_of_a_load = st.lists(
    st.fixed_dictionaries(
        {
            "submit": st.integers(0, 25),
            "run": st.integers(1, 12),
            "request": st.integers(1, 14),
            "demand": st.fixed_dictionaries({"cores": st.integers(1, CORES), "bb": st.sampled_from([0, 0, 1, 3, 5])}),
            "user": st.integers(0, 2),
            "qos": st.sampled_from([0, 0, 1, 2]),
            "partition": st.integers(0, 1),
        }
    ),
    min_size=1,
    max_size=12,
).map(lambda jobs: sorted(jobs, key=lambda job: job["submit"]))
outages_of_a_load = st.lists(
    st.builds(
        lambda begin, lasts, cores, bb, drain: Outage(
            begin, {"cores": cores, "bb": bb}, begin + lasts if lasts else NEVER, drain
        ),
        st.integers(0, 30),
        st.integers(0, 15),
        st.integers(1, CORES),
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=2,
)
POOLS = {"cores": CORES, "bb": 5}


@settings(max_examples=300)
@given(jobs_of_a_load, orders, backfills)
def test_every_discipline_equals_the_plain_cluster(jobs, order, backfill):
    """On a machine of one partition and two pools."""
    for job in jobs:
        job["partition"] = 0
    expected = simulate(POOLS, jobs, order=order, backfill=backfill)
    assert general(POOLS, jobs, order=order, backfill=backfill) == expected


@pytest.mark.parametrize("backfill", [Periodic(5, 40, 60, 4), Periodic(3, 15, 1000, 1)], ids=lambda b: f"{b.depth}")
@pytest.mark.parametrize("seed", range(4))
def test_jobs_that_ask_for_the_same_or_more_are_planned_each_on_its_own(seed, backfill):
    """Periodic backfilling does not try again what a job that asks for no more could not have."""
    rng = np.random.default_rng(seed)
    jobs = [
        {
            "submit": submit,
            "run": int(rng.integers(1, 12)),
            "request": int(rng.choice([12, 13, 15, 20])),
            "demand": {"cores": int(rng.choice([1, 2, 3, 5])), "bb": int(rng.choice([0, 0, 2, 3]))},
            "user": 0,
            "qos": 0,
            "partition": 0,
        }
        for submit in sorted(rng.integers(0, 40, 60).tolist())
    ]
    expected = simulate(POOLS, jobs, order=Fcfs(), backfill=backfill)
    assert general(POOLS, jobs, order=Fcfs(), backfill=backfill) == expected


def narrow(*jobs):
    """Make jobs of one user and partition, each given as (submit, run, cores, bb, qos)."""
    return [
        {"submit": s, "run": r, "request": r, "demand": {"cores": c, "bb": b}, "user": 0, "qos": q, "partition": 0}
        for s, r, c, b, q in jobs
    ]


@settings(max_examples=300)
@given(
    jobs_of_a_load,
    orders,
    backfills,
    st.sampled_from(["off", "requeue", "cancel"]),
    st.booleans(),
    outages_of_a_load,
)
@example(  # what is overdrawn in a pool that a job does not ask for is not missing to it
    narrow((0, 9, 2, 5, 0), (4, 9, 4, 0, 0), (5, 3, 2, 0, 1)),
    Fcfs(),
    NoBackfill(),
    "requeue",
    True,
    [Outage(5, {"cores": 2, "bb": 1}, NEVER, drain=True)],
)
def test_partitions_outages_and_preemption_too(jobs, order, backfill, preempt, requeue, outages):
    """All three together."""
    rules = {"preempt": preempt, "requeue": requeue, "outages": outages, "partitions": 2}
    expected = simulate(POOLS, jobs, order=order, backfill=backfill, **rules)
    assert general(POOLS, jobs, order=order, backfill=backfill, **rules) == expected


@settings(max_examples=100)
@given(
    jobs_of_a_load, orders, backfills, st.sampled_from(["off", "requeue", "cancel"]), st.booleans(), outages_of_a_load
)
def test_compiled_or_not_it_is_one_function(plain_cores, jobs, order, backfill, preempt, requeue, outages):
    """The uncompiled source gives the same."""
    rules = {"preempt": preempt, "requeue": requeue, "outages": outages, "partitions": 2}
    plain = plain_cores("general").GeneralCore
    expected = general(POOLS, jobs, order=order, backfill=backfill, kind=plain, **rules)
    assert general(POOLS, jobs, order=order, backfill=backfill, **rules) == expected


class ByHand:
    """EASY on one pool as another package might write it, called at each pass."""

    def schedule(self, view):
        queue = view.queue.tolist()
        while queue and view.demand[queue[0], 0] <= view.free[0]:
            view.start(queue.pop(0))
        if not queue:
            return
        need, free = view.demand[queue[0], 0], int(view.free[0])
        for job in view.running.tolist():
            free += int(view.demand[job, 0])
            if free >= need:
                shadow = int(view.expected_end[job])
                break
        ends = view.expected_end[view.running] <= shadow
        extra = int(view.free[0] + view.demand[view.running, 0][ends].sum() - need)
        for job in queue[1:]:
            width = int(view.demand[job, 0])
            if width <= view.free[0] and (view.now + view.request[job] <= shadow or width <= extra):
                extra -= width * int(view.now + view.request[job] > shadow)
                view.start(job)


class HeadOnly:
    """Start the head by hand, and leave the rest to the built-in pass."""

    def schedule(self, view):
        if len(view.queue) and np.all(view.demand[view.queue[0]] <= view.free):
            view.start(view.queue[0])
        view.backfill()


class Widest:
    """An order of a user's own."""

    def scores(self, view):
        return view.demand[view.queue, 0].astype(float)


def one_pool(jobs):
    return [{**job, "demand": {"cores": job["demand"]["cores"]}, "partition": 0} for job in jobs]


def load_of(jobs, cluster, **columns_too):
    columns = [np.array([job[name] for job in jobs], dtype=np.int64) for name in ("submit", "run", "request")]
    return Load(JobTable(*columns, np.array([job["demand"]["cores"] for job in jobs])), cluster, **columns_too)


@given(jobs_of_a_load, st.sampled_from([ByHand, HeadOnly]), st.integers(0, 40))
def test_a_scheduler_of_ones_own_sees_and_does_what_ours_do(jobs, scheduler, moment):
    """At each pass it sees the views and starts jobs, also after a fork."""
    expected = simulate({"cores": CORES}, one_pool(jobs), order=Fcfs(), backfill=Easy())
    core = GeneralCore(load_of(jobs, Cluster({"cores": CORES})), scheduler())
    core.run(moment)
    twin = core.fork()
    for each in (core, twin):
        each.run(NEVER - 1)
        assert each.start.tolist() == [start for start, _, _ in expected]


class Drifting:
    """An order that changes from second to second."""

    def scores(self, view):
        return (7.0 * view.now + 5.0 * view.queue) % 11


@given(jobs_of_a_load, backfills, st.booleans(), st.sampled_from(["off", "requeue", "cancel"]))
def test_an_order_of_ones_own_sorts_the_queue(jobs, backfill, drifts, preempt):
    """It computes scores with numpy between kernels; the highest is first at every pass, also after a fork."""
    jobs = one_pool(jobs)
    widths = [job["demand"]["cores"] for job in jobs]
    rank = (lambda number, now: (7.0 * now + 5.0 * number) % 11) if drifts else (lambda number, _now: widths[number])
    expected = simulate({"cores": CORES}, jobs, order=Fcfs(), backfill=backfill, preempt=preempt, priority_of=rank)
    load = load_of(jobs, Cluster({"cores": CORES}), qos=[job["qos"] for job in jobs])
    core = GeneralCore(load, Policy(Drifting() if drifts else Widest(), backfill, preempt))
    core.run(NEVER - 1)
    assert core.start.tolist() == [start for start, _, _ in expected]


def test_a_planner_may_ask_to_be_woken():
    """It starts each job ten seconds after its submission, when nothing else happens."""

    class Patient:
        def schedule(self, view):
            for job in view.queue.tolist():
                if view.submit[job] + 10 <= view.now:
                    view.start(job)
                else:
                    view.wake_at(int(view.submit[job]) + 10)

    jobs = [
        {"submit": at, "run": 3, "request": 3, "demand": {"cores": 1}, "user": 0, "qos": 0, "partition": 0}
        for at in (0, 4, 30)
    ]
    core = GeneralCore(load_of(jobs, Cluster({"cores": CORES})), Patient())
    core.run(NEVER - 1)
    assert core.start.tolist() == [10, 14, 40]


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        (lambda view: view.start(1), "does not fit"),
        (lambda view: view.start(2), "not in the queue"),
        (lambda view: [view.start(0), view.start(0)], "not in the queue"),
        (lambda view: view.wake_at(view.now), "later time"),
    ],
)
def test_a_scheduler_that_errs_is_told(deed, words):
    """Errors are to start too much, or a job twice."""

    class Wrong:
        def schedule(self, view):
            view.start(0) if deed(view) == "" else None

    shape = {"run": 9, "request": 9, "user": 0, "qos": 0, "partition": 0}
    jobs = [{"submit": at, "demand": {"cores": cores}, **shape} for at, cores in ((0, 4), (0, 8), (5, 1))]
    cluster = Cluster({"cores": CORES}, [Outage(0, {"cores": 4}, 50, drain=True)])
    core = GeneralCore(load_of(jobs, cluster), Wrong())
    with pytest.raises(BackendError, match=words):
        core.run(NEVER - 1)


def test_the_views_are_read_only_and_not_copies():
    """They show the engine's own memory."""
    seen = {}

    class Curious:
        def schedule(self, view):
            for name in ("submit", "request", "demand", "free", "capacity", "running", "expected", "queue"):
                array = getattr(view, {"expected": "expected_end"}.get(name, name))
                seen[name] = np.shares_memory(array, core._arrays[name]) and not array.flags.writeable
            view.start(view.queue[0])

    shape = {"run": 9, "request": 9, "demand": {"cores": 1}, "user": 0, "qos": 0, "partition": 0}
    core = GeneralCore(load_of([{"submit": at, **shape} for at in (0, 3)], Cluster({"cores": CORES})), Curious())
    core.run(5)
    assert all(seen.values())
    assert len(seen) == 8


def test_a_client_hears_of_preemption_and_failure():
    """Its job is requeued by a better one, then lost to an outage, and what waited for it is released."""
    shape = {"request": 50, "user": 0, "partition": 0}
    jobs = [{"submit": 10, "run": 20, "demand": {"cores": 8}, "qos": 1, **shape}]
    cluster = Cluster({"cores": CORES}, [Outage(40, {"cores": 8}, 60)])
    columns = [np.array([job[name] for job in jobs], dtype=np.int64) for name in ("submit", "run", "request")]
    table = JobTable(*columns, np.array([8]))
    core = GeneralCore(Load(table, cluster, qos=[1]), Policy(preempt="requeue", requeue=False))
    engine = Engine(CORES, table, core=core, now=0)
    first = engine.submit(cores=4, request=100, run=100)
    second = engine.submit(cores=4, request=100, run=10, needs=[Need(first, DependencyType.AFTERANY)])
    told = []
    while changed := engine.advance(NEVER):
        told += [(engine.now, job, engine.clients[job].state.value, engine.clients[job].reason) for job in changed]
    assert told == [
        (0, first, "running", ""),
        (10, first, "pending", "Preempted"),
        (30, first, "running", ""),
        (40, first, "failed", "NodeFail"),
        (60, second, "running", ""),
        (70, second, "completed", ""),
    ]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Cluster({}), "no pool"),
        (lambda: Cluster({"cores": 4}, [Outage(0, {"nodes": 1})]), "no pool 'nodes'"),
        (lambda: Cluster({"cores": 4}, partitions={"batch": "batch"}), "no pool 'batch'"),
        (lambda: Outage(5, {"cores": 1}, 5), "cannot be"),
        (lambda: Load(table_of(5), Cluster({"cores": 4})), "asks for"),
        (lambda: Load(table_of(4), Cluster({"cores": 4}), partitions=[1]), "partitions 1 to 1"),
        (lambda: Load(table_of(4), Cluster({"cores": 4}), amounts={"bb": [1]}), "no pool 'bb'"),
        (lambda: Load(table_of(4), Cluster({"cores": 4}), users=[1, 2]), r"\(2,\) for 1 jobs"),
        (lambda: Load(table_of(4, run=9), Cluster({"cores": 4})), "longer than its request"),
        (lambda: Periodic(interval_s=0), "below 1"),
        (lambda: Multifactor(half_life_s=0), "less than a second"),
        (lambda: F1(9), "no F9"),
        (lambda: Policy(Fcfs(), "easy"), "no order, backfilling"),
        (lambda: Policy(preempt="foo"), "no order, backfilling"),
        (lambda: GeneralCore(Load(table_of(4), Cluster({"cores": 4})), Policy(Wfp(7))), "no pool 7"),
        (lambda: GeneralCore(Load(table_of(4), Cluster({"cores": 4})), "easy"), "no scheduler"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    """With words."""
    with pytest.raises(InputError, match=words):
        make()


def table_of(cores, run=3):
    columns = [np.array([value]) for value in (0, run, 5, cores)]
    return JobTable(*columns, keep_overruns=True)


def crowd(kind, policy):
    """Run many clients' jobs that are resized, preempted, ended by outages and requeued, next to other users' jobs."""
    rng = np.random.Generator(np.random.PCG64(5))
    rows = 60
    columns = [np.sort(rng.integers(0, 900, rows)), *(rng.integers(1, 90, rows) for _ in range(2))]
    table = JobTable(*columns, rng.integers(1, CORES + 1, rows))
    away = [Outage(100 * i, {"cores": 5}, 100 * i + 30, drain=bool(i % 3)) for i in range(1, 15)]
    load = Load(table, Cluster({"cores": CORES}, away), qos=rng.integers(0, 3, rows))
    engine = Engine(CORES, table, core=kind(load, policy), now=0)
    for step in range(12):
        for _ in range(25):
            width, request, qos = (int(rng.integers(low, high)) for low, high in ((1, 5), (20, 90), (0, 3)))
            engine.submit(cores=width, request=request, run=request // 2, qos=qos)
        running = [n for n, job in enumerate(engine.clients) if job.state.value == "running"]
        for _ in range(40):  # the same end, foreseen again and again
            for number in running:
                engine.widths.resize(number, engine.clients[number].cores, left=5)
        if step == 5:
            engine = engine.fork()
        for number in running[:1]:
            engine.widths.resize(number, 1, left=9)
        while engine.advance(60 * step) or engine.now < 60 * step:
            pass
    while engine.advance(NEVER):
        pass
    return engine


@pytest.mark.parametrize("backfill", [NoBackfill(), Easy(), Conservative(), Periodic(7, 50, 900, 3)], ids=repr)
def test_a_crowd_of_clients_is_conserved(plain_cores, backfill):
    """Each job ends once, no core is lost or allocated for ever, and plain Python gives the same."""
    policy = Policy(Fcfs(), backfill, preempt="requeue")
    engines = [crowd(kind, policy) for kind in (GeneralCore, plain_cores("general").GeneralCore)]
    for engine in engines:
        assert engine.free_cores == CORES
        assert {job.state.value for job in engine.clients} == {"completed"}
        assert engine.start.min() >= 0
        assert len(engine.queued) == 0
    fates = [[(job.start, job.end) for job in engine.clients] for engine in engines]
    assert fates[0] == fates[1]
    assert engines[0].start.tolist() == engines[1].start.tolist()


@pytest.mark.full
@settings(max_examples=300)
@given(
    jobs_of_a_load,
    jobs_of_a_load.map(lambda jobs: jobs[:7]),
    orders,
    backfills,
    st.sampled_from(["off", "requeue", "cancel"]),
    st.booleans(),
    outages_of_a_load,
    st.integers(0, 40),
)
def test_a_clients_jobs_fare_as_anybodys(others, mine, order, backfill, preempt, requeue, outages, moment):
    """With begin times they start as jobs of one more user in the load do; also in a fork."""
    mine = [{**job, "user": 99, "submit": job["submit"] * 2 + 1} for job in mine]  # never in one second with others
    others = [{**job, "submit": job["submit"] * 2} for job in others]
    others[0]["submit"] = 0  # from there the learned functions count
    for job in (*others, *mine):
        job["demand"] = {"cores": job["demand"]["cores"]}
    plain = [PlainJob(number, **job) for number, job in enumerate([*others, *mine])]
    outages = [Outage(o.begin_s, {"cores": o.amounts["cores"]}, o.end_s, o.drain) for o in outages]
    queue = PlainCluster({"cores": CORES}, plain, order, backfill, preempt, requeue, outages, None)
    while not queue.over():
        queue.second()
    expected = {job.number: (job.start, job.end) for job in plain}
    cluster = Cluster({"cores": CORES}, outages, {"a": "cores", "b": "cores"})
    columns = {name: [job[name] for job in others] for name in ("qos",)}
    load = load_of(
        others, cluster, users=[job["user"] for job in others], partitions=[j["partition"] for j in others], **columns
    )
    core = GeneralCore(load, Policy(order, backfill, preempt, requeue))
    engine = Engine(CORES, load.table, core=core, now=0, age_accrues=False)
    for job in mine:
        engine.submit(
            cores=job["demand"]["cores"],
            request=job["request"],
            run=job["run"],
            begin=job["submit"],
            qos=job["qos"],
            partition=job["partition"],
        )
    twin = None
    while engine.advance(NEVER):
        if twin is None and engine.now >= moment:
            twin = engine.fork()
    while twin and twin.advance(NEVER):
        pass
    for each in filter(None, (engine, twin)):
        got = [(job.start, job.end) for job in each.clients]
        assert got == [expected[len(others) + i] for i in range(len(mine))]
        got = list(zip(each._core.start.tolist(), each._core.end.tolist(), strict=True))
        assert got == [expected[i] for i in range(len(others))]


def test_an_order_that_changed_at_an_extra_pass_counts_in_the_next_one():
    """At 10 the fourth job is before the third, which blocked it; the depth of the extra pass ends at the second."""
    rows = [(0, 100, 4, 0, 0), (1, 5, 8, 1, 0), (1, 5, 8, 0, 1), (2, 5, 2, 2, 1), (8, 5, 8, 2, 0), (12, 5, 8, 2, 0)]
    jobs = [
        {"submit": s, "run": r, "request": r, "demand": {"cores": c}, "user": u, "qos": 0, "partition": p}
        for s, r, c, u, p in rows
    ]
    order = Multifactor(age=0, fair_share=1000, half_life_s=100_000, period_s=10)
    rules = {"order": order, "backfill": Periodic(5, 1, 40, 1), "partitions": 2}
    expected = simulate({"cores": CORES}, jobs, **rules)
    assert expected[3][0] == 12
    assert general({"cores": CORES}, jobs, **rules) == expected


def plan(policy, jobs, pools=None, pool_of=None, outages=(), **columns):
    """Make an engine on jobs given as (submit, run, request, cores)."""
    table = JobTable(*(np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True)))
    load = Load(table, Cluster(pools or {"cores": CORES}, outages, pool_of or {}), **columns)
    return Engine(load.cluster.cores, table, core=GeneralCore(load, policy), now=0)


def until_the_end(engine):
    while engine.advance(NEVER):
        pass
    return engine


def test_a_cancelled_job_moves_no_reservation_back():
    """Other jobs keep their reservations, even if their order has changed."""
    engine = plan(Policy(Sjf(), Conservative()), [(0, 10, 10, 6), (1, 10, 10, 8), (2, 9, 9, 6)])
    engine.advance(3)
    job = engine.submit(cores=8, request=50, run=50)
    engine.advance(4)
    engine.cancel(job)
    assert until_the_end(engine).start.tolist() == [0, 10, 20]


def test_a_shrinking_job_keeps_its_promises_to_others():
    """Cores that it gives back early may move reservations forward, never back."""
    engine = plan(Policy(Fcfs(), Conservative()), [(1, 10, 10, 8), (2, 30, 30, 4)])
    job = engine.submit(cores=8, request=40, run=40)
    engine.advance(3)
    while engine.now < 5:
        engine.advance(5)
    assert engine.widths.resize(job, 4)
    until_the_end(engine)
    assert engine.start.tolist() == [40, 5]


def test_a_failure_is_not_the_fault_of_who_may_finish():
    """A job on a draining node may finish, and a failure of another node does not end it."""
    outages = [Outage(5, {"cores": 4}, 60, drain=True), Outage(10, {"bb": 1}, 20)]
    engine = plan(Policy(), [(0, 100, 100, 8)], {"cores": 8, "bb": 5}, outages=outages)
    until_the_end(engine)
    assert engine._core.end.tolist() == [100]
    assert engine._core.requeues.tolist() == [0]


def test_width_counts_in_whatever_partition():
    """WFP ranks a job of a pool of its own by its cores."""
    jobs = [(0, 10, 10, 2), (1, 10, 10, 1), (1, 10, 10, 2)]
    engine = plan(
        Policy(Wfp(), NoBackfill()),
        jobs,
        {"batch": 4, "debug": 2},
        {"batch": "batch", "debug": "debug"},
        partitions=[1, 1, 1],
    )
    assert until_the_end(engine).start.tolist() == [0, 20, 10]


@pytest.mark.parametrize("users", [[7, 7, 9], [9, 9, 7]])
def test_a_client_is_nobody_elses_user(users):
    """Its usage is zero at first, whatever user numbers the log has."""
    policy = Policy(Multifactor(age=0), NoBackfill())
    engine = plan(policy, [(0, 1000, 1000, 8), (1000, 1005, 1005, 8), (2001, 100, 100, 8)], users=users)
    engine.advance(1999)
    job = engine.submit(cores=8, request=10, run=10)
    until_the_end(engine)
    assert engine.clients[job].start == 2005


def test_a_clients_quality_of_service_counts():
    """Even if no other job has one."""
    policy = Policy(Multifactor(age=0, fair_share=0, qos=1000), NoBackfill())
    engine = plan(policy, [(0, 100, 100, 8), (1, 100, 100, 8)])
    engine.advance(5)
    job = engine.submit(cores=8, request=10, run=10, qos=9)
    until_the_end(engine)
    assert engine.clients[job].start == 100


def test_shrinking_is_always_possible():
    """Also while a drain has overdrawn the machine; and growing looks at the pool that the cores come from."""
    engine = plan(Policy(), [(500, 1, 1, 1)], outages=[Outage(5, {"cores": 4}, 50, drain=True)])
    job = engine.submit(cores=8, request=100, run=80)
    engine.advance(10)
    engine.advance(10)
    assert engine.widths.resize(job, 6)
    assert not engine.widths.resize(job, 7)
    pools = {"batch": 4, "debug": 2}
    engine = plan(Policy(), [(500, 1, 1, 1)], pools, {"batch": "batch", "debug": "debug"})
    job = engine.submit(cores=1, request=100, run=80, partition=1)
    engine.advance(10)
    assert not engine.widths.resize(job, 3)
    assert engine.widths.resize(job, 2)
    assert engine.free_cores == 4


@pytest.mark.parametrize(
    ("partition", "cores", "words"), [(2, 1, "no partition 2"), (1, 3, "asks for 3 of 2"), (0, 5, "asks for 5 of 4")]
)
def test_a_client_cannot_ask_for_what_there_is_not(partition, cores, words):
    """No such partition, or more than it has."""
    engine = plan(Policy(), [(0, 1, 1, 1)], {"batch": 4, "debug": 2}, {"batch": "batch", "debug": "debug"})
    with pytest.raises(InputError, match=words):
        engine.submit(cores=cores, request=5, run=5, partition=partition)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_client_may_come_before_the_log(number):
    """The learned functions count time from the log's first submission, and no logarithm is of less than 1."""
    engine = plan(Policy(F1(number), NoBackfill()), [(1000, 5, 5, 1)])
    jobs = [engine.submit(cores=8, request=9 - i, run=9 - i) for i in range(3)]
    until_the_end(engine)
    assert sorted(engine.clients[job].start for job in jobs) == [0, 7, 15]


def test_what_a_scheduler_leaves_out_it_may_start_on_an_overdrawn_machine():
    """Such a job needs nothing of the overdrawn pool."""

    class Greedy:
        def schedule(self, view):
            for job in view.queue.tolist():
                if np.all(view.demand[job] <= np.maximum(view.free, 0)):
                    view.start(job)

    outages = [Outage(5, {"bb": 4}, 60, drain=True)]
    engine = plan(
        Greedy(), [(0, 50, 50, 1), (10, 5, 5, 1)], {"cores": 8, "bb": 5}, outages=outages, amounts={"bb": [5, 0]}
    )
    assert until_the_end(engine).start.tolist() == [0, 10]


def test_forks_have_orders_of_their_own():
    """The state of one does not affect the other."""

    class Counting:
        def __init__(self):
            self.passes = 0

        def scores(self, view):
            self.passes += 1
            return np.full(len(view.queue), float(self.passes))

    engine = plan(Policy(Counting()), [(0, 5, 5, 8), (1, 5, 5, 8)])
    twin = engine.fork()
    until_the_end(twin)
    assert twin._core.policy.order.passes > engine._core.policy.order.passes


@settings(max_examples=150)
@given(
    jobs_of_a_load,
    orders,
    backfills,
    st.sampled_from(["off", "requeue", "cancel"]),
    st.booleans(),
    outages_of_a_load,
    st.lists(st.integers(0, 60), min_size=1, max_size=3).map(sorted),
)
def test_a_kept_moment_is_a_fork(jobs, order, backfill, preempt, requeue, outages, moments):
    """A replay that returns to a kept moment has the machine as it was, and continues in the same way."""
    columns = [np.array([job[name] for job in jobs], dtype=np.int64) for name in ("submit", "run", "request")]
    cores, bb = (np.array([job["demand"][pool] for job in jobs], dtype=np.int64) for pool in POOLS)
    table = JobTable(*columns, cores)
    owners = {name: [job[one] for job in jobs] for name, one in (("users", "user"), ("qos", "qos"))}
    cluster = Cluster(POOLS, outages, {"0": "cores", "1": "cores"})
    load = Load(table, cluster, amounts={"bb": bb}, partitions=[job["partition"] for job in jobs], **owners)
    core = GeneralCore(load, Policy(order, backfill, preempt, requeue))
    forks, kept = [], []
    for moment in moments:
        core.run(moment)
        forks.append(core.fork())
        kept.append(core.kept())
    core.run(NEVER - 1)
    for fork, moment in zip(forks, kept, strict=True):
        past = core.fork()
        past.return_to(moment)
        for _ in range(2):
            assert past.now == fork.now
            assert past.queued.tolist() == fork.queued.tolist()
            for column in ("start", "end", "ended_by", "requeues"):
                assert getattr(past, column).tolist() == getattr(fork, column).tolist()
            past.run(NEVER - 1)
            fork.run(NEVER - 1)
    core.add(1, 5)
    assert core.kept() is None  # a client's jobs are no replay's


def test_a_machine_without_cores_is_possible():
    """It is unusual, but nothing divides by its cores."""
    table = JobTable(*(np.zeros(0, dtype=np.int64) for _ in range(4)))
    core = GeneralCore(Load(table, Cluster({"cores": 0, "bb": 3})), Policy(Multifactor(size=5)))
    engine = Engine(0, table, core=core, now=0)
    with pytest.raises(ValueError, match="cannot be"):
        engine.submit(cores=1, request=5, run=5)
    assert engine.advance(10) == []


@pytest.mark.parametrize("scores", [np.ones(1), np.array([1.0, np.nan])])
def test_scores_that_mean_nothing_are_refused(scores):
    """Such as one score for all jobs, or a score that is no number."""

    class Odd:
        def scores(self, view):
            return scores

    with pytest.raises(BackendError, match="for 2 jobs"):
        plan(Policy(Odd()), [(0, 5, 5, 8), (0, 5, 5, 8)])


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_worlds_travel_between_processes(backfill, plain_cores):
    """An engine in the middle of its work continues elsewhere as it would here, also without numba."""
    jobs = [(i, 5 + i % 7, 12, 1 + i % 5) for i in range(40)]
    table = JobTable(*(np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True)))
    load = Load(table, Cluster({"cores": CORES}))
    cores = [
        make("general").GeneralCore(load, Policy(Fcfs(), backfill)) for make in (plain_cores, lambda _: general_module)
    ]
    cores += [
        make("fast").FastCore(CORES, table, backfill=True, now=0) for make in (plain_cores, lambda _: fast_module)
    ]
    for core in cores:
        engine = Engine(CORES, table, core=core, now=0)
        job = engine.submit(cores=3, request=30, run=30, begin=20)
        engine.advance(15)
        twin = pickle.loads(pickle.dumps(core))
        twin.run(NEVER - 1)
        assert twin.start.min() >= 0
        assert until_the_end(engine).clients[job].start >= 20
