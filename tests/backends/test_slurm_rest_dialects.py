"""Requests to slurmrestd and its answers agree with the published descriptions of every version."""

import json
from dataclasses import replace

import pytest
from asa.backends.slurm.link import SlurmJob
from asa.backends.slurm.rest import reading
from asa.backends.slurm.rest.dialects import KNOWN, dialect, number_of

from asa.errors import BackendError, InputError

JOB = SlurmJob(
    name="stage.token",
    script="#!/bin/sh\n",
    folder="/home/user",
    cores=56,
    walltime_s=90,
    stdout="/home/user/out",
    stderr="/home/user/err",
    nodes=2,
    memory_bytes=3 * 1024**3,
    gpus=4,
    burst_buffer_bytes=5 * 10**9,
    partition="normal",
    account="test",
    qos="high",
    constraint="fast",
    dependency="afterok:1",
    begin_s=1_800_000_000,
    held=True,
    environment={"PATH": "/bin", "X": "a=b"},
    comment="asa:token",
)
ERRATA = {38: {"nodes", "begin_time"}}
"""Keys whose published type is not what the daemon takes; tests with real daemons show what it takes."""
SEVEN = 7


def document(data, number):
    folder = data / "slurm-openapi"
    if not folder.is_dir():
        pytest.skip("no descriptions of the API here")
    name = "schedmd-slurm-22.05-v0.0.38-openapi" if number == 38 else f"slinky-v00{number}-slurm-openapi.gen"
    return json.loads((folder / f"{name}.json").read_text())


def resolved(root, schema):
    while "$ref" in schema:
        found = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step.replace("~1", "/")]
        schema = found
    return schema


def operation(root, ending, method):
    paths = {path.rstrip("/"): item for path, item in root["paths"].items() if "slurmdb" not in path}
    return next(item[method] for path, item in paths.items() if path.endswith(ending) and method in item)


def body_schema(root, ending):
    return resolved(root, operation(root, ending, "post")["requestBody"]["content"]["application/json"]["schema"])


def entry_schema(root, ending, key):
    answer = operation(root, ending, "get")["responses"]["200"]["content"]["application/json"]["schema"]
    return resolved(root, resolved(root, resolved(root, answer)["properties"][key])["items"])


def misfits(root, schema, value, where=""):
    """Return all differences between a value and its description."""
    schema = resolved(root, schema)
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}
    kind = kinds[schema.get("type", "object")]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return [f"{where}: {value!r} is no {schema['type']}"]
    if kind is list:
        return [text for entry in value for text in misfits(root, schema["items"], entry, where + "[]")]
    if kind is dict:
        known = schema.get("properties", {})
        free = "properties" not in schema or schema.get("additionalProperties")
        return [
            text
            for key, entry in value.items()
            for text in (
                misfits(root, known[key], entry, f"{where}.{key}")
                if key in known
                else []
                if free
                else [f"{where}.{key} is not known"]
            )
        ]
    return []


def example(root, schema, name=""):
    """Make a value as a description describes it: numbers are 7, texts their own names."""
    schema = resolved(root, schema)
    kind = schema.get("type", "object")
    if kind == "array":
        return [example(root, schema["items"], name)]
    if kind == "object":
        known = schema.get("properties", {})
        if {"set", "number"} <= known.keys():
            return {"set": True, "infinite": False, "number": SEVEN}
        return {key: example(root, entry, key) for key, entry in known.items()}
    return {"integer": SEVEN, "number": float(SEVEN), "boolean": True}.get(kind, name)


@pytest.mark.parametrize("number", KNOWN)
def test_what_is_written_fits_the_description(data, number):
    root = document(data, number)
    spoken = dialect(number)
    asked = spoken.submission(JOB)
    for key in ERRATA.get(number, ()):
        assert misfits(root, body_schema(root, "/job/submit"), asked), "the description was mended"
        del asked["job"][key]
    assert misfits(root, body_schema(root, "/job/submit"), asked) == []
    change = spoken.change(held=True, walltime_s=61, nodes=1 if "nodes" in spoken.changeable else None)
    assert misfits(root, body_schema(root, "/job/{job_id}"), change) == []
    assert change.keys() >= {"hold", "time_limit"}


@pytest.mark.parametrize("number", KNOWN)
def test_every_quantity_is_read_under_a_name_that_the_description_has(data, number):
    root = document(data, number)
    job = example(root, entry_schema(root, "/job/{job_id}", "jobs"))
    plain = isinstance(job["job_state"], str)
    job |= {"job_state": "FAILED" if plain else ["COMPLETING", "FAILED"], "nodes": "n1"}
    record = reading.record(job)
    assert record.states == (("FAILED",) if plain else ("FAILED", "COMPLETING"))
    texts = ("name", "partition", "dependency", "comment")
    assert {name: getattr(record, name) for name in texts} == {name: name for name in texts}
    assert (record.job_id, record.reason) == ("7", "state_reason")
    times = (record.submit_s, record.eligible_s, record.accrue_s, record.start_s, record.end_s)
    assert times == (SEVEN,) * 5
    assert (record.limit_s, record.cores, record.nodes, record.restarts) == (420, SEVEN, SEVEN, SEVEN)
    assert record.user in {"user_name", "7"}
    pending = reading.record(job | {"job_state": "PENDING" if plain else ["PENDING"], "nodes": ""})
    assert (pending.expected_start_s, pending.start_s, pending.end_s, pending.is_array) == (SEVEN, None, None, True)

    partition = reading.partition(example(root, entry_schema(root, "/partitions", "partitions")))
    assert (partition.name, partition.max_walltime_s, partition.max_nodes) == ("name", 420, SEVEN)
    assert (partition.nodes, partition.cores) == (SEVEN, SEVEN)
    node = reading.node(example(root, entry_schema(root, "/nodes", "nodes")))
    assert (node.name, node.cores, node.memory_bytes, node.partitions) == ("name", SEVEN, 7 * 1024**2, ("partitions",))


@pytest.mark.parametrize("number", KNOWN)
def test_memory_is_counted_by_cores_where_nodes_are_not_said(data, number):
    asked = dialect(number).submission(replace(JOB, nodes=0, cores=4, memory_bytes=10 * 1024**2))
    assert "memory_per_node" not in asked["job"]
    per_core = asked["job"]["memory_per_cpu"]
    assert (per_core if number == 38 else per_core["number"]) == 3
    root = document(data, number)
    job = resolved(root, body_schema(root, "/job/submit")["properties"]["job"])
    assert not misfits(root, job, {"memory_per_cpu": per_core})


def test_quantities_are_rounded_up_to_what_slurm_counts():
    old, new = dialect(38).submission(JOB)["job"], dialect(42).submission(JOB)["job"]
    assert (old["time_limit"], old["memory_per_node"]) == (2, 1536)
    assert (new["time_limit"]["number"], new["memory_per_node"]["number"]) == (2, 1536)
    assert (old["begin_time"], new["begin_time"]["number"]) == ("uts1800000000", 1_800_000_000)


@pytest.mark.parametrize("number", KNOWN)
def test_the_variables_that_sbatch_would_set_are_there(number):
    options = ("--ntasks-per-node=2", "--hint=nomultithread", "--nice=3")
    job = replace(JOB, cpus_per_task=2, gpus=4, options=options, environment={"X": "a=b", "OLD": "d\udce9"})
    told = dialect(number).submission(job)["job"]["environment"]
    told = told if number == 38 else dict(pair.split("=", 1) for pair in told)
    expected = {"X": "a=b", "SLURM_CPUS_PER_TASK": "2", "SLURM_GPUS": "4", "SLURM_NTASKS_PER_NODE": "2"}
    assert expected.items() <= told.items()
    assert told["SLURM_THREADS_PER_CORE"] == "1"
    assert told["PATH"], "there is always one"
    assert "OLD" not in told, "what is not UTF-8 cannot be said in JSON"
    assert (told.get("OMPI_MCA_plm_slurm_args") == "--external-launcher") is (number > 38)


@pytest.mark.parametrize("number", KNOWN)
def test_a_span_of_accounting_takes_in_the_second_that_it_ends_in(number):
    asked = dict(dialect(number).history(100.5, 200.5))
    assert (asked["start_time"], asked["end_time"]) == ("uts100", "uts201")


@pytest.mark.parametrize("number", KNOWN)
def test_what_is_not_asked_for_is_not_written(number):
    bare = SlurmJob("n", "#!/bin/sh\n", "/f", cores=1, walltime_s=60, stdout="/o", stderr="/e")
    job = dialect(number).submission(bare)["job"]
    written = {"name", "current_working_directory", "standard_output", "standard_error"}
    assert job.keys() - {"script"} == written | {"tasks", "time_limit", "environment"}
    assert job["environment"], "an empty one is refused"


def test_an_old_version_cannot_shrink():
    with pytest.raises(BackendError, match=r"v0\.0\.38 cannot shrink"):
        dialect(38).change(held=None, walltime_s=None, nodes=1)


@pytest.mark.parametrize("name", ["v0.0.39", "v0.0.99", "42", "v1.0.42", ""])
def test_a_version_that_is_not_known_is_refused(name):
    with pytest.raises(InputError, match="no API version"):
        number_of(name)
    assert number_of("v0.0.42") == number_of("0.0.42") == 42
