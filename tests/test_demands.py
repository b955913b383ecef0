"""What stages take beside cores and time, from a file to a batch system."""

from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa.backend import Capabilities
from asa.demands import Demands, demands_of, resources, shared_by
from asa.flow import Flow
from asa.metrics import measure
from asa.runner import Run, run_all, specs
from asa.runner.state import RunState
from asa.spec import load_workflow
from asa.strategies import Keep, PlannedJob, load_strategy
from asa.workflow import Stage, Workflow

SITE = Capabilities("m", 112, 28, age_accrues=True)


def spec_of(*stages, site=SITE):
    flow = Workflow("flow", stages)
    return specs.spec_of(RunState("flow", flow, site, "r" * 12), PlannedJob(flow.order, 0.0, Keep.NOTHING, ""))


@pytest.mark.parametrize("resource", list(resources()), ids=lambda one: one.key)
def test_each_reaches_the_job_from_a_file_and_from_python(tmp_path, resource):
    """Under the same key, as the same amount."""
    text, value, amount = {
        "bytes": ('"3G"', "3G", 3 << 30),
        "count": ("3", 3, 3),
        "flag": ("true", True, True),
    }[resource.kind]
    path = tmp_path / "flow.toml"
    path.write_text(
        f'name = "f"\n[[stage]]\nname = "a"\ncores = 2\nwalltime = "1h"\ncommand = "x"\n{resource.key} = {text}\n'
    )
    flow = Flow("f")
    flow.stage("a", command="x", cores=2, **{resource.key: value})
    for made in (load_workflow(path), flow.workflow):
        assert getattr(spec_of(made.stages["a"]), resource.field) == amount


def test_what_is_not_asked_for_is_of_its_kind(tmp_path):
    """A run's description is written down, and read again, by the types of its fields."""
    path = tmp_path / "flow.toml"
    path.write_text('name = "f"\n[[stage]]\nname = "a"\ncores = 2\nwalltime = "1h"\ncommand = "x"\n')
    demands = demands_of(load_workflow(path).stages["a"])
    assert [(value, type(value)) for value in demands.values()] == [(0, int), (0, int), (0, int), (False, bool)]


def test_a_shared_job_has_the_most_that_any_of_its_stages_needs():
    a = Stage("a", cores=1, gpus=3, memory_bytes=5)
    b = Stage("b", cores=1, after=("a",), memory_bytes=7, exclusive=True)
    assert demands_of(spec_of(a, b)) == shared_by([a, b])
    assert shared_by([a, b]) == {"memory_bytes": 7, "gpus": 3, "burst_buffer_bytes": 0, "exclusive": True}


def test_nodes_of_its_own_count_with_all_their_cores():
    stage = Stage("a", cores=30, cpus_per_task=2, exclusive=True)
    spec = spec_of(stage)
    assert (stage.cores_on(28), stage.payload_cores_on(28)) == (56, 30)
    assert (spec.cores, spec.tasks, spec.cpus_per_task, spec.exclusive) == (56, 15, 2, True)
    assert "ASA_CORES=30" in spec_of(Stage("a", cores=30, exclusive=True, command="x")).command


def test_a_shared_job_has_whole_nodes_if_one_of_its_stages_does():
    """Each stage finds the tasks that it asks for."""
    spec = spec_of(Stage("a", cores=3, exclusive=True), Stage("b", cores=40, after=("a",)))
    assert (spec.cores, spec.tasks) == (56, 0)
    assert [step.tasks for step in spec.steps] == [3, 40]


def test_a_site_that_does_not_tell_its_nodes_gives_what_is_asked_for():
    assert spec_of(Stage("a", cores=3, exclusive=True), site=Capabilities("m", 112, 0, age_accrues=True)).cores == 3


def test_a_simulated_machine_takes_whole_nodes_for_it():
    """Two nodes of four cores are full with two stages of one core, and these are charged for eight."""
    nobody = JobTable(*np.empty((4, 0), dtype=np.int64))
    stages = [Stage(name, cores=1, walltime_s=100, exclusive=True) for name in "abc"]
    for exclusive, makespan_s, core_seconds in ((False, 100.0, 300.0), (True, 200.0, 1200.0)):
        flow = Workflow("flow", [replace(stage, exclusive=exclusive) for stage in stages])
        backend = SimulatedBackend(Engine(8, nobody, now=0), Machine("m", 2, 4), poll_s=0)
        [result] = run_all(backend, [Run(flow, load_strategy("per-stage"))])
        metrics = measure(flow, result.records)
        assert (metrics.makespan_s, round(metrics.core_hours * 3600.0)) == (makespan_s, core_seconds)


def test_without_it_only_nodes_are_whole():
    assert Demands().allocated(3, 0, 28) == 3
    assert Demands(exclusive=True).allocated(3, 2, 28) == 56
