"""The paper's worked example, and fronts compared with all possible sets of jobs."""

import itertools

import numpy as np
import pytest
from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.genetic import Genetic
from asa.backends.bbsched.methods import Baseline, load_method
from asa.backends.bbsched.problem import Window, WindowProblem
from asa.backends.bbsched.scheduler import WindowScheduler, make_load
from asa.backends.bbsched.system import JobKind, System
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.table import JobTable
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_window import solutions

from asa.errors import AsaError

BUFFER = "burst buffer"
TABLE1 = System(100, {BUFFER: 100})
JOBS = {"nodes": [80, 10, 40, 10, 20], BUFFER: [20, 85, 5, 0, 0]}


@pytest.mark.parametrize(
    ("method", "jobs", "nodes", "buffer"),
    [
        ("baseline", (0,), 80, 20),
        ("constrained-cpu", (0, 4), 100, 20),
        ("weighted-cpu", (0, 4), 100, 20),
        ("bin-packing", (0, 4), 100, 20),
        ("bbsched", (1, 2, 3, 4), 80, 90),
    ],
)
def test_table_1_to_the_digit(method, jobs, nodes, buffer):
    found = load_method(method, TABLE1).select(Window(TABLE1, JOBS), TABLE1.whole)
    assert (tuple(found.jobs), found.objectives[0], found.objectives[1]) == (jobs, nodes, buffer)


def test_the_naive_method_of_table_1_with_its_backfilling():
    """J2 waits for J1's burst buffer; J4 needs none, and runs beside."""
    hour = np.full(5, 3600)
    load = make_load(TABLE1, JobTable(0 * hour, hour, hour, np.array(JOBS["nodes"])), {BUFFER: np.array(JOBS[BUFFER])})
    core = GeneralCore(load, WindowScheduler(TABLE1, Baseline()))
    core.run(1)
    assert np.flatnonzero(core.start == 0).tolist() == [0, 3]


def test_the_front_of_table_1():
    front = Exact().solve(WindowProblem(Window(TABLE1, JOBS), TABLE1.whole))
    assert front.is_exact
    assert {(one.jobs, tuple(one.objectives[:2])) for one in solutions(front)} == {
        ((0, 4), (100, 20)),
        ((1, 2, 3, 4), (80, 90)),
    }


def brute(uses, room):
    """Return all sets that fit and are not dominated: each value with the first set in queue order that has it."""
    found = {}
    for chosen in itertools.product((1, 0), repeat=len(uses)):
        worth = tuple((np.array(chosen) @ uses).tolist())
        if all(a <= b for a, b in zip(worth, room, strict=True)):
            found.setdefault(worth, chosen)
    return {
        worth: chosen
        for worth, chosen in found.items()
        if not any(other != worth and all(a >= b for a, b in zip(other, worth, strict=True)) for other in found)
    }


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=10),
    st.integers(1, 30),
    st.integers(1, 25),
    st.integers(1, 12),
)
def test_fronts_are_those_of_every_set_of_jobs(jobs, nodes, buffer, power):
    system = System(30, {BUFFER: 25, "power": 12})
    uses = np.array(jobs)
    window = Window(system, {"nodes": uses[:, 0], BUFFER: uses[:, 1], "power": uses[:, 2]})
    problem = WindowProblem(window, system.free(nodes, {BUFFER: buffer, "power": power}))
    front = Exact().solve(problem)
    expected = brute(uses, (nodes, buffer, power))
    assert front.is_exact
    chosen = {
        tuple(one.objectives): tuple(int(job in one.jobs) for job in range(len(jobs))) for one in solutions(front)
    }
    assert chosen == expected
    drawn = Genetic(generations=50, seed=3).solve(problem)
    assert all(
        all(a <= b for a, b in zip(one.objectives, (nodes, buffer, power), strict=True)) for one in solutions(drawn)
    )
    assert Genetic(generations=50, seed=3).solve(problem).objectives.tolist() == drawn.objectives.tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 8), st.sampled_from([0, 64, 128, 200, 256])), min_size=1, max_size=8
    )
)
def test_local_disks_of_two_sizes(jobs):
    """Section 5: jobs that need more than 128 GB get nodes with large disks; other jobs there waste the rest."""
    system = System([JobKind(6, {"ssd": 128}), JobKind(6, {"ssd": 256})], {BUFFER: 20})
    nodes, buffer, disk = (np.array(column) for column in zip(*jobs, strict=True))
    window = Window(system, {"nodes": nodes, BUFFER: buffer, "ssd": disk})
    front = Exact().solve(WindowProblem(window, system.whole))
    fits = {}
    for chosen in itertools.product((1, 0), repeat=len(jobs)):
        picked = np.array(chosen, dtype=bool)
        large, small = int(nodes[picked & (disk > 128)].sum()), int(nodes[picked & (disk <= 128)].sum())
        over = max(small - 6, 0)
        if large + over > 6 or buffer[picked].sum() > 20:
            continue
        held = 128 * (small - over) + 256 * (large + over)
        asked = int((nodes * disk)[picked].sum())
        worth = (int(nodes[picked].sum()), int(buffer[picked].sum()), asked, asked - held)
        fits.setdefault(worth, chosen)
    best = {
        worth
        for worth in fits
        if not any(o != worth and all(a >= b for a, b in zip(o, worth, strict=True)) for o in fits)
    }
    assert {tuple(one.objectives) for one in solutions(front)} == best


@pytest.mark.parametrize(
    "make",
    [
        lambda: System(0),
        lambda: System(10, {BUFFER: -1}),
        lambda: Window(TABLE1, {"nodes": [0]}),
        lambda: Window(TABLE1, {"nodes": [1], "gpu": [1]}),
        lambda: Window(TABLE1, {}),
        lambda: Window(TABLE1, {"nodes": [101]}),
        lambda: Genetic(population=0),
        lambda: load_method("best", TABLE1),
        lambda: TABLE1.free(200),
    ],
)
def test_what_means_nothing_is_refused(make):
    with pytest.raises(AsaError):
        make()
