"""Checks before a run that a job can run on Slurm: by a test submission, by nodes, and by limits."""

from dataclasses import replace

import pytest
from asa.backends.slurm.commands import Done
from asa.backends.slurm.commands.refusals import objection
from asa.backends.slurm.link import SlurmJob, SlurmLimits, SlurmNode, SlurmPartition
from asa.backends.slurm.preflight import SlurmPreflight, beyond_limits, is_certain

from asa.errors import UnavailableError

JOB = SlurmJob("flow.t", "#!/bin/sh\n", "/x", cores=1, walltime_s=7200.0, stdout="/o", stderr="/e")
PARTITIONS = [SlurmPartition("normal", is_default=True), SlurmPartition("gpu")]
TESTED = "allocation failure: "
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("returncode", "stderr", "words"),
    [
        (0, "sbatch: Job 7 to start at 2026-11-28T05:37:09 a using 1 processors on nodes n001\n", None),
        (1, f"{TESTED}Requested node configuration is not available\n", "Requested node configuration"),
        (1, f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{TESTED}{POLICY}\n", "QOSMaxWall"),
        (1, f"sbatch: error: AssocMaxSubmitJobLimit\n{TESTED}{POLICY}\n", None),
        (255, "sbatch: unrecognized option '--nonsense'\nTry \"sbatch --help\"\n", "unrecognized option"),
        (255, "sbatch: error: Invalid --signal specification\n", "Invalid --signal"),
        (1, f"{TESTED}Required partition not available (inactive or drain)\n", None),
        (1, f"{TESTED}Unable to contact slurm controller (connect failure)\n", None),
        (1, f"{TESTED}Socket timed out on send/recv operation\n", None),
        (1, f"{TESTED}The moon is in the wrong quarter\n", None),
        (1, "sbatch: error: the moon is in the wrong quarter\n", None),
        (1, "sbatch: fatal: Unable to process configuration file\n", None),
        (137, "", None),
        (127, "env: 'sbatch': No such file or directory\n", None),
        (255, "ssh: connect to host login port 22: Connection refused\n", None),
    ],
)  # fmt: skip
def test_only_what_is_said_of_the_request_for_good_is_an_objection(returncode, stderr, words):
    said = objection(Done(returncode, "", stderr))
    assert (said is None) == (words is None), said
    assert words is None or words in said


def nodes(*states, **more):
    return [SlurmNode(f"n{n}", 28, 1 << 36, (state,), ("normal",), **more) for n, state in enumerate(states)]


def test_what_is_said_of_nodes_is_certain_where_none_is_away():
    assert is_certain(nodes("IDLE", "ALLOCATED", "MIXED"), PARTITIONS, JOB)
    assert not is_certain([], PARTITIONS, JOB)


def test_nodes_that_are_away_change_nothing_if_enough_of_their_kind_are_there():
    some = nodes("DOWN", "IDLE", "IDLE")
    assert is_certain(some, PARTITIONS, JOB)
    assert is_certain(some, PARTITIONS, replace(JOB, nodes=2))
    assert not is_certain(some, PARTITIONS, replace(JOB, nodes=3))
    assert not is_certain(some, PARTITIONS, replace(JOB, cores=84))
    assert not is_certain(some, PARTITIONS, replace(JOB, gpus=3)), "each may be on a node of its own"
    assert not is_certain(some, PARTITIONS, replace(JOB, options=("--nodelist=n0",)))
    other = [*nodes("IDLE", "IDLE"), *nodes("DRAIN", traits="bigmem gpu:2")]
    assert not is_certain(other, PARTITIONS, JOB)
    assert not is_certain(nodes("DOWN", "DOWN"), PARTITIONS, JOB)
    elsewhere = [*nodes("IDLE"), replace(nodes("DOWN")[0], partitions=("gpu",))]
    assert is_certain(elsewhere, PARTITIONS, JOB)
    assert not is_certain(elsewhere, PARTITIONS, replace(JOB, partition="gpu"))


def own(account="mine", qualities=(), partition="", **limits):
    return SlurmLimits(limits, user="me", account=account, qualities=qualities, partition=partition)


@pytest.mark.parametrize(
    ("every", "job", "words"),
    [
        ([own(MaxWall="01:00:00")], JOB, "asks for 2h00m, and account mine has at most 1h00m a job (MaxWall)"),
        ([own(MaxWall="03:00:00")], JOB, None),
        ([own()], JOB, None),
        ([], JOB, None),
        # another account, or none is named and one of them does
        ([own(MaxWall="01:00:00"), own("other")], JOB, None),
        ([own(MaxWall="01:00:00"), own("other")], replace(JOB, account="mine"), "account mine"),
        ([own(MaxWall="01:00:00"), own("other")], replace(JOB, options=("--account=other",)), None),
        # a quality of service counts first
        (
            [own(MaxWall="01:00:00", qualities=("long",)), SlurmLimits({"MaxWall": "1-00:00:00"}, quality="long")],
            JOB,
            None,
        ),
        (
            [own(qualities=("short", "long")), SlurmLimits({"MaxWall": "01:00:00"}, quality="short")],
            replace(JOB, qos="short"),
            "QOS short has at most 1h00m",
        ),
        ([own(qualities=("short", "long")), SlurmLimits({"MaxWall": "01:00:00"}, quality="short")], JOB, None),
        # of other partitions
        ([own(MaxWall="01:00:00", partition="gpu")], JOB, None),
        # what an option says is not looked into
        ([own(MaxWall="01:00:00")], replace(JOB, options=("--time=10",)), None),
        # resources
        ([own(MaxTRES="cpu=4,gres/gpu=1,mem=10G,node=2")], replace(JOB, cores=8, walltime_s=60.0), "8 cores"),
        ([own(MaxTRES="cpu=4,gres/gpu=1,mem=10G,node=2")], replace(JOB, gpus=2), "2 GPUs"),
        ([own(MaxTRES="cpu=4,gres/gpu=1,mem=10G,node=2")], replace(JOB, nodes=3), "3 nodes"),
        ([own(MaxTRES="mem=10240")], replace(JOB, memory_bytes=11 << 30), "11264 MB of memory"),
        ([own(MaxTRES="cpu=4,mem=10G")], replace(JOB, cores=4, memory_bytes=10 << 30), None),
        ([own(MaxWall="UNLIMITED")], JOB, None),
    ],
)
def test_limits_on_one_job(every, job, words):
    said = beyond_limits(every, PARTITIONS, job)
    assert (said is None) == (words is None), said
    assert words is None or words in said


LIMITED = [own(MaxTRES="cpu=4,gres/gpu=2,mem=1G,node=2")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ntasks=8",), "8 cores"),
        (("--ntasks=2", "--cpus-per-task=3"), "6 cores"),
        (("--nodes=3",), "3 nodes"),
        (("--nodes=3-8",), "3 nodes"),
        (("--nodes=1-8",), None),
        (("--nodes=8", "--ntasks=2"), None),
        (("--gpus=8",), "8 GPUs"),
        (("--gres=gpu:a100:3",), "3 GPUs"),
        (("--nodes=2", "--gpus-per-node=2"), "4 GPUs"),
        (("--ntasks=3", "--gpus-per-task=1"), "3 GPUs"),
        (("--gres=gpu:a100:2",), None),
        (("--mem=8G",), "8192 MB"),
        (("--nodes=2", "--mem=600M"), "1200 MB"),
        (("--nodes=1-2", "--mem=600M"), None),
        (("--ntasks=4", "--mem-per-cpu=512M"), "2048 MB"),
        (("--gpus=2", "--mem-per-gpu=1G"), "2048 MB"),
        (("--ntasks=4", "--mem-per-cpu=256M", "--gpus=2"), None),
        (("--ntasks=8", "--mem-per-cpu=1G", "--overcommit"), None),
        (("--mem=0",), None),
        ((), None),
    ],
)
def test_limits_hold_for_what_is_asked_for_in_words_too(options, words):
    for job in (replace(JOB, cores=0, options=options), replace(JOB, cores=0, options=options, array="1-9")):
        said = beyond_limits(LIMITED, PARTITIONS, job)
        assert (said is None) == (words is None), said
        assert words is None or words in said


def test_what_options_say_beside_cores_counts_for_limits_too():
    assert "3 GPUs" in beyond_limits(LIMITED, PARTITIONS, replace(JOB, options=("--gres=gpu:3",)))
    assert "2048 MB" in beyond_limits(LIMITED, PARTITIONS, replace(JOB, cores=4, options=("--mem-per-cpu=512M",)))
    assert beyond_limits(LIMITED, PARTITIONS, replace(JOB, cores=8, options=("--overcommit",))) is None
    assert beyond_limits(LIMITED, PARTITIONS, replace(JOB, options=("--nodes=some",))) is None, "Slurm says it"


@pytest.mark.parametrize(
    ("options", "certain"),
    [
        (("--ntasks=2",), True),
        (("--nodes=2", "--ntasks=8"), True),
        (("--gres=gpu:8",), True),
        (("--ntasks=8",), False),
        (("--nodes=2-4",), False),
        (("--gpus=8",), False),
    ],
)
def test_on_how_many_nodes_a_job_could_be_is_read_in_its_words_too(options, certain):
    some = nodes("DOWN", "IDLE", "IDLE")
    assert is_certain(some, PARTITIONS, replace(JOB, cores=0, options=options)) is certain


def test_a_partitions_own_quality_of_service_counts_before_all():
    partitions = [replace(PARTITIONS[0], quality="part")]
    assert beyond_limits([own(MaxWall="01:00:00")], partitions, JOB) is None


class Link:
    """Answers, or fails, as a test wants."""

    def __init__(self, said=None, **config):
        self.said, self.config = said, config

    def settings(self):
        return self.config

    def limits(self, cluster):
        return [own(MaxWall="01:00:00")]

    def partitions(self):
        return PARTITIONS

    def nodes(self):
        raise UnavailableError("away")

    def test(self, job, timeout_s):
        return self.said


def test_limits_that_are_not_enforced_are_none():
    assert SlurmPreflight(Link(ClusterName="c", AccountingStorageEnforce="none")).objection(JOB, 1.0) is None
    assert "MaxWall" in SlurmPreflight(Link(ClusterName="c", AccountingStorageEnforce="limits")).objection(JOB, 1.0)
    assert "MaxWall" in SlurmPreflight(Link(ClusterName="c")).objection(JOB, 1.0), "where Slurm does not tell"


def test_what_nodes_there_are_must_be_known_to_believe_what_is_said_of_them():
    short = replace(JOB, walltime_s=60.0)
    link = Link("Requested node configuration is not available", ClusterName="c")
    assert SlurmPreflight(link).objection(short, 1.0) is None
    link.said = "Invalid feature specification"
    assert SlurmPreflight(link).objection(short, 1.0) == link.said
    link.said = "Access/permission denied"
    assert SlurmPreflight(link).objection(short, 1.0) is None
