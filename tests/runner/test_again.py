"""Stages that fail and are tried again, runs that go on from a stage, and stages that run where the client is."""

import itertools
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable
from asa.backends.slurm.backend import SlurmBackend
from slurm_fake import Killed
from slurm_fake_link import FakeLink, VirtualClock

from asa import WaitBank
from asa.backend import Capabilities, JobState, JobStatus, PartitionLimits
from asa.elements import parse_array
from asa.errors import InputError, SubmitRejectedError
from asa.metrics import measure
from asa.records import Observed, Retrying, RunEnded, StageEnded, StageStarted
from asa.runner import Journal, Run, RunFolder, RunPlan, drive, run_all
from asa.runner.active import Active
from asa.runner.local_stages import WithLocalStages
from asa.runner.outlook import check_possible
from asa.runner.retries import avoidable, has_run_out_of_memory
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies import load_strategy
from asa.strategies.base import Keep, PlannedJob
from asa.workflow import Stage, Workflow

SITE = Capabilities("x", 112, 28, age_accrues=False)
STRATEGIES = ("per-stage", "chained", "asa", "asa-naive")


_CODES = {"fail": 1, "memory": 137}


class Flaky(FakeLink):
    """A Slurm in memory whose first jobs of a stage go wrong as listed: `fail`, `long`, `memory`, or a bad node.

    `killed inside`: a process is killed since memory is used up, and what it was part of exits with 0.
    """

    fates = {}  # noqa: RUF012 - set by each test for its own class

    def submit(self, job):
        job_id = super().submit(job)
        stage = job.name.rpartition(".")[0].rpartition("_")[2]
        fates = self.fates.get(stage, [])
        if fates:
            fate = fates.pop(0)
            if fate == "long":
                self.all[job_id].run_s = 1e6
            elif fate == "killed inside":
                self.all[job_id].ends_as = "OUT_OF_MEMORY"
            elif fate in _CODES:
                self.all[job_id].code = _CODES[fate]
            else:
                self.all[job_id].bad_node = fate
        return job_id


def stage(name, after=(), run_s=30, **more):
    return Stage(
        name, cores=1, expected_run_s=run_s, **{"walltime_s": 120.0, "command": f"sleep {run_s}"} | more, after=after
    )


class Place:
    """A run's folder on an in-memory Slurm."""

    def __init__(self, path, stages, strategy, fates=None, site=SITE):
        plan = RunPlan("abcd1234", "x", "x", tuple(stages), strategy, "slurm-cli", site, created_s=1.7e9)
        self.folder, self.clock, self.site = RunFolder.create(path, plan), VirtualClock(), site
        self.link = type("One", (Flaky,), {"fates": fates or {}})(self.clock, self.folder.path)

    def go(self, **options):
        return drive(self.folder, self.connect, **options)

    def connect(self, run):
        return SlurmBackend(self.link, run.path, self.site, clock=self.clock, sleep=self.clock.sleep)

    def jobs_of(self, name):
        return [job for job in self.link.all.values() if f"_{name}." in job.job.name]


def chain(**more):
    return [stage("a"), stage("b", ("a",), **more), stage("c", ("b",))]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stage_that_fails_is_tried_again_with_all_that_waits_for_it(strategy, tmp_path):
    place = Place(tmp_path, chain(retries=2), strategy, {"b": ["fail", "fail"]})
    result = place.go()
    assert result.outcome == "completed", result.reason
    assert [job.state for job in place.jobs_of("b")] == ["FAILED", "FAILED", "COMPLETED"]
    assert [job.state for job in place.jobs_of("a")] == ["COMPLETED"]
    assert [job.state for job in place.jobs_of("c")].count("COMPLETED") == 1
    assert all(job.state in {"COMPLETED", "CANCELLED"} for job in place.jobs_of("c"))
    assert [record.stages for record in result.records if isinstance(record, Retrying)] == [("b",)] * 2
    [began_b] = [job.payload_s for job in place.jobs_of("b") if job.state == "COMPLETED"]
    [ran_c] = [job for job in place.jobs_of("c") if job.state == "COMPLETED"]
    assert ran_c.payload_s >= began_b + 30
    assert measure(place.folder.plan.make_workflow(), result.records).makespan_s > 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stage_that_fails_too_often_ends_the_run(strategy, tmp_path):
    place = Place(tmp_path, chain(retries=1), strategy, {"b": ["fail", "fail"]})
    result = place.go()
    assert result.outcome == "failed"
    assert "stage 'b' ended as failed" in result.reason
    assert not [job for job in place.jobs_of("c") if job.payload_s is not None]
    assert all(job.state not in {"PENDING", "RUNNING"} for job in place.link.all.values())
    result = place.go(retry=True)
    assert result.outcome == "completed", result.reason


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_runs_out_of_walltime_gets_more_up_to_what_the_partition_gives(strategy, tmp_path):
    site = Capabilities("x", 112, 28, False, partition="p", partitions={"p": PartitionLimits(max_walltime_s=600.0)})
    place = Place(tmp_path, chain(retries=3, retry_walltime_factor=2.5), strategy, {"b": ["long"] * 3}, site)
    result = place.go()
    assert result.outcome == "completed", result.reason
    spare = 60 if strategy == "asa-naive" else 0
    longest = [job.walltime_s for job in place.jobs_of("b") if job.payload_s is not None]
    assert [walltime_s - 120 <= spare for walltime_s in longest] == [True, False, False, False]
    assert longest[-1] == 600
    assert [job.state for job in place.jobs_of("b") if job.payload_s is not None] == [*["TIMEOUT"] * 3, "COMPLETED"]


GIB = 1 << 30


@pytest.mark.parametrize(
    ("said", "gib"),
    [
        ({}, [3, 6, 12, 20]),  # and no more than its node has
        ({"retry_memory_factor": 1.5, "retry_max_memory_bytes": 5 * GIB}, [3, 4.5, 5, 5]),
        ({"retry_memory_factor": 1.0}, [3, 3, 3, 3]),
    ],
)
def test_who_runs_out_of_memory_gets_more_up_to_a_limit(said, gib, tmp_path):
    limits = {"p": PartitionLimits(memory_per_node_bytes=20 * GIB)}
    site = Capabilities("x", 112, 28, False, partition="p", partitions=limits)
    stages = chain(retries=3, memory_bytes=3 * GIB, **said)
    place = Place(tmp_path, stages, "per-stage", {"b": ["memory"] * 3}, site)
    result = place.go()
    assert result.outcome == "completed", result.reason
    assert [job.job.memory_bytes / GIB for job in place.jobs_of("b")] == gib
    told = [record.reason for record in result.records if isinstance(record, Retrying)]
    assert ("6 GiB of memory in place of 3 GiB" in told[0]) == (gib[1] == 6)
    assert "killed by SIGKILL" in told[0]


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa"])
def test_a_command_that_exits_with_0_though_memory_ran_out_has_failed(strategy, tmp_path):
    """The command runs again with more memory, and its successors begin afterwards."""
    place = Place(tmp_path, chain(retries=1, memory_bytes=GIB), strategy, {"b": ["killed inside"]})
    result = place.go()
    assert result.outcome == "completed", result.reason
    assert [job.job.memory_bytes / GIB for job in place.jobs_of("b")] == [1, 2]
    assert place.jobs_of("c")[-1].payload_s >= place.jobs_of("b")[-1].end_s
    [again] = [record.reason for record in result.records if isinstance(record, Retrying) and record.stages == ("b",)]
    assert "its memory was used up, and a process of it was killed" in again


def test_a_stage_may_say_that_its_exit_code_alone_counts(tmp_path):
    place = Place(tmp_path, chain(retries=1, out_of_memory="ignore"), "per-stage", {"b": ["killed inside"]})
    assert place.go().outcome == "completed"
    assert len(place.jobs_of("b")) == 1


def test_elements_of_an_array_that_ran_out_of_memory_have_failed(tmp_path):
    site = replace(SITE, arrays=True)
    place = Place(tmp_path, chain(retries=1, memory_bytes=GIB, array=parse_array("0-2")), "per-stage", site=site)
    submit = place.link.submit

    def with_one_killed(job):
        job_id = submit(job)
        if "_b." in job.name and len(place.jobs_of("b")) == 3:
            place.jobs_of("b")[1].ends_as = "OUT_OF_MEMORY"
        return job_id

    place.link.submit = with_one_killed
    assert place.go().outcome == "completed"
    assert [job.job.memory_bytes / GIB for job in place.jobs_of("b")] == [1, 1, 1, 2]


def test_a_stage_that_says_no_memory_cannot_have_more_of_it(tmp_path):
    place = Place(tmp_path, chain(retries=1), "per-stage", {"b": ["memory"]})
    assert place.go().outcome == "completed"
    assert [job.job.memory_bytes for job in place.jobs_of("b")] == [0, 0]


@pytest.mark.parametrize(
    ("state", "reason", "code", "is_so"),
    [
        (JobState.FAILED, "OUT_OF_MEMORY", 0, True), (JobState.FAILED, "OutOfMemory", 125, True),
        (JobState.FAILED, "NonZeroExitCode", 137, True), (JobState.FAILED, "NonZeroExitCode", 1, False),
        (JobState.TIMEOUT, "", 137, False), (JobState.CANCELLED, "OutOfMemory", None, False),
    ],
)  # fmt: skip
def test_what_running_out_of_memory_looks_like(state, reason, code, is_so):
    assert has_run_out_of_memory(JobStatus("1", state, 0.0, exit_code=code, reason=reason)) == is_so


def excluded(job):
    return [option for option in job.job.options if option.startswith("--exclude")]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_is_tried_again_after_a_fault_of_its_node_keeps_off_that_node(strategy, tmp_path):
    place = Place(tmp_path, chain(retries=3, options=("--exclude=n9",)), strategy, {"b": ["n1", "n2", "fail"]})
    result = place.go()
    assert result.outcome == "completed", result.reason
    ran = [job for job in place.jobs_of("b") if job.payload_s is not None]
    # no more than half of the four nodes that there are
    assert [excluded(job) for job in ran] == [["--exclude=n9"], ["--exclude=n9,n1"], *[["--exclude=n9,n1,n2"]] * 2]
    told = [record.reason for record in result.records if isinstance(record, Retrying)]
    assert told[0].endswith("now on another node than n1")
    assert "node than" not in told[2]
    assert not any(excluded(job) for job in place.jobs_of("a"))


def test_where_no_other_node_will_do_a_job_may_have_the_bad_one(tmp_path):
    """Slurm refuses a job that cannot run on the remaining nodes, as in a small partition or with a constraint."""
    place = Place(tmp_path, chain(retries=1), "per-stage", {"b": ["n1"]})
    submit = place.link.submit

    def picky(job):
        if any(option.startswith("--exclude") for option in job.options):
            raise SubmitRejectedError("Requested node configuration is not available", where=f"job {job.name!r}")
        return submit(job)

    place.link.submit = picky
    result = place.go()
    assert result.outcome == "completed", result.reason
    assert [excluded(job) for job in place.jobs_of("b")] == [[], []]


def test_nodes_that_are_avoided_are_eight_at_most_and_half_of_all():
    bad = [f"n{number}" for number in range(12)]
    assert avoidable(bad, Capabilities("x", 2800, 28, False)) == tuple(bad[-8:])
    assert avoidable(bad, Capabilities("x", 112, 28, False)) == ("n10", "n11")
    assert avoidable(bad, Capabilities("x", 28, 28, False)) == ()


def test_a_big_job_is_tried_again_as_a_whole(tmp_path):
    place = Place(tmp_path, [stage("a", retries=1), stage("b", ("a",))], "big-job", {"a+b": ["long"]})
    result = place.go()
    assert result.outcome == "completed", result.reason
    first, second = place.link.all.values()
    assert (first.state, second.state) == ("TIMEOUT", "COMPLETED")
    assert second.walltime_s > first.walltime_s


def test_what_somebody_cancelled_is_not_tried_again(tmp_path):
    place = Place(tmp_path, chain(retries=5, run_s=100), "per-stage")
    told = place.link.jobs

    def cancelled(ids):
        for job in place.jobs_of("b"):
            if job.state == "RUNNING" and place.link.now_s > job.start_s + 10:
                place.link._end(job, "CANCELLED", None)
        return told(ids)

    place.link.jobs = cancelled
    result = place.go()
    assert result.outcome == "failed"
    assert "cancelled" in result.reason
    assert len(place.jobs_of("b")) == 1


@pytest.mark.parametrize("strategy", [*STRATEGIES, "big-job"])
def test_a_run_that_completed_goes_on_from_a_stage(strategy, tmp_path):
    place = Place(tmp_path, [stage("a"), stage("b", ("a",)), stage("d", ("a",)), stage("c", ("b",))], strategy)
    assert place.go().outcome == "completed"
    first = set(place.link.all)
    began_s = place.clock()
    result = place.go(again=("b",))
    assert result.outcome == "completed", result.reason
    names = {job.job.name.rpartition(".")[0].rpartition("_")[2] for i, job in place.link.all.items() if i not in first}
    assert names == ({"b", "c"} if strategy != "big-job" else {"b+c"})
    again = [job for job in place.jobs_of("c") if job.job_id not in first]
    assert all(job.payload_s is None or job.payload_s >= began_s + 30 for job in again), "not on b's first mark"
    state, _ = place.folder.state()
    assert state.generations == {"b": 1, "c": 1}
    assert place.go().outcome == "completed"
    assert set(place.link.all) - first == {job.job_id for job in place.link.all.values() if job.job_id not in first}


def test_going_on_from_a_stage_is_safe_whatever_dies(tmp_path):
    """A client may die after any entry: the next client completes the stage, and no job exists twice."""
    place = Place(tmp_path, chain(), "chained")
    assert place.go().outcome == "completed"
    count = len(place.link.all)
    real, died = Active.commit, []
    for at in range(100):
        left = [at]

        def commit(active, *entries, left=left):
            real(active, *entries)
            left[0] -= len(entries)
            if left[0] < 0:
                raise Killed

        Active.commit = commit
        try:
            place.go(again=("c",))
        except Killed:
            died.append(at)
        finally:
            Active.commit = real
        assert place.go().outcome == "completed"
        count += 1
        assert len([job for job in place.link.all.values() if job.state == "COMPLETED"]) == count
        if at not in died:
            break
    assert len(died) >= 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_workflow_that_was_mended_is_what_runs_from_then_on(strategy, tmp_path):
    """Records of earlier jobs keep the stages as they were then."""
    place = Place(tmp_path, chain(retries=2), strategy, {"b": ["fail"] * 3})
    assert place.go().outcome == "failed"
    flow = place.folder.plan.make_workflow()
    mended = [
        replace(stage, retries=0, walltime_s=600.0) if stage.name == "b" else stage for stage in flow.stages.values()
    ]
    result = place.go(retry=True, revised=Workflow("x", mended))
    assert result.outcome == "completed", result.reason
    assert [job.state for job in place.jobs_of("b")] == [*["FAILED"] * 3, "COMPLETED"]
    assert place.jobs_of("b")[-1].walltime_s >= 600
    state, records = place.folder.state()
    assert state.stages["b"].stage.walltime_s == 600.0
    assert sum(isinstance(record, Retrying) for record in records) == 2
    assert [record.outcome for record in records if isinstance(record, RunEnded)] == ["failed", "completed"]
    tokens = [job.job.comment for job in place.link.all.values()]
    assert len(set(tokens)) == len(tokens)


def test_between_two_tries_there_is_a_pause(tmp_path):
    place = Place(tmp_path, chain(retries=3), "per-stage", {"b": ["fail"] * 3})
    assert place.go().outcome == "completed"
    jobs = place.jobs_of("b")
    pauses = [after.submit_s - before.end_s for before, after in itertools.pairwise(jobs)]
    assert [pause >= least for pause, least in zip(pauses, (5, 10, 20), strict=True)] == [True] * 3


@pytest.mark.parametrize("end", ["exit 82 # ends as setup-failed", "exit 127"])
def test_what_would_fail_again_is_not_tried_again(end, tmp_path):
    stages = [stage("a", command=f"sleep 5; {end}", retries=3)]
    place = Place(tmp_path, stages, "per-stage")
    assert place.go().outcome == "failed"
    assert len(place.link.all) == 1


@pytest.mark.parametrize("code", [82, 84, 86, 88, 89, 90, 91, 92, 124])
def test_a_programs_own_exit_code_is_tried_again_as_any_other(code, tmp_path):
    place = Place(tmp_path, [stage("a", command=f"sleep 5; exit {code}", retries=1)], "per-stage")
    assert place.go().outcome == "failed"
    assert len(place.link.all) == 2
    assert place.folder.state()[0].reason == f"stage 'a' ended as failed (exit code {code})"


@pytest.mark.parametrize(
    ("tasks", "asked"),
    [
        ((3, 14), (42, 14)),
        ((1, 14), (42, 14)),
        ((3, 16), (30, 3)),  # of nodes of 28 cores tasks of 16 would leave 12 over
        ((1, 1), (30, 1)),
    ],
)
def test_a_shared_job_has_cores_for_the_largest_task_of_its_stages(tasks, asked):
    """Tasks that fill nodes determine the job's cores; otherwise the tasks of the widest stage do."""
    stages = [
        Stage("a", cores=30, cpus_per_task=tasks[0]),
        Stage("b", cores=tasks[1], cpus_per_task=tasks[1], after=("a",)),
    ]
    state = RunState("x", Workflow("x", stages), SITE, "abcd1234")
    spec = spec_of(state, PlannedJob(("a", "b"), 0.0, Keep.NOTHING, ""))
    assert (spec.cores, spec.cpus_per_task) == asked
    nodes = RunState("x", Workflow("x", [Stage("a", nodes=2, cpus_per_task=8)]), SITE, "abcd1234")
    spec = spec_of(nodes, PlannedJob(("a",), 0.0, Keep.NOTHING, ""))
    assert (spec.cores, spec.cpus_per_task, spec.nodes) == (48, 8, 2), "three tasks fit on each node of 28 cores"


def test_stages_that_contradict_each_other_cannot_share_a_job():
    stages = (stage("a", options=("--constraint=x",)), stage("b", ("a",), options=("--constraint=y",)))
    plan = RunPlan("abcd1234", "x", "x", stages, "big-job", "slurm-cli", SITE)
    with pytest.raises(InputError, match="--constraint=x and --constraint=y"):
        check_possible(plan, load_strategy("big-job"))
    check_possible(plan, load_strategy("per-stage"))
    plan = replace(plan, stages=(stage("a", partition="p"), stage("b", ("a",), partition="q")))
    with pytest.raises(InputError, match="2 partitions"):
        check_possible(plan, load_strategy("big-job"))


def test_a_job_with_more_walltime_still_fits_its_partition(tmp_path):
    """One stage of a Big Job ran out of walltime."""
    site = Capabilities("x", 112, 28, False, partition="p", partitions={"p": PartitionLimits(max_walltime_s=300.0)})
    place = Place(tmp_path, [stage("a", retries=1), stage("b", ("a",))], "big-job", {"a+b": ["long"]}, site)
    assert place.go().outcome == "completed"
    assert [job.walltime_s for job in place.link.all.values()] == [240, 300]


# ---------------------------------------------------------------------- local stages


@dataclass
class Site:
    """A facility over an in-memory link."""

    link: FakeLink
    clock: VirtualClock
    notes: tuple = ()

    def connect(self, folder, *, sleep):
        return SlurmBackend(self.link, folder, SITE, clock=self.clock, sleep=sleep)

    def advice(self, reason):
        return f"advice on {reason}"


@pytest.mark.parametrize("strategy", [*STRATEGIES, "big-job"])
def test_a_local_stage_runs_beside_the_queue(strategy, tmp_path):
    clock = VirtualClock()
    (tmp_path / "run").mkdir()
    far, near = (Site(FakeLink(clock, tmp_path / "run"), clock) for _ in range(2))
    both = WithLocalStages(far, near)
    assert both.advice("x") == "advice on x"
    flow = Workflow("x", [stage("a"), stage("b", ("a",), run_s=2, local=True), stage("c", ("b",)), stage("d", ("c",))])
    with closing(both.connect(tmp_path / "run", sleep=clock.sleep)) as backend:
        run = Run(flow, load_strategy(strategy), id="abcd1234", journal=Journal(tmp_path / "journal.jsonl"))
        run = Run(flow, run.strategy, id=run.id, journal=run.journal, bank=WaitBank("last"))
        [result] = run_all(backend, [run])
    assert result.outcome == "completed", result.reason
    here = [job.job.name for job in near.link.all.values()]
    there = {job.job.name.partition(".")[0] for job in far.link.all.values() if job.payload_s is not None}
    if strategy == "big-job":
        assert (here, there) == ([], {"x_x"})
        return
    assert [name.partition(".")[0] for name in here] == ["x_b"]
    assert there == {"x_a", "x_c", "x_d"}
    began = {record.stages[0]: record.time_s for record in result.records if isinstance(record, StageStarted)}
    assert began["a"] + 30 <= began["b"] <= began["c"] - 2
    assert not [record for record in result.records if isinstance(record, Observed) and "b" in record.stages]
    if strategy == "chained":
        [c] = [job for job in far.link.all.values() if job.job.name.startswith("x_c")]
        assert c.submit_s < began["b"], "asked for ahead of time, behind the stage before the local one"
        assert c.job.dependency.startswith("afterok:")


def test_what_may_idle_behind_local_stages_is_bounded_for_the_run(tmp_path):
    """Each of six siblings may idle within the limit, all of them together may not."""
    clock = VirtualClock()
    (tmp_path / "run").mkdir()
    far, near = (Site(FakeLink(clock, tmp_path / "run"), clock) for _ in range(2))
    behind = [stage(f"c{n}", ("b",), run_s=600, walltime_s=900) for n in range(6)]
    flow = Workflow("x", [stage("a"), stage("b", ("a",), run_s=600, walltime_s=900, local=True), *behind])
    with closing(WithLocalStages(far, near).connect(tmp_path / "run", sleep=clock.sleep)) as backend:
        run = Run(flow, load_strategy("chained"), id="abcd1234", journal=Journal(tmp_path / "journal.jsonl"))
        [result] = run_all(backend, [run])
    assert result.outcome == "completed", result.reason
    began = next(r.time_s for r in result.records if isinstance(r, StageStarted) and r.stages == ("b",))
    jobs = [job for job in far.link.all.values() if job.job.name.startswith("x_c")]
    assert len(jobs) == 6
    assert sum(job.submit_s < began for job in jobs) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_on_a_simulated_machine_a_local_stage_waits_for_nobody(strategy):
    columns = np.array([(0, 100, 100, 8), (1, 10_000, 10_000, 8)], dtype=np.int64).T
    world = SimulatedBackend(Engine(8, JobTable(*columns), now=0), Machine("m", 1, 8))
    flow = Workflow("x", [stage("a"), stage("b", ("a",), run_s=2, local=True), stage("c", ("b",))])
    [result] = run_all(world, [Run(flow, load_strategy(strategy), bank=WaitBank("last"))])
    assert result.outcome == "completed"
    began, ended = (
        {record.stages[0]: record.time_s for record in result.records if isinstance(record, kind)}
        for kind in (StageStarted, StageEnded)
    )
    assert began["b"] - ended["a"] <= 1
    assert began["c"] >= ended["b"]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_job_refused_since_what_it_depends_on_failed_as_it_was_sent_shares_that_ones_fate(retries, tmp_path):
    class Slow(SlurmBackend):
        """A machine whose submissions take so long that jobs may end between two looks."""

        def submit(self, spec):
            self._sleep(40.0)
            return super().submit(spec)

    stages = [stage("a", retries=retries), stage("b", ("a",))]
    place = Place(tmp_path, stages, "chained", {"a": ["fail"]})
    place.connect = lambda run: Slow(place.link, run.path, SITE, clock=place.clock, sleep=place.clock.sleep)
    result = place.go()
    if retries:
        assert result.outcome == "completed", result.reason
    else:
        assert (result.outcome, result.reason) == ("failed", "stage 'a' ended as failed (exit code 1)")
    assert len(place.jobs_of("b")) == retries


def test_stages_in_nodes_and_in_cores_share_as_many_nodes_as_the_wider_needs():
    flow = Workflow("w", [Stage("a", cores=112, walltime_s=60), Stage("b", nodes=1, walltime_s=60, after=("a",))])
    state = RunState("r", flow, SITE, "abc")
    assert spec_of(state, PlannedJob(("a", "b"), 0.0, Keep.NOTHING, "")).nodes == 4
    assert spec_of(state, PlannedJob(("a",), 0.0, Keep.NOTHING, "")).nodes == 0
