"""A judge that ranks jobs on any machine, and a bound for waiting."""

import copy
from itertools import pairwise

import numpy as np
import pytest
from asa.backends.dras.patient import Oldest, Patient
from asa.backends.dras.ranking import COLUMNS, JobContext, RankJudge, first_ranks, rank, rank_arrays, tell
from asa.backends.dras.rewards import Capability, Capacity, Forgone, Waiting
from asa.backends.dras.scheduler import First, Hole, Mode, TwoLevels
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.table import NEVER, JobTable
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.errors import InputError

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


def run(table, scheduler, nodes=NODES):
    core = GeneralCore(Load(table, Cluster({"cores": nodes})), scheduler)
    core.run(NEVER - 1)
    return core.start


class Drawing:
    """A judge that takes any."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def choose(self, told):
        return int(self.rng.integers(len(told)))


class Newest:
    """A judge that always takes the last to come."""

    def choose(self, told):
        return len(told) - 1


class Watching(Patient):
    """Records the reservation, whether it is final, and the pending jobs, after each pass."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.noted = []

    def _pass(self, view):
        bound = None
        super()._pass(view)
        bound = self._outlook.bound_s
        self.noted.append((view.now, self.reserved, self._is_overdue, view.queue.tolist(), bound))


judges = st.one_of(st.just(Newest()), st.integers(0, 99).map(Drawing))


@settings(max_examples=200)
@given(jobs_of_a_load, judges, st.integers(1, 5), st.sampled_from([0.0, 0.1, 0.4]))
def test_nobody_who_is_overdue_is_passed_over(jobs, judge, window, patience):
    """After each pass in which the oldest is overdue, it runs, or what is reserved is so for somebody overdue."""
    table = table_of(jobs)
    scheduler = Watching(copy.deepcopy(judge), patience=patience, window=window)
    start = run(table, scheduler)
    assert (start >= table.submit).all()
    firm = set()
    for now, reserved, _, waiting, bound in scheduler.noted:
        late = [job for job in waiting if now - table.submit[job] > bound]
        if late:
            assert reserved is not None
            assert reserved in late or reserved in firm
            firm.add(reserved)
    for job, promised in scheduler.promised.items():
        assert start[job] <= promised
        assert scheduler.modes[job] is Mode.RESERVED
    assert sorted(scheduler.modes) == list(range(len(table)))
    assert scheduler.selections == len(table)


@given(jobs_of_a_load, judges, st.integers(1, 5), st.sampled_from([0.0, 0.4, 1e9]))
def test_who_keeps_reservations_puts_none_off(jobs, judge, window, patience):
    """Overdue or not: whoever is reserved for starts by the time that was promised first."""
    table = table_of(jobs)
    scheduler = Patient(copy.deepcopy(judge), patience=patience, window=window, keeps=True)
    start = run(table, scheduler)
    reserved = [job for job, mode in scheduler.modes.items() if mode is Mode.RESERVED]
    assert sorted(scheduler.promised) == sorted(reserved)
    assert all(start[job] <= promised for job, promised in scheduler.promised.items())


@given(jobs_of_a_load, judges)
def test_with_no_patience_whoever_has_waited_goes_in_order_of_age(jobs, judge):
    """Nobody who has waited starts after one that came later, unless beside a reservation that it does not delay."""
    table = table_of(jobs)
    scheduler = Patient(copy.deepcopy(judge), patience=0.0)
    start = run(table, scheduler)
    head = [job for job in range(len(table)) if scheduler.modes[job] is not Mode.BACKFILLED]
    waited = [job for job in head if start[job] > table.submit[job]]
    assert all(start[one] <= start[other] for one, other in pairwise(waited))


def test_a_tentative_reservation_gives_way_and_a_firm_one_does_not():
    """A whole-machine job waits while a newer one that the judge prefers comes, until it is overdue."""
    jobs = [(0, 100, 0, 8), (1, 50, 0, 8), *((90 + n, 100, 0, 8) for n in range(4))]
    table = table_of(jobs)
    impatient = run(table, Patient(Newest(), patience=0.3))
    patient = run(table, Patient(Newest(), patience=5.0))
    assert impatient[1] == 100
    assert patient[1] == max(patient)
    assert run(table, Patient(Newest(), patience=5.0, keeps=True))[1] == 100


@given(jobs_of_a_load, judges, st.integers(0, 40), st.data())
def test_nothing_is_known_of_how_long_waiting_jobs_will_run(jobs, judge, moment, data):
    """Other run times of whatever had not started by then change no start up to then."""
    table = table_of(jobs)
    start = run(table, Patient(copy.deepcopy(judge), window=3))
    others = [data.draw(st.integers(1, int(request))) for request in table.request]
    runs = np.where(start < moment, table.run, others)
    again = run(JobTable(table.submit, runs, table.request, table.cores), Patient(copy.deepcopy(judge), window=3))
    assert np.where(again <= moment, again, -1).tolist() == np.where(start <= moment, start, -1).tolist()


@given(jobs_of_a_load, judges)
def test_what_waiting_costs_is_what_all_have_waited(jobs, judge):
    """Hours at their weight, and requests at theirs, by a plain sum over the starts."""
    table = table_of(jobs)
    scheduler = Patient(copy.deepcopy(judge), cost=Waiting(2.0, 3.0, min_s=5))
    waits = run(table, scheduler) - table.submit
    cost = (waits * (2.0 / 3600 + 3.0 / np.maximum(table.request, 5))).sum()
    assert -scheduler.total_reward == pytest.approx(cost)


@given(jobs_of_a_load, judges)
def test_a_reward_as_a_cost_is_what_waiting_jobs_would_add(jobs, judge):
    """Equation 2's mean over the jobs that wait, and Equation 1's nodes, second by second."""
    table = table_of(jobs)
    capacity, capability = Capacity(min_s=5, unit_s=1), Capability(0.0, 1.0, 0.5)
    costs = []
    for reward in (capacity, capability):
        scheduler = Patient(copy.deepcopy(judge), cost=Forgone(reward))
        start = run(table, scheduler)
        costs.append(-scheduler.total_reward * 3600)
    by_request = by_size = 0.0
    for second in range(int(start.max())):
        waits = (table.submit <= second) & (start > second)
        if waits.any():
            by_request += (1 / np.maximum(table.request[waits], 5)).mean()
            by_size += 1.5 * table.cores[waits].sum() / NODES
    assert costs == pytest.approx([by_request, by_size])


def test_without_level_2_nothing_is_backfilled():
    """A short job waits behind a reservation that it would not delay."""
    table = table_of([(0, 100, 0, 6), (1, 50, 0, 8), (2, 10, 0, 1)])
    with_it, without = (Patient(Oldest(), fills=fills) for fills in (True, False))
    assert run(table, with_it).tolist() == [0, 100, 2]
    assert run(table, without).tolist() == [0, 100, 150]
    assert Mode.BACKFILLED not in without.modes.values()


class View:
    """A queue and a machine, by hand."""

    def __init__(self, scale=1):
        self.now = 7200
        self.capacity, self.free = np.array([100 * scale]), np.array([40 * scale])
        self.submit = np.array([0, 3600, 7200, 0, 0])
        self.request = np.array([3600, 7200, 1800, 9000, 9000])
        self.demand = np.array([[50], [30], [10], [35], [25]]) * scale
        self.running = np.array([3, 4])
        self.expected_end = np.array([0, 0, 0, 9000, 14400])


def test_a_job_is_told_as_it_is():
    """Counted by hand."""
    outlook = JobContext(Hole(9000, 12), 3, 36_000.0, 14_400.0)
    told = dict(zip(COLUMNS, tell(View(), np.array([0, 1, 2]), outlook).T, strict=True))
    wanted = {
        "share of the nodes": [0.5, 0.3, 0.1],
        "logarithm of the request": [0, np.log(2) / 4, np.log(0.5) / 4],
        "logarithm of the wait": [np.log(3) / 4, np.log(2) / 4, 0],
        "share of the longest wait that is allowed": [0.5, 0.25, 0],
        "fits now": [0, 1, 1],
        "share of the free nodes": [0, 0.75, 0.25],
        "logarithm of the time until it fits": [np.log(1.5) / 4, 0, 0],
        "whether there is a hole to fill": [1, 1, 1],
        "ends before the hole does": [0, 0, 1],
        "needs only nodes that are spare": [0, 0, 1],
        "share of nodes that are free": [0.4] * 3,
        "share of the offered jobs that are shorter": [1 / 3, 2 / 3, 0],
        "share of the offered jobs that fit": [2 / 3] * 3,
        "share of the nodes that are free within an hour": [0.35] * 3,
    }
    for name, values in wanted.items():
        assert told[name] == pytest.approx(values), name


def test_machines_of_all_sizes_look_alike():
    """A machine of seven times as many nodes, with jobs of seven times as many."""
    jobs, outlook = np.array([0, 1, 2]), JobContext(Hole(9000, 12), 3, 36_000.0, 14_400.0)
    larger = JobContext(Hole(9000, 84), 3, 36_000.0, 14_400.0)
    np.testing.assert_allclose(tell(View(7), jobs, larger), tell(View(), jobs, outlook), rtol=1e-6)


def parameters(seed=0):
    drawn = first_ranks(np.random.default_rng(seed))
    return {name: array + np.float32(0.1) for name, array in drawn.items()}


def test_places_do_not_matter():
    """Jobs in another order have the same ranks."""
    rng = np.random.default_rng(1)
    told = rng.random((7, len(COLUMNS)), dtype=np.float32)
    order = rng.permutation(7)
    np.testing.assert_allclose(rank(parameters(), told)[order], rank(parameters(), told[order]), rtol=1e-4)


def test_the_first_ranks_are_by_request_and_size():
    """Short before long, light before heavy; half the request counts as a quarter of the nodes."""
    ranks = first_ranks(np.random.default_rng(0))
    ranks["rank"][:] = 0.0
    view = View()
    view.request = np.array([3600, 7200, 1800, 9000, 9000])
    view.demand = np.array([[40], [40], [40], [35], [25]])
    short = rank(ranks, tell(view, np.array([0, 1, 2]), JobContext()))
    assert np.argsort(-short).tolist() == [2, 0, 1]
    view.request, view.demand = np.array([1800, 3600, 1, 1, 1]), np.array([[80], [20], [0], [35], [25]])
    heavy = rank(ranks, tell(view, np.array([0, 1]), JobContext()))
    assert heavy[0] == pytest.approx(heavy[1], abs=1e-4)


def test_the_network_is_small():
    """Of any machine."""
    assert sum(int(np.prod(size)) for size in rank_arrays().values()) < 10_000


def test_one_network_schedules_machines_of_any_size():
    """The same judge on 8 nodes and on 800."""
    rng = np.random.default_rng(3)
    table = table_of([(int(rng.integers(60)), 9, 3, int(rng.integers(1, 9))) for _ in range(60)])
    judge = RankJudge(parameters())
    wide = JobTable(table.submit, table.run, table.request, table.cores * 100)
    assert run(table, Patient(judge)).tolist() == run(wide, Patient(judge), NODES * 100).tolist()


def test_a_fork_goes_on_by_itself():
    """Both go the same way, and neither waits for the other."""
    rng = np.random.default_rng(3)
    table = table_of([(int(rng.integers(60)), 9, 3, int(rng.integers(1, 9))) for _ in range(60)])
    core = GeneralCore(Load(table, Cluster({"cores": NODES})), Patient(RankJudge(parameters())))
    core.run(30)
    twin = core.fork()
    twin.run(NEVER - 1)
    core.run(NEVER - 1)
    assert twin.start.tolist() == core.start.tolist()
    assert twin.policy.judge is core.policy.judge


def test_nobody_is_overdue_before_a_wait_that_is_usual():
    """A whole-machine job gives way to newer ones for so long, and then no longer; an hour does as much as no bound."""
    table = table_of([(0, 100, 0, 8), (1, 50, 0, 8), *((90 + 100 * n, 100, 0, 8) for n in range(6))])
    starts = {
        usual_s: run(table, Patient(Newest(), patience=0.0, usual_s=usual_s))[1] for usual_s in (0, 250, 400, 3600)
    }
    assert starts == {0: 100, 250: 300, 400: 500, 3600: 700}


@pytest.mark.parametrize("settings_", [{"patience": -0.1}, {"patience": float("nan")}, {"window": -1}, {"usual_s": -1}])
def test_nonsense_is_refused(settings_):
    with pytest.raises(InputError, match="cannot be"):
        Patient(Newest(), **settings_)


def test_a_learner_without_a_cost_is_refused():
    """It could learn nothing."""

    class Pupil(Newest):
        def elapse(self, cost, seconds, now): ...

    with pytest.raises(InputError, match="without a cost"):
        Patient(Pupil())
    with pytest.raises(InputError, match="weights from 0"):
        Waiting(-1.0)


def test_it_bounds_waits_that_shortest_first_does_not():
    """Wide jobs in a stream of short ones: shortest first keeps them for the end."""
    rng = np.random.default_rng(5)
    stream = [(int(moment), 10, 5, int(rng.integers(1, 5))) for moment in np.sort(rng.integers(0, 3000, 560))]
    table = table_of([*stream, *((200 + 10 * n, 30, 30, 8) for n in range(3))])
    judge = RankJudge(first_ranks(np.random.default_rng(0)))
    longest = {
        name: int((run(table, scheduler) - table.submit).max())
        for name, scheduler in {
            "easy": TwoLevels(First()),
            "bounded": Patient(judge),
            "unbounded": Patient(judge, patience=1e9),
        }.items()
    }
    assert longest["unbounded"] > 1.5 * longest["bounded"]
    assert longest["bounded"] <= 1.5 * longest["easy"]
