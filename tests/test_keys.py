"""A key of a stage arrives: from a file and from Python, in the job that is asked for, and at Slurm."""

from dataclasses import fields, replace

import pytest
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.commands.writing import sbatch_command, sbatch_input
from asa.backends.slurm.link import SlurmJob
from asa.backends.slurm.rest.dialects import dialect
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import Capabilities, JobSpec
from asa.elements import parse_array
from asa.flow import Resources
from asa.runner import RunFolder, RunPlan, drive
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.spec.keys import ASKED
from asa.spec.model import StageSpec
from asa.strategies import Keep, PlannedJob
from asa.workflow import Stage, Workflow

SITE = Capabilities("x", 1120, 28, age_accrues=False, burst_buffer_bytes=1 << 40, arrays=True)
WHOLE = Stage(
    "a", cores=56, nodes=2, walltime_s=600.0, expected_run_s=60.0, command="true", memory_bytes=1 << 30, gpus=1,
    burst_buffer_bytes=2_000_000_000, exclusive=True, partition="long", account="us", cpus_per_task=2,
    options=("--tmp=1G",), reservation="course", nice=10,
    environment=(("A", "1"),), inputs=("in",), outputs=("out%a",), retries=1, input_size=3.0,
    array=parse_array("1-5:2%2"), out_of_memory="ignore",
    secrets=("HF_TOKEN",), stdout="out-%j", stderr="err-%j", comment="align sample=B",
)  # fmt: skip
"""One that asks for everything that a job can be told."""
PAYLOAD = {"name", "script", "tasks", "environment", "stdout", "stderr"}  # of other names and kinds in a job


def common(one, other):
    return {field.name for field in fields(one)} & {field.name for field in fields(other)} - PAYLOAD


def test_what_a_file_may_ask_for_python_may_too():
    ways = {"name", "command", "script", "tasks", "tasks_file", "ntasks", "after"}
    assert Resources.__annotations__.keys() == ASKED.keys()
    assert ASKED.keys() == StageSpec.model_fields.keys() - ways | {
        "retry_walltime_factor",
        "retry_memory_factor",
        "retry_max_memory",
    }


def test_no_key_is_at_its_default_here():
    """Else what follows would not notice that it is lost."""
    left = {field.name for field in fields(Stage) if getattr(WHOLE, field.name) == field.default}
    assert left & (common(Stage, JobSpec) | common(Stage, SlurmJob)) == {
        "local",  # which no batch system is told of
        "request",  # which says the size in place of others
    }


NO_JOB_IS_TOLD = {  # what the run itself looks after
    "after", "after_any", "after_start", "start_delay_s", "after_matching", "when", "expected_run_s", "run_spread",
    "assumes_walltime", "learns_run", "moldable", "input_size",
    "inputs", "outputs", "input_patience_s",
    "retries", "retry_walltime_factor", "retry_memory_factor", "retry_max_memory_bytes",
    "tasks_file", "jobs", "continues", "preparation", *PAYLOAD,
}  # fmt: skip
NO_SLURM_IS_TOLD = {  # what a job's script looks after, or another word says
    "awaits", "posts", "steps", "supersedes", "tasks", "token", "command", "max_await_s", "dependencies", "local",
    "run_s", "exit_code", "bag", "sharing", "leg", "saves_s",
    "avoid", "request", "out_of_memory", "secrets", "race",
}  # fmt: skip


def test_a_field_is_handed_on_or_named_here():
    names = [{field.name for field in fields(kind)} for kind in (Stage, JobSpec, SlurmJob)]
    assert names[0] - names[1] <= NO_JOB_IS_TOLD
    assert names[1] - names[2] <= NO_SLURM_IS_TOLD


BARE = SlurmJob("n", "#!/bin/sh\n", "/f", cores=1, walltime_s=60.0, stdout="/o", stderr="/e")
OTHER = SlurmJob(
    "m", "#!/bin/sh\ntrue\n", "/g", 8, 600.0, "/p", "/q", nodes=2, partition="long", account="us", qos="low",
    constraint="fast", dependency="afterok:1", begin_s=9000, held=True, environment={"A": "1"}, comment="asa:t",
    cpus_per_task=2, options=("--tmp=1G",), reservation="course", nice=10,
    memory_bytes=1 << 30, gpus=1, burst_buffer_bytes=2_000_000_000,
    exclusive=True, array="1-5:2%2",
)  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in fields(SlurmJob) if field.name != "exclusive"])  # an option
def test_what_slurm_is_told_is_said_in_both_ways(name):
    assert getattr(OTHER, name) != getattr(BARE, name), "set it above"
    job = replace(BARE, nodes=1, cores=8)  # for what counts by node
    other = replace(job, nodes=2) if name == "nodes" else replace(job, **{name: getattr(OTHER, name)})
    other = replace(other, cores=4) if name == "cores" else other
    assert [sbatch_command(other), sbatch_input(other)] != [sbatch_command(job), sbatch_input(job)]
    for number in (38, 42):
        assert dialect(number).submission(other) != dialect(number).submission(job)


def test_what_a_stage_asks_for_its_job_asks_for():
    state = RunState("x", Workflow("x", [WHOLE]), SITE, "abcd1234")
    spec = spec_of(state, PlannedJob(("a",), 0.0, Keep.NOTHING, "why"))
    assert {name: getattr(spec, name) for name in common(Stage, JobSpec) - {"command"}} == {
        name: getattr(WHOLE, name) for name in common(Stage, JobSpec) - {"command"}
    }


def test_a_request_arrives_as_it_is():
    """At Slurm, beside what says nothing of the size; and the stage's size follows from it."""
    request = ("--nodes=2", "--ntasks-per-node=4", "--mem=8G")
    stage = Stage("a", walltime_s=600.0, command="true", request=request, options=("--nice=10",))
    assert (stage.cores, stage.memory_bytes) == (8, 16 << 30)
    state = RunState("x", Workflow("x", [stage]), SITE, "abcd1234")
    spec = spec_of(state, PlannedJob(("a",), 0.0, Keep.NOTHING, "why"))
    assert (spec.request, spec.cores, spec.memory_bytes) == (request, 8, 16 << 30)


def test_what_a_job_asks_for_slurm_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    plan = RunPlan("abcd1234", "x", "x", (WHOLE,), "per-stage", "slurm-cli", SITE, created_s=1.7e9)
    folder, clock = RunFolder.create(tmp_path, plan), VirtualClock()
    link = FakeLink(clock, folder.path)
    drive(folder, lambda run: SlurmBackend(link, run.path, SITE, clock=clock, sleep=clock.sleep))
    told = link.submitted[0]
    missing = {name for name in common(Stage, SlurmJob) if getattr(told, name) != getattr(WHOLE, name)}
    assert missing <= {"options", "array", "comment"}
    assert told.comment == f"asa:{told.name.rpartition('.')[2]} align sample=B"
    assert told.array == "1-5:2%2"
    assert told.environment["HF_TOKEN"] == "hf_x"
    assert set(WHOLE.options) <= set(told.options)
