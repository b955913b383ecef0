"""OpenCCS as a scheduler of the simulated machine, compared with a planner that counts cores second by second."""

import json

import numpy as np
import pytest
from asa.backends.openccs.core import OpenCcsCore
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import Chunk, ResourceRequest
from asa.backends.openccs.site import OpenCcsSite
from asa.backends.openccs.system import CcsSystem, Node
from asa.backends.simulated import SimulatedSite
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.swf import read_swf, write_swf
from asa.backends.simulated.table import NEVER, JobTable
from forked import asa
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.backend import JobSpec, JobState, Planning
from asa.errors import InputError
from asa.runner import Run, run_all
from asa.strategies import load_strategy
from asa.studies.ccs.drift import drift
from asa.studies.compare.study import Comparison, workflow_maker
from asa.testing import check_backend
from asa.workflow import Stage, Workflow

CORES = 8
JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(1, 20), st.integers(1, CORES)),
    min_size=1,
    max_size=12,
)
"""Submission, run time, what is asked for beyond it, cores."""


def table(jobs):
    submit, run, more, cores = (np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True))
    return JobTable(submit, run, run + more, cores)


def plainly(jobs, most=None):  # noqa: C901 - in one place, to be read beside the paper
    """Plan as the paper says, in the simplest way; return the final starts, and the first promised ones."""
    used = np.zeros(2000, dtype=int)
    planned, told, ends = {}, {}, {}

    def book(job, start, sign):
        used[start : start + jobs.request[job]] += sign * jobs.cores[job]

    def first(job, since, until):
        return next(
            (s for s in range(since, until) if (used[s : s + jobs.request[job]] + jobs.cores[job] <= CORES).all()), None
        )

    started = {}
    for now in range(1000):
        freed = [job for job, end in ends.items() if end == now]
        for job in freed:
            used[now : started[job] + jobs.request[job]] -= jobs.cores[job]
        for job in range(len(jobs)):
            if jobs.submit[job] == now:
                planned[job] = told[job] = first(job, now, 1500)
                book(job, planned[job], 1)
        if any(started[job] + jobs.request[job] > now for job in freed):
            for job in sorted(planned)[:most]:
                if planned[job] > now:
                    book(job, planned[job], -1)
                    better = first(job, now, planned[job])
                    planned[job] = planned[job] if better is None else better
                    book(job, planned[job], 1)
        for job in [job for job, start in planned.items() if start == now]:
            started[job] = planned.pop(job)
            ends[job] = now + jobs.run[job]
    return [[them[job] for job in range(len(jobs))] for them in (started, told)]


@pytest.mark.parametrize("most", [None, 2])
@given(JOBS)
def test_it_plans_as_the_paper_says(most, jobs):
    jobs = table(jobs)
    core = OpenCcsCore(CORES, jobs, now=0, most=most)
    core.run(NEVER - 1)
    assert [core.start.tolist(), core.promised.tolist()] == plainly(jobs, most)
    assert (core.start <= core.promised).all(), "nobody starts later than he was told"
    assert core.free == CORES
    assert core.exhausted
    assert not len(core.queued)


def on_one_node(jobs):
    """Plan with the planner of `asa ccs`, for which the machine is one node; return the starts."""
    plan, starts, ends = RequestPlan(CcsSystem("one", (Node("a", {"ncpus": CORES}),))), {}, {}
    for now in range(1000):
        for job in [job for job, end in ends.items() if end == now]:
            plan.end(str(job), now=now)
        for job in np.flatnonzero(jobs.submit == now).tolist():
            request = ResourceRequest((Chunk(1, {"ncpus": int(jobs.cores[job])}),), walltime_s=int(jobs.request[job]))
            plan.submit(request, now=now, name=str(job))
        plan.backfill(now=now)
        for job in plan.due(now):
            plan.begin(job.id, now=now)
            starts[int(job.id)], ends[int(job.id)] = now, now + int(jobs.run[int(job.id)])
    return [starts[job] for job in range(len(jobs))]


@settings(max_examples=10)
@given(JOBS)
def test_it_plans_as_the_planner_of_nodes_does(jobs):
    """The second planner exists since it is tens of times as fast where only cores are planned."""
    jobs = table(sorted(jobs))
    core = OpenCcsCore(CORES, jobs, now=0)
    core.run(NEVER - 1)
    assert core.start.tolist() == on_one_node(jobs)


@given(JOBS, st.integers(0, 80))
def test_a_fork_goes_on_by_itself(jobs, moment):
    core = OpenCcsCore(CORES, table(jobs), now=0)
    core.run(moment)
    twin = core.fork()
    core.run(NEVER - 1)
    assert (twin.start <= moment).all()
    twin.run(NEVER - 1)
    assert twin.start.tolist() == core.start.tolist()


def nothing():
    empty = np.empty(0, dtype=np.int64)
    return JobTable(empty, empty, empty, empty)


def test_a_client_s_job_is_in_the_same_plan():
    """The machine is full until 100 by its requests, and in fact until 40."""
    jobs = table([(0, 40, 60, 8), (0, 30, 0, 4)])
    world = Engine(CORES, jobs, core=OpenCcsCore(CORES, jobs, now=0))
    number = world.submit(cores=4, request=50, run=20)
    wide = world.submit(cores=8, request=10, run=10)
    world.advance(1)
    assert [world.planned(number), world.planned(wide)] == [100, 150]
    assert world.planned_start(4, 5, 0) == 130
    assert world.planned_start(4, 20, 131) == 160
    world.advance(NEVER)
    assert world.clients[number].start == 40, "the first ended early, and all moved"
    while world.clients[wide].end < 0:
        world.advance(NEVER)
    assert world.clients[wide].start == 70
    assert world.start.tolist() == [0, 40]


def live_until(world, moment):
    while world.now < moment:
        world.advance(moment)


def test_a_client_s_job_may_leave_shrink_and_wait_for_others():
    jobs = nothing()
    world = Engine(CORES, jobs, core=OpenCcsCore(CORES, jobs, now=0))
    first = world.submit(cores=8, request=100, run=100)
    second = world.submit(cores=8, request=50, run=50)
    third = world.submit(cores=4, request=50, run=50)
    held = world.submit(cores=1, request=5, run=5, held=True)
    live_until(world, 10)
    assert [world.planned(job) for job in (second, third, held)] == [100, 150, None]
    world.cancel(second)
    live_until(world, 11)
    assert world.planned(third) == 100
    assert world.widths.resize(first, 4)
    live_until(world, 12)
    assert world.clients[third].start == 11
    assert not world.widths.resize(first, 8)
    assert world.free_cores == 0
    world.release(held)
    live_until(world, 13)
    assert world.planned(held) == 61, "behind the third"
    live_until(world, 30)
    world.cancel(third)
    live_until(world, 31)
    assert world.clients[held].start == 30


@pytest.fixture
def quiet(tmp_path):
    """Return a log that leaves the machine to the client."""
    path = tmp_path / "quiet.swf"
    moments = np.arange(100, dtype=np.int64) * 10_000
    ones = np.ones(100, dtype=np.int64)
    write_swf(path, JobTable(moments, ones, ones, ones), cores=64)
    return path


def test_it_is_a_backend_like_any_other(quiet):
    check_backend(lambda: OpenCcsSite(trace=quiet).open(seed=3))


def test_a_wait_for_nothing_ends():
    log = table([(0, 5, 0, 1)])
    world = Engine(CORES, log, core=OpenCcsCore(CORES, log, now=0))
    assert world.advance(NEVER) == []
    assert world.exhausted


def test_a_planned_start_is_asked_and_kept(log):
    world = OpenCcsSite(trace=log).open(seed=1)
    assert isinstance(world, Planning)
    job = JobSpec("fit", cores=48, walltime_s=3600.0, run_s=300.0)
    planned_s = world.planned_start(job, world.now())
    job_id = world.submit(job)
    status = world.status([job_id])[job_id]
    assert status.state is JobState.PENDING
    while status.start_s is None:
        assert status.expected_start_s is None or status.expected_start_s <= planned_s
        world.wait(None)
        status = world.status([job_id])[job_id]
    assert status.start_s <= planned_s


def test_a_strategy_that_asks_learns_nothing(log):
    flow = Workflow("flow", [Stage("a", cores=16, walltime_s=600), Stage("b", cores=48, walltime_s=600, after=("a",))])
    world = OpenCcsSite(trace=log).open(seed=2)
    [result] = run_all(world, [Run(flow, load_strategy("asa-asks"))])
    assert result.outcome == "completed"


@pytest.mark.parametrize("strategy", ["asa-asks", "asa-naive-asks"])
def test_a_strategy_that_asks_is_refused_where_nobody_plans(quiet, strategy):
    flow = Workflow("flow", [Stage("a", cores=28, walltime_s=600)])
    with pytest.raises(InputError, match="needs a batch system that plans"):
        run_all(SimulatedSite(trace=quiet).open(seed=2), [Run(flow, load_strategy(strategy))])
    told = Comparison(workflow_maker("blast"), SimulatedSite(trace=quiet), (16,), ("per-stage", strategy), (1,))
    with pytest.raises(InputError, match="needs a batch system that plans"):
        told.check()
    arguments = ("compare", "blast", "--trace", quiet, "--cores", 16, "--seeds", 1, "--strategies", strategy)
    assert "needs a batch system that plans" in asa(*arguments, code=2).stderr
    assert strategy in asa(*arguments, "--scheduler", "openccs").stdout


@pytest.mark.parametrize("scheduler", ["easy", "conservative", "openccs"])
def test_only_a_machine_that_plans_can_be_asked(quiet, scheduler):
    world = SimulatedSite(trace=quiet, scheduler=scheduler).open(seed=1)
    assert isinstance(world, Planning) == world.capabilities.plans == (scheduler == "openccs")


@pytest.fixture
def log(tmp_path):
    """Return a log of a month of a busy machine of 64 cores, whose users request four times the needed time."""
    rng = np.random.default_rng(7)
    submit = np.cumsum(rng.exponential(900, 3000).astype(np.int64))
    run = rng.exponential(4000, 3000).astype(np.int64) + 1
    path = tmp_path / "busy.swf"
    write_swf(path, JobTable(submit, run, 4 * run, 2 ** rng.integers(0, 6, 3000)), cores=64)
    return path


def test_how_far_starts_drift_is_measured(log, tmp_path):
    out = tmp_path / "out.swf"
    told = json.loads(asa("ccs", "drift", log, "--output", "json", "--out", out).stdout)
    whole = told["classes"][0]
    assert told["later"] == 0
    assert whole["jobs"] == 3000 == sum(one["jobs"] for one in told["classes"][1:]) + _at_once(log)
    assert 0 < whole["log10_error"] < 2
    assert whole["early_s"] > 0
    again = read_swf(out)
    assert again.wait_s.tolist() == (drift_of(log).start - again.table.submit).tolist()
    table = asa("ccs", "drift", log, "--depth", 5).stdout
    assert "No jobs started later" in " ".join(table.split())
    assert drift(read_swf(log), most=5).classes[0].early_s <= whole["early_s"]


def drift_of(log):
    from asa.studies.ccs.drift import run_log

    return run_log(read_swf(log))


def _at_once(log):
    core = drift_of(log)
    return int((core.promised == read_swf(log).table.submit).sum())


def test_logs_are_simulated_by_it(log):
    told = json.loads(asa("simulate", log, "--scheduler", "openccs", "--output", "json").stdout)
    assert told["started"] == 3000
    few = json.loads(asa("simulate", log, "--scheduler", "openccs", "--set", "most=1", "--output", "json").stdout)
    assert few["mean_wait_s"] > told["mean_wait_s"]
