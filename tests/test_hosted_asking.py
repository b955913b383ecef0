"""What a host's job asks for, and what its host hears of its end."""

import pytest

from asa.backend import Capabilities, JobState, JobStatus, PartitionLimits
from asa.hosted.asking import HostRequest, upper_bound
from asa.hosted.ending import Ending, EndKind
from asa.hosted.expected import Expectations
from asa.hosted.graph import HostJob
from asa.outcome import JobOutcome
from asa.requests.directives import take_options


def status(state=JobState.FAILED, **more):
    return JobStatus("1", state, 0.0, exit_code=1, **more)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (None, EndKind.NOT_RUN),
        (status(), EndKind.FAILED),
        (status(outcome=JobOutcome.OUT_OF_MEMORY), EndKind.OUT_OF_MEMORY),
        (status(JobState.TIMEOUT), EndKind.OUT_OF_TIME),
        (status(JobState.CANCELLED), EndKind.CANCELLED),
        (status(JobState.CANCELLED, bad_nodes=("n1",)), EndKind.LOST),
    ],
)
def test_the_kind_of_an_end(end, kind):
    assert Ending("a", completed=False, end=end).how is kind
    assert Ending("a", completed=True, end=end).how is EndKind.COMPLETED


def test_of_options_that_are_given_twice_the_last_holds_and_sizes_are_apart():
    given, _ = take_options(["--cpus-per-task=2", "--qos=low", "--mem=10M", "-c4", "--qos", "high"], "x")
    asked = HostRequest.of(given)
    assert asked.size == ("--mem=10M", "--cpus-per-task=4")
    assert asked.options == ("--qos=high",)


def test_options_say_where_a_job_is_sent_before_anything_else_does():
    """Also to which of several clusters."""
    given, _ = take_options(["-p", "long", "-A", "theirs", "--nice=5", "-M", "small"], "x")
    asked = HostRequest.of(given, partition="short", account="ours", clusters="big")
    assert (asked.partition, asked.account, asked.options) == ("long@small", "theirs", ("--nice=5",))
    assert HostRequest.of([], partition="short", clusters="big, small").partition == "short@big,short@small"
    assert HostRequest.of([], clusters="big").partition == "@big"


@pytest.mark.parametrize(("asked", "partition", "walltime_s"), [
    ("short@there", "short", 1800.0), ("@there", "", 600.0), ("short@other", "short@other", 600.0),
])  # fmt: skip
def test_a_site_of_one_cluster_knows_it_by_its_name(asked, partition, walltime_s):
    site = Capabilities("there", 4, 4, age_accrues=True, partitions={"short": PartitionLimits(1800.0)})
    expected = Expectations(None, "flow", site, 9000.0 if partition == "short" else 600.0, "walltime", "--walltime")
    request = HostRequest(("--ntasks=1",), partition=asked)
    stage = request.stage(HostJob("a", "a", None, (), label="a"), "a.1", "true", after=(), expected=expected)
    assert (stage.partition, stage.walltime_s) == (partition, walltime_s)


@pytest.mark.parametrize(
    ("given_s", "longer_s", "walltime_s"),
    [(None, None, 600.0), (300.0, None, 300.0), (None, 1200.0, 1200.0), (300.0, 1200.0, 300.0), (None, 9000.0, 1800.0)],
)
def test_what_ran_out_of_a_time_that_nobody_gave_gets_more_up_to_the_partitions_limit(given_s, longer_s, walltime_s):
    site = Capabilities("there", 4, 4, age_accrues=True, partitions={"short": PartitionLimits(1800.0)})
    expected = Expectations(None, "flow", site, 600.0, "walltime", "--walltime")
    asked = HostRequest(("--ntasks=1",), partition="short", walltime_s=given_s)
    node = HostJob("a", "align", None, (), label="align A")
    stage = asked.stage(node, "align.1", "true", after=(), expected=expected, longer_s=longer_s)
    assert stage.walltime_s == walltime_s
    assert stage.assumes_walltime is (given_s is None and longer_s is None)
    assert stage.comment == "align A"


@pytest.mark.parametrize(("jobs", "bound"), [(5, 5), (0, None), (None, None), (1 << 31, None), ("unlimited", None)])
def test_the_upper_bound_of_jobs(jobs, bound):
    assert upper_bound(jobs) == bound
