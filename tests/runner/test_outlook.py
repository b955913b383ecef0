"""The forecast of a run before it begins."""

import pytest
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.commands import CommandLink

from asa.backend import Capabilities, PartitionLimits
from asa.errors import InputError
from asa.runner import RunFolder, RunPlan
from asa.runner.outlook import check_options, check_possible
from asa.shapes import Moldable, RunAt
from asa.strategies import load_strategy
from asa.workflow import Stage

SITE = Capabilities("x", 112, 28, age_accrues=False)


@pytest.mark.parametrize("strategy", ["asa", "big-job", "per-stage"])
@pytest.mark.parametrize(
    ("option", "hint"), [("--wrap=x", "command"), ("--dependency=afterok:1", "after"), ("-p", "--")]
)
def test_options_of_any_stage_that_would_be_refused_are_told_before_anything_is_sent(tmp_path, strategy, option, hint):
    """Otherwise a refusal would come hours later, when the stage is due."""
    stages = (
        Stage("a", cores=1, walltime_s=60, command="true"),
        Stage("b", cores=1, walltime_s=60, command="true", after=("a",), options=(option,)),
    )
    plan = RunPlan("abcd1234", "x", "x", stages, strategy, "slurm-cli", SITE, created_s=1.7e9)
    folder = RunFolder.create(tmp_path, plan)
    link = CommandLink(prefix=["false"])
    backend = SlurmBackend(link, folder.path, SITE)
    with pytest.raises(InputError) as caught:
        check_options(plan, load_strategy(strategy), backend)
    assert "options" in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("strategy", ["asa", "per-stage"])
def test_options_are_looked_at_beside_what_else_a_stage_asks_for(tmp_path, strategy):
    """The same options may suit one stage, and contradict a key of the next."""
    options = ("--gpus=a100:2",)
    stages = (
        Stage("a", cores=1, walltime_s=60, command="true", options=options),
        Stage("b", cores=1, walltime_s=60, command="true", after=("a",), options=options, gpus=2),
    )
    plan = RunPlan("abcd1234", "x", "x", stages, strategy, "slurm-cli", SITE, created_s=1.7e9)
    backend = SlurmBackend(CommandLink(prefix=["false"]), RunFolder.create(tmp_path, plan).path, SITE)
    with pytest.raises(InputError, match=r"'b'.*options"):
        check_options(plan, load_strategy(strategy), backend)


PARTITIONED = Capabilities(
    "x",
    112,
    28,
    age_accrues=False,
    partition="normal",
    partitions={
        "normal": PartitionLimits(max_cores=112, cores_per_node=28, memory_per_node_bytes=64 << 30),
        "short": PartitionLimits(max_walltime_s=1800.0, max_cores=112, cores_per_node=28),
        "small": PartitionLimits(max_nodes=1, max_cores=28, cores_per_node=28),
        "closed": PartitionLimits(max_cores=112, accounts=("rich",)),
        "shut": PartitionLimits(max_cores=112, barred_accounts=("poor",)),
    },
    accounts=("poor",),
)


def possible(widths, *partitions, account="", memory=0, nodes=False, strategy="asa-plan"):
    """Look at a run of one stage, which takes an hour on 7 and the less the wider it is."""
    own = widths[0]
    points = tuple(RunAt(width, 25200.0 / width) for width in sorted(widths))
    moldable = Moldable(tuple(sorted(widths)), points, partitions=partitions if len(partitions) > 1 else ())
    stage = Stage(
        "a",
        **{"nodes" if nodes else "cores": own},
        walltime_s=25200.0 / own,
        expected_run_s=25200.0 / own,
        command="true",
        partition=partitions[0] if partitions else "",
        account=account,
        memory_bytes=memory,
        moldable=moldable,
    )
    plan = RunPlan("abcd1234", "x", "x", (stage,), strategy, "slurm-cli", PARTITIONED, created_s=1.7e9)
    check_possible(plan, load_strategy(strategy))


@pytest.mark.parametrize("strategy", ["asa-plan", "per-stage"])
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"widths": (28, 224)}, "asks for 224 cores, and the largest possible job has 112"),
        ({"widths": (1, 8), "nodes": True}, "on 8 nodes it asks for 224 cores"),
        (
            {"widths": (28, 56), "partitions": ["small"]},
            "asks for 56 cores in partition 'small', which gives at most 28",
        ),
        ({"widths": (28, 7), "partitions": ["short"]}, "on 7 cores it asks for 1h00m in partition 'short'"),
        (
            {"widths": (28, 7), "partitions": ["normal", "gone"]},
            "partition 'gone', which does not exist; known: normal",
        ),
        ({"widths": (28, 7), "partitions": ["normal,gone", "short"]}, "partition 'gone', which does not exist"),
        ({"widths": (28, 7), "partitions": ["normal", "closed"]}, "takes no jobs of account poor, but those of rich"),
        ({"widths": (28, 7), "partitions": ["normal", "shut"]}, "'shut', which takes no jobs of account poor"),
        ({"widths": (28, 7), "partitions": ["normal", "shut"], "account": "poor"}, "takes no jobs of account poor"),
        ({"widths": (112, 7), "memory": 100 << 30}, "on 7 cores it asks for 100 GiB of memory a node"),
    ],
)
def test_a_shape_in_which_no_job_could_start_is_told_before_anything_is_sent(asked, words, strategy):
    more = {key: value for key, value in asked.items() if key not in {"widths", "partitions"}}
    with pytest.raises(InputError) as caught:
        possible(asked["widths"], *asked.get("partitions", ()), strategy=strategy, **more)
    assert words in caught.value.message
    assert "Nothing was submitted" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("widths", "partitions", "account"),
    [
        ((28, 56), ("normal", "small"), ""),  # each width has a partition, and each partition a width
        ((28, 7), ("normal", "short"), ""),
        ((28, 7), ("normal", "closed"), "rich"),
        ((28, 56), ("normal,small",), ""),  # of which the batch system takes one
    ],
)
def test_what_can_start_somewhere_is_no_trouble(widths, partitions, account):
    possible(widths, *partitions, account=account)
