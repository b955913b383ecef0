"""The waits of several jobs that share a bag, taken together, and how plans use them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backend import Capabilities
from asa.shapes import Moldable, Scaling
from asa.strategies import Phase, RunView, StageView
from asa.strategies.planning import Aim, look_ahead
from asa.strategies.planning.sharing import counts_of, shared_wait_s
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow


def end_of(begins_s, work_s):
    """Return when the work ends if each job works from its beginning on, by a plain loop over these times."""
    now_s, working = 0.0, 0
    for begin_s in sorted(begins_s):
        if working and now_s + work_s / working <= begin_s:
            break
        work_s -= working * (begin_s - now_s)
        now_s, working = begin_s, working + 1
    return now_s + work_s / working


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=12), st.floats(1, 1e5))
def test_what_has_begun_works_until_all_is_done(waits_s, run_s):
    waits_s = sorted(waits_s)
    counts = list(range(1, len(waits_s) + 1))
    found = shared_wait_s(counts, np.array(waits_s)[:, None], run_s)
    assert run_s + found[0] == pytest.approx(end_of(waits_s, len(waits_s) * run_s), rel=1e-9)


@given(st.integers(1, 40), st.floats(1, 1e4), st.floats(0, 1e4))
def test_between_the_counts_that_are_asked_for_waits_lie_between(jobs, run_s, wait_s):
    counts = counts_of(jobs)
    assert (counts[0], counts[-1], counts) == (1, jobs, sorted(set(counts)))
    same = shared_wait_s(counts, np.full((len(counts), 2), wait_s), run_s)
    assert same == pytest.approx([wait_s, wait_s])
    rising = shared_wait_s(counts, np.array([[wait_s * count] for count in counts]), run_s)[0]
    assert wait_s - 1e-6 <= rising <= wait_s * jobs + 1e-6
    falling = shared_wait_s(counts, np.array([[wait_s / count] for count in counts]), run_s)[0]
    assert falling == pytest.approx(wait_s), "of more cores none is taken to wait less"


def bag(widths, jobs, run_s=2000.0):
    moldable = Moldable(tuple(sorted(widths)), scaling=Scaling("tasks", tasks=640)) if len(widths) > 1 else None
    stage = Stage(
        "a",
        cores=widths[0],
        walltime_s=3 * run_s,
        expected_run_s=run_s,
        tasks=("x",) * 640,
        jobs=jobs,
        moldable=moldable,
    )
    after = Stage("b", cores=1, walltime_s=60, expected_run_s=10, after=("a",))
    return Workflow("w", [stage, after])


class Waits:
    """Waits that depend on the request."""

    is_informed = True

    def __init__(self, wait_s):
        self.wait_s = wait_s

    def predict(self, stages, needed_s):
        del needed_s
        wait_s = 1e6 if len(stages) > 1 else 0.0
        return WaitForecast((wait_s,) * 9, wait_s)

    def predict_each(self, stages, requests):
        del stages
        return [WaitForecast((self.wait_s(one),) * 9, self.wait_s(one)) for one in requests]


def outlook(flow, wait_s):
    views = {name: StageView(one, Phase.WAITING) for name, one in flow.stages.items()}
    view = RunView(flow, views, 0.0, Capabilities("x", 64, 1, age_accrues=False))
    return look_ahead(view, Waits(wait_s), Aim(price_s=0.0))


def test_a_plan_expects_of_a_bag_what_its_jobs_do_together():
    """The first of four jobs waits 0 s, the second 1,000 s, the others longer than the first two need for all tasks."""
    wait_s = {8: 0.0, 16: 1000.0, 32: 30_000.0}
    made = outlook(bag([32], (4, 4)), lambda one: wait_s.get(one.cores, 0.0))
    assert float(made.sketch.end_s.mean()) == pytest.approx((4 * 2000 + 1000) / 2 + 10, rel=0.02)


def test_a_wide_bag_is_no_wide_job():
    """A job of 32 cores waits ten hours, narrow jobs hardly at all."""

    def wait_s(one):
        return 36_000.0 if one.cores > 16 else 10.0 * one.cores

    chosen = {jobs: outlook(bag([32, 8], jobs), wait_s).choices()["a"] for jobs in ((1, 1), (1, 32))}
    assert {jobs: choice.shape.width for jobs, choice in chosen.items()} == {(1, 1): 8, (1, 32): 32}
    made = outlook(bag([32, 8], (1, 32)), wait_s)
    assert made.predict(made.sketch.jobs[0].block).wait_s == pytest.approx(10.0), "of its first job"
