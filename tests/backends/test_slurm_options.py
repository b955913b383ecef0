"""A stage's further options: the allowed ones, and their form for each version of Slurm."""

import json
from dataclasses import replace

import pytest
from asa.backends.slurm.commands.writing import sbatch_command
from asa.backends.slurm.link import SlurmJob
from asa.backends.slurm.options import checked
from asa.backends.slurm.rest.dialects import KNOWN, dialect

from asa.errors import SubmitRejectedError
from asa.requests import SIZES, name_of
from asa.requests.options import OPTIONS

JOB = SlurmJob(
    name="align.token",
    script="#!/bin/sh\n",
    folder="/home/user",
    cores=12,
    walltime_s=90,
    stdout="/out",
    stderr="/err",
    environment={"PATH": "/bin"},
)

VALUES = {
    "bb": "#BB",
    "cluster-constraint": "fast",
    "constraint": "haswell&ssd",
    "container-type": "oci",
    "core-spec": "1",
    "cpu-freq": "low",
    "cpus-per-gpu": "4",
    "distribution": "block",
    "exclude": "n[001-003],n7",
    "exclusive": "user",
    "gpus": "a100:2",
    "gpus-per-node": "2",
    "gpus-per-socket": "1",
    "gpus-per-task": "a100:1",
    "gres": "gpu:a100:2,shard:1",
    "gres-flags": "enforce-binding",
    "hint": "nomultithread",
    "licenses": "matlab:2",
    "mail-type": "END,FAIL",
    "mail-user": "ada@example.org",
    "mcs-label": "x",
    "mem": "4G",
    "mem-per-cpu": "1G",
    "mem-per-gpu": "4G",
    "mincpus": "3",
    "network": "ib",
    "nice": "10",
    "nodelist": "n1",
    "nodes": "2",
    "ntasks-per-core": "1",
    "ntasks-per-node": "4",
    "ntasks-per-socket": "2",
    "oom-kill-step": "1",
    "segment": "4",
    "open-mode": "append",
    "prefer": "ssd",
    "qos": "high",
    "cores-per-socket": "4",
    "cpus-per-task": "2",
    "ntasks": "4",
    "ntasks-per-gpu": "2",
    "tres-per-task": "cpu:2,gres/gpu:1",
    "reservation": "maintenance",
    "signal": "USR1@60",
    "sockets-per-node": "2",
    "switches": "1",
    "thread-spec": "1",
    "threads-per-core": "1",
    "tmp": "10G",
    "wckey": "w",
}
FLAGS = (
    "consolidate-segments", "contiguous", "no-kill", "no-requeue", "overcommit", "oversubscribe", "reboot", "requeue",
    "spread-job", "spread-segments", "use-min-nodes",
)  # fmt: skip
UNPUBLISHED_38 = {"exclude_nodes", "nodelist", "temporary_disk_per_node"}
"""Keys that the daemon of 22.05 takes, and its description does not name; real daemons show it."""


def description(data, number):
    folder = data / "slurm-openapi"
    if not folder.is_dir():
        pytest.skip("no descriptions of the API here")
    name = "schedmd-slurm-22.05-v0.0.38-openapi" if number == 38 else f"slinky-v00{number}-slurm-openapi.gen"
    schemas = json.loads((folder / f"{name}.json").read_text())["components"]["schemas"]
    kind = "job_properties" if number == 38 else "job_desc_msg"
    return schemas, schemas[f"v0.0.{number}_{kind}"]["properties"]


def fits(schemas, schema, value):
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
    if schema["type"] == "array":
        return isinstance(value, list) and all(fits(schemas, schema["items"], entry) for entry in value)
    kinds = {"string": str, "integer": int, "boolean": bool, "object": dict}
    return type(value) is kinds[schema["type"]] and value in schema.get("enum", [value])


def asked(number, *options, **changes):
    if not SIZES.isdisjoint(map(name_of, options)):  # which say all of its size
        changes = {"cores": 0, "cpus_per_task": 1, "gpus": 0, "memory_bytes": 0, "nodes": 0, **changes}
    body = dialect(number).submission(replace(JOB, options=options, **changes))["job"]
    plain = dialect(number).submission(replace(JOB, **changes))["job"]
    return {key: value for key, value in body.items() if plain.get(key) != value and key != "environment"}


@pytest.mark.parametrize("number", KNOWN)
def test_every_option_that_is_passed_on_is_a_key_of_the_description_with_its_type(data, number):
    schemas, properties = description(data, number)
    words = dialect(number).keys()
    for name in (name for name in words if name in SIZES or not OPTIONS[name].instead):
        option = f"--{name}" if name in FLAGS else f"--{name}={VALUES[name]}"
        told = asked(number, option)
        assert told
        for key, value in told.items():
            if number == 38 and key in UNPUBLISHED_38:
                assert key not in properties, "the description was mended"
            elif number == 38 and key == "nodes":  # described as a pair, of which the daemon makes one node
                assert value == 2
            else:
                assert fits(schemas, properties[key], value), f"{option}: {key} = {value!r}"


def test_values_become_what_the_api_wants():
    assert asked(42, "--exclusive") == {"shared": ["none"]}
    assert asked(42, "--mail-type=all,time_limit_90")["mail_type"][-1] == "TIME=90%"
    assert asked(42, "--exclude=n[1,3],n7") == {"excluded_nodes": ["n[1,3]", "n7"]}
    assert asked(42, "--gres=gpu:a100:2", "--gpus-per-node=1") == {"tres_per_node": "gres/gpu:a100:2,gres/gpu:1"}
    assert asked(42, "--signal=B:USR1@60")["kill_warning_flags"] == ["BATCH_JOB"]
    assert asked(38, "--tmp=10G") == {"temporary_disk_per_node": 10240}
    assert asked(38, "--nice") == asked(42, "--nice") == {"nice": 100}


def test_a_stage_overrides_what_the_site_file_says():
    own = replace(JOB, qos="low", options=("--qos=high",))
    assert dialect(42).submission(own)["job"]["qos"] == "high"
    command = sbatch_command(own)
    assert command.index("--qos=high") > command.index("--qos=low")


@pytest.mark.parametrize(
    ("number", "option"),
    [
        (38, "--exclusive"),  # the daemon refuses it
        (38, "--no-requeue"),  # the daemon takes it for the contrary
        (38, "--signal=B:USR1@60"),
        (42, "--deadline=tomorrow"),
        (42, "--container-image=ubuntu"),
        (42, "--nice=much"),
        (42, "--qos"),
        (42, "--requeue=yes"),
        (42, "--mail-type=SOMETIMES"),
        (42, "--hint=compute_bound"),
    ],
)
def test_what_the_api_cannot_say_is_refused_with_a_way_out(number, option):
    with pytest.raises(SubmitRejectedError) as caught:
        asked(number, option)
    assert option in caught.value.message
    assert "slurm-cli" in caught.value.hint


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--ntasks=4", "cores"),
        ("--nodes=2", "nodes"),
        ("--time=1:00:00", "walltime"),
        ("--part=debug", "partition"),  # as sbatch takes it, too
        ("--dependency=afterok:1", "after"),
        ("--export=ALL", "environment"),
        ("--mem=4G", "memory"),
        ("--gpus=2", "gpus"),
        ("--wrap=true", "command"),
        ("--array=1-3", "tasks"),
        ("--output=x", "`stdout`"),
        ("--job-name=x", "names"),
        ("--comment=x", "comment"),
        ("--hold", "asa decides"),
        ("--acc=x", "account"),
    ],
)
@pytest.mark.parametrize("way", ["rest", "commands"])
def test_what_asa_says_itself_is_refused_and_the_key_for_it_named(option, key, way):
    job = replace(JOB, nodes=2, memory_bytes=1 << 30, options=("--qos=high", option))
    with pytest.raises(SubmitRejectedError) as caught:
        dialect(42).submission(job) if way == "rest" else sbatch_command(job)
    assert key in caught.value.hint
    assert caught.value.where == "job 'align.token'"


@pytest.mark.parametrize(
    ("option", "number", "said"),
    [
        ("--mem=0", 38, {"memory_per_node": 0}),
        ("--mem=0", 42, {"memory_per_node": {"set": True, "infinite": False, "number": 0}}),
        ("--mem=4G", 42, {"memory_per_node": {"set": True, "infinite": False, "number": 4096}}),
        ("--mem-per-cpu=1G", 38, {"memory_per_cpu": 1024}),
        ("--nodes=2", 38, {"nodes": 2}),
        ("--nodes=2-3", 42, {"nodes": "2-3"}),
        ("--gpus=a100:2", 38, {"gpus": "a100:2"}),
        ("--gpus=a100:1,v100:2", 42, {"tres_per_job": "gres/gpu:a100:1,gres/gpu:v100:2"}),
        ("--gpus-per-node=a100:1,v100:2", 42, {"tres_per_node": "gres/gpu:a100:1,gres/gpu:v100:2"}),
    ],
)
def test_what_is_meant_for_each_node_or_type_may_be_said_where_no_key_says_another(option, number, said):
    job = replace(JOB, options=(option,))
    assert sbatch_command(job)[-1] == option
    body = dialect(number).submission(job)
    assert {key: body["job"][key] for key in said} == said


def test_the_memory_of_one_task_is_asked_for_by_the_node():
    """By the core it would be more wherever Slurm gives more cores than were asked for."""
    one = replace(JOB, cores=3, cpus_per_task=3, memory_bytes=6 << 30)
    assert "--mem=6144M" in sbatch_command(one)
    assert dialect(38).submission(one)["job"]["memory_per_node"] == 6144
    assert "--mem-per-cpu=2048M" in sbatch_command(replace(one, cpus_per_task=1))


@pytest.mark.parametrize(
    "option", ["-C haswell", "--qos high", "qos=high", "--", "--=x", "", "--Qos=x", "--x=a\0b", "--x=\udc80"]
)
def test_what_is_no_option_is_refused(option):
    with pytest.raises(SubmitRejectedError, match="no option"):
        checked([option], "align")


def test_options_reach_sbatch_as_they_are():
    command = sbatch_command(
        replace(JOB, options=("--exclusive", "--container-image=a b", "--constraint=x=y", "--gres=gpu:1"))
    )
    assert command[-4:] == ["--exclusive", "--container-image=a b", "--constraint=x=y", "--gres=gpu:1"]


def test_cores_are_told_in_tasks():
    job = replace(JOB, cpus_per_task=4)
    assert {"--ntasks=3", "--cpus-per-task=4"} <= set(sbatch_command(job))
    assert not any(word.startswith("--cpus-per-task") for word in sbatch_command(JOB))
    for number in KNOWN:
        body = dialect(number).submission(job)["job"]
        assert (body["tasks"], body["cpus_per_task"]) == (3, 4)
        assert "cpus_per_task" not in dialect(number).submission(JOB)["job"]


def test_tasks_find_their_gpus_by_the_variables_of_their_release():
    """Since 24.11 sbatch says how tasks are bound to GPUs, in place of how many each has."""
    options = ("--ntasks=2", "--cpus-per-task=3", "--gpus-per-task=a100:1")
    job = replace(JOB, cores=0, cpus_per_task=1, gpus=0, memory_bytes=0, nodes=0, options=options)
    older, newer = (dialect(number).variables(job) for number in (38, 42))
    assert (older["SLURM_GPUS_PER_TASK"], older["SLURM_CPUS_PER_TASK"]) == ("a100:1", "3")
    assert newer["SLURM_TRES_PER_TASK"] == "cpu=3,gres/gpu:a100=1"
    assert newer["SLURM_TRES_BIND"] == "gres/gpu:per_task:1"
    assert "SLURM_GPUS_PER_TASK" not in newer
