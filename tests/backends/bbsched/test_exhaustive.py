"""The search of every selection finds the exact front."""

import numpy as np
import pytest
from asa.backends.bbsched.exact import Exact
from asa.backends.bbsched.exhaustive import Exhaustive
from asa.backends.bbsched.problem import Window, WindowProblem
from asa.backends.bbsched.system import NODES, JobKind, System
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError

BB = "burst buffer"
SYSTEM = System(40, {BB: 30})


@given(data=st.data())
def test_it_finds_what_the_exact_search_finds(data):
    count = data.draw(st.integers(1, 10))
    demands = {
        NODES: data.draw(st.lists(st.integers(1, 12), min_size=count, max_size=count)),
        BB: data.draw(st.lists(st.sampled_from([0, 0, 3, 7, 12]), min_size=count, max_size=count)),
    }
    forced = data.draw(st.lists(st.sampled_from([False, False, True]), min_size=count, max_size=count))
    free = SYSTEM.free(data.draw(st.integers(0, 40)), {BB: data.draw(st.integers(0, 30))})
    problem = WindowProblem(Window(SYSTEM, demands, forced), free)
    found, true = Exhaustive().solve(problem), Exact().solve(problem)
    assert found.objectives.tolist() == true.objectives.tolist()
    assert found.chosen.tolist() == true.chosen.tolist()
    assert (found.is_exact, found.work) == (True, 2 ** len(problem.jobs))


def test_what_would_take_for_ever_is_refused():
    many = Window(System(100, {BB: 100}), {NODES: np.ones(41, dtype=np.int64)})
    halves = System([JobKind(1, {"ssd": 1}), JobKind(1, {"ssd": 2})], {BB: 10})
    for window in (many, Window(halves, {NODES: [1]})):
        with pytest.raises(InputError, match="is not tried"):
            Exhaustive().solve(WindowProblem(window, window.system.whole))
