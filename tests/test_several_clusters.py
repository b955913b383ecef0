"""Several clusters as one batch system: which stage may go where, what waits for what, and whose job is whose."""

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from asa.backends.slurm.backend import SlurmBackend
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import Capabilities, Dependency, DependencyType, JobSpec, JobState, PartitionLimits, cluster_of
from asa.cli.revising import changed_file
from asa.clusters import SeveralClusters
from asa.clusters.abilities import abilities_of
from asa.clusters.backend import Member, SeveralBackends
from asa.elements import Array, Elements
from asa.errors import InputError, JobNotFoundError, SubmitDeferredError, SubmitRejectedError, UnavailableError
from asa.estimators import WaitBank
from asa.observations import queued
from asa.pool.stages import pool_shape
from asa.records import Ended, Submitted
from asa.runner import RunFolder, RunPlan, drive
from asa.runner.clusters import fetching_s, on_clusters, queue_of, waits_elsewhere
from asa.runner.forecasts import LearnedForecast, in_queues
from asa.runner.state import RunState
from asa.runner.timing import times_of
from asa.shapes import Moldable
from asa.sites import open_facility
from asa.spec import load_workflow
from asa.strategies.base import JobRequest, Keep, Phase, Plan, PlannedJob, PlanStep
from asa.waits import LEVELS, QueuedJob, WaitForecast, exactly
from asa.workflow import Stage, Workflow


def cluster(name, cores=112, per_node=28, **changes):
    limits = {"batch": PartitionLimits(cores_per_node=per_node, max_cores=cores), "long": PartitionLimits(86400.0)}
    given = {"partition": "batch", "partitions": limits, "arrays": True, "max_array_size": 1001, "races": True}
    return Capabilities(name, cores, per_node, **{"age_accrues": False, **given, **changes})


BIG, SMALL = cluster("big"), cluster("small", 32, 16)
SITE = abilities_of({"big": BIG, "small": SMALL}, moves_s=300.0)


class Pair:
    """Two Slurms in memory, which count their jobs by themselves, and a run's folder that both see."""

    def __init__(self, path, **sites):
        self.clock, self.path = VirtualClock(), path
        self.sites = {"big": BIG, "small": SMALL} | sites
        self.links = {name: FakeLink(self.clock, path) for name in self.sites}
        for part in ("marks", "posts"):
            (path / part).mkdir(parents=True, exist_ok=True)

    def connect(self, run=None):
        folder = self.path if run is None else run.path
        members = {
            name: Member(
                name,
                SlurmBackend(
                    self.links[name], folder, site, own=folder / "clusters" / name,
                    clock=self.clock, sleep=lambda _: True,
                ),
                folder / "clusters" / name,
            )
            for name, site in self.sites.items()
        }  # fmt: skip
        return SeveralBackends(members, self.clock.sleep, lambda every: abilities_of(every, moves_s=300.0))

    def until(self, backend, job_id, *states):
        for _ in range(2000):
            if (found := backend.status([job_id])[job_id]).state in states:
                return found
            backend.wait(backend.now() + 5.0)
        raise AssertionError(f"job {job_id} is {found.state}")


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path / "run")


def job(name, partition="", **changes):
    return JobSpec(name, 4, 600.0, "sleep 60", token=f"t-{name}", partition=partition, **changes)


# ---------------------------------------------------------------------- what they can do together


def test_a_bound_of_several_is_the_smallest_and_an_ability_is_what_all_have():
    both = abilities_of({
        "a": cluster("x", max_queued=10, age_accrues=True, arrays=True, max_array_size=None),
        "b": cluster("y", 8, 4, max_queued=None, age_accrues=False, arrays=False, races=False, accepts_late=False),
    })  # fmt: skip
    assert (both.max_queued, both.max_array_size, both.max_cores, both.max_together) == (10, 1001, 112, 1)
    assert (both.age_accrues, both.arrays, both.races, both.accepts_late, both.plans) == (
        False,
        False,
        False,
        True,
        False,
    )
    assert (both.shrink_by, both.grow_by) == (0, 0)
    assert [*both.partitions] == ["batch@a", "long@a", "batch@b", "long@b"]
    assert both.partition == "batch@a"


@pytest.mark.parametrize(
    ("partition", "cores", "why"),
    [
        ("batch@big", 112, None),
        ("batch@small", 32, None),
        ("batch@small", 33, "largest possible job has 32"),
        ("batch@huge", 1, "does not exist"),
        ("wide@big", 1, "does not exist"),
        ("", 112, None),
        ("@small", 32, None),
        ("batch,long@big", 1, "partition 'batch', which does not exist"),
        ("batch@big,batch@small", 1, None),
    ],
)
def test_a_job_is_possible_where_its_cluster_says_so(partition, cores, why):
    said = SITE.impossible(JobSpec("a", cores, 60.0, partition=partition))
    assert (said is None) if why is None else (why in said)


def test_a_partition_of_no_named_cluster_may_last_as_long_as_the_longest_of_that_name():
    longer = cluster("x", partitions={"batch": PartitionLimits(3600.0), "long": PartitionLimits(2 * 86400.0)})
    both = abilities_of({"big": BIG, "x": longer})
    assert both.limits("long").max_walltime_s == 2 * 86400.0
    assert both.limits("long@big").max_walltime_s == 86400.0
    assert both.limits("batch").max_walltime_s is None
    assert both.limits("nowhere").max_walltime_s is None


def test_nodes_are_as_large_as_those_of_their_cluster():
    assert SITE.there(JobSpec("a", 56, 60.0, nodes=2, partition="batch@small")).cores == 32
    assert SITE.there(JobSpec("a", 56, 60.0, nodes=2, partition="batch@big")).cores == 56
    assert SITE.there(JobSpec("a", 8, 60.0, nodes=2, partition="batch@small")).cores == 8


def test_a_wait_is_that_of_the_cluster_s_own_queue():
    asked = queued(JobSpec("a", 4, 60.0, partition="long@small"), SITE, 0.0, "me")
    assert (asked.system, asked.partition) == ("small", "long")
    assert queued(JobSpec("a", 4, 60.0), SITE, 0.0, "me").system == "big"
    assert queued(JobSpec("a", 4, 60.0, partition="long"), BIG, 0.0, "me").partition == "long"


# ---------------------------------------------------------------------- what stages are offered


def test_a_stage_may_go_to_each_cluster_that_has_its_partition():
    flow = Workflow("w", [
        Stage("any", cores=4),
        Stage("long", cores=4, partition="long"),
        Stage("there", cores=4, partition="batch@small"),
        Stage("wide", cores=64),
        Stage("narrow", cores=4, partition="batch@huge"),
        Stage("here", cores=1, local=True),
        Stage("either", cores=4, partition="batch@big,long@small,batch@small"),
        Stage("nodes", nodes=2),
        Stage("few", nodes=2, partition="batch@small"),
    ])  # fmt: skip
    only_big = abilities_of({"small": SMALL, "big": cluster("big", partitions={"batch": PartitionLimits()})})
    offered = {
        name: (stage.partition, stage.moldable.partitions if stage.moldable else ())
        for name, stage in on_clusters(flow, only_big).stages.items()
    }
    assert offered == {
        "any": ("batch@small", ("batch@small", "batch@big")),
        "long": ("long@small", ()),
        "there": ("batch@small", ()),
        "wide": ("batch@big", ("batch@small", "batch@big")),
        "narrow": ("batch@huge", ()),
        "here": ("", ()),
        "either": ("batch@big", ("batch@big", "long@small,batch@small")),
        "nodes": ("batch@big", ()),
        "few": ("batch@small", ()),
    }
    again = on_clusters(on_clusters(flow, only_big), only_big)
    assert again.stages == on_clusters(flow, only_big).stages
    alone = {name: stage.partition for name, stage in on_clusters(flow, BIG).stages.items()}
    assert alone["narrow"] == "batch@huge"
    assert (alone["either"], alone["there"], alone["long"]) == ("batch", "batch@small", "long")
    plain = Workflow("w", [Stage("any", cores=4), Stage("long", cores=4, partition="long")])
    assert on_clusters(plain, BIG) is plain


def test_a_stage_may_name_a_cluster_alone():
    flow = Workflow("w", [Stage("a", cores=4, partition="@small"), Stage("b", cores=4, partition="@small,@big")])
    several, one = on_clusters(flow, SITE).stages, on_clusters(flow, SMALL).stages
    assert (several["a"].partition, several["a"].moldable) == ("batch@small", None)
    assert several["b"].moldable.partitions == ("batch@small", "batch@big")
    assert [(stage.partition, stage.moldable) for stage in one.values()] == [("", None)] * 2
    both = Moldable(partitions=("batch@big", "long@small"))
    offered = Workflow("w", [Stage("a", cores=4, partition="batch@big", moldable=both)])
    stage = on_clusters(offered, SMALL).stages["a"]
    assert (stage.partition, stage.moldable.partitions) == ("long", ())


@pytest.mark.parametrize(("partition", "why"), [
    ("@big", "asks for cluster 'big', and this one is 'small': the setting `cluster`"),
    ("batch@big@small", "asks for cluster 'big'"),
])  # fmt: skip
def test_another_cluster_than_the_only_one_is_refused_with_what_reaches_it(partition, why):
    site = SMALL if partition == "@big" else SITE
    assert why in site.impossible(JobSpec("a", 1, 60.0, partition=partition))


def test_a_partition_of_one_name_is_that_of_the_first_cluster_that_has_it(pair):
    """As for the jobs of a pool, of which nobody offers each a choice."""
    pair.sites["small"] = cluster("small", 32, 16, partitions={"batch": PartitionLimits(), "gpu": PartitionLimits()})
    backend = pair.connect()
    assert backend.capabilities.impossible(job("a", "gpu", cpus_per_task=4)) is None
    assert [backend.submit(job(name, name)) for name in ("gpu", "batch")] == ["1@small", "1@big"]
    with pytest.raises(SubmitRejectedError, match="not on one of the clusters"):
        backend.submit(job("c", "nowhere"))


def test_the_jobs_of_a_pool_are_as_large_as_a_node_of_their_cluster():
    flow = Workflow("w", [Stage(f"s{n}", cores=4, partition="batch@small") for n in range(20)])
    assert pool_shape(flow, SITE)["cores"] == 16
    anywhere = Workflow("w", [Stage(f"s{n}", cores=4) for n in range(20)])
    assert pool_shape(anywhere, SITE)["cores"] == 28
    assert pool_shape(anywhere, abilities_of({"small": SMALL, "big": BIG}))["cores"] == 16
    longest = Workflow("w", [Stage("a", cores=4, walltime_s=86000.0, partition="@small")])
    shape = pool_shape(longest, abilities_of({"small": cluster("small", partition="long"), "big": BIG}))
    assert (shape["partition"], shape["walltime"]) == ("long@small", 86400.0)


# ---------------------------------------------------------------------- as a backend


def test_jobs_of_one_number_are_two(pair):
    backend = pair.connect()
    first, second = backend.submit(job("a", "batch@big")), backend.submit(job("b", "batch@small"))
    assert (first, second) == ("1@big", "1@small")
    backend.cancel(second)
    assert pair.until(backend, second, JobState.CANCELLED).job_id == second
    assert pair.until(backend, first, JobState.COMPLETED).job_id == first
    again = pair.connect()
    assert [s.job_id for s in again.find(["t-a"])["t-a"]] == [first]
    assert [s.job_id for s in again.find(["t-b"])["t-b"]] == [second]
    with pytest.raises(JobNotFoundError, match="none of the clusters"):
        backend.status(["1"])


def test_a_dependency_on_another_cluster_s_job_is_met_by_its_end(pair):
    backend = pair.connect()
    first = backend.submit(job("a", "batch@big"))
    after = (Dependency(first),)
    with pytest.raises(SubmitDeferredError, match=r"1@big.*another cluster"):
        backend.submit(job("b", "batch@small", dependencies=after))
    here = backend.submit(job("c", "batch@big", dependencies=after))
    assert pair.links["big"].submitted[-1].dependency == "afterok:1"
    pair.until(backend, first, JobState.COMPLETED)
    second = backend.submit(job("b", "batch@small", dependencies=after))
    assert not pair.links["small"].submitted[-1].dependency
    assert pair.until(backend, second, JobState.COMPLETED)
    assert pair.until(backend, here, JobState.COMPLETED)


def test_what_depends_on_a_failure_elsewhere_is_refused(pair):
    backend = pair.connect()
    failed = backend.submit(JobSpec("a", 4, 600.0, "sleep 5; exit 3", token="t-a", partition="batch@big"))
    pair.until(backend, failed, JobState.FAILED)
    with pytest.raises(SubmitRejectedError, match="ended as failed"):
        backend.submit(job("b", "batch@small", dependencies=(Dependency(failed),)))
    assert backend.submit(
        job("c", "batch@small", dependencies=(Dependency(failed, DependencyType.AFTERANY),))
    ).endswith("@small")


def test_one_that_is_away_keeps_back_only_its_own_jobs(pair):
    backend = pair.connect()
    pair.links["small"].down = True
    with pytest.raises(SubmitDeferredError):
        backend.submit(job("b", "batch@small"))
    first = backend.submit(job("a", "batch@big"))
    assert pair.until(backend, first, JobState.COMPLETED)
    pair.links["small"].down = False
    assert backend.submit(job("b", "batch@small")) == "1@small"


def test_what_all_queues_show_is_told_apart_and_in_order(pair):
    backend = pair.connect()
    assert list(backend.queue_events(10)) == []
    assert backend.condition.trouble == ""


def test_an_array_for_a_cluster_that_is_away_stays_whole(tmp_path):
    many = replace(at("b", (), "batch@small"), array=Array(Elements.of(range(1, 65))))
    folder = run_of(tmp_path, (at("a", (), "batch@big"), many))
    pair = Pair(folder.path)
    back_s, sleep = pair.clock() + 120.0, pair.clock.sleep
    pair.links["small"].down = True

    def slept(seconds):
        pair.links["small"].down = pair.clock() < back_s
        return sleep(seconds)

    pair.clock.sleep = slept
    assert drive(folder, pair.connect).outcome == "completed"
    assert [one.array for one in pair.links["small"].submitted] == ["1-64"]


def test_times_are_on_the_clock_of_the_first_also_once_it_is_known_to_differ(pair):
    pair.links["small"].skew_s = 300.0
    backend = pair.connect()
    first = backend.submit(job("a", "batch@small"))
    status = pair.until(backend, first, JobState.COMPLETED)
    assert abs(status.end_s - backend.now()) < 60.0


def test_only_clusters_that_may_have_a_job_are_asked_for_it(pair):
    backend = pair.connect()
    first = backend.submit(job("a", "batch@big"))
    pair.links["small"].down = True
    assert [one.job_id for one in backend.find(["t-a"])["t-a"]] == [first]
    assert backend.find(["t-never"]) == {"t-never": []}


def test_a_cluster_without_jobs_of_the_run_is_not_asked_and_not_missed(pair):
    backend = pair.connect()
    pair.links["small"].down = True
    first, calls = backend.submit(job("a", "batch@big")), sum(pair.links["small"].calls.values())
    pair.until(backend, first, JobState.COMPLETED)
    assert backend.now() - backend.condition.heard_s < 60.0
    assert not backend.condition.trouble
    assert sum(pair.links["small"].calls.values()) == calls


# ---------------------------------------------------------------------- a run


def run_of(path, stages, strategy="chained"):
    plan = RunPlan("abcd12345678", "flow", "flow", stages, strategy, "slurm-cli", SITE, created_s=1.7e9, history=0)
    return RunFolder.create(path, plan)


def at(name, after, partition, command="sleep 60"):
    return Stage(
        name, cores=4, after=after, partition=partition, walltime_s=600.0, expected_run_s=60.0, command=command
    )


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa", "asa-naive", "asa-plan"])
def test_a_stage_begins_once_those_before_it_have_ended_wherever_they_ran(tmp_path, strategy):
    stages = (
        at("a", (), "batch@big"), at("b", ("a",), "batch@small"), at("c", ("a",), "batch@big"),
        at("d", ("b", "c"), "batch@big"), at("e", ("d",), "batch@small"),
    )  # fmt: skip
    folder = run_of(tmp_path, stages, strategy)
    pair = Pair(folder.path)
    result = drive(folder, pair.connect)
    assert result.outcome == "completed", result.reason
    state, _ = folder.state()
    ran = {name: state.jobs[view.job_id].status for name, view in state.stages.items()}
    assert {name: status.job_id.rpartition("@")[2] for name, status in ran.items()} == {
        "a": "big", "b": "small", "c": "big", "d": "big", "e": "small",
    }  # fmt: skip
    for stage in stages:
        for before in stage.after:
            began_s = ran[stage.name].payload_start_s or ran[stage.name].start_s
            assert ran[before].end_s <= began_s + 5.0, "but for the seconds by which one Slurm is ahead of the other"
    assert sum(len(link.submitted) for link in pair.links.values()) == 5


def test_who_fetches_from_another_cluster_gets_time_for_it(tmp_path):
    folder = run_of(
        tmp_path, (at("a", (), "batch@big"), at("b", ("a",), "batch@small"), at("c", ("b",), "batch@small"))
    )
    pair = Pair(folder.path)
    assert drive(folder, pair.connect).outcome == "completed"
    limits = {one.name.split(".")[0]: one.walltime_s for link in pair.links.values() for one in link.submitted}
    assert {name.rpartition("_")[2]: math.ceil(s / 60) for name, s in limits.items()} == {"a": 10, "b": 15, "c": 10}


FILE = """
name = "flow"
[[stage]]
name = "a"
cores = 4
walltime = "10m"
expected = "1m"
command = "sleep 60"
[[stage]]
name = "b"
after = ["a"]
cores = 4
walltime = "10m"
expected = "1m"
partition = "batch"
command = "sleep {b_s}"
"""


def test_a_stage_that_was_offered_clusters_has_not_changed_in_its_file(tmp_path, capsys):
    file = tmp_path / "flow.toml"
    file.write_text(FILE.format(b_s=60))
    stages = tuple(load_workflow(str(file)).stages.values())
    plan = RunPlan(
        "abcd12345678", "flow", "flow", stages, "asa-plan", "slurm-cli", SITE,
        created_s=1.7e9, history=0, source=str(file),
    )  # fmt: skip
    folder = RunFolder.create(tmp_path / "run", plan)
    state, _ = folder.state()
    assert state.workflow.stages["b"].moldable.partitions == ("batch@big", "batch@small")
    assert changed_file(folder, state, (), goes_again=True) is None
    assert capsys.readouterr().err == ""
    file.write_text(FILE.format(b_s=61))
    assert changed_file(folder, state, (), goes_again=True) == file
    assert "stage b changed since the run began" in capsys.readouterr().err


class KnownWaits:
    """A bank in which both clusters let jobs wait for 5 s."""

    draws = False

    def predict_together(self, _jobs):
        return self

    def for_choice(self, _index):
        return WaitForecast((5.0,) * len(LEVELS), 5.0)


@pytest.mark.parametrize("keep", [Keep.AWAIT, Keep.DEPENDENCY])
def test_what_is_fetched_is_no_wait_and_no_reason_to_idle(keep):
    """A request is compared by when its work begins; its job is submitted by its wait alone, and waits that long."""
    fetches = {"batch@big": 0.0, "batch@small": 300.0}
    forecast = LearnedForecast(
        KnownWaits(), lambda _: QueuedJob(2000.0, 4, 600.0), fetching_s=lambda _, partition, __: fetches[partition]
    )
    near, far = forecast.predict_each(("b",), [JobRequest(4, 600.0, place) for place in fetches])
    assert (near.wait_s, far.wait_s) == (5.0, 305.0)
    planned = PlannedJob(("b",), 1000.0, keep, "", far, needed_s=2000.0)
    (found,) = in_queues(Plan((planned,))).submissions
    assert found.prediction.wait_s == 5.0
    assert found.submit_s == (1300.0 if keep is Keep.AWAIT else 1000.0)
    same = Plan((replace(planned, prediction=near),))
    assert in_queues(same) is same


class OfPair:
    """The facility of one of a pair, which answers or not."""

    notes = ()

    def __init__(self, pair, name):
        self.pair, self.name = pair, name

    def connect(self, folder, *, sleep):
        raise AssertionError

    def connect_among_others(self, folder, own, *, sleep):
        link = self.pair.links[self.name]
        if link.down:
            raise UnavailableError("does not answer")
        return SlurmBackend(link, folder, self.pair.sites[self.name], own=own, clock=self.pair.clock, sleep=sleep)


class GoneError(Exception):
    """The client is no more."""


@pytest.mark.parametrize("away", ["big", "small"])
def test_a_client_that_comes_back_goes_on_while_one_cluster_is_away(tmp_path, monkeypatch, away):
    monkeypatch.setattr("asa.clusters.away._AGAIN_S", 0.0)
    stages = (
        at("a", (), "batch@big"),
        at("b", ("a",), "batch@small"),
        at("c", (), "batch@small"),
        at("d", (), "batch@big"),
    )
    folder = run_of(tmp_path, stages)
    pair = Pair(folder.path)
    facility = SeveralClusters({name: OfPair(pair, name) for name in pair.sites})

    def connect(run):
        return facility.connect(run.path, sleep=pair.clock.sleep)

    def leaves(record):
        if isinstance(record, Submitted) and sum(len(link.submitted) for link in pair.links.values()) >= 2:
            raise GoneError

    with pytest.raises(GoneError):
        drive(folder, connect, on_record=leaves)
    pair.links[away].down, back_s, sleep = True, pair.clock() + 200.0, pair.clock.sleep

    def slept(seconds):
        if pair.clock() > back_s:
            pair.links[away].down = False
        return sleep(seconds)

    monkeypatch.setattr(pair.clock, "sleep", slept)
    result = drive(folder, connect)
    assert result.outcome == "completed", result.reason
    state, _ = folder.state()
    assert {name: cluster_of(view.job_id) for name, view in state.stages.items()} == {
        "a": "big", "b": "small", "c": "small", "d": "big",
    }  # fmt: skip
    assert sum(len(link.submitted) for link in pair.links.values()) == 4, "none twice"


@pytest.mark.parametrize("away", ["small", "big"])
def test_a_job_that_nobody_needs_is_cancelled_while_another_cluster_is_away(tmp_path, away):
    stages = (
        at("fails", (), "batch@big", "sleep 60; exit 3"),
        at("follows", ("fails",), "batch@big"),
        at("goes-on", (), "batch@small", "sleep 400"),
    )
    folder = run_of(tmp_path, stages)
    pair, ended = Pair(folder.path), []
    began_s, sleep = pair.clock(), pair.clock.sleep

    def slept(seconds):
        pair.links[away].down = 30.0 < pair.clock() - began_s < 330.0
        return sleep(seconds)

    pair.clock.sleep = slept
    drive(folder, pair.connect, on_record=lambda one: ended.append(one) if isinstance(one, Ended) else None)
    [cancelled] = [one.time_s - began_s for one in ended if one.stages == ("follows",)]
    assert (cancelled < 300.0) == (away == "small"), cancelled
    assert [one.state for one in ended if one.stages == ("goes-on",)] == [JobState.COMPLETED]


def test_a_run_does_not_begin_where_a_cluster_was_never_reached(tmp_path):
    pair = Pair(tmp_path)
    pair.links["small"].down = True
    with pytest.raises(UnavailableError):
        SeveralClusters({name: OfPair(pair, name) for name in pair.sites}).connect(tmp_path)


def test_what_follows_a_local_stage_waits_for_what_is_before_that(tmp_path):
    stages = [
        at("a", (), "batch@big"),
        Stage("look", cores=1, local=True, after=("a",)),
        at("b", ("look",), "batch@small"),
    ]
    state = RunState("flow", Workflow("flow", stages), SITE, "abcd12345678")
    state.stages.change("a", job_id="1@big", phase=Phase.RUNNING)
    b = PlannedJob(("b",), 0.0, Keep.DEPENDENCY, "")
    assert waits_elsewhere(state, b, {})
    state.stages.change("a", phase=Phase.DONE)
    state.stages.change("look", job_id="local-17@login1", phase=Phase.RUNNING)
    assert not waits_elsewhere(state, b, {})
    assert fetching_s(state, ["b"], "batch@small") == 0.0, "what a local stage leaves is everywhere"


@pytest.mark.parametrize(("site", "times_s"), [(SITE, [100.0, 100.0]), (replace(SITE, moves_s=0.0), [100.0, 0.0])])
def test_who_may_have_to_fetch_is_submitted_once_it_is_known_where_from(site, times_s):
    stages = [at("a", (), "batch@big"), at("b", ("a",), "batch@small")]
    state = RunState("flow", Workflow("flow", stages), site, "abcd12345678")
    plan = [PlannedJob(("a",), 100.0, Keep.NOTHING, ""), PlannedJob(("b",), 0.0, Keep.AWAIT, "")]
    assert times_of(state, plan) == times_s


# ---------------------------------------------------------------------- site files


@pytest.fixture
def sites(tmp_path, monkeypatch):
    monkeypatch.setenv("ASA_SITES", str(tmp_path))

    def write(name, text):
        (tmp_path / f"{name}.toml").write_text(text)

    return write


def test_clusters_of_a_site_file_are_of_one_accounting_or_sites_of_their_own(sites):
    sites("far", 'backend = "slurm-rest"\nurl = "https://far.example.org"\npartition = "batch"\n')
    sites(
        "both",
        """
backend = "slurm-cli"
clusters = ["near", "far", "third"]
moves = "10min"
account = "proj"
[cluster.far]
account = "other"
[cluster.third]
backend = "slurm-cli"
prefix = "ssh third"
""",
    )
    opened = open_facility(site="both")
    assert opened.backend == "slurm-cli"
    assert opened.settings["cluster"] == {
        "near": {"backend": "slurm-cli", "account": "proj", "cluster": "near"},
        "far": {"backend": "slurm-rest", "url": "https://far.example.org", "partition": "batch", "account": "other"},
        "third": {"backend": "slurm-cli", "prefix": "ssh third"},
    }
    sites("far", "nonsense")
    again = open_facility(opened.backend, None, opened.settings)
    assert again.settings == opened.settings, "a run goes on as it was begun, whatever became of the files"
    changed = open_facility(opened.backend, None, {**opened.settings, "account": "mine"}).settings["cluster"]
    assert {of["account"] for of in changed.values()} == {"mine"}, "what is given for one command holds for all"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('clusters = ["a"]', "are not several"),
        ('clusters = ["a", "a"]', "are not several"),
        ("clusters = 3", "no list of clusters"),
        ('clusters = ["a", "b c"]', "no list of clusters"),
        ('clusters = ["a", "b@c"]', "no list of clusters"),
        ('clusters = ["a", "b"]\ncluster = "a"', "take another site: --backend slurm --option cluster=a"),
        ('clusters = ["a", "b"]\ncluster = 3', "no settings by cluster"),
        ('clusters = ["a", "b"]\n[cluster.c]\naccount = "x"', "no cluster 'c'"),
        ('clusters = ["a", "b"]\nmoves = "soon"', "'soon' is no duration"),
        ('clusters = ["a", "b"]\n[cluster.b]\nacount = "x"', "no setting 'acount'"),
        ('clusters = ["a", "b"]\n[cluster.b]\nbackend = "local"', "cannot be one of several clusters"),
    ],
)
def test_what_is_wrong_with_clusters_is_said(sites, text, words):
    sites("bad", f'backend = "slurm-cli"\n{text}\n')
    with pytest.raises(InputError, match=words):
        open_facility(site="bad")


def test_what_was_known_of_a_job_is_told_to_its_cluster_in_its_words(pair):
    """The later client's clusters do not show their jobs now, which left no marks and still run."""
    for link in pair.links.values():
        link.writes_marks = False
    first = pair.connect()
    ids = [first.submit(replace(job(name, f"batch@{name}"), command="sleep 500")) for name in ("big", "small")]
    known = {job_id: pair.until(first, job_id, JobState.RUNNING) for job_id in ids}
    known = {job_id: replace(status, nodes=(f"n1@{job_id.partition('@')[2]}",)) for job_id, status in known.items()}
    for link in pair.links.values():
        link.jobs = lambda _: {}
    later = pair.connect()
    for member in later._members.values():
        assert member.adopt(member.own(known[ids[0]])).start_s == known[ids[0]].start_s
    later.recall(known.get)
    found = later.status(ids)
    assert {(one.state, one.start_s) for one in found.values()} == {
        (JobState.RUNNING, one.start_s) for one in known.values()
    }
    assert {one.nodes for one in found.values()} == {("n1@big",), ("n1@small",)}


def test_a_backend_without_clusters_says_so(sites):
    with pytest.raises(InputError, match="'simulated' has no clusters to choose from"):
        open_facility("simulated", None, {"clusters": "a,b"})


def test_no_history_is_that_of_several_queues(sites):
    sites("both", 'backend = "slurm-cli"\nclusters = ["a", "b"]\n')
    with pytest.raises(InputError, match="queue of its own"):
        open_facility(site="both").facility.history(0.0)


class Called:
    """A facility whose cluster goes by a name; what is connected counts as open until it is closed."""

    notes = ()

    def __init__(self, system):
        self.system, self.is_open = system, False

    def connect(self, folder, *, sleep):
        raise AssertionError

    def connect_among_others(self, folder, own, *, sleep):
        if self.system is None:
            raise UnavailableError("is away")
        self.is_open, self.capabilities = True, cluster(self.system)
        return self

    def close(self):
        self.is_open = False

    def now(self):
        return 0.0


def test_clusters_of_one_name_are_refused_since_their_waits_could_not_be_told_apart(tmp_path):
    one, other = members = Called("slurm"), Called("slurm")
    with pytest.raises(InputError, match=r"a and b are both called 'slurm'"):
        SeveralClusters(dict(zip("ab", members, strict=True))).connect(tmp_path)
    assert (one.is_open, other.is_open) == (False, False)


def test_none_stays_open_if_one_cannot_be_reached(tmp_path):
    one = Called("x")
    with pytest.raises(UnavailableError):
        SeveralClusters({"a": one, "b": Called(None)}).connect(tmp_path)
    assert not one.is_open


# ---------------------------------------------------------------------- forecasts


def test_what_is_fetched_from_another_cluster_counts_in_forecasts():
    bank = WaitBank("last")
    for system, wait_s in (("big", 400.0), ("small", 50.0)):
        for number in range(20):
            one = QueuedJob(3600.0 * number, 4, 600.0, system=system, partition="batch")
            bank.observe(bank.submitted(one), exactly(wait_s))
    stages = [at("a", (), "batch@big"), *(at(name, (before,), "") for before, name in pairwise("abcd"))]
    state = RunState("flow", Workflow("flow", stages), SITE, "abcd12345678")
    state.stages.change("a", job_id="1@big", phase=Phase.DONE)
    job_of, queue = (lambda _: QueuedJob(1e6, 4, 600.0, "me", "big", "batch")), partial(queue_of, SITE)
    forecast = LearnedForecast(bank, job_of, queue_of=queue, fetching_s=partial(fetching_s, state))
    without = LearnedForecast(bank, job_of, queue_of=queue)
    here, there = (JobRequest(4, 600.0, partition) for partition in ("batch@big", "batch@small"))

    def more_s(of):
        return [round(more - less) for more, less in zip(*(of(one) for one in (forecast, without)), strict=True)]

    assert more_s(lambda one: [wait.p50 for wait in one.predict_each(("b",), [here, there])]) == [0, 300]

    def step(name, request, after):
        return PlanStep((name,), request, after, Keep.DEPENDENCY, False, 0.0, np.zeros(1), np.full(1, 60.0))

    stay, go = ([step("b", one, ()), step("c", one, (0,)), step("d", here, (1,))] for one in (here, there))
    assert more_s(lambda one: np.median(one.sample_plans([stay], 8)[0], axis=0)) == [0, 0, 0]
    # b fetches, c does not, and d does once more
    assert more_s(lambda one: np.median(one.sample_plans([go], 8)[0], axis=0)) == [300, 300, 600]
