"""Small stages on a machine that gives whole nodes: planned together, and run side by side in a simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable
from hypothesis import given, settings
from hypothesis import strategies as st

from asa import WaitBank
from asa.backend import Capabilities
from asa.metrics import measure
from asa.runner import Run, run_all
from asa.strategies import Keep, RunView, StageView, load_strategy
from asa.strategies.planned import Planned
from asa.strategies.planning import Aim, look_ahead
from asa.strategies.planning.parts import Parts
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow


class Waits:
    """A forecast: all jobs wait about so long."""

    is_informed = True

    def __init__(self, wait_s):
        self.wait_s = wait_s

    def predict(self, stages, needed_s):
        return WaitForecast(tuple(self.wait_s * f for f in (0.1, 0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)), self.wait_s)


def fan(count, *, run_s=600.0):
    parts = [
        Stage(f"p{n}", cores=1, walltime_s=1200, expected_run_s=run_s, after=("split",), command="x")
        for n in range(count)
    ]
    join = Stage("join", cores=1, walltime_s=1200, expected_run_s=60.0, after=tuple(p.name for p in parts), command="x")
    return Workflow("fan", [Stage("split", cores=1, walltime_s=1200, expected_run_s=60.0, command="x"), *parts, join])


def view(workflow, *, whole=True):
    stages = {name: StageView(stage) for name, stage in workflow.stages.items()}
    return RunView(workflow, stages, 0.0, Capabilities("site", 280, 28, age_accrues=True, whole_nodes=whole))


class AtOnce(Waits):
    """A forecast that also samples plans: every job starts as soon as it is due."""

    def sample_plans(self, plans, samples):
        made = []
        for plan in plans:
            starts, ends = np.zeros((samples, len(plan))), np.zeros((samples, len(plan)))
            for index, step in enumerate(plan):
                starts[:, index] = ends[:, list(step.after)].max(axis=1, initial=0.0)
                ends[:, index] = starts[:, index] + step.run_s[0]
            made.append(starts)
        return made


def test_small_stages_share_a_node_even_where_each_would_start_at_once():
    """A job each would end as soon, on 30 nodes."""
    sketch = look_ahead(view(fan(28)), AtOnce(1.0)).sketch
    assert len(sketch.jobs) < 4
    assert sketch.core_hours == pytest.approx(28 * 720 / 3600)


def test_a_fan_of_small_stages_is_one_job_of_a_node_in_three_waves():
    """One wait in place of three, and a node for 12 minutes in place of 30 nodes, most of which idle."""
    [job] = Planned().plan(view(fan(28)), Waits(3600.0)).submissions
    assert len(job.stages) == 30
    assert job.keep is Keep.NOTHING
    sketch = look_ahead(view(fan(28)), Waits(3600.0)).sketch
    assert sketch.core_hours == pytest.approx(28 * 720 / 3600)
    assert sketch.jobs[0].block.run_s == 720


def test_on_shared_nodes_small_stages_are_asked_for_one_by_one():
    plan = Planned(Aim(price_s=1.0)).plan(view(fan(28), whole=False), Waits(30.0))
    assert all(len(job.stages) == 1 for job in plan.submissions)


def test_more_than_a_node_holds_is_planned_node_by_node():
    """Where it waits next to nothing, nodes side by side are faster than one after the other, and cost the same."""
    outlook = look_ahead(view(fan(56), whole=True), Waits(1.0), Aim(price_s=1.0))
    assert sorted(len(job.block.stages) for job in outlook.sketch.jobs)[-2:] == [28, 28] or (
        sorted(len(job.block.stages) for job in outlook.sketch.jobs) == [28, 30]
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 90), st.integers(1, 64), st.booleans())
def test_all_stages_are_in_one_piece_or_another(count, per_node, whole):
    site = Capabilities("site", 1000, per_node, age_accrues=True, whole_nodes=whole)
    parts = Parts(fan(count), cores_per_node=per_node, site=site)
    assert sorted(parts.series.stages) == sorted(fan(count).stages)
    block = parts.block(parts.names)
    waves = math.ceil(count / per_node) if whole else count
    assert block.run_s == pytest.approx(120 + 600 * waves)
    assert block.walltime_s == pytest.approx(1200 * (2 + waves))


def empty(*, whole):
    columns = (np.empty(0, np.int64) for _ in range(4))
    machine = Machine("m", 10, 28, whole)
    return SimulatedBackend(Engine(280, JobTable(*columns), now=0), machine)


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "big-job", "asa", "asa-plan"])
def test_a_simulated_machine_charges_a_node_for_what_shares_it(strategy):
    def hours(*, whole):
        workflow = fan(28)
        [result] = run_all(empty(whole=whole), [Run(workflow, load_strategy(strategy), bank=WaitBank())])
        assert result.outcome == "completed"
        return measure(workflow, result.records)

    shared, whole = hours(whole=False), hours(whole=True)
    assert whole.core_hours <= 28 * 900 / 3600, "a node for each of 30 jobs would be 134 core-hours"
    assert whole.makespan_s <= 900
    assert shared.core_hours <= 28 * 30 * 720 / 3600


def _levels(run_s):
    """One stage, four side by side, and one again, each of 16 cores."""
    asked = {"cores": 16, "walltime_s": 2 * run_s, "expected_run_s": run_s, "command": "x"}
    parts = [Stage(f"p{n}", after=("a",), **asked) for n in range(4)]
    first, last = Stage("a", **asked), Stage("b", after=tuple(part.name for part in parts), **asked)
    return Workflow("levels", [first, *parts, last])


def _fan_jobs(run_s, *, age_accrues):
    site = replace(view(_levels(60.0), whole=False).capabilities, age_accrues=age_accrues)
    seen = replace(view(_levels(run_s), whole=False), capabilities=site)
    return [job.block.stages for job in look_ahead(seen, Waits(3600.0)).sketch.jobs]


def _shares(jobs):
    return any(len({name for name in stages if name.startswith("p")}) > 1 for stages in jobs)


def test_a_fan_is_put_into_one_job_only_where_a_short_wait_is_longer_than_what_that_takes():
    """Nine in ten waits are longer than 6 minutes: two of them are saved, for three more runs."""
    assert _fan_jobs(60.0, age_accrues=False) == [("a", "p0", "p1", "p2", "p3", "b")]
    assert not _shares(_fan_jobs(2400.0, age_accrues=False))


def test_a_fan_whose_jobs_gain_priority_while_they_wait_for_others_is_not_put_into_one_job():
    """However long the queue is: when their turn comes most such jobs start at once. A few seconds do not count."""
    assert not _shares(_fan_jobs(60.0, age_accrues=True))
    assert _fan_jobs(5.0, age_accrues=True) == [("a", "p0", "p1", "p2", "p3", "b")]
