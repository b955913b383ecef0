"""The keys of a stage that are one value each: described once, and the same from a file to a batch system."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa.backend import Capabilities
from asa.compatible import conflict
from asa.continuation import Continuation
from asa.elements import parse_array
from asa.errors import InputError, WorkflowError
from asa.flow import Flow
from asa.keys import RESOURCES, TERMS, JobKeys, StageKeys, asked, keys_of, shared_by
from asa.metrics import measure
from asa.preparation import Preparation
from asa.runner import Run, RunPlan, run_all, specs
from asa.runner.outlook import check_possible
from asa.runner.state import RunState
from asa.shapes import Moldable
from asa.spec import load_workflow, write_workflow
from asa.spec.schema import schema_document
from asa.strategies import Keep, PlannedJob, load_strategy
from asa.waves import OF_EACH, is_small, likeness
from asa.workflow import Stage, Workflow

SITE = Capabilities("m", 112, 28, age_accrues=True)


def spec_of(*stages, site=SITE):
    flow = Workflow("flow", stages)
    return specs.spec_of(RunState("flow", flow, site, "r" * 12), PlannedJob(flow.order, 0.0, Keep.NOTHING, ""))


GIVEN = {  # by kind: as a file has it, as Python has it, and the field that follows
    "memory": ('"3G"', "3G", 3 << 30),
    "storage": ('"3G"', "3G", 3 << 30),
    "count": ("3", 3, 3),
    "number": ("-3", -3, -3),
    "flag": ("true", True, True),
    "text": ('"one"', "one", "one"),
    "output": ('"logs/%x-%4j.out"', "logs/%x-%4j.out", "logs/%x-%4j.out"),
    "choice": ('"ignore"', "ignore", "ignore"),
    "names": ('["A", "B"]', ["A", "B"], ("A", "B")),
    "paths": ('["a/*", "b"]', ["a/*", "b"], ("a/*", "b")),
    "options": ('["--constraint=fast"]', "--constraint=fast", ("--constraint=fast",)),
    "pairs": ('{ A = "1" }', {"A": "1"}, (("A", "1"),)),
    "patience": ('"1min"', 60, 60.0),
    "amount": ("2.5", 2.5, 2.5),
    "files": ('"a/*"', "a/*", ("a/*",)),
    "jobs": ('"2..3"', "2..3", (2, 3)),
}
OF_ITS_OWN = {
    "array": ('"1-5:2%2"', "1-5:2%2", parse_array("1-5:2%2")),
    "warn": ('"USR1@10min"', "USR1@10min", "USR1"),
    "after_any": ('"z"', ["z"], ("z",)),
    "after_start": ('"z"', ["z"], ("z",)),
    "after_matching": ('"z"', ["z"], ("z",)),
    "launcher": ('"srun"', "srun", "srun"),
    "request": ('["--mem=1G"]', "--mem=1G", ("--mem=1G",)),
}
ALONG = {
    "after_any": {"after": ["z"]},
    "after_start": {"after": ["z"]},
    "start_delay": {"after": ["z"], "after_start": ["z"]},
    "after_matching": {"after": ["z"], "array": "1-3"},
    "binds": {"container": "x.sif"},
    "jobs": {"tasks": ["x", "y"]},
}
HOLDERS = {Stage: "", Continuation: "continues", Preparation: "preparation"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "key"),
    [(kind, key) for kind in HOLDERS for key in keys_of(kind)],
    ids=lambda one: getattr(one, "name", ""),
)
def test_each_is_read_from_a_file_and_from_python_and_written_back(tmp_path, kind, key):
    """Under the same name, as the same value; and the schema knows it."""
    text, value, expected = OF_ITS_OWN.get(key.name) or GIVEN[key.kind]
    size = {} if key.name == "request" else {"cores": 6}
    along = ALONG.get(key.name, {}) | ({"continues": True} if kind is Continuation else {})
    along = size | ({} if "tasks" in along else {"command": "x"}) | along
    path = tmp_path / "flow.toml"
    lines = [f"{name} = {json.dumps(said)}" for name, said in along.items()]
    first = '[[stage]]\nname = "z"\ncores = 1\nwalltime = "1h"\ncommand = "x"'
    if needs_array := "array" in along:
        first += f'\narray = "{along["array"]}"'
    head = ['name = "f"', first, '[[stage]]\nname = "a"\nwalltime = "1h"']
    path.write_text("\n".join([*head, *lines, f"{key.name} = {text}\n"]))
    flow = Flow("f")
    flow.stage("z", cores=1, command="x", array=along["array"] if needs_array else None)
    flow.stage("a", **along, **{key.name: value})
    for made in (load_workflow(path), flow.workflow):
        stage = made.stages["a"]
        assert getattr(getattr(stage, HOLDERS[kind]) if HOLDERS[kind] else stage, key.field) == expected
        (tmp_path / "again.toml").write_text(write_workflow(made))
        assert load_workflow(tmp_path / "again.toml").stages["a"] == made.stages["a"]
    assert schema_document()["$defs"]["StageSpec"]["properties"][key.name]["description"] == key.description


@pytest.mark.parametrize("key", keys_of(JobKeys), ids=lambda one: one.name)
def test_what_a_stage_asks_for_its_job_asks_for(key):
    """Alone; beside another in a job, which then asks for it, too; and in each part of the stage, were it shared."""
    value = GIVEN[key.kind][2]
    stage = replace(Stage("a", cores=2, tasks=("x", "y")), **{key.field: value})
    other = Stage("b", cores=1, after=("a",))
    assert getattr(spec_of(stage), key.field) == value
    assert getattr(spec_of(stage, other), key.field) == value
    part = getattr(replace(stage, jobs=(2, 2)).of_each_job(), key.field)
    assert part == (-(-value // 2) if key.is_amount and key.kind != "flag" else value)


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("key", TERMS, ids=lambda key: key.name)
def test_stages_that_say_different_things_share_no_job(key, is_given):
    """Nor if one of them says nothing: it gets what the site gives it, and not what the other one was given."""
    value, another = (5, 7) if key.kind == "number" else ("x", "y")
    values = {"a": value, "b": another if is_given else key.default}
    stages = [replace(Stage(name, cores=1), **{key.field: said}) for name, said in values.items()]
    plan = RunPlan("abcd1234", "w", "w", tuple(stages), "big-job", "local", SITE, created_s=1.7e9)
    listed = rf"\({value}, {another}\)" if is_given else rf"\(the site's own, {value}\)"
    with pytest.raises(InputError, match=rf"{key.name}.*{listed}, and share one job") as refused:
        check_possible(plan, load_strategy("big-job"))
    assert "let its stages ask alike" in refused.value.hint
    alike = tuple(replace(stage, **{key.field: value}) for stage in stages)
    check_possible(replace(plan, stages=alike), load_strategy("big-job"))
    with pytest.raises(WorkflowError, match=f"--{key.option} among its options"):
        replace(stages[0], options=(key.as_option(another),))


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize(
    ("field", "value", "another", "nothing"),
    [
        ("partition", "short", "long", ""),
        ("options", ("--constraint=fast",), ("--constraint=slow",), ()),
        ("options", ("--requeue", "--constraint=fast"), ("--constraint=fast",), ("--requeue",)),
    ],
)
def test_stages_of_other_partitions_or_options_share_no_job(field, value, another, nothing, is_given):
    """Nor if only one of them has any."""
    stages = [Stage("a", cores=1, **{field: value}), Stage("b", cores=1, **{field: another if is_given else nothing})]
    assert conflict(stages).endswith(", and share one job")
    assert not conflict([replace(stage, **{field: value}) for stage in stages])


TYPED = {"count", "number", "memory", "storage", "text", "output", "choice", "flag"}


@pytest.mark.parametrize("key", [key for key in keys_of(StageKeys) if key.kind in TYPED], ids=lambda key: key.name)
def test_a_value_of_another_type_is_refused_in_words(key):
    """In Python, too, where a stage is made without a file."""
    for value in (None, b"x", [1]):
        with pytest.raises(WorkflowError, match=rf"has {key.field} = .*\nGive "):
            Stage("a", cores=1, **{key.field: value})


@pytest.mark.parametrize("key", TERMS, ids=lambda one: one.name)
def test_a_key_keeps_a_stage_by_itself_on_a_node_if_its_option_does(key):
    """Of licenses, which a stage counts, stages that run at the same time in a job would have to share those of one."""
    value = 5 if key.kind == "number" else "x"
    stage = Stage("a", cores=1, command="x")
    by_option = replace(stage, options=(key.as_option(value),))
    assert is_small(replace(stage, **{key.field: value})) == is_small(by_option)


OTHER = {
    "name": "b", "after": ("z",), "when": "failed", "command": "y", "script": "#!/bin/sh\ny", "tasks": ("y",),
    "tasks_file": "y", "cores": 8, "nodes": 2, "walltime_s": 60.0, "expected_run_s": 5.0, "run_spread": 0.5,
    "assumes_walltime": True,
    "learns_run": True, "retries": 1, "retry_walltime_factor": 3.0, "retry_memory_factor": 3.0,
    "retry_max_memory_bytes": 5, "partition": "p", "moldable": Moldable((4, 8)), "jobs": (2, 2),
    "continues": Continuation(), "preparation": Preparation(modules=("m",)), "array": parse_array("1-5"),
    "request": ("--ntasks=4",), "cpus_per_task": 2,
}  # fmt: skip
ALONE = {"tasks", "tasks_file", "script"}  # in place of a command
Z = {"after": ("z",)}
OF_STAGES = {  # along with which others a stage has a field
    "when": Z,
    "after_any": Z,
    "after_start": Z,
    "start_delay_s": Z | {"after_start": ("z",)},
    "after_matching": Z | {"array": parse_array("1-5")},
}


@pytest.mark.parametrize("name", [field.name for field in fields(Stage)])
def test_what_differs_keeps_stages_apart_unless_it_is_each_ones_own(name):
    """A new field is one or the other: it is named among those of each stage, or compared."""
    others = (
        OTHER
        | {key.field: GIVEN[key.kind][2] for key in keys_of(StageKeys)}
        | dict.fromkeys(("after_any", "after_start", "after_matching"), ("z",))
    )
    stage = Stage("a", cores=4, command="" if name in ALONE else "x", **OF_STAGES.get(name, {}))
    if name == "request":
        other = Stage("a", command="x", request=others[name])
    elif name == "jobs":
        stage = replace(stage, command="", tasks=("x", "y"))
        other = replace(stage, jobs=others[name])
    else:
        other = replace(stage, **{name: others[name]})
    assert getattr(other, name) != getattr(stage, name)
    assert (likeness(other, SITE) == likeness(stage, SITE)) == (name in OF_EACH)


def test_what_is_not_asked_for_is_of_its_kind(tmp_path):
    """A run's description is written down, and read again, by the types of its fields."""
    path = tmp_path / "flow.toml"
    path.write_text('name = "f"\n[[stage]]\nname = "a"\ncores = 2\nwalltime = "1h"\ncommand = "x"\n')
    made = load_workflow(path).stages["a"]
    asks = [(getattr(made, key.field), type(getattr(made, key.field))) for key in RESOURCES]
    assert asks == [(0, int), (0, int), (0, int), (False, bool)]


def test_a_shared_job_has_the_most_that_any_of_its_stages_needs():
    a = Stage("a", cores=1, gpus=3, memory_bytes=5)
    b = Stage("b", cores=1, after=("a",), memory_bytes=7, exclusive=True)
    assert asked(spec_of(a, b)) == shared_by([a, b])
    assert {name: value for name, value in shared_by([a, b]).items() if value} == {
        "memory_bytes": 7, "gpus": 3, "exclusive": True,
    }  # fmt: skip


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
    assert JobKeys().allocated(3, 0, 28) == 3
    assert JobKeys(exclusive=True).allocated(3, 2, 28) == 56
