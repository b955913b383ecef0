"""Each kind of stage under each strategy: with one that follows, with two in a row, and given back before it begins.

The machine has 16 cores. What is tried follows a first stage, and somebody else's job takes the whole machine as that
ends: whoever asks then waits for 300 s.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa.continuation import Continuation
from asa.core.plugins import names
from asa.elements import parse_array
from asa.estimators import WaitBank
from asa.records import Cancelled, StageEnded, StageStarted
from asa.runner import Run, run_all
from asa.shapes import Moldable, RunAt
from asa.strategies import Cancellation, Keep, Phase, Plan, PlannedJob, load_strategy
from asa.workflow import Stage, Workflow

CORES = 16
NOT_SIMULATED = {"pool", "asa-asks", "asa-naive-asks"}  # tasks of a dask cluster; a batch system that plans
STRATEGIES = [name for name in names("asa.strategies") if name not in NOT_SIMULATED]
LINES = tuple(f"work {number}" for number in range(8))
KINDS = {
    "single": {"cores": 4},
    "node": {"nodes": 1},
    "tasks": {"cores": 4, "command": "", "tasks": LINES},
    "bag": {"cores": 8, "command": "", "tasks": LINES, "jobs": (2, 4)},
    "array": {"cores": 1, "array": parse_array("0-5")},
    "array of 8 cores": {"cores": 8, "array": parse_array("0-5")},
    "array of tasks of 4 cores": {"cores": 8, "cpus_per_task": 4, "array": parse_array("1-5%2")},
    "array of nodes": {"nodes": 1, "array": parse_array("0-5")},
    "array of nodes and cores": {"nodes": 1, "cores": 2, "array": parse_array("0-5")},
    "legs": {"cores": 4, "walltime_s": 100.0, "expected_run_s": 250.0, "continues": Continuation.warned("USR1@5s")},
    "legs that are not warned": {
        "cores": 4, "walltime_s": 100.0, "expected_run_s": 250.0, "continues": Continuation(),
    },
    "moldable": {"cores": 4, "moldable": Moldable((4, 8), (RunAt(4, 250.0), RunAt(8, 130.0)))},
    "local": {"cores": 1, "local": True},
}  # fmt: skip
SITES = {"cores": Machine("m", 1, CORES), "nodes of 8": Machine("m", 2, 8)}


class GivesBack:
    """A strategy that asks for a stage ahead, and gives its job back once before it begins."""

    def __init__(self, own, stage, phase):
        self._own, self._stage, self._phase, self.given_back = own, stage, phase, 0
        self.forecast = own.forecast

    def __getattr__(self, name):
        return getattr(self._own, name)

    def plan(self, view, forecast):
        plan = self._own.plan(view, forecast)
        one = view.stages[self._stage]
        if self.given_back:
            return plan
        if one.phase is self._phase and one.job_id is not None:
            self.given_back += 1
            return Plan.of((), [Cancellation(one.job_id, "tried")])
        if one.phase is Phase.WAITING and self._phase is Phase.ALLOCATED:
            early = PlannedJob((self._stage,), view.now_s, Keep.AWAIT, "tried", spare_walltime_s=1000.0)
            if view.run_or_hold_cores(("first",)):
                return Plan.of([early])
            alone = tuple(job for job in plan.submissions if job.stages == ("first",))
            first = view.stages["first"].phase
            return replace(plan, submissions=alone) if alone or first is not Phase.WAITING else plan
        return plan


def stages_of(kind, followers):
    common = {"walltime_s": 600.0, "expected_run_s": 250.0, "command": "work"}
    first = Stage("first", cores=1, walltime_s=300.0, expected_run_s=200.0, command="work")
    tried = Stage("tried", **common | KINDS[kind], after=("first",))
    after = ["tried", *(f"after{number}" for number in range(followers))]
    behind = [
        Stage(name, cores=2, walltime_s=100.0, expected_run_s=50.0, command="work", after=(before,))
        for before, name in pairwise(after)
    ]
    return [first, tried, *behind]


def run(flow, strategy, machine, run_s=None):
    others = np.array([(100, 300, 300, CORES)], dtype=np.int64).reshape(-1, 4).T
    world = SimulatedBackend(Engine(CORES, JobTable(*others), now=0), machine)
    return run_all(world, [Run(flow, strategy, bank=WaitBank("last"), run_s=run_s)])[0]


def check(result):
    assert result.outcome == "completed", result.reason
    started = [(r.stages[0], r.time_s) for r in result.records if isinstance(r, StageStarted)]
    ended = [(r.stages[0], r.time_s) for r in result.records if isinstance(r, StageEnded)]
    flow = result.run.workflow
    assert sorted(name for name, _ in started) == sorted(name for name, _ in ended) == sorted(flow.stages)
    began, ends = dict(started), dict(ended)
    assert all(began[name] >= ends[before] for name, stage in flow.stages.items() for before in stage.after)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("followers", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_kind_of_stage_runs_once_and_so_does_what_follows_it(strategy, kind, followers, site):
    check(run(Workflow("flow", stages_of(kind, followers)), load_strategy(strategy), SITES[site]))


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.ALLOCATED])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_kind_of_stage_that_is_given_back_is_asked_for_again(strategy, kind, phase):
    how = GivesBack(load_strategy(strategy), "tried", phase)
    result = run(Workflow("flow", stages_of(kind, 2)), how, SITES["nodes of 8"])
    check(result)
    cancelled = [r for r in result.records if isinstance(r, Cancelled) and "tried" in r.stages]
    assert bool(cancelled) == bool(how.given_back)
    assert cancelled or kind == "local" or strategy in {"big-job", "elastic"}
