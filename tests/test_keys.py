"""A key of a stage arrives: from a file and from Python, in the job that is asked for, and at Slurm."""

from dataclasses import fields

from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.link import SlurmJob
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import Capabilities, JobSpec
from asa.flow import _KINDS, Resources
from asa.runner import RunFolder, RunPlan, drive
from asa.runner.state import RunState
from asa.spec.model import StageSpec
from asa.strategies import Keep, PlannedJob
from asa.workflow import Stage, Workflow

SITE = Capabilities("x", 1120, 28, age_accrues=False, burst_buffer_bytes=1 << 40)
WHOLE = Stage(
    "a", cores=56, nodes=2, walltime_s=600.0, expected_run_s=60.0, command="true", memory_bytes=1 << 30, gpus=1,
    burst_buffer_bytes=2_000_000_000, exclusive=True, partition="long", account="us", cpus_per_task=2,
    options=("--nice=10",), environment=(("A", "1"),), inputs=("in",), outputs=("out",), retries=1, input_size=3.0,
)  # fmt: skip
"""One that asks for everything that a job can be told."""
PAYLOAD = {"name", "script", "tasks", "environment"}  # of other names and kinds in a job


def common(one, other):
    return {field.name for field in fields(one)} & {field.name for field in fields(other)} - PAYLOAD


def test_what_a_file_may_ask_for_python_may_too():
    ways = {"name", "command", "script", "tasks", "tasks_file", "ntasks", "after"}
    assert Resources.__annotations__.keys() == _KINDS.keys()
    assert _KINDS.keys() == StageSpec.model_fields.keys() - ways | {"retry_walltime_factor"}


def test_no_key_is_at_its_default_here():
    """Else what follows would not notice that it is lost."""
    left = {field.name for field in fields(Stage) if getattr(WHOLE, field.name) == field.default}
    assert left & (common(Stage, JobSpec) | common(Stage, SlurmJob)) == {"local"}  # which no batch system is told of


def test_what_a_stage_asks_for_its_job_asks_for():
    state = RunState("x", Workflow("x", [WHOLE]), SITE, "abcd1234")
    spec = state.spec_of(PlannedJob(("a",), 0.0, Keep.NOTHING, "why"))
    assert {name: getattr(spec, name) for name in common(Stage, JobSpec) - {"command"}} == {
        name: getattr(WHOLE, name) for name in common(Stage, JobSpec) - {"command"}
    }


def test_what_a_job_asks_for_slurm_is_told(tmp_path):
    plan = RunPlan("abcd1234", "x", "x", (WHOLE,), "per-stage", "slurm-cli", SITE, created_s=1.7e9)
    folder, clock = RunFolder.create(tmp_path, plan), VirtualClock()
    link = FakeLink(clock, folder.path)
    drive(folder, lambda run: SlurmBackend(link, run.path, SITE, clock=clock, sleep=clock.sleep))
    told = link.submitted[0]
    missing = {name for name in common(Stage, SlurmJob) if getattr(told, name) != getattr(WHOLE, name)}
    assert missing <= {"options"}
    assert set(WHOLE.options) <= set(told.options)
