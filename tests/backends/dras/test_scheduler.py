"""Passes on one level and on two: they keep promises, and use no knowledge of the future."""

import copy

import numpy as np
import pytest
from asa.backends.dras.agents import Actor
from asa.backends.dras.network import NetworkSize, initial
from asa.backends.dras.rewards import Capability, Capacity, SelectedJob, Waiting, read_objective, read_reward
from asa.backends.dras.rivals import AtRandom, Knapsack, Largest, bin_packing, knapsack, pack, random_fit
from asa.backends.dras.scheduler import First, Mode, OneLevel, TwoLevels
from asa.backends.simulated.cluster import Cluster, Load, Outage
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.policies import easy
from asa.backends.simulated.table import NEVER, JobTable
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.errors import InputError, UnknownNameError

NODES = 8

jobs_of_a_load = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(1, 12), st.integers(0, 8), st.integers(1, NODES)
    ),  # last: run, more, size
    min_size=1,
    max_size=14,
)


def table_of(jobs):
    """From (submit, run, request beyond that, size)."""
    submit, run, more, size = (np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True))
    return JobTable(submit, run, run + more, size)


def run(table, scheduler, nodes=NODES, **cluster):
    core = GeneralCore(Load(table, Cluster({"cores": nodes}, **cluster)), scheduler)
    core.run(NEVER - 1)
    return core.start


class Noting:
    """A chooser that records its offers and its choices."""

    def __init__(self, chooser):
        self.chooser = chooser
        self.noted = []

    def choose(self, view, jobs):
        place = self.chooser.choose(view, jobs)
        self.noted.append((view.now, jobs.tolist(), int(jobs[place])))
        return place


def network(seed, kind="pg", window=4):
    shape = NetworkSize(kind, NODES, window, (8, 6))
    parameters = initial(shape, np.random.default_rng(seed))
    parameters["last"] *= 100  # else it hardly has preferences
    return Actor(shape, parameters, scale_s=10, sample=True, seed=seed)


choosers = st.one_of(
    st.just(First()),
    st.just(Largest()),
    st.integers(0, 99).map(AtRandom),
    st.tuples(st.integers(0, 99), st.sampled_from(["pg", "dql"])).map(lambda drawn: network(*drawn)),
)


@settings(max_examples=200)
@given(jobs_of_a_load, st.integers(0, 4))
def test_the_first_of_two_levels_is_easy_backfilling(jobs, window):
    """As the engine's own pass does it, whatever the window: the oldest is always in it."""
    table = table_of(jobs)
    assert run(table, TwoLevels(First(), window=window)).tolist() == run(table, easy()).tolist()


@settings(max_examples=300)
@given(jobs_of_a_load, choosers, st.integers(1, 4))
def test_reservations_are_the_earliest_and_never_delayed(jobs, chooser, window):
    """Every start is checked from what was chosen, with no help from the scheduler."""
    table, noting = table_of(jobs), Noting(copy.deepcopy(chooser))
    scheduler = TwoLevels(noting, window=window)
    start = run(table, scheduler).tolist()
    assert min(start) >= 0
    size, request, end = (
        table.cores.tolist(),
        table.request.tolist(),
        [s + r for s, r in zip(start, table.run, strict=True)],
    )
    chosen = [job for _, _, job in noting.noted]
    assert sorted(chosen) == list(range(len(table)))  # each once
    reserved = {job: now for now, _, job in noting.noted if start[job] > now}
    for place, (now, offered, job) in enumerate(noting.noted):
        assert len(offered) <= window
        before = set(chosen[:place]) | {other for other in reserved if start[other] == now}
        runs = [other for other in before if start[other] <= now < end[other]]

        def free(moment, runs=runs, now=now):
            held = [other for other in runs if moment == now or start[other] + request[other] > moment]
            return NODES - sum(size[other] for other in held)

        waits = [other for other in reserved if reserved[other] <= now < start[other] and other in before]
        if job in reserved:
            assert not waits  # one at a time
            earliest = next(moment for moment in range(now, 1000) if free(moment) >= size[job])
            assert scheduler.promised[job] == earliest
            assert start[job] <= earliest
            assert scheduler.modes[job] is Mode.RESERVED
        else:
            assert start[job] == now
            assert scheduler.modes[job] is (Mode.BACKFILLED if waits else Mode.READY)
            assert free(now) >= size[job]
    assert set(scheduler.promised) == set(reserved)


@settings(max_examples=200)
@given(jobs_of_a_load, choosers, st.sampled_from([TwoLevels, OneLevel]), st.integers(0, 40), st.data())
def test_nothing_is_known_of_how_long_waiting_jobs_will_run(jobs, chooser, levels, moment, data):
    """Other run times of whatever had not started by then change no decision up to then."""
    table, noting = table_of(jobs), Noting(copy.deepcopy(chooser))
    start = run(table, levels(noting, window=3))
    others = [data.draw(st.integers(1, int(request))) for request in table.request]
    runs = np.where((start >= 0) & (start < moment), table.run, others)
    again = Noting(copy.deepcopy(chooser))
    run(JobTable(table.submit, runs, table.request, table.cores), levels(again, window=3))
    assert [note for note in again.noted if note[0] <= moment] == [note for note in noting.noted if note[0] <= moment]


def test_the_check_of_what_is_known_finds_a_leak():
    """Of a chooser that looks up run times."""
    table = table_of([(0, 5, 5, 8), (1, 2, 8, 4), (1, 9, 1, 4)])

    class Clairvoyant:
        def __init__(self, runs):
            self.runs = runs

        def choose(self, view, jobs):
            return int(self.runs[jobs].argmin())

    noted = []
    for runs in ([5, 2, 9], [5, 9, 2]):
        noting = Noting(Clairvoyant(np.array(runs)))
        run(JobTable(table.submit, np.array(runs), table.request, table.cores), TwoLevels(noting))
        noted.append([note for note in noting.noted if note[0] <= 1])
    assert noted[0] != noted[1]


@given(jobs_of_a_load, choosers)
def test_one_level_leaves_nothing_idle_that_somebody_could_use(jobs, chooser):
    """Whoever waits at any second would not have fitted, by a plain count."""
    table = table_of(jobs)
    start = run(table, OneLevel(copy.deepcopy(chooser), window=2))
    for second in range(int(start.max())):
        used = table.cores[(start <= second) & (start + table.run > second)].sum()
        waiting = table.cores[(table.submit <= second) & (start > second)]
        assert not len(waiting) or used + waiting.min() > NODES


def test_bin_packing_takes_the_largest_and_random_takes_any():
    """Of those that fit, at one pass."""
    table = table_of([(0, 9, 0, 3), (0, 9, 0, 6), (0, 9, 0, 2), (0, 9, 0, 5)])
    assert np.flatnonzero(run(table, bin_packing()) == 0).tolist() == [1, 2]
    alike = table_of([(0, 9, 0, 5)] * 4)
    firsts = {run(alike, random_fit(seed=seed)).tolist().index(0) for seed in range(40)}
    assert firsts == {0, 1, 2, 3}
    assert run(alike, random_fit(seed=7)).tolist() == run(alike, random_fit(seed=7)).tolist()


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(-2, 12)), max_size=9),
    st.integers(0, 25),
)
def test_no_set_of_jobs_is_worth_more_than_the_packed_one(jobs, room):
    """Against all sets."""
    sizes, worth = [size for size, _ in jobs], [value for _, value in jobs]
    chosen = pack(np.array(sizes, dtype=np.int64), np.array(worth, dtype=float), room)
    sets = [[j for j in range(len(jobs)) if bits >> j & 1] for bits in range(1 << len(jobs))]
    best = max(sum(worth[j] for j in some) for some in sets if sum(sizes[j] for j in some) <= room)
    assert sum(worth[j] for j in chosen) == best
    assert sum(sizes[j] for j in chosen) <= room


def test_optimization_starts_the_best_set_by_the_same_objective():
    """By size: 5 and 3 fill the machine, where the oldest alone would leave nodes idle; short ones for capacity."""
    table = table_of([(0, 9, 0, 7), (0, 9, 0, 5), (0, 9, 0, 3)])
    assert np.flatnonzero(run(table, knapsack()) == 0).tolist() == [1, 2]
    short = table_of([(0, 3000, 0, 5), (0, 200, 0, 4), (0, 500, 0, 4)])
    assert np.flatnonzero(run(short, knapsack(objective="capacity")) == 0).tolist() == [1, 2]
    with pytest.raises(UnknownNameError, match="capability"):
        knapsack(objective="capabillity")


def test_an_objective_is_read_with_its_weights():
    """In the order of the equation."""
    assert read_objective("capability:1,0,0.5") == Capability(1.0, 0.0, 0.5)
    assert read_objective("capacity:wait") == Capacity("wait")
    assert read_objective("capacity") == Capacity()
    assert read_objective("waiting:0,2") == Waiting(0.0, 2.0)
    assert read_reward("capability") == Capability()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("capability:1,2", r"'1,2' are no weights of capability\n.*3 numbers.*WAIT,SIZE,USED"),
        ("capability:0,0,0", "not all of them 0"),
        ("capability:1,-1,1", "no weights"),
        ("capability:", "no weights"),
        ("capability:nan,1,1", "no weights"),
        ("waiting:inf,1", "no weights of waiting"),
        ("waiting:a,b", "no weights"),
        ("capacity:1", r"nothing that Equation 2 can count\n.*capacity:wait"),
        ("capacity:", "nothing that Equation 2 can count"),
        ("capabilty:1,1,1", "Did you mean 'capability'"),
        ("waiting", r"a cost, by which only ppo learns\n.*capacity"),
    ],
)
def test_an_objective_that_cannot_be_is_refused_with_what_to_give(words, said):
    with pytest.raises(InputError, match=said):
        read_reward(words)


def test_equation_1():
    """With its weights, by hand."""
    selection = SelectedJob(4, 50, 200, np.array([60]), np.array([200]), used=12, nodes=16)
    assert Capability()(selection) == pytest.approx((50 / 200 + 4 / 16 + 12 / 16) / 3)
    assert Capability(1.0, 0.5, 0.0)(selection) == pytest.approx(50 / 200 + 0.5 * 4 / 16)
    nobody = SelectedJob(4, 0, 0, np.array([], dtype=int), np.array([], dtype=int), used=4, nodes=16)
    assert Capability()(nobody) == pytest.approx((4 / 16 + 4 / 16) / 3)


def test_equation_2():
    """In hours, of requests or waits, by hand; times of nothing count as the least."""
    selection = SelectedJob(4, 50, 200, np.array([3600, 7200]), np.array([0, 1800]), used=12, nodes=16)
    assert Capacity()(selection) == pytest.approx(-(1 + 0.5) / 2)
    assert Capacity("wait")(selection) == pytest.approx(-(60 + 2) / 2)
    nobody = SelectedJob(4, 0, 0, np.array([], dtype=int), np.array([], dtype=int), used=4, nodes=16)
    assert Capacity()(nobody) == 0.0
    with pytest.raises(InputError, match="request or wait"):
        Capacity("runtime")


@given(jobs_of_a_load, choosers, st.sampled_from([TwoLevels, OneLevel]))
def test_rewards_are_reckoned_from_queue_and_machine_after_each_selection(jobs, chooser, levels):
    """Compared with a count of all jobs."""
    table, told = table_of(jobs), []

    def reward(selection):
        told.append(selection)
        return 1.5

    noting = Noting(copy.deepcopy(chooser))
    scheduler = levels(noting, reward=reward)
    start = run(table, scheduler).tolist()
    assert scheduler.total_reward == 1.5 * len(table) == 1.5 * scheduler.selections
    for place, ((now, _, job), selection) in enumerate(zip(noting.noted, told, strict=True)):
        so_far = {other for _, _, other in noting.noted[: place + 1] if start[other] <= now}
        so_far |= {
            other
            for other, mode in scheduler.modes.items()
            if mode is Mode.RESERVED and start[other] == now and other != job
        }
        so_far |= {other for other in range(len(table)) if start[other] < now}
        there = [other for other in range(len(table)) if table.submit[other] <= now]
        waiting = [other for other in there if other not in so_far]
        used = sum(
            int(table.cores[other]) for other in so_far if start[other] >= 0 and start[other] + table.run[other] > now
        )
        assert (selection.size, selection.wait_s) == (table.cores[job], now - table.submit[job])
        assert (selection.used, selection.nodes) == (used, NODES)
        assert sorted(selection.waits_s) == sorted(now - table.submit[waiting])
        assert sorted(selection.requests_s) == sorted(table.request[waiting])
        assert selection.longest_wait_s == max(now - table.submit[[*waiting, job]])


def test_a_learner_without_a_reward_is_refused():
    """It could learn nothing."""

    class Student(First):
        def credit(self, reward): ...

        def end_instance(self): ...

    with pytest.raises(InputError, match="without a reward"):
        TwoLevels(Student())
    with pytest.raises(InputError, match="window"):
        TwoLevels(First(), window=-1)


@pytest.mark.parametrize("levels", [TwoLevels, OneLevel, lambda chooser: Knapsack(Capability())])
def test_a_machine_of_several_resources_is_refused(levels):
    """What the agent does not see, it cannot schedule."""
    table = table_of([(0, 5, 0, 2)])
    core = GeneralCore(Load(table, Cluster({"cores": 8, "gpus": 2})), levels(First()))
    with pytest.raises(InputError, match="one pool"):
        core.run(NEVER - 1)


def test_a_reservation_ends_when_its_job_is_withdrawn_or_cannot_run():
    """The queue goes on."""
    table = table_of([(0, 20, 0, 6), (1, 20, 0, 8), (2, 50, 0, 2)])
    scheduler = TwoLevels(First())
    start = run(table, scheduler, outages=[Outage(1, {"cores": 2}, 300, drain=True)])
    assert start.tolist() == [0, 300, 20]  # while 2 nodes are away, the job of 8 is passed over
    engine = Engine(NODES, table_of([(0, 30, 0, 6)]), core=None, now=0)
    scheduler = TwoLevels(First())
    first = table_of([(0, 30, 0, 6)])
    engine = Engine(NODES, first, core=GeneralCore(Load(first, Cluster({"cores": NODES})), scheduler), now=0)
    wide = engine.submit(cores=8, request=10, run=10)
    engine.advance(5)
    assert scheduler.reserved is not None
    narrow = engine.submit(cores=2, request=100, run=100)
    assert engine.advance(10) == []
    engine.cancel(wide)
    engine.advance(10)
    assert engine.clients[narrow].start == 10


def test_a_fork_goes_on_by_itself_and_shares_the_network():
    """Both go the same way, as they draw the same."""
    rng = np.random.default_rng(3)
    table = table_of([(int(rng.integers(60)), 9, 3, int(rng.integers(1, 9))) for _ in range(60)])
    actor = network(1)
    core = GeneralCore(Load(table, Cluster({"cores": NODES})), TwoLevels(actor, window=4))
    core.run(30)
    twin = core.fork()
    twin.run(NEVER - 1)
    core.run(NEVER - 1)
    assert twin.start.tolist() == core.start.tolist()
    assert twin.policy.chooser is not actor
    assert twin.policy.chooser._evaluate is actor._evaluate
