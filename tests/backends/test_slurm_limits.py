"""The capacity of a Slurm site's nodes, and the client's behaviour when partitions are closed."""

import json
from dataclasses import replace

import pytest
from asa.backends.slurm.commands.reading import read_nodes
from asa.backends.slurm.examination import Examiner
from asa.backends.slurm.facility import SlurmCommands, SlurmRest
from asa.backends.slurm.link import SlurmNode, SlurmPartition, count_gpus
from asa.backends.slurm.rest import reading
from asa.backends.slurm.settings import CommandSettings
from asa.backends.slurm.survey import capabilities
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from told_link import ToldLink

from asa.backend import Capabilities, JobSpec, Troubleshooting

GIB = 1 << 30
PARTITIONS = [SlurmPartition("cpu", is_default=True), SlurmPartition("gpu", max_nodes=2)]
NODES = [
    *(SlurmNode(f"c{i}", 28, 64 * GIB, partitions=("cpu",)) for i in range(4)),
    *(SlurmNode(f"g{i}", 28, 128 * GIB, partitions=("gpu",), gpus=4) for i in range(4)),
]


def impossible(**asked):
    site = capabilities("x", PARTITIONS, NODES, CommandSettings(), accrues=False)
    return site.impossible(JobSpec("a", walltime_s=60.0, **{"cores": 1, **asked}))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"memory_bytes": 64 * GIB}, None),
        ({"memory_bytes": 65 * GIB}, "asks for 65 GiB of memory a node in partition 'cpu', which gives at most 64 GiB"),
        ({"memory_bytes": 65 * GIB, "partition": "gpu"}, None),
        ({"memory_bytes": 120 * GIB, "cores": 56}, None),
        ({"memory_bytes": 129 * GIB, "cores": 56}, "64.5 GiB"),
        ({"memory_bytes": 190 * GIB, "nodes": 3}, None),
        ({"memory_bytes": 260 * GIB, "nodes": 4}, "65 GiB"),
        ({"gpus": 1}, "asks for 1 GPU in partition 'cpu', which gives at most 0"),
        ({"gpus": 8, "partition": "gpu"}, None),
        ({"gpus": 9, "partition": "gpu"}, "9 GPUs in partition 'gpu', which gives at most 8"),
        ({"gpus": 5, "partition": "gpu", "nodes": 1}, "at most 4"),
    ],
)
def test_more_than_the_nodes_have_is_impossible(asked, words):
    told = impossible(**asked)
    assert told is None if words is None else words in told


def test_where_nothing_is_known_of_nodes_nothing_is_impossible():
    site = capabilities("x", [SlurmPartition("p", cores=99)], [], CommandSettings(), accrues=False)
    assert site.impossible(JobSpec("a", cores=1, walltime_s=60.0, memory_bytes=1 << 50, gpus=64)) is None


@given(st.lists(st.tuples(st.sampled_from(["", ":a100", ":nvidia_h100.80gb"]), st.integers(0, 64)), max_size=4))
def test_gpus_are_counted_whatever_their_kind(kinds):
    """Also among other resources, and with the cores that they are bound to."""
    gres = ",".join(["shard:16", *(f"gpu{kind}:{count}(S:0-1,3)" for kind, count in kinds), "craynetwork:4"])
    assert count_gpus(gres) == sum(count for _, count in kinds)


def test_nodes_tell_their_gpus_by_either_means():
    line = "NodeName=n1 Arch=x86_64 CPUTot=28 Gres={} RealMemory=64000 State=IDLE Partitions=p Comment=Gres=gpu:9"
    assert [node.gpus for node in read_nodes(f"{line.format('gpu:a100:4(S:0)')}\n{line.format('(null)')}")] == [4, 0]
    assert reading.node({"name": "n1", "cpus": 28, "gres": "gpu:2"}).gpus == 2
    assert reading.node({"name": "n1", "cpus": 28, "gres": ""}).gpus == 0


@pytest.mark.parametrize("known", [True, False])
def test_a_probe_tells_the_default_partition_where_nothing_else_does(known):
    """So that waits are kept under the name that accounting gives them."""
    link = ToldLink()
    link.site["partitions"] = [SlurmPartition("a", is_default=known, cores=9), SlurmPartition("b", cores=9)]
    record = link._record
    link._record = lambda job_id: replace(record(job_id), partition="b")
    examiner = Examiner(link, CommandSettings(), clock=link.clock, sleep=link.sleep, timer=link.clock)
    assert examiner.examine(probe=True).settings.get("partition") == (None if known else "b")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "A token from $SLURM_JWT cannot be renewed in this process"),
        ({"token_env": "MINE"}, "A token from $MINE cannot be renewed in this process"),
        ({"token_file": "/home/ann/token"}, "Write a new token into /home/ann/token"),
        ({"token_command": "vault read"}, "command vault, run anew"),
    ],
)
def test_a_shut_door_tells_how_a_new_token_gets_in(settings, words):
    site = SlurmRest(url="http://slurm.example.org:6820", **settings)
    assert isinstance(site, Troubleshooting)
    for trouble in (
        "http://x: Slurm does not let us in (HTTP status 401)",
        "the environment variable SLURM_JWT has no token",
        "Protocol authentication error",
    ):
        assert words in site.remedy(trouble)
    assert site.remedy("http://x: nobody listens there") == ""
    assert SlurmCommands().remedy("Protocol authentication error") == ""


def test_limits_are_kept_in_a_runs_plan():
    """As JSON."""
    site = capabilities("x", PARTITIONS, NODES, CommandSettings(), accrues=False)
    adapter = TypeAdapter(Capabilities)
    assert adapter.validate_json(adapter.dump_json(site)) == site
    before = json.loads(adapter.dump_json(site))
    for limits in before["partitions"].values():
        del limits["gpus_per_node"]
    assert adapter.validate_python(before).partitions["gpu"].gpus_per_node is None
