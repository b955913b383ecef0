"""Machines, windows and values of selections; the local disks of Section 5; and errors."""

import numpy as np
import plain_window
import pytest
from asa.backends.bbsched.problem import Window, WindowProblem, values
from asa.backends.bbsched.system import LARGEST, NODES, Free, JobKind, System
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError, UnknownNameError

BB = "burst buffer"
DISKS = System([JobKind(50, {"ssd": 128}), JobKind(50, {"ssd": 256})], {BB: 1000})


# ---------------------------------------------------------------------- local disks


def test_jobs_prefer_small_disks_and_those_that_need_large_ones_get_them():
    """Of the last job's 60 nodes, 45 have small disks; the unused part of the 15 large disks is wasted."""
    window = Window(DISKS, {NODES: [30, 5, 60], BB: [1, 2, 3], "ssd": [200, 100, 28]})
    free = DISKS.whole
    placed = window.placed(free, [0, 1, 2])
    assert placed.tolist() == [[0, 30], [5, 0], [45, 15]]
    assert values(DISKS, free, window.uses.sum(axis=0)[None, :]).tolist() == [
        [95, 6, 30 * 200 + 5 * 100 + 60 * 28, -(30 * 56 + 5 * 28 + 45 * 100 + 15 * 228)]
    ]


@given(
    jobs=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5),
    counts=st.lists(st.integers(0, 5), min_size=3, max_size=3),
)
def test_jobs_get_nodes_so_that_least_is_wasted_of_everything(jobs, counts):
    """With three kinds of nodes and two resources, no other distribution of the jobs wastes less of either."""
    kinds = [{"ssd": 1, "gpu": 0}, {"ssd": 2, "gpu": 2}, {"ssd": 3, "gpu": 3}]
    system = System([JobKind(20, each) for each in kinds])
    nodes, ssd, gpu = (list(column) for column in zip(*jobs, strict=True))
    window = Window(system, {NODES: nodes, "ssd": ssd, "gpu": gpu})
    free = system.free(counts)
    asked = [{NODES: n, "ssd": s, "gpu": g} for n, s, g in jobs]
    best = plain_window.worth(asked, kinds, counts, {})
    every = list(range(len(jobs)))
    if best is None:
        assert (
            len(WindowProblem(window, free).jobs) < len(jobs)
            or (window.uses.sum(axis=0)[:3] > window.limits(free)).any()
        )
        with pytest.raises(InputError, match="does not fit beside the others"):
            window.placed(free, every)
        return
    placed = window.placed(free, every)
    assert (placed.sum(axis=1) == nodes).all()
    assert (placed.sum(axis=0) <= counts).all()
    wasted = [
        sum(
            int(placed[job, kind]) * (each[name] - job_asks[name])
            for job, job_asks in enumerate(asked)
            for kind, each in enumerate(kinds)
        )
        for name in ("ssd", "gpu")
    ]
    assert (sum(nodes), np.dot(nodes, ssd), np.dot(nodes, gpu), -wasted[0], -wasted[1]) == best
    assert tuple(values(system, free, window.uses.sum(axis=0)[None, :])[0].tolist()) == best


# ---------------------------------------------------------------------- what is selected in any case


def test_forced_jobs_are_taken_in_order_as_long_as_they_fit():
    system = System(100, {BB: 100})
    window = Window(system, {NODES: [10, 60, 50, 40], BB: [0, 0, 0, 0]}, [False, True, True, True])
    problem = WindowProblem(window, system.whole)
    assert problem.forced == [1, 3], "the third does not fit beside the second"
    assert problem.jobs.tolist() == []
    assert WindowProblem(window, system.free(50)).forced == [2]


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("demands", "words"),
    [
        ({}, "holds no job"),
        ({NODES: []}, "holds no job"),
        ({NODES: [1, -2]}, "job 1 of the window asks for -2 of nodes"),
        ({NODES: [0]}, "job 0 of the window asks for 0 of nodes"),
        ({BB: [5]}, "asks for 0 of nodes"),
        ({NODES: [1], BB: [-1]}, "asks for -1 of burst buffer"),
        ({NODES: [LARGEST]}, "asks for"),
        ({NODES: [1.5]}, "not whole"),
        ({NODES: [1, 1], BB: [1]}, "1 jobs say how much burst buffer they ask for, of 2"),
        ({NODES: [1, 101]}, "job 1 of the window asks for 101 of nodes, and there are 100"),
        ({NODES: [1], BB: [1001]}, "asks for 1001 of burst buffer, and there are 1000"),
        ({NODES: [51], "ssd": [129]}, "asks for 51 of nodes with as much of all else, and there are 50"),
        ({NODES: [1], "ssd": [257]}, "asks for 257 of ssd on each node, and no node has that much"),
    ],
)
def test_requests_that_mean_nothing_or_can_never_be_met_are_refused(demands, words):
    with pytest.raises(InputError, match=words) as error:
        Window(DISKS, demands)
    assert error.value.where == "window"
    assert error.value.hint


def test_a_resource_that_the_machine_does_not_have_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="'burst bufer'") as error:
        Window(DISKS, {NODES: [1], "burst bufer": [1]})
    assert "Did you mean 'burst buffer'?" in str(error.value)
    with pytest.raises(UnknownNameError, match="'ssd' is shared"):
        DISKS.free([50, 50], {"ssd": 3})
    with pytest.raises(UnknownNameError, match="gpu"):
        WindowProblem(Window(DISKS, {NODES: [1]}), DISKS.whole, ["gpu"])


def test_each_job_is_forced_or_not():
    with pytest.raises(InputError, match="1 jobs are forced or not, of 2"):
        Window(DISKS, {NODES: [1, 1]}, [True])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: System(0), "the machine's nodes: 0"),
        (lambda: System([]), "the machine's nodes: 0"),
        (lambda: System(10, {BB: 0}), "the machine's burst buffer: 0"),
        (lambda: System(10, {BB: 2.5}), "2.5 is no whole number"),
        (lambda: System([JobKind(0), JobKind(1)]), "the nodes of a kind: 0"),
        (lambda: System([JobKind(1, {"ssd": -1})]), "a node's ssd: -1"),
        (lambda: System([JobKind(1, {"ssd": 0})]), "the ssd of all nodes: 0"),
        (lambda: System([JobKind(1, {"ssd": 2}), JobKind(1, {"ssd": 1})]), "less ssd than the one before"),
        (lambda: System([JobKind(1, {"ssd": 2}), JobKind(1)]), "less ssd than the one before"),
        (lambda: System([JobKind(1, {BB: 2})], {BB: 1}), "something else as well"),
        (lambda: System(1, {NODES: 1}), "'nodes' cannot be shared"),
        (lambda: DISKS.free(3), "free nodes of 1 kinds, where there are 2"),
        (lambda: DISKS.free([1, 51]), "the free nodes: 51"),
        (lambda: DISKS.free([1, -1]), "the free nodes: -1"),
        (lambda: DISKS.free([1, 1], {BB: 1001}), "the free burst buffer: 1001"),
        (lambda: WindowProblem(Window(DISKS, {NODES: [1]}), Free((3,), ())), "does not say how much is free"),
    ],
)
def test_machines_that_make_no_sense_are_refused(make, words):
    with pytest.raises(InputError, match=words) as error:
        make()
    assert error.value.hint
