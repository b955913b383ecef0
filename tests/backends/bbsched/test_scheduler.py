"""The window scheduler on the engine: the starts of jobs."""

import numpy as np
import pytest
from asa.backends.bbsched.methods import METHODS, BBSched, load_method
from asa.backends.bbsched.scheduler import WindowScheduler, make_load
from asa.backends.bbsched.system import JobKind, System
from asa.backends.simulated.cluster import Cluster, Load, Outage
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import F1, Easy, Fcfs, Multifactor, Policy, Sjf, Wfp
from asa.backends.simulated.table import NEVER, JobTable
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.errors import InputError

NODES, BUFFER = 20, 50
SHARED = System(NODES, {"burst buffer": BUFFER})
MIXED = System([JobKind(12, {"ssd": 128}), JobKind(8, {"ssd": 256})], {"burst buffer": BUFFER})
UNBOUND = 10**9


@st.composite
def loads(draw, system=SHARED, most=40):
    count = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dense = draw(st.sampled_from([1, 20, 200]))
    submit = np.sort(rng.integers(0, dense * count + 1, count))
    run = rng.integers(1, 200, count)
    request = run + rng.integers(0, 200, count) * rng.integers(0, 2, count)
    per_node = {"ssd": rng.integers(0, 257, count)} if system.per_node else {}
    max_nodes = np.where(per_node["ssd"] > 128, 8, NODES) if per_node else NODES // 2
    nodes = np.where(rng.random(count) < 0.5, rng.integers(1, 4, count), rng.integers(1, max_nodes + 1, count))
    buffer = np.where(rng.random(count) < 0.4, rng.integers(1, BUFFER + 1, count), 0)
    return JobTable(submit, run, request, nodes), {"burst buffer": buffer, **per_node}


def ran(table, demands, scheduler, outages=()):
    load = make_load(scheduler.system, table, demands)
    load.cluster = Cluster(load.cluster.pools, outages)
    core = GeneralCore(load, scheduler, now=0)
    core.run(NEVER - 1)
    return core


def run(table, demands, scheduler, outages=()):
    return ran(table, demands, scheduler, outages).start.copy()


def used(table, start, amounts, moment):
    return int(amounts[(start <= moment) & (moment < start + table.run)].sum())


class WidestOfTheYoung:
    """A custom order."""

    def scores(self, view):
        return view.demand[view.queue, 0] + view.submit[view.queue] / 7


ORDERS = {
    "fcfs": Fcfs(),
    "wfp": Wfp(),
    "sjf": Sjf(),
    "f1:number=3": F1(3),
    "multifactor:size=20000,half_life_s=300": Multifactor(size=20000.0, half_life_s=300),
}


@pytest.mark.parametrize("order", [*ORDERS, "custom"])
@given(loads(), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_the_baseline_with_a_window_that_holds_all_is_plain_easy_in_any_order(order, load, seed):
    """A larger window than the queue, under the naive method, is the base scheduler itself."""
    table, demands = load
    users = np.random.default_rng(seed).integers(0, 4, len(table))
    scheduler = WindowScheduler(
        SHARED, load_method("baseline", SHARED), order="fcfs" if order == "custom" else order, window=UNBOUND,
        starvation_bound=UNBOUND,
    )  # fmt: skip
    if order == "custom":
        scheduler.base_order = WidestOfTheYoung()
    plain = Load(table, Cluster({"nodes": NODES, "burst buffer": BUFFER}), amounts=demands, users=users)
    both = [
        GeneralCore(plain, Policy(ORDERS.get(order, WidestOfTheYoung()), Easy()), now=0),
        GeneralCore(make_load(SHARED, table, demands, users), scheduler, now=0),
    ]
    for core in both:
        core.run(NEVER - 1)
    assert both[0].start.tolist() == both[1].start.tolist()


@pytest.mark.parametrize("method", [name for name in METHODS if name != "constrained-ssd"])
@given(loads(), st.sampled_from([1, 3, 20]), st.sampled_from([1, 4, UNBOUND]))
@settings(max_examples=15, deadline=None)
def test_everybody_starts_and_nothing_is_given_out_twice(method, load, window, bound):
    table, demands = load
    scheduler = WindowScheduler(SHARED, load_method(method, SHARED), window=window, starvation_bound=bound)
    start = run(table, demands, scheduler)
    assert (start >= table.submit).all()
    for moment in start.tolist():
        assert used(table, start, table.cores, moment) <= NODES
        assert used(table, start, demands["burst buffer"], moment) <= BUFFER


@given(loads(MIXED), st.sampled_from([1, 3, 20]), st.sampled_from([1, 4, UNBOUND]))
@settings(max_examples=40, deadline=None)
def test_jobs_that_need_large_disks_get_them(load, window, bound):
    table, demands = load
    core = ran(table, demands, WindowScheduler(MIXED, BBSched(), window=window, starvation_bound=bound))
    start, taken = core.start, core.view.demand[: len(table)]
    assert (start >= table.submit).all()
    assert (taken[:, 0] == table.cores).all()
    large, small = taken[:, 1], taken[:, 0] - taken[:, 1]
    assert (large >= np.where(demands["ssd"] > 128, table.cores, 0)).all()
    assert (small >= 0).all()
    for moment in start.tolist():
        assert used(table, start, small, moment) <= 12
        assert used(table, start, large, moment) <= 8
        assert used(table, start, demands["burst buffer"], moment) <= BUFFER


def test_room_that_is_reserved_is_counted_in_nodes_that_are_there():
    """There are five small and five large nodes; six are busy, the second job waits for eight, the third takes one."""
    system = System([JobKind(5, {"ssd": 128}), JobKind(5, {"ssd": 256})], {"burst buffer": 10})
    table = JobTable(np.array([0, 1, 5, 6]), np.full(4, 100), np.full(4, 100), np.array([6, 8, 1, 1]))
    demands = {"burst buffer": np.zeros(4, np.int64), "ssd": np.array([0, 0, 0, 200])}
    for method in ("bbsched", "constrained-cpu", "baseline"):
        core = ran(table, demands, WindowScheduler(system, load_method(method, system), starvation_bound=1))
        taken = core.view.demand[:4, :2]
        assert (taken[:, 0] == table.cores).all()
        assert (taken[:, 1] >= 0).all()
        assert (taken[:, 1] <= taken[:, 0]).all()
        assert core.start[1] == 100


@given(st.lists(st.integers(0, 9), min_size=3, max_size=3), st.lists(st.integers(-5, 20), min_size=4, max_size=4))
def test_what_is_spare_is_given_out_as_nodes_that_are_free(counts, spare):
    system = System([JobKind(9, {"ssd": 1}), JobKind(9, {"ssd": 2}), JobKind(9, {"ssd": 3})], {"burst buffer": 10})
    pools = np.array([sum(counts), sum(counts[1:]), counts[2], 10, 0])
    assert system.left(pools).nodes == tuple(counts)
    left = system.left(pools, np.array([*spare, 0]))
    assert all(0 <= given <= free for given, free in zip(left.nodes, counts, strict=True))
    assert all(sum(left.nodes[kind:]) <= max(spare[kind], 0) for kind in range(3))
    assert left.shared == (min(max(spare[3], 0), 10),)


@given(loads(MIXED), st.integers(0, 10**4))
@settings(max_examples=25, deadline=None)
def test_a_copy_goes_on_as_the_first_would(load, moment):
    table, demands = load
    core = GeneralCore(make_load(MIXED, table, demands), WindowScheduler(MIXED, BBSched(), window=3), now=0)
    core.run(moment)
    twin = core.fork()
    for one in (twin, core):
        one.run(NEVER - 1)
    assert (
        core.start.tolist()
        == twin.start.tolist()
        == run(table, demands, WindowScheduler(MIXED, BBSched(), window=3)).tolist()
    )


def test_the_window_prefers_what_uses_the_machine_well():
    """Table 1's five jobs are all submitted at once."""
    system = System(100, {"burst buffer": 100})
    table = JobTable(np.zeros(5, np.int64), np.full(5, 60), np.full(5, 60), np.array([80, 10, 40, 10, 20]))
    demands = {"burst buffer": np.array([20, 85, 5, 0, 0])}
    started = {
        name: np.flatnonzero(run(table, demands, WindowScheduler(system, load_method(name, system))) == 0).tolist()
        for name in METHODS
        if name != "constrained-ssd"
    }
    assert started == {
        "baseline": [0, 3],  # the fourth by backfilling
        "weighted": [1, 2, 3, 4],
        "weighted-cpu": [0, 4],
        "weighted-bb": [1, 2, 3, 4],
        "constrained-cpu": [0, 4],
        "constrained-bb": [1, 2, 3, 4],
        "bin-packing": [0, 4],
        "bbsched": [1, 2, 3, 4],
    }


def test_what_stands_behind_the_window_is_not_selected():
    """The third job would fill the machine beside the first, but needs burst buffer for which the second waits."""
    table = JobTable(np.zeros(3, np.int64), np.full(3, 90), np.array([90, 90, 95]), np.array([13, 12, 7]))
    demands = {"burst buffer": np.array([0, 40, 30])}
    method = load_method("constrained-cpu", SHARED)
    assert run(table, demands, WindowScheduler(SHARED, method, window=3)).tolist() == [0, 90, 0]
    assert run(table, demands, WindowScheduler(SHARED, method, window=2)).tolist() == [0, 90, 180]
    shorter = JobTable(np.zeros(3, np.int64), np.full(3, 90), np.full(3, 90), np.array([13, 12, 7]))
    assert run(shorter, demands, WindowScheduler(SHARED, method, window=2)).tolist() == [0, 90, 0]  # by backfilling


def small_jobs_forever(request_s=100):
    """Return a job of the whole machine among small jobs that never leave it idle."""
    submit = np.sort(np.concatenate([np.arange(400) * 5, [12]]))
    wide = int(np.flatnonzero(submit == 12)[0])
    cores = np.full(401, 1)
    cores[wide] = NODES
    return JobTable(submit, np.full(401, 100), np.full(401, request_s), cores), wide


@pytest.mark.parametrize("bound", [1, 10, 40])
def test_a_job_that_starves_has_room_made_for_it(bound):
    table, wide = small_jobs_forever()
    nothing = {"burst buffer": np.zeros(401, np.int64)}
    method = load_method("constrained-cpu", SHARED)
    start = run(table, nothing, WindowScheduler(SHARED, method, starvation_bound=bound))[wide]
    # a pass at its submission and one each 5 s; from the last on, the longest running job ends within 100 s
    assert 12 + 5 * (bound - 1) <= start <= 15 + 5 * bound + 100
    assert run(table, nothing, WindowScheduler(SHARED, method, starvation_bound=UNBOUND))[wide] > 2000


def test_a_starving_job_that_others_overtake_has_room_made_for_it_all_the_same():
    """Under WFP the small jobs, which request little time, soon precede the wide one, which requests much."""
    table, wide = small_jobs_forever()
    request = table.request.copy()
    request[wide] = 10**6
    table = JobTable(table.submit, table.run, request, table.cores)
    nothing = {"burst buffer": np.zeros(401, np.int64)}
    method = load_method("constrained-cpu", SHARED)

    def start(bound):
        scheduler = WindowScheduler(SHARED, method, order="wfp", window=2, starvation_bound=bound)
        return run(table, nothing, scheduler)[wide]

    assert start(10) < 400
    assert start(UNBOUND) > 2000


def test_what_ends_before_the_starving_job_can_start_is_still_selected():
    """A job runs to 100 on 15 nodes, and a starving one waits for all; of the later jobs, the shorter may start."""
    submit, request = np.array([0, 1, 10, 10]), np.array([100, 50, 80, 200])
    table = JobTable(submit, request, request, np.array([15, 20, 5, 5]))
    nothing = {"burst buffer": np.zeros(4, np.int64)}
    start = run(table, nothing, WindowScheduler(SHARED, BBSched(), starvation_bound=1))
    assert start.tolist() == [0, 100, 10, 150]


def test_a_job_for_which_too_much_is_away_holds_nobody_up():
    table = JobTable(np.array([10, 11]), np.full(2, 50), np.full(2, 50), np.array([20, 5]))
    outage = Outage(0, {"nodes": 10}, 500)
    nothing = {"burst buffer": np.zeros(2, np.int64)}
    for bound in (1, UNBOUND):
        scheduler = WindowScheduler(SHARED, BBSched(), starvation_bound=bound)
        assert run(table, nothing, scheduler, [outage]).tolist() == [500, 11]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window": 0}, "window of 0"),
        ({"starvation_bound": 0}, "bound of 0"),
        ({"order": "lifo"}, "there is no scheduler 'lifo'"),
        ({"order": "bbsched"}, "'bbsched' does not decide by an order of its queue"),
        ({"order": "f1:figure=3"}, "no setting 'figure'"),
    ],
)
def test_nonsense_is_refused(settings, said):
    with pytest.raises(InputError, match=said):
        WindowScheduler(SHARED, BBSched(), **settings)


def test_a_load_must_fit_the_machine():
    table = JobTable(np.zeros(1, np.int64), np.ones(1, np.int64), np.ones(1, np.int64), np.ones(1, np.int64))
    with pytest.raises(InputError, match="burst buffer, and there are 50"):
        make_load(SHARED, table, {"burst buffer": np.array([51])})
    with pytest.raises(InputError, match="'tape', which the machine does not have"):
        make_load(SHARED, table, {"tape": np.array([1])})
    assert make_load(SHARED, JobTable(*[np.zeros(0, np.int64)] * 4), {}).demand.shape == (0, 2)
