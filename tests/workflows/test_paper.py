"""The paper's three workflows and the fit to its Table 1."""

import math

import pytest
from asa.workflows import blast, montage, statistics
from asa.workflows.paper import TABLE_1, divide, peak_times, requested_walltime_s
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import WorkflowError
from asa.units import core_hours

WORKFLOWS = {"montage": montage, "blast": blast, "statistics": statistics}
CELLS = [(name, cores) for name in WORKFLOWS for cores in (28, 56, 112, 160, 320, 640)]
SHAPES = {"montage": "PPSSPSSSS", "blast": "PS", "statistics": "SPSP"}  # Section 4.3


@pytest.mark.parametrize(("name", "cores"), CELLS)
def test_core_hours_are_table_1s(name, cores):
    """Big Job's and Per-Stage's are the table's, which truncates in some rows and rounds in others."""
    flow, row = WORKFLOWS[name](cores), TABLE_1[name][cores]
    wide, narrow = core_hours(cores, flow.execution_s), flow.stage_core_hours(28)
    assert row["big-job"].core_hours in (math.floor(wide), round(wide))
    assert row["per-stage"].core_hours in (math.floor(narrow), round(narrow))


@pytest.mark.parametrize(("name", "cores"), CELLS)
def test_execution_times_are_table_1s(name, cores):
    """Makespan less waiting time, of Big Job within 2 %."""
    assert WORKFLOWS[name](cores).execution_s == pytest.approx(TABLE_1[name][cores]["big-job"].execution_s, rel=0.02)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_shapes_are_section_4_3s(name):
    """Which stages take all cores, which one, in a chain."""
    flow = WORKFLOWS[name](56)
    assert "".join("P" if stage.cores == 56 else "S" for stage in flow.stages.values()) == SHAPES[name]
    assert [len(stage.after) for stage in flow.stages.values()] == [0] + [1] * (len(flow.stages) - 1)


@given(st.sampled_from(list(WORKFLOWS)), st.integers(1, 20_000))
def test_any_core_count_works(name, cores):
    """Stages last at least a second and fit their walltimes; the parts add up."""
    flow = WORKFLOWS[name](cores)
    assert flow.peak_cores(1) == cores
    assert all(1 <= stage.expected_s <= stage.walltime_s for stage in flow.stages.values())
    assert sum(stage.expected_s for stage in flow.stages.values()) <= flow.walltime_s


@given(st.sampled_from(list(WORKFLOWS)), st.sampled_from([(28, 56), (56, 112), (112, 160), (160, 320), (320, 640)]))
def test_between_two_counts_times_lie_between(name, pair):
    """Nothing odd in the middle."""
    low, high = (peak_times(name, cores, min_sequential_s=6) for cores in pair)
    middle = peak_times(name, sum(pair) // 2, min_sequential_s=6)
    for part in ("parallel_s", "sequential_s"):
        ends = sorted([getattr(low, part), getattr(high, part)])
        assert ends[0] - 1 <= getattr(middle, part) <= ends[1] + 1


def test_beyond_the_table_more_cores_never_take_longer():
    """And never scale better than perfectly."""
    for name in WORKFLOWS:
        for few, many in ((1, 2), (2, 14), (14, 28), (640, 1280), (1280, 10_000)):
            slow, fast = (peak_times(name, cores, min_sequential_s=6) for cores in (few, many))
            assert slow.parallel_s >= fast.parallel_s >= slow.parallel_s * few / many - 1


def test_no_cores_are_refused():
    """With the workflow's name."""
    with pytest.raises(WorkflowError, match="peak of 0 cores") as caught:
        montage(0)
    assert caught.value.where == "workflow 'montage'"


@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=12), st.integers(0, 5000))
def test_division_loses_nothing(shares, spare):
    """The parts are at least a second and add up."""
    parts = divide(len(shares) + spare, shares)
    assert sum(parts) == len(shares) + spare
    assert min(parts) >= 1


def test_requested_walltimes():
    """Half as much again, in steps of five minutes."""
    assert [requested_walltime_s(s) for s in (1, 200, 201, 1061)] == [300, 300, 600, 1800]
