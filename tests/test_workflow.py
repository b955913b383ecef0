"""Stages and their graph."""

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import WorkflowError
from asa.workflow import Slot, Stage, Workflow

DIAMOND = [
    Stage("a", cores=4, expected_run_s=10),
    Stage("b", cores=2, expected_run_s=20, after=("a",)),
    Stage("c", cores=2, expected_run_s=30, after=("a",)),
    Stage("d", cores=1, expected_run_s=5, after=("b", "c")),
]


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        ({"cores": 0}, "asks for 0 cores"),
        ({"cores": -4}, "asks for -4 cores"),
        ({"nodes": 0}, "asks for 0 nodes"),
        ({}, "neither cores nor nodes"),
        ({"cores": 10**9}, "or fewer"),
        ({"cores": 1, "gpus": 10**9}, "1000000000 gpus"),
        ({"cores": 1, "memory_bytes": 1 << 61}, "or fewer"),
        ({"cores": 1, "walltime_s": 0}, "walltime of 0 s"),
        ({"cores": 1, "walltime_s": 1e9}, "at most a year"),
        ({"cores": 1, "walltime_s": float("nan")}, "walltime of nan"),
        ({"cores": 1, "expected_run_s": 0}, "expected to run 0s"),
        ({"cores": 1, "walltime_s": 60, "expected_run_s": 61}, "would be killed"),
        ({"cores": 1, "gpus": -1}, "-1 gpus"),
        ({"cores": 1, "memory_bytes": -1}, "-1 bytes of memory"),
    ],
)
def test_absurd_demands_are_refused_with_the_stage(demand, message):
    """What, where, and what to do."""
    with pytest.raises(WorkflowError, match=message) as caught:
        Stage("mProject", **demand)
    assert caught.value.where == "stage 'mProject'"
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", "two words", "-x", "a/b", "x" * 65])
def test_names_that_cannot_be_a_jobs_are_refused(name):
    """Schedulers and files must bear them."""
    with pytest.raises(WorkflowError, match="name"):
        Stage(name, cores=1)


@pytest.mark.parametrize(
    ("stages", "where", "message"),
    [
        ([], "workflow 'w'", "no stages"),
        ([Stage("a", cores=1), Stage("a", cores=2)], "stage 'a'", "two stages"),
        ([Stage("a", cores=1, after=("b",))], "stage 'a'", "'b', which is not a stage"),
        ([Stage("a", cores=1, after=("a",))], "stage 'a'", "a -> a"),
        ([Stage("a", cores=1, after=("b",)), Stage("b", cores=1, after=("a",))], "stage 'a'", "a -> b -> a"),
    ],
)
def test_impossible_graphs_are_refused_with_the_stage(stages, where, message):
    """Nothing, twins, strangers, cycles."""
    with pytest.raises(WorkflowError, match=message) as caught:
        Workflow("w", stages)
    assert caught.value.where == where


def test_order_follows_the_graph_and_else_the_file():
    """Each stage after its predecessors."""
    flow = Workflow("w", [DIAMOND[3], DIAMOND[2], DIAMOND[1], DIAMOND[0]])
    assert flow.order == ("a", "c", "b", "d")
    assert sorted(flow.graph.edges) == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


@given(st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=12), st.randoms())
def test_order_and_followers_are_those_of_the_graph(drawn, chance):
    """As networkx has them; in whatever order stages are given."""
    stages = [
        Stage(f"s{i}", cores=1, after=tuple(f"s{p}" for p in before if p < i) * 2) for i, before in enumerate(drawn)
    ]
    chance.shuffle(stages)
    flow = Workflow("w", stages)
    given = [stage.name for stage in stages]
    assert flow.order == tuple(nx.lexicographical_topological_sort(flow.graph, key=given.index))
    name = chance.choice(given)
    assert flow.with_followers([name]) == {name, *nx.descendants(flow.graph, name)}


def test_a_chain_is_laid_out_end_to_end():
    """Equation 1's sum of run times."""
    flow = Workflow("w", [Stage("a", cores=4, expected_run_s=10), Stage("b", cores=1, expected_run_s=5, after=("a",))])
    assert flow.layout(flow.order) == (Slot("a", 0, 10), Slot("b", 10, 15))
    assert flow.execution_s == 15
    assert flow.stage_core_hours(1) == pytest.approx((40 + 5) / 3600)


def test_branches_that_share_an_allocation_run_one_after_the_other():
    """As the batch script of such a job runs them."""
    flow = Workflow("w", DIAMOND)
    assert flow.layout(("d", "c", "b")) == (Slot("b", 0, 20), Slot("c", 20, 50), Slot("d", 50, 55))
    assert flow.execution_s == 10 + 20 + 30 + 5


@given(st.lists(st.tuples(st.integers(1, 20), st.sets(st.integers(0, 7))), min_size=1, max_size=8))
def test_a_layout_keeps_the_order(drawn):
    """Whatever the graph: no stage before its predecessors, none beside another."""
    stages = [
        Stage(f"s{i}", cores=1, expected_run_s=run, after=tuple(f"s{p}" for p in sorted(before) if p < i))
        for i, (run, before) in enumerate(drawn)
    ]
    flow = Workflow("w", stages)
    slots = flow.layout(flow.order)
    place = {slot.stage: slot for slot in slots}
    assert all(one.end_s == other.start_s for one, other in itertools.pairwise(slots))
    for stage in stages:
        assert place[stage.name].end_s - place[stage.name].start_s == stage.expected_s
        assert all(place[before].end_s <= place[stage.name].start_s for before in stage.after)


def test_nodes_become_cores_on_a_site():
    """And the larger demand counts."""
    assert Stage("a", nodes=2).cores_on(28) == 56
    assert Stage("a", nodes=1, cores=40).cores_on(28) == 40
    assert Workflow("w", [Stage("a", nodes=2), Stage("b", cores=60)]).peak_cores(20) == 60


def test_the_walltime_of_the_whole():
    """Given, or the sum."""
    stages = [Stage("a", cores=1, walltime_s=60), Stage("b", cores=1, walltime_s=40, after=("a",))]
    assert Workflow("w", stages).walltime_s == 100
    assert Workflow("w", stages, walltime_s=110).walltime_s == 110
    for bad, message in ((0, "walltime of 0 s"), (-5, "-5"), (1e9, "year"), (99, "expected to take 1m40s")):
        with pytest.raises(WorkflowError, match=message):
            Workflow("w", stages, walltime_s=bad)
    assert repr(Workflow("w", stages)) == "Workflow('w', 2 stages)"
    assert repr(Stage("a", cores=2, nice=5)) == "Stage(name='a', cores=2, nice=5)"
    assert stages[0].expected_s == 60
