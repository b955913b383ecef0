"""The network is the paper's, and is asked quickly without a different answer."""

import numpy as np
import pytest
from asa.backends.dras.network import Evaluator, NetworkSize, forward, initial
from asa.backends.dras.state import State
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError

THETA, CORI = 4360, 12076


@pytest.mark.parametrize(
    ("shape", "rows", "count"),
    [
        (NetworkSize("pg", THETA), 4460, 21_890_053),
        (NetworkSize("dql", THETA), 4362, 21_449_004),
        (NetworkSize("pg", CORI, hidden=(10000, 4000)), 12176, 161_960_053),
        (NetworkSize("dql", CORI, hidden=(10000, 4000)), 12078, 160_784_004),
        # the table's own number, which needs as many rows as DRAS-PG has
        (NetworkSize("dql", CORI + 98, hidden=(10000, 4000)), 12176, 161_764_004),
    ],
)
def test_parameters_are_as_many_as_table_3_says(shape, rows, count):
    """Counted, and summed over the layers as PyTorch has them."""
    assert (shape.rows, shape.parameters) == (rows, count)
    torch = pytest.importorskip("torch")
    (one, two), nn = shape.hidden, torch.nn
    with torch.device("meta"):
        layers = nn.Sequential(
            nn.Conv2d(1, 1, (1, 2)),
            nn.Linear(rows, one, bias=False),
            nn.Linear(one, two, bias=False),
            nn.Linear(two, shape.outputs),
        )
    assert sum(parameter.numel() for parameter in layers.parameters()) == count


def test_what_is_drawn_is_what_is_counted():
    """At full size; weights differ, biases begin at 0."""
    drawn = initial(NetworkSize("pg", THETA), np.random.default_rng(1))
    assert sum(array.size for array in drawn.values()) == 21_890_053
    assert {array.dtype for array in drawn.values()} == {np.dtype(np.float32)}
    assert len(np.unique(drawn["second"])) > 1000
    assert not drawn["filter_bias"].any()
    assert not drawn["last_bias"].any()


@pytest.mark.parametrize(
    "wrong", [("pg", 0), ("pg", 4, 0), ("ppo", 4), ("dql", 4, 5, (0, 3)), ("pg", 1 << 20, 50, (4000, 10))]
)
def test_sizes_that_cannot_be_are_refused(wrong):
    """Before anything is made of them."""
    with pytest.raises(InputError, match="cannot be"):
        NetworkSize(*wrong)


@st.composite
def asked(draw):
    """A network, and a state of some jobs and of nodes in groups, few or many."""
    kind, window = draw(st.sampled_from(["pg", "dql"])), draw(st.integers(1, 6))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 60]), min_size=2, max_size=30).filter(any))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    shape = NetworkSize(kind, sum(sizes), window, (draw(st.integers(1, 9)), draw(st.integers(1, 9))))
    parameters = {name: rng.normal(size=size).astype(np.float32) for name, size in shape.arrays.items()}
    jobs = rng.random((draw(st.integers(1, window)), 4)).astype(np.float32)
    groups = rng.random((len(sizes), 2)).astype(np.float32)
    return shape, parameters, State(jobs, np.concatenate([[0], np.cumsum(sizes)]), groups)


def row_by_row(state):
    """Each node's row, written out."""
    sizes = np.diff(state.edges)
    return [tuple(state.groups[group]) for group in range(len(sizes)) for _ in range(sizes[group])]


@given(asked())
def test_sums_over_groups_of_nodes_give_what_the_layers_give(case):
    """An input row by row, through PyTorch's own layers."""
    torch = pytest.importorskip("torch")
    shape, parameters, state = case
    tensors = {name: torch.from_numpy(array) for name, array in parameters.items()}
    conv = torch.nn.Conv2d(1, 1, (1, 2))
    conv.weight.data[0, 0, 0], conv.bias.data = tensors["filter"], tensors["filter_bias"]
    rectifier = torch.nn.LeakyReLU()

    def layers(rows):
        hidden = conv(torch.tensor(rows)[None])[0, :, 0] @ tensors["first"]
        return rectifier(rectifier(hidden) @ tensors["second"]) @ tensors["last"] + tensors["last_bias"]

    nodes, jobs = row_by_row(state), state.jobs.reshape(-1, 2).tolist()
    empty = [[0.0, 0.0]] * (2 * shape.jobs)
    with torch.no_grad():
        if shape.kind == "pg":
            expected = layers((jobs + empty)[: len(empty)] + nodes)[: len(state.jobs)]
            inputs = [state.rows(shape.jobs)]
        else:
            expected = torch.cat([layers(jobs[2 * j : 2 * j + 2] + nodes) for j in range(len(state.jobs))])
            inputs = [state.rows(1, only=j) for j in range(len(state.jobs))]
        batch = forward(tensors, torch.from_numpy(np.stack(inputs)))
    batch = batch[0, : len(state.jobs)] if shape.kind == "pg" else batch[:, 0]
    scale = max(float(expected.abs().max()), 1.0)
    np.testing.assert_allclose(batch, expected, atol=1e-4 * scale)
    np.testing.assert_allclose(Evaluator(shape, parameters)(state), expected, atol=1e-4 * scale)


def test_changed_parameters_count_once_they_are_noted():
    """As while learning."""
    shape = NetworkSize("pg", 40, 3, (5, 4))
    rng = np.random.default_rng(0)
    parameters = initial(shape, rng)
    state = State(rng.random((2, 4)).astype(np.float32), np.array([0, 40]), np.ones((1, 2), dtype=np.float32))
    evaluate = Evaluator(shape, parameters)
    before = evaluate(state)
    parameters["first"] *= 3
    evaluate.refresh()
    np.testing.assert_array_equal(evaluate(state), Evaluator(shape, parameters)(state))
    assert not np.allclose(evaluate(state), before)
