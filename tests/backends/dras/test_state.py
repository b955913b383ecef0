"""The agent's view of a queue and a machine."""

from types import SimpleNamespace

import numpy as np
import pytest
from asa.backends.dras.state import Encoder
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError

HOUR = 3600


def view(nodes, running, waiting, now=100 * HOUR, away=0):
    """A pass: running jobs of (size, expected end), waiting ones of (size, request, submit, qos)."""
    running = sorted(running, key=lambda job: job[1])
    used = sum(size for size, _ in running)
    jobs = [(size, 0, 0, 0) for size, _ in running] + waiting
    column = [np.array([job[place] for job in jobs], dtype=np.int64) for place in range(4)]
    return SimpleNamespace(
        now=now,
        running=np.arange(len(running)),
        queue=np.arange(len(running), len(jobs)),
        demand=column[0][:, None],
        request=column[1],
        submit=column[2],
        qos=column[3],
        expected_end=np.array([end for _, end in running] + [0] * len(waiting), dtype=np.int64),
        free=np.array([nodes - away - used]),
        capacity=np.array([nodes - away]),
    )


def test_a_job_is_four_numbers():
    """Its share of the machine, its request, whether it is preferred, how long it has waited."""
    pass_ = view(100, [], [(25, 6 * HOUR, 100 * HOUR, 0), (50, 18 * HOUR, 98 * HOUR, 2)])
    jobs = Encoder(100, 6 * HOUR)(pass_, pass_.queue).jobs
    np.testing.assert_allclose(jobs, [[0.25, 0.5, 0, 0], [0.5, 0.75, 1, 0.25]], rtol=1e-6)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(100 * HOUR, 140 * HOUR)), max_size=8),
    st.integers(0, 12),
    st.integers(0, 5),
)
def test_a_node_is_two_numbers_and_nodes_stand_by_when_they_are_free(running, idle, away):
    """First those that are free, then by expected end, then those that are away; node by node."""
    nodes = sum(size for size, _ in running) + idle + away
    if not nodes:
        return
    pass_ = view(nodes, running, [(1, HOUR, 0, 0)], away=away)
    encode = Encoder(nodes, 6 * HOUR)
    encode._fits = True  # nodes went away after the first pass
    times = sorted([100 * HOUR] * idle + [end for size, end in running for _ in range(size)])
    rows = [(float(n < idle), (t - 100 * HOUR) / (t - 94 * HOUR)) for n, t in enumerate(times)] + [(0.0, 0.5)] * away
    np.testing.assert_allclose(encode(pass_, pass_.queue).rows(1)[2:], rows, rtol=1e-6)


def test_the_window_is_filled_up_with_nothing():
    """Rows of 0 for jobs that are not there; or the one job that is asked for."""
    pass_ = view(3, [(2, 106 * HOUR)], [(1, 6 * HOUR, 94 * HOUR, 1), (3, 18 * HOUR, 100 * HOUR, 0)])
    state = Encoder(3, 6 * HOUR)(pass_, pass_.queue)
    nodes = [[1, 0], [0, 0.5], [0, 0.5]]
    third = pytest.approx(1 / 3)
    assert state.rows(3).tolist() == [[third, 0.5], [1, 0.5], [1, 0.75], [0, 0], [0, 0], [0, 0], *nodes]
    assert state.rows(1, only=1).tolist() == [[1, 0.75], [0, 0], *nodes]


def test_a_machine_of_another_size_is_refused_with_what_to_do():
    """At the first pass; later, nodes may be away."""
    encode = Encoder(64)
    small = view(32, [], [(1, HOUR, 0, 0)])
    with pytest.raises(InputError, match=r"trained for 64 nodes, and there are 32(.|\n)*trained for 32 nodes"):
        encode(small, small.queue)
    whole, less = view(64, [], [(1, HOUR, 0, 0)]), view(64, [], [(1, HOUR, 0, 0)], away=32)
    encode(whole, whole.queue)
    assert encode(less, less.queue).rows(1)[-1].tolist() == [0, 0.5]


def test_a_scale_of_nothing_is_refused():
    """Times are divided by it."""
    with pytest.raises(InputError, match="scale"):
        Encoder(4, 0)
