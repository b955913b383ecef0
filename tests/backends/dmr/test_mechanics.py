"""Nodes change owners and none is lost; the cost of a resize follows Table 2 and Fig. 3."""

import pytest
from asa.backends.dmr.mechanics import Checkpoints, Costs, Ledger, Resizer
from hypothesis import given
from hypothesis import strategies as st


def count(ledger):
    return ledger.free + ledger.detached + sum(ledger.allocated.values())


def test_an_expansion_goes_by_the_steps_of_section_3():
    """Submit B, set its nodes to 0, cancel it, raise A's; no node is ever nobody's and everybody's."""
    ledger = Ledger(16)
    ledger.allocate(1, 4)
    seen = []
    for step in (
        lambda: ledger.allocate(2, 4),
        lambda: ledger.detach(2),
        lambda: ledger.end(2),
        lambda: ledger.attach(1, 4),
    ):
        step()
        seen.append((ledger.free, ledger.detached, dict(ledger.allocated)))
        assert count(ledger) == 16
    assert seen == [(8, 0, {1: 4, 2: 4}), (8, 4, {1: 4, 2: 0}), (8, 4, {1: 4}), (8, 0, {1: 8})]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("aele"), st.integers(1, 12)), max_size=30))
def test_nodes_are_conserved(steps):
    ledger = Ledger(12)
    for job, step, nodes in steps:
        if step == "a" and job not in ledger.allocated and nodes <= ledger.free:
            ledger.allocate(job, nodes)
        elif step == "e" and job in ledger.allocated and nodes <= ledger.free:
            ledger.expand(Resizer(job, nodes, 0.0), number=-1)
        elif step == "l" and job in ledger.allocated:
            ledger.lower(job, min(nodes, ledger.allocated[job]))
        assert count(ledger) == 12
        assert ledger.free >= 0
        assert ledger.detached == 0


@pytest.mark.parametrize(
    ("step", "job", "nodes"), [("allocate", 2, 5), ("allocate", 1, 1), ("attach", 1, 1), ("lower", 1, 9)]
)
def test_nodes_that_are_not_there_cannot_be_had(step, job, nodes):
    ledger = Ledger(8)
    ledger.allocate(1, 4)
    with pytest.raises(AssertionError):
        getattr(ledger, step)(job, nodes)


def test_more_processes_move_the_data_sooner():
    """Fig. 3b: the chunks are smaller, and are sent at the same time."""
    costs = Costs(per_node_s=0.0, per_leaving_s=0.0)
    for sign in (1, -1):
        times = [costs.resize_s(*(few, 2 * few)[::sign], 1.0) for few in (1, 2, 4, 8, 16, 32)]
        assert times == sorted(times, reverse=True)
        assert times[0] > times[-1]


def test_a_shrink_takes_longer_the_more_nodes_leave():
    """Fig. 3b: the resize waits for all of them."""
    costs = Costs(link_gb_s=1e9)
    times = [costs.resize_s(32, after, 1.0) for after in (16, 8, 4, 2, 1)]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_an_expansion_takes_a_little_longer_with_more_nodes_and_more_data():
    costs = Costs(link_gb_s=1e9)
    assert costs.resize_s(1, 2, 1.0) < costs.resize_s(32, 64, 1.0) < costs.resize_s(1, 2, 1.0) + 0.25
    assert Costs().resize_s(4, 8, 1.0) < Costs().resize_s(4, 8, 10.0)


def test_checkpoints_cost_more_than_messages():
    """All data go through files, and the processes restart."""
    by_files = Costs(checkpoints=Checkpoints(disk_gb_s=2.0, restart_s=5.0))
    assert by_files.resize_s(8, 16, 4.0) == pytest.approx(by_files.expand_s + 16 * by_files.per_node_s + 5.0 + 4.0)
    assert by_files.resize_s(16, 8, 4.0) > 10 * Costs().resize_s(16, 8, 4.0)
