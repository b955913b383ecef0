"""The jobs that ran which tasks of a shared stage, on the page of a run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.bags import Deeds
from asa.report.page import Page, PageFigure, PageTable, render
from asa.report.tasks import busy, tasks_section


def deeds(token, times, codes=None):
    began, ended = np.array(times, dtype=float).T
    return Deeds(token, began, ended, np.array(codes or [0] * len(times)))


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 50)), min_size=1, max_size=30),
    st.integers(1, 20),
)
def test_the_tasks_that_ran_at_a_time_add_up(tasks, parts):
    """However the time is cut, and at any moment as counted one by one."""
    one = deeds("t", [(began, began + took) for began, took in tasks])
    edges = np.linspace(0.0, 150.0, parts + 1)
    amounts = busy(one, edges)
    assert (amounts * np.diff(edges)).sum() == pytest.approx((one.ended_s - one.began_s).sum(), abs=1e-6)
    for place, amount in enumerate(amounts):
        inside = np.clip(one.ended_s, *edges[place : place + 2]) - np.clip(one.began_s, *edges[place : place + 2])
        assert amount == pytest.approx(inside.sum() / (edges[place + 1] - edges[place]), abs=1e-6)


def test_jobs_are_shown_by_their_numbers_with_what_they_did():
    jobs = {"t-0": ("4711", 2), "t-1": ("4712", 2)}
    did = [deeds("t-0", [(1000, 1010), (1000, 1020)], [0, 3]), deeds("t-1", [(1015, 1025)]), deeds("x", [(0, 1)])]
    section = tasks_section("fit", did, jobs)
    [figure] = [part for part in section.parts if isinstance(part, PageFigure)]
    [table] = [part for part in section.parts if isinstance(part, PageTable)]
    assert table.rows == [("4711", 2, 0.0, 20.0, 2, 1, 15.0), ("4712", 2, 15.0, 25.0, 1, 0, 10.0)]
    assert "job 4711: 2 tasks on 2 cores, 0s to 20s" in figure.svg
    assert "2 jobs ran 3 tasks of fit" in figure.svg
    assert "Tasks of fit, by job" in render(Page("Run x", (), [section]))
    assert tasks_section("fit", did[2:], jobs) is None


@pytest.mark.parametrize("count", [1, 40, 300])
def test_many_jobs_fit_on_a_page(count):
    did = [deeds(f"t-{n}", [(n, n + 5.0)]) for n in range(count)]
    section = tasks_section("fit", did, {f"t-{n}": (str(n), 1) for n in range(count)})
    [figure] = [part for part in section.parts if isinstance(part, PageFigure)]
    assert len(figure.svg) < 60_000 + 1000 * count
    assert figure.svg.count("aria-label=") == count + 1
